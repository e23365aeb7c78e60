import DownloadModel
import EventLoop
import Glibc
import TestSupport
import Testing

@testable internal import PartFiles
@testable internal import TransferEngine

/// Serves `file`. After 100,000 bytes, the first response waits for `gate`.
private func heldServer(_ file: [UInt8], until gate: Gate) -> ScriptedServer {
    ScriptedServer { request, reply in
        guard request.number == 0 else { return reply.serve(file, for: request, entityTag: "\"v1\"") }
        reply.head(200, ["ETag": "\"v1\"", "Accept-Ranges": "bytes"], length: file.count)
        reply.send(file[..<100_000])
        gate.wait()
        reply.send(file[100_000...])
    }
}

@Suite(.timeLimit(.minutes(5))) struct `Automatic connections to sources that mix` {
    /// The first server sends the rest only once the other one has brought bytes.
    @Test func `use each from the beginning`() async throws {
        let file = patternBytes(12_000_000)
        let gate = Gate()
        let main = heldServer(file, until: gate)
        let mirror = ScriptedServer { request, reply in reply.serve(file, for: request, entityTag: "\"other\"") }
        let fixture = await EngineFixture()
        async let run = fixture.run(main.url("/file.bin")) {
            $0.use([mirror.url("/copy.bin")], mixes: true)
            $0.connections = 0
        }
        await fixture.log.received(200_000)
        gate.open()
        let end = try await run
        #expect(end.complete?.size == 12_000_000 && fixture.part == file)
        // Each server is first asked for its own part. A server that is done may then be asked for a part of the other server's rest.
        #expect(main.requests.first?.field("Range") == nil && (mirror.requests.first?.range?.first ?? 0) > 100_000)
        #expect(await fixture.log.sources.allSatisfy { $0.received > 0 })
    }

    /// Half of the file would be worth a request.
    @Test func `are one for a small file`() async throws {
        let file = patternBytes(8 << 20 - 1)
        let gate = Gate()
        let server = heldServer(file, until: gate)
        let fixture = await EngineFixture()
        async let run = fixture.run(server.url("/file.bin")) {
            $0.use([server.url("/copy.bin")], mixes: true)
            $0.connections = 0
        }
        // The engine chooses the number of connections before it reports these bytes.
        await fixture.log.received(100_000)
        gate.open()
        let end = try await run
        #expect(end.complete?.size == ByteCount(file.count) && server.requests.map(\.path) == ["/file.bin"])
        #expect(await fixture.log.asked.isEmpty)
    }
}

