internal import DBus
internal import DownloaderInterface
internal import EventLoop
internal import Glibc
internal import TestSupport
internal import Testing

@Suite struct `What is logged and shown` {
    @Test func `holds no header, password or query, however much is logged`() async throws {
        let running = try await Running.start(["--log-level", "trace"])
        let other = ScriptedServer { _, reply in reply.respond(500) }
        let server = ScriptedServer { request, reply in
            switch request.path {
            case "/moved": reply.respond(302, ["Location": other.otherURL("/b?query=Secret3")])
            case "/bad": reply.respond(404)
            case "/expired": reply.respond(403)
            case "/cut":
                reply.head(200, length: 100)
                reply.send("x")
                reply.close()
            default: reply.respond(200, text: "x")
            }
        }
        let secrets: [String: Variant] = [
            "headers": .dictionary([("X-Api", "Secret1")]), "username": .string("user"), "password": .string("Secret2"),
            "referrer": .string("http://127.0.0.1/?q=Secret4"), "metadata": .dictionary(["k": .string("Secret5")]), "retries": .uint32(0),
        ]
        for path in ["/a", "/moved", "/bad", "/cut"] {
            let download = try await running.download("http://Secret6:Secret7@127.0.0.1:\(server.port)\(path)?query=Secret8", secrets)
            if path == "/cut" {
                #expect(await running.client.signals.isIn("waiting", download))
                try await running.client.cancel(download)
            } else {
                _ = await thrown { try await running.client.wait(download) }
            }
        }
        _ = await thrown {
            try await running.download("http://u:Secret9@127.0.0.1:\(server.port)/x?query=Secret10", ["directory": .string("/no")])
        }
        _ = await thrown { try await running.download("ftp://u:Secret9@127.0.0.1/x?query=Secret10") }
        // A fresh link brings secrets of its own, while it waits for it and where it is refused.
        let renewed = try await running.download(server.url("/expired?query=Secret8"), secrets.merging(["renewable": .bool(true)]) { $1 })
        #expect(await running.client.signals.isIn("waiting", renewed))
        for link in ["ftp://u:Secret11@127.0.0.1/x?query=Secret12", "http://u:Secret11@127.0.0.1:\(server.port)/a?query=Secret12"] {
            _ = await thrown { try await running.client.call(Download.replaceUrl, at: renewed, (link, ["X-Api": "Secret13"])) }
        }
        _ = try await running.client.wait(renewed)
        #expect(server.requests.last?.field("X-Api") == "Secret13" && server.requests.last?.target == "/a?query=Secret12")
        let told = "\(await running.client.signals.seen.map { ($0.changed, $0.completed) })"
        #expect(!told.contains("Secret"))
        // What is kept is for the user alone.
        #expect(mode(of: running.world.state) == 0o700)
        for name in listFolder(running.world.state) where name != "segments" {
            #expect(mode(of: "\(running.world.state)/\(name)") == 0o600)
        }
        let described = try await running.client.call(Manager.describe, ([:], []))
        #expect(!"\(described.map(\.fields.1))".contains("Secret"))
        let exit = await running.daemon.stop()
        #expect(exit.errors.contains("download added") && exit.errors.contains("download ended"))
        #expect(!exit.errors.contains("Secret"), "\(exit.errors)")
        #expect(!exit.output.contains("Secret"))
    }

    @Test func `is nothing where all goes well`() async throws {
        let running = try await Running.start()
        let server = ScriptedServer { _, reply in reply.respond(200, text: "x") }
        _ = try await running.fetch(server.url("/a"))
        #expect(await running.daemon.stop().isClean)
    }
}

@Suite struct `Without a notification server` {
    private let toasts: [String: Variant] = ["notify": .string("always")]
    private static let notifications = "org.freedesktop.Notifications"

    /// One that finishes, one that fails and one that takes longer than a progress toast waits.
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
        // Longer than two seconds, so that it has a progress toast.
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
        // A program that takes no name and never answers: who calls it waits until the bus gives up. It ends with the bus.
        let running = try await Running.start(names: [Self.notifications: "/usr/bin/env dbus-monitor --session"])
        let begun = ContinuousClock.now
        try await downloadAll(running)
        // A toast that was waited for would take 25 s by itself, and there are eleven.
        #expect(ContinuousClock.now - begun < .seconds(120))
        let asked = ContinuousClock.now
        #expect(await running.daemon.stop().status == 0)
        #expect(ContinuousClock.now - asked < .seconds(20))
    }

    @Test func `that lives, as one that dies at every call, downloads never notice`() async throws {
        let running = try await Running.start(names: [Self.notifications: "/bin/false"])
        try await downloadAll(running)
        #expect(await running.daemon.stop().status == 0)
    }

    @Test func `it still leaves when idle`() async throws {
        let running = try await Running.start(["--idle-exit", "5"])
        let server = ScriptedServer { _, reply in reply.respond(200, text: "x") }
        _ = try await running.fetch(server.url("/a"), toasts)
        #expect(await running.daemon.wait().status == 0)
    }
}
