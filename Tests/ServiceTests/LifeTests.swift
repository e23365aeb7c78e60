internal import DBus
internal import DownloaderInterface
internal import EventLoop
internal import Glibc
internal import TestSupport
internal import Testing

@Suite struct `The life of the service` {
    @Test func `killed in the middle it goes on where it was`() async throws {
        let world = await ServiceWorld()
        let client = try await world.client()
        let body = patternBytes(3_000_000)
        let gate = Gate()
        let server = ScriptedServer { request, reply in
            if request.range == nil {
                reply.head(200, ["ETag": "\"v1\""], length: body.count)
                reply.send(body[..<2_500_000])
                gate.wait()
            } else {
                reply.serve(body, for: request, entityTag: "\"v1\"")
            }
        }
        let daemon = await world.start()
        let path = try await client.download(server.url("/a.bin"), ["directory": .string(world.folder), "notify": .string("never")])
        #expect(await client.signals.until { $0.contains { $0.progress?.received == 2_500_000 } })
        await world.kill(daemon)
        #expect(world.files == [".todoku-1.part"])
        _ = await world.start()
        #expect(readFile(try await client.wait(path)) == body)
        gate.open()
        let request = try #require(server.requests.last)
        #expect(request.field("If-Range") == "\"v1\"")
        // The written map lives through kill -9: nothing that was written is fetched again.
        #expect(request.range?.first == 2_500_000)
        #expect(await client.signals.of(path).compactMap(\.resumedAt).map(\.offset) == [2_500_000])
        #expect(world.files == ["a.bin"])
    }

    @Test func `ended by SIGTERM in the middle it goes on at the next start`() async throws {
        let world = await ServiceWorld()
        let client = try await world.client()
        let body = patternBytes(300_000)
        let gate = Gate()
        let server = ScriptedServer { request, reply in
            if request.range == nil {
                reply.head(200, ["ETag": "\"v1\""], length: body.count)
                reply.send(body[..<200_000])
                gate.wait()
            } else {
                reply.serve(body, for: request, entityTag: "\"v1\"")
            }
        }
        let daemon = await world.start()
        let path = try await client.download(server.url("/a.bin"), ["directory": .string(world.folder), "notify": .string("never")])
        #expect(await client.signals.until { $0.contains { $0.progress?.received == 200_000 } })
        let exit = await world.stop(daemon)
        #expect(exit.isClean, "\(exit)")
        #expect(readFile("\(world.folder)/.todoku-1.part") == Array(body[..<200_000]))
        // The checkpoint alone must do: the map is taken away.
        unlink("\(world.state)/segments/1")
        _ = await world.start()
        #expect(readFile(try await client.wait(path)) == body)
        gate.open()
        #expect(server.requests.last?.range?.first == 200_000)
    }

    @Test func `of outcomes, settings and numbers lasts over restarts, and nothing is signalled twice`() async throws {
        let world = await ServiceWorld()
        let client = try await world.client()
        let server = ScriptedServer { request, reply in
            if request.path == "/bad" { reply.respond(404) } else { reply.respond(200, text: "x") }
        }
        let options: [String: Variant] = ["directory": .string(world.folder), "notify": .string("never"), "app": .string("org.example.App")]
        var daemon = await world.start()
        let good = try await client.download(server.url("/good"), options)
        let bad = try await client.download(server.url("/bad"), options)
        let cancelled = try await client.download(server.url("/never"), options.merging(["start": .bool(false)]) { $1 })
        _ = try await client.wait(good)
        let error = await thrown { try await client.wait(bad) }
        try await client.cancel(cancelled)
        try await client.set(Manager.maxActive, 2)
        try await client.set(Manager.maxPerHost, 1)
        try await client.set(Manager.speedLimit, 12345)
        try await client.set(Manager.defaultDirectory, world.folder + "/")
        let order = try await client.list()
        #expect(order.count == 3)
        let before = [try await client.all(good), try await client.all(bad), try await client.all(cancelled)]
        _ = await world.stop(daemon)

        let seen = await client.signals.seen.count
        daemon = await world.start()
        #expect([try await client.all(good), try await client.all(bad), try await client.all(cancelled)] == before)
        #expect(try await client.wait(good) == "\(world.folder)/good")
        #expect(await thrown { try await client.wait(bad) } == error)
        #expect(await thrown { try await client.wait(cancelled) }?.name == todokuError("Cancelled"))
        #expect(try await client.get(Manager.maxActive) == 2)
        #expect(try await client.get(Manager.maxPerHost) == 1)
        #expect(try await client.get(Manager.speedLimit) == 12345)
        #expect(try await client.get(Manager.defaultDirectory) == world.folder)
        #expect(try await client.list() == order)
        #expect(await client.signals.seen.count == seen)
        _ = try await client.call(Manager.clearEnded, ())
        _ = await world.stop(daemon)

        // Numbers only grow, whatever was removed.
        daemon = await world.start()
        #expect(try await client.list() == [])
        let next = try await client.download(server.url("/good"), options.merging(["start": .bool(false)]) { $1 })
        #expect(next.value.hasSuffix("/download/4"))
        #expect(world.files == ["good"])
        _ = await world.stop(daemon)
    }

