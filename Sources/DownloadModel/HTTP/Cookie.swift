/// A cookie that a caller gives, as a line of the Netscape cookie file format, which curl, wget and browsers' extensions write. Seven
/// fields between tabs: domain, whether hosts below the domain get the cookie too, path, whether https only, expiry, name and value.
public struct Cookie: Hashable, Sendable {
    /// In lower case, without a dot before it. An IPv6 address has no brackets.
    public let domain: String
    /// Whether hosts below `domain` get the cookie, too. Never true for an address, and for a name without a dot, such as `localhost`.
    public let includesSubdomains: Bool
    /// Begins with "/".
    public let path: String
    /// Whether the cookie goes over https only.
    public let isSecure: Bool
    /// Whether the line began with `#HttpOnly_`, which means nothing to a downloader.
    public let isHTTPOnly: Bool
    /// In seconds since the Unix epoch, at most `Int64.max`; 0: the cookie does not expire.
    public let expiry: UInt64
    public let name: String
    /// May be empty.
    public let value: String

    /// The most bytes of name and value together, as in browsers.
    public static let longest = 4096
    private static let httpOnly = "#HttpOnly_"

    /// - Throws: `InvalidOption` with the fault, a sentence about the line. It never repeats the value.
    public init(line: String) throws(Refusal) {
        isHTTPOnly = line.utf8.starts(with: Self.httpOnly.utf8)
        guard isHTTPOnly || !Self.isComment(line) else { throw Self.fault("The line is a comment.") }
        guard !Self.holdsControl(line) else { throw Self.fault("The line has a control character in it.") }
        let text = line.utf8.dropFirst(isHTTPOnly ? Self.httpOnly.utf8.count : 0)
        let fields = text.split(separator: UInt8(ascii: "\t"), omittingEmptySubsequences: false).map { String(decoding: $0, as: UTF8.self) }
        guard fields.count == 7 else {
            throw Self.fault("A cookie has 7 fields between tabs, and this line has \(fields.count).")
        }
        guard let domain = Self.domain(fields[0]) else {
            throw Self.fault("Field 1, “\(shown(fields[0]))”, is not the name or address of a host.")
        }
        let isWide = try Self.flag(fields[1], 2)
        guard fields[2].utf8.first == UInt8(ascii: "/"), fields[2].utf8.count <= 1024 else {
            throw Self.fault("Field 3, the path, must begin with “/” and have at most 1,024 bytes.")
        }
        isSecure = try Self.flag(fields[3], 4)
        // Python's module http.cookiejar writes nothing for a cookie that does not expire.
        guard let expiry = fields[4].isEmpty ? 0 : decimal(fields[4].utf8, as: UInt64.self), expiry <= Int64.max.magnitude else {
            throw Self.fault("Field 5, the expiry, must be a number of seconds since 1970, or 0.")
        }
        (name, value) = (fields[5], fields[6])
        guard Self.isName(name) else {
            throw Self.fault("Field 6, the name, must not be empty, and has no “=”, no “;” and no space.")
        }
        guard !value.utf8.contains(UInt8(ascii: ";")) else { throw Self.fault("Field 7, the value of “\(shown(name))”, has a “;” in it.") }
        guard name.utf8.count +| value.utf8.count <= Self.longest else {
            throw Self.fault("Name and value of “\(shown(name))” have more than \(Self.longest) bytes.")
        }
        (self.domain, path, self.expiry) = (domain, fields[2], expiry)
        // A browser sends a cookie of a whole top-level domain to the host of that name only (RFC 6265, section 5.3, step 5).
        includesSubdomains = isWide && domain.utf8.contains(UInt8(ascii: ".")) && !Self.isAddress(domain)
        try checkPrefix()
    }

    /// The line. `Cookie(line: cookie.line)` is the same cookie.
    public var line: String {
        func flag(_ value: Bool) -> String { value ? "TRUE" : "FALSE" }
        let start = [isHTTPOnly ? Self.httpOnly : "", includesSubdomains ? "." : "", domain]
        return [start.joined(), flag(includesSubdomains), path, flag(isSecure), String(expiry), name, value].joined(separator: "\t")
    }

