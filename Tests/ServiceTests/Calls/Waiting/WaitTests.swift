internal import DBus
internal import DownloaderInterface
internal import EventLoop
internal import Glibc
internal import TestSupport
internal import Testing

/// Microseconds since the epoch.
private func wallClock(_ later: Duration = .zero) -> UInt64 {
    var now = timespec()
    clock_gettime(CLOCK_REALTIME, &now)
    return UInt64(now.tv_sec) * 1_000_000 + UInt64(now.tv_nsec / 1000) + UInt64(later / .microseconds(1))
}

extension Running {
    fileprivate func reason(_ path: ObjectPath) async throws -> String { try await client.get(Download.waitReason, at: path) }

    /// Waits until the download waits for `reason`.
    fileprivate func waits(_ path: ObjectPath, for reason: String) async -> Bool {
        await client.signals.until { $0.contains { $0.path == path.value && $0.changed?["WaitReason"] == .string(reason) } }
    }

    fileprivate func error(_ path: ObjectPath) async throws -> EndError { try await client.get(Download.error, at: path) }
}

@Suite struct `A wait` {
    @Test func `for not-before ends at its instant, over a restart too`() async throws {
        let running = try await Running.start()
        let server = timingServer()
        // One of an hour, for what is seen while it waits: a busy machine may take seconds from one call to the next.
        let (soon, later) = (wallClock(.milliseconds(2500)), wallClock(.seconds(3600)))
        let first = try await running.download(server.url("/soon"), ["not-before": .uint64(soon)])
        let path = try await running.download(server.url("/later"), ["not-before": .uint64(later)])
        #expect(try await running.client.get(Download.state, at: path) == "waiting")
        #expect(try await running.reason(path) == "not-before")
        #expect(try await running.client.get(Download.waitUntil, at: path) == later)
        // Resume is for paused downloads: the time stays.
        try await running.client.resume(path)
        await running.world.kill(running.daemon)
        _ = await running.world.start()
        #expect(try await running.client.get(Download.waitUntil, at: path) == later)
        #expect(try await requested(running, first) >= soon)
        #expect(!server.requests.contains { $0.path == "/later" })
        #expect(try await running.client.get(Download.state, at: path) == "waiting")
    }

    /// Answers with the time at which the request came.
    private func timingServer() -> ScriptedServer { ScriptedServer { _, reply in reply.respond(200, text: "\(wallClock())") } }

    /// The time at which the `timingServer` was asked by a download, once that has ended.
    private func requested(_ running: Running, _ path: ObjectPath) async throws -> UInt64 {
        let file = try await running.client.wait(path)
        return try #require(readFile(file).flatMap { UInt64(String(decoding: $0, as: UTF8.self)) })
    }

    /// The deadlines of the runs of a test, in milliseconds (`inTime`). `Client.wait` waits longer than each.
    private static let deadlines: [UInt64] = [20_000, 60_000, 120_000]

    @Test func `is over with the deadline: Expired, the bytes kept for Retry`() async throws {
        #expect(try await inTime(Self.deadlines) { try await expires(after: $0) }, "each time, bytes came after the deadline")
    }

    /// - Returns: whether the first bytes, and after Retry the last ones, came before the deadline.
    private func expires(after deadline: UInt64) async throws -> Bool {
        let running = try await Running.start()
        let body = patternBytes(1_500_000)
        let gate = Gate()
        defer { gate.open() }
        let server = ScriptedServer { request, reply in
            if request.range != nil { return reply.serve(body, for: request, entityTag: "\"v\"") }
            reply.head(200, ["ETag": "\"v\""], length: body.count)
            reply.send(body[..<1_200_000])
            gate.wait()
        }
        let path = try await running.download(server.url("/a"), ["deadline": .uint64(deadline)])
        let error = await thrown { try await running.client.wait(path) }
        #expect(error?.name == todokuError("Expired") && error.map(isSentence) == true, "\(error?.message ?? "")")
        guard await running.client.signals.seen.contains(where: { $0.progress?.received == 1_200_000 }) else { return false }
        #expect(await eventually { running.world.bytes(running.world.partName(1))?.count == 1_200_000 })
        // The time of the deadline begins again with the retry.
        let retried = ContinuousClock.now
        try await running.client.retry(path)
        let second = await thrown { try await running.client.wait(path) }
        if second?.name == todokuError("Expired"), retried.duration(to: .now) >= .milliseconds(deadline) { return false }
        #expect(second == nil)
        #expect(running.world.bytes("a") == body)
        #expect(server.requests.last?.range?.first == 1_200_000)
        return true
    }

