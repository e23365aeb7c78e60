import DBus
import DownloadModel
import DownloaderInterface
import EventLoop
import Localization
import Testing

@testable import TodokuClient
@testable import todoku

/// What the service says of download 7.
func download(_ state: String, received: UInt64 = 0, total: Int64 = -1, name: String = "データ集２０２６.bin") -> DownloadDescription {
    DownloadDescription(
        DownloadReference(number: 7),
        [
            "State": .string(state), "Received": .uint64(received), "Total": .int64(total), "FileName": .string(name),
            "Url": .string("http://h/x"),
        ])
}

extension ProgressLine {
    /// The line of a download that has one row.
    func text(_ download: DownloadDescription, speed: Speed?, columns: Int) -> String {
        lines(download, speed: speed, columns: columns, rows: 1).joined(separator: "\n")
    }
}

@Suite struct `A progress line` {
    private let mebibyte: UInt64 = 1 << 20

    @Test func `says at the end that the file was there already`() {
        var finished = download("finished")
        finished.apply(["Path": .string("/d/a")])
        #expect(ProgressLine.end(finished) == "finished  /d/a  0 B")
        finished.apply(["Error": EndError(details: ["unchanged": .bool(true)]).variant])
        #expect(ProgressLine.end(finished) == "finished  /d/a  was there already" && finished.error == nil)
        finished.apply(["Error": EndError().variant])
        #expect(!finished.isUnchanged)
    }

    @Test func `shows bar, percentage, sizes, speed and time left`() {
        let line = ProgressLine(utf8: true).text(download("active", received: 3 * mebibyte, total: 12 << 20), speed: mebibyte, columns: 100)
        #expect(line.hasPrefix("データ集２０２６.bin "))
        #expect(line.contains("█████░"))
        #expect(line.hasSuffix("25 %  3.0/12.0 MiB     1.0 MiB/s     10 s left"))
    }

    @Test func `has no percentage and no remaining time while the total is unknown`() {
        for turn in 0..<100 {
            let line = ProgressLine(utf8: true, turn: turn).text(download("active", received: 3 * mebibyte), speed: mebibyte, columns: 100)
            #expect(!line.contains("%") && !line.contains("left"))
            #expect(line.contains("█") && line.contains("░") && line.contains("3.0 MiB") && line.contains("1.0 MiB/s"))
        }
    }

    @Test func `is 100 % only when all bytes are received`() {
        let line = ProgressLine(utf8: true).text(download("active", received: 999_999, total: 1_000_000), speed: nil, columns: 100)
        #expect(line.contains(" 99 %"))
        #expect(ProgressLine(utf8: true).text(download("verifying", received: 5, total: 5), speed: nil, columns: 100).contains("100 %"))
    }

    @Test func `shows how much of an archive is unpacked`() {
        var extracting = download("extracting", received: 5, total: 5)
        func text() -> String { ProgressLine(utf8: true).text(extracting, speed: nil, columns: 100) }
        #expect(text().contains(" 0 %") && text().contains("extracting"))
        extracting.apply(["Extracted": .double(0.5)])
        #expect(text().contains(" 50 %") && text().contains("███░"))
        #expect(extracting.json.first { $0.0 == "extracted" }?.1.text == "0.5")
        extracting.apply(["Extracted": .double(-1), "State": .string("finished")])
        #expect(extracting.extracted == nil)
    }

    @Test(arguments: [1, 10, 19, 20, 40, 60, 79, 80, 120, 300])
    func `is never wider than the terminal, and aligns its columns`(columns: Int) {
        let line = ProgressLine(utf8: true, turn: 3)
        var bars: Set<Int> = []
        for name in ["a", "とても長い名前の写真データ集２０２６年１１月分その一とその二.tar.gz", "👍 ok.zip"] {
            for state in ["queued", "waiting", "active", "paused", "verifying", "extracting"] {
                for total in [-1, 0, 5_000_000_000, Int64.max] {
                    let text = line.text(download(state, received: 1_234_567, total: total, name: name), speed: 98_765, columns: columns)
                    #expect(TerminalText.width(text) <= columns)
                    if let bar = text.firstIndex(where: { "█░".contains($0) }) { bars.insert(TerminalText.width(String(text[..<bar]))) }
                }
            }
        }
        #expect(bars.count <= 1)
    }

    @Test func `is ASCII on an ASCII terminal`() {
        let text = ProgressLine(utf8: false).text(
            download("active", received: 5, total: 10, name: String(repeating: "a", count: 99)), speed: 1, columns: 80)
        #expect(!text.contains { !$0.isASCII })
        #expect(text.contains("#") && text.contains("..."))
    }

