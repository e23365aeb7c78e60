internal import DBus
public import DownloadModel

/// Why a call of the client failed. `message` is one English sentence.
public struct ClientError: Error, Equatable, Sendable, CustomStringConvertible {
    public enum Cause: Hashable, Sendable {
        /// The session bus cannot be reached, or is gone.
        case busUnavailable
        /// The service is not installed, cannot be started, or goes away again and again.
        case serviceUnavailable
        /// The download does not exist, or no longer.
        case unknownDownload
        /// The service refused the call, or the awaited download failed: see `errorName`.
        case refused
    }

    public let cause: Cause
    /// The error's name on the bus, such as `org.todoku.Error.HttpStatus`.
    public let name: String
    public let message: String

    public init(_ cause: Cause, name: String, message: String) { (self.cause, self.name, self.message) = (cause, name, message) }

    /// The contract's error name; nil for an error of the bus itself, and for an error newer than this client.
    public var errorName: ErrorName? { ErrorName(onBus: name) }

    public var description: String { message }
}

extension ErrorName {
    /// Reads an error's name on the bus; nil if the contract does not have the name, or if the name is newer than this client.
    init?(onBus name: String) {
        let prefix = "org.todoku.Error."
        guard name.hasPrefix(prefix) else { return nil }
        self.init(rawValue: String(name.dropFirst(prefix.utf8.count)))
    }
}

extension ClientError {
    /// From an error of libdbus or the service.
    init(_ error: DBusError) {
        let standard = "org.freedesktop.DBus.Error."
        let short = error.name.hasPrefix(standard) ? String(error.name.dropFirst(standard.utf8.count)) : ""
        switch short {
        case "Disconnected":
            self.init(.busUnavailable, name: error.name, message: "the session bus has gone: \(error.message)")
        case "ServiceUnknown", "NameHasNoOwner", "TimedOut":
            self.init(.serviceUnavailable, name: error.name, message: Self.cannotStart(error.message))
        case "NoReply":
            self.init(.serviceUnavailable, name: error.name, message: "\(serviceName) does not answer: \(error.message)")
        case "UnknownObject":
            self.init(.unknownDownload, name: error.name, message: error.message)
        case _ where short.hasPrefix("Spawn.") || error.name.hasPrefix("org.freedesktop.systemd1."):
            self.init(.serviceUnavailable, name: error.name, message: Self.cannotStart(error.message))
        default:
            self.init(.refused, name: error.name, message: error.message.isEmpty ? error.name : error.message)
        }
    }

    static func busUnavailable(_ error: DBusError) -> ClientError {
        ClientError(.busUnavailable, name: error.name, message: "the session bus cannot be reached: \(error.message)")
    }

    private static func cannotStart(_ message: String) -> String { "\(serviceName) cannot be started: \(message)" }
}

private let serviceName = "org.todoku.Downloader1"
