internal import CSQLite
internal import DownloadModel
internal import Glibc

/// Starts the queue anew, empty or from a backup, while no daemon runs.
///
/// The new database takes two things from the old one. It continues with the numbers, so that no number ever stands for two downloads. And
/// it has a sweep for each lost download that may have a part file, so that the next start deletes these files.
extension Store {
    /// How long a reset waits for the daemon that has just lost its bus name, and is still saving.
    private static let longestReset: Duration = .seconds(15)

    /// Replaces the database in `folder` by an empty one. Blocks.
    ///
    /// - Parameter settingAside: sets the old database aside instead of deleting it, because nobody has a copy. This is done in any case if
    ///   the database cannot be read.
    /// - Returns: the path of a database that was set aside, and is deleted a day later; nil: none was.
    /// - Throws: `inUse` if a daemon keeps the folder; `diskFull`, `storage`. The present database is then as before.
    public nonisolated static func reset(folder: String, settingAside: Bool) throws(StoreError) -> String? {
        try reset(folder: folder, settingAside: settingAside, wait: longestReset)
    }

    nonisolated static func reset(folder path: String, settingAside: Bool, wait: Duration) throws(StoreError) -> String? {
        let folder = StoreFolder(path: path)
        try folder.make()
        let lock = try folder.lock(wait: wait)
        let draft = try CopyDraft.replacing(folder)
        let new = try replace(folder, by: draft, of: 0, keepsAssets: false, settingAside: settingAside)
        lock.note(nil)
        return new.setAside
    }

    /// Replaces the database in `folder` by the backup at `path`. Blocks.
    ///
    /// Assets that the present database knows stay as they are, because their folders have changed since the backup. Downloads that are in
    /// both keep their part files, and resume.
    ///
    /// - Returns: what was restored, and the path of a present database that could not be read and was set aside; nil: none was.
    /// - Throws: `damaged` if the backup is damaged, or no database; `newerVersion`; `inUse` if a daemon keeps the folder; `diskFull`,
    ///   `storage`. The present database is then as before.
    public nonisolated static func restore(
        folder: String, from path: String
    ) throws(StoreError) -> (restored: StoreBackup, setAside: String?) {
        let folder = StoreFolder(path: folder)
        try folder.make()
        let lock = try folder.lock(wait: longestReset)
        let draft = try CopyDraft.replacing(folder)
        let version: Int64
        do throws(SQLiteError) {
            let source = try Database("file:\(uriPath(path))?mode=ro&immutable=1", flags: SQLITE_OPEN_READONLY | SQLITE_OPEN_URI)
            version = try draft.fill(from: source)
        } catch { throw StoreError(error, copying: path, to: folder.database) }
        if let refusal = StoreError(version: version, of: path) { throw refusal }
        let new = try replace(folder, by: draft, of: version, keepsAssets: true, settingAside: false)
        lock.note(nil)
        let restored = StoreBackup(path: path, downloads: new.content.downloads, unfinished: new.content.unfinished, size: new.size)
        return (restored, new.setAside)
    }

    private struct Replacement {
        let content: CopyDraft.Content
        let size: ByteCount
        let setAside: String?
    }

    /// Completes the draft with what outlives the present database, and gives it that database's name. The lock is held.
    ///
    /// - Parameter version: of the draft; 0: it is empty.
    private nonisolated static func replace(
        _ folder: StoreFolder, by draft: borrowing CopyDraft, of version: Int64, keepsAssets: Bool, settingAside: Bool
    ) throws(StoreError) -> Replacement {
        let former = folder.former()
        let content: CopyDraft.Content
        var kept: Set<UInt64> = []
        do throws(SQLiteError) {
            let database = try draft.open(from: version)
            if keepsAssets, former.isRead { try folder.takeAssets(into: database) }
            try database.prepare("SELECT number FROM download").each { (number: UInt64) in kept.insert(number) }
            try former.bequeath(to: database, except: kept)
            content = try CopyDraft.content(of: database)
        } catch { throw StoreError(error, copying: draft.file, to: folder.database) }
        guard content.check == "ok" else { throw StoreError(.damaged, "The new queue is damaged: \(content.check).") }
        guard let size = draft.flush() else { throw StoreError(system: errno, "write the queue", folder.database) }
        var aside: String?
        if settingAside || !former.isRead { aside = try folder.setAside(at: time(nil)) }
        try folder.deleteLog()
        guard rename(draft.file, folder.database) == 0 else { throw StoreError(system: errno, "write the queue", folder.database) }
        guard StoreFolder.sync(folder.path) else { throw StoreError(system: errno, "write the queue", folder.path) }
        folder.deleteNotes(except: kept)
        return Replacement(content: content, size: size, setAside: aside)
    }
}

extension CopyDraft {
    /// Creates the draft of a new database beside that of `folder`. Deletes that of an earlier program that was interrupted. The lock is
    /// held.
    fileprivate static func replacing(_ folder: StoreFolder) throws(StoreError) -> CopyDraft {
        let place = "\(folder.database).restored"
        unlink("\(place).new")
        return try CopyDraft(of: place)
    }
}

