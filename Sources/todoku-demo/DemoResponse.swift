/// The response to a request for the demo file (RFC 9110 §13.1.5, §14).
struct DemoResponse {
    let status: String
    /// Bytes of the file that follow the head.
    let body: Range<UInt64>
    /// Content-Length.
    let length: UInt64
    let contentRange: String?
    /// Whether the head describes the file.
    let isFile: Bool

    /// - Parameter fields: the request's fields, by name in lower case.
    init(method: String, target: String, fields: [String: String], file: DemoFile) {
        func bare(_ status: String, range: String? = nil) -> DemoResponse {
            DemoResponse(status: status, body: 0..<0, length: 0, contentRange: range, isFile: false)
        }
        guard method == "GET" || method == "HEAD" else {
            self = bare("405 Method Not Allowed")
            return
        }
        guard target == DemoExchange.path else {
            self = bare("404 Not Found")
            return
        }
        let isCurrent = fields["if-range"].map { $0 == file.entityTag } ?? true
        guard isCurrent, method == "GET", let asked = fields["range"].flatMap({ Self.range($0, of: file.size) }) else {
            self = DemoResponse(
                status: "200 OK", body: method == "GET" ? 0..<file.size : 0..<0, length: file.size, contentRange: nil, isFile: true)
            return
        }
        guard !asked.isEmpty else {
            self = bare("416 Range Not Satisfiable", range: "bytes */\(file.size)")
            return
        }
        let text = "bytes \(asked.lowerBound)-\(asked.upperBound - 1)/\(file.size)"
        self = DemoResponse(status: "206 Partial Content", body: asked, length: UInt64(asked.count), contentRange: text, isFile: true)
    }

    private init(status: String, body: Range<UInt64>, length: UInt64, contentRange: String?, isFile: Bool) {
        (self.status, self.body, self.length, self.contentRange, self.isFile) = (status, body, length, contentRange, isFile)
    }

    /// Reads a `Range` field with one range. An empty result cannot be satisfied; nil means that the field must be ignored.
    private static func range(_ field: String, of size: UInt64) -> Range<UInt64>? {
        guard field.hasPrefix("bytes=") else { return nil }
        let ends = field.dropFirst("bytes=".count).split(separator: "-", omittingEmptySubsequences: false)
        guard ends.count == 2 else { return nil }
        if ends[0].isEmpty { return UInt64(ends[1]).map { size - min(size, $0)..<size } }
        guard let first = UInt64(ends[0]) else { return nil }
        guard let last = ends[1].isEmpty ? .max : UInt64(ends[1]), first <= last else { return nil }
        return first < size ? first..<min(last, size - 1) + 1 : 0..<0
    }
}
