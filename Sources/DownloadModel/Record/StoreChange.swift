/// One change of what is kept.
public enum StoreChange: Equatable, Sendable {
    /// Adds the record, or takes the place of the one with its number.
    case put(DownloadRecord)
    /// Forgets the record; one that is not there is no error.
    case remove(DownloadNumber)
    /// Adds the batch, or takes the place of the one with its number.
    case putBatch(BatchRecord)
    case removeBatch(BatchNumber)
    case set(Settings)
    /// The part file of this number, in this folder, is to be deleted: done again at the next start unless `swept` follows.
    case sweep(DownloadNumber, directory: String)
    case swept(DownloadNumber)
    /// A request goes out to a host that keeps an interval.
    case requested(HostRequest)
    /// Nothing waits for that request any more (as `HostRequest` names it).
    case requestOver(host: String, spacing: Duration)
    /// The last file that was fetched for its key; takes the place of the one before.
    case keepCopy(CopyHeld)
    /// Rows lose secrets with this commit: the older ones in the log go, too.
    case scrubLog
}

/// The language of toasts, tray and desktop texts.
public enum Language: String, CaseIterable, Sendable {
    case japanese = "ja"
    case english = "en"
    /// The locale of the session.
    case auto
}

/// What the count on the dock's icon is.
public enum BadgeContent: String, CaseIterable, Sendable {
    /// Downloads that have not ended.
    case remaining
    /// Whole percent of all of them.
    case percent
}

/// What a user has set for the whole service; kept over restarts.
public struct Settings: Equatable, Sendable {
    /// Downloads at a time; 0: no limit.
    public var maxActive: UInt32 = 4
    /// Connections to one host at a time; 0: no limit.
    public var maxPerHost: UInt32 = 6
    /// Bytes per second over all downloads; 0: no limit.
    public var speedLimit: Speed = 0
    /// Absolute; empty: the XDG download folder.
    public var defaultDirectory = ""
    public var hostRules = HostRules()
    public var language = Language.japanese
    public var badge = BadgeContent.remaining
    /// Apps in a sandbox may have things fetched from this machine and from private networks.
    public var allowsPrivateFromSandbox = false
    public var diskReserve = DiskReserve.automatic
    /// PauseAll came, and no ResumeAll since.
    public var paused = false
    /// CancelAll came, for all up to this number that had not ended, and has not come to each yet.
    public var cancelsThrough: DownloadNumber?
    /// Those up to that number that were begun again since.
    public var spared: Set<DownloadNumber> = []
    public init() {}
}

/// The last request to a host, kept so that an interval outlasts a restart.
public struct HostRequest: Equatable, Sendable {
    /// As `HostRules.governing` names it.
    public var host: String
    /// The option `request-interval` that it kept; zero: the host's own interval.
    public var spacing: Duration
    public var at: WallTime
    /// It had gone out by then. One that is not known to have gone out may have done so at any time until its process ended.
    public var isSent: Bool

    public init(host: String, spacing: Duration, at: WallTime, isSent: Bool) {
        (self.host, self.spacing, self.at, self.isSent) = (host, spacing, at, isSent)
    }
}