    @Test(arguments: [
        (300_000, 30 << 20, "0.2/30.0 MiB"), (0, 1000, "0/1000 B"), (1 << 30, 3 << 30, "1.0/3.0 GiB"), (5, Int64.max, "0.0/8.0 EiB"),
    ])
    func `shows the received bytes in the unit of the total`(received: UInt64, total: Int64, text: String) {
        #expect(
            ProgressLine(utf8: true).text(download("active", received: received, total: total), speed: 0, columns: 100).contains(
                "  \(text)  "))
    }

    @Test func `says why it waits, and for how long`() {
        var waiting = download("waiting")
        waiting.apply(["WaitReason": .string("retry"), "WaitUntil": .uint64(10_000_000)])
        #expect(ProgressLine(utf8: true, now: 1_500_000).text(waiting, speed: nil, columns: 100).hasSuffix("trying again in 9 s"))
        let full = EndError(name: "org.todoku.Error.DiskFull", message: "Full.", details: ["missing-bytes": .uint64(3 << 20)])
        waiting.apply(["Error": full.variant, "WaitUntil": .uint64(0)])
        waiting.apply(["WaitReason": .string("retry")])
        #expect(ProgressLine(utf8: true).text(waiting, speed: nil, columns: 100).hasSuffix("waiting to try again: Full"))
        for (reason, text) in [
            ("paused-all", "paused with everything (todoku resume --all)"), ("disk-space", "waiting for space: 3.0 MiB missing"),
            ("destination", "waiting for its folder: Full"), ("needs-url", "waiting for a fresh link (todoku renew)"),
            ("offline", "offline, waiting to try again"),
            ("host-limit", "waiting for its turn: the most downloads allowed from h at a time are active"),
        ] {
            waiting.apply(["WaitReason": .string(reason)])
            #expect(ProgressLine(utf8: true).text(waiting, speed: nil, columns: 160).hasSuffix(text), "\(reason)")
        }
        waiting.apply(["WaitReason": .string("destination"), "WaitUntil": .uint64(10_000_000)])
        #expect(ProgressLine(utf8: true, now: 1_500_000).text(waiting, speed: nil, columns: 100).hasSuffix("trying again in 9 s: Full"))
    }

    @Test func `names the host, its limit and the time of the turn`() {
        var line = ProgressLine(utf8: true, now: 1_500_000)
        line.limits = ServiceLimits(ServiceStatus(["MaxPerHost": .uint32(4)]))
        var waiting = download("waiting")
        waiting.apply(["WaitReason": .string("host-limit")])
        #expect(
            line.text(waiting, speed: nil, columns: 160)
                .hasSuffix("waiting for its turn: the most downloads allowed from h at a time are active (4)"))
        let reason = "requests to h are spaced out, by --request-interval or because the server refused some"
        waiting.apply(["WaitReason": .string("rate-limit"), "WaitUntil": .uint64(10_000_000)])
        #expect(line.text(waiting, speed: nil, columns: 160).hasSuffix("its turn in 9 s: \(reason)"))
        // The time was estimated, and is over.
        line.now = 10_000_000
        #expect(line.text(waiting, speed: nil, columns: 160).hasSuffix("waiting for its turn: \(reason)"))
    }
}

@Suite struct `The lines of a wait` {
    private let cause = "There is no host with the name no-such-host.example.org; check the URL"

    private func waiting(_ number: UInt64 = 7, name: String = "データ集２０２６.bin") -> DownloadDescription {
        let error = EndError(name: "org.todoku.Error.Network", message: "\(cause).", details: [:])
        return DownloadDescription(
            DownloadReference(number: number),
            [
                "State": .string("waiting"), "FileName": .string(name), "Url": .string("http://h/x"), "WaitReason": .string("retry"),
                "Error": error.variant, "WaitUntil": .uint64(10_000_000),
            ])
    }

