internal import CSystem
internal import Glibc
internal import Synchronization

/// A few threads for calls that block. Calls that block on a disk belong into the `DiskPool`.
///
/// Threads start when there is work and end after five idle seconds, so that an idle service never wakes up. A thread whose work has not
/// returned within its patience (`value`) is lost until the work returns, and does not count: another thread takes its place.
public final class Pool: Sendable {
    /// For other programs, which may take seconds to answer.
    public static let programs = Pool(name: "todoku-programs", width: 4)
    /// For identifying callers. No other work runs here, so that the identification never waits for a disk or a program.
    public static let callers = Pool(name: "todoku-callers", width: 4)

    /// Most lost threads that are replaced.
    static let mostLost = 64

    struct Item {
        fileprivate let ticket: Ticket?
        fileprivate let work: @Sendable () -> Void
        fileprivate var isWithdrawn: Bool { ticket?.isWithdrawn.load(ordering: .relaxed) ?? false }
    }

    private struct State {
        var work: [Item] = []
        /// At this number of items, withdrawn items are dropped.
        var cleansAt = 64
        /// All threads of the pool, the lost ones too.
        var threads = 0
        var waiting = 0
        var lost = 0
    }

    private let name: String
    private let width: Int
    // The two pointers never change. Only pthread’s own functions touch the mutex and the condition.
    private nonisolated(unsafe) let mutex: UnsafeMutablePointer<pthread_mutex_t>
    private nonisolated(unsafe) let condition: UnsafeMutablePointer<pthread_cond_t>
    // Every access is between lock and unlock of `mutex`.
    private nonisolated(unsafe) var state = State()

    /// - Parameter width: most threads at a time, without lost ones.
    public init(name: String, width: Int) {
        self.name = name
        self.width = width
        mutex = .allocate(capacity: 1)
        condition = .allocate(capacity: 1)
        pthread_mutex_init(mutex, nil)
        var attributes = pthread_condattr_t()
        pthread_condattr_init(&attributes)
        pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC)
        pthread_cond_init(condition, &attributes)
        pthread_condattr_destroy(&attributes)
    }

    deinit { preconditionFailure("a pool lives as long as the program") }

    /// Runs `work` on a thread of the pool, then `done` with its value on the bus loop.
    public func perform<R: Sendable>(_ work: @escaping @Sendable () -> R, then done: @escaping @BusActor @Sendable (R) -> Void) {
        _ = submit(nil) {
            let result = work()
            BusActor.spawn { done(result) }
        }
    }

    /// Whether no work is queued or running.
    var isIdle: Bool {
        pthread_mutex_lock(mutex)
        defer { pthread_mutex_unlock(mutex) }
        return state.work.isEmpty && state.threads == state.waiting
    }

    /// - Returns: the withdrawn items that were dropped. Release them after all locks are released: their values' deinits may call back
    ///   into the pool, for example to close a descriptor.
    func submit(_ ticket: Ticket?, _ work: @escaping @Sendable () -> Void) -> [Item] {
        var thrownOut: [Item] = []
        pthread_mutex_lock(mutex)
        if state.work.count >= state.cleansAt {
            thrownOut = state.work.filter(\.isWithdrawn)
            state.work.removeAll { $0.isWithdrawn }
            state.cleansAt = max(64, 2 * state.work.count)
        }
        state.work.append(Item(ticket: ticket, work: work))
        let start = countNewThread()
        if !start { pthread_cond_signal(condition) }
        pthread_mutex_unlock(mutex)
        if start { startThread(name) { [self] in serve() } }
        return thrownOut
    }

    /// Counts a new thread if the queued work needs one. The lock is held. The caller starts the thread.
    private func countNewThread() -> Bool {
        guard state.waiting < state.work.count, state.threads < mostThreads else { return false }
        state.threads += 1
        return true
    }

    private var mostThreads: Int { width + min(state.lost, Self.mostLost) }

    /// The work of one thread has not returned in time.
    func threadIsLost() {
        pthread_mutex_lock(mutex)
        state.lost += 1
        let start = countNewThread()
        pthread_mutex_unlock(mutex)
        if start { startThread(name) { [self] in serve() } }
    }

    /// The work of a lost thread has returned after all.
    func threadIsBack() {
        pthread_mutex_lock(mutex)
        state.lost -= 1
        pthread_mutex_unlock(mutex)
    }

    private func serve() {
        // Each item is released after its turn, while no lock is held.
        while let item = next() { if !item.isWithdrawn { item.work() } }
    }

    /// The next item; nil if the thread must end: after five seconds without one, or because another thread has taken its place.
    private func next() -> Item? {
        pthread_mutex_lock(mutex)
        defer { pthread_mutex_unlock(mutex) }
        if state.threads > mostThreads {
            state.threads -= 1
            return nil
        }
        while state.work.isEmpty {
            var until = timespec()
            clock_gettime(CLOCK_MONOTONIC, &until)
            until.tv_sec += 5
            state.waiting += 1
            let result = pthread_cond_timedwait(condition, mutex, &until)
            state.waiting -= 1
            if result == ETIMEDOUT, state.work.isEmpty {
                state.threads -= 1
                return nil
            }
        }
        return state.work.removeFirst()
    }
}
