internal import DBus
internal import DownloaderInterface
internal import EventLoop
internal import TestSupport
internal import Testing

/// The option `cookies`, and cookies that servers set, through the service.
@Suite(.timeLimit(.minutes(10))) struct `Cookies of a download` {
    private func line(_ domain: String, _ name: String, _ value: String = "1") -> String {
        "\(domain)\tFALSE\t/\tFALSE\t4102444800\t\(name)\t\(value)"
    }

    /// The cookies of a request, in alphabetical order.
    private func cookies(_ request: ScriptedServer.Request?) -> [String] {
        (request?.field("Cookie") ?? "").split(separator: ";").map { String($0.drop { $0 == " " }) }.sorted()
    }

    @Test func `go to their own hosts along redirects, and no reading call tells them`() async throws {
        let running = try await Running.start()
        let other = ScriptedServer { _, reply in reply.respond(200, text: "here") }
        let there = other.otherURL("/there")
        let server = ScriptedServer { request, reply in
            reply.respond(302, ["Location": request.path == "/a" ? "/b" : there, "Set-Cookie": "set=1"])
        }
        let given = [line("127.0.0.1", "own", "Secret"), line("localhost", "there"), line("example.org", "no")]
        let path = try await running.download(server.url("/a"), ["cookies": .strings(given)])
        #expect(readFile(try await running.client.wait(path)) == Array("here".utf8))
        #expect(server.requests.map { cookies($0) } == [["own=Secret"], ["own=Secret", "set=1"]])
        #expect(other.requests.map { cookies($0) } == [["there=1"]])
        let (properties, url) = (try await running.client.all(path), try await running.client.call(Download.getUrl, at: path, ()))
        #expect(!"\(properties) \(url)".contains("Secret"))
    }

    @Test func `that servers have set last for the retries of this run, and those of the caller for all`() async throws {
        let world = await ServiceWorld()
        let client = try await world.client()
        let daemon = await world.start()
        let gate = Gate()
        let server = ScriptedServer { request, reply in
            switch request.number {
            case 0: reply.respond(302, ["Location": "/file", "Set-Cookie": "set=1; Path=/"])
            case 1: reply.respond(503)
            case 2:
                reply.head(200, length: 10)
                gate.wait()
                reply.close()
            default: reply.respond(200, text: "here")
            }
        }
        defer { gate.open() }
        let options: [String: Variant] = [
            "directory": .string(world.folder), "notify": .string("never"), "cookies": .strings([line("127.0.0.1", "own")]),
        ]
        let path = try await client.download(server.url("/file"), options)
        #expect(await server.waitForRequests(2))
        // The wait ends by itself after a second, which may be over by now.
        #expect(await client.signals.hasBeen("waiting", path))
        try await client.resume(path)
        #expect(await server.waitForRequests(3))
        #expect(cookies(server.requests[2]) == ["own=1", "set=1"], "the retry has the server's cookie")
        await world.kill(daemon)
        gate.open()
        _ = await world.start()
        #expect(readFile(try await client.wait(path)) == Array("here".utf8))
        #expect(cookies(server.requests[3]) == ["own=1"], "a new process has the caller's cookies only")
    }

    @Test func `are replaced by those of a fresh link, and stay without some, whatever its origin`() async throws {
        let running = try await Running.start()
        let server = ScriptedServer { request, reply in
            if request.path == "/fresh" { reply.respond(200, text: "here") } else { reply.respond(403, ["Set-Cookie": "set=1; Path=/"]) }
        }
        let given: [String: Variant] = [
            "renewable": .bool(true), "cookies": .strings([line("127.0.0.1", "own"), line("localhost", "own", "2")]),
        ]
        let links: [(String, [String: Variant], [String])] = [
            (server.url("/fresh"), ["cookies": .strings([line("127.0.0.1", "new")])], ["new=1"]),
            (server.otherURL("/fresh"), [:], ["own=2"]),
        ]
        for (link, options, expected) in links {
            let path = try await running.download(server.url("/old"), given)
            #expect(await running.client.signals.isIn("waiting", path))
            try await running.client.call(Download.replaceUrl, at: path, (link, options))
            _ = try await running.client.wait(path)
            #expect(cookies(server.requests.last) == expected, "\(link)")
        }
    }

    /// The transfer of the old link tells the cookies of its server when it ends, after the fresh link has come.
    @Test func `are replaced by those of a fresh link, too, while the old link sends its file`() async throws {
        let running = try await Running.start()
        let gate = Gate()
        defer { gate.open() }
        let server = ScriptedServer { request, reply in
            if request.path == "/fresh" { return reply.respond(200, text: "here") }
            reply.head(200, ["Set-Cookie": "set=1; Path=/"], length: 10)
            reply.send("12345".utf8)
            gate.wait()
        }
        let path = try await running.download(server.url("/old"), ["cookies": .strings([line("127.0.0.1", "own")])])
        #expect(await eventually { (try? await running.client.all(path))?["Received"]?.uint64 == 5 })
        let new: [String: Variant] = ["cookies": .strings([line("127.0.0.1", "new")])]
        try await running.client.call(Download.replaceUrl, at: path, (server.url("/fresh"), new))
        #expect(readFile(try await running.client.wait(path)) == Array("here".utf8))
        #expect(cookies(server.requests.last) == ["new=1"])
    }

    @Test func `header fields may repeat, and are sent in their order`() async throws {
        let running = try await Running.start()
        let server = ScriptedServer { _, reply in reply.respond(200, text: "here") }
        func pair(_ name: String, _ value: String) -> Variant { .structure([.string(name), .string(value)]) }
        try await running.fetch(
            server.url("/a"),
            [
                "headers": .dictionary([("X-First", "0")]),
                "header-list": .array(of: "(ss)", [pair("X-A", "1"), pair("X-B", "2"), pair("x-a", "3"), pair("X-A", "4")]),
            ])
        let own = server.requests[0].fields.filter { $0.name.lowercased().hasPrefix("x-") }
        #expect(own.map { "\($0.name)=\($0.value)" } == ["X-First=0", "X-A=1", "X-B=2", "x-a=3", "X-A=4"])
    }
}
