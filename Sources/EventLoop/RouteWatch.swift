internal import CSystem
internal import Glibc

/// Reports that a link, an address or a route of the kernel has changed (rtnetlink(7)), while this object lives. Several changes may come
/// as one report. Between changes, nothing wakes the loop.
@BusActor public final class RouteWatch {
    /// Most messages that one turn of the loop takes. Another program may change routes without end.
    private static let mostMessages = 64

    private let descriptor: Int32
    private var token: Poller.Token?

    /// nil: the kernel reports nothing to this process.
    public convenience init?(_ changed: @escaping @BusActor () -> Void) {
        let descriptor = todoku_watch_routes()
        guard descriptor >= 0 else { return nil }
        self.init(descriptor: descriptor, changed)
    }

    /// - Parameter descriptor: is readable after each change, does not block, and is closed with this object. Tests give a socket of their
    ///   own.
    public init(descriptor: Int32, _ changed: @escaping @BusActor () -> Void) {
        self.descriptor = descriptor
        token = Poller.shared.watch(descriptor, for: .readable) { _ in
            // The content does not matter, so a message may be cut.
            var bytes: UInt64 = 0
            var messages = 0
            while messages < Self.mostMessages, read(descriptor, &bytes, 8) > 0 { messages += 1 }
            changed()
        }
    }

    isolated deinit {
        if let token { Poller.shared.cancel(token) }
        close(descriptor)
    }
}
