import DownloadModel
import EventLoop
import Glibc
import TestSupport
import Testing
import TransferEngine

/// One misbehaviour of a server.
struct Misbehaviour: CustomTestStringConvertible, Sendable {
    static let old = patternBytes(300_000)
    static let new = patternBytes(280_000, seed: 9)
    static let held = 120_000

    let name: String
    /// Whether the file has changed on the server since its first part came: tag v2, the bytes of `new`.
    var hasChanged = false
    /// Sends a wrong answer to a request. Returns false if the request must be answered well.
    let answer: @Sendable (ScriptedServer.Request, Reply) -> Bool

    var testDescription: String { name }
    var file: [UInt8] { hasChanged ? Self.new : Self.old }
    var tag: String { hasChanged ? "\"v2\"" : "\"v1\"" }

    init(_ name: String, hasChanged: Bool = false, _ answer: @escaping @Sendable (ScriptedServer.Request, Reply) -> Bool) {
        (self.name, self.hasChanged, self.answer) = (name, hasChanged, answer)
    }

    /// Answers a request for a range with these fields, and with the requested bytes.
    private static func part(
        _ name: String, hasChanged: Bool = false, _ contentRange: @escaping @Sendable (Int, Int) -> String?, tag: String? = "\"v1\"",
        skew: Int = 0, length: Int? = nil
    ) -> Misbehaviour {
        Misbehaviour(name, hasChanged: hasChanged) { request, reply in
            guard let first = request.range?.first else { return false }
            let file = hasChanged ? new : old
            let body = file[min(file.count, first + skew)...]
            var head = "HTTP/1.1 206 Partial Content\r\nContent-Length: \(length ?? body.count)\r\n"
            if let range = contentRange(first, file.count) { head += "Content-Range: \(range)\r\n" }
            if let tag { head += "ETag: \(tag)\r\n" }
            reply.send(head + "\r\n")
            reply.send(body)
            reply.close()
            return true
        }
    }

    private static func whole(_ name: String, hasChanged: Bool = false, tag: String?, chunked: Bool = false, cut: Int? = nil)
        -> Misbehaviour
    {
        Misbehaviour(name, hasChanged: hasChanged) { _, reply in
            let file = hasChanged ? new : old
            var head = "HTTP/1.1 200 OK\r\n" + (chunked ? "Transfer-Encoding: chunked\r\n" : "Content-Length: \(file.count)\r\n")
            if let tag { head += "ETag: \(tag)\r\n" }
            reply.send(head + "\r\n")
            let body = file[..<(cut ?? file.count)]
            if chunked { reply.chunk(body) } else { reply.send(body) }
            if chunked, cut == nil { reply.chunk([]) } else { reply.close() }
            return true
        }
    }

    private static func unsatisfied(_ name: String, _ contentRange: String?, hasChanged: Bool = false) -> Misbehaviour {
        Misbehaviour(name, hasChanged: hasChanged) { request, reply in
            guard request.range != nil else { return false }
            let field = contentRange.map { "Content-Range: \($0)\r\n" } ?? ""
            reply.send("HTTP/1.1 416 Range Not Satisfiable\r\n\(field)Content-Length: 0\r\n\r\n")
            return true
        }
    }

    /// Sends the rest of another file, without a length, up to the end of the connection.
    private static func openPart(_ name: String, right: Int, _ contentRange: @escaping @Sendable (Int, Int) -> String) -> Misbehaviour {
        Misbehaviour(name) { request, reply in
            guard let first = request.range?.first else { return false }
            let range = contentRange(first, old.count)
            reply.send("HTTP/1.1 206 Partial Content\r\nConnection: close\r\nContent-Range: \(range)\r\nETag: \"v1\"\r\n\r\n")
            reply.send(old[first...].prefix(right))
            reply.send(patternBytes(old.count - first - right, seed: 5))
            reply.close()
            return true
        }
    }

