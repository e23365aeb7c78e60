import DownloadModel
import Scheduling
import Testing

/// A desk with one restored download whose owner must be called.
private func makeDesk(_ state: DownloadState = .active, activate: String? = "org.example.App") -> Desk {
    Desk([Desk.record(1, state: state) { $0.options.activate = activate }])
}

extension Desk {
    fileprivate var entry: ScheduledDownload { self[1] }

    /// The row on disk.
    fileprivate var row: DownloadRecord {
        get { rows.downloads[entry.number]! }
        set { rows.downloads[entry.number] = newValue }
    }

    fileprivate func end() throws { try steer(entry, .cancel) }

    /// Performs the new actions, and makes the due calls as the service does.
    ///
    /// - Returns: the number of calls.
    fileprivate func calls() -> Int {
        var count = 0
        while true {
            let actions = newActions()
            if actions.isEmpty { return count }
            for action in actions {
                switch action {
                case .callOwner(let entry):
                    if scheduler.owesCall(entry, now: now) { count += 1 }
                    ownerCalled(entry)
                case .stopTransfer(let entry): ends(entry, .stopped(nil))
                case .sweep(let number, _): swept(number)
                default: break
                }
            }
        }
    }

    /// The time until the scheduler is due without an event, in seconds.
    fileprivate var due: Int64? { scheduler.nextWake.map { ($0 - now).components.seconds } }
}

@Suite struct `An owner` {
    @Test func `is called at the end, and again after 1, 10 and 60 minutes`() throws {
        let desk = makeDesk()
        #expect(desk.calls() == 0)
        try desk.end()
        #expect(desk.scheduler.nextWake == nil, "the call is on its way")
        #expect(desk.calls() == 1)
        var at: [Int64] = []
        while desk.due != nil {
            desk.waitUntilDue()
            #expect(desk.calls() == 1)
            at.append((desk.now - Desk.start).components.seconds)
        }
        #expect(at == [60, 600, 3600])
        #expect(!desk.scheduler.hasWork && desk.row.reminders.calls == 4)
    }

    @Test func `is called at each startup for seven days, and its schedule continues`() throws {
        let desk = makeDesk()
        try desk.end()
        #expect(desk.calls() == 1)
        desk.restart(after: .seconds(20))
        #expect(desk.calls() == 1 && desk.due == 40, "besides the reminder after a minute")
        desk.restart(after: .seconds(100))
        #expect(desk.calls() == 1 && desk.due == 540, "in its place")
        desk.restart(after: .seconds(6 * 24 * 3600))
        #expect(desk.calls() == 1 && desk.due == 3000)
        desk.wait(.seconds(3000))
        #expect(desk.calls() == 1 && desk.due == nil)
        desk.restart(after: .seconds(23 * 3600 - 3120))
        #expect(desk.calls() == 1 && !desk.scheduler.hasWork)
        desk.restart(after: .seconds(3600))
        #expect(desk.calls() == 0 && !desk.scheduler.hasWork, "seven days")
    }

    @Test func `that has not been called yet is called at the next startup, however late`() throws {
        let desk = makeDesk()
        try desk.end()
        // The process dies before it calls.
        desk.restart(after: .seconds(20 * 24 * 3600))
        #expect(desk.calls() == 1)
        desk.restart()
        #expect(desk.calls() == 0)
    }

    @Test func `that has acknowledged is not called again, not even after a restart`() throws {
        var desk = makeDesk()
        desk.acknowledge(desk.entry)
        #expect(!desk.entry.record.reminders.isAcknowledged && desk.actions.saves == [], "it has not ended")
        try desk.end()
        #expect(desk.calls() == 1)
        desk.acknowledge(desk.entry)
        desk.acknowledge(desk.entry)
        #expect(desk.actions.saves == [], "it is known already")
        #expect(desk.calls() == 0 && !desk.scheduler.hasWork && desk.row.reminders.isAcknowledged)
        desk.restart()
        #expect(desk.calls() == 0 && !desk.scheduler.hasWork)
        // An owner that acknowledges before its call is not called.
        desk = makeDesk()
        try desk.end()
        desk.acknowledge(desk.entry)
        #expect(desk.entry.record.reminders.isAcknowledged && desk.calls() == 0)
    }

    @Test func `is called again at the end of a retry, but not before`() throws {
        var desk = makeDesk()
        try desk.end()
        #expect(desk.calls() == 1)
        desk.acknowledge(desk.entry)
        #expect(desk.row.reminders.isAcknowledged)
        try desk.steer(desk.entry, .retry)
        #expect(desk.calls() == 0 && desk.due == nil)
        #expect(!desk.row.reminders.isAcknowledged && desk.row.reminders.calls == 0)
        desk.restart()
        #expect(desk.calls() == 0)
        try desk.end()
        #expect(desk.calls() == 1 && desk.due == 60)
        // A download that is retried before the call is not reported as ended.
        desk = makeDesk()
        try desk.end()
        try desk.steer(desk.entry, .retry)
        #expect(desk.calls() == 0)
    }

    @Test func `is not called for a removed download, nor if none is named`() throws {
        var desk = makeDesk()
        try desk.end()
        try desk.remove(desk.entry)
        #expect(desk.calls() == 0 && desk.scheduler.nextWake == nil)
        desk = makeDesk(activate: nil)
        try desk.end()
        #expect(desk.calls() == 0 && desk.scheduler.nextWake == nil)
        desk.restart()
        #expect(desk.calls() == 0)
    }

    @Test func `is told every outcome`() throws {
        var desk = makeDesk()
        try desk.steer(desk.entry, .cancel)
        #expect(desk.calls() == 1)
        desk = makeDesk()
        desk.fails(desk.entry, DownloadFailure(.network, "No route."))
        #expect(desk.entry.state.failure != nil && desk.calls() == 1)
        desk = makeDesk(.committing)
        desk.committed(desk.entry, path: "/d/1")
        #expect(desk.entry.state == .finished && desk.calls() == 1)
    }

    @Test func `is called for any row that the disk may hold`() throws {
        let desk = makeDesk()
        try desk.end()
        #expect(desk.calls() == 1)
        for time in [0, desk.now.microseconds, .max] as [UInt64] {
            (desk.row.reminders.calls, desk.row.reminders.nextAt) = (.max, WallTime(microseconds: time))
            desk.restart()
            #expect(desk.calls() == 1 && (desk.due ?? 0) <= 3000)
        }
    }

    @Test func `is called on schedule after a clock change`() throws {
        let desk = makeDesk()
        try desk.end()
        #expect(desk.calls() == 1)
        desk.clockJumps(by: .seconds(90_000))
        #expect(desk.calls() == 0 && desk.due == 60)
        desk.clockJumps(by: .seconds(-500_000))
        #expect(desk.calls() == 0 && desk.due == 60)
        // The clock was set back while the service was not running: the far instant is not waited for.
        desk.restart(after: .seconds(-500_000))
        #expect(desk.calls() == 1 && (desk.due ?? .max) <= 3000)
    }
}
