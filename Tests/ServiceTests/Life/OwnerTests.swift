internal import DBus
internal import DownloadModel
internal import DownloaderInterface
internal import EventLoop
internal import Glibc
internal import TestSupport
internal import Testing

private let example = ExampleApp("org.example.Activatable", "activatable")

/// The example app, which also records each call, and can be told to misbehave. It does not end after ten seconds without work: on a busy
/// machine, a call could come just then, and be lost.
private struct WatchedApp: Sendable {
    let folder: String
    let id: String
    var command: String { "\(ExampleApp.python) \(folder)/app.py" }

    init(_ world: ServiceWorld, id: String = example.id) {
        folder = world.bus.folder.makeFolder("app-\(id)")
        self.id = id
        writeFile("\(folder)/app.py", Self.script(folder, id).utf8)
    }

    private static func script(_ folder: String, _ id: String) -> String {
        """
        import importlib.util, os, signal
        spec = importlib.util.spec_from_file_location("example", "\(example.program)")
        example = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(example)
        example.ID = "\(id)"
        def mode():
            try: return open("\(folder)/mode").read().split()
            except OSError: return ["good"]
        class App(example.App):
            def download_ended(self, *what):
                with open("\(folder)/calls", "a") as calls: calls.write("|".join(what) + "|" + str(os.getpid()) + "\\n")
                if mode()[0] == "hang":
                    signal.alarm(100)
                    signal.pause()
                super().download_ended(*what)
            def acknowledge(self, download):
                now = mode()  # once: the test changes it when it sees the effect
                if now[0] == "die": os.kill(os.getpid(), signal.SIGKILL)
                if now[0] == "kill": os.kill(int(now[1]), signal.SIGKILL)
                if now[0] != "good": return
                super().acknowledge(download)
                with open("\(folder)/taken", "a") as taken: taken.write(download + "\\n")
        app = App()
        app.set_inactivity_timeout(600_000)
        app.run(None)
        """
    }

    /// The app may read the mode at any time, so the file is replaced as a whole.
    func misbehave(_ mode: String) {
        writeFile("\(folder)/mode.new", mode.utf8)
        rename("\(folder)/mode.new", "\(folder)/mode")
    }

    struct Call: Equatable { let download, outcome, path, error: String, process: Int32 }

    var calls: [Call] {
        String(decoding: readFile("\(folder)/calls") ?? [], as: UTF8.self).split(separator: "\n").map { line in
            let parts = line.split(separator: "|", omittingEmptySubsequences: false).map(String.init)
            return Call(download: parts[0], outcome: parts[1], path: parts[2], error: parts[3], process: Int32(parts[4]) ?? 0)
        }
    }

    /// Whether its Acknowledge of `download` was answered.
    func hasTaken(_ download: ObjectPath) async -> Bool {
        await eventually { String(decoding: readFile("\(folder)/taken") ?? [], as: UTF8.self).contains(download.value + "\n") }
    }

    func hasCalls(_ count: Int) async -> Bool { await eventually { calls.count >= count } && calls.count == count }
}

private struct Stage {
    let world: ServiceWorld
    let client: Client
    let app: WatchedApp
    let server: ScriptedServer
    private(set) var daemon: Child

    init(_ arguments: [String] = [], isInstalled: Bool = true) async throws {
        world = await ServiceWorld()
        app = WatchedApp(world)
        if isInstalled { await world.bus.makeActivatable(app.id, app.command) }
        client = try await world.client()
        daemon = await world.start(arguments)
        server = ScriptedServer { request, reply in
            if request.path.hasPrefix("/bad") { reply.respond(404) } else { reply.respond(200, text: request.path) }
        }
    }

    func options(_ more: [String: Variant] = [:]) -> [String: Variant] {
        [
            "directory": .string(world.folder), "notify": .string("never"), "app": .string(app.id), "activate": .string(app.id),
        ].merging(more) { $1 }
    }

    func download(_ path: String, _ more: [String: Variant] = [:]) async throws -> ObjectPath {
        try await client.download(server.url(path), options(more))
    }

