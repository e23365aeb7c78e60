internal import DBus
internal import Desktop
internal import DownloadModel
internal import DownloadStore
internal import DownloaderInterface
internal import EventLoop
internal import Logging
internal import PartFiles
internal import Scheduling
internal import TransferEngine

/// The centre: tells the ledger what callers, the engine, the disk pool and the clock report, and is what `TurnExecutor` carries out the
/// decisions of the ledger on.
///
/// All of this happens synchronously on the bus thread. A change goes through the journal, and so do its consequences, behind the change.
@BusActor final class Downloader {
    let ledger: Ledger
    let journal: Journal
    let engine: Engines
    let announcer: Announcer
    let callers: Callers
    let foreground: Foreground
    private let ownerCalls: OwnerCalls
    let log: Logger
    private(set) lazy var executor = TurnExecutor(ledger, journal.gate, host: self)
    private(set) lazy var admission = Admission(self, hold: idleExit.makeHold())
    private let idleExit: IdleExit
    /// Held while there is work, and while an app in front has unfinished downloads.
    private let hold: IdleExit.Hold
    /// The parts that need to know what happens to downloads. `begin` gives them.
    private var observers: [any DownloadObserver] = []
    /// What the user asks for by clicks; nil before `begin`.
    private(set) var applicationActions: ApplicationActions?
    private lazy var alarm = WallAlarm { [weak self] in
        self?.tick()
    } clockSet: { [weak self] delta in
        self?.clockJumped(by: delta)
    }
    /// Whether hidden folders may be destinations (`--allow-hidden-folders`).
    let allowsHiddenFolders: Bool
    /// The XDG download folder, read once at startup, because the bus thread must not wait for a disk.
    let downloadFolder = Folders.downloads()
    /// The folder of the written maps.
    let mapFolder: String
    /// How part files are named.
    let partNames: PartNames
    /// Where a damaged database was set aside, at startup or since; empty: none was damaged.
    private(set) var setAside: String
    /// What was salvaged from the damaged database at startup.
    private(set) var salvaged = SalvageReport()

    /// The objects of downloads that know more than the ledger: running downloads, and those with waiting calls or unsent signals. For
    /// other downloads, an object is made when needed and then released.
    private var downloads: [DownloadNumber: ManagedDownload] = [:]
    private(set) var tokens = TokenTable()
    /// The downloads that `Fetch` has added, by what they fetch.
    private(set) var fetches = KeyTable<CopyKey, NumberSet>()
    /// For each download in `fetches`, the key as it was added. A fresh link changes the URL, but not what was asked for.
    private(set) var fetchKeys = NumberTable<CopyKey>()
    let descriptors: Descriptors
    let silentFolders = SilentFolders()
    private(set) var batches = NumberTable<ManagedBatch>()
    /// The pause before the next slice while the bus has not taken the signals sent so far.
    private static let breath: Duration = .milliseconds(2)

    init(
        journal: Journal, engine: Engines, announcer: Announcer, callers: Callers, foreground: Foreground,
        ownerCalls: OwnerCalls, restored: Restored, opening: StoreOpening, mapFolder: String, allowsHiddenFolders: Bool,
        idleExit: IdleExit, log: Logger
    ) {
        (self.idleExit, hold, descriptors) = (idleExit, idleExit.makeHold(), Descriptors(hold: idleExit.makeHold()))
        (self.journal, self.engine, self.announcer) = (journal, engine, announcer)
        (self.callers, self.foreground, self.ownerCalls, self.log) = (callers, foreground, ownerCalls, log)
        (self.mapFolder, partNames) = (mapFolder, opening.partNames)
        (self.allowsHiddenFolders, setAside) = (allowsHiddenFolders, opening.setAside ?? "")
        if opening.setAside != nil {
            salvaged = SalvageReport(
                downloads: opening.salvaged?.downloads ?? 0, mayHaveLost: opening.salvaged?.mayHaveLost ?? true)
        }
        ledger = restored.ledger
        journal.begin(for: self)
        foreground.begin(for: self)
        for entry in restored.sought { track(entry.record) }
        for batch in ledger.batches.values { track(batch) }
    }

    /// Indexes a download of the ledger by its path, if that contains a token, and by what it fetches.
    func track(_ record: DownloadRecord) {
        guard record.options.token != nil || record.isFetch, ledger[record.number] != nil else { return }
        tokens.insert(record)
        guard record.isFetch else { return }
        fetchKeys[record.number] = record.copyKey
        fetches.insert(record.number, at: record.copyKey)
    }

