internal import DBus
internal import DownloadModel
internal import DownloaderInterface
internal import EventLoop
internal import Glibc
internal import TestSupport
internal import Testing

@testable internal import DownloadService

private let app = "org.example.App"

@Suite(.timeLimit(.minutes(10))) struct `An app in a sandbox that is to be called` {
    /// The bus starts a program for the app that records the start, and fails. It does the same for `names` below the app's own.
    private func stage(_ names: String...) async throws -> (Running, Sandbox, Client, log: String) {
        let running = try await Running.start()
        let log = "\(running.world.folder)/starts"
        let program = "\(running.world.folder)/app.sh"
        writeFile(program, "#!/bin/sh\necho started >>\(log)\nexit 1\n".utf8)
        #expect(await Child.run(["chmod", "+x", program]).status == 0)
        for name in [app] + names.map({ "\(app).\($0)" }) { await running.world.bus.makeActivatable(name, program) }
        try await running.client.set(Manager.sandboxPrivate, true)
        let sandbox = await Sandbox(running.world)
        return (running, sandbox, try await sandbox.client(), log)
    }

    private func starts(_ log: String) -> Int { (readFile(log) ?? []).count { $0 == 10 } }

    private let options: [String: Variant] = ["notify": .string("never"), "activate": .string(app), "retries": .uint32(0)]

    /// The options of a download whose end is told to a name below the app's own.
    private func calling(_ name: String) -> [String: Variant] { options.merging(["activate": .string("\(app).\(name)")]) { $1 } }

    /// Waits until the first call to that name has failed, which the service logs. A program that was started for the call has recorded the
    /// start by then.
    private func hasFailed(_ name: String, _ daemon: Child) async -> Bool {
        await eventually { daemon.errors.contains("\(app).\(name)") }
    }

    private let server = ScriptedServer { request, reply in
        if request.path.hasPrefix("/bad") { reply.respond(404) } else { reply.respond(200, text: request.path == "/empty" ? "" : "hello") }
    }

    @Test func `is started for a new file, and for no other end`() async throws {
        let (running, sandbox, client, log) = try await stage("Failed", "Cancelled", "Empty")
        _ = await thrown { try await client.wait(try await client.download(server.url("/bad"), calling("Failed"))) }
        let cancelled = try await client.download(server.url("/c"), calling("Cancelled").merging(["start": .bool(false)]) { $1 })
        try await running.client.cancel(cancelled)
        _ = try await client.wait(try await client.download(server.url("/empty"), calling("Empty")))
        for name in ["Failed", "Cancelled", "Empty"] { #expect(await hasFailed(name, running.daemon), "\(name)") }
        #expect(starts(log) == 0)
        for number in 1...2 {
            let path = try await client.download(server.url("/\(number)"), options)
            _ = try await client.wait(path)
            #expect(await eventually { starts(log) == number })
            // Otherwise the app would be called again after a minute.
            try await client.call(Download.acknowledge, at: path, ())
        }
        await sandbox.stop()
    }

    @Test func `is not started if the server has nothing newer, or sends the same bytes again`() async throws {
        let (running, sandbox, client, log) = try await stage("Again1", "Again2")
        // `/plain` has no entity tag, so the service compares the bytes with the file that is there.
        let same = ScriptedServer { request, reply in
            if request.path == "/plain" { return reply.respond(200, text: "hello") }
            if request.field("If-None-Match") == "\"1\"" { return reply.head(304, ["ETag": "\"1\""]) }
            reply.respond(200, ["ETag": "\"1\""], text: "hello")
        }
        for (path, number) in [("/tagged", 1), ("/plain", 2)] {
            let token = options.merging(["token": .string("first\(number)")]) { $1 }
            let first = Answer(try await client.call(Manager.fetch, (same.url(path), token)))
            #expect(first == Answer(.newData, first.path), "\(path)")
            #expect(await eventually { starts(log) == number }, "\(path)")
            // Otherwise the app would be called again after a minute.
            try await client.call(Download.acknowledge, at: BusName.path(app: app, token: "first\(number)"), ())
            let again = Answer(try await client.call(Manager.fetch, (same.url(path), calling("Again\(number)"))))
            #expect(again == Answer(.noData, first.path), "\(path)")
            #expect(await hasFailed("Again\(number)", running.daemon), "\(path)")
            #expect(starts(log) == number, "\(path)")
        }
        #expect(same.requests.count == 4)
        // While the app runs, it is called for such an end.
        let owner = try await StandInOwner(on: running.world.bus.address, app)
        let token = options.merging(["token": .string("again")]) { $1 }
        #expect(Answer(try await client.call(Manager.fetch, (same.url("/tagged"), token))).outcome == FetchOutcome.noData.rawValue)
        #expect(await eventually { await owner.told.contains("\(BusName.path(app: app, token: "again")) finished") })
        #expect(starts(log) == 2)
        await sandbox.stop()
    }

    @Test func `is told of every end while it runs`() async throws {
        let (running, sandbox, client, log) = try await stage()
        let owner = try await StandInOwner(on: running.world.bus.address, app)
        let failed = try await client.download(server.url("/bad"), options)
        _ = await thrown { try await client.wait(failed) }
        #expect(await eventually { await owner.told == ["\(failed) failed"] })
        try await client.call(Download.acknowledge, at: failed, ())  // otherwise the app would be called again after a minute
        let cancelled = try await client.download(server.url("/c"), options.merging(["start": .bool(false)]) { $1 })
        try await client.cancel(cancelled)
        #expect(await eventually { await owner.told == ["\(failed) failed", "\(cancelled) cancelled"] })
        #expect(starts(log) == 0)
        await sandbox.stop()
    }

    /// Calls that get no answer last 25 s. If each name had a turn of its own, the other owner would be called after 100 s.
    @Test func `delays no other owner, however many of its names do not answer`() async throws {
        let (running, sandbox, client, _) = try await stage()
        let names = (0..<4 * Limits.ownerCalls).map { "\(app).Name\($0)" }
        let silent = try await StandInOwner(on: running.world.bus.address, names)
        await silent.hold()
        let other = try await StandInOwner(on: running.world.bus.address, "org.example.Other")
        let items = names.enumerated().map { (server.url("/\($0.offset)"), ["activate": Variant.string($0.element)]) }
        let (batch, _) = try await client.batch(items, ["notify": .string("never")])
        #expect(try await client.wait(batch: batch) == [UInt32(names.count), 0, 0])
        #expect(await eventually { await !silent.told.isEmpty })
        let path = try await running.download(server.url("/other"), ["activate": .string("org.example.Other")])
        _ = try await running.client.wait(path)
        #expect(await eventually { await other.told == ["\(path) finished"] })
        await sandbox.stop()
    }

    /// Both calls are in one queue, because the user's download calls the app by its id. A call that fails drops the next calls to the same
    /// name only. A dropped call is repeated a minute after the end.
    @Test func `is called by another of its names at once where its own name cannot be started`() async throws {
        let (running, sandbox, client, log) = try await stage()
        let (program, go) = ("\(running.world.folder)/app.sh", "\(running.world.folder)/go")
        #expect(mkfifo(go, 0o600) == 0)
        writeFile(program, "#!/bin/sh\necho started >>\(log)\nread line <\(go)\nexit 1\n".utf8)
        let helper = try await StandInOwner(on: running.world.bus.address, "\(app).Helper")
        try await running.fetch(server.url("/theirs"), ["activate": .string(app)])
        #expect(await eventually { starts(log) == 1 })
        let path = try await client.download(server.url("/own"), calling("Helper"))
        _ = try await client.wait(path)
        #expect(await running.world.run("sh", "-c", "echo >\(go)").status == 0)
        #expect(await eventually(within: .seconds(45)) { await helper.told == ["\(path) finished"] })
        await sandbox.stop()
    }

    @Test func `is started six times an hour at most`() async throws {
        let (running, sandbox, client, log) = try await stage("More1", "More2", "More3")
        for number in 0..<Limits.ownerStarts {
            _ = try await client.wait(try await client.download(server.url("/\(number)"), options))
        }
        #expect(await eventually { starts(log) >= Limits.ownerStarts })
        // Starts are counted by app, whatever its names.
        for name in ["More1", "More2", "More3"] {
            _ = try await client.wait(try await client.download(server.url("/\(name)"), calling(name)))
            #expect(await hasFailed(name, running.daemon), "\(name)")
        }
        #expect(starts(log) == Limits.ownerStarts)
        // One more call comes after all of these.
        let owner = try await StandInOwner(on: running.world.bus.address, app)
        let last = try await client.download(server.url("/last"), options)
        #expect(await eventually { await owner.told.contains("\(last) finished") })
        #expect(starts(log) == Limits.ownerStarts)
        await sandbox.stop()
    }

    /// To provoke a restart, the app need only wait until the idle service ends.
    @Test func `is started no more often for a restart of the service`() async throws {
        let (running, sandbox, client, log) = try await stage("More")
        for number in 0..<Limits.ownerStarts {
            _ = try await client.wait(try await client.download(server.url("/\(number)"), options))
        }
        #expect(await eventually { starts(log) >= Limits.ownerStarts })
        #expect(await running.world.stop(running.daemon).status == 0)
        let daemon = await running.world.start()
        _ = try await client.wait(try await client.download(server.url("/more"), calling("More")))
        #expect(await hasFailed("More", daemon))
        // One more call comes after all of these.
        let owner = try await StandInOwner(on: running.world.bus.address, app)
        let last = try await client.download(server.url("/last"), options)
        #expect(await eventually { await owner.told.contains("\(last) finished") })
        #expect(starts(log) == Limits.ownerStarts)
        #expect(daemon.isRunning)
        await sandbox.stop()
    }

    @Test @BusActor func `may be started again an hour later, whatever was done to the clock or the file`() async throws {
        let folder = TemporaryFolder()
        var now = WallTime(microseconds: 1_800_000_000_000_000)
        let first = OwnerStarts(folder("starts")) { now }
        for _ in 0..<Limits.ownerStarts { #expect(await first.take(app)) }
        #expect(!(await first.take(app)))
        #expect(await first.take("org.example.Other"))
        let second = OwnerStarts(folder("starts")) { now }
        #expect(!(await second.take(app)))
        now = now + .seconds(-86400)  // the clock was set back
        let third = OwnerStarts(folder("starts")) { now }
        #expect(!(await third.take(app)))
        now = now + .seconds(3601)
        #expect(await third.take(app))
        #expect(mode(of: folder("starts")) == 0o600)
        writeFile(folder("starts"), "rubbish\n\n99999999999999999999999 \(app)\n7\n\u{0} \u{0}\n".utf8)
        #expect(await OwnerStarts(folder("starts")) { now }.take(app))
        // A start that cannot be recorded is not allowed.
        let blocked = OwnerStarts(folder.makeFolder("folder")) { now }
        #expect(!(await blocked.take(app)))
    }

    /// The first start also removes the file of expired starts.
    @Test @BusActor func `is counted after a restart, also if other apps are started at the same moment`() async throws {
        let folder = TemporaryFolder()
        let apps = (0..<4).map { "org.example.App\($0)" }
        for round in 0..<300 {
            let path = folder("\(round)")
            let starts = OwnerStarts(path)
            let answers = TakenStarts()
            // A task that BusActor did not start lets others run wherever it awaits, also within the actor.
            for app in apps { Task.detached { await answers.add(await starts.take(app)) } }
            guard await eventually({ answers.all.count == apps.count }) else {
                Issue.record("round \(round): \(answers.all.count) starts were answered")
                return
            }
            #expect(!answers.all.contains(false))
            let lines = String(decoding: readFile(path) ?? [], as: UTF8.self).split(separator: "\n")
            let counted = lines.compactMap { $0.split(separator: " ").last.map(String.init) }
            guard counted.sorted() == apps else {
                Issue.record("round \(round): \(counted)")
                return
            }
        }
    }
}

/// Whether the apps may be started.
@BusActor private final class TakenStarts {
    private(set) var all: [Bool] = []

    func add(_ isTaken: Bool) { all.append(isTaken) }
}
