internal import Synchronization

/// What has become of some work when its caller's patience ends, or before.
public enum PoolOutcome<R: Sendable>: Sendable {
    case value(R)
    /// The work is running. Its value goes to `late`.
    case hangs
    /// The work has not begun, and never will; or it has just ended, and its value goes to `late`.
    case dropped
}

extension Pool {
    /// The value of `work`, which runs on a thread of the pool; nil if it has not returned within `patience`, as with a program that hangs.
    /// The work itself continues on a thread that is lost until the work returns. Work that has not begun by then is dropped.
    @BusActor public func value<R: Sendable>(within patience: Duration, _ work: @escaping @Sendable () -> R) async -> R? {
        if case .value(let value) = await outcome(within: patience, work) { value } else { nil }
    }

    /// Like `value`, but says whether work without a value is still running. A value that comes later goes to `late`.
    @BusActor public func outcome<R: Sendable>(
        within patience: Duration, late: @escaping @BusActor @Sendable (R) -> Void = { _ in }, _ work: @escaping @Sendable () -> R
    ) async -> PoolOutcome<R> {
        await withCheckedContinuation { continuation in
            let run = Run()
            let race = Race<R>(within: patience) { [self] result in
                if let result { return continuation.resume(returning: .value(result)) }
                let isRunning = run.giveUp()
                if isRunning { threadIsLost() }
                continuation.resume(returning: isRunning ? .hangs : .dropped)
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

/// Lets the owner of some work withdraw it before it begins, or tell it that nobody waits for it any more.
final class Ticket: Sendable {
    let isWithdrawn = Atomic<Bool>(false)
}

/// A race between a value and a deadline: whichever comes first counts.
@BusActor public final class Race<R: Sendable> {
    nonisolated let ticket = Ticket()
    private var done: (@BusActor @Sendable (R?) -> Void)?
    private var timer: Poller.Token?

    /// After `patience`, withdraws the ticket and passes nil to `done`. The time in which the machine sleeps does not count.
    public init(within patience: Duration, _ done: @escaping @BusActor @Sendable (R?) -> Void) {
        self.done = done
        timer = Poller.shared.scheduleAwake(after: patience) { [self] in
            ticket.isWithdrawn.store(true, ordering: .relaxed)
            _ = end(nil)
        }
    }

    /// False if the race had ended before.
    public func end(_ result: R?) -> Bool {
        guard let done else { return false }
        if let timer { Poller.shared.cancel(timer) }
        (self.done, timer) = (nil, nil)
        done(result)
        return true
    }
}
