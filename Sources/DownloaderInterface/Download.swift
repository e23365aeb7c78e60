public import DBus
public import DownloadModel

/// `org.todoku.Download1`: every implemented member, as in `data/dbus-interfaces/org.todoku.Download1.xml`.
public enum Download {
    public static let interface = "org.todoku.Download1"

    public static let pause = MethodOf(interface, "Pause")
    public static let resume = MethodOf(interface, "Resume")
    public static let cancel = MethodOf(interface, "Cancel")
    public static let retry = MethodOf(interface, "Retry")
    public static let remove = MethodOf(interface, "Remove", in: Bool.self)
    public static let trash = MethodOf(interface, "Trash")
    public static let wait = MethodOf(interface, "Wait", in: [String: Variant].self, out: String.self)
    public static let acknowledge = MethodOf(interface, "Acknowledge")
    public static let replaceUrl = MethodOf(interface, "ReplaceUrl", in: String.self, [String: Variant].self)
    public static let getUrl = MethodOf(interface, "GetUrl", out: String.self)
    public static let getMetadata = MethodOf(interface, "GetMetadata", out: [String: Variant].self)
    public static let setMetadata = MethodOf(interface, "SetMetadata", in: [String: Variant].self)
    public static let moveTo = MethodOf(interface, "MoveTo", in: UInt32.self)
    public static let openFile = MethodOf(interface, "OpenFile", out: FileDescriptor.self)

    public static let resumedAt = SignalOf(interface, "ResumedAt", UInt64.self, Int64.self)
    public static let progress = SignalOf(interface, "Progress", UInt64.self, UInt64.self, Int64.self)
    public static let finished = SignalOf(interface, "Finished", String.self)
    public static let completed = SignalOf(interface, "Completed", String.self, String.self, [String: Variant].self)

    public static let url = PropertyOf(interface, "Url", String.self)
    public static let app = PropertyOf(interface, "App", String.self, change: .constant)
    public static let token = PropertyOf(interface, "Token", String.self, change: .constant)
    public static let tag = PropertyOf(interface, "Tag", String.self, change: .constant)
    public static let state = PropertyOf(interface, "State", String.self)
    public static let waitReason = PropertyOf(interface, "WaitReason", String.self)
    public static let waitUntil = PropertyOf(interface, "WaitUntil", UInt64.self)
    public static let ahead = PropertyOf(interface, "Ahead", UInt32.self, change: .untold)
    public static let received = PropertyOf(interface, "Received", UInt64.self, change: .untold)
    public static let total = PropertyOf(interface, "Total", Int64.self, change: .untold)
    public static let speed = PropertyOf(interface, "Speed", UInt64.self, change: .untold)
    public static let fraction = PropertyOf(interface, "Fraction", Double.self, change: .untold)
    public static let extracted = PropertyOf(interface, "Extracted", Double.self)
    public static let directory = PropertyOf(interface, "Directory", String.self, writable: true)
    public static let fileName = PropertyOf(interface, "FileName", String.self)
    public static let mediaType = PropertyOf(interface, "MediaType", String.self)
    public static let path = PropertyOf(interface, "Path", String.self)
    public static let provedBy = PropertyOf(interface, "ProvedBy", String.self)
    public static let error = PropertyOf(interface, "Error", EndError.self)
    public static let attempts = PropertyOf(interface, "Attempts", UInt32.self)
    public static let connections = PropertyOf(interface, "Connections", UInt32.self)
    public static let sources = PropertyOf(interface, "Sources", SourceList.self)
    public static let acknowledged = PropertyOf(interface, "Acknowledged", Bool.self)
    public static let queuedAt = PropertyOf(interface, "QueuedAt", UInt64.self, change: .constant)
    public static let startedAt = PropertyOf(interface, "StartedAt", UInt64.self)
    public static let endedAt = PropertyOf(interface, "EndedAt", UInt64.self)
    public static let batch = PropertyOf(interface, "Batch", ObjectPath.self, change: .constant)
    public static let priority = PropertyOf(interface, "Priority", Int32.self, writable: true)
    public static let speedLimit = PropertyOf(interface, "SpeedLimit", UInt64.self, writable: true)
    public static let allowMetered = PropertyOf(interface, "AllowMetered", Bool.self, writable: true)
}

/// A download's error on the bus: `(ssa{sv})`. Both strings are empty if it succeeded or has not ended.
public struct EndError: DBusBasic, Equatable {
    public var name: String
    public var message: String
    /// `http-status` `u`, `retryable` `b`, `host` `s`, `missing-bytes` `t`; `unchanged` `b` if the download ended with a file that was
    /// there before.
    public var details: [String: Variant]

    public init(name: String = "", message: String = "", details: [String: Variant] = [:]) {
        (self.name, self.message, self.details) = (name, message, details)
    }

