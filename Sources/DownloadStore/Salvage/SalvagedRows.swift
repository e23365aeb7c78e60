internal import CSQLite
internal import Glibc

extension StoreFolder {
    /// Whether acknowledged commits lie behind a fault of the log, where SQLite does not read them.
    var hasFaultyLog: Bool {
        guard let salvage = Salvage(self, mark: mark), !salvage.isForeign else { return false }
        return salvage.isBehindFault
    }

    /// Writes the readable rows of the damaged database into `salvaged`, which is on disk on return.
    ///
    /// - Parameters:
    ///   - afterLoss: the least next number if rows may be lost, because lost downloads have numbers too.
    ///   - isDamaged: whether the database itself is damaged, so that pages may be lost; else only its log is.
    /// - Returns: nil if nothing can be read, or the database is not ours.
    /// - Throws: if `salvaged` cannot be written. The damaged database must then stay in place, because a later start may succeed.
    func salvage(afterLoss: UInt64, isDamaged: Bool) throws(StoreError) -> Salvaged? {
        guard var salvage = Salvage(self, mark: mark), !salvage.isForeign else { return nil }
        if isDamaged { salvage.noteLoss() }
        let descriptor = Glibc.open(salvageDraft, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0o600)
        guard descriptor >= 0 else { throw unsaved(errno) }
        // SQLite locks by fcntl(2). So this descriptor is closed before SQLite opens the file, and another one flushes the file afterwards.
        close(descriptor)
        let salvaged: Salvaged?
        do throws(SQLiteError) { salvaged = try SalvagedRows.write(&salvage, salvageDraft, afterLoss) } catch {
            unlink(salvageDraft)
            // Any other error comes from the bytes that were read.
            let causes = [SQLITE_FULL, SQLITE_IOERR, SQLITE_NOMEM, SQLITE_CANTOPEN, SQLITE_READONLY, SQLITE_PERM, SQLITE_BUSY]
            guard causes.contains(error.code) else { return nil }
            throw StoreError(error, self)
        }
        guard let salvaged else {
            unlink(salvageDraft)
            return nil
        }
        guard Self.flush(salvageDraft), rename(salvageDraft, self.salvaged) == 0 else {
            let code = errno
            unlink(salvageDraft)
            throw unsaved(code)
        }
        _ = Self.sync(path)
        return salvaged
    }

    private func unsaved(_ code: Int32) -> StoreError { StoreError(system: code, "save the rows of the damaged database", salvageDraft) }

    private static func flush(_ path: String) -> Bool {
        let descriptor = Glibc.open(path, O_RDWR | O_CLOEXEC)
        guard descriptor >= 0 else { return false }
        defer { close(descriptor) }
        return fdatasync(descriptor) == 0
    }
}

/// Puts the salvaged rows into tables of their own version. The next `open` migrates these.
enum SalvagedRows {
    /// The properties of a row that identify its table.
    struct Shape: Hashable {
        var hasRowid: Bool
        var columns: Int
    }

    struct Table: Equatable {
        var name: String
        var columns: [String]
        /// The column that holds the rowid.
        var rowidColumn: Int?
    }

