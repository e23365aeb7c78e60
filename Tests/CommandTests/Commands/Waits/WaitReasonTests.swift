import Glibc
import TestSupport
import Testing

/// Why downloads wait, as the commands that follow them say it at once.
@Suite(.serialized) struct `The reason of a wait` {
    /// A server as the proxy of all hosts, which answers once `gate` is open, and a session that uses it.
    private func desk(_ gate: Gate) async -> (Desk, ScriptedServer) {
        let server = ScriptedServer { _, reply in
            gate.wait()
            reply.respond(200, text: "x")
        }
        return (await Desk(extra: ["http_proxy": server.url("/")]), server)
    }

    /// The same, with a host that allows one request an hour, and the download that makes this request.
    private func deskWithoutTurns(_ gate: Gate) async -> (Desk, ScriptedServer) {
        let (desk, server) = await desk(gate)
        #expect(await desk.run("host", "example.org", "--interval", "1h").status == 0)
        _ = await desk.run("add", "--stall-timeout", "1h", "http://example.org/1")
        return (desk, server)
    }

    @Test func `names the host, its rule and the time of the next request`() async throws {
        let gate = Gate()
        defer { gate.open() }
        let (desk, server) = await desk(gate)
        #expect(await desk.run("host", "example.org", "--interval", "1h").status == 0)
        #expect(await desk.run("host", "example.net", "--connections", "1").status == 0)
        _ = await desk.run("add", "--stall-timeout", "1h", "http://example.org/1", "http://example.net/2")
        #expect(await server.waitForRequests(2))
        let get = desk.start(["get", "http://example.org/3", "http://example.net/4"])
        #expect(await get.says(": example.org allows one request an hour\n"), "\(get.output) \(get.errors)")
        #expect(await get.says("4 waiting host-limit: the most downloads allowed from example.net at a time are active (1)\n"))
        let line = try #require(get.output.split(separator: "\n").first { $0.hasPrefix("3 waiting ") })
        let words = line.split(separator: " ")
        #expect(words[2] == "rate-limit" && words[3] == "until" && words[4].split(separator: ":").count == 3, "a time of the day: \(line)")
        #expect(words[4].hasSuffix(":"), "\(line)")
        await desk.close()
    }

    @Test func `has a line whenever it changes`() async throws {
        let gate = Gate()
        defer { gate.open() }
        let (desk, server) = await deskWithoutTurns(gate)
        #expect(await server.waitForRequests(1))
        let get = desk.start(["get", "--stall-timeout", "1h", "http://example.org/2"])
        #expect(await get.says("2 waiting rate-limit until "), "\(get.output) \(get.errors)")
        #expect(await desk.run("pause", "--all").status == 0)
        #expect(await get.says("2 waiting paused-all: everything is paused; “todoku resume --all” resumes it\n"), "\(get.output)")
        #expect(await desk.run("resume", "--all").status == 0)
        #expect(await eventually { get.output.occurrences(of: "2 waiting rate-limit until ") == 2 }, "\(get.output)")
        #expect(await desk.run("host", "example.org", "--remove").status == 0)
        gate.open()
        let exit = await get.wait()
        #expect(exit.status == 0 && exit.output.occurrences(of: "2 waiting ") == 3, "\(exit)")
        await desk.close()
    }

    @Test func `is at the end of its line in a list that goes to no terminal`() async throws {
        let gate = Gate()
        defer { gate.open() }
        let (desk, server) = await desk(gate)
        #expect(await desk.run("host", "example.net", "--connections", "1").status == 0)
        _ = await desk.run("add", "--stall-timeout", "1h", "http://example.net/first.bin", "http://example.net/2")
        #expect(await server.waitForRequests(1))
        let most = "the most downloads allowed from example.net at a time are active (1)"
        let list = await desk.run("list")
        let lines = list.output.split(separator: "\n")
        #expect(lines.count == 3 && lines[0].hasSuffix("  NAME       REASON") && lines[1].hasSuffix("  first.bin"), "\(list)")
        #expect(lines[2].split(separator: " ").prefix(6) == ["2", "waiting", "-", "-", "-", "2"], "\(list)")
        #expect(lines[2] == lines[2].prefix(lines[0].count - "REASON".count) + most, "\(list)")
        #expect(await desk.run("pause", "--all").status == 0)
        let paused = await desk.run("list", "--state", "waiting").output.split(separator: "\n")
        #expect(paused.count == 3, "\(paused)")
        let reason = "everything is paused; “todoku resume --all” resumes it"
        #expect(paused.dropFirst().allSatisfy { $0.hasSuffix("  \(reason)") }, "\(paused)")
        // The table of a batch has the reasons, too.
        writeFile(desk.bus.folder("batch"), "http://example.net/3\n".utf8)
        #expect(await desk.run("batch", "--quiet", "batch").status == 0)
        #expect(await desk.run("show", "3").output.hasSuffix("  \(reason)\n"))
        await desk.close()
    }

