internal import DBus
internal import DownloadModel
internal import DownloaderInterface
internal import EventLoop
internal import Glibc
internal import TestSupport
internal import Testing

/// Options of a download whose progress is shown to the user.
private let shown: [String: Variant] = ["notify": .string("background")]

extension StandInJobServer {
    /// The only open job view.
    fileprivate func only() async -> View? {
        // Before the first update, the job is not visible, so nobody could click it.
        guard await eventually({ self.open.count == 1 && self.open.first?.properties.isEmpty == false }) else { return nil }
        return open.first
    }
}

@Suite struct `A job of KDE` {
    @Test func `shows a download that lasts, with its file, progress and places`() async throws {
        let server = TrickleServer()
        let running = try await Running.start()
        let jobs = try await StandInJobServer(on: running.world.bus.address)
        let path = try await running.download(server.url("/%E5%86%99%E7%9C%9F.zip?secret=1"), shown)
        let view = try #require(await jobs.only())
        #expect(await view.desktopEntry == "", "Plasma would mark the icon by itself")
        #expect(await view.capabilities == 3)
        #expect(
            await view.hints == [
                "application-display-name": .string("Todoku"), "application-icon-name": .string("org.todoku.Downloader1"),
                "transient": .bool(true),
            ])
        #expect(await eventually { await view.updates.count >= 3 })
        let told = await view.properties
        #expect(told["title"]?.string == "Downloading" || told["title"]?.string == "ダウンロード中")
        #expect(told["suspended"] == .bool(false) && told["infoMessage"] == .string(""))
        #expect(told["totalBytes"] == .uint64(10_000_000) && (told["processedBytes"]?.uint64 ?? 0) > 0)
        #expect(told["percent"] == .uint32(UInt32((told["processedBytes"]?.uint64 ?? 0) / 100_000)))
        #expect(told["totalFiles"] == .uint64(1) && told["processedFiles"] == .uint64(0))
        #expect((told["elapsedTime"]?.uint64 ?? 0) >= 1500)
        // After a stop of the server the speed may be 0 for a moment.
        #expect(await eventually { (await view.properties["speed"]?.uint64 ?? 0) > 0 })
        #expect(told["descriptionValue1"]?.string == server.url("/%E5%86%99%E7%9C%9F.zip"), "without the query")
        #expect(told["descriptionValue2"]?.string == "\(running.world.folder)/写真.zip")
        #expect(told["destUrl"]?.string == "file://\(running.world.folder)")
        // Only new values are sent.
        #expect(await view.updates.dropFirst().allSatisfy { $0.news["title"] == nil && $0.news["destUrl"] == nil })
        try await running.client.cancel(path)
        #expect(await eventually { await view.terminated == 1 })
        server.gate.open()
    }

    @Test func `is updated at most twice a second, and ends without a word when the file is there`() async throws {
        let gate = Gate()
        let server = ScriptedServer { request, reply in
            reply.head(200, ["Connection": "close"])
            while !gate.isOpen, reply.send(patternBytes(1000)) { poll(nil, 0, 20) }
            reply.close()
        }
        let running = try await Running.start()
        let jobs = try await StandInJobServer(on: running.world.bus.address)
        let begun = ContinuousClock.now
        let path = try await running.download(server.url("/a"), shown)
        let view = try #require(await jobs.only())
        #expect(await eventually { await view.updates.count >= 5 })
        let told = await view.properties
        #expect(told["percent"] == .uint32(0) && told["totalBytes"] == .uint64(0), "nothing is invented")
        gate.open()
        _ = try await running.client.wait(path)
        #expect(await eventually { await view.terminated == 0 })
        let updates = await view.updates
        let seconds = try #require(updates.last?.at) - begun
        // One more update for the change of phase (checking the file), which is sent at once.
        #expect(updates.count <= 2 + Int(seconds / .milliseconds(500)), "\(updates.count) in \(seconds)")
    }

    /// A service that leaves after half a minute without work, a job server, and a download.
    private func startLeaving(_ server: TrickleServer) async throws -> (Running, StandInJobServer, ObjectPath) {
        let world = await ServiceWorld()
        let client = try await world.client()
        let jobs = try await StandInJobServer(on: world.bus.address)
        let options = shown.merging(["directory": .string(world.folder)]) { $1 }
        let (daemon, path) = try await world.startLeaving { try await client.download(server.url("/a"), options) }
        return (Running(world: world, daemon: daemon, client: client), jobs, path)
    }

    @Test func `pauses, resumes and cancels the download by its buttons, and only by those of the job server`() async throws {
        let server = TrickleServer()
        let (running, jobs, path) = try await startLeaving(server)
        let view = try #require(await jobs.only())
        // A program other than the job server sends the same signal.
        let stranger = try await Connection.open(address: running.world.bus.address)
        await stranger.send(SignalOf("org.kde.JobViewV3", "cancelRequested").message(from: ObjectPath(view.path), ()))
        _ = try await stranger.call(BusDaemon.nameHasOwner, on: BusDaemon.name, at: BusDaemon.path, "a.b")
        await jobs.click("suspendRequested", view)
        #expect(await running.client.signals.isIn("paused", path))
        #expect(await eventually { await view.properties["suspended"] == .bool(true) })
        // The user could resume the download in the job view, so the service stays, although nothing else keeps it.
        #expect(await eventually(within: .seconds(33)) { !running.daemon.isRunning } == false)
        #expect(await view.terminated == nil)
        await jobs.click("resumeRequested", view)
        #expect(await running.client.signals.isIn("active", path))
        #expect(await eventually { await view.properties["suspended"] == .bool(false) })
        // A download paused by another program can be resumed in the job view too.
        try await running.client.pause(path)
        #expect(await eventually { await view.properties["suspended"] == .bool(true) })
        try await running.client.call(Manager.resumeAll, ())
        try await running.client.resume(path)
        #expect(await running.client.signals.isIn("active", path))
        await jobs.click("cancelRequested", view)
        #expect(await running.client.signals.isIn("cancelled", path))
        #expect(await eventually { await view.terminated == 1 })
        #expect(await jobs.views.count == 1)
        server.gate.open()
    }

    @Test func `resumes a download held with all others by resuming all`() async throws {
        let server = TrickleServer()
        let running = try await Running.start()
        let jobs = try await StandInJobServer(on: running.world.bus.address)
        let path = try await running.download(server.url("/a"), shown)
        let view = try #require(await jobs.only())
        try await running.client.call(Manager.pauseAll, ())
        #expect(await running.client.signals.isIn("waiting", path))
        #expect(await eventually { await view.properties["suspended"] == .bool(true) })
        await jobs.click("resumeRequested", view)
        #expect(await running.client.signals.isIn("active", path))
        #expect(await eventually { await view.properties["suspended"] == .bool(false) })
        try await running.client.cancel(path)
        server.gate.open()
    }

    @Test func `keeps the service only while somebody shows it`() async throws {
        let server = TrickleServer()
        let (running, jobs, path) = try await startLeaving(server)
        let view = try #require(await jobs.only())
        await jobs.click("suspendRequested", view)
        #expect(await running.client.signals.isIn("paused", path))
        #expect(await eventually { await view.properties["suspended"] == .bool(true) })
        try await jobs.vanish()
        #expect(await running.world.bus.waitForOwner(BusName.service, present: false, within: .seconds(120)))
        server.gate.open()
    }

    @Test func `does not exist for a quiet, hidden, foreground or short download`() async throws {
        let server = TrickleServer()
        let running = try await Running.start()
        let jobs = try await StandInJobServer(on: running.world.bus.address)
        try await running.client.call(Manager.setForeground, ("org.example.Front", true))
        let front: [String: Variant] = ["app": .string("org.example.Front"), "notify": .string("background")]
        var quiet = [try await running.download(server.url("/quiet"), ["notify": .string("never")])]
        quiet.append(try await running.download(server.url("/hidden"), ["notify": .string("always"), "show-progress": .bool(false)]))
        quiet.append(try await running.download(server.url("/front"), front))
        // On a busy machine, even a small download may take long enough for a job.
        var tries = 0
        var lasted = Duration.seconds(2)
        while lasted > .milliseconds(1500) {
            tries += 1
            let start = ContinuousClock.now
            try await running.fetch(server.url("/small\(tries)"), shown)
            lasted = .now - start
        }
        for path in quiet { #expect(await running.client.signals.has("Progress", at: path, count: 30)) }
        let loud = try await running.download(server.url("/loud"), shown)
        let view = try #require(await jobs.only())
        let before = await jobs.views.count
        #expect((1...tries).contains(before), "\(before) views after \(tries) small downloads")
        #expect(await eventually { await view.properties["descriptionValue1"]?.string == server.url("/loud") })
        // An app that comes to the front loses its job view; an app that leaves the front gets one.
        try await running.client.call(Manager.setForeground, ("org.example.Front", false))
        #expect(await eventually { await jobs.views.count == before + 1 })
        try await running.client.call(Manager.setForeground, ("org.example.Front", true))
        let second = await jobs.views[before]
        #expect(await eventually { await second.terminated == 1 })
        for path in quiet + [loud] { try await running.client.cancel(path) }
        server.gate.open()
    }

    @Test func `of a paused download ends when its app comes to the front`() async throws {
        let server = TrickleServer()
        let running = try await Running.start()
        let jobs = try await StandInJobServer(on: running.world.bus.address)
        let app = "org.example.Front"
        let path = try await running.download(server.url("/a"), ["app": .string(app), "notify": .string("background")])
        let view = try #require(await jobs.only())
        try await running.client.pause(path)
        #expect(await eventually { await view.properties["suspended"] == .bool(true) })
        #expect(await view.terminated == nil)
        try await running.client.call(Manager.setForeground, (app, true))
        #expect(await eventually { await view.terminated == 1 })
        try await running.client.cancel(path)
        server.gate.open()
    }

    @Test func `of a batch is one for all, and its buttons are for all`() async throws {
        let server = TrickleServer()
        let running = try await Running.start()
        let jobs = try await StandInJobServer(on: running.world.bus.address)
        let (batch, members) = try await running.client.batch(
            ["/small1", "/a", "/b"].map { (server.url($0), [:]) }, running.options(shown))
        let view = try #require(await jobs.only())
        #expect(await eventually { await view.properties["processedFiles"] == .uint64(1) })
        #expect(await view.properties["totalFiles"] == .uint64(3))
        #expect(await view.properties["destUrl"]?.string == "file://\(running.world.folder)")
        #expect(await eventually { await view.properties["percent"].flatMap(\.uint32).map { $0 >= 33 } ?? false })
        await jobs.click("suspendRequested", view)
        for member in members.dropFirst() { #expect(await running.client.signals.isIn("paused", member)) }
        #expect(await eventually { await view.properties["suspended"] == .bool(true) })
        await jobs.click("resumeRequested", view)
        for member in members.dropFirst() { #expect(await running.client.signals.isIn("active", member)) }
        #expect(await eventually { await view.properties["suspended"] == .bool(false) })
        #expect(await jobs.views.count == 1)
        await jobs.click("cancelRequested", view)
        #expect(await running.client.signals.has("Completed", at: batch))
        #expect(await eventually { await view.terminated == 1 })
        server.gate.open()
    }

    @Test func `of a batch stays while a member runs that shows no progress`() async throws {
        let server = TrickleServer()
        let running = try await Running.start()
        let jobs = try await StandInJobServer(on: running.world.bus.address)
        let (batch, members) = try await running.client.batch(
            [(server.url("/a"), [:]), (server.url("/b"), ["show-progress": .bool(false)])], running.options(shown))
        let view = try #require(await jobs.only())
        // Each of these signals is an occasion on which the service may show or remove the job.
        await running.client.signals.forget()
        for member in members { #expect(await running.client.signals.has("Progress", at: member, count: 10)) }
        #expect(await jobs.views.count == 1)
        #expect(await view.terminated == nil)
        // The bytes of the one member that shows its progress.
        #expect(await eventually { await view.properties["totalBytes"] == .uint64(10_000_000) })
        try await running.client.call(Batch.cancel, at: batch, ())
        #expect(await eventually { await view.terminated == 1 })
        server.gate.open()
    }

    @Test func `is requested again from a restarted server, and from none that hangs twice`() async throws {
        let server = TrickleServer()
        let running = try await Running.start()
        let jobs = try await StandInJobServer(on: running.world.bus.address)
        await BusActor.run { jobs.isHanging = true }
        let path = try await running.download(server.url("/a"), shown)
        #expect(await eventually { await jobs.views.count == 1 })
        // The service continues, whatever the server does.
        #expect(await running.client.signals.has("Progress", at: path, count: 10))
        try await running.fetch(server.url("/small"), shown)
        #expect(await jobs.views[0].updates.isEmpty)
        try await running.client.cancel(path)
        await jobs.answer()
        #expect(await eventually { await jobs.views[0].terminated == 1 }, "what ended meanwhile is not left standing")

        let second = try await running.download(server.url("/b"), shown)
        let view = try #require(await jobs.only())
        #expect(await eventually { await !view.updates.isEmpty })
        try await jobs.vanish()
        #expect(await running.client.signals.has("Progress", at: second, count: 10))
        let other = try await StandInJobServer(on: running.world.bus.address)
        let again = try #require(await other.only())
        #expect(
            await eventually { await again.properties["descriptionValue1"]?.string == server.url("/b") }, "with all, not only what is new")
        let exit = await running.daemon.stop()
        #expect(exit.isClean, "\(exit)")
        #expect(await eventually { await again.terminated == 1 })
        server.gate.open()
    }

    @Test func `is one of eight at most, and those that rest make room`() async throws {
        let server = TrickleServer()
        let running = try await Running.start()
        let jobs = try await StandInJobServer(on: running.world.bus.address)
        try await running.client.set(Manager.maxActive, 0)
        try await running.client.set(Manager.maxPerHost, 0)
        var paths: [ObjectPath] = []
        for number in 0..<Limits.desktopJobs { paths.append(try await running.download(server.url("/\(number)"), shown)) }
        #expect(await eventually { await jobs.views.count == Limits.desktopJobs })
        let late = try await running.download(server.url("/late"), shown)
        #expect(await running.client.signals.has("Progress", at: late, count: 30))
        #expect(await jobs.views.count == Limits.desktopJobs)
        try await running.client.pause(paths[3])
        #expect(await eventually { await jobs.views.count == Limits.desktopJobs + 1 })
        #expect(await eventually { await jobs.open.count == Limits.desktopJobs })
        try await running.client.call(Manager.cancelAll, ())
        #expect(await eventually { await jobs.open.isEmpty })
        server.gate.open()
    }
}
