internal import Synchronization

extension Pool {
    /// What `work` comes to, done on a thread of the pool; nil where it has not come back within `patience`, as from a program that hangs:
    /// it goes on there all the same. Work that has not begun by then is not done any more; a value that comes later is given to `late`.
    @BusActor public func value<R: Sendable>(
        within patience: Duration, late: @escaping @Sendable (R) -> Void = { _ in }, _ work: @escaping @Sendable () -> R
    ) async -> R? {
        await withCheckedContinuation { continuation in
            let race = Race<R>(within: patience) { continuation.resume(returning: $0) }
            _ = submit(race.ticket) {
                let result = work()
                BusActor.spawn { if !race.end(result) { late(result) } }
            }
        }
    }
}

/// Of work that may be given up before it has begun.
final class Ticket: Sendable {
    let isWithdrawn = Atomic<Bool>(false)
}

/// Between a value and a deadline: the first end counts.
@BusActor final class Race<R: Sendable> {
    nonisolated let ticket = Ticket()
    private var done: (@BusActor @Sendable (R?) -> Void)?
    private var timer: Poller.Token?

    /// Withdraws the ticket and gives nil to `done` when `patience` is over.
    init(within patience: Duration, _ done: @escaping @BusActor @Sendable (R?) -> Void) {
        self.done = done
        timer = Poller.shared.schedule(after: patience) { [self] in
            ticket.isWithdrawn.store(true, ordering: .relaxed)
            _ = end(nil)
        }
    }

    /// False where there was one before.
    func end(_ result: R?) -> Bool {
        guard let done else { return false }
        if let timer { Poller.shared.cancel(timer) }
        (self.done, timer) = (nil, nil)
        done(result)
        return true
    }
}
