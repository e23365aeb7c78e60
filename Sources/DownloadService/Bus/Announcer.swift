internal import DBus
internal import DownloadModel
internal import DownloadStore
internal import DownloaderInterface
internal import EventLoop
internal import Scheduling

/// Announces on the bus: progress within a budget, changed properties, and ends in the order of the contract. All signals but progress go
/// through the journal, and so wait for the commit of what they say; progress says nothing durable. While commits fail, changes of an
/// object are merged into one signal.
@BusActor final class Announcer {
    /// The shortest time between two `Progress` signals of a download.
    private static let progressInterval: Duration = .milliseconds(100)
    /// Most `Progress` signals a second. With many active downloads, the interval of each grows.
    private static let progressBudget = 200
    /// The shortest time between two `PropertiesChanged` of an object, except for changes of its state.
    private static let propertiesInterval: Duration = .milliseconds(250)

    /// With more unsent bytes than this, progress is held back: progress can wait, and must not grow our queue.
    private static let mostUnsent = 1 << 20

    private let journal: Journal
    private let unsentBytes: () -> Int
    private var managerTold: [String: Variant] = [:]
    /// The sources of the manager's announced properties, as of the last look.
    private var managerSeen: (StateCounts, Settings, String)?
    private var managerToldAt: ContinuousClock.Instant?
    private var managerTimer: Poller.Token?
    /// Downloads whose changed properties are announced when commits succeed again.
    private var owed: Set<DownloadNumber> = []
    /// The downloads being announced after a recovery, and whether the next turn of the loop continues with them.
    private var recovering: [DownloadNumber] = []
    private var isRecovering = false

    /// - Parameter unsentBytes: how many bytes the bus has not taken yet.
    init(journal: Journal, unsentBytes: @escaping () -> Int) { (self.journal, self.unsentBytes) = (journal, unsentBytes) }

    // MARK: Progress

    /// Sends `Progress` if the budget allows it now. Bytes held back are told by the next `Progress`, or before the next change of state.
    func progress(of download: ManagedDownload, active: UInt32) {
        let stretched = Duration.seconds(1) * Int(max(1, active)) / Self.progressBudget
        if let told = download.progressTold, .now - told < max(Self.progressInterval, stretched) - .milliseconds(5) { return }
        if unsentBytes() > Self.mostUnsent || journal.holdsProgress(of: download.number) { return }
        flushProgress(of: download)
    }

    /// Sends `Progress` for the bytes that no signal has told yet.
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

    /// Notes which announced properties of `download` a change of its record has changed.
    func compare(_ download: ManagedDownload, with change: Ledger.Change) {
        let face = DownloadFace.face
        let (before, now) = (ManagedDownload(before: change, in: download.downloader), download)
        let isSameState = change.shownBefore == nil && change.before.state == now.state
        for (property, (before, now)) in zip(face.told, zip(face.toldValues(of: before), face.toldValues(of: now)))
        where !before.isSameBytes(as: now) {
            // The shown state also depends on the host. A change that leaves the state alone is no reason to announce it.
            if isSameState, Self.ofState.contains(property.name) { continue }
            download.changedProperties.insert(property.name)
        }
    }

    private static let ofState: Set<String> = [Download.state.name, Download.waitReason.name, Download.waitUntil.name]

    /// Sends the changed properties now, or keeps them for `recover` while commits fail.
    func flushProperties(of download: ManagedDownload) {
        if let timer = download.propertiesTimer {
            Poller.shared.cancel(timer)
            download.propertiesTimer = nil
        }
        guard !download.changedProperties.isEmpty, !download.isRemoved else { return }
        // An end is announced in full and in order even then: there are not many more ends than downloads.
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

    /// Sends the changed properties as soon as the rate allows.
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

    /// Announces the gathered changes, now that commits succeed again: of each object, its values of now.
    func recover(with downloader: Downloader) {
        recovering = owed.sorted()
        owed = []
        recoverSome(with: downloader)
        flushManager(of: downloader)
    }

    /// Most downloads announced in one turn of the loop.
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
        if journal.isBehind { Poller.shared.schedule(after: .milliseconds(2), more) } else { BusActor.spawn { more() } }
    }

    /// Takes the manager's properties as announced, because clients read them when they start.
    func begin(with downloader: Downloader) {
        managerSeen = (downloader.counts, downloader.settings, downloader.setAside)
        managerTold = ManagerFace.told(downloader)
    }

    // MARK: Ends

    /// Sends `Finished` (success only), `Completed`, `DownloadEnded`, and the answers to `Wait`, `Fetch` and `WaitAll`. Progress and
    /// properties are sent before.
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
