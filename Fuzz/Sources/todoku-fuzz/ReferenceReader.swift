internal import CCoding
internal import Glibc

/// What a server's answers entitle one download to, read apart from the engine and from libcurl: RFC 9112 for where a body ends, RFC 9110
/// for what it is of. Where an answer can be read in more ways than one, all of them count.
struct ReferenceReader {
    /// Bytes of a representation, from its first one on.
    private struct Held {
        var bytes: [UInt8]
        var tag: [UInt8]?
        var modified: [UInt8]?
        var total: Int?

        func isOf(_ validator: [UInt8]) -> Bool { tag == validator || modified == validator }
    }

    private var held: [Held] = []
    private var whole: [[UInt8]] = []
    private(set) var account = ""
    /// Bytes in `held`. Beyond the most, nothing is said any more: each answer may double what there is.
    private var size = 0
    private static let mostSize = 64 << 20

    mutating func read(_ exchange: ServedExchange) {
        size = held.reduce(0) { $0 + $1.bytes.count + 64 }
        guard size < Self.mostSize else { return }
        let places = exchange.doubtful > 0 ? [0, exchange.doubtful] : [0]
        for place in places {
            let bytes = Array(exchange.sent[place...])
            for reading in ReferenceAnswer.readings(bytes, isClosed: exchange.isClosed) { take(reading, exchange) }
        }
        if account.utf8.count < 8000 {
            account += "\(exchange.request.map { String(decoding: $0, as: UTF8.self) })\n  "
            account +=
                "\(String(decoding: exchange.sent.prefix(600), as: UTF8.self).debugDescription)\(exchange.isClosed ? " closed" : "")\n"
        }
    }

    /// Whether a finished file may be this.
    func entitles(_ file: [UInt8]) -> Bool { size >= Self.mostSize || whole.contains(file) }

    /// Whether these bytes may be kept as the beginning of what `validator` names.
    func isPrefix(_ bytes: ArraySlice<UInt8>, _ validator: String?) -> Bool {
        guard size < Self.mostSize else { return true }
        guard let validator else { return false }
        return held.contains { $0.isOf(Array(validator.utf8)) && $0.bytes.starts(with: bytes) }
    }

    private mutating func take(_ answer: ReferenceAnswer, _ exchange: ServedExchange) {
        let start = exchange.field("range").flatMap { field -> Int? in
            guard field.starts(with: "bytes=".utf8), field.last == UInt8(ascii: "-") else { return nil }
            return Int(String(decoding: field.dropFirst(6).dropLast(), as: UTF8.self))
        }
        switch answer.status {
        case 200, 203: takeWhole(answer, exchange, start)
        case 206: if let start { takeRest(answer, exchange, start) }
        case 416:
            guard let start, let length = answer.contentRange?.length, answer.contentRange?.range == nil, length == start else { return }
            for one in held where one.bytes.count >= start { whole.append(Array(one.bytes[..<start])) }
        default: return
        }
    }

    private mutating func takeWhole(_ answer: ReferenceAnswer, _ exchange: ServedExchange, _ start: Int?) {
        if answer.coding != nil, answer.isWhole, let decoded = answer.decoded { whole.append(decoded) }
        guard answer.coding == nil || answer.mayBeStoredCoded(exchange.path) else { return }
        if answer.isWhole { whole.append(answer.body) }
        var more = [Held(bytes: answer.body, tag: answer.strongTag, modified: answer.field("last-modified"), total: answer.total)]
        for one in held
        where one.tag != nil && one.tag == answer.strongTag || one.modified != nil && one.modified == answer.field("last-modified") {
            // What is held stays, and the body goes on behind it.
            for place in [start, one.bytes.count].compactMap(\.self) where place <= one.bytes.count {
                let joined = Array(one.bytes[..<place]) + answer.body.dropFirst(place)
                if answer.isWhole && answer.body.count >= place || answer.total == place { whole.append(joined) }
                var kept = one
                kept.bytes = joined
                more.append(kept)
            }
        }
        held += more
    }

    private mutating func takeRest(_ answer: ReferenceAnswer, _ exchange: ServedExchange, _ start: Int) {
        guard answer.coding == nil || answer.mayBeStoredCoded(exchange.path), let given = answer.contentRange, let range = given.range,
            range.lowerBound == start
        else { return }
        let condition = exchange.field("if-range")
        var more: [Held] = []
        for one in held where one.bytes.count >= start {
            let proof = condition ?? answer.strongTag ?? answer.field("last-modified")
            guard let proof, one.isOf(proof) else { continue }
            if let tag = answer.field("etag"), one.tag == proof, tag != one.tag { continue }
            if let known = one.total, let length = given.length, known != length { continue }
            var joined = one
            // More than the range says: what lies in it may be right, and the file is not.
            joined.bytes = Array(one.bytes[..<start]) + answer.body.prefix(range.count)
            joined.total = given.length ?? one.total
            guard range.upperBound <= joined.total ?? .max else { continue }
            if joined.bytes.count == joined.total, answer.body.count <= range.count { whole.append(joined.bytes) }
            more.append(joined)
        }
        held += more
    }
}

