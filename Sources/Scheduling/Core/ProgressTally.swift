public import DownloadModel

/// What several downloads come to together: those of one icon in a dock, or of a batch. Kept up with each change of a record, so that
/// nobody walks through a hundred thousand.
///
/// It counts from the moment in which the first of them is there until none is left that has not ended; what ended meanwhile stays in it,
/// so that progress does not fall back when one ends.
public struct ProgressTally: Equatable, Sendable {
    /// Not ended.
    public private(set) var remaining = 0
    public private(set) var ended = 0
    /// Of one word each more than a download's sizes: whatever servers announce, they do not overflow.
    private var received: UInt128 = 0
    private var total: UInt128 = 0
    private var withoutTotal = 0
    /// The fractions of those whose size is known, in billionths: whole numbers, which are taken away again exactly as they were added.
    private var parts: UInt128 = 0
    /// Bytes of what has ended.
    private var endedBytes: UInt128 = 0

    static let whole: UInt64 = 1_000_000_000

    /// What one download adds.
    struct Summand: Equatable {
        var received: ByteCount
        var total: ByteCount?

        fileprivate var part: UInt128 {
            guard let total, total > 0 else { return 0 }
            return UInt128(total.dividingFullWidth(min(received, total).multipliedFullWidth(by: whole)).quotient)
        }
    }

    public init() {}

    /// Of `records`, none of which has ended.
    public init(of records: some Sequence<DownloadRecord>) { for record in records { add(Sums.summand(of: record)) } }

    /// The same without what has ended.
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

    /// One that was removed has ended. Of what has not finished, nothing more will come than the bytes that it has.
    mutating func end(bytes: ByteCount) {
        ended += 1
        endedBytes += UInt128(bytes)
    }

    /// One that has ended begins again.
    mutating func revive(bytes: ByteCount) {
        guard ended > 0 else { return }  // it ended before these began
        ended -= 1
        endedBytes -= min(endedBytes, UInt128(bytes))
    }

    /// One that runs has more bytes than its record says.
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

    /// Both together.
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

    /// Whether the sizes of all that have not ended are known.
    public var knowsTotal: Bool { withoutTotal == 0 }

    /// Bytes of all, and how many they will be; nil while that is not known.
    public var bytes: (received: ByteCount, total: ByteCount?) {
        (ByteCount(clamping: received + endedBytes), knowsTotal ? ByteCount(exactly: total + endedBytes) : nil)
    }

    /// By bytes, from 0 to 1; nil while a size is not known.
    public var fractionOfBytes: Double? {
        let (all, done) = (total + endedBytes, received + endedBytes)
        guard knowsTotal, all > 0 else { return nil }
        return min(Double(done) / Double(all), 1)
    }

    /// By downloads, from 0 to 1: one whose size is not known counts nothing until it has ended. nil for a single one of those: nothing is
    /// known.
    public var fractionOfDownloads: Double? {
        let all = remaining + ended
        guard all > 1 || all == 1 && knowsTotal else { return nil }
        return min((Double(parts) / Double(Self.whole) + Double(ended)) / Double(all), 1)
    }
}
