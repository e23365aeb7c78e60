import EventLoop
import Glibc
import TestSupport
import Testing
import TodokuClient

@Suite struct `A finished download in the tray` {
    @Test func `is opened by the service, which opens no other file of its name`() async throws {
        let opened = TemporaryFolder("todoku-opened")
        writeFile(opened("xdg-open"), "#!/bin/sh\necho \"$1\" >>\(opened("log"))\n".utf8, mode: 0o755)
        func hasOpened(_ paths: [String]) async -> Bool {
            await eventually { readFile(opened("log")) == Array(paths.map { "\($0)\n" }.joined().utf8) }
        }
        let world = try await TrayWorld(extra: ["PATH": "\(opened.path):\(processEnvironment()["PATH"] ?? "/usr/bin:/bin")"])
        let panel = try await world.panel()
        let (_, item) = try await world.start(on: panel)
        let server = ScriptedServer { _, reply in reply.respond(200, text: "12345") }
        let path = try await world.client.wait(for: try await world.download(server.url("/a.txt")))
        let folder = path.split(separator: "/").dropLast().reduce("") { "\($0)/\($1)" }
        #expect(await item.shows("a.txt — 5 B"))
        try await item.click(try await item.entry("a.txt — 5 B"))
        #expect(await hasOpened([path]))
        // Another program puts a file of its own there.
        writeFile("\(folder)/other", "12345".utf8)
        #expect(rename("\(folder)/other", path) == 0)
        try await item.click(try await item.entry("a.txt — 5 B"))
        #expect(await hasOpened([path, folder]))
    }
}
