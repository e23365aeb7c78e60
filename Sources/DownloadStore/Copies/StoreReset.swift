internal import CSQLite
internal import DownloadModel
internal import EventLoop
internal import Glibc

/// Starts the queue anew, empty or from a backup, while no daemon runs.
///
/// The new database takes two things from the old one. It continues with the numbers, so that no number ever stands for two downloads. And
/// it has a sweep for each lost download that may have a part file, so that the next start deletes these files.
extension Store {
    /// How long another program may hold the database.
    private static let longestHold: Duration = .seconds(5)

    /// Replaces the database in `folder` by an empty one. Blocks.
    ///
    /// - Parameters:
    ///   - settingAside: sets the old database aside instead of deleting it, because nobody has a copy. This is done in any case if the
    ///     database cannot be read.
    ///   - copy: the path of a backup without secrets that was made before the downloads were cancelled. It gets what has come since, and
    ///     `attachments` in place of its own. nil: there is none.
    /// - Returns: the copy; and the path of a database that was set aside, and is deleted a day later; nil: none was.
    /// - Throws: `inUse` if a daemon keeps the folder; `diskFull`, `storage`. The present database is then as before.
    public nonisolated static func reset(
        folder: String, settingAside: Bool, refreshing copy: String? = nil, attachments: [Attachment] = []
    ) throws(StoreError) -> (backup: StoreBackup?, setAside: String?) {
        let copies = Copies(refreshed: copy, attachments: attachments)
        return try reset(folder: folder, settingAside: settingAside, copies, wait: longestEnd, hold: longestHold)
    }

    nonisolated static func reset(
        folder path: String, settingAside: Bool, _ copies: Copies = Copies(), wait: Duration, hold: Duration
    ) throws(StoreError) -> (backup: StoreBackup?, setAside: String?) {
        let folder = StoreFolder(path: path)
        try folder.make()
        // From here on, no daemon adds to the queue what the copy would lack.
        let lock = try folder.lock(wait: wait)
        let backup = try copies.make(of: folder)
        let draft = try CopyDraft.replacing(folder)
        let new = try replace(folder, by: draft, Origin(path: folder.database, version: 0), settingAside: settingAside, hold: hold)
        lock.note(nil)
        return (backup, new.setAside)
    }

    /// The copy of the present database that is kept. It is made while the lock of the folder is held.
    struct Copies {
        /// The path of a backup to bring up to date.
        var refreshed: String?
        /// The path of a new backup.
        var new: String?
        var attachments: [Attachment] = []

        fileprivate func make(of folder: StoreFolder) throws(StoreError) -> StoreBackup? {
            if let refreshed { return try Store.refresh(backup: refreshed, of: folder, attachments: attachments) }
            guard let new, folder.hasQueue || !attachments.isEmpty else { return nil }
            return try Store.backUp(folder: folder.path, to: new, withSecrets: false, attachments: attachments)
        }
    }

    /// Replaces the database in `folder` by the backup at `path`. Blocks.
    ///
    /// Assets that the present database knows stay as they are, because their folders have changed since the backup. Downloads that are in
    /// both keep their part files, and resume. Attachments of the backup do not become a part of the database.
    ///
    /// - Parameters:
    ///   - copy: where a backup of the present database, if there is one, is kept without secrets. Nothing may be there. nil: none is kept.
    ///   - settingAside: as in `reset`.
    ///   - attachments: what that copy carries.
    /// - Returns: what was restored; the copy; and the path of a present database that was set aside; nil: none was.
    /// - Throws: `damaged` if the backup is damaged, or no database; `newerVersion`; `inUse` if a daemon keeps the folder; `diskFull`,
    ///   `storage`. The present database is then as before.
    public nonisolated static func restore(
        folder: String, from path: String, keeping copy: String? = nil, settingAside: Bool = false, attachments: [Attachment] = []
    ) throws(StoreError) -> (restored: StoreBackup, backup: StoreBackup?, setAside: String?) {
        _ = try inspect(backup: path)
        let folder = StoreFolder(path: folder)
        try folder.make()
        let lock = try folder.lock(wait: longestEnd)
        let draft = try CopyDraft.replacing(folder)
        let version: Int64
        do throws(SQLiteError) { version = try draft.fill(fromBackup: path) } catch {
            throw StoreError(error, copying: path, to: folder.database)
        }
        if let refusal = StoreError(version: version, of: path) { throw refusal }
        let backup = try Copies(new: copy, attachments: attachments).make(of: folder)
        let former = folder.id
        let new: Replacement
        do throws(StoreError) {
            let origin = Origin(path: path, version: version)
            new = try replace(folder, by: draft, origin, settingAside: settingAside, hold: longestHold)
        } catch {
            // Another try has a copy of its own. But if the disk failed after the rename, only this copy has the former queue.
            if let backup, folder.id == former { unlink(backup.path) }
            throw error
        }
        lock.note(nil)
        let restored = StoreBackup(path: path, downloads: new.content.downloads, unfinished: new.content.unfinished, size: new.size)
        return (restored, backup, new.setAside)
    }

