internal import DBus
internal import DownloadModel
internal import DownloadStore
internal import DownloaderInterface
internal import EventLoop
internal import Scheduling
internal import TransferEngine

/// Announces on the bus: progress within a budget, changed properties, and ends in the order of the contract. All signals except `Progress`
/// go through the journal, and so wait for the commit of the changes that they report. Progress reports nothing durable. While commits
/// fail, changes of an object are merged into one signal.
@BusActor final class Announcer: DownloadObserver {
    /// The shortest time between two `Progress` signals of a download.
    private static let progressInterval: Duration = .milliseconds(100)
    /// Most `Progress` signals a second. With many active downloads, the interval of each grows.
    private static let progressBudget = 200
    /// The shortest time between two `PropertiesChanged` of an object, except for changes of its state.
    private static let propertiesInterval: Duration = .milliseconds(250)

    /// In a batch with more members than this, the states before an end are reported as seldom as other properties.
    private static let fewMembers: UInt32 = 16

    /// With more unsent bytes than this, `Progress` signals are held back, because they can wait and must not lengthen our queue.
    private static let mostUnsent = 1 << 20

    private let list: DownloadList
    private let journal: Journal
    private let callers: Callers
    /// The object with the manager's properties.
    private let manager: Commands
    private let unsentBytes: () -> Int
    private var managerTold: [String: Variant]
    /// The sources of the manager's announced properties, as last compared.
    private var managerSeen: (StateCounts, Settings, String, SalvageReport)
    private var managerToldAt: ContinuousClock.Instant?
    private var managerTimer: Poller.Token?
    /// Downloads whose changed properties are announced when commits succeed again.
    private var owed = NumberSet()
    /// The downloads being announced after each recovery, and whether the next turn of the loop continues with them.
    private var recovering: [NumberTable<Void>.Walk] = []
    private var isRecovering = false

    /// Takes the manager's properties as announced, because clients read them when they start.
    ///
    /// - Parameter unsentBytes: how many bytes the bus has not taken yet.
    init(list: DownloadList, journal: Journal, callers: Callers, manager: Commands, unsentBytes: @escaping () -> Int) {
        (self.list, self.journal, self.callers) = (list, journal, callers)
        (self.manager, self.unsentBytes) = (manager, unsentBytes)
        managerSeen = (list.counts, list.settings, journal.setAside, journal.salvaged)
        managerTold = ManagerFace.told(manager)
    }

    // MARK: Progress

    func progressed(_ downloads: [ManagedDownload]) {
        for download in downloads {
            progress(of: download)
            let (hasNewSources, hasOtherCount) = (
                download.sources != download.toldSources, download.connections != download.toldConnections
            )
            guard hasNewSources || hasOtherCount, !journal.holdsProgress(of: download.number) else { continue }
            (download.toldConnections, download.toldSources) = (download.connections, download.sources)
            if hasOtherCount { download.changedProperties.insert(Download.connections.name) }
            if hasNewSources { download.changedProperties.insert(Download.sources.name) }
            schedulePropertiesSoon(download)
        }
    }

    /// Sends `Progress` if the budget allows it now. Bytes held back are reported by the next `Progress`, or before the next change of
    /// state.
    private func progress(of download: ManagedDownload) {
        let stretched = Duration.seconds(1) * Int(max(1, list.counts.active)) / Self.progressBudget
        if let told = download.progressTold, .now - told < max(Self.progressInterval, stretched) - .milliseconds(5) { return }
        if unsentBytes() > Self.mostUnsent || journal.holdsProgress(of: download.number) { return }
        flushProgress(of: download)
    }

    /// Sends `Progress` for the bytes that no signal has reported yet.
    private func flushProgress(of download: ManagedDownload) {
        guard download.received > download.toldReceived, !download.isBrief else { return }
        let written = download.received -| download.toldReceived
        journal.tell(
            Download.progress.message(from: download.path, (written, download.received, download.total.wireTotal)), of: download.number)
        download.toldReceived = download.received
        download.hasToldBytes = true
        download.progressTold = .now
    }

