internal import DownloadModel
internal import Scheduling
internal import Testing

/// A desk at which two downloads run at a time.
private func makeDesk() -> Desk { Desk { $0.maxActive = 2 } }

extension Desk {
    fileprivate func addBatch(_ number: UInt64, _ count: Int) -> (ScheduledBatch, [ScheduledDownload]) {
        let (batch, entries) = addUnsavedBatch(number, count)
        saved(batch, entries)
        return (batch, entries)
    }

    /// The transfer fails for good.
    fileprivate func fail(_ entry: ScheduledDownload) { fails(entry, DownloadFailure(.httpStatus, "404", httpStatus: 404)) }

    fileprivate func finish(_ entry: ScheduledDownload) {
        bringToCommit(entry)
        committed(entry, path: "/d/f\(entry.number)")
    }

    /// The announced outcomes and removals of batches, so far.
    fileprivate var ends: [OutcomeCounts] { history.compactMap { if case .batchEnded(_, let outcomes) = $0 { outcomes } else { nil } } }
    /// The answered calls that change many downloads, in order.
    fileprivate var answered: [Scheduler.CallNumber] {
        history.compactMap { if case .bulkChangeEnded(let call) = $0 { call } else { nil } }
    }
    fileprivate var removed: [BatchNumber] { history.compactMap { if case .batchRemoved(let batch) = $0 { batch.number } else { nil } } }
}

extension [Scheduler.Action] {
    /// The announced ends and removals.
    fileprivate var announced: [String] {
        compactMap { action in
            switch action {
            case .announceEnd(let entry): "end \(entry.number)"
            case .batchEnded(let batch, _): "batch \(batch.number)"
            case .allEnded: "all"
            case .removed(let entry): "removed \(entry.number)"
            case .batchRemoved(let batch): "batch \(batch.number) removed"
            default: nil
            }
        }
    }
}

@Suite struct `A batch in the scheduler` {
    @Test func `starts nothing before it is on disk, and then as much as may run`() {
        let desk = makeDesk()
        let (batch, entries) = desk.addUnsavedBatch(1, 5)
        #expect(desk.scheduler.counts.active == 0 && batch.counts.remaining == 5 && !batch.hasEnded)
        desk.saved(batch, entries)
        #expect(desk.scheduler.counts.active == 2)
        #expect(desk.scheduler.orderedMembers(of: batch).map(\.value) == [2, 3, 4, 5, 6])
    }

    @Test func `counts the texts of its toast as bytes of its app while it is on the list`() {
        let desk = makeDesk()
        var options = DownloadOptions()
        (options.title, options.body) = (String(repeating: "t", count: 1000), String(repeating: "b", count: 4000))
        func add(_ number: UInt64) -> (ScheduledBatch, [ScheduledDownload]) {
            desk.addUnsavedBatch(
                BatchRecord(number: BatchNumber(number), count: 2, app: "org.example.A", directory: "/d", options: options))
        }
        func bytes() -> Int { desk.scheduler.holdings(of: "org.example.A").bytes }
        let (lost, members) = add(1)
        let held = lost.record.heldBytes
        #expect(held > 3900 && held < 5000 && bytes() == held, "the first KiB is not counted")
        desk.unsaved(lost, members)
        #expect(bytes() == 0)
        for number in [11, 21] as [UInt64] {
            let (batch, members) = add(number)
            desk.saved(batch, members)
        }
        #expect(bytes() == 2 * held)
        desk.restart()
        #expect(bytes() == 2 * held)
        for number in [11, 21] as [UInt64] {
            if let batch = desk.scheduler.batch(BatchNumber(number)) { desk.remove(batch) }
        }
        #expect(bytes() == 0)
    }

    @Test func `leaves no trace if it could not be saved`() {
        let desk = makeDesk()
        let (batch, entries) = desk.addUnsavedBatch(1, 5)
        desk.unsaved(batch, entries)
        #expect(desk.scheduler.entries.isEmpty && desk.scheduler.batches.isEmpty && desk.scheduler.counts == StateCounts())
        #expect(desk.history.saves == [])
    }

