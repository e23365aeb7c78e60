internal import DBus
public import EventLoop
internal import Glibc

// Stand-ins for the programs that show and open files, each on a connection of its own. So no test opens a window on the machine where it
// runs.

/// One object.
@BusActor private final class FileObject: ObjectTree {
    private let path: String
    private let found: @BusActor () -> [BoundFace]
    init(_ path: String, _ found: @escaping @BusActor () -> [BoundFace]) { (self.path, self.found) = (path, found) }
    func faces(at path: String, for caller: CallerIdentity) -> [BoundFace]? { path == self.path ? found() : nil }
    func children(of path: String, limit: Int, for caller: CallerIdentity) -> [String] { [] }
}

/// A file manager (org.freedesktop.FileManager1) that records its calls.
@BusActor public final class StandInFileManager {
    private static let interface = "org.freedesktop.FileManager1"
    private static let face = Face<StandInFileManager>(
        interface, xml: { "" },
        methods: [
            Row(MethodOf(interface, "ShowItems", in: [String].self, String.self)) { manager, arguments, reply in
                try manager.take("items", arguments.0, arguments.1, reply)
            },
            Row(MethodOf(interface, "ShowFolders", in: [String].self, String.self)) { manager, arguments, reply in
                try manager.take("folders", arguments.0, arguments.1, reply)
            },
        ])

    private let connection: Connection
    /// The calls so far, as ["items", URI, token].
    public private(set) var shown: [[String]] = []
    /// The methods that it lacks, such as "items".
    public var lacks: Set<String> = []
    /// It receives calls, and answers none.
    public var hangs = false
    private var unanswered: [DBus.Reply<Void>] = []

    public init(on address: String) throws {
        connection = try Connection.open(address: address)
        connection.export(FileObject("/org/freedesktop/FileManager1") { [weak self] in self.map { [Self.face.of($0)] } ?? [] })
        guard try connection.requestName(Self.interface) else { throw DBusError.failed("\(Self.interface) has an owner") }
    }

    private func take(_ what: String, _ uris: [String], _ token: String, _ reply: DBus.Reply<Void>) throws {
        guard !lacks.contains(what) else { throw DBusError.unknownMethod("no \(what)") }
        shown.append([what] + uris + [token])
        if hangs { unanswered.append(reply) } else { reply() }
    }
}

/// A desktop portal that opens files and pages, if the test wants it to.
@BusActor public final class StandInFilePortal {
    private static let openURI = "org.freedesktop.portal.OpenURI"
    private static let opening = Face<StandInFilePortal>(
        openURI, xml: { "" },
        methods: [
            Row(
                MethodOf(
                    openURI, "OpenFile", in: String.self, FileDescriptor.self, [String: Variant].self, out: ObjectPath.self)
            ) { portal, arguments, reply in try portal.open("file", arguments.1, arguments.2, reply) },
            Row(
                MethodOf(
                    openURI, "OpenDirectory", in: String.self, FileDescriptor.self, [String: Variant].self, out: ObjectPath.self)
            ) { portal, arguments, reply in try portal.open("directory", arguments.1, arguments.2, reply) },
            Row(
                MethodOf(openURI, "OpenURI", in: String.self, String.self, [String: Variant].self, out: ObjectPath.self)
            ) { portal, arguments, reply in try portal.open("page", arguments.1, arguments.2, reply) },
        ])

    private let connection: Connection
    /// The calls so far, as ["directory", path, token] or ["page", URL, token].
    public private(set) var opened: [[String]] = []
    /// Whether it opens files and pages; otherwise it refuses.
    public var opens = true

    public init(on address: String) throws {
        connection = try Connection.open(address: address)
        connection.export(
            FileObject("/org/freedesktop/portal/desktop") { [weak self] in
                self.map { [Self.opening.of($0)] } ?? []
            })
        guard try connection.requestName("org.freedesktop.portal.Desktop") else { throw DBusError.failed("the portal's name has an owner") }
    }

    private func open(_ what: String, _ file: FileDescriptor, _ options: [String: Variant], _ reply: DBus.Reply<ObjectPath>) throws {
        try open(what, Self.path(of: file), options, reply)
    }

    private func open(_ what: String, _ target: String, _ options: [String: Variant], _ reply: DBus.Reply<ObjectPath>) throws {
        guard opens else { throw DBusError.failed("nothing opens it") }
        opened.append([what, target, options["activation_token"]?.string ?? ""])
        reply(ObjectPath("/org/freedesktop/portal/desktop/request/1"))
    }

    private static func path(of file: FileDescriptor) -> String {
        var bytes = [CChar](repeating: 0, count: Int(PATH_MAX))
        let count = readlink("/proc/self/fd/\(file.number)", &bytes, bytes.count)
        return String(decoding: bytes.prefix(max(0, count)).map { UInt8(bitPattern: $0) }, as: UTF8.self)
    }
}

/// An `xdg-open` for PATH that opens nothing, and records each requested path with its token.
public struct StandInOpener: Sendable {
    private let tools = TemporaryFolder("todoku-opener")

    public init() {
        let script = """
            #!/bin/sh
            printf '%s|%s|%s\\n' "$1" "$XDG_ACTIVATION_TOKEN" "$DESKTOP_STARTUP_ID" >> \(tools("opened"))
            """
        writeFile(tools("xdg-open"), script.utf8, mode: 0o755)
    }

    /// A PATH with this opener first.
    public var path: String { "\(tools.path):\(processEnvironment()["PATH"] ?? "/usr/bin:/bin")" }

    /// The requests so far, as "path|token|startup id", in order.
    public var opened: [String] {
        String(decoding: readFile(tools("opened")) ?? [], as: UTF8.self).split(separator: "\n").map(String.init)
    }

    /// Waits until `count` files have been opened.
    public func hasOpened(_ count: Int) async -> Bool { await eventually { opened.count >= count } && opened.count == count }
}
