public import DBus

/// UnifiedPush's D-Bus interfaces (specification DBUS_0.3.0), as far as a connector needs them.
public enum UnifiedPush {
    public static let distributorPrefix = "org.unifiedpush.Distributor."
    public static let distributorPath = ObjectPath("/org/unifiedpush/Distributor")
    public static let connectorPath = ObjectPath("/org/unifiedpush/Connector")

    /// Version 1: messages are not encrypted.
    public enum Version1 {
        public static let distributor = "org.unifiedpush.Distributor1"
        public static let connector = "org.unifiedpush.Connector1"
        /// (service, token, description) → (result, reason)
        public static let register = MethodOf(
            distributor, "Register", in: String.self, String.self, String.self, out: String.self, String.self)
        public static let unregister = MethodOf(distributor, "Unregister", in: String.self)
        /// (token, message, id)
        public static let message = MethodOf(connector, "Message", in: String.self, [UInt8].self, String.self)
        /// (token, endpoint)
        public static let newEndpoint = MethodOf(connector, "NewEndpoint", in: String.self, String.self)
        public static let unregistered = MethodOf(connector, "Unregistered", in: String.self)
    }

    /// Version 2: messages are encrypted (RFC 8291).
    public enum Version2 {
        public static let distributor = "org.unifiedpush.Distributor2"
        public static let connector = "org.unifiedpush.Connector2"
        /// service, token, description, vapid → success, reason
        public static let register = MethodOf(distributor, "Register", in: [String: Variant].self, out: [String: Variant].self)
        public static let unregister = MethodOf(distributor, "Unregister", in: [String: Variant].self, out: [String: Variant].self)
        /// token, message, id → id
        public static let message = MethodOf(connector, "Message", in: [String: Variant].self, out: [String: Variant].self)
        /// token, endpoint
        public static let newEndpoint = MethodOf(connector, "NewEndpoint", in: [String: Variant].self, out: [String: Variant].self)
        public static let unregistered = MethodOf(connector, "Unregistered", in: [String: Variant].self, out: [String: Variant].self)
    }
}

extension UnifiedPush.Version1 {
    public static let connectorXML = """
          <interface name="org.unifiedpush.Connector1">
            <method name="Message">
              <arg name="token" type="s" direction="in"/>
              <arg name="message" type="ay" direction="in"/>
              <arg name="id" type="s" direction="in"/>
            </method>
            <method name="NewEndpoint">
              <arg name="token" type="s" direction="in"/>
              <arg name="endpoint" type="s" direction="in"/>
            </method>
            <method name="Unregistered">
              <arg name="token" type="s" direction="in"/>
            </method>
          </interface>
        """
}

extension UnifiedPush.Version2 {
    public static let connectorXML = """
          <interface name="org.unifiedpush.Connector2">
            <method name="Message">
              <arg name="args" type="a{sv}" direction="in"/>
              <arg name="result" type="a{sv}" direction="out"/>
            </method>
            <method name="NewEndpoint">
              <arg name="args" type="a{sv}" direction="in"/>
              <arg name="result" type="a{sv}" direction="out"/>
            </method>
            <method name="Unregistered">
              <arg name="args" type="a{sv}" direction="in"/>
              <arg name="result" type="a{sv}" direction="out"/>
            </method>
          </interface>
        """
}