    @Test func `acknowledged a download before it was killed, and has it afterwards`() async throws {
        let world = await ServiceWorld()
        let client = try await world.client()
        for round in 1...5 {
            let daemon = await world.start()
            let path = try await client.download("http://127.0.0.1:1/\(round)", ["start": .bool(false)])
            await world.kill(daemon)
            #expect(path.value.hasSuffix("/\(round)"))
        }
        _ = await world.start()
        #expect(try await client.list().count == 5)
    }

    @Test func `is one on a bus: a second ends with status 2`() async throws {
        let running = try await Running.start()
        let path = try await running.download("http://127.0.0.1:1/a", ["start": .bool(false)])
        let second = await Child.run([ServiceWorld.todokud], environment: running.world.environment)
        #expect(second.status == 2)
        #expect(second.errors.contains("another todokud"))
        #expect(running.daemon.isRunning)
        #expect(try await running.client.list() == [path])
    }

    @Test func `at login begins only where something is pending`() async throws {
        let world = await ServiceWorld()
        let client = try await world.client()
        let server = ScriptedServer { _, reply in reply.respond(200, text: "x") }
        #expect(await world.begin(["--if-pending"]).wait().isClean)
        #expect(listFolder(world.bus.folder("state")) == [])

        let options: [String: Variant] = ["directory": .string(world.folder), "notify": .string("never")]
        var daemon = await world.start()
        let path = try await client.download(server.url("/a"), options.merging(["start": .bool(false)]) { $1 })
        let done = try await client.download(server.url("/b"), options)
        _ = try await client.wait(done)
        await world.kill(daemon)
        // One is paused and one has ended: neither goes on by itself.
        #expect(await world.begin(["--if-pending"]).wait().isClean)
        #expect(await client.signals.count("NameOwnerChanged") == 0)

        daemon = await world.start()
        server.stop()
        try await client.resume(path)
        #expect(await client.signals.isIn("waiting", path))
        await world.kill(daemon)
        daemon = await world.start(["--if-pending"])
        #expect(try await client.get(Manager.remaining) == 1)
        _ = await world.stop(daemon)
    }

    @Test func `tells what it is by its options`() async throws {
        let version = await Child.run([ServiceWorld.todokud, "--version"])
        #expect(version.status == 0 && version.output.hasPrefix("todokud "))
        let help = await Child.run([ServiceWorld.todokud, "--help"])
        #expect(help.status == 0 && help.output.contains("--if-pending") && help.output.contains("--idle-exit"))
        for bad in [["--nothing"], ["--idle-exit", "0"], ["--idle-exit"], ["--log-level", "loud"], ["argument"], ["--version=1"]] {
            let exit = await Child.run([ServiceWorld.todokud] + bad)
            #expect(exit.status == 64 && exit.errors.hasPrefix("todokud: "), "\(bad)")
        }
    }

    @Test func `cannot begin without a bus or without a place for its state, and says so`() async throws {
        let world = await ServiceWorld()
        let noBus = await Child.run(
            [ServiceWorld.todokud], environment: world.environment.merging(["DBUS_SESSION_BUS_ADDRESS": "unix:path=/nonexistent"]) { $1 })
        #expect(noBus.status == 1)
        #expect(noBus.errors.contains("no session bus"))
        writeFile(world.bus.folder("occupied"), [])
        let noState = await world.begin(extra: ["XDG_STATE_HOME": world.bus.folder("occupied")]).wait()
        #expect(noState.status == 1)
        #expect(noState.errors.contains("cannot start"))
    }

    @Test func `ends with status 0 when the bus dies, its part file kept`() async throws {
        let running = try await Running.start()
        let gate = Gate()
        let server = ScriptedServer { _, reply in
            reply.head(200, ["ETag": "\"v\""], length: 100)
            reply.send(patternBytes(50))
            gate.wait()
        }
        let path = try await running.download(server.url("/a"))
        #expect(await running.client.signals.has("Progress", at: path))
        await running.world.bus.stop()
        #expect(await running.daemon.wait().status == 0)
        gate.open()
        #expect(running.world.bytes(".todoku-1.part") == patternBytes(50))
    }

