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
        let (desk, server) = await desk(gate)
        #expect(await desk.run("host", "example.org", "--interval", "1h").status == 0)
        _ = await desk.run("add", "--stall-timeout", "1h", "http://example.org/1")
        #expect(await server.waitForRequests(1))
        let get = desk.start(["get", "http://example.org/2"])
        #expect(await get.says("2 waiting rate-limit until "), "\(get.output) \(get.errors)")
        #expect(await desk.run("pause", "--all").status == 0)
        #expect(await get.says("2 waiting paused-all: everything is paused; ‘todoku resume --all’ resumes it\n"), "\(get.output)")
        #expect(await desk.run("resume", "--all").status == 0)
        #expect(await eventually { get.output.occurrences(of: "2 waiting rate-limit until ") == 2 }, "\(get.output)")
        #expect(await desk.run("host", "example.org", "--remove").status == 0)
        gate.open()
        let exit = await get.wait()
        #expect(exit.status == 0 && exit.output.occurrences(of: "2 waiting ") == 3, "\(exit)")
        await desk.close()
    }
}

extension String {
    /// How often `text` occurs.
    fileprivate func occurrences(of text: String) -> Int { ranges(of: text).count }
}
