import DownloadModel
import EventLoop
import Glibc
import TestSupport
import Testing

@testable internal import PartFiles
@testable internal import TransferEngine

@Suite(.timeLimit(.minutes(5)), .serialized, .enabled("only root can mount a small disk") { await SmallDisk.isPossible() })
struct `A small disk` {
    static let file = patternBytes(1_500_000)

    private func isWaitForSpace(_ end: TransferEnd) -> Bool { end.failure?.name == .diskFull && end.failure?.wait == .diskSpace }

    /// A server whose first answer ends after 500,000 bytes of the file. Later answers are good.
    private func cutOnce() -> ScriptedServer {
        ScriptedServer { request, reply in
            guard request.number == 0 else { return reply.serve(Self.file, for: request, entityTag: "\"v1\"") }
            reply.head(200, ["ETag": "\"v1\""], length: Self.file.count)
            reply.send(Self.file[..<500_000])
            reply.close()
        }
    }

    @Test func `that has no room for the file says how much is missing, before the body`() async throws {
        let server = ScriptedServer { _, reply in
            reply.head(200, length: 5_000_000)
            reply.send("x")
        }
        let fixture = await EngineFixture()
        try await SmallDisk.withDisk(bytes: 2 << 20) { disk in
            let end = try await fixture.run(server.url("/x")) { $0.directory = disk.path }
            #expect(isWaitForSpace(end) && end.failure?.missingBytes == 5_000_000 - (2 << 20))
            #expect(end.failure?.isRetryable == false)
            #expect(listFolder(disk.path) == [])
        }
    }

    @Test func `that fills up keeps its bytes, and the transfer resumes from there once there is room`() async throws {
        let file = patternBytes(4_000_000)
        let server = ScriptedServer { request, reply in
            guard request.number == 0 else { return reply.serve(file, for: request, entityTag: "\"v1\"") }
            reply.head(200, ["Transfer-Encoding": "chunked", "ETag": "\"v1\""])
            for start in stride(from: 0, to: file.count, by: 100_000) { reply.chunk(file[start..<(start + 100_000)]) }
            reply.chunk([])
        }
        let fixture = await EngineFixture()
        try await SmallDisk.withDisk(bytes: 2 << 20) { disk in
            let full = try await fixture.run(server.url("/x")) { $0.directory = disk.path }
            #expect(isWaitForSpace(full) && full.failure?.missingBytes == nil)
            #expect(full.resume?.written == 2 << 20)
            // The total was not known; now it is.
            let still = try await fixture.run(server.url("/x")) { ($0.directory, $0.resume) = (disk.path, full.resume) }
            #expect(isWaitForSpace(still) && still.failure?.missingBytes == 4_000_000 - (2 << 20))
            #expect(still.resume?.written == 2 << 20 && still.resume?.total == 4_000_000)
            await disk.remount("size=6m")
            let end = try await fixture.run(server.url("/x")) { ($0.directory, $0.resume) = (disk.path, still.resume) }
            #expect(end.complete?.size == 4_000_000)
            #expect(server.requests.last?.field("Range") == "bytes=\(2 << 20)-")
            #expect(readFile("\(disk.path)/.todoku-1.part") == file)
        }
    }

