internal import DBus
internal import Desktop
internal import DownloadModel
internal import DownloadStore
internal import DownloaderInterface
internal import EventLoop
internal import Logging
internal import TransferEngine

/// The centre: every download there is, the order in which they run, and the way from an event to its effects.
///
/// All on the bus thread, synchronously. Faces call it, the engine and the pool report to it; what it decides it leaves to the
/// model's transition function, what it changes goes through the journal.
@BusActor final class Downloader {
    let journal: Journal
    let engine: Engine
    let announcer: Announcer
    let toaster: Toaster
    let callers: Callers
    let log: Logger
    private(set) lazy var admission = Admission(self)
    /// Hidden folders are allowed as destinations (`--allow-hidden-folders`).
    let allowsHiddenFolders: Bool
    /// The XDG download folder, as it was when the service started: no disk is asked on the bus thread.
    let downloadFolder = Folders.downloads()
    /// Where written maps lie.
    let mapFolder: String

    private(set) var downloads: [DownloadNumber: ManagedDownload] = [:]
    private(set) var tokens: [String: DownloadNumber] = [:]
    /// All that has not ended, in queue order; what of it may start.
    private(set) var order = DownloadQueue()
    private var runnable = DownloadQueue()
    /// Ended downloads, oldest first.
    private(set) var ended: [DownloadNumber] = []
    private(set) var counts = StateCounts()
    private(set) var settings: Settings
    private var hosts: [String: Int] = [:]
    /// Ends since nothing was left to do.
    private var tally = (finished: UInt32(0), failed: UInt32(0), cancelled: UInt32(0))
    /// Taken off the list while the engine still works on them.
    var leaving: [DownloadNumber: ManagedDownload] = [:]
    /// Have become queued, which is told only if this turn does not start them.
    private var untold: [ManagedDownload] = []
    /// Called when something that kept the service may have ended.
    var residenceChanged: (() -> Void)?
    /// Set when the service goes: nothing new is started.
    private(set) var isEnding = false

    init(
        journal: Journal, engine: Engine, announcer: Announcer, toaster: Toaster, callers: Callers, settings: Settings, mapFolder: String,
        allowsHiddenFolders: Bool, log: Logger
    ) {
        (self.journal, self.engine, self.announcer, self.toaster) = (journal, engine, announcer, toaster)
        (self.callers, self.log) = (callers, log)
        (self.settings, self.mapFolder, self.allowsHiddenFolders) = (settings, mapFolder, allowsHiddenFolders)
    }

    // MARK: Looking

    func download(_ number: DownloadNumber) -> ManagedDownload? { downloads[number] }

    /// What is neither paused nor ended: queued, active, verifying, or waiting for something that ends by itself.
    var hasWork: Bool {
        counts.queued > 0 || counts.active > 0 || counts.verifying > 0 || counts.waitingForTime > 0 || !leaving.isEmpty
            || downloads.values.contains { $0.isBusy }
    }

    // MARK: Adding

    /// Takes in `record`; the answer follows when it is on disk.
    func add(_ record: DownloadRecord, reply: Reply<ObjectPath>) {
        let download = ManagedDownload(record, in: self)
        downloads[record.number] = download
        if record.options.token != nil { tokens[download.path.value] = record.number }
        count(download, from: nil)
        journal.add(record) { [self] in
            journal.post(reply.message(download.path))
            journal.post(Manager.downloadAdded.message(from: BusName.managerPath, download.path))
            guard !download.isRemoved else { return }
            log.info("download added", metadata: ["download": "\(record.number)", "url": "\(redacted(record.url))"])
            enter(download)
            schedule()
        } undo: { [self] refusal in
            forget(download)
            return reply.message(failing: refusal)
        }
    }

