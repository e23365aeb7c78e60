internal import DBus
internal import DownloadModel
internal import DownloaderInterface
internal import EventLoop
internal import Glibc
internal import TestSupport
internal import Testing

/// Serves files of 1,000,000 bytes: up to `first`, and the rest when the test opens the gate. `/small` arrives at once.
struct SteppedServer {
    static let size = 1_000_000
    let server: ScriptedServer
    let gate = Gate()

    /// - Parameter hasLength: whether the server announces the size.
    init(_ first: Int, hasLength: Bool = true) {
        let gate = gate
        server = ScriptedServer { request, reply in
            if request.path.hasPrefix("/small") { return reply.respond(200, text: "x") }
            let body = patternBytes(Self.size)
            if hasLength { reply.head(200, ["ETag": "\"v\""], length: body.count) } else { reply.head(200, ["Connection": "close"]) }
            reply.send(body[..<first])
            gate.wait()
            reply.send(body[first...])
            reply.close()
        }
    }

    func url(_ path: String) -> String { server.url(path) }
}

/// Sends bytes slowly until the test opens the gate. The rest is never sent.
struct TrickleServer {
    let server: ScriptedServer
    let gate = Gate()

    init(size: Int = 10_000_000) {
        let gate = gate
        server = ScriptedServer { request, reply in
            if request.path.hasPrefix("/small") { return reply.respond(200, text: "x") }
            reply.head(200, ["ETag": "\"v\"", "Accept-Ranges": "bytes"], length: size)
            while !gate.isOpen, reply.send(patternBytes(1000)) { poll(nil, 0, 20) }
            reply.close()
        }
    }

    func url(_ path: String) -> String { server.url(path) }
}

private let bare: [String: Variant] = [
    "count": .int64(0), "count-visible": .bool(false), "progress": .double(0), "progress-visible": .bool(false), "urgent": .bool(false),
]

