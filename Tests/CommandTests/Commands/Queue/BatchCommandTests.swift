import DownloadModel
import Glibc
import Localization
import TestSupport
import Testing

@testable import todoku

@Suite(.serialized) struct `todoku batch` {
    @Test func `queues a list at once, prints the batch's number, and lists it`() async throws {
        let desk = await Desk()
        let text =
            "\u{FEFF}# my list\n\nhttp://127.0.0.1:1/a\r\n   http://127.0.0.1:1/b  \n\t\n#http://127.0.0.1:1/no\nhttp://127.0.0.1:1/c"
        writeFile(desk.bus.folder("list"), text.utf8)
        let exit = await desk.run("batch", "--paused", "--tag", "t", "list")
        #expect(exit.succeeded(saying: "1\n"), "\(exit)")
        let json = await desk.run("batch", "--paused", "--json", "list")
        #expect(json.status == 0 && JSON(json.output)?["batch"]?.string == "5", "\(json)")
        #expect(JSON(json.output)?["object-path"]?.string == "/org/todoku/Downloader1/batch/5")
        #expect(JSON(json.output)?["downloads"]?.array?.compactMap(\.string) == ["6", "7", "8"])
        for name in ["1", "/org/todoku/Downloader1/batch/1"] {
            let listed = await desk.run("list", "--json", "--batch", name)
            let members = JSON(listed.output)?.array ?? []
            #expect(members.compactMap { $0["download"]?.string } == ["2", "3", "4"], "\(listed)")
            #expect(members.compactMap { $0["url"]?.string } == ["a", "b", "c"].map { "http://127.0.0.1:1/\($0)" })
            #expect(members.allSatisfy { $0["tag"]?.string == "t" && $0["state"]?.string == "paused" })
            #expect(members.allSatisfy { $0["batch"]?.string == "/org/todoku/Downloader1/batch/1" })
        }
        #expect(await desk.run("show", "3").output.contains("Batch:       1\n"))
        #expect(await desk.run("list", "--batch", "99").errors == "todoku: \(Desk.noBatch(99))\n")
        #expect(await desk.run("list", "--batch", "org.example.App/x").status == 2)
        let quiet = await desk.run("batch", "--quiet", "--paused", "list")
        #expect(quiet.succeeded(saying: ""))
        await desk.close()
    }

