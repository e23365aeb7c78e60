internal import CSystem
public import DownloadModel
public import EventLoop
public import PartFiles
public import Transport

/// The instructions for one transfer. The engine decides nothing beyond these.
public struct TransferRequest: Sendable {
    public var number: DownloadNumber
    /// The ordinal of the first request. Further requests of the transfer have the next ones; fewer than 2^16.
    public var ordinal: UInt32 = 0
    /// The URL of the first hop. A user and password inside it are ignored.
    public var url: DownloadURL
    /// The absolute path of the existing folder for the part file.
    public var directory: String
    /// Whether a component of `directory` may begin with a dot, in the target of a link too.
    public var allowsHiddenFolders = false
    /// Bare name of the part file.
    public var partName: String
    /// All sources in the order of preference, the URL of the download first. Empty: `url` is the only one.
    public var sources: [TransferSource] = []
    /// The place in `sources` of the source that the first request asks.
    public var firstSource = 0
    /// Whether bytes of different origins may be joined, because a checksum or piece hashes prove the file.
    public var mixesSources = false
    /// Whether each source must bring the whole file alone, because a file from several responses was wrong. `mixesSources` is false then.
    public var keepsSourcesApart = false
    /// Whether responses of the URL may name further sources (`Link` with `rel=duplicate`, RFC 6249). Needs `mixesSources`.
    public var findsMirrors = false
    /// How many mirrors are known. The next mirror that is found gets this number.
    public var mirrorCount: UInt32 = 0
    /// The bytes of the URLs that servers have named in earlier transfers.
    public var foundMirrorBytes = 0
    /// Sent to the first origin only, in this order. Fields in `RequestHeaders.ownFields` are left out.
    public var headers: [HeaderField] = []
    /// The body of the first request, which is a POST then. Redirects by 307 and 308 repeat the body to the first origin; redirects by 301,
    /// 302 and 303 turn the request into a GET. Once the body has gone out, each failure is final. The transfer has one source and no
    /// `resume`.
    public var body: RequestBody?
    /// The cookies before the first request, as lines of the Netscape cookie file format. Each goes to the hosts and paths that it names.
    public var cookies: [String] = []
    /// nil: the engine's user agent.
    public var userAgent: String?
    /// Sent to the first origin only.
    public var referrer: String?
    /// Sent to the first origin only.
    public var username: String?
    public var password: String?
    /// The proxy of all requests; nil: that of `EngineConfiguration`.
    public var proxy: ProxyChoice?
    /// Safe bare name chosen by the caller; nil: the name comes from the response, else from the URL.
    public var fileName: String?
    /// From an earlier response about the held bytes: a response with only the rest may omit it (RFC 9110 §15.3.7).
    public var knownName: String?
    public var knownType: String?
    /// `TransferFacts.otherRepresentations` of the last response. A source that states such a representation again has changed its file for
    /// good, so its bytes soon replace the held ones.
    public var otherRepresentations: [OtherRepresentation] = []
    /// The size that the file must have.
    public var expectedSize: ByteCount?
    /// The most bytes that the decoded file may have.
    public var maxSize: ByteCount?
    /// The media type that the response must have, in lower case, such as `image/png` or `image/*`; nil: any.
    public var expectedType: String?
    /// Whether a checksum, or `pieces`, will prove the whole file. Then a resume needs no validator.
    public var hasChecksum = false
    /// The digests of the file's pieces. They count only if they fit `expectedSize`. The transfer checks the pieces while they arrive, and
    /// is whole when all of them are right.
    public var pieces: PieceHashes?
    /// The expected checksum. A cached copy counts only if the same checksum has proved it. A 206 that states this digest has stated the
    /// digest of the whole file, not of its part (`ContentCheck`).
    public var checksum: Checksum?
    /// Bytes per second; nil: no limit.
    public var speedLimit: Speed?
    /// The most connections at a time; 0: automatic.
    public var connections: UInt32 = 1
    /// The longest time for connecting, and again for a whole response head. A body must bring one byte a second on average, in each
    /// stretch of this length. Otherwise the transfer fails with `Timeout`.
    public var stallTimeout: Duration = .seconds(30)
    /// After this time without a byte, another segment may take over the whole stretch of a segment. Only tests change it.
    var takeOverAfter: Duration = Transfer.takeOverAfter
    /// Whether this machine and private networks are forbidden, by name and by address.
    public var refusesPrivate = false
    /// Whether a public server has named the URL: then no request may go to a private network, as after a redirect by that server.
    public var isNamedByPublicServer = false
    /// Whether a redirect may lead from https to http without a checksum.
    public var allowsDowngrade = false
    /// The resume data of an earlier transfer; nil: start from 0.
    public var resume: ResumeData?
    /// The absolute path of the written map, in an existing folder; nil: only checkpoints count.
    public var mapPath: String?
    /// Whether to report `.sent` for the first request.
    public var tellsSent = false
    /// Whether the first request may go out only on a connection that another request uses now, because its host has no place for one more
    /// (`.shares`). If there is none, nothing is sent, and the transfer asks again (`.asks`).
    public var mustShare = false
    /// Under `skip` and `fail`, a taken name ends the transfer before the body is fetched.
    public var ifExists = ExistingFilePolicy.rename
    /// The folder into which the file will be unpacked: `ifExists` is about this folder. nil: the file is kept.
    public var extract: ExtractionFolder?
    /// The cached copy that a conditional request is about. Not used while newer bytes are held.
    public var copy: CachedCopy?
    /// The disk space to leave free.
    public var diskReserve = DiskReserve.bytes(0)
    /// Written into instead of a part file. `directory` and `partName` are empty then.
    public var descriptor: HeldDescriptor?

