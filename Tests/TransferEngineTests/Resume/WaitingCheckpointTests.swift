import DownloadModel
import EventLoop
import TestSupport
import Testing

@testable internal import PartFiles
@testable internal import TransferEngine

@Suite(.timeLimit(.minutes(5))) struct `A transfer that waits for a permit` {
    static let file = patternBytes(1_000_000)

    /// The server is lost, and the next request must keep the interval of its host: minutes may pass before the permit.
    @Test func `saves its bytes by a checkpoint meanwhile`() async throws {
        let server = ScriptedServer.lost(after: 300_000, of: Self.file)
        let fixture = await EngineFixture()
        await fixture.log.permit { _, _ in }
        let request = try fixture.request(server.url("/file.bin")) { $0.use([server.otherURL("/file.bin")], mixes: true) }
        fixture.engine.start(request)
        await fixture.log.wait { events in
            events.contains { if case .checkpoint(_, let data) = $0 { data.written == 300_000 } else { false } }
        }
        #expect(await fixture.log.asked.count == 1 && server.requests.count == 1)
        #expect(await fixture.log.ends(of: request.number) == 0)
        let id = try #require(await fixture.log.asked.last)
        fixture.engine.permit(id, question: 1, tellsSent: false)
        #expect(await fixture.log.end(of: request.number).complete?.size == 1_000_000 && fixture.part == Self.file)
        #expect(server.requests.last?.range?.first == 300_000)
    }
}
