internal import DownloadModel
internal import Scheduling

/// The cookies that servers have set for unfinished downloads: a retry sends them, as a browser would. They are never on disk. After a
/// restart, a download has its caller's cookies only.
struct SetCookies {
    /// All cookies of a download, its caller's too, as lines of the Netscape cookie file format.
    private var lines: [DownloadNumber: [String]] = [:]
    /// Downloads that got a fresh link or fresh cookies while a transfer was under way. Its cookies do not count.
    private var renewed: Set<DownloadNumber> = []

    /// nil: no server has set a cookie for the download.
    subscript(number: DownloadNumber) -> [String]? { lines[number] }

    /// - Parameter cookies: at most `Limits.keptCookieBytes`.
    mutating func keep(_ cookies: [String], for number: DownloadNumber) {
        guard !renewed.contains(number), lines[number] != nil || lines.count < Limits.keptCookies else { return }
        lines[number] = cookies
    }

    mutating func forget(_ number: DownloadNumber) {
        lines[number] = nil
        renewed.remove(number)
    }

    /// A transfer begins with the present link and cookies of the download.
    mutating func transferBegins(_ number: DownloadNumber) { renewed.remove(number) }

    /// Forgets the cookies after a fresh link or fresh cookies.
    mutating func changed(_ change: Scheduler.Change) {
        let (before, entry) = (change.before, change.entry)
        guard before.url != entry.record.url || before.options.cookies != entry.record.options.cookies else { return }
        forget(entry.number)
        if entry.work != .idle { renewed.insert(entry.number) }
    }
}
