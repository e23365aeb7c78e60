import EventLoop
import Glibc
import TestSupport
import Testing

/// A session with an activatable service, and the command. TODOKU and TODOKUD may name the programs; by default they are beside the tests.
struct Desk {
    let bus: PrivateBus
    let environment: [String: String]

    /// - Parameters:
    ///   - tools: scripts by name, whose folder is the first in PATH.
    ///   - extra: additional environment variables.
    ///   - isFirstRun: whether the command has never run at a terminal before. Then it says once how to change the language of toasts.
    init(
        hasService: Bool = true, tools: [String: String] = [:], extra: [String: String] = [:], isFirstRun: Bool = false
    ) async {
        // On a busy machine, half a minute may pass between two commands of a test. The service must not leave meanwhile.
        let service = "\(Desk.service) --idle-exit 3600"
        let home = TemporaryFolder("todoku-tools")
        for (name, text) in tools { writeFile(home(name), text.utf8, mode: 0o755) }
        let path = home.path + ":" + (processEnvironment()["PATH"] ?? "/usr/bin:/bin")
        bus = await PrivateBus(
            activatable: hasService ? ["org.todoku.Downloader1": service] : [:],
            extra: ["PATH": path, "TERM": "xterm", "no_proxy": extra["http_proxy"] == nil ? "*" : ""].merging(extra) { $1 })
        environment = bus.environment
        self.tools = home
        if !isFirstRun {
            bus.folder.makeFolder("state/todoku")
            writeFile(bus.folder("state/todoku/language-hint"), [])
        }
    }
    private let tools: TemporaryFolder

    static let command = program("todoku", "TODOKU")
    static let service = program("todokud", "TODOKUD")

    private static func program(_ name: String, _ variable: String) -> String {
        if let path = getenv(variable) { return String(cString: path) }
        var buffer = [CChar](repeating: 0, count: 4096)
        let count = readlink("/proc/self/exe", &buffer, buffer.count - 1)
        let own = String(decoding: buffer[..<max(0, count)].map { UInt8(bitPattern: $0) }, as: UTF8.self)
        let beside = String(own[..<(own.lastIndex(of: "/") ?? own.startIndex)]) + "/" + name
        precondition(fileExists(beside), "there is no \(beside); build \(name), or name it by \(variable)")
        return beside
    }

    /// What the command says of a number or a name that nothing has.
    static func noDownload(_ number: Int) -> String { "there is no download \(number); “todoku list --all” shows all downloads" }
    static func noBatch(_ number: Int) -> String { "there is no batch \(number); “todoku list --all” shows all batches" }
    static func noAsset(_ name: String) -> String { "there is no asset \(name); “todoku asset list” shows all assets" }

    /// What the command says once at a terminal of script(1) if an answer of the service takes more than 5 s. On a busy machine, any answer
    /// may take so long.
    static let slowNotice = "todoku: the download service has not answered yet; waiting for a minute at most\r\n"

    /// The default download folder.
    var downloads: String { bus.folder("home/Downloads") }

    func start(_ arguments: [String]) -> Child { Child([Desk.command] + arguments, environment: environment, folder: bus.folder.path) }

    /// Runs the command again while the service refuses a download because a folder did not answer in time. On a busy machine, the thread
    /// that looks at the folder may not run for five seconds. Of several URLs, some may be queued, so such a command is not repeated.
    func run(_ arguments: String...) async -> Child.Exit {
        await repeated {
            await start(arguments).wait()
        } until: {
            $0.status != 3 || arguments.count { $0.contains("://") } > 1
                || !($0.errors + $0.output).contains(" did not answer within 5 seconds")
        }
    }

    /// Runs the command without a session. It speaks English, whatever the language of this process, unless `variables` say otherwise.
    static func runAlone(_ arguments: [String], _ variables: [String: String] = [:]) async -> Child.Exit {
        let own = ["LC_ALL": "C.UTF-8", "LANGUAGE": "", "COLUMNS": "80"].merging(variables) { $1 }
        return await Child.run([Desk.command] + arguments, environment: processEnvironment().merging(own) { $1 })
    }

    /// The service's process; nil if the service is not running.
    func serviceProcess() async -> Int32? { await bus.process(of: "org.todoku.Downloader1") }

    /// Stops the session, and waits for the service's end before the bus's folder is removed.
    func close() async {
        let process = await serviceProcess()
        await bus.stop()
        if let process { _ = await eventually { hasEnded(process) } }
    }
}

/// The calls that a monitor has seen.
struct Calls: Sendable {
    private let monitor: Child

    init(of desk: Desk) async {
        monitor = Child(["dbus-monitor", "--session", "--profile"], environment: desk.environment)
        let isReady = await eventually { [monitor] in monitor.output.contains("NameLost") }
        #expect(isReady, "package dbus-bin: \(monitor.errors)")
    }

    /// The number of calls of `method`.
    ///
    /// - Parameters:
    ///   - path: the object that is called; nil: any.
    ///   - caller: the unique name of the program that calls; nil: any.
    func count(_ method: String, at path: String? = nil, by caller: String? = nil) -> Int {
        all(method).count { (path == nil || $0.path == path) && (caller == nil || $0.caller == caller) }
    }

    /// The unique name of the first program that has called `method`; nil: none has.
    func caller(of method: String) -> String? { all(method).first?.caller }

    /// The calls of `method`, in their order on the bus. A line ends with the path, the interface and the method.
    private func all(_ method: String) -> [(caller: String, path: String)] {
        monitor.output.split(separator: "\n").compactMap { line -> (caller: String, path: String)? in
            let fields = line.split(separator: "\t").map(String.init)
            guard fields.first == "mc", fields.last == method, let caller = fields.first(where: { $0.hasPrefix(":") }) else { return nil }
            return (caller, fields[fields.count - 3])
        }
    }
}

/// A server of files of 1,000 bytes. It sends the first `count` bytes of a file, and the rest once `gate` is open.
func slowServer(after count: Int = 500, until gate: Gate) -> ScriptedServer {
    ScriptedServer { _, reply in
        reply.head(200, length: 1000)
        reply.send([UInt8](repeating: 1, count: count))
        gate.wait()
        reply.send([UInt8](repeating: 1, count: 1000 - count))
    }
}

extension Child {
    /// Waits until `text` has been written to standard output.
    func says(_ text: String) async -> Bool { await eventually { output.contains(text) || !isRunning } && output.contains(text) }
    func complains(_ text: String) async -> Bool { await eventually { errors.contains(text) || !isRunning } && errors.contains(text) }
}

extension Child.Exit {
    /// Whether the command exited with 0, and wrote only `output`, and no error.
    func succeeded(saying output: String) -> Bool { status == 0 && self.output == output && errors == "" }
}
