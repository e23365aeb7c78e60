internal import CSystem
public import DBus
public import EventLoop
internal import Glibc

// Stand-ins for parts of a desktop, on a test's private buses. Each has the interface and the name of the real program, and a connection of
// its own. They simulate events that a test cannot cause in the real programs: logind puts no machine to sleep for us, and NetworkManager
// finds no captive portal. `RealHostTests` tests the real programs.

/// One object with one interface.
@BusActor final class OneObject: ObjectTree {
    private let path: String
    private let found: @BusActor () -> [BoundFace]
    init(_ path: String, _ found: @escaping @BusActor () -> [BoundFace]) { (self.path, self.found) = (path, found) }
    func faces(at path: String, for caller: CallerIdentity) -> [BoundFace]? { path == self.path ? found() : nil }
    func children(of path: String, limit: Int, for caller: CallerIdentity) -> [String] { [] }
}

/// logind, as far as it grants locks and reports sleep.
@BusActor public final class StandInLogind: Sendable {
    public nonisolated static let name = "org.freedesktop.login1"
    private static let interface = "org.freedesktop.login1.Manager"
    private static let path = ObjectPath("/org/freedesktop/login1")
    private static let prepareForSleep = SignalOf(interface, "PrepareForSleep", Bool.self)
    private static let face = Face<StandInLogind>(
        interface, xml: { "" },
        methods: [
            Row(MethodOf(interface, "Inhibit", in: String.self, String.self, String.self, String.self, out: FileDescriptor.self)) {
                object, terms, reply in try object.inhibit(what: terms.0, who: terms.1, mode: terms.3, reply)
            }
        ])

    private let connection: Connection
    private var watches: [Int32: (mode: String, token: Poller.Token)] = [:]
    /// Modes of locks that are refused.
    public var refused: Set<String> = []
    /// The requested locks so far, as "sleep Todoku block".
    public private(set) var asked: [String] = []
    /// Called at the moment when a lock is released, with its mode.
    public var released: (String) -> Void = { _ in }

    public init(on address: String) throws {
        connection = try Connection.open(address: address)
        connection.export(OneObject(Self.path.value) { [weak self] in self.map { [Self.face.of($0)] } ?? [] })
        try appear()
    }

    isolated deinit { for end in watches.keys { forget(end) } }

    private func inhibit(what: String, who: String, mode: String, _ reply: DBus.Reply<FileDescriptor>) throws {
        asked.append("\(what) \(who) \(mode)")
        guard !refused.contains(mode) else { throw DBusError("org.freedesktop.DBus.Error.AccessDenied", "Permission denied") }
        var ends: [Int32] = [0, 0]
        guard todoku_pipe(&ends) == 0 else { throw DBusError.failed("pipe") }
        reply(FileDescriptor(ends[1]))
        close(ends[1])
        let end = ends[0]
        // The other end is closed, by its holder or with its process.
        let token = Poller.shared.watch(end, for: .hangUp) { [weak self] _ in
            self?.forget(end)
            self?.released(mode)
        }
        watches[end] = (mode, token)
    }

    private func forget(_ end: Int32) {
        guard let watch = watches.removeValue(forKey: end) else { return }
        Poller.shared.cancel(watch.token)
        close(end)
    }

    /// The modes of the locks that are held, sorted.
    public var held: [String] { watches.values.map(\.mode).sorted() }

    public func prepareForSleep(_ begins: Bool) { connection.send(Self.prepareForSleep.message(from: Self.path, begins)) }

    public func appear() throws {
        guard try connection.requestName(Self.name) else { throw DBusError.failed("\(Self.name) has an owner") }
    }

    /// Ends, as other programs see it: the name is free, and its locks are void.
    public func vanish() throws {
        try connection.releaseName(Self.name)
        for end in watches.keys { forget(end) }
    }
}

/// NetworkManager, as far as it reports the state of the network.
@BusActor public final class StandInNetworkManager: Sendable {
    public nonisolated static let name = "org.freedesktop.NetworkManager"
    private static let path = ObjectPath("/org/freedesktop/NetworkManager")
    private static let face = Face<StandInNetworkManager>(
        name, xml: { "" }, methods: [],
        properties: [
            PropertyRow(PropertyOf(name, "State", UInt32.self)) { $0.values["State"] ?? 0 },
            PropertyRow(PropertyOf(name, "Connectivity", UInt32.self)) { $0.values["Connectivity"] ?? 0 },
            PropertyRow(PropertyOf(name, "Metered", UInt32.self)) { $0.values["Metered"] ?? 0 },
            PropertyRow(PropertyOf(name, "Version", String.self)) { _ in "stand-in" },
        ])

