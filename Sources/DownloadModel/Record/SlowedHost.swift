/// Why an origin is asked less often than its host's rule allows, and until when.
public struct SlowedHost: Equatable, Sendable {
    /// At least this long between two requests; zero: it is only paused.
    public var interval: Duration
    /// The first refusal.
    public var since: WallTime?
    /// The end of the longest pause that the server asked for.
    public var pausedUntil: WallTime?
    /// 429 or 503.
    public var status: UInt32

    public init(interval: Duration, since: WallTime?, pausedUntil: WallTime?, status: UInt32) {
        (self.interval, self.since, self.pausedUntil, self.status) = (interval, since, pausedUntil, status)
    }
}
