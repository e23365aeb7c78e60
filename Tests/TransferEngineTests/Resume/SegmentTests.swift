import DownloadModel
import EventLoop
import Glibc
import TestSupport
import Testing

@testable internal import PartFiles
@testable internal import TransferEngine

/// Bytes that several connections left. The tests write the bytes as the engine would.
@Suite(.timeLimit(.minutes(5))) struct `What several connections left` {
    static let file = patternBytes(3_000_000)
    static let held = ByteRanges([0..<500_000, 1_000_000..<1_500_000, 2_000_000..<2_400_000])

    /// A part file that holds `held` of the file, with its map.
    private func leave(_ fixture: EngineFixture, held: ByteRanges = Self.held, hasMap: Bool = true) throws -> ResumeData {
        let folder = try OpenFolder.open(fixture.folder.path, allowHidden: true)
        let part = try PartFile.create(
            in: folder, name: ".todoku-1.part", mapPath: hasMap ? fixture.folder("map-1") : nil, boot: bootIdentity())
        (part.validator, part.total, part.isResumable) = (.entityTag("\"v1\""), 3_000_000, true)
        // Write like connections that take turns, the last one first.
        var rest = held.ranges
        while !rest.isEmpty {
            for index in rest.indices.reversed() {
                let next = rest[index].prefix(70_000)
                try Self.file[Int(next.startIndex)..<Int(next.endIndex)].withUnsafeBytes { try part.write($0, at: next.startIndex) }
                rest[index] = next.endIndex..<rest[index].upperBound
            }
            rest.removeAll(where: \.isEmpty)
        }
        #expect(part.ranges == held)
        return try #require(part.resumeData(part.ranges))
    }

    /// Fetches two small gaps one after the other: only the first connection is permitted, and further requests wait.
    ///
    /// - Parameter second: answers the request for the second gap.
    private func run(_ fixture: EngineFixture, second: @escaping @Sendable (Reply) -> Void) async throws -> (TransferEnd, ScriptedServer) {
        let asked = Gate()
        defer { asked.open() }
        await fixture.log.permit { [weak engine = fixture.engine] id, question in
            if id.ordinal == 0 { engine?.permit(id, question: question, tellsSent: false) } else { asked.open() }
        }
        let server = ScriptedServer { request, reply in
            switch request.number {
            case 0:
                reply.head(206, ["ETag": "\"v1\"", "Content-Range": "bytes 500000-599999/3000000"], length: 100_000)
                reply.send(Self.file[500_000..<501_000])
                asked.wait()
                reply.send(Self.file[501_000..<600_000])
            case 1: second(reply)
            default: reply.serve(Self.file, for: request, entityTag: "\"v1\"")
            }
        }
        let resume = try leave(fixture, held: ByteRanges([0..<500_000, 600_000..<1_000_000, 1_100_000..<3_000_000]))
        let end = try await fixture.run(server.url("/file.bin")) { ($0.resume, $0.connections) = (resume, 8) }
        return (end, server)
    }

    private func ranges(_ server: ScriptedServer) -> [String?] { server.requests.map { $0.field("Range") } }

    @Test(arguments: [true, false]) func `is completed gap by gap, by what the map or the record proves`(hasMap: Bool) async throws {
        let server = ScriptedServer { request, reply in reply.serve(Self.file, for: request, entityTag: "\"v1\"") }
        let fixture = await EngineFixture()
        let resume = try leave(fixture, hasMap: hasMap)
        let end = try await fixture.run(server.url("/file.bin")) { $0.resume = hasMap ? nil : resume }
        #expect(end.complete?.size == 3_000_000 && fixture.part == Self.file)
        #expect(ranges(server) == ["bytes=500000-999999", "bytes=1500000-1999999", "bytes=2400000-"])
        #expect(server.requests.allSatisfy { $0.field("If-Range") == "\"v1\"" })
        let facts = await fixture.log.facts()
        #expect(facts.map(\.offset) == [1_400_000] && facts.allSatisfy { !$0.discarded && $0.isResumable })
    }

    @Test func `is kept when the transfer of a gap is cut, and the next transfer resumes from it`() async throws {
        let server = ScriptedServer { request, reply in
            guard request.number == 1 else { return reply.serve(Self.file, for: request, entityTag: "\"v1\"") }
            reply.head(206, ["ETag": "\"v1\"", "Content-Range": "bytes 1500000-1999999/3000000"], length: 500_000)
            reply.send(Self.file[1_500_000..<1_700_000])
            reply.close()
        }
        let fixture = await EngineFixture()
        let resume = try leave(fixture)
        let cut = try await fixture.run(server.url("/file.bin")) { $0.resume = resume }
        let held = ByteRanges([0..<1_700_000, 2_000_000..<2_400_000])
        #expect(cut.resume?.ranges == held && cut.resume?.written == 2_100_000)
        #expect(cut.failure?.name == .truncated)
        #expect(await fixture.log.checkpoints().last?.ranges == held)
        #expect(try await fixture.run(server.url("/file.bin")) { $0.resume = cut.resume }.complete?.size == 3_000_000)
        #expect(fixture.part == Self.file)
        #expect(
            ranges(server) == ["bytes=500000-999999", "bytes=1500000-1999999", "bytes=1700000-1999999", "bytes=2400000-"])
    }

    @Test func `is completed by a server that gives less than a gap at a time`() async throws {
        let server = ScriptedServer { request, reply in
            let (first, last) = request.range ?? (0, nil)
            let end = min(first + 300_000, (last ?? Self.file.count - 1) + 1)
            reply.head(206, ["ETag": "\"v1\"", "Content-Range": "bytes \(first)-\(end - 1)/3000000"], length: end - first)
            reply.send(Self.file[first..<end])
        }
        let fixture = await EngineFixture()
        _ = try leave(fixture)
        #expect(try await fixture.run(server.url("/file.bin")).complete?.size == 3_000_000)
        #expect(fixture.part == Self.file)
        #expect(ranges(server).prefix(3) == ["bytes=500000-999999", "bytes=800000-999999", "bytes=1500000-1999999"])
    }

    /// The connection that has brought the first gap ends before the request for the other gap counts as silent.
    @Test func `is completed although a request for a gap gets no response, and no other connection is left`() async throws {
        let (asked, end) = (Gate(), Gate())
        defer { for gate in [asked, end] { gate.open() } }
        let server = ScriptedServer { request, reply in
            switch request.number {
            case 0:
                reply.head(206, ["ETag": "\"v1\"", "Content-Range": "bytes 500000-999999/3000000"], length: 500_000)
                reply.send(Self.file[500_000..<501_000])
                asked.wait()
                reply.send(Self.file[501_000..<1_000_000])
            case 1:
                asked.open()
                end.wait()
            default: reply.serve(Self.file, for: request, entityTag: "\"v1\"")
            }
        }
        let fixture = await EngineFixture()
        let resume = try leave(fixture, held: ByteRanges([0..<500_000, 1_000_000..<1_500_000]))
        // Without another request, it would stall until the time limit of the suite.
        let transferEnd = try await fixture.run(server.url("/file.bin")) {
            ($0.resume, $0.connections, $0.stallTimeout) = (resume, 2, .seconds(3600))
            $0.takeOverAfter = Transfer.takeOverAfter
        }
        #expect(transferEnd.complete?.size == 3_000_000 && fixture.part == Self.file)
        #expect(server.requests.map { $0.range?.first } == [500_000, 1_500_000, 1_500_000])
    }

    @Test func `is completed by a server without ranges, from its first gap on`() async throws {
        let server = ScriptedServer { _, reply in
            reply.head(200, ["ETag": "\"v1\"", "Accept-Ranges": "none"], length: Self.file.count)
            reply.send(Self.file)
        }
        let fixture = await EngineFixture()
        _ = try leave(fixture)
        #expect(try await fixture.run(server.url("/file.bin")).complete?.size == 3_000_000)
        #expect(fixture.part == Self.file)
        #expect(await fixture.log.facts().map(\.offset) == [1_400_000])
    }

    /// Of several nodes behind one name, one ignores a range that has a condition.
    @Test func `is kept when a range is ignored while further requests wait`() async throws {
        let fixture = await EngineFixture()
        let (end, server) = try await run(fixture) { $0.respond(200, ["ETag": "\"v1\"", "Accept-Ranges": "bytes"], body: Self.file) }
        #expect(end.complete?.size == 3_000_000 && fixture.part == Self.file)
        #expect(ranges(server) == ["bytes=500000-599999", "bytes=1000000-1099999", "bytes=1000000-1099999"])
        #expect(server.requests.map { $0.field("If-Range") } == ["\"v1\"", "\"v1\"", nil])
        #expect(await fixture.log.facts().allSatisfy { !$0.discarded })
    }

    @Test func `is dropped for another version only once that version has more bytes`() async throws {
        let new = Array(Self.file.reversed())
        let server = ScriptedServer { request, reply in
            guard request.number == 0 else { return reply.serve(new, for: request, entityTag: "\"v2\"") }
            reply.head(200, ["ETag": "\"v2\""], length: new.count)
            reply.send(new[..<1_000_000])
            reply.close()
        }
        let fixture = await EngineFixture()
        let resume = try leave(fixture)
        let cut = try await fixture.run(server.url("/file.bin")) { $0.resume = resume }
        #expect(cut.resume?.ranges == Self.held && cut.resume?.validator == .entityTag("\"v1\""))
        #expect(try await fixture.run(server.url("/file.bin")) { $0.resume = cut.resume }.complete?.size == 3_000_000)
        #expect(fixture.part == new)
        #expect(await fixture.log.facts().last?.discarded == true)
    }

    /// The new version is whole, although the request was for a small gap of the old one.
    @Test func `is replaced by another version that comes while further requests wait`() async throws {
        let new = Array(Self.file.reversed())
        let fixture = await EngineFixture()
        let (end, server) = try await run(fixture) { $0.respond(200, ["ETag": "\"v2\""], body: new) }
        #expect(end.complete?.size == 3_000_000 && fixture.part == new)
        #expect(ranges(server) == ["bytes=500000-599999", "bytes=1000000-1099999"])
    }

    @Test func `is replaced by another version, whose response keeps its part of the file when a further connection joins`() async throws {
        let new = Array(Self.file.reversed())
        let joined = Gate()
        defer { joined.open() }
        let server = ScriptedServer { request, reply in
            guard request.number == 0 else {
                joined.open()
                return reply.serve(new, for: request, entityTag: "\"v2\"")
            }
            reply.head(200, ["ETag": "\"v2\"", "Accept-Ranges": "bytes"], length: new.count)
            reply.send(new[..<500_000])
            joined.wait()
            reply.send(new[500_000...])
        }
        let fixture = await EngineFixture()
        let resume = try leave(fixture, held: ByteRanges([0..<100_000, 200_000..<300_000]))
        let end = try await fixture.run(server.url("/file.bin")) { ($0.resume, $0.connections) = (resume, 2) }
        #expect(end.complete?.size == 3_000_000 && fixture.part == new)
        // The further connection fetches the back half of what is missing.
        let firsts = server.requests.map { $0.range?.first ?? 0 }
        #expect(firsts.count >= 2 && firsts[0] == 100_000 && firsts[1] > 1_000_000, "\(firsts)")
    }

    @Test func `is not whole while its first bytes are missing`() async throws {
        let server = ScriptedServer { request, reply in reply.serve(Self.file, for: request, entityTag: "\"v1\"") }
        let fixture = await EngineFixture()
        _ = try leave(fixture, held: ByteRanges([100_000..<3_000_000]))
        #expect(try await fixture.run(server.url("/file.bin")).complete?.size == 3_000_000)
        #expect(fixture.part == Self.file && ranges(server) == ["bytes=0-99999"])
    }

    /// The first bytes are written last, a few at a time. Otherwise a wrong first piece would be fetched again for each write.
    @Test func `grows in front of as many ranges as can be kept`() throws {
        let folder = TemporaryFolder("todoku-ranges")
        let part = try PartFile.create(
            in: OpenFolder.open(folder.path, allowHidden: true), name: ".todoku-1.part", mapPath: nil, boot: bootIdentity())
        func write(_ range: Range<Int>) throws {
            try Self.file[range].withUnsafeBytes { try part.write($0, at: ByteCount(range.lowerBound)) }
        }
        for index in 1...ByteRanges.mostRanges { try write(100 * index..<100 * index + 50) }
        for index in 0..<5 { try write(10 * index..<10 * index + 10) }
        #expect(part.ranges.prefixEnd == 50 && part.ranges.ranges.count == ByteRanges.mostRanges)
    }

    @Test func `counts only as far as the file is long`() async throws {
        let server = ScriptedServer { request, reply in reply.serve(Self.file, for: request, entityTag: "\"v1\"") }
        let fixture = await EngineFixture()
        let resume = try leave(fixture)
        #expect(truncate(fixture.folder(".todoku-1.part"), 1_200_000) == 0)
        #expect(try await fixture.run(server.url("/file.bin")) { $0.resume = resume }.complete?.size == 3_000_000)
        #expect(fixture.part == Self.file && ranges(server) == ["bytes=500000-999999", "bytes=1200000-"])
    }

    @Test func `survives a flush that fails, as far as the record knows it`() async throws {
        let server = ScriptedServer { request, reply in
            guard request.number == 1 else { return reply.serve(Self.file, for: request, entityTag: "\"v1\"") }
            reply.head(206, ["ETag": "\"v1\"", "Content-Range": "bytes 1500000-1999999/3000000"], length: 500_000)
            reply.send(Self.file[1_500_000..<1_700_000])
            reply.close()
        }
        let fixture = await EngineFixture(flush: { _ in EIO })
        let resume = try leave(fixture)
        let end = try await fixture.run(server.url("/file.bin")) { $0.resume = resume }
        // Bytes that the record proves still count. Later bytes do not, and no map claims them.
        #expect(end.failure?.name == .writeFailed && end.resume?.ranges == Self.held)
        #expect(!fileExists(fixture.folder("map-1")))
    }
}