    /// Where the content of a draft comes from.
    private struct Origin {
        let path: String
        /// The version of the draft; 0: it is empty.
        let version: Int64
    }

    private struct Replacement {
        let content: CopyDraft.Content
        let size: ByteCount
        let setAside: String?
    }

    /// Completes the draft with what outlives the present database, and gives it that database's name. The lock is held.
    private nonisolated static func replace(
        _ folder: StoreFolder, by draft: borrowing CopyDraft, _ origin: Origin, settingAside: Bool, hold: Duration
    ) throws(StoreError) -> Replacement {
        let former = try folder.former(hold: hold)
        var isWhole = former.isRead
        let content: CopyDraft.Content
        let kept: Set<UInt64>
        do throws(SQLiteError) {
            let database = try draft.open(from: origin.version)
            if origin.version > 0, former.isRead { isWhole = try folder.takeAssets(into: database) }
            kept = try former.bequeath(to: database)
            content = try CopyDraft.content(of: database)
        } catch { throw StoreError(error, copying: origin.path, to: folder.database) }
        guard content.check == "ok" else { throw StoreError(.damaged, "The database \(origin.path) is damaged: \(content.check).") }
        guard let size = draft.flush() else { throw StoreError(system: errno, "write the queue", folder.database) }
        let aside = try folder.replaceDatabase(by: draft.file, settingAside: settingAside || !isWhole)
        folder.deleteNotes(except: kept)
        return Replacement(content: content, size: size, setAside: aside)
    }
}

extension CopyDraft {
    /// Creates the draft of a new database beside that of `folder`. Deletes that of an earlier program that was interrupted. The lock is
    /// held.
    fileprivate static func replacing(_ folder: StoreFolder) throws(StoreError) -> CopyDraft {
        unlink(folder.resetDraft)
        return try CopyDraft(at: folder.resetDraft, for: folder.database)
    }
}

/// What outlives a database.
private struct FormerDatabase {
    /// A part file that may be there.
    struct Part: Equatable {
        var directory: String
        /// When its download was queued. Together with the number, this tells a download from those of another machine.
        var queuedAt: Int64
    }

    /// Whether the database was read; false also if there was none.
    var isRead = false
    /// Whether another program keeps the log from being emptied.
    var isHeld = false
    /// Greater than every number that it gave.
    var next: UInt64
    var parts: [UInt64: Part] = [:]
    /// The folders of part files that are useless.
    var sweeps: [UInt64: [String]] = [:]

    /// Raises the next number of `database`, and adds the sweeps of part files that none of its downloads continues.
    ///
    /// - Returns: the downloads that continue with the part files and the written maps that they have.
    func bequeath(to database: borrowing Database) throws(SQLiteError) -> Set<UInt64> {
        var number = next
        try database.prepare("SELECT value FROM setting WHERE key = '\(Session.nextNumberKey)'").each { (value: String) in
            number = max(number, Session.number(in: value) ?? 1)
        }
        var kept: Set<UInt64> = []
        try database.prepare("SELECT number, directory, queued_at FROM download").each {
            (number: UInt64, directory: String, queuedAt: Int64) in
            if !isRead || parts[number] == Part(directory: directory, queuedAt: queuedAt) { kept.insert(number) }
        }
        try database.execute("BEGIN")
        try database.prepare("INSERT OR REPLACE INTO setting (key, value) VALUES (?, ?)").run(Session.nextNumberKey, String(number))
        // A sweep that only the backup has is done already. By now, the download may have another part file in that folder.
        let swept = try database.prepare("DELETE FROM sweep WHERE number = ?")
        for number in kept where isRead { try swept.run(number) }
        let sweep = try database.prepare("INSERT OR REPLACE INTO sweep (number, directory) VALUES (?, ?)")
        var folders = sweeps
        for (number, part) in parts where !kept.contains(number) { folders[number, default: []].append(part.directory) }
        for (number, folders) in folders { try sweep.run(number, StoreChange.text(ofSweep: folders)) }
        try database.execute("COMMIT")
        return kept
    }
}

