internal import DBus
internal import DownloadModel
internal import DownloaderInterface
internal import EventLoop

typealias FetchReply = Reply<(String, String)>

/// What a download has that is fetched, or has a copy: few are so, and the others take no room for it.
@BusActor private final class FetchState {
    let key: CopyKey?
    var validators: CopyValidators?
    var calls: [FetchReply] = []

    init(key: CopyKey?) { self.key = key }
}

/// A download on the bus: its entry in the ledger, what of it was told, and who waits for it.
@BusActor final class ManagedDownload {
    unowned let downloader: Downloader  // the centre outlives every download
    let entry: LedgerEntry
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

    /// Calls of `Wait` that have not been answered.
    var waiting: [Reply<String>] = []
    private var fetch: FetchState?
    /// When the progress toast was last updated.
    var progressToasted: ContinuousClock.Instant?

    init(_ entry: LedgerEntry, in downloader: Downloader) {
        (self.entry, self.downloader) = (entry, downloader)
        received = entry.record.received
        toldReceived = entry.record.received
        hasToldBytes = entry.record.fileName != nil  // known since a first response
        if entry.record.isFetch { fetch = FetchState(key: entry.record.copyKey) }
    }

    /// Calls of `Fetch` that have not been answered.
    var fetching: [FetchReply] {
        get { fetch?.calls ?? [] }
        set { if fetch != nil || !newValue.isEmpty { fetchState.calls = newValue } }
    }
    /// What a Fetch was of when it was added.
    var fetchKey: CopyKey? { fetch?.key }
    /// What the server said of the bytes that are whole, for asking later whether they have changed.
    var validators: CopyValidators? {
        get { fetch?.validators }
        set { if record.keepsCopy { fetchState.validators = newValue } }
    }

    private var fetchState: FetchState {
        let state = fetch ?? FetchState(key: nil)
        fetch = state
        return state
    }

    var host: String { entry.host }
    var record: DownloadRecord { entry.record }
    var number: DownloadNumber { entry.number }
    var state: DownloadState { entry.state }
    var isRemoved: Bool { entry.isRemoved }
    var path: ObjectPath { BusName.path(of: record) }
    /// What is known of the complete size.
    var total: ByteCount? { record.total ?? (state.hasEnded ? nil : record.options.size) }

    /// No transfer writes any more: the record's bytes are those that count.
    func rewind() {
        received = record.received
        toldReceived = min(toldReceived, received)
    }
}
