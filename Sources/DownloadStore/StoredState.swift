public import DownloadModel

/// What `Store.open` found.
public struct StoredState: Equatable, Sendable {
    /// All, in the order of their numbers.
    ///
    /// One that cannot be read whole, as after a downgrade, is not lost: it is `failed` with `Storage` and a message that names the
    /// first such column, and the fields that cannot be read have their defaults. Where the checksum is among them, the record has one
    /// that no file matches, so that a retry cannot pass unverified.
    public var records: [DownloadRecord]
    /// All, in the order of their numbers.
    public var batches: [BatchRecord]
    /// Those that were never set, or cannot be read, have their defaults.
    public var settings: Settings
    /// Part files that are still to be deleted, with their folders.
    public var sweeps: [DownloadNumber: String]
    /// The last requests to hosts that keep an interval.
    public var requests: [HostRequest]
    /// Above the number of every download that was ever committed. Where an earlier database was lost (set aside, or emptied) numbers go on
    /// from the seconds since the epoch, which are above as long as less than one download a second is added.
    public var nextNumber: DownloadNumber
    /// Where the database was damaged, not ours, and is kept under this path now; a new one was started.
    public var setAside: String?
}
