/// Decodes `bytes` of a charset other than Unicode; nil if the charset is unknown or a byte is invalid in it. The charset is one of iconv's
/// names "CP932" (Microsoft's Shift_JIS), "EUC-JP", "ISO-2022-JP" and "CP949" (Microsoft's EUC-KR).
public typealias ForeignDecoder = @Sendable (_ charset: String, _ bytes: [UInt8]) -> String?

/// Text whose charset the server named, or must be guessed.
package enum ForeignText {
    /// UTF-8 if it is valid, else Shift_JIS or EUC-JP, else windows-1252.
    static func guess(_ bytes: [UInt8], decode: ForeignDecoder) -> String {
        String(validating: bytes, as: UTF8.self) ?? japanese(bytes, decode: decode) ?? windows1252(bytes)
    }

    /// The charsets that `japanese` asks for.
    package static let japaneseCharsets = ["CP932", "EUC-JP"]

    /// Shift_JIS or EUC-JP, whichever is valid. If both are, the reading with fewer half-width katakana wins: most EUC-JP bytes are
    /// half-width katakana in Shift_JIS, and file names rarely hold those.
    package static func japanese(_ bytes: [UInt8], decode: ForeignDecoder) -> String? {
        let readings = japaneseCharsets.compactMap { decode($0, bytes) }
        func halfWidth(_ text: String) -> Int { text.unicodeScalars.count { (0xFF61...0xFF9F).contains($0.value) } }
        return readings.min { halfWidth($0) < halfWidth($1) }  // the first of two equal ones
    }

    /// The charset that browsers use for Latin-1 and ASCII (https://encoding.spec.whatwg.org/#names-and-labels). Every byte is a character.
    static func windows1252(_ bytes: [UInt8]) -> String {
        var text = String.UnicodeScalarView()
        for byte in bytes { text.append((0x80...0x9F).contains(byte) ? upperControls[Int(byte - 0x80)] : Unicode.Scalar(byte)) }
        return String(text)
    }

    /// The characters of 0x80 to 0x9F. The five bytes that windows-1252 leaves undefined are Latin-1's control characters.
    private static let upperControls = Array(
        "€\u{81}‚ƒ„…†‡ˆ‰Š‹Œ\u{8D}Ž\u{8F}\u{90}‘’“”•–—˜™š›œ\u{9D}žŸ".unicodeScalars)

    /// Text in the charset with this IANA name, in any case. nil if the charset is not one of those below, or a byte is invalid in it.
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
