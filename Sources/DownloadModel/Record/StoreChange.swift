/// One change to the stored data.
public enum StoreChange: Equatable, Sendable {
    /// Adds the record, or replaces the record with its number.
    case put(DownloadRecord)
    /// Deletes the record; a missing record is no error.
    case remove(DownloadNumber)
    /// Adds the batch, or replaces the batch with its number.
    case putBatch(BatchRecord)
    /// Adds the batch and its members: one value, so that no commit has only some of them.
    case addBatch(BatchRecord, [DownloadRecord])
    case removeBatch(BatchNumber)
    case set(Settings)
    /// The part file of this number, in this folder, must be deleted. The next start of the service tries again unless `swept` follows. A
    /// download that has changed its folder may have several: `sweep(_:in:)`.
    case sweep(DownloadNumber, directory: String)
    case swept(DownloadNumber)
    /// A request is about to be sent to a host with a request interval.
    case requested(HostRequest)
    /// The last request is forgotten, because no download waits for its interval any more (names as in `HostRequest`).
    case requestOver(host: String, requestInterval: Duration)
    /// The last file fetched for its key; replaces the previous one.
    case keepCopy(CachedCopy)
    /// Adds the asset, or replaces the asset with its key.
    case putAsset(AssetRecord)
    case removeAsset(AssetKey)
    /// This commit removes secrets from rows, so their older versions in the write-ahead log must go, too.
    case scrubLog
}

extension StoreChange {
    /// As `sweep(_:directory:)`, in several folders. A download has one row of this kind, and no path has a NUL.
    public static func sweep(_ number: DownloadNumber, in folders: [String]) -> StoreChange {
        .sweep(number, directory: text(ofSweep: folders))
    }

    /// The folders of a row of this kind, as one text.
    public static func text(ofSweep folders: [String]) -> String { folders.joined(separator: "\0") }
    public static func folders(ofSweep text: String) -> [String] { text.split(separator: "\0").map(String.init) }
}

/// The language of toasts, tray and desktop texts.
public enum Language: String, CaseIterable, Sendable {
    case japanese = "ja"
    case english = "en"
    /// The locale of the session.
    case auto
}

/// The meaning of the number on the dock icon.
public enum BadgeContent: String, CaseIterable, Sendable {
    /// Downloads that have not ended.
    case remaining
    /// The progress of all downloads together, in whole percent.
    case percent
}

/// The user's settings for the whole service; kept over restarts.
public struct Settings: Equatable, Sendable {
    /// The value of `maxActive` that lets the service decide by the sizes of the files.
    public static let automatic = UInt32.max
    /// Downloads at a time; 0: no limit.
    public var maxActive = Settings.automatic
    /// Connections to one host at a time; 0: no limit.
    public var maxPerHost: UInt32 = 6
    /// Bytes per second over all downloads; 0: no limit.
    public var speedLimit: Speed = 0
    /// Absolute; empty: the XDG download folder.
    public var defaultDirectory: String {
        get { defaultFolder.text }
        set { defaultFolder = ByteText(newValue) }
    }
    // Compared by bytes: two folders may have names that Unicode calls equivalent.
    private var defaultFolder = ByteText("")
    public var hostRules = HostRules()
    public var language = Language.japanese
    public var badge = BadgeContent.remaining
    /// Apps in a sandbox may download from this machine and from private networks.
    public var allowsPrivateFromSandbox = false
    public var diskReserve = DiskReserve.automatic
    /// PauseAll was called, and ResumeAll was not called since.
    public var paused = false
    /// CancelAll was called for all unfinished downloads up to this number, and has not reached all of them yet.
    public var cancelsThrough: DownloadNumber?
    /// Downloads up to that number that were restarted since, and must not be cancelled.
    public var spared: Set<DownloadNumber> = []
    public init() {}
}

/// The last request to a host. Stored, so that the interval holds over a restart.
public struct HostRequest: Equatable, Sendable {
    /// As `HostRules.governing` names it.
    public var host: String
    /// The option `request-interval` of the request; zero: the host's own interval.
    public var requestInterval: Duration
    public var at: WallTime
    /// Whether the request is known to have been sent at `time`. If false, it may have been sent at any time before its process ended.
    public var isSent: Bool

    public init(host: String, requestInterval: Duration, at: WallTime, isSent: Bool) {
        (self.host, self.requestInterval, self.at, self.isSent) = (host, requestInterval, at, isSent)
    }
}
