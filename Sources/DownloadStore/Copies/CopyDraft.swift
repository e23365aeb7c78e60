internal import CSQLite
internal import DownloadModel
internal import Glibc

/// A copy of a database that does not have its final name yet.
struct CopyDraft: ~Copyable {
    /// What a finished copy has.
    struct Content {
        var downloads: Int64 = 0
        var unfinished: Int64 = 0
        /// The answer of SQLite's check; "ok": no fault.
        var check = ""
    }

    /// The empty file that SQLite fills.
    let file: String

    /// Creates the draft as a new file.
    ///
    /// - Parameter path: the file that the draft becomes. An error names it, because nobody has chosen the name of the draft.
    init(at file: String, for path: String) throws(StoreError) {
        let descriptor = Glibc.open(file, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0o600)
        guard descriptor >= 0 else {
            let code = errno
            guard code == EEXIST else { throw StoreError(system: code, "write the copy", path) }
            throw StoreError(
                .storage, "\(file) is in the way: another backup is being written, or one was interrupted. Delete the file and try again.")
        }
        // Closed before SQLite opens the file, because SQLite locks by fcntl(2).
        close(descriptor)
        self.file = file  // from here on, `deinit` deletes the file
    }

    deinit {
        unlink(file)
        unlink("\(file)-journal")
    }

    /// Fills the draft from the database of this user.
    ///
    /// - Returns: the version of the database; 0: it is none of ours, so nothing was copied.
    func fill(from source: borrowing Database) throws(SQLiteError) -> Int64 {
        source.waitWhenBusy(milliseconds: 5000)
        try source.execute("PRAGMA trusted_schema = OFF")
        let version = try Self.version(of: source)
        guard (1...Schema.version).contains(version) else { return version }
        try source.prepare("VACUUM INTO ?").run(file)
        return version
    }

    /// Fills the draft with the rows of a backup, which may be a stranger's file, and is only read.
    ///
    /// The tables are created here, because the tables of the backup may be different: a table without its key would get another row with
    /// each save of a download, and a table with a `CHECK` could refuse every save.
    ///
    /// - Parameter backup: its absolute path. `Store.inspect` has accepted the file.
    /// - Returns: the version of the backup; 0: it is none of ours, so nothing was copied.
    func fill(fromBackup backup: String) throws(SQLiteError) -> Int64 {
        let database = try Database(file, flags: SQLITE_OPEN_READWRITE | SQLITE_OPEN_URI)
        try database.execute("PRAGMA trusted_schema = OFF; PRAGMA journal_mode = MEMORY")
        try database.prepare("ATTACH ? AS backup").run("\(fileURI(of: backup))?mode=ro&immutable=1")
        let version = try Self.version(of: database, "backup")
        guard (1...Schema.version).contains(version) else { return version }
        try database.execute("BEGIN")
        for step in Schema.steps[..<Int(version)] { try database.execute(step) }
        for table in try SalvagedRows.tables(of: version) {
            let columns = table.columns.joined(separator: ", ")
            try database.execute("INSERT INTO main.\(table.name) (\(columns)) SELECT \(columns) FROM backup.\(table.name)")
        }
        try database.execute("PRAGMA application_id = \(Schema.applicationID); PRAGMA user_version = \(version); COMMIT")
        return version
    }

    /// Opens the draft, and brings it to this program's version.
    ///
    /// - Parameter version: its present version; 0: it is empty.
    func open(from version: Int64) throws(SQLiteError) -> Database {
        let database = try Database(file, flags: SQLITE_OPEN_READWRITE)
        try database.execute("PRAGMA secure_delete = ON; PRAGMA trusted_schema = OFF; PRAGMA journal_mode = MEMORY")
        try Session.migrate(database, from: version, first: DownloadNumber(1))
        return database
    }

