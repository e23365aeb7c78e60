internal import ArgumentParser

/// The user's own commands for the end of a download, as options of a command that waits for it.
struct ExecArguments: ParsableArguments {
    @Option(
        help: ArgumentHelp("Run this command for each download that finishes; the path is its last argument.", valueName: "command"))
    var exec: String?

    @Option(help: ArgumentHelp("Run this command for each download that fails or is cancelled.", valueName: "command"))
    var execFailed: String?

    /// What the help of a command says of these options.
    static let discussion = """
        --exec and --exec-failed run a command of yours for each download, while this command waits. sh(1) runs it, here, one at a time. The \
        path is its last argument, or is wherever the command says "$1". The environment has TODOKU_PATH, TODOKU_OUTCOME, TODOKU_DOWNLOAD, \
        TODOKU_URL and more, see todoku(1). If the command fails, the exit status is 5.
        """

    func validate() throws {
        for (option, command) in [("--exec", exec), ("--exec-failed", execFailed)] {
            if let command, let fault = UserCommand(command, takesPath: option == "--exec").fault {
                throw ValidationError("\(option) \(fault)")
            }
        }
    }

    var isGiven: Bool { exec != nil || execFailed != nil }
}

/// A command line of the user for sh(1).
struct UserCommand: Equatable, Sendable {
    let text: String
    /// Whether the path of a file is its argument.
    let takesPath: Bool

    init(_ text: String, takesPath: Bool) { (self.text, self.takesPath) = (text, takesPath) }

    /// Whether the command itself says where the path goes.
    var namesPath: Bool { ["$1", "${1", "$@", "${@", "$*", "${*", "TODOKU_PATH"].contains { text.contains($0) } }

    /// Why the command is refused, to be put behind the option; nil: it is not.
    var fault: String? {
        let last = text.last { !$0.isWhitespace }
        guard let last else { return "is empty; write a command, such as --exec 'sha256sum'." }
        // The shell would run the file itself.
        if takesPath, !namesPath, ";&|".contains(last) {
            return "ends with “\(last)”, where the path of the file is to follow; say where the path goes by \"$1\"."
        }
        return nil
    }

    /// The arguments for sh(1). The path is an argument of its own, and no part of the script, so no character of it has a meaning there.
    func arguments(path: String?) -> [String] {
        // The shell names itself “todoku” in its messages.
        guard takesPath, let path else { return ["sh", "-c", text, "todoku"] }
        return ["sh", "-c", namesPath ? text : text + " \"$@\"", "todoku", path]
    }
}
