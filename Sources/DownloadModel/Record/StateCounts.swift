/// How many downloads are in which state.
public struct StateCounts: Equatable, Sendable {
    public private(set) var queued: UInt32 = 0
    public private(set) var active: UInt32 = 0
    public private(set) var paused: UInt32 = 0
    /// Verified, unpacked or named.
    public private(set) var verifying: UInt32 = 0
    /// Waiting for a reason that ends by itself.
    public private(set) var waitingForTime: UInt32 = 0
    /// Waiting until a person or an app calls ResumeAll or ReplaceUrl.
    public private(set) var held: UInt32 = 0
    public private(set) var ended: UInt32 = 0
    /// The part of `waitingForTime` that waits for a folder or for free space.
    public private(set) var awaitingFolder: UInt32 = 0
    public init() {}

    /// Downloads that have not ended.
    public var remaining: UInt32 { queued + active + paused + verifying + waitingForTime + held }
    /// Downloads that are queued, waiting or held.
    public var notStarted: UInt32 { queued + waitingForTime + held }

    public mutating func insert(_ state: DownloadState) { count(state, 1) }
    public mutating func remove(_ state: DownloadState) { count(state, -1) }

    private mutating func count(_ state: DownloadState, _ step: Int32) {
        func add(_ count: inout UInt32) { count = UInt32(bitPattern: Int32(bitPattern: count) + step) }
        if state.awaitsFolder { add(&awaitingFolder) }
        switch state {
        case .queued: add(&queued)
        case .waiting(.pausedAll, _), .waiting(.needsUrl, _): add(&held)
        case .waiting: add(&waitingForTime)
        case .active: add(&active)
        case .paused: add(&paused)
        case .verifying, .extracting, .committing: add(&verifying)
        case .finished, .failed, .cancelled: add(&ended)
        }
    }
}
