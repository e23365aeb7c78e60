import DownloadModel
import EventLoop
import TestSupport
import Testing
import TransferEngine

@testable import Transport

@Suite(.timeLimit(.minutes(5))) struct `Redirects` {
    @Test(arguments: [301, 302, 303, 307, 308]) func `are followed, relative and absolute`(status: Int) async throws {
        let server = ScriptedServer { request, reply in
            switch request.path {
            case "/a/first": reply.respond(status, ["Location": "second?x=1"], text: "moved")
            case "/a/second": reply.respond(status, ["Location": "http://\(request.field("Host")!)/third.bin"], text: "moved")
            default: reply.respond(200, text: "here")
            }
        }
        let fixture = await EngineFixture()
        let end = try await fixture.run(server.url("/a/first"))
        #expect(fixture.part == Array("here".utf8))
        #expect(end.complete?.facts.fileName == "third.bin")
        #expect(server.requests.map(\.target) == ["/a/first", "/a/second?x=1", "/third.bin"])
        #expect(server.connections == 1)
    }

    @Test func `carry header fields, referrer and credentials to the first origin only`() async throws {
        let other = ScriptedServer { _, reply in reply.respond(200, text: "x") }
        let there = other.url("/there")
        let server = ScriptedServer { request, reply in
            switch (request.path, request.field("Authorization")) {
            case (_, nil): reply.respond(401, ["WWW-Authenticate": "Basic realm=\"x\""])
            case ("/first", _): reply.respond(302, ["Location": "/same"])
            default: reply.respond(302, ["Location": there])
            }
        }
        let fixture = await EngineFixture()
        let end = try await fixture.run(server.url("/first")) {
            $0.headers = [HeaderField(name: "Cookie", value: "a=b"), HeaderField(name: "Authorization-Extra", value: "token")]
            ($0.referrer, $0.username, $0.password, $0.userAgent) = ("http://example.org/page", "user", "secret", "own/1")
        }
        #expect(end.complete != nil)
        for request in server.requests {
            #expect(request.field("Cookie") == "a=b" && request.field("Referer") == "http://example.org/page")
        }
        let foreign = try #require(other.requests.first)
        #expect(other.requests.count == 1)
        #expect(Set(foreign.fields.map { $0.name.lowercased() }) == ["host", "user-agent", "accept", "accept-encoding"])
    }

    @Test func `end after 20 hops`() async throws {
        let server = ScriptedServer { _, reply in reply.respond(302, ["Location": "/again"]) }
        let fixture = await EngineFixture()
        let end = try await fixture.run(server.url("/"))
        #expect(end.failure?.name == .tooManyRedirects)
        #expect(end.failure?.isRetryable == false)
        #expect(server.requests.count == 21)
    }

    @Test(arguments: ["file:///etc/passwd", "ftp://127.0.0.1/x", "gopher://127.0.0.1/", "data:text/plain,x", "http://", "//"])
    func `lead to http and https only`(location: String) async throws {
        let server = ScriptedServer { _, reply in reply.respond(302, ["Location": location]) }
        let fixture = await EngineFixture()
        let end = try await fixture.run(server.url("/?token=secret"))
        let failure = try #require(end.failure)
        #expect(failure.name == .unsafeRedirect && !failure.isRetryable)
        let reason =
            ["http://", "//"].contains(location)
            ? "an address that cannot be used. The URL has no host; write it as in https://example.org/file."
            : "an address that is not http or https."
        #expect(failure.message == "The server 127.0.0.1 redirected to \(reason)")
        #expect(listFolder(fixture.folder.path) == [])
    }

    @Test func `without a place to go are failures`() async throws {
        let server = ScriptedServer { _, reply in reply.respond(302) }
        let fixture = await EngineFixture()
        let failure = try #require(try await fixture.run(server.url("/")).failure)
        #expect(failure.name == .httpStatus && failure.httpStatus == 302)
    }

    @Test(arguments: ["endless", "fat", "cut", "reset", "silent", "nonsense"])
    func `are followed by their head, whatever becomes of their body`(body: String) async throws {
        let gate = Gate()
        let server = ScriptedServer { request, reply in
            guard request.path == "/" else { return reply.respond(200, text: "here") }
            switch body {
            case "endless":
                reply.head(302, ["Location": "/x", "Transfer-Encoding": "chunked"])
                while reply.chunkGoes([UInt8](repeating: 65, count: 30_000)) {}
            case "fat":
                reply.head(302, ["Location": "/x"], length: 70_000)
                reply.send([UInt8](repeating: 65, count: 70_000))
            case "nonsense":
                reply.head(302, ["Location": "/x", "Transfer-Encoding": "chunked"])
                reply.send("no chunk\r\n")
            default:
                reply.head(302, ["Location": "/x"], length: 5000)
                reply.send("some")
                if body == "silent" { gate.wait() }
                body == "reset" ? reply.reset() : reply.close()
            }
        }
        let fixture = await EngineFixture()
        let end = try await fixture.run(server.url("/"))
        gate.open()
        #expect(end.complete?.size == 4, "\(end)")
        #expect(fixture.part == Array("here".utf8))
    }

    @Test func `continue with the bytes that were sent, including a bare percent sign and brackets`() async throws {
        let server = ScriptedServer { request, reply in
            switch request.target {
            case "/first%?a=1%":
                reply.send("HTTP/1.1 302 Found\r\nLocation: /")
                reply.send([0x93, 0xFA, 0x96, 0x7B])  // 日本 in Shift_JIS
                reply.send("?sig=100%&x[1]={a|b}\r\nContent-Length: 0\r\n\r\n")
            case "/%93%FA%96%7B?sig=100%&x[1]={a|b}": reply.respond(302, ["Location": "100%.txt"])
            case "/100%.txt": reply.respond(200, text: "here")
            default: reply.respond(404)
            }
        }
        let fixture = await EngineFixture()
        let end = try await fixture.run(server.url("/first%?a=1%"))
        #expect(end.complete?.facts.fileName == "100%.txt", "\(end)")
        #expect(server.requests.map(\.target) == ["/first%?a=1%", "/%93%FA%96%7B?sig=100%&x[1]={a|b}", "/100%.txt"])
    }

    @Test func `from a public server do not lead into a private network`() async throws {
        // Through a proxy, host names stand for their addresses: the first is public, the second is not.
        let proxy = ScriptedServer { request, reply in
            if request.target.hasPrefix("http://public.example/") {
                reply.respond(302, ["Location": "http://127.0.0.1:9/secret"])
            } else {
                reply.respond(200, text: "secret")
            }
        }
        let fixture = await EngineFixture(proxies: ProxySettings(environment: ["http_proxy": proxy.url()]))
        let failure = try #require(try await fixture.run("http://public.example/file").failure)
        #expect(failure.name == .unsafeRedirect)
        #expect(failure.message.contains("127.0.0.1"))
        #expect(!listFolder(fixture.folder.path).contains(".todoku-1.part"))
        // A host that the caller itself names may be private.
        #expect(try await fixture.run("http://192.168.1.1/file", number: 2).complete != nil)
    }
}

extension Reply {
    /// Sends a chunk; false once the client is gone.
    func chunkGoes(_ bytes: [UInt8]) -> Bool {
        send("\(String(bytes.count, radix: 16))\r\n") && send(bytes + Array("\r\n".utf8))
    }
}
