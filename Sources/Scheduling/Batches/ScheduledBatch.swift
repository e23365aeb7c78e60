public import DownloadModel

/// One batch in the scheduler.
public final class ScheduledBatch {
    public internal(set) var record: BatchRecord
    /// The members on the list, by their states.
    public internal(set) var counts = MemberCounts()
    /// The row of the batch is on disk.
    public internal(set) var isEntered = false
    /// Whether the batch has left the list: by a call, with its last member, or because its rows could not be saved.
    public internal(set) var isRemoved = false
    /// Removed from the list with its last member, which is private, not by a call.
    public internal(set) var hasLeftByItself = false
    /// A call removed the batch. Members that are being committed leave the list once their commits are over.
    public internal(set) var isLeaving = false
    /// The joint progress of the members that show progress, while one of them is unfinished.
    public internal(set) var progress = ProgressTally()

    init(_ record: BatchRecord) { self.record = record }

    public var number: BatchNumber { record.number }
    public var hasEnded: Bool { counts.remaining == 0 }
    /// The outcomes of all members, including those removed from the list.
    public var outcomes: OutcomeCounts { record.removed + counts.ended }
}

/// Batches. The members are ordinary downloads; this part decides only their joint outcome.
extension Scheduler {
    public func batch(_ number: BatchNumber) -> ScheduledBatch? { batches[number] }

    /// The members on the list, by number.
    public func members(of batch: ScheduledBatch) -> [ScheduledDownload] {
        batch.record.numbers.compactMap { number in entries[number].flatMap { $0.batch === batch ? $0 : nil } }
    }

    /// The members in queue order: unfinished members, then ended members, oldest end first. Omits members whose rows are not on disk yet.
    public func orderedMembers(of batch: ScheduledBatch) -> [DownloadNumber] {
        let all = members(of: batch).filter(\.isEntered)
        let open = all.lazy.filter { !$0.state.hasEnded }.map { ($0.number, -Int64($0.record.options.priority), $0.record.position) }
        let ended = all.lazy.filter(\.state.hasEnded).map { ($0.number, $0.ending) }
        return open.sorted { ($0.1, $0.2, $0.0) < ($1.1, $1.2, $1.0) }.map(\.0) + ended.sorted { $0.1 < $1.1 }.map(\.0)
    }

    // MARK: Adding and removing

    /// Adds a batch whose rows are not on disk yet: the members count, but do not run before `enter`.
    ///
    /// - Precondition: the members' numbers follow the batch's number, and each member names the batch.
    func insert(_ record: BatchRecord, _ members: some Collection<DownloadRecord>) -> (ScheduledBatch, [ScheduledDownload]) {
        var prepared = PreparedMembers()
        for member in members { prepare(member, in: &prepared) }
        return (insert(record, prepared), prepared.entries)
    }

    /// As above, with members that `prepare` made.
    func insert(_ record: BatchRecord, _ members: PreparedMembers) -> ScheduledBatch {
        let batch = ScheduledBatch(record)
        batches[record.number] = batch
        index.count(record, 1)
        index.insert(members.runs)
        for entry in members.entries {
            precondition(entry.record.batch == record.number && record.hasNumber(entry.number), "a member has a number of its batch")
            list(entry)
            count(entry, in: entry.state)
            entry.batch = batch
            batch.counts.insert(entry.state)
        }
        return batch
    }

    /// The rows of `batch` and of `members` are on disk.
    func enter(_ batch: ScheduledBatch, _ members: [ScheduledDownload], now: WallTime) {
        batch.isEntered = true
        entering.remove(batch.number)
        enter(members, now: now)
    }

    /// Gives some members their places in the queue, before `enter` is called with all members.
    func enter(_ members: [ScheduledDownload], of batch: ScheduledBatch, now: WallTime) {
        entering.insert(batch.number)
        for entry in members where !entry.isRemoved && !entry.isEntered { takePlace(entry, now: now) }
    }

    /// The rows of `batch` and of `members` could not be saved: undo the addition.
    func undo(_ batch: ScheduledBatch, _ members: [ScheduledDownload]) {
        var runs = DownloadIndex.Runs()
        for entry in members where !entry.isRemoved {
            runs.append(entry.record)
            forget(entry)
        }
        index.remove(runs)
        // A member may have been the last unfinished download.
        announceAllEnded()
        batch.isRemoved = true
        drop(batch)
    }

    /// Takes `batch` off the list, unless it has left the list.
    private func drop(_ batch: ScheduledBatch) {
        if batches.removeValue(for: batch.number) != nil { index.count(batch.record, -1) }
    }

    /// Restores stored batches. A member whose batch is missing becomes an ordinary download.
    func restore(_ records: [BatchRecord]) {
        for record in records {
            batches[record.number] = ScheduledBatch(record)
            batches[record.number]?.isEntered = true
            index.count(record, 1)
        }
    }

    /// Connects a restored download with its batch.
    func joinBatch(_ entry: ScheduledDownload) {
        guard let number = entry.record.batch else { return }
        guard let batch = batches[number], batch.record.hasNumber(entry.number) else {
            entry.record.batch = nil
            return
        }
        entry.batch = batch
        batch.counts.insert(entry.state)
    }

    /// Removes each batch that has no restored member.
    func dropEmptyBatches() {
        for batch in batches.values where batch.counts.present == 0 {
            drop(batch)
            output.append(.save(.removeBatch(batch.number)))
        }
    }

    /// The ended `entry` was removed from the list. Its outcome still counts. The batch is removed with its last member.
    func leaveBatch(_ entry: ScheduledDownload) {
        guard let batch = entry.batch else { return }
        batch.record.removed.insert(entry.state)
        if entry.state == .finished { batch.record.removedBytes &+= entry.record.total ?? entry.record.received }
        if batch.counts.present > 0 {
            output.append(.save(.putBatch(batch.record)))
            return
        }
        (batch.isRemoved, batch.hasLeftByItself) = (true, entry.hasLeftByItself)
        drop(batch)
        output.append(.save(.removeBatch(batch.number)))
        output.append(.batchRemoved(batch))
    }

    /// Removes a member of a removed batch, cancelled first if it has not ended. Called again once the member's commit is over.
    func leave(_ entry: ScheduledDownload, now: WallTime) {
        if !entry.state.hasEnded { applyOwn(.cancel, to: entry, now: now) }
        if entry.state.hasEnded, !entry.isRemoved { remove(entry) }
    }
}