    @Test func `ends on SIGINT and SIGHUP as on SIGTERM`() async throws {
        for signal in [SIGINT, SIGHUP] {
            let world = await ServiceWorld()
            let daemon = await world.start()
            daemon.signal(signal)
            #expect(await daemon.wait().isClean)
        }
    }
}

@Suite struct `A disk that takes no more` {
    @Test func `is told to the caller, and what is queued already goes on`() async throws {
        let world = await ServiceWorld()
        let client = try await world.client()
        // A limit on the size of files stands for the full disk: writing beyond it fails, and can be allowed again.
        let daemon = await world.start(prefix: ["env", "--ignore-signal=XFSZ", "prlimit", "--fsize=200000:unlimited"])
        let server = ScriptedServer { _, reply in reply.respond(200, text: "x") }
        let options: [String: Variant] = ["directory": .string(world.folder), "notify": .string("never"), "start": .bool(false)]
        var paths: [ObjectPath] = []
        var error: DBusError?
        while error == nil, paths.count < 500 {
            error = await thrown { paths.append(try await client.download(server.url("/\(paths.count)"), options)) }
        }
        #expect(error?.name == todokuError("Storage"))
        #expect(error.map(isSentence) == true && error?.message.contains("..") == false, "\(error?.message ?? "")")
        #expect(try await client.list() == paths)
        #expect(await client.signals.count("DownloadAdded") == paths.count)
        let raised = await world.run("prlimit", "--pid", "\(daemon.pid)", "--fsize=unlimited")
        #expect(raised.status == 0, "\(raised.errors)")
        let more = try await client.download(server.url("/more"), options)
        try await client.resume(more)
        #expect(try await client.wait(more) == "\(world.folder)/more")
        #expect(try await client.list().count == paths.count + 1)
        await world.kill(daemon)
        _ = await world.start()
        #expect(try await client.list() == paths + [more])
    }
}

@Suite struct `Idle` {
    @Test func `it leaves by itself and releases the name; paused downloads do not keep it`() async throws {
        let running = try await Running.start(["--idle-exit", "1"])
        let server = ScriptedServer { _, reply in reply.respond(200, text: "x") }
        let paused = try await running.download(server.url("/a"), ["start": .bool(false)])
        let done = try await running.download(server.url("/b"))
        _ = try await running.client.wait(done)
        let since = ContinuousClock.now
        let exit = await running.daemon.wait()
        #expect(exit.isClean, "\(exit)")
        #expect(ContinuousClock.now - since > .milliseconds(900))
        #expect(await running.world.bus.hasOwner(BusName.service) == false)
        _ = await running.world.start()
        #expect(try await running.client.get(Download.state, at: paused) == "paused")
    }

    @Test func `what is held by PauseAll does not keep it`() async throws {
        let running = try await Running.start(["--idle-exit", "1"])
        try await running.client.call(Manager.pauseAll, ())
        _ = try await running.download("http://127.0.0.1:1/a")
        #expect(await running.daemon.wait().status == 0)
    }

    @Test func `a pending Wait keeps it, until its caller leaves`() async throws {
        let running = try await Running.start(["--idle-exit", "1"])
        let path = try await running.download("http://127.0.0.1:1/a", ["start": .bool(false)])
        let waiter = Child(
            ["gdbus", "call", "--session", "--timeout", "60", "--dest", BusName.service, "--object-path", path.value, "--method", "org.todoku.Download1.Wait", "{}"],
            environment: running.world.environment)
        let monitor = Child(["dbus-monitor", "--session", "--profile"], environment: running.world.environment)
        #expect(await eventually { monitor.output.contains("NameLost") })
        // It is still there well after the second: nothing but time shows that.
        #expect(await eventually(within: .milliseconds(2500)) { !running.daemon.isRunning } == false)
        waiter.signal(SIGKILL)
        let since = ContinuousClock.now
        #expect(await running.daemon.wait().status == 0)
        #expect(ContinuousClock.now - since < .seconds(10))
    }

    @Test func `a retry that is waited for keeps it`() async throws {
        let running = try await Running.start(["--idle-exit", "1"])
        let server = ScriptedServer { request, reply in
            if request.number == 0 { reply.respond(503, ["Retry-After": "3"]) } else { reply.respond(200, text: "x") }
        }
        let path = try await running.download(server.url("/a"))
        #expect(await running.client.signals.has("Completed", at: path))
        #expect(running.daemon.isRunning)
        #expect(await running.daemon.wait().status == 0)
        #expect(server.requests.count == 2)
    }

