internal import DBus
internal import DownloaderInterface
internal import EventLoop

/// One who is told whether the service runs, and that it has changed.
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
        // A download that ends as soon as it is queued changes no count.
        let listed = [Manager.downloadEnded.name, Manager.downloadRemoved.name].map { name in
            MatchRule(sender: BusName.service, path: BusName.managerPath.value, interface: Manager.interface, member: name)
        }
        subscriptions = ([properties] + listed).map { rule in connection.subscribe(rule) { _ in receive(.changed) } }
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
