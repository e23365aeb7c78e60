internal import DBus
internal import DownloaderInterface
internal import EventLoop
internal import Glibc
internal import TestSupport
internal import Testing

/// Serves `body`. The file at `slow` comes byte by byte until `gate` opens, and is never complete; `failing` gives an error.
private func dripping(_ slow: String, until gate: Gate, failing: String, _ body: some Sequence<UInt8>) -> ScriptedServer {
    let body = Array(body)
    return ScriptedServer { request, reply in
        switch request.path {
        case failing: reply.respond(404)
        case slow:
            reply.head(200, length: 20_000_000)  // so many that the first percent never comes
            while !gate.isOpen, reply.send("x") { poll(nil, 0, 20) }
            reply.close()
        default: reply.respond(200, body: body)
        }
    }
}

@Suite struct `With dunst` {
    @Test func `a download is toasted while it lasts, when it has finished and when it has failed`() async throws {
        let display = await Display()
        let running = try await Running.start(extra: ["DISPLAY": display.name])
        let dunst = await Dunst(on: running.world.bus, display)
        let gate = Gate()
        let server = dripping("/%E5%86%99%E7%9C%9F.zip", until: gate, failing: "/bad.zip", "12345".utf8)
        let options: [String: Variant] = ["notify": .string("background")]
        // On a busy machine, any download may take long enough for a toast of its progress.
        let brief = options.merging(["show-progress": .bool(false)]) { $1 }
        _ = try await running.fetch(server.url("/quiet"))  // notify: never
        _ = try await running.fetch(server.url("/a.bin"), brief)
        _ = try await running.fetch(server.url("/own"), brief.merging(["title": .string("題"), "body": .string("本文 <b>")]) { $1 })
        _ = await thrown { try await running.fetch(server.url("/bad.zip"), brief) }
        #expect(await eventually { await dunst.displayed() == 3 })
        let slow = try await running.download(server.url("/%E5%86%99%E7%9C%9F.zip"), options)
        // After a slow call, the service shows no progress for a minute.
        #expect(await eventually(within: .seconds(150)) { await dunst.displayed() == 4 })
        await display.screenshot(productPath("service-toasts-dunst.png"))
        try await running.client.cancel(slow)
        #expect(await eventually { await dunst.displayed() == 3 })
        gate.open()
        await dunst.control("close-all")
        let history = await dunst.history()
        func toast(_ summary: String) -> [String: JSON]? { history.first { $0["summary"]?.string == summary } }
        #expect(history.count == 4)
        let end = try #require(toast("ダウンロードが完了しました"))
        #expect(end["body"]?.string == "a.bin (5 B)" || end["body"]?.string?.hasPrefix("a.bin (5") == true, "\(end)")
        #expect(end["category"]?.string == "transfer.complete")
        #expect(toast("題")?["body"]?.string?.hasPrefix("本文 ") == true)
        #expect(toast("ダウンロードに失敗しました")?["body"]?.string == "\(server.url("/bad.zip"))\nサーバーがエラーを返しました（HTTP 404）。")
        let progress = try #require(toast("ダウンロード中"))
        #expect(progress["body"]?.string?.contains("写真.zip — 0 %") == true, "\(progress)")
        await dunst.stop()
        #expect(await running.daemon.stop().isClean)
    }

    @Test func `there is no toast if nothing new arrived, or if it is in the app's own file`() async throws {
        let display = await Display()
        let running = try await Running.start(extra: ["DISPLAY": display.name])
        let dunst = await Dunst(on: running.world.bus, display)
        let server = ScriptedServer { request, reply in
            if request.field("If-None-Match") != nil { reply.head(304) } else { reply.respond(200, ["ETag": "\"1\""], text: "12345") }
        }
        // On a busy machine, any download may take long enough for a toast of its progress.
        let always: [String: Variant] = ["notify": .string("always"), "show-progress": .bool(false)]
        #expect(try await running.get(server.url("/a"), always).outcome == "new-data")
        #expect(try await running.get(server.url("/a"), always).outcome == "no-data")
        let file = OwnFile(running.file("own"))
        let path = try await running.client.call(Manager.downloadToFd, (server.url("/own"), file.wire, always))
        #expect(try await running.client.wait(path) == "")
        // Toasts arrive in order: a toast for the earlier downloads would come before this one.
        #expect(try await running.get(server.url("/last"), always).outcome == "new-data")
        #expect(await eventually { await dunst.displayed() == 2 })
        await dunst.control("close-all")
        #expect(Set(await dunst.history().compactMap { $0["body"]?.string?.first }) == ["a", "l"])
        await dunst.stop()
        #expect(await running.daemon.stop().isClean)
    }

    @Test func `a click opens the file, and a toast that can be clicked keeps the service`() async throws {
        let display = await Display()
        let tools = TemporaryFolder("todoku-tools")
        // The system's opener, as far as we can tell: a program that is told what to open.
        writeFile(
            tools("xdg-open"),
            "#!/bin/sh\nprintf '%s' \"$1\" > \(tools("opened.new"))\nmv \(tools("opened.new")) \(tools("opened"))\n".utf8, mode: 0o755)
        let path = processEnvironment()["PATH"] ?? "/usr/bin:/bin"
        let world = await ServiceWorld(extra: ["DISPLAY": display.name, "PATH": "\(tools.path):\(path)"])
        let dunst = await Dunst(on: world.bus, display)
        let client = try await world.client()
        let server = ScriptedServer { _, reply in reply.respond(200, text: "12345") }
        let options: [String: Variant] = [
            "directory": .string(world.folder), "notify": .string("always"), "show-progress": .bool(false),
        ]
        let (daemon, _) = try await world.startLeaving { try await client.download(server.url("/a.txt"), options) }
        #expect(await eventually { await dunst.displayed() == 1 })
        #expect(await eventually(within: .seconds(33)) { !daemon.isRunning } == false)
        await dunst.control("action", "0")
        #expect(await eventually { readFile(tools("opened")) == Array("\(world.folder)/a.txt".utf8) })
        await dunst.control("close-all")
        #expect(await daemon.wait().isClean)
        await dunst.stop()
    }

