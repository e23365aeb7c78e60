internal import Glibc
internal import TestSupport

/// A way in which a server can be wrong for some requests. After those it is right.
struct Misbehaviour: Sendable {
    enum Expected: Sendable {
        /// The file is right in the end.
        case right
        /// The download ends with an error.
        case error
        /// The file is right, or there is an error: both are honest.
        case either
    }

    /// The request that a server has to answer, with its circumstances.
    struct Scene: Sendable {
        let request: ScriptedServer.Request
        let reply: Reply
        /// The first requested byte; 0 for the whole.
        let first: Int
        /// How many requests got a wrong answer before this one.
        let turn: Int
        /// The field line with the digest of the first version; none unless `hasDigest`.
        let stated: [String]
        var isRange: Bool { request.range != nil }

        /// Sends a head and a body, which may contradict each other.
        func send(_ status: Int, _ fields: [String], _ body: some Collection<UInt8>) {
            reply.send("HTTP/1.1 \(status) Scripted\r\n\((fields + ["", ""]).joined(separator: "\r\n"))")
            reply.send(Array(body))
        }
    }

    let name: String
    /// The entity tag of the first version, as the server sends it.
    var tag: String? = "\"v1\""
    /// Whether good answers after the wrong ones have a new version.
    var isReplaced = false
    var hasChecksum = false
    /// Whether the server states the digest of the first version, whatever it sends.
    var hasDigest = false
    var expected = Expected.right
    /// How many requests get a wrong answer.
    var times = 1
    let answer: @Sendable (Scene) -> Void

    static let old = Array(Bodies.large[..<1_300_000])
    static let new = Array(Bodies.large[1_200_000...])
    static let size = old.count
    /// As long as `old`.
    private static let changed = old.map { $0 ^ 1 }

    /// "Content-Range: bytes first-last/total", "Content-Length: …", "ETag: …".
    private static func range(_ first: Int, _ last: Int = size - 1, of total: Int = size) -> String {
        "Content-Range: bytes \(first)-\(last)/\(total)"
    }
    private static func length(_ count: Int) -> String { "Content-Length: \(count)" }
    private static let tag1 = "ETag: \"v1\""
    private static let tag2 = "ETag: \"v2\""

    static let all: [Misbehaviour] = ranges + versions + bodies + heads + statuses + redirects

    private static let ranges: [Misbehaviour] = [
        Misbehaviour(name: "200 for a range") { $0.send(200, [tag1, length(size)], old) },
        Misbehaviour(name: "206 that begins elsewhere", expected: .either) {
            let first = $0.first > 0 ? $0.first - 1000 : 1000
            $0.send(206, [tag1, range(first), length(size - first)], old[first...])
        },
        Misbehaviour(name: "206 with the bytes of another range", hasChecksum: true, expected: .either) {
            $0.send(206, [tag1, range($0.first), length(size - $0.first)], old[..<(size - $0.first)])
        },
        Misbehaviour(name: "206 with another total", expected: .either) {
            $0.send(206, [tag1, range($0.first, of: size + 5), length(size - $0.first)], old[$0.first...])
        },
        Misbehaviour(name: "206 without Content-Range", expected: .either) {
            $0.send(206, [tag1, length(size - $0.first)], old[$0.first...])
        },
        Misbehaviour(name: "206 in several parts", expected: .either) {
            let body = Array("--x\r\n\(range($0.first))\r\n\r\n".utf8) + old[$0.first...] + Array("\r\n--x--\r\n".utf8)
            $0.send(206, [tag1, "Content-Type: multipart/byteranges; boundary=x", length(body.count)], body)
        },
        Misbehaviour(name: "206 whose length is another", expected: .either) {
            $0.send(206, [tag1, range($0.first), length(size - $0.first - 7)], old[$0.first..<(size - 7)])
        },
        Misbehaviour(name: "206 with bytes after its end", expected: .either) {
            $0.send(206, [tag1, range($0.first), length(size - $0.first + 9)], old[$0.first...] + Array("123456789".utf8))
            $0.reply.close()
        },
        Misbehaviour(name: "206 with the whole file, then a 200 that is cut", times: 2) {
            if $0.isRange { $0.send(206, [tag1, range($0.first)], old) } else { $0.send(200, [tag1, length(size)], old[..<50_000]) }
            $0.reply.close()
        },
        Misbehaviour(name: "206 of less than was asked for", expected: .either) {
            let last = min(size - 1, $0.first + 50_000)
            $0.send(206, [tag1, range($0.first, last), length(last - $0.first + 1)], old[$0.first...last])
        },
        Misbehaviour(name: "416 with the total", expected: .either) { $0.send(416, ["Content-Range: bytes */\(size)", length(0)], []) },
        Misbehaviour(name: "416 with another total", expected: .either) { $0.send(416, ["Content-Range: bytes */5", length(0)], []) },
        Misbehaviour(name: "416 without Content-Range", expected: .either) { $0.send(416, [length(0)], []) },
        Misbehaviour(name: "200 whenever If-Range is there", times: 99) {
            let isWhole = $0.request.field("If-Range") != nil || !$0.isRange
            let first = isWhole ? 0 : $0.first
            $0.send(isWhole ? 200 : 206, [tag1, length(size - first)] + (isWhole ? [] : [range(first)]), old[first...])
        },
    ]

