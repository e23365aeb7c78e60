public import DownloadModel
internal import EventLoop
public import PartFiles
public import Transport

/// What one transfer is told. The engine decides nothing beyond it.
public struct TransferRequest: Sendable {
    public var number: DownloadNumber
    /// Tells its requests from those of an earlier transfer.
    public var ordinal: UInt32 = 0
    /// The first hop. A user and password inside are not used.
    public var url: DownloadURL
    /// Absolute, existing; where the part file grows.
    public var directory: String
    /// Whether a component of `directory`, also of a link's target, may begin with a dot.
    public var allowsHiddenFolders = false
    /// Bare name of the part file.
    public var partName: String
    /// For the first origin only, in this order. Fields in `reservedHeaders` are left out.
    public var headers: [HeaderField] = []
    /// nil: the engine's own.
    public var userAgent: String?
    /// For the first origin only.
    public var referrer: String?
    /// For the first origin only.
    public var username: String?
    public var password: String?
    /// Safe bare name chosen by the caller; nil: from the response, else from the URL.
    public var fileName: String?
    /// What an earlier response said of the bytes held: a response that carries only the rest need not say it again (RFC 9110 §15.3.7).
    public var knownName: String?
    public var knownType: String?
    /// The size that the file must have.
    public var expectedSize: ByteCount?
    /// The most bytes that it may have, decoded.
    public var maxSize: ByteCount?
    /// The media type that the response must have, lower case, as `image/png` or `image/*`; nil: any.
    public var expectedType: String?
    /// Whether a checksum will prove the whole: then a resume needs no validator.
    public var hasChecksum = false
    /// Which one: a copy counts only if it was proved by the same.
    public var checksum: Checksum?
    /// Bytes per second; nil: no limit.
    public var speedLimit: Speed?
    /// The longest time for connecting, and again for a whole response head. A body must bring one byte a second on average in each such
    /// stretch of time. Else the transfer fails with `Timeout`.
    public var stallTimeout: Duration = .seconds(30)
    /// Never to this machine or a private network, by name or by address.
    public var refusesPrivate = false
    /// A redirect may lead from https to http where no checksum proves the bytes.
    public var allowsDowngrade = false
    /// What is known of an earlier transfer's bytes; nil: start from 0.
    public var resume: ResumeData?
    /// Absolute path of this download's written map; its folder exists. nil: only checkpoints count.
    public var mapPath: String?
    /// Whether `.sent` is to be told of the first request.
    public var tellsSent = false
    /// Under `skip` and `fail`, a taken name ends the transfer before the body is fetched.
    public var ifExists = ExistingFilePolicy.rename
    /// The file that the server is asked about, whether it has changed; not where bytes of a newer one are held.
    public var copy: CopyHeld?
    /// What is left free of the disk.
    public var diskReserve = DiskReserve.bytes(0)
    /// Written into instead of a part file; `directory` and `partName` are empty then.
    public var descriptor: HeldDescriptor?

    /// What `asks` and `sent` name, and `Engine.permit` must.
    public var id: RequestID { RequestID(number, ordinal) }

    public init(number: DownloadNumber, url: DownloadURL, directory: String, partName: String) {
        (self.number, self.url, self.directory, self.partName) = (number, url, directory, partName)
    }

    /// Names (lower case) of request header fields that are the engine's own: they steer ranges, codings and the connection.
    public static let reservedHeaders: Set<String> = [
        "range", "if-range", "if-match", "if-none-match", "if-modified-since", "if-unmodified-since", "accept-encoding", "te", "expect",
        "content-length", "transfer-encoding", "connection", "keep-alive", "proxy-connection", "proxy-authorization", "upgrade", "trailer",
        "host", "http2-settings",
    ]
}

/// What a response told, once it was accepted.
public struct TransferFacts: Equatable, Sendable {
    /// Safe bare name; not yet made unique.
    public var fileName: String
    /// Where redirects led, without credentials and query; nil: to no other URL.
    public var source: String?
    /// Media type without parameters, lower case; nil where the server told none.
    public var mediaType: String?
    /// Complete size; nil while unknown.
    public var total: ByteCount?
    /// Where the transfer goes on: bytes held already. 0: from the start.
    public var offset: ByteCount
    /// Whether bytes that were held had to be thrown away.
    public var discarded: Bool
    /// Whether it can go on later from where it stops.
    public var isResumable: Bool

