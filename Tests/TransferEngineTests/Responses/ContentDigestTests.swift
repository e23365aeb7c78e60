import DownloadModel
import EventLoop
import Glibc
import Synchronization
import TestSupport
import Testing

@testable internal import PartFiles
@testable internal import TransferEngine

/// `Content-Digest` by sha-256, computed by the code under test, because the thread of a server cannot await a program. The tests of one
/// connection also compare with `sha256sum`.
private func contentDigest(_ bytes: ArraySlice<UInt8>) -> String {
    guard let digest = try? RunningDigest(.sha256) else { return "" }
    bytes.withUnsafeBytes { digest.add($0) }
    return "sha-256=:\(base64((try? digest.finish()) ?? [])):"
}

/// Serves a range of `file`, and states the digest of the same range of `stated`.
private func serve(_ file: [UInt8], stating stated: [UInt8], _ request: ScriptedServer.Request, _ reply: Reply) {
    let range = (request.range?.first ?? 0)..<((request.range?.last ?? file.count - 1) + 1)
    reply.serve(file, for: request, entityTag: "\"v1\"", fields: ["Content-Digest": contentDigest(stated[range])])
}

private func damaged(_ file: [UInt8], at place: Int) -> [UInt8] {
    var bytes = file
    bytes[place] ^= 0xFF
    return bytes
}

