internal import DownloadModel
internal import Glibc
internal import TestSupport
internal import Testing

@testable internal import DownloadStore

private let pageSize = 4096

private func record(_ number: UInt64) -> DownloadRecord { number % 3 == 0 ? fullRecord(number) : plainRecord(number) }

/// The numbers of a table's rows that SQLite itself can still find, one query for each row.
private func readable(_ folder: String, _ table: String, _ numbers: ClosedRange<UInt64>) -> Set<UInt64> {
    var found: Set<UInt64> = []
    guard let database = try? Database("file:\(folder)/todoku.db?immutable=1", flags: 1 | 0x40) else { return [] }
    guard let statement = try? database.prepare("SELECT * FROM \(table) WHERE number = ?") else { return [] }
    for number in numbers {
        guard (try? statement.bind(number, at: 0)) != nil else { continue }
        try? statement.eachRow { _ in found.insert(number) }
    }
    return found
}

@Suite struct `A damaged database` {
    private let folder = TemporaryFolder()
    private let count: UInt64 = 400

    private func damaged(by damage: (inout [UInt8], inout SeededRandom) -> Void, seed: UInt64, in path: String) async throws {
        var bytes = try #require(readFile(folder("whole.db")))
        var generator = SeededRandom(seed)
        damage(&bytes, &generator)
        writeFile("\(path)/todoku.db", bytes, mode: 0o600)
    }

