/// The error names of the D-Bus contract, without their prefix. A refusal answers a call; an end is the error of a failed download.
public enum ErrorName: String, CaseIterable, Sendable {
    // Refusals
    case invalidUrl = "InvalidUrl"
    case unsupportedScheme = "UnsupportedScheme"
    case invalidOption = "InvalidOption"
    case noSuchObject = "NoSuchObject"
    case invalidState = "InvalidState"
    case alreadyExists = "AlreadyExists"
    case limitExceeded = "LimitExceeded"
    case notAllowed = "NotAllowed"
    case storage = "Storage"
    // Ends
    case network = "Network"
    case timeout = "Timeout"
    case tls = "Tls"
    case httpStatus = "HttpStatus"
    case tooManyRedirects = "TooManyRedirects"
    case unsafeRedirect = "UnsafeRedirect"
    case checksumMismatch = "ChecksumMismatch"
    case sizeMismatch = "SizeMismatch"
    case typeMismatch = "TypeMismatch"
    case tooLarge = "TooLarge"
    case truncated = "Truncated"
    case diskFull = "DiskFull"
    case writeFailed = "WriteFailed"
    case permissionDenied = "PermissionDenied"
    case cancelled = "Cancelled"
    case expired = "Expired"
    case interrupted = "Interrupted"
    case extraction = "Extraction"
    case manifest = "Manifest"
    case signature = "Signature"

    /// The name on the bus: `org.todoku.Error.` and the raw value.
    public var busName: String { "org.todoku.Error.\(rawValue)" }
}

/// Why a call was refused. The message is one English sentence that a person can act on.
public struct Refusal: Error, Equatable, Sendable {
    public var name: ErrorName
    public var message: String
    public init(_ name: ErrorName, _ message: String) { (self.name, self.message) = (name, message) }
}

/// Why a download, a transfer or an attempt failed.
public struct DownloadFailure: Error, Equatable, Sendable {
    public var name: ErrorName
    /// One English sentence that a person can act on; no credentials, no query.
    public var message: String
    /// The status of the last response, if any.
    public var httpStatus: UInt32?
    /// The host that the attempt contacted.
    public var host: String?
    /// `DownloadURL.origin` of the server that sent `retryAfter`; after redirects, the last server.
    public var origin: String?
    /// Whether the same request may succeed later.
    public var isRetryable: Bool
    /// The server's `Retry-After`, as a delay: a floor for the back-off.
    public var retryAfter: Duration?
    /// The reason for which the download waits instead of failing: `diskSpace`, `destination` or `offline`. nil: waiting would not help.
    /// `retry`: the proxy for the request was unknown. Nothing was sent, and such an attempt does not count.
    public var wait: WaitReason?
    /// How many bytes are missing on the disk, if `wait` is `diskSpace` and the number is known.
    public var missingBytes: ByteCount?
    /// How many bytes must be free before the download can resume, if known.
    public var neededRoom: ByteCount?
    /// According to the name servers, the host does not exist, so few retries are worthwhile. Not saved.
    public var isOfMissingHost = false

    public init(
        _ name: ErrorName, _ message: String, httpStatus: UInt32? = nil, host: String? = nil, isRetryable: Bool = false,
        retryAfter: Duration? = nil, wait: WaitReason? = nil, missingBytes: ByteCount? = nil, neededRoom: ByteCount? = nil
    ) {
        (self.name, self.message, self.httpStatus, self.host) = (name, message, httpStatus, host)
        (self.isRetryable, self.retryAfter, self.wait) = (isRetryable, retryAfter, wait)
        (self.missingBytes, self.neededRoom) = (missingBytes, neededRoom)
    }

    /// Whether this machine was short of something that comes back, such as descriptors. Nothing is wrong with the disk or the file.
    package var isShortage: Bool { name == .writeFailed && isRetryable && wait == nil }

    /// Whether a status allows a retry; every other error status is final.
    public static func isRetryable(status: UInt32) -> Bool { [408, 425, 429].contains(status) || (500...599).contains(status) }
}
