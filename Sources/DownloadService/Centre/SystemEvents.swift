internal import Assets
internal import DBus
internal import Desktop
internal import DownloadModel
internal import EventLoop
internal import Logging
internal import PartFiles
internal import Scheduling
internal import TransferEngine

/// Connects the scheduler with the machine's network and sleep. Assets need the network, too.
@BusActor final class SystemEvents: DownloadObserver {
    private let scheduler: Scheduler
    private let assets: AssetUpdater
    private let events: any EventSink
    private let journal: Journal
    private let engine: Engines
    private let log: Logger
    private let network: NetworkState
    private var awake: Awake?
    /// The machine waits for our checkpoints before it sleeps.
    private var isExpected = false

    init(
        scheduler: Scheduler, assets: AssetUpdater, events: any EventSink, journal: Journal, engine: Engines, session: Connection,
        log: Logger
    ) {
        let system = SystemBus()
        (self.scheduler, self.assets, self.events, self.journal) = (scheduler, assets, events, journal)
        (self.engine, self.log) = (engine, log)
        network = NetworkState(system: system, session: session, hasRoute: { Engine.hasRoute() }) { condition in
            if let condition { log.info("network", metadata: ["reach": "\(condition.reach)", "metered": "\(condition.isMetered)"]) }
            engine.setMetered(condition?.isMetered ?? false)
            events.decide(.network(condition))
        }
        awake = Awake(system: system, session: session) { [weak self] in self?.sleeps($0) }
    }

    func decided() {
        awake?.keep(scheduler.isMoving || scheduler.counts.verifying > 0)
        watchNetwork()
        guard isExpected, scheduler.isAtRest else { return }
        isExpected = false
        journal.afterCommit { [self] in if scheduler.isAtRest { awake?.release() } }
    }

    func assetsDecided() { watchNetwork() }

    private func watchNetwork() {
        network.needed(scheduler.counts.queued + scheduler.counts.active + scheduler.counts.waitingForTime > 0 || assets.awaitsNetwork)
    }

    private func sleeps(_ isAsleep: Bool) {
        log.info(isAsleep ? "the machine goes to sleep" : "the machine is awake")
        isExpected = isAsleep
        if isAsleep {
            events.decide(.sleeps)
        } else {
            engine.forgetConnections()
            events.decide(.wakes)
        }
    }
}
