public import DownloadModel

/// Which failures are retried, when, and which of them count towards the option `retries`.
public enum RetryPolicy {
    /// The consequence of a failed attempt.
    public enum Verdict: Equatable, Sendable {
        case fail
        /// The download waits until the instant; nil: until the obstacle is gone.
        case wait(WaitReason, until: WallTime?)
    }

    /// The consequence of `failure`, and the new `retriesUsed` of the record.
    ///
    /// `retriesUsed` is the number of failed attempts in a row without progress. It lengthens the back-off, and progress resets it to zero.
    /// Progress means bytes that the next attempt need not fetch again.
    ///
    /// - The count is compared with `options.retries` if the disk failed, or if the server refused, was unreachable, or sent only bytes
    ///   that no resume keeps.
    /// - A lost connection with bytes held is always retried. It raises the count only while the back-off still grows. The same holds for
    ///   being offline.
    /// - A full disk and a missing folder are waited for without counting. If the needed space is unknown (a quota), the back-off grows
    ///   with each attempt.
    /// - If the host does not exist, at most `retriesOfMissingHost` retries follow. With bytes on disk, the host has existed, so the other
    ///   rules apply.
    /// - If the desktop did not name the proxy, nothing was sent. The back-off grows with each attempt, but the count stays as it is.
    ///
    /// - Parameters:
    ///   - record: the record when the attempt began.
    ///   - madeProgress: whether the next attempt resumes from more bytes than this one did.
    ///   - unsent: the number of attempts in a row before this one that sent nothing, because the proxy was unknown.
    ///   - random: for the jitter, from 0 up to, not including, 1.
    public static func verdict(
        record: DownloadRecord, failure: DownloadFailure, madeProgress: Bool, unsent: UInt32 = 0, now: WallTime, random: Double
    ) -> (Verdict, retriesUsed: UInt32) {
        let used = madeProgress ? 0 : record.retriesUsed
        let uncounted = max(used, min(used +| 1, longestGrowth))
        func delayed(_ attempt: UInt32) -> WallTime { now + Backoff.delay(attempt: attempt, random: random, floor: failure.retryAfter) }
        func delayed() -> WallTime { delayed(used) }
        switch failure.wait {
        case .diskSpace where failure.neededRoom != nil: return (.wait(.diskSpace, until: nil), used)
        case .diskSpace: return (.wait(.diskSpace, until: delayed()), uncounted)
        case .destination where !failure.isRetryable: return (.wait(.destination, until: nil), used)
        case .destination: return used < record.options.retries ? (.wait(.destination, until: delayed()), used +| 1) : (.fail, used)
        case .retry: return (.wait(.retry, until: delayed(unsent)), used)
        case .offline: return (.wait(.offline, until: delayed()), uncounted)
        default: break
        }
        if failure.name == .httpStatus, let status = failure.httpStatus {
            if record.options.renewable, [401, 403, 410].contains(status) { return (.wait(.needsUrl, until: nil), used) }
            if !DownloadFailure.isRetryable(status: status) { return (.fail, used) }
        }
        guard failure.isRetryable else { return (.fail, used) }
        if failure.isLostConnection, madeProgress || record.received > 0 { return (.wait(.retry, until: delayed()), uncounted) }
        let retries = failure.isOfMissingHost ? min(record.options.retries, retriesOfMissingHost) : record.options.retries
        return used < retries ? (.wait(.retry, until: delayed()), used +| 1) : (.fail, used)
    }

    /// Most retries if the name servers say that the host does not exist: the second follows within three seconds.
    private static let retriesOfMissingHost: UInt32 = 2

    /// From this retry on, the back-off stays at its longest, because 2⁹ s is more than 300 s.
    private static let longestGrowth: UInt32 = 9
}

extension DownloadFailure {
    /// Whether the failure looks like a lost network between us and the server.
    var isLostConnection: Bool {
        switch name {
        case .network, .timeout, .truncated: true
        default: false
        }
    }
}
