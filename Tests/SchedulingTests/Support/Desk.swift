internal import DownloadModel
internal import Scheduling
internal import Testing

/// A ledger as the service uses it: events in, actions out. Each verb is one turn with one event, at the instant `now`. Everything that the
/// ledger saves is on disk at once. Only the test performs the other actions.
final class Desk {
    static let start = WallTime(microseconds: 1_000_000_000_000_000)

    private(set) var ledger: Ledger
    var now: WallTime
    private let jitter: Jitter
    /// The actions of the last turn.
    private(set) var actions: [Ledger.Action] = []
    /// The actions of all turns.
    private(set) var history: [Ledger.Action] = []
    /// How many of these `newActions` has returned.
    private var seen = 0
    /// The numbers of the started transfers, permitted redirects and announced waits so far, in order.
    private(set) var started: [UInt64] = []
    private(set) var permitted: [UInt64] = []
    private(set) var told: [UInt64] = []
    /// What the next process finds on disk.
    var rows = StoredRows()

    /// Restores `records`, and begins as the service does at startup.
    ///
    /// - Parameter network: the network that is known at startup; nil: none yet.
    init(
        _ records: [DownloadRecord] = [], batches: [BatchRecord] = [], sweeps: [DownloadNumber: String] = [:], requests: [HostRequest] = [],
        network: NetworkCondition? = .open, at now: WallTime = Desk.start, jitter: Jitter = .fixed(0),
        _ change: (inout Settings) -> Void = { _ in }
    ) {
        var settings = Settings()
        change(&settings)
        (ledger, self.now, self.jitter) = (Ledger(settings: settings, network: network, jitter: jitter), now, jitter)
        for record in records { rows.take(.put(record)) }
        for batch in batches { rows.take(.putBatch(batch)) }
        for (number, directory) in sweeps { rows.take(.sweep(number, directory: directory)) }
        for request in requests { rows.take(.requested(request)) }
        begin()
    }

    /// The process dies, and after `pause` another one begins with the rows on disk.
    func restart(after pause: Duration = .zero) {
        (now, seen) = (now + pause, history.count)
        ledger = Ledger(settings: ledger.settings, jitter: jitter)
        begin()
    }

    private func begin() {
        let restored = ledger.restore(
            rows.downloads.values.sorted { $0.number < $1.number }, batches: rows.batches.values.sorted { $0.number < $1.number },
            sweeps: rows.sweeps, requests: Array(rows.requests.values), now: now)
        happens(.begins(crashed: [], owed: restored.owedToasts))
    }

    /// A queued record of the host "h".
    static func record(
        _ number: UInt64, _ url: String? = nil, app: String = "", state: DownloadState = .queued,
        _ change: (inout DownloadRecord) -> Void = { _ in }
    ) -> DownloadRecord {
        var options = DownloadOptions()
        options.app = app
        var record = DownloadRecord(
            number: DownloadNumber(number), url: url ?? "http://h/\(number)", options: options, directory: "/d", state: state,
            queuedAt: start, position: DownloadQueue.position(of: DownloadNumber(number)))
        change(&record)
        return record
    }

    // MARK: Questions

    subscript(_ number: UInt64) -> LedgerEntry { ledger[DownloadNumber(number)]! }
    func state(_ number: UInt64) -> DownloadState { self[number].state }
    func hold(_ number: UInt64) -> WaitReason? { ledger.hold(of: self[number], now: now)?.reason }
    /// The end of the wait that `hold` gives a reason for.
    func holdEnd(_ number: UInt64) -> WallTime? { ledger.hold(of: self[number], now: now)?.until }
    func ahead(_ number: UInt64) -> Int { ledger.ahead(of: self[number], now: now) }

    /// The actions of all turns of this process since the last call.
    func newActions() -> ArraySlice<Ledger.Action> {
        defer { seen = history.count }
        return history[seen...]
    }

    // MARK: Turns

