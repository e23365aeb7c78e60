internal import ArgumentParser
internal import Localization

/// The help, and the complaints about the command line, in another language than English.
///
/// ArgumentParser writes both in English only. It reads the texts of a command when it parses, and those of its configuration once. It
/// counts a line's characters, not columns, and breaks lines at blanks only. So it writes a screen without wrapping. Each paragraph is then
/// looked up as a whole, and wrapped here. A paragraph that has no translation stays English.
struct HelpTranslation: Sendable {
    /// The column of the texts in a list of arguments, in ArgumentParser's screens and in ours.
    private static let textColumn = 26
    /// ArgumentParser wraps no text at this width.
    static let unwrapped = 1 << 20

    private let texts: HelpCatalog

    /// nil: the language is English.
    init?(_ catalog: Catalog) {
        guard let texts = HelpCatalog(catalog.spoken) else { return nil }
        self.texts = texts
    }

    /// The help screen for an error that asks for it.
    func screen(for error: any Error) -> String {
        screen(TodokuCommand.fullMessage(for: error, columns: Self.unwrapped), columns: Terminal.textColumns)
    }

    /// What is wrong with the command line, and its usage.
    ///
    /// - Parameter sentence: what is wrong, in place of ArgumentParser's message; nil: that message.
    func complaint(for error: any Error, saying sentence: String? = nil) -> String {
        let written = TodokuCommand.fullMessage(for: error, columns: Self.unwrapped)
        return complaint(written, about: TodokuCommand.message(for: error), saying: sentence)
    }

    // MARK: Screens

    /// - Parameters:
    ///   - written: a help screen without wrapping. Any other text, such as a completion script, is returned as it is.
    ///   - columns: the longest line.
    func screen(_ written: String, columns: Int) -> String {
        guard HelpTemplate.overview.arguments(in: written[...]) != nil else { return written }
        var rest = written.split(separator: "\n", omittingEmptySubsequences: false)[...]
        var lines: [String] = []
        var isDiscussion = true
        while let line = rest.popFirst() {
            if line.isEmpty {
                lines.append("")
            } else if let abstract = HelpTemplate.overview.arguments(in: line)?.first {
                lines += wrapped(texts.text(HelpTemplate.overview.text, [paragraph(abstract)]), columns)
            } else if let usage = HelpTemplate.usage.arguments(in: line)?.first {
                isDiscussion = false
                lines += wrapped(Self.glued(usage), columns, after: texts.text(HelpTemplate.usage.text, [""]))
            } else if isDiscussion {
                lines += discussion(line, columns)
            } else if let commands = HelpTemplate.detailedHelp.arguments(in: line.drop { $0 == " " }) {
                lines += wrapped(texts.text(HelpTemplate.detailedHelp.text, commands), columns, after: "  ")
            } else if line.first == " " {
                lines += element(line, &rest, columns)
            } else {
                lines += wrapped(paragraph(String(line)), columns)  // a heading
            }
        }
        return lines.joined(separator: "\n")
    }

    /// A line of a discussion: a paragraph, an example, or a term with its text.
    private func discussion(_ line: Substring, _ columns: Int) -> [String] {
        if let (term, text) = Self.definition(line) { return wrapped(paragraph(String(text)), columns, after: String(term)) }
        guard line.first == " " else { return wrapped(paragraph(String(line)), columns) }
        guard TerminalText.width(String(line)) > columns else { return [String(line)] }
        // The blanks of an example may have a meaning.
        let example = String(line.drop { $0 == " " }).replacing("  ", with: "\u{A0}\u{A0}")
        return wrapped(example, columns - 4, after: "  ").enumerated().map { $0.offset == 0 ? $0.element : "    " + $0.element }
    }

    /// "  0    every download finished": blanks, a word, at least two blanks, and a text. nil: `line` is no such line.
    private static func definition(_ line: Substring) -> (term: Substring, text: Substring)? {
        guard let word = line.firstIndex(where: { $0 != " " }), let end = line[word...].firstIndex(of: " ") else { return nil }
        let text = line[end...].drop { $0 == " " }
        guard !text.isEmpty, line.distance(from: end, to: text.startIndex) > 1 else { return nil }
        return (line[..<text.startIndex], text)
    }

    /// An argument or a subcommand with its text. The text of a long label is in the line after it.
    private func element(_ line: Substring, _ rest: inout ArraySlice<Substring>, _ columns: Int) -> [String] {
        var (label, text) = (line, Substring())
        if let next = rest.first, next.hasPrefix(String(repeating: " ", count: Self.textColumn)) {
            text = next.dropFirst(Self.textColumn)
            rest.removeFirst()
        } else if line.count > Self.textColumn {
            (label, text) = (line.prefix(Self.textColumn), line.dropFirst(Self.textColumn))
        }
        while label.last == " " { label.removeLast() }
        let labels = wrapped(String(label.drop { $0 == " " }), columns, after: "  ")
        guard !text.isEmpty else { return labels }
        let column = columns < 60 ? 8 : Self.textColumn
        var lines = wrapped(description(String(text)), columns, after: String(repeating: " ", count: column))
        guard labels.count == 1, label.count < column, let first = lines.first else { return labels + lines }
        lines[0] = TerminalText.padded(String(label), to: column) + String(first.dropFirst(column))
        return lines
    }