    @Test func `a call that races with its leaving is answered, 200 times`() async throws {
        let slot = await Slot()
        let races = 8
        let left = try await withThrowingTaskGroup(of: Int.self) { group in
            for race in 0..<races { group.addTask { try await Race.run(rounds: 200 / races, start: 1000 + race) } }
            return try await group.reduce(0, +)
        }
        // About half of the calls came just before and half just after it had left: each time the next call moves to the other side.
        #expect((40...160).contains(left), "\(left) of 200")
        withExtendedLifetime(slot) {}
    }

    @Test func `it does not wake up, and has only threads that sleep`() async throws {
        let running = try await Running.start()
        let server = ScriptedServer { request, reply in reply.serve(patternBytes(2_000_000), for: request) }
        _ = try await running.fetch(server.url("/a"))
        let process = "/proc/\(running.daemon.pid)"
        // The pool's threads leave after five seconds; libcurl's closes idle connections when it is asked next.
        #expect(await eventually { !threadNames(process).contains("todoku-pool") })
        let before = await settled(process)
        await pause(milliseconds: 3000)
        #expect(switches(process) == before)
        #expect(Set(before.keys.map(\.name)) == ["todokud", "todoku-curl", "todoku-store"])
    }

    @Test func `that began without anything to do it has one thread`() async throws {
        let world = await ServiceWorld()
        let client = try await world.client()
        let daemon = await world.start()
        #expect(try await client.list() == [])
        let process = "/proc/\(daemon.pid)"
        let before = await settled(process)
        await pause(milliseconds: 2000)
        #expect(switches(process) == before)
        #expect(before.keys.map(\.name).filter { $0 != "todoku-store" } == ["todokud"])
    }
}

/// Calls at about the moment when the daemon, idle for a second, leaves: each must have its answer, from the one that leaves or from the next.
private enum Race {
    /// - Returns: how many calls were answered by a new daemon.
    static func run(rounds: Int, start: Int) async throws -> Int {
        let world = await ServiceWorld(activation: "--idle-exit 1", isSmall: true)
        let client = try await world.client()
        var known: [ObjectPath] = []
        var delay = start
        var left = 0
        for round in 0..<rounds {
            _ = try await client.list()
            let owner = try await client.connection.call(BusDaemon.getNameOwner, on: BusDaemon.name, at: BusDaemon.path, BusName.service)
            await pause(milliseconds: delay)
            if round.isMultiple(of: 2) {
                known.append(try await client.download("http://127.0.0.1:1/\(round)", ["start": .bool(false)]))
            }
            #expect(try await client.list() == known)
            let next = try await client.connection.call(BusDaemon.getNameOwner, on: BusDaemon.name, at: BusDaemon.path, BusName.service)
            if next != owner { left += 1 }
            delay += next == owner ? 2 : -2
        }
        return left
    }
}

private struct ThreadKey: Hashable { let id: String, name: String }

/// How often each thread has given the processor away by itself: a thread that wakes up gives it away again.
private func switches(_ process: String) -> [ThreadKey: String] {
    var result: [ThreadKey: String] = [:]
    for id in listFolder("\(process)/task") {
        let lines = String(decoding: readFile("\(process)/task/\(id)/status") ?? [], as: UTF8.self).split(separator: "\n")
        let name = lines.first { $0.hasPrefix("Name:") }?.split(separator: "\t").last ?? ""
        result[ThreadKey(id: id, name: String(name))] = lines.first { $0.hasPrefix("voluntary_ctxt") }.map(String.init)
    }
    return result
}

/// `switches` once they have not changed for a while.
private func settled(_ process: String) async -> [ThreadKey: String] {
    var last = switches(process)
    _ = await eventually {
        await pause(milliseconds: 300)
        let now = switches(process)
        defer { last = now }
        return now == last
    }
    return last
}

private func threadNames(_ process: String) -> [String] { switches(process).keys.map(\.name) }

extension Child.Exit {
    /// Status 0, and not a word.
    var isClean: Bool { status == 0 && output.isEmpty && errors.isEmpty }
}

/// For what only time brings about.
func pause(milliseconds: Int) async {
    await withCheckedContinuation { continuation in
        BusActor.spawn { Poller.shared.schedule(after: .milliseconds(milliseconds)) { continuation.resume() } }
    }
}
