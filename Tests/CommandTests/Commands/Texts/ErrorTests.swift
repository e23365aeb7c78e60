import ArgumentParser
import TestSupport
import Testing

@testable import todoku

/// Each command without subcommands, with those above it.
private func leaves(of type: any ParsableCommand.Type = TodokuCommand.self, _ names: [String] = []) -> [String] {
    let subcommands = type.configuration.subcommands
    if subcommands.isEmpty { return [names.joined(separator: " ")] }
    return subcommands.flatMap { leaves(of: $0, names + [$0.configuration.commandName ?? "?"]) }
}

/// With these arguments, each command fails where no service can be started, or where there is no such file.
private let failing: [String: [String]] = [
    "get": ["http://127.0.0.1/x"], "add": ["http://127.0.0.1/x"], "batch": ["list"], "metalink": ["list"],
    "fetch": ["http://127.0.0.1/x"], "list": [], "show": ["1"], "watch": [], "wait": ["1"], "pause": ["1"], "resume": ["1"],
    "cancel": ["1"], "retry": ["1"], "renew": ["1", "http://127.0.0.1/x"], "move": ["1", "first"], "change": ["--metered", "1"],
    "remove": ["1"], "open": ["1"], "why": ["1"], "host": [], "limit": [], "settings": [], "stats": [],
    "asset add": ["org.example.App/maps", "http://127.0.0.1/m.json"], "asset check": ["org.example.App/maps"],
    "asset update": ["org.example.App/maps"], "asset rollback": ["org.example.App/maps"], "asset cancel": ["org.example.App/maps"],
    "asset list": [], "asset show": ["org.example.App/maps"], "asset remove": ["org.example.App/maps"], "asset pack": ["none"],
    "asset key": ["none/key"], "asset serve": ["none"], "rehearse": ["--service", "none", "busy", "--", "true"], "backup": ["copy"],
    "restore": ["copy"],
]
/// `complete` is for shells, `doctor` tells what is wrong in its findings, and `reset` has nothing to reset.
private let notFailing: Set = ["complete", "doctor", "reset"]

@Suite(.serialized) struct `An error as JSON` {
    @Test func `is that of each command, and all that it prints`() async throws {
        #expect(Set(leaves()) == notFailing.union(failing.keys), "a new command has a row")
        let desk = await Desk(hasService: false)
        writeFile(desk.bus.folder("list"), "http://127.0.0.1/x\n".utf8)
        for (command, arguments) in failing.sorted(by: { $0.key < $1.key }) {
            let exit = await desk.start(command.split(separator: " ").map(String.init) + ["--json"] + arguments).wait()
            let lines = exit.output.split(separator: "\n").map { JSON(String($0)) }
            #expect(lines.count == 1 && lines[0]?["error"]?["message"]?.string?.isEmpty == false, "\(command): \(exit)")
            #expect(exit.status == (command == "rehearse" ? 2 : 3) && exit.errors == "", "\(command): \(exit)")
        }
        await desk.close()
    }

