internal import CSQLite
internal import DownloadModel
internal import Glibc

/// The open database and its statements, kept from `open` to `close`.
final class Session {
    static let nextNumberKey = "next-number"
    static let setAsideKey = "set-aside"
    /// Most hosts whose last request is remembered across a restart.
    private static let mostRequests = 10_000
    private static let recordsAtATime = 2048
    /// The number of frames (a page each) at which a commit empties the log, as SQLite would by itself; and the number at which `tidy`
    /// does.
    private static let longestLog: UInt32 = 1000
    private static let worthwhileLog: UInt32 = 64

    private let begin: Statement
    private let end: Statement
    private let undo: Statement
    private let put: Statement
    private let remove: Statement
    private let putCourse: Statement
    private let removeCourse: Statement
    private let set: Statement
    private let sweep: Statement
    private let swept: Statement
    private let requested: Statement
    private let requestOver: Statement
    private let keepCopy: Statement
    private let dropCopies: Statement
    private let findCopy: Statement
    private let putBatch: Statement
    private let removeBatch: Statement
    private let putAsset: Statement
    private let removeAsset: Statement
    private let database: Database
    private let file: DatabaseFile
    private let folder: StoreFolder
    /// Whether the file may not be on disk yet, because this session created it, or a previous session did not close. The file need not be
    /// on disk before the first commit is acknowledged, which makes the first start quicker.
    private var isUnsynced: Bool
    /// The last record written, and the text of its options: all members of a batch have the same.
    private var lastPut: (record: DownloadRecord, options: String)?
    /// The next number, as saved.
    private var savedNumber = DownloadNumber(1)
    /// Whether the last commit has failed at its very end. Its rows may be on disk all the same: if SQLite cannot take them back either,
    /// it finds them in the log when it opens the database again.
    private(set) var mayHaveSaved = false
    /// How many downloads `load` has read.
    private(set) var downloadsRead: UInt32 = 0
    /// The note about a database that was set aside, as `load` has read it.
    private(set) var setAsideNote: SetAsideNote?
    private let log = LogLength()
    /// The log is not emptied before it has so many frames, because another program has read it at the last try.
    private var leastLog: UInt32 = 0
    /// How long to wait for another program's transaction, in milliseconds.
    private let wait: Int32
    /// The salts of the log; nil after the log was emptied.
    private var salts: UInt64?

