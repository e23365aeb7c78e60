extension DownloadURL {
    /// The target of a redirect: the reference in a response's `Location`, resolved against the URL of the request (RFC 3986 §5.2).
    ///
    /// As in browsers and curl, bytes outside ASCII are percent-encoded, whatever their charset is, and a `%` that begins no escape stays.
    /// The fragment is dropped. User and password are parsed as in any URL, but the engine uses neither.
    ///
    /// As in browsers, `http:path` and `http:/path` are relative if their scheme is that of `base` (RFC 3986 §5.2.2, "backward
    /// compatibility"), so they stay on its host. curl reads the second as a host named "path". With another scheme they are refused. A
    /// backslash that makes browsers and curl connect to different hosts is refused, too.
    ///
    /// - Throws: as `init(_:)`.
    public init(location: [UInt8], from base: DownloadURL) throws(Refusal) {
        var reference = location.trimmingBlanks
        let beginning = reference.prefix { !"/?#\\".utf8.contains($0) }
        if let colon = beginning.firstIndex(of: UInt8(ascii: ":")), colon > reference.startIndex {
            let rest = reference[(colon + 1)...]
            guard String(decoding: reference[..<colon], as: UTF8.self).lowercased() == base.scheme, !rest.starts(with: "//".utf8) else {
                try self.init(bytes: reference)
                return
            }
            reference = rest
        }
        let slashes = reference.prefix(2)
        if slashes.count == 2, slashes.allSatisfy({ "/\\".utf8.contains($0) }), slashes.contains(UInt8(ascii: "\\")) {
            throw Self.backslash
        }
        if slashes.first == UInt8(ascii: "\\") { reference = "/".utf8 + reference.dropFirst() }
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
