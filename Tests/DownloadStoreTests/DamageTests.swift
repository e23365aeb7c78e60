internal import DownloadModel
internal import Glibc
internal import Scheduling
internal import TestSupport
internal import Testing

@testable internal import DownloadStore

/// Runs `sql` on the database in `folder`, behind the store's back. 2: SQLITE_OPEN_READWRITE.
func tamper(_ folder: String, _ sql: String) throws {
    try Database(StoreFolder(path: folder).database, flags: 2).execute(sql)
}

private func copyFile(_ from: String, _ to: String, dropping end: Int = 0) throws {
    writeFile(to, try #require(readFile(from)).dropLast(end))
}

private func save(_ folder: String, _ records: [DownloadRecord]) async throws {
    try await withStore(folder) { store, _ in
        try await store.commit(records.map { .put($0) }, nextNumber: DownloadNumber(UInt64(records.count) + 1))
    }
}

/// Makes each commit that adds download 5 fail at its very end.
private func failEnds(_ folder: String) throws {
    try tamper(
        folder,
        """
        CREATE TABLE held (number INTEGER REFERENCES download DEFERRABLE INITIALLY DEFERRED);
        CREATE TRIGGER hold AFTER INSERT ON download WHEN NEW.number = 5 BEGIN INSERT INTO held VALUES (-1); END
        """)
}

@Suite struct `A commit` {
    private let folder = TemporaryFolder()

    @Test func `is on disk when it returns, though the process ends there`() async throws {
        let copy = TemporaryFolder()
        try await withStore(folder.path) { store, _ in
            try await store.commit([.put(fullRecord(1))], nextNumber: DownloadNumber(2))
            try await store.commit([.put(plainRecord(2)), .put(plainRecord(3))], nextNumber: DownloadNumber(4))
            // The files are now as kill -9 leaves them.
            for name in ["todoku.db", "todoku.db-wal"] { try copyFile(folder(name), copy(name)) }
            #expect(Store.hasPending(folder: folder.path))
        }
        let state = try await reopened(copy.path)
        #expect(state.records == [fullRecord(1), plainRecord(2), plainRecord(3)])
        #expect(state.nextNumber == DownloadNumber(4))
        #expect(state.setAside == nil)
    }

    @Test(arguments: [1, 100, 4096]) func `that a power cut interrupted has no effect at all`(lost: Int) async throws {
        let copy = TemporaryFolder()
        let first = fullRecord(1)
        try await withStore(folder.path) { store, _ in
            try await store.commit([.put(first)], nextNumber: DownloadNumber(2))
            try await store.commit([.remove(first.number)] + (2...40).map { .put(fullRecord($0)) }, nextNumber: DownloadNumber(41))
            try copyFile(folder("todoku.db"), copy("todoku.db"))
            try copyFile(folder("todoku.db-wal"), copy("todoku.db-wal"), dropping: lost)
        }
        let state = try await reopened(copy.path)
        #expect(state.records == [first])
        #expect(state.nextNumber == DownloadNumber(2))
        #expect(state.setAside == nil)
    }

    @Test func `without room changes nothing, reports that, and the next one works`() async throws {
        let store = Store(folder: folder.path, mostPages: 40, wait: .zero)
        _ = try await store.open()
        try await store.commit([.put(plainRecord(1))], nextNumber: DownloadNumber(2))
        var large = plainRecord(3)
        large.options.metadata = [UInt8](repeating: 7, count: 300_000)
        let error = await storeError {
            try await store.commit([.put(plainRecord(2)), .remove(DownloadNumber(1)), .put(large)], nextNumber: DownloadNumber(4))
        }
        #expect(error?.reason == .diskFull)
        #expect(error?.message == "There is not enough room to save the queue in \(folder("todoku.db")); free some and try again.")
        try await store.commit([.put(plainRecord(5))], nextNumber: DownloadNumber(3))
        await store.close()
        let state = try await reopened(folder.path)
        #expect(state.records == [plainRecord(1), plainRecord(5)])
        #expect(state.nextNumber == DownloadNumber(6))
    }

    @Test func `that fails half-way changes nothing, and the next one works`() async throws {
        try await save(folder.path, [plainRecord(1)])
        // The trigger fails only the statement: the transaction stays open.
        try tamper(
            folder.path,
            "CREATE TRIGGER refuse BEFORE INSERT ON download WHEN NEW.number = 3 BEGIN SELECT RAISE(ABORT, 'refused by a test'); END")
        try await withStore(folder.path) { store, _ in
            let error = await storeError {
                try await store.commit(
                    [.remove(DownloadNumber(1)), .put(plainRecord(2)), .put(plainRecord(3))], nextNumber: DownloadNumber(9))
            }
            #expect(error == StoreError(.storage, "The database \(folder("todoku.db")) could not be used: refused by a test."))
            try await store.commit([.put(plainRecord(4))], nextNumber: DownloadNumber(5))
        }
        let state = try await reopened(folder.path)
        #expect(state.records == [plainRecord(1), plainRecord(4)])
        #expect(state.nextNumber == DownloadNumber(5))
    }

    /// After a failed flush, SQLite may find the rows of the commit in the log when it opens the database again. Here, the end of the
    /// transaction fails, and another program adds the rows.
    @Test(arguments: [false, true])
    func `that fails at its very end leaves no refused row, even if its rows are on disk`(isLast: Bool) async throws {
        // The batch has its numbers, 2 and 3, before these rows are saved.
        try await withStore(folder.path) { store, _ in
            try await store.commit([.put(plainRecord(1)), .put(plainRecord(4))], nextNumber: DownloadNumber(5))
        }
        let batch = BatchRecord(number: BatchNumber(2), count: 1)
        var member = plainRecord(3)
        member.batch = batch.number
        try failEnds(folder.path)
        try await withStore(folder.path) { [member] store, _ in
            let error = await storeError {
                try await store.commit([.addBatch(batch, [member]), .put(plainRecord(5))], nextNumber: DownloadNumber(6))
            }
            #expect(error?.reason == .storage)
            try tamper(
                folder.path,
                """
                DROP TRIGGER hold; DROP TABLE held; CREATE TEMP TABLE ghost AS SELECT * FROM download WHERE number = 1;
                UPDATE ghost SET number = 3; INSERT INTO download SELECT * FROM ghost;
                UPDATE ghost SET number = 5; INSERT INTO download SELECT * FROM ghost;
                INSERT INTO batch (number, count, app, directory, notify, sound, removed_finished, removed_failed, removed_cancelled,
                    removed_bytes) VALUES (2, 1, '', '', 'background', '', 0, 0, 0, 0)
                """)
            if !isLast { try await store.commit([.put(plainRecord(6))], nextNumber: DownloadNumber(7)) }
        }
        let state = try await reopened(folder.path)
        let expected: [UInt64] = isLast ? [1, 4] : [1, 4, 6]
        #expect(state.records.map(\.number.value) == expected)
        #expect(state.batches == [])
    }

    @Test func `that fails at its very end takes no row of another commit with it`() async throws {
        try await save(folder.path, [plainRecord(1)])
        try failEnds(folder.path)
        // The batch has its numbers, 2 to 4, before the commit fails, and its rows afterwards.
        let batch = BatchRecord(number: BatchNumber(2), count: 2)
        let members = ([3, 4] as [UInt64]).map { number -> DownloadRecord in
            var member = plainRecord(number)
            member.batch = batch.number
            return member
        }
        try await withStore(folder.path) { store, _ in
            let error = await storeError {
                try await store.commit([.put(plainRecord(1, .paused)), .put(plainRecord(5))], nextNumber: DownloadNumber(6))
            }
            #expect(error?.reason == .storage)
            try await store.commit([.addBatch(batch, members), .put(plainRecord(6))], nextNumber: DownloadNumber(7))
            await store.tidy()
        }
        let state = try await reopened(folder.path)
        let expected = [plainRecord(1)] + members + [plainRecord(6)]
        #expect(state.records == expected)
        #expect(state.batches == [batch])
        #expect(state.nextNumber == DownloadNumber(7))
    }

    @Test func `is refused in time where another program holds the database`() async throws {
        let store = Store(folder: folder.path, mostPages: Store.mostPages, wait: .milliseconds(20))
        _ = try await store.open()
        do {
            let other = try Database(StoreFolder(path: folder.path).database, flags: 2)
            try other.execute("BEGIN IMMEDIATE")
            let error = await storeError { try await store.commit([.put(plainRecord(1))], nextNumber: DownloadNumber(2)) }
            #expect(error == StoreError(.inUse, "Another program holds the database \(folder("todoku.db")); close it and try again."))
            try other.execute("ROLLBACK")
        }
        try await store.commit([.put(plainRecord(1))], nextNumber: DownloadNumber(2))
        await store.close()
    }

    @Test func `is refused where the store is not open`() async throws {
        let store = Store(folder: folder.path)
        #expect(await storeError { try await store.commit([], nextNumber: DownloadNumber(1)) }?.reason == .notOpen)
        _ = try await store.open()
        await store.close()
        #expect(await storeError { try await store.commit([.put(plainRecord(1))], nextNumber: DownloadNumber(2)) }?.reason == .notOpen)
        #expect(try await store.open().records == [])
        await store.close()
    }
}

@Suite struct `The store's thread` {
    private let folder = TemporaryFolder()

    private var threads: Int {
        listFolder("/proc/self/task").count { readFile("/proc/self/task/\($0)/comm") == Array("todoku-store\n".utf8) }
    }

    @Test func `ends with the last reference`() async throws {
        var stores: [Store] = (1...100).map { Store(folder: folder("\($0)")) }
        for store in stores { _ = try await store.open() }
        #expect(threads >= 100)
        stores = []
        // Stores of other tests have threads, too.
        #expect(await eventually { threads < 100 })
        // A thread may take a while to end, and its folder is locked until then.
        for number in 1...100 {
            let store = Store(folder: folder("\(number)"), mostPages: Store.mostPages, wait: .seconds(60))
            _ = try await store.open()
            await store.close()
        }
    }
}

@Suite struct `The folder` {
    private let folder = TemporaryFolder()

    @Test func `belongs to one store at a time`() async throws {
        try await withStore(folder.path) { _, _ in
            let second = Store(folder: folder.path, mostPages: Store.mostPages, wait: .milliseconds(20))
            let error = await storeError { _ = try await second.open() }
            #expect(error?.reason == .inUse)
            #expect(error?.message == "Another Todoku uses the folder \(folder.path); end it and try again.")
        }
        // The folder is unlocked again, also after a store was dropped without `close`.
        var dropped: Store? = Store(folder: folder.path)
        _ = try await dropped?.open()
        dropped = nil
        // The dropped store's thread may take a while to end.
        let third = Store(folder: folder.path, mostPages: Store.mostPages, wait: .seconds(60))
        _ = try await third.open()
        await third.close()
    }

    @Test func `is waited for where its store is about to close`() async throws {
        // Long enough for a busy machine to close the first.
        let second = Store(folder: folder.path, mostPages: Store.mostPages, wait: .seconds(60))
        let first = Store(folder: folder.path)
        _ = try await first.open()
        async let opened = second.open()
        await first.close()
        #expect(try await opened.records == [])
        await second.close()
    }

    @Test func `that is impossible is a clear error`() async throws {
        writeFile(folder("file"), [1])
        let below = await storeError { _ = try await Store(folder: folder("file/below")).open() }
        #expect(below == StoreError(.storage, "Todoku cannot keep the queue in \(folder("file/below")): Not a directory."))
        let file = await storeError { _ = try await Store(folder: folder("file")).open() }
        #expect(file == StoreError(.storage, "Todoku cannot keep the queue in \(folder("file")): Not a directory."))
        #expect(await storeError { _ = try await Store(folder: "/proc/todoku").open() }?.reason == .storage)
    }
}

@Suite struct `A database` {
    private let folder = TemporaryFolder()

    private var before: DownloadNumber { DownloadNumber(UInt64(time(nil))) }

    private func expectFresh(_ since: DownloadNumber) async throws {
        let damaged = try #require(readFile(folder("todoku.db")))
        let (state, next) = try await withStore(folder.path) { store, state in
            try await store.commit([.put(plainRecord(state.nextNumber.value))], nextNumber: DownloadNumber(state.nextNumber.value + 1))
            return (state, state.nextNumber)
        }
        let aside = try #require(state.setAside)
        #expect(aside.hasPrefix(folder("todoku.db.corrupt-20")) && aside.count == folder("todoku.db.corrupt-YYYYMMDD-HHMMSS").count)
        #expect(readFile(aside) == damaged)
        #expect(permissions(aside) == 0o600)
        #expect(state.records == [])
        #expect(next >= since)
        // Later starts name it too, as long as the file exists.
        for _ in 0..<2 {
            let again = try await reopened(folder.path)
            #expect(again.setAside == aside && again.salvaged == state.salvaged ?? Salvaged(downloads: 0, mayHaveLost: true))
            #expect(again.records.map(\.number) == [next])
        }
        #expect(unlink(aside) == 0)
        let last = try await reopened(folder.path)
        #expect(last.setAside == nil && last.salvaged == nil && last.records.map(\.number) == [next])
    }

    @Test func `of garbage is set aside, and a new one started above all numbers`() async throws {
        writeFile(folder("todoku.db"), patternBytes(20_000), mode: 0o600)
        try await expectFresh(before)
    }

    @Test func `of another program is set aside`() async throws {
        writeFile(folder("todoku.db"), [])
        try tamper(folder.path, "CREATE TABLE other (x)")
        try await expectFresh(before)
    }

    @Test func `that is empty starts above all numbers, too`() async throws {
        let before = before
        writeFile(folder("todoku.db"), [])
        let state = try await reopened(folder.path)
        #expect(state.setAside == nil)
        #expect(state.nextNumber >= before)
        // This holds although nothing was committed.
        #expect(try await reopened(folder.path).nextNumber == state.nextNumber)
    }

    @Test func `that is set aside takes its log along, and does not replace an earlier one`() async throws {
        for content in [1, 2] as [UInt8] {
            for suffix in ["", "-wal", "-shm"] { writeFile(folder("todoku.db\(suffix)"), [content]) }
            let aside = try #require(try StoreFolder(path: folder.path).setAside(at: 1_700_000_000))
            #expect(aside == folder("todoku.db.corrupt-20231114-221320") + (content == 1 ? "" : "-2"))
            for suffix in ["", "-wal", "-shm"] { #expect(readFile(aside + suffix) == [content]) }
        }
        #expect(listFolder(folder.path).count == 6)
    }

    @Test func `that cannot be opened is set aside too`() async throws {
        try await save(folder.path, [plainRecord(1)])
        for suffix in ["", "-wal", "-shm"] { unlink(folder("todoku.db\(suffix)")) }
        #expect(mkdir(folder("todoku.db"), 0o700) == 0)
        let state = try await reopened(folder.path)
        #expect(state.records.isEmpty && state.setAside?.contains("corrupt-") == true)
        #expect(state.nextNumber.value > 1_000_000)
    }

    @Test func `that is removed or damaged while it is used is written again with all that is known`() async throws {
        for isSpoilt in [false, true] {
            let store = Store(folder: folder.path)
            _ = try await store.open()
            try await store.commit([.put(plainRecord(1))], nextNumber: DownloadNumber(2))
            if isSpoilt { writeFile(folder("other.db"), [1, 2, 3]) }
            #expect(isSpoilt ? rename(folder("other.db"), folder("todoku.db")) == 0 : unlink(folder("todoku.db")) == 0)
            let error = await storeError { try await store.commit([.put(plainRecord(2))], nextNumber: DownloadNumber(3)) }
            #expect(error?.reason == .damaged)
            let aside = try await store.startAnew([[.put(plainRecord(1))], [.put(plainRecord(2))]], nextNumber: DownloadNumber(3))
            #expect((aside != nil) == isSpoilt)
            try await store.commit([.put(plainRecord(3))], nextNumber: DownloadNumber(4))
            await store.close()
            let state = try await reopened(folder.path)
            #expect(state.records == [plainRecord(1), plainRecord(2), plainRecord(3)])
            #expect(state.setAside == aside && state.nextNumber == DownloadNumber(4))
            #expect(state.salvaged == (isSpoilt ? Salvaged(downloads: 0, mayHaveLost: false) : nil))
            for name in listFolder(folder.path) { unlink(folder(name)) }
        }
    }

    /// True: another file has replaced the database. False: the database was deleted.
    @Test(arguments: [false, true]) func `that is written again contains everything or is written once more`(isSpoilt: Bool) async throws {
        let store = Store(folder: folder.path, mostPages: 60, wait: .zero)
        _ = try await store.open()
        try await store.commit([.put(plainRecord(1)), .put(plainRecord(9))], nextNumber: DownloadNumber(10))
        let known = [StoreChange.put(plainRecord(1)), .put(plainRecord(2))]  // 9 has been removed
        if isSpoilt { writeFile(folder("other.db"), [1, 2, 3]) }
        #expect(isSpoilt ? rename(folder("other.db"), folder("todoku.db")) == 0 : unlink(folder("todoku.db")) == 0)
        #expect(await storeError { try await store.commit([known[1]], nextNumber: DownloadNumber(10)) }?.reason == .damaged)
        var large = plainRecord(3)
        large.options.metadata = [UInt8](repeating: 7, count: 300_000)
        let error = await storeError { _ = try await store.startAnew([known, [.put(large)]], nextNumber: DownloadNumber(10)) }
        #expect(error?.reason == .diskFull)
        // Otherwise the new database would hold only the next change.
        for _ in 0..<2 {
            #expect(await storeError { try await store.commit([.put(plainRecord(4))], nextNumber: DownloadNumber(10)) }?.reason == .damaged)
        }
        let aside = try await store.startAnew([known, [.put(plainRecord(4))]], nextNumber: DownloadNumber(10))
        #expect((aside != nil) == isSpoilt)
        let kept = listFolder(folder.path).filter { $0.contains("corrupt") && !$0.hasSuffix("-wal") && !$0.hasSuffix("-shm") }
        #expect(kept.count == (isSpoilt ? 1 : 0), "our own is not set aside")
        try await store.commit([.put(plainRecord(5))], nextNumber: DownloadNumber(10))
        await store.close()
        #expect(try await reopened(folder.path).records == [plainRecord(1), plainRecord(2), plainRecord(4), plainRecord(5)])
    }

    /// The process is killed after there was no room for the new database.
    @Test func `that is damaged while it is used keeps its place until the new one is complete`() async throws {
        let copy = TemporaryFolder()
        let known = [plainRecord(1), plainRecord(2)]
        let store = Store(folder: folder.path, mostPages: 60, wait: .zero)
        _ = try await store.open()
        try await store.commit(known.map { .put($0) }, nextNumber: DownloadNumber(3))
        var large = plainRecord(3)
        large.options.metadata = [UInt8](repeating: 7, count: 300_000)
        let rows = known.map { StoreChange.put($0) }
        let more = StoreChange.put(large)
        let error = await storeError { _ = try await store.startAnew([rows, [more]], nextNumber: DownloadNumber(4)) }
        #expect(error?.reason == .diskFull)
        #expect(!listFolder(folder.path).contains { $0.contains("corrupt") || $0.contains("salvage") }, "\(listFolder(folder.path))")
        for name in listFolder(folder.path) { try copyFile(folder(name), copy(name)) }
        // What a kill leaves while the new one is written.
        for suffix in ["", "-wal", "-shm"] { writeFile(copy("todoku.db.salvage\(suffix)"), [1]) }
        let killed = try await reopened(copy.path)
        #expect(killed.records == known && killed.setAside == nil && killed.nextNumber == DownloadNumber(3))
        #expect(!listFolder(copy.path).contains { $0.contains("salvage") }, "\(listFolder(copy.path))")
        let aside = try #require(try await store.startAnew([rows], nextNumber: DownloadNumber(4)))
        await store.close()
        let state = try await reopened(folder.path)
        #expect(state.records == known && state.setAside == aside && state.nextNumber == DownloadNumber(4))
        #expect(!listFolder(folder.path).contains { $0.contains("salvage") }, "\(listFolder(folder.path))")
    }

    @Test func `that was replaced while none was open is written again, too`() async throws {
        for isEmpty in [true, false] {
            let store = Store(folder: folder.path)
            _ = try await store.open()
            try await store.commit([.put(plainRecord(1))], nextNumber: DownloadNumber(2))
            try tamper(folder.path, "CREATE TRIGGER refuse BEFORE INSERT ON download BEGIN SELECT RAISE(ABORT, 'refused by a test'); END")
            #expect(await storeError { try await store.commit([.put(plainRecord(2))], nextNumber: DownloadNumber(3)) }?.reason == .storage)
            // A user may restore an older backup of the database.
            let backup = TemporaryFolder()
            if !isEmpty { try await save(backup.path, [plainRecord(7)]) }
            let inode = inode(of: folder("todoku.db"))
            for suffix in ["", "-wal", "-shm"] { unlink(folder("todoku.db\(suffix)")) }
            if !isEmpty { writeFile(folder("todoku.db"), try #require(readFile(backup("todoku.db"))), inode: inode) }
            #expect(await storeError { try await store.commit([.put(plainRecord(2))], nextNumber: DownloadNumber(3)) }?.reason == .damaged)
            let aside = try await store.startAnew([[.put(plainRecord(1))], [.put(plainRecord(2))]], nextNumber: DownloadNumber(3))
            #expect((aside != nil) != isEmpty)
            await store.close()
            #expect(try await reopened(folder.path).records == [plainRecord(1), plainRecord(2)])
            for name in listFolder(folder.path) { unlink(folder(name)) }
        }
    }

    @Test func `whose folder is gone is written again in a private folder, and the part files keep their names`() async throws {
        let path = folder("state/todoku")
        let store = Store(folder: path)
        let names = try await store.open { _ in }.partNames
        try await store.commit([.put(plainRecord(1))], nextNumber: DownloadNumber(2))
        for name in listFolder(path) { unlink("\(path)/\(name)") }
        #expect(rmdir(path) == 0 && rmdir(folder("state")) == 0)
        #expect(await storeError { try await store.commit([.put(plainRecord(2))], nextNumber: DownloadNumber(3)) }?.reason == .damaged)
        #expect(try await store.startAnew([[.put(plainRecord(1))], [.put(plainRecord(2))]], nextNumber: DownloadNumber(3)) == nil)
        let second = Store(folder: path, mostPages: Store.mostPages, wait: .milliseconds(20))
        #expect(await storeError { _ = try await second.open() }?.reason == .inUse)
        await store.close()
        #expect(fileExists("\(path)/segments"), "no written map could be made")
        let next = Store(folder: path)
        #expect(try await next.open { _ in }.partNames == names)
        await next.close()
        #expect(try await reopened(path).records == [plainRecord(1), plainRecord(2)])
    }

    @Test func `of version 1 is brought to this version, with all that it held`() async throws {
        writeFile(folder("todoku.db"), [])
        try tamper(folder.path, Schema.steps[0])
        try tamper(
            folder.path,
            """
            PRAGMA application_id = \(Schema.applicationID); PRAGMA user_version = 1;
            INSERT INTO setting (key, value) VALUES ('next-number', '3');
            INSERT INTO download (number, state, position, queued_at, started_at, attempts, retries_used, received, total, resume_written,
                resume_total, resume_entity_tag, resume_device, resume_inode, resume_mount, resume_boot, url, directory, file_name, app, token,
                wanted_directory, if_exists, headers, user_agent, password, checksum, size, max_size, start, priority, speed_limit, stall_timeout,
                retries, tag, notify, title, sound, show_progress, metadata)
            VALUES (1, 'active', 5, 6, 7, 2, 1, 99, 100, 98, 100, '"e"', 1, 2, 3, 'boot', 'http://h/a', '/d', 'a', 'org.example.App', 't',
                '/d', 'fail', 'X-A: 1' || char(13, 10) || 'X-B:  b\\' || char(13, 10), 'u\\' || char(10) || 'a', 'p=w',
                'sha256:\(String(repeating: "ab", count: 32))', 100, -1, 0, -3, 5, 1500000, 4, 'tag', 'always', '', '', 0, x'00ff');
            INSERT INTO download (number, state, wait_reason, wait_until, position, queued_at, attempts, retries_used, received, url, directory,
                app, if_exists, headers, start, priority, stall_timeout, retries, tag, notify, sound, show_progress, metadata)
            VALUES (2, 'waiting', 'retry', 77, 8, 9, 1, 1, 0, 'http://h/b', '/d', '', 'rename', '', 1, 0, 30000000, 10, '', 'background',
                'complete-download', 1, x'');
            """)
        var options = DownloadOptions()
        (options.app, options.token, options.directory, options.ifExists) = ("org.example.App", "t", "/d", .fail)
        options.headers = [HeaderField(name: "X-A", value: "1"), HeaderField(name: "X-B", value: " b\\")]
        (options.userAgent, options.password) = ("u\\\na", "p=w")
        options.checksum = Checksum(.sha256, digest: [UInt8](repeating: 0xAB, count: 32))
        (options.size, options.maxSize, options.start, options.priority, options.speedLimit) = (100, .max, false, -3, 5)
        (options.stallTimeout, options.retries, options.tag, options.notify) = (.milliseconds(1500), 4, "tag", .always)
        (options.title, options.sound, options.showProgress, options.metadata) = ("", "", false, [0, 255])
        var active = DownloadRecord(
            number: DownloadNumber(1), url: "http://h/a", options: options, directory: "/d", state: .active,
            queuedAt: WallTime(microseconds: 6), position: 5)
        (active.startedAt, active.attempts, active.retriesUsed) = (WallTime(microseconds: 7), 2, 1)
        (active.received, active.total, active.fileName, active.isSpliced) = (99, 100, "a", true)
        active.resume = ResumeData(
            written: 98, total: 100, validator: .entityTag("\"e\""), identity: FileIdentity(device: 1, inode: 2, mount: 3, boot: "boot"))
        var waiting = DownloadRecord(
            number: DownloadNumber(2), url: "http://h/b", options: DownloadOptions(), directory: "/d",
            state: .waiting(.retry, until: WallTime(microseconds: 77)), queuedAt: WallTime(microseconds: 9), position: 8)
        // The migration does not shorten a wait of the older program.
        (waiting.attempts, waiting.retriesUsed, waiting.retryAt) = (1, 1, WallTime(microseconds: 77))
        let state = try await reopened(folder.path)
        #expect(state.records == [active, waiting] && state.setAside == nil && state.nextNumber == DownloadNumber(3))
    }

    @Test func `of version 3 has all but the birth of its files`() async throws {
        try await save(folder.path, [fullRecord(1), plainRecord(2)])
        try tamper(
            folder.path,
            """
            ALTER TABLE course DROP COLUMN resume_born; ALTER TABLE copy DROP COLUMN born; ALTER TABLE course DROP COLUMN source;
            ALTER TABLE course DROP COLUMN failure_origin; ALTER TABLE course DROP COLUMN resume_further;
            ALTER TABLE course DROP COLUMN resume_digest; ALTER TABLE course DROP COLUMN proof;
            ALTER TABLE course DROP COLUMN sources; ALTER TABLE course DROP COLUMN resume_mirror;
            ALTER TABLE copy DROP COLUMN proof; DROP TABLE asset; PRAGMA user_version = 3
            """)
        var known = fullRecord(1)
        known.resume?.identity.born = nil
        known.resume?.ranges = ByteRanges(prefix: 17)
        known.resume?.digest = nil
        known.resume?.mirror = nil
        (known.proof, known.sources) = (nil, [])
        known.source = nil
        known.state = known.state.withoutOrigin
        let state = try await reopened(folder.path)
        #expect(state.records == [known, plainRecord(2)] && state.setAside == nil)
        try await save(folder.path, [fullRecord(1)])
        #expect(try await reopened(folder.path).records == [fullRecord(1), plainRecord(2)])
    }

    @Test func `of version 4 has all but where redirects led`() async throws {
        try await save(folder.path, [fullRecord(1), plainRecord(2)])
        try tamper(
            folder.path,
            """
            ALTER TABLE course DROP COLUMN source; ALTER TABLE course DROP COLUMN failure_origin;
            ALTER TABLE course DROP COLUMN resume_further; ALTER TABLE course DROP COLUMN resume_digest; ALTER TABLE course DROP COLUMN proof;
            ALTER TABLE course DROP COLUMN sources; ALTER TABLE course DROP COLUMN resume_mirror;
            ALTER TABLE copy DROP COLUMN proof; DROP TABLE asset; PRAGMA user_version = 4
            """)
        var known = fullRecord(1)
        known.resume?.ranges = ByteRanges(prefix: 17)
        known.resume?.digest = nil
        known.resume?.mirror = nil
        (known.proof, known.sources) = (nil, [])
        known.source = nil
        known.state = known.state.withoutOrigin
        let state = try await reopened(folder.path)
        #expect(state.records == [known, plainRecord(2)] && state.setAside == nil)
    }

    @Test func `of version 5 has all but which server asked for a pause`() async throws {
        try await save(folder.path, [fullRecord(1), plainRecord(2)])
        try tamper(
            folder.path,
            """
            ALTER TABLE course DROP COLUMN failure_origin; ALTER TABLE course DROP COLUMN resume_further; ALTER TABLE course DROP COLUMN resume_digest; ALTER TABLE course DROP COLUMN proof;
            ALTER TABLE course DROP COLUMN sources; ALTER TABLE course DROP COLUMN resume_mirror;
            ALTER TABLE copy DROP COLUMN proof; DROP TABLE asset;
            PRAGMA user_version = 5
            """)
        var known = fullRecord(1)
        known.resume?.ranges = ByteRanges(prefix: 17)
        known.resume?.digest = nil
        known.resume?.mirror = nil
        (known.proof, known.sources) = (nil, [])
        known.state = known.state.withoutOrigin
        let state = try await reopened(folder.path)
        #expect(state.records == [known, plainRecord(2)] && state.setAside == nil)
        try await save(folder.path, [fullRecord(1)])
        #expect(try await reopened(folder.path).records == [fullRecord(1), plainRecord(2)])
    }

    @Test func `of version 6, as its program left it, keeps all its contents`() async throws {
        let text = try #require(
            readFile("\(repository)/Tests/Fixtures/queue-version-6.sql"))
        writeFile(folder("todoku.db"), [])
        try tamper(folder.path, String(decoding: text, as: UTF8.self))
        let state = try await reopened(folder.path)
        #expect(state.setAside == nil && state.salvaged == nil && state.nextNumber == DownloadNumber(6))
        #expect(state.records.map(\.state.name) == ["finished", "failed", "active", "paused", "paused"])
        let resume = state.records.map(\.resume)
        #expect(
            resume.map { $0?.ranges } == [
                ByteRanges(prefix: 70_000), nil, ByteRanges(prefix: 4_650_000), ByteRanges(prefix: 3_000_000), nil,
            ])
        #expect(resume[2]?.total == 12_000_000 && resume[2]?.validator == .entityTag("\"v1\""))
        #expect(
            resume[2]?.identity
                == FileIdentity(
                    device: 65024, inode: 16_318_704, mount: 27, boot: "d8edb55b-9013-432f-8d71-31b0f4417195",
                    born: 1_795_399_361_435_822_848))
        #expect(state.records[0].path == "/home/a/Downloads/small.bin" && state.records[4].options.title == "日本")
        // From this version on, a record may have several ranges.
        var changed = state.records[2]
        changed.resume?.ranges.insert(7_000_000..<8_000_000)
        try await save(folder.path, [changed])
        #expect(try await reopened(folder.path).records == state.records.map { $0.number == changed.number ? changed : $0 })
    }

    @Test func `of version 7 goes on with all that it held, and takes assets`() async throws {
        let text = try #require(readFile("\(repository)/Tests/Fixtures/queue-version-7.sql"))
        writeFile(folder("todoku.db"), [])
        try tamper(folder.path, String(decoding: text, as: UTF8.self))
        let state = try await reopened(folder.path)
        #expect(state.setAside == nil && state.salvaged == nil && state.nextNumber == DownloadNumber(6) && state.assets.isEmpty)
        #expect(state.records.map(\.state.name) == ["finished", "failed", "active", "paused", "paused"])
        #expect(state.records[2].resume?.ranges.ranges.count == 2)
        let asset = RandomAssets.plain("maps")
        try await withStore(folder.path) { store, _ in try await store.commit([.putAsset(asset)], nextNumber: DownloadNumber(6)) }
        let again = try await reopened(folder.path)
        #expect(again.assets == [asset] && again.records == state.records)
    }

    @Test func `of version 10, as its program left it, keeps all its contents, and takes digests and proofs`() async throws {
        let text = try #require(readFile("\(repository)/Tests/Fixtures/queue-version-10.sql"))
        writeFile(folder("todoku.db"), [])
        try tamper(folder.path, String(decoding: text, as: UTF8.self))
        let state = try await reopened(folder.path)
        #expect(state.setAside == nil && state.salvaged == nil && state.nextNumber == DownloadNumber(8))
        #expect(state.records.map(\.state.name) == ["finished", "finished", "failed", "finished", "active", "paused", "paused"])
        #expect(state.records.allSatisfy { $0.proof == nil && $0.resume?.digest == nil })
        #expect(state.records[4].resume?.ranges == ByteRanges(prefix: 5_000_000))
        #expect(state.records[4].resume?.validator == .entityTag("\"v1\"") && state.records[4].resume?.total == 12_000_000)
        #expect(state.records[1].path == "/home/a/Downloads/small (1).bin" && state.records[6].options.title == "日本")
        let key = CopyKey(app: "", url: "http://127.0.0.1:18471/feed.xml", directory: "/home/a/Downloads", wantedName: nil)
        var changed = state.records[4]
        changed.resume?.digest = Checksum(.sha512, digest: [UInt8](repeating: 9, count: 64))
        changed.proof = .length
        let known = changed
        try await withStore(folder.path) { store, _ in
            let copy = try #require(await store.copy(for: key))
            #expect(copy.name == "feed.xml" && copy.validators?.entityTag == "\"v1\"" && copy.proof == nil)
            var proved = copy
            proved.proof = .reprDigest
            try await store.commit([.put(known), .keepCopy(proved)], nextNumber: DownloadNumber(8))
            #expect(await store.copy(for: key) == proved)
        }
        #expect(try await reopened(folder.path).records == state.records.map { $0.number == known.number ? known : $0 })
    }

    @Test func `of version 11, as its program left it, keeps all its contents, and takes sources`() async throws {
        let text = try #require(readFile("\(repository)/Tests/Fixtures/queue-version-11.sql"))
        writeFile(folder("todoku.db"), [])
        try tamper(folder.path, String(decoding: text, as: UTF8.self))
        let state = try await reopened(folder.path)
        #expect(state.setAside == nil && state.salvaged == nil && state.nextNumber == DownloadNumber(6))
        #expect(state.records.map(\.state.name) == ["finished", "finished", "failed", "active", "paused"])
        #expect(state.records.map(\.proof) == [.reprDigest, .checksum, nil, .length, nil])
        #expect(state.records[3].resume?.ranges == ByteRanges(prefix: 5_000_000) && state.records[3].resume?.digest != nil)
        #expect(state.records.allSatisfy { $0.sources == [] && $0.resume?.mirror == nil && $0.options.mirrors == [] })
        var changed = state.records[3]
        changed.options.mirrors = ["https://m.example.org/big.bin", "https://n.example.org/big.bin"]
        changed.resume?.mirror = 1
        changed.sources = [SourceRecord(url: changed.url, received: 7, left: .wrongBytes)]
        let known = changed
        try await withStore(folder.path) { store, _ in try await store.commit([.put(known)], nextNumber: DownloadNumber(6)) }
        #expect(try await reopened(folder.path).records == state.records.map { $0.number == known.number ? known : $0 })
        #expect(known.firstURL == "https://n.example.org/big.bin")
    }

    @Test func `whose copies are of version 10 knows that a checksum has proved them`() async throws {
        let key = CopyKey(app: "", url: "http://h/a", directory: "/d", wantedName: nil)
        let stamp = FileStamp(identity: FileIdentity(device: 1, inode: 2, mount: 3, boot: "b"), size: 4, modified: 5)
        let checksum = Checksum(.md5, digest: [UInt8](repeating: 1, count: 16))
        try await withStore(folder.path) { store, _ in
            let copy = CachedCopy(key: key, name: "a", stamp: stamp, validators: nil, checksum: checksum)
            try await store.commit([.keepCopy(copy)], nextNumber: DownloadNumber(1))
        }
        try tamper(
            folder.path,
            """
            ALTER TABLE course DROP COLUMN resume_digest; ALTER TABLE course DROP COLUMN proof;
            ALTER TABLE course DROP COLUMN sources; ALTER TABLE course DROP COLUMN resume_mirror; ALTER TABLE copy DROP COLUMN proof;
            PRAGMA user_version = 10
            """)
        try await withStore(folder.path) { store, _ in #expect(await store.copy(for: key)?.proof == .checksum) }
    }

    @Test func `of a newer version is refused and left as it is`() async throws {
        try await save(folder.path, [plainRecord(1)])
        try tamper(folder.path, "PRAGMA user_version = 13")
        let bytes = readFile(folder("todoku.db"))
        let error = await storeError { _ = try await reopened(folder.path) }
        #expect(error?.reason == .newerVersion)
        #expect(error?.message.contains("(version 13; this one reads up to 12)") == true)
        #expect(readFile(folder("todoku.db")) == bytes)
        #expect(!listFolder(folder.path).contains { $0.contains("corrupt") })
    }

    @Test func `of settings that cannot be read has the defaults for them`() async throws {
        var settings = Settings()
        settings.maxPerHost = 9
        try await withStore(folder.path) { [settings] store, _ in try await store.commit([.set(settings)], nextNumber: DownloadNumber(5)) }
        try tamper(folder.path, "UPDATE setting SET value = 'many' WHERE key = 'max-active'; INSERT INTO setting VALUES ('later', '1')")
        let state = try await reopened(folder.path)
        #expect(state.settings == settings)
        #expect(state.nextNumber == DownloadNumber(5))
    }
}

@Suite struct `A row that cannot be read` {
    private let folder = TemporaryFolder()

    @Test(arguments: [
        ("state", "download", "state = 'archived'"), ("wait_reason", "download", "state = 'waiting', wait_reason = 'moon'"),
        ("wait_reason", "download", "state = 'waiting'"), ("failure_name", "course", "failure_name = 'Odd'"),
        ("options", "download", "options = options || 'if-exists=ask'"), ("options", "download", "options = options || 'header=no colon'"),
        ("options", "download", "options = options || 'checksum=sha256:00'"), ("options", "download", "options = options || 'notify='"),
        ("options", "download", "options = options || 'checksum=blake3:00'"), ("options", "download", "options = options || 'later=1'"),
        ("options", "download", "options = options || 'a line'"), ("options", "download", "options = options || 'title=\\x'"),
        ("options", "download", "options = options || 'metadata=0'"),
    ])
    func `is a failed download that names the column`(column: String, table: String, change: String) async throws {
        try await save(folder.path, [plainRecord(1), fullRecord(2), plainRecord(3)])
        try tamper(folder.path, "UPDATE course SET ended_at = NULL WHERE number = 2; UPDATE \(table) SET \(change) WHERE number = 2")
        let records = try await reopened(folder.path).records
        #expect(records.map(\.number.value) == [1, 2, 3])
        #expect((records[0], records[2]) == (plainRecord(1), plainRecord(3)))
        let failure = try #require(records[1].state.failure)
        #expect(failure.name == .storage)
        #expect(
            failure.message
                == "The saved queue has a value in the column \"\(column)\" that this Todoku cannot read; add the download again.")
        #expect(!failure.isRetryable)
        #expect(records[1].endedAt != nil)
        #expect(records[1].url == fullRecord(2).url)
        #expect(records[1].options.token == fullRecord(2).options.token)
    }

    @Test func `of its checksum can never pass unverified`() async throws {
        try await save(folder.path, [fullRecord(1)])
        try tamper(folder.path, "UPDATE download SET options = replace(options, 'sha512:', 'sha256:?')")
        let checksum = try await reopened(folder.path).records[0].options.checksum
        #expect(checksum == Checksum(.sha256, digest: [UInt8](repeating: 0, count: 32)))
    }

    @Test(arguments: ["replace(options, 'checksum=', 'chexksum=')", "options || 'later=1'", "'?'"])
    func `of whatever option can never pass unverified`(options: String) async throws {
        try await save(folder.path, [fullRecord(1), plainRecord(2)])
        try tamper(folder.path, "UPDATE download SET options = \(options)")
        for record in try await reopened(folder.path).records where record.state.failure != nil {
            #expect(record.options.checksum == Checksum(.sha256, digest: [UInt8](repeating: 0, count: 32)))
        }
    }

    /// Its row of `course` was on another page, which was destroyed.
    @Test func `of the file it finished with is failed, unless its options tell the path`() async throws {
        func finished(_ number: UInt64, _ name: String?, _ policy: ExistingFilePolicy, directory: String = "/d", isFetch: Bool = false)
            -> DownloadRecord
        {
            var options = DownloadOptions()
            (options.fileName, options.ifExists) = (name, policy)
            var record = DownloadRecord(
                number: DownloadNumber(number), url: "https://example.org/a.iso", options: options, directory: directory, state: .finished,
                queuedAt: WallTime(microseconds: 5), position: 1)
            (record.received, record.total, record.isFetch) = (9, 9, isFetch)
            (record.endedAt, record.fileName, record.path) = (WallTime(microseconds: 9), name ?? "a.iso", "\(directory)/\(name ?? "a.iso")")
            return record
        }
        let known = [finished(1, "b", .replace), finished(2, "b", .skip), finished(3, "b", .fail, directory: "/")]
        let unknown = [finished(4, nil, .replace), finished(5, "b", .rename), finished(6, "b", .replace, isFetch: true)]
        let toDescriptor = finished(7, nil, .rename, directory: "")
        try await save(folder.path, known + unknown + [toDescriptor])
        try tamper(folder.path, "DELETE FROM course")
        let records = try await reopened(folder.path).records
        #expect(records.prefix(3).map(\.path) == ["/d/b", "/d/b", "/b"])
        #expect(records.prefix(3).allSatisfy { $0.state == .finished && $0.fileName == "b" && $0.endedAt != nil })
        for record in records.dropFirst(3).prefix(3) {
            #expect(record.state.failure?.name == .storage && record.path == nil && record.endedAt != nil)
            #expect(
                record.state.failure?.message
                    == "The download had finished, but the damaged queue has lost its file’s name; look for the file in /d.")
        }
        #expect(records.last?.state == .finished && records.last?.isToDescriptor == true)
    }

    @Test func `of its resume data starts from 0`() async throws {
        try await save(folder.path, [fullRecord(1)])
        try tamper(folder.path, "UPDATE course SET resume_inode = NULL")
        var expected = fullRecord(1)
        expected.resume = nil
        #expect(try await reopened(folder.path).records == [expected])
    }
}

