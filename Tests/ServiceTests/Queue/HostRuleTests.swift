internal import DBus
internal import DownloadModel
internal import DownloaderInterface
internal import EventLoop
internal import Glibc
internal import TestSupport
internal import Testing

extension ScriptedServer {
    /// The time from `begun` to the last request. A server without a processor sees a request late, so the time between two requests may
    /// be shorter here than it was at their sender. From an instant before the first was sent, it cannot be.
    fileprivate func span(since begun: ContinuousClock.Instant) -> Duration { (requests.map(\.arrived).max() ?? begun) - begun }
}

/// Timers and clocks may be so inexact.
private let tolerance: Duration = .milliseconds(50)

@Suite struct `A host with a request interval` {
    @Test func `gets no more requests from all applications and retries together; musicbrainz.org by default`() async throws {
        // The server is the proxy of the environment, so no name needs a look-up.
        let server = ScriptedServer { request, reply in
            reply.respond(request.number == 0 ? 500 : 200, text: request.number == 0 ? "" : "x")
        }
        let running = try await Running.start(extra: ["http_proxy": server.url("/")])
        let client = running.client
        let begun = ContinuousClock.now
        var paths: [ObjectPath] = []
        for number in 1...3 {
            paths.append(
                try await running.download(
                    "http://\(number == 2 ? "beta." : "")musicbrainz.org/\(number)", ["app": .string("org.example.App\(number)")]))
        }
        for path in paths { _ = try await client.wait(path) }
        #expect(server.requests.count == 4)
        #expect(server.span(since: begun) >= .seconds(3) - tolerance)
        #expect(try await client.get(Manager.hostRules).rules == ["musicbrainz.org": HostRule(requestInterval: .seconds(1))])
    }

    /// An hour apart, because a busy machine may take half a minute from one call to the next.
    @Test func `is named by each download that waits for it, with the time and the number ahead`() async throws {
        let server = ScriptedServer { _, reply in reply.respond(200, text: "x") }
        let running = try await Running.start(extra: ["http_proxy": server.url("/")])
        let client = running.client
        try await client.call(Manager.setHostRule, ("example.org", ["request-interval": .uint32(3_600_000)]))
        var paths: [ObjectPath] = []
        for number in 1...3 {
            paths.append(try await running.download("http://example.org/\(number)", ["app": .string("org.example.App\(number)")]))
        }
        _ = try await client.wait(paths[0])
        let properties = try await client.all(paths[2])
        #expect(properties["State"] == .string("waiting"))
        #expect(properties["WaitReason"] == .string("rate-limit"))
        #expect(properties["WaitUntil"]?.uint64.map { $0 > UInt64(time(nil)) * 1_000_000 } == true)
        #expect(properties["Ahead"] == .uint32(1))
        #expect(try await client.list(["state": .string("waiting")]).contains(paths[2]))
        #expect(try await client.list(["state": .string("queued")]) == [])
    }

