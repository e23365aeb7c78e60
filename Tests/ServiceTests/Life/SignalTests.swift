internal import DBus
internal import DownloaderInterface
internal import EventLoop
internal import Glibc
internal import TestSupport
internal import Testing

@Suite struct `Signals` {
    @Test func `at an end come in the promised order, and replies to Wait between`() async throws {
        let running = try await Running.start()
        let (world, client) = (running.world, running.client)
        let second = try await world.client()
        let gate = Gate()
        let server = ScriptedServer { _, reply in
            reply.head(200, length: 100_000)
            reply.send(patternBytes(60_000))
            gate.wait()
            reply.send(patternBytes(40_000))
        }
        // A foreign program watches the bus: signals and replies in one order.
        let monitor = Child(["dbus-monitor", "--session", "--profile"], environment: world.environment)
        #expect(await eventually { monitor.output.contains("NameLost") })
        let path = try await running.download(server.url("/a.bin"))
        #expect(await client.signals.has("Progress", at: path))
        async let one = client.wait(path)
        async let two = second.wait(path)
        #expect(await eventually { Trace(monitor.output).calls("Wait").count == 2 })
        // The bus has both. Behind these answers, the service has them, too: it first looks who a new caller is.
        for caller in [client, second] { #expect(try await caller.get(Download.state, at: path) == "active") }
        gate.open()
        #expect(try await (one, two) == ("\(world.folder)/a.bin", "\(world.folder)/a.bin"))
        #expect(await client.signals.has("AllEnded"))
        #expect(await eventually { monitor.output.contains("AllEnded") })
        let trace = Trace(monitor.output)
        let events = trace.events(of: path.value, waits: trace.calls("Wait"))
        let last = try #require(events.lastIndex(of: "Progress"))
        #expect(
            events[last...].filter { $0 != "Manager PropertiesChanged" } == [
                "Progress", "PropertiesChanged", "PropertiesChanged", "Finished", "Completed", "DownloadEnded", "Reply", "Reply",
                "AllEnded",
            ])
        #expect(
            events[..<last].allSatisfy { ["DownloadAdded", "Progress", "PropertiesChanged", "Manager PropertiesChanged"].contains($0) })
        #expect(await client.signals.states(of: path) == ["active", "verifying", "finished"])
    }

    @Test func `give sums: written bytes equal received bytes`() async throws {
        let running = try await Running.start()
        let gate = Gate()
        let server = ScriptedServer { request, reply in
            reply.head(200, length: 400_000)
            for part in 0..<20 {
                reply.send(patternBytes(20_000, seed: UInt64(part)))
                poll(nil, 0, 20)  // a slow server
                if part == 9 { gate.wait() }  // until a first signal has come
            }
        }
        let path = try await running.download(server.url("/a.bin"))
        #expect(await running.client.signals.has("Progress", at: path))
        gate.open()
        _ = try await running.client.wait(path)
        let progress = await running.client.signals.of(path).compactMap(\.progress)
        #expect(progress.count > 1)
        var sum: UInt64 = 0
        for one in progress {
            sum += one.written
            #expect(one.written > 0)
            #expect(one.received == sum)
            #expect(one.total == 400_000)
        }
        #expect(sum == 400_000)
    }

    @Test func `of progress come at most ten times a second for a download`() async throws {
        let running = try await Running.start()
        let gate = Gate()
        let server = ScriptedServer { _, reply in
            reply.head(200, ["Transfer-Encoding": "chunked"])
            while !gate.isOpen, reply.send("400\r\n"), reply.send(patternBytes(1024) + Array("\r\n".utf8)) { poll(nil, 0, 3) }
            reply.chunk([])
        }
        // From before the first, which may arrive late here.
        let begun = ContinuousClock.now
        let path = try await running.download(server.url("/drip"))
        #expect(await running.client.signals.has("Progress", at: path, count: 16))
        let arrivals = await running.client.signals.of(path).filter { $0.member == "Progress" }.map(\.arrived)
        let took = arrivals[15] - begun
        // 0.1 s between two, with 5 ms of grace for the timer.
        #expect(took >= .milliseconds(15 * 95), "16 in \(took)")
        gate.open()
        _ = try await running.client.wait(path)
    }

    @Test func `end each of 200 small downloads once, and all of them once`() async throws {
        let running = try await Running.start()
        let client = running.client
        let server = ScriptedServer { request, reply in reply.serve(Array(request.target.utf8), for: request) }
        try await client.set(Manager.maxActive, 16)
        try await client.set(Manager.maxPerHost, 0)
        try await client.call(Manager.pauseAll, ())
        var paths: [ObjectPath] = []
        for index in 0..<200 { paths.append(try await running.download(server.url("/file\(index)"))) }
        try await client.call(Manager.resumeAll, ())
        #expect(await client.signals.has("AllEnded", within: .seconds(180)))
        _ = try await client.list()  // all signals sent before this answer have arrived
        let seen = await client.signals.seen
        for path in paths {
            #expect(seen.count { $0.path == path.value && $0.member == "Completed" } == 1)
            #expect(seen.count { $0.path == path.value && $0.member == "Finished" } == 1)
            #expect(seen.count { $0.ended?.path == path } == 1)
        }
        let all = seen.filter { $0.member == "AllEnded" }
        #expect(all.count == 1)
        #expect(all.first.flatMap { Manager.allEnded.read($0.message) }! == (200, 0, 0))
        #expect(running.world.files.count == 200)
        #expect((0..<200).allSatisfy { running.world.bytes("file\($0)") == Array("/file\($0)".utf8) })
    }

    @Test func `count what finished, failed and was cancelled since nothing was left`() async throws {
        let running = try await Running.start()
        let client = running.client
        let server = ScriptedServer { request, reply in
            if request.path.hasPrefix("/good") { reply.respond(200, text: "x") } else { reply.respond(404) }
        }
        try await client.call(Manager.pauseAll, ())
        for path in ["/good1", "/good2", "/bad"] { _ = try await running.download(server.url(path)) }
        let cancelled = try await running.download(server.url("/never"))
        try await client.cancel(cancelled)
        try await client.call(Manager.resumeAll, ())
        #expect(await client.signals.has("AllEnded"))
        #expect(await client.signals.seen.compactMap { Manager.allEnded.read($0.message) }.first! == (2, 1, 1))
        _ = try? await running.fetch(server.url("/bad2"))
        #expect(await client.signals.has("AllEnded", count: 2))
        #expect(await client.signals.seen.compactMap { Manager.allEnded.read($0.message) }.last! == (0, 1, 0))
    }

    @Test func `of an end agree: Completed, DownloadEnded, Error and Wait`() async throws {
        let running = try await Running.start()
        let client = running.client
        let server = ScriptedServer { _, reply in reply.respond(410) }
        let path = try await running.download(server.url("/gone"))
        let refused = await thrown { try await client.wait(path) }
        let (name, message, details) = try #require(await client.signals.of(path).compactMap(\.completed).first)
        let ended = try #require(await client.signals.seen.compactMap(\.ended).first)
        let error = try await client.get(Download.error, at: path)
        #expect(name == todokuError("HttpStatus"))
        #expect(refused == DBusError(name, message))
        #expect(ended == (path, "failed", name))
        #expect(error == EndError(name: name, message: message, details: details))
        #expect(details == ["http-status": .uint32(410), "retryable": .bool(false), "host": .string("127.0.0.1")])
        #expect(await client.signals.of(path).contains { $0.member == "Finished" } == false)
        // Another call gets the same answer.
        #expect(await thrown { try await client.wait(path) } == refused)
    }

    @Test func `PropertiesChanged omits the properties that are annotated so`() async throws {
        let running = try await Running.start()
        let client = running.client
        let server = ScriptedServer { request, reply in reply.serve(patternBytes(200_000), for: request) }
        let path = try await running.download(server.url("/a.bin"))
        _ = try await client.wait(path)
        #expect(await client.signals.has("AllEnded"))
        let untold: Set = [
            "Received", "Total", "Speed", "Fraction", "App", "Token", "Tag", "QueuedAt", "Batch", "Version", "SupportedOptions",
        ]
        for one in await client.signals.seen {
            if let changed = one.changed { #expect(untold.isDisjoint(with: changed.keys), "\(changed.keys)") }
        }
        // The announced values are those that a client reads.
        var told: [String: Variant] = [:]
        for one in await client.signals.of(path) { if let changed = one.changed { told.merge(changed) { $1 } } }
        let read = try await client.all(path)
        for (key, value) in told { #expect(read[key] == value, "\(key)") }
        #expect(Set(told.keys).isSuperset(of: ["State", "FileName", "MediaType", "Path", "Attempts", "StartedAt", "EndedAt"]))
    }

    @Test func `tell the URL that a redirect leads to, and a name that changes its bytes only`() async throws {
        let running = try await Running.start()
        let client = running.client
        let (composed, decomposed) = ("caf\u{e9}.bin", "cafe\u{301}.bin")
        let server = ScriptedServer { request, reply in
            if request.path == "/moved" { return reply.respond(302, ["Location": "/there"]) }
            let isFirst = request.number == 1
            let name = (isFirst ? composed : decomposed).utf8.map { "%" + String($0 >> 4, radix: 16) + String($0 & 15, radix: 16) }.joined()
            reply.send("HTTP/1.1 200 OK\r\nContent-Disposition: attachment; filename*=UTF-8''\(name)\r\nContent-Length: 10\r\n\r\n12345")
            if isFirst { return reply.close() }
            reply.send("67890")
        }
        let path = try await running.download(server.url("/moved"))
        let file = try await client.wait(path)
        #expect(file.utf8.elementsEqual("\(running.world.folder)/\(decomposed)".utf8), "\(file)")
        let told = await client.signals.of(path).compactMap(\.changed)
        let urls = told.compactMap { $0["Url"]?.string }
        #expect(urls == [server.url("/there")])
        let names = told.compactMap { $0["FileName"]?.string }.map { Array($0.utf8) }
        #expect(names.contains(Array(composed.utf8)) && names.last == Array(decomposed.utf8), "\(names)")
    }

    @Test func `of the manager's properties come before AllEnded`() async throws {
        let running = try await Running.start()
        let client = running.client
        let server = ScriptedServer { _, reply in reply.respond(200, text: "x") }
        for index in 0..<5 { _ = try await running.download(server.url("/\(index)")) }
        #expect(await client.signals.until { $0.contains { $0.member == "AllEnded" } })
        #expect(await client.signals.until { $0.contains { $0.changed?["Remaining"] == .uint32(0) } })
        let seen = await client.signals.seen
        let last = try #require(seen.lastIndex { $0.member == "AllEnded" })
        #expect(seen[..<last].last { $0.changed?["Remaining"] != nil }?.changed?["Remaining"] == .uint32(0))
    }

    @Test func `of a pause and a resume give the bytes held`() async throws {
        let running = try await Running.start()
        let client = running.client
        let body = patternBytes(500_000)
        let gate = Gate()
        let server = ScriptedServer { request, reply in
            if request.range == nil {
                reply.head(200, ["ETag": "\"v1\""], length: body.count)
                reply.send(body[..<300_000])
                gate.wait()
            } else {
                reply.serve(body, for: request, entityTag: "\"v1\"")
            }
        }
        let path = try await running.download(server.url("/a.bin"))
        #expect(await client.signals.until { $0.contains { $0.progress?.received == 300_000 } })
        try await client.pause(path)
        #expect(await client.signals.isIn("paused", path))
        #expect(try await client.get(Download.received, at: path) == 300_000)
        try await client.resume(path)
        #expect(readFile(try await client.wait(path)) == body)
        gate.open()
        let seen = await client.signals.of(path)
        let resumed = try #require(seen.firstIndex { $0.member == "ResumedAt" })
        let resumedAt = try #require(seen[resumed].resumedAt)
        #expect(resumedAt == (300_000, 500_000))
        let written: [UInt64] = seen[resumed...].compactMap { $0.progress?.written }
        #expect(written.reduce(300_000, +) == 500_000)
        // The download is queued while its previous transfer stops.
        let states = await client.signals.states(of: path).filter { $0 != "queued" }
        #expect(states == ["active", "paused", "active", "verifying", "finished"])
        #expect(server.requests.last?.field("If-Range") == "\"v1\"")
        #expect(server.requests.last?.field("Range") == "bytes=300000-")
    }

    @Test func `of discarded bytes begin again at 0`() async throws {
        let running = try await Running.start()
        let client = running.client
        let body = patternBytes(100_000)
        let gate = Gate()
        // Without a validator: the first answer is cut off, the second is whole.
        let server = ScriptedServer { request, reply in
            reply.head(200, length: body.count)
            if request.number == 0 {
                reply.send(body[..<40_000])
                gate.wait()  // until a progress signal has come
                reply.reset()
            } else {
                reply.send(body)
            }
        }
        let path = try await running.download(server.url("/a.bin"))
        #expect(await client.signals.has("Progress", at: path))
        gate.open()
        #expect(readFile(try await client.wait(path)) == body)
        var sum: UInt64 = 0
        for one in await client.signals.of(path) {
            if let (offset, _) = one.resumedAt { sum = offset }
            if let progress = one.progress {
                sum += progress.written
                #expect(progress.received == sum)
            }
        }
        #expect(sum == 100_000)
        #expect(try await client.get(Download.attempts, at: path) == 2)
    }

    @Test func `of a retry after an end are an end again, once each`() async throws {
        let running = try await Running.start()
        let client = running.client
        let server = ScriptedServer { request, reply in
            if request.number == 0 { reply.respond(403) } else { reply.respond(200, text: "now") }
        }
        let path = try await running.download(server.url("/a.txt"))
        #expect(await thrown { try await client.wait(path) }?.name == todokuError("HttpStatus"))
        try await client.retry(path)
        #expect(try await client.wait(path) == "\(running.world.folder)/a.txt")
        _ = try await client.list()
        #expect(await client.signals.of(path).compactMap(\.completed?.error) == [todokuError("HttpStatus"), ""])
        #expect(await client.signals.seen.compactMap(\.ended?.outcome) == ["failed", "finished"])
        #expect(await client.signals.count("AllEnded") == 2)
        #expect(try await client.get(Download.error, at: path) == EndError())
    }

    @Test func `come before the answer to a Wait that comes at the very end`() async throws {
        let running = try await Running.start()
        let server = ScriptedServer { _, reply in reply.respond(200, text: "x") }
        let monitor = Child(["dbus-monitor", "--session", "--profile"], environment: running.world.environment)
        #expect(await eventually { monitor.output.contains("NameLost") })
        var paths: [ObjectPath] = []
        for index in 0..<30 {
            let path = try await running.download(server.url("/\(index)"))
            paths.append(path)
            // Read until the download has ended: one of these calls comes between the end, and the end's being on disk.
            while try await running.client.get(Download.state, at: path) != "finished" {}
            _ = try await running.client.wait(path)
        }
        #expect(await running.client.signals.until { $0.count { $0.member == "DownloadEnded" } == 30 })
        // The answer to the last Wait is behind the last signal.
        #expect(await eventually { Trace(monitor.output).answers("Wait") == 30 })
        let trace = Trace(monitor.output)
        for path in paths {
            let events = trace.events(of: path.value, waits: trace.calls("Wait", path: path.value)).filter {
                ["Completed", "Reply"].contains($0)
            }
            #expect(events == ["Completed", "Reply"])
        }
    }
}

/// The output of `dbus-monitor --profile`.
struct Trace {
    struct Line {
        let type: String, serial: String, sender: String, path: String, interface: String, member: String
        let destination: String
    }
    let lines: [Line]

    init(_ output: String) {
        // The last line may be incomplete.
        let whole = output.lastIndex(of: "\n").map { output[..<$0] } ?? ""
        lines = whole.split(separator: "\n").compactMap { line in
            let fields = line.split(separator: "\t", omittingEmptySubsequences: false).map(String.init)
            if fields.count == 8 {
                return Line(
                    type: fields[0], serial: fields[2], sender: fields[3], path: fields[5], interface: fields[6], member: fields[7],
                    destination: fields[4])
            }
            // In a reply, the last field is the serial of the call.
            guard fields.count == 6, fields[0] == "mr" || fields[0] == "err" else { return nil }
            return Line(type: fields[0], serial: fields[5], sender: fields[3], path: "", interface: "", member: "", destination: fields[4])
        }
    }

    /// The calls of a method, by caller and serial.
    func calls(_ member: String, path: String? = nil) -> Set<String> {
        Set(lines.filter { $0.type == "mc" && $0.member == member && (path == nil || $0.path == path) }.map { "\($0.sender) \($0.serial)" })
    }

    /// The signals of one download and of the manager, and the answers to `waits`, in order.
    func events(of path: String, waits: Set<String>) -> [String] {
        lines.compactMap { line in
            switch line.type {
            case "sig" where line.path == path: line.member
            case "sig" where line.path == BusName.managerPath.value:
                line.member == "PropertiesChanged" ? "Manager PropertiesChanged" : line.member
            case "mr" where waits.contains("\(line.destination) \(line.serial)"): "Reply"
            default: nil
            }
        }
    }
}