@Suite struct `A database that is only read` {
    private let folder = TemporaryFolder()

    /// SQLite gets the path as a URI. A home that is `/` gives a path with two slashes at its beginning.
    @Test(arguments: ["ダウンロード", "控え é", "100% of it? #1", "a\u{1}\n&b=c"], ["", "/"])
    func `is found by any path, and so is a backup`(name: String, start: String) async throws {
        let path = start + folder.makeFolder(name)
        try await withStore(path) { store, _ in try await store.commit([.put(plainRecord(1, .finished))], nextNumber: DownloadNumber(2)) }
        #expect(Store.examine(folder: path).condition == .good)
        #expect(!Store.hasPending(folder: path) && !Store.hasDueChecks(folder: path, session: ""))
        let backup = "\(start)\(folder(name)).db"
        _ = try Store.backUp(folder: path, to: backup, withSecrets: false)
        #expect(try Store.inspect(backup: backup).downloads == 1)
        #expect(try Store.restore(folder: path, from: backup).restored.downloads == 1)
    }
}

@Suite struct `Whether work is pending` {
    private let folder = TemporaryFolder()

    @Test(arguments: [
        (DownloadState.queued, true), (.active, true), (.verifying, true), (.extracting, true), (.committing, true),
        (.waiting(.retry, until: WallTime(microseconds: 1)), true), (.waiting(.pausedAll, until: nil), false), (.paused, false),
        (.finished, false),
        (.failed(DownloadFailure(.network, "No route.")), false), (.cancelled, false),
    ])
    func `follows the states, with an open or closed store, and creates no file`(state: DownloadState, isPending: Bool) async throws {
        let path = folder.makeFolder("100% of it? #1")
        try await withStore(path) { store, _ in
            #expect(!Store.hasPending(folder: path))
            try await store.commit([.put(plainRecord(1, .finished)), .put(plainRecord(2, state))], nextNumber: DownloadNumber(3))
            #expect(Store.hasPending(folder: path) == isPending)
        }
        let bytes = readFile("\(path)/todoku.db")
        #expect(Store.hasPending(folder: path) == isPending)
        #expect(listFolder(path) == ["instance", "todoku.db", "todoku.lock"])
        #expect(readFile("\(path)/todoku.db") == bytes)
    }

