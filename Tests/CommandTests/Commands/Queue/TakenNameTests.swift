import DownloadModel
import TestSupport
import Testing

@testable import todoku

@Suite(.serialized) struct `A name that is taken` {
    /// Runs a command at a terminal, and types each of `answers` once its question is there.
    private func converse(_ desk: Desk, _ command: String, _ answers: String...) async -> Child.Exit {
        await Child.converse(
            "'\(Desk.command)' \(command)", question: "[s]kip?", answers, environment: desk.environment, folder: desk.bus.folder)
    }

    private func text(_ path: String) -> String? { readFile(path).map { String(decoding: $0, as: UTF8.self) } }

    /// Each answer of the server has another number.
    private func server() -> ScriptedServer { ScriptedServer { request, reply in reply.respond(200, text: "\(request.number)") } }

    @Test func `is asked about before the download is queued`() async throws {
        let desk = await Desk()
        let server = server()
        let (file, get) = ("\(desk.downloads)/a.txt", "get --if-exists ask '\(server.url("/a.txt"))'")
        let free = await converse(desk, get)
        #expect(free.status == 0 && !free.output.contains("[s]kip"), "\(free)")
        #expect(text(file) == "0")
        let renamed = await converse(desk, get, "\n")
        #expect(renamed.status == 0 && renamed.output.contains("“\(file)” exists."), "\(renamed)")
        #expect(text(file) == "0" && text("\(desk.downloads)/a (1).txt") == "1")
        let replaced = await converse(desk, get, "what?\n", "P\n")
        #expect(replaced.status == 0 && text(file) == "2", "\(replaced)")
        let skipped = await converse(desk, get, "skip\n")
        #expect(skipped.status == 0 && skipped.output.contains("finished  \(file)  was there already"), "\(skipped)")
        #expect(text(file) == "2" && listFolder(desk.downloads).sorted() == ["a (1).txt", "a.txt"])
        await desk.close()
    }

    @Test func `and skipped is told without a terminal, too, like a file that has not changed`() async throws {
        let desk = await Desk()
        let server = ScriptedServer { request, reply in
            if request.field("If-None-Match") == "\"v1\"" { return reply.respond(304) }
            reply.respond(200, ["ETag": "\"v1\""], text: "1")
        }
        let (file, url) = ("\(desk.downloads)/a.txt", server.url("/a.txt"))
        let first = await desk.run("get", "--only-if-changed", url)
        #expect(first.output.hasSuffix("1 finished \(file)\n") && !first.output.contains("unchanged"), "\(first)")
        for (number, options) in [(2, ["--only-if-changed"]), (3, ["--if-exists", "skip"])] {
            let exit = await desk.start(["get"] + options + [url]).wait()
            let lines = "\(number) unchanged: was there already\n\(number) finished \(file)\n"
            #expect(exit.status == 0 && exit.errors == "" && exit.output.hasSuffix(lines), "\(exit)")
        }
        for (name, isUnchanged) in [("b.txt", false), ("a.txt", true)] {
            let exit = await desk.run("get", "--json", "--if-exists", "skip", server.url("/\(name)"))
            let last = try #require(exit.output.split(separator: "\n").last.flatMap { TestSupport.JSON(String($0)) }, "\(exit)")
            #expect(last["event"]?.string == "ended" && last["unchanged"]?.bool == isUnchanged, "\(exit)")
        }
        await desk.close()
    }

    /// A private download that ends while a later question is open would be gone before the answer.
    @Test func `is asked about before todoku get queues any URL`() async throws {
        let desk = await Desk()
        let server = server()
        writeFile(desk.bus.folder("b"), "old".utf8)
        let line = "'\(Desk.command)' get --private --if-exists ask -d . '\(server.url("/a"))' '\(server.url("/b"))'"
        var queued = ""
        let exit = await Child.converse(
            line, question: "[s]kip?", ["p\n"], environment: desk.environment, folder: desk.bus.folder
        ) { queued = await desk.run("list", "--all", "--json").output }
        #expect(queued == "[]\n")
        #expect(exit.status == 0 && text(desk.bus.folder("a")) != nil, "\(exit)")
        #expect(text(desk.bus.folder("b")).map { ["0", "1"].contains($0) } == true, "\(exit)")
        await desk.close()
    }

    @Test func `leaves the queue as it was at Ctrl-C`() async throws {
        let desk = await Desk()
        let server = server()
        #expect(await desk.run("get", "-q", server.url("/a.txt")).status == 0)
        for command in ["get", "add"] {
            let exit = await converse(desk, "\(command) --if-exists ask '\(server.url("/a.txt"))'", "\u{3}")
            #expect(exit.status == 130, "\(exit)")
        }
        #expect(JSON(await desk.run("list", "--all", "--json").output)?.array?.count == 1)
        #expect(server.requests.count == 1)
        await desk.close()
    }

    @Test func `is that of the command line, for each URL`() async throws {
        let desk = await Desk()
        let server = server()
        for name in ["b", "c"] { writeFile(desk.bus.folder(name), "old".utf8) }
        let one = await converse(desk, "get --if-exists ask -o b '\(server.url("/x"))'", "p\n")
        #expect(one.status == 0 && one.output.contains("“\(desk.bus.folder("b"))” exists."), "\(one)")
        #expect(text(desk.bus.folder("b")) == "0")
        let two = await converse(
            desk, "add --if-exists ask -d . '\(server.url("/c"))' '\(server.url("/d"))' '\(server.url("/b"))'", "s\n", "p\n")
        #expect(two.status == 0 && two.output.ranges(of: "[s]kip?").count == 2, "\(two)")
        #expect(await desk.run("wait", "2", "3", "4").status == 0)
        #expect(text(desk.bus.folder("c")) == "old" && text(desk.bus.folder("d")) != nil && text(desk.bus.folder("b")) != "0")
        // Only the answer of the server would tell the name.
        let folder = await converse(desk, "get --if-exists ask '\(server.url("/"))'")
        #expect(folder.status == 0 && !folder.output.contains("[s]kip"), "\(folder)")
        await desk.close()
    }

