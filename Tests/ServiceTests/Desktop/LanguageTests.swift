internal import DBus
internal import DownloaderInterface
internal import TestSupport
internal import Testing

@Suite struct `The language of the service` {
    /// A busy machine may take long from one call to the next.
    private static let stays = ["--idle-exit", "3600"]

    @Test func `is the property’s from the next toast on, and still after a restart`() async throws {
        let display = await Display()
        // The session's locale counts only if the property says so, and need not be installed.
        let world = await ServiceWorld(extra: ["DISPLAY": display.name, "LC_ALL": "C"])
        let client = try await world.client()
        var daemon = await world.start(Self.stays)
        let dunst = await Dunst(on: world.bus, display)
        let server = ScriptedServer { request, reply in reply.respond(request.path == "/bad" ? 404 : 200, text: "12345") }
        // On a busy machine, any download may take long enough for a toast of its progress.
        let options: [String: Variant] = [
            "directory": .string(world.folder), "notify": .string("always"), "show-progress": .bool(false),
        ]
        var shown = 0
        func toast(_ path: String) async throws -> [String: JSON] {
            _ = await thrown { try await client.wait(try await client.download(server.url(path), options)) }
            #expect(await eventually { await dunst.displayed() == 1 }, "\(path)")
            // An exit waits only two seconds for dunst's answer, and the next process shows a toast without an answer again.
            #expect(await world.isSettled())
            await dunst.control("close-all")
            shown += 1
            #expect(await eventually { await dunst.history().count == shown })
            return try #require(await dunst.history().first)
        }
        #expect(try await toast("/a")["summary"]?.string == "ダウンロードが完了しました")
        try await client.set(Manager.language, "en")
        let finished = try await toast("/b")
        #expect(finished["summary"]?.string == "Download complete")
        #expect(finished["body"]?.string?.hasPrefix("b (5 B)") == true, "\(finished)")
        let failed = try await toast("/bad")
        #expect(failed["summary"]?.string == "Download failed")
        #expect(failed["body"]?.string?.hasSuffix("\nThe server answered with an error (HTTP 404).") == true, "\(failed)")

        #expect(await world.stop(daemon).isClean)
        daemon = await world.start(Self.stays, extra: ["LC_ALL": "", "LANG": "ja_JP.UTF-8"])
        #expect(try await toast("/c")["summary"]?.string == "Download complete")
        try await client.set(Manager.language, "auto")
        #expect(try await toast("/d")["summary"]?.string == "ダウンロードが完了しました")
        #expect(await world.stop(daemon).isClean)
        daemon = await world.start(Self.stays, extra: ["LC_ALL": "", "LANG": "de_DE.UTF-8"])
        #expect(try await toast("/e")["summary"]?.string == "Download complete")
        try await client.set(Manager.language, "ja")
        #expect(try await toast("/f")["summary"]?.string == "ダウンロードが完了しました")
        // Texts for programs are English in any language.
        let error = await thrown { try await client.wait(try await client.download(server.url("/bad"), options)) }
        #expect(error?.message.utf8.allSatisfy { $0 < 0x80 } == true, "\(String(describing: error))")
        await dunst.stop()
        #expect(await world.stop(daemon).isClean)
    }
}
