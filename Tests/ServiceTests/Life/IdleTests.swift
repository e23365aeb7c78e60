internal import DBus
internal import DownloaderInterface
internal import EventLoop
internal import Glibc
internal import TestSupport
internal import Testing

@Suite struct `Idle` {
    @Test func `it exits by itself and releases the name; paused downloads do not keep it`() async throws {
        let running = try await Running.start(["--idle-exit", "30"])
        let server = ScriptedServer { _, reply in reply.respond(200, text: "x") }
        let paused = try await running.download(server.url("/a"), ["start": .bool(false)])
        let done = try await running.download(server.url("/b"))
        _ = try await running.client.wait(done)
        let since = ContinuousClock.now
        _ = try await running.client.list()  // it is idle since then
        let exit = await running.daemon.wait()
        #expect(exit.isClean, "\(exit)")
        #expect(ContinuousClock.now - since > .milliseconds(29_500))
        #expect(await running.world.bus.hasOwner(BusName.service) == false)
        _ = await running.world.start()
        #expect(try await running.client.get(Download.state, at: paused) == "paused")
    }

    @Test func `secrets that a retry may need do not keep it for a day`() async throws {
        let running = try await Running.start(["--idle-exit", "30"])
        let server = ScriptedServer { _, reply in reply.respond(404) }
        let path = try await running.download(server.url("/a"), ["headers": .dictionary([("X-Api", "Secret")])])
        #expect(await thrown { try await running.client.wait(path) }?.name == todokuError("HttpStatus"))
        #expect(await running.daemon.wait().status == 0)
        _ = await running.world.start()
        try await running.client.retry(path)
        #expect(await thrown { try await running.client.wait(path) }?.name == todokuError("HttpStatus"))
        #expect(server.requests.map { $0.field("X-Api") } == ["Secret", "Secret"])
    }

    @Test func `downloads held by PauseAll do not keep it`() async throws {
        let running = try await Running.start(["--idle-exit", "30"])
        try await running.client.call(Manager.pauseAll, ())
        _ = try await running.download("http://127.0.0.1:1/a")
        #expect(await running.daemon.wait().status == 0)
    }

    @Test func `a pending Wait keeps it, until its caller leaves`() async throws {
        // The monitor comes first: a program may take long to start, and the service leaves after thirty seconds.
        let world = await ServiceWorld()
        let monitor = Child(["dbus-monitor", "--session", "--profile"], environment: world.environment)
        #expect(await eventually { monitor.output.contains("NameLost") })
        let client = try await world.client()
        let running = Running(world: world, daemon: await world.start(["--idle-exit", "30"]), client: client)
        let path = try await running.download("http://127.0.0.1:1/a", ["start": .bool(false)])
        let waiter = Child(
            gdbusCall(path.value, "\(Download.interface).Wait", [noOptions], timeout: 600), environment: running.world.environment)
        #expect(await eventually { Trace(monitor.output).calls("Wait").count == 1 })
        // Still running well after the thirty seconds; only waiting can show that.
        #expect(await eventually(within: .seconds(33)) { !running.daemon.isRunning } == false)
        waiter.signal(SIGKILL)
        let since = ContinuousClock.now
        #expect(await running.daemon.wait().status == 0)
        #expect(ContinuousClock.now - since < .seconds(120))
    }

    @Test func `a retry that is waited for keeps it`() async throws {
        let running = try await Running.start(["--idle-exit", "30"])
        let server = ScriptedServer { request, reply in
            if request.number == 0 { reply.respond(503, ["Retry-After": "33"]) } else { reply.respond(200, text: "x") }
        }
        let path = try await running.download(server.url("/a"))
        #expect(await running.client.signals.has("Completed", at: path, within: .seconds(120)))
        #expect(running.daemon.isRunning)
        #expect(await running.daemon.wait().status == 0)
        #expect(server.requests.count == 2)
    }

    @Test func `a call that races with its exit is answered, 200 times`() async throws {
        let slot = await Slot()
        let races = 8
        let (left, times) = try await withThrowingTaskGroup(of: (left: Int, times: [Duration]).self) { group in
            for race in 0..<races { group.addTask { try await Race.run(rounds: 200 / races, start: 1000 + race) } }
            var all = (left: 0, times: [Duration]())
            for try await race in group { all = (all.left + race.left, all.times + race.times) }
            return all
        }
        let usual = times.sorted()[times.count / 2]
        // Some calls come just before the daemon leaves, and some just after: each result moves the next call to the other side. No pause
        // does so if a call takes as long as the idle second.
        if usual > .milliseconds(300) {
            print("idle: a call took \(usual), so how many calls met it on its way out is not checked: \(left) of 200")
        } else if let sanitizer = underSanitizer() {
            print("idle: under the \(sanitizer) sanitizer how many calls met it on its way out is not checked: \(left) of 200")
        } else {
            #expect((20...180).contains(left), "\(left) of 200")
        }
        withExtendedLifetime(slot) {}
    }

