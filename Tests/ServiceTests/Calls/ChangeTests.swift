internal import DBus
internal import DownloadModel
internal import DownloaderInterface
internal import EventLoop
internal import Glibc
internal import TestSupport
internal import Testing

/// Port 1 of this machine refuses connections.
private let nowhere = "http://127.0.0.1:1/a"
private let paused: [String: Variant] = ["start": .bool(false)]

extension Client {
    fileprivate func metadata(_ path: ObjectPath) async throws -> [String: Variant] { try await call(Download.getMetadata, at: path, ()) }
    fileprivate func setMetadata(_ path: ObjectPath, _ metadata: [String: Variant]) async throws {
        try await call(Download.setMetadata, at: path, metadata)
    }
}

@Suite struct `Metadata` {
    @Test func `are replaced, and are on disk when the call has answered, of a waiting or ended download, too`() async throws {
        let running = try await Running.start()
        let client = running.client
        let server = ScriptedServer { request, reply in
            if request.path == "/busy" { reply.respond(503, ["Retry-After": "3600"]) } else { reply.respond(200, text: "x") }
        }
        let old: [String: Variant] = ["metadata": .dictionary(["a": .int32(1)])]
        let first = try await running.download(nowhere, paused.merging(old) { $1 })
        let ended = try await running.download(server.url("/a"))
        _ = try await client.wait(ended)
        let tomorrow = old.merging(["not-before": .uint64(wallClock() + 86_400_000_000)]) { $1 }
        let waiting = [try await running.download(server.url("/b"), tomorrow), try await running.download(server.url("/busy"), old)]
        #expect(await client.signals.isIn("waiting", waiting[1]))
        /// State, reason and end of both waits, and the number of requests.
        func waits() async throws -> [String] {
            var all = ["\(server.requests.count)"]
            for path in waiting {
                let properties = try await client.all(path)
                all += ["State", "WaitReason", "WaitUntil"].map { "\(properties[$0] as Any)" }
            }
            return all
        }
        let before = try await waits()
        #expect(before.contains { $0.contains("not-before") } && before.contains { $0.contains("retry") }, "\(before)")
        let new: [String: Variant] = ["b": .string("ä"), "c": .strings(["x"])]
        for path in [first, ended] + waiting {
            try await client.setMetadata(path, new)
            #expect(try await client.metadata(path) == new)
        }
        #expect(try await waits() == before)
        await running.world.kill(running.daemon)
        _ = await running.world.start()
        for path in [first, ended] + waiting {
            #expect(try await client.metadata(path) == new)
            try await client.setMetadata(path, [:])
            #expect(try await client.metadata(path) == [:])
        }
    }

    @Test func `of more than 64 KiB are refused, and the old ones stay`() async throws {
        let running = try await Running.start()
        let path = try await running.download(nowhere, paused.merging(["metadata": .dictionary(["a": .int32(1)])]) { $1 })
        let big = String(repeating: "x", count: 64 * 1024)
        let error = await thrown { try await running.client.setMetadata(path, ["big": .string(big)]) }
        #expect(error?.name == todokuError("LimitExceeded") && error?.message.contains("65536") == true, "\(error as Any)")
        #expect(try await running.client.metadata(path) == ["a": .int32(1)])
        let filter = await thrown { try await running.client.list(["metadata": .dictionary(["big": .string(big)])]) }
        #expect(filter?.name == todokuError("LimitExceeded") && filter?.message.contains("metadata") == true, "\(filter as Any)")
    }

    @Test func `find downloads by all their keys, whatever the type of a number`() async throws {
        let running = try await Running.start()
        let client = running.client
        func add(_ metadata: [String: Variant]) async throws -> ObjectPath {
            try await running.download(nowhere, paused.merging(["metadata": .dictionary(metadata)]) { $1 })
        }
        let one = try await add(["chapter": .int32(1), "read": .bool(false)])
        let two = try await add(["chapter": .uint64(2), "read": .bool(false), "list": .strings(["a", "b"])])
        let none = try await running.download(nowhere, paused)
        func found(_ metadata: [String: Variant]) async throws -> [ObjectPath] {
            let listed = try await client.list(["metadata": .dictionary(metadata)])
            let described = try await client.call(Manager.describe, (["metadata": .dictionary(metadata)], ["State"])).map { $0.fields.0 }
            #expect(listed == described)
            return listed
        }
        #expect(try await found([:]) == [one, two, none])
        #expect(try await found(["read": .bool(false)]) == [one, two])
        #expect(try await found(["read": .bool(false), "chapter": .int64(2)]) == [two])
        #expect(try await found(["list": .strings(["a", "b"])]) == [two])
        #expect(try await found(["list": .strings(["a"])]) == [])
        #expect(try await found(["chapter": .string("1")]) == [])
        #expect(try await found(["other": .bool(false)]) == [])
        try await client.setMetadata(none, ["chapter": .byte(1)])
        #expect(try await found(["chapter": .int32(1)]) == [one, none])
        let wrong = await thrown { try await client.list(["metadata": .dictionary([("a", "b")])]) }
        #expect(wrong?.message == "Filter key metadata takes the type a{sv}, not a{ss}.")
    }

