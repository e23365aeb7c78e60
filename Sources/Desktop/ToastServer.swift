/// The notification server that owns the name, and how a toast is put for it.
struct ToastServer: Equatable {
    /// Its unique bus name: another owner is another server.
    let owner: String
    let capabilities: Set<String>
    let traits: ToastServerTraits

    init(owner: String, name: String, vendor: String, capabilities: Set<String>) {
        (self.owner, self.capabilities) = (owner, capabilities)
        traits = ToastServers.traits(name: name, vendor: vendor)
    }

    var drawsProgress: Bool { traits.progress == .drawn }

    var hasActions: Bool { capabilities.contains("actions") }

    /// Keys and what they mean, in the order of display; none where clicks are not told.
    ///
    /// A click on the toast itself (`default`) does what is expected of one that tells of a file. What has failed is not tried again by a
    /// click that was meant to put the toast away, unless that is the only click there is.
    func actions(for kind: EndToast.Kind) -> [(key: String, action: ToastAction)] {
        let all = kind.actions
        guard hasActions, let first = all.first else { return [] }
        let hasDefault = kind.isOfFile || !traits.drawsButtons
        let isDrawnTwice = hasDefault && traits.drawsDefault
        return (hasDefault ? [("default", first)] : []) + all.dropFirst(isDrawnTwice ? 1 : 0).map { ($0.key, $0) }
    }

    /// `text` as the server wants it: markup where it announces that it reads markup.
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

    /// The same, of an app in a sandbox: with its name above, for not every server shows whose a toast is.
    func body(_ text: String, of app: SandboxedApp?) -> String {
        guard let app, !traits.namesApp else { return body(text) }
        return body("\(Self.cleaned(app.name, keeping: nil))\n\(text)")
    }

    func summary(_ text: String) -> String { Self.cleaned(text, keeping: nil) }

    /// Most Unicode scalars of one text that a server is given.
    static let longestText = 1000

    /// Cut to `longestText`, control characters as spaces, and without marks that turn the direction of what follows: a name must not pose
    /// as another.
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
