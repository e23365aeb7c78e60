internal import Glibc
internal import TestSupport

extension Misbehaviour {
    private static func plain(_ status: Int, _ fields: [String] = [], times: Int = 1, expected: Expected = .right) -> Misbehaviour {
        let words = fields.first.map { ", \($0)" } ?? ""
        return Misbehaviour(name: "\(status)\(words)", expected: expected, times: times) {
            $0.send(status, fields + ["Content-Length: 5"], "sorry".utf8)
        }
    }

    static let heads: [Misbehaviour] = [
        Misbehaviour(name: "no answer at all") { $0.reply.close() },
        Misbehaviour(name: "reset before the head") { $0.reply.reset() },
        Misbehaviour(name: "a head that does not come") {
            poll(nil, 0, 1500)
            $0.reply.close()
        },
        Misbehaviour(name: "a slow head") {
            for byte in "HTTP/1.1 200 OK\r\n".utf8 {
                guard $0.reply.send([byte]) else { return }
                poll(nil, 0, 40)
            }
            $0.reply.send("ETag: \"v1\"\r\nContent-Length: \(size)\r\n\r\n")
            $0.reply.send(old)
        },
        Misbehaviour(name: "a head of 20 MB", expected: .either) {
            $0.reply.send("HTTP/1.1 200 OK\r\n")
            let line = Array("X-Long: \(String(repeating: "x", count: 60_000))\r\n".utf8)
            for _ in 0..<330 { guard $0.reply.send(line) else { break } }
            $0.reply.close()
        },
        Misbehaviour(name: "no HTTP", expected: .either) {
            $0.reply.send("220 ftp.example.org ready\r\n\r\n")
            $0.reply.close()
        },
        Misbehaviour(name: "two lengths", expected: .either) {
            $0.send(200, ["ETag: \"v1\"", "Content-Length: \(size)", "Content-Length: 77"], old)
            $0.reply.close()
        },
        Misbehaviour(name: "a length that is no number", expected: .either) {
            $0.send(200, ["ETag: \"v1\"", "Content-Length: many"], old)
            $0.reply.close()
        },
        Misbehaviour(name: "a negative length", expected: .either) {
            $0.send(200, ["ETag: \"v1\"", "Content-Length: -5"], old)
            $0.reply.close()
        },
        Misbehaviour(name: "103 before the answer") {
            $0.reply.send("HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n")
            $0.reply.serve(old, for: $0.request, entityTag: "\"v1\"")
        },
        Misbehaviour(name: "an endless row of 100s", expected: .either) {
            for _ in 0..<20_000 { guard $0.reply.send("HTTP/1.1 100 Continue\r\n\r\n") else { break } }
            $0.reply.close()
        },
    ]

    static let statuses: [Misbehaviour] = [
        plain(503, ["Retry-After: 0"], times: 2), plain(503, ["Retry-After: Fri, 20 Nov 2026 12:00:00 GMT"]),
        plain(429, ["Retry-After: 1"]),
        plain(503, ["Retry-After: soon"]), plain(500), plain(502), plain(504), plain(408), plain(425),
        plain(400, expected: .error), plain(401, expected: .error), plain(403, expected: .error), plain(404, expected: .error),
        plain(410, expected: .error), plain(451, expected: .error), plain(501, expected: .either), plain(505, expected: .either),
        plain(299, expected: .either), plain(999, expected: .either),
        Misbehaviour(name: "204", expected: .either) { $0.send(204, [], []) },
        Misbehaviour(name: "304 without being asked", expected: .either) { $0.send(304, [], []) },
        Misbehaviour(name: "412", expected: .either) { $0.send(412, ["Content-Length: 0"], []) },
    ]

    static let redirects: [Misbehaviour] = [
        Misbehaviour(name: "a redirect to the file") { $0.send(302, ["Location: /file", "Content-Length: 0"], []) },
        Misbehaviour(name: "a redirect with a body that is cut") {
            $0.send(302, ["Location: /file?a=100%", "Content-Length: 5000"], "moved".utf8)
            $0.reply.close()
        },
        Misbehaviour(name: "a redirect with a body of a MiB") {
            $0.send(302, ["Location: /file", "Content-Length: 1048576"], [UInt8](repeating: 65, count: 1 << 20))
        },
        Misbehaviour(name: "100 redirects", expected: .error, times: 100) {
            $0.send(302, ["Location: /hop/\($0.turn)", "Content-Length: 0"], [])
        },
        Misbehaviour(name: "a redirect to itself", expected: .error, times: 100) {
            $0.send(301, ["Location: \($0.request.target)", "Content-Length: 0"], [])
        },
        Misbehaviour(name: "a redirect to nowhere", expected: .error) { $0.send(302, ["Content-Length: 0"], []) },
        Misbehaviour(name: "a redirect to a local file", expected: .error) {
            $0.send(302, ["Location: file:///etc/passwd", "Content-Length: 0"], [])
        },
        Misbehaviour(name: "a redirect that is no URL", expected: .error) {
            $0.send(302, ["Location: http://[::1", "Content-Length: 0"], [])
        },
    ]
}

extension Reply {
    /// Like `serve`, but the body ends before byte `end` of the file, whatever the head announces.
    func serve(_ file: [UInt8], for request: ScriptedServer.Request, entityTag: String, endingAt end: Int) {
        let first = request.range?.first ?? 0
        let fields = "ETag: \(entityTag)\r\nContent-Length: \(file.count - first)\r\n"
        if request.range == nil {
            send("HTTP/1.1 200 OK\r\n\(fields)\r\n")
        } else {
            send("HTTP/1.1 206 Partial Content\r\n\(fields)Content-Range: bytes \(first)-\(file.count - 1)/\(file.count)\r\n\r\n")
        }
        send(file[first..<max(first, end)])
    }
}
