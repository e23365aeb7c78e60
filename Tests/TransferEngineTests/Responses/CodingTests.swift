import DownloadModel
import EventLoop
import Glibc
import TestSupport
import Testing
import TransferEngine

/// A sentence forty times, in each coding; made by zlib, brotli and zstd themselves.
private enum Coded {
    static let plain = Array(String(repeating: "The quick brown fox jumps over the lazy dog. ", count: 40).utf8)
    static let gzip = bytes(
        "1f8b08000000000002030bc94855282ccd4cce56482aca2fcf5348cbaf50c82acd2d2856c82f4b2d5228014ae72456552aa4e4a7eb29848c2a1e553caa7854f1a8e2"
            + "51c5c34b3100e6c3956408070000")
    static let zlib = bytes(
        "78da0bc94855282ccd4cce56482aca2fcf5348cbaf50c82acd2d2856c82f4b2d5228014ae72456552aa4e4a7eb29848c2a1e553caa7854f1a8e251c5c34b3100880a"
            + "8637")
    static let raw = bytes(
        "0bc94855282ccd4cce56482aca2fcf5348cbaf50c82acd2d2856c82f4b2d5228014ae72456552aa4e4a7eb29848c2a1e553caa7854f1a8e251c5c34b3100")
    static let brotli = bytes("1b07070044db46a92e245b3214c553916772f2e72850199857b6b259d06ce195a723f2a2ac3626b8451f18a7d2eafe43603200")
    static let zstd = bytes(
        "28b52ffd600806b50100d40254686520717569636b2062726f776e20666f78206a756d7073206f76657220746865206c617a7920646f672e200100c516feaa0c")

    static let all: [(name: String, body: [UInt8])] = [
        ("gzip", gzip), ("X-GZip", gzip), ("deflate", zlib), ("deflate", raw), ("br", brotli), ("zstd", zstd), ("identity, gzip", gzip),
    ]

    private static func bytes(_ text: String) -> [UInt8] {
        var (rest, bytes): (Substring, [UInt8]) = (text[...], [])
        while !rest.isEmpty {
            bytes.append(UInt8(rest.prefix(2), radix: 16)!)
            rest = rest.dropFirst(2)
        }
        return bytes
    }
}

