internal import CNotify
internal import EventLoop

/// The notify thread's GLib main context, or none without libnotify.
final class NotifyLoop: Sendable {
    // `begin` writes this before the loop first sleeps. Other threads read this only in `wake`. The executor calls `wake` only after its
    // mutex has shown that sleep.
    private nonisolated(unsafe) var context: OpaquePointer?

    /// Loads libnotify and makes a new context the thread's default. Call before any other GLib function on this thread, because
    /// libnotify's signals go to the context that is the default when libnotify makes its proxy.
    func begin() {
        guard todoku_notify_load() == nil else { return }
        let glib = todoku_notify_functions().pointee
        context = glib.g_main_context_new()
        glib.g_main_context_push_thread_default(context)
    }

    var isLoaded: Bool { context != nil }

    func wake() { if let context { todoku_notify_functions().pointee.g_main_context_wakeup(context) } }

    /// Runs one turn of `loop`. Without libnotify the thread ends after its first job. That job has already stopped the toast queue.
    func turn(block: Bool, of loop: LoopExecutor) {
        if let context {
            _ = todoku_notify_functions().pointee.g_main_context_iteration(context, block ? 1 : 0)
        } else if block {
            loop.stop()
        }
    }
}

/// libnotify on one connection to the session bus. Use only on the notify thread; every call to the server may take 25 s.
final class NotifySession {
    private static let busName = "org.freedesktop.Notifications"

    private let library: UnsafePointer<todoku_notify>  // static in C
    private let connection: OpaquePointer  // GIO's shared connection; +1, never released

    /// nil where there is no session bus.
    init?(for notifier: Notifier) {
        library = todoku_notify_functions()
        guard let connection = library.pointee.g_bus_get_sync(G_BUS_TYPE_SESSION, nil, nil) else { return nil }
        self.connection = connection
        library.pointee.g_dbus_connection_set_exit_on_close(connection, 0)  // otherwise GIO ends the process when the bus dies
        _ = library.pointee.notify_init("Todoku")
        _ = library.pointee.g_dbus_connection_signal_subscribe(
            connection, "org.freedesktop.DBus", "org.freedesktop.DBus", "NameOwnerChanged", "/org/freedesktop/DBus", Self.busName,
            G_DBUS_SIGNAL_FLAGS_NONE, notifyOwnerChanged, ToastSource(notifier, 0).retained(), releaseToastSource)
    }

    /// Whether the connection to the session bus is closed. GIO does not reconnect.
    var isClosed: Bool { library.pointee.g_dbus_connection_is_closed(connection) != 0 }

    /// The unique name of the running server. Asks the bus, not the server, and starts no server.
    func serverOwner() -> String? {
        var name = library.pointee.g_variant_new_string(Self.busName)
        let arguments = library.pointee.g_variant_new_tuple(&name, 1)
        let reply = library.pointee.g_dbus_connection_call_sync(
            connection, "org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus", "GetNameOwner", arguments, nil,
            G_DBUS_CALL_FLAGS_NONE, 5_000, nil, nil)
        guard let reply else { return nil }
        defer { library.pointee.g_variant_unref(reply) }
        return notifyString(reply, at: 0)
    }

    /// The server's name and vendor. The bus may start a server for this call. nil if no server answers.
    func serverInformation() -> (name: String, vendor: String)? {
        var texts: (UnsafeMutablePointer<CChar>?, UnsafeMutablePointer<CChar>?, UnsafeMutablePointer<CChar>?, UnsafeMutablePointer<CChar>?)
        texts = (nil, nil, nil, nil)
        guard library.pointee.notify_get_server_info(&texts.0, &texts.1, &texts.2, &texts.3) != 0 else { return nil }
        defer { for text in [texts.0, texts.1, texts.2, texts.3] { library.pointee.g_free(text) } }
        return (texts.0.map { String(cString: $0) } ?? "", texts.1.map { String(cString: $0) } ?? "")
    }

    /// The capabilities of the server with the unique name `owner`. nil if the server does not answer. libnotify's own function returns an
    /// empty list for that, as for a server without capabilities.
    func serverCapabilities(of owner: String) -> Set<String>? {
        let reply = "(as)".withCString { type in
            library.pointee.g_dbus_connection_call_sync(
                connection, owner, "/org/freedesktop/Notifications", Self.busName, "GetCapabilities", nil, OpaquePointer(type),
                G_DBUS_CALL_FLAGS_NONE, -1, nil, nil)
        }
        guard let reply else { return nil }
        defer { library.pointee.g_variant_unref(reply) }
        let list = library.pointee.g_variant_get_child_value(reply, 0)
        guard let list else { return nil }
        defer { library.pointee.g_variant_unref(list) }
        return Set(stride(from: 0, to: library.pointee.g_variant_n_children(list), by: 1).map { notifyString(list, at: $0) })
    }

    /// Call only after `serverInformation` has answered once, because libnotify makes its proxy even when it frees a notification.
    func makeNotification(summary: String, body: String, icon: String) -> Notification? {
        library.pointee.notify_notification_new(summary, body, icon).map { Notification(adopting: $0, library) }
    }
}

/// One NotifyNotification. Releasing the last reference frees the object, but leaves the toast on screen.
final class Notification {
    enum Urgency { case low, normal }

    private let raw: OpaquePointer
    private let library: UnsafePointer<todoku_notify>

    fileprivate init(adopting raw: OpaquePointer, _ library: UnsafePointer<todoku_notify>) { (self.raw, self.library) = (raw, library) }

    deinit { library.pointee.g_object_unref(UnsafeMutableRawPointer(raw)) }

