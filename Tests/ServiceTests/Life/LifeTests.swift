internal import DBus
internal import DownloaderInterface
internal import EventLoop
internal import Glibc
internal import TestSupport
internal import Testing

@Suite struct `The life of the service` {
    @Test func `killed in the middle it resumes where it was`() async throws {
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
        #expect(world.files == [world.partName(1)])
        _ = await world.start()
        #expect(readFile(try await client.wait(path)) == body)
        gate.open()
        let request = try #require(server.requests.last)
        #expect(request.field("If-Range") == "\"v1\"")
        // The written map survives kill -9: no written byte is fetched again.
        #expect(request.range?.first == 2_500_000)
        #expect(await client.signals.of(path).compactMap(\.resumedAt).map(\.offset) == [2_500_000])
        #expect(world.files == ["a.bin"])
    }

    /// Begins a download, and holds it once each of its eight connections has brought 700,000 bytes.
    ///
    /// - Returns: nil if the connections did not bring these bytes. On a busy machine, a thread of the server may be silent for three
    ///   seconds. Another connection then takes over its part.
    private func eightParts(of body: [UInt8], _ world: ServiceWorld, _ client: Client) async throws -> (
        path: ObjectPath, server: ScriptedServer, gate: Gate
    )? {
        let (joined, gate) = (Gate(), Gate())
        let server = ScriptedServer { request, reply in
            if request.number >= 7 { joined.open() }
            guard request.number < 8 else { return reply.serve(body, for: request, entityTag: "\"v1\"") }
            let (first, last) = (request.range?.first ?? 0, request.range?.last ?? body.count - 1)
            let fields: KeyValuePairs = ["ETag": "\"v1\"", "Content-Range": "bytes \(first)-\(last)/\(body.count)"]
            reply.head(request.number == 0 ? 200 : 206, fields, length: last - first + 1)
            reply.send(body[first...last].prefix(100_000))
            // A few bytes more, so that no connection is silent for three seconds before all eight have come.
            reply.send(reply.trickle(body[first...last].dropFirst(100_000).prefix(600_000), by: 50, until: joined))
            gate.wait()
        }
        let path = try await client.download(
            server.url("/a.bin"), ["directory": .string(world.folder), "notify": .string("never"), "connections": .uint32(8)])
        let isSettled = await client.signals.until { seen in
            let own = seen.filter { $0.path == path.value }
            return own.contains { $0.state == "finished" }
                || own.contains { $0.progress?.received == 5_600_000 } && own.contains { $0.changed?["Connections"] == .uint32(8) }
        }
        if isSettled, await !client.signals.states(of: path).contains("finished") { return (path, server, gate) }
        for held in [joined, gate] { held.open() }
        try await client.remove(path, deletingFile: true)
        return nil
    }

    @Test func `killed while eight connections fetch parts of a file it resumes from all parts`() async throws {
        let world = await ServiceWorld()
        let client = try await world.client()
        let body = patternBytes(16_000_000)
        let daemon = await world.start()
        let held = try await repeated {
            try await eightParts(of: body, world, client)
        } until: {
            $0 != nil
        }
        let (path, server, gate) = try #require(held)
        await world.kill(daemon)
        _ = await world.start()
        #expect(readFile(try await client.wait(path)) == body)
        gate.open()
        #expect(await client.signals.of(path).compactMap(\.resumedAt).map(\.offset) == [5_600_000])
        let again = server.requests.dropFirst(8)
        #expect(again.allSatisfy { $0.field("If-Range") == "\"v1\"" && $0.range != nil } && again.count >= 8)
        #expect(world.files == ["a.bin"])
    }

