internal import DBus
internal import DownloaderInterface
internal import Glibc
internal import TestSupport

/// A client of `examples/python`, `shell`, `javascript`, `swift`, `rust` or `generated-clients`:
/// `PROGRAM [--again | --cancel] URL [FOLDER]`.
enum ExampleClient: String, CaseIterable, Sendable {
    case gdbus = "Gdbus"
    case dasbus = "Dasbus"
    case module = "Module"
    case shell = "Shell"
    case javaScript = "JavaScript"
    case swift = "Swift"
    case rust = "Rust"
    case glib = "Glib"
    case qt = "Qt"

    /// The clients to try: the one in Rust if `meson-helpers/try-rust-client` has built it, else all others. So no other test needs Cargo.
    static let tried: [ExampleClient] = getenv("TODOKU_RUST_CLIENT") == nil ? allCases.filter { $0 != .rust } : [.rust]

    private var command: [String] {
        get async throws {
            let examples = "\(repository)/examples"
            return switch self {
            case .gdbus, .dasbus, .module: [ExampleApp.python, "\(examples)/python/\(rawValue.lowercased())_client.py"]
            case .shell: ["\(examples)/shell/client.sh"]
            case .javaScript: ["\(examples)/javascript/client.js"]
            case .swift: [builtProgram("swift-client", variable: "TODOKU_SWIFT_CLIENT")]
            case .rust: [builtProgram("todoku-client", variable: "TODOKU_RUST_CLIENT")]
            case .glib: [try await GeneratedClient.glibProgram()]
            case .qt: [try await GeneratedClient.qtProgram()]
            }
        }
    }

    /// What it needs to run: Debian packages, or a program that is built.
    var packages: String {
        switch self {
        case .gdbus, .module: "packages python3-gi"
        case .dasbus: "packages python3-dasbus"
        case .shell: "packages libglib2.0-bin, systemd"
        case .javaScript: "packages gjs"
        case .swift: "the product swift-client"
        case .rust: "meson-helpers/try-rust-client"
        case .glib: "packages libglib2.0-0"
        case .qt: "packages libqt5dbus5"
        }
    }

    /// The path of its downloads, without the token.
    var path: String { "\(BusName.tokensPath)/\(ObjectPath.escape("org.example.\(rawValue)Client"))" }

    /// - Parameter prefix: a command that gets the program and its arguments.
    /// - Throws: if the client cannot be compiled.
    func start(_ arguments: String..., prefix: [String] = [], in world: ServiceWorld) async throws -> Child {
        // Otherwise Python would write its bytecode of the module into the repository.
        let environment = world.environment.merging(["PYTHONDONTWRITEBYTECODE": "1"]) { $1 }
        return Child(prefix + (try await command) + arguments, environment: environment)
    }

    /// The file that its tests download.
    static let body = patternBytes(1_000_000)

    /// A server whose first response stops after 400,000 bytes until the gate opens. Each later response is whole.
    static func stoppingServer(_ gate: Gate) -> ScriptedServer {
        ScriptedServer { request, reply in
            guard request.number == 0 else { return reply.respond(200, body: body) }
            reply.head(200, length: body.count)
            reply.send(body[..<400_000])
            reply.send(reply.trickle(body[400_000...], by: 50, until: gate))
            reply.close()
        }
    }
}