    private let connection: Connection
    private var values: [String: UInt32]

    public init(on address: String, state: UInt32 = 70, connectivity: UInt32 = 4, metered: UInt32 = 4) throws {
        values = ["State": state, "Connectivity": connectivity, "Metered": metered]
        connection = try Connection.open(address: address)
        connection.export(OneObject(Self.path.value) { [weak self] in self.map { [Self.face.of($0)] } ?? [] })
        try appear()
    }

    /// Changes a property, and signals the change.
    public func set(_ property: String, _ value: UInt32) {
        values[property] = value
        connection.send(Standard.propertiesChanged.message(from: Self.path, (Self.name, [property: .uint32(value)], [])))
    }

    /// Changes a property without a signal.
    public func setSilently(_ property: String, _ value: UInt32) { values[property] = value }

    public func appear() throws {
        guard try connection.requestName(Self.name) else { throw DBusError.failed("\(Self.name) has an owner") }
    }

    public func vanish() throws { try connection.releaseName(Self.name) }
}

/// The interfaces Inhibit and NetworkMonitor of the desktop portal, as in xdg-desktop-portal.
@BusActor public final class StandInPortal: Sendable {
    public nonisolated static let name = "org.freedesktop.portal.Desktop"
    private static let path = "/org/freedesktop/portal/desktop"
    private static let inhibit = "org.freedesktop.portal.Inhibit"
    private static let monitor = "org.freedesktop.portal.NetworkMonitor"
    private static let request = "/org/freedesktop/portal/desktop/request/1_1/t"
    private static let faces: (Face<StandInPortal>, Face<StandInPortal>, Face<StandInPortal>) = (
        Face(
            inhibit, xml: { "" },
            methods: [
                Row(MethodOf(inhibit, "Inhibit", in: String.self, UInt32.self, [String: Variant].self, out: ObjectPath.self)) {
                    object, terms, reply in
                    object.calls.append("Inhibit \(terms.1)")
                    if object.isHanging { object.held.append { reply(ObjectPath(request)) } } else { reply(ObjectPath(request)) }
                }
            ]),
        Face(
            monitor, xml: { "" },
            methods: [Row(MethodOf(monitor, "GetStatus", out: [String: Variant].self)) { object, _, reply in reply(object.status) }]),
        Face(
            "org.freedesktop.portal.Request", xml: { "" },
            methods: [
                Row(MethodOf("org.freedesktop.portal.Request", "Close")) { object, _, reply in
                    object.calls.append("Close")
                    reply()
                }
            ])
    )

    /// The calls so far, as "Inhibit 4" and "Close".
    public private(set) var calls: [String] = []
    private var held: [@BusActor () -> Void] = []
    /// It receives calls of `Inhibit`, and answers them only when the test calls `answer`.
    public var isHanging = false
    private var status: [String: Variant] = ["available": .bool(true), "metered": .bool(false), "connectivity": .uint32(4)]
    private let connection: Connection

    public init(on address: String) throws {
        connection = try Connection.open(address: address)
        connection.export(Tree(self))
        guard try connection.requestName(Self.name) else { throw DBusError.failed("\(Self.name) has an owner") }
    }

    /// Ends, as other programs see it: the name is free.
    public func vanish() throws { try connection.releaseName(Self.name) }

    /// Answers the held calls of `Inhibit`.
    public func answer() {
        isHanging = false
        for answer in held { answer() }
        held = []
    }

    public func set(_ key: String, _ value: Variant) {
        status[key] = value
        connection.send(SignalOf(Self.monitor, "changed").message(from: ObjectPath(Self.path), ()))
    }

    private final class Tree: ObjectTree {
        private weak var portal: StandInPortal?
        init(_ portal: StandInPortal) { self.portal = portal }
        func faces(at path: String, for caller: CallerIdentity) -> [BoundFace]? {
            guard let portal else { return nil }
            return switch path {
            case StandInPortal.path: [StandInPortal.faces.0.of(portal), StandInPortal.faces.1.of(portal)]
            case StandInPortal.request: [StandInPortal.faces.2.of(portal)]
            default: nil
            }
        }
        func children(of path: String, limit: Int, for caller: CallerIdentity) -> [String] { [] }
    }
}

