import DownloadModel
import Glibc
import TestSupport
import Testing
import TodokuClient

@testable import todoku

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
        let refused = await desk.run("asset", "add", "--json", asset, "ftp://h/x")
        #expect(refused.status == 3 && JSON(refused.output)?["asset"]?.string == asset, "\(refused)")
        for verb in ["show", "check", "update", "rollback", "cancel"] {
            let unknown = await desk.run("asset", verb, "org.example.App/none")
            #expect(unknown.status == 3 && unknown.errors == "todoku: \(Desk.noAsset("org.example.App/none"))\n", "\(verb): \(unknown)")
            let json = await desk.run("asset", verb, "--json", "org.example.App/none")
            #expect(JSON(json.output)?["asset"]?.string == "org.example.App/none", "\(verb): \(json)")
        }
        for wrong in [
            ["add", "maps", "http://h/m"], ["add", asset, "http://h/m", "--update", "hourly"],
            ["add", asset, "http://h/m", "--public-key", "1"], ["check", "maps"],
            ["add", asset, "http://h/m", "--proxy", "ftp://h"], ["add", asset, "http://h/m", "-H", "secret"],
            ["add", asset, "http://h/m", "--user", "me", "--password-file", "-", "--load-cookies", "-"],
        ] {
            let exit = await desk.start(["asset"] + wrong).wait()
            #expect(exit.status == 2, "\(wrong): \(exit)")
        }
        await desk.close()
    }

    @Test func `leaves all updates to the service at Ctrl-C, and names them`() async throws {
        let (desk, folder, gate) = (await Desk(), TemporaryFolder(), Gate())
        writeFile(folder("hello"), [UInt8](repeating: 7, count: 200_000))
        let made = await Child.run(["tar", "-C", folder.path, "-cf", folder("1.tar"), "hello"])
        let digest = (await Child.run(["sha256sum", folder("1.tar")])).output.prefix(64)
        #expect(made.status == 0, "\(made.errors)")
        let manifest = #"{"version": "2026.1", "url": "1.tar", "sha256": "\#(digest)"}"#
        let server = ScriptedServer { request, reply in
            guard request.path == "/1.tar", let file = readFile(folder("1.tar")) else { return reply.respond(200, text: manifest) }
            reply.head(200, length: file.count)
            reply.send(file[..<100_000])
            gate.wait()
            reply.send(file[100_000...])
        }
        let assets = ["org.example.App/maps", "org.example.App/voices"]
        for asset in assets { #expect(await desk.run("asset", "add", asset, server.url("/m.json")).status == 0) }
        let update = desk.start(["asset", "update"] + assets)
        for asset in assets { #expect(await update.complains("\(asset) downloading\n")) }
        update.signal(SIGINT)
        let exit = await update.wait()
        let names = assets.joined(separator: " ")
        let farewell = """
            todoku: 2 updates continue in the background; “todoku asset list” shows them, and “todoku asset cancel \(names)” cancels them

            """
        #expect(exit.status == 130 && exit.errors.hasSuffix(farewell), "\(exit)")
        // One that is unknown keeps the command from cancelling none of the others.
        let cancelled = await desk.start(["asset", "cancel", "org.example.App/none"] + assets).wait()
        #expect(cancelled.status == 3 && cancelled.errors == "todoku: \(Desk.noAsset("org.example.App/none"))\n", "\(cancelled)")
        for asset in assets {
            let isCancelled = await eventually {
                JSON(await desk.run("asset", "show", "--json", asset).output)?["stage"]?.string == "cancelled"
            }
            #expect(isCancelled, "\(asset)")
        }
        gate.open()
        await desk.close()
    }

    @Test func `updates more assets than one connection may have waiting calls`() async throws {
        let (desk, gate) = (await Desk(), Gate())
        let server = ScriptedServer { _, reply in
            gate.wait()
            reply.respond(404)
        }
        let client = try await DownloaderClient.connect(to: desk.bus.address)
        // An application may register 100 assets.
        let keys = try (0..<257).map { try AssetKey(app: "org.example.App\($0 / 100)", name: "maps\($0)") }
        for key in keys { _ = try await client.registerAsset(key, manifest: server.url("/m.json")) }
        let calls = await Calls(of: desk)
        let update = desk.start(["asset", "update", "--quiet"] + keys.map { "\($0)" })
        #expect(await eventually { calls.count("Update") >= 256 || !update.isRunning }, "\(update.errors)")
        gate.open()
        let exit = await update.wait()
        // A call that is refused would exit with 3.
        #expect(exit.status == 1 && exit.errors.split(separator: "\n").count == 257, "\(exit)")
        await desk.close()
    }

    @Test func `asks with the header, the cookies, the credentials and the proxy that it was given`() async {
        let (desk, folder) = (await Desk(), TemporaryFolder())
        let digest = String(repeating: "0", count: 64)
        let server = ScriptedServer { request, reply in
            guard request.field("Authorization") != nil else {
                return reply.respond(401, ["WWW-Authenticate": "Basic realm=\"maps\""])
            }
            reply.respond(200, text: #"{"version": "2026.1", "url": "1.tar", "sha256": "\#(digest)"}"#)
        }
        let (asset, url) = ("org.example.App/maps", "http://maps.example/m.json")
        writeFile(folder("cookies"), "maps.example\tFALSE\t/\tFALSE\t0\town\t1\n".utf8)
        writeFile(folder("password"), "secret\n".utf8)
        let added = await desk.run(
            "asset", "add", asset, url, "-H", "X-Key: k", "--user-agent", "Game/1", "--load-cookies", folder("cookies"),
            "--user", "me", "--password-file", folder("password"), "--proxy", server.url())
        #expect(added.status == 0 && added.errors == "", "\(added)")
        #expect(await desk.run("asset", "check", asset).succeeded(saying: "2026.1\n"))
        let request = server.requests.last
        #expect(request?.target == url)
        #expect(request?.field("Authorization") == "Basic bWU6c2VjcmV0")
        #expect(request?.field("X-Key") == "k" && request?.field("User-Agent") == "Game/1" && request?.field("Cookie") == "own=1")
        await desk.close()
    }

    @Test func `is told when the first cookie of its site expires`() async {
        let (desk, folder) = (await Desk(), TemporaryFolder())
        let domains = [("other.example", 4_000_000_000), ("www.maps.example", 4_102_444_800), ("maps.example", 4_200_000_000)]
        let lines = domains.map { "\($0)\tFALSE\t/\tFALSE\t\($1)\town\t1\n" }
        writeFile(folder("cookies"), lines.joined().utf8)
        let words = ["asset", "add", "org.example.App/maps", "http://maps.example/m.json", "--load-cookies", folder("cookies")]
        let added = await desk.start(words).wait()
        let expiry = Clock.text(WallTime(microseconds: 4_102_444_800_000_000))
        let sentence =
            "todoku: the first cookie for www.maps.example expires at \(expiry); register the asset again with fresh cookies before that\n"
        #expect(added.status == 0 && added.errors == sentence, "\(added)")
        #expect(await desk.start(words + ["--json"]).wait().errors == "")
        writeFile(folder("cookies"), (lines[0] + "maps.example\tFALSE\t/\tFALSE\t0\town\t1\n").utf8)
        #expect(await desk.start(words).wait().errors == "")
        await desk.close()
    }
}
