import DownloadModel
import EventLoop
import Glibc
import TestSupport
import Testing

@testable internal import PartFiles
@testable internal import TransferEngine

extension TransferRequest {
    /// - Parameter hashes: the option `piece-hashes`.
    fileprivate mutating func check(_ hashes: String, size: Int, mirrors: [String] = [], connections: UInt32 = 1) {
        (pieces, expectedSize, hasChecksum, self.connections) = (try? PieceHashes(hashes), ByteCount(size), true, connections)
        guard !mirrors.isEmpty else { return }
        sources = [TransferSource(url)]
        for (place, mirror) in mirrors.compactMap({ try? DownloadURL($0) }).enumerated() {
            sources.append(TransferSource(mirror, mirror: UInt32(place)))
        }
        mixesSources = true
    }
}

@Suite(.timeLimit(.minutes(5))) struct `Pieces of a transfer` {
    static let file = patternBytes(4_000_000)
    static let length = 262_144
    /// 4,000,000 bytes are 15 pieces and a part of one.
    static let lastPiece = 15 * 262_144

    /// The file with other bytes at these places.
    private static func damaged(_ places: Int...) -> [UInt8] {
        var bytes = file
        for place in places { bytes[place] ^= 0xFF }
        return bytes
    }

    @Test func `that are all right need no further request`() async throws {
        let hashes = await pieceHashes(of: Self.file, length: Self.length)
        for (number, connections) in [1, 4].enumerated() {
            let server = ScriptedServer { request, reply in reply.serve(Self.file, for: request, entityTag: "\"v1\"") }
            let fixture = await EngineFixture()
            let end = try await fixture.run(server.url(), number: 1) {
                $0.check(hashes, size: Self.file.count, connections: UInt32(connections))
            }
            #expect(end.complete?.size == 4_000_000 && fixture.part == Self.file, "case \(number)")
            if connections == 1 { #expect(server.requests.count == 1) }
        }
    }

    /// The wrong byte is found while the body still comes.
    @Test func `that are wrong lead to another source, which brings them and the rest`() async throws {
        let hashes = await pieceHashes(of: Self.file, length: Self.length)
        let (bad, gate) = (Self.damaged(600_000), Gate())
        let main = ScriptedServer { request, reply in
            reply.head(200, ["ETag": "\"v1\"", "Repr-Digest": "sha-256=:\(String(repeating: "A", count: 43))=:"], length: bad.count)
            reply.send(bad[..<2_000_000])
            gate.wait()
        }
        let mirror = ScriptedServer { request, reply in
            reply.serve(Self.file, for: request, fields: ["Repr-Digest": "sha-256=:\(String(repeating: "B", count: 43))=:"])
        }
        let fixture = await EngineFixture()
        let end = try await fixture.run(main.url()) { $0.check(hashes, size: Self.file.count, mirrors: [mirror.url()]) }
        gate.open()
        #expect(end.complete?.size == 4_000_000 && fixture.part == Self.file)
        #expect(main.requests.count == 1)
        // The piece from 524,288 to 786,431 is missing, and the rest from 2,000,000. If the server was slow, the piece was found wrong
        // while fewer bytes had come: the rest begins earlier, or just behind the piece, and then it is one range with the piece.
        let (firsts, lasts) = (mirror.requests.map { $0.range?.first ?? 0 }, mirror.requests.map { $0.range?.last })
        #expect(firsts.first == 524_288 && firsts.count <= 2)
        #expect(lasts == (firsts.count == 2 ? [786_431, nil] : [nil]))
        #expect(firsts.count < 2 || 786_433...2_000_000 ~= firsts[1], "\(firsts)")
        #expect(await fixture.log.sources.map(\.left) == [.wrongBytes, nil])
    }

    @Test(arguments: [0, 1_000_000, 3_999_999]) func `of the only server are fetched once more, and nothing else is`(
        place: Int
    ) async throws {
        let hashes = await pieceHashes(of: Self.file, length: Self.length)
        let bad = Self.damaged(place)
        let server = ScriptedServer { request, reply in
            reply.serve(request.number == 0 ? bad : Self.file, for: request, entityTag: "\"v1\"")
        }
        let fixture = await EngineFixture()
        let end = try await fixture.run(server.url()) { $0.check(hashes, size: Self.file.count) }
        #expect(end.complete?.size == 4_000_000 && fixture.part == Self.file)
        let start = place / Self.length * Self.length
        #expect(server.requests.map { $0.range?.first } == [nil, start])
        #expect(server.requests[1].range?.last ?? Self.file.count - 1 == min(start + Self.length, Self.file.count) - 1)
    }

    /// The response states no size, and its last piece is found wrong before its body ends.
    @Test func `of the only server, whose chunked body has not ended yet, are fetched once more`() async throws {
        let hashes = await pieceHashes(of: Self.file, length: Self.length)
        let (bad, last, found) = (Self.damaged(3_999_999), Gate(), Gate())
        let server = ScriptedServer { request, reply in
            guard request.number == 0 else { return reply.serve(Self.file, for: request, entityTag: "\"v1\"") }
            reply.head(200, ["ETag": "\"v1\"", "Transfer-Encoding": "chunked"])
            reply.chunk(bad[..<3_999_000])
            last.wait()
            reply.chunk(bad[3_999_000...])
            found.wait()
            reply.chunk([])
        }
        let fixture = await EngineFixture()
        let request = try fixture.request(server.url()) { $0.check(hashes, size: Self.file.count) }
        fixture.engine.start(request)
        await fixture.log.received(3_999_000)
        last.open()
        // After more bytes were reported, only a wrong last piece makes them so few again.
        await fixture.log.wait { _ in fixture.log.received == ByteCount(Self.lastPiece) }
        found.open()
        let end = await fixture.log.end(of: request.number)
        #expect(end.complete?.size == 4_000_000 && fixture.part == Self.file, "\(end)")
        #expect(server.requests.map { $0.range?.first } == [nil, Self.lastPiece])
    }

    @Test func `of the only server that stay wrong fail the transfer`() async throws {
        let hashes = await pieceHashes(of: Self.file, length: Self.length)
        let bad = Self.damaged(1_000_000)
        let server = ScriptedServer { request, reply in reply.serve(bad, for: request, entityTag: "\"v1\"") }
        let fixture = await EngineFixture()
        let end = try await fixture.run(server.url()) { $0.check(hashes, size: Self.file.count) }
        #expect(end.failure?.name == .checksumMismatch && end.failure?.isRetryable == false)
        // As in every sentence about a wrong digest: the computed one, and then the expected one.
        let stated = try PieceHashes(hashes)
        let computed = try PieceHashes(await pieceHashes(of: bad, length: Self.length))
        let (expected, own) = (try #require(stated.checksum(of: 3)), try #require(computed.checksum(of: 3)))
        #expect(end.failure?.message == "127.0.0.1 sent wrong bytes: the bytes 786432 to 1048575 have \(own), not \(expected).")
        #expect(server.requests.map { $0.range?.first } == [nil, 786_432])
    }

    /// The whole file comes again, into another part file.
    @Test func `of the only server, which sends no ranges, fail the transfer the second time`() async throws {
        let hashes = await pieceHashes(of: Self.file, length: Self.length)
        let bad = Self.damaged(1_000_000)
        let server = ScriptedServer { request, reply in reply.respond(200, body: bad) }
        let fixture = await EngineFixture()
        let end = try await fixture.run(server.url()) { $0.check(hashes, size: Self.file.count) }
        #expect(end.failure?.name == .checksumMismatch && server.requests.count == 2)
    }

    @Test func `that no source has right fail the transfer, and each source is asked once`() async throws {
        let hashes = await pieceHashes(of: Self.file, length: Self.length)
        let bad = Self.damaged(3_999_999)
        let servers = (0..<3).map { _ in ScriptedServer { request, reply in reply.serve(bad, for: request, entityTag: "\"v1\"") } }
        let fixture = await EngineFixture()
        let end = try await fixture.run(servers[0].url()) {
            $0.check(hashes, size: Self.file.count, mirrors: [servers[1].url(), servers[2].url()])
        }
        #expect(end.failure?.name == .checksumMismatch)
        #expect(servers.map { $0.requests.map { $0.range?.first } } == [[nil], [Self.lastPiece], [Self.lastPiece]])
        #expect(await fixture.log.sources.map(\.left) == [.wrongBytes, .wrongBytes, .wrongBytes])
    }

    /// The next transfer asks it for the wrong piece. If that was found before the mirror had sent all, the rest is missing, too.
    @Test func `that are wrong do not fail the download if another source has only failed for now`() async throws {
        let hashes = await pieceHashes(of: Self.file, length: Self.length)
        let bad = Self.damaged(1_000_000)
        let main = ScriptedServer { request, reply in
            guard request.number > 0 else { return reply.respond(503, ["Retry-After": "7"]) }
            reply.serve(Self.file, for: request)
        }
        let mirror = ScriptedServer { request, reply in reply.serve(bad, for: request, entityTag: "\"v1\"") }
        let fixture = await EngineFixture()
        var request = try fixture.request(main.url()) { $0.check(hashes, size: Self.file.count, mirrors: [mirror.url()]) }
        let end = await fixture.run(request)
        #expect(end.failure?.httpStatus == 503 && end.failure?.isRetryable == true && end.failure?.retryAfter == .seconds(7), "\(end)")
        #expect(await fixture.log.sources.map(\.left) == [.httpStatus, .wrongBytes])
        (request.resume, request.sources[1].hasWrongBytes) = (end.resume, true)
        let next = await fixture.run(request)
        #expect(next.complete?.size == 4_000_000 && fixture.part == Self.file)
        #expect(main.requests[1].range?.first == 786_432 && mirror.requests.count == 1)
    }

    /// As after a crash: an earlier transfer has left bytes that are wrong.
    @Test func `that an earlier transfer has left are checked, and nobody is blamed`() async throws {
        let hashes = await pieceHashes(of: Self.file, length: Self.length)
        let (bad, gate) = (Self.damaged(300_000), Gate())
        let server = ScriptedServer { request, reply in
            guard request.number == 0 else { return reply.serve(Self.file, for: request, entityTag: "\"v1\"") }
            reply.head(200, ["ETag": "\"v1\""], length: bad.count)
            reply.send(bad[..<2_000_000])
            gate.wait()
        }
        let mirror = ScriptedServer { request, reply in reply.serve(Self.file, for: request) }
        let fixture = await EngineFixture()
        // The first transfer does not know the hashes.
        var request = try fixture.request(server.url())
        fixture.engine.start(request)
        await fixture.log.received(2_000_000)
        fixture.engine.stop(request.number)
        request.resume = await fixture.log.end(of: request.number).resume
        gate.open()
        request.check(hashes, size: Self.file.count, mirrors: [mirror.url()])
        let end = await fixture.run(request)
        #expect(end.complete?.size == 4_000_000 && fixture.part == Self.file)
        #expect(server.requests.map { $0.range?.first } == [nil, 2_000_000, 262_144] && mirror.requests.isEmpty)
        #expect(await fixture.log.sources.allSatisfy { $0.left == nil })
    }

    /// Serves a range as a link would that brings 64 KiB in 5 ms.
    private static func slowly(_ reply: Reply, _ bytes: [UInt8], _ request: ScriptedServer.Request, _ tag: String) {
        let (first, last) = (request.range?.first ?? 0, request.range?.last ?? bytes.count - 1)
        let status = request.range == nil ? 200 : 206
        reply.head(status, ["ETag": tag, "Content-Range": "bytes \(first)-\(last)/\(bytes.count)"], length: last - first + 1)
        for start in stride(from: first, through: last, by: 65_536) {
            usleep(5000)
            guard reply.send(bytes[start..<min(start + 65_536, last + 1)]) else { return }
        }
    }

    /// Several sources at a time, some of them with wrong bytes anywhere.
    @Test func `from many connections are right in the end, and only the guilty are left`() async throws {
        let hashes = await pieceHashes(of: Self.file, length: 65_536)
        func server(_ bytes: [UInt8], _ tag: String) -> ScriptedServer {
            ScriptedServer { request, reply in Self.slowly(reply, bytes, request, tag) }
        }
        var guilty = 0
        for seed in 1...20 as ClosedRange<UInt64> {
            var random = SeededRandom(seed)
            let bads = (0..<2).map { _ in
                var bytes = Self.file
                for _ in 0..<5 { bytes[Int.random(in: 0..<bytes.count, using: &random)] ^= 0xFF }
                return bytes
            }
            let (good, servers) = (server(Self.file, "\"good\""), bads.map { server($0, "\"bad\"") })
            let fixture = await EngineFixture()
            let end = try await fixture.run(servers[0].url()) {
                $0.check(hashes, size: Self.file.count, mirrors: [servers[1].url(), good.url()], connections: 4)
            }
            #expect(end.complete?.size == 4_000_000 && fixture.part == Self.file, "seed \(seed)")
            let left = await fixture.log.sources.map(\.left)
            #expect(left.count == 3 && left[2] == nil && left[..<2].allSatisfy { $0 == nil || $0 == .wrongBytes }, "seed \(seed): \(left)")
            guilty += left.count { $0 != nil }
        }
        // A busy machine may let the good source bring most of the bytes.
        #expect(guilty >= 5, "of forty sources with five wrong bytes each")
    }

    /// Both sources write each try of the only piece, until one alone must fetch it.
    @Test func `that several have written again are fetched by one, which answers for them`() async throws {
        let hashes = await pieceHashes(of: Self.file, length: Self.file.count)
        let bad = Self.damaged(3_900_000, 100_000)
        let main = ScriptedServer { request, reply in Self.slowly(reply, bad, request, "\"bad\"") }
        let mirror = ScriptedServer { request, reply in Self.slowly(reply, Self.file, request, "\"good\"") }
        let fixture = await EngineFixture()
        let end = try await fixture.run(main.url()) {
            $0.check(hashes, size: Self.file.count, mirrors: [mirror.url()], connections: 2)
        }
        #expect(end.complete?.size == 4_000_000 && fixture.part == Self.file, "\(end)")
        #expect(await fixture.log.sources.last?.left == nil)
    }

    @Test func `are not checked if they do not fit the size`() async throws {
        let hashes = await pieceHashes(of: Self.file, length: Self.length)
        let server = ScriptedServer { request, reply in reply.serve(Self.file, for: request) }
        let fixture = await EngineFixture()
        let end = try await fixture.run(server.url()) { $0.check(hashes, size: 5_000_000) }
        #expect(end.failure?.name == .sizeMismatch)
    }
}

@Suite struct `The check of a piece` {
    private static let hashes = PieceHashes(.md5, length: 1_000_000, digests: Array(repeating: 0, count: 16))!

    @Test func `asks before each read whether it goes on, and reads nothing more if not`() throws {
        let folder = TemporaryFolder("todoku-check")
        writeFile(folder("part"), patternBytes(1_000_000))
        let file = open(folder("part"), O_RDONLY | O_CLOEXEC)
        defer { close(file) }
        var questions = 0
        func check(atMost reads: Int) throws(DiskError) -> [Int: [UInt8]] {
            questions = 0
            return try Digest.wrongPieces(0..<1, of: Self.hashes, size: 1_000_000, in: file) {
                questions += 1
                return questions <= reads
            }
        }
        let wrong = try check(atMost: 10)
        #expect(Array(wrong.keys) == [0] && questions == 4, "256 KiB at a time")
        #expect(throws: DiskError("read the part file", ECANCELED)) { _ = try check(atMost: 2) }
        #expect(questions == 3)
    }
}

extension PieceLedger {
    fileprivate func begin(_ number: UInt64, in written: ByteRanges) -> Range<Int>? {
        begin(number, in: written, DiskWork(on: DiskAnswers()))
    }
}

@Suite struct `The ledger of pieces` {
    private func ledger(_ count: Int, size: ByteCount, length: ByteCount = 10, held: ByteRanges = ByteRanges()) -> PieceLedger {
        PieceLedger(PieceHashes(.md5, length: length, digests: Array(repeating: 0, count: 16 * count))!, size: size, held: held)
    }

    @Test func `checks what is whole, in runs, and once`() {
        let ledger = ledger(4, size: 35)
        #expect(ledger.begin(1, in: ByteRanges([0..<9, 15..<35])) == 2..<4)
        #expect(ledger.begin(2, in: ByteRanges([0..<35])) == nil, "a check is under way")
        #expect(ledger.end(wrong: []) == [] && !ledger.isDone)
        #expect(ledger.begin(3, in: ByteRanges([0..<19])) == 0..<1)
        #expect(ledger.end(wrong: []) == [])
        #expect(ledger.begin(4, in: ByteRanges([0..<19])) == nil)
        #expect(ledger.begin(5, in: ByteRanges([0..<35])) == 1..<2)
        #expect(ledger.end(wrong: []) == [] && ledger.isDone && !ledger.hasFailed)
    }

    @Test func `bounds a run by its bytes`() {
        let ledger = ledger(40, size: 40 << 20, length: 1 << 20)
        #expect(ledger.begin(1, in: ByteRanges([0..<40 << 20])) == 0..<8)
        let large = self.ledger(2, size: 60 << 20, length: 40 << 20)
        #expect(large.begin(1, in: ByteRanges([0..<60 << 20])) == 0..<1)
    }

    @Test func `knows who has written a piece alone`() {
        let ledger = ledger(4, size: 40, held: ByteRanges([0..<5]))
        ledger.wrote(5..<12, 0)
        ledger.wrote(12..<25, 1)
        ledger.wrote(25..<26, 1)
        #expect((0..<4).map(ledger.writer) == [.several, .several, .source(1), .nobody])
        #expect(ledger.forget(1) == 1 && ledger.writer(of: 1) == .nobody && ledger.hasFailed)
        ledger.wrote(10..<20, 2)
        #expect(ledger.writer(of: 1) == .source(2) && ledger.forget(1) == 2)
        ledger.wrote(0..<0, 2)
        ledger.wrote(39..<1000, 3)
        #expect(ledger.writer(of: 0) == .several && ledger.writer(of: 3) == .source(3) && ledger.writer(of: 4) == .nobody)
    }

    @Test func `believes no result about bytes that were written since`() {
        let ledger = ledger(2, size: 20)
        ledger.wrote(0..<20, 0)
        #expect(ledger.begin(1, in: ByteRanges([0..<20])) == 0..<2)
        ledger.wrote(5..<6, 1)
        #expect(ledger.end(wrong: [0]) == [] && !ledger.isDone)
        #expect(ledger.begin(2, in: ByteRanges([0..<20])) == 0..<1)
        #expect(ledger.end(wrong: []) == [] && ledger.isDone)
        ledger.wrote(19..<20, 0)
        #expect(!ledger.isDone && ledger.begin(3, in: ByteRanges([0..<20])) == 1..<2)
        #expect(ledger.end(wrong: [1]) == [1])
    }
}
