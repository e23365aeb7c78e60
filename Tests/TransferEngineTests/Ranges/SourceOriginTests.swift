import DownloadModel
import EventLoop
import TestSupport
import Testing

@testable internal import TransferEngine

@Suite(.timeLimit(.minutes(5))) struct `Two URLs of one server, without a checksum` {
    static let file = patternBytes(2_000_000)
    static let other = [UInt8](repeating: 0xEE, count: 2_000_000)

    /// The server sends the file itself, or redirects both URLs to one other server.
    @Test(arguments: [false, true]) func `follow each other if one server sends the bytes of both, with the same strong validator`(
        redirects: Bool
    ) async throws {
        let target = ScriptedServer { request, reply in
            if request.path == "/copy.bin" { return reply.serve(Self.file, for: request, entityTag: "\"v1\"") }
            guard request.number == 0 else { return reply.respond(404) }
            reply.head(200, ["ETag": "\"v1\"", "Accept-Ranges": "bytes"], length: Self.file.count)
            reply.send(Self.file[..<900_000])
            reply.close()
        }
        let front = ScriptedServer { request, reply in reply.respond(302, ["Location": target.url(request.path)]) }
        let main = redirects ? front : target
        let fixture = await EngineFixture()
        let end = try await fixture.run(main.url("/file.bin")) { $0.use([main.url("/copy.bin")]) }
        #expect(end.complete?.size == 2_000_000 && fixture.part == Self.file)
        #expect(target.requests.map { $0.range?.first } == [nil, 900_000, 900_000])
        #expect(await fixture.log.sources.map(\.received) == [900_000, 1_100_000])
    }

    /// The two other servers send the same strong validator for different files.
    @Test func `begin each from the first byte if the redirects lead to two other servers`() async throws {
        let first = breakingServer(Self.other, after: 900_000)
        let second = ScriptedServer { request, reply in reply.serve(Self.file, for: request, entityTag: "\"v1\"") }
        let front = ScriptedServer { request, reply in
            reply.respond(302, ["Location": request.path == "/file.bin" ? first.url("/a") : second.url("/b")])
        }
        let fixture = await EngineFixture()
        let end = try await fixture.run(front.url("/file.bin")) { $0.use([front.url("/copy.bin")]) }
        #expect(end.complete?.size == 2_000_000 && fixture.part == Self.file, "no byte of the first server stays")
        #expect(second.requests.last?.field("Range") == nil)
        #expect(await fixture.log.sources.map(\.received) == [900_000, 2_000_000])
    }
}
