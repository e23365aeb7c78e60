internal import CSystem
internal import Glibc

/// Signals as events of the bus loop (signalfd(2)).
///
/// Call `block` before the first thread starts; otherwise another thread receives the signals.
@BusActor public final class SignalSource {
    private let descriptor: Int32
    private var token: Poller.Token?

    /// The signals that end a program in the background.
    public nonisolated static let endSignals = [SIGTERM, SIGINT, SIGHUP]

    /// The signals of a terminal: its end, Ctrl-C and Ctrl-\. nohup(1) has a program ignore the first one. A shell without job control has
    /// a command in the background ignore the others.
    private nonisolated static let ofTerminal = [SIGHUP, SIGINT, SIGQUIT]

    /// Blocks `signals` for the calling thread and all threads that it starts. Call first in `main`.
    ///
    /// A signal of a terminal that the parent of this program ignores stays ignored, and never arrives. A block would keep even an ignored
    /// signal for signalfd(2).
    public nonisolated static func block(_ signals: [Int32]) {
        var set = mask(signals.filter { !ofTerminal.contains($0) || !todoku_is_ignored($0) })
        pthread_sigmask(SIG_BLOCK, &set, nil)
    }

    /// Ends the block of `signals` for the calling thread. A pending one takes its effect before this returns.
    public nonisolated static func unblock(_ signals: [Int32]) {
        var set = mask(signals)
        pthread_sigmask(SIG_UNBLOCK, &set, nil)
    }

    /// Whether `signal` has arrived, is blocked, and has not been received yet.
    public nonisolated static func isPending(_ signal: Int32) -> Bool {
        var set = sigset_t()
        sigpending(&set)
        return sigismember(&set, signal) == 1
    }

    /// Whether one of `endSignals` is pending. The end of a session ends the bus, too, and a program that waits for its bus then fails
    /// before its loop can receive the signal. Such a program ends as by the signal, without an error.
    public nonisolated static var isEndPending: Bool { endSignals.contains { isPending($0) } }

    private nonisolated static func mask(_ signals: [Int32]) -> sigset_t {
        var set = sigset_t()
        sigemptyset(&set)
        for signal in signals { sigaddset(&set, signal) }
        return set
    }

    /// Calls `received` with each of `signals` that arrives, while this object lives.
    public init(_ signals: [Int32], _ received: @escaping @BusActor (Int32) -> Void) {
        var set = Self.mask(signals)
        let descriptor = signalfd(-1, &set, Int32(SFD_CLOEXEC | SFD_NONBLOCK))
        precondition(descriptor >= 0, "signalfd: errno \(errno)")
        self.descriptor = descriptor
        token = Poller.shared.watch(descriptor, for: .readable) { _ in
            var info = signalfd_siginfo()
            while read(descriptor, &info, MemoryLayout<signalfd_siginfo>.size) == MemoryLayout<signalfd_siginfo>.size {
                received(Int32(info.ssi_signo))
            }
        }
    }

    isolated deinit {
        if let token { Poller.shared.cancel(token) }
        close(descriptor)
    }
}
