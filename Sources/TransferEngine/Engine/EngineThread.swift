internal import CSystem
internal import DownloadModel
internal import EventLoop
internal import Glibc
internal import Synchronization
internal import Transport

/// The thread of an engine, and its wait for the network. It starts with the first command.
final class EngineThread: Sendable {
    let loop: LoopExecutor
    private let wakeDescriptor: Int32
    /// When the thread last left its wait, in nanoseconds of `SuspendingClock`; 0: the thread is waiting.
    private let busySince = Atomic<UInt64>(0)

    init() {
        let descriptor = eventfd(0, Int32(EFD_CLOEXEC | EFD_NONBLOCK))
        precondition(descriptor >= 0, "eventfd: errno \(errno)")
        wakeDescriptor = descriptor
        loop = LoopExecutor(wake: { _ = eventfd_write(descriptor, 1) }) { _ in preconditionFailure("the engine claims its loop itself") }
    }

    deinit { close(wakeDescriptor) }

    /// Starts the thread if it does not run yet. It calls `turn` between jobs; `turn(true)` calls `wait`.
    func start(_ turn: @escaping @Sendable (_ block: Bool) -> Void) {
        guard loop.claim() else { return }
        startThread("todoku-curl") { [loop] in
            loop.run { block in
                turn(block)
                return .now
            }
        }
    }

    /// Waits for a command, and for `limit` at most for the connections of `multi`; nil: for a command only.
    func wait(_ multi: (handle: MultiHandle, limit: Duration)?) {
        setBusy(false)
        defer { setBusy(true) }
        if let multi {
            multi.handle.wait(wakeDescriptor, milliseconds: Int32(clamping: multi.limit.wholeMilliseconds))
        } else {
            var entry = pollfd(fd: wakeDescriptor, events: Int16(POLLIN), revents: 0)
            _ = poll(&entry, 1, -1)
        }
        var value: UInt64 = 0
        _ = eventfd_read(wakeDescriptor, &value)
    }

    /// How long the current step has kept the thread: usually a call on its disk.
    var busy: Duration {
        let since = busySince.load(ordering: .relaxed)
        return since == 0 ? .zero : .nanoseconds(max(0, Int64(monotonicNanoseconds()) - Int64(since)))
    }

    /// Call at the beginning of each step.
    func setBusy(_ isBusy: Bool = true) { busySince.store(isBusy ? monotonicNanoseconds() : 0, ordering: .relaxed) }
}

/// CLOCK_MONOTONIC, which `SuspendingClock` reads.
private func monotonicNanoseconds() -> UInt64 {
    var now = timespec()
    clock_gettime(CLOCK_MONOTONIC, &now)
    return UInt64(now.tv_sec) * 1_000_000_000 + UInt64(now.tv_nsec)
}
