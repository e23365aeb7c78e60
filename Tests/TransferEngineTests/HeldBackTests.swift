import DownloadModel
import EventLoop
import TestSupport
import Testing

@testable internal import TransferEngine

/// As when somebody retries a download whose disk does not answer: the old transfer has not ended yet.
@Suite(.timeLimit(.minutes(5))) struct `A transfer that waits for the end of its predecessor` {
    @Test @BusActor func `keeps a limit that is set meanwhile`() async throws {
        // The engines give up a transfer whose disk seems to hang. On a busy machine, their own threads may pause for so long.
        let isInTime = try await inTime { try await run() }
        #expect(isInTime, "each time, a disk seemed to hang")
    }

    /// - Returns: false: the engines have given up a transfer.
    @BusActor private func run() async throws -> Bool {
        let (file, gate) = (patternBytes(60_000), Gate())
        let server = ScriptedServer { request, reply in
            guard request.number == 0 else { return reply.respond(200, body: file) }
            gate.wait()
            reply.respond(404)
        }
        let (folder, log) = (TemporaryFolder("todoku-engines"), EventLog())
        let engines = Engines(configuration: EngineConfiguration(version: "0.test", environment: [:]), home: folder.path) { log.take($0) }
        var request = TransferRequest(
            number: DownloadNumber(1), url: try DownloadURL(server.url("/x")), directory: folder.path, partName: ".todoku-1.part")
        request.stallTimeout = .seconds(240)  // as in `EngineFixture`
        let disk = DiskPool.shared.disk(byTextOf: folder.path)
        for _ in 1...2 { engines.start(request, on: disk) }
        engines.setSpeedLimit(request.number, 20_000)
        let begun = ContinuousClock.now
        gate.open()
        let ends = [await log.end(of: request.number), await log.end(of: request.number, after: 1)]
        let taken = ContinuousClock.now - begun
        await withCheckedContinuation { continuation in engines.shutDown { continuation.resume() } }
        guard !ends.contains(where: { $0.failure?.wait == .destination }) else { return false }
        #expect(ends[0].failure?.httpStatus == 404)
        #expect(ends[1].complete?.size == 60_000)
        #expect(taken > .seconds(2), "60,000 bytes at 20,000 a second")
        return true
    }
}
