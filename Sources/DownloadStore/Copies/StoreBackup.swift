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
}

extension Store {
    /// Copies the database in `folder` to a new file of mode 0600, as it was at one moment, also while a daemon uses it.
    ///
    /// The file appears complete and on disk, or not at all. It has the version of this program, and no private downloads. Blocks.
    ///
    /// - Parameters:
    ///   - path: an absolute path. Nothing may be there.
    ///   - withSecrets: whether passwords, user names, request headers, cookies and bodies are copied. URLs always are, with their queries.
    /// - Throws: `damaged` if the database is damaged; `inUse` if another program holds it; `newerVersion`, `diskFull`, `storage`.
    public nonisolated static func backUp(folder: String, to path: String, withSecrets: Bool) throws(StoreError) -> StoreBackup {
        let folder = StoreFolder(path: folder)
        var status = stat()
        guard stat(folder.database, &status) == 0, status.st_size > 0 else {
            throw StoreError(.storage, "There is no database \(folder.database) yet, so there is nothing to copy.")
        }
        guard access(path, F_OK) != 0 else { throw StoreError(.storage, "\(path) exists already; choose another name.") }
        // A daemon may have emptied the log between two reads of the first look.
        guard !folder.hasFaultyLog || !folder.hasFaultyLog else {
            throw StoreError(.damaged, "The log of the database \(folder.database) is damaged; start Todoku, which saves what it can.")
        }
        let draft = try CopyDraft(at: "\(path).new")
        let content = try fill(draft, from: folder, for: path, withSecrets: withSecrets)
        guard content.check == "ok" else {
            throw StoreError(.damaged, "The database \(folder.database) is damaged: \(content.check).")
        }
        guard let size = draft.flush() else { throw StoreError(system: errno, "write the copy", path) }
        // link(2) replaces no file. Some file systems have no links.
        if link(draft.file, path) != 0 {
            guard errno != EEXIST else { throw StoreError(.storage, "\(path) exists already; choose another name.") }
            guard rename(draft.file, path) == 0 else { throw StoreError(system: errno, "write the copy", path) }
        }
        let parent = path.utf8.lastIndex(of: UInt8(ascii: "/")).map { String(path[..<$0]) } ?? ""
        _ = StoreFolder.sync(parent.isEmpty ? "/" : parent)
        return StoreBackup(path: path, downloads: content.downloads, unfinished: content.unfinished, size: size)
    }

    /// Checks a backup, and counts what is in it. Blocks, and changes nothing.
    ///
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
        do throws(SQLiteError) {
            let backup = try Database("file:\(uriPath(path))?mode=ro&immutable=1", flags: SQLITE_OPEN_READONLY | SQLITE_OPEN_URI)
            try backup.execute("PRAGMA trusted_schema = OFF")
            version = try CopyDraft.version(of: backup)
            if StoreError(version: version, of: path) == nil { content = try CopyDraft.content(of: backup) }
        } catch { throw StoreError(error, copying: path, to: path) }
        if let refusal = StoreError(version: version, of: path) { throw refusal }
        guard content.check == "ok" else { throw StoreError(.damaged, "The backup \(path) is damaged: \(content.check).") }
        return StoreBackup(
            path: path, downloads: content.downloads, unfinished: content.unfinished, size: ByteCount(clamping: status.st_size))
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
        _ draft: borrowing CopyDraft, from folder: StoreFolder, for path: String, withSecrets: Bool
    ) throws(StoreError) -> CopyDraft.Content {
        let version: Int64
        do throws(SQLiteError) {
            let source = try snapshotReader(folder)
            version = try draft.fill(from: source)
        } catch { throw StoreError(error, copying: folder.database, to: path) }
        if let refusal = StoreError(version: version, of: folder.database) { throw refusal }
        do throws(SQLiteError) {
            let database = try draft.open(from: version)
            try CopyDraft.forgetPrivate(database)
            if !withSecrets {
                try CopyDraft.forgetSecrets(database, table: "download", key: "number")
                try CopyDraft.forgetSecrets(database, table: "asset", key: "app || char(10) || name")
            }
            return try CopyDraft.content(of: database)
        } catch { throw StoreError(error, copying: folder.database, to: path) }
    }

    /// A connection that sees one moment, whatever a daemon writes meanwhile. Unlike `reader`, it takes SQLite's locks, and may create a
    /// log for the time that it is open. No daemon runs in a folder that cannot be written.
    private nonisolated static func snapshotReader(_ folder: StoreFolder) throws(SQLiteError) -> Database {
        guard access(folder.path, W_OK) == 0 else { return try reader(folder) }
        return try Database(folder.database, flags: SQLITE_OPEN_READWRITE)
    }
}
