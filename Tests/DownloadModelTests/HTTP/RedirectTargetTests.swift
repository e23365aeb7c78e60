import DownloadModel
import Testing

@Suite struct `The target of a redirect` {
    private func target(_ location: [UInt8], from base: String = "http://a.example:8080/b/c/d;p?q") throws(Refusal) -> String {
        try DownloadURL(location: location, from: try DownloadURL(base)).text
    }

    // The http examples of RFC 3986 §5.4, and further forms that browsers and curl accept.
    @Test(arguments: [
        ("g", "http://a.example:8080/b/c/g"), ("./g", "http://a.example:8080/b/c/g"), ("g/", "http://a.example:8080/b/c/g/"),
        ("/g", "http://a.example:8080/g"), ("//g", "http://g/"), ("//g:81/x", "http://g:81/x"), ("?y", "http://a.example:8080/b/c/d;p?y"),
        ("g?y", "http://a.example:8080/b/c/g?y"), ("#s", "http://a.example:8080/b/c/d;p?q"), ("g#s", "http://a.example:8080/b/c/g"),
        (";x", "http://a.example:8080/b/c/;x"), ("", "http://a.example:8080/b/c/d;p?q"), (".", "http://a.example:8080/b/c/"),
        ("..", "http://a.example:8080/b/"), ("../g", "http://a.example:8080/b/g"), ("../../../g", "http://a.example:8080/g"),
        ("g?y/../x", "http://a.example:8080/b/c/g?y/../x"), ("https://b.example", "https://b.example/"),
        ("  g\t", "http://a.example:8080/b/c/g"),
        ("100%.txt", "http://a.example:8080/b/c/100%.txt"), ("/f?sig=100%&x=1", "http://a.example:8080/f?sig=100%&x=1"),
        ("/a b", "http://a.example:8080/a%20b"), ("/x:y", "http://a.example:8080/x:y"),
        ("?u=http://x/", "http://a.example:8080/b/c/d;p?u=http://x/"),
        // A target with the base's scheme is relative, as in browsers.
        ("http:/g", "http://a.example:8080/g"), ("HTTP:g", "http://a.example:8080/b/c/g"), ("http:", "http://a.example:8080/b/c/d;p?q"),
        ("http:?y", "http://a.example:8080/b/c/d;p?y"),
        // Some servers write their paths with backslashes.
        ("\\g\\h.zip", "http://a.example:8080/g/h.zip"), ("..\\g", "http://a.example:8080/b/g"), ("http:\\g", "http://a.example:8080/g"),
        ("http://b.example/g\\h?a\\b", "http://b.example/g/h?a\\b"), ("/g\\\\h", "http://a.example:8080/g//h"),
        ("\\a:b", "http://a.example:8080/a:b"),
    ])
    func `is resolved against the URL that was asked for`(location: String, expected: String) throws {
        #expect(try target(Array(location.utf8)) == expected)
    }

    @Test func `keeps the bytes that the server sent`() throws {
        #expect(try target(Array("/".utf8) + [0x93, 0xFA, 0x96, 0x7B, 0xC2, 0x85]) == "http://a.example:8080/%93%FA%96%7B%C2%85")
        #expect(try target(Array("/?q=".utf8) + [0xE9]) == "http://a.example:8080/?q=%E9")
    }

    /// Browsers go to evil.example, or to a host named like the path. curl stays on the host, or goes elsewhere.
    @Test(arguments: [
        ("/\\evil.example/x", "backslash"), ("\\\\evil.example\\x", "backslash"), ("\\/evil.example/x", "backslash"),
        ("http:\\\\evil.example/", "backslash"), ("http:/\\evil.example/", "backslash"), ("https:\\\\evil.example/", "backslash"),
        ("http://a.example\\@evil.example/", "backslash"), ("//evil.example\\.a.example/", "backslash"),
        ("https:/evil.example/x", "no \"//\""), ("https:evil.example", "no \"//\""), ("http:///evil.example/", "no host"),
        ("///evil.example/", "no host"), ("http:////evil.example/", "no host"),
    ])
    func `is refused with the reason if programs disagree about its host`(location: String, reason: String) {
        let refusal = #expect(throws: Refusal.self) { _ = try target(Array(location.utf8)) }
        #expect(refusal?.name == .invalidUrl && refusal?.message.contains(reason) == true, "\(refusal?.message ?? "-")")
    }

    @Test(arguments: [
        ("file:///etc/passwd", ErrorName.unsupportedScheme), ("http://", .invalidUrl), ("//", .invalidUrl), ("http://[::1", .invalidUrl),
        ("/a\u{1}b", .invalidUrl), ("http://a:99999/", .invalidUrl), ("/" + String(repeating: "a", count: 9000), .limitExceeded),
    ])
    func `is refused by its own reason`(location: String, name: ErrorName) {
        let refusal = #expect(throws: Refusal.self) { _ = try target(Array(location.utf8)) }
        #expect(refusal?.name == name)
    }
}
