internal import DownloadModel
internal import EventLoop
internal import Scheduling

/// An unpacked folder that is deleted with its download.
struct UnwantedFolder: Sendable {
    let path: String
    let identity: FileIdentity?
}

/// The unpacked folders of removed downloads, until they are renamed to their provisional names.
///
/// A row (`StoreChange.sweep`) stays until a folder is deleted, so the next process finishes an interrupted deletion. The call is answered
/// earlier: as soon as the folder has lost its name, because a large folder takes minutes to delete.
@BusActor final class UnwantedFolders {
    /// A folder, and the call that waits for it.
    @BusActor final class Deletion {
        let folder: UnwantedFolder
        /// The folder that has the unwanted one.
        fileprivate let directory: String
        private var reply: ((Result<Void, Refusal>) -> Void)?
        private var timer: Poller.Token?

        fileprivate init(_ folder: UnwantedFolder, in directory: String, _ reply: @escaping (Result<Void, Refusal>) -> Void) {
            (self.folder, self.directory, self.reply) = (folder, directory, reply)
        }

        /// From now on, the call waits for `DiskPatience.file` at most, also while another deletion of the download is still under way.
        fileprivate func limitWait() {
            guard reply != nil else { return }
            timer = Poller.shared.scheduleAwake(after: DiskPatience.file) { [self] in
                answer(.failure(.silentDisk(ofFolder: folder.path)))
            }
        }

        /// The first answer counts.
        func answer(_ result: Result<Void, Refusal>) {
            if let timer { Poller.shared.cancel(timer) }
            timer = nil
            reply?(result)
            reply = nil
        }
    }

    private var waiting: [DownloadNumber: Deletion] = [:]

    /// Call once `number` is removed from the list.
    ///
    /// - Parameter reply: called once: when the folder has lost its name, when it is clear that the folder will not be deleted, or
    ///   `DiskPatience.file` after the row is on disk. With the row, the folder is deleted later.
    func delete(
        _ folder: UnwantedFolder, of number: DownloadNumber, in directory: String, _ events: any EventSink, _ journal: Journal,
        reply: @escaping (Result<Void, Refusal>) -> Void
    ) {
        let deletion = Deletion(folder, in: directory, reply)
        waiting[number] = deletion
        events.decide(.deleteFolder(number, directory: directory))
        journal.afterCommit { deletion.limitWait() }
    }

    func take(_ number: DownloadNumber, in directory: String) -> Deletion? {
        waiting[number]?.directory.isSameBytes(as: directory) == true ? waiting.removeValue(forKey: number) : nil
    }
}
