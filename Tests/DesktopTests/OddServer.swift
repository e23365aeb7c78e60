internal import DBus
internal import EventLoop

/// A notification server that tells what it received and behaves as badly as the test wants, on a connection of its own.
@BusActor final class OddServer: ObjectTree {
    struct Received: Equatable, Sendable {
        var replaces: UInt32
        var icon: String
        var summary: String
        var body: String
        var actions: [String]
        var hints: [String: Variant]
        var timeout: Int32
    }

    private static let interface = "org.freedesktop.Notifications"
    private static let path = ObjectPath("/org/freedesktop/Notifications")
    private static let information = MethodOf(
        interface, "GetServerInformation", out: String.self, String.self, String.self, String.self)
    private static let capabilities = MethodOf(interface, "GetCapabilities", out: [String].self)
    private static let notify = MethodOf(
        interface, "Notify", in: String.self, UInt32.self, String.self, String.self, String.self, [String].self, [String: Variant].self,
        Int32.self, out: UInt32.self)
    private static let close = MethodOf(interface, "CloseNotification", in: UInt32.self)
    private static let actionInvoked = SignalOf(interface, "ActionInvoked", UInt32.self, String.self)
    private static let activationToken = SignalOf(interface, "ActivationToken", UInt32.self, String.self)

    private let connection: Connection
    private let name: String
    private let hangs: Bool
    private var hanging: [Reply<UInt32>] = []
    private(set) var received: [Received] = []
    private(set) var closed: [UInt32] = []

    /// - Parameter hangs: never answers Notify.
    init(name: String, hangs: Bool = false) throws {
        (self.name, self.hangs) = (name, hangs)
        connection = try Connection.session()
        connection.export(self)
        _ = try connection.requestName(Self.interface)
    }

    /// The user clicks on toast `number`, and the server tells it `times` times.
    func click(_ number: UInt32, _ key: String, times: Int = 1, token: String? = nil) {
        if let token { connection.send(Self.activationToken.message(from: Self.path, (number, token))) }
        for _ in 0..<times { connection.send(Self.actionInvoked.message(from: Self.path, (number, key))) }
    }

    func faces(at path: String, for caller: CallerIdentity) -> [BoundFace]? { path == Self.path.value ? [Self.face.of(self)] : nil }
    func children(of path: String, limit: Int, for caller: CallerIdentity) -> [String] { [] }

    private static let face = Face<OddServer>(
        interface, xml: { "" },
        methods: [
            Row(information) { server, _, reply in reply((server.name, "test", "1", "1.2")) },
            Row(capabilities) { _, _, reply in reply(["actions", "body", "body-markup"]) },
            Row(notify) { server, arguments, reply in
                let (_, replaces, icon, summary, body, actions, hints, timeout) = arguments
                server.received.append(
                    Received(replaces: replaces, icon: icon, summary: summary, body: body, actions: actions, hints: hints, timeout: timeout)
                )
                if server.hangs { server.hanging.append(reply) } else { reply(replaces > 0 ? replaces : UInt32(server.received.count)) }
            },
            Row(close) { server, number, reply in
                server.closed.append(number)
                reply()
            },
        ], properties: [])
}
