import DownloadModel
import Glibc
import TestSupport
import Testing

/// A file that takes some hours at the smallest speed limit. A server that held the file back would count as silent after ten seconds, and
/// another download would start.
private let longText = String(repeating: "x", count: 10_000)

@Suite struct `The reason of a download's state` {
    @Test func `is a sentence with the host rule, the downloads ahead and the time of the start`() async throws {
        let gate = Gate()
        let server = ScriptedServer { _, reply in
            gate.wait()
            reply.respond(200, text: "x")
        }
        let desk = await Desk(extra: ["http_proxy": server.url("/")])
        _ = await desk.run("host", "example.org", "--interval", "1h")
        for number in 1...4 { _ = await desk.run("add", "--stall-timeout", "1h", "http://example.org/\(number)") }
        #expect(await server.waitForRequests(1))
        let why = await desk.run("why", "4")
        #expect(why.status == 0)
        let words = why.output.split(separator: " ")
        #expect(why.output.hasPrefix("waiting: example.org allows one request an hour; 2 ahead; its turn at "), "\(why)")
        #expect(words.last?.split(separator: ":").count == 3 && why.output.last == "\n", "a time of the day")
        _ = await desk.run("pause", "4")
        #expect(await desk.run("why", "4").output == "paused: “todoku resume 4” resumes it\n")
        _ = await desk.run("pause", "--all")
        let two = await desk.run("why", "3", "4")
        #expect(two.output.hasPrefix("3: waiting: everything is paused; “todoku resume --all” resumes it\n4: paused: "), "\(two)")
        let json = await desk.run("why", "--json", "3")
        #expect(JSON(json.output)?["reason"]?.string?.hasPrefix("waiting: everything is paused") == true)
        #expect(await desk.run("why", "99").status == 3)
        gate.open()
    }

    @Test func `is given for active, queued, delayed and ended downloads`() async throws {
        let desk = await Desk()
        let first = Gate()
        let server = ScriptedServer { request, reply in
            guard request.path == "/a" else { return reply.respond(request.path == "/missing" ? 404 : 200, text: "x") }
            first.wait()
            reply.respond(200, text: longText)
        }
        _ = await desk.run("settings", "max-active", "1")
        _ = await desk.run("add", "--stall-timeout", "1h", "--speed-limit", "1B", server.url("/a"))
        #expect(await server.waitForRequests(1))  // it may be queued still when its number is told
        #expect(await desk.run("why", "1").output.hasPrefix("active: 127.0.0.1 has not sent anything"))
        first.open()
        let isReceiving = await eventually {
            (JSON(await desk.run("show", "--json", "1").output)?["received"]?.number ?? 0) > 0
        }
        #expect(isReceiving)
        for name in ["b", "missing"] { _ = await desk.run("add", server.url("/\(name)")) }
        let queued = await desk.run("why", "3").output
        #expect(queued == "queued: another download is active, and only one may be active at a time; 1 ahead\n")
        _ = await desk.run("add", "--not-before", "+5h", server.url("/c"))
        #expect(await desk.run("why", "4").output.hasPrefix("waiting: it may not start before "))
        #expect(await desk.run("limit", "none", "1").status == 0)
        _ = await desk.run("wait", "1", "2", "3")
        #expect(await desk.run("why", "2").output == "finished: the file is \(desk.downloads)/b\n")
        let failed = await desk.run("why", "3").output
        #expect(failed.hasPrefix("failed: ") && failed.contains("404"))
    }
}

