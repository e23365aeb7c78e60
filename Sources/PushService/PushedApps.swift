internal import DBus
internal import DownloadModel
internal import DownloaderInterface
internal import EventLoop
internal import PushInterface
internal import PushModel

/// Calls the apps whose messages have ended: `org.freedesktop.Application.ActivateAction`.
@BusActor final class PushedApps {
    /// How long to wait for an app's answer. The bus continues to start the app after that, and the call still reaches it.
    private static let patience: Duration = .seconds(25)

    private let connection: Connection
    private let registry: Registry

    init(connection: Connection, registry: Registry) { (self.connection, self.registry) = (connection, registry) }

    /// - Returns: nil if the app has answered.
    func call(_ registration: Registration, _ message: PendingPush, _ outcome: PendingPush.Outcome) async -> DBusError? {
        var details: [String: Variant] = ["url": .string(message.push.url), "sha256": .string(message.push.sha256)]
        if outcome.result == .failed {
            details["error"] = .string(outcome.error)
            details["message"] = .string(outcome.message)
        }
        let parameter = Variant.structure([
            .string(registration.key.name), .string(outcome.result.rawValue), .string(outcome.path), .dictionary(details),
        ])
        guard registration.isSandboxed else { return await call(registration, parameter, starts: true) }
        // An app in a sandbox must not be able to start itself at will, by a push that brings nothing.
        let failure = await call(registration, parameter, starts: false)
        guard let failure, failure.isNotThere, outcome.result == .newData, registry.countStart(of: registration.token) else {
            return failure
        }
        return await call(registration, parameter, starts: true)
    }

    private func call(_ registration: Registration, _ parameter: Variant, starts: Bool) async -> DBusError? {
        let name = registration.rules.activate
        do throws(DBusError) {
            try await connection.call(
                Application.activateAction, on: name, at: BusName.applicationPath(name), (Push.action, [parameter], [:]),
                timeout: Self.patience, starts: starts)
            return nil
        } catch { return error }
    }
}