    /// One turn. A fault of the ledger fails the test, unless `mayFail`.
    ///
    /// - Throws: the refusal of the first refused event.
    @discardableResult
    func turn(_ events: [Ledger.Event], mayFail: Bool = false) throws(IllegalTransition) -> Ledger.Turn {
        let turn = ledger.turn(events, at: now)
        actions = turn.actions
        history += actions
        for action in actions {
            switch action {
            case .save(let change): rows.take(change)
            case .startTransfer(let entry, _): started.append(entry.number.value)
            case .permit(let id, _): permitted.append(id.download.value)
            case .tellWait(let entry): told.append(entry.number.value)
            default: break
            }
        }
        if !mayFail { for fault in turn.faults { Issue.record("a fault of the ledger: \(fault)") } }
        if let refusal = turn.refusal { throw refusal }
        return turn
    }

    /// One turn with a fact, which no state refuses.
    private func happens(_ event: Ledger.Event) {
        do throws(IllegalTransition) { try turn([event]) } catch { Issue.record("a refused fact: \(error)") }
    }

    // MARK: Callers

    /// Adds a download and its row: two turns, as in the service.
    @discardableResult
    func add(
        _ number: UInt64, _ url: String? = nil, app: String = "", _ change: (inout DownloadRecord) -> Void = { _ in }
    ) -> LedgerEntry {
        let entry = addUnsaved(Desk.record(number, url, app: app, change))
        saved(entry)
        return entry
    }

    /// Adds a download whose row is not on disk yet: `saved` or `unsaved` follows.
    func addUnsaved(_ record: DownloadRecord) -> LedgerEntry {
        happens(.add(record))
        return self[record.number.value]
    }

    func saved(_ entry: LedgerEntry) {
        rows.take(.put(entry.record))
        happens(.saved(entry))
    }

    func unsaved(_ entry: LedgerEntry) { happens(.unsaved(entry)) }

    /// As `addUnsaved`, for a batch. The numbers of its `count` members follow its own.
    func addUnsavedBatch(_ number: UInt64, _ count: Int) -> (LedgerBatch, [LedgerEntry]) {
        var members = PreparedMembers()
        for index in 1...UInt64(count) {
            ledger.prepare(Desk.record(number + index) { $0.batch = BatchNumber(number) }, in: &members)
        }
        happens(.addBatch(BatchRecord(number: BatchNumber(number), count: UInt32(count)), members))
        return (ledger.batch(BatchNumber(number))!, members.entries)
    }

    func saved(_ batch: LedgerBatch, _ members: [LedgerEntry]) {
        rows.take(.addBatch(batch.record, members.map(\.record)))
        happens(.savedBatch(batch, members))
    }

    /// Some members take their places in the queue. `saved` follows with all of them.
    func savedMembers(_ members: [LedgerEntry], of batch: LedgerBatch) { happens(.savedMembers(batch, members)) }
    func unsaved(_ batch: LedgerBatch, _ members: [LedgerEntry]) { happens(.unsavedBatch(batch, members)) }

    func steer(_ entry: LedgerEntry, _ event: DownloadEvent) throws(IllegalTransition) { try turn([.steer(entry, event)]) }
    func replaceUrl(_ entry: LedgerEntry, _ url: DownloadURL) throws(IllegalTransition) { try turn([.replaceUrl(entry, FreshLink(url))]) }
    func remove(_ entry: LedgerEntry) throws(IllegalTransition) { try turn([.remove(entry)]) }
    func steer(_ batch: LedgerBatch, _ event: DownloadEvent) { happens(.steerBatch(batch, event)) }
    func remove(_ batch: LedgerBatch) { happens(.removeBatch(batch)) }
    func pauseAll() { happens(.pauseAll) }
    func resumeAll() { happens(.resumeAll) }
    func move(_ entry: LedgerEntry, to place: UInt32) { happens(.move(entry, to: place)) }
    func setPriority(_ entry: LedgerEntry, _ priority: Int32) { happens(.setPriority(entry, priority)) }
    func setSpeedLimit(_ entry: LedgerEntry, _ limit: Speed?) { happens(.setSpeedLimit(entry, limit)) }

    func set(_ change: (inout Settings) -> Void) {
        var settings = ledger.settings
        change(&settings)
        happens(.set(settings))
    }

    func resetHost(_ host: String) { happens(.resetHost(host)) }
    func acknowledge(_ entry: LedgerEntry) { happens(.acknowledge(entry)) }
    func inFront(_ apps: Set<String>) { happens(.inFront(apps)) }

    // MARK: The engine

