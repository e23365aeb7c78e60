import DownloadModel
import EventLoop
import Glibc
import Synchronization
import TestSupport
import Testing

@testable internal import TransferEngine
@testable internal import Transport

/// libcurl 7.88.1 may take a stream that was reset for a whole one, if its response has no length. Over HTTP/1.1, libcurl demands the last
/// chunk.
@Suite(.timeLimit(.minutes(5))) struct `A file without a length over HTTP 2` {
    static let file = patternBytes(300_000)

    private static func sendChunked(_ file: [UInt8], _ reply: Reply) {
        reply.head(200, ["Transfer-Encoding": "chunked"])
        reply.chunk(file)
        reply.chunk([])
    }

    private func versions(_ server: ScriptedServer) -> [String?] { server.requests.map { $0.field("X-Protocol") } }

    @Test func `is asked for again over HTTP 1.1, and arrives whole`() async throws {
        let server = ScriptedServer { _, reply in Self.sendChunked(Self.file, reply) }
        let nginx = await nginxInFront(of: server)
        let fixture = await EngineFixture(certificateFile: nginx.authority)
        let end = try await fixture.run(nginx.secureURL("/file.bin"))
        #expect(end.complete?.size == 300_000 && fixture.part == Self.file, "\(end)")
        #expect(versions(server) == ["HTTP/2.0", "HTTP/1.1"])
        #expect(await fixture.log.asked.count == 1, "the second request has a permit")
    }

    @Test func `fails if the server behind nginx dies, and arrives whole later`() async throws {
        let isWell = Gate()
        let server = ScriptedServer { _, reply in
            if isWell.isOpen { return Self.sendChunked(Self.file, reply) }
            reply.head(200, ["Transfer-Encoding": "chunked"])
            reply.chunk(Self.file[..<100_000])
            reply.close()
        }
        let nginx = await nginxInFront(of: server)
        let fixture = await EngineFixture(certificateFile: nginx.authority)
        let end = try await fixture.run(nginx.secureURL("/file.bin"))
        #expect(end.failure?.isRetryable == true, "\(end)")
        #expect(versions(server) == ["HTTP/2.0", "HTTP/1.1"])
        isWell.open()
        let later = try await fixture.run(nginx.secureURL("/file.bin")) { $0.resume = end.resume }
        #expect(later.complete?.size == 300_000 && fixture.part == Self.file, "\(later)")
    }

    enum Ending: CaseIterable, Sendable {
        /// The server announces that it takes no further streams, in one write with the end of the body. libcurl takes the end for that of
        /// a file with no bytes.
        case goAwayBehindTrailers
        /// RST_STREAM without an error. libcurl takes the bytes that came earlier for the whole file.
        case quietReset, lateQuietReset
        case reset, endedEarly, cut
    }

    @Test(arguments: Ending.allCases) func `is whole however its frames end`(ending: Ending) async throws {
        let (isHeard, isReceived) = (Gate(), Gate())
        let server = await FrameServer { _, stream in
            stream.send(.head())
            isHeard.wait()
            let body = FrameStream.Frame.data(Array(Self.file[..<5000]))
            switch ending {
            case .goAwayBehindTrailers: stream.send(body, .trailers, .goAway())
            case .quietReset: stream.send(body, .reset(.noError))
            case .lateQuietReset:
                stream.send(body)
                isReceived.wait()
                stream.send(.reset(.noError))
            case .reset: stream.send(body, .reset(.internalError))
            case .endedEarly: stream.send(.data(Array(Self.file[..<5000]), ends: true))
            case .cut:
                stream.send(body)
                stream.cut()
            }
        } http1: { _, reply in
            Self.sendChunked(Self.file, reply)
        }
        defer { isReceived.open() }
        let fixture = await EngineFixture(certificateFile: server.authority)
        let request = try fixture.request(server.url("/file.bin"))
        fixture.engine.start(request)
        #expect(await eventually { await fixture.log.asked.count + fixture.log.facts().count > 0 })
        isHeard.open()
        if ending == .lateQuietReset {
            #expect(await eventually { await fixture.log.received >= 5000 || !server.requests.isEmpty })
            isReceived.open()
        }
        let end = await fixture.log.end(of: request.number)
        #expect(end.complete?.size == 300_000 && fixture.part == Self.file, "\(end)")
        #expect(server.streams.count == 1 && server.requests.count == 1)
    }

    @Test func `behind a form is asked for at its own URL, and the form is sent once`() async throws {
        let server = await FrameServer { _, stream in
            stream.send(.head(), .data([1, 2, 3]))
        } http1: { request, reply in
            switch (request.method, request.path) {
            case ("POST", "/form"):
                reply.respond(303, ["Location": "/file", "Connection": "close"])
                reply.close()
            case ("GET", "/file"): Self.sendChunked(Self.file, reply)
            default: reply.respond(200, text: "no form was sent")
            }
        }
        let fixture = await EngineFixture(certificateFile: server.authority)
        let end = try await fixture.run(server.url("/form")) { $0.body = RequestBody(Array("a=b".utf8), type: "text/plain") }
        #expect(end.complete?.size == 300_000 && fixture.part == Self.file, "\(end)")
        #expect(server.streams.map(\.path) == ["/file"])
        #expect(server.requests.map { "\($0.method) \($0.path)" } == ["POST /form", "GET /file"])
    }

    /// The status line of a server without TLS, which the client has offered no HTTP/2.
    @Test(arguments: [nil, 1_000_000]) func `is asked for once from a server that only claims HTTP 2`(limit: Speed?) async throws {
        let server = ScriptedServer { _, reply in
            reply.send("HTTP/2 200 OK\r\n\r\n")
            reply.send(Self.file)
            reply.close()
        }
        let fixture = await EngineFixture()
        let end = try await fixture.run(server.url("/file")) { $0.speedLimit = limit }
        #expect(end.complete?.size == 300_000 && fixture.part == Self.file, "\(end)")
        #expect(server.requests.count == 1)
        #expect(await fixture.log.facts().first?.connection == nil)
    }

    /// If another stream of the connection has more bytes than its buffer holds, libcurl takes a stream that was reset for a whole one.
    @Test func `is whole although its stream is reset while another stream fills its buffer`() async throws {
        // Beside so many exchanges, a further one has the smallest buffer.
        let (idle, reset, full) = (1...63 as ClosedRange<UInt64>, 64 as UInt64, 65 as UInt64)
        let streams = Mutex<[String: FrameStream]>([:])
        let (isBusy, isSent) = (Gate(), Gate())
        let server = await FrameServer { request, stream in
            streams.withLock { $0[request.path] = stream }
            guard request.path != "/\(reset)" else {
                stream.send(.head(), .data(Array(Self.file[..<1000])))
                return
            }
            stream.send(.head(length: 600_000))
            guard request.path == "/\(full)" else { return }
            isBusy.wait()
            guard let first = streams.withLock({ $0["/\(reset)"] }) else { return }
            first.send([.reset(.internalError)], then: stream, [.data(patternBytes(600_000), ends: true)])
        } http1: { _, reply in
            Self.sendChunked(Self.file, reply)
        }
        defer { isBusy.open() }
        let fixture = await EngineFixture(certificateFile: server.authority)
        func begin(_ numbers: ClosedRange<UInt64>) async throws {
            for number in numbers { fixture.engine.start(try fixture.request(server.url("/\(number)"), number: number)) }
            #expect(
                await eventually {
                    let (events, asked) = await (fixture.log.events, fixture.log.asked)
                    let began = events.compactMap { if case .began(let id, _) = $0 { id.download.value } else { nil } }
                    return Set(began + asked.map(\.download.value)).isSuperset(of: numbers)
                })
        }
        try await begin(1...1)  // the others find its connection
        try await begin(2...idle.upperBound)
        try await begin(full...full)
        try await begin(reset...reset)
        #expect(Set(server.streams.map(\.connection)) == [0])
        // The engine's thread waits until three TLS records are in its socket, more than the buffer of the full stream holds.
        fixture.engine.command { engine in
            defer { isSent.open() }
            isBusy.open()
            guard let socket = engine.transfers[DownloadNumber(full)]?.segments.first?.exchange?.socket else { return }
            var bytes = [UInt8](repeating: 0, count: 60_000)
            let deadline = ContinuousClock.now + .seconds(60)
            while recv(socket, &bytes, bytes.count, Int32(MSG_PEEK | MSG_DONTWAIT)) < bytes.count, ContinuousClock.now < deadline {
                poll(nil, 0, 10)
            }
        }
        #expect(await eventually { isSent.isOpen })
        let fullEnd = await fixture.log.end(of: DownloadNumber(full))
        let isRight = fullEnd.complete?.size == 600_000 && fixture.part(full) == patternBytes(600_000)
        #expect(isRight, "\(fullEnd)")
        let end = await fixture.log.end(of: DownloadNumber(reset))
        #expect(end.complete?.size == 300_000 && fixture.part(reset) == Self.file, "\(end)")
        #expect(server.requests.map(\.path) == ["/\(reset)"])
    }
}

