public import DownloadModel

/// Which failures are retried, when, and which of them count towards the option `retries`.
public enum RetryPolicy {
    /// The consequence of a failed attempt.
    public enum Verdict: Equatable, Sendable {
        case fail
        /// The download waits until the instant; nil: until the obstacle is gone.
        case wait(WaitReason, until: WallTime?)
    }

    /// The consequence of `failure`, and the new counts of failed attempts in a row without progress: `retriesUsed` of the record, and
    /// `uncounted`.
    ///
    /// Both counts lengthen the back-off, and progress resets both to zero. Progress means bytes that the next attempt need not fetch
    /// again. Only `retriesUsed` is compared with `options.retries`.
    ///
    /// - `retriesUsed` counts an attempt if the disk failed, or if the server refused, was unreachable, or sent only bytes that no resume
    ///   keeps.
    /// - A lost connection with bytes held is always retried, and so is an attempt while offline. Both are `uncounted`.
    /// - A full disk and a missing folder are waited for without any count. If the needed space is unknown (a quota), the attempt is
    ///   `uncounted`.
    /// - If the host does not exist, at most `retriesOfMissingHost` retries follow. With bytes on disk, the host has existed, so the other
    ///   rules apply.
    /// - If the desktop did not name the proxy, nothing was sent. The attempt is `uncounted`, and `retriesUsed` does not lengthen its
    ///   back-off.
    ///
    /// - Parameters:
    ///   - record: the record when the attempt began.
    ///   - madeProgress: whether the next attempt resumes from more bytes than this one did.
    ///   - uncounted: the number of uncounted attempts before this one.
    ///   - random: for the jitter, from 0 up to, not including, 1.
    public static func verdict(
        record: DownloadRecord, failure: DownloadFailure, madeProgress: Bool, uncounted: UInt32 = 0, now: WallTime, random: Double
    ) -> (Verdict, retriesUsed: UInt32, uncounted: UInt32) {
        let used = madeProgress ? 0 : record.retriesUsed
        let others = madeProgress ? 0 : uncounted
        func delayed(_ attempt: UInt32) -> WallTime { now + Backoff.delay(attempt: attempt, random: random, floor: failure.retryAfter) }
        func delayed() -> WallTime { delayed(used +| others) }
        switch failure.wait {
        case .diskSpace where failure.neededRoom != nil: return (.wait(.diskSpace, until: nil), used, others)
        case .diskSpace: return (.wait(.diskSpace, until: delayed()), used, others +| 1)
        case .destination where !failure.isRetryable: return (.wait(.destination, until: nil), used, others)
        case .destination where used < record.options.retries: return (.wait(.destination, until: delayed()), used +| 1, others)
        case .destination: return (.fail, used, others)
        case .retry: return (.wait(.retry, until: delayed(others)), used, others +| 1)
        case .offline: return (.wait(.offline, until: delayed()), used, others +| 1)
        default: break
        }
        if failure.name == .httpStatus, let status = failure.httpStatus {
            if record.options.renewable, [401, 403, 410].contains(status) { return (.wait(.needsUrl, until: nil), used, others) }
            if !DownloadFailure.isRetryable(status: status) { return (.fail, used, others) }
        }
        guard failure.isRetryable else { return (.fail, used, others) }
        if failure.isLostConnection, madeProgress || record.received > 0 {
            return (.wait(.retry, until: delayed()), used, others +| 1)
        }
        let retries = failure.isOfMissingHost ? min(record.options.retries, retriesOfMissingHost) : record.options.retries
        guard used < retries else { return (.fail, used, others) }
        return (.wait(.retry, until: delayed()), used +| 1, others)
    }

    /// Most retries if the name servers say that the host does not exist: the second follows within three seconds.
    private static let retriesOfMissingHost: UInt32 = 2
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