    func rewinds(_ download: ManagedDownload) { flushProgress(of: download) }
    func stopped(_ download: ManagedDownload) { flushProgress(of: download) }

    /// Sends `ResumedAt`, unless the transfer starts at 0 and no signal has reported any bytes.
    func responded(_ download: ManagedDownload, _ facts: TransferFacts) {
        download.toldReceived = facts.offset
        if facts.offset > 0 || facts.discarded || download.hasToldBytes {
            download.hasToldBytes = facts.offset > 0
            journal.tell(Download.resumedAt.message(from: download.path, (facts.offset, facts.total.wireTotal)), of: download.number)
        }
        schedulePropertiesSoon(download)
    }

    func extracts(_ downloads: [ManagedDownload]) {
        for download in downloads where unsentBytes() <= Self.mostUnsent && !journal.holdsProgress(of: download.number) {
            download.changedProperties.insert(Download.extracted.name)
            schedulePropertiesSoon(download)
        }
    }

    // MARK: Properties

    func changed(_ change: Scheduler.Change) {
        let entry = change.entry
        guard let download = list.download(entry.number) else { return }
        // Send the last `Progress` before the state change that ends the transfer.
        if change.shownBefore != nil { flushProgress(of: download) }
        if entry.work == .idle {
            // While the file is checked, nobody knows whether the end comes soon enough. If not, the bytes are reported with the state.
            if download.isBrief, !download.state.isEnding { download.skipProgress() }
            download.rewind()
        }
        note(change, of: download)
    }

    func told(_ entry: ScheduledDownload) {
        if let download = list.lively(entry.number) { announce(download) }
        if let batch = entry.batch { flushCounts(of: batch) }
    }

    private func announce(_ download: ManagedDownload) {
        if isGathered(download.entry) { gather(download) } else { flushProperties(of: download) }
    }

    /// Whether the state of a download is reported later, because it probably ends soon, together with many others.
    private func isGathered(_ entry: ScheduledDownload) -> Bool {
        (entry.batch?.counts.present ?? 0) > Self.fewMembers && (entry.state == .active || entry.state.isEnding)
    }

    /// Reports the state of `download` with its end, or after `propertiesInterval`.
    private func gather(_ download: ManagedDownload) {
        guard download.propertiesTimer == nil else { return }
        schedule(download, at: .now + Self.propertiesInterval)
    }

    func toldWait(_ entry: ScheduledDownload) {
        if let batch = entry.batch { flushCounts(of: batch) }
        guard let download = list.download(entry.number) else { return }
        download.changedProperties.formUnion(Self.ofState)
        announce(download)
        // The compared values have the state before this wait.
        if download.changesState == nil { download.comparedValues = nil }
    }

    /// Stores the data that `compare` needs. The properties are compared only when they are announced, because computing their values takes
    /// time.
    private func note(_ change: Scheduler.Change, of download: ManagedDownload) {
        let isSameState = change.shownBefore == nil && change.before.state == download.state
        // A later announcement of the same transfer must not hold back its progress, so only the beginning counts.
        if download.state == .active, change.before.state != .active, !download.hasToldBytes { download.isBrief = isGathered(change.entry) }
        if download.comparedValues == nil {
            download.comparedValues = DownloadFace.readable.toldValues(of: ManagedDownload(download, before: change))
        }
        download.changesState = !isSameState || download.changesState ?? false
        if !keepsCompared(download) { compare(download) }
    }

    /// Whether the values of a download are kept for the next comparison: there is work on it, or it will end soon. Most downloads of a
    /// long queue keep none.
    private func keepsCompared(_ download: ManagedDownload) -> Bool { download.entry.work != .idle || download.state.isEnding }

    /// Finds the announced properties that have changed since the last call.
    private func compare(_ download: ManagedDownload) {
        guard let changesState = download.changesState, let before = download.comparedValues else { return }
        let face = DownloadFace.readable
        let now = face.toldValues(of: download)
        (download.changesState, download.comparedValues) = (nil, keepsCompared(download) ? now : nil)
        for (property, (before, now)) in zip(face.told, zip(before, now)) where !before.isSameBytes(as: now) {
            // The shown state also depends on the host. A change that leaves the state alone is no reason to announce it.
            if !changesState, Self.ofState.contains(property.name) { continue }
            download.changedProperties.insert(property.name)
        }
    }

