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
