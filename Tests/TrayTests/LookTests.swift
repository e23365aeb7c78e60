import DBus
import DownloadModel
import EventLoop
import StatusNotifier
import Testing

@testable import TodokuClient
@testable import todoku_tray

/// An overview as the service would send it.
private func overview(_ status: [String: Variant] = [:], _ current: [DownloadDescription] = [], _ recent: [DownloadDescription] = [])
    -> ServiceOverview
{
    var overview = ServiceOverview(status: ServiceStatus(status))
    (overview.current, overview.recent) = (current, recent)
    return overview
}

private func download(_ number: UInt64, _ state: String, _ more: [String: Variant] = [:]) -> DownloadDescription {
    var properties: [String: Variant] = ["State": .string(state), "FileName": .string("file_\(number).zip"), "Received": .uint64(512)]
    properties.merge(more) { $1 }
    return DownloadDescription(DownloadReference(number: number), properties)
}

private func lookAt(_ overview: ServiceOverview?, isPresent: Bool = true, failures: Int = 0) -> TrayLook {
    TrayLook(overview, isPresent: isPresent, unseenFailures: failures)
}

/// 2 of 3 downloads are active, 25 % is received, at 1 MiB/s with 46 s left.
private let busy: [String: Variant] = [
    "Active": .uint32(2), "Remaining": .uint32(3), "Queued": .uint32(1), "Received": .uint64(15 << 20), "Total": .int64(60 << 20),
    "Speed": .uint64(1 << 20),
]

@Suite struct `The tray's text` {
    private let texts = TrayTexts(.english)

    @Test func `has the count, the percentage, the speed and the remaining time`() {
        let look = lookAt(overview(busy, [download(1, "active"), download(2, "active"), download(3, "queued")]))
        #expect(look.activity == .downloading(2) && look.percent == 25 && look.timeLeft == .seconds(46) && look.isBusy)
        #expect(texts.summary(look) == "2 downloading · 25 %")
        #expect(texts.details(look) == "1.0 MiB/s · 46 s left")
        #expect(texts.line(look) == "2 downloading · 25 % · 1.0 MiB/s · 46 s left")
        #expect(look.ring(turn: 3) == ProgressRing(lit: .percent(25)))
    }

    @Test func `contains no unknown number`() {
        let look = lookAt(overview(busy.merging(["Total": .int64(-1), "Speed": .uint64(0)]) { $1 }))
        #expect(look.percent == nil && look.timeLeft == nil)
        #expect(texts.line(look) == "2 downloading · 0 B/s")
        #expect(look.ring(turn: 3) == ProgressRing(lit: .moving(turn: 3)))
        // A remaining time of many days is not shown.
        #expect(lookAt(overview(busy.merging(["Speed": .uint64(1)]) { $1 })).timeLeft == nil)
    }

    @Test func `is the reason why no download is active`() {
        func one(_ state: String, _ more: [String: Variant] = [:], _ status: [String: Variant] = [:]) -> TrayLook {
            lookAt(overview(["Remaining": .uint32(1)].merging(status) { $1 }, [download(1, state, more)]))
        }
        #expect(texts.line(one("paused")) == "1 paused" && one("paused").ring(turn: 0).sign == .pause)
        #expect(texts.line(one("waiting", ["WaitReason": .string("offline")])) == "1 waiting")
        #expect(texts.line(one("queued")) == "1 waiting" && one("queued").ring(turn: 0).sign == .arrow)
        let held = one("waiting", ["WaitReason": .string("paused-all")], ["Paused": .bool(true)])
        #expect(texts.line(held) == "Everything is paused · 1 download left" && held.isBusy && held.ring(turn: 0).sign == .pause)
        let empty = lookAt(overview(["Paused": .bool(true)]))
        #expect(texts.line(empty) == "Everything is paused" && !empty.isBusy)
        // Only ten downloads are listed, so the state of the others is unknown.
        #expect(lookAt(overview(["Remaining": .uint32(12)], (1...10).map { download($0, "paused") })).activity == .waiting(12))
        #expect(texts.line(lookAt(nil, isPresent: false)) == "No downloads")
    }

    @Test func `names the speed limit while downloads are active`() {
        let limited = busy.merging(["SpeedLimit": .uint64(500 << 10)]) { $1 }
        #expect(texts.details(lookAt(overview(limited))) == "1.0 MiB/s · 46 s left · at most 500.0 KiB/s")
        #expect(texts.details(lookAt(overview(["SpeedLimit": .uint64(500 << 10)]))) == "")
    }

    @Test func `names unseen failures`() {
        #expect(texts.line(lookAt(overview(), failures: 2)) == "2 failed")
        #expect(texts.line(lookAt(overview(busy), failures: 1)) == "2 downloading · 25 % · 1.0 MiB/s · 46 s left · 1 failed")
    }

