import DownloadModel
import Testing

@Suite struct `Download URLs` {
    @Test(arguments: [
        "http://example.org", "https://Example.ORG.:8080/a?b@c:d", "http://127.0.0.1:1/", "http://[::1]:8080/a", "http://u:p@h?q/r@s",
        "http://localhost/@",
    ])
    func `give their host without parsing the rest`(text: String) throws {
        let url = try DownloadURL(text)
        #expect(DownloadURL.host(of: url.text) == url.host)
        #expect(DownloadURL.host(of: "no URL") == "" && DownloadURL.host(of: "a:b") == "" && DownloadURL.host(of: "") == "")
    }

    @Test(arguments: [
        ("http://example.org", "http://example.org/"),
        ("HTTPS://Example.ORG:443/a", "https://example.org/a"),
        ("http://example.org:80/a", "http://example.org/a"),
        ("http://example.org:/a", "http://example.org/a"),
        ("http://example.org:8080/a?b=c#d", "http://example.org:8080/a?b=c"),
        ("http://example.org?b", "http://example.org/?b"),
        ("http://example.org/?", "http://example.org/?"),
        ("http://example.org#top", "http://example.org/"),
        ("  https://example.org/a  ", "https://example.org/a"),
        ("https://example.org/my file.zip?a b", "https://example.org/my%20file.zip?a%20b"),
        ("https://example.org/届け物.zip?名=値", "https://example.org/%E5%B1%8A%E3%81%91%E7%89%A9.zip?%E5%90%8D=%E5%80%A4"),
        ("https://example.org/a%2fb%E5", "https://example.org/a%2fb%E5"),
        // Only what browsers encode (URL Standard, section 1.3), because a server may have signed the rest as it is.
        ("https://example.org/a[1]|{x}\"<>^`", "https://example.org/a[1]|%7Bx%7D%22%3C%3E%5E%60"),
        ("https://example.org/?a[1]|{x}\"<>^`", "https://example.org/?a[1]|{x}%22%3C%3E^`"),
        ("https://example.org/a%5B1%5D?b%5b%5d", "https://example.org/a%5B1%5D?b%5b%5d"),
        ("https://example.org\u{2F}a\\b\\..\\c?d\\e", "https://example.org/a/c?d\\e"),
        ("https://example.org/~a;b=(1)!*',:@&=+$", "https://example.org/~a;b=(1)!*',:@&=+$"),
        ("https://example.org/a/./b/../c/%2E%2e/d/.", "https://example.org/a/d/"),
        ("https://example.org/../../etc", "https://example.org/etc"),
        ("https://example.org//a//b", "https://example.org//a//b"),
        ("https://user:pa%3Ass@example.org/a?k#f", "https://example.org/a?k"),
        ("https://example.org/a#bad%zz", "https://example.org/a"),
        ("https://example.org/100%.txt?sig=100%&x=1", "https://example.org/100%.txt?sig=100%&x=1"),
        ("https://example.org/%?%g0%2", "https://example.org/%?%g0%2"), ("https://example.org/100%届", "https://example.org/100%%E5%B1%8A"),
        ("http://127.0.0.1:8000/", "http://127.0.0.1:8000/"),
        ("http://[2001:DB8:0:0:0:0:0:1]:8000/", "http://[2001:db8::1]:8000/"),
        ("http://[::ffff:1.2.3.4]/", "http://[::ffff:102:304]/"),
        ("http://my_host-1.example.org./", "http://my_host-1.example.org./"),
        ("http://localhost:00080/", "http://localhost/"),
        ("http://1e100.net/", "http://1e100.net/"),
    ])
    func `are written in one way, without user and fragment`(given: String, expected: String) throws {
        let url = try DownloadURL(given)
        #expect(url.text == expected)
        #expect(try DownloadURL(url.text).text == expected)
    }

