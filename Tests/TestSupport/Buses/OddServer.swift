public import DBus
public import EventLoop

/// A notification server that records its calls, and misbehaves as the test wants, on a connection of its own.
@BusActor public final class OddServer: ObjectTree {
    public struct Received: Equatable, Sendable {
        public var app = ""
        public var replaces: UInt32
        public var icon: String
        public var summary: String
        public var body: String
        public var actions: [String]
        public var hints: [String: Variant]
        public var timeout: Int32
    }

    public enum Manners: Sendable {
        case answers
        /// Does not answer `GetServerInformation`.
        case isNameless
        /// Tells its name, but does not answer `GetCapabilities`.
        case hidesCapabilities
        /// Never answers Notify.
        case hangsInNotify
        /// Never answers anything.
        case hangs
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
    private static let closed = SignalOf(interface, "NotificationClosed", UInt32.self, UInt32.self)
    private static let actionInvoked = SignalOf(interface, "ActionInvoked", UInt32.self, String.self)
    private static let activationToken = SignalOf(interface, "ActivationToken", UInt32.self, String.self)

    private let address: String?
    private let name: String
    private let capabilities: [String]
    private var connection: Connection?
    private var hanging: [Any] = []
    /// Answer the calls of Notify that hang.
    private var late: [@BusActor () -> Void] = []
    /// The number of the toast shown last.
    public private(set) var last: UInt32 = 0
    private var manners: Manners
    /// The toasts that this server has received, also before it vanished.
    public private(set) var received: [Received] = []
    public private(set) var closed: [UInt32] = []
    /// The number of calls of `GetServerInformation`.
    public private(set) var asked = 0
    /// The number of calls of `GetCapabilities`.
    public private(set) var askedForCapabilities = 0

    /// Returns once the server owns its name.
    ///
    /// - Parameter address: the address of its bus; nil: the session bus of the process.
    public init(
        name: String, at address: String? = nil, _ manners: Manners = .answers, capabilities: [String] = ["actions", "body", "body-markup"]
    ) throws {
        (self.name, self.address, self.manners, self.capabilities) = (name, address, manners, capabilities)
        try come()
    }

    /// Leaves the bus, as by a crash.
    public func vanish() {
        (connection, hanging, late) = (nil, [], [])
    }

    /// Gives its name away, and stays on the bus with the calls that it has not answered.
    public func resign() throws { try connection?.releaseName(Self.interface) }

    /// Returns to the bus like another process, which counts from 1. The bus has seen it leave.
    public func come() throws {
        let connection = try address.map(Connection.open) ?? Connection.session()
        connection.export(self)
        let isOurs = try connection.requestName(Self.interface)
        precondition(isOurs, "another notification server is there still")
        (self.connection, last) = (connection, 0)
    }

    public func behave(_ manners: Manners) { self.manners = manners }

    /// Answers the calls of Notify that have had no answer yet, and all later calls.
    public func goOn() {
        manners = .answers
        let late = late
        self.late = []
        for answer in late { answer() }
    }

    /// The user clicks on toast `number`, and the server reports the click `times` times.
    public func click(_ number: UInt32, _ key: String, times: Int = 1, token: String? = nil) {
        if let token { connection?.send(Self.activationToken.message(from: Self.path, (number, token))) }
        for _ in 0..<times { connection?.send(Self.actionInvoked.message(from: Self.path, (number, key))) }
    }

    /// The user dismisses toast `number`.
    public func dismiss(_ number: UInt32) { connection?.send(Self.closed.message(from: Self.path, (number, 2))) }

    public func forget() { (received, closed) = ([], []) }

    public func faces(at path: String, for caller: CallerIdentity) -> [BoundFace]? { path == Self.path.value ? [Self.face.of(self)] : nil }
    public func children(of path: String, limit: Int, for caller: CallerIdentity) -> [String] { [] }

    private static let face = Face<OddServer>(
        interface, xml: { "" },
        methods: [
            Row(information) { server, _, reply in
                server.asked += 1
                switch server.manners {
                case .hangs: server.hanging.append(reply)
                case .isNameless: reply.fail(DBusError.failed("not yet"))
                case .answers, .hidesCapabilities, .hangsInNotify: reply((server.name, "test", "1", "1.2"))
                }
            },
            Row(capabilities) { server, _, reply in
                server.askedForCapabilities += 1
                switch server.manners {
                case .hangs: server.hanging.append(reply)
                case .hidesCapabilities: reply.fail(DBusError.failed("not yet"))
                case .answers, .isNameless, .hangsInNotify: reply(server.capabilities)
                }
            },
            Row(notify) { server, arguments, reply in
                let (app, replaces, icon, summary, body, actions, hints, timeout) = arguments
                server.received.append(
                    Received(
                        app: app, replaces: replaces, icon: icon, summary: summary, body: body, actions: actions, hints: hints,
                        timeout: timeout)
                )
                let answer = { @BusActor [unowned server] in
                    if replaces == 0 { server.last += 1 }
                    reply(replaces > 0 ? replaces : server.last)
                }
                if server.manners == .hangs || server.manners == .hangsInNotify { server.late.append(answer) } else { answer() }
            },
            Row(close) { server, number, reply in
                server.closed.append(number)
                reply()
            },
        ], properties: [])
}
