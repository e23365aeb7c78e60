import DBus
import DownloaderInterface
import EventLoop
import Glibc
import PushInterface
import TestSupport
import Testing

/// A private session with our programs, which the bus starts, and what a push needs beside them.
final class PushWorld: Sendable {
    static let todokud = builtProgram("todokud", variable: "TODOKUD")
    static let program = builtProgram("todoku-push", variable: "TODOKU_PUSH")
    static let app = "org.example.Picture"
    /// The seconds for which a message is valid, in one run of a test after another (`inTime`). On a busy machine, half a minute may pass
    /// between two steps.
    static let validities: [UInt64] = [20, 50]
    static let tooSlow: Comment = "the steps before the end of the message took longer than 50 seconds"

    let bus: PrivateBus
    /// A connection of the test itself.
    let connection: Connection
    /// The folder for files.
    let folder: String

    /// - Parameters:
    ///   - idleExit: the seconds after which an idle todoku-push exits.
    ///   - hasService: whether the bus can start the download service.
    init(idleExit: Int = 3600, hasService: Bool = true, names: [String: String] = [:]) async throws {
        let proxies = ["http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"]
        var names = names
        names[Push.busName] = Self.command(idleExit: idleExit)
        if hasService { names[BusName.service] = Self.serviceCommand }
        let bus = await PrivateBus(activatable: names, extra: Dictionary(uniqueKeysWithValues: proxies.map { ($0, "") }))
        self.bus = bus
        folder = bus.folder.makeFolder("files")
        connection = try await Self.connect(bus.address)
    }

    static let serviceCommand = "\(todokud) --idle-exit 3600"

    private static func command(idleExit: Int) -> String { "\(program) --idle-exit \(idleExit) --log-level info" }

    /// Has the bus start todoku-push with more variables in its environment, from its next start on.
    func setEnvironment(_ variables: [String: String]) async {
        let words = variables.map { "\($0.key)=\($0.value)" }.sorted().joined(separator: " ")
        await bus.makeActivatable(Push.busName, "/usr/bin/env \(words) \(Self.command(idleExit: 3600))")
    }

    @BusActor private static func connect(_ address: String) throws -> Connection { try Connection.open(address: address) }

    /// The folder of registrations and messages.
    var state: String { bus.folder("state/todoku/push") }

    func call<In: Sendable, Out: Sendable>(_ method: MethodOf<In, Out>, _ arguments: In) async throws -> Out {
        try await connection.call(method, on: Push.busName, at: Push.path, arguments, timeout: .seconds(60))
    }

    /// The error that a call is answered with; nil: none.
    func error<In: Sendable, Out: Sendable>(_ method: MethodOf<In, Out>, _ arguments: In) async -> DBusError? {
        do {
            _ = try await call(method, arguments)
            return nil
        } catch { return error as? DBusError ?? DBusError("", "\(error)") }
    }

    /// Options that let files come from `ScriptedServer`.
    func options(_ more: [String: Variant] = [:]) -> [String: Variant] {
        [
            "hosts": .strings(["127.0.0.1"]), "allow-private": .bool(true), "directory": .string(folder),
        ].merging(more) { $1 }
    }

    func register(_ name: String = "picture", _ more: [String: Variant] = [:]) async throws -> [String: Variant] {
        try await call(Push.register, (Self.app, name, options(more)))
    }

    /// As `register`, but waits for the endpoint however long the distributor takes. `Register` waits for 10 seconds, and then answers
    /// without one.
    func registered(_ name: String = "picture", _ more: [String: Variant] = [:]) async throws -> [String: Variant] {
        let answer = try await register(name, more)
        guard answer["endpoint"] == .string("") else { return answer }
        #expect(try await eventually { try await entry(name)["endpoint"] != .string("") }, "\(answer)")
        return try await register(name, more)
    }

    /// The registration `name` in the list.
    func entry(_ name: String = "picture") async throws -> [String: Variant] {
        try #require(try await call(Push.list, Self.app).first { $0["name"] == .string(name) })
    }

    /// Waits until the app `app` has answered all messages of its registration `name`. An app that has not answered within 25 seconds is
    /// called again after a minute.
    func hasAnswered(_ app: String, _ name: String) async -> Bool {
        await eventually(within: .seconds(180)) {
            let list = try? await call(Push.list, app)
            return list?.first { $0["name"] == .string(name) }?["waiting"] == .uint32(0)
        }
    }

    func refused(_ name: String = "picture") async throws -> [String: UInt64] {
        guard case .dictionary("s", "t", let entries)? = try await entry(name)["refused"] else { return [:] }
        return Dictionary(uniqueKeysWithValues: entries.map { ($0.key.string ?? "", $0.value.uint64 ?? 0) })
    }

    // MARK: Programs beside

    /// Starts a distributor, and waits for its name.
    func distributor(_ name: String = "test", versions: [Int] = [1, 2]) async -> Child {
        let child = Child(
            ["\(repository)/Tests/Hosts/unifiedpush-distributor", name] + versions.map { "\($0)" }, environment: bus.environment)
        let isReady = await eventually { child.output.contains("ready\n") || !child.isRunning }
        #expect(isReady && child.isRunning, "package python3-gi: \(child.errors)")
        return child
    }

    /// Sends a message to an endpoint as an app's server does; encrypted if the registration has version 2.
    func send(_ message: String, to registration: [String: Variant], isEncrypted: Bool? = nil) async {
        let endpoint = registration["endpoint"]?.string ?? ""
        var arguments = ["\(repository)/Tests/Hosts/push-server", endpoint, message]
        if isEncrypted ?? (registration["version"] == .uint32(2)) {
            arguments += [registration["public-key"]?.string ?? "", registration["auth-secret"]?.string ?? ""]
        }
        let exit = await Child.run(arguments, environment: bus.environment)
        #expect(exit.output == "201\n", "package python3-cryptography: \(exit)")
    }

