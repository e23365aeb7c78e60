internal import DBus
internal import Desktop
internal import DownloadModel
internal import EventLoop
internal import Logging
internal import PartFiles
internal import Scheduling
internal import TransferEngine

/// Connects the ledger with the machine's network and sleep.
@BusActor final class Surroundings {
    private let network: NetworkState
    private let awake: Awake
    /// The machine waits for our checkpoints before it sleeps.
    private var isExpected = false
    private let atRest: () -> Void

    init(_ downloader: Downloader, session: Connection) {
        let system = SystemBus()
        let log = downloader.log
        network = NetworkState(system: system, session: session, hasRoute: { Engine.hasRoute() }) { [unowned downloader] condition in
            if let condition { log.info("network", metadata: ["reach": "\(condition.reach)", "metered": "\(condition.isMetered)"]) }
            downloader.decide { ledger, now in ledger.network(condition, now: now) }
        }
        awake = Awake(system: system, session: session) { [unowned downloader] isAsleep in
            downloader.surroundings?.sleeps(isAsleep, downloader)
        }
        let awake = awake
        atRest = { [unowned downloader] in downloader.journal.afterCommit { if downloader.ledger.isAtRest { awake.letGo() } } }
    }

    /// Called after each decision of the ledger.
    func changed(_ ledger: Ledger) {
        awake.keep(ledger.isMoving || ledger.counts.verifying > 0)
        network.needed(ledger.counts.queued + ledger.counts.active + ledger.counts.waitingForTime > 0)
        guard isExpected, ledger.isAtRest else { return }
        isExpected = false
        atRest()
    }

    private func sleeps(_ isAsleep: Bool, _ downloader: Downloader) {
        downloader.log.info(isAsleep ? "the machine goes to sleep" : "the machine is awake")
        isExpected = isAsleep
        if isAsleep {
            downloader.decide { ledger, now in ledger.sleep(now: now) }
        } else {
            downloader.engine.forgetConnections()
            downloader.decide { ledger, now in ledger.wake(now: now) }
        }
    }
}