    /// The version of a database; 0: it is none of ours.
    ///
    /// - Parameter schema: the name under which it is attached.
    static func version(of database: borrowing Database, _ schema: String = "main") throws(SQLiteError) -> Int64 {
        guard try database.number("PRAGMA \(schema).application_id") == Schema.applicationID else { return 0 }
        return try max(0, database.number("PRAGMA \(schema).user_version"))
    }

    /// Checks the schema and the pages of a database, and counts its downloads.
    static func content(of database: borrowing Database) throws(SQLiteError) -> Content {
        var content = Content()
        // A stranger's trigger or view would work inside the service. The only indexes are those that SQLite makes for a key.
        let foreign = try database.number(
            "SELECT count(*) FROM sqlite_schema WHERE sql IS NOT NULL AND (type <> 'table' OR rootpage = 0)")
        guard foreign == 0 else {
            content.check = "it has a trigger, a view or an index that Todoku did not create"
            return content
        }
        // A few bytes of a computed column may become a gigabyte in each row that the service reads.
        let computed = try database.number(
            "SELECT count(*) FROM sqlite_schema AS t, pragma_table_xinfo(t.name) AS c WHERE t.type = 'table' AND c.hidden <> 0")
        guard computed == 0 else {
            content.check = "it has a computed column, which Todoku did not create"
            return content
        }
        try database.prepare("PRAGMA quick_check(1)").each { (answer: String) in content.check = answer }
        content.downloads = try database.number("SELECT count(*) FROM download")
        content.unfinished = try database.number(
            "SELECT count(*) FROM download WHERE state NOT IN ('finished', 'failed', 'cancelled')")
        return content
    }

    /// Brings the copy to disk.
    ///
    /// - Returns: its size in bytes; nil: that failed, and errno says why.
    func flush() -> ByteCount? {
        let descriptor = Glibc.open(file, O_RDWR | O_CLOEXEC)
        guard descriptor >= 0 else { return nil }
        defer { close(descriptor) }
        var status = stat()
        return fsync(descriptor) == 0 && fstat(descriptor, &status) == 0 ? ByteCount(clamping: status.st_size) : nil
    }

    /// Gives the downloads that have been cancelled since an earlier copy their rows of that copy. They may have left the list.
    ///
    /// - Parameter earlier: the path of a copy that this program has made.
    static func undoCancelling(_ database: borrowing Database, since earlier: String) throws(SQLiteError) {
        try database.prepare("ATTACH ? AS earlier").run(earlier)
        var numbers: [String] = []
        let found = try database.prepare(
            """
            SELECT former.number FROM earlier.download AS former LEFT JOIN main.download AS present ON present.number = former.number
            WHERE former.state NOT IN ('finished', 'failed', 'cancelled') AND ifnull(present.state, 'cancelled') = 'cancelled'
            """)
        try found.each { (number: String) in numbers.append(number) }
        let tables = try SalvagedRows.tables(of: Schema.version)
        try database.execute("BEGIN")
        for table in tables where ["download", "course", "batch"].contains(table.name) {
            let columns = table.columns.joined(separator: ", ")
            let isBatch = table.name == "batch"
            let key = isBatch ? "number = (SELECT batch FROM earlier.download WHERE number = ?)" : "number = ?"
            let delete = try database.prepare("DELETE FROM main.\(table.name) WHERE \(key)")
            let insert = try database.prepare(
                "INSERT INTO main.\(table.name) (\(columns)) SELECT \(columns) FROM earlier.\(table.name) WHERE \(key)")
            for number in numbers {
                try delete.run(number)
                try insert.run(number)
            }
        }
        // A sweep would delete the part file that the download continues.
        let delete = try database.prepare("DELETE FROM main.sweep WHERE number = ?")
        for number in numbers { try delete.run(number) }
        // The service may have been killed while it cancelled the downloads. The restored service must not continue the cancelling.
        try database.execute(
            """
            DELETE FROM main.setting WHERE key = '\(Settings.cancelsThroughKey)';
            INSERT INTO main.setting (key, value) SELECT key, value FROM earlier.setting WHERE key = '\(Settings.cancelsThroughKey)'
            """)
        // The download of an asset was cancelled, too. An asset that was updated or unregistered meanwhile stays as it is.
        try database.execute(
            """
            INSERT OR REPLACE INTO main.asset (\(AssetColumn.names))
            SELECT \(AssetColumn.names) FROM earlier.asset AS former WHERE pending_download IS NOT NULL AND EXISTS (
                SELECT 1 FROM main.asset AS present WHERE present.app = former.app AND present.name = former.name
                AND present.installed_folder IS former.installed_folder)
            """)
        try database.execute("COMMIT")
        try database.execute("DETACH earlier")
    }

