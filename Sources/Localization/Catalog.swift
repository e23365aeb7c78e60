public import DownloadModel

/// Texts in the language of a person, from the catalogues of `data/po`, and numbers as that person writes them.
///
/// The texts in the sources are English and are the keys (msgid). Arguments stand in them as `%1$s`, `%2$s` …, so that a translation may
/// change their order; a percent sign beside them is `%%`. `meson-helpers/translations` finds the keys by the calls of `text`: write them
/// as literals.
public final class Catalog: Sendable {
    public let language: Language
    /// Points and separators of numbers.
    public let numbers: NumberStyle
    /// What `language` is here: Japanese or English.
    public let spoken: Language

    /// Read with the first text that is asked for.
    private static let japanese = Messages(PackageResources.ja_po)

    /// - Parameter environment: a variable of the process's, which says what `auto` is.
    public init(_ language: Language, environment: (String) -> String? = SessionLocale.variable) {
        let session = language == .auto ? SessionLocale(environment) : nil
        self.language = language
        spoken = session?.language ?? language
        numbers = session?.numbers ?? NumberStyle()
    }

    /// The translation of `text`, or `text` itself where there is none.
    public func text(_ text: String, _ arguments: String...) -> String { Self.filled(messages?[text] ?? text, arguments) }

    /// The form of the language for `count`, of which the English ones are `one` and `other`. `%1$s` is the count.
    public func text(_ one: String, _ other: String, count: UInt64, _ arguments: String...) -> String {
        Self.filled(messages?[one, count] ?? (count == 1 ? one : other), [numbers.grouped(count)] + arguments)
    }

    private var messages: Messages? { spoken == .japanese ? Self.japanese : nil }

    /// One pass: what an argument holds is not looked at.
    private static func filled(_ text: String, _ arguments: [String]) -> String {
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
