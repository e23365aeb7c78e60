internal import DBus
internal import DownloadModel
public import DownloadStore
internal import EventLoop
internal import Glibc
internal import PushInterface

/// The registrations for pushes, the messages that are not done, and the chosen distributor: what a backup carries beside the queue.
///
/// A registration cannot do without its keys, so they are in every backup.
public struct PushRecords: Sendable {
    /// Who made a registration.
    struct Owner: Hashable, Sendable {
        let app: String
        let name: String
    }

    static let settings = "settings"
    /// The names of the attachments begin with it.
    private static let prefix = "push/"

    /// By their names below the folder, as "registrations/TOKEN".
    private(set) var files: [String: [UInt8]] = [:]
    /// By their tokens.
    private(set) var owners: [String: Owner] = [:]
    /// The tokens of messages, by the messages' ids.
    private(set) var tokens: [String: String] = [:]
    /// The paths of files that cannot be read. They are not copied, and stay where they are.
    public private(set) var damaged: [String] = []

    public var isEmpty: Bool { files.isEmpty }
    /// How many registrations there are.
    public var count: Int { owners.count }

    /// Reads the records of this user, also while todoku-push writes. Each file is as it was at one moment. Blocks.
    ///
    /// - Throws: `storage` if the folder cannot be read.
    public static func read() throws(StoreError) -> PushRecords { try PushRecords(of: PushFolder(StateFiles.pushFolder)) }

    init(of folder: PushFolder) throws(StoreError) {
        var names = folder.has(Self.settings) ? [Self.settings] : []
        // Registrations first: todoku-push writes a message before its registration, which must not know a file without its message.
        for part in [PushFolder.registrations, PushFolder.messages] {
            guard let found = folder.names(in: part) else {
                throw StoreError(
                    .storage,
                    "The folder \(folder.path)/\(part) cannot be read: \(String(cString: strerror(errno))); check its permissions.")
            }
            names.append(contentsOf: found.map { "\(part)/\($0)" })
        }
        for name in names {
            if let bytes = folder.bytes(name), take(name, bytes) { continue }
            // A message may have been done meanwhile.
            if folder.has(name) { damaged.append("\(folder.path)/\(name)") }
        }
    }

    /// - Parameter path: the backup.
    /// - Throws: `damaged` if an attachment is none of ours.
    public init(_ attachments: [Attachment], of path: String) throws(StoreError) {
        for attachment in attachments {
            guard attachment.name.hasPrefix(Self.prefix), take(String(attachment.name.dropFirst(Self.prefix.count)), attachment.bytes)
            else {
                throw StoreError(
                    .damaged, "The backup \(path) is damaged: its attachment \(attachment.name.debugDescription) is not known.")
            }
        }
    }

    /// Adds the records that have come since. If both have a file, the file of `later` counts. If a registration was ended and made again,
    /// with another token, only the registration of `later` counts.
    public func adding(_ later: PushRecords) -> PushRecords {
        var both = self
        let made = Set(later.owners.values)
        for (token, owner) in owners where made.contains(owner) && later.owners[token] == nil {
            both.owners[token] = nil
            both.files["\(PushFolder.registrations)/\(token)"] = nil
        }
        both.files.merge(later.files) { $1 }
        both.owners.merge(later.owners) { $1 }
        both.tokens.merge(later.tokens) { $1 }
        return both
    }

    public var attachments: [Attachment] {
        files.sorted { $0.key < $1.key }.map { Attachment(name: "\(Self.prefix)\($0.key)", bytes: $0.value) }
    }

    /// Takes a file, unless its name or its record is damaged.
    private mutating func take(_ name: String, _ bytes: [UInt8]) -> Bool {
        guard bytes.count <= PushFolder.longest, let record = Message.value([String: Variant].self, from: bytes) else { return false }
        let parts = name.split(separator: "/", omittingEmptySubsequences: false).map(String.init)
        switch (parts.first, parts.count) {
        case (Self.settings, 1): break
        case (PushFolder.registrations, 2):
            guard Self.isName(parts[1]), record["token"]?.string == parts[1], let app = record["app"]?.string,
                let name = record["name"]?.string
            else { return false }
            owners[parts[1]] = Owner(app: app, name: name)
        case (PushFolder.messages, 2):
            guard Self.isName(parts[1]), record["id"]?.string == parts[1], let token = record["token"]?.string else { return false }
            tokens[parts[1]] = token
        default: return false
        }
        files[name] = bytes
        return true
    }

    /// Whether it is a token or an id: 32 hexadecimal digits. So no name of a stranger's backup leads out of the folder.
    private static func isName(_ text: String) -> Bool {
        text.utf8.count == 32 && text.utf8.allSatisfy { $0.isDigit || (UInt8(ascii: "a")...UInt8(ascii: "f")).contains($0) }
    }

    /// Has todoku-push end the registrations, so that the distributor hears of it.
    ///
    /// - Returns: an English sentence that says why some could not be ended; nil: none is left.
    @BusActor public func end() async -> String? {
        do throws(DBusError) {
            let connection = try await Connection.anotherToSession(within: BusProbe.patience)
            for owner in owners.values {
                do throws(DBusError) {
                    try await connection.call(Push.unregister, on: Push.busName, at: Push.path, (owner.app, owner.name))
                } catch  where error.name.hasSuffix(".NoSuchObject") {
                    // The app has ended it itself.
                }
            }
            return nil
        } catch { return error.message }
    }

