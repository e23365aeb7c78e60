import DownloadModel
import Testing

@Suite struct `The proxy of a download` {
    @Test(arguments: [
        ("http://host:3128", "http://host:3128"), ("HTTP://Host.Example:3128/", "http://host.example:3128"), ("https://h", "https://h"),
        ("socks4://h:1", "socks4://h:1"), ("socks4a://h", "socks4a://h"), ("socks5://127.0.0.1:9050", "socks5://127.0.0.1:9050"),
        ("socks5h://[::0:1]:9050", "socks5h://[::1]:9050"), ("socks5h://[::1]", "socks5h://[::1]"), ("http://h:", "http://h"),
        ("http://h:80", "http://h:80"), ("http://me@h:1", "http://me@h:1"), ("http://me:p%40%3a@h:1", "http://me:p%40%3a@h:1"),
        ("http://:p@h:1", "http://:p@h:1"), ("direct://", "direct://"), ("DIRECT:///", "direct://"),
    ])
    func `is read as libcurl takes it`(text: String, address: String) throws {
        let proxy = try ProxyAddress(text)
        #expect(proxy.text == address)
        #expect(proxy.choice == (address == "direct://" ? .direct : .through(address)))
        #expect(try ProxyAddress(proxy.text) == proxy)
    }

    @Test(arguments: [
        "", "host", "host:3128", "http:host", "//host", "socks://h", "ftp://h", "http://", "http:///", "http://@", "http://me@",
        "http://h:0",
        "http://h:65536", "http://h:1x", "http://h/p", "http://h?q", "http://h#f", "http://h:1 ", "http:// h", "http://a b@h",
        "http://[::1",
        "http://[x]", "http://me:%zz@h", "http://me:%0a@h", "http://me:\"@h", "http://ü:p@h", "http://hört", "http://h\\x", "direct://h",
        "http://\u{301}h", "http:\u{301}//h",
    ])
    func `is refused in any other form, without a word of it`(text: String) {
        do throws(Refusal) {
            _ = try ProxyAddress(text)
            Issue.record("\(text) is taken")
        } catch {
            #expect(error.name == .invalidOption && error.message.contains("proxy") && !error.message.contains("%zz"), "\(error.message)")
        }
    }

    @Test func `is known without its credentials`() throws {
        let proxy = try ProxyAddress("socks5h://me:word@[::1]:9050")
        #expect(proxy.hasCredentials && proxy.withoutCredentials.text == "socks5h://[::1]:9050")
        #expect("\(proxy)" == "socks5h://[::1]:9050")
        for text in ["direct://", "http://h:1"] {
            let plain = try ProxyAddress(text)
            #expect(!plain.hasCredentials && plain.withoutCredentials == plain)
        }
    }
}
