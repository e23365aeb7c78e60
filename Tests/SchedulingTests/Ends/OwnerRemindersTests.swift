import DownloadModel
import Testing

@testable import Scheduling

private let end = WallTime(microseconds: 1_000_000_000_000)

/// A number of calls and the instant of the next one, in seconds since the end.
private struct Plan: Equatable, CustomTestStringConvertible {
    var calls: UInt32
    var next: Int64?

    init(_ calls: UInt32, _ next: Int64?) { (self.calls, self.next) = (calls, next) }
    init(_ reminders: OwnerReminders) { self.init(reminders.calls, reminders.nextAt.map { ($0 - end).components.seconds }) }

    var reminders: OwnerReminders {
        var reminders = OwnerReminders()
        (reminders.calls, reminders.nextAt) = (calls, next.map { end + .seconds($0) })
        return reminders
    }
    var testDescription: String { "\(calls) calls, next \(next.map { "\($0) s" } ?? "never")" }
}

@Suite struct `The reminders of an owner` {
    @Test(
        arguments: [
            (Plan(0, 0), 0, Plan(1, 60)),
            (Plan(0, 0), 900, Plan(1, 960)),  // late
            (Plan(1, 60), 60, Plan(2, 600)), (Plan(2, 600), 600, Plan(3, 3600)), (Plan(3, 3600), 3600, Plan(4, nil)),
            (Plan(.max, 10), 10, Plan(.max, nil)),  // a stored row may contain anything
            // At startup, between two calls, or after the last one.
            (Plan(1, 60), 59, nil), (Plan(4, nil), 9000, nil),
            // The first call, which no process made.
            (Plan(0, nil), 86_400, Plan(1, 86_460)),
        ] as [(Plan, Int64, Plan?)])
    fileprivate func `advance by a call that is due, and by no other`(before: Plan, second: Int64, after: Plan?) {
        var reminders = before.reminders
        #expect(reminders.call(now: end + .seconds(second)) == (after != nil))
        #expect(Plan(reminders) == after ?? before)
    }

    @Test func `are due at the end`() { #expect(Plan(.due(at: end)) == Plan(0, 0)) }

    /// Calls, seconds since the end, whether the owner has acknowledged, whether a call is owed.
    @Test(
        arguments: [
            (0, 0, false, true), (4, 7 * 86_400 - 1, false, true), (4, 7 * 86_400, false, false), (0, 700 * 86_400, false, true),
            (0, 0, true, false), (1, 0, true, false),
        ] as [(UInt32, Int64, Bool, Bool)])
    func `are owed for seven days, the first call always, and none once acknowledged`(
        calls: UInt32, second: Int64, isAcknowledged: Bool, isOwed: Bool
    ) {
        var reminders = Plan(calls, nil).reminders
        if isAcknowledged { #expect(reminders.acknowledge() && !reminders.acknowledge()) }
        #expect(reminders.areOwed(since: end, now: end + .seconds(second)) == isOwed)
        #expect(reminders.areOwed(since: nil, now: end) == (calls == 0 && !isAcknowledged), "a damaged row has no end")
    }

    @Test(arguments: [(nil, nil), (60, 60), (3000, 3000), (3001, 3000), (4_000_000_000_000, 3000)] as [(Int64?, Int64?)])
    func `are restored at most 50 minutes ahead, because the clock may have been set back`(next: Int64?, restored: Int64?) {
        var reminders = Plan(1, next).reminders
        reminders.restore(now: end)
        #expect(Plan(reminders) == Plan(1, restored))
    }

    @Test func `move with the clock`() {
        var reminders = Plan(1, 60).reminders
        reminders.shift(by: .seconds(-90_000))
        #expect(Plan(reminders) == Plan(1, -89_940))
    }
}
