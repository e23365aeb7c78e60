internal import DownloadModel
internal import EventLoop
internal import Scheduling
internal import TransferEngine

/// A part of the service that observes downloads and assets. The two centres call the observers in the order in which they were passed to
/// `begin`. The announcer is the first, so it posts signals before any other part acts.
@BusActor protocol DownloadObserver: AnyObject {
    /// A turn of the scheduler has changed a record. Called once for a download and turn.
    func changed(_ change: Scheduler.Change)
    /// The state of a download, or its wait reason, has changed.
    func told(_ entry: ScheduledDownload)
    /// As `told`, even if no `changed` says so: state, wait reason or end of the wait have changed.
    func toldWait(_ entry: ScheduledDownload)
    /// A transfer begins.
    func started(_ download: ManagedDownload)
    /// The server answers with bytes from another offset. The object of the download still counts the earlier bytes, and will reset the
    /// count.
    func rewinds(_ download: ManagedDownload)
    /// The server has answered, and the scheduler has been told.
    func responded(_ download: ManagedDownload, _ facts: TransferFacts)
    /// The transfers of these downloads have more bytes, or another speed.
    func progressed(_ downloads: [ManagedDownload])
    /// The extractions of these downloads have come further.
    func extracts(_ downloads: [ManagedDownload])
    /// A transfer has ended. The scheduler has not been told yet.
    func stopped(_ download: ManagedDownload)
    /// A download has ended. The end is not on disk yet.
    func ends(_ download: ManagedDownload)
    /// The end of a download is on disk. The download may have been restarted since, and may have ended again.
    ///
    /// - Parameter owed: the toast of this end; nil if no toast is owed.
    func ended(_ download: ManagedDownload, _ owed: Scheduler.OwedToast?)
    /// A batch has ended. The end is not on disk yet.
    func ends(_ batch: ManagedBatch, _ outcomes: OutcomeCounts)
    /// The end of a batch is on disk.
    ///
    /// - Parameter end: nil if no toast is owed.
    func ended(_ batch: ScheduledBatch, _ end: BatchEnd?)
    /// No unfinished download is left.
    func allEnded(_ outcomes: OutcomeCounts)
    /// A download is off the list.
    func removed(_ entry: ScheduledDownload)
    /// A batch is off the list.
    func removed(_ batch: ManagedBatch)
    /// At startup: earlier processes owed these toasts.
    func owed(_ toasts: [Scheduler.OwedToast])
    /// The actions of a turn have been performed.
    func decided()
    /// A damaged database was set aside, or a database that was set aside is gone.
    func setAsideChanged()
    /// A commit has succeeded, after failed commits.
    func commitsSucceedAgain()
    /// A new version of an asset is installed, and its row is on disk.
    func ready(_ asset: AssetRecord)
    /// The updater of assets has decided, and its actions have been posted.
    func assetsDecided()
    /// The service ends.
    func left()
}

extension DownloadObserver {
    func changed(_ change: Scheduler.Change) {}
    func told(_ entry: ScheduledDownload) {}
    func toldWait(_ entry: ScheduledDownload) { told(entry) }
    func started(_ download: ManagedDownload) {}
    func rewinds(_ download: ManagedDownload) {}
    func responded(_ download: ManagedDownload, _ facts: TransferFacts) {}
    func progressed(_ downloads: [ManagedDownload]) {}
    func extracts(_ downloads: [ManagedDownload]) {}
    func stopped(_ download: ManagedDownload) {}
    func ends(_ download: ManagedDownload) {}
    func ended(_ download: ManagedDownload, _ owed: Scheduler.OwedToast?) {}
    func ends(_ batch: ManagedBatch, _ outcomes: OutcomeCounts) {}
    func ended(_ batch: ScheduledBatch, _ end: BatchEnd?) {}
    func allEnded(_ outcomes: OutcomeCounts) {}
    func removed(_ entry: ScheduledDownload) {}
    func removed(_ batch: ManagedBatch) {}
    func owed(_ toasts: [Scheduler.OwedToast]) {}
    func decided() {}
    func setAsideChanged() {}
    func commitsSucceedAgain() {}
    func ready(_ asset: AssetRecord) {}
    func assetsDecided() {}
    func left() {}
}
