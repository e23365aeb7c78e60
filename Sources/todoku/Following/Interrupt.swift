internal import EventLoop
internal import Glibc
internal import Localization
internal import TodokuClient

/// A command that Ctrl-C can detach from the service.
@BusActor protocol Interruptible: AnyObject {
    /// The message on Ctrl-C; nil if no download is left.
    var farewell: String? { get }
    /// Clears the display for that message, and for others. What changes later is drawn below them.
    func leave()
}

/// Handles Ctrl-C in commands that follow downloads to their end: the command exits at once, and the downloads continue in the service.
/// A second Ctrl-C, which people press out of habit, does nothing more: `todoku cancel` cancels. SIGINT must be blocked.
@BusActor final class Interrupt {
    /// What the command follows now, and so draws; nil: nothing.
    private(set) static weak var follower: (any Interruptible)?

    private let follower: any Interruptible
    private var signals: SignalSource?

    init(_ follower: any Interruptible) {
        self.follower = follower
        Self.follower = follower
        signals = SignalSource([SIGINT]) { [unowned self] _ in received() }
    }

    /// Stops handling the signal; a later one has no effect.
    func end() {
        signals = nil
        Self.follower = nil
    }

    private func received() -> Never {
        if let farewell = follower.farewell {
            follower.leave()
            Output.complain(farewell)
        }
        Program.finish(.interrupted)
    }

    /// Most time in which `run` awaits the answers of a service after Ctrl-C. A service that hangs gives none.
    private static let patience: Duration = .seconds(1)

    /// Calls `begin`, and then `follow` with what has begun. If Ctrl-C is pressed meanwhile, calls `cancel` with it, and then ends the
    /// program as interrupted, after `patience` at the latest. SIGINT must be blocked.
    ///
    /// After Ctrl-C, no other result and no error counts: `cancel` may end the very thing that `follow` awaits.
    ///
    /// - Parameters:
    ///   - farewell: the message on Ctrl-C; nil: none.
    ///   - cancel: called again if `follow` ends before the program does. The first call to return ends the program.
    static func run<Subject: Sendable>(
        saying farewell: String?, _ begin: @BusActor () async throws -> Subject, follow: @BusActor (Subject) async throws -> Void,
        cancel: @escaping @BusActor @Sendable (Subject) async -> Void
    ) async throws {
        let cancellation = Cancellation(saying: farewell, cancel)
        let signals = SignalSource([SIGINT]) { _ in cancellation.begin() }
        defer { withExtendedLifetime(signals) {} }
        do {
            let subject = try await begin()
            cancellation.subject = subject
            // Ctrl-C could not cancel what had not begun.
            if cancellation.hasBegun { await cancellation.end() }
            try await follow(subject)
        } catch {
            if cancellation.hasBegun { await cancellation.end() }
            throw error
        }
        if cancellation.hasBegun { await cancellation.end() }
    }

    /// What Ctrl-C does in `run`.
    @BusActor private final class Cancellation<Subject: Sendable> {
        /// What `cancel` cancels; nil: it has not begun yet.
        var subject: Subject?
        private(set) var hasBegun = false
        private let farewell: String?
        private let cancel: @BusActor @Sendable (Subject) async -> Void

        init(saying farewell: String?, _ cancel: @escaping @BusActor @Sendable (Subject) async -> Void) {
            (self.farewell, self.cancel) = (farewell, cancel)
        }

        func begin() {
            guard !hasBegun else { return }
            hasBegun = true
            if let farewell { Output.complain(farewell) }
            if subject != nil { BusActor.spawn { await self.end() } }
            // As a job: it comes after the jobs that wait already, also if this process got no time for more than a second.
            Poller.shared.schedule(after: Interrupt.patience) { BusActor.spawn { Program.finish(.interrupted) } }
        }

        func end() async -> Never {
            if let subject { await cancel(subject) }
            Program.finish(.interrupted)
        }
    }

    nonisolated static func sentence(_ downloads: [DownloadReference]) -> String {
        let ids = downloads.prefix(20).map(\.description).joined(separator: " ")
        guard downloads.count != 1 else {
            return catalog.text(
                "the download continues in the background; “todoku watch %1$s” shows it, and “todoku cancel %1$s” cancels it", ids)
        }
        return catalog.text(
            "%1$s download continues in the background; “todoku watch %2$s” shows it, and “todoku cancel %2$s” cancels it",
            "%1$s downloads continue in the background; “todoku watch %2$s” shows them, and “todoku cancel %2$s” cancels them",
            count: UInt64(downloads.count), ids)
    }
}