    /// Removes private downloads (option `private`), and batches that have no other member.
    static func forgetPrivate(_ database: borrowing Database) throws(SQLiteError) {
        var numbers: [String] = []
        // `allow-private=` matches, too.
        let candidates = try database.prepare("SELECT number, options FROM download WHERE options LIKE '%private=%'")
        try candidates.each { (number: String, text: String) in
            if OptionsText.read(text).options.isPrivate { numbers.append(number) }
        }
        guard !numbers.isEmpty else { return }
        try database.execute("BEGIN")
        for table in ["download", "course"] {
            let delete = try database.prepare("DELETE FROM \(table) WHERE number = ?")
            for number in numbers { try delete.run(number) }
        }
        try database.execute("DELETE FROM batch WHERE number NOT IN (SELECT batch FROM download WHERE batch IS NOT NULL)")
        try database.execute("COMMIT")
    }

    /// Removes what `DownloadOptions.forgetSecrets` does from the options in a table.
    ///
    /// - Parameter key: an expression that tells the rows of the table apart.
    static func forgetSecrets(_ database: borrowing Database, table: String, key: String) throws(SQLiteError) {
        var changes: [(String, String)] = []
        try database.prepare("SELECT \(key), options FROM \(table)").each { (key: String, text: String) in
            let read = OptionsText.read(text)
            // An unreadable line may be a secret.
            guard read.options.holdsSecrets || !read.isWhole else { return }
            var options = read.options
            options.forgetSecrets()
            changes.append((key, OptionsText.text(of: options)))
        }
        guard !changes.isEmpty else { return }
        try database.execute("BEGIN")
        let update = try database.prepare("UPDATE \(table) SET options = ? WHERE \(key) = ?")
        for (key, text) in changes { try update.run(text, key) }
        try database.execute("COMMIT")
    }
}

extension StoreError {
    /// - Parameters:
    ///   - source: the database that was copied.
    ///   - path: the copy.
    init(_ error: SQLiteError, copying source: String, to path: String) {
        let cause = error.systemCode == 0 ? error.message : "\(error.message) (\(String(cString: strerror(error.systemCode))))"
        switch error.code {
        case SQLITE_FULL: self.init(system: ENOSPC, "write the copy", path)
        case SQLITE_IOERR where [ENOSPC, EDQUOT].contains(error.systemCode): self.init(system: error.systemCode, "write the copy", path)
        // The statements are known to be right, so an error in a statement is the fault of the tables or of a row.
        case SQLITE_NOTADB, SQLITE_CORRUPT, SQLITE_ERROR, SQLITE_CONSTRAINT, SQLITE_MISMATCH:
            self.init(.damaged, "The database \(source) is damaged: \(cause).")
        case SQLITE_BUSY, SQLITE_LOCKED: self.init(.inUse, "Another program holds the database \(source); close it and try again.")
        default: self.init(.storage, "The database \(source) could not be copied to \(path): \(cause).")
        }
    }

    /// Why a database of this version cannot be copied; nil: it can.
    init?(version: Int64, of path: String) {
        if version == 0 {
            self.init(.damaged, "The file \(path) is not a database of Todoku.")
        } else if version > Schema.version {
            let versions = "version \(version); this one reads \(Schema.version)"
            self.init(.newerVersion, "The database \(path) is of a newer Todoku (\(versions)); update Todoku.")
        } else {
            return nil
        }
    }
}