    @Test func `tell the whole cause and the next try at 80 columns, below one another`() {
        let line = ProgressLine(utf8: true, now: 1_500_000)
        let lines = line.lines(waiting(name: "a.bin"), speed: nil, columns: 79, rows: 23)
        #expect(
            lines == [
                "a.bin         trying again in 9 s: There is no host with the name",
                "              no-such-host.example.org; check the URL",
            ])
        #expect(line.lines(waiting(), speed: nil, columns: 160, rows: 23).count == 1, "where there is room, the wait has one line")
    }

    @Test(arguments: [12, 19, 20, 29, 39, 59, 79, 119])
    func `are never wider than the terminal, and cut nothing`(columns: Int) {
        for catalog in [Catalog(.english), Catalog(.japanese)] {
            let line = ProgressLine(utf8: true, catalog: catalog, now: 1_500_000)
            let lines = line.lines(waiting(), speed: nil, columns: columns, rows: 100)
            #expect(lines.allSatisfy { TerminalText.width($0) <= columns }, "\(lines)")
            // What is behind the name, which a narrow terminal cuts.
            let whole = String(line.lines(waiting(), speed: nil, columns: 1000, rows: 1)[0].dropFirst(20)).filter { $0 != " " }
            #expect(lines.joined().filter { $0 != " " }.hasSuffix(whole), "\(lines)")
        }
    }

    @Test func `are one, whose middle is cut out, where the terminal has no more`() {
        let line = ProgressLine(utf8: true, now: 1_500_000)
        for (columns, rows) in [(79, 1), (39, 2), (11, 23)] {
            let lines = line.lines(waiting(), speed: nil, columns: columns, rows: rows)
            #expect(lines.count == 1 && lines[0].contains("…") && TerminalText.width(lines[0]) <= columns, "\(lines)")
        }
    }

    /// The lines that a terminal of 80 columns shows of `count` downloads, which wait for the same cause.
    @BusActor private func screen(_ count: Int, rows: Int) -> [String] {
        let display = LiveDisplay(utf8: true)
        for number in 1...count { display.changed(waiting(UInt64(number), name: "\(number).bin"), before: nil) }
        return display.bars(Terminal(columns: 80, rows: rows)).map(\.text)
    }

    /// How many of `lines` begin a download, and how many downloads have their whole cause.
    private func shown(_ lines: [String]) -> (Int, Int) {
        (lines.count { $0.contains(".bin ") }, lines.count { $0.hasPrefix("  ") && $0.hasSuffix("check the URL") })
    }

    @Test(arguments: [(3, 24, 6, 3, 3), (20, 24, 23, 17, 5), (100, 24, 23, 17, 5), (1, 2, 1, 1, 0), (1, 3, 2, 1, 1), (3, 3, 2, 1, 0)])
    @BusActor func `are fewer than those of the terminal, and the first downloads keep theirs`(
        count: Int, rows: Int, lines: Int, downloads: Int, whole: Int
    ) {
        let drawn = screen(count, rows: rows)
        #expect(drawn.count == lines, "\(drawn)")
        #expect(shown(drawn) == (downloads, whole), "\(drawn)")
        let rest = count - downloads
        #expect(drawn.last?.hasPrefix("and \(rest) more") == (rest > 0), "\(drawn)")
    }
}

@Suite struct `Lines without a terminal` {
    @Test func `report each tenth once`() {
        var steps = ProgressSteps()
        let told = (0...1000).compactMap { steps.next(received: $0, total: 1000) }
        #expect(told.count == 10)
        #expect(told.first == "10 % 100 B of 1000 B")
        #expect(told.last == "100 % 1000 B of 1000 B")
    }

    @Test func `report each doubling while the total is unknown`() {
        var steps = ProgressSteps()
        let told = stride(from: 0, through: 20 << 20, by: 4096).compactMap { steps.next(received: UInt64($0), total: nil) }
        #expect(told == ["1.0 MiB", "2.0 MiB", "4.0 MiB", "8.0 MiB", "16.0 MiB"])
    }

    @Test @BusActor func `report an end once, whatever follows`() {
        nonisolated(unsafe) var output = ""  // the display writes only during its calls, on this actor
        let display = PlainDisplay { output += $0 }
        let (active, finished) = (download("active"), download("finished"))
        display.queued(active.reference)
        display.changed(active, before: nil)
        display.changed(active, before: active)
        display.changed(finished, before: active)
        display.changed(finished, before: finished)
        display.removed(active.reference)
        #expect(output == "7 queued\n7 started データ集２０２６.bin\n7 finished \n7 removed\n")
    }

    @Test @BusActor func `say that a file was there already, and leave the line of its path alone`() {
        nonisolated(unsafe) var output = ""  // the display writes only during its calls, on this actor
        let display = PlainDisplay { output += $0 }
        var finished = download("finished")
        finished.apply(["Path": .string("/d/a"), "Error": EndError(details: ["unchanged": .bool(true)]).variant])
        display.changed(finished, before: download("queued"))
        display.changed(finished, before: finished)
        #expect(output == "7 unchanged: was there already\n7 finished /d/a\n")
    }
}

extension `Lines without a terminal` {
    @Test @BusActor func `say why a download waits, and until when`() {
        nonisolated(unsafe) var output = ""  // the display writes only during its calls, on this actor
        let display = PlainDisplay { output += $0 }
        let error = EndError(name: "org.todoku.Error.Network", message: "The host h was not found.", details: [:])
        var waiting = download("waiting")
        waiting.apply(["WaitReason": .string("retry"), "Error": error.variant, "Attempts": .uint32(1)])
        display.changed(waiting, before: download("active"))
        display.changed(waiting, before: waiting)
        let before = waiting
        waiting.apply(["WaitUntil": .uint64(1), "Attempts": .uint32(2)])
        display.changed(waiting, before: before)
        let until = Clock.text(WallTime(microseconds: 1))
        #expect(output == "7 waiting retry: The host h was not found.\n7 waiting retry until \(until): The host h was not found.\n")
    }