    /// systemd sends SIGTERM to a service of `Type=dbus` whose name has no owner, even if only for a moment (systemd.service(5)).
    @Test func `ended because a call met it on its way out, it has the bus start the next, which does the work`() async throws {
        if let sanitizer = underSanitizer() { return print("idle: the \(sanitizer) sanitizer has a thread that wakes up: not checked") }
        #expect(try await inTime([30, 60, 120]) { try await isSucceeded(after: $0) }, "each time, the idle time was over too early")
    }

    /// - Parameter limit: the seconds of idle time.
    /// - Returns: false if a step was late: the service may have left before the call, or may no longer take its end for the doing of
    ///   systemd.
    @BusActor private func isSucceeded(after limit: Int) async throws -> Bool {
        let world = await ServiceWorld(activation: "--idle-exit \(limit)")
        let gate = Gate()
        defer { gate.open() }
        let server = ScriptedServer { request, reply in
            if request.number == 0 { gate.wait() }
            reply.respond(200, text: "x")
        }
        let client = try await world.client()
        let owners = Owners()
        let since = ContinuousClock.now
        _ = try await client.list()
        let own = try await client.connection.call(BusDaemon.getNameOwner, on: BusDaemon.name, at: BusDaemon.path, BusName.service)
        let process = try #require(await world.bus.process(of: BusName.service))
        _ = client.connection.watchOwner(of: BusName.service) { owners.seen.append($0) }
        #expect(await eventually { !threadNames("/proc/\(process)").contains { ["todoku-disk", "todoku-callers"].contains($0) } })
        let before = await settled("/proc/\(process)")

        // The stopped bus has the call before the service releases its name, and delivers it after that.
        world.bus.signal(SIGSTOP)
        let pipeline = Pipeline()
        let (url, folder) = (server.url("/a"), world.folder)
        pipeline.start {
            owners.areAsked = true
            return try await client.download(url, ["directory": .string(folder), "notify": .string("never")]).value
        }
        // A call is sent in the turn of the loop in which it is made.
        #expect(await eventually { owners.areAsked })
        guard ContinuousClock.now - since < .seconds(limit) else {
            world.bus.signal(SIGCONT)
            return false
        }
        // Only the end of its idle time wakes the service. It then waits for the answer of the bus.
        let longest = Duration.seconds(limit + 60)
        #expect(
            await eventually(within: longest) {
                ContinuousClock.now - since > .seconds(limit) && switches("/proc/\(process)") != before
            })
        let released = ContinuousClock.now
        world.bus.signal(SIGCONT)
        let path = ObjectPath(try #require(await pipeline.answers(1)[0]))
        #expect(await eventually { owners.seen.count == 2 })
        #expect(owners.seen == [nil, own], "no call met the service on its way out")
        #expect(await server.waitForRequests(1))

        // The service knows systemd by an end within half a minute.
        guard ContinuousClock.now - released < .seconds(15) else { return false }
        kill(process, SIGTERM)
        #expect(await server.waitForRequests(2), "nobody has started the next process")
        #expect(await client.signals.has("Completed", at: path))
        return true
    }

    @Test func `it does not wake up, and has only threads that sleep`() async throws {
        if let sanitizer = underSanitizer() { return print("idle: the \(sanitizer) sanitizer has a thread that wakes up: not checked") }
        let running = try await Running.start()
        let server = ScriptedServer { request, reply in reply.serve(patternBytes(2_000_000), for: request) }
        _ = try await running.fetch(server.url("/a"))
        let process = "/proc/\(running.daemon.pid)"
        // The pool's threads end after five seconds. libcurl closes idle connections at the next request.
        #expect(await eventually { !threadNames(process).contains { ["todoku-disk", "todoku-callers"].contains($0) } })
        let quiet = try #require(await staysAsleep(process))
        #expect(Set(quiet.keys.map(\.name)) == ["main", "todoku-curl", "todoku-store"])
    }

