/// How many downloads are in which state.
public struct StateCounts: Equatable, Sendable {
    public private(set) var queued: UInt32 = 0
    public private(set) var active: UInt32 = 0
    public private(set) var paused: UInt32 = 0
    public private(set) var verifying: UInt32 = 0
    /// Waiting for what ends by itself.
    public private(set) var waitingForTime: UInt32 = 0
    /// Waiting for somebody: ResumeAll, ReplaceUrl.
    public private(set) var held: UInt32 = 0
    public private(set) var ended: UInt32 = 0
    /// Of `waitingForTime`: for a folder or for room in it.
    public private(set) var awaitingFolder: UInt32 = 0
    public init() {}

    /// Not yet ended.
    public var remaining: UInt32 { queued + active + paused + verifying + waitingForTime + held }
    /// Not started or not going on by itself right now.
    public var notStarted: UInt32 { queued + waitingForTime + held }

    public mutating func insert(_ state: DownloadState) {
        self[keyPath: Self.place(of: state)] += 1
        if state.awaitsFolder { awaitingFolder += 1 }
    }

    public mutating func remove(_ state: DownloadState) {
        self[keyPath: Self.place(of: state)] -= 1
        if state.awaitsFolder { awaitingFolder -= 1 }
    }

    private static func place(of state: DownloadState) -> WritableKeyPath<StateCounts, UInt32> {
        switch state {
        case .queued: \.queued
        case .waiting(.pausedAll, _), .waiting(.needsUrl, _): \.held
        case .waiting: \.waitingForTime
        case .active: \.active
        case .paused: \.paused
        case .verifying, .committing: \.verifying
        case .finished, .failed, .cancelled: \.ended
        }
    }
}
