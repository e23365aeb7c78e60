internal import DBus
internal import DownloaderInterface
internal import EventLoop
internal import Glibc
internal import TestSupport
internal import Testing

@Suite struct `A server's refusal` {
    @Test func `that is final ends it at once, whatever retries`() async throws {
        let running = try await Running.start()
        let server = ScriptedServer { request, reply in reply.respond(Int(request.path.dropFirst()) ?? 200) }
        for status in [400, 401, 403, 404, 410, 451] as [UInt32] {
            let path = try await running.download(server.url("/\(status)"))
            let error = await thrown { try await running.client.wait(path) }
            #expect(error?.name == todokuError("HttpStatus"))
            #expect(error?.message.contains("\(status)") == true && error?.message.contains("127.0.0.1") == true)
            #expect(try await running.client.get(Download.attempts, at: path) == 1)
            #expect(try await running.client.get(Download.error, at: path).details["http-status"] == .uint32(status))
        }
        #expect(await eventually { running.world.files == [] })
    }

    @Test(arguments: [408, 425, 429, 500, 502, 503] as [Int])
    func `that may pass ends a download without retries`(status: Int) async throws {
        let running = try await Running.start()
        let server = ScriptedServer { _, reply in reply.respond(status) }
        let path = try await running.download(server.url("/a"), ["retries": .uint32(0)])
        let error = await thrown { try await running.client.wait(path) }
        #expect(error?.name == todokuError("HttpStatus"))
        let details = try await running.client.get(Download.error, at: path).details
        #expect(details == ["http-status": .uint32(UInt32(status)), "retryable": .bool(true), "host": .string("127.0.0.1")])
        #expect(server.requests.count == 1)
    }

    @Test func `that may pass is tried again after a wait with its reason and its end`() async throws {
        let running = try await Running.start()
        let client = running.client
        let server = ScriptedServer { request, reply in
            if request.number == 0 { reply.respond(500) } else { reply.respond(200, text: "now") }
        }
        let path = try await running.download(server.url("/a"))
        #expect(await client.signals.until { $0.contains { $0.state == "waiting" } })
        var seen = timespec()
        clock_gettime(CLOCK_REALTIME, &seen)
        let waiting = try #require(await client.signals.of(path).first { $0.state == "waiting" }?.changed)
        #expect(waiting["WaitReason"] == .string("retry"))
        let until = try #require(waiting["WaitUntil"]?.uint64)
        #expect(try await client.wait(path).hasSuffix("/a"))
        let again = try #require(await client.signals.of(path).last { $0.state == "active" }?.changed)
        #expect(again["WaitReason"] == .string(""))
        #expect(again["WaitUntil"] == .uint64(0))
        #expect(again["Attempts"] == .uint32(2))
        #expect(await client.signals.states(of: path) == ["active", "waiting", "active", "verifying", "finished"])
        let (queued, ended) = (try await client.get(Download.queuedAt, at: path), try await client.get(Download.endedAt, at: path))
        // Half a second to a second after the first answer, which came between these two instants.
        #expect(until > queued + 400_000 && until < UInt64(seen.tv_sec + 2) * 1_000_000)
        #expect(ended > until)
        #expect(await client.signals.of(path).count { $0.member == "Completed" } == 1)
    }

    @Test func `with Retry-After is not tried again before`() async throws {
        let running = try await Running.start()
        let server = ScriptedServer { _, reply in reply.respond(503, ["Retry-After": "100"]) }
        let before = time(nil)
        let path = try await running.download(server.url("/a"))
        #expect(await running.client.signals.isIn("waiting", path))
        let after = time(nil)
        let until = Int(try await running.client.get(Download.waitUntil, at: path) / 1_000_000)
        #expect((before + 99...after + 101).contains(until), "\(until) after an answer between \(before) and \(after)")
        // Resume does not wait for that time.
        try await running.client.resume(path)
        #expect(await server.waitForRequests(2))
    }

