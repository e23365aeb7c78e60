import DownloadModel
import Testing

@Suite struct `A referrer` {
    @Test(arguments: [
        ("https://user:word@example.org/page?q=1#part", "https://example.org/page?q=1"),
        ("https://example.org/#top", "https://example.org/"),
        ("http://a@b@example.org", "http://example.org"), ("//user:word@example.org/p", "//example.org/p"), ("/page#x", "/page"),
        ("page?mail=a@b", "page?mail=a@b"), ("https://example.org/a@b?c@d", "https://example.org/a@b?c@d"), ("about:blank", "about:blank"),
        ("android-app://u:p@org.example/", "android-app://org.example/"), ("#only", ""), ("", ""),
        ("https://user@example.org\\@elsewhere/", "https://example.org\\@elsewhere/"), ("HTTPS://U:P@EXAMPLE.ORG", "HTTPS://EXAMPLE.ORG"),
        ("//", "//"), ("https://", "https://"), ("https://@", "https://"), ("a/b//u:p@c", "a/b//u:p@c"),
    ])
    func `loses user, password and fragment, and nothing else`(given: String, kept: String) {
        #expect(Referrer.withoutSecrets(given) == kept)
        #expect(Referrer.withoutSecrets(kept) == kept)
    }

    @Test func `of an https page is not sent to an http server`() throws {
        let (secure, plain) = (try DownloadURL("https://example.org/a"), try DownloadURL("http://example.org/a"))
        #expect(Referrer.sent("https://u:p@example.org/page#x", to: secure) == "https://example.org/page")
        #expect(Referrer.sent("https://example.org/page", to: plain) == nil)
        #expect(Referrer.sent(" HTTPS://example.org/page", to: plain) == nil)
        #expect(Referrer.sent("http://example.org/page", to: plain) == "http://example.org/page")
        #expect(Referrer.sent("http://example.org/page", to: secure) == "http://example.org/page")
        #expect(Referrer.sent("#x", to: plain) == nil)
    }
}

@Suite struct `A fresh link` {
    @Test(arguments: [nil, false, true] as [Bool?])
    func `is named by its caller, unless it says that a public server has named it`(isNamed: Bool?) throws {
        var link = FreshLink(try DownloadURL("http://192.168.1.1/a"))
        link.isNamedByPublicServer = isNamed
        for former in [nil, false, true] as [Bool?] {
            var options = DownloadOptions()
            options.isNamedByPublicServer = former
            link.apply(to: &options, from: "http://example.org/a")
            #expect(options.isNamedByPublicServer == isNamed)
        }
    }
}
