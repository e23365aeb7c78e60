import DownloadModel
import Scheduling
import Testing

/// A record of an earlier process.
private func record(_ number: UInt64, _ state: DownloadState = .queued, _ change: (inout DownloadRecord) -> Void = { _ in })
    -> DownloadRecord
{
    Desk.record(number, state: state) {
        if state.hasEnded { $0.endedAt = Desk.start }
        change(&$0)
    }
}

private func member(_ number: UInt64, _ state: DownloadState = .queued, _ change: (inout DownloadRecord) -> Void = { _ in })
    -> DownloadRecord
{
    record(number, state) {
        $0.batch = BatchNumber(1)
        change(&$0)
    }
}

/// How a download ends.
private enum End: CaseIterable {
    case committed, skipped, failed, expired, crashed, nameTaken, unchanged, cancelled, cancelledInPause

    /// The state in which the download is restored.
    var state: DownloadState {
        switch self {
        case .committed, .skipped: .committing
        case .cancelledInPause: .paused
        default: .queued
        }
    }

    var owesToast: Bool {
        switch self {
        case .committed, .skipped, .failed, .expired, .crashed, .nameTaken: true
        case .unchanged, .cancelled, .cancelledInPause: false
        }
    }

    func end(_ number: UInt64, _ desk: Desk) throws {
        let entry = desk[number]
        switch self {
        case .committed: desk.committed(entry, path: "/d/f")
        case .skipped: desk.committed(entry, path: "/d/f", skipped: true)
        case .failed: desk.fails(entry, failure)
        case .expired: desk.wait(.zero)
        case .crashed: desk.crashed(entry)
        case .nameTaken: desk.ends(entry, .nameTaken(path: "/d/f"))
        case .unchanged:
            let stamp = FileStamp(identity: FileIdentity(device: 1, inode: 2, mount: 3, boot: "b"), size: 1, modified: 1)
            desk.ends(entry, .unchanged(CachedCopy(key: entry.record.copyKey, name: "f", stamp: stamp, validators: nil)))
        case .cancelled, .cancelledInPause: try desk.steer(entry, .cancel)
        }
        #expect(entry.state.hasEnded)
    }

    /// Prepares the record for this end.
    func prepare(_ record: inout DownloadRecord) {
        if self == .expired { record.options.deadline = .zero }
        if self == .nameTaken || self == .skipped { record.options.ifExists = .skip }
    }
}

extension Desk {
    /// The download fails for good.
    fileprivate func fail(_ number: UInt64) { fails(self[number], failure) }

    /// The number of rows written so far.
    fileprivate var writes: Int { history.saves.count }

    /// Whether each row that first recorded the end of a download owed its toast.
    fileprivate var firstEnds: [DownloadNumber: Bool] {
        Dictionary(history.rows.filter(\.state.hasEnded).map { ($0.number, $0.owesToast) }) { first, _ in first }
    }

    /// The toasts of earlier processes that the last start showed.
    fileprivate var owed: [UInt64] {
        actions.flatMap { action -> [UInt64] in if case .showOwed(let toasts) = action { toasts.map(\.number.value) } else { [] } }
    }

    fileprivate func row(_ number: UInt64) -> DownloadRecord? { rows.downloads[DownloadNumber(number)] }
    fileprivate var batchRow: BatchRecord? { rows.batches[BatchNumber(1)] }
    fileprivate var batch: ScheduledBatch? { scheduler.batch(BatchNumber(1)) }
}

private let failure = DownloadFailure(.network, "No route.")

@Suite struct `The toast of an outcome` {
    @Test(arguments: End.allCases) fileprivate func `is owed by the same row that records the end`(end: End) throws {
        func desk(_ change: (inout DownloadRecord) -> Void = { _ in }) throws -> Desk {
            let desk = Desk([
                record(2, end.state) {
                    end.prepare(&$0)
                    change(&$0)
                }
            ])
            #expect(desk[2].state == (end.state == .queued ? .active : end.state) && desk[2].owedToast == nil)
            try end.end(2, desk)
            return desk
        }
        let plain = try desk()
        #expect(plain.row(2)?.owesToast == end.owesToast && plain.firstEnds == [DownloadNumber(2): end.owesToast])
        #expect(plain[2].owedToast?.end == (end.owesToast ? Desk.start : nil))
        // Neither a download without toasts nor a member of a batch.
        let silent = try desk { $0.options.notify = .never }
        #expect(silent.row(2)?.owesToast == false)
        let batch = Desk([member(2, end.state, end.prepare)], batches: [BatchRecord(number: BatchNumber(1), count: 1)])
        try end.end(2, batch)
        #expect(batch.row(2)?.owesToast == false && batch[2].owedToast == nil)
        #expect(batch.batchRow?.toastOwedSince == (end.owesToast ? Desk.start : nil))
        // The end of the batch is told after its row is saved.
        var saved: WallTime?
        let told = batch.actions.compactMap { action in
            if case .save(.putBatch(let record)) = action { saved = record.toastOwedSince }
            return if case .batchEnded = action { saved } else { WallTime?.none }
        }
        #expect(told == (end.owesToast ? [Desk.start] : []))
        // The debt needs no write of its own.
        #expect(plain.writes == silent.writes)
    }

