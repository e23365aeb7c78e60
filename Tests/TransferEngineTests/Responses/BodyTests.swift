import DownloadModel
import EventLoop
import TestSupport
import Testing
import TransferEngine

@testable import Transport

@Suite(.timeLimit(.minutes(5))) struct `A request with a body` {
    private static let body = RequestBody(Array("name=value&x=%20".utf8), type: "application/x-www-form-urlencoded")

    private func bodies(_ server: ScriptedServer) -> [String] {
        server.requests.map { "\($0.method) \($0.path) \(String(decoding: $0.body, as: UTF8.self))" }
    }

    @Test(arguments: [0, 16, 1 << 20]) func `is a POST with all bytes of the body, and its type`(count: Int) async throws {
        let server = ScriptedServer { _, reply in reply.respond(200, ["ETag": "\"v\"", "Accept-Ranges": "bytes"], text: "here") }
        let fixture = await EngineFixture()
        let bytes = patternBytes(count)
        let end = try await fixture.run(server.url("/a")) { $0.body = RequestBody(bytes, type: "application/json; charset=utf-8") }
        #expect(fixture.part == Array("here".utf8))
        let request = try #require(server.requests.first)
        #expect((request.method, request.body == bytes, server.requests.count) == ("POST", true, 1))
        #expect(request.field("Content-Type") == "application/json; charset=utf-8" && request.field("Content-Length") == "\(count)")
        #expect(request.field("Expect") == nil && request.field("Range") == nil)
        #expect(end.complete?.facts.isResumable == false, "no later request may ask for the rest")
    }

    @Test func `has the caller's own type, if it is among the headers`() async throws {
        let server = ScriptedServer { _, reply in reply.respond(200, text: "here") }
        let fixture = await EngineFixture()
        _ = try await fixture.run(server.url("/a")) {
            ($0.body, $0.headers) = (Self.body, [HeaderField(name: "content-type", value: "text/plain")])
        }
        #expect(server.requests.first?.fields.filter { $0.name.lowercased() == "content-type" }.map(\.value) == ["text/plain"])
    }

    @Test(arguments: [301, 302, 303]) func `becomes a GET along a redirect`(status: Int) async throws {
        let server = ScriptedServer { request, reply in
            if request.path != "/a" { return reply.respond(200, text: "x") }
            reply.respond(status, ["Location": "/b", "Set-Cookie": "s=1"])
        }
        let fixture = await EngineFixture()
        #expect(try await fixture.run(server.url("/a")) { $0.body = Self.body }.complete?.size == 1)
        #expect(bodies(server) == ["POST /a name=value&x=%20", "GET /b "])
        #expect(server.requests[1].field("Content-Type") == nil && server.requests[1].field("Cookie") == "s=1")
    }

    @Test(arguments: [307, 308])
    func `is repeated along a redirect that keeps the method, to its own origin only`(status: Int) async throws {
        let other = ScriptedServer { _, reply in reply.respond(200, text: "x") }
        let there = other.url("/c")
        let server = ScriptedServer { request, reply in
            switch request.path {
            case "/a": reply.respond(status, ["Location": "/b"])
            case "/away": reply.respond(status, ["Location": there])
            default: reply.respond(200, text: "x")
            }
        }
        let fixture = await EngineFixture()
        #expect(try await fixture.run(server.url("/a")) { $0.body = Self.body }.complete?.size == 1)
        #expect(bodies(server) == ["POST /a name=value&x=%20", "POST /b name=value&x=%20"])
        let failure = try #require(try await fixture.run(server.url("/away"), number: 2) { $0.body = Self.body }.failure)
        #expect(failure.name == .unsafeRedirect && !failure.isRetryable && failure.message.contains("127.0.0.1"))
        #expect(other.requests.isEmpty)
    }

    @Test(arguments: ["503", "cut", "silent end", "reset"])
    func `that went out is not repeated, whatever comes back`(answer: String) async throws {
        let server = ScriptedServer { request, reply in
            if request.path == "/warm" { return reply.respond(200, text: "x") }
            switch answer {
            case "503": reply.respond(503, ["Retry-After": "1"])
            case "cut":
                reply.head(200, ["ETag": "\"v\"", "Accept-Ranges": "bytes"], length: 10)
                reply.send("abc")
                reply.close()
            case "reset": reply.reset()
            default: reply.close()
            }
        }
        let fixture = await EngineFixture()
        // Leaves a connection, on which libcurl would repeat a request.
        _ = try await fixture.run(server.url("/warm"))
        let end = try await fixture.run(server.url("/a"), number: 2) { $0.body = Self.body }
        let failure = try #require(end.failure)
        #expect(!failure.isRetryable && failure.wait == nil && end.resume == nil, "\(end)")
        #expect(server.requests.count { $0.method == "POST" } == 1 && server.requests.count == 2)
    }

    @Test(arguments: ["Basic realm=\"r\"", "Digest realm=\"r\", nonce=\"n\", qop=\"auth\""])
    func `is sent once more, with user and password, to a server that asks for them`(login: String) async throws {
        let server = ScriptedServer { request, reply in
            if request.field("Authorization") == nil { return reply.respond(401, ["WWW-Authenticate": login]) }
            reply.respond(200, text: "here")
        }
        let fixture = await EngineFixture()
        let end = try await fixture.run(server.url("/a")) { ($0.body, $0.username, $0.password) = (Self.body, "me", "word") }
        #expect(end.complete?.size == 4)
        #expect(bodies(server) == ["POST /a name=value&x=%20", "POST /a name=value&x=%20"])
    }

    @Test(arguments: ["silent end", "stale login"])
    func `is not sent a third time after user and password`(answer: String) async throws {
        let server = ScriptedServer { request, reply in
            if answer == "silent end", request.field("Authorization") != nil { return reply.close() }
            let challenge = "Digest realm=\"r\", nonce=\"n\(request.number)\", qop=\"auth\", stale=true"
            reply.respond(401, ["WWW-Authenticate": challenge])
        }
        let fixture = await EngineFixture()
        let end = try await fixture.run(server.url("/a")) { ($0.body, $0.username, $0.password) = (Self.body, "me", "word") }
        let failure = try #require(end.failure)
        #expect(!failure.isRetryable && failure.wait == nil && failure.message.contains("not sent twice"), "\(failure)")
        #expect(bodies(server) == ["POST /a name=value&x=%20", "POST /a name=value&x=%20"])
    }

    @Test func `may take longer than the stall timeout on a slow line`() async throws {
        // The body takes 42 s at least. The server may pause for half a minute meanwhile.
        let server = ScriptedServer(bodyStep: 24 << 10) { request, reply in reply.respond(200, text: "\(request.body.count)") }
        let fixture = await EngineFixture()
        let end = try await fixture.run(server.url("/a")) {
            ($0.body, $0.stallTimeout) = (RequestBody(patternBytes(1 << 20), type: "a/b"), .seconds(40))
        }
        #expect(end.complete?.size == 7 && fixture.part == Array("1048576".utf8), "\(end)")
    }

    @Test func `that did not go out may be tried again`() async throws {
        let fixture = await EngineFixture()
        let failure = try await fixture.run("http://127.0.0.1:\(closedPort())/a") { $0.body = Self.body }.failure
        #expect(failure?.isRetryable == true)
    }
}
