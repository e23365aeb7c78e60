internal import DownloadModel
internal import EventLoop
internal import TestSupport
internal import Testing

@testable internal import DownloadStore

/// Assets with any value in any field that the model allows.
struct RandomAssets {
    private var generator: SeededRandom
    init(seed: UInt64) { generator = SeededRandom(seed) }

    static func plain(_ name: String) -> AssetRecord {
        var options = DownloadOptions()
        options.app = "org.example.App"
        guard let key = try? AssetKey(app: options.app, name: name) else { preconditionFailure("\(name) is no name") }
        return AssetRecord(
            key: key, manifestURL: "https://h/\(name).json", options: options, directory: "/home/a/assets/\(name)")
    }

    private static let alphabet = Array("aZ09 _-./:;,\"'\\%?#&=ダウンé🎌\u{301}")

    private mutating func text() -> String {
        String((0..<Int.random(in: 0...24, using: &generator)).map { _ in Self.alphabet.randomElement(using: &generator)! })
    }

    private mutating func perhaps<V>(_ value: (inout RandomAssets) -> V) -> V? {
        Bool.random(using: &generator) ? value(&self) : nil
    }

    private mutating func number() -> UInt64 {
        [0, 1, UInt64(Int64.max), .max, .random(in: 0 ... .max, using: &generator)].randomElement(using: &generator)!
    }

    private mutating func digest() -> Checksum {
        Checksum(.sha256, digest: (0..<32).map { _ in .random(in: 0 ... .max, using: &generator) })!
    }

    private mutating func folder() -> String { "version-\(number())" }

    private mutating func version() -> AssetVersion {
        AssetVersion(
            version: text(), folder: folder(), sha256: perhaps { $0.digest() }, timestamp: perhaps { WallTime(microseconds: $0.number()) },
            size: perhaps { $0.size() })
    }

    private mutating func size() -> FolderSize { FolderSize(entries: number(), bytes: number()) }

    private mutating func pending() -> PendingUpdate {
        let manifest = AssetManifest(
            version: text(), url: text(), sha256: digest(), size: perhaps { $0.number() }, unpackedSize: perhaps { $0.number() },
            timestamp: perhaps { WallTime(microseconds: $0.number()) }, mirrors: ["https://a/" + text(), "https://b/"])
        var pending = PendingUpdate(
            manifest: manifest, folder: folder(), step: PendingUpdate.Step.allCases.randomElement(using: &generator)!)
        pending.download = perhaps { DownloadNumber($0.number()) }
        pending.unpacked = perhaps { $0.size() }
        pending.source = Int.random(in: 0...32, using: &generator)
        (pending.isRunning, pending.isBackground) = (.random(using: &generator), .random(using: &generator))
        return pending
    }

    mutating func next(_ name: String) -> AssetRecord {
        var record = Self.plain(name)
        record.options.title = perhaps { $0.text() }
        record.options.allowsMetered = .random(using: &generator)
        record.options.isSandboxed = .random(using: &generator)
        record.options.isNamedByPublicServer = perhaps { Bool.random(using: &$0.generator) }
        record.publicKey = perhaps { Array($0.digest().digest) } ?? []
        record.update = AssetUpdatePolicy.allCases.randomElement(using: &generator)!
        (record.installed, record.previous, record.left) = (perhaps { $0.version() }, version(), perhaps { $0.version() })
        (record.skipped, record.latest) = (perhaps { $0.text() }, perhaps { $0.text() })
        record.isObsolete = .random(using: &generator)
        record.checkedAt = perhaps { WallTime(microseconds: $0.number()) }
        record.pending = perhaps { $0.pending() }
        (record.isRollingBack, record.isLeaving) = (.random(using: &generator), .random(using: &generator))
        (record.deletesData, record.isCancelled, record.owesCall) = (
            .random(using: &generator), .random(using: &generator), .random(using: &generator)
        )
        record.failure = perhaps { random in
            DownloadFailure(
                ErrorName.allCases.randomElement(using: &random.generator)!, random.text(),
                httpStatus: random.perhaps { .random(in: 0 ... .max, using: &$0.generator) }, isRetryable: .random(using: &random.generator)
            )
        }
        record.lastFolder = number()
        record.removals = (0..<Int.random(in: 0...3, using: &generator)).map { _ in
            AssetRemoval(folder: folder(), keepsFolder: .random(using: &generator), download: perhaps { DownloadNumber($0.number()) })
        }
        return record
    }
}

