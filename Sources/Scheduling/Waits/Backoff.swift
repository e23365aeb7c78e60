internal import DownloadModel

/// How long to wait before a further attempt.
public struct Backoff {
    public static let first: Duration = .seconds(1)
    public static let longest: Duration = .seconds(300)

    /// The delay before retry `attempt`, counted from 0: one second doubling to five minutes, half of it fixed and half by chance, so
    /// that many clients of a server that failed do not come back together.
    ///
    /// - Parameters:
    ///   - random: from 0 up to, not including, 1.
    ///   - floor: the server's `Retry-After`: the delay is never shorter; it does not hasten.
    public static func delay(attempt: UInt32, random: Double, floor: Duration?) -> Duration {
        let whole = min(first * (1 << min(Int(attempt), 16)), longest)
        let delay = whole / 2 + (whole / 2) * min(max(random, 0), 1)
        return max(delay, floor ?? .zero)
    }
}
