internal import CSystem
internal import EventLoop
internal import Glibc

/// The entries that handlers on the bus loop have recorded.
@BusActor final class Journal<Entry: Sendable>: Sendable {
    private(set) var entries: [Entry] = []
    nonisolated init() {}
    func append(_ entry: Entry) { entries.append(entry) }
}

/// A pipe that is closed with its last reference.
final class Pipe: Sendable {
    let readEnd: Int32
    let writeEnd: Int32

    init() {
        var ends: [Int32] = [0, 0]
        precondition(todoku_pipe(&ends) == 0)
        (readEnd, writeEnd) = (ends[0], ends[1])
    }

    deinit {
        close(readEnd)
        close(writeEnd)
    }

    func put(_ bytes: [UInt8] = [1]) { precondition(write(writeEnd, bytes, bytes.count) == bytes.count) }

    /// Waits for bytes; empty at the end.
    @discardableResult func take(_ most: Int = 1) -> [UInt8] {
        var bytes = [UInt8](repeating: 0, count: most)
        let count = read(readEnd, &bytes, most)
        return Array(bytes.prefix(max(0, count)))
    }
}

/// The kernel's number of the calling thread.
func threadNumber() -> Int {
    var target = [CChar](repeating: 0, count: 64)
    let count = readlink("/proc/thread-self", &target, 63)
    let text = String(decoding: target.prefix(max(0, count)).map { UInt8(bitPattern: $0) }, as: UTF8.self)
    return text.split(separator: "/").last.flatMap { Int($0) } ?? -1
}

/// Waits `milliseconds` on a thread of its own, without using the bus loop.
func pass(milliseconds: Int32) async {
    await withCheckedContinuation { continuation in
        startThread("test-clock") {
            poll(nil, 0, milliseconds)
            continuation.resume()
        }
    }
}

/// Resumes a continuation on a thread other than the loop's.
func resumeElsewhere() async -> Int {
    await withCheckedContinuation { continuation in
        startThread("test-foreign") { continuation.resume(returning: threadNumber()) }
    }
}