@Suite struct `The proof of a file` {
    @Test func `is shown, as text and as JSON`() async throws {
        let stated = "sha-256=:\(base64(await digest(of: Array("x".utf8)))):"
        let server = ScriptedServer { request, reply in
            reply.respond(200, request.path == "/a" ? ["Repr-Digest": stated] : [:], text: "x")
        }
        let desk = await Desk()
        for name in ["a", "b"] { #expect(await desk.run("get", "--quiet", server.url("/\(name)")).status == 0) }
        for (number, word) in [("1", "repr-digest"), ("2", "length")] {
            #expect(await desk.run("show", number).output.contains("\nProved by:   \(word)\n"))
            #expect(JSON(await desk.run("show", "--json", number).output)?["proved-by"]?.string == word)
        }
        let all = JSON(await desk.run("list", "--all", "--json").output)?.array ?? []
        #expect(Set(all.compactMap { $0["proved-by"]?.string }) == ["repr-digest", "length"])
    }
}

@Suite struct `The queue’s order` {
    @Test func `is changed by places and priorities`() async throws {
        let desk = await Desk()
        func order() async -> [String] {
            (JSON(await desk.run("list", "--json").output)?.array ?? []).compactMap { $0["download"]?.string }
        }
        _ = await desk.run("pause", "--all")
        for number in 1...4 { _ = await desk.run("add", "http://127.0.0.1:1/\(number)") }
        #expect(await order() == ["1", "2", "3", "4"])
        #expect(await desk.run("move", "3", "first").succeeded(saying: ""))
        #expect(await order() == ["3", "1", "2", "4"])
        #expect(await desk.run("move", "3", "last").succeeded(saying: ""))
        #expect(await order() == ["1", "2", "4", "3"])
        #expect(await desk.run("move", "1", "2").succeeded(saying: ""))
        #expect(await order() == ["2", "1", "4", "3"])
        #expect(await desk.run("move", "--priority", "5", "3").succeeded(saying: ""))
        #expect(await order() == ["3", "2", "1", "4"], "a higher priority goes before all places")
        #expect(await desk.run("move", "--priority", "5", "4", "first").succeeded(saying: ""))
        #expect(await order() == ["4", "3", "2", "1"])
        for place in ["0", "soon", "-1", "4294967296"] { #expect(await desk.run("move", "3", place).status == 2, "\(place)") }
        #expect(await desk.run("move", "3").errors.contains("Give a place"))
        #expect(await desk.run("move").status == 2)
        #expect(await desk.run("move", "--priority", "high", "3").status == 2)
        let unknown = await desk.run("move", "9", "first")
        #expect(unknown.status == 3 && unknown.errors == "todoku: \(Desk.noDownload(9))\n", "\(unknown)")
    }
}

@Suite struct `Host rules` {
    @Test func `are shown, set and removed`() async throws {
        let desk = await Desk()
        let first = await desk.run("host")
        #expect(first.status == 0 && first.output.contains("1000 ms") && first.output.contains("musicbrainz.org"), "\(first)")
        #expect(await desk.run("host", "Example.org", "--interval", "500ms", "--connections", "2").status == 0)
        let json = JSON(await desk.run("host", "--json").output)
        #expect(json?["example.org"]?["request-interval"]?.number == 500)
        #expect(json?["example.org"]?["connections"]?.number == 2)
        #expect(await desk.run("host", "www.example.org").output.contains("example.org"), "the rule of a domain applies to subdomains")
        let reset = await desk.run("host", "example.org", "--reset")
        let sentence = "todoku: example.org was not on the list of slowed hosts, which leaves out private downloads\n"
        #expect(reset.status == 0 && reset.errors == sentence, "\(reset)")
        #expect(await desk.run("host", "example.org", "--remove").status == 0)
        #expect(await desk.run("host", "example.org", "--json").output == "{}\n")
        let wrong = await desk.run("host", "http://example.org/", "--connections", "1")
        #expect(wrong.status == 2 && wrong.errors.contains("is a URL; give only its host: example.org"), "\(wrong)")
        // For Swift, a slash and a combining mark behind it are one character.
        for nonsense in ["foo bar", "exa mple.org", "example.org:80", "a/b", "example.org/\u{301}", "", "[::1]", "user@example.org"] {
            let exit = await desk.run("host", nonsense)
            #expect(exit.status == 2 && exit.errors.contains("“\(nonsense)” is not a host name"), "\(exit)")
        }
        for host in ["*", "::1", "127.0.0.1", "example.org."] { #expect(await desk.run("host", host).status == 0, "\(host)") }
        #expect(await desk.run("host", "--interval", "1s").status == 2)
        #expect(await desk.run("host", "example.org", "--interval", "soon").status == 2)
    }

    @Test func `keep the value that is not given, unless the rule is removed, too`() async throws {
        let desk = await Desk()
        func set(_ arguments: String...) async -> String {
            let exit = await desk.start(["host"] + arguments).wait()
            #expect(exit.succeeded(saying: ""), "\(exit)")
            return await desk.run("host", arguments[0], "--json").output
        }
        #expect(await set("Example.org.", "--interval", "500ms") == #"{"example.org":{"request-interval":500}}"# + "\n")
        let both = await set("example.org", "--connections", "2")
        #expect(both == #"{"example.org":{"connections":2,"request-interval":500}}"# + "\n")
        let none = await set("example.org", "--interval", "0")
        #expect(none == #"{"example.org":{"connections":2,"request-interval":0}}"# + "\n")
        // A subdomain does not copy the rule of its domain.
        #expect(await set("www.example.org", "--connections", "1") == #"{"www.example.org":{"connections":1}}"# + "\n")
        #expect(await set("example.org", "--remove", "--interval", "1s") == #"{"example.org":{"request-interval":1000}}"# + "\n")
        #expect(await set("example.org", "--remove", "--connections", "3") == #"{"example.org":{"connections":3}}"# + "\n")
        // An address is one host, however it is written.
        #expect(await set("2001:DB8:0::1", "--interval", "500ms") == #"{"2001:db8::1":{"request-interval":500}}"# + "\n")
        let address = await set("2001:db8:0:0:0:0:0:1", "--connections", "2")
        #expect(address == #"{"2001:db8::1":{"connections":2,"request-interval":500}}"# + "\n")
        // A built-in value is not set.
        let added = await set("musicbrainz.org", "--connections", "1")
        #expect(added == #"{"musicbrainz.org":{"connections":1,"request-interval":1000}}"# + "\n")
        let slower = await set("musicbrainz.org", "--interval", "2s")
        #expect(slower == #"{"musicbrainz.org":{"connections":1,"request-interval":2000}}"# + "\n")
        #expect(await set("musicbrainz.org", "--remove", "--connections", "2").contains(#""request-interval":1000"#))
        await desk.close()
    }
}

@Suite struct `The speed limit` {
    @Test func `is shown and set, for all and for single downloads`() async throws {
        let desk = await Desk()
        #expect(await desk.run("limit").output == "none\n")
        #expect(await desk.run("limit", "2MiB").status == 0)
        #expect(await desk.run("limit").output == "2.0 MiB/s\n")
        #expect(await desk.run("limit", "--json").output == "2097152\n")
        #expect(await desk.run("limit", "none").status == 0)
        #expect(await desk.run("limit").output == "none\n")
        _ = await desk.run("add", "--paused", "http://127.0.0.1:\(closedPort())/")
        #expect(await desk.run("limit", "500K", "1").status == 0)
        #expect(JSON(await desk.run("show", "--json", "1").output)?["speed-limit"]?.number == 512_000)
        #expect(await desk.run("limit", "fast").status == 2)
        #expect(await desk.run("limit", "1K", "7").status == 3)
    }

