/// The D-Bus specification's own interfaces, which every object has.
public enum Standard {
    public static let properties = "org.freedesktop.DBus.Properties"
    public static let introspectable = "org.freedesktop.DBus.Introspectable"
    public static let peer = "org.freedesktop.DBus.Peer"
    static let all: Set<String> = [properties, introspectable, peer]

    public static let introspect = MethodOf(introspectable, "Introspect", out: String.self)
    public static let ping = MethodOf(peer, "Ping")
    public static let get = MethodOf(properties, "Get", in: String.self, String.self, out: Variant.self)
    public static let getAll = MethodOf(properties, "GetAll", in: String.self, out: [String: Variant].self)
    public static let set = MethodOf(properties, "Set", in: String.self, String.self, Variant.self)
    public static let propertiesChanged = SignalOf(properties, "PropertiesChanged", String.self, [String: Variant].self, [String].self)

    /// The introspection document of a node: its interfaces, these three if it has any, and its children.
    static func document(faces: [BoundFace]?, children: [String]) -> String {
        var text = """
            <!DOCTYPE node PUBLIC "-//freedesktop//DTD D-BUS Object Introspection 1.0//EN"
             "http://www.freedesktop.org/standards/dbus/1.0/introspect.dtd">
            <node>

            """
        if let faces {
            for face in faces { text += face.xml() + "\n" }
            text += propertiesXML
        }
        text += introspectableXML
        for child in children { text += "  <node name=\"\(child)\"/>\n" }
        return text + "</node>\n"
    }

    private static let propertiesXML = """
          <interface name="org.freedesktop.DBus.Properties">
            <method name="Get">
              <arg name="interface" type="s" direction="in"/>
              <arg name="property" type="s" direction="in"/>
              <arg name="value" type="v" direction="out"/>
            </method>
            <method name="GetAll">
              <arg name="interface" type="s" direction="in"/>
              <arg name="values" type="a{sv}" direction="out"/>
            </method>
            <method name="Set">
              <arg name="interface" type="s" direction="in"/>
              <arg name="property" type="s" direction="in"/>
              <arg name="value" type="v" direction="in"/>
            </method>
            <signal name="PropertiesChanged">
              <arg name="interface" type="s"/>
              <arg name="changed" type="a{sv}"/>
              <arg name="invalidated" type="as"/>
            </signal>
          </interface>

        """

    private static let introspectableXML = """
          <interface name="org.freedesktop.DBus.Introspectable">
            <method name="Introspect">
              <arg name="xml" type="s" direction="out"/>
            </method>
          </interface>
          <interface name="org.freedesktop.DBus.Peer">
            <method name="Ping"/>
            <method name="GetMachineId">
              <arg name="id" type="s" direction="out"/>
            </method>
          </interface>

        """
}
