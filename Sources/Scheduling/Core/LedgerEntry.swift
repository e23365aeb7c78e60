public import DownloadModel

/// One download in the ledger: its record, and what is under way for it in this process.
public final class LedgerEntry {
    /// The engine's work on it. A new transfer begins only when the one before has ended.
    public enum Work: Sendable { case idle, running, stopping }

    public internal(set) var record: DownloadRecord { didSet { sums.update(self) } }
    private let sums: Sums
    public internal(set) var work = Work.idle
    /// The pool verifies or commits its part file, or looks for it.
    public internal(set) var isInPool = false
    /// Its row is on disk, and it has its place in the queue.
    public internal(set) var isEntered = false
    /// Taken off the list; what is still under way for it ends quietly.
    public internal(set) var isRemoved = false
    /// It had ended, and has not been started since.
    var isRevived = false
    /// Its owner is to be called, and has not been yet.
    public internal(set) var isCallDue = false
    /// Whether a part file of it may lie on disk: this process has heard of a response, or does not know.
    var mayHavePart = true
    /// Whether a later transfer can go on from the bytes of the last response, as the engine told.
    var isResumable = true
    /// Where it stands while it may start.
    var lane: Lane?
    /// Its own request interval, as its host tells it apart from others; zero: none.
    var spacing = Duration.zero
    /// Whose slot it has, and since when, while it is active.
    var share: AppShare?
    var startedAt = WallTime(microseconds: 0)
    /// The origin of its request under way, or of its next one.
    var requestOrigin = ""
    /// Somebody wants it at once: until its next transfer ends it waits for nothing that a server asked for. In a lane the lane's counts.
    var isUrgent = false
    /// When its request under way was started.
    var requestedAt = WallTime(microseconds: 0)
    /// Requests of it that were started or permitted: tells a permission that comes late, behind a commit, from that of a later request.
    public internal(set) var requests: UInt64 = 0
    /// Its request keeps an interval: the engine is to tell when it has gone out.
    public internal(set) var isPaced = false
    /// Active, it waits for its next request, or for a server that sends nothing: it takes no slot.
    public internal(set) var isHeld = false
    /// Since when its server sends nothing.
    var silentSince: WallTime?
    /// What it waits for though it is queued or active, as it was told.
    var toldHold: WaitReason?
    /// Its state is to be told though nobody has looked at it before it changed.
    var isToldWhole = false
    /// Somebody resumed it although there is no network: it is tried once, as long as `Ledger.reachCount` is this.
    var defiedReach: Int32?
    /// How many attempts in a row sent nothing, because the desktop did not say by which proxy.
    var unsentAttempts: UInt32 = 0
    /// When it is to be looked at without any event.
    var wakeAt: WallTime?
    /// How many of the ledger's `clockJumps` its instants have in them.
    var clockJumps: Int32 = 0
    /// The batch of which it is a member.
    public internal(set) var batch: LedgerBatch?
    /// Its place among those that have ended; later ones have higher ones.
    var ending: Int64 = 0
    /// What it adds to the ledger's sums.
    var summand: ProgressTally.Summand?
    /// The host of its URL, for the limit per host.
    public internal(set) lazy var host = DownloadURL.host(of: record.url)
    /// `DownloadURL.origin` of its URL: who is left alone after a refusal.
    lazy var origin = DownloadURL.origin(of: record.url)
    /// Whether that is this machine, which no network stands between.
    lazy var isLocal = isLoopbackAddress(host)

    init(_ record: DownloadRecord, sums: Sums) { (self.record, self.sums) = (record, sums) }

    public var number: DownloadNumber { record.number }
    public var state: DownloadState { record.state }
}

extension DownloadRecord {
    /// Further off than this is no retry of ours.
    static let longestRetry = RetryAfter.longest + Backoff.longest

    /// The state in which it may go on: `queued`, or `waiting` for the first of what stands in its way.
    public func obstacle(now: WallTime, paused: Bool) -> DownloadState {
        if paused { return .waiting(.pausedAll, until: nil) }
        if let time = options.notBefore, time > now { return .waiting(.notBefore, until: time) }
        if awaitsUrl { return .waiting(.needsUrl, until: nil) }
        // Further off than any delay of ours: the clock was set back while nobody looked.
        if let time = retryAt, time > now, time < now + Self.longestRetry { return .waiting(.retry, until: time) }
        return .queued
    }

    /// What a transition changes besides the state.
    mutating func take(_ event: DownloadEvent, from before: DownloadState, to next: DownloadState, now: WallTime) {
        state = next
        switch event {
        case .start:
            attempts +|= 1
            isWhole = false
            lastFailure = nil
            if startedAt == nil { startedAt = now }
        case .resume: if before != .paused { retryAt = nil }  // asked for while it waits: at once; after a pause the wait goes on
        case .retry, .renew:
            (retryAt, awaitsUrl, lastFailure) = (nil, false, nil)
            if before.hasEnded {
                (endedAt, retriesUsed, expiresAt, timeLeft, hasStartedOver) = (nil, 0, nil, nil, false)
                (isAcknowledged, activations, activateAt, owesToast) = (false, 0, nil, false)
            }
        case .wait(.retry, let until): retryAt = until
        case .wait(.needsUrl, _): awaitsUrl = true
        case .bodyComplete: isWhole = true
        case .startOver: hasStartedOver = true
        case .partLost: isWhole = false
        case .unchanged: isUnchanged = true
        case .skipped: isUnchanged = isFetch
        default: break
        }
        if next.hasEnded { (retryAt, lastFailure, expiresAt, timeLeft, awaitsUrl) = (nil, nil, nil, nil, false) }
        if next.hasEnded, !before.hasEnded { (endedAt, activateAt) = (now, options.activate == nil ? nil : now) }
        runDeadline(at: now)
    }

    /// No byte is held any more.
    mutating func forgetBytes() { (received, resume, isSpliced, isWhole) = (0, nil, false, false) }

    /// Starts and stops the time of the option `deadline`: it runs from the first start, in waits too, but not while paused.
    private mutating func runDeadline(at now: WallTime) {
        guard let deadline = options.deadline, !state.hasEnded else { return }
        switch state {
        case .paused, .waiting(.pausedAll, _):
            guard let expiresAt else { return }
            timeLeft = max(.zero, expiresAt - now)
            self.expiresAt = nil
        case .active, .verifying:
            if expiresAt == nil { expiresAt = now + (timeLeft ?? deadline) }
            timeLeft = nil
        default:
            guard let timeLeft else { return }
            expiresAt = now + timeLeft
            self.timeLeft = nil
        }
    }

    /// When it is to be looked at without any event: the end of its wait, its deadline, when its owner is called
    /// again, or when its secrets go.
    var nextWake: WallTime? {
        switch state {
        case .waiting(.pausedAll, _): nil
        case .waiting(_, let until): [until, expiresAt].compactMap { $0 }.min()
        case .queued, .active: expiresAt
        case .finished, .failed, .cancelled: [activateAt, secretsEnd].compactMap { $0 }.min()
        default: nil
        }
    }
}
