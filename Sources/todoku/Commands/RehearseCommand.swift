internal import ArgumentParser
internal import DownloadModel
internal import EventLoop
internal import Glibc
internal import Localization
internal import Rehearsal
internal import TodokuClient

struct RehearseCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "rehearse", abstract: "Test how an app handles a download that goes wrong.",
        discussion: """
            Runs COMMAND in a session of its own: a private bus with the service, an empty home, and a server on this machine. The server \
            has the files /small (64 KiB), /file (4 MiB) and /large (16 MiB). The scenario says what goes wrong. The command finds the \
            server's URL in TODOKU_REHEARSAL_URL, and the bus in DBUS_SESSION_BUS_ADDRESS. Your own session and your files stay as they are, \
            and no process is left behind. The exit status is the command's.

            At the end, standard error says which methods the command called, and how each download ended.

            EXAMPLES:
              todoku rehearse --list
              todoku rehearse busy -- ./my-app-test
              todoku rehearse crash:at=1M,times=2 -- ./my-app-test --quick
              todoku rehearse truncated -- sh -c 'todoku get "$TODOKU_REHEARSAL_URL/file"'
            """)

    @Argument(
        help: ArgumentHelp("What goes wrong, with its parameters: NAME or NAME:KEY=VALUE,….", valueName: "scenario"),
        completion: .list(Scenario.Kind.allCases.map(\.rawValue)))
    var scenario: String?
    @Argument(parsing: .postTerminator, help: ArgumentHelp("The command to run, after “--”.", valueName: "command"))
    var command: [String] = []
    @Flag(help: "Print the scenarios and their parameters.") var list = false
    @Flag(help: "Exit with 3 if the command succeeds but nothing went wrong, because it has tested nothing.") var strict = false
    @Flag(name: .shortAndLong, help: "Print no summary.") var quiet = false
    @Option(help: ArgumentHelp("Write the summary to this file, not to standard error; - is standard output.", valueName: "file"))
    var summary: String?
    @Option(help: ArgumentHelp("Write the messages of the bus and the service to this file.", valueName: "file")) var log: String?
    @Option(help: ArgumentHelp("A further folder with activation files (*.service) for the private bus.", valueName: "folder"))
    var serviceDir: [String] = []
    @Option(help: ArgumentHelp("The program todokud; without it, the one beside todoku, or in PATH.", valueName: "file"))
    var service: String?
    @OptionGroup var output: OutputArguments

    func validate() throws {
        guard !list else { return }
        guard let scenario else { throw ValidationError(catalog.text("a scenario is missing; “todoku rehearse --list” has them all")) }
        guard !command.isEmpty else {
            throw ValidationError(catalog.text("a command is missing: todoku rehearse %1$s -- COMMAND", scenario))
        }
        try LocalPath.refuseStandardOutput(log, for: "--log")
    }

    func run() throws {
        guard !list else { return Output.write(output.json ? ScenarioList.json.text + "\n" : ScenarioList.text) }
        let (scenario, options, summary) = Program.require(json: output.json) { () throws(CommandFailure) in
            (
                try Self.parsed(self.scenario ?? ""), try rehearsalOptions(),
                try self.summary.map { path throws(CommandFailure) in try Self.file(path) }
            )
        }
        Program.require(json: output.json) { () throws(CommandFailure) in
            do throws(RehearsalError) { try RehearsalRun.prepare(for: scenario) } catch {
                throw CommandFailure(.refused, catalog.sentence(error.message))
            }
        }
        let (command, json, quiet, strict) = (Self.lastArguments(self.command.count), output.json, self.quiet, self.strict)
        BusActor.runMain {
            let rehearsal = Rehearsed(scenario, options, json: json, summary: quiet ? nil : summary ?? STDERR_FILENO)
            Glibc.exit(await rehearsal.run(command, isStrict: strict))
        }
    }

    /// The last `count` arguments of this program, each with its zero byte. `CommandLine.arguments` has replaced bytes that are no UTF-8.
    private static func lastArguments(_ count: Int) -> [[CChar]] {
        UnsafeBufferPointer(start: CommandLine.unsafeArgv, count: CommandLine.arguments.count).suffix(count).compactMap { argument in
            argument.map { Array(UnsafeBufferPointer(start: $0, count: strlen($0))) + [0] }
        }
    }

    private static func parsed(_ text: String) throws(CommandFailure) -> Scenario {
        do throws(RehearsalError) { return try Scenario.parse(text) } catch {
            throw CommandFailure(.usage, catalog.sentence(error.message))
        }
    }

    private func rehearsalOptions() throws(CommandFailure) -> RehearsalOptions {
        var options = RehearsalOptions(service: try serviceProgram())
        options.log = try log.map { path throws(CommandFailure) in try LocalPath.absolute(path) }
        for folder in serviceDir {
            let path = try LocalPath.absolute(folder)
            guard LocalPath.isFolder(path) else {
                throw CommandFailure(.usage, catalog.text("there is no folder “%1$s” (--service-dir)", path))
            }
            options.serviceFolders.append(path)
        }
        return options
    }

    private func serviceProgram() throws(CommandFailure) -> String {
        if let service {
            let path = try LocalPath.absolute(service)
            guard access(path, X_OK) == 0 else {
                throw CommandFailure(.usage, catalog.text("there is no program “%1$s” (--service)", path))
            }
            return path
        }
        var folders: [Substring] = []
        if let own = realpath("/proc/self/exe", nil) {
            defer { free(own) }
            folders.append(LocalPath.folder(of: String(cString: own))[...])
        }
        let path = getenv("PATH").map { String(cString: $0) } ?? "/usr/local/bin:/usr/bin:/bin"
        folders.append(contentsOf: path.split(separator: ":"))
        let programs = folders.map { folder -> String in "\(folder)/todokud" }
        let found = programs.first { $0.hasPrefix("/") && access($0, X_OK) == 0 }
        guard let found else {
            throw CommandFailure(.refused, catalog.text("todokud is neither beside todoku nor in PATH; name it by --service"))
        }
        return found
    }

    /// Opens the file for the summary now, because later would be too late to complain.
    private static func file(_ path: String) throws(CommandFailure) -> Int32 {
        if path == "-" { return STDOUT_FILENO }
        let file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0o666)
        guard file >= 0 else {
            // The first use of the catalogue looks for files of the locale, and sets errno.
            let reason = String(cString: strerror(errno))
            throw CommandFailure(.usage, catalog.text("“%1$s” cannot be written: %2$s", path, reason))
        }
        return file
    }
}