    @Test func `gets no more requests from redirects, which wait for their turn`() async throws {
        let server = ScriptedServer { request, reply in
            guard request.target.contains("musicbrainz") else {
                return reply.respond(302, ["Location": "http://musicbrainz.org/\(request.target.suffix(1))"])
            }
            reply.respond(200, text: "x")
        }
        let running = try await Running.start(extra: ["http_proxy": server.url("/")])
        let client = running.client
        // An hour, because a busy machine may take seconds from one call to the next.
        try await client.call(Manager.setHostRule, ("musicbrainz.org", ["request-interval": .uint32(3_600_000)]))
        var paths: [ObjectPath] = []
        for number in 1...3 { paths.append(try await running.download("http://example.org/\(number)")) }
        // Two downloads have been redirected, and wait. They are not active, although each has made a request.
        #expect(
            await client.signals.until { seen in
                Set(seen.filter { $0.changed?["WaitReason"] == .string("rate-limit") && $0.state == "waiting" }.map(\.path)).count == 2
            })
        #expect(await client.signals.has("DownloadEnded"))
        #expect(server.requests.count { $0.target.contains("musicbrainz") } == 1)
        let begun = ContinuousClock.now
        try await client.call(Manager.setHostRule, ("musicbrainz.org", ["request-interval": .uint32(1000)]))
        for path in paths { _ = try await client.wait(path) }
        #expect(server.requests.count { $0.target.contains("musicbrainz") } == 3)
        // One of the two may go at once, because the first request was long ago.
        #expect(server.span(since: begun) >= .seconds(1) - tolerance)
        let last = try #require(paths.last)
        #expect(try await client.get(Download.state, at: last) == "finished")
    }

    @Test func `gets no more requests over kill -9, and none for a finished file`() async throws {
        let server = ScriptedServer { _, reply in reply.respond(200, text: "x") }
        let world = await ServiceWorld()
        let client = try await world.client()
        var daemon = await world.start()
        try await client.call(Manager.setHostRule, ("127.0.0.1", ["request-interval": .uint32(700)]))
        let options: [String: Variant] = ["directory": .string(world.folder), "notify": .string("never")]
        let begun = ContinuousClock.now
        var paths: [ObjectPath] = []
        for number in 1...7 { paths.append(try await client.download(server.url("/\(number)"), options)) }
        func requests(for path: ObjectPath) -> Int {
            let target = paths.firstIndex(of: path).map { "/\($0 + 1)" }
            return server.requests.count { $0.target == target }
        }
        // Requests in flight at a kill may be repeated; those of downloads announced as finished may not.
        var told: [ObjectPath: Int] = [:]
        for count in [2, 4, 5] {
            #expect(await client.signals.has("DownloadEnded", count: count))
            await world.kill(daemon)
            for path in await client.signals.seen.compactMap({ $0.ended?.path }) { told[path] = requests(for: path) }
            daemon = await world.start()
        }
        for path in paths { _ = try await client.wait(path) }
        #expect(told.count >= 5)
        for (path, count) in told { #expect(requests(for: path) == count, "\(path) was requested again") }
        #expect(server.span(since: begun) >= .milliseconds(700) * (server.requests.count - 1) - tolerance)
    }

    /// nginx measures the time between the moments at which it sees two requests. It wants two seconds. The rest of an interval leaves room
    /// for a request that nginx sees late. A busy machine needs the long interval.
    @Test func `refuses none of them: nginx's limit_req, which answers 503 above its rate`() async throws {
        let isInTime = try await inTime([4000, 14_000] as [UInt32]) { try await areAllAccepted(every: $0) }
        #expect(isInTime, "with each interval, nginx refused a request")
    }

    /// - Parameter interval: the milliseconds between two requests.
    /// - Returns: false: nginx has refused a request, and may have seen the one before it late.
    private func areAllAccepted(every interval: UInt32) async throws -> Bool {
        let nginx = await Nginx(extra: "limit_req zone=one;", http: "limit_req_zone $binary_remote_addr zone=one:1m rate=30r/m;")
        for number in 1...4 { nginx.put("\(number)", [1]) }
        let running = try await Running.start()
        try await running.client.call(Manager.setHostRule, ("127.0.0.1", ["request-interval": .uint32(interval)]))
        var paths: [ObjectPath] = []
        for number in 1...4 { paths.append(try await running.download(nginx.url("/\(number)"))) }
        for path in paths { _ = try await running.client.wait(path) }
        #expect(await eventually { nginx.log.count >= 4 })  // written once the response is out
        let statuses = nginx.log.map { $0.split(separator: " ")[1] }
        guard !statuses.contains("503") else { return false }
        #expect(statuses == Array(repeating: "200", count: 4))
        for path in paths { #expect(try await running.client.get(Download.attempts, at: path) == 1) }
        // Without the rule, the same server refuses requests that come together. A busy machine may keep them two seconds apart.
        try await running.client.call(Manager.setHostRule, ("127.0.0.1", ["request-interval": .uint32(0)]))
        let isRefused = try await inTime {
            try await running.client.call(Manager.pauseAll, ())
            var more: [ObjectPath] = []
            for number in 1...4 { more.append(try await running.download(nginx.url("/\(number)"), ["retries": .uint32(0)])) }
            try await running.client.call(Manager.resumeAll, ())
            for path in more { _ = await thrown { try await running.client.wait(path) } }
            return await eventually(within: .seconds(10)) { nginx.log.contains { $0.contains(" 503 ") } }
        }
        #expect(isRefused)
        return true
    }
}

@Suite struct `A host that refuses` {
    /// A server that asks once for a pause of `seconds`.
    private func server(pause seconds: Int) -> ScriptedServer {
        ScriptedServer { request, reply in
            if request.number == 0 {
                reply.respond(429, ["Retry-After": "\(seconds)"])
            } else {
                reply.respond(200, text: "x")
            }
        }
    }

    @Test func `with Retry-After gets no request so long`() async throws {
        let server = server(pause: 2)
        let running = try await Running.start()
        let begun = ContinuousClock.now
        let first = try await running.download(server.url("/a"), ["app": .string("org.example.A")])
        #expect(await running.client.signals.hasBeen("waiting", first))
        let second = try await running.download(server.url("/b"), ["app": .string("org.example.B")])
        for path in [first, second] { _ = try await running.client.wait(path) }
        #expect(server.span(since: begun) >= .seconds(2) - tolerance)
    }

    /// An hour, because a busy machine may take seconds from one call to the next.
    @Test func `with Retry-After gets no request from other applications, and other hosts get theirs`() async throws {
        let server = server(pause: 3600)
        let running = try await Running.start()
        let client = running.client
        let first = try await running.download(server.url("/a"), ["app": .string("org.example.A")])
        #expect(await client.signals.isIn("waiting", first))
        let second = try await running.download(server.url("/b"), ["app": .string("org.example.B")])
        let other = ScriptedServer { _, reply in reply.respond(200, text: "x") }
        let otherPort = try await running.download(other.url("/d"), ["app": .string("org.example.B")])
        _ = try await client.wait(otherPort)
        let elsewhere = try await running.download(server.otherURL("/c"), ["app": .string("org.example.B")])
        _ = try await client.wait(elsewhere)
        #expect(server.requests.map(\.target) == ["/a", "/c"], "another host is not concerned")
        #expect(try await client.get(Download.waitReason, at: second) == "rate-limit")
    }
}

@Suite struct `A host that wants to be left alone for a day` {
    @Test func `gets a request at once from a resumed download, and from all when it answers`() async throws {
        let server = ScriptedServer { request, reply in
            if request.number == 0 { reply.respond(503, ["Retry-After": "86400"]) } else { reply.respond(200, text: "x") }
        }
        let running = try await Running.start()
        let client = running.client
        let first = try await running.download(server.url("/a"))
        #expect(await client.signals.isIn("waiting", first))
        let second = try await running.download(server.url("/b"))
        #expect(try await client.get(Download.waitReason, at: second) == "rate-limit")
        let third = try await running.download(server.url("/c"))
        try await client.resume(third)
        _ = try await client.wait(third)
        _ = try await client.wait(second)
        #expect(server.requests.map(\.target) == ["/a", "/c", "/b"])
        #expect(try await client.get(Download.waitReason, at: first) == "retry")
    }

    @Test func `is listed, and can be reset`() async throws {
        let server = ScriptedServer { request, reply in
            if request.number == 0 { reply.respond(503, ["Retry-After": "86400"]) } else { reply.respond(200, text: "x") }
        }
        let running = try await Running.start()
        let client = running.client
        #expect(try await client.call(Manager.listSlowedHosts, ()).isEmpty)
        let first = try await running.download(server.url("/a"))
        #expect(await client.signals.isIn("waiting", first))
        let slowed = try await client.call(Manager.listSlowedHosts, ())
        let host = try #require(slowed.first.map { SlowedHost($0.value) })
        #expect(slowed.count == 1 && slowed.first.map { server.url("/").hasPrefix($0.key) } == true, "\(slowed)")
        #expect(host.status == 503 && host.interval == .seconds(1))
        let since = try #require(host.since)
        #expect(host.pausedUntil.map { $0 - since > .seconds(86_000) } == true)
        let shown = await Child.run([builtProgram("todoku", variable: "TODOKU"), "host"], environment: running.world.environment)
        #expect(shown.output.contains("503") && shown.output.contains(slowed.first?.key ?? "?"), "\(shown)")
        let second = try await running.download(server.url("/b"))
        #expect(try await client.get(Download.waitReason, at: second) == "rate-limit")
        let reset = await Child.run(
            [builtProgram("todoku", variable: "TODOKU"), "host", "127.0.0.1", "--reset"], environment: running.world.environment)
        #expect(reset.status == 0, "\(reset)")
        _ = try await client.wait(second)
        #expect(try await client.call(Manager.listSlowedHosts, ()).isEmpty)
        #expect(await thrown { try await client.call(Manager.resetHost, "http://x/") }?.name == todokuError("InvalidOption"))
    }
}

@Suite struct `A server that refuses one file` {
    @Test func `and sends all others is not slowed by the retries of that file`() async throws {
        let server = ScriptedServer { request, reply in
            if request.path == "/bad" { reply.respond(503) } else { reply.respond(200, text: "x") }
        }
        let running = try await Running.start()
        let client = running.client
        let bad = try await running.download(server.url("/bad"))
        #expect(await client.signals.isIn("waiting", bad))
        var number = 0
        while server.requests.filter({ $0.path == "/bad" }).count < 4, number < 60 {
            number += 1
            _ = try await running.fetch(server.url("/\(number)"))
        }
        #expect(number < 60, "the refused file is tried again meanwhile")
        let slowed = try await client.call(Manager.listSlowedHosts, ())
        #expect(slowed.values.allSatisfy { SlowedHost($0).interval <= .seconds(1) }, "\(slowed)")
        try await client.cancel(bad)
    }
}

@Suite struct `A rule of a host` {
    @Test func `is set, told, kept over a restart and taken away`() async throws {
        let world = await ServiceWorld()
        let client = try await world.client()
        let daemon = await world.start()
        let set = await world.gdbus(
            BusName.managerPath.value, "\(Manager.interface).SetHostRule", "Example.ORG",
            "{'connections': <uint32 2>, 'request-interval': <uint32 250>}")
        #expect(set.status == 0, "\(set)")
        let rule = HostRule(connections: 2, requestInterval: .milliseconds(250))
        #expect(
            await client.signals.until { seen in
                seen.contains { $0.changed?["HostRules"].flatMap { HostRuleTable($0) }?.rules["example.org"] == rule }
            })
        try await client.call(Manager.setHostRule, ("*", ["connections": .uint32(1)]))
        try await client.call(Manager.setHostRule, ("::1", ["connections": .uint32(0)]))
        _ = await world.stop(daemon)
        _ = await world.start()
        let rules = try await client.get(Manager.hostRules).rules
        #expect(
            rules == [
                "example.org": rule, "*": HostRule(connections: 1), "::1": HostRule(connections: 0),
                "musicbrainz.org": HostRule(requestInterval: .seconds(1)),
            ])
        for host in ["example.org", "*", "::1", "musicbrainz.org"] { try await client.call(Manager.setHostRule, (host, [:])) }
        #expect(try await client.get(Manager.hostRules).rules.keys.sorted() == ["musicbrainz.org"])
    }

    @Test(arguments: [
        ("", [:]), ("a b", [:]), ("http://example.org", [:]), ("example.org/", [:]), ("example.org:80", [:]), ("user@example.org", [:]),
        ("*.example.org", [:]), ("例え.jp", [:]), (String(repeating: "a", count: 300), [:]),
        ("example.org", ["connections": Variant.int32(-1)]), ("example.org", ["request-interval": .uint64(1 << 32)]),
        ("example.org", ["rate": .uint32(1)]),
    ]) func `that is invalid is refused with the reason`(host: String, rule: [String: Variant]) async throws {
        let running = try await Running.start()
        let error = await thrown { try await running.client.call(Manager.setHostRule, (host, rule)) }
        #expect(error?.name == todokuError("InvalidOption"))
        #expect(error?.message.contains(rule.keys.first ?? "host name") == true, "\(error?.message ?? "")")
        #expect(try await running.client.get(Manager.hostRules).rules.count == 1)
    }

    @Test func `limits connections, and says so to those that wait`() async throws {
        let running = try await Running.start()
        let client = running.client
        let gate = Gate()
        let server = ScriptedServer { _, reply in
            gate.wait()
            reply.respond(200, text: "x")
        }
        try await client.call(Manager.setHostRule, ("127.0.0.1", ["connections": .uint32(1)]))
        let paths = [try await running.download(server.url("/1")), try await running.download(server.url("/2"))]
        #expect(await server.waitForRequests(1))
        #expect(try await client.get(Download.state, at: paths[1]) == "waiting")
        #expect(try await client.get(Download.waitReason, at: paths[1]) == "host-limit")
        try await client.call(Manager.setHostRule, ("127.0.0.1", [:]))
        #expect(await server.waitForRequests(2))
        gate.open()
        for path in paths { _ = try await client.wait(path) }
    }
}

