extension Validator {
    /// Longest entity tag in bytes that is stored; a longer one is ignored.
    private static let longestTag = 1024

    /// The strong validator in a response's `ETag`, `Last-Modified` and `Date`. nil if there is none: a resume must then start from 0.
    ///
    /// A strong entity tag wins. A weak tag is never used, and it rules out the date. By RFC 9110 §13.1.5 a client must not send
    /// `If-Range` with a date unless it "has no entity tag for the corresponding representation". The date counts if §8.8.2.2 calls it
    /// strong: `Date` is later, with "enough difference between the Last-Modified and Date values to make clock synchronization issues
    /// unlikely". We require the 60 seconds of RFC 7232 §2.2.2.
    ///
    /// A tag whose bytes are not UTF-8 reaches us with U+FFFD in their place, so two different tags may look equal. Such a tag is not
    /// strong, and rules out the date as a weak tag does.
    public init?(entityTag: String?, lastModified: String?, date: String?) {
        if let entityTag = entityTag.map({ String($0.trimmingBlanks) }) {
            if Self.isStrong(entityTag) {
                self = .entityTag(entityTag)
                return
            }
            // Any tag left that is not weak is malformed, and is ignored.
            if entityTag.utf8.starts(with: "W/".utf8) || entityTag.unicodeScalars.contains("\u{FFFD}") { return nil }
        }
        guard let lastModified, let date, let modified = HTTPDate.parse(lastModified), let sent = HTTPDate.parse(date),
            sent >= modified + .seconds(60)
        else { return nil }
        self = .lastModified(String(lastModified.trimmingBlanks))
    }

    /// Whether a 206 response to a request with this validator can be of the same representation. An absent field is no contradiction; a
    /// different one is. Entity tags are compared strongly (§8.8.3.2), dates as instants.
    public func matches(entityTag: String?, lastModified: String?) -> Bool {
        switch self {
        case .entityTag(let own): return entityTag.map { $0.trimmingBlanks.isSameBytes(as: own) } ?? true
        case .lastModified(let own):
            guard let lastModified, !lastModified.trimmingBlanks.isSameBytes(as: own) else { return true }
            guard let theirs = HTTPDate.parse(lastModified), let ours = HTTPDate.parse(own) else { return false }
            return theirs == ours
        }
    }

    /// `DQUOTE *etagc DQUOTE` (§8.8.3).
    private static func isStrong(_ tag: String) -> Bool {
        let bytes = Array(tag.utf8)
        let quote = UInt8(ascii: "\"")
        guard (2...longestTag).contains(bytes.count), bytes.first == quote, bytes.last == quote else { return false }
        return !tag.unicodeScalars.contains("\u{FFFD}")
            && bytes[1..<(bytes.count - 1)].allSatisfy { $0 > 0x20 && $0 != quote && $0 != 0x7F }
    }
}
