internal import DBus
internal import DownloaderInterface
internal import EventLoop
internal import Glibc
internal import TestSupport
internal import Testing

extension Client {
    /// Slows all transfers down by a speed limit, or ends the limit. A transfer that waits for a speed limit never counts as silent. A
    /// server that is slow for ten seconds, as on a busy machine, is no substitute: its transfer counts as silent, and another one starts.
    fileprivate func holdTransfers(_ isHeld: Bool) async throws { try await set(Manager.speedLimit, isHeld ? 100 : 0) }
}

@Suite struct `The queue` {
    @Test func `is ordered by priority, and within one first in, first out`() async throws {
        let running = try await Running.start()
        let client = running.client
        let server = ScriptedServer { _, reply in reply.respond(200, text: "x") }
        try await client.set(Manager.maxActive, 1)
        try await client.call(Manager.pauseAll, ())
        var paths: [ObjectPath] = []
        for (name, priority) in [("a", 0), ("b", 5), ("c", 0), ("d", -1), ("e", 5)] as [(String, Int32)] {
            paths.append(try await running.download(server.url("/\(name)"), ["priority": .int32(priority)]))
        }
        #expect(try await client.list() == [paths[1], paths[4], paths[0], paths[2], paths[3]])
        try await client.call(Manager.resumeAll, ())
        #expect(await client.signals.has("AllEnded"))
        #expect(server.requests.map(\.target) == ["/b", "/e", "/a", "/c", "/d"])
        // A download is verified while the next one runs, so the ends may come in another order.
        #expect(Set(await client.signals.seen.compactMap(\.ended?.path)) == Set(paths))
    }

    @Test func `takes another order by MoveTo and by Priority, also over a restart`() async throws {
        let world = await ServiceWorld()
        let client = try await world.client()
        let server = ScriptedServer { _, reply in reply.respond(200, text: "x") }
        let options: [String: Variant] = ["directory": .string(world.folder), "notify": .string("never")]
        let daemon = await world.start()
        try await client.set(Manager.maxActive, 1)
        try await client.call(Manager.pauseAll, ())
        var paths: [ObjectPath] = []
        for name in ["a", "b", "c", "d"] { paths.append(try await client.download(server.url("/\(name)"), options)) }
        try await client.call(Download.moveTo, at: paths[3], 0)
        #expect(try await client.list() == [paths[3], paths[0], paths[1], paths[2]])
        try await client.call(Download.moveTo, at: paths[0], 99)
        #expect(try await client.list() == [paths[3], paths[1], paths[2], paths[0]])
        try await client.call(Download.moveTo, at: paths[1], 1)
        try await client.set(Download.priority, at: paths[0], 7)
        let order = [paths[0], paths[3], paths[1], paths[2]]
        #expect(try await client.list() == order)
        let first = paths[0].value
        #expect(await client.signals.until { $0.contains { $0.path == first && $0.changed?["Priority"] == .int32(7) } })
        _ = await world.stop(daemon)
        _ = await world.start()
        #expect(try await client.list() == order)
        #expect(try await client.get(Download.priority, at: paths[0]) == 7)
        #expect(try await client.get(Download.waitReason, at: paths[0]) == "paused-all")
        try await client.call(Manager.resumeAll, ())
        #expect(await client.signals.has("AllEnded"))
        #expect(server.requests.map(\.target) == ["/a", "/d", "/b", "/c"])
    }

    @Test func `obeys MaxActive and MaxPerHost, and reports how many are active`() async throws {
        let running = try await Running.start()
        let client = running.client
        let server = ScriptedServer { _, reply in reply.respond(200, text: String(repeating: "2", count: 100_000)) }
        try await client.holdTransfers(true)
        #expect(try await client.get(Manager.maxActive) == .max, "automatic")
        try await client.set(Manager.maxActive, 4)
        #expect(try await client.get(Manager.maxPerHost) == 6)
        for index in 0..<8 { _ = try await running.download(server.url("/\(index)")) }
        #expect(await server.waitForRequests(4))
        #expect(try await client.get(Manager.active) == 4)
        #expect(try await client.get(Manager.queued) == 4)
        #expect(try await client.get(Manager.remaining) == 8)
        #expect(try await client.list(["state": .string("active")]).count == 4)
        try await client.set(Manager.maxActive, 0)
        #expect(await server.waitForRequests(6))
        #expect(try await client.get(Manager.active) == 6)  // one host
        let other = try await running.download(server.otherURL("/other"))
        #expect(await client.signals.isIn("active", other))
        try await client.set(Manager.maxPerHost, 7)
        #expect(await server.waitForRequests(8))
        #expect(await client.signals.until { $0.last { $0.changed?["Active"] != nil }?.changed?["Active"] == .uint32(8) })
        try await client.holdTransfers(false)
        #expect(await client.signals.has("AllEnded"))
        #expect(server.requests.count == 9)
        #expect(await client.signals.until { $0.last { $0.changed?["Active"] != nil }?.changed?["Active"] == .uint32(0) })
    }

