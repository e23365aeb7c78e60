import Glibc
import TestSupport
import Testing

@Suite(.serialized) struct `A service that does not answer` {
    private let notice = Desk.slowNotice

    @Test func `is told once at a terminal, and the command goes on`() async throws {
        let desk = await Desk()
        // script(1) gives the command a terminal.
        func atTerminal(_ arguments: String) -> Child {
            Child(["script", "-qec", "'\(Desk.command)' \(arguments)", "/dev/null"], environment: desk.environment)
        }
        #expect(await desk.run("list").status == 0)
        let process = try #require(await desk.serviceProcess())
        defer { kill(process, SIGCONT) }
        /// Stops the service until a command has written the notice. A call ends by itself after a minute, and another command might start
        /// late. So the service is stopped for one command at a time.
        func hold(_ start: () -> Child) async -> Child {
            kill(process, SIGSTOP)
            let child = start()
            #expect(await child.says(notice), "\(child.output)")
            #expect(!child.output.contains("Nothing to download"), "nobody knows yet: \(child.output)")
            kill(process, SIGCONT)
            return child
        }
        // Two commands run during this stop. Nobody reads the errors of the first one, so it writes no notice.
        var unread: Child?
        let list = await hold {
            unread = desk.start(["list"])
            return atTerminal("list")
        }
        #expect(await list.wait().output == notice + "There are no downloads.\r\n")
        #expect(await unread?.wait().succeeded(saying: "") == true)
        let show = await hold {
            unread = atTerminal("list 2>'\(desk.bus.folder("errors"))'")
            return atTerminal("show 99")
        }
        let missing = await show.wait()
        #expect(missing.status == 3 && missing.output == notice + "todoku: \(Desk.noDownload(99))\r\n", "\(missing)")
        #expect(await unread?.wait().output == "")
        #expect(try #require(readFile(desk.bus.folder("errors"))).isEmpty)
        let watch = await hold { atTerminal("watch") }
        #expect(await watch.says("Nothing to download now; press Ctrl-C to exit."), "\(watch.output)")
        await watch.stop()
        let asset = await hold { atTerminal("asset update org.example.App/data") }.wait()
        #expect(asset.status == 3 && asset.output.hasPrefix(notice), "\(asset)")
        await desk.close()
    }

    /// A call without an answer ends after a minute. The notice about it comes after the first five seconds of this minute.
    @Test func `does not hold up Ctrl-C, neither before its first answer nor while a download is followed`() async throws {
        let desk = await Desk()
        let gate = Gate()
        let server = slowServer(until: gate)
        let follower = desk.start(["get", server.url("/slow.bin")])
        #expect(await follower.says("1 progress 50 %"), "\(follower.output) \(follower.errors)")
        let process = try #require(await desk.serviceProcess())
        kill(process, SIGSTOP)
        defer { kill(process, SIGCONT) }
        follower.signal(SIGINT)
        #expect(await eventually(within: .seconds(50)) { !follower.isRunning })
        let left = await follower.stop()
        #expect(left.status == 130 && left.errors.contains("the download continues in the background"), "\(left)")

        for command in ["get '\(server.url("/other.bin"))'", "wait 1"] {
            var pressed = ContinuousClock.now
            let exit = await Child.converse(
                "'\(Desk.command)' \(command)", question: "has not answered yet", ["\u{3}"], environment: desk.environment,
                folder: desk.bus.folder
            ) { pressed = .now }
            #expect(exit.status == 130 && exit.output.contains("has not answered yet"), "todoku \(command): \(exit)")
            #expect(ContinuousClock.now - pressed < .seconds(50), "todoku \(command)")
        }

        kill(process, SIGCONT)
        gate.open()
        #expect(await desk.run("wait", "1").succeeded(saying: "\(desk.downloads)/slow.bin\n"))
        await desk.close()
    }
}