    @Test(arguments: [
        "", " ", "example.org", "/file", "//example.org/a", "example.org:8080/a", "localhost:80", "http:", "http:/a", "http:a", "http://",
        "http:///a", "http://:80/", "http://?a", "http://user@/", "http://example.org:0/", "http://example.org:65536/",
        "http://example.org:8a/", "http://example.org:80:80/", "http://example.org:-1/", "http://exa mple.org/", "http://exa\\mple.org/",
        "http://例え.jp/", "http://ex%61mple.org/", "http://a..b/", "http://.a/", "http://.", "http://<a>/", "http://a,b/",
        "http://example.org/a\nb", "http://example.org/a\u{0}b", "http://example.org/\u{7F}", "http://example.org/\u{85}", "\thttp://a/",
        "http://[::1/", "http://[]/", "http://[::1]a/", "http://[1::2::3]/",
        "http://[:::]/", "http://[1:::2]/", "http://[::1:]/",
        "http://[12345::]/", "http://[fe80::1%25eth0]/", "http://::1/",
        "http://[v1.a]/", "http://[1:2:3:4:5:6:7:8:9]/", "http://[1:2:3:4:5:6:7]/", "http://[1.2.3.4::]/", "http://[:1]/", "http://[+1::]/",
        "http://127.1/", "http://2130706433/", "http://0x7f000001/", "http://0177.0.0.1/", "http://1.2.3.256/", "http://1.2.3.4.5/",
        "http://a.0x1/", "http://127.0.0.1./x", "http://a b:c@example.org/", "http://us%er@example.org/", "http://a%0Ab@example.org/",
        "http://%FF@example.org/", "http://a%3Ab:c@example.org/", "http://a@b@example.org/", "http://ユーザ@example.org/", "1http://a/",
    ])
    func `that are malformed are refused as InvalidUrl`(given: String) throws {
        let refusal = #expect(throws: Refusal.self) { try DownloadURL(given) }
        #expect(refusal?.name == .invalidUrl)
        #expect(refusal?.message.hasSuffix(".") == true)
    }

    @Test(arguments: [
        ("ftp://example.org/a", "ftp"), ("file:///etc/passwd", "file"), ("data:,a", "data"), ("MAILTO:a@b", "mailto"),
        ("magnet:?xt", "magnet"),
    ])
    func `of another scheme are refused as UnsupportedScheme, which is named`(given: String, scheme: String) {
        #expect(throws: Refusal(.unsupportedScheme, "\(scheme): only http and https can be downloaded.")) { try DownloadURL(given) }
    }

    @Test func `are taken up to 8 KiB, as given and as written`() throws {
        let start = "http://example.org/"
        let longest = start + String(repeating: "a", count: Limits.urlBytes - start.utf8.count)
        #expect(try DownloadURL(longest).text == longest)
        for tooLong in [longest + "a", start + String(repeating: "あ", count: 2700)] {
            let refusal = #expect(throws: Refusal.self) { try DownloadURL(tooLong) }
            #expect(refusal?.name == .limitExceeded)
            #expect(refusal?.message.contains("8192") == true)
        }
    }

    @Test func `are split into the parts that the engine needs`() throws {
        let url = try DownloadURL("https://m%C3%BCller:p%40:%20w@Files.Example.org:8443/pub/a%20b.tar.gz?token=secret#x")
        #expect(url.scheme == "https")
        #expect(url.host == "files.example.org")
        #expect(url.port == 8443)
        #expect(url.username == "müller")
        #expect(url.password == "p@: w")
        #expect(url.path == "/pub/a%20b.tar.gz")
        #expect(url.query == "token=secret")
        #expect(url.lastPathComponent == "a%20b.tar.gz")
        #expect(url.origin == "https://files.example.org:8443")
        #expect(url.redacted == "https://files.example.org:8443/pub/a%20b.tar.gz")
        #expect("\(url)" == url.redacted)
    }

    @Test func `fill in the scheme's port and leave out missing parts`() throws {
        let plain = try DownloadURL("http://[::1]/dir/")
        #expect(plain.port == 80)
        #expect(plain.host == "::1")
        #expect(plain.origin == "http://[::1]:80")
        #expect((plain.username, plain.password) == (nil, nil))
        #expect(plain.query == nil)
        #expect(plain.lastPathComponent == "")
        #expect(try DownloadURL("https://a").port == 443)
        #expect(try DownloadURL("https://@a/").username == nil)
        let named = try DownloadURL("https://me@a/")
        #expect((named.username, named.password) == ("me", nil))
        let keyed = try DownloadURL("https://:key@a/")
        #expect((keyed.username, keyed.password) == ("", "key"))
    }