    @Test func `has four large files at a time by default, and small ones beside them`() async throws {
        let running = try await Running.start()
        let client = running.client
        let server = ScriptedServer { request, reply in
            reply.respond(200, text: String(repeating: "2", count: request.path.hasPrefix("/large") ? 1 << 20 : 10_000))
        }
        try await client.holdTransfers(true)
        try await client.set(Manager.maxPerHost, 0)
        for index in 0..<6 { _ = try await running.download(server.url("/large\(index)")) }
        #expect(await server.waitForRequests(4))
        for index in 0..<20 { _ = try await running.download(server.url("/small\(index)"), ["size": .uint64(10_000)]) }
        #expect(await server.waitForRequests(24))
        let unknown = try await running.download(server.url("/unknown"))
        #expect(try await client.get(Manager.active) == 24)
        #expect(try await client.get(Manager.queued) == 3, "two large ones, and one that may be large")
        #expect(try await client.get(Download.state, at: unknown) == "queued")
        try await client.holdTransfers(false)
        #expect(await client.signals.has("AllEnded"))
        #expect(try await client.list(["state": .string("finished")]).count == 27)
    }

    @Test func `has more files of unknown size at a time by default, the more small ones have finished`() async throws {
        let running = try await Running.start()
        let client = running.client
        let server = ScriptedServer { request, reply in
            guard request.path.hasPrefix("/held") else { return reply.respond(200, text: "whole") }
            reply.head(200, ["Transfer-Encoding": "chunked"])
            reply.chunk(patternBytes(10_000))
            reply.chunk([])
        }
        try await client.set(Manager.maxPerHost, 0)
        for index in 0..<10 { _ = try await client.wait(running.download(server.url("/\(index)"))) }
        try await client.holdTransfers(true)
        for index in 0..<30 { _ = try await running.download(server.url("/held\(index)")) }
        #expect(await server.waitForRequests(10 + 14))
        #expect(try await client.get(Manager.active) == 14)
        try await client.holdTransfers(false)
        #expect(await client.signals.has("AllEnded"))
    }

