import DownloadModel
import EventLoop
import Glibc
import TestSupport
import Testing

@testable internal import PartFiles
@testable internal import TransferEngine

@Suite(.timeLimit(.minutes(5))) struct `After kill -9` {
    static let file = patternBytes(12_000_000)

    @Test(arguments: [1_100_000, 3_000_000, 9_700_001] as [UInt64])
    func `at most 1 MiB is fetched again, without any record of the transfer`(killedAt: UInt64) async throws {
        let file = Self.file
        let server = ScriptedServer { request, reply in reply.serve(file, for: request, entityTag: "\"v1\"") }
        let fixture = await EngineFixture()
        let (path, url) = (fixture.folder.path, server.url("/file.bin"))
        await #expect(processExitsWith: .signal(SIGKILL)) { [path = path as String, url = url as String, killedAt] in
            let engine = Engine(configuration: EngineConfiguration(version: "0", environment: [:])) { event in
                switch event {
                case .progress(let all) where all.contains { $0.received >= killedAt }: kill(getpid(), SIGKILL)
                case .ended: kill(getpid(), SIGKILL)  // a slow machine may report nothing before the end
                default: break
                }
            }
            var request = TransferRequest(
                number: DownloadNumber(1), url: try DownloadURL(url), directory: path, partName: ".todoku-1.part")
            (request.mapPath, request.speedLimit) = ("\(path)/map-1", 30_000_000)
            request.stallTimeout = .seconds(240)  // as in `EngineFixture`
            engine.start(request)
            await withCheckedContinuation { (_: CheckedContinuation<Void, Never>) in }
        }
        let held = try #require(fixture.part)
        #expect(ByteCount(held.count) >= killedAt && held[...] == file[..<held.count])
        #expect(try await fixture.run(url).complete?.size == 12_000_000)
        #expect(fixture.part == file)
        let start = try #require(server.requests.last?.range?.first)
        #expect(held.count - start <= 1 << 20, "held \(held.count), went on from \(start)")
        #expect(server.requests.last?.field("If-Range") == "\"v1\"")
        let facts = try #require(await fixture.log.facts().first)
        #expect(facts.offset == ByteCount(start) && !facts.discarded)
    }

    @Test func `at the moment in which a new version takes the old one's place, the new one counts`() async throws {
        let (old, new) = (Self.file[..<3_000_000], Array(Self.file[3_000_000..<7_000_000]))
        let server = ScriptedServer { request, reply in
            guard request.number == 0 else { return reply.serve(new, for: request, entityTag: "\"v2\"") }
            reply.head(200, ["ETag": "\"v1\""], length: old.count)
            reply.send(old[..<1_500_000])
            reply.close()
        }
        let fixture = await EngineFixture()
        let (path, url) = (fixture.folder.path, server.url("/file.bin"))
        #expect(try await fixture.run(url).resume?.written == 1_500_000)
        await #expect(processExitsWith: .signal(SIGKILL)) { [path = path as String, url = url as String] in
            let engine = Engine(configuration: EngineConfiguration(version: "0", environment: [:])) { event in
                if case .checkpoint(_, let data) = event, data.validator == .entityTag("\"v2\"") { kill(getpid(), SIGKILL) }
                if case .ended = event { kill(getpid(), SIGKILL) }
            }
            var request = TransferRequest(
                number: DownloadNumber(1), url: try DownloadURL(url), directory: path, partName: ".todoku-1.part")
            (request.mapPath, request.speedLimit) = ("\(path)/map-1", 5_000_000)
            request.stallTimeout = .seconds(240)  // as in `EngineFixture`
            engine.start(request)
            await withCheckedContinuation { (_: CheckedContinuation<Void, Never>) in }
        }
        let held = try #require(fixture.part)
        #expect(held.count > 1_500_000 && held[...] == new[..<held.count])
        #expect(try await fixture.run(url).complete?.size == 4_000_000)
        #expect(fixture.part == new)
        let request = try #require(server.requests.last)
        #expect(request.field("If-Range") == "\"v2\"" && held.count - (request.range?.first ?? 0) <= 1 << 20)
    }
}

