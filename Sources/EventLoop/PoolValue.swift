extension Pool {
    /// What `work` comes to, done on a thread of the pool; nil where it has not come back within `patience`, as from a disk that hangs: it goes on
    /// there all the same.
    @BusActor public func value<R: Sendable>(within patience: Duration, _ work: @escaping @Sendable () -> R) async -> R? {
        await withCheckedContinuation { continuation in
            let race = Race(continuation)
            let timer = Poller.shared.schedule(after: patience) { race.end(nil) }
            perform(work) { result in
                Poller.shared.cancel(timer)
                race.end(result)
            }
        }
    }
}

/// The first end counts.
@BusActor private final class Race<R: Sendable> {
    private var continuation: CheckedContinuation<R?, Never>?
    init(_ continuation: CheckedContinuation<R?, Never>) { self.continuation = continuation }

    func end(_ result: R?) {
        continuation?.resume(returning: result)
        continuation = nil
    }
}
