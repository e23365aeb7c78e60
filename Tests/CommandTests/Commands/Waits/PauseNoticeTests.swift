import Glibc
import TestSupport
import Testing

/// What commands say that would be silent while everything is paused.
@Suite(.serialized) struct `The notice that everything is paused` {
    private let notice = "todoku: everything is paused, so nothing starts yet; “todoku resume --all” ends that\n"
    private let url = "http://127.0.0.1:1/"

    @Test func `is given once by a command that queues downloads or starts them again`() async throws {
        let desk = await Desk()
        writeFile(desk.bus.folder("list"), "\(url)a\n\(url)b\n".utf8)
        #expect(await desk.run("add", "\(url)0").succeeded(saying: "1\n"), "nothing is paused yet")
        #expect(await desk.run("pause", "--all").status == 0)
        for (arguments, output) in [
            (["add", "\(url)1", "\(url)2"], "2\n3\n"), (["batch", "list"], "4\n"), (["retry", "2", "3"], ""),
            (["renew", "2", "\(url)3"], ""),
        ] {
            if arguments[0] == "retry" { #expect(await desk.run("cancel", "2", "3").succeeded(saying: "")) }
            let exit = await desk.start(arguments).wait()
            #expect((exit.status, exit.output, exit.errors) == (0, output, notice), "\(arguments): \(exit)")
        }
        let json = await desk.run("add", "--json", "\(url)4")
        #expect(JSON(json.output)?["download"]?.string == "7" && json.errors == notice, "\(json)")
        #expect(await desk.run("add", "--quiet", "\(url)5").succeeded(saying: ""))
        #expect(await desk.run("batch", "--quiet", "list").succeeded(saying: ""))
        // A download that is to be paused by itself would not start anyway.
        #expect(await desk.run("add", "--paused", "\(url)6").succeeded(saying: "12\n"))
        #expect(await desk.run("batch", "--paused", "list").succeeded(saying: "13\n"))
        // What is refused does not wait.
        let refused = await desk.run("retry", "12")
        #expect(refused.status == 3 && !refused.errors.contains("everything is paused"), "\(refused)")
        await desk.close()
    }

    @Test func `is given by a command that waits, and names a download that is paused by itself`() async throws {
        let desk = await Desk()
        writeFile(desk.bus.folder("list"), "\(url)a\n".utf8)
        #expect(await desk.run("pause", "--all").status == 0)
        #expect(await desk.run("add", "--quiet", "--app", "org.example.App", "\(url)1").status == 0)
        #expect(await desk.run("batch", "--quiet", "list").status == 0)
        #expect(await desk.run("add", "--quiet", "--paused", "--tag", "t", "\(url)2").status == 0)
        let named = "todoku: download 4 is paused; “todoku resume 4” resumes it\n"
        let cancelled = "todoku: the document is no longer fetched, and nothing is queued\n"
        for (arguments, errors, atEnd) in [
            (["wait", "1"], notice, ""), (["wait", "2"], notice, ""), (["wait", "--app", "org.example.App"], notice, ""),
            (["wait", "4"], named, ""), (["fetch", "\(url)3"], notice, ""), (["metalink", "\(url)4"], notice, cancelled),
        ] {
            let child = desk.start(arguments)
            #expect(await child.complains(errors), "\(arguments): \(child.errors)")
            child.signal(SIGINT)
            let exit = await child.wait()
            #expect((exit.status, exit.output, exit.errors) == (130, "", errors + atEnd), "\(arguments): \(exit)")
        }
        await desk.close()
    }
}
