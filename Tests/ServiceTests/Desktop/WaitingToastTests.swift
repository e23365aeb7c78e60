internal import DBus
internal import DownloaderInterface
internal import TestSupport
internal import Testing

private let always: [String: Variant] = ["notify": .string("always")]
private let noRoom = "ディスクの空き容量が足りません"
private let noLink = "新しいリンクが必要です"
private let finished = "ダウンロードが完了しました"

/// After a slow call, as on a busy machine, the service closes no toast for a minute.
private let longEnough: Duration = .seconds(150)

extension OddServer {
    /// Waits until `times` toasts with this summary have arrived.
    fileprivate nonisolated func hasShown(_ summary: String, times: Int = 1) async -> Bool {
        await eventually { await received.count { $0.summary == summary } >= times }
    }

    fileprivate nonisolated func hasClosed(_ numbers: [UInt32]) async -> Bool {
        await eventually(within: longEnough) { await closed == numbers }
    }
}

@Suite struct `The toast of what waits for its user` {
    /// `/3` has 3 MiB.
    private let server = ScriptedServer { request, reply in
        reply.respond(200, ["ETag": "\"1\""], body: patternBytes((Int(request.path.dropFirst()) ?? 0) << 20))
    }

    @Test(.enabled("only root can mount a small disk") { await SmallDisk.isPossible() })
    func `stays until all have room, and closes no other`() async throws {
        let running = try await Running.start()
        let toasts = try await OddServer(name: "Plasma", at: running.world.bus.address)
        try await SmallDisk.withDisk(bytes: 1 << 20) { disk in
            let options = always.merging(["directory": .string(disk.path)]) { $1 }
            let small = try await running.download(server.url("/3"), options)
            #expect(await running.client.signals.isIn("waiting", small))
            #expect(await toasts.hasShown(noRoom))
            let large = try await running.download(server.url("/8"), options)
            #expect(await running.client.signals.isIn("waiting", large))
            await disk.remount("size=5m")
            _ = try await running.client.wait(small)
            #expect(await toasts.hasShown(finished))
            #expect(await toasts.closed == [], "the other waits still")
            await disk.remount("size=40m")
            _ = try await running.client.wait(large)
            #expect(await toasts.hasShown(finished, times: 2))
            #expect(await toasts.hasClosed([1]), "the toast of an end was taken away with it")
            #expect(await toasts.received.count == 3)
            for path in [small, large] { try await running.client.remove(path) }
        }
        #expect(await running.daemon.stop().isClean)
    }

    @Test(.enabled("only root can mount a small disk") { await SmallDisk.isPossible() })
    func `closes with the last that waits for room, and returns for the next`() async throws {
        let running = try await Running.start()
        let toasts = try await OddServer(name: "Plasma", at: running.world.bus.address)
        try await SmallDisk.withDisk(bytes: 1 << 20) { disk in
            let options = always.merging(["directory": .string(disk.path)]) { $1 }
            let first = try await running.download(server.url("/3"), options)
            #expect(await toasts.hasShown(noRoom))
            try await running.client.pause(first)
            #expect(await toasts.hasClosed([1]))
            let second = try await running.download(server.url("/4"), options)
            #expect(await toasts.hasShown(noRoom, times: 2))
            #expect(await toasts.received.last?.body.contains("/4\n") == true)
            // Downloads that no longer wait, for whatever reason, are not in the toast.
            try await running.client.call(Manager.pauseAll, ())
            #expect(await toasts.hasClosed([1, 2]))
            try await running.client.call(Manager.resumeAll, ())
            #expect(await toasts.hasShown(noRoom, times: 3))
            try await running.client.cancel(second)
            #expect(await toasts.hasClosed([1, 2, 3]))
            try await running.client.remove(first)
        }
        #expect(await running.daemon.stop().isClean)
    }

