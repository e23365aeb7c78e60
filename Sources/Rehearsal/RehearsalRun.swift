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
    /// The file that keeps what the bus and the service say; nil: nobody needs it.
    package var log: String?

    package init(service: String) { self.service = service }
}

/// One rehearsal: a private session with the service, a scripted server, and a command that uses both.
///
/// Call `prepare`, `begin`, `run` and, whatever these return or throw, `end`.
@BusActor package final class RehearsalRun {
    /// The time in which an interrupted command must end, before it gets a stronger signal.
    private static let grace: Duration = .seconds(5)
    /// How long the report waits for messages that the bus has not passed on.
    private static let patience: Duration = .seconds(30)
    /// How long a crash waits for the service to report the bytes. The last bytes may lie in a buffer.
    private static let crashPatience: Duration = .seconds(15)
    /// `RestartSec` of todokud.service.
    private static let restart: Duration = .seconds(1)

    private let scenario: Scenario
    private let options: RehearsalOptions
    private let children: ChildProcesses
    private let server: ScenarioServer
    private let session: PrivateSession
    private var disk: FullDisk?
    private var recorder: BusRecorder?
    private var control: Connection?
    private var monitor: Connection?
    private var signals: SignalSource?
    private var command: pid_t?
    /// The first signal of `endSignals` that the loop has received; nil: none.
    private var received: Int32?
    /// The command has ended: nothing goes wrong any more.
    private var isOver = false
    /// Why the rehearsal itself went wrong while the command ran: one sentence; nil: it did not.
    package private(set) var failure: String?
    /// Whether the service is about to be killed, and when at the latest.
    private var isCrashing = false
    private var crashDeadline: Poller.Token?
    /// How often the fault happened elsewhere than at the server.
    private var played: UInt64 = 0

    /// Call before the first thread starts. It blocks signals and, for a disk of its own, changes the mounts of this process.
    package nonisolated static func prepare(for scenario: Scenario) throws(RehearsalError) {
        signal(SIGCHLD, SIG_DFL)  // a parent may have ignored SIGCHLD: then waitpid(2) would find no child that has ended
        SignalSource.block([SIGCHLD])
        SignalSource.block(endSignals)
        if scenario.kind == .fullDisk, scenario.disk == nil { try FullDisk.allowMounts() }
    }

    /// The signals that end a rehearsal.
    private nonisolated static let endSignals = [SIGINT, SIGQUIT, SIGTERM, SIGHUP]

    package init(_ scenario: Scenario, _ options: RehearsalOptions) throws(RehearsalError) {
        (self.scenario, self.options) = (scenario, options)
        children = try ChildProcesses()
        server = try ScenarioServer(scenario)
        session = try PrivateSession(.own())
    }

    // MARK: The course

    /// The signal that has come to end this process; nil: none. The same signal may have ended the bus. A call that waits for the bus then
    /// fails before the loop can receive the signal.
    package var interrupt: Int32? { received ?? Self.endSignals.first(where: SignalSource.isPending) }

    /// Makes the disk, and starts the server and the bus.
    ///
    /// - Throws: if `interrupt` is set, perhaps only because the same signal has ended the bus, too.
    package func begin() async throws(RehearsalError) {
        signals = SignalSource(Self.endSignals) { [weak self] in self?.receive($0) }
        try makeDisk()
        session.add([
            "TODOKU_REHEARSAL_URL": server.url, "TODOKU_REHEARSAL_SCENARIO": scenario.kind.rawValue,
            "TODOKU_REHEARSAL_SHA256": RehearsalFile.file.sha256, "TODOKU_REHEARSAL_DOWNLOADS": disk?.folder ?? session.downloads,
        ])
        let control = try await session.start(serviceCommand, others: options.serviceFolders, log: options.log, by: children)
        let recorder = BusRecorder(ownName: control.uniqueName)
        (self.control, self.recorder) = (control, recorder)
        do throws(DBusError) {
            let monitor = try Connection.open(address: session.address)
            self.monitor = monitor
            try await monitor.monitor { recorder.record($0) }
        } catch { throw RehearsalError("the private bus cannot be watched: \(error.message)") }
        try play(recorder)
    }

    private var serviceCommand: [String] {
        var words = [options.service]
        if options.log != nil { words.append("--log-level=debug") }
        // The temporary folder may be in a hidden folder.
        if session.downloads.contains("/.") { words.append("--allow-hidden-folders") }
        return words
    }

    private func makeDisk() throws(RehearsalError) {
        guard scenario.kind == .fullDisk else { return }
        let free = scenario.number("free")
        if let folder = scenario.disk {
            let disk = try FullDisk(filling: folder, free: free)
            self.disk = disk
            try session.setDownloads(disk.folder)
        } else {
            disk = try FullDisk(at: session.downloads, free: free)
        }
    }

    /// Prepares the faults that happen elsewhere than at the server, and opens the server.
    private func play(_ recorder: BusRecorder) throws(RehearsalError) {
        switch scenario.kind {
        case .unreachable:
            recorder.waits = { [weak self] reason in if reason == WaitReason.retry.rawValue { self?.foundNobody() } }
            recorder.fails = { [weak self] in self?.foundNobody() }
            return
        case .fullDisk: recorder.waits = { [weak self] reason in if reason == WaitReason.diskSpace.rawValue { self?.foundNoRoom() } }
        case .crash: server.crash = { [weak self] place in self?.crashSoon(at: place) }
        default: break
        }
        try server.open()
    }

    /// A request has failed because nobody listens at the server's port. The first one starts the clock.
    private func foundNobody() {
        played +|= 1
        let seconds = scenario.number("seconds")
        guard played == 1, seconds > 0 else { return }
        Poller.shared.schedule(after: .seconds(Int64(clamping: seconds))) { [weak self] in self?.openLate() }
    }

    private func openLate() {
        recorder?.waits = nil
        recorder?.fails = nil
        do throws(RehearsalError) { try server.open() } catch { failure = error.message }
    }

    /// A download waits because the disk is full. The first one starts the clock.
    private func foundNoRoom() {
        played +|= 1
        let seconds = scenario.number("seconds")
        guard played == 1, seconds > 0 else { return }
        Poller.shared.schedule(after: .seconds(Int64(clamping: seconds))) { [weak self] in self?.disk?.release() }
    }

    /// Runs the command to its end.
    ///
    /// - Parameter arguments: the command line, each argument with a zero byte at the end. They need not be UTF-8.
    /// - Returns: its exit status, or 128 and the number of the signal that ended it. A shell has the same 126 and 127 for a command that
    ///   cannot be started.
    package func run(_ arguments: [[CChar]]) async -> RehearsalEnd {
        if let interrupt { return .interrupted(interrupt) }
        switch children.start(arguments, environment: session.environment, isDaemon: false) {
        case .failure(let failure): return .notStarted(failure.reason, status: failure.code == ENOENT ? 127 : 126)
        case .success(let process):
            command = process
            let status = await children.status(of: process)
            (command, isOver) = (nil, true)
            await finishRecording()
            return .ended(status)
        }
    }

    /// Waits until the recorder has all messages that were sent before, and stops it.
    private func finishRecording() async {
        guard let control, let recorder else { return }
        // A command may end at the first signal of an end. The service sends the signals of an end one in a turn of its loop, and may
        // answer other calls between them.
        let deadline = ContinuousClock.now + Self.patience
        var answers = true
        repeat {
            do throws(DBusError) {
                try await control.call(
                    Standard.ping, on: BusName.service, at: BusName.managerPath, (), timeout: Self.patience, starts: false)
            } catch { answers = false }
            await passFence(control, recorder)
        } while answers && recorder.hasOpenEnds && ContinuousClock.now < deadline
        recorder.stop()
    }

    /// Waits until the recorder has all messages that have passed the bus.
    private func passFence(_ control: Connection, _ recorder: BusRecorder) async {
        await withCheckedContinuation { (continuation: CheckedContinuation<Void, Never>) in
            let end = Once(continuation)
            recorder.setFence { end.resume() }
            Poller.shared.schedule(after: Self.patience) { end.resume() }
            BusActor.spawn {
                _ = try? await control.call(BusDaemon.nameHasOwner, on: BusDaemon.name, at: BusDaemon.path, BusName.service)
            }
        }
    }

    /// The address of the private bus.
    package var address: String { session.address }

    package var report: RehearsalReport {
        var report = RehearsalReport()
        report.calls = recorder?.calls ?? []
        report.downloads = recorder?.downloads ?? []
        report.serviceStarts = recorder?.serviceStarts ?? 0
        (report.requests, report.requestCount) = (server.requests, server.requestCount)
        report.played = played +| server.played
        return report
    }

    /// Ends every process, and removes every file.
    ///
    /// - Returns: a sentence about each process and each file that is left.
    package func end() async -> [String] {
        isOver = true
        var left = await children.endAll().map { "process \($0) of the rehearsal could not be ended" }
        if let disk, !disk.end() { left.append("“\(disk.folder)” could not be removed") }
        if !session.end() { left.append("“\(session.folder)” could not be removed") }
        return left
    }

    // MARK: Signals

    private func receive(_ signal: Int32) {
        let isFirst = received == nil
        received = received ?? signal
        guard let command else { return }
        guard isFirst else {
            kill(command, SIGKILL)
            return
        }
        // A terminal sends these two signals to the command, too.
        let isOfTerminal = signal == SIGINT || signal == SIGQUIT
        if !isOfTerminal { kill(command, signal) }
        escalate(command, isOfTerminal ? [SIGTERM, SIGKILL] : [SIGKILL])
    }

    /// Sends a process these signals, one after another with time between, until it ends.
    private func escalate(_ process: pid_t, _ signals: [Int32]) {
        guard let signal = signals.first else { return }
        Poller.shared.schedule(after: Self.grace) { [weak self] in
            guard let self, children.isRunning(process) else { return }
            kill(process, signal)
            escalate(process, Array(signals.dropFirst()))
        }
    }

    // MARK: Crashes

    /// Kills the service once it reports the bytes, or has had time for that.
    ///
    /// - Parameter place: the number of the file's first byte that the server does not send.
    private func crashSoon(at place: UInt64) {
        guard !isCrashing, !isOver else { return }
        isCrashing = true
        recorder?.progress = { [weak self] received in if received >= place { self?.crash() } }
        crashDeadline = Poller.shared.schedule(after: Self.crashPatience) { [weak self] in self?.crash() }
    }

    private func crash() {
        guard let deadline = crashDeadline else { return }  // it has begun
        Poller.shared.cancel(deadline)
        crashDeadline = nil
        recorder?.progress = nil
        BusActor.spawn { [weak self] in await self?.crashNow() }
    }

    private func crashNow() async {
        guard let control else { return }
        let process = try? await control.call(
            BusDaemon.getConnectionUnixProcessID, on: BusDaemon.name, at: BusDaemon.path, BusName.service)
        isCrashing = false
        guard let process, process > 1, !isOver, kill(pid_t(truncatingIfNeeded: process), SIGKILL) == 0 else { return }
        server.crashed()
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
    /// This signal came before the command was started.
    case interrupted(Int32)
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
