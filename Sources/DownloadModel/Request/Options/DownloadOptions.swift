/// What to do where the final name is taken.
public enum ExistingFilePolicy: String, CaseIterable, Sendable {
    /// Take "name (1).ext", "name (2).ext" …
    case rename
    /// Put the new file in its place, atomically, when complete.
    case replace
    /// Leave the file that is there; the download ends finished with its path and fetches nothing more.
    case skip
    /// End with `AlreadyExists`.
    case fail
}

/// Whether a completion toast is wanted.
public enum NotifyPolicy: String, CaseIterable, Sendable {
    /// Unless the app says that it is in front.
    case background
    case always
    case never
}

/// The options of one download, decoded from the bus's dictionary in one place. Defaults are the contract's.
public struct DownloadOptions: Equatable, Sendable {
    /// The caller's application id; empty: none given.
    public var app = ""
    /// The caller's name for this download, `[A-Za-z0-9_]{1,64}`; nil: numbered by us.
    public var token: String?
    /// Absolute folder; nil: the service's default directory, looked up when the download is added.
    public var directory: String?
    /// Bare file name; nil: from the response or the URL.
    public var fileName: String?
    public var ifExists = ExistingFilePolicy.rename
    /// Request headers for the first origin only, in the order given.
    public var headers: [HeaderField] = []
    public var userAgent: String?
    public var referrer: String?
    /// Credentials for the first origin only.
    public var username: String?
    public var password: String?
    public var checksum: Checksum?
    /// The size the file must have.
    public var size: ByteCount?
    /// The most bytes the file may have, after decoding.
    public var maxSize: ByteCount?
    /// The media type that the file must have, lower case, as `image/png` or `image/*`; nil: any.
    public var expectType: String?
    /// False: added paused.
    public var start = true
    /// Higher first; within one, first in first out.
    public var priority: Int32 = 0
    /// Most bytes per second over all connections of the download. nil: no limit.
    public var speedLimit: Speed?
    /// Without a byte for this long, an attempt is given up.
    public var stallTimeout: Duration = .milliseconds(30_000)
    /// Attempts after the first when a server refuses or is not reached. 0: none.
    public var retries: UInt32 = 10
    /// Not started before this instant of the wall clock.
    public var notBefore: WallTime?
    /// The longest from the first start to the end, waits included and pauses not; nil: no limit.
    public var deadline: Duration?
    /// On 401, 403 and 410 the download waits for a fresh link instead of failing.
    public var renewable = false
    /// Not over a link that costs by the byte: it waits for another, and stops where the link becomes such a one.
    public var allowsMetered = true
    /// It may go to this machine and to private networks.
    public var allowsPrivate = true
    /// A redirect may lead from https to http, without a checksum too.
    public var allowsDowngrade = false
    /// Who asked for it, or gave it its URL, is in a sandbox. No option of callers: kept so that the rules of sandboxes hold at each use.
    package var isSandboxed = false
    /// At least this long between the starts of requests to one host, over all downloads that carry the option; nil: none of its own.
    public var requestInterval: Duration?
    /// Ask the server whether the file differs from the copy held, and keep that one if not.
    public var onlyIfChanged = false
    /// Well-known bus name of the application that is called, and so started, when the download has ended; nil: none.
    public var activate: String?
    /// The caller's own name for a group of downloads.
    public var tag = ""
    public var notify = NotifyPolicy.background
    /// From the end to the toast, at most `Limits.longestNotifyDelay`.
    public var notifyDelay: Duration = .zero
    /// Of the toast; nil: the service's own words.
    public var title: String?
    public var body: String?
    public var icon: String?
    /// Sound name; empty: silent.
    public var sound = "complete-download"
    public var showProgress = true
    /// Whose dock icon carries count and progress; nil: ours.
    public var desktopID: DesktopID?
    /// The caller's own dictionary (`a{sv}`), as a marshalled D-Bus message; empty: none. Opaque here.
    public var metadata: [UInt8] = []
    public init() {}
}

extension DownloadOptions {
    /// What a caller has us hold with a download of `url`, of URL, headers, metadata and other texts; the first KiB is not counted.
    public func heldBytes(with url: String) -> Int {
        func size(_ text: String?) -> Int { text?.utf8.count ?? 0 }
        let toast = size(title) + size(body) + size(icon) + size(sound)
        let request = size(url) + size(referrer) + size(userAgent) + size(username) + size(password)
        let fields = headers.reduce(0) { $0 + size($1.name) + size($1.value) }
        return max(0, toast + request + fields + size(tag) + size(token) + size(fileName) + metadata.count - 1024)
    }
}

/// The name of a desktop entry, without `.desktop` (Desktop Entry Specification, "File naming").
public struct DesktopID: Hashable, Sendable {
    public let name: String

    /// - Parameter name: with or without `.desktop`. nil where it is not 1 to 255 of A–Z, a–z, 0–9, `.`, `-`, `_` and `+`.
    public init?(_ name: String) {
        let bare = name.hasSuffix(".desktop") ? String(name.dropLast(8)) : name
        let isName = bare.utf8.allSatisfy { byte in
            switch byte {
            case UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "A")...UInt8(ascii: "Z"), UInt8(ascii: "a")...UInt8(ascii: "z"): true
            default: ".-_+".utf8.contains(byte)
            }
        }
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
