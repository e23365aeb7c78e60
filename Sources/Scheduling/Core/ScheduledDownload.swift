public import DownloadModel

/// One download in the scheduler: its record, and its work in this process.
public final class ScheduledDownload {
    /// The engine's transfer. A new transfer begins only after the previous one has ended.
    public enum Work: Sendable { case idle, running, stopping }

    public internal(set) var record: DownloadRecord { didSet { sums.update(self) } }
    private let sums: Sums
    public internal(set) var work = Work.idle
    /// The pool verifies, unpacks, commits or looks for the part file.
    public internal(set) var isInPool = false
    /// The row is on disk, and the download has its place in the queue.
    public internal(set) var isEntered = false
    /// Removed from the list. Work still under way ends without announcements.
    public internal(set) var isRemoved = false
    /// Removed from the list because the download is private, not by a call.
    public internal(set) var hasLeftByItself = false
    /// The next start waits until the row is on disk, because only this row tells of the part file: the download had ended, or has another
    /// folder now.
    var startsAfterSave = false
    /// The owner still has to be called.
    public internal(set) var isCallDue = false
    /// Whether a part file may be on disk: this process has received a response, or does not know.
    var mayHavePart = true
    /// How long the download waits for the deletion of part files in folders that it has left; nil: it waits for none, or no longer.
    var patienceEnd: WallTime?
    /// Whether a later transfer can resume from the bytes of the last response, according to the engine.
    var isResumable = true
    /// The facts about the held bytes, while the last response brings another file beside them; nil: it does not.
    var heldFacts: HeldFacts?
    /// Whether the bytes of the last response stay if the transfer stops. A file beside the held bytes is deleted then.
    var keepsBytes: Bool { isResumable && heldFacts == nil }
    /// The representations that sources have stated instead of that of the held bytes, according to the last response of this process.
    public internal(set) var otherRepresentations: [OtherRepresentation] = []
    /// The lane of a download that may start.
    var lane: Lane?
    /// The request interval of the download's last lane; zero: none.
    var requestInterval = Duration.zero
    /// A caller wants the download at once: until its next transfer ends, no pause or pace of a server delays it. While the download is in
    /// a lane, the lane's flag counts instead.
    var isUrgent = false
    /// A server refused the last request (429, 503).
    var wasRefused = false
    /// The first request of the current or last transfer. Further requests of the transfer have the next ordinals.
    public var request: RequestID { RequestID(number, transferCount &<< 16) }
    /// Transfers started in this process.
    var transferCount: UInt32 = 0
    /// Whether `id` is a request of the current or last transfer.
    func owns(_ id: RequestID) -> Bool { id.ordinal &>> 16 == request.ordinal &>> 16 }
    /// The wait reason last announced for the queued or active download.
    var toldHold: WaitReason?
    /// Announce the state even if the wait reason stays the same, because the state before the change was not compared.
    var isToldWhole = false
    /// A caller resumed the download although there was no network: try once, as long as `Scheduler.reachCount` is this.
    var defiedReach: Int32?
    /// Failed attempts in a row without progress that do not count towards `retries`. They lengthen the back-off, until a restart.
    var uncountedAttempts: UInt32 = 0
    /// A transfer of this process has received so much that the file is large, although no response told its size.
    public internal(set) var isKnownLarge = false
    /// The instant at which the scheduler must look at the download even if no event comes; nil: there is none.
    var wakeAt: WallTime?
    /// Whether anything else than the end of the download's secrets is due at `wakeAt` or later.
    var isDueForWork = false
    /// How many of the scheduler's `clockJumps` the entry's instants already include.
    var clockJumps: Int32 = 0
    /// The batch of this member.
    public internal(set) var batch: ScheduledBatch?
    /// The order in which downloads ended: a later end has a higher number.
    var ending: Int64 = 0
    /// The share of the download in the scheduler's sums.
    var summand: ProgressTally.Summand?
    /// The host of the first request (`DownloadRecord.firstURL`), for the limit per host.
    public internal(set) lazy var host = DownloadURL.host(of: record.firstURL)
    /// `DownloadURL.origin` of the first request. An origin that refuses a request is paused or slowed.
    lazy var origin = DownloadURL.origin(of: record.firstURL)
    /// Whether the host of the first request is this machine.
    lazy var isFirstLocal = isLoopbackAddress(host)
    /// Whether all sources are on this machine.
    var isLocal: Bool { isFirstLocal && record.sourceURLs.allSatisfy { isLoopbackAddress(DownloadURL.host(of: $0)) } }

    init(_ record: DownloadRecord, sums: Sums) { (self.record, self.sums) = (record, sums) }

    /// - Parameter record: the record of this download.
    func fileSize(_ record: DownloadRecord) -> FileSize { isKnownLarge ? .large : record.fileSize }

    /// Updates host and origin, because another source may be the first now.
    func findPlace() {
        guard !record.mirrors.isEmpty, case let origin = DownloadURL.origin(of: record.firstURL), origin != self.origin else {
            return
        }
        (self.origin, host) = (origin, DownloadURL.host(of: origin))
        isFirstLocal = isLoopbackAddress(host)
    }

    public var number: DownloadNumber { record.number }
    public var state: DownloadState { record.state }
}

/// A download or a batch that a call has added.
public protocol Addition: AnyObject {
    var isEntered: Bool { get }
    var isRemoved: Bool { get }
}

extension Addition {
    /// The row could not be saved, so the addition was undone. An addition that was saved has been entered before it is removed.
    public var isUndone: Bool { isRemoved && !isEntered }
}

extension ScheduledDownload: Addition {}
extension ScheduledBatch: Addition {}

extension DownloadRecord {
    /// The longest delay of a retry. A later instant cannot be a retry that this service has scheduled.
    static let longestRetry = RetryAfter.longest + Backoff.longest

    /// The state of the download after its present wait or pause: `queued`, or `waiting` for the first obstacle.
    public func obstacle(now: WallTime, paused: Bool) -> DownloadState {
        if paused { return .waiting(.pausedAll, until: nil) }
        if let time = options.notBefore, time > now { return .waiting(.notBefore, until: time) }
        if awaitsUrl { return .waiting(.needsUrl, until: nil) }
        // A later instant is further away than any delay of ours: the clock was set back unnoticed.
        if let time = retryAt, time > now, time < now + Self.longestRetry { return .waiting(.retry, until: time) }
        return .queued
    }

    /// When the download is due without an event: the end of its wait, its deadline, the next owner call, or the time at which it leaves
    /// the list because it is private. Excludes the end of its secrets (`secretsEnd`), because the service need not run until then.
    var nextWake: WallTime? {
        switch state {
        case .waiting(.pausedAll, _): nil
        case .waiting(_, let until): [until, expiresAt].compactMap { $0 }.min()
        case .queued, .active: expiresAt
        case .finished, .failed, .cancelled: [reminders.nextAt, privateEnd].compactMap { $0 }.min()
        default: nil
        }
    }
}
