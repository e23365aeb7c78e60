internal import DBus
internal import DownloadModel
internal import DownloadStore
internal import DownloaderInterface
internal import EventLoop
internal import Scheduling

/// Tells the bus: progress within the budget, changed properties, ends in the contract's order. All but progress goes through the journal,
/// which has it wait for the commit of what it tells; progress states nothing durable. While commits fail, what changes of an object is
/// gathered and told as one.
@BusActor final class Announcer {
    /// Between two `Progress` of a download, at least.
    private static let progressInterval: Duration = .milliseconds(100)
    /// `Progress` signals in all, in a second: with more downloads each one's interval stretches.
    private static let progressBudget = 200
    /// Between two `PropertiesChanged` of an object that are not about its state, at least.
    private static let propertiesInterval: Duration = .milliseconds(250)

    /// With so many bytes that the bus has not taken, progress is held back: it can wait, and must not grow our queue.
    private static let mostUnsent = 1 << 20

    private let journal: Journal
    private let unsentBytes: () -> Int
    private var managerTold: [String: Variant] = [:]
    /// What the manager's told properties are made of, as it was when they were looked at last.
    private var managerSeen: (StateCounts, Settings, String)?
    private var managerToldAt: ContinuousClock.Instant?
    private var managerTimer: Poller.Token?
    /// Those whose changed properties are told when commits succeed again.
    private var owed: Set<DownloadNumber> = []
    /// Of those, the ones that are being told now, and whether the next turn goes on with them.
    private var recovering: [DownloadNumber] = []
    private var isRecovering = false

    /// - Parameter unsentBytes: how many bytes the bus has not taken yet.
    init(journal: Journal, unsentBytes: @escaping () -> Int) { (self.journal, self.unsentBytes) = (journal, unsentBytes) }

    /// With so many bytes that the bus has not taken, what is told of many waits.
    private static let manyUnsent = 32 << 10
    var isBehind: Bool { unsentBytes() > Self.manyUnsent }

    // MARK: Progress

    /// Sends `Progress` if the budget allows one now; what is held back goes with the next, or before the next change of state.
    func progress(of download: ManagedDownload, active: UInt32) {
        let stretched = Duration.seconds(1) * Int(max(1, active)) / Self.progressBudget
        if let told = download.progressTold, .now - told < max(Self.progressInterval, stretched) - .milliseconds(5) { return }
        if unsentBytes() > Self.mostUnsent || journal.holdsProgress(of: download.number) { return }
        flushProgress(of: download)
    }

    /// Sends `Progress` for bytes that no signal has told yet.
    func flushProgress(of download: ManagedDownload) {
        guard download.received > download.toldReceived else { return }
        let written = download.received -| download.toldReceived
        journal.tell(
            Download.progress.message(from: download.path, (written, download.received, download.total.wireTotal)), of: download.number)
        download.toldReceived = download.received
        download.hasToldBytes = true
        download.progressTold = .now
    }

    // MARK: Properties

    /// Notes which told properties of `download` a change of its record has changed.
    func compare(_ download: ManagedDownload, with change: Ledger.Change) {
        let face = DownloadFace.face
        let (before, now) = (ManagedDownload(before: change, in: download.downloader), download)
        let isSameState = change.shownBefore == nil && change.before.state == now.state
        for (property, (before, now)) in zip(face.told, zip(face.toldValues(of: before), face.toldValues(of: now))) where before != now {
            // The state that is shown depends on the host too: a change that leaves the state as it was says nothing of it.
            if isSameState, Self.ofState.contains(property.name) { continue }
            download.changedProperties.insert(property.name)
        }
    }

    private static let ofState: Set<String> = [Download.state.name, Download.waitReason.name, Download.waitUntil.name]

    /// Sends what changed now.
    func flushProperties(of download: ManagedDownload) {
        if let timer = download.propertiesTimer {
            Poller.shared.cancel(timer)
            download.propertiesTimer = nil
        }
        guard !download.changedProperties.isEmpty, !download.isRemoved else { return }
        // An end is told whole, in its order: there are not many more of them than of downloads.
        if !download.state.hasEnded, journal.gathers() {
            owed.insert(download.number)
            return
        }
        owed.remove(download.number)
        let values = DownloadFace.face.values(of: download) { download.changedProperties.contains($0.name) }
        download.changedProperties = []
        download.propertiesTold = .now
        journal.post(Standard.propertiesChanged.message(from: download.path, (Download.interface, values, [])))
    }

