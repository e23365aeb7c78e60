import DownloadModel
import EventLoop
import Glibc
import TestSupport
import Testing

@testable internal import PartFiles
@testable internal import TransferEngine

@Suite(.timeLimit(.minutes(5))) struct `The digest that a server states` {
    static let file = patternBytes(3_000_000)
    static let changed = patternBytes(3_000_000, seed: 9)

    private func field(_ bytes: [UInt8], _ program: String = "sha256sum") async -> String {
        (program == "sha256sum" ? "sha-256" : "sha-512") + "=:\(base64(await digest(of: bytes, by: program))):"
    }

    private func checksum(_ bytes: [UInt8]) async throws -> Checksum {
        try #require(Checksum(.sha256, digest: await digest(of: bytes)))
    }

    /// A server whose first answer breaks off after 1,200,000 bytes, with these fields.
    private func held(
        _ fixture: EngineFixture, _ fields: String, then: @escaping @Sendable (ScriptedServer.Request, Reply) -> Void
    ) async throws -> (ScriptedServer, ResumeData) {
        let server = ScriptedServer { request, reply in
            guard request.number == 0 else { return then(request, reply) }
            reply.send("HTTP/1.1 200 OK\r\n\(fields)Content-Length: \(Self.file.count)\r\n\r\n")
            reply.send(Self.file[..<1_200_000])
            reply.close()
        }
        let end = try await fixture.run(server.url("/file.bin"))
        return (server, try #require(end.resume, "\(end)"))
    }

    @Test(arguments: [
        "Repr-Digest: sha-256=:@:", "Content-Digest: sha-256=:@:", "Digest: SHA-256=@",
        "rEPR-dIGEST: md5=:AA==:\r\nREPR-DIGEST: sha-256=:@:",
    ])
    func `is kept with the bytes`(field: String) async throws {
        let text = base64(await digest(of: Self.file))
        let line = (field.split(separator: "@", omittingEmptySubsequences: false)).joined(separator: text)
        let server = ScriptedServer { _, reply in
            reply.send("HTTP/1.1 200 OK\r\nETag: \"v1\"\r\n\(line)\r\nContent-Length: \(Self.file.count)\r\n\r\n")
            reply.send(Self.file)
        }
        let fixture = await EngineFixture()
        let part = try #require(try await fixture.run(server.url("/file.bin")).complete)
        let expected = try await checksum(Self.file)
        #expect(part.resume?.digest == expected)
    }

    @Test func `of a redirect says nothing about the file`() async throws {
        let wrong = await field(Self.changed)
        let server = ScriptedServer { request, reply in
            if request.path == "/moved" {
                return reply.respond(302, ["Location": "/file.bin", "Repr-Digest": wrong, "Content-Digest": wrong])
            }
            reply.serve(Self.file, for: request, entityTag: "\"v1\"")
        }
        let fixture = await EngineFixture()
        let part = try #require(try await fixture.run(server.url("/moved")).complete)
        #expect(part.resume != nil && part.resume?.digest == nil)
    }

    /// RFC 9530 §3: the digest is of the representation in its content coding. A decoded body is another file.
    @Test(arguments: ["Repr-Digest", "Content-Digest"]) func `of a compressed body counts only if the body is stored as it comes`(
        name: String
    ) async throws {
        let gzip = Array("1f8b0800000000000203cb48cdc9c9070086a6103605000000".utf8).hexBytes
        let stated = await field(gzip)
        let server = ScriptedServer { _, reply in
            reply.send(
                "HTTP/1.1 200 OK\r\nETag: \"v1\"\r\nContent-Encoding: gzip\r\n\(name): \(stated)\r\nContent-Length: \(gzip.count)\r\n\r\n")
            reply.send(gzip)
        }
        let fixture = await EngineFixture()
        let decoded = try #require(try await fixture.run(server.url("/text")).complete)
        #expect(fixture.part == Array("hello".utf8) && decoded.resume == nil)
        let stored = try #require(try await fixture.run(server.url("/text.gz"), number: 2).complete)
        let expected = try await checksum(gzip)
        #expect(fixture.part(2) == gzip && stored.resume?.digest == expected)
    }

    @Test(arguments: ["", "Repr-Digest", "Digest", "Content-Digest"]) func `stays for a later response of the same file`(name: String)
        async throws
    {
        let (stated, ofPart) = (await field(Self.file), await field(Array(Self.file[1_200_000...])))
        let sum = base64(await digest(of: Self.file))
        let fixture = await EngineFixture()
        let (server, resume) = try await held(fixture, "ETag: \"v1\"\r\nRepr-Digest: \(stated)\r\n") { request, reply in
            // The content of a 206 is the part.
            let fields: KeyValuePairs = [
                name.isEmpty ? "X-None" : name: name == "Digest" ? "sha-256=\(sum)" : name == "Content-Digest" ? ofPart : stated
            ]
            reply.serve(Self.file, for: request, entityTag: "\"v1\"", fields: fields)
        }
        let expected = try await checksum(Self.file)
        #expect(resume.digest == expected && resume.written == 1_200_000)
        let part = try #require(try await fixture.run(server.url("/file.bin")) { $0.resume = resume }.complete)
        #expect(part.resume?.digest == resume.digest && fixture.part == Self.file)
        #expect(server.requests.map { $0.range?.first } == [nil, 1_200_000])
    }

    /// The validators agree, and the digests do not: the file has changed, or one of the servers behind the name has another.
    @Test(arguments: [true, false]) func `that differs from the held one ends the resume, and the whole is fetched`(ranges: Bool)
        async throws
    {
        let (old, new) = (await field(Self.file), await field(Self.changed))
        let fixture = await EngineFixture()
        let (server, resume) = try await held(fixture, "ETag: \"v1\"\r\nRepr-Digest: \(old)\r\n") { request, reply in
            if ranges { return reply.serve(Self.changed, for: request, entityTag: "\"v1\"", fields: ["Repr-Digest": new]) }
            reply.respond(200, ["ETag": "\"v1\"", "Repr-Digest": new], body: Self.changed)
        }
        let part = try #require(try await fixture.run(server.url("/file.bin")) { $0.resume = resume }.complete)
        let expected = try await checksum(Self.changed)
        #expect(fixture.part == Self.changed && part.resume?.digest == expected)
        #expect(server.requests.map { $0.range?.first } == (ranges ? [nil, 1_200_000, nil] : [nil, 1_200_000]))
        #expect(await fixture.log.facts().last?.discarded == true)
    }

    @Test func `is learnt from a later response of the same file`() async throws {
        let stated = await field(Self.file)
        let fixture = await EngineFixture()
        let (server, resume) = try await held(fixture, "ETag: \"v1\"\r\n") { request, reply in
            if request.number > 1 { return reply.serve(Self.file, for: request, entityTag: "\"v1\"") }
            reply.head(206, ["ETag": "\"v1\"", "Content-Range": "bytes 1200000-2999999/3000000", "Repr-Digest": stated], length: 1_800_000)
            reply.send(Self.file[1_200_000..<2_000_000])
            reply.close()
        }
        #expect(resume.digest == nil)
        let second = try #require(try await fixture.run(server.url("/file.bin")) { $0.resume = resume }.resume)
        let expected = try await checksum(Self.file)
        #expect(second.digest == expected && second.written == 2_000_000)
        // The written map of the part file has it, too.
        let part = try #require(try await fixture.run(server.url("/file.bin")).complete)
        #expect(part.resume?.digest == second.digest && server.requests.last?.range?.first == 2_000_000)
    }

    @Test func `carries a resume where the server sends no validator`() async throws {
        let stated = await field(Self.file, "sha512sum")
        let fixture = await EngineFixture()
        let (server, resume) = try await held(fixture, "Repr-Digest: \(stated)\r\n") { request, reply in
            reply.serve(Self.file, for: request, fields: ["Repr-Digest": stated])
        }
        #expect(resume.validator == nil && resume.digest?.algorithm == .sha512)
        #expect(await fixture.log.facts().first?.isResumable == true)
        #expect(try await fixture.run(server.url("/file.bin")) { $0.resume = resume }.complete?.resume?.digest == resume.digest)
        #expect(fixture.part == Self.file && server.requests.map { $0.range?.first } == [nil, 1_200_000])
        #expect(server.requests.last?.field("If-Range") == nil)
    }

    @Test func `ends such a resume if it has changed`() async throws {
        let (old, new) = (await field(Self.file), await field(Self.changed))
        let fixture = await EngineFixture()
        let (server, resume) = try await held(fixture, "Repr-Digest: \(old)\r\n") { request, reply in
            reply.serve(Self.changed, for: request, fields: ["Repr-Digest": new])
        }
        let expected = try await checksum(Self.changed)
        #expect(try await fixture.run(server.url("/file.bin")) { $0.resume = resume }.complete?.resume?.digest == expected)
        #expect(fixture.part == Self.changed && server.requests.map { $0.range?.first } == [nil, 1_200_000, nil])
    }

    @Test(arguments: [true, false]) func `lets several connections fetch the file, and a response with another digest brings nothing`(
        agrees: Bool
    ) async throws {
        let (file, changed) = (patternBytes(8_000_000), patternBytes(8_000_000, seed: 9))
        let (stated, other) = (await field(file), await field(changed))
        let asked = Gate()
        let server = ScriptedServer { request, reply in
            if request.number > 0 {
                asked.open()
                return reply.serve(agrees ? file : changed, for: request, fields: ["Repr-Digest": agrees ? stated : other])
            }
            reply.head(200, ["Repr-Digest": stated, "Accept-Ranges": "bytes"], length: file.count)
            reply.send(file[..<100_000])
            asked.wait()
            reply.send(file[100_000...])
        }
        let fixture = await EngineFixture()
        let part = try #require(try await fixture.run(server.url("/file.bin")) { $0.connections = 4 }.complete)
        let expected = try await checksum(file)
        #expect(part.resume?.digest == expected && fixture.part == file)
        #expect(server.requests.dropFirst().allSatisfy { $0.range != nil && $0.field("If-Range") == nil })
        let joined = await fixture.log.events.count { if case .joined = $0 { true } else { false } }
        #expect(agrees || joined == 0)
    }

    @Test func `is in the written map of a killed process`() async throws {
        let stated = await field(Self.file)
        let server = ScriptedServer { request, reply in
            reply.serve(Self.file, for: request, fields: request.number == 0 ? ["Repr-Digest": stated] : [:])
        }
        let fixture = await EngineFixture()
        let (path, url) = (fixture.folder.path, server.url("/file.bin"))
        await #expect(processExitsWith: .signal(SIGKILL)) { [path = path as String, url = url as String] in
            let engine = Engine(configuration: EngineConfiguration(version: "0", environment: [:])) { event in
                switch event {
                case .progress(let all) where all.contains { $0.received >= 1_000_000 }: kill(getpid(), SIGKILL)
                case .ended: kill(getpid(), SIGKILL)  // a slow machine may report nothing before the end
                default: break
                }
            }
            var request = TransferRequest(
                number: DownloadNumber(1), url: try DownloadURL(url), directory: path, partName: ".todoku-1.part")
            (request.mapPath, request.speedLimit) = ("\(path)/map-1", 5_000_000)
            request.stallTimeout = .seconds(240)  // as in `EngineFixture`
            engine.start(request)
            await withCheckedContinuation { (_: CheckedContinuation<Void, Never>) in }
        }
        let part = try #require(try await fixture.run(url).complete)
        let expected = try await checksum(Self.file)
        #expect(part.resume?.digest == expected && fixture.part == Self.file)
        #expect((server.requests.last?.range?.first ?? 0) > 0)
    }

    @Test func `of a caller's file that cannot be read does not count`() async throws {
        let stated = await field(Self.file)
        let server = ScriptedServer { request, reply in reply.serve(Self.file, for: request, fields: ["Repr-Digest": stated]) }
        let fixture = await EngineFixture()
        for (flags, isKept) in [(O_RDWR, true), (O_WRONLY, false)] {
            let held = HeldDescriptor(adopting: open(fixture.folder("mine"), flags | O_CREAT | O_CLOEXEC, 0o600))
            let part = try #require(
                try await fixture.run(server.url("/file.bin")) {
                    ($0.descriptor, $0.directory, $0.partName, $0.mapPath) = (held, "", "", nil)
                }.complete)
            #expect((part.resume?.digest != nil) == isKept && part.facts.isResumable == isKept)
        }
        #expect(readFile(fixture.folder("mine")) == Self.file)
    }
}

extension [UInt8] {
    /// The bytes of hexadecimal digits.
    fileprivate var hexBytes: [UInt8] {
        stride(from: 0, to: count, by: 2).compactMap { UInt8(String(decoding: self[$0...($0 + 1)], as: UTF8.self), radix: 16) }
    }
}