    private func makeWhole() async throws {
        let made = folder.makeFolder("made")
        try await withStore(made) { store, _ in
            var settings = Settings()
            settings.maxActive = 9
            let changes = (1...count).map { StoreChange.put(record($0)) }
            try await store.commit(changes + [.set(settings)], nextNumber: DownloadNumber(count + 1))
        }
        writeFile(folder("whole.db"), try #require(readFile("\(made)/todoku.db")))
    }

    @Test func `gives back every row that can be read, wherever pages are destroyed`() async throws {
        try await makeWhole()
        var (setAside, all): (Int, Int) = (0, 0)
        for seed in UInt64(1)...50 {
            let path = folder.makeFolder("\(seed)")
            try await damaged(
                by: { bytes, generator in
                    for _ in 0..<Int.random(in: 1...3, using: &generator) {
                        let page = Int.random(in: 0..<bytes.count / pageSize, using: &generator) * pageSize
                        let isZero = Bool.random(using: &generator)
                        for index in page..<page + pageSize { bytes[index] = isZero ? 0 : .random(in: 0...255, using: &generator) }
                    }
                }, seed: seed, in: path)
            let (downloads, courses) = (readable(path, "download", 1...count), readable(path, "course", 1...count))
            let before = readFile("\(path)/todoku.db")
            let state = try await reopened(path)
            let numbers = Set(state.records.map(\.number.value))
            #expect(
                numbers.isSuperset(of: downloads), "seed \(seed): \(downloads.subtracting(numbers).count) rows that SELECT reads are gone")
            let found = Dictionary(uniqueKeysWithValues: state.records.map { ($0.number.value, $0) })
            for number in downloads where number % 3 != 0 || courses.contains(number) {
                #expect(found[number] == record(number), "seed \(seed)")
            }
            #expect(state.nextNumber.value > count, "seed \(seed)")
            guard let aside = state.setAside else {
                // The damage hit bytes that are never read.
                #expect(numbers.count == Int(count), "seed \(seed): loss is not said")
                continue
            }
            #expect(readFile(aside) == before, "seed \(seed)")
            #expect(state.salvaged?.mayHaveLost ?? true && Int(state.salvaged?.downloads ?? 0) == numbers.count, "seed \(seed)")
            // No number of a possibly lost download is assigned again.
            #expect(state.nextNumber.value > 1_000_000_000 && listFolder(path).count == 4, "seed \(seed): \(listFolder(path))")
            setAside += 1
            all += numbers.count
            #expect(
                try await reopened(path).records.map(\.number) == state.records.map(\.number), "seed \(seed): the new database is as good")
        }
        #expect(setAside > 25 && all > setAside * 200, "\(setAside) set aside, \(all) rows in all")
    }

    @Test func `gives back rows as long as options can make them`() async throws {
        let path = folder.makeFolder("long")
        var (posting, pieced) = (plainRecord(1), plainRecord(2))
        posting.options.postData = [UInt8](repeating: 0xA5, count: Limits.postBytes)
        posting.options.metadata = [UInt8](repeating: 7, count: Limits.metadataBytes)
        posting.options.headers = [HeaderField(name: "X-A", value: String(repeating: "\\", count: Limits.headerBytes - 7))]
        pieced.options.size = ByteCount(Limits.pieceHashBytes / 16)
        pieced.options.pieceHashes = PieceHashes(.md5, length: 1, digests: [UInt8](repeating: 1, count: Limits.pieceHashBytes))
        try await withStore(path) { store, _ in
            try await store.commit([.put(posting), .put(pieced)], nextNumber: DownloadNumber(3))
        }
        var bytes = try #require(readFile("\(path)/todoku.db"))
        // The first page has the names of the tables, behind the header of 100 bytes.
        for index in 100..<pageSize { bytes[index] = 0 }
        writeFile("\(path)/todoku.db", bytes, mode: 0o600)
        let state = try await reopened(path)
        #expect(state.records == [posting, pieced] && state.salvaged?.downloads == 2)
    }

    @Test func `stays in place until its rows can be saved`() async throws {
        try await makeWhole()
        let path = folder.makeFolder("full")
        // The first page has the names of the tables, behind the header of 100 bytes.
        try await damaged(by: { bytes, _ in for index in 100..<pageSize { bytes[index] = 0 } }, seed: 1, in: path)
        let before = readFile("\(path)/todoku.db")
        // In place of a disk that has no room for another file.
        mkdir("\(path)/todoku.db.salvage", 0o700)
        let error = await storeError { _ = try await reopened(path) }
        #expect(error?.reason == .storage && error?.message.contains("todoku.db.salvage") == true, "\(error?.message ?? "no error")")
        #expect(readFile("\(path)/todoku.db") == before && !listFolder(path).contains { $0.contains("corrupt") }, "\(listFolder(path))")
        rmdir("\(path)/todoku.db.salvage")
        #expect(try await reopened(path).records.count == Int(count))
    }

    @Test func `gives back its remaining rows when it was cut`() async throws {
        try await makeWhole()
        let path = folder.makeFolder("cut")
        try await damaged(by: { bytes, _ in bytes.removeLast(bytes.count / 2 / pageSize * pageSize) }, seed: 1, in: path)
        let state = try await reopened(path)
        #expect(state.records.count > 50 && state.salvaged?.mayHaveLost == true)
    }

    @Test func `of any bytes ends no process`() async throws {
        try await makeWhole()
        for seed in UInt64(1)...50 {
            let path = folder.makeFolder("\(seed)")
            try await damaged(
                by: { bytes, generator in
                    // Damage the heads of pages and cells, which contain lengths and numbers.
                    for _ in 0..<200 {
                        let page = Int.random(in: 0..<bytes.count / pageSize, using: &generator) * pageSize
                        let offset =
                            Bool.random(using: &generator)
                            ? Int.random(in: 0..<64, using: &generator) : Int.random(in: 0..<pageSize, using: &generator)
                        bytes[page + offset] = [0, 0x0A, 0x0D, 0x7F, 0x80, 0xFF, .random(in: 0...255, using: &generator)].randomElement(
                            using: &generator)!
                    }
                }, seed: seed, in: path)
            let error = await storeError { _ = try await reopened(path) }
            #expect(error == nil || error?.reason == .newerVersion, "seed \(seed): \(String(describing: error))")
        }
    }

    /// The process was killed between the two renames.
    @Test func `whose place was not taken yet by what was read is set aside at the next start`() async throws {
        let path = folder.makeFolder("state")
        try await withStore(path) { store, _ in try await store.commit([.put(record(7))], nextNumber: DownloadNumber(8)) }
        for isSetAside in [false, true] {
            #expect(rename("\(path)/todoku.db", "\(path)/todoku.db.salvaged") == 0)
            if !isSetAside { writeFile("\(path)/todoku.db", patternBytes(9000), mode: 0o600) }
            writeFile("\(path)/todoku.db.salvage", [1, 2, 3])
            #expect(Store.hasPending(folder: path))
            let state = try await reopened(path)
            #expect(state.records == [record(7)] && state.setAside != nil)
            #expect(state.salvaged == Salvaged(downloads: 1, mayHaveLost: true))
            #expect(!listFolder(path).contains { $0.contains("salvage") })
        }
    }

    /// The process was killed before it had recorded which database it had set aside: after the second rename, or between the two renames.
    @Test(arguments: [true, false]) func `that was set aside is named by every later start`(isReplaced: Bool) async throws {
        try await makeWhole()
        let path = folder.makeFolder("state")
        try await damaged(by: { _, _ in }, seed: 1, in: path)
        let salvaged = try #require(try StoreFolder(path: path).salvage(afterLoss: 1, isDamaged: true))
        let aside = try #require(try StoreFolder(path: path).setAside(at: time(nil)))
        if isReplaced { #expect(rename("\(path)/todoku.db.salvaged", "\(path)/todoku.db") == 0) }
        for _ in 0..<2 {
            let state = try await reopened(path)
            #expect(state.records.count == Int(count) && state.setAside == aside && state.salvaged == salvaged)
        }
    }

    /// The columns of a row alone identify its table.
    @Test func `has tables whose rows identify them, in each version`() throws {
        for version in 1...Schema.version {
            let tables = try SalvagedRows.tables(of: version)
            var shapes: Set = [SalvagedRows.Shape(hasRowid: true, columns: 5), SalvagedRows.Shape(hasRowid: false, columns: 5)]
            for table in tables {
                let shape = SalvagedRows.Shape(hasRowid: table.rowidColumn != nil, columns: table.columns.count)
                #expect(shapes.insert(shape).inserted, "version \(version): \(table.name) looks like another")
            }
            let known = try SalvagedRows.shapes(of: version)
            #expect(Set(known.values.map(\.name)) == Set(tables.map(\.name)))
        }
    }
}

