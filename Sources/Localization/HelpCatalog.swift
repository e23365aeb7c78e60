internal import CEmbedded
public import DownloadModel

/// The translations of the help of `todoku`, and of sentences of rooms that know no language, from `data/po/help`. They are a catalogue of
/// their own: everyday commands do not need them.
///
/// The keys are the English texts of the sources. The docstring of `meson-helpers/translations` lists the places of these texts.
public struct HelpCatalog: Sendable {
    private let messages: Messages

    /// `data/po/help/ja.po`.
    static var file: [UInt8] {
        let file = todoku_help_ja_po()
        return Array(UnsafeBufferPointer(start: file.bytes, count: file.count))
    }

    /// Reads the whole catalogue. nil: `language` is that of the sources.
    public init?(_ language: Language) {
        guard language == .japanese else { return nil }
        messages = Messages(Self.file)
    }

    /// The translation of a text without arguments; nil if there is none.
    public subscript(_ text: String) -> String? { messages[text] }

    /// The translation of `text`, or `text` itself if there is none, with `arguments` in the places of `%1$s` ….
    public func text(_ text: String, _ arguments: [String]) -> String { Catalog.filled(messages[text] ?? text, arguments) }
}
