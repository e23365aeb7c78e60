internal import DBus
internal import DownloadModel
internal import EventLoop

/// Counts the calls that wait for a disk before they are answered. The end of the service waits for these calls.
@BusActor final class DiskCalls {
    /// What a call sets once the disk has answered.
    enum Target: Hashable {
        case defaultDirectory
        case directory(DownloadNumber)
        case registration(AssetKey)
    }

    private var count = 0 { didSet { hold.isHeld = areWaiting } }
    private let hold: IdleExit.Hold
    private var lastArrival: UInt64 = 0
    /// The targets of the waiting calls: the number of these calls, and the arrival of the latest call that has set the target.
    private var targets: [Target: (calls: Int, latest: UInt64)] = [:]
    /// Whether a call waits for a disk.
    var areWaiting: Bool { count > 0 }

    /// - Parameter hold: held while any call waits for a disk.
    init(hold: IdleExit.Hold) { self.hold = hold }

    /// A call begins to wait for a disk.
    func begin() { count += 1 }

    /// A call no longer waits: it is answered in this turn, or its answer waits for a commit only.
    func end() { count -= 1 }

    /// Numbers the calls that set a target, in the order of their arrival. Disks answer in any order, but the latest successful call
    /// counts.
    func nextArrival() -> UInt64 {
        lastArrival &+= 1
        return lastArrival
    }

    /// Whether a call that arrived after `arrival` has set `target`. If so, the target keeps the value of that call.
    func isSet(_ target: Target, after arrival: UInt64) -> Bool { targets[target].map { $0.latest > arrival } ?? false }

    /// The call that arrived at `arrival` has set `target`, and no later call has. The arrival is forgotten if no other call waits.
    func noteSet(_ target: Target, at arrival: UInt64) { targets[target]?.latest = arrival }

    /// As `DiskPool.perform`, for a call that `done` answers.
    ///
    /// - Parameter target: what `done` sets; nil: nothing.
    func perform<R: Sendable>(
        at place: DiskPlace, within patience: Duration, setting target: Target? = nil,
        late: @escaping @Sendable (R) -> Void = { _ in },
        _ work: @escaping @Sendable () -> R, then done: @escaping @BusActor @Sendable (R?) -> Void
    ) {
        begin()
        if let target { targets[target, default: (calls: 0, latest: 0)].calls &+= 1 }
        DiskPool.shared.perform(at: place, within: patience, late: late, work) { [self] result in
            done(result)
            if let target { release(target) }
            end()
        }
    }

    /// One call fewer waits to set `target`.
    private func release(_ target: Target) {
        targets[target]?.calls &-= 1
        if targets[target]?.calls == 0 { targets[target] = nil }
    }
}
