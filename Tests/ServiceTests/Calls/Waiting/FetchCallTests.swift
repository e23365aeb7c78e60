internal import DBus
internal import DownloaderInterface
internal import EventLoop
internal import Glibc
internal import Synchronization
internal import TestSupport
internal import Testing

/// The file of a server, in versions, with their headers.
final class Shelf: Sendable {
    private let number = Atomic<Int>(1)
    private let make: @Sendable (Int) -> [UInt8]

    init(_ make: @escaping @Sendable (Int) -> [UInt8] = { patternBytes(50_000, seed: UInt64($0)) }) { self.make = make }

    var version: Int { number.load(ordering: .relaxed) }
    var file: [UInt8] { make(version) }
    func change() { number.add(1, ordering: .relaxed) }

    /// Answers as a good server does: 304 if the conditions of the request say so (RFC 9110 §13.2.2).
    ///
    /// - Parameter tag: the entity tag of a version, such as `W/"1"`; nil: no tag is sent.
    func serve(
        _ request: ScriptedServer.Request, _ reply: TestSupport.Reply, tag: ((Int) -> String)? = nil, modified: ((Int) -> String)? = nil
    ) {
        let date = "Fri, 20 Nov 2026 12:00:00 GMT"
        func isSame(_ asked: String?, _ own: String?) -> Bool { asked != nil && asked == own }
        let (tag, modified) = (tag?(version), modified?(version))
        let isUnchanged =
            request.field("If-None-Match").map { isSame($0, tag) } ?? isSame(request.field("If-Modified-Since"), modified)
        var fields = "Date: \(date)\r\n"
        if let tag { fields += "ETag: \(tag)\r\n" }
        if let modified { fields += "Last-Modified: \(modified)\r\n" }
        if isUnchanged { return _ = reply.send("HTTP/1.1 304 Not Modified\r\n\(fields)\r\n") }
        reply.send("HTTP/1.1 200 OK\r\n\(fields)Content-Type: application/x-test\r\nContent-Length: \(file.count)\r\n\r\n")
        reply.send(file)
    }
}

struct Answer: Equatable, CustomStringConvertible {
    let outcome: String
    let path: String
    init(_ answer: (String, String)) { (outcome, path) = answer }
    init(_ outcome: FetchOutcome, _ path: String) { (self.outcome, self.path) = (outcome.rawValue, path) }
    var description: String { "\(outcome) \(path)" }
}

extension Running {
    /// Calls `Fetch`.
    func get(_ url: String, _ more: [String: Variant] = [:], by other: Client? = nil) async throws -> Answer {
        Answer(try await (other ?? client).call(Manager.fetch, (url, options(more))))
    }

    func file(_ name: String) -> String { "\(world.folder)/\(name)" }
}

private func oldDate(_ version: Int) -> String { "Mon, 0\(version) Jun 2026 10:00:00 GMT" }

