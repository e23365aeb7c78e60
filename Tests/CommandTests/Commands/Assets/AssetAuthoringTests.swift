import EventLoop
import Glibc
import TestSupport
import Testing

/// A publisher's folder with levels, and the files packed from it.
private struct Studio {
    let desk: Desk
    let levels: String
    let output: String

    init() async {
        desk = await Desk()
        (levels, output) = (desk.bus.folder.makeFolder("levels"), desk.bus.folder.makeFolder("public"))
        writeFile("\(levels)/1.txt", "first".utf8)
        writeFile("\(levels)/big.bin", patternBytes(400_000))
        desk.bus.folder.makeFolder("levels/maps")
        writeFile("\(levels)/maps/地図.txt", "map".utf8)
    }

    /// Gives the first level another text in one step. Between the two steps of a write, the folder could be packed with an empty file.
    func replaceFirst(_ text: String) {
        writeFile(desk.bus.folder("1.txt.new"), text.utf8)
        #expect(rename(desk.bus.folder("1.txt.new"), "\(levels)/1.txt") == 0)
    }

    /// The command in the test's folder, with another umask or other variables.
    func run(_ arguments: [String], umask: String = "022", _ extra: [String: String] = [:]) async -> Child.Exit {
        await Child.run(
            ["sh", "-c", "umask \(umask); exec \"$@\"", "sh", Desk.command] + arguments,
            environment: desk.environment.merging(extra) { $1 }, folder: desk.bus.folder.path)
    }

    /// Runs a script of the shell in the test's folder; `$0` is the command.
    func sh(_ script: String, _ extra: [String: String]) async -> Child.Exit {
        await Child.run(
            ["sh", "-c", script, Desk.command], environment: desk.environment.merging(extra) { $1 }, folder: desk.bus.folder.path)
    }

    func pack(_ version: String, _ more: String...) async -> Child.Exit {
        await run(["asset", "pack", "levels", "--output", "public", "--version", version] + more)
    }

    /// Starts `todoku asset serve`, and returns the manifest's URL.
    func serve(_ arguments: String...) async throws -> (Child, url: String) {
        let server = desk.start(["asset", "serve"] + arguments)
        let isUp = await eventually { server.output.contains("todoku asset update") || !server.isRunning }
        try #require(isUp && server.isRunning, "\(server.errors)")
        let line = try #require(server.output.split(separator: "\n").first { $0.hasPrefix("Serving ") })
        return (server, String(line.split(separator: " ").last ?? ""))
    }
}

/// Runs a script of Python, which fails by an exception.
private func python(_ script: String, _ arguments: String...) async -> Child.Exit {
    await Child.run(["/usr/bin/python3", "-c", script] + arguments)
}

@Suite(.serialized) struct `todoku asset pack` {
    @Test func `gives the same bytes under another umask, locale and order of options`() async throws {
        let studio = await Studio()
        let key = await studio.run(["asset", "key", "key.pem"])
        #expect(key.status == 0 && key.output.count == 65 && key.errors == "", "\(key)")
        #expect((await studio.run(["asset", "key", "key.pem"])).output == key.output)
        let other = studio.desk.bus.folder.makeFolder("other")
        let options = ["--version", "1 β", "--key", "key.pem", "--timestamp", "2026-11-24T18:30:00Z"]
        let first = await studio.run(["asset", "pack", "levels", "-o", "public"] + options, ["LC_ALL": "C.UTF-8", "TZ": "Asia/Tokyo"])
        #expect(first.status == 0 && first.errors == "", "\(first)")
        #expect(
            first.output == ["levels-1 β.tar.zst", "levels.json.sig", "levels.json"].map { "\(studio.output)/\($0)\n" }.joined())
        let second = await studio.run(["asset", "pack"] + options + ["-o", other, "levels"], umask: "077", ["LC_ALL": "C", "TZ": "UTC"])
        #expect(second.status == 0, "\(second)")
        for name in listFolder(studio.output) { #expect(readFile("\(studio.output)/\(name)") == readFile("\(other)/\(name)"), "\(name)") }
        #expect(listFolder(studio.output).count == 3)
        await studio.desk.close()
    }

