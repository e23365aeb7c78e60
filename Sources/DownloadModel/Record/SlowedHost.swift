/// Why an origin gets fewer requests than its host's rule allows, and until when.
public struct SlowedHost: Equatable, Sendable {
    /// Least time between two requests; zero: the origin is only paused.
    public var interval: Duration
    /// When the first refusal came.
    public var since: WallTime?
    /// The end of the longest pause that the server requested.
    public var pausedUntil: WallTime?
    /// The refusal's status: 429 or 503.
    public var status: UInt32

    public init(interval: Duration, since: WallTime?, pausedUntil: WallTime?, status: UInt32) {
        (self.interval, self.since, self.pausedUntil, self.status) = (interval, since, pausedUntil, status)
    }
}
