internal import DBus
internal import DownloaderInterface
internal import EventLoop
internal import Glibc
internal import TestSupport
internal import Testing

@Suite(.timeLimit(.minutes(10))) struct `The trash` {
    private let server = ScriptedServer { _, reply in reply.respond(200, text: "hello") }

    private func trash(_ running: Running, _ path: ObjectPath) async throws { try await running.client.call(Download.trash, at: path, ()) }

    @Test func `takes the finished file, and the download is off the list`() async throws {
        let running = try await Running.start()
        let path = try await running.download(server.url("/%E5%86%99%E7%9C%9F.txt"))
        let file = try await running.client.wait(path)
        try await trash(running, path)
        let trash = running.world.bus.folder("data/Trash")
        #expect(listFolder("\(trash)/files") == ["写真.txt"])
        #expect(readFile("\(trash)/files/写真.txt") == Array("hello".utf8))
        let info = String(decoding: readFile("\(trash)/info/写真.txt.trashinfo") ?? [], as: UTF8.self)
        #expect(info.contains("Path=\(running.world.folder)/%E5%86%99%E7%9C%9F.txt\n"), "\(info)")
        #expect(!fileExists(file))
        #expect(try await running.client.list() == [])
        #expect(await running.client.signals.has("DownloadRemoved"))
    }

    /// Both use the file's path, so a program that may rename the folder could make them take another file.
    @Test func `is neither the portal's nor gio's`() async throws {
        let tools = TemporaryFolder("todoku-tools")
        writeFile(tools("gio"), "#!/bin/sh\ntouch \(tools("asked"))\n".utf8, mode: 0o755)
        let running = try await Running.start(extra: ["PATH": "\(tools.path):/usr/bin:/bin"])
        let portal = try await StandInFilePortal(on: running.world.bus.address)
        let path = try await running.download(server.url("/a"))
        _ = try await running.client.wait(path)
        try await trash(running, path)
        #expect(listFolder(running.world.bus.folder("data/Trash/files")) == ["a"])
        #expect(!fileExists(tools("asked")))
        withExtendedLifetime(portal) {}
    }

    @Test(.enabled("only root can mount a small disk") { await SmallDisk.isPossible() })
    func `that is not there is said, and file and download stay`() async throws {
        let running = try await Running.start()
        let isDone: Bool? = try await SmallDisk.withDisk(bytes: 1 << 20) { disk in
            let path = try await running.download(server.url("/a"), ["directory": .string(disk.path)])
            let file = try await running.client.wait(path)
            let refused = await thrown { try await trash(running, path) }
            #expect(refused?.name == todokuError("PermissionDenied") && refused.map(isSentence) == true, "\(refused as Any)")
            #expect(refused?.message.contains("\(disk.path) is a file system in memory") == true, "\(refused as Any)")
            #expect(readFile(file) == Array("hello".utf8))
            #expect(try await running.client.list() == [path])
            return true
        }
        #expect(isDone == true)
    }

    @Test func `accepts no file that is not ours, and nothing if there is none`() async throws {
        let running = try await Running.start()
        let own = try await running.download(server.url("/own"))
        let file = try await running.client.wait(own)
        writeFile(running.file("diary"), "private".utf8)
        rename(running.file("diary"), file)
        let error = await thrown { try await trash(running, own) }
        #expect(error?.name == todokuError("NotAllowed") && error.map(isSentence) == true, "\(error as Any)")
        #expect(readFile(file) == Array("private".utf8))
        unlink(file)
        try await trash(running, own)  // already gone: acts like Remove
        let held = try await running.download(server.url("/held"), ["start": .bool(false)])
        try await trash(running, held)
        #expect(try await running.client.list() == [])
        #expect(await running.client.signals.until { $0.contains { $0.ended?.path == held && $0.ended?.outcome == "cancelled" } })
        #expect(!fileExists(running.world.bus.folder("data/Trash")))
    }
}