    @Test func `that mean the same are equal`() throws {
        #expect(try DownloadURL("HTTP://A:80/x/../y#1") == DownloadURL("http://a/y"))
        #expect(try DownloadURL("http://a/y") != DownloadURL("http://a/Y"))
    }

    @Test(arguments: ["http://example.org/\u{1}secret", "http://me:secret@/", "http://me:secret\u{A0}@a/", "http://a:secret/", "secret:x"])
    func `are not repeated in a refusal`(given: String) {
        let refusal = #expect(throws: Refusal.self) { try DownloadURL(given) }
        #expect(refusal.map { !$0.message.contains("secret") || $0.name == .unsupportedScheme } == true)
    }

    @Test(arguments: [
        ("http://localhost/", true), ("http://LOCALHOST./", true), ("http://a.localhost:8000/", true), ("http://127.0.0.1/", true),
        ("http://[::1]/", true), ("http://[::ffff:10.0.0.1]/", true), ("http://example.org/", false), ("http://8.8.8.8/", false),
        ("http://localhost.example.org/", false),
    ])
    func `know whether their host is this machine or a private network`(given: String, isPrivate: Bool) throws {
        #expect(try DownloadURL(given).isHostLiteralPrivate == isPrivate)
    }
}

@Suite struct `Private addresses` {
    @Test(arguments: [
        "0.0.0.0", "0.1.2.3", "10.0.0.1", "10.255.255.255", "100.64.0.1", "100.127.255.255", "127.0.0.1", "127.255.0.1", "169.254.169.254",
        "172.16.0.1", "172.31.255.255", "192.168.1.1", "::", "::1", "0:0:0:0:0:0:0:1", "fc00::1", "fdff::1", "fe80::1", "fe80::1%eth0",
        "FEBF::1", "fec0::1", "::ffff:127.0.0.1", "::ffff:c0a8:101", "::10.0.0.1", "64:ff9b::10.0.0.1", "2002:7f00:1::", "2002:a00:1::1",
        "localhost", "LocalHost", "localhost.", "a.b.localhost",
    ])
    func `are loopback, private, link-local and what carries them`(text: String) { #expect(isPrivateAddress(text)) }

    @Test(arguments: [
        "1.1.1.1", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "126.0.0.1", "128.0.0.1", "169.253.0.1", "172.15.255.255",
        "172.32.0.0", "192.167.1.1", "192.169.0.1", "223.255.255.255", "2001:db8::1", "2606:4700::1111", "fbff::1", "fe00::1", "ff02::1",
        "::ffff:8.8.8.8", "64:ff9b::8.8.8.8", "2002:808:808::", "::2:0:0:0", "example.org", "localhost.com", "notlocalhost", "",
        "127.0.0.1.nip.io",
    ])
    func `are not public ones, nor names`(text: String) { #expect(!isPrivateAddress(text)) }

    @Test(arguments: [
        ("127.0.0.1", true), ("127.255.0.1", true), ("::1", true), ("::ffff:127.0.0.1", true), ("localhost", true), ("a.LocalHost.", true),
        ("128.0.0.1", false), ("10.0.0.1", false), ("192.168.1.1", false), ("::", false), ("::2", false), ("::ffff:10.0.0.1", false),
        ("64:ff9b::127.0.0.1", false), ("localhost.com", false), ("127.0.0.1.nip.io", false), ("", false),
    ])
    func `are this machine only where they are loopback`(text: String, isLoopback: Bool) { #expect(isLoopbackAddress(text) == isLoopback) }
}

@Suite struct `A first URL whose host programs read differently` {
    @Test(arguments: [
        ("http:/example.org/f", "no \"//\""), ("http:example.org/f", "no \"//\""), ("http:///example.org/f", "no host"),
        ("http:\\\\example.org\\f", "backslash"), ("http:/\\example.org/f", "backslash"), ("http://example.org\\f", "backslash"),
        ("http://good.example\\@evil.example/", "backslash"), ("http://a:b\\@evil.example/", "backslash"),
    ])
    func `is refused, and says why`(text: String, reason: String) {
        let refusal = #expect(throws: Refusal.self) { _ = try DownloadURL(text) }
        #expect(refusal?.name == .invalidUrl && refusal?.message.contains(reason) == true, "\(refusal?.message ?? "-")")
    }
}