    /// - Parameter failsToStart: the bus starts a program for the server's name, which ends without taking the name.
    @Test(arguments: [false, true])
    func `without a notification server an end wakes nothing up and leaves no thread, and its toast comes with the server`(
        failsToStart: Bool
    ) async throws {
        if let sanitizer = underSanitizer() { return print("idle: the \(sanitizer) sanitizer has a thread that wakes up: not checked") }
        #expect(
            try await inTime { try await checkRest(failsToStart) },
            "each time, the service woke up, or the minute of the toast was over too early")
    }

    /// Ends a download without a notification server, and then starts a server. A toast waits for a server for a minute.
    ///
    /// - Returns: false if the service may have given the toast up before the server came, or has woken up. A busy machine may delay the
    ///   work of the end. A further try to show the toast wakes the service in each run.
    private func checkRest(_ failsToStart: Bool) async throws -> Bool {
        let folder = TemporaryFolder("todoku-notifications")
        writeFile(folder("server"), "#!/bin/sh\necho started >> \(folder("starts"))\nexit 1\n".utf8)
        chmod(folder("server"), 0o755)
        let running = try await Running.start(names: failsToStart ? ["org.freedesktop.Notifications": folder("server")] : [:])
        let server = ScriptedServer { request, reply in reply.serve(patternBytes(2_000_000), for: request) }
        let monitor = Child(["dbus-monitor", "--session", "--profile"], environment: running.world.environment)
        #expect(await eventually { monitor.output.contains("NameLost") })
        let begun = ContinuousClock.now
        _ = try await running.fetch(server.url("/a"), ["notify": .string("always")])
        // The bus reports to the service that nothing was started, and the service wakes up for that.
        #expect(await eventually { Trace(monitor.output).refusals("StartServiceByName") >= 1 })
        // Another program that cannot be started, such as the portal, may have been refused first.
        if failsToStart { #expect(await eventually { readFile(folder("starts")) == Array("started\n".utf8) }) }
        let process = "/proc/\(running.daemon.pid)"
        #expect(await eventually { !threadNames(process).contains { ["todoku-disk", "todoku-callers"].contains($0) } })
        // The service gives its memory back five seconds after its last commit, and the threads end five seconds after their last work.
        _ = await settled(process)
        await pause(milliseconds: 3000)
        let before = await settled(process)
        // The waits above have taken more than eight seconds. So more than half a minute passes from the end to the next look. Any further
        // try to show the toast would have come by then.
        await pause(milliseconds: 25_000)
        let after = switches(process)
        let starts = readFile(folder("starts"))
        let toasts = try await OddServer(name: "Plasma", at: running.world.bus.address)
        guard .now - begun < .seconds(55), after == before else {
            print("idle: \(before), and after 25 seconds \(after)")
            return false
        }
        #expect(Set(before.keys.map(\.name)) == ["main", "todoku-curl", "todoku-store"])
        #expect(starts == (failsToStart ? Array("started\n".utf8) : nil))
        #expect(await eventually { await toasts.received.count == 1 })
        #expect(await toasts.received.first?.hints["category"] == .string("transfer.complete"))
        return true
    }

    /// A download that waits for an instant, and one whose owner must be called again.
    @Test func `a wait for an instant keeps it, and does not wake it up`() async throws {
        if let sanitizer = underSanitizer() { return print("idle: the \(sanitizer) sanitizer has a thread that wakes up: not checked") }
        let running = try await Running.start(["--idle-exit", "30"])
        let hour = UInt64(3600) * 1_000_000
        let path = try await running.download(
            "http://127.0.0.1:1/a", ["not-before": .uint64(wallClock() + hour), "deadline": .uint64(1000)])
        let called = try await running.download(
            "http://127.0.0.1:1/b", ["start": .bool(false), "activate": .string("org.example.NotInstalled")])
        try await running.client.cancel(called)
        let process = "/proc/\(running.daemon.pid)"
        #expect(await eventually { !threadNames(process).contains { ["todoku-disk", "todoku-callers"].contains($0) } })
        // The owner is called again a minute after the end: on a slow machine, that may fall in between.
        let quiet = await staysAsleep(process)
        #expect(quiet != nil && running.daemon.isRunning)
        // The download has not started, so its deadline does not run yet.
        #expect(try await running.client.get(Download.waitReason, at: path) == "not-before")
        for download in [path, called] { try await running.client.remove(download) }
        #expect(await running.daemon.wait().status == 0)
    }

    @Test func `started with nothing to do, it has its own thread and the store's`() async throws {
        if let sanitizer = underSanitizer() { return print("idle: the \(sanitizer) sanitizer has a thread that wakes up: not checked") }
        let world = await ServiceWorld()
        let client = try await world.client()
        let daemon = await world.start()
        #expect(try await client.list() == [])
        let process = "/proc/\(daemon.pid)"
        // The pool's thread that inspected the caller ends after five seconds.
        #expect(await eventually { !threadNames(process).contains { ["todoku-disk", "todoku-callers"].contains($0) } })
        let quiet = try #require(await staysAsleep(process))
        #expect(Set(quiet.keys.map(\.name)) == ["main", "todoku-store"])
    }
}