@Suite(.timeLimit(.minutes(5))) struct `Sources of a transfer without a checksum` {
    static let file = patternBytes(2_000_000)
    static let other = [UInt8](repeating: 0xEE, count: 2_000_000)

    /// Both servers send the same validator, although their files differ: bytes of one must never follow bytes of the other.
    @Test func `are tried one after another, each from the first byte`() async throws {
        let main = breakingServer(Self.other, after: 900_000)
        let mirror = ScriptedServer { request, reply in reply.serve(Self.file, for: request, entityTag: "\"v1\"") }
        let fixture = await EngineFixture()
        let end = try await fixture.run(main.url("/file.bin")) { $0.use([mirror.url("/copy.bin")]) }
        #expect(end.complete?.size == 2_000_000 && fixture.part == Self.file)
        // The source that has brought bytes is asked for the rest first.
        #expect(main.requests.map { $0.range?.first } == [nil, 900_000] && main.requests[1].field("If-Range") == "\"v1\"")
        #expect(mirror.requests.count == 1 && mirror.requests[0].field("Range") == nil)
        let facts = await fixture.log.facts()
        #expect(facts.last?.offset == 0 && facts.last?.source == mirror.url("/copy.bin"))
        #expect(facts.last?.fileName == "file.bin", "the URL of the download gives the name")
        let sources = await fixture.log.sources
        #expect(sources.map(\.received) == [900_000, 2_000_000] && sources.map(\.left) == [.httpStatus, nil])
    }

    enum Trouble: CaseIterable, Sendable { case closed, notFound, unavailable, tooMany, wrongType, wrongSize, loop, downgrade, silent }

    @Test(arguments: Trouble.allCases) func `give way to the next one at once, whatever fails`(trouble: Trouble) async throws {
        let gate = Gate()
        let main = ScriptedServer { request, reply in
            switch trouble {
            case .closed: reply.reset()
            case .notFound: reply.respond(404)
            case .unavailable: reply.respond(503, ["Retry-After": "3600"])
            case .tooMany: reply.respond(429)
            case .wrongType: reply.respond(200, ["Content-Type": "text/html"], text: "log in")
            case .wrongSize: reply.respond(200, ["Content-Type": "application/octet-stream"], text: "short")
            case .loop: reply.respond(302, ["Location": "/file.bin"])
            case .downgrade: reply.respond(302, ["Location": "ftp://127.0.0.1/"])
            case .silent: gate.wait()
            }
        }
        let mirror = ScriptedServer { request, reply in reply.serve(Self.file, for: request, entityTag: "\"v1\"") }
        let fixture = await EngineFixture()
        let end = try await fixture.run(main.url("/file.bin")) {
            $0.use([mirror.url("/file.bin")])
            $0.expectedType = "application/octet-stream"
            if trouble == .wrongSize { $0.expectedSize = 2_000_000 }
            if trouble == .silent { $0.stallTimeout = .seconds(40) }  // applies to the good server, too, however busy the machine is
        }
        gate.open()
        #expect(end.complete?.size == 2_000_000 && fixture.part == Self.file)
        #expect(mirror.requests.count == 1)
        let (sources, moves) = (await fixture.log.sources, await fixture.log.moves)
        let left: SourceFault =
            switch trouble {
            case .closed: .network
            case .notFound, .unavailable, .tooMany: .httpStatus
            case .wrongType: .wrongType
            case .wrongSize: .wrongSize
            case .loop, .downgrade: .redirect
            case .silent: .timeout
            }
        #expect(sources.map(\.left) == [left, nil])
        if trouble == .unavailable { #expect(moves.first?.retryAfter == .seconds(3600), "the scheduler learns of the refusal") }
    }

    /// The first response is chunked, so nothing is known about the size. The next one states a size that no file can have.
    @Test(arguments: [true, false]) func `give way to the next one if no disk can hold the stated size`(hasMirror: Bool) async throws {
        let main = ScriptedServer { request, reply in
            if request.number == 0 {
                reply.head(200, ["ETag": "\"v1\"", "Transfer-Encoding": "chunked"])
                reply.chunk(Self.file[..<900_000])
            } else {
                reply.head(206, ["ETag": "\"v1\"", "Content-Range": "bytes 900000-18446744073709551613/18446744073709551614"])
            }
            reply.close()
        }
        let mirror = ScriptedServer { request, reply in
            if hasMirror { reply.serve(Self.file, for: request) } else { reply.respond(404) }
        }
        let fixture = await EngineFixture()
        let end = try await fixture.run(main.url()) { $0.use([mirror.url()]) }
        #expect(main.requests.map { $0.range?.first } == [nil, 900_000] && mirror.requests.count == 1)
        #expect(await fixture.log.sources.map(\.left) == [.wrongSize, hasMirror ? nil : .httpStatus])
        if hasMirror {
            #expect(end.complete?.size == 2_000_000 && fixture.part == Self.file)
        } else {
            #expect(end.failure?.name == .diskFull, "the first source’s: \(end)")
        }
    }

    @Test func `that all fail leave the most hopeful failure`() async throws {
        func server(_ status: Int, _ pause: String? = nil) -> ScriptedServer {
            ScriptedServer { _, reply in pause.map { reply.respond(status, ["Retry-After": $0]) } ?? reply.respond(status) }
        }
        let (gone, missing, busy, later) = (server(410), server(404), server(503, "7"), server(503, "3600"))
        let fixture = await EngineFixture()
        let hopeless = try await fixture.run(gone.url()) { $0.use([missing.url()]) }
        #expect(hopeless.failure?.httpStatus == 410, "the first source’s")
        let hopeful = try await fixture.run(gone.url()) { $0.use([missing.url(), later.url(), busy.url()]) }
        #expect(hopeful.failure?.httpStatus == 503 && hopeful.failure?.retryAfter == .seconds(7))
        #expect(try hopeful.failure?.origin == DownloadURL(busy.url()).origin, "the pause is that server’s")
        #expect([gone, missing, busy, later].map(\.requests.count) == [2, 2, 1, 1], "each is asked once")
    }

    /// The scheduler would hold back further requests to this server.
    @Test func `at a server that has requested a pause are asked after all others`() async throws {
        let busy = ScriptedServer { _, reply in reply.respond(503, ["Retry-After": "3600"]) }
        let free = ScriptedServer { request, reply in reply.serve(Self.file, for: request) }
        let fixture = await EngineFixture()
        let end = try await fixture.run(busy.url("/a")) { $0.use([busy.url("/b"), free.url("/a")]) }
        #expect(end.complete?.size == 2_000_000 && fixture.part == Self.file)
        #expect(busy.requests.map(\.path) == ["/a"] && free.requests.count == 1)
        #expect(await fixture.log.sources.map(\.left) == [.httpStatus, nil, nil])
        let refused = try await fixture.run(busy.url("/a"), number: 2) { $0.use([busy.url("/b")]) }
        #expect(refused.failure?.httpStatus == 503 && busy.requests.map(\.path) == ["/a", "/a", "/b"])
    }

    @Test func `are not asked after a failure on this side`() async throws {
        let main = ScriptedServer { request, reply in reply.serve(Self.file, for: request) }
        let mirror = ScriptedServer { request, reply in reply.serve(Self.file, for: request) }
        let fixture = await EngineFixture()
        let end = try await fixture.run(main.url()) {
            $0.use([mirror.url()])
            $0.maxSize = 1000
        }
        #expect(end.failure?.name == .tooLarge && mirror.requests.isEmpty)
        let folder = try await fixture.run(main.url(), number: 2) {
            $0.use([mirror.url()])
            $0.directory = fixture.folder("missing")
        }
        #expect(folder.failure?.wait == .destination && mirror.requests.isEmpty)
    }

    @Test func `get headers, credentials and referrer only at the origin of the URL`() async throws {
        let main = ScriptedServer { request, reply in
            if request.field("Authorization") == nil { return reply.respond(401, ["WWW-Authenticate": "Basic realm=\"r\""]) }
            reply.respond(404)
        }
        let mirror = ScriptedServer { request, reply in
            if request.number == 0 { return reply.respond(401, ["WWW-Authenticate": "Basic realm=\"r\""]) }
            reply.serve(Self.file, for: request)
        }
        let fixture = await EngineFixture()
        let end = try await fixture.run(main.url()) {
            $0.use([mirror.url(), mirror.url("/second")])
            $0.headers = [HeaderField(name: "X-Secret", value: "1")]
            ($0.username, $0.password, $0.referrer) = ("me", "secret", "http://example.org/")
        }
        #expect(end.complete != nil && main.requests.count == 2 && main.requests.allSatisfy { $0.field("X-Secret") == "1" })
        #expect(mirror.requests.map(\.path) == ["/", "/second"])
        let fields = mirror.requests.flatMap { $0.fields.map { $0.name.lowercased() } }
        #expect(!fields.contains("x-secret") && !fields.contains("authorization") && !fields.contains("referer"))
    }

    @Test func `with wrong bytes are not asked`() async throws {
        let main = ScriptedServer { request, reply in reply.serve(Self.other, for: request) }
        let mirror = ScriptedServer { request, reply in reply.serve(Self.file, for: request) }
        let fixture = await EngineFixture()
        let end = try await fixture.run(main.url()) {
            $0.use([mirror.url()])
            ($0.sources[0].hasWrongBytes, $0.firstSource) = (true, 1)
        }
        #expect(end.complete != nil && main.requests.isEmpty && fixture.part == Self.file)
        #expect(await fixture.log.sources.map(\.left) == [.wrongBytes, nil])
    }

    /// As after a restart: by the checkpoint, or only by the written map, as after a kill.
    @Test(arguments: [true, false]) func `go on with the one whose bytes are held`(hasRow: Bool) async throws {
        let gate = Gate()
        let main = ScriptedServer { request, reply in
            if request.number == 0 { reply.respond(404) } else { reply.serve(Self.other, for: request, entityTag: "\"v1\"") }
        }
        let mirror = ScriptedServer { request, reply in
            guard request.number == 0 else { return reply.serve(Self.file, for: request, entityTag: "\"v1\"") }
            reply.head(200, ["ETag": "\"v1\""], length: Self.file.count)
            reply.send(Self.file[..<900_000])
            gate.wait()
        }
        let fixture = await EngineFixture()
        var request = try fixture.request(main.url()) { $0.use([mirror.url()]) }
        fixture.engine.start(request)
        await fixture.log.received(900_000)
        fixture.engine.stop(request.number)
        let stopped = await fixture.log.end(of: request.number)
        gate.open()
        #expect(stopped.resume?.mirror == 0)
        if hasRow { (request.resume, request.firstSource) = (stopped.resume, 1) }
        #expect(await fixture.run(request).complete != nil && fixture.part == Self.file)
        #expect(main.requests.count == 1 && mirror.requests.map { $0.range?.first } == [nil, 900_000])
    }
}

@Suite(.timeLimit(.minutes(5))) struct `Sources of a transfer with a checksum` {
    static let file = patternBytes(8_000_000)

    @Test func `go on where another one has stopped`() async throws {
        let main = breakingServer(Self.file, after: 3_000_000)
        let mirror = ScriptedServer { request, reply in reply.serve(Self.file, for: request, entityTag: "\"of the mirror\"") }
        let fixture = await EngineFixture()
        let end = try await fixture.run(main.url("/file.bin")) { $0.use([mirror.url("/file.bin")], mixes: true) }
        #expect(end.complete?.size == 8_000_000 && fixture.part == Self.file)
        #expect(main.requests.count == 1 && mirror.requests.map { $0.range?.first } == [3_000_000])
        #expect(mirror.requests[0].field("If-Range") == nil, "the validator is of another server")
        let sources = await fixture.log.sources
        #expect(sources.map(\.received) == [3_000_000, 5_000_000] && sources.map(\.left) == [nil, nil])
        #expect(await fixture.log.facts().map(\.offset) == [0, 3_000_000])
        #expect(end.complete?.validators?.source == main.url("/file.bin"), "no validator is taken for one of another URL")
    }

    /// The mirror sends a part of the rest, and refuses the next request. Then the first source brings the end of the file.
    @Test func `are announced also after another one has sent only a part of the rest`() async throws {
        let main = ScriptedServer.lost(after: 3_000_000, of: Self.file)
        let mirror = ScriptedServer { request, reply in
            guard request.number == 0, let first = request.range?.first else { return reply.respond(404) }
            reply.head(206, ["Content-Range": "bytes \(first)-4999999/8000000"], length: 5_000_000 - first)
            reply.send(Self.file[first..<5_000_000])
        }
        let fixture = await EngineFixture()
        let end = try await fixture.run(main.url("/file.bin")) { $0.use([mirror.url("/copy.bin")], mixes: true) }
        #expect(end.complete?.size == 8_000_000 && fixture.part == Self.file)
        #expect(mirror.requests.map { $0.range?.first } == [3_000_000, 5_000_000])
        #expect(main.requests.map { $0.range?.first } == [nil, 5_000_000])
        let facts = await fixture.log.facts()
        #expect(facts.map(\.offset) == [0, 3_000_000, 5_000_000] && facts.map(\.source) == [nil, mirror.url("/copy.bin"), nil])
    }

    enum Contradiction: CaseIterable, Sendable { case size, digest, ranges }

    @Test(arguments: Contradiction.allCases) func `are left if they contradict the bytes of others`(kind: Contradiction) async throws {
        let digest = "sha-256=:\(String(repeating: "A", count: 43))=:"
        let main = ScriptedServer { request, reply in
            guard request.number == 0 else { return reply.respond(404) }
            reply.head(200, ["ETag": "\"v1\"", "Repr-Digest": digest], length: Self.file.count)
            reply.send(Self.file[..<3_000_000])
            reply.close()
        }
        let wrong = ScriptedServer { request, reply in
            switch kind {
            case .size: reply.serve(Self.file + [1], for: request)
            case .digest:
                reply.serve(Self.file, for: request, fields: ["Repr-Digest": "sha-256=:\(String(repeating: "B", count: 43))=:"])
            case .ranges: reply.respond(200, body: Self.file)
            }
        }
        let right = ScriptedServer { request, reply in reply.serve(Self.file, for: request) }
        let fixture = await EngineFixture()
        let end = try await fixture.run(main.url()) { $0.use([wrong.url(), right.url()], mixes: true) }
        #expect(end.complete != nil && fixture.part == Self.file)
        #expect(wrong.requests.count == 1 && right.requests.map { $0.range?.first } == [3_000_000])
        let fault: SourceFault =
            switch kind {
            case .size: .wrongSize
            case .digest: .wrongDigest
            case .ranges: .noRanges
            }
        #expect(await fixture.log.sources.map(\.left) == [nil, fault, nil])
    }

    enum Change: CaseIterable, Sendable { case whole, part, size, condition, end, surplus }

    /// The first source brings the beginning, and the mirror most of the file. Both lose their connections. Then the first source has
    /// another file.
    @Test(arguments: Change.allCases)
    func `are left if they change what they have begun, and the others bring the rest`(kind: Change) async throws {
        let other = patternBytes(8_000_000, seed: 2)
        let main = ScriptedServer { request, reply in
            switch (request.number, kind) {
            case (0, _):
                reply.head(200, ["ETag": "\"v1\"", "Accept-Ranges": "bytes"], length: Self.file.count)
                reply.send(Self.file[..<100_000])
                reply.close()
            case (1, .part):
                reply.head(206, ["ETag": "\"v2\"", "Content-Range": "bytes 3100000-7999999/8000000"], length: 4_900_000)
                reply.send(other[3_100_000...])
            case (1, .size):
                reply.head(206, ["ETag": "\"v1\"", "Content-Range": "bytes 3100000-7999998/7999999"], length: 4_899_999)
                reply.send(other[3_100_000..<7_999_999])
            case (1, .condition): reply.respond(412)
            case (1, .end): reply.respond(416, ["Content-Range": "bytes */5"])
            case (1, .surplus):
                reply.head(206, ["ETag": "\"v1\"", "Content-Range": "bytes 3100000-3199999/8000000"])
                reply.send(other[3_100_000...3_200_000])
                reply.close()
            default: reply.serve(other, for: request, entityTag: "\"v2\"")
            }
        }
        let mirror = ScriptedServer { request, reply in
            guard request.number == 0 else { return reply.serve(Self.file, for: request) }
            reply.head(206, ["Content-Range": "bytes 100000-7999999/8000000"], length: 7_900_000)
            reply.send(Self.file[100_000..<3_100_000])
            reply.close()
        }
        let fixture = await EngineFixture()
        let end = try await fixture.run(main.url()) { $0.use([mirror.url()], mixes: true) }
        #expect(end.complete?.size == 8_000_000 && fixture.part == Self.file, "\(end)")
        #expect(main.requests.map { $0.range?.first } == [nil, 3_100_000])
        #expect(mirror.requests.map { $0.range?.first } == [100_000, 3_100_000])
        let fault: SourceFault =
            switch kind {
            case .size, .end: .wrongSize
            case .whole, .part, .condition, .surplus: .changed
            }
        #expect(await fixture.log.sources.map(\.left) == [fault, nil])
    }

    /// The mirror has the new file, too.
    @Test func `bring a changed file if no other source has the one that they have begun`() async throws {
        let changed = patternBytes(7_000_000, seed: 2)
        let main = ScriptedServer { request, reply in
            guard request.number == 0 else { return reply.serve(changed, for: request, entityTag: "\"v2\"") }
            reply.head(200, ["ETag": "\"v1\"", "Accept-Ranges": "bytes"], length: Self.file.count)
            reply.send(Self.file[..<100_000])
            reply.close()
        }
        let mirror = ScriptedServer { request, reply in reply.serve(changed, for: request) }
        let fixture = await EngineFixture()
        let first = try await fixture.run(main.url()) { ($0.hasChecksum, $0.mixesSources) = (true, true) }
        let end = try await fixture.run(main.url()) {
            $0.use([mirror.url()], mixes: true)
            $0.resume = first.resume
        }
        #expect(end.complete?.size == 7_000_000 && fixture.part == changed, "\(end)")
        #expect(main.requests.map { $0.range?.first } == [nil, 100_000, nil] && mirror.requests.map { $0.range?.first } == [100_000])
    }

    @Test func `without ranges bring the rest if nothing else is left`() async throws {
        let main = breakingServer(Self.file, after: 3_000_000)
        let mirror = ScriptedServer { request, reply in reply.respond(200, body: Self.file) }
        let fixture = await EngineFixture()
        let end = try await fixture.run(main.url()) { $0.use([mirror.url()], mixes: true) }
        #expect(end.complete?.size == 8_000_000 && fixture.part == Self.file)
        // The first one is asked once more before, because it may send only the rest.
        #expect(main.requests.count == 2 && mirror.requests.count == 2)
        let sources = await fixture.log.sources
        #expect(sources.map(\.received) == [3_000_000, 5_000_000], "the first bytes are dropped")
        #expect(sources.map(\.left) == [.httpStatus, .noRanges], "the reasons stay")
    }

    @Test func `of another size are asked for the whole file if nothing else is left`() async throws {
        let longer = Self.file + [1, 2, 3]
        let main = breakingServer(Self.file, after: 3_000_000)
        let mirror = ScriptedServer { request, reply in reply.serve(longer, for: request) }
        let fixture = await EngineFixture()
        let end = try await fixture.run(main.url()) { $0.use([mirror.url()], mixes: true) }
        #expect(end.complete?.size == 8_000_003 && fixture.part == longer)
        #expect(mirror.requests.map { $0.range?.first } == [3_000_000, nil])
        #expect(await fixture.log.sources.map(\.left) == [.httpStatus, .wrongSize], "the reasons stay")
    }

    @Test func `each fetch a part of the file at the same time`() async throws {
        let (gate, joined) = (Gate(), Gate())
        let main = heldServer(Self.file, until: gate)
        let mirror = ScriptedServer { request, reply in
            joined.open()
            reply.serve(Self.file, for: request, entityTag: "\"of the mirror\"")
        }
        let fixture = await EngineFixture()
        let request = try fixture.request(main.url()) {
            $0.use([mirror.url()], mixes: true)
            $0.connections = 2
        }
        fixture.engine.start(request)
        await fixture.log.wait { $0.contains { if case .joined = $0 { true } else { false } } }
        #expect(main.requests.count == 1 && mirror.requests[0].field("If-Range") == nil && mirror.requests[0].range?.last != nil)
        gate.open()
        let end = await fixture.log.end(of: request.number)
        #expect(end.complete?.size == 8_000_000 && fixture.part == Self.file)
        #expect(await fixture.log.sources.allSatisfy { $0.received > 0 && $0.left == nil })
        #expect(end.complete?.validators?.source == main.url())
    }

    /// The body has one byte more than its range. A response to one of several requests is refused at its head, because it has no length.
    @Test(arguments: [1, 3]) func `that send more than they say are left, and the bytes of the others stay`(
        connections: UInt32
    ) async throws {
        let gate = Gate()
        let main = ScriptedServer { request, reply in
            guard request.number == 0 else { return reply.respond(404) }
            reply.head(200, ["ETag": "\"v1\"", "Accept-Ranges": "bytes"], length: Self.file.count)
            reply.send(Self.file[..<3_000_000])
            gate.wait()
            reply.close()
        }
        let bad = ScriptedServer { request, reply in
            let (first, last) = (request.range?.first ?? 0, request.range?.last ?? Self.file.count - 1)
            reply.head(206, ["ETag": "\"b\"", "Content-Range": "bytes \(first)-\(last)/\(Self.file.count)"])
            reply.send([UInt8](repeating: 0xBB, count: last - first + 2))
            reply.close()
        }
        let good = ScriptedServer { request, reply in
            gate.wait()
            reply.serve(Self.file, for: request, entityTag: "\"g\"")
        }
        defer { gate.open() }
        let fixture = await EngineFixture()
        let request = try fixture.request(main.url()) {
            $0.use([bad.url(), good.url()], mixes: true)
            $0.connections = connections
        }
        fixture.engine.start(request)
        // Once the others have ended, the bad one would be asked for the rest alone.
        if connections > 1 {
            await fixture.log.wait { $0.contains { if case .sources(_, let sources) = $0 { sources[1].left != nil } else { false } } }
        }
        gate.open()
        let end = await fixture.log.end(of: request.number)
        #expect(end.complete?.size == 8_000_000 && fixture.part == Self.file)
        #expect((bad.requests + good.requests).allSatisfy { $0.range != nil }, "nobody is asked for the whole file")
        #expect(await fixture.log.sources.map(\.left)[1...] == [connections == 1 ? .changed : .noRanges, nil])
        #expect(!bad.requests.isEmpty)
    }

    @Test(arguments: [404, 200]) func `that fail at a part are left, and the others bring it`(status: Int) async throws {
        let gate = Gate()
        let main = heldServer(Self.file, until: gate)
        let bad = ScriptedServer { _, reply in reply.respond(status, text: "no") }
        let good = ScriptedServer { request, reply in reply.serve(Self.file, for: request) }
        let fixture = await EngineFixture()
        let request = try fixture.request(main.url()) {
            $0.use([bad.url(), good.url()], mixes: true)
            $0.connections = 2
        }
        fixture.engine.start(request)
        await fixture.log.wait { $0.contains { if case .joined = $0 { true } else { false } } }
        gate.open()
        #expect(await fixture.log.end(of: request.number).complete?.size == 8_000_000)
        #expect(fixture.part == Self.file && bad.requests.count == 1 && !good.requests.isEmpty)
        #expect(await fixture.log.sources.map(\.left) == [nil, status == 404 ? .httpStatus : .noRanges, nil])
    }

    /// The busy server refuses one of several requests. Then the main server loses its connection, while the request to the second source
    /// at the busy server waits for its permit.
    @Test func `at a server that has refused a further request with a pause are asked after one that has lost its connection`() async throws
    {
        let gate = Gate()
        defer { gate.open() }
        let main = ScriptedServer { request, reply in
            guard request.number == 0 else { return reply.serve(Self.file, for: request, entityTag: "\"v1\"") }
            reply.head(200, ["ETag": "\"v1\"", "Accept-Ranges": "bytes"], length: Self.file.count)
            reply.send(Self.file[..<3_000_000])
            gate.wait()
            reply.close()
        }
        let busy = ScriptedServer { request, reply in
            guard request.path == "/c" else { return reply.respond(503, ["Retry-After": "3600"]) }
            reply.serve(Self.file, for: request)
        }
        let fixture = await EngineFixture()
        let engine = fixture.engine
        // The request to /b is request 1. The request to /c is request 2; neither it nor a later one is permitted.
        await fixture.log.permit { [weak engine] id, question in
            if id.ordinal < 2 { engine?.permit(id, question: question, tellsSent: false) } else { gate.open() }
        }
        let end = try await fixture.run(main.url("/a")) {
            $0.use([busy.url("/b"), busy.url("/c")], mixes: true)
            $0.connections = 2
        }
        #expect(end.complete?.size == 8_000_000 && fixture.part == Self.file)
        #expect(busy.requests.map(\.path) == ["/b"] && main.requests.map { $0.range?.first } == [nil, 3_000_000])
        #expect(await fixture.log.sources.map(\.left) == [nil, .httpStatus, nil])
    }

    /// The first server brings its part, and fails between two parts. The other one is slow meanwhile.
    @Test(arguments: [(503, 1), (503, .max), (0, 1), (0, .max)] as [(Int, Int)])
    func `that fail between two parts are asked again, until they fail four times in a row`(status: Int, failures: Int) async throws {
        let (joined, again) = (Gate(), Gate())
        defer { for gate in [joined, again] { gate.open() } }
        let isLeft = failures > 3
        let main = ScriptedServer { request, reply in
            switch request.number {
            case 0:
                reply.head(200, ["ETag": "\"v1\"", "Accept-Ranges": "bytes"], length: Self.file.count)
                reply.send(Self.file[..<100_000])
                joined.wait()
                reply.send(Self.file[100_000...])
            case 1...failures:
                guard status == 0 else { return reply.respond(status) }
                reply.reset()
            default:
                again.open()
                reply.serve(Self.file, for: request, entityTag: "\"v1\"")
            }
        }
        let mirror = ScriptedServer { request, reply in
            let (first, last) = (request.range?.first ?? 0, request.range?.last ?? Self.file.count - 1)
            reply.head(206, ["Content-Range": "bytes \(first)-\(last)/\(Self.file.count)"], length: last - first + 1)
            var place = first
            while !again.isOpen, place + 10_000 <= last {
                guard reply.send(Self.file[place..<place + 10_000]) else { return }
                place += 10_000
                poll(nil, 0, 500)
            }
            again.wait()
            reply.send(Self.file[place...last])
        }
        let fixture = await EngineFixture()
        let request = try fixture.request(main.url()) {
            $0.use([mirror.url()], mixes: true)
            $0.connections = 2
        }
        fixture.engine.start(request)
        await fixture.log.wait { $0.contains { if case .joined = $0 { true } else { false } } }
        joined.open()
        if isLeft {
            // The mirror must not bring the rest before the fourth failure is known.
            await fixture.log.wait { events in
                events.count { if case .over(_, _?) = $0 { true } else { false } } >= 4 || events.contains { $0.isEnd(of: request.number) }
            }
            again.open()
        }
        #expect(await fixture.log.end(of: request.number).complete?.size == 8_000_000 && fixture.part == Self.file)
        if isLeft { #expect(main.requests.count == 5) } else { #expect(main.requests.count >= 3) }
        #expect(await fixture.log.sources.map(\.left) == [isLeft ? (status == 0 ? .network : .httpStatus) : nil, nil])
    }

    /// The URL alone gets all further requests, while its first response waits for them.
    @Test func `do not mix once a mixed file was wrong`() async throws {
        let gate = Gate()
        defer { gate.open() }
        let main = heldServer(Self.file, until: gate)
        let mirror = ScriptedServer { request, reply in reply.serve(Self.file, for: request, entityTag: "\"v1\"") }
        let fixture = await EngineFixture()
        let request = try fixture.request(main.url()) {
            $0.use([mirror.url()], mixes: true)
            ($0.mixesSources, $0.connections) = (false, 4)
        }
        fixture.engine.start(request)
        await fixture.log.wait { $0.count { if case .joined = $0 { true } else { false } } >= 3 }
        gate.open()
        let end = await fixture.log.end(of: request.number)
        #expect(end.complete?.size == 8_000_000 && fixture.part == Self.file)
        #expect(main.requests.count >= 4 && mirror.requests.isEmpty)
    }
}

@Suite(.timeLimit(.minutes(5))) struct `Mirrors that a server names` {
    static let file = patternBytes(3_000_000)

    /// As MirrorBrain does: the redirect names the mirrors, and leads to the first of them.
    @Test(arguments: [true, false]) func `are used if the request allows it and something proves the file`(mayFind: Bool) async throws {
        let third = ScriptedServer { request, reply in reply.serve(Self.file, for: request) }
        let second = ScriptedServer { _, reply in reply.respond(404) }
        let first = breakingServer(Self.file, after: 1_000_000)
        let links = [
            "<\(third.url("/c"))>; rel=duplicate; pri=3", "<\(second.url("/b"))>; rel=duplicate; pri=2",
            "<\(first.url("/a"))>; rel=duplicate; pri=1", "<ftp://127.0.0.1/a>; rel=duplicate",
            "<http://me@127.0.0.1/a>; rel=duplicate",
            "<\(third.url("/c"))>; rel=duplicate; pri=9", "<index.html>; rel=index",
        ].joined(separator: ", ")
        let main = ScriptedServer { _, reply in reply.respond(302, ["Location": first.url("/a"), "Link": links]) }
        let fixture = await EngineFixture()
        let end = try await fixture.run(main.url("/file.bin")) {
            ($0.hasChecksum, $0.mixesSources, $0.findsMirrors) = (true, true, mayFind)
        }
        guard mayFind else {
            #expect(end.failure != nil && second.requests.isEmpty && third.requests.isEmpty)
            return
        }
        #expect(end.complete?.size == 3_000_000 && fixture.part == Self.file)
        let sources = await fixture.log.sources
        #expect(sources.map(\.url) == [main.url("/file.bin"), second.url("/b"), third.url("/c")], "not the target of the redirect")
        #expect(sources.map(\.left) == [nil, .httpStatus, nil] && third.requests.map { $0.range?.first } == [1_000_000])
    }

    @Test func `may be of any response that brings bytes, but no mirror names others`() async throws {
        let stranger = ScriptedServer { request, reply in reply.serve(Self.file, for: request) }
        let mirror = ScriptedServer { request, reply in
            reply.serve(Self.file, for: request, fields: ["Link": "<\(stranger.url())>; rel=duplicate"])
        }
        let main = ScriptedServer { request, reply in
            guard request.number == 0 else { return reply.respond(404) }
            reply.head(
                200, ["ETag": "\"v1\"", "Accept-Ranges": "bytes", "Link": "<\(mirror.url())>; rel=duplicate"], length: Self.file.count)
            reply.send(Self.file[..<1_000_000])
            reply.close()
        }
        let fixture = await EngineFixture()
        let end = try await fixture.run(main.url()) {
            ($0.hasChecksum, $0.mixesSources, $0.findsMirrors, $0.mirrorCount) = (true, true, true, 31)
        }
        #expect(end.complete != nil && fixture.part == Self.file && stranger.requests.isEmpty)
        #expect(await fixture.log.sources.count == 2)
        // Their URLs have 4 KiB at most, and there are 32 mirrors at most.
        let full = try await fixture.run(main.url(), number: 2) {
            ($0.hasChecksum, $0.mixesSources, $0.findsMirrors, $0.mirrorCount) = (true, true, true, 32)
        }
        #expect(full.failure != nil)
    }

    @Test func `are at most 32, with 4 KiB of URLs, whatever the server sends`() async throws {
        let mirror = ScriptedServer { request, reply in reply.serve(Self.file, for: request) }
        for (length, expected) in [(1, 33), (500, 1 + 7), (5000, 1)] {
            let links = (0..<100).map { "<\(mirror.url("/\($0)" + String(repeating: "x", count: length)))>; rel=duplicate" }
            let main = ScriptedServer { request, reply in
                reply.serve(Self.file, for: request, fields: ["Link": links[..<min(100, 60_000 / (length + 50))].joined(separator: ", ")])
            }
            let fixture = await EngineFixture()
            let end = try await fixture.run(main.url()) {
                ($0.hasChecksum, $0.mixesSources, $0.findsMirrors, $0.connections) = (true, true, true, 1)
            }
            #expect(end.complete != nil && mirror.requests.isEmpty)
            #expect(await max(1, fixture.log.sources.count) == expected, "URLs of \(length) bytes more")
        }
    }
}

@Suite struct `The choice of a source` {
    private typealias Source = SourceStanding

    @Test func `prefers one that has not failed, then one that lost its connection, then one that contradicts`() {
        let (fresh, lost, gone) = (Source(), Source(hasLost: true), Source(left: .httpStatus, isSpent: true))
        let (smaller, spent) = (Source(left: .wrongSize), Source(left: .wrongSize, isSpent: true))
        #expect(SourceChoice.next([gone, lost, fresh], mixes: true) == 2)
        #expect(SourceChoice.next([gone, fresh, fresh], mixes: true) == 1)
        #expect(SourceChoice.next([gone, smaller, lost], mixes: true) == 2)
        #expect(SourceChoice.next([gone, spent, smaller], mixes: false) == 2)
        #expect(SourceChoice.next([gone, spent, Source(left: .wrongBytes)], mixes: true) == nil)
    }

    @Test func `takes one whose server has requested a pause only if no other can be asked at once`() {
        let (paused, lost, smaller) = (Source(isPaused: true), Source(hasLost: true), Source(left: .wrongSize))
        #expect(SourceChoice.next([paused, Source()], mixes: true) == 1)
        #expect(SourceChoice.next([paused, lost], mixes: true) == 1)
        #expect(SourceChoice.next([smaller, Source(hasLost: true, isPaused: true)], mixes: true) == 1)
    }

    @Test func `begins nothing anew while the source of the held bytes may go on`() {
        let sources = [Source(), Source(hasLost: true, holds: true), Source()]
        #expect(SourceChoice.next(sources, mixes: false) == 1)
        #expect(SourceChoice.next(sources, mixes: true) == 0)
    }

    @Test func `gives a further connection to the source with the fewest, then to the fastest`() {
        #expect(SourceChoice.further([Source(connections: 1), Source(connections: 0), Source()]) == 1)
        #expect(SourceChoice.further([Source(connections: 1, speed: 10), Source(connections: 1, speed: 20)]) == 1)
        #expect(SourceChoice.further([Source(connections: 1, speed: 10), Source(connections: 2, speed: 20)]) == 0)
    }

    @Test func `gives no further connection to a source that waits, has lost one or has no ranges, if another is there`() {
        #expect(SourceChoice.further([Source(connections: 3), Source(connections: 1, isWaiting: true)]) == 0)
        #expect(SourceChoice.further([Source(connections: 3), Source(hasLost: true)]) == 0)
        #expect(SourceChoice.further([Source(serves: false), Source(left: .noRanges)]) == nil)
        #expect(SourceChoice.further([Source(connections: 1, isWaiting: true)]) == 0)
    }
}
