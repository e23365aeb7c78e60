internal import EventLoop
internal import Glibc

/// The path of a program in `PATH` of `environment`; nil if no folder there has the program. Blocks.
public func findProgram(_ name: String, in environment: [String: String]) -> String? {
    let path = environment["PATH"] ?? "/usr/local/bin:/usr/bin:/bin"
    return path.split(separator: ":").lazy.map { "\($0)/\(name)" }.first { access($0, X_OK) == 0 }
}

/// Starts `arguments` through setsid(1), which forks. The child of this process ends at once, and the program is detached. The program may
/// run for any time. Its exit status is watched for `milliseconds`. Blocks.
///
/// - Returns: false if the program could not start, or exited with a status other than 0 within that time.
func runDetached(_ arguments: [String], environment: [String: String], watchedFor milliseconds: Int32) -> Bool {
    guard let (own, other) = makeEnds() else { return false }
    defer { close(own) }
    // Only the shell holds the other end, and writes the exit status to it.
    let script = ["sh", "-c", #""$@" 2>/dev/null; echo $? >&2"#, "sh"]
    let pid = spawn(["setsid", "--fork"] + script + arguments, environment, errors: other)
    close(other)
    guard let pid, exitStatus(of: pid) == 0 else { return false }
    var ready = pollfd(fd: own, events: Int16(POLLIN), revents: 0)
    guard poll(&ready, 1, milliseconds) > 0 else { return true }
    var answer: UInt8 = 0
    return read(own, &answer, 1) == 1 && answer == UInt8(ascii: "0")
}

/// A connected pair of sockets. Both are close-on-exec, so that end of file arrives as soon as the one child with the other end exits.
/// (Glibc's pipe2 is unavailable in Swift.)
private func makeEnds() -> (Int32, Int32)? {
    var ends: [Int32] = [-1, -1]
    return socketpair(AF_UNIX, Int32(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0, &ends) == 0 ? (ends[0], ends[1]) : nil
}

/// Runs `arguments` to their end: SIGTERM after `seconds`, SIGKILL one second later. Blocks.
///
/// - Returns: the exit status, and the first `limit` bytes of standard output; nil if timeout(1) could not start.
func output(of arguments: [String], environment: [String: String], seconds: Int, limit: Int) -> (status: Int32, text: [UInt8])? {
    guard let (own, other) = makeEnds() else { return nil }
    let pid = spawn(["timeout", "--kill-after=1", "\(seconds)"] + arguments, environment, output: other)
    close(other)
    defer { close(own) }
    guard let pid else { return nil }
    let text = readAll(own, keeping: limit)
    return (exitStatus(of: pid), text)
}

private func readAll(_ descriptor: Int32, keeping limit: Int) -> [UInt8] {
    var text: [UInt8] = []
    var buffer = [UInt8](repeating: 0, count: 4096)
    while true {
        let count = uninterrupted { read(descriptor, &buffer, buffer.count) }
        guard count > 0 else { return text }
        text += buffer[..<min(count, limit - text.count)]
    }
}

/// Starts a child. Input is /dev/null, and so are output and errors without a given descriptor. The child blocks and ignores no signal,
/// although our threads block all signals and children would inherit that.
private func spawn(_ arguments: [String], _ environment: [String: String], output: Int32? = nil, errors: Int32? = nil) -> pid_t? {
    var actions = posix_spawn_file_actions_t()
    posix_spawn_file_actions_init(&actions)
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0)
    for (given, descriptor) in [(output, Int32(1)), (errors, 2)] {
        if let given {
            posix_spawn_file_actions_adddup2(&actions, given, descriptor)
        } else {
            posix_spawn_file_actions_addopen(&actions, descriptor, "/dev/null", O_WRONLY, 0)
        }
    }
    var attributes = posix_spawnattr_t()
    posix_spawnattr_init(&attributes)
    var none = sigset_t()
    var all = sigset_t()
    sigemptyset(&none)
    sigfillset(&all)
    posix_spawnattr_setsigmask(&attributes, &none)
    posix_spawnattr_setsigdefault(&attributes, &all)
    posix_spawnattr_setflags(&attributes, Int16(POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF))
    let argv = arguments.map { strdup($0) } + [nil]
    let envp = environment.map { strdup("\($0.key)=\($0.value)") } + [nil]
    defer {
        for pointer in argv + envp { free(pointer) }
        posix_spawn_file_actions_destroy(&actions)
        posix_spawnattr_destroy(&attributes)
    }
    var pid: pid_t = 0
    guard posix_spawnp(&pid, arguments[0], &actions, &attributes, argv, envp) == 0 else { return nil }
    lowerFileLimit(of: pid)
    return pid
}

/// Waits for a child to exit. Returns its status, 128 plus the signal number, or -1 if the status is unknown.
private func exitStatus(of pid: pid_t) -> Int32 {
    var status: Int32 = 0
    guard uninterrupted({ waitpid(pid, &status, 0) }) >= 0 else { return -1 }  // an unknown status is no success
    let signal = status & 0x7F
    return signal == 0 ? (status >> 8) & 0xFF : 128 + signal
}
