import DownloadModel
import EventLoop
import Glibc
import TestSupport
import Testing
import TransferEngine

@Suite(.timeLimit(.minutes(5))) struct `Fetching a file` {
    @Test func `brings every byte, tells what the response said, and ends once`() async throws {
        let file = patternBytes(3_000_001)
        let server = ScriptedServer { request, reply in
            reply.serve(file, for: request, entityTag: "\"v1\"", type: "Application/ZIP; charset=binary")
        }
        let fixture = await EngineFixture()
        let end = try await fixture.run(server.url("/dir/%E5%B1%8A%E3%81%8F.zip?key=secret"))
        let part = try #require(end.complete)
        #expect(fixture.part == file)
        #expect(part.size == 3_000_001 && part.host == "127.0.0.1" && part.httpStatus == 200)
        var facts = TransferFacts(
            fileName: "届く.zip", mediaType: "application/zip", total: 3_000_001, offset: 0, discarded: false, isResumable: true)
        facts.isFromPrivate = true
        #expect(await fixture.log.facts() == [facts])
        #expect(await fixture.log.ends(of: DownloadNumber(1)) == 1)
        let events = await fixture.log.events
        #expect(events.last?.isEnd(of: DownloadNumber(1)) == true)
        let request = try #require(server.requests.first)
        #expect(request.field("User-Agent") == "todoku/0.test")
        #expect(request.field("Accept-Encoding") == "identity")
        #expect(request.field("Range") == nil && request.field("Referer") == nil)
        var status = stat()
        #expect(stat(fixture.folder(".todoku-1.part"), &status) == 0 && status.st_mode & 0o777 == 0o600)
    }

    @Test func `brings an empty file`() async throws {
        let server = ScriptedServer { _, reply in reply.respond(200, ["Content-Type": "text/plain"]) }
        let fixture = await EngineFixture()
        #expect(try await fixture.run(server.url("/empty")).complete?.size == 0)
        #expect(fixture.part == [])
        #expect(await fixture.log.facts().map(\.total) == [0])
    }

    @Test func `brings several at once`() async throws {
        let files = (0..<8).map { patternBytes(700_000 + $0 * 1000, seed: UInt64($0 + 1)) }
        let server = ScriptedServer { request, reply in reply.serve(files[Int(request.path.dropFirst())!], for: request) }
        let fixture = await EngineFixture()
        for number in 0..<8 { fixture.engine.start(try fixture.request(server.url("/\(number)"), number: UInt64(number))) }
        for number in 0..<8 {
            #expect(await fixture.log.end(of: DownloadNumber(UInt64(number))).complete?.size == ByteCount(files[number].count))
            #expect(fixture.part(UInt64(number)) == files[number])
        }
    }

    @Test(arguments: ["chunked", "close"]) func `takes a body of unknown length`(framing: String) async throws {
        let file = patternBytes(300_000)
        let server = ScriptedServer { _, reply in
            if framing == "chunked" {
                reply.head(200, ["Transfer-Encoding": "chunked"])
                for start in stride(from: 0, to: file.count, by: 70_000) { reply.chunk(file[start..<min(file.count, start + 70_000)]) }
                reply.chunk([])
            } else {
                reply.head(200)
                reply.send(file)
                reply.close()
            }
        }
        let fixture = await EngineFixture()
        let end = try await fixture.run(server.url("/file"))
        #expect(end.complete?.size == 300_000)
        #expect(fixture.part == file)
        #expect(await fixture.log.facts().map(\.total) == [nil])
    }

    @Test func `decodes a body that is coded all the same, and does not take its length for the file's`() async throws {
        let text = Array(String(repeating: "届く todoku ", count: 5000).utf8)
        let folder = TemporaryFolder()
        writeFile(folder("text"), text)
        #expect(await Child.run(["gzip", folder("text")]).status == 0)
        let coded = try #require(readFile(folder("text.gz")))
        let server = ScriptedServer { _, reply in reply.respond(200, ["Content-Encoding": "gzip", "ETag": "\"v1\""], body: coded) }
        let fixture = await EngineFixture()
        let end = try await fixture.run(server.url("/text"))
        #expect(fixture.part == text)
        #expect(end.complete?.size == ByteCount(text.count))
        #expect(await fixture.log.facts().map(\.total) == [nil])
        #expect(await fixture.log.facts().map(\.isResumable) == [false])
    }

    @Test func `counts decoded bytes against the largest size`() async throws {
        let folder = TemporaryFolder()
        writeFile(folder("zeros"), [UInt8](repeating: 0, count: 2_000_000))
        #expect(await Child.run(["gzip", folder("zeros")]).status == 0)
        let coded = try #require(readFile(folder("zeros.gz")))
        let server = ScriptedServer { _, reply in reply.respond(200, ["Content-Encoding": "gzip"], body: coded) }
        let fixture = await EngineFixture()
        let end = try await fixture.run(server.url("/zeros")) { $0.maxSize = 100_000 }
        #expect(end.failure?.name == .tooLarge)
    }

    @Test func `takes the name from Content-Disposition, and a given one before it`() async throws {
        let server = ScriptedServer { _, reply in
            reply.respond(200, ["Content-Disposition": "attachment; filename*=UTF-8''%E8%B3%87%E6%96%99.pdf"], text: "x")
        }
        let fixture = await EngineFixture()
        #expect(try await fixture.run(server.url("/a")).complete?.facts.fileName == "資料.pdf")
        #expect(try await fixture.run(server.url("/a"), number: 2) { $0.fileName = "own.pdf" }.complete?.facts.fileName == "own.pdf")
    }

    @Test func `reads a name in Shift_JIS`() async throws {
        let name: [UInt8] = [0x93, 0xFA, 0x96, 0x7B, 0x2E, 0x74, 0x78, 0x74]  // 日本.txt
        let server = ScriptedServer { _, reply in
            reply.send(Array("HTTP/1.1 200 OK\r\nContent-Disposition: attachment; filename=\"".utf8) + name)
            reply.send("\"\r\nContent-Length: 1\r\n\r\nx")
        }
        let fixture = await EngineFixture()
        #expect(try await fixture.run(server.url("/a")).complete?.facts.fileName == "日本.txt")
    }

    @Test func `sends the caller's fields and credentials, but none that are its own business`() async throws {
        let server = ScriptedServer { request, reply in
            if request.field("Authorization") == nil {
                reply.respond(401, ["WWW-Authenticate": "Basic realm=\"x\""], text: "who?")
            } else {
                reply.respond(200, text: "x")
            }
        }
        let fixture = await EngineFixture()
        let end = try await fixture.run(server.url("/a")) {
            $0.headers = [
                HeaderField(name: "X-Key", value: "abc"), HeaderField(name: "X-Empty", value: ""),
                HeaderField(name: "Range", value: "bytes=5-"),
            ]
            ($0.userAgent, $0.referrer, $0.username, $0.password) = ("own/1", "http://example.org/", "user", "pässword")
        }
        #expect(end.complete != nil)
        let request = try #require(server.requests.last)
        #expect(request.field("X-Key") == "abc" && request.field("X-Empty") == "" && request.field("Range") == nil)
        #expect(request.field("User-Agent") == "own/1" && request.field("Referer") == "http://example.org/")
        #expect(request.field("Authorization") == "Basic dXNlcjpww6Rzc3dvcmQ=")
    }

    @Test func `ends at once where the name is taken and the policy says so`() async throws {
        let server = ScriptedServer { _, reply in
            reply.head(200, ["Content-Disposition": "attachment; filename=\"there.txt\""], length: 1_000_000)
            reply.send("x")
        }
        let fixture = await EngineFixture()
        writeFile(fixture.folder("there.txt"), "old".utf8)
        let path = fixture.folder("there.txt")
        #expect(try await fixture.run(server.url("/a")) { $0.ifExists = .skip } == .nameTaken(path: path))
        #expect(try await fixture.run(server.url("/a")) { ($0.ifExists, $0.fileName) = (.fail, "there.txt") } == .nameTaken(path: path))
        #expect(server.requests.count == 1)
        #expect(listFolder(fixture.folder.path) == ["there.txt"])
    }

    @Test func `starts no thread before the first transfer, and ends it`() async {
        await #expect(processExitsWith: .success) {
            func names() -> [String] {
                listFolder("/proc/self/task").map { String(decoding: readFile("/proc/self/task/\($0)/comm") ?? [], as: UTF8.self) }
            }
            let engine = Engine(configuration: EngineConfiguration(version: "0", environment: [:])) { _ in }
            engine.setTotalSpeedLimit(1000)
            precondition(!names().contains("todoku-curl\n"))
            precondition(!String(decoding: readFile("/proc/self/maps") ?? [], as: UTF8.self).contains("libcurl"))
            let port = closedPort()
            engine.start(
                TransferRequest(
                    number: DownloadNumber(1), url: try! DownloadURL("http://127.0.0.1:\(port)/"), directory: "/tmp", partName: ".x"))
            let isThere = await eventually { names().contains("todoku-curl\n") }
            precondition(isThere)
            await withCheckedContinuation { continuation in engine.shutDown { continuation.resume() } }
            let isGone = await eventually { !names().contains("todoku-curl\n") }
            precondition(isGone)
        }
    }
}
