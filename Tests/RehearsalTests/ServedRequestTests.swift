import DownloadModel
import Testing

@testable import Rehearsal

@Suite struct `A request to a loopback server` {
    private func read(_ text: String) -> ServedRequest.Reading { ServedRequest.read(Array(text.utf8)) }

    private func request(_ line: String, _ fields: String...) -> ServedRequest? {
        let text = ([line, "Host: 127.0.0.1:8080"] + fields).joined(separator: "\r\n") + "\r\n\r\n"
        guard case .request(let request, let length) = read(text + "GET"), length == text.utf8.count else { return nil }
        return request
    }

    @Test(arguments: [
        ("/levels.json", "levels.json"), ("/levels.json?x=/../y", "levels.json"), ("/a%20b.tar", "a b.tar"), ("/%E5%9C%B0.json", "地.json"),
    ])
    func `names a file right in the folder`(target: String, name: String) {
        #expect(request("GET \(target) HTTP/1.1")?.name == name)
    }

    @Test(arguments: [("/a?renewed", "renewed" as String?), ("/a?b=1?c#d", "b=1?c"), ("/a?", ""), ("/a", nil), ("/a#b?c", nil)])
    func `has a query behind the first question mark`(target: String, query: String?) throws {
        let request = try #require(self.request("GET \(target) HTTP/1.1"))
        #expect(request.query == query)
    }

    @Test(arguments: [
        "/", "/../m.json", "/%2e%2e/m.json", "/..%2fm.json", "/a/b.json", "//m.json", "/.hidden", "/%2Ehidden", "/a%00b", "/a%0ab", "/%zz",
        "/%", "/%2", "/%ff%fe", "m.json", "http://127.0.0.1/m.json", "*",
    ])
    func `names nothing else`(target: String) {
        #expect(request("GET \(target) HTTP/1.1").map { $0.name == nil } == true)
    }

    @Test func `waits for the whole head, but not for a head without an end`() {
        let head = "GET /a HTTP/1.1\r\nHost: localhost\r\n\r\n"
        for count in 0..<head.utf8.count { #expect(ServedRequest.read(Array(head.utf8.prefix(count))) == .incomplete) }
        #expect(read("GET /" + String(repeating: "a", count: 9000)) == .refused(status: 431))
        #expect(
            read(head.replacing("\r\n\r\n", with: "\r\nX: " + String(repeating: "a", count: 9000) + "\r\n\r\n")) == .refused(status: 431))
    }

    @Test(arguments: [
        ("POST /a HTTP/1.1\r\nHost: localhost\r\n\r\n", 405), ("GET /a\r\nHost: localhost\r\n\r\n", 400), ("\r\n\r\n", 400),
        ("GET /a HTTP/2.0\r\nHost: localhost\r\n\r\n", 505), ("GET  /a HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        ("GET /a HTTP/1.1\r\n\r\n", 400), ("GET /a HTTP/1.1\r\nHost : localhost\r\n\r\n", 400),
        ("GET /a HTTP/1.1\r\nHost: localhost\r\n: x\r\n\r\n", 400), ("GET /a HTTP/1.1\r\nHost: localhost\r\nx\r\n\r\n", 400),
        ("GET /a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhello", 400),
        ("GET /a HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        ("GET /a HTTP/1.1\nHost: localhost\r\n\r\n", 400), ("GET /a HTTP/1.1\r\nHost: evil.example\r\n\r\n", 421),
        ("GET /a HTTP/1.1\r\nHost: 127.0.0.1.evil.example\r\n\r\n", 421),
        ("GET /a HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n", 421), ("GET /\0 HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
    ])
    func `is refused if it is malformed, has a body, or is for another host`(text: String, status: Int) {
        #expect(read(text) == .refused(status: status))
    }

    @Test func `keeps the connection as HTTP/1.1 says`() {
        #expect(request("GET /a HTTP/1.1")?.keepsAlive == true)
        #expect(request("GET /a HTTP/1.1", "Connection: close")?.keepsAlive == false)
        #expect(request("GET /a HTTP/1.0")?.keepsAlive == false)
    }

    @Test(arguments: [
        ("bytes=0-9", 0..<10 as Range<UInt64>?), ("bytes=90-", 90..<100), ("bytes=90-1000", 90..<100), ("bytes=-10", 90..<100),
        ("bytes=-1000", 0..<100), ("bytes=99-99", 99..<100), ("BYTES=0-0", 0..<1), ("bytes=100-", 100..<100), ("bytes=200-300", 100..<100),
        ("bytes=-0", 100..<100), ("bytes=0-18446744073709551615", 0..<100), ("bytes=5-4", nil), ("bytes=0-1,5-6", nil), ("bytes=-", nil),
        ("bytes=a-b", nil), ("items=0-1", nil), ("bytes=99999999999999999999-", nil), ("bytes=1-2-3", nil), ("bytes", nil),
    ])
    func `has one range, or none that counts`(field: String, range: Range<UInt64>?) {
        #expect(ServedRequest.range(field, of: 100) == range)
    }

    @Test(arguments: [
        (["If-None-Match: \"t\""], ServedRequest.Answer.notModified), (["If-None-Match: \"x\", W/\"t\""], .notModified),
        (["If-None-Match: *"], .notModified), (["If-None-Match: \"x\""], .whole),
        (["If-None-Match: \"x\"", "If-Modified-Since: Fri, 31 Dec 2027 00:00:00 GMT"], .whole),
        (["If-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT"], .notModified),
        (["If-Modified-Since: Sun, 06 Nov 1994 08:49:36 GMT"], .whole),
        (["If-Modified-Since: yesterday"], .whole), (["If-Match: \"x\""], .preconditionFailed),
        (["If-Match: W/\"t\""], .preconditionFailed),
        (["If-Match: \"t\""], .whole), (["If-Unmodified-Since: Sun, 06 Nov 1994 08:49:36 GMT"], .preconditionFailed),
        (["Range: bytes=10-"], .part(10..<100)), (["Range: bytes=10-", "If-Range: \"t\""], .part(10..<100)),
        (["Range: bytes=10-", "If-Range: \"x\""], .whole), (["Range: bytes=10-", "If-Range: W/\"t\""], .whole),
        (["Range: bytes=10-", "If-Range: Sun, 06 Nov 1994 08:49:37 GMT"], .part(10..<100)), (["Range: bytes=100-"], .unsatisfiable),
        (["Range: bytes=0-1, 5-6"], .whole), (["Range: bytes=10-", "If-None-Match: \"t\""], .notModified),
    ])
    func `is answered as RFC 9110 says`(fields: [String], answer: ServedRequest.Answer) throws {
        let text = (["GET /a HTTP/1.1", "Host: localhost"] + fields).joined(separator: "\r\n") + "\r\n\r\n"
        guard case .request(let request, _) = read(text) else { return #expect(Bool(false), "\(text)") }
        let modified = WallTime(microseconds: 784_111_777_000_000)
        #expect(request.answer(tag: "\"t\"", modified: modified, size: 100) == answer)
    }

    @Test func `is answered with a date that no locale changes`() {
        #expect(httpDate(784_111_777) == "Sun, 06 Nov 1994 08:49:37 GMT")
        #expect(httpDate(0) == "Thu, 01 Jan 1970 00:00:00 GMT")
    }
}