    @Test func `is over with the deadline, also where the service was away meanwhile`() async throws {
        let running = try await Running.start()
        let server = ScriptedServer { _, reply in reply.respond(503, ["Retry-After": "600"]) }
        let path = try await running.download(server.url("/a"), ["deadline": .uint64(300_000)])
        #expect(await running.waits(path, for: "retry"))
        await running.world.kill(running.daemon)
        // As if five minutes had passed.
        let aged = await running.world.run(
            "sqlite3", "\(running.world.state)/todoku.db", "UPDATE course SET expires_at = expires_at - 300000000; SELECT changes();")
        #expect(aged.status == 0 && aged.output == "1\n", "\(aged)")
        _ = await running.world.start()
        let error = await thrown { try await running.client.wait(path) }
        #expect(error?.name == todokuError("Expired") && server.requests.count == 1, "\(String(describing: error))")
    }

    @Test func `for not-before begins when one that was added paused is resumed`() async throws {
        let running = try await Running.start()
        let server = timingServer()
        // One of an hour, for what is seen while it waits: a busy machine may take seconds from one call to the next.
        let (soon, later) = (wallClock(.milliseconds(1500)), wallClock(.seconds(3600)))
        let first = try await running.download(server.url("/soon"), ["not-before": .uint64(soon), "start": .bool(false)])
        let path = try await running.download(server.url("/later"), ["not-before": .uint64(later), "start": .bool(false)])
        for path in [first, path] {
            #expect(try await running.client.get(Download.state, at: path) == "paused")
            try await running.client.resume(path)
        }
        #expect(try await running.reason(path) == "not-before")
        #expect(try await requested(running, first) >= soon)
        #expect(server.requests.map(\.path) == ["/soon"])
    }

    @Test func `does not run the deadline down while it is paused`() async throws {
        let isInTime = try await inTime(Self.deadlines) { try await outlastsPause(withDeadline: $0) }
        #expect(isInTime, "each time, the download ran for longer than the deadline outside of the pause")
    }

    /// - Returns: false: the download expired, and may have run for the time of the deadline outside of the pause.
    private func outlastsPause(withDeadline deadline: UInt64) async throws -> Bool {
        let running = try await Running.start()
        let gate = Gate()
        defer { gate.open() }
        let server = ScriptedServer { _, reply in
            reply.head(200, length: 4)
            reply.send("ab")
            gate.wait()
            reply.send("cd")
        }
        // The deadline runs until the pause. Where a busy machine has left little of it, the next download is tried.
        var (path, ran) = (ObjectPath("/"), Duration.zero)
        for attempt in 1...20 {
            let begun = ContinuousClock.now
            let next = try await running.download(server.url("/a"), ["deadline": .uint64(deadline)])
            path = next
            let hasBegun = await running.client.signals.until { seen in
                seen.contains { $0.path == next.value && ($0.progress != nil || $0.state == "failed") }
            }
            #expect(hasBegun)
            let isPaused = await thrown { try await running.client.pause(next) } == nil
            ran = begun.duration(to: .now)
            if isPaused, ran < .seconds(5) { break }
            #expect(attempt < 20)
        }
        await pause(milliseconds: Int(deadline) + 200)
        #expect(try await running.client.get(Download.state, at: path) == "paused")
        gate.open()
        let resumed = ContinuousClock.now
        try await running.client.resume(path)
        let error = await thrown { try await running.client.wait(path) }
        if error?.name == todokuError("Expired"), ran + resumed.duration(to: .now) >= .milliseconds(deadline) { return false }
        #expect(error == nil)
        #expect(running.world.bytes("a") == Array("abcd".utf8))
        return true
    }

