/// What is known of the notification server that owns the name, and what follows from it.
///
/// The rules come from looking at the real programs (docs/desktop.md); the specification has no word for most of them.
struct ToastServer: Equatable {
    /// Its unique bus name: another owner is another server.
    let owner: String
    let name: String
    let vendor: String
    let capabilities: Set<String>

    /// Whether it updates a toast in place and draws the hint `value` under the text. Elsewhere a progress toast loses its text,
    /// stays on screen or answers a click many times.
    var drawsProgress: Bool { ["dunst", "mako", "todoku-demo"].contains(name) }

    var hasActions: Bool { capabilities.contains("actions") }

    /// Where the key `default` is drawn as a button, a second one with the same label would stand beside it.
    var drawsDefaultAsButton: Bool { name == "Xfce Notify Daemon" || name == "lxqt-notificationd" }

    /// Keys and what they mean, in the order of display; none where clicks are not told.
    func actions(for kind: EndToast.Kind) -> [(key: String, action: ToastAction)] {
        guard hasActions else { return [] }
        switch kind {
        case .failed: return []
        case .finishedBatch: return [("default", .showFolder)] + (drawsDefaultAsButton ? [] : [("folder", .showFolder)])
        case .finished: break
        }
        return drawsDefaultAsButton
            ? [("default", .open), ("folder", .showFolder)] : [("default", .open), ("open", .open), ("folder", .showFolder)]
    }

    /// `text` as the server wants it: markup where it announces that it reads markup.
    func body(_ text: String) -> String {
        let text = cleaned(text, keeping: "\n")
        guard capabilities.contains("body-markup") else { return text }
        var escaped = ""
        for character in text.unicodeScalars {
            switch character {
            case "&": escaped += "&amp;"
            case "<": escaped += "&lt;"
            case ">": escaped += "&gt;"
            default: escaped.unicodeScalars.append(character)
            }
        }
        return escaped
    }

    func summary(_ text: String) -> String { cleaned(text, keeping: nil) }

    /// Most Unicode scalars of one text that a server is given.
    static let longestText = 1000

    /// Cut to `longestText`, control characters as spaces, and without marks that turn the direction of what follows: a name must not pose
    /// as another.
    private func cleaned(_ text: String, keeping kept: Unicode.Scalar?) -> String {
        var result = String.UnicodeScalarView()
        for scalar in text.unicodeScalars.prefix(Self.longestText) {
            switch scalar {
            case _ where scalar == kept: result.append(scalar)
            case "\u{0}"..."\u{1F}", "\u{7F}"..."\u{9F}": result.append(" ")
            case "\u{202A}"..."\u{202E}", "\u{2066}"..."\u{2069}": break
            default: result.append(scalar)
            }
        }
        return String(result)
    }
}
