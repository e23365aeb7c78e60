internal import CEmbedded
public import DownloadModel

/// Texts in the user's language, from the catalogues in `data/po`, and the user's number format.
///
/// The English texts in the sources are the keys (msgid). Arguments are `%1$s`, `%2$s` …, so that a translation may change their order.
/// In texts with arguments a percent sign is `%%`. `meson-helpers/translations` finds the keys in the calls of `text`, so write them as
/// literals.
public final class Catalog: Sendable {
    public let language: Language
    /// Decimal point and separators of numbers.
    public let numbers: NumberStyle
    /// The language in use: Japanese or English. `auto` is resolved.
    public let spoken: Language

    /// `data/po/ja.po`.
    static var file: [UInt8] {
        let file = todoku_ja_po()
        return Array(UnsafeBufferPointer(start: file.bytes, count: file.count))
    }

    /// Loaded when the first text is needed.
    private static let japanese = Messages(file)

    /// - Parameter environment: returns a variable of the process's environment, from which `auto` is resolved.
    public init(_ language: Language, environment: (String) -> String? = SessionLocale.variable) {
        let session = language == .auto ? SessionLocale(environment) : nil
        self.language = language
        spoken = session?.language ?? language
        numbers = session?.numbers ?? NumberStyle()
    }

    /// The translation of `text`; `text` itself if there is none.
    public func text(_ text: String, _ arguments: String...) -> String { Self.filled(messages?[text] ?? text, arguments) }

    /// The plural form for `count`; the English forms are `one` and `other`. `%1$s` is the count.
    public func text(_ one: String, _ other: String, count: UInt64, _ arguments: String...) -> String {
        Self.filled(messages?[one, count] ?? (count == 1 ? one : other), [numbers.grouped(count)] + arguments)
    }

    private var messages: Messages? { spoken == .japanese ? Self.japanese : nil }

    /// Fills the arguments in, in one pass, so a `%1$s` inside an argument stays as it is.
    static func filled(_ text: String, _ arguments: [String]) -> String {
        guard text.utf8.contains(UInt8(ascii: "%")) else { return text }
        var result = String.UnicodeScalarView()
        var rest = text.unicodeScalars[...]
        while let scalar = rest.popFirst() {
            guard scalar == "%" else {
                result.append(scalar)
                continue
            }
            let digits = rest.prefix { ("0"..."9").contains($0) }
            let end = rest[digits.endIndex...]
            if rest.first == "%" {
                rest.removeFirst()
                result.append("%")
            } else if let number = Int(String(digits)), arguments.indices.contains(number - 1), end.starts(with: "$s".unicodeScalars) {
                result.append(contentsOf: arguments[number - 1].unicodeScalars)
                rest = end.dropFirst(2)
            } else {
                result.append("%")
            }
        }
        return String(result)
    }
}