    /// Opens the database, and migrates it to this program's version.
    ///
    /// - Parameters:
    ///   - file: the file of the database; an empty file if the database must be created.
    ///   - first: the next number of a database that is created now.
    ///   - wait: how long to wait for another program's transaction, for commits too.
    ///   - mostPages: of 4 KiB each. A change that needs more fails, as on a full disk.
    /// - Throws: `damaged` if the file is not one of our databases, and must be set aside.
    init(_ folder: StoreFolder, _ file: consuming DatabaseFile, first: DownloadNumber, wait: Duration, mostPages: Int64) throws(StoreError)
    {
        (self.folder, self.wait) = (folder, Int32(wait / .milliseconds(1)))
        let hasLog = file.hasLog
        self.file = file
        do throws(SQLiteError) {
            database = try Database(folder.database, flags: SQLITE_OPEN_READWRITE)
            database.waitWhenBusy(milliseconds: self.wait)
        } catch { throw StoreError(error, folder, isOpening: true) }
        let version = try Session.version(database, folder)
        isUnsynced = version == 0 || hasLog
        do throws(SQLiteError) {
            // Removed rows hold credentials, so their bytes are overwritten.
            try database.execute(
                """
                PRAGMA synchronous = \(version == 0 ? "OFF" : "FULL"); PRAGMA journal_mode = WAL; PRAGMA foreign_keys = ON;
                PRAGMA secure_delete = ON; PRAGMA trusted_schema = OFF; PRAGMA cache_size = -512; PRAGMA mmap_size = 0;
                PRAGMA journal_size_limit = 4194304; PRAGMA max_page_count = \(mostPages);
                """)
            try Session.migrate(database, from: version, first: first)
            // FULL in WAL mode: a commit returns once the log is on disk.
            try database.execute("PRAGMA synchronous = FULL")
            begin = try database.prepare("BEGIN IMMEDIATE")
            end = try database.prepare("COMMIT")
            undo = try database.prepare("ROLLBACK")
            put = try database.prepare("INSERT OR REPLACE INTO download (\(Column.names)) VALUES (\(Column.parameters))")
            remove = try database.prepare("DELETE FROM download WHERE number = ?")
            putCourse = try database.prepare(
                "INSERT OR REPLACE INTO course (\(CourseColumn.names)) VALUES (\(CourseColumn.parameters))")
            removeCourse = try database.prepare("DELETE FROM course WHERE number = ?")
            set = try database.prepare("INSERT OR REPLACE INTO setting (key, value) VALUES (?, ?)")
            sweep = try database.prepare("INSERT OR REPLACE INTO sweep (number, directory) VALUES (?, ?)")
            swept = try database.prepare("DELETE FROM sweep WHERE number = ?")
            requested = try database.prepare("INSERT OR REPLACE INTO request (host, spacing, at, is_sent) VALUES (?, ?, ?, ?)")
            requestOver = try database.prepare("DELETE FROM request WHERE host = ? AND spacing = ?")
            keepCopy = try database.prepare(CopyRow.insert)
            dropCopies = try database.prepare(CopyRow.dropOldest)
            findCopy = try database.prepare(CopyRow.find)
            putBatch = try database.prepare("INSERT OR REPLACE INTO batch (\(BatchRecord.columns)) VALUES (\(BatchRecord.parameters))")
            removeBatch = try database.prepare("DELETE FROM batch WHERE number = ?")
            putAsset = try database.prepare(AssetRecord.insert)
            removeAsset = try database.prepare(AssetRecord.delete)
            database.watch(log)
        } catch { throw StoreError(error, folder, isOpening: true) }
    }

    /// The version of the existing tables; 0: no tables.
    private static func version(_ database: borrowing Database, _ folder: StoreFolder) throws(StoreError) -> Int64 {
        let application: Int64
        let version: Int64
        let tables: Int64
        do throws(SQLiteError) {
            application = try database.number("PRAGMA application_id")
            version = try database.number("PRAGMA user_version")
            tables = try database.number("SELECT count(*) FROM sqlite_schema")
        } catch { throw StoreError(error, folder, isOpening: true) }
        if application == 0, version == 0, tables == 0 { return 0 }
        guard application == Schema.applicationID, version > 0 else {
            throw StoreError(.damaged, "The database \(folder.database) is not one of Todoku's; it is set aside when Todoku starts again.")
        }
        guard version <= Schema.version else {
            throw StoreError(
                .newerVersion,
                """
                The database \(folder.database) was written by a newer Todoku (version \(version); this one reads up to \
                \(Schema.version)); update Todoku, or move the file away to start with an empty queue.
                """
            )
        }
        return version
    }

    /// Runs all migration steps in one transaction, so that a crash never leaves a database between two versions.
    static func migrate(_ database: borrowing Database, from version: Int64, first: DownloadNumber) throws(SQLiteError) {
        guard version < Schema.version else { return }
        try database.execute("BEGIN IMMEDIATE")
        for step in Schema.steps[Int(version)...] { try database.execute(step) }
        if version == 0 {
            try database.execute("PRAGMA application_id = \(Schema.applicationID)")
            try database.prepare("INSERT INTO setting (key, value) VALUES (?, ?)").run(nextNumberKey, first.description)
        }
        try database.execute("PRAGMA user_version = \(Schema.version); COMMIT")
    }

    // MARK: Reading

