import DownloadModel
import Testing

@testable import Scheduling

/// A ledger with one download whose owner must be called; `calls` makes the calls as the service does.
private struct OwnDesk {
    private(set) var ledger: Ledger
    private(set) var now = WallTime(microseconds: 1_000_000_000_000_000)
    /// The row on disk.
    var row: DownloadRecord
    let begin: WallTime

    init(_ state: DownloadState = .active, activate: String? = "org.example.App") {
        var options = DownloadOptions()
        options.activate = activate
        row = DownloadRecord(
            number: DownloadNumber(1), url: "http://h/1", options: options, directory: "/d", state: state, queuedAt: now, position: 1)
        begin = now
        ledger = Ledger(settings: Settings(), jitter: .fixed(0))
        restart()
    }

    var entry: LedgerEntry { ledger[DownloadNumber(1)]! }

    mutating func restart(after pause: Duration = .zero) {
        now = now + pause
        ledger = Ledger(settings: Settings(), jitter: .fixed(0))
        ledger.restore([row], sweeps: [:], now: now)
        ledger.schedule(now: now)
    }

    mutating func end() throws { try ledger.apply(.cancel, to: entry, now: now) }

    /// Performs the actions, and makes the due calls.
    ///
    /// - Returns: the number of calls.
    mutating func calls() -> Int {
        var count = 0
        while true {
            let actions = ledger.output.take()
            if actions.isEmpty { return count }
            for action in actions {
                switch action {
                case .save(.put(let record)): row = record
                case .callOwner(let entry): if ledger.takeOwnerCall(entry, now: now) { count += 1 }
                case .stopTransfer(let entry): ledger.transferEnded(entry.number, .stopped(nil), now: now)
                case .sweep(let number, _): ledger.swept(number, isGone: true, now: now)
                default: break
                }
            }
        }
    }

    /// The service dies after it has saved its changes and before it calls.
    mutating func save() {
        for action in ledger.output.take() { if case .save(.put(let record)) = action { row = record } }
    }

    mutating func pass(_ time: Duration) {
        now = now + time
        ledger.tick(now: now)
    }

    mutating func jump(_ delta: Duration) {
        now = now + delta
        ledger.clockJumped(by: delta, now: now)
    }

    /// The time until the ledger is due without an event, in seconds.
    var wait: Int64? { ledger.nextWake.map { ($0 - now).components.seconds } }
}

@Suite struct `An owner` {
    @Test func `is called at the end, and again after 1, 10 and 60 minutes`() throws {
        var desk = OwnDesk()
        #expect(desk.calls() == 0)
        try desk.end()
        #expect(desk.ledger.nextWake == nil, "the call is on its way")
        #expect(desk.calls() == 1)
        var at: [Int64] = []
        while let wait = desk.wait {
            desk.pass(.seconds(wait))
            #expect(desk.calls() == 1)
            at.append((desk.now - desk.begin).components.seconds)
        }
        #expect(at == [60, 600, 3600])
        #expect(!desk.ledger.hasWork && desk.row.activations == 4)
    }

    @Test func `is called at each startup for seven days, and its schedule continues`() throws {
        var desk = OwnDesk()
        try desk.end()
        #expect(desk.calls() == 1)
        desk.restart(after: .seconds(20))
        #expect(desk.calls() == 1 && desk.wait == 40, "besides the reminder after a minute")
        desk.restart(after: .seconds(100))
        #expect(desk.calls() == 1 && desk.wait == 540, "in its place")
        desk.restart(after: .seconds(6 * 24 * 3600))
        #expect(desk.calls() == 1 && desk.wait == 3000)
        desk.pass(.seconds(3000))
        #expect(desk.calls() == 1 && desk.wait == nil)
        desk.restart(after: .seconds(23 * 3600 - 3120))
        #expect(desk.calls() == 1 && !desk.ledger.hasWork)
        desk.restart(after: .seconds(3600))
        #expect(desk.calls() == 0 && !desk.ledger.hasWork, "seven days")
    }