    private static let ofState: Set<String> = [Download.state.name, Download.waitReason.name, Download.waitUntil.name]

    /// Sends the changed properties now, or keeps them for `commitsSucceedAgain` while commits fail.
    private func flushProperties(of download: ManagedDownload) {
        if let timer = download.propertiesTimer {
            Poller.shared.cancel(timer)
            download.propertiesTimer = nil
        }
        compare(download)
        download.isBrief = false
        guard !download.changedProperties.isEmpty, !download.isRemoved else { return }
        // An end is announced in full and in order even while commits fail, because there are few more ends than downloads.
        if !download.state.hasEnded, journal.gathers() {
            owed.insert(download.number)
            return
        }
        owed.remove(download.number)
        journal.post(DownloadFace.readable.changes(of: download, at: download.path, in: download.changedProperties))
        download.changedProperties = []
        download.propertiesTold = .now
    }

    /// Sends the changed properties as soon as the rate allows.
    private func schedulePropertiesSoon(_ download: ManagedDownload) {
        guard !download.changedProperties.isEmpty || download.changesState != nil, download.propertiesTimer == nil else { return }
        guard let told = download.propertiesTold, .now - told < Self.propertiesInterval else { return flushProperties(of: download) }
        schedule(download, at: told + Self.propertiesInterval)
    }

    private func schedule(_ download: ManagedDownload, at instant: ContinuousClock.Instant) {
        download.propertiesTimer = Poller.shared.schedule(at: instant) { [self] in
            download.propertiesTimer = nil
            if download.isBrief {
                download.isBrief = false
                flushProgress(of: download)
            }
            flushProperties(of: download)
        }
    }

    func decided() { flushManager() }
    func setAsideChanged() { flushManager(now: true) }

    /// Sends the manager's changed properties, at most four times a second unless `now`.
    private func flushManager(now: Bool = false) {
        if !now, journal.gathers() { return }
        if managerSeen == (list.counts, list.settings, journal.setAside, journal.salvaged) { return }
        if !now, let told = managerToldAt, .now - told < Self.propertiesInterval {
            guard managerTimer == nil else { return }
            managerTimer = Poller.shared.schedule(at: told + Self.propertiesInterval) { [self] in
                managerTimer = nil
                flushManager()
            }
            return
        }
        managerSeen = (list.counts, list.settings, journal.setAside, journal.salvaged)
        let values = ManagerFace.told(manager)
        let changed = values.filter { name, value in managerTold[name].map { !$0.isSameBytes(as: value) } ?? true }
        guard !changed.isEmpty else { return }
        managerTold = values
        managerToldAt = .now
        journal.post(Standard.propertiesChanged.message(from: BusName.managerPath, (Manager.interface, changed, [])))
    }

    /// Announces the gathered changes: for each object, its present values.
    func commitsSucceedAgain() {
        recovering.append(owed.walk())
        owed = NumberSet()
        recoverSome()
        flushManager()
        var rest = Array(list.batches.values)
        BusActor.inSteps { [self] in
            if let batch = rest.last { flushCounts(of: batch) }
            return rest.popLast() != nil
        }
    }

    /// Most downloads announced in one turn of the loop.
    private static let recoveredAtOnce = 100

    private func recoverSome() {
        for _ in 0..<Self.recoveredAtOnce where !recovering.isEmpty {
            if let number = recovering[0].next() {
                if let download = list.lively(number) { flushProperties(of: download) }
            } else {
                recovering.removeFirst()
            }
        }
        guard !recovering.isEmpty, !isRecovering else { return }
        isRecovering = true
        let more: @BusActor @Sendable () -> Void = { [self] in
            isRecovering = false
            recoverSome()
        }
        if journal.isBehind { Poller.shared.schedule(after: .milliseconds(2), more) } else { BusActor.spawn { more() } }
    }

    private func flushCounts(of batch: ScheduledBatch) { if let batch = list.batch(batch.number) { flushCounts(of: batch) } }

