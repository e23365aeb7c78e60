/// Decodes `bytes` of a charset other than Unicode, strictly: nil where they are not valid in it, or where it is not known.
/// Asked for are "CP932" (Shift_JIS as Windows has it), "EUC-JP", "ISO-2022-JP" and "CP949" (EUC-KR as Windows has it): iconv's names.
public typealias ForeignDecoder = @Sendable (_ charset: String, _ bytes: [UInt8]) -> String?

/// Text of a charset that was named, or has to be guessed.
enum ForeignText {
    /// UTF-8 if it is valid, else Shift_JIS or EUC-JP, else windows-1252.
    static func guess(_ bytes: [UInt8], decode: ForeignDecoder) -> String {
        String(validating: bytes, as: UTF8.self) ?? japanese(bytes, decode: decode) ?? windows1252(bytes)
    }

    /// Shift_JIS or EUC-JP, whichever is valid; where both are, the reading with fewer half-width katakana: most EUC-JP bytes
    /// are half-width katakana in Shift_JIS, and hardly a file name has those.
    static func japanese(_ bytes: [UInt8], decode: ForeignDecoder) -> String? {
        let readings = ["CP932", "EUC-JP"].compactMap { decode($0, bytes) }
        func halfWidth(_ text: String) -> Int { text.unicodeScalars.count { (0xFF61...0xFF9F).contains($0.value) } }
        return readings.min { halfWidth($0) < halfWidth($1) }  // the first of equals
    }

    /// What browsers take Latin-1 and ASCII for (https://encoding.spec.whatwg.org/#names-and-labels). Every byte is a character.
    static func windows1252(_ bytes: [UInt8]) -> String {
        var text = String.UnicodeScalarView()
        for byte in bytes { text.append((0x80...0x9F).contains(byte) ? upperControls[Int(byte - 0x80)] : Unicode.Scalar(byte)) }
        return String(text)
    }

    /// 0x80 to 0x9F; the five that windows-1252 leaves open are the control characters of Latin-1.
    private static let upperControls = Array(
        "€\u{81}‚ƒ„…†‡ˆ‰Š‹Œ\u{8D}Ž\u{8F}\u{90}‘’“”•–—˜™š›œ\u{9D}žŸ".unicodeScalars)

    /// Text of a charset by its IANA name, any case; nil where it is not one of those that file names come in, or the bytes are not
    /// valid in it.
    static func decode(_ bytes: [UInt8], charset: String, decode: ForeignDecoder) -> String? {
        switch charset.lowercased() {
        case "utf-8", "utf8": String(validating: bytes, as: UTF8.self)
        case "us-ascii", "ascii": String(validating: bytes, as: UTF8.self) ?? windows1252(bytes)
        case "iso-8859-1", "iso8859-1", "latin1", "windows-1252", "cp1252", "x-cp1252": windows1252(bytes)
        case "euc-kr", "ks_c_5601-1987", "ksc5601", "korean", "windows-949", "cp949", "uhc": decode("CP949", bytes)
        case "shift_jis", "shift-jis", "sjis", "x-sjis", "windows-31j", "cp932", "ms932": decode("CP932", bytes)
        case "euc-jp", "x-euc-jp": decode("EUC-JP", bytes)
        case "iso-2022-jp": decode("ISO-2022-JP", bytes)
        default: nil
        }
    }
}
