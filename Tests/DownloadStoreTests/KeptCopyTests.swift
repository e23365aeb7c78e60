internal import DownloadModel
internal import TestSupport
internal import Testing

@testable internal import DownloadStore

/// Testing has a type of this name, too.
private typealias Attachment = DownloadStore.Attachment

@Suite struct `The copy that a reset or a restore keeps` {
    private let folder = TemporaryFolder()
    private let target = TemporaryFolder()
    private let attachments = [Attachment(name: "push/a", bytes: [1, 2, 0]), Attachment(name: "push/b", bytes: [])]

    private func save(_ changes: [StoreChange], next: UInt64) async throws {
        try await withStore(folder.path) { store, _ in try await store.commit(changes, nextNumber: DownloadNumber(next)) }
    }

    /// The rows of a backup, as a daemon would read them from it.
    private func content(of backup: String) async throws -> StoredState {
        let folder = TemporaryFolder()
        writeFile(folder("todoku.db"), try #require(readFile(backup)))
        return try await reopened(folder.path)
    }

    private func finished(_ number: UInt64) -> DownloadRecord {
        var record = plainRecord(number, .finished)
        (record.fileName, record.endedAt) = ("file-\(number).iso", record.queuedAt)
        return record
    }

    @Test func `has what came after it was first made, and what the reset has cancelled as it was`() async throws {
        // The numbers of members follow that of their batch.
        var member = plainRecord(3)
        member.batch = DownloadNumber(2)
        let batch = BatchRecord(number: DownloadNumber(2), count: 1)
        try await save(
            [.put(plainRecord(1)), .addBatch(batch, [member]), .put(finished(4)), .put(plainRecord(5))], next: 6)
        _ = try Store.backUp(
            folder: folder.path, to: target("b"), withSecrets: false, attachments: [Attachment(name: "push/old", bytes: [9])])
        // Cancelled; cancelled and off the list; finished; queued by another program.
        var (later, ended) = (plainRecord(6), batch)
        later.options.password = "the-password"
        ended.removed.cancelled = 1
        let (queued, left) = (later, ended)
        try await save(
            [
                .put(plainRecord(1, .cancelled)), .sweep(DownloadNumber(1), directory: plainRecord(1).directory),
                .remove(DownloadNumber(3)), .putBatch(left), .put(finished(5)), .put(queued),
            ], next: 7)
        let reset = try Store.reset(folder: folder.path, settingAside: false, refreshing: target("b"), attachments: attachments)
        #expect(reset.backup?.downloads == 5 && reset.backup?.unfinished == 3 && reset.setAside == nil)
        var bare = queued
        bare.options.forgetSecrets()
        let kept = try await content(of: target("b"))
        #expect(kept.records == [plainRecord(1), member, finished(4), finished(5), bare])
        #expect(kept.batches == [batch] && kept.sweeps.isEmpty && kept.nextNumber == DownloadNumber(7))
        #expect(!contains(try #require(readFile(target("b"))), Array("the-password".utf8)) && permissions(target("b")) == 0o600)
        #expect(try Store.inspect(backup: target("b")).attachments == attachments && listFolder(target.path) == ["b"])
        #expect(try await reopened(folder.path).records.isEmpty)
    }

    /// The service was killed while it cancelled the downloads.
    @Test func `does not continue an interrupted cancelling once it is restored`() async throws {
        try await save([.put(plainRecord(1)), .put(plainRecord(2))], next: 3)
        _ = try Store.backUp(folder: folder.path, to: target("b"), withSecrets: false)
        var settings = Settings()
        (settings.cancelsThrough, settings.maxPerHost) = (DownloadNumber(2), 3)
        let interrupted = settings
        try await save([.set(interrupted), .put(plainRecord(1, .cancelled))], next: 3)
        _ = try Store.reset(folder: folder.path, settingAside: false, refreshing: target("b"))
        let kept = try await content(of: target("b"))
        #expect(kept.records == [plainRecord(1), plainRecord(2)])
        #expect(kept.settings.cancelsThrough == nil && kept.settings.maxPerHost == 3)
    }

    @Test func `has an update of an asset that the reset has cancelled, but not one that has ended`() async throws {
        func asset(_ name: String, installed: String, pending: UInt64?) -> AssetRecord {
            var record = RandomAssets.plain(name)
            record.installed = AssetVersion(version: installed, folder: "version-\(installed)")
            guard let pending, let digest = Checksum(.sha256, digest: Array(repeating: 1, count: 32)) else { return record }
            record.pending = PendingUpdate(
                manifest: AssetManifest(version: "2", url: "https://h/2", sha256: digest), folder: "version-2")
            record.pending?.download = DownloadNumber(pending)
            return record
        }
        let cancelled = asset("cancelled", installed: "1", pending: 1)
        try await save(
            [
                .put(plainRecord(1)), .put(plainRecord(2)), .put(plainRecord(3)), .putAsset(cancelled),
                .putAsset(asset("gone", installed: "1", pending: 2)), .putAsset(asset("updated", installed: "1", pending: 3)),
            ], next: 4)
        _ = try Store.backUp(folder: folder.path, to: target("b"), withSecrets: false)
        let updated = asset("updated", installed: "2", pending: nil)
        try await save(
            [
                .remove(DownloadNumber(1)), .remove(DownloadNumber(2)), .put(plainRecord(3, .finished)), .putAsset(updated),
                .putAsset(asset("cancelled", installed: "1", pending: nil)), .removeAsset(RandomAssets.plain("gone").key),
            ], next: 4)
        _ = try Store.reset(folder: folder.path, settingAside: false, refreshing: target("b"))
        #expect(try await content(of: target("b")).assets == [cancelled, updated])
    }

    @Test func `is not made while a daemon keeps the folder`() async throws {
        try await withStore(folder.path) { store, _ in
            try await store.commit([.put(plainRecord(1))], nextNumber: DownloadNumber(2))
            let copy = try Store.backUp(folder: folder.path, to: target("b"), withSecrets: false)
            let before = readFile(target("b"))
            let copies = Store.Copies(refreshed: copy.path, attachments: attachments)
            let error = await storeError {
                _ = try Store.reset(
                    folder: folder.path, settingAside: false, copies, wait: .milliseconds(20), hold: .milliseconds(20))
            }
            #expect(error?.reason == .inUse && readFile(target("b")) == before)
        }
    }

    @Test func `of a restore has the queue as it was at the end of the service`() async throws {
        try await save([.put(plainRecord(1))], next: 2)
        _ = try Store.backUp(folder: folder.path, to: target("b"), withSecrets: true, attachments: attachments)
        try await save([.put(plainRecord(2))], next: 3)
        let restored = try Store.restore(folder: folder.path, from: target("b"), keeping: target("kept"), attachments: attachments)
        #expect(restored.backup?.downloads == 2 && restored.restored.downloads == 1)
        #expect(try await content(of: target("kept")).records == [plainRecord(1), plainRecord(2)])
        #expect(try Store.inspect(backup: target("kept")).attachments == attachments)
        #expect(try await reopened(folder.path).records == [plainRecord(1)])
        // What belongs to other programs is no part of the queue.
        let tables = try Database(folder("todoku.db"), flags: 2).number("SELECT count(*) FROM sqlite_schema WHERE name = 'attachment'")
        #expect(tables == 0)
    }

    @Test func `of a folder without a queue has the attachments, and restores an empty queue`() async throws {
        let absent = TemporaryFolder()
        let backup = try Store.backUp(folder: absent.path, to: target("b"), withSecrets: false, attachments: attachments)
        #expect(backup.downloads == 0 && listFolder(absent.path).isEmpty)
        #expect(try Store.inspect(backup: target("b")).attachments == attachments)
        _ = try Store.restore(folder: absent.path, from: target("b"), keeping: target("kept"))
        #expect(try await reopened(absent.path).records.isEmpty && !fileExists(target("kept")))
    }

    @Test func `is not made of attachments that no restore would read`() async {
        let whole = [UInt8](repeating: 0, count: Attachment.longest)
        let long = Attachment(name: "long", bytes: whole + [0])
        let named = Attachment(name: String(repeating: "n", count: 256), bytes: [])
        let many = (0...Attachment.most).map { Attachment(name: "\($0)", bytes: []) }
        let large = (0...256).map { Attachment(name: "\($0)", bytes: whole) }
        for odd in [[long], [named], many, large] {
            let error = await storeError {
                _ = try Store.backUp(folder: folder.path, to: target("b"), withSecrets: true, attachments: odd)
            }
            #expect(error?.reason == .storage && listFolder(target.path).isEmpty, "\(odd.count)")
        }
    }

    @Test func `is refused if its attachments are longer, or more, than ours, or lie in another table`() async throws {
        try await save([.put(plainRecord(1))], next: 2)
        let (long, many) = ("INSERT INTO attachment VALUES ('long', zeroblob(\(Attachment.longest + 1)))", Attachment.most + 1)
        let name = "INSERT INTO attachment VALUES (hex(zeroblob(200)), x'')"
        let more =
            """
            WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < \(many))
            INSERT INTO attachment SELECT 'n' || i, x'' FROM n
            """
        // A row of a few bytes would be read as three million, and its length as 1.
        let computed =
            """
            DROP TABLE attachment; CREATE TABLE Attachment (name TEXT, content TEXT AS ('a' || CAST(zeroblob(3000000) AS TEXT)));
            INSERT INTO Attachment (name) VALUES ('push/settings')
            """
        let loose = "DROP TABLE attachment; CREATE TABLE attachment (name, content); INSERT INTO attachment VALUES (1, x'00')"
        for (index, sql) in [long, name, more, computed, loose].enumerated() {
            let path = target("\(index)")
            _ = try Store.backUp(folder: folder.path, to: path, withSecrets: true, attachments: attachments)
            try Database(path, flags: 2).execute(sql)
            #expect(await storeError { _ = try Store.inspect(backup: path) }?.reason == .damaged, "\(sql)")
            #expect(await storeError { _ = try Store.restore(folder: folder.path, from: path) }?.reason == .damaged, "\(sql)")
        }
        #expect(try await reopened(folder.path).records == [plainRecord(1)])
    }
}
