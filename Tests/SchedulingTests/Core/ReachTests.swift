import DownloadModel
import Scheduling
import TestSupport
import Testing

/// 100,000 downloads stay small and quick to search.
@Suite struct `Many downloads` {
    private static func record(_ number: UInt64, app: String = "", tag: String = "") -> DownloadRecord {
        Desk.record(number, app: app) { ($0.options.tag, $0.directory) = (tag, "/a folder of some length") }
    }

    @Test func `of one app share their options until one of them changes`() throws {
        let desk = Desk()
        // The two apps alternate.
        let entries = (1...6).map { desk.addUnsaved(Self.record($0, app: $0 % 2 == 0 ? "org.example.A" : "org.example.B")) }
        #expect(entries[2].record.isJoined(entries[0].record))
        #expect(entries[5].record.isJoined(entries[1].record))
        #expect(!entries[1].record.isJoined(entries[0].record))
        for entry in entries { desk.saved(entry) }
        desk.setPriority(entries[2], 7)
        desk.setSpeedLimit(entries[4], 1000)
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
        let desk = Desk()
        let (apps, tags) = (["", "org.example.A", "org.example.B"], ["", "", "x", "y"])
        for number in 1...count {
            let record = Self.record(
                number, app: number > 2500 ? "org.example.A" : apps.randomElement(using: &random) ?? "",
                tag: tags.randomElement(using: &random) ?? "")
            desk.saved(desk.addUnsaved(record))
        }
        _ = desk.addUnsaved(Self.record(count + 1, app: "org.example.A"))  // not on disk yet, so not listed
        for _ in 0..<60 {
            guard let entry = desk.scheduler[DownloadNumber(.random(in: 1...count, using: &random))] else { continue }
            switch Int.random(in: 0...3, using: &random) {
            case 0:
                if !entry.state.hasEnded {
                    try desk.steer(entry, .cancel)
                } else {
                    try desk.remove(entry)
                }
            case 1: desk.setPriority(entry, .random(in: -2...2, using: &random))
            case 2: if !entry.state.hasEnded { desk.move(entry, to: .random(in: 0...20, using: &random)) }
            default: if entry.state == .cancelled { try desk.steer(entry, .retry) }
            }
        }
        let all = (desk.scheduler.order.ordered + desk.scheduler.ended.ordered).compactMap { desk.scheduler[$0] }
        for app in [nil, "", "org.example.A", "org.example.B", "org.example.None"] {
            for tag in [nil, "", "x", "z"] {
                let expected = all.filter {
                    (app ?? $0.record.options.app, tag ?? $0.record.options.tag) == ($0.record.options.app, $0.record.options.tag)
                }
                var (walk, found) = (desk.scheduler.walk(app: app, tag: tag), [DownloadNumber]())
                while let number = walk.next() { if desk.scheduler.listed(number, app: app, tag: tag) != nil { found.append(number) } }
                #expect(found == expected.map(\.number))
                if tag == nil { #expect(desk.scheduler.some(3, app: app).map(\.number) == Array(found.prefix(3))) }
            }
        }
    }

    @Test(.timeLimit(.minutes(1))) func `at as many hosts know how many go before each, without a walk through the hosts`() {
        var random = SeededRandom(5)
        let desk = Desk { $0.maxActive = 1 }
        let entries = (1...4000 as ClosedRange<UInt64>).map { number in
            var record = Self.record(number, app: "app \(number % 3)")
            record.url = "http://h\(number)/f"
            record.options.priority = .random(in: -1...1, using: &random)
            return desk.addUnsaved(record)
        }
        for entry in entries { desk.saved(entry) }
        for number in stride(from: 10, to: 4000, by: 10) { try? desk.steer(entries[number], .cancel) }
        var ahead = 0
        for number in desk.scheduler.order.ordered {
            guard let entry = desk.scheduler[number], entry.state == .queued else { continue }
            #expect(desk.scheduler.ahead(of: entry, now: desk.now) == ahead)
            ahead += 1
        }
        #expect(ahead > 3000)
    }

    @Test func `that have ended are pruned, first of the app with the most, last those whose owner awaits a call`() throws {
        func ended(_ number: UInt64, _ app: String, activate: Bool = false) -> DownloadRecord {
            var record = Self.record(number, app: app)
            record.options.activate = activate ? app : nil
            (record.state, record.endedAt) = (.cancelled, Desk.start + .seconds(Int(number) - 20_000))
            return record
        }
        let many = (4...10_001 as ClosedRange<UInt64>).map { ended($0, "org.example.Many") }
        let desk = Desk(
            [ended(1, "org.example.One"), ended(2, "org.example.Other"), ended(3, "org.example.Many", activate: true)] + many)
        #expect(desk.scheduler.ended.count == 10_000)
        for number in [1, 2, 3, 5] as [UInt64] { #expect(desk.scheduler[DownloadNumber(number)] != nil) }
        #expect(desk.scheduler[DownloadNumber(4)] == nil)
        // The most recent end, too.
        let entry = desk.add(20_000, app: "org.example.One")
        try desk.steer(entry, .cancel)
        #expect(
            desk.scheduler.ended.count == 10_000 && desk.scheduler[DownloadNumber(1)] != nil && desk.scheduler[DownloadNumber(5)] == nil)
    }

    @Test func `of an app are counted with their sizes in every state`() throws {
        let desk = Desk()
        func record(_ number: UInt64, metadata: Int) -> DownloadRecord {
            var record = Self.record(number, app: "org.example.A")
            record.options.metadata = [UInt8](repeating: 1, count: metadata)
            return record
        }
        let other = record(1, metadata: 0).options.heldBytes(with: String(repeating: "u", count: 1000))
        #expect(other == 0, "the first KiB of each is not counted")
        let entries = (1...4).map { desk.addUnsaved(record($0, metadata: $0 == 4 ? 0 : 10_000)) }
        let url = try DownloadURL("http://h/\(String(repeating: "u", count: 5000))")
        let one = entries[0].record.options.heldBytes(with: entries[0].record.url)
        #expect(one > 8900 && one < 10_000)
        for entry in entries { desk.saved(entry) }
        func expect(_ remaining: Int, _ bytes: Int) {
            #expect(
                desk.scheduler.holdings(of: "org.example.A").remaining == remaining
                    && desk.scheduler.holdings(of: "org.example.A").bytes == bytes
            )
        }
        expect(4, 3 * one)
        try desk.replaceUrl(entries[0], url)
        expect(4, 3 * one + url.text.utf8.count - entries[1].record.url.utf8.count)
        for entry in entries { try desk.steer(entry, .cancel) }
        expect(0, 3 * one + url.text.utf8.count - entries[1].record.url.utf8.count)
        try desk.steer(entries[3], .retry)
        try desk.remove(entries[0])
        expect(1, 2 * one)
        for entry in entries[1...2] { try desk.remove(entry) }
        expect(1, 0)
    }

