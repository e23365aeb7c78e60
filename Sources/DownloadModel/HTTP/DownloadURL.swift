/// A strict absolute http or https URL (RFC 3986).
///
/// A path or query may hold characters that RFC 3986 does not allow. As in browsers (URL Standard, section 1.3), these are percent-encoded:
/// space, `"`, `<`, `>`, bytes outside ASCII and, in the path, ``^`{}``. Others, such as brackets, stay as they are, because a server may
/// have signed them. A `%` that begins no escape stays as it is. Blanks around the URL are dropped. A backslash in the path becomes "/".
///
/// Anything else that is malformed is refused. So is a URL whose host programs read differently (`http:/a/b`, `http:///a`, a backslash
/// before the path). Two URLs are equal if they differ only in the case of scheme and host, in the default port, in dot segments or in the
/// fragment.
public struct DownloadURL: Hashable, Sendable {
    /// "http" or "https".
    public let scheme: String
    /// In lower case. An IPv6 address has no brackets and is in its shortest form (RFC 5952).
    public let host: String
    /// The scheme's default port if the URL names none; never 0.
    public let port: UInt16
    /// Percent-decoded, without colon and control characters; nil if the URL has none.
    public let username: String?
    /// Percent-decoded, without control characters; nil if the URL has none.
    public let password: String?
    /// Percent-encoded as above, without dot segments. Begins with "/".
    public let path: String
    /// Percent-encoded as above, without its "?".
    public let query: String?

    /// - Throws: `InvalidUrl`, `UnsupportedScheme`, or `LimitExceeded` if the URL, as given or percent-encoded, is longer than
    ///   `Limits.urlBytes`. No message repeats user, password, path or query.
    public init(_ given: String) throws(Refusal) {
        guard given.utf8.count <= Limits.urlBytes else { throw Self.tooLong }
        var rest = Array(given.utf8)[...]
        rest = rest.drop { $0 == 0x20 }
        while rest.last == 0x20 { rest.removeLast() }
        guard !Self.holdsControl(rest) else {
            throw Self.invalid("The URL has a control character in it, such as a line break; copy it again.")
        }
        try self.init(bytes: rest)
    }

    /// Takes an absolute URL without blanks around it. Bytes outside ASCII are percent-encoded, whatever their charset is.
    init(bytes: ArraySlice<UInt8>) throws(Refusal) {
        guard bytes.count <= Limits.urlBytes else { throw Self.tooLong }
        var rest = bytes
        guard !rest.contains(where: \.isControl) else {
            throw Self.invalid("The URL has a control character in it, such as a line break; copy it again.")
        }
        scheme = try Self.takeScheme(&rest)
        guard !rest.prefix(2).contains(UInt8(ascii: "\\")) else { throw Self.backslash }
        guard rest.starts(with: "//".utf8) else {
            throw Self.invalid("The URL has no \"//\" after \"\(scheme):\"; write it as in https://example.org/file.")
        }
        rest = rest.dropFirst(2)

        let authorityEnd = rest.firstIndex { "/?#".utf8.contains($0) } ?? rest.endIndex
        var authority = rest[..<authorityEnd]
        rest = rest[authorityEnd...]
        guard !authority.contains(UInt8(ascii: "\\")) else { throw Self.backslash }
        if let at = authority.lastIndex(of: UInt8(ascii: "@")) {
            (username, password) = try Self.userInformation(authority[..<at])
            authority = authority[(at + 1)...]
        } else {
            (username, password) = (nil, nil)
        }
        let portText: ArraySlice<UInt8>?
        (host, portText) = try Self.hostAndPort(authority)
        if let portText, !portText.isEmpty {
            guard let number = decimal(portText, as: UInt16.self), number > 0 else {
                throw Self.invalid("The port in the URL is not a number from 1 to 65535.")
            }
            port = number
        } else {
            port = Self.defaultPort(scheme)
        }

        rest = rest[..<(rest.firstIndex(of: UInt8(ascii: "#")) ?? rest.endIndex)]
        let pathEnd = rest.firstIndex(of: UInt8(ascii: "?")) ?? rest.endIndex
        let slashed = rest[..<pathEnd].map { $0 == UInt8(ascii: "\\") ? UInt8(ascii: "/") : $0 }
        path = Self.withoutDotSegments(Self.complete(slashed[...], marks: "/:@[]|"))
        query = pathEnd == rest.endIndex ? nil : Self.complete(rest[(pathEnd + 1)...], marks: "/:@?[]\\^`{|}")
        // Percent-encoding makes at most three bytes of one.
        guard bytes.count < Limits.urlBytes / 8 || text.utf8.count <= Limits.urlBytes else { throw Self.tooLong }
    }

