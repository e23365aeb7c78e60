/// The file name in a `Content-Disposition` field (RFC 6266), read as leniently as browsers do.
public enum ContentDisposition {
    /// The name that the server proposes, not yet made safe; nil if the field has no name.
    ///
    /// `filename*` (RFC 8187) wins over `filename`. `filename` is read as UTF-8, else as Shift_JIS or EUC-JP, else as windows-1252. Encoded
    /// words (RFC 2047) and percent-encoded UTF-8 in it are decoded: no standard allows either, but servers send both. Continuations
    /// (`filename*0`) are ignored. If a parameter occurs twice, the first counts.
    ///
    /// - Parameter field: the field's value. The caller bounds its size; the work is proportional to that size.
    public static func fileName(from field: [UInt8], decode: ForeignDecoder) -> String? {
        // In Shift_JIS, the second byte of a character may be a backslash (表, ソ). Such a backslash escapes nothing.
        if String(validating: field, as: UTF8.self) == nil {
            let parameters = Parameters(field, sparesShiftJIS: true)
            if let name = parameters.extended(decode: decode) { return name }
            if let plain = parameters.plain, !plain.isEmpty, let name = ForeignText.japanese(plain, decode: decode) { return name }
        }
        let parameters = Parameters(field, sparesShiftJIS: false)
        if let name = parameters.extended(decode: decode) { return name }
        guard let plain = parameters.plain, !plain.isEmpty else { return nil }
        if let words = EncodedWords.decode(plain, decode: decode) { return words }
        if plain.contains(UInt8(ascii: "%")), let bytes = PercentEncoding.decode(plain), let name = String(validating: bytes, as: UTF8.self)
        {
            return name
        }
        return ForeignText.guess(plain, decode: decode)
    }
}

/// The two parameters of the field that can hold a file name.
private struct Parameters {
    /// The value of `filename`, without quotes and escapes.
    var plain: [UInt8]?
    /// The raw value of `filename*`.
    private var star: [UInt8]?

    init(_ field: [UInt8], sparesShiftJIS: Bool) {
        var rest = field[...]
        // The disposition's type; some servers leave it out.
        let type = rest.prefix { $0 != UInt8(ascii: ";") && $0 != UInt8(ascii: "=") && $0 != UInt8(ascii: "\"") }
        if type.endIndex == rest.endIndex || rest[type.endIndex] == UInt8(ascii: ";") { rest = rest[type.endIndex...] }
        while true {
            rest = rest.drop { $0.isBlank || $0 == UInt8(ascii: ";") }
            guard !rest.isEmpty else { return }
            if rest.first == UInt8(ascii: "\"") {  // a quoted string where a name belongs: skip it
                _ = Self.quoted(&rest, sparesShiftJIS: sparesShiftJIS)
                continue
            }
            let name = rest.prefix { $0 != UInt8(ascii: "=") && $0 != UInt8(ascii: ";") && $0 != UInt8(ascii: "\"") }
            rest = rest[name.endIndex...]
            guard rest.first == UInt8(ascii: "=") else { continue }
            rest = rest.dropFirst().drop(while: \.isBlank)
            let value = rest.first == UInt8(ascii: "\"") ? Self.quoted(&rest, sparesShiftJIS: sparesShiftJIS) : Self.token(&rest)
            switch String(decoding: name.trimmingBlanks, as: UTF8.self).lowercased() {
            case "filename": plain = plain ?? value
            case "filename*": star = star ?? value
            default: break
            }
        }
    }

    /// Decodes `filename*`: charset'language'percent-encoded (RFC 8187 §3.2.1). nil if it is malformed, so that `filename` counts.
    func extended(decode: ForeignDecoder) -> String? {
        guard let parts = star?.split(separator: UInt8(ascii: "'"), maxSplits: 2, omittingEmptySubsequences: false), parts.count == 3,
            let bytes = PercentEncoding.decode(parts[2]), !bytes.isEmpty
        else { return nil }
        return ForeignText.decode(bytes, charset: String(decoding: parts[0], as: UTF8.self), decode: decode)
    }

    /// The text up to the next semicolon, without the blanks around it.
    private static func token(_ rest: inout ArraySlice<UInt8>) -> [UInt8] {
        let value = rest.prefix { $0 != UInt8(ascii: ";") }
        rest = rest[value.endIndex...]
        return Array(value.trimmingBlanks)
    }

    /// A quoted string (RFC 9110 §5.6.4). A string that is not closed ends with the field.
    private static func quoted(_ rest: inout ArraySlice<UInt8>, sparesShiftJIS: Bool) -> [UInt8] {
        var value: [UInt8] = []
        rest.removeFirst()
        while let byte = rest.popFirst() {
            switch byte {
            case UInt8(ascii: "\""):
                rest = rest.drop { $0 != UInt8(ascii: ";") }
                return value
            case UInt8(ascii: "\\"):
                if let escaped = rest.popFirst() { value.append(escaped) }
            case 0x81...0x9F, 0xE0...0xFC:
                value.append(byte)
                if sparesShiftJIS, let next = rest.first, (0x40...0x7E).contains(next) || (0x80...0xFC).contains(next) {
                    value.append(next)
                    rest.removeFirst()
                }
            default: value.append(byte)
            }
        }
        return value
    }
}
