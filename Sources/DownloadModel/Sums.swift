/// Sums over what has not ended, kept up with each change of a record: nobody walks through a hundred thousand to read them.
final class Sums {
    struct Summand: Equatable {
        var received: ByteCount
        var total: ByteCount?
    }

    /// Of one word each more than a download's sizes: whatever servers announce, they do not overflow.
    private(set) var received: UInt128 = 0
    private(set) var total: UInt128 = 0
    private(set) var withoutTotal = 0

    /// `entry` counts from now on, with what its record says.
    func add(_ entry: LedgerEntry) {
        remove(entry)
        let summand = Self.summand(of: entry.record)
        entry.summand = summand
        received += UInt128(summand.received)
        if let size = summand.total { total += UInt128(size) } else { withoutTotal += 1 }
    }

    func remove(_ entry: LedgerEntry) {
        guard let summand = entry.summand else { return }
        entry.summand = nil
        received -= UInt128(summand.received)
        if let size = summand.total { total -= UInt128(size) } else { withoutTotal -= 1 }
    }

    func update(_ entry: LedgerEntry) {
        guard let summand = entry.summand, summand != Self.summand(of: entry.record) else { return }
        add(entry)
    }

    private static func summand(of record: DownloadRecord) -> Summand {
        Summand(received: record.received, total: record.total ?? record.options.size)
    }
}

extension Ledger {
    /// Bytes that all have that have not ended, as last saved.
    public var received: ByteCount { ByteCount(clamping: sums.received) }

    /// Their sizes together; nil where one's is not known, or they are more than can be told.
    public var total: ByteCount? { sums.withoutTotal == 0 ? ByteCount(exactly: sums.total) : nil }
}
