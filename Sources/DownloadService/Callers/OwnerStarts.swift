internal import DownloadModel
internal import EventLoop
internal import Glibc

/// Counts how often sandboxed apps were started for the ends of their downloads: at most `Limits.ownerStarts` times in `window`.
///
/// A file keeps the count across restarts of the service, because an app can provoke a restart: it waits until the service is idle. The
/// file is not synced, because no app can cut the power.
@BusActor final class OwnerStarts {
    /// The time in which the starts of an app are counted.
    nonisolated static let window: Duration = .seconds(3600)
    /// How many bytes are read from the end of the file.
    private nonisolated static let longest = 64 * 1024
    private static let patience: Duration = .seconds(10)

    private let path: String
    private let now: () -> WallTime
    private var starts: [String: [WallTime]]
    /// Whether the file has expired starts only.
    private var isExpired = false
    /// Whether a start is being written to the file, and the starts that wait for that.
    private var isWriting = false
    private var turns: [CheckedContinuation<Void, Never>] = []

    /// Reads the counts of earlier processes, and drops expired starts from the file. Blocks, so call it at startup.
    init(_ path: String, now: @escaping () -> WallTime = { .now }) {
        (self.path, self.now) = (path, now)
        let kept = Self.read(path).filter { now() - $0.time < Self.window }
        starts = Dictionary(grouping: kept) { $0.app }.mapValues { $0.map(\.time) }
        unlink(path)
        _ = Self.append(kept.map { Self.line($0.time, $0.app) }.joined(), to: path)
    }

    /// Whether `app` may be started again. If so, the start is counted and written to the file.
    func take(_ app: String) async -> Bool {
        let now = now()
        // If a start lies in the future, the clock was set back: the start then counts as if it were now.
        starts = starts.mapValues { $0.map { min($0, now) }.filter { now - $0 < Self.window } }.filter { !$0.value.isEmpty }
        guard starts[app, default: []].count < Limits.ownerStarts, !app.contains("\n") else { return false }
        if starts.isEmpty { isExpired = true }
        starts[app, default: []].append(now)
        let (path, line) = (path, Self.line(now, app))
        // Write one start after the other, because the first one also removes the expired file.
        await turn()
        defer { if turns.isEmpty { isWriting = false } else { turns.removeFirst().resume() } }
        let isFirst = isExpired
        isExpired = false
        // If the file cannot be written (full disk), a restart would lose the count. Then the app is not started.
        return await DiskPool.shared.value(at: .path(path), within: Self.patience) {
            if isFirst { unlink(path) }
            return Self.append(line, to: path)
        } ?? false
    }

    /// Waits until no other start is being written.
    private func turn() async {
        await withCheckedContinuation { continuation in
            // Look here, and not before the call: the call may suspend, so that the last turn ends in between.
            if isWriting { turns.append(continuation) } else { continuation.resume() }
            isWriting = true
        }
    }

    private nonisolated static func line(_ time: WallTime, _ app: String) -> String { "\(time.microseconds) \(app)\n" }

    private nonisolated static func append(_ text: String, to path: String) -> Bool {
        guard !text.isEmpty else { return true }
        let descriptor = open(path, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0o600)
        guard descriptor >= 0 else { return false }
        defer { close(descriptor) }
        return text.withCString { write(descriptor, $0, text.utf8.count) } == text.utf8.count
    }

    private nonisolated static func read(_ path: String) -> [(time: WallTime, app: String)] {
        let descriptor = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)
        guard descriptor >= 0 else { return [] }
        defer { close(descriptor) }
        let start = max(0, lseek(descriptor, 0, Int32(SEEK_END)) - Int(longest))
        var bytes = [UInt8](repeating: 0, count: longest)
        let count = bytes.withUnsafeMutableBytes { pread(descriptor, $0.baseAddress, $0.count, start) }
        return String(decoding: bytes.prefix(max(0, count)), as: UTF8.self).split(separator: "\n").compactMap { line in
            let parts = line.split(separator: " ", maxSplits: 1)
            guard parts.count == 2, let time = UInt64(parts[0]) else { return nil }
            return (WallTime(microseconds: time), String(parts[1]))
        }
    }
}