/// A server whose first response breaks off after 1,200,000 bytes. A transfer gets these bytes.
///
/// - Parameters:
///   - directory: the folder of the part file; nil: that of the fixture.
///   - held: the caller's file to write into; nil: a part file.
private func interrupted(
    _ fixture: EngineFixture, _ file: [UInt8], _ fields: String = "", in directory: String? = nil, into held: HeldDescriptor? = nil,
    then: @escaping @Sendable (ScriptedServer.Request, Reply) -> Void
) async throws -> (ScriptedServer, ResumeData) {
    let server = ScriptedServer { request, reply in
        guard request.number == 0 else { return then(request, reply) }
        reply.send("HTTP/1.1 200 OK\r\nETag: \"v1\"\r\nAccept-Ranges: bytes\r\n\(fields)Content-Length: \(file.count)\r\n\r\n")
        reply.send(file[..<1_200_000])
        reply.close()
    }
    let end = try await fixture.run(server.url("/file.bin")) {
        if let directory { $0.directory = directory }
        if let held { $0.write(into: held) }
    }
    return (server, try #require(end.resume, "\(end)"))
}

/// The first further request of a transfer, which waits until the test permits it. All other requests go out at once.
private final class HeldRequest: Sendable {
    private weak let engine: Engine?
    private let asked = Mutex<(id: RequestID, question: UInt64)?>(nil)

    /// - Parameter hasAsked: opens when the request waits.
    init(_ fixture: EngineFixture, hasAsked: Gate) async {
        engine = fixture.engine
        await fixture.log.permit { [self] id, question in
            if id.ordinal == 0 || asked.withLock({ $0 != nil }) {
                engine?.permit(id, question: question, tellsSent: false)
            } else {
                asked.withLock { $0 = (id, question) }
                hasAsked.open()
            }
        }
    }

    func permit() throws {
        let (id, question) = try #require(asked.withLock { $0 })
        engine?.permit(id, question: question, tellsSent: false)
    }
}

private func firsts(_ server: ScriptedServer) -> [Int?] { server.requests.map { $0.range?.first } }

extension TransferRequest {
    fileprivate mutating func write(into held: HeldDescriptor) { (descriptor, directory, partName, mapPath) = (held, "", "", nil) }
}

extension EventLog {
    /// Waits until the response to a further request brings a part of the file.
    fileprivate func joined() async { await wait { $0.contains { if case .joined = $0 { true } else { false } } } }

    /// Waits for the end of a further request.
    ///
    /// - Returns: its failure.
    fileprivate func over() async -> DownloadFailure? {
        await wait { $0.contains { if case .over = $0 { true } else { false } } }
        return events.compactMap { if case .over(_, let failure?) = $0 { failure } else { nil } }.first
    }
}

@Suite(.timeLimit(.minutes(5))) struct `The digest that a server states of a part` {
    static let file = patternBytes(3_000_000)
    static let wrong = damaged(file, at: 2_000_000)

    private func field(_ bytes: ArraySlice<UInt8>, _ program: String = "sha256sum") async -> String {
        (program == "sha256sum" ? "sha-256" : "sha-512") + "=:\(base64(await digest(of: Array(bytes), by: program))):"
    }

    /// Under a speed limit, the transfer may take only the first bytes of a buffer. libcurl then delivers the whole buffer again.
    @Test(arguments: [("sha256sum", nil), ("sha512sum", nil), ("sha256sum", 6_000_000)] as [(String, Speed?)])
    func `is compared, and nothing is fetched again if it is right`(program: String, limit: Speed?) async throws {
        let stated = await field(Self.file[1_200_000...], program)
        let fixture = await EngineFixture()
        let (server, resume) = try await interrupted(fixture, Self.file) { request, reply in
            reply.serve(Self.file, for: request, entityTag: "\"v1\"", fields: ["Content-Digest": stated])
        }
        let end = try await fixture.run(server.url("/file.bin")) { ($0.resume, $0.speedLimit) = (resume, limit) }
        #expect(end.complete?.size == 3_000_000 && fixture.part == Self.file)
        #expect(firsts(server) == [nil, 1_200_000])
        #expect(end.complete?.resume?.digest == nil, "a right part does not prove the file")
    }

    @Test(arguments: ["sha256sum", "sha512sum"]) func `makes wrong bytes missing again, and they are fetched once more`(
        program: String
    ) async throws {
        let stated = await field(Self.file[1_200_000...], program)
        let fixture = await EngineFixture()
        let (server, resume) = try await interrupted(fixture, Self.file) { request, reply in
            reply.serve(
                request.number == 1 ? Self.wrong : Self.file, for: request, entityTag: "\"v1\"", fields: ["Content-Digest": stated])
        }
        let end = try await fixture.run(server.url("/file.bin")) { $0.resume = resume }
        #expect(end.complete?.size == 3_000_000 && fixture.part == Self.file)
        #expect(firsts(server) == [nil, 1_200_000, 1_200_000] && server.requests[2].field("If-Range") == "\"v1\"")
        #expect(await fixture.log.facts().map(\.offset) == [0, 1_200_000], "the second response of the transfer is announced once")
    }

    /// Neither the record nor the written map claims the bytes.
    @Test func `leaves none of the wrong bytes to a later transfer`() async throws {
        let gate = Gate()
        defer { gate.open() }
        let fixture = await EngineFixture()
        let (server, resume) = try await interrupted(fixture, Self.file) { request, reply in
            if request.number == 2 { gate.wait() }
            serve(request.number == 1 ? Self.wrong : Self.file, stating: Self.file, request, reply)
        }
        let request = try fixture.request(server.url("/file.bin")) { $0.resume = resume }
        let ends = await fixture.log.ends(of: request.number)
        fixture.engine.start(request)
        #expect(await server.waitForRequests(3))
        fixture.engine.stop(request.number)
        let stopped = await fixture.log.end(of: request.number, after: ends)
        #expect(stopped.resume?.ranges == ByteRanges(prefix: 1_200_000))
        gate.open()
        // The part file has its map only.
        #expect(try await fixture.run(server.url("/file.bin")).complete?.size == 3_000_000 && fixture.part == Self.file)
        #expect(firsts(server) == [nil, 1_200_000, 1_200_000, 1_200_000])
    }

    /// The server states the digest of the whole file in each 206. It states this digest with the whole file, too, or no digest.
    @Test(arguments: [(false, false), (true, false), (true, true)])
    func `leads to one request for the whole file if it differs again`(isInWhole: Bool, isCallers: Bool) async throws {
        let stated = await field(Self.file[...])
        let fixture = await EngineFixture()
        let path = fixture.folder(isCallers ? "mine" : ".todoku-1.part")
        let held = isCallers ? HeldDescriptor(adopting: open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0o600)) : nil
        let (server, resume) = try await interrupted(fixture, Self.file, into: held) { request, reply in
            let isStated = isInWhole || request.range != nil
            reply.serve(Self.file, for: request, entityTag: "\"v1\"", fields: [isStated ? "Content-Digest" : "X-None": stated])
        }
        let end = try await fixture.run(server.url("/file.bin")) {
            $0.resume = resume
            if let held { $0.write(into: held) }
        }
        #expect(end.complete?.size == 3_000_000 && readFile(path) == Self.file, "\(end)")
        #expect(firsts(server) == [nil, 1_200_000, 1_200_000, nil] && server.requests[3].field("If-Range") == nil)
        let facts = await fixture.log.facts()
        #expect(facts.map(\.offset) == [0, 1_200_000, 0] && facts.last?.discarded == true)
        let whole = Checksum(.sha256, digest: await digest(of: Self.file))
        #expect(end.complete?.resume?.digest == (isInWhole ? whole : nil), "the whole file is compared with its own digest")
    }

    /// All bytes are wrong, and all digests are right.
    @Test func `leads to a mismatch if the whole file has another digest, too`() async throws {
        let (own, stated) = (hexadecimal(await digest(of: Self.wrong)), hexadecimal(await digest(of: Self.file)))
        let fixture = await EngineFixture()
        let (server, resume) = try await interrupted(fixture, Self.file) { request, reply in
            serve(Self.wrong, stating: Self.file, request, reply)
        }
        let part = try #require(try await fixture.run(server.url("/file.bin")) { $0.resume = resume }.complete)
        #expect(part.facts.offset == 0 && firsts(server) == [nil, 1_200_000, 1_200_000, nil])
        let verification = Commit.verify(
            directory: fixture.folder.path, partName: ".todoku-1.part", identity: part.identity, size: part.size, checksum: nil,
            digest: part.resume?.digest, expectedSize: nil)
        guard case .failed(let failure) = verification else {
            Issue.record("\(verification)")
            return
        }
        #expect(failure.name == .checksumMismatch)
        #expect(failure.message.contains("has sha256:\(own), and the server stated sha256:\(stated)"), "\(failure.message)")
    }

    @Test func `leads to no further request if a part comes instead of the whole file`() async throws {
        let fixture = await EngineFixture()
        let (server, resume) = try await interrupted(fixture, Self.file) { _, reply in
            reply.head(
                206,
                [
                    "ETag": "\"v1\"", "Content-Range": "bytes 1200000-2999999/3000000",
                    "Content-Digest": contentDigest(Self.file[1_200_000...]),
                ], length: 1_800_000)
            reply.send(Self.wrong[1_200_000...])
        }
        let end = try await fixture.run(server.url("/file.bin")) { $0.resume = resume }
        #expect(end.failure?.name == .httpStatus && end.failure?.httpStatus == 206 && end.failure?.isRetryable == false, "\(end)")
        #expect(firsts(server) == [nil, 1_200_000, 1_200_000, nil])
        #expect(end.resume?.ranges == ByteRanges(prefix: 1_200_000), "the bytes that came before stay")
    }

    /// The last bytes come alone, and need a further page of the disk.
    @Test(.enabled("only root can mount a small disk") { await SmallDisk.isPossible() })
    func `makes wrong bytes missing again, too, if the disk has no room for the last of them`() async throws {
        let pages = 732 * 4096
        let file = patternBytes(pages + 100)
        let gate = Gate()
        defer { gate.open() }
        let fixture = await EngineFixture()
        try await SmallDisk.withDisk(bytes: 32 << 20) { disk in
            let (server, resume) = try await interrupted(fixture, file, in: disk.path) { _, reply in
                reply.head(
                    206,
                    [
                        "ETag": "\"v1\"", "Content-Range": "bytes 1200000-\(file.count - 1)/\(file.count)",
                        "Content-Digest": contentDigest(file[1_200_000...]),
                    ], length: file.count - 1_200_000)
                reply.send(damaged(file, at: 2_000_000)[1_200_000..<pages])
                gate.wait()
                reply.send(file[pages...])
            }
            let request = try fixture.request(server.url("/file.bin")) { ($0.directory, $0.resume) = (disk.path, resume) }
            let ends = await fixture.log.ends(of: request.number)
            fixture.engine.start(request)
            await fixture.log.received(ByteCount(pages))
            disk.fill(leaving: 0)
            gate.open()
            let end = await fixture.log.end(of: request.number, after: ends)
            #expect(end.failure?.name == .diskFull && end.failure?.wait == .diskSpace, "\(end)")
            #expect(end.resume?.ranges == ByteRanges(prefix: 1_200_000))
            #expect(firsts(server) == [nil, 1_200_000])
        }
    }

    @Test func `yields to a checksum, which decides about bytes that came twice`() async throws {
        let fixture = await EngineFixture()
        let (server, resume) = try await interrupted(fixture, Self.file) { request, reply in
            serve(Self.file, stating: Self.wrong, request, reply)
        }
        let end = try await fixture.run(server.url("/file.bin")) { ($0.resume, $0.hasChecksum) = (resume, true) }
        #expect(end.complete?.size == 3_000_000 && fixture.part == Self.file)
        #expect(firsts(server) == [nil, 1_200_000, 1_200_000])
    }

    @Test func `yields to the digests of pieces`() async throws {
        let hashes = await pieceHashes(of: Self.file, length: 262_144)
        let fixture = await EngineFixture()
        let (server, resume) = try await interrupted(fixture, Self.file) { request, reply in
            serve(Self.file, stating: Self.wrong, request, reply)
        }
        let end = try await fixture.run(server.url("/file.bin")) {
            ($0.resume, $0.pieces, $0.expectedSize, $0.hasChecksum) = (resume, try? PieceHashes(hashes), 3_000_000, true)
        }
        #expect(end.complete?.size == 3_000_000 && fixture.part == Self.file)
        #expect(firsts(server) == [nil, 1_200_000])
    }

    /// As a fixed field of a static file. Empty: only the second response has fields. `checksum`: only the option tells the digest.
    @Test(arguments: ["Content-Digest", "Repr-Digest", "", "checksum"])
    func `is ignored if it is that of the whole file`(name: String) async throws {
        let whole = await field(Self.file[...])
        let checksum = name == "checksum" ? Checksum(.sha256, digest: await digest(of: Self.file)) : nil
        let fixture = await EngineFixture()
        let first = ["", "checksum"].contains(name) ? "" : "\(name): \(whole)\r\n"
        let (server, resume) = try await interrupted(fixture, Self.file, first) { request, reply in
            reply.serve(
                Self.file, for: request, entityTag: "\"v1\"",
                fields: ["Content-Digest": whole, name.isEmpty ? "Repr-Digest" : "X-None": whole])
        }
        let end = try await fixture.run(server.url("/file.bin")) {
            ($0.resume, $0.checksum, $0.hasChecksum) = (resume, checksum, checksum != nil)
        }
        #expect(end.complete?.size == 3_000_000 && fixture.part == Self.file)
        #expect(firsts(server) == [nil, 1_200_000])
    }

    @Test(arguments: [
        "md5=:AAAAAAAAAAAAAAAAAAAAAA==:", "sha=:@:", "sha-257=:@:", "SHA-256=:@:", "sha-256=@", "sha-256=\"@\"", "sha-256=:AAAA:",
        "sha-256=:@:,", "x=\"~\", sha-256=:@:",
    ]) func `is ignored if its algorithm is weak or unknown, or if the field is malformed or long`(form: String) async throws {
        let sum = base64(await digest(of: Array(Self.wrong[1_200_000...])))
        let parts = form.split(separator: "@", omittingEmptySubsequences: false).joined(separator: sum)
        let stated = parts.split(separator: "~", omittingEmptySubsequences: false).joined(separator: String(repeating: "a", count: 4096))
        let fixture = await EngineFixture()
        let (server, resume) = try await interrupted(fixture, Self.file) { request, reply in
            reply.serve(Self.file, for: request, entityTag: "\"v1\"", fields: ["Content-Digest": stated])
        }
        let end = try await fixture.run(server.url("/file.bin")) { $0.resume = resume }
        #expect(end.complete?.size == 3_000_000 && fixture.part == Self.file)
        #expect(firsts(server) == [nil, 1_200_000])
    }

    /// The connection is lost, or a chunked body ends before the end of its range.
    @Test(arguments: [true, false]) func `of a response that is cut is not compared`(isLost: Bool) async throws {
        let fixture = await EngineFixture()
        let (server, resume) = try await interrupted(fixture, Self.file) { request, reply in
            guard request.number == 1 else { return serve(Self.file, stating: Self.file, request, reply) }
            reply.head(
                206,
                [
                    "ETag": "\"v1\"", "Content-Range": "bytes 1200000-2999999/3000000",
                    "Content-Digest": contentDigest(Self.wrong[1_200_000...]), "Transfer-Encoding": "chunked",
                ])
            reply.chunk(Self.file[1_200_000..<2_000_000])
            if isLost { reply.close() } else { reply.chunk([]) }
        }
        let cut = try await fixture.run(server.url("/file.bin")) { $0.resume = resume }
        #expect(cut.failure?.isRetryable == true && cut.resume?.written == 2_000_000, "\(cut)")
        let end = try await fixture.run(server.url("/file.bin")) { $0.resume = cut.resume }
        #expect(end.complete?.size == 3_000_000 && fixture.part == Self.file)
        #expect(firsts(server) == [nil, 1_200_000, 2_000_000])
    }

    @Test func `is compared over HTTP 2`() async throws {
        let server = await FrameServer { request, stream in
            let answer = GoodAnswer(request.range != nil && request.number == 0 ? Self.wrong : Self.file, to: request)
            let fields = answer.fields + [("content-digest", contentDigest(Self.file[(request.range?.first ?? 0)...]))]
            stream.send(.head(answer.status, fields, length: answer.body.count), .data(answer.body, ends: true))
        }
        let fixture = await EngineFixture(certificateFile: server.authority)
        let (_, resume) = try await interrupted(fixture, Self.file) { _, reply in reply.respond(404) }
        let end = try await fixture.run(server.url("/file.bin")) { $0.resume = resume }
        #expect(end.complete?.size == 3_000_000 && fixture.part == Self.file, "\(end)")
        #expect(server.streams.map { $0.range?.first } == [1_200_000, 1_200_000] && server.requests.isEmpty)
    }
}

