internal import DBus
internal import DownloaderInterface
internal import EventLoop
internal import Glibc
internal import TestSupport
internal import Testing

extension Client {
    /// Returns once all that the service has decided so far is on disk: a change is answered only then. What a property says may not be on
    /// disk yet.
    func waitUntilSaved(_ path: ObjectPath) async throws { try await set(Download.priority, at: path, 1) }
}

/// The option `mirrors` and the property `Sources`, through the service.
@Suite(.timeLimit(.minutes(15))) struct `Mirrors` {
    private static let file = patternBytes(3_000_000)
    private static let other = patternBytes(3_000_000, seed: 9)

    private func checksum(_ bytes: [UInt8]) async -> Variant { .string("sha256:" + hexadecimal(await digest(of: bytes))) }

    /// Serves the first bytes of `file` to the first request, and waits.
    private func held(_ file: [UInt8], _ count: Int, _ gate: Gate, entityTag: String = "\"v1\"") -> ScriptedServer {
        ScriptedServer { request, reply in
            guard request.number == 0 else { return reply.serve(file, for: request, entityTag: entityTag) }
            reply.head(200, ["ETag": entityTag, "Accept-Ranges": "bytes"], length: file.count)
            reply.send(file[..<count])
            gate.wait()
        }
    }

    private func sources(_ path: ObjectPath, _ client: Client) async throws -> [SourceStatus] {
        try await client.get(Download.sources, at: path).sources
    }

    @Test func `bring the file if the URL fails, and Sources says so, also over a restart`() async throws {
        let (main, mirror) = (
            ScriptedServer { _, reply in reply.respond(404) },
            ScriptedServer { request, reply in reply.serve(Self.file, for: request, entityTag: "\"v1\"") }
        )
        let world = await ServiceWorld()
        let client = try await world.client()
        let daemon = await world.start()
        let options: [String: Variant] = [
            "directory": .string(world.folder), "notify": .string("never"), "mirrors": .strings([mirror.url("/copy?secret=1")]),
        ]
        let path = try await client.download(main.url("/a.bin"), options)
        #expect(readFile(try await client.wait(path)) == Self.file && world.files == ["a.bin"])
        let after = try await sources(path, client)
        #expect(after.map(\.url) == [main.url("/a.bin"), mirror.url("/copy")])
        #expect(after.map(\.received) == [0, 3_000_000] && after.map(\.left) == ["http-status", nil])
        #expect(try await client.get(Download.url, at: path) == mirror.url("/copy"), "where the bytes came from")
        #expect(try await client.get(Download.attempts, at: path) == 1)
        let told = await client.signals.of(path).compactMap { $0.changed?["Sources"] }
        #expect(told.last == SourceList(after).variant)
        // Another program sees the same.
        let shown = await world.gdbus(path.value, "org.freedesktop.DBus.Properties.Get", Download.interface, "Sources")
        #expect(shown.output.contains("'left': <'http-status'>") && shown.output.contains("'received': <uint64 3000000>"), "\(shown)")
        #expect(await world.stop(daemon).isClean)
        _ = await world.start()
        #expect(try await sources(path, client) == after)
        // A download without mirrors has no list.
        let plain = try await client.download(mirror.url("/b.bin"), ["directory": .string(world.folder), "notify": .string("never")])
        _ = try await client.wait(plain)
        #expect(try await sources(plain, client) == [])
    }

    /// Both servers send the same validator for different files.
    @Test(arguments: [true, false]) func `keep the bytes of one source apart over kill -9, unless a checksum proves the file`(
        hasChecksum: Bool
    ) async throws {
        let (gate, downtime) = (Gate(), Gate())
        let main = ScriptedServer { request, reply in
            if downtime.isOpen { reply.respond(404) } else { reply.respond(503) }
        }
        let mirror = held(Self.file, 1_500_000, gate)
        let third = ScriptedServer { request, reply in
            reply.serve(hasChecksum ? Self.file : Self.other, for: request, entityTag: "\"v1\"")
        }
        let world = await ServiceWorld()
        let client = try await world.client()
        let daemon = await world.start()
        var options: [String: Variant] = [
            "directory": .string(world.folder), "notify": .string("never"), "mirrors": .strings([mirror.url("/m"), third.url("/t")]),
            "connections": .uint32(1),
        ]
        if hasChecksum { options["checksum"] = await checksum(Self.file) }
        let path = try await client.download(main.url("/a.bin"), options)
        #expect(await client.signals.until { $0.contains { $0.progress?.received == 1_500_000 } })
        await world.kill(daemon)
        downtime.open()
        _ = await world.start()
        #expect(readFile(try await client.wait(path)) == Self.file)
        gate.open()
        // The source of the held bytes is asked first after the restart.
        #expect(mirror.requests.map { $0.range?.first } == [nil, 1_500_000] && third.requests.isEmpty)
        #expect(await client.signals.of(path).compactMap(\.resumedAt).map(\.offset) == [1_500_000])
    }

    @Test func `that the server names are used with find-mirrors, and known after kill -9`() async throws {
        let gate = Gate()
        let mirror = ScriptedServer { request, reply in
            guard request.number == 0 else { return reply.serve(Self.file, for: request) }
            gate.wait()
        }
        let main = ScriptedServer { request, reply in
            guard request.number == 0 else { return reply.respond(404) }
            let fields: KeyValuePairs = ["ETag": "\"v1\"", "Link": "<\(mirror.url("/m"))>; rel=duplicate", "Accept-Ranges": "bytes"]
            reply.head(200, fields, length: Self.file.count)
            reply.send(Self.file[..<1_500_000])
            reply.close()
        }
        let world = await ServiceWorld()
        let client = try await world.client()
        let daemon = await world.start()
        let path = try await client.download(
            main.url("/a.bin"),
            [
                "directory": .string(world.folder), "notify": .string("never"), "find-mirrors": .bool(true), "connections": .uint32(1),
                "checksum": await checksum(Self.file),
            ])
        // The mirror is asked for the rest, and says nothing.
        #expect(await eventually { mirror.requests.count == 1 })
        #expect(await eventually { (try? await sources(path, client).map(\.url)) == [main.url("/a.bin"), mirror.url("/m")] })
        try await client.waitUntilSaved(path)
        await world.kill(daemon)
        _ = await world.start()
        #expect(try await sources(path, client).map(\.url) == [main.url("/a.bin"), mirror.url("/m")])
        #expect(readFile(try await client.wait(path)) == Self.file)
        gate.open()
        #expect(mirror.requests.map { $0.range?.first } == [1_500_000, 1_500_000])
        // Without something that proves the file, a server may name what it likes.
        let plain = try await client.download(
            main.url("/b.bin"), ["directory": .string(world.folder), "notify": .string("never"), "find-mirrors": .bool(true)])
        #expect(await thrown { try await client.wait(plain) }?.name == todokuError("HttpStatus"))
    }

    @Test func `begin anew when the source of the held bytes is gone`() async throws {
        let gate = Gate()
        let main = ScriptedServer { request, reply in
            guard request.number == 0 else { return reply.respond(410) }
            reply.head(200, ["ETag": "\"v1\""], length: Self.other.count)
            reply.send(Self.other[..<1_500_000])
            gate.wait()
        }
        let mirror = ScriptedServer { request, reply in reply.serve(Self.file, for: request, entityTag: "\"v1\"") }
        let world = await ServiceWorld()
        let client = try await world.client()
        let daemon = await world.start()
        let path = try await client.download(
            main.url("/a.bin"),
            ["directory": .string(world.folder), "notify": .string("never"), "mirrors": .strings([mirror.url("/m")])])
        #expect(await client.signals.until { $0.contains { $0.progress?.received == 1_500_000 } })
        await world.kill(daemon)
        _ = await world.start()
        #expect(readFile(try await client.wait(path)) == Self.file)
        gate.open()
        #expect(mirror.requests.map { $0.range?.first } == [nil])
        #expect(try await sources(path, client).map(\.left) == ["http-status", nil])
    }

    @Test func `fetch parts at the same time, and go on from all of them after kill -9`() async throws {
        #expect(try await inTime { try await fetchParts() }, "each time, the two servers did not bring 600,000 bytes each")
    }

    /// - Returns: false if the parts did not come at the same time: the thread of the main server may have been silent for three seconds.
    ///   The mirror is then asked for all missing bytes.
    private func fetchParts() async throws -> Bool {
        let (gate, joined) = (Gate(), Gate())
        defer { for held in [joined, gate] { held.open() } }
        @Sendable func serve(_ request: ScriptedServer.Request, _ reply: TestSupport.Reply, _ tag: String) {
            guard request.number == 0 else { return reply.serve(Self.file, for: request, entityTag: tag) }
            let (first, last) = (request.range?.first ?? 0, request.range?.last ?? Self.file.count - 1)
            let isPart = request.range != nil
            reply.head(
                isPart ? 206 : 200, ["ETag": tag, "Content-Range": "bytes \(first)-\(last)/\(Self.file.count)"], length: last - first + 1)
            reply.send(Self.file[first..<first + 500_000])
            // If the main server were silent for three seconds before the mirror is asked, the mirror would be asked for all missing bytes.
            reply.send(reply.trickle(Self.file[first + 500_000..<first + 600_000], by: 50, until: joined))
            gate.wait()
        }
        let main = ScriptedServer { request, reply in serve(request, reply, "\"main\"") }
        let mirror = ScriptedServer { request, reply in
            joined.open()
            serve(request, reply, "\"mirror\"")
        }
        let world = await ServiceWorld()
        let client = try await world.client()
        let daemon = await world.start()
        let path = try await client.download(
            main.url("/a.bin"),
            [
                "directory": .string(world.folder), "notify": .string("never"), "mirrors": .strings([mirror.url("/m")]),
                "connections": .uint32(2), "checksum": await checksum(Self.file),
            ])
        let isHeld = await client.signals.until { all in
            all.contains { $0.progress?.received == 1_200_000 }
                && all.contains { seen in
                    guard let told = seen.changed?["Sources"].flatMap({ SourceList($0) })?.sources else { return false }
                    return told.map(\.received) == [600_000, 600_000]
                }
        }
        guard isHeld else { return false }
        await world.kill(daemon)
        _ = await world.start()
        #expect(readFile(try await client.wait(path)) == Self.file)
        gate.open()
        #expect(await client.signals.of(path).compactMap(\.resumedAt).map(\.offset) == [1_200_000])
        #expect(try await client.get(Download.provedBy, at: path) == "checksum")
        let after = try await sources(path, client)
        #expect(after.allSatisfy { $0.left == nil } && after.contains { $0.received > 0 })
        return true
    }

    /// A mixed file that is wrong is fetched from one source alone. The wrong one is found, and never asked again.
    @Test func `with wrong bytes are found, and not asked again, also after a restart`() async throws {
        let (gate, sum) = (Gate(), await checksum(Self.file))
        // The main server has another file of the same size, and loses its connection in the first transfer.
        let main = ScriptedServer { request, reply in
            guard request.number == 0 else { return reply.serve(Self.other, for: request, entityTag: "\"v1\"") }
            reply.head(200, ["ETag": "\"v1\""], length: Self.other.count)
            reply.send(Self.other[..<1_000_000])
            reply.close()
        }
        let mirror = ScriptedServer { request, reply in
            // The first request gets the rest. The second one, for the whole file, waits until the daemon is killed.
            if request.number == 1 { gate.wait() }
            reply.serve(Self.file, for: request, entityTag: "\"v1\"")
        }
        let world = await ServiceWorld()
        let client = try await world.client()
        let daemon = await world.start()
        let path = try await client.download(
            main.url("/a.bin"),
            [
                "directory": .string(world.folder), "notify": .string("never"), "mirrors": .strings([mirror.url("/m")]),
                "connections": .uint32(1), "checksum": sum,
            ])
        #expect(await mirror.waitForRequests(2))
        #expect(await eventually { (try? await sources(path, client).map(\.left)) == ["wrong-bytes", nil] })
        try await client.waitUntilSaved(path)
        // Mixed, then from the main server alone, then from the mirror alone.
        #expect(main.requests.map { $0.range?.first } == [nil, nil])
        #expect(mirror.requests.map { $0.range?.first } == [1_000_000, nil])
        await world.kill(daemon)
        gate.open()
        _ = await world.start()
        #expect(readFile(try await client.wait(path)) == Self.file)
        #expect(main.requests.count == 2, "it is not asked again")
        #expect(try await sources(path, client).map(\.left) == ["wrong-bytes", nil])
    }

    @Test func `with wrong bytes all fail the download, each asked once, and Retry asks them again`() async throws {
        let running = try await Running.start()
        let servers = (0..<3).map { _ in ScriptedServer { request, reply in reply.serve(Self.other, for: request, entityTag: "\"v1\"") } }
        let path = try await running.download(
            servers[0].url("/a"),
            [
                "mirrors": .strings([servers[1].url("/a"), servers[2].url("/a")]), "checksum": await checksum(Self.file),
                "connections": .uint32(1),
            ])
        let error = await thrown { try await running.client.wait(path) }
        #expect(error?.name == todokuError("ChecksumMismatch"))
        #expect(servers.map(\.requests.count) == [1, 1, 1])
        #expect(try await sources(path, running.client).allSatisfy { $0.left == "wrong-bytes" && $0.received == 3_000_000 })
        #expect(await eventually { running.world.files == [] })
        try await running.client.retry(path)
        #expect(await thrown { try await running.client.wait(path) }?.name == todokuError("ChecksumMismatch"))
        #expect(servers.map(\.requests.count) == [2, 2, 2])
    }

    /// The URL announces the file, and dies before its first byte.
    @Test func `that alone have brought wrong bytes are to blame, and not the URL`() async throws {
        let main = ScriptedServer { request, reply in
            guard request.number == 0 else { return reply.serve(Self.file, for: request, entityTag: "\"v1\"") }
            reply.head(200, ["ETag": "\"v1\"", "Accept-Ranges": "bytes"], length: Self.file.count)
            reply.close()
        }
        let mirror = ScriptedServer { request, reply in reply.serve(Self.other, for: request, entityTag: "\"v2\"") }
        let running = try await Running.start()
        let path = try await running.download(
            main.url("/a"),
            ["mirrors": .strings([mirror.url("/a")]), "checksum": await checksum(Self.file), "connections": .uint32(1)])
        #expect(readFile(try await running.client.wait(path)) == Self.file)
        #expect(try await sources(path, running.client).map(\.left) == [nil, "wrong-bytes"])
        #expect(mirror.requests.count == 1)
    }

    /// The URL loses its connection in the first two transfers. Its mirror, at the same server, has another file with the same validator.
    @Test func `of one server are kept apart, too, once a mixed file was wrong`() async throws {
        let server = ScriptedServer { request, reply in
            if request.path == "/b" { return reply.serve(Self.other, for: request, entityTag: "\"v1\"") }
            if request.range != nil { return reply.respond(404) }
            guard request.number < 3 else { return reply.serve(Self.file, for: request, entityTag: "\"v1\"") }
            reply.head(200, ["ETag": "\"v1\"", "Accept-Ranges": "bytes"], length: Self.file.count)
            reply.send(Self.file[..<1_000_000])
            reply.close()
        }
        let running = try await Running.start()
        let path = try await running.download(
            server.url("/a"),
            ["mirrors": .strings([server.url("/b")]), "checksum": await checksum(Self.file), "connections": .uint32(1)])
        #expect(readFile(try await running.client.wait(path)) == Self.file)
        #expect(try await sources(path, running.client).map(\.left) == [nil, "wrong-bytes"], "the right source is not blamed")
        // Mixed; then the URL alone, which cannot go on; then the mirror alone; then the URL alone.
        #expect(server.requests.map(\.path) == ["/a", "/b", "/a", "/a", "/b", "/a"])
        #expect(server.requests.map { $0.range?.first } == [nil, 1_000_000, nil, 1_000_000, nil, nil])
    }

    @Test func `with a digest that the server itself states wrongly give way to the next`() async throws {
        let running = try await Running.start()
        let stated = "sha-256=:\(base64(await digest(of: Self.other))):"
        let main = ScriptedServer { request, reply in reply.serve(Self.file, for: request, fields: ["Repr-Digest": stated]) }
        let mirror = ScriptedServer { request, reply in reply.serve(Self.file, for: request) }
        let path = try await running.download(main.url("/a"), ["mirrors": .strings([mirror.url("/a")])])
        #expect(readFile(try await running.client.wait(path)) == Self.file)
        #expect(try await sources(path, running.client).map(\.left) == ["wrong-bytes", nil])
    }

    @Test func `wait for the rules of their own hosts`() async throws {
        let running = try await Running.start()
        let gate = Gate()
        let busy = ScriptedServer(everywhere: true) { request, reply in
            reply.head(200, length: 10)
            gate.wait()
            reply.send("0123456789")
        }
        let main = ScriptedServer { _, reply in reply.respond(404) }
        try await running.client.call(Manager.setHostRule, ("localhost", ["connections": .uint32(1)]))
        let first = try await running.download(busy.otherURL("/busy"))
        #expect(await busy.waitForRequests(1))
        let second = try await running.download(main.url("/a"), ["mirrors": .strings([busy.otherURL("/mirror")])])
        // Its mirror's host has no place.
        #expect(await running.client.signals.isIn("waiting", second))
        #expect(try await running.client.get(Download.waitReason, at: second) == "host-limit")
        #expect(busy.requests.map(\.path) == ["/busy"])
        gate.open()
        _ = try await running.client.wait(first)
        #expect(readFile(try await running.client.wait(second)) == Array("0123456789".utf8))
    }

    @Test func `keep to the network that the download may use`() async throws {
        let running = try await Running.start()
        let error = await thrown {
            try await running.download("http://example.org/a", ["allow-private": .bool(false), "mirrors": .strings(["http://10.0.0.1/a"])])
        }
        #expect(error?.name == todokuError("NotAllowed") && error?.message.contains("10.0.0.1") == true)
        let many = (0..<33).map { "http://m\($0).example.org/" }
        #expect(await thrown { try await running.download("http://h/", ["mirrors": .strings(many)]) }?.name == todokuError("LimitExceeded"))
        let bad = await thrown { try await running.download("http://h/", ["mirrors": .strings(["http://m/", "ftp://m/"])]) }
        #expect(bad?.name == todokuError("InvalidOption") && bad?.message.hasPrefix("Option mirrors, item 1: ") == true, "\(bad as Any)")
    }
}