    /// Announces changed counts of a batch as soon as the rate allows, and at once if the batch has ended.
    private func flushCounts(of batch: ManagedBatch, isEnd: Bool = false) {
        let entry = batch.entry
        // The outcome of the last member is announced after the end of that member.
        guard isEnd || !entry.hasEnded, batch.told != (entry.counts.remaining, entry.outcomes) else { return }
        if !isEnd, journal.gathers() { return }
        if !isEnd, let toldAt = batch.toldAt, .now - toldAt < Self.propertiesInterval {
            guard batch.timer == nil else { return }
            batch.timer = Poller.shared.schedule(at: toldAt + Self.propertiesInterval) { [self] in
                batch.timer = nil
                flushCounts(of: batch)
            }
            return
        }
        batch.stop()
        guard !entry.isRemoved || isEnd else { return }
        let (before, now) = (batch.told, (remaining: entry.counts.remaining, outcomes: entry.outcomes))
        (batch.told, batch.toldAt) = (now, .now)
        var values: [String: Variant] = [:]
        if before.remaining != now.remaining { values[Batch.remaining.name] = .uint32(now.remaining) }
        if before.outcomes.finished != now.outcomes.finished { values[Batch.succeeded.name] = .uint32(now.outcomes.finished) }
        if before.outcomes.failed != now.outcomes.failed { values[Batch.failed.name] = .uint32(now.outcomes.failed) }
        if before.outcomes.cancelled != now.outcomes.cancelled { values[Batch.cancelled.name] = .uint32(now.outcomes.cancelled) }
        journal.post(Standard.propertiesChanged.message(from: batch.path, (Batch.interface, values, [])))
    }

    // MARK: Ends and removals

    /// Sends `Finished` (success only), `Completed`, `DownloadEnded`, and the answers to `Wait`, `Fetch` and `WaitAll`. Progress and
    /// properties are sent before.
    func ends(_ download: ManagedDownload) {
        assert(
            download.state.endFailure.map { DocumentedErrors.ends.contains($0.name.busName) } ?? true,
            "the signal Completed does not name \(download.state.endFailure?.name.rawValue ?? "") in its XML")
        let path = download.path
        let failure = download.state.endFailure
        if case .finished = download.state { journal.post(Download.finished.message(from: path, download.record.path ?? "")) }
        let error = EndError(of: download.record)
        journal.post(Download.completed.message(from: path, (error.name, error.message, error.details)), before: download.number)
        journal.post(Manager.downloadEnded.message(from: BusName.managerPath, (path, download.state.name, error.name)))
        let (waiting, fetching) = (download.waiting, download.fetching)
        (download.waiting, download.fetching) = ([], [])
        callers.answered(waiting.map(\.call.sender) + fetching.map(\.call.sender), download.number)
        for reply in waiting {
            journal.post(failure.map { reply.message(failing: $0) } ?? reply.message(download.record.path ?? ""))
        }
        for reply in fetching { journal.post(reply.message(endOf: download)) }
        for group in callers.groupsDone(by: download) { journal.post(group.answer) }
    }

    /// Sends `PropertiesChanged`, `Completed`, and the answers to `Wait`.
    func ends(_ batch: ManagedBatch, _ outcomes: OutcomeCounts) {
        flushCounts(of: batch, isEnd: true)
        journal.post(Batch.completed.message(from: batch.path, outcomes.wire), before: batch.number)
        let replies = batch.waiting
        batch.waiting = []
        callers.answered(replies.map(\.call.sender), batch.number)
        for reply in replies { journal.post(reply.message(outcomes.wire)) }
    }

    func allEnded(_ outcomes: OutcomeCounts) {
        flushManager(now: true)
        journal.post(Manager.allEnded.message(from: BusName.managerPath, (outcomes.finished, outcomes.failed, outcomes.cancelled)))
    }

    func removed(_ entry: ScheduledDownload) {
        journal.post(Manager.downloadRemoved.message(from: BusName.managerPath, BusName.path(of: entry.record)))
    }

    func removed(_ batch: ManagedBatch) { journal.post(Manager.batchRemoved.message(from: BusName.managerPath, batch.path)) }
}
