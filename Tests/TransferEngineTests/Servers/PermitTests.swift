import DownloadModel
import EventLoop
import TestSupport
import Testing

@testable internal import TransferEngine

@Suite(.timeLimit(.minutes(5))) struct `A permit` {
    static let file = patternBytes(1_000_000)

    /// A piece of one source turns out to be wrong while the permit for the next request to this source is under way.
    @Test func `for a source that the transfer has left permits no request to another source`() async throws {
        let server = ScriptedServer.lost(after: 300_000, of: Self.file)
        let fixture = await EngineFixture()
        await fixture.log.permit { _, _ in }
        let request = try fixture.request(server.url("/file.bin")) { $0.use([server.otherURL("/file.bin")], mixes: true) }
        fixture.engine.start(request)
        await fixture.log.wait { $0.contains { if case .moved = $0 { true } else { false } } }
        let awaitsPermit = await withCheckedContinuation { told in
            fixture.engine.command { engine in
                guard let transfer = engine.transfers[request.number], let segment = transfer.segments.first,
                    let other = transfer.sources.first(where: { $0 !== segment.source })
                else { return told.resume(returning: false) }
                engine.turn(segment, to: other, isAnswered: true)
                engine.goOn(segment.id, 1, tellsSent: false)
                told.resume(returning: segment.awaitsPermit && segment.exchange == nil)
            }
        }
        #expect(awaitsPermit, "the permit of the first question is void")
        #expect(server.requests.count == 1)
        fixture.engine.permit(request.id, question: 2, tellsSent: false)
        #expect(await fixture.log.end(of: request.number).complete?.size == 1_000_000 && fixture.part == Self.file)
        #expect(await fixture.log.questions == [1, 2])
    }

    /// A piece of a source turns out to be wrong while the next request to this source waits for its permit.
    @Test func `that has not come says that the server has not answered`() async throws {
        let server = ScriptedServer.lost(after: 300_000, of: Self.file)
        let fixture = await EngineFixture()
        await fixture.log.permit { _, _ in }
        let request = try fixture.request(server.url("/file.bin")) {
            $0.use([server.otherURL("/file.bin"), server.url("/copy.bin")], mixes: true)
        }
        fixture.engine.start(request)
        #expect(await eventually { await fixture.log.questions == [1] })
        fixture.engine.command { engine in
            guard let transfer = engine.transfers[request.number], let segment = transfer.segments.first else { return }
            segment.source.left = .wrongBytes
            engine.leaveWrongSources(of: transfer, DownloadFailure(.checksumMismatch, "wrong bytes", host: segment.url.host))
        }
        #expect(await eventually { await fixture.log.questions == [1, 2] })
        #expect(await fixture.log.areAnswered.last == false)
        fixture.engine.permit(request.id, question: 2, tellsSent: false)
        #expect(await fixture.log.end(of: request.number).complete?.size == 1_000_000 && fixture.part == Self.file)
    }
}
