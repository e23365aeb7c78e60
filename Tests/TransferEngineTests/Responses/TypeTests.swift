import DownloadModel
import EventLoop
import Glibc
import TestSupport
import Testing
import TransferEngine

@Suite(.timeLimit(.minutes(5))) struct `The option expect-type` {
    @Test(arguments: [
        ("image/png", "image/png", true), ("image/*", "image/png; q=1", true), ("image/png", "Image/PNG", true),
        ("image/png", "image/jpeg", false), ("image/*", "text/html; charset=utf-8", false), ("image/*", nil, false),
        ("image/*", "imagex/png", false), ("image/png", "nonsense", false),
    ]) func `accepts matching types and refuses others before the body`(expected: String, type: String?, isTaken: Bool) async throws {
        let server = ScriptedServer { _, reply in
            if let type { reply.respond(200, ["Content-Type": type], text: "x") } else { reply.respond(200, text: "x") }
        }
        let fixture = await EngineFixture()
        let end = try await fixture.run(server.url("/x")) { $0.expectedType = expected }
        #expect((end.complete != nil) == isTaken)
        guard !isTaken else { return }
        #expect(end.failure?.name == .typeMismatch && end.failure?.isRetryable == false && end.failure?.wait == nil)
        #expect(listFolder(fixture.folder.path) == [])
        #expect(await fixture.log.facts() == [])
    }

    @Test func `leaves an old part alone, and accepts a rest without a type`() async throws {
        let file = patternBytes(300_000)
        let server = ScriptedServer { request, reply in
            switch request.number {
            case 0:
                reply.head(200, ["ETag": "\"v1\"", "Content-Type": "image/png"], length: file.count)
                reply.send(file[..<100_000])
                reply.close()
            case 1: reply.respond(200, ["Content-Type": "text/html"], text: "<html>Log in</html>")
            default:
                reply.head(206, ["Content-Range": "bytes 100000-299999/300000", "ETag": "\"v1\""], length: 200_000)
                reply.send(file[100_000...])
            }
        }
        let fixture = await EngineFixture()
        let cut = try await fixture.run(server.url("/x")) { $0.expectedType = "image/*" }
        let page = try await fixture.run(server.url("/x")) { ($0.expectedType, $0.resume) = ("image/*", cut.resume) }
        #expect(page.failure?.name == .typeMismatch && page.resume == cut.resume && cut.resume?.written == 100_000)
        let end = try await fixture.run(server.url("/x")) { ($0.expectedType, $0.resume) = ("image/*", page.resume) }
        #expect(end.complete?.size == 300_000)
        #expect(fixture.part == file)
    }

    @Test func `ignores responses that are no file`() async throws {
        let server = ScriptedServer { request, reply in
            switch request.path {
            case "/gone": reply.respond(404, ["Content-Type": "text/html"], text: "gone")
            case "/moved": reply.respond(302, ["Content-Type": "text/html", "Location": "/x"], text: "moved")
            default: reply.respond(200, ["Content-Type": "image/png"], text: "x")
            }
        }
        let fixture = await EngineFixture()
        #expect(try await fixture.run(server.url("/gone")) { $0.expectedType = "image/*" }.failure?.httpStatus == 404)
        #expect(try await fixture.run(server.url("/moved")) { $0.expectedType = "image/*" }.complete != nil)
    }
}
