import DownloadModel
import EventLoop
import Glibc
import TestSupport
import Testing

@testable internal import TransferEngine

/// libcurl 7.88.1 reads on for a stream that a limit holds back while other streams use its connection, and slows down those. So such a
/// transfer must have a connection of its own.
@Suite(.timeLimit(.minutes(5))) struct `A shared connection` {
    static let (large, small) = (patternBytes(30_000_000), patternBytes(1_000_000, seed: 2))

    /// Sends the beginning of the large file, and all of it once `goOn` opens. The small file comes drop by drop until `end` opens.
    private func server(goOn: Gate, end: Gate) -> ScriptedServer {
        ScriptedServer { request, reply in
            let file = request.path == "/large" ? Self.large : Self.small
            guard request.range == nil else { return reply.serve(file, for: request, entityTag: "\"v1\"") }
            reply.head(200, ["ETag": "\"v1\"", "Accept-Ranges": "bytes"], length: file.count)
            reply.send(file[..<100_000])
            guard request.path == "/large" else {
                let rest = reply.trickle(file[100_000...], by: 1000, until: end)
                reply.send(rest)
                return
            }
            goOn.wait()
            // As a link brings them that carries 13 MB a second.
            for start in stride(from: 100_000, to: file.count, by: 65_536) {
                usleep(5000)
                guard reply.send(file[start..<min(start + 65_536, file.count)]) else { return }
            }
        }
    }

    @Test(arguments: [false, true]) func `is left as soon as a limit holds bytes back, and its other transfer goes on`(isTotal: Bool)
        async throws
    {
        let (goOn, rest) = (Gate(), Gate())
        let server = server(goOn: goOn, end: rest)
        defer {
            goOn.open()
            rest.open()
        }
        let nginx = await nginxInFront(
            of: server, log: "sent.log sent", http: "log_format sent '$request_uri $server_protocol $body_bytes_sent';")
        let fixture = await EngineFixture(certificateFile: nginx.authority)
        let (large, small) = (DownloadNumber(1), DownloadNumber(2))
        fixture.engine.start(try fixture.request(nginx.secureURL("/large")))
        await fixture.log.received(100_000, of: 1)
        fixture.engine.start(try fixture.request(nginx.secureURL("/small"), number: 2))
        await fixture.log.received(100_000, of: 2)
        let facts = await (fixture.log.facts(1), fixture.log.facts(2))
        #expect(facts.0.first?.connection != nil && facts.0.first?.connection == facts.1.first?.connection)

        func limit(_ speed: Speed?) { isTotal ? fixture.engine.setTotalSpeedLimit(speed) : fixture.engine.setSpeedLimit(large, speed) }
        limit(50_000)
        goOn.open()
        func further() -> ScriptedServer.Request? { server.requests.first { $0.path == "/large" && $0.range != nil } }
        #expect(await eventually { further() != nil })
        let request = try #require(further())
        #expect(request.field("X-Protocol") == "HTTP/1.1" && request.field("If-Range") == "\"v1\"")
        #expect(request.range?.first ?? 0 >= 100_000, "the held bytes stay")
        limit(nil)
        rest.open()
        #expect(await fixture.log.end(of: large).complete?.size == 30_000_000)
        #expect(await fixture.log.end(of: small).complete?.size == 1_000_000)
        #expect(fileHolds(fixture.folder(".todoku-1.part"), Self.large) && fixture.part(2) == Self.small)

        #expect(server.requests.filter { $0.path == "/large" }.map { $0.field("X-Protocol") } == ["HTTP/2.0", "HTTP/1.1"])
        // The total limit may have held back bytes of the small file, too.
        let versions = server.requests.filter { $0.path == "/small" }.map { $0.field("X-Protocol") }
        #expect(isTotal ? versions.first == "HTTP/2.0" : versions == ["HTTP/2.0"], "\(versions)")
        func sent() -> Int? {
            let lines = String(decoding: readFile(nginx.folder("sent.log")) ?? [], as: UTF8.self).split(separator: "\n")
            return lines.first { $0.hasPrefix("/large HTTP/2.0 ") }?.split(separator: " ").last.flatMap { Int($0) }
        }
        #expect(await eventually { sent() != nil })  // nginx logs a request when it has ended
        #expect(sent() ?? .max < 15_000_000, "nginx has not sent the file to its end")
    }

    /// Without a validator, nothing shows that later bytes are of the same file. This server has another file of the same size by then.
    @Test func `gives no bytes to join if a limit ends a response without a validator`() async throws {
        let goOn = Gate()
        defer { goOn.open() }
        let other = patternBytes(Self.large.count, seed: 3)
        let server = ScriptedServer { request, reply in
            guard request.number == 0 else { return reply.serve(other, for: request) }
            reply.head(200, ["Accept-Ranges": "bytes"], length: Self.large.count)
            reply.send(Self.large[..<100_000])
            goOn.wait()
            reply.send(Self.large[100_000...])
        }
        let nginx = await nginxInFront(of: server)
        let fixture = await EngineFixture(certificateFile: nginx.authority)
        fixture.engine.start(try fixture.request(nginx.secureURL("/large")))
        await fixture.log.received(100_000)
        fixture.engine.setSpeedLimit(DownloadNumber(1), 50_000)
        goOn.open()
        #expect(await server.waitForRequests(2))
        fixture.engine.setSpeedLimit(DownloadNumber(1), nil)
        #expect(await fixture.log.end(of: DownloadNumber(1)).complete?.size == 30_000_000)
        #expect(fileHolds(fixture.folder(".todoku-1.part"), other))
        #expect(server.requests.map { $0.field("Range") } == [nil, nil])
    }

    @Test(arguments: [false, true]) func `is not used by a transfer that begins with a limit`(isTotal: Bool) async throws {
        let nginx = await Nginx()
        nginx.put("file.bin", Self.small)
        let fixture = await EngineFixture(certificateFile: nginx.authority)
        func run(_ number: UInt64, _ limit: Speed?) async throws {
            if isTotal { fixture.engine.setTotalSpeedLimit(limit) }
            let end = try await fixture.run(nginx.secureURL("/file.bin"), number: number) { if !isTotal { $0.speedLimit = limit } }
            #expect(end.complete?.size == 1_000_000 && fixture.part(number) == Self.small)
        }
        try await run(1, nil)
        try await run(2, 20_000_000)
        try await run(3, nil)
        #expect(await eventually { nginx.log.count == 3 })
        #expect(nginx.log == ["2.0", "1.1", "2.0"].map { "HTTP/\($0) 200 /file.bin -" }, "\(nginx.log)")
    }
}