@Suite struct `Turns of applications` {
    @Test func `let one download start beside another app's many`() async throws {
        let running = try await Running.start()
        let client = running.client
        let server = ScriptedServer { _, reply in reply.respond(200, text: "x") }
        // An hour, until all are queued: a busy machine may take seconds from one call to the next.
        try await client.call(Manager.setHostRule, ("127.0.0.1", ["request-interval": .uint32(3_600_000)]))
        for number in 1...200 { _ = try await running.download(server.url("/many/\(number)"), ["app": .string("org.example.Greedy")]) }
        let one = try await running.download(server.url("/one"), ["app": .string("org.example.Modest")])
        #expect(try await client.get(Download.ahead, at: one) <= 2)
        #expect(await server.waitForRequests(1))
        #expect(server.requests.count == 1)
        try await client.call(Manager.setHostRule, ("127.0.0.1", ["request-interval": .uint32(300)]))
        _ = try await client.wait(one)
        let place = try #require(server.requests.firstIndex { $0.path == "/one" })
        #expect(place <= 3, "the greedy app's went before it: \(place)")
        try await client.call(Manager.cancelAll, ())
    }

    @Test func `are not delayed by a server that sends nothing`() async throws {
        let running = try await Running.start()
        let gate = Gate()
        let server = ScriptedServer { request, reply in
            if request.path == "/silent" { gate.wait() }
            reply.respond(200, text: "x")
        }
        try await running.client.set(Manager.maxActive, 1)
        // An hour, so that it stays active however long the other one takes.
        let silent = try await running.download(server.url("/silent"), ["stall-timeout": .uint32(3_600_000)])
        let other = try await running.download(server.url("/other"))
        _ = try await running.client.wait(other)
        #expect(try await running.client.get(Download.state, at: silent) == "active")
        gate.open()
        _ = try await running.client.wait(silent)
    }
}