    /// The next request of the transfer goes to `host`, by a redirect or again.
    func hop(_ entry: LedgerEntry, to host: String, origin: String? = nil) { happens(.asks(entry.request, host: host, origin: origin)) }
    /// The request has gone out now.
    func sent(_ entry: LedgerEntry) { happens(.sent(entry.request, at: now)) }
    func stalled(_ entry: LedgerEntry, _ isStalled: Bool) { happens(.stalled(entry.request, isStalled)) }

    func began(
        _ entry: LedgerEntry, fileName: String = "f", mediaType: String? = nil, source: String? = nil, total: ByteCount? = nil,
        offset: ByteCount = 0, isResumable: Bool = true
    ) {
        let response = Ledger.Response(
            fileName: fileName, mediaType: mediaType, source: source, total: total, offset: offset, isResumable: isResumable)
        happens(.began(entry, response))
    }

    func checkpoint(_ entry: LedgerEntry, _ resume: ResumeData) { happens(.checkpoint(entry, resume)) }
    func ends(_ entry: LedgerEntry, _ outcome: TransferOutcome) { happens(.transferEnded(entry.number, outcome)) }

    func fails(_ entry: LedgerEntry, _ failure: DownloadFailure, madeProgress: Bool = false, _ resume: ResumeData? = nil) {
        ends(entry, .failed(failure, madeProgress: madeProgress, resume))
    }

    // MARK: The pool

    func verified(_ entry: LedgerEntry, _ identity: FileIdentity) { happens(.verified(entry, identity)) }
    func endingFailed(_ entry: LedgerEntry, _ failure: DownloadFailure) { happens(.endingFailed(entry, failure)) }
    func committed(_ entry: LedgerEntry, path: String, skipped: Bool = false) { happens(.committed(entry, path: path, skipped: skipped)) }
    func foundUnchanged(_ entry: LedgerEntry, _ copy: CachedCopy) { happens(.foundUnchanged(entry, copy)) }
    func swept(_ number: DownloadNumber, isGone: Bool = true) { happens(.swept(number, isGone: isGone)) }

    /// The whole body of a running transfer is received and verified: the commit follows.
    func bringToCommit(_ entry: LedgerEntry) {
        let identity = FileIdentity(device: 1, inode: entry.number.value, mount: 1, boot: "b")
        began(entry, total: 10)
        ends(entry, .complete(size: 10, fileName: "f", ResumeData(written: 10, total: 10, validator: nil, identity: identity)))
        verified(entry, identity)
    }

    // MARK: The system

    /// The clock goes on, and the ledger looks at it.
    func wait(_ duration: Duration) {
        now = now + duration
        happens(.time)
    }

    /// As `wait`, until something is due.
    func waitUntilDue() {
        guard let time = ledger.nextWake else {
            Issue.record("nothing is due")
            return
        }
        wait(time - now)
    }

    /// The clock is set.
    func clockJumps(by delta: Duration) {
        now = now + delta
        happens(.clockJumped(delta))
    }

    func network(_ condition: NetworkCondition?) { happens(.network(condition)) }
    func sleeps() { happens(.sleeps) }
    func wakes() { happens(.wakes) }
    func folderSeen(_ directory: String, free: ByteCount?) { happens(.folderSeen(directory, free: free)) }

    // MARK: The announcements and the process

    func toastSettled(_ toast: Ledger.OwedToast) { happens(.toastSettled(toast)) }
    func ownerCalled(_ entry: LedgerEntry) { happens(.ownerCalled(entry)) }
    func crashed(_ entry: LedgerEntry) { happens(.begins(crashed: [entry.number], owed: [])) }
    func exits() { happens(.ends) }
    func slice() { happens(.slice) }

    /// Performs all slices.
    func slices() { while ledger.hasSlices { slice() } }
}

extension Sequence<Ledger.Action> {
    var saves: [StoreChange] { compactMap { if case .save(let change) = $0 { change } else { nil } } }
    /// The saved rows of downloads.
    var rows: [DownloadRecord] { saves.compactMap { if case .put(let record) = $0 { record } else { nil } } }
    /// The saved requests to hosts.
    var requests: [HostRequest] { saves.compactMap { if case .requested(let request) = $0 { request } else { nil } } }
    /// The part files to delete.
    var sweeps: [DownloadNumber] { compactMap { if case .sweep(let number, _) = $0 { number } else { nil } } }
}
