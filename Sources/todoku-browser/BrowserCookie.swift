internal import JSON

/// A cookie of the browser.
struct BrowserCookie: Equatable, Sendable {
    /// Up to the last second of the year 9999.
    private static let expiries: ClosedRange<Int64> = 0...253_402_300_799
    /// Most bytes of name and value together, as in browsers.
    private static let longest = 4096
    /// Most bytes of a path, as in browsers.
    private static let longestPath = 1024

    /// A host, or a domain with or without a leading dot.
    var domain: String
    /// Whether the cookie is for `domain` only, and not for the hosts below.
    var isHostOnly: Bool
    var path: String
    /// Whether the cookie is for https only.
    var isSecure: Bool
    /// Seconds since the Unix epoch; 0: the cookie ends with the browser.
    var expires: Int64
    var name: String
    var value: String

    init(_ fields: JSONFields) throws(JSONError) {
        try fields.expectOnly(["domain", "host-only", "path", "secure", "expires", "name", "value"])
        domain = try fields.string("domain")
        isHostOnly = try fields.optionalBool("host-only") ?? false
        path = try fields.optionalString("path") ?? "/"
        isSecure = try fields.optionalBool("secure") ?? false
        expires = try fields.optionalInteger("expires", in: Self.expiries) ?? 0
        name = try fields.string("name")
        value = try fields.string("value")
    }

    /// The cookie as a line of the Netscape cookie file format, without its line end.
    ///
    /// nil: the service would refuse the line, and the whole download with it. Browsers keep cookies of old servers that RFC 6265 does not
    /// allow, such as one without a name. The format has no form for a tab.
    var line: String? {
        let host = domain.drop { $0 == "." }
        guard !host.isEmpty, Self.isName(name), !value.utf8.contains(UInt8(ascii: ";")), name.utf8.count <= Self.longest,
            value.utf8.count <= Self.longest &- name.utf8.count, path.utf8.first == UInt8(ascii: "/"), path.utf8.count <= Self.longestPath
        else { return nil }
        let fields = [
            isHostOnly ? String(host) : ".\(host)", isHostOnly ? "FALSE" : "TRUE", path, isSecure ? "TRUE" : "FALSE", String(expires), name,
            value,
        ]
        return fields.contains(where: Self.hasControlCharacter) ? nil : fields.joined(separator: "\t")
    }

    private static func isName(_ text: String) -> Bool { !text.isEmpty && !text.utf8.contains { "=; ".utf8.contains($0) } }

    private static func hasControlCharacter(_ text: String) -> Bool {
        text.unicodeScalars.contains { $0.value < 0x20 || (0x7f...0x9f).contains($0.value) }
    }
}
