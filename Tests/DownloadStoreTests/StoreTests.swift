internal import DownloadModel
internal import Glibc
internal import TestSupport
internal import Testing

@testable internal import DownloadStore

/// The whole content of a store.
struct StoredState: Equatable {
    var records: [DownloadRecord] = []
    var batches: [BatchRecord] = []
    var settings = Settings()
    var sweeps: [DownloadNumber: String] = [:]
    var requests: [HostRequest] = []
    var assets: [AssetRecord] = []
    var nextNumber = DownloadNumber(1)
    var setAside: String?
    var salvaged: Salvaged?
}

extension Store {
    @discardableResult func open() throws(StoreError) -> StoredState {
        nonisolated(unsafe) var state = StoredState()  // written by the store's thread, on which this runs
        let opening = try open { part in
            switch part {
            case .queue(let queue):
                state = StoredState(
                    batches: queue.batches, settings: queue.settings, sweeps: queue.sweeps, requests: queue.requests, assets: queue.assets)
            case .records(let records): state.records += records
            }
        }
        (state.nextNumber, state.setAside, state.salvaged) = (opening.nextNumber, opening.setAside, opening.salvaged)
        return state
    }
}

/// A store that is opened, used and closed.
///
/// A program that another test starts keeps all locks of this process until it runs (fork(2), flock(2)). So the lock of the last store may
/// outlast that store.
func withStore<R: Sendable>(_ folder: String, _ body: (Store, StoredState) async throws -> R) async throws -> R {
    let store = Store(folder: folder, mostPages: Store.mostPages, wait: Store.longestWait, lockWait: .seconds(60))
    let result = try await body(store, await store.open())
    await store.close()
    return result
}

func reopened(_ folder: String) async throws -> StoredState { try await withStore(folder) { $1 } }

func permissions(_ path: String) -> UInt32 {
    var status = stat()
    return lstat(path, &status) == 0 ? status.st_mode & 0o7777 : 0
}

func contains(_ bytes: [UInt8], _ part: [UInt8]) -> Bool { bytes.firstRange(of: part) != nil }

/// The error that `body` throws; nil if it throws none.
func storeError(_ body: () async throws -> Void) async -> StoreError? {
    do {
        try await body()
        return nil
    } catch { return error as? StoreError }
}

@Suite struct `The stored state` {
    private let folder = TemporaryFolder()

