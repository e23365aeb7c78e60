internal import DBus
internal import DownloadModel
internal import DownloadStore
internal import DownloaderInterface
internal import EventLoop
internal import Glibc
internal import TestSupport
internal import Testing

/// Serves one file. Holds the first request after `first` bytes.
struct SlowFile {
    let server: ScriptedServer
    let gate = Gate()
    let body = patternBytes(1_500_000)
    static let first = 1_200_000

    init() {
        let (body, gate) = (body, gate)
        server = ScriptedServer { request, reply in
            guard request.range == nil, request.number == 0 else { return reply.serve(body, for: request, entityTag: "\"v\"") }
            reply.head(200, ["ETag": "\"v\""], length: body.count)
            reply.send(body[..<SlowFile.first])
            gate.wait()
        }
    }
}

extension Running {
    /// Starts to download `url`, and waits for its first `SlowFile.first` bytes.
    func begin(_ url: String, _ options: [String: Variant] = [:]) async throws -> ObjectPath {
        // The server may be silent for as long as the test needs.
        let path = try await download(url, ["stall-timeout": .uint32(3_600_000)].merging(options) { $1 })
        let has = await client.signals.until { seen in
            seen.contains { $0.path == path.value && $0.progress?.received == UInt64(SlowFile.first) }
        }
        #expect(has, "the first bytes did not come")
        return path
    }

    func state(_ path: ObjectPath) async throws -> String { try await client.get(Download.state, at: path) }
}

/// A service that downloads a `SlowFile`, and therefore holds the two locks of a logind.
private struct KeptAwake {
    let file = SlowFile()
    let bus: PrivateBus
    let logind: StandInLogind
    let running: Running
    let path: ObjectPath

    init() async throws {
        bus = await PrivateBus()
        logind = try await StandInLogind(on: bus.address)
        running = try await Running.start(extra: ["DBUS_SYSTEM_BUS_ADDRESS": bus.address])
        path = try await running.begin(file.server.url("/a"))
        let logind = logind
        #expect(await eventually { await logind.held == ["block", "delay"] })
    }
}

@Suite struct `While bytes move` {
    @Test func `the machine is kept awake by a lock and a delay, and not when all is paused, waiting or done`() async throws {
        let file = SlowFile()
        let bus = await PrivateBus()
        let logind = try await StandInLogind(on: bus.address)
        let running = try await Running.start(extra: ["DBUS_SYSTEM_BUS_ADDRESS": bus.address])
        // While idle, the service does not even connect to logind.
        _ = try await running.client.list()
        #expect(await logind.asked == [])
        let path = try await running.begin(file.server.url("/a"))
        #expect(await eventually { await logind.held == ["block", "delay"] })
        #expect(await Set(logind.asked) == ["sleep Todoku block", "sleep Todoku delay"], "never the screen, which is “idle”")
        try await running.client.pause(path)
        #expect(await eventually { await logind.held == [] })
        file.gate.open()
        try await running.client.resume(path)
        #expect(readFile(try await running.client.wait(path)) == file.body)
        #expect(await eventually { await logind.held == [] })

        let busy = ScriptedServer { _, reply in reply.respond(503, ["Retry-After": "3600"]) }
        let waiting = try await running.download(busy.url("/a"))
        #expect(await running.client.signals.isIn("waiting", waiting))
        #expect(await eventually { await logind.held == [] })
        #expect(running.daemon.isRunning)
    }

    @Test func `nothing is held for one that was redirected and waits for its host`() async throws {
        let bus = await PrivateBus()
        let logind = try await StandInLogind(on: bus.address)
        let server = ScriptedServer { request, reply in
            let isFirst = request.target.contains("first.example")
            if isFirst { reply.respond(302, ["Location": "http://slow.example/f"]) } else { reply.respond(200, text: "x") }
        }
        let running = try await Running.start(extra: ["http_proxy": server.url("/"), "DBUS_SYSTEM_BUS_ADDRESS": bus.address])
        try await running.client.call(Manager.setHostRule, ("slow.example", ["request-interval": .uint32(3_600_000)]))
        _ = try await running.fetch("http://slow.example/e")
        #expect(await eventually { await logind.held == [] })
        let redirected = try await running.download("http://first.example/f")
        #expect(await running.client.signals.isIn("waiting", redirected))
        #expect(await eventually { await logind.held == [] })
        #expect(try await running.state(redirected) == "waiting")
    }

