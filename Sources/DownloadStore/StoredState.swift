public import DownloadModel

/// What `Store.open` hands over while it reads.
public enum StoredPart: Equatable, Sendable {
    /// Everything but the records. Always the first; where it comes again, what came before is to be forgotten: it is read anew.
    case queue(StoredQueue)
    /// The next records, in the order of their numbers.
    ///
    /// One that cannot be read whole, as after a downgrade, is not lost: it is `failed` with `Storage` and a message that names the
    /// first such column, and the fields that cannot be read have their defaults. Where an option is among them, the record has a checksum
    /// that no file matches: it cannot pass unverified. So is a finished one whose path is lost, unless its options alone tell the path.
    case records([DownloadRecord])
}

/// What is kept besides the records.
public struct StoredQueue: Equatable, Sendable {
    /// How many records follow.
    public internal(set) var count = 0
    /// All, in the order of their numbers.
    public internal(set) var batches: [BatchRecord] = []
    /// Those that were never set, or cannot be read, have their defaults.
    public internal(set) var settings = Settings()
    /// Part files that are still to be deleted, with their folders.
    public internal(set) var sweeps: [DownloadNumber: String] = [:]
    /// The last requests to hosts that keep an interval.
    public internal(set) var requests: [HostRequest] = []
    public init() {}
}

/// What `Store.open` found out.
public struct StoreOpening: Equatable, Sendable {
    /// Above the number of every download that was ever committed. Where an earlier database was lost (set aside, or emptied) numbers go on
    /// from the seconds since the epoch, which are above as long as less than one download a second is added.
    public var nextNumber: DownloadNumber
    /// Where the database was damaged, not ours, and is kept under this path now; a new one was started.
    public var setAside: String?
    /// How part files are called.
    public var partNames = PartNames()
    /// What could be read of that one, where anything could.
    public var salvaged: Salvaged?
}

/// What was read, row by row, of a database that was damaged.
public struct Salvaged: Equatable, Sendable {
    /// Downloads that are in the new database.
    public var downloads: UInt32
    /// Whether others may have been in the old one.
    public var mayHaveLost: Bool

    public init(downloads: UInt32, mayHaveLost: Bool) { (self.downloads, self.mayHaveLost) = (downloads, mayHaveLost) }
}
