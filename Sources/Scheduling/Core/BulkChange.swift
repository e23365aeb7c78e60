internal import DownloadModel

/// The work of one call on many downloads, or of equal calls, done in slices, so that other calls are answered in between.
struct BulkChange {
    enum Deed: Equatable {
        case take(DownloadEvent)
        /// `Resume` under PauseAll. It affects only the downloads that a person paused, even if ResumeAll comes before their slice.
        case resumePaused
        /// CancelAll for all downloads up to this number. `Settings.cancelsThrough` is cleared at the end.
        case cancelAll(through: DownloadNumber)
        /// Queues failed downloads again.
        case retryFailed
        /// Removes ended downloads from the list.
        case remove
        /// Removes a member of a removed batch, even if the member was retried since its cancellation.
        case leaveBatch
    }

    let deed: Deed
    let numbers: [DownloadNumber]
    /// The batch whose members these are; nil: the change is not about a batch.
    let batch: ScheduledBatch?
    var next = 0
    /// The downloads that the waiting change has reached before it began, because they were about to start.
    var early: Set<DownloadNumber> = []
    /// The calls to answer at the end, in their order.
    var calls: [Scheduler.CallNumber]

    init(deed: Deed, numbers: [DownloadNumber], of batch: ScheduledBatch? = nil, call: Scheduler.CallNumber?) {
        (self.deed, self.numbers, self.batch, calls) = (deed, numbers, batch, call.map { [$0] } ?? [])
    }

    var hasBegun: Bool { next > 0 }
    var isCancelAll: Bool { if case .cancelAll = deed { true } else { false } }

    /// Whether `later`, the next call, asks for the same. Then one change does for both calls, unless this one has begun.
    func isSame(as later: BulkChange) -> Bool {
        isCancelAll && later.isCancelAll || batch != nil && batch === later.batch && deed == later.deed
    }
}

/// The amount of work in one slice. It is small, because the caller may send further `slice` events while it has time.
public struct SliceSize: Sendable {
    /// Downloads of a bulk change.
    public var portion = 10
    /// Cost of a pass; `QueuePass.swift` has the cost of each download.
    public var cost = 500
    /// Hosts that are refreshed, and queued downloads that are reviewed at them.
    public var hosts = 200
    /// Downloads that are started, or found unable to start.
    public var starts = 20
    public init() {}
}

extension Scheduler {
    /// Names a call that `bulkChangeEnded` answers. The caller chooses the number.
    public typealias CallNumber = UInt64

    /// Whether the caller must send the event `slice`.
    public var hasSlices: Bool { hasPass || hasBulkChanges || isCut }

    /// Whether the work of a call on many downloads is not complete yet.
    public var hasBulkChanges: Bool { !bulkChanges.isEmpty }

    /// Performs one slice. A bulk change that has begun comes before the pass. Between two bulk changes, the pass goes on, and all
    /// downloads start that may. Otherwise, callers with ever more bulk changes could stop the downloads of all others.
    func continueSlices(now: WallTime) {
        if hasBulkChanges, !startsPrecedeBulkChange { continueBulkChange(now: now) }
        if pass != nil, bulkChanges.first?.hasBegun != true { continuePass(now: now) }
    }

    /// Whether the next bulk change waits for starts that are due: the last turn has left some for this slice, or the pass holds them.
    private var startsPrecedeBulkChange: Bool {
        bulkChangesAllowStarts && !conditions.isEnding && (isCut || pass?.holdsStarts == true)
    }

    /// Cancels all unfinished downloads, except downloads that are being committed, because these have all but ended.
    func cancelAll(answering call: CallNumber, now: WallTime) {
        let numbers = order.ordered + toBeRetried
        guard let last = numbers.max() else { return output.append(.bulkChangeEnded(call)) }
        // One row cancels all downloads; without this row, a crash would leave some of them uncancelled. This call also cancels the
        // downloads that were retried since an earlier CancelAll.
        set(now: now) { ($0.cancelsThrough, $0.spared) = (last, []) }
        begin(BulkChange(deed: .cancelAll(through: last), numbers: numbers, call: call), now: now)
    }

    /// The downloads that the changes of earlier calls may queue again. Each batch counts once, however often it is to be retried.
    private var toBeRetried: [DownloadNumber] {
        var numbers: [DownloadNumber] = []
        var batches: Set<BatchNumber> = []
        for change in bulkChanges where change.deed == .retryFailed {
            if let batch = change.batch, !batches.insert(batch.number).inserted { continue }
            numbers += change.numbers
        }
        return numbers
    }

    /// Continues the CancelAll of an earlier process, whether or not that call was answered.
    func goOnCancelling(now: WallTime) {
        guard let last = settings.cancelsThrough else { return }
        begin(BulkChange(deed: .cancelAll(through: last), numbers: order.ordered.filter { $0 <= last }, call: nil), now: now)
    }

    /// Removes all ended downloads from the list, except those that another part still needs.
    ///
    /// - Returns: their number.
    @discardableResult func clearEnded(answering call: CallNumber, sparing spared: Set<DownloadNumber> = [], now: WallTime) -> Int {
        let numbers = spared.isEmpty ? ended.ordered : ended.ordered.filter { !spared.contains($0) }
        begin(BulkChange(deed: .remove, numbers: numbers, call: call), now: now)
        return numbers.count
    }

