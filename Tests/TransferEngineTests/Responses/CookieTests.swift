import DownloadModel
import EventLoop
import TestSupport
import Testing
import TransferEngine

@testable import Transport

@Suite(.timeLimit(.minutes(5))) struct `Cookies` {
    private func line(_ domain: String, _ name: String, path: String = "/", secure: Bool = false, expiry: Int = 4_102_444_800) -> String {
        "\(domain)\t\(domain.hasPrefix(".") ? "TRUE" : "FALSE")\t\(path)\t\(secure ? "TRUE" : "FALSE")\t\(expiry)\t\(name)\t1"
    }

    /// A URL of the same server under another host name.
    private static func elsewhere(_ request: ScriptedServer.Request, _ path: String) -> String {
        "http://localhost:\(request.field("Host")?.split(separator: ":").last ?? "")\(path)"
    }

    /// The names of the cookies of a request.
    private func names(_ request: ScriptedServer.Request?) -> Set<String> {
        let cookies = request?.field("Cookie")?.split(separator: ";") ?? []
        return Set(cookies.map { $0.drop { $0 == " " }.prefix { $0 != "=" } }.map(String.init))
    }

    @Test func `that are given go along redirects to their own hosts and paths`() async throws {
        let server = ScriptedServer { request, reply in
            switch request.path {
            case "/a/first": reply.respond(302, ["Location": Self.elsewhere(request, "/b/second")])
            default: reply.respond(200, text: "here")
            }
        }
        let fixture = await EngineFixture()
        let end = try await fixture.run(server.url("/a/first")) {
            $0.cookies = [
                line("127.0.0.1", "own"), line("127.0.0.1", "path", path: "/a"), line("127.0.0.1", "deep", path: "/a/b"),
                line("localhost", "there"), line("localhost", "elsewhere", path: "/a"), line("127.0.0.1", "past", expiry: 1),
                line("example.org", "foreign"),
            ]
        }
        #expect(end.complete?.size == 4)
        #expect(server.requests.map { names($0) } == [["own", "path"], ["there"]])
    }

    @Test func `that the answer of a redirect sets are sent to where it leads, and not to another host`() async throws {
        let server = ScriptedServer { request, reply in
            switch request.path {
            case "/login": reply.respond(302, ["Location": "/file", "Set-Cookie": "session=1; Path=/; HttpOnly"])
            case "/file" where request.field("Cookie") == nil: reply.respond(302, ["Location": "/login"])
            case "/file": reply.respond(302, ["Location": Self.elsewhere(request, "/last"), "Set-Cookie": "more=1"])
            default: reply.respond(200, text: "here")
            }
        }
        let fixture = await EngineFixture()
        #expect(try await fixture.run(server.url("/file")).complete?.size == 4)
        #expect(server.requests.map(\.path) == ["/file", "/login", "/file", "/last"])
        #expect(server.requests.map { names($0) } == [[], [], ["session"], []])
        // Another download has none of them.
        #expect(try await fixture.run(server.url("/x"), number: 2).complete?.size == 4)
        #expect(server.requests.last?.field("Cookie") == nil)
    }

    @Test func `obey their domain, the public suffix list and the secure flag`() async throws {
        // Through a proxy, any host name can be asked.
        let proxy = ScriptedServer { request, reply in
            switch request.target {
            case "http://a.example.co.uk/":
                let domains = ["example.co.uk", "co.uk", "b.example.co.uk", "example.org"]
                reply.send("HTTP/1.1 302 Found\r\nLocation: http://b.example.co.uk/\r\nContent-Length: 0\r\n")
                for domain in domains { reply.send("Set-Cookie: \(domain)=1; Domain=\(domain); Path=/\r\n") }
                reply.send("Set-Cookie: host=1; Path=/\r\nSet-Cookie: secret=1; Domain=example.co.uk; Path=/; Secure\r\n\r\n")
            case "http://b.example.co.uk/": reply.respond(302, ["Location": "http://other.co.uk/"])
            case "http://other.co.uk/": reply.respond(302, ["Location": "http://example.org/"])
            default: reply.respond(200, text: "here")
            }
        }
        let fixture = await EngineFixture(proxies: ProxySettings(environment: ["http_proxy": proxy.url()]))
        let end = try await fixture.run("http://a.example.co.uk/") {
            $0.cookies = [line(".example.co.uk", "given"), line(".example.co.uk", "tls", secure: true), line("b.example.co.uk", "b")]
        }
        #expect(end.complete?.size == 4)
        #expect(proxy.requests.map { names($0) } == [["given"], ["given", "example.co.uk", "b"], [], []])
    }

    @Test func `and the caller's own header are one header`() async throws {
        let server = ScriptedServer { request, reply in
            if request.path == "/" { return reply.respond(302, ["Location": "/b", "Set-Cookie": "set=1"]) }
            reply.respond(200, text: "here")
        }
        let fixture = await EngineFixture()
        _ = try await fixture.run(server.url("/")) {
            $0.headers = [HeaderField(name: "cookie", value: "own=1; second=2"), HeaderField(name: "Cookie", value: "third=3")]
        }
        #expect(server.requests.map { names($0) } == [["own", "second", "third"], ["set", "own", "second", "third"]])
        for request in server.requests { #expect(request.fields.count { $0.name.lowercased() == "cookie" } == 1) }
    }

    @Test func `that servers have set are told at the end of a failed transfer, and the next one has them`() async throws {
        let server = ScriptedServer { request, reply in
            switch request.path {
            case "/": reply.respond(302, ["Location": "/file", "Set-Cookie": "set=1; Path=/"])
            default: request.number < 3 ? reply.respond(503) : reply.respond(200, text: "here")
            }
        }
        let fixture = await EngineFixture()
        #expect(try await fixture.run(server.url("/")) { $0.cookies = [line("127.0.0.1", "given")] }.failure?.httpStatus == 503)
        let told = await fixture.log.events.compactMap { if case .cookies(_, let lines) = $0 { lines } else { nil } }
        let lines = try #require(told.first)
        #expect(told.count == 1 && lines.count == 2)
        #expect(try await fixture.run(server.url("/file")) { $0.cookies = lines }.failure?.httpStatus == 503)
        #expect(server.requests.map { names($0) } == [["given"], ["given", "set"], ["given", "set"]])
        // Nothing has changed since.
        #expect(await fixture.log.events.count { if case .cookies = $0 { true } else { false } } == 1)
    }

    @Test func `are forgotten when servers set too many, except those that are given`() async throws {
        let server = ScriptedServer { request, reply in
            guard request.number < 15 else { return reply.respond(200, text: "here") }
            var head = "HTTP/1.1 302 Found\r\nLocation: /\(request.number)\r\nContent-Length: 0\r\n"
            for index in 0..<40 {
                head += "Set-Cookie: c\(request.number)x\(index)=" + String(repeating: "v", count: 1000) + "; Path=/\r\n"
            }
            reply.send(head + "\r\n")
        }
        let fixture = await EngineFixture()
        #expect(try await fixture.run(server.url("/")) { $0.cookies = [line("127.0.0.1", "given")] }.complete?.size == 4)
        // 15 times 40 KB: twice, the transfer begins anew.
        #expect(server.requests.dropFirst().count { names($0) == ["given"] } == 2)
        #expect(await !fixture.log.events.contains { if case .cookies = $0 { true } else { false } }, "too many to keep")
    }

    @Test func `that are set again and again do not count as more`() async throws {
        let server = ScriptedServer { request, reply in
            guard request.number < 15 else { return reply.respond(200, text: "here") }
            var head = "HTTP/1.1 302 Found\r\nLocation: /\(request.number)\r\nContent-Length: 0\r\n"
            for index in 0..<40 { head += "Set-Cookie: c\(index % 2)=" + String(repeating: "v", count: 1000) + "; Path=/\r\n" }
            reply.send(head + "\r\n")
        }
        let fixture = await EngineFixture()
        #expect(try await fixture.run(server.url("/")) { $0.cookies = [line("127.0.0.1", "given")] }.complete?.size == 4)
        #expect(server.requests.dropFirst().allSatisfy { names($0) == ["given", "c0", "c1"] })
    }

    @Test func `are had in common by the connections of one download`() async throws {
        let (file, gate) = (patternBytes(6_000_000), Gate())
        let server = ScriptedServer { request, reply in
            guard request.number == 0 else {
                gate.open()
                return reply.serve(file, for: request, entityTag: "\"v\"")
            }
            reply.head(200, ["ETag": "\"v\"", "Accept-Ranges": "bytes", "Set-Cookie": "set=1; Path=/"], length: file.count)
            reply.send(file[..<100_000])
            gate.wait()
            reply.send(file[100_000...])
        }
        let fixture = await EngineFixture()
        let end = try await fixture.run(server.url("/file")) { $0.connections = 2 }
        #expect(end.complete?.size == 6_000_000)
        #expect(server.requests.count > 1 && server.requests.dropFirst().allSatisfy { names($0) == ["set"] })
    }
}