@Suite(.timeLimit(.minutes(5))) struct `The digest that a server states of a part, with several connections` {
    static let file = patternBytes(8_000_000)

    /// All others wait until the bytes of the first further response have been requested again.
    @Test func `makes the bytes of one connection missing again`() async throws {
        let again = Gate()
        let bad = Mutex<Int?>(nil)
        defer { again.open() }
        let server = ScriptedServer { request, reply in
            let first = request.range?.first ?? 0
            switch request.number {
            case 0:
                reply.head(200, ["ETag": "\"v1\"", "Accept-Ranges": "bytes"], length: Self.file.count)
                reply.send(Self.file[..<100_000])
                again.wait()
                reply.send(Self.file[100_000...])
            case 1:
                bad.withLock { $0 = first }
                serve(damaged(Self.file, at: first + 500_000), stating: Self.file, request, reply)
            default:
                if bad.withLock({ $0 }) == first { again.open() } else { again.wait() }
                serve(Self.file, stating: Self.file, request, reply)
            }
        }
        let fixture = await EngineFixture()
        let end = try await fixture.run(server.url("/file.bin")) { $0.connections = 4 }
        #expect(end.complete?.size == 8_000_000 && fixture.part == Self.file)
        let wrong = bad.withLock { $0 }
        #expect(wrong != nil && firsts(server).count { $0 == wrong } == 2, "\(firsts(server))")
    }

    /// The first response could go on.
    @Test func `ends all connections but one, which fetches the whole file, if the bytes of one are wrong again`() async throws {
        let gate = Gate()
        defer { gate.open() }
        let server = ScriptedServer { request, reply in
            guard request.number == 0 else {
                guard let first = request.range?.first else { return serve(Self.file, stating: Self.file, request, reply) }
                return serve(damaged(Self.file, at: first), stating: Self.file, request, reply)
            }
            reply.head(200, ["ETag": "\"v1\"", "Accept-Ranges": "bytes"], length: Self.file.count)
            reply.send(Self.file[..<100_000])
            gate.wait()
            reply.send(Self.file[100_000...])
        }
        let fixture = await EngineFixture()
        let end = try await fixture.run(server.url("/file.bin")) { $0.connections = 4 }
        #expect(end.complete?.size == 8_000_000 && fixture.part == Self.file, "\(end)")
        #expect(firsts(server).count { $0 == nil } == 2, "\(firsts(server))")
        #expect(await fixture.log.facts().last?.offset == 0)
        let events = await fixture.log.events
        let whole = try #require(events.lastIndex { if case .began = $0 { true } else { false } })
        #expect(!events[whole...].contains { if case .joined = $0 { true } else { false } }, "no connection joins the last one")
    }

    @Test func `of a response whose rest another connection brings is not compared`() async throws {
        let gate = Gate()
        defer { gate.open() }
        let fixture = await EngineFixture()
        let (server, resume) = try await interrupted(fixture, Self.file) { request, reply in
            guard request.number == 1 else { return serve(Self.file, stating: Self.file, request, reply) }
            reply.head(
                206,
                [
                    "ETag": "\"v1\"", "Content-Range": "bytes 1200000-7999999/8000000",
                    "Content-Digest": contentDigest(damaged(Self.file, at: 7_999_999)[1_200_000...]),
                ], length: 6_800_000)
            reply.send(Self.file[1_200_000..<1_300_000])
            gate.wait()
            reply.send(Self.file[1_300_000...])
        }
        let request = try fixture.request(server.url("/file.bin")) { ($0.resume, $0.connections) = (resume, 2) }
        let ends = await fixture.log.ends(of: request.number)
        fixture.engine.start(request)
        await fixture.log.joined()
        gate.open()
        let end = await fixture.log.end(of: request.number, after: ends)
        #expect(end.complete?.size == 8_000_000 && fixture.part == Self.file)
        #expect(firsts(server).count { $0 == 1_200_000 } == 1, "\(firsts(server))")
    }

    /// If the second response were cut, its bytes would not be compared. The other connection gets its permit while that response arrives.
    @Test func `keeps the response that brings wrong bytes again from being cut`() async throws {
        let (asked, isReady, gate) = (Gate(), Gate(), Gate())
        defer { for gate in [asked, isReady, gate] { gate.open() } }
        let fixture = await EngineFixture()
        let (server, resume) = try await interrupted(fixture, Self.file) { request, reply in
            guard request.number < 3 else { return serve(Self.file, stating: Self.file, request, reply) }
            let wrong = damaged(Self.file, at: 7_000_000)
            reply.head(
                206,
                [
                    "ETag": "\"v1\"", "Content-Range": "bytes 1200000-7999999/8000000",
                    "Content-Digest": contentDigest(Self.file[1_200_000...]),
                ], length: 6_800_000)
            if request.number == 2 { isReady.wait() }
            reply.send(Self.file[1_200_000..<1_300_000])
            if request.number == 1 {
                asked.wait()
                reply.send(wrong[1_300_000...])
            } else {
                gate.wait()
                reply.send(Self.file[1_300_000...])
            }
        }
        let further = await HeldRequest(fixture, hasAsked: asked)
        let request = try fixture.request(server.url("/file.bin")) { ($0.resume, $0.connections) = (resume, 2) }
        let ends = await fixture.log.ends(of: request.number)
        fixture.engine.start(request)
        #expect(await server.waitForRequests(3))
        let seen = await fixture.log.events.count
        isReady.open()
        await fixture.log.wait { events in
            events[seen...].contains { if case .progress(let all) = $0 { all.contains { $0.received >= 1_300_000 } } else { false } }
        }
        try further.permit()
        await fixture.log.wait {
            $0.contains {
                switch $0 {
                case .over, .joined: true
                default: false
                }
            }
        }
        gate.open()
        let end = await fixture.log.end(of: request.number, after: ends)
        #expect(end.complete?.size == 8_000_000 && fixture.part == Self.file)
        #expect(firsts(server) == [nil, 1_200_000, 1_200_000])
    }

    /// Why a response ends before its last byte.
    enum Cut: CaseIterable {
        /// The host needs its place.
        case withdrawn
        /// It sends nothing more, so another connection takes the rest.
        case silent
        /// The download is paused.
        case stopped
    }

    /// Another connection waits for its permit from the first response on. The second response repeats a wrong byte, and is cut behind it.
    @Test(arguments: Cut.allCases) func `leaves no bytes of a response that repeats a wrong part, and is cut`(cut: Cut) async throws {
        let (asked, gate) = (Gate(), Gate())
        defer { for gate in [asked, gate] { gate.open() } }
        let wrong = damaged(Self.file, at: 1_250_000)
        let fixture = await EngineFixture()
        let (server, resume) = try await interrupted(fixture, Self.file) { request, reply in
            guard request.number < 3 else { return serve(Self.file, stating: Self.file, request, reply) }
            reply.head(
                206,
                [
                    "ETag": "\"v1\"", "Content-Range": "bytes 1200000-7999999/8000000",
                    "Content-Digest": contentDigest(Self.file[1_200_000...]),
                ], length: 6_800_000)
            reply.send(wrong[1_200_000..<1_300_000])
            if request.number == 2 { return gate.wait() }
            asked.wait()
            reply.send(wrong[1_300_000...])
        }
        let further = await HeldRequest(fixture, hasAsked: asked)
        let request = try fixture.request(server.url("/file.bin")) {
            ($0.resume, $0.connections) = (resume, 2)
            if cut == .silent { $0.takeOverAfter = Transfer.takeOverAfter }
        }
        let ends = await fixture.log.ends(of: request.number)
        fixture.engine.start(request)
        #expect(await server.waitForRequests(3))
        let seen = await fixture.log.events.count
        await fixture.log.wait { events in
            events[seen...].contains { if case .progress(let all) = $0 { all.contains { $0.received >= 1_300_000 } } else { false } }
        }
        if cut == .withdrawn { fixture.engine.withdraw(RequestID(request.number, 0)) }
        if cut == .stopped { fixture.engine.stop(request.number) } else { try further.permit() }
        let end = await fixture.log.end(of: request.number, after: ends)
        gate.open()
        guard cut != .stopped else {
            #expect(end.resume?.ranges == ByteRanges(prefix: 1_200_000), "\(end)")
            return
        }
        #expect(end.complete?.size == 8_000_000 && fixture.part == Self.file, "\(end)")
        // On a busy machine, the third response may count as silent, too.
        let count = firsts(server).count { $0 == 1_200_000 }
        #expect(cut == .silent ? count >= 3 : count == 3, "\(firsts(server))")
    }
}

