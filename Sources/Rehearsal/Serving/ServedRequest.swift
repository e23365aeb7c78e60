internal import DownloadModel

/// A request of HTTP/1.1 (RFC 9112) for a file, as far as a `LoopbackServer` answers it. Pure.
struct ServedRequest: Equatable {
    static let longestHead = 8 << 10

    enum Reading: Equatable {
        /// The head is not complete.
        case incomplete
        /// The request and the bytes of its head.
        case request(ServedRequest, length: Int)
        /// What to answer before the connection is closed.
        case refused(status: Int)
    }

    let isHead: Bool
    /// The bare name of a file; nil: the path is no file's.
    let name: String?
    /// What the target has behind its first question mark, as it was sent; nil: there is none.
    let query: String?
    let keepsAlive: Bool
    /// By lower-case name. Of a field that is there several times, the values are joined by a comma.
    let fields: [String: String]

    static func read(_ bytes: [UInt8]) -> Reading {
        let end = Array("\r\n\r\n".utf8)
        guard let place = bytes.prefix(longestHead).firstRange(of: end) else {
            return bytes.count < longestHead ? .incomplete : .refused(status: 431)
        }
        guard let text = String(validating: bytes[..<place.lowerBound], as: UTF8.self), !text.unicodeScalars.contains("\0") else {
            return .refused(status: 400)
        }
        // "\r\n" is one character of Swift.
        let lines = text.split(separator: "\r\n", omittingEmptySubsequences: false)
        let words = lines[0].split(separator: " ", omittingEmptySubsequences: false)
        guard words.count == 3, words[2].hasPrefix("HTTP/"), !text.contains(where: { $0 == "\n" || $0 == "\r" }) else {
            return .refused(status: 400)
        }
        guard words[2] == "HTTP/1.1" || words[2] == "HTTP/1.0" else { return .refused(status: 505) }
        var fields: [String: String] = [:]
        for line in lines.dropFirst() {
            guard let colon = line.firstIndex(of: ":"), colon > line.startIndex,
                !line[..<colon].contains(where: { $0.isWhitespace })
            else { return .refused(status: 400) }
            let value = String(line[line.index(after: colon)...].trimmingBlanks)
            fields.merge([line[..<colon].lowercased(): value]) { "\($0), \($1)" }
        }
        guard words[0] == "GET" || words[0] == "HEAD" else { return .refused(status: 405) }
        // No file is asked for with a body. Its bytes would be read as the next request.
        guard fields["transfer-encoding"] == nil, fields["content-length"] ?? "0" == "0" else { return .refused(status: 400) }
        guard let host = fields["host"] ?? (words[2] == "HTTP/1.0" ? "localhost" : nil) else { return .refused(status: 400) }
        // A web page must not read unpublished data by a name of its own that leads here.
        guard isLoopback(host) else { return .refused(status: 421) }
        let connection = fields["connection"]?.lowercased() ?? ""
        let request = ServedRequest(
            isHead: words[0] == "HEAD", name: fileName(words[1]), query: query(words[1]),
            keepsAlive: words[2] == "HTTP/1.1" && !connection.contains("close"), fields: fields)
        return .request(request, length: place.upperBound)
    }

    private static func isLoopback(_ host: String) -> Bool {
        let name = host.lowercased().prefix { $0 != ":" }
        return name == "127.0.0.1" || name == "localhost" || host.hasPrefix("[::1]")
    }

    /// The one segment of the path, decoded. Files that begin with a dot are not served.
    private static func fileName(_ target: Substring) -> String? {
        let path = target.prefix { $0 != "?" && $0 != "#" }
        guard path.first == "/" else { return nil }
        guard let bytes = PercentEncoding.decode(path.dropFirst().utf8), let name = String(validating: bytes, as: UTF8.self),
            FileName.isBare(name)
        else { return nil }
        return name
    }

    private static func query(_ target: Substring) -> String? {
        let parts = target.prefix { $0 != "#" }.split(separator: "?", maxSplits: 1, omittingEmptySubsequences: false)
        return parts.count == 2 ? String(parts[1]) : nil
    }

    // MARK: Conditions (RFC 9110 §13) and ranges (§14)

    enum Answer: Equatable {
        case whole, notModified, preconditionFailed, unsatisfiable
        case part(Range<UInt64>)
    }

    /// - Parameters:
    ///   - tag: the file's strong entity tag, with quotes.
    ///   - modified: when the file was changed, in whole seconds.
    func answer(tag: String, modified: WallTime, size: UInt64) -> Answer {
        if let tags = fields["if-match"] {
            guard Self.list(tags).contains(where: { $0 == "*" || $0 == tag }) else { return .preconditionFailed }
        } else if let date = fields["if-unmodified-since"].flatMap({ HTTPDate.parse($0) }), modified > date {
            return .preconditionFailed
        }
        if let tags = fields["if-none-match"] {
            // The weak comparison: W/"…" counts, too.
            if Self.list(tags).contains(where: { $0 == "*" || $0 == tag || $0 == "W/\(tag)" }) { return .notModified }
        } else if let date = fields["if-modified-since"].flatMap({ HTTPDate.parse($0) }), modified <= date {
            return .notModified
        }
        guard let field = fields["range"], let range = Self.range(field, of: size) else { return .whole }
        if let condition = fields["if-range"] {
            guard condition == tag || HTTPDate.parse(condition) == modified else { return .whole }
        }
        return range.isEmpty ? .unsatisfiable : .part(range)
    }

    private static func list(_ field: String) -> [String] { field.split(separator: ",").map { String($0.trimmingBlanks) } }

    /// One range of bytes; empty: the file has none of them. nil: several, or no range at all, which is ignored.
    static func range(_ field: String, of size: UInt64) -> Range<UInt64>? {
        guard field.lowercased().hasPrefix("bytes=") else { return nil }
        let parts = field.dropFirst(6).split(separator: "-", omittingEmptySubsequences: false).map { String($0.trimmingBlanks) }
        guard parts.count == 2, !parts[0].contains(","), !parts[1].contains(",") else { return nil }
        if parts[0].isEmpty {
            guard let count = decimal(parts[1].utf8, as: UInt64.self) else { return nil }
            return (size -| count)..<size
        }
        guard let first = decimal(parts[0].utf8, as: UInt64.self) else { return nil }
        guard !parts[1].isEmpty else { return min(first, size)..<size }
        guard let last = decimal(parts[1].utf8, as: UInt64.self), last >= first else { return nil }
        let end = min(last +| 1, size)
        return min(first, end)..<end
    }
}