    @Test func `is held by PauseAll, later additions and a restart included, until ResumeAll`() async throws {
        let world = await ServiceWorld()
        let client = try await world.client()
        let body = patternBytes(100_000)
        let gate = Gate()
        let server = ScriptedServer { request, reply in
            if request.path == "/slow", request.range == nil {
                reply.head(200, ["ETag": "\"v\""], length: body.count)
                reply.send(body[..<50_000])
                gate.wait()
            } else {
                reply.serve(body, for: request, entityTag: "\"v\"")
            }
        }
        let options: [String: Variant] = ["directory": .string(world.folder), "notify": .string("never")]
        let daemon = await world.start()
        let slow = try await client.download(server.url("/slow"), options)
        let own = try await client.download(server.url("/own"), options.merging(["start": .bool(false)]) { $1 })
        #expect(await client.signals.until { $0.contains { $0.progress?.received == 50_000 } })
        try await client.call(Manager.pauseAll, ())
        #expect(await client.signals.isIn("waiting", slow))
        #expect(try await client.get(Download.waitReason, at: slow) == "paused-all")
        #expect(try await client.get(Download.waitUntil, at: slow) == 0)
        #expect(try await client.get(Manager.paused) == true)
        let later = try await client.download(server.url("/later"), options)
        #expect(try await client.get(Download.state, at: later) == "waiting")
        #expect(try await client.get(Download.waitReason, at: later) == "paused-all")
        // A download that is resumed by itself waits like the rest.
        try await client.resume(own)
        #expect(await client.signals.states(of: own) == ["waiting"])
        try await client.pause(own)
        _ = await world.stop(daemon)

        gate.open()
        _ = await world.start()
        #expect(try await client.get(Manager.paused) == true)
        for path in [slow, later] { #expect(try await client.get(Download.waitReason, at: path) == "paused-all") }
        let count = server.requests.count
        try await client.call(Manager.resumeAll, ())
        #expect(readFile(try await client.wait(slow)) == body)
        #expect(readFile(try await client.wait(later)) == body)
        #expect(try await client.get(Download.state, at: own) == "paused")
        #expect(server.requests.count == count + 2)
        #expect(try await client.get(Manager.paused) == false)
    }

    @Test func `is emptied by CancelAll and ClearEnded`() async throws {
        let running = try await Running.start()
        let client = running.client
        let gate = Gate()
        let server = ScriptedServer { request, reply in
            if request.path == "/done" { return reply.respond(200, text: "x") }
            reply.head(200, length: 10)
            reply.send("12345")
            gate.wait()
        }
        let done = try await running.download(server.url("/done"))
        _ = try await client.wait(done)
        var paths: [ObjectPath] = []
        for index in 0..<6 { paths.append(try await running.download(server.url("/\(index)"))) }
        paths.append(try await running.download(server.url("/paused"), ["start": .bool(false)]))
        #expect(await client.signals.until { seen in Set(seen.filter { $0.progress != nil }.map(\.path)).count >= 5 })
        let before = await client.signals.count("AllEnded")
        try await client.call(Manager.cancelAll, ())
        #expect(await client.signals.until { $0.count { $0.ended?.outcome == "cancelled" } == 7 })
        #expect(await client.signals.until { $0.count { $0.member == "AllEnded" } == before + 1 })
        for path in paths {
            #expect(try await client.get(Download.state, at: path) == "cancelled")
            #expect(await thrown { try await client.wait(path) }?.name == todokuError("Cancelled"))
        }
        gate.open()
        #expect(await eventually { running.world.files == ["done"] })
        #expect(try await client.call(Manager.clearEnded, ()) == 8)
        #expect(try await client.list() == [])
        #expect(await client.signals.until { $0.count { $0.member == "DownloadRemoved" } == 8 })
        #expect(running.world.files == ["done"])
        #expect(await thrown { try await client.get(Download.state, at: done) }?.name == "org.freedesktop.DBus.Error.UnknownObject")
        #expect(try await client.call(Manager.clearEnded, ()) == 0)
    }

    @Test func `is listed and described by filters, page by page`() async throws {
        let running = try await Running.start()
        let client = running.client
        let server = ScriptedServer { _, reply in reply.respond(404) }
        var paths: [ObjectPath] = []
        for index in 0..<10 {
            paths.append(
                try await running.download(
                    server.url("/\(index)"),
                    [
                        "start": .bool(false), "app": .string(index < 6 ? "org.a" : "org.b"),
                        "tag": .string(index.isMultiple(of: 2) ? "even" : "odd"),
                    ]))
        }
        #expect(try await client.list() == paths)
        #expect(try await client.list(["app": .string("org.a")]) == Array(paths[..<6]))
        #expect(try await client.list(["app": .string("org.a"), "tag": .string("odd")]) == [paths[1], paths[3], paths[5]])
        #expect(try await client.list(["app": .string("org.none")]) == [])
        #expect(try await client.list(["state": .string("paused")]) == paths)
        #expect(try await client.list(["states": .strings(["active", "failed"])]) == [])
        try await client.resume(paths[3])
        _ = await thrown { try await client.wait(paths[3]) }
        #expect(try await client.list(["states": .strings(["active", "failed"])]) == [paths[3]])
        // Ended downloads come after those in the queue.
        let all = try await client.list()
        #expect(all == paths.filter { $0 != paths[3] } + [paths[3]])

        var pages: [ObjectPath] = []
        var filter: [String: Variant] = ["limit": .uint32(3)]
        var answers = 0
        while true {
            let page = try await client.list(filter)
            answers += 1
            guard let last = page.last else { break }
            #expect(page.count <= 3)
            pages += page
            filter["after"] = .objectPath(last)
        }
        #expect(pages == all && answers == 5)

        // In reverse, the download that ended last comes first.
        for app in ["", "org.a"] {
            let mine: [String: Variant] = app.isEmpty ? [:] : ["app": .string(app)]
            let ordered = try await client.list(mine)
            let reversed = try await client.list(mine.merging(["newest-first": .bool(true)]) { $1 })
            #expect(reversed == ordered.reversed() && !ordered.isEmpty)
            let behind = try await client.list(
                mine.merging(["newest-first": .bool(true), "after": .objectPath(reversed[0]), "limit": .uint32(2)]) { $1 })
            #expect(behind == Array(reversed.dropFirst().prefix(2)))
        }

        let some = try await client.call(Manager.describe, (["tag": .string("even")], ["Tag", "State"]))
        #expect(some.map(\.fields.0) == [0, 2, 4, 6, 8].map { paths[$0] })
        #expect(some.allSatisfy { $0.fields.1 == ["Tag": .string("even"), "State": .string("paused")] })
        let whole = try await client.call(Manager.describe, (["limit": .uint32(1)], []))
        #expect(whole.count == 1)
        #expect(whole[0].fields.1 == (try await client.all(paths[0])))
    }
}

@Suite struct `Steering` {
    /// Serves bodies that stop half-way until the gate opens.
    private func halfServer(_ gate: Gate, _ body: [UInt8]) -> ScriptedServer {
        ScriptedServer { request, reply in
            if request.range == nil {
                reply.head(200, ["ETag": "\"v\""], length: body.count)
                reply.send(body[..<(body.count / 2)])
                gate.wait()
                reply.send(body[(body.count / 2)...])
            } else {
                reply.serve(body, for: request, entityTag: "\"v\"")
            }
        }
    }

