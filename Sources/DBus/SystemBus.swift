internal import CDBus
internal import EventLoop
internal import Glibc

extension Connection {
    /// The address of the system bus if `DBUS_SYSTEM_BUS_ADDRESS` is not set (D-Bus specification, "Well-known Message Bus Instances").
    private static let systemAddress = "unix:path=/var/run/dbus/system_bus_socket"

    /// Connects to the system bus and says Hello. The loop runs meanwhile, even if that bus hangs.
    ///
    /// - Parameter limit: `NoReply` is thrown after this time.
    public static func system(within limit: Duration) async throws(DBusError) -> Connection {
        let address = getenv("DBUS_SYSTEM_BUS_ADDRESS").map { String(cString: $0) } ?? ""
        return try await open(address: address.isEmpty ? systemAddress : address, within: limit)
    }

    /// Makes another connection to the session bus, in the same way.
    public static func anotherToSession(within limit: Duration) async throws(DBusError) -> Connection {
        func variable(_ name: String) -> String { getenv(name).map { String(cString: $0) } ?? "" }
        let address = variable("DBUS_SESSION_BUS_ADDRESS")
        return try await open(address: address.isEmpty ? "unix:path=\(variable("XDG_RUNTIME_DIR"))/bus" : address, within: limit)
    }

    /// connect(2) blocks until the bus accepts, so it runs on a thread of its own; Hello is an ordinary call. `dbus_bus_register` is not
    /// used, because it waits up to 25 s for the answer, and holds a lock that every other connection needs.
    static func open(address: String, within limit: Duration) async throws(DBusError) -> Connection {
        let deadline = SuspendingClock.now + limit
        let result = await withCheckedContinuation { continuation in
            let dialling = Dialling(continuation)
            let timer = Poller.shared.scheduleAwake(after: limit) {
                dialling.end(.failure(DBusError("org.freedesktop.DBus.Error.NoReply", "nobody accepts connections at \(address)")))
            }
            startThread("todoku-dial") {
                let result = dial(address)
                BusActor.spawn {
                    Poller.shared.cancel(timer)
                    dialling.end(result)
                }
            }
        }
        let connection = Connection(adopting: try result.get().raw)
        let name = try await connection.call(
            BusDaemon.hello, on: BusDaemon.name, at: BusDaemon.path, (), timeout: max(.milliseconds(1), deadline - .now))
        dbus_bus_set_unique_name(connection.raw, name)
        return connection
    }
}

/// A connection that no loop drives yet, on its way from one thread to another.
private struct Dialled: Sendable {
    // The dialling thread makes the connection, hands it over once, and does not use it afterwards. So only one thread at a time uses it.
    nonisolated(unsafe) let raw: OpaquePointer
}

private func dial(_ address: String) -> Result<Dialled, DBusError> {
    do throws(DBusError) {
        guard let raw = try withDBusError({ dbus_connection_open_private(address, &$0) }) else {
            throw .disconnected("nothing answers at \(address)")
        }
        dbus_connection_set_exit_on_disconnect(raw, 0)
        return .success(Dialled(raw: raw))
    } catch { return .failure(error) }
}

/// Waits for a connection. A connection that comes too late is closed.
@BusActor private final class Dialling {
    private var continuation: CheckedContinuation<Result<Dialled, DBusError>, Never>?
    init(_ continuation: CheckedContinuation<Result<Dialled, DBusError>, Never>) { self.continuation = continuation }

    func end(_ result: Result<Dialled, DBusError>) {
        if let continuation {
            self.continuation = nil
            continuation.resume(returning: result)
        } else if case .success(let late) = result {
            dbus_connection_close(late.raw)
            dbus_connection_unref(late.raw)
        }
    }
}