extension StoreFolder {
    /// A number above all that a lost database can have given, see `StoreOpening.nextNumber`. 1 if there never was a database.
    private var numberAfterLoss: UInt64 {
        let isFirst = access(database, F_OK) != 0 && errno == ENOENT && !hasSetAside
        return isFirst ? 1 : UInt64(clamping: max(1, time(nil)))
    }

    /// Reads what outlives the database, and empties its log. The lock is held.
    ///
    /// - Parameter hold: how long another program may hold the database.
    /// - Throws: `inUse` if another program holds the database; `diskFull`, `storage`.
    fileprivate func former(hold: Duration) throws(StoreError) -> FormerDatabase {
        let unread = FormerDatabase(next: numberAfterLoss)
        var status = stat()
        guard stat(database, &status) == 0, status.st_size > 0, !hasFaultyLog else { return unread }
        let former: FormerDatabase?
        do throws(SQLiteError) { former = try readFormer(hold: hold) } catch {
            // These errors say nothing about the file.
            guard ![SQLITE_BUSY, SQLITE_LOCKED, SQLITE_FULL, SQLITE_NOMEM].contains(error.code) else { throw StoreError(error, self) }
            return unread
        }
        guard let former else { return unread }
        guard !former.isHeld else {
            throw StoreError(.inUse, "Another program holds the database \(database); close it and try again.")
        }
        return former
    }

    /// - Returns: nil if the database is none of ours, or a newer Todoku's.
    private func readFormer(hold: Duration) throws(SQLiteError) -> FormerDatabase? {
        // Not read only: a daemon that was killed has left a log and its index.
        let database = try Database(self.database, flags: SQLITE_OPEN_READWRITE)
        database.waitWhenBusy(milliseconds: Int32(clamping: hold.wholeMilliseconds))
        let version = try CopyDraft.version(of: database)
        guard version > 0, version <= Schema.version else { return nil }
        try database.execute("PRAGMA secure_delete = ON; PRAGMA trusted_schema = OFF")
        // As the next start would do.
        try Session.migrate(database, from: version, first: DownloadNumber(1))
        var former = FormerDatabase(isRead: true, next: 1)
        try database.prepare("SELECT value FROM setting WHERE key = '\(Session.nextNumberKey)'").each { (value: String) in
            former.next = max(former.next, Session.number(in: value) ?? 1)
        }
        try database.prepare("SELECT max(number) FROM download WHERE number BETWEEN 0 AND \(Session.largestNumber)").each {
            (number: UInt64) in former.next = max(former.next, number +| 1)
        }
        // A finished download has no part file, and that of a cancelled one is deleted, or has a sweep. A sweep of a descriptor, which has
        // no folder, ends with the daemon.
        let found = try database.prepare(
            "SELECT number, directory, queued_at FROM download WHERE state NOT IN ('finished', 'cancelled') AND directory <> ''")
        try found.each { (number: UInt64, directory: String, queuedAt: Int64) in
            former.parts[number] = FormerDatabase.Part(directory: directory, queuedAt: queuedAt)
        }
        // No download continues a useless part file. One in a folder that a download has left says nothing about the part file that it has.
        try database.prepare("SELECT number, directory FROM sweep WHERE directory <> ''").each { (number: UInt64, directory: String) in
            let folders = StoreChange.folders(ofSweep: directory)
            if let part = former.parts[number], folders.contains(where: { $0.isSameBytes(as: part.directory) }) {
                former.parts[number] = nil
            }
            former.sweeps[number] = folders
        }
        // SQLite could read a log that is left as that of the new database.
        former.isHeld = try database.number("PRAGMA wal_checkpoint(TRUNCATE)") != 0
        return former
    }

