/// The running notification server, and how toasts are adapted to it.
struct ToastServer: Equatable {
    /// The server's unique bus name. A new owner is a new server.
    let owner: String
    let capabilities: Set<String>
    let traits: ToastServerTraits

    init(owner: String, name: String, vendor: String, capabilities: Set<String>) {
        (self.owner, self.capabilities) = (owner, capabilities)
        traits = ToastServers.traits(name: name, vendor: vendor)
    }

    var drawsProgress: Bool { traits.progress == .drawn }

    var hasActions: Bool { capabilities.contains("actions") }

    /// Action keys and their meanings, in display order; empty if the server reports no clicks.
    ///
    /// A click on a file's toast (`default`) does the obvious thing. A click on a failure's toast may be meant to dismiss the toast, so it
    /// retries nothing unless no buttons are drawn.
    func actions(for kind: EndToast.Kind) -> [(key: String, action: ToastAction)] {
        let all = kind.actions
        guard hasActions, let first = all.first else { return [] }
        let hasDefault = kind.isOfFile || !traits.drawsButtons
        let isDrawnTwice = hasDefault && traits.drawsDefault
        return (hasDefault ? [("default", first)] : []) + all.dropFirst(isDrawnTwice ? 1 : 0).map { ($0.key, $0) }
    }

    /// `text` for the server, with markup characters escaped if the server announces that it reads markup.
    func body(_ text: String) -> String {
        let text = Self.cleaned(text, keeping: "\n")
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

    /// `body(text)`, preceded by the sandboxed app's name if the server does not show the name itself.
    func body(_ text: String, of app: SandboxedApp?) -> String {
        guard let app, !traits.namesApp else { return body(text) }
        return body("\(Self.cleaned(app.name, keeping: nil))\n\(text)")
    }

    func summary(_ text: String) -> String { Self.cleaned(text, keeping: nil) }

    /// Most Unicode scalars of a text for a server.
    static let longestText = 1000

    /// Cuts `text` to `longestText` scalars, and replaces control characters by spaces. Removes marks that change the text direction,
    /// because such marks let one name pose as another.
    static func cleaned(_ text: String, keeping kept: Unicode.Scalar?) -> String {
        var result = String.UnicodeScalarView()
        for scalar in text.unicodeScalars.prefix(longestText) {
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