    /// The number of a download in the place of the speed would slow everything down to some bytes per second.
    @Test(arguments: ["1", "7", "500", "1023"])
    func `is not taken for the number of a download`(number: String) async throws {
        let desk = await Desk()
        for arguments in [[number], [number, "8"]] {
            let exit = await desk.start(["limit"] + arguments).wait()
            #expect(exit.status == 2 && exit.errors.contains("todoku limit 500K \(number)"), "\(exit)")
        }
        let setting = await desk.run("settings", "speed-limit", number)
        #expect(setting.status == 2 && setting.errors.contains("\(number)K"), "\(setting)")
        #expect(await desk.run("limit", "\(number)B").status == 0)
        #expect(await desk.run("limit").output == "\(number) B/s\n")
        for speed in ["1024", "0"] { #expect(await desk.run("limit", speed).status == 0, "\(speed)") }
        #expect(await desk.run("limit").output == "none\n")
    }
}

@Suite struct `The command watch` {
    @Test func `follows a download with a token by its number and by its name`() async throws {
        let desk = await Desk()
        let server = ScriptedServer { _, reply in reply.respond(200, text: "x") }
        let name = "org.example.App/t"
        let words = ["--app", "org.example.App", "--token", "t", server.url("/a")]
        #expect(await desk.start(["add", "--paused"] + words).wait().output == "\(name)\n")
        let watch = desk.start(["watch", "1", name])
        let beginning = [await watch.says("1 paused"), await watch.says("\(name) paused")]
        #expect(beginning == [true, true], "\(watch.output)\(watch.errors)")
        #expect(await desk.run("resume", "1").status == 0)
        for known in ["1", name] { #expect(await watch.says("\(known) finished \(desk.downloads)/a\n"), "\(watch.output)") }
        #expect(await eventually { !watch.isRunning })
        #expect(await watch.stop().status == 0)
        await desk.close()
    }
}

@Suite struct `The command change` {
    @Test func `sets the folder before the first byte, and what connections may be used`() async throws {
        let desk = await Desk()
        let server = ScriptedServer { _, reply in reply.respond(200, text: "x") }
        #expect(await desk.run("add", "--paused", server.url("/a"), server.url("/b")).output == "1\n2\n")
        let folder = desk.bus.folder("videos")
        let missing = await desk.run("change", "--directory", folder, "1")
        #expect(missing.status == 3 && missing.errors.contains("\(folder) does not exist"), "\(missing)")
        #expect(await desk.run("change", "--directory", folder, "--parents", "--not-metered", "1", "2").succeeded(saying: ""))
        #expect(await desk.run("resume", "1", "2").succeeded(saying: ""))
        #expect(await desk.run("wait", "1", "2").status == 0)
        #expect(listFolder(folder) == ["a", "b"])
        let late = await desk.run("change", "--metered", "1")
        #expect(late.status == 3 && late.errors == "todoku: 1: A download that is finished cannot be changed.\n", "\(late)")
        let nothing = await desk.run("change", "1")
        #expect(nothing.status == 2 && nothing.errors.contains("--directory, --metered or --not-metered"), "\(nothing)")
        await desk.close()
    }

