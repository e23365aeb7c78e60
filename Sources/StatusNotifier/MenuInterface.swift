public import DBus

/// `com.canonical.dbusmenu`: every member as panels read and call them (libdbusmenu, "dbus-menu.xml").
public enum MenuInterface {
    public static let name = "com.canonical.dbusmenu"

    /// An item and its children down to the requested depth: number, properties, and the same for each child.
    public typealias Layout = Structure<Int32, [String: Variant], [Variant]>
    public typealias ItemProperties = Structure<Int32, [String: Variant]>
    public typealias RemovedProperties = Structure<Int32, [String]>
    public typealias ItemEvent = Structure<Int32, String, Variant, UInt32>

    public static let version = PropertyOf(name, "Version", UInt32.self, change: .untold)
    public static let textDirection = PropertyOf(name, "TextDirection", String.self, change: .untold)
    public static let status = PropertyOf(name, "Status", String.self, change: .untold)
    public static let iconThemePath = PropertyOf(name, "IconThemePath", [String].self, change: .untold)

    public static let getLayout = MethodOf(
        name, "GetLayout", in: Int32.self, Int32.self, [String].self, out: UInt32.self, Layout.self)
    public static let getGroupProperties = MethodOf(
        name, "GetGroupProperties", in: [Int32].self, [String].self, out: [ItemProperties].self)
    public static let getProperty = MethodOf(name, "GetProperty", in: Int32.self, String.self, out: Variant.self)
    public static let event = MethodOf(name, "Event", in: Int32.self, String.self, Variant.self, UInt32.self)
    public static let eventGroup = MethodOf(name, "EventGroup", in: [ItemEvent].self, out: [Int32].self)
    public static let aboutToShow = MethodOf(name, "AboutToShow", in: Int32.self, out: Bool.self)
    public static let aboutToShowGroup = MethodOf(name, "AboutToShowGroup", in: [Int32].self, out: [Int32].self, [Int32].self)

    public static let itemsPropertiesUpdated = SignalOf(
        name, "ItemsPropertiesUpdated", [ItemProperties].self, [RemovedProperties].self)
    public static let layoutUpdated = SignalOf(name, "LayoutUpdated", UInt32.self, Int32.self)
    public static let itemActivationRequested = SignalOf(name, "ItemActivationRequested", Int32.self, UInt32.self)

    static let xml = """
          <interface name="com.canonical.dbusmenu">
            <property name="Version" type="u" access="read"/>
            <property name="TextDirection" type="s" access="read"/>
            <property name="Status" type="s" access="read"/>
            <property name="IconThemePath" type="as" access="read"/>
            <method name="GetLayout">
              <arg name="parentId" type="i" direction="in"/>
              <arg name="recursionDepth" type="i" direction="in"/>
              <arg name="propertyNames" type="as" direction="in"/>
              <arg name="revision" type="u" direction="out"/>
              <arg name="layout" type="(ia{sv}av)" direction="out"/>
            </method>
            <method name="GetGroupProperties">
              <arg name="ids" type="ai" direction="in"/>
              <arg name="propertyNames" type="as" direction="in"/>
              <arg name="properties" type="a(ia{sv})" direction="out"/>
            </method>
            <method name="GetProperty">
              <arg name="id" type="i" direction="in"/>
              <arg name="name" type="s" direction="in"/>
              <arg name="value" type="v" direction="out"/>
            </method>
            <method name="Event">
              <arg name="id" type="i" direction="in"/>
              <arg name="eventId" type="s" direction="in"/>
              <arg name="data" type="v" direction="in"/>
              <arg name="timestamp" type="u" direction="in"/>
            </method>
            <method name="EventGroup">
              <arg name="events" type="a(isvu)" direction="in"/>
              <arg name="idErrors" type="ai" direction="out"/>
            </method>
            <method name="AboutToShow">
              <arg name="id" type="i" direction="in"/>
              <arg name="needUpdate" type="b" direction="out"/>
            </method>
            <method name="AboutToShowGroup">
              <arg name="ids" type="ai" direction="in"/>
              <arg name="updatesNeeded" type="ai" direction="out"/>
              <arg name="idErrors" type="ai" direction="out"/>
            </method>
            <signal name="ItemsPropertiesUpdated">
              <arg name="updatedProps" type="a(ia{sv})"/>
              <arg name="removedProps" type="a(ias)"/>
            </signal>
            <signal name="LayoutUpdated">
              <arg name="revision" type="u"/>
              <arg name="parent" type="i"/>
            </signal>
            <signal name="ItemActivationRequested">
              <arg name="id" type="i"/>
              <arg name="timestamp" type="u"/>
            </signal>
          </interface>
        """
}
