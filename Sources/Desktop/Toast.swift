public import DownloadModel

/// What a progress toast says. The newest one of a download wins.
public struct ProgressToast: Equatable, Sendable {
    public var number: DownloadNumber
    public var fileName: String
    public var received: ByteCount
    /// nil while unknown.
    public var total: ByteCount?
    /// Icon name or absolute path; nil: `folder-download`.
    public var icon: String?

    public init(number: DownloadNumber, fileName: String, received: ByteCount, total: ByteCount?, icon: String? = nil) {
        (self.number, self.fileName, self.received, self.total, self.icon) = (number, fileName, received, total, icon)
    }

    /// Whole percent, rounded down; nil while the total is unknown, or wrong.
    public var percent: Int? {
        guard let total, total > 0, received <= total else { return nil }
        return Int(received.multipliedFullWidth(by: 100).high == 0 ? received * 100 / total : received / (total / 100))
    }
}

/// What is said at the end of a download, or of a batch. Texts are plain.
public struct EndToast: Equatable, Sendable {
    public enum Kind: Equatable, Sendable {
        /// `path`: the absolute path of the file, which the actions are about.
        case finished(path: String)
        /// `folder`: absolute, which the actions are about.
        case finishedBatch(folder: String)
        case failed
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

    public init(
        number: DownloadNumber, kind: Kind, summary: String, body: String, icon: String? = nil, sound: String? = nil, host: String? = nil
    ) {
        (self.number, self.kind, self.summary, self.body) = (number, kind, summary, body)
        (self.icon, self.sound, self.host) = (icon, sound, host)
    }
}

/// What a click on an end toast asks for.
public enum ToastAction: Equatable, Sendable { case open, showFolder }

public enum ToastEvent: Equatable, Sendable {
    /// A toast with actions is on screen: whoever clicks it needs us alive.
    case shown(DownloadNumber)
    /// Clicked; once per toast, and `closed` follows. The token lets the program that is started take the focus.
    case action(DownloadNumber, ToastAction, activationToken: String?)
    /// A toast that was `shown` can be clicked no more.
    case closed(DownloadNumber)
    /// An end toast could not be shown, or was dropped because too many wait.
    case failed(DownloadNumber)
}
