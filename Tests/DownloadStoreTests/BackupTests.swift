internal import DownloadModel
internal import Glibc
internal import TestSupport
internal import Testing

@testable internal import DownloadStore

private func save(_ folder: String, _ changes: [StoreChange], next: UInt64) async throws {
    try await withStore(folder) { store, _ in try await store.commit(changes, nextNumber: DownloadNumber(next)) }
}

/// The rows of a backup, as a daemon would read them from it.
private func content(of backup: String) async throws -> StoredState {
    let folder = TemporaryFolder()
    writeFile(folder("todoku.db"), try #require(readFile(backup)))
    return try await reopened(folder.path)
}

/// With each column and each option but `private`, which keeps a download out of a backup.
private func listedRecord(_ number: UInt64) -> DownloadRecord {
    var record = fullRecord(number)
    record.options.isPrivate = false
    return record
}

private var secretRecord: DownloadRecord {
    var record = plainRecord(1)
    (record.options.username, record.options.password) = ("the-user", "the-password")
    record.options.headers = [HeaderField(name: "Cookie", value: "the-cookie")]
    record.options.postData = Array("the-body".utf8)
    return record
}

@Suite struct `A backup` {
    private let folder = TemporaryFolder()

    @Test func `has every row as it was, taken beside a daemon or without one`() async throws {
        let target = TemporaryFolder()
        let records = [plainRecord(1), listedRecord(2), listedRecord(3)]
        var settings = Settings()
        settings.maxPerHost = 3
        let changed = settings
        try await withStore(folder.path) { store, _ in
            try await store.commit(records.map { .put($0) } + [.set(changed)], nextNumber: DownloadNumber(4))
            let backup = try Store.backUp(folder: folder.path, to: target("beside"), withSecrets: true)
            #expect(backup.downloads == 3 && backup.path == target("beside") && backup.size > 0)
            // The daemon does not notice.
            try await store.commit([.remove(DownloadNumber(1))], nextNumber: DownloadNumber(5))
        }
        let beside = try await content(of: target("beside"))
        #expect(beside.records == records && beside.settings == changed && beside.nextNumber == DownloadNumber(4))
        let before = listFolder(folder.path)
        _ = try Store.backUp(folder: folder.path, to: target("alone"), withSecrets: true)
        #expect(try await content(of: target("alone")).records == Array(records.dropFirst()))
        #expect(listFolder(folder.path) == before && listFolder(target.path) == ["alone", "beside"])
        #expect(permissions(target("alone")) == 0o600)
    }

    @Test func `has the log of a daemon that was killed`() async throws {
        let (copy, target) = (TemporaryFolder(), TemporaryFolder())
        try await withStore(folder.path) { store, _ in
            try await store.commit([.put(plainRecord(1)), .put(plainRecord(2))], nextNumber: DownloadNumber(3))
            for name in ["todoku.db", "todoku.db-wal", "todoku.db-shm"] { writeFile(copy(name), try #require(readFile(folder(name)))) }
        }
        _ = try Store.backUp(folder: copy.path, to: target("b"), withSecrets: false)
        #expect(try await content(of: target("b")).records == [plainRecord(1), plainRecord(2)])
    }

    @Test func `is of one moment, although a daemon writes and empties its log meanwhile`() async throws {
        let target = TemporaryFolder()
        try await withStore(folder.path) { store, _ in
            for copy in 1...20 {
                async let writing: Void = commitRounds(store, from: UInt64(copy) * 10)
                let backup = try Store.backUp(folder: folder.path, to: target("\(copy)"), withSecrets: true)
                try await writing
                // Each commit gives all records the same number.
                let received = Set(try await content(of: backup.path).records.map(\.received))
                #expect(received.count <= 1, "\(received)")
            }
        }
    }

    private func commitRounds(_ store: Store, from first: UInt64) async throws {
        for round in first..<first + 10 {
            let changes = (1...400 as ClosedRange<UInt64>).map { number in
                var record = plainRecord(number)
                record.received = round
                return StoreChange.put(record)
            }
            try await store.commit(changes, nextNumber: DownloadNumber(401))
            await store.tidy()
        }
    }

    @Test func `that was interrupted leaves a draft that is named, and that a daemon deletes a day later`() async throws {
        try await save(folder.path, [.put(secretRecord)], next: 2)
        for name in ["backup-1.db.new", "backup-2.db.new", "mine.new"] { writeFile(folder(name), "x".utf8) }
        let taken = await storeError { _ = try Store.backUp(folder: folder.path, to: folder("backup-1.db"), withSecrets: false) }
        #expect(taken?.message.hasPrefix("\(folder("backup-1.db.new")) is in the way: ") == true, "\(taken?.message ?? "no error")")
        for name in ["backup-1.db.new", "mine.new"] {
            let aged = [timeval(tv_sec: time(nil) - 90_000, tv_usec: 0), timeval(tv_sec: time(nil) - 90_000, tv_usec: 0)]
            #expect(utimes(folder(name), aged) == 0)
        }
        _ = try await reopened(folder.path)
        #expect(listFolder(folder.path).filter { $0.hasSuffix(".new") } == ["backup-2.db.new", "mine.new"])
    }

    @Test func `has passwords, headers and bodies only if asked`() async throws {
        try await save(folder.path, [.put(secretRecord), .put(plainRecord(2))], next: 3)
        let target = TemporaryFolder()
        _ = try Store.backUp(folder: folder.path, to: target("without"), withSecrets: false)
        _ = try Store.backUp(folder: folder.path, to: target("with"), withSecrets: true)
        let (without, with) = (try #require(readFile(target("without"))), try #require(readFile(target("with"))))
        // The rows hold a body as hexadecimal digits.
        for secret in ["the-user", "the-password", "the-cookie", hexadecimal(Array("the-body".utf8))] {
            #expect(!contains(without, Array(secret.utf8)) && contains(with, Array(secret.utf8)), "\(secret)")
        }
        #expect(!contains(without, Array("the-body".utf8)))
        var expected = secretRecord
        expected.options.forgetSecrets()
        #expect(try await content(of: target("without")).records == [expected, plainRecord(2)])
        #expect(try await content(of: target("with")).records == [secretRecord, plainRecord(2)])
    }

    @Test func `has no private download, and no batch of private downloads only`() async throws {
        var (secret, listed, alone) = (plainRecord(2), plainRecord(3), plainRecord(5))
        secret.options.isPrivate = true
        secret.url = "http://127.0.0.1/hidden"
        (alone.options, alone.url) = (secret.options, secret.url)
        listed.options.allowsPrivate = false
        (secret.batch, listed.batch, alone.batch) = (DownloadNumber(1), DownloadNumber(1), DownloadNumber(4))
        let (mixed, single) = (BatchRecord(number: DownloadNumber(1), count: 2), BatchRecord(number: DownloadNumber(4), count: 1))
        let changes: [StoreChange] = [.addBatch(mixed, [secret, listed]), .addBatch(single, [alone])]
        try await save(folder.path, changes, next: 6)
        let target = TemporaryFolder()
        let backup = try Store.backUp(folder: folder.path, to: target("b"), withSecrets: true)
        let state = try await content(of: target("b"))
        #expect(state.records == [listed] && state.batches == [mixed] && backup.downloads == 1)
        let bytes = try #require(readFile(target("b")))
        #expect(!contains(bytes, Array("hidden".utf8)))
        // The queue itself keeps them.
        #expect(try await reopened(folder.path).records == [secret, listed, alone])
    }

    @Test func `replaces no file, and leaves none behind if it fails`() async throws {
        let target = TemporaryFolder()
        #expect(await storeError { _ = try Store.backUp(folder: folder.path, to: target("b"), withSecrets: true) }?.reason == .storage)
        try await save(folder.path, [.put(plainRecord(1))], next: 2)
        writeFile(target("b"), "mine".utf8)
        let taken = await storeError { _ = try Store.backUp(folder: folder.path, to: target("b"), withSecrets: true) }
        #expect(taken?.message == "\(target("b")) exists already; choose another name.")
        writeFile(target("c.new"), "mine too".utf8)
        #expect(await storeError { _ = try Store.backUp(folder: folder.path, to: target("c"), withSecrets: true) } != nil)
        #expect(fileHolds(target("b"), Array("mine".utf8)) && fileHolds(target("c.new"), Array("mine too".utf8)))
        writeFile(folder("todoku.db"), patternBytes(9000))
        let damaged = await storeError { _ = try Store.backUp(folder: folder.path, to: target("d"), withSecrets: true) }
        #expect(damaged?.reason == .damaged && listFolder(target.path) == ["b", "c.new"], "\(damaged?.message ?? "")")
        let nowhere = await storeError { _ = try Store.backUp(folder: folder.path, to: target("no/e"), withSecrets: true) }
        let sentence = "Todoku cannot write the copy in \(target("no/e")): No such file or directory."
        #expect(nowhere?.reason == .storage && nowhere?.message == sentence, "\(nowhere?.message ?? "no error")")
    }

    @Test func `is refused if a newer Todoku wrote the database`() async throws {
        try await save(folder.path, [.put(plainRecord(1))], next: 2)
        try tamper(folder.path, "PRAGMA user_version = 999")
        let target = TemporaryFolder()
        let error = await storeError { _ = try Store.backUp(folder: folder.path, to: target("b"), withSecrets: true) }
        #expect(error?.reason == .newerVersion && listFolder(target.path).isEmpty)
    }
}

@Suite struct `A reset` {
    private let folder = TemporaryFolder()

    @Test func `leaves an empty queue that goes on with the numbers`() async throws {
        var settings = Settings()
        settings.maxPerHost = 3
        try await save(
            folder.path,
            [.put(fullRecord(7)), .put(plainRecord(6, .finished)), .set(settings), .sweep(DownloadNumber(5), directory: "/some/folder")],
            next: 8)
        mkdir(folder("segments"), 0o700)
        for name in ["segments/7", "segments/7.next", "segments/other", "crashes", "starts"] { writeFile(folder(name), "x".utf8) }
        let names = try #require(readFile(folder("instance")))
        #expect(try Store.reset(folder: folder.path, settingAside: false).setAside == nil)
        #expect(listFolder(folder("segments")) == ["other"] && !fileExists(folder("crashes")) && !fileExists(folder("starts")))
        let state = try await reopened(folder.path)
        #expect(state.records.isEmpty && state.settings == Settings())
        // The next start deletes the part files that may be there.
        #expect(state.sweeps == [DownloadNumber(5): "/some/folder", DownloadNumber(7): fullRecord(7).directory])
        #expect(state.nextNumber == DownloadNumber(8) && readFile(folder("instance")) == names)
    }

    /// Its deletion there has failed.
    @Test func `leaves the part file in a folder that a download has left, and the one in its folder, to be deleted`() async throws {
        let (moved, ended) = (plainRecord(7), plainRecord(6, .finished))
        let (left, both) = (StoreChange.sweep(moved.number, in: ["/a", "/b"]), ["/a", "/b", moved.directory])
        try await save(folder.path, [.put(moved), .put(ended), left, .sweep(ended.number, directory: "/a")], next: 8)
        _ = try Store.reset(folder: folder.path, settingAside: false)
        let state = try await reopened(folder.path)
        #expect(state.sweeps == [moved.number: StoreChange.text(ofSweep: both), ended.number: "/a"])
        #expect(StoreChange.folders(ofSweep: StoreChange.text(ofSweep: both)) == both)
    }

    @Test func `sets aside what cannot be read, or is to be kept`() async throws {
        try await save(folder.path, [.put(plainRecord(3))], next: 4)
        let kept = try Store.reset(folder: folder.path, settingAside: true).setAside
        #expect(kept.map(fileExists) == true)
        #expect(try await reopened(folder.path).nextNumber == DownloadNumber(4))
        writeFile(folder("todoku.db"), patternBytes(9000))
        let damaged = try Store.reset(folder: folder.path, settingAside: false).setAside
        #expect(damaged.flatMap(readFile) == patternBytes(9000))
        let state = try await reopened(folder.path)
        // Nobody knows which numbers were given.
        #expect(state.records.isEmpty && state.nextNumber.value > 1_700_000_000)
    }

    @Test func `goes on with the numbers of a strange row, as a daemon does`() async throws {
        try await save(folder.path, [.put(plainRecord(3))], next: 4)
        try tamper(folder.path, "UPDATE setting SET value = '9' WHERE key = 'next-number'")
        try tamper(
            folder.path,
            """
            INSERT INTO download SELECT -5, state, wait_reason, wait_until, position, queued_at, received, total, batch, is_fetch, url,
                directory, options FROM download
            """)
        _ = try Store.reset(folder: folder.path, settingAside: false)
        #expect(try await reopened(folder.path).nextNumber == DownloadNumber(9))
    }

    @Test func `leaves a database alone that another program holds`() async throws {
        try await save(folder.path, [.put(plainRecord(1))], next: 2)
        let other = try Database(folder("todoku.db"), flags: 2)
        try other.execute("BEGIN IMMEDIATE")
        let error = await storeError {
            _ = try Store.reset(folder: folder.path, settingAside: false, wait: .milliseconds(20), hold: .milliseconds(20))
        }
        #expect(error?.reason == .inUse, "\(error?.message ?? "no error")")
        try other.execute("ROLLBACK")
        let state = try await reopened(folder.path)
        #expect(state.records == [plainRecord(1)] && state.setAside == nil)
    }

    @Test func `that was killed on the way is undone or completed by the next start`() async throws {
        try await save(folder.path, [.put(plainRecord(1))], next: 2)
        // While the new database was built.
        writeFile(folder("todoku.db.restored.new"), patternBytes(5000))
        #expect(try await reopened(folder.path).records == [plainRecord(1)])
        #expect(!fileExists(folder("todoku.db.restored.new")))
        // While the former database, which cannot be read, was being set aside.
        _ = try Store.backUp(folder: folder.path, to: folder("todoku.db.salvaged"), withSecrets: true)
        for isMoved in [false, true] {
            if isMoved { unlink(folder("todoku.db")) } else { writeFile(folder("todoku.db"), patternBytes(9000)) }
            let new = try #require(readFile(folder("todoku.db.salvaged")))
            #expect(try await reopened(folder.path).records == [plainRecord(1)])
            #expect(!fileExists(folder("todoku.db.salvaged")))
            writeFile(folder("todoku.db.salvaged"), new)
        }
    }

    @Test func `is refused while a daemon keeps the folder`() async throws {
        try await withStore(folder.path) { store, _ in
            try await store.commit([.put(plainRecord(1))], nextNumber: DownloadNumber(2))
            let error = await storeError {
                _ = try Store.reset(folder: folder.path, settingAside: false, wait: .milliseconds(20), hold: .milliseconds(20))
            }
            #expect(error?.reason == .inUse)
        }
        #expect(try await reopened(folder.path).records == [plainRecord(1)])
    }
}

@Suite struct `A restore` {
    private let folder = TemporaryFolder()
    private let target = TemporaryFolder()

    @Test func `brings the backup back, behind the numbers of both`() async throws {
        try await save(folder.path, [.put(listedRecord(1)), .put(plainRecord(2))], next: 3)
        _ = try Store.backUp(folder: folder.path, to: target("b"), withSecrets: true)
        _ = try Store.reset(folder: folder.path, settingAside: false)
        // The reset left sweeps, which the service has done.
        let swept = [1, 2].map { StoreChange.swept(DownloadNumber($0)) }
        try await save(folder.path, swept + [.put(listedRecord(1)), .put(plainRecord(9))], next: 10)
        mkdir(folder("segments"), 0o700)
        for name in ["1", "9"] { writeFile(folder("segments/\(name)"), "x".utf8) }
        let inspected = try Store.inspect(backup: target("b"))
        let (restored, _, aside) = try Store.restore(folder: folder.path, from: target("b"))
        #expect(restored.downloads == 2 && inspected.downloads == 2 && aside == nil)
        let state = try await reopened(folder.path)
        // A part file of the first download may be there, and is used. That of the ninth is deleted.
        #expect(listFolder(folder("segments")) == ["1"] && state.sweeps == [DownloadNumber(9): plainRecord(9).directory], "\(state.sweeps)")
        #expect(state.records == [listedRecord(1), plainRecord(2)] && state.nextNumber == DownloadNumber(10))
        #expect(permissions(folder("todoku.db")) == 0o600)
        #expect(!listFolder(folder.path).contains { $0.contains("restored") })
        // The backup is only read.
        #expect(try await content(of: target("b")).records == [listedRecord(1), plainRecord(2)])
    }

    @Test func `from another machine deletes the part file of a download with the same number`() async throws {
        try await save(folder.path, [.put(plainRecord(1)), .put(plainRecord(2))], next: 3)
        _ = try Store.backUp(folder: folder.path, to: target("b"), withSecrets: true)
        let other = TemporaryFolder()
        var (moved, later) = (plainRecord(1), plainRecord(2))
        moved.directory = "/home/a/Elsewhere"
        later.queuedAt = later.queuedAt + .seconds(1)
        try await save(other.path, [.put(moved), .put(later)], next: 3)
        mkdir(other("segments"), 0o700)
        for name in ["1", "2"] { writeFile(other("segments/\(name)"), "x".utf8) }
        _ = try Store.restore(folder: other.path, from: target("b"))
        let state = try await reopened(other.path)
        #expect(state.records == [plainRecord(1), plainRecord(2)] && listFolder(other("segments")).isEmpty)
        #expect(state.sweeps == [DownloadNumber(1): moved.directory, DownloadNumber(2): later.directory])
    }

    /// When the backup was made, an earlier part file of the download was still to be deleted.
    @Test func `deletes no part file that the download has begun since the backup`() async throws {
        let record = plainRecord(1)
        try await save(folder.path, [.put(record), .sweep(record.number, directory: record.directory)], next: 2)
        _ = try Store.backUp(folder: folder.path, to: target("b"), withSecrets: true)
        mkdir(folder("segments"), 0o700)
        // Nothing is left to delete; then only a part file in a folder that the download has left.
        for present in [StoreChange.swept(record.number), .sweep(record.number, directory: "/left")] {
            try await save(folder.path, [present], next: 2)
            writeFile(folder("segments/1"), "x".utf8)
            _ = try Store.restore(folder: folder.path, from: target("b"))
            let state = try await reopened(folder.path)
            #expect(state.records == [record] && listFolder(folder("segments")) == ["1"])
            #expect(state.sweeps[record.number] == (present == .swept(record.number) ? nil : "/left"), "\(state.sweeps)")
        }
    }

    @Test func `works in an empty folder, as on another machine`() async throws {
        try await save(folder.path, [.put(listedRecord(1))], next: 2)
        _ = try Store.backUp(folder: folder.path, to: target("b"), withSecrets: true)
        let other = TemporaryFolder()
        _ = try Store.restore(folder: other("state/todoku"), from: target("b"))
        let state = try await reopened(other("state/todoku"))
        #expect(state.records == [listedRecord(1)] && state.nextNumber == DownloadNumber(2))
    }

    @Test func `leaves assets as they are, and brings back those that are gone`() async throws {
        let (old, gone) = (RandomAssets.plain("a"), RandomAssets.plain("b"))
        try await save(folder.path, [.putAsset(old), .putAsset(gone)], next: 1)
        _ = try Store.backUp(folder: folder.path, to: target("b"), withSecrets: false)
        var new = old
        new.directory = "/elsewhere"
        let (changed, other) = (new, RandomAssets.plain("c"))
        try await save(folder.path, [.putAsset(changed), .putAsset(other), .removeAsset(gone.key)], next: 1)
        _ = try Store.restore(folder: folder.path, from: target("b"))
        #expect(try await reopened(folder.path).assets == [changed, gone, other])
    }

    /// The downloads of the present database can be read, so its numbers and its part files are known.
    @Test func `sets a database aside whose assets cannot be read, and has the assets of the backup`() async throws {
        let asset = RandomAssets.plain("a")
        try await save(folder.path, [.put(plainRecord(1)), .putAsset(asset)], next: 2)
        _ = try Store.backUp(folder: folder.path, to: target("b"), withSecrets: true)
        try await save(folder.path, [.put(plainRecord(9)), .putAsset(RandomAssets.plain("c"))], next: 10)
        let page = try Database(folder("todoku.db"), flags: 2).number("SELECT rootpage FROM sqlite_schema WHERE name = 'asset'")
        var bytes = try #require(readFile(folder("todoku.db")))
        for index in (Int(page) - 1) * 4096..<Int(page) * 4096 { bytes[index] = 0xFF }
        writeFile(folder("todoku.db"), bytes, mode: 0o600)
        let aside = try Store.restore(folder: folder.path, from: target("b")).setAside
        #expect(aside.flatMap(readFile) == bytes)
        let state = try await reopened(folder.path)
        #expect(state.records == [plainRecord(1)] && state.assets == [asset])
        #expect(state.nextNumber == DownloadNumber(10))
        #expect(state.sweeps == [DownloadNumber(9): plainRecord(9).directory])
    }

    @Test func `has tables of its own, whatever keys and rules the tables of the backup have`() async throws {
        let records = [listedRecord(1), plainRecord(2)]
        try await save(folder.path, records.map { .put($0) }, next: 3)
        for name in ["loose", "strict", "twice"] { _ = try Store.backUp(folder: folder.path, to: target(name), withSecrets: true) }
        // Without a key, each save of a download would add a row. With the rule, no save of the settings would succeed.
        try Database(target("loose"), flags: 2).execute(
            "CREATE TABLE other AS SELECT * FROM download; DROP TABLE download; ALTER TABLE other RENAME TO download")
        try Database(target("strict"), flags: 2).execute(
            """
            CREATE TABLE other (key TEXT PRIMARY KEY, value TEXT NOT NULL, CHECK (key <> 'paused'));
            INSERT INTO other SELECT * FROM setting; DROP TABLE setting; ALTER TABLE other RENAME TO setting
            """)
        try Database(target("twice"), flags: 2).execute(
            """
            CREATE TABLE other AS SELECT * FROM download UNION ALL SELECT * FROM download; DROP TABLE download;
            ALTER TABLE other RENAME TO download
            """)
        var changed = records[1]
        changed.received = 5
        for name in ["loose", "strict"] {
            _ = try Store.restore(folder: folder.path, from: target(name))
            #expect(try await reopened(folder.path).records == records, "\(name)")
            try await save(folder.path, [.put(changed), .set(Settings())], next: 4)
            #expect(try await reopened(folder.path).records == [records[0], changed], "\(name)")
        }
        let error = await storeError { _ = try Store.restore(folder: folder.path, from: target("twice")) }
        #expect(error?.reason == .damaged, "\(error?.message ?? "no error")")
        #expect(try await reopened(folder.path).records == [records[0], changed])
    }

    @Test func `changes nothing if the backup is damaged, of a newer Todoku, or none`() async throws {
        try await save(folder.path, [.put(plainRecord(1))], next: 2)
        _ = try Store.backUp(folder: folder.path, to: target("newer"), withSecrets: true)
        try Database(target("newer"), flags: 2).execute("PRAGMA user_version = 999")
        writeFile(target("noise"), patternBytes(9000))
        writeFile(target("empty"), "".utf8)
        for name in ["trigger", "computed", "log"] { _ = try Store.backUp(folder: folder.path, to: target(name), withSecrets: true) }
        try Database(target("trigger"), flags: 2).execute("CREATE TRIGGER t AFTER INSERT ON setting BEGIN SELECT 1; END")
        try Database(target("computed"), flags: 2).execute("ALTER TABLE setting ADD COLUMN other TEXT AS (CAST(zeroblob(9) AS TEXT))")
        writeFile(target("log-wal"), patternBytes(100))
        #expect(symlink(target("log"), target("link")) == 0)
        #expect(mkfifo(target("fifo"), 0o600) == 0)
        for (name, reason) in [
            ("newer", StoreError.Reason.newerVersion), ("noise", .damaged), ("empty", .damaged), ("absent", .storage),
            ("trigger", .damaged), ("computed", .damaged), ("log", .storage), ("link", .storage), ("fifo", .storage), (".", .storage),
        ] {
            for restores in [false, true] {
                let error = await storeError {
                    if restores {
                        _ = try Store.restore(folder: folder.path, from: target(name))
                    } else {
                        _ = try Store.inspect(backup: target(name))
                    }
                }
                #expect(error?.reason == reason, "\(name): \(error?.message ?? "no error")")
            }
        }
        // Only its tables show what is wrong with this one.
        _ = try Store.backUp(folder: folder.path, to: target("strange"), withSecrets: true)
        try Database(target("strange"), flags: 2).execute("ALTER TABLE course RENAME COLUMN proof TO other")
        #expect(await storeError { _ = try Store.restore(folder: folder.path, from: target("strange")) }?.reason == .damaged)
        let state = try await reopened(folder.path)
        #expect(state.records == [plainRecord(1)] && state.setAside == nil)
        #expect(!listFolder(folder.path).contains { $0.contains("restored") })
    }
}
