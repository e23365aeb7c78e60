internal import DBus
internal import DownloadModel
internal import DownloaderInterface
internal import EventLoop
internal import Glibc
internal import TestSupport
internal import Testing

private let app = "org.example.App"

extension Client {
    fileprivate func setForeground(_ app: String, _ isInFront: Bool) async throws {
        try await call(Manager.setForeground, (app, isInFront))
    }
}

@Suite struct `An app in front` {
    @Test func `shows no toasts, unless it wants to, until it says otherwise or leaves the bus`() async throws {
        let display = await Display()
        let running = try await Running.start(extra: ["DISPLAY": display.name])
        let dunst = await Dunst(on: running.world.bus, display)
        let server = ScriptedServer { request, reply in
            if request.path == "/bad" { reply.respond(404) } else { reply.respond(200, text: "x") }
        }
        // Where the server is slow, a download of two seconds would have a progress toast, too.
        let mine: [String: Variant] = ["app": .string(app), "notify": .string("background"), "show-progress": .bool(false)]
        func fetch(_ options: [String: Variant]) async throws {
            _ = try await running.fetch(server.url("/a"), mine.merging(options) { $1 })
        }
        let (one, two) = (try await running.world.client(), try await running.world.client())
        try await one.setForeground(app, true)
        try await two.setForeground(app, true)
        try await two.setForeground("org.example.Other", true)
        // Neither of these gets a toast. The later ones do, which shows that these did not.
        try await fetch([:])
        _ = await thrown { try await running.fetch(server.url("/bad"), mine) }
        try await fetch(["notify": .string("never"), "title": .string("never")])
        try await fetch(["notify": .string("always"), "title": .string("always")])
        try await fetch(["app": .string("org.example.AppX"), "title": .string("another")])
        #expect(await eventually { await dunst.displayed() == 2 })
        // An app is in front as long as one of its connections says so.
        try await one.setForeground(app, false)
        try await fetch(["title": .string("two says so")])
        try await two.setForeground("org.example.Other", false)
        try await fetch(["title": .string("two still says so")])
        try await two.setForeground(app, false)
        try await two.setForeground(app, false)
        try await fetch(["title": .string("nobody says so")])
        #expect(await eventually { await dunst.displayed() == 3 })
        // A connection that leaves the bus, as by a crash, no longer counts.
        let leaving = Child(
            [
                "gdbus", "call", "--session", "--timeout", "120", "--dest", BusName.service, "--object-path", BusName.managerPath.value,
                "--method",
                "\(Manager.interface).SetForeground", app, "true",
            ], environment: running.world.environment)
        #expect(await leaving.wait().output == "()\n")
        let isToasted = await eventually {
            try? await fetch(["title": .string("gone")])
            return await dunst.displayed() > 3
        }
        #expect(isToasted)
        await dunst.control("close-all")
        let titles = await dunst.history().compactMap { $0["summary"]?.string }
        #expect(Set(titles) == ["always", "another", "nobody says so", "gone"], "\(titles)")
        await dunst.stop()
    }

    @Test func `shows no progress toast, and one on screen closes`() async throws {
        let display = await Display()
        let running = try await Running.start(extra: ["DISPLAY": display.name])
        let dunst = await Dunst(on: running.world.bus, display)
        let gate = Gate()
        let server = ScriptedServer { _, reply in
            reply.head(200, length: 200_000)
            while !gate.isOpen, reply.send("x") { poll(nil, 0, 20) }
            reply.close()
        }
        let path = try await running.download(
            server.url("/a"), ["app": .string(app), "notify": .string("background"), "retries": .uint32(0)])
        // After a slow call, as on a busy machine, the service shows no progress for a minute.
        let longEnough = Duration.seconds(150)
        #expect(await eventually(within: longEnough) { await dunst.displayed() == 1 })
        try await running.client.setForeground(app, true)
        #expect(await eventually { await dunst.displayed() == 0 })
        try await running.client.setForeground(app, false)
        #expect(await eventually(within: longEnough) { await dunst.displayed() == 1 })
        try await running.client.cancel(path)
        gate.open()
        #expect(await eventually { await dunst.displayed() == 0 })
        await dunst.stop()
    }

    @Test func `is named by an id, and one connection reports a bounded number`() async throws {
        let running = try await Running.start()
        for name in ["", "a\nb", String(repeating: "a", count: 256)] {
            let error = await thrown { try await running.client.setForeground(name, true) }
            #expect(error?.name == todokuError("InvalidOption") && error.map(isSentence) == true)
        }
        for number in 0..<Limits.foregroundAppsPerConnection { try await running.client.setForeground("org.example.A\(number)", true) }
        let error = await thrown { try await running.client.setForeground(app, true) }
        #expect(error?.name == todokuError("LimitExceeded") && error?.message.contains("\(Limits.foregroundAppsPerConnection)") == true)
        try await running.client.setForeground("org.example.A0", true)
        try await running.client.setForeground("org.example.A0", false)
        try await running.client.setForeground(app, true)
    }

    @Test func `keeps the service while it has downloads that have not ended, and no longer`() async throws {
        let running = try await Running.start(["--idle-exit", "30"])
        let path = try await running.download("http://127.0.0.1:1/a", ["app": .string(app), "start": .bool(false)])
        try await running.client.setForeground(app, true)
        // Still running well after the thirty seconds; only waiting can show that.
        #expect(await eventually(within: .seconds(33)) { !running.daemon.isRunning } == false)
        try await running.client.cancel(path)
        #expect(await running.daemon.wait().isClean)
    }

    @Test func `that has left does not keep the service`() async throws {
        let running = try await Running.start(["--idle-exit", "30"])
        _ = try await running.download("http://127.0.0.1:1/a", ["app": .string(app), "start": .bool(false)])
        let leaving = await running.world.gdbus(BusName.managerPath.value, "\(Manager.interface).SetForeground", app, "true")
        #expect(leaving.output == "()\n")
        #expect(await running.daemon.wait().isClean)
    }
}