    /// The download whose token makes this path.
    func holder(of path: ObjectPath) -> LedgerEntry? { tokens[path.value].flatMap { ledger[$0] } }

    func track(_ batch: LedgerBatch) { batches[batch.number] = ManagedBatch(batch, in: self) }

    /// Likewise, of a new batch. Its members are tracked in slices, before `settle`.
    func track(_ batch: LedgerBatch, _ places: [String: Int]) {
        track(batch)
        tokens.insert(batch.number, places)
    }

    func settle(_ batch: BatchNumber) { tokens.settle(batch) }

    @discardableResult func untrack(_ number: BatchNumber) -> ManagedBatch? {
        let batch = batches.removeValue(for: number)
        batch?.stop()
        return batch
    }

    /// Drops a download whose row could not be saved, and answers the calls that wait for it.
    func giveUp(_ entry: LedgerEntry, _ refusal: Refusal) {
        if let download = downloads[entry.number] {
            for reply in callers.release(download) { reply.fail(refusal) }
            let waiting = download.waiting
            download.waiting = []
            callers.answered(waiting.map(\.call.sender), entry.number)
            for reply in waiting { reply.fail(refusal) }
        }
        untrack(entry)
    }

    func untrack(_ entry: LedgerEntry) {
        tokens.remove(entry.record)
        if entry.record.isFetch, let key = fetchKeys.removeValue(for: entry.number) { fetches.remove(entry.number, at: key) }
        guard let download = downloads.removeValue(forKey: entry.number) else { return }
        if let timer = download.propertiesTimer { Poller.shared.cancel(timer) }
        download.propertiesTimer = nil
    }

    /// Starts to work on what the database held.
    ///
    /// - Parameters:
    ///   - crashed: the downloads at which earlier processes crashed again and again.
    ///   - observers: in the order in which they are called. They outlive the last call of the centre.
    ///   - owed: the toasts that earlier processes owed.
    func begin(
        crashed: [DownloadNumber], owed: [Ledger.OwedToast], applicationActions: ApplicationActions, observers: [any DownloadObserver]
    ) {
        (self.applicationActions, self.observers) = (applicationActions, observers)
        announcer.begin(with: self)
        if settings.speedLimit > 0 { engine.setTotalSpeedLimit(settings.speedLimit) }
        decide(.begins(crashed: crashed, owed: owed))
        if counts.verifying > 0 { for entry in ledger.entries.values where entry.state == .committing { findCommitted(entry) } }
    }

    /// Starts nothing more, because the program ends.
    func end() {
        decide(.ends)
    }

    /// The service exits: removes its dock marks and its jobs.
    func leave() { tell { $0.left($1) } }

    // MARK: Looking

    var settings: Settings { ledger.settings }
    var counts: StateCounts { ledger.counts }

    /// The object of a download, kept so that changes of it are not lost.
    func download(_ number: DownloadNumber) -> ManagedDownload? {
        if let download = downloads[number] { return download }
        let download = peek(number)
        downloads[number] = download
        return download
    }

    /// The kept object of a download; nil: the ledger knows everything about the download.
    func lively(_ number: DownloadNumber) -> ManagedDownload? { downloads[number] }
    func batch(_ number: BatchNumber) -> ManagedBatch? { batches[number] }

    /// The object of a download to read from, or to announce. It may not be kept: other changes of it may be lost.
    func peek(_ number: DownloadNumber) -> ManagedDownload? {
        downloads[number] ?? ledger[number].map { ManagedDownload($0, in: self) }
    }

    /// The kept objects.
    var lively: some Collection<ManagedDownload> { downloads.values }

    /// Releases the object if the ledger knows everything about its download.
    private func forget(_ number: DownloadNumber) {
        if let download = downloads[number], download.isDispensable { downloads[number] = nil }
    }

    /// The service stays while any work proceeds by itself. It also stays while an app in front has unfinished downloads: after a restart
    /// it would not know that the app is in front.
    private func weigh() {
        hold.isHeld = ledger.hasWork || ledger.hasSlices || foreground.apps.contains { ledger.holdings(of: $0).remaining > 0 }
    }

    /// The folder of downloads that name none.
    var defaultDirectory: String { settings.defaultDirectory.isEmpty ? downloadFolder : settings.defaultDirectory }

    // MARK: Adding

