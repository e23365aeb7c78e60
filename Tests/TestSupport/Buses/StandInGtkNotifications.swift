public import DBus
public import EventLoop

/// GNOME Shell's `org.gtk.Notifications`: records its calls, and clicks as GNOME Shell does.
@BusActor public final class StandInGtkNotifications: Sendable {
    private static let name = "org.gtk.Notifications"
    private static let face = Face<StandInGtkNotifications>(
        name, xml: { "" },
        methods: [
            Row(MethodOf(name, "AddNotification", in: String.self, String.self, [String: Variant].self)) { object, terms, reply in
                object.toasts.append((terms.0, terms.1, terms.2))
                if object.answers { reply() } else { object.unanswered.append(reply) }
            },
            Row(MethodOf(name, "RemoveNotification", in: String.self, String.self)) { object, terms, reply in
                object.removed.append(terms.1)
                reply()
            },
        ])
    private static let activate = MethodOf("org.freedesktop.Application", "Activate", in: [String: Variant].self)
    private static let activateAction = MethodOf(
        "org.freedesktop.Application", "ActivateAction", in: String.self, [Variant].self, [String: Variant].self)

    public private(set) var toasts: [(application: String, id: String, content: [String: Variant])] = []
    public private(set) var removed: [String] = []
    private var answers = true
    private var unanswered: [DBus.Reply<Void>] = []
    private let connection: Connection

    public init(on address: String) throws {
        connection = try Connection.open(address: address)
        connection.export(OneObject("/org/gtk/Notifications") { [weak self] in self.map { [Self.face.of($0)] } ?? [] })
        guard try connection.requestName(Self.name) else { throw DBusError.failed("\(Self.name) has an owner") }
    }

    /// From now on, no new toast is answered.
    public func hold() { answers = false }

    /// Answers the held toasts.
    public func answer() {
        answers = true
        for reply in unanswered { reply() }
        unanswered = []
    }

    /// A click on the newest toast, which may start its application. Without an action, the call names only the application.
    public func click() async throws(DBusError) {
        guard let (application, _, content) = toasts.last else { throw .failed("there is no toast") }
        guard let action = content["default-action"]?.string, let target = content["default-action-target"] else {
            return try await connection.call(Self.activate, on: application, at: path(of: application), platform, timeout: .seconds(120))
        }
        try await activate(action, target, of: application)
    }

    /// A click on the first button of the oldest toast, also after the application has removed it: a click can cross the removal.
    public func pressOnOldest() async throws(DBusError) {
        guard let (application, _, content) = toasts.first, case .array(_, let buttons)? = content["buttons"],
            let button = buttons.first?.vardict, let action = button["action"]?.string, let target = button["target"]
        else { throw .failed("the oldest toast has no button") }
        try await activate(action, target, of: application)
    }

    private let platform: [String: Variant] = ["desktop-startup-id": .string("startup-1")]

    private func path(of application: String) -> ObjectPath { ObjectPath("/" + application.split(separator: ".").joined(separator: "/")) }

    private func activate(_ action: String, _ target: Variant, of application: String) async throws(DBusError) {
        let terms = (String(action.dropFirst("app.".count)), [target], platform)
        try await connection.call(Self.activateAction, on: application, at: path(of: application), terms, timeout: .seconds(120))
    }
}
