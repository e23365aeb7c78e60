internal import CConfine
internal import CSystem
internal import DownloadModel
internal import EventLoop
internal import Glibc
internal import PartFiles

/// The child process, as its parent has it. Killed and waited for when this value ends, on the thread that made it: the kernel kills the
/// child with that thread.
final class UnpackingProcess {
    private let pid: pid_t
    private let answers: Int32
    private var hasEnded = false

    /// Whether the child confines itself. A sanitizer needs more than a confined process has. TODOKU_UNCONFINED in the environment is for
    /// debuggers, and for tests that put a library between the program and its files: the child then has our environment, too.
    private static var isConfined: Bool { !todoku_is_sanitized && getenv("TODOKU_UNCONFINED") == nil }

    init(
        _ program: ChildProgram, _ job: UnpackingJob, archive: Int32, folder: Int32, journal: Int32, known: ExtractionJournal
    ) throws(ExtractionFailure) {
        let isConfined = Self.isConfined
        let request = ChildRequest(parent: getpid(), isConfined: isConfined, job: job, journal: known).bytes
        (pid, answers) = try Self.start(program, request, [archive, folder, journal], isConfined: isConfined)
    }

    deinit {
        _ = wait()
        close(answers)
    }

    // MARK: Its start

    private static func start(
        _ program: ChildProgram, _ request: [UInt8], _ files: [Int32], isConfined: Bool
    ) throws(ExtractionFailure) -> (pid_t, answers: Int32) {
        var (requestEnds, answerEnds): ([Int32], [Int32]) = ([-1, -1], [-1, -1])
        var copies: [Int32] = []
        defer { for descriptor in [requestEnds, [answerEnds[1]], copies].joined() where descriptor >= 0 { close(descriptor) } }
        guard todoku_pipe(&requestEnds) == 0, todoku_pipe(&answerEnds) == 0 else { throw failed(errno) }
        // Numbers that the child's own do not overwrite.
        for file in [[requestEnds[0], answerEnds[1]], files].joined() { copies.append(fcntl(file, F_DUPFD_CLOEXEC, 16)) }
        // A pipe has room for the request, so this does not wait for the child.
        guard copies.allSatisfy({ $0 >= 0 }), write(requestEnds[1], request, request.count) == request.count else {
            let code = errno
            close(answerEnds[0])
            throw failed(code)
        }
        var actions = posix_spawn_file_actions_t()
        posix_spawn_file_actions_init(&actions)
        let numbers = [
            ChildRequest.Descriptor.request, ChildRequest.Descriptor.answers, ChildRequest.Descriptor.archive,
            ChildRequest.Descriptor.folder, ChildRequest.Descriptor.journal,
        ]
        for (copy, number) in zip(copies, numbers) { posix_spawn_file_actions_adddup2(&actions, copy, number) }
        if isConfined { posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0) }
        var attributes = posix_spawnattr_t()
        posix_spawnattr_init(&attributes)
        var (none, all) = (sigset_t(), sigset_t())
        sigemptyset(&none)
        sigfillset(&all)
        posix_spawnattr_setsigmask(&attributes, &none)
        posix_spawnattr_setsigdefault(&attributes, &all)
        // A group of its own: Ctrl+C in a terminal is for us.
        posix_spawnattr_setpgroup(&attributes, 0)
        posix_spawnattr_setflags(&attributes, Int16(POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP))
        var argv = [strdup(UnpackingChild.name)]
        for argument in program.arguments { argv.append(strdup(argument)) }
        argv.append(nil)
        let noEnvironment: [UnsafeMutablePointer<CChar>?] = [nil]
        var pid: pid_t = 0
        let code =
            isConfined
            ? posix_spawn(&pid, program.path, &actions, &attributes, argv, noEnvironment)
            : posix_spawn(&pid, program.path, &actions, &attributes, argv, environ)
        for pointer in argv { free(pointer) }
        posix_spawn_file_actions_destroy(&actions)
        posix_spawnattr_destroy(&attributes)
        guard code == 0 else {
            close(answerEnds[0])
            throw failed(code)
        }
        return (pid, answerEnds[0])
    }

    private static func failed(_ code: Int32) -> ExtractionFailure {
        .unavailable(reason: "the process that unpacks cannot be started (\(String(cString: strerror(code))))")
    }

    // MARK: Its answers

    /// Waits until all entries are unpacked.
    func entries(
        _ control: ExtractionControl, limits: ExtractionLimits, size: ByteCount, patience: Duration
    ) throws(ExtractionFailure) -> UnpackedEntries {
        var reader = AnswerReader()
        while true {
            while let answer = try reader.next() {
                guard answer.isPossible(limits, size: size) else { throw .nonsense }
                switch answer {
                case .confined(let confinement): control.report(confinement)
                case .progress(let read, let written, let entries):
                    control.report(read: read)
                    control.report(written: written)
                    control.report(entries: entries)
                case .whole(let entries): return entries
                case .failed(let failure): throw failure
                }
            }
            guard let more = try more(control, patience) else { throw .stopped(end()) }
            reader.add(more)
        }
    }

    /// The next bytes of the answers; nil: the child has ended.
    private func more(_ control: ExtractionControl, _ patience: Duration) throws(ExtractionFailure) -> ArraySlice<UInt8>? {
        while true {
            guard !control.isCancelled else { throw .cancelled }
            var ready = [
                pollfd(fd: answers, events: Int16(POLLIN), revents: 0), pollfd(fd: control.bell, events: Int16(POLLIN), revents: 0),
            ]
            let milliseconds = Int32(clamping: patience.components.seconds *| 1000)
            // Without a bell, look once a second whether the extraction is cancelled.
            let count = poll(&ready, 2, control.bell < 0 ? min(milliseconds, 1000) : milliseconds)
            if count < 0, errno != EINTR { throw .stopped("the process that unpacks cannot be heard") }
            if count == 0, control.bell >= 0, !isWaitingForDisk {
                throw .stopped("the process that unpacks did nothing for \(milliseconds / 1000) seconds")
            }
            guard ready[0].revents != 0 else { continue }
            var bytes = [UInt8](repeating: 0, count: ChildAnswer.mostBytes)
            let got = uninterrupted { read(answers, &bytes, bytes.count) }
            return got > 0 ? bytes[..<got] : nil
        }
    }

    /// Whether the kernel says that the child cannot be interrupted (state D of proc_pid_stat(5)).
    private var isWaitingForDisk: Bool {
        let found = firstBytes(of: "/proc/\(pid)/stat", atMost: 256) ?? []
        // "pid (name) state": the name may contain a parenthesis.
        guard let end = found.lastIndex(of: UInt8(ascii: ")")), found.count > end +| 2 else { return false }
        return found[end +| 2] == UInt8(ascii: "D")
    }

    // MARK: Its end

    /// Kills the child, and waits for its end. A child that ended before by itself keeps its status.
    ///
    /// - Returns: as waitpid(2); 0 if it was waited for already.
    private func wait() -> Int32 {
        guard !hasEnded else { return 0 }
        hasEnded = true
        kill(pid, SIGKILL)
        var status: Int32 = 0
        return uninterrupted { waitpid(pid, &status, 0) } < 0 ? 0 : status
    }

    /// Why the child has closed its answers; completes a sentence.
    private func end() -> String {
        let status = wait()
        switch status & 0x7F {
        case 0: return "the process that unpacks ended without an answer (status \(status >> 8 & 0xFF))"
        case SIGKILL: return "the process that unpacks was killed, perhaps because memory is short"
        case SIGXCPU: return "the archive takes more processor time than an archive of its size may"
        case SIGSYS: return "the process that unpacks tried what it may not do"
        case let signal: return "the process that unpacks crashed (signal \(signal))"
        }
    }
}
