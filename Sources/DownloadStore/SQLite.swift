internal import CSQLite
internal import Glibc

/// A failed call to SQLite.
struct SQLiteError: Error, Equatable {
    /// The primary result code, such as `SQLITE_FULL`.
    let code: Int32
    let extendedCode: Int32
    /// The errno of the cause; 0: none.
    let systemCode: Int32
    let message: String
    /// The call, or the text of the statement.
    let operation: String

    fileprivate init(_ database: OpaquePointer?, _ result: Int32, _ operation: String) {
        extendedCode = database.map { sqlite3_extended_errcode($0) } ?? result
        code = result & 0xff
        systemCode = database.map { sqlite3_system_errno($0) } ?? 0
        message = String(cString: database.map { sqlite3_errmsg($0) } ?? sqlite3_errstr(result))
        self.operation = operation
    }
}

/// A connection, for one thread at a time: opened without SQLite's own mutex.
struct Database: ~Copyable {
    private let raw: OpaquePointer

    /// - Parameter path: a path, or a `file:` URI if `flags` has `SQLITE_OPEN_URI`.
    init(_ path: String, flags: Int32) throws(SQLiteError) {
        var raw: OpaquePointer?
        let result = sqlite3_open_v2(path, &raw, flags | SQLITE_OPEN_NOMUTEX, nil)
        guard result == SQLITE_OK, let raw else {
            let error = SQLiteError(raw, result, "sqlite3_open_v2")
            sqlite3_close_v2(raw)
            throw error
        }
        self.raw = raw
    }

    // sqlite3_close_v2 lets the connection and its statements end in any order.
    deinit { sqlite3_close_v2(raw) }

    /// Runs statements without parameters, and ignores their rows.
    func execute(_ sql: String) throws(SQLiteError) {
        let result = sqlite3_exec(raw, sql, nil, nil, nil)
        guard result == SQLITE_OK else { throw SQLiteError(raw, result, sql) }
    }

    func prepare(_ sql: String) throws(SQLiteError) -> Statement {
        var statement: OpaquePointer?
        let result = sqlite3_prepare_v3(raw, sql, -1, UInt32(SQLITE_PREPARE_PERSISTENT), &statement, nil)
        guard result == SQLITE_OK, let statement else { throw SQLiteError(raw, result, sql) }
        return Statement(adopting: statement)
    }

    /// The single number that `sql` returns, such as a pragma's.
    func number(_ sql: String) throws(SQLiteError) -> Int64 {
        var number: Int64 = 0
        try prepare(sql).each { (value: Int64) in number = value }
        return number
    }

    /// Whether no transaction is open.
    var isIdle: Bool { sqlite3_get_autocommit(raw) != 0 }

    /// Reports the log's length to `log` at each commit. From then on, SQLite no longer empties the log by itself.
    ///
    /// - Parameter log: must live as long as the connection.
    func watch(_ log: LogLength) { _ = sqlite3_wal_hook(raw, logGrew, Unmanaged.passUnretained(log).toOpaque()) }

    func waitWhenBusy(milliseconds: Int32) { sqlite3_busy_timeout(raw, milliseconds) }
}

/// The number of frames in the write-ahead log.
final class LogLength {
    var frames: UInt32 = 0
}

private let logGrew: @convention(c) (UnsafeMutableRawPointer?, OpaquePointer?, UnsafePointer<CChar>?, Int32) -> Int32 = {
    context, _, _, frames in
    if let context { Unmanaged<LogLength>.fromOpaque(context).takeUnretainedValue().frames = UInt32(clamping: frames) }
    return SQLITE_OK
}

/// A prepared statement, which can be run repeatedly. Parameters and columns count from 0.
struct Statement: ~Copyable {
    private let raw: OpaquePointer

    fileprivate init(adopting raw: OpaquePointer) { self.raw = raw }

    deinit { sqlite3_finalize(raw) }

    /// Binds the parameters in order and runs the statement to its end.
    func run<each V: SQLiteValue>(_ values: repeat each V) throws(SQLiteError) {
        var index: Int32 = 0
        for value in repeat each values {
            try bind(value, at: index)
            index += 1
        }
        try eachRow { _ in }
    }

    /// The typed columns of each row.
    func each<each V: SQLiteValue>(_ body: (repeat each V) -> Void) throws(SQLiteError) {
        try eachRow { row in
            var columns = (0 as Int32)...
            body(repeat row.next((each V).self, &columns))
        }
    }

    func bind(_ value: some SQLiteValue, at index: Int32) throws(SQLiteError) {
        let result = value.bind(raw, index + 1)
        guard result == SQLITE_OK else { throw error(result) }
    }

    /// Makes all parameters NULL.
    func clear() { sqlite3_clear_bindings(raw) }

    /// Runs the statement to its end.
    func eachRow(_ body: (Row) -> Void) throws(SQLiteError) {
        defer { rewind() }
        while let row = try next() { body(row) }
    }

