internal import DBus
internal import DownloaderInterface
internal import EventLoop
internal import Glibc
internal import TestSupport
internal import Testing

@Suite struct `With xfce4-notifyd` {
    private static let settings = """
        <?xml version="1.0" encoding="UTF-8"?>
        <channel name="xfce4-notifyd" version="1.0">
          <property name="expire-timeout" type="int" value="3600"/>
        </channel>
        """

    @Test func `a click with the mouse opens the file, and another tries again`() async throws {
        let display = await Display()
        let opener = FakeOpener()
        let running = try await Running.start(extra: ["DISPLAY": display.name, "PATH": opener.path])
        // By default a toast stays for ten seconds, and a busy machine may click later.
        var folder = "config"
        for name in ["xfce4", "xfconf", "xfce-perchannel-xml"] {
            folder += "/\(name)"
            running.world.bus.folder.makeFolder(folder)
        }
        writeFile(running.world.bus.folder("\(folder)/xfce4-notifyd.xml"), Self.settings.utf8)
        let notifyd = await XfceNotifyd(on: running.world.bus, display)
        let (hasFailed, gate) = (Gate(), Gate())
        let server = ScriptedServer { request, reply in
            switch request.path {
            case "/bad" where !hasFailed.isOpen:
                hasFailed.open()
                reply.respond(503)
            case "/bad":
                gate.wait()
                reply.respond(200, text: "12345")
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
        // While the download runs, its end has no toast whose buttons the next click could hit.
        let isTriedAgain = await eventually {
            if let window = await notifyd.windows().first { await notifyd.click(window, .last) }
            return await running.client.signals.isIn("active", bad, within: .seconds(2))
        }
        #expect(isTriedAgain)
        gate.open()
        _ = try await running.client.wait(bad)
        #expect(try await running.client.get(Download.attempts, at: bad) == 2)
        #expect(opener.opened == [file])
        await notifyd.stop()
    }
}