/// A rehearsal from its beginning to its exit status.
@BusActor private final class Rehearsed {
    private let scenario: Scenario
    private let options: RehearsalOptions
    private let json: Bool
    /// Where the summary goes; nil: nowhere.
    private let summary: Int32?

    init(_ scenario: Scenario, _ options: RehearsalOptions, json: Bool, summary: Int32?) {
        (self.scenario, self.options, self.json, self.summary) = (scenario, options, json, summary)
    }

    /// Writes nothing before the end. Writing to a pipe that nobody reads ends this program, which must have cleaned up before.
    ///
    /// - Parameter command: the command line, each argument with its zero byte.
    func run(_ command: [[CChar]], isStrict: Bool) async -> Int32 {
        let run: RehearsalRun
        do throws(RehearsalError) { run = try RehearsalRun(scenario, options) } catch { return refuse(error) }
        let course = await self.course(of: run, command)
        let left = await run.end()
        switch course {
        case .refused(let error):
            for complaint in left { Output.complain(catalog.sentence(complaint)) }
            return refuse(error)
        case .over(let status):
            for complaint in left { Output.complain(catalog.sentence(complaint)) }
            return status
        case .notStarted(let reason, let status):
            let name = String(decoding: command[0].dropLast().map(UInt8.init(bitPattern:)), as: UTF8.self)
            Program.report(CommandFailure(.refused, catalog.text("“%1$s” cannot be started: %2$s", name, reason)), json: json)
            return status
        case .ended(var display):
            display.complaints.append(contentsOf: left)
            if let summary {
                Output.write(json ? display.json.text + "\n" : display.text, toFile: summary)
            } else {
                for complaint in display.complaints { Output.complain(catalog.sentence(complaint)) }
            }
            guard display.status == 0 else { return display.status }
            return !left.isEmpty || isStrict && !display.hasPlayed ? ExitStatus.refused.rawValue : 0
        }
    }

    private enum Course {
        case refused(RehearsalError)
        /// A signal came before the command: the exit status.
        case over(Int32)
        case notStarted(String, Int32)
        case ended(RehearsalDisplay)
    }

    private func refuse(_ error: RehearsalError) -> Int32 {
        Program.report(
            CommandFailure(.refused, catalog.text("the rehearsal cannot begin: %1$s", catalog.sentence(error.message))), json: json
        ).rawValue
    }

    private func course(of run: RehearsalRun, _ command: [[CChar]]) async -> Course {
        do throws(RehearsalError) { try await run.begin() } catch {
            return run.interrupt.map { .over(128 | $0) } ?? .refused(error)
        }
        switch await run.run(command) {
        case .interrupted(let signal): return .over(128 | signal)
        case .notStarted(let reason, let status): return .notStarted(reason, status)
        case .ended(let status):
            var display = RehearsalDisplay(scenario: scenario, status: status, report: run.report)
            // A call would start a service that nobody has called.
            if !display.report.calls.isEmpty {
                do throws(ClientError) { display.found = try await DownloaderClient.connect(to: run.address).describe() } catch {
                    display.complaints.append("the service does not tell its downloads: \(error.message)")
                }
            }
            if let failure = run.failure { display.complaints.append(failure) }
            return .ended(display)
        }
    }
}
