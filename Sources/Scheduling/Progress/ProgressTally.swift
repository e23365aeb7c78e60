public import DownloadModel

/// The joint progress of several downloads: of one dock icon, or of one batch. Updated with each change of a record, so that nothing
/// walks through 100,000 downloads.
///
/// A tally begins with its first download and ends when no unfinished download is left. Ended downloads stay in the tally until then, so
/// that progress never falls back when a download ends.
public struct ProgressTally: Equatable, Sendable {
    /// Unfinished downloads.
    public private(set) var remaining = 0
    public private(set) var ended = 0
    /// 128 bits wide, so that the 64-bit sizes that servers announce cannot overflow the sum.
    private var received: UInt128 = 0
    private var total: UInt128 = 0
    private var withoutTotal = 0
    /// The sum of the fractions of all downloads of known size, in billionths. Integers, because a download can be subtracted from their
    /// sum exactly.
    private var parts: UInt128 = 0
    /// Bytes of the ended downloads.
    private var endedBytes: UInt128 = 0

    static let whole: UInt64 = 1_000_000_000

    /// The contribution of one download to the sums.
    struct Summand: Equatable {
        var received: ByteCount
        var total: ByteCount?

        fileprivate var part: UInt128 {
            guard let total, total > 0 else { return 0 }
            return UInt128(total.dividingFullWidth(min(received, total).multipliedFullWidth(by: whole)).quotient)
        }
    }

    public init() {}

    /// The tally of `records`, which are all unfinished.
    public init(of records: some Sequence<DownloadRecord>) { for record in records { add(Sums.summand(of: record)) } }

    /// The tally without ended downloads.
    public var open: ProgressTally {
        var open = self
        (open.ended, open.endedBytes) = (0, 0)
        return open
    }

    mutating func add(_ summand: Summand) {
        remaining += 1
        addBytes(of: summand)
    }

    mutating func remove(_ summand: Summand) {
        remaining -= 1
        removeBytes(of: summand)
    }

    mutating func change(from before: Summand, to now: Summand) {
        removeBytes(of: before)
        addBytes(of: now)
    }

    /// A removed download has ended. `bytes`: its size if it finished, else its received bytes.
    mutating func end(bytes: ByteCount) {
        ended += 1
        endedBytes += UInt128(bytes)
    }

    /// An ended download was retried.
    mutating func revive(bytes: ByteCount) {
        guard ended > 0 else { return }  // it ended before this tally began
        ended -= 1
        endedBytes -= min(endedBytes, UInt128(bytes))
    }

    /// A running download has more bytes than its record says.
    public mutating func take(received: ByteCount, of record: DownloadRecord) {
        let before = Sums.summand(of: record)
        change(from: before, to: Summand(received: received, total: before.total))
    }

    private mutating func addBytes(of summand: Summand) {
        received += UInt128(summand.received)
        if let size = summand.total { total += UInt128(size) } else { withoutTotal += 1 }
        parts += summand.part
    }

    private mutating func removeBytes(of summand: Summand) {
        received -= UInt128(summand.received)
        if let size = summand.total { total -= UInt128(size) } else { withoutTotal -= 1 }
        parts -= summand.part
    }

    /// The sum of both tallies.
    public static func + (a: ProgressTally, b: ProgressTally) -> ProgressTally {
        var sum = a
        sum.remaining += b.remaining
        sum.ended += b.ended
        sum.received += b.received
        sum.total += b.total
        sum.withoutTotal += b.withoutTotal
        sum.parts += b.parts
        sum.endedBytes += b.endedBytes
        return sum
    }

    /// Whether the sizes of all unfinished downloads are known.
    public var knowsTotal: Bool { withoutTotal == 0 }

    /// Received and total bytes of all downloads; total is nil while a size is unknown, or if the sum does not fit.
    public var bytes: (received: ByteCount, total: ByteCount?) {
        (ByteCount(clamping: received + endedBytes), knowsTotal ? ByteCount(exactly: total + endedBytes) : nil)
    }

    /// Progress by bytes, from 0 to 1; nil while a size is unknown, or if all sizes are 0.
    public var fractionOfBytes: Double? {
        let (all, done) = (total + endedBytes, received + endedBytes)
        guard knowsTotal, all > 0 else { return nil }
        return min(Double(done) / Double(all), 1)
    }

    /// Progress by downloads, from 0 to 1. A download of unknown size counts 0 until it has ended.
    /// nil for an empty tally, and for a single download of unknown size.
    public var fractionOfDownloads: Double? {
        let all = remaining + ended
        guard all > 1 || all == 1 && knowsTotal else { return nil }
        return min((Double(parts) / Double(Self.whole) + Double(ended)) / Double(all), 1)
    }
}