@Suite struct `The dock's icon` {
    @Test func `shows how many remain and how far they are, and nothing at the end`() async throws {
        let server = SteppedServer(250_000)
        let running = try await Running.start()
        let dock = try await StandInDock(on: running.world.bus.address)
        let first = try await running.download(server.url("/a"))
        #expect(await eventually { await dock.mark()?.progress == 0.25 })
        let mark = try #require(await dock.mark())
        #expect(
            mark.properties == [
                "count": .int64(1), "count-visible": .bool(true), "progress": .double(0.25), "progress-visible": .bool(true),
                "urgent": .bool(false),
            ])
        #expect(mark.path.hasPrefix("/com/canonical/unity/launcherentry/"))
        let (uri, properties) = try await dock.query(mark)
        #expect(uri == "application://org.todoku.Downloader1.desktop" && properties == mark.properties)
        let second = try await running.download(server.url("/b"))
        #expect(await eventually { await dock.mark()?.count == 2 })
        #expect(await eventually { await dock.mark()?.progress == 0.25 })
        // A paused download still counts.
        try await running.client.pause(second)
        server.gate.open()
        _ = try await running.client.wait(first)
        #expect(await eventually { await dock.mark()?.count == 1 })
        try await running.client.cancel(second)
        #expect(await eventually { await dock.mark()?.isBare == true })
        #expect(await dock.mark()?.properties == bare)
        // The mark's connection closes too, so that no mark outlives us in any dock.
        #expect(try await eventually { try await !dock.isThere(mark) })
        let marks = await dock.marks
        #expect(zip(marks, marks.dropFirst()).allSatisfy { $0.properties != $1.properties }, "nothing is said twice")
        let exit = await running.daemon.stop()
        #expect(exit.isClean, "\(exit)")
    }

    @Test func `shows whole percent if Badge says so, at once, and no number if none is known`() async throws {
        let server = SteppedServer(456_789)
        let running = try await Running.start()
        let dock = try await StandInDock(on: running.world.bus.address)
        let path = try await running.download(server.url("/a"))
        #expect(await eventually { await dock.mark()?.progress == 0.456789 })
        #expect(await dock.mark()?.count == 1)
        try await running.client.set(Manager.badge, "percent")
        #expect(await eventually { await dock.mark()?.count == 45 })
        try await running.client.set(Manager.badge, "remaining")
        #expect(await eventually { await dock.mark()?.count == 1 })
        try await running.client.set(Manager.badge, "percent")
        #expect(await eventually { await dock.mark()?.count == 45 })
        server.gate.open()
        _ = try await running.client.wait(path)
        #expect(await eventually { await dock.mark()?.isBare == true })

        let unsized = SteppedServer(500_000, hasLength: false)
        await dock.forget()
        let unknown = try await running.download(unsized.url("/b"))
        try await running.client.set(Manager.badge, "remaining")
        #expect(await eventually { await dock.mark()?.count == 1 })
        #expect(await dock.mark()?.progress == nil, "of what is not known, nothing is invented")
        try await running.client.set(Manager.badge, "percent")
        #expect(await eventually { await dock.mark()?.isBare == true })
        unsized.gate.open()
        _ = try await running.client.wait(unknown)
    }

    @Test func `is that of the option desktop-id, each with a connection of its own`() async throws {
        let server = SteppedServer(100_000)
        let running = try await Running.start()
        let dock = try await StandInDock(on: running.world.bus.address)
        func id(_ name: String) -> [String: Variant] { ["desktop-id": .string(name)] }
        var paths = [try await running.download(server.url("/a"), id("org.example.A"))]
        paths.append(try await running.download(server.url("/b"), id("org.example.B.desktop")))
        paths.append(try await running.download(server.url("/c"), id("org.example.B")))
        // Our own icon is the same, whether a download names it or names none.
        paths.append(try await running.download(server.url("/d"), id("org.todoku.Downloader1")))
        paths.append(try await running.download(server.url("/e")))
        // A download that shows no progress does not count.
        paths.append(try await running.download(server.url("/f"), ["show-progress": .bool(false)]))
        #expect(await eventually { await dock.mark(of: "org.example.A")?.count == 1 })
        #expect(await eventually { await dock.mark(of: "org.example.B")?.count == 2 })
        #expect(await eventually { await dock.mark()?.count == 2 })
        #expect(await Set(dock.marks.map { "\($0.sender) \($0.uri)" }).count == 3)
        #expect(await Set(dock.marks.map(\.sender)).count == 3)
        server.gate.open()
        for path in paths { _ = try await running.client.wait(path) }
        for name in ["org.example.A", "org.example.B", "org.todoku.Downloader1"] {
            #expect(await eventually { await dock.mark(of: name)?.isBare == true })
        }
    }

    @Test func `is marked again for a later or restarted dock, and bare when the service exits`() async throws {
        let server = TrickleServer()
        let running = try await Running.start()
        let dock = try await StandInDock(on: running.world.bus.address, isOwner: false)
        let path = try await running.download(server.url("/a"))
        // At most ten signals a second: there has been something to show for a second and a half.
        #expect(await running.client.signals.has("Progress", at: path, count: 16))
        let appeared = ContinuousClock.now
        try await dock.appear()
        #expect(await eventually { await dock.mark()?.count == 1 })
        #expect(await dock.marks.allSatisfy { $0.arrived >= appeared }, "no bus is troubled where no dock is")
        let mark = try #require(await dock.mark())
        let other = try await StandInDock(on: running.world.bus.address, isOwner: false)
        try await dock.vanish()
        #expect(try await eventually { try await !dock.isThere(mark) })
        await other.forget()
        try await other.appear()
        #expect(await eventually { await other.mark()?.count == 1 })
        await running.daemon.stop()
        #expect(await eventually { await other.mark()?.properties == bare })
        server.gate.open()
    }

    @Test func `changes at most twice a second, and a short download does not mark it`() async throws {
        let server = TrickleServer()
        let running = try await Running.start()
        let dock = try await StandInDock(on: running.world.bus.address)
        let begun = ContinuousClock.now
        let path = try await running.download(server.url("/slow"))
        #expect(await eventually { await dock.marks.count >= 6 })
        server.gate.open()
        try await running.client.cancel(path)
        #expect(await eventually { await dock.mark()?.isBare == true })
        let marks = await dock.marks
        let seconds = try #require(marks.last?.arrived) - begun
        #expect(marks.count <= 1 + Int(seconds / .milliseconds(500)), "\(marks.count) in \(seconds)")
        // On a busy machine, even a small download may take too long.
        var lasted = Duration.seconds(1)
        while lasted > .milliseconds(450) {
            await dock.forget()
            let start = ContinuousClock.now
            try await running.fetch(server.url("/small"))
            lasted = .now - start
        }
        // Marks arrive in order: a mark for the small download would have arrived before this one.
        let last = try await running.download(server.url("/later"), ["desktop-id": .string("org.example.Last"), "start": .bool(false)])
        #expect(await eventually { await dock.mark(of: "org.example.Last")?.count == 1 })
        #expect(await dock.mark()?.isBare ?? true)
        try await running.client.cancel(last)
    }

    @Test func `of too many applications are marked as room appears`() async throws {
        let running = try await Running.start()
        let dock = try await StandInDock(on: running.world.bus.address)
        var paths: [ObjectPath] = []
        for number in 0..<Limits.dockIcons + 3 {
            paths.append(
                try await running.download(
                    "http://127.0.0.1:9/\(number)", ["desktop-id": .string("org.example.A\(number)"), "start": .bool(false)]))
        }
        #expect(await eventually { await Set(dock.marks.map(\.uri)).count == Limits.dockIcons })
        let first = Set(await dock.marks.map(\.uri))
        // Our own icon has its mark beside these.
        _ = try await running.download("http://127.0.0.1:9/own", ["start": .bool(false)])
        #expect(await eventually { await dock.mark()?.count == 1 })
        for (number, path) in paths.enumerated() where first.contains("application://org.example.A\(number).desktop") {
            try await running.client.cancel(path)
        }
        #expect(await eventually { await Set(dock.marks.map(\.uri)).count == Limits.dockIcons + 3 + 1 })
    }

    /// Paused downloads keep their marks for ever. One commit adds all downloads of the app, so all its icons are there at the first look.
    @Test func `is marked, and so are those of other applications, while an app in a sandbox names many icons`() async throws {
        let running = try await Running.start()
        let dock = try await StandInDock(on: running.world.bus.address)
        let sandbox = await Sandbox(running.world)
        let items = (0..<Limits.dockIcons).map { number -> (String, [String: Variant]) in
            ("http://example.org/\(number)", ["desktop-id": .string("org.example.App.A\(number)")])
        }
        _ = try await sandbox.client().batch(items, ["start": .bool(false)])
        #expect(await eventually { await Set(dock.marks.map(\.uri)).count >= Limits.dockIconsOfSandboxedApp })
        _ = try await running.download("http://127.0.0.1:9/own", ["start": .bool(false)])
        _ = try await running.download("http://127.0.0.1:9/other", ["desktop-id": .string("org.example.Other"), "start": .bool(false)])
        #expect(await eventually { await dock.mark()?.count == 1 })
        #expect(await eventually { await dock.mark(of: "org.example.Other")?.count == 1 })
        #expect(await Set(dock.marks.map(\.uri)).count == Limits.dockIconsOfSandboxedApp + 2)
        await sandbox.stop()
    }
}

