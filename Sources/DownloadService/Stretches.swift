internal import DownloadModel
internal import EventLoop

/// What one call does to many downloads, some of them in each turn of the loop: calls of others are answered in between.
@BusActor final class Stretch {
    /// So many in one turn.
    private static let portion = 40

    private let numbers: [DownloadNumber]
    private var next = 0
    private let each: (Ledger, LedgerEntry, WallTime) -> Void
    private let finished: () -> Void

    init(_ numbers: [DownloadNumber], _ each: @escaping (Ledger, LedgerEntry, WallTime) -> Void, finished: @escaping () -> Void) {
        (self.numbers, self.each, self.finished) = (numbers, each, finished)
    }

    /// - Returns: whether it is over.
    func go(on ledger: Ledger, now: WallTime) -> Bool {
        let end = min(next + Self.portion, numbers.count)
        while next < end {
            if let entry = ledger[numbers[next]] { each(ledger, entry, now) }
            next += 1
        }
        return next == numbers.count
    }

    func finish() { finished() }
}

extension Downloader {
    /// Does `body` to each of `numbers` that is on the list by then, a portion at once and the others soon, and calls `finished` behind them. What was
    /// asked for earlier comes first. Nothing starts meanwhile: what one frees, the next need not take.
    func each(
        of numbers: [DownloadNumber], _ body: @escaping (Ledger, LedgerEntry, WallTime) -> Void, finished: @escaping () -> Void
    ) {
        stretches.append(Stretch(numbers, body, finished: finished))
        if stretches.count == 1 { continueStretch() }
    }

    func continueStretch() {
        guard let stretch = stretches.first else { return }
        guard decide({ ledger, now in stretch.go(on: ledger, now: now) }) else { return }
        stretches.removeFirst()
        if stretches.isEmpty { decide { ledger, now in ledger.schedule(now: now) } }
        stretch.finish()
        residenceChanged?()
    }

    /// Cancels all that have not ended. What is being given its name is left alone: it is as good as ended.
    func cancelAll(then finished: @escaping () -> Void) {
        let numbers = ledger.order.ordered
        guard let last = numbers.max() else { return finished() }
        // One row says it of all; without it a crash would leave some that are cancelled and some that are not.
        set { $0.cancelsThrough = last }
        cancel(numbers, through: last, then: finished)
    }

    /// Goes on with what a process before this one had been told, and had acknowledged or not.
    func goOnCancelling() {
        guard let last = settings.cancelsThrough else { return }
        cancel(ledger.order.ordered.filter { $0 <= last }, through: last) {}
    }

    private func cancel(_ numbers: [DownloadNumber], through last: DownloadNumber, then finished: @escaping () -> Void) {
        each(of: numbers) { ledger, entry, now in
            guard !entry.state.hasEnded, entry.state != .committing, !ledger.settings.spared.contains(entry.number) else { return }
            try? ledger.apply(.cancel, to: entry, now: now)
        } finished: { [self] in
            if settings.cancelsThrough == last { set { ($0.cancelsThrough, $0.spared) = (nil, []) } }
            finished()
        }
    }
}
