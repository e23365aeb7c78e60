internal import ArgumentParser
internal import Localization

/// The user's own commands for the end of a download, as options of a command that waits for it.
struct ExecArguments: ParsableArguments {
    @Option(
        help: ArgumentHelp("Run this command for each file that is downloaded; the path is its last argument.", valueName: "command"))
    var exec: String?

    @Option(help: ArgumentHelp("Run this command for each download that fails or is cancelled.", valueName: "command"))
    var execFailed: String?

    /// What the help of a command says of these options.
    static let discussion = """
        --exec and --exec-failed run a command of yours for each download, while this command waits. sh(1) runs it, here, one at a time. \
        --exec adds the path to the end of its command. If the command has a $, nothing is added: write "$1" where the path goes. The \
        environment has TODOKU_PATH, TODOKU_OUTCOME, TODOKU_DOWNLOAD, TODOKU_URL and more, see todoku(1). If the command fails, the exit \
        status is 5.
        """

    func validate() throws {
        for (option, command) in [("--exec", exec), ("--exec-failed", execFailed)] {
            if let command, let fault = UserCommand(command, takesPath: option == "--exec").fault(of: option) {
                throw ValidationError(fault)
            }
        }
    }

    var isGiven: Bool { exec != nil || execFailed != nil }
}

/// `--exec` and `--exec-failed` of a command that does not take them. It reads them only so that its error can name the command that does.
struct RefusedExecArguments: ParsableArguments {
    @Option(help: .hidden) var exec: String?
    @Option(help: .hidden) var execFailed: String?

    var isGiven: Bool { exec != nil || execFailed != nil }

    /// For `validate` of a command that queues a batch.
    ///
    /// - Parameter command: such as “todoku batch”.
    func refuse(for command: String) throws {
        guard isGiven else { return }
        throw ValidationError(
            catalog.text("%1$s runs no command; use todoku watch --exec COMMAND \"$(%1$s FILE)\".", command))
    }
}

/// A command line of the user for sh(1).
struct UserCommand: Equatable, Sendable {
    /// Without line ends and blanks at its end: the path belongs to the last line.
    let text: String
    /// Whether the path of a file is its argument.
    let takesPath: Bool

    init(_ text: String, takesPath: Bool) {
        self.text = text.lastIndex { !$0.isWhitespace }.map { String(text[...$0]) } ?? ""
        self.takesPath = takesPath
    }

    /// Whether the path is added to the end, as if the user had written it there. A command with a `$` places the path itself. That rule
    /// needs no knowledge of the shell's grammar.
    private var isPathAdded: Bool { takesPath && !text.utf8.contains(UInt8(ascii: "$")) }

    /// Why the command of an option is refused; nil: it is not.
    func fault(of option: String) -> String? {
        guard let last = text.utf8.last else { return catalog.text("%1$s is empty; write a command, such as --exec sha256sum.", option) }
        // The shell would run the file itself.
        guard isPathAdded, ";&|".utf8.contains(last) else { return nil }
        let sign = String(Unicode.Scalar(last))
        return catalog.text(
            "%1$s ends with “%2$s”, but the path of the file follows there; write \"$1\" where the path goes.", option, sign)
    }

    /// The arguments for sh(1). The path is an argument of its own, and no part of the script, so no character of it has a meaning there.
    func arguments(path: String?) -> [String] {
        // Without "--", a command that begins with "-" would be an option of sh. The shell names itself “todoku” in its messages.
        guard takesPath, let path else { return ["sh", "-c", "--", text, "todoku"] }
        return ["sh", "-c", "--", isPathAdded ? text + " \"$1\"" : text, "todoku", path]
    }
}
