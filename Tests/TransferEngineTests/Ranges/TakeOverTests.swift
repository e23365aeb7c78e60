import DownloadModel
import EventLoop
import Glibc
import TestSupport
import Testing

@testable internal import TransferEngine
@testable internal import Transport

@Suite(.timeLimit(.minutes(5))) struct `A connection whose whole stretch another one has taken over` {
    static let file = patternBytes(8_000_000)

    /// Of three connections, one has sent its head only, and one is slow. The first one is done, and takes over the stretch without a byte.
    /// Then the bytes of this stretch come from both.
    @Test func `is not lost`() async throws {
        let (joined, taken) = (Gate(), Gate())
        defer {
            joined.open()
            taken.open()
        }
        let server = ScriptedServer { request, reply in
            let (first, last) = (request.range?.first ?? 0, request.range?.last ?? Self.file.count - 1)
            let fields: KeyValuePairs = ["ETag": "\"v1\"", "Accept-Ranges": "bytes", "Content-Range": "bytes \(first)-\(last)/8000000"]
            reply.head(request.range == nil ? 200 : 206, fields, length: last - first + 1)
            /// Sends 5,000 bytes each 10 ms, until `isOver`, and then the rest.
            func trickle(from start: Int, until isOver: (_ place: Int) -> Bool) {
                var place = start
                while place + 5000 <= last, !isOver(place) {
                    poll(nil, 0, 10)
                    guard reply.send(Self.file[place..<place + 5000]) else { return }
                    place += 5000
                }
                reply.send(Self.file[place...last])
            }
            switch request.number {
            case 0:
                reply.send(Self.file[..<100_000])
                // If this response were silent for three seconds, another request would get the whole rest.
                let rest = reply.trickle(Self.file[100_000...], until: joined)
                // The engine knows the speeds of its connections after a third of a second.
                trickle(from: rest.startIndex) { $0 >= 600_000 }
            case 2: trickle(from: first) { _ in taken.isOpen }
            default:
                taken.wait()
                reply.send(Self.file[first...last])
            }
        }
        let fixture = await EngineFixture()
        let request = try fixture.request(server.url("/file.bin")) { ($0.connections, $0.takeOverAfter) = (3, Transfer.takeOverAfter) }
        fixture.engine.start(request)
        func joins(_ events: [TransferEvent]) -> Int { events.count { if case .joined = $0 { true } else { false } } }
        await fixture.log.wait { joins($0) >= 2 }
        joined.open()
        await fixture.log.wait { joins($0) >= 3 }
        taken.open()
        let end = await fixture.log.end(of: request.number)
        #expect(end.complete?.size == 8_000_000 && fixture.part == Self.file)
        let failures = await fixture.log.events.compactMap { if case .over(_, let failure?) = $0 { failure } else { nil } }
        #expect(failures.isEmpty, "\(failures)")
    }
}

@Suite(.timeLimit(.minutes(5))) struct `A further request that gets no response` {
    static let file = patternBytes(8_000_000)

    /// The first connection gets into the stretch of the request, and is lost there. If the request counted as silent by then, the transfer
    /// would fail. So the server sends lines of the head until the loss, and nothing afterwards.
    @Test func `gives up what is missing of its stretch, also if no connection receives any more`() async throws {
        let isInTime = try await inTime([Transfer.takeOverAfter, .seconds(30)]) { try await lose(takeOverAfter: $0) }
        #expect(isInTime, "each transfer has failed")
    }

    /// - Returns: false: the transfer has failed. The server may have paused before the loss for longer than `takeOverAfter`.
    private func lose(takeOverAfter: Duration) async throws -> Bool {
        let (asked, lost, end) = (Gate(), Gate(), Gate())
        defer { for gate in [asked, lost, end] { gate.open() } }
        let server = ScriptedServer { request, reply in
            switch request.number {
            case 0:
                reply.head(200, ["ETag": "\"v1\"", "Accept-Ranges": "bytes"], length: Self.file.count)
                reply.send(Self.file[..<100_000])
                asked.wait()
                reply.send(Self.file[100_000..<6_000_000])
                reply.close()
            case 1:
                asked.open()
                reply.send("HTTP/1.1 206 Partial Content\r\n")
                while !lost.isOpen, reply.send("X-Line: 1\r\n") { poll(nil, 0, 250) }
                end.wait()
            default: reply.serve(Self.file, for: request, entityTag: "\"v1\"")
            }
        }
        let fixture = await EngineFixture()
        let request = try fixture.request(server.url("/file.bin")) {
            ($0.connections, $0.stallTimeout, $0.takeOverAfter) = (2, .seconds(3600), takeOverAfter)
        }
        fixture.engine.start(request)
        await fixture.log.wait { $0.contains { if case .over = $0 { true } else { $0.isEnd(of: request.number) } } }
        lost.open()
        let transferEnd = await fixture.log.end(of: request.number)
        guard transferEnd.failure == nil else { return false }
        #expect(transferEnd.complete?.size == 8_000_000 && fixture.part == Self.file)
        let firsts = server.requests.map { $0.range?.first }
        #expect(firsts.count == 3 && firsts[1] ?? 0 < 6_000_000 && firsts[2] == 6_000_000, "\(firsts)")
        return true
    }
}

@Suite(.timeLimit(.minutes(5))) struct `A connection that is lost while a disk blocks the engine` {
    static let file = patternBytes(8_000_000)

    /// The engine finds the loss in the step that the disk has blocked. By then, the engine has not heard the other connection for seconds.
    @Test func `does not end the transfer that another one carries`() async throws {
        let end = Gate()
        defer { end.open() }
        let server = ScriptedServer { request, reply in
            switch request.number {
            case 0:
                reply.head(200, ["ETag": "\"v1\"", "Accept-Ranges": "bytes"], length: Self.file.count)
                reply.send(Self.file[..<100_000])
                reply.send(reply.trickle(Self.file[100_000...], until: end))
            case 1:
                let (first, last) = (request.range?.first ?? 0, request.range?.last ?? 0)
                reply.head(206, ["ETag": "\"v1\"", "Content-Range": "bytes \(first)-\(last)/8000000"], length: last - first + 1)
                reply.send(Self.file[first..<first + 10_000])
                end.wait()
            default: reply.serve(Self.file, for: request, entityTag: "\"v1\"")
            }
        }
        let fixture = await EngineFixture()
        let request = try fixture.request(server.url("/file.bin")) { ($0.connections, $0.takeOverAfter) = (2, Transfer.takeOverAfter) }
        fixture.engine.start(request)
        await fixture.log.wait { $0.contains { if case .joined = $0 { true } else { false } } }
        fixture.engine.command { engine in
            let further = engine.transfers[request.number]?.segments.first { $0.id.ordinal == 1 }
            guard let exchange = further?.exchange else { return end.open() }
            let silent = SuspendingClock.now + Transfer.takeOverAfter
            while SuspendingClock.now < silent { poll(nil, 0, 100) }
            engine.exchangeEnded(exchange, CurlError(.reset, "lost"))
        }
        await fixture.log.wait { $0.contains { if case .over(_, _?) = $0 { true } else { $0.isEnd(of: request.number) } } }
        end.open()
        let transferEnd = await fixture.log.end(of: request.number)
        #expect(transferEnd.complete?.size == 8_000_000 && fixture.part == Self.file, "\(transferEnd)")
    }
}
