internal import DownloadModel
internal import TodokuClient

/// A wait in a line for a log. The first words are for scripts; what follows the colon is for people.
enum WaitLine {
    /// "waiting retry until 14:03:07: The server refused the connection."
    ///
    /// - Parameter limits: those of hosts; nil: unknown.
    static func text(_ download: DownloadDescription, _ limits: ServiceLimits?) -> String {
        let until = download.waitUntil.map { " until \(Clock.brief($0))" } ?? ""
        let obstacle = Reason(download, limits, plainCatalog).obstacle.map { ": \($0)" } ?? ""
        return "waiting \(download.waitReason ?? "")\(until)\(obstacle)"
    }
}

/// Decides whether a wait gets a line: each new reason has one. A new time is no new reason.
struct ToldWaits {
    private struct Wait: Equatable {
        let state: DownloadDescription.State
        let reason: String?
        let download: DownloadReference
        let attempts: UInt32
        let error: String?
        let message: String?

        init(_ download: DownloadDescription) {
            (state, reason, self.download) = (download.state, download.waitReason, download.reference)
            attempts = download.attempts
            error = download.error?.name
            // The message about a full disk has a number of bytes, which may change at each look.
            message = reason == WaitReason.diskSpace.rawValue ? nil : download.error?.message
        }
    }

    private var last: Wait?
    /// The reasons by the limits of a host and of the queue, since the last other reason. While many downloads wait for one host, each
    /// passes often from one limit to the other and to its turn. So each limit is told once.
    private var byLimit: Set<String> = []

    /// Whether the reason of the wait differs from the reason that was told last. It counts as told from now on.
    mutating func isNew(_ download: DownloadDescription) -> Bool {
        if download.state == .queued || Reason.isForHost(download) {
            last = nil
            return byLimit.insert(download.waitReason ?? "").inserted
        }
        let wait = Wait(download)
        defer { (last, byLimit) = (wait, []) }
        return wait != last
    }

    /// Call after progress: the last reason is told again if it comes back. A limit is not, because it comes back after each download.
    mutating func moved() { last = nil }
}
