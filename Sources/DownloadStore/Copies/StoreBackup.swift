internal import CSQLite
public import DownloadModel
internal import Glibc

/// A copy of the database in one file, for `Store.restore`.
public struct StoreBackup: Equatable, Sendable {
    public let path: String
    /// The downloads in the copy, and those of them that have not ended.
    public let downloads: Int64
    public let unfinished: Int64
    public let size: ByteCount
    /// What the copy has of other programs, in the order of the names.
    public var attachments: [Attachment] = []
}

extension Store {
    /// Copies the database in `folder` to a new file of mode 0600, as it was at one moment, also while a daemon uses it.
    ///
    /// The file appears complete and on disk, or not at all. It has the version of this program, and no private downloads. Blocks.
    ///
    /// - Parameters:
    ///   - path: an absolute path. Nothing may be there.
    ///   - withSecrets: whether passwords, user names, request headers, cookies and bodies are copied. URLs always are, with their queries.
    ///   - attachments: files of other programs, which the copy carries. If there are any and the folder has no database, the copy has an
    ///     empty queue.
    /// - Throws: `damaged` if the database is damaged; `inUse` if another program holds it; `newerVersion`, `diskFull`, `storage`.
    public nonisolated static func backUp(
        folder: String, to path: String, withSecrets: Bool, attachments: [Attachment] = []
    ) throws(StoreError) -> StoreBackup {
        let folder = StoreFolder(path: folder)
        guard folder.hasQueue || !attachments.isEmpty else {
            throw StoreError(.storage, "There is no database \(folder.database) yet, so there is nothing to copy.")
        }
        guard access(path, F_OK) != 0 else { throw StoreError(.storage, "\(path) exists already; choose another name.") }
        let draft = try CopyDraft(at: "\(path).new", for: path)
        let backup = try complete(draft, of: folder, for: path, Content(withSecrets: withSecrets, attachments: attachments))
        // link(2) replaces no file. Some file systems have no links.
        if link(draft.file, path) != 0 {
            guard errno != EEXIST else { throw StoreError(.storage, "\(path) exists already; choose another name.") }
            guard rename(draft.file, path) == 0 else { throw StoreError(system: errno, "write the copy", path) }
        }
        syncParent(of: path)
        return backup
    }

    /// Replaces the backup at `path`, which has no secrets, by a backup of the present queue. Downloads that have been cancelled since keep
    /// their rows of the earlier backup, because a restore must continue them. The lock of the folder is held.
    nonisolated static func refresh(
        backup path: String, of folder: StoreFolder, attachments: [Attachment]
    ) throws(StoreError) -> StoreBackup {
        let draft = try CopyDraft(at: "\(path).new", for: path)
        let content = Content(withSecrets: false, attachments: attachments, earlier: path)
        let backup = try complete(draft, of: folder, for: path, content)
        guard rename(draft.file, path) == 0 else { throw StoreError(system: errno, "write the copy", path) }
        syncParent(of: path)
        return backup
    }

    /// What a copy gets.
    private struct Content {
        var withSecrets: Bool
        var attachments: [Attachment]
        /// The path of an earlier copy, for what has been cancelled since.
        var earlier: String?
    }

    /// Fills the draft, checks it, and brings it to disk.
    private nonisolated static func complete(
        _ draft: borrowing CopyDraft, of folder: StoreFolder, for path: String, _ wanted: Content
    ) throws(StoreError) -> StoreBackup {
        guard Attachment.fit(wanted.attachments) else {
            throw StoreError(.storage, "The registrations for pushes are too large for a backup; end some of them and try again.")
        }
        let content = try fill(draft, from: folder, for: path, wanted)
        guard content.check == "ok" else {
            throw StoreError(.damaged, "The database \(folder.database) is damaged: \(content.check).")
        }
        guard let size = draft.flush() else { throw StoreError(system: errno, "write the copy", path) }
        return StoreBackup(
            path: path, downloads: content.downloads, unfinished: content.unfinished, size: size, attachments: wanted.attachments)
    }

    private nonisolated static func syncParent(of path: String) {
        let parent = path.utf8.lastIndex(of: UInt8(ascii: "/")).map { String(path[..<$0]) } ?? ""
        _ = StoreFolder.sync(parent.isEmpty ? "/" : parent)
    }