@Suite struct `A host with a limit of connections` {
    @Test func `serves a waiting download before a further part of another one`() async throws {
        #expect(try await inTime { try await isServedFirst() }, "each time, a third part was asked for first")
    }

    /// - Returns: false if a third part was asked for first: a thread of the server may have been silent for three seconds. The other
    ///   connection then fetches its bytes, too.
    private func isServedFirst() async throws -> Bool {
        let body = patternBytes(8_000_000)
        let other = Gate()
        let server = ScriptedServer { request, reply in
            if request.path == "/small" {
                other.open()
                return reply.respond(200, text: "x")
            }
            guard request.number < 2 else { return reply.serve(body, for: request, entityTag: "\"v1\"") }
            let (first, last) = (request.range?.first ?? 0, request.range?.last ?? body.count - 1)
            let fields: KeyValuePairs = ["ETag": "\"v1\"", "Content-Range": "bytes \(first)-\(last)/\(body.count)"]
            reply.head(request.number == 0 ? 200 : 206, fields, length: last - first + 1)
            reply.send(body[first..<first + 200_000])
            // If the first request were silent for three seconds before the second one, the second one would take over all its bytes. Its
            // end would then leave a place for a third request.
            reply.send(reply.trickle(body[(first + 200_000)...last], by: 50, until: other))
        }
        let running = try await Running.start()
        try await running.client.call(Manager.setHostRule, ("127.0.0.1", ["connections": .uint32(2)]))
        let large = try await running.download(server.url("/large"), ["connections": .uint32(8)])
        #expect(await server.waitForRequests(2))
        // Both connections are in use. The small file gets one of them.
        let small = try await running.download(server.url("/small"))
        #expect(readFile(try await running.client.wait(small)) == Array("x".utf8))
        let first = server.requests.prefix(3).map(\.path)
        guard first != ["/large", "/large", "/large"] else { return false }
        #expect(first == ["/large", "/large", "/small"])
        #expect(readFile(try await running.client.wait(large)) == body)
        return true
    }
}
