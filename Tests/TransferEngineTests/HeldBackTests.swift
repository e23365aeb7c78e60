import DownloadModel
import EventLoop
import PartFiles
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

/// As when somebody gives a download another folder, because the disk of its folder does not answer.
@Suite(.timeLimit(.minutes(5))) struct `A transfer into another folder than its predecessor, whose disk hangs` {
    private static let number = DownloadNumber(1)
    private static let file = patternBytes(600_000)

    @Test @BusActor func `does not wait for the predecessor, which leaves neither a part file nor a damaged map`() async throws {
        let isInTime = try await inTime { try await run() }  // as above
        #expect(isInTime, "each time, the healthy disk seemed to hang")
    }

    /// - Returns: false: the engines have given up the transfer into the healthy folder.
    @BusActor private func run() async throws -> Bool {
        let (disk, rest) = (Gate(), Gate())
        defer {
            disk.open()
            rest.open()
        }
        let server = ScriptedServer { request, reply in
            if request.number == 0 { return disk.wait() }
            reply.head(200, ["ETag": "\"v1\""], length: Self.file.count)
            reply.send(Self.file[..<400_000])
            rest.wait()
            reply.send(Self.file[400_000...])
        }
        let (former, folder, log) = (TemporaryFolder("todoku-former"), TemporaryFolder("todoku-engines"), EventLog())
        let engines = Engines(configuration: EngineConfiguration(version: "0.test", environment: [:]), home: folder.path) { log.take($0) }
        var request = TransferRequest(
            number: Self.number, url: try DownloadURL(server.url("/x")), directory: former.path, partName: ".todoku-1.part")
        let map = folder("map-1")
        (request.stallTimeout, request.mapPath) = (.seconds(240), map)
        // Any disk but that of the other folder.
        engines.start(request, on: DiskPool.shared.disk(byTextOf: "/proc"))
        try #require(await server.waitForRequests(1))
        let lane = try #require(engines.lanes.first)
        // A call of the thread returns late, and the thread does the rest of its step before it learns that it is stopped.
        lane.engine.command { _ in
            disk.wait()
            writeFile(former(".todoku-1.part"), [1])
            WrittenMap.remove(map)
        }
        engines.lose(Self.number, in: lane.number)
        #expect(await log.end(of: Self.number).failure?.wait == .destination)

        request.directory = folder.path
        engines.start(request, on: DiskPool.shared.disk(byTextOf: folder.path))
        let hasBegun = await eventually { log.received >= 400_000 || log.ends(of: Self.number) > 1 }
        guard log.ends(of: Self.number) == 1 else { return false }
        try #require(hasBegun && readFile(map) != nil)
        disk.open()
        #expect(await eventually { engines.lanes.count == 1 }, "the lost transfer has not ended")
        #expect(await eventually { readFile(former(".todoku-1.part")) == nil }, "its part file is left over")
        #expect(await eventually { readFile(map) != nil }, "a kill would cost the bytes in the new folder")
        rest.open()
        let end = await log.end(of: Self.number, after: 1)
        await withCheckedContinuation { continuation in engines.shutDown { continuation.resume() } }
        guard end.failure?.wait != .destination else { return false }
        #expect(end.complete?.size == 600_000 && log.ends(of: Self.number) == 2)
        #expect(readFile(folder(".todoku-1.part")) == Self.file)
        return true
    }
}