@Suite struct `A written map` {
    let folder = TemporaryFolder("todoku-map")
    let identity = FileIdentity(device: 7, inode: 8, mount: 9, boot: "b")
    var path: String { folder("map") }

    private func header(
        _ validator: Validator? = .entityTag("\"v1\""), total: ByteCount? = 5_000_000, digest: Checksum? = nil
    ) -> MapHeader {
        MapHeader(identity: identity, total: total, validator: validator, digest: digest)
    }

    @Test func `says the digest that the server stated`() throws {
        for algorithm in [.sha256, .sha512] as [Checksum.Algorithm] {
            let digest = Checksum(algorithm, digest: [UInt8](repeating: 9, count: algorithm.length))
            _ = try #require(WrittenMap(path, header(digest: digest), ByteRanges(prefix: 1_500_000)))
            #expect(try WrittenMap.read(path, of: identity)?.header == header(digest: digest))
        }
    }

    @Test(arguments: [.entityTag("\"v1\""), .lastModified("Fri, 20 Nov 2026 12:00:00 GMT"), nil] as [Validator?])
    func `says what it was told`(validator: Validator?) throws {
        for total in [nil, 0, 5_000_000, ByteCount.max - 1] {
            let map = try #require(WrittenMap(path, header(validator, total: total), ByteRanges(prefix: 1_500_000)))
            var read = try #require(try WrittenMap.read(path, of: identity))
            #expect(read.header == header(validator, total: total) && read.ranges == ByteRanges(prefix: 1_500_000))
            map.save(0..<2_500_000)
            read = try #require(try WrittenMap.read(path, of: identity))
            #expect(read.ranges == ByteRanges(prefix: 2_500_000))
            #expect(listFolder(folder.path) == ["map"])
        }
    }

    @Test func `of another boot, device, inode or mount is not believed, and removed`() throws {
        for change: @Sendable (inout FileIdentity) -> Void in [
            { $0.boot = "c" }, { $0.device = 1 }, { $0.inode = 1 }, { $0.mount = 1 },
        ] {
            _ = try #require(WrittenMap(path, header(), ByteRanges(prefix: 1_500_000)))
            var other = identity
            change(&other)
            #expect(try WrittenMap.read(path, of: other) == nil)
            #expect(listFolder(folder.path) == [])
        }
    }

    @Test func `that is torn or changed in any byte of its head is not believed`() throws {
        _ = try #require(WrittenMap(path, header(), ByteRanges(prefix: 1_500_000)))
        let whole = try #require(readFile(path))
        #expect(whole.count == WrittenMap.slotsStart + 16)
        let fields = try #require(header().encoded()).count
        for index in 0..<fields {
            var changed = whole
            changed[index] ^= 0x41
            writeFile(path, changed)
            #expect(try WrittenMap.read(path, of: identity) == nil, "byte \(index)")
        }
        for length in [0, 7, 24, fields - 1, fields, WrittenMap.slotsStart, WrittenMap.slotsStart + 15] {
            writeFile(path, whole[..<length])
            #expect(try WrittenMap.read(path, of: identity) == nil, "\(length) bytes")
        }
        writeFile(path, whole)
        #expect(try WrittenMap.read(path, of: identity)?.ranges == ByteRanges(prefix: 1_500_000))
    }

