/// The header fields that a caller may add to a request.
public enum RequestHeaders {
    /// - Parameter key: the option that has the fields, for the error's message.
    /// - Throws: `InvalidOption` for a name that is no token (RFC 9110 §5.1), a value with CR, LF or NUL, or a field that the service
    ///   sets; `LimitExceeded` over 64 KiB.
    public static func check(_ fields: [HeaderField], _ key: String) throws(Refusal) {
        var bytes = 0
        for field in fields {
            guard !field.name.isEmpty, field.name.utf8.allSatisfy(isTokenByte) else {
                throw Refusal(.invalidOption, "Option \(key): “\(shown(field.name))” is not a header name.")
            }
            guard !field.value.utf8.contains(where: { $0 == 13 || $0 == 10 || $0 == 0 }) else {
                throw Refusal(.invalidOption, "Option \(key): the value of “\(shown(field.name))” holds a line break.")
            }
            guard !ownFields.contains(field.name.lowercased()) else {
                throw Refusal(.invalidOption, "Option \(key): \(field.name) is set by the service itself.")
            }
            bytes +|= field.name.utf8.count +| field.value.utf8.count +| 4
        }
        guard bytes <= Limits.headerBytes else {
            throw Refusal(.limitExceeded, "Option \(key) takes at most \(Limits.headerBytes) bytes.")
        }
    }

    /// The fields (lower case) that only the service sets: they control ranges, codings and the connection. A caller's value would
    /// contradict the download's record.
    public static let ownFields: Set<String> = [
        "range", "if-range", "if-match", "if-none-match", "if-modified-since", "if-unmodified-since", "accept-encoding", "host",
        "connection", "keep-alive", "proxy-connection", "content-length", "transfer-encoding", "te", "trailer", "upgrade", "http2-settings",
        "expect", "proxy-authorization",
    ]

    /// RFC 9110 §5.6.2, tchar.
    static func isTokenByte(_ byte: UInt8) -> Bool { byte.isLetter || byte.isDigit || "!#$%&'*+-.^_`|~".utf8.contains(byte) }
}
