internal import CSystem
internal import Glibc

/// The actor of all code that moves no body bytes: one thread that waits in poll(2).
///
/// In a program, `runMain` runs it on the main thread. Elsewhere (tests, apps) the first job starts a thread for it.
@globalActor public actor BusActor {
    public static let shared = BusActor()

    public nonisolated let loop: LoopExecutor
    nonisolated let wakeDescriptor: Int32

    public nonisolated var unownedExecutor: UnownedSerialExecutor { loop.asUnownedSerialExecutor() }

    private init() {
        let descriptor = eventfd(0, Int32(EFD_CLOEXEC | EFD_NONBLOCK))
        precondition(descriptor >= 0, "eventfd: errno \(errno)")
        wakeDescriptor = descriptor
        loop = LoopExecutor(wake: { _ = eventfd_write(descriptor, 1) }) { loop in
            // Without this loop, nothing could try again.
            let result = makeThread("todoku-bus") { BusActor.drive(loop) }
            precondition(result == 0, "pthread_create: \(result)")
        }
    }

    private static func drive(_ loop: LoopExecutor) {
        loop.run { block in assumeIsolated { Poller.shared.turn(block: block) } }
    }

    /// Runs `body`, then the loop on the calling thread until `stop`. The calling thread must be the first to use the actor.
    public static func runMain(_ body: @escaping @BusActor @Sendable () async -> Void) {
        precondition(shared.loop.claim(), "the bus loop runs on another thread already")
        spawn(body)
        drive(shared.loop)
    }

    /// Makes `runMain` return.
    public static func stop() { shared.loop.stop() }

    /// The only way to start a task: every continuation returns to this loop. Bodies start in the order of the calls.
    public static func spawn(_ body: @escaping @BusActor @Sendable () async -> Void) { _ = spawnTask(body) }

    /// As `spawn`, for a task that may be cancelled.
    public static func spawnTask(_ body: @escaping @BusActor @Sendable () async -> Void) -> Task<Void, Never> {
        Task(executorPreference: shared.loop) { await go(body) }
    }

    /// Calls `work` until it returns false, in turns of the loop.
    @BusActor public static func inSteps(_ work: @escaping @BusActor () -> Bool) {
        spawn {
            let step = StepTime()
            while work() {
                if step.isOver { return inSteps(work) }
            }
        }
    }

    private static func go(_ body: @BusActor @Sendable () async -> Void) async { await body() }

    /// The way into the actor for C callbacks on this loop's thread. Traps on any other thread.
    public static func assumeIsolated<R: Sendable>(_ body: @BusActor () throws -> R) rethrows -> R {
        shared.preconditionIsolated()
        // A global actor's closure has the same representation as a nonisolated one; MainActor.assumeIsolated does the same.
        return try withoutActuallyEscaping(body) { try unsafeBitCast($0, to: (() throws -> R).self)() }
    }
}

/// Opens /dev/null in the place of each standard stream that is closed. Otherwise the next file or socket would get the number of the
/// stream, and the output would go there. Call first in `main`.
///
/// Standard input and output are opened for the wrong direction: reading and writing still fail (EBADF), and a program can say so.
public func openClosedStreams() {
    for (stream, mode) in [(STDIN_FILENO, O_WRONLY), (STDOUT_FILENO, O_RDONLY), (STDERR_FILENO, O_WRONLY)] {
        // open(2) takes the lowest free number, which is that of this stream.
        if fcntl(stream, F_GETFD) < 0 { _ = open("/dev/null", mode) }
    }
}

/// Keeps the heap small in a program with few threads. Call before the first thread starts.
public func keepHeapSmall() { todoku_keep_heap_small() }

/// Returns unused memory to the kernel. Call when the program begins to rest.
public func trimHeap() { todoku_trim_heap() }

/// Lets the kernel use the memory of this program's code, which comes back when it is used. `MemoryRelease` knows when.
func releaseCode() { todoku_release_code() }

/// Lets this process open as many files as the system allows. A connection to the bus breaks when a message brings more descriptors than
/// the process may open. Call before the first thread starts.
public func raiseFileLimit() { todoku_raise_file_limit() }

/// Gives a child the limit that this process began with.
public func lowerFileLimit(of child: Int32) { todoku_lower_file_limit(child) }
