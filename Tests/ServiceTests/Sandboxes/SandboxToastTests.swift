internal import DBus
internal import DownloaderInterface
internal import EventLoop
internal import Glibc
internal import TestSupport
internal import Testing

private let app = "org.example.App"
private let noLink = "新しいリンクが必要です"

@Suite(.timeLimit(.minutes(10))) struct `The toast of an app in a sandbox` {
    private let server = ScriptedServer { request, reply in
        if request.path == "/old" { reply.respond(403) } else { reply.respond(200, text: "hello") }
    }

    private func stage(_ name: String, _ tools: String) async throws -> (Running, Sandbox, OddServer) {
        let running = try await Running.start(extra: ["PATH": tools])
        try await running.client.set(Manager.sandboxPrivate, true)
        let folder = running.world.bus.folder("data/flatpak/exports/share/applications")
        #expect(await Child.run(["mkdir", "-p", folder]).status == 0)
        writeFile("\(folder)/\(app).desktop", "[Desktop Entry]\nType=Application\nName=Viewer <b>\n".utf8)
        return (running, await Sandbox(running.world), try await OddServer(name: name, at: running.world.bus.address))
    }

    /// Where the server is slow, a download of two seconds would have a progress toast, too.
    private let options: [String: Variant] = [
        "notify": .string("always"), "title": .string("Todoku"), "body": .string("Click here"), "show-progress": .bool(false),
    ]
    /// After a slow call, as on a busy machine, the service shows no progress for a minute.
    private let longEnough: Duration = .seconds(150)

    @Test func `says whose it is, with the entry that lets the user switch it off`() async throws {
        let tools = FakeOpener()
        let (running, sandbox, toasts) = try await stage("mako", tools.path)
        let client = try await sandbox.client()
        _ = try await client.wait(try await client.download(server.url("/a"), options))
        #expect(await eventually { await toasts.received.contains { $0.summary == "Todoku" } })
        let toast = try #require(await toasts.received.last)
        #expect(toast.app == "Viewer <b>" && toast.body == "Viewer &lt;b&gt;\nClick here", "\(toast)")
        #expect(toast.hints["desktop-entry"] == .string(app))
        // The same for a batch and for a failure. Our own toasts remain ours.
        let (batch, _) = try await client.batch([(server.url("/b"), [:])], options)
        _ = try await client.wait(batch: batch)
        #expect(await eventually { await toasts.received.count == 2 })
        #expect(await toasts.received.last?.hints["desktop-entry"] == .string(app))
        _ = await thrown { try await client.wait(try await client.download(server.url("/old"), options)) }
        #expect(await eventually { await toasts.received.count == 3 })
        #expect(await toasts.received.last?.app == "Viewer <b>")
        _ = try await running.fetch(server.url("/c"), options)
        #expect(await eventually { await toasts.received.count == 4 })
        let own = try #require(await toasts.received.last)
        #expect(own.app == "Todoku" && own.body == "Click here" && own.hints["desktop-entry"] == .string(BusName.service), "\(own)")
        await sandbox.stop()
    }

    @Test func `says whose it is while it lasts, too, by the name in the user's language`() async throws {
        let tools = FakeOpener()
        let (running, sandbox, toasts) = try await stage("mako", tools.path)
        let folder = running.world.bus.folder("data/flatpak/exports/share/applications")
        writeFile("\(folder)/\(app).desktop", "[Desktop Entry]\nType=Application\nName=Viewer\nName[ja]=閲覧\n".utf8)
        let gate = Gate()
        defer { gate.open() }
        let slow = ScriptedServer { _, reply in
            reply.head(200, length: 200_000)
            while !gate.isOpen, reply.send("x") { poll(nil, 0, 20) }
            reply.close()
        }
        let client = try await sandbox.client()
        let lasting = options.merging(["show-progress": .bool(true)]) { $1 }
        let theirs = try await client.download(slow.url("/theirs"), lasting)
        #expect(await eventually(within: longEnough) { await !toasts.received.isEmpty })
        let alone = try #require(await toasts.received.last)
        #expect(alone.app == "閲覧" && alone.body.hasPrefix("閲覧\ntheirs — ") && alone.hints["desktop-entry"] == .string(app), "\(alone)")
        // Together with the user's own downloads, the toast is ours, and names no file.
        let own = try await running.download(slow.url("/own"), lasting)
        #expect(await eventually(within: longEnough) { await toasts.received.last?.app == "Todoku" })
        let both = try #require(await toasts.received.last)
        #expect(!both.body.contains("theirs") && both.hints["desktop-entry"] == .string(BusName.service), "\(both)")
        try await running.client.cancel(own)
        #expect(await eventually(within: longEnough) { await toasts.received.last?.app == "閲覧" })
        try await running.client.set(Manager.language, "en")
        _ = try await client.wait(try await client.download(server.url("/a"), options))
        #expect(await eventually { await toasts.received.contains { $0.summary == "Todoku" && $0.app == "Viewer" } })
        try await client.cancel(theirs)
        await sandbox.stop()
    }

    @Test func `opens its file by the portal, and no other file of its name`() async throws {
        let tools = FakeOpener()
        let (running, sandbox, toasts) = try await stage("gnome-shell", tools.path)
        let portal = try await StandInFilePortal(on: running.world.bus.address)
        let manager = try await StandInFileManager(on: running.world.bus.address)
        let client = try await sandbox.client()
        let file = try await client.wait(try await client.download(server.url("/a"), options))
        #expect(await eventually { await toasts.received.count == 1 })
        #expect(await toasts.received.last?.body == "Click here", "GNOME Shell shows whose it is")
        await toasts.click(1, "default", token: "token-1")
        #expect(await eventually { await portal.opened == [["file", file, "token-1"]] })
        let other = try await client.wait(try await client.download(server.url("/b"), options))
        #expect(await eventually { await toasts.received.count == 2 })
        unlink(other)
        writeFile(other, "another".utf8)
        await toasts.click(2, "default", token: "token-2")
        let folder = String(other.dropLast("/b".count))
        #expect(await eventually { await manager.shown == [["folders", "file://\(folder)", "token-2"]] })
        #expect(await portal.opened.count == 1)
        #expect(tools.opened == [])
        await sandbox.stop()
    }

    @Test func `opens the page of its link by the portal, and by no other program`() async throws {
        let tools = FakeOpener()
        let (running, sandbox, toasts) = try await stage("gnome-shell", tools.path)
        let client = try await sandbox.client()
        let page = "https://example.org/page?a=b&c=d"
        let linked = options.merging(["referrer": .string(page)]) { $1 }
        /// Queues a download that fails, and waits for its toast.
        func fail(toast number: Int) async {
            _ = await thrown { try await client.wait(try await client.download(server.url("/old"), linked)) }
            #expect(await eventually { await toasts.received.count == number })
            #expect(await toasts.received.last?.actions == ["link", "リンクのページを開く"])
        }
        // Without a portal, the click opens nothing.
        await fail(toast: 1)
        await toasts.click(1, "link", token: "token-1")
        #expect(await eventually { running.daemon.errors.contains("no program could be started") }, "\(running.daemon.errors)")
        let portal = try await StandInFilePortal(on: running.world.bus.address)
        await fail(toast: 2)
        await toasts.click(2, "link", token: "token-2")
        #expect(await eventually { await portal.opened == [["page", page, "token-2"]] })
        // The toast of a download that waits for a fresh link has the same button.
        _ = try await client.download(server.url("/old"), linked.merging(["renewable": .bool(true)]) { $1 })
        #expect(await eventually { await toasts.received.count == 3 })
        #expect(await toasts.received.last?.summary == noLink)
        await toasts.click(3, "link", token: "token-3")
        #expect(await eventually { await portal.opened == [["page", page, "token-2"], ["page", page, "token-3"]] })
        #expect(tools.opened == [])
        await sandbox.stop()
    }

    @Test func `says whose it is while it waits for a fresh link, also for a batch`() async throws {
        let tools = FakeOpener()
        let (running, sandbox, toasts) = try await stage("mako", tools.path)
        let client = try await sandbox.client()
        let renewable: [String: Variant] = ["renewable": .bool(true)]
        func waiting() async -> [OddServer.Received] { await toasts.received.filter { $0.summary == noLink } }
        _ = try await client.download(server.url("/old"), options.merging(renewable) { $1 })
        #expect(await eventually { await waiting().count == 1 })
        let alone = try #require(await waiting().last)
        #expect(alone.app == "Viewer <b>" && alone.hints["desktop-entry"] == .string(app), "\(alone)")
        #expect(alone.body == "Viewer &lt;b&gt;\n\(server.url("/old"))\nリンクの有効期限が切れています。", "\(alone)")
        _ = try await client.batch([(server.url("/old?1"), renewable), (server.url("/old?2"), renewable)], options)
        #expect(await eventually { await waiting().count == 2 })
        let batch = try #require(await waiting().last)
        #expect(batch.app == "Viewer <b>" && batch.hints["desktop-entry"] == .string(app), "\(batch)")
        // The toast of the user's own download remains ours.
        _ = try await running.download(server.url("/old"), options.merging(renewable) { $1 })
        #expect(await eventually { await waiting().count == 3 })
        let own = try #require(await waiting().last)
        #expect(own.app == "Todoku" && own.hints["desktop-entry"] == .string(BusName.service), "\(own)")
        await sandbox.stop()
    }

    @Test(.enabled("only root can mount a small disk") { await SmallDisk.isPossible() })
    func `says whose it is while it waits for room, once for an app, and closes by itself`() async throws {
        let tools = FakeOpener()
        let (running, sandbox, toasts) = try await stage("mako", tools.path)
        let server = ScriptedServer { request, reply in reply.respond(200, ["ETag": "\"1\""], body: patternBytes(3 << 20)) }
        let client = try await sandbox.client()
        func waiting() async -> [OddServer.Received] { await toasts.received.filter { $0.summary == "ディスクの空き容量が足りません" } }
        try await SmallDisk.withDisk(bytes: 1 << 20) { disk in
            try await running.client.set(Manager.defaultDirectory, disk.path)
            let first = try await client.download(server.url("/first"), options)
            #expect(await eventually { await waiting().count == 1 })
            let theirs = try #require(await waiting().last)
            #expect(theirs.app == "Viewer <b>" && theirs.hints["desktop-entry"] == .string(app), "\(theirs)")
            #expect(theirs.body.hasPrefix("Viewer &lt;b&gt;\n\(server.url("/first"))\n"), "\(theirs)")
            let second = try await client.download(server.url("/second"), options)
            #expect(await client.signals.isIn("waiting", second))
            // The user's own download has a toast of ours, which names no file of the app.
            let own = try await running.client.download(server.url("/own"), options)
            #expect(await eventually { await waiting().count == 2 })
            let ours = try #require(await waiting().last)
            #expect(ours.app == "Todoku" && ours.hints["desktop-entry"] == .string(BusName.service), "\(ours)")
            #expect(ours.body.hasPrefix("\(server.url("/own"))\n"), "\(ours)")
            try await client.cancel(first)
            try await running.client.cancel(own)
            #expect(await eventually { await toasts.closed == [2] })
            try await client.cancel(second)
            #expect(await eventually { await toasts.closed == [2, 1] })
            #expect(await waiting().count == 2)
        }
        await sandbox.stop()
    }

    @Test func `is not handed to the desktop when the service exits`() async throws {
        let tools = FakeOpener()
        let (running, sandbox, toasts) = try await stage("gnome-shell", tools.path)
        let desktop = try await StandInGtkNotifications(on: running.world.bus.address)
        let client = try await sandbox.client()
        _ = try await client.wait(try await client.download(server.url("/a"), options))
        #expect(await eventually { await toasts.received.count == 1 })
        _ = try await running.fetch(server.url("/b"), options.merging(["title": .string("Own")]) { $1 })
        #expect(await eventually { await toasts.received.count == 2 })
        // This toast cannot be clicked. When it arrives, the service knows the fate of the previous toasts.
        _ = await thrown { try await running.fetch(server.url("/old"), options) }
        #expect(await eventually { await toasts.received.count == 3 })
        let ending = ContinuousClock.now
        #expect(await running.world.stop(running.daemon).status == 0)
        // The exit waits a second for the desktop's answer, and leaves the own toast on screen if none comes: on a busy machine only.
        let isAnswered = ending.duration(to: .now) < .seconds(1)
        // Only the user's own toast was handed over. The app's toast stays on the screen.
        #expect(await eventually { await !desktop.toasts.isEmpty })
        #expect(await desktop.toasts.compactMap { $0.content["title"]?.string } == ["Own"])
        let closed = await toasts.closed
        #expect(closed == [2] || !isAnswered && closed == [], "\(closed)")
        await sandbox.stop()
    }

    @Test func `of everybody opens the file that came, and no other of its name`() async throws {
        let tools = FakeOpener()
        let running = try await Running.start(extra: ["PATH": tools.path, "DISPLAY": ":99"])
        let toasts = try await OddServer(name: "gnome-shell", at: running.world.bus.address)
        let manager = try await StandInFileManager(on: running.world.bus.address)
        let file = try await running.fetch(server.url("/a.txt"), options)
        #expect(await eventually { await toasts.received.count == 1 })
        await toasts.click(1, "default")
        #expect(await eventually { tools.opened == [file] })
        let other = try await running.fetch(server.url("/b.txt"), options)
        #expect(await eventually { await toasts.received.count == 2 })
        unlink(other)
        writeFile(other, "another".utf8)
        await toasts.click(2, "default")
        #expect(await eventually { await manager.shown == [["folders", "file://\(running.world.folder)", ""]] })
        #expect(tools.opened == [file])
    }
}
