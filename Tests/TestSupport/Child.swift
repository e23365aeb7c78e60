internal import CSystem
internal import EventLoop
internal import Glibc

/// A program that a test started. It is killed with its last reference, and never outlives the test process.
public final class Child: Sendable {
    public struct Exit: Equatable, Sendable {
        /// The exit status, or 128 + the signal that ended it.
        public let status: Int32
        public let output: String
        public let errors: String
    }

    public let pid: Int32
    private let reaper: Reaper

    /// Starts `arguments[0]` (looked up in PATH), with an empty signal mask and, if given, this environment instead of ours.
    ///
    /// The kernel kills the child when the thread that started it ends (prctl(2), PR_SET_PDEATHSIG). That thread waits for the child, so it
    /// ends earlier only if the whole test process dies.
    public init(_ arguments: [String], environment: [String: String]? = nil, folder: String? = nil) {
        var output: [Int32] = [0, 0]
        var errors: [Int32] = [0, 0]
        precondition(todoku_pipe(&output) == 0 && todoku_pipe(&errors) == 0)
        let reaper = Reaper(output: output[0], errors: errors[0])
        let (outputEnd, errorsEnd) = (output[1], errors[1])
        pid = reaper.start { Self.spawn(arguments, environment: environment, folder: folder, output: outputEnd, errors: errorsEnd) }
        self.reaper = reaper
        close(outputEnd)
        close(errorsEnd)
    }

    private static func spawn(_ arguments: [String], environment: [String: String]?, folder: String?, output: Int32, errors: Int32) -> pid_t
    {
        var actions = posix_spawn_file_actions_t()
        posix_spawn_file_actions_init(&actions)
        posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0)
        posix_spawn_file_actions_adddup2(&actions, output, 1)
        posix_spawn_file_actions_adddup2(&actions, errors, 2)
        var attributes = posix_spawnattr_t()
        posix_spawnattr_init(&attributes)
        var none = sigset_t()
        var all = sigset_t()
        sigemptyset(&none)
        sigfillset(&all)
        posix_spawnattr_setsigmask(&attributes, &none)
        posix_spawnattr_setsigdefault(&attributes, &all)
        posix_spawnattr_setflags(&attributes, Int16(POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF))
        var pid: pid_t = 0
        let arguments = ["setpriv", "--pdeathsig", "KILL"] + (folder.map { ["env", "-C", $0] } ?? []) + arguments
        let argv = arguments.map { strdup($0) } + [nil]
        let envp = (environment ?? processEnvironment()).map { strdup("\($0.key)=\($0.value)") } + [nil]
        let result = posix_spawnp(&pid, arguments[0], &actions, &attributes, argv, envp)
        for pointer in argv + envp { free(pointer) }
        posix_spawn_file_actions_destroy(&actions)
        posix_spawnattr_destroy(&attributes)
        precondition(result == 0, "cannot start \(arguments[0]): \(String(cString: strerror(result)))")
        return pid
    }

    deinit { if reaper.isRunning { kill(pid, SIGKILL) } }

    public var isRunning: Bool { reaper.isRunning }

    /// Its standard output and standard error so far.
    public var output: String { reaper.text.0 }
    public var errors: String { reaper.text.1 }

    public func signal(_ signal: Int32) { if reaper.isRunning { kill(pid, signal) } }

    /// Waits until the child has ended, without blocking a thread of the caller.
    public func wait() async -> Exit { await reaper.wait() }

    /// Sends SIGTERM, and waits for the end.
    @discardableResult public func stop() async -> Exit {
        signal(SIGTERM)
        return await wait()
    }

    /// Runs a program to its end.
    public static func run(_ arguments: [String], environment: [String: String]? = nil, folder: String? = nil) async -> Exit {
        await Child(arguments, environment: environment, folder: folder).wait()
    }

    /// Runs a line of the shell at a terminal of script(1) to its end. Types each of `answers` once the question has been asked so often.
    ///
    /// - Parameters:
    ///   - question: a part of the question.
    ///   - folder: the working folder. It gets a pipe `keys`.
    ///   - meanwhile: what happens between a question and its answer.
    public static func converse(
        _ line: String, question: String, _ answers: [String], environment: [String: String], folder: TemporaryFolder,
        meanwhile: () async -> Void = {}
    ) async -> Exit {
        let pipe = folder("keys")
        unlink(pipe)
        mkfifo(pipe, 0o600)
        let keys = open(pipe, O_RDWR | O_CLOEXEC)
        defer { close(keys) }
        let child = Child(
            ["sh", "-c", "exec script -qec \"$0\" /dev/null <\"$1\"", line, pipe], environment: environment, folder: folder.path)
        for (number, answer) in answers.enumerated() {
            // Without the question, the output of the child shows the caller what is wrong.
            _ = await eventually { child.output.ranges(of: question).count > number || !child.isRunning }
            await meanwhile()
            let bytes = Array(answer.utf8)
            _ = write(keys, bytes, bytes.count)
        }
        return await child.wait()
    }
}

