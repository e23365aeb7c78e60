import ArgumentParser
import DBus
import EventLoop
import Glibc
import TestSupport
import Testing

@testable import TodokuClient
@testable import todoku

/// A script that notes its arguments and variables in a file, a line each.
private let noting = """
    #!/bin/sh
    { for argument; do echo "[$argument]"; done; env | grep '^TODOKU_' | sort; echo; } >>"$NOTES"
    """

@Suite(.serialized) struct `--exec` {
    private let body = patternBytes(5000)

    /// A session with the script `noting`, and a server whose path /gone is missing.
    private func makeDesk() async -> (Desk, ScriptedServer, notes: String) {
        let folder = TemporaryFolder("todoku-notes")
        let desk = await Desk(tools: ["noting": noting], extra: ["NOTES": folder("notes")])
        let server = ScriptedServer { [body, folder] request, reply in
            withExtendedLifetime(folder) {
                if request.path == "/gone" {
                    reply.respond(404)
                } else {
                    reply.respond(200, ["Content-Type": "text/x-test"], body: body)
                }
            }
        }
        return (desk, server, folder("notes"))
    }

    private func text(_ path: String) -> String { String(decoding: readFile(path) ?? [], as: UTF8.self) }

    /// The arguments in the notes, in brackets.
    private func arguments(_ notes: String) -> [String] { text(notes).split(separator: "\n").map(String.init).filter { $0.hasPrefix("[") } }

    @Test func `runs a command with the path, which means nothing to the shell`() async throws {
        let (desk, server, notes) = await makeDesk()
        // The name has a blank, quotes, a dollar sign, a backquote and a semicolon.
        let name = "a b'\"$(touch hit)`touch hit`;touch hit"
        let exit = await desk.run(
            "get", "--exec", "noting first", "--app", "org.example.App", "--tag", "t", "--filename", name, server.url("/a.bin?secret=1"))
        #expect(exit.status == 0 && exit.errors == "", "\(exit)")
        let path = "\(desk.downloads)/\(name)"
        #expect(readFile(path) == body)
        let lines = text(notes).split(separator: "\n").map(String.init)
        #expect(lines.prefix(2) == ["[first]", "[\(path)]"], "\(lines)")
        for (variable, value) in [
            ("APP", "org.example.App"), ("BATCH", ""), ("DOWNLOAD", "1"), ("ERROR", ""), ("MEDIA_TYPE", "text/x-test"), ("MESSAGE", ""),
            ("NAME", name), ("OUTCOME", "finished"), ("PATH", path), ("SIZE", "5000"), ("TAG", "t"), ("URL", server.url("/a.bin")),
        ] {
            #expect(lines.contains("TODOKU_\(variable)=\(value)"), "\(variable): \(lines)")
        }
        #expect(!fileExists(desk.bus.folder("hit")) && !fileExists("\(desk.downloads)/hit"))
        await desk.close()
    }

