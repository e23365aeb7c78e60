internal import DownloadModel
internal import Glibc

@testable internal import DownloadStore

/// Rows of the tables `download`, `course`, `setting` and `asset`, each column with any value of any of SQLite's types.
///
/// The tables are made without types: ours are STRICT, but a file that claims to be ours need not be.
func fuzzRows(_ bytes: [UInt8]) {
    var tape = Tape(bytes)
    do {
        try store.database.execute("DELETE FROM download; DELETE FROM course; DELETE FROM setting; DELETE FROM asset")
        let count = 1 + tape.choice(3)
        for number in 1...count { try insert(&tape, number) }
        for key in ["next-number", "max-active", "max-per-host", "speed-limit", "default-directory", "paused"] where tape.flag() {
            let statement = try store.database.prepare("INSERT INTO setting (key, value) VALUES (?, ?)")
            try statement.bind(key, at: 0)
            try bind(&tape, to: statement, at: 1)
            try statement.eachRow { _ in }
        }
        for number in 0..<tape.choice(3) { try insertAsset(&tape, number) }
        let first = try load()
        check(first.records.count == count, "\(first.records.count) of \(count) rows")
        check(try load() == first, "read twice, it differs")
        for record in first.records {
            if case .failed(let failure) = record.state, failure.name == .storage { check(record.endedAt != nil, "no end: \(record)") }
            check(record.options.headers.allSatisfy { !$0.value.contains("\n") }, "\(record.options.headers)")
            _ = PartNames().name(of: record.number)
            // What a service says of every record.
            _ = (try? DownloadURL(record.url))?.redacted
        }
        for asset in first.queue.assets { checkAsset(asset) }
        // No number is given twice, unless it is one that we never give.
        for record in first.records where record.number.value <= UInt64(Int64.max) / 2 {
            check(first.nextNumber > record.number, "the next number is \(first.nextNumber), and there is \(record.number)")
        }
        check(first.nextNumber.value < UInt64.max / 2, "the numbers are at their end: \(first.nextNumber)")
        // Written by us, they are read as the same.
        try store.database.execute("DELETE FROM download; DELETE FROM course; DELETE FROM asset")
        let changes: [StoreChange] = first.records.map { .put($0) } + first.queue.assets.map { .putAsset($0) }
        try store.session.commit([changes], nextNumber: first.nextNumber)
        let again = try load()
        check(again.queue.assets == first.queue.assets, "\(again.queue.assets)\nfor\n\(first.queue.assets)")
        check(Set(again.records.map(\.number)) == Set(first.records.map(\.number)), "\(again.records) for \(first.records)")
        if Set(first.records.map(\.number)).count == count {
            check(again.records.sorted(by: number) == first.records.sorted(by: number), "\(again.records)\nfor\n\(first.records)")
        }
    } catch { check(false, "\(error)") }
}

private let now = WallTime(microseconds: 1_800_000_000_000_000)

/// What one reads of it.
private struct Loaded: Equatable {
    var queue = StoredQueue()
    var records: [DownloadRecord] = []
    var nextNumber = DownloadNumber(1)
}

private func load() throws -> Loaded {
    var loaded = Loaded()
    loaded.nextNumber = try store.session.load(now: now) { part in
        switch part {
        case .queue(let queue): loaded.queue = queue
        case .records(let records): loaded.records += records
        }
    }
    return loaded
}

private func number(_ a: DownloadRecord, _ b: DownloadRecord) -> Bool { a.number < b.number }

private func insert(_ tape: inout Tape, _ number: Int) throws {
    // Plain values for columns that the tape does not choose, so that a short input already makes a readable row.
    try insert(&tape, number, "download", Column.self, [(.state, "queued"), (.url, "http://h/a"), (.directory, "/home"), (.options, "")])
    if tape.flag() { try insert(&tape, number, "course", CourseColumn.self, []) }
}

private func insert<C: TableColumn>(_ tape: inout Tape, _ number: Int, _ table: String, _: C.Type, _ plain: [(C, String)]) throws {
    let statement = try store.database.prepare("INSERT INTO \(table) (\(C.names)) VALUES (\(C.parameters))")
    statement.clear()
    try statement.bind(Int64(number), at: 0)
    for (column, text) in plain { try statement.bind(text, at: column.rawValue) }
    try bindSome(&tape, to: statement, C.self)
}

private func insertAsset(_ tape: inout Tape, _ number: Int) throws {
    let statement = try store.database.prepare(AssetRecord.insert)
    statement.clear()
    let digest = "sha256:" + String(repeating: "0", count: 64)
    let plain: [(AssetColumn, String)] = [
        (.app, "org.example.App"), (.name, "asset\(number)"), (.manifestUrl, "http://h/m.json"), (.directory, "/home"), (.options, ""),
        (.updates, "daily"), (.installedVersion, "1"), (.installedFolder, "version-1"), (.pendingFolder, "version-2"),
        (.pendingStep, "extracting"), (.pendingVersion, "2"), (.pendingUrl, "http://h/2"), (.pendingDigest, digest),
        (.pendingMirrors, "http://i/2\nhttp://j/2"), (.removals, "keep version-1\ndelete version-3 7\n"),
    ]
    for (column, text) in plain { try statement.bind(text, at: column.rawValue) }
    try bindSome(&tape, to: statement, AssetColumn.self)
}

