internal import DBus
internal import DownloaderInterface
internal import TestSupport
internal import Testing

@Suite struct `A pause that crosses the last bytes` {
    /// Before the fix, 8 of 90 files were named `download` or `download (1)`.
    @Test func `keeps each file's name, over kill -9 too`() async throws {
        let count = 90
        let gate = Gate()
        defer { gate.open() }
        // Bodies of different sizes, so that the pause comes before, with, or after the last bytes. Where the test is always late, it comes
        // after them; so the last download waits for it.
        let server = ScriptedServer { request, reply in
            if request.path.hasSuffix("\(99 + count)") { gate.wait() }
            let body = patternBytes(1 + request.number % 9 * 40_000)
            let isNamed = request.path.hasPrefix("/said")
            reply.respond(
                200, isNamed ? ["Content-Disposition": "attachment; filename=by-server\(request.path.suffix(3))"] : [:], body: body)
        }
        let world = await ServiceWorld()
        let client = try await world.client()
        let daemon = await world.start()
        var expected: [String] = []
        var paths: [ObjectPath] = []
        for number in 100..<100 + count {
            let url = server.url("/\(["said", "silent", "wanted"][number % 3])\(number)")
            var options: [String: Variant] = ["directory": .string(world.folder), "notify": .string("never")]
            if number % 3 == 2 { options["filename"] = .string("by-option\(number)") }
            expected.append(["by-server", "silent", "by-option"][number % 3] + "\(number)")
            let path = try await client.download(url, options)
            #expect(await server.waitForRequests(number - 99))
            // The download may have ended already.
            if let error = await thrown({ try await client.pause(path) }) { #expect(error.name == todokuError("InvalidState")) }
            paths.append(path)
        }
        await world.kill(daemon)
        gate.open()
        _ = await world.start()
        var resumed = 0
        for path in paths where try await client.get(Download.state, at: path) == "paused" {
            try await client.resume(path)
            resumed += 1
        }
        #expect(resumed > 0)
        for path in paths { _ = try await client.wait(path) }
        #expect(world.files.sorted() == expected.sorted())
    }
}
