internal import DBus
internal import DownloadModel
internal import EventLoop
internal import Glibc
internal import PushInterface

/// The folder of registrations and messages: one small file for each, replaced atomically and flushed.
///
/// A change is noted by `put`; `commit` waits until all noted changes are on disk. One write runs at a time, in the order of the changes.
/// Changes that are noted meanwhile are written together afterwards. The next write waits for the end of a write that hangs, because a
/// late rename would bring back a file that the next write has deleted.
@BusActor final class PushStore {
    enum Item: Hashable, Sendable {
        case settings
        /// When apps in a sandbox were started.
        case starts
        /// By its token.
        case registration(String)
        /// By its id.
        case message(String)

        /// Below the folder of the store; empty: in it.
        fileprivate var folder: String {
            switch self {
            case .settings, .starts: ""
            case .registration: PushFolder.registrations
            case .message: PushFolder.messages
            }
        }

        fileprivate var name: String {
            switch self {
            case .settings: "settings"
            case .starts: "starts"
            case .registration(let token): token
            case .message(let id): id
            }
        }
    }

    /// What was read at the start.
    struct Content {
        var settings: [String: Variant] = [:]
        var starts: [String: Variant] = [:]
        /// Oldest first.
        var registrations: [Registration] = []
        /// Oldest first, without those of registrations that cannot be read: a later start may read them.
        var messages: [PendingPush] = []
        /// Paths of files that cannot be read; they are left alone.
        var damaged: [String] = []
    }

    /// How long `commit` waits. The time in which the machine sleeps does not count.
    private static let patience: Duration = .seconds(15)
    /// How long a start waits for a process that is about to end, or for ‘todoku reset’.
    private static let longestWait: Duration = .seconds(15)
    private static let pool = Pool(name: "push-store", width: 1)

    private let folder: PushFolder
    private var lock: PushFolderLock?
    private var noted: [Item: [UInt8]?] = [:]
    /// Items that have a file.
    private var present: Set<Item> = []
    /// Items that are being written, and may have a file afterwards.
    private var writing: Set<Item> = []
    /// Calls of `commit`, oldest first.
    private var waits: [(until: SuspendingClock.Instant, continuation: CheckedContinuation<Bool, Never>)] = []
    /// How many of these calls, the first ones, wait for the changes that are being written. The others wait for those in `noted`.
    private var waitsForWrite = 0
    private var timer: Poller.Token?
    private var isWriting = false { didSet { hold?.isHeld = isWriting } }
    private let hold: IdleExit.Hold?

    /// - Parameter hold: held while changes are being written.
    init(folder: String, hold: IdleExit.Hold? = nil) { (self.folder, self.hold) = (PushFolder(folder), hold) }

    /// Whether `folder` has a registration, or a message of one whose end was interrupted. Reads two folders.
    nonisolated static func hasRegistrations(folder: String) -> Bool {
        [PushFolder.registrations, PushFolder.messages].contains { PushFolder(folder).names(in: $0)?.isEmpty == false }
    }

    // MARK: Reading

    /// Makes this process the only one that writes the folders, as long as this object lives. Blocks.
    ///
    /// - Throws: `Storage` if the folders cannot be used, or another process keeps them.
    func takeLock() throws(Refusal) {
        try makeFolders()
        lock = folder.lock(within: Self.longestWait)
        guard lock == nil else { return }
        let cause = errno
        throw Self.failed(
            cause == EWOULDBLOCK
                ? "Another program uses the folder \(folder.path); end it and try again."
                : "The folder \(folder.path) cannot be locked: \(String(cString: strerror(cause))).")
    }

    private func makeFolders() throws(Refusal) {
        let code = folder.make()
        guard code == 0 else { throw Self.failed("The folder \(folder.path) cannot be used: \(String(cString: strerror(code))).") }
    }

