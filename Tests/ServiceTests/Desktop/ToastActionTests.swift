internal import DBus
internal import DownloaderInterface
internal import EventLoop
internal import Glibc
internal import TestSupport
internal import Testing

private let always: [String: Variant] = ["notify": .string("always")]

/// A program that the service finds as `xdg-open`, and that records the paths it receives.
struct FakeOpener {
    private let tools = TemporaryFolder("todoku-tools")

    init() {
        writeFile(
            tools("xdg-open"),
            "#!/bin/sh\nprintf '%s\\n' \"$1\" >> \(tools("new"))\ncp \(tools("new")) \(tools("next"))\nmv \(tools("next")) \(tools("opened"))\n"
                .utf8,
            mode: 0o755)
    }

    var path: String { "\(tools.path):\(processEnvironment()["PATH"] ?? "/usr/bin:/bin")" }

    /// The received paths, in order.
    var opened: [String] {
        readFile(tools("opened")).map { String(decoding: $0, as: UTF8.self).split(separator: "\n").map(String.init) } ?? []
    }
}

extension OddServer {
    fileprivate func toasts(_ summary: String) -> [Received] { received.filter { $0.summary == summary } }
    /// Whether `times` toasts with this summary have arrived.
    fileprivate func isShown(_ summary: String, times: Int = 1) -> Bool { toasts(summary).count >= times }
}

/// After a slow call, as on a busy machine, the service shows no progress, and closes no toast of an end, for a minute.
private let longEnough: Duration = .seconds(150)

private let finished = "ダウンロードが完了しました"
private let failed = "ダウンロードに失敗しました"

@Suite struct `The toast of progress` {
    private static func slow(_ gate: Gate) -> ScriptedServer {
        ScriptedServer { request, reply in
            if request.path == "/quick" { return reply.respond(200, text: "x") }
            reply.head(200, length: 100_000)
            reply.send(String(repeating: "x", count: 40_000))
            while !gate.isOpen, reply.send("x") { poll(nil, 0, 100) }
            reply.close()
        }
    }

    @Test func `is one for all that lasts, updated in place, and closed before the toast of the last end`() async throws {
        let running = try await Running.start()
        let toasts = try await OddServer(name: "mako", at: running.world.bus.address)
        let gate = Gate()
        let server = Self.slow(gate)
        var paths: [ObjectPath] = []
        for name in ["a", "b", "c"] { paths.append(try await running.download(server.url("/\(name)"), always)) }
        func isTold(_ prefix: String) async -> Bool {
            await eventually(within: longEnough) { await toasts.received.last?.summary.hasPrefix(prefix) == true }
        }
        #expect(await isTold("3 件ダウンロード中 · 4"))
        #expect(await toasts.received.dropFirst().allSatisfy { $0.replaces == 1 })
        try await running.client.cancel(paths[0])
        #expect(await isTold("2 件ダウンロード中 · 4"))
        // A download that ends at once has its own toast, and the toast of the others stays.
        _ = try await running.fetch(server.url("/quick"), always)
        #expect(await eventually { await toasts.isShown(finished) })
        try await running.client.cancel(paths[1])
        #expect(await isTold("ダウンロード中"))
        let last = try #require(await toasts.received.last)
        #expect(last.replaces == 1 && last.body.hasPrefix("c — 4") && last.hints["value"].map { $0 != .int32(0) } == true, "\(last)")
        #expect(await toasts.closed == [])
        try await running.client.cancel(paths[2])
        #expect(await eventually { await toasts.closed == [1] })
        gate.open()
        #expect(await running.daemon.stop().isClean)
    }