    @Test func `names the files by the folder, also if its name begins with a combining mark`() async throws {
        let studio = await Studio()
        let name = "\u{3099}levels"
        writeFile("\(studio.desk.bus.folder.makeFolder(name))/1.txt", "first".utf8)
        let packed = await studio.run(["asset", "pack", name, "--output", "public", "--version", "1"])
        #expect(packed.status == 0, "\(packed)")
        #expect(listFolder(studio.output) == ["\(name)-1.tar.zst", "\(name).json"])
        await studio.desk.close()
    }

    @Test func `gives what openssl, bsdtar, sha256sum and Python verify`() async throws {
        let studio = await Studio()
        #expect((await studio.run(["asset", "key", "key.pem"])).status == 0)
        let packed = await studio.pack("2026.11", "--key", "key.pem", "--timestamp", "now", "--json")
        #expect(packed.status == 0 && packed.errors == "", "\(packed)")
        let public_ = studio.desk.bus.folder("public.pem")
        let exported = await Child.run(["openssl", "pkey", "-in", studio.desk.bus.folder("key.pem"), "-pubout", "-out", public_])
        #expect(exported.status == 0, "\(exported)")
        let manifest = "\(studio.output)/levels.json"
        let verified = await Child.run([
            "openssl", "pkeyutl", "-verify", "-rawin", "-pubin", "-inkey", public_, "-in", manifest, "-sigfile", manifest + ".sig",
        ])
        #expect(verified.status == 0 && verified.output.contains("Signature Verified Successfully"), "\(verified)")
        let archive = "\(studio.output)/levels-2026.11.tar.zst"
        let listed = await Child.run(["bsdtar", "-tf", archive], environment: processEnvironment().merging(["LC_ALL": "C.UTF-8"]) { $1 })
        #expect(listed.output == "1.txt\nbig.bin\nmaps/\nmaps/地図.txt\n", "package libarchive-tools: \(listed)")
        let digest = String((await Child.run(["sha256sum", archive])).output.prefix(64))
        let read = await python(
            """
            import json, os, sys
            m = json.load(open(sys.argv[1]))
            assert list(m) == ["version", "url", "sha256", "size", "unpacked-size", "timestamp"], m
            assert (m["version"], m["url"]) == ("2026.11", "levels-2026.11.tar.zst"), m
            assert m["sha256"] == sys.argv[2] and m["size"] == os.path.getsize(sys.argv[3]) and m["unpacked-size"] == 400008, m
            """, manifest, digest, archive)
        #expect(read.status == 0, "\(read.errors)")
        #expect(JSON(packed.output)?["sha256"]?.string == digest && JSON(packed.output)?["archive"]?.string == archive)
        await studio.desk.close()
    }

