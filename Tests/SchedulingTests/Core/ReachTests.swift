import DownloadModel
import TestSupport
import Testing

@testable import Scheduling

/// 100,000 downloads stay small and quick to search.
@Suite struct `Many downloads` {
    private static let now = WallTime(microseconds: 1_000_000_000_000_000)

    private static func record(_ number: UInt64, app: String = "", tag: String = "") -> DownloadRecord {
        var options = DownloadOptions()
        (options.app, options.tag) = (app, tag)
        return DownloadRecord(
            number: DownloadNumber(number), url: "http://h/\(number)", options: options, directory: "/a folder of some length",
            state: .queued, queuedAt: now, position: DownloadQueue.position(of: DownloadNumber(number)))
    }

    @Test func `of one app share their options until one of them changes`() throws {
        let ledger = Ledger(settings: Settings(), jitter: .fixed(0))
        // The two apps alternate.
        let entries = (1...6).map { ledger.insert(Self.record($0, app: $0 % 2 == 0 ? "org.example.A" : "org.example.B")) }
        #expect(entries[2].record.isJoined(entries[0].record))
        #expect(entries[5].record.isJoined(entries[1].record))
        #expect(!entries[1].record.isJoined(entries[0].record))
        for entry in entries { ledger.enter(entry, now: Self.now) }
        ledger.setPriority(entries[2], 7)
        ledger.setSpeedLimit(entries[4], 1000)
        #expect(entries.map(\.record.options.priority) == [0, 0, 7, 0, 0, 0])
        #expect(entries.map(\.record.options.speedLimit) == [nil, nil, nil, nil, 1000, nil])
        #expect(entries[0].record.options == Self.record(1, app: "org.example.B").options)
    }

    @Test func `are values: a changed copy leaves the original unchanged`() {
        let original = Self.record(1)
        var copy = original
        copy.attempts = 3
        copy.options.headers = [HeaderField(name: "A", value: "b")]
        #expect(original.attempts == 0 && original.options.headers.isEmpty)
        #expect(copy != original)
        copy.attempts = 0
        copy.options.headers = []
        #expect(copy == original)
    }

    @Test func `take little memory while queued`() {
        #expect(MemoryLayout<DownloadRecord>.size <= 160)
    }

