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
        private var reply: ((Result<Void, Refusal>) -> Void)?

        init(_ folder: UnwantedFolder, _ reply: @escaping (Result<Void, Refusal>) -> Void) { (self.folder, self.reply) = (folder, reply) }

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
        waiting[number] = Deletion(folder, reply)
        events.decide(.deleteFolder(number, directory: directory))
    }

    func take(_ number: DownloadNumber) -> Deletion? { waiting.removeValue(forKey: number) }
}
