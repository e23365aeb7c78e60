public import DBus
public import EventLoop

/// A panel and its watcher, as a tray item sees them, for testing the exact protocol. `PanelTests` uses a real panel.
@BusActor public final class TrayPanel: Sendable {
    public nonisolated static let name = "org.kde.StatusNotifierWatcher"
    private static let path = "/StatusNotifierWatcher"
    private static let face = Face<TrayPanel>(
        name, xml: { "" },
        methods: [
            Row(MethodOf(name, "RegisterStatusNotifierItem", in: String.self)) { panel, service, reply in
                panel.attempts += 1
                guard panel.refusals == 0 else {
                    panel.refusals -= 1
                    throw DBusError.failed("not yet")
                }
                let item = service.hasPrefix("/") ? reply.call.sender : service
                let accept = { @BusActor [unowned panel] in
                    reply()
                    panel.items.append(item)
                }
                if panel.isHanging { panel.held.append(accept) } else { accept() }
            }
        ],
        properties: [PropertyRow(PropertyOf(name, "IsStatusNotifierHostRegistered", Bool.self)) { $0.hasHost }])

    public nonisolated let connection: Connection
    /// The bus names of the registered items, in order.
    public private(set) var items: [String] = []
    public private(set) var attempts = 0
    /// How many of the next items are refused.
    public var refusals = 0
    private var held: [@BusActor () -> Void] = []
    /// It receives items, and accepts them only when the test calls `answer`.
    public var isHanging = false
    /// Whether the watcher knows a panel that shows the items.
    public var hasHost = true
    /// Signals of the item, each with its first argument if this is a string, and its time of arrival.
    public private(set) var signals: [(name: String, at: ContinuousClock.Instant)] = []
    /// `ItemsPropertiesUpdated` and `LayoutUpdated`.
    public private(set) var menuSignals: [String] = []

    public init(on address: String) throws {
        connection = try Connection.open(address: address)
        connection.export(Tree(self))
        _ = connection.subscribe(MatchRule(interface: "org.kde.StatusNotifierItem")) { [weak self] message in
            let argument = (try? message.first(String.self)).map { " \($0)" } ?? ""
            self?.signals.append((message.member + (message.signature == "s" ? argument : ""), .now))
        }
        _ = connection.subscribe(MatchRule(interface: "com.canonical.dbusmenu")) { [weak self] message in
            self?.menuSignals.append(message.member)
        }
        try appear()
    }

    private final class Tree: ObjectTree {
        private weak var panel: TrayPanel?
        init(_ panel: TrayPanel) { self.panel = panel }
        func faces(at path: String, for caller: CallerIdentity) -> [BoundFace]? {
            path == TrayPanel.path ? panel.map { [TrayPanel.face.of($0)] } : nil
        }
        func children(of path: String, limit: Int, for caller: CallerIdentity) -> [String] { [] }
    }

    public func appear() throws {
        guard try connection.requestName(Self.name) else { throw DBusError.failed("\(Self.name) has an owner") }
    }

    public func vanish() throws { try connection.releaseName(Self.name) }

    /// Accepts the held items.
    public func answer() {
        isHanging = false
        for accept in held { accept() }
        held = []
    }

    public func forgetSignals() { (signals, menuSignals) = ([], []) }

    /// The number of received signals with this name.
    public func count(_ signal: String) -> Int { signals.count { $0.name == signal } }
}