    /// The id in the events `asks` and `sent`, and in `Engine.permit`.
    public var id: RequestID { RequestID(number, ordinal) }

    public init(number: DownloadNumber, url: DownloadURL, directory: String, partName: String) {
        (self.number, self.url, self.directory, self.partName) = (number, url, directory, partName)
    }
}

/// The body of a request.
public struct RequestBody: Equatable, Sendable {
    public var bytes: [UInt8]
    /// The media type, with its parameters.
    public var type: String

    public init(_ bytes: [UInt8], type: String) { (self.bytes, self.type) = (bytes, type) }
}

/// A URL that may bring the bytes of a transfer.
public struct TransferSource: Equatable, Sendable {
    public var url: DownloadURL
    /// Its place in `DownloadOptions.mirrors`; nil: the URL of the download.
    public var mirror: UInt32?
    /// Whether a response has named it, and not the caller. Then it may be private only if the URL of the download is.
    public var isFound: Bool
    /// The bytes that the source has brought in earlier transfers.
    public var received: ByteCount
    /// Whether a whole file from the source was wrong. Then the source is not asked.
    public var hasWrongBytes: Bool

    public init(
        _ url: DownloadURL, mirror: UInt32? = nil, isFound: Bool = false, received: ByteCount = 0, hasWrongBytes: Bool = false
    ) {
        (self.url, self.mirror, self.isFound) = (url, mirror, isFound)
        (self.received, self.hasWrongBytes) = (received, hasWrongBytes)
    }
}

/// A source's state at a tick.
public struct SourceProgress: Equatable, Sendable {
    public var source: SourceRecord
    /// Bytes per second, smoothed over about 3 s.
    public var speed: Speed

    public init(_ source: SourceRecord, speed: Speed) { (self.source, self.speed) = (source, speed) }
}

/// The facts of an accepted response.
public struct TransferFacts: Equatable, Sendable {
    /// Safe bare name; not yet made unique.
    public var fileName: String
    /// The URL at the end of the redirects, without credentials and query; nil: no redirect.
    public var source: String?
    /// Media type without parameters, in lower case; nil if the server sent none.
    public var mediaType: String?
    /// Complete size; nil while unknown.
    public var total: ByteCount?
    /// Where the transfer resumes: the number of held bytes. 0: from the start.
    public var offset: ByteCount
    /// Whether held bytes had to be dropped.
    public var discarded: Bool
    /// Whether the download can be resumed later.
    public var isResumable: Bool
    /// The HTTP/2 connection of the response, which other requests may share; nil: no other request can.
    public var connection: UInt32?
    /// Whether the server that has sent the response has a private address, so that it may name private addresses. Behind a proxy, the host
    /// in its URL decides.
    public var isFromPrivate = false
    /// The representations that sources have stated in this transfer instead of that of the held bytes. Empty if the response continues the
    /// held bytes.
    public var otherRepresentations: [OtherRepresentation] = []

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
    /// The number of connections that fetch now.
    public var connections: UInt32
    /// Each source, in the order of the request. Empty if there is only one source.
    public var sources: [SourceProgress] = []

    public init(number: DownloadNumber, received: ByteCount, speed: Speed, connections: UInt32 = 1) {
        (self.number, self.received, self.speed, self.connections) = (number, received, speed, connections)
    }
}

/// A whole body in its part file, not yet flushed to disk.
public struct CompletePart: Equatable, Sendable {
    public var facts: TransferFacts
    public var size: ByteCount
    /// The identity of the part file.
    public var identity: FileIdentity
    /// The host that the body came from.
    public var host: String
    /// The status of the response with the body.
    public var httpStatus: UInt32
    /// For the record that is saved before the verification. `written` is the number of bytes that the last checkpoint proves. The other
    /// bytes are not flushed yet: until `Commit.verify` flushes them, only the written map proves them.
    public var resume: ResumeData?
    /// For later conditional requests.
    public var validators: CopyValidators?
    /// The mirror that the file belongs to, as in `ResumeData`.
    public var mirror: UInt32?