@Suite(.timeLimit(.minutes(5))) struct `A file of known length over HTTP 2` {
    static let file = patternBytes(300_000)

    /// What a server may do wrong with a stream.
    enum Fault: CaseIterable, Sendable {
        case reset, quietReset, refused, endedEarly, endedEarlyByTrailers, surplus, laterSurplus, cut, cutBeforeHead
        /// GOAWAY that leaves out all streams, and one that leaves out later streams only.
        case goAwayBeforeStream, goAwayBehindStream
    }

    @Test(arguments: Fault.allCases) func `is never complete with other bytes, and is whole once the server is good`(fault: Fault)
        async throws
    {
        let server = await FrameServer { request, stream in
            let answer = GoodAnswer(Self.file, to: request)
            guard request.number < 3 else {
                stream.send(answer.head(), .data(answer.body, ends: true))
                return
            }
            let part = Array(answer.body[..<(answer.body.count / 3)])
            switch fault {
            case .reset: stream.send(answer.head(), .data(part), .reset(.internalError))
            case .quietReset: stream.send(answer.head(), .data(part), .reset(.noError))
            case .refused: stream.send(.reset(.refusedStream))
            case .endedEarly: stream.send(answer.head(), .data(part, ends: true))
            case .endedEarlyByTrailers: stream.send(answer.head(), .data(part), .trailers)
            case .surplus: stream.send(answer.head(), .data(answer.body + [0xEE], ends: true))
            case .laterSurplus: stream.send(answer.head(), .data(answer.body), .data([0xEE], ends: true))
            case .cut:
                stream.send(answer.head(), .data(part))
                stream.cut()
            case .cutBeforeHead: stream.cut()
            case .goAwayBeforeStream: stream.send(answer.head(), .data(part), .goAway(last: 0))
            case .goAwayBehindStream:
                stream.send(answer.head(), .data(part), .goAway(), .data(Array(answer.body[part.count...]), ends: true))
            }
        }
        let fixture = await EngineFixture(certificateFile: server.authority)
        var request = try fixture.request(server.url("/file.bin"))
        for _ in 0..<6 {
            let end = await fixture.run(request)
            guard case .failed(let failure, _, let resume) = end else {
                #expect(end.complete?.size == 300_000 && fixture.part == Self.file, "\(end)")
                return
            }
            #expect(failure.isRetryable, "\(failure)")
            request.resume = resume
        }
        Issue.record("the transfer has failed six times")
    }
}

