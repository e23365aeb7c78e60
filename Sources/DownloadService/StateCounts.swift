internal import DownloadModel

/// How many downloads are in which state.
struct StateCounts: Equatable {
    private(set) var queued: UInt32 = 0
    private(set) var active: UInt32 = 0
    private(set) var paused: UInt32 = 0
    private(set) var verifying: UInt32 = 0
    private(set) var waitingForTime: UInt32 = 0
    private(set) var held: UInt32 = 0
    private(set) var ended: UInt32 = 0

    /// Not yet ended.
    var remaining: UInt32 { queued + active + paused + verifying + waitingForTime + held }
    /// Not started or not going on by itself right now.
    var notStarted: UInt32 { queued + waitingForTime + held }

    mutating func insert(_ state: DownloadState) { self[keyPath: Self.place(of: state)] += 1 }
    mutating func remove(_ state: DownloadState) { self[keyPath: Self.place(of: state)] -= 1 }

    private static func place(of state: DownloadState) -> WritableKeyPath<StateCounts, UInt32> {
        switch state {
        case .queued: \.queued
        case .waiting(.pausedAll, _): \.held
        case .waiting: \.waitingForTime
        case .active: \.active
        case .paused: \.paused
        case .verifying, .committing: \.verifying
        case .finished, .failed, .cancelled: \.ended
        }
    }
}