    public init(_ failure: DownloadFailure) {
        (name, message) = (failure.name.busName, failure.message)
        details = ["retryable": .bool(failure.isRetryable)]
        if let status = failure.httpStatus { details["http-status"] = .uint32(status) }
        if let host = failure.host { details["host"] = .string(host) }
        if let bytes = failure.missingBytes { details["missing-bytes"] = .uint64(bytes) }
    }

    public static var signature: String { "(ssa{sv})" }
    public func write(to writer: inout Writer) { Structure(name, message, details).write(to: &writer) }
    public init(from reader: inout Reader) throws(DBusError) {
        (name, message, details) = try Structure<String, String, [String: Variant]>(from: &reader).fields
    }
    public var variant: Variant { .structure([.string(name), .string(message), .dictionary(details)]) }
    public init?(_ variant: Variant) {
        guard case .structure(let values) = variant, values.count == 3, let name = values[0].string, let message = values[1].string,
            let details = values[2].vardict
        else { return nil }
        (self.name, self.message, self.details) = (name, message, details)
    }
}

/// A source of a download on the bus: `a{sv}` with `url` `s`, `received` `t`, `speed` `t`; `left` `s` if the source is not used any more.
public struct SourceStatus: Equatable, Sendable {
    /// Without credentials and query.
    public var url: String
    /// Bytes of the file that it has brought.
    public var received: ByteCount
    /// Bytes per second.
    public var speed: Speed
    /// Why the source is not used any more, such as `http-status`; nil: it is in use, or may be.
    public var left: String?

    public init(_ source: SourceRecord, speed: Speed) {
        (url, received, self.speed, left) = ((try? DownloadURL(source.url).redacted) ?? "", source.received, speed, source.left?.rawValue)
    }

    fileprivate var fields: [String: Variant] {
        var fields: [String: Variant] = ["url": .string(url), "received": .uint64(received), "speed": .uint64(speed)]
        if let left { fields["left"] = .string(left) }
        return fields
    }

    fileprivate init?(_ fields: [String: Variant]) {
        guard let url = fields["url"]?.string, let received = fields["received"]?.uint64, let speed = fields["speed"]?.uint64 else {
            return nil
        }
        (self.url, self.received, self.speed, left) = (url, received, speed, fields["left"]?.string)
    }
}

/// The sources of a download on the bus: `aa{sv}`.
public struct SourceList: DBusBasic, Equatable {
    public var sources: [SourceStatus]

    public init(_ sources: [SourceStatus]) { self.sources = sources }

    public static var signature: String { "aa{sv}" }
    public func write(to writer: inout Writer) { sources.map(\.fields).write(to: &writer) }
    public init(from reader: inout Reader) throws(DBusError) {
        sources = try [[String: Variant]](from: &reader).compactMap { SourceStatus($0) }
    }
    public var variant: Variant { .array(of: "a{sv}", sources.map { .dictionary($0.fields) }) }
    public init?(_ variant: Variant) {
        guard case .array("a{sv}", let values) = variant else { return nil }
        sources = values.compactMap { $0.vardict.flatMap { SourceStatus($0) } }
    }
}

extension Refusal: DBusErrorConvertible {
    public var dbusError: DBusError { DBusError(name.busName, message) }
}
extension DownloadFailure: DBusErrorConvertible {
    public var dbusError: DBusError { DBusError(name.busName, message) }
}
extension IllegalTransition: DBusErrorConvertible {
    public var dbusError: DBusError {
        DBusError(ErrorName.invalidState.busName, "A download that is \(state.name) cannot be \(event.participle).")
    }
}

extension DownloadEvent {
    fileprivate var participle: String {
        switch self {
        case .pause: "paused"
        case .resume: "resumed"
        case .cancel: "cancelled"
        case .retry: "retried"
        case .start, .startWhole, .ready, .partLost, .startOver: "started"
        case .renew: "given another URL"
        case .wait, .hinder: "held back"
        case .hold, .yield: "held"
        case .release: "released"
        case .fail, .refuse, .spoil, .expire, .interrupt: "failed"
        case .bodyComplete, .skipped, .unchanged, .verified, .committed, .folderCommitted: "completed"
        case .unpack, .unpacked: "unpacked"
        }
    }
}

extension ByteCount? {
    /// The form on the bus: -1 while unknown.
    public var wireTotal: Int64 { map { Int64(clamping: $0) } ?? -1 }
}

/// Received over total, 0.0–1.0; -1.0 while the total is unknown. 1.0 for an empty file.
public func wireFraction(received: ByteCount, total: ByteCount?) -> Double {
    guard let total else { return -1 }
    return total == 0 ? 1 : min(1, Double(received) / Double(total))
}
