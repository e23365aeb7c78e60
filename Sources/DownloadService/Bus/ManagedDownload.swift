internal import DBus
internal import DownloadModel
internal import DownloaderInterface
internal import EventLoop
internal import Scheduling

typealias FetchReply = Reply<(String, String)>

/// A download on the bus: its entry in the ledger, what of it was told, and who waits for it. Most are only made when they are asked for
/// (`Downloader.download`).
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
    /// Calls of `Fetch`, likewise.
    var fetching: [FetchReply] = []
    /// What the server said of the bytes that are whole, for asking later whether they have changed.
    var validators: CopyValidators? {
        get { copyValidators }
        set { if record.keepsCopy { copyValidators = newValue } }
    }
    private var copyValidators: CopyValidators?

    /// The property `Url`, and of which URL it was made: it is looked at before and after each change.
    private var shownUrl = (of: "", text: "")

    /// What it was before a change, to compare with; nil: it is looked at as it is.
    private let past: Ledger.Change?

    convenience init(_ entry: LedgerEntry, in downloader: Downloader) { self.init(entry, nil, in: downloader) }

    /// The download as it was before `change`: for its told properties only.
    convenience init(before change: Ledger.Change, in downloader: Downloader) { self.init(change.entry, change, in: downloader) }

    private init(_ entry: LedgerEntry, _ past: Ledger.Change?, in downloader: Downloader) {
        (self.entry, self.past, self.downloader) = (entry, past, downloader)
        received = entry.record.received
        toldReceived = entry.record.received
        hasToldBytes = entry.record.fileName != nil  // known since a first response
    }

    var host: String { entry.host }
    var record: DownloadRecord { past?.before ?? entry.record }
    var number: DownloadNumber { entry.number }
    var state: DownloadState { record.state }
    var shownState: DownloadState { past.map { $0.shownBefore ?? $0.before.state } ?? downloader.ledger.shownState(of: entry, now: .now) }
    var isRemoved: Bool { entry.isRemoved }
    var path: ObjectPath { BusName.path(of: record) }
    /// The URL without credentials and query: the one that the bytes come from, once that is known.
    var redactedUrl: String {
        if let source = record.source { return source }
        if shownUrl.of != record.url { shownUrl = (record.url, redacted(record.url)) }
        return shownUrl.text
    }
    /// What is known of the complete size.
    var total: ByteCount? { record.total ?? (state.hasEnded ? nil : record.options.size) }

    /// This download, kept: for what is to be remembered of it.
    var kept: ManagedDownload { downloader.download(number) ?? self }

    /// Whether one made anew from the ledger would be the same.
    var isDispensable: Bool {
        entry.work == .idle && waiting.isEmpty && fetching.isEmpty && (validators == nil || state.hasEnded) && propertiesTimer == nil
            && changedProperties.isEmpty && speed == 0
            && received == record.received && toldReceived == received && hasToldBytes == (record.fileName != nil)
    }

    /// No transfer writes any more: the record's bytes are those that count.
    func rewind() {
        received = record.received
        toldReceived = min(toldReceived, received)
    }
}