/// A real plank with our icon in it, and what its user sees.
private struct Plank {
    let display: Display
    let programs: [Child]
    private let picture: String

    static func start(on bus: PrivateBus, _ display: Display) async throws -> Plank {
        let entry = bus.folder("data/applications/org.todoku.Downloader1.desktop")
        let dock = bus.folder("config/plank/dock1/launchers")
        let environment = bus.environment.merging(["DISPLAY": display.name, "GSETTINGS_BACKEND": "keyfile", "GTK_A11Y": "none"]) { $1 }
        // The icon has no red, because red is the colour of the count.
        for arguments in [
            ["mkdir", "-p", bus.folder("data/applications"), dock],
            ["convert", "-size", "64x64", "xc:#2060c0", bus.folder("icon.png")],
        ] {
            let exit = await Child.run(arguments, environment: environment)
            try #require(exit.status == 0, "\(arguments[0]) (packages coreutils, imagemagick): \(exit.errors)")
        }
        writeFile(entry, "[Desktop Entry]\nType=Application\nName=Todoku\nExec=/bin/true\nIcon=\(bus.folder("icon.png"))\n".utf8)
        writeFile("\(dock)/app.dockitem", "[PlankDockItemPreferences]\nLauncher=file://\(entry)\n".utf8)
        let manager = Child(["metacity"], environment: environment)
        let plank = Child(["plank"], environment: environment)
        let isUp = await eventually { await bus.hasOwner(StandInDock.name) || !plank.isRunning || !manager.isRunning }
        try #require(isUp && plank.isRunning, "plank (package plank) did not start: \(plank.errors)")
        try #require(manager.isRunning, "metacity (package metacity) did not start: \(manager.errors)")
        return Plank(display: display, programs: [manager, plank], picture: bus.folder("screen.png"))
    }

