internal import ArgumentParser
internal import DownloadModel
internal import Localization

/// What to say of a word that stands in the place of a command and is none. ArgumentParser says only that it does not expect the argument.
enum UnknownCommand {
    /// Words of other programs, with our commands for them.
    private static let synonyms = [
        "clear": ["remove"], "config": ["settings"], "continue": ["resume"], "delete": ["remove", "cancel"], "download": ["get"],
        "info": ["show"], "install": ["update"], "kill": ["cancel"], "ls": ["list"], "queue": ["list", "add"], "register": ["add"],
        "rm": ["remove", "cancel"], "start": ["resume"], "status": ["list"], "stop": ["pause", "cancel"], "unpause": ["resume"],
        "upgrade": ["update"],
    ]

    /// The command line, with `lst` in the place of `help lst`: ArgumentParser answers `help` about an unknown command with the help of all
    /// commands.
    static func withoutHelp(_ arguments: [String]) -> [String] {
        let rest = Array(arguments.dropFirst())
        return arguments.first == "help" && sentence(for: rest) != nil ? rest : arguments
    }

    /// A message of ArgumentParser. If the message suggests an option that is hardly meant, the suggestion is left out: ArgumentParser
    /// suggests options with up to three typing errors, such as '--proxy' for '--frob'.
    static func withoutFarOption(_ message: String) -> String {
        guard let names = HelpTemplate.mistypedOption.arguments(in: message[...]), names.count == 2 else { return message }
        let (word, option) = (names[0].drop { $0 == "-" }, names[1].drop { $0 == "-" })
        let isNear = word.first == option.first || !commands(meantBy: String(word), [String(option)]).isEmpty
        return isNear ? message : "Unknown option '\(names[0])'"
    }

    /// - Returns: nil if each word in the place of a command is a command.
    static func sentence(for arguments: [String]) -> String? {
        var configuration = TodokuCommand.configuration
        var names = [configuration.commandName ?? ""]
        for word in arguments {
            var known: [CommandConfiguration] = []
            for subcommand in configuration.subcommands { known.append(subcommand.configuration) }
            guard !known.isEmpty, !word.hasPrefix("-"), word != "help" else { return nil }
            guard let next = known.first(where: { $0.commandName == word }) else {
                return sentence(about: word, names.joined(separator: " "), known.filter(\.shouldDisplay).compactMap(\.commandName))
            }
            names.append(word)
            configuration = next
        }
        return nil
    }

    /// - Parameters:
    ///   - parent: the command before the word, such as “todoku asset”.
    ///   - known: the commands that may follow.
    private static func sentence(about word: String, _ parent: String, _ known: [String]) -> String {
        // A URL may have secrets, so it is not repeated.
        if isURL(word) { return catalog.text("A URL is no command; “todoku get URL” downloads it.") }
        let meant = commands(meantBy: word, known)
        let shown = TerminalText.plain(word)
        guard !meant.isEmpty else {
            return catalog.text("There is no command “%1$s”; “%2$s --help” lists all.", shown, parent)
        }
        let list = meant.map { "\(parent) \($0)" }.joined(separator: ", ")
        return catalog.text("There is no command “%1$s”. Did you mean: %2$s?", shown, list)
    }

    /// A URL, also one that lacks its scheme. A bare host name may be a mistyped command.
    private static func isURL(_ word: String) -> Bool {
        if word.contains("://") { return true }
        guard word.contains("/"), !word.hasPrefix("."), let url = try? DownloadURL("https://\(word)") else { return false }
        return url.host.contains(".") || url.host == "localhost"
    }

    /// At most three of `known`, the likeliest first.
    static func commands(meantBy word: String, _ known: [String]) -> [String] {
        let word = word.lowercased()
        let synonyms = (synonyms[word] ?? []).filter(known.contains)
        guard synonyms.isEmpty else { return synonyms }
        guard (2...32).contains(word.count) else { return [] }
        let most = word.count < 5 ? 1 : 2
        let near = known.map { (name: $0, slips: slips(between: word, and: $0)) }
            .filter { $0.slips <= most || $0.name.hasPrefix(word) }
            .sorted { ($0.slips, $0.name) < ($1.slips, $1.name) }
        return near.prefix(3).map(\.name)
    }

    /// The number of typing errors that turn `b` into `a`: a character left out, added or replaced, or two neighbours exchanged (the
    /// optimal string alignment distance).
    private static func slips(between a: String, and b: String) -> Int {
        let (a, b) = (Array(a), Array(b))
        var first = Array(b.indices)
        first.append(b.count)
        var rows = [first]
        for i in a.indices {
            var row = [i &+ 1]
            for j in b.indices {
                var least = min(rows[i][j &+ 1], row[j]) &+ 1
                least = min(least, a[i] == b[j] ? rows[i][j] : rows[i][j] &+ 1)
                if i > 0, j > 0, a[i] == b[j &- 1], a[i &- 1] == b[j] { least = min(least, rows[i &- 1][j &- 1] &+ 1) }
                row.append(least)
            }
            rows.append(row)
        }
        return rows[a.count][b.count]
    }
}
