import DownloadModel
import EventLoop
import Glibc
import TestSupport
import Testing
import TransferEngine

@Suite(.timeLimit(.minutes(5))) struct `Failures of a transfer` {
    @Test(arguments: [(404, false), (403, false), (410, false), (408, true), (425, true), (429, true), (500, true), (503, true)])
    func `of the server carry its status`(status: Int, isRetryable: Bool) async throws {
        let server = ScriptedServer { _, reply in reply.respond(status, ["Retry-After": "120"], text: "no") }
        let fixture = await EngineFixture()
        let end = try await fixture.run(server.url("/x?key=secret"))
        let failure = try #require(end.failure)
        #expect(failure.name == .httpStatus && failure.httpStatus == UInt32(status) && failure.isRetryable == isRetryable)
        #expect(failure.retryAfter == .seconds(120) && failure.host == "127.0.0.1")
        #expect(failure.message.hasPrefix("The server 127.0.0.1 answered \(status)") && !failure.message.contains("secret"))
        #expect(end.resume == nil)
        #expect(listFolder(fixture.folder.path) == [])
    }

    @Test(arguments: [204, 205, 206]) func `come from answers that carry no file`(status: Int) async throws {
        let server = ScriptedServer { _, reply in reply.head(status) }
        let fixture = await EngineFixture()
        #expect(try await fixture.run(server.url("/x")).failure?.httpStatus == UInt32(status))
    }

    @Test func `of a refused connection name the host`() async throws {
        let fixture = await EngineFixture()
        let failure = try #require(try await fixture.run("http://127.0.0.1:\(closedPort())/x").failure)
        #expect(
            failure == DownloadFailure(.network, "127.0.0.1 cannot be reached: Connection refused.", host: "127.0.0.1", isRetryable: true))
    }

    @Test func `of a name that does not exist say so`() async throws {
        let fixture = await EngineFixture()
        let failure = try #require(try await fixture.run("http://does-not-exist.invalid/x").failure)
        #expect(failure.name == .network && failure.isRetryable && failure.message.contains("does-not-exist.invalid"))
    }

    @Test(arguments: ["length", "chunked"]) func `of a body that is cut short keep the received bytes`(framing: String) async throws {
        let file = patternBytes(200_000)
        let server = ScriptedServer { _, reply in
            reply.head(
                200,
                [
                    framing == "length" ? "Content-Length" : "Transfer-Encoding": framing == "length" ? "300000" : "chunked",
                    "ETag": "\"v1\"",
                ])
            if framing == "length" { reply.send(file) } else { reply.chunk(file) }
            reply.close()
        }
        let fixture = await EngineFixture()
        let end = try await fixture.run(server.url("/x"))
        #expect(end.failure?.name == .truncated && end.failure?.isRetryable == true)
        #expect(end.failure?.message == "127.0.0.1 ended the connection before the file was complete.")
        #expect(end.resume?.written == 200_000 && end.resume?.validator == .entityTag("\"v1\""))
        guard case .failed(_, let madeProgress, _) = end else { return }
        #expect(madeProgress)
        #expect(fixture.part == file)
    }

    @Test func `of a connection that breaks are retryable`() async throws {
        let server = ScriptedServer { request, reply in
            if request.path == "/before" { return reply.close() }
            reply.head(200, length: 1000)
            reply.send("x")
            reply.reset()
        }
        let fixture = await EngineFixture()
        let before = try #require(try await fixture.run(server.url("/before")).failure)
        #expect(before.name == .network && before.isRetryable)
        #expect(before.message == "127.0.0.1 closed the connection without an answer.")
        let within = try #require(try await fixture.run(server.url("/within"), number: 2).failure)
        #expect([.network, .truncated].contains(within.name) && within.isRetryable)
    }

    /// The head and the bytes must come within the time, however busy the machine is.
    @Test(arguments: [("head", 6500, "did not answer within 6.5 s"), ("body", 40_000, "sent nothing more within 40 s")])
    func `of a server that falls silent come after the stall timeout`(place: String, milliseconds: Int, words: String) async throws {
        let gate = Gate()
        let server = ScriptedServer { _, reply in
            if place == "body" {
                reply.head(200, ["ETag": "\"v1\""], length: 1000)
                reply.send(patternBytes(100))  // more than one a second, so no trickle
            }
            gate.wait()
        }
        let fixture = await EngineFixture()
        let end = try await fixture.run(server.url("/x")) { $0.stallTimeout = .milliseconds(milliseconds) }
        gate.open()
        #expect(end.failure?.name == .timeout && end.failure?.isRetryable == true)
        #expect(end.failure?.message == "127.0.0.1 \(words).")
        #expect(end.resume?.written == (place == "body" ? 100 : nil))
    }

    @Test func `name the request whose response, or lack of one, ended the transfer`() async throws {
        let gate = Gate()
        let server = ScriptedServer { request, reply in
            switch request.path {
            case "/refused": reply.respond(429, ["Retry-After": "7"])
            case "/stalls":
                reply.head(429, ["Retry-After": "7"], length: 100)
                gate.wait()
            default: gate.wait()
            }
        }
        let fixture = await EngineFixture()
        // The heads must come within the time, however busy the machine is.
        for (number, path, seconds) in [(1, "/refused", 60), (2, "/stalls", 40), (3, "/silent", 2)] as [(UInt64, String, Int)] {
            var request = try fixture.request(server.url(path), number: number) { $0.stallTimeout = .seconds(seconds) }
            request.ordinal = 5
            let failure = await fixture.run(request).failure
            #expect(failure?.httpStatus == (number == 3 ? nil : 429), "\(path)")
            let by = await fixture.log.events.compactMap { if case .ended(request.number, _, let id) = $0 { id } else { nil } }
            #expect(by == [RequestID(request.number, 5)], "\(path)")
        }
        gate.open()
    }

    @Test func `of a wrong or too large size come before the body`() async throws {
        let server = ScriptedServer { _, reply in reply.head(200, length: 1_000_000_000) }
        let fixture = await EngineFixture()
        let wrong = try await fixture.run(server.url("/x")) { $0.expectedSize = 5 }
        #expect(wrong.failure?.name == .sizeMismatch && wrong.failure?.isRetryable == false)
        let large = try await fixture.run(server.url("/x")) { $0.maxSize = 999_999_999 }
        #expect(large.failure?.name == .tooLarge && large.failure?.isRetryable == false)
        #expect(listFolder(fixture.folder.path) == [])
    }

    @Test func `of size are found in bodies of unknown length as well`() async throws {
        let file = patternBytes(50_000)
        let server = ScriptedServer { _, reply in
            reply.head(200)
            reply.send(file)
            reply.close()
        }
        let fixture = await EngineFixture()
        #expect(try await fixture.run(server.url("/x")) { $0.expectedSize = 49_999 }.failure?.name == .sizeMismatch)
        #expect(try await fixture.run(server.url("/x")) { $0.expectedSize = 50_001 }.failure?.name == .sizeMismatch)
        #expect(try await fixture.run(server.url("/x")) { $0.maxSize = 49_999 }.failure?.name == .tooLarge)
        #expect(try await fixture.run(server.url("/x")) { ($0.expectedSize, $0.maxSize) = (50_000, 50_000) }.complete != nil)
    }

    @Test func `come from heads that are too large, endless or not HTTP`() async throws {
        let server = ScriptedServer { request, reply in
            switch request.path {
            case "/many":
                reply.send("HTTP/1.1 200 OK\r\n")
                while reply.send(String(repeating: "X-Field: 0123456789\r\n", count: 100)) {}
            case "/hints": while reply.send("HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\n") {}
            case "/long":
                reply.send("HTTP/1.1 200 OK\r\nX: ")
                while reply.send(String(repeating: "x", count: 10_000)) {}
            case "/lengths": reply.send("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef")
            // libcurl ends a head at a line that begins with CR; RFC 9112 §2.2 does not.
            case "/cr": reply.send("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r*\nabcde")
            default: reply.send("SSH-2.0-OpenSSH_9.2\r\n")
            }
            reply.close()
        }
        let fixture = await EngineFixture()
        for path in ["/many", "/hints", "/long", "/lengths", "/cr", "/ssh"] {
            let end = try await fixture.run(server.url(path))
            #expect(end.failure?.name == .network, "\(path): \(end)")
            guard ["/many", "/hints", "/long"].contains(path) else { continue }
            #expect(end.failure?.message == "127.0.0.1 sent more header fields than Todoku accepts.", "\(path): \(end)")
            #expect(end.failure?.isRetryable == false, "\(path): \(end)")
        }
        #expect(!fileExists(fixture.folder(".todoku-1.part")))
    }

    @Test func `of the disk name the folder`() async throws {
        let server = ScriptedServer { _, reply in reply.respond(200, text: "x") }
        let fixture = await EngineFixture()
        let gone = fixture.folder("gone")
        let end = try await fixture.run(server.url("/x")) { $0.directory = gone }
        #expect(end.failure?.name == .writeFailed && end.failure?.wait == .destination)
        #expect(end.failure?.message == "Todoku cannot open the folder in \(gone): No such file or directory.")
    }

    @Test func `of a full disk come before the body`() async throws {
        let server = ScriptedServer { _, reply in
            reply.head(200, length: 1 << 60)
            reply.send("x")
        }
        let fixture = await EngineFixture()
        #expect(try await fixture.run(server.url("/x")).failure?.name == .diskFull)
    }

    @Test func `never write through a symbolic link under the part file's name`() async throws {
        let server = ScriptedServer { _, reply in reply.respond(200, text: "x") }
        let fixture = await EngineFixture()
        writeFile(fixture.folder("victim"), "precious".utf8)
        #expect(symlink(fixture.folder("victim"), fixture.folder(".todoku-1.part")) == 0)
        let end = try await fixture.run(server.url("/x"))
        #expect(end.failure?.name == .writeFailed)
        #expect(readFile(fixture.folder("victim")) == Array("precious".utf8))
    }
}
