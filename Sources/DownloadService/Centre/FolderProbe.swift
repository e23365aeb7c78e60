internal import DownloadModel
internal import EventLoop
internal import PartFiles
internal import Scheduling
internal import TransferEngine

/// Looks at the folders that downloads wait for, for room or for the folder itself: nobody tells when a disk has room again.
///
/// A timer runs only while something waits so. A folder that does not answer is not looked at again before it does.
@BusActor final class FolderProbe {
    /// Between two looks: at first, and after a minute.
    private static let interval: Duration = .seconds(3)
    private static let longInterval: Duration = .seconds(30)
    private static let shortLooks = 20

    private unowned let downloader: Downloader  // the centre owns its probe
    private var timer: Poller.Token?
    private var looks = 0
    private var looking: Set<ByteText> = []

    init(_ downloader: Downloader) { self.downloader = downloader }

    /// Says whether anything waits for a folder.
    func needed(_ isNeeded: Bool) {
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
            needed(downloader.counts.awaitingFolder > 0)
        }
    }

    private func look() {
        let (allowHidden, reserve) = (downloader.allowsHiddenFolders, downloader.settings.diskReserve)
        for directory in downloader.ledger.awaitedFolders.subtracting(looking) {
            looking.insert(directory)
            DiskPool.shared.perform(at: .path(directory.text)) {
                Destination.room(in: directory.text, allowHidden: allowHidden, reserve: reserve)
            } then: { [self] free in
                looking.remove(directory)
                downloader.decide(.folderSeen(directory.text, free: free))
            }
        }
    }
}
