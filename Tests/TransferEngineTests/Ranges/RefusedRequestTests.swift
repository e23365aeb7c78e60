import DownloadModel
import EventLoop
import TestSupport
import Testing

@testable internal import TransferEngine

@Suite(.timeLimit(.minutes(5))) struct `A further request that the server refuses` {
    static let file = patternBytes(8_000_000)

    /// Without its status and its `Retry-After`, the service would take the refusal for a lost connection, and ask again too soon.
    @Test func `is refused as soon as the head says so, although the body of the refusal never comes`() async throws {
        let (refused, end) = (Gate(), Gate())
        defer { for gate in [refused, end] { gate.open() } }
        let server = ScriptedServer { request, reply in
            guard request.number == 0 else {
                reply.head(503, ["Retry-After": "1"], length: 500)
                return end.wait()
            }
            reply.head(200, ["ETag": "\"v1\"", "Accept-Ranges": "bytes"], length: Self.file.count)
            reply.send(Self.file[..<100_000])
            refused.wait()
            reply.send(Self.file[100_000...])
        }
        let fixture = await EngineFixture()
        let request = try fixture.request(server.url("/file.bin")) { $0.connections = 2 }
        fixture.engine.start(request)
        await fixture.log.wait { $0.contains { if case .over = $0 { true } else { $0.isEnd(of: request.number) } } }
        refused.open()
        let over = await fixture.log.events.compactMap { if case .over(_, let failure?) = $0 { failure } else { nil } }
        #expect(over.map(\.httpStatus) == [503] && over.first?.retryAfter == .seconds(1), "\(over)")
        let transferEnd = await fixture.log.end(of: request.number)
        #expect(transferEnd.complete?.size == 8_000_000 && fixture.part == Self.file)
        #expect(server.requests.count == 2, "a refusal ends the division for this transfer")
    }
}