/// GNOME's session manager, as far as it grants locks.
@BusActor public final class StandInSessionManager: Sendable {
    private static let name = "org.gnome.SessionManager"
    private static let face = Face<StandInSessionManager>(
        name, xml: { "" },
        methods: [
            Row(MethodOf(name, "Inhibit", in: String.self, UInt32.self, String.self, UInt32.self, out: UInt32.self)) {
                object, terms, reply in
                object.calls.append("Inhibit \(terms.3)")
                guard !object.refuses else { throw DBusError("org.freedesktop.DBus.Error.AccessDenied", "Permission denied") }
                reply(77)
            },
            Row(MethodOf(name, "Uninhibit", in: UInt32.self)) { object, cookie, reply in
                object.calls.append("Uninhibit \(cookie)")
                reply()
            },
        ])
    /// The calls so far, as "Inhibit 4" and "Uninhibit 77".
    public private(set) var calls: [String] = []
    /// Whether it refuses locks.
    public var refuses = false
    private let connection: Connection

    public init(on address: String) throws {
        connection = try Connection.open(address: address)
        connection.export(OneObject("/org/gnome/SessionManager") { [weak self] in self.map { [Self.face.of($0)] } ?? [] })
        guard try connection.requestName(Self.name) else { throw DBusError.failed("\(Self.name) has an owner") }
    }
}

/// A bus that accepts connections, and never sends anything.
public final class MuteBus: Sendable {
    public let address: String
    private let descriptors: [Int32]

    /// - Parameter isFull: whether it does not even accept connections, so that connect(2) waits.
    public init(in folder: TemporaryFolder, isFull: Bool) {
        let path = folder("mute-bus")
        address = "unix:path=\(path)"
        func make() -> Int32 {
            socket(AF_UNIX, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue) | Int32(SOCK_NONBLOCK.rawValue), 0)
        }
        var name = sockaddr_un()
        name.sun_family = sa_family_t(AF_UNIX)
        withUnsafeMutableBytes(of: &name.sun_path) { $0.copyBytes(from: Array(path.utf8)) }
        func with(_ call: (UnsafePointer<sockaddr>, socklen_t) -> Int32) -> Bool {
            withUnsafePointer(to: &name) {
                $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { call($0, socklen_t(MemoryLayout<sockaddr_un>.size)) == 0 }
            }
        }
        let listener = make()
        precondition(with { bind(listener, $0, $1) } && listen(listener, isFull ? 0 : 64) == 0, "cannot listen at \(path)")
        var all = [listener]
        while isFull {
            let one = make()
            all.append(one)
            guard with({ connect(one, $0, $1) }) else { break }
        }
        descriptors = all
    }

    deinit { for descriptor in descriptors { close(descriptor) } }
}

extension BusActor {
    /// Runs `body` on the bus loop.
    public static func run(_ body: @BusActor @Sendable () -> Void) async { await onLoop(body) }
    @BusActor private static func onLoop(_ body: @BusActor @Sendable () -> Void) { body() }
}

/// A dock, as far as it receives marks of icons: it owns `com.canonical.Unity`, and shows nothing.
@BusActor public final class StandInDock: Sendable {
    public nonisolated static let name = "com.canonical.Unity"
    private static let interface = "com.canonical.Unity.LauncherEntry"
    private static let update = SignalOf(interface, "Update", String.self, [String: Variant].self)

    public struct Mark: Equatable, Sendable {
        public let uri: String
        public let sender: String
        public let path: String
        public let properties: [String: Variant]
        public let arrived: ContinuousClock.Instant

        /// nil: no count is visible.
        public var count: Int64? { properties["count-visible"]?.bool == true ? properties["count"]?.int64 : nil }
        public var progress: Double? { properties["progress-visible"]?.bool == true ? properties["progress"]?.double : nil }
        public var isBare: Bool { count == nil && progress == nil }
    }

    private let connection: Connection
    /// All received marks, in order.
    public private(set) var marks: [Mark] = []

    /// - Parameter isOwner: whether it owns the name; otherwise it only listens, unlike any dock.
    public init(on address: String, isOwner: Bool = true) async throws {
        connection = try Connection.open(address: address)
        _ = connection.subscribe(MatchRule(interface: Self.interface)) { [weak self] message in
            guard let (uri, properties) = Self.update.read(message) else { return }
            self?.marks.append(Mark(uri: uri, sender: message.sender, path: message.path, properties: properties, arrived: .now))
        }
        // The bus has the match rule once it has answered a later call.
        _ = try await connection.call(BusDaemon.nameHasOwner, on: BusDaemon.name, at: BusDaemon.path, Self.name)
        if isOwner { try appear() }
    }

    public func appear() throws {
        guard try connection.requestName(Self.name) else { throw DBusError.failed("\(Self.name) has an owner") }
    }

    public func vanish() throws { try connection.releaseName(Self.name) }
    public func forget() { marks = [] }

    /// The last mark of an icon.
    public func mark(of id: String = "org.todoku.Downloader1") -> Mark? { marks.last { $0.uri == "application://\(id).desktop" } }

