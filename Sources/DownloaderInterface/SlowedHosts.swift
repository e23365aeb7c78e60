public import DBus
public import DownloadModel

/// Why a host is asked less often than its rule allows, and until when.
public struct SlowedHost: Equatable, Sendable {
    /// At least this long between two requests; zero: it is only paused.
    public var interval: Duration
    /// Since when it refuses requests.
    public var since: WallTime?
    /// The server asked for a pause until then.
    public var pausedUntil: WallTime?
    /// 429 or 503.
    public var status: UInt32

    public init(_ pace: OriginPace) {
        (interval, since, pausedUntil, status) = (pace.interval, pace.since, pace.pausedUntil, pace.status)
    }

    /// `request-interval` `u` in milliseconds, `since` and `until` `t` in microseconds since the Unix epoch, `http-status` `u`.
    public var dictionary: [String: Variant] {
        var dictionary: [String: Variant] = [
            "request-interval": .uint32(UInt32(clamping: interval.wholeMilliseconds)), "http-status": .uint32(status),
        ]
        if let since { dictionary["since"] = .uint64(since.microseconds) }
        if let pausedUntil { dictionary["until"] = .uint64(pausedUntil.microseconds) }
        return dictionary
    }

    public init(_ dictionary: [String: Variant]) {
        interval = .milliseconds(Int64(dictionary["request-interval"]?.uint32 ?? 0))
        since = dictionary["since"]?.uint64.map { WallTime(microseconds: $0) }
        pausedUntil = dictionary["until"]?.uint64.map { WallTime(microseconds: $0) }
        status = dictionary["http-status"]?.uint32 ?? 0
    }
}
