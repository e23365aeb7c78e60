internal import DBus
public import DownloadModel
internal import DownloaderInterface

/// The present state of one download: every property of `org.todoku.Download1`, typed.
public struct DownloadDescription: Equatable, Sendable {
    public let reference: DownloadReference
    /// Without credentials and query; `DownloaderClient.url(of:)` returns the whole URL.
    public internal(set) var url = ""
    public internal(set) var app = ""
    /// The caller's name for the download; nil: none.
    public internal(set) var token: String?
    public internal(set) var tag = ""
    public internal(set) var state = State.queued
    /// The contract's reason while the state is `waiting`.
    public internal(set) var waitReason: String?
    /// When the wait ends, if known.
    public internal(set) var waitUntil: WallTime?
    /// How many downloads start before this one, while it is queued or waits for its host.
    public internal(set) var ahead: UInt32 = 0
    /// Bytes in the part file.
    public internal(set) var received: ByteCount = 0
    /// Complete size in bytes; nil while unknown.
    public internal(set) var total: ByteCount?
    /// Smoothed over about 3 s.
    public internal(set) var speed: Speed = 0
    /// While the archive is being unpacked: how much of it, 0.0–1.0; else nil.
    public internal(set) var extracted: Double?
    /// The folder of the file; empty if the file is its caller's own descriptor.
    public internal(set) var directory = ""
    /// A bare name; known once the server has answered.
    public internal(set) var fileName: String?
    public internal(set) var mediaType: String?
    /// The final path of a finished download.
    public internal(set) var path: String?
    /// What proved the finished file: `checksum`, `pieces`, `repr-digest` or `length`; nil: nothing. A newer service may have other words.
    public internal(set) var provedBy: String?
    /// Whether the finished download ended with a file that was there before: its name was taken (`skip`), or the server had nothing newer.
    public internal(set) var isUnchanged = false
    /// Why the download failed; while it waits, why the last attempt failed. nil if it finished, or nothing failed.
    public internal(set) var error: DownloadError?
    public internal(set) var attempts: UInt32 = 0
    public internal(set) var connections: UInt32 = 0
    /// The URL and each mirror, in the order of preference; empty if the download has no mirrors.
    public internal(set) var sources: [Source] = []
    /// Whether the owner has acknowledged the outcome.
    public internal(set) var isAcknowledged = false
    public internal(set) var queuedAt: WallTime?
    public internal(set) var startedAt: WallTime?
    public internal(set) var endedAt: WallTime?
    /// The object path of its batch, if any.
    public internal(set) var batch: String?
    public internal(set) var priority: Int32 = 0
    /// Most bytes per second; nil: no limit.
    public internal(set) var speedLimit: Speed?
    /// Whether the download may use a metered connection.
    public internal(set) var allowsMetered = true

    /// 0.0–1.0; nil while the total is unknown.
    public var fraction: Double? {
        let fraction = wireFraction(received: received, total: total)
        return fraction < 0 ? nil : fraction
    }

    /// The file's final name once finished; before that the server's name, or the URL's until the server has answered.
    public var displayName: String {
        if let path, let name = path.pathComponents.last { return String(name) }
        if let fileName { return fileName }
        guard let url = try? DownloadURL(url) else { return url }
        return FileName.chosen(contentDisposition: nil, url: url) { _, _ in nil }
    }

    /// How the download ended; nil while it has not ended.
    public var outcome: DownloadOutcome? {
        switch state {
        case .finished: .finished(path: path ?? "")
        case .failed: error.map { DownloadOutcome.failed($0) }
        case .cancelled: .cancelled
        default: nil
        }
    }

    init(_ reference: DownloadReference) { self.reference = reference }

    init(_ reference: DownloadReference, _ properties: [String: Variant]) {
        self.reference = reference
        apply(properties)
    }