/// One way to read an answer.
struct ReferenceAnswer {
    var status = 0
    private var fields: [(name: String, value: [UInt8])] = []
    private(set) var body: [UInt8] = []
    /// Whether the body came to its end.
    private(set) var isWhole = false
    /// What the head says of the body's length.
    private(set) var total: Int?

    func field(_ name: String) -> [UInt8]? { fields.first { $0.name == name }?.value }

    private func all(_ name: String) -> [String] {
        fields.filter { $0.name == name }.flatMap { field in
            field.value.split(separator: UInt8(ascii: ",")).map { part in
                String(decoding: part.filter { $0 != 0x20 && $0 != 0x09 }, as: UTF8.self).lowercased()
            }
        }
    }

    var strongTag: [UInt8]? {
        guard let tag = field("etag"), tag.count >= 2, tag.first == UInt8(ascii: "\""), tag.last == UInt8(ascii: "\"") else { return nil }
        return tag
    }

    /// nil: none.
    var coding: String? {
        let all = all("content-encoding").filter { $0 != "identity" && !$0.isEmpty }
        return all.isEmpty ? nil : all.joined(separator: ",")
    }

    /// The body's coding undone, where there is one and nothing else in it.
    var decoded: [UInt8]? {
        let kind: todoku_coding
        switch coding {
        case "gzip", "x-gzip": kind = TODOKU_CODING_GZIP
        case "deflate": kind = TODOKU_CODING_DEFLATE
        case "br": kind = TODOKU_CODING_BROTLI
        case "zstd": kind = TODOKU_CODING_ZSTD
        default: return nil
        }
        if body.isEmpty { return all("content-length").first == "0" ? [] : nil }
        guard let decoder = todoku_decoder_make(kind) else { return nil }
        defer { todoku_decoder_free(decoder) }
        var made: [UInt8] = []
        var rest = body[...]
        var room = [UInt8](repeating: 0, count: 1 << 16)
        var isAtEnd = false
        while made.count < 128 << 20 {
            var (used, count) = (0, 0)
            let answer = rest.withUnsafeBufferPointer {
                todoku_decoder_run(decoder, $0.baseAddress, $0.count, &used, &room, room.count, &count)
            }
            rest = rest.dropFirst(used)
            made += room[..<count]
            if answer == TODOKU_DECODED_END {
                isAtEnd = true
                if rest.isEmpty { return made }
            } else if answer != TODOKU_DECODED_MORE || used == 0 && count == 0 {
                // A decoder that is begun anew with nothing has nothing to say.
                return isAtEnd && rest.isEmpty ? made : nil
            } else if used > 0 || count > 0 {
                isAtEnd = false
            }
        }
        return nil
    }

    /// Whether the body may be stored as received: its name or type is that of an archive in this coding, or the coding is unknown.
    func mayBeStoredCoded(_ path: String) -> Bool {
        let known = ["gzip", "x-gzip", "deflate", "br", "zstd"]
        guard let coding, coding.split(separator: ",").allSatisfy({ known.contains(String($0)) }) else { return true }
        let texts = [field("content-type") ?? [], field("content-disposition") ?? [], Array(path.utf8)]
        let text = texts.map { String(decoding: $0, as: UTF8.self).lowercased() }.joined(separator: " ")
        // What may be escaped may be such a name.
        return ["gz", "gunzip", "gzip", ".br", "zst", "%", "=?", "*", "\\"].contains {
            text.utf8.count >= $0.utf8.count && contains(text, $0)
        }
    }

    private func contains(_ text: String, _ part: String) -> Bool {
        let (text, part) = (Array(text.utf8), Array(part.utf8))
        return text.count >= part.count && (0...(text.count - part.count)).contains { text[$0..<($0 + part.count)].elementsEqual(part) }
    }

    /// `Content-Range`: the range, or nil where it tells only the length.
    var contentRange: (range: Range<Int>?, length: Int?)? {
        guard let field = field("content-range") else { return nil }
        let words = field.split { $0 == 0x20 || $0 == 0x09 }
        guard words.count >= 2, String(decoding: words[0], as: UTF8.self).lowercased() == "bytes" else { return nil }
        let text = Array(words[1...].joined())
        let parts = text.split(separator: UInt8(ascii: "/"), omittingEmptySubsequences: false)
        guard parts.count == 2 else { return nil }
        let length = Self.number(parts[1])
        if parts[0] == [UInt8(ascii: "*")] { return (nil, length) }
        let ends = parts[0].split(separator: UInt8(ascii: "-"), omittingEmptySubsequences: false)
        guard ends.count == 2, let first = Self.number(ends[0]), let last = Self.number(ends[1]), first <= last, last < Int.max else {
            return nil
        }
        return (first..<(last + 1), length)
    }

