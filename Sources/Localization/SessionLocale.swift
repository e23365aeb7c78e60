public import DownloadModel
internal import Glibc

/// Language and number format from the environment: locale(7), and gettext's `LANGUAGE`. The locale must be installed only if its number
/// format differs from ours.
public struct SessionLocale: Sendable {
    /// The first requested language that we have; otherwise English.
    public let language: Language
    public let numbers: NumberStyle

    public init(_ variable: (String) -> String?) {
        func locale(_ category: String) -> String {
            ["LC_ALL", category, "LANG"].lazy.compactMap(variable).first { !$0.isEmpty } ?? "C"
        }
        language = Self.language(messages: locale("LC_MESSAGES"), wishes: variable("LANGUAGE") ?? "")
        let name = locale("LC_NUMERIC")
        numbers = Self.isPlain(name) ? .plain : NumberStyle(locale: name) ?? NumberStyle()
    }

    /// As in gettext: `LANGUAGE` overrides the locale, unless the locale is "C", which means untranslated texts.
    private static func language(messages: String, wishes: String) -> Language {
        guard !isPlain(messages) else { return .english }
        for wish in wishes.isEmpty ? [messages[...]] : wishes.split(separator: ":") {
            switch wish.prefix(while: { !"_.@".contains($0) }) {
            case "ja": return .japanese
            case "en", "C", "POSIX": return .english
            default: continue
            }
        }
        return .english
    }

    private static func isPlain(_ name: String) -> Bool { name == "C" || name == "POSIX" }

    /// A variable of the process's environment.
    public static func variable(_ name: String) -> String? { getenv(name).map { String(cString: $0) } }
}
