public import DBus
public import EventLoop

/// What one icon in a dock shows.
public struct IconMark: Equatable, Sendable {
    /// 0: none.
    public var count: Int64
    /// From 0 to 1; nil: none.
    public var progress: Double?
    public init(count: Int64, progress: Double?) { (self.count, self.progress) = (count, progress) }

    static let none = IconMark(count: 0, progress: nil)
}

/// Count and progress on icons of docks and task bars: `com.canonical.Unity.LauncherEntry`, which Unity, plank, Plasma, dash-to-dock and
/// elementary's dock understand (wiki.ubuntu.com/Unity/LauncherAPI).
///
/// Docks own `com.canonical.Unity`, so that libraries know that somebody listens; where nobody does, nothing is sent. Each icon has a
/// connection of its own to the bus as long as it has a mark: plank and dash-to-dock know a mark by who sent it, and would put that of an
/// icon they do not have on another one of the same sender. With the connection a mark goes in any case.
@BusActor public final class LauncherEntries {
    static let dockName = "com.canonical.Unity"
    /// For so long an icon without a mark keeps its connection: many small downloads connect once.
    static let linger: Duration = .seconds(3)

    private let session: Connection
    private let changed: @BusActor () -> Void
    private let dial: @BusActor () async throws(DBusError) -> Connection
    private var peer: BusPeer?
    private var dock: String?
    private var entries: [String: LauncherEntry] = [:]

    /// - Parameter changed: called when a dock appears or goes.
    public convenience init(session: Connection, changed: @escaping @BusActor () -> Void) {
        self.init(session: session, changed: changed) { () throws(DBusError) in try await Connection.anotherToSession(within: .seconds(10))
        }
    }

    init(
        session: Connection, changed: @escaping @BusActor () -> Void,
        dial: @escaping @BusActor () async throws(DBusError) -> Connection
    ) { (self.session, self.changed, self.dial) = (session, changed, dial) }

    /// Begins to look for a dock, once.
    public func watch() {
        guard peer == nil else { return }
        peer = BusPeer(Self.dockName, on: session) { [weak self] in self?.dock(is: $0) }
    }

    /// Whether anybody is there who shows marks.
    public var hasDock: Bool { dock != nil }

    /// Makes `marks` (by desktop entry, without `.desktop`) all that there are. What is shown already is not sent again.
    public func show(_ marks: [String: IconMark]) {
        guard hasDock else { return }
        for (id, entry) in entries where marks[id] == nil { entry.clear() }
        for (id, mark) in marks {
            if entries[id] == nil { entries[id] = LauncherEntry(id, dial: dial) { [weak self] in self?.drop(id, $0) } }
            entries[id]?.show(mark)
        }
    }

    /// It may have another successor already.
    private func drop(_ id: String, _ entry: LauncherEntry) { if entries[id] === entry { entries[id] = nil } }

    /// Takes all marks away, for the end of the program.
    public func end() {
        for entry in entries.values { entry.leave() }
        entries = [:]
        peer?.stop()
        dock = nil
    }

    private func dock(is owner: String?) {
        dock = owner
        if owner == nil { entries = [:] } else { for entry in entries.values { entry.repeatMark() } }
        changed()
    }
}

/// The mark of one icon. It goes with its last reference.
@BusActor private final class LauncherEntry: Sendable {
    private static let interface = "com.canonical.Unity.LauncherEntry"
    private static let update = SignalOf(interface, "Update", String.self, [String: Variant].self)
    private static let face = Face<LauncherEntry>(
        interface,
        xml: {
            """
              <interface name="com.canonical.Unity.LauncherEntry">
                <method name="Query"><arg name="app_uri" type="s" direction="out"/><arg name="properties" type="a{sv}" direction="out"/></method>
                <signal name="Update"><arg name="app_uri" type="s"/><arg name="properties" type="a{sv}"/></signal>
              </interface>

            """
        },
        methods: [
            Row(MethodOf(interface, "Query", out: String.self, [String: Variant].self)) { entry, _, reply in
                reply((entry.uri, entry.properties))
            }
        ],
        signals: [update.name: update.signature])

    /// With `.desktop`, without which plank knows nobody.
    private let uri: String
    private let path: ObjectPath
    private var connection: Connection?
    private var mark = IconMark.none
    private var told: IconMark?
    private var leaving: Poller.Token?
    private let gone: @BusActor (LauncherEntry) -> Void

    /// - Parameter gone: called when it is of no use any more: it has had no mark for a while, or cannot be heard.
    init(
        _ id: String, dial: @escaping @BusActor () async throws(DBusError) -> Connection, gone: @escaping @BusActor (LauncherEntry) -> Void
    ) {
        self.gone = gone
        uri = "application://\(id).desktop"
        // As libunity makes it: a hash of the URI by Bernstein's way.
        path = ObjectPath("/com/canonical/unity/launcherentry/\(uri.utf8.reduce(5381 as UInt64) { $0 &* 33 &+ UInt64($1) })")
        BusActor.spawn { [weak self] in
            let connection = try? await dial()
            guard let self else { return }
            if let connection { connect(connection) } else { gone(self) }
        }
    }

    private func connect(_ connection: Connection) {
        connection.export(EntryTree(path.value) { [weak self] in self.map { [Self.face.of($0)] } ?? [] })
        self.connection = connection
        if mark != .none { send() }
    }

    private var properties: [String: Variant] {
        [
            "count": .int64(mark.count), "count-visible": .bool(mark.count > 0),
            "progress": .double(mark.progress ?? 0), "progress-visible": .bool(mark.progress != nil),
            "urgent": .bool(false),
        ]
    }

    private func send() {
        guard let connection else { return }
        connection.send(Self.update.message(from: path, (uri, properties)))
        told = mark
    }

    func show(_ mark: IconMark) {
        if let leaving { Poller.shared.cancel(leaving) }
        leaving = nil
        self.mark = mark
        if mark != told ?? .none { send() }
    }

    /// For a dock that has not heard it.
    func repeatMark() { if let told, told != .none { send() } }

    /// Takes the mark away, and is gone a while later unless there is another one by then.
    func clear() {
        guard leaving == nil else { return }
        show(.none)
        leaving = Poller.shared.schedule(after: LauncherEntries.linger) { [weak self] in if let self { gone(self) } }
    }

    func leave() {
        show(.none)
        connection?.flush()
    }
}

/// The one object of an icon's connection.
@BusActor private final class EntryTree: ObjectTree {
    private let path: String
    private let found: @BusActor () -> [BoundFace]
    init(_ path: String, _ found: @escaping @BusActor () -> [BoundFace]) { (self.path, self.found) = (path, found) }
    func faces(at path: String, for caller: CallerIdentity) -> [BoundFace]? { path == self.path ? found() : nil }

    func children(of path: String, limit: Int, for caller: CallerIdentity) -> [String] {
        let prefix = path == "/" ? "/" : path + "/"
        guard self.path.hasPrefix(prefix) else { return [] }
        return [String(self.path.dropFirst(prefix.utf8.count).prefix { $0 != "/" })]
    }
}
