/// A path with every byte percent-encoded except the unreserved ones (RFC 3986) and `/`.
public func percentEncoded(path: String) -> String { PercentEncoding.path(path) }

/// The `file:` URI of an absolute path (RFC 8089).
public func fileURI(of path: String) -> String { "file://" + percentEncoded(path: path) }

/// The path in a `file:` URI of this machine (RFC 8089); nil for any other text or host.
public func localPath(ofFileURI uri: String) -> String? {
    var rest = Substring(uri).utf8
    guard rest.count > 5, Substring(rest.prefix(5)).lowercased() == "file:" else { return nil }
    rest = rest.dropFirst(5)
    if rest.starts(with: "//".utf8) {
        rest = rest.dropFirst(2)
        let host = rest.prefix { $0 != UInt8(ascii: "/") }
        guard host.isEmpty || Substring(host).lowercased() == "localhost" else { return nil }
        rest = rest.dropFirst(host.count)
    }
    guard rest.first == UInt8(ascii: "/"), !rest.contains(where: { $0 == UInt8(ascii: "?") || $0 == UInt8(ascii: "#") }),
        let bytes = PercentEncoding.decode(rest), !bytes.contains(0)
    else { return nil }
    return String(validating: bytes, as: UTF8.self)
}