    @Test func `that has not been called yet is called at the next startup, however late`() throws {
        var desk = OwnDesk()
        try desk.end()
        desk.save()
        desk.restart(after: .seconds(20 * 24 * 3600))
        #expect(desk.calls() == 1)
        desk.restart()
        #expect(desk.calls() == 0)
    }

    @Test func `that has acknowledged is called no more, over a restart too`() throws {
        var desk = OwnDesk()
        #expect(desk.ledger.acknowledge(desk.entry) == false, "it has not ended")
        try desk.end()
        #expect(desk.calls() == 1)
        #expect(desk.ledger.acknowledge(desk.entry) && desk.ledger.acknowledge(desk.entry))
        #expect(desk.calls() == 0 && !desk.ledger.hasWork && desk.row.isAcknowledged)
        desk.restart()
        #expect(desk.calls() == 0 && !desk.ledger.hasWork)
        // An owner that acknowledges before its call is not called.
        desk = OwnDesk()
        try desk.end()
        #expect(desk.ledger.acknowledge(desk.entry) && desk.calls() == 0)
    }

    @Test func `is called again at the end of a retry, but not before`() throws {
        var desk = OwnDesk()
        try desk.end()
        #expect(desk.calls() == 1 && desk.ledger.acknowledge(desk.entry))
        try desk.ledger.apply(.retry, to: desk.entry, now: desk.now)
        #expect(desk.calls() == 0 && desk.wait == nil)
        #expect(!desk.row.isAcknowledged && desk.row.activations == 0)
        desk.restart()
        #expect(desk.calls() == 0)
        try desk.end()
        #expect(desk.calls() == 1 && desk.wait == 60)
        // A download that is retried before the call is not reported as ended.
        desk = OwnDesk()
        try desk.end()
        try desk.ledger.apply(.retry, to: desk.entry, now: desk.now)
        #expect(desk.calls() == 0)
    }

    @Test func `is not called for a removed download, nor if none is named`() throws {
        var desk = OwnDesk()
        try desk.end()
        desk.ledger.remove(desk.entry, now: desk.now)
        #expect(desk.calls() == 0 && desk.ledger.nextWake == nil)
        desk = OwnDesk(activate: nil)
        try desk.end()
        #expect(desk.calls() == 0 && desk.ledger.nextWake == nil)
        desk.restart()
        #expect(desk.calls() == 0)
    }

    @Test func `is told every outcome`() throws {
        for event in [DownloadEvent.cancel, .fail(DownloadFailure(.network, "No route."))] {
            var desk = OwnDesk()
            try desk.ledger.apply(event, to: desk.entry, now: desk.now)
            #expect(desk.calls() == 1, "\(event)")
        }
        var desk = OwnDesk(.committing)
        desk.ledger.committed(desk.entry, path: "/d/1", skipped: false, now: desk.now)
        #expect(desk.entry.state == .finished && desk.calls() == 1)
    }

    @Test func `is called for any row that the disk may hold`() throws {
        var desk = OwnDesk()
        try desk.end()
        #expect(desk.calls() == 1)
        for time in [0, desk.now.microseconds, .max] as [UInt64] {
            (desk.row.activations, desk.row.activateAt) = (.max, WallTime(microseconds: time))
            desk.restart()
            #expect(desk.calls() == 1 && (desk.wait ?? 0) <= 3000)
        }
    }

    @Test func `is called on schedule after a clock change`() throws {
        var desk = OwnDesk()
        try desk.end()
        #expect(desk.calls() == 1)
        desk.jump(.seconds(90_000))
        #expect(desk.calls() == 0 && desk.wait == 60)
        desk.jump(.seconds(-500_000))
        #expect(desk.calls() == 0 && desk.wait == 60)
        // The clock was set back while the service was not running: the far instant is not waited for.
        desk.restart(after: .seconds(-500_000))
        #expect(desk.calls() == 1 && (desk.wait ?? .max) <= 3000)
    }
}