    /// The process of todoku-push, which is started if it does not run.
    func process() async -> Int32? {
        // A process that is being killed may still get the call.
        _ = await eventually { await error(Push.list, "") == nil }
        return await bus.process(of: Push.busName)
    }

    /// The names of the records of registrations on disk.
    var registrationFiles: [String] { wholeFiles(in: "registrations") }
    /// The names of the records of messages on disk.
    var messageFiles: [String] { wholeFiles(in: "messages") }

    /// A file that is being written, or was when the program was killed, has another name, and does not count.
    private func wholeFiles(in folder: String) -> [String] { listFolder("\(state)/\(folder)").filter { !$0.hasPrefix(".new-") } }

    /// Changes the record of the only message on disk. For as long as the program does not run.
    func changeMessage(_ change: (inout [String: Variant]) -> Void) throws {
        let name = try #require(messageFiles.first)
        let path = "\(state)/messages/\(name)"
        var record = try #require(Message.value([String: Variant].self, from: readFile(path) ?? []))
        change(&record)
        writeFile(path, Message.bytes(of: record))
    }

    /// Kills todoku-push, as a crash does.
    func kill() async { #expect(await bus.end(Push.busName, by: SIGKILL)) }
}

/// The lines that a distributor has printed.
extension Child {
    func lines(_ start: String) -> [String] { output.split(separator: "\n").map(String.init).filter { $0.hasPrefix(start) } }

    /// The token of a registration that got an endpoint. Output arrives on a thread of its own, so wait for it.
    ///
    /// - Parameter known: the tokens before. A registration may get its endpoint more than once.
    func token(after known: Set<String> = []) async -> String {
        var token: String?
        let isThere = await eventually {
            token = lines("endpoint ").map { String($0.split(separator: " ")[1]) }.first { !known.contains($0) }
            return token != nil
        }
        #expect(isThere, "no endpoint but those of \(known)")
        return token ?? ""
    }

    /// Waits until so many messages were answered by the connector.
    func delivered(_ count: Int) async -> Bool {
        await eventually { lines("delivered Message").count + lines("undelivered Message").count >= count }
    }
}

/// A file on a server, and the messages about it.
struct Served: Sendable {
    let bytes: [UInt8]
    let sha256: String
    let server: ScriptedServer

    /// - Parameter gate: the server sends the file once this is open; nil: at once.
    init(_ count: Int = 100_000, seed: UInt64 = 1, type: String = "image/png", gate: Gate? = nil) async {
        let bytes = patternBytes(count, seed: seed)
        self.bytes = bytes
        let folder = TemporaryFolder("todoku-sum")
        writeFile(folder("file"), bytes)
        sha256 = String(await Child.run(["sha256sum", folder("file")]).output.prefix(64))
        server = ScriptedServer { request, reply in
            guard let gate, request.range == nil else { return reply.serve(bytes, for: request, type: type) }
            reply.head(200, ["Content-Type": type, "Accept-Ranges": "bytes"], length: bytes.count)
            reply.send(reply.trickle(bytes, by: 10, until: gate))
        }
    }

    var url: String { server.url("/picture.png") }

    /// The message about the file, with other members.
    func message(_ more: [String: String?] = [:]) -> String {
        var members: [String: String?] = [
            "url": "\"\(url)\"", "sha256": "\"\(sha256)\"", "size": "\(bytes.count)", "valid-until": "\(wallClock() / 1_000_000 + 3600)",
        ]
        members.merge(more) { $1 }
        return "{" + members.compactMap { key, value in value.map { "\"\(key)\": \($0)" } }.sorted().joined(separator: ", ") + "}"
    }
}

/// An app that runs, and is called.
@BusActor final class AppStandIn: ObjectTree {
    struct Called: Equatable, Sendable {
        var action = ""
        var name = ""
        var result = ""
        var path = ""
        var details: [String: Variant] = [:]
        /// The bytes at the path, at the time of the call.
        var bytes: [UInt8]?
    }

    private static let face = Face<AppStandIn>(
        Application.interface, xml: { "" },
        methods: [
            Row(Application.activateAction) { app, arguments, reply in
                app.take(arguments.0, arguments.1)
                if app.answers { reply() } else { app.unanswered.append(reply) }
            }
        ])

    private let connection: Connection
    private let path: String
    private var unanswered: [DBus.Reply<Void>] = []
    var answers = true
    private(set) var calls: [Called] = []

    init(_ world: PushWorld, _ name: String = PushWorld.app) throws {
        path = BusName.applicationPath(name).value
        connection = try Connection.open(address: world.bus.address)
        connection.export(self)
        guard try connection.requestName(name) else { throw DBusError.failed("\(name) has an owner") }
    }

    private func take(_ action: String, _ parameters: [Variant]) {
        guard case .structure(let fields)? = parameters.first, fields.count == 4 else { return calls.append(Called(action: action)) }
        let path = fields[2].string ?? ""
        calls.append(
            Called(
                action: action, name: fields[0].string ?? "", result: fields[1].string ?? "", path: path,
                details: fields[3].vardict ?? [:], bytes: readFile(path)))
    }

    /// A message may be valid for most of a minute, and its file may be asked for again after a minute.
    func wasCalled(_ count: Int = 1) async -> Bool { await eventually(within: .seconds(120)) { calls.count >= count } }

    func faces(at path: String, for caller: CallerIdentity) -> [BoundFace]? { path == self.path ? [Self.face.of(self)] : nil }
    func children(of path: String, limit: Int, for caller: CallerIdentity) -> [String] { [] }
}
