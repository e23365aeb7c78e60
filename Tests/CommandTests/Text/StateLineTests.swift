import DBus
import DownloadModel
import EventLoop
import Localization
import Testing

@testable import TodokuClient
@testable import todoku

extension `A progress line` {
    @Test func `names the status with which the server has refused requests, and how to undo the slowing`() {
        var waiting = download("waiting", name: "q1")
        waiting.apply(["WaitReason": .string("rate-limit")])
        var line = ProgressLine(utf8: true)
        func reason(rule interval: Duration?, _ slowed: SlowedHost) -> String {
            var status = ServiceStatus([:])
            if let interval { status.hostRules = ["h": HostRule(requestInterval: interval)] }
            var limits = ServiceLimits(status)
            limits.slowed = ["http://h:80": slowed]
            line.limits = limits
            return line.text(waiting, speed: nil, columns: 200)
        }
        let refused = "waiting for its turn: h answered 503, so it gets fewer requests; “todoku host h --reset” ends this"
        let interval = SlowedHost(interval: .seconds(2), since: nil, pausedUntil: nil, status: 503)
        #expect(reason(rule: nil, interval).hasSuffix(refused))
        let pause = SlowedHost(interval: .zero, since: nil, pausedUntil: WallTime(microseconds: 1 << 52), status: 503)
        #expect(reason(rule: nil, pause).hasSuffix(refused))
        #expect(reason(rule: .seconds(1), interval).hasSuffix(refused))
        let over = SlowedHost(interval: .zero, since: nil, pausedUntil: WallTime(microseconds: 1), status: 503)
        #expect(reason(rule: .seconds(1), over).hasSuffix("waiting for its turn: h allows one request a second"), "the pause is over")
        #expect(reason(rule: .seconds(3600), interval).hasSuffix("waiting for its turn: h allows one request an hour"), "the slower one")
    }

    /// With a bar only where there is room for bar and word.
    @Test(arguments: ["paused", "verifying", "extracting"])
    func `has the word of the state at any width`(state: String) {
        for catalog in [Catalog(.english), Catalog(.japanese)] {
            let line = ProgressLine(utf8: true, catalog: catalog)
            for columns in 20...120 {
                for total in [-1, 0, 5_000_000_000, Int64.max] {
                    let stopped = download(state, received: 1_234_567, total: total, name: "q1")
                    let text = line.text(stopped, speed: nil, columns: columns)
                    #expect(text.hasPrefix("q1 ") && text.contains("  " + catalog.state(stopped.state)), "\(columns): \(text)")
                    #expect(TerminalText.width(text) <= columns, "\(columns): \(text)")
                }
            }
        }
    }

    @Test func `has the word paused in the place of the sizes, and of the bar where it is narrow`() {
        let paused = download("paused", received: 50, total: 100, name: "q1")
        let line = ProgressLine(utf8: true)
        let wide = line.text(paused, speed: nil, columns: 57)
        #expect(wide.hasPrefix("q1 ") && wide.contains("█░") && wide.hasSuffix("  50 %  paused"), "\(wide)")
        let narrow = line.text(paused, speed: nil, columns: 39)
        #expect(narrow.hasPrefix("q1 ") && narrow.hasSuffix("  paused   50 %") && !narrow.contains("░"), "\(narrow)")
    }

    @Test func `says why a download is queued, once the limits are known`() {
        let queued = download("queued", name: "q1")
        var line = ProgressLine(utf8: true)
        #expect(line.text(queued, speed: nil, columns: 160).hasSuffix("  queued"))
        line.limits = ServiceLimits(ServiceStatus(["MaxActive": .uint32(4), "Active": .uint32(3)]))
        #expect(line.text(queued, speed: nil, columns: 160).hasSuffix("  queued"), "its turn comes")
        line.limits = ServiceLimits(ServiceStatus(["MaxActive": .uint32(4), "Active": .uint32(4)]))
        let cause = "4 downloads are active, the most allowed at a time"
        #expect(line.text(queued, speed: nil, columns: 160).hasSuffix("  queued: \(cause)"))
        let narrow = line.lines(queued, speed: nil, columns: 39, rows: 23)
        #expect(narrow.count > 1 && narrow.allSatisfy { TerminalText.width($0) <= 39 }, "\(narrow)")
        #expect(narrow.flatMap { $0.split(separator: " ") }.joined(separator: " ") == "q1 queued: \(cause)", "\(narrow)")
    }

