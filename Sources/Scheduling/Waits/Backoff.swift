internal import DownloadModel

/// The back-off: the delay before a retry.
public struct Backoff {
    public static let first: Duration = .seconds(1)
    public static let longest: Duration = .seconds(300)

    /// The delay before retry number `attempt`, counted from 0: one second, doubled with each retry, up to five minutes. Half of the delay
    /// is fixed and half is random, so that the clients of a failed server do not all return at once.
    ///
    /// - Parameters:
    ///   - random: from 0 up to, not including, 1.
    ///   - floor: the server's `Retry-After`. A longer floor lengthens the delay; a shorter one has no effect.
    public static func delay(attempt: UInt32, random: Double, floor: Duration?) -> Duration {
        let whole = min(first * (1 << min(Int(attempt), 16)), longest)
        let delay = whole / 2 + (whole / 2) * min(max(random, 0), 1)
        return max(delay, floor ?? .zero)
    }
}
