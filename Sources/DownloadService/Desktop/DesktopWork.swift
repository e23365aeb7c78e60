internal import DBus
internal import DownloadModel
internal import EventLoop
internal import PartFiles

/// Work for the user's clicks: opening files, and moving files to the trash. The service keeps running while any work is under way.
@BusActor final class DesktopWork {
    /// The longest wait for a move to the trash, which flushes a file.
    private static let trashPatience: Duration = .seconds(20)
    /// `$XDG_DATA_HOME`, which holds the home trash.
    private let dataHome: String
    private let hold: IdleExit.Hold
    private var underWay = 0 { didSet { hold.isHeld = underWay > 0 } }

    /// - Parameter hold: held while any work is under way.
    init(dataHome: String, hold: IdleExit.Hold) { (self.dataHome, self.hold) = (dataHome, hold) }

    /// - Throws: `LimitExceeded`.
    func checkRoom() throws(Refusal) {
        guard underWay < Limits.desktopWork else {
            throw Refusal(.limitExceeded, "At most \(Limits.desktopWork) files are opened or moved at a time.")
        }
    }

    /// Runs `work`, and keeps the service running meanwhile.
    func start(_ work: @escaping @BusActor @Sendable () async -> Void) {
        underWay += 1
        BusActor.spawn { [self] in
            await work()
            underWay -= 1
        }
    }

    /// Moves the finished file to the trash.
    ///
    /// - Throws: if the disk does not answer in time, the error says whether the file may still be moved.
    func moveToTrash(_ path: String, _ identity: FileIdentity?) async throws(Refusal) {
        let (dataHome, wait) = (dataHome, TrashWait())
        let outcome = await DiskPool.shared.value(at: .path(path), takesLong: true, within: Self.trashPatience) {
            Trash.put(path, identity: identity, dataHome: dataHome, wait: wait)
        }
        if let outcome { return try outcome.get() }
        let silence = "The disk of \(path) did not answer within \(Self.trashPatience.components.seconds) seconds"
        throw Refusal(
            .permissionDenied,
            wait.giveUp()
                ? "\(silence) and may still move the file to the trash; try again later, also to take the download off the list."
                : "\(silence), and the file was not moved to the trash; try again later.")
    }
}