    /// Hours since the end, calls of the owner, whether it has acknowledged, and whether the database therefore has work.
    @Test(
        arguments: [
            (1, 1, false, true), (6 * 24 + 23, 4, false, true), (7 * 24 + 1, 4, false, false), (7 * 24 + 1, 0, false, true),
            (1, 0, true, false), (1, 1, true, false),
        ] as [(Int, UInt32, Bool, Bool)])
    func `is true for an owner that is to be called, as in the scheduler`(
        hours: Int, calls: UInt32, isAcknowledged: Bool, isPending: Bool
    ) async throws {
        let now = WallTime(microseconds: UInt64(time(nil)) * 1_000_000)
        for state in [DownloadState.finished, .cancelled, .failed(DownloadFailure(.network, "No route."))] {
            var record = plainRecord(1, state)
            record.options.activate = "org.example.App"
            (record.reminders.calls, record.reminders.isAcknowledged) = (calls, isAcknowledged)
            record.endedAt = now + .seconds(-hours * 3600)
            #expect(record.remindsOwner(at: now) == isPending)
            let path = folder.makeFolder("\(hours)")
            try await withStore(path) { store, _ in try await store.commit([.put(record)], nextNumber: DownloadNumber(2)) }
            #expect(Store.hasPending(folder: path) == isPending)
            record.options.activate = nil
            try await withStore(path) { store, _ in try await store.commit([.put(record)], nextNumber: DownloadNumber(2)) }
            #expect(!Store.hasPending(folder: path))
        }
    }

