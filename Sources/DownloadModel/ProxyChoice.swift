/// By which way a request goes out, as the desktop's settings say.
public enum ProxyChoice: Equatable, Sendable {
    case direct
    /// A proxy's URL, as libcurl takes it.
    case through(String)
    /// A proxy may be set, and which one cannot be told: never straight to the host. The text completes "because …".
    case unknown(String)

    /// What GIO's resolver answers (`g_proxy_resolver_lookup`): URLs in the order of preference, of which the first counts.
    ///
    /// A name is looked up by the SOCKS proxy, not here: who set Tor would tell the name server all hosts.
    public init(resolved urls: [String]) {
        guard let first = urls.first else {
            self = .unknown("the answer was empty")
            return
        }
        let scheme = first.prefix { $0 != ":" }.lowercased()
        let rest = first.dropFirst(scheme.utf8.count)
        guard rest.hasPrefix("://"), !rest.utf8.contains(where: { $0 <= 0x20 || $0 == 0x7F }) else {
            self = .unknown("the answer is no URL")
            return
        }
        switch scheme {
        case "direct": self = .direct
        case "http", "https": self = .through(first)
        case "socks", "socks5", "socks5h": self = .through("socks5h\(rest)")
        case "socks4", "socks4a": self = .through("socks4a\(rest)")
        default: self = .unknown("\(scheme.prefix(20)) is no kind of proxy that Todoku knows")
        }
    }
}