    /// Restores what the database held. Nothing starts before `schedule`.
    func restore(_ records: [DownloadRecord]) {
        for record in records {
            let download = ManagedDownload(record, in: self)
            downloads[record.number] = download
            if record.options.token != nil { tokens[download.path.value] = record.number }
            switch record.state {
            case .queued, .active, .verifying: download.record.state = settings.paused ? .waiting(.pausedAll, until: nil) : .queued
            case .waiting(.pausedAll, _): if !settings.paused { download.record.state = .queued }
            case .waiting: if settings.paused { download.record.state = .waiting(.pausedAll, until: nil) }
            case .committing, .paused, .finished, .failed, .cancelled: break
            }
            count(download, from: nil)
            if download.state.hasEnded { ended.append(download.number) } else { enter(download) }
            if case .committing = download.state { findCommitted(download) }
        }
        ended.sort { (downloads[$0]?.record.endedAt?.microseconds ?? 0, $0) < (downloads[$1]?.record.endedAt?.microseconds ?? 0, $1) }
        prune()
    }

    /// Puts a download that has not ended into the orders that its state asks for.
    private func enter(_ download: ManagedDownload) {
        guard !download.state.hasEnded else { return }
        order.insert(download.number, priority: download.record.options.priority, position: download.record.position)
        if case .queued = download.state {
            runnable.insert(download.number, priority: download.record.options.priority, position: download.record.position)
        }
        if case .waiting(_, let until?) = download.state { wake(download, at: until) }
    }

    private func forget(_ download: ManagedDownload) {
        download.isRemoved = true
        if download.transfer != .none { leaving[download.number] = download }
        counts.remove(download.state)
        downloads[download.number] = nil
        if download.record.options.token != nil { tokens[download.path.value] = nil }
        order.remove(download.number)
        runnable.remove(download.number)
        ended.removeAll { $0 == download.number }
        if let wake = download.wake { Poller.shared.cancel(wake) }
        if let timer = download.propertiesTimer { Poller.shared.cancel(timer) }
    }

    // MARK: Events

    /// Takes `event` to `download`: its next state, the orders, the signals, the effects.
    func apply(_ event: DownloadEvent, to download: ManagedDownload) throws(IllegalTransition) {
        let before = download.state
        let (next, effects) = try before.after(event)
        guard next != before || !effects.isEmpty else { return }
        announcer.flushProgress(of: download)
        announcer.change(download) { record in
            record.state = next
            switch event {
            case .start:
                record.attempts += 1
                if record.startedAt == nil { record.startedAt = .now }
            case .retry:
                record.endedAt = nil
                record.retriesUsed = 0
            default: break
            }
            if next.hasEnded, !before.hasEnded { record.endedAt = .now }
            if case .cancelled = next { record.received = 0 }
        }
        move(download, from: before, to: next)
        // What a restart would do again anyway (queued, active and verifying all begin as queued) costs no commit.
        switch event {
        case .start, .retryDue, .bodyComplete: break
        default: journal.append(.put(download.record))
        }
        if next == .queued { untold.append(download) } else { announcer.flushProperties(of: download) }
        for effect in effects { perform(effect, of: download) }
        announcer.flushManager(of: self)
        if settings.paused, download.state == .queued { try apply(.hold, to: download) }
    }

    /// Takes an event that the service itself raises: the state at hand can always take it.
    func advance(_ download: ManagedDownload, _ event: DownloadEvent) {
        do { try apply(event, to: download) } catch {
            log.warning("an event came too late", metadata: ["download": "\(download.number)", "state": "\(error.state.name)"])
        }
        schedule()
    }

    private func move(_ download: ManagedDownload, from before: DownloadState, to next: DownloadState) {
        count(download, from: before)
        if let wake = download.wake {
            Poller.shared.cancel(wake)
            download.wake = nil
        }
        if case .queued = before { runnable.remove(download.number) }
        if case .active = before { leaveHost(download) }
        if case .active = next { hosts[download.host, default: 0] += 1 }
        switch (before.hasEnded, next.hasEnded) {
        case (false, true):
            order.remove(download.number)
            ended.append(download.number)
        case (true, false):
            ended.removeAll { $0 == download.number }
            enter(download)
        default:
            if case .queued = next {
                runnable.insert(download.number, priority: download.record.options.priority, position: download.record.position)
            }
        }
    }