@Suite(.timeLimit(.minutes(5))) struct `The digest that a mirror states of a part` {
    static let file = patternBytes(8_000_000)

    /// The response of the first source goes on once the mirror is given up.
    @Test func `leads to the loss of a source with wrong bytes, beside other connections`() async throws {
        let gate = Gate()
        defer { gate.open() }
        let main = ScriptedServer { request, reply in
            guard request.number == 0 else { return serve(Self.file, stating: Self.file, request, reply) }
            reply.head(200, ["ETag": "\"v1\"", "Accept-Ranges": "bytes"], length: Self.file.count)
            reply.send(Self.file[..<100_000])
            gate.wait()
            reply.send(Self.file[100_000...])
        }
        let mirror = ScriptedServer { request, reply in
            serve(damaged(Self.file, at: (request.range?.first ?? 0) + 10_000), stating: Self.file, request, reply)
        }
        let fixture = await EngineFixture()
        let request = try fixture.request(main.url("/file.bin")) {
            $0.use([mirror.url("/copy.bin")], mixes: true)
            $0.connections = 2
        }
        fixture.engine.start(request)
        let failure = await fixture.log.over()
        #expect(failure?.name == .checksumMismatch && failure?.message.contains(", or states a wrong digest: the bytes ") == true)
        gate.open()
        let end = await fixture.log.end(of: request.number)
        #expect(end.complete?.size == 8_000_000 && fixture.part == Self.file)
        #expect(mirror.requests.count == 1)
        #expect(await fixture.log.sources.map(\.left) == [nil, .wrongDigest])
    }

    /// With a checksum, the next source brings the wrong bytes. Without one, the same source is asked once more, and the next source then
    /// brings the whole file.
    @Test(arguments: [true, false]) func `leads to another source`(mixes: Bool) async throws {
        let file = Self.file
        let wrong = damaged(file, at: 2_000_000)
        let main = ScriptedServer { request, reply in
            guard request.number == 0 else { return serve(mixes ? file : wrong, stating: file, request, reply) }
            reply.head(200, ["ETag": "\"v1\"", "Accept-Ranges": "bytes"], length: file.count)
            reply.send(file[..<1_200_000])
            reply.close()
        }
        let mirror = ScriptedServer { request, reply in serve(mixes ? wrong : file, stating: file, request, reply) }
        let fixture = await EngineFixture()
        let end = try await fixture.run(main.url("/file.bin")) { $0.use([mirror.url("/copy.bin")], mixes: mixes) }
        #expect(end.complete?.size == 8_000_000 && fixture.part == file, "\(end)")
        #expect(firsts(main) == (mixes ? [nil, 1_200_000] : [nil, 1_200_000, 1_200_000]))
        #expect(firsts(mirror) == (mixes ? [1_200_000] : [nil]))
        #expect(await fixture.log.sources.map(\.left) == (mixes ? [nil, .wrongDigest] : [.wrongDigest, nil]))
    }

    /// Without a checksum, the source whose parts were wrong is the last resort.
    @Test func `leads to the whole file of the same source if all others fail`() async throws {
        let file = Self.file
        let wrong = damaged(file, at: 2_000_000)
        let main = ScriptedServer { request, reply in
            guard request.number == 0 else { return serve(request.range == nil ? file : wrong, stating: file, request, reply) }
            reply.head(200, ["ETag": "\"v1\"", "Accept-Ranges": "bytes"], length: file.count)
            reply.send(file[..<1_200_000])
            reply.close()
        }
        let mirror = ScriptedServer { _, reply in reply.respond(404) }
        let fixture = await EngineFixture()
        let end = try await fixture.run(main.url("/file.bin")) { $0.use([mirror.url("/copy.bin")]) }
        #expect(end.complete?.size == 8_000_000 && fixture.part == file, "\(end)")
        #expect(firsts(main) == [nil, 1_200_000, 1_200_000, nil] && firsts(mirror) == [nil])
        #expect(await fixture.log.sources.map(\.left) == [.wrongDigest, .httpStatus])
    }

    /// As a last resort, a mirror is asked for the whole file, and the checksum decides.
    @Test func `does not fail a transfer with a checksum if all mirrors state wrong digests`() async throws {
        let file = Self.file
        let wrong = damaged(file, at: 2_000_000)
        let main = ScriptedServer { request, reply in
            guard request.number == 0 else { return reply.respond(404) }
            reply.head(200, ["ETag": "\"v1\"", "Accept-Ranges": "bytes"], length: file.count)
            reply.send(file[..<1_200_000])
            reply.close()
        }
        let mirrors = (0..<2).map { _ in ScriptedServer { request, reply in serve(file, stating: wrong, request, reply) } }
        let fixture = await EngineFixture()
        let end = try await fixture.run(main.url("/file.bin")) { $0.use(mirrors.map { $0.url("/copy.bin") }, mixes: true) }
        #expect(end.complete?.size == 8_000_000 && fixture.part == file, "\(end)")
        #expect(firsts(main) == [nil, 1_200_000] && mirrors.map(firsts) == [[1_200_000, nil], [1_200_000]])
        #expect(await fixture.log.sources.map(\.left) == [.httpStatus, .wrongDigest, .wrongDigest])
    }

    @Test func `leads to the same source once more if no other is left`() async throws {
        let file = Self.file
        let wrong = damaged(file, at: 2_000_000)
        let main = ScriptedServer { _, reply in reply.respond(404) }
        let mirror = ScriptedServer { request, reply in
            guard request.number == 0 else { return serve(file, stating: wrong, request, reply) }
            reply.head(200, ["ETag": "\"v1\"", "Accept-Ranges": "bytes"], length: file.count)
            reply.send(file[..<1_200_000])
            reply.close()
        }
        let fixture = await EngineFixture()
        let end = try await fixture.run(main.url("/file.bin")) { $0.use([mirror.url("/copy.bin")], mixes: true) }
        #expect(end.complete?.size == 8_000_000 && fixture.part == file, "\(end)")
        #expect(firsts(mirror) == [nil, 1_200_000, 1_200_000])
        #expect(await fixture.log.sources.map(\.left) == [.httpStatus, nil])
    }
}

@Suite struct `A source with wrong parts` {
    @Test func `is known by their bytes, and is not believed after 64 of them`() throws {
        let source = Source(TransferSource(try DownloadURL("http://127.0.0.1/")))
        #expect(!source.hasSentWrong(0..<(.max)))
        for part in 0..<63 as Range<ByteCount> { source.wrongRanges.append(20 * part..<20 * part + 10) }
        #expect(source.hasSentWrong(5..<6) && source.hasSentWrong(0..<25) && source.hasSentWrong(1249..<1250))
        #expect(!source.hasSentWrong(10..<20) && !source.hasSentWrong(1250..<(.max)))
        source.wrongRanges.append(5000..<5001)
        #expect(source.hasSentWrong(10..<20))
    }
}