    @Test func `a toast that nobody clicks keeps the service for a time only`() async throws {
        let display = await Display()
        let world = await ServiceWorld(extra: ["DISPLAY": display.name])
        let dunst = await Dunst(on: world.bus, display)
        let client = try await world.client()
        let server = ScriptedServer { _, reply in reply.respond(200, text: "12345") }
        let options: [String: Variant] = [
            "directory": .string(world.folder), "notify": .string("always"), "show-progress": .bool(false),
        ]
        let (daemon, _) = try await world.startLeaving(["--toast-keep", "2"]) {
            try await client.download(server.url("/a.txt"), options)
        }
        #expect(await daemon.wait().isClean)
        // This dunst removes no toast by itself, and our end closes none.
        #expect(await dunst.displayed() == 1)
        await dunst.stop()
    }

    @Test func `a batch has one toast for all, and a click opens its folder`() async throws {
        let display = await Display()
        let tools = TemporaryFolder("todoku-tools")
        writeFile(
            tools("xdg-open"),
            "#!/bin/sh\nprintf '%s' \"$1\" > \(tools("opened.new"))\nmv \(tools("opened.new")) \(tools("opened"))\n".utf8, mode: 0o755)
        let path = processEnvironment()["PATH"] ?? "/usr/bin:/bin"
        let running = try await Running.start(extra: ["DISPLAY": display.name, "PATH": "\(tools.path):\(path)"])
        let (world, client) = (running.world, running.client)
        let dunst = await Dunst(on: world.bus, display)
        let gate = Gate()
        let server = dripping("/long", until: gate, failing: "/bad", patternBytes(1024))
        let folder = Variant.string(world.folder)
        // One member lasts longer than the delay of a progress toast.
        let (first, members) = try await client.batch(
            [
                (server.url("/1"), [:]), (server.url("/long"), [:]), (server.url("/2"), ["notify": .string("always")]),
                (server.url("/bad"), [:]),
            ],
            ["directory": folder])
        let shown = try await running.download(server.url("/long"), ["notify": .string("always"), "filename": .string("alone")])
        // While the member lasts, it shares a toast with the download that runs beside it. After a slow call, the service shows no progress
        // for a minute.
        #expect(await eventually(within: .seconds(150)) { await dunst.displayed() == 1 })
        try await client.cancel(shown)
        try await client.cancel(members[1])
        #expect(try await client.wait(batch: first) == [2, 1, 1])
        #expect(await eventually { await dunst.history().count == 1 })
        #expect(await eventually { await dunst.displayed() == 1 })
        gate.open()
        await dunst.control("action", "0")
        #expect(await eventually { readFile(tools("opened")) == Array(world.folder.utf8) })
        await dunst.control("close-all")

        // On a busy machine, any download may take long enough for a toast of its progress.
        let brief: [String: Variant] = ["show-progress": .bool(false)]
        let (second, _) = try await client.batch(
            [(server.url("/3"), brief), (server.url("/4"), brief)], ["directory": folder, "title": .string("アルバム")])
        _ = try await client.wait(batch: second)
        #expect(await eventually { await dunst.displayed() == 1 })
        await dunst.control("close-all")
        let (third, _) = try await client.batch([(server.url("/bad"), brief), (server.url("/bad"), brief)], ["directory": folder])
        #expect(try await client.wait(batch: third) == [0, 2, 0])
        #expect(await eventually { await dunst.displayed() == 1 })
        await dunst.control("close-all")
        // A batch that wants no toast, or is cancelled as a whole, has none. The batch after them has one.
        let (silent, _) = try await running.batch([server.url("/5")])
        _ = try await client.wait(batch: silent)
        let (cancelled, _) = try await client.batch([(server.url("/6"), ["start": .bool(false)])], ["directory": folder])
        try await client.call(Batch.cancel, at: cancelled, ())
        let (last, _) = try await client.batch([(server.url("/7"), brief)], ["directory": folder])
        _ = try await client.wait(batch: last)
        #expect(await eventually { await dunst.displayed() == 1 })
        await dunst.control("close-all")
        let history = await dunst.history()
        let texts = history.reversed().map { "\($0["summary"]?.string ?? "") / \($0["body"]?.string ?? "")" }.filter {
            !$0.contains("ダウンロード中")
        }
        #expect(
            texts == [
                "2件のダウンロードが完了しました（1件は失敗） / 完了2件、失敗1件、中止1件 (2.0 KiB)", "アルバム / 完了2件 (2.0 KiB)",
                "ダウンロードに失敗しました / 失敗2件\nサーバーがエラーを返しました（HTTP 404）。", "1件のダウンロードが完了しました / 完了1件 (1.0 KiB)",
            ])
        #expect(history.count == 5, "\(history)")
        await dunst.stop()
    }
}