    @Test func `stays closed for its downloads after the user closed it; a batch counts as its downloads`() async throws {
        let running = try await Running.start()
        let toasts = try await OddServer(name: "dunst", at: running.world.bus.address)
        let gate = Gate()
        let server = Self.slow(gate)
        let first = try await running.download(server.url("/a"), always)
        #expect(await eventually(within: longEnough) { await !toasts.received.isEmpty })
        await toasts.dismiss(1)
        // The server's answers come after the dismissal. So the notifier has told the service of it before it shows the last of these.
        let unshown = always.merging(["show-progress": .bool(false)]) { $1 }
        for times in 1...3 {
            _ = try await running.fetch(server.url("/quick"), unshown)
            #expect(await eventually { await toasts.isShown(finished, times: times) })
        }
        // An update that was under way has arrived once bytes come for longer than the update interval, and no toast is shown.
        var shown = 0
        repeat {
            shown = await toasts.received.count
            let told = await running.client.signals.count("Progress", at: first)
            #expect(await running.client.signals.has("Progress", at: first, count: told + 15))
        } while await toasts.received.count > shown
        // The dismissed download gets no toast again, whatever happens to it. The batch begins later, and gets one.
        try await running.client.pause(first)
        try await running.client.resume(first)
        let (batch, members) = try await running.client.batch(
            [(server.url("/1"), [:]), (server.url("/quick"), [:]), (server.url("/3"), ["start": .bool(false)])],
            ["directory": .string(running.world.folder), "notify": .string("always")])
        #expect(await eventually(within: longEnough) { await toasts.received.last?.summary.hasPrefix("2 件ダウンロード中") == true })
        #expect(await toasts.received.count { $0.summary == "ダウンロード中" && $0.replaces == 0 } == 1)
        let number = await toasts.last
        // Nothing of the batch runs any more.
        try await running.client.call(Batch.pause, at: batch, ())
        #expect(await eventually { await toasts.closed == [number] })
        try await running.client.call(Batch.cancel, at: batch, ())
        #expect(await eventually { await toasts.received.last?.summary == "1件のダウンロードが完了しました" })
        #expect(members.count == 3)
        gate.open()
        #expect(await running.daemon.stop().isClean)
    }
}

@Suite struct `A toast with a button` {
    @Test func `tries a failed download again, once, however often the server tells the click`() async throws {
        let running = try await Running.start()
        let toasts = try await OddServer(name: "gnome-shell", at: running.world.bus.address)
        let gate = Gate()
        let server = ScriptedServer { request, reply in
            if request.number == 0 { return reply.respond(503) }
            gate.wait()
            reply.respond(200, text: "12345")
        }
        let path = try await running.download(server.url("/a"), always.merging(["retries": .uint32(0)]) { $1 })
        #expect(await eventually { await toasts.isShown(failed) })
        #expect(await toasts.toasts(failed).first?.actions == ["retry", "再試行"])
        await toasts.click(1, "retry", times: 12)
        #expect(await running.client.signals.isIn("active", path))
        gate.open()
        #expect(try await running.client.wait(path).hasSuffix("/a"))
        #expect(try await running.client.get(Download.attempts, at: path) == 2)
        #expect(await eventually { await toasts.isShown(finished) })
        #expect(server.requests.count == 2)
        // A download that its app retries withdraws its toast.
        let other = ScriptedServer { request, reply in
            if request.number == 0 { reply.respond(503) } else { reply.respond(200, text: "1") }
        }
        let second = try await running.download(other.url("/b"), always.merging(["retries": .uint32(0)]) { $1 })
        #expect(await eventually { await toasts.isShown(failed, times: 2) })
        let number = await toasts.last
        try await running.client.retry(second)
        #expect(await eventually(within: longEnough) { await toasts.closed == [number] })
        #expect(await running.daemon.stop().isClean)
    }

    @Test func `opens the file, also after its app has removed the download from the list`() async throws {
        let opener = FakeOpener()
        let world = await ServiceWorld(extra: ["PATH": opener.path])
        let running = Running(world: world, daemon: await world.start(), client: try await world.client())
        let toasts = try await OddServer(name: "Plasma", at: world.bus.address)
        let server = ScriptedServer { _, reply in reply.respond(200, text: "12345") }
        let path = try await running.download(server.url("/a.txt"), always)
        let file = try await running.client.wait(path)
        #expect(await eventually { await toasts.isShown(finished) })
        try await running.client.remove(path)
        await toasts.click(1, "default")
        #expect(await eventually { !opener.opened.isEmpty })
        #expect(opener.opened == [file])
    }

