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

        fileprivate init(_ folder: UnwantedFolder, in directory: String, _ reply: @escaping (Result<Void, Refusal>) -> Void) {
            (self.folder, self.directory, self.reply) = (folder, directory, reply)
        }

        /// The first answer counts.
        func answer(_ result: Result<Void, Refusal>) {
            reply?(result)
            reply = nil
        }
    }

    private var waiting: [DownloadNumber: Deletion] = [:]

    /// Call once `number` is removed from the list.
    ///
    /// - Parameter reply: called once: when the folder has lost its name, when it is clear that the folder will not be deleted, or after
    ///   `DiskPatience.file`.
    func delete(
        _ folder: UnwantedFolder, of number: DownloadNumber, in directory: String, _ events: any EventSink,
        reply: @escaping (Result<Void, Refusal>) -> Void
    ) {
        waiting[number] = Deletion(folder, in: directory, reply)
        events.decide(.deleteFolder(number, directory: directory))
    }

    func take(_ number: DownloadNumber, in directory: String) -> Deletion? {
        waiting[number]?.directory.isSameBytes(as: directory) == true ? waiting.removeValue(forKey: number) : nil
    }
}