    @Test(arguments: [
        ("host-limit", "waiting host-limit: the most downloads allowed from h at a time are active (4)"),
        ("paused-all", "waiting paused-all: everything is paused; “todoku resume --all” resumes it"),
        ("needs-url", "waiting needs-url: its link has expired; “todoku renew 7 URL” gives it a fresh one"),
        ("metered", "waiting metered: the connection is metered; waiting for an unmetered one"),
        ("destination", "waiting destination: its folder cannot be written"), ("newer", "waiting newer"),
    ])
    @BusActor func `say what a download waits for, and what to do`(reason: String, line: String) {
        nonisolated(unsafe) var output = ""  // the display writes only during its calls, on this actor
        let display = PlainDisplay { output += $0 }
        display.learned(ServiceLimits(ServiceStatus(["MaxPerHost": .uint32(4)])))
        var waiting = download("waiting")
        waiting.apply(["WaitReason": .string(reason)])
        display.changed(waiting, before: nil)
        #expect(output == "7 \(line)\n")
    }
}

extension `Lines without a terminal` {
    /// The details of the lines that a display writes for one download that changes as `changes` say.
    @BusActor private func lines(_ changes: [[String: Variant]]) -> [String] {
        nonisolated(unsafe) var output = ""  // the display writes only during its calls, on this actor
        let display = PlainDisplay { output += $0 }
        var now = download("waiting")
        var before: DownloadDescription?
        for change in changes {
            now.apply(change)
            display.changed(now, before: before)
            before = now
        }
        return output.split(separator: "\n").map { $0.dropFirst(2).split(separator: ":")[0].description }
    }

    @Test @BusActor func `tell each new reason of a wait once, and no new time`() {
        let told = lines([
            ["WaitReason": .string("offline")], ["WaitUntil": .uint64(5_000_000), "Ahead": .uint32(3)], ["WaitUntil": .uint64(0)],
            ["WaitReason": .string("paused-all")], ["Received": .uint64(7)], ["WaitReason": .string("offline")],
            ["WaitReason": .string("destination")],
        ])
        #expect(told == ["waiting offline", "waiting paused-all", "waiting offline", "waiting destination"])
    }

    @Test @BusActor func `do not tell each change between the limits of a host`() {
        let (rate, most) = (["WaitReason": Variant.string("rate-limit")], ["WaitReason": Variant.string("host-limit")])
        let turn = ["State": Variant.string("queued"), "WaitReason": .string("")]
        let again = ["State": Variant.string("waiting")].merging(rate) { $1 }
        let held = ["WaitReason": Variant.string("paused-all")]
        #expect(lines([rate, most, rate, turn, again, most, rate]) == ["waiting rate-limit", "waiting host-limit"])
        #expect(lines([rate, held, rate]) == ["waiting rate-limit", "waiting paused-all", "waiting rate-limit"])
    }

    @Test @BusActor func `do not tell each change of the bytes that a full disk lacks`() {
        func full(_ missing: String) -> [String: Variant] {
            let error = EndError(name: "org.todoku.Error.DiskFull", message: "\(missing) more are needed.", details: [:])
            return ["WaitReason": .string("disk-space"), "Error": error.variant]
        }
        let other = EndError(name: "org.todoku.Error.WriteFailed", message: "The disk does not answer.", details: [:])
        #expect(lines([full("3 MiB"), full("2 MiB"), full("1 MiB")]) == ["waiting disk-space"])
        let gone: [String: Variant] = ["WaitReason": .string("destination"), "Error": other.variant]
        #expect(lines([full("3 MiB"), gone, gone]) == ["waiting disk-space", "waiting destination"])
    }
}

@Suite struct `The message after Ctrl-C` {
    @Test func `names the downloads that continue`() {
        #expect(
            Interrupt.sentence([DownloadReference(number: 7)])
                == "the download continues in the background; “todoku watch 7” shows it, and “todoku cancel 7” cancels it")
        #expect(Interrupt.sentence([DownloadReference(number: 7), DownloadReference(number: 9)]).contains("“todoku watch 7 9” shows them"))
    }
}

@Suite struct `The client's speed` {
    @Test func `averages the written bytes over about three seconds`() {
        let start = ContinuousClock.now
        var meter = ClientSpeedMeter(0, at: start)
        #expect(meter.add(1000, at: start + .milliseconds(500)) == 2000)
        var speed: UInt64 = 0
        for tenth in 1...100 { speed = meter.add(400, at: start + .milliseconds(500 + tenth * 100)) }
        #expect((3800...4000).contains(speed))
    }

    @Test func `shows no peak for two signals at one instant`() {
        let start = ContinuousClock.now
        var meter = ClientSpeedMeter(1000, at: start)
        #expect(meter.add(1_000_000, at: start) == 1000)
    }
}
