internal import CSystem
internal import Glibc

extension LoopExecutor {
    /// A loop on a thread of its own, which runs jobs and waits for nothing else. For an actor whose calls block, as on a disk.
    ///
    /// The thread starts with the first job and ends with `stop`. Jobs enqueued after that never run.
    ///
    /// - Parameter name: the thread's name, at most 15 bytes.
    public static func onThread(_ name: String) -> LoopExecutor {
        let bell = Bell()
        return LoopExecutor(wake: { bell.ring() }) { loop in
            startThread(name) {
                loop.run { block in
                    if block { bell.wait() }
                    return .now
                }
            }
        }
    }
}

/// An eventfd(2) that lives as long as a loop can ring it.
private final class Bell: Sendable {
    private let descriptor: Int32

    init() {
        descriptor = eventfd(0, Int32(EFD_CLOEXEC))
        precondition(descriptor >= 0, "eventfd: errno \(errno)")
    }

    deinit { close(descriptor) }

    func ring() { _ = eventfd_write(descriptor, 1) }

    /// Returns once the bell has been rung, even if it was rung before the call.
    func wait() {
        var value: UInt64 = 0
        _ = eventfd_read(descriptor, &value)
    }
}