    @Test func `says which download, batch or URL it is about`() async throws {
        let desk = await Desk()
        let server = ScriptedServer { _, reply in reply.respond(404) }
        func objects(_ arguments: [String]) async -> [TestSupport.JSON] {
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
        let resumed = await objects(["resume", "2"])
        #expect(resumed.map { $0["download"]?.string } == ["2"], "without the sentence about “todoku retry”: \(resumed)")
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

@Suite(.serialized) struct `An error about a download` {
    @Test func `has its name, its number and the reason, whichever command tells that it failed`() async throws {
        let desk = await Desk()
        let server = ScriptedServer { _, reply in reply.respond(404) }
        writeFile(desk.bus.folder("list"), "\(server.url("/gone"))\n".utf8)
        #expect(await desk.run("get", "--quiet", server.url("/gone")).status == 1)
        #expect(await desk.run("batch", "--wait", "--quiet", "--notify", "never", "list").status == 1)
        let reason = try #require(JSON(await desk.run("show", "--json", "1").output)?["error"]?["message"]?.string)
        // The batch has the number 2, and its download 3. Each further download takes the next number.
        for (command, number) in [
            (["wait", "1"], 1), (["wait", "--quiet", "3"], 3), (["watch", "1"], 1), (["watch", "2"], 3),
            (["watch", "--exec", "true", "2"], 3),
            (["get", server.url("/gone")], 4), (["get", "--quiet", server.url("/gone")], 5),
            (["batch", "--wait", "--notify", "never", "list"], 7), (["batch", "--wait", "--quiet", "--notify", "never", "list"], 9),
        ] {
            let exit = await desk.start(command).wait()
            #expect(exit.status == 1, "\(command): \(exit)")
            #expect(exit.errors == "todoku: gone (download \(number)) failed: \(reason)\n", "\(command): \(exit)")
        }
        let json = await desk.run("wait", "--json", "1")
        let error = JSON(json.output)?["error"]
        #expect(error?["message"]?.string == "gone (download 1) failed: \(reason)", "\(json)")
        #expect(error?["name"]?.string == "org.todoku.Error.HttpStatus" && json.status == 1 && json.errors == "", "\(json)")
        await desk.close()
    }

    @Test func `has its number alone if a command is refused`() async throws {
        let desk = await Desk()
        let server = ScriptedServer { _, reply in reply.respond(200, text: "x") }
        #expect(await desk.run("get", "--quiet", server.url("/a")).status == 0)
        for (command, end) in [
            (["pause", "1"], "cannot be paused"), (["resume", "1"], "cannot be resumed"), (["cancel", "1"], "cannot be cancelled"),
            (["retry", "1"], "cannot be retried"), (["change", "--metered", "1"], "cannot be changed"),
            (["limit", "1K", "1"], "cannot be changed"),
            (["move", "--priority", "1", "1"], "cannot be changed"), (["move", "1", "first"], "has no place in the queue"),
        ] {
            let exit = await desk.start(command).wait()
            #expect(exit.status == 3 && exit.output == "", "\(command): \(exit)")
            #expect(exit.errors == "todoku: 1: A download that is finished \(end).\n", "\(command): \(exit)")
        }
        await desk.close()
    }
}

@Suite struct `A word that is no command` {
    @Test(arguments: [
        (["lst"], "There is no command “lst”. Did you mean: todoku list?"),
        (["ls"], "There is no command “ls”. Did you mean: todoku list?"),
        (["rm", "7"], "There is no command “rm”. Did you mean: todoku remove, todoku cancel?"),
        (["lsit", "--all"], "There is no command “lsit”. Did you mean: todoku list?"),
        (["Resume", "7"], "There is no command “Resume”. Did you mean: todoku resume?"),
        (["asset", "ls"], "There is no command “ls”. Did you mean: todoku asset list?"),
        (["help", "lst"], "There is no command “lst”. Did you mean: todoku list?"),
        (["help", "asset", "ls"], "There is no command “ls”. Did you mean: todoku asset list?"),
        (["help", "fly"], "There is no command “fly”; “todoku --help” lists all."),
        (["asset", "upadte", "org.example.App/maps"], "There is no command “upadte”. Did you mean: todoku asset update?"),
        (["fly"], "There is no command “fly”; “todoku --help” lists all."),
        (["asset", "7"], "There is no command “7”; “todoku asset --help” lists all."),
        (["comp"], "There is no command “comp”; “todoku --help” lists all."),
        (["https://example.org/a?key=secret"], "A URL is no command; “todoku get URL” downloads it."),
        (["example.org/a", "-o", "b"], "A URL is no command; “todoku get URL” downloads it."),
    ])
    func `is told, with the commands that may be meant`(arguments: [String], sentence: String) async {
        let exit = await Desk.runAlone(arguments)
        #expect(exit.status == 2 && exit.output == "", "\(exit)")
        #expect(exit.errors.hasPrefix("todoku: \(sentence)\nUsage: todoku ") && !exit.errors.contains("secret"), "\(exit)")
        #expect(exit.errors.contains(" --help' for more information."), "\(exit)")
        let json = await Desk.runAlone(arguments + ["--json"])
        #expect(JSON(json.output)?["error"]?["message"]?.string == sentence, "\(json)")
    }

    @Test(arguments: [
        (["--frob"], "Unknown option '--frob'"), (["show"], "Missing expected argument '<download> ...'"),
        (["asset", "show"], "Missing expected argument '<app/name>'"), (["list", "ls"], "Unexpected argument 'ls'"),
        // An option is suggested only if it is likely to be meant.
        (["add", "--frob", "http://h/"], "Unknown option '--frob'"),
        (["add", "--retry", "3", "http://h/"], "Unknown option '--retry'. Did you mean '--retries'?"),
    ])
    func `is not found where a command is right`(arguments: [String], start: String) async {
        let exit = await Desk.runAlone(arguments)
        #expect(exit.status == 2 && exit.errors.hasPrefix("todoku: \(start)\n"), "\(exit)")
    }
}

@Suite struct `The folder of --parents` {
    @Test func `is also that of an archive, an asset and the files of pack`() async throws {
        let desk = await Desk()
        let levels = desk.bus.folder.makeFolder("levels")
        writeFile("\(levels)/hello", "hello".utf8)
        let made = await Child.run(["tar", "-C", levels, "-czf", desk.bus.folder("a.tar.gz"), "hello"])
        #expect(made.status == 0, "\(made)")
        let archive = try #require(readFile(desk.bus.folder("a.tar.gz")))
        let server = ScriptedServer { _, reply in reply.respond(200, body: archive) }
        let new = desk.bus.folder("new")
        for (name, command) in [
            ("extract", ["get", "--extract=new/extract/here", server.url("/a.tar.gz")]),
            ("asset", ["asset", "add", "-d", "new/asset", "org.example.App/maps", server.url("/m.json")]),
            ("pack", ["asset", "pack", "levels", "-o", "new/pack"]),
        ] {
            let missing = await desk.start(command).wait()
            let folder = "\(new)/\(name)"
            #expect(missing.status == 3, "\(missing)")
            #expect(missing.errors.hasSuffix("The folder \(folder) does not exist. --parents makes it.\n"), "\(missing)")
            #expect(!fileExists(new))
            let exit = await desk.start(command + ["-p"]).wait()
            #expect(exit.status == 0 && fileExists(folder), "\(exit)")
            removeTree(new)
        }
        let change = await desk.run("add", "--paused", server.url("/x"))
        let number = change.output.filter { $0 != "\n" }
        let moved = await desk.run("change", "-d", "new", number)
        #expect(moved.status == 3 && moved.errors.hasSuffix(" does not exist. --parents makes it.\n"), "\(moved)")
        writeFile(desk.bus.folder("list"), "\(server.url("/y"))\n\(server.url("/z"))\n".utf8)
        let batch = await desk.run("batch", "--paused", "list").output.filter { $0 != "\n" }
        let members = await desk.run("change", "--json", "-d", "new", batch)
        let errors = members.output.split(separator: "\n").compactMap { JSON(String($0)) }
        #expect(members.status == 3 && errors.count == 2, "\(members)")
        let first = try #require(Int(batch)) + 1
        #expect(errors.map { $0["download"]?.string } == ["\(first)", "\(first + 1)"], "\(members)")
        for error in errors {
            #expect(error["error"]?["message"]?.string == "The folder \(new) does not exist. --parents makes it.", "\(error)")
        }
        let setting = await desk.run("settings", "default-directory", "new")
        #expect(setting.status == 3 && setting.errors == "todoku: The folder \(new) does not exist.\n", "\(setting)")
        let alone = await desk.run("asset", "add", "-p", "org.example.App/maps", server.url("/m.json"))
        #expect(alone.status == 2 && alone.errors.contains("--parents needs --directory"), "\(alone)")
        await desk.close()
    }
}

@Suite struct `A file that cannot be used` {
    /// The C library looks for the number format of such a locale in files that are not there.
    @Test func `is named with the right reason, also in a locale that is not installed`() async {
        let folder = TemporaryFolder()
        writeFile(folder("file"), [])
        let path = folder("file/x")
        for (arguments, message) in [
            (["get", "--user", "me", "--password-file", path, "http://h/"], "cannot read the password from “\(path)”: Not a directory"),
            (["metalink", path], "cannot read “\(path)”: Not a directory"),
            (["metalink", folder.path], "cannot read “\(folder.path)”: Is a directory"),
            (["batch", path], "cannot read “\(path)”: Not a directory"),
            (["batch", folder.path], "cannot read “\(folder.path)”: Is a directory"),
            (
                ["rehearse", "--service", Desk.service, "--summary", path, "none", "--", "true"],
                "“\(path)” cannot be written: Not a directory"
            ),
        ] {
            let exit = await Desk.runAlone(arguments, ["LC_ALL": "xx_XX.UTF-8"])
            #expect(exit.status == 2 && exit.errors == "todoku: \(message)\n", "\(exit)")
        }
    }
}

private struct WrongName: Sendable {
    /// The words before the wrong name, and those behind it.
    let before, after: [String]
    let argument: String
    let sentence: String

    init(
        _ before: String, after: String = "", argument: String = "<download>",
        _ sentence: String =
            "is not the name of a download or batch; write a number such as 7, or APP/TOKEN. “todoku list --all” shows all."
    ) {
        (self.before, self.after) = (before.split(separator: " ").map(String.init), after.split(separator: " ").map(String.init))
        (self.argument, self.sentence) = (argument, sentence)
    }

    static func asset(_ before: String, argument: String = "<app/name>") -> WrongName {
        WrongName(before, argument: argument, "is not the name of an asset; write APP/NAME. “todoku asset list” shows all assets.")
    }

    static let all: [WrongName] = [
        WrongName("pause"), WrongName("resume"), WrongName("cancel"), WrongName("retry"), WrongName("remove"), WrongName("show"),
        WrongName("why"), WrongName("watch"), WrongName("wait"), WrongName("open"), WrongName("move", after: "first"),
        WrongName("renew", after: "http://h/"), WrongName("limit 500K"), WrongName("change --metered"),
        WrongName(
            "list --batch", argument: "--batch <batch>",
            "is not the name of a batch; write its number, such as 7. “todoku list --all” shows all batches."),
        asset("asset check"), asset("asset update"), asset("asset rollback"), asset("asset cancel"), asset("asset show"),
        asset("asset remove"), asset("asset serve levels --asset", argument: "--asset <app/name>"),
    ]
}

@Suite struct `A name that is none` {
    @Test func `is told with what to write, also as JSON`() async {
        for wrong in WrongName.all {
            let words = wrong.before + ["5-7"] + wrong.after
            let message = "The value '5-7' is invalid for '\(wrong.argument)': “5-7” \(wrong.sentence)"
            let exit = await Desk.runAlone(words)
            #expect(exit.status == 2 && exit.output == "" && exit.errors.hasPrefix("todoku: \(message)\n"), "\(words): \(exit)")
            let json = await Desk.runAlone(words + ["--json"])
            #expect(json.status == 2 && json.errors == "", "\(words): \(json)")
            #expect(JSON(json.output)?["error"]?["message"]?.string == message, "\(words): \(json)")
        }
    }

    @Test func `is that of its line in an argument of several lines`() async {
        let exit = await Desk.runAlone(["resume", "8\n1x"])
        #expect(exit.status == 2 && exit.errors.hasPrefix("todoku: The value '8\n1x' is invalid for '<download>': “1x” is not "), "\(exit)")
        let empty = await Desk.runAlone(["wait", ""])
        #expect(empty.status == 2 && empty.errors.hasPrefix("todoku: The value '' is invalid for '<download>': “” is not "), "\(empty)")
    }

    @Test func `is told in Japanese, too`() async {
        let exit = await Desk.runAlone(["resume", "1x"], ["LC_ALL": "ja_JP.UTF-8"])
        #expect(exit.status == 2 && exit.errors.contains("「1x」はダウンロードや一括ダウンロードの名前ではありません。"), "\(exit)")
    }
}

@Suite struct `An option that is wrong` {
    @Test(arguments: [("--checksum", "x"), ("--piece-hashes", "x"), ("--proxy", "x://y")])
    func `is named by its flag`(option: String, value: String) async {
        let exit = await Desk.runAlone(["add", option, value, "http://127.0.0.1:1/"])
        let message = exit.errors.split(separator: "\n").first ?? ""
        #expect(exit.status == 2 && message.hasPrefix("todoku: \(option)"), "\(exit)")
        #expect(message.split(separator: option, omittingEmptySubsequences: false).count == 2, "once: \(exit)")
    }

    /// Nonsense, a number below the range, and one above it.
    @Test(
        arguments: [
            (
                ["add", "http://h/", "--connections"], "--connections <count>", ["many", "-1", "17"],
                "is not a number of connections; write a whole number from 1 to 16, or 0 (automatic)."
            ),
            (
                ["add", "http://h/", "--retries"], "--retries <count>", ["many", "-1", "4294967296"],
                "is not a number of retries; write a whole number from 0 (none) to 4294967295."
            ),
            (
                ["add", "http://h/", "--notify-delay"], "--notify-delay <time>", ["2h", "3600001ms"],
                "is too long; write a time of at most 1 h, such as 30s."
            ),
            (
                ["add", "http://h/", "--size"], "--size <size>", ["big", "-5", "--paused"],
                "is not a size; write a number from 0 on, like 500K, 10MiB or 1.5G."
            ),
            (
                ["add", "http://h/", "--deadline"], "--deadline <time>", ["soon", "-5", "100d"],
                "is not a time; write it like 500ms, 30s, 2m or 1h, from 0 to 49 days."
            ),
            (
                ["add", "http://h/", "--deadline"], "--deadline <time>", ["2000h", "4294968", "18446744073709551615h"],
                "is too long; write a time of at most 49 d 17 h, such as 30s."
            ),
            (
                ["add", "http://h/", "--not-before"], "--not-before <time>", ["soon", "-1h"],
                "is not a time; write it like 23:30, 2026-12-24T03:00 or +2h."
            ),
            (
                ["host", "example.org", "--interval"], "--interval <time>", ["-1s"],
                "is not a time; write it like 500ms, 30s, 2m or 1h, from 0 to 49 days."
            ),
            (["limit"], "<speed>", ["-5", "-5K"], "is not a speed; write a number from 0 on, like 500K, 2MiB or none."),
            (
                ["add", "http://h/", "--stall-timeout"], "--stall-timeout <time>", ["0", "0ms"],
                "is too short; write a time above 0, such as 30s."
            ),
            (
                ["add", "http://h/", "--priority"], "--priority <priority>", ["high", "-2147483649", "2147483648"],
                "is not a priority; write a whole number such as 10 or -1. A higher number starts first."
            ),
            (
                ["move", "7", "--priority"], "--priority <number>", ["high", "-2147483649", "2147483648"],
                "is not a priority; write a whole number such as 10 or -1. A higher number starts first."
            ),
            (
                ["move", "7"], "<place>", ["soon", "-1", "0", "4294967296"],
                "is not a place; write a number from 1 to 4294967295, “first” or “last”."
            ),
            (
                ["host", "example.org", "--connections"], "--connections <number>", ["many", "-1", "4294967296"],
                "is not a number of connections; write a whole number from 1 to 4294967295, or 0 (no limit)."
            ),
            (
                ["asset", "serve", "levels", "--port"], "--port <port>", ["http", "-1", "65536"],
                "is not a port; write a number from 1 to 65535, or 0 (any that is free)."
            ),
            (
                ["asset", "pack", "levels", "--level"], "--level <level>", ["best"],
                "is not a level; write 1 to 22 for zstd, 1 to 9 for gzip and bzip2, 0 to 9 for xz."
            ),
        ] as [([String], String, [String], String)])
    func `names the range of its numbers`(command: [String], option: String, values: [String], sentence: String) async {
        for value in values {
            let exit = await Desk.runAlone(command + [value])
            #expect(exit.status == 2 && exit.output == "", "\(exit)")
            #expect(exit.errors.hasPrefix("todoku: The value '\(value)' is invalid for '\(option)': “\(value)” \(sentence)\n"), "\(exit)")
        }
    }

    @Test func `is read as the number of its option, though another argument is below 0`() async {
        let exit = await Desk.runAlone(["move", "--priority", "-1", "7", "-2", "--json"])
        let message = JSON(exit.output)?["error"]?["message"]?.string ?? ""
        #expect(exit.status == 2 && message.hasPrefix("The value '-2' is invalid for '<place>': “-2” is not a place; "), "\(exit)")
        let limit = await Desk.runAlone(["limit", "--json", "-5"])
        #expect(limit.status == 2 && limit.output.contains("“-5” is not a speed; "), "\(limit)")
        let setting = await Desk.runAlone(["settings", "max-per-host", "-1"])
        let sentence = "max-per-host must be a whole number from 0 (no limit) to 4294967295, not “-1”."
        #expect(setting.status == 2 && setting.errors.hasPrefix("todoku: \(sentence)\n"), "\(setting)")
    }

    @Test(arguments: ["-1", "0", "23"])
    func `names the range of a level, which depends on the compression`(level: String) async {
        let exit = await Desk.runAlone(["asset", "pack", "levels", "--level", level])
        #expect(exit.status == 2 && exit.errors.hasPrefix("todoku: --level of zstd is 1 to 22.\n"), "\(exit)")
    }
}