    func update(summary: String, body: String, icon: String) { _ = library.pointee.notify_notification_update(raw, summary, body, icon) }

    /// - Parameter milliseconds: how long the toast stays; -1: the server decides.
    func set(category: String, urgency: Urgency, milliseconds: Int32) {
        library.pointee.notify_notification_set_category(raw, category)
        library.pointee.notify_notification_set_urgency(raw, urgency == .low ? NOTIFY_URGENCY_LOW : NOTIFY_URGENCY_NORMAL)
        library.pointee.notify_notification_set_timeout(raw, milliseconds)
    }

    /// Sets the application name of the toast. Without this function (libnotify before 0.7.3) libnotify shows our own name.
    func setAppName(_ name: String) { library.pointee.notify_notification_set_app_name?(raw, name) }

    func setHint(_ key: String, _ value: String) {
        library.pointee.notify_notification_set_hint(raw, key, library.pointee.g_variant_new_string(value))
    }

    func setHint(_ key: String, _ value: Bool) {
        library.pointee.notify_notification_set_hint(raw, key, library.pointee.g_variant_new_boolean(value ? 1 : 0))
    }

    /// nil removes the hint.
    func setHint(_ key: String, _ value: Int32?) {
        library.pointee.notify_notification_set_hint(raw, key, value.map { library.pointee.g_variant_new_int32($0) } ?? nil)
    }

    /// Sets the hint to an array of one string.
    func setHint(_ key: String, one value: String) {
        value.withCString { text in
            var array: UnsafePointer<CChar>? = text
            library.pointee.notify_notification_set_hint(raw, key, library.pointee.g_variant_new_strv(&array, 1))
        }
    }

    func addAction(_ key: String, label: String, for notifier: Notifier, _ serial: UInt64) {
        library.pointee.notify_notification_add_action(
            raw, key, label, notifyActionInvoked, ToastSource(notifier, serial).retained(), releaseToastSource)
    }

    func connectClosed(for notifier: Notifier, _ serial: UInt64) {
        todoku_notify_connect_closed(raw, notifyClosed, ToastSource(notifier, serial).retained(), releaseClosureSource)
    }

    /// Blocks until the server answers. False after an error or a timeout, or without a server.
    func show() -> Bool { library.pointee.notify_notification_show(raw, nil) != 0 }

    func close() { _ = library.pointee.notify_notification_close(raw, nil) }
}

/// The user data of a C callback: which toast it belongs to. GLib holds this object, and releases it through the destroy function.
private final class ToastSource: Sendable {
    weak let notifier: Notifier?
    let serial: UInt64

    init(_ notifier: Notifier, _ serial: UInt64) { (self.notifier, self.serial) = (notifier, serial) }

    func retained() -> UnsafeMutableRawPointer { Unmanaged.passRetained(self).toOpaque() }

    static func from(_ data: UnsafeMutableRawPointer?) -> ToastSource? {
        data.map { Unmanaged<ToastSource>.fromOpaque($0).takeUnretainedValue() }  // +0: GLib's reference
    }
}

private func releaseToastSource(_ data: UnsafeMutableRawPointer?) {
    if let data { Unmanaged<ToastSource>.fromOpaque(data).release() }
}

private func releaseClosureSource(_ data: UnsafeMutableRawPointer?, _: OpaquePointer?) { releaseToastSource(data) }

/// NotifyActionCallback, on the notify thread.
private func notifyActionInvoked(_ raw: OpaquePointer?, _ key: UnsafeMutablePointer<CChar>?, _ data: UnsafeMutableRawPointer?) {
    guard let source = ToastSource.from(data), let notifier = source.notifier, let raw, let key else { return }
    let serial = source.serial
    let keyText = String(cString: key)
    // The token exists only during this callback.
    let token = todoku_notify_functions().pointee.notify_notification_get_activation_token.flatMap { $0(raw) }.map { String(cString: $0) }
    notifier.assumeIsolated { $0.actionInvoked(serial, key: keyText, token: token) }
}

/// The signal `closed`, on the notify thread.
private func notifyClosed(_ raw: OpaquePointer?, _ data: UnsafeMutableRawPointer?) {
    guard let source = ToastSource.from(data), let notifier = source.notifier, let raw else { return }
    let serial = source.serial
    let byUser = todoku_notify_functions().pointee.notify_notification_get_closed_reason(raw) == 2  // NOTIFY_CLOSED_REASON_DISMISSED
    notifier.assumeIsolated { $0.notificationClosed(serial, byUser: byUser) }
}

/// GDBusSignalCallback of NameOwnerChanged (name, old owner, new owner), on the notify thread.
private func notifyOwnerChanged(
    _: OpaquePointer?, _: UnsafePointer<CChar>?, _: UnsafePointer<CChar>?, _: UnsafePointer<CChar>?, _: UnsafePointer<CChar>?,
    _ parameters: OpaquePointer?, _ data: UnsafeMutableRawPointer?
) {
    guard let notifier = ToastSource.from(data)?.notifier, let parameters else { return }
    let (before, next) = (notifyString(parameters, at: 1), notifyString(parameters, at: 2))
    notifier.assumeIsolated { $0.serverChanged(from: before, to: next) }
}

/// The string at `index` of a tuple of strings.
private func notifyString(_ tuple: OpaquePointer, at index: UInt) -> String {
    let glib = todoku_notify_functions().pointee
    let child = glib.g_variant_get_child_value(tuple, index)
    defer { glib.g_variant_unref(child) }
    return glib.g_variant_get_string(child, nil).map { String(cString: $0) } ?? ""
}
