import TestSupport
import Testing

@Suite(.serialized) struct `An error as JSON` {
    @Test func `says which download, batch or URL it is about`() async throws {
        let desk = await Desk()
        let server = ScriptedServer { _, reply in reply.respond(404) }
        func objects(_ arguments: [String]) async -> [JSON] {
            let exit = await desk.start(arguments + ["--json"]).wait()
            #expect(exit.status != 0 && exit.errors == "", "\(exit)")
            return exit.output.split(separator: "\n").compactMap { JSON(String($0)) }.filter { $0["event"] == nil }
        }
        let missing = await objects(["show", "98", "org.example.App/x", "/org/todoku/Downloader1/batch/97"])
        #expect(missing.map { $0["download"]?.string } == ["98", "org.example.App/x", nil])
        #expect(missing.map { $0["batch"]?.string } == [nil, nil, "97"])
        #expect(missing.first?["error"]?["message"]?.string == Desk.noDownload(98))
        #expect(missing.last?["error"]?["message"]?.string == Desk.noBatch(97))

        writeFile(desk.bus.folder("list"), "\(server.url("/gone?key=secret"))\n".utf8)
        #expect(await desk.run("batch", "--wait", "--quiet", "--notify", "never", "list").status == 1)
        let ended = await objects(["pause", "1", "2"])
        #expect(ended.map { $0["batch"]?.string } == ["1", nil] && ended.map { $0["download"]?.string } == [nil, "2"], "\(ended)")
        let failed = await objects(["wait", "2"])
        #expect(failed.map { $0["download"]?.string } == ["2"], "\(failed)")

        let urls = await objects(["add", "nonsense", "ftp://example.org/a?key=secret"])
        #expect(urls.map { $0["url-number"]?.number } == [1, 2] && urls.first?["url"] == .null, "\(urls)")
        let option = await objects(["add", "--filename", "a/b", server.url("/x?key=secret")])
        #expect(option.map { $0["url"]?.string } == [server.url("/x")], "\(option)")
        let fetched = await objects(["fetch", server.url("/gone?key=secret")])
        #expect(fetched.map { $0["url"]?.string } == [server.url("/gone")] && fetched.first?["url-number"]?.number == 1, "\(fetched)")
        await desk.close()
    }

    @Test func `from a fetch suggests what is missing, as from get`() async throws {
        let desk = await Desk()
        let bare = await desk.run("fetch", "example.org/file")
        #expect(bare.status == 3 && bare.errors.hasSuffix(" Did you mean https://example.org/file?\n"), "\(bare)")
        let folder = await desk.run("fetch", "-d", desk.bus.folder("new"), "http://127.0.0.1:1/a")
        #expect(folder.status == 3 && folder.errors.hasSuffix(" does not exist. --parents makes it.\n"), "\(folder)")
        await desk.close()
    }
}