    @Test func `ends with its last member, before AllEnded, and again where one is retried`() throws {
        let desk = makeDesk()
        let (batch, entries) = desk.addBatch(1, 2)
        desk.fail(entries[1])
        #expect(desk.ends == [] && batch.counts.remaining == 1)
        desk.finish(entries[0])
        #expect(desk.ends == [OutcomeCounts(finished: 1, failed: 1)] && batch.hasEnded)
        #expect(desk.history.announced == ["end 3", "end 2", "batch 1", "all"])
        try desk.steer(entries[1], .retry)
        #expect(batch.counts.remaining == 1 && batch.outcomes == OutcomeCounts(finished: 1))
        desk.finish(entries[1])
        #expect(desk.ends.last == OutcomeCounts(finished: 2))
    }

    @Test func `counts removed members, saves the counts with each removal, and is removed with the last`() throws {
        let desk = makeDesk()
        let (batch, entries) = desk.addBatch(1, 3)
        desk.finish(entries[0])
        desk.fail(entries[1])
        try desk.remove(entries[0])
        var kept = BatchRecord(number: BatchNumber(1), count: 3)
        (kept.removed, kept.removedBytes) = (OutcomeCounts(finished: 1), 10)
        #expect(desk.actions.saves == [.remove(entries[0].number), .putBatch(kept)])
        #expect(batch.outcomes == OutcomeCounts(finished: 1, failed: 1) && batch.counts.remaining == 1)
        try desk.remove(entries[1])
        try desk.steer(entries[2], .cancel)
        try desk.remove(entries[2])
        #expect(desk.ends == [OutcomeCounts(finished: 1, failed: 1, cancelled: 1)] && desk.removed == [BatchNumber(1)])
        #expect(desk.actions.saves.contains(.removeBatch(BatchNumber(1))) && desk.scheduler.batches.isEmpty && batch.isRemoved)
    }

    @Test func `is removed once a member's commit has succeeded`() {
        let desk = makeDesk()
        let (batch, entries) = desk.addBatch(1, 3)
        desk.bringToCommit(entries[0])
        #expect(entries[0].state == .committing)
        desk.remove(batch)
        #expect(desk.actions.announced == ["end 3", "end 4", "removed 3", "removed 4"] && !batch.isRemoved && batch.counts.remaining == 1)
        // If the service were killed now, the row of the batch would count the removed members.
        #expect(desk.actions.saves.contains(.putBatch(batch.record)) && batch.record.removed == OutcomeCounts(cancelled: 2))
        desk.committed(entries[0], path: "/d/f")
        #expect(desk.actions.announced == ["end 2", "batch 1", "all", "removed 2", "batch 1 removed"])
        #expect(desk.ends == [OutcomeCounts(finished: 1, cancelled: 2)] && batch.isRemoved && desk.scheduler.entries.isEmpty)
    }

    @Test func `starts no member before all members have their places`() {
        let desk = makeDesk()
        let (batch, entries) = desk.addUnsavedBatch(1, 3)
        desk.savedMembers([entries[0], entries[1]], of: batch)
        #expect(entries.map(\.isEntered) == [true, true, false] && desk.scheduler.counts.active == 0 && !batch.isEntered)
        desk.saved(batch, entries)
        #expect(entries.map(\.state) == [.active, .active, .queued] && batch.isEntered)
        #expect(desk.scheduler.orderedMembers(of: batch) == entries.map(\.number))
    }

    /// The Resume had no effect on downloads that only PauseAll held. So after ResumeAll, none of these defies the missing network.
    @Test func `is resumed under PauseAll as of the call, though ResumeAll comes before its slices`() throws {
        let desk = makeDesk()
        let (batch, entries) = desk.addBatch(1, 3)
        try desk.steer(entries[2], .pause)
        desk.pauseAll()
        desk.network(NetworkCondition(reach: .captive))
        desk.scheduler.sliceSize.portion = 1
        desk.steer(batch, .resume)
        desk.resumeAll()
        desk.slices()
        #expect(entries.map(\.state) == [DownloadState](repeating: .waiting(.offline, until: nil), count: 3))
    }

