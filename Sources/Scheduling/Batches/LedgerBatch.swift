public import DownloadModel

/// One batch in the ledger.
public final class LedgerBatch {
    public internal(set) var record: BatchRecord
    /// How many of it have not ended.
    public internal(set) var remaining: UInt32 = 0
    /// How many of it run, or start without anybody's doing as soon as their turn comes.
    public private(set) var underWay: UInt32 = 0
    /// How many of it are paused, or wait for somebody.
    public private(set) var resting: UInt32 = 0
    /// Its row is on disk.
    public internal(set) var isEntered = false
    /// Off the list: it was removed, or its last member was.
    public internal(set) var isRemoved = false
    /// To be taken off the list as soon as the members that are being given their names have ended.
    public var isLeaving = false
    /// How many of it are on the list, and what of them ended in what.
    var present: UInt32 = 0
    /// Of those of it that show progress, while one has not ended.
    public internal(set) var progress = ProgressTally()
    private var ended = OutcomeCounts()

    init(_ record: BatchRecord) { self.record = record }

    public var number: BatchNumber { record.number }
    public var hasEnded: Bool { remaining == 0 }
    /// What its members ended in, those included that are off the list.
    public var outcomes: OutcomeCounts { record.removed + ended }

    func insert(_ state: DownloadState) {
        present += 1
        count(state)
    }

    /// A member is taken off the list.
    func forget(_ state: DownloadState) {
        present -= 1
        uncount(state)
    }

    func move(from before: DownloadState, to next: DownloadState) {
        uncount(before)
        count(next)
    }

    private func count(_ state: DownloadState) {
        if state.hasEnded { ended.insert(state) } else { remaining += 1 }
        if state.isUnderWay { underWay += 1 }
        if state.rests { resting += 1 }
    }

    private func uncount(_ state: DownloadState) {
        if state.hasEnded { ended.remove(state) } else { remaining -= 1 }
        if state.isUnderWay { underWay -= 1 }
        if state.rests { resting -= 1 }
    }
}

/// Batches: their members are downloads like any other; what is decided here is what they come to together.
extension Ledger {
    public func batch(_ number: BatchNumber) -> LedgerBatch? { batches[number] }

    /// The members that are on the list, in the order of their numbers.
    public func members(of batch: LedgerBatch) -> [LedgerEntry] {
        batch.record.numbers.compactMap { number in entries[number].flatMap { $0.batch === batch ? $0 : nil } }
    }

    /// The same in queue order: what has not ended, then what has, oldest first. What is not on disk yet is not in it.
    public func orderedMembers(of batch: LedgerBatch) -> [DownloadNumber] {
        let all = members(of: batch).filter(\.isEntered)
        let open = all.lazy.filter { !$0.state.hasEnded }.map { ($0.number, -Int64($0.record.options.priority), $0.record.position) }
        let ended = all.lazy.filter(\.state.hasEnded).map { ($0.number, $0.ending) }
        return open.sorted { ($0.1, $0.2, $0.0) < ($1.1, $1.2, $1.0) }.map(\.0) + ended.sorted { $0.1 < $1.1 }.map(\.0)
    }

    // MARK: Coming and going

    /// Takes in a batch whose rows are not on disk yet: it counts, but does not run before `enter`.
    ///
    /// - Precondition: the members' numbers are those that follow the batch's, and each names the batch.
    func insert(_ record: BatchRecord, _ members: some Collection<DownloadRecord>) -> (LedgerBatch, [LedgerEntry]) {
        let prepared = members.map { prepare($0) }
        return (insert(record, prepared), prepared)
    }

    /// The same of members that `prepare` has made.
    func insert(_ record: BatchRecord, _ members: [LedgerEntry]) -> LedgerBatch {
        let batch = LedgerBatch(record)
        batches[record.number] = batch
        index.insert(members)
        for entry in members {
            precondition(entry.record.batch == record.number && record.hasNumber(entry.number), "a member has a number of its batch")
            list(entry)
            count(entry, in: entry.state)
            entry.batch = batch
            batch.insert(entry.state)
        }
        return batch
    }

    /// The rows of `batch` and of `members` are on disk.
    func enter(_ batch: LedgerBatch, _ members: [LedgerEntry], now: WallTime) {
        batch.isEntered = true
        entering.remove(batch.number)
        enter(members, now: now)
    }

    /// Some of the members take their places before `enter` is called with all.
    func enter(_ members: [LedgerEntry], of batch: LedgerBatch, now: WallTime) {
        entering.insert(batch.number)
        for entry in members where !entry.isRemoved && !entry.isEntered { takePlace(entry, now: now) }
    }

    /// The rows of `batch` and of `members` could not be saved: they never were.
    func undo(_ batch: LedgerBatch, _ members: [LedgerEntry], now: WallTime) {
        for entry in members where !entry.isRemoved { undo(entry, now: now) }
        batch.isRemoved = true
        batches[batch.number] = nil
    }

    /// Restores what the store held. A member whose batch is not there is a download like any other.
    func restore(_ records: [BatchRecord]) {
        for record in records {
            batches[record.number] = LedgerBatch(record)
            batches[record.number]?.isEntered = true
        }
    }

    /// Gives a restored download its batch.
    func joinBatch(_ entry: LedgerEntry) {
        guard let number = entry.record.batch else { return }
        guard let batch = batches[number], batch.record.hasNumber(entry.number) else {
            entry.record.batch = nil
            return
        }
        entry.batch = batch
        batch.insert(entry.state)
    }

    /// Forgets batches of which no member was restored.
    func dropEmptyBatches() {
        for batch in batches.values where batch.present == 0 {
            batches[batch.number] = nil
            actions.append(.save(.removeBatch(batch.number)))
        }
    }

    /// `entry`, which has ended, is off the list: what it ended in still counts, and with the last one the batch goes.
    func leaveBatch(_ entry: LedgerEntry) {
        guard let batch = entry.batch else { return }
        batch.record.removed.insert(entry.state)
        if entry.state == .finished { batch.record.removedBytes &+= entry.record.total ?? entry.record.received }
        if batch.present > 0 {
            actions.append(.save(.putBatch(batch.record)))
            return
        }
        batch.isRemoved = true
        batches[batch.number] = nil
        actions.append(.save(.removeBatch(batch.number)))
        actions.append(.batchRemoved(batch))
    }

    /// A member of a batch that is to go was being given its name, and is not any more.
    func leave(_ entry: LedgerEntry, now: WallTime) {
        if !entry.state.hasEnded { try? apply(.cancel, to: entry, now: now) }
        if entry.state.hasEnded, !entry.isRemoved { remove(entry, now: now) }
    }
}
