import DownloadModel
import Testing

@testable import todoku

@Suite struct `Statistics of ended downloads` {
    private static let day: UInt64 = 24 * 3600 * 1_000_000
    /// Noon of a day, so that no time zone is another date but those beyond 11 hours.
    private static let now = WallTime(microseconds: 20_000 * day + day / 2)

    private func entry(_ received: ByteCount, daysAgo: UInt64 = 0, host: String = "h") -> Statistics.Entry {
        Statistics.Entry(received: received, host: host, endedAt: WallTime(microseconds: Self.now.microseconds - daysAgo * Self.day))
    }

    @Test func `have a row for each day, also for one without a download`() {
        let statistics = Statistics([entry(800), entry(100, daysAgo: 2)], since: nil)
        let rows = statistics.plot(width: 40, isUTF8: true, now: Self.now, plainCatalog).split(separator: "\n")
        #expect(rows.count == 3, "\(rows)")
        #expect(rows.map { $0.dropFirst(5) } == ["  ███▎  100 B", "  0 B", "  \(String(repeating: "█", count: 26))  800 B"], "\(rows)")
    }

    @Test(arguments: [10, 20, 40, 80, 300])
    func `fill no more than the terminal, in either character set`(width: Int) {
        let many = (0..<60).map { entry(ByteCount($0) * 1_234_567, daysAgo: UInt64($0)) }
        let statistics = Statistics(many, since: nil)
        for isUTF8 in [true, false] {
            let rows = statistics.plot(width: width, isUTF8: isUTF8, now: Self.now, plainCatalog).split(separator: "\n")
            #expect(rows.count == Statistics.mostDays)
            for row in rows { #expect(TerminalText.width(String(row)) <= max(width, 5 + 2 + 1 + 2 + 9), "\(row)") }
            if !isUTF8 { #expect(rows.allSatisfy { $0.utf8.allSatisfy { $0 < 0x80 } }) }
        }
    }

    @Test(
        arguments: [
            (0, 100, ""), (1, 100, "▏"), (100, 100, "██████████"), (50, 100, "█████"), (55, 100, "█████▌"), (200, 100, "██████████"),
        ] as [(ByteCount, ByteCount, String)])
    func `draw bars in eighths of a column`(value: ByteCount, most: ByteCount, bar: String) {
        #expect(Statistics.bar(value, of: most, columns: 10, isUTF8: true) == bar)
    }

    @Test func `survive the largest numbers and the wrongest clocks`() {
        let ends = [0, 1, .max, Self.now.microseconds].map { WallTime(microseconds: $0) }
        let statistics = Statistics(ends.map { Statistics.Entry(received: .max, endedAt: $0) }, since: nil)
        #expect(statistics.all.received == .max && statistics.all.downloads == 4)
        for now in ends {
            #expect(statistics.daysInOrder(now: now).count <= Statistics.mostDays)
            #expect(!statistics.text(since: now, width: 1, isUTF8: false, now: now, plainCatalog).isEmpty)
        }
        #expect(Statistics.bar(.max, of: .max, columns: 65_535, isUTF8: true).count == 65_535)
        #expect(Statistics.bar(.max, of: 1, columns: 1, isUTF8: false) == "#")
    }

    @Test func `sum up the hosts beyond the first twenty`() {
        let statistics = Statistics((1...25).map { entry(ByteCount($0), host: "h\($0)") }, since: nil)
        let text = statistics.text(since: nil, width: nil, isUTF8: true, now: Self.now, plainCatalog)
        #expect(text.contains("  h25\n") && text.contains("  h6\n") && !text.contains("  h5\n"))
        #expect(text.contains("        5       0  15 B  5 others\n"), "\(text)")
    }

    @Test func `leave out what ended before`() {
        let entries = (0..<5).map { entry(1, daysAgo: $0) }
        #expect(Statistics(entries, since: WallTime(microseconds: Self.now.microseconds - 2 * Self.day)).all.downloads == 3)
        #expect(StatsCommand.instant("2d", now: Self.now) == WallTime(microseconds: Self.now.microseconds - 2 * Self.day))
        #expect(StatsCommand.instant("3h", now: Self.now) == WallTime(microseconds: Self.now.microseconds - Self.day / 8))
        #expect(StatsCommand.instant("@5", now: Self.now) == WallTime(microseconds: 5_000_000))
        #expect(StatsCommand.instant("65535d", now: WallTime(microseconds: 5)) == WallTime(microseconds: 0))
        for wrong in ["", "d", "h", "5", "-5d", "65536d", "12:00", "2026-13-01", "2026-02-30", "2026-11-01x"] {
            #expect(StatsCommand.instant(wrong, now: Self.now) == nil, "\(wrong)")
        }
    }
}