    @Test func `is changed once for two equal calls in succession, and both are answered`() throws {
        let desk = makeDesk()
        let (first, _) = desk.addBatch(1, 3)
        let (second, entries) = desk.addBatch(11, 3)
        desk.scheduler.sliceSize.portion = 1
        try desk.turn([.steerBatch(first, .pause, answering: 1)])
        try desk.turn([.steerBatch(second, .pause, answering: 2)])
        try desk.turn([.steerBatch(second, .pause, answering: 3)])
        var slices = 0
        while desk.scheduler.hasSlices {
            desk.slice()
            slices += 1
        }
        #expect(slices == 5 && desk.answered == [1, 2, 3])
        #expect(entries.allSatisfy { $0.state == .paused })
        // Equal calls with another one between them are not the same.
        try desk.turn([.steerBatch(first, .pause, answering: 4)])
        try desk.turn([.steerBatch(second, .resume, answering: 5)])
        try desk.turn([.steerBatch(second, .pause, answering: 6)])
        try desk.turn([.steerBatch(second, .resume, answering: 7)])
        desk.slices()
        #expect(desk.answered == [1, 2, 3, 4, 5, 6, 7])
        #expect(!entries.contains { $0.state == .paused })
    }

    @Test func `that is changed again and again holds up no other download`() throws {
        let desk = makeDesk()
        let (batch, _) = desk.addBatch(1, 3)
        desk.steer(batch, .pause)
        desk.scheduler.sliceSize.portion = 1
        try desk.turn([.steerBatch(batch, .pause, answering: 1)])
        try desk.turn([.steerBatch(batch, .pause, answering: 2)])
        let other = desk.add(100)
        #expect(other.state == .queued)
        while desk.answered.isEmpty { desk.slice() }
        #expect(other.state == .active && desk.scheduler.hasBulkChanges)
    }

    @Test func `that a waiting call pauses starts no member, and other downloads start before that call is done`() throws {
        let desk = Desk { $0.maxActive = 1 }
        let (first, _) = desk.addBatch(1, 2)
        let (second, entries) = desk.addBatch(11, 2)
        let other = desk.add(100)
        desk.scheduler.sliceSize.portion = 1
        desk.steer(first, .cancel)
        desk.steer(second, .pause)
        desk.slice()
        #expect(entries.map(\.state) == [.paused, .paused] && other.state == .active && desk.started == [2, 100])
        // A call that comes after the one that waits counts, although the slices of that one follow.
        #expect(desk.scheduler.hasBulkChanges)
        try desk.steer(entries[0], .resume)
        desk.slices()
        #expect(entries.map(\.state) == [.queued, .paused])
    }

    /// Nothing starts before ResumeAll has reached all downloads. A caller whose changes never end must not delay that.
    @Test func `that a waiting call pauses does not delay ResumeAll`() {
        let desk = Desk { $0.maxActive = 1 }
        let (first, _) = desk.addBatch(1, 2)
        let (second, entries) = desk.addBatch(11, 2)
        let other = desk.add(100)
        desk.pauseAll()
        (desk.scheduler.sliceSize.portion, desk.scheduler.sliceSize.cost) = (1, 1)
        desk.steer(first, .pause)
        desk.steer(second, .pause)
        desk.resumeAll()
        while desk.scheduler.hasPass { desk.slice() }
        #expect(other.state == .active && desk.scheduler.hasBulkChanges && desk.started == [2, 100])
        desk.slices()
        #expect(entries.map(\.state) == [.paused, .paused] && other.state == .active)
    }

    @Test func `that is being changed is followed by no start while CancelAll waits`() throws {
        let desk = Desk { $0.maxActive = 1 }
        let (batch, _) = desk.addBatch(1, 2)
        let other = desk.add(100)
        desk.scheduler.sliceSize.portion = 1
        desk.steer(batch, .pause)
        try desk.turn([.cancelAll(answering: 1)])
        desk.slices()
        #expect(other.state == .cancelled && desk.started == [2] && desk.answered == [1])
    }

    /// The slices of the retry come after CancelAll, and its call came before.
    @Test func `that is being retried is cancelled by a later CancelAll, but not a member that is retried after that call`() throws {
        let desk = makeDesk()
        let (batch, entries) = desk.addBatch(1, 4)
        for entry in entries { desk.fail(entry) }
        let other = desk.add(100)
        #expect(entries.allSatisfy { $0.state.name == "failed" } && other.state == .active)
        desk.scheduler.sliceSize.portion = 1
        try desk.turn([.retryBatch(batch, answering: 1)])
        try desk.turn([.cancelAll(answering: 2)])
        #expect(entries[1].state.name == "failed", "the first slice has retried one member")
        try desk.steer(entries[3], .retry)
        desk.slices()
        #expect((entries[..<3] + [other]).allSatisfy { $0.state == .cancelled }, "\(entries.map(\.state))")
        #expect(entries[3].state == .active && desk.answered == [1, 2])
        #expect(desk.scheduler.settings.cancelsThrough == nil && desk.scheduler.settings.spared.isEmpty)
    }

