internal import DBus
internal import DownloaderInterface
internal import EventLoop

/// Reports to one receiver whether the service runs, and its changes.
@BusActor final class Presence {
    private let connection: Connection
    private let receive: @Sendable (ServiceNews) -> Void
    private var peer: BusPeer?
    private var subscriptions: [Connection.Subscription] = []

    init(on connection: Connection, _ receive: @escaping @Sendable (ServiceNews) -> Void) {
        (self.connection, self.receive) = (connection, receive)
        var properties = MatchRule(
            sender: BusName.service, path: BusName.managerPath.value, interface: Standard.properties,
            member: Standard.propertiesChanged.name)
        properties.argument0 = Manager.interface
        func signal<V>(_ signal: SignalOf<V>) -> MatchRule {
            MatchRule(sender: BusName.service, path: BusName.managerPath.value, interface: Manager.interface, member: signal.name)
        }
        subscriptions = [
            connection.subscribe(properties) { _ in receive(.changed) },
            // A download that ends as soon as it is queued changes no count.
            connection.subscribe(signal(Manager.downloadEnded)) { message in
                guard let (path, state, _) = Manager.downloadEnded.read(message) else { return }
                receive(.ended(DownloadReference(path), DownloadDescription.State(state)))
            },
            connection.subscribe(signal(Manager.downloadRemoved)) { message in
                if let path = Manager.downloadRemoved.read(message) { receive(.removed(DownloadReference(path))) }
            },
        ]
        peer = BusPeer(BusName.service, on: connection) { owner in receive(owner == nil ? .absent : .present) }
    }

    func stop() {
        peer?.stop()
        peer = nil
        for subscription in subscriptions { connection.unsubscribe(subscription) }
        subscriptions = []
    }

    func lose() { receive(.lost) }
}