    @Test(.enabled("only root can mount a small disk") { await SmallDisk.isPossible() })
    func `closes when its download waits for another reason, also while the app is in front`() async throws {
        let running = try await Running.start()
        let toasts = try await OddServer(name: "Plasma", at: running.world.bus.address)
        let server = ScriptedServer { request, reply in
            if request.number == 0 { reply.respond(200, ["ETag": "\"1\""], body: patternBytes(3 << 20)) } else { reply.respond(403) }
        }
        let app = "org.example.App"
        try await SmallDisk.withDisk(bytes: 1 << 20) { disk in
            let path = try await running.download(
                server.url("/a"),
                [
                    "directory": .string(disk.path), "notify": .string("background"), "app": .string(app), "renewable": .bool(true),
                ])
            #expect(await toasts.hasShown(noRoom))
            try await running.client.call(Manager.setForeground, (app, true))
            await disk.remount("size=40m")
            #expect(
                await running.client.signals.until {
                    $0.contains { $0.path == path.value && $0.changed?["WaitReason"] == .string("needs-url") }
                })
            #expect(await toasts.hasClosed([1]), "there is room")
            #expect(await toasts.received.count == 1)
            try await running.client.cancel(path)
        }
        #expect(await running.daemon.stop().isClean)
    }

    private let links = ScriptedServer { request, reply in
        if request.path.hasPrefix("/old") { return reply.respond(403) }
        if request.path == "/bad" { reply.respond(404) } else { reply.respond(200, text: "12345") }
    }

    private func renew(_ running: Running, _ path: ObjectPath, _ link: String) async throws {
        try await running.client.call(Download.replaceUrl, at: path, (links.url(link), [:]))
    }

    @Test func `closes with a fresh link, and returns if that expires too`() async throws {
        let running = try await Running.start()
        let toasts = try await OddServer(name: "Plasma", at: running.world.bus.address)
        let path = try await running.download(links.url("/old/1"), always.merging(["renewable": .bool(true)]) { $1 })
        #expect(await toasts.hasShown(noLink))
        try await renew(running, path, "/old/2")
        #expect(await toasts.hasShown(noLink, times: 2))
        #expect(await toasts.hasClosed([1]))
        try await renew(running, path, "/new")
        #expect(try await running.client.wait(path).hasSuffix("/new"))
        #expect(await toasts.hasShown(finished))
        #expect(await toasts.hasClosed([1, 2]))
        #expect(await running.daemon.stop().isClean)
    }

    @Test func `of a batch stays until none of its links is missing`() async throws {
        let running = try await Running.start()
        let toasts = try await OddServer(name: "Plasma", at: running.world.bus.address)
        let (batch, members) = try await running.client.batch(
            (1...2).map { (links.url("/old/\($0)"), ["renewable": .bool(true)]) },
            ["directory": .string(running.world.folder), "notify": .string("always")])
        for member in members { #expect(await running.client.signals.isIn("waiting", member)) }
        #expect(await toasts.hasShown(noLink))
        try await renew(running, members[0], "/new/1")
        _ = try await running.client.wait(members[0])
        // Toasts keep their order: one that is taken away is gone before the next one arrives.
        _ = try await running.fetch(links.url("/marker"), always)
        #expect(await toasts.hasShown(finished))
        #expect(await toasts.closed == [])
        try await renew(running, members[1], "/old/3")
        #expect(await toasts.hasShown(noLink, times: 2))
        #expect(await toasts.hasClosed([1]))
        try await renew(running, members[1], "/new/2")
        #expect(try await running.client.wait(batch: batch) == [2, 0, 0])
        #expect(await toasts.hasShown("2件のダウンロードが完了しました"))
        #expect(await toasts.hasClosed([1, 3]))
        #expect(await running.daemon.stop().isClean)
    }

    @Test func `of a batch stays while another of its downloads, which has failed, is retried`() async throws {
        let running = try await Running.start()
        let toasts = try await OddServer(name: "Plasma", at: running.world.bus.address)
        let (_, members) = try await running.client.batch(
            [(links.url("/old/1"), ["renewable": .bool(true)]), (links.url("/bad"), [:])],
            ["directory": .string(running.world.folder), "notify": .string("always")])
        #expect(await running.client.signals.isIn("waiting", members[0]))
        #expect(await running.client.signals.isIn("failed", members[1]))
        #expect(await toasts.hasShown(noLink))
        try await running.client.retry(members[1])
        // Toasts keep their order: one that is taken away is gone before the next one arrives.
        _ = try await running.fetch(links.url("/marker"), always)
        #expect(await toasts.hasShown(finished))
        #expect(await toasts.closed == [])
        try await renew(running, members[0], "/new")
        #expect(await toasts.hasClosed([1]))
        #expect(await running.daemon.stop().isClean)
    }
}

@Suite struct `The toast of a failure` {
    @Test(arguments: [[], ["actions"]])
    func `closes when the download is retried, also without a button`(capabilities: [String]) async throws {
        let running = try await Running.start()
        let toasts = try await OddServer(name: "Plasma", at: running.world.bus.address, capabilities: capabilities)
        let gate = Gate()
        let server = ScriptedServer { request, reply in
            if request.number == 0 { return reply.respond(404) }
            gate.wait()
            reply.respond(200, text: "12345")
        }
        let path = try await running.download(server.url("/a"), always)
        #expect(await toasts.hasShown("ダウンロードに失敗しました"))
        #expect(await toasts.received.last?.actions == [])
        try await running.client.retry(path)
        #expect(await toasts.hasClosed([1]))
        gate.open()
        _ = try await running.client.wait(path)
        #expect(await toasts.hasShown(finished))
        #expect(await running.daemon.stop().isClean)
    }

    @Test func `of some of a batch is shown, whatever its own texts`() async throws {
        let running = try await Running.start()
        let toasts = try await OddServer(name: "Plasma", at: running.world.bus.address)
        let server = ScriptedServer { request, reply in
            if request.path == "/bad" { reply.respond(404) } else { reply.respond(200, text: "12345") }
        }
        let texts: [String: Variant] = [
            "directory": .string(running.world.folder), "notify": .string("always"), "title": .string("Album"),
            "body": .string("Ready to play"),
        ]
        let (part, _) = try await running.client.batch([(server.url("/1"), [:]), (server.url("/bad"), [:])], texts)
        #expect(try await running.client.wait(batch: part) == [1, 1, 0])
        #expect(await toasts.hasShown("Album"))
        let body = await toasts.received.last?.body
        #expect(body == "完了1件、失敗1件 (5 B)", "\(body ?? "")")
        let (whole, _) = try await running.client.batch([(server.url("/2"), [:])], texts)
        #expect(try await running.client.wait(batch: whole) == [1, 0, 0])
        #expect(await toasts.hasShown("Album", times: 2))
        #expect(await toasts.received.last?.body == "Ready to play")
        #expect(await running.daemon.stop().isClean)
    }
}
