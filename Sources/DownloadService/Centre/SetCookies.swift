internal import DownloadModel
internal import Scheduling

/// The cookies that servers have set for unfinished downloads: a retry sends them, as a browser would. They are never on disk. After a
/// restart, a download has its caller's cookies only.
struct SetCookies {
    /// All cookies of a download, its caller's too, as lines of the Netscape cookie file format.
    private var lines: [DownloadNumber: [String]] = [:]

    /// nil: no server has set a cookie for the download.
    subscript(number: DownloadNumber) -> [String]? { lines[number] }

    /// - Parameter cookies: at most `Limits.keptCookieBytes`.
    mutating func keep(_ cookies: [String], for number: DownloadNumber) {
        guard lines[number] != nil || lines.count < Limits.keptCookies else { return }
        lines[number] = cookies
    }

    mutating func forget(_ number: DownloadNumber) { lines[number] = nil }

    /// Forgets the cookies after a fresh link or fresh cookies.
    mutating func changed(_ change: Scheduler.Change) {
        guard !lines.isEmpty else { return }
        let (before, after) = (change.before, change.entry.record)
        if before.url != after.url || before.options.cookies != after.options.cookies { forget(change.entry.number) }
    }
}