    @Test func `names the checking of files if nothing else is left`() {
        let checking = lookAt(overview(["Remaining": .uint32(1)], [download(1, "verifying")]))
        #expect(texts.line(checking) == "1 checking" && checking.isBusy)
        let more = overview(["Remaining": .uint32(2)], [download(1, "verifying"), download(2, "queued")])
        #expect(texts.line(lookAt(more)) == "2 waiting")
        let unpacking = overview(
            ["Remaining": .uint32(2)], [download(1, "verifying"), download(2, "extracting", ["Extracted": .double(0.5)])])
        #expect(texts.line(lookAt(unpacking)) == "2 unpacking")
        #expect(texts.line(unpacking.current[1]).hasSuffix(" — unpacking · 50 %"))
    }

    @Test func `is the last state of paused downloads, after the service has exited`() {
        let paused = overview(
            ["Remaining": .uint32(12), "Received": .uint64(1), "Total": .int64(4)],
            (1...9).map { download($0, "paused") } + [download(10, "waiting", ["WaitReason": .string("needs-url")])])
        #expect(lookAt(paused, isPresent: false) == lookAt(paused))
        let held = overview(
            ["Remaining": .uint32(1), "Paused": .bool(true)], [download(1, "waiting", ["WaitReason": .string("paused-all")])])
        #expect(lookAt(held, isPresent: false) == lookAt(held) && lookAt(held, isPresent: false).isBusy)
        // The same holds after the service died.
        let mixed = lookAt(overview(busy, [download(1, "active"), download(2, "active"), download(3, "paused")]), isPresent: false)
        #expect(texts.line(mixed) == "1 paused" && mixed.current.map(\.reference) == [DownloadReference(number: 3)])
    }

    @Test func `keeps finished files and settings after the service died, but no active downloads`() {
        let last = overview(
            busy.merging(["SpeedLimit": .uint64(7)]) { $1 }, [download(1, "active")], [download(2, "finished")])
        let look = lookAt(last, isPresent: false)
        #expect(look.activity == .idle && look.current.isEmpty && look.recent.count == 1 && look.speedLimit == 7 && look.percent == nil)
    }

    @Test(arguments: [
        (0, "1 s left"), (59, "59 s left"), (60, "1 min left"), (61, "2 min left"), (3540, "59 min left"), (3541, "1 h left"),
        (3660, "1 h 1 min left"), (90_000, "1 d 1 h left"),
    ])
    func `rounds the remaining time up`(seconds: Int, text: String) { #expect(texts.left(.seconds(seconds)) == text) }

    @Test func `is short, with both ends of a long name`() {
        #expect(TrayTexts.shortened("short.zip", to: 20) == "short.zip")
        #expect(TrayTexts.shortened("a very long file name of nothing.tar.gz", to: 20) == "a very long f…tar.gz")
        #expect(TrayTexts.shortened(String(repeating: "写真", count: 50), to: 44).count == 44)
    }

    @Test func `names no folder of a file whose name begins with a combining mark`() {
        #expect(texts.name(download(9, "finished", ["Path": .string("/home/u/\u{301}a.zip")])) == "\u{301}a.zip")
    }
}

@Suite struct `The tray's menu` {
    private func items(_ overview: ServiceOverview?, isPresent: Bool = true, startsAtLogin: Bool = false, _ wishes: Wishes = Wishes())
        -> [MenuItem]
    {
        TrayMenu(
            look: TrayLook(overview, isPresent: isPresent, unseenFailures: 0), texts: TrayTexts(.english),
            startsAtLogin: startsAtLogin
        ) { wishes.all.append($0) }.items
    }

    @BusActor private final class Wishes: Sendable {
        var all: [TrayWish] = []
        nonisolated init() {}
    }

    @Test func `lists the numbers, running downloads, all, finished files, the folder, and the settings`() {
        let items = items(
            overview(
                busy,
                [download(1, "active", ["Total": .int64(1024), "Speed": .uint64(2048)]), download(2, "paused"), download(3, "queued")],
                [download(9, "finished", ["Path": .string("/home/u/日本.zip")]), download(8, "failed")]), startsAtLogin: true)
        #expect(
            items.map { $0.isSeparator ? "-" : $0.label } == [
                "2 downloading · 25 % · 1.0 MiB/s · 46 s left", "-", "file_1.zip — 50 % · 2.0 KiB/s", "file_2.zip — paused",
                "file_3.zip — queued", "-", "Pause all", "Recent downloads", "Open the download folder", "-", "Speed limit",
                "Start at login", "Quit",
            ])
        #expect(!items[0].isEnabled && items[0].action == nil)
        #expect(items[2].children.map(\.label) == ["Pause", "Cancel"] && items[3].children.map(\.label) == ["Resume", "Cancel"])
        #expect(items[7].children.map(\.label) == ["日本.zip — 512 B", "file_8.zip — failed · try again"])
        #expect(items[11].toggle == .check(true))
    }

    @Test func `lists ten running downloads, and says how many more there are`() {
        let many = busy.merging(["Remaining": .uint32(25)]) { $1 }
        let items = items(overview(many, (1...10).map { download($0, "active") }))
        #expect(items.count { !$0.children.isEmpty && $0.label.hasPrefix("file_") } == 10)
        #expect(items.contains { $0.label == "… and 15 more" && !$0.isEnabled })
    }