@Suite struct `A stored asset` {
    private let folder = TemporaryFolder()

    private func save(_ changes: [StoreChange]) async throws {
        try await withStore(folder.path) { store, _ in try await store.commit(changes, nextNumber: DownloadNumber(1)) }
    }

    private func tamper(_ sql: String) throws { try Database(StoreFolder(path: folder.path).database, flags: 2).execute(sql) }

    @Test func `is read as it was written, whatever it holds`() async throws {
        var random = RandomAssets(seed: 1)
        let records = (0..<200).map { random.next("a\(format3($0))") }
        try await save(records.map { .putAsset($0) })
        #expect(try await reopened(folder.path).assets == records)
    }

    @Test func `that was checked just now is not due, in the same second either`() async throws {
        var record = RandomAssets.plain("maps")
        record.update = .daily
        try await save([.putAsset(record)])
        #expect(Store.hasDueChecks(folder: folder.path, session: "") && Store.hasPending(folder: folder.path))
        (record.checkedAt, record.triedAt) = (WallTime(microseconds: wallClock()), WallTime(microseconds: wallClock()))
        try await save([.putAsset(record)])
        #expect(!Store.hasDueChecks(folder: folder.path, session: "") && !Store.hasPending(folder: folder.path))
    }

    @Test func `of version 9 has all but what was unpacked`() async throws {
        var random = RandomAssets(seed: 3)
        var records = (0..<40).map { random.next("a\(format3($0))") }
        try await save(records.map { .putAsset($0) })
        for version in ["installed", "previous", "left", "pending"] {
            try tamper("ALTER TABLE asset DROP COLUMN \(version)_entries; ALTER TABLE asset DROP COLUMN \(version)_bytes")
        }
        try tamper("PRAGMA user_version = 9")
        for index in records.indices {
            records[index].installed?.size = nil
            records[index].previous?.size = nil
            records[index].left?.size = nil
            records[index].pending?.unpacked = nil
        }
        #expect(try await reopened(folder.path).assets == records)
    }

    @Test func `is replaced and removed by its key`() async throws {
        var changed = RandomAssets.plain("maps")
        try await save([.putAsset(changed), .putAsset(RandomAssets.plain("voices"))])
        changed.update = .daily
        try await save([.putAsset(changed), .removeAsset(RandomAssets.plain("voices").key)])
        #expect(try await reopened(folder.path).assets == [changed])
    }

    @Test func `comes back from a damaged database`() async throws {
        var random = RandomAssets(seed: 2)
        let records = (0..<40).map { random.next("a\(format3($0))") }
        try await save(records.map { .putAsset($0) } + [.put(plainRecord(1))])
        // The first page has the schema; without it SQLite reads nothing.
        var bytes = try #require(readFile(folder("todoku.db")))
        for index in 100..<1000 { bytes[index] = 0xFF }
        writeFile(folder("todoku.db"), bytes, mode: 0o600)
        let state = try await reopened(folder.path)
        #expect(state.setAside != nil && state.assets == records)
    }

    @Test(arguments: [
        "name = '../x'", "app = ''", "directory = 'relative'", "directory = ''",
    ]) func `that names no folder of ours is left out, and the others stay`(change: String) async throws {
        try await save([.putAsset(RandomAssets.plain("maps")), .putAsset(RandomAssets.plain("voices"))])
        try tamper("UPDATE asset SET \(change) WHERE name = 'maps'")
        #expect(try await reopened(folder.path).assets == [RandomAssets.plain("voices")])
    }

