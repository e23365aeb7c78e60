internal import DBus
internal import DownloadModel
internal import DownloaderInterface
internal import EventLoop
internal import Glibc
internal import TestSupport
internal import Testing

@Suite(.timeLimit(.minutes(10))) struct `A number at the end of its type` {
    @Test(arguments: [UInt32.max, UInt32.max - 1, 0])
    func `as MaxActive and MaxPerHost stops no redirect, also after a restart`(most: UInt32) async throws {
        let world = await ServiceWorld()
        let client = try await world.client()
        var daemon = await world.start()
        let server = ScriptedServer { request, reply in
            if request.path == "/moved" { return reply.respond(302, ["Location": "/file.bin"]) }
            reply.respond(200, text: "whole")
        }
        try await client.set(Manager.maxActive, most)
        try await client.set(Manager.maxPerHost, most)
        let options: [String: Variant] = ["directory": .string(world.folder), "notify": .string("never")]
        for _ in 0..<2 {
            let paths = [
                try await client.download(server.url("/moved"), options), try await client.download(server.url("/moved"), options),
            ]
            for path in paths { #expect(readFile(try await client.wait(path)) == Array("whole".utf8)) }
            #expect(try await client.get(Manager.maxActive) == most)
            #expect(await world.stop(daemon).status == 0)
            daemon = await world.start()
        }
    }

    @Test func `in every numeric option is taken or refused, and the service lives`() async throws {
        let running = try await Running.start()
        let server = ScriptedServer { request, reply in
            if request.path == "/moved" { return reply.respond(302, ["Location": "/file.bin"]) }
            if request.path == "/busy" { return reply.respond(503, ["Retry-After": "18446744073709551615"]) }
            reply.respond(200, text: "whole")
        }
        let options: [(String, [Variant])] = [
            ("size", [.uint64(.max), .uint64(1 << 63)]), ("max-size", [.uint64(.max), .uint64(1 << 63)]),
            ("speed-limit", [.uint64(.max), .uint64(1 << 63)]), ("priority", [.int32(.max), .int32(.min)]),
            ("not-before", [.uint64(.max), .uint64(1 << 63)]), ("deadline", [.uint64(.max), .uint64(1 << 63)]),
            ("connections", [.uint32(0), .uint32(16)]),
            ("stall-timeout", [.uint32(.max)]), ("retries", [.uint32(.max)]), ("request-interval", [.uint32(.max)]),
            ("notify-delay", [.uint32(.max)]),
        ]
        var begun = 0
        for (key, values) in options {
            for value in values {
                for path in ["/moved", "/busy", "/file.bin"] {
                    guard let download = try? await running.download(server.url(path), [key: value]) else { continue }
                    begun += 1
                    // It may have ended meanwhile.
                    let refusal = await thrown { try await running.client.call(Download.moveTo, at: download, .max) }
                    #expect(refusal == nil || refusal?.name == todokuError("InvalidState"), "\(refusal as Any)")
                    _ = try await running.client.all(download)
                }
            }
        }
        #expect(begun >= 30)
        try await running.client.set(Manager.speedLimit, UInt64.max)
        try await running.client.call(
            Manager.setHostRule, ("127.0.0.1", ["connections": .uint32(.max), "request-interval": .uint32(.max)]))
        _ = try await running.fetch(server.otherURL("/moved"))
        _ = try await running.client.call(Manager.describe, ([:], []))
        #expect(running.daemon.isRunning)
        // The saved values are read again.
        let exit = await running.world.stop(running.daemon)
        #expect(exit.status == 0, "\(exit)")
        let again = await running.world.start()
        #expect(try await running.client.list().count == begun + 1)
        #expect(again.isRunning)
    }

    /// The greatest possible position was once taken for no position. Then moving the only download looked for a position before the first.
    @Test(arguments: [0, 5, .max] as [UInt32]) func `in a row of the queue stops no move`(place: UInt32) async throws {
        let running = try await Running.start()
        let server = ScriptedServer { _, reply in reply.respond(200, text: "whole") }
        _ = try await running.download(server.url("/file.bin"), ["start": .bool(false)])
        #expect(await running.world.stop(running.daemon).status == 0)
        let changed = await running.world.run(
            "sqlite3", "\(running.world.state)/todoku.db", "UPDATE download SET number = -1, position = \(Int64.max)")
        #expect(changed.status == 0, "\(changed.errors)")
        let daemon = await running.world.start()
        let path = ObjectPath("\(BusName.downloadsPath)/\(UInt64.max)")
        #expect(try await running.client.list() == [path])
        try await running.client.call(Download.moveTo, at: path, place)
        #expect(try await running.client.get(Download.state, at: path) == "paused")
        #expect(daemon.isRunning)
    }
}