    /// Hours since the end, whether a toast is owed, and whether the database therefore has work.
    @Test(arguments: [(1, true, true), (11, true, true), (13, true, false), (1, false, false)])
    func `is true for an owed toast, as long as it is news`(hours: Int, isOwed: Bool, isPending: Bool) async throws {
        let end = WallTime(microseconds: UInt64(time(nil)) * 1_000_000) + .seconds(-hours * 3600)
        var record = plainRecord(1, .finished)
        (record.endedAt, record.owesToast) = (end, isOwed)
        var batch = BatchRecord(number: BatchNumber(2), count: 1)
        batch.toastOwedSince = isOwed ? end : nil
        for change in [StoreChange.put(record), .putBatch(batch)] {
            let path = folder.makeFolder(change == .put(record) ? "download" : "batch")
            try await withStore(path) { store, _ in try await store.commit([change], nextNumber: DownloadNumber(9)) }
            #expect(Store.hasPending(folder: path) == isPending)
        }
    }

    @Test func `is false without a database, and true if it cannot be read`() async throws {
        #expect(!Store.hasPending(folder: folder("none")))
        #expect(!Store.hasPending(folder: folder.path))
        #expect(listFolder(folder.path) == [])
        writeFile(folder("todoku.db"), [])
        #expect(!Store.hasPending(folder: folder.path))
        writeFile(folder("todoku.db"), patternBytes(5000))
        #expect(Store.hasPending(folder: folder.path))
        #expect(listFolder(folder.path) == ["todoku.db"])
    }