    @Test(arguments: [100, 3000] as [UInt64])
    func `are found by app and tag in queue order, then by their ends`(count: UInt64) throws {
        var random = SeededRandom(count)
        let ledger = Ledger(settings: Settings(), jitter: .fixed(0))
        let (apps, tags) = (["", "org.example.A", "org.example.B"], ["", "", "x", "y"])
        for number in 1...count {
            let record = Self.record(
                number, app: number > 2500 ? "org.example.A" : apps.randomElement(using: &random) ?? "",
                tag: tags.randomElement(using: &random) ?? "")
            ledger.enter(ledger.insert(record), now: Self.now)
        }
        _ = ledger.insert(Self.record(count + 1, app: "org.example.A"))  // not on disk yet, so not listed
        for _ in 0..<60 {
            guard let entry = ledger[DownloadNumber(.random(in: 1...count, using: &random))] else { continue }
            switch Int.random(in: 0...3, using: &random) {
            case 0:
                if !entry.state.hasEnded {
                    try ledger.apply(.cancel, to: entry, now: Self.now)
                } else {
                    ledger.remove(entry, now: Self.now)
                }
            case 1: ledger.setPriority(entry, .random(in: -2...2, using: &random))
            case 2: if !entry.state.hasEnded { ledger.move(entry, to: .random(in: 0...20, using: &random)) }
            default: if entry.state == .cancelled { try ledger.apply(.retry, to: entry, now: Self.now) }
            }
        }
        let all = (ledger.order.ordered + ledger.ended.ordered).compactMap { ledger[$0] }
        for app in [nil, "", "org.example.A", "org.example.B", "org.example.None"] {
            for tag in [nil, "", "x", "z"] {
                let expected = all.filter {
                    (app ?? $0.record.options.app, tag ?? $0.record.options.tag) == ($0.record.options.app, $0.record.options.tag)
                }
                var (walk, found) = (ledger.walk(app: app, tag: tag), [DownloadNumber]())
                while let number = walk.next() { if ledger.listed(number, app: app, tag: tag) != nil { found.append(number) } }
                #expect(found == expected.map(\.number))
                if tag == nil { #expect(ledger.some(3, app: app).map(\.number) == Array(found.prefix(3))) }
            }
        }
    }

    @Test(.timeLimit(.minutes(1))) func `at as many hosts know how many go before each, without a walk through the hosts`() {
        var random = SeededRandom(5)
        var settings = Settings()
        settings.maxActive = 1
        let ledger = Ledger(settings: settings, jitter: .fixed(0))
        let entries = (1...4000 as ClosedRange<UInt64>).map { number in
            var record = Self.record(number, app: "app \(number % 3)")
            record.url = "http://h\(number)/f"
            record.options.priority = .random(in: -1...1, using: &random)
            return ledger.insert(record)
        }
        for entry in entries { ledger.enter(entry, now: Self.now) }
        for number in stride(from: 10, to: 4000, by: 10) { try? ledger.apply(.cancel, to: entries[number], now: Self.now) }
        var ahead = 0
        for number in ledger.order.ordered {
            guard let entry = ledger[number], entry.state == .queued else { continue }
            #expect(ledger.ahead(of: entry, now: Self.now) == ahead)
            ahead += 1
        }
        #expect(ahead > 3000)
    }

    @Test func `that have ended are pruned, first of the app with the most, last those whose owner awaits a call`() throws {
        func ended(_ number: UInt64, _ app: String, activate: Bool = false) -> DownloadRecord {
            var record = Self.record(number, app: app)
            record.options.activate = activate ? app : nil
            (record.state, record.endedAt) = (.cancelled, Self.now + .seconds(Int(number) - 20_000))
            return record
        }
        let ledger = Ledger(settings: Settings(), jitter: .fixed(0))
        let many = (4...10_001 as ClosedRange<UInt64>).map { ended($0, "org.example.Many") }
        ledger.restore(
            [ended(1, "org.example.One"), ended(2, "org.example.Other"), ended(3, "org.example.Many", activate: true)] + many, sweeps: [:],
            now: Self.now)
        #expect(ledger.ended.count == 10_000)
        for number in [1, 2, 3, 5] as [UInt64] { #expect(ledger[DownloadNumber(number)] != nil) }
        #expect(ledger[DownloadNumber(4)] == nil)
        // The most recent end, too.
        let entry = ledger.insert(Self.record(20_000, app: "org.example.One"))
        ledger.enter(entry, now: Self.now)
        try ledger.apply(.cancel, to: entry, now: Self.now)
        #expect(ledger.ended.count == 10_000 && ledger[DownloadNumber(1)] != nil && ledger[DownloadNumber(5)] == nil)
    }

    @Test func `of an app are counted with their sizes in every state`() throws {
        let ledger = Ledger(settings: Settings(), jitter: .fixed(0))
        func record(_ number: UInt64, metadata: Int) -> DownloadRecord {
            var record = Self.record(number, app: "org.example.A")
            record.options.metadata = [UInt8](repeating: 1, count: metadata)
            return record
        }
        let other = record(1, metadata: 0).options.heldBytes(with: String(repeating: "u", count: 1000))
        #expect(other == 0, "the first KiB of each is not counted")
        let entries = (1...4).map { ledger.insert(record($0, metadata: $0 == 4 ? 0 : 10_000)) }
        let url = try DownloadURL("http://h/\(String(repeating: "u", count: 5000))")
        let one = entries[0].record.options.heldBytes(with: entries[0].record.url)
        #expect(one > 8900 && one < 10_000)
        for entry in entries { ledger.enter(entry, now: Self.now) }
        func expect(_ remaining: Int, _ bytes: Int) {
            #expect(ledger.holdings(of: "org.example.A").remaining == remaining && ledger.holdings(of: "org.example.A").bytes == bytes)
        }
        expect(4, 3 * one)
        try ledger.replaceUrl(entries[0], FreshLink(url), now: Self.now)
        expect(4, 3 * one + url.text.utf8.count - entries[1].record.url.utf8.count)
        for entry in entries { try ledger.apply(.cancel, to: entry, now: Self.now) }
        expect(0, 3 * one + url.text.utf8.count - entries[1].record.url.utf8.count)
        try ledger.apply(.retry, to: entries[3], now: Self.now)
        ledger.remove(entries[0], now: Self.now)
        expect(1, 2 * one)
        for entry in entries[1...2] { ledger.remove(entry, now: Self.now) }
        expect(1, 0)
    }

    @Test func `are summed up as they change, whatever servers announce`() throws {
        let ledger = Ledger(settings: Settings(), jitter: .fixed(0))
        let entries = (1...3).map { ledger.insert(Self.record($0)) }
        #expect(ledger.received == 0 && ledger.total == 0, "what is not on disk does not count yet")
        for entry in entries { ledger.enter(entry, now: Self.now) }
        #expect(ledger.total == nil)
        for entry in entries {
            ledger.transferBegan(
                entry, fileName: "x", mediaType: nil, total: entry.number.value == 1 ? .max : 1000, offset: 0, now: Self.now)
        }
        #expect(ledger.total == nil, "more than 2⁶⁴")
        let identity = FileIdentity(device: 1, inode: 2, mount: 3, boot: "b")
        ledger.checkpoint(entries[1], ResumeData(written: 300, total: 1000, validator: nil, identity: identity))
        ledger.checkpoint(entries[2], ResumeData(written: 400, total: 1000, validator: nil, identity: identity))
        #expect(ledger.received == 700)
        try ledger.apply(.cancel, to: entries[0], now: Self.now)
        #expect(ledger.total == 2000)
        try ledger.apply(.cancel, to: entries[1], now: Self.now)
        #expect(ledger.received == 400 && ledger.total == 1000)
        ledger.remove(entries[1], now: Self.now)
        try ledger.apply(.retry, to: entries[0], now: Self.now)
        #expect(ledger.received == 400 && ledger.total == nil)
    }
}