/// TLS has chosen HTTP/1.1 (ALPN), and the status line claims HTTP/2. libcurl 7.88.1 believes the status line, and would let requests to
/// this server share its connections from then on.
@Suite(.timeLimit(.minutes(5))) struct `A server that claims HTTP 2 on a connection of HTTP 1` {
    static let file = patternBytes(300_000)

    private func server(_ handler: @escaping @Sendable (ScriptedServer.Request, Reply) -> Void) async -> FrameServer {
        await FrameServer(speaksHTTP2: false) { _, stream in
            stream.cut()
        } http1: {
            handler($0, $1)
        }
    }

    /// A server that sends a file of known length, and of /held only the beginning until the gate opens.
    private func server(holding goOn: Gate) async -> FrameServer {
        await server { request, reply in
            reply.send("HTTP/2 200 OK\r\nContent-Length: \(Self.file.count)\r\n\r\n")
            reply.send(Self.file[..<1000])
            if request.path == "/held" { goOn.wait() }
            reply.send(Self.file[1000...])
        }
    }

    @Test(arguments: [nil, 1_000_000]) func `is asked once for a file without a length`(limit: Speed?) async throws {
        let server = await server { _, reply in
            reply.send("HTTP/2 200 OK\r\n\r\n")
            reply.send(Self.file)
            reply.close()
        }
        let fixture = await EngineFixture(certificateFile: server.authority)
        let end = try await fixture.run(server.url("/file")) { $0.speedLimit = limit }
        #expect(end.complete?.size == 300_000 && fixture.part == Self.file, "\(end)")
        #expect(server.requests.count == 1 && server.streams.isEmpty)
        #expect(await fixture.log.asked.isEmpty)
        #expect(await fixture.log.facts().map(\.connection) == [nil], "no other request can share the connection")
    }

    @Test func `gets each request on a connection of its own, and the files arrive whole`() async throws {
        let goOn = Gate()
        let server = await server(holding: goOn)
        defer { goOn.open() }
        let fixture = await EngineFixture(certificateFile: server.authority)
        fixture.engine.start(try fixture.request(server.url("/held")))
        await fixture.log.received(1000)
        for number in 2...4 as ClosedRange<UInt64> {
            let end = try await fixture.run(server.url("/\(number)"), number: number)
            #expect(end.complete?.size == 300_000 && fixture.part(number) == Self.file, "\(end)")
        }
        goOn.open()
        #expect(await fixture.log.end(of: DownloadNumber(1)).complete?.size == 300_000 && fixture.part == Self.file)
        #expect(server.requests.map(\.path) == ["/held", "/2", "/3", "/4"], "each is asked for once")
        #expect(server.requests.map(\.connection) == [0, 1, 2, 3], "no connection is used twice")
        #expect(await fixture.log.asked.isEmpty)
    }

    /// The connection that it would have to share is one of HTTP/1.1.
    @Test func `gets no request that must share a connection`() async throws {
        let goOn = Gate()
        let server = await server(holding: goOn)
        defer { goOn.open() }
        let fixture = await EngineFixture(certificateFile: server.authority)
        await fixture.log.permit { _, _ in }
        fixture.engine.start(try fixture.request(server.url("/held")))
        await fixture.log.received(1000)
        let request = try fixture.request(server.url("/second"), number: 2) { $0.mustShare = true }
        fixture.engine.start(request)
        #expect(await eventually { await !fixture.log.asked.isEmpty })
        #expect(await fixture.log.sharings == [.failed])
        #expect(server.requests.map(\.path) == ["/held"] && server.connections == 1)
        fixture.engine.permit(request.id, question: 1, tellsSent: false)
        #expect(await fixture.log.end(of: request.number).complete?.size == 300_000 && fixture.part(2) == Self.file)
        goOn.open()
        #expect(await fixture.log.end(of: DownloadNumber(1)).complete?.size == 300_000 && fixture.part == Self.file)
        #expect(server.requests.map(\.connection) == [0, 1])
        #expect(await fixture.log.shared.isEmpty)
    }
}