    /// Starts todoku-push, which tells the distributor of registrations that it does not know.
    ///
    /// - Returns: an English sentence that says why it could not be started; nil: it runs.
    @BusActor public static func tellDistributor() async -> String? {
        do throws(DBusError) {
            let connection = try await Connection.anotherToSession(within: BusProbe.patience)
            _ = try await connection.call(Push.list, on: Push.busName, at: Push.path, "")
            return nil
        } catch { return error.message }
    }
}

extension StoreBackup {
    /// How many registrations for pushes the backup has.
    public var pushRegistrations: Int { attachments.count { $0.name.hasPrefix("push/\(PushFolder.registrations)/") } }
}

/// The files of todoku-push, while this process is the only one that changes them.
public struct PushState: ~Copyable {
    /// How long to wait for a todoku-push that has just lost its bus name, and is still saving.
    private static let patience: Duration = .seconds(5)

    private let folder: PushFolder
    /// nil: there is no folder, so nothing to protect.
    private let lock: PushFolderLock?
    /// What the files have.
    public let records: PushRecords

    /// Takes the lock, and reads the files. Blocks.
    ///
    /// - Parameter makes: whether to make a missing folder.
    /// - Throws: `inUse` if todoku-push runs; `storage`.
    public init(making makes: Bool) throws(StoreError) {
        let folder = PushFolder(StateFiles.pushFolder)
        let lock = try Self.lock(folder, making: makes, within: Self.patience)
        let records = try PushRecords(of: folder)
        self.folder = folder
        self.lock = lock
        self.records = records
    }

    init(_ folder: PushFolder, making makes: Bool, wait: Duration) throws(StoreError) {
        let lock = try Self.lock(folder, making: makes, within: wait)
        let records = try PushRecords(of: folder)
        self.folder = folder
        self.lock = lock
        self.records = records
    }

    private static func lock(_ folder: PushFolder, making makes: Bool, within wait: Duration) throws(StoreError) -> PushFolderLock? {
        guard makes || Paths.exists(folder.path) else { return nil }
        let code = folder.make()
        guard code == 0 else { throw failed("be used", folder.path, code) }
        if let lock = folder.lock(within: wait) { return lock }
        guard errno == EWOULDBLOCK else { throw failed("be locked", folder.path, errno) }
        throw StoreError(.inUse, "Another todoku-push uses the folder \(folder.path); end it and try again.")
    }

    private static func failed(_ what: String, _ path: String, _ code: Int32) -> StoreError {
        StoreError(.storage, "The folder \(path) cannot \(what): \(String(cString: strerror(code))).")
    }

    /// The tokens of a backup's registrations that are gone here. An app that has registered again meanwhile keeps its new registration,
    /// whose endpoint its server knows.
    ///
    /// - Throws: `storage` if there would be too many.
    public func missing(from backup: PushRecords) throws(StoreError) -> Set<String> {
        var (present, missing) = (Set(records.owners.values), Set<String>())
        // A stranger's backup may have one registration twice.
        for (token, owner) in backup.owners.sorted(by: { $0.key < $1.key })
        where records.owners[token] == nil && present.insert(owner).inserted {
            missing.insert(token)
        }
        let most = PushFolder.mostRegistrations
        guard records.count +| missing.count <= most else {
            throw StoreError(
                .storage, "With those of the backup there would be more than \(most) registrations for pushes; end some of them first.")
        }
        return missing
    }

    /// Brings back the registrations `missing` of a backup with their messages, and the choice of the distributor if none is made here.
    ///
    /// - Throws: `diskFull`, `storage`. A second try completes it.
    public func restore(_ missing: Set<String>, from backup: PushRecords) throws(StoreError) {
        // As todoku-push writes them. A message without its registration is deleted at its next start.
        for (id, token) in backup.tokens where missing.contains(token) && records.tokens[id] == nil {
            try write(id, in: PushFolder.messages, backup)
        }
        try flush(PushFolder.messages)
        for token in missing { try write(token, in: PushFolder.registrations, backup) }
        try flush(PushFolder.registrations)
        if backup.files[PushRecords.settings] != nil, !folder.has(PushRecords.settings) {
            try write(PushRecords.settings, in: "", backup)
            try flush("")
        }
    }

    private func write(_ name: String, in part: String, _ backup: PushRecords) throws(StoreError) {
        guard let bytes = backup.files[part.isEmpty ? name : "\(part)/\(name)"] else { return }
        guard folder.replace(name, in: part, by: bytes) else {
            let code = errno
            throw StoreError(
                [ENOSPC, EDQUOT].contains(code) ? .diskFull : .storage,
                "The registrations for pushes cannot be saved in \(folder.path): \(String(cString: strerror(code))); remove the cause and restore again."
            )
        }
    }

    private func flush(_ part: String) throws(StoreError) {
        guard lock == nil || folder.flush(in: part) else { throw Self.failed("be flushed", "\(folder.path)/\(part)", errno) }
    }

    /// Deletes all records that can be read, and the notes about starts of apps.
    ///
    /// - Throws: `storage`.
    public func delete() throws(StoreError) {
        guard lock != nil else { return }
        for (part, names) in [
            (PushFolder.registrations, Array(records.owners.keys)), (PushFolder.messages, Array(records.tokens.keys)),
            ("", [PushRecords.settings, "starts"]),
        ] {
            for name in names where !folder.delete(name, in: part) { throw Self.failed("be emptied", "\(folder.path)/\(part)", errno) }
            try flush(part)
        }
    }
}