    @Test func `Pause, Resume and Cancel are idempotent, and InvalidState once it has ended`() async throws {
        let running = try await Running.start()
        let client = running.client
        let gate = Gate()
        let server = halfServer(gate, patternBytes(100_000))
        let path = try await running.download(server.url("/a"))
        #expect(await client.signals.has("Progress", at: path))
        for _ in 0..<3 { try await client.resume(path) }
        for _ in 0..<3 { try await client.pause(path) }
        #expect(try await client.get(Download.state, at: path) == "paused")
        #expect(try await client.get(Download.connections, at: path) == 0)
        #expect(await thrown { try await client.retry(path) }?.name == todokuError("InvalidState"))
        try await client.resume(path)
        _ = try await client.wait(path)
        // The download is queued while its previous transfer stops.
        let states = await client.signals.states(of: path).filter { $0 != "queued" }
        #expect(states == ["active", "paused", "active", "verifying", "finished"])
        gate.open()
        for body in [client.pause, client.resume, client.cancel, client.retry] as [@BusActor (ObjectPath) async throws -> Void] {
            let error = await thrown { try await body(path) }
            #expect(error?.name == todokuError("InvalidState"))
            #expect(error?.message.contains("finished") == true)
        }
        #expect(await thrown { try await client.call(Download.moveTo, at: path, 0) }?.name == todokuError("InvalidState"))
        #expect(await thrown { try await client.set(Download.priority, at: path, 1) }?.name == todokuError("InvalidState"))
        #expect(await thrown { try await client.set(Download.speedLimit, at: path, 1) }?.name == todokuError("InvalidState"))
        let paused = try await running.download(server.url("/b"), ["start": .bool(false)])
        #expect(await thrown { try await client.call(Download.openFile, at: paused, ()) }?.name == todokuError("InvalidState"))
        try await client.cancel(paused)
        #expect(await thrown { try await client.cancel(paused) }?.name == todokuError("InvalidState"))
        #expect(await thrown { try await client.pause(paused) }?.name == todokuError("InvalidState"))
    }

    @Test func `Cancel deletes the part file and answers waiting callers; Retry starts again`() async throws {
        let running = try await Running.start()
        let client = running.client
        let gate = Gate()
        let body = patternBytes(100_000)
        let server = halfServer(gate, body)
        let path = try await running.download(server.url("/a"))
        #expect(await client.signals.has("Progress", at: path))
        let pipeline = Pipeline()
        await pipeline.start { try await client.wait(path) }
        #expect(try await client.get(Download.state, at: path) == "active")  // behind this answer, the service has the Wait
        #expect(running.world.files == [running.world.partName(1)])
        try await client.cancel(path)
        #expect(await pipeline.answers(1) == [todokuError("Cancelled")])
        #expect(await client.signals.seen.compactMap(\.ended).map(\.outcome) == ["cancelled"])
        gate.open()
        #expect(await eventually { running.world.files == [] })
        try await client.retry(path)
        #expect(readFile(try await client.wait(path)) == body)
        #expect(await client.signals.of(path).compactMap(\.completed?.error) == [todokuError("Cancelled"), ""])
    }

    @Test func `Retry of a failed one resumes from the bytes on disk`() async throws {
        let running = try await Running.start()
        let client = running.client
        let body = patternBytes(100_000)
        let server = ScriptedServer { request, reply in
            switch request.number {
            case 0:
                reply.head(200, ["ETag": "\"v\""], length: body.count)
                reply.send(body[..<60_000])
                reply.close()
            case 1: reply.respond(403)
            default: reply.serve(body, for: request, entityTag: "\"v\"")
            }
        }
        let path = try await running.download(server.url("/a"))
        #expect(await thrown { try await client.wait(path) }?.name == todokuError("HttpStatus"))
        #expect(running.world.files == [running.world.partName(1)])
        try await client.retry(path)
        #expect(readFile(try await client.wait(path)) == body)
        #expect(server.requests.last?.range?.first == 60_000)
    }