    /// Kills the daemon (kill -9), and starts another.
    mutating func restart(_ arguments: [String] = []) async {
        if daemon.isRunning { await world.kill(daemon) }
        daemon = await world.start(arguments)
    }

    /// Checks that all due calls to the app have been made. Calls are made in order, and the marker's comes last.
    func expectNoCallsButMarker(_ expected: Int) async throws {
        let marker = try await download("/marker\(expected)")
        #expect(await app.hasTaken(marker))
        #expect(app.calls.count == expected + 1, "\(app.calls)")
    }
}

@Suite(.timeLimit(.minutes(10))) struct `An app that is called` {
    /// The whole way of the example as installed: no part of it knows that this is a test.
    @Test func `queues and quits; at the end it is started, processes the file, and acknowledges`() async throws {
        let world = await ServiceWorld(activation: "--idle-exit 30", names: [example.id: example.command])
        let client = try await world.client()
        let monitor = Child(["dbus-monitor", "--session", "--profile"], environment: world.environment)
        #expect(await eventually { monitor.output.contains("NameLost") })
        let gate = Gate()
        let server = ScriptedServer { _, reply in
            gate.wait()
            reply.respond(200, text: "hello")
        }
        let queued = await world.run(example.program, server.url("/a.txt"))
        let path = ObjectPath(queued.output.trimmed)
        #expect(queued.status == 0 && path.value.hasPrefix("\(BusName.tokensPath)/org_2eexample_2eActivatable/"), "\(queued)")
        #expect(await world.run(example.program, server.url("/a.txt")).output == queued.output, "safe to repeat")
        #expect(await world.bus.hasOwner(example.id) == false)
        gate.open()
        let file = try await client.wait(path)
        #expect(await eventually { Trace(monitor.output).answers("Acknowledge") == 1 })
        let sums = String(decoding: readFile("\(file).sha256") ?? [], as: UTF8.self)
        #expect(sums == "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824  a.txt\n", "\(sums)")
        let trace = Trace(monitor.output)
        #expect(trace.calls("ActivateAction", path: "/org/example/Activatable").count == 1)
        // The end was announced before the call.
        let order = trace.lines.map(\.member).filter { ["DownloadEnded", "ActivateAction", "Acknowledge"].contains($0) }
        #expect(order == ["DownloadEnded", "ActivateAction", "Acknowledge"])
    }

    @Test func `answers further calls while it works`() async throws {
        let stage = try await Stage()
        // The app writes the digest into a pipe that nobody reads yet.
        let pipe = "\(stage.world.folder)/a.sha256.new"
        #expect(mkfifo(pipe, 0o600) == 0)
        let download = try await stage.download("/a")
        #expect(await stage.app.hasCalls(1))
        // GApplication answers this call in its main loop.
        let listed = await stage.world.run(
            "gdbus", "call", "--session", "--timeout", "60", "--dest", stage.app.id, "--object-path", "/org/example/Activatable",
            "--method", "org.gtk.Actions.List")
        #expect(listed.output == "(['download-ended'],)\n", "\(listed)")
        let read = await stage.world.run("cat", pipe)
        #expect(read.output.hasSuffix("  a\n"), "\(read)")
        #expect(await stage.app.hasTaken(download))
        // A fault of its work neither ends it nor is acknowledged.
        #expect(mkdir("\(stage.world.folder)/b.sha256.new", 0o700) == 0)
        _ = try await stage.download("/b")
        #expect(await stage.app.hasCalls(2))
        let last = try await stage.download("/c")
        #expect(await stage.app.hasTaken(last))
        #expect(Set(stage.app.calls.map(\.process)).count == 1)
    }

    @Test func `hears how it ended: finished, failed, cancelled`() async throws {
        let stage = try await Stage()
        let done = try await stage.download("/a")
        let bad = try await stage.download("/bad", ["token": .string("t")])
        let held = try await stage.download("/b", ["start": .bool(false)])
        try await stage.client.cancel(held)
        #expect(await stage.app.hasCalls(3))
        func call(_ path: ObjectPath) -> [String] {
            stage.app.calls.first { $0.download == path.value }.map { [$0.outcome, $0.path, $0.error] } ?? []
        }
        #expect(call(done) == ["finished", "\(stage.world.folder)/a", ""])
        #expect(call(bad) == ["failed", "", todokuError("HttpStatus")])
        #expect(call(held) == ["cancelled", "", todokuError("Cancelled")])
    }

    @Test func `and killed before it acknowledged is called again at our next start, and never after it has`() async throws {
        var stage = try await Stage()
        stage.app.misbehave("die")
        let path = try await stage.download("/a")
        #expect(await stage.app.hasCalls(1))
        #expect(await stage.world.bus.waitForOwner(stage.app.id, present: false))
        stage.app.misbehave("good")
        await stage.restart()
        #expect(await stage.app.hasCalls(2))
        #expect(await stage.app.hasTaken(path))
        #expect(fileExists("\(stage.world.folder)/a.sha256"))
        try await stage.expectNoCallsButMarker(2)
        await stage.restart()
        try await stage.expectNoCallsButMarker(3)
    }

    @Test func `that kills us while it is called was called for an end that is on disk`() async throws {
        var stage = try await Stage()
        stage.app.misbehave("kill \(stage.daemon.pid)")
        let path = try await stage.download("/a")
        #expect(await stage.daemon.wait().status != 0)
        stage.app.misbehave("good")
        #expect(await stage.world.bus.waitForOwner(BusName.service, present: false))
        await stage.restart()
        #expect(try await stage.client.get(Download.state, at: path) == "finished")
        #expect(await stage.app.hasCalls(2))
        #expect(await stage.app.hasTaken(path))
        #expect(stage.server.requests.count == 1)
        try await stage.expectNoCallsButMarker(2)
    }

    @Test func `at login is called if it has not acknowledged, and nothing starts if it has`() async throws {
        var stage = try await Stage()
        stage.app.misbehave("mute")
        let path = try await stage.download("/a")
        #expect(await stage.app.hasCalls(1))
        await stage.restart(["--if-pending"])
        #expect(await stage.app.hasCalls(2))
        try await stage.client.call(Download.acknowledge, at: path, ())
        await stage.world.kill(stage.daemon)
        #expect(await stage.world.begin(["--if-pending"]).wait().isClean)
    }

    @Test func `and is not installed costs one line in the log, and is called once it is`() async throws {
        var stage = try await Stage(isInstalled: false)
        for name in ["a", "b", "c"] { _ = try await stage.client.wait(try await stage.download("/\(name)")) }
        let daemon = stage.daemon
        #expect(await eventually { daemon.errors.contains(stage.app.id) })
        // Calls are made in order, so a later call to another app shows that the app has been called for all three.
        let other = WatchedApp(stage.world, id: "org.example.Other")
        await stage.world.bus.makeActivatable(other.id, other.command)
        _ = try await stage.download("/d", ["activate": .string(other.id)])
        #expect(await other.hasCalls(1))
        let lines = daemon.errors.split(separator: "\n").filter { $0.contains(stage.app.id) }
        #expect(lines.count == 1 && lines[0].contains("ServiceUnknown"), "\(lines)")
        await stage.world.bus.makeActivatable(stage.app.id, stage.app.command)
        await stage.restart()
        #expect(await stage.app.hasCalls(3))
        #expect(Set(stage.app.calls.map(\.path)) == Set(["a", "b", "c"].map { "\(stage.world.folder)/\($0)" }))
    }

    @Test func `and hangs delays nobody else`() async throws {
        let stage = try await Stage()
        stage.app.misbehave("hang")
        for name in ["a", "b", "c"] { _ = try await stage.client.wait(try await stage.download("/\(name)")) }
        #expect(await stage.app.hasCalls(1))
        defer { for call in stage.app.calls { kill(call.process, SIGKILL) } }
        let other = WatchedApp(stage.world, id: "org.example.Other")
        await stage.world.bus.makeActivatable(other.id, other.command)
        let path = try await stage.download("/d", ["activate": .string(other.id), "app": .string(other.id)])
        #expect(try await stage.client.wait(path) == "\(stage.world.folder)/d")
        #expect(await other.hasTaken(path))
        #expect(stage.app.calls.count == 1, "of one app one call at a time")
        #expect(try await stage.client.list(["state": .string("finished")]).count == 4)
    }

    @Test func `for a hundred downloads hears of each, one after the other, and is started once`() async throws {
        let stage = try await Stage()
        let monitor = Child(["dbus-monitor", "--session", "--profile"], environment: stage.world.environment)
        #expect(await eventually { monitor.output.contains("NameLost") })
        let begun = ContinuousClock.now
        let paths = try await withThrowingTaskGroup(of: ObjectPath.self) { group in
            for number in 0..<100 { group.addTask { try await stage.download("/\(number)") } }
            return try await group.reduce(into: []) { $0.append($1) }
        }
        #expect(await eventually(within: .seconds(180)) { Set(stage.app.calls.map(\.download)).count == 100 })
        for path in paths { #expect(await stage.app.hasTaken(path)) }
        // On a busy machine, the app may need more than a minute for an acknowledgement. The service then calls it again.
        #expect(stage.app.calls.count == 100 || ContinuousClock.now - begun > .seconds(60))
        #expect(Set(stage.app.calls.map(\.process)).count == 1)
        let trace = Trace(monitor.output)
        let calls = trace.calls("ActivateAction")
        var (open, most) = (0, 0)
        for line in trace.lines {
            if line.member == "ActivateAction" { open += 1 }
            if ["mr", "err"].contains(line.type), calls.contains("\(line.destination) \(line.serial)") { open -= 1 }
            most = max(most, open)
        }
        #expect(most == 1)
    }

    @Test func `acknowledges what has ended, as often as it likes, and a retry takes it back`() async throws {
        let stage = try await Stage()
        stage.app.misbehave("mute")
        let path = try await stage.download("/bad", ["start": .bool(false)])
        let early = await thrown { try await stage.client.call(Download.acknowledge, at: path, ()) }
        #expect(early?.name == todokuError("InvalidState") && early.map(isSentence) == true)
        try await stage.client.resume(path)
        #expect(await stage.app.hasCalls(1))
        for _ in 0..<2 { try await stage.client.call(Download.acknowledge, at: path, ()) }
        try await stage.client.retry(path)
        #expect(await stage.app.hasCalls(2))
        #expect(stage.app.calls.allSatisfy { $0.outcome == "failed" })
        try await stage.client.remove(path)
        #expect(await thrown { try await stage.client.call(Download.acknowledge, at: path, ()) }?.name.hasSuffix("UnknownObject") == true)
        // A download without an owner to call can be acknowledged, too.
        let plain = try await stage.client.download(
            stage.server.url("/x"), ["directory": .string(stage.world.folder), "notify": .string("never")])
        _ = try await stage.client.wait(plain)
        try await stage.client.call(Download.acknowledge, at: plain, ())
    }

    @Test func `keeps the service until it has acknowledged`() async throws {
        let stage = try await Stage(["--idle-exit", "30"])
        stage.app.misbehave("mute")
        let path = try await stage.download("/a")
        #expect(await stage.app.hasCalls(1))
        // Still running well after the thirty seconds; only waiting can show that.
        #expect(await eventually(within: .seconds(33)) { !stage.daemon.isRunning } == false)
        try await stage.client.call(Download.acknowledge, at: path, ())
        #expect(await stage.daemon.wait().isClean)
    }
}

extension Trace {
    /// How many calls of `member` were answered without an error.
    func answers(_ member: String) -> Int {
        let calls = calls(member)
        return lines.count { $0.type == "mr" && calls.contains("\($0.destination) \($0.serial)") }
    }

    /// How many calls of `member` were answered with an error.
    func refusals(_ member: String) -> Int {
        let calls = calls(member)
        return lines.count { $0.type == "err" && calls.contains("\($0.destination) \($0.serial)") }
    }
}

extension String {
    fileprivate var trimmed: String { String(prefix { !$0.isWhitespace }) }
}
