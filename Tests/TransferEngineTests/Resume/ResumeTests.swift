import DownloadModel
import EventLoop
import Glibc
import TestSupport
import Testing
import TransferEngine

@Suite(.timeLimit(.minutes(5))) struct `Going on with a transfer` {
    static let file = patternBytes(3_000_000)

    /// A server whose first answer stops after `cut` bytes until `gate` opens.
    private func server(cut: Int, gate: Gate, tag: String? = "\"v1\"", then: @escaping @Sendable (ScriptedServer.Request, Reply) -> Void)
        -> ScriptedServer
    {
        ScriptedServer { request, reply in
            guard request.number == 0 else { return then(request, reply) }
            if let tag { reply.head(200, ["ETag": tag], length: Self.file.count) } else { reply.head(200, length: Self.file.count) }
            reply.send(Self.file[..<cut])
            gate.wait()
            reply.close()
        }
    }

    /// Fetches the first `cut` bytes and stops.
    private func begin(_ fixture: EngineFixture, _ server: ScriptedServer, cut: Int, gate: Gate, hasChecksum: Bool = false) async throws
        -> TransferEnd
    {
        fixture.engine.start(try fixture.request(server.url("/file.bin")) { $0.hasChecksum = hasChecksum })
        await fixture.log.received(ByteCount(cut))
        fixture.engine.stop(DownloadNumber(1))
        let end = await fixture.log.end(of: DownloadNumber(1))
        gate.open()
        return end
    }

    @Test func `asks for the rest under its validator, and joins it`() async throws {
        let gate = Gate()
        let server = server(cut: 1_200_000, gate: gate) { request, reply in reply.serve(Self.file, for: request, entityTag: "\"v1\"") }
        let fixture = await EngineFixture()
        let stopped = try await begin(fixture, server, cut: 1_200_000, gate: gate)
        #expect(stopped.isStopped)
        let resume = try #require(stopped.resume)
        #expect(resume.written == 1_200_000 && resume.total == 3_000_000 && resume.validator == .entityTag("\"v1\""))
        #expect(await fixture.log.checkpoints().last == resume)
        let end = try await fixture.run(server.url("/file.bin")) { $0.resume = resume }
        #expect(end.complete?.size == 3_000_000)
        #expect(fixture.part == Self.file)
        let request = try #require(server.requests.last)
        #expect(request.field("Range") == "bytes=1200000-" && request.field("If-Range") == "\"v1\"")
        let facts = try #require(await fixture.log.facts().last)
        #expect(facts.offset == 1_200_000 && !facts.discarded && facts.total == 3_000_000)
    }

    /// The head of the response is right, and its body is the whole file: only the bytes behind its range show that. Then the response for
    /// the whole file is cut.
    @Test func `forgets the bytes of a response that had more of them than it said`() async throws {
        let server = ScriptedServer { request, reply in
            switch request.number {
            case 0:
                reply.head(200, ["ETag": "\"v1\""], length: Self.file.count)
                reply.send(Self.file[..<1_000_000])
            case 1:
                reply.head(206, ["ETag": "\"v1\"", "Content-Range": "bytes 1000000-2999999/3000000"])
                reply.send(Self.file)
            case 2:
                reply.head(200, ["ETag": "\"v1\""], length: Self.file.count)
                reply.send(Self.file[..<50_000])
            default: return reply.serve(Self.file, for: request, entityTag: "\"v1\"")
            }
            reply.close()
        }
        let fixture = await EngineFixture()
        let first = try await fixture.run(server.url("/file.bin"))
        #expect(first.resume?.written == 1_000_000)
        let second = try await fixture.run(server.url("/file.bin")) { $0.resume = first.resume }
        #expect(server.requests.map { $0.range?.first } == [nil, 1_000_000, nil])
        #expect(second.resume?.ranges == first.resume?.ranges, "\(second)")
        let third = try await fixture.run(server.url("/file.bin")) { $0.resume = second.resume }
        #expect(third.complete?.size == 3_000_000 && fixture.part == Self.file)
    }

    /// The first response is chunked, so nothing is known about the size. The second one states a size that no file can have.
    @Test func `forgets the size in a response that no disk can hold`() async throws {
        let server = ScriptedServer { request, reply in
            switch request.number {
            case 0:
                reply.head(200, ["ETag": "\"v1\"", "Transfer-Encoding": "chunked"])
                reply.chunk(Self.file[..<1_000_000])
            case 1: reply.head(206, ["ETag": "\"v1\"", "Content-Range": "bytes 1000000-18446744073709551613/18446744073709551614"])
            default: return reply.serve(Self.file, for: request, entityTag: "\"v1\"")
            }
            reply.close()
        }
        let fixture = await EngineFixture()
        let first = try await fixture.run(server.url("/file.bin"))
        #expect(first.resume?.written == 1_000_000 && first.resume?.total == nil)
        let second = try await fixture.run(server.url("/file.bin")) { $0.resume = first.resume }
        #expect(second.failure?.name == .diskFull && second.resume?.ranges == first.resume?.ranges, "\(second)")
        #expect(second.resume?.total == nil)
        let third = try await fixture.run(server.url("/file.bin")) { $0.resume = second.resume }
        #expect(third.complete?.size == 3_000_000 && fixture.part == Self.file)
        #expect(server.requests.map { $0.range?.first } == [nil, 1_000_000, 1_000_000])
    }

    /// Neither response states a size. The second one, without ranges, shows that the file is shorter, or longer, than expected.
    @Test(arguments: [1_500_000, 2_500_000]) func `forgets all bytes of a file that has a wrong size`(size: Int) async throws {
        let server = ScriptedServer { request, reply in
            reply.head(200, ["ETag": "\"v1\"", "Accept-Ranges": "none", "Transfer-Encoding": "chunked"])
            reply.chunk(Self.file[..<1_000_000])
            if request.number == 0 { return reply.close() }
            reply.chunk(Self.file[1_000_000..<size])
            reply.chunk([])
        }
        let fixture = await EngineFixture()
        let first = try await fixture.run(server.url("/file.bin")) { $0.expectedSize = 2_000_000 }
        #expect(first.resume?.written == 1_000_000 && first.resume?.total == nil)
        let second = try await fixture.run(server.url("/file.bin")) { ($0.expectedSize, $0.resume) = (2_000_000, first.resume) }
        #expect(second.failure?.name == .sizeMismatch && second.resume?.written ?? 0 == 0, "\(second)")
        #expect(server.requests.map { $0.range?.first } == [nil, 1_000_000])
    }

    /// "café" in both Unicode forms, and in Latin-1 and Windows' Cyrillic, which are not UTF-8.
    @Test(
        arguments: [
            (Array("\"caf\u{E9}\"".utf8), Array("\"cafe\u{301}\"".utf8)), ([0x22, 0x63, 0xE9, 0x22], [0x22, 0x63, 0xE8, 0x22]),
        ] as [([UInt8], [UInt8])])
    func `does not join bytes of two tags that only look the same`(old: [UInt8], new: [UInt8]) async throws {
        let changed = patternBytes(3_000_000, seed: 9)
        @Sendable func head(_ reply: Reply, _ status: String, _ tag: [UInt8], _ length: Int) {
            reply.send("HTTP/1.1 \(status)\r\nETag: ")
            reply.send(tag)
            reply.send("\r\nContent-Length: \(length)\r\n\r\n")
        }
        let server = ScriptedServer { request, reply in
            switch (request.number, request.range?.first) {
            case (0, _):
                head(reply, "200 OK", old, 3_000_000)
                reply.send(Self.file[..<1_200_000])
                reply.close()
            case (_, let first?):  // treats any condition as fulfilled
                head(reply, "206 Partial Content\r\nContent-Range: bytes \(first)-2999999/3000000", new, 3_000_000 - first)
                reply.send(changed[first...])
            default:
                head(reply, "200 OK", new, 3_000_000)
                reply.send(changed)
            }
        }
        let fixture = await EngineFixture()
        let cut = try await fixture.run(server.url("/file.bin"))
        let end = try await fixture.run(server.url("/file.bin")) { $0.resume = cut.resume }
        #expect(end.complete?.size == 3_000_000, "\(end)")
        #expect(fixture.part == changed)
    }

    @Test(arguments: [304, 412]) func `asks once from the first byte where the rest is answered by a refusal of its condition`(status: Int)
        async throws
    {
        let gate = Gate()
        let server = server(cut: 1_200_000, gate: gate) { request, reply in
            if request.range != nil { reply.respond(status) } else { reply.serve(Self.file, for: request, entityTag: "\"v1\"") }
        }
        let fixture = await EngineFixture()
        let resume = try await begin(fixture, server, cut: 1_200_000, gate: gate).resume
        let end = try await fixture.run(server.url("/file.bin")) { $0.resume = resume }
        #expect(end.complete?.size == 3_000_000)
        #expect(fixture.part == Self.file)
        #expect(server.requests.map { $0.field("Range") } == [nil, "bytes=1200000-", nil])
        // A server that answers every request with this status makes the transfer fail.
        let refusing = ScriptedServer { _, reply in reply.respond(status) }
        #expect(try await fixture.run(refusing.url("/x"), number: 2).failure?.httpStatus == UInt32(status))
        #expect(refusing.requests.count == 1)
    }

    @Test func `continues at once if a server sends one part at a time`() async throws {
        let gate = Gate()
        let server = server(cut: 2_950_000, gate: gate) { request, reply in
            guard let first = request.range?.first else { return reply.respond(500) }
            let end = min(3_000_000, first + 1000)
            reply.head(206, ["Content-Range": "bytes \(first)-\(end - 1)/3000000", "ETag": "\"v1\""], length: end - first)
            reply.send(Self.file[first..<end])
        }
        let fixture = await EngineFixture()
        let resume = try await begin(fixture, server, cut: 2_950_000, gate: gate).resume
        let told = await fixture.log.facts().count
        let end = try await fixture.run(server.url("/file.bin")) { $0.resume = resume }
        #expect(end.complete?.size == 3_000_000, "\(end)")
        #expect(fixture.part == Self.file)
        #expect(server.requests.count == 51 && server.connections == 2)
        // The resume is reported once, not fifty times.
        #expect(await fixture.log.facts().count == told + 1)
    }

    @Test func `takes the whole new file if it has changed`() async throws {
        let new = patternBytes(500_000, seed: 9)
        let gate = Gate()
        let server = server(cut: 1_200_000, gate: gate) { request, reply in reply.serve(new, for: request, entityTag: "\"v2\"") }
        let fixture = await EngineFixture()
        let resume = try await begin(fixture, server, cut: 1_200_000, gate: gate).resume
        let end = try await fixture.run(server.url("/file.bin")) { $0.resume = resume }
        #expect(end.complete?.size == 500_000)
        #expect(fixture.part == new)
        #expect(await fixture.log.facts().last?.discarded == true)
        #expect(await fixture.log.checkpoints().last { $0.written == 0 }?.validator == .entityTag("\"v2\""))
        #expect(server.requests.count == 2)
    }

    /// RFC 9110 §15.3.7: a 206 to If-Range may omit fields of the first response. A 416 says nothing about the file.
    @Test(arguments: [1_200_000, 3_000_000])
    func `keeps the name of an earlier response if the rest has none`(held: Int) async throws {
        let gate = Gate()
        let server = ScriptedServer { request, reply in
            guard request.number == 0 else { return reply.serve(Self.file, for: request, entityTag: "\"v1\"", type: "a/b") }
            let total = "\(Self.file.count)"
            reply.send("HTTP/1.1 200 OK\r\nETag: \"v1\"\r\nContent-Type: a/b\r\nContent-Disposition: filename=told\r\n")
            reply.send("Content-Length: \(held == Self.file.count ? "9999999" : total)\r\n\r\n")
            reply.send(Self.file[..<held])
            gate.wait()
            reply.close()
        }
        let fixture = await EngineFixture()
        var resume = try await begin(fixture, server, cut: held, gate: gate).resume
        resume?.total = ByteCount(Self.file.count)
        let first = try #require(await fixture.log.facts().last)
        #expect(first.fileName == "told" && first.mediaType == "a/b")
        let end = try await fixture.run(server.url("/file.bin")) {
            ($0.resume, $0.knownName, $0.knownType, $0.mapPath) = (resume, first.fileName, first.mediaType, nil)
        }
        let facts = try #require(end.complete?.facts)
        #expect(facts.fileName == "told" && facts.mediaType == "a/b" && facts.offset == ByteCount(held))
        #expect(server.requests.count == 2)
    }

    /// The field need not have a name (RFC 6266 §4.1). In a 416, it is about the body of the 416.
    @Test(arguments: [("attachment", 1_200_000), ("inline; filename=\"..\"", 1_200_000), ("attachment; filename=error.json", 3_000_000)])
    func `keeps the name of an earlier response if the next one names something else, or nothing`(field: String, held: Int) async throws {
        let isRest = held < Self.file.count
        let range = isRest ? "bytes \(held)-2999999/3000000" : "bytes */3000000"
        let server = ScriptedServer { request, reply in
            guard request.number > 0 else {
                reply.head(200, ["ETag": "\"v1\"", "Content-Disposition": "attachment; filename=told"], length: Self.file.count)
                reply.send(Self.file[..<held])
                return reply.close()
            }
            let fields: KeyValuePairs = ["ETag": "\"v1\"", "Content-Range": range, "Content-Disposition": field]
            reply.head(isRest ? 206 : 416, fields, length: Self.file.count - held)
            reply.send(Self.file[held...])
        }
        let fixture = await EngineFixture()
        let first = try await fixture.run(server.url("/file.bin"))
        let resume = first.resume ?? first.complete?.resume
        let end = try await fixture.run(server.url("/file.bin")) { ($0.resume, $0.knownName) = (resume, "told") }
        #expect(server.requests.map { $0.range?.first } == [nil, held])
        #expect(end.complete?.facts.fileName == "told" && fixture.part == Self.file, "\(end)")
    }

    /// The file of that other name must not end the transfer either.
    @Test func `keeps the name that an earlier response of the same transfer has told`() async throws {
        let gate = Gate()
        let server = server(cut: 1_200_000, gate: gate) { request, reply in
            guard request.number == 1 else { return reply.serve(Self.file, for: request, entityTag: "\"v1\"") }
            reply.head(
                206,
                [
                    "ETag": "\"v1\"", "Content-Type": "a/b", "Content-Disposition": "filename=told",
                    "Content-Range": "bytes 1200000-1999999/3000000",
                ], length: 800_000)
            reply.send(Self.file[1_200_000..<2_000_000])
        }
        let fixture = await EngineFixture()
        let resume = try await begin(fixture, server, cut: 1_200_000, gate: gate).resume
        writeFile(fixture.folder("file.bin"), "another’s".utf8)
        let end = try await fixture.run(server.url("/file.bin")) { ($0.resume, $0.ifExists) = (resume, .skip) }
        let facts = try #require(end.complete?.facts, "\(end)")
        #expect(facts.fileName == "told" && fixture.part == Self.file)
        #expect(server.requests.map { $0.range?.first } == [nil, 1_200_000, 2_000_000])
    }

    /// A date cannot tell the variants of a file apart. A proxy often adds a field of its own in front of the server's.
    @Test(arguments: [("Accept-Encoding", true), ("Cookie", false)])
    func `leaves a date for later requests only if the rest does not vary`(vary: String, isLeft: Bool) async throws {
        let date = "Mon, 01 Jun 2026 10:00:00 GMT"
        let server = ScriptedServer { request, reply in
            guard request.number == 0 else {
                let fields: KeyValuePairs = ["Vary": "Accept-Encoding", "vary": vary]
                return reply.serve(Self.file, for: request, lastModified: date, fields: fields)
            }
            reply.head(200, ["Last-Modified": date, "Date": "Fri, 20 Nov 2026 12:00:00 GMT"], length: Self.file.count)
            reply.send(Self.file[..<1_200_000])
            reply.close()
        }
        let fixture = await EngineFixture()
        let cut = try await fixture.run(server.url("/file.bin"))
        let end = try await fixture.run(server.url("/file.bin")) { $0.resume = cut.resume }
        #expect(server.requests.map { $0.field("If-Range") } == [nil, date])
        let complete = try #require(end.complete, "\(end)")
        #expect(complete.validators?.lastModified == (isLeft ? date : nil))
    }

    @Test func `leaves no date for later requests if the server only says that nothing is missing`() async throws {
        let date = "Mon, 01 Jun 2026 10:00:00 GMT"
        let server = ScriptedServer { request, reply in reply.serve(Self.file, for: request, lastModified: date) }
        let fixture = await EngineFixture()
        let part = try #require(try await fixture.run(server.url("/file.bin")).complete)
        #expect(part.validators?.lastModified == date)
        let end = try await fixture.run(server.url("/file.bin")) { $0.resume = part.resume }
        let complete = try #require(end.complete, "\(end)")
        #expect(server.requests.map { $0.field("Range") } == [nil, "bytes=3000000-"] && complete.validators == nil)
    }

    @Test func `starts from 0 without a validator, unless a checksum will prove the whole`() async throws {
        for hasChecksum in [false, true] {
            let gate = Gate()
            let server = server(cut: 1_200_000, gate: gate, tag: nil) { request, reply in reply.serve(Self.file, for: request) }
            let fixture = await EngineFixture()
            let resume = try await begin(fixture, server, cut: 1_200_000, gate: gate, hasChecksum: hasChecksum).resume
            #expect((resume != nil) == hasChecksum)
            let end = try await fixture.run(server.url("/file.bin")) { ($0.resume, $0.hasChecksum) = (resume, hasChecksum) }
            #expect(end.complete?.size == 3_000_000)
            #expect(fixture.part == Self.file)
            #expect(server.requests.last?.field("Range") == (hasChecksum ? "bytes=1200000-" : nil))
            #expect(server.requests.last?.field("If-Range") == nil)
        }
    }

    @Test(arguments: [
        "bytes 0-2999999/3000000", "bytes 1200001-2999999/3000000", "bytes 1200000-3999999/4000000", "bytes nonsense", "",
    ])
    func `restarts once from 0 if the server sends another part`(contentRange: String) async throws {
        let gate = Gate()
        let server = server(cut: 1_200_000, gate: gate) { request, reply in
            guard request.field("Range") != nil else { return reply.serve(Self.file, for: request, entityTag: "\"v1\"") }
            reply.head(206, ["Content-Range": contentRange], length: 1_800_000)
            reply.send(Self.file[1_200_000...])
            reply.close()
        }
        let fixture = await EngineFixture()
        let resume = try await begin(fixture, server, cut: 1_200_000, gate: gate).resume
        #expect(try await fixture.run(server.url("/file.bin")) { $0.resume = resume }.complete?.size == 3_000_000)
        #expect(fixture.part == Self.file)
        #expect(await fixture.log.facts().last?.discarded == true)
        #expect(server.requests.map { $0.field("Range") } == [nil, "bytes=1200000-", nil])
    }

    @Test func `restarts once from 0 if the server sends a part of another representation`() async throws {
        let gate = Gate()
        let server = server(cut: 1_200_000, gate: gate) { request, reply in
            guard request.field("Range") != nil else { return reply.serve(Self.file, for: request, entityTag: "\"v2\"") }
            reply.head(206, ["Content-Range": "bytes 1200000-2999999/3000000", "ETag": "\"v2\""], length: 1_800_000)
            reply.send(Self.file[1_200_000...])
            reply.close()
        }
        let fixture = await EngineFixture()
        let resume = try await begin(fixture, server, cut: 1_200_000, gate: gate).resume
        #expect(try await fixture.run(server.url("/file.bin")) { $0.resume = resume }.complete?.size == 3_000_000)
        #expect(server.requests.count == 3)
    }

    @Test func `is complete if the server says that nothing is missing`() async throws {
        let fixture = await EngineFixture()
        let server = ScriptedServer { request, reply in reply.serve(Self.file, for: request, entityTag: "\"v1\"") }
        let part = try #require(try await fixture.run(server.url("/file.bin")).complete)
        let end = try await fixture.run(server.url("/file.bin")) { $0.resume = part.resume }
        #expect(end.complete?.size == 3_000_000)
        #expect(fixture.part == Self.file)
        #expect(server.requests.last?.field("Range") == "bytes=3000000-")
    }

    /// The response is a 416, or a 200 of the held file.
    @Test(arguments: [416, 200]) func `ends with the head that says that the file is whole, if its body never ends`(
        status: Int
    ) async throws {
        let (fixture, gate) = (await EngineFixture(), Gate())
        defer { gate.open() }
        let server = ScriptedServer { request, reply in
            if request.number == 0 { return reply.serve(Self.file, for: request, entityTag: "\"v1\"") }
            if status == 416 {
                reply.head(416, ["Content-Range": "bytes */3000000"], length: 500)
            } else {
                reply.head(200, ["ETag": "\"v1\"", "Accept-Ranges": "none"], length: 3_000_000)
            }
            gate.wait()
        }
        let part = try #require(try await fixture.run(server.url("/file.bin")).complete)
        let end = try await fixture.run(server.url("/file.bin")) { $0.resume = part.resume }
        #expect(end.complete?.size == 3_000_000, "\(end)")
        #expect(fixture.part == Self.file && server.requests.count == 2)
    }

    @Test func `restarts from 0 if the server has less than the part file`() async throws {
        let new = patternBytes(1000, seed: 7)
        let fixture = await EngineFixture()
        let server = ScriptedServer { request, reply in
            if request.number == 0 { return reply.serve(Self.file, for: request, entityTag: "\"v1\"") }
            if request.field("Range") != nil { return reply.respond(416, ["Content-Range": "bytes */1000"]) }
            reply.serve(new, for: request, entityTag: "\"v2\"")
        }
        let part = try #require(try await fixture.run(server.url("/file.bin")).complete)
        #expect(try await fixture.run(server.url("/file.bin")) { $0.resume = part.resume }.complete?.size == 1000)
        #expect(fixture.part == new)
    }

    @Test func `counts only existing bytes of a part file that is shorter than its checkpoint`() async throws {
        let fixture = await EngineFixture()
        let server = ScriptedServer { request, reply in reply.serve(Self.file, for: request, entityTag: "\"v1\"") }
        let part = try #require(try await fixture.run(server.url("/file.bin")).complete)
        #expect(truncate(fixture.folder(".todoku-1.part"), 700_000) == 0)
        #expect(unlink(fixture.folder("map-1")) == 0)
        var resume = try #require(part.resume)
        resume.ranges = ByteRanges(prefix: 3_000_000)
        #expect(try await fixture.run(server.url("/file.bin")) { $0.resume = resume }.complete?.size == 3_000_000)
        #expect(server.requests.last?.field("Range") == "bytes=700000-")
        #expect(fixture.part == Self.file)
    }

    @Test func `restarts from 0 if the part file is gone`() async throws {
        let fixture = await EngineFixture()
        let server = ScriptedServer { request, reply in reply.serve(Self.file, for: request, entityTag: "\"v1\"") }
        let part = try #require(try await fixture.run(server.url("/file.bin")).complete)
        #expect(unlink(fixture.folder(".todoku-1.part")) == 0)
        #expect(try await fixture.run(server.url("/file.bin")) { $0.resume = part.resume }.complete?.size == 3_000_000)
        #expect(server.requests.last?.field("Range") == nil)
    }

    @Test func `waits for the end of the previous transfer`() async throws {
        let gate = Gate()
        let server = server(cut: 1_200_000, gate: gate) { request, reply in reply.serve(Self.file, for: request, entityTag: "\"v1\"") }
        let fixture = await EngineFixture()
        fixture.engine.start(try fixture.request(server.url("/file.bin")))
        await fixture.log.received(1_200_000)
        fixture.engine.stop(DownloadNumber(1))
        fixture.engine.start(try fixture.request(server.url("/file.bin")))
        let first = await fixture.log.end(of: DownloadNumber(1))
        let second = await fixture.log.end(of: DownloadNumber(1), after: 1)
        gate.open()
        #expect(first.isStopped && second.complete?.size == 3_000_000)
    }

    @Test func `saves every transfer at the engine's end`() async throws {
        let gate = Gate()
        let server = ScriptedServer { _, reply in
            reply.head(200, ["ETag": "\"v1\""], length: Self.file.count)
            reply.send(Self.file[..<1_200_000])
            gate.wait()
        }
        let fixture = await EngineFixture()
        for number in 1...3 { fixture.engine.start(try fixture.request(server.url("/file.bin"), number: UInt64(number))) }
        for number in 1...3 { await fixture.log.received(1_200_000, of: UInt64(number)) }
        await fixture.shutDown()
        for number in 1...3 {
            let end = await fixture.log.end(of: DownloadNumber(UInt64(number)))
            #expect(end.isStopped && end.resume?.written == 1_200_000)
        }
        gate.open()
    }
}
