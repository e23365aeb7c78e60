public import DownloadModel

/// The parts that `Store.open` passes on while it reads.
public enum StoredPart: Equatable, Sendable {
    /// Everything but the records. Always comes first. If it comes again, forget the earlier parts, because all rows are read again.
    case queue(StoredQueue)
    /// The next records, in the order of their numbers.
    ///
    /// A record that cannot be read in full, as after a downgrade, is not lost. It is `failed` with `Storage` and a message that names the
    /// first unreadable column, and its unreadable fields have the defaults. If an option is unreadable, the record has a checksum that no
    /// file matches, so that it cannot pass unverified. A finished record whose path is lost becomes `failed`, too, unless its options
    /// alone tell the path.
    case records([DownloadRecord])
}

/// Everything that is stored besides the records.
public struct StoredQueue: Equatable, Sendable {
    /// How many records follow.
    public internal(set) var count = 0
    /// All batches, in the order of their numbers.
    public internal(set) var batches: [BatchRecord] = []
    /// Settings that were never set, or cannot be read, have their defaults.
    public internal(set) var settings = Settings()
    /// Part files still to be deleted, with their folders.
    public internal(set) var sweeps: [DownloadNumber: String] = [:]
    /// The last requests to hosts that keep an interval.
    public internal(set) var requests: [HostRequest] = []
    /// All assets, by application and name.
    public internal(set) var assets: [AssetRecord] = []
    public init() {}
}

/// The findings of `Store.open`.
public struct StoreOpening: Equatable, Sendable {
    /// Greater than the number of every download that was ever committed. If an earlier database was lost (set aside or emptied), numbers
    /// continue from the seconds since the epoch. These are greater as long as fewer than one download a second is added.
    public var nextNumber: DownloadNumber
    /// The path of a database that was damaged or not ours, and was set aside, as long as the file exists. A new one was started.
    public var setAside: String?
    /// Whether an earlier start or run has set that database aside.
    public var isSetAsideEarlier = false
    /// How part files are named.
    public var partNames = PartNames()
    /// The rows that could be read from the database that was set aside; nil: none.
    public var salvaged: Salvaged?
}

/// What the new database remembers of the one that was set aside.
struct SetAsideNote {
    /// nil: the database that was set aside last. A salvaged database has a note without a path until a start has added the path.
    let path: String?
    let salvaged: Salvaged

    init(path: String?, salvaged: Salvaged) { (self.path, self.salvaged) = (path, salvaged) }

    /// The value of the setting. The path is last, because it may contain spaces.
    var text: String { "\(salvaged.downloads) \(salvaged.mayHaveLost)" + (path.map { " \($0)" } ?? "") }

    /// nil: the text is unreadable.
    init?(text: String) {
        let words = text.split(separator: " ", maxSplits: 2)
        guard words.count >= 2, let downloads = UInt32(words[0]), let mayHaveLost = Bool(String(words[1])) else { return nil }
        self.init(path: words.dropFirst(2).first.map { String($0) }, salvaged: Salvaged(downloads: downloads, mayHaveLost: mayHaveLost))
    }
}

/// The rows read one by one from a damaged database.
public struct Salvaged: Equatable, Sendable {
    /// Downloads in the new database.
    public var downloads: UInt32
    /// Whether the old database may have had more downloads.
    public var mayHaveLost: Bool

    public init(downloads: UInt32, mayHaveLost: Bool) { (self.downloads, self.mayHaveLost) = (downloads, mayHaveLost) }
}
