public import DBus
public import EventLoop

/// Toasts that outlive the service: a click starts Todoku by `org.freedesktop.Application.ActivateAction`. Only GNOME Shell and its
/// relatives have such toasts (`org.gtk.Notifications`, the interface behind GLib's GNotification). A click on any other toast is lost once
/// its sender has left.
///
/// These toasts have no sound and no preview, so they do not replace ordinary toasts. An ordinary toast that stays unclicked for long
/// becomes a lasting one before the service exits.
@BusActor public final class LastingToasts {
    static let name = "org.gtk.Notifications"
    static let path = ObjectPath("/org/gtk/Notifications")
    static let add = MethodOf(name, "AddNotification", in: String.self, String.self, [String: Variant].self)
    static let remove = MethodOf(name, "RemoveNotification", in: String.self, String.self)
    /// How long a toast should keep the service running while the desktop does not answer.
    public static let patience: Duration = .seconds(5)

    private let connection: Connection
    private let application: String

    /// - Parameter application: our desktop entry's name, without `.desktop`. The entry must be D-Bus activatable.
    public init(connection: Connection, application: String) { (self.connection, self.application) = (connection, application) }

    /// Adds a toast to the desktop's list without showing a new banner.
    ///
    /// - Parameters:
    ///   - id: our identifier. A toast with the same identifier is replaced.
    ///   - target: the object that the actions concern.
    ///   - click: the action that a click on the toast passes to `ActivateAction`. nil: a click calls `Activate`, without an action.
    /// - Returns: whether the desktop accepted the toast, however late it answered.
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
                Self.add, on: Self.name, at: Self.path, (application, id, content), timeout: nil, starts: false)
            return true
        } catch { return false }
    }

    /// Removes the toast if it exists.
    public func take(away id: String) {
        BusActor.spawn { [connection, application] in
            try? await connection.call(
                Self.remove, on: Self.name, at: Self.path, (application, id), timeout: Self.patience, starts: false)
        }
    }
}
