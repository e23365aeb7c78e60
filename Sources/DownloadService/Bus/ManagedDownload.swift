internal import DBus
internal import DownloadModel
internal import DownloaderInterface
internal import EventLoop
internal import Scheduling
internal import TransferEngine

typealias FetchReply = Reply<(String, String)>

/// A download on the bus: its entry in the scheduler, the values last announced, and the calls that wait for it. Most objects are made only
/// when needed (`DownloadList.download`).
@BusActor final class ManagedDownload {
    let entry: ScheduledDownload
    private let scheduler: Scheduler
    /// When the running transfer, or the last one, was started.
    var transferStarted: ContinuousClock.Instant?

    /// The bytes in the part file now. The record has the saved bytes.
    var received: ByteCount
    var speed: Speed = 0
    /// The number of connections that its transfer uses, as last reported.
    var connections: UInt32 = 1
    /// The value of `connections` in the last `PropertiesChanged`.
    var toldConnections: UInt32 = 1
    /// The sources as last reported by the running transfer; empty: the record knows them.
    var sources: [SourceProgress] = []
    /// The value of `sources` in the last `PropertiesChanged`.
    var toldSources: [SourceProgress] = []
    /// The share of the archive that has been read, 0.0–1.0; nil: nothing yet, or the archive is not being unpacked.
    var extracted: Double?

    /// The value of `received` in the last `Progress` or `ResumedAt`.
    var toldReceived: ByteCount
    /// Whether this process, or an earlier one, has reported any bytes. If so, even a transfer that begins at 0 sends `ResumedAt`.
    var hasToldBytes: Bool
    var progressTold: ContinuousClock.Instant?
    /// The announced properties that changed since the last `PropertiesChanged`, and when that was sent.
    var changedProperties: Set<String> = []
    /// The announced properties as last compared, while there is work on the download.
    var comparedValues: [Variant]?
    /// Whether the state has changed since that comparison; nil: no change was noted since.
    var changesState: Bool?
    /// Whether no signal has reported the download since it became active. If the download ends before any signal reports it, only the end
    /// is reported.
    var isBrief = false
    var propertiesTold: ContinuousClock.Instant?
    var propertiesTimer: Poller.Token?

    /// Calls of `Wait` that have not been answered.
    var waiting: [Reply<String>] = []
    /// Calls of `Fetch` that have not been answered.
    var fetching: [FetchReply] = []
    /// The server's validators of the complete file, for later conditional requests.
    var validators: CopyValidators? {
        get { copyValidators }
        set { if record.keepsCopy { copyValidators = newValue } }
    }
    private var copyValidators: CopyValidators?

    /// Caches the property `Url` and the URL it was made from, because the property is compared often.
    private var shownUrl = (of: "", text: "")

    /// The change before which this object shows the download; nil: the object shows the download as it is now.
    private let past: Scheduler.Change?

    convenience init(_ entry: ScheduledDownload, in scheduler: Scheduler) { self.init(entry, nil, in: scheduler) }

    /// `download` as it was before `change`, for its announced properties only.
    convenience init(_ download: ManagedDownload, before change: Scheduler.Change) {
        self.init(change.entry, change, in: download.scheduler)
        _ = download.redactedUrl
        shownUrl = download.shownUrl  // valid unless the change is a fresh link
    }

    private init(_ entry: ScheduledDownload, _ past: Scheduler.Change?, in scheduler: Scheduler) {
        (self.entry, self.past, self.scheduler) = (entry, past, scheduler)
        received = entry.record.received
        toldReceived = entry.record.received
        hasToldBytes = entry.record.fileName != nil  // known since a first response
    }

    var host: String { entry.host }
    var record: DownloadRecord { past?.before ?? entry.record }
    var number: DownloadNumber { entry.number }
    var state: DownloadState { record.state }
    /// The state as the bus shows it: see `Scheduler.shownState`.
    var shownState: DownloadState { past.map { $0.shownBefore ?? $0.before.state } ?? scheduler.shownState(of: entry, now: .now) }
    /// How many downloads are ahead in the queue.
    var ahead: Int { scheduler.ahead(of: entry, now: .now) }
    var isRemoved: Bool { entry.isRemoved }
    var path: ObjectPath { BusName.path(of: record) }
    /// The URL without credentials and query. Once known, the URL that the bytes come from.
    var redactedUrl: String {
        if let source = record.source { return source }
        if shownUrl.of != record.url { shownUrl = (record.url, redacted(record.url)) }
        return shownUrl.text
    }
    /// The complete size; nil while unknown. Before the end, the size that the caller expects counts as known.
    var total: ByteCount? { record.total ?? (state.hasEnded ? nil : record.options.size) }

    /// The known facts about each source, with its speed. Empty if the download has no mirrors.
    var shownSources: [SourceProgress] {
        guard sources.isEmpty else { return sources }
        return record.knownSources.map { SourceProgress($0, speed: 0) }
    }

    /// Whether a new object made from the scheduler would equal this one.
    var isDispensable: Bool {
        entry.work == .idle && waiting.isEmpty && fetching.isEmpty && (validators == nil || state.hasEnded) && propertiesTimer == nil
            && changedProperties.isEmpty && changesState == nil && speed == 0 && connections == 1 && toldConnections == 1
            && extracted == nil && sources.isEmpty
            && received == record.received && toldReceived == received && hasToldBytes == (record.fileName != nil)
    }

    /// No `Progress` reports the bytes received so far.
    func skipProgress() { (toldReceived, hasToldBytes) = (received, true) }

    /// The bytes of another representation are deleted, and `bytes` earlier ones count again. No `Progress` reports them a second time.
    func holdAgain(_ bytes: ByteCount) {
        received = bytes
        skipProgress()
    }

    /// Resets the bytes to the saved bytes of the record, because no transfer writes any more.
    func rewind() {
        received = record.received
        toldReceived = min(toldReceived, received)
    }
}
