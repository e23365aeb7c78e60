internal import DBus
internal import JSON

/// The program's answer to a message. docs/browser.md describes the fields.
enum Answer: Equatable, Sendable {
    /// The download is queued, and saved on disk.
    case accepted(ObjectPath)
    case status(version: String, remaining: UInt32, active: UInt32, isPaused: Bool)
    /// The download is no longer on the list.
    case removed
    /// - Parameters:
    ///   - name: an error name of the service without its prefix, such as `InvalidUrl`, or one of our own names below.
    ///   - message: one English sentence.
    case failed(name: String, message: String)

    // Our own error names.
    static let invalidMessage = "InvalidMessage"
    static let messageTooLong = "MessageTooLong"
    static let serviceUnavailable = "ServiceUnavailable"

    private static let prefix = "org.todoku.Error."
    /// Most bytes of an error's message. Browsers accept answers of at most 1 MiB.
    private static let mostBytes = 8192

    init(_ error: JSONError) { self = .failed(name: Self.invalidMessage, message: "The message is not valid: \(error.message).") }

    init(_ error: DBusError) {
        if error.name.hasPrefix(Self.prefix) {
            self = .failed(name: String(error.name.dropFirst(Self.prefix.utf8.count)), message: error.message)
        } else {
            self = .failed(name: Self.serviceUnavailable, message: "The download service cannot be reached: \(error.message)")
        }
    }

    var json: JSONValue {
        switch self {
        case .accepted(let path): .object(["type": .string("accepted"), "download": .string(path.value)])
        case .status(let version, let remaining, let active, let isPaused):
            .object([
                "type": .string("status"), "version": .string(version), "remaining": .integer(Int64(clamping: remaining)),
                "active": .integer(Int64(clamping: active)), "paused": .bool(isPaused),
            ])
        case .removed: .object(["type": .string("removed")])
        case .failed(let name, let message):
            .object([
                "type": .string("error"), "name": .string(name),
                "message": .string(String(decoding: message.utf8.prefix(Self.mostBytes), as: UTF8.self)),
            ])
        }
    }
}