    @Test(arguments: ["../../home", "version-", "version-1/..", "Documents", "version-１", ""])
    func `never has a folder deleted that is not a version’s`(name: String) async throws {
        var record = RandomAssets.plain("maps")
        record.installed = AssetVersion(version: "1", folder: "version-1")
        record.removals = [AssetRemoval(folder: "version-2", keepsFolder: false)]
        record.pending = PendingUpdate(
            manifest: AssetManifest(version: "2", url: "https://h/2", sha256: Checksum(.sha256, digest: Array(repeating: 1, count: 32))!),
            folder: "version-3")
        try await save([.putAsset(record)])
        try tamper("UPDATE asset SET installed_folder = '\(name)', pending_folder = '\(name)', removals = 'delete \(name)'")
        let read = try #require(try await reopened(folder.path).assets.first)
        #expect(read.folders.isEmpty)
    }

    @Test func `keeps a key that cannot be read, so that no manifest passes unsigned`() async throws {
        var record = RandomAssets.plain("maps")
        record.publicKey = Array(repeating: 7, count: 32)
        try await save([.putAsset(record)])
        try tamper("UPDATE asset SET public_key = x'0102'")
        #expect(try await reopened(folder.path).assets.first?.publicKey == [1, 2])
    }

    @Test(arguments: [
        ("updates = 'manual'", false), ("updates = 'login'", true), ("updates = 'daily'", true), ("is_leaving = 1", true),
        ("is_rolling_back = 1", true), ("owes_call = 1", true), ("removals = 'delete version-1' || char(10)", true),
        ("pending_folder = 'version-1', pending_is_running = 0", false), ("pending_folder = 'version-1', pending_is_running = 1", true),
    ]) func `calls for a service at login if there is something to do`(change: String, isPending: Bool) async throws {
        try await save([.putAsset(RandomAssets.plain("maps"))])
        try tamper("UPDATE asset SET \(change)")
        #expect(Store.hasPending(folder: folder.path) == isPending)
    }
}

private func format3(_ number: Int) -> String { String(repeating: "0", count: 3 - "\(number)".count) + "\(number)" }

@Suite struct `The archive that an asset fetched at the time of a backup` {
    @Test func `is restored only if the asset still waits for it`() async throws {
        let (folder, target) = (TemporaryFolder(), TemporaryFolder())
        let manifest = AssetManifest(
            version: "2", url: "https://h/a.zip", sha256: try Checksum("sha256:" + String(repeating: "0", count: 64)), size: 9)
        var (fetching, archive) = (RandomAssets.plain("a"), plainRecord(7))
        fetching.pending = PendingUpdate(manifest: manifest, folder: "version-2", step: .downloading)
        fetching.pending?.download = archive.number
        archive.directory = fetching.directory
        archive.attempts = 1  // so that it has a row of `course`
        let (then, other) = ([StoreChange.putAsset(fetching), .put(archive)], plainRecord(8))
        try await withStore(folder.path) { store, _ in
            try await store.commit(then + [.put(other)], nextNumber: DownloadNumber(9))
        }
        _ = try Store.backUp(folder: folder.path, to: target("b"), withSecrets: true)
        // The update has ended since.
        var installed = fetching
        installed.pending = nil
        let now = [StoreChange.putAsset(installed), .remove(archive.number)]
        try await withStore(folder.path) { store, _ in try await store.commit(now, nextNumber: DownloadNumber(9)) }
        _ = try Store.restore(folder: folder.path, from: target("b"))
        let without = try await reopened(folder.path)
        let courses = try Database(folder("todoku.db"), flags: 2).number("SELECT count(*) FROM course")
        #expect(without.records == [other] && without.assets == [installed] && courses == 0, "\(without.records)")
        // The update is under way, as it was.
        try await withStore(folder.path) { store, _ in try await store.commit(then, nextNumber: DownloadNumber(9)) }
        _ = try Store.restore(folder: folder.path, from: target("b"))
        let with = try await reopened(folder.path)
        #expect(with.records == [archive, other] && with.assets == [fetching], "\(with.records)")
    }
}
