internal import DBus
internal import Desktop
internal import DownloadModel
internal import EventLoop
internal import Logging
internal import PartFiles
internal import Scheduling
internal import TransferEngine

/// Connects the ledger with the machine's network and sleep.
@BusActor final class SystemEvents: DownloadObserver {
    private unowned let downloader: Downloader  // the centre outlives its observers
    private let network: NetworkState
    private var awake: Awake?
    /// The machine waits for our checkpoints before it sleeps.
    private var isExpected = false

    init(_ downloader: Downloader, session: Connection) {
        let system = SystemBus()
        let log = downloader.log
        self.downloader = downloader
        network = NetworkState(system: system, session: session, hasRoute: { Engine.hasRoute() }) { [unowned downloader] condition in
            if let condition { log.info("network", metadata: ["reach": "\(condition.reach)", "metered": "\(condition.isMetered)"]) }
            downloader.decide(.network(condition))
        }
        awake = Awake(system: system, session: session) { [weak self] in self?.sleeps($0) }
    }

    func decided(_ downloader: Downloader) {
        let ledger = downloader.ledger
        awake?.keep(ledger.isMoving || ledger.counts.verifying > 0)
        network.needed(ledger.counts.queued + ledger.counts.active + ledger.counts.waitingForTime > 0)
        guard isExpected, ledger.isAtRest else { return }
        isExpected = false
        downloader.journal.afterCommit { [self] in if downloader.ledger.isAtRest { awake?.release() } }
    }

    private func sleeps(_ isAsleep: Bool) {
        downloader.log.info(isAsleep ? "the machine goes to sleep" : "the machine is awake")
        isExpected = isAsleep
        if isAsleep {
            downloader.decide(.sleeps)
        } else {
            downloader.engine.forgetConnections()
            downloader.decide(.wakes)
        }
    }
}