    @Test func `that opens nothing is logged`() async throws {
        let tools = TemporaryFolder("todoku-tools")
        let world = await ServiceWorld()
        let running = Running(world: world, daemon: await world.start(extra: ["PATH": tools.path]), client: try await world.client())
        let toasts = try await OddServer(name: "Plasma", at: world.bus.address)
        let server = ScriptedServer { _, reply in reply.respond(200, text: "12345") }
        _ = try await running.fetch(server.url("/a"), always)
        #expect(await eventually { await toasts.isShown(finished) })
        await toasts.click(1, "default")
        #expect(await eventually { running.daemon.errors.contains("no program could be started") }, "\(running.daemon.errors)")
        #expect(await running.daemon.stop().status == 0)
    }

    @Test func `leads to the page with a fresh link, and closes with it`() async throws {
        let opener = FakeOpener()
        let running = try await Running.start(extra: ["PATH": opener.path])
        let toasts = try await OddServer(name: "Plasma", at: running.world.bus.address)
        let server = ScriptedServer { request, reply in
            if request.path == "/old" { reply.respond(403) } else { reply.respond(200, text: "12345") }
        }
        let path = try await running.download(
            server.url("/old"),
            always.merging(["renewable": .bool(true), "referrer": .string("https://example.org/page?a=b&c=d")]) { $1 })
        #expect(await eventually { await toasts.isShown("新しいリンクが必要です") })
        let toast = try #require(await toasts.received.last)
        #expect(toast.actions == ["link", "リンクのページを開く"] && toast.body == "\(server.url("/old"))\nリンクの有効期限が切れています。", "\(toast)")
        await toasts.click(1, "link", times: 2)
        #expect(await eventually { opener.opened == ["https://example.org/page?a=b&c=d"] })
        // The user has been told: no further toast while the download waits, whatever happens to it.
        try await running.client.pause(path)
        try await running.client.resume(path)
        try await running.client.call(Download.replaceUrl, at: path, (server.url("/new"), [:]))
        #expect(try await running.client.wait(path).hasSuffix("/new"))
        #expect(await eventually { await toasts.isShown(finished) })
        #expect(await toasts.received.count == 2)
        #expect(opener.opened.count == 1)
        // A batch gets one toast.
        let (batch, members) = try await running.client.batch(
            (1...3).map { (server.url("/old?\($0)"), ["renewable": .bool(true)]) },
            ["directory": .string(running.world.folder), "notify": .string("always")])
        for member in members { #expect(await running.client.signals.isIn("waiting", member)) }
        // A toast that is still on its way would be withdrawn unseen.
        #expect(await eventually { await toasts.received.count == 3 })
        try await running.client.call(Batch.cancel, at: batch, ())
        // Without a page, there is nothing to click.
        let bare = try await running.download(server.url("/old"), always.merging(["renewable": .bool(true)]) { $1 })
        #expect(await eventually { await toasts.received.count == 4 })
        #expect(await toasts.received.last?.actions == [])
        let number = await toasts.last
        try await running.client.cancel(bare)
        // The service may close several toasts after the same slow call, in any order.
        #expect(await eventually(within: longEnough) { await toasts.closed.contains(number) })
        #expect(await running.daemon.stop().isClean)
    }

    @Test(.enabled("only root can mount a small disk") { await SmallDisk.isPossible() })
    func `leads to the full disk, one for all that wait for it`() async throws {
        let opener = FakeOpener()
        let running = try await Running.start(extra: ["PATH": opener.path])
        let toasts = try await OddServer(name: "Plasma", at: running.world.bus.address)
        let server = ScriptedServer { _, reply in reply.respond(200, body: patternBytes(3 << 20)) }
        try await SmallDisk.withDisk(bytes: 1 << 20) { disk in
            var paths: [ObjectPath] = []
            for name in ["a", "b"] {
                paths.append(try await running.download(server.url("/\(name)"), always.merging(["directory": .string(disk.path)]) { $1 }))
            }
            for path in paths { #expect(await running.client.signals.isIn("waiting", path)) }
            #expect(await eventually { await toasts.isShown("ディスクの空き容量が足りません") })
            await toasts.click(1, "space", times: 2)
            #expect(await eventually { opener.opened == [disk.path] })
            await disk.remount("size=16m")
            for path in paths { _ = try await running.client.wait(path) }
            #expect(await eventually { await toasts.isShown(finished, times: 2) })
            #expect(await toasts.received.count == 3)
            for path in paths { try await running.client.remove(path) }
        }
        #expect(await running.daemon.stop().isClean)
    }
}

@Suite struct `The option notify-delay` {
    private func options(_ milliseconds: UInt32, _ more: [String: Variant] = [:]) -> [String: Variant] {
        ["notify": .string("background"), "notify-delay": .uint32(milliseconds)].merging(more) { $1 }
    }

    /// The delays of the runs of a test, in milliseconds (`inTime`). On a busy machine, half a minute may pass between two calls.
    private static let delays: [UInt32] = [20_000, 60_000, 180_000]
    private static let tooSlow: Comment = "the calls before the toast took longer than three minutes"

    /// Waits until a toast is shown that is due in `delay` milliseconds.
    private func isShown(_ summary: String, by toasts: OddServer, after delay: UInt32) async -> Bool {
        await eventually(within: .milliseconds(Int(delay)) + .seconds(60)) { await toasts.isShown(summary) }
    }

    @Test func `delays the toast, and keeps the service for it`() async throws {
        let world = await ServiceWorld(activation: "--idle-exit 1 --toast-keep 1")
        let client = try await world.client()
        let toasts = try await OddServer(name: "Plasma", at: world.bus.address)
        let server = ScriptedServer { _, reply in reply.respond(200, text: "12345") }
        let start = ContinuousClock.now
        _ = try await client.download(server.url("/a"), options(4000, ["directory": .string(world.folder)]))
        #expect(await client.signals.has("DownloadEnded"))
        #expect(await eventually { await toasts.isShown(finished) })
        #expect(start.duration(to: .now) > .seconds(4))
        #expect(await world.bus.waitForOwner(BusName.service, present: false))
        #expect(await toasts.received.count == 1)
    }

    @Test func `shows no toast if the download is removed or retried, or its app is in front`() async throws {
        let isInTime = try await inTime(Self.delays) { delay in
            let running = try await Running.start()
            let toasts = try await OddServer(name: "Plasma", at: running.world.bus.address)
            let server = ScriptedServer { request, reply in
                if request.path == "/bad" { reply.respond(404) } else { reply.respond(200, text: "12345") }
            }
            let client = running.client
            let begun = ContinuousClock.now
            let removed = try await running.download(server.url("/a"), options(delay, ["title": .string("removed")]))
            let inFront = try await running.download(
                server.url("/b"), options(delay, ["title": .string("in front"), "app": .string("org.example.App")]))
            let always = try await running.download(
                server.url("/c"),
                options(delay, ["title": .string("always"), "app": .string("org.example.App"), "notify": .string("always")]))
            for path in [removed, inFront, always] { _ = try await client.wait(path) }
            let bad = try await running.download(server.url("/bad"), options(delay))
            _ = await thrown { try await client.wait(bad) }
            try await client.remove(removed)
            try await client.call(Manager.setForeground, ("org.example.App", true))
            try await client.call(Manager.setForeground, ("org.example.App", false))
            try await client.retry(bad)
            guard begun.duration(to: .now) < .milliseconds(Int(delay)) else { return false }
            _ = await thrown { try await client.wait(bad) }
            let last = try await running.download(server.url("/d"), options(delay + 1000, ["title": .string("last")]))
            _ = try await client.wait(last)
            #expect(await isShown("last", by: toasts, after: delay + 1000))
            #expect(await toasts.received.map(\.summary).sorted() == ["always", "last", failed])
            #expect(await running.daemon.stop().isClean)
            return true
        }
        #expect(isInTime, Self.tooSlow)
    }

    @Test func `shows no toast each time that its app comes to the front`() async throws {
        let isInTime = try await inTime(Self.delays) { delay in
            let running = try await Running.start()
            let toasts = try await OddServer(name: "Plasma", at: running.world.bus.address)
            let server = ScriptedServer { _, reply in reply.respond(200, text: "12345") }
            for round in ["first", "second"] {
                let begun = ContinuousClock.now
                let path = try await running.download(
                    server.url("/\(round)"), options(delay, ["title": .string(round), "app": .string("org.example.App")]))
                _ = try await running.client.wait(path)
                for isInFront in [true, false] { try await running.client.call(Manager.setForeground, ("org.example.App", isInFront)) }
                guard begun.duration(to: .now) < .milliseconds(Int(delay)) else { return false }
            }
            let last = try await running.download(server.url("/last"), options(delay + 1000, ["title": .string("last")]))
            _ = try await running.client.wait(last)
            #expect(await isShown("last", by: toasts, after: delay + 1000))
            #expect(await toasts.received.map(\.summary) == ["last"])
            return true
        }
        #expect(isInTime, Self.tooSlow)
    }

    @Test func `survives a restart of the service`() async throws {
        let isInTime = try await inTime(Self.delays) { delay in
            let world = await ServiceWorld()
            let client = try await world.client()
            let toasts = try await OddServer(name: "Plasma", at: world.bus.address)
            let server = ScriptedServer { _, reply in reply.respond(200, text: "12345") }
            let first = await world.start()
            let begun = ContinuousClock.now
            let path = try await client.download(server.url("/a"), options(delay, ["directory": .string(world.folder)]))
            _ = try await client.wait(path)
            await world.kill(first)
            let second = await world.start()
            let early = await toasts.received
            guard begun.duration(to: .now) < .milliseconds(Int(delay)) else { return false }
            #expect(early == [])
            #expect(await isShown(finished, by: toasts, after: delay))
            // The exit waits only two seconds for the server's answer.
            #expect(await world.isSettled())
            #expect(await world.stop(second).isClean)
            // A third process knows that the toast was shown.
            let third = await world.start()
            let prompt = always.merging(["directory": .string(world.folder)]) { $1 }
            _ = try await client.wait(try await client.download(server.url("/b"), prompt))
            #expect(await eventually { await toasts.isShown(finished, times: 2) })
            #expect(await toasts.received.last?.body.hasPrefix("b (") == true)
            #expect(await toasts.received.count == 2)
            #expect(await world.stop(third).isClean)
            return true
        }
        #expect(isInTime, Self.tooSlow)
    }
}

@Suite struct `A service whose notification server` {
    @Test func `comes only after the end keeps the toast, and stays as long`() async throws {
        let world = await ServiceWorld(activation: "--idle-exit 1 --toast-keep 1")
        let client = try await world.client()
        let server = ScriptedServer { _, reply in reply.respond(200, text: "12345") }
        _ = try await client.download(server.url("/a"), always.merging(["directory": .string(world.folder)]) { $1 })
        #expect(await client.signals.has("DownloadEnded"))
        // Still running well after the second in which it would have left; only waiting can show that.
        #expect(await world.bus.waitForOwner(BusName.service, present: false, within: .seconds(4)) == false)
        let toasts = try await OddServer(name: "Plasma", at: world.bus.address)
        #expect(await eventually { await toasts.isShown(finished) })
        #expect(await world.bus.waitForOwner(BusName.service, present: false))
        #expect(await toasts.received.count == 1)
    }

    @Test(arguments: [OddServer.Manners.hangs, .hangsInNotify])
    func `hangs ends its downloads as usual, and exits when told to`(manners: OddServer.Manners) async throws {
        // A single call to the server takes 25 s, and a busy machine may stop for as long.
        #expect(try await inTime { try await slowestStep(manners) < .seconds(20) }, "each time, a download or the exit took 20 seconds")
    }

    /// The longest time of a download, or of the exit.
    private func slowestStep(_ manners: OddServer.Manners) async throws -> Duration {
        let running = try await Running.start()
        let toasts = try await OddServer(name: "dunst", at: running.world.bus.address, manners)
        let server = ScriptedServer { _, reply in reply.respond(200, text: "12345") }
        let begun = ContinuousClock.now
        var slowest = Duration.zero
        for number in 0..<20 {
            let start = ContinuousClock.now
            _ = try await running.fetch(server.url("/\(number)"), always)
            slowest = max(slowest, start.duration(to: .now))
        }
        let ending = ContinuousClock.now
        #expect(await running.daemon.stop().isClean)
        slowest = max(slowest, ending.duration(to: .now))
        #expect(await toasts.received.count <= 1 + Int(begun.duration(to: .now) / .seconds(25)))
        return slowest
    }
}