/// What outlives a database.
private struct FormerDatabase {
    /// Whether the database was read; false also if there was none.
    var isRead = false
    /// Greater than every number that it gave.
    var next: DownloadNumber
    /// The folders of part files that may be there, by download.
    var sweeps: [DownloadNumber: String] = [:]

    /// Raises the next number of `database`, and adds the sweeps of downloads that it does not have.
    func bequeath(to database: borrowing Database, except kept: Set<UInt64>) throws(SQLiteError) {
        var number = next.value
        try database.prepare("SELECT value FROM setting WHERE key = '\(Session.nextNumberKey)'").each { (value: String) in
            number = max(number, UInt64(value) ?? 1)
        }
        try database.execute("BEGIN")
        try database.prepare("INSERT OR REPLACE INTO setting (key, value) VALUES (?, ?)").run(Session.nextNumberKey, String(number))
        let sweep = try database.prepare("INSERT OR REPLACE INTO sweep (number, directory) VALUES (?, ?)")
        for (number, directory) in sweeps where !kept.contains(number.value) { try sweep.run(number.value, directory) }
        try database.execute("COMMIT")
    }
}

extension StoreFolder {
    /// A number above all that a lost database can have given, see `StoreOpening.nextNumber`. 1 if there never was a database.
    private var numberAfterLoss: DownloadNumber {
        let isFirst = access(database, F_OK) != 0 && errno == ENOENT && !hasSetAside
        return DownloadNumber(isFirst ? 1 : UInt64(clamping: max(1, time(nil))))
    }

    /// Reads what outlives the database, and empties its log. The lock is held.
    fileprivate func former() -> FormerDatabase {
        let unread = FormerDatabase(next: numberAfterLoss)
        var status = stat()
        guard stat(database, &status) == 0, status.st_size > 0, !hasFaultyLog else { return unread }
        do throws(SQLiteError) {
            // Not read only: a daemon that was killed has left a log and its index.
            let database = try Database(self.database, flags: SQLITE_OPEN_READWRITE)
            database.waitWhenBusy(milliseconds: 5000)
            let version = try CopyDraft.version(of: database)
            guard version > 0, version <= Schema.version else { return unread }
            var (next, sweeps): (UInt64, [DownloadNumber: String]) = (1, [:])
            try database.prepare("SELECT value FROM setting WHERE key = '\(Session.nextNumberKey)'").each { (value: String) in
                next = max(next, UInt64(value) ?? 1)
            }
            try database.prepare("SELECT max(number) FROM download").each { (number: UInt64) in next = max(next, number +| 1) }
            // A finished download has no part file. Sweeps of descriptors, which have no folder, end with the daemon.
            try database.prepare(
                """
                SELECT number, directory FROM sweep WHERE directory <> ''
                UNION SELECT number, directory FROM download WHERE state <> 'finished' AND directory <> ''
                """
            ).each { (number: UInt64, directory: String) in sweeps[DownloadNumber(number)] = directory }
            return FormerDatabase(isRead: true, next: DownloadNumber(min(next, UInt64(Int64.max) / 2)), sweeps: sweeps)
        } catch { return unread }
    }

    /// Deletes the log of the present database, which `former` has emptied, because SQLite could take it for that of another database.
    fileprivate func deleteLog() throws(StoreError) {
        for suffix in ["-wal", "-shm"] {
            guard unlink(database + suffix) == 0 || errno == ENOENT else { throw StoreError(system: errno, "delete the queue", database) }
        }
        unlink(salvaged)
        unlink(salvageDraft)
    }

    /// Deletes the notes about crashes and starts of apps, and the written maps of all downloads but those in `kept`.
    fileprivate func deleteNotes(except kept: Set<UInt64>) {
        unlink("\(path)/crashes")
        unlink("\(path)/starts")
        guard let handle = opendir("\(path)/segments") else { return }
        defer { closedir(handle) }
        while let entry = readdir(handle) {
            let name = withUnsafePointer(to: &entry.pointee.d_name) {
                $0.withMemoryRebound(to: CChar.self, capacity: 256) { String(cString: $0) }
            }
            // A map is named NUMBER, or NUMBER.next while it replaces another.
            guard let number = UInt64(name.prefix { $0.isNumber }), !kept.contains(number) else { continue }
            unlink("\(path)/segments/\(name)")
        }
    }

    /// Copies the assets of the present database over those of `database`, if both have the same version.
    fileprivate func takeAssets(into database: borrowing Database) throws(SQLiteError) {
        try database.prepare("ATTACH ? AS present").run(self.database)
        if try database.number("PRAGMA present.user_version") == Schema.version {
            try database.execute("INSERT OR REPLACE INTO main.asset (\(AssetColumn.names)) SELECT \(AssetColumn.names) FROM present.asset")
        }
        try database.execute("DETACH present")
    }
}
