public import DBus

/// `org.todoku.Asset1`: every member, as in `data/dbus-interfaces/org.todoku.Asset1.xml`.
public enum Asset {
    public static let interface = "org.todoku.Asset1"

    public static let check = MethodOf(interface, "Check", in: [String: Variant].self, out: Bool.self, String.self)
    public static let update = MethodOf(interface, "Update", in: [String: Variant].self, out: Bool.self, String.self)
    public static let rollback = MethodOf(interface, "Rollback", out: String.self)
    public static let cancel = MethodOf(interface, "Cancel")

    public static let stageChanged = SignalOf(interface, "StageChanged", String.self)
    public static let progress = SignalOf(interface, "Progress", String.self, UInt64.self, Int64.self)
    public static let ready = SignalOf(interface, "Ready", String.self, String.self)

    public static let app = PropertyOf(interface, "App", String.self, change: .constant)
    public static let name = PropertyOf(interface, "Name", String.self, change: .constant)
    public static let manifestUrl = PropertyOf(interface, "ManifestUrl", String.self)
    public static let installedVersion = PropertyOf(interface, "InstalledVersion", String.self)
    public static let latestVersion = PropertyOf(interface, "LatestVersion", String.self)
    public static let stage = PropertyOf(interface, "Stage", String.self)
    public static let status = PropertyOf(interface, "Status", String.self)
    public static let path = PropertyOf(interface, "Path", String.self, change: .constant)
    public static let download = PropertyOf(interface, "Download", ObjectPath.self)
    public static let error = PropertyOf(interface, "Error", EndError.self)
}
