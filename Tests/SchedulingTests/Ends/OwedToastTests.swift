import DownloadModel
import Testing

@testable import Scheduling

private let start = WallTime(microseconds: 1_000_000_000_000_000)

/// A ledger, its rows on disk, and a clock.
private final class OwnDesk {
    private(set) var ledger = Ledger(settings: Settings(), jitter: .fixed(0))
    var now = start
    private(set) var rows: [DownloadNumber: DownloadRecord] = [:]
    private(set) var batches: [BatchNumber: BatchRecord] = [:]
    /// The number of rows written.
    private(set) var writes = 0
    /// Until its toasts are taken.
    private var restored: Restored?

    init(_ records: [DownloadRecord] = [], batches: [BatchRecord] = []) {
        for record in records { rows[record.number] = record }
        for batch in batches { self.batches[batch.number] = batch }
        restart()
    }

    func restart(after pause: Duration = .zero) {
        now = now + pause
        ledger = Ledger(settings: Settings(), jitter: .fixed(0))
        restored = ledger.restore(Array(rows.values), batches: Array(batches.values), sweeps: [:], now: now)
        ledger.schedule(now: now)
    }

    static func record(_ number: UInt64, _ state: DownloadState = .queued, _ change: (inout DownloadRecord) -> Void = { _ in })
        -> DownloadRecord
    {
        var record = DownloadRecord(
            number: DownloadNumber(number), url: "http://h/\(number)", options: DownloadOptions(), directory: "/d", state: state,
            queuedAt: start, position: Int64(number))
        if state.hasEnded { record.endedAt = start }
        change(&record)
        return record
    }

    static func member(_ number: UInt64, _ state: DownloadState = .queued, _ change: (inout DownloadRecord) -> Void = { _ in })
        -> DownloadRecord
    {
        record(number, state) {
            $0.batch = BatchNumber(1)
            change(&$0)
        }
    }

    func entry(_ number: UInt64) -> LedgerEntry { ledger[DownloadNumber(number)]! }

    /// - Returns: whether the state allowed the event.
    func apply(_ event: DownloadEvent, _ number: UInt64) -> Bool {
        do { try ledger.apply(event, to: entry(number), now: now) } catch { return false }
        write()
        return true
    }

    /// Writes all changes to disk.
    func write() {
        while true {
            let actions = ledger.output.take()
            if actions.isEmpty { return }
            for action in actions {
                switch action {
                case .save(let change):
                    writes += 1
                    switch change {
                    case .put(let record):
                        if rows[record.number]?.state.hasEnded == false, record.state.hasEnded {
                            firstEnd[record.number] = record.owesToast
                        }
                        rows[record.number] = record
                    case .remove(let number): rows[number] = nil
                    case .putBatch(let record): batches[record.number] = record
                    case .removeBatch(let number): batches[number] = nil
                    default: break
                    }
                case .batchEnded(let batch, _):
                    #expect(batches[batch.number]?.toastOwedSince == batch.record.toastOwedSince, "told before it is saved")
                case .stopTransfer(let entry): ledger.transferEnded(entry.number, .stopped(nil), now: now)
                case .sweep(let number, _): ledger.swept(number, isGone: true, now: now)
                default: break
                }
            }
        }
    }

    /// Whether the first row with the end of each download owed its toast.
    private(set) var firstEnd: [DownloadNumber: Bool] = [:]

    func owed() -> [UInt64] {
        let all = ledger.dropStale(restored?.owedToasts ?? [], now: now)
        restored = nil
        write()
        return all.map(\.number.value)
    }
}

private let failure = DownloadFailure(.network, "No route.")

@Suite struct `The toast of an outcome` {
    /// Each event that ends a download, and whether the end owes a toast.
    static let ends: [(DownloadState, DownloadEvent, Bool)] = [
        (.committing, .committed, true), (.committing, .skipped, true), (.active, .fail(failure), true), (.active, .expire(failure), true),
        (.active, .interrupt(failure), true), (.active, .skipped, true),
        (.active, .unchanged, false), (.active, .cancel, false), (.paused, .cancel, false),
    ]

    @Test(arguments: ends) func `is owed by the same row that records the end`(
        state: DownloadState, event: DownloadEvent, isOwed: Bool
    ) throws {
        func desk(_ change: (inout DownloadRecord) -> Void = { _ in }) -> OwnDesk {
            let desk = OwnDesk([OwnDesk.record(2, state == .active ? .queued : state, change)])
            #expect(desk.entry(2).state == state && desk.entry(2).owedToast == nil)
            #expect(desk.apply(event, 2))
            return desk
        }
        let plain = desk()
        #expect(plain.rows[DownloadNumber(2)]?.owesToast == isOwed && plain.firstEnd == [DownloadNumber(2): isOwed])
        #expect(plain.entry(2).owedToast?.end == (isOwed ? start : nil))
        // Neither a download without toasts nor a member of a batch.
        #expect(desk { $0.options.notify = .never }.rows[DownloadNumber(2)]?.owesToast == false)
        let member = OwnDesk(
            [OwnDesk.member(2, state == .active ? .queued : state)], batches: [BatchRecord(number: BatchNumber(1), count: 1)])
        #expect(member.apply(event, 2))
        #expect(member.rows[DownloadNumber(2)]?.owesToast == false && member.entry(2).owedToast == nil)
        #expect(member.batches[BatchNumber(1)]?.toastOwedSince == (isOwed ? start : nil))
        // The debt needs no write of its own.
        let silent = desk { $0.options.notify = .never }
        #expect(plain.writes == silent.writes)
    }

