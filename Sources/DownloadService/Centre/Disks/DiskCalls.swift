internal import DBus
internal import EventLoop

/// Counts the calls that wait for a disk before they are answered. The end of the service waits for these calls.
@BusActor final class DiskCalls {
    private var count = 0 { didSet { hold.isHeld = areWaiting } }
    private let hold: IdleExit.Hold
    /// Whether a call waits for a disk.
    var areWaiting: Bool { count > 0 }

    /// - Parameter hold: held while any call waits for a disk.
    init(hold: IdleExit.Hold) { self.hold = hold }

    /// A call begins to wait for a disk.
    func begin() { count += 1 }

    /// A call no longer waits: it is answered in this turn, or its answer waits for a commit only.
    func end() { count -= 1 }

    /// As `DiskPool.perform`, for a call that `done` answers.
    func perform<R: Sendable>(
        at place: DiskPlace, within patience: Duration, late: @escaping @Sendable (R) -> Void = { _ in },
        _ work: @escaping @Sendable () -> R, then done: @escaping @BusActor @Sendable (R?) -> Void
    ) {
        begin()
        DiskPool.shared.perform(at: place, within: patience, late: late, work) { [self] result in
            done(result)
            end()
        }
    }
}
