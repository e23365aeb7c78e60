import DBus
import DownloadModel
import Localization
import Testing

@testable import TodokuClient
@testable import todoku

private func download(_ state: String, received: UInt64 = 0, total: Int64 = -1, name: String = "q1") -> DownloadDescription {
    DownloadDescription(
        DownloadReference(number: 7),
        [
            "State": .string(state), "Received": .uint64(received), "Total": .int64(total), "FileName": .string(name),
            "Url": .string("http://h/x"),
        ])
}

extension `A progress line` {
    @Test func `names the status with which the server has refused requests, and how to undo the slowing`() {
        var waiting = download("waiting")
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
}
