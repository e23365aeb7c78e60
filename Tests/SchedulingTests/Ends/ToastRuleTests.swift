import DownloadModel
import Testing

@testable import Scheduling

private let now = WallTime(microseconds: 1_000_000_000_000)

@Suite struct `The rules of toasts` {
    @Test(
        arguments: [
            (.always, true, true), (.always, false, true), (.never, false, false), (.background, true, false), (.background, false, true),
        ]
            as [(NotifyPolicy, Bool, Bool)])
    func `spare an app in front that shows its outcomes itself`(policy: NotifyPolicy, isInFront: Bool, isWanted: Bool) {
        #expect(policy.wantsToast(isInFront: isInFront) == isWanted)
    }

    @Test func `drop what is older than half a day, and show the rest in the order of the ends`() {
        func toast(_ number: UInt64, hoursAgo: Int) -> Scheduler.OwedToast {
            Scheduler.OwedToast(number: DownloadNumber(number), end: now + .seconds(-3600 * hoursAgo))
        }
        let owed = [toast(5, hoursAgo: 1), toast(1, hoursAgo: 13), toast(4, hoursAgo: 12), toast(3, hoursAgo: 1), toast(2, hoursAgo: -1)]
        let (fresh, stale) = Scheduler.OwedToast.divide(owed, now: now)
        #expect(fresh.map(\.number.value) == [4, 3, 5, 2])
        #expect(stale.map(\.number.value) == [1])
    }

    /// Each state, whether the bytes are those of the cached copy, and whether they went to the caller's descriptor.
    @Test(
        arguments: [
            (.finished, false, false, true), (.finished, true, false, false), (.finished, false, true, false),
            (.failed(DownloadFailure(.network, "No route.")), false, false, true), (.failed(.interrupted), false, true, true),
            (.cancelled, false, false, false), (.queued, false, false, false),
        ] as [(DownloadState, Bool, Bool, Bool)])
    func `count a failure and a new file as news`(state: DownloadState, isUnchanged: Bool, isToDescriptor: Bool, hasNews: Bool) {
        var record = DownloadRecord(
            number: DownloadNumber(1), url: "http://example.org/", options: DownloadOptions(), directory: "/d", state: state, queuedAt: now,
            position: 1)
        (record.isUnchanged, record.isToDescriptor, record.endedAt) = (isUnchanged, isToDescriptor, now)
        #expect(record.hasNews == hasNews)
        #expect(record.toastOwedSince == nil, "nothing noted that the toast is wanted")
        record.owesToast = true
        #expect(record.toastOwedSince == (hasNews ? now : nil))
    }

    /// The file was there before in both cases. A person who queued it waits for it; the app that asked for a copy has it.
    @Test(arguments: [false, true]) func `count a skipped file as news, and a current copy as none`(asksForCopy: Bool) {
        var options = DownloadOptions()
        (options.ifExists, options.onlyIfChanged) = (.skip, asksForCopy)
        var record = DownloadRecord(
            number: DownloadNumber(1), url: "http://example.org/", options: options, directory: "/d", state: .finished, queuedAt: now,
            position: 1)
        record.isUnchanged = true
        #expect(record.hasNews == !asksForCopy)
        record.isFetch = true
        #expect(!record.hasNews)
    }
}