    @Test func `names the refused line, and queues nothing`() async throws {
        let desk = await Desk()
        let good = "http://127.0.0.1:1/a\n"
        for (name, text, number, error) in [
            ("scheme", "\(good)# no\nftp://example.org/secret?key=1\n\(good)", 3, "UnsupportedScheme"),
            ("url", "nonsense\n\(good)", 1, "InvalidUrl"),
            ("utf8", "\(good)\(good)http://127.0.0.1:1/", 3, ""),
        ] {
            writeFile(desk.bus.folder(name), name == "utf8" ? Array(text.utf8) + [0xFF, 10] : Array(text.utf8))
            let exit = await desk.run("batch", name)
            #expect(exit.status == 3 && exit.output == "" && exit.errors.hasPrefix("todoku: \(name), line \(number): "), "\(exit)")
            #expect(!exit.errors.contains("key=1") && exit.errors.split(separator: "\n").count == 1)
            let json = await desk.run("batch", "--json", name)
            #expect(json.status == 3 && json.errors == "", "\(json)")
            if !error.isEmpty { #expect(JSON(json.output)?["error"]?["name"]?.string == "org.todoku.Error.\(error)") }
        }
        for (name, bytes) in [("empty", []), ("comments", Array("# a\n\n".utf8))] {
            writeFile(desk.bus.folder(name), bytes)
            let exit = await desk.run("batch", name)
            #expect(exit.status == 2 && exit.errors.contains("contains no URL"), "\(exit)")
        }
        let missing = await desk.run("batch", "missing")
        #expect(missing.status == 2 && missing.errors.contains("missing") && missing.errors.contains("No such file"), "\(missing)")
        writeFile(desk.bus.folder("many"), Array(String(repeating: good, count: 10_001).utf8))
        let many = await desk.run("batch", "many")
        #expect(many.status == 3 && many.errors.contains("10001") && many.errors.contains("10000"), "\(many)")
        // An error that only the service can find also names its line.
        writeFile(desk.bus.folder("two"), Array("\n\(good)\(good)".utf8))
        let folder = await desk.run("batch", "--directory", "/no/such", "two")
        #expect(folder.status == 3 && folder.errors.hasPrefix("todoku: two, line 2: ") && folder.errors.contains("/no/such"), "\(folder)")
        #expect(await desk.run("list", "--json").output == "[]\n")
        for option in ["--output", "--filename", "--checksum", "--size", "--token"] {
            let value = option == "--checksum" ? "md5:" + String(repeating: "0", count: 32) : "1"
            let exit = await desk.run("batch", option, value, "two")
            #expect(exit.status == 2 && exit.errors.contains(String(option.dropFirst(2))), "\(exit)")
        }
        await desk.close()
    }

    @Test func `reads standard input, waits for the end, and exits by the outcomes`() async throws {
        let desk = await Desk()
        let server = ScriptedServer { request, reply in
            if request.path == "/gone" { reply.respond(404) } else { reply.respond(200, body: patternBytes(1024)) }
        }
        writeFile(desk.bus.folder("list"), "\(server.url("/a"))\n\(server.url("/b"))\n".utf8)
        let good = await desk.run("batch", "--wait", "--notify", "never", "list")
        #expect(good.status == 0 && good.errors == "", "\(good)")
        #expect(good.output.hasPrefix("1\n") && good.output.hasSuffix("1 ended 2 finished\n"), "\(good)")
        #expect(readFile("\(desk.downloads)/a") == patternBytes(1024))

        let script = "printf '%s\\n' \"$0\" \"$1\" | \"$2\" batch --wait --notify never -"
        let bad = await Child(
            ["sh", "-c", script, server.url("/c"), server.url("/gone"), Desk.command], environment: desk.environment
        ).wait()
        #expect(bad.status == 1 && bad.output.hasSuffix("4 ended 1 finished, 1 failed\n"), "\(bad)")
        #expect(bad.errors.hasPrefix("todoku: gone (download 6) failed: ") && bad.errors.contains("404"), "\(bad)")

        writeFile(desk.bus.folder("gone"), "\(server.url("/gone"))\n".utf8)
        let json = await desk.run("batch", "--wait", "--json", "--notify", "never", "gone")
        #expect(json.status == 1 && json.errors == "", "\(json)")
        let lines = json.output.split(separator: "\n").compactMap { JSON(String($0)) }
        #expect(lines.last?["event"]?.string == "ended" && lines.last?["failed"]?.number == 1, "\(json)")
        #expect(lines.contains { $0["event"]?.string == "failed" && $0["error"]?["http-status"]?.number == 404 }, "\(json)")
        let quiet = await desk.run("batch", "--wait", "--quiet", "--notify", "never", "list")
        #expect(quiet.succeeded(saying: ""), "\(quiet)")
        await desk.close()
    }

    @Test func `is steered by its number, as a download is`() async throws {
        let desk = await Desk()
        let server = ScriptedServer { request, reply in
            if request.path == "/gone" { reply.respond(404) } else { reply.respond(200, text: request.path) }
        }
        func states(_ batch: String) async -> [String] {
            (JSON(await desk.run("list", "--all", "--json", "--batch", batch).output)?.array ?? []).compactMap { $0["state"]?.string }
        }
        writeFile(desk.bus.folder("list"), "\(server.url("/a"))\n\(server.url("/gone"))\n".utf8)
        #expect(await desk.run("pause", "--all").status == 0)
        #expect(await desk.run("batch", "--notify", "never", "list").output == "1\n")
        #expect(await desk.run("pause", "1").succeeded(saying: ""))
        #expect(await states("1") == ["paused", "paused"])
        #expect(await desk.run("resume", "--all").status == 0)
        #expect(await desk.run("resume", "1").succeeded(saying: ""))
        let ended = await desk.run("wait", "1")
        #expect(ended.status == 1 && ended.output == "1 finished, 1 failed, 0 cancelled\n" && ended.errors == "", "\(ended)")
        let json = await desk.run("wait", "--json", "/org/todoku/Downloader1/batch/1")
        #expect(json.status == 1 && JSON(json.output)?["failed"]?.number == 1 && JSON(json.output)?["batch"]?.string == "1", "\(json)")
        #expect(await desk.run("pause", "1").errors == "todoku: 1: A batch that has ended cannot be paused.\n")
        for command in [["limit", "1K", "1"], ["move", "1", "first"], ["move", "--priority", "1", "1"], ["change", "--metered", "1"]] {
            let late = await desk.start(command).wait()
            #expect(late.status == 3 && late.errors == "todoku: 1: A batch that has ended cannot be changed.\n", "\(command): \(late)")
        }
        #expect(await desk.run("retry", "1").succeeded(saying: ""))
        #expect(await desk.run("wait", "--quiet", "1").output == "")
        #expect(server.requests.filter { $0.path == "/gone" }.count == 2, "what failed has been tried again, and nothing else")
        #expect(server.requests.filter { $0.path == "/a" }.count == 1)
        #expect(await desk.run("remove", "--delete-file", "1").succeeded(saying: ""))
        #expect(listFolder(desk.downloads) == [])
        #expect(await desk.run("list", "--all", "--json").output == "[]\n")

        // A number means a download first, then a batch. The message names a number that is neither.
        #expect(await desk.run("batch", "--paused", "--notify", "never", "list").succeeded(saying: "4\n"))
        let some = await desk.run("cancel", "5", "99", "/org/todoku/Downloader1/batch/98", "4")
        #expect(some.status == 3 && some.output == "", "\(some)")
        #expect(some.errors == "todoku: \(Desk.noDownload(99))\ntodoku: \(Desk.noBatch(98))\n", "\(some)")
        #expect(await states("4") == ["cancelled", "cancelled"])
        #expect(await desk.run("pause", "b4").status == 2)
        await desk.close()
    }

    @Test func `is known to every command by its number`() async throws {
        let desk = await Desk()
        let server = ScriptedServer { request, reply in
            if request.path == "/gone" { reply.respond(404) } else { reply.respond(200, text: request.path) }
        }
        func order() async -> [String] {
            (JSON(await desk.run("list", "--json").output)?.array ?? []).compactMap { $0["download"]?.string }
        }
        func values(_ key: String) async -> [Double?] {
            (JSON(await desk.run("list", "--json", "--batch", "2").output)?.array ?? []).map { $0[key]?.number }
        }
        writeFile(desk.bus.folder("list"), "\(server.url("/a"))\n\(server.url("/gone"))\n".utf8)
        #expect(await desk.run("pause", "--all").status == 0)
        #expect(await desk.run("add", "--notify", "never", server.url("/single")).output == "1\n")
        #expect(await desk.run("batch", "--notify", "never", "--title", "題", "list").output == "2\n")
        #expect(await desk.run("add", "--notify", "never", server.url("/last")).output == "5\n")

        let list = await desk.run("list")
        let batches = list.output.split(separator: "\n", omittingEmptySubsequences: false).suffix(4).map { $0.split(separator: " ") }
        #expect(batches == [[], ["BATCH", "FINISHED", "FAILED", "%", "SIZE", "TITLE"], ["2", "0", "of", "2", "-", "-", "-", "題"], []])
        let objects = JSON(await desk.run("list", "--json").output)?.array ?? []
        #expect(objects.map { $0["download"]?.string } == ["1", "3", "4", "5", nil], "the batch comes last, as in the table")
        #expect(objects.last?["batch"]?.string == "2" && objects.last?["title"]?.string == "題" && objects.last?["remaining"]?.number == 2)
        #expect(objects.last?["object-path"]?.string == "/org/todoku/Downloader1/batch/2" && objects.last?["fraction"] == .null)
        #expect(JSON(await desk.run("list", "--json", "--state", "waiting").output)?.array?.count == 4, "a filter is for downloads")
        let shown = await desk.run("show", "2")
        #expect(shown.output.hasPrefix("Batch:       2\nTitle:       題\nState:       0 of 2 finished"), "\(shown)")
        #expect(shown.output.contains("\n       3  waiting"), "\(shown)")
        let json = JSON(await desk.run("show", "--json", "2").output)
        #expect(json?["title"]?.string == "題" && json?["downloads"]?.array?.count == 2)
        #expect(await desk.run("show", "--url", "2").output == "\(server.url("/a"))\n\(server.url("/gone"))\n")
        let why = await desk.run("why", "2").output.split(separator: "\n")
        #expect(why.count == 2 && why[0].hasPrefix("3: waiting: everything is paused") && why[1].hasPrefix("4: waiting: "), "\(why)")

        #expect(await desk.run("move", "2", "first").succeeded(saying: ""))
        #expect(await order() == ["3", "4", "1", "5"])
        #expect(await desk.run("move", "2", "2").succeeded(saying: ""))
        #expect(await order() == ["1", "3", "4", "5"])
        // Places beyond the last one.
        for place in ["4", "9"] {
            #expect(await desk.run("move", "2", place).succeeded(saying: ""))
            #expect(await order() == ["1", "5", "3", "4"])
        }
        #expect(await desk.run("move", "2", "1").succeeded(saying: ""))
        #expect(await order() == ["3", "4", "1", "5"])
        #expect(await desk.run("move", "2", "last").succeeded(saying: ""))
        #expect(await order() == ["1", "5", "3", "4"])
        #expect(await desk.run("move", "--priority", "-1", "2").succeeded(saying: ""))
        #expect(await values("priority") == [-1, -1])
        #expect(await desk.run("limit", "500K", "2").succeeded(saying: ""))
        #expect(await values("speed-limit") == [512_000, 512_000])
        let renew = await desk.run("renew", "2", server.url("/new"))
        #expect(renew.status == 2 && renew.errors.contains("2 is a batch") && renew.errors.contains("todoku list --batch 2"), "\(renew)")
        #expect(JSON(await desk.run("renew", "--json", "2", server.url("/new")).output)?["batch"]?.string == "2")
        let early = await desk.run("open", "2")
        #expect(early.status == 3 && early.errors == "todoku: no download of batch 2 has finished\n", "\(early)")
        #expect(JSON(await desk.run("open", "--json", "2").output)?["batch"]?.string == "2")

        let watch = desk.start(["watch", "2"])
        #expect(await watch.says("2 progress 0 of 2 finished"))
        #expect(await desk.run("resume", "--all").status == 0)
        let end = await watch.wait()
        #expect(end.status == 1 && end.output.hasSuffix("2 ended 1 finished, 1 failed\n"), "\(end)")
        #expect(end.errors.contains("download 4) failed: "), "\(end)")
        // Beside a download, its members are followed one by one.
        let both = await desk.run("watch", "1", "2")
        #expect(both.status == 1 && both.output.contains("1 finished ") && both.output.contains("3 finished "), "\(both)")
        let all = await desk.run("list", "--all")
        #expect(all.output.contains("1 of 2"), "\(all)")
        #expect(await desk.run("watch", "99").errors == "todoku: \(Desk.noDownload(99))\n")
        for command in [["limit", "500K"], ["why"], ["show"], ["open"]] {
            let missing = await desk.start(command + ["98"]).wait()
            #expect(missing.status == 3 && missing.errors == "todoku: \(Desk.noDownload(98))\n", "\(missing)")
        }
        await desk.close()
    }

    @Test func `opens the folder of its first finished file`() async throws {
        let opener = StandInOpener()
        let desk = await Desk(extra: ["PATH": opener.path])
        let gate = Gate()
        defer { gate.open() }
        let server = ScriptedServer { request, reply in
            if request.path == "/gone" { return reply.respond(404) }
            if request.path == "/b" { gate.wait() }
            reply.respond(200, text: request.path)
        }
        let entries = ["gone", "a", "b"].map { "\(server.url("/\($0)"))\n  dir=\(desk.bus.folder.makeFolder("of-\($0)"))\n" }
        writeFile(desk.bus.folder("list"), entries.joined().utf8)
        let batch = desk.start(["batch", "--wait", "--quiet", "--notify", "never", "list"])
        #expect(await server.waitForRequests(3))
        #expect(await desk.run("wait", "--quiet", "3").status == 0)  // the batch has the number 1
        gate.open()
        #expect(await batch.wait().status == 1)
        for command in [["open", "1"], ["open", "--folder", "1"], ["open", "/org/todoku/Downloader1/batch/1"]] {
            let exit = await desk.start(command).wait()
            #expect(exit.succeeded(saying: ""), "\(command): \(exit)")
        }
        #expect(await opener.hasOpened(3))
        #expect(opener.opened == Array(repeating: "\(desk.bus.folder("of-a"))||", count: 3))
        await desk.close()
    }

    @Test func `moves its files to the trash`() async throws {
        let desk = await Desk()
        let server = ScriptedServer { request, reply in
            if request.path == "/gone" { reply.respond(404) } else { reply.respond(200, text: request.path) }
        }
        writeFile(desk.bus.folder("list"), "\(server.url("/a"))\n\(server.url("/gone"))\n\(server.url("/b"))\n".utf8)
        #expect(await desk.run("batch", "--wait", "--notify", "never", "list").status == 1)
        let exit = await desk.run("remove", "--trash", "1")
        #expect(exit.succeeded(saying: ""), "\(exit)")
        #expect(listFolder(desk.downloads) == [])
        #expect(await desk.run("list", "--all", "--json").output == "[]\n")
        #expect(listFolder(desk.bus.folder("data/Trash/files")) == ["a", "b"])
        await desk.close()
    }

    @Test func `moves its other files to the trash if one cannot be moved, and stays until that one is gone, too`() async throws {
        let desk = await Desk()
        let server = ScriptedServer { request, reply in
            if request.path == "/gone" { reply.respond(404) } else { reply.respond(200, text: request.path) }
        }
        writeFile(desk.bus.folder("list"), ["/a", "/gone", "/b"].map { "\(server.url($0))\n" }.joined().utf8)
        #expect(await desk.run("batch", "--wait", "--notify", "never", "list").status == 1)
        // Another file has the name now, so the service leaves that file alone.
        let other = desk.bus.folder("other")
        writeFile(other, "another".utf8)
        try #require(rename(other, "\(desk.downloads)/a") == 0)
        let exit = await desk.run("remove", "--trash", "1")
        let reason = "todoku: \(desk.downloads)/a is another file by now and was left alone."
        #expect(exit.status == 3 && exit.output == "" && exit.errors == reason + "\n", "\(exit)")
        #expect(listFolder(desk.downloads) == ["a"] && listFolder(desk.bus.folder("data/Trash/files")) == ["b"])
        let left = JSON(await desk.run("list", "--all", "--json", "--batch", "1").output)?.array ?? []
        #expect(Set(left.compactMap { $0["download"]?.string }) == ["2", "3"], "\(left)")
        let json = await desk.run("remove", "--trash", "--json", "1")
        #expect(json.status == 3 && JSON(json.output)?["download"]?.string == "2" && json.errors == "", "\(json)")
        // No batch, and no file, is in the way of another one.
        let both = await desk.run("remove", "--trash", "99", "1")
        #expect(both.status == 3 && both.errors == "todoku: \(Desk.noDownload(99))\n\(reason)\n", "\(both)")
        unlink("\(desk.downloads)/a")
        #expect(await desk.run("remove", "--trash", "1").succeeded(saying: ""))
        #expect(await desk.run("list", "--all", "--json").output == "[]\n")
        await desk.close()
    }

    @Test func `leaves the batch to the service at Ctrl-C`() async throws {
        let desk = await Desk()
        let gate = Gate()
        let server = ScriptedServer { _, reply in
            gate.wait()
            reply.respond(200, text: "x")
        }
        writeFile(desk.bus.folder("list"), "\(server.url("/a"))\n\(server.url("/b"))\n".utf8)
        let child = desk.start(["batch", "--wait", "--notify", "never", "list"])
        #expect(await child.says("1 progress 0 of 2 finished"))
        child.signal(SIGINT)
        let exit = await child.wait()
        let farewell = "continues in the background; “todoku watch 1” shows it, and “todoku cancel 1” cancels it\n"
        #expect(exit.status == 130 && exit.errors == "todoku: the batch \(farewell)", "\(exit)")
        // So does the command that the message names, also for a download of the batch.
        let watch = desk.start(["watch", "1"])
        #expect(await watch.says("1 progress 0 of 2 finished"))
        watch.signal(SIGINT)
        let left = await watch.wait()
        #expect(left.status == 130 && left.errors == exit.errors, "\(left)")
        let one = desk.start(["watch", "2"])
        #expect(await one.says("2 started"))
        one.signal(SIGINT)
        let single = await one.wait()
        let expected = "todoku: the download \(farewell.replacing("1”", with: "2”"))"
        #expect(single.status == 130 && single.errors == expected, "\(single)")
        // A download may be queued still when its batch is told.
        #expect(
            await eventually {
                await desk.run("list", "--batch", "1", "--state", "active", "--json").output.contains("\"download\":\"2\"")
            })
        #expect(await desk.run("cancel", "1").succeeded(saying: ""))
        gate.open()
        await desk.close()
    }

    @Test func `counts finished downloads even if there are none`() async throws {
        #expect(plainCatalog.outcomes(OutcomeCounts(finished: 3), always: true) == "3 finished")
        #expect(plainCatalog.outcomes(OutcomeCounts(failed: 2, cancelled: 1), always: true) == "0 finished, 2 failed, 1 cancelled")
    }
}
