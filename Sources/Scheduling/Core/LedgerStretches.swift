internal import DownloadModel

/// What one call does to many downloads, some of them in each slice: calls of others are answered in between.
struct LedgerStretch {
    enum Deed {
        case take(DownloadEvent)
        /// Of CancelAll, which holds for all up to this number: its row is taken back at the end.
        case cancelAll(through: DownloadNumber)
        /// Takes what has ended off the list.
        case remove
        /// Takes a member of a batch that is to go off the list, also where somebody has begun it again since it was cancelled.
        case leaveBatch
    }

    let deed: Deed
    let numbers: [DownloadNumber]
    var next = 0
    /// The call that is answered at the end.
    let call: Ledger.CallNumber?

    var isCancelAll: Bool { if case .cancelAll = deed { true } else { false } }
}

/// How much one slice of what is done to many may do: little, as whoever calls `continueSlices` may do so again while there is time.
public struct SliceSize: Sendable {
    /// Downloads of a stretch.
    public var portion = 10
    /// Of a pass; what each download costs is in `LedgerPass.swift`.
    public var cost = 2000
    public init() {}
}

extension Ledger {
    /// Names a call that `stretchEnded` answers. Who calls chooses the number.
    public typealias CallNumber = UInt64

    /// Whether `continueSlices` is to be called.
    public var hasSlices: Bool { hasPass || !stretches.isEmpty }

    /// One slice of what is done to many. What was asked for by a call comes first.
    func continueSlices(now: WallTime) { if stretches.isEmpty { continuePass(now: now) } else { continueStretch(now: now) } }

    /// Cancels all that have not ended. What is being given its name is left alone: it is as good as ended.
    func cancelAll(answering call: CallNumber, now: WallTime) {
        let numbers = order.ordered
        guard let last = numbers.max() else { return actions.append(.stretchEnded(call)) }
        // One row says it of all; without it a crash would leave some that are cancelled and some that are not.
        // What was begun again since an earlier call is cancelled by this one.
        set(now: now) { ($0.cancelsThrough, $0.spared) = (last, []) }
        begin(LedgerStretch(deed: .cancelAll(through: last), numbers: numbers, call: call), now: now)
    }

    /// Goes on with the CancelAll of a process before this one, acknowledged or not.
    func goOnCancelling(now: WallTime) {
        guard let last = settings.cancelsThrough else { return }
        begin(LedgerStretch(deed: .cancelAll(through: last), numbers: order.ordered.filter { $0 <= last }, call: nil), now: now)
    }

    /// Takes all that have ended off the list.
    ///
    /// - Returns: how many there are.
    @discardableResult func clearEnded(answering call: CallNumber, now: WallTime) -> Int {
        let numbers = ended.ordered
        begin(LedgerStretch(deed: .remove, numbers: numbers, call: call), now: now)
        return numbers.count
    }

    /// Takes `event` to all members that have not ended; only then does anything start. What is being given its name is left alone: it is
    /// as good as ended.
    func apply(_ event: DownloadEvent, to batch: LedgerBatch, answering call: CallNumber? = nil, now: WallTime) {
        begin(LedgerStretch(deed: .take(event), numbers: members(of: batch).map(\.number), call: call), now: now)
    }

    /// Takes `batch` off the list with all its members, cancelled first where they have not ended. What is being given its name follows as
    /// soon as it has it: `batchRemoved` comes with the last one.
    func remove(_ batch: LedgerBatch, now: WallTime) {
        batch.isLeaving = true
        let numbers = members(of: batch).map(\.number)
        stretches.append(LedgerStretch(deed: .take(.cancel), numbers: numbers, call: nil))
        stretches.append(LedgerStretch(deed: .leaveBatch, numbers: numbers, call: nil))
        if stretches.count == 2 { continueStretch(now: now) }
    }

    /// What was asked for earlier comes first. Nothing starts meanwhile: what one frees, the next need not take.
    private func begin(_ stretch: LedgerStretch, now: WallTime) {
        stretches.append(stretch)
        if stretches.count == 1 { continueStretch(now: now) }
    }

    private func continueStretch(now: WallTime) {
        var left = sliceSize.portion
        while let stretch = stretches.first {
            let end = min(stretch.next + left, stretch.numbers.count)
            for number in stretch.numbers[stretch.next..<end] {
                if let entry = entries[number] { take(stretch.deed, to: entry, now: now) }
            }
            left -= end - stretch.next
            stretches[0].next = end
            guard end == stretch.numbers.count else { return }
            stretches.removeFirst()
            if case .cancelAll = stretch.deed, !stretches.contains(where: \.isCancelAll) {
                set(now: now) { ($0.cancelsThrough, $0.spared) = (nil, []) }
            }
            if stretches.isEmpty { schedule(now: now) }
            if let call = stretch.call { actions.append(.stretchEnded(call)) }
        }
    }

    private func take(_ deed: LedgerStretch.Deed, to entry: LedgerEntry, now: WallTime) {
        switch deed {
        case .remove: if entry.state.hasEnded { remove(entry, now: now) }
        case .leaveBatch: if entry.state != .committing { leave(entry, now: now) }
        case .take(let event): if !entry.state.hasEnded, entry.state != .committing { try? apply(event, to: entry, now: now) }
        case .cancelAll:
            guard !entry.state.hasEnded, entry.state != .committing, !settings.spared.contains(entry.number) else { return }
            try? apply(.cancel, to: entry, now: now)
        }
    }
}
