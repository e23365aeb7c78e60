public import DBus
public import EventLoop

/// What one dock icon shows.
public struct IconMark: Equatable, Sendable {
    /// 0: none.
    public var count: Int64
    /// From 0 to 1; nil: none.
    public var progress: Double?
    public init(count: Int64, progress: Double?) { (self.count, self.progress) = (count, progress) }

    static let none = IconMark(count: 0, progress: nil)
}

/// Count and progress on dock and task bar icons: `com.canonical.Unity.LauncherEntry` (wiki.ubuntu.com/Unity/LauncherAPI). Unity, plank,
/// Plasma, dash-to-dock and elementary's dock understand this interface.
///
/// Docks own `com.canonical.Unity`. Nothing is sent while the name has no owner. Each icon has its own bus connection while it has a mark.
/// The reason: plank and dash-to-dock identify a mark by its sender. With a shared sender, the mark of an unknown icon would land on
/// another icon. Docks remove a mark when its connection closes.
@BusActor public final class LauncherEntries {
    static let dockName = "com.canonical.Unity"
    /// How long an icon without a mark keeps its connection, so that many small downloads connect once.
    static let linger: Duration = .seconds(3)

    private let session: Connection
    private let changed: @BusActor () -> Void
    private let dial: @BusActor () async throws(DBusError) -> Connection
    private var peer: BusPeer?
    private var dock: String?
    private var entries: [String: LauncherEntry] = [:]

    /// - Parameter changed: called when a dock appears or disappears.
    public convenience init(session: Connection, changed: @escaping @BusActor () -> Void) {
        self.init(session: session, changed: changed) { () throws(DBusError) in try await Connection.anotherToSession(within: .seconds(10))
        }
    }

    init(
        session: Connection, changed: @escaping @BusActor () -> Void,
        dial: @escaping @BusActor () async throws(DBusError) -> Connection
    ) { (self.session, self.changed, self.dial) = (session, changed, dial) }

    /// Starts watching for a dock. Later calls do nothing.
    public func watch() {
        guard peer == nil else { return }
        peer = BusPeer(Self.dockName, on: session) { [weak self] in self?.dock(is: $0) }
    }

    /// Whether a dock is running that shows marks.
    public var hasDock: Bool { dock != nil }

    /// Replaces all marks by `marks`, keyed by desktop entry without `.desktop`. Unchanged marks are not sent again.
    public func show(_ marks: [String: IconMark]) {
        guard hasDock else { return }
        for (id, entry) in entries where marks[id] == nil { entry.clear() }
        for (id, mark) in marks {
            if entries[id] == nil { entries[id] = LauncherEntry(id, dial: dial) { [weak self] in self?.drop(id, $0) } }
            entries[id]?.show(mark)
        }
    }

    /// A newer entry may already have the same `id`.
    private func drop(_ id: String, _ entry: LauncherEntry) { if entries[id] === entry { entries[id] = nil } }

    /// Removes all marks before the program exits.
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

/// The mark of one icon. Releasing the last reference closes the connection, and so removes the mark.
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

    /// Ends in `.desktop`, because plank ignores other identifiers.
    private let uri: String
    private let path: ObjectPath
    private var connection: Connection?
    private var mark = IconMark.none
    private var told: IconMark?
    private var leaving: Poller.Token?
    private let gone: @BusActor (LauncherEntry) -> Void

    /// - Parameter gone: called when the entry is useless: it had no mark for `linger`, or could not connect.
    init(
        _ id: String, dial: @escaping @BusActor () async throws(DBusError) -> Connection, gone: @escaping @BusActor (LauncherEntry) -> Void
    ) {
        self.gone = gone
        uri = "application://\(id).desktop"
        // The same path as libunity's: Bernstein's hash of the URI.
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

    /// Sends the mark again, for a new dock.
    func repeatMark() { if let told, told != .none { send() } }

    /// Removes the mark, and ends the entry after `linger` unless a new mark arrives.
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

/// The single object on an icon's connection.
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
