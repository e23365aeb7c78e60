internal import DBus
internal import EventLoop

/// Whether a notification server is running, according to the session bus. The first toast asks the bus; a signal reports every later
/// change.
///
/// Uses the bus loop's connection. Without a server, neither GIO nor the notify thread starts, and nothing polls.
@BusActor final class ToastServerPresence {
    static let name = "org.freedesktop.Notifications"
    /// Starts the program that the bus knows for an unowned name. The bus answers once the program owns the name.
    private static let start = MethodOf(BusDaemon.name, "StartServiceByName", in: String.self, UInt32.self, out: UInt32.self)

    private static let disconnected = DBusError.disconnected("").name

    enum Answer { case there, missing, noBus }

    private let connection: Connection
    private let changed: @BusActor (Bool) -> Void
    private var subscription: Connection.Subscription?
    /// Counts the signals. A signal is newer than the answer to a question from before.
    private var news: UInt64 = 0
    /// nil: unknown, because no toast has asked.
    private(set) var isThere: Bool?
    /// The unique name of the running server; nil: there is none, or the name is unknown.
    private(set) var owner: String?
    private(set) var isAsking = false

    /// - Parameter changed: called when a server appears, is replaced, or disappears.
    init(on connection: Connection, changed: @escaping @BusActor (Bool) -> Void) {
        (self.connection, self.changed) = (connection, changed)
        subscription = connection.watchOwner(of: Self.name) { [weak self] owner in
            guard let self else { return }
            news += 1
            (isThere, self.owner) = (owner != nil, owner)
            self.changed(owner != nil)
        }
    }

    /// Asks the bus for a server, which the bus may start. One question at a time; a further call is ignored. The answer does not trigger
    /// `changed`.
    func ask(_ answered: @escaping @BusActor (Answer) -> Void) {
        guard !isAsking else { return }
        isAsking = true
        let before = news
        BusActor.spawn { [self] in
            var isClosed = false
            // Ask for the owner first: StartServiceByName fails for a running server that the bus cannot start.
            let found = try? await connection.call(BusDaemon.getNameOwner, on: BusDaemon.name, at: BusDaemon.path, Self.name)
            var isFound = found != nil
            if !isFound {
                do throws(DBusError) {
                    _ = try await connection.call(Self.start, on: BusDaemon.name, at: BusDaemon.path, (Self.name, 0))
                    isFound = true
                } catch { isClosed = error.name == Self.disconnected }
            }
            isAsking = false
            if news == before { (isThere, owner) = (isFound, found) }
            answered(isClosed ? .noBus : isThere == true ? .there : .missing)
        }
    }
}
