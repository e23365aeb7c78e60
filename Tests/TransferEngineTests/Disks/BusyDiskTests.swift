import DownloadModel
import TestSupport
import Testing

@testable internal import EventLoop
@testable internal import PartFiles
@testable internal import TransferEngine

/// The transfers whose disks the engine has called late.
@BusActor private final class LateTransfers {
    /// By the first question, whose patience is long, and by all others.
    var (early, late): ([DownloadNumber], [DownloadNumber]) = ([], [])
}

/// One test after another: the last one keeps all threads for flushes of one disk busy, and others need such a thread.
@Suite(.serialized, .timeLimit(.minutes(5))) struct `A disk that is busy or silent` {
    static let file = patternBytes(1_000_000)

    /// Keeps all threads for long work busy until `gate` opens, as while large files are compared with their checksums. The disk is another
    /// one than that of most tests.
    private func busyFolder(until gate: Gate) -> TemporaryFolder {
        let folder = TemporaryFolder("todoku-busy", in: "/dev/shm")
        for _ in 0..<DiskPool.width {
            DiskPool.shared.perform(at: .path(folder.path), takesLong: true) {
                gate.wait()
            } then: {
            }
        }
        return folder
    }

    @Test @BusActor func `that is busy with long work does not delay the end of a file whose pieces must be checked`() async throws {
        let hashes = try await PieceHashes(pieceHashes(of: Self.file, length: 262_144))
        let server = ScriptedServer { request, reply in reply.serve(Self.file, for: request, entityTag: "\"v1\"") }
        let (fixture, gate) = (await EngineFixture(), Gate())
        defer { gate.open() }
        let folder = busyFolder(until: gate)
        let request = try fixture.request(server.url()) {
            ($0.directory, $0.pieces, $0.expectedSize, $0.hasChecksum) = (folder.path, hashes, 1_000_000, true)
        }
        fixture.engine.start(request)
        #expect(await eventually { fixture.log.ends(of: request.number) == 1 }, "the pieces are not checked")
        gate.open()
        #expect(await fixture.log.end(of: request.number).complete?.size == 1_000_000)
    }

    /// A stopped transfer ends after the flush of its bytes.
    @Test @BusActor func `that is busy with long work does not delay the flush of another transfer`() async throws {
        let gate = Gate()
        defer { gate.open() }
        let server = ScriptedServer { request, reply in
            reply.head(200, ["ETag": "\"v1\"", "Accept-Ranges": "bytes"], length: Self.file.count)
            reply.send(Self.file[..<600_000])
            gate.wait()
        }
        let fixture = await EngineFixture()
        let folder = busyFolder(until: gate)
        let request = try fixture.request(server.url()) { $0.directory = folder.path }
        fixture.engine.start(request)
        await fixture.log.received(600_000)
        fixture.engine.stop(request.number)
        #expect(await eventually { fixture.log.ends(of: request.number) == 1 }, "no flush has saved the bytes")
        gate.open()
        #expect(await fixture.log.end(of: request.number).resume?.written == 600_000)
    }

    // MARK: A flush without an answer

    /// Each flush of the engine, and the end of each response, waits until `gate` opens.
    private func hanging(until gate: Gate) async -> (EngineFixture, ScriptedServer) {
        let server = ScriptedServer { _, reply in
            reply.head(200, ["ETag": "\"v1\""], length: 1_000_000)
            reply.send(patternBytes(600_000))
            gate.wait()
        }
        let fixture = await EngineFixture(flush: { _ in
            gate.wait()
            return 0
        })
        return (fixture, server)
    }

    @Test @BusActor func `that does not answer a flush is reported once it has been silent for too long`() async throws {
        let gate = Gate()
        defer { gate.open() }
        let (fixture, server) = await hanging(until: gate)
        let request = try fixture.request(server.url())
        fixture.engine.start(request)
        await fixture.log.received(600_000)
        fixture.engine.stop(request.number)
        let transfers = LateTransfers()
        fixture.engine.findLateDisks(longerThan: .seconds(600)) { transfers.early += $0 }
        let isFound = await eventually {
            fixture.engine.findLateDisks(longerThan: .milliseconds(1)) { transfers.late += $0 }
            return !transfers.late.isEmpty
        }
        #expect(isFound && Set(transfers.late) == [request.number])
        #expect(transfers.early.isEmpty && fixture.log.ends(of: request.number) == 0)
        gate.open()
        #expect(await fixture.log.end(of: request.number).resume?.written == 600_000)
    }

    /// The kernel answers a check from memory, also while the disk hangs.
    @Test @BusActor func `that answers no flush is reported for one that waits for a thread, whatever checks it answers`() async throws {
        let gate = Gate()
        defer { gate.open() }
        let (fixture, server) = await hanging(until: gate)
        // The disk is another one than that of most tests, whose flushes would wait for these.
        let folder = TemporaryFolder("todoku-busy", in: "/dev/shm")
        let numbers = (0...UInt64(DiskPool.width)).map { DownloadNumber($0 + 1) }
        for number in numbers {
            fixture.engine.start(try fixture.request(server.url(), number: number.value) { $0.directory = folder.path })
        }
        for number in numbers { await fixture.log.received(600_000, of: number.value) }
        for number in numbers { fixture.engine.stop(number) }
        fixture.engine.command { $0.checkAnswers.note(SuspendingClock.now + .seconds(600)) }
        let transfers = LateTransfers()
        let areFound = await eventually {
            fixture.engine.findLateDisks(longerThan: .milliseconds(1)) { transfers.late += $0 }
            return Set(transfers.late) == Set(numbers)
        }
        #expect(areFound, "a transfer waits for ever: only \(Set(transfers.late).count) of \(numbers.count) are reported")
        gate.open()
        for number in numbers { _ = await fixture.log.end(of: number) }
    }
}
