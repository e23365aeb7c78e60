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
        var bytes: [UInt8] = []
        var buffer = [UInt8](repeating: 0, count: 4096)
        while bytes.count <= limit {
            let count = read(descriptor, &buffer, buffer.count)
            if count < 0, errno == EINTR { continue }
            guard count > 0 else { return count == 0 ? bytes : nil }
            bytes.append(contentsOf: buffer.prefix(count))
        }
        return nil
    }

    /// As `bytes`; bytes that are no UTF-8 become U+FFFD.
    public static func text(_ path: String, atMost limit: Int) -> String? {
        bytes(path, atMost: limit).map { String(decoding: $0, as: UTF8.self) }
    }
}