    /// The absolute URL without user, password and fragment, and without a default port. `DownloadURL(url.text)` is the same URL.
    public var text: String { redacted + (query.map { "?" + $0 } ?? "") }

    /// `text` without its query. Safe to put into properties, logs and extended attributes.
    public var redacted: String {
        "\(scheme)://\(bracketedHost)\(port == Self.defaultPort(scheme) ? "" : ":\(port)")\(path)"
    }

    /// "https://example.org:443": the origin to which credentials may be sent (RFC 6454).
    public var origin: String { "\(scheme)://\(bracketedHost):\(port)" }

    /// The part of the path after the last "/", still percent-encoded; may be empty.
    public var lastPathComponent: String { String(path[path.index(after: path.lastIndex(of: "/") ?? path.startIndex)...]) }

    /// Whether the host is a literal loopback, private or link-local address, or is `localhost`. No name is looked up.
    public var isHostLiteralPrivate: Bool { isPrivateAddress(host) }

    /// The host of a URL in the form of `text`; the rest of the URL is not checked. Empty if `text` is no such URL.
    public static func host(of text: String) -> String {
        let bytes = text.utf8
        guard let colon = bytes.firstIndex(of: UInt8(ascii: ":")), bytes[colon...].starts(with: "://".utf8) else { return "" }
        let authority = bytes[bytes.index(colon, offsetBy: 3)...].prefix { $0 != UInt8(ascii: "/") && $0 != UInt8(ascii: "?") }
        // An IPv6 address holds colons, and so may user information: parse the whole URL.
        guard authority.first != UInt8(ascii: "["), !authority.contains(UInt8(ascii: "@")) else {
            return (try? DownloadURL(text).host) ?? ""
        }
        return String(decoding: authority.prefix { $0 != UInt8(ascii: ":") }, as: UTF8.self)
    }

    /// The `origin` of a URL in the form of `text`; the rest of the URL is not checked. Empty if `text` is no such URL.
    public static func origin(of text: String) -> String {
        guard let colon = text.utf8.firstIndex(of: UInt8(ascii: ":")), text.utf8[colon...].starts(with: "://".utf8) else { return "" }
        let scheme = text.utf8[..<colon]
        let start = text.utf8.index(colon, offsetBy: 3)
        var authority = text.utf8[start...].prefix { !"/?#".utf8.contains($0) }
        if let at = authority.lastIndex(of: UInt8(ascii: "@")) { authority = authority[authority.index(after: at)...] }
        let end = authority.lastIndex(of: UInt8(ascii: "]")) ?? authority.startIndex
        let hasPort = authority[end...].contains(UInt8(ascii: ":"))
        let port = hasPort ? "" : scheme.elementsEqual("https".utf8) ? ":443" : ":80"
        return String(decoding: scheme, as: UTF8.self) + "://" + String(decoding: authority, as: UTF8.self) + port
    }

