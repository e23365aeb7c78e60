internal import DBus
internal import DownloaderInterface
internal import EventLoop
internal import Glibc
internal import TestSupport
internal import Testing

@Suite struct `The log and the signals` {
    @Test func `holds no header, password, query or body, however much is logged`() async throws {
        let running = try await Running.start(["--log-level", "trace"])
        let other = ScriptedServer { _, reply in reply.respond(500) }
        let (isCut, hangs) = (Gate(), Gate())
        defer { hangs.open() }
        let server = ScriptedServer { request, reply in
            switch request.path {
            case "/moved": reply.respond(302, ["Location": other.otherURL("/b?query=Secret3"), "Set-Cookie": "Secret16=Secret17"])
            case "/bad": reply.respond(404)
            case "/expired": reply.respond(403)
            case "/cut":
                if isCut.isOpen { return hangs.wait() }  // the next attempt lasts until it is cancelled
                isCut.open()
                reply.head(200, ["ETag": "\"v\""], length: 100)
                reply.send("x")
                reply.close()
            default: reply.respond(200, text: "x")
            }
        }
        let secrets: [String: Variant] = [
            "headers": .dictionary([("X-Api", "Secret1")]), "username": .string("user"), "password": .string("Secret2"),
            "referrer": .string("http://127.0.0.1/?q=Secret4"), "metadata": .dictionary(["k": .string("Secret5")]), "retries": .uint32(0),
            "cookies": .strings(["127.0.0.1\tFALSE\t/\tFALSE\t0\tSecret14\tSecret15"]),
        ]
        for path in ["/a", "/moved", "/bad", "/cut"] {
            let download = try await running.download("http://Secret6:Secret7@127.0.0.1:\(server.port)\(path)?query=Secret8", secrets)
            if path == "/cut" {
                #expect(await running.client.signals.hasBeen("waiting", download))
                try await running.client.cancel(download)
            } else {
                _ = await thrown { try await running.client.wait(download) }
            }
        }
        // The body of a request, which the server accepts or refuses.
        let body = Array("Secret18".utf8)
        let posting = secrets.merging(["post-data": .array(of: "y", body.map { .byte($0) })]) { $1 }
        for path in ["/form", "/bad"] {
            let download = try await running.download(server.url("\(path)?query=Secret8"), posting)
            _ = await thrown { try await running.client.wait(download) }
            #expect(server.requests.last?.method == "POST" && server.requests.last?.body == body)
        }
        _ = await thrown {
            try await running.download("http://u:Secret9@127.0.0.1:\(server.port)/x?query=Secret10", ["directory": .string("/no")])
        }
        _ = await thrown { try await running.download("ftp://u:Secret9@127.0.0.1/x?query=Secret10") }
        // A fresh link brings its own secrets, while the download waits for a link, and where the link is refused.
        let renewed = try await running.download(server.url("/expired?query=Secret8"), secrets.merging(["renewable": .bool(true)]) { $1 })
        #expect(await running.client.signals.isIn("waiting", renewed))
        for link in ["ftp://u:Secret11@127.0.0.1/x?query=Secret12", "http://u:Secret11@127.0.0.1:\(server.port)/a?query=Secret12"] {
            _ = await thrown {
                try await running.client.call(Download.replaceUrl, at: renewed, (link, ["headers": .dictionary([("X-Api", "Secret13")])]))
            }
        }
        _ = try await running.client.wait(renewed)
        #expect(server.requests.last?.field("X-Api") == "Secret13" && server.requests.last?.target == "/a?query=Secret12")
        let told = "\(await running.client.signals.seen.map { ($0.changed, $0.completed) })"
        #expect(!told.contains("Secret"))
        // Only the user may read the saved files.
        #expect(mode(of: running.world.state) == 0o700)
        for name in listFolder(running.world.state) where name != "segments" {
            #expect(mode(of: "\(running.world.state)/\(name)") == 0o600)
        }
        let described = try await running.client.call(Manager.describe, ([:], []))
        #expect(!"\(described.map(\.fields.1))".contains("Secret"))
        let exit = await running.daemon.stop()
        #expect(exit.errors.contains("download added") && exit.errors.contains("download ended"))
        #expect(!exit.errors.contains("Secret"), "\(exit.errors)")
        // Nor does the log have the body as digits, as the database has it, or as a list of bytes.
        for digits in [hexadecimal(body), body.map { "\($0)" }.joined(separator: ", ")] {
            #expect(!exit.errors.lowercased().contains(digits), "\(exit.errors)")
        }
        #expect(!exit.output.contains("Secret"))
    }

    @Test func `is nothing if all goes well`() async throws {
        let running = try await Running.start()
        let server = ScriptedServer { _, reply in reply.respond(200, text: "x") }
        _ = try await running.fetch(server.url("/a"))
        #expect(await running.daemon.stop().isClean)
    }
}

