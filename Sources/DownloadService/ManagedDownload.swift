internal import DBus
internal import DownloadModel
internal import DownloaderInterface
internal import EventLoop

/// A download in the service's hands: its record, and what is true of it in this process only.
@BusActor final class ManagedDownload {
    enum Transfer { case none, running, stopping }

    unowned let downloader: Downloader  // the centre outlives every download
    var record: DownloadRecord
    /// The engine's work on it. A new transfer begins only when the one before has ended.
    var transfer = Transfer.none
    /// Its part file is being deleted in the pool; a transfer waits for that.
    var isDiscarding = false
    /// The part file is to be deleted as soon as the transfer has stopped.
    var discardsWhenStopped = false
    /// Taken off the list; what is still under way for it ends quietly.
    var isRemoved = false
    /// When the transfer that runs was started.
    var transferStarted: ContinuousClock.Instant?

    /// Bytes in the part file now; the record's are the saved ones.
    var received: ByteCount
    var speed: Speed = 0

    /// `received` as the last `Progress` or `ResumedAt` told it, and when.
    var toldReceived: ByteCount
    /// Bytes have been told of, by this process or the one before: a transfer that begins at 0 all the same must say so.
    var hasToldBytes: Bool
    var progressTold: ContinuousClock.Instant?
    /// Told properties that changed since the last `PropertiesChanged`, and when that was.
    var changedProperties: Set<String> = []
    var propertiesTold: ContinuousClock.Instant?
    var propertiesTimer: Poller.Token?

    /// The deadline of its wait.
    var wake: Poller.Token?
    /// Calls of `Wait` that have not been answered.
    var waiting: [Reply<String>] = []
    /// When the progress toast was last updated.
    var progressToasted: ContinuousClock.Instant?

    init(_ record: DownloadRecord, in downloader: Downloader) {
        (self.record, self.downloader) = (record, downloader)
        received = record.received
        toldReceived = record.received
        hasToldBytes = record.fileName != nil  // known since a first response
    }

    /// The host of its URL, for the limit per host.
    lazy var host = (try? DownloadURL(record.url).host) ?? ""

    var number: DownloadNumber { record.number }
    var state: DownloadState { record.state }
    var path: ObjectPath { BusName.path(of: record) }
    /// What is known of the complete size.
    var total: ByteCount? { record.total ?? (state.hasEnded ? nil : record.options.size) }
    var isBusy: Bool { transfer != .none || isDiscarding }
}
