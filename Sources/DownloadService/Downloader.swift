internal import DBus
internal import Desktop
internal import DownloadModel
internal import DownloadStore
internal import DownloaderInterface
internal import EventLoop
internal import Logging
internal import TransferEngine

/// The centre: carries out what the ledger decides, and gives it what callers, the engine, the pool and the clock tell.
///
/// All on the bus thread, synchronously. What is changed goes through the journal, and what follows from it behind it.
@BusActor final class Downloader {
    let ledger: Ledger
    let journal: Journal
    let engine: Engine
    let announcer: Announcer
    let toaster: Toaster
    let callers: Callers
    let log: Logger
    private(set) lazy var admission = Admission(self)
    private(set) lazy var folderProbe = FolderProbe(self)
    private lazy var alarm = WallAlarm { [weak self] in
        self?.tick()
    } clockSet: { [weak self] delta in
        self?.clockJumped(by: delta)
    }
    /// Hidden folders are allowed as destinations (`--allow-hidden-folders`).
    let allowsHiddenFolders: Bool
    /// The XDG download folder, as it was when the service started: no disk is asked on the bus thread.
    let downloadFolder = Folders.downloads()
    /// Where written maps lie.
    let mapFolder: String
    /// Where a database that was damaged has been put aside at this start; empty: none was.
    private(set) var setAside: String

    /// Those of which more is known than the ledger has: what runs, is waited for, or has something to tell. For the others an object is made
    /// when it is asked for, and let go.
    private var downloads: [DownloadNumber: ManagedDownload] = [:]
    private(set) var tokens: [String: DownloadNumber] = [:]
    private var isPerforming = false
    /// Called when something that kept the service may have ended.
    var residenceChanged: (() -> Void)?

    init(
        journal: Journal, engine: Engine, announcer: Announcer, toaster: Toaster, callers: Callers, stored: StoredState, mapFolder: String,
        allowsHiddenFolders: Bool, log: Logger
    ) {
        (self.journal, self.engine, self.announcer, self.toaster) = (journal, engine, announcer, toaster)
        (self.callers, self.log) = (callers, log)
        (self.mapFolder, self.allowsHiddenFolders, setAside) = (mapFolder, allowsHiddenFolders, stored.setAside ?? "")
        ledger = Ledger(settings: stored.settings) { .random(in: 0..<1) }
        ledger.willChange = { [unowned self] entry, isState in
            guard let download = download(entry.number) else { return }
            if isState { announcer.flushProgress(of: download) }
            announcer.remember(download)
        }
        ledger.didChange = { [unowned self] entry in
            guard let download = download(entry.number) else { return }
            if entry.work == .idle { download.rewind() }
            announcer.compare(download)
            forget(entry.number)
        }
        journal.everything = { [unowned self] in ledger.everything }
        journal.onSetAside = { [unowned self] path in
            setAside = path
            announcer.flushManager(of: self, now: true)
        }
        restore(stored)
    }

    private func restore(_ stored: StoredState) {
        ledger.restore(stored.records, sweeps: stored.sweeps, now: .now)
        for record in stored.records where record.options.token != nil { track(record) }
    }

    /// Makes the path of a download's token lead to it.
    private func track(_ record: DownloadRecord) {
        guard record.options.token != nil, ledger[record.number] != nil else { return }
        tokens[BusName.path(of: record).value] = record.number
    }

    private func untrack(_ entry: LedgerEntry) {
        if entry.record.options.token != nil { tokens[BusName.path(of: entry.record).value] = nil }
        guard let download = downloads.removeValue(forKey: entry.number) else { return }
        if let timer = download.propertiesTimer { Poller.shared.cancel(timer) }
        download.propertiesTimer = nil
    }

    /// Begins to work on what the database held.
    func begin() {
        announcer.begin(with: self)
        if settings.speedLimit > 0 { engine.setTotalSpeedLimit(settings.speedLimit) }
        if counts.verifying > 0 { for entry in ledger.entries.values where entry.state == .committing { findCommitted(entry) } }
        ledger.schedule(now: .now)
        carryOut()
    }

    /// Starts nothing more, for the end of the program.
    func end() { ledger.isEnding = true }

    // MARK: Looking

    var settings: Settings { ledger.settings }
    var counts: StateCounts { ledger.counts }

    /// A download to do something with.
    func download(_ number: DownloadNumber) -> ManagedDownload? {
        if let download = downloads[number] { return download }
        let download = glance(number)
        downloads[number] = download
        return download
    }

    /// A download to look at, or to tell something of itself: what it is told otherwise may be lost.
    func glance(_ number: DownloadNumber) -> ManagedDownload? {
        downloads[number] ?? ledger[number].map { ManagedDownload($0, in: self) }
    }

    /// Those of which more is known than the ledger has.
    var lively: some Collection<ManagedDownload> { downloads.values }

    /// Lets the object go where the ledger has all that it knows.
    private func forget(_ number: DownloadNumber) {
        if let download = downloads[number], download.isDispensable { downloads[number] = nil }
    }

    /// What is neither paused nor ended nor waits for somebody.
    var hasWork: Bool { ledger.hasWork }

    /// Where downloads go that name no folder.
    var defaultDirectory: String { settings.defaultDirectory.isEmpty ? downloadFolder : settings.defaultDirectory }