@Suite(.timeLimit(.minutes(10))) struct `Secrets in the database` {
    private let secrets: [String: Variant] = [
        "headers": .dictionary([("X-Api", "Secret1")]), "username": .string("Secret2"), "password": .string("Secret3"),
        "cookies": .strings(["127.0.0.1\tFALSE\t/\tFALSE\t0\tn\tSecret4"]), "retries": .uint32(0),
    ]

    /// The files of the queue that contain a secret.
    private func holders(_ world: ServiceWorld) -> [String] {
        listFolder(world.state).filter { readFile("\(world.state)/\($0)")?.firstRange(of: Array("Secret".utf8)) != nil }
    }

    /// Starts the next service a day after the ends of the downloads.
    private func startADayLater(_ world: ServiceWorld) async -> Child {
        let aged = await world.run(
            "sqlite3", "\(world.state)/todoku.db", "UPDATE course SET ended_at = ended_at - 86400000000 WHERE ended_at IS NOT NULL")
        #expect(aged.status == 0, "\(aged.errors)")
        return await world.start()
    }

    @Test func `leave all its files at the end, and after a failure when no retry needs them`() async throws {
        let world = await ServiceWorld()
        let client = try await world.client()
        var daemon = await world.start()
        let gate = Gate()
        defer { gate.open() }
        let server = ScriptedServer { request, reply in
            if request.path == "/bad" { return reply.respond(404) }
            if request.path == "/wait" { gate.wait() }
            reply.respond(200, text: "x")
        }
        let options = secrets.merging(["directory": .string(world.folder), "notify": .string("never")]) { $1 }
        let token = options.merging(["app": .string("org.example.App"), "token": .string("t")]) { $1 }
        let path = try await client.download(server.url("/wait"), token)
        #expect(await server.waitForRequests(1))
        #expect(!holders(world).isEmpty)
        gate.open()
        _ = try await client.wait(path)
        #expect(holders(world) == [])
        // The token still names the same request.
        #expect(try await client.download(server.url("/wait"), token) == path)

        let failed = try await client.download(server.url("/bad"), options)
        #expect(await thrown { try await client.wait(failed) }?.name == todokuError("HttpStatus"))
        #expect(!holders(world).isEmpty)
        try await client.retry(failed)
        #expect(await thrown { try await client.wait(failed) }?.name == todokuError("HttpStatus"))
        #expect(server.requests.filter { $0.path == "/bad" }.allSatisfy { $0.field("X-Api") == "Secret1" })
        try await client.remove(failed)
        #expect(holders(world) == [])

        let cancelled = try await client.download(server.url("/bad"), options.merging(["start": .bool(false)]) { $1 })
        try await client.cancel(cancelled)
        #expect(await world.stop(daemon).status == 0)
        #expect(holders(world) == ["todoku.db"])
        daemon = await startADayLater(world)
        #expect(try await client.get(Download.state, at: cancelled) == "cancelled")
        #expect(await eventually { holders(world) == [] })
        try await client.retry(cancelled)
        #expect(await thrown { try await client.wait(cancelled) }?.name == todokuError("HttpStatus"))
        #expect(server.requests.last?.field("X-Api") == nil)
    }

    @Test func `that are forgotten do not count in a repeated call, even after a retry`() async throws {
        let world = await ServiceWorld()
        let client = try await world.client()
        var daemon = await world.start()
        let paused: [String: Variant] = [
            "directory": .string(world.folder), "notify": .string("never"), "start": .bool(false), "app": .string("org.example.App"),
        ]
        let bare = paused.merging(["token": .string("bare")]) { $1 }
        let token = paused.merging(["token": .string("t")]) { $1 }.merging(secrets) { $1 }
        _ = try await client.download("http://127.0.0.1:1/bare", bare)
        let path = try await client.download("http://127.0.0.1:1/a", token)
        try await client.cancel(path)
        try await client.call(Manager.pauseAll, ())  // the retried download stays as it is
        #expect(await world.stop(daemon).status == 0)
        daemon = await startADayLater(world)
        #expect(await eventually { holders(world) == [] })
        #expect(try await client.download("http://127.0.0.1:1/a", token) == path)
        try await client.retry(path)
        #expect(try await client.get(Download.state, at: path) != "cancelled")
        #expect(try await client.download("http://127.0.0.1:1/a", token) == path)
        // The next service knows it, too.
        #expect(await world.stop(daemon).status == 0)
        daemon = await world.start()
        #expect(try await client.download("http://127.0.0.1:1/a", token) == path)
        // All other options count, and so do secrets of a request that had none.
        for (name, options) in [("a", token.merging(["tag": .string("x")]) { $1 }), ("bare", bare.merging(secrets) { $1 })] {
            let error = await thrown { try await client.download("http://127.0.0.1:1/\(name)", options) }
            #expect(error?.name == todokuError("AlreadyExists"), "\(name)")
        }
    }

    /// Earlier programs did not write that they had forgotten secrets.
    @Test func `that an earlier program has forgotten do not count in a repeated call`() async throws {
        let world = await ServiceWorld()
        let client = try await world.client()
        var daemon = await world.start()
        let bare: [String: Variant] = [
            "directory": .string(world.folder), "notify": .string("never"), "start": .bool(false), "app": .string("org.example.App"),
            "token": .string("t"),
        ]
        let token = bare.merging(secrets) { $1 }
        let path = try await client.download("http://127.0.0.1:1/a", token)
        try await client.cancel(path)
        #expect(await world.stop(daemon).status == 0)
        daemon = await startADayLater(world)
        #expect(try await client.get(Download.state, at: path) == "cancelled")
        #expect(await eventually { holders(world) == [] })
        #expect(await world.stop(daemon).status == 0)
        let unmarked = await world.run(
            "sqlite3", "\(world.state)/todoku.db",
            "UPDATE download SET options = replace(options, 'secrets-forgotten=true' || char(10), '')"
                + " WHERE options LIKE '%secrets-forgotten=true%'; SELECT changes()")
        #expect(unmarked.status == 0 && unmarked.output == "1\n", "\(unmarked.output)\(unmarked.errors)")
        daemon = await world.start()
        #expect(try await client.download("http://127.0.0.1:1/a", token) == path)
    }
}