    @Test func `for a fresh link ends with ReplaceUrl, and resumes from the bytes`() async throws {
        let running = try await Running.start()
        let body = patternBytes(1_500_000)
        let server = ScriptedServer { request, reply in
            switch (request.number, request.target) {
            case (0, _):
                reply.head(200, ["ETag": "\"v\""], length: body.count)
                reply.send(body[..<1_200_000])
                reply.close()
            case (_, "/a?sign=new"): reply.serve(body, for: request, entityTag: "\"v\"")
            default: reply.respond(403)
            }
        }
        let path = try await running.download(
            server.url("/a?sign=old"), ["renewable": .bool(true), "headers": .dictionary([("X-Token", "old")])])
        #expect(await running.waits(path, for: "needs-url"))
        #expect(try await running.error(path).details["http-status"] == .uint32(403))
        // Neither Resume nor PauseAll and ResumeAll retry the old link.
        try await running.client.resume(path)
        try await running.client.call(Manager.pauseAll, ())
        try await running.client.call(Manager.resumeAll, ())
        #expect(try await running.reason(path) == "needs-url")
        let requests = server.requests.count
        try await running.client.call(
            Download.replaceUrl, at: path, (server.url("/a?sign=new"), ["headers": .dictionary([("X-Token", "new")])]))
        #expect(readFile(try await running.client.wait(path)) == body)
        #expect(server.requests.count == requests + 1)
        #expect(server.requests.last?.range?.first == 1_200_000 && server.requests.last?.field("X-Token") == "new")
        #expect(try await running.client.call(Download.getUrl, at: path, ()) == server.url("/a?sign=new"))
        let refused = await thrown { try await running.client.call(Download.replaceUrl, at: path, (server.url("/b"), [:])) }
        #expect(refused?.name == todokuError("InvalidState"))
    }

    @Test func `for a fresh link of another origin takes nothing of the old one there`() async throws {
        let running = try await Running.start()
        let server = ScriptedServer { request, reply in
            switch request.target {
            case "/new?auth" where request.field("Authorization") == nil: reply.respond(401, ["WWW-Authenticate": "Basic realm=\"x\""])
            case "/new", "/new?auth": reply.respond(200, text: "x")
            default: reply.respond(403)
            }
        }
        let given: [String: Variant] = [
            "renewable": .bool(true), "headers": .dictionary([("X-Token", "old"), ("Referer", "http://u:p@h/header?q#f")]),
            "username": .string("user"), "password": .string("word"), "referrer": .string("http://name:secret@127.0.0.1/page?q=1#part"),
        ]
        func renew(_ link: String, _ options: [String: Variant]) async throws -> ScriptedServer.Request? {
            let path = try await running.download(server.url("/old"), given)
            #expect(await running.waits(path, for: "needs-url"))
            let first = server.requests.last { $0.path == "/old" }
            #expect(first?.field("Referer")?.contains("#") == false && first?.field("Referer")?.contains("@") == false)
            try await running.client.call(Download.replaceUrl, at: path, (link, options))
            #expect(readFile(try await running.client.wait(path)) == Array("x".utf8))
            return server.requests.last { $0.path == "/new" }
        }
        // For a link of the same origin, options stay unless the call replaces them.
        let same = try await renew(server.url("/new?auth"), ["headers": .dictionary([("X-Other", "1")])])
        #expect(same?.field("X-Token") == nil && same?.field("X-Other") == "1")
        #expect(same?.field("Referer") == "http://127.0.0.1/page?q=1" && same?.field("Authorization")?.hasPrefix("Basic ") == true)
        // For a link of another origin, none of them stays.
        let other = try await renew(server.otherURL("/new"), [:])
        #expect(other?.field("X-Token") == nil && other?.field("Referer") == nil && other?.field("Authorization") == nil)
        // New options of the call apply to the new link.
        let fresh = try await renew(
            server.otherURL("/new?auth"),
            [
                "referrer": .string("http://a:b@127.0.0.1/other#x"), "username": .string("next"), "password": .string("word"),
                "headers": .dictionary([("X-Token", "new")]),
            ])
        #expect(fresh?.field("Referer") == "http://127.0.0.1/other" && fresh?.field("X-Token") == "new")
        #expect(fresh?.field("Authorization") == "Basic bmV4dDp3b3Jk")
        let path = try await running.download(server.url("/old"), given)
        for bad: [String: Variant] in [["X-Token": .string("old")], ["headers": .string("x")], ["filename": .string("x")]] {
            let refused = await thrown { try await running.client.call(Download.replaceUrl, at: path, (server.url("/new"), bad)) }
            #expect(refused?.name == todokuError("InvalidOption") && refused?.message.contains(bad.keys.first ?? "?") == true)
        }
    }

