internal import DownloadModel
internal import EventLoop
internal import PartFiles

/// Folders that did not answer at the start of a transfer. Until a folder answers, further downloads into it wait at once, because each
/// transfer would occupy a slot for `DiskPatience.folder`.
@BusActor final class SilentFolders {
    private var folders: Set<ByteText> = []

    func contains(_ directory: String) -> Bool { folders.contains(ByteText(directory)) }

    /// Remembers `directory`, which does not answer, until it answers.
    func insert(_ directory: String) {
        guard folders.insert(ByteText(directory)).inserted else { return }
        DiskPool.shared.perform(at: .path(directory)) {
            Destination.waitForAnswer(of: directory)
        } then: { [self] _ in
            folders.remove(ByteText(directory))
        }
    }
}

/// Watches the verification or the rename of a file, which a disk that does not answer may delay. This work has no deadline, because the
/// file may already have its final name. Instead, the watch reports the delay.
@BusActor final class EndingWatch {
    private let directory: String
    private let delayed: () -> Void
    private var timer: Poller.Token?
    private var isOver = false

    /// - Parameter delayed: called once, if the work is not over after `DiskPatience.ending` and the folder does not answer.
    init(_ directory: String, delayed: @escaping () -> Void) {
        (self.directory, self.delayed) = (directory, delayed)
        schedule()
    }

    func end() {
        isOver = true
        if let timer { Poller.shared.cancel(timer) }
        timer = nil
    }

    private func schedule() {
        timer = Poller.shared.schedule(after: DiskPatience.ending) { [self] in
            timer = nil
            // A large file takes long to read. Only a folder that does not answer shows that the disk is silent.
            DiskPool.shared.perform(at: .path(directory), within: DiskPatience.folder) { [directory] in
                Destination.waitForAnswer(of: directory)
            } then: { [self] answer in
                guard !isOver else { return }
                if answer == nil { delayed() } else { schedule() }
            }
        }
    }
}
