import Glibc
import TestSupport
import Testing

@Suite(.serialized) struct `The command` {
    private let body = patternBytes(50_000)

    @Test func `says in one sentence that the service is not installed`() async throws {
        let desk = await Desk(hasService: false)
        for arguments in [
            ["get", "http://127.0.0.1/x"], ["add", "http://127.0.0.1/x"], ["list"], ["show", "1"], ["wait", "1"], ["watch"],
            ["pause", "--all"], ["settings"],
        ] {
            let exit = await desk.start(arguments).wait()
            #expect(exit.status == 3)
            #expect(exit.output == "")
            #expect(
                exit.errors.hasPrefix("todoku: org.todoku.Downloader1 cannot be started: ")
                    && exit.errors.split(separator: "\n").count == 1, "\(exit)")
        }
        let json = await desk.run("list", "--json")
        #expect(JSON(json.output)?["error"]?["name"]?.string == "org.freedesktop.DBus.Error.ServiceUnknown")
        #expect((json.status, json.errors) == (3, ""))
        await desk.bus.stop()
        let gone = await desk.run("list")
        #expect(gone.status == 3)
        #expect(gone.errors.hasPrefix("todoku: the session bus cannot be reached: "))
    }

    @Test(arguments: [["get"], ["fly"], ["show", "x"], ["get", "--size", "many", "http://h/"], ["--frob"], ["remove"]])
    func `exits with 2 and its usage for a wrong command line`(arguments: [String]) async {
        let exit = await Child.run([Desk.command] + arguments)
        #expect(exit.status == 2)
        #expect(exit.output == "")
        #expect(exit.errors.hasPrefix("todoku: ") && exit.errors.contains("Usage: todoku"))
    }

    @Test(arguments: [
        "get", "add", "batch", "fetch", "list", "show", "watch", "wait", "pause", "resume", "cancel", "retry", "remove", "open", "why",
        "host", "limit", "settings",
    ])
    func `has examples in its help`(subcommand: String) async {
        let exit = await Child.run([Desk.command, subcommand, "--help"])
        #expect(exit.status == 0)
        #expect(exit.errors == "")
        #expect(exit.output.contains("EXAMPLES:") && exit.output.contains("  todoku \(subcommand)"))
    }

    @Test(arguments: [
        "get", "add", "batch", "fetch", "list", "show", "watch", "wait", "pause", "resume", "cancel", "retry", "renew", "remove", "open",
        "why", "host", "limit", "settings",
    ])
    func `has each option in its man page`(subcommand: String) async throws {
        let bytes = try #require(readFile("\(repository)/data/man/todoku.1"))
        let page = String(decoding: bytes, as: UTF8.self).split(separator: "\\").joined()
        let help = await Child.run([Desk.command, subcommand, "--help"]).output
        let words = help.split { !$0.isLetter && $0 != "-" }.filter { $0.hasPrefix("--") && $0.count > 2 }
        for option in Set(words).subtracting(["--help", "--version", "--show-progress"]) { #expect(page.contains(option), "\(option)") }
    }

    @Test(arguments: ["bash", "zsh", "fish"])
    func `completes in a shell`(shell: String) async {
        let exit = await Child.run([Desk.command, "--generate-completion-script", shell])
        #expect(exit.status == 0)
        #expect(exit.output.contains("todoku") && exit.output.contains("if-exists"))
    }

    @Test func `queues, lists, shows, steers and forgets`() async throws {
        let desk = await Desk()
        let server = ScriptedServer { [body] request, reply in reply.serve(body, for: request) }
        #expect(await desk.run("add", "--paused", server.url("/a.bin?q=1"), server.url("/b.bin")).output == "1\n2\n")
        let token = await desk.run("add", "--json", "--paused", "--app", "org.example.App", "--token", "ch_1", server.url("/c.bin"))
        #expect(JSON(token.output)?["download"]?.string == "org.example.App/ch_1")

        let list = await desk.run("list")
        let lines = list.output.split(separator: "\n")
        #expect(lines.count == 4)
        #expect(lines[0].split(separator: " ") == ["DOWNLOAD", "STATE", "%", "SIZE", "SPEED", "NAME"])
        #expect(lines[1].split(separator: " ") == ["1", "paused", "-", "-", "-", "a.bin"])
        let json = try #require(JSON(await desk.run("list", "--json", "--state", "paused").output)?.array)
        #expect(json.map { $0["download"]?.string } == ["1", "2", "org.example.App/ch_1"])
        #expect(JSON(await desk.run("list", "--json", "--app", "org.example.App").output)?.array?.count == 1)
        #expect(JSON(await desk.run("list", "--json", "--state", "failed").output)?.array?.isEmpty == true)

        #expect(await desk.run("show", "1").output.contains("State:       paused\n"))
        #expect(!(await desk.run("show", "1").output.contains("q=1")))
        #expect(await desk.run("show", "--url", "1").output == server.url("/a.bin?q=1") + "\n")
        let unknown = await desk.run("show", "1", "99")
        #expect(unknown.status == 3)
        #expect(unknown.errors == "todoku: there is no download 99\n")

        #expect(await desk.run("resume", "1", "org.example.App/ch_1").status == 0)
        let wait = await desk.run("wait", "1", "org.example.App/ch_1")
        #expect(wait.succeeded(saying: "\(desk.downloads)/a.bin\n\(desk.downloads)/c.bin\n"))
        #expect(await desk.run("cancel", "2").status == 0)
        let cancelled = await desk.run("wait", "2")
        #expect(cancelled.status == 1)
        #expect(cancelled.errors.hasPrefix("todoku: download 2 did not finish: "))
        let again = await desk.run("pause", "2")
        #expect(again.status == 3)
        #expect(again.errors.contains("cancelled"))
        #expect(await desk.run("retry", "2").status == 0)
        #expect((await desk.run("wait", "--quiet", "2")).succeeded(saying: ""))

        #expect(await desk.run("remove", "--delete-file", "1").status == 0)
        #expect(!fileExists("\(desk.downloads)/a.bin") && fileExists("\(desk.downloads)/b.bin"))
        #expect(await desk.run("remove", "--ended").output == "2 downloads removed\n")
        #expect(fileExists("\(desk.downloads)/b.bin"))
        #expect(await desk.run("list", "--all").output == "")
        await desk.close()
    }

    @Test func `saves settings`() async throws {
        let desk = await Desk()
        #expect(await desk.run("settings", "speed-limit", "2MiB").status == 0)
        #expect(await desk.run("settings", "max-active").output == "auto\n")
        #expect(await desk.run("settings", "max-active", "7").status == 0)
        desk.bus.folder.makeFolder("elsewhere")
        #expect(await desk.run("settings", "default-directory", "elsewhere").status == 0)
        #expect(await desk.run("settings", "speed-limit").output == "2097152\n")
        let all = try #require(JSON(await desk.run("settings", "--json").output))
        #expect(all["max-active"]?.number == 7)
        #expect(all["default-directory"]?.string == desk.bus.folder("elsewhere"))
        #expect(await desk.run("settings", "max-active", "auto").status == 0)
        #expect(JSON(await desk.run("settings", "--json").output)?["max-active"]?.string == "auto")
        let refused = await desk.run("settings", "default-directory", "nowhere")
        #expect(refused.status == 3)
        #expect(refused.errors.hasPrefix("todoku: "))
        await desk.close()
    }

    @Test func `watches downloads to their end, and all of them until Ctrl-C`() async throws {
        let desk = await Desk()
        let gate = Gate()
        let server = ScriptedServer { [body] request, reply in
            gate.wait()
            if request.path == "/gone" { reply.respond(404) } else { reply.serve(body, for: request) }
        }
        _ = await desk.run("add", server.url("/a.bin"), server.url("/gone"))
        let (all, both, one) = (desk.start(["watch", "--json"]), desk.start(["watch", "1", "2"]), desk.start(["watch", "1"]))
        #expect(await all.says("\"download\":\"2\""))
        #expect(await both.says("2 started"))
        #expect(await one.says("1 started"))
        gate.open()
        #expect(await one.wait().status == 0)
        let ended = await both.wait()
        #expect(ended.status == 1)
        #expect(ended.output.contains("1 finished \(desk.downloads)/a.bin"))
        _ = await desk.run("add", server.url("/b.bin"))
        #expect(await all.says("b.bin\",\"error\":null"))
        all.signal(SIGINT)
        // Before its end, the last line may have come in part only.
        let interrupted = await all.wait()
        #expect(interrupted.status == 130)
        #expect(interrupted.output.split(separator: "\n").allSatisfy { JSON(String($0))?["event"]?.string != nil }, "\(interrupted)")
        let unknown = await desk.run("watch", "99")
        #expect((unknown.status, unknown.errors) == (3, "todoku: there is no download 99\n"))
        await desk.close()
    }

    @Test func `keeps waiting and downloading across a crash of the service`() async throws {
        let desk = await Desk()
        let gate = Gate()
        let server = ScriptedServer { [body] request, reply in
            gate.wait()
            reply.serve(body, for: request)
        }
        let get = desk.start(["get", server.url("/a.bin")])
        #expect(await get.says("1 started"))
        let wait = desk.start(["wait", "1"])
        let first = try #require(await desk.serviceProcess())
        #expect(await server.waitForRequests(1))
        kill(first, SIGKILL)
        #expect(await eventually { await desk.serviceProcess().map { $0 != first } ?? false })
        gate.open()
        #expect((await wait.wait()).succeeded(saying: "\(desk.downloads)/a.bin\n"))
        #expect(await get.wait().status == 0)
        await desk.close()
    }

    @Test func `waits for all downloads of an app or a tag, and counts their outcomes`() async throws {
        let desk = await Desk()
        let server = ScriptedServer { [body] request, reply in
            if request.path == "/bad" { reply.respond(404) } else { reply.serve(body, for: request) }
        }
        func add(_ path: String, _ options: String...) async {
            #expect(await desk.start(["add", "--quiet", "--notify", "never"] + options + [server.url(path)]).wait().status == 0)
        }
        await add("/a", "--app", "org.example.App", "--tag", "t")
        await add("/b", "--app", "org.example.App", "--tag", "t", "--paused")
        await add("/bad", "--app", "org.example.App", "--tag", "u")
        await add("/c", "--app", "org.example.Other", "--tag", "t", "--paused")
        let wait = desk.start(["wait", "--app", "org.example.App", "--tag", "t"])
        let json = desk.start(["wait", "--json", "--app", "org.example.App"])
        #expect((await desk.run("wait", "--tag", "nobody's")).succeeded(saying: "0 finished, 0 failed, 0 cancelled\n"))
        _ = await desk.run("resume", "2")
        #expect((await wait.wait()).succeeded(saying: "2 finished, 0 failed, 0 cancelled\n"))
        let counts = await json.wait()
        #expect((counts.status, counts.errors) == (1, ""))
        #expect(counts.output == "{\"finished\":2,\"failed\":1,\"cancelled\":0}\n", "\(counts)")
        _ = await desk.run("cancel", "4")
        let quiet = await desk.run("wait", "--quiet", "--tag", "t")
        #expect((quiet.status, quiet.output, quiet.errors) == (1, "", ""))
        #expect(await desk.run("list", "--app", "org.example.App", "--tag", "t").output.split(separator: "\n").count == 3)
        await desk.close()
    }

    @Test func `reports a lost bus`() async throws {
        let desk = await Desk()
        let gate = Gate()
        let server = ScriptedServer { _, reply in
            gate.wait()
            reply.respond(404)
        }
        let (get, wait) = (desk.start(["get", server.url("/a.bin")]), desk.start(["wait", "1"]))
        #expect(await get.says("1 started"))
        let process = await desk.serviceProcess()
        await desk.bus.stop()
        let exit = await get.wait()
        #expect(exit.status == 3)
        #expect(exit.errors.contains("the session bus has gone"))
        #expect(await wait.wait().status == 3)
        gate.open()
        if let process { #expect(await eventually { hasEnded(process) }) }
    }

    @Test func `opens a finished file, or its folder, as a click does: never a program`() async throws {
        let opener = StandInOpener()
        let desk = await Desk(extra: ["PATH": opener.path, "XDG_ACTIVATION_TOKEN": "t"])
        let server = ScriptedServer { [body] request, reply in reply.serve(body, for: request) }
        _ = await desk.run("add", "--paused", server.url("/a.bin.txt"))
        let early = await desk.run("open", "1")
        #expect((early.status, early.errors) == (3, "todoku: A download that is paused has no finished file.\n"))
        _ = await desk.run("resume", "1")
        _ = await desk.run("wait", "1")
        #expect(await desk.run("open", "1").succeeded(saying: ""))
        // An opener that is slow is not waited for. It must come before those of the folder.
        #expect(await opener.hasOpened(1))
        // Without a file manager the folder is opened.
        #expect(await desk.run("open", "--folder", "1").succeeded(saying: ""))
        _ = await desk.run("get", "--quiet", server.url("/evil.desktop"))
        #expect(await desk.run("open", "2").succeeded(saying: ""))
        unlink("\(desk.downloads)/a.bin.txt")
        #expect(await desk.run("open", "1").succeeded(saying: ""))
        #expect(await opener.hasOpened(4))
        #expect(opener.opened == ["\(desk.downloads)/a.bin.txt|t|t"] + Array(repeating: "\(desk.downloads)|t|t", count: 3))
        let unknown = await desk.run("open", "7")
        #expect(unknown.status == 3 && unknown.errors.contains("no download"))
        await desk.close()
    }

    /// A desktop without D-Bus activation runs these commands.
    @Test func `accepts the commands of its desktop entry`() async throws {
        let opener = StandInOpener()
        let desk = await Desk(extra: ["PATH": opener.path])
        let entry = String(decoding: try #require(readFile("\(repository)/data/org.todoku.Downloader1.desktop.in")), as: UTF8.self)
        let program = "Exec=@bindir@/todoku "
        let commands = entry.split(separator: "\n").filter { $0.hasPrefix("Exec=") }
        #expect(commands.count == 4 && commands.allSatisfy { $0.hasPrefix(program) })
        let server = ScriptedServer { [body] request, reply in reply.serve(body, for: request) }
        _ = await desk.run("get", "--quiet", server.url("/a.bin"))
        for command in commands {
            let exit = await desk.start(command.dropFirst(program.count).split(separator: " ").map(String.init)).wait()
            #expect(exit.succeeded(saying: ""), "\(command): \(exit)")
        }
        // Without a file manager the newest file's folder and the download folder are opened.
        #expect(await opener.hasOpened(2))
        #expect(opener.opened == ["\(desk.downloads)||", "\(desk.downloads)||"])
        await desk.close()
    }

    @Test func `moves a file to the trash`() async throws {
        let desk = await Desk()
        let server = ScriptedServer { [body] request, reply in reply.serve(body, for: request) }
        _ = await desk.run("get", "--quiet", server.url("/a.bin"))
        let both = await desk.run("remove", "--trash", "--delete-file", "1")
        #expect(both.status == 2 && both.errors.contains("--trash cannot be combined with --delete-file"))
        #expect(await desk.run("remove", "--trash", "1").succeeded(saying: ""))
        #expect(!fileExists("\(desk.downloads)/a.bin"))
        #expect(listFolder(desk.bus.folder("data/Trash/files")) == ["a.bin"])
        #expect(await desk.run("list").output == "")
        await desk.close()
    }
}
