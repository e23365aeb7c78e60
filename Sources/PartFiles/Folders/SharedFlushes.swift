internal import Glibc

/// Lets threads that flush the same folder at the same time share a flush.
///
/// A flush under way may miss a name that another thread has just changed. So that thread waits until the flush has ended. Then one of the
/// waiting threads flushes the folder for all of them.
final class SharedFlushes: Sendable {
    static let shared = SharedFlushes { fsync($0) == 0 ? 0 : errno }

    /// A folder is known by its inode and its path. Some file systems give one number to several folders.
    private struct Folder: Hashable {
        let device: UInt64
        let inode: UInt64
        let path: String
    }

    /// One flush, for all threads that have come before it began.
    private final class Round {
        /// The result: 0 or errno; nil: the flush has not ended.
        var code: Int32?
    }

    private struct Line {
        var isFlushing = false
        /// The round that begins next.
        var next = Round()
        /// The threads that flush the folder, or wait.
        var threads = 0
    }

    private let flush: @Sendable (_ descriptor: Int32) -> Int32
    // The two pointers never change. Only pthread’s own functions touch the mutex and the condition.
    private nonisolated(unsafe) let mutex: UnsafeMutablePointer<pthread_mutex_t>
    private nonisolated(unsafe) let condition: UnsafeMutablePointer<pthread_cond_t>
    // Every access is between lock and unlock of `mutex`.
    private nonisolated(unsafe) var lines: [Folder: Line] = [:]

    /// - Parameter flush: fsync(2): 0 or errno. Tests replace it.
    init(flush: @escaping @Sendable (_ descriptor: Int32) -> Int32) {
        self.flush = flush
        mutex = .allocate(capacity: 1)
        condition = .allocate(capacity: 1)
        pthread_mutex_init(mutex, nil)
        pthread_cond_init(condition, nil)
    }

    deinit {
        pthread_cond_destroy(condition)
        pthread_mutex_destroy(mutex)
        condition.deallocate()
        mutex.deallocate()
    }

    /// Flushes the names that are in `open` now. Waits for the disk.
    ///
    /// - Returns: 0 or errno. A flush that fails has failed for all threads that share it.
    func flush(_ open: OpenFolder) -> Int32 {
        var status = stat()
        guard fstat(open.descriptor, &status) == 0 else { return flush(open.descriptor) }
        let folder = Folder(device: UInt64(status.st_dev), inode: UInt64(status.st_ino), path: open.path)
        pthread_mutex_lock(mutex)
        defer { pthread_mutex_unlock(mutex) }
        var line = lines[folder] ?? Line()
        let round = line.next
        line.threads += 1
        lines[folder] = line
        while round.code == nil, lines[folder]?.isFlushing == true { pthread_cond_wait(condition, mutex) }
        if round.code == nil {
            lines[folder]?.isFlushing = true
            // Threads that come from now on wait for the round after this one.
            lines[folder]?.next = Round()
            pthread_mutex_unlock(mutex)
            let code = flush(open.descriptor)
            pthread_mutex_lock(mutex)
            round.code = code
            lines[folder]?.isFlushing = false
            pthread_cond_broadcast(condition)
        }
        lines[folder]?.threads -= 1
        if lines[folder]?.threads == 0 { lines[folder] = nil }
        return round.code ?? EIO
    }

    /// The threads that flush a folder, or wait.
    var threads: Int {
        pthread_mutex_lock(mutex)
        defer { pthread_mutex_unlock(mutex) }
        return lines.values.reduce(0) { $0 + $1.threads }
    }
}