    /// Reads everything. The records come in portions, so that their receiver can start early.
    ///
    /// - Parameters:
    ///   - now: see `DownloadRecord.init(_:course:now:like:)`.
    ///   - take: gets everything but the records first, and then the records in the order of their numbers.
    /// - Returns: the next number.
    func load(now: WallTime, _ take: (StoredPart) -> Void) throws(StoreError) -> DownloadNumber {
        var values: [String: String] = [:]
        var queue = StoredQueue()
        var last = DownloadNumber(0)
        do throws(SQLiteError) {
            queue.count = Int(try database.number("SELECT count(*) FROM download"))
            try database.prepare("SELECT key, value FROM setting").each { (key: String, value: String) in values[key] = value }
            queue.settings = Settings(values)
            try database.prepare("SELECT number, directory FROM sweep").each { (number: UInt64, directory: String) in
                queue.sweeps[DownloadNumber(number)] = directory
            }
            try queue.requests = loadRequests(now: now, queue.settings.hostRules)
            try database.prepare("SELECT \(BatchRecord.columns) FROM batch ORDER BY number").eachRow {
                queue.batches.append(BatchRecord($0))
            }
            try database.prepare(AssetRecord.select).eachRow { row in
                if let asset = AssetRecord(row) { queue.assets.append(asset) }
            }
            last = queue.batches.lazy.map(\.number).compactMap(Self.given).max() ?? last
            take(.queue(queue))
            try loadRecords(now: now) { records in
                last = max(last, records.lazy.map(\.number).compactMap(Self.given).max() ?? last)
                take(.records(records))
            }
        } catch { throw StoreError(error, folder, isOpening: true) }
        downloadsRead = UInt32(clamping: queue.count)
        setAsideNote = values[Session.setAsideKey].flatMap { SetAsideNote(text: $0) }
        savedNumber = values[Session.nextNumberKey].flatMap { UInt64($0) }.map(DownloadNumber.init).flatMap(Self.given) ?? DownloadNumber(1)
        return max(savedNumber, DownloadNumber(last.value + 1))
    }

    /// Saves the note about a database that was set aside. If this fails, later starts do not name that database.
    func keep(_ note: SetAsideNote) { try? set.run(Session.setAsideKey, note.text) }

    private func loadRecords(now: WallTime, _ take: ([DownloadRecord]) -> Void) throws(SQLiteError) {
        let downloads = try database.prepare("SELECT \(Column.names) FROM download ORDER BY number")
        let courses = try database.prepare("SELECT \(CourseColumn.names) FROM course ORDER BY number")
        var (records, model): ([DownloadRecord], RecordModel) = ([], RecordModel())
        records.reserveCapacity(Self.recordsAtATime)
        var course = try courses.next()
        while let row = try downloads.next() {
            let number: Int64 = row.value(Column.number.rawValue)
            while let behind = course, behind.value(CourseColumn.number.rawValue) < number { course = try courses.next() }
            let own = course.flatMap { $0.value(CourseColumn.number.rawValue) == number ? $0 : nil }
            records.append(DownloadRecord(row, course: own, now: now, like: &model))
            guard records.count == Self.recordsAtATime else { continue }
            take(records)
            // Each portion shares options only within itself: counting references that another thread counts too is slow.
            (records, model) = ([], RecordModel())
            records.reserveCapacity(Self.recordsAtATime)
        }
        if !records.isEmpty { take(records) }
    }

