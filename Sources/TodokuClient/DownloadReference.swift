internal import DBus
internal import DownloaderInterface

/// Identifies one download by its object path on the bus.
public struct DownloadReference: Hashable, Sendable, CustomStringConvertible {
    /// The object path, `/org/todoku/Downloader1/download/7`.
    public let path: String

    init(_ path: ObjectPath) { self.path = path.value }
    var objectPath: ObjectPath { ObjectPath(path) }

    /// The download with this number.
    public init(number: UInt64) { path = "\(BusName.downloadsPath)/\(number)" }

    /// The download that `app` queued, or will queue, with this token. The path is known before the call, so the download can be watched
    /// from the start.
    public init(app: String, token: String) { path = BusName.path(app: app, token: token).value }

    /// Reads a number, `APP/TOKEN`, or an object path of the service; nil for any other text.
    public init?(_ text: String) {
        if let number = UInt64(text), String(number) == text {
            self.init(number: number)
        } else if text.hasPrefix(BusName.downloadsPath + "/"), ObjectPath.isValid(text) {
            self.init(ObjectPath(text))
        } else {
            let parts = text.split(separator: "/", maxSplits: 1, omittingEmptySubsequences: false)
            guard parts.count == 2, !parts[0].isEmpty, !parts[1].isEmpty, !parts[1].contains("/") else { return nil }
            self.init(app: String(parts[0]), token: String(parts[1]))
        }
    }

    /// nil for a download with a token.
    public var number: UInt64? {
        path.hasPrefix(BusName.downloadsPath + "/") ? UInt64(path.dropFirst(BusName.downloadsPath.utf8.count + 1)) : nil
    }

    /// The number, or `APP/TOKEN`; `init(_:)` reads both.
    public var description: String {
        if let number { return String(number) }
        guard path.hasPrefix(BusName.tokensPath + "/") else { return path }
        let parts = path.dropFirst(BusName.tokensPath.utf8.count + 1).split(separator: "/")
        guard parts.count == 2, let app = ObjectPath.unescape(parts[0]), let token = ObjectPath.unescape(parts[1]) else { return path }
        return "\(app)/\(token)"
    }
}