/// Calls the daemon around its exit, after an idle second. Each call must be answered, by this daemon or by the next.
private enum Race {
    /// - Returns: how many calls were answered by a new daemon, and how long a call of each round took.
    static func run(rounds: Int, start: Int) async throws -> (left: Int, times: [Duration]) {
        let world = await ServiceWorld(activation: "--idle-exit 1", isSmall: true)
        let client = try await world.client()
        var known: [ObjectPath] = []
        var delay = start
        var (step, isLate, left) = (1, false, 0)
        var times: [Duration] = []
        for round in 0..<rounds {
            let begun = ContinuousClock.now
            _ = try await client.list()
            // The first call starts a daemon. Each other one asks the daemon that has just answered.
            times.append(begun.duration(to: .now))
            let owner = await Race.owner(of: client)
            await pause(milliseconds: delay)
            if round.isMultiple(of: 2) {
                known.append(try await client.download("http://127.0.0.1:1/\(round)", ["start": .bool(false)]))
            }
            #expect(try await client.list() == known)
            let next = await Race.owner(of: client)
            if next != owner { left += 1 }
            // On a busy machine, the calls themselves take long. The steps grow until one has led to the other side.
            step = isLate == (next != owner) ? min(step * 2, 256) : 2
            isLate = next != owner
            delay = max(0, delay + (isLate ? -step : step))
        }
        return (left, times)
    }

    /// The name may have no owner for a moment: a leaving daemon has released it, found a call, and is about to request it again.
    private static func owner(of client: Client) async -> String {
        var owner: String?
        _ = await eventually {
            owner = try? await client.connection.call(BusDaemon.getNameOwner, on: BusDaemon.name, at: BusDaemon.path, BusName.service)
            return owner != nil
        }
        return owner ?? ""
    }
}

/// The owners that a name has had since it is watched; nil: none.
@BusActor private final class Owners {
    var seen: [String?] = []
    /// Whether the call has been made that meets the owner on its way out.
    var areAsked = false
}

/// Microseconds since the epoch.
private func wallClock() -> UInt64 {
    var now = timespec()
    clock_gettime(CLOCK_REALTIME, &now)
    return UInt64(now.tv_sec) * 1_000_000 + UInt64(now.tv_nsec / 1000)
}

private struct ThreadKey: Hashable { let id: String, name: String }

/// The number of voluntary context switches of each thread. A thread that wakes up adds one when it waits again.
private func switches(_ process: String) -> [ThreadKey: String] {
    var result: [ThreadKey: String] = [:]
    for id in listFolder("\(process)/task") {
        let lines = String(decoding: readFile("\(process)/task/\(id)/status") ?? [], as: UTF8.self).split(separator: "\n")
        let name = lines.first { $0.hasPrefix("Name:") }?.split(separator: "\t").last ?? ""
        let isMain = process.hasSuffix("/\(id)")
        result[ThreadKey(id: id, name: isMain ? "main" : String(name))] = lines.first { $0.hasPrefix("voluntary_ctxt") }.map(String.init)
    }
    return result
}

/// The value of `switches` once it no longer changes. On a busy machine, work that is left to do shows by a thread that is ready to run.
private func settled(_ process: String) async -> [ThreadKey: String] {
    var last = switches(process)
    _ = await eventually {
        await pause(milliseconds: 300)
        let now = switches(process)
        defer { last = now }
        return now == last && areAllAsleep(process)
    }
    return last
}

/// Waits until no thread runs for ten seconds. What wakes one time and again would do so in each of the looks; what a busy machine has
/// delayed, in the first ones only.
///
/// - Returns: the value of `switches` then; nil where each of the looks saw a thread run.
private func staysAsleep(_ process: String) async -> [ThreadKey: String]? {
    for _ in 0..<4 {
        let before = await settled(process)
        await pause(milliseconds: 10_000)
        if switches(process) == before { return before }
    }
    return nil
}

private func areAllAsleep(_ process: String) -> Bool {
    listFolder("\(process)/task").allSatisfy { id in
        String(decoding: readFile("\(process)/task/\(id)/status") ?? [], as: UTF8.self).contains("State:\tS")
    }
}

private func threadNames(_ process: String) -> [String] { switches(process).keys.map(\.name) }