/// Whether a process that is no child of ours has ended. A zombie, for which its parent has not waited yet, counts as ended.
public func hasEnded(_ pid: Int32) -> Bool {
    guard let bytes = readFile("/proc/\(pid)/stat") else { return true }
    // "pid (name) state …": the name may hold anything, so the last parenthesis counts (proc_pid_stat(5)).
    guard let end = bytes.lastIndex(of: UInt8(ascii: ")")), bytes.count > end + 2 else { return true }
    return bytes[end + 2] == UInt8(ascii: "Z") || bytes[end + 2] == UInt8(ascii: "X")
}

/// Whether the main thread of a process blocks `signal` (proc_pid_status(5)).
public func isBlocked(_ signal: Int32, in process: Int32) -> Bool {
    let text = String(decoding: readFile("/proc/\(process)/status") ?? [], as: UTF8.self)
    let field = text.split(separator: "\n").first { $0.hasPrefix("SigBlk:\t") }
    let mask = field.flatMap { UInt64($0.dropFirst("SigBlk:\t".count), radix: 16) } ?? 0
    return mask & 1 << UInt64(signal - 1) != 0
}

/// Waits for one child on threads of its own, and keeps the child's output.
private final class Reaper: Sendable {
    private struct State {
        var output: [UInt8] = []
        var errors: [UInt8] = []
        var open = 3
        var status: Int32 = 0
        var pid: pid_t = 0
        var waiters: [CheckedContinuation<Child.Exit, Never>] = []
    }

    // `state` is touched between lock and unlock only.
    private nonisolated(unsafe) let mutex: UnsafeMutablePointer<pthread_mutex_t>
    private nonisolated(unsafe) var state = State()

    private nonisolated(unsafe) let started: UnsafeMutablePointer<pthread_cond_t>

    init(output: Int32, errors: Int32) {
        mutex = .allocate(capacity: 1)
        pthread_mutex_init(mutex, nil)
        started = .allocate(capacity: 1)
        pthread_cond_init(started, nil)
        startThread("child-out") { [self] in
            drain(output) { state.output += $0 }
        }
        startThread("child-err") { [self] in
            drain(errors) { state.errors += $0 }
        }
    }

    /// Runs `spawn` on the thread that then waits for the process.
    func start(_ spawn: @escaping @Sendable () -> pid_t) -> pid_t {
        startThread("child-wait") { [self] in
            let pid = spawn()
            pthread_mutex_lock(mutex)
            state.pid = pid
            pthread_cond_signal(started)
            pthread_mutex_unlock(mutex)
            var status: Int32 = 0
            while waitpid(pid, &status, 0) < 0, errno == EINTR {}
            let signal = status & 0x7f
            part { state.status = signal == 0 ? (status >> 8) & 0xff : 128 + signal }
        }
        pthread_mutex_lock(mutex)
        defer { pthread_mutex_unlock(mutex) }
        while state.pid == 0 { pthread_cond_wait(started, mutex) }
        return state.pid
    }