    @Test func `cancels after a restart what the retry before CancelAll had queued again`() throws {
        let desk = makeDesk()
        let (batch, entries) = desk.addBatch(1, 3)
        for entry in entries { desk.fail(entry) }
        desk.scheduler.sliceSize.portion = 1
        try desk.turn([.retryBatch(batch, answering: 1)])
        try desk.turn([.cancelAll(answering: 2)])
        desk.slice()
        #expect(entries.map(\.state.hasEnded) == [false, false, true] && desk.scheduler.settings.spared.isEmpty)
        desk.restart()
        desk.slices()
        #expect((2...4).map { desk.state($0).name } == ["cancelled", "cancelled", "failed"])
    }

    @Test func `is removed with a member that was retried meanwhile`() throws {
        let desk = makeDesk()
        let (batch, entries) = desk.addBatch(1, 3)
        desk.scheduler.sliceSize.portion = 1
        desk.remove(batch)
        #expect(entries[0].state == .cancelled && entries[2].state == .queued)
        try desk.steer(entries[0], .retry)
        desk.slices()
        #expect(batch.isRemoved && desk.scheduler.entries.isEmpty && desk.removed == [BatchNumber(1)])
    }

    @Test func `is removed if a member's commit has failed`() {
        for failure in [DownloadFailure(.alreadyExists, "taken"), DownloadFailure(.permissionDenied, "gone", wait: .destination)] {
            let desk = makeDesk()
            let (batch, entries) = desk.addBatch(1, 1)
            desk.bringToCommit(entries[0])
            desk.remove(batch)
            desk.endingFailed(entries[0], failure)
            #expect(batch.isRemoved && desk.scheduler.entries.isEmpty && desk.removed == [BatchNumber(1)])
        }
    }

    @Test func `is restored with its members only`() throws {
        let desk = makeDesk()
        let (_, entries) = desk.addBatch(1, 3)
        desk.finish(entries[0])
        try desk.remove(entries[0])
        desk.fail(entries[1])
        var records: [DownloadNumber: DownloadRecord] = [:]
        for change in desk.scheduler.allRows { if case .put(let record) = change { records[record.number] = record } }
        let batches = desk.scheduler.allRows.compactMap { change in if case .putBatch(let record) = change { record } else { nil } }
        var stray = records[entries[2].number]!
        stray.batch = BatchNumber(77)
        let next = Desk(Array(records.values), batches: batches + [BatchRecord(number: BatchNumber(50), count: 4)])
        let batch = next.scheduler.batch(BatchNumber(1))
        #expect(batch?.counts.remaining == 1 && batch?.outcomes == OutcomeCounts(finished: 1, failed: 1))
        #expect(batch.map { next.scheduler.members(of: $0).map(\.number.value) } == [3, 4])
        // A batch without members is removed, and a member of an unknown batch loses its batch.
        #expect(next.scheduler.batches.count == 1 && next.actions.saves.contains(.removeBatch(BatchNumber(50))))
        let another = Desk([stray])
        #expect(another.scheduler[stray.number]?.record.batch == nil)
    }

    @Test func `is in a new database with all members while they take their places`() {
        let desk = makeDesk()
        let (batch, entries) = desk.addUnsavedBatch(1, 2000)
        desk.savedMembers(Array(entries.prefix(7)), of: batch)
        let rows = desk.scheduler.allRows
        #expect(rows.compactMap { if case .put(let record) = $0 { record.number } else { nil } } == entries.map(\.number))
        #expect(rows.contains(.putBatch(batch.record)))
    }

    @Test func `with an impossible row has at most 10,000 members`() {
        #expect(BatchRecord(number: BatchNumber(UInt64.max - 5), count: .max).numbers.count == 10_000)
        let desk = Desk(batches: [BatchRecord(number: BatchNumber(.max), count: .max)])
        #expect(desk.scheduler.batches.isEmpty)
    }
}
