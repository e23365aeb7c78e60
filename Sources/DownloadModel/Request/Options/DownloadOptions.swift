/// What to do if the final name is taken.
public enum ExistingFilePolicy: String, CaseIterable, Sendable {
    /// Use "name (1).ext", "name (2).ext" …
    case rename
    /// Replace the file atomically when the new one is complete.
    case replace
    /// Keep the existing file. The download finishes with its path and fetches nothing more.
    case skip
    /// Fail with `AlreadyExists`.
    case fail
}

/// The name of the folder into which an archive is unpacked.
public enum ExtractionFolder: Hashable, Sendable {
    /// The archive's name, without ".zip", ".tar.gz" and the like.
    case namedAfterArchive
    /// A bare name. In a call also an absolute path, until its folder becomes the option `directory`.
    case named(String)

    /// nil: the archive gives the name.
    public var name: String? { if case .named(let name) = self { name } else { nil } }

    /// The name of the folder for an archive whose file would be called `fileName`, a safe bare name. Always a bare name: a stored row may
    /// contain anything.
    public func name(for fileName: String) -> String {
        guard let name else { return FileName.folder(ofArchive: fileName) }
        return FileName.isBare(name) ? name : FileName.safe(name) ?? FileName.folder(ofArchive: fileName)
    }
}

/// Whether a completion toast is wanted.
public enum NotifyPolicy: String, CaseIterable, Sendable {
    /// Show a toast unless the app reports that it is in front.
    case background
    case always
    case never
}

/// The options of one download, decoded from the bus's dictionary in one place. Defaults are those of the D-Bus contract.
public struct DownloadOptions: Equatable, Sendable {
    /// The caller's application id; empty if none was given.
    public var app = ""
    /// The caller's name for this download, `[A-Za-z0-9_]{1,64}`; nil: we number it.
    public var token: String?
    /// Absolute folder. nil: the service's default directory at the time the download is added.
    public var directory: String?
    /// Bare file name; nil: chosen from the response or the URL.
    public var fileName: String?
    public var ifExists = ExistingFilePolicy.rename
    /// The folder into which the file, an archive, is unpacked after its verification; nil: the file is kept as it is.
    public var extract: ExtractionFolder?
    /// Request headers in the given order; names may repeat. Sent to the first origin only.
    public var headers: [HeaderField] = []
    /// Sent to the hosts and paths that they are for, by the rules of RFC 6265.
    public var cookies: [Cookie] = []
    public var userAgent: String?
    public var referrer: String?
    /// Credentials. Sent to the first origin only.
    public var username: String?
    public var password: String?
    /// The proxy for all requests of the download; nil: the environment of the service and the desktop decide.
    public var proxy: ProxyAddress?
    /// The body of the request, which makes it a POST; nil: a GET. At most `Limits.postBytes`.
    public var postData: [UInt8]?
    /// The media type of `postData`, with its parameters.
    public var postType = DownloadOptions.formType
    /// The request with `postData` may have gone out since a caller last asked for it, so it must not go out again. Also true once
    /// `postData` is forgotten. Callers cannot set this.
    package var isPostSent = false
    /// The service has deleted secrets of the request. Callers cannot set this. It is stored so that a repeated call, which has the
    /// secrets, is still the same request, also if the download runs again.
    package var hasForgottenSecrets = false
    /// Further URLs of the same bytes (`DownloadURL.text`), in the order of preference, each once; at most `Limits.mirrors`.
    public var mirrors: [String] = []
    /// Whether the servers of the URL may name further mirrors (RFC 6249), if the caller has given something that proves the file.
    public var findsMirrors = false
    public var checksum: Checksum?
    /// The digests of the file's pieces, which fit `size`.
    public var pieceHashes: PieceHashes?
    /// The size the file must have.
    public var size: ByteCount?
    /// The most bytes the file may have, after decoding.
    public var maxSize: ByteCount?
    /// The media type that the file must have, in lower case, such as `image/png` or `image/*`; nil: any.
    public var expectType: String?
    /// false: the download is added paused.
    public var start = true
    /// Higher first. Downloads of one priority start first in, first out.
    public var priority: Int32 = 0
    /// Most bytes per second over all connections of the download. nil: no limit.
    public var speedLimit: Speed?
    /// Most connections at a time, at most `mostConnections`; 0: automatic.
    public var connections: UInt32 = 0
    /// The service ends an attempt that brings less than a byte a second for this long.
    public var stallTimeout: Duration = .milliseconds(30_000)
    /// Retries when a server refuses or cannot be reached. 0: none.
    public var retries: UInt32 = 10
    /// The download does not start before this instant of the wall clock.
    public var notBefore: WallTime?
    /// Most time from the first start to the end. Waits count, pauses do not. nil: no limit.
    public var deadline: Duration?
    /// On 401, 403 and 410 the download waits for a fresh link instead of failing.
    public var renewable = false
    /// false: the download does not use a metered connection. It waits for another, and stops when its connection becomes metered.
    public var allowsMetered = true
    /// Whether requests may go to this machine and to private networks.
    public var allowsPrivate = true
    /// Whether a redirect may lead from https to http even if the download has no checksum.
    public var allowsDowngrade = false
    /// The program that added the download, or gave its URL, is in a sandbox. Callers cannot set this. It is stored so that the sandbox's
    /// rules hold at each use.
    package var isSandboxed = false
    /// Whether a public server has named the URL, as the manifest of an asset names its archive. Then no request may go to a private
    /// network, as after a redirect. nil: a caller has named the URL; of an asset: not known yet. Callers cannot set this. It is stored so
    /// that it holds at each start.
    package var isNamedByPublicServer: Bool?
    /// Least time between the starts of requests to one host, over all downloads with the same value; nil: not set.
    public var requestInterval: Duration?
    /// Revalidate the cached copy with the server, and keep it if nothing has changed.
    public var onlyIfChanged = false
    /// Well-known bus name of the application to call (and so to start) when the download has ended; nil: none.
    public var activate: String?
    /// Soon after its end, the download leaves the list and the database, and its name is in no toast, log or file attribute.
    public var isPrivate = false
    /// The caller's own name for a group of downloads.
    public var tag = ""
    public var notify = NotifyPolicy.background
    /// Time from the outcome to the toast, at most `Limits.longestNotifyDelay`.
    public var notifyDelay: Duration = .zero
    /// The toast's texts and icon; nil: the service's own.
    public var title: String?
    public var body: String?
    public var icon: String?
    /// Sound name; empty: silent.
    public var sound = "complete-download"
    public var showProgress = true
    /// The desktop entry whose dock icon shows count and progress; nil: ours.
    public var desktopID: DesktopID?
    /// The caller's own dictionary (`a{sv}`), marshalled as a D-Bus message; empty: none. This room does not read it.
    public var metadata: [UInt8] = []
    public init() {}
}