    private func drain(_ descriptor: Int32, _ take: (ArraySlice<UInt8>) -> Void) {
        var buffer = [UInt8](repeating: 0, count: 4096)
        while true {
            let count = read(descriptor, &buffer, buffer.count)
            if count < 0, errno == EINTR { continue }
            guard count > 0 else { break }
            pthread_mutex_lock(mutex)
            take(buffer[..<count])
            pthread_mutex_unlock(mutex)
        }
        close(descriptor)
        part {}
    }

    /// One of the three ends: both outputs, and the process.
    private func part(_ body: () -> Void) {
        pthread_mutex_lock(mutex)
        body()
        state.open -= 1
        let waiters = state.open == 0 ? state.waiters : []
        if state.open == 0 { state.waiters = [] }
        let exit = exitLocked
        pthread_mutex_unlock(mutex)
        for waiter in waiters { waiter.resume(returning: exit) }
    }

    private var exitLocked: Child.Exit {
        Child.Exit(
            status: state.status, output: String(decoding: state.output, as: UTF8.self),
            errors: String(decoding: state.errors, as: UTF8.self))
    }

    var isRunning: Bool {
        pthread_mutex_lock(mutex)
        defer { pthread_mutex_unlock(mutex) }
        return state.open > 0
    }

    var text: (String, String) {
        pthread_mutex_lock(mutex)
        defer { pthread_mutex_unlock(mutex) }
        return (String(decoding: state.output, as: UTF8.self), String(decoding: state.errors, as: UTF8.self))
    }

    func wait() async -> Child.Exit {
        await withCheckedContinuation { continuation in
            pthread_mutex_lock(mutex)
            if state.open > 0 {
                state.waiters.append(continuation)
                pthread_mutex_unlock(mutex)
            } else {
                let exit = exitLocked
                pthread_mutex_unlock(mutex)
                continuation.resume(returning: exit)
            }
        }
    }
}

/// Waits until `condition` holds, looking again every 10 ms; false if it does not within `limit`. Use it only for events without a report,
/// such as a file of a foreign program. Await signals and replies instead.
public func eventually(within limit: Duration = .seconds(60), _ condition: () async throws -> Bool) async rethrows -> Bool {
    let deadline = ContinuousClock.now + limit
    while true {
        if try await condition() { return true }
        if ContinuousClock.now >= deadline { return false }
        await withCheckedContinuation { continuation in
            BusActor.spawn { Poller.shared.schedule(after: .milliseconds(10)) { continuation.resume() } }
        }
    }
}

/// Runs `body` until its steps were in time, at most five times. A pause of the machine may outlast a time limit of the program under test.
/// The test then sees another state than the one that it checks.
///
/// - Parameter body: returns whether its steps were in time. If a step was late, the body must not fail the test.
/// - Returns: false: a step was late in each run. The test must fail then, because a fault may have made the program slow.
public func inTime(_ body: () async throws -> Bool) async rethrows -> Bool {
    for _ in 0..<5 { if try await body() { return true } }
    return false
}

/// As `inTime`, once with each of `limits`, until the steps of a run were in time.
///
/// - Parameter limits: time limits for the program under test, each longer than the one before.
public func inTime<Limit>(_ limits: [Limit], _ body: (_ limit: Limit) async throws -> Bool) async rethrows -> Bool {
    for limit in limits { if try await body(limit) { return true } }
    return false
}

/// As `inTime`, for a body with a value.
///
/// - Parameter isInTime: whether the steps of the run with this value were in time.
/// - Returns: the value of the last run, even if a step was late in each run.
public func repeated<Value>(_ body: () async throws -> Value, until isInTime: (Value) -> Bool) async rethrows -> Value {
    var value = try await body()
    for _ in 0..<4 where !isInTime(value) { value = try await body() }
    return value
}

/// A line of `/proc/PID/status` with a size, such as `VmHWM` (proc(5)), in bytes; nil if the process is gone.
public func memory(_ pid: Int32, _ name: String) -> UInt64? {
    let lines = String(decoding: readFile("/proc/\(pid)/status") ?? [], as: UTF8.self).split(separator: "\n")
    return lines.first { $0.hasPrefix("\(name):") }?.split(separator: " ").dropLast().last.flatMap { UInt64($0) }.map { $0 << 10 }
}
