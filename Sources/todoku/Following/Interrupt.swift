internal import EventLoop
internal import Glibc
internal import Localization
internal import TodokuClient

/// A command that Ctrl-C can detach from the service.
@BusActor protocol Interruptible: AnyObject {
    /// The message on Ctrl-C; nil if no download is left.
    var farewell: String? { get }
    /// Stops the display; updates are still processed.
    func leave()
    /// Cancels the remaining downloads.
    func cancelRest() async
}

/// Handles Ctrl-C in `get` and `batch`: pressed once, the downloads continue in the service; pressed twice within two seconds, they are
/// cancelled. SIGINT must be blocked.
@BusActor final class Interrupt {
    private static let patience: Duration = .seconds(2)

    private let follower: any Interruptible
    private var signals: SignalSource?
    private var deadline: Poller.Token?

    init(_ follower: any Interruptible) {
        self.follower = follower
        signals = SignalSource([SIGINT]) { [unowned self] _ in received() }
    }

    /// Stops handling the signal; a later one has no effect.
    func end() {
        signals = nil
        if let deadline { Poller.shared.cancel(deadline) }
    }

    private func received() {
        guard let farewell = follower.farewell else { Program.finish(.interrupted) }
        if deadline == nil {
            follower.leave()
            Output.complain(farewell)
            deadline = Poller.shared.schedule(after: Self.patience) { Program.finish(.interrupted) }
        } else {
            end()
            BusActor.spawn { [follower] in
                await follower.cancelRest()
                Program.finish(.interrupted)
            }
        }
    }

    nonisolated static func sentence(_ downloads: [DownloadReference]) -> String {
        let ids = downloads.prefix(20).map(\.description).joined(separator: " ")
        guard downloads.count != 1 else {
            return catalog.text(
                "the download continues in the background; “todoku watch %1$s” shows it. Press Ctrl-C again within 2 s to cancel it.", ids)
        }
        return catalog.text(
            "%1$s download continues in the background; “todoku watch %2$s” shows it. Press Ctrl-C again within 2 s to cancel it.",
            "%1$s downloads continue in the background; “todoku watch %2$s” shows them. Press Ctrl-C again within 2 s to cancel them.",
            count: UInt64(downloads.count), ids)
    }
}