    /// Reads the last requests. Deletes requests that no interval needs any more. A full disk prevents the deletion, but not the start. The
    /// longest interval is 32 bits of milliseconds. A host's own interval is that of its rule; the interval of a slowed host is not kept
    /// across a start.
    private func loadRequests(now: WallTime, _ rules: HostRules) throws(SQLiteError) -> [HostRequest] {
        var (requests, over): ([HostRequest], [HostRequest]) = ([], [])
        let oldest = now + .milliseconds(-Int64(UInt32.max))
        try? database.prepare(
            """
            DELETE FROM request WHERE at < ? OR is_sent AND spacing > 0 AND at + spacing + spacing / 64 < ?
                OR at < (SELECT at FROM request ORDER BY at DESC LIMIT 1 OFFSET \(Self.mostRequests - 1))
            """
        ).run(oldest.microseconds, now.microseconds)
        try database.prepare("SELECT host, spacing, at, is_sent FROM request ORDER BY at DESC LIMIT \(Self.mostRequests)").each {
            (host: String, requestInterval: Int64, at: UInt64, isSent: Bool) in
            let request = HostRequest(
                host: host, requestInterval: .microseconds(requestInterval), at: WallTime(microseconds: at), isSent: isSent)
            let interval = requestInterval > 0 ? request.requestInterval : rules.governing(host).rule.requestInterval ?? .zero
            let isOver = at < oldest.microseconds || isSent && now - request.at > interval + interval / 64
            if isOver { over.append(request) } else { requests.append(request) }
        }
        if !over.isEmpty {
            try? transaction { () throws(SQLiteError) in for request in over { try forget(request.host, request.requestInterval) } }
        }
        return requests
    }

    private func forget(_ host: String, _ requestInterval: Duration) throws(SQLiteError) {
        try requestOver.run(host, requestInterval.microseconds)
    }

    /// `number` if this service may have assigned it; nil for a number that only another program can have written. Such a number is
    /// ignored, so that our own numbers never run out.
    private static func given(_ number: DownloadNumber) -> DownloadNumber? { number.value <= largestNumber ? number : nil }

    /// The cached copy of `key`; nil also if its row cannot be read.
    func copy(for key: CopyKey) throws(StoreError) -> CachedCopy? {
        do throws(SQLiteError) { return try CopyRow.find(key, findCopy) } catch { throw StoreError(error, folder) }
    }

    // MARK: Writing

    /// Commits the changes of all parts, in order, in one transaction; or none.
    ///
    /// - Parameters:
    ///   - isEverything: first deletes the rows that an earlier commit of unknown outcome may have saved. Settings and cached copies stay.
    ///   - refused: first deletes the rows of downloads and batches with these numbers, for the same reason.
    func commit(
        _ parts: [[StoreChange]], nextNumber: DownloadNumber, isEverything: Bool = false,
        refused: [(first: DownloadNumber, last: DownloadNumber)] = []
    ) throws(StoreError) {
        let changes = parts.joined()
        guard !changes.isEmpty || nextNumber > savedNumber || !refused.isEmpty else { return }
        guard file.isInPlace else {
            throw StoreError(.damaged, "The database \(folder.database) was removed while Todoku used it.")
        }
        // SQLite takes a log beside an empty database for a leftover. So the file must be on disk before the first row is.
        if isUnsynced { try file.sync() }
        isUnsynced = false
        do throws(SQLiteError) {
            try transaction { () throws(SQLiteError) in
                if isEverything {
                    try database.execute(
                        """
                        DELETE FROM download; DELETE FROM course; DELETE FROM batch; DELETE FROM sweep; DELETE FROM request;
                        DELETE FROM asset
                        """)
                }
                for (first, last) in refused {
                    let isRefused = "number BETWEEN \(first) AND \(last)"
                    try database.execute(
                        """
                        DELETE FROM download WHERE \(isRefused); DELETE FROM course WHERE \(isRefused);
                        DELETE FROM batch WHERE \(isRefused)
                        """)
                }
                for change in changes { try apply(change) }
                if changes.contains(where: \.isCopy) { try dropCopies.run(Int64(Limits.copiesHeld)) }
                if nextNumber > savedNumber { try set.run(Session.nextNumberKey, nextNumber.description) }
            }
        } catch { throw StoreError(error, folder) }
        savedNumber = max(savedNumber, nextNumber)
        if log.frames > max(Self.longestLog, leastLog) || changes.contains(.scrubLog) { checkpoint() }
    }