    static let all: [Misbehaviour] = [
        openPart("206 without length, with more than its Content-Range", right: 1000) { "bytes \($0)-\($0 + 999)/\($1)" },
        openPart("206 without length, whose Content-Range leads behind the end", right: 0) { first, _ in
            "bytes \(first)-18446744073709551614/*"
        },
        whole("200 instead of 206, same tag", tag: "\"v1\""),
        whole("200 instead of 206, no tag", tag: nil),
        whole("200 instead of 206, weak tag", tag: "W/\"v1\""),
        whole("200 of a changed file", hasChanged: true, tag: "\"v2\""),
        whole("200 of a changed file, no tag", hasChanged: true, tag: nil),
        whole("200 of a changed file, cut before what is held", hasChanged: true, tag: "\"v2\"", cut: 50_000),
        whole("200 of a changed file, cut behind what is held", hasChanged: true, tag: "\"v2\"", cut: 200_000),
        whole("200 of a changed file, chunked and cut", hasChanged: true, tag: "\"v2\"", chunked: true, cut: 50_000),
        whole("200 chunked, same tag", tag: "\"v1\"", chunked: true),
        whole("200 chunked, changed", hasChanged: true, tag: "\"v2\"", chunked: true),
        whole("200 cut, same tag", tag: "\"v1\"", cut: 200_000),
        whole("200 cut before what is held, same tag", tag: "\"v1\"", cut: 10),
        whole("200 chunked and cut, same tag", tag: "\"v1\"", chunked: true, cut: 200_000),
        Misbehaviour("If-Range breaks it: 200, else 206") { request, reply in
            guard request.field("If-Range") != nil else { return false }
            reply.respond(200, ["ETag": "\"v1\""], body: old)
            return true
        },
        Misbehaviour("If-Range breaks it, and the file has changed", hasChanged: true) { request, reply in
            guard request.field("If-Range") != nil else { return false }
            reply.respond(200, ["ETag": "\"v2\""], body: new)
            return true
        },
        Misbehaviour("If-Range ignored, the file has changed", hasChanged: true) { request, reply in
            guard let first = request.range?.first else { return false }
            reply.head(206, ["Content-Range": "bytes \(first)-\(new.count - 1)/\(new.count)", "ETag": "\"v2\""], length: new.count - first)
            reply.send(new[first...])
            return true
        },
        unsatisfied("416 of the length that is held", "bytes */\(held)"),
        unsatisfied("416 of the file's length", "bytes */\(old.count)"),
        unsatisfied("416 of a shorter file", "bytes */1000"),
        unsatisfied("416 of a shorter file that has changed", "bytes */1000", hasChanged: true),
        unsatisfied("416 of the largest length", "bytes */18446744073709551615"),
        unsatisfied("416 malformed", "bytes 0-5/x"),
        unsatisfied("416 without a length", nil),
        part("206 from another byte", { "bytes \($0 + 1)-\($1 - 1)/\($1)" }, skew: 1),
        part("206 from the first byte", { _, size in "bytes 0-\(size - 1)/\(size)" }),
        part("206 that says it is right and is of another length", { "bytes \($0)-\($1 - 1)/\($1)" }, length: 100_000),
        part("206 of another total, same tag", { "bytes \($0)-\($1 - 1)/\($1 + 5)" }),
        part("206 of unknown total", { "bytes \($0)-\($1 - 1)/*" }),
        part("206 up to the last of all numbers", { first, _ in "bytes \(first)-18446744073709551614/*" }),
        part("206 up to the last of all numbers, of the largest total") { first, _ in
            "bytes \(first)-18446744073709551614/18446744073709551615"
        },
        part("206 of more than a file can have", { first, _ in "bytes \(first)-9223372036854775807/9223372036854775808" }),
        part("206 beyond all numbers", { first, _ in "bytes \(first)-18446744073709551616/*" }),
        part("206 without Content-Range", { _, _ in nil }),
        part("206 with a malformed Content-Range", { _, _ in "bytes=nonsense" }),
        part("206 in another unit", { "items \($0)-\($1 - 1)/\($1)" }),
        part("206 with a weak tag", { "bytes \($0)-\($1 - 1)/\($1)" }, tag: "W/\"v1\""),
        part("206 with a changed tag", hasChanged: true, { "bytes \($0)-\($1 - 1)/\($1)" }, tag: "\"v2\""),
        Misbehaviour("206 in a content coding") { request, reply in
            guard let first = request.range?.first else { return false }
            reply.head(
                206, ["Content-Range": "bytes \(first)-\(old.count - 1)/\(old.count)", "ETag": "\"v1\"", "Content-Encoding": "gzip"],
                length: old.count - first)
            reply.send(old[first...])
            reply.close()
            return true
        },
        Misbehaviour("206 of less than was asked for") { request, reply in
            guard let first = request.range?.first else { return false }
            let end = min(old.count, first + 40_000)
            reply.head(206, ["Content-Range": "bytes \(first)-\(end - 1)/\(old.count)", "ETag": "\"v1\""], length: end - first)
            reply.send(old[first..<end])
            return true
        },
        Misbehaviour("304 to a range") { request, reply in
            guard request.range != nil else { return false }
            reply.head(304, ["ETag": "\"v1\""])
            return true
        },
        Misbehaviour("412 to a range") { request, reply in
            guard request.range != nil else { return false }
            reply.respond(412, text: "no")
            return true
        },
        Misbehaviour("half of a gzip stream in right framing") { request, reply in
            reply.respond(200, ["ETag": "\"v1\"", "Content-Encoding": "gzip"], body: [0x1F, 0x8B, 8, 0, 0, 0, 0, 0, 0, 3, 0x4B])
            return true
        },
        Misbehaviour("206 cut") { request, reply in
            guard let first = request.range?.first else { return false }
            reply.head(
                206, ["Content-Range": "bytes \(first)-\(old.count - 1)/\(old.count)", "ETag": "\"v1\""], length: old.count - first)
            reply.send(old[first..<min(old.count, first + 30_000)])
            reply.close()
            return true
        },
        Misbehaviour("206 multipart") { request, reply in
            guard let first = request.range?.first else { return false }
            let body =
                Array("--x\r\nContent-Range: bytes \(first)-\(old.count - 1)/\(old.count)\r\n\r\n".utf8) + old[first...]
                + Array("\r\n--x--\r\n".utf8)
            reply.respond(206, ["Content-Type": "multipart/byteranges; boundary=x", "ETag": "\"v1\""], body: body)
            return true
        },
        Misbehaviour("reset before the head") { _, reply in
            reply.reset()
            return true
        },
        Misbehaviour("reset in the body") { request, reply in
            reply.head(200, ["ETag": "\"v1\""], length: old.count)
            reply.send(old[..<60_000])
            reply.reset()
            return true
        },
        Misbehaviour("503") { _, reply in
            reply.respond(503, text: "later")
            return true
        },
    ]
}