@Suite(.timeLimit(.minutes(10))) struct `A Fetch` {
    @Test(arguments: ["", "W/"])
    func `is answered when the file is there, and by the copy where the server says that it is the same`(prefix: String) async throws {
        let running = try await Running.start()
        let shelf = Shelf()
        let server = ScriptedServer { request, reply in shelf.serve(request, reply) { "\(prefix)\"\($0)\"" } }
        #expect(try await running.get(server.url("/a?q=1")) == Answer(.newData, running.file("a")))
        #expect(running.world.bytes("a") == shelf.file)
        let first = try #require(try await running.client.list().first)
        #expect(server.requests[0].field("If-None-Match") == nil && server.requests[0].field("If-Modified-Since") == nil)

        #expect(try await running.get(server.url("/a?q=1")) == Answer(.noData, running.file("a")))
        #expect(server.requests.count == 2)
        #expect(server.requests[1].field("If-None-Match") == "\(prefix)\"1\"")
        #expect(await eventually { running.world.files == ["a"] })
        // The result is a download like any other, and the previous one has left the list.
        #expect(await running.client.signals.has("DownloadRemoved"))
        let path = try #require(try await running.client.list().first)
        #expect(try await running.client.list() == [path] && path != first)
        let all = try await running.client.all(path)
        #expect(all["State"]?.string == "finished" && all["Path"]?.string == running.file("a") && all["FileName"]?.string == "a")
        #expect(all["Received"]?.uint64 == 50_000 && all["Fraction"]?.double == 1 && all["MediaType"]?.string == "application/x-test")
        #expect(all["Error"].flatMap(EndError.init) == EndError(details: ["unchanged": .bool(true)]))
        let signals = await running.client.signals.of(path)
        #expect(signals.last { $0.completed != nil }?.completed?.details == ["unchanged": .bool(true)])
        #expect(signals.contains { $0.member == "Finished" })
        let descriptor = try await running.client.call(Download.openFile, at: path, ()).take()
        #expect(lseek(descriptor, 0, SEEK_END) == 50_000)
        close(descriptor)

        shelf.change()
        #expect(try await running.get(server.url("/a?q=1")) == Answer(.newData, running.file("a (1)")))
        #expect(running.world.bytes("a (1)") == shelf.file)
        #expect(try await running.get(server.url("/a?q=1")) == Answer(.noData, running.file("a (1)")))
        #expect(server.requests.count == 4 && server.requests[3].field("If-None-Match") == "\(prefix)\"2\"")
        #expect(await eventually { running.world.files == ["a", "a (1)"] })
    }

    @Test func `asks by the date where there is no entity tag`() async throws {
        let running = try await Running.start()
        let shelf = Shelf()
        let server = ScriptedServer { request, reply in shelf.serve(request, reply, modified: oldDate) }
        #expect(try await running.get(server.url("/a")) == Answer(.newData, running.file("a")))
        #expect(try await running.get(server.url("/a")) == Answer(.noData, running.file("a")))
        #expect(server.requests[1].field("If-Modified-Since") == oldDate(1) && server.requests[1].field("If-None-Match") == nil)
        shelf.change()
        #expect(try await running.get(server.url("/a"), ["if-exists": .string("replace")]) == Answer(.newData, running.file("a")))
        #expect(running.world.bytes("a") == shelf.file)
        #expect(try await running.get(server.url("/a")) == Answer(.noData, running.file("a")))
        #expect(server.requests.map { $0.field("If-Modified-Since") ?? "" } == ["", oldDate(1), oldDate(1), oldDate(2)])
        #expect(await eventually { running.world.files == ["a"] })
    }

    /// A date within this minute may stand for two files, and so may a response that varies.
    @Test(arguments: [
        "Last-Modified: Fri, 20 Nov 2026 11:59:30 GMT", "Last-Modified: Mon, 01 Jun 2026 10:00:00 GMT\r\nVary: Accept", "X: 1",
        "Last-Modified: Mon, 01 Jun 2026 10:00:00 GMT\r\nVary: Accept-Encoding\r\nVary: Accept",
    ])
    func `sends no weak condition, and recognises the same bytes`(field: String) async throws {
        let running = try await Running.start()
        let server = ScriptedServer { _, reply in
            reply.send("HTTP/1.1 200 OK\r\nDate: Fri, 20 Nov 2026 12:00:00 GMT\r\n\(field)\r\nContent-Length: 300000\r\n\r\n")
            reply.send(patternBytes(300_000))
        }
        #expect(try await running.get(server.url("/a")) == Answer(.newData, running.file("a")))
        for _ in 0..<2 { #expect(try await running.get(server.url("/a")) == Answer(.noData, running.file("a"))) }
        #expect(server.requests.count == 3)
        #expect(server.requests.allSatisfy { $0.field("If-Modified-Since") == nil && $0.field("If-None-Match") == nil })
        #expect(await eventually { running.world.files == ["a"] })  // the part file is deleted once the end is on disk
        // A file of the same length may have other bytes.
        writeFile(running.file("b"), patternBytes(300_000))
        #expect(try await running.get(server.url("/b")) == Answer(.newData, running.file("b (1)")))
    }

    @Test func `of other bytes of the same length brings new data`() async throws {
        let running = try await Running.start()
        let shelf = Shelf { version in
            var bytes = patternBytes(700_000)
            bytes[699_999] = UInt8(version)
            return bytes
        }
        let server = ScriptedServer { request, reply in shelf.serve(request, reply) }
        #expect(try await running.get(server.url("/a"), ["if-exists": .string("replace")]) == Answer(.newData, running.file("a")))
        shelf.change()
        #expect(try await running.get(server.url("/a"), ["if-exists": .string("replace")]) == Answer(.newData, running.file("a")))
        #expect(running.world.bytes("a") == shelf.file)
        #expect(try await running.get(server.url("/a"), ["if-exists": .string("replace")]) == Answer(.noData, running.file("a")))
    }

    @Test(arguments: ["written", "cut", "deleted", "replaced", "linked"])
    func `does not count a written, deleted or replaced file as the copy`(how: String) async throws {
        let running = try await Running.start()
        let shelf = Shelf()
        let server = ScriptedServer { request, reply in shelf.serve(request, reply) { "\"\($0)\"" } }
        let path = running.file("a")
        #expect(try await running.get(server.url("/a")) == Answer(.newData, path))
        switch how {
        case "written":
            let descriptor = open(path, O_WRONLY)
            #expect(write(descriptor, "x", 1) == 1)
            close(descriptor)
        case "cut": truncate(path, 10)
        case "deleted": unlink(path)
        case "replaced":
            writeFile(running.file("other"), shelf.file)
            rename(running.file("other"), path)
        default:
            rename(path, running.file("moved"))
            symlink(running.file("moved"), path)
        }
        let name = how == "deleted" ? "a" : "a (1)"
        #expect(try await running.get(server.url("/a")) == Answer(.newData, running.file(name)))
        #expect(running.world.bytes(name) == shelf.file)
        #expect(server.requests.count == 2 && server.requests[1].field("If-None-Match") == nil)
        #expect(try await running.get(server.url("/a")) == Answer(.noData, running.file(name)))
    }

    @Test func `knows the copy after ClearEnded, Remove, an end, and a kill`() async throws {
        let world = await ServiceWorld()
        let client = try await world.client()
        var daemon = await world.start()
        let shelf = Shelf()
        let server = ScriptedServer { request, reply in shelf.serve(request, reply) { "\"\($0)\"" } }
        let options: [String: Variant] = ["directory": .string(world.folder), "notify": .string("never")]
        func get() async throws -> Answer { Answer(try await client.call(Manager.fetch, (server.url("/a"), options))) }
        let held = Answer(.noData, "\(world.folder)/a")
        #expect(try await get() == Answer(.newData, "\(world.folder)/a"))
        #expect(try await client.call(Manager.clearEnded, ()) == 1)
        #expect(try await get() == held)
        try await client.remove(try #require(try await client.list().first))
        #expect(try await get() == held)
        _ = await world.stop(daemon)
        daemon = await world.start()
        #expect(try await get() == held)
        await world.kill(daemon)
        daemon = await world.start()
        #expect(try await get() == held)
        #expect(server.requests.dropFirst().allSatisfy { $0.field("If-None-Match") == "\"1\"" } && server.requests.count == 5)
        #expect(await eventually { world.files == ["a"] })
        // Deleting the file also ends the use of the cached copy.
        try await client.remove(try #require(try await client.list().first), deletingFile: true)
        #expect(await eventually { world.files == [] })
        #expect(try await get() == Answer(.newData, "\(world.folder)/a"))
    }

    @Test func `of nothing is answered too`() async throws {
        let running = try await Running.start()
        let server = ScriptedServer { _, reply in reply.respond(200) }
        #expect(try await running.get(server.url("/a")) == Answer(.newData, running.file("a")))
        #expect(try await running.get(server.url("/a")) == Answer(.noData, running.file("a")))
        #expect(running.world.bytes("a") == [])
        // The server's file becomes empty.
        let shelf = Shelf { $0 == 1 ? [1] : [] }
        let other = ScriptedServer { request, reply in shelf.serve(request, reply) { "\"\($0)\"" } }
        #expect(try await running.get(other.url("/b")) == Answer(.newData, running.file("b")))
        shelf.change()
        #expect(try await running.get(other.url("/b")) == Answer(.newData, running.file("b (1)")))
        #expect(try await running.get(other.url("/b")) == Answer(.noData, running.file("b (1)")))
    }

    @Test func `is answered by what its download ended in`() async throws {
        let running = try await Running.start()
        let server = ScriptedServer { request, reply in
            switch request.path {
            case "/gone": reply.respond(404)
            case "/late": request.number == 1 ? reply.respond(503) : reply.respond(200, text: "late")
            default:
                reply.head(200, length: 10)
                reply.send("12345")
            }
        }
        #expect(await thrown { try await running.get(server.url("/gone")) }?.name == todokuError("HttpStatus"))
        #expect(try await running.get(server.url("/late")) == Answer(.newData, running.file("late")))
        async let slow = thrown { try await running.get(server.url("/slow")) }
        #expect(await running.client.signals.has("DownloadAdded", count: 3))
        let path = try #require(try await running.client.list(["states": .strings(["queued", "active", "waiting"])]).first)
        try await running.client.cancel(path)
        let error = await slow
        #expect(error?.name == todokuError("Cancelled"))
        #expect(await thrown { try await running.get("ftp://h/a") }?.name == todokuError("UnsupportedScheme"))
        #expect(
            await thrown { try await running.get("http://h/a", ["directory": .string("/no/such")]) }?.name == todokuError("InvalidOption"))
    }

    @Test func `answers after all signals of the end`() async throws {
        let running = try await Running.start()
        let server = ScriptedServer { _, reply in reply.respond(200, text: "x") }
        _ = try await running.get(server.url("/a"))
        // The answer and the signals arrive on one connection, in order.
        let members = await running.client.signals.seen.map(\.member)
        for member in ["Finished", "Completed", "DownloadEnded"] { #expect(members.contains(member)) }
    }

    // MARK: Sharing

    @Test func `shares its transfer with equal calls meanwhile, and with no others`() async throws {
        let running = try await Running.start()
        let gate = Gate()
        let server = ScriptedServer { request, reply in
            gate.wait()
            reply.respond(200, text: request.field("X-Key") ?? "plain")
        }
        let other = try await running.world.client()
        let url = server.url("/a")
        let same = Pipeline()
        for index in 0..<10 {
            let (caller, options) = (index < 5 ? running.client : other, running.options(["priority": .int32(Int32(index % 2))]))
            await same.start { "\(Answer(try await caller.call(Manager.fetch, (url, options))))" }
        }
        #expect(await server.waitForRequests(1))
        async let header = running.get(url, ["headers": .dictionary([("X-Key", "key")])])
        #expect(await server.waitForRequests(2))
        async let app = running.get(url, ["app": .string("org.example.App")])
        #expect(await server.waitForRequests(3))
        async let name = running.get(url, ["filename": .string("b")])
        #expect(await server.waitForRequests(4))
        // Behind these answers, the service has the calls of both callers.
        for client in [running.client, other] { #expect(try await client.list().count == 4) }
        gate.open()
        let answers = await same.answers(10)
        #expect(Set(answers).count == 1 && answers[0]?.hasPrefix("new-data ") == true, "\(answers)")
        let (byHeader, byApp, byName) = try await (header, app, name)
        #expect(byHeader.outcome == "new-data" && byApp.outcome == "new-data")
        #expect(byName == Answer(.newData, running.file("b")))
        #expect(server.requests.count == 4)
        #expect(running.world.files.count == 4)
        #expect(readFile(byHeader.path) == Array("key".utf8))
    }

    @Test func `continues when its callers leave, and the death of one does not disturb two hundred others`() async throws {
        let running = try await Running.start()
        let gate = Gate()
        let server = ScriptedServer { _, reply in
            reply.head(200, length: 4)
            reply.send("12")
            gate.wait()
            reply.send("34")
        }
        let bus = running.world.bus
        let dying: [Variant] = [.string(server.url("/3")), .dictionary(running.options())]
        let shared: [Variant] = [.string(server.url("/0")), .dictionary(running.options())]
        let pipeline = Pipeline()
        for index in 0..<200 {
            let (url, options) = (server.url("/\(index % 3)"), running.options())
            await pipeline.start { "\(Answer(try await running.client.call(Manager.fetch, (url, options))))" }
        }
        // This caller leaves while fifty of its calls wait, half of them on shared transfers.
        await onThread {
            let caller = RawCaller(bus)
            for _ in 0..<25 {
                caller.call(BusName.managerPath.value, Manager.interface, "Fetch", dying)
                caller.call(BusName.managerPath.value, Manager.interface, "Fetch", shared)
            }
            caller.flush()
            for _ in 0..<3000 where server.requests.count < 4 { poll(nil, 0, 20) }
        }
        #expect(await server.waitForRequests(4))
        #expect(try await running.client.get(Manager.active) == 4)  // behind this answer, the service has the 200 calls
        gate.open()
        let answers = await pipeline.answers(200).compactMap { $0 }
        #expect(answers.count == 200)
        #expect(Set(answers) == Set((0..<3).map { "\(Answer(.newData, running.file("\($0)")))" }))
        #expect(await eventually { running.world.files == ["0", "1", "2", "3"] })
        #expect(server.requests.count == 4)
        #expect(running.daemon.isRunning)
    }

    @Test func `of a connection on which 256 wait already is refused`() async throws {
        let running = try await Running.start()
        let gate = Gate()
        let server = ScriptedServer { _, reply in
            gate.wait()
            reply.respond(200, text: "x")
        }
        await withTaskGroup(of: String.self) { group in
            for _ in 0..<260 {
                group.addTask {
                    do { return try await running.get(server.url("/a")).outcome } catch { return (error as? DBusError)?.name ?? "\(error)" }
                }
            }
            // Refused calls are answered at once.
            for _ in 0..<4 { #expect(await group.next() == todokuError("LimitExceeded")) }
            gate.open()
            for _ in 0..<256 { #expect(await group.next() == "new-data") }
        }
        #expect(server.requests.count == 1)
        #expect(try await running.get(server.url("/a")).outcome == "no-data")
    }

    @Test func `with a token is answered again as it was`() async throws {
        let running = try await Running.start()
        let shelf = Shelf()
        let server = ScriptedServer { request, reply in shelf.serve(request, reply) { "\"\($0)\"" } }
        let options: [String: Variant] = ["app": .string("org.example.App"), "token": .string("t")]
        for _ in 0..<2 { #expect(try await running.get(server.url("/a"), options) == Answer(.newData, running.file("a"))) }
        #expect(server.requests.count == 1)
        #expect(await thrown { try await running.get(server.url("/b"), options) }?.name == todokuError("AlreadyExists"))
        let elsewhere = options.merging(["directory": .string(running.world.bus.folder.makeFolder("other"))]) { $1 }
        #expect(await thrown { try await running.get(server.url("/a"), elsewhere) }?.name == todokuError("AlreadyExists"))
        // A download with a token stays on the list when the Fetch is repeated.
        #expect(try await running.get(server.url("/a"), ["app": .string("org.example.App")]) == Answer(.noData, running.file("a")))
        #expect(try await running.client.list().contains(BusName.path(app: "org.example.App", token: "t")))
        #expect(try await running.client.list().count == 2)
    }

    /// As on a disk that is unplugged after the first call.
    @Test func `with a token is answered again though its folder is gone, and so is a Download`() async throws {
        let running = try await Running.start()
        let server = ScriptedServer { _, reply in reply.respond(200, text: "x") }
        let folder = running.world.bus.folder.makeFolder("disk")
        func options(_ token: String, _ directory: String) -> [String: Variant] {
            ["app": .string("org.example.App"), "token": .string(token), "directory": .string(directory)]
        }
        let held = Answer(.newData, "\(folder)/a")
        #expect(try await running.get(server.url("/a"), options("fetch", folder)) == held)
        let waiting = try await running.download(server.url("/b"), options("download", folder).merging(["start": .bool(false)]) { $1 })
        #expect(rename(folder, running.world.bus.folder("away")) == 0)
        for directory in [folder, "\(folder)/./"] {
            #expect(try await running.get(server.url("/a"), options("fetch", directory)) == held)
            #expect(try await running.download(server.url("/b"), options("download", directory)) == waiting)
        }
        // Any other call is refused.
        for token in ["fetch", "download", "new"] {
            let error = await thrown { try await running.get(server.url("/c"), options(token, folder)) }
            #expect(error?.name == todokuError("InvalidOption"), "\(token): \(error as Any)")
        }
        #expect(server.requests.count == 1)
    }

    // MARK: Wrong servers

    @Test func `that did not ask for a 304 fails with one`() async throws {
        let running = try await Running.start()
        let server = ScriptedServer { _, reply in reply.head(304, ["ETag": "\"1\""]) }
        let error = await thrown { try await running.get(server.url("/a")) }
        #expect(error?.name == todokuError("HttpStatus") && error?.message.contains("304") == true)
        #expect(await eventually { running.world.files == [] })
    }

    @Test func `accepts a 304 with a body, and asks again if it names another tag`() async throws {
        let running = try await Running.start()
        let server = ScriptedServer { request, reply in
            switch (request.path, request.field("If-None-Match")) {
            case (_, nil): reply.respond(200, ["ETag": "\"1\""], text: "file \(request.path)")
            case ("/body", _):
                reply.respond(304, ["ETag": "\"1\""], text: "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")
                reply.close()
            default: reply.head(304, ["ETag": "\"2\""])
            }
        }
        for path in ["/body", "/other"] {
            let file = running.file(String(path.dropFirst()))
            #expect(try await running.get(server.url(path)) == Answer(.newData, file))
            #expect(try await running.get(server.url(path)) == Answer(.noData, file))
            #expect(readFile(file) == Array("file \(path)".utf8))
        }
        // The 304 about another file was followed by a request without conditions, which brought the same bytes.
        #expect(server.requests.map { $0.field("If-None-Match") != nil } == [false, true, false, true, false])
        #expect(await eventually { running.world.files == ["body", "other"] })
    }

    @Test func `does not believe a 304 about a copy that was changed while the server thought`() async throws {
        let running = try await Running.start()
        let file = running.file("a")
        let server = ScriptedServer { request, reply in
            guard request.field("If-None-Match") == nil else {
                truncate(file, 3)
                return reply.head(304, ["ETag": "\"1\""])
            }
            reply.respond(200, ["ETag": "\"1\""], text: "hello")
        }
        #expect(try await running.get(server.url("/a")) == Answer(.newData, file))
        #expect(try await running.get(server.url("/a")) == Answer(.newData, running.file("a (1)")))
        #expect(server.requests.map { $0.field("If-None-Match") } == [nil, "\"1\"", nil])
        #expect(running.world.bytes("a (1)") == Array("hello".utf8))
        #expect(try await running.client.get(Download.attempts, at: try #require(try await running.client.list().first)) == 1)
    }

    @Test func `resumes the bytes of a newer file, without a condition`() async throws {
        let running = try await Running.start()
        let (old, new) = (patternBytes(2_000_000), patternBytes(2_500_000, seed: 2))
        let server = ScriptedServer { request, reply in
            switch request.number {
            case 0: reply.serve(old, for: request, entityTag: "\"1\"")
            case 1:
                reply.head(200, ["ETag": "\"2\"", "Accept-Ranges": "bytes"], length: new.count)
                reply.send(new[..<1_500_000])
                reply.close()
            default: reply.serve(new, for: request, entityTag: "\"2\"")
            }
        }
        for file in [old, new] {
            #expect(try await running.get(server.url("/a"), ["if-exists": .string("replace")]) == Answer(.newData, running.file("a")))
            #expect(running.world.bytes("a") == file)
        }
        #expect(server.requests.map { $0.field("If-None-Match") } == [nil, "\"1\"", nil])
        #expect(server.requests[2].range?.first == 1_500_000 && server.requests[2].field("If-Range") == "\"2\"")
        // The next conditional request has the validator that tied the pieces together.
        _ = try await running.get(server.url("/a"), ["if-exists": .string("replace")])
        #expect(server.requests.last?.field("If-None-Match") == "\"2\"")
    }

    @Test func `tells a validator to the URL that gave it only`() async throws {
        let running = try await Running.start()
        let shelf = Shelf()
        let storage = ScriptedServer { request, reply in shelf.serve(request, reply) { "\"\($0)\"" } }
        let target = Shelf { _ in [] }
        let server = ScriptedServer { request, reply in
            switch target.version {
            case 1: reply.respond(302, ["Location": storage.url("/one")])
            case 2: reply.respond(302, ["Location": storage.url("/two")])
            default: reply.respond(200, ["ETag": "\"1\""], text: "moved")
            }
        }
        let options: [String: Variant] = ["filename": .string("f")]
        #expect(try await running.get(server.url("/a"), options) == Answer(.newData, running.file("f")))
        #expect(try await running.get(server.url("/a"), options) == Answer(.noData, running.file("f")))
        #expect(storage.requests[1].field("If-None-Match") == "\"1\"")
        // Another URL may have the same entity tag by chance.
        target.change()
        #expect(try await running.get(server.url("/a"), options) == Answer(.noData, running.file("f")))
        #expect(storage.requests[2].field("If-None-Match") == nil)
        target.change()
        #expect(try await running.get(server.url("/a"), options) == Answer(.newData, running.file("f (1)")))
        #expect(server.requests.allSatisfy { $0.field("If-None-Match") == nil })
        #expect(try await running.get(server.url("/a"), options) == Answer(.noData, running.file("f (1)")))
        #expect(server.requests.last?.field("If-None-Match") == "\"1\"")
    }

    // MARK: Options

    @Test func `is unconditional where only-if-changed is false`() async throws {
        let running = try await Running.start()
        let shelf = Shelf()
        let server = ScriptedServer { request, reply in shelf.serve(request, reply) { "\"\($0)\"" } }
        let always: [String: Variant] = ["only-if-changed": .bool(false)]
        for name in ["a", "a (1)"] { #expect(try await running.get(server.url("/a"), always) == Answer(.newData, running.file(name))) }
        #expect(server.requests.allSatisfy { $0.field("If-None-Match") == nil })
        // The file that this Fetch wrote is the cached copy for conditional calls.
        #expect(try await running.get(server.url("/a")) == Answer(.noData, running.file("a (1)")))
        #expect(server.requests.last?.field("If-None-Match") == "\"1\"")
    }

    @Test func `has its condition from what Download with only-if-changed wrote, and the other way round`() async throws {
        let running = try await Running.start()
        let shelf = Shelf()
        let server = ScriptedServer { request, reply in shelf.serve(request, reply) { "\"\($0)\"" } }
        let asking: [String: Variant] = ["only-if-changed": .bool(true)]
        #expect(try await running.fetch(server.url("/a")) == running.file("a"))  // a plain Download: makes no cached copy
        #expect(try await running.fetch(server.url("/a"), asking) == running.file("a (1)"))
        #expect(try await running.fetch(server.url("/a"), asking) == running.file("a (1)"))
        #expect(try await running.get(server.url("/a")) == Answer(.noData, running.file("a (1)")))
        #expect(server.requests.map { $0.field("If-None-Match") } == [nil, nil, "\"1\"", "\"1\""])
        // Each is its own download, and stays on the list.
        #expect(try await running.client.list().count == 4)
    }

    @Test func `uses the copy only if it meets the options`() async throws {
        let running = try await Running.start()
        let file = Array("123456789".utf8)
        let server = ScriptedServer { request, reply in
            if request.field("If-None-Match") == "\"1\"" { return reply.head(304) }
            reply.respond(200, ["ETag": "\"1\"", "Content-Type": "text/plain"], body: file)
        }
        let url = server.url("/a")
        #expect(try await running.get(url) == Answer(.newData, running.file("a")))
        #expect(try await running.get(url, ["size": .uint64(9), "expect-type": .string("text/*")]) == Answer(.noData, running.file("a")))
        #expect(server.requests.count == 2)
        #expect(await thrown { try await running.get(url, ["size": .uint64(8)]) }?.name == todokuError("SizeMismatch"))
        #expect(await thrown { try await running.get(url, ["max-size": .uint64(8)]) }?.name == todokuError("TooLarge"))
        #expect(await thrown { try await running.get(url, ["expect-type": .string("image/*")]) }?.name == todokuError("TypeMismatch"))
        let wrong = ["checksum": Variant.string("md5:" + String(repeating: "0", count: 32))]
        #expect(await thrown { try await running.get(url, wrong) }?.name == todokuError("ChecksumMismatch"))
        let right = ["checksum": Variant.string("md5:25f9e794323b453885f5181f1b624d0b")]
        #expect(try await running.get(url, right) == Answer(.noData, running.file("a")))
        #expect(server.requests[3...6].allSatisfy { $0.field("If-None-Match") == nil })
        // From here on, the copy is known to match that checksum.
        #expect(try await running.get(url, right) == Answer(.noData, running.file("a")))
        #expect(server.requests.last?.field("If-None-Match") == "\"1\"")
        #expect(await eventually { running.world.files == ["a"] })
    }

    @Test func `under skip and fail`() async throws {
        let running = try await Running.start()
        let shelf = Shelf()
        let server = ScriptedServer { request, reply in shelf.serve(request, reply) { "\"\($0)\"" } }
        let fail: [String: Variant] = ["if-exists": .string("fail"), "filename": .string("a")]
        let skip: [String: Variant] = ["if-exists": .string("skip"), "filename": .string("a")]
        #expect(try await running.get(server.url("/a"), fail) == Answer(.newData, running.file("a")))
        #expect(try await running.get(server.url("/a"), fail) == Answer(.noData, running.file("a")))
        #expect(server.requests.count == 2)
        #expect(try await running.get(server.url("/a"), skip) == Answer(.noData, running.file("a")))
        #expect(server.requests.count == 2)
        shelf.change()
        #expect(await thrown { try await running.get(server.url("/a"), fail) }?.name == todokuError("AlreadyExists"))
        #expect(await eventually { running.world.files == ["a"] })
    }

    // MARK: Kills

    @Test func `that a kill interrupted is joined by the next`() async throws {
        let world = await ServiceWorld()
        let client = try await world.client()
        var daemon = await world.start()
        let gate = Gate()
        let body = patternBytes(3_000_000)
        let server = ScriptedServer { request, reply in
            guard request.number == 0 else {
                gate.wait()
                return reply.serve(body, for: request, entityTag: "\"1\"")
            }
            reply.head(200, ["ETag": "\"1\"", "Accept-Ranges": "bytes"], length: body.count)
            reply.send(body[..<2_000_000])
            gate.wait()
        }
        let options = patient(["directory": .string(world.folder), "notify": .string("never")])
        let url = server.url("/a")
        async let lost = thrown { try await client.call(Manager.fetch, (url, options)) }
        #expect(await client.signals.until { $0.contains { ($0.progress?.received ?? 0) >= 1_500_000 } })
        await world.kill(daemon)
        let error = await lost
        #expect(error?.name == "org.freedesktop.DBus.Error.NoReply")
        daemon = await world.start()
        #expect(await server.waitForRequests(2))
        let pipeline = Pipeline()
        for _ in 0..<2 { await pipeline.start { "\(Answer(try await client.call(Manager.fetch, (url, options))))" } }
        #expect(try await client.list().count == 1)  // behind this answer, the service has both calls
        gate.open()
        let joined = "\(Answer(.newData, "\(world.folder)/a"))"
        #expect(await pipeline.answers(2) == [joined, joined])
        #expect(server.requests.count == 2 && server.requests[1].range != nil)
        #expect(world.bytes("a") == body)
        #expect(try await Answer(client.call(Manager.fetch, (url, options))).outcome == "no-data")
    }

    /// Killed at any moment, the service says no-data only if the caller has the server's whole file.
    @Test func `never says no-data of what is not there, whenever it is killed`() async throws {
        let world = await ServiceWorld(isSmall: false)
        let client = try await world.client()
        var daemon = await world.start()
        let shelf = Shelf { patternBytes(1_200_000, seed: UInt64($0)) }
        let server = ScriptedServer { request, reply in shelf.serve(request, reply) { "\"\($0)\"" } }
        let options: [String: Variant] = [
            "directory": .string(world.folder), "notify": .string("never"), "if-exists": .string("replace"),
        ]
        let url = server.url("/a")
        for round in 0..<12 {
            if round % 3 != 2 { shelf.change() }
            let requests = server.requests.count
            async let call = thrown { try await client.call(Manager.fetch, (url, options)) }
            #expect(await server.waitForRequests(requests + 1))
            pause: for step in 0..<round {
                // Choose moments from the request until after the end, however fast the machine is.
                if world.files.contains("a"), step % 4 == 3 { break pause }
                await ServiceTests.pause(milliseconds: step)
            }
            await world.kill(daemon)
            _ = await call
            daemon = await world.start()
            let answer = Answer(try await client.call(Manager.fetch, (url, options)))
            #expect(answer.path == "\(world.folder)/a")
            #expect(readFile(answer.path) == shelf.file, "round \(round): \(answer)")
        }
        #expect(await eventually { world.files == ["a"] })
    }
}
