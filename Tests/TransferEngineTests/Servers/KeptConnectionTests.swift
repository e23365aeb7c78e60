import DownloadModel
import EventLoop
import Glibc
import TestSupport
import Testing
import TransferEngine

@testable internal import Transport

@Suite(.timeLimit(.minutes(5))) struct `A kept connection` {
    private static let wrong = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nWRONG"

    /// Answers "/first" well, and sends `surplus` once the answer has been received. Reports when the surplus is in the client's socket.
    private func server(_ surplus: String, head: String = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfirst", gate: Gate, sent: Gate)
        -> ScriptedServer
    {
        ScriptedServer { request, reply in
            guard request.path == "/first" else { return reply.respond(200, ["ETag": "\"v1\""], text: "right") }
            reply.send(head)
            gate.wait()
            reply.send(surplus)
            reply.waitForReceipt()
            sent.open()
        }
    }

    @Test(arguments: [wrong, "SSH-2.0-OpenSSH_9.2\r\n", "x", "\r\n", "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"])
    func `with bytes that answer nothing is not used for the next request`(surplus: String) async throws {
        let (gate, sent) = (Gate(), Gate())
        let server = server(surplus, gate: gate, sent: sent)
        let fixture = await EngineFixture()
        #expect(try await fixture.run(server.url("/first")).complete?.size == 5)
        gate.open()
        #expect(await eventually { sent.isOpen })
        #expect(try await fixture.run(server.url("/next"), number: 2).complete?.size == 5)
        #expect(fixture.part(2) == Array("right".utf8))
        #expect(server.requests.map(\.path) == ["/first", "/next"])
        #expect(server.connections == 2)
        // No request went out on the first connection, so the engine need not ask for permission.
        #expect(await fixture.log.asked.isEmpty)
        // The server may send a surplus again, so no connection to it is used twice.
        #expect(try await fixture.run(server.url("/third"), number: 3).complete != nil)
        #expect(server.connections == 3)
    }

    @Test func `that was a redirect's is looked at, too`() async throws {
        let (gate, sent) = (Gate(), Gate())
        let server = server(
            Self.wrong, head: "HTTP/1.1 302 Found\r\nLocation: /next\r\nContent-Length: 0\r\n\r\n\(Self.wrong)", gate: gate, sent: sent)
        gate.open()
        let fixture = await EngineFixture()
        #expect(try await fixture.run(server.url("/first")).complete?.size == 5)
        #expect(fixture.part == Array("right".utf8))
    }

    @Test(arguments: [
        "302 Found\r\nLocation: /next\r\nContent-Length: 0", "304 Not Modified\r\nContent-Length: 5", "200 OK\r\nContent-Length: 0",
    ])
    func `with bytes behind a head that has no body is not used again`(head: String) async throws {
        let server = ScriptedServer { request, reply in
            if request.number > 0 { return reply.respond(200, text: "right") }
            reply.send("HTTP/1.1 \(head)\r\n\r\n\(Self.wrong)")
        }
        let fixture = await EngineFixture()
        _ = try await fixture.run(server.url("/first"))
        #expect(try await fixture.run(server.url("/second"), number: 2).complete?.size == 5)
        #expect(fixture.part(2) == Array("right".utf8) && server.requests.count == (head.hasPrefix("302") ? 3 : 2))
        #expect(server.connections == server.requests.count)
    }

    @Test func `with nothing behind a redirect is used again`() async throws {
        let server = ScriptedServer { request, reply in
            if request.number == 0 { reply.respond(302, ["Location": "/next"]) } else { reply.respond(200, text: "right") }
        }
        let fixture = await EngineFixture()
        #expect(try await fixture.run(server.url("/first")).complete?.size == 5)
        #expect(server.connections == 1 && server.requests.count == 2)
    }

    /// Answers the second request on its first connection by `answer`, closes that connection, and answers all other requests well.
    private func breakingServer(_ answer: String) -> ScriptedServer {
        ScriptedServer { request, reply in
            guard request.connection == 0, request.number > 0 else { return reply.respond(200, text: "right") }
            reply.send(answer)
            reply.close()
        }
    }

    @Test(arguments: ["SSH-2.0-OpenSSH_9.2\r\n", "", "HTTP/1.1 200 OK\r\nContent-Le"])
    func `on which no answer comes is left for a new one at once`(answer: String) async throws {
        let server = breakingServer(answer)
        let fixture = await EngineFixture()
        #expect(try await fixture.run(server.url("/first")).complete != nil)
        #expect(try await fixture.run(server.url("/next"), number: 2).complete?.size == 5)
        #expect(fixture.part(2) == Array("right".utf8) && server.connections == 2)
        // The first request went out, so the second asks for the host's permission. After no answer at all, libcurl repeats the request.
        #expect(await fixture.log.asked.map(\.download) == (answer.isEmpty ? [] : [DownloadNumber(2)]))
    }

    @Test(arguments: ["SSH-2.0-OpenSSH_9.2\r\n", ""])
    func `on which no answer comes is left only with a permit where requests keep an interval`(answer: String) async throws {
        let server = breakingServer(answer)
        let fixture = await EngineFixture()
        #expect(try await fixture.run(server.url("/first")).complete != nil)
        #expect(try await fixture.run(server.url("/next"), number: 2) { $0.tellsSent = true }.complete?.size == 5)
        #expect(await fixture.log.asked.map(\.download) == [DownloadNumber(2)])
        #expect(server.requests.map(\.path) == ["/first", "/next", "/next"])
    }

    @Test func `that breaks before an answer is left for a new one, and a new one that breaks is a failure`() async throws {
        let server = ScriptedServer { request, reply in
            if request.number == 0 { reply.respond(200, text: "first") } else { reply.reset() }
        }
        let fixture = await EngineFixture()
        #expect(try await fixture.run(server.url("/first")).complete != nil)
        let failure = try #require(try await fixture.run(server.url("/next"), number: 2).failure)
        #expect(failure.name == .network && failure.isRetryable)
        #expect(server.connections == 2)
    }

    @Test func `whose answer is followed by a surplus is not believed`() async throws {
        // The surplus arrives after the next request, and before the answer to that request.
        let server = ScriptedServer { request, reply in
            switch (request.path, request.connection) {
            case ("/next", 0): reply.send(Self.wrong + "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nright")
            default: reply.respond(200, text: "right")
            }
        }
        let fixture = await EngineFixture()
        #expect(try await fixture.run(server.url("/first")).complete != nil)
        #expect(try await fixture.run(server.url("/next"), number: 2).complete?.size == 5)
        #expect(fixture.part(2) == Array("right".utf8))
    }

    @Test func `is used again where nothing is wrong`() async throws {
        let server = ScriptedServer { _, reply in reply.respond(200, text: "right") }
        let fixture = await EngineFixture()
        for number in 1...20 { #expect(try await fixture.run(server.url("/\(number)"), number: UInt64(number)).complete != nil) }
        #expect(server.connections == 1)
    }

    /// One call of libcurl takes the end of an answer, sends the next request on that connection, and lasts until the next answer is there.
    @Test func `that has the next answer before the end of the last one is reported is used again`() throws {
        let (rest, connects) = (Gate(), Gate())
        defer { connects.open() }
        let server = ScriptedServer { request, reply in
            if request.path == "/third" { connects.wait() }
            guard request.path == "/second" else { return reply.respond(200, text: "right") }
            reply.send("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nri")
            rest.wait()
            reply.send("ght")
        }
        let run = try HandleRun(server)
        try run.begin("/first")
        run.perform { run.refused.count == 1 }
        let second = CountingSink()
        try run.begin("/second", second)
        run.perform { second.count == 2 }
        let socket = try #require(run.exchanges[1].socket)
        func waitForBytes() {
            var entry = pollfd(fd: socket, events: Int16(POLLIN), revents: 0)
            #expect(poll(&entry, 1, 60_000) == 1)
        }
        rest.open()
        waitForBytes()
        // The same call takes the rest, sends "/third" on that connection, and begins a new one. There it waits.
        try run.begin("/third")
        let fourth = CountingSink {
            connects.open()
            waitForBytes()
        }
        try run.begin("/fourth", fourth)
        run.perform { run.refused.count == 4 }
        #expect(run.refused == [false, false, false, false])
        #expect(server.requests.sorted { $0.path < $1.path }.map(\.connection) == [0, 1, 0, 0], "/first, /fourth, /second, /third")
    }

    /// More connections are in use than libcurl keeps by itself. libcurl would close the one whose answer ends, and that is no sign of a
    /// surplus.
    @Test func `beside many that are in use is used again`() throws {
        let (ends, rest) = (Gate(), Gate())
        defer {
            ends.open()
            rest.open()
        }
        let server = ScriptedServer { request, reply in
            switch request.path {
            case "/second":
                reply.head(200, length: 5)
                reply.send("ri")
                rest.wait()
                reply.send("ght")
            case "/other":
                reply.head(200, length: 5)
                reply.send("ri")
                ends.wait()
            default: reply.respond(200, text: "right")
            }
        }
        let run = try HandleRun(server)
        try run.begin("/first")
        run.perform { run.refused.count == 1 }
        let second = CountingSink()
        try run.begin("/second", second)
        run.perform { second.count == 2 }
        let others = (0..<64).map { _ in CountingSink() }
        for other in others { try run.begin("/other", other) }
        run.perform { others.allSatisfy { $0.count == 2 } }
        rest.open()
        run.perform { run.refused.count == 2 }
        try run.begin("/third")
        run.perform { run.refused.count == 3 }
        #expect(run.refused == [false, false, false])
        #expect(server.requests.filter { $0.path != "/other" }.map(\.connection) == [0, 0, 0] && server.connections == 65)
    }

    /// The end of such a body is the end of the connection.
    @Test func `that ends with a body of the coding identity has brought the body`() async throws {
        let server = ScriptedServer { request, reply in
            guard request.path == "/next" else { return reply.respond(200, text: "first") }
            reply.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: identity\r\n\r\nright")
            reply.close()
        }
        let fixture = await EngineFixture()
        #expect(try await fixture.run(server.url("/first")).complete?.size == 5)
        #expect(try await fixture.run(server.url("/next"), number: 2).complete?.size == 5)
        #expect(fixture.part(2) == Array("right".utf8))
        #expect(server.requests.map(\.path) == ["/first", "/next"] && server.connections == 1)
    }

    /// libcurl closes such a connection.
    @Test func `that a proxy ends with its answer has brought the body`() async throws {
        let proxy = ScriptedServer { request, reply in
            guard request.path.hasSuffix("/next") else { return reply.respond(200, text: "first") }
            reply.respond(200, ["Proxy-Connection": "close"], text: "right")
            reply.close()
        }
        let fixture = await EngineFixture(proxies: ProxySettings(environment: ["http_proxy": proxy.url()]))
        #expect(try await fixture.run("http://files.example/first").complete?.size == 5)
        #expect(try await fixture.run("http://files.example/next", number: 2).complete?.size == 5)
        #expect(fixture.part(2) == Array("right".utf8))
        #expect(proxy.requests.count == 2 && proxy.connections == 1)
    }

    /// libcurl ignores the field on a connection through SOCKS, and keeps the connection.
    @Test func `through SOCKS whose answer is followed by a surplus is not believed, whatever it says of a proxy`() async throws {
        let server = ScriptedServer { request, reply in
            guard request.path == "/next", request.connection == 0 else { return reply.respond(200, text: "right") }
            let wrong = "HTTP/1.1 200 OK\r\nProxy-Connection: close\r\nContent-Length: 5\r\n\r\nWRONG"
            reply.send(wrong + "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nright")
        }
        let socks = SocksServer(to: server.port)
        let fixture = await EngineFixture(proxies: ProxySettings(environment: ["http_proxy": "socks5h://127.0.0.1:\(socks.port)"]))
        #expect(try await fixture.run("http://files.example/first").complete != nil)
        #expect(try await fixture.run("http://files.example/next", number: 2).complete?.size == 5)
        #expect(fixture.part(2) == Array("right".utf8))
        #expect(server.requests.map(\.connection) == [0, 0, 1])
        withExtendedLifetime(socks) {}
    }

    @Test func `of HTTP/2 is shared and used again`() async throws {
        let nginx = await Nginx()
        nginx.put("file.bin", patternBytes(1000))
        let fixture = await EngineFixture(certificateFile: nginx.authority)
        for number in 1...5 { #expect(try await fixture.run(nginx.secureURL("/file.bin"), number: UInt64(number)).complete != nil) }
        #expect(await eventually { nginx.log.count == 5 })  // nginx logs a request after its last byte
    }

    /// libcurl 7.88 would keep the connection, and nginx would go on until the buffers are full: for minutes.
    @Test(arguments: [true, false]) func `of HTTP/2 is closed if an answer is not read to its end`(isStopped: Bool) async throws {
        let nginx = await Nginx(limitRate: "100k")
        nginx.put("file.bin", patternBytes(20_000_000))
        let fixture = await EngineFixture(certificateFile: nginx.authority)
        let request = try fixture.request(nginx.secureURL("/file.bin")) { if !isStopped { $0.maxSize = 1_000_000 } }
        fixture.engine.start(request)
        if isStopped {
            await fixture.log.received(50_000)
            fixture.engine.stop(request.number)
        }
        let end = await fixture.log.end(of: request.number)
        #expect(isStopped ? end.failure == nil : end.failure?.name == .tooLarge, "\(end)")
        #expect(await eventually { nginx.log.count == 1 })  // nginx logs a request when it has ended
        #expect(nginx.log.first?.hasPrefix("HTTP/2.0 200 ") == true, "\(nginx.log)")
    }

    @Test func `of TLS with bytes that answer nothing is not used`() async throws {
        // Body and surplus are one TLS record: libcurl leaves the surplus in the TLS library, and the socket is empty.
        let folder = TemporaryFolder()
        let made = await Child.run(
            [
                "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", "key.pem",
                "-out",
                "cert.pem", "-days", "2", "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1",
            ], folder: folder.path)
        #expect(made.status == 0, "\(made.errors)")
        let (reserved, pipe, log) = (ReservedPort(), folder("answers"), folder("requests"))
        defer { withExtendedLifetime(reserved) {} }
        let port = reserved.number
        #expect(mkfifo(pipe, 0o600) == 0)
        let command = "exec openssl s_server -accept 127.0.0.1:\(port) -cert cert.pem -key key.pem -quiet -alpn http/1.1 <answers >requests"
        let server = Child(["sh", "-c", command], folder: folder.path)
        let answers = open(pipe, O_WRONLY | O_CLOEXEC)  // waits until the server opens its side
        #expect(answers >= 0)
        @Sendable func answer(_ text: String) { _ = Array(text.utf8).withUnsafeBytes { write(answers, $0.baseAddress!, $0.count) } }
        @Sendable func hasAsked(_ path: String) -> Bool { String(decoding: readFile(log) ?? [], as: UTF8.self).contains("GET \(path) ") }

        let fixture = await EngineFixture(certificateFile: folder("cert.pem"))
        let url = "https://127.0.0.1:\(port)"
        var first: TransferEnd?
        let deadline = ContinuousClock.now + .seconds(60)
        while first?.complete == nil, ContinuousClock.now < deadline {  // until it listens
            let ended = Gate()
            async let end = { () async throws -> TransferEnd in
                defer { ended.open() }
                return try await fixture.run("\(url)/first")
            }()
            // A refused transfer ends at once. Once the server has been asked, it must be answered, however late that is.
            if await eventually({ hasAsked("/first") || ended.isOpen }), !ended.isOpen {
                answer("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfirst\(Self.wrong)")
            }
            first = try await end
        }
        #expect(first?.complete?.size == 5)
        async let next = fixture.run("\(url)/next", number: 2)
        #expect(await eventually { hasAsked("/next") })
        answer("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nright")
        #expect(try await next.complete?.size == 5)
        #expect(fixture.part(2) == Array("right".utf8))
        close(answers)
        await server.stop()
    }
}

/// Exchanges with one server on one handle of libcurl.
private final class HandleRun {
    private let server: ScriptedServer
    private let multi: MultiHandle
    private(set) var exchanges: [Exchange] = []
    /// Of each exchange that has ended: whether it failed, or needs a new connection.
    private(set) var refused: [Bool] = []

    init(_ server: ScriptedServer) throws {
        self.server = server
        multi = try MultiHandle()
    }

    func begin(_ path: String, _ sink: CountingSink = CountingSink()) throws {
        let options = ExchangeOptions(url: server.url(path), userAgent: "test", connectTimeoutMilliseconds: 60_000)
        exchanges.append(try Exchange(options, sink: sink, multi: multi))
    }

    func perform(until isEnough: () -> Bool) {
        while !isEnough() {
            multi.perform { exchange, error in
                refused.append(error != nil || exchange.needsNewConnection(nil, heardAnswer: true, closes: false))
            }
            if !isEnough() { multi.wait(-1, milliseconds: 100) }
        }
    }
}

/// Accepts everything, and counts the bytes of the body.
private final class CountingSink: BodySink {
    private(set) var count = 0
    private let connects: () -> Void

    /// - Parameter connects: called when a new connection is begun.
    init(connects: @escaping () -> Void = {}) { self.connects = connects }

    override func receive(_ bytes: UnsafeRawBufferPointer) -> Answer {
        count += bytes.count
        return .accepted
    }

    override func mayConnect(to address: String) -> Bool {
        connects()
        return true
    }
}