    /// Makes the folders, and reads everything. Blocks, so call it before the program answers calls.
    ///
    /// - Throws: `Storage` if a folder cannot be made or listed. Without the registrations, this method would delete their messages.
    func open() throws(Refusal) -> Content {
        try makeFolders()
        var content = Content()
        content.settings = read("settings") ?? [:]
        content.starts = read("starts") ?? [:]
        for name in ["settings", "starts"] { folder.deleteDraft(of: name) }
        let (registrations, messages) = (try names(in: PushFolder.registrations), try names(in: PushFolder.messages))
        present = Set(registrations.map { Item.registration($0) }).union(messages.map { Item.message($0) })
        for item in [Item.settings, .starts] where folder.has(item.name) { present.insert(item) }
        // Unreadable files do not count against the limits, nor do messages of unreadable registrations, because both may stay for long.
        var damagedRegistrations: Set<String> = []
        for name in registrations where content.registrations.count < Registry.most {
            let path = "\(PushFolder.registrations)/\(name)"
            if let registration = read(path).flatMap(Registration.init(record:)), registration.token == name {
                content.registrations.append(registration)
            } else {
                damagedRegistrations.insert(name)
                content.damaged.append("\(folder.path)/\(path)")
            }
        }
        for name in messages where content.messages.count < Deliveries.mostKept {
            let path = "\(PushFolder.messages)/\(name)"
            if let message = read(path).flatMap(PendingPush.init(record:)), message.id == name {
                if !damagedRegistrations.contains(message.token) { content.messages.append(message) }
            } else {
                content.damaged.append("\(folder.path)/\(path)")
            }
        }
        content.registrations.sort { ($0.created, $0.token) < ($1.created, $1.token) }
        content.messages.sort { ($0.arrived, $0.id) < ($1.arrived, $1.id) }
        return content
    }

    /// The names of records. Deletes what an interrupted write has left.
    private func names(in part: String) throws(Refusal) -> [String] {
        guard let names = folder.names(in: part, cleansUp: true) else {
            throw Self.failed("The folder \(folder.path)/\(part) cannot be used: \(String(cString: strerror(errno))).")
        }
        return names
    }

    private func read(_ name: String) -> [String: Variant]? {
        folder.bytes(name).flatMap { Message.value([String: Variant].self, from: $0) }
    }

    // MARK: Writing

    /// Notes a new record; nil deletes the record.
    func put(_ item: Item, _ record: [String: Variant]?) {
        let bytes = record.map { Message.bytes(of: $0) }
        if isNeeded(item, bytes) {
            noted[item] = .some(bytes)
            writeNext()
        } else {
            noted.removeValue(forKey: item)
        }
    }

    /// A record that was never written needs no deletion. Otherwise, on a full disk, each refused message would leave a deletion.
    private func isNeeded(_ item: Item, _ bytes: [UInt8]?) -> Bool { bytes != nil || present.contains(item) || writing.contains(item) }

    /// Waits until everything that was noted before is on disk. The calls are answered in their order.
    ///
    /// - Throws: `Storage` if some of it could not be written, or the disk has not answered in time. The caller notes the former record
    ///   again. Else it is written later.
    func commit() async throws(Refusal) {
        let isOnDisk: Bool = await withCheckedContinuation { continuation in
            // Look here, and not before the call: the call may suspend, so that the last write ends in between.
            guard isWriting || !noted.isEmpty else { return continuation.resume(returning: true) }
            waits.append((SuspendingClock.now + Self.patience, continuation))
            if noted.isEmpty { waitsForWrite = waits.count }
            setTimer()
            writeNext()
        }
        if !isOnDisk { throw Self.failed("The registrations cannot be saved in \(folder.path): the disk is full, or does not answer.") }
    }

    private static func failed(_ text: String) -> Refusal { Refusal(.storage, text) }

    private func setTimer() {
        guard timer == nil, let first = waits.first else { return }
        timer = Poller.shared.scheduleAwake(after: first.until - SuspendingClock.now) { [self] in
            timer = nil
            let now = SuspendingClock.now
            endWaits(waits.prefix { $0.until <= now }.count, isOnDisk: false)
        }
    }