@Suite struct `A damaged log` {
    private let folder = TemporaryFolder()
    private let count: UInt64 = 200

    /// Makes the files that kill -9 leaves after 200 commits of one download each.
    private func makeKilled() async throws {
        let made = folder.makeFolder("made")
        let store = Store(folder: made)
        _ = try await store.open()
        for number in 1...count { try await store.commit([.put(record(number))], nextNumber: DownloadNumber(number + 1)) }
        for name in ["todoku.db", "todoku.db-wal", "todoku.lock"] { writeFile(folder(name), try #require(readFile("\(made)/\(name)"))) }
        await store.close()
    }

    private func copy(_ seed: UInt64, hasMark: Bool, _ damage: (inout [UInt8]) -> Void) throws -> String {
        let path = folder.makeFolder("\(seed)")
        var log = try #require(readFile(folder("todoku.db-wal")))
        damage(&log)
        writeFile("\(path)/todoku.db", try #require(readFile(folder("todoku.db"))), mode: 0o600)
        writeFile("\(path)/todoku.db-wal", log, mode: 0o600)
        if hasMark { writeFile("\(path)/todoku.lock", try #require(readFile(folder("todoku.lock"))), mode: 0o600) }
        return path
    }

    /// With the mark of the log's length, each loss is detected. Without it (lost with the power), each loss but that of the last commit
    /// is.
    @Test(arguments: [true, false]) func `by one bit is always reported if rows are lost`(hasMark: Bool) async throws {
        try await makeKilled()
        let length = try #require(readFile(folder("todoku.db-wal"))).count
        #expect(length > 300 * (pageSize + 24))
        var (salvaged, least): (Int, Int) = (0, Int(count))
        for seed in UInt64(1)...40 {
            var generator = SeededRandom(seed)
            // Without the mark, no bit is in the last frame, where the loss could not be detected. Every tenth bit is in the header.
            let bit =
                seed % 10 == 0
                ? Int.random(in: 0..<32 * 8, using: &generator)
                : Int.random(in: 0..<(hasMark ? length : length - 8 * (pageSize + 24)) * 8, using: &generator)
            let path = try copy(seed, hasMark: hasMark) { $0[bit / 8] ^= 1 << (bit % 8) }
            let state = try await reopened(path)
            let numbers = Set(state.records.map(\.number.value))
            least = min(least, numbers.count)
            for record in state.records { #expect(record.url == plainRecord(record.number.value).url) }
            if state.setAside != nil { salvaged += 1 }
            #expect(
                numbers.count == Int(count) || state.salvaged?.mayHaveLost == true, "seed \(seed), bit \(bit): \(numbers.count) are left")
            #expect(state.nextNumber.value > count, "seed \(seed), bit \(bit)")
        }
        #expect(salvaged > 32 && least > 150, "\(salvaged) salvaged; \(least) at the least")
    }

    @Test func `in its last commit is known by the mark, and is pending work`() async throws {
        try await makeKilled()
        let path = try copy(1, hasMark: true) { $0[$0.count - 100] ^= 4 }
        #expect(Store.hasPending(folder: path))
        let state = try await reopened(path)
        #expect(state.setAside != nil && state.salvaged?.mayHaveLost == true && state.records.count >= 190)
        // Compare with a commit torn by a power cut, which has no mark.
        let torn = try copy(2, hasMark: false) { $0[$0.count - 100] ^= 4 }
        #expect(try await reopened(torn).setAside == nil)
    }

    /// A program that reads the log keeps it from being emptied. Afterwards SQLite begins the log again in the same file, with other salts.
    @Test func `in its last commit is known by the mark, also after another program has read the database`() async throws {
        let (path, killed) = (folder.makeFolder("read"), folder.makeFolder("killed"))
        let store = Store(folder: path)
        _ = try await store.open()
        for number in 1...count { try await store.commit([.put(record(number))], nextNumber: DownloadNumber(number + 1)) }
        do {
            let reader = try Database("\(path)/todoku.db", flags: 2)
            try reader.execute("BEGIN; SELECT count(*) FROM download")
            await store.tidy()
            try reader.execute("ROLLBACK")
        }
        let before = try #require(StoreFolder(path: path).mark)
        try await store.commit([.put(record(count + 1))], nextNumber: DownloadNumber(count + 2))
        let frames = try #require(StoreFolder(path: path).mark?.frames)
        #expect(frames < before.frames, "SQLite has not begun the log again")
        for name in ["todoku.db", "todoku.db-wal", "todoku.lock"] {
            writeFile("\(killed)/\(name)", try #require(readFile("\(path)/\(name)")), mode: 0o600)
        }
        await store.close()
        var log = try #require(readFile("\(killed)/todoku.db-wal"))
        log[WriteAheadLog.offset(ofFrame: Int(frames) - 1, pageSize: pageSize) + 100] ^= 4
        writeFile("\(killed)/todoku.db-wal", log)
        let state = try await reopened(killed)
        #expect(state.setAside != nil && state.salvaged?.mayHaveLost == true && state.records.count >= 190)
    }

    @Test func `that was cut before its acknowledged end is detected by the mark`() async throws {
        try await makeKilled()
        let path = try copy(1, hasMark: true) { $0.removeLast($0.count / 2) }
        let state = try await reopened(path)
        #expect(state.setAside != nil && state.salvaged?.mayHaveLost == true && state.records.count > 80)
    }

    @Test func `is not reported if the log is whole or empty`() async throws {
        try await makeKilled()
        let path = try copy(1, hasMark: true) { _ in }
        let state = try await reopened(path)
        #expect(state.records == (1...count).map(record) && state.setAside == nil)
        // The process was killed after a checkpoint, before it updated the mark.
        let empty = try copy(2, hasMark: true) { $0 = [] }
        #expect(try await reopened(empty).setAside == nil)
    }

    @Test func `costs little, because the log is emptied in a quiet moment`() async throws {
        let path = folder.makeFolder("state")
        try await withStore(path) { store, _ in
            var longest = 0
            for number in 1...count {
                try await store.commit([.put(record(number))], nextNumber: DownloadNumber(number + 1))
                longest = max(longest, readFile("\(path)/todoku.db-wal")?.count ?? 0)
                await store.tidy()
            }
            #expect(longest > 0 && longest < 100 * (pageSize + 24), "\(longest)")
        }
        #expect(try await reopened(path).records.count == Int(count))
    }
}

@Suite struct `The pages of a damaged database` {
    @Test(arguments: [(0, 1), (1, 1), (4096, 1), (4097, 2), (.max - 1, 4 << 20), (.max, 4 << 20)] as [(Int, UInt32)])
    func `are counted up to the end of the type, and read up to a bound`(size: Int, last: UInt32) {
        #expect(Salvage.lastPage(ofSize: size, pageSize: pageSize) == last)
    }
}