    private func transaction(_ body: () throws(SQLiteError) -> Void) throws(SQLiteError) {
        mayHaveSaved = false
        try begin.run()
        do throws(SQLiteError) {
            try body()
            mayHaveSaved = true
            try end.run()
            mayHaveSaved = false
        } catch {
            // After some errors, SQLite has rolled back by itself.
            if !database.isIdle { try? undo.run() }
            throw error
        }
    }

    private func apply(_ change: StoreChange) throws(SQLiteError) {
        switch change {
        case .put(let record): try save(record)
        case .remove(let number):
            try remove.run(number.value)
            try removeCourse.run(number.value)
        case .sweep(let number, let directory): try sweep.run(number.value, directory)
        case .swept(let number): try swept.run(number.value)
        case .requested(let request):
            try requested.run(request.host, request.requestInterval.microseconds, request.at.microseconds, request.isSent)
        case .requestOver(let host, let requestInterval): try forget(host, requestInterval)
        case .keepCopy(let copy): try CopyRow.put(copy, keepCopy)
        case .putBatch(let record): try record.put(by: putBatch)
        case .addBatch(let record, let members):
            try record.put(by: putBatch)
            for member in members { try save(member) }
        case .removeBatch(let number): try removeBatch.run(number.value)
        case .set(let settings): for (key, value) in settings.rows { try set.run(key, value) }
        case .putAsset(let record): try record.put(by: putAsset)
        case .removeAsset(let key): try removeAsset.run(key.app, key.name)
        case .scrubLog: break  // done after the commit
        }
    }

    private func save(_ record: DownloadRecord) throws(SQLiteError) {
        let options =
            if let lastPut, record.sharesOptions(with: lastPut.record) { lastPut.options } else { OptionsText.text(of: record.options) }
        lastPut = (record, options)
        try record.bind(to: put, options: options)
        try put.eachRow { _ in }
        if record.hasCourse {
            try record.bindCourse(to: putCourse)
            try putCourse.eachRow { _ in }
        } else {
            try removeCourse.run(record.number.value)
        }
    }

    /// Moves the log into the database and empties it. Does not wait for a program that reads the log: it may read for hours, and each
    /// commit would wait. A later call, or the next opening, tries again.
    ///
    /// A log that was moved, but not emptied, would be read again after a kill. A fault in it would then put older pages over newer ones.
    func checkpoint() {
        database.waitWhenBusy(milliseconds: 0)
        defer { database.waitWhenBusy(milliseconds: wait) }
        let isEmpty = (try? database.number("PRAGMA wal_checkpoint(TRUNCATE)")) == 0
        salts = nil
        if isEmpty { log.frames = 0 }
        leastLog = isEmpty ? 0 : log.frames +| Self.worthwhileLog
    }

    /// Moves the log into the database and empties the log. On return, the file of the database has all rows by itself, and is on disk.
    func completeFile() throws(StoreError) {
        let busy: Int64
        do throws(SQLiteError) { busy = try database.number("PRAGMA wal_checkpoint(TRUNCATE)") } catch { throw StoreError(error, folder) }
        guard busy == 0 else {
            throw StoreError(.inUse, "Another program holds the database \(folder.database); close it and try again.")
        }
        (log.frames, salts, leastLog) = (0, nil, 0)
    }

    /// Empties the log in a quiet moment, if it is long enough to be worth two flushes.
    func checkpointIfWorthwhile() { if log.frames >= max(Self.worthwhileLog, leastLog) { checkpoint() } }

    /// The length of the log; nil: it is empty.
    func mark() -> LogMark? {
        guard log.frames > 0 else { return nil }
        // Once nobody reads a log that was moved but not emptied, SQLite begins the log again at its start, with other salts.
        if salts == nil || leastLog > 0 {
            salts = PlainFile(folder.database + "-wal")?.read(at: 0, count: WriteAheadLog.headerLength)?.bigEndian64(at: 16)
        }
        return salts.map { LogMark(salts: $0, frames: log.frames) }
    }
}