@Suite(.timeLimit(.minutes(5))) struct `A server that fails three times and then works` {
    /// Repeats a transfer from the resume data of the previous end, as the service does.
    private func drive(_ fixture: EngineFixture, _ url: String, _ resume: ResumeData?, _ case: Misbehaviour) async throws -> TransferEnd {
        var resume = resume
        for _ in 0..<12 {
            let number = await fixture.log.checkpoints().count
            let end = try await fixture.run(url) { $0.resume = resume }
            if end.complete != nil { return end }
            #expect(end.failure?.isRetryable == true, "\(`case`.name): \(end)")
            resume = end.resume
            for checkpoint in await fixture.log.checkpoints()[number...] + [resume].compactMap({ $0 }) {
                check(checkpoint, fixture, isLast: checkpoint == resume)
            }
        }
        return try await fixture.run(url) { $0.resume = resume }
    }

    /// Checks that the bytes of a checkpoint are written, and belong to the version of its validator.
    private func check(_ checkpoint: ResumeData, _ fixture: EngineFixture, isLast: Bool) {
        guard isLast, checkpoint.written > 0 else { return }
        let version = checkpoint.validator == .entityTag("\"v2\"") ? Misbehaviour.new : Misbehaviour.old
        let part = fixture.part ?? []
        let count = Int(checkpoint.written)
        #expect(part.count >= count && count <= version.count)
        #expect(part.prefix(count) == version.prefix(count))
    }

    @Test(arguments: Misbehaviour.all, ["fresh", "resume"])
    func `leads to the right bytes, and nothing is counted that is not written`(`case`: Misbehaviour, start: String) async throws {
        let isResume = start == "resume"
        let fixture = await EngineFixture()
        let server = ScriptedServer { request, reply in
            if isResume, request.number == 0 {
                reply.head(200, ["ETag": "\"v1\""], length: Misbehaviour.old.count)
                reply.send(Misbehaviour.old[..<Misbehaviour.held])
                return reply.close()
            }
            if request.number < 4, `case`.answer(request, reply) { return }
            reply.serve(`case`.file, for: request, entityTag: `case`.tag)
        }
        var resume: ResumeData?
        if isResume {
            resume = try await fixture.run(server.url("/file.bin")).resume
            #expect(resume?.written == ByteCount(Misbehaviour.held))
        }
        let end = try await drive(fixture, server.url("/file.bin"), resume, `case`)
        #expect(end.complete?.size == ByteCount(`case`.file.count), "\(end)")
        #expect(fixture.part == `case`.file)
        #expect(listFolder(fixture.folder.path).filter { $0.hasPrefix(".todoku") } == [".todoku-1.part"])
        #expect(server.requests.count <= 12)
    }
}