    private static let versions: [Misbehaviour] = [
        Misbehaviour(name: "replaced, and If-Range kept", isReplaced: true) { $0.send(200, [tag2, length(new.count)], new) },
        Misbehaviour(name: "replaced, and If-Range ignored", isReplaced: true) {
            guard $0.isRange else { return $0.send(200, [tag2, length(new.count)], new) }
            $0.send(206, [tag2, range($0.first, of: new.count), length(new.count - $0.first)], new[$0.first...])
        },
        Misbehaviour(name: "replaced under a weak tag", tag: "W/\"v\"", isReplaced: true) {
            guard $0.isRange else { return $0.send(200, ["ETag: W/\"v\"", length(new.count)], new) }
            $0.send(206, ["ETag: W/\"v\"", range($0.first, of: new.count), length(new.count - $0.first)], new[$0.first...])
        },
        Misbehaviour(name: "replaced without any validator", tag: nil, isReplaced: true) {
            guard $0.isRange else { return $0.send(200, [length(new.count)], new) }
            $0.send(206, [range($0.first, of: new.count), length(new.count - $0.first)], new[$0.first...])
        },
        Misbehaviour(name: "other bytes under the same strong tag, with a checksum", hasChecksum: true, expected: .either) {
            guard $0.isRange else { return $0.send(200, [tag1, length(new.count)], new) }
            $0.send(206, [tag1, range($0.first, of: new.count), length(new.count - $0.first)], new[$0.first...])
        },
        Misbehaviour(name: "other bytes without a validator, with a checksum", tag: nil, hasChecksum: true, expected: .either) {
            guard $0.isRange else { return $0.send(200, [length(new.count)], new) }
            $0.send(206, [range($0.first, of: new.count), length(new.count - $0.first)], new[$0.first...])
        },
        Misbehaviour(name: "other bytes under the same strong tag, with a digest", hasDigest: true, expected: .either) {
            guard $0.isRange else { return $0.send(200, [tag1, length(size)] + $0.stated, changed) }
            $0.send(206, [tag1, range($0.first), length(size - $0.first)] + $0.stated, changed[$0.first...])
        },
        Misbehaviour(name: "other bytes without a validator, with a digest", tag: nil, hasDigest: true, expected: .either) {
            guard $0.isRange else { return $0.send(200, [length(size)] + $0.stated, changed) }
            $0.send(206, [range($0.first), length(size - $0.first)] + $0.stated, changed[$0.first...])
        },
        Misbehaviour(name: "a login page with status 200, with a checksum", hasChecksum: true, expected: .either) {
            $0.send(200, ["Content-Type: text/html", length(6)], "log in".utf8)
        },
    ]

    private static let bodies: [Misbehaviour] = [
        Misbehaviour(name: "truncated", times: 2) {
            $0.reply.serve(old, for: $0.request, entityTag: "\"v1\"", endingAt: ($0.first + size) / 2)
            $0.reply.close()
        },
        Misbehaviour(name: "reset in the middle", times: 2) {
            $0.reply.serve(old, for: $0.request, entityTag: "\"v1\"", endingAt: ($0.first + size) / 2)
            $0.reply.reset()
        },
        Misbehaviour(name: "stalled in the middle") {
            $0.reply.serve(old, for: $0.request, entityTag: "\"v1\"", endingAt: ($0.first + size) / 2)
            poll(nil, 0, 1500)
            $0.reply.close()
        },
        Misbehaviour(name: "chunked, whole") {
            $0.send(200, [tag1, "Transfer-Encoding: chunked"], [])
            $0.reply.chunk(old)
            $0.reply.chunk([])
        },
        Misbehaviour(name: "chunked, cut between chunks") {
            $0.send(200, [tag1, "Transfer-Encoding: chunked"], [])
            $0.reply.chunk(old[..<600_000])
            $0.reply.close()
        },
        Misbehaviour(name: "chunked, cut in a chunk") {
            $0.send(200, [tag1, "Transfer-Encoding: chunked"], [])
            $0.reply.send("fffff\r\n")
            $0.reply.send(old[..<500_000])
            $0.reply.close()
        },
        Misbehaviour(name: "chunked with a size that is none", expected: .either) {
            $0.send(200, [tag1, "Transfer-Encoding: chunked"], [])
            $0.reply.send("xyz\r\n123\r\n")
            $0.reply.close()
        },
        Misbehaviour(name: "more bytes than announced, with a checksum", hasChecksum: true, expected: .either) {
            $0.send(200, [tag1, length(size - 1000)], old)
            $0.reply.close()
        },
        Misbehaviour(name: "fewer bytes than announced") {
            $0.send(200, [tag1, length(size + 1000)], old)
            $0.reply.close()
        },
        Misbehaviour(name: "half a gzip stream in right framing") {
            $0.send(200, [tag1, "Content-Encoding: gzip", length(11)], [0x1F, 0x8B, 8, 0, 0, 0, 0, 0, 0, 3, 0x4B])
        },
        Misbehaviour(name: "gzip twice over, with a checksum", hasChecksum: true, expected: .either) {
            $0.send(200, [tag1, "Content-Encoding: gzip, gzip", length(3)], [0x1f, 0x8b, 0])
        },
        Misbehaviour(name: "a surplus that looks like an answer, behind a refusal", times: 3) {
            let wrong = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nWRONG"
            $0.send(503, ["Retry-After: 0", length(5)], Array("sorry\(wrong)".utf8))
        },
        Misbehaviour(name: "parts of 100,000 bytes", times: 99) {
            guard $0.isRange else {
                $0.reply.serve(old, for: $0.request, entityTag: "\"v1\"", endingAt: 600_000)
                return $0.reply.close()
            }
            let last = min(size - 1, $0.first + 99_999)
            $0.send(206, [tag1, range($0.first, last), length(last - $0.first + 1)], old[$0.first...last])
        },
        Misbehaviour(name: "gzip-coded without being asked, with a checksum", hasChecksum: true, expected: .either) {
            $0.send(
                $0.isRange ? 206 : 200, [tag1, "Content-Encoding: gzip", length(3)] + ($0.isRange ? [range($0.first)] : []),
                [0x1f, 0x8b, 0])
        },
    ]
}
