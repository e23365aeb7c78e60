internal import Synchronization

/// When the disk of an engine last answered work of one kind: flushes, or checks of pieces, of any transfer.
final class DiskAnswers: Sendable {
    private let instant = Mutex<SuspendingClock.Instant?>(nil)

    /// nil: the disk has not answered any yet.
    var last: SuspendingClock.Instant? { instant.withLock { $0 } }

    func note(_ now: SuspendingClock.Instant) { instant.withLock { $0 = now } }
}

/// A flush, or a check of pieces, on a thread of its disk. Its answers tell the engine whether the disk hangs, or the work only takes long.
final class DiskWork: Sendable {
    /// The answers to all work of this kind.
    private let disk: DiskAnswers
    private let submitted: SuspendingClock.Instant
    /// When the disk last answered this work; nil: the work waits for a thread.
    private let answered = Mutex<SuspendingClock.Instant?>(nil)
    private let isGivenUp = Atomic<Bool>(false)

    init(on disk: DiskAnswers, at now: SuspendingClock.Instant = .now) { (self.disk, submitted) = (disk, now) }

    /// Call on the thread of the disk: the work begins, or a call on the disk has returned.
    func noteAnswer(_ now: SuspendingClock.Instant = .now) {
        answered.withLock { $0 = now }
        disk.note(now)
    }

    /// Call on the thread of the disk, before each call on the disk.
    ///
    /// - Returns: false if nobody waits for the result any more.
    func goesOn() -> Bool {
        noteAnswer()
        return !isGivenUp.load(ordering: .relaxed)
    }

    /// Lets the work end early, without a result.
    func giveUp() { isGivenUp.store(true, ordering: .relaxed) }

    /// Whether the disk has not answered for longer than `patience`. Work that waits for a thread waits for other work of its kind, so the
    /// answers to that work count.
    func isSilent(longerThan patience: Duration, _ now: SuspendingClock.Instant) -> Bool {
        let last = answered.withLock { $0 } ?? max(submitted, disk.last ?? submitted)
        return last.duration(to: now) > patience
    }
}
