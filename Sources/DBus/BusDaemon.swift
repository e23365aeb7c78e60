/// The methods and signals of the bus daemon that we use.
public enum BusDaemon {
    public static let name = "org.freedesktop.DBus"
    public static let path = ObjectPath("/org/freedesktop/DBus")
    static let hello = MethodOf(name, "Hello", out: String.self)
    public static let listNames = MethodOf(name, "ListNames", out: [String].self)
    public static let listActivatableNames = MethodOf(name, "ListActivatableNames", out: [String].self)
    public static let nameOwnerChanged = SignalOf(name, "NameOwnerChanged", String.self, String.self, String.self)
    public static let nameHasOwner = MethodOf(name, "NameHasOwner", in: String.self, out: Bool.self)
    public static let startServiceByName = MethodOf(name, "StartServiceByName", in: String.self, UInt32.self, out: UInt32.self)
    public static let getNameOwner = MethodOf(name, "GetNameOwner", in: String.self, out: String.self)
    static let getConnectionCredentials = MethodOf(
        name, "GetConnectionCredentials", in: String.self, out: ConnectionCredentials.self)
    static let becomeMonitor = MethodOf("org.freedesktop.DBus.Monitoring", "BecomeMonitor", in: [String].self, UInt32.self)
    public static let getConnectionUnixProcessID = MethodOf(name, "GetConnectionUnixProcessID", in: String.self, out: UInt32.self)
}
