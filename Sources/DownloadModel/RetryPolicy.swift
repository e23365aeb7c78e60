/// Which failures are tried again, when, and which of them count: the option `retries`.
public enum RetryPolicy {
    /// Statuses that ask for another attempt later; every other refusal is final.
    public static func isRetryable(status: UInt32) -> Bool { [408, 425, 429].contains(status) || (500...599).contains(status) }

    /// When to try again after `failure`, or nil where the download has failed; and the new `retriesUsed` of the record.
    ///
    /// `retriesUsed` is the number of attempts in a row that failed without a byte: it lengthens the back-off, and progress sets it to
    /// zero. It is held against `options.retries` when a server refused or was never reached. Once bytes flowed, a lost connection is
    /// retried whatever the count, which it raises only as far as the back-off still grows.
    ///
    /// - Parameters:
    ///   - record: as it was when the attempt began.
    ///   - madeProgress: whether the attempt wrote a byte.
    ///   - random: for the jitter, from 0 up to, not including, 1.
    public static func retryAt(
        record: DownloadRecord, failure: DownloadFailure, madeProgress: Bool, now: WallTime, random: Double
    ) -> (WallTime?, retriesUsed: UInt32) {
        let used = madeProgress ? 0 : record.retriesUsed
        guard failure.isRetryable else { return (nil, used) }
        if failure.name == .httpStatus, let status = failure.httpStatus, !isRetryable(status: status) { return (nil, used) }

        let at = now + Backoff.delay(attempt: used, random: random, floor: failure.retryAfter)
        if isLostConnection(failure), madeProgress || record.received > 0 {
            return (at, max(used, min(used + 1, longestGrowth)))
        }
        return used < record.options.retries ? (at, used + 1) : (nil, used)
    }

    /// The retry from which on the back-off stays at its longest: 2⁹ s are more than 300 s.
    private static let longestGrowth: UInt32 = 9

    private static func isLostConnection(_ failure: DownloadFailure) -> Bool {
        switch failure.name {
        case .network, .timeout, .truncated: true
        default: false
        }
    }
}
