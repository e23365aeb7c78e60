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
