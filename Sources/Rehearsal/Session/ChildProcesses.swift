internal import CSystem
internal import EventLoop
internal import Glibc

/// The programs that a rehearsal starts, and all programs that these start. None outlives the rehearsal.
///
/// A process whose parent ends becomes a child of this process (PR_SET_CHILD_SUBREAPER), so that daemons are found, too. If this process
/// is killed, the kernel kills the programs that it started itself.
@BusActor final class ChildProcesses {
    /// How long all processes together have to end by SIGTERM, and then by SIGKILL.
    private static let patience: Duration = .seconds(2)
    private static let lastPatience: Duration = .seconds(30)

    private var signals: SignalSource?
    /// The programs that were started here and run, and those that have ended: their exit status, or 128 and the signal.
    private var running: Set<pid_t> = []
    private var statuses: [pid_t: Int32] = [:]
    private var waiting: [pid_t: CheckedContinuation<Int32, Never>] = [:]
    /// The children that this process had before. A shell that becomes this program by execve(2) may have started them.
    private var earlier: Set<pid_t>

    /// SIGCHLD must be blocked, and have its default action.
    init() throws(RehearsalError) {
        earlier = Set(ChildProcesses.children())
        let code = todoku_adopt_orphans()
        guard code == 0 else { throw RehearsalError("processes cannot be watched: \(String(cString: strerror(code)))") }
        signals = SignalSource([SIGCHLD]) { [weak self] _ in _ = self?.reap() }
    }

    /// Starts a program. See `todoku_start_tied`.
    ///
    /// - Parameter arguments: each with a zero byte at the end.
    /// - Returns: its process, or errno.
    func start(
        _ arguments: [[CChar]], environment: ProcessEnvironment, output: Int32 = -1, errors: Int32 = -1, isDaemon: Bool
    ) -> Result<pid_t, StartFailure> {
        let argv = arguments.map { strdup($0) } + [nil]
        let envp = environment.entries.map { strdup($0) } + [nil]
        defer { for pointer in [argv, envp].joined() { free(pointer) } }
        let process = todoku_start_tied(argv, envp, output, errors, isDaemon)
        guard process > 0 else { return .failure(StartFailure(code: errno)) }
        running.insert(process)
        return .success(process)
    }

    struct StartFailure: Error {
        let code: Int32
        var reason: String { String(cString: strerror(code)) }
    }

    /// Waits for the end of a program that was started here.
    func status(of process: pid_t) async -> Int32 {
        await withCheckedContinuation { continuation in
            // Check inside this body: the program may end between a check before it and this point.
            if let status = statuses[process] { continuation.resume(returning: status) } else { waiting[process] = continuation }
        }
    }

    func isRunning(_ process: pid_t) -> Bool { running.contains(process) }

    /// Takes note of the children that have ended.
    ///
    /// - Returns: whether a child is left.
    private func reap() -> Bool {
        while true {
            var status: Int32 = 0
            let process = uninterrupted { waitpid(-1, &status, WNOHANG) }
            guard process > 0 else { return process == 0 }
            earlier.remove(process)
            let signal = status & 0x7F
            let code = signal == 0 ? (status >> 8) & 0xFF : 128 | signal
            guard running.remove(process) != nil else { continue }  // an orphan
            statuses[process] = code
            waiting.removeValue(forKey: process)?.resume(returning: code)
        }
    }

    /// Ends all children but the earlier ones, by SIGTERM and then by SIGKILL.
    ///
    /// - Returns: those that are left: they hang in the kernel, or belong to another user.
    func endAll() async -> [pid_t] {
        if await end(by: SIGTERM, within: Self.patience) { return [] }
        return await end(by: SIGKILL, within: Self.lastPatience) ? [] : ownChildren
    }

    /// - Returns: whether no child but the earlier ones is left.
    private func end(by signal: Int32, within limit: Duration) async -> Bool {
        let begun = ContinuousClock.now
        var told: Set<pid_t> = []
        while reap() {
            // Look again each time, because the children of a process that has ended are ours now. One that has ended is found until
            // `reap` has noted it, so no child of it is missed.
            let left = ownChildren
            guard !left.isEmpty else { return true }
            guard .now - begun < limit else { return false }
            for process in left where told.insert(process).inserted || signal == SIGKILL { kill(process, signal) }
            await pause(for: .milliseconds(10))
        }
        return true
    }

    private var ownChildren: [pid_t] { Self.children().filter { !earlier.contains($0) } }

    /// The processes whose parent is this one.
    private static func children() -> [pid_t] {
        let own = getpid()
        return (folderNames("/proc") ?? []).compactMap { pid_t($0) }.filter { $0 > 0 && parent(of: $0) == own }
    }

    /// From `/proc/PID/stat`: "pid (name) state parent …", where the name may hold anything (proc_pid_stat(5)).
    private static func parent(of process: pid_t) -> pid_t? {
        let text = firstBytes(of: "/proc/\(process)/stat", atMost: 512) ?? []
        guard let end = text.lastIndex(of: UInt8(ascii: ")")) else { return nil }
        let words = text[end...].dropFirst().split(separator: UInt8(ascii: " "))
        return words.count > 1 ? pid_t(String(decoding: words[1], as: UTF8.self)) : nil
    }
}