    /// Checks a backup, and counts what is in it. Blocks, and changes nothing.
    ///
    /// - Parameter path: an absolute path.
    /// - Throws: as `restore`.
    public nonisolated static func inspect(backup path: String) throws(StoreError) -> StoreBackup {
        var status = stat()
        guard stat(path, &status) == 0, access(path, R_OK) == 0 else {
            throw StoreError(.storage, "The backup \(path) cannot be read: \(String(cString: strerror(errno))).")
        }
        guard status.st_mode & S_IFMT == S_IFREG else { throw StoreError(.storage, "The backup \(path) is not a file.") }
        try refuseLog(beside: path)
        let version: Int64
        var content = CopyDraft.Content()
        var attachments: [Attachment]? = []
        do throws(SQLiteError) {
            let backup = try Database("\(fileURI(of: path))?mode=ro&immutable=1", flags: SQLITE_OPEN_READONLY | SQLITE_OPEN_URI)
            try backup.execute("PRAGMA trusted_schema = OFF")
            version = try CopyDraft.version(of: backup)
            if StoreError(version: version, of: path) == nil {
                content = try CopyDraft.content(of: backup)
                if content.check == "ok" { attachments = try CopyDraft.attachments(of: backup) }
            }
        } catch { throw StoreError(error, copying: path, to: path) }
        if let refusal = StoreError(version: version, of: path) { throw refusal }
        guard content.check == "ok" else { throw StoreError(.damaged, "The backup \(path) is damaged: \(content.check).") }
        guard let attachments else {
            throw StoreError(.damaged, "The backup \(path) is damaged: its table of attachments is too large, or is not Todoku’s.")
        }
        return StoreBackup(
            path: path, downloads: content.downloads, unfinished: content.unfinished, size: ByteCount(clamping: status.st_size),
            attachments: attachments)
    }

    /// A log beside the file has newer rows, which `restore` would not read: the file is a queue in use, or one that was set aside.
    private nonisolated static func refuseLog(beside path: String) throws(StoreError) {
        guard let real = realpath(path, nil) else {
            throw StoreError(.storage, "The backup \(path) cannot be read: \(String(cString: strerror(errno))).")
        }
        defer { free(real) }
        let log = "\(String(cString: real))-wal"
        var status = stat()
        guard stat(log, &status) != 0 || status.st_size == 0 else {
            throw StoreError(.storage, "\(path) is no backup, because \(log) has some of its changes; choose a file of todoku backup.")
        }
    }

    private nonisolated static func fill(
        _ draft: borrowing CopyDraft, from folder: StoreFolder, for path: String, _ wanted: Content
    ) throws(StoreError) -> CopyDraft.Content {
        let version = folder.hasQueue ? try fillQueue(of: draft, from: folder, for: path) : 0
        do throws(SQLiteError) {
            let database = try draft.open(from: version)
            if let earlier = wanted.earlier { try CopyDraft.undoCancelling(database, since: earlier) }
            try CopyDraft.forgetPrivate(database)
            if !wanted.withSecrets {
                try CopyDraft.forgetSecrets(database, table: "download", key: "number")
                try CopyDraft.forgetSecrets(database, table: "asset", key: "app || char(10) || name")
            }
            try CopyDraft.attach(wanted.attachments, to: database)
            return try CopyDraft.content(of: database)
        } catch { throw StoreError(error, copying: folder.database, to: path) }
    }

    /// - Returns: the version of the database.
    private nonisolated static func fillQueue(
        of draft: borrowing CopyDraft, from folder: StoreFolder, for path: String
    ) throws(StoreError) -> Int64 {
        // A daemon may have emptied the log between two reads of the first look.
        guard !folder.hasFaultyLog || !folder.hasFaultyLog else {
            throw StoreError(.damaged, "The log of the database \(folder.database) is damaged; start Todoku, which saves what it can.")
        }
        let version: Int64
        do throws(SQLiteError) {
            let source = try snapshotReader(folder)
            version = try draft.fill(from: source)
        } catch { throw StoreError(error, copying: folder.database, to: path) }
        if let refusal = StoreError(version: version, of: folder.database) { throw refusal }
        return version
    }

    /// A connection that sees one moment, whatever a daemon writes meanwhile. Unlike `reader`, it takes SQLite's locks, and may create a
    /// log for the time that it is open. No daemon runs in a folder that cannot be written.
    private nonisolated static func snapshotReader(_ folder: StoreFolder) throws(SQLiteError) -> Database {
        guard access(folder.path, W_OK) == 0 else { return try reader(folder) }
        return try Database(folder.database, flags: SQLITE_OPEN_READWRITE)
    }
}