    // MARK: Complaints

    /// - Parameter written: `message` behind "Error: ", and below it the help of an argument, if it is about one, and the usage.
    func complaint(_ written: String, about message: String, saying sentence: String? = nil) -> String {
        let start = "Error: \(message)"
        guard !message.isEmpty, written.hasPrefix(start) else { return written }
        let lines = written.dropFirst(start.count).split(separator: "\n").map { belowMessage($0) }
        return (["todoku: \(sentence ?? self.message(UnknownCommand.withoutFarOption(message)[...]))"] + lines).joined(separator: "\n")
    }

    private func belowMessage(_ line: Substring) -> String {
        if let parts = HelpTemplate.argument.arguments(in: line) {
            return texts.text(HelpTemplate.argument.text, [parts[0], description(parts[1])])
        }
        if let parts = HelpTemplate.shortUsage.arguments(in: line) { return texts.text(HelpTemplate.shortUsage.text, parts) }
        guard let parts = HelpTemplate.moreInformation.arguments(in: line.drop { $0 == " " }) else { return String(line) }
        return "  " + texts.text(HelpTemplate.moreInformation.text, parts)
    }

    /// One of ArgumentParser's messages. The command's own are translated already.
    private func message(_ written: Substring) -> String {
        let lines = written.split(separator: "\n", omittingEmptySubsequences: false)
        // A wrong value that is repeated may itself have line ends.
        guard let first = lines.first, known(first) != nil else { return known(written) ?? String(written) }
        return lines.map { (line: Substring) -> String in
            let indent = line.prefix { $0 == " " }
            return known(line.dropFirst(indent.count)).map { String(indent) + $0 } ?? String(line)
        }.joined(separator: "\n")
    }

    /// The translation of a message, or of one of its lines; nil: it is not ArgumentParser's.
    private func known(_ written: Substring) -> String? {
        if let parts = HelpTemplate.alternative.arguments(in: written) {
            return texts.text(HelpTemplate.alternative.text, [message(parts[0][...]), parts[1]])
        }
        if let parts = HelpTemplate.invalidValue.arguments(in: written) {
            return texts.text(HelpTemplate.invalidValue.text, [parts[0], parts[1], Self.listed(parts[2])])
        }
        for template in HelpTemplate.messages {
            if let parts = template.arguments(in: written) { return texts.text(template.text, parts) }
        }
        return nil
    }

    /// "'a', 'b' or 'c'" as "a, b, c".
    private static func listed(_ values: String) -> String {
        let parts = values.split(separator: "'", omittingEmptySubsequences: false)
        return parts.indices.filter { $0 % 2 == 1 }.map { String(parts[$0]) }.joined(separator: ", ")
    }

    // MARK: Texts

    /// The text of an argument, behind which ArgumentParser may write its values and its default.
    private func description(_ written: String) -> String {
        if let text = texts[written] { return text }
        for template in HelpTemplate.values {
            guard var parts = template.arguments(in: written[...]), let text = texts[parts[0]] else { continue }
            parts[0] = text
            return texts.text(template.text, parts)
        }
        return paragraph(written)
    }

    /// A paragraph, which may join texts that other commands also have.
    private func paragraph(_ written: String) -> String {
        if let text = texts[written] { return text }
        var place = written.endIndex
        while let blank = written[..<place].lastIndex(of: " ") {
            if let start = texts[String(written[..<blank])] { return start + paragraph(String(written[written.index(after: blank)...])) }
            place = blank
        }
        return written
    }

    /// `usage` with blanks inside of brackets at which no line breaks.
    private static func glued(_ usage: String) -> String {
        var depth = 0
        var result = ""
        for character in usage {
            if character == "[" { depth += 1 }
            if character == "]" { depth -= 1 }
            result.append(character == " " && depth > 0 ? "\u{A0}" : character)
        }
        return result
    }

    /// `text` after `lead`, in lines of at most `columns`. The lines after the first are indented by the width of `lead`. No line breaks at
    /// U+00A0, which becomes a blank.
    private func wrapped(_ text: String, _ columns: Int, after lead: String = "") -> [String] {
        let indent = TerminalText.width(lead)
        let lines = TerminalText.wrapped(text, to: max(2, columns - indent), cutsWords: false)
        return lines.enumerated().map { index, line in
            (index == 0 ? lead : String(repeating: " ", count: indent)) + line.replacing("\u{A0}", with: " ")
        }
    }
}