    @Test func `many small files take the locks once, and what is killed holds none`() async throws {
        let bus = await PrivateBus()
        let logind = try await StandInLogind(on: bus.address)
        let running = try await Running.start(extra: ["DBUS_SYSTEM_BUS_ADDRESS": bus.address])
        let gate = Gate()
        let server = ScriptedServer { request, reply in
            if request.path == "/last" { gate.wait() }
            reply.respond(200, text: "x")
        }
        try await running.client.set(Manager.maxActive, 1)
        // All are queued before the first starts: nothing would be left to do where a call of this test comes late.
        try await running.client.call(Manager.pauseAll, ())
        var paths: [ObjectPath] = []
        for number in 0..<20 { paths.append(try await running.download(server.url("/\(number)"))) }
        _ = try await running.download(server.url("/last"))
        let begun = ContinuousClock.now
        try await running.client.call(Manager.resumeAll, ())
        for path in paths { _ = try await running.client.wait(path) }
        #expect(await eventually { await logind.held == ["block", "delay"] })
        // The locks stay for three seconds after the last byte. Where a machine stops for longer between two files, they are taken again.
        let pauses = Int((ContinuousClock.now - begun) / .seconds(3))
        #expect(await logind.asked.count <= 2 * (1 + pauses), "\(pauses)")
        await running.world.kill(running.daemon)
        #expect(await eventually { await logind.held == [] })
        gate.open()
    }

    @Test func `a logind that goes is asked again when it is back`() async throws {
        let awake = try await KeptAwake()
        let (file, logind, running, path) = (awake.file, awake.logind, awake.running, awake.path)
        try await logind.vanish()
        #expect(await logind.held == [])
        try await logind.appear()
        #expect(await eventually { await logind.held == ["block", "delay"] })
        // logind vanishes during a sleep, so no signal reports that the machine is awake again.
        await logind.prepareForSleep(true)
        #expect(await running.client.signals.isIn("queued", path))
        try await logind.vanish()
        #expect(readFile(try await running.client.wait(path)) == file.body)
    }