    @Test func `changes the downloads of a batch`() async throws {
        let desk = await Desk()
        let folder = desk.bus.folder.makeFolder("music")
        let server = ScriptedServer { _, reply in reply.respond(200, text: "x") }
        writeFile(desk.bus.folder("list"), "\(server.url("/a"))\n\(server.url("/b"))\n".utf8)
        #expect(await desk.run("batch", "--paused", "--notify", "never", "list").succeeded(saying: "1\n"))
        #expect(await desk.run("change", "-d", "music", "1").succeeded(saying: ""))
        #expect(await desk.run("resume", "1").succeeded(saying: ""))
        #expect(await desk.run("wait", "1").status == 0)
        #expect(listFolder(folder) == ["a", "b"])
        await desk.close()
    }

    @Test func `tells a reason of many downloads of a batch once`() async throws {
        let desk = await Desk()
        writeFile(desk.bus.folder("list"), (1...4).map { "http://127.0.0.1:1/\($0)\n" }.joined().utf8)
        #expect(await desk.run("batch", "--paused", "--notify", "never", "list").succeeded(saying: "1\n"))
        let folder = desk.bus.folder("missing")
        let change = await desk.run("change", "-d", folder, "1")
        let lines = change.errors.split(separator: "\n")
        try #require(change.status == 3 && lines.count == 2, "\(change)")
        #expect(lines[0] == "todoku: The folder \(folder) does not exist. --parents makes it.", "\(change)")
        #expect(lines[1] == "todoku: the same of 3 other downloads of batch 1", "\(change)")
        let json = await desk.run("change", "--json", "-d", folder, "1")
        #expect(json.status == 3 && json.output.split(separator: "\n").count == 4, "\(json)")
        await desk.close()
    }

    @Test func `names the download of a batch that cannot change, and changes the others`() async throws {
        let desk = await Desk()
        let folder = desk.bus.folder.makeFolder("music")
        let server = ScriptedServer { request, reply in reply.respond(200, text: request.path == "/a" ? longText : "x") }
        writeFile(desk.bus.folder("list"), "\(server.url("/a"))\n  max-download-limit=1\n\(server.url("/b"))\n".utf8)
        #expect(await desk.run("settings", "max-active", "1").status == 0)
        #expect(await desk.run("batch", "--notify", "never", "list").succeeded(saying: "1\n"))
        #expect(await server.waitForRequests(1))
        let change = await desk.run("change", "-d", "music", "1")
        // The first bytes may have come by now.
        let reasons = ["The download is using its folder", " bytes of the file are in \(desk.downloads) already"]
        let isTold = change.errors.hasPrefix("todoku: 2: ") && reasons.contains { change.errors.contains($0) }
        #expect(change.status == 3 && isTold, "\(change)")
        #expect(change.errors.split(separator: "\n").count == 1)
        #expect(await desk.run("limit", "none", "2").status == 0)
        #expect(await desk.run("wait", "1").status == 0)
        #expect(listFolder(folder) == ["b"])
        await desk.close()
    }
}
