import Glibc
import TestSupport
import Testing

@Suite(.serialized) struct `todoku asset` {
    /// A server with a manifest at /m.json and the archive at /1.tar.
    private func server(_ folder: TemporaryFolder) async -> ScriptedServer {
        writeFile(folder("hello"), "hello".utf8)
        let made = await Child.run(["tar", "-C", folder.path, "-cf", folder("1.tar"), "hello"])
        #expect(made.status == 0, "\(made.errors)")
        let digest = (await Child.run(["sha256sum", folder("1.tar")])).output.prefix(64)
        writeFile(folder("m.json"), #"{"version": "2026.1", "url": "1.tar", "sha256": "\#(digest)"}"#.utf8)
        return ScriptedServer { request, reply in
            guard let file = readFile(folder(String(request.path.dropFirst()))) else { return reply.respond(404) }
            reply.respond(200, body: file)
        }
    }

    @Test func `registers, checks, updates, lists, shows and removes`() async throws {
        let (desk, folder) = (await Desk(), TemporaryFolder())
        let server = await server(folder)
        let asset = "org.example.App/maps"
        let path = desk.bus.folder("data/todoku/assets/org.example.App/maps/current")
        #expect(await desk.run("asset", "add", asset, server.url("/m.json")).succeeded(saying: "\(path)\n"))
        #expect(await desk.run("asset", "check", asset).succeeded(saying: "2026.1\n"))
        let updated = await desk.run("asset", "update", asset)
        #expect(updated.status == 0 && updated.output == "\(path)\n" && updated.errors.hasPrefix("\(asset) checking\n"), "\(updated)")
        #expect(updated.errors.hasSuffix("\(asset) ready 2026.1\n"), "\(updated)")
        #expect(readFile("\(path)/hello") == Array("hello".utf8))
        #expect(await desk.run("asset", "check", "--exit-code", asset).status == 4)
        let list = await desk.run("asset", "list")
        #expect(list.output == "NAME                  STATE       VERSION\n\(asset)  up-to-date  2026.1\n", "\(list)")
        #expect(JSON(await desk.run("asset", "show", "--json", asset).output)?["installed-version"]?.string == "2026.1")
        #expect((await desk.run("asset", "show", asset)).output.contains("stage             ready\n"))
        #expect(await desk.run("asset", "rollback", asset).status == 3)
        #expect(await desk.run("asset", "remove", "--delete-data", asset).succeeded(saying: ""))
        #expect(!fileExists(path))
        #expect(await desk.run("asset", "list").succeeded(saying: ""))
        await desk.close()
    }

    @Test func `exits with 1 after a failed update, 3 after a refusal, 2 for a wrong command line`() async throws {
        let (desk, folder) = (await Desk(), TemporaryFolder())
        let server = await server(folder)
        let asset = "org.example.App/maps"
        #expect(await desk.run("asset", "add", asset, server.url("/none.json")).status == 0)
        let failed = await desk.run("asset", "update", "--json", asset)
        let last = JSON(String(failed.output.split(separator: "\n").last ?? ""))
        #expect(failed.status == 1 && last?["error"]?["name"]?.string == "org.todoku.Error.HttpStatus", "\(failed)")
        #expect(last?["asset"]?.string == asset)
        #expect(await desk.run("asset", "add", asset, "ftp://h/x").status == 3)
        for verb in ["show", "check", "update", "rollback", "cancel"] {
            let unknown = await desk.run("asset", verb, "org.example.App/none")
            let sentence = "todoku: there is no asset org.example.App/none; “todoku asset list” shows all assets\n"
            #expect(unknown.status == 3 && unknown.errors == sentence, "\(verb): \(unknown)")
        }
        for wrong in [
            ["add", "maps", "http://h/m"], ["add", asset, "http://h/m", "--update", "hourly"],
            ["add", asset, "http://h/m", "--public-key", "1"], ["check", "maps"],
        ] {
            let exit = await desk.start(["asset"] + wrong).wait()
            #expect(exit.status == 2, "\(wrong): \(exit)")
        }
        await desk.close()
    }
}