    @Test func `choose what WaitAll waits for at its call, and not later`() async throws {
        let running = try await Running.start()
        let client = running.client
        let mine: [String: Variant] = ["metadata": .dictionary(["set": .int32(1)])]
        let changed = try await running.download(nowhere, paused.merging(mine) { $1 })
        let same = try await running.download(nowhere, paused.merging(mine) { $1 })
        let later = try await running.download(nowhere, paused)
        let log = Answers()
        await log.start("set") {
            let (finished, failed, cancelled) = try await client.call(Manager.waitAll, mine)
            return "\(finished) \(failed) \(cancelled)"
        }
        _ = try await client.list()  // the call has been read
        try await client.setMetadata(changed, [:])
        try await client.setMetadata(later, ["set": .int32(1)])
        try await client.cancel(later)
        try await client.cancel(same)
        #expect(await log.answers.isEmpty)
        try await client.cancel(changed)
        #expect(await log.has(["set": "0 0 2"]))
    }
}

@Suite struct `The folder of a download` {
    @Test func `can change before the first byte, and the file comes there, over a kill`() async throws {
        let running = try await Running.start()
        let (client, server) = (running.client, ScriptedServer { _, reply in reply.respond(200, text: "x") })
        let other = running.world.bus.folder.makeFolder("other")
        let path = try await running.download(server.url("/a"), paused)
        try await client.set(Download.directory, at: path, "\(other)//./")
        #expect(try await client.get(Download.directory, at: path) == other)
        #expect(await client.signals.until { seen in seen.contains { $0.changed?["Directory"] == .string(other) } })
        await running.world.kill(running.daemon)
        _ = await running.world.start()
        #expect(try await client.get(Download.directory, at: path) == other)
        // As often as wanted: a restarted service does not know whether a part file is there.
        let third = running.world.bus.folder.makeFolder("third")
        try await client.set(Download.directory, at: path, third)
        try await client.resume(path)
        #expect(try await client.wait(path) == "\(third)/a")
        #expect(listFolder(third) == ["a"] && listFolder(other) == [] && running.world.files == [])
        let ended = await thrown { try await client.set(Download.directory, at: path, other) }
        #expect(ended?.name == todokuError("InvalidState") && ended?.message == "A download that is finished cannot be changed.")
    }

    @Test func `is refused as at the door`() async throws {
        let running = try await Running.start()
        let world = running.world
        let path = try await running.download(nowhere, paused)
        let hidden = world.bus.folder.makeFolder(".hidden")
        writeFile(world.bus.folder("file"), [])
        for (folder, name) in [
            ("relative", "InvalidOption"), ("", "InvalidOption"), (world.bus.folder("missing"), "InvalidOption"),
            (world.bus.folder("file"), "InvalidOption"), (hidden, "NotAllowed"), ("/proc/sys", "PermissionDenied"),
        ] {
            let error = await thrown { try await running.client.set(Download.directory, at: path, folder) }
            #expect(error?.name == todokuError(name) && error.map(isSentence) == true, "\(folder): \(error as Any)")
        }
        #expect(try await running.client.get(Download.directory, at: path) == world.folder)
    }

    @Test func `stays once it has bytes, and while the download runs`() async throws {
        let gate = Gate()
        let running = try await Running.start()
        let (client, other) = (running.client, running.world.bus.folder.makeFolder("other"))
        let server = ScriptedServer { request, reply in
            if request.path == "/silent" { return gate.wait() }
            reply.head(200, ["ETag": "\"v\""], length: 200_000)
            reply.send(patternBytes(100_000))
            gate.wait()
        }
        defer { gate.open() }
        let silent = try await running.download(server.url("/silent"))
        let path = try await running.download(server.url("/a"))
        #expect(await server.waitForRequests(2))
        #expect(await client.signals.until { seen in seen.contains { $0.progress?.received == 100_000 } })
        let active = await thrown { try await client.set(Download.directory, at: silent, other) }
        #expect(active?.name == todokuError("InvalidState") && active?.message.contains("pause the download") == true)
        try await client.pause(path)
        let held = await thrown { try await client.set(Download.directory, at: path, other) }
        #expect(held?.name == todokuError("InvalidState"))
        #expect(held?.message.contains("bytes of the file are in \(running.world.folder)") == true, "\(held as Any)")
        #expect(try await client.get(Download.directory, at: path) == running.world.folder)
    }

