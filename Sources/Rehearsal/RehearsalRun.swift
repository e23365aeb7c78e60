internal import DBus
internal import DownloadModel
internal import DownloaderInterface
package import EventLoop
internal import Glibc

/// What a rehearsal needs besides its scenario.
package struct RehearsalOptions: Sendable {
    /// The path of todokud.
    package var service: String
    /// Folders with activation files of other programs, absolute.
    package var serviceFolders: [String] = []
    /// The file that keeps what the service and the bus say; nil: nobody needs it.
    package var log: String?

    package init(service: String) { self.service = service }
}

/// One rehearsal: a private session with the service, a scripted server, and a command that uses both.
///
/// Call `prepare`, `begin`, `run` and, whatever these threw, `end`.
@BusActor package final class RehearsalRun {
    /// How long an interrupted command has to end, before the next, harder signal.
    private static let grace: Duration = .seconds(5)
    /// How long the report waits for what the bus has not passed on.
    private static let patience: Duration = .seconds(5)
    /// A crash waits so long for the service's word that it has the bytes: the last ones may lie in a buffer.
    private static let crashPatience: Duration = .seconds(1)
    /// `RestartSec` of todokud.service.
    private static let restart: Duration = .seconds(1)

    private let scenario: Scenario
    private let options: RehearsalOptions
    private let children: ChildProcesses
    private let server: ScenarioServer
    private let session: PrivateSession
    private var disk: SmallDisk?
    private var tape: Tape?
    private var control: Connection?
    private var monitor: Connection?
    private var signals: SignalSource?
    private var command: pid_t?
    private var interrupts = 0
    private var isOver = false
    /// What went wrong with the rehearsal while the command ran: one sentence.
    package private(set) var failure: String?
    /// Whether the service is about to be killed.
    private var isCrashing = false
    /// How often the fault happened elsewhere than at the server.
    private var played: UInt64 = 0

    /// Call before the first thread starts. It blocks signals and, for a disk of its own, changes the mounts of this process.
    package nonisolated static func prepare(for scenario: Scenario) throws(RehearsalError) {
        signal(SIGCHLD, SIG_DFL)  // if our parent ignored SIGCHLD, no end of a child could be waited for
        SignalSource.block([SIGCHLD, SIGINT, SIGTERM, SIGHUP])
        if scenario.kind == .fullDisk, scenario.disk == nil { try SmallDisk.allowMounts() }
    }

    package init(_ scenario: Scenario, _ options: RehearsalOptions) throws(RehearsalError) {
        (self.scenario, self.options) = (scenario, options)
        children = try ChildProcesses()
        server = try ScenarioServer(scenario)
        session = try PrivateSession(Self.environment())
    }

    private nonisolated static func environment() -> [String: String] {
        var result: [String: String] = [:]
        var entry = environ
        while let text = entry.pointee {
            let pair = String(cString: text).split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
            if pair.count == 2 { result[String(pair[0])] = String(pair[1]) }
            entry = entry.successor()
        }
        return result
    }

    // MARK: Its course

    /// Makes the disk, and starts the server and the bus.
    package func begin() async throws(RehearsalError) {
        signals = SignalSource([SIGINT, SIGTERM, SIGHUP]) { [weak self] in self?.received($0) }
        try makeDisk()
        session.add([
            "TODOKU_REHEARSAL_URL": server.url, "TODOKU_REHEARSAL_SCENARIO": scenario.kind.rawValue,
            "TODOKU_REHEARSAL_SHA256": RehearsalFile.file.sha256, "TODOKU_REHEARSAL_DOWNLOADS": disk?.folder ?? session.downloads,
        ])
        let control = try await session.start(serviceCommand, others: options.serviceFolders, log: options.log, by: children).connection
        let tape = Tape(ownName: control.uniqueName)
        (self.control, self.tape) = (control, tape)
        do throws(DBusError) {
            let monitor = try Connection.open(address: session.address)
            self.monitor = monitor
            try await monitor.monitor { tape.hear($0) }
        } catch { throw RehearsalError("the private bus cannot be watched: \(error.message)") }
        try play(tape)
    }

    private var serviceCommand: [String] {
        var words = [options.service]
        if options.log != nil { words.append("--log-level=debug") }
        // A temporary folder below a hidden one is no reason to refuse it.
        if session.downloads.contains("/.") || disk?.folder.contains("/.") == true { words.append("--allow-hidden-folders") }
        return words
    }

    private func makeDisk() throws(RehearsalError) {
        guard scenario.kind == .fullDisk else { return }
        let free = scenario.number("free")
        if let folder = scenario.disk {
            let disk = try SmallDisk(filling: folder, free: free)
            self.disk = disk
            try session.setDownloads(disk.folder)
        } else {
            disk = try SmallDisk(at: session.downloads, free: free)
        }
    }

    /// Lets happen what does not happen at the server.
    private func play(_ tape: Tape) throws(RehearsalError) {
        switch scenario.kind {
        case .unreachable:
            let seconds = scenario.number("seconds")
            tape.firstCall = { [weak self] in
                self?.played = 1
                guard seconds > 0 else { return }
                Poller.shared.schedule(after: .seconds(Int64(clamping: seconds))) { [weak self] in self?.openLate() }
            }
            return
        case .fullDisk:
            let seconds = scenario.number("seconds")
            tape.waits = { [weak self] reason in
                guard let self, reason == WaitReason.diskSpace.rawValue else { return }
                played +|= 1
                guard played == 1, seconds > 0 else { return }
                Poller.shared.schedule(after: .seconds(Int64(clamping: seconds))) { [weak self] in self?.disk?.release() }
            }
        case .crash: server.crash = { [weak self] in self?.crashSoon() }
        default: break
        }
        try server.open()
    }

    private func openLate() {
        do throws(RehearsalError) { try server.open() } catch { failure = error.message }
    }

    /// Runs the command to its end.
    ///
    /// - Returns: its exit status; 128 and the number of the signal that ended it; 126 or 127 if it cannot be started, as of a shell.
    package func run(_ arguments: [String]) async -> RehearsalEnd {
        guard interrupts == 0 else { return .interrupted }
        switch children.start(arguments, environment: session.environment, leadsGroup: false) {
        case .failure(let failure): return .notStarted(failure.reason, status: failure.code == ENOENT ? 127 : 126)
        case .success(let process):
            command = process
            let status = await children.status(of: process)
            command = nil
            await hearAll()
            return .ended(status)
        }
    }

    /// Waits until the tape has heard what was sent before, and stops it.
    private func hearAll() async {
        guard let control, let tape else { return }
        await withCheckedContinuation { continuation in
            let end = Once(continuation)
            tape.setFence { end.resume() }
            Poller.shared.schedule(after: Self.patience) { end.resume() }
            BusActor.spawn {
                _ = try? await control.call(BusDaemon.nameHasOwner, on: BusDaemon.name, at: BusDaemon.path, BusName.service)
            }
        }
        tape.stop()
    }

    /// The address of the private bus.
    package var address: String { session.address }

    package var report: RehearsalReport {
        var report = RehearsalReport()
        if let tape { (report.calls, report.downloads, report.serviceStarts) = (tape.calls, tape.downloads, tape.serviceStarts) }
        (report.requests, report.requestCount) = (server.requests, server.requestCount)
        report.played = played +| server.played
        return report
    }

    /// Ends every process, and removes every file.
    ///
    /// - Returns: false if the kernel does not end a process.
    package func end() async -> Bool {
        isOver = true
        let isEnded = await children.endAll()
        disk?.end()
        session.end()
        return isEnded
    }

    // MARK: Signals

    private func received(_ signal: Int32) {
        interrupts +|= 1
        guard let command else { return }
        guard interrupts == 1 else {
            kill(command, SIGKILL)
            return
        }
        // Ctrl-C at a terminal reaches the command, too.
        if signal != SIGINT { kill(command, signal) }
        strike(command, signal == SIGINT ? [SIGTERM, SIGKILL] : [SIGKILL])
    }

    /// Sends a process these signals, one after another, until it ends.
    private func strike(_ process: pid_t, _ signals: [Int32]) {
        guard let signal = signals.first else { return }
        Poller.shared.schedule(after: Self.grace) { [weak self] in
            guard let self, children.isRunning(process) else { return }
            kill(process, signal)
            strike(process, Array(signals.dropFirst()))
        }
    }

    // MARK: Crashes

    /// Kills the service once it says that it has the bytes, or has had time for it.
    private func crashSoon() {
        guard !isCrashing else { return }
        isCrashing = true
        let at = scenario.number("at")
        tape?.progress = { [weak self] received in if received >= at { self?.crash() } }
        Poller.shared.schedule(after: Self.crashPatience) { [weak self] in self?.crash() }
    }

    private func crash() {
        guard isCrashing else { return }
        isCrashing = false
        tape?.progress = nil
        BusActor.spawn { [weak self] in await self?.crashNow() }
    }

    private func crashNow() async {
        guard let control, !isOver else { return }
        let process = try? await control.call(
            BusDaemon.getConnectionUnixProcessID, on: BusDaemon.name, at: BusDaemon.path, BusName.service)
        guard let process, process > 1, !isOver else { return }
        kill(pid_t(truncatingIfNeeded: process), SIGKILL)
        await pause(for: Self.restart)
        guard !isOver else { return }
        _ = try? await control.call(
            BusDaemon.startServiceByName, on: BusDaemon.name, at: BusDaemon.path, (BusName.service, 0), timeout: nil)
    }
}

/// How the command of a rehearsal ended.
package enum RehearsalEnd: Equatable, Sendable {
    case ended(Int32)
    case notStarted(String, status: Int32)
    /// A signal came before it was started.
    case interrupted
}

/// Resumes a continuation once.
@BusActor private final class Once {
    private var continuation: CheckedContinuation<Void, Never>?

    init(_ continuation: CheckedContinuation<Void, Never>) { self.continuation = continuation }

    func resume() {
        continuation?.resume()
        continuation = nil
    }
}