    fileprivate static func write(_ salvage: inout Salvage, _ path: String, _ afterLoss: UInt64) throws(SQLiteError) -> Salvaged? {
        let version = salvage.version ?? Schema.version
        let shapes = try shapes(of: version)
        let database = try Database(path, flags: SQLITE_OPEN_READWRITE)
        // Nothing relies on this file before it is complete and on disk.
        try database.execute("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; BEGIN")
        for step in Schema.steps[..<Int(version)] { try database.execute(step) }
        var inserts: [Shape: Insert] = [:]
        for (shape, table) in shapes { inserts[shape] = try Insert(database, table) }
        var (failure, rows): (SQLiteError?, Int) = (nil, 0)
        salvage.rows { columns, rowid in
            let shape = Shape(hasRowid: rowid != nil, columns: columns.count)
            guard failure == nil, let insert = inserts[shape] else { return }
            do throws(SQLiteError) {
                try insert.run(columns, rowid)
                rows += 1
            } catch  where [SQLITE_CONSTRAINT, SQLITE_MISMATCH].contains(error.code) {
                // These bytes only look like a row.
            } catch { failure = error }
        }
        if let failure { throw failure }
        guard rows > 0 else { return nil }
        if salvage.hasLoss {
            var next: UInt64 = afterLoss
            try database.prepare("SELECT value FROM setting WHERE key = '\(Session.nextNumberKey)'").each { (value: String) in
                next = max(next, UInt64(value) ?? 0)
            }
            try database.prepare("INSERT OR REPLACE INTO setting (key, value) VALUES (?, ?)").run(Session.nextNumberKey, String(next))
        }
        let count = try database.number("SELECT count(*) FROM download")
        let salvaged = Salvaged(downloads: UInt32(clamping: count), mayHaveLost: salvage.hasLoss)
        // This process may die just after this database has got its name. The next process must still tell of the loss.
        let note = SetAsideNote(path: nil, salvaged: salvaged)
        try database.prepare("INSERT OR REPLACE INTO setting (key, value) VALUES (?, ?)").run(Session.setAsideKey, note.text)
        try database.execute("PRAGMA application_id = \(Schema.applicationID); PRAGMA user_version = \(version); COMMIT")
        return salvaged
    }

    /// The tables of a version, by the shapes of their rows. Rows may be older than a table's last columns.
    static func shapes(of version: Int64) throws(SQLiteError) -> [Shape: Table] {
        var shapes: [Shape: Table] = [:]
        let tables = try tables(of: version)
        for earlier in 1...version {
            for before in try Self.tables(of: earlier) {
                guard let table = tables.first(where: { $0.name == before.name }), table.columns.starts(with: before.columns) else {
                    continue
                }
                shapes[Shape(hasRowid: table.rowidColumn != nil, columns: before.columns.count)] = before
            }
        }
        return shapes
    }

    static func tables(of version: Int64) throws(SQLiteError) -> [Table] {
        let database = try Database(":memory:", flags: SQLITE_OPEN_READWRITE)
        for step in Schema.steps[..<Int(version)] { try database.execute(step) }
        var tables: [Table] = []
        try database.prepare("SELECT name, wr FROM pragma_table_list WHERE schema = 'main' AND name NOT LIKE 'sqlite%' ORDER BY name").each
        {
            (name: String, isWithoutRowid: Bool) in tables.append(Table(name: name, columns: [], rowidColumn: isWithoutRowid ? nil : -1))
        }
        for index in tables.indices {
            try database.prepare("SELECT name, pk FROM pragma_table_info('\(tables[index].name)') ORDER BY cid").each {
                (name: String, key: Int64) in
                if key > 0, tables[index].rowidColumn == -1 { tables[index].rowidColumn = tables[index].columns.count }
                tables[index].columns.append(name)
            }
        }
        return tables
    }

    /// Wraps a statement so that a dictionary can hold it.
    private final class Insert {
        private let statement: Statement
        private let rowidColumn: Int?

        init(_ database: borrowing Database, _ table: Table) throws(SQLiteError) {
            rowidColumn = table.rowidColumn
            let parameters = table.columns.map { _ in "?" }.joined(separator: ", ")
            statement = try database.prepare(
                "INSERT OR REPLACE INTO \(table.name) (\(table.columns.joined(separator: ", "))) VALUES (\(parameters))")
        }

        func run(_ columns: [SalvagedValue], _ rowid: Int64?) throws(SQLiteError) {
            for (index, value) in columns.enumerated() {
                try statement.bind(index == rowidColumn ? .integer(rowid ?? 0) : value, at: Int32(index))
            }
            try statement.eachRow { _ in }
        }
    }
}