    /// Caches the host and origin of the last URL, keyed by the URL's text up to its path.
    package struct Authority {
        private var start: [UInt8] = []
        private var host = ""
        /// `DownloadURL.origin(of:)` of the last URL.
        package private(set) var origin = ""

        package init() {}

        /// `DownloadURL.host(of:)` of `text`; fast if `text` has the same scheme and authority as the URL before. Never nil.
        package mutating func host(of text: String) -> String? {
            let isSame = text.utf8.withContiguousStorageIfAvailable { bytes in
                guard !start.isEmpty, bytes.count >= start.count else { return false }
                for index in start.indices where bytes[index] != start[index] { return false }
                return true
            }
            if isSame ?? false { return host }
            (host, origin) = (DownloadURL.host(of: text), DownloadURL.origin(of: text))
            let bytes = text.utf8
            guard let colon = bytes.firstIndex(of: UInt8(ascii: ":")),
                let slash = bytes[colon...].dropFirst(3).firstIndex(of: UInt8(ascii: "/"))
            else {
                start = []
                return host
            }
            start = Array(bytes[...slash])
            return host
        }
    }

    private var bracketedHost: String { host.utf8.contains(UInt8(ascii: ":")) ? "[\(host)]" : host }

    private static func defaultPort(_ scheme: String) -> UInt16 { scheme == "https" ? 443 : 80 }
}

extension DownloadURL: CustomStringConvertible {
    /// `redacted`, so that a URL that is logged by mistake leaks no secret.
    public var description: String { redacted }
}

extension DownloadURL {
    private static func invalid(_ message: String) -> Refusal { Refusal(.invalidUrl, message) }

    /// Browsers read a backslash as "/"; most other programs do not. The two would connect to different hosts.
    static var backslash: Refusal {
        invalid("The URL has a backslash before its path, where programs disagree about its host; write \"/\".")
    }

    private static var tooLong: Refusal {
        Refusal(.limitExceeded, "The URL is longer than \(Limits.urlBytes) bytes, which is the limit.")
    }

    /// Whether the text holds a character of Unicode's category Cc: U+0000 to U+001F, or U+007F to U+009F.
    private static func holdsControl(_ utf8: ArraySlice<UInt8>) -> Bool {
        var before: UInt8 = 0
        for byte in utf8 {
            if byte.isControl || before == 0xC2 && (0x80...0x9F).contains(byte) { return true }
            before = byte
        }
        return false
    }

    private static func takeScheme(_ rest: inout ArraySlice<UInt8>) throws(Refusal) -> String {
        let notAbsolute = invalid("This is not an absolute URL; write it with its scheme, as in https://example.org/file.")
        let name = rest.prefix { $0 != UInt8(ascii: ":") }
        // RFC 3986 §3.1; no registered scheme is longer than 32 characters.
        guard name.count < rest.count, name.count <= 32, let first = name.first, first.isLetter,
            name.allSatisfy({ $0.isLetter || $0.isDigit || "+-.".utf8.contains($0) })
        else { throw notAbsolute }
        let scheme = String(decoding: name, as: UTF8.self).lowercased()
        rest = rest.dropFirst(name.count + 1)
        guard scheme == "http" || scheme == "https" else {
            // "example.org:8080/file" and "localhost:80" are a host and a port without a scheme.
            if let next = rest.first, next.isDigit, scheme == "localhost" || scheme.contains(".") { throw notAbsolute }
            throw Refusal(.unsupportedScheme, "\(scheme): only http and https can be downloaded.")
        }
        return scheme
    }

    private static func userInformation(_ bytes: ArraySlice<UInt8>) throws(Refusal) -> (String?, String?) {
        guard !bytes.isEmpty else { return (nil, nil) }
        let parts = bytes.split(separator: UInt8(ascii: ":"), maxSplits: 1, omittingEmptySubsequences: false)
        func decoded(_ part: ArraySlice<UInt8>) throws(Refusal) -> String {
            guard part.allSatisfy({ $0.isPlainInURL || $0 == UInt8(ascii: ":") || $0 == UInt8(ascii: "%") }),
                let bytes = PercentEncoding.decode(part), let text = String(validating: bytes, as: UTF8.self)
            else {
                throw invalid(
                    "The user name or password in the URL has a character that must be percent-encoded; "
                        + "encode it, or give the options username and password.")
            }
            guard !bytes.contains(where: \.isControl) else {
                throw invalid("The user name or password in the URL has a control character in it.")
            }
            return text
        }
        let username = try decoded(parts[0])
        // RFC 7617 §2: a user name with a colon cannot be sent.
        guard !username.utf8.contains(UInt8(ascii: ":")) else { throw invalid("The user name in the URL has a colon in it.") }
        return (username, parts.count > 1 ? try decoded(parts[1]) : nil)
    }

