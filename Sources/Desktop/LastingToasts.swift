public import DBus
public import EventLoop

/// Toasts for which the desktop answers: a click on one starts us, by `org.freedesktop.Application.ActivateAction`. Only GNOME Shell and
/// its kin have them (`org.gtk.Notifications`, the interface behind GLib's GNotification); a click on any other toast whose sender has left
/// goes nowhere.
///
/// They are no replacement for the others: they have no sound and no preview. What nobody has clicked for long becomes one, before the
/// service leaves.
@BusActor public final class LastingToasts {
    static let name = "org.gtk.Notifications"
    static let path = ObjectPath("/org/gtk/Notifications")
    static let add = MethodOf(name, "AddNotification", in: String.self, String.self, [String: Variant].self)
    static let remove = MethodOf(name, "RemoveNotification", in: String.self, String.self)
    /// For so long an answer is waited for: nobody waits for it with anything but leaving.
    private static let patience: Duration = .seconds(5)

    private let connection: Connection
    private let application: String

    /// - Parameter application: our desktop entry's name, without `.desktop`; it has to be D-Bus activatable.
    public init(connection: Connection, application: String) { (self.connection, self.application) = (connection, application) }

    /// Puts a toast into the list of the desktop, without showing it once more.
    ///
    /// - Parameters:
    ///   - id: ours; one of the same takes the place of an earlier one.
    ///   - target: what the actions are about.
    ///   - click: the action's name that a click on the toast passes to `ActivateAction`. nil: a click calls `Activate`, without an action.
    /// - Returns: whether the desktop has taken it.
    public func put(
        _ id: String, title: String, body: String, about target: ObjectPath, click: String?, buttons: [(name: String, label: String)]
    ) async -> Bool {
        guard click != nil || !buttons.isEmpty else { return false }
        var content: [String: Variant] = [
            "title": .string(ToastServer.cleaned(title, keeping: nil)), "body": .string(ToastServer.cleaned(body, keeping: "\n")),
            "priority": .string("low"),
        ]
        if let click {
            content["default-action"] = .string("app.\(click)")
            content["default-action-target"] = .string(target.value)
        }
        let buttons: [Variant] = buttons.map { button in
            .dictionary([
                "label": .string(button.label), "action": .string("app.\(button.name)"), "target": .string(target.value),
            ])
        }
        if !buttons.isEmpty { content["buttons"] = .array(of: "a{sv}", buttons) }
        do throws(DBusError) {
            try await connection.call(
                Self.add, on: Self.name, at: Self.path, (application, id, content), timeout: Self.patience, starts: false)
            return true
        } catch { return false }
    }

    /// Takes it away, if it is there.
    public func take(away id: String) {
        BusActor.spawn { [connection, application] in
            try? await connection.call(
                Self.remove, on: Self.name, at: Self.path, (application, id), timeout: Self.patience, starts: false)
        }
    }
}
