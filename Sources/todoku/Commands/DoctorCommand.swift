internal import ArgumentParser
internal import DownloadModel
internal import EventLoop
internal import Localization
internal import Upkeep

struct DoctorCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "doctor", abstract: "Examine what Todoku finds on this machine.",
        discussion: """
            Each line begins with “found”, “missing” (Todoku does less without it) or “wrong” (mend it), and the line below says what to do. \
            Nothing is changed, and the service is not started unless you give --start. In a Japanese session, the report is Japanese at a \
            terminal. Its last line says how to get the report in English, for others. The exit status is 1 if anything is wrong.

            EXAMPLES:
              todoku doctor
              todoku doctor --start
              todoku doctor --json
            """)

    @Flag(help: "Start the service too, to see whether the bus can.") var start = false
    @OptionGroup var output: OutputArguments

    func run() throws {
        let (startsService, isJSON) = (start, output.json)
        BusActor.runMain {
            // A report that goes into a file or a program may be sent to people who speak another language.
            let words = Terminal.outputIsSeen ? catalog : plainCatalog
            let width = Terminal.current?.columns
            let doctor = Doctor(version: Program.version, startsService: startsService) { finding in
                if !isJSON { Output.write(DoctorCommand.text(finding, words, width: width)) }
            }
            let findings = await doctor.examine()
            if isJSON {
                Output.write(JSON.array(findings.map(\.json)).text + "\n")
            } else if words.spoken != .english {
                Output.write(DoctorCommand.hint(words, width: width))
            }
            Program.finish(findings.contains { $0.verdict == .wrong } ? .ended : .success)
        }
    }

    /// The columns before the text; on a narrow terminal, those of a text that has lines of its own.
    private static let (indent, narrowIndent) = (26, 4)
    /// The width below which a terminal is narrow.
    private static let narrow = 60

    /// A line, wrapped to `width` columns, and the advice below it. nil: not wrapped.
    static func text(
        _ finding: Finding, _ catalog: Catalog, width: Int?, hasColour: Bool = Terminal.hasColour, isUTF8: Bool = Terminal.isUTF8
    ) -> String {
        let isNarrow = width.map { $0 < narrow } ?? false
        let blanks = String(repeating: " ", count: isNarrow ? narrowIndent : indent)
        func block(_ text: String, first: String) -> String {
            let text = TerminalText.plain(text)
            // A path that is cut leads nowhere.
            let lines = width.map { TerminalText.wrapped(text, to: max(8, $0 -| blanks.count), cutsWords: false) } ?? [text]
            return lines.enumerated().map { ($0 == 0 ? first : blanks) + $1 + "\n" }.joined()
        }
        let verdict = TerminalText.padded(catalog.sentence(finding.verdict.name), to: 9)
        let painted = hasColour ? Colour(finding.verdict)?.paint(verdict) ?? verdict : verdict
        let subject = TerminalText.padded(catalog.sentence(finding.subject.name), to: isNarrow ? 0 : indent - 9)
        let start = "\(painted)\(subject)"
        let text = catalog.sentence(finding.text)
        let line = isNarrow ? "\(start)\n\(block(text, first: blanks))" : block(text, first: start)
        let arrow = isUTF8 ? "→ " : "> "
        guard let advice = finding.advice.map({ catalog.sentence($0) }) else { return line }
        return line + block("\(arrow)\(advice)", first: blanks)
    }

    /// How to get the report in English.
    static func hint(_ catalog: Catalog, width: Int?) -> String {
        // No line ends inside of the command.
        let command = "LC_ALL=C todoku doctor".replacing(" ", with: "\u{A0}")
        let text = catalog.text("the report in English, to send it to others: %1$s", command)
        let lines = width.map { TerminalText.wrapped(text, to: $0, cutsWords: false) } ?? [text]
        return lines.map { $0.replacing("\u{A0}", with: " ") + "\n" }.joined()
    }
}

extension Colour {
    fileprivate init?(_ verdict: Finding.Verdict) {
        switch verdict {
        case .found: return nil
        case .missing: self = .yellow
        case .wrong: self = .red
        }
    }
}

extension Finding {
    var json: JSON {
        .object([
            ("subject", .string(subject.rawValue)), ("verdict", .string(verdict.rawValue)), ("text", .string(text.english)),
            ("advice", JSON(advice?.english)),
        ])
    }
}
