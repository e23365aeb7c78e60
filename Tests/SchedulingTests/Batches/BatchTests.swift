internal import DownloadModel
internal import Testing

@testable import Scheduling

private let now = WallTime(microseconds: 1_000_000_000_000_000)

/// A ledger and the actions that it has left to perform.
private final class OwnDesk {
    let ledger: Ledger
    var saved: [StoreChange] = []
    var ends: [OutcomeCounts] = []
    var removed: [BatchNumber] = []
    var order: [String] = []

    init(paused: Bool = false) {
        var settings = Settings()
        settings.maxActive = 2
        ledger = Ledger(settings: settings, jitter: .fixed(0.5))
    }

    func take() {
        for action in ledger.output.take() {
            switch action {
            case .save(let change): saved.append(change)
            case .announceEnd(let entry): order.append("end \(entry.number)")
            case .batchEnded(let batch, let outcomes):
                ends.append(outcomes)
                order.append("batch \(batch.number)")
            case .allEnded: order.append("all")
            case .removed(let entry): order.append("removed \(entry.number)")
            case .batchRemoved(let batch):
                removed.append(batch.number)
                order.append("batch removed")
            default: break
            }
        }
    }

    func add(_ number: UInt64, _ count: Int, enter: Bool = true) -> (LedgerBatch, [LedgerEntry]) {
        let members = (1...UInt64(count)).map { index in
            var record = DownloadRecord(
                number: DownloadNumber(number + index), url: "http://h/\(index)", options: DownloadOptions(), directory: "/d",
                state: .queued,
                queuedAt: now, position: DownloadQueue.position(of: DownloadNumber(number + index)))
            record.batch = BatchNumber(number)
            return record
        }
        let (batch, entries) = ledger.insert(BatchRecord(number: BatchNumber(number), count: UInt32(count)), members)
        if enter { ledger.enter(batch, entries, now: now) }
        take()
        return (batch, entries)
    }

    /// The transfer fails for good.
    func fail(_ entry: LedgerEntry) {
        ledger.transferEnded(
            entry.number, .failed(DownloadFailure(.httpStatus, "404", httpStatus: 404), madeProgress: false, nil), now: now)
        take()
    }

    /// Completes the download up to its commit.
    func verify(_ entry: LedgerEntry) {
        let identity = FileIdentity(device: 1, inode: entry.number.value, mount: 1, boot: "b")
        ledger.transferBegan(entry, fileName: "f", mediaType: nil, total: 10, offset: 0, now: now)
        ledger.transferEnded(
            entry.number, .complete(size: 10, fileName: "f", ResumeData(written: 10, total: 10, validator: nil, identity: identity)),
            now: now)
        ledger.verified(entry, identity: identity, now: now)
        take()
    }

    func finish(_ entry: LedgerEntry) {
        verify(entry)
        ledger.committed(entry, path: "/d/f\(entry.number)", skipped: false, now: now)
        take()
    }
}

@Suite struct `A batch in the ledger` {
    @Test func `starts nothing before it is on disk, and then as much as may run`() {
        let desk = OwnDesk()
        let (batch, entries) = desk.add(1, 5, enter: false)
        desk.ledger.schedule(now: now)
        #expect(desk.ledger.counts.active == 0 && batch.remaining == 5 && !batch.hasEnded)
        desk.ledger.enter(batch, entries, now: now)
        #expect(desk.ledger.counts.active == 2)
        #expect(desk.ledger.orderedMembers(of: batch).map(\.value) == [2, 3, 4, 5, 6])
    }

    @Test func `leaves no trace if it could not be saved`() {
        let desk = OwnDesk()
        let (batch, entries) = desk.add(1, 5, enter: false)
        desk.ledger.undo(batch, entries, now: now)
        desk.take()
        #expect(desk.ledger.entries.isEmpty && desk.ledger.batches.isEmpty && desk.ledger.counts == StateCounts())
        #expect(desk.saved == [])
    }