    @Test func `of a Fetch or of a caller's own file cannot change`() async throws {
        let gate = Gate()
        let running = try await Running.start()
        let (client, other) = (running.client, running.world.bus.folder.makeFolder("other"))
        let server = ScriptedServer { _, reply in
            gate.wait()
            reply.respond(200, text: "x")
        }
        defer { gate.open() }
        let options = running.options(["app": .string("org.example.App"), "token": .string("t")])
        let answers = Answers()
        await answers.start("fetch") { try await client.call(Manager.fetch, (server.url("/a"), options)).0 }
        #expect(await server.waitForRequests(1))
        let path = BusName.path(app: "org.example.App", token: "t")
        try await client.pause(path)
        let fetch = await thrown { try await client.set(Download.directory, at: path, other) }
        #expect(fetch?.name == todokuError("InvalidState") && fetch?.message.contains("Fetch") == true, "\(fetch as Any)")
    }

    @Test func `that is missing can be replaced by another, and the download starts`() async throws {
        let running = try await Running.start()
        let (client, server) = (running.client, ScriptedServer { _, reply in reply.respond(200, text: "x") })
        let gone = running.world.bus.folder.makeFolder("gone")
        let path = try await running.download(server.url("/a"), ["directory": .string(gone), "start": .bool(false)])
        #expect(rmdir(gone) == 0)
        try await client.resume(path)
        #expect(await client.signals.isIn("waiting", path))
        #expect(try await client.get(Download.waitReason, at: path) == "destination")
        try await client.set(Download.directory, at: path, running.world.folder)
        #expect(try await client.wait(path) == "\(running.world.folder)/a")
    }

    @Test func `is no part of a repeated request with a token, like all that can change`() async throws {
        let running = try await Running.start()
        let (client, other) = (running.client, running.world.bus.folder.makeFolder("other"))
        let options = paused.merging(["app": .string("a"), "token": .string("t"), "metadata": .dictionary(["k": .int32(1)])]) { $1 }
        let path = try await running.download(nowhere, options)
        try await client.set(Download.directory, at: path, other)
        try await client.set(Download.allowMetered, at: path, false)
        try await client.setMetadata(path, [:])
        #expect(try await running.download(nowhere, options) == path)
        #expect(try await client.get(Download.directory, at: path) == other)
    }
}

@Suite struct `An acknowledgement` {
    @Test func `is a property, told when it comes, and kept until a retry`() async throws {
        let running = try await Running.start()
        let client = running.client
        let path = try await running.download(nowhere, ["retries": .uint32(0)])
        _ = await thrown { try await client.wait(path) }
        #expect(try await client.get(Download.acknowledged, at: path) == false)
        try await client.call(Download.acknowledge, at: path, ())
        #expect(await client.signals.until { seen in seen.contains { $0.changed?["Acknowledged"] == .bool(true) } })
        await running.world.kill(running.daemon)
        _ = await running.world.start()
        #expect(try await client.get(Download.acknowledged, at: path) == true)
        try await client.retry(path)
        #expect(try await client.get(Download.acknowledged, at: path) == false)
    }
}

@Suite struct `Retry of a batch` {
    @Test func `starts all that failed, and nothing else`() async throws {
        let running = try await Running.start()
        let client = running.client
        let server = ScriptedServer { request, reply in
            // Each missing file is there when it is asked for again.
            let isFirst = request.number < 4
            reply.respond(request.path.hasPrefix("/missing") && isFirst ? 404 : 200, text: "x")
        }
        let (batch, members) = try await running.batch(
            [server.url("/missing1"), server.url("/a"), server.url("/missing2"), server.url("/b")],
            ["connections": .uint32(1)])
        #expect(try await client.wait(batch: batch) == [2, 2, 0])
        try await client.call(Batch.retry, at: batch, ())
        #expect(try await client.wait(batch: batch) == [4, 0, 0])
        #expect(server.requests.count == 6)
        #expect(try await client.get(Download.state, at: members[0]) == "finished")
        let none = await thrown { try await client.call(Batch.retry, at: batch, ()) }
        #expect(none?.name == todokuError("InvalidState") && none.map(isSentence) == true, "\(none as Any)")
    }

    @Test func `works while others of the batch run, and leaves cancelled ones alone`() async throws {
        let gate = Gate()
        let running = try await Running.start()
        let client = running.client
        let server = ScriptedServer { request, reply in
            if request.path == "/slow" { gate.wait() }
            reply.respond(request.path == "/missing" ? 404 : 200, text: "x")
        }
        defer { gate.open() }
        let (batch, members) = try await running.batch([server.url("/slow"), server.url("/missing"), server.url("/slow")])
        #expect(await client.signals.isIn("failed", members[1]))
        try await client.cancel(members[2])
        try await client.call(Batch.retry, at: batch, ())
        #expect(await eventually { server.requests.filter { $0.path == "/missing" }.count == 2 })
        gate.open()
        #expect(try await client.wait(batch: batch) == [1, 1, 1])
    }
}