@Suite struct `Without a notification server` {
    private let toasts: [String: Variant] = ["notify": .string("always")]
    private static let notifications = "org.freedesktop.Notifications"

    /// Runs downloads that finish, one that fails, and one that takes longer than the delay of a progress toast.
    private func downloadAll(_ running: Running) async throws {
        let gate = Gate()
        let server = ScriptedServer { request, reply in
            switch request.path {
            case "/bad": reply.respond(404)
            case "/slow":
                reply.head(200, ["Transfer-Encoding": "chunked"])
                while !gate.isOpen, reply.send("1\r\nx\r\n") { poll(nil, 0, 20) }
                reply.chunk([])
            default: reply.respond(200, text: "x")
            }
        }
        let slow = try await running.download(server.url("/slow"), toasts)
        for index in 0..<5 {
            #expect(try await running.fetch(server.url("/\(index)"), toasts).hasSuffix("/\(index)"))
            #expect(await thrown { try await running.fetch(server.url("/bad"), toasts) }?.name == todokuError("HttpStatus"))
        }
        // Wait longer than two seconds, so that a progress toast appears.
        #expect(await running.client.signals.until { $0.count { $0.path == slow.value && $0.member == "Progress" } >= 26 })
        gate.open()
        _ = try await running.client.wait(slow)
        #expect(try await running.client.list().count == 11)
    }

    @Test func `downloads never notice`() async throws {
        let running = try await Running.start()
        try await downloadAll(running)
        #expect(await running.daemon.stop().status == 0)
    }

    @Test func `that answers, as one that hangs, downloads never notice`() async throws {
        // A program that takes no name and never answers: its callers wait until the bus gives up. The program ends with the bus.
        let names = [Self.notifications: "/usr/bin/env dbus-monitor --session"]
        // Waiting for one toast would take 25 s, and there are eleven. A busy machine may stop once for as long, so there are three tries.
        var measured: [(all: Duration, exit: Duration)] = []
        repeat {
            let running = try await Running.start(names: names)
            let begun = ContinuousClock.now
            try await downloadAll(running)
            let asked = ContinuousClock.now
            #expect(await running.daemon.stop().status == 0)
            measured.append((asked - begun, .now - asked))
        } while measured.count < 3 && !measured.contains { $0.all < .seconds(200) && $0.exit < .seconds(20) }
        #expect(measured.contains { $0.all < .seconds(200) && $0.exit < .seconds(20) }, "\(measured)")
    }

    @Test func `that lives, as one that dies at every call, downloads never notice`() async throws {
        let running = try await Running.start(names: [Self.notifications: "/bin/false"])
        try await downloadAll(running)
        #expect(await running.daemon.stop().status == 0)
    }

    @Test func `it still leaves when idle`() async throws {
        let running = try await Running.start()
        let gate = Gate()
        defer { gate.open() }
        let server = ScriptedServer { _, reply in
            gate.wait()
            reply.respond(200, text: "x")
        }
        let path = try await running.download(server.url("/a"), toasts)
        #expect(await running.world.stop(running.daemon).status == 0)
        // The download keeps the service running until the gate opens, however long its start takes.
        let daemon = await running.world.start(["--idle-exit", "5"])
        gate.open()
        #expect(await running.client.signals.has("Finished", at: path))
        #expect(await daemon.wait().status == 0)
    }
}