/// What the service relies on in a row of an asset.
private func checkAsset(_ asset: AssetRecord) {
    check(asset.options.app == asset.key.app && asset.options.checksum == nil, "\(asset.options)")
    check(asset.directory.hasPrefix("/"), asset.directory)
    check(asset.folders.allSatisfy(AssetRecord.isFolder), "\(asset.folders)")
    check(!asset.isRollingBack || asset.previous != nil, "a rollback to nothing")
    if let pending = asset.pending {
        check(pending.manifest.sha256.algorithm == .sha256, "\(pending.manifest)")
        _ = pending.manifest.neededRoom
        _ = asset.isNewer(pending.manifest, forces: false)
    }
}

private func bindSome<C: TableColumn>(_ tape: inout Tape, to statement: borrowing Statement, _: C.Type) throws {
    let columns = Array(C.allCases)
    for _ in 0..<tape.choice(64) {
        let column = columns[tape.choice(columns.count)].rawValue
        switch tape.choice(3) {
        case 0: try bind(&tape, to: statement, at: column)
        case 1: try statement.bind(words[tape.choice(words.count)], at: column)
        default: try statement.bind(options[tape.choice(options.count)] + words[tape.choice(words.count)] + "\n", at: column)
        }
    }
    try statement.eachRow { _ in }
}

/// The beginnings of lines of the column `options`.
private let options = [
    "app=", "if-exists=", "header=", "checksum=", "size=", "start=", "priority=", "deadline=", "metadata=", "desktop-id=", "title=\\",
    "later=",
]

private func bind(_ tape: inout Tape, to statement: borrowing Statement, at index: Int32) throws {
    switch tape.choice(6) {
    case 0: try statement.bind(Int64?.none, at: index)
    case 1: try statement.bind(tape.number(Int64.self), at: index)
    case 2: try statement.bind([Int64.min, -1, 0, 1, Int64.max - 1, .max][tape.choice(6)], at: index)
    case 3: try statement.bind(tape.bytes(), at: index)
    case 4: try statement.bind(String(decoding: tape.bytes(), as: UTF8.self), at: index)
    default: try statement.bind(String(tape.number(UInt64.self)), at: index)
    }
}

/// What the columns of words hold, and what is nearly so.
private let words: [String] =
    ["active", "paused", "verifying", "committing", "finished", "failed", "cancelled", "waiting", "A: b\r\n", "A: b\r\nC:\r\n", "A"]
    + WaitReason.allCases.map(\.rawValue) + ErrorName.allCases.map(\.rawValue) + ExistingFilePolicy.allCases.map(\.rawValue)
    + ["sha256:" + String(repeating: "0", count: 64), "md5:0", "\"tag\"", "18446744073709551615", "9223372036854775807", "-1", ""]
    + [
        "version-1", "version-20", "version-1.archive", "../version-1", "keep version-1", "delete version-1 18446744073709551615",
        "delete x",
    ]
    + AssetUpdatePolicy.allCases.map(\.rawValue) + PendingUpdate.Step.allCases.map(\.rawValue)

/// One database below $TMPDIR, which `meson-helpers/fuzz` makes in memory's file system and removes.
private nonisolated(unsafe) let store: FuzzedStore = {  // libFuzzer has one thread
    do { return try FuzzedStore() } catch { preconditionFailure("\(error)") }
}()

private final class FuzzedStore {
    let session: Session
    let database: Database

    init() throws {
        var template = Array("\(getenv("TMPDIR").map { String(cString: $0) } ?? "/tmp")/rows.XXXXXX".utf8CString)
        guard mkdtemp(&template) != nil else { preconditionFailure("mkdtemp: \(errno)") }
        let folder = StoreFolder(path: String(decoding: template.dropLast().map { UInt8(bitPattern: $0) }, as: UTF8.self))
        try folder.make()
        session = try Session(folder, try folder.makeDatabase(), first: DownloadNumber(1), wait: .seconds(1), mostPages: 1 << 20)
        database = try Database(folder.database, flags: 2)
        try database.execute(
            """
            PRAGMA synchronous = OFF; BEGIN; DROP TABLE download; DROP TABLE course; DROP TABLE setting; DROP TABLE asset;
            CREATE TABLE download (\(Column.names)); CREATE TABLE asset (\(AssetColumn.names), PRIMARY KEY (app, name));
            CREATE TABLE course (\(CourseColumn.names));
            CREATE TABLE setting (key PRIMARY KEY, value); COMMIT
            """)
    }
}
