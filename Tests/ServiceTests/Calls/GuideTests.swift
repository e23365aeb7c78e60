internal import DBus
internal import DownloaderInterface
internal import Glibc
internal import TestSupport
internal import Testing

@Suite(.timeLimit(.minutes(10))) struct `A recipe of the guide for app developers` {
    private let guide: Guide
    private let chapter = "\(BusName.tokensPath)/org_2eexample_2eApp/chapter_5f1"

    init() throws { guide = try Guide() }

    private func python(_ program: String, _ arguments: [String] = [], in world: ServiceWorld) async -> Child.Exit {
        await Child.run([ExampleApp.python, program] + arguments, environment: world.environment)
    }

    private func text(_ path: String) -> String? { readFile(path).map { String(decoding: $0, as: UTF8.self) } }

    /// `isCalled`: whether the bus can start the app.
    @Test(arguments: [true, false])
    func `for a download while the app is gone hands it over once, by a call or at the next start`(isCalled: Bool) async throws {
        let (gate, folder) = (Gate(), TemporaryFolder())
        defer { gate.open() }
        let server = ScriptedServer { _, reply in
            gate.wait()
            reply.respond(200, text: "chapter")
        }
        let own = """
            import sys


            def process(path):
                with open(sys.argv[2], "a") as log:
                    print(path, file=log)


            def show(download, state, reason):
                print("show", download, state)


            if sys.argv[1] == "app":
                App().run()
            else:
                if sys.argv[1] == "queue":
                    print(queue(1, sys.argv[3]))
                find_again()
            """
        let (program, log) = (folder("app.py"), folder("log"))
        writeFile(program, try guide.program(1, own: own).utf8)
        let names = isCalled ? ["org.example.App": "\(ExampleApp.python) \(program) app \(log)"] : [:]
        let world = await ServiceWorld(activation: "--idle-exit 3600", names: names)
        let client = try await world.client()
        // The second run is the app after a crash: its call queues nothing new.
        for _ in 1...2 {
            let queued = await python(program, ["queue", log, server.url("/1.mp3")], in: world)
            #expect(queued.status == 0 && queued.output.hasPrefix("\(chapter)\nshow \(chapter) "), "packages python3-gi: \(queued)")
        }
        #expect(try await client.list().count == 1)
        gate.open()
        if !isCalled {
            _ = try await client.wait(ObjectPath(chapter))
            let found = await python(program, ["find", log], in: world)
            #expect(found.status == 0 && found.output == "", "\(found)")
        }
        // The app removes it once the file is processed.
        #expect(try await eventually { try await client.list().isEmpty })
        let file = world.bus.folder("home/Downloads/1.mp3")
        #expect(text(log) == "\(file)\n" && text(file) == "chapter")
    }

    @Test func `for a download while the app is gone has commands that do the same`() async throws {
        let server = ScriptedServer { _, reply in reply.respond(200, text: "chapter") }
        let world = await ServiceWorld(activation: "--idle-exit 3600")
        let client = try await world.client()
        let commands = try guide.commands(1, ["https://example.org/1.mp3": server.url("/1.mp3")]).map { $0.command }
        let queued = try await guide.run(commands.prefix(1), world.environment)
        #expect(queued.status == 0 && queued.output == "(objectpath '\(chapter)',)\n", "package libglib2.0-bin: \(queued)")
        let file = try await client.wait(ObjectPath(chapter))
        let rest = try await guide.run(commands.dropFirst(), world.environment)
        #expect(rest.status == 0 && rest.output.contains("'State': <'finished'>") && rest.output.contains("<'\(file)'>"), "\(rest)")
        #expect(try await client.list().isEmpty && text(file) == "chapter")
    }

    @Test func `for a server that limits its requests waits between them, and tells who asks`() async throws {
        let server = ScriptedServer { request, reply in reply.respond(200, text: request.path) }
        let (world, folder) = (await ServiceWorld(activation: "--idle-exit 3600"), TemporaryFolder())
        let client = try await world.client()
        let site = String(server.url("/").dropLast())
        writeFile(
            folder("app.py"),
            try guide.program(
                2, own: "import sys\n\nprint(fetch_releases(sys.argv[2:], sys.argv[1]))\n", ["https://musicbrainz.org": site]
            ).utf8)
        let (begun, names) = (ContinuousClock.now, (1...5).map { "a-\($0)" })
        let queued = await python(folder("app.py"), [world.folder] + names, in: world)
        try #require(queued.status == 0, "packages python3-gi: \(queued)")
        let batch = ObjectPath(String(queued.output.dropLast()))
        #expect(try await client.wait(batch: batch) == [5, 0, 0])
        // The last request begins four seconds after the first, however busy the machine is.
        #expect(try #require(server.requests.map(\.arrived).max()) - begun >= .milliseconds(3900))
        #expect(world.files == names.map { "\($0).json" })
        #expect(server.requests.map(\.target).sorted() == names.map { "/ws/2/release/\($0)?fmt=json" })
        #expect(server.requests.allSatisfy { $0.field("User-Agent") == "ExampleApp/1.0 (https://example.org/app)" })
    }

    @Test func `for a server that limits its requests has commands that do the same`() async throws {
        let server = ScriptedServer { request, reply in reply.respond(200, text: request.path) }
        let world = await ServiceWorld(activation: "--idle-exit 3600")
        let client = try await world.client()
        let site = String(server.url("/").dropLast())
        let commands = try guide.commands(2, ["https://musicbrainz.org": site, "todoku why 12": "todoku why 1"]).map { $0.command }
        let exit = try await guide.run(commands, world.environment)
        #expect(exit.status == 0 && exit.output.hasPrefix("(objectpath '/org/todoku/Downloader1/batch/1', ["), "\(exit)")
        #expect(exit.output.contains("\napi.example.org "), "\(exit)")
        #expect(try await client.wait(batch: ObjectPath("/org/todoku/Downloader1/batch/1")) == [2, 0, 0])
        #expect(server.requests.allSatisfy { $0.field("User-Agent") == "ExampleApp/1.0 (https://example.org/app)" })
        #expect(listFolder(world.bus.folder("home/Downloads")).sorted() == ["ID-1.json", "ID-2.json"])
    }

    @Test func `for a file that may have changed tells new data from the copy, and an error`() async throws {
        let (shelf, folder) = (Shelf(), TemporaryFolder())
        let server = ScriptedServer { request, reply in
            if shelf.version > 2 { reply.respond(404) } else { shelf.serve(request, reply) { "\"\($0)\"" } }
        }
        let own = """


            def read_feed(path):
                print("read", path)


            def show_error(error):
                print("error", error)


            recipe, loop = fetched, GLib.MainLoop()


            def fetched(answer, error):
                recipe(answer, error)
                print(answer)
                loop.quit()


            poll()
            loop.run()
            """
        writeFile(folder("app.py"), try guide.program(3, own: own, ["https://example.org/feed.xml": server.url("/feed.xml")]).utf8)
        let world = await ServiceWorld(activation: "--idle-exit 3600")
        let file = world.bus.folder("home/Downloads/feed.xml")
        func poll() async -> String {
            let exit = await python(folder("app.py"), in: world)
            #expect(exit.status == 0, "packages python3-gi: \(exit)")
            return exit.output
        }
        #expect(await poll() == "read \(file)\n('new-data', '\(file)')\n")
        #expect(await poll() == "('no-data', '\(file)')\n")
        shelf.change()
        #expect(await poll() == "read \(file)\n('new-data', '\(file)')\n")
        #expect(readFile(file) == shelf.file)
        shelf.change()
        #expect(await poll() == "error org.todoku.Error.HttpStatus\nNone\n")
    }

    @Test func `for a file that may have changed has commands that do the same`() async throws {
        let shelf = Shelf()
        let server = ScriptedServer { request, reply in shelf.serve(request, reply) { "\"\($0)\"" } }
        let world = await ServiceWorld(activation: "--idle-exit 3600")
        let downloads = world.bus.folder("home/Downloads")
        let commands = try guide.commands(3, ["https://example.org/feed.xml": server.url("/feed.xml")])
        try #require(commands.count == 2)
        let fetched = try await guide.run([commands[0].command], world.environment)
        let answer = commands[0].answer.replacing("/home/me/Downloads", with: downloads)
        #expect(fetched.status == 0 && fetched.output == "\(answer)\n" && answer.hasPrefix("('new-data', "), "\(fetched)")
        // The command has no app, and so a copy of its own.
        for status in [0, 4] {
            let exit = try await guide.run([commands[1].command], world.environment)
            #expect(exit.status == status && exit.output == "\(downloads)/feed.xml\n", "\(exit)")
        }
    }

    /// A publisher's folder, whose archives and manifest are made by the recipe's command, and a server that serves them.
    private struct Levels {
        let folder = TemporaryFolder()
        let server: ScriptedServer
        /// Holds back the manifest. An asset that is updated daily is updated as soon as it is registered.
        let gate = Gate()

        init() {
            folder.makeFolder("levels")
            folder.makeFolder("levels/map")
            let (site, gate) = (folder.makeFolder("public"), gate)
            server = ScriptedServer { request, reply in
                if request.path == "/levels.json" { gate.wait() }
                guard let file = readFile("\(site)\(request.path)") else { return reply.respond(404) }
                reply.serve(file, for: request)
            }
        }

        func write(_ level: String) { writeFile(folder("levels/map/1.dat"), level.utf8) }
    }

    private let manifest = "https://example.org/levels.json"

    /// The page's commands with the test's manifest: to register, update, show, roll back, and the same three by `todoku`; to pack.
    private func recipeCommands(of levels: Levels) throws -> [(command: String, answer: String)] {
        let commands = try guide.commands(5, [manifest: levels.server.url("/levels.json"), "'{}'": "'\(noOptions)'"])
        try #require(commands.count == 7)
        return commands
    }

    /// Opens the gate once the service has got the call of Update.
    private func openGate(of levels: Levels, after monitor: Child) async {
        #expect(await eventually { !Trace(monitor.output).calls("Update").isEmpty || !monitor.isRunning }, "\(monitor.errors)")
        levels.gate.open()
    }

    private func monitor(_ world: ServiceWorld) async -> Child {
        let monitor = Child(["dbus-monitor", "--session", "--profile"], environment: world.environment)
        #expect(await eventually { monitor.output.contains("NameLost") || !monitor.isRunning }, "package dbus-bin")
        return monitor
    }

    @Test func `for data that stay current opens a whole version, and the installed one without a server`() async throws {
        let levels = Levels()
        defer { levels.gate.open() }
        let world = await ServiceWorld(activation: "--idle-exit 3600")
        levels.write("first")
        let packed = try await guide.run([try recipeCommands(of: levels)[6].command], world.environment, folder: levels.folder.path)
        #expect(packed.status == 0, "\(packed)")
        let own = """


            loop = GLib.MainLoop()


            def show(signal, values):
                print(signal, *values)


            def play(level):
                print("play", os.read(level, 100).decode())
                loop.quit()


            def play_offline(error):
                print("offline", error)
                loop.quit()


            load()
            loop.run()
            """
        let program = levels.folder("game.py")
        writeFile(program, try guide.program(5, own: own, [manifest: levels.server.url("/levels.json")]).utf8)
        let watched = await monitor(world)
        async let played = python(program, in: world)
        await openGate(of: levels, after: watched)
        let first = await played
        let lines = first.output.split(separator: "\n")
        #expect(first.status == 0 && lines.last == "play first", "packages python3-gi: \(first)")
        #expect(lines.contains("StageChanged downloading"), "\(first)")
        // Registering again changes nothing, and the update fails.
        unlink(levels.folder("public/levels.json"))
        let second = await python(program, in: world)
        #expect(second.status == 0 && second.output.hasSuffix("offline org.todoku.Error.HttpStatus\n"), "\(second)")
        let path = world.bus.folder("data/todoku/assets/org.example.Game/levels/current/map/1.dat")
        #expect(text(path) == "first")
    }

    @Test func `for data that stay current has commands that do the same, and pack a version`() async throws {
        let levels = Levels()
        defer { levels.gate.open() }
        let world = await ServiceWorld(activation: "--idle-exit 3600")
        let commands = try recipeCommands(of: levels)
        func run(_ numbers: Int...) async throws -> Child.Exit {
            try await guide.run(numbers.map { commands[$0].command }, world.environment)
        }
        func pack(_ version: String, _ level: String) async throws {
            levels.write(level)
            #expect(commands[6].command.contains("2026.11"))
            let command = commands[6].command.replacing("2026.11", with: version)
            let packed = try await guide.run([command], world.environment, folder: levels.folder.path)
            #expect(packed.status == 0, "\(packed)")
        }
        try await pack("2026.11", "first")
        let watched = await monitor(world)
        async let updating = guide.run([commands[0].command, commands[1].command], world.environment)
        await openGate(of: levels, after: watched)
        let updated = try await updating
        let answer = commands[1].answer.replacing("/home/me/.local/share", with: world.bus.folder("data"))
        let asset = "/org/todoku/Downloader1/asset/org_2eexample_2eGame/levels"
        #expect(updated.status == 0 && updated.output == "(objectpath '\(asset)',)\n\(answer)\n", "\(updated)")
        let current = world.bus.folder("data/todoku/assets/org.example.Game/levels/current")
        #expect(answer == "(true, '\(current)')" && text("\(current)/map/1.dat") == "first")
        let shown = try await run(2)
        #expect(shown.status == 0 && shown.output.contains("'InstalledVersion': <'2026.11'>"), "\(shown)")

        try await pack("2026.12", "second")
        let again = try await run(4, 5)
        #expect(again.status == 0 && again.output.hasSuffix("\(current)\n") && text("\(current)/map/1.dat") == "second", "\(again)")
        let back = try await run(3)
        #expect(back.status == 0 && back.output == "('\(current)',)\n" && text("\(current)/map/1.dat") == "first", "\(back)")
    }

    @Test func `for links that expire gives a fresh one as often as needed, also after a restart`() async throws {
        let gate = Gate()
        defer { gate.open() }
        let server = ScriptedServer { request, reply in
            if request.target == "/game?signature=2" { gate.wait() }
            if request.target == "/game?signature=3" { reply.respond(200, text: "game") } else { reply.respond(403) }
        }
        let (world, folder) = (await ServiceWorld(activation: "--idle-exit 3600"), TemporaryFolder())
        let client = try await world.client()
        // The app ends with its last link.
        let own = """


            import sys

            loop, links = GLib.MainLoop(), sys.argv[2:]


            def fresh_link():
                if len(links) == 1:
                    GLib.idle_add(loop.quit)
                return links.pop(0)


            start(sys.argv[1])
            loop.run()
            """
        writeFile(folder("app.py"), try guide.program(7, own: own).utf8)
        let links = (0...3).map { server.url("/game?signature=\($0)") }
        for fresh in [links[1...2], links[3...]] {
            let exit = await python(folder("app.py"), [links[0]] + fresh, in: world)
            #expect(exit.status == 0 && exit.errors == "", "packages python3-gi: \(exit)")
            gate.open()  // the last link of the first run is refused only after the end of that run
        }
        let file = try await client.wait(BusName.path(app: "org.example.App", token: "game"))
        #expect(text(file) == "game" && file == world.bus.folder("home/Downloads/game"))
        #expect(server.requests.map(\.target) == (0...3).map { "/game?signature=\($0)" })
        #expect(try await client.list().count == 1)
    }

    /// A sandbox with the permissions that the recipe's manifest names, as `flatpak run` gives them to the proxy and to the app.
    private struct Permitted {
        let sandbox: Sandbox
        /// What a mount needs for the download folder.
        let mount: [String]

        init(_ guide: Guide, _ running: Running) async throws {
            let words = try guide.block("yaml", in: 6).split { $0 == " " || $0 == "\n" }.filter { $0.hasPrefix("--") }
            let names = words.filter { $0.hasPrefix("--talk-name=") }.map { "--talk=\($0.dropFirst("--talk-name=".count))" }
            let shared = words.contains("--share=network") ? "network;ipc;" : "ipc;"
            let downloads: String = try await running.client.get(Manager.defaultDirectory)
            mount = words.contains("--filesystem=xdg-download:ro") ? ["--ro-bind", downloads, downloads] : []
            sandbox = await Sandbox(running.world, rules: names, info: Sandbox.info(app: "org.example.App", shared: shared))
        }
    }

    /// A service that lets sandboxes reach the servers of these tests, which are on this machine.
    private func sandboxed() async throws -> (running: Running, permitted: Permitted, server: ScriptedServer) {
        let running = try await Running.start()
        try await running.client.set(Manager.sandboxPrivate, true)
        return (running, try await Permitted(guide, running), ScriptedServer { request, reply in reply.respond(200, text: request.path) })
    }

    @Test func `for a sandbox reads what was downloaded, and downloads into a file of the app`() async throws {
        let (running, permitted, server) = try await sandboxed()
        let own = """


            import sys


            def ended(download):
                loop, answers = GLib.MainLoop(), []
                wait(lambda answer, error: (answers.append(error or answer[0]), loop.quit()), download, DOWNLOAD, "Wait", "(a{sv})", {})
                loop.run()
                return answers[0]


            [download] = call(MANAGER, TODOKU, "Download", "(sa{sv})", sys.argv[1] + "a", {"app": text(APP)})
            path = ended(download)
            print(path, os.path.exists(path))
            print(read_finished(download).read().decode())
            if os.path.exists(path):
                sys.exit()
            download = into_own_file(sys.argv[1] + "b", "/run/own")
            print(download)
            print("path:", ended(download))
            with open("/run/own") as file:
                print(file.read())
            """
        let program = try guide.program(6, own: own)
        let folder = running.world.bus.folder("home/Downloads")
        let arguments = ["/usr/bin/python3", "-c", program, server.url("/")]
        let exit = await permitted.sandbox.run(arguments)
        let token = BusName.path(app: "org.example.App", token: "map_7").value
        #expect(
            exit.status == 0 && exit.output == "\(folder)/a False\n/a\n\(token)\npath: \n/b\n", "packages python3-gi: \(exit)")
        let seeing = await permitted.sandbox.run(permitted.mount + arguments)
        #expect(seeing.status == 0 && seeing.output == "\(folder)/a (1) True\n/a\n", "\(seeing)")
        #expect(try await running.client.list(["app": .string("org.example.App")]).count == 3)
        #expect(listFolder(folder) == ["a", "a (1)"])
    }

    /// The second call is that of an app that was started again.
    @Test(arguments: [true, false])
    func `for a file of the app keeps the bytes when the call is repeated`(hasEnded: Bool) async throws {
        let (gate, folder, body) = (Gate(), TemporaryFolder(), patternBytes(2_000_000))
        defer { gate.open() }
        let server = ScriptedServer { _, reply in
            reply.head(200, length: body.count)
            reply.send(body[..<1_000_000])
            reply.send(reply.trickle(body[1_000_000...], by: 50, until: gate))
        }
        let world = await ServiceWorld(activation: "--idle-exit 3600")
        let client = try await world.client()
        let (program, file) = (folder("app.py"), folder("own"))
        writeFile(program, try guide.program(6, own: "\n\nimport sys\n\nprint(into_own_file(*sys.argv[1:]))\n").utf8)
        let path = BusName.path(app: "org.example.App", token: "map_7")
        let first = await python(program, [server.url("/b"), file], in: world)
        try #require(first.status == 0 && first.output == "\(path.value)\n", "packages python3-gi: \(first)")
        #expect(await client.signals.until { $0.contains { ($0.progress?.received ?? 0) >= 1_000_000 } })
        if hasEnded {
            gate.open()
            #expect(try await client.wait(path) == "")
        }
        let again = await python(program, [server.url("/b"), file], in: world)
        #expect(again.status == 0 && again.output == first.output, "\(again)")
        gate.open()
        #expect(try await client.wait(path) == "")
        #expect(fileHolds(file, body))
        #expect(server.requests.count == 1)
    }

    @Test func `for a sandbox has commands that download into a file of the app`() async throws {
        let (running, permitted, server) = try await sandboxed()
        let changes = ["https://example.org/data.bin": server.url("/data.bin"), " 3 ": " 'handle 3' "]
        let commands = try guide.commands(6, changes).map { $0.command }
        let token = BusName.path(app: "org.example.App", token: "map_7").value
        let script = try guide.script(["cd /run"] + commands + ["o \(token) \(Download.interface).Wait '\(noOptions)'", "cat data.bin"])
        let exit = await permitted.sandbox.run(["sh", "-c", script])
        #expect(exit.status == 0 && exit.output == "(objectpath '\(token)',)\n('',)\n/data.bin", "package libglib2.0-bin: \(exit)")
        // The proxy lets the app talk to whoever owns the name for pushes.
        let push = try await StandInOwner(on: running.world.bus.address, "org.todoku.Push1")
        let ping = await permitted.sandbox.run([
            "gdbus", "call", "-e", "-d", "org.todoku.Push1", "-o", "/org/todoku/Push1", "-m", "\(Standard.peer).Ping",
        ])
        #expect(ping.output == "()\n", "\(ping)")
        withExtendedLifetime(push) {}
        #expect(try await running.client.list(["app": .string("org.example.App")]).count == 1)
    }
}
