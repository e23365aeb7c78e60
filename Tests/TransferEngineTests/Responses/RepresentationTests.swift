import DownloadModel
import EventLoop
import Glibc
import TestSupport
import Testing
import TransferEngine

@testable import PartFiles

@Suite(.timeLimit(.minutes(5))) struct `A whole body instead of the rest` {
    static let file = patternBytes(3_000_000)
    static let new = patternBytes(2_000_000, seed: 9)
    static let sameLength = patternBytes(3_000_000, seed: 7)

    /// Fetches the first 1.2 MB of `file` under the tag v1. `then` answers the later requests.
    private func held(
        _ fixture: EngineFixture, tag: String? = "\"v1\"", _ then: @escaping @Sendable (ScriptedServer.Request, Reply) -> Void
    ) async throws -> (server: ScriptedServer, resume: ResumeData) {
        let server = ScriptedServer { request, reply in
            guard request.number == 0 else { return then(request, reply) }
            reply.head(200, ["ETag": "\"v1\""], length: Self.file.count)
            reply.send(Self.file[..<1_200_000])
            reply.close()
        }
        let resume = try #require(try await fixture.run(server.url("/file.bin")).resume)
        #expect(resume.written == 1_200_000)
        return (server, resume)
    }

    /// Sends `new` under the tag v2, or its rest if v2 is held. Closes the connection after 500,000 bytes.
    private static func breakNew(_ request: ScriptedServer.Request, _ reply: Reply) {
        let held = request.field("If-Range") == "\"v2\"" ? request.range?.first ?? 0 : 0
        if held > 0 {
            reply.head(206, ["ETag": "\"v2\"", "Content-Range": "bytes \(held)-1999999/2000000"], length: new.count - held)
        } else {
            reply.head(200, ["ETag": "\"v2\""], length: new.count)
        }
        reply.send(new[held..<min(held + 500_000, new.count)])
        reply.close()
    }

    /// Runs transfers one after another, each with the bytes and the facts that the one before has left.
    ///
    /// - Parameter mixes: whether a checksum proves the whole file.
    private func attempts(
        _ count: Int, from held: ResumeData, _ fixture: EngineFixture, _ url: String, _ mirrors: [String] = [], mixes: Bool = false
    ) async throws -> [TransferEnd] {
        var (ends, resume) = ([TransferEnd](), ResumeData?.some(held))
        for _ in 0..<count {
            let others = await fixture.log.facts().last?.otherRepresentations ?? []
            let request = try fixture.request(url) {
                ($0.resume, $0.otherRepresentations) = (resume, others)
                if !mirrors.isEmpty { $0.use(mirrors, mixes: mixes) }
            }
            let end = await fixture.run(request)
            ends.append(end)
            resume = end.resume
        }
        return ends
    }

    @Test func `of the same strong tag is asked for again without If-Range, and the rest joined where it carries that tag`() async throws {
        let fixture = await EngineFixture()
        // A content network may answer 200 whenever If-Range contains a tag.
        let (server, resume) = try await held(fixture) { request, reply in
            if request.field("If-Range") != nil { return reply.respond(200, ["ETag": "\"v1\""], body: Self.file) }
            reply.serve(Self.file, for: request, entityTag: "\"v1\"")
        }
        #expect(try await fixture.run(server.url("/file.bin")) { $0.resume = resume }.complete?.size == 3_000_000)
        #expect(fixture.part == Self.file)
        #expect(server.requests.map { $0.field("Range") } == [nil, "bytes=1200000-", "bytes=1200000-"])
        #expect(server.requests.map { $0.field("If-Range") } == [nil, "\"v1\"", nil])
        let facts = await fixture.log.facts()
        #expect(facts.count == 2 && facts[1].offset == 1_200_000 && !facts[1].discarded)
    }

    @Test(arguments: [nil, "\"v2\"", "W/\"v1\""]) func `is taken where the rest that comes without If-Range does not carry that tag`(
        tag: String?
    ) async throws {
        let fixture = await EngineFixture()
        let (server, resume) = try await held(fixture) { request, reply in
            if request.field("If-Range") != nil { return reply.respond(200, ["ETag": "\"v1\""], body: Self.file) }
            if request.field("Range") != nil { return reply.serve(Self.sameLength, for: request, entityTag: tag) }
            reply.serve(Self.sameLength, for: request, entityTag: "\"v2\"")
        }
        #expect(try await fixture.run(server.url("/file.bin")) { $0.resume = resume }.complete?.size == 3_000_000)
        #expect(fixture.part == Self.sameLength)
        #expect(server.requests.count == 4)
        #expect(await fixture.log.facts().last?.discarded == true)
    }

    @Test(arguments: [true, false]) func `of the same tag gives what is missing, where the server does no ranges`(saysSo: Bool) async throws
    {
        let fixture = await EngineFixture()
        let (server, resume) = try await held(fixture) { request, reply in
            if saysSo {
                reply.respond(200, ["ETag": "\"v1\"", "Accept-Ranges": "none"], body: Self.file)
            } else {
                reply.respond(200, ["ETag": "\"v1\""], body: Self.file)
            }
        }
        #expect(try await fixture.run(server.url("/file.bin")) { $0.resume = resume }.complete?.size == 3_000_000)
        #expect(fixture.part == Self.file)
        #expect(server.requests.count == (saysSo ? 2 : 3))
        let facts = await fixture.log.facts()
        #expect(facts.count == 2 && facts[1].offset == 1_200_000 && !facts[1].discarded)
    }

    @Test(arguments: [100_000, 1_200_000, 2_000_000]) func `of the same tag that breaks loses nothing that is held`(cut: Int) async throws {
        let fixture = await EngineFixture()
        let (server, resume) = try await held(fixture) { _, reply in
            reply.head(200, ["ETag": "\"v1\"", "Accept-Ranges": "none"], length: Self.file.count)
            reply.send(Self.file[..<cut])
            reply.close()
        }
        let end = try await fixture.run(server.url("/file.bin")) { $0.resume = resume }
        #expect(end.failure?.name == .truncated)
        #expect(end.resume?.written == ByteCount(max(cut, 1_200_000)) && end.resume?.validator == .entityTag("\"v1\""))
        guard case .failed(_, let madeProgress, _) = end else { return }
        #expect(madeProgress == (cut > 1_200_000))
        let part = try #require(fixture.part)
        #expect(part[...] == Self.file[..<max(cut, 1_200_000)])
    }

    @Test func `of the same tag is not fetched where all of it is held`() async throws {
        let fixture = await EngineFixture()
        let server = ScriptedServer { _, reply in
            reply.head(200, ["ETag": "\"v1\""], length: Self.file.count)
            reply.send(Self.file)
        }
        let part = try #require(try await fixture.run(server.url("/file.bin")).complete)
        #expect(try await fixture.run(server.url("/file.bin")) { $0.resume = part.resume }.complete?.size == 3_000_000)
        #expect(fixture.part == Self.file)
    }

    @Test func `of another representation leaves what is held until it is longer`() async throws {
        let gate = Gate()
        let fixture = await EngineFixture()
        let (server, resume) = try await held(fixture) { _, reply in
            reply.head(200, ["ETag": "\"v2\""], length: Self.new.count)
            reply.send(Self.new[..<1_100_000])
            gate.wait()
            reply.close()
        }
        let ends = await fixture.log.ends(of: DownloadNumber(1))
        let seen = await fixture.log.events.count
        fixture.engine.start(try fixture.request(server.url("/file.bin")) { $0.resume = resume })
        await fixture.log.wait { events in events.contains { if case .began(_, let facts) = $0 { facts.discarded } else { false } } }
        // Other events may have followed by now.
        await fixture.log.wait { events in
            events[seen...].contains { if case .progress(let all) = $0 { all.contains { $0.received == 1_100_000 } } else { false } }
        }
        let both = listFolder(fixture.folder.path).filter { $0.hasPrefix(".todoku") }
        #expect(both == [".todoku-1.new.part", ".todoku-1.part"])
        var status = stat()
        #expect(stat(fixture.folder(".todoku-1.new.part"), &status) == 0 && status.st_mode & 0o777 == 0o600)
        #expect(fixture.part.map { $0[...] == Self.file[..<1_200_000] } == true)
        gate.open()
        let end = await fixture.log.end(of: DownloadNumber(1), after: ends)
        guard case .failed(let failure, let madeProgress, let after) = end else { return #expect(Bool(false)) }
        #expect(failure.name == .truncated && !madeProgress && after == resume)
        #expect(listFolder(fixture.folder.path).filter { $0.hasPrefix(".todoku") } == [".todoku-1.part"])
        #expect(fixture.part.map { $0[...] == Self.file[..<1_200_000] } == true)
    }

    /// A later response may continue the held bytes and tell no name. So the name of the dropped body must not stay.
    @Test func `of another representation that is cut leaves the name, the type and the size of what is held`() async throws {
        let fixture = await EngineFixture()
        let (server, resume) = try await held(fixture) { _, reply in
            let fields: KeyValuePairs = [
                "ETag": "\"v2\"", "Content-Type": "text/html", "Content-Disposition": "attachment; filename=login.html",
            ]
            reply.head(200, fields, length: Self.new.count)
            reply.send(Self.new[..<500_000])
            reply.close()
        }
        let end = try await fixture.run(server.url("/file.bin")) { ($0.resume, $0.knownName, $0.knownType) = (resume, "told", "a/b") }
        #expect(end.resume == resume)
        #expect(await fixture.log.facts().last?.fileName == "login.html")
        let dropped = await fixture.log.events.compactMap { if case .bodyDropped(_, let facts) = $0 { facts } else { nil } }
        let facts = try #require(dropped.first)
        #expect(dropped.count == 1 && facts.fileName == "told" && facts.mediaType == "a/b")
        #expect(facts.total == 3_000_000 && facts.offset == 1_200_000 && facts.isResumable)
    }

    @Test func `of another representation takes the place of what is held once it is longer`() async throws {
        let fixture = await EngineFixture()
        let (server, resume) = try await held(fixture) { _, reply in
            reply.head(200, ["ETag": "\"v2\""], length: Self.new.count)
            reply.send(Self.new[..<1_800_000])
            reply.close()
        }
        let end = try await fixture.run(server.url("/file.bin")) { $0.resume = resume }
        guard case .failed(let failure, let madeProgress, let after) = end else { return #expect(Bool(false)) }
        #expect(failure.name == .truncated && madeProgress)
        #expect(after?.written == 1_800_000 && after?.validator == .entityTag("\"v2\"") && after?.identity.inode != resume.identity.inode)
        #expect(listFolder(fixture.folder.path).filter { $0.hasPrefix(".todoku") } == [".todoku-1.part"])
        #expect(fixture.part.map { $0[...] == Self.new[..<1_800_000] } == true)
        // The checkpoint that drops the old bytes follows all checkpoints about them, and the map describes only the new file.
        let checkpoints = await fixture.log.checkpoints()
        let start = try #require(checkpoints.firstIndex { $0.validator == .entityTag("\"v2\"") })
        #expect(checkpoints[start].written == 0 && checkpoints[..<start].allSatisfy { $0.validator == .entityTag("\"v1\"") })
        _ = try await fixture.run(server.url("/file.bin")) { $0.expectedSize = 1 }
        #expect(server.requests.last?.field("Range") == "bytes=1800000-")
    }

    /// Otherwise, each attempt would fetch the new file from its first byte, and none would end.
    @Test func `of another representation replaces what is held at the second try in a row, though it is shorter`() async throws {
        let fixture = await EngineFixture()
        let (server, resume) = try await held(fixture) { request, reply in Self.breakNew(request, reply) }
        let ends = try await attempts(5, from: resume, fixture, server.url("/file.bin"))
        #expect(ends[0].resume == resume, "the first try may be a login page")
        #expect(ends.map { $0.resume?.written } == [1_200_000, 500_000, 1_000_000, 1_500_000, nil])
        #expect(ends.dropFirst().dropLast().allSatisfy { $0.resume?.validator == .entityTag("\"v2\"") })
        #expect(ends[4].complete?.size == 2_000_000 && fixture.part == Self.new)
        #expect(server.requests.map { $0.range?.first } == [nil, 1_200_000, 1_200_000, 500_000, 1_000_000, 1_500_000])
        #expect(listFolder(fixture.folder.path).filter { $0.hasPrefix(".todoku") } == [".todoku-1.part"])
    }

    @Test func `of a mirror replaces what is held at the second try in a row, too`() async throws {
        let fixture = await EngineFixture()
        let (server, resume) = try await held(fixture) { _, reply in reply.respond(404) }
        let mirror = ScriptedServer { request, reply in Self.breakNew(request, reply) }
        let ends = try await attempts(3, from: resume, fixture, server.url("/file.bin"), [mirror.url("/copy.bin")])
        #expect(ends[0].resume == resume)
        #expect(ends[1].resume?.written == 500_000 && ends[1].resume?.mirror == 0)
        #expect(ends[2].complete?.size == 2_000_000 && fixture.part == Self.new)
        #expect(server.requests.count == 3, "the source of the held bytes is asked first")
    }

    /// With a checksum, a source that contradicts the held bytes is left while a mirror could continue them. Then it is the last resort.
    @Test(arguments: [false, true])
    func `of the source of what is held replaces it at the second try in a row, though mirrors are asked before`(
        hasMirrorChanged: Bool
    ) async throws {
        let fixture = await EngineFixture()
        let (server, resume) = try await held(fixture) { request, reply in Self.breakNew(request, reply) }
        let mirror = ScriptedServer { request, reply in
            if hasMirrorChanged { Self.breakNew(request, reply) } else { reply.respond(404) }
        }
        let ends = try await attempts(3, from: resume, fixture, server.url("/file.bin"), [mirror.url("/copy.bin")], mixes: true)
        #expect(ends[0].resume == resume, "the first try may be a login page")
        #expect(ends[1].resume?.written == 500_000 && ends[1].resume?.validator == .entityTag("\"v2\""))
        // The third transfer asks the source again after each lost connection, because the bytes stay now.
        #expect(ends[2].complete?.size == 2_000_000 && fixture.part == Self.new, "\(ends[2])")
        #expect(server.requests.map { $0.range?.first } == [nil, 1_200_000, nil, 1_200_000, nil, 500_000, 1_000_000, 1_500_000])
    }

    @Test func `of another representation costs nothing of what is held if the held file comes in between`() async throws {
        let fixture = await EngineFixture()
        let (server, resume) = try await held(fixture) { request, reply in
            guard request.number == 2 else { return Self.breakNew(request, reply) }
            reply.head(206, ["ETag": "\"v1\"", "Content-Range": "bytes 1200000-2999999/3000000"], length: 1_800_000)
            reply.send(Self.file[1_200_000..<1_300_000])
            reply.close()
        }
        let ends = try await attempts(3, from: resume, fixture, server.url("/file.bin"))
        #expect(ends.map { $0.resume?.written } == [1_200_000, 1_300_000, 1_300_000])
        #expect(ends[2].resume?.validator == .entityTag("\"v1\""))
        #expect(fixture.part.map { $0[...] == Self.file[..<1_300_000] } == true)
    }

    /// The source has stated the new file in the previous transfer, and in this one it continues the held file first.
    @Test func `of another representation costs nothing of what is held if the same transfer has continued the held file`() async throws {
        let fixture = await EngineFixture()
        let (server, resume) = try await held(fixture) { request, reply in
            guard request.number == 1 else { return Self.breakNew(request, reply) }
            reply.head(206, ["ETag": "\"v1\"", "Content-Range": "bytes 1200000-1299999/3000000"], length: 100_000)
            reply.send(Self.file[1_200_000..<1_300_000])
        }
        let end = try await fixture.run(server.url("/file.bin")) {
            $0.resume = resume
            $0.otherRepresentations = [OtherRepresentation(.entityTag("\"v2\""), mirror: nil)]
        }
        #expect(end.resume?.written == 1_300_000 && end.resume?.validator == .entityTag("\"v1\""))
        #expect(server.requests.map { $0.range?.first } == [nil, 1_200_000, 1_300_000])
        #expect(await fixture.log.facts().last?.otherRepresentations.count == 1, "the next transfer may take it")
    }

    /// Its size could still show that it is a wrong file.
    @Test func `of another representation that states no size costs nothing of what is held, however often it breaks`() async throws {
        let fixture = await EngineFixture()
        let (server, resume) = try await held(fixture) { _, reply in
            reply.head(200, ["ETag": "\"v2\"", "Transfer-Encoding": "chunked"])
            reply.chunk(Self.new[..<500_000])
            reply.close()
        }
        let ends = try await attempts(3, from: resume, fixture, server.url("/file.bin"))
        #expect(ends.map(\.resume) == [resume, resume, resume])
    }

    /// With resume data, though of no bytes, the scheduler would keep a part file that nothing can continue.
    @Test func `of another representation without a validator leaves no resume data`() async throws {
        let fixture = await EngineFixture()
        let (server, resume) = try await held(fixture) { _, reply in
            reply.head(200, length: Self.new.count)
            reply.send(Self.new[..<1_800_000])
            reply.close()
        }
        let end = try await fixture.run(server.url("/file.bin")) { $0.resume = resume }
        #expect(end.failure?.name == .truncated && end.resume == nil, "\(end)")
        #expect(fixture.part.map { $0[...] == Self.new[..<1_800_000] } == true, "the new bytes have replaced the held ones")
    }

    @Test func `that is short and complete is the file, as far as HTTP says`() async throws {
        let fixture = await EngineFixture()
        let page = Array("<html>Log in</html>".utf8)
        let (server, resume) = try await held(fixture) { _, reply in reply.respond(200, ["Content-Type": "text/html"], body: page) }
        #expect(try await fixture.run(server.url("/file.bin")) { $0.resume = resume }.complete?.size == ByteCount(page.count))
        #expect(fixture.part == page)
    }

    @Test func `that is left over beside the part file is removed at the next start, and with the download`() async throws {
        let server = ScriptedServer { request, reply in reply.serve(Self.file, for: request, entityTag: "\"v1\"") }
        let fixture = await EngineFixture()
        writeFile(fixture.folder(".todoku-1.new.part"), "old".utf8)
        #expect(try await fixture.run(server.url("/file.bin")).complete != nil)
        #expect(!fileExists(fixture.folder(".todoku-1.new.part")))
        writeFile(fixture.folder(".todoku-1.new.part"), "old".utf8)
        Commit.discard(directory: fixture.folder.path, partName: ".todoku-1.part", mapPath: fixture.folder("map-1"))
        #expect(listFolder(fixture.folder.path) == [])
    }
}