    /// Adds `record`. The answer follows when the record is on disk. The answer to a Fetch waits for the end of the download; later calls
    /// of the same Fetch may share the download.
    func add(_ record: DownloadRecord, answer: Admission.Answer) {
        let path = BusName.path(of: record)
        executor.add(record) { [self] entry in
            if case .path(let reply) = answer { journal.post(reply.message(path)) }
            journal.post(Manager.downloadAdded.message(from: BusName.managerPath, path), before: record.number)
            guard !entry.isRemoved else { return }
            log.info("download added", metadata: ["download": "\(record.number)", "url": "\(redacted(record.url))"])
            callers.began(record.number)
        } entered: { [self] _ in
            if record.isFetch, record.options.token == nil { removeFormerFetches(of: record.copyKey) }
        } undone: { [self] entry, refusal in
            giveUp(entry, refusal)
            if case .path(let reply) = answer { return reply.message(failing: refusal) }
            return nil
        }
        track(record)
        if case .fetch(let reply) = answer, let download = download(record.number) { answerFetch(reply, by: download) }
    }

    // MARK: Events

    /// Lets the ledger decide by what happened, and carries out its decisions.
    func decide(_ events: Ledger.Event...) { executor.decide(events) }

    func decide(_ events: [Ledger.Event]) { executor.decide(events) }

    /// Lets the ledger decide by what a caller asks for, and carries out its decisions.
    ///
    /// - Throws: where the state of the download does not allow the request.
    func ask(_ event: Ledger.Event) throws(IllegalTransition) {
        if let refusal = executor.decide(event) { throw refusal }
    }

    /// Lets the ledger change many downloads in slices. Calls `answer` after the last slice.
    func decideOnMany(_ event: (Ledger.CallNumber) -> Ledger.Event, answer: @escaping () -> Void) {
        executor.decideOnMany(event, answer: answer)
    }

    /// Calls every observer.
    func tell(_ body: (any DownloadObserver, Downloader) -> Void) { for observer in observers { body(observer, self) } }

    // MARK: The clock

    private func tick() {
        decide(.time)
    }

    private func clockJumped(by delta: Duration) {
        log.info("the clock was set", metadata: ["by": "\(delta)"])
        decide(.clockJumped(delta))
    }

    // MARK: Steering

    /// Moves `download` to `place` among those of its priority, 0 = next. `takesTurn`: also ahead of the downloads of other applications.
    func move(_ download: ManagedDownload, to place: UInt32, takesTurn: Bool) throws(Refusal) {
        guard !download.state.hasEnded else {
            throw Refusal(.invalidState, "A download that is \(download.state.name) has no place in the queue.")
        }
        decide(.move(download.entry, to: place, takesTurn: takesTurn))
    }

    func setSpeedLimit(_ download: ManagedDownload, _ limit: Speed?) {
        engine.setSpeedLimit(download.number, limit)
        decide(.setSpeedLimit(download.entry, limit))
    }

    func set(_ change: (inout Settings) -> Void) {
        let before = settings.speedLimit
        var settings = settings
        change(&settings)
        decide(.set(settings))
        if settings.speedLimit != before { engine.setTotalSpeedLimit(settings.speedLimit == 0 ? nil : settings.speedLimit) }
    }

    func clearEnded(_ reply: Reply<UInt32>) {
        let count = ledger.ended.count
        decideOnMany {
            .clearEnded(answering: $0)
        } answer: { [self] in
            journal.answer(reply, UInt32(clamping: count))
        }
    }

