internal import EventLoop
internal import Glibc

/// Reads small files. Nothing in a file is trusted.
public enum SmallFile {
    /// The bytes of a file; nil if the file is unreadable or longer than `limit` bytes.
    ///
    /// Waits for the file's disk. Does not wait for the writer of a pipe, and takes no terminal (open(2), `O_NONBLOCK`, `O_NOCTTY`).
    public static func bytes(_ path: String, atMost limit: Int) -> [UInt8]? {
        let descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)
        guard descriptor >= 0 else { return nil }
        defer { close(descriptor) }
        return try? readToEnd(descriptor, atMost: limit)
    }

    /// As `bytes`; bytes that are no UTF-8 become U+FFFD.
    public static func text(_ path: String, atMost limit: Int) -> String? {
        bytes(path, atMost: limit).map { String(decoding: $0, as: UTF8.self) }
    }
}