    @Test func `is empty and has the defaults at first`() async throws {
        let state = try await reopened(folder("state/todoku"))
        #expect(
            state
                == StoredState(
                    records: [], batches: [], settings: Settings(), sweeps: [:], requests: [], nextNumber: DownloadNumber(1), setAside: nil)
        )
        #expect(try await reopened(folder("state/todoku")) == state)
    }

    @Test func `comes back with every field, set or not`() async throws {
        let records = [plainRecord(1), fullRecord(2)]
        // A field that is added to the model later must be in `fullRecord`, too.
        let (plain, full) = (Mirror(reflecting: plainRecord(9).options), Mirror(reflecting: fullRecord(9).options))
        for (a, b) in zip(plain.children, full.children) { #expect("\(a.value)" != "\(b.value)", "\(a.label ?? "")") }
        let next = DownloadNumber(3)
        try await withStore(folder.path) { store, _ in try await store.commit(records.map { .put($0) }, nextNumber: next) }
        let state = try await reopened(folder.path)
        #expect(state.records == records)
        #expect(state.nextNumber == next)
    }

    @Test(arguments: 1...8 as ClosedRange<UInt64>) func `comes back whatever the values are`(seed: UInt64) async throws {
        var random = RandomRecords(seed: seed)
        let records = (1...200).map { random.record($0) }
        try await withStore(folder.path) { store, _ in
            try await store.commit(records.shuffled().map { .put($0) }, nextNumber: DownloadNumber(201))
        }
        let state = try await reopened(folder.path)
        for (kept, record) in zip(state.records, records) { #expect(kept == record) }
        #expect(state.records.count == records.count)
    }

    @Test(arguments: [
        DownloadState.queued, .waiting(.retry, until: WallTime(microseconds: 5)), .waiting(.pausedAll, until: nil), .active, .paused,
        .verifying, .extracting,
        .committing, .finished, .failed(DownloadFailure(.network, "No route.")), .cancelled,
    ])
    func `has the state it was saved in`(downloadState: DownloadState) async throws {
        var record = plainRecord(1, downloadState)
        if downloadState.hasEnded { record.endedAt = WallTime(microseconds: 9) }
        if downloadState == .finished { record.path = "/d/file" }
        let saved = record
        try await withStore(folder.path) { store, _ in
            try await store.commit([.put(saved)], nextNumber: DownloadNumber(2))
        }
        #expect(try await reopened(folder.path).records.map(\.state) == [downloadState])
    }

    @Test func `is the last of several changes of one record`() async throws {
        try await withStore(folder.path) { store, _ in
            try await store.commit([.put(fullRecord(1)), .put(plainRecord(2)), .put(plainRecord(3))], nextNumber: DownloadNumber(4))
            // Replace a full record by a plain one: no value of the old row stays.
            try await store.commit(
                [.put(plainRecord(1)), .remove(DownloadNumber(2)), .remove(DownloadNumber(77))], nextNumber: DownloadNumber(4))
        }
        #expect(try await reopened(folder.path).records == [plainRecord(1), plainRecord(3)])
    }

    @Test func `has the settings`() async throws {
        var settings = Settings()
        settings.maxActive = .max - 1
        settings.diskReserve = .bytes(5)
        settings.maxPerHost = 0
        settings.speedLimit = .max
        settings.defaultDirectory = "/home/a/ダウンロード"
        settings.paused = true
        try await withStore(folder.path) { store, _ in
            try await store.commit([.set(Settings()), .set(settings)], nextNumber: DownloadNumber(1))
        }
        #expect(try await reopened(folder.path).settings == settings)
    }

    @Test func `has an automatic MaxActive, and takes the largest number of an earlier version for no limit`() async throws {
        try await withStore(folder.path) { store, _ in
            var settings = Settings()
            settings.paused = true
            try await store.commit([.set(settings)], nextNumber: DownloadNumber(1))
        }
        #expect(try await reopened(folder.path).settings.maxActive == Settings.automatic)
        try tamper(folder.path, "UPDATE setting SET value = '4294967295' WHERE key = 'max-active'")
        #expect(try await reopened(folder.path).settings.maxActive == 0)
        try tamper(folder.path, "UPDATE setting SET value = '4' WHERE key = 'max-active'")
        #expect(try await reopened(folder.path).settings.maxActive == 4)
    }

    @Test func `has the last requests, until nothing can be waiting for them any more`() async throws {
        let now = WallTime(microseconds: UInt64(time(nil)) * 1_000_000)
        func request(_ host: String, _ requestInterval: Duration, before: Duration, isSent: Bool = true) -> HostRequest {
            HostRequest(host: host, requestInterval: requestInterval, at: now + (.zero - before), isSent: isSent)
        }
        let wanted = [
            request("a", .seconds(7200), before: .seconds(3600)), request("b", .seconds(60), before: .seconds(3600), isSent: false),
            request("ruled", .zero, before: .seconds(3600)), request("late", .seconds(60), before: .seconds(-3600)),
        ]
        let over = [
            request("a", .seconds(60), before: .seconds(3600)), request("musicbrainz.org", .seconds(1), before: .seconds(3600)),
            request("slow", .zero, before: .seconds(3600)), request("b", .seconds(1), before: .seconds(60 * 24 * 3600), isSent: false),
        ]
        try await withStore(folder.path) { store, _ in
            var settings = Settings()
            try settings.hostRules.set("ruled", HostRule(requestInterval: .seconds(7200)))
            try await store.commit([.set(settings)] + (wanted + over).map { .requested($0) }, nextNumber: DownloadNumber(1))
            try await store.commit(
                [.requested(request("c", .seconds(7200), before: .zero)), .requestOver(host: "c", requestInterval: .seconds(7200))],
                nextNumber: DownloadNumber(1))
        }
        // Rows that cannot be deleted, as on a full disk, do not prevent a start.
        try tamper(folder.path, "CREATE TRIGGER refuse BEFORE DELETE ON request BEGIN SELECT RAISE(ABORT, 'refused by a test'); END")
        func hosts(_ state: StoredState) -> [String] { state.requests.map { "\($0.host) \($0.requestInterval)" }.sorted() }
        #expect(hosts(try await reopened(folder.path)) == hosts(StoredState(requests: wanted)))
        try tamper(folder.path, "DROP TRIGGER refuse")
        #expect(hosts(try await reopened(folder.path)) == hosts(StoredState(requests: wanted)))
        let rows = try Database(StoreFolder(path: folder.path).database, flags: 2).number("SELECT count(*) FROM request")
        #expect(Int(rows) == wanted.count)
    }

    @Test func `has the last requests to so many hosts only`() async throws {
        let now = WallTime(microseconds: UInt64(time(nil)) * 1_000_000)
        let requests = (1...10_100).map {
            HostRequest(host: "h\($0)", requestInterval: .seconds(24 * 3600), at: now + .milliseconds($0 - 100_000), isSent: true)
        }
        try await withStore(folder.path) { store, _ in
            try await store.commit(requests.map { .requested($0) }, nextNumber: DownloadNumber(1))
        }
        for _ in 0..<2 { #expect(Set(try await reopened(folder.path).requests.map(\.host)) == Set(requests.suffix(10_000).map(\.host))) }
        let rows = try Database(StoreFolder(path: folder.path).database, flags: 2).number("SELECT count(*) FROM request")
        #expect(rows == 10_000)
    }

    @Test func `has the batches, and their numbers are among those that only grow`() async throws {
        var full = BatchRecord(number: BatchNumber(9), count: 10_000)
        (full.app, full.directory, full.notify, full.sound) = ("org.example.App", "/home/a/音楽", .never, "")
        (full.title, full.body, full.icon) = ("題", "本文", "folder-music")
        (full.removed, full.removedBytes) = (OutcomeCounts(finished: 1, failed: 2, cancelled: 3), .max)
        full.toastOwedSince = WallTime(microseconds: 30)
        let plain = BatchRecord(number: BatchNumber(7), count: 1)
        for (a, b) in zip(Mirror(reflecting: plain).children, Mirror(reflecting: full).children) {
            #expect("\(a.value)" != "\(b.value)", "\(a.label ?? "")")
        }
        try await withStore(folder.path) { store, _ in
            try await store.commit(
                [
                    .putBatch(BatchRecord(number: BatchNumber(9), count: 1)), .putBatch(plain), .putBatch(full),
                    .putBatch(BatchRecord(number: BatchNumber(8), count: 1)),
                ],
                nextNumber: DownloadNumber(1))
            try await store.commit([.removeBatch(BatchNumber(8)), .removeBatch(BatchNumber(77))], nextNumber: DownloadNumber(1))
        }
        let state = try await reopened(folder.path)
        #expect(state.batches == [plain, full])
        #expect(state.nextNumber == DownloadNumber(10))
    }

    @Test func `has numbers that only grow`() async throws {
        try await withStore(folder.path) { store, _ in
            try await store.commit([.put(plainRecord(7))], nextNumber: DownloadNumber(8))
            try await store.commit([.remove(DownloadNumber(7))], nextNumber: DownloadNumber(3))
        }
        #expect(try await reopened(folder.path).nextNumber == DownloadNumber(8))
        try await withStore(folder.path) { store, _ in
            try await store.commit([], nextNumber: DownloadNumber(20))
            try await store.commit([.put(plainRecord(30))], nextNumber: DownloadNumber(20))
        }
        #expect(try await reopened(folder.path).nextNumber == DownloadNumber(31))
    }

    @Test func `is for the user alone, whatever the mode of existing files`() async throws {
        folder.makeFolder("open")  // 0755
        writeFile(folder("open/todoku.db"), [], mode: 0o644)
        // Swift joins a slash and a combining mark into one character.
        for path in [folder("open"), folder("new/below/it"), folder("other/\u{301}below/it")] {
            try await withStore(path) { store, _ in
                try await store.commit([.put(fullRecord(1))], nextNumber: DownloadNumber(2))
                #expect(permissions(path) == 0o700)
                #expect(Set(listFolder(path)) == ["instance", "todoku.db", "todoku.db-shm", "todoku.db-wal", "todoku.lock"])
                for name in listFolder(path) { #expect(permissions("\(path)/\(name)") == 0o600, "\(name)") }
            }
            #expect(listFolder(path) == ["instance", "todoku.db", "todoku.lock"])
        }
        #expect(permissions(folder("new")) == 0o700)
    }

    @Test func `is waited for as long as its daemon may save after it has released its bus name`() async throws {
        // The second store waits 15 s for the first one.
        let isInTime = try await inTime {
            let (first, second) = (Store(folder: folder.path), Store(folder: folder.path))
            _ = try await first.open()
            let begun = ContinuousClock.now
            async let opened = second.open()
            // A slow disk: three seconds for the last flush.
            #expect(await eventually(within: .seconds(3)) { false } == false)
            await first.close()
            let isQuick = ContinuousClock.now - begun < .seconds(14)
            if isQuick { #expect(try await opened.records == []) } else { _ = try? await opened }
            await second.close()
            return isQuick
        }
        #expect(isInTime, "each time, the first store was closed too late")
    }

    @Test func `keeps no bytes of removed rows`() async throws {
        var record = fullRecord(1)
        record.options.password = "the-secret-of-this-test"
        let secret = Array("the-secret-of-this-test".utf8)
        func isThere() -> Bool { contains(readFile(folder("todoku.db")) ?? [], secret) }
        try await withStore(folder.path) { store, _ in try await store.commit([.put(record)], nextNumber: DownloadNumber(2)) }
        #expect(isThere())
        try await withStore(folder.path) { store, _ in try await store.commit([.remove(record.number)], nextNumber: DownloadNumber(2)) }
        #expect(!isThere())
    }
}

@Suite struct `The log of a database that another program reads` {
    @Test func `delays no commit, and is emptied once it is not read any more`() async throws {
        let folder = TemporaryFolder()
        // Much longer than the commits below take.
        let store = Store(folder: folder.path, mostPages: Store.mostPages, wait: .seconds(120))
        _ = try await store.open()
        var large = plainRecord(1)
        large.options.title = String(repeating: "x", count: 5 << 20)  // more pages than a log has before it is emptied
        let changes = [StoreChange.put(large)]
        try await store.commit(changes, nextNumber: DownloadNumber(2))
        do {
            let reader = try Database(folder("todoku.db"), flags: 2)
            try reader.execute("BEGIN; SELECT count(*) FROM download")
            let start = ContinuousClock.now
            for _ in 1...3 { try await store.commit(changes, nextNumber: DownloadNumber(2)) }
            await store.tidy()
            #expect(ContinuousClock.now - start < .seconds(120))
            try reader.execute("ROLLBACK")
        }
        #expect(readFile(folder("todoku.db-wal"))?.isEmpty == false)
        try await store.commit(changes, nextNumber: DownloadNumber(2))
        #expect(readFile(folder("todoku.db-wal"))?.isEmpty == true)
        // A log that stays behind is known by its length, so that a fault in it is noticed.
        do {
            let reader = try Database(folder("todoku.db"), flags: 2)
            try reader.execute("BEGIN; SELECT count(*) FROM download")
            try await store.commit(changes, nextNumber: DownloadNumber(2))
            await store.close()
            let (left, mark) = (readFile(folder("todoku.db-wal")), StoreFolder(path: folder.path).mark)
            #expect(left?.isEmpty == false && mark != nil)
            try reader.execute("ROLLBACK")
        }
        #expect(try await reopened(folder.path).records == [large])
    }

    @Test func `keeps the file of the database from being completed`() throws {
        let folder = TemporaryFolder()
        let place = StoreFolder(path: folder.path)
        let session = try Session(place, place.makeDatabase(), first: DownloadNumber(1), wait: .zero, mostPages: Store.mostPages)
        try session.commit([[.put(plainRecord(1))]], nextNumber: DownloadNumber(2))
        do {
            let reader = try Database(folder("todoku.db"), flags: 2)
            try reader.execute("BEGIN; SELECT count(*) FROM download")
            do throws(StoreError) {
                try session.completeFile()
                Issue.record("the log is still read")
            } catch { #expect(error.reason == .inUse, "\(error)") }
            try reader.execute("ROLLBACK")
        }
        try session.completeFile()
        #expect(readFile(folder("todoku.db-wal"))?.isEmpty == true)
    }
}
