public import DownloadModel

/// The contents of the single progress toast. A newer value replaces an older one.
public struct ProgressToast: Equatable, Sendable {
    /// An active download or batch.
    public struct Part: Equatable, Sendable {
        /// The file's name; empty for a batch.
        public var name: String
        /// How many downloads the part stands for; for a batch, those that have not ended.
        public var count: UInt32
        public var received: ByteCount
        /// nil while unknown.
        public var total: ByteCount?
        /// How many downloads of a batch have ended; nil for a single download. Replaces byte progress while the size is unknown.
        public var ended: (UInt32, of: UInt32)?
        public var icon: String?
        /// How much of the archive is unpacked, 0.0–1.0; nil: it is not being unpacked.
        public var unpacked: Double?
        /// The sandboxed app that queued the part; nil: none.
        public var sandboxedApp: String?

        public init(
            name: String, count: UInt32 = 1, received: ByteCount, total: ByteCount?, ended: (UInt32, of: UInt32)? = nil, icon: String? = nil
        ) {
            (self.name, self.count, self.received, self.total, self.ended, self.icon) = (name, count, received, total, ended, icon)
        }

        public static func == (a: Part, b: Part) -> Bool {
            (a.name, a.count, a.received, a.total, a.icon, a.sandboxedApp) == (b.name, b.count, b.received, b.total, b.icon, b.sandboxedApp)
                && a.ended?.0 == b.ended?.0 && a.ended?.of == b.ended?.of && a.unpacked == b.unpacked
        }
    }

    public var parts: [Part]
    /// The round of `ProgressGroup` that the toast belongs to.
    public var round: UInt64

    public init(_ parts: [Part], round: UInt64 = 0) { (self.parts, self.round) = (parts, round) }

    /// The file's name if the toast shows a single download.
    public var fileName: String? { parts.count == 1 && parts[0].ended == nil ? parts[0].name : nil }
    /// How much of the archive is unpacked if the toast shows a single download whose archive is being unpacked.
    public var unpacked: Double? { parts.count == 1 ? parts[0].unpacked : nil }
    public var count: UInt64 { parts.reduce(0) { $0 + UInt64($1.count) } }
    public var received: ByteCount { parts.reduce(0) { $0 &+ $1.received } }

    /// The app's id if one sandboxed app queued all parts; the toast then has that app's name, not ours. A toast for several apps, or for
    /// an app and the user, shows only count and bytes.
    public var sandboxedApp: String? {
        guard let first = parts.first?.sandboxedApp, parts.allSatisfy({ $0.sandboxedApp == first }) else { return nil }
        return first
    }

    /// nil if the total of any part is unknown or smaller than the received bytes.
    public var total: ByteCount? {
        var sum: ByteCount = 0
        for part in parts {
            guard let total = part.total, total > 0, part.received <= total else { return nil }
            let (value, overflow) = sum.addingReportingOverflow(total)
            if overflow { return nil }
            sum = value
        }
        return sum > 0 ? sum : nil
    }

    /// Whole percent, rounded down: of the unpacked archive, of the bytes, or of the downloads if a batch's size is unknown. nil if none is
    /// known.
    public var percent: Int? {
        if let unpacked { return Int(clamping: unpacked * 100) }
        if let total { return Self.percent(received, of: total) }
        var (done, all) = (0.0, 0.0)
        for part in parts {
            if let total = part.total, total > 0, part.received <= total {
                done += Double(part.count) * Double(part.received) / Double(total)
                all += Double(part.count)
            } else if let (ended, of: count) = part.ended, count > 0 {
                done += Double(min(ended, count))
                all += Double(count)
            } else {
                return nil
            }
        }
        return all > 0 ? Int(clamping: done / all * 100) : nil
    }

    private static func percent(_ part: ByteCount, of whole: ByteCount) -> Int {
        Int(clamping: part.multipliedFullWidth(by: 100).high == 0 ? part *| 100 / whole : part / (whole / 100))
    }

    /// Icon name or absolute path; nil: `folder-download`.
    public var icon: String? { parts.count == 1 ? parts[0].icon : nil }
}

/// The content of the toast when a download or batch ends, or when a download waits for its user. The texts are plain, without markup.
public struct EndToast: Equatable, Sendable {
    public enum Kind: Equatable, Sendable {
        /// `path`: the absolute path of the file that the actions open.
        case finished(path: String)
        /// `folder`: the absolute path of the folder that the actions open.
        case finishedBatch(folder: String)
        case failed(Remedy?)
        /// The download resumes by itself once the user has acted.
        case waiting(Remedy?)
    }

    public var number: DownloadNumber
    public var kind: Kind
    public var summary: String
    public var body: String
    /// Icon name or absolute path; nil: the icon of the kind.
    public var icon: String?
    /// Sound name; nil: the sound of the kind; empty: silent.
    public var sound: String?
    /// The host of the download, for servers that show it.
    public var host: String?
    /// The sandboxed app that queued the download; the toast then has that app's name, not ours. nil: none.
    public var sandboxedApp: String?
    /// The identity of a finished file: a click opens no other file of that name, even if the download has left the list. nil: unknown.
    public var identity: FileIdentity?

    public init(
        number: DownloadNumber, kind: Kind, summary: String, body: String, icon: String? = nil, sound: String? = nil, host: String? = nil
    ) {
        (self.number, self.kind, self.summary, self.body) = (number, kind, summary, body)
        (self.icon, self.sound, self.host) = (icon, sound, host)
    }
}

extension EndToast.Kind {
    /// The possible actions, the most useful first.
    var actions: [ToastAction] {
        switch self {
        case .finished: [.open, .showFolder]
        case .finishedBatch: [.showFolder]
        case .failed(let remedy), .waiting(let remedy):
            switch remedy {
            case .retry: [.retry]
            case .freeSpace: [.freeSpace]
            case .newLink: [.newLink]
            case nil: []
            }
        }
    }

    /// Whether the toast is about a file or folder that a click can open.
    var isOfFile: Bool {
        switch self {
        case .finished, .finishedBatch: true
        case .failed, .waiting: false
        }
    }
}

/// The request of a click on an end toast.
public enum ToastAction: Equatable, Sendable {
    case open, showFolder, retry, freeSpace, newLink

    /// The action's key on the bus.
    var key: String {
        switch self {
        case .open: "open"
        case .showFolder: "folder"
        case .retry: "retry"
        case .freeSpace: "space"
        case .newLink: "link"
        }
    }
}

public enum ToastEvent: Equatable, Sendable {
    /// A toast is on screen. If `isClickable`, the service must stay alive to receive the click.
    case shown(DownloadNumber, isClickable: Bool)
    /// The user clicked the toast: at most once per toast, followed by `closed`. The token lets a started program take the focus.
    case action(DownloadNumber, ToastAction, activationToken: String?)
    /// A toast that was `shown` is no longer on screen, so it cannot be clicked.
    case closed(DownloadNumber)
    /// An end toast could not be shown, was withdrawn or out of time, or was dropped because too many were waiting.
    case failed(DownloadNumber)
    /// The user dismissed the progress toast. Later updates of the same round are not shown.
    case progressDismissed
    /// A toast is on screen, and the server does not play its sound.
    case sounds(String)
}