    @Test(arguments: [true, false]) func `keeps its reserve free, also of a body whose length nobody knows`(isKnown: Bool) async throws {
        let file = patternBytes(4_000_000)
        let server = ScriptedServer { _, reply in
            if isKnown { return reply.respond(200, ["ETag": "\"v1\""], body: file) }
            reply.head(200, ["Transfer-Encoding": "chunked"])
            for start in stride(from: 0, to: file.count, by: 100_000) { reply.chunk(file[start..<(start + 100_000)]) }
            reply.chunk([])
        }
        let fixture = await EngineFixture()
        try await SmallDisk.withDisk(bytes: 4 << 20) { disk in
            let end = try await fixture.run(server.url("/x")) { ($0.directory, $0.diskReserve) = (disk.path, .bytes(1 << 20)) }
            #expect(isWaitForSpace(end) && end.failure?.missingBytes == (isKnown ? 4_000_000 - (3 << 20) : nil))
            let written = readFile("\(disk.path)/.todoku-1.part")?.count ?? 0
            #expect(isKnown ? written == 0 : ((2 << 20)...(3 << 20)).contains(written))
            // Bytes that cannot be resumed are deleted while the download waits, so they need their room once more.
            #expect(end.failure?.neededRoom == (isKnown ? 4_000_000 : ByteCount(written) + 16 << 20))
            #expect(end.resume?.written ?? 0 == 0)
            if case .failed(_, let madeProgress, _) = end { #expect(!madeProgress) }
        }
    }

    @Test func `keeps the room that a part file has reserved`() async throws {
        let server = cutOnce()
        let fixture = await EngineFixture()
        try await SmallDisk.withDisk(bytes: 2 << 20) { disk in
            let cut = try await fixture.run(server.url("/x")) { $0.directory = disk.path }
            #expect(cut.resume?.written == 500_000)
            disk.fill(leaving: 0)
            let end = try await fixture.run(server.url("/x")) { ($0.directory, $0.resume) = (disk.path, cut.resume) }
            #expect(end.complete?.size == 1_500_000)
            #expect(readFile("\(disk.path)/.todoku-1.part") == Self.file)
        }
    }

    @Test func `in memory with ample room reserves nothing, and gives the room that a part file expects to no other`() async throws {
        let (first, gate) = (patternBytes(8 << 20), Gate())
        let server = ScriptedServer { request, reply in
            guard request.path == "/first" else {
                reply.head(200, length: request.path == "/more" ? 59 << 20 : 57 << 20)
                reply.send("x")
                return reply.close()
            }
            reply.head(200, ["ETag": "\"v1\""], length: first.count)
            reply.send(first[..<(1 << 20)])
            gate.wait()
            reply.send(first[(1 << 20)...])
        }
        let fixture = await EngineFixture()
        try await SmallDisk.withDisk(bytes: 64 << 20) { disk in
            fixture.engine.start(try fixture.request(server.url("/first")) { $0.directory = disk.path })
            await fixture.log.received(1 << 20)
            var (space, status) = (statvfs(), stat())
            #expect(stat("\(disk.path)/.todoku-1.part", &status) == 0 && status.st_blocks * 512 == 1 << 20)
            #expect(statvfs(disk.path, &space) == 0 && Int(space.f_bavail) * Int(space.f_frsize) == 63 << 20)
            // 63 MiB are free, and the first file expects 7 of them.
            let more = try await fixture.run(server.url("/more"), number: 2) { $0.directory = disk.path }
            #expect(isWaitForSpace(more) && more.failure?.missingBytes == 3 << 20)
            // The download waits until this much is free: what it needs, and what the first file expects.
            #expect(more.failure?.neededRoom == 66 << 20)
            // Only the cut connection ends a download that does not fit while the first file needs its room, and fits afterwards.
            let less = try await fixture.run(server.url("/less"), number: 3) { $0.directory = disk.path }
            #expect(isWaitForSpace(less) && less.failure?.missingBytes == 1 << 20)
            gate.open()
            #expect(await fixture.log.end(of: DownloadNumber(1)).complete?.size == 8 << 20)
            #expect(unlink("\(disk.path)/.todoku-1.part") == 0)
            // The room is free once the engine has closed the file, too.
            #expect(await eventually { statvfs(disk.path, &space) == 0 && Int(space.f_bavail) * Int(space.f_frsize) == 64 << 20 })
            let fits = try await fixture.run(server.url("/less"), number: 3) { $0.directory = disk.path }
            #expect(fits.failure?.name == .truncated, "\(fits)")
        }
    }

    @Test func `without room for the old bytes and the new ones drops the old`() async throws {
        let new = patternBytes(1_400_000, seed: 5)
        let server = ScriptedServer { request, reply in
            guard request.number == 0 else { return reply.respond(200, ["ETag": "\"v2\""], body: new) }
            reply.head(200, ["ETag": "\"v1\""], length: Self.file.count)
            reply.send(Self.file[..<1_200_000])
            reply.close()
        }
        let fixture = await EngineFixture()
        try await SmallDisk.withDisk(bytes: 2 << 20) { disk in
            let cut = try await fixture.run(server.url("/x")) { $0.directory = disk.path }
            let end = try await fixture.run(server.url("/x")) { ($0.directory, $0.resume) = (disk.path, cut.resume) }
            #expect(end.complete?.size == 1_400_000)
            #expect(readFile("\(disk.path)/.todoku-1.part") == new)
            #expect(listFolder(disk.path) == [".todoku-1.part"])
        }
    }

    @Test func `bounds a body that unpacks without end, and keeps nothing false of it`() async throws {
        let folder = TemporaryFolder()
        writeFile(folder("zeros"), [UInt8](repeating: 0, count: 20_000_000))
        #expect(await Child.run(["gzip", folder("zeros")]).status == 0)
        let coded = try #require(readFile(folder("zeros.gz")))
        let server = ScriptedServer { _, reply in reply.respond(200, ["Content-Encoding": "gzip", "ETag": "\"v1\""], body: coded) }
        let fixture = await EngineFixture()
        try await SmallDisk.withDisk(bytes: 2 << 20) { disk in
            let end = try await fixture.run(server.url("/zeros")) { $0.directory = disk.path }
            #expect(isWaitForSpace(end) && end.resume == nil)
        }
    }

    @Test func `that is read-only for now makes the download wait, and keeps its bytes`() async throws {
        let server = cutOnce()
        let fixture = await EngineFixture()
        try await SmallDisk.withDisk(bytes: 2 << 20) { disk in
            let cut = try await fixture.run(server.url("/x")) { $0.directory = disk.path }
            await disk.remount("ro")
            let end = try await fixture.run(server.url("/x")) { ($0.directory, $0.resume) = (disk.path, cut.resume) }
            #expect(end.failure?.name == .permissionDenied && end.failure?.wait == .destination && end.resume == cut.resume)
            let other = try await fixture.run(server.url("/x"), number: 2) { $0.directory = disk.path }
            #expect(other.failure?.name == .permissionDenied && other.failure?.wait == .destination)
            await disk.remount("rw")
            #expect(try await fixture.run(server.url("/x")) { ($0.directory, $0.resume) = (disk.path, cut.resume) }.complete != nil)
            #expect(readFile("\(disk.path)/.todoku-1.part") == Self.file)
        }
    }

    @Test func `that is unplugged makes the download wait: its empty mount point is not mistaken for it`() async throws {
        let server = cutOnce()
        let fixture = await EngineFixture()
        let point = fixture.folder.makeFolder("point")
        try await SmallDisk.withDisk(bytes: 2 << 20) { disk in
            await disk.show(at: point, true)
            let cut = try await fixture.run(server.url("/x")) { $0.directory = point }
            #expect(cut.resume?.written == 500_000)
            await disk.show(at: point, false)
            let end = try await fixture.run(server.url("/x")) { ($0.directory, $0.resume) = (point, cut.resume) }
            #expect(end.failure?.name == .writeFailed && end.failure?.wait == .destination && end.resume == cut.resume)
            #expect(listFolder(point) == [] && server.requests.count == 1)
            await disk.show(at: point, true)
            let last = try await fixture.run(server.url("/x")) { ($0.directory, $0.resume) = (point, end.resume) }
            #expect(last.complete?.size == 1_500_000 && server.requests.last?.field("Range") == "bytes=500000-")
            #expect(readFile("\(point)/.todoku-1.part") == Self.file)
            await disk.show(at: point, false)
        }
    }
}

@Suite struct `An error of the disk` {
    static let meanings: [(Int32, ErrorName, WaitReason?)] = [
        (ENOSPC, .diskFull, .diskSpace), (EDQUOT, .diskFull, .diskSpace), (EFBIG, .diskFull, nil),
        (EACCES, .permissionDenied, nil), (EPERM, .permissionDenied, nil), (EROFS, .permissionDenied, .destination),
        (ENOENT, .writeFailed, .destination), (ENOTDIR, .writeFailed, .destination), (ESTALE, .writeFailed, .destination),
        (ENXIO, .writeFailed, .destination), (ENODEV, .writeFailed, .destination), (EIO, .writeFailed, .destination),
        (ENOTCONN, .writeFailed, .destination), (ECONNABORTED, .writeFailed, .destination), (ESHUTDOWN, .writeFailed, .destination),
        (EHOSTDOWN, .writeFailed, .destination), (EHOSTUNREACH, .writeFailed, .destination), (ENETDOWN, .writeFailed, .destination),
        (ENETUNREACH, .writeFailed, .destination), (ETIMEDOUT, .writeFailed, .destination),
        (EMFILE, .writeFailed, nil), (ENFILE, .writeFailed, nil), (ENOMEM, .writeFailed, nil), (ELOOP, .writeFailed, nil),
    ]
    /// What passes without anybody’s help, so that the download tries again.
    static let passing = [EIO, ETIMEDOUT, EMFILE, ENFILE, ENOMEM]