    /// Removes `download` from the list; cancels it first if it has not ended. `deletingFile`: also deletes the finished file.
    func remove(_ download: ManagedDownload, deletingFile: Bool, _ reply: Reply<Void>) throws(IllegalTransition) {
        let entry = download.entry
        try ask(.remove(entry))
        let record = entry.record
        guard deletingFile, record.state == .finished, let path = record.path else { return journal.answer(reply, ()) }
        let identity = record.resume?.identity
        journal.afterCommit {
            DiskPool.shared.perform(at: .path(path), within: DiskPatience.file) {
                Commit.deleteFinished(path, identity: identity)
            } then: { result in
                switch result ?? .failure(.silentDisk(of: path)) {
                case .success: reply()
                case .failure(let refusal): reply.fail(refusal)
                }
            }
        }
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

    func failed(_ fault: Ledger.Fault) {
        log.critical("the ledger has made a mistake", metadata: ["fault": "\(fault)"])
        assertionFailure("\(fault)")
    }

    func carriedOut() {
        if descriptors.isHolding { descriptors.release(where: ledger.isDone) }
        announcer.flushManager(of: self)
        tell { $0.decided($1) }
        weigh()
    }

    // MARK: The engine. The pool is in Transfers.swift.

    func permit(_ id: RequestID, tellsSent: Bool) { engine.permit(id, tellsSent: tellsSent) }
    func stopTransfer(_ entry: LedgerEntry) { engine.stop(entry.number) }

    // MARK: Those who hear of changes

    func changed(_ change: Ledger.Change) {
        tell { $0.changed(change, $1) }
        let entry = change.entry
        guard let download = download(entry.number) else { return }
        // Send the last `Progress` before the state change that ends the transfer.
        if change.shownBefore != nil { announcer.flushProgress(of: download) }
        if entry.work == .idle { download.rewind() }
        announcer.compare(download, with: change)
        forget(entry.number)
    }

    func tell(_ entry: LedgerEntry) {
        tell { $0.told(entry, $1) }
        if let download = downloads[entry.number] {
            announcer.flushProperties(of: download)
            forget(entry.number)
        }
        if let batch = entry.batch { batches[batch.number]?.changed() }
    }

    func tellWait(_ entry: LedgerEntry) {
        tell { $0.told(entry, $1) }
        if let batch = entry.batch { batches[batch.number]?.changed() }
        guard let download = download(entry.number) else { return }
        download.changedProperties.formUnion([Download.state.name, Download.waitReason.name, Download.waitUntil.name])
        announcer.flushProperties(of: download)
        forget(entry.number)
    }

    func announceEnd(_ entry: LedgerEntry) -> () -> Void {
        let download = download(entry.number) ?? ManagedDownload(entry, in: self)
        assert(
            download.state.endFailure.map { DocumentedErrors.ends.contains($0.name.busName) } ?? true,
            "the signal Completed does not name \(download.state.endFailure?.name.rawValue ?? "") in its XML")
        announcer.announceEnd(of: download)
        log.info(
            "download ended",
            metadata: [
                "download": "\(download.number)", "outcome": "\(download.state.name)",
                "error": "\(download.state.endFailure?.name.rawValue ?? "")",
            ])
        return { [self] in
            tell { $0.ended(download, $1) }
            forget(download.number)
        }
    }

    func allEnded(_ outcomes: OutcomeCounts) {
        announcer.flushManager(of: self, now: true)
        journal.post(Manager.allEnded.message(from: BusName.managerPath, (outcomes.finished, outcomes.failed, outcomes.cancelled)))
    }

    func showOwed(_ toasts: [Ledger.OwedToast]) { tell { $0.owed(toasts, $1) } }

    func removed(_ entry: LedgerEntry) {
        let download = downloads[entry.number] ?? ManagedDownload(entry, in: self)
        if let batch = entry.batch.flatMap({ batches[$0.number] }) { noteFile(of: entry, in: batch) }
        untrack(entry)
        journal.post(Manager.downloadRemoved.message(from: BusName.managerPath, download.path))
        tell { $0.removed(entry, $1) }
    }

    func callOwner(_ entry: LedgerEntry) {
        ownerCalls.ask(for: peek(entry.number) ?? ManagedDownload(entry, in: self)) { [self] in executor.beginOwnerCall(entry) }
    }
}

extension Downloader: JournalOwner {
    func allRows() async -> [[StoreChange]] {
        var (walk, parts, step) = (ledger.walkRows(), [[StoreChange]](), StepTime())
        while let part = ledger.nextRows(&walk) {
            parts.append(part)
            guard step.isOver else { continue }
            await Task.yield()
            step = StepTime()
        }
        return parts
    }

    func databaseWasSetAside(_ path: String) {
        (setAside, salvaged) = (path, SalvageReport())
        announcer.flushManager(of: self, now: true)
    }

    func setAsideIsGone(_ path: String) {
        guard setAside == path else { return }
        setAside = ""
        announcer.flushManager(of: self)
    }

    func commitsSucceedAgain() {
        announcer.recover(with: self)
        var rest = Array(batches.values)
        BusActor.inSteps {
            rest.last?.changed()
            return rest.popLast() != nil
        }
        decide()
    }
}

extension Downloader: ForegroundOwner {
    func appsInFrontChanged() { decide(.inFront(Set(foreground.apps))) }
    func cameToFront(_ app: String) { tell { $0.cameToFront(app, $1) } }
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