    @Test(arguments: ["pack", "key", "serve", "update", "show"])
    func `has each option in its man page, as its subcommands have`(subcommand: String) async throws {
        let bytes = try #require(readFile("\(repository)/data/man/todoku.1"))
        let page = String(decoding: bytes, as: UTF8.self).split(separator: "\\").joined()
        let help = await Desk.runAlone(["asset", subcommand, "--help"])
        let words = help.output.split { !$0.isLetter && $0 != "-" }.filter { $0.hasPrefix("--") && $0.count > 2 }
        #expect(help.status == 0 && words.contains("--help"))
        for option in Set(words).subtracting(["--help"]) { #expect(page.contains(option), "\(option)") }
        // --version is an option of this subcommand, and the program's own by itself only.
        #expect((await Child.run([Desk.command, "--version"])).output == "todoku \(projectVersion)\n")
    }

    @Test func `fails with a sentence that names the file, and leaves nothing`() async throws {
        let studio = await Studio()
        mkfifo("\(studio.levels)/pipe", 0o600)
        let failed = await studio.pack("1")
        #expect(failed.status == 3 && failed.output == "", "\(failed)")
        #expect(failed.errors == "todoku: “pipe” is a named pipe (in \(studio.levels)/pipe)\n", "\(failed.errors)")
        let json = await studio.pack("1", "--json")
        #expect(JSON(json.output)?["error"]?["message"]?.string?.contains("named pipe") == true)
        unlink("\(studio.levels)/pipe")
        for (wrong, status) in [
            (["--level", "30"], 2), (["--compression", "rar"], 2), (["--timestamp", "yesterday"], 2), (["--key", "none.pem"], 3),
            (["--url", "ftp://example.org/"], 3), (["--name", ".x"], 3), (["--compression", "none", "--level", "3"], 2),
        ] {
            let exit = await studio.run(["asset", "pack", "levels", "-o", "public", "--version", "1"] + wrong)
            #expect(exit.status == status && exit.errors != "", "\(wrong): \(exit)")
        }
        #expect(listFolder(studio.output) == [])
        // A signed manifest must not lose its signature by accident.
        #expect((await studio.run(["asset", "key", "key.pem"])).status == 0)
        let signed = await studio.pack("1", "--key", "key.pem")
        #expect(signed.status == 0 && signed.errors.contains("--timestamp prevents that"), "\(signed)")
        #expect((await studio.pack("2")).errors.contains("is signed, and a manifest without --key would not be"))
        await studio.desk.close()
    }
}

@Suite(.serialized, .timeLimit(.minutes(10))) struct `An author and a user` {
    @Test func `pack, serve, add, update, change, pack again, update and roll back`() async throws {
        let studio = await Studio()
        let desk = studio.desk
        let asset = "org.example.Game/levels"
        let path = desk.bus.folder("data/todoku/assets/org.example.Game/levels/current")
        let key = (await studio.run(["asset", "key", "key.pem"])).output.filter { $0 != "\n" }
        #expect((await studio.pack("1", "--key", "key.pem", "--timestamp", "2026-11-24T18:30:00Z")).status == 0)
        let (server, url) = try await studio.serve("public", "--asset", asset, "--key", "key.pem")
        #expect(
            server.output.contains("  todoku asset add --public-key \(key) \(asset) \(url)\n  todoku asset update \(asset)\n"),
            "\(server.output)")
        #expect(await desk.run("asset", "add", "--public-key", key, asset, url).succeeded(saying: "\(path)\n"))
        let first = await desk.run("asset", "update", asset)
        #expect(first.status == 0 && first.output == "\(path)\n", "\(first)")
        let lines = first.errors.split(separator: "\n").map(String.init)
        #expect(lines.first == "\(asset) checking" && lines.last == "\(asset) ready 1", "\(first.errors)")
        #expect(readFile("\(path)/1.txt") == Array("first".utf8) && readFile("\(path)/maps/地図.txt") == Array("map".utf8))

        // Nothing is new: the server answers 304.
        let again = await desk.run("asset", "update", "--json", asset)
        #expect(JSON(String(again.output.split(separator: "\n").last ?? ""))?["changed"] == .bool(false), "\(again)")
        #expect(await server.says("GET /levels.json 304\n"))

        writeFile("\(studio.levels)/1.txt", "second".utf8)
        #expect((await studio.pack("1")).status == 3)  // unsigned, and the same version
        #expect((await studio.pack("2", "--key", "key.pem", "--timestamp", "2026-11-25T18:30:00Z")).status == 0)
        #expect(await desk.run("asset", "check", asset).succeeded(saying: "2\n"))
        #expect((await desk.run("asset", "show", asset)).output.contains("status            update available: 2\n"))
        #expect(await desk.run("asset", "update", "-q", asset).succeeded(saying: "\(path)\n"))
        #expect(readFile("\(path)/1.txt") == Array("second".utf8))
        #expect((await desk.run("asset", "show", asset)).output.contains("status            up to date\n"))
        #expect(await desk.run("asset", "rollback", asset).succeeded(saying: "\(path)\n"))
        #expect(readFile("\(path)/1.txt") == Array("first".utf8))

        // Without the server's manifest, the asset is obsolete, and stays.
        unlink("\(studio.output)/levels.json")
        #expect((await desk.run("asset", "check", asset)).status != 0)
        #expect(
            (await desk.run("asset", "show", asset)).output.contains("status            obsolete: the server has no manifest any more\n"))
        #expect((await server.stop()).status == 0)
        await desk.close()
    }

    @Test func `serve a folder as it is, which is packed again when it changes`() async throws {
        let studio = await Studio()
        let desk = studio.desk
        let temporary = desk.bus.folder.makeFolder("temporary")
        let server = Child(
            [Desk.command, "asset", "serve", studio.levels], environment: desk.environment.merging(["TMPDIR": temporary]) { $1 })
        try #require(await server.says("todoku asset update"), "\(server.errors)")
        let command = try #require(server.output.split(separator: "\n").first { $0.contains("todoku asset add") }).split(separator: " ")
            .map(String.init)
        let path = desk.bus.folder("data/todoku/assets/org.example.App/levels/current")
        // As the command says.
        #expect(await desk.start(Array(command.dropFirst())).wait().succeeded(saying: "\(path)\n"), "\(command)")
        #expect(await desk.run("asset", "update", "-q", "org.example.App/levels").succeeded(saying: "\(path)\n"))
        #expect(readFile("\(path)/1.txt") == Array("first".utf8))
        studio.replaceFirst("second")
        #expect(await eventually { server.output.split(separator: "\n").count { $0.hasPrefix("packed ") } == 2 }, "\(server.output)")
        #expect(await desk.run("asset", "update", "-q", "org.example.App/levels").succeeded(saying: "\(path)\n"))
        #expect(readFile("\(path)/1.txt") == Array("second".utf8))
        // What cannot be packed is told, and the version before stays.
        mkfifo("\(studio.levels)/pipe", 0o600)
        #expect(await server.complains("named pipe"))
        #expect(await desk.run("asset", "check", "--exit-code", "org.example.App/levels").status == 4)
        server.signal(SIGINT)
        #expect((await server.wait()).status == 0)
        #expect(listFolder(temporary) == [])
        await desk.close()
    }

    @Test(arguments: [".levels", String(repeating: "levels", count: 12)])
    func `serve a folder as it is, also if its name cannot name files`(name: String) async throws {
        let studio = await Studio()
        let folder = studio.desk.bus.folder.makeFolder(name)
        writeFile("\(folder)/1.txt", "first".utf8)
        let (server, url) = try await studio.serve(folder)
        #expect(url.hasSuffix("/asset.json"), "\(url)")
        let asset = "org.example.App/asset"
        #expect(await server.says("todoku asset update \(asset)\n"), "\(server.output)")
        let path = studio.desk.bus.folder("data/todoku/assets/\(asset)/current")
        #expect(await studio.desk.run("asset", "add", asset, url).succeeded(saying: "\(path)\n"))
        #expect(await studio.desk.run("asset", "update", "-q", asset).succeeded(saying: "\(path)\n"))
        #expect(readFile("\(path)/1.txt") == Array("first".utf8))
        server.signal(SIGINT)
        #expect(await server.wait().status == 0)
        await studio.desk.close()
    }

    @Test func `learn that the temporary folder lies in the served one, and which variable to change`() async {
        let studio = await Studio()
        let temporary = studio.desk.bus.folder.makeFolder("levels/temporary")
        let exit = await studio.run(["asset", "serve", "levels"], ["TMPDIR": temporary])
        #expect(exit.status == 3 && exit.output == "", "\(exit)")
        #expect(exit.errors.hasSuffix("” lies in the folder that is packed; give another TMPDIR\n"), "\(exit)")
        #expect(listFolder(temporary) == [])
        await studio.desk.close()
    }

    /// A packing that Ctrl-C interrupts may give a file its name after the program has listed the files that it deletes. A script takes
    /// the place of that packing here. The other files keep the program busy meanwhile.
    @Test func `serve a folder as it is, and leave no file behind, although a file gets its name during Ctrl-C`() async throws {
        let studio = await Studio()
        let temporary = studio.desk.bus.folder.makeFolder("temporary")
        let server = Child(
            [Desk.command, "asset", "serve", studio.levels], environment: studio.desk.environment.merging(["TMPDIR": temporary]) { $1 })
        try #require(await server.says("todoku asset update"), "\(server.errors)")
        let script = """
            import os, sys
            folder = sys.argv[1]
            for number in range(10_000): open(f"{folder}/{number}", "w").close()
            first = f"{folder}/{os.listdir(folder)[0]}"
            print("ready", flush=True)
            while os.path.exists(first): pass
            open(f"{folder}/late", "w").close()
            """
        let packed = try #require(listFolder(temporary).first.map { "\(temporary)/\($0)" })
        let packing = Child(["/usr/bin/python3", "-c", script, packed])
        try #require(await packing.says("ready\n"), "\(packing.errors)")
        server.signal(SIGINT)
        #expect((await server.wait()).status == 0)
        #expect(listFolder(temporary) == [])
        await packing.stop()
        await studio.desk.close()
    }

    /// The reader is gone before the first line. A parent that ignores SIGPIPE passes this on to the program.
    @Test(arguments: [("", 128 + SIGPIPE, ""), ("trap '' PIPE; ", 3 as Int32, "todoku: cannot write the output: Broken pipe\n")])
    func `serve a folder as it is, and leave no file behind if nobody reads the output`(
        trap: String, status: Int32, errors: String
    ) async throws {
        let studio = await Studio()
        let temporary = studio.desk.bus.folder.makeFolder("temporary")
        // A pipe that is open for both directions has a reader until its descriptor is closed.
        let script = #"mkfifo pipe && exec 4<>pipe 5>pipe && exec 4<&- && exec "$0" asset serve levels >&5"#
        let exit = await studio.sh(trap + script, ["TMPDIR": temporary])
        #expect(exit.status == status && exit.output == "" && exit.errors == errors, "\(exit)")
        #expect(listFolder(temporary) == [])
        await studio.desk.close()
    }

    @Test func `show the stages as JSON`() async throws {
        let studio = await Studio()
        let (server, url) = try await studio.serve(studio.levels)
        let asset = "org.example.App/levels"
        #expect(await studio.desk.run("asset", "add", asset, url).status == 0)
        let exit = await studio.desk.run("asset", "update", "--json", asset)
        let events = exit.output.split(separator: "\n").compactMap { JSON(String($0)) }
        #expect(exit.status == 0 && events.count == exit.output.split(separator: "\n").count, "\(exit)")
        let stages = events.filter { $0["event"]?.string == "stage" }.compactMap { $0["stage"]?.string }
        #expect(stages.first == "checking" && stages.contains("downloading"), "\(stages)")
        #expect(events.last?["event"]?.string == "ended" && events.last?["changed"] == .bool(true), "\(exit.output)")
        #expect(events.last?["path"]?.string?.hasSuffix("/levels/current") == true)
        _ = server
        await studio.desk.close()
    }

    @Test func `serve as JSON: an object for each event and each error`() async throws {
        let studio = await Studio()
        let server = studio.desk.start(["asset", "serve", "--json", studio.levels])
        try #require(await server.says("\"public-key\":null}\n"), "\(server.errors)")
        func objects() -> [JSON] { server.output.split(separator: "\n").compactMap { JSON(String($0)) } }
        let start = objects()
        #expect(start.map { $0["event"]?.string } == ["packed", "serving"] && start.first?["unpacked-size"]?.number == 400_008, "\(start)")
        #expect(start.last?["asset"]?.string == "org.example.App/levels" && start.last?["folder"]?.string == studio.levels, "\(start)")
        let url = try #require(start.last?["url"]?.string)
        #expect(await studio.desk.run("get", "--quiet", url).status == 0)
        #expect(await server.says("{\"event\":\"request\",\"request\":\"GET /levels.json\",\"status\":200}\n"))
        mkfifo("\(studio.levels)/pipe", 0o600)
        #expect(await server.says("{\"error\":{\"name\":null,\"message\":\"“pipe” is a named pipe (in \(studio.levels)/pipe)\"}}\n"))
        server.signal(SIGINT)
        let exit = await server.wait()
        #expect(exit.status == 0 && exit.errors == "" && objects().count == exit.output.split(separator: "\n").count, "\(exit)")
        for (wrong, message) in [
            (["nowhere"], "nowhere” cannot be opened: "), (["levels"], "is a named pipe"), (["levels", "--key", "none.pem"], "none.pem"),
        ] {
            let refused = await studio.desk.start(["asset", "serve", "--json"] + wrong).wait()
            let found = JSON(refused.output)?["error"]?["message"]?.string ?? ""
            #expect(refused.status == 3 && refused.errors == "" && found.contains(message), "\(refused)")
        }
        await studio.desk.close()
    }

    @Test func `play: examples/game-loader`() async throws {
        let studio = await Studio()
        let desk = studio.desk
        let (server, url) = try await studio.serve(studio.levels)
        let game = Child([builtProgram("game-loader", variable: "TODOKU_GAME_LOADER"), url, "-", "2"], environment: desk.environment)
        try #require(await game.says("playing: first\n"), "\(game.output) \(game.errors)")
        // An asset that is kept current is checked as soon as it is registered, which may be over before the game looks.
        let order = ["checking", "downloading", "verifying", "extracting", "ready", "playing:"]
        let shown = game.output.split(separator: "\n").map { $0.prefix { $0 != " " } }.filter { $0 != "idle" }
        let places = shown.compactMap { word in order.firstIndex { $0 == word } }
        #expect(places.count == shown.count && places == places.sorted() && shown.contains("ready"), "\(game.output)")
        studio.replaceFirst("second")
        #expect(await eventually { server.output.split(separator: "\n").count { $0.hasPrefix("packed ") } == 2 })
        // Another program brings the next version while the game plays.
        #expect((await desk.run("asset", "update", "-q", "org.example.Game/levels")).status == 0)
        let exit = await game.wait()
        #expect(exit.status == 0 && exit.output.contains("is ready; still playing: first\n"), "\(exit)")
        #expect(exit.output.hasSuffix("playing: second\n"), "\(exit)")
        await desk.close()
    }
}