    private func leaveHost(_ download: ManagedDownload) {
        if let count = hosts[download.host] { hosts[download.host] = count > 1 ? count - 1 : nil }
    }

    private func count(_ download: ManagedDownload, from before: DownloadState?) {
        if let before { counts.remove(before) }
        counts.insert(download.state)
    }

    private func wake(_ download: ManagedDownload, at time: WallTime) {
        let delay = Duration.microseconds(Int64(clamping: time.microseconds) - Int64(clamping: WallTime.now.microseconds))
        download.wake = Poller.shared.schedule(after: max(.zero, delay)) { [self] in
            download.wake = nil
            if case .waiting(.retry, _) = download.state { advance(download, .retryDue) }
        }
    }

    private func perform(_ effect: DownloadEffect, of download: ManagedDownload) {
        switch effect {
        case .startTransfer: startTransfer(download)
        case .stopTransfer: stopTransfer(download)
        case .verify: verify(download)
        case .commit: journal.afterCommit { [self] in commit(download) }
        case .deletePart: journal.afterCommit { [self] in discard(download) }
        case .wake(let time): wake(download, at: time)
        case .announceEnd: announceEnd(download)
        }
    }

    private func announceEnd(_ download: ManagedDownload) {
        let outcome = download.state.name
        let failure = download.state.endFailure
        announcer.announceEnd(of: download)
        switch download.state {
        case .finished: tally.finished += 1
        case .failed: tally.failed += 1
        default: tally.cancelled += 1
        }
        log.info(
            "download ended",
            metadata: ["download": "\(download.number)", "outcome": "\(outcome)", "error": "\(failure?.name.rawValue ?? "")"])
        if counts.remaining == 0 {
            announcer.flushManager(of: self, now: true)
            journal.post(Manager.allEnded.message(from: BusName.managerPath, (tally.finished, tally.failed, tally.cancelled)))
            tally = (0, 0, 0)
        }
        journal.afterCommit { [self] in
            toaster.ended(download)
            residenceChanged?()
        }
        prune()
    }

    // MARK: The queue

    /// Starts what may start. To be called after every event, for what it queued is told of here.
    func schedule() {
        defer {
            for download in untold { announcer.flushProperties(of: download) }
            untold = []
        }
        guard !isEnding, !settings.paused else { return }
        while settings.maxActive == 0 || counts.active < settings.maxActive {
            let next = runnable.first { number in
                guard let download = downloads[number], !download.isBusy else { return false }
                return settings.maxPerHost == 0 || hosts[download.host, default: 0] < settings.maxPerHost
            }
            guard let next, let download = downloads[next] else { break }
            do { try apply(.start, to: download) } catch { break }
        }
        announcer.flushManager(of: self)
    }

    /// Moves to `place` among those of its priority, 0 = next.
    func move(_ download: ManagedDownload, to place: UInt32) throws(Refusal) {
        guard !download.state.hasEnded else {
            throw Refusal(.invalidState, "A download that is \(download.state.name) has no place in the queue.")
        }
        for (number, position) in order.move(download.number, to: place) {
            guard let moved = downloads[number] else { continue }
            moved.record.position = position
            if runnable.contains(number) { runnable.insert(number, priority: moved.record.options.priority, position: position) }
            journal.append(.put(moved.record))
        }
    }

    func setPriority(_ download: ManagedDownload, _ priority: Int32) {
        announcer.change(download) { $0.options.priority = priority }
        if order.contains(download.number) { order.insert(download.number, priority: priority, position: download.record.position) }
        if runnable.contains(download.number) { runnable.insert(download.number, priority: priority, position: download.record.position) }
        journal.append(.put(download.record))
        announcer.flushProperties(of: download)
    }