    /// How many pixels of the screen have a colour that `isWanted` accepts.
    private func pixels(_ isWanted: (_ red: Int, _ green: Int, _ blue: Int) -> Bool) async -> Int {
        await display.screenshot(picture)
        let exit = await Child.run(["convert", picture, "-depth", "8", "-format", "%c", "histogram:info:"])
        // "   13: (224,39,29) #E0271D srgb(224,39,29)"
        return exit.output.split(separator: "\n").reduce(0) { sum, line in
            let parts = line.split { " :(,)".contains($0) }
            guard parts.count > 4, let count = Int(parts[0]), let red = Int(parts[1]), let green = Int(parts[2]), let blue = Int(parts[3])
            else { return sum }
            return isWanted(red, green, blue) ? sum + count : sum
        }
    }

    func red() async -> Int { await pixels { $0 > 150 && $1 < 100 && $2 < 100 } }
    /// Pixels of the icon itself.
    func blue() async -> Int { await pixels { $0 < 80 && $2 > 140 } }
}

@Suite struct `With plank` {
    @Test func `the icon has its count and its progress while a download lasts, and is bare afterwards`() async throws {
        let display = await Display(width: 500, height: 200)
        let running = try await Running.start(extra: ["DISPLAY": display.name])
        let heard = try await StandInDock(on: running.world.bus.address, isOwner: false)
        let plank = try await Plank.start(on: running.world.bus, display)
        // The icon grows when it appears. It is whole when it has been the same for longer than plank may stop on a busy machine.
        var (bareBlue, since) = (0, ContinuousClock.now)
        let isThere = await eventually {
            let blue = await plank.blue()
            if blue != bareBlue { (bareBlue, since) = (blue, .now) }
            return bareBlue > 1000 && since.duration(to: .now) > .seconds(5)
        }
        #expect(isThere, "the icon is not there")
        #expect(await plank.red() < 20)
        let server = SteppedServer(600_000)
        // The server is silent for as long as the pictures take.
        let path = try await running.download(server.url("/a"), ["stall-timeout": .uint32(3_600_000)])
        #expect(await eventually { await plank.red() > 100 }, "the count is not there")
        // The bar covers part of the icon.
        #expect(await eventually { await plank.blue() < bareBlue - 100 })
        #expect(await eventually { await heard.mark()?.progress == 0.6 })
        #expect(await heard.mark()?.count == 1)
        await display.screenshot(productPath("dock-plank.png"))
        server.gate.open()
        _ = try await running.client.wait(path)
        #expect(await eventually { await plank.red() < 20 }, "the count stays")
        #expect(await eventually { await plank.blue() >= bareBlue - 20 }, "the bar stays")
        let isUp = plank.programs.allSatisfy { $0.isRunning }
        #expect(isUp)
        let exit = await running.daemon.stop()
        #expect(exit.isClean, "\(exit)")
    }
}
