internal import DBus
internal import DownloadModel
internal import EventLoop
internal import Glibc

/// The folder of registrations and messages: one small file for each, replaced atomically and flushed.
///
/// A change is noted by `put`; `commit` waits until all noted changes are on disk. One thread writes, in the order of the changes. Changes
/// that are noted meanwhile are written together.
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
            case .registration: "registrations"
            case .message: "messages"
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
        /// Oldest first.
        var messages: [PendingPush] = []
        /// Paths of files that cannot be read; they are left alone.
        var damaged: [String] = []
    }

    /// Most bytes of a file.
    private nonisolated static let longest = 1 << 20
    private nonisolated static let folders = ["registrations", "messages"]
    private static let patience: Duration = .seconds(15)
    private static let pool = Pool(name: "push-store", width: 1)

    private let folder: String
    private var noted: [Item: [UInt8]?] = [:]
    /// Wait for the changes that are being written, and for those in `noted`.
    private var waiting: (forWritten: [CheckedContinuation<Bool, Never>], forNoted: [CheckedContinuation<Bool, Never>]) = ([], [])
    private var isWriting = false { didSet { hold?.isHeld = isWriting } }
    private let hold: IdleExit.Hold?

    /// - Parameter hold: held while changes are being written.
    init(folder: String, hold: IdleExit.Hold? = nil) { (self.folder, self.hold) = (folder, hold) }

    /// Whether `folder` has a registration. Reads one folder.
    nonisolated static func hasRegistrations(folder: String) -> Bool { !names(in: "\(folder)/registrations").isEmpty }

    // MARK: Reading

    /// Makes the folders, and reads everything. Blocks, so call it before the program answers calls.
    func open() throws(Refusal) -> Content {
        var path = ""
        for component in folder.split(separator: "/") {
            path += "/\(component)"
            Self.make(path)
        }
        for name in Self.folders { Self.make("\(folder)/\(name)") }
        guard access("\(folder)/registrations", R_OK | W_OK | X_OK) == 0, access("\(folder)/messages", R_OK | W_OK | X_OK) == 0 else {
            throw Self.failed("The folder \(folder) cannot be used: \(String(cString: strerror(errno))).")
        }
        var content = Content()
        content.settings = Self.read("\(folder)/settings") ?? [:]
        content.starts = Self.read("\(folder)/starts") ?? [:]
        unlink("\(folder)/.new-settings")
        unlink("\(folder)/.new-starts")
        for name in Self.names(in: "\(folder)/registrations", cleansUp: true).prefix(Registry.most) {
            let path = "\(folder)/registrations/\(name)"
            if let registration = Self.read(path).flatMap(Registration.init(record:)), registration.token == name {
                content.registrations.append(registration)
            } else {
                content.damaged.append(path)
            }
        }
        for name in Self.names(in: "\(folder)/messages", cleansUp: true).prefix(Deliveries.mostWaiting) {
            let path = "\(folder)/messages/\(name)"
            if let message = Self.read(path).flatMap(PendingPush.init(record:)), message.id == name {
                content.messages.append(message)
            } else {
                content.damaged.append(path)
            }
        }
        content.registrations.sort { ($0.created, $0.token) < ($1.created, $1.token) }
        content.messages.sort { ($0.arrived, $0.id) < ($1.arrived, $1.id) }
        return content
    }

    /// Names of records, in alphabetical order.
    ///
    /// - Parameter cleansUp: whether to delete what an interrupted write left behind. Another process may be writing now, unless this one
    ///   owns the bus name.
    private nonisolated static func names(in path: String, cleansUp: Bool = false) -> [String] {
        guard let handle = opendir(path) else { return [] }
        defer { closedir(handle) }
        var names: [String] = []
        while let entry = readdir(handle) {
            let name = withUnsafePointer(to: &entry.pointee.d_name) {
                $0.withMemoryRebound(to: CChar.self, capacity: 256) { String(cString: $0) }
            }
            if !name.hasPrefix(".") {
                names.append(name)
            } else if cleansUp, name.hasPrefix(".new-") {
                unlink("\(path)/\(name)")
            }
        }
        return names.sorted()
    }

    private static func read(_ path: String) -> [String: Variant]? {
        let file = Glibc.open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)
        guard file >= 0 else { return nil }
        defer { close(file) }
        var bytes: [UInt8] = []
        var buffer = [UInt8](repeating: 0, count: 64 << 10)
        while bytes.count <= longest {
            let count = Glibc.read(file, &buffer, buffer.count)
            guard count > 0 else { return count == 0 ? Message.value([String: Variant].self, from: bytes) : nil }
            bytes += buffer[..<count]
        }
        return nil
    }

    // MARK: Writing

    /// Notes a new record; nil deletes the record.
    func put(_ item: Item, _ record: [String: Variant]?) {
        noted[item] = .some(record.map { Message.bytes(of: $0) })
        writeNext()
    }

    /// Waits until everything that was noted before is on disk.
    ///
    /// - Throws: `Storage` if some of it could not be written. The caller notes the former record again. Else it is written later.
    func commit() async throws(Refusal) {
        guard isWriting || !noted.isEmpty else { return }
        let isOnDisk = await withCheckedContinuation { continuation in
            if noted.isEmpty { waiting.forWritten.append(continuation) } else { waiting.forNoted.append(continuation) }
            writeNext()
        }
        if !isOnDisk { throw Self.failed("The registrations cannot be saved in \(folder): the disk is full, or does not answer.") }
    }

    private static func failed(_ text: String) -> Refusal { Refusal(.storage, text) }

    private func writeNext() {
        guard !isWriting, !noted.isEmpty else { return }
        isWriting = true
        BusActor.spawn { [self] in await write() }
    }

    private func write() async {
        let (changes, folder) = (noted, folder)
        (noted, waiting) = ([:], (waiting.forNoted, []))
        let isOnDisk = await Self.pool.value(within: Self.patience) { Self.write(changes, to: folder) } ?? false
        let waiters = waiting.forWritten
        waiting.forWritten = []
        let hasMore = !noted.isEmpty
        // What could not be written is written with the next change, unless that replaces it.
        if !isOnDisk { noted.merge(changes) { newer, _ in newer } }
        isWriting = false
        for waiter in waiters { waiter.resume(returning: isOnDisk) }
        if hasMore { writeNext() }
    }

    /// Blocks. Messages come first: a registration remembers the files that were fetched, and must not do so before the message about the
    /// file says that it was. Otherwise the app would hear that the file was there already.
    private nonisolated static func write(_ changes: [Item: [UInt8]?], to folder: String) -> Bool {
        var isOnDisk = true
        for parent in ["messages", "registrations", ""] {
            let path = parent.isEmpty ? folder : "\(folder)/\(parent)"
            var isTouched = false
            // Deletions come last: a message may take the place of another.
            for (item, bytes) in changes.filter({ $0.key.folder == parent }).sorted(by: { $0.value != nil && $1.value == nil }) {
                isTouched = true
                if let bytes {
                    isOnDisk = replace(item.name, bytes, in: path) && isOnDisk
                } else if unlink("\(path)/\(item.name)") != 0, errno != ENOENT {
                    isOnDisk = false
                }
            }
            if isTouched { isOnDisk = flush(path) && isOnDisk }
            guard isOnDisk else { return false }
        }
        return isOnDisk
    }

    private nonisolated static func replace(_ name: String, _ bytes: [UInt8], in parent: String) -> Bool {
        let (path, new) = ("\(parent)/\(name)", "\(parent)/.new-\(name)")
        unlink(new)
        let file = Glibc.open(new, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0o600)
        guard file >= 0 else { return false }
        var written = 0
        while written < bytes.count {
            let count = bytes.withUnsafeBytes { Glibc.write(file, $0.baseAddress! + written, $0.count - written) }
            if count < 0, errno == EINTR { continue }
            guard count > 0 else { break }
            written += count
        }
        let isWritten = written == bytes.count && fsync(file) == 0
        guard close(file) == 0, isWritten, rename(new, path) == 0 else {
            unlink(new)
            return false
        }
        return true
    }

    /// Makes a folder unless it is there, and brings its name to disk.
    private nonisolated static func make(_ path: String) {
        if mkdir(path, 0o700) == 0 { _ = flush("\(path)/..") }
    }

    private nonisolated static func flush(_ path: String) -> Bool {
        let handle = Glibc.open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        guard handle >= 0 else { return false }
        defer { close(handle) }
        return fsync(handle) == 0
    }
}