    // MARK: Adding

    /// Takes in `record`; the answer follows when it is on disk.
    func add(_ record: DownloadRecord, reply: Reply<ObjectPath>) {
        let entry = ledger.insert(record)
        track(record)
        let path = BusName.path(of: record)
        journal.add(record) { [self] in
            journal.post(reply.message(path))
            journal.post(Manager.downloadAdded.message(from: BusName.managerPath, path))
            guard !entry.isRemoved else { return }
            log.info("download added", metadata: ["download": "\(record.number)", "url": "\(redacted(record.url))"])
            ledger.enter(entry, now: .now)
            carryOut()
        } undo: { [self] refusal in
            untrack(entry)
            ledger.undo(entry)
            carryOut()
            return reply.message(failing: refusal)
        }
    }

    // MARK: Events

    /// Has the ledger decide, and carries that out.
    @discardableResult
    func decide<R, E>(_ body: (Ledger, WallTime) throws(E) -> R) throws(E) -> R {
        defer { carryOut() }
        return try body(ledger, .now)
    }

    /// Does what the ledger left to be done, in its order; what that brings about follows it.
    private func carryOut() {
        guard !isPerforming else { return }
        isPerforming = true
        while true {
            let actions = ledger.takeActions()
            guard !actions.isEmpty else { break }
            for action in actions { perform(action) }
        }
        isPerforming = false
        announcer.flushManager(of: self)
        alarm.set(microseconds: ledger.nextWake?.microseconds)
        folderProbe.needed(counts.awaitingFolder > 0)
    }

    private func perform(_ action: Ledger.Action) {
        switch action {
        case .save(let change): journal.append(change)
        case .startTransfer(let entry, false): startTransfer(entry)
        case .startTransfer(let entry, true): journal.afterCommit { [self] in startTransfer(entry) }
        case .stopTransfer(let entry): engine.stop(entry.number)
        case .verify(let entry): verify(entry)
        case .commit(let entry): journal.afterCommit { [self] in commit(entry) }
        case .sweep(let number, let directory): journal.afterCommit { [self] in sweep(number, directory) }
        case .tell(let entry):
            guard let download = downloads[entry.number] else { return }
            announcer.flushProperties(of: download)
            forget(entry.number)
        case .announceEnd(let entry): announceEnd(download(entry.number) ?? ManagedDownload(entry, in: self))
        case .allEnded(let finished, let failed, let cancelled):
            announcer.flushManager(of: self, now: true)
            journal.post(Manager.allEnded.message(from: BusName.managerPath, (finished, failed, cancelled)))
        case .removed(let entry):
            let download = downloads[entry.number] ?? ManagedDownload(entry, in: self)
            untrack(entry)
            journal.post(Manager.downloadRemoved.message(from: BusName.managerPath, download.path))
            toaster.removed(download)
            residenceChanged?()
        }
    }

    private func announceEnd(_ download: ManagedDownload) {
        announcer.announceEnd(of: download)
        log.info(
            "download ended",
            metadata: [
                "download": "\(download.number)", "outcome": "\(download.state.name)",
                "error": "\(download.state.endFailure?.name.rawValue ?? "")",
            ])
        journal.afterCommit { [self] in
            toaster.ended(download)
            forget(download.number)
            residenceChanged?()
        }
    }

    // MARK: The clock

    private func tick() {
        decide { ledger, now in ledger.tick(now: now) }
        residenceChanged?()
    }

    private func clockJumped(by delta: Duration) {
        log.info("the clock was set", metadata: ["by": "\(delta)"])
        decide { ledger, now in ledger.clockJumped(by: delta, now: now) }
    }

    // MARK: Steering

    /// Moves to `place` among those of its priority, 0 = next.
    func move(_ download: ManagedDownload, to place: UInt32) throws(Refusal) {
        guard !download.state.hasEnded else {
            throw Refusal(.invalidState, "A download that is \(download.state.name) has no place in the queue.")
        }
        decide { ledger, _ in ledger.move(download.entry, to: place) }
    }

    func setSpeedLimit(_ download: ManagedDownload, _ limit: Speed?) {
        engine.setSpeedLimit(download.number, limit)
        decide { ledger, _ in ledger.setSpeedLimit(download.entry, limit) }
    }

    func set(_ change: (inout Settings) -> Void) {
        let before = settings.speedLimit
        decide { ledger, now in _ = ledger.set(now: now, change) }
        if settings.speedLimit != before { engine.setTotalSpeedLimit(settings.speedLimit == 0 ? nil : settings.speedLimit) }
    }

    func clearEnded() -> UInt32 {
        let all = ledger.ended.ordered
        decide { ledger, _ in for number in all { if let entry = ledger[number] { ledger.remove(entry) } } }
        return UInt32(clamping: all.count)
    }

    /// Takes `download` off the list, cancelled first where it has not ended; `deletingFile`: with the finished file.
    func remove(_ download: ManagedDownload, deletingFile: Bool, _ reply: Reply<Void>) throws(IllegalTransition) {
        let entry = download.entry
        try decide { ledger, now throws(IllegalTransition) in
            if !entry.state.hasEnded { try ledger.apply(.cancel, to: entry, now: now) }
            ledger.remove(entry)
            ledger.schedule(now: now)
        }
        let record = entry.record
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
