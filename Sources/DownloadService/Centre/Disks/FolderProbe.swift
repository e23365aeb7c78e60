internal import DownloadModel
internal import EventLoop
internal import PartFiles
internal import Scheduling
internal import TransferEngine

/// Checks the folders that downloads wait for because they were missing or full. No event reports that a disk has room again.
///
/// A timer runs only while a download waits for a folder. A folder that does not answer is not checked again until it does.
@BusActor final class FolderProbe: DownloadObserver {
    /// The time between two checks: in the first minute, and later.
    private static let interval: Duration = .seconds(3)
    private static let longInterval: Duration = .seconds(30)
    private static let shortLooks = 20

    private let list: DownloadList
    private let events: any EventSink
    private let allowsHidden: @BusActor (String) -> Bool
    private var timer: Poller.Token?
    private var looks = 0
    private var looking: Set<ByteText> = []

    /// - Parameter allowsHidden: whether a download into the folder may go through a hidden folder.
    init(list: DownloadList, events: any EventSink, allowsHidden: @escaping @BusActor (String) -> Bool) {
        (self.list, self.events, self.allowsHidden) = (list, events, allowsHidden)
    }

    func decided() { needed(list.counts.awaitingFolder > 0) }

    /// Starts the checks if a download waits for a folder, and stops them otherwise.
    private func needed(_ isNeeded: Bool) {
        guard isNeeded else {
            if let timer { Poller.shared.cancel(timer) }
            (timer, looks) = (nil, 0)
            return
        }
        guard timer == nil else { return }
        looks += 1
        timer = Poller.shared.schedule(after: looks <= Self.shortLooks ? Self.interval : Self.longInterval) { [self] in
            timer = nil
            look()
            needed(list.counts.awaitingFolder > 0)
        }
    }

    private func look() {
        let reserve = list.settings.diskReserve
        for directory in list.scheduler.awaitedFolders.subtracting(looking) {
            looking.insert(directory)
            let allowHidden = allowsHidden(directory.text)
            DiskPool.shared.perform(at: .path(directory.text)) {
                Destination.room(in: directory.text, allowHidden: allowHidden, reserve: reserve)
            } then: { [self] free in
                looking.remove(directory)
                events.decide(.folderSeen(directory.text, free: free))
            }
        }
    }
}
