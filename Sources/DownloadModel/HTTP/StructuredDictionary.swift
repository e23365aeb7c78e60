/// Reads a dictionary of structured fields (RFC 9651 §4.2.2), as far as its byte sequences.
struct StructuredDictionary {
    /// One member: its key, and its value if that is a byte sequence. Other values and all parameters are checked and dropped.
    typealias Member = (key: String, bytes: [UInt8]?)

    private var rest: ArraySlice<UInt8>

    /// The members in their order; nil if the field is malformed. If a key comes twice, its last member counts (§4.2.2).
    ///
    /// Takes time in proportion to the length of the field.
    static func members(_ field: [UInt8]) -> [Member]? {
        var reader = StructuredDictionary(rest: field[...])
        return reader.members()
    }

    private mutating func members() -> [Member]? {
        var members: [Member] = []
        skip { $0 == 0x20 }
        while !rest.isEmpty {
            guard let member = member() else { return nil }
            members.append(member)
            skip(\.isBlank)
            if rest.isEmpty { return members }
            guard take(",") else { return nil }
            skip(\.isBlank)
            if rest.isEmpty { return nil }  // a comma at the end
        }
        return members
    }

    private mutating func member() -> Member? {
        guard let key = key() else { return nil }
        var bytes: [UInt8]?
        if take("=") {
            guard let value = rest.first == UInt8(ascii: "(") ? innerList() : bareItem() else { return nil }
            if case .bytes(let sequence) = value { bytes = sequence }
        }
        return parameters() ? (key, bytes) : nil
    }

    private enum Value {
        case bytes([UInt8])
        case other
    }

    private mutating func key() -> String? {
        guard let first = rest.first, first.isLowerCase || first == UInt8(ascii: "*") else { return nil }
        return String(decoding: take { $0.isLowerCase || $0.isDigit || "_-.*".utf8.contains($0) }, as: UTF8.self)
    }

    /// `*( ";" *SP key [ "=" bare-item ] )`
    private mutating func parameters() -> Bool {
        while take(";") {
            skip { $0 == 0x20 }
            guard key() != nil else { return false }
            if take("="), bareItem() == nil { return false }
        }
        return true
    }

    private mutating func innerList() -> Value? {
        rest.removeFirst()
        while true {
            skip { $0 == 0x20 }
            if take(")") { return .other }
            guard bareItem() != nil, parameters(), rest.first == 0x20 || rest.first == UInt8(ascii: ")") else { return nil }
        }
    }

    private mutating func bareItem() -> Value? {
        guard let first = rest.first else { return nil }
        switch first {
        case UInt8(ascii: ":"): return byteSequence().map { .bytes($0) }
        case UInt8(ascii: "\""): return string()
        case UInt8(ascii: "?"):
            rest.removeFirst()
            return take("0") || take("1") ? .other : nil
        case UInt8(ascii: "@"):
            rest.removeFirst()
            return number(mayHaveFraction: false)
        case UInt8(ascii: "%"):
            rest.removeFirst()
            return displayString()
        case UInt8(ascii: "-"), UInt8(ascii: "0")...UInt8(ascii: "9"): return number(mayHaveFraction: true)
        case UInt8(ascii: "*"), UInt8(ascii: "A")...UInt8(ascii: "Z"), UInt8(ascii: "a")...UInt8(ascii: "z"):
            _ = take { RequestHeaders.isTokenByte($0) || ":/".utf8.contains($0) }
            return .other
        default: return nil
        }
    }

    /// `":" base64 ":"`. Padding may be missing (§4.2.7).
    private mutating func byteSequence() -> [UInt8]? {
        rest.removeFirst()
        guard let end = rest.firstIndex(of: UInt8(ascii: ":")) else { return nil }
        defer { rest = rest[end...].dropFirst() }
        return EncodedWords.base64(rest[..<end])
    }

    private mutating func string() -> Value? {
        rest.removeFirst()
        while let byte = rest.popFirst() {
            switch byte {
            case UInt8(ascii: "\""): return .other
            case UInt8(ascii: "\\"): guard take("\"") || take("\\") else { return nil }
            case 0x20...0x7E: break
            default: return nil
            }
        }
        return nil
    }

    /// `DQUOTE *( unescaped / "\" / pct-encoded ) DQUOTE`, behind the "%". Whether the bytes are UTF-8 does not matter here.
    private mutating func displayString() -> Value? {
        guard take("\"") else { return nil }
        while let byte = rest.popFirst() {
            switch byte {
            case UInt8(ascii: "\""): return .other
            case UInt8(ascii: "%"): guard takeLowerHexadecimal(), takeLowerHexadecimal() else { return nil }
            case 0x20...0x7E: break
            default: return nil
            }
        }
        return nil
    }

    private mutating func takeLowerHexadecimal() -> Bool {
        guard let digit = rest.popFirst() else { return false }
        return digit.isDigit || (UInt8(ascii: "a")...UInt8(ascii: "f")).contains(digit)
    }

    /// At most 15 digits, or 12 and a fraction of at most 3.
    private mutating func number(mayHaveFraction: Bool) -> Value? {
        _ = take("-")
        let whole = take(\.isDigit).count
        guard (1...15).contains(whole) else { return nil }
        guard mayHaveFraction, take(".") else { return .other }
        return whole <= 12 && (1...3).contains(take(\.isDigit).count) ? .other : nil
    }

    // MARK: Bytes

    private mutating func skip(_ isSkipped: (UInt8) -> Bool) { rest = rest.drop(while: isSkipped) }

    private mutating func take(_ isTaken: (UInt8) -> Bool) -> ArraySlice<UInt8> {
        let taken = rest.prefix(while: isTaken)
        rest = rest[taken.endIndex...]
        return taken
    }

    private mutating func take(_ scalar: Unicode.Scalar) -> Bool {
        guard rest.first == UInt8(ascii: scalar) else { return false }
        rest.removeFirst()
        return true
    }
}

extension UInt8 {
    fileprivate var isLowerCase: Bool { (UInt8(ascii: "a")...UInt8(ascii: "z")).contains(self) }
}