    @Test(arguments: [
        (["get", "http://h/a"], "no terminal"), (["add", "http://h/a"], "no terminal"),
        (["fetch", "http://h/a"], "todoku get and todoku add"),
        (["batch", "list"], "todoku get and todoku add"), (["metalink", "file"], "todoku get and todoku add"),
        (["get", "--extract", "http://h/a"], "--extract"),
    ])
    func `is not asked about where nobody can answer`(arguments: [String], reason: String) async {
        let exit = await Desk.runAlone(arguments + ["--if-exists", "ask"])
        #expect(exit.status == 2 && exit.errors.contains(reason) && exit.errors.contains("rename"), "\(exit)")
    }

    @Test func `by the same URL gets a sentence at a terminal`() async throws {
        let desk = await Desk()
        let server = server()
        let first = await converse(desk, "get '\(server.url("/a.txt"))'")
        #expect(first.status == 0 && !first.output.contains("already"), "\(first)")
        let sentence = "todoku: already downloaded as “\(desk.downloads)/a.txt”; the new file gets another name, unless --if-exists is "
        let second = await converse(desk, "get '\(server.url("/a.txt"))'")
        #expect(second.status == 0 && second.output.contains(sentence), "\(second)")
        for options in ["--if-exists rename", "--quiet", "--json", "--only-if-changed"] {
            let exit = await converse(desk, "get \(options) '\(server.url("/a.txt"))'")
            #expect(exit.status == 0 && !exit.output.contains("already"), "\(exit)")
        }
        #expect(!(await converse(desk, "get '\(server.url("/a.txt?key=1"))'").output.contains("already")), "another URL")
        writeFile("\(desk.downloads)/b.txt", "mine".utf8)
        #expect(!(await converse(desk, "get '\(server.url("/b.txt"))'").output.contains("already")), "it is not a download")
        #expect(await desk.run("get", server.url("/a.txt")).errors == "")
        await desk.close()
    }

    /// The list may have thousands of downloads.
    @Test func `by the same URL is found by one reading of the list, for all URLs of the command`() async throws {
        let desk = await Desk()
        let server = server()
        let names = ["a.txt", "b.txt", "c.txt"]
        let urls = names.map { server.url("/\($0)") }
        #expect(await desk.start(["get", "-q"] + urls).wait().status == 0)
        let calls = await Calls(of: desk)
        let exit = await converse(desk, "get " + urls.map { "'\($0)'" }.joined(separator: " "))
        #expect(exit.status == 0 && exit.output.ranges(of: "already downloaded as").count == 3, "\(exit)")
        // The monitor shows the calls in their order.
        #expect(await desk.run("resume", "--all").status == 0)
        #expect(await eventually { calls.count("ResumeAll") == 1 })
        #expect(calls.count("Describe", by: calls.caller(of: "GetUrl")) == 1)
        await desk.close()
    }

    /// The folder never answers the command. The service, which does not load the object, reads the folder as usual.
    @Test(.disabled(if: underSanitizer() != nil, "a sanitizer has to be loaded before any other object"))
    func `counts as free, and holds up neither other URLs nor Ctrl-C, if its folder does not answer`() async throws {
        let folder = TemporaryFolder("todoku-silent-folder")
        defer { withExtendedLifetime(folder) {} }
        let (object, source) = (folder("silentfolder.so"), "\(repository)/Tests/FaultShim/silentfolder.c")
        let compiled = await Child.run(["cc", "-shared", "-fPIC", "-O1", "-Wall", "-o", object, source])
        try #require(compiled.status == 0, "\(compiled.errors)")
        let (desk, gate) = (await Desk(), Gate())
        let server = server()
        let silent = desk.bus.folder.makeFolder("silent")
        let environment = desk.environment.merging(["LD_PRELOAD": object, "SILENT_FOLDER": silent]) { $1 }
        func get(_ urls: [String], _ keys: String...) async -> Child.Exit {
            let words = urls.map { "'\($0)'" }.joined(separator: " ")
            return await Child.converse(
                "timeout --foreground 90 '\(Desk.command)' get -d '\(silent)' \(words)", question: "no answer", keys,
                environment: environment, folder: desk.bus.folder)
        }
        // On a busy machine, the thread that asks the folder may begin too late. Then the command does not ask.
        let exit = await repeated {
            await get([server.url("/a"), server.url("/b")])
        } until: {
            $0.output.contains("no answer")
        }
        #expect(exit.status == 0 && Set(listFolder(silent)).isSuperset(of: ["a", "b"]), "\(exit)")
        #expect(exit.output.ranges(of: "no answer").count == 1, "the folder is not asked about the second name: \(exit)")
        let slow = slowServer(until: gate)
        let interrupted = await get([slow.url("/c")], "\u{3}")
        #expect(interrupted.status == 130, "\(interrupted)")
        gate.open()
        await desk.close()
    }

    @Test func `has the policies of the contract to choose from`() {
        #expect(ExistingFileChoice.allCases.map(\.policy?.rawValue) == ["rename", "replace", "skip", "fail", nil])
    }
}