    @Test func `needs no option for a fresh link after the failure`() async throws {
        let running = try await Running.start()
        let server = ScriptedServer { request, reply in
            if request.path == "/new" { reply.respond(200, text: "x") } else { reply.respond(410) }
        }
        let path = try await running.download(server.url("/old"))
        #expect(await thrown { try await running.client.wait(path) }?.name == todokuError("HttpStatus"))
        let bad = await thrown { try await running.client.call(Download.replaceUrl, at: path, ("ftp://h/a", [:])) }
        #expect(bad?.name == todokuError("UnsupportedScheme"))
        try await running.client.call(Download.replaceUrl, at: path, (server.url("/new"), [:]))
        #expect(readFile(try await running.client.wait(path)) == Array("x".utf8))
    }

    /// The server asks for an hour, which holds for its origin. A fresh link ends the wait, whether it is of that origin or of another.
    @Test func `that the server asked for ends at once with ReplaceUrl`() async throws {
        let running = try await Running.start()
        let server = ScriptedServer { request, reply in
            if request.path == "/busy" { reply.respond(429, ["Retry-After": "3600"]) } else { reply.respond(200, text: "x") }
        }
        let asked = try await running.download(server.url("/busy"))
        #expect(await running.client.signals.isIn("waiting", asked))
        let held = try await running.download(server.url("/behind"))
        for path in [asked, held] {
            let queued = try await running.client.get(Download.queuedAt, at: path)
            #expect(try await eventually { try await running.client.get(Download.waitUntil, at: path) > queued + 3_000_000_000 })
        }
        for (path, fresh) in [(held, server.otherURL("/other")), (asked, server.url("/fresh"))] {
            try await running.client.call(Download.replaceUrl, at: path, (fresh, [:]))
            #expect(readFile(try await running.client.wait(path)) == Array("x".utf8))
        }
        #expect(server.requests.map(\.path) == ["/busy", "/other", "/fresh"])
    }

    @Test func `that the server asked for outlasts PauseAll and Pause`() async throws {
        let running = try await Running.start()
        let server = ScriptedServer { _, reply in reply.respond(503, ["Retry-After": "3600"]) }
        let path = try await running.download(server.url("/a"))
        #expect(await running.waits(path, for: "retry"))
        let until = try await running.client.get(Download.waitUntil, at: path)
        #expect(until > wallClock(.seconds(3500)))
        try await running.client.call(Manager.pauseAll, ())
        #expect(try await running.reason(path) == "paused-all")
        try await running.client.call(Manager.resumeAll, ())
        try await running.client.pause(path)
        try await running.client.resume(path)
        #expect(try await running.reason(path) == "retry")
        #expect(try await running.client.get(Download.waitUntil, at: path) == until)
        #expect(server.requests.count == 1)
        // Resume of a waiting download tries at once.
        try await running.client.resume(path)
        #expect(await server.waitForRequests(2))
    }

    @Test func `for a folder ends when the folder is there again`() async throws {
        let running = try await Running.start()
        let server = ScriptedServer { _, reply in reply.respond(200, text: "x") }
        let folder = running.world.bus.folder.makeFolder("going")
        let path = try await running.download(server.url("/a"), ["directory": .string(folder), "start": .bool(false)])
        rmdir(folder)
        try await running.client.resume(path)
        #expect(await running.waits(path, for: "destination"))
        #expect(isSentence(DBusError("", try await running.error(path).message)))
        #expect(mkdir(folder, 0o755) == 0)
        #expect(try await running.client.wait(path) == "\(folder)/a")
    }