    private static func hostAndPort(_ authority: ArraySlice<UInt8>) throws(Refusal) -> (String, ArraySlice<UInt8>?) {
        if authority.first == UInt8(ascii: "[") {
            guard let close = authority.firstIndex(of: UInt8(ascii: "]")),
                let address = IPv6Address(String(decoding: authority[(authority.startIndex + 1)..<close], as: UTF8.self))
            else { throw invalid("The URL's host in brackets is not an IPv6 address.") }
            let after = authority[(close + 1)...]
            guard after.isEmpty || after.first == UInt8(ascii: ":") else {
                throw invalid("The URL has something other than a port after the brackets of its host.")
            }
            return (address.description, after.isEmpty ? nil : after.dropFirst())
        }
        let colon = authority.firstIndex(of: UInt8(ascii: ":")) ?? authority.endIndex
        return (try hostName(authority[..<colon]), colon == authority.endIndex ? nil : authority[(colon + 1)...])
    }

    /// A DNS name (RFC 1123 §2.1; underscores are allowed, because they occur in practice) or an IPv4 address of four decimal numbers.
    private static func hostName(_ bytes: ArraySlice<UInt8>) throws(Refusal) -> String {
        guard !bytes.isEmpty else { throw invalid("The URL has no host; write it as in https://example.org/file.") }
        guard bytes.allSatisfy({ $0 < 0x80 }) else {
            throw invalid("The URL's host has characters outside ASCII; give its xn-- form.")
        }
        guard bytes.allSatisfy({ $0.isLetter || $0.isDigit || "-._".utf8.contains($0) }) else {
            throw invalid("The URL's host has a character that no host name has; only letters, digits, \"-\", \"_\" and \".\" are allowed.")
        }
        let name = String(decoding: bytes, as: UTF8.self).lowercased()
        var labels = name.utf8.split(separator: UInt8(ascii: "."), omittingEmptySubsequences: false)
        if labels.count > 1, labels.last?.isEmpty == true { labels.removeLast() }  // the DNS root's dot
        guard bytes.count <= 254, labels.allSatisfy({ (1...63).contains($0.count) }) else {
            throw invalid("The URL's host has an empty or too long part between its dots.")
        }
        // Resolvers read a host that ends in a number as an address, in several spellings ("0x7f.1"). Only four decimal numbers are
        // accepted.
        if let last = labels.last, last.first?.isDigit == true, last.allSatisfy(\.isDigit) || last.starts(with: "0x".utf8) {
            guard IPv4Address(name) != nil else {
                throw invalid("The URL's host is neither a name nor an IPv4 address of four decimal numbers.")
            }
        }
        return name
    }

    private static func complete(_ bytes: ArraySlice<UInt8>, marks: String) -> String {
        PercentEncoding.complete(bytes, isAllowed: { $0.isPlainInURL || marks.utf8.contains($0) })
    }

    /// RFC 3986 §5.2.4, percent-encoded dots included. The result begins with "/".
    private static func withoutDotSegments(_ path: String) -> String {
        var before: UInt8 = 0
        let mayHaveSome = path.utf8.contains { byte in
            defer { before = byte }
            return before == UInt8(ascii: "/") && (byte == UInt8(ascii: ".") || byte == UInt8(ascii: "%"))
        }
        guard mayHaveSome || path.isEmpty else { return path }
        var kept: [Substring] = []
        let segments = path.split(separator: "/", omittingEmptySubsequences: false).dropFirst()
        for (index, segment) in zip(segments.indices, segments) {
            let isLast = index == segments.endIndex - 1
            switch segment.lowercased() {
            case ".", "%2e":
                if isLast { kept.append("") }
            case "..", ".%2e", "%2e.", "%2e%2e":
                _ = kept.popLast()
                if isLast { kept.append("") }
            default: kept.append(segment)
            }
        }
        return "/" + kept.joined(separator: "/")
    }
}
