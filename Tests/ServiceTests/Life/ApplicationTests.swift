internal import DBus
internal import DownloadModel
internal import DownloaderInterface
internal import EventLoop
internal import Glibc
internal import TestSupport
internal import Testing

private let manager = BusName.managerPath.value

/// A session in which the opener records its requests, and the bus starts the service.
private struct Session {
    let world: ServiceWorld
    let opener = StandInOpener()
    let client: Client
    let server = ScriptedServer { request, reply in
        if request.path.hasPrefix("/bad") { reply.respond(404) } else { reply.respond(200, text: "hello") }
    }

    /// - Parameter activation: options of the daemon that the bus starts.
    init(activation: String? = nil) async throws {
        world = await ServiceWorld(activation: activation, extra: ["PATH": opener.path])
        client = try await world.client()
    }

    /// Downloads a file with a toast at its end only, however slow the server is here; most sessions have no notification server.
    func fetch(_ path: String, _ more: [String: Variant] = [:]) async throws -> (download: ObjectPath, file: String) {
        let options: [String: Variant] = ["directory": .string(world.folder), "show-progress": .bool(false)]
        let download = try await client.download(server.url(path), options.merging(more) { $1 })
        return (download, try await client.wait(download))
    }

    /// Makes the service leave. By itself it would stay for a minute, because a notification server may still come; where this is called
    /// late, it may have left already.
    func leave() async {
        _ = await world.bus.end(BusName.service, by: SIGTERM)
        #expect(await world.bus.waitForOwner(BusName.service, present: false))
    }

    /// Calls from a foreign client, for which the bus starts the service if necessary.
    func call(_ method: String, _ arguments: String...) async -> Child.Exit {
        await Child.run(gdbusCall(manager, "\(Application.interface).\(method)", arguments), environment: world.environment)
    }

    func act(_ action: String, _ parameters: [Variant] = [], _ platform: [String: Variant] = [:]) async throws {
        try await client.call(Application.activateAction, (action, parameters, platform))
    }
}