    @Test func `ended by SIGTERM in the middle it resumes at the next start`() async throws {
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
        #expect(readFile("\(world.folder)/\(world.partName(1))") == Array(body[..<200_000]))
        // Only the checkpoint counts now: the map is deleted.
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
        let options: [String: Variant] = [
            "directory": .string(world.folder), "notify": .string("never"), "app": .string("org.example.App"),
        ]
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

        // The signals of the one that has ended have arrived once the bus has answered a later call.
        _ = try await client.connection.call(BusDaemon.nameHasOwner, on: BusDaemon.name, at: BusDaemon.path, BusName.service)
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

    @Test func `at login starts only if something is pending`() async throws {
        let world = await ServiceWorld()
        let client = try await world.client()
        let server = ScriptedServer { request, reply in
            if request.path == "/a" { reply.respond(503, ["Retry-After": "3600"]) } else { reply.respond(200, text: "x") }
        }
        #expect(await world.begin(["--if-pending"]).wait().isClean)
        #expect(listFolder(world.bus.folder("state")) == [])

        let options: [String: Variant] = ["directory": .string(world.folder), "notify": .string("never")]
        var daemon = await world.start()
        let path = try await client.download(server.url("/a"), options.merging(["start": .bool(false)]) { $1 })
        let done = try await client.download(server.url("/b"), options)
        _ = try await client.wait(done)
        await world.kill(daemon)
        // One download is paused and one has ended: neither continues by itself.
        #expect(await world.begin(["--if-pending"]).wait().isClean)
        #expect(await client.signals.count("NameOwnerChanged") == 0)

        daemon = await world.start()
        try await client.resume(path)
        #expect(await client.signals.isIn("waiting", path))
        await world.kill(daemon)
        daemon = await world.start(["--if-pending"])
        #expect(try await client.get(Manager.remaining) == 1)
        _ = await world.stop(daemon)
    }

    @Test func `at login is started by the bus where systemd runs the session, so that its unit binds it`() async throws {
        let world = await ServiceWorld(activation: "--idle-exit 3600")
        let client = try await world.client()
        let daemon = await world.start()
        let options: [String: Variant] = ["directory": .string(world.folder), "notify": .string("never")]
        _ = try await client.download("http://127.0.0.1:1/a", options)
        await world.kill(daemon)
        let systemd = try await StandInSystemd(on: world.bus.address)
        let login = world.begin(["--if-pending"])
        #expect(await login.wait().isClean)
        let process = try #require(await world.bus.process(of: BusName.service))
        #expect(process != login.pid)
        // The service takes the file after it has its name.
        #expect(await eventually { !fileExists("\(world.state)/login") })
        // If the service runs already, nothing is left for a later start.
        #expect(await world.begin(["--if-pending"]).wait().isClean)
        #expect(await world.bus.process(of: BusName.service) == process && !fileExists("\(world.state)/login"))
        withExtendedLifetime(systemd) {}
    }

    @Test func `at login is this process if the bus can start none`() async throws {
        let world = await ServiceWorld()
        let client = try await world.client()
        let first = await world.start()
        let options: [String: Variant] = ["directory": .string(world.folder), "notify": .string("never")]
        _ = try await client.download("http://127.0.0.1:1/a", options)
        await world.kill(first)
        let systemd = try await StandInSystemd(on: world.bus.address)
        let login = await world.start(["--if-pending"])
        #expect(await world.bus.process(of: BusName.service) == login.pid)
        #expect(await eventually { !fileExists("\(world.state)/login") })
        withExtendedLifetime(systemd) {}
        _ = await world.stop(login)
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

    @Test func `cannot start without a bus or a state folder, and says so`() async throws {
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

    /// The first file or socket that a program opens gets the number of a stream that is closed.
    @Test(arguments: [("2>&-", [2]), ("<&- >&- 2>&-", [0, 1, 2])] as [(String, [Int32])])
    func `writes no log into its own files if standard streams are closed`(redirection: String, closed: [Int32]) async throws {
        let world = await ServiceWorld()
        let client = try await world.client()
        let daemon = await world.start(["--log-level", "trace"], prefix: ["sh", "-c", #"exec "$@" \#(redirection)"#, "sh"])
        #expect(closed.allSatisfy { openFile($0, of: daemon.pid) == "/dev/null" })
        let server = ScriptedServer { _, reply in reply.respond(200, text: "x") }
        let path = try await client.download(server.url("/a"), ["directory": .string(world.folder), "notify": .string("never")])
        #expect(readFile(try await client.wait(path)) == Array("x".utf8))
        let line = Array("download ended".utf8)
        #expect(listFolder(world.state).filter { readFile("\(world.state)/\($0)")?.firstRange(of: line) != nil } == [])
        #expect(await world.stop(daemon).isClean)
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
        #expect(running.world.bytes(running.world.partName(1)) == patternBytes(50))
    }

    /// The part file is deleted by then, or at the next start. The service logs no complaint.
    @Test func `ends without a complaint right behind a cancel`() async throws {
        for _ in 1...10 {
            let file = SlowFile()
            let running = try await Running.start()
            let path = try await running.begin(file.server.url("/a"))
            try await running.client.call(Download.cancel, at: path, ())
            let exit = await running.world.stop(running.daemon)
            #expect(exit.isClean, "\(exit)")
            _ = await running.world.start()
            #expect(await eventually { running.world.files == [] })
            file.gate.open()
        }
    }

    /// Calls arrive until the bus says that the name has no owner. Each earlier call is answered, and each answered change is on disk.
    @Test func `leaves no call without an answer when it ends`() async throws {
        let world = await ServiceWorld()
        for round in 1...20 {
            let isInTime = try await inTime { try await answersLastCalls(from: UInt64(round) << 32, world) }
            #expect(isInTime, "in round \(round), each time, the service handled its last calls too slowly")
        }
    }

    /// - Parameter first: the first of the values that the calls set.
    /// - Returns: false if a call got no answer, and the end took so long that it did not wait for the answer: after the release of its
    ///   name, the service waits for five seconds.
    private func answersLastCalls(from first: UInt64, _ world: ServiceWorld) async throws -> Bool {
        let daemon = await world.start()
        let isAnswered = Gate()
        async let calls = onThread { [bus = world.bus] in
            let caller = RawCaller(bus)
            var (saved, lost): (UInt64, [String]) = (0, [])
            var next = first
            while true {
                // Send several calls at a time, so that some are always in flight. The answers of the bus may overtake those of the
                // service.
                var values: [UInt32: UInt64] = [:]
                for value in next..<next + 8 {
                    let arguments: [Variant] = [.string(BusName.service), .string("SpeedLimit"), .variant(.uint64(value))]
                    let serial = caller.call(BusName.managerPath.value, "org.freedesktop.DBus.Properties", "Set", arguments)
                    values[serial] = value
                }
                next += 8
                caller.flush()
                var isGone = false
                while !values.isEmpty {
                    guard let answer = caller.readAnswer() else { return (saved, lost + ["no answer to \(values.count) calls"]) }
                    guard let value = values.removeValue(forKey: answer.replySerial) else { continue }
                    switch answer.errorName {
                    case "": saved = max(saved, value)
                    case "org.freedesktop.DBus.Error.ServiceUnknown", "org.freedesktop.DBus.Error.NameHasNoOwner": isGone = true
                    default: lost.append("\(value - first): \(answer.errorName) \(answer.text)")
                    }
                }
                if isGone { return (saved, lost) }
                isAnswered.open()
            }
        }
        #expect(await eventually { isAnswered.isOpen })
        let told = ContinuousClock.now
        let exit = await world.stop(daemon)
        let (saved, lost) = await calls
        let took = ContinuousClock.now - told
        if !lost.isEmpty, took > .seconds(5) {
            print("leaving: the calls \(lost) got no answer in \(took)")
            return false
        }
        #expect(exit.isClean)
        #expect(lost == [] && saved >= first)
        let again = await world.start()
        #expect(try await world.client().get(Manager.speedLimit) == saved)
        #expect(await world.stop(again).isClean)
        return true
    }

    @Test func `ends on SIGINT and SIGHUP as on SIGTERM`() async throws {
        for signal in [SIGINT, SIGHUP] {
            let world = await ServiceWorld()
            let daemon = await world.start()
            daemon.signal(signal)
            #expect(await daemon.wait().isClean)
        }
    }

    /// The stopped bus keeps the service waiting for its answer, so nothing receives the signal before the bus ends.
    @Test func `ends by a signal without an error, although its bus ends before it has connected`() async {
        let world = await ServiceWorld()
        world.bus.signal(SIGSTOP)
        let daemon = world.begin()
        #expect(await eventually { isBlocked(SIGTERM, in: daemon.pid) })
        daemon.signal(SIGTERM)
        world.bus.signal(SIGKILL)
        let exit = await daemon.wait()
        #expect(exit.isClean, "\(exit)")
    }
}

@Suite struct `A disk that has become full` {
    @Test func `is reported to the caller, and queued downloads continue`() async throws {
        // The sanitizer's own memory is a file larger than the limit that simulates the full disk.
        if underSanitizer() == "thread" { return print("full disk: not checked under the thread sanitizer, which needs large files") }
        let world = await ServiceWorld()
        let client = try await world.client()
        // A limit on file sizes simulates the full disk: writing beyond it fails, until it is lifted.
        let daemon = await world.start(prefix: ["prlimit", "--fsize=200000:unlimited"])
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

@Suite struct `A limit on the size of files` {
    @Test func `fails a larger download, and does not end the service`() async throws {
        if underSanitizer() == "thread" { return print("file size: not checked under the thread sanitizer, which needs large files") }
        let world = await ServiceWorld()
        let client = try await world.client()
        let daemon = await world.start(prefix: ["prlimit", "--fsize=2000000"])
        let server = ScriptedServer { request, reply in reply.serve(patternBytes(3_000_000), for: request) }
        let large = try await client.download(server.url("/large"), ["directory": .string(world.folder), "notify": .string("never")])
        let error = await thrown { try await client.wait(large) }
        #expect(error?.name == todokuError("DiskFull") && daemon.isRunning, "\(error?.message ?? "no error")")
        await world.kill(daemon)
    }
}