extension DownloadOptions {
    /// The media type of a form (HTML, "URL-encoded form data").
    public static let formType = "application/x-www-form-urlencoded"

    /// The most that `connections` may be.
    public static let mostConnections: UInt32 = 16

    /// The piece hashes, if they cover a file of `size` bytes. A damaged database may have others.
    public var usablePieceHashes: PieceHashes? { size.flatMap { size in pieceHashes.flatMap { $0.fits(size) ? $0 : nil } } }

    /// Whether the caller has given something that proves the bytes of the whole file.
    public var provesFile: Bool { checksum != nil || usablePieceHashes != nil }

    /// Bytes of URL, headers, metadata and other texts that a download of `url` makes the service store. The first KiB is not counted.
    public func heldBytes(with url: String) -> Int { max(0, textBytes + url.utf8.count - 1024) }

    private var textBytes: Int {
        func size(_ text: String?) -> Int { text?.utf8.count ?? 0 }
        let toast = size(title) + size(body) + size(icon) + size(sound)
        let request = size(referrer) + size(userAgent) + size(username) + size(password) + size(proxy?.text)
        let fields = headers.reduce(0) { $0 + size($1.name) + size($1.value) }
        let post = postData.map { $0.count *| 2 +| size(postType) } ?? 0
        let jar = cookies.reduce(0) { $0 + size($1.line) }
        let urls = mirrors.reduce(0) { $0 + $1.utf8.count }
        let pieces = (pieceHashes?.digests.count ?? 0) *| 2
        let names = size(tag) + size(token) + size(fileName) + size(extract?.name)
        return toast + request + fields + post + jar + urls + pieces + names + metadata.count
    }
}

/// The name of a desktop entry, without `.desktop` (Desktop Entry Specification, "File naming").
public struct DesktopID: Hashable, Sendable {
    public let name: String

    /// - Parameter name: with or without `.desktop`. The result is nil unless the name is 1 to 255 of A–Z, a–z, 0–9, `.`, `-`, `_`
    ///   and `+`.
    public init?(_ name: String) {
        let bare = name.hasSuffix(".desktop") ? String(name.dropLast(8)) : name
        let isName = bare.utf8.allSatisfy { $0.isLetter || $0.isDigit || ".-_+".utf8.contains($0) }
        guard isName, (1...255).contains(bare.utf8.count) else { return nil }
        self.name = bare
    }
}

/// One request header field. The value holds no CR, LF or NUL.
public struct HeaderField: Hashable, Sendable {
    public var name: String
    public var value: String
    public init(name: String, value: String) { (self.name, self.value) = (name, value) }
}
