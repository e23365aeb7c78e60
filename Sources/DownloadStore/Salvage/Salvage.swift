internal import CSQLite
internal import DownloadModel
internal import Glibc

/// Reads the rows of a damaged database page by page, without SQLite, because SQLite stops at the first wrong page.
///
/// Every readable leaf gives its rows, even if the pages above it are lost. The number of columns in a row tells its table (a test ensures
/// that it can). Pages in the write-ahead log, even behind a wrong frame, replace those of the database. Nothing that is read is trusted:
/// each offset, length and page number is checked, and no row may exceed `longestRow`.
struct Salvage: ~Copyable {
    /// The longest row that is read, in bytes: more than `Limits` allows a row. The body of a request or the digests of pieces take 2 MiB
    /// in hexadecimal digits, and all other options less than another MiB.
    static let longestRow = 4 << 20

    private let database: PlainFile
    private let log: PlainFile?
    private let pageSize: Int
    /// The bytes of a page that SQLite uses.
    private let usable: Int
    /// For each page, the frame with its last image.
    private var frames: [UInt32: Int] = [:]
    /// The schema version of the tables; nil if the first page is lost.
    private(set) var version: Int64?
    /// Whether the first page is another program's, or a newer Todoku's.
    private(set) var isForeign = false
    /// Whether any bytes were unreadable.
    private(set) var hasLoss = false
    /// Whether the log has acknowledged commits that SQLite does not read, because they lie behind a fault.
    let isBehindFault: Bool

    /// nil if no readable file exists.
    init?(_ folder: StoreFolder, mark: LogMark?) {
        guard let database = PlainFile(folder.database) else { return nil }
        self.pageSize = Self.pageSize(folder)
        let log = WriteAheadLog(folder.database + "-wal", mark: mark, pageSize: pageSize)
        let acknowledged = log?.acknowledgedBehindFault(mark)
        isBehindFault = acknowledged != nil
        if let log {
            let end = max(acknowledged ?? 0, log.frames.lastIndex { $0.isGood && $0.databaseSize > 0 }.map { $0 + 1 } ?? 0)
            hasLoss = end > log.frames.count
            for (index, frame) in log.frames.prefix(end).enumerated() {
                if frame.isGood {
                    frames[frame.page] = index
                } else {
                    hasLoss = true
                }
            }
        }
        self.database = database
        self.log = PlainFile(folder.database + "-wal")
        usable = pageSize
        guard let first = page(1), first.starts(with: Array("SQLite format 3\0".utf8)) else { return }
        let (version, application) = (Int64(first.bigEndian32(at: 60)), Int64(first.bigEndian32(at: 68)))
        isForeign = application != Schema.applicationID || !(1...Schema.version).contains(version)
        self.version = version
    }

    /// The page size; our own if the first page does not tell.
    static func pageSize(_ folder: StoreFolder) -> Int {
        guard let header = PlainFile(folder.database)?.read(at: 0, count: 18), header.starts(with: Array("SQLite format 3\0".utf8)) else {
            return 4096
        }
        let size = Int(header[16]) << 8 | Int(header[17])
        return size == 1 ? 65536 : size >= 512 && size & (size - 1) == 0 ? size : 4096
    }

    private func page(_ number: UInt32) -> [UInt8]? {
        guard number > 0 else { return nil }
        if let frame = frames[number] {
            return log?.read(at: WriteAheadLog.offset(ofFrame: frame, pageSize: pageSize), count: pageSize)
        }
        return database.read(at: (Int(number) - 1) * pageSize, count: pageSize)
    }

    /// Call if the database is known to be damaged.
    mutating func noteLoss() { hasLoss = true }

    /// Passes on every readable row, the newest image of a row last.
    ///
    /// - Parameter take: gets the columns, and the rowid if the table has one.
    mutating func rows(_ take: (_ columns: [SalvagedValue], _ rowid: Int64?) -> Void) {
        let inLog = frames.sorted { $0.value < $1.value }.map(\.key)
        var lost = 0
        let last = Self.lastPage(ofSize: database.size, pageSize: pageSize)
        for number in 1...last where frames[number] == nil { lost += read(number, take) }
        for number in inLog { lost += read(number, take) }
        if lost > 0 { hasLoss = true }
    }

    /// The last page of a database of `size` bytes; page 1 if it is empty. A file with holes may be as large as its type allows.
    static func lastPage(ofSize size: Int, pageSize: Int) -> UInt32 {
        UInt32(clamping: min(max(1, (size +| (pageSize -| 1)) / pageSize), Int(Store.mostPages)))
    }

    /// - Returns: the number of unreadable cells.
    private func read(_ number: UInt32, _ take: ([SalvagedValue], Int64?) -> Void) -> Int {
        guard let page = page(number) else { return 1 }
        let start = number == 1 ? 100 : 0
        let (kind, count) = (page[start], Int(page[start + 3]) << 8 | Int(page[start + 4]))
        // Leaves of tables with rowids; leaves and inner pages of tables without rowids. Other pages have no rows, or no recognisable ones.
        guard [0x0D, 0x0A, 0x02].contains(kind) else { return 0 }
        let hasRowid = kind == 0x0D
        let cells = start + (kind == 0x02 ? 12 : 8)
        guard cells + 2 * count <= usable else { return 1 }
        var lost = 0
        for index in 0..<count {
            let offset = Int(page[cells + 2 * index]) << 8 | Int(page[cells + 2 * index + 1])
            var reader = SalvageReader(page[min(offset, usable)..<usable])
            if kind == 0x02 { reader.skip(4) }
            guard let length = reader.varint(), length > 0, length <= Self.longestRow, let rowid = hasRowid ? reader.varint() : 0,
                let payload = payload(&reader, Int(length), isLeafOfTable: hasRowid), let columns = SalvagedValue.record(payload)
            else {
                lost += 1
                continue
            }
            take(columns, hasRowid ? rowid : nil)
        }
        return lost
    }