    @Test(.enabled("only root can mount a small disk") { await SmallDisk.isPossible() })
    func `for room says how much is missing, and ends when there is room`() async throws {
        let body = patternBytes(2_000_000)
        let server = ScriptedServer { request, reply in reply.serve(body, for: request, entityTag: "\"v\"") }
        let running = try await Running.start()
        let isDone = try await SmallDisk.withDisk(bytes: 4 << 20) { disk in
            disk.fill(leaving: 1_200_000)
            let path = try await running.download(server.url("/a"), ["directory": .string(disk.path)])
            #expect(await running.waits(path, for: "disk-space"))
            let error = try await running.error(path)
            #expect(error.name == todokuError("DiskFull") && isSentence(DBusError("", error.message)), "\(error.message)")
            #expect((700_000...1_100_000).contains(error.details["missing-bytes"]?.uint64 ?? 0), "\(error.details)")
            for name in listFolder(disk.path) where name.hasPrefix("filler") { unlink("\(disk.path)/\(name)") }
            #expect(readFile(try await running.client.wait(path)) == body)
            #expect(listFolder(disk.path) == ["a"])
            return true
        }
        #expect(isDone == true)
    }
}

@Suite struct `A file in parts` {
    @Test func `and does not match its checksum is fetched once more from the start`() async throws {
        let running = try await Running.start()
        let (old, new) = (patternBytes(300_000, seed: 1), patternBytes(300_000, seed: 2))
        writeFile("\(running.world.bus.folder.path)/new", new)
        let digest = await Child.run(["sha256sum", "\(running.world.bus.folder.path)/new"]).output.prefix(64)
        let server = ScriptedServer { request, reply in
            // Without a validator, a replaced file cannot be detected.
            guard request.number == 0 else { return reply.serve(new, for: request) }
            reply.head(200, length: old.count)
            reply.send(old[..<150_000])
            reply.close()
        }
        let path = try await running.fetch(server.url("/a"), ["checksum": .string("sha256:\(digest)")])
        #expect(readFile(path) == new)
        #expect(server.requests.map { $0.range?.first } == [nil, 150_000, nil])
    }

    @Test func `and never matches ends as ChecksumMismatch, with nothing left`() async throws {
        let running = try await Running.start()
        let body = patternBytes(300_000)
        let server = ScriptedServer { request, reply in
            guard request.number % 2 == 0 else { return reply.serve(body, for: request) }
            reply.head(200, length: body.count)
            reply.send(body[..<150_000])
            reply.close()
        }
        let error = await thrown {
            try await running.fetch(server.url("/a"), ["checksum": .string("md5:" + String(repeating: "0", count: 32))])
        }
        #expect(error?.name == todokuError("ChecksumMismatch"))
        #expect(await eventually { running.world.files == [] })
        #expect(server.requests.count == 4)
    }

    @Test func `of another media type than expected is TypeMismatch`() async throws {
        let running = try await Running.start()
        let server = ScriptedServer { _, reply in reply.respond(200, ["Content-Type": "text/html"], text: "<p>log in") }
        let error = await thrown { try await running.fetch(server.url("/a"), ["expect-type": .string("Image/*")]) }
        #expect(error?.name == todokuError("TypeMismatch") && error.map(isSentence) == true)
        #expect(await eventually { running.world.files == [] })
    }
}

@Suite struct `A download that could be read back only in part` {
    @Test func `is not started again, neither as it was nor with a fresh link`() async throws {
        let server = ScriptedServer { _, reply in reply.respond(200, text: "another file") }
        let world = await ServiceWorld()
        let client = try await world.client()
        var daemon = await world.start()
        let checksum = Variant.string("sha256:" + String(repeating: "ab", count: 32))
        let path = try await client.download(server.url("/a"), ["start": .bool(false), "checksum": checksum])
        _ = await world.stop(daemon)
        let database = try #require(readFile("\(world.state)/todoku.db"))
        let key = try #require(database.firstRange(of: Array("checksum=".utf8)))
        writeFile("\(world.state)/todoku.db", database[..<key.lowerBound] + Array("chexksum=".utf8) + database[key.upperBound...])
        daemon = await world.start()
        #expect(try await client.get(Download.state, at: path) == "failed")
        for error in [
            await thrown { try await client.retry(path) },
            await thrown { try await client.call(Download.replaceUrl, at: path, (server.url("/a"), [:])) },
        ] {
            #expect(
                error?.name == todokuError("InvalidState") && error?.message.contains("queue the download again") == true, "\(error as Any)"
            )
        }
        #expect(world.files == [])
    }
}

