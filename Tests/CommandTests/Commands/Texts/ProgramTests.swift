import ArgumentParser
import DownloadModel
import Glibc
import TestSupport
import Testing

@testable import todoku

/// All in the help but `asset` and `rehearse`, whose tests look into other levels and other pages.
private let subcommands = TodokuCommand.configuration.subcommands.map { $0.configuration }.filter(\.shouldDisplay)
    .compactMap(\.commandName).filter { !["asset", "rehearse"].contains($0) }

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
        let exit = await Desk.runAlone(arguments)
        #expect(exit.status == 2)
        #expect(exit.output == "")
        #expect(exit.errors.hasPrefix("todoku: ") && exit.errors.contains("Usage: todoku"))
    }

    @Test(arguments: [
        ["get"], ["fly"], ["show", "x"], ["limit", "7"], ["get", "-o", "-", "http://h/"], ["add", "--priority", "high", "http://h/"],
        ["list", "--state", "x"], ["settings", "x", "1"], ["add", "-qd"], ["wait", "1\nx"],
    ])
    func `reports a wrong command line as JSON, if JSON is asked for`(arguments: [String]) async {
        let exit = await Desk.runAlone(arguments + ["--json"])
        #expect(exit.status == 2 && exit.errors == "", "\(exit)")
        let message = JSON(exit.output)?["error"]?["message"]?.string ?? ""
        #expect(!message.isEmpty && !message.contains("\n") && !message.contains("Error:"), "\(exit)")
    }

    @Test func `lists the choices of an option in one line of JSON`() async {
        let exit = await Desk.runAlone(["list", "--state", "x", "--json"])
        let states = "queued, waiting, active, paused, verifying, extracting, finished, failed, cancelled"
        let sentence = "The value 'x' is invalid for '--state <state>'. Please provide one of the following: \(states)"
        #expect(JSON(exit.output)?["error"]?["message"]?.string == sentence, "\(exit)")
    }

    @Test func `suggests the scheme that a URL lacks`() async throws {
        let desk = await Desk()
        for (url, suggestion) in [
            ("example.org/file", "https://example.org/file"), ("example.org:8080/a?b=c", "https://example.org:8080/a"),
            ("localhost", "https://localhost/"),
        ] {
            let exit = await desk.run("add", url)
            #expect(exit.status == 3 && exit.errors.contains(" Did you mean \(suggestion)?\n"), "\(exit)")
        }
        for url in ["ftp://example.org/file", "file", "http:/x", "https://", "mailto:a@b.c"] {
            let exit = await desk.run("add", url)
            #expect(exit.status == 3 && !exit.errors.contains("Did you mean"), "\(exit)")
        }
        await desk.close()
    }

    @Test func `suggests the scheme wherever a URL is given`() async throws {
        let desk = await Desk()
        let (url, bare) = ("http://127.0.0.1:1/a", "example.org/file")
        let number = await desk.run("add", "--paused", url).output.filter { $0 != "\n" }
        writeFile(desk.bus.folder("list"), "\(url)\n\(bare)\n".utf8)
        writeFile(desk.bus.folder("tabs"), "\(url)\t\(bare)\n".utf8)
        for arguments in [
            ["renew", number, bare], ["asset", "add", "org.example.App/maps", bare], ["batch", "list"], ["batch", "tabs"],
            ["get", "--mirror", bare, url], ["add", "--mirror", url, "--mirror", bare, url], ["fetch", "--mirror", bare, url],
        ] {
            let exit = await desk.start(arguments).wait()
            #expect(exit.status == 3 && exit.errors.hasSuffix(" Did you mean https://example.org/file?\n"), "\(exit)")
        }
        for arguments in [["renew", number, "file"], ["add", "--mirror", "https://me@example.org/file", url]] {
            let exit = await desk.start(arguments).wait()
            #expect(exit.status == 3 && !exit.errors.contains("Did you mean"), "\(exit)")
        }
        await desk.close()
    }

    @Test func `names an option by its flag, as the command knows it`() async throws {
        let desk = await Desk()
        for (arguments, start) in [
            (["--filename", "a/b"], "todoku: --filename "), (["-H", "Host: x"], "todoku: --header: "),
            (["--size", "2", "--max-size", "1"], "todoku: --size is larger than --max-size."),
            (["--mirror", "http://127.0.0.1:1/m", "--mirror", "m"], "todoku: --mirror, number 2: This is not an absolute URL; "),
            (["--mirror", "http://me@127.0.0.1:1/m"], "todoku: --mirror, number 1: The URL has a user name "),
            (["--extract", "--if-exists", "replace"], "todoku: --if-exists cannot be replace together with --extract: "),
            (["--extract", "--only-if-changed"], "todoku: --only-if-changed does not go with --extract, "),
            (["--post-data", "x", "--only-if-changed"], "todoku: --post-data does not go with --only-if-changed, "),
            (["--post-data", "x", "--mirror", "http://127.0.0.1:1/m"], "todoku: --post-data does not go with --mirror, "),
            (["--private", "--only-if-changed"], "todoku: --private does not go with --only-if-changed, "),
            (
                ["--not-private"],
                "todoku: 127.0.0.1 is this machine or in a private network, where this download may not go (--not-private).\n"
            ),
        ] {
            let exit = await desk.start(["add"] + arguments + ["http://127.0.0.1:1/"]).wait()
            #expect(exit.status == 3 && exit.errors.hasPrefix(start), "\(exit)")
        }
        let help = await desk.run("get", "--help").output
        for key in OptionRow.byKey.keys {
            let flag = try #require(CommandWords.flag(of: key))
            #expect(help.contains(flag), "\(key): \(flag)")
        }
        // The service refuses the URL of “add”, and the command itself that of “batch”.
        let url = "http://me:pass word@127.0.0.1:1/"
        writeFile(desk.bus.folder("list"), "\(url)\n".utf8)
        for arguments in [["add", url], ["batch", "list"]] {
            let exit = await desk.start(arguments).wait()
            #expect(exit.status == 3 && exit.errors.hasSuffix("; encode it, or give --user.\n"), "\(exit)")
        }
        #expect(CommandWords.flag(of: "frob") == nil)
        #expect(CommandWords.replacingKeys(in: "Option frob needs the option app; an option.") == "Option frob needs --app; an option.")
        let item = CommandWords.replacingKeys(in: "Option mirrors, item 9: Encode it, or give the options username and password.")
        #expect(item == "--mirror, number 10: Encode it, or give --user.")
        #expect(CommandWords.replacingKeys(in: "Queue a new download with post-data.") == "Queue a new download with --post-data.")
        let prose = "Nothing to extract: “post-data” and post-data/x are files in a private network, and --post-data is a flag."
        #expect(CommandWords.replacingKeys(in: prose) == prose)
        await desk.close()
    }

    @Test(arguments: subcommands)
    func `has examples in its help`(subcommand: String) async {
        let exit = await Desk.runAlone([subcommand, "--help"])
        #expect(exit.status == 0 && exit.errors == "", "\(exit)")
        #expect(exit.output.contains("EXAMPLES:") && exit.output.contains("  todoku \(subcommand)"))
    }

    @Test(arguments: subcommands)
    func `has each option in its man page`(subcommand: String) async throws {
        let bytes = try #require(readFile("\(repository)/data/man/todoku.1"))
        let page = String(decoding: bytes, as: UTF8.self).split(separator: "\\").joined()
        let help = await Desk.runAlone([subcommand, "--help"]).output
        let words = help.split { !$0.isLetter && $0 != "-" }.filter { $0.hasPrefix("--") && $0.count > 2 }
        for option in Set(words).subtracting(["--help", "--version", "--show-progress"]) { #expect(page.contains(option), "\(option)") }
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
        #expect(unknown.errors == "todoku: \(Desk.noDownload(99))\n")

        #expect(await desk.run("resume", "1", "org.example.App/ch_1").status == 0)
        let wait = await desk.run("wait", "1", "org.example.App/ch_1")
        #expect(wait.succeeded(saying: "\(desk.downloads)/a.bin\n\(desk.downloads)/c.bin\n"))
        #expect(await desk.run("cancel", "2").status == 0)
        let cancelled = await desk.run("wait", "2")
        #expect(cancelled.status == 1)
        #expect(cancelled.errors == "todoku: b.bin (download 2) was cancelled\n")
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

    @Test func `retries every failed download with --all, and no other one`() async throws {
        let desk = await Desk()
        let server = ScriptedServer { [body] request, reply in
            if request.path.hasPrefix("/gone") { reply.respond(404) } else { reply.serve(body, for: request) }
        }
        let urls = ["/gone-1", "/here", "/gone-2"].map { server.url($0) }
        #expect(await desk.start(["get", "--quiet", "--notify", "never"] + urls).wait().status == 1)
        _ = await desk.run("add", "--paused", server.url("/gone-3"))
        _ = await desk.run("cancel", "4")
        #expect(await desk.run("retry", "--all").succeeded(saying: ""))
        #expect(await desk.run("wait", "--quiet", "1", "3").status == 1)
        for (path, count) in [("/gone-1", 2), ("/here", 1), ("/gone-2", 2), ("/gone-3", 0)] {
            #expect(server.requests.filter { $0.path == path }.count == count, "\(path)")
        }
        #expect(JSON(await desk.run("show", "--json", "4").output)?["state"]?.string == "cancelled")
        #expect(await desk.run("remove", "1", "3").succeeded(saying: ""))
        #expect(await desk.run("retry", "--all").succeeded(saying: ""), "nothing has failed")
        #expect(await desk.run("retry", "--all", "4").status == 2)
        await desk.close()
    }

    @Test func `names each download that cannot be resumed, and says what starts it again`() async throws {
        let desk = await Desk()
        let server = ScriptedServer { [body] request, reply in reply.serve(body, for: request) }
        _ = await desk.run("add", server.url("/a"))
        #expect(await desk.run("wait", "--quiet", "1").status == 0)
        _ = await desk.run("add", "--paused", server.url("/b"))
        _ = await desk.run("cancel", "2")
        let exit = await desk.run("resume", "1", "2")
        #expect(exit.status == 3)
        #expect(
            exit.errors == """
                todoku: 1: A download that is finished cannot be resumed.
                todoku: 2: A download that is cancelled cannot be resumed.
                todoku: “todoku retry 2” starts it again

                """)
        await desk.close()
    }

    @Test(arguments: [["get"], ["add"], ["renew", "1"]])
    func `repeats no secret of a header that is wrong`(command: [String]) async throws {
        let desk = await Desk()
        let exit = await desk.start(command + ["-H", "Authorization Bearer SECRET", "http://127.0.0.1:1/a"]).wait()
        #expect(exit.status == 2 && exit.errors.contains("A --header has no “:” after its name"), "\(exit)")
        #expect(!exit.errors.contains("SECRET"))
        await desk.close()
    }

    @Test func `says which folder is missing, and what makes it`() async throws {
        let desk = await Desk()
        let folder = desk.bus.folder("new")
        for arguments in [["get", "-d", folder, "http://127.0.0.1:1/a"], ["add", "-o", "\(folder)/a", "http://127.0.0.1:1/a"]] {
            let exit = await desk.start(arguments).wait()
            #expect(exit.status == 3 && exit.errors == "todoku: The folder \(folder) does not exist. --parents makes it.\n", "\(exit)")
        }
        await desk.close()
    }

    @Test func `takes the numbers that add prints as one argument`() async throws {
        let desk = await Desk()
        let server = ScriptedServer { [body] request, reply in reply.serve(body, for: request) }
        let urls = [server.url("/a"), server.url("/b")]
        let script = "\"$0\" wait \"$(\"$0\" add \"$@\")\""
        let exit = await Child(["sh", "-c", script, Desk.command] + urls, environment: desk.environment).wait()
        #expect(exit.succeeded(saying: "\(desk.downloads)/a\n\(desk.downloads)/b\n"), "\(exit)")
        #expect(await desk.run("remove", "1\n2\n").succeeded(saying: ""))
        for wrong in ["1\nx", "", "\n"] { #expect(await desk.run("wait", wrong).status == 2, "\(wrong)") }
        await desk.close()
    }

    @Test func `says that a resumed download does not start while everything is paused`() async throws {
        let desk = await Desk()
        _ = await desk.run("add", "--paused", "http://127.0.0.1:1/a")
        _ = await desk.run("pause", "--all")
        let exit = await desk.run("resume", "1")
        #expect(exit.status == 0 && exit.output == "" && exit.errors.contains("everything is paused"), "\(exit)")
        #expect(await desk.run("resume", "--all").succeeded(saying: ""))
        await desk.close()
    }

    @Test func `makes a missing folder only if that is asked for`() async throws {
        let desk = await Desk()
        let server = ScriptedServer { [body] request, reply in reply.serve(body, for: request) }
        let url = server.url("/a")
        #expect(await desk.run("get", "-o", "new/deep/name", url).status != 0)
        #expect(!fileExists(desk.bus.folder("new")))
        #expect(await desk.run("get", "-p", "-o", "new/deep/name", url).status == 0)
        #expect(readFile(desk.bus.folder("new/deep/name")) == body)
        #expect(await desk.run("get", "--parents", "-d", "new/other", url).status == 0)
        #expect(readFile(desk.bus.folder("new/other/a")) == body)
        let bare = await desk.run("add", "-p", url)
        #expect(bare.status == 2 && bare.errors.contains("--parents needs --output, --directory or --extract=PATH"), "\(bare)")
        writeFile(desk.bus.folder("file"), "".utf8)
        let wrong = await desk.run("get", "-p", "-d", "file/x", url)
        #expect(wrong.status == 3 && wrong.errors.hasSuffix("/file” cannot be made: Not a directory\n"), "\(wrong)")
        await desk.close()
    }

    @Test(arguments: [
        (["backup", "-"], "todoku backup"), (["asset", "key", "-"], "todoku asset key"),
        (["asset", "pack", "levels", "--parents", "--output", "-"], "todoku asset pack"),
        (["rehearse", "--log", "-", "none", "--", "true"], "--log"),
    ])
    func `makes no file that is called “-”`(arguments: [String], writer: String) async throws {
        let desk = await Desk()
        #expect(await desk.run("add", "--paused", "http://127.0.0.1:1/a").status == 0)  // something to back up
        writeFile("\(desk.bus.folder.makeFolder("levels"))/1.txt", "x".utf8)
        let exit = await desk.start(arguments).wait()
        let sentence = "todoku: \(writer) cannot write to standard output (“-”); give a path.\n"
        #expect(exit.status == 2 && exit.output == "" && exit.errors.hasPrefix(sentence), "\(exit)")
        #expect(!fileExists(desk.bus.folder("-")))
        await desk.close()
    }

    /// The commands differ in whether libdbus has been used before the output.
    @Test(arguments: [["list", "--json"], ["doctor"], ["get", "--help"]])
    func `ends by SIGPIPE, and without an error, if the reader of its output is gone`(arguments: [String]) async throws {
        let desk = await Desk()
        // A pipe that is open for both directions has a reader until its descriptor is closed.
        let script = #"mkfifo pipe && exec 4<>pipe 5>pipe && exec 4<&- && exec "$0" "$@" >&5"#
        let exit = await Child.run(
            ["sh", "-c", script, Desk.command] + arguments, environment: desk.environment, folder: desk.bus.folder.path)
        #expect(exit.status == 128 + SIGPIPE && exit.errors == "", "\(exit)")
        let line = await Child.run(["sh", "-c", #""$0" "$@" | head -n 1"#, Desk.command] + arguments, environment: desk.environment)
        #expect(line.status == 0 && line.output.split(separator: "\n").count == 1 && line.errors == "", "\(line)")
        await desk.close()
    }

    /// A program that opens a file or a socket gets the number of a stream that is closed.
    @Test func `writes into none of its own files and sockets if a standard stream is closed`() async throws {
        let desk = await Desk()
        #expect(await desk.run("add", "--paused", "http://127.0.0.1:1/a").status == 0)
        // A command that never ends is stopped, with the status 124.
        func run(_ redirection: String, _ arguments: String...) async -> Child.Exit {
            await Child.run(
                ["sh", "-c", #"exec timeout 300 "$0" "$@" \#(redirection)"#, Desk.command] + arguments, environment: desk.environment)
        }
        for redirection in [">&-", "<&- >&-"] {
            let list = await run(redirection, "list")
            #expect(list.status == 3 && list.errors == "todoku: cannot write the output: Bad file descriptor\n", "\(list)")
        }
        for redirection in ["2>&-", "<&- 2>&-"] {
            let list = await run(redirection, "list")
            #expect(list.status == 0 && list.output.contains("paused"), "\(list)")
            // The message is dropped.
            let missing = await run(redirection, "show", "99", "1")
            #expect(missing.status == 3 && missing.output.contains("paused"), "\(missing)")
        }
        let batch = await run("<&-", "batch", "-")
        #expect(batch.status == 2 && batch.errors == "todoku: cannot read “standard input”: Bad file descriptor\n", "\(batch)")
        await desk.close()
    }

    @Test func `refuses to write to standard output`() async throws {
        let desk = await Desk()
        let exit = await desk.run("get", "-o", "-", "http://127.0.0.1:1/a")
        #expect(exit.status == 2 && exit.errors.contains("cat \"$(todoku fetch URL)\""), "\(exit)")
        #expect(listFolder(desk.bus.folder.path).allSatisfy { $0 != "-" })
        await desk.close()
    }

    @Test(arguments: [
        ["levels", "http://h/a.tar.gz"], ["levels"], ["/srv/levels", "http://h/a.tar.gz"], ["v1.2", "http://h/a.tar.gz"],
    ])
    func `says how a folder is given to --extract, if it stands among the URLs`(urls: [String]) async {
        let sentence = "“\(urls[0])” is no URL. Write the folder of --extract after “=”: --extract=\(urls[0])"
        for command in ["get", "add"] {
            let exit = await Desk.runAlone([command, "--extract"] + urls)
            #expect(exit.status == 2 && exit.output == "" && exit.errors.hasPrefix("todoku: \(sentence)\n"), "\(exit)")
        }
        let arguments = ["get", "--extract", "h/a?key=SECRET", "http://h/b"]
        let secret = await Desk.runAlone(arguments, ["DBUS_SESSION_BUS_ADDRESS": "unix:path=/no-bus"])
        #expect(secret.status == 3 && !secret.errors.contains("SECRET"), "\(secret)")
        let other = await Desk.runAlone(["list", "--extract=levels"])
        #expect(other.status == 2 && other.errors.hasPrefix("todoku: Unknown option '--extract'"), "\(other)")
    }

    /// script(1) gives the command a terminal.
    @Test func `lists on a narrow terminal, with the reasons`() async throws {
        let desk = await Desk()
        func list(_ arguments: String = "", colour: String = "1") async -> String {
            let command = "stty cols 40; \(Desk.command) list \(arguments)"
            let environment = desk.environment.merging(["NO_COLOR": colour]) { $1 }
            return await Child(["script", "-q", "-c", command, "/dev/null"], environment: environment).wait().output
                .replacing(Desk.slowNotice, with: "").replacing("\r\n", with: "\n")
        }
        #expect(await list() == "There are no downloads.\n")
        #expect(await list("--state failed") == "There are no such downloads.\n")
        let server = ScriptedServer { _, reply in reply.respond(404) }
        _ = await desk.run("get", "--app", "org.example.App", "--token", "chapter_1", server.url("/a-file-with-a-long-name.iso"))
        let lines = await list().split(separator: "\n").map(String.init)
        #expect(lines.allSatisfy { TerminalText.width($0) <= 40 }, "\(lines)")
        #expect(lines[1] == "org.example.App/chapter_1" && lines[2].hasPrefix("          failed  "), "\(lines)")
        let reason = lines.dropFirst(3).map { $0.drop { $0 == " " } }.joined(separator: " ")
        #expect(reason.hasPrefix("The server 127.0.0.1") && reason.contains("404"), "\(lines)")
        #expect(await list(colour: "").contains("          \u{1b}[31mfailed\u{1b}[39m  "))
        #expect(!(await desk.run("list").output.contains("\u{1b}")))
        await desk.close()
    }

    @Test func `saves settings`() async throws {
        let desk = await Desk()
        #expect(await desk.run("settings", "speed-limit", "2MiB").status == 0)
        #expect(await desk.run("settings", "max-active").output == "auto\n")
        #expect(await desk.run("settings", "max-active", "7").status == 0)
        desk.bus.folder.makeFolder("elsewhere")
        #expect(await desk.run("settings", "default-directory", "elsewhere").status == 0)
        #expect(await desk.run("settings", "speed-limit").output == "2MiB\n")
        let all = try #require(JSON(await desk.run("settings", "--json").output))
        #expect(all["max-active"]?.number == 7 && all["speed-limit"]?.number == 2_097_152)
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
        #expect(await all.says("b.bin\",\"unchanged\":false,\"error\":null"))
        all.signal(SIGINT)
        // Before its end, the last line may have come in part only.
        let interrupted = await all.wait()
        #expect(interrupted.status == 130)
        #expect(interrupted.output.split(separator: "\n").allSatisfy { JSON(String($0))?["event"]?.string != nil }, "\(interrupted)")
        let unknown = await desk.run("watch", "99")
        #expect((unknown.status, unknown.errors) == (3, "todoku: \(Desk.noDownload(99))\n"))
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
        #expect((early.status, early.errors) == (3, "todoku: 1: A download that is paused has no finished file.\n"))
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
