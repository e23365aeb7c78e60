internal import DownloadModel
internal import EventLoop
internal import Glibc
internal import Localization
internal import TodokuClient

/// Runs the user's commands for downloads that have ended (`--exec`, `--exec-failed`): one at a time, in the order of the ends.
@BusActor final class EndCommands {
    private let finished: UserCommand?
    private let failed: UserCommand?
    private let json: Bool
    private let display: (any ProgressDisplay)?
    private let complain: (CommandFailure) -> ExitStatus
    private var ended: [DownloadDescription] = []
    private var isRunning = false
    private var waiting: CheckedContinuation<Void, Never>?
    private var status = ExitStatus.success

    /// - Parameters:
    ///   - display: leaves the terminal to a command while it runs.
    ///   - complain: reports the failure of a command; nil: `Program.report`.
    init(
        _ arguments: ExecArguments, json: Bool, display: (any ProgressDisplay)? = nil, complain: ((CommandFailure) -> ExitStatus)? = nil
    ) {
        finished = arguments.exec.map { UserCommand($0, takesPath: true) }
        failed = arguments.execFailed.map { UserCommand($0, takesPath: false) }
        (self.json, self.display, self.complain) = (json, display, complain ?? { Program.report($0, json: json) })
    }

    /// Queues the command for a download that has ended, if there is one.
    func add(_ download: DownloadDescription) {
        guard command(for: download) != nil else { return }
        ended.append(download)
        runNext()
    }

    /// Waits until all queued commands have ended.
    ///
    /// - Returns: `commandFailed` if one of those since the last call has failed, `interrupted` if Ctrl-C was pressed.
    func finish() async -> ExitStatus {
        await withCheckedContinuation { continuation in
            // Check inside this body: the last command may end between a check before it and this point.
            if isRunning { waiting = continuation } else { continuation.resume() }
        }
        defer { status = .success }
        return status
    }

    private func command(for download: DownloadDescription) -> UserCommand? {
        switch download.state {
        // A download into an open file of an app has no path. A command without its argument could wait for its input.
        case .finished: download.path == nil ? nil : finished
        case .failed, .cancelled: failed
        default: nil
        }
    }

    /// Whether Ctrl-C was pressed and the loop has not received it yet. A terminal sends Ctrl-C to the user's command, too, and the loop
    /// may see the end of that command first.
    private var isInterrupted: Bool { SignalSource.isPending(SIGINT) }

    private func runNext() {
        if isInterrupted { (ended, status) = ([], .interrupted) }
        while !isRunning, !ended.isEmpty {
            let download = ended.removeFirst()
            if let command = command(for: download) { run(command, for: download) }
        }
        guard !isRunning else { return }
        waiting?.resume()
        waiting = nil
    }

    private func run(_ command: UserCommand, for download: DownloadDescription) {
        display?.suspend()
        let output = json ? STDERR_FILENO : STDOUT_FILENO  // standard output has JSON only
        isRunning = true
        Pool.programs.perform {
            EndCommands.status(of: command, for: download, output: output)
        } then: { [self] result in
            isRunning = false
            switch result {
            case .failure(let error): report(download, catalog.text("sh cannot be started: %1$s", String(cString: strerror(error.code))))
            case .success(let status): if !isInterrupted { report(download, Self.fault(status)) }
            }
            runNext()
        }
    }

    /// Blocks until the command has ended.
    ///
    /// - Returns: its status, as waitpid(2) tells it; or why sh(1) cannot be started.
    private nonisolated static func status(
        of command: UserCommand, for download: DownloadDescription, output: Int32
    ) -> Result<Int32, SystemCallError> {
        let (process, error) = start(command.arguments(path: download.path), variables(for: download), output: output)
        guard let process else { return .failure(SystemCallError(code: error)) }
        return .success(waitForEnd(of: process))
    }

    /// - Parameter fault: nil: the command has succeeded.
    private func report(_ download: DownloadDescription, _ fault: String?) {
        if let fault {
            let text = catalog.text("the command for download %1$s failed: %2$s", "\(download.reference)", fault)
            status = status.and(complain(CommandFailure(.commandFailed, text, about: .download(download.reference))))
        }
        display?.resume()
    }

