internal import DBus
internal import DownloaderInterface
internal import EventLoop
internal import TestSupport
internal import Testing

/// The option `private`, through the service.
@Suite(.timeLimit(.minutes(10))) struct `A private download` {
    private static let secret = "Confidential"

    /// The files of the queue that contain the name.
    private func holders(_ world: ServiceWorld, of name: String = secret) -> [String] {
        listFolder(world.state).filter { readFile("\(world.state)/\($0)")?.firstRange(of: Array(name.utf8)) != nil }
    }

    /// Starts a private download, and returns what `DownloadEnded` says of it.
    private func end(_ running: Running, _ url: String, _ more: [String: Variant] = [:]) async throws -> (path: ObjectPath, error: String) {
        let path = try await running.download(url, more.merging(["private": .bool(true)]) { $1 })
        #expect(await running.client.signals.until { $0.contains { $0.ended?.path == path } })
        let end = try #require(await running.client.signals.seen.lazy.compactMap(\.ended).first { $0.path == path })
        return (path, end.error)
    }

    /// What `Wait` answers after the end of a download: the file, or the name of the error. A busy machine may let the ten seconds pass
    /// before the call. Then another download is tried.
    private func lateAnswer(_ running: Running, _ url: String, _ more: [String: Variant] = [:]) async throws -> String {
        var answer = ""
        for _ in 0..<20 {
            let path = try await end(running, url, more).path
            do { answer = try await running.client.wait(path) } catch let error as DBusError { answer = error.name }
            if answer != "org.freedesktop.DBus.Error.UnknownObject" { break }
        }
        return answer
    }

    @Test func `tells its outcome, then leaves the list, the database and the log`() async throws {
        let running = try await Running.start(["--log-level", "trace"])
        let client = running.client
        let gate = Gate()
        let server = ScriptedServer { request, reply in
            if request.path.hasSuffix("bad") { return reply.respond(404) }
            gate.wait()
            reply.respond(200, ["ETag": "\"v\""], text: "here")
        }
        defer { gate.open() }
        let path = try await running.download(server.url("/\(Self.secret).bin"), ["private": .bool(true)])
        #expect(await server.waitForRequests(1))
        #expect(!holders(running.world).isEmpty, "while it runs, a restart must find it")
        gate.open()
        #expect(await client.signals.until { $0.contains { $0.ended.map { $0.path == path && $0.error == "" } == true } })
        let file = "\(running.world.folder)/\(Self.secret).bin"
        #expect(readFile(file) == Array("here".utf8))
        #expect(try extendedAttribute("user.xdg.origin.url", of: file) == nil)
        let failed = try await end(running, server.url("/\(Self.secret)/bad"), ["retries": .uint32(0)])
        #expect(failed.error == todokuError("HttpStatus"))
        // Somebody who comes late is told, too.
        let again = try await lateAnswer(running, server.url("/\(Self.secret).bin"), ["if-exists": .string("replace")])
        #expect(again == file)
        let bad = try await lateAnswer(running, server.url("/\(Self.secret)/bad"), ["retries": .uint32(0)])
        #expect(bad == todokuError("HttpStatus"))
        for one in [path, failed.path] {
            #expect(await client.signals.until { $0.contains { Manager.downloadRemoved.read($0.message) == one } })
            let seen = await client.signals.seen
            let end = try #require(seen.firstIndex { $0.ended?.path == one })
            let removal = try #require(seen.firstIndex { Manager.downloadRemoved.read($0.message) == one })
            #expect(end < removal)
        }
        #expect(await thrown { try await client.wait(path) }?.name == "org.freedesktop.DBus.Error.UnknownObject")
        #expect(try await eventually { try await client.list() == [] })
        #expect(await eventually { holders(running.world) == [] })
        #expect(running.world.files == ["\(Self.secret).bin"], "the file stays, and no part file")
        let exit = await running.daemon.stop()
        #expect(exit.errors.contains("download ended") && !exit.errors.contains(Self.secret), "\(exit.errors)")
    }

    @Test func `leaves at once if the service exits, and at the next start after kill -9`() async throws {
        let world = await ServiceWorld()
        let client = try await world.client()
        let server = ScriptedServer { _, reply in reply.respond(200, text: "here") }
        for isKilled in [false, true] {
            // A busy machine may let the ten seconds after the end pass before the service is killed. Then it is tried again.
            for attempt in 1...20 {
                let daemon = await world.start()
                _ = try await end(Running(world: world, daemon: daemon, client: client), server.url("/\(Self.secret)"))
                if isKilled { await world.kill(daemon) } else { #expect(await world.stop(daemon).isClean) }
                if !isKilled || !holders(world).isEmpty { break }
                #expect(attempt < 20, "a killed service has left the name")
            }
            if isKilled {
                _ = await world.start()
                #expect(try await eventually { try await client.list() == [] })
            }
            #expect(await eventually { holders(world) == [] })
        }
    }

    /// The server is the proxy of the environment, so no name needs a look-up. Each host gets one request within an hour.
    @Test func `leaves its hosts neither in a file of the queue nor in the list of slowed hosts`() async throws {
        let server = ScriptedServer { request, reply in
            switch request.target {
            case "http://hidden-first.example/a": reply.respond(302, ["Location": "http://hidden-second.example/b"])
            case "http://hidden-slow.example/c": reply.respond(503, ["Retry-After": "86400"])
            default: reply.respond(200, text: "here")
            }
        }
        let running = try await Running.start(["--log-level", "trace"], extra: ["http_proxy": server.url("/")])
        let (client, world) = (running.client, running.world)
        try await client.call(Manager.setHostRule, ("*", ["request-interval": .uint32(3_600_000)]))
        let options: [String: Variant] = ["private": .bool(true), "request-interval": .uint32(7_200_000)]
        let path = try await running.download("http://hidden-first.example/a", options)
        let refused = try await running.download("http://hidden-slow.example/c", options)
        let file = try await client.wait(path)
        #expect(await client.signals.isIn("waiting", refused))
        #expect(try await client.call(Manager.listSlowedHosts, ()).isEmpty)
        try await client.cancel(refused)
        _ = try await running.fetch("http://open.example/d", ["request-interval": .uint32(7_200_000)])
        for one in [path, refused] {
            #expect(await client.signals.until { $0.contains { Manager.downloadRemoved.read($0.message) == one } })
        }
        #expect(await eventually { holders(world, of: "hidden") == [] }, "\(holders(world, of: "hidden"))")
        #expect(holders(world, of: "open.example") != [], "the hosts of other downloads are kept")
        let saved = world.bus.folder("backup.db")
        let backup = await Child.run([builtProgram("todoku", variable: "TODOKU"), "backup", saved], environment: world.environment)
        #expect(backup.status == 0 && readFile(saved)?.firstRange(of: Array("hidden".utf8)) == nil, "\(backup)")
        let exit = await running.daemon.stop()
        #expect(!exit.errors.contains("hidden") && exit.errors.contains("download ended"), "\(exit.errors)")
        #expect(holders(world, of: "hidden") == [] && readFile(file) == Array("here".utf8))
    }

    @Test(arguments: ["activate", "only-if-changed"]) func `goes with no option that keeps its outcome`(key: String) async throws {
        let running = try await Running.start()
        let value: Variant = key == "activate" ? .string("org.example.App") : .bool(true)
        let error = await thrown { try await running.download("http://127.0.0.1:1/a", ["private": .bool(true), key: value]) }
        #expect(error?.name == todokuError("InvalidOption") && error?.message.contains(key) == true)
        let fetch = await thrown { try await running.client.call(Manager.fetch, ("http://127.0.0.1:1/a", ["private": .bool(true)])) }
        #expect(fetch?.name == todokuError("InvalidOption"))
    }

    @Test func `has a toast without its name`() async throws {
        let display = await Display()
        let running = try await Running.start(extra: ["DISPLAY": display.name])
        let dunst = await Dunst(on: running.world.bus, display)
        let server = ScriptedServer { request, reply in
            if request.path.hasSuffix("bad") { reply.respond(404) } else { reply.respond(200, text: "here") }
        }
        for name in ["", "/bad"] {
            _ = try await end(running, server.url("/\(Self.secret)\(name)"), ["notify": .string("always")])
        }
        #expect(await eventually { await dunst.displayed() == 2 })
        await dunst.control("close-all")
        let history = await dunst.history()
        #expect(Set(history.compactMap { $0["summary"]?.string }) == ["ダウンロードが完了しました", "ダウンロードに失敗しました"])
        #expect(!"\(history)".contains(Self.secret), "\(history)")
        await dunst.stop()
    }
}
