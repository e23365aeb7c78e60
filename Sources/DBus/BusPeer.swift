public import EventLoop

/// Follows a program with a well-known name that may or may not run. Never starts it.
@BusActor public final class BusPeer {
    private let connection: Connection
    private var subscription: Connection.Subscription?
    private var owner: String??
    private let changed: @BusActor (String?) -> Void

    /// Calls `changed` with the unique name of the owner of `name`, or nil: now, and after each change of owner, until `stop`.
    public init(_ name: String, on connection: Connection, changed: @escaping @BusActor (String?) -> Void) {
        (self.connection, self.changed) = (connection, changed)
        subscription = connection.watchOwner(of: name) { [weak self] in self?.take($0) }
        BusActor.spawn { [weak self] in
            let owner = try? await connection.call(BusDaemon.getNameOwner, on: BusDaemon.name, at: BusDaemon.path, name)
            // Ignore the answer if a signal came meanwhile: the signal is newer, or names the same owner.
            if let self, self.owner == nil { take(owner) }
        }
    }

    public func stop() {
        if let subscription { connection.unsubscribe(subscription) }
        subscription = nil
    }

    private func take(_ owner: String?) {
        guard subscription != nil, self.owner != .some(owner) else { return }
        self.owner = .some(owner)
        changed(owner)
    }
}
