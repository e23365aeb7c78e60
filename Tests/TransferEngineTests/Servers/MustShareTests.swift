import DownloadModel
import EventLoop
import Glibc
import Synchronization
import TestSupport
import Testing

@testable internal import TransferEngine
@testable internal import Transport

/// Requests for which the host has no place for a further connection (`TransferRequest.mustShare`).
@Suite(.timeLimit(.minutes(5))) struct `A request that must share a connection` {
    static let file = patternBytes(100_000)

    /// What hinders a request from sharing a connection.
    enum Obstacle: CaseIterable, Sendable {
        /// There is no connection.
        case noConnection
        /// The connection allows one stream at a time.
        case oneStream
        /// The server takes no further streams on the connection (GOAWAY), or refuses the stream.
        case goAway, refused
    }

    /// Answers "/first" until `end` opens, and all other requests at once. Only the first connection has the obstacle.
    private func server(_ obstacle: Obstacle?, until end: Gate) async -> FrameServer {
        await FrameServer(mostStreams: obstacle == .oneStream ? 1 : 100) { request, stream in
            let answer = GoodAnswer(Self.file, to: request)
            guard request.path == "/first" else {
                let isRefused = obstacle == .refused && request.connection == 0
                stream.send(isRefused ? [.reset(.refusedStream)] : [answer.head(), .data(answer.body, ends: true)])
                return
            }
            stream.send([answer.head()] + (obstacle == .goAway ? [.goAway()] : []) + [.data(Array(answer.body[..<1000]))])
            end.wait()
            stream.send(.data(Array(answer.body[1000...]), ends: true))
        }
    }

    /// Starts a transfer of "/first", whose connection others can share, and waits for its first bytes.
    private func begin(_ server: FrameServer, _ fixture: EngineFixture) async throws {
        fixture.engine.start(try fixture.request(server.url("/first")))
        await fixture.log.received(1000)
        #expect(await fixture.log.facts().first?.connection != nil)
    }

    @Test func `goes out on the connection of another transfer`() async throws {
        let end = Gate()
        let server = await server(nil, until: end)
        defer { end.open() }
        let fixture = await EngineFixture(certificateFile: server.authority)
        try await begin(server, fixture)
        for number in 2...4 as ClosedRange<UInt64> {
            let end = try await fixture.run(server.url("/\(number)"), number: number) { $0.mustShare = true }
            #expect(end.complete?.size == 100_000 && fixture.part(number) == Self.file, "\(end)")
        }
        end.open()
        #expect(await fixture.log.end(of: DownloadNumber(1)).complete?.size == 100_000)
        #expect(server.connections == 1 && server.streams.count == 4)
        #expect(await fixture.log.asked.isEmpty)
    }

    @Test(arguments: Obstacle.allCases) func `asks again if it can share none, and opens one only with a permit`(obstacle: Obstacle)
        async throws
    {
        let end = Gate()
        let server = await server(obstacle, until: end)
        defer { end.open() }
        let fixture = await EngineFixture(certificateFile: server.authority)
        await fixture.log.permit { _, _ in }
        if obstacle != .noConnection { try await begin(server, fixture) }
        let before = server.connections
        #expect(before == (obstacle == .noConnection ? 0 : 1))

        let request = try fixture.request(server.url("/second"), number: 2) { $0.mustShare = true }
        fixture.engine.start(request)
        #expect(await eventually { await !fixture.log.asked.isEmpty })
        #expect(await fixture.log.asked == [request.id])
        #expect(await fixture.log.sharings == [.failed])
        #expect(await fixture.log.areAnswered == [false])
        #expect(server.connections == before)
        #expect(server.streams.count { $0.path == "/second" } == (obstacle == .refused ? 1 : 0))

        // A permit that forbids a connection leads to the next question.
        fixture.engine.permit(request.id, question: 1, tellsSent: false, mustShare: true)
        #expect(await eventually { await fixture.log.questions == [1, 2] })
        #expect(await fixture.log.sharings == [.failed, .failed])
        #expect(server.connections == before)

        fixture.engine.permit(request.id, question: 2, tellsSent: false)
        #expect(await fixture.log.end(of: request.number).complete?.size == 100_000 && fixture.part(2) == Self.file)
        #expect(server.connections == before + 1)
        end.open()
        if obstacle != .noConnection { #expect(await fixture.log.end(of: DownloadNumber(1)).complete?.size == 100_000) }
    }

    /// The connection dies with twenty requests that have no answer. Then one further connection serves all of them.
    @Test func `opens no connection if the shared one dies`() async throws {
        let further = 2...21 as ClosedRange<UInt64>
        let (isFull, isShared) = (Gate(), Gate())
        let firstAgain = Mutex<String?>(nil)
        let server = await FrameServer { request, stream in
            let answer = GoodAnswer(Self.file, to: request)
            guard request.connection == 0 else {
                stream.send(answer.head())
                if firstAgain.withLock({ $0 }) == request.path { isShared.wait() }
                stream.send(.data(answer.body, ends: true))
                return
            }
            guard request.path == "/first" else { return }
            stream.send(answer.head(), .data(Array(answer.body[..<1000])))
            isFull.wait()
            stream.cut()
        }
        defer {
            isFull.open()
            isShared.open()
        }
        let fixture = await EngineFixture(certificateFile: server.authority)
        await fixture.log.permit { _, _ in }
        try await begin(server, fixture)
        for number in further {
            fixture.engine.start(try fixture.request(server.url("/\(number)"), number: number) { $0.mustShare = true })
        }
        #expect(await eventually { server.streams.count == 21 })
        isFull.open()
        #expect(await fixture.log.end(of: DownloadNumber(1)).failure?.isRetryable == true)
        #expect(await eventually { await fixture.log.asked.count == 20 })
        let (asked, questions) = await (fixture.log.asked, fixture.log.questions)
        #expect(Set(asked.map(\.download.value)) == Set(further))
        #expect(await !fixture.log.sharings.contains(.possible), "none counts as sharing a connection")
        #expect(server.connections == 1)

        // One request opens a connection, which the others share.
        try #require(asked.count == 20)
        let (engine, first) = (fixture.engine, asked[0])
        firstAgain.withLock { $0 = "/\(first.download)" }
        engine.permit(first, question: questions[0], tellsSent: false)
        #expect(await eventually { server.streams.contains { $0.connection == 1 } })
        #expect(server.connections == 2)
        await fixture.log.permit { id, question in engine.permit(id, question: question, tellsSent: false, mustShare: true) }
        for (id, question) in zip(asked, questions).dropFirst() { engine.permit(id, question: question, tellsSent: false, mustShare: true) }
        #expect(await eventually { server.streams.count { $0.connection == 1 } == 20 })
        isShared.open()
        for number in further {
            #expect(await fixture.log.end(of: DownloadNumber(number)).complete?.size == 100_000 && fixture.part(number) == Self.file)
        }
        #expect(server.connections == 2)
        #expect(await fixture.log.shared == (asked + asked.dropFirst()).sorted(), "each tells that it shares")
    }

    /// Else the host would count the connection as free for a moment, and give its place to another request.
    @BusActor @Test func `is reported before another request leaves the connection`() async throws {
        let (goOn, end, isSent) = (Gate(), Gate(), Gate())
        let server = await FrameServer { request, stream in
            let answer = GoodAnswer(Self.file, to: request)
            switch request.path {
            case "/endless":
                goOn.wait()
                stream.send(.head())  // no length, so the engine asks for a permit
            case "/held":
                stream.send(answer.head(), .data(Array(answer.body[..<1000])))
                end.wait()
                stream.send(.data(Array(answer.body[1000...]), ends: true))
            default: stream.send(answer.head(), .data(answer.body, ends: true))
            }
        } http1: { request, reply in
            reply.serve(Self.file, for: request)
        }
        defer { for gate in [goOn, end] { gate.open() } }
        let fixture = await EngineFixture(certificateFile: server.authority)
        let (engine, log) = (fixture.engine, fixture.log)
        log.permit { _, _ in }
        let second = try fixture.request(server.url("/second"), number: 2) { $0.mustShare = true }
        engine.start(second)
        #expect(await eventually { log.asked == [second.id] })
        let first = try fixture.request(server.url("/endless"))
        engine.start(first)
        #expect(await eventually { server.streams.count == 1 })
        engine.start(try fixture.request(server.url("/held"), number: 3))
        await log.received(1000, of: 3)
        #expect(server.connections == 1)

        var sharedBefore: [[RequestID]] = []
        log.permit { [unowned log] _, _ in sharedBefore.append(log.shared) }
        // The head of the first response is there when the second request goes out, so the engine sees both in one step.
        engine.command { engine in
            defer { isSent.open() }
            goOn.open()
            guard let socket = engine.transfers[first.number]?.segments.first?.exchange?.socket else { return }
            var byte: UInt8 = 0
            let deadline = ContinuousClock.now + .seconds(60)
            while recv(socket, &byte, 1, Int32(MSG_PEEK | MSG_DONTWAIT)) < 1, ContinuousClock.now < deadline { poll(nil, 0, 10) }
            engine.goOn(second.id, 1, tellsSent: false, mustShare: true)
        }
        #expect(await eventually { isSent.isOpen && log.asked.count > 1 })
        #expect(log.asked == [second.id, first.id] && sharedBefore == [[second.id]])
        engine.permit(first.id, question: 1, tellsSent: false)
        end.open()
        for number in 1...3 as ClosedRange<UInt64> {
            #expect(await log.end(of: DownloadNumber(number)).complete?.size == 100_000 && fixture.part(number) == Self.file)
        }
        #expect(server.streams.map(\.connection) == [0, 0, 0] && server.requests.map(\.path) == ["/endless"])
    }
}

/// A server that asks for user and password (401) on a connection that another transfer uses. libcurl repeats the request there.
@Suite(.timeLimit(.minutes(5))) struct `A login on a shared connection` {
    static let file = patternBytes(100_000)

    enum Login: CaseIterable, Sendable {
        case basic, digest

        var challenge: (name: String, value: String) {
            ("www-authenticate", self == .basic ? "Basic realm=\"r\"" : "Digest realm=\"r\", nonce=\"n\"")
        }

        /// Whether the request has the login of "me" with the password "word", for GET /second (RFC 7617; RFC 2069, section 2.4).
        func isRight(in request: ScriptedServer.Request) -> Bool {
            let field = request.field("authorization") ?? ""
            return switch self {
            case .basic: field == "Basic bWU6d29yZA=="
            case .digest: field.hasPrefix("Digest ") && field.contains("response=\"eaf5b1188dbeb616b0f2fb30603686df\"")
            }
        }
    }

    private let isAsked = Gate()
    private let mayRefuse = Gate()
    private let end = Gate()

    /// Sends the beginning of "/first", more of it once `isAsked` opens, and the rest once `end` opens. A request without a login is
    /// refused, and the refusal ends once `mayRefuse` opens.
    ///
    /// - Parameter isLast: whether the first connection takes no further streams (GOAWAY) once `isAsked` opens.
    private func server(_ login: Login, isLast: Bool = false) async -> FrameServer {
        await FrameServer { [isAsked, mayRefuse, end] request, stream in
            let answer = GoodAnswer(Self.file, to: request)
            if request.path == "/first" {
                stream.send(answer.head(), .data(Array(answer.body[..<1000])))
                isAsked.wait()
                if isLast { stream.send(.goAway(last: 3)) }  // "/second" is stream 3
                stream.send(.data(Array(answer.body[1000..<2000])))
                end.wait()
                stream.send(.data(Array(answer.body[2000...]), ends: true))
            } else if login.isRight(in: request) {
                stream.send(answer.head(), .data(answer.body, ends: true))
            } else {
                stream.send(.head(401, [login.challenge], length: 3))
                mayRefuse.wait()
                stream.send(.data(Array("who".utf8), ends: true))
            }
        }
    }

    private func openAll() { for gate in [isAsked, mayRefuse, end] { gate.open() } }

    /// Starts "/first", and then "/second" with user and password. Waits until the server has both requests.
    private func begin(_ server: FrameServer, _ fixture: EngineFixture, password: String = "word", mustShare: Bool) async throws
        -> TransferRequest
    {
        fixture.engine.start(try fixture.request(server.url("/first")))
        await fixture.log.received(1000)
        let request = try fixture.request(server.url("/second"), number: 2) {
            ($0.username, $0.password, $0.mustShare) = ("me", password, mustShare)
        }
        fixture.engine.start(request)
        #expect(await eventually { server.streams.count == 2 })
        return request
    }

    @Test(arguments: Login.allCases, [false, true])
    func `is sent there, and the file arrives whole`(login: Login, mustShare: Bool) async throws {
        let server = await server(login)
        defer { openAll() }
        let fixture = await EngineFixture(certificateFile: server.authority)
        let request = try await begin(server, fixture, mustShare: mustShare)
        mayRefuse.open()
        let second = await fixture.log.end(of: request.number)
        #expect(second.complete?.size == 100_000 && fixture.part(2) == Self.file, "\(second)")
        openAll()
        #expect(await fixture.log.end(of: DownloadNumber(1)).complete?.size == 100_000 && fixture.part == Self.file)
        #expect(server.streams.map(\.path) == ["/first", "/second", "/second"] && server.connections == 1)
        #expect(server.streams.map { $0.field("authorization") != nil } == [false, false, true])
        #expect(await fixture.log.asked.isEmpty)
        #expect(await Set(fixture.log.shared) == (mustShare ? [request.id] : []))
    }

    /// The repeated request is the only one on the connection. It needs no permit, because its connection counts already.
    @Test(arguments: Login.allCases) func `is sent there although the other transfers have ended`(login: Login) async throws {
        let server = await server(login)
        defer { openAll() }
        let fixture = await EngineFixture(certificateFile: server.authority)
        await fixture.log.permit { _, _ in }
        let request = try await begin(server, fixture, mustShare: true)
        isAsked.open()
        end.open()
        #expect(await fixture.log.end(of: DownloadNumber(1)).complete?.size == 100_000 && fixture.part == Self.file)
        mayRefuse.open()
        #expect(await eventually { await fixture.log.ends(of: request.number) + fixture.log.asked.count > 0 })
        #expect(await fixture.log.asked.isEmpty)
        guard await fixture.log.ends(of: request.number) > 0 else { return }
        let second = await fixture.log.end(of: request.number)
        #expect(second.complete?.size == 100_000 && fixture.part(2) == Self.file, "\(second)")
        #expect(server.streams.map(\.path) == ["/first", "/second", "/second"] && server.connections == 1)
    }

    @Test(arguments: Login.allCases) func `that is wrong fails its own transfer only`(login: Login) async throws {
        let server = await server(login)
        defer { openAll() }
        let fixture = await EngineFixture(certificateFile: server.authority)
        let request = try await begin(server, fixture, password: "wrong", mustShare: true)
        mayRefuse.open()
        let failure = try #require(await fixture.log.end(of: request.number).failure)
        #expect(failure.httpStatus == 401 && !failure.isRetryable, "\(failure)")
        openAll()
        #expect(await fixture.log.end(of: DownloadNumber(1)).complete?.size == 100_000 && fixture.part == Self.file)
        #expect(server.streams.map(\.path) == ["/first", "/second", "/second"] && server.connections == 1)
        #expect(await fixture.log.asked.isEmpty)
    }

    /// The connection takes no further streams once the server has refused the request, so the login needs another connection.
    @Test(arguments: Login.allCases) func `asks again if the connection has no room for it`(login: Login) async throws {
        let server = await server(login, isLast: true)
        defer { openAll() }
        let fixture = await EngineFixture(certificateFile: server.authority)
        await fixture.log.permit { _, _ in }
        let request = try await begin(server, fixture, mustShare: true)
        isAsked.open()
        await fixture.log.received(2000)
        mayRefuse.open()
        #expect(await eventually { await !fixture.log.asked.isEmpty })
        #expect(await fixture.log.asked == [request.id])
        #expect(await fixture.log.sharings.first != .possible)
        #expect(server.connections == 1 && server.streams.map(\.path) == ["/first", "/second"])
        fixture.engine.permit(request.id, question: 1, tellsSent: false)
        let second = await fixture.log.end(of: request.number)
        #expect(second.complete?.size == 100_000 && fixture.part(2) == Self.file, "\(second)")
        openAll()
        #expect(await fixture.log.end(of: DownloadNumber(1)).complete?.size == 100_000 && fixture.part == Self.file)
        #expect(server.streams.map(\.connection) == [0, 0, 1, 1] && server.connections == 2)
    }
}

/// What the transfer says of the next request, when it asks for a permit.
@Suite(.timeLimit(.minutes(5))) struct `A request that gets a connection of its own` {
    @Test func `says so if a file without a length comes over HTTP 2`() async throws {
        let server = await FrameServer { _, stream in
            stream.send(.head(), .data([1, 2, 3]))
        } http1: { _, reply in
            reply.respond(200, text: "whole")
        }
        let fixture = await EngineFixture(certificateFile: server.authority)
        #expect(try await fixture.run(server.url("/file")).complete?.size == 5)
        #expect(await fixture.log.sharings == [.impossible])
        #expect(await fixture.log.areAnswered == [true])
    }

    @Test func `says so if a limit holds back bytes of a stream`() async throws {
        let file = patternBytes(1_000_000)
        let goOn = Gate()
        let server = await FrameServer { request, stream in
            let answer = GoodAnswer(file, to: request)
            stream.send(answer.head(), .data(Array(answer.body[..<1000])))
            goOn.wait()
            stream.send(.data(Array(answer.body[1000...]), ends: true))
        } http1: { request, reply in
            reply.serve(file, for: request, entityTag: "\"v1\"")
        }
        defer { goOn.open() }
        let fixture = await EngineFixture(certificateFile: server.authority)
        let request = try fixture.request(server.url("/file"))
        fixture.engine.start(request)
        await fixture.log.received(1000)
        fixture.engine.setSpeedLimit(request.number, 100_000)
        goOn.open()
        #expect(await eventually { await !fixture.log.asked.isEmpty })
        fixture.engine.setSpeedLimit(request.number, nil)
        #expect(await fixture.log.end(of: request.number).complete?.size == 1_000_000 && fixture.part == file)
        #expect(await fixture.log.sharings == [.impossible])
        #expect(server.requests.first?.range?.first ?? 0 >= 1000)
    }

    @Test func `says so for a further part of the file`() async throws {
        let file = patternBytes(8_000_000)
        let nginx = await Nginx(limitRate: "1m")
        nginx.put("file.bin", file)
        let fixture = await EngineFixture(certificateFile: nginx.authority)
        let end = try await fixture.run(nginx.secureURL("/file.bin")) { $0.connections = 2 }
        #expect(end.complete?.size == 8_000_000 && fixture.part == file)
        #expect(await fixture.log.sharings.first == .impossible)
    }

    @Test func `can share one after a redirect`() async throws {
        let server = await FrameServer { request, stream in
            if request.path == "/moved" {
                stream.send(.head(302, [("location", "/file")], length: 0, ends: true))
            } else {
                stream.send(.head(length: 5), .data(Array("whole".utf8), ends: true))
            }
        }
        let fixture = await EngineFixture(certificateFile: server.authority)
        #expect(try await fixture.run(server.url("/moved")).complete?.size == 5)
        #expect(await fixture.log.sharings == [.possible])
        #expect(server.connections == 1 && server.streams.map(\.path) == ["/moved", "/file"])
    }
}