    /// Sends what changed as soon as the rate allows.
    func schedulePropertiesSoon(_ download: ManagedDownload) {
        guard !download.changedProperties.isEmpty, download.propertiesTimer == nil else { return }
        guard let told = download.propertiesTold, .now - told < Self.propertiesInterval else { return flushProperties(of: download) }
        download.propertiesTimer = Poller.shared.schedule(at: told + Self.propertiesInterval) { [self] in
            download.propertiesTimer = nil
            flushProperties(of: download)
        }
    }

    /// Sends the manager's changed properties, at most four times a second unless `now`.
    func flushManager(of downloader: Downloader, now: Bool = false) {
        if !now, journal.gathers() { return }
        if let managerSeen, managerSeen == (downloader.counts, downloader.settings, downloader.setAside) { return }
        if !now, let told = managerToldAt, .now - told < Self.propertiesInterval {
            guard managerTimer == nil else { return }
            managerTimer = Poller.shared.schedule(at: told + Self.propertiesInterval) { [self] in
                managerTimer = nil
                flushManager(of: downloader)
            }
            return
        }
        managerSeen = (downloader.counts, downloader.settings, downloader.setAside)
        let values = ManagerFace.told(downloader)
        let changed = values.filter { managerTold[$0.key] != $0.value }
        guard !changed.isEmpty else { return }
        managerTold = values
        managerToldAt = .now
        journal.post(Standard.propertiesChanged.message(from: BusName.managerPath, (Manager.interface, changed, [])))
    }

    /// Commits succeed again: tells what was gathered, of each object as it is by now.
    func recover(with downloader: Downloader) {
        recovering = owed.sorted()
        owed = []
        recoverSome(with: downloader)
        flushManager(of: downloader)
    }

    /// So many in one turn of the loop.
    private static let recoveredAtOnce = 100

    private func recoverSome(with downloader: Downloader) {
        let some = recovering.prefix(Self.recoveredAtOnce)
        recovering.removeFirst(some.count)
        for number in some { if let download = downloader.lively(number) { flushProperties(of: download) } }
        guard !recovering.isEmpty, !isRecovering else { return }
        isRecovering = true
        let more: @BusActor @Sendable () -> Void = { [self] in
            isRecovering = false
            recoverSome(with: downloader)
        }
        if isBehind { Poller.shared.schedule(after: .milliseconds(2), more) } else { BusActor.spawn { more() } }
    }

    /// Takes the manager's properties as told: what a client reads at the start.
    func begin(with downloader: Downloader) {
        managerSeen = (downloader.counts, downloader.settings, downloader.setAside)
        managerTold = ManagerFace.told(downloader)
    }

    // MARK: Ends

    /// `Finished` (success only), `Completed`, `DownloadEnded`, the answers to `Wait` and `Fetch`. Progress and properties went before.
    func announceEnd(of download: ManagedDownload) {
        let path = download.path
        let failure = download.state.endFailure
        if case .finished = download.state { journal.post(Download.finished.message(from: path, download.record.path ?? "")) }
        let error = EndError(of: download.record)
        journal.post(Download.completed.message(from: path, (error.name, error.message, error.details)), before: download.number)
        journal.post(Manager.downloadEnded.message(from: BusName.managerPath, (path, download.state.name, error.name)))
        let (waiting, fetching) = (download.waiting, download.fetching)
        (download.waiting, download.fetching) = ([], [])
        download.downloader.callers.answered(waiting.map(\.call.sender) + fetching.map(\.call.sender), download.number)
        for reply in waiting {
            journal.post(failure.map { reply.message(failing: $0) } ?? reply.message(download.record.path ?? ""))
        }
        for reply in fetching { journal.post(Downloader.answer(reply, of: download)) }
        for group in download.downloader.callers.groupsDone(by: download) { journal.post(group.answer) }
    }
}