    /// The bytes of the cell, including its overflow pages (sqlite.org/fileformat2.html#cell_payload_overflow_pages).
    private func payload(_ reader: inout SalvageReader, _ length: Int, isLeafOfTable: Bool) -> [UInt8]? {
        let most = isLeafOfTable ? usable - 35 : (usable - 12) * 64 / 255 - 23
        guard length > most else { return reader.bytes(length) }
        let least = (usable - 12) * 32 / 255 - 23
        let fitting = least + (length - least) % (usable - 4)
        guard var payload = reader.bytes(fitting <= most ? fitting : least), let link = reader.bytes(4) else { return nil }
        var next = link.bigEndian32(at: 0)
        // Each page brings at least one byte, so that even a ring of pages ends.
        while payload.count < length {
            guard let page = page(next) else { return nil }
            next = page.bigEndian32(at: 0)
            payload += page[4..<min(usable, 4 + length - payload.count)]
        }
        return payload
    }
}

/// Reads untrusted bytes. Missing bytes give nil.
private struct SalvageReader {
    private var rest: ArraySlice<UInt8>

    init(_ bytes: ArraySlice<UInt8>) { rest = bytes }

    var isAtEnd: Bool { rest.isEmpty }

    mutating func skip(_ count: Int) { rest = rest.dropFirst(count) }

    mutating func bytes(_ count: Int) -> [UInt8]? {
        guard count <= rest.count else { return nil }
        defer { rest = rest.dropFirst(count) }
        return Array(rest.prefix(count))
    }

    /// SQLite's format: seven bits a byte, the highest first, and all eight bits of a ninth byte.
    mutating func varint() -> Int64? {
        var value: UInt64 = 0
        for index in 0..<9 {
            guard let byte = rest.popFirst() else { return nil }
            if index == 8 { return Int64(bitPattern: value << 8 | UInt64(byte)) }
            value = value << 7 | UInt64(byte & 0x7F)
            if byte & 0x80 == 0 { break }
        }
        return Int64(bitPattern: value)
    }
}

/// A column of a row that was read without SQLite.
enum SalvagedValue: Equatable {
    case null
    case integer(Int64)
    case real(Double)
    case text([UInt8])
    case blob([UInt8])

    /// The columns of a record (sqlite.org/fileformat2.html#record_format); nil if `payload` is no record.
    static func record(_ payload: [UInt8]) -> [SalvagedValue]? {
        var header = SalvageReader(payload[...])
        guard let length = header.varint(), length > 0, length <= payload.count else { return nil }
        var kinds = SalvageReader(payload[..<Int(length)])
        _ = kinds.varint()
        var body = SalvageReader(payload[Int(length)...])
        var columns: [SalvagedValue] = []
        while !kinds.isAtEnd {
            // No table of ours has as many columns: these bytes only look like a record.
            guard columns.count < 256, let kind = kinds.varint(), let value = value(kind, &body) else { return nil }
            columns.append(value)
        }
        return body.isAtEnd ? columns : nil
    }

    private static func value(_ kind: Int64, _ body: inout SalvageReader) -> SalvagedValue? {
        func integer(_ count: Int) -> Int64? {
            body.bytes(count).map { bytes in
                bytes.reduce(Int64(Int8(bitPattern: bytes[0]) < 0 ? -1 : 0)) { $0 << 8 | Int64($1) }
            }
        }
        return switch kind {
        case 0: .null
        case 1...4: integer(Int(kind)).map(SalvagedValue.integer)
        case 5: integer(6).map(SalvagedValue.integer)
        case 6: integer(8).map(SalvagedValue.integer)
        case 7: integer(8).map { .real(Double(bitPattern: UInt64(bitPattern: $0))) }
        case 8, 9: .integer(kind - 8)
        case 12...Int64(Salvage.longestRow) * 2 + 13:
            body.bytes(Int(kind - 12) / 2).map { kind & 1 == 0 ? .blob($0) : .text($0) }
        default: nil
        }
    }
}

extension SalvagedValue: SQLiteValue {
    init(_ row: OpaquePointer, _ column: Int32) {
        switch sqlite3_column_type(row, column) {
        case SQLITE_NULL: self = .null
        case SQLITE_INTEGER: self = .integer(Int64(row, column))
        case SQLITE_FLOAT: self = .real(sqlite3_column_double(row, column))
        case SQLITE_TEXT: self = .text([UInt8](row, column))
        default: self = .blob([UInt8](row, column))
        }
    }

    func bind(_ statement: OpaquePointer, _ parameter: Int32) -> Int32 {
        switch self {
        case .null: sqlite3_bind_null(statement, parameter)
        case .integer(let value): value.bind(statement, parameter)
        case .real(let value): sqlite3_bind_double(statement, parameter, value)
        // The bytes are bound as they are. Bytes that are no longer valid text are decoded when they are read.
        case .text(let bytes):
            bytes.isEmpty
                ? todoku_bind_text(statement, parameter, "", 0)
                : bytes.withUnsafeBufferPointer {
                    $0.withMemoryRebound(to: CChar.self) {
                        todoku_bind_text(statement, parameter, $0.baseAddress, Int32(clamping: $0.count))
                    }
                }
        case .blob(let bytes): bytes.bind(statement, parameter)
        }
    }
}
