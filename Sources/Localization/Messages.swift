/// A gettext catalogue, read from its source format (PO). It is embedded in the program, so no file must be installed.
struct Messages: Sendable {
    /// The translations of each msgid: one, or one for each plural form.
    private(set) var forms: [String: [String]] = [:]
    /// nil: the header has no rule, or an unknown one. Then a text's first form serves all counts.
    private(set) var plural: PluralRule?

    subscript(_ text: String) -> String? { forms[text]?.first }

    subscript(_ one: String, _ count: UInt64) -> String? {
        guard let forms = forms[one] else { return nil }
        let form = plural?.form(count) ?? 0
        return forms.indices.contains(form) ? forms[form] : forms.first
    }

    /// - Parameter file: a PO file without contexts that `msgfmt --check` accepts; `meson-helpers/translations` checks both.
    init(_ file: [UInt8]) {
        var (id, texts, isForm) = ("", [String](), false)
        func keep(_ messages: inout Self) {
            if id.isEmpty {
                let header = texts.first?.split(separator: "\n").first { $0.hasPrefix("Plural-Forms:") }
                messages.plural = header.flatMap { PluralRule($0.dropFirst("Plural-Forms:".count)) }
            } else if texts.allSatisfy({ !$0.isEmpty }), !texts.isEmpty {
                messages.forms[id] = texts
            }
        }
        var isPlural = false
        for line in file.split(separator: UInt8(ascii: "\n")) where line.first != UInt8(ascii: "#") {
            guard let quote = line.firstIndex(of: UInt8(ascii: "\"")), let end = line.lastIndex(of: UInt8(ascii: "\"")), quote < end else {
                continue
            }
            let text = Self.unescaped(line[(quote + 1)..<end])
            let word = String(decoding: line[..<quote].prefix { $0 != UInt8(ascii: " ") }, as: UTF8.self)
            switch word {
            case "msgid":
                keep(&self)
                (id, texts, isForm, isPlural) = (text, [], false, false)
            case "msgid_plural": isPlural = true
            case "":
                if isForm { texts[texts.count - 1] += text } else if !isPlural { id += text }
            default:  // msgstr, msgstr[0] …
                texts.append(text)
                isForm = true
            }
        }
        keep(&self)
    }

    private static func unescaped(_ bytes: ArraySlice<UInt8>) -> String {
        guard bytes.contains(UInt8(ascii: "\\")) else { return String(decoding: bytes, as: UTF8.self) }
        var result: [UInt8] = []
        var isEscaped = false
        for byte in bytes {
            if isEscaped {
                let meant: [UInt8: UInt8] = [UInt8(ascii: "n"): 10, UInt8(ascii: "t"): 9, UInt8(ascii: "r"): 13]
                result.append(meant[byte] ?? byte)
                isEscaped = false
            } else if byte == UInt8(ascii: "\\") {
                isEscaped = true
            } else {
                result.append(byte)
            }
        }
        return String(decoding: result, as: UTF8.self)
    }
}
