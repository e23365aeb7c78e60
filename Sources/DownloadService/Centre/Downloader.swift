internal import DBus
internal import DownloadModel
internal import EventLoop
internal import Logging
internal import PartFiles
internal import Scheduling
internal import TransferEngine

/// The centre: the host of `TurnExecutor`, which carries out the scheduler's decisions here. The centre passes events of the engine, the
/// disk pool and the clock to the executor, and tells the observers about changes of downloads.
///
/// All of this happens synchronously on the bus thread. A change goes through the journal, and so do its consequences, behind the change.
@BusActor final class Downloader {
    let list: DownloadList
    let journal: Journal
    let descriptors: Descriptors
    let log: Logger
    private let ownerCalls: OwnerCalls
    private(set) lazy var executor = ServiceExecutor(scheduler, journal.gate, host: self)
    private(set) lazy var engine = Engines(configuration: configuration, home: home) { [weak self] in self?.take($0) }
    private lazy var alarm = WallAlarm { [weak self] in
        self?.decide(.time)
    } clockSet: { [weak self] delta in
        self?.clockJumped(by: delta)
    }
    /// Held while any work proceeds by itself.
    private let hold: IdleExit.Hold
    /// The observers of downloads, set by `begin`.
    private var observers: [any DownloadObserver] = []
    private let configuration: EngineConfiguration
    /// The state folder. It holds the written maps in `mapFolder`.
    private let home: String
    /// How part files are named.
    let partNames: PartNames
    /// Whether hidden folders may be destinations (`--allow-hidden-folders`).
    let allowsHiddenFolders: Bool
    /// The folders of assets, which may be hidden.
    let assetFolders: AssetFolders
    let silentFolders = SilentFolders()
    let extractions = Extractions()
    let unwantedFolders = UnwantedFolders()
    /// The cookies that servers have set for unfinished downloads.
    var setCookies = SetCookies()
    /// The pause before the next slice while the bus has not taken the signals sent so far.
    private static let breath: Duration = .milliseconds(2)

    init(
        list: DownloadList, journal: Journal, descriptors: Descriptors, ownerCalls: OwnerCalls, configuration: EngineConfiguration,
        home: String, partNames: PartNames, allowsHiddenFolders: Bool, assetFolders: AssetFolders, hold: IdleExit.Hold, log: Logger
    ) {
        (self.list, self.journal, self.descriptors, self.ownerCalls) = (list, journal, descriptors, ownerCalls)
        (self.configuration, self.home, self.partNames) = (configuration, home, partNames)
        (self.allowsHiddenFolders, self.assetFolders, self.hold, self.log) = (allowsHiddenFolders, assetFolders, hold, log)
    }

    /// Whether a download into `directory` may go through a hidden folder.
    func allowsHidden(in directory: String) -> Bool { allowsHiddenFolders || assetFolders.contains(directory) }

    var scheduler: Scheduler { list.scheduler }
    /// The folder of the written maps.
    var mapFolder: String { "\(home)/segments" }

    /// Starts to work on the restored downloads.
    ///
    /// - Parameters:
    ///   - crashed: the downloads at which earlier processes crashed repeatedly.
    ///   - owed: the toasts that earlier processes owed.
    ///   - observers: in the order in which they are called.
    func begin(crashed: [DownloadNumber], owed: [Scheduler.OwedToast], observers: [any DownloadObserver]) {
        self.observers = observers
        journal.begin(telling: self)
        if scheduler.settings.speedLimit > 0 { engine.setTotalSpeedLimit(scheduler.settings.speedLimit) }
        extractions.progressed = { [weak self] in self?.noteExtractions($0) }
        decide(.begins(crashed: crashed, owed: owed))
        guard scheduler.counts.verifying > 0 else { return }
        for entry in scheduler.entries.values where entry.isInPool {
            switch entry.state {
            case .committing: findCommitted(entry)
            case .extracting: unpack(entry)
            default: break
            }
        }
    }

    /// Starts no further download, because the program ends.
    func end() {
        decide(.ends)
        extractions.stopAll()
    }

    /// The service exits: removes its dock marks and its jobs.
    func leave() { tell { $0.left() } }

    /// Passes the events to the scheduler, and carries out its decisions.
    func decide(_ events: Scheduler.Event...) { executor.decide(events) }

    /// Calls every observer.
    func tell(_ body: (any DownloadObserver) -> Void) { for observer in observers { body(observer) } }