    /// Applies the given properties; a property of an unexpected type is ignored.
    mutating func apply(_ properties: [String: Variant]) {
        func value<V>(_ property: PropertyOf<V>) -> V? { properties[property.name].flatMap(V.init) }
        func instant(_ property: PropertyOf<UInt64>) -> WallTime?? {
            value(property).map { $0 == 0 ? nil : WallTime(microseconds: $0) }
        }
        func text(_ property: PropertyOf<String>) -> String?? { value(property).map { $0.isEmpty ? nil : $0 } }

        url = value(Download.url) ?? url
        app = value(Download.app) ?? app
        token = text(Download.token) ?? token
        tag = value(Download.tag) ?? tag
        state = value(Download.state).map(State.init) ?? state
        waitReason = text(Download.waitReason) ?? waitReason
        waitUntil = instant(Download.waitUntil) ?? waitUntil
        ahead = value(Download.ahead) ?? ahead
        received = value(Download.received) ?? received
        total = value(Download.total).map { $0 < 0 ? nil : ByteCount($0) } ?? total
        speed = value(Download.speed) ?? speed
        extracted = value(Download.extracted).map { $0 < 0 ? nil : $0 } ?? extracted
        directory = value(Download.directory) ?? directory
        fileName = text(Download.fileName) ?? fileName
        mediaType = text(Download.mediaType) ?? mediaType
        path = text(Download.path) ?? path
        provedBy = text(Download.provedBy) ?? provedBy
        if let end = value(Download.error) { (error, isUnchanged) = (DownloadError(end), end.details["unchanged"]?.bool ?? false) }
        attempts = value(Download.attempts) ?? attempts
        connections = value(Download.connections) ?? connections
        sources = value(Download.sources)?.sources.map(Source.init) ?? sources
        isAcknowledged = value(Download.acknowledged) ?? isAcknowledged
        queuedAt = instant(Download.queuedAt) ?? queuedAt
        startedAt = instant(Download.startedAt) ?? startedAt
        endedAt = instant(Download.endedAt) ?? endedAt
        batch = value(Download.batch).map { $0.value == "/" ? nil : $0.value } ?? batch
        priority = value(Download.priority) ?? priority
        speedLimit = value(Download.speedLimit).map { $0 == 0 ? nil : $0 } ?? speedLimit
        allowsMetered = value(Download.allowMetered) ?? allowsMetered
    }
}

extension DownloadDescription {
    /// The contract's states. A newer service may have others.
    public enum State: Hashable, Sendable {
        case queued, waiting, active, paused, verifying, extracting, finished, failed, cancelled
        case other(String)

        static let known: [State] = [.queued, .waiting, .active, .paused, .verifying, .extracting, .finished, .failed, .cancelled]

        public init(_ name: String) { self = Self.known.first { $0.name == name } ?? .other(name) }

        /// The state's name in the contract.
        public var name: String {
            switch self {
            case .queued: "queued"
            case .waiting: "waiting"
            case .active: "active"
            case .paused: "paused"
            case .verifying: "verifying"
            case .extracting: "extracting"
            case .finished: "finished"
            case .failed: "failed"
            case .cancelled: "cancelled"
            case .other(let name): name
            }
        }

        public var hasEnded: Bool { self == .finished || self == .failed || self == .cancelled }
    }
}

extension DownloadDescription {
    /// A URL that the download may use.
    public struct Source: Equatable, Sendable {
        /// Without credentials and query.
        public let url: String
        /// Bytes of the file that it has brought.
        public let received: ByteCount
        /// Bytes per second.
        public let speed: Speed
        /// Why it is not used any more, in the contract's words; nil: it is in use, or may be.
        public let left: String?

        init(_ status: SourceStatus) { (url, received, speed, left) = (status.url, status.received, status.speed, status.left) }
    }
}

/// How a download ended.
public enum DownloadOutcome: Equatable, Sendable {
    /// The path of the file; empty if the download went into the caller's own file.
    case finished(path: String)
    case failed(DownloadError)
    case cancelled
}

/// Why a download did not finish.
public struct DownloadError: Error, Equatable, Sendable, CustomStringConvertible {
    /// The name on the bus, such as `org.todoku.Error.HttpStatus`.
    public let name: String
    /// One English sentence that a person can act on.
    public let message: String
    public let httpStatus: UInt32?
    public let host: String?
    /// Whether the same request may succeed later.
    public let isRetryable: Bool
    /// The bytes that do not fit on the disk, if that is the reason and the number is known.
    public let missingBytes: ByteCount?

    /// nil if there is no error.
    init?(_ error: EndError) {
        guard !error.name.isEmpty else { return nil }
        (name, message) = (error.name, error.message)
        (httpStatus, host) = (error.details["http-status"]?.uint32, error.details["host"]?.string)
        isRetryable = error.details["retryable"]?.bool ?? false
        missingBytes = error.details["missing-bytes"]?.uint64
    }

    /// The contract's error name; nil for an error newer than this client.
    public var errorName: ErrorName? { ErrorName(onBus: name) }

    public var description: String { message }
}