@Suite(.timeLimit(.minutes(5))) struct `A body in a content coding` {
    private func run(
        _ path: String, coding: String, type: String? = nil, body: [UInt8], chunked: Bool = false,
        change: (inout TransferRequest) -> Void = { _ in }
    ) async throws -> (end: TransferEnd, part: [UInt8]?) {
        let server = ScriptedServer { _, reply in
            let typeField = type.map { "Content-Type: \($0)\r\n" } ?? ""
            let frame = chunked ? "Transfer-Encoding: chunked" : "Content-Length: \(body.count)"
            reply.send("HTTP/1.1 200 OK\r\nETag: \"v1\"\r\nContent-Encoding: \(coding)\r\n\(typeField)\(frame)\r\n\r\n")
            guard chunked else {
                reply.send(body)
                return
            }
            // A byte at a time: a stream may be cut anywhere.
            for byte in body { reply.chunk([byte]) }
            reply.chunk([])
        }
        let fixture = await EngineFixture()
        return (try await fixture.run(server.url(path), change), fixture.part)
    }

    @Test(arguments: Coded.all.indices, [false, true]) func `is unpacked, in pieces of any size`(index: Int, chunked: Bool) async throws {
        let (end, part) = try await run("/x", coding: Coded.all[index].name, body: Coded.all[index].body, chunked: chunked)
        #expect(end.complete?.size == ByteCount(Coded.plain.count), "\(end)")
        #expect(part == Coded.plain && end.complete?.facts.isResumable == false && end.complete?.facts.total == 1800)
    }

    @Test(arguments: Coded.all.indices) func `that ends early inside correct framing is no file`(index: Int) async throws {
        let (name, body) = Coded.all[index]
        for count in [0, 1, body.count / 2, body.count - 1] {
            let (end, _) = try await run("/x", coding: name, body: Array(body[..<count]), chunked: true)
            #expect(end.failure?.name == .truncated && end.failure?.isRetryable == true, "\(name) of \(count): \(end)")
            #expect(end.failure?.message == "127.0.0.1 sent a compressed body that ends before the file does.")
        }
    }

    @Test(arguments: Coded.all.indices) func `with something behind its stream is no file`(index: Int) async throws {
        let (name, body) = Coded.all[index]
        for surplus in ["garbage", "<html>"] {
            let (end, _) = try await run("/x", coding: name, body: body + Array(surplus.utf8))
            #expect(end.failure?.name == .network && end.failure?.isRetryable == false, "\(name): \(end)")
            #expect(end.failure?.message == "127.0.0.1 sent a compressed body that is followed by something else.")
        }
    }

    @Test(arguments: ["gzip", "br", "zstd"]) func `that does not match its coding fails for good`(coding: String) async throws {
        let (end, _) = try await run("/x", coding: coding, body: Array("\u{1}no such thing, and long enough to tell".utf8))
        #expect(end.failure?.name == .network && end.failure?.isRetryable == false, "\(end)")
    }

    /// The last eight bytes of a stream of gzip are its checksum and its length (RFC 1952 §2.3.1).
    @Test(arguments: 1...8, [false, true])
    func `of gzip whose checksum or length is wrong fails for good`(back: Int, chunked: Bool) async throws {
        var wrong = Coded.gzip
        wrong[wrong.count - back] ^= 0x10
        for body in [wrong, Coded.gzip + wrong, wrong + Coded.gzip] {
            let (end, _) = try await run("/x", coding: "gzip", body: body, chunked: chunked)
            #expect(end.failure?.name == .network && end.failure?.isRetryable == false, "\(end)")
        }
    }

    @Test func `may have several streams in a row where the coding says so`() async throws {
        for (coding, body) in [("gzip", Coded.gzip), ("zstd", Coded.zstd)] {
            let (end, part) = try await run("/x", coding: coding, body: body + body)
            #expect(end.complete != nil && part == Coded.plain + Coded.plain, "\(coding): \(end)")
        }
    }

    @Test func `that is empty and says so is an empty file`() async throws {
        let (end, _) = try await run("/x", coding: "gzip", body: [])
        #expect(end.complete?.size == 0)
    }

    @Test(
        arguments: [
            ("/a.tar.gz", "gzip", nil), ("/a.tgz", "x-gzip", nil), ("/a.SVGZ", "gzip", "image/svg+xml"),
            ("/get", "gzip", "application/gzip"),
            ("/get", "gzip", "application/x-gzip"), ("/a.tar.zst", "zstd", nil), ("/a.js.br", "br", nil), ("/get", "aws-chunked", nil),
            ("/get", "compress", nil), ("/get", "nonsense, gzip", nil),
        ] as [(String, String, String?)])
    func `that is an archive of this coding, or in an unknown one, is stored as it came`(path: String, coding: String, type: String?)
        async throws
    {
        let (end, part) = try await run(path, coding: coding, type: type, body: Coded.gzip)
        #expect(end.complete?.size == ByteCount(Coded.gzip.count), "\(end)")
        #expect(part == Coded.gzip && end.complete?.facts.isResumable == true)
    }

    @Test func `is unpacked if only the folder of a page is called like an archive`() async throws {
        let (end, part) = try await run("/a.tar.gz/", coding: "gzip", type: "text/html", body: Coded.gzip)
        #expect(end.complete?.facts.fileName == "127.0.0.1-a.tar.gz.html", "\(end)")
        #expect(part == Coded.plain)
    }

    @Test(arguments: ["", "Content-Disposition: attachment; filename=x.bin\r\n"])
    func `that replaces an archive of this coding is stored as it came, whatever name the server gives`(field: String) async throws {
        let server = ScriptedServer { request, reply in
            if request.path == "/a.tar.gz" { return reply.respond(302, ["Location": "/blob"]) }
            reply.send("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\(field)Content-Length: \(Coded.gzip.count)\r\n\r\n")
            reply.send(Coded.gzip)
        }
        let fixture = await EngineFixture()
        let end = try await fixture.run(server.url("/a.tar.gz")) { $0.ifExists = .replace }
        #expect(end.complete?.size == ByteCount(Coded.gzip.count), "\(end)")
        #expect(fixture.part == Coded.gzip)
    }

    @Test func `whose archive was cut resumes from there`() async throws {
        let file = patternBytes(300_000)
        let server = ScriptedServer { request, reply in
            let first = request.range?.first ?? 0
            let range = first == 0 ? "" : "Content-Range: bytes \(first)-299999/300000\r\n"
            reply.send(
                "HTTP/1.1 \(first == 0 ? 200 : 206) OK\r\nETag: \"v1\"\r\nContent-Encoding: gzip\r\n\(range)"
                    + "Content-Length: \(300_000 - first)\r\n\r\n")
            reply.send(file[first..<(first == 0 ? 100_000 : 300_000)])
            reply.close()
        }
        let fixture = await EngineFixture()
        let cut = try await fixture.run(server.url("/a.tar.gz"))
        #expect(cut.resume?.written == 100_000)
        let end = try await fixture.run(server.url("/a.tar.gz")) { $0.resume = cut.resume }
        #expect(end.complete?.size == 300_000 && fixture.part == file)
        #expect(server.requests.map { $0.field("Range") } == [nil, "bytes=100000-"])
    }

    /// A response with the rest may omit fields of an earlier one (RFC 9110 §15.3.7).
    @Test(arguments: ["Content-Disposition: attachment; filename=a.tgz", "Content-Type: application/gzip"])
    func `whose archive an earlier response has named as one resumes from there`(field: String) async throws {
        let file = patternBytes(300_000)
        let server = ScriptedServer { request, reply in
            let first = request.range?.first ?? 0
            let range = first == 0 ? "" : "Content-Range: bytes \(first)-\(first + 99_999)/300000\r\n"
            reply.send(
                "HTTP/1.1 \(first == 0 ? 200 : 206) OK\r\nETag: \"v1\"\r\nContent-Encoding: gzip\r\n\(range)"
                    + (request.number < 2 ? "\(field)\r\n" : "") + "Content-Length: \(first == 0 ? 300_000 : 100_000)\r\n\r\n")
            reply.send(file[first..<(first + 100_000)])
            if first == 0 { reply.close() }
        }
        let fixture = await EngineFixture()
        let cut = try await fixture.run(server.url("/get"))
        #expect(cut.resume?.written == 100_000)
        let end = try await fixture.run(server.url("/get")) { $0.resume = cut.resume }
        #expect(end.complete?.size == 300_000 && fixture.part == file, "\(end)")
        #expect(server.requests.map { $0.range?.first } == [nil, 100_000, 200_000])
    }

    @Test func `twice over is refused, and unpacks to nothing`() async throws {
        let (end, part) = try await run("/x", coding: "gzip, gzip", body: Coded.gzip)
        #expect(end.failure?.name == .network && end.failure?.isRetryable == false && part == nil)
        #expect(end.failure?.message.contains("more than once") == true)
    }

    @Test func `is bounded by its ratio, unless the caller gave a bound`() async throws {
        let folder = TemporaryFolder()
        writeFile(folder("zeros"), [UInt8](repeating: 0, count: 80 << 20))
        #expect(await Child.run(["gzip", folder("zeros")]).status == 0)
        let coded = try #require(readFile(folder("zeros.gz")))
        let bomb = try await run("/x", coding: "gzip", body: coded).end
        #expect(bomb.failure?.name == .tooLarge && bomb.failure?.isRetryable == false, "\(bomb)")
        let allowed = try await run("/x", coding: "gzip", body: coded) { $0.maxSize = 80 << 20 }.end
        #expect(allowed.complete?.size == 80 << 20)
    }

    /// 3 KiB of zstd: blocks of one repeated byte (RFC 8878 §3.1.1.2.2). Other transfers of the engine do not wait for all of them.
    @Test func `that unpacks to much is unpacked a part at a time`() async throws {
        let frame: [UInt8] = [0x28, 0xB5, 0x2F, 0xFD, 0x00, 0x38]  // with a window of 128 KiB
        let blocks = (1...768).flatMap { [$0 == 768 ? 0x03 : 0x02, 0x00, 0x10, 0x00] as [UInt8] }  // of 128 KiB each
        let server = ScriptedServer { _, reply in
            let head = "HTTP/1.1 200 OK\r\nContent-Encoding: zstd\r\nContent-Length: \(frame.count + blocks.count)\r\n\r\n"
            reply.send(Array(head.utf8) + frame + blocks)
        }
        let fixture = await EngineFixture()
        let end = try await fixture.run(server.url("/x")) { $0.maxSize = 96 << 20 }
        #expect(end.complete?.size == 96 << 20, "\(end)")
        let received = await fixture.log.events.compactMap { event -> ByteCount? in
            if case .progress(let all) = event { all.first?.received } else { nil }
        }
        let first = try #require(received.first { $0 > 0 })
        #expect(first <= 64 << 20, "\(received)")
    }

    @Test func `of the transfer is not accepted`() async throws {
        let server = ScriptedServer { _, reply in
            reply.head(200, ["Transfer-Encoding": "gzip, chunked"])
            reply.chunk(Coded.gzip)
            reply.chunk([])
        }
        let fixture = await EngineFixture()
        let end = try await fixture.run(server.url("/x"))
        #expect(end.failure?.name == .network && end.failure?.isRetryable == false, "\(end)")
    }
}