    /// - Parameter status: as waitpid(2) tells it.
    /// - Returns: nil for a success.
    private static func fault(_ status: Int32) -> String? {
        let signal = status & 0x7F
        if signal != 0 { return catalog.text("it was ended by signal %1$s", String(signal)) }
        let code = (status >> 8) & 0xFF
        return code == 0 ? nil : catalog.text("its exit status is %1$s", String(code))
    }

    /// Blocks until the process has ended. An unknown status counts as a failure.
    private nonisolated static func waitForEnd(of process: pid_t) -> Int32 {
        var status: Int32 = 0
        return uninterrupted { waitpid(process, &status, 0) } < 0 ? 0xFF00 : status
    }

    /// The bytes of the download on disk; empty: its file is a folder, or cannot be looked at. A file that was there before has other bytes
    /// than the download has received, and an unpacked archive is gone. Waits for the disk.
    private nonisolated static func size(of download: DownloadDescription) -> String {
        guard download.state == .finished, let path = download.path else { return String(download.received) }
        var status = stat()
        guard stat(path, &status) == 0, status.st_mode & S_IFMT == S_IFREG else { return "" }
        return String(status.st_size)
    }

    /// The variables for the command of a download, documented in todoku(1). They replace inherited ones. Empty: not known, or none.
    private nonisolated static func variables(for download: DownloadDescription) -> [(String, String)] {
        [
            ("TODOKU_DOWNLOAD", download.reference.description), ("TODOKU_OUTCOME", download.state.name),
            ("TODOKU_PATH", download.path ?? ""), ("TODOKU_NAME", download.displayName), ("TODOKU_URL", download.url),
            ("TODOKU_SIZE", size(of: download)), ("TODOKU_MEDIA_TYPE", download.mediaType ?? ""), ("TODOKU_APP", download.app),
            ("TODOKU_TAG", download.tag), ("TODOKU_BATCH", download.batch.flatMap { BatchReference($0) }?.description ?? ""),
            ("TODOKU_ERROR", download.error?.name ?? ""), ("TODOKU_MESSAGE", download.error?.message ?? ""),
        ]
    }

    /// Starts a child with the terminal, the input, the errors and the environment of this program.
    ///
    /// The child blocks no signal: this program blocks Ctrl-C. SIGPIPE has its default. Any other signal that the parent of this program
    /// ignores, as nohup(1) does, stays ignored.
    ///
    /// - Parameter variables: replace those of the environment.
    /// - Returns: the process; nil with the errno if it cannot start.
    private nonisolated static func start(_ arguments: [String], _ variables: [(String, String)], output: Int32) -> (pid_t?, Int32) {
        signal(SIGCHLD, SIG_DFL)  // if a parent has set it to be ignored, no exit status would be kept
        var actions = posix_spawn_file_actions_t()
        posix_spawn_file_actions_init(&actions)
        if output != STDOUT_FILENO { posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO) }
        var attributes = posix_spawnattr_t()
        posix_spawnattr_init(&attributes)
        var blocked = sigset_t()
        var defaults = sigset_t()
        sigemptyset(&blocked)
        sigemptyset(&defaults)
        sigaddset(&defaults, SIGPIPE)
        posix_spawnattr_setsigmask(&attributes, &blocked)
        posix_spawnattr_setsigdefault(&attributes, &defaults)
        posix_spawnattr_setflags(&attributes, Int16(POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF))
        let argv = arguments.map { strdup($0) } + [nil]
        var envp = variables.map { strdup("\($0.0)=\($0.1)") }
        var entry = environ
        while let text = entry.pointee {
            let variable = String(cString: text)
            if !variables.contains(where: { variable.utf8.starts(with: "\($0.0)=".utf8) }) { envp.append(strdup(text)) }
            entry += 1
        }
        envp.append(nil)
        defer {
            for pointer in argv + envp { free(pointer) }
            posix_spawn_file_actions_destroy(&actions)
            posix_spawnattr_destroy(&attributes)
        }
        var process: pid_t = 0
        let error = posix_spawn(&process, "/bin/sh", &actions, &attributes, argv, envp)
        return error == 0 ? (process, 0) : (nil, error)
    }
}
