internal import DBus
internal import DownloadModel
internal import DownloaderInterface
internal import EventLoop
internal import Glibc
internal import TestSupport
internal import Testing

/// The counts in an answer of `WaitAll`.
private struct Counts: Equatable, CustomStringConvertible {
    let finished, failed, cancelled: UInt32
    init(_ finished: UInt32, _ failed: UInt32, _ cancelled: UInt32) {
        (self.finished, self.failed, self.cancelled) = (finished, failed, cancelled)
    }
    var description: String { "\(finished) \(failed) \(cancelled)" }
}

extension Client {
    fileprivate func waitAll(_ filter: [String: Variant] = [:]) async throws -> Counts {
        let (finished, failed, cancelled) = try await call(Manager.waitAll, filter)
        return Counts(finished, failed, cancelled)
    }
}

@Suite struct `WaitAll` {
    private let paused: [String: Variant] = ["start": .bool(false)]
    private func tagged(_ tag: String, _ app: String = "org.example.App") -> [String: Variant] {
        ["tag": .string(tag), "app": .string(app), "start": .bool(false)]
    }

    @Test func `answers when the last has ended, with what each came to, what had ended before included`() async throws {
        let running = try await Running.start()
        let (client, gate) = (running.client, Gate())
        let server = ScriptedServer { request, reply in
            switch request.path {
            case "/bad": reply.respond(404)
            case "/slow":
                gate.wait()
                reply.respond(200, text: "x")
            default: reply.respond(200, text: "x")
            }
        }
        let mine: [String: Variant] = ["tag": .string("t")]
        _ = try await running.fetch(server.url("/a"), mine)
        _ = await thrown { try await running.fetch(server.url("/bad"), mine) }
        let slow = try await running.download(server.url("/slow"), mine)
        let held = try await running.download(server.url("/b"), mine.merging(paused) { $1 })
        let removed = try await running.download(server.url("/c"), mine.merging(paused) { $1 })
        let other = try await running.download(server.url("/d"), ["tag": .string("other"), "start": .bool(false)])
        let log = Answers()
        await log.start("t") { "\(try await client.waitAll(["tag": .string("t")]))" }
        await log.start("all") { "\(try await client.waitAll())" }
        _ = try await client.list()  // both calls have been read
        // Later downloads do not count. A removed download counts with its outcome; those that had ended are counted already.
        _ = try await running.download(server.url("/e"), tagged("t"))
        try await client.remove(removed)
        try await client.cancel(held)
        gate.open()
        #expect(await log.has(["t": "2 1 2"]))
        #expect(await client.signals.has("Completed", at: slow))
        try await client.cancel(other)
        #expect(await log.has(["t": "2 1 2", "all": "2 1 3"]))
        #expect(try await client.waitAll(["tag": .string("other")]) == Counts(0, 0, 1), "at once")
        #expect(try await client.waitAll(["tag": .string("nobody's")]) == Counts(0, 0, 0))
    }

    @Test func `does not wait again for one that is tried again`() async throws {
        let running = try await Running.start()
        let client = running.client
        let ended = try await running.download("http://127.0.0.1:1/a", paused)
        try await client.cancel(ended)
        let one = try await running.download("http://127.0.0.1:1/b", paused)
        let two = try await running.download("http://127.0.0.1:1/c", paused)
        let log = Answers()
        await log.start("all") { "\(try await client.waitAll())" }
        _ = try await client.list()
        try await client.call(Manager.pauseAll, ())  // retried downloads stay paused
        try await client.retry(ended)
        try await client.cancel(ended)
        try await client.cancel(one)
        try await client.retry(one)
        try await client.cancel(one)
        #expect(await log.answers.isEmpty)
        try await client.cancel(two)
        #expect(await log.has(["all": "0 0 3"]))
        // A download that was retried before the call counts once, too.
        try await client.retry(one)
        await log.start("again") { "\(try await client.waitAll())" }
        _ = try await client.list()
        try await client.cancel(one)
        #expect(await log.has(["all": "0 0 3", "again": "0 0 3"]))
    }

