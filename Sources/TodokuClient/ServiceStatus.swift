internal import DBus
public import DownloadModel
internal import DownloaderInterface

/// The present state of the service as a whole.
public struct ServiceStatus: Equatable, Sendable {
    /// The numbers of downloads that have not ended, that transfer now, and that have not started.
    public internal(set) var remaining: UInt32 = 0
    public internal(set) var active: UInt32 = 0
    public internal(set) var queued: UInt32 = 0
    /// Sums over the unended downloads; `total` is nil while any of their totals is unknown.
    public internal(set) var received: ByteCount = 0
    public internal(set) var total: ByteCount?
    public internal(set) var speed: Speed = 0
    /// All downloads are held until `resumeAll`.
    public internal(set) var isPaused = false
    public internal(set) var settings = ServiceSettings()
    /// Rules by host; `*` is for all hosts without a rule of their own.
    public internal(set) var hostRules: [String: HostRule] = [:]
    public internal(set) var version = ""
    public internal(set) var supportedOptions: [String] = []

    init(_ properties: [String: Variant]) {
        func value<V>(_ property: PropertyOf<V>) -> V? { properties[property.name].flatMap(V.init) }
        remaining = value(Manager.remaining) ?? 0
        active = value(Manager.active) ?? 0
        queued = value(Manager.queued) ?? 0
        received = value(Manager.received) ?? 0
        total = value(Manager.total).flatMap { $0 < 0 ? nil : ByteCount($0) }
        speed = value(Manager.speed) ?? 0
        isPaused = value(Manager.paused) ?? false
        settings.maxActive = value(Manager.maxActive) ?? 0
        settings.maxPerHost = value(Manager.maxPerHost) ?? 0
        settings.speedLimit = value(Manager.speedLimit) ?? 0
        settings.defaultDirectory = value(Manager.defaultDirectory) ?? ""
        settings.language = value(Manager.language).flatMap(Language.init) ?? .japanese
        settings.badge = value(Manager.badge).flatMap(BadgeContent.init) ?? .remaining
        settings.isPrivateOpenToSandbox = value(Manager.sandboxPrivate) ?? false
        settings.diskReserve = value(Manager.diskReserve).flatMap(DiskReserve.init(wire:)) ?? .automatic
        hostRules = value(Manager.hostRules)?.rules ?? [:]
        version = value(Manager.version) ?? ""
        supportedOptions = value(Manager.supportedOptions) ?? []
    }
}

/// Settings that the service keeps over restarts. 0: no limit.
public struct ServiceSettings: Equatable, Sendable {
    /// The `maxActive` with which the service decides by the sizes of the files.
    public static let automaticMaxActive = UInt32.max

    public internal(set) var maxActive: UInt32 = 0
    public internal(set) var maxPerHost: UInt32 = 0
    /// Bytes per second over all downloads.
    public internal(set) var speedLimit: Speed = 0
    /// Absolute folder.
    public internal(set) var defaultDirectory = ""
    public internal(set) var language = Language.japanese
    public internal(set) var badge = BadgeContent.remaining
    /// Whether downloads of apps in a sandbox may go to this machine and to private networks.
    public internal(set) var isPrivateOpenToSandbox = false
    public internal(set) var diskReserve = DiskReserve.automatic
}

/// One setting with its new value.
public enum ServiceSetting: Equatable, Sendable {
    case maxActive(UInt32)
    case maxPerHost(UInt32)
    case speedLimit(Speed)
    case defaultDirectory(String)
    case language(Language)
    case badge(BadgeContent)
    case privateOpenToSandbox(Bool)
    case diskReserve(DiskReserve)
}
