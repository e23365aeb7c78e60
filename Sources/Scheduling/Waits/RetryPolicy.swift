public import DownloadModel

/// Which failures are tried again, when, and which of them count: the option `retries`.
public enum RetryPolicy {
    /// What follows a failed attempt.
    public enum Verdict: Equatable, Sendable {
        case fail
        /// It waits, until an instant or, where there is none, until what it waits for is seen.
        case wait(WaitReason, until: WallTime?)
    }

    /// What follows `failure`, and the new `retriesUsed` of the record.
    ///
    /// `retriesUsed` is the number of attempts in a row that failed without progress: it lengthens the back-off, and progress sets it to
    /// zero. Progress is what a resume keeps: bytes that the next attempt need not fetch. The count is held against `options.retries` when
    /// a server refused, was never reached, sent only bytes that no resume keeps, or the disk failed. Once bytes are held, a lost
    /// connection is retried whatever the count, which it raises only as far as the back-off still grows; so is being offline. A full disk
    /// and a folder that is gone are waited for without counting; where no disk tells how much room is needed (a quota), it is tried again
    /// ever later. Where nothing was sent, because the desktop did not name the proxy, it is tried again ever later, too; such attempts leave
    /// the count as it is.
    ///
    /// - Parameters:
    ///   - record: as it was when the attempt began.
    ///   - madeProgress: whether a further attempt goes on from more bytes than this one did.
    ///   - unsent: how many attempts in a row before this one sent nothing, because the proxy was not known.
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
        return used < record.options.retries ? (.wait(.retry, until: delayed()), used +| 1) : (.fail, used)
    }

    /// The retry from which on the back-off stays at its longest: 2⁹ s are more than 300 s.
    private static let longestGrowth: UInt32 = 9
}

extension DownloadFailure {
    /// Whether it looks as if the network between us and the server had gone.
    var isLostConnection: Bool {
        switch name {
        case .network, .timeout, .truncated: true
        default: false
        }
    }
}