    @Test(arguments: meanings) func `has its name, and what it waits for`(code: Int32, name: ErrorName, wait: WaitReason?) {
        let failure = DiskError("write the part file", code, shortage: DiskError.Shortage(missing: 5, room: 2)).failure(folder: "/f")
        #expect(failure.name == name && failure.wait == wait && failure.isRetryable == Self.passing.contains(code))
        #expect(failure.missingBytes == (wait == .diskSpace ? 5 : nil))
        #expect(failure.message.contains("/f"))
    }
}

@Suite(.timeLimit(.minutes(5))) struct `A flush that fails` {
    static let file = patternBytes(3_000_000)

    @Test(arguments: [EIO, ENOSPC]) func `leaves the earlier checkpoint, and no valid map`(code: Int32) async throws {
        let isBroken = Gate()
        let server = ScriptedServer { request, reply in
            guard request.number < 2 else { return reply.serve(Self.file, for: request, entityTag: "\"v1\"") }
            let first = request.range?.first ?? 0
            if first == 0 {
                reply.head(200, ["ETag": "\"v1\""], length: Self.file.count)
            } else {
                reply.head(206, ["ETag": "\"v1\"", "Content-Range": "bytes \(first)-2999999/3000000"], length: Self.file.count - first)
            }
            reply.send(Self.file[first..<(first + 1_200_000)])
            reply.close()
        }
        let fixture = await EngineFixture(flush: { isBroken.isOpen ? code : fdatasync($0) == 0 ? 0 : errno })
        let cut = try await fixture.run(server.url("/x"))
        #expect(cut.resume?.written == 1_200_000 && fileExists(fixture.folder("map-1")))
        isBroken.open()
        let end = try await fixture.run(server.url("/x")) { $0.resume = cut.resume }
        #expect(end.failure?.name == (code == EIO ? .writeFailed : .diskFull))
        #expect(end.failure?.wait == (code == EIO ? .destination : .diskSpace))
        #expect(end.resume == cut.resume)
        #expect(!fileExists(fixture.folder("map-1")))
        #expect(try await fixture.run(server.url("/x")) { $0.resume = end.resume }.complete != nil)
        #expect(server.requests.last?.field("Range") == "bytes=1200000-")
        #expect(fixture.part == Self.file)
    }

    /// The service may be killed before the engine's thread, which waits for the same disk, learns of the failure.
    @Test func `leaves no valid map, even before the engine learns of the failure`() async throws {
        let server = ScriptedServer { request, reply in
            reply.head(200, ["ETag": "\"v1\""], length: Self.file.count)
            reply.send(Self.file[..<1_200_000])
            reply.close()
        }
        let (isFlushing, fails, isBlocked, isFree) = (Gate(), Gate(), Gate(), Gate())
        let fixture = await EngineFixture(flush: { _ in
            isFlushing.open()
            fails.wait()
            return EIO
        })
        defer { isFree.open() }
        fixture.engine.start(try fixture.request(server.url("/x")))
        #expect(await eventually { isFlushing.isOpen } && fileExists(fixture.folder("map-1")))
        fixture.engine.command { _ in
            isBlocked.open()
            isFree.wait()
        }
        #expect(await eventually { isBlocked.isOpen })
        fails.open()
        #expect(await eventually { !fileExists(fixture.folder("map-1")) })
        isFree.open()
        #expect(await fixture.log.end(of: DownloadNumber(1)).failure?.name == .writeFailed)
    }
}