    @Test func `takes every filter but after, newest-first and limit`() async throws {
        let running = try await Running.start()
        let client = running.client
        for (key, value) in [
            ("after", Variant.objectPath(ObjectPath("/a"))), ("newest-first", .bool(true)), ("limit", .uint32(3)),
            ("colour", .string("red")),
        ] {
            let error = await thrown { try await client.waitAll([key: value]) }
            #expect(error?.name == todokuError("InvalidOption") && error?.message.contains(key) == true && error.map(isSentence) == true)
        }
        #expect(await thrown { try await client.waitAll(["state": .string("done")]) }?.name == todokuError("InvalidOption"))
        let one = try await running.download("http://127.0.0.1:1/a", tagged("t"))
        let two = try await running.download("http://127.0.0.1:1/b", tagged("t", "org.example.Other"))
        try await client.call(Manager.pauseAll, ())
        try await client.resume(two)  // waits
        let log = Answers()
        let filters: [String: [String: Variant]] = [
            "app": ["app": .string("org.example.App")], "both": ["app": .string("org.example.Other"), "tag": .string("t")],
            "paused": ["state": .string("paused")], "open": ["states": .strings(["paused", "waiting", "queued", "active", "verifying"])],
            "ended": ["states": .strings(["finished", "failed", "cancelled"])],
        ]
        for (name, filter) in filters { await log.start(name) { "\(try await client.waitAll(filter))" } }
        #expect(await log.has(["ended": "0 0 0"]))
        // The download was paused at the time of the call, so it counts.
        try await client.resume(one)
        try await client.cancel(one)
        #expect(await log.has(["ended": "0 0 0", "app": "0 0 1", "paused": "0 0 1"]))
        try await client.cancel(two)
        #expect(await log.has(["ended": "0 0 0", "app": "0 0 1", "paused": "0 0 1", "both": "0 0 1", "open": "0 0 2"]))
    }

    @Test func `works right after a restart, and knows the outcomes from before`() async throws {
        let running = try await Running.start()
        let server = ScriptedServer { request, reply in
            if request.path == "/bad" { reply.respond(404) } else { reply.respond(200, text: "x") }
        }
        let mine: [String: Variant] = ["app": .string("org.example.App"), "tag": .string("t")]
        let done = try await running.download(server.url("/a"), mine.merging(["token": .string("one")]) { $1 })
        _ = try await running.client.wait(done)
        _ = await thrown { try await running.fetch(server.url("/bad"), mine) }
        let held = try await running.download(server.url("/b"), mine.merging(paused) { $1 })
        await running.world.kill(running.daemon)
        let daemon = await running.world.start()
        let client = try await running.world.client()
        let log = Answers()
        await log.start("t") { "\(try await client.waitAll(["tag": .string("t")]))" }
        _ = try await client.list()
        try await client.resume(held)
        #expect(await log.has(["t": "2 1 0"]))
        // Outcomes are kept until the download is removed: Wait returns them after any number of restarts, at the same path.
        _ = await running.world.stop(daemon)
        _ = await running.world.start()
        #expect(done == BusName.path(app: "org.example.App", token: "one"))
        #expect(try await client.wait(done) == "\(running.world.folder)/a")
        let again = running.options(mine.merging(["token": .string("one")]) { $1 })
        #expect(try await client.download(server.url("/a"), again) == done, "asked for again it is the one that has ended")
        #expect(try await client.get(Download.state, at: done) == "finished" && server.requests.count == 3)
        #expect(try await client.list(["app": .string("org.example.App"), "state": .string("failed")]).count == 1)
        #expect(try await client.waitAll(["tag": .string("t")]) == Counts(2, 1, 0))
        try await client.remove(done)
        #expect(await thrown { try await client.wait(done) }?.name == "org.freedesktop.DBus.Error.UnknownObject")
        #expect(try await client.waitAll(["tag": .string("t")]) == Counts(1, 1, 0))
    }

    @Test func `comes after the end's signals, and before AllEnded`() async throws {
        let running = try await Running.start()
        let monitor = Child(["dbus-monitor", "--session", "--profile"], environment: running.world.environment)
        #expect(await eventually { monitor.output.contains("NameLost") })
        let path = try await running.download("http://127.0.0.1:1/a", paused)
        async let counts = running.client.waitAll()
        #expect(await eventually { Trace(monitor.output).calls("WaitAll").count == 1 })
        try await running.client.cancel(path)
        #expect(try await counts == Counts(0, 0, 1))
        #expect(await eventually { monitor.output.contains("AllEnded") })
        let trace = Trace(monitor.output)
        let events = trace.events(of: path.value, waits: trace.calls("WaitAll")).filter { $0 != "Manager PropertiesChanged" }
        #expect(events.suffix(4) == ["Completed", "DownloadEnded", "Reply", "AllEnded"], "\(events)")
    }