    public func isExpired(at now: WallTime) -> Bool { expiry != 0 && expiry <= now.microseconds / 1_000_000 }

    /// The site of a host or domain, as far as its text tells: the last two labels of a name, an address as it is. So all names below
    /// `co.uk` are one site.
    public static func site(of host: String) -> String {
        isAddress(host) ? host : host.split(separator: ".").suffix(2).joined(separator: ".")
    }

    /// Whether a line of a cookie file is a comment. A cookie of a browser may begin with `#HttpOnly_`.
    public static func isComment(_ line: String) -> Bool {
        line.utf8.first == UInt8(ascii: "#") && !line.utf8.starts(with: httpOnly.utf8)
    }

    /// Whether a download may have all of `cookies`.
    public static func fit(_ cookies: [Cookie]) -> Bool {
        cookies.count <= Limits.cookies && cookies.reduce(0) { $0 +| $1.line.utf8.count +| 1 } <= Limits.cookieBytes
    }
}

extension Cookie {
    private static func fault(_ sentence: String) -> Refusal { Refusal(.invalidOption, sentence) }

    /// RFC 6265bis, section 4.1.3. libcurl silently drops a cookie that breaks the rule of its prefix.
    private func checkPrefix() throws(Refusal) {
        let isOfHost = nameBegins(with: "__Host-")
        if isOfHost || nameBegins(with: "__Secure-"), !isSecure {
            throw Self.fault("Field 4 must be TRUE, because the name “\(shown(name))” promises https.")
        }
        if isOfHost, includesSubdomains || path != "/" {
            throw Self.fault("The name “\(shown(name))” needs FALSE as field 2 and the path “/”.")
        }
    }

    /// Whether the name begins with the bytes of `prefix`, in upper or lower case. A combining mark may follow the hyphen.
    private func nameBegins(with prefix: String) -> Bool {
        name.utf8.prefix(prefix.utf8.count).elementsEqual(prefix.utf8) { $0 | 0x20 == $1 | 0x20 }
    }

    private static func flag(_ text: String, _ field: Int) throws(Refusal) -> Bool {
        switch text.uppercased() {
        case "TRUE": return true
        case "FALSE": return false
        default: throw fault("Field \(field) must be TRUE or FALSE.")
        }
    }

    /// Whether the text holds a control character other than a tab (Unicode's category Cc).
    private static func holdsControl(_ line: String) -> Bool {
        line.unicodeScalars.contains { $0.value != 9 && ($0.value < 0x20 || (0x7F...0x9F).contains($0.value)) }
    }

    private static func isName(_ text: String) -> Bool {
        !text.isEmpty && !text.utf8.contains { $0 == UInt8(ascii: "=") || $0 == UInt8(ascii: ";") || $0 == UInt8(ascii: " ") }
    }

    /// Whether `host` is an IPv4 or IPv6 address.
    private static func isAddress(_ host: String) -> Bool { IPv4Address(host) != nil || host.utf8.contains(UInt8(ascii: ":")) }

    /// The domain without a dot before it, in lower case; nil if it cannot be a host's.
    private static func domain(_ text: String) -> String? {
        var bytes = Array(text.utf8)
        if bytes.first == UInt8(ascii: "[") || bytes.contains(UInt8(ascii: ":")) {
            if bytes.first == UInt8(ascii: "["), bytes.last == UInt8(ascii: "]") { bytes = Array(bytes.dropFirst().dropLast()) }
            return IPv6Address(String(decoding: bytes, as: UTF8.self))?.description
        }
        if bytes.first == UInt8(ascii: ".") { bytes.removeFirst() }
        guard let first = bytes.first, first != UInt8(ascii: "."), bytes.count <= 253,
            bytes.allSatisfy({ $0.isLetter || $0.isDigit || "-._".utf8.contains($0) })
        else { return nil }
        return String(decoding: bytes, as: UTF8.self).lowercased()
    }
}