    @Test func `are summed up as they change, whatever servers announce`() throws {
        let desk = Desk()
        let entries = (1...3).map { desk.addUnsaved(Self.record($0)) }
        #expect(desk.scheduler.received == 0 && desk.scheduler.total == 0, "what is not on disk does not count yet")
        for entry in entries { desk.saved(entry) }
        #expect(desk.scheduler.total == nil)
        for entry in entries {
            desk.began(entry, total: entry.number.value == 1 ? .max : 1000)
        }
        #expect(desk.scheduler.total == nil, "more than 2⁶⁴")
        let identity = FileIdentity(device: 1, inode: 2, mount: 3, boot: "b")
        desk.checkpoint(entries[1], ResumeData(written: 300, total: 1000, validator: nil, identity: identity))
        desk.checkpoint(entries[2], ResumeData(written: 400, total: 1000, validator: nil, identity: identity))
        #expect(desk.scheduler.received == 700)
        try desk.steer(entries[0], .cancel)
        #expect(desk.scheduler.total == 2000)
        try desk.steer(entries[1], .cancel)
        #expect(desk.scheduler.received == 400 && desk.scheduler.total == 1000)
        try desk.remove(entries[1])
        try desk.steer(entries[0], .retry)
        #expect(desk.scheduler.received == 400 && desk.scheduler.total == nil)
    }
}