    /// Answers the first `count` calls of `commit`.
    private func endWaits(_ count: Int, isOnDisk: Bool) {
        let ended = waits.prefix(count)
        waits.removeFirst(count)
        waitsForWrite = max(0, waitsForWrite -| count)
        if waits.isEmpty, let timer {
            Poller.shared.cancel(timer)
            self.timer = nil
        }
        for wait in ended { wait.continuation.resume(returning: isOnDisk) }
        setTimer()
    }

    private func writeNext() {
        guard !isWriting, !noted.isEmpty else { return }
        isWriting = true
        BusActor.spawn { [self] in write() }
    }

    private func write() {
        let (changes, folder, known) = (noted, folder, present)
        (noted, waitsForWrite, writing) = ([:], waits.count, Set(changes.keys))
        Self.pool.perform {
            Self.write(changes, to: folder, known)
        } then: { [self] written in
            writing = []
            present.formUnion(written.files)
            present.subtract(written.deleted)
            let hasMore = noted.contains { isNeeded($0.key, $0.value) }
            // What could not be written is written with the next change, unless that replaces it.
            if !written.isOnDisk { noted.merge(changes) { newer, _ in newer } }
            noted = noted.filter { isNeeded($0.key, $0.value) }
            isWriting = false
            // If nothing is left of the later changes, their calls wait for this write.
            endWaits(hasMore ? waitsForWrite : waits.count, isOnDisk: written.isOnDisk)
            if hasMore { writeNext() }
        }
    }

    /// What a write has done.
    private struct Written: Sendable {
        /// Whether all changes are on disk.
        var isOnDisk = true
        var files: Set<Item> = []
        var deleted: Set<Item> = []
    }

    /// Blocks. Messages come first: a registration remembers the files that were fetched, and must not do so before the message about the
    /// file says that it was. Otherwise the app would hear that the file was there already.
    ///
    /// The deletions of registrations come last: if the write fails before them, no registration has ended, because a refused end leaves
    /// its registration. A write that fails takes back the files that it has made: a refused registration must not be there at the next
    /// start, even if the disk stays full. If it has deleted messages, it leaves the new ones, because one of them may take their place.
    ///
    /// - Parameter known: items that had a file before.
    private nonisolated static func write(_ changes: [Item: [UInt8]?], to folder: PushFolder, _ known: Set<Item>) -> Written {
        var written = Written()
        var hasDeletedMessages = false

        /// Writes the files of a folder, and then deletes others there, unless one could not be written.
        func save(_ files: [Item: [UInt8]], deleting deletions: [Item], in part: String) {
            guard written.isOnDisk, !files.isEmpty || !deletions.isEmpty else { return }
            for (item, bytes) in files {
                if folder.replace(item.name, in: part, by: bytes) { written.files.insert(item) } else { written.isOnDisk = false }
            }
            var deleted: Set<Item> = []
            for item in deletions where written.isOnDisk {
                if part == PushFolder.messages { hasDeletedMessages = true }
                if folder.delete(item.name, in: part) { deleted.insert(item) } else { written.isOnDisk = false }
            }
            if folder.flush(in: part) { written.deleted.formUnion(deleted) } else { written.isOnDisk = false }
        }

        func files(in part: String) -> [Item: [UInt8]] { changes.filter { $0.key.folder == part }.compactMapValues { $0 } }
        func deletions(in part: String) -> [Item] { changes.filter { $0.key.folder == part && $0.value == nil }.map(\.key) }
        let (messages, registrations) = (PushFolder.messages, PushFolder.registrations)
        // Deletions come last: a message may take the place of another.
        save(files(in: messages), deleting: deletions(in: messages), in: messages)
        save(files(in: registrations), deleting: [], in: registrations)
        save(files(in: ""), deleting: deletions(in: ""), in: "")
        save([:], deleting: deletions(in: registrations), in: registrations)

        guard !written.isOnDisk else { return written }
        let made = written.files.subtracting(known).filter { !hasDeletedMessages || $0.folder != messages }
        let removed = made.filter { folder.delete($0.name, in: $0.folder) }
        if Set(removed.map(\.folder)).allSatisfy({ folder.flush(in: $0) }) { written.files.subtract(removed) }
        return written
    }
}