    private static func number(_ digits: some Collection<UInt8>) -> Int? {
        guard !digits.isEmpty, digits.allSatisfy({ (48...57).contains($0) }) else { return nil }
        return Int(String(decoding: digits, as: UTF8.self))
    }

    // MARK: Where the body ends

    /// The answer to one request in `bytes`, in all ways that it can be read.
    static func readings(_ bytes: [UInt8], isClosed: Bool) -> [ReferenceAnswer] {
        var rest = bytes[...]
        while true {
            var answer = ReferenceAnswer()
            guard let line = takeLine(&rest), line.starts(with: "HTTP/".utf8) else { return [] }
            let words = line.split(separator: 0x20)
            answer.status = words.count > 1 ? number(words[1]) ?? 0 : 0
            while true {
                guard let line = takeLine(&rest) else { return [] }
                if line.isEmpty { break }
                if line.first == 0x20 || line.first == 0x09, !answer.fields.isEmpty {
                    answer.fields[answer.fields.count - 1].value += [0x20] + trimmed(line)
                } else if let colon = line.firstIndex(of: UInt8(ascii: ":")) {
                    let name = String(decoding: line[..<colon].map { (65...90).contains($0) ? $0 | 0x20 : $0 }, as: UTF8.self)
                    answer.fields.append((name, trimmed(line[(colon + 1)...])))
                }
            }
            if (100...199).contains(answer.status) { continue }
            return answer.bodies(rest, isClosed: isClosed)
        }
    }

    private func bodies(_ rest: ArraySlice<UInt8>, isClosed: Bool) -> [ReferenceAnswer] {
        func with(_ body: some Collection<UInt8>, isWhole: Bool, total: Int? = nil) -> ReferenceAnswer {
            var one = self
            (one.body, one.isWhole, one.total) = (Array(body), isWhole, total)
            return one
        }
        let codings = all("transfer-encoding").filter { $0 != "identity" && !$0.isEmpty }
        let lengths = all("content-length").map { Self.number(Array($0.utf8)) }
        let isLengthClear = Set(lengths).count == 1 && lengths[0] != nil
        if codings == ["chunked"], lengths.isEmpty {
            let (body, isWhole) = Self.unchunked(rest)
            return [with(body, isWhole: isWhole)]
        }
        if codings.isEmpty, isLengthClear, let length = lengths[0] {
            return [with(rest.prefix(length), isWhole: rest.count >= length, total: length)]
        }
        if codings.isEmpty, lengths.isEmpty { return [with(rest, isWhole: isClosed)] }
        // Nothing is clear: what any reader may take for the body.
        let (body, isWhole) = Self.unchunked(rest)
        return [with(body, isWhole: isWhole), with(rest, isWhole: isClosed)]
            + lengths.compactMap(\.self).map { with(rest.prefix($0), isWhole: rest.count >= $0, total: $0) }
    }

    private static func unchunked(_ bytes: ArraySlice<UInt8>) -> (body: [UInt8], isWhole: Bool) {
        var (rest, body) = (bytes, [UInt8]())
        while true {
            guard let line = takeLine(&rest) else { return (body, false) }
            let digits = line.prefix { (48...57).contains($0) || (65...70).contains($0 & 0xDF) }
            guard let size = Int(String(decoding: digits, as: UTF8.self), radix: 16) else { return (body, false) }
            if size == 0 {
                while let line = takeLine(&rest) { if line.isEmpty { return (body, true) } }
                return (body, false)
            }
            body += rest.prefix(size)
            guard rest.count >= size else { return (body, false) }
            rest = rest.dropFirst(size)
            guard let line = takeLine(&rest), line.isEmpty else { return (body, false) }
        }
    }

    private static func takeLine(_ rest: inout ArraySlice<UInt8>) -> ArraySlice<UInt8>? {
        guard let end = rest.firstIndex(of: 0x0A) else { return nil }
        var line = rest[..<end]
        rest = rest[(end + 1)...]
        while line.last == 0x0D { line.removeLast() }
        return line
    }

    private static func trimmed(_ text: ArraySlice<UInt8>) -> [UInt8] {
        var text = text.drop { $0 == 0x20 || $0 == 0x09 }
        while let last = text.last, last == 0x20 || last == 0x09 { text.removeLast() }
        return Array(text)
    }
}