    @Test func `is told for a queued download, too`() async throws {
        let gate = Gate()
        defer { gate.open() }
        let (desk, server) = await desk(gate)
        #expect(await desk.run("settings", "max-active", "1").status == 0)
        _ = await desk.run("add", "--stall-timeout", "1h", "http://example.net/1")
        #expect(await server.waitForRequests(1))
        let cause = "another download is active, and only one may be active at a time"
        let get = desk.start(["get", "http://example.net/2", "http://example.net/3"])
        #expect(await get.says("2 queued: \(cause)\n"), "\(get.output) \(get.errors)")
        #expect(await get.says("3 queued: \(cause)\n"), "\(get.output) \(get.errors)")
        let watch = desk.start(["watch", "3"])
        #expect(await watch.says("3 queued: \(cause)\n"), "\(watch.output) \(watch.errors)")
        let list = await desk.run("list").output.split(separator: "\n")
        #expect(list.count == 4 && list[0].hasSuffix("  REASON"), "\(list)")
        #expect(list[2].hasSuffix("  \(cause)") && list[3].hasSuffix("  \(cause); 1 ahead"), "\(list)")
        // script(1) gives the commands a terminal.
        func terminal(_ command: String) -> Child {
            let environment = desk.environment.merging(["NO_COLOR": "1"]) { $1 }
            return Child(["script", "-qec", "stty cols 120 rows 24; '\(Desk.command)' \(command)", "/dev/null"], environment: environment)
        }
        let shown = await terminal("list").wait().output
        #expect(shown.occurrences(of: cause) == 1, "\(shown)")
        let bars = terminal("watch 2 3")
        #expect(await bars.says("  queued: \(cause)\r\n"), "\(bars.output) \(bars.errors)")
        gate.open()
        for child in [get, watch, bars] { #expect(await child.wait().status == 0) }
        #expect(get.output.occurrences(of: "queued: ") == 2, "\(get.output)")
        await desk.close()
    }

    @Test func `at a host that has refused requests names the status, and how to undo the slowing`() async throws {
        let server = ScriptedServer { _, reply in reply.respond(503, ["Retry-After": "3600"]) }
        let desk = await Desk(extra: ["http_proxy": server.url("/")])
        _ = await desk.run("add", "http://example.org/1")
        let isSlowed = await eventually { await desk.run("host").output.contains("http://example.org:80") }
        #expect(isSlowed)
        let reason = "example.org answered 503, so it gets fewer requests; “todoku host example.org --reset” ends this"
        let get = desk.start(["get", "http://example.org/2"])
        #expect(await get.says(": \(reason)\n") && get.output.contains("2 waiting rate-limit until "), "\(get.output) \(get.errors)")
        let list = await desk.run("list").output
        #expect(list.contains("  \(reason); "), "\(list)")
        let why = await desk.run("why", "2")
        #expect(why.output.hasPrefix("waiting: \(reason); "), "\(why)")
        #expect(await desk.run("cancel", "2").status == 0)
        #expect(await get.wait().status == 1)
        await desk.close()
    }

    @Test func `is told of a batch that does not move`() async throws {
        let gate = Gate()
        defer { gate.open() }
        let (desk, server) = await deskWithoutTurns(gate)
        #expect(await server.waitForRequests(1))
        writeFile(desk.bus.folder("list"), "http://example.org/2\nhttp://example.org/3\n".utf8)
        let wait = desk.start(["batch", "--wait", "--notify", "never", "list"])
        #expect(await wait.says("2 waiting rate-limit until "), "\(wait.output) \(wait.errors)")
        #expect(await wait.says(": example.org allows one request an hour\n"), "\(wait.output)")
        #expect(await desk.run("pause", "--all").status == 0)
        let reason = "everything is paused; “todoku resume --all” resumes it"
        #expect(await wait.says("2 waiting paused-all: \(reason)\n"), "\(wait.output)")
        let json = desk.start(["watch", "--json", "2"])
        #expect(await json.says("{\"event\":\"waiting\",\"download\":\"3\""), "\(json.output)")
        // script(1) gives the command a terminal.
        let command = "stty cols 120; '\(Desk.command)' watch 2"
        let environment = desk.environment.merging(["NO_COLOR": ""]) { $1 }
        let terminal = Child(["script", "-qec", command, "/dev/null"], environment: environment)
        #expect(await terminal.says("\u{1b}[33mbatch 2  0 of 2 finished  0 B  waiting: \(reason)\u{1b}[39m"), "\(terminal.output)")
        // At 80 columns, the reason is whole, too: its end is in the line below, and both lines are erased before the next drawing.
        let usual = "stty cols 80 rows 24; '\(Desk.command)' watch 2"
        let narrow = Child(["script", "-qec", usual, "/dev/null"], environment: desk.environment.merging(["NO_COLOR": "1"]) { $1 })
        let head = "batch 2  0 of 2 finished  0 B  "
        let below = String(repeating: " ", count: head.count)
        let lines = "\(head)waiting: everything is paused; “todoku resume\r\n\(below)--all” resumes it\r\n"
        #expect(await narrow.says(lines), "\(narrow.output)")
        #expect(await desk.run("resume", "--all").status == 0)
        #expect(await narrow.says("\u{1b}[2A\r\u{1b}[J"), "\(narrow.output)")
        #expect(await desk.run("pause", "2").status == 0)
        #expect(await wait.says("2 paused\n"), "\(wait.output)")
        #expect(await terminal.says("  paused: “todoku resume 2” resumes it"), "\(terminal.output)")
        #expect(await desk.run("cancel", "2").status == 0)
        for child in [wait, json, terminal, narrow] { #expect(await child.wait().status == 1) }
        #expect(wait.output.hasSuffix("2 ended 0 finished, 2 cancelled\n"), "\(wait.output)")
        await desk.close()
    }

    @Test func `of an attempt that failed is its cause, with the time of the next attempt`() async throws {
        let desk = await Desk()
        let server = ScriptedServer { _, reply in reply.respond(503, ["Retry-After": "3600"]) }
        let cause = "The server 127.0.0.1 answered 503 (Service Unavailable)"
        let get = desk.start(["get", server.url("/a.bin")])
        #expect(await get.says("1 waiting retry until "), "\(get.output) \(get.errors)")
        let until = JSON(await desk.run("list", "--json").output)?.array?.first?["wait-until"]?.number
        let seconds = UInt64(try #require(until)) / 1_000_000
        let time = await Child.run(["date", "-d", "@\(seconds)", "+%H:%M:%S"], environment: desk.environment).output.dropLast()
        #expect(time.split(separator: ":").map(\.count) == [2, 2, 2], "\(time)")
        let line = "1 waiting retry until \(time): \(cause).\n"
        #expect(await get.says(line), "\(get.output)")
        let watch = desk.start(["watch", "1"])
        #expect(await watch.says(line), "\(watch.output) \(watch.errors)")

        // At a terminal, script(1) gives the command one, the download is yellow, unless NO_COLOR is set.
        func terminal(_ command: String, noColour: String, size: String = "cols 120") -> Child {
            let environment = desk.environment.merging(["NO_COLOR": noColour]) { $1 }
            return Child(["script", "-qec", "stty \(size); '\(Desk.command)' \(command)", "/dev/null"], environment: environment)
        }
        let colour = "\u{1b}[33m"
        let bars = [terminal("watch 1", noColour: ""), terminal("watch 1", noColour: "1")]
        for bar in bars { #expect(await bar.says("trying again in "), "\(bar.output) \(bar.errors)") }
        #expect(bars[0].output.contains("\(colour)a.bin ") && !bars[1].output.contains(colour), "\(bars.map(\.output))")
        // At 80 columns, the cause goes on in the line below. Both lines are erased before the next drawing.
        let narrow = terminal("watch 1", noColour: "1", size: "cols 80 rows 24")
        let isWhole = await eventually {
            narrow.output.split(whereSeparator: \.isWhitespace).joined(separator: " ").contains(": \(cause) ") || !narrow.isRunning
        }
        #expect(isWhole && narrow.isRunning && !narrow.output.contains("…"), "\(narrow.output) \(narrow.errors)")
        #expect(await narrow.says("\u{1b}[2A\r\u{1b}[J"), "\(narrow.output)")
        #expect(await terminal("list", noColour: "").wait().output.contains("\(colour)waiting\u{1b}[39m"))
        let plain = await terminal("list", noColour: "1").wait()
        #expect(plain.output.contains("waiting") && !plain.output.contains(colour), "\(plain)")

        let sentence = "\(cause); retrying at \(time), for the 2nd time"
        let why = await desk.run("why", "1")
        #expect(why.succeeded(saying: "waiting: \(sentence)\n"), "\(why)")
        let list = await desk.run("list").output.split(separator: "\n")
        #expect(list.count == 2 && list[0].hasSuffix("  NAME   REASON") && list[1].hasSuffix("  a.bin  \(sentence)"), "\(list)")
        let show = await desk.run("show", "1").output
        #expect(show.contains("waiting (retry, until ") && show.contains(" \(time))\n"), "\(show)")
        #expect(show.contains(" \(cause). (org.todoku.Error.HttpStatus)\n"), "\(show)")

        #expect(await desk.run("cancel", "1").status == 0)
        for child in [get, watch, narrow] + bars { #expect(await child.wait().status == 1) }
        #expect(server.requests.count == 1)
        await desk.close()
    }

    @Test func `of an attempt that failed is told of its batch`() async throws {
        let desk = await Desk()
        writeFile(desk.bus.folder("list"), "http://127.0.0.1:\(closedPort())/a\n".utf8)
        let wait = desk.start(["batch", "--wait", "--notify", "never", "list"])
        #expect(await wait.says("1 waiting retry until "), "\(wait.output) \(wait.errors)")
        #expect(await wait.says(": 127.0.0.1 cannot be reached: "), "\(wait.output)")
        #expect(await desk.run("cancel", "1").status == 0)
        #expect(await wait.wait().status == 1)
        await desk.close()
    }
}

extension String {
    /// How often `text` occurs.
    fileprivate func occurrences(of text: String) -> Int { ranges(of: text).count }
}
