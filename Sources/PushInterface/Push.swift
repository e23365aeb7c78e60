internal import CEmbedded
public import DBus
internal import DownloaderInterface

/// `org.todoku.Push1`: every member, as in `data/dbus-interfaces/org.todoku.Push1.xml`.
public enum Push {
    public static let interface = "org.todoku.Push1"
    /// The bus name, also the connector's for the distributor.
    public static let busName = "org.todoku.Push1"
    public static let path = ObjectPath("/org/todoku/Push1")
    /// The action of the app that is called.
    public static let action = "push"

    public static let register = MethodOf(
        interface, "Register", in: String.self, String.self, [String: Variant].self, out: [String: Variant].self)
    public static let unregister = MethodOf(interface, "Unregister", in: String.self, String.self)
    public static let list = MethodOf(interface, "List", in: String.self, out: [[String: Variant]].self)

    public static let endpointChanged = SignalOf(interface, "EndpointChanged", String.self, String.self)

    public static let distributor = PropertyOf(interface, "Distributor", String.self, writable: true)
    public static let distributors = PropertyOf(interface, "Distributors", [String].self, change: .untold)
    public static let version = PropertyOf(interface, "Version", String.self, change: .constant)

    /// The interface file, embedded at build time.
    public static var document: String {
        let file = todoku_push1_xml()
        return String(decoding: UnsafeBufferPointer(start: file.bytes, count: file.count), as: UTF8.self)
    }
    /// The `<interface>` element of the file, for introspection.
    public static var element: String { InterfaceXML.element(in: document) ?? "" }
}

/// The outcome of a push, as the app is told.
public enum PushOutcome: String, CaseIterable, Sendable {
    /// A new file is at the path.
    case newData = "new-data"
    /// The file was at the path already.
    case noData = "no-data"
    case failed
}
