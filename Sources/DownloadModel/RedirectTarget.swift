extension DownloadURL {
    /// Where a redirect leads: the reference in a response's `Location`, resolved against the URL that was asked for (RFC 3986 §5.2).
    ///
    /// The field is bytes. Those outside ASCII go on percent-encoded, whatever charset they are of, and a `%` that begins no escape stays, as in
    /// browsers and curl. The fragment is dropped. User and password are read, as in any URL; the engine uses neither.
    ///
    /// - Throws: as `init(_:)`.
    public init(location: [UInt8], from base: DownloadURL) throws(Refusal) {
        var reference = location.drop(while: \.isBlank)
        while reference.last?.isBlank == true { reference.removeLast() }
        let hasScheme = reference.prefix { $0 != UInt8(ascii: "/") && $0 != UInt8(ascii: "?") && $0 != UInt8(ascii: "#") }
            .contains(UInt8(ascii: ":"))
        guard !hasScheme || reference.first == UInt8(ascii: ":") else {
            try self.init(bytes: reference)
            return
        }
        let authority = base.redacted.utf8.dropLast(base.path.utf8.count)
        let start: [UInt8] =
            switch reference.first {
            case UInt8(ascii: "/") where reference.dropFirst().first == UInt8(ascii: "/"): Array("\(base.scheme):".utf8)
            case UInt8(ascii: "/"): Array(authority)
            case UInt8(ascii: "?"): Array(base.redacted.utf8)
            case UInt8(ascii: "#"), nil: Array(base.text.utf8)
            default: Array(authority) + base.path.utf8.dropLast(base.lastPathComponent.utf8.count)
            }
        try self.init(bytes: (start + reference)[...])
    }
}
