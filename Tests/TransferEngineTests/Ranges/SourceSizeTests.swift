import DownloadModel
import EventLoop
import TestSupport
import Testing

@testable internal import TransferEngine

/// A source whose first response is chunked, and so states no size. The caller knows the size and the checksum of the file.
@Suite(.timeLimit(.minutes(5))) struct `A source that states no size` {
    static let file = patternBytes(8_000_000)

    /// Sends the first bytes of the file in a chunk, then ends the connection. It answers 404 to every later request.
    private func chunkedServer(_ fields: KeyValuePairs<String, String> = [:], _ chunk: [UInt8]) -> ScriptedServer {
        ScriptedServer { request, reply in
            guard request.number == 0 else { return reply.respond(404) }
            reply.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n")
            for (name, value) in fields { reply.send("\(name): \(value)\r\n") }
            reply.send("\r\n")
            reply.chunk(chunk)
            reply.close()
        }
    }

    @Test(arguments: [true, false]) func `is continued by a mirror whose file has the expected size`(sendsRanges: Bool) async throws {
        let main = chunkedServer(["ETag": "\"v1\""], Array(Self.file[..<3_000_000]))
        let mirror = ScriptedServer { request, reply in
            if sendsRanges { reply.serve(Self.file, for: request) } else { reply.respond(200, body: Self.file) }
        }
        let fixture = await EngineFixture()
        let end = try await fixture.run(main.url()) {
            $0.use([mirror.url()], mixes: true)
            $0.expectedSize = 8_000_000
        }
        #expect(end.complete?.size == 8_000_000 && fixture.part == Self.file)
        // A mirror without ranges is asked for the whole file once the URL has failed again. The bytes that are held are dropped.
        #expect(mirror.requests.map { $0.range?.first } == (sendsRanges ? [3_000_000] : [3_000_000, nil]))
        #expect(await fixture.log.sources.map(\.received) == [3_000_000, 5_000_000])
    }

    /// Nothing shows that the mirror has the same file. So it is asked for all of it, and is not blamed for its size.
    @Test(arguments: [true, false]) func `is not continued by a mirror if the caller states none either`(sendsRanges: Bool) async throws {
        let main = chunkedServer(["ETag": "\"v1\""], Array(Self.file[..<3_000_000]))
        let mirror = ScriptedServer { request, reply in
            if sendsRanges { reply.serve(Self.file, for: request) } else { reply.respond(200, body: Self.file) }
        }
        let fixture = await EngineFixture()
        let end = try await fixture.run(main.url()) { $0.use([mirror.url()], mixes: true) }
        #expect(end.complete?.size == 8_000_000 && fixture.part == Self.file)
        // The source of the held bytes is asked for the rest first.
        #expect(main.requests.map { $0.range?.first } == [nil, 3_000_000] && mirror.requests.map { $0.range?.first } == [nil])
        #expect(await fixture.log.sources.map(\.left) == [.httpStatus, nil])
    }

    @Test func `is continued by itself, if its next response states none either`() async throws {
        let server = ScriptedServer { request, reply in
            if let first = request.range?.first {
                reply.head(206, ["ETag": "\"v1\"", "Content-Range": "bytes \(first)-7999999/*"], length: 8_000_000 - first)
                reply.send(Self.file[first...])
            } else {
                reply.head(200, ["ETag": "\"v1\"", "Transfer-Encoding": "chunked"])
                reply.chunk(Self.file[..<3_000_000])
                reply.close()
            }
        }
        let fixture = await EngineFixture()
        let first = try await fixture.run(server.url()) { $0.expectedSize = 8_000_000 }
        let end = try await fixture.run(server.url()) { ($0.expectedSize, $0.resume) = (8_000_000, first.resume) }
        #expect(end.complete?.size == 8_000_000 && fixture.part == Self.file)
        #expect(server.requests.map { $0.range?.first } == [nil, 3_000_000])
    }

    /// As a server that no longer has the file, and answers 200 with a page that says so.
    @Test(arguments: [true, false]) func `and whose whole body has another size, leaves none of its bytes to a mirror`(
        isChunked: Bool
    ) async throws {
        let page = patternBytes(100_000, seed: 2)
        let main = ScriptedServer { _, reply in
            reply.head(200, isChunked ? ["ETag": "\"v1\"", "Transfer-Encoding": "chunked"] : ["ETag": "\"v1\""])
            guard isChunked else {
                reply.send(page)
                return reply.close()
            }
            reply.chunk(page)
            reply.chunk([])
        }
        let mirror = ScriptedServer { request, reply in reply.serve(Self.file, for: request) }
        let fixture = await EngineFixture()
        let end = try await fixture.run(main.url()) {
            $0.use([mirror.url()], mixes: true)
            $0.expectedSize = 8_000_000
        }
        #expect(end.complete?.size == 8_000_000 && fixture.part == Self.file)
        #expect(main.requests.count == 1 && mirror.requests.map { $0.range?.first } == [nil])
        #expect(await fixture.log.sources.map(\.left) == [.wrongSize, nil])
    }

    /// The bytes of a decoded body are not continued, so the mirror is asked for the whole file at once, and is not left.
    @Test func `and sends the file compressed, makes the mirror bring it from the first byte`() async throws {
        let main = chunkedServer(["Content-Encoding": "deflate"], [0x78, 0x9C, 0x00, 0xFF, 0xFF, 0x00, 0x00] + Self.file[..<65_535])
        let mirror = ScriptedServer { request, reply in reply.serve(Self.file, for: request) }
        let fixture = await EngineFixture()
        let end = try await fixture.run(main.url()) {
            $0.use([mirror.url()], mixes: true)
            $0.expectedSize = 8_000_000
        }
        #expect(end.complete?.size == 8_000_000 && fixture.part == Self.file)
        #expect(mirror.requests.map { $0.range?.first } == [nil])
        #expect(await fixture.log.sources.map(\.left) == [.network, nil])
    }
}
