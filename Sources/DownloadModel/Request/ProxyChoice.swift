/// How a request leaves this machine.
public enum ProxyChoice: Equatable, Sendable {
    case direct
    /// A proxy's URL, as libcurl takes it.
    case through(String)
    /// A proxy may be set, but it is unknown which one, so nothing is sent. The text completes "because …".
    case unknown(String)

    /// Reads the answer of GIO's resolver or the portal (`g_proxy_resolver_lookup`): URLs in the order of preference. Only the first
    /// counts, because the next one may be `direct://`.
    ///
    /// The proxy resolves names, as with GIO. A look-up on this machine would reveal to a name server every host that Tor must hide.
    public init(resolved urls: [String]) {
        guard let first = urls.first else {
            self = .unknown("the answer names no proxy")
            return
        }
        let scheme = first.prefix { $0 != ":" }.lowercased()
        let rest = first.dropFirst(scheme.utf8.count)
        guard rest.hasPrefix("://"), !rest.utf8.contains(where: { $0 <= 0x20 || $0 == 0x7F }) else {
            self = .unknown("the answer is not a URL")
            return
        }
        let authority = rest.dropFirst(3).prefix { $0 != "/" }
        guard !authority.isEmpty || scheme == "direct" else {
            self = .unknown("the answer names no host")
            return
        }
        switch scheme {
        case "direct": self = .direct
        case "http", "https": self = .through("\(scheme)://\(authority)")
        case "socks", "socks5", "socks5h": self = .through("socks5h://\(authority)")
        case "socks4", "socks4a": self = .through("socks4a://\(authority)")
        default: self = .unknown("\(scheme.prefix(20)) is not a kind of proxy that Todoku knows")
        }
    }
}

/// One entry of a list of hosts that need no proxy.
public enum ProxyException {
    /// Whether `entry` covers `host`, as in curl (`no_proxy`) and GIO (`ignore-hosts`).
    ///
    /// An entry is a name with the names below it (`example.org`, `.example.org`, `*.example.org`, `example.org.`), an address, or a range
    /// of addresses (`10.0.0.0/8`). A port may follow; an IPv6 address before it needs brackets. No name is looked up, so an address never
    /// covers a name.
    public static func covers(_ entry: String, host: String, port: UInt16) -> Bool {
        let host = host.hasSuffix(".") ? String(host.dropLast()) : host
        var entry = entry.lowercased()
        if let colon = entry.lastIndex(of: ":"), entry.hasPrefix("[") ? entry[..<colon].hasSuffix("]") : entry.firstIndex(of: ":") == colon
        {
            guard UInt16(entry[entry.index(after: colon)...]) == port else { return false }
            entry = String(entry[..<colon])
        }
        if entry.hasPrefix("["), entry.hasSuffix("]") { entry = String(entry.dropFirst().dropLast()) }
        if let address = bytes(host) { return covers(entry, address) }
        if entry.hasSuffix(".") { entry.removeLast() }
        let name = entry.hasPrefix("*.") ? entry.dropFirst(2) : entry.hasPrefix(".") ? entry.dropFirst() : entry[...]
        return !name.isEmpty && (host == name || host.hasSuffix(".\(name)"))
    }

    private static func covers(_ entry: String, _ address: [UInt8]) -> Bool {
        let parts = entry.split(separator: "/", maxSplits: 1, omittingEmptySubsequences: false)
        guard let network = bytes(String(parts[0])), network.count == address.count else { return false }
        let all = address.count * 8
        guard let length = parts.count == 2 ? Int(parts[1]) : all, (0...all).contains(length) else { return false }
        return (0..<length).allSatisfy { bit in
            let (difference, mask): (UInt8, UInt8) = (network[bit / 8] ^ address[bit / 8], 0x80 >> UInt8(bit % 8))
            return difference & mask == 0
        }
    }

    /// An address in network order.
    private static func bytes(_ text: String) -> [UInt8]? {
        if let address = IPv4Address(text) { return (0..<4).map { UInt8(truncatingIfNeeded: address.bits >> (24 - 8 * $0)) } }
        return IPv6Address(text)?.groups.flatMap { [UInt8($0 >> 8), UInt8(truncatingIfNeeded: $0)] }
    }
}
