/// Decodes `bytes` of a charset other than Unicode, strictly: nil where they are not valid in it, or where it is not known.
/// Asked for are "CP932" (Shift_JIS as Windows has it), "EUC-JP" and "ISO-2022-JP": iconv's names.
public typealias ForeignDecoder = @Sendable (_ charset: String, _ bytes: [UInt8]) -> String?

/// Text of a charset that was named, or has to be guessed.
enum ForeignText {
    /// UTF-8 if it is valid, else Shift_JIS or EUC-JP, else Latin-1.
    static func guess(_ bytes: [UInt8], decode: ForeignDecoder) -> String {
        String(validating: bytes, as: UTF8.self) ?? japanese(bytes, decode: decode) ?? latin1(bytes)
    }

    /// Shift_JIS or EUC-JP, whichever is valid; where both are, the reading with fewer half-width katakana: most EUC-JP bytes
    /// are half-width katakana in Shift_JIS, and hardly a file name has those.
    static func japanese(_ bytes: [UInt8], decode: ForeignDecoder) -> String? {
        let readings = ["CP932", "EUC-JP"].compactMap { decode($0, bytes) }
        func halfWidth(_ text: String) -> Int { text.unicodeScalars.count { (0xFF61...0xFF9F).contains($0.value) } }
        return readings.min { halfWidth($0) < halfWidth($1) }  // the first of equals
    }

    static func latin1(_ bytes: [UInt8]) -> String {
        var text = String.UnicodeScalarView()
        text.append(contentsOf: bytes.lazy.map { Unicode.Scalar($0) })
        return String(text)
    }

    /// Text of a charset by its IANA name, any case; nil where it is not one of those that file names come in, or the bytes are not
    /// valid in it.
    static func decode(_ bytes: [UInt8], charset: String, decode: ForeignDecoder) -> String? {
        switch charset.lowercased() {
        case "utf-8", "utf8", "us-ascii": String(validating: bytes, as: UTF8.self)
        case "iso-8859-1", "latin1": latin1(bytes)
        case "shift_jis", "shift-jis", "sjis", "x-sjis", "windows-31j", "cp932", "ms932": decode("CP932", bytes)
        case "euc-jp", "x-euc-jp": decode("EUC-JP", bytes)
        case "iso-2022-jp": decode("ISO-2022-JP", bytes)
        default: nil
        }
    }
}
