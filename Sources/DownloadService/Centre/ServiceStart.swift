internal import DBus
internal import DownloadStore
internal import DownloaderInterface
internal import EventLoop
internal import Glibc
internal import Logging

/// Starts the service by the session bus. Where systemd runs the session, the service then runs as a unit with the restrictions of that
/// unit.
extension Service {
    /// How long to wait: the bus may have to start the service, and the service may have to read a long list.
    private static let startPatience: Duration = .seconds(60)
    private static let systemd = "org.freedesktop.systemd1"

    /// Has the bus start the service if a check is due. A running service checks by itself.
    ///
    /// - Returns: the exit status.
    static func startIfDue(_ connection: Connection, _ folder: String, _ log: Logger) async -> Int32 {
        guard Store.hasDueChecks(folder: folder, session: connection.busID) else { return 0 }
        do throws(DBusError) {
            _ = try await start(connection)
            return 0
        } catch {
            log.error("the service cannot be started", metadata: ["cause": "\(error.message)"])
            return 1
        }
    }

    /// At login, has the bus start the service if systemd runs the session.
    ///
    /// - Returns: false if the bus has not started the service, so that this process must be the service.
    static func startByBusAtLogin(_ connection: Connection, _ folder: String, _ log: Logger) async -> Bool {
        let isThere = try? await connection.call(
            BusDaemon.nameHasOwner, on: BusDaemon.name, at: BusDaemon.path, systemd, timeout: startPatience)
        guard isThere == true else { return false }
        noteLogin(in: folder)
        do throws(DBusError) {
            // A service that is already running does not read the note, so delete it.
            if try await start(connection) == alreadyRunning { _ = takeLogin(in: folder) }
            return true
        } catch {
            log.notice("the bus cannot start the service", metadata: ["cause": "\(error.message)"])
            // The service may still be starting.
            return error.name == "org.freedesktop.DBus.Error.NoReply"
        }
    }

    /// The answer of the bus if the service ran before (D-Bus specification, "StartServiceByName").
    private static let alreadyRunning: UInt32 = 2

    private static func start(_ connection: Connection) async throws(DBusError) -> UInt32 {
        try await connection.call(
            BusDaemon.startServiceByName, on: BusDaemon.name, at: BusDaemon.path, (BusName.service, 0), timeout: startPatience)
    }

    /// Leaves a note for the next process in this folder that somebody has logged in, because the bus cannot pass on this fact.
    private static func noteLogin(in folder: String) {
        let descriptor = open("\(folder)/login", O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0o600)
        if descriptor >= 0 { Glibc.close(descriptor) }
    }

    /// Whether this process was started because somebody has logged in.
    static func takeLogin(in folder: String) -> Bool { unlink("\(folder)/login") == 0 }
}
