internal import DBus
internal import DownloaderInterface
internal import EventLoop
internal import Glibc
internal import TestSupport
internal import Testing

@Suite(.timeLimit(.minutes(3))) struct `The trash` {
    private let server = ScriptedServer { _, reply in reply.respond(200, text: "hello") }

    private func trash(_ running: Running, _ path: ObjectPath) async throws { try await running.client.call(Download.trash, at: path, ()) }

    /// Uses gio(1), which follows the trash specification: below XDG_DATA_HOME.
    @Test func `takes the finished file, and the download is off the list`() async throws {
        let running = try await Running.start()
        let path = try await running.download(server.url("/%E5%86%99%E7%9C%9F.txt"))
        let file = try await running.client.wait(path)
        try await trash(running, path)
        let trash = running.world.bus.folder("data/Trash")
        #expect(listFolder("\(trash)/files") == ["写真.txt"], "gio (package libglib2.0-bin)")
        #expect(readFile("\(trash)/files/写真.txt") == Array("hello".utf8))
        let info = String(decoding: readFile("\(trash)/info/写真.txt.trashinfo") ?? [], as: UTF8.self)
        #expect(info.contains("Path=\(running.world.folder)/%E5%86%99%E7%9C%9F.txt\n"), "\(info)")
        #expect(!fileExists(file))
        #expect(try await running.client.list() == [])
        #expect(await running.client.signals.has("DownloadRemoved"))
    }

    @Test func `is the portal's where that runs, and gio's where the portal refuses`() async throws {
        let running = try await Running.start()
        let portal = try await StandInFilePortal(on: running.world.bus.address)
        let first = try await running.download(server.url("/first"))
        let file = try await running.client.wait(first)
        try await trash(running, first)
        #expect(await portal.trashed == [file])
        #expect(!fileExists(running.world.bus.folder("data/Trash")))
        await BusActor.run { portal.trashes = false }
        let second = try await running.download(server.url("/second"))
        _ = try await running.client.wait(second)
        try await trash(running, second)
        #expect(listFolder(running.world.bus.folder("data/Trash/files")) == ["second"])
    }

    @Test func `that is not there is said, and file and download stay`() async throws {
        let tools = TemporaryFolder("todoku-tools")
        let world = await ServiceWorld()
        let running = Running(world: world, daemon: await world.start(extra: ["PATH": tools.path]), client: try await world.client())
        let path = try await running.download(server.url("/a"))
        let file = try await running.client.wait(path)
        let missing = await thrown { try await trash(running, path) }
        #expect(missing?.name == todokuError("InvalidState") && missing?.message.contains("libglib2.0-bin") == true, "\(missing as Any)")
        writeFile(tools("gio"), "#!/bin/sh\necho 'gio: file:///a: Trashing is not supported here' >&2\nexit 2\n".utf8, mode: 0o755)
        symlink("/usr/bin/timeout", tools("timeout"))
        let refused = await thrown { try await trash(running, path) }
        #expect(refused?.name == todokuError("PermissionDenied"), "\(refused as Any)")
        #expect(refused?.message.hasSuffix("to the trash: Trashing is not supported here.") == true, "\(refused as Any)")
        #expect(readFile(file) == Array("hello".utf8))
        #expect(try await running.client.list() == [path])
    }

    /// Some window managers and launchers ignore SIGCHLD, and their children inherit that. Then the end of a child process goes unnoticed.
    @Test func `that refuses is heard, also where who started the service ignores the ends of programs`() async throws {
        let tools = TemporaryFolder("todoku-tools")
        writeFile(tools("gio"), "#!/bin/sh\necho 'gio: file:///a: Trashing is not supported here' >&2\nexit 2\n".utf8, mode: 0o755)
        symlink("/usr/bin/timeout", tools("timeout"))
        let world = await ServiceWorld()
        let daemon = await world.start(
            extra: ["PATH": tools.path], prefix: ["/bin/sh", "-c", "trap '' CHLD; exec \"$@\"", "sh"])
        let running = Running(world: world, daemon: daemon, client: try await world.client())
        let path = try await running.download(server.url("/a"))
        let file = try await running.client.wait(path)
        let refused = await thrown { try await trash(running, path) }
        #expect(refused?.name == todokuError("PermissionDenied"), "\(refused as Any)")
        #expect(readFile(file) == Array("hello".utf8))
        #expect(try await running.client.list() == [path])
    }

    /// gio(1) gets a path: another file may have this path by the time gio looks.
    @Test func `is not said to have a file that was moved away before gio came to it`() async throws {
        let tools = TemporaryFolder("todoku-tools")
        let swap = "mv \"$3\" \"$3.kept\" && echo private > \"$3\" && exec /usr/bin/gio \"$@\""
        writeFile(tools("gio"), "#!/bin/sh\n\(swap)\n".utf8, mode: 0o755)
        let world = await ServiceWorld()
        let daemon = await world.start(extra: ["PATH": "\(tools.path):/usr/bin:/bin"])
        let running = Running(world: world, daemon: daemon, client: try await world.client())
        let path = try await running.download(server.url("/a"))
        let file = try await running.client.wait(path)
        let error = await thrown { try await trash(running, path) }
        #expect(error?.name == todokuError("PermissionDenied") && error.map(isSentence) == true, "\(error as Any)")
        #expect(error?.message.contains("another file had its name by then") == true, "\(error as Any)")
        #expect(readFile("\(file).kept") == Array("hello".utf8))
        #expect(try await running.client.list() == [path])
    }

    @Test func `takes no file that is not ours, and nothing where there is none`() async throws {
        let running = try await Running.start()
        let own = try await running.download(server.url("/own"))
        let file = try await running.client.wait(own)
        writeFile(running.file("diary"), "private".utf8)
        rename(running.file("diary"), file)
        let error = await thrown { try await trash(running, own) }
        #expect(error?.name == todokuError("NotAllowed") && error.map(isSentence) == true, "\(error as Any)")
        #expect(readFile(file) == Array("private".utf8))
        unlink(file)
        try await trash(running, own)  // the file is gone already, so this works like Remove
        let held = try await running.download(server.url("/held"), ["start": .bool(false)])
        try await trash(running, held)
        #expect(try await running.client.list() == [])
        #expect(await running.client.signals.until { $0.contains { $0.ended?.path == held && $0.ended?.outcome == "cancelled" } })
        #expect(!fileExists(running.world.bus.folder("data/Trash")))
    }
}
