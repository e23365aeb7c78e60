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
        var bytes: [UInt8] = []
        var buffer = [UInt8](repeating: 0, count: 1 << 16)
        while bytes.count <= most {
            let count = Glibc.read(descriptor, &buffer, buffer.count)
            if count < 0, errno == EINTR { continue }
            guard count >= 0 else { throw unreadable(file, errno) }
            if count == 0 { return bytes }
            bytes.append(contentsOf: buffer.prefix(count))
        }
        return nil
    }

    private static func unreadable(_ file: String, _ error: Int32) -> CommandFailure {
        let name = file == "-" ? catalog.text("standard input") : file
        return CommandFailure(.usage, catalog.text("cannot read “%1$s”: %2$s", name, String(cString: strerror(error))))
    }
}
