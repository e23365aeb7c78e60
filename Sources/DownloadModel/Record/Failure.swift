/// The names of the contract's errors, without their prefix. A refusal answers a call; an end is what a download ended in.
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

    /// The name on the bus: `org.todoku.Error.` and the raw value.
    public var busName: String { "org.todoku.Error.\(rawValue)" }
}

/// Why a call was refused. The message is one English sentence that a person can act on.
public struct Refusal: Error, Equatable, Sendable {
    public var name: ErrorName
    public var message: String
    public init(_ name: ErrorName, _ message: String) { (self.name, self.message) = (name, message) }
}

/// What a transfer or a download ended in, or what an attempt failed by.
public struct DownloadFailure: Error, Equatable, Sendable {
    public var name: ErrorName
    /// One English sentence that a person can act on; no credentials, no query.
    public var message: String
    /// The status of the last response, where there was one.
    public var httpStatus: UInt32?
    /// The host that was spoken to.
    public var host: String?
    /// `DownloadURL.origin` of the server that asked for `retryAfter`: where redirects led.
    public var origin: String?
    /// Whether the same request may succeed later.
    public var isRetryable: Bool
    /// The server's `Retry-After`, as a delay: a floor for the back-off.
    public var retryAfter: Duration?
    /// What the download waits for instead of failing: `diskSpace`, `destination` or `offline`; nil: nothing that ends by itself.
    /// `retry`: this machine could not say by which way a request goes out. Nothing was sent, and no such attempt counts.
    public var wait: WaitReason?
    /// How many bytes do not fit on the disk, where `wait` is `diskSpace` and it is known.
    public var missingBytes: ByteCount?
    /// How many bytes must be free for it to go on, where that is known.
    public var neededRoom: ByteCount?

    public init(
        _ name: ErrorName, _ message: String, httpStatus: UInt32? = nil, host: String? = nil, isRetryable: Bool = false,
        retryAfter: Duration? = nil, wait: WaitReason? = nil, missingBytes: ByteCount? = nil, neededRoom: ByteCount? = nil
    ) {
        (self.name, self.message, self.httpStatus, self.host) = (name, message, httpStatus, host)
        (self.isRetryable, self.retryAfter, self.wait) = (isRetryable, retryAfter, wait)
        (self.missingBytes, self.neededRoom) = (missingBytes, neededRoom)
    }

    /// Statuses that ask for another attempt later; every other refusal is final.
    public static func isRetryable(status: UInt32) -> Bool { [408, 425, 429].contains(status) || (500...599).contains(status) }
}
