/// The proxy of one download, as the option `proxy` names it.
public struct ProxyAddress: Hashable, Sendable {
    /// `direct://`, or `SCHEME://[USER[:PASSWORD]@]HOST[:PORT]` as libcurl takes it; scheme and host in lower case. ASCII only.
    public let text: String

    private static let direct = "direct://"
    /// curl's words: with `socks4a` and `socks5h` the proxy resolves names, with `socks4` and `socks5` this machine does.
    private static let schemes = ["http", "https", "socks4", "socks4a", "socks5", "socks5h"]

    private init(checked text: String) { self.text = text }

    /// Reads the option `proxy`.
    ///
    /// - Throws: `InvalidOption`. The message repeats nothing of `text`, which may contain a password.
    public init(_ text: String) throws(Refusal) {
        func invalid(_ fault: String) -> Refusal { Refusal(.invalidOption, "Option proxy \(fault)") }
        let parts = text.split(separator: ":", maxSplits: 1, omittingEmptySubsequences: false)
        guard parts.count == 2, parts[1].utf8.starts(with: "//".utf8) else {
            throw invalid("must be a URL with its scheme, such as http://host:3128, socks5h://host:1080 or direct://.")
        }
        let scheme = parts[0].lowercased()
        var authority = parts[1].utf8.dropFirst(2)
        if authority.last == UInt8(ascii: "/") { authority.removeLast() }
        if scheme == "direct" {
            guard authority.isEmpty else { throw invalid("has a host after direct://, which means no proxy; leave the host out.") }
            self.init(checked: Self.direct)
            return
        }
        guard Self.schemes.contains(scheme) else {
            throw invalid("has a scheme that Todoku does not know; use one of \(Self.schemes.joined(separator: ", ")), direct.")
        }
        guard !authority.contains(where: { "/?#".utf8.contains($0) }) else { throw invalid("has a path or a query; leave it out.") }
        guard !authority.contains(where: { $0 <= 0x20 || $0 >= 0x7F }) else {
            throw invalid("has a blank or a character outside ASCII; write the password with percent-encoding.")
        }
        let at = authority.lastIndex(of: UInt8(ascii: "@"))
        let place = at.map { authority[authority.index(after: $0)...] } ?? authority
        let user = at.map { authority[..<$0] } ?? authority[..<authority.startIndex]
        let url: DownloadURL
        do throws(Refusal) { url = try DownloadURL("http://\(String(decoding: place, as: UTF8.self))/") } catch {
            throw Refusal(.invalidOption, "Option proxy: \(error.message)")
        }
        let userText = String(decoding: user, as: UTF8.self)
        guard user.isEmpty || (try? DownloadURL("http://\(userText)@host/")) != nil else {
            throw invalid(
                "has a user name or password that cannot be sent; percent-encode special characters, and use no control character, nor a "
                    + "colon in the name.")
        }
        let tail = place.lastIndex(of: UInt8(ascii: "]")).map { place[$0...] } ?? place
        let hasPort = tail.contains(UInt8(ascii: ":")) && tail.last != UInt8(ascii: ":")
        let host = url.host.contains(":") ? "[\(url.host)]" : url.host
        self.init(checked: "\(scheme)://\(user.isEmpty ? "" : "\(userText)@")\(host)\(hasPort ? ":\(url.port)" : "")")
    }

    public var choice: ProxyChoice { text == Self.direct ? .direct : .through(text) }

    public var hasCredentials: Bool { text.utf8.contains(UInt8(ascii: "@")) }

    /// The same proxy without user name and password.
    public var withoutCredentials: ProxyAddress {
        let parts = text.split(separator: "/", omittingEmptySubsequences: false)
        guard parts.count == 3, let at = parts[2].lastIndex(of: "@") else { return self }
        return ProxyAddress(checked: "\(parts[0])//\(parts[2][parts[2].index(after: at)...])")
    }
}

extension ProxyAddress: CustomStringConvertible {
    /// Without credentials, so that an address that is logged by mistake leaks no secret.
    public var description: String { withoutCredentials.text }
}
