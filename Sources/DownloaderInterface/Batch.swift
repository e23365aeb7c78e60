public import DBus
public import DownloadModel

/// `org.todoku.Batch1`: every member, as in `data/dbus-interfaces/org.todoku.Batch1.xml`.
public enum Batch {
    public static let interface = "org.todoku.Batch1"

    public static let pause = MethodOf(interface, "Pause")
    public static let resume = MethodOf(interface, "Resume")
    public static let cancel = MethodOf(interface, "Cancel")
    public static let retry = MethodOf(interface, "Retry")
    public static let remove = MethodOf(interface, "Remove", in: Bool.self)
    public static let wait = MethodOf(interface, "Wait", in: [String: Variant].self, out: UInt32.self, UInt32.self, UInt32.self)

    public static let completed = SignalOf(interface, "Completed", UInt32.self, UInt32.self, UInt32.self)

    public static let title = PropertyOf(interface, "Title", String.self, change: .constant)
    public static let remaining = PropertyOf(interface, "Remaining", UInt32.self)
    public static let succeeded = PropertyOf(interface, "Succeeded", UInt32.self)
    public static let failed = PropertyOf(interface, "Failed", UInt32.self)
    public static let cancelled = PropertyOf(interface, "Cancelled", UInt32.self)
    public static let received = PropertyOf(interface, "Received", UInt64.self, change: .untold)
    public static let total = PropertyOf(interface, "Total", Int64.self, change: .untold)
    public static let fraction = PropertyOf(interface, "Fraction", Double.self, change: .untold)
}

extension OutcomeCounts {
    /// The order in the answer of `Wait` and in `Completed`.
    public var wire: (UInt32, UInt32, UInt32) { (finished, failed, cancelled) }
}