    /// Applies `event` to all unfinished members, except a member that is being committed, because it has all but ended. Nothing starts
    /// while the slices of the change are under way.
    func apply(_ event: DownloadEvent, to batch: ScheduledBatch, answering call: CallNumber? = nil, now: WallTime) {
        let deed = event == .resume && settings.paused ? BulkChange.Deed.resumePaused : .take(event)
        begin(BulkChange(deed: deed, numbers: members(of: batch).map(\.number), of: batch, call: call), now: now)
    }

    /// Queues the failed members of `batch` again. Nothing starts while the slices of the change are under way.
    func retryFailed(of batch: ScheduledBatch, answering call: CallNumber?, now: WallTime) {
        begin(BulkChange(deed: .retryFailed, numbers: members(of: batch).map(\.number), of: batch, call: call), now: now)
    }

    /// Removes `batch` and all its members from the list. Unfinished members are cancelled first. A member that is being committed follows
    /// once its commit is over; `batchRemoved` comes with the last member.
    func remove(_ batch: ScheduledBatch, now: WallTime) {
        guard !batch.isLeaving else { return }
        batch.isLeaving = true
        let numbers = members(of: batch).map(\.number)
        bulkChanges.append(BulkChange(deed: .take(.cancel), numbers: numbers, of: batch, call: nil))
        bulkChanges.append(BulkChange(deed: .leaveBatch, numbers: numbers, of: batch, call: nil))
        if bulkChanges.count == 2 { continueBulkChange(now: now) }
    }

    /// Queues the change behind the changes of earlier calls. No download starts while a change is under way, because the change may cancel
    /// or pause the downloads that would start. If the last change that waits does the same, the new change takes its place.
    private func begin(_ change: BulkChange, now: WallTime) {
        if let last = bulkChanges.last, !last.hasBegun, last.isSame(as: change) {
            var joint = change
            joint.calls = last.calls + change.calls
            bulkChanges[bulkChanges.count - 1] = joint
            return
        }
        bulkChanges.append(change)
        if bulkChanges.count == 1 { continueBulkChange(now: now) }
    }

    /// Whether downloads may start: no change is under way, and no CancelAll waits. Members of a batch whose change waits do not start
    /// before this change has reached them (`reachEarly`).
    var bulkChangesAllowStarts: Bool { bulkChanges.first?.hasBegun != true && !bulkChanges.contains(where: \.isCancelAll) }

    /// Applies the waiting changes of its batch to `entry`, which would start now, in their order. Their slices pass over `entry` later.
    ///
    /// - Returns: the number of these changes.
    func reachEarly(_ entry: ScheduledDownload, now: WallTime) -> Int {
        guard hasBulkChanges, let batch = entry.batch else { return 0 }
        var count = 0
        for index in bulkChanges.indices where bulkChanges[index].batch === batch {
            guard bulkChanges[index].early.insert(entry.number).inserted else { continue }
            take(bulkChanges[index].deed, to: entry, now: now)
            count += 1
        }
        return count
    }

    private func continueBulkChange(now: WallTime) {
        var left = sliceSize.portion
        while let change = bulkChanges.first {
            let end = min(change.next + left, change.numbers.count)
            for number in change.numbers[change.next..<end] where !change.early.contains(number) {
                if let entry = entries[number] { take(change.deed, to: entry, now: now) }
            }
            left -= end - change.next
            bulkChanges[0].next = end
            guard end == change.numbers.count else { return }
            bulkChanges.removeFirst()
            if case .cancelAll = change.deed, !bulkChanges.contains(where: \.isCancelAll) {
                set(now: now) { ($0.cancelsThrough, $0.spared) = (nil, []) }
            }
            for call in change.calls { output.appendLast(.bulkChangeEnded(call)) }
            // Downloads may start before the next change begins. The two changes of a removal are one.
            guard case .leaveBatch = bulkChanges.first?.deed else { return }
        }
    }

    private func take(_ deed: BulkChange.Deed, to entry: ScheduledDownload, now: WallTime) {
        switch deed {
        case .retryFailed:
            isRetryingInBulk = true
            if entry.mayRetryFailure { applyOwn(.retry, to: entry, now: now) }
            isRetryingInBulk = false
        case .remove: if entry.state.hasEnded { remove(entry) }
        case .leaveBatch: if entry.state != .committing { leave(entry, now: now) }
        case .take(let event): if !entry.state.hasEnded, entry.state != .committing { applyOwn(event, to: entry, now: now) }
        case .resumePaused: if entry.state == .paused { applyOwn(.resume, to: entry, now: now) }
        case .cancelAll:
            guard !entry.state.hasEnded, entry.state != .committing, !settings.spared.contains(entry.number) else { return }
            applyOwn(.cancel, to: entry, now: now)
        }
    }
}

extension ScheduledDownload {
    /// Whether the download has failed, and its options are known. A row that could not be read has lost its options.
    public var mayRetryFailure: Bool { state.failure.map { $0.name != .storage } ?? false }
}