    /// The answer of the emitter of `mark` to `Query`.
    public func query(_ mark: Mark) async throws -> (String, [String: Variant]) {
        let query = MethodOf(Self.interface, "Query", out: String.self, [String: Variant].self)
        return try await connection.call(query, on: mark.sender, at: ObjectPath(mark.path), (), timeout: .seconds(60))
    }

    /// Whether the emitter of `mark` is on the bus.
    public func isThere(_ mark: Mark) async throws -> Bool {
        try await connection.call(BusDaemon.nameHasOwner, on: BusDaemon.name, at: BusDaemon.path, mark.sender)
    }
}

/// KDE's job tracker as in Plasma 5.27. Each view has a path of its own, which disappears when the view is terminated.
@BusActor public final class StandInJobServer: Sendable {
    public nonisolated static let name = "org.kde.JobViewServer"
    private static let view = "org.kde.JobViewV3"
    private static let face = Face<StandInJobServer>(
        "org.kde.JobViewServerV2", xml: { "" },
        methods: [
            Row(
                MethodOf(
                    "org.kde.JobViewServerV2", "requestView", in: String.self, Int32.self, [String: Variant].self, out: ObjectPath.self)
            ) { server, terms, reply in server.make(terms.0, terms.1, terms.2, reply) }
        ])
    private static let viewFace = Face<View>(
        view, xml: { "" },
        methods: [
            Row(MethodOf(view, "update", in: [String: Variant].self)) { view, news, reply in
                view.updates.append((.now, news))
                view.properties.merge(news) { $1 }
                reply()
            },
            Row(MethodOf(view, "terminate", in: UInt32.self, String.self, [String: Variant].self)) { view, terms, reply in
                view.terminated = terms.0
                reply()
            },
        ])

    @BusActor public final class View: Sendable {
        public let path: String
        public let desktopEntry: String
        public let capabilities: Int32
        public let hints: [String: Variant]
        public fileprivate(set) var properties: [String: Variant] = [:]
        public fileprivate(set) var updates: [(at: ContinuousClock.Instant, news: [String: Variant])] = []
        /// The error code with which it was terminated.
        public fileprivate(set) var terminated: UInt32?

        fileprivate init(_ path: String, _ entry: String, _ capabilities: Int32, _ hints: [String: Variant]) {
            (self.path, desktopEntry, self.capabilities, self.hints) = (path, entry, capabilities, hints)
        }
    }

    private let connection: Connection
    private var held: [@BusActor () -> Void] = []
    /// It receives requests, and answers them only when the test calls `answer`.
    public var isHanging = false
    /// All requested views, in order; and the open ones.
    public private(set) var views: [View] = []
    public var open: [View] { views.filter { $0.terminated == nil } }

    public init(on address: String) throws {
        connection = try Connection.open(address: address)
        connection.export(Tree(self))
        try appear()
    }

    private final class Tree: ObjectTree {
        private weak var server: StandInJobServer?
        init(_ server: StandInJobServer) { self.server = server }
        func faces(at path: String, for caller: CallerIdentity) -> [BoundFace]? {
            guard let server else { return nil }
            if path == "/JobViewServer" { return [StandInJobServer.face.of(server)] }
            return server.views.first { $0.path == path && $0.terminated == nil }.map { [StandInJobServer.viewFace.of($0)] }
        }
        func children(of path: String, limit: Int, for caller: CallerIdentity) -> [String] { [] }
    }

    private func make(_ entry: String, _ capabilities: Int32, _ hints: [String: Variant], _ reply: DBus.Reply<ObjectPath>) {
        let view = View("/org/kde/notificationmanager/jobs/JobView_\(views.count + 1)", entry, capabilities, hints)
        views.append(view)
        if isHanging { held.append { reply(ObjectPath(view.path)) } } else { reply(ObjectPath(view.path)) }
    }

    /// Answers the held requests.
    public func answer() {
        isHanging = false
        for answer in held { answer() }
        held = []
    }

    /// Emits `suspendRequested`, `resumeRequested` or `cancelRequested` of `view`, as a click does.
    public func click(_ member: String, _ view: View) {
        connection.send(SignalOf(Self.view, member).message(from: ObjectPath(view.path), ()))
    }

    public func appear() throws {
        guard try connection.requestName(Self.name) else { throw DBusError.failed("\(Self.name) has an owner") }
    }

    /// Ends, as other programs see it: its views are gone.
    public func vanish() throws {
        try connection.releaseName(Self.name)
        for view in views where view.terminated == nil { view.terminated = .max }
    }
}
