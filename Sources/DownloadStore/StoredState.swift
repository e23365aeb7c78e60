public import DownloadModel

/// One change of what is kept.
public enum StoreChange: Equatable, Sendable {
    /// Adds the record, or takes the place of the one with its number.
    case put(DownloadRecord)
    /// Forgets the record; one that is not there is no error.
    case remove(DownloadNumber)
    case set(Settings)
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
    /// PauseAll came, and no ResumeAll since.
    public var paused = false
    public init() {}
}

/// What `Store.open` found.
public struct StoredState: Equatable, Sendable {
    /// All, in the order of their numbers.
    ///
    /// One that cannot be read whole, as after a downgrade, is not lost: it is `failed` with `Storage` and a message that names the
    /// first such column, and the fields that cannot be read have their defaults. Where the checksum is among them, the record has one
    /// that no file matches, so that a retry cannot pass unverified.
    public var records: [DownloadRecord]
    /// Those that were never set, or cannot be read, have their defaults.
    public var settings: Settings
    /// Above the number of every download that was ever committed. Where an earlier database was lost (set aside, or emptied) numbers go on
    /// from the seconds since the epoch, which are above as long as less than one download a second is added.
    public var nextNumber: DownloadNumber
    /// Where the database was damaged, not ours, and is kept under this path now; a new one was started.
    public var setAside: String?
}
