internal import DBus
internal import DownloaderInterface
internal import EventLoop
internal import TestSupport
internal import Testing

/// The options `post-data` and `post-type`, through the service.
@Suite(.timeLimit(.minutes(10))) struct `A request with a body` {
    private func bytes(_ text: String) -> Variant { .array(of: "y", text.utf8.map { .byte($0) }) }

    @Test func `is a POST, whose answer is the file`() async throws {
        let running = try await Running.start()
        let server = ScriptedServer { request, reply in reply.respond(200, body: request.body) }
        let options = ["post-data": bytes("{\"a\": 1}"), "post-type": Variant.string("application/json")]
        let named = options.merging(["app": .string("org.example.App"), "token": .string("t")]) { $1 }
        let path = try await running.download(server.url("/query"), named)
        #expect(readFile(try await running.client.wait(path)) == Array("{\"a\": 1}".utf8))
        let request = server.requests[0]
        #expect(request.method == "POST" && request.field("Content-Type") == "application/json")
        // The token still names the same request, and no other.
        #expect(try await running.download(server.url("/query"), named) == path)
        let many = Variant.array(of: "y", [Variant](repeating: .byte(7), count: 1 << 20))
        #expect(readFile(try await running.fetch(server.url("/many"), ["post-data": many]))?.count == 1 << 20)
        let more = Variant.array(of: "y", [Variant](repeating: .byte(7), count: 1 << 20 | 1))
        let error = await thrown { try await running.download(server.url("/more"), ["post-data": more]) }
        #expect(error?.name == todokuError("LimitExceeded") && error?.message.contains("1048576") == true)
        #expect(server.requests.count == 2)
    }

    @Test func `is sent again by Retry only, and takes no fresh link`() async throws {
        let running = try await Running.start()
        let server = ScriptedServer { request, reply in
            if request.number == 0 { reply.respond(503, ["Retry-After": "1"]) } else { reply.respond(200, text: "here") }
        }
        let path = try await running.download(server.url("/a"), ["post-data": bytes("a=b")])
        #expect(await thrown { try await running.client.wait(path) }?.name == todokuError("HttpStatus"))
        let link = await thrown { try await running.client.call(Download.replaceUrl, at: path, (server.url("/b"), [:])) }
        #expect(link?.name == todokuError("InvalidState"))
        try await running.client.retry(path)
        #expect(readFile(try await running.client.wait(path)) == Array("here".utf8))
        #expect(server.requests.map { "\($0.method) \(String(decoding: $0.body, as: UTF8.self))" } == ["POST a=b", "POST a=b"])
    }

    @Test func `that went out before kill -9 is not sent again by the next process`() async throws {
        let world = await ServiceWorld()
        let client = try await world.client()
        let daemon = await world.start()
        let gate = Gate()
        defer { gate.open() }
        let server = ScriptedServer { request, reply in
            if request.number == 0 { return gate.wait() }
            reply.respond(200, text: "here")
        }
        let options: [String: Variant] = ["directory": .string(world.folder), "notify": .string("never"), "post-data": bytes("Secret")]
        let path = try await client.download(server.url("/a"), options)
        #expect(await server.waitForRequests(1))
        await world.kill(daemon)
        _ = await world.start()
        let error = await thrown { try await client.wait(path) }
        #expect(error?.name == todokuError("Interrupted") && server.requests.count == 1, "\(error as Any)")
        try await client.retry(path)
        #expect(readFile(try await client.wait(path)) == Array("here".utf8))
        #expect(server.requests.map { String(decoding: $0.body, as: UTF8.self) } == ["Secret", "Secret"])
        // A finished download keeps no body: hexadecimal digits in the database.
        let text = Array(hexadecimal(Array("Secret".utf8)).utf8)
        #expect(listFolder(world.state).allSatisfy { readFile("\(world.state)/\($0)")?.firstRange(of: text) == nil })
    }

    @Test(arguments: ["mirrors", "find-mirrors", "piece-hashes", "only-if-changed", "renewable"])
    func `goes with no option that needs another request`(key: String) async throws {
        let running = try await Running.start()
        let values: [String: Variant] = [
            "mirrors": .strings(["http://127.0.0.1:1/m"]), "find-mirrors": .bool(true), "only-if-changed": .bool(true),
            "piece-hashes": .string("md5:1:" + String(repeating: "0a", count: 16)), "renewable": .bool(true),
        ]
        let value = try #require(values[key])
        let error = await thrown {
            try await running.download("http://127.0.0.1:1/a", ["post-data": bytes("a"), "size": .uint64(1), key: value])
        }
        #expect(error?.name == todokuError("InvalidOption") && error?.message.contains(key) == true, "\(error as Any)")
    }

    @Test func `is neither for Fetch nor for all items of a batch`() async throws {
        let running = try await Running.start()
        let server = ScriptedServer { request, reply in reply.respond(200, body: request.body) }
        let fetch = await thrown { try await running.client.call(Manager.fetch, (server.url("/a"), ["post-data": bytes("a")])) }
        #expect(fetch?.name == todokuError("InvalidOption"))
        let whole = await thrown {
            try await running.client.call(
                Manager.downloadBatch, ([Structure(server.url("/a"), [:])], running.options(["post-data": bytes("a")])))
        }
        #expect(whole?.name == todokuError("InvalidOption") && whole?.message.contains("post-data") == true)
        let items: [Structure<String, [String: Variant]>] = [
            Structure(server.url("/a"), ["post-data": bytes("a")]), Structure(server.url("/b"), [:]),
        ]
        let (_, paths) = try await running.client.call(Manager.downloadBatch, (items, running.options()))
        for path in paths { _ = try await running.client.wait(path) }
        #expect(Set(server.requests.map { "\($0.method) \($0.path)" }) == ["POST /a", "GET /b"])
    }
}