    @Test func `ends with its last member, before AllEnded, and again where one is retried`() throws {
        let desk = OwnDesk()
        let (batch, entries) = desk.add(1, 2)
        desk.fail(entries[1])
        #expect(desk.ends == [] && batch.remaining == 1)
        desk.finish(entries[0])
        #expect(desk.ends == [OutcomeCounts(finished: 1, failed: 1)] && batch.hasEnded)
        #expect(desk.order == ["end 3", "end 2", "batch 1", "all"])
        try desk.ledger.apply(.retry, to: entries[1], now: now)
        desk.ledger.schedule(now: now)
        #expect(batch.remaining == 1 && batch.outcomes == OutcomeCounts(finished: 1))
        desk.take()
        desk.finish(entries[1])
        #expect(desk.ends.last == OutcomeCounts(finished: 2))
    }

    @Test func `counts removed members, saves the counts with each removal, and is removed with the last`() {
        let desk = OwnDesk()
        let (batch, entries) = desk.add(1, 3)
        desk.finish(entries[0])
        desk.fail(entries[1])
        desk.saved = []
        desk.ledger.remove(entries[0], now: now)
        desk.take()
        var kept = BatchRecord(number: BatchNumber(1), count: 3)
        (kept.removed, kept.removedBytes) = (OutcomeCounts(finished: 1), 10)
        #expect(desk.saved == [.remove(entries[0].number), .putBatch(kept)])
        #expect(batch.outcomes == OutcomeCounts(finished: 1, failed: 1) && batch.remaining == 1)
        desk.ledger.remove(entries[1], now: now)
        try? desk.ledger.apply(.cancel, to: entries[2], now: now)
        desk.ledger.remove(entries[2], now: now)
        desk.take()
        #expect(desk.ends == [OutcomeCounts(finished: 1, failed: 1, cancelled: 1)] && desk.removed == [BatchNumber(1)])
        #expect(desk.saved.contains(.removeBatch(BatchNumber(1))) && desk.ledger.batches.isEmpty && batch.isRemoved)
    }

    @Test func `is removed once a member's commit has succeeded`() {
        let desk = OwnDesk()
        let (batch, entries) = desk.add(1, 3)
        desk.verify(entries[0])
        #expect(entries[0].state == .committing)
        desk.order = []
        desk.ledger.remove(batch, now: now)
        desk.take()
        #expect(desk.order == ["end 3", "end 4", "removed 3", "removed 4"] && !batch.isRemoved && batch.remaining == 1)
        // If the service were killed now, the row of the batch would count the removed members.
        #expect(desk.saved.contains(.putBatch(batch.record)) && batch.record.removed == OutcomeCounts(cancelled: 2))
        desk.ledger.committed(entries[0], path: "/d/f", skipped: false, now: now)
        desk.take()
        #expect(desk.order[4...] == ["end 2", "batch 1", "all", "removed 2", "batch removed"])
        #expect(desk.ends == [OutcomeCounts(finished: 1, cancelled: 2)] && batch.isRemoved && desk.ledger.entries.isEmpty)
    }

    @Test func `starts no member before all members have their places`() {
        let desk = OwnDesk()
        let (batch, entries) = desk.add(1, 3, enter: false)
        desk.ledger.enter([entries[0], entries[1]], of: batch, now: now)
        desk.ledger.schedule(now: now)
        #expect(entries.map(\.isEntered) == [true, true, false] && desk.ledger.counts.active == 0 && !batch.isEntered)
        desk.ledger.enter(batch, entries, now: now)
        #expect(entries.map(\.state) == [.active, .active, .queued] && batch.isEntered)
        #expect(desk.ledger.orderedMembers(of: batch) == entries.map(\.number))
    }

