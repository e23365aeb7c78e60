public import DBus
public import DownloadModel
internal import DownloaderInterface

/// How one download is wanted. What is nil is left to the service, whose defaults are the contract's.
public struct DownloadRequest: Equatable, Sendable {
    /// The caller's application id.
    public var app: String?
    /// The caller's name for this download, `[A-Za-z0-9_]{1,64}`; needs `app`. The same token with the same request gives the same
    /// download, so that a call without an answer can be repeated.
    public var token: String?
    /// Absolute folder.
    public var directory: String?
    /// Bare file name.
    public var fileName: String?
    public var ifExists: ExistingFilePolicy?
    /// Request headers for the first origin only.
    public var headers: [HeaderField] = []
    public var userAgent: String?
    public var referrer: String?
    /// Credentials for the first origin only.
    public var username: String?
    public var password: String?
    /// `sha256:<hex>`, `sha512`, `sha1`, `md5`.
    public var checksum: String?
    /// The size that the file must have.
    public var size: ByteCount?
    /// The most bytes that the file may have.
    public var maxSize: ByteCount?
    /// The media type that the file must have, as `image/png` or `image/*`.
    public var expectType: String?
    /// Not started before this instant.
    public var notBefore: WallTime?
    /// The longest from the first start to the end, waits included and pauses not; in whole milliseconds.
    public var deadline: Duration?
    /// Where the server takes the link no more, wait for `replaceUrl` instead of failing.
    public var renewable: Bool?
    /// False: not over a link that costs by the byte.
    public var allowsMetered: Bool?
    /// false: never to this machine or a private network: for URLs from a feed or a page.
    public var allowsPrivate: Bool?
    /// true: a redirect may lead from https to http.
    public var allowsDowngrade: Bool?
    /// The least time between request starts to one host, over all downloads with this option; in whole milliseconds.
    public var requestInterval: Duration?
    /// Keep the copy held where the server has nothing newer.
    public var onlyIfChanged: Bool?
    /// Well-known name of the D-Bus activatable application that is called at the end.
    public var activate: String?
    /// False: added paused.
    public var start: Bool?
    /// Higher first.
    public var priority: Int32?
    /// Bytes per second at most; 0: no limit.
    public var speedLimit: Speed?
    /// Without a byte for this long, an attempt is given up; in whole milliseconds.
    public var stallTimeout: Duration?
    public var retries: UInt32?
    public var tag: String?
    public var notify: NotifyPolicy?
    /// From the end to the toast; in whole milliseconds.
    public var notifyDelay: Duration?
    /// Of the completion toast.
    public var title: String?
    public var body: String?
    public var icon: String?
    /// Sound name; empty: silent.
    public var sound: String?
    public var showProgress: Bool?
    /// Name of the desktop entry whose dock icon carries count and progress.
    public var desktopID: String?
    /// The caller's own; `DownloaderClient.metadata(of:)` gives it back.
    public var metadata: [String: Variant] = [:]

    public init() {}

    public mutating func setMetadata(_ text: String, for key: String) { metadata[key] = .string(text) }

    /// The dictionary of the call.
    var options: [String: Variant] {
        var options: [String: Variant] = [:]
        func put(_ key: OptionKey, _ value: (some DBusBasic)?) { if let value { options[key.rawValue] = Variant(value) } }
        put(.app, app)
        put(.token, token)
        put(.directory, directory)
        put(.filename, fileName)
        put(.ifExists, ifExists?.rawValue)
        if !headers.isEmpty { options[OptionKey.headers.rawValue] = .dictionary(headers.map { ($0.name, $0.value) }) }
        put(.userAgent, userAgent)
        put(.referrer, referrer)
        put(.username, username)
        put(.password, password)
        put(.checksum, checksum)
        put(.size, size)
        put(.maxSize, maxSize)
        put(.expectType, expectType)
        put(.notBefore, notBefore?.microseconds)
        put(.deadline, deadline.map { UInt64(clamping: $0.wholeMilliseconds) })
        put(.renewable, renewable)
        put(.allowMetered, allowsMetered)
        put(.allowPrivate, allowsPrivate)
        put(.allowDowngrade, allowsDowngrade)
        put(.requestInterval, requestInterval.map { UInt32(clamping: $0.wholeMilliseconds) })
        put(.onlyIfChanged, onlyIfChanged)
        put(.activate, activate)
        put(.start, start)
        put(.priority, priority)
        put(.speedLimit, speedLimit)
        put(.stallTimeout, stallTimeout.map { UInt32(clamping: $0.wholeMilliseconds) })
        put(.retries, retries)
        put(.tag, tag)
        put(.notify, notify?.rawValue)
        put(.notifyDelay, notifyDelay.map { UInt32(clamping: $0.wholeMilliseconds) })
        put(.title, title)
        put(.body, body)
        put(.icon, icon)
        put(.sound, sound)
        put(.showProgress, showProgress)
        put(.desktopID, desktopID)
        if !metadata.isEmpty { options[OptionKey.metadata.rawValue] = .dictionary(metadata) }
        return options
    }
}

/// Which downloads are meant; what is nil matches all.
public struct DownloadQuery: Equatable, Sendable {
    public var app: String?
    public var tag: String?
    public var states: Set<DownloadDescription.State>?
    /// Only its members.
    public var batch: BatchReference?

    public init(
        app: String? = nil, tag: String? = nil, states: Set<DownloadDescription.State>? = nil, batch: BatchReference? = nil
    ) {
        (self.app, self.tag, self.states, self.batch) = (app, tag, states, batch)
    }

    /// What has not ended.
    public static let remaining = DownloadQuery(states: [.queued, .waiting, .active, .paused, .verifying])
    /// What has ended.
    public static let ended = DownloadQuery(states: [.finished, .failed, .cancelled])

    var filter: DownloadFilter {
        var filter = DownloadFilter()
        (filter.app, filter.tag, filter.batch) = (app, tag, batch?.objectPath)
        filter.states = states.map { Set($0.map(\.name)) }
        return filter
    }
}
