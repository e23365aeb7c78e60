internal import CSystem
internal import Glibc

/// Which piece of work (by its number, above 0) this process was at when it crashed, for the next process: a line for each crash in a file,
/// written by a signal handler. A process that is killed, or loses its power, leaves none.
public enum CrashMarks {
    /// From now on a crash leaves its mark in the file `path`, absolute.
    public static func keep(in path: String) { todoku_mark_crashes(path) }

    /// Says that the thread works on `number` while `body` runs.
    public static func working<R, E: Error>(on number: UInt64, _ body: () throws(E) -> R) throws(E) -> R {
        let before = todoku_work_on(number)
        defer { _ = todoku_work_on(before) }
        return try body()
    }

    /// A transfer is under way: where it is the only one, a crash of any thread is laid to it.
    public static func transferBegan(_ number: UInt64) { todoku_transfer_began(number) }
    public static func transferEnded(_ number: UInt64) { todoku_transfer_ended(number) }

    /// How often each number was worked on at a crash. Blocks.
    public static func read(_ path: String) -> [UInt64: Int] {
        let descriptor = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)
        guard descriptor >= 0 else { return [:] }
        defer { close(descriptor) }
        // A crash costs 21 bytes at most, and two of one download end that.
        var bytes = [UInt8](repeating: 0, count: 1 << 16)
        let count = bytes.withUnsafeMutableBytes { Glibc.read(descriptor, $0.baseAddress, $0.count) }
        let lines = String(decoding: bytes.prefix(max(0, count)), as: UTF8.self).split(separator: "\n")
        return lines.reduce(into: [:]) { counts, line in if let number = UInt64(line) { counts[number, default: 0] += 1 } }
    }

    /// Writes what is still to be remembered. Blocks; what fails is remembered too long.
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