@Suite struct `A database that is lost` {
    @Test func `at the start is set aside, said on the bus and in the log, and part files are kept`() async throws {
        let world = await ServiceWorld()
        let client = try await world.client()
        var daemon = await world.start()
        #expect(try await client.get(Manager.setAside) == "")
        _ = await world.stop(daemon)
        writeFile("\(world.state)/todoku.db", patternBytes(8192))
        writeFile("\(world.folder)/.todoku-7.part", [1, 2, 3])
        daemon = await world.start()
        let aside = try await client.get(Manager.setAside)
        #expect(aside.hasPrefix("\(world.state)/todoku.db.corrupt-") && readFile(aside) == patternBytes(8192))
        #expect(world.files == [".todoku-7.part"])
        let exit = await world.stop(daemon)
        #expect(exit.status == 0 && exit.errors.contains(aside), "\(exit.errors)")
        // The next start says so on the bus only.
        daemon = await world.start()
        #expect(try await client.get(Manager.setAside) == aside)
        #expect(try await client.get(Manager.salvaged) == SalvageReport(downloads: 0, mayHaveLost: true))
        let second = await world.stop(daemon)
        #expect(second.status == 0 && !second.errors.contains(aside), "\(second.errors)")
    }

    @Test func `is no longer named once the file is deleted`() async throws {
        let world = await ServiceWorld()
        mkdir(world.bus.folder("state"), 0o700)
        mkdir(world.state, 0o700)
        writeFile("\(world.state)/todoku.db", patternBytes(8192))
        let client = try await world.client()
        _ = await world.start()
        let path = try await client.download("http://127.0.0.1:1/a", ["start": .bool(false)])
        let aside = try await client.get(Manager.setAside)
        #expect(aside.hasPrefix("\(world.state)/todoku.db.corrupt-"))
        // The service deletes the file after a day. It looks after a commit whether the file is there.
        unlink(aside)
        try await client.set(Download.priority, at: path, 7)
        #expect(await client.signals.until { $0.contains { $0.changed?["SetAside"] == .string("") } })
        #expect(try await client.get(Manager.setAside) == "")
        #expect(try await client.get(Manager.salvaged) == SalvageReport(downloads: 0, mayHaveLost: true))
    }

    @Test func `in part is recovered, which the bus and the log report`() async throws {
        let world = await ServiceWorld()
        let client = try await world.client()
        var daemon = await world.start()
        #expect(try await client.get(Manager.salvaged) == SalvageReport())
        var paths: [ObjectPath] = []
        for index in 0..<120 { paths.append(try await client.download("http://127.0.0.1:1/\(index)", ["start": .bool(false)])) }
        _ = await world.stop(daemon)
        // Overwrite the page with the first download.
        var database = try #require(readFile("\(world.state)/todoku.db"))
        let row = try #require(database.firstRange(of: Array("http://127.0.0.1:1/0".utf8)))
        let page = row.lowerBound / 4096 * 4096
        database.replaceSubrange(page..<page + 4096, with: patternBytes(4096))
        writeFile("\(world.state)/todoku.db", database)
        daemon = await world.start()
        let left = try await client.list()
        #expect(left.count > 60 && left.count < 120 && left == paths.suffix(left.count), "\(left.count)")
        #expect(try await client.get(Manager.setAside) != "")
        #expect(try await client.get(Manager.salvaged) == SalvageReport(downloads: UInt32(left.count), mayHaveLost: true))
        // No number is assigned twice.
        let next = try await client.download("http://127.0.0.1:1/next", ["start": .bool(false)])
        #expect(!paths.contains(next))
        let exit = await world.stop(daemon)
        #expect(exit.errors.contains("saved") && exit.errors.contains("\(left.count)"), "\(exit.errors)")
    }