    @Test func `Remove takes it off the list, running or ended, and the file where asked`() async throws {
        let running = try await Running.start()
        let client = running.client
        let gate = Gate()
        let server = halfServer(gate, patternBytes(100_000))
        let active = try await running.download(server.url("/active"))
        #expect(await client.signals.has("Progress", at: active))
        let pipeline = Pipeline()
        await pipeline.start { try await client.wait(active) }
        #expect(try await client.get(Download.state, at: active) == "active")  // behind this answer, the service has the Wait
        try await client.remove(active)
        #expect(await pipeline.answers(1) == [todokuError("Cancelled")])
        #expect(await client.signals.has("DownloadRemoved"))
        let names = await client.signals.seen.map(\.member).filter { ["Completed", "DownloadEnded", "DownloadRemoved"].contains($0) }
        #expect(names == ["Completed", "DownloadEnded", "DownloadRemoved"])
        #expect(await eventually { running.world.files == [] })
        gate.open()
        #expect(await thrown { try await client.remove(active) }?.name == "org.freedesktop.DBus.Error.UnknownObject")

        let kept = try await running.download(server.url("/kept"))
        _ = try await client.wait(kept)
        try await client.remove(kept, deletingFile: false)
        let deleted = try await running.download(server.url("/deleted"))
        _ = try await client.wait(deleted)
        #expect(running.world.files == ["deleted", "kept"])
        try await client.remove(deleted, deletingFile: true)
        #expect(running.world.files == ["kept"])
        #expect(try await client.list() == [])
        // Another program's file with the same name is not deleted.
        let replaced = try await running.download(server.url("/own"))
        let file = try await client.wait(replaced)
        writeFile(file + ".new", [1])
        rename(file + ".new", file)
        let refused = await thrown { try await client.remove(replaced, deletingFile: true) }
        #expect(readFile(file) == [1], "\(String(describing: refused))")
    }

    @Test func `a caller that gives up waiting harms nothing`() async throws {
        let running = try await Running.start()
        let client = running.client
        let gate = Gate()
        let server = halfServer(gate, patternBytes(100_000))
        let path = try await running.download(server.url("/a"))
        #expect(await client.signals.has("Progress", at: path))
        let given = await thrown { try await client.call(Download.wait, at: path, [:], timeout: .milliseconds(100)) }
        #expect(given?.name == "org.freedesktop.DBus.Error.NoReply")
        async let again = client.wait(path)
        gate.open()
        #expect(try await again == "\(running.world.folder)/a")
        #expect(await client.signals.seen.compactMap(\.ended?.outcome) == ["finished"])
    }

    @Test func `256 calls of a connection may wait, and one that leaves frees its own`() async throws {
        let running = try await Running.start()
        let world = running.world
        let path = try await running.download("http://127.0.0.1:1/a", ["start": .bool(false)])
        let limited = try await world.client()
        let waits = await withTaskGroup(of: DBusError?.self) { group in
            for _ in 0..<257 {
                group.addTask { await thrown { try await limited.call(Download.wait, at: path, [:], timeout: .seconds(300)) } }
            }
            let first = await group.next() ?? nil
            // Another connection can still wait. The end answers all waiting calls.
            group.addTask { await thrown { try await running.client.wait(path) } }
            _ = try? await limited.list()
            try? await running.client.cancel(path)
            var all: [DBusError?] = [first]
            for await one in group { all.append(one) }
            return all
        }
        #expect(waits.first??.name == todokuError("LimitExceeded"))
        #expect(waits.first??.message.contains("256") == true)
        #expect(waits.dropFirst().allSatisfy { $0?.name == todokuError("Cancelled") })
        #expect(waits.count == 258)
        // All waiting calls have been answered, so the connection may wait again.
        let next = try await running.download("http://127.0.0.1:1/b", ["start": .bool(false)])
        let pipeline = Pipeline()
        await pipeline.start { try await limited.wait(next) }
        _ = try await limited.list()  // behind this answer, the service has the Wait
        try await running.client.cancel(next)
        #expect(await pipeline.answers(1) == [todokuError("Cancelled")])
    }
}
