import DownloadModel
import Glibc
import TestSupport
import Testing

@Suite struct `The statistics of a session` {
    @Test func `count known downloads by outcome, host and day`() async throws {
        let desk = await Desk()
        let server = ScriptedServer { request, reply in
            reply.respond(
                request.path == "/missing" ? 404 : 200, text: request.path == "/large" ? String(repeating: "x", count: 3000) : "x")
        }
        let none = await desk.run("stats")
        #expect(none.succeeded(saying: "No download on the list has ended.\n"), "\(none)")
        _ = await desk.run("add", server.url("/large"), server.url("/small"), server.url("/missing"))
        _ = await desk.run("wait", "1", "2", "3")
        _ = await desk.run("add", "--paused", "--app", "org.example.App", "http://127.0.0.1:1/x")
        _ = await desk.run("cancel", "4")
        _ = await desk.run("add", "--paused", "http://127.0.0.1:1/unfinished")

        let json = try #require(JSON(await desk.run("stats", "--json").output))
        #expect(json["downloads"]?.number == 4 && json["failed"]?.number == 1 && json["cancelled"]?.number == 1, "\(json)")
        #expect(json["received"]?.number == 3001 && json["since"] == .null)
        let outcomes = json["outcomes"]?.array ?? []
        #expect(outcomes.map { $0["state"]?.string } == ["finished", "failed", "cancelled"])
        #expect(outcomes[1]["error"]?.string == "org.todoku.Error.HttpStatus" && outcomes[1]["http-status"]?.number == 404)
        #expect(json["hosts"]?.array?.map { $0["host"]?.string } == ["127.0.0.1"])
        #expect(json["apps"]?.array?.map { $0["app"]?.string } == ["", "org.example.App"])
        // At midnight there are two days.
        #expect((1...2).contains(json["days"]?.array?.count ?? 0))

        let text = await desk.run("stats").output
        #expect(text.hasPrefix("4 downloads on the list have ended: 2.9 KiB\n\nDOWNLOADS"), "\(text)")
        #expect(
            text.contains("        2  2.9 KiB  finished\n        1      0 B  failed: The server answered with an error (HTTP 404)\n"),
            "\(text)")
        #expect(text.contains("        4       1  2.9 KiB  127.0.0.1\n"), "\(text)")
        #expect(text.hasSuffix("Downloads that were removed from it are not counted.\n") && !text.contains("█"))
        // A terminal of script(1) also has a bar for each day; the day with most bytes fills the line.
        let terminal = await Child.run(
            ["script", "-qec", "stty cols 80; '\(Desk.command)' stats", "/dev/null"], environment: desk.environment)
        let bar = "  " + String(repeating: "█", count: 64) + "  2.9 KiB\r\n"
        #expect(terminal.status == 0 && terminal.output.contains(bar), "\(terminal)")
        #expect(JSON(await desk.run("stats", "--json", "--app", "org.example.App").output)?["downloads"]?.number == 1)

        #expect(JSON(await desk.run("stats", "--json", "--since", "1h").output)?["downloads"]?.number == 4)
        let future = await desk.run("stats", "--since", "9999-01-01")
        #expect(future.succeeded(saying: "There are no such downloads.\n"), "\(future)")
        #expect(await desk.run("stats", "--app", "org.example.Other").succeeded(saying: "There are no such downloads.\n"))
        _ = await desk.run("remove", "--ended")
        #expect(await desk.run("stats").succeeded(saying: "No download on the list has ended.\n"))
        for wrong in ["7", "yesterday", "-1d", "99999d"] {
            let exit = await desk.run("stats", "--since=\(wrong)")
            #expect(exit.status == 2 && exit.errors.contains("is not a time; write it like 12h, 7d"), "\(exit)")
        }
        await desk.close()
    }
}
