internal import CSQLite
public import DownloadModel
internal import Glibc

/// The state of a database, as a program sees it that only reads.
public struct StoreExamination: Equatable, Sendable {
    public enum Condition: Equatable, Sendable {
        /// There is no database, or an empty one: nothing was queued yet.
        case absent
        case good
        /// Todoku sets such a file aside at its next start. The text says what is damaged.
        case damaged(String)
        /// A newer Todoku has written it.
        case newer
        /// The text says why the file cannot be read.
        case unreadable(String)
    }

    /// The absolute path of the database.
    public let path: String
    public internal(set) var condition = Condition.absent
    /// The version of its tables, and the one that this program writes.
    public internal(set) var version: Int64 = 0
    public let ownVersion = Schema.version
    /// The sizes of the database and of its log.
    public internal(set) var size: ByteCount = 0
    public internal(set) var logSize: ByteCount = 0
    /// The downloads on the list, and those of them that have not ended.
    public internal(set) var downloads: Int64 = 0
    public internal(set) var unfinished: Int64 = 0
    /// The folders of unfinished downloads, and how many each has; at most `mostFolders`. A download into a caller's file has none.
    public internal(set) var folders: [String: Int64] = [:]
    /// The setting `default-directory`; empty: not set.
    public internal(set) var defaultDirectory = ""
    public internal(set) var diskReserve = DiskReserve.automatic
    /// The paths of damaged databases that were set aside.
    public internal(set) var setAside: [String] = []

    static let mostFolders = 32

    fileprivate init(path: String) { self.path = path }
}

extension Store {
    /// Looks at the database in `folder` and checks its pages, also while a daemon uses it. Blocks, and changes nothing.
    public nonisolated static func examine(folder path: String) -> StoreExamination {
        let examination = examineOnce(StoreFolder(path: path))
        guard case .damaged = examination.condition else { return examination }
        // One failed read proves no damage, and a daemon may have written meanwhile.
        return examineOnce(StoreFolder(path: path))
    }

    private nonisolated static func examineOnce(_ folder: StoreFolder) -> StoreExamination {
        var examination = StoreExamination(path: folder.database)
        examination.setAside = folder.namesSetAside.filter { !$0.hasSuffix("-wal") && !$0.hasSuffix("-shm") }.sorted()
            .map { "\(folder.path)/\($0)" }
        var status = stat()
        guard stat(folder.database, &status) == 0 else {
            if errno != ENOENT { examination.condition = .unreadable(String(cString: strerror(errno))) }
            return examination
        }
        examination.size = ByteCount(clamping: status.st_size)
        if stat(folder.database + "-wal", &status) == 0 { examination.logSize = ByteCount(clamping: status.st_size) }
        guard examination.size > 0 || examination.logSize > 0 else { return examination }
        guard access(folder.database, R_OK) == 0 else {
            examination.condition = .unreadable(String(cString: strerror(errno)))
            return examination
        }
        guard !folder.hasFaultyLog else {
            examination.condition = .damaged("acknowledged changes lie behind a fault of its log")
            return examination
        }
        do throws(SQLiteError) {
            let database = try reader(folder)
            database.waitWhenBusy(milliseconds: 2000)
            try examination.read(database)
        } catch {
            let cause = error.systemCode == 0 ? error.message : "\(error.message) (\(String(cString: strerror(error.systemCode))))"
            let isOfTheFile = [SQLITE_CORRUPT, SQLITE_NOTADB, SQLITE_ERROR].contains(error.code)
            examination.condition = isOfTheFile ? .damaged(cause) : .unreadable(cause)
        }
        return examination
    }
}

extension StoreExamination {
    fileprivate mutating func read(_ database: borrowing Database) throws(SQLiteError) {
        version = try database.number("PRAGMA user_version")
        guard try database.number("PRAGMA application_id") == Schema.applicationID, version > 0 else {
            condition = .damaged("it is not one of Todoku's databases")
            return
        }
        guard version <= ownVersion else {
            condition = .newer
            return
        }
        var answers: [String] = []
        try database.prepare("PRAGMA quick_check(1)").each { (answer: String) in answers.append(answer) }
        guard answers == ["ok"] else {
            condition = .damaged(answers.first ?? "its pages cannot be checked")
            return
        }
        let ended = "('finished', 'failed', 'cancelled')"
        downloads = try database.number("SELECT count(*) FROM download")
        unfinished = try database.number("SELECT count(*) FROM download WHERE state NOT IN \(ended)")
        var found: [String: Int64] = [:]
        try database.prepare(
            """
            SELECT directory, count(*) FROM download WHERE state NOT IN \(ended) AND directory <> '' GROUP BY directory
            ORDER BY count(*) DESC LIMIT \(Self.mostFolders)
            """
        ).each { (directory: String, count: Int64) in found[directory] = count }
        folders = found
        var settings: [String: String] = [:]
        try database.prepare("SELECT key, value FROM setting").each { (key: String, value: String) in settings[key] = value }
        defaultDirectory = settings["default-directory"] ?? ""
        diskReserve = settings["disk-reserve"].flatMap { Int64($0) }.flatMap(DiskReserve.init(wire:)) ?? .automatic
        condition = .good
    }
}
