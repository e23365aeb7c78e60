public import DownloadModel

/// Texts in the language of a person, from the catalogues of `data/po`.
///
/// The texts in the sources are English and are the keys (msgid). Arguments stand in them as `%1$s`, `%2$s` …, so that a translation may change
/// their order.
public final class Catalog: Sendable {
    public let language: Language

    public init(_ language: Language) { self.language = language }

    /// The translation of `text`, or `text` itself where there is none.
    public func text(_ text: String, _ arguments: String...) -> String { Self.filled(text, arguments) }

    /// The form of the language for `count`, of which the English ones are `one` and `other`. `%1$s` is the count.
    public func text(_ one: String, _ other: String, count: UInt64, _ arguments: String...) -> String {
        Self.filled(count == 1 ? one : other, [String(count)] + arguments)
    }

    private static func filled(_ text: String, _ arguments: [String]) -> String {
        var text = text
        for (index, argument) in arguments.enumerated() {
            while let place = text.firstRange(of: "%\(index + 1)$s") { text.replaceSubrange(place, with: argument) }
        }
        return text
    }
}
