internal import DBus
internal import DownloadModel
internal import DownloaderInterface
internal import EventLoop
internal import TestSupport
internal import Testing

@Suite(.timeLimit(.minutes(3))) struct `The toast of an asset` {
    @BusActor @Test func `says its title, or what it is, and only if its app is not in front`() async throws {
        let desk = try await Desk.start()
        let toasts = try OddServer(name: "dunst", at: desk.running.world.bus.address)
        try await desk.client.set(Manager.language, Language.english.rawValue)
        let asset = try await desk.register("maps", ["notify": .string("background")])
        func update(to version: String) async throws {
            await desk.publisher.publish(version)
            #expect(try await desk.update(asset).0)
        }
        try await update(to: "1")
        #expect(await eventually { toasts.received.last?.body == "maps 1" })
        #expect(toasts.received.last?.summary == "New data is ready")

        // The app in front shows the new version itself. A toast for it would come before that of the version after it.
        try await desk.client.call(Manager.setForeground, (Desk.app, true))
        try await update(to: "2")
        try await desk.client.call(Manager.setForeground, (Desk.app, false))
        _ = try await desk.register("maps", ["notify": .string("background"), "title": .string("New maps")])
        try await update(to: "3")
        #expect(await eventually { toasts.received.last?.body == "maps 3" })
        #expect(toasts.received.map(\.body) == ["maps 1", "maps 3"])
        #expect(toasts.received.last?.summary == "New maps")
    }
}
