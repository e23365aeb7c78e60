internal import DBus
internal import DownloaderInterface
internal import Glibc
internal import TestSupport
internal import Testing

/// Toasts that the desktop has taken over (`org.gtk.Notifications`). Here, a toast keeps the service for only one second.
@Suite(.timeLimit(.minutes(10))) struct `A toast that was handed over` {
    private let server = ScriptedServer { request, reply in
        if request.path.hasPrefix("/bad") { reply.respond(404) } else { reply.respond(200, text: "hello") }
    }
    private let busy = ScriptedServer { request, reply in
        if request.number < 2 { reply.respond(503) } else { reply.respond(200, text: "hello") }
    }

    private struct Session {
        let world: ServiceWorld
        let opener = StandInOpener()
        let client: Client
        let toasts: OddServer
        let desktop: StandInGtkNotifications

        /// - Parameter activation: options of the daemon that the bus starts.
        init(activation: String? = nil) async throws {
            world = await ServiceWorld(activation: activation, extra: ["PATH": opener.path])
            client = try await world.client()
            toasts = try await OddServer(name: "gnome-shell", at: world.bus.address)
            desktop = try await StandInGtkNotifications(on: world.bus.address)
        }

        func options(_ more: [String: Variant] = [:]) -> [String: Variant] {
            ["directory": .string(world.folder), "notify": .string("always"), "retries": .uint32(0)].merging(more) { $1 }
        }

        /// Waits until `count` toasts have been handed over, and have left the screen. After a slow call, as on a busy machine, the service
        /// closes no toast for a minute. So only for a service that stays.
        func hasHandedOver(_ count: Int) async -> Bool {
            await eventually(within: .seconds(150)) { min(await desktop.toasts.count, await toasts.closed.count) >= count }
        }
    }

    @Test func `retries all failed members of a batch, only by its button`() async throws {
        let session = try await Session(activation: "--idle-exit 1 --toast-keep 1")
        let client = session.client
        let (batch, members) = try await client.batch([(busy.url("/1"), [:]), (busy.url("/2"), [:])], session.options())
        #expect(try await client.wait(batch: batch) == [0, 2, 0])
        #expect(await eventually { await session.desktop.toasts.count == 1 })
        // A click to dismiss the toast names only the application (on GNOME), and retries nothing.
        try await session.desktop.click()
        for member in members { #expect(try await client.get(Download.state, at: member) == "failed") }
        try await session.desktop.pressOnOldest()
        #expect(try await client.wait(batch: batch) == [2, 0, 0])
        // Nothing is left to retry. The toast of the completed batch can be on the screen by now: it has no such button.
        let error = await thrown { try await session.desktop.pressOnOldest() }
        #expect(error?.name == todokuError("InvalidState") && error.map(isSentence) == true, "\(error as Any)")
        let (held, _) = try await client.batch([(server.url("/3"), ["start": .bool(false)])], session.options())
        let none = await thrown { try await client.call(Application.activateAction, ("retry", [.objectPath(held)], [:])) }
        #expect(none?.name == todokuError("InvalidState"), "\(none as Any)")
    }

    @Test func `is one whose click would be lost after the service exits`() async throws {
        let session = try await Session(activation: "--toast-keep 3600")
        let begun = ContinuousClock.now
        let done = try await session.client.wait(try await session.client.download(server.url("/done.txt"), session.options()))
        // This toast cannot be clicked. When it arrives, the service knows the fate of the previous toast.
        _ = await thrown { try await session.client.wait(try await session.client.download(server.url("/bad"), session.options())) }
        #expect(await eventually { await session.toasts.received.count == 2 })
        let ending = ContinuousClock.now
        #expect(await session.world.bus.end(BusName.service, by: SIGTERM))
        // The exit waits a second for the desktop's answer, and leaves its own toast on screen if none comes. It does the same if a call to
        // the notification server has taken five seconds. Both happen on a busy machine only.
        let isQuick = ending.duration(to: .now) < .seconds(1) && begun.duration(to: .now) < .seconds(5)
        #expect(await eventually { await session.desktop.toasts.count == 1 })
        let closed = await session.toasts.closed
        #expect(closed == [1] || !isQuick && closed == [], "\(closed)")
        try await session.desktop.click()
        #expect(await session.opener.hasOpened(1))
        #expect(session.opener.opened.first?.hasPrefix("\(done)|") == true)
    }

    @Test func `is handed over once, also if the service is told to exit before the desktop has answered`() async throws {
        let session = try await Session(activation: "--toast-keep 1")
        await session.desktop.hold()
        let done = try await session.client.wait(try await session.client.download(server.url("/done.txt"), session.options()))
        #expect(await eventually { await session.desktop.toasts.count == 1 })
        #expect(await session.world.bus.end(BusName.service, by: SIGTERM))
        // The answer to the click comes after all that the ended service has sent.
        try await session.desktop.click()
        #expect(await session.opener.hasOpened(1))
        #expect(session.opener.opened.first?.hasPrefix("\(done)|") == true)
        #expect(await session.desktop.toasts.count == 1, "it was offered a second time")
        #expect(await session.desktop.removed == [])
    }

    @Test func `leaves the screen, and closes with its download, also if the desktop accepted it late`() async throws {
        let session = try await Session()
        let daemon = await session.world.start(["--toast-keep", "1"])
        await session.desktop.hold()
        let done = try await session.client.download(server.url("/done"), session.options())
        _ = try await session.client.wait(done)
        #expect(await eventually { await session.desktop.toasts.count == 1 })
        await pause(milliseconds: 6000)  // only time ends the patience with the desktop
        await session.desktop.answer()
        #expect(await session.hasHandedOver(1))
        try await session.client.remove(done)
        #expect(await eventually { await session.desktop.removed == session.desktop.toasts.map(\.id) })
        #expect(await session.world.stop(daemon).isClean)
    }

    @Test func `keeps the service for a few seconds only, if the desktop does not answer`() async throws {
        let session = try await Session(activation: "--idle-exit 1 --toast-keep 1")
        await session.desktop.hold()
        let done = try await session.client.download(server.url("/done"), session.options())
        _ = try await session.client.wait(done)
        #expect(await eventually { await session.desktop.toasts.count == 1 })
        #expect(await session.world.bus.waitForOwner(BusName.service, present: false))
    }

    @Test func `keeps the service for its own time, also if an equal toast was offered to the desktop just before`() async throws {
        let session = try await Session(activation: "--idle-exit 1 --toast-keep 3")
        await session.desktop.hold()
        let failed = try await session.client.download(busy.url("/failed"), session.options())
        _ = await thrown { try await session.client.wait(failed) }
        #expect(await eventually { await session.desktop.toasts.count == 1 })
        let begun = ContinuousClock.now
        try await session.client.retry(failed)
        #expect(await session.world.bus.waitForOwner(BusName.service, present: false))
        #expect(await session.toasts.received.count == 2)
        // Three seconds for a click, and five for an answer of the desktop.
        #expect(begun.duration(to: .now) >= .seconds(8))
    }

    @Test func `shows a name as the toast before it did`() async throws {
        let session = try await Session()
        let daemon = await session.world.start(["--toast-keep", "1"])
        _ = try await session.client.download(
            server.url("/a"), session.options(["title": .string("T\u{2067}"), "filename": .string("photo.jpg")]))
        #expect(await session.hasHandedOver(1))
        let (before, after) = (try #require(await session.toasts.received.first), try #require(await session.desktop.toasts.first).content)
        #expect(after["title"] == .string(before.summary) && before.summary == "T")
        #expect(after["body"] == .string(before.body) && before.body.hasPrefix("photo.jpg ("), "\(after) \(before)")
        #expect(await session.world.stop(daemon).isClean)
    }

    @Test func `closes with its download, or at a retry, also after the service has exited`() async throws {
        let session = try await Session()
        let (world, client, desktop) = (session.world, session.client, session.desktop)
        let first = await world.start(["--toast-keep", "1"])
        let done = try await client.download(server.url("/done"), session.options())
        _ = try await client.wait(done)
        let failed = try await client.download(busy.url("/failed"), session.options())
        _ = await thrown { try await client.wait(failed) }
        let (batch, _) = try await client.batch([(server.url("/member"), [:])], session.options())
        _ = try await client.wait(batch: batch)
        #expect(await session.hasHandedOver(3))
        #expect(await world.stop(first).isClean)
        #expect(await desktop.removed == [])
        let ids = await desktop.toasts.map(\.id)
        let second = await world.start(["--toast-keep", "3600"])
        try await client.remove(done)
        #expect(await eventually { await desktop.removed == [ids[0]] })
        try await client.retry(failed)
        #expect(await eventually { await desktop.removed == [ids[0], ids[1]] })
        try await client.call(Batch.remove, at: batch, false)
        #expect(await eventually { await desktop.removed == ids })
        #expect(await world.stop(second).isClean)
    }
}
