internal import DownloadModel
internal import Scheduling
internal import Testing

/// A scheduler as the service uses it: events in, actions out. Each verb is one turn with one event, at the instant `now`. Everything that
/// the scheduler saves is on disk at once. Only the test performs the other actions.
final class Desk {
    static let start = WallTime(microseconds: 1_000_000_000_000_000)

    private(set) var scheduler: Scheduler
    var now: WallTime
    private let jitter: Jitter
    /// The actions of the last turn.
    private(set) var actions: [Scheduler.Action] = []
    /// The actions of all turns.
    private(set) var history: [Scheduler.Action] = []
    /// How many of these `newActions` has returned.
    private var seen = 0
    /// The numbers of the started transfers, permitted redirects and announced waits so far, in order.
    private(set) var started: [UInt64] = []
    private(set) var permitted: [UInt64] = []
    private(set) var told: [UInt64] = []
    /// The rows that the next process finds on disk.
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
        (scheduler, self.now, self.jitter) = (Scheduler(settings: settings, network: network, jitter: jitter), now, jitter)
        for record in records { rows.take(.put(record)) }
        for batch in batches { rows.take(.putBatch(batch)) }
        for (number, directory) in sweeps { rows.take(.sweep(number, directory: directory)) }
        for request in requests { rows.take(.requested(request)) }
        begin()
    }

    /// The process dies, and after `pause` another one begins with the rows on disk.
    func restart(after pause: Duration = .zero) {
        (now, seen) = (now + pause, history.count)
        scheduler = Scheduler(settings: scheduler.settings, jitter: jitter)
        begin()
    }

    private func begin() {
        let restored = scheduler.restore(
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

    subscript(_ number: UInt64) -> ScheduledDownload { scheduler[DownloadNumber(number)]! }
    func state(_ number: UInt64) -> DownloadState { self[number].state }
    func hold(_ number: UInt64) -> WaitReason? { scheduler.hold(of: self[number], now: now)?.reason }
    /// The end of the wait that `hold` gives a reason for.
    func holdEnd(_ number: UInt64) -> WallTime? { scheduler.hold(of: self[number], now: now)?.until }
    func ahead(_ number: UInt64) -> Int { scheduler.ahead(of: self[number], now: now) }

    /// The actions of all turns of this process since the last call.
    func newActions() -> ArraySlice<Scheduler.Action> {
        defer { seen = history.count }
        return history[seen...]
    }

    // MARK: Turns

    /// One turn. A fault of the scheduler fails the test, unless `mayFail`.
    ///
    /// - Throws: the refusal of the first refused event.
    @discardableResult
    func turn(_ events: [Scheduler.Event], mayFail: Bool = false) throws(IllegalTransition) -> Scheduler.Turn {
        let turn = scheduler.turn(events, at: now)
        actions = turn.actions
        history += actions
        for action in actions {
            switch action {
            case .save(let change): rows.take(change)
            case .startTransfer(let entry, _): started.append(entry.number.value)
            case .permit(let id, _, _, _): permitted.append(id.download.value)
            case .tellWait(let entry): told.append(entry.number.value)
            default: break
            }
        }
        if !mayFail { for fault in turn.faults { Issue.record("a fault of the scheduler: \(fault)") } }
        if let refusal = turn.refusal { throw refusal }
        return turn
    }

    /// One turn with a fact, which no state refuses.
    private func happens(_ event: Scheduler.Event) {
        do throws(IllegalTransition) { try turn([event]) } catch { Issue.record("a refused fact: \(error)") }
    }

    // MARK: Callers

    /// Adds a download and its row: two turns, as in the service.
    @discardableResult
    func add(
        _ number: UInt64, _ url: String? = nil, app: String = "", _ change: (inout DownloadRecord) -> Void = { _ in }
    ) -> ScheduledDownload {
        let entry = addUnsaved(Desk.record(number, url, app: app, change))
        saved(entry)
        return entry
    }

    /// Adds a download whose row is not on disk yet: `saved` or `unsaved` follows.
    func addUnsaved(_ record: DownloadRecord) -> ScheduledDownload {
        happens(.add(record))
        return self[record.number.value]
    }

    func saved(_ entry: ScheduledDownload) {
        rows.take(.put(entry.record))
        happens(.saved(entry))
    }

    func unsaved(_ entry: ScheduledDownload) { happens(.unsaved(entry)) }

    /// As `addUnsaved`, for a batch. The numbers of its `count` members follow its own.
    func addUnsavedBatch(_ number: UInt64, _ count: Int) -> (ScheduledBatch, [ScheduledDownload]) {
        addUnsavedBatch(BatchRecord(number: BatchNumber(number), count: UInt32(count)))
    }

    func addUnsavedBatch(_ record: BatchRecord) -> (ScheduledBatch, [ScheduledDownload]) {
        var members = PreparedMembers()
        for number in record.numbers {
            scheduler.prepare(Desk.record(number.value, app: record.app) { $0.batch = record.number }, in: &members)
        }
        happens(.addBatch(record, members))
        return (scheduler.batch(record.number)!, members.entries)
    }

    func saved(_ batch: ScheduledBatch, _ members: [ScheduledDownload]) {
        rows.take(.addBatch(batch.record, members.map(\.record)))
        happens(.savedBatch(batch, members))
    }

    /// Some members take their places in the queue. `saved` follows with all of them.
    func savedMembers(_ members: [ScheduledDownload], of batch: ScheduledBatch) { happens(.savedMembers(batch, members)) }
    func unsaved(_ batch: ScheduledBatch, _ members: [ScheduledDownload]) { happens(.unsavedBatch(batch, members)) }

    func steer(_ entry: ScheduledDownload, _ event: DownloadEvent) throws(IllegalTransition) { try turn([.steer(entry, event)]) }
    func replaceUrl(_ entry: ScheduledDownload, _ url: DownloadURL) throws(IllegalTransition) {
        try turn([.replaceUrl(entry, FreshLink(url))])
    }
    func remove(_ entry: ScheduledDownload) throws(IllegalTransition) { try turn([.remove(entry)]) }
    func steer(_ batch: ScheduledBatch, _ event: DownloadEvent) { happens(.steerBatch(batch, event)) }
    func remove(_ batch: ScheduledBatch) { happens(.removeBatch(batch)) }
    func pauseAll() { happens(.pauseAll) }
    func resumeAll() { happens(.resumeAll) }
    func move(_ entry: ScheduledDownload, to place: UInt32) { happens(.move(entry, to: place)) }
    func setPriority(_ entry: ScheduledDownload, _ priority: Int32) { happens(.setPriority(entry, priority)) }
    func setSpeedLimit(_ entry: ScheduledDownload, _ limit: Speed?) { happens(.setSpeedLimit(entry, limit)) }

    func set(_ change: (inout Settings) -> Void) {
        var settings = scheduler.settings
        change(&settings)
        happens(.set(settings))
    }

    func resetHost(_ host: String) { happens(.resetHost(host)) }
    func acknowledge(_ entry: ScheduledDownload) { happens(.acknowledge(entry)) }
    func inFront(_ apps: Set<String>) { happens(.inFront(apps)) }

    // MARK: The engine

    /// The next request of the transfer goes to `host`: a redirect, or a repeated request.
    func hop(_ entry: ScheduledDownload, to host: String, origin: String? = nil, sharing: ConnectionSharing = .possible) {
        happens(.asks(entry.request, host: host, origin: origin, isAnswered: sharing != .failed, sharing: sharing))
    }
    /// The request has gone out on this connection, which it shares.
    func shares(_ entry: ScheduledDownload, _ connection: UInt32) { happens(.shares(entry.request, connection: connection)) }
    /// The request has gone out now.
    func sent(_ entry: ScheduledDownload) { happens(.sent(entry.request, at: now)) }
    func stalled(_ entry: ScheduledDownload, _ isStalled: Bool) { happens(.stalled(entry.request, isStalled)) }

    func began(
        _ entry: ScheduledDownload, fileName: String = "f", mediaType: String? = nil, source: String? = nil, total: ByteCount? = nil,
        offset: ByteCount = 0, isResumable: Bool = true, connection: UInt32? = nil
    ) {
        var response = Scheduler.Response(
            fileName: fileName, mediaType: mediaType, source: source, total: total, offset: offset, isResumable: isResumable)
        response.connection = connection
        happens(.began(entry.request, response))
    }

    /// The body that the last `began` announced was dropped. The facts are about the held bytes.
    func bodyDropped(_ entry: ScheduledDownload, fileName: String, mediaType: String?, total: ByteCount?, offset: ByteCount) {
        let held = Scheduler.Response(
            fileName: fileName, mediaType: mediaType, source: nil, total: total, offset: offset, isResumable: true)
        happens(.bodyDropped(entry.number, held))
    }

    func checkpoint(_ entry: ScheduledDownload, _ resume: ResumeData) { happens(.checkpoint(entry, resume)) }
    func ends(_ entry: ScheduledDownload, _ outcome: TransferOutcome) {
        happens(.transferEnded(entry.number, outcome, by: entry.request))
    }

    func fails(_ entry: ScheduledDownload, _ failure: DownloadFailure, madeProgress: Bool = false, _ resume: ResumeData? = nil) {
        ends(entry, .failed(failure, madeProgress: madeProgress, resume))
    }

    // MARK: The pool

    func verified(_ entry: ScheduledDownload, _ identity: FileIdentity) { happens(.verified(entry, identity)) }
    func endingFailed(_ entry: ScheduledDownload, _ failure: DownloadFailure) { happens(.endingFailed(entry, failure)) }
    func committed(_ entry: ScheduledDownload, path: String, skipped: Bool = false) {
        happens(.committed(entry, path: path, skipped: skipped))
    }
    func partLost(_ entry: ScheduledDownload) { happens(.partLost(entry)) }
    func unpacked(_ entry: ScheduledDownload) { happens(.unpacked(entry)) }
    func unpackingFailed(_ entry: ScheduledDownload, _ failure: DownloadFailure, isDamaged: Bool) {
        happens(.unpackingFailed(entry, failure, isDamaged: isDamaged))
    }
    func unpackingStopped(_ entry: ScheduledDownload) { happens(.unpackingStopped(entry)) }
    func folderCommitted(_ entry: ScheduledDownload, path: String, _ identity: FileIdentity) {
        happens(.folderCommitted(entry, path: path, identity))
    }
    func foundUnchanged(_ entry: ScheduledDownload, _ copy: CachedCopy) { happens(.foundUnchanged(entry, copy)) }
    func deleteFolder(_ number: DownloadNumber, in directory: String) { happens(.deleteFolder(number, directory: directory)) }
    /// - Parameter directory: nil: the folder of the last deletion of `number`.
    func swept(_ number: DownloadNumber, in directory: String? = nil, isGone: Bool = true) {
        let asked = history.compactMap { if case .sweep(number, let directory) = $0 { directory } else { nil } }.last
        happens(.swept(number, directory: directory ?? asked ?? "", isGone: isGone))
    }

    /// The whole body of a running transfer is received and verified: the commit follows.
    func bringToCommit(_ entry: ScheduledDownload) {
        let identity = FileIdentity(device: 1, inode: entry.number.value, mount: 1, boot: "b")
        began(entry, total: 10)
        ends(entry, .complete(size: 10, fileName: "f", ResumeData(written: 10, total: 10, validator: nil, identity: identity)))
        verified(entry, identity)
    }

    // MARK: The system

    /// Advances the clock, and tells the scheduler.
    func wait(_ duration: Duration) {
        now = now + duration
        happens(.time)
    }

    /// As `wait`, until something is due.
    func waitUntilDue() {
        guard let time = scheduler.nextWake else {
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

    func toastSettled(_ toast: Scheduler.OwedToast) { happens(.toastSettled(toast)) }
    func ownerCalled(_ entry: ScheduledDownload) { happens(.ownerCalled(entry)) }
    func descriptorLost(_ entry: ScheduledDownload) { happens(.descriptorLost(entry)) }
    func crashed(_ entry: ScheduledDownload) { happens(.begins(crashed: [entry.number], owed: [])) }
    func exits() { happens(.ends) }
    func slice() { happens(.slice) }

    /// Performs all slices.
    func slices() { while scheduler.hasSlices { slice() } }
}

extension Sequence<Scheduler.Action> {
    var saves: [StoreChange] { compactMap { if case .save(let change) = $0 { change } else { nil } } }
    /// The saved rows of downloads.
    var rows: [DownloadRecord] { saves.compactMap { if case .put(let record) = $0 { record } else { nil } } }
    /// The saved requests to hosts.
    var requests: [HostRequest] { saves.compactMap { if case .requested(let request) = $0 { request } else { nil } } }
    /// The part files to delete.
    var sweeps: [DownloadNumber] { compactMap { if case .sweep(let number, _) = $0 { number } else { nil } } }
}
