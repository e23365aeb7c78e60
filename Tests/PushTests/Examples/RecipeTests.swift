import DBus
import DownloaderInterface
import EventLoop
import Glibc
import PushInterface
import TestSupport
import Testing

@Suite(.timeLimit(.minutes(10))) struct `The recipe of a push` {
    private let app = "org.example.App"

    /// The page's commands register, and so does its program, which the bus then starts. The message is the page's, too.
    @Test func `brings the file, starts the app, and reports a file with another checksum`() async throws {
        let (guide, folder) = (try Guide(), TemporaryFolder())
        let before = """
            import json
            import sys

            app = Gio.Application(application_id=APP, flags=Gio.ApplicationFlags.IS_SERVICE)


            def log(*words):
                with open(sys.argv[2], "a") as file:
                    print(*words, file=file)


            def use_image(path):
                log("image", path)


            """
        // GApplication ends a service that was never held ten seconds after its start, whatever its inactivity timeout.
        let own = """


            if sys.argv[1] == "register":
                print(json.dumps(register()))
            else:
                app.hold()
                app.run()
            """
        let rehearsal = #""hosts": GLib.Variant("as", ["127.0.0.1"]), "allow-private": GLib.Variant("b", True)"#
        let text = try guide.program(
            4, before: before, own: own, [#""hosts": GLib.Variant("as", ["images.example.org"])"#: rehearsal])
        let (program, log) = (folder("app.py"), folder("log"))
        writeFile(program, text.utf8)
        let world = try await PushWorld(names: [app: "/usr/bin/python3 \(program) run \(log)"])
        let distributor = await world.distributor()

        let commands = try guide.commands(4).map { $0.command }
        try #require(commands.count == 2)
        // gdbus waits only 25 seconds for an answer. On a busy machine, the start of the program may take longer, so List starts it.
        _ = try await world.call(Push.list, "")
        let called = try await guide.run(commands, world.bus.environment)
        #expect(called.status == 0 && called.output.contains("'name': <'background'>"), "package libglib2.0-bin: \(called)")
        // `Register` waits 10 seconds for an endpoint. An app without one asks at its next start.
        var registered = JSON.null
        func register() async -> Bool {
            let exit = await Child.run(["/usr/bin/python3", program, "register"], environment: world.bus.environment)
            registered = JSON(exit.output) ?? .null
            #expect(exit.status == 0, "package python3-gi: \(exit)")
            return exit.status != 0 || registered["endpoint"]?.string?.isEmpty == false
        }
        #expect(await eventually { await register() })
        // The commands and the program have the same registration.
        let key = try #require(registered["public-key"]?.string, "\(registered)")
        #expect(key != "" && called.output.ranges(of: key).count == 2, "\(called)")
        var registration = (registered.object ?? [:]).compactMapValues { $0.string.map { Variant.string($0) } }
        registration["version"] = .uint32(2)
        #expect(await world.bus.hasOwner(app) == false)

        let file = await Served(type: "image/jpeg")
        func message(_ name: String, _ sha256: String) throws -> String {
            try guide.block(
                "json", in: 4,
                [
                    "https://images.example.org/today.jpg": file.server.url(name), "9f86d0…": sha256, "184320": "\(file.bytes.count)",
                    "1800000000": "\(wallClock() / 1_000_000 + 3600)",
                ])
        }
        let path = world.bus.folder("home/Downloads/today.jpg")
        await world.send(try message("/today.jpg", file.sha256), to: registration)
        #expect(await eventually { readFile(log) == Array("image \(path)\n".utf8) }, "\(distributor.output)")
        #expect(readFile(path) == file.bytes)
        #expect(await world.bus.hasOwner(app))

        await world.send(try message("/other.jpg", String(repeating: "0", count: 64)), to: registration)
        let isTold = await eventually {
            let lines = String(decoding: readFile(log) ?? [], as: UTF8.self).split(separator: "\n")
            return lines.count == 2 && lines[1].hasPrefix("org.todoku.Error.ChecksumMismatch ")
        }
        #expect(isTold, "\(distributor.output)")
        // The part of a failed download may be deleted after its end is told.
        let downloads = world.bus.folder("home/Downloads")
        #expect(await eventually { listFolder(downloads) == ["today.jpg"] }, "\(listFolder(downloads))")
        // An app that dies before it has answered is started again.
        #expect(await world.hasAnswered(app, "background"))
        #expect(await world.bus.end(app, by: SIGTERM))
    }
}
