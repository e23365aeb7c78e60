/// Sums over what has not ended, kept up with each change of a record: nobody walks through a hundred thousand to read them.
final class Sums {
    typealias Summand = ProgressTally.Summand

    /// Of one word each more than a download's sizes: whatever servers announce, they do not overflow.
    private(set) var received: UInt128 = 0
    private(set) var total: UInt128 = 0
    private(set) var withoutTotal = 0
    /// By the icon that shows them (option `desktop-id`, nil: ours), as long as one has not ended. Without those that show no progress.
    private(set) var icons: [DesktopID?: ProgressTally] = [:]

    /// `entry` counts from now on, with what its record says.
    func add(_ entry: LedgerEntry) {
        remove(entry)
        let summand = Self.summand(of: entry.record)
        entry.summand = summand
        count(summand)
        tally(entry) { $0.add(summand) }
    }

    func remove(_ entry: LedgerEntry) {
        guard let summand = entry.summand else { return }
        entry.summand = nil
        uncount(summand)
        tally(entry) { $0.remove(summand) }
    }

    /// `entry` counted, and has ended. What was cancelled is as if it had never been asked for.
    func end(_ entry: LedgerEntry) {
        guard let summand = entry.summand else { return }
        entry.summand = nil
        uncount(summand)
        let record = entry.record
        tally(entry) {
            $0.remove(summand)
            if record.state != .cancelled { $0.end(bytes: record.state == .finished ? record.total ?? record.received : record.received) }
        }
    }

    /// `entry` had ended in `state`, and counts again from the next `add` on.
    func revive(_ entry: LedgerEntry, from state: DownloadState) {
        guard entry.record.options.showProgress, state != .cancelled else { return }
        icons[entry.record.options.desktopID]?.revive(bytes: entry.record.received)
        entry.batch?.progress.revive(bytes: entry.record.received)
    }

    func update(_ entry: LedgerEntry) {
        guard let before = entry.summand else { return }
        let now = Self.summand(of: entry.record)
        guard now != before else { return }
        entry.summand = now
        uncount(before)
        count(now)
        tally(entry) { $0.change(from: before, to: now) }
    }

    private func count(_ summand: Summand) {
        received += UInt128(summand.received)
        if let size = summand.total { total += UInt128(size) } else { withoutTotal += 1 }
    }

    private func uncount(_ summand: Summand) {
        received -= UInt128(summand.received)
        if let size = summand.total { total -= UInt128(size) } else { withoutTotal -= 1 }
    }

    /// Where none is left, the next one begins anew.
    private func tally(_ entry: LedgerEntry, _ change: (inout ProgressTally) -> Void) {
        guard entry.record.options.showProgress else { return }
        let icon = entry.record.options.desktopID
        change(&icons[icon, default: ProgressTally()])
        if icons[icon]?.remaining == 0 { icons[icon] = nil }
        guard let batch = entry.batch else { return }
        change(&batch.progress)
        if batch.progress.remaining == 0 { batch.progress = ProgressTally() }
    }

    static func summand(of record: DownloadRecord) -> Summand {
        Summand(received: record.received, total: record.total ?? record.options.size)
    }
}

extension Ledger {
    /// Bytes that all have that have not ended, as last saved.
    public var received: ByteCount { ByteCount(clamping: sums.received) }

    /// Their sizes together; nil where one's is not known, or they are more than can be told.
    public var total: ByteCount? { sums.withoutTotal == 0 ? ByteCount(exactly: sums.total) : nil }

    /// What has not ended and shows progress, by the icon that shows it (nil: ours), with what ended meanwhile.
    public var icons: [DesktopID?: ProgressTally] { sums.icons }
}
