internal import DBus
internal import DownloadModel
internal import DownloaderInterface
internal import EventLoop
internal import TestSupport
internal import Testing

@Suite(.timeLimit(.minutes(10))) struct `The toast of an asset` {
    @Test func `names it and its version, once for each version`() async throws {
        let desk = try await Desk.start()
        let toasts = try await OddServer(name: "Plasma", at: desk.running.world.bus.address)
        try await desk.client.set(Manager.language, Language.english.rawValue)
        let silent = try await desk.register("silent", ["notify": .string("never")])
        let asset = try await desk.register("maps", ["notify": .string("always")])
        for version in ["1", "2"] {
            await desk.publisher.publish(version)
            try await desk.update(silent)
            try await desk.update(asset)
        }
        try await desk.update(asset)
        #expect(await eventually { await toasts.received.contains { $0.body == "maps 2" } })
        let received = await toasts.received
        #expect(received.map(\.body) == ["maps 1", "maps 2"], "\(received)")
        #expect(received.allSatisfy { $0.summary == "New data is ready" }, "\(received)")
    }

    @Test func `has the words of the registration, and none comes for an update that fails`() async throws {
        let desk = try await Desk.start()
        let toasts = try await OddServer(name: "gnome-shell", at: desk.running.world.bus.address)
        let asset = try await desk.register(
            "maps", ["notify": .string("always"), "title": .string("New maps"), "body": .string("They are ready to be used.")])
        desk.publisher.manifest("{}")
        #expect(await thrown { try await desk.update(asset) }?.name == todokuError("Manifest"))
        await desk.publisher.publish("1")
        try await desk.update(asset)
        #expect(await eventually { await !toasts.received.isEmpty })
        let received = await toasts.received
        #expect(received.count == 1 && received[0].summary == "New maps" && received[0].body == "They are ready to be used.", "\(received)")
    }

    @Test func `comes in the background only if its app is not in front`() async throws {
        let desk = try await Desk.start()
        let toasts = try await OddServer(name: "dunst", at: desk.running.world.bus.address)
        let asset = try await desk.register("maps", ["notify": .string("background")])
        func update(to version: String) async throws {
            await desk.publisher.publish(version)
            #expect(try await desk.update(asset).0)
        }
        try await update(to: "1")
        #expect(await eventually { await toasts.received.last?.body == "maps 1" })
        // The app in front shows the new version itself. A toast for it would come before that of the version after it.
        try await desk.client.call(Manager.setForeground, (Desk.app, true))
        try await update(to: "2")
        try await desk.client.call(Manager.setForeground, (Desk.app, false))
        try await update(to: "3")
        #expect(await eventually { await toasts.received.last?.body == "maps 3" })
        #expect(await toasts.received.map(\.body) == ["maps 1", "maps 3"])
    }
}