    @Test func `the session is asked too, which puts the machine to sleep itself: the portal, else the session manager`() async throws {
        for (hasPortal, isRefused) in [(true, true), (false, true), (true, false)] {
            let file = SlowFile()
            let bus = await PrivateBus()
            let logind = try await StandInLogind(on: bus.address)
            await BusActor.run { logind.refused = isRefused ? ["block"] : [] }
            let world = await ServiceWorld(extra: ["DBUS_SYSTEM_BUS_ADDRESS": bus.address])
            let manager = try await StandInSessionManager(on: world.bus.address)
            let portal = hasPortal ? try await StandInPortal(on: world.bus.address) : nil
            let running = Running(world: world, daemon: await world.start(), client: try await world.client())
            let path = try await running.begin(file.server.url("/a"))
            if let portal { #expect(await eventually { await portal.calls == ["Inhibit 4"] }) }
            #expect(await eventually { await manager.calls == (hasPortal ? [] : ["Inhibit 4"]) })
            #expect(await eventually { await logind.held == (isRefused ? ["delay"] : ["block", "delay"]) })
            try await running.client.pause(path)
            if let portal { #expect(await eventually { await portal.calls == ["Inhibit 4", "Close"] }) }
            #expect(await eventually { await manager.calls == (hasPortal ? [] : ["Inhibit 4", "Uninhibit 77"]) })
            file.gate.open()
        }
    }

    @Test(arguments: ["none", "mute", "full"])
    func `a missing or hanging system bus delays nothing`(kind: String) async throws {
        let folder = TemporaryFolder()
        let mute = kind == "none" ? nil : MuteBus(in: folder, isFull: kind == "full")
        let server = ScriptedServer { _, reply in reply.respond(200, text: "x") }
        var extra = ["http_proxy": server.url("")]
        // On a busy machine everything takes long. So a second service without a system bus does the same at the same time.
        let other = try await Running.start(extra: extra.merging(["DBUS_SYSTEM_BUS_ADDRESS": "unix:path=\(folder("none"))"]) { $1 })
        if let mute { extra["DBUS_SYSTEM_BUS_ADDRESS"] = mute.address }
        let running = try await Running.start(extra: extra)
        // libdbus' own connection to the bus would have blocked for 25 s.
        func expectSoon(_ what: String, _ body: @escaping @Sendable (Running) async throws -> Void) async throws {
            func time(_ running: Running) async throws -> Duration {
                let begun = ContinuousClock.now
                try await body(running)
                return .now - begun
            }
            async let usual = time(other)
            let (own, limit) = (try await time(running), max(.seconds(20), (try await usual) * 3))
            #expect(own < limit, "\(what)")
        }
        try await expectSoon("a download") { running in
            let file = try await running.fetch(server.url("/a"))
            #expect(readFile(file) == [0x78])
        }
        try await expectSoon("one that may not be metered") { running in
            let file = try await running.fetch("http://files.example.org/b", ["allow-metered": .bool(false)])
            #expect(readFile(file) == [0x78])
        }
        for number in 0..<20 {
            try await expectSoon("download \(number)") { running in
                let path = try await running.download(server.url("/\(number)"))
                let listed = try await running.client.list()
                #expect(listed.contains(path))
                _ = try await running.client.wait(path)
            }
        }
        #expect(await other.world.stop(other.daemon).status == 0)
        let exit = await running.world.stop(running.daemon)
        #expect(exit.status == 0)
        withExtendedLifetime(mute) {}
    }
}

@Suite struct `A machine that goes to sleep` {
    @Test func `has every byte on disk before its lock is released, and resumes with the next byte`() async throws {
        let awake = try await KeptAwake()
        let (file, logind, running, path) = (awake.file, awake.logind, awake.running, awake.path)
        let daemon = running.daemon
        // The machine may sleep from the moment of the release on. Stop the service there, because only the bytes on disk at that moment
        // count.
        let released = Gate()
        await BusActor.run {
            logind.released = { mode in
                guard mode == "delay" else { return }
                daemon.signal(SIGSTOP)
                released.open()
            }
        }
        await logind.prepareForSleep(true)
        #expect(await eventually { released.isOpen })
        let record = try await savedRecord(running.world)
        #expect(record.received == ByteCount(SlowFile.first) && record.resume?.written == ByteCount(SlowFile.first), "\(record)")
        #expect(running.world.bytes(running.world.partName(1))?.prefix(SlowFile.first) == file.body[..<SlowFile.first])
        daemon.signal(SIGCONT)
        #expect(await running.client.signals.isIn("queued", path))
        #expect(await eventually { await logind.held == [] })
        // Nothing starts, whoever asks for it.
        let other = try await running.download(file.server.url("/b"))
        try await running.client.resume(path)
        #expect(try await running.state(other) == "queued" && file.server.requests.count == 1)

        await logind.prepareForSleep(false)
        #expect(readFile(try await running.client.wait(path)) == file.body)
        _ = try await running.client.wait(other)
        let ranges = file.server.requests.filter { $0.path == "/a" }.map { $0.range?.first }
        #expect(ranges == [nil, SlowFile.first])
        // Two buses: the calls to logind may arrive after the ends of the downloads. Where the machine stops between the two downloads, the
        // locks are taken once more.
        #expect(await eventually { await logind.asked.count >= 4 }, "the locks are taken again")
        file.gate.open()
    }

    @Test func `makes new connections when it is awake`() async throws {
        let gate = Gate()
        let server = ScriptedServer { request, reply in
            if request.number == 0 {
                reply.head(200, length: 2)
                reply.send("x")
                gate.wait()
            } else {
                reply.respond(200, text: "xy")
            }
        }
        let bus = await PrivateBus()
        let logind = try await StandInLogind(on: bus.address)
        let running = try await Running.start(extra: ["DBUS_SYSTEM_BUS_ADDRESS": bus.address])
        let slow = try await running.download(server.url("/slow"))
        #expect(await running.client.signals.has("Progress", at: slow))
        _ = try await running.fetch(server.url("/a"))  // its connection is kept for the next request
        let before = server.connections
        #expect(await eventually { await logind.held == ["block", "delay"] })
        await logind.prepareForSleep(true)
        #expect(await running.client.signals.isIn("queued", slow))
        await logind.prepareForSleep(false)
        _ = try await running.client.wait(slow)
        #expect(server.requests.map(\.connection) == [0, 1, before], "the connections of before lead nowhere")
        gate.open()
    }

    @Test func `is asked again, when it wakes, for the locks that it has refused`() async throws {
        let file = SlowFile()
        let bus = await PrivateBus()
        let logind = try await StandInLogind(on: bus.address)
        await BusActor.run { logind.refused = ["block", "delay"] }
        let running = try await Running.start(extra: ["DBUS_SYSTEM_BUS_ADDRESS": bus.address])
        // Before the first byte, the service does not listen to logind.
        let path = try await running.begin(file.server.url("/a"))
        #expect(await eventually { await logind.asked.count == 2 })
        await BusActor.run { logind.refused = ["block"] }
        await logind.prepareForSleep(false)
        #expect(await eventually { await logind.held == ["delay"] })
        await BusActor.run { logind.refused = [] }
        await logind.prepareForSleep(false)
        #expect(await eventually { await logind.held == ["block", "delay"] })
        #expect(await logind.asked.count { $0.hasSuffix("delay") } == 2, "a lock that is held is not requested again")
        #expect(try await running.state(path) == "active")
        file.gate.open()
    }

    @Test func `is believed only from logind`() async throws {
        let awake = try await KeptAwake()
        let (file, bus, logind, running, path) = (awake.file, awake.bus, awake.logind, awake.running, awake.path)
        let stranger = try await Connection.open(address: bus.address)
        let names = try await stranger.call(
            MethodOf(BusDaemon.name, "ListNames", out: [String].self), on: BusDaemon.name, at: BusDaemon.path, ())
        for destination in names.filter({ $0.hasPrefix(":") }).map({ ["--dest=\($0)"] }) + [[]] {
            let sent = await Child.run(
                ["dbus-send", "--bus=\(bus.address)", "--type=signal"] + destination + [
                    "/org/freedesktop/login1", "org.freedesktop.login1.Manager.PrepareForSleep", "boolean:true",
                ])
            #expect(sent.status == 0, "\(sent.errors)")
        }
        // The bus delivers in order: once logind's return has been seen, so have all earlier messages.
        try await logind.vanish()
        try await logind.appear()
        #expect(await eventually { await logind.asked.count == 4 })
        #expect(try await running.state(path) == "active" && file.server.requests.count == 1)
        file.gate.open()
    }

    /// The record of the first download in a copy of the database, as after a power cut.
    private func savedRecord(_ world: ServiceWorld) async throws -> DownloadRecord {
        let copy = TemporaryFolder()
        let folder = copy.makeFolder("todoku")
        for name in ["todoku.db", "todoku.db-wal"] {
            if let bytes = readFile("\(world.state)/\(name)") { writeFile("\(folder)/\(name)", bytes, mode: 0o600) }
        }
        chmod(folder, 0o700)
        let store = Store(folder: folder)
        nonisolated(unsafe) var records: [DownloadRecord] = []  // written by the store's thread before `open` returns
        _ = try await store.open { if case .records(let read) = $0 { records += read } }
        await store.close()
        return try #require(records.first)
    }
}
