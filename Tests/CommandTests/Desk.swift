import Glibc
import TestSupport
import Testing

/// A session with the service, activatable, and the command: the programs that TODOKU and TODOKUD name, else those beside the tests.
struct Desk {
    let bus: PrivateBus
    let environment: [String: String]

    /// - Parameters:
    ///   - tools: scripts put first in PATH, by name.
    ///   - extra: more of the environment.
    init(hasService: Bool = true, tools: [String: String] = [:], extra: [String: String] = [:]) async {
        let service = Desk.program("todokud", "TODOKUD")
        let home = TemporaryFolder("todoku-tools")
        for (name, text) in tools { writeFile(home(name), text.utf8, mode: 0o755) }
        let path = home.path + ":" + (currentEnvironment()["PATH"] ?? "/usr/bin:/bin")
        bus = await PrivateBus(
            activatable: hasService ? ["org.todoku.Downloader1": service] : [:],
            extra: ["PATH": path, "TERM": "xterm", "no_proxy": extra["http_proxy"] == nil ? "*" : ""].merging(extra) { $1 })
        environment = bus.environment
        self.tools = home
    }
    private let tools: TemporaryFolder

    static let command = program("todoku", "TODOKU")

    private static func program(_ name: String, _ variable: String) -> String {
        if let path = getenv(variable) { return String(cString: path) }
        var buffer = [CChar](repeating: 0, count: 4096)
        let count = readlink("/proc/self/exe", &buffer, buffer.count - 1)
        let own = String(decoding: buffer[..<max(0, count)].map { UInt8(bitPattern: $0) }, as: UTF8.self)
        let beside = String(own[..<(own.lastIndex(of: "/") ?? own.startIndex)]) + "/" + name
        precondition(fileExists(beside), "there is no \(beside); build \(name), or name it by \(variable)")
        return beside
    }

    /// The folder that files go to by default.
    var downloads: String { bus.folder("home/Downloads") }

    func start(_ arguments: [String]) -> Child { Child([Desk.command] + arguments, environment: environment, folder: bus.folder.path) }

    func run(_ arguments: String...) async -> Child.Exit { await start(arguments).wait() }

    /// The service's process, or nil where none runs.
    func serviceProcess() async -> Int32? { await bus.process(of: "org.todoku.Downloader1") }

    /// Takes what it has made with it, before the bus's folder goes.
    func close() async {
        let process = await serviceProcess()
        await bus.stop()
        if let process { _ = await eventually { hasEnded(process) } }
    }
}

extension Child {
    /// Waits until `text` has been written to standard output.
    func says(_ text: String) async -> Bool { await eventually { output.contains(text) || !isRunning } && output.contains(text) }
    func complains(_ text: String) async -> Bool { await eventually { errors.contains(text) || !isRunning } && errors.contains(text) }
}

extension Child.Exit {
    /// Whether it ended with 0, with just `output` and no complaint.
    func succeeded(saying output: String) -> Bool { status == 0 && self.output == output && errors == "" }
}
