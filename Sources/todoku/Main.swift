internal import ArgumentParser
internal import DownloadModel
internal import EventLoop
internal import Glibc

@main struct Main {
    static func main() {
        openClosedStreams()
        // ArgumentParser's own flag would answer for a subcommand's option --version whenever another argument is wrong.
        guard CommandLine.arguments.dropFirst() != ["--version"] else {
            Output.write("todoku \(Program.version)\n")
            exit(ExitStatus.success.rawValue)
        }
        do throws(CommandFailure) { try ArgumentText.check() } catch {
            exit(Program.report(error, json: asksForJSON).rawValue)
        }
        let arguments = UnknownCommand.withoutHelp(Array(CommandLine.arguments.dropFirst()))
        do {
            var command = try TodokuCommand.parseAsRoot(ExtractArguments.separated(NegativeNumber.separated(arguments)))
            try command.run()
            exit(ExitStatus.success.rawValue)
        } catch {
            let translation = HelpTranslation(catalog)
            if TodokuCommand.exitCode(for: error).isSuccess {  // help, a completion script
                var text = (translation?.screen(for: error) ?? TodokuCommand.fullMessage(for: error))[...]
                // bash reads its completion script and does not run it, so the script names no interpreter.
                if text.hasPrefix("#!") { text = text.drop { $0 != "\n" }.drop { $0 == "\n" } }
                Output.write(String(text) + "\n")
                exit(ExitStatus.success.rawValue)
            }
            let sentence = UnknownCommand.sentence(for: arguments)
            if asksForJSON {
                let message = UnknownCommand.withoutFarOption(TodokuCommand.message(for: error))
                Program.report(CommandFailure(.usage, sentence ?? inOneLine(message)), json: true)
            } else if let translation {
                Output.writeError(translation.complaint(for: error, saying: sentence) + "\n")
            } else {
                Output.writeError(complaint(for: error, saying: sentence) + "\n")
            }
            exit(ExitStatus.usage.rawValue)
        }
    }

    /// Whether the command line asks for JSON. After “--”, the arguments may belong to another command (`todoku rehearse`).
    private static var asksForJSON: Bool { CommandLine.arguments.prefix { $0 != "--" }.contains("--json") }

    /// A message of ArgumentParser in one line, as every message in JSON is. ArgumentParser writes many choices in a line each.
    private static func inOneLine(_ message: String) -> String {
        var text = ""
        var endsInChoice = false
        for line in message.split(whereSeparator: \.isNewline).map({ $0.trimmingBlanks }) {
            let isChoice = line.hasPrefix("- ")
            if !text.isEmpty { text.append(contentsOf: isChoice && endsInChoice ? ", " : " ") }
            text.append(contentsOf: isChoice ? line.dropFirst(2) : line)
            endsInChoice = isChoice
        }
        return text
    }

    /// What is wrong with the command line, and its usage.
    ///
    /// - Parameter sentence: what is wrong, in place of ArgumentParser's message; nil: that message.
    private static func complaint(for error: any Error, saying sentence: String?) -> String {
        let (text, message) = (TodokuCommand.fullMessage(for: error), TodokuCommand.message(for: error))
        guard text.hasPrefix("Error: \(message)") else { return text }
        return "todoku: \(sentence ?? UnknownCommand.withoutFarOption(message))\(text.dropFirst("Error: \(message)".count))"
    }
}