    /// The Resume had no effect on downloads that only PauseAll held. So after ResumeAll, none of these defies the missing network.
    @Test func `is resumed under PauseAll as of the call, though ResumeAll comes before its slices`() throws {
        let desk = OwnDesk()
        let (batch, entries) = desk.add(1, 3)
        try desk.ledger.apply(.pause, to: entries[2], now: now)
        desk.ledger.pauseAll(now: now)
        desk.ledger.network(NetworkCondition(reach: .captive), now: now)
        desk.ledger.sliceSize.portion = 1
        desk.ledger.apply(.resume, to: batch, now: now)
        desk.ledger.resumeAll(now: now)
        while desk.ledger.hasSlices { desk.ledger.continueSlices(now: now) }
        #expect(entries.map(\.state) == [DownloadState](repeating: .waiting(.offline, until: nil), count: 3))
    }

    @Test func `is removed with a member that was retried meanwhile`() throws {
        let desk = OwnDesk()
        let (batch, entries) = desk.add(1, 3)
        desk.ledger.sliceSize.portion = 1
        desk.ledger.remove(batch, now: now)
        #expect(entries[0].state == .cancelled && entries[2].state == .queued)
        try desk.ledger.apply(.retry, to: entries[0], now: now)
        while desk.ledger.hasSlices { desk.ledger.continueSlices(now: now) }
        desk.take()
        #expect(batch.isRemoved && desk.ledger.entries.isEmpty && desk.removed == [BatchNumber(1)])
    }

    @Test func `is removed if a member's commit has failed`() {
        for failure in [DownloadFailure(.alreadyExists, "taken"), DownloadFailure(.permissionDenied, "gone", wait: .destination)] {
            let desk = OwnDesk()
            let (batch, entries) = desk.add(1, 1)
            desk.verify(entries[0])
            desk.ledger.remove(batch, now: now)
            desk.ledger.endingFailed(entries[0], failure, now: now)
            desk.take()
            #expect(batch.isRemoved && desk.ledger.entries.isEmpty && desk.removed == [BatchNumber(1)])
        }
    }

    @Test func `is restored with its members only`() {
        let desk = OwnDesk()
        let (_, entries) = desk.add(1, 3)
        desk.finish(entries[0])
        desk.ledger.remove(entries[0], now: now)
        desk.fail(entries[1])
        var records: [DownloadNumber: DownloadRecord] = [:]
        for change in desk.ledger.allRows { if case .put(let record) = change { records[record.number] = record } }
        let batches = desk.ledger.allRows.compactMap { change in if case .putBatch(let record) = change { record } else { nil } }
        var stray = records[entries[2].number]!
        stray.batch = BatchNumber(77)
        let next = OwnDesk()
        next.ledger.restore(
            Array(records.values), batches: batches + [BatchRecord(number: BatchNumber(50), count: 4)], sweeps: [:], now: now)
        next.take()
        let batch = next.ledger.batch(BatchNumber(1))
        #expect(batch?.remaining == 1 && batch?.outcomes == OutcomeCounts(finished: 1, failed: 1))
        #expect(batch.map { next.ledger.members(of: $0).map(\.number.value) } == [3, 4])
        // A batch without members is removed, and a member of an unknown batch loses its batch.
        #expect(next.ledger.batches.count == 1 && next.saved.contains(.removeBatch(BatchNumber(50))))
        let another = OwnDesk()
        another.ledger.restore([stray], batches: [], sweeps: [:], now: now)
        #expect(another.ledger[stray.number]?.record.batch == nil)
    }

    @Test func `is in a new database with all members while they take their places`() {
        let desk = OwnDesk()
        let (batch, entries) = desk.add(1, 2000, enter: false)
        desk.ledger.enter(Array(entries.prefix(7)), of: batch, now: now)
        let rows = desk.ledger.allRows
        #expect(rows.compactMap { if case .put(let record) = $0 { record.number } else { nil } } == entries.map(\.number))
        #expect(rows.contains(.putBatch(batch.record)))
    }

    @Test func `with an impossible row has at most 10,000 members`() {
        let desk = OwnDesk()
        #expect(BatchRecord(number: BatchNumber(UInt64.max - 5), count: .max).numbers.count == 10_000)
        desk.ledger.restore([], batches: [BatchRecord(number: BatchNumber(.max), count: .max)], sweeps: [:], now: now)
        #expect(desk.ledger.batches.isEmpty)
    }
}
