internal import DownloadModel

/// The downloads that an origin has refused, and whether it has answered other downloads since.
///
/// A server that answers others, and refuses one download again and again, does so for the sake of that file: a broken part of the server
/// should have sent it, for example. Such a refusal says nothing about the pace that the server bears.
struct RefusedDownloads: Sendable {
    /// At most this many downloads are remembered: those refused last.
    private static let most = 1024

    private struct Refused: Sendable {
        /// When the last request was refused.
        var at: WallTime
        /// The download was refused again after another one had been answered.
        var isForItsOwnSake = false
    }

    private var downloads: [DownloadNumber: Refused] = [:]
    /// The answered request that was started last, and the latest start of an answered request of any other download.
    private var lastAnswered: (download: DownloadNumber, start: WallTime)?
    private var lastOfOthers: WallTime?

    /// The origin refused a request of `download`.
    ///
    /// - Returns: whether the refusal says something about the pace of the origin.
    mutating func refused(_ download: DownloadNumber, now: WallTime) -> Bool {
        let isForItsOwnSake = downloads[download].map { $0.isForItsOwnSake || hasAnsweredAnother(than: download, since: $0.at) } ?? false
        downloads[download] = Refused(at: now, isForItsOwnSake: isForItsOwnSake)
        if downloads.count > Self.most, let oldest = downloads.min(by: { ($0.value.at, $0.key) < ($1.value.at, $1.key) })?.key {
            downloads[oldest] = nil
        }
        return !isForItsOwnSake
    }

    /// The origin answered a request of `download` that was started at `start`.
    ///
    /// - Parameter leadsOn: the answer is a redirect, whose target may be refused as before.
    mutating func answered(_ download: DownloadNumber, startedAt start: WallTime, leadsOn: Bool) {
        if !leadsOn { downloads[download] = nil }
        guard let last = lastAnswered else {
            lastAnswered = (download, start)
            return
        }
        if last.download == download {
            lastAnswered = (download, max(last.start, start))
        } else if start >= last.start {
            lastOfOthers = last.start
            lastAnswered = (download, start)
        } else {
            lastOfOthers = max(lastOfOthers ?? start, start)
        }
    }

    /// Whether a refused download lets others go first: nobody knows yet whether the origin refuses them, too.
    func yields(_ download: DownloadNumber) -> Bool {
        downloads[download].map { !$0.isForItsOwnSake && !hasAnsweredAnother(than: download, since: $0.at) } ?? false
    }

    /// Whether the origin has answered a request of another download that was started after `time`.
    private func hasAnsweredAnother(than download: DownloadNumber, since time: WallTime) -> Bool {
        guard let last = lastAnswered else { return false }
        let start = last.download == download ? lastOfOthers : last.start
        return start.map { $0 > time } ?? false
    }

    mutating func shift(by delta: Duration) {
        downloads = downloads.mapValues { Refused(at: $0.at + delta, isForItsOwnSake: $0.isForItsOwnSake) }
        if let last = lastAnswered { lastAnswered = (last.download, last.start + delta) }
        lastOfOthers = lastOfOthers.map { $0 + delta }
    }
}
