internal import DownloadModel
internal import TodokuClient

/// A wait in a line for a log. The first words are for scripts; what follows the colon is for people.
enum WaitLine {
    /// "waiting retry until 14:03:07: The server refused the connection."
    ///
    /// - Parameter service: the limits of hosts; nil: unknown.
    static func text(_ download: DownloadDescription, _ service: ServiceStatus?) -> String {
        let until = download.waitUntil.map { " until \(Clock.brief($0))" } ?? ""
        let obstacle = Reason(download, service, plainCatalog).obstacle.map { ": \($0)" } ?? ""
        return "waiting \(download.waitReason ?? "")\(until)\(obstacle)"
    }
}

/// Decides whether a wait gets a line: each new reason has one. A new time is no new reason.
struct ToldWaits {
    private struct Wait: Equatable {
        let reason: String?
        let download: DownloadReference
        let attempts: UInt32
        let error: String?
        let message: String?

        init(_ download: DownloadDescription) {
            (reason, self.download, attempts) = (download.waitReason, download.reference, download.attempts)
            error = download.error?.name
            // The message about a full disk has a number of bytes, which may change at each look.
            message = reason == WaitReason.diskSpace.rawValue ? nil : download.error?.message
        }
    }

    private var last: Wait?
    /// The reasons by the limits of a host, since the last other reason. While many downloads wait for one host, each passes often from one
    /// limit to the other and to its turn. So each limit is told once.
    private var forHost: Set<String> = []

    /// Whether the wait has a reason that was not told last. It counts as told from now on.
    mutating func isNew(_ download: DownloadDescription) -> Bool {
        if let reason = download.waitReason, Reason.isForHost(download) {
            last = nil
            return forHost.insert(reason).inserted
        }
        let wait = Wait(download)
        defer { (last, forHost) = (wait, []) }
        return wait != last
    }
}
