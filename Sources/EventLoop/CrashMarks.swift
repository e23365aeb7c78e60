internal import CSystem
internal import Glibc

/// Records the piece of work (a number above 0) at which this process crashed, for the next process. A signal handler appends a line to a
/// file for each crash. A process that is killed, or loses power, leaves no line.
public enum CrashMarks {
    /// From now on a crash is recorded in the file `path`, which must be absolute.
    public static func keep(in path: String) { todoku_mark_crashes(path) }

    /// Marks the thread as working on `number` while `body` runs.
    public static func working<R, E: Error>(on number: UInt64, _ body: () throws(E) -> R) throws(E) -> R {
        let before = todoku_work_on(number)
        defer { _ = todoku_work_on(before) }
        return try body()
    }

    /// A transfer has started. While it is the only one, a crash of any thread counts against it.
    public static func transferBegan(_ number: UInt64) { todoku_transfer_began(number) }
    public static func transferEnded(_ number: UInt64) { todoku_transfer_ended(number) }

    /// How many crashes each number has. Blocks.
    public static func read(_ path: String) -> [UInt64: Int] {
        let descriptor = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)
        guard descriptor >= 0 else { return [:] }
        defer { close(descriptor) }
        // A crash adds at most 21 bytes, and a download ends after two crashes.
        var bytes = [UInt8](repeating: 0, count: 1 << 16)
        let count = bytes.withUnsafeMutableBytes { Glibc.read(descriptor, $0.baseAddress, $0.count) }
        let lines = String(decoding: bytes.prefix(max(0, count)), as: UTF8.self).split(separator: "\n")
        return lines.reduce(into: [:]) { counts, line in if let number = UInt64(line) { counts[number, default: 0] += 1 } }
    }

    /// Replaces the file with the counts to keep. Blocks. If it fails, old crashes are kept longer than needed.
    public static func write(_ counts: [UInt64: Int], to path: String) {
        guard !counts.isEmpty else {
            unlink(path)
            return
        }
        let next = "\(path).next"
        unlink(next)
        let descriptor = open(next, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0o600)
        guard descriptor >= 0 else { return }
        let text = counts.sorted { $0.key < $1.key }.map { String(repeating: "\($0.key)\n", count: min($0.value, 2)) }.joined()
        let isWhole = text.withCString { Glibc.write(descriptor, $0, text.utf8.count) } == text.utf8.count
        close(descriptor)
        if !isWhole || rename(next, path) != 0 { unlink(next) }
    }
}