    @Test func `is not owed for an app in front, nor for a download into an app's own file`() {
        let desk = OwnDesk([OwnDesk.record(2) { $0.options.app = "org.example.App" }, OwnDesk.record(3)])
        desk.ledger.conditions.appsInFront = ["org.example.App"]
        for number in [2, 3] as [UInt64] { #expect(desk.apply(.fail(failure), number)) }
        #expect(desk.entry(2).owedToast == nil && desk.entry(3).owedToast != nil)
        let own = OwnDesk([OwnDesk.record(2) { ($0.isToDescriptor, $0.directory) = (true, "") }])
        // The restored download has failed, because its descriptor is gone.
        #expect(own.entry(2).owedToast != nil && own.owed() == [])
        own.ledger.settle(own.entry(2).owedToast!)
        own.write()
        own.restart()
        #expect(own.entry(2).owedToast == nil)
    }

    @Test func `is owed until it is settled, over restarts, and for half a day at most`() {
        let desk = OwnDesk([OwnDesk.record(2), OwnDesk.record(3), OwnDesk.record(4)])
        for number in [3, 4, 2] as [UInt64] {
            #expect(desk.apply(.fail(failure), number))
            desk.now = desk.now + .seconds(3600)
        }
        let toast = desk.entry(4).owedToast!
        desk.ledger.settle(toast)
        desk.write()
        let writes = desk.writes
        desk.ledger.settle(toast)
        desk.write()
        #expect(desk.writes == writes, "it is known already")
        desk.restart()
        #expect(desk.owed() == [3, 2] && desk.owed() == [], "oldest first, and once")
        desk.restart(after: .seconds(9 * 3600))
        #expect(desk.owed() == [3, 2])
        desk.restart(after: .seconds(1))
        #expect(desk.owed() == [2] && desk.rows[DownloadNumber(3)]?.owesToast == false)
        desk.restart(after: .seconds(-20 * 3600))
        #expect(desk.owed() == [2], "the clock was set back")
    }

    @Test func `is not owed for a retried or removed download, and its next end owes a new one`() {
        let desk = OwnDesk([OwnDesk.record(2), OwnDesk.record(3)])
        for number in [2, 3] as [UInt64] { #expect(desk.apply(.fail(failure), number)) }
        let first = desk.entry(2).owedToast!
        #expect(desk.apply(.retry, 2) && desk.rows[DownloadNumber(2)]?.owesToast == false)
        let removed = desk.entry(3)
        desk.ledger.remove(removed, now: desk.now)
        #expect(removed.owedToast == nil)
        desk.now = desk.now + .seconds(1)
        #expect(desk.apply(.interrupt(failure), 2))
        // The fate of the first toast does not settle the second one.
        desk.ledger.settle(first)
        #expect(desk.entry(2).owedToast.map { $0.end == desk.now } == true)
        desk.restart()
        #expect(desk.owed() == [2])
    }

    @Test func `of a batch is owed by its row until it is settled, retried or removed`() {
        func desk(_ members: [DownloadRecord], _ change: (inout BatchRecord) -> Void = { _ in }) -> OwnDesk {
            var batch = BatchRecord(number: BatchNumber(1), count: UInt32(members.count))
            change(&batch)
            return OwnDesk(members, batches: [batch])
        }
        let one = desk([OwnDesk.member(2, .finished), OwnDesk.member(3)])
        #expect(one.ledger.batch(BatchNumber(1))?.owedToast == nil && one.owed() == [])
        #expect(one.apply(.cancel, 3))
        let toast = one.ledger.batch(BatchNumber(1))!.owedToast!
        one.restart()
        #expect(one.owed() == [1])
        #expect(one.apply(.retry, 3))
        #expect(one.batches[BatchNumber(1)]?.toastOwedSince == nil)
        one.now = one.now + .seconds(5)
        #expect(one.apply(.cancel, 3))
        one.ledger.settle(toast)
        #expect(one.ledger.batch(BatchNumber(1))?.owedToast?.end == one.now, "another end")
        one.ledger.settle(one.ledger.batch(BatchNumber(1))!.owedToast!)
        one.write()
        one.restart()
        #expect(one.owed() == [])

        // All members cancelled, or all files already there: no toast. One member failed: a toast.
        for (state, event, isOwed) in [
            (DownloadState.cancelled, DownloadEvent.cancel, false), (.finished, .cancel, false), (.cancelled, .fail(failure), true),
        ] {
            let batch = desk([OwnDesk.member(2, state) { $0.isUnchanged = true }, OwnDesk.member(3)])
            #expect(batch.apply(event, 3))
            #expect((batch.batches[BatchNumber(1)]?.toastOwedSince != nil) == isOwed)
        }
        let silent = desk([OwnDesk.member(2)]) { $0.notify = .never }
        #expect(silent.apply(.fail(failure), 2) && silent.ledger.batch(BatchNumber(1))?.owedToast == nil)
        let leaving = desk([OwnDesk.member(2, .finished), OwnDesk.member(3)])
        let gone = leaving.ledger.batch(BatchNumber(1))!
        leaving.ledger.remove(gone, now: start)
        leaving.write()
        #expect(gone.owedToast == nil && leaving.batches == [:])
    }

    @Test func `is not owed by a row that cannot owe it`() {
        let desk = OwnDesk(
            [
                OwnDesk.record(10, .cancelled) { $0.owesToast = true }, OwnDesk.record(11) { $0.owesToast = true },
                OwnDesk.record(12, .finished) { ($0.owesToast, $0.endedAt) = (true, nil) },
                OwnDesk.record(13, .finished) { ($0.owesToast, $0.isUnchanged) = (true, true) },
                OwnDesk.member(2, .finished) { $0.owesToast = true },
                OwnDesk.member(3),
            ],
            batches: {
                var batch = BatchRecord(number: BatchNumber(1), count: 2)
                batch.toastOwedSince = start
                return [batch]
            }())
        #expect(desk.owed() == [])
    }
}
