internal import DownloadModel
internal import EventLoop
internal import Scheduling

/// A part of the service that needs to know what happens to downloads. The centre calls each observer, in the order in which it was given
/// them, with itself as the last argument.
@BusActor protocol DownloadObserver: AnyObject {
    /// A turn of the ledger has changed a record. Called once for a download and turn.
    func changed(_ change: Ledger.Change, _ downloader: Downloader)
    /// The state of a download, or what the download waits for, is another.
    func told(_ entry: LedgerEntry, _ downloader: Downloader)
    /// A transfer begins.
    func started(_ download: ManagedDownload, _ downloader: Downloader)
    /// The transfers of these downloads have more bytes, or another speed.
    func progressed(_ downloads: [ManagedDownload], _ downloader: Downloader)
    /// A transfer has ended.
    func stopped(_ download: ManagedDownload, _ downloader: Downloader)
    /// The end of a download is on disk.
    func ended(_ download: ManagedDownload, _ downloader: Downloader)
    /// The end of a batch is on disk.
    ///
    /// - Parameter end: nil if no toast is owed.
    func ended(_ batch: LedgerBatch, _ end: BatchEnd?, _ downloader: Downloader)
    /// A download is off the list.
    func removed(_ entry: LedgerEntry, _ downloader: Downloader)
    /// A batch is off the list.
    func removed(_ batch: LedgerBatch, _ downloader: Downloader)
    /// At startup: earlier processes owed these toasts.
    func owed(_ toasts: [Ledger.OwedToast], _ downloader: Downloader)
    /// An application has come to the front.
    func cameToFront(_ app: String, _ downloader: Downloader)
    /// The actions of a turn have been performed.
    func decided(_ downloader: Downloader)
    /// The service ends.
    func left(_ downloader: Downloader)
}

extension DownloadObserver {
    func changed(_ change: Ledger.Change, _ downloader: Downloader) {}
    func told(_ entry: LedgerEntry, _ downloader: Downloader) {}
    func started(_ download: ManagedDownload, _ downloader: Downloader) {}
    func progressed(_ downloads: [ManagedDownload], _ downloader: Downloader) {}
    func stopped(_ download: ManagedDownload, _ downloader: Downloader) {}
    func ended(_ download: ManagedDownload, _ downloader: Downloader) {}
    func ended(_ batch: LedgerBatch, _ end: BatchEnd?, _ downloader: Downloader) {}
    func removed(_ entry: LedgerEntry, _ downloader: Downloader) {}
    func removed(_ batch: LedgerBatch, _ downloader: Downloader) {}
    func owed(_ toasts: [Ledger.OwedToast], _ downloader: Downloader) {}
    func cameToFront(_ app: String, _ downloader: Downloader) {}
    func decided(_ downloader: Downloader) {}
    func left(_ downloader: Downloader) {}
}
