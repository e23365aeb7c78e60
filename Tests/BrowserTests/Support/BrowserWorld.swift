import DBus
import DownloaderInterface
import EventLoop
import Glibc
import TestSupport
import Testing

/// A private session whose bus can start the service, and todoku-browser as browsers start it.
final class BrowserWorld: Sendable {
    static let program = builtProgram("todoku-browser", variable: "TODOKU_BROWSER")
    static let todokud = builtProgram("todokud", variable: "TODOKUD")
    /// The arguments with which each browser starts the program for our extension.
    static let chromium = ["chrome-extension://cacmadanedhfdkjbogobdmpkjcncenap/"]
    static let firefox = ["/usr/lib/mozilla/native-messaging-hosts/org.todoku.browser.json", "browser@todoku.org"]

    /// What the program did with a whole input.
    struct Session {
        let status: Int32
        let answers: [JSON]
        let errors: String
    }

    /// What the program wrote is not a stream of messages.
    struct NoAnswers: Error { let stream: String }

    let bus: PrivateBus
    /// A connection of the test itself.
    let connection: Connection

    /// - Parameter hasService: whether the bus can start the service.
    init(hasService: Bool = true) async throws {
        let bus = await PrivateBus(
            activatable: hasService ? [BusName.service: "\(Self.todokud) --idle-exit 3600"] : [:], extra: ["no_proxy": "*"])
        self.bus = bus
        connection = try await Self.connect(bus.address)
    }

    @BusActor private static func connect(_ address: String) throws -> Connection { try Connection.open(address: address) }

    /// Runs the program with `input` as its whole standard input.
    func run(_ input: [UInt8], as arguments: [String] = BrowserWorld.chromium, extra: [String: String] = [:]) async throws -> Session {
        let folder = TemporaryFolder("todoku-browser")
        writeFile(folder("in"), input)
        let exit = await start(arguments, input: folder("in"), output: folder("out"), extra: extra).wait()
        return Session(status: exit.status, answers: try Self.answers(in: readFile(folder("out")) ?? []), errors: exit.errors)
    }

    /// As `run`, for messages.
    func run(_ messages: [String], as arguments: [String] = BrowserWorld.chromium) async throws -> Session {
        try await run(messages.flatMap { framed($0) }, as: arguments)
    }

    /// Starts the program with these files as its standard input and output. Its output is bytes, which `Child` would take for a text.
    func start(_ arguments: [String], input: String, output: String, extra: [String: String] = [:]) -> Child {
        let command = #"in=$1 out=$2; shift 2; exec "$@" <"$in" >"$out""#
        return Child(
            ["sh", "-c", command, "sh", input, output, Self.program] + arguments, environment: bus.environment.merging(extra) { $1 })
    }

    /// The messages in a stream of the program. The stream must consist of whole messages of valid JSON.
    static func answers(in stream: [UInt8]) throws -> [JSON] {
        var rest = stream[...]
        var answers: [JSON] = []
        while !rest.isEmpty {
            let count = Int(rest.prefix(4).reversed().reduce(UInt32(0)) { $0 << 8 | UInt32($1) })
            let text = String(decoding: rest.dropFirst(4).prefix(count), as: UTF8.self)
            guard rest.count >= 4, count <= 1 << 20, rest.count - 4 >= count, let answer = JSON(text) else {
                throw NoAnswers(stream: String(decoding: stream, as: UTF8.self))
            }
            answers.append(answer)
            rest = rest.dropFirst(4 + count)
        }
        return answers
    }

    func property<V>(_ property: PropertyOf<V>, of path: ObjectPath) async throws -> V? {
        let value = try await connection.call(
            Standard.get, on: BusName.service, at: path, (property.interface, property.name), timeout: .seconds(60))
        return V(value)
    }

    /// The final path of a download, once it has finished.
    func file(of path: ObjectPath) async throws -> String {
        try await connection.call(Download.wait, on: BusName.service, at: path, [:], timeout: .seconds(60))
    }

    /// The downloads on the list.
    func downloads() async throws -> [ObjectPath] {
        try await connection.call(Manager.list, on: BusName.service, at: BusName.managerPath, [:], timeout: .seconds(60))
    }
}

/// A message with its length before it, as a browser on this machine (little-endian) sends it.
func framed(_ text: String) -> [UInt8] { framed(length: UInt32(text.utf8.count)) + Array(text.utf8) }

/// Only the length.
func framed(length: UInt32) -> [UInt8] { (0..<4).map { UInt8(truncatingIfNeeded: length >> (8 * $0)) } }

extension JSON {
    /// The object path in an answer.
    var path: ObjectPath? { self["download"]?.string.map { ObjectPath($0) } }
    /// The name and the sentence of an error; nil: the answer is no error.
    var error: (name: String, message: String)? {
        guard self["type"] == .string("error"), let name = self["name"]?.string, let message = self["message"]?.string else { return nil }
        return (name, message)
    }
}