    @Test func `of more than 1,000, many times at once, is one counter a call; of a connection 256 wait`() async throws {
        let running = try await Running.start()
        let (client, options) = (running.client, running.options(paused))
        try await withThrowingTaskGroup(of: Void.self) { group in
            for index in 0..<1500 { group.addTask { _ = try await client.download("http://127.0.0.1:1/\(index)", options) } }
            try await group.waitForAll()
        }
        let waiter = try await running.world.client()
        let answers = await withTaskGroup(of: Result<Counts, DBusError>.self) { group in
            for _ in 0..<257 {
                group.addTask {
                    do { return .success(try await waiter.waitAll()) } catch { return .failure(error as? DBusError ?? DBusError("", "")) }
                }
            }
            let first = await group.next()!
            _ = try? await waiter.list()
            try? await client.call(Manager.cancelAll, ())
            var all = [first]
            for await one in group { all.append(one) }
            return all
        }
        guard case .failure(let refusal) = answers[0] else {
            Issue.record("no call was refused")
            return
        }
        #expect(refusal.name == todokuError("LimitExceeded") && refusal.message.contains("256"))
        #expect(answers.dropFirst().allSatisfy { (try? $0.get()) == Counts(0, 0, 1500) } && answers.count == 257)
    }

    /// The downloads are counted in slices, and end meanwhile.
    @Test func `counts each once, whenever it ends`() async throws {
        let running = try await Running.start()
        let (waiter, other) = (running.client, try await running.world.client())
        for round in 0..<5 {
            let items = (0..<3000).map { ("http://127.0.0.1:1/\(round)/\($0)", tagged("t\(round)")) }
            _ = try await other.batch(items, running.options(["notify": .string("never")]))
            async let counts = waiter.waitAll(["tag": .string("t\(round)")])
            // Those that are cancelled before they are looked at are not in this state any more.
            async let inState = waiter.waitAll(["tag": .string("t\(round)"), "states": .strings(["paused"])])
            async let cancelled: Void = other.call(Manager.cancelAll, ())
            #expect(try await counts == Counts(0, 0, 3000), "round \(round)")
            let some = try await inState
            #expect(some.finished == 0 && some.failed == 0 && some.cancelled <= 3000, "round \(round): \(some)")
            try await cancelled
        }
    }

    /// The answers to `Describe` are written first, so the download ends before the downloads of the other calls are counted.
    @Test func `for ended downloads does not count one that was unfinished at the call`() async throws {
        let running = try await Running.start()
        let client = running.client
        let (_, members) = try await running.batch((0..<1000).map { "http://127.0.0.1:1/\($0)" }, paused)
        let log = Answers()
        var expected: [String: String] = [:]
        for number in 0..<3 {
            await log.start("Describe \(number)") { "\(try await client.call(Manager.describe, ([:], [])).count)" }
            expected["Describe \(number)"] = "1000"
        }
        for states in [["failed"], ["finished", "failed"], []] {
            await log.start("\(states)") { "\(try await client.waitAll(["states": .strings(states)]))" }
            expected["\(states)"] = "0 0 0"
        }
        try await client.cancel(members[0])
        #expect(await log.has(expected))
    }

    @Test func `keeps the service, and is forgotten with its caller`() async throws {
        #expect(try await inTime { try await keepsService() }, "each time, the service may have left before the call")
    }

    /// - Returns: whether the call came well before the service could leave.
    private func keepsService() async throws -> Bool {
        // The monitor comes first: a program may take long to start, and the service leaves after thirty seconds.
        let world = await ServiceWorld()
        let monitor = Child(["dbus-monitor", "--session", "--profile"], environment: world.environment)
        #expect(await eventually { monitor.output.contains("NameLost") })
        let client = try await world.client()
        let options = paused.merging(["directory": .string(world.folder), "notify": .string("never")]) { $1 }
        var added = ContinuousClock.now
        let (daemon, _) = try await world.startLeaving {
            added = .now
            return try await client.download("http://127.0.0.1:1/a", options)
        }
        let waiter = Child(
            gdbusCall(BusName.managerPath.value, "\(Manager.interface).WaitAll", [noOptions], timeout: 600),
            environment: world.environment)
        #expect(await eventually { Trace(monitor.output).calls("WaitAll").count == 1 })
        guard added.duration(to: .now) < .seconds(20) else { return false }
        // Still running well after the thirty seconds; only waiting can show that.
        #expect(await eventually(within: .seconds(33)) { !daemon.isRunning } == false)
        waiter.signal(SIGKILL)
        #expect(await daemon.wait().isClean)
        return true
    }
}

/// The answers of calls in flight, by name.
@BusActor final class Answers {
    private(set) var answers: [String: String] = [:]

    func start(_ name: String, _ body: @escaping @BusActor @Sendable () async throws -> String) {
        BusActor.spawn { [self] in
            let answer: String
            do { answer = try await body() } catch { answer = "\(error)" }
            answers[name] = answer
        }
    }

    func has(_ wanted: [String: String]) async -> Bool {
        let isSo = await eventually { self.answers == wanted }
        if !isSo { print("answers: \(answers)") }
        return isSo
    }
}
