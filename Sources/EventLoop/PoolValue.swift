internal import Synchronization

extension Pool {
    /// The value of `work`, which runs on a thread of the pool; nil if it has not returned within `patience`, as with a program that hangs.
    /// The work itself continues on a thread that is lost until the work returns. Work that has not begun by then is dropped. A value that
    /// comes later goes to `late`.
    @BusActor public func value<R: Sendable>(
        within patience: Duration, late: @escaping @Sendable (R) -> Void = { _ in }, _ work: @escaping @Sendable () -> R
    ) async -> R? {
        await withCheckedContinuation { continuation in
            let run = Run()
            let race = Race<R>(within: patience) { [self] result in
                if result == nil, run.giveUp() { threadIsLost() }
                continuation.resume(returning: result)
            }
            _ = submit(race.ticket) { [self] in
                guard run.begin() else { return }
                let result = work()
                if run.end() { threadIsBack() }
                BusActor.spawn { if !race.end(result) { late(result) } }
            }
        }
    }
}

/// Whether some work is running, and whether its caller has stopped waiting for it. Work and caller are on two threads.
final class Run: Sendable {
    private enum State: UInt8, AtomicRepresentable { case idle, running, ended, givenUp }

    private let state = Atomic(State.idle)

    /// - Returns: false if the caller has stopped waiting, so that the work must not begin.
    func begin() -> Bool { state.compareExchange(expected: .idle, desired: .running, ordering: .relaxed).exchanged }

    /// - Returns: whether the caller stopped waiting while the work ran.
    func end() -> Bool { state.exchange(.ended, ordering: .relaxed) == .givenUp }

    /// The caller stops waiting.
    ///
    /// - Returns: whether the work is running.
    func giveUp() -> Bool { state.exchange(.givenUp, ordering: .relaxed) == .running }
}

/// Lets the owner of some work withdraw it before it begins.
final class Ticket: Sendable {
    let isWithdrawn = Atomic<Bool>(false)
}

/// A race between a value and a deadline: whichever comes first counts.
@BusActor final class Race<R: Sendable> {
    nonisolated let ticket = Ticket()
    private var done: (@BusActor @Sendable (R?) -> Void)?
    private var timer: Poller.Token?

    /// After `patience`, withdraws the ticket and passes nil to `done`.
    init(within patience: Duration, _ done: @escaping @BusActor @Sendable (R?) -> Void) {
        self.done = done
        timer = Poller.shared.schedule(after: patience) { [self] in
            ticket.isWithdrawn.store(true, ordering: .relaxed)
            _ = end(nil)
        }
    }

    /// False if the race had ended before.
    func end(_ result: R?) -> Bool {
        guard let done else { return false }
        if let timer { Poller.shared.cancel(timer) }
        (self.done, timer) = (nil, nil)
        done(result)
        return true
    }
}
