internal import DBus
internal import DownloaderInterface
internal import EventLoop
internal import Glibc
internal import TestSupport
internal import Testing

@Suite struct `With xfce4-notifyd` {
    @Test func `a click with the mouse opens the file, and another tries again`() async throws {
        let display = await Display()
        let opener = FakeOpener()
        let running = try await Running.start(extra: ["DISPLAY": display.name, "PATH": opener.path])
        let notifyd = await XfceNotifyd(on: running.world.bus, display)
        let gate = Gate()
        let server = ScriptedServer { request, reply in
            switch request.path {
            case "/bad" where !gate.isOpen: reply.respond(503)
            default: reply.respond(200, text: "12345")
            }
        }
        let always: [String: Variant] = ["notify": .string("always")]
        let file = try await running.fetch(server.url("/%E5%86%99%E7%9C%9F%20%3Cb%3E%26.txt"), always)
        #expect(await eventually { await notifyd.windows().count == 1 })
        await display.screenshot(productPath("service-finished-xfce4-notifyd.png"))
        // Clicks the first of two buttons. The button exists with its window, but may be drawn a moment later.
        let isOpened = await eventually {
            if let window = await notifyd.windows().first { await notifyd.click(window, .first) }
            return await eventually(within: .seconds(2)) { opener.opened == [file] }
        }
        #expect(isOpened, "\(opener.opened)")
        #expect(await eventually { await notifyd.windows().isEmpty })

        let bad = try await running.download(server.url("/bad"), always.merging(["retries": .uint32(0)]) { $1 })
        _ = await thrown { try await running.client.wait(bad) }
        #expect(await eventually { await notifyd.windows().count == 1 })
        await display.screenshot(productPath("service-failed-xfce4-notifyd.png"))
        gate.open()
        let hasFinished = await eventually {
            if let window = await notifyd.windows().first { await notifyd.click(window, .last) }
            return await running.client.signals.has("Finished", at: bad, within: .seconds(2))
        }
        #expect(hasFinished)
        #expect(try await running.client.get(Download.attempts, at: bad) == 2)
        #expect(opener.opened == [file])
        await notifyd.stop()
    }
}
