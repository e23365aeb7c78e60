internal import ArgumentParser
internal import Glibc

@main struct Main {
    static func main() {
        do {
            var command = try TodokuCommand.parseAsRoot(ExtractArgument.completed(Array(CommandLine.arguments.dropFirst())))
            try command.run()
            exit(ExitStatus.success.rawValue)
        } catch {
            let text = TodokuCommand.fullMessage(for: error)
            if TodokuCommand.exitCode(for: error).isSuccess {  // help, a completion script
                Output.write(text + "\n")
                exit(ExitStatus.success.rawValue)
            }
            Output.writeError(text.hasPrefix("Error: ") ? "todoku: " + text.dropFirst(7) + "\n" : text + "\n")
            exit(ExitStatus.usage.rawValue)
        }
    }
}
