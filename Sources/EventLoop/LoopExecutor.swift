internal import CSystem
internal import Glibc

/// An executor on one thread, which also waits for input and output.
///
/// Actors that share a `LoopExecutor` run on its thread. Between jobs the thread calls `turn`, which serves descriptors. Without jobs,
/// `turn` blocks until a descriptor is ready or `wake` is called. Wakes must be sticky: a wake before the wait makes the next wait return
/// (as with an eventfd, `curl_multi_wakeup` and `g_main_context_wakeup`).
///
/// The jobs of one turn begin within `mostOfTurn`; further jobs wait for the next turn. So a burst of jobs does not keep descriptors
/// waiting.
public final class LoopExecutor: SerialExecutor, TaskExecutor {
    /// How long after the end of the wait a job of the same turn may begin.
    private static let mostOfTurn: Duration = .milliseconds(4)

    private struct Inbox {
        var jobs: [UnownedJob] = []
        var asleep = false
        var stopped = false
        var driven = false
    }

    // The pointer never changes from `init` to `deinit`. A pthread mutex, because ThreadSanitizer knows it.
    private nonisolated(unsafe) let mutex: UnsafeMutablePointer<pthread_mutex_t>
    // Every access is between `lock` and `unlock`.
    private nonisolated(unsafe) var inbox = Inbox()
    // The thread that drives the loop writes it once. Every access is under the mutex.
    private nonisolated(unsafe) var thread: pthread_t = 0
    private let wake: @Sendable () -> Void
    private let drive: @Sendable (LoopExecutor) -> Void

    /// - Parameters:
    ///   - wake: makes a blocked `turn` return; called from any thread.
    ///   - drive: starts the thread that calls `run`. Called once, with the first job, unless `claim` was called before.
    public init(wake: @escaping @Sendable () -> Void, drive: @escaping @Sendable (LoopExecutor) -> Void) {
        self.wake = wake
        self.drive = drive
        mutex = .allocate(capacity: 1)
        pthread_mutex_init(mutex, nil)
    }

    deinit {
        pthread_mutex_destroy(mutex)
        mutex.deallocate()
    }

    private func locked<R>(_ body: (inout Inbox) -> R) -> R {
        pthread_mutex_lock(mutex)
        defer { pthread_mutex_unlock(mutex) }
        return body(&inbox)
    }

    /// Declares that the caller's thread will drive the loop by `run`. False if another thread already does.
    public func claim() -> Bool {
        locked { inbox in
            defer { inbox.driven = true }
            return !inbox.driven
        }
    }

    public func enqueue(_ job: consuming ExecutorJob) {
        let job = UnownedJob(job)
        let (ring, first) = locked { inbox in
            inbox.jobs.append(job)
            defer {
                inbox.asleep = false
                inbox.driven = true
            }
            return (inbox.asleep, !inbox.driven)
        }
        if first { drive(self) }
        if ring { wake() }
    }

    /// Makes `run` return after the jobs that it has begun. Callable from any thread.
    public func stop() {
        locked { $0.stopped = true }
        wake()
    }

    /// Runs jobs and calls `turn(block)` between them until `stop`.
    ///
    /// - Parameter turn: waits for input, but only if `block`, and serves it. Returns when the wait ended.
    public func run(turn: (_ block: Bool) -> ContinuousClock.Instant) {
        locked { _ in thread = pthread_self() }
        var batch: [UnownedJob] = []
        var done = 0  // jobs of `batch`
        var turnBegan = ContinuousClock.now
        var isLate = false  // no job ran in the turn before
        while true {
            let (block, stop) = locked { inbox in
                if done == batch.count {
                    batch.removeAll(keepingCapacity: true)
                    done = 0
                    swap(&batch, &inbox.jobs)
                } else if inbox.stopped {
                    batch += inbox.jobs
                    inbox.jobs = []
                }
                inbox.asleep = batch.isEmpty && !inbox.stopped
                return (batch.isEmpty, inbox.stopped)
            }
            // If serving input took long, the turn runs no job. But this never happens twice in a row, so that each job gets its turn.
            var mayRun = stop || isLate || .now - turnBegan < Self.mostOfTurn
            isLate = !mayRun
            while mayRun, done < batch.count {
                batch[done].runSynchronously(isolatedTo: asUnownedSerialExecutor(), taskExecutor: asUnownedTaskExecutor())
                done += 1
                mayRun = stop || .now - turnBegan < Self.mostOfTurn
            }
            if stop { break }
            turnBegan = turn(block)
            if block { locked { $0.asleep = false } }
        }
    }

    public func asUnownedSerialExecutor() -> UnownedSerialExecutor { UnownedSerialExecutor(ordinary: self) }

    public func isIsolatingCurrentContext() -> Bool? {
        locked { _ in thread != 0 && pthread_equal(thread, pthread_self()) != 0 }
    }

    public func checkIsolated() {
        precondition(isIsolatingCurrentContext() == true, "called off the loop's thread")
    }
}

/// Runs `body` on a new detached thread named `name` (at most 15 bytes). All signals but those of a crash are blocked on it.
///
/// If the system has no room for another thread, the thread starts later, once there is room.
public func startThread(_ name: String, _ body: @escaping @Sendable () -> Void) { startThread(name, by: makeThread, body) }

/// - Parameter make: replaced by tests, to simulate a system without room.
func startThread(
    _ name: String, by make: @escaping @Sendable (String, @escaping @Sendable () -> Void) -> Int32, _ body: @escaping @Sendable () -> Void
) {
    let result = make(name, body)
    guard result == EAGAIN else { return precondition(result == 0, "pthread_create: \(result)") }
    BusActor.spawn { Poller.shared.schedule(after: .milliseconds(100)) { startThread(name, by: make, body) } }
}

/// Makes the thread of `startThread`.
///
/// - Returns: 0, or the error of pthread_create(3): EAGAIN if the system has no room for another thread.
@Sendable func makeThread(_ name: String, _ body: @escaping @Sendable () -> Void) -> Int32 {
    final class Start: Sendable {
        let name: String
        let body: @Sendable () -> Void
        init(_ name: String, _ body: @escaping @Sendable () -> Void) { (self.name, self.body) = (name, body) }
    }
    var all = sigset_t()
    var before = sigset_t()
    sigfillset(&all)
    // Signals of a crash stay unblocked. If they were blocked, they would end the process before `CrashMarks` records the crash.
    for signal in [SIGILL, SIGTRAP, SIGSEGV, SIGBUS, SIGABRT, SIGFPE] { sigdelset(&all, signal) }
    pthread_sigmask(SIG_SETMASK, &all, &before)  // the new thread inherits this mask, so signals stay with the main thread's signalfd
    defer { pthread_sigmask(SIG_SETMASK, &before, nil) }
    var id = pthread_t()
    let context = Unmanaged.passRetained(Start(name, body)).toOpaque()
    let result = pthread_create(
        &id, nil,
        { context in
            guard let context else { return nil }
            let start = Unmanaged<Start>.fromOpaque(context).takeRetainedValue()
            todoku_set_thread_name(start.name)
            let stack = todoku_take_alternate_stack()
            start.body()
            todoku_drop_alternate_stack(stack)
            return nil
        }, context)
    if result == 0 { pthread_detach(id) } else { Unmanaged<Start>.fromOpaque(context).release() }
    return result
}