    public init(fileName: String, mediaType: String?, total: ByteCount?, offset: ByteCount, discarded: Bool, isResumable: Bool) {
        (self.fileName, self.mediaType, self.total, self.offset) = (fileName, mediaType, total, offset)
        (self.discarded, self.isResumable) = (discarded, isResumable)
    }
}

/// One transfer's state at a tick.
public struct TransferProgress: Equatable, Sendable {
    public var number: DownloadNumber
    /// Bytes written to the part file.
    public var received: ByteCount
    /// Bytes per second, smoothed over about 3 s.
    public var speed: Speed

    public init(number: DownloadNumber, received: ByteCount, speed: Speed) {
        (self.number, self.received, self.speed) = (number, received, speed)
    }
}

/// A whole body in its part file, not flushed to disk yet.
public struct CompletePart: Equatable, Sendable {
    public var facts: TransferFacts
    public var size: ByteCount
    /// Of the part file.
    public var identity: FileIdentity
    /// The host that the body came from.
    public var host: String
    /// The status of the response that carried it.
    public var httpStatus: UInt32
    /// For a record that is saved before the part is verified. `written` is what the last checkpoint proves: the rest is not flushed yet,
    /// and counts by the written map alone until `Commit.verify` has flushed it.
    public var resume: ResumeData?
    /// For asking later whether the file has changed.
    public var validators: CopyValidators?

    public init(facts: TransferFacts, size: ByteCount, identity: FileIdentity, host: String, httpStatus: UInt32, resume: ResumeData?) {
        (self.facts, self.size, self.identity) = (facts, size, identity)
        (self.host, self.httpStatus, self.resume) = (host, httpStatus, resume)
    }
}

public enum TransferEnd: Equatable, Sendable {
    case complete(CompletePart)
    /// `madeProgress`: the resume data tell of more bytes than were held at the start.
    case failed(DownloadFailure, madeProgress: Bool, ResumeData?)
    case stopped(ResumeData?)
    /// The name is taken and the policy is `skip` or `fail`; nothing was fetched.
    case nameTaken(path: String)
    /// A 304: the server has nothing newer than `TransferRequest.copy`, which was there unmodified.
    case unchanged(CopyHeld)
}

public enum TransferEvent: Equatable, Sendable {
    /// It has a further request to make, of this URL: by a redirect, or once more. It waits for `Engine.permit`.
    case asks(RequestID, DownloadURL)
    /// The request for which that was wanted goes out now.
    case sent(RequestID, at: WallTime)
    /// For `Engine.silence` nothing has come; or something comes again.
    case stalled(DownloadNumber, Bool)
    /// A response was accepted; comes before its first byte counts. Again where a transfer has to start over.
    case began(DownloadNumber, TransferFacts)
    /// One snapshot of all that changed, at most 10 a second.
    case progress([TransferProgress])
    /// What a record may now say: these bytes are on disk.
    case checkpoint(DownloadNumber, ResumeData)
    /// The last event of a transfer.
    case ended(DownloadNumber, TransferEnd)
}

extension TransferEvent {
    /// Which transfer it is of; nil: of several.
    public var number: DownloadNumber? {
        switch self {
        case .asks(let id, _), .sent(let id, _): id.download
        case .stalled(let number, _), .began(let number, _), .checkpoint(let number, _), .ended(let number, _): number
        case .progress: nil
        }
    }
}

/// What the engine is told once.
public struct EngineConfiguration: Sendable {
    /// Where a request names none.
    public var userAgent: String
    /// A file or a folder of CA certificates instead of the system's.
    public var certificateFile: String?
    public var certificateFolder: String?
    public var proxies: ProxySettings
    /// Tells the desktop's proxy, asked before each request where `proxies` names none; nil: there is no desktop. It answers in bounded
    /// time.
    public var desktopProxy: (@BusActor @Sendable (DownloadURL) async -> ProxyChoice)?

    /// The system's CA store unless `SSL_CERT_FILE` or `SSL_CERT_DIR` say otherwise, and the proxies of the environment.
    public init(version: String, environment: [String: String] = processEnvironment()) {
        userAgent = "todoku/\(version)"
        certificateFile = environment["SSL_CERT_FILE"].flatMap { $0.isEmpty ? nil : $0 }
        certificateFolder = environment["SSL_CERT_DIR"].flatMap { $0.isEmpty ? nil : $0 }
        proxies = ProxySettings(environment: environment)
    }
}
