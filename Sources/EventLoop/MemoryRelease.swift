/// Gives the memory of a program that rests back to the kernel: unused blocks of the heap, and the code.
@BusActor public final class MemoryRelease {
    /// Not at once: most of the code would be used again by the next call.
    private static let delay: Duration = .seconds(5)

    private var timer: Poller.Token?

    public init() {}

    /// Gives the memory back five seconds after the last call of this method, provided that the program rests then.
    public func later(if rests: @escaping @BusActor () -> Bool = { true }) {
        if let timer { Poller.shared.cancel(timer) }
        timer = Poller.shared.schedule(after: Self.delay) { [self] in
            timer = nil
            guard rests() else { return }
            trimHeap()
            releaseCode()
        }
    }
}
