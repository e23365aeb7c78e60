/// A text of ArgumentParser, with `%1$s`, `%2$s` … in this order for what it fills in. `meson-helpers/translations` finds the texts in the
/// calls of the initializer, so write them as literals.
struct HelpTemplate: Sendable {
    let text: String

    init(_ text: String) { self.text = text }

    /// What is filled in, if `written` is this text; nil: `written` is another text.
    func arguments(in written: Substring) -> [String]? {
        var parts: [Substring] = []
        var end = text[...]
        while let place = end.firstRange(of: "%\(parts.count + 1)$s") {
            parts.append(end[..<place.lowerBound])
            end = end[place.upperBound...]
        }
        guard let start = parts.first else { return written == text ? [] : nil }
        guard written.hasPrefix(start), written.dropFirst(start.count).hasSuffix(end) else { return nil }
        var rest = written.dropFirst(start.count).dropLast(end.count)
        var arguments: [String] = []
        for part in parts.dropFirst() {
            guard let place = rest.firstRange(of: part) else { return nil }
            arguments.append(String(rest[..<place.lowerBound]))
            rest = rest[place.upperBound...]
        }
        arguments.append(String(rest))
        return arguments
    }
}

/// ArgumentParser's own texts (its files HelpGenerator, MessageInfo and UsageGenerator).
extension HelpTemplate {
    static let overview = HelpTemplate("OVERVIEW: %1$s")
    static let usage = HelpTemplate("USAGE: %1$s")
    static let detailedHelp = HelpTemplate("See '%1$s' for detailed help.")
    /// Texts without arguments. They are looked up as any paragraph, and stand here for `meson-helpers/translations`.
    static let fixed = [
        HelpTemplate("ARGUMENTS:"), HelpTemplate("OPTIONS:"), HelpTemplate("SUBCOMMANDS:"), HelpTemplate("Show help information."),
        HelpTemplate("Show subcommand help information."),
    ]
    /// What follows the text of an argument. The first one that fits counts.
    static let values = [
        HelpTemplate("%1$s (values: %2$s; default: %3$s)"), HelpTemplate("%1$s (values: %2$s)"), HelpTemplate("%1$s (default: %2$s)"),
    ]

    // Below a message.
    static let argument = HelpTemplate("Help:  %1$s  %2$s")
    static let shortUsage = HelpTemplate("Usage: %1$s")
    static let moreInformation = HelpTemplate("See '%1$s' for more information.")

    /// The second line of a message: another message, and the argument that both are about.
    static let alternative = HelpTemplate("or: %1$s in '%2$s'")
    static let invalidValue = HelpTemplate("The value '%1$s' is invalid for '%2$s'. Please provide one of %3$s.")
    static let mistypedOption = HelpTemplate("Unknown option '%1$s'. Did you mean '%2$s'?")
    /// The other messages, and lines of them. The first one that fits counts.
    static let messages = [
        mistypedOption, HelpTemplate("Unknown option '%1$s'"),
        HelpTemplate("Invalid option: %1$s"), HelpTemplate("Missing value for '%1$s'"),
        HelpTemplate("The option '%1$s' does not take any value, but '%2$s' was specified."),
        HelpTemplate("Unexpected argument '%1$s'"), HelpTemplate("%1$s unexpected arguments: '%2$s'"),
        HelpTemplate("Missing expected argument '%1$s'"), HelpTemplate("Missing one of: '%1$s'"),
        HelpTemplate("Value to be set with flag %1$s had already been set with flag %2$s"),
        HelpTemplate("The value '%1$s' is invalid for '%2$s'. Please provide one of the following:"),
        HelpTemplate("The value '%1$s' is invalid for '%2$s': %3$s"), HelpTemplate("The value '%1$s' is invalid for '%2$s'"),
        HelpTemplate("Can't generate completion scripts for '%1$s'."), HelpTemplate("Can't autodetect a supported shell."),
        HelpTemplate("Please use %1$s with one of:"),
    ]
}