    @Test func `to accept connections is retried, and without retries ends in Network`() async throws {
        let running = try await Running.start()
        let url = "http://127.0.0.1:\(closedPort())/a"
        let none = try await running.download(url, ["retries": .uint32(0)])
        let error = await thrown { try await running.client.wait(none) }
        #expect(error?.name == todokuError("Network"))
        #expect(error?.message.contains("127.0.0.1") == true)
        #expect(try await running.client.get(Download.attempts, at: none) == 1)
        let one = try await running.download(url, ["retries": .uint32(1)])
        #expect(await thrown { try await running.client.wait(one) } == error)
        #expect(try await running.client.get(Download.attempts, at: one) == 2)
        let more = try await running.download(url)
        #expect(await running.client.signals.until { $0.contains { $0.path == more.value && $0.changed?["Attempts"] == .uint32(2) } })
        // While the download waits, it has the error of the last attempt.
        #expect(
            await running.client.signals.until {
                $0.contains {
                    $0.path == more.value && $0.state == "waiting"
                        && $0.changed?["Error"].flatMap(EndError.init)?.name == todokuError("Network")
                }
            })
        #expect(running.world.files == [])
    }

    @Test func `by a redirect to what is no download is UnsafeRedirect, and one without end TooManyRedirects`() async throws {
        let running = try await Running.start()
        let server = ScriptedServer { request, reply in
            if request.path == "/file" { reply.respond(302, ["Location": "file:///etc/passwd"]) }
            if request.path == "/round" { reply.respond(302, ["Location": "/round"]) }
        }
        #expect(await thrown { try await running.fetch(server.url("/file")) }?.name == todokuError("UnsafeRedirect"))
        #expect(await thrown { try await running.fetch(server.url("/round")) }?.name == todokuError("TooManyRedirects"))
        #expect(running.world.files == [])
    }

    @Test func `by breaking off is resumed from there`() async throws {
        let running = try await Running.start()
        let body = patternBytes(200_000)
        let server = ScriptedServer { request, reply in
            if request.range == nil {
                reply.head(200, ["ETag": "\"v\""], length: body.count)
                reply.send(body[..<80_000])
                poll(nil, 0, 50)
                reply.close()
            } else {
                reply.serve(body, for: request, entityTag: "\"v\"")
            }
        }
        let path = try await running.download(server.url("/a"), ["retries": .uint32(0)])
        #expect(readFile(try await running.client.wait(path)) == body)
        #expect(server.requests.last?.field("Range") == "bytes=80000-")
        #expect(await running.client.signals.of(path).compactMap(\.resumedAt).map(\.offset) == [80_000])
    }
}

@Suite struct `Secure servers and proxies` {
    @Test func `are trusted by the system's store only, with HTTP/2 where offered`() async throws {
        let nginx = await Nginx()
        nginx.put("a.bin", patternBytes(100_000))
        let stranger = try await Running.start()
        let path = try await stranger.download(nginx.secureURL("/a.bin"))
        let error = await thrown { try await stranger.client.wait(path) }
        #expect(error?.name == todokuError("Tls"))
        #expect(error?.message.contains("certificate") == true)
        #expect(try await stranger.client.get(Download.attempts, at: path) == 1)
        #expect(stranger.world.files == [])

        let friend = try await Running.start(extra: ["SSL_CERT_FILE": nginx.authority])
        #expect(readFile(try await friend.fetch(nginx.secureURL("/a.bin"))) == patternBytes(100_000))
        #expect(await eventually { nginx.log.contains { $0.hasPrefix("HTTP/2.0 200 /a.bin") } })
        // The name in the certificate must match too.
        let other = "https://127.0.0.2:\(nginx.securePort)/a.bin"
        let unreachable = await thrown { try await friend.fetch(other, ["retries": .uint32(0)]) }
        #expect(unreachable.map { [todokuError("Tls"), todokuError("Network")].contains($0.name) } == true)
    }

    @Test func `through the proxy of the environment`() async throws {
        let proxy = ScriptedServer { request, reply in reply.respond(200, text: "by proxy: \(request.target)") }
        let running = try await Running.start(extra: ["http_proxy": "http://127.0.0.1:\(proxy.port)", "no_proxy": "localhost"])
        let direct = ScriptedServer { _, reply in reply.respond(200, text: "direct") }
        let file = try await running.fetch("http://far.example.invalid/a.txt")
        #expect(readFile(file) == Array("by proxy: http://far.example.invalid/a.txt".utf8))
        #expect(readFile(try await running.fetch(direct.otherURL("/b"))) == Array("direct".utf8))
        proxy.stop()
        let error = await thrown { try await running.fetch("http://far.example.invalid/b", ["retries": .uint32(0)]) }
        #expect(error?.name == todokuError("Network"))
        #expect(error?.message.contains("proxy") == true)
    }
}
