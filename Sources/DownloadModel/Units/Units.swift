/// A number of bytes.
public typealias ByteCount = UInt64

/// Bytes per second.
public typealias Speed = UInt64

/// An instant of the wall clock: microseconds since the Unix epoch, as on the bus.
public struct WallTime: Hashable, Comparable, Sendable {
    public var microseconds: UInt64
    public init(microseconds: UInt64) { self.microseconds = microseconds }

    public static func < (a: WallTime, b: WallTime) -> Bool { a.microseconds < b.microseconds }

    /// The instant `duration` later (earlier, if negative), clamped to the range of `WallTime`.
    public static func + (time: WallTime, duration: Duration) -> WallTime {
        // 128 bits, because callers and rows may give any instant.
        let sum = Int128(time.microseconds) + duration.attoseconds / 1_000_000_000_000
        return WallTime(microseconds: UInt64(clamping: sum))
    }

    /// How much later `a` is; negative if `a` is earlier.
    public static func - (a: WallTime, b: WallTime) -> Duration {
        .microseconds(Int64(clamping: a.microseconds) - Int64(clamping: b.microseconds))
    }
}

extension Duration {
    /// Whole milliseconds, as on the bus; rounded towards zero, clamped.
    public var wholeMilliseconds: Int64 {
        let (seconds, attoseconds) = components
        let (product, overflow) = seconds.multipliedReportingOverflow(by: 1000)
        let (sum, carry) = product.addingReportingOverflow(attoseconds / 1_000_000_000_000_000)
        return overflow || carry ? (seconds < 0 ? .min : .max) : sum
    }

    /// Whole microseconds, as in the database; clamped beyond 292,000 years.
    public var microseconds: Int64 {
        let (seconds, attoseconds) = components
        let (micros, overflow) = seconds.multipliedReportingOverflow(by: 1_000_000)
        let (sum, carry) = micros.addingReportingOverflow(attoseconds / 1_000_000_000_000)
        return overflow || carry ? (seconds < 0 ? .min : .max) : sum
    }
}

/// A download's number, the last part of its object path. Numbers only grow and are never reused.
public struct DownloadNumber: Hashable, Comparable, Sendable, CustomStringConvertible {
    public let value: UInt64
    public init(_ value: UInt64) { self.value = value }
    public static func < (a: DownloadNumber, b: DownloadNumber) -> Bool { a.value < b.value }
    public var description: String { String(value) }
}

/// Identifies a request of a transfer, through all redirects. No later transfer of the same download has the same id, so a late answer is
/// never taken for the answer to another request.
public struct RequestID: Hashable, Comparable, Sendable, CustomStringConvertible {
    public let download: DownloadNumber
    /// Counts the requests of the download, in this process.
    public let ordinal: UInt32
    public init(_ download: DownloadNumber, _ ordinal: UInt32) { (self.download, self.ordinal) = (download, ordinal) }
    public static func < (a: RequestID, b: RequestID) -> Bool { (a.download, a.ordinal) < (b.download, b.ordinal) }
    public var description: String { "\(download).\(ordinal)" }
}

/// Whether a request can share an HTTP/2 connection that another request uses now, so that it adds no connection.
public enum ConnectionSharing: Sendable {
    case possible
    /// The request had to share a connection (`mustShare`), and there was none with room for it. Nothing was sent.
    case failed
    /// The request gets a connection of its own.
    case impossible
}
