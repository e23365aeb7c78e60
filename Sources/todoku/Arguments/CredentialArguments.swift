internal import ArgumentParser
internal import DownloadModel
internal import EventLoop
internal import Glibc
internal import Localization
internal import TodokuClient

/// User name and password for a server, as options of a command.
struct CredentialArguments: ParsableArguments {
    @Option(
        help: ArgumentHelp(
            "Credentials for the first server; without a password, the command asks for it.", valueName: "name[:password]"))
    var user: String?

    @Option(
        help: ArgumentHelp("Read the password from the first line of a file, or of standard input (-).", valueName: "file"),
        completion: .file())
    var passwordFile: String?

    func validate() throws {
        if passwordFile != nil, user == nil { throw ValidationError(catalog.text("%1$s needs %2$s.", "--password-file", "--user")) }
        if passwordFile != nil, user?.divided(at: ":") != nil {
            throw ValidationError(catalog.text("The password is given twice: by --user and by --password-file."))
        }
    }

    private static func unreadable(_ file: String, _ error: Int32) -> CommandFailure {
        CommandFailure(.usage, catalog.text("cannot read the password from “%1$s”: %2$s", file, String(cString: strerror(error))))
    }

    /// - Returns: nil, nil if none was given.
    /// - Throws: if the password can neither be read nor be asked for.
    func read() throws(CommandFailure) -> (String?, String?) {
        guard let user else { return (nil, nil) }
        if let (name, password) = user.divided(at: ":") { return (String(name), String(password)) }
        if let passwordFile {
            let descriptor = passwordFile == "-" ? STDIN_FILENO : open(passwordFile, O_RDONLY | O_CLOEXEC)
            guard descriptor >= 0 else { throw Self.unreadable(passwordFile, errno) }
            defer { if descriptor != STDIN_FILENO { close(descriptor) } }
            let line: String?
            do throws(SystemCallError) { line = try InputLine.read(from: descriptor) } catch {
                throw Self.unreadable(passwordFile, error.code)
            }
            // UTF-16 has bytes of 0, and a text on the bus would end at the first of them.
            guard let password = line, !password.utf8.contains(0) else {
                throw CommandFailure(.usage, catalog.text("the password in “%1$s” is not UTF-8", passwordFile))
            }
            return (user, password)
        }
        guard let password = Terminal.password(prompt: catalog.text("Password of %1$s:", TerminalText.plain(user)) + " ") else {
            throw CommandFailure(.usage, catalog.text("there is no terminal to ask for the password of %1$s; use --password-file", user))
        }
        return (user, password)
    }
}
