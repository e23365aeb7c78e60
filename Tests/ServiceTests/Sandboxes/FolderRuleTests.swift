internal import DBus
internal import DownloaderInterface
internal import EventLoop
internal import Glibc
internal import TestSupport
internal import Testing

@Suite struct `A folder that was moved while its download waited` {
    @Test func `and is now a link to a hidden folder gets no file, and the download ends with the reason`() async throws {
        let running = try await Running.start()
        let (world, client) = (running.world, running.client)
        let hidden = world.bus.folder.makeFolder(".config")
        let (folder, away) = (world.folder, world.bus.folder("away"))
        let server = ScriptedServer { request, reply in
            guard request.number == 0 else { return reply.respond(200, text: "[Desktop Entry]") }
            precondition(rename(folder, away) == 0 && symlink(hidden, folder) == 0)
            reply.respond(503)
        }
        let path = try await running.download(server.url("/a.desktop"))
        let error = await thrown { try await client.wait(path) }
        #expect(error?.name == todokuError("PermissionDenied"))
        #expect(
            error?.message.contains("Todoku does not write into the folder \(folder): it is at \(hidden) now, which is hidden.") == true)
        #expect(server.requests.count == 1 && listFolder(hidden) == [])
        #expect(unlink(folder) == 0 && rename(away, folder) == 0)
        try await client.retry(path)
        #expect(try await client.wait(path) == "\(folder)/a.desktop")
    }

    @Test func `ends its wait for the folder`() async throws {
        let running = try await Running.start()
        let (world, client) = (running.world, running.client)
        let hidden = world.bus.folder.makeFolder(".config")
        let server = ScriptedServer { _, reply in reply.respond(200, text: "x") }
        let path = try await running.download(server.url("/a"), ["start": .bool(false)])
        #expect(rename(world.folder, world.bus.folder("away")) == 0)
        try await client.call(Download.resume, at: path, ())
        #expect(await client.signals.until { $0.contains { $0.changed?["WaitReason"] == .string("destination") } })
        #expect(symlink(hidden, world.folder) == 0)
        #expect(await thrown { try await client.wait(path) }?.name == todokuError("PermissionDenied"))
        #expect(server.requests.count == 0 && listFolder(hidden) == [])
    }
}

@Suite struct `The option if-exists replace` {
    @Test func `without a name takes the URL's own, never one that the server says, and keeps the mode of what was there`() async throws {
        let running = try await Running.start()
        let server = ScriptedServer { _, reply in
            reply.respond(200, ["Content-Disposition": "attachment; filename=\"precious.txt\""], text: "new")
        }
        writeFile("\(running.world.folder)/precious.txt", "precious".utf8)
        writeFile("\(running.world.folder)/feed.xml", "old".utf8, mode: 0o600)
        let path = try await running.fetch(server.url("/feed.xml?key=1"), ["if-exists": .string("replace")])
        #expect(path == "\(running.world.folder)/feed.xml")
        #expect(running.world.bytes("precious.txt") == Array("precious".utf8) && running.world.bytes("feed.xml") == Array("new".utf8))
        #expect(mode(of: path) == 0o600)
    }
}

@Suite struct `A folder that two services write into` {
    private let body = patternBytes(400_000)

    /// Sends half of the body, and the rest once `gate` is open.
    private func server(_ gate: Gate, _ body: [UInt8]) -> ScriptedServer {
        ScriptedServer { request, reply in
            reply.head(200, ["ETag": "\"v1\""], length: body.count)
            reply.send(body[..<(body.count / 2)])
            gate.wait()
            reply.send(body[(body.count / 2)...])
        }
    }

    @Test func `has a part file of each for the same number, and neither takes the other's`() async throws {
        let (one, two) = (try await Running.start(), try await Running.start())
        let gate = Gate()
        defer { gate.open() }
        let (first, second) = (server(gate, body), server(gate, body.reversed()))
        let folder: [String: Variant] = ["directory": .string(one.world.folder)]
        let paths = [try await one.download(first.url("/a"), folder), try await two.download(second.url("/b"), folder)]
        #expect(paths[0].value.hasSuffix("/1") && paths[1] == paths[0])
        for running in [one, two] { #expect(await running.client.signals.until { $0.contains { $0.progress?.received == 200_000 } }) }
        #expect(await eventually { one.world.files == [one.world.partName(1), two.world.partName(1)].sorted() })
        #expect(one.world.partName(1) != two.world.partName(1))
        gate.open()
        #expect(readFile(try await one.client.wait(paths[0])) == body)
        #expect(readFile(try await two.client.wait(paths[1])) == body.reversed())
        #expect(first.requests.count == 1 && second.requests.count == 1 && one.world.files == ["a", "b"])
    }

    @Test func `keeps the names of part files that an earlier version began, which knew no id`() async throws {
        let world = await ServiceWorld()
        let client = try await world.client()
        var daemon = await world.start()
        _ = await world.stop(daemon)
        writeFile("\(world.state)/instance", "0badcafe 2\n".utf8)
        daemon = await world.start()
        let gate = Gate()
        defer { gate.open() }
        let server = server(gate, body)
        for name in ["a", "b"] {
            _ = try await client.download(server.url("/\(name)"), ["directory": .string(world.folder), "notify": .string("never")])
        }
        #expect(await eventually { world.files == [".todoku-0badcafe-2.part", ".todoku-1.part"] })
    }
}
