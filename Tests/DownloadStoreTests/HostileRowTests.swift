internal import DownloadModel
internal import TestSupport
internal import Testing

@testable internal import DownloadStore

/// Rows that Todoku would never write. The fuzzer found them.
@Suite struct `A row with a number that is never given` {
    private let folder = TemporaryFolder()

    @Test(arguments: [-1, Int64.max, Int64.min, 0]) func `is kept, and does not affect the next number`(number: Int64) async throws {
        try await withStore(folder.path) { store, _ in
            try await store.commit([.put(plainRecord(1)), .put(plainRecord(2))], nextNumber: DownloadNumber(3))
        }
        try tamper("UPDATE download SET number = \(number) WHERE number = 1")
        let state = try await reopened(folder.path)
        #expect(state.records.count == 2)
        #expect(state.records.contains(plainRecord(2)))
        #expect(state.nextNumber == DownloadNumber(3))
    }

    @Test(arguments: [-1, Int64.max]) func `is kept though it is the only one`(number: Int64) async throws {
        try await withStore(folder.path) { store, _ in try await store.commit([.put(plainRecord(1))], nextNumber: DownloadNumber(2)) }
        try tamper("UPDATE download SET number = \(number); DELETE FROM setting")
        let state = try await reopened(folder.path)
        #expect(state.records.map(\.number.value) == [UInt64(bitPattern: number)])
        #expect(state.nextNumber == DownloadNumber(1))
    }

    @Test(arguments: ["18446744073709551615", "9223372036854775807", "9223372036854775808", "-1"])
    func `in the next number's place is not mistaken for one`(text: String) async throws {
        try await withStore(folder.path) { store, _ in
            try await store.commit([.put(plainRecord(7))], nextNumber: DownloadNumber(9))
        }
        try tamper("UPDATE setting SET value = '\(text)' WHERE key = 'next-number'")
        #expect(try await reopened(folder.path).nextNumber == DownloadNumber(8))
        try await withStore(folder.path) { store, _ in
            try await store.commit([.put(plainRecord(8))], nextNumber: DownloadNumber(9))
        }
        #expect(try await reopened(folder.path).nextNumber == DownloadNumber(9))
    }

    private func tamper(_ sql: String) throws { try Database(StoreFolder(path: folder.path).database, flags: 2).execute(sql) }
}

@Suite struct `A row with ranges that no Todoku wrote` {
    private let folder = TemporaryFolder()

    @Test(arguments: ["5..<9", "17..<20", "30..<20", "20..<30 25..<40", "20..<18446744073709551616", "all"])
    func `is kept, and its download starts from 0`(text: String) async throws {
        try await withStore(folder.path) { store, _ in
            try await store.commit([.put(fullRecord(1))], nextNumber: DownloadNumber(2))
        }
        try Database(StoreFolder(path: folder.path).database, flags: 2).execute("UPDATE course SET resume_further = '\(text)'")
        var known = fullRecord(1)
        known.resume = nil
        #expect(try await reopened(folder.path).records == [known])
    }
}

@Suite struct `A row with a digest or proof that no Todoku wrote` {
    private let folder = TemporaryFolder()

    private func read(_ change: String) async throws -> [DownloadRecord] {
        try await withStore(folder.path) { store, _ in
            try await store.commit([.put(fullRecord(1))], nextNumber: DownloadNumber(2))
        }
        try Database(StoreFolder(path: folder.path).database, flags: 2).execute("UPDATE course SET \(change)")
        return try await reopened(folder.path).records
    }

    @Test(arguments: ["", "sha256", "sha256:00", "crc32:00000000"]) func `is kept, and its download starts from 0`(text: String)
        async throws
    {
        var known = fullRecord(1)
        known.resume = nil
        #expect(try await read("resume_digest = '\(text)'") == [known])
    }

    @Test func `is kept without the sources that nobody can read`() async throws {
        var known = fullRecord(1)
        known.sources = []
        #expect(try await read("sources = 'x'") == [known])
        known.sources = [SourceRecord(url: "u", received: 1)]
        #expect(try await read("sources = '1 hope u' || char(10) || '1 - u' || char(10) || '-1 - u' || char(10) || '1 -'") == [known])
    }

    @Test func `is kept without the proof`() async throws {
        var known = fullRecord(1)
        known.proof = nil
        #expect(try await read("proof = 'hope'") == [known])
    }
}

@Suite struct `A finished row with an empty row of its course` {
    private let folder = TemporaryFolder()

    @Test func `reads the same when it was written again`() async throws {
        try await withStore(folder.path) { store, _ in
            try await store.commit([.put(fullRecord(1))], nextNumber: DownloadNumber(2))
        }
        try Database(StoreFolder(path: folder.path).database, flags: 2).execute(
            """
            UPDATE download SET state = 'finished'; DELETE FROM course;
            INSERT INTO course (number, attempts, retries_used, awaits_url, is_spliced, has_started_over, is_whole)
            VALUES (1, 0, 0, 0, 0, 0, 0)
            """)
        let first = try await reopened(folder.path).records
        #expect(first.first?.endedAt != nil)
        try await withStore(folder.path) { store, _ in
            try await store.commit([.remove(DownloadNumber(1))], nextNumber: DownloadNumber(2))
            try await store.commit(first.map { .put($0) }, nextNumber: DownloadNumber(2))
        }
        #expect(try await reopened(folder.path).records == first)
    }
}

@Suite struct `A row with a file name that leads elsewhere` {
    private let folder = TemporaryFolder()

    private func stored(_ state: DownloadState) async throws {
        var record = fullRecord(1)
        (record.state, record.endedAt, record.isFetch) = (state, nil, false)
        (record.fileName, record.options.fileName, record.path) = ("name.iso", "wish.iso", nil)
        let row = record
        try await withStore(folder.path) { store, _ in try await store.commit([.put(row)], nextNumber: DownloadNumber(2)) }
    }

    private func tamper(_ sql: String) throws { try Database(StoreFolder(path: folder.path).database, flags: 2).execute(sql) }

    @Test(arguments: [
        ("../up.iso", "up.iso"), ("/etc/passwd", "passwd"), ("a/../../up", "up"), (".bashrc", "bashrc"), ("..", nil), ("", nil), ("/", nil),
    ])
    func `gives the file a name in its folder`(name: String, expected: String?) async throws {
        try await stored(.committing)
        try tamper("UPDATE course SET file_name = '\(name)'")
        #expect(try await reopened(folder.path).records.map(\.finalName) == [expected ?? "wish.iso"])
        try tamper(
            "UPDATE download SET options = replace(options, 'filename=wish.iso', 'filename=\(name)'); UPDATE course SET file_name = NULL")
        #expect(try await reopened(folder.path).records.map(\.finalName) == [expected ?? "file-1.iso"])
    }

    /// Its row of `course`, which has the path, is lost.
    @Test func `tells no path outside the folder of a finished download`() async throws {
        try await stored(.finished)
        try tamper("DELETE FROM course; UPDATE download SET options = replace(options, 'filename=wish.iso', 'filename=../up.iso')")
        let record = try #require(try await reopened(folder.path).records.first)
        #expect(record.path == nil && record.state.failure?.name == .storage)
    }
}
