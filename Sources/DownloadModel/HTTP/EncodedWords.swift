/// Encoded words (RFC 2047): `=?UTF-8?B?5bGK44GP?=`. `Content-Disposition` must not hold them, but some servers send them.
enum EncodedWords {
    /// The text with its encoded words decoded and the text between them unchanged. Blanks between two encoded words are dropped. nil if
    /// there is no encoded word, or if one is malformed or in an unknown charset.
    static func decode(_ bytes: [UInt8], decode: ForeignDecoder) -> String? {
        guard bytes.allSatisfy({ $0 < 0x80 }) else { return nil }
        var text = ""
        var literal: [UInt8] = []
        // Adjacent words of one charset are decoded together, because a character may be split between them.
        var (charset, pending): (String, [UInt8]) = ("", [])
        var hasWord = false
        func flush() -> Bool {
            guard !pending.isEmpty else { return true }
            guard let decoded = ForeignText.decode(pending, charset: charset, decode: decode) else { return false }
            text += decoded
            pending = []
            return true
        }
        var rest = bytes[...]
        while !rest.isEmpty {
            if let (word, length) = word(at: rest) {
                guard let content = word.content else { return nil }
                if !literal.allSatisfy(\.isBlank) || !hasWord || word.charset != charset {
                    guard flush() else { return nil }
                    if !hasWord || !literal.allSatisfy(\.isBlank) { text += String(decoding: literal, as: UTF8.self) }
                }
                literal = []
                (charset, hasWord) = (word.charset, true)
                pending += content
                rest = rest.dropFirst(length)
            } else {
                literal.append(rest.removeFirst())
            }
        }
        guard hasWord, flush() else { return nil }
        return text + String(decoding: literal, as: UTF8.self)
    }

    private struct Word {
        let charset: String
        /// nil if the encoding is unknown or malformed.
        let content: [UInt8]?
    }

    /// The encoded word at the start of `bytes`, and its length. RFC 2047 allows 75 bytes a word; servers put longer names into one word.
    private static func word(at bytes: ArraySlice<UInt8>) -> (Word, length: Int)? {
        guard bytes.starts(with: "=?".utf8) else { return nil }
        let question = UInt8(ascii: "?")
        guard let charsetEnd = bytes.dropFirst(2).prefix(64).firstIndex(of: question), bytes.endIndex - charsetEnd >= 5,
            bytes[charsetEnd + 2] == question
        else { return nil }
        let textStart = charsetEnd + 3
        guard let textEnd = bytes[textStart...].firstIndex(of: question), textEnd + 1 < bytes.endIndex,
            bytes[textEnd + 1] == UInt8(ascii: "=")
        else { return nil }
        // RFC 2231 §5: a language may follow the charset.
        let charset = bytes[(bytes.startIndex + 2)..<charsetEnd].prefix { $0 != UInt8(ascii: "*") }
        let text = bytes[textStart..<textEnd]
        let content: [UInt8]? =
            switch bytes[charsetEnd + 1] {
            case UInt8(ascii: "B"), UInt8(ascii: "b"): base64(text)
            case UInt8(ascii: "Q"), UInt8(ascii: "q"): quotedPrintable(text)
            default: nil
            }
        return (Word(charset: String(decoding: charset, as: UTF8.self).lowercased(), content: content), textEnd + 2 - bytes.startIndex)
    }

    private static func quotedPrintable(_ bytes: ArraySlice<UInt8>) -> [UInt8]? {
        PercentEncoding.decode(
            bytes.flatMap { (byte: UInt8) -> [UInt8] in
                switch byte {
                case UInt8(ascii: "="): [UInt8(ascii: "%")]
                case UInt8(ascii: "%"): Array("%25".utf8)
                case UInt8(ascii: "_"): [0x20]
                default: [byte]
                }
            })
    }

    /// RFC 4648 §4; padding may be missing.
    static func base64(_ bytes: ArraySlice<UInt8>) -> [UInt8]? {
        var bytes = bytes
        while bytes.last == UInt8(ascii: "=") { bytes.removeLast() }
        var (decoded, bits, count): ([UInt8], UInt32, Int) = ([], 0, 0)
        for byte in bytes {
            let value: UInt8
            switch byte {
            case UInt8(ascii: "A")...UInt8(ascii: "Z"): value = byte - UInt8(ascii: "A")
            case UInt8(ascii: "a")...UInt8(ascii: "z"): value = byte - UInt8(ascii: "a") + 26
            case UInt8(ascii: "0")...UInt8(ascii: "9"): value = byte - UInt8(ascii: "0") + 52
            case UInt8(ascii: "+"): value = 62
            case UInt8(ascii: "/"): value = 63
            default: return nil
            }
            (bits, count) = (bits << 6 | UInt32(value), count + 6)
            if count >= 8 {
                count -= 8
                decoded.append(UInt8(truncatingIfNeeded: bits >> UInt32(count)))
            }
        }
        return count == 6 ? nil : decoded
    }
}
