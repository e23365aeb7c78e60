public import DBus

/// `org.todoku.Downloader1`: every implemented member, as in `data/dbus-interfaces/org.todoku.Downloader1.xml`.
public enum Manager {
    public static let interface = "org.todoku.Downloader1"

    public static let download = MethodOf(interface, "Download", in: String.self, [String: Variant].self, out: ObjectPath.self)
    public static let fetch = MethodOf(interface, "Fetch", in: String.self, [String: Variant].self, out: String.self, String.self)
    public static let downloadToFd = MethodOf(
        interface, "DownloadToFd", in: String.self, FileDescriptor.self, [String: Variant].self, out: ObjectPath.self)
    public static let downloadBatch = MethodOf(
        interface, "DownloadBatch", in: [Structure<String, [String: Variant]>].self, [String: Variant].self, out: ObjectPath.self,
        [ObjectPath].self)
    public static let downloadMetalink = MethodOf(
        interface, "DownloadMetalink", in: FileDescriptor.self, [String: Variant].self, out: ObjectPath.self, [ObjectPath].self)
    public static let list = MethodOf(interface, "List", in: [String: Variant].self, out: [ObjectPath].self)
    public static let listBatches = MethodOf(interface, "ListBatches", in: [String: Variant].self, out: [ObjectPath].self)
    public static let describe = MethodOf(
        interface, "Describe", in: [String: Variant].self, [String].self, out: [Structure<ObjectPath, [String: Variant]>].self)
    public static let waitAll = MethodOf(
        interface, "WaitAll", in: [String: Variant].self, out: UInt32.self, UInt32.self, UInt32.self)
    public static let setForeground = MethodOf(interface, "SetForeground", in: String.self, Bool.self)
    public static let pauseAll = MethodOf(interface, "PauseAll")
    public static let resumeAll = MethodOf(interface, "ResumeAll")
    public static let cancelAll = MethodOf(interface, "CancelAll")
    public static let clearEnded = MethodOf(interface, "ClearEnded", out: UInt32.self)

    public static let setHostRule = MethodOf(interface, "SetHostRule", in: String.self, [String: Variant].self)

    public static let listSlowedHosts = MethodOf(interface, "ListSlowedHosts", out: [String: [String: Variant]].self)
    public static let resetHost = MethodOf(interface, "ResetHost", in: String.self)

    public static let registerAsset = MethodOf(
        interface, "RegisterAsset", in: String.self, String.self, String.self, [String: Variant].self, out: ObjectPath.self)
    public static let unregisterAsset = MethodOf(interface, "UnregisterAsset", in: ObjectPath.self, Bool.self)
    public static let assets = MethodOf(interface, "Assets", in: String.self, out: [ObjectPath].self)
    public static let updateAssets = MethodOf(
        interface, "UpdateAssets", in: String.self, [String: Variant].self, out: [Structure<ObjectPath, Bool, String>].self)

    public static let assetAdded = SignalOf(interface, "AssetAdded", ObjectPath.self)
    public static let assetRemoved = SignalOf(interface, "AssetRemoved", ObjectPath.self)
    public static let downloadAdded = SignalOf(interface, "DownloadAdded", ObjectPath.self)
    public static let downloadRemoved = SignalOf(interface, "DownloadRemoved", ObjectPath.self)
    public static let downloadEnded = SignalOf(interface, "DownloadEnded", ObjectPath.self, String.self, String.self)
    public static let batchAdded = SignalOf(interface, "BatchAdded", ObjectPath.self)
    public static let batchRemoved = SignalOf(interface, "BatchRemoved", ObjectPath.self)
    public static let allEnded = SignalOf(interface, "AllEnded", UInt32.self, UInt32.self, UInt32.self)

    public static let remaining = PropertyOf(interface, "Remaining", UInt32.self)
    public static let active = PropertyOf(interface, "Active", UInt32.self)
    public static let queued = PropertyOf(interface, "Queued", UInt32.self)
    public static let received = PropertyOf(interface, "Received", UInt64.self, change: .untold)
    public static let total = PropertyOf(interface, "Total", Int64.self, change: .untold)
    public static let fraction = PropertyOf(interface, "Fraction", Double.self, change: .untold)
    public static let speed = PropertyOf(interface, "Speed", UInt64.self, change: .untold)
    public static let paused = PropertyOf(interface, "Paused", Bool.self)
    public static let maxActive = PropertyOf(interface, "MaxActive", UInt32.self, writable: true)
    public static let maxPerHost = PropertyOf(interface, "MaxPerHost", UInt32.self, writable: true)
    public static let speedLimit = PropertyOf(interface, "SpeedLimit", UInt64.self, writable: true)
    public static let hostRules = PropertyOf(interface, "HostRules", HostRuleTable.self)
    public static let language = PropertyOf(interface, "Language", String.self, writable: true)
    public static let badge = PropertyOf(interface, "Badge", String.self, writable: true)
    public static let sandboxPrivate = PropertyOf(interface, "SandboxPrivate", Bool.self, writable: true)
    public static let diskReserve = PropertyOf(interface, "DiskReserve", Int64.self, writable: true)
    public static let defaultDirectory = PropertyOf(interface, "DefaultDirectory", String.self, writable: true)
    public static let version = PropertyOf(interface, "Version", String.self, change: .constant)
    public static let setAside = PropertyOf(interface, "SetAside", String.self)
    public static let salvaged = PropertyOf(interface, "Salvaged", SalvageReport.self)
    public static let supportedOptions = PropertyOf(interface, "SupportedOptions", [String].self, change: .constant)
}

/// The result of salvaging a damaged database, as on the bus: `(ub)`.
public struct SalvageReport: DBusBasic, Equatable {
    /// The number of recovered downloads.
    public var downloads: UInt32
    /// Whether other downloads may be lost.
    public var mayHaveLost: Bool

    public init(downloads: UInt32 = 0, mayHaveLost: Bool = false) { (self.downloads, self.mayHaveLost) = (downloads, mayHaveLost) }

    public static var signature: String { "(ub)" }
    public func write(to writer: inout Writer) { Structure(downloads, mayHaveLost).write(to: &writer) }
    public init(from reader: inout Reader) throws(DBusError) {
        (downloads, mayHaveLost) = try Structure<UInt32, Bool>(from: &reader).fields
    }
    public var variant: Variant { .structure([.uint32(downloads), .bool(mayHaveLost)]) }
    public init?(_ variant: Variant) {
        guard case .structure(let values) = variant, values.count == 2, let downloads = values[0].uint32, let mayHaveLost = values[1].bool
        else { return nil }
        (self.downloads, self.mayHaveLost) = (downloads, mayHaveLost)
    }
}

/// The first word of `Fetch`'s answer.
public enum FetchOutcome: String, CaseIterable, Sendable {
    /// A new file is at the path.
    case newData = "new-data"
    /// The server has nothing newer than the copy at the path.
    case noData = "no-data"
}
