public import DownloadModel

/// How many members of a batch are on the list, and in which states.
public struct MemberCounts: Equatable, Sendable {
    /// All members on the list.
    public private(set) var present: UInt32 = 0
    /// The members that have not ended.
    public private(set) var remaining: UInt32 = 0
    /// The members that run, or will start by themselves once their turn comes.
    public private(set) var underWay: UInt32 = 0
    /// The members that are paused, or wait until somebody acts.
    public private(set) var resting: UInt32 = 0
    /// The members that have ended.
    public private(set) var ended = OutcomeCounts()

    mutating func insert(_ state: DownloadState) {
        present += 1
        count(state)
    }

    /// - Precondition: a member is in `state`.
    mutating func remove(_ state: DownloadState) {
        present -= 1
        uncount(state)
    }

    /// - Precondition: a member is in `before`.
    mutating func move(from before: DownloadState, to next: DownloadState) {
        uncount(before)
        count(next)
    }

    private mutating func count(_ state: DownloadState) {
        if state.hasEnded { ended.insert(state) } else { remaining += 1 }
        if state.isUnderWay { underWay += 1 }
        if state.rests { resting += 1 }
    }

    private mutating func uncount(_ state: DownloadState) {
        if state.hasEnded { ended.remove(state) } else { remaining -= 1 }
        if state.isUnderWay { underWay -= 1 }
        if state.rests { resting -= 1 }
    }
}
