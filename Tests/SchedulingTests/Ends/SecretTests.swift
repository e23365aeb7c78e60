import DownloadModel
import Testing

@testable import Scheduling

private let failure = DownloadFailure(.httpStatus, "The server answered 404.", httpStatus: 404)

@Suite struct `Passwords and headers` {
    private static let now = WallTime(microseconds: 1_800_000_000_000_000)

    private static func record(_ number: UInt64, activate: String? = nil) -> DownloadRecord {
        var options = DownloadOptions()
        (options.headers, options.username, options.password) = ([HeaderField(name: "X-A", value: "secret")], "me", "word")
        (options.app, options.activate) = ("org.example.App", activate)
        return DownloadRecord(
            number: DownloadNumber(number), url: "http://127.0.0.1/\(number)", options: options, directory: "/d", state: .queued,
            queuedAt: now,
            position: Int64(number) << 20)
    }

    /// An active download.
    private func begun(_ ledger: Ledger, _ number: UInt64 = 1, toDescriptor: Bool = false, activate: String? = nil) throws -> LedgerEntry {
        var record = Self.record(number, activate: activate)
        record.isToDescriptor = toDescriptor
        let entry = ledger.insert(record)
        ledger.enter(entry, now: Self.now)
        ledger.schedule(now: Self.now)
        #expect(entry.state == .active)
        return entry
    }

    private func saved(_ ledger: Ledger) -> [StoreChange] {
        ledger.output.take().compactMap { if case .save(let change) = $0 { change } else { nil } }
    }

    @Test func `are deleted from the row of a finished download`() throws {
        let ledger = Ledger(settings: Settings(), jitter: .fixed(0))
        let entry = try begun(ledger)
        for event in [DownloadEvent.bodyComplete, .verified] { try ledger.apply(event, to: entry, now: Self.now) }
        #expect(entry.record.options.holdsSecrets)
        _ = saved(ledger)
        try ledger.apply(.committed, to: entry, now: Self.now)
        #expect(!entry.record.options.holdsSecrets)
        let changes = saved(ledger)
        #expect(changes.contains(.put(entry.record)) && changes.contains(.scrubLog))
    }

    @Test(arguments: [DownloadEvent.fail(failure), .cancel], [String?.none, "org.example.App"])
    func `of a failed or cancelled download are kept for a day, for a retry`(end: DownloadEvent, activate: String?) throws {
        let ledger = Ledger(settings: Settings(), jitter: .fixed(0))
        let entry = try begun(ledger, activate: activate)
        try ledger.apply(end, to: entry, now: Self.now)
        _ = saved(ledger)
        let last = Self.now + Limits.secretsAge + .microseconds(-1)
        ledger.tick(now: last)
        #expect(entry.record.options.holdsSecrets)
        try ledger.apply(.retry, to: entry, now: last)
        #expect(entry.record.options.password == "word")
        try ledger.apply(.cancel, to: entry, now: last)
        ledger.tick(now: Self.now + Limits.secretsAge)
        #expect(entry.record.options.holdsSecrets)
        if activate != nil { #expect(ledger.acknowledge(entry)) }
        #expect(ledger.nextWake == last + Limits.secretsAge)
        _ = saved(ledger)
        ledger.tick(now: last + Limits.secretsAge)
        #expect(!entry.record.options.holdsSecrets)
        let changes = saved(ledger)
        #expect(changes.contains(.put(entry.record)) && changes.contains(.scrubLog))
        #expect(ledger.nextWake == nil)
    }

    @Test func `are deleted at once if no retry is possible`() throws {
        let ledger = Ledger(settings: Settings(), jitter: .fixed(0))
        let entry = try begun(ledger, toDescriptor: true)
        try ledger.apply(.fail(failure), to: entry, now: Self.now)
        #expect(!entry.record.options.holdsSecrets)
    }

    @Test func `that a row still has after a day are deleted at startup`() throws {
        var (old, young, finished) = (Self.record(1), Self.record(2), Self.record(3))
        (old.state, old.endedAt) = (.failed(failure), Self.now + .seconds(-90_000))
        (young.state, young.endedAt) = (.cancelled, Self.now + .seconds(-3600))
        (finished.state, finished.endedAt) = (.finished, Self.now)
        let ledger = Ledger(settings: Settings(), jitter: .fixed(0))
        ledger.restore([old, young, finished], sweeps: [:], now: Self.now)
        #expect(ledger.nextWake == WallTime(microseconds: 0))
        ledger.tick(now: Self.now)
        let kept = (1...3).map { ledger[DownloadNumber($0)]?.record.options.holdsSecrets }
        #expect(kept == [false, true, false])
        #expect(ledger.nextWake == Self.now + .seconds(82_800))
    }
}