    @Test func `of the file that takes a part file's place counts from the moment it does`() throws {
        _ = try #require(WrittenMap(path, header(), ByteRanges(prefix: 1_500_000)))
        var next = header()
        next.identity.inode = 80
        _ = try #require(WrittenMap(path, next, ByteRanges(prefix: 2_000_000), takesPlace: false))
        let copies = [("map", try #require(readFile(path))), ("map.next", try #require(readFile(path + ".next")))]
        #expect(try WrittenMap.read(path, of: identity)?.ranges == ByteRanges(prefix: 1_500_000))
        for (name, bytes) in copies { writeFile(folder(name), bytes) }
        #expect(try WrittenMap.read(path, of: next.identity)?.ranges == ByteRanges(prefix: 2_000_000))
        #expect(listFolder(folder.path) == ["map"])
    }

    @Test func `is not written through a symbolic link`() throws {
        writeFile(folder("victim"), "precious".utf8)
        #expect(symlink("victim", path + ".next") == 0 && symlink("victim", path) == 0)
        _ = try #require(WrittenMap(path, header(), ByteRanges(prefix: 1_500_000)))
        #expect(readFile(folder("victim")) == Array("precious".utf8))
        #expect(try WrittenMap.read(path, of: identity)?.ranges == ByteRanges(prefix: 1_500_000))
    }

    @Test func `has a slot for each connection that writes`() throws {
        let map = try #require(WrittenMap(path, header(), ByteRanges([0..<300_000, 1_000_000..<1_200_000])))
        #expect(map.save(1_000_000..<1_500_000) && map.save(3_000_000..<3_100_000) && map.save(0..<400_000))
        #expect(try WrittenMap.read(path, of: identity)?.ranges == ByteRanges([0..<400_000, 1_000_000..<1_500_000, 3_000_000..<3_100_000]))
        // The first range has reached the second: the slot of the second stays as it is.
        #expect(map.save(0..<1_700_000))
        #expect(try WrittenMap.read(path, of: identity)?.ranges == ByteRanges([0..<1_700_000, 3_000_000..<3_100_000]))
        #expect(readFile(path)?.count == WrittenMap.slotsStart + 3 * WrittenMap.slotSize)
    }

    @Test func `whose slots are used up takes no more ranges`() throws {
        let full: [Range<ByteCount>] = (1...63).map { $0 * 100..<$0 * 100 + 10 }
        let map = try #require(WrittenMap(path, header(), ByteRanges(full)))
        #expect(map.save(0..<10) && !map.save(6400..<6410) && map.save(6300..<6350))
        let ranges = try #require(try WrittenMap.read(path, of: identity)?.ranges)
        #expect(ranges.ranges.count == 64 && ranges.contains(6300..<6350) && ranges.contains(0..<10) && !ranges.contains(6400..<6401))
    }

    @Test func `claims nothing more when a slot is written in part, at any byte`() throws {
        let before = ByteRanges([0..<300_000, 4_294_000_000..<4_294_967_000])
        for change in [0..<700_000, 4_294_000_000..<4_294_968_000, 9_000_000..<9_500_000] as [Range<ByteCount>] {
            let map = try #require(WrittenMap(path, header(), before))
            let old = try #require(readFile(path))
            #expect(map.save(change))
            let new = try #require(readFile(path))
            var claimed = before
            claimed.insert(change)
            for written in 0...16 {
                // The changed slot, or the appended one.
                let place = (0..<16).map { WrittenMap.slotsStart + $0 * 16 }.first {
                    old.count <= $0 || old[$0..<$0 + 16] != new[$0..<$0 + 16]
                }
                let slot = try #require(place)
                var torn = Array(old.prefix(slot)) + new[slot..<slot + written]
                if old.count > torn.count { torn += old[torn.count...] }
                writeFile(path, torn)
                let ranges = try #require(try WrittenMap.read(path, of: identity)?.ranges, "\(written) bytes of the slot of \(change)")
                #expect(ranges.intersection(claimed) == ranges, "\(written) bytes of the slot of \(change): \(ranges)")
            }
        }
    }

    @Test func `counts although one call to read it fails`() throws {
        _ = try #require(WrittenMap(path, header(), ByteRanges(prefix: 1_500_000)))
        // The disk fails at opening, or at reading: a folder opens, and cannot be read.
        let other = folder.path
        let failures: [() -> Int32] = [{ failed(EIO) }, { open(other, O_RDONLY | O_CLOEXEC) }]
        for failure in failures {
            var opened = 0
            let read = try WrittenMap.read(path, of: identity) { path in
                opened += 1
                return opened == 1 ? failure() : open(path, O_RDONLY | O_CLOEXEC)
            }
            #expect(read?.ranges == ByteRanges(prefix: 1_500_000) && listFolder(folder.path) == ["map"])
        }
    }

    @Test func `that cannot be read is removed, because it may claim what is not true any more`() throws {
        _ = try #require(WrittenMap(path, header(), ByteRanges(prefix: 1_500_000)))
        #expect(try WrittenMap.read(path, of: identity) { _ in failed(EIO) } == nil && listFolder(folder.path) == [])
    }

    @Test(arguments: [EMFILE, ENFILE, ENOMEM]) func `stays while this machine is short of something`(code: Int32) throws {
        _ = try #require(WrittenMap(path, header(), ByteRanges(prefix: 1_500_000)))
        for isNext in [false, true] {
            if isNext { rename(path, path + ".next") }
            let error = #expect(throws: DiskError.self) {
                _ = try WrittenMap.read(path, of: identity) { path in
                    path.hasSuffix(".next") == isNext ? failed(code) : open(path, O_RDONLY | O_CLOEXEC)
                }
            }
            // The transfer is tried again.
            #expect(error?.code == code && error?.failure(folder: "/d").isRetryable == true)
        }
        #expect(try WrittenMap.read(path, of: identity)?.ranges == ByteRanges(prefix: 1_500_000))
    }

    @Test func `of version 1 is taken over`() throws {
        let bytes = mapOfVersion1
        writeFile(path, bytes)
        let read = try #require(try WrittenMap.read(path, of: mapOfVersion1Identity))
        #expect(read.ranges == ByteRanges(prefix: 5_450_000))
        #expect(read.header == MapHeader(identity: mapOfVersion1Identity, total: 12_000_000, validator: .entityTag("\"v1\"")))
        // Version 1 had one slot, from 0.
        var odd = bytes
        odd[WrittenMap.slotsStart] = 1
        writeFile(path, odd)
        #expect(try WrittenMap.read(path, of: mapOfVersion1Identity) == nil)
    }

    @Test func `of a version that is not known is not believed, and removed`() throws {
        _ = try #require(WrittenMap(path, header(), ByteRanges(prefix: 1_500_000)))
        let whole = try #require(readFile(path))
        #expect(whole[6] == 2 && whole[7] == 0)
        for version in [0, 3, 255] as [UInt8] {
            var other = whole
            other[6] = version
            writeFile(path, other)
            #expect(try WrittenMap.read(path, of: identity) == nil)
            #expect(listFolder(folder.path) == [])
        }
    }
}

/// The result of a call that fails.
private func failed(_ code: Int32) -> Int32 {
    errno = code
    return -1
}

/// A written map of version 1, byte for byte as todokud of 2026-11-23 (version 0.1.0, commit 94cdd18) left it. That process was killed by
/// kill -9 while it fetched 12,000,000 bytes with the strong ETag "v1" from a slow local server. Its part file had 5,450,000 bytes. The
/// array has the header, in hexadecimal, and the slot, with zeros between them.
private let mapOfVersion1: [UInt8] = {
    let header = """
        54444b4d4150010060000000000000002d2536b097d31d7600fe000000000000f000f900000000001b00000000000000
        001bb700000000000100000000000000240000000000000064386564623535622d393031332d343332662d386437312d
        333162306634343137313935040000000000000022763122
        """
    let slot = "00000000000000001029530000000000"
    func bytes(_ text: String) -> [UInt8] {
        let digits = text.utf8.compactMap { Character(UnicodeScalar($0)).hexDigitValue }
        return stride(from: 0, to: digits.count, by: 2).map { UInt8(digits[$0] << 4 | digits[$0 + 1]) }
    }
    let head = bytes(header)
    return head + [UInt8](repeating: 0, count: 4096 - head.count) + bytes(slot)
}()

private let mapOfVersion1Identity = FileIdentity(
    device: 65024, inode: 16318704, mount: 27, boot: "d8edb55b-9013-432f-8d71-31b0f4417195")

@Suite(.timeLimit(.minutes(5))) struct `The bytes held` {
    static let file = patternBytes(3_000_000)

    /// Stops a transfer after 2,500,000 bytes. Returns the resume data of its end, and its map.
    private func held(_ fixture: EngineFixture, _ server: ScriptedServer, gate: Gate) async throws -> ResumeData {
        fixture.engine.start(try fixture.request(server.url("/file.bin")))
        await fixture.log.received(2_500_000)
        fixture.engine.stop(DownloadNumber(1))
        gate.open()
        return try #require(await fixture.log.end(of: DownloadNumber(1)).resume)
    }

    private func server(_ gate: Gate) -> ScriptedServer {
        ScriptedServer { request, reply in
            guard request.number == 0 else { return reply.serve(Self.file, for: request, entityTag: "\"v1\"") }
            reply.head(200, ["ETag": "\"v1\""], length: Self.file.count)
            reply.send(Self.file[..<2_500_000])
            gate.wait()
            reply.close()
        }
    }

    @Test func `is what the map or the record proves, whichever is more`() async throws {
        let gate = Gate()
        let server = server(gate)
        let fixture = await EngineFixture()
        let resume = try await held(fixture, server, gate: gate)
        let map = try #require(readFile(fixture.folder("map-1")))
        func start(_ data: ResumeData?, map bytes: [UInt8]?) async throws -> String? {
            if let bytes { writeFile(fixture.folder("map-1"), bytes) } else { unlink(fixture.folder("map-1")) }
            let number = server.requests.count
            // A wrong size ends the transfer before it touches a file.
            _ = try await fixture.run(server.url("/file.bin")) { ($0.resume, $0.expectedSize) = (data, 1) }
            return server.requests[number].field("Range")
        }
        var less = resume
        less.ranges = ByteRanges(prefix: 1_000_000)
        var foreign = resume
        foreign.identity.inode += 1
        var rebooted = less
        rebooted.identity.boot = "another"
        // Mounted again in this boot: only the birth time shows that it is the same disk.
        var remounted = less
        (remounted.identity.device, remounted.identity.mount) = (less.identity.device + 1, less.identity.mount + 1)
        var otherDisk = remounted
        otherDisk.identity.born = less.identity.born.map { $0 + 1 }
        var unborn = remounted
        unborn.identity.born = nil
        var lower = map  // a map that claims 1.5 MB
        lower.replaceSubrange((lower.count - 8)..., with: [0x60, 0xE3, 0x16, 0, 0, 0, 0, 0])
        #expect(try await start(nil, map: map) == "bytes=2500000-")
        #expect(try await start(less, map: map) == "bytes=2500000-")
        #expect(try await start(rebooted, map: map) == "bytes=2500000-")
        #expect(try await start(foreign, map: map) == "bytes=2500000-")
        #expect(try await start(resume, map: lower) == "bytes=2500000-")
        #expect(try await start(resume, map: nil) == "bytes=2500000-")
        #expect(try await start(less, map: nil) == "bytes=1000000-")
        #expect(try await start(rebooted, map: nil) == "bytes=1000000-")
        // A file system may record no birth times.
        #expect(try await start(remounted, map: nil) == (less.identity.born == nil ? nil : "bytes=1000000-"))
        #expect(try await start(foreign, map: nil) == nil)
        #expect(try await start(otherDisk, map: nil) == nil)
        #expect(try await start(unborn, map: nil) == nil)
        #expect(try await start(nil, map: nil) == nil)
    }

    @Test func `carries the validator of what proved it`() async throws {
        let gate = Gate()
        let server = server(gate)
        let fixture = await EngineFixture()
        var resume = try await held(fixture, server, gate: gate)
        (resume.ranges, resume.validator) = (ByteRanges(prefix: 1_000_000), .entityTag("\"other\""))
        let map = try #require(readFile(fixture.folder("map-1")))
        _ = try await fixture.run(server.url("/file.bin")) { ($0.resume, $0.expectedSize) = (resume, 1) }
        #expect(server.requests.last?.field("If-Range") == "\"v1\"")
        writeFile(fixture.folder("map-1"), map[..<100])
        _ = try await fixture.run(server.url("/file.bin")) { ($0.resume, $0.expectedSize) = (resume, 1) }
        #expect(server.requests.last?.field("If-Range") == "\"other\"")
        #expect(server.requests.last?.field("Range") == "bytes=1000000-")
    }
}