@Suite(.serialized, .timeLimit(.minutes(10))) struct `The rehearsal server` {
    /// What Python's HTTP client gets, and what bare sockets do.
    @Test func `answers conditional requests and ranges, and no path leads out of the folder`() async throws {
        let studio = await Studio()
        #expect((await studio.pack("1")).status == 0)
        writeFile("\(studio.output)/.secret", "x".utf8)
        symlink("/etc/passwd", "\(studio.output)/link.json")
        let (server, url) = try await studio.serve("public")
        let done = await python(
            """
            import http.client, sys
            from urllib.parse import urlsplit
            where = urlsplit(sys.argv[1])
            whole = open(sys.argv[2], "rb").read()
            c = http.client.HTTPConnection(where.hostname, where.port)
            def ask(path, method="GET", **fields):
                c.request(method, path, headers={k.replace("_", "-"): v for k, v in fields.items()})
                r = c.getresponse()
                return r.status, r.headers, r.read()
            s, h, b = ask("/levels-1.tar.zst")
            assert (s, b, h["Accept-Ranges"]) == (200, whole, "bytes") and int(h["Content-Length"]) == len(whole)
            tag, date = h["ETag"], h["Last-Modified"]
            s, h, b = ask("/levels-1.tar.zst", If_None_Match=tag)
            assert (s, b, h["ETag"]) == (304, b"", tag), s
            assert ask("/levels-1.tar.zst", If_Modified_Since=date)[0] == 304
            s, h, b = ask("/levels-1.tar.zst", Range="bytes=1000-", If_Range=tag)
            assert (s, b, h["Content-Range"]) == (206, whole[1000:], f"bytes 1000-{len(whole) - 1}/{len(whole)}")
            assert ask("/levels-1.tar.zst", Range="bytes=5-5")[2] == whole[5:6]
            assert ask("/levels-1.tar.zst", Range="bytes=-7")[2] == whole[-7:]
            assert ask("/levels-1.tar.zst", Range="bytes=1000-", If_Range='"other"')[0] == 200
            s, h, b = ask("/levels-1.tar.zst", Range=f"bytes={len(whole)}-")
            assert (s, h["Content-Range"]) == (416, f"bytes */{len(whole)}")
            s, h, b = ask("/levels.json", "HEAD")
            assert (s, b) == (200, b"") and int(h["Content-Length"]) > 100 and h["Content-Type"] == "application/json"
            outside = ["/../levels/1.txt", "/..%2flevels%2f1.txt", "/%2e%2e/levels/1.txt", "//etc/passwd"]
            for path in ["/", "/none", "/.secret", "/link.json"] + outside:
                assert ask(path)[0] == 404, path
            s, h, b = ask("/levels.json", "DELETE")
            assert (s, h["Allow"]) == (405, "GET, HEAD")
            """, url, "\(studio.output)/levels-1.tar.zst")
        #expect(done.status == 0, "\(done.errors)")
        #expect((await server.stop()).status == 0)
        await studio.desk.close()
    }

    @Test func `serves others while clients are slow, idle, silent or talk nonsense`() async throws {
        let studio = await Studio()
        #expect((await studio.pack("1")).status == 0)
        let (server, url) = try await studio.serve("public", "--quiet")
        let done = await python(
            """
            import socket, sys, urllib.request
            from urllib.parse import urlsplit
            where = urlsplit(sys.argv[1])
            whole = open(sys.argv[2], "rb").read()
            def connect(text=b""):
                s = socket.create_connection((where.hostname, where.port), 60)
                s.sendall(text)
                return s
            def get():
                return urllib.request.urlopen(sys.argv[1].replace("levels.json", "levels-1.tar.zst"), timeout=60).read()
            held = [connect() for _ in range(40)]
            held += [connect(b"GET /levels-1.tar.zst HTTP/1.1\\r\\nHo") for _ in range(60)]
            held += [connect(b"GET /levels-1.tar.zst HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n") for _ in range(10)]  # reads nothing
            for _ in range(5): assert get() == whole
            for text, status in [(b"\\0\\1\\2\\r\\n\\r\\n", b"400"), (b"GET / HTTP/9\\r\\n\\r\\n", b"505"), (b"X" * 20000, b"431"),
                                 (b"GET /levels.json HTTP/1.1\\r\\nHost: evil.example\\r\\n\\r\\n", b"421")]:
                s = connect(text)
                answer = s.recv(100)
                assert answer.startswith(b"HTTP/1.1 " + status), (text[:20], answer)
            # Two requests in one packet are two answers.
            s = connect(b"HEAD /levels.json HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n" * 2 + b"GET /none HTTP/1.1\\r\\nHost: localhost\\r\\nConnection: close\\r\\n\\r\\n")
            answer = b""
            while True:
                part = s.recv(1000)
                if not part: break
                answer += part
            assert answer.count(b"HTTP/1.1 200 OK") == 2 and answer.count(b"HTTP/1.1 404") == 1, answer
            assert get() == whole
            """, url, "\(studio.output)/levels-1.tar.zst")
        #expect(done.status == 0, "\(done.errors)")
        #expect(server.isRunning)
        // The port is taken, which a second server says.
        let port = url.split(separator: ":").last.map { String($0.prefix { $0.isNumber }) } ?? ""
        let second = await studio.desk.run("asset", "serve", "public", "--port", port)
        #expect(
            second.status == 3 && second.errors.contains("port \(port) of 127.0.0.1 cannot be used: Address already in use"), "\(second)")
        await studio.desk.close()
    }
}