    @Test(arguments: [true, false]) func `is found in the files of a killed daemon`(hasIndex: Bool) async throws {
        let copy = TemporaryFolder()
        try await withStore(folder.path) { store, _ in
            try await store.commit([.put(plainRecord(1))], nextNumber: DownloadNumber(2))
            for name in ["todoku.db", "todoku.db-wal"] + (hasIndex ? ["todoku.db-shm"] : []) { try copyFile(folder(name), copy(name)) }
        }
        let names = listFolder(copy.path)
        #expect(Store.hasPending(folder: copy.path))
        #expect(listFolder(copy.path) == names)
    }
}

@Suite struct `A database that was set aside` {
    private let folder = TemporaryFolder()

    private var aside: [String] { listFolder(folder.path).filter { $0.contains("corrupt") } }

    private func mode(_ name: String) -> mode_t? {
        var status = stat()
        return lstat(folder(name), &status) == 0 ? status.st_mode & 0o7777 : nil
    }

    private func stamp(_ age: Int) async -> String {
        await Child.run(["date", "-u", "-d", "\(age) seconds ago", "+%Y%m%d-%H%M%S"]).output.filter { !$0.isNewline }
    }

    /// Its pages contain passwords and headers, which normally leave the database within that time.
    @Test func `is private to the user, and deleted a day later with its log`() async throws {
        var secret = plainRecord(1)
        secret.options.password = "a secret nobody guesses"
        try await save(folder.path, [secret])
        var bytes = try #require(readFile(folder("todoku.db")))
        for index in 4096..<8192 { bytes[index] = 0xA5 }
        writeFile(folder("todoku.db"), bytes, mode: 0o644)
        writeFile(folder("todoku.db-wal"), bytes, mode: 0o644)
        let path = try #require(try await reopened(folder.path).setAside)
        #expect(aside.count >= 1 && aside.allSatisfy { mode($0) == 0o600 }, "\(aside)")
        // It still exists at the next start, so that it can be examined.
        _ = try await reopened(folder.path)
        #expect(aside.contains { folder($0) == path })
        for name in aside {
            let suffix = name.dropFirst("todoku.db.corrupt-YYYYMMDD-HHMMSS".count)
            writeFile(folder("todoku.db.corrupt-\(await stamp(86_399 - 600))\(suffix).kept"), [1])
            #expect(rename(folder(name), folder("todoku.db.corrupt-\(await stamp(86_401))\(suffix)")) == 0)
        }
        writeFile(folder("todoku.db.corrupt-\(await stamp(86_500))-2-wal"), [1])
        writeFile(folder("todoku.db.corrupt-20991231-235959"), [1])
        writeFile(folder("todoku.db.corrupt-mine"), [1])
        _ = try await reopened(folder.path)
        #expect(aside.allSatisfy { $0.hasSuffix(".kept") || $0.hasSuffix("-mine") } && aside.count >= 2, "\(aside)")
    }
}

extension DownloadState {
    /// The state as an older version stored it.
    fileprivate var withoutOrigin: DownloadState {
        guard case .failed(var failure) = self else { return self }
        failure.origin = nil
        return .failed(failure)
    }
}