@Suite(.timeLimit(.minutes(10))) struct `A click from outside` {
    @Test func `starts the service, and opens the file whose toast it was; the next one shows it`() async throws {
        let session = try await Session(activation: "--idle-exit 1")
        _ = try await session.fetch("/first.txt")
        let newest = try await session.fetch("/新しい.txt")
        await session.leave()
        let first = await session.call("Activate", "{'activation-token': <'token-1'>, 'desktop-startup-id': <'other'>}")
        #expect(first.succeeded, "\(first)")
        #expect(await session.opener.hasOpened(1))
        #expect(session.opener.opened.last == "\(newest.file)|token-1|token-1")
        let files = try await StandInFileManager(on: session.world.bus.address)
        let second = await session.call("Activate", "{'desktop-startup-id': <'token-2'>}")
        #expect(second.succeeded, "\(second)")
        #expect(await files.shown == [["items", uri(newest.file), "token-2"]])
        // The same in the next process: that the file was opened is on disk.
        await session.leave()
        #expect(await session.call("Activate", "{}").succeeded)
        #expect(await files.shown.last == ["items", uri(newest.file), ""])
        #expect(session.opener.opened.count == 1)
    }

    /// As on GNOME Shell: a click on a toast of libnotify goes nowhere once we have left. A desktop that does not answer keeps us for five
    /// seconds. The longer idle time leaves room for the late answer of a busy machine.
    @Test func `on a toast after its grace period starts us again, if the desktop can`() async throws {
        #expect(
            try await inTime([1, 15]) { try await startsAgain(idleExit: $0) }, "each time, the service left before it closed its toast")
    }

    /// - Parameter idleExit: the seconds of idle time.
    /// - Returns: false: the service has left without closing its toast, because the desktop answered late.
    private func startsAgain(idleExit: Int) async throws -> Bool {
        let session = try await Session(activation: "--idle-exit \(idleExit) --toast-keep 1")
        let toasts = try await OddServer(name: "gnome-shell", at: session.world.bus.address)
        let desktop = try await StandInGtkNotifications(on: session.world.bus.address)
        let done = try await session.fetch("/done.txt")
        _ = try await session.fetch("/newer.txt", ["notify": .string("never")])
        #expect(await eventually { await desktop.toasts.count == 1 })
        let (application, _, content) = try #require(await desktop.toasts.first)
        #expect(application == BusName.service)
        #expect(content["title"] == .string("ダウンロードが完了しました") && content["body"]?.string?.contains("done.txt") == true)
        #expect(content["priority"] == .string("low"), "it would be shown once more")
        #expect(await session.world.bus.waitForOwner(BusName.service, present: false))
        guard await eventually(within: .seconds(20), { await toasts.closed.count == 1 }) else { return false }
        try await desktop.click()
        #expect(await session.opener.hasOpened(1))
        #expect(session.opener.opened == ["\(done.file)|startup-1|startup-1"])
        return true
    }

    @Test func `is impossible on a toast whose download left the list`() async throws {
        let running = try await Running.start(["--toast-keep", "1"])
        let toasts = try await OddServer(name: "gnome-shell", at: running.world.bus.address)
        let desktop = try await StandInGtkNotifications(on: running.world.bus.address)
        let server = ScriptedServer { _, reply in reply.respond(200, text: "12345") }
        let path = try await running.client.download(
            server.url("/a"), ["directory": .string(running.world.folder), "show-progress": .bool(false)])
        #expect(await eventually { await desktop.toasts.count == 1 })
        #expect(await eventually { await toasts.closed.count == 1 })
        try await running.client.remove(path)
        #expect(await eventually { await desktop.removed.count == 1 })
        #expect(await desktop.removed == [desktop.toasts[0].id])
    }

    /// The toast no longer keeps the service, but something else does.
    @Test func `on a toast after its grace period opens its file while we run`() async throws {
        let display = await Display()
        let opener = StandInOpener()
        let running = try await Running.start(["--toast-keep", "1"], extra: ["DISPLAY": display.name, "PATH": opener.path])
        let dunst = await Dunst(on: running.world.bus, display)
        let server = ScriptedServer { _, reply in reply.respond(200, text: "12345") }
        let file = try await running.fetch(server.url("/a.txt"), ["notify": .string("always"), "show-progress": .bool(false)])
        #expect(await eventually { await dunst.displayed() == 1 })
        await pause(milliseconds: 1500)  // only time ends the toast's hold
        await dunst.control("action", "0")
        #expect(await opener.hasOpened(1))
        #expect(opener.opened.first?.hasPrefix("\(file)|") == true)
        await dunst.stop()
    }

    @Test func `shows the newest file, if its toast reaches us by itself, or if it is unclear which was meant`() async throws {
        let session = try await Session()
        let files = try await StandInFileManager(on: session.world.bus.address)
        var daemon = await session.world.start()
        func shown(_ file: String) async throws {
            let before = await files.shown.count
            try await session.client.call(Application.activate, [:])
            #expect(await files.shown.dropFirst(before) == [["items", uri(file), ""]])
        }
        // Nothing has been downloaded: show the download folder, or the nearest folder above it that exists.
        try await session.client.call(Application.activate, [:])
        #expect(await files.shown == [["folders", uri(session.world.bus.folder("home")), ""]])
        // The download ended in this process.
        let mine = try await session.fetch("/mine")
        try await shown(mine.file)
        // Neither a download without a toast nor a failed one counts as the newest.
        _ = try await session.fetch("/silent", ["notify": .string("never")])
        _ = await thrown { try await session.fetch("/bad") }
        try await shown(mine.file)
        // Do not open the file of a download with an owner to call, of a batch member, or of an acknowledged download.
        let owned = try await session.fetch("/owned", ["activate": .string("org.example.App")])
        _ = await session.world.stop(daemon)
        daemon = await session.world.start()
        try await shown(owned.file)
        let (batch, _) = try await session.client.batch(
            [(session.server.url("/member"), [:])], ["directory": .string(session.world.folder)])
        _ = try await session.client.wait(batch: batch)
        _ = await session.world.stop(daemon)
        daemon = await session.world.start()
        try await shown("\(session.world.folder)/member")
        let taken = try await session.fetch("/taken")
        try await session.client.call(Download.acknowledge, at: taken.download, ())
        _ = await session.world.stop(daemon)
        daemon = await session.world.start()
        try await shown(taken.file)
        // The click may have been meant for the toast of a failure.
        _ = try await session.fetch("/before")
        _ = await thrown { try await session.fetch("/bad") }
        _ = await session.world.stop(daemon)
        daemon = await session.world.start()
        try await shown("\(session.world.folder)/before")
        unlink("\(session.world.folder)/before")
        // Skip deleted files.
        unlink(taken.file)
        try await shown("\(session.world.folder)/member")
        #expect(session.opener.opened == [])
    }

    @Test func `opens URLs by downloading them, and files only if they were downloaded`() async throws {
        let session = try await Session()
        let daemon = await session.world.start()
        let folder = try await session.client.get(Manager.defaultDirectory)
        try await session.client.call(Application.open, ([session.server.url("/one.txt?key=1")], [:]))
        #expect(await session.client.signals.has("Finished", at: BusName.path(of: DownloadNumber(1))))
        #expect(try await session.client.get(Download.app, at: BusName.path(of: DownloadNumber(1))) == BusName.service)
        #expect(readFile("\(folder)/one.txt") == Array("hello".utf8))
        // Several URLs make a batch, with one toast for all.
        try await session.client.call(
            Application.open,
            ([session.server.url("/2"), "file://localhost\(uri("\(folder)/one.txt").dropFirst(7))", session.server.url("/3")], [:]))
        #expect(try await session.client.wait(batch: ObjectPath("\(BusName.batchesPath)/2")) == [2, 0, 0])
        #expect(await session.opener.hasOpened(1))
        #expect(session.opener.opened.last == "\(folder)/one.txt||")
        let before = try await session.client.list().count
        writeFile("\(folder)/diary.txt", "private".utf8)
        let good = session.server.url("/4")
        for (uris, name, words) in [
            ([], "InvalidOption", "at least one"), (["ftp://example.org/a"], "UnsupportedScheme", "ftp"),
            (["nothing"], "InvalidUrl", "URL"),
            ([good, "mailto:me@example.org"], "UnsupportedScheme", "Item 1: mailto"),
            (["file://\(folder)/diary.txt"], "NotAllowed", "diary.txt"),
            ([good, "file:///etc/passwd"], "NotAllowed", "Item 1: file:///etc/passwd"),
            (["file://elsewhere\(folder)/one.txt"], "NotAllowed", "elsewhere"), (["file:one.txt"], "NotAllowed", "one.txt"),
            (["file://\(folder)/one.txt%"], "NotAllowed", "one.txt"), (["file:"], "NotAllowed", "file:"),
            (Array(repeating: "file://\(folder)/one.txt", count: 17), "LimitExceeded", "16"),
            (Array(repeating: "x:", count: 10_001), "LimitExceeded", "10000"),
        ] as [([String], String, String)] {
            let error = await thrown { try await session.client.call(Application.open, (uris, [:])) }
            #expect(error?.name == todokuError(name), "\(uris.last ?? ""): \(error as Any)")
            #expect(error?.message.contains(words) == true && error.map(isSentence) == true, "\(error?.message ?? "")")
        }
        #expect(try await session.client.list().count == before)
        #expect(session.opener.opened.count == 1)
        #expect(await session.world.stop(daemon).isClean)
    }

    @Test func `on an action opens, shows, tries again, and pauses`() async throws {
        let session = try await Session()
        _ = await session.world.start()
        let files = try await StandInFileManager(on: session.world.bus.address)
        let done = try await session.fetch("/done.txt")
        let script = try await session.fetch("/done.sh")
        let token: [String: Variant] = ["activation-token": .string("t")]
        try await session.act("open", [.objectPath(done.download)], token)
        try await session.act("open", [.string(done.download.value)])
        try await session.act("open", [.variant(.string(done.download.value))])
        #expect(await session.opener.hasOpened(3))
        // Each opener is its own process, so the order is random.
        #expect(session.opener.opened.sorted() == ["\(done.file)|t|t", "\(done.file)||", "\(done.file)||"].sorted())
        try await session.act("open", [.objectPath(script.download)])
        #expect(await files.shown == [["items", uri(script.file), ""]])
        try await session.act("show-folder", [.objectPath(done.download)], token)
        #expect(await files.shown.last == ["items", uri(done.file), "t"])
        let (batch, members) = try await session.client.batch(
            [(session.server.url("/bad"), [:])], ["directory": .string(session.world.folder), "notify": .string("never")])
        _ = try await session.client.wait(batch: batch)
        for action in ["open", "show-folder"] {
            try await session.act(action, [.objectPath(batch)])
            #expect(await files.shown.last == ["folders", uri(session.world.folder), ""])
        }
        // Nothing was downloaded: show the folder where it would have gone.
        let count = await files.shown.count
        try await session.act("show-folder", [.objectPath(members[0])])
        #expect(await files.shown.dropFirst(count) == [["folders", uri(session.world.folder), ""]])
        await session.client.signals.forget()
        try await session.act("retry", [.objectPath(members[0])])
        #expect(await session.client.signals.has("Completed", at: members[0]))
        try await session.act("pause-all")
        #expect(try await session.client.get(Manager.paused))
        try await session.act("resume-all")
        #expect(try await session.client.get(Manager.paused) == false)
        try await session.client.set(Manager.defaultDirectory, session.world.folder)
        try await session.act("open-folder", [], token)
        #expect(await files.shown.last == ["folders", uri(session.world.folder), "t"])
        // The file is gone: show its folder.
        unlink(done.file)
        try await session.act("open", [.objectPath(done.download)])
        #expect(await files.shown.last == ["folders", uri(session.world.folder), ""])
    }

    @Test func `with an impossible target is refused, and the message names the possible ones`() async throws {
        let session = try await Session()
        _ = await session.world.start()
        let held = try await session.client.download(session.server.url("/a"), ["start": .bool(false)])
        for (action, parameters, name, words) in [
            ("explode", [], "InvalidOption", "open, show-folder, retry, open-folder, pause-all, resume-all"),
            ("", [], "InvalidOption", "There is no action"),
            ("open", [], "InvalidOption", "object path"), ("open", [.uint32(1)], "InvalidOption", "object path"),
            ("open", [.objectPath(held), .objectPath(held)], "InvalidOption", "one parameter"),
            ("open", [.string("/org/todoku/Downloader1/download/99")], "NoSuchObject", "download/99"),
            ("open", [.string("nothing\n")], "NoSuchObject", "nothing"), ("show-folder", [.string("")], "NoSuchObject", "no download"),
            ("retry", [.objectPath(held)], "InvalidState", "paused"), ("open", [.objectPath(held)], "InvalidState", "paused"),
            ("pause-all", [.objectPath(held)], "InvalidOption", "no parameter"),
            ("open-folder", [.bool(true)], "InvalidOption", "no parameter"),
        ] as [(String, [Variant], String, String)] {
            let error = await thrown { try await session.act(action, parameters) }
            #expect(error?.name == todokuError(name), "\(action): \(error as Any)")
            #expect(error?.message.contains(words) == true && error.map(isSentence) == true, "\(error?.message ?? "")")
        }
        // Ignore platform data of wrong types and lengths.
        let odd: [String: Variant] = ["activation-token": .uint32(1), "desktop-startup-id": .string(String(repeating: "x", count: 1025))]
        let done = try await session.fetch("/done.txt")
        try await session.act("open", [.objectPath(done.download)], odd)
        #expect(await session.opener.hasOpened(1))
        #expect(session.opener.opened == ["\(done.file)||"])
    }

    /// The object path that GLib's own client derives from our id, and our desktop entry as GLib launches it.
    @Test func `comes from GLib, by our name and by our desktop entry`() async throws {
        let session = try await Session(activation: "--idle-exit 1")
        let done = try await session.fetch("/done.txt")
        await session.leave()
        let entry = "\(session.world.bus.folder("data"))/applications/\(BusName.service).desktop"
        session.world.bus.folder.makeFolder("data/applications")
        // GLib requires the program to exist, but does not run it.
        let programs = session.world.bus.folder.makeFolder("bin")
        writeFile("\(programs)/todoku", "#!/bin/sh\n: > \(programs)/run\n".utf8, mode: 0o755)
        writeFile(entry, try desktopEntry().replacing("@bindir@", with: programs).utf8)
        let launch = """
            import sys
            from gi.repository import Gio, GLib
            info = Gio.DesktopAppInfo.new_from_filename(sys.argv[1])
            info.launch([], None)
            info.launch_action("pause-all", None)
            # Neither call waits for an answer, and the service drops calls of a caller that leaves before it is identified. The
            # answer to this call follows them. (libdbus would answer a Ping at once.)
            Gio.bus_get_sync(Gio.BusType.SESSION).call_sync(
                "\(BusName.service)", "\(manager)", "org.freedesktop.DBus.Properties", "Get",
                GLib.Variant("(ss)", ("\(Manager.interface)", "Version")), None, 0, 60000)
            """
        let launched = await session.world.run("/usr/bin/python3", "-c", launch, entry)
        #expect(launched.status == 0, "packages python3, python3-gi: \(launched)")
        #expect(await session.opener.hasOpened(1))
        #expect(session.opener.opened.last?.hasPrefix("\(done.file)|") == true, "\(session.opener.opened)")
        #expect(try await session.client.get(Manager.paused))
        let resumed = await session.world.run("gapplication", "action", BusName.service, "resume-all")
        #expect(resumed.status == 0, "gapplication (package libglib2.0-bin): \(resumed)")
        #expect(try await session.client.get(Manager.paused) == false)
        let opened = await session.world.run("gapplication", "action", BusName.service, "open", "'\(done.download)'")
        #expect(opened.status == 0, "\(opened)")
        #expect(await session.opener.hasOpened(2))
        let listed = await session.world.run("gapplication", "list-actions", BusName.service)
        let actions = Set(listed.output.split(separator: "\n").map(String.init))
        #expect(!fileExists("\(programs)/run"))
        // The entry's actions are ours, and concern no object, because a menu names none.
        #expect(!actions.isEmpty && actions.allSatisfy { ApplicationAction(rawValue: $0)?.isAboutObject == false }, "\(listed)")
    }
}

/// The text of `data/org.todoku.Downloader1.desktop.in`.
private func desktopEntry() throws -> String {
    return String(decoding: try #require(readFile("\(repository)/data/\(BusName.service).desktop.in")), as: UTF8.self)
}

/// The file URI of a path.
private func uri(_ path: String) -> String {
    "file://"
        + path.utf8.map { byte in
            let scalar = UnicodeScalar(byte)
            return byte < 0x80 && (scalar.properties.isAlphabetic || "0123456789-._~/".unicodeScalars.contains(scalar))
                ? String(scalar) : "%" + (byte < 16 ? "0" : "") + String(byte, radix: 16, uppercase: true)
        }.joined()
}

extension Child.Exit {
    fileprivate var succeeded: Bool { status == 0 && output == "()\n" }
}