    /// The command may start another `todoku`, which inherits the variables. For Swift, an equals sign and a combining mark behind it are
    /// one character.
    @Test func `replaces an inherited variable, also if its value begins with a combining mark`() async throws {
        let (desk, server, _) = await makeDesk()
        let exit = await Child.run(
            [Desk.command, "get", "--quiet", "--exec", #"echo "$TODOKU_NAME""#, server.url("/a")],
            environment: desk.environment.merging(["TODOKU_NAME": "\u{301}outer"]) { $1 })
        #expect(exit.succeeded(saying: "a\n"), "\(exit)")
        await desk.close()
    }

    @Test func `gets the size of the file on disk, also if the file was there before, and none for an unpacked folder`() async throws {
        let (desk, server, _) = await makeDesk()
        writeFile(desk.bus.folder("a"), "mine".utf8)
        writeFile(desk.bus.folder("inner"), "inner".utf8)
        let made = await Child.run(["tar", "-C", desk.bus.folder.path, "-cf", desk.bus.folder("archive.tar"), "inner"])
        #expect(made.status == 0, "\(made.errors)")
        let archive = try #require(readFile(desk.bus.folder("archive.tar")))
        let archives = ScriptedServer { _, reply in reply.respond(200, body: archive) }
        let command = #"echo "$TODOKU_OUTCOME,$TODOKU_SIZE""#
        for (expected, arguments) in [
            ("finished,4", ["--if-exists", "skip", "-d", ".", server.url("/a")]), ("finished,5000", [server.url("/b")]),
            ("finished,", ["--extract", archives.url("/archive.tar")]),
        ] {
            let exit = await desk.start(["get", "--quiet", "--exec", command] + arguments).wait()
            #expect(exit.succeeded(saying: "\(expected)\n"), "\(exit)")
        }
        await desk.close()
    }

    @Test func `puts the path where the command says`() async throws {
        let (desk, server, _) = await makeDesk()
        for (number, command) in [#"cp "$1" copy-1"#, #"cp "$TODOKU_PATH" copy-2; true"#, #"cp "$@" copy-3"#].enumerated() {
            let exit = await desk.run("get", "--quiet", "--exec", command, server.url("/a\(number)"))
            #expect(exit.succeeded(saying: ""), "\(exit)")
            #expect(readFile(desk.bus.folder("copy-\(number + 1)")) == body, "\(command)")
        }
        await desk.close()
    }

    @Test func `exits with 5 if the command fails, says how, and continues with the others`() async throws {
        let (desk, server, notes) = await makeDesk()
        let failing = #"noting "$1"; [ "$TODOKU_DOWNLOAD" = 2 ] || exit 7"#
        let two = await desk.run("get", "--exec", failing, server.url("/a"), server.url("/b"))
        #expect(two.status == 5 && two.errors == "todoku: the command for download 1 failed: its exit status is 7\n", "\(two)")
        #expect(text(notes).contains("[\(desk.downloads)/a]") && text(notes).contains("[\(desk.downloads)/b]"))
        let killed = await desk.run("get", "--quiet", "--exec", "kill -9 $$ #", server.url("/c"))
        #expect(killed.status == 5 && killed.errors.hasSuffix("failed: it was ended by signal 9\n"), "\(killed)")
        let missing = await desk.run("get", "--quiet", "--exec", "no-such-program", server.url("/d"))
        #expect(missing.status == 5 && missing.errors.hasSuffix("failed: its exit status is 127\n"), "\(missing)")
        let json = await desk.run("get", "--json", "--exec", "echo words; false", server.url("/e"))
        #expect(json.status == 5, "\(json)")
        let lines = json.output.split(separator: "\n").compactMap { JSON(String($0)) }
        #expect(lines.count == json.output.split(separator: "\n").count, "standard output has JSON only: \(json)")
        #expect(lines.last?["error"]?["message"]?.string == "the command for download 5 failed: its exit status is 1")
        #expect(lines.last?["download"]?.string == "5", "\(json)")
        await desk.close()
    }

    @Test func `leaves failures to --exec-failed`() async throws {
        let (desk, server, notes) = await makeDesk()
        let exit = await desk.run("get", "--exec", "noting good", "--exec-failed", "noting bad", server.url("/gone"))
        #expect(exit.status == 1, "\(exit)")
        let lines = text(notes).split(separator: "\n").map(String.init)
        #expect(lines.first == "[bad]" && !lines.contains { $0.hasPrefix("[/") }, "\(lines)")
        #expect(lines.contains("TODOKU_OUTCOME=failed") && lines.contains("TODOKU_PATH="), "\(lines)")
        #expect(lines.contains("TODOKU_ERROR=org.todoku.Error.HttpStatus"), "\(lines)")
        #expect(lines.contains { $0.hasPrefix("TODOKU_MESSAGE=") && $0.contains("404") }, "\(lines)")
        #expect(await desk.run("get", "--exec", "noting good", server.url("/gone")).status == 1)
        #expect(!text(notes).contains("good"))
        await desk.close()
    }

    @Test func `runs while wait waits, also for the downloads of a batch`() async throws {
        let (desk, server, notes) = await makeDesk()
        writeFile(desk.bus.folder("list"), "\(server.url("/a"))\n\(server.url("/gone"))\n".utf8)
        #expect(await desk.run("batch", "--notify", "never", "list").output == "1\n")
        #expect(await desk.run("add", server.url("/b")).output == "4\n")
        let exit = await desk.run("wait", "--exec", "noting", "--exec-failed", "noting failed", "1", "4", "99")
        #expect(exit.status == 3 && exit.errors == "todoku: \(Desk.noDownload(99))\n", "\(exit)")
        let noted = arguments(notes)
        #expect(Set(noted.prefix(2)) == ["[\(desk.downloads)/a]", "[failed]"], "\(noted)")
        #expect(noted.dropFirst(2) == ["[\(desk.downloads)/b]"], "\(noted)")
        #expect(text(notes).contains("TODOKU_BATCH=1\n") && text(notes).contains("TODOKU_DOWNLOAD=3\n"))
        await desk.close()
    }

    @Test func `runs for each end that watch sees, until Ctrl-C`() async throws {
        let (desk, server, notes) = await makeDesk()
        let gate = Gate()
        let slow = ScriptedServer { [body] _, reply in
            gate.wait()
            reply.respond(200, body: body)
        }
        #expect(await desk.run("get", "--quiet", server.url("/before")).status == 0)
        #expect(await desk.run("add", slow.url("/first")).status == 0)
        let watch = desk.start(["watch", "--exec", "noting"])
        #expect(await watch.says("2 started"))
        gate.open()
        #expect(await eventually { text(notes).contains("[\(desk.downloads)/first]") })
        #expect(await desk.run("add", server.url("/second")).status == 0)
        #expect(await eventually { text(notes).contains("[\(desk.downloads)/second]") })
        // Quick downloads end before the answer to the first question about them. Each runs the command once all the same.
        writeFile(desk.bus.folder("list"), (0..<40).map { server.url("/quick\($0)\n") }.joined().utf8)
        #expect(await desk.run("batch", "--wait", "--notify", "never", "--quiet", "list").status == 0)
        // The commands run one after another, and each starts some processes.
        #expect(await eventually(within: .seconds(300)) { arguments(notes).count >= 42 })
        // The commands run in the order of the ends, so nothing runs after that of the last download.
        #expect(await desk.run("get", "--quiet", server.url("/last")).status == 0)
        #expect(await eventually { text(notes).contains("[\(desk.downloads)/last]") })
        watch.signal(SIGINT)
        #expect(await watch.wait().status == 130)
        #expect(!text(notes).contains("before"))
        #expect(arguments(notes).count == 43 && Set(arguments(notes)).count == 43, "\(arguments(notes))")
        await desk.close()
    }

    @Test func `gives the command the terminal, without the bars`() async throws {
        let (desk, server, _) = await makeDesk()
        let command = "stty cols 90 rows 24; '\(Desk.command)' get --exec 'test -t 1 && echo on a terminal;: ' '\(server.url("/a"))'"
        let exit = await Child(["script", "-qec", command, "/dev/null"], environment: desk.environment).wait()
        #expect(exit.status == 0 && exit.output.contains("on a terminal\r\n"), "\(exit)")
        let order = [exit.output.firstRange(of: "finished  "), exit.output.firstRange(of: "on a terminal")].compactMap { $0?.lowerBound }
        #expect(order.count == 2 && order[0] < order[1], "the line of the end comes first: \(exit.output)")
        await desk.close()
    }

    @Test(arguments: [
        (["get", "--exec", "", "http://h/"], "--exec is empty"), (["get", "--exec", " \n", "http://h/"], "--exec is empty"),
        (["get", "--exec-failed", "", "http://h/"], "--exec-failed is empty"),
        (["get", "--exec", "echo done;", "http://h/"], "ends with “;”"), (["watch", "--exec", "sleep 1 & \n", "7"], "ends with “&”"),
        (["add", "--exec", "true", "http://h/"], "todoku add does not wait for the end"),
        (["add", "--exec-failed", "true", "http://h/"], "todoku add does not wait for the end"),
        (["batch", "--wait", "--exec", "true", "list"], "todoku watch --exec COMMAND \"$(todoku batch FILE)\""),
        (["metalink", "--exec-failed", "true", "x.meta4"], "todoku watch --exec COMMAND \"$(todoku metalink FILE)\""),
        (["fetch", "--exec", "true", "http://h/"], "COMMAND \"$(todoku fetch URL)\""),
        (["wait", "--exec", "true", "--tag", "t"], "--exec needs named downloads"),
    ])
    func `is refused where it could do nothing, or would run the file`(arguments: [String], reason: String) async {
        let exit = await Desk.runAlone(arguments)
        #expect(exit.status == 2 && exit.errors.contains(reason), "\(exit)")
    }

    @Test(arguments: [
        ("file -b", "file -b \"$1\""), ("date\nsha256sum\n", "date\nsha256sum \"$1\""), ("grep -c 'a|b;'", "grep -c 'a|b;' \"$1\""),
        ("-x", "-x \"$1\""), ("cp \"$1\" /b", "cp \"$1\" /b"), ("mpv \"$TODOKU_PATH\" &", "mpv \"$TODOKU_PATH\" &"),
        ("awk '{ print $1 }'", "awk '{ print $1 }'"), ("echo $\u{301}", "echo $\u{301}"),
    ])
    func `adds the path to the end of a command without a dollar sign`(command: String, script: String) {
        #expect(UserCommand(command, takesPath: true).fault(of: "--exec") == nil)
        #expect(UserCommand(command, takesPath: true).arguments(path: "/a b") == ["sh", "-c", "--", script, "todoku", "/a b"])
    }

    @Test func `adds nothing to the command of a failure`() {
        #expect(UserCommand("echo done;", takesPath: false).fault(of: "--exec-failed") == nil)
        #expect(UserCommand("true", takesPath: false).arguments(path: nil) == ["sh", "-c", "--", "true", "todoku"])
    }

    @Test func `never runs the file itself, and takes a dash for a part of the command`() async throws {
        let (desk, server, notes) = await makeDesk()
        let script = "#!/bin/sh\ntouch '\(desk.bus.folder("hit"))'\n"
        let hostile = ScriptedServer { _, reply in reply.respond(200, text: script) }
        // The second line is the last, so the path is an argument there.
        let lines = await desk.run("get", "--quiet", "--exec", "noting one\nnoting two\n\n", hostile.url("/run"))
        #expect(lines.status == 0, "\(lines)")
        #expect(arguments(notes) == ["[one]", "[two]", "[\(desk.downloads)/run]"])
        let dash = await desk.run("get", "--quiet", "--exec=-x", server.url("/a"))
        #expect(dash.status == 5 && dash.errors.contains("-x: not found"), "\(dash)")
        #expect(!fileExists(desk.bus.folder("hit")))
        await desk.close()
    }

    @Test @BusActor func `is for files: a download into an open file has no path`() async throws {
        let commands = EndCommands(try ExecArguments.parse(["--exec", "false"]), json: false)
        let unnamed = DownloadDescription(DownloadReference(number: 1), ["State": .string("finished"), "Path": .string("")])
        commands.add(unnamed)
        let first = await commands.finish()
        #expect(first == .success)
        let named = DownloadDescription(DownloadReference(number: 2), ["State": .string("finished"), "Path": .string("/dev/null")])
        commands.add(named)
        let second = await commands.finish()
        #expect(second == .commandFailed)
    }

    /// A terminal sends Ctrl-C to the command, too.
    @Test @BusActor
    func `runs no further command after Ctrl-C, and reports no failure, even if the end of the command is seen first`() async throws {
        let folder = TemporaryFolder("todoku-notes")
        let script = "echo \"$TODOKU_DOWNLOAD\" >>'\(folder("notes"))'; kill -INT $$"
        nonisolated(unsafe) var failures: [String] = []  // the commands write only on this actor
        let commands = EndCommands(try ExecArguments.parse(["--exec", script]), json: false) { failure in
            failures.append(failure.message)
            return failure.status
        }
        func add(_ number: UInt64) {
            let properties = ["State": Variant.string("finished"), "Path": .string("/dev/null")]
            commands.add(DownloadDescription(DownloadReference(number: number), properties))
        }
        add(1)
        add(2)
        // The loop's own thread blocks all signals. Nothing receives this one yet.
        pthread_kill(pthread_self(), SIGINT)
        let status = await commands.finish()
        #expect(status == .interrupted)
        #expect(text(folder("notes")) == "1\n")
        #expect(failures == [])
        let signals = SignalSource([SIGINT]) { _ in }
        #expect(await eventually { !SignalSource.isPending(SIGINT) })
        withExtendedLifetime(signals) {}
    }

    @Test func `keeps ignored signals ignored, and lets a broken pipe end a command`() async throws {
        let (desk, server, _) = await makeDesk()
        let command = "trap '' HUP INT; exec '\(Desk.command)' get --quiet --exec \"$0\" '\(server.url("/a"))'"
        func run(_ script: String) async -> Child.Exit {
            await Child(["sh", "-c", command, script], environment: desk.environment, folder: desk.bus.folder.path).wait()
        }
        let hung = await run("kill -HUP $$; echo alive")
        #expect(hung.succeeded(saying: "alive\n"), "\(hung)")
        // As Ctrl-C at the terminal of a script that has started the command in the background.
        let interrupted = await run("kill -INT $PPID; kill -INT $$; echo alive")
        #expect(interrupted.succeeded(saying: "alive\n"), "\(interrupted)")
        let piped = await run("kill -PIPE $$; echo alive")
        #expect(piped.status == 5 && piped.errors.hasSuffix("it was ended by signal 13\n"), "\(piped)")
        await desk.close()
    }
}