    @Test @BusActor func `says it for the first queued download only, as all have the same cause`() {
        let display = LiveDisplay(utf8: true)
        display.learned(ServiceLimits(ServiceStatus(["MaxActive": .uint32(1), "Active": .uint32(1)])))
        for number in 1...100 {
            let properties: [String: Variant] = ["State": .string("queued"), "Url": .string("http://h/\(number).bin")]
            display.changed(DownloadDescription(DownloadReference(number: UInt64(number)), properties), before: nil)
        }
        let lines = display.bars(Terminal(columns: 80, rows: 24)).map(\.text)
        let text = lines.joined().split(separator: " ").joined(separator: " ")
        #expect(
            text.hasPrefix("1.bin queued: another download is active, and only one may be active at a time2.bin queued3.bin "), "\(lines)")
        #expect(lines.count { $0.hasSuffix("  queued") } == 20 && lines.last == "and 79 more", "\(lines)")
    }
}

extension `Lines without a terminal` {
    @Test @BusActor func `say once why a download stays queued`() {
        nonisolated(unsafe) var output = ""  // the display writes only during its calls, on this actor
        let display = PlainDisplay { output += $0 }
        let queued = download("queued", name: "q1")
        display.changed(queued, before: nil)
        display.staysQueued(queued)
        display.learned(ServiceLimits(ServiceStatus(["MaxActive": .uint32(4), "Active": .uint32(3)])))
        display.staysQueued(queued)
        #expect(output == "", "its turn comes")
        display.learned(ServiceLimits(ServiceStatus(["MaxActive": .uint32(4), "Active": .uint32(4)])))
        display.staysQueued(queued)
        display.staysQueued(queued)
        #expect(output == "7 queued: 4 downloads are active, the most allowed at a time\n")
    }
}

@Suite struct `The list of queued downloads` {
    private let cause = "another download is active, and only one may be active at a time"

    private func table(_ states: [String], active: UInt32 = 1) -> Table {
        let downloads = states.enumerated().map { number, state in
            DownloadDescription(
                DownloadReference(number: UInt64(number + 1)),
                ["State": .string(state), "Url": .string("http://h/x"), "Ahead": .uint32(UInt32(number))])
        }
        return Table.of(downloads, ServiceLimits(ServiceStatus(["MaxActive": .uint32(1), "Active": .uint32(active)])))
    }

    @Test(arguments: [40, 80, 120])
    func `tells their cause once at a terminal, below the first of them`(width: Int) {
        let lines = table(["active"] + Array(repeating: "queued", count: 1000)).text(width: width, hasColour: false).split(separator: "\n")
        #expect(lines.allSatisfy { TerminalText.width(String($0)) <= width }, "\(lines.prefix(6))")
        #expect(lines[2].contains("  queued"), "\(lines.prefix(6))")
        let note = lines.dropFirst(3).prefix { !$0.contains("  queued") }
        #expect(note.joined(separator: " ").split(separator: " ").joined(separator: " ") == "\(cause); 1 ahead", "\(note)")
        #expect(lines.count == 1 + 1 + 1000 + note.count)
    }

    @Test func `tells their cause at the end of each line elsewhere, with the number of those ahead`() {
        let lines = table(["active", "queued", "queued"]).text(width: nil).split(separator: "\n")
        #expect(lines.count == 4 && lines[0].hasSuffix("  REASON"), "\(lines)")
        #expect(lines[2].hasSuffix("  \(cause); 1 ahead") && lines[3].hasSuffix("  \(cause); 2 ahead"), "\(lines)")
    }

    @Test func `tells none while no limit is reached`() {
        let lines = table(["queued", "queued"], active: 0).text(width: nil).split(separator: "\n")
        #expect(lines.count == 3 && !lines[0].contains("REASON"), "\(lines)")
    }
}