    /// The next row, for walking through two statements at once; nil after the last. Call `rewind` after that.
    func next() throws(SQLiteError) -> Row? {
        let result = sqlite3_step(raw)
        switch result {
        case SQLITE_ROW: return Row(raw: raw)
        case SQLITE_DONE: return nil
        default: throw error(result)
        }
    }

    func rewind() { sqlite3_reset(raw) }

    private func error(_ result: Int32) -> SQLiteError {
        SQLiteError(sqlite3_db_handle(raw), result, String(cString: sqlite3_sql(raw)))
    }
}

/// The current row of a statement. Valid only within the closure that gets it.
struct Row {
    fileprivate let raw: OpaquePointer

    func value<V: SQLiteValue>(_ column: Int32, as type: V.Type = V.self) -> V { V(raw, column) }

    /// Whether the text in a column is `bytes`.
    func has(_ bytes: [UInt8], at column: Int32) -> Bool {
        guard let text = sqlite3_column_text(raw, column), sqlite3_column_bytes(raw, column) == bytes.count else { return false }
        return bytes.withUnsafeBytes { $0.isEmpty || memcmp($0.baseAddress!, text, $0.count) == 0 }
    }

    fileprivate func next<V: SQLiteValue>(_ type: V.Type, _ columns: inout PartialRangeFrom<Int32>) -> V {
        defer { columns = (columns.lowerBound + 1)... }
        return V(raw, columns.lowerBound)
    }
}

/// A type for parameters and columns. Reading never fails: SQLite converts values, to zero or empty if it must.
protocol SQLiteValue {
    init(_ row: OpaquePointer, _ column: Int32)
    /// - Returns: a result code.
    func bind(_ statement: OpaquePointer, _ parameter: Int32) -> Int32
}

extension Int64: SQLiteValue {
    init(_ row: OpaquePointer, _ column: Int32) { self = sqlite3_column_int64(row, column) }
    func bind(_ statement: OpaquePointer, _ parameter: Int32) -> Int32 { sqlite3_bind_int64(statement, parameter, self) }
}

extension String: SQLiteValue {
    init(_ row: OpaquePointer, _ column: Int32) {
        let text = sqlite3_column_text(row, column)
        self = String(decoding: UnsafeBufferPointer(start: text, count: Int(sqlite3_column_bytes(row, column))), as: UTF8.self)
    }

    func bind(_ statement: OpaquePointer, _ parameter: Int32) -> Int32 {
        var text = self
        return text.withUTF8 { bytes in
            // SQLite takes a text without an address for NULL.
            guard let start = bytes.baseAddress else { return todoku_bind_text(statement, parameter, "", 0) }
            return start.withMemoryRebound(to: CChar.self, capacity: bytes.count) {
                todoku_bind_text(statement, parameter, $0, Int32(clamping: bytes.count))
            }
        }
    }
}

extension [UInt8]: SQLiteValue {
    init(_ row: OpaquePointer, _ column: Int32) {
        let bytes = sqlite3_column_blob(row, column)
        self = Array(UnsafeRawBufferPointer(start: bytes, count: bytes == nil ? 0 : Int(sqlite3_column_bytes(row, column))))
    }

    func bind(_ statement: OpaquePointer, _ parameter: Int32) -> Int32 {
        // SQLite takes a blob without an address for NULL.
        guard !isEmpty else { return sqlite3_bind_zeroblob(statement, parameter, 0) }
        return withUnsafeBytes { todoku_bind_blob(statement, parameter, $0.baseAddress, Int32(clamping: $0.count)) }
    }
}

extension Optional: SQLiteValue where Wrapped: SQLiteValue {
    init(_ row: OpaquePointer, _ column: Int32) {
        self = sqlite3_column_type(row, column) == SQLITE_NULL ? nil : Wrapped(row, column)
    }

    func bind(_ statement: OpaquePointer, _ parameter: Int32) -> Int32 {
        self?.bind(statement, parameter) ?? sqlite3_bind_null(statement, parameter)
    }
}

/// Values stored as integers of 64 bits.
protocol SQLiteInteger: SQLiteValue {
    init(stored: Int64)
    var stored: Int64 { get }
}

extension SQLiteInteger {
    init(_ row: OpaquePointer, _ column: Int32) { self.init(stored: Int64(row, column)) }
    func bind(_ statement: OpaquePointer, _ parameter: Int32) -> Int32 { stored.bind(statement, parameter) }
}

/// Stored as its bit pattern: from 2⁶³ on, the column shows a negative number.
extension UInt64: SQLiteInteger {
    init(stored: Int64) { self.init(bitPattern: stored) }
    var stored: Int64 { Int64(bitPattern: self) }
}

extension UInt32: SQLiteInteger {
    init(stored: Int64) { self.init(clamping: stored) }
    var stored: Int64 { Int64(self) }
}

extension Int32: SQLiteInteger {
    init(stored: Int64) { self.init(clamping: stored) }
    var stored: Int64 { Int64(self) }
}

extension Bool: SQLiteInteger {
    init(stored: Int64) { self = stored != 0 }
    var stored: Int64 { self ? 1 : 0 }
}
