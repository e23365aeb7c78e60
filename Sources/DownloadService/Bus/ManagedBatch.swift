internal import DBus
internal import DownloadModel
internal import DownloaderInterface
internal import EventLoop
internal import Scheduling

/// A batch on the bus: its entry in the scheduler, the counts last announced, and the calls that wait for it.
@BusActor final class ManagedBatch {
    let entry: ScheduledBatch

    /// Calls of `Wait` that have not been answered.
    var waiting: [Reply<(UInt32, UInt32, UInt32)>] = []
    /// Calls of `Remove`, answered when the batch is off the list; `isCounted`: the call is among its caller's waiting calls.
    /// `filesToDelete` are the finished files, and `foldersToDelete` the unpacked folders, that are deleted with the batch.
    var removing: [(reply: Reply<Void>, isCounted: Bool)] = []
    var filesToDelete: [(path: String, identity: FileIdentity?)] = []
    var foldersToDelete: [(number: DownloadNumber, directory: String, folder: UnwantedFolder)] = []
    var deletesFiles = false

    /// When the first transfer of the batch was started; nil before, and after the end of the batch.
    var begun: ContinuousClock.Instant?

    /// The counts as last announced, and when.
    var told: (remaining: UInt32, outcomes: OutcomeCounts)
    var toldAt: ContinuousClock.Instant?
    var timer: Poller.Token?

    init(_ entry: ScheduledBatch) {
        self.entry = entry
        told = (entry.counts.remaining, entry.outcomes)
    }

    var record: BatchRecord { entry.record }
    var number: BatchNumber { entry.number }
    var path: ObjectPath { BusName.path(ofBatch: number) }

    /// Forgets the calls of a caller that has left the bus.
    func forget(_ sender: String) {
        waiting.removeAll { $0.call.sender == sender }
        removing.removeAll { $0.reply.call.sender == sender }
    }

    /// Stops the timer of the announced counts.
    func stop() {
        if let timer { Poller.shared.cancel(timer) }
        timer = nil
    }
}
