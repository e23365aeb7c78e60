import DownloadModel
import EventLoop
import TestSupport
import Testing
import TodokuClient

@Suite struct `In xfce4-panel` {
    private static let blue = "#3D9AE8"
    private static let amber = "#E8A32C"
    private static let red = "#E53E3E"

    /// As `eventually`. Each look at the screen starts two programs, which may take many seconds on a busy machine.
    private func comes(_ condition: () async -> Bool) async -> Bool { await eventually(within: .seconds(240), condition) }

    @Test func `the tray shows its ring and its menu, and performs the chosen entry`() async throws {
        let display = await Display()
        let world = try await TrayWorld(extra: ["DISPLAY": display.name, "NO_AT_BRIDGE": "1"], names: XfcePanel.activatable)
        let panel = await XfcePanel(on: world.bus, display)
        let gate = Gate()
        let body = patternBytes(200_000)
        let server = ScriptedServer { request, reply in
            if request.path == "/gone" { return reply.respond(404) }
            if request.range == nil {
                reply.head(200, ["ETag": "\"v\""], length: body.count)
                reply.send(body[..<(body.count / 2)])
            }
            gate.wait()
            if request.range == nil { reply.send(body[(body.count / 2)...]) } else { reply.serve(body, for: request) }
        }
        let program = await world.start()
        _ = try await world.download(server.url("/写真_1.zip"))
        // Half of the ring is lit: the right half.
        #expect(await comes { await panel.places(of: Self.blue).count > 20 })
        let lit = await panel.places(of: Self.blue)
        let (left, right) = (lit.map(\.x).min() ?? 0, lit.map(\.x).max() ?? 0)
        #expect(right - left < 22 && lit.allSatisfy { $0.y > 280 }, "\(left) … \(right)")

        await panel.act("mousemove", "\(right - 5)", "\(lit[lit.count / 2].y)", "click", "3")
        // The menu is above the panel.
        #expect(await comes { await panel.places(of: "#FFFFFF").count > 10_000 })
        await display.screenshot(productPath("tray-xfce4-panel.png"))
        // The first entry is disabled. So these keys choose "Pause all", after the download.
        await panel.act("key", "Down")
        await panel.act("key", "Down")
        await panel.act("key", "Return")
        #expect(await eventually { (try? await world.client.status().isPaused) == true })
        #expect(await comes { await !panel.places(of: Self.amber).isEmpty })

        // A middle click resumes all.
        await panel.act("mousemove", "\(right - 5)", "\(lit[lit.count / 2].y)", "click", "2")
        #expect(await eventually { (try? await world.client.status().isPaused) == false })
        _ = try await world.download(server.url("/gone"))
        #expect(await comes { await !panel.places(of: Self.red).isEmpty })
        gate.open()
        #expect(program.isRunning && program.errors == "")
        await panel.stop()
    }
}
