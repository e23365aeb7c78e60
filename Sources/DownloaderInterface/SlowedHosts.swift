public import DBus
public import DownloadModel

extension SlowedHost {
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
        self.init(
            interval: .milliseconds(Int64(dictionary["request-interval"]?.uint32 ?? 0)),
            since: dictionary["since"]?.uint64.map { WallTime(microseconds: $0) },
            pausedUntil: dictionary["until"]?.uint64.map { WallTime(microseconds: $0) }, status: dictionary["http-status"]?.uint32 ?? 0)
    }
}