    func setSpeedLimit(_ download: ManagedDownload, _ limit: Speed?) {
        announcer.change(download) { $0.options.speedLimit = limit }
        engine.setSpeedLimit(download.number, limit)
        journal.append(.put(download.record))
        announcer.flushProperties(of: download)
    }

    func set(_ change: (inout Settings) -> Void) {
        let before = settings
        change(&settings)
        guard settings != before else { return }
        journal.append(.set(settings))
        if settings.speedLimit != before.speedLimit { engine.setTotalSpeedLimit(settings.speedLimit == 0 ? nil : settings.speedLimit) }
        announcer.flushManager(of: self)
        schedule()
    }

    // MARK: All at once

    func pauseAll() {
        set { $0.paused = true }
        applyToAll(.hold)
    }

    func resumeAll() {
        set { $0.paused = false }
        applyToAll(.release)
    }

    func cancelAll() { applyToAll(.cancel) }

    /// Takes `event` to all that has not ended, in queue order; only then does anything start.
    private func applyToAll(_ event: DownloadEvent) {
        for number in order.ordered {
            // What is being given its name is as good as ended, and ends by itself.
            guard let download = downloads[number], download.state != .committing else { continue }
            do { try apply(event, to: download) } catch { continue }
        }
        schedule()
    }

    func clearEnded() -> UInt32 {
        let all = ended
        for number in all { if let download = downloads[number] { remove(download) } }
        return UInt32(clamping: all.count)
    }

    // MARK: Removing

    /// Takes an ended download off the list; the part file that a failed one kept goes with it.
    func remove(_ download: ManagedDownload) {
        let path = download.path
        forget(download)
        journal.append(.remove(download.number))
        journal.post(Manager.downloadRemoved.message(from: BusName.managerPath, path))
        if download.state != .finished { journal.afterCommit { [self] in discard(download) } }
        toaster.removed(download)
        announcer.flushManager(of: self)
        residenceChanged?()
    }

    /// Lets ended downloads go that are too old or too many, and looks again when the next will be.
    private func prune() {
        let oldest = WallTime.now + (.zero - Limits.endedAge)
        while let first = ended.first, let download = downloads[first],
            ended.count > Limits.endedDownloads || (download.record.endedAt ?? .now) < oldest
        {
            remove(download)
        }
    }

    /// Begins to work on what the database held.
    func begin() {
        announcer.begin(with: self)
        if settings.speedLimit > 0 { engine.setTotalSpeedLimit(settings.speedLimit) }
        schedule()
    }

    /// Starts nothing more, for the end of the program.
    func end() { isEnding = true }

    /// Where downloads go that name no folder.
    var defaultDirectory: String { settings.defaultDirectory.isEmpty ? downloadFolder : settings.defaultDirectory }

    /// Takes `download` off the list, cancelled first where it has not ended; `deletingFile`: with the finished file.
    func remove(_ download: ManagedDownload, deletingFile: Bool, _ reply: Reply<Void>) throws(IllegalTransition) {
        if !download.state.hasEnded { try apply(.cancel, to: download) }
        let record = download.record
        remove(download)
        schedule()
        guard deletingFile, record.state == .finished, let path = record.path else { return journal.answer(reply, ()) }
        let identity = record.resume?.identity
        journal.afterCommit {
            Pool.shared.perform {
                Commit.deleteFinished(path, identity: identity)
            } then: { result in
                switch result {
                case .success: reply()
                case .failure(let refusal): reply.fail(refusal)
                }
            }
        }
    }
}

extension DownloadState {
    /// What an ended download is answered with; nil where it finished or has not ended.
    var endFailure: DownloadFailure? {
        switch self {
        case .failed(let failure): failure
        case .cancelled: DownloadFailure(.cancelled, "The download was cancelled.")
        default: nil
        }
    }
}

/// The URL as it may be shown and logged.
func redacted(_ url: String) -> String { (try? DownloadURL(url).redacted) ?? "" }
