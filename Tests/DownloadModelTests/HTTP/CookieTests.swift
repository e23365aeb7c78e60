import DownloadModel
import Testing

@Suite struct `A cookie line` {
    @Test func `has seven fields between tabs`() throws {
        let line = "#HttpOnly_.Example.ORG\tTRUE\t/a\tFALSE\t4102444800\tid\ta b=c"
        let cookie = try Cookie(line: line)
        #expect((cookie.domain, cookie.includesSubdomains, cookie.path) == ("example.org", true, "/a"))
        #expect((cookie.isSecure, cookie.isHTTPOnly, cookie.expiry) == (false, true, 4_102_444_800))
        #expect((cookie.name, cookie.value) == ("id", "a b=c"))
        #expect(cookie.line == "#HttpOnly_.example.org\tTRUE\t/a\tFALSE\t4102444800\tid\ta b=c")
        #expect(try Cookie(line: cookie.line) == cookie)
    }

    @Test(arguments: [
        ("www.example.org\tFALSE\t/\tTRUE\t0\tn\tv", "www.example.org\tFALSE\t/\tTRUE\t0\tn\tv"),
        ("h\tfalse\t/\ttrue\t0\tn\t", "h\tFALSE\t/\tTRUE\t0\tn\t"),
        // Python writes no number for a cookie that does not expire.
        (".h.org\tTRUE\t/\tFALSE\t\tn\tv", ".h.org\tTRUE\t/\tFALSE\t0\tn\tv"),
        // Neither a top-level domain nor an address has hosts below it.
        (".com\tTRUE\t/\tFALSE\t0\tn\tv", "com\tFALSE\t/\tFALSE\t0\tn\tv"),
        ("127.0.0.1\tTRUE\t/\tFALSE\t0\tn\tv", "127.0.0.1\tFALSE\t/\tFALSE\t0\tn\tv"),
        ("[::1]\tFALSE\t/\tFALSE\t0\tn\tv", "::1\tFALSE\t/\tFALSE\t0\tn\tv"),
        ("h.org\tFALSE\t/\tTRUE\t0\t__Host-a\tü", "h.org\tFALSE\t/\tTRUE\t0\t__Host-a\tü"),
    ]) func `is written in one form`(line: String, written: String) throws {
        #expect(try Cookie(line: line).line == written)
    }

    @Test(arguments: [
        ("# a comment", "a comment"), ("", "7 fields"), ("h\tFALSE\t/\tFALSE\t0\tn", "has 6"), ("h FALSE / FALSE 0 n v", "has 1"),
        ("h\tFALSE\t/\tFALSE\t0\tn\tsecret\tx", "has 8"), ("\tFALSE\t/\tFALSE\t0\tn\tsecret", "Field 1"),
        ("..h\tTRUE\t/\tFALSE\t0\tn\tsecret", "Field 1"), ("h/a\tTRUE\t/\tFALSE\t0\tn\tsecret", "Field 1"),
        ("ü.de\tTRUE\t/\tFALSE\t0\tn\tsecret", "Field 1"), ("[::x]\tTRUE\t/\tFALSE\t0\tn\tsecret", "Field 1"),
        ("h\tyes\t/\tFALSE\t0\tn\tsecret", "Field 2"), ("h\tTRUE\t\tFALSE\t0\tn\tsecret", "Field 3"),
        ("h\tTRUE\ta\tFALSE\t0\tn\tsecret", "Field 3"), ("h\tTRUE\t/\t1\t0\tn\tsecret", "Field 4"),
        ("h\tTRUE\t/\tFALSE\t-1\tn\tsecret", "Field 5"), ("h\tTRUE\t/\tFALSE\tsoon\tn\tsecret", "Field 5"),
        ("h\tTRUE\t/\tFALSE\t9223372036854775808\tn\tsecret", "Field 5"), ("h\tTRUE\t/\tFALSE\t0\t\tsecret", "Field 6"),
        ("h\tTRUE\t/\tFALSE\t0\ta=b\tsecret", "Field 6"), ("h\tTRUE\t/\tFALSE\t0\ta;b\tsecret", "Field 6"),
        ("h\tTRUE\t/\tFALSE\t0\tn\tsecret;x", "Field 7"), ("h\tTRUE\t/\tFALSE\t0\tn\tsecret\r", "control character"),
        ("h\tTRUE\t/\tFALSE\t0\tn\tsecret\nCookie: x", "control character"), ("h\tTRUE\t/\tFALSE\t0\tn\tsecret\u{85}", "control character"),
        ("h\tFALSE\t/\tFALSE\t0\t__Secure-n\tsecret", "Field 4"), (".h.org\tTRUE\t/\tTRUE\t0\t__Host-n\tsecret", "field 2"),
        ("h\tFALSE\t/a\tTRUE\t0\t__host-n\tsecret", "the path"), ("h\tFALSE\t/\tFALSE\t0\t__HOST-\u{301}\tsecret", "Field 4"),
        ("h\tTRUE\t/\tFALSE\t0\tn\tsecret" + String(repeating: "x", count: 4096), "4096 bytes"),
    ]) func `that is none is refused with its fault, and without its value`(line: String, fault: String) {
        do throws(Refusal) {
            _ = try Cookie(line: line)
            Issue.record("“\(line.prefix(60))” is taken")
        } catch {
            #expect(error.name == .invalidOption && error.message.contains(fault), "\(error.message)")
            #expect(!error.message.contains("secret"))
        }
    }

    @Test func `expires at its second`() throws {
        let cookie = try Cookie(line: "h\tFALSE\t/\tFALSE\t10\tn\tv")
        #expect(!cookie.isExpired(at: WallTime(microseconds: 9_999_999)) && cookie.isExpired(at: WallTime(microseconds: 10_000_000)))
        #expect(try !Cookie(line: "h\tFALSE\t/\tFALSE\t0\tn\tv").isExpired(at: WallTime(microseconds: .max)))
    }

    @Test func `belongs to a site, as far as names tell`() {
        #expect(Cookie.site(of: "a.b.example.org") == "example.org" && Cookie.site(of: "example.org") == "example.org")
        for host in ["localhost", "127.0.0.1", "::1"] { #expect(Cookie.site(of: host) == host) }
    }

    @Test func `is one of at most 1,000, which have at most 64 KiB`() throws {
        let row = try #require(OptionRow.byKey["cookies"])
        var options = DownloadOptions()
        try row.take(.texts((0..<1000).map { "h\tFALSE\t/\tFALSE\t0\tn\($0)\tv" }), into: &options)
        #expect(options.cookies.count == 1000)
        let long = "h\tFALSE\t/\tFALSE\t0\tn\t" + String(repeating: "v", count: 4000)
        for lines in [(0..<1001).map { "h\tFALSE\t/\tFALSE\t0\tn\($0)\tv" }, [String](repeating: long, count: 17)] {
            do throws(Refusal) {
                try row.take(.texts(lines), into: &options)
                Issue.record("\(lines.count) cookies are taken")
            } catch { #expect(error.name == .limitExceeded && error.message.contains("cookies")) }
        }
        do throws(Refusal) {
            try row.take(.texts(["h\tFALSE\t/\tFALSE\t0\tn\tv", "x"]), into: &options)
            Issue.record("“x” is taken")
        } catch { #expect(error.message.hasPrefix("Option cookies, item 1: ")) }
    }
}
