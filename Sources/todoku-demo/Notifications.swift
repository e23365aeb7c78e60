internal import DBus
internal import EventLoop

/// `org.freedesktop.Notifications`, as far as text can show toasts.
enum Notifications {
    private static let name = ToastScreen.name
    private static let notify = MethodOf(
        name, "Notify",
        in: String.self, UInt32.self, String.self, String.self, String.self, [String].self, [String: Variant].self, Int32.self,
        out: UInt32.self)
    private static let close = MethodOf(name, "CloseNotification", in: UInt32.self)
    private static let capabilities = MethodOf(name, "GetCapabilities", out: [String].self)
    private static let information = MethodOf(name, "GetServerInformation", out: String.self, String.self, String.self, String.self)
    static let closed = SignalOf(name, "NotificationClosed", UInt32.self, UInt32.self)

    static let face = Face<ToastScreen>(
        name, xml: { xml },
        methods: [
            Row(notify) { screen, call, reply in
                let (app, replaced, _, summary, body, actions, hints, _) = call
                let toast = ShownToast(app: app, summary: summary, body: body, actions: actions, hints: hints)
                reply(screen.show(toast, replacing: replaced))
            },
            Row(close) { screen, id, reply in
                screen.close(id, reason: 3)
                reply()
            },
            Row(capabilities) { _, _, reply in reply(["actions", "body", "persistence"]) },
            Row(information) { _, _, reply in reply(("todoku-demo", "Todoku", "1", "1.2")) },
        ],
        properties: [])

    private static let xml = """
          <interface name="org.freedesktop.Notifications">
            <method name="Notify">
              <arg name="app_name" type="s" direction="in"/>
              <arg name="replaces_id" type="u" direction="in"/>
              <arg name="app_icon" type="s" direction="in"/>
              <arg name="summary" type="s" direction="in"/>
              <arg name="body" type="s" direction="in"/>
              <arg name="actions" type="as" direction="in"/>
              <arg name="hints" type="a{sv}" direction="in"/>
              <arg name="expire_timeout" type="i" direction="in"/>
              <arg name="id" type="u" direction="out"/>
            </method>
            <method name="CloseNotification">
              <arg name="id" type="u" direction="in"/>
            </method>
            <method name="GetCapabilities">
              <arg name="capabilities" type="as" direction="out"/>
            </method>
            <method name="GetServerInformation">
              <arg name="name" type="s" direction="out"/>
              <arg name="vendor" type="s" direction="out"/>
              <arg name="version" type="s" direction="out"/>
              <arg name="spec_version" type="s" direction="out"/>
            </method>
            <signal name="NotificationClosed">
              <arg name="id" type="u"/>
              <arg name="reason" type="u"/>
            </signal>
          </interface>
        """
}