    @Test func `marks the current limit, also one that it does not offer`() throws {
        func limits(_ limit: Speed) throws -> [String] {
            let menu = try #require(items(overview(["SpeedLimit": .uint64(limit)])).first { $0.key == "limit" })
            return menu.children.map { ($0.toggle == .radio(true) ? "*" : "") + $0.label }
        }
        #expect(try limits(0) == ["*No limit", "10.0 MiB/s", "5.0 MiB/s", "1.0 MiB/s", "500.0 KiB/s", "100.0 KiB/s"])
        #expect(try limits(3 << 20) == ["No limit", "10.0 MiB/s", "5.0 MiB/s", "*3.0 MiB/s", "1.0 MiB/s", "500.0 KiB/s", "100.0 KiB/s"])
    }

    @Test @BusActor func `performs the action of each entry`() {
        let wishes = Wishes()
        let items = items(
            overview(
                busy.merging(["Paused": .bool(true)]) { $1 },
                [download(1, "active"), download(2, "waiting", ["WaitReason": .string("paused-all")])],
                [download(9, "finished", ["Path": .string("/a")]), download(8, "failed")]), wishes)
        func click(_ items: [MenuItem]) {
            for item in items {
                item.action?()
                click(item.children)
            }
        }
        click(items)
        let (one, two) = (DownloadReference(number: 1), DownloadReference(number: 2))
        let limits = ([0, 10 << 20, 5 << 20, 1 << 20, 500 << 10, 100 << 10] as [Speed]).map { TrayWish.limitSpeed($0) }
        let before: [TrayWish] = [
            .pause(one), .cancel(one), .resumeAll, .cancel(two), .resumeAll,
            .open(DownloadReference(number: 9), path: "/a"), .retry(DownloadReference(number: 8)), .openDownloadFolder,
        ]
        let after: [TrayWish] = [.startAtLogin(true), .quit]
        #expect(wishes.all == before + limits + after)
    }

    @Test func `resumes a single paused download, or all if everything is paused`() {
        let waiting = download(2, "waiting", ["WaitReason": .string("paused-all")])
        let items = items(overview(["Remaining": .uint32(2), "Paused": .bool(true)], [download(1, "paused"), waiting]))
        #expect(items[2].children.map(\.label) == ["Resume", "Cancel"] && items[3].children.map(\.label) == ["Resume all", "Cancel"])
    }

    @Test func `offers no action for a file that went into a descriptor`() throws {
        let recent = try #require(items(overview([:], [], [download(1, "finished")])).first { $0.key == "recent" })
        let entry = recent.children[0]
        #expect(entry.label == "file_1.zip — 512 B" && !entry.isEnabled && entry.action == nil)
    }

    @Test func `has unique keys`() {
        let one = [download(1, "active")]
        func keys(_ items: [MenuItem]) -> [String] { items.flatMap { [$0.key] + keys($0.children) } }
        let all = keys(items(overview(busy, one, [download(1, "finished", ["Path": .string("/a")])])))
        #expect(Set(all).count == all.count)
    }
}

@Suite struct `Unseen failures` {
    private let nine = DownloadReference(number: 9)

    @Test func `are those since the user last looked, except retried ones`() {
        let both = overview(
            [:], [], [download(9, "failed", ["EndedAt": .uint64(100)]), download(8, "failed", ["EndedAt": .uint64(50)])])
        var failures = UnseenFailures(since: WallTime(microseconds: 50))
        failures.take(both)
        #expect(failures.count == 1)
        failures.take(both)
        // Later ends of other downloads do not matter.
        failures.take(overview([:], [], [download(20, "finished", ["EndedAt": .uint64(200)])]))
        #expect(failures.count == 1)
        failures.take(overview(busy, [download(9, "active")]))
        #expect(failures.count == 0)
        failures.take(both)
        failures.see(both)
        failures.take(both)
        #expect(failures.count == 0)
    }

    @Test func `are counted up to a bound`() {
        var failures = UnseenFailures(since: WallTime(microseconds: 0))
        failures.insert(nine)
        failures.insert(nine)
        #expect(failures.count == 1)
        failures.remove(nine)
        for number in 0...UInt64(UnseenFailures.most) { failures.insert(DownloadReference(number: number)) }
        #expect(failures.count == UnseenFailures.most)
    }
}

@Suite struct `Steps of the speed limit` {
    @Test func `go from no limit down to the lowest limit, and back`() {
        var down: [Speed] = [0]
        while let next = SpeedSteps.next(after: down[down.count - 1], faster: false) { down.append(next) }
        #expect(down == [0] + SpeedSteps.limits.reversed())
        var up = [down[down.count - 1]]
        while let next = SpeedSteps.next(after: up[up.count - 1], faster: true) { up.append(next) }
        #expect(up == down.reversed())
    }

    @Test func `start from any limit`() {
        #expect(SpeedSteps.next(after: 300 << 10, faster: true) == 500 << 10)
        #expect(SpeedSteps.next(after: 300 << 10, faster: false) == 200 << 10)
        #expect(SpeedSteps.next(after: 1 << 40, faster: true) == 0)
        #expect(SpeedSteps.next(after: 1, faster: false) == nil)
    }
}