    /// The row with the resume data is on a page of another table.
    @Test func `in part resumes from the part file, if the written map proves it`() async throws {
        let world = await ServiceWorld()
        let client = try await world.client()
        let body = String(repeating: "x", count: 1 << 20)
        let gate = Gate()
        let server = ScriptedServer { request, reply in
            if let range = request.field("Range") {
                let start = Int(range.dropFirst(6).prefix { $0.isNumber }) ?? 0
                reply.head(
                    206, ["ETag": "\"of-this-one\"", "Content-Range": "bytes \(start)-\(2 * body.utf8.count - 1)/\(2 * body.utf8.count)"],
                    length: 2 * body.utf8.count - start)
                reply.send(String(repeating: "x", count: 2 * body.utf8.count - start))
                return reply.close()
            }
            reply.head(200, ["ETag": "\"of-this-one\""], length: 2 * body.utf8.count)
            reply.send(body)
            gate.wait()
        }
        var daemon = await world.start()
        let path = try await client.download(server.url("/a"), ["directory": .string(world.folder), "notify": .string("never")])
        #expect(await client.signals.until { $0.contains { $0.progress?.received == UInt64(body.utf8.count) } })
        _ = await world.stop(daemon)
        gate.open()
        var database = try #require(readFile("\(world.state)/todoku.db"))
        let row = try #require(database.firstRange(of: Array("\"of-this-one\"".utf8)))
        let page = row.lowerBound / 4096 * 4096
        database.replaceSubrange(page..<page + 4096, with: patternBytes(4096))
        writeFile("\(world.state)/todoku.db", database)
        daemon = await world.start()
        #expect(try await client.get(Manager.salvaged) == SalvageReport(downloads: 1, mayHaveLost: true))
        #expect(try await client.wait(path) == "\(world.folder)/a")
        #expect(server.requests.last?.field("Range") == "bytes=\(body.utf8.count)-")
        #expect(readFile("\(world.folder)/a")?.count == 2 * body.utf8.count)
    }

    @Test func `by one bit of its log after a kill is reported, and the rest is recovered`() async throws {
        let world = await ServiceWorld()
        let client = try await world.client()
        var generator = SeededRandom(12)
        for round in 0..<6 {
            var daemon = await world.start()
            let before = try await client.list().count
            for index in 0..<30 { _ = try await client.download("http://127.0.0.1:1/\(round)/\(index)", ["start": .bool(false)]) }
            await world.kill(daemon)
            var log = readFile("\(world.state)/todoku.db-wal") ?? []
            if !log.isEmpty {
                log[Int.random(in: 0..<log.count, using: &generator)] ^= 1 << UInt8.random(in: 0..<8, using: &generator)
                writeFile("\(world.state)/todoku.db-wal", log)
            }
            daemon = await world.start()
            let count = try await client.list().count
            let report = try await client.get(Manager.salvaged)
            #expect(count == before + 30 || report.mayHaveLost, "round \(round): \(count) of \(before + 30)")
            #expect(count >= before + 5, "round \(round): \(count) of \(before + 30)")
            _ = await world.stop(daemon)
        }
    }

    @Test func `under the service is written again with everything that is known`() async throws {
        let world = await ServiceWorld()
        let client = try await world.client()
        let daemon = await world.start()
        let paths = [
            try await client.download("http://127.0.0.1:1/a", ["start": .bool(false)]),
            try await client.download("http://127.0.0.1:1/b", ["start": .bool(false), "tag": .string("t")]),
        ]
        for suffix in ["", "-wal", "-shm"] { unlink("\(world.state)/todoku.db\(suffix)") }
        let third = try await client.download("http://127.0.0.1:1/c", ["start": .bool(false)])
        await world.kill(daemon)
        _ = await world.start()
        #expect(try await client.list() == paths + [third])
        #expect(try await client.get(Download.tag, at: paths[1]) == "t")
    }

    @Test func `and cannot be written again at first is written as soon as possible, without a call`() async throws {
        let world = await ServiceWorld()
        let client = try await world.client()
        let daemon = await world.start()
        let paths = [
            try await client.download("http://127.0.0.1:1/a", ["start": .bool(false)]),
            try await client.download("http://127.0.0.1:1/b", ["start": .bool(false)]),
        ]
        #expect(rename(world.state, "\(world.state).gone") == 0)
        writeFile(world.state, [1])
        let error = await thrown { try await client.download("http://127.0.0.1:1/c", ["start": .bool(false)]) }
        #expect(error?.name == todokuError("Storage"))
        unlink(world.state)
        _ = await world.stop(daemon)
        _ = await world.start()
        #expect(try await client.list() == paths)
    }

    @Test func `and cannot be created again is reported to the caller, before the service exits`() async throws {
        let world = await ServiceWorld(activation: "--idle-exit 30")
        let client = try await world.client()
        writeFile(world.state, [1])
        let error = await thrown { try await client.list() }
        #expect(error?.name == todokuError("Storage") && error?.message.contains("state") == true, "\(String(describing: error))")
        unlink(world.state)
        #expect(try await client.list() == [])
    }
}
