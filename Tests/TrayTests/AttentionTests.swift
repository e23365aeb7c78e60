import DownloadModel
import EventLoop
import StatusNotifier
import TestSupport
import Testing
import TodokuClient

@Suite struct `The mark of a failure` {
    @Test func `stays while the wheel changes the speed limit, and goes with a click on the icon`() async throws {
        let world = try await TrayWorld()
        let panel = try await world.panel()
        let (_, item) = try await world.start(on: panel)
        let gate = Gate()
        defer { gate.open() }
        let server = ScriptedServer { request, reply in
            if request.path.hasPrefix("/gone") { return reply.respond(404) }
            reply.head(200, length: 200_000)
            reply.send(patternBytes(100_000))
            gate.wait()
        }
        _ = try await world.download(server.url("/a.zip"))
        #expect(await item.shows("a.zip — 50 %"))
        _ = try? await world.client.wait(for: try await world.download(server.url("/gone.zip")))
        // The signal of the end may come before a list that has the failure.
        #expect(await item.shows("gone.zip — failed"))
        #expect(await eventually { (try? await item.get(ItemInterface.status)) == "NeedsAttention" })
        try await item.call(ItemInterface.scroll, (-120, "vertical"))
        #expect(await eventually { (try? await world.client.status().settings.speedLimit) == 50 << 20 })
        #expect(try await item.get(ItemInterface.status) == "NeedsAttention")
        try await item.call(ItemInterface.secondaryActivate, (1, 2))
        #expect(try await eventually { try await ["Active", "Passive"].contains(item.get(ItemInterface.status)) })
    }
}
