public import DownloadModel

/// What the one progress toast says. The newest one wins.
public struct ProgressToast: Equatable, Sendable {
    /// A download, or a batch, that is under way.
    public struct Part: Equatable, Sendable {
        /// The file's name; empty for a batch.
        public var name: String
        /// How many downloads it stands for: of a batch, those that have not ended.
        public var count: UInt32
        public var received: ByteCount
        /// nil while unknown.
        public var total: ByteCount?
        /// How much of it is done where bytes do not tell: of a batch, how many of its downloads have ended.
        public var ended: (UInt32, of: UInt32)?
        public var icon: String?
        /// Whose it is, where an app in a sandbox queued it.
        public var sandboxedApp: String?

        public init(
            name: String, count: UInt32 = 1, received: ByteCount, total: ByteCount?, ended: (UInt32, of: UInt32)? = nil, icon: String? = nil
        ) {
            (self.name, self.count, self.received, self.total, self.ended, self.icon) = (name, count, received, total, ended, icon)
        }

        public static func == (a: Part, b: Part) -> Bool {
            (a.name, a.count, a.received, a.total, a.icon, a.sandboxedApp) == (b.name, b.count, b.received, b.total, b.icon, b.sandboxedApp)
                && a.ended?.0 == b.ended?.0 && a.ended?.of == b.ended?.of
        }
    }

    public var parts: [Part]
    /// As in `ProgressGroup`.
    public var round: UInt64

    public init(_ parts: [Part], round: UInt64 = 0) { (self.parts, self.round) = (parts, round) }

    /// The file's name, where it is one download.
    public var fileName: String? { parts.count == 1 && parts[0].ended == nil ? parts[0].name : nil }
    public var count: UInt64 { parts.reduce(0) { $0 + UInt64($1.count) } }
    public var received: ByteCount { parts.reduce(0) { $0 &+ $1.received } }

    /// Whose it is, where all of it was queued by one app in a sandbox: it is shown under that app's name, not ours. What several have
    /// queued, or the user too, is told of by count and bytes alone.
    public var sandboxedApp: String? {
        guard let first = parts.first?.sandboxedApp, parts.allSatisfy({ $0.sandboxedApp == first }) else { return nil }
        return first
    }

    /// nil where that of a part is unknown, or wrong.
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

    /// Whole percent, rounded down: of the bytes, or, where the size of a batch is not known, of the downloads. nil where nothing tells.
    public var percent: Int? {
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

/// What is said at the end of a download, or of a batch, or when one waits for its user. Texts are plain.
public struct EndToast: Equatable, Sendable {
    public enum Kind: Equatable, Sendable {
        /// `path`: the absolute path of the file, which the actions are about.
        case finished(path: String)
        /// `folder`: absolute, which the actions are about.
        case finishedBatch(folder: String)
        case failed(Remedy?)
        /// It goes on by itself when the user has done something.
        case waiting(Remedy?)
    }

    public var number: DownloadNumber
    public var kind: Kind
    public var summary: String
    public var body: String
    /// Icon name or absolute path; nil: by kind.
    public var icon: String?
    /// Sound name; nil: by kind; empty: silent.
    public var sound: String?
    /// The host it came from, for servers that show it.
    public var host: String?
    /// Whose it is, where an app in a sandbox queued it: it is shown under that app's name, not ours.
    public var sandboxedApp: String?

    public init(
        number: DownloadNumber, kind: Kind, summary: String, body: String, icon: String? = nil, sound: String? = nil, host: String? = nil
    ) {
        (self.number, self.kind, self.summary, self.body) = (number, kind, summary, body)
        (self.icon, self.sound, self.host) = (icon, sound, host)
    }
}

extension EndToast.Kind {
    /// What can be asked for by a click, the most useful first.
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

    /// Whether it tells of something that is there to be opened.
    var isOfFile: Bool {
        switch self {
        case .finished, .finishedBatch: true
        case .failed, .waiting: false
        }
    }
}

/// What a click on an end toast asks for.
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
    /// A toast is on screen; if `isClickable`, whoever clicks it needs us alive.
    case shown(DownloadNumber, isClickable: Bool)
    /// Clicked; once per toast, and `closed` follows. The token lets the program that is started take the focus.
    case action(DownloadNumber, ToastAction, activationToken: String?)
    /// A toast that was `shown` is no longer on screen, so nobody can click it.
    case closed(DownloadNumber)
    /// An end toast could not be shown, or was dropped because too many wait.
    case failed(DownloadNumber)
    /// The user has put the progress toast away; what is told of its round is not shown any more.
    case progressDismissed
    /// A toast is on screen whose sound the server does not play.
    case sounds(String)
}