    /// Gives a complete draft, which is on disk, the name of the database.
    ///
    /// A process that dies on the way leaves either the former database or the new one. Where the former one is set aside, the new one may
    /// still be named `salvaged`; the next start takes that file.
    ///
    /// - Returns: where the former database is now; nil: it was deleted, or there was none.
    fileprivate func replaceDatabase(by draft: String, settingAside: Bool) throws(StoreError) -> String? {
        // What an interrupted start has left would replace the new database at the next start.
        unlink(salvaged)
        deleteSalvageDraft()
        var aside: String?
        if settingAside {
            guard rename(draft, salvaged) == 0 else { throw StoreError(system: errno, "write the queue", database) }
            do throws(StoreError) {
                guard Self.sync(path) else { throw StoreError(system: errno, "write the queue", path) }
                aside = try setAside(at: time(nil))
            } catch {
                unlink(salvaged)
                throw error
            }
            guard rename(salvaged, database) == 0 else { throw StoreError(system: errno, "write the queue", database) }
        } else {
            for suffix in ["-wal", "-shm"] {
                guard unlink(database + suffix) == 0 || errno == ENOENT else { throw StoreError(system: errno, "delete the log", database) }
            }
            guard rename(draft, database) == 0 else { throw StoreError(system: errno, "write the queue", database) }
        }
        guard Self.sync(path) else { throw StoreError(system: errno, "write the queue", path) }
        return aside
    }

    /// Deletes the notes about crashes and starts of apps, and the written maps of all downloads but those in `kept`.
    fileprivate func deleteNotes(except kept: Set<UInt64>) {
        unlink("\(path)/crashes")
        unlink("\(path)/starts")
        for name in folderNames("\(path)/segments") ?? [] {
            // A map is named NUMBER, or NUMBER.next while it replaces another.
            guard let number = UInt64(name.prefix { $0.isNumber }), !kept.contains(number) else { continue }
            unlink("\(path)/segments/\(name)")
        }
    }

    /// Copies the assets of the present database, which `former` has migrated, over those of `database`. Deletes the downloads of archives
    /// that an asset wanted at the time of the backup, and does not wait for now: nobody would delete such an archive.
    ///
    /// - Returns: whether the assets of the present database can be read. If they cannot, those of `database` stay as they are.
    fileprivate func takeAssets(into database: borrowing Database) throws(SQLiteError) -> Bool {
        try database.prepare("ATTACH ? AS present").run(self.database)
        var isRead = true
        do throws(SQLiteError) { try takePresentAssets(into: database) } catch {
            // The tables of the draft are new, so a damaged table or row is one of the present database.
            let isDamaged = StoreError(error, copying: self.database, to: resetDraft).reason == .damaged
            guard isDamaged || StoreError(error, self).isOfTheFile else { throw error }
            if !database.isIdle { try database.execute("ROLLBACK") }
            isRead = false
        }
        try database.execute("DETACH present")
        return isRead
    }

    private func takePresentAssets(into database: borrowing Database) throws(SQLiteError) {
        try database.execute("BEGIN")
        let unwanted = """
            (SELECT archive.number FROM main.asset AS former
            JOIN present.asset AS now ON now.app = former.app AND now.name = former.name
                AND now.pending_download IS NOT former.pending_download
            JOIN main.download AS archive ON archive.number = former.pending_download AND archive.directory = former.directory)
            """
        for table in ["course", "download"] { try database.execute("DELETE FROM main.\(table) WHERE number IN \(unwanted)") }
        try database.execute("INSERT OR REPLACE INTO main.asset (\(AssetColumn.names)) SELECT \(AssetColumn.names) FROM present.asset")
        try database.execute("COMMIT")
    }
}

extension Session {
    /// The largest number that a service assigns.
    static let largestNumber = UInt64(Int64.max) / 2

    /// The number in the text of a setting; nil if it has none that a service may have assigned.
    fileprivate static func number(in text: String) -> UInt64? { UInt64(text).flatMap { $0 <= largestNumber ? $0 : nil } }
}
