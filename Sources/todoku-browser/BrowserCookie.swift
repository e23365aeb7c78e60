internal import DownloadModel
internal import JSON

/// A cookie from the browser's cookie store.
struct BrowserCookie: Equatable, Sendable {
    /// The range of `expires`, which ends with the year 9999.
    private static let expiries: ClosedRange<Int64> = 0...253_402_300_799
    /// A host, or a domain with or without a dot before it.
    var domain: String
    /// Whether the browser sends the cookie to `domain` only, and not to the hosts below it.
    var isHostOnly: Bool
    var path: String
    /// Whether the browser sends the cookie over https only.
    var isSecure: Bool
    /// In seconds since the Unix epoch; 0: the cookie lasts until the browser exits.
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
    /// nil: the service would refuse this line, and with it the whole download. Browsers keep some cookies that the service refuses, such
    /// as a cookie without a name. A value with a tab cannot be written in this format.
    var line: String? {
        let host = String(domain.drop { $0 == "." })
        let fields = [
            isHostOnly ? host : ".\(host)", isHostOnly ? "FALSE" : "TRUE", path, isSecure ? "TRUE" : "FALSE", String(expires), name, value,
        ]
        let line = fields.joined(separator: "\t")
        return (try? Cookie(line: line)) == nil ? nil : line
    }
}
