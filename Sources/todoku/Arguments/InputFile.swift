internal import EventLoop
internal import Glibc
internal import Localization

/// A file that the command reads.
enum InputFile {
    /// The bytes of `file`; `-` is standard input.
    ///
    /// - Returns: nil if there are more than `most`.
    /// - Throws: if the file cannot be read.
    static func read(_ file: String, most: Int) throws(CommandFailure) -> [UInt8]? {
        let descriptor = file == "-" ? STDIN_FILENO : open(file, O_RDONLY | O_CLOEXEC)
        guard descriptor >= 0 else { throw unreadable(file, errno) }
        defer { if descriptor != STDIN_FILENO { close(descriptor) } }
        do throws(SystemCallError) { return try readToEnd(descriptor, atMost: most) } catch { throw unreadable(file, error.code) }
    }

    private static func unreadable(_ file: String, _ error: Int32) -> CommandFailure {
        let name = file == "-" ? catalog.text("standard input") : file
        return CommandFailure(.usage, catalog.text("cannot read “%1$s”: %2$s", name, String(cString: strerror(error))))
    }
}