    public init(facts: TransferFacts, size: ByteCount, identity: FileIdentity, host: String, httpStatus: UInt32, resume: ResumeData?) {
        (self.facts, self.size, self.identity) = (facts, size, identity)
        (self.host, self.httpStatus, self.resume) = (host, httpStatus, resume)
    }
}

public enum TransferEnd: Equatable, Sendable {
    case complete(CompletePart)
    /// `madeProgress`: the resume data has more bytes than were held at the start.
    case failed(DownloadFailure, madeProgress: Bool, ResumeData?)
    case stopped(ResumeData?)
    /// The name is taken, and the policy is `skip` or `fail`. No body was fetched.
    case nameTaken(path: String)
    /// A 304: the server has nothing newer than `TransferRequest.copy`, which was unmodified.
    case unchanged(CachedCopy)
}

public enum TransferEvent: Equatable, Sendable {
    /// The transfer needs a further request, to this URL: after a redirect, to start over, or at another source. An id that was not seen
    /// before means a request for another part of the file at the same time. The request waits for `Engine.permit`. `question`: the number
    /// of this question among those under the same id; a later question takes back an earlier one. `isAnswered`: the server has answered
    /// the previous request. `sharing`: whether the request can use a connection that others use.
    case asks(RequestID, DownloadURL, question: UInt64, isAnswered: Bool = true, sharing: ConnectionSharing = .possible)
    /// A request has failed, and the transfer asks another source (`asks` follows) or ends.
    case moved(RequestID, DownloadFailure)
    /// The known facts about the sources have changed.
    case sources(DownloadNumber, [SourceRecord])
    /// The response to a further request brings a part of the file: bytes of several responses are mixed.
    case joined(RequestID)
    /// One of several requests has ended, and the transfer continues without it. The failure says why the request brought no bytes.
    case over(RequestID, DownloadFailure?)
    /// A request that must share a connection (`mustShare`) goes out now, over the connection of this local port. Reported before the ends
    /// of the other requests on the connection.
    case shares(RequestID, connection: UInt32)
    /// A request goes out now; reported if `tellsSent` asked for it.
    case sent(RequestID, at: WallTime)
    /// The server of a request has sent nothing for `Engine.silence` (true), or sends again (false).
    case stalled(RequestID, Bool)
    /// The disk of a transfer has not answered for `Engines.silence` (true), or answers again (false).
    case diskStalled(DownloadNumber, Bool)
    /// The response to a request was accepted; reported before its first byte counts. Reported again if the transfer starts over.
    case began(RequestID, TransferFacts)
    /// The body of the last `began` was dropped before it could replace the held bytes. The facts are about the held bytes.
    case bodyDropped(DownloadNumber, TransferFacts)
    /// One snapshot of all changes, at most 10 a second.
    case progress([TransferProgress])
    /// The cookies at the end of a transfer whose servers have set cookies. They are for the next transfer of the download. The lines are
    /// as in `TransferRequest.cookies`.
    case cookies(DownloadNumber, [String])
    /// These bytes are on disk, so the record may claim them.
    case checkpoint(DownloadNumber, ResumeData)
    /// The last event of a transfer. `by`: the request whose response, or lack of one, ended it; nil: something else did.
    case ended(DownloadNumber, TransferEnd, by: RequestID? = nil)
}

extension TransferEvent {
    /// The transfer of the event; nil: several.
    public var number: DownloadNumber? {
        switch self {
        case .asks(let id, _, _, _, _), .shares(let id, _), .sent(let id, _), .stalled(let id, _), .began(let id, _), .joined(let id),
            .over(let id, _), .moved(let id, _):
            id.download
        case .diskStalled(let number, _), .checkpoint(let number, _), .ended(let number, _, _), .sources(let number, _),
            .cookies(let number, _), .bodyDropped(let number, _):
            number
        case .progress: nil
        }
    }
}

/// The settings of an engine, set once.
public struct EngineConfiguration: Sendable {
    /// For requests that name no user agent.
    public var userAgent: String
    /// A file, or a folder, of CA certificates to use instead of the system's file and folder.
    public var certificateFile: String?
    public var certificateFolder: String?
    public var proxies: ProxySettings
    /// Returns the desktop's proxy for a URL, in bounded time. Called before each request if `proxies` has none; nil: no desktop.
    public var desktopProxy: (@BusActor @Sendable (DownloadURL) async -> ProxyChoice)?
    /// Whether no host has this name, according to the system's resolver. Called on a thread of its own, and may block.
    var isHostMissing: @Sendable (_ host: String) -> Bool = { todoku_is_host_missing($0) }

    /// Uses the system's CA store, unless `SSL_CERT_FILE` or `SSL_CERT_DIR` is set, and the proxies of the environment.
    public init(version: String, environment: [String: String] = processEnvironment()) {
        userAgent = "todoku/\(version)"
        let certificates = CertificateStore().replaced(by: environment)
        (certificateFile, certificateFolder) = (certificates.file, certificates.folder)
        proxies = ProxySettings(environment: environment)
    }
}
