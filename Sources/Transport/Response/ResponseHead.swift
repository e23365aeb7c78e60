package import DownloadModel

/// The response head is larger than `ResponseHead`'s limits.
package struct HeadTooLarge: Error {}

/// The status and fields of one response, read line by line.
package struct ResponseHead {
    /// Most bytes and most fields of one response's head.
    static let byteLimit = 256 * 1024
    static let fieldLimit = 1000

    package private(set) var status: UInt32 = 0
    private var isHTTP10 = false
    package private(set) var isComplete = false
    private var bytes = 0
    /// About the memory that libcurl needs for the cookies of the exchange's responses: their bytes, and `cookieCost` for each.
    package private(set) var cookieBytes = 0
    package static let cookieCost = 200
    private var fields: [(name: String, value: [UInt8])] = []

    package init() {}

    /// Reads one line with its line end. A status line starts a new response (after a 1xx, or after an answer that libcurl handles itself).
    package mutating func take(_ line: UnsafeRawBufferPointer) throws(HeadTooLarge) {
        bytes +|= line.count
        guard bytes <= Self.byteLimit else { throw HeadTooLarge() }
        var text = line[...]
        while let last = text.last, last == 0x0D || last == 0x0A { text = text.dropLast() }
        if isStatusLine(text) {
            begin(text)
        } else if text.isEmpty {
            isComplete = true
        } else if !isComplete {  // lines after a complete head are trailers
            try add(text)
        }
    }

    private func isStatusLine(_ text: Slice<UnsafeRawBufferPointer>) -> Bool {
        text.starts(with: "HTTP/".utf8) && (isComplete || status == 0)
    }

    private mutating func begin(_ text: Slice<UnsafeRawBufferPointer>) {
        let words = text.split(separator: 0x20, maxSplits: 2)
        status = words.count > 1 ? UInt32(String(decoding: words[1], as: UTF8.self)) ?? 0 : 0
        isHTTP10 = text.starts(with: "HTTP/1.0".utf8)
        fields.removeAll()
        isComplete = false
    }

    private mutating func add(_ text: Slice<UnsafeRawBufferPointer>) throws(HeadTooLarge) {
        guard fields.count < Self.fieldLimit else { throw HeadTooLarge() }
        if let first = text.first, first == 0x20 || first == 0x09, !fields.isEmpty {  // obsolete line folding
            fields[fields.count - 1].value += [0x20] + Array(text.trimmingBlanks)
            return
        }
        guard let colon = text.firstIndex(of: UInt8(ascii: ":")) else { return }
        // Lowercase ASCII only, because Unicode lowercases the Kelvin sign to k.
        let name = text[..<colon].map { (UInt8(ascii: "A")...UInt8(ascii: "Z")).contains($0) ? $0 | 0x20 : $0 }
        let value = Array(text[text.index(after: colon)...].trimmingBlanks)
        if name.elementsEqual("set-cookie".utf8) { cookieBytes +|= value.count +| Self.cookieCost }
        fields.append((String(decoding: name, as: UTF8.self), value))
    }

    /// The first field of this name (lower case), as bytes.
    package func bytes(_ name: String) -> [UInt8]? { fields.first { $0.name == name }?.value }

    /// The first field of this name (lower case).
    package func text(_ name: String) -> String? { bytes(name).map { String(decoding: $0, as: UTF8.self) } }

    /// The values of all fields of this name (lower case), joined as RFC 9110 §5.3 says; nil: there is none.
    private func joined(_ name: String) -> [UInt8]? {
        let values = fields.filter { $0.name == name }.map(\.value)
        return values.isEmpty ? nil : Array(values.joined(separator: ", ".utf8))
    }

    private func all(_ name: String) -> [String] {
        fields.filter { $0.name == name }.flatMap {
            String(decoding: $0.value, as: UTF8.self).split(separator: ",").map { String(decoding: $0.utf8.trimmingBlanks, as: UTF8.self) }
        }
    }

    /// The body's content coding; nil: none.
    package var coding: ContentCoding? { ContentCoding(all("content-encoding").map { $0.lowercased() }) }

    /// Whether the body is stored as it comes, although it has a content coding.
    package var isStoredCoded = false

    /// Whether the body's content coding is decoded, so that neither its length nor its ranges are those of the file.
    package var isCoded: Bool { !isStoredCoded && coding != nil }

    /// Whether the body has a transfer coding other than `chunked`. We request none, and libcurl would decode some without reporting an
    /// early end.
    package var isTransferCoded: Bool { all("transfer-encoding").contains { !["chunked", "identity", ""].contains($0.lowercased()) } }

    /// Whether the response declares an empty body.
    package var isEmptyAnnounced: Bool { all("content-length").first == "0" }

    /// Whether the answer has no body: 204, 304, or a length of 0 (RFC 9112 §6.3).
    package var isAlone: Bool { status == 204 || status == 304 || contentLength == .known(0) }

    package enum Length: Equatable { case unknown, known(ByteCount), contradictory }

    /// The length of the body as sent; unknown if it is chunked or coded.
    package var contentLength: Length {
        if !all("transfer-encoding").isEmpty || isCoded { return .unknown }
        let values = all("content-length")
        guard let first = values.first else { return .unknown }
        guard values.allSatisfy({ $0 == first }), let number = decimal(first.utf8, as: ByteCount.self), number <= ByteCount(Int64.max)
        else {
            return .contradictory
        }
        return .known(number)
    }

    /// Whether the connection ends with this response.
    package var endsConnection: Bool {
        let codings = all("transfer-encoding")
        // A length beside a transfer coding does not count (RFC 9112 §6.3). Of the codings, only the chunks have an end of their own.
        let hasEnd = codings.isEmpty ? !all("content-length").isEmpty : codings.contains { $0.lowercased() == "chunked" }
        let isFramed = hasEnd || status < 200 || status == 204 || status == 304
        return isHTTP10 || !isFramed || all("connection").contains { $0.lowercased() == "close" }
    }

    /// Whether a proxy ends the connection with this response. Some proxies say so in place of `Connection: close`. libcurl obeys only if
    /// the connection goes to a proxy that speaks HTTP.
    package var endsProxyConnection: Bool { all("proxy-connection").contains { $0.lowercased() == "close" } }

    /// Whether the response declares a body, even if it cannot have one (a 304).
    package var announcesBody: Bool { !all("transfer-encoding").isEmpty || all("content-length").contains { $0 != "0" } }

    /// Media type without parameters, lower case, at most 255 bytes.
    package var mediaType: String? {
        guard let field = text("content-type") else { return nil }
        let type = field.prefix { $0 != ";" && $0 != "," }.lowercased()
        let trimmed = type.prefix { $0 != " " && $0 != "\t" }
        let isPlain = trimmed.utf8.allSatisfy { $0 > 0x20 && $0 < 0x7F }
        return isPlain && trimmed.contains("/") && trimmed.utf8.count <= 255 ? String(trimmed) : nil
    }

    /// The digests that this response (200, 203 or 206) states of the file.
    ///
    /// `Repr-Digest` and `Digest` are of the representation in its content coding, so they say nothing about a body that is decoded.
    /// `Content-Digest` is of the body, which is the whole representation unless the status is 206 (`contentDigests`). No trailer counts.
    package var statedDigests: StatedDigests {
        if isCoded { return StatedDigests() }
        return StatedDigests(
            reprDigest: joined("repr-digest"), digest: joined("digest"), contentDigest: status == 206 ? nil : joined("content-digest"))
    }

    /// The digests that this response states of its own body (`Content-Digest`), whatever its status.
    package var contentDigests: StatedDigests {
        StatedDigests(reprDigest: nil, digest: nil, contentDigest: joined("content-digest"))
    }

    /// The fields `Link`, as one; nil: there is none.
    package var links: [UInt8]? { joined("link") }

    /// The fields `Vary`, as one; nil: there is none.
    package var vary: String? { joined("vary").map { String(decoding: $0, as: UTF8.self) } }

    package var validator: Validator? {
        Validator(entityTag: text("etag"), lastModified: text("last-modified"), date: text("date"))
    }
}
