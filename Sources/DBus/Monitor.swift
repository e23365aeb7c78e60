internal import CDBus
internal import EventLoop

extension Connection {
    /// Makes this the connection of a monitor: it sees every message of the bus, and can send none (D-Bus specification, "Becoming a
    /// monitor"). Only the user who runs the bus may do this, and root.
    ///
    /// - Parameter receive: called with each message, in the order in which the bus handles them.
    /// - Throws: `AccessDenied` if the bus refuses.
    public func monitor(_ receive: @escaping @BusActor (Message) -> Void) async throws(DBusError) {
        dbus_connection_set_route_peer_messages(raw, 1)  // otherwise libdbus would answer a ping in its receiver's place
        observer = receive  // before the call: messages may come with its answer
        do throws(DBusError) {
            try await call(BusDaemon.becomeMonitor, on: BusDaemon.name, at: BusDaemon.path, ([], 0))
        } catch {
            observer = nil
            throw error
        }
    }
}
