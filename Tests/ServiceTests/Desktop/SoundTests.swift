internal import DBus
internal import DownloaderInterface
internal import EventLoop
internal import TestSupport
internal import Testing

@Suite struct `The sound of an end` {
    private let always: [String: Variant] = ["notify": .string("always")]

    @Test func `is heard once for a download, once for many at once, and not where silence was asked for`() async throws {
        let speakers = await Speakers()
        let running = try await Running.start(extra: speakers.environment)
        let toasts = try await OddServer(name: "Plasma", at: running.world.bus.address)
        let server = ScriptedServer { _, reply in reply.respond(200, text: "12345") }
        // Start with silence, so that no earlier sound can be mistaken for this one.
        _ = try await running.fetch(server.url("/silent"), always.merging(["sound": .string("")]) { $1 })
        #expect(await eventually { await toasts.received.count == 1 })
        let silent = await toasts.received[0].hints
        #expect(silent["suppress-sound"] == .bool(true) && silent["sound-name"] == nil)
        _ = try await running.fetch(server.url("/a"), always)
        #expect(await eventually { speakers.ended == 1 })
        // A quarter of full scale; silence is 0.
        // The recorder may write later than the sound ends.
        #expect(await eventually { speakers.loudest > 3000 }, "\(speakers.loudest)")
        #expect(speakers.begun == 1)
        // The sound is played once: the server is told to be silent.
        #expect(await toasts.received[1].hints["suppress-sound"] == .bool(true))
        // At least a second has passed since the last sound. At most one of these sounds is played in each second.
        let start = ContinuousClock.now
        var paths: [ObjectPath] = []
        for number in 0..<10 { paths.append(try await running.download(server.url("/\(number)"), always)) }
        for path in paths { _ = try await running.client.wait(path) }
        #expect(await eventually { await toasts.received.count == 12 })
        let most = 1 + Int(start.duration(to: .now) / .seconds(1))
        #expect(await eventually { speakers.begun > 1 && speakers.ended == speakers.begun })
        #expect((2...1 + most).contains(speakers.begun), "\(speakers.begun) for 11 ends, the last ten in \(most) s")
        #expect(await running.daemon.stop().isClean)
        await speakers.stop()
    }

    @Test func `is left to a server that plays it`() async throws {
        let speakers = await Speakers()
        let running = try await Running.start(extra: speakers.environment)
        let toasts = try await OddServer(name: "gnome-shell", at: running.world.bus.address)
        let server = ScriptedServer { _, reply in reply.respond(200, text: "12345") }
        _ = try await running.fetch(server.url("/a"), always)
        #expect(await eventually { await toasts.received.count == 1 })
        #expect(await toasts.received[0].hints["sound-name"] == .string("complete-download"))
        #expect(await toasts.received[0].hints["suppress-sound"] == nil)
        // A server that plays no sounds gets ours; this is the first.
        // The service has the answer, and with it the time of the last sound, before the server leaves.
        #expect(await running.world.isSettled())
        await toasts.vanish()
        #expect(await running.world.bus.waitForOwner("org.freedesktop.Notifications", present: false))
        let other = try await OddServer(name: "Plasma", at: running.world.bus.address)
        await pause(milliseconds: 1100)  // no two sounds in one second
        _ = try await running.fetch(server.url("/b"), always)
        #expect(await eventually { await other.received.count == 1 })
        #expect(await eventually { speakers.ended == 1 })
        #expect(speakers.begun == 1)
        #expect(await running.daemon.stop().isClean)
        await speakers.stop()
    }

    @Test func `is silent if nothing can play it`() async throws {
        // No sound server answers at that socket.
        let running = try await Running.start(
            ["--log-level", "debug"], extra: ["CANBERRA_DRIVER": "pulse", "PULSE_SERVER": "unix:/nonexistent"])
        let toasts = try await OddServer(name: "Plasma", at: running.world.bus.address)
        let server = ScriptedServer { _, reply in reply.respond(200, text: "12345") }
        _ = try await running.fetch(server.url("/a"), always)
        #expect(await eventually { await toasts.received.count == 1 })
        // The service tried to play the sound, and continues without it.
        #expect(await eventually { running.daemon.errors.contains("sound was not played") }, "\(running.daemon.errors)")
        #expect(await running.daemon.stop().status == 0)
    }
}
