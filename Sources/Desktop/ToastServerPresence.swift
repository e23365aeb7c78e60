internal import DBus
internal import EventLoop

/// Whether a notification server is there, as the session bus says: asked when there is a toast, and told by a signal from then on.
///
/// It lives on the connection of the bus loop. Without a server neither GIO nor the notify thread is needed, and nothing wakes up to look
/// for one.
@BusActor final class ToastServerPresence {
    static let name = "org.freedesktop.Notifications"
    /// What the bus does when the name has no owner: it starts a program where it knows one, and answers once that has the name.
    private static let start = MethodOf(BusDaemon.name, "StartServiceByName", in: String.self, UInt32.self, out: UInt32.self)

    private static let disconnected = DBusError.disconnected("").name

    enum Answer { case there, missing, noBus }

    private let connection: Connection
    private let changed: @BusActor (Bool) -> Void
    private var subscription: Connection.Subscription?
    /// Counts what the signal has told: what it said is newer than an answer that was asked for before.
    private var news: UInt64 = 0
    /// nil: nobody has asked yet.
    private(set) var isThere: Bool?
    private(set) var isAsking = false

    /// - Parameter changed: called when a server has come (also one in the place of another), or has gone.
    init(on connection: Connection, changed: @escaping @BusActor (Bool) -> Void) {
        (self.connection, self.changed) = (connection, changed)
        subscription = connection.watchOwner(of: Self.name) { [weak self] owner in
            guard let self else { return }
            news += 1
            isThere = owner != nil
            self.changed(owner != nil)
        }
    }

    /// Asks the bus for a server, which it may start for that. One question at a time; `changed` is not called for the answer.
    func ask(_ answered: @escaping @BusActor (Answer) -> Void) {
        guard !isAsking else { return }
        isAsking = true
        let before = news
        BusActor.spawn { [self] in
            var isClosed = false
            var isFound = false
            // A server that is there but that the bus could not start is no service to it.
            if (try? await connection.call(BusDaemon.getNameOwner, on: BusDaemon.name, at: BusDaemon.path, Self.name)) != nil {
                isFound = true
            } else {
                do throws(DBusError) {
                    _ = try await connection.call(Self.start, on: BusDaemon.name, at: BusDaemon.path, (Self.name, 0))
                    isFound = true
                } catch { isClosed = error.name == Self.disconnected }
            }
            isAsking = false
            if news == before { isThere = isFound }
            answered(isClosed ? .noBus : isThere == true ? .there : .missing)
        }
    }
}