    private func clockJumped(by delta: Duration) {
        log.info("the clock was set", metadata: ["by": "\(delta)"])
        decide(.clockJumped(delta))
    }
}

extension Downloader: TurnHost {
    typealias GateHost = Journal

    // MARK: The clock and the loop

    var now: WallTime { .now }
    var isJournalFull: Bool { journal.isFull }
    func setAlarm(_ time: WallTime?) { alarm.set(microseconds: time?.microseconds) }

    func continueSlicesLater() {
        let next: @BusActor @Sendable () -> Void = { [self] in executor.continueSlices() }
        if journal.isBehind { Poller.shared.schedule(after: Self.breath, next) } else { BusActor.spawn { next() } }
    }

    func failed(_ fault: Scheduler.Fault) {
        log.critical("the scheduler has made a mistake", metadata: ["fault": "\(fault)"])
        assertionFailure("\(fault)")
    }

    func carriedOut() {
        if descriptors.isHolding { descriptors.release(where: scheduler.isDone) }
        tell { $0.decided() }
        hold.isHeld = scheduler.hasWork || scheduler.hasSlices
    }

    // MARK: The engine. The pool is in Transfers.swift.

    func permit(_ id: RequestID, question: UInt64, tellsSent: Bool, mustShare: Bool) {
        engine.permit(id, question: question, tellsSent: tellsSent, mustShare: mustShare)
    }
    func withdraw(_ id: RequestID) { engine.withdraw(id) }
    func stopTransfer(_ entry: ScheduledDownload) { engine.stop(entry.number) }

    // MARK: Observers of changes

    func changed(_ change: Scheduler.Change) {
        setCookies.changed(change)
        tell { $0.changed(change) }
        list.forget(change.entry.number)
    }

    func tell(_ entry: ScheduledDownload) {
        tell { $0.told(entry) }
        list.forget(entry.number)
    }

    func tellWait(_ entry: ScheduledDownload) {
        tell { $0.toldWait(entry) }
        list.forget(entry.number)
    }

    func announceEnd(_ entry: ScheduledDownload) -> () -> Void {
        let download = list.download(entry.number) ?? list.object(of: entry)
        tell { $0.ends(download) }
        setCookies.forget(entry.number)
        log.info(
            "download ended",
            metadata: [
                "download": "\(download.number)", "outcome": "\(download.state.name)",
                "error": "\(download.state.endFailure?.name.rawValue ?? "")",
            ])
        let owed = entry.owedToast
        return { [self] in
            tell { $0.ended(download, owed) }
            list.forget(download.number)
        }
    }

    func announceEnd(_ entry: ScheduledBatch, _ outcomes: OutcomeCounts) -> (() -> Void)? {
        guard let batch = list.batch(entry.number) else { return nil }
        tell { $0.ends(batch, outcomes) }
        log.info(
            "batch ended",
            metadata: [
                "batch": "\(batch.number)", "finished": "\(outcomes.finished)", "failed": "\(outcomes.failed)",
                "cancelled": "\(outcomes.cancelled)",
            ])
        let end = BatchEnd(batch, outcomes, in: scheduler)
        return { [self] in tell { $0.ended(entry, end) } }
    }

    func allEnded(_ outcomes: OutcomeCounts) { tell { $0.allEnded(outcomes) } }
    func showOwed(_ toasts: [Scheduler.OwedToast]) { tell { $0.owed(toasts) } }

    func removed(_ entry: ScheduledDownload) {
        list.untrack(entry)
        setCookies.forget(entry.number)
        tell { $0.removed(entry) }
    }

    func removed(_ entry: ScheduledBatch) { if let batch = list.untrack(entry.number) { tell { $0.removed(batch) } } }

    func callOwner(_ entry: ScheduledDownload) { ownerCalls.ask(DownloadEndCall(download: list.object(of: entry), executor: executor)) }
}

extension Downloader: JournalObserver {
    func setAsideChanged() { tell { $0.setAsideChanged() } }

    func commitsSucceedAgain() {
        tell { $0.commitsSucceedAgain() }
        decide()
    }
}

extension DownloadState {
    /// The error that answers calls about an ended download; nil if it finished or has not ended.
    var endFailure: DownloadFailure? {
        switch self {
        case .failed(let failure): failure
        case .cancelled: DownloadFailure(.cancelled, "The download was cancelled.")
        default: nil
        }
    }
}

/// The URL without user, password and query, for display and logs.
func redacted(_ url: String) -> String { (try? DownloadURL(url).redacted) ?? "" }