    @Test func `is not owed for an app in front, nor for a download into an app's own file`() {
        let desk = Desk([record(2) { $0.options.app = "org.example.App" }, record(3)])
        desk.inFront(["org.example.App"])
        for number in [2, 3] as [UInt64] { desk.fail(number) }
        #expect(desk[2].owedToast == nil && desk[3].owedToast != nil)
        let own = Desk([record(2) { ($0.isToDescriptor, $0.directory) = (true, "") }])
        // The restored download has failed, because its descriptor is gone.
        #expect(own[2].owedToast != nil && own.owed == [])
        own.toastSettled(own[2].owedToast!)
        own.restart()
        #expect(own[2].owedToast == nil)
    }

    @Test func `is owed until it is settled, over restarts, and for half a day at most`() {
        let desk = Desk([record(2), record(3), record(4)])
        for number in [3, 4, 2] as [UInt64] {
            desk.fail(number)
            desk.now = desk.now + .seconds(3600)
        }
        let toast = desk[4].owedToast!
        desk.toastSettled(toast)
        let writes = desk.writes
        desk.toastSettled(toast)
        #expect(desk.writes == writes, "it is known already")
        desk.restart()
        #expect(desk.owed == [3, 2], "oldest first, and once")
        desk.restart(after: .seconds(9 * 3600))
        #expect(desk.owed == [3, 2])
        desk.restart(after: .seconds(1))
        #expect(desk.owed == [2] && desk.row(3)?.owesToast == false)
        desk.restart(after: .seconds(-20 * 3600))
        #expect(desk.owed == [2], "the clock was set back")
    }

    @Test func `is not owed for a retried or removed download, and its next end owes a new one`() throws {
        let desk = Desk([record(2), record(3)])
        for number in [2, 3] as [UInt64] { desk.fail(number) }
        let first = desk[2].owedToast!
        try desk.steer(desk[2], .retry)
        #expect(desk.row(2)?.owesToast == false)
        let removed = desk[3]
        try desk.remove(removed)
        #expect(removed.owedToast == nil)
        desk.now = desk.now + .seconds(1)
        desk.crashed(desk[2])
        // The fate of the first toast does not settle the second one.
        desk.toastSettled(first)
        #expect(desk[2].owedToast.map { $0.end == desk.now } == true)
        desk.restart()
        #expect(desk.owed == [2])
    }

    @Test func `of a batch is owed by its row until it is settled, retried or removed`() throws {
        func desk(_ members: [DownloadRecord], _ change: (inout BatchRecord) -> Void = { _ in }) -> Desk {
            var batch = BatchRecord(number: BatchNumber(1), count: UInt32(members.count))
            change(&batch)
            return Desk(members, batches: [batch])
        }
        let one = desk([member(2, .finished), member(3)])
        #expect(one.batch?.owedToast == nil && one.owed == [])
        try one.steer(one[3], .cancel)
        let toast = one.batch!.owedToast!
        one.restart()
        #expect(one.owed == [1])
        try one.steer(one[3], .retry)
        #expect(one.batchRow?.toastOwedSince == nil)
        one.now = one.now + .seconds(5)
        try one.steer(one[3], .cancel)
        one.toastSettled(toast)
        #expect(one.batch?.owedToast?.end == one.now, "another end")
        one.toastSettled(one.batch!.owedToast!)
        one.restart()
        #expect(one.owed == [])

        // All members cancelled, or all files already there: no toast. One member failed: a toast.
        for (state, isFailed) in [(DownloadState.cancelled, false), (.finished, false), (.cancelled, true)] {
            let batch = desk([member(2, state) { $0.isUnchanged = true }, member(3)])
            if isFailed { batch.fail(3) } else { try batch.steer(batch[3], .cancel) }
            #expect((batch.batchRow?.toastOwedSince != nil) == isFailed)
        }
        let silent = desk([member(2)]) { $0.notify = .never }
        silent.fail(2)
        #expect(silent[2].state.hasEnded && silent.batch?.owedToast == nil)
        let leaving = desk([member(2, .finished), member(3)])
        let gone = leaving.batch!
        leaving.remove(gone)
        #expect(gone.owedToast == nil && leaving.rows.batches == [:])
    }

    @Test func `is not owed by a row that cannot owe it`() {
        let desk = Desk(
            [
                record(10, .cancelled) { $0.owesToast = true }, record(11) { $0.owesToast = true },
                record(12, .finished) { ($0.owesToast, $0.endedAt) = (true, nil) },
                record(13, .finished) { ($0.owesToast, $0.isUnchanged) = (true, true) },
                member(2, .finished) { $0.owesToast = true },
                member(3),
            ],
            batches: {
                var batch = BatchRecord(number: BatchNumber(1), count: 2)
                batch.toastOwedSince = Desk.start
                return [batch]
            }())
        #expect(desk.owed == [])
    }
}
