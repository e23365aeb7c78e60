internal import DBus
internal import DownloaderInterface
internal import Glibc
internal import TestSupport
internal import Testing

/// docs/guides/how-do-i.md, whose blocks are run as they are on the page, but for their URLs.
private struct Guide {
    /// What is before the first recipe, and then each recipe.
    private let sections: [Substring]

    init() throws {
        let page = String(decoding: try #require(readFile("\(repository)/docs/guides/how-do-i.md")), as: UTF8.self)
        sections = page.split(separator: "\n## ")
    }

    /// The first block of a language in a recipe; in recipe 0, what all recipes begin with.
    func block(_ language: String, in recipe: Int) throws -> String {
        let section = sections[recipe]
        #expect(recipe == 0 || section.hasPrefix("\(recipe) · "))
        let start = try #require(section.firstRange(of: "\n```\(language)\n")).upperBound
        let end = try #require(section[start...].firstRange(of: "\n```\n")).lowerBound
        return "\(section[start..<end])\n"
    }

    /// A program in Python: what all recipes begin with, the recipe, and `own`, which is the app's.
    func program(_ recipe: Int, own: String, _ urls: [String: String] = [:]) throws -> String {
        var text = try block("python", in: recipe)
        for (url, other) in urls {
            #expect(text.contains(url))
            text = text.replacing(url, with: other)
        }
        return try block("python", in: 0) + text + own
    }

    /// The commands of a recipe for a shell, each with the answer below it.
    func commands(_ recipe: Int, _ urls: [String: String]) throws -> [(command: String, answer: String)] {
        var text = try block("sh", in: recipe)
        for (url, other) in urls {
            #expect(text.contains(url))
            text = text.replacing(url, with: other)
        }
        var commands: [(command: String, answer: String)] = []
        var isOpen = false
        for line in text.split(separator: "\n") {
            if isOpen, let last = commands.popLast() {
                commands.append((command: "\(last.command)\n\(line)", answer: ""))
            } else if line.hasPrefix("("), let last = commands.popLast() {
                commands.append((command: last.command, answer: String(line)))
                continue
            } else {
                commands.append((command: String(line), answer: ""))
            }
            let command = commands.last?.command ?? ""
            isOpen = command.hasSuffix("\\") || command.count { $0 == "\"" } % 2 == 1
        }
        return commands
    }

    /// Runs commands for a shell in one shell, which ends at the first that fails.
    func run(_ commands: some Sequence<String>, in world: ServiceWorld) async throws -> Child.Exit {
        let script = "set -e\n" + (try block("sh", in: 0)) + commands.joined(separator: "\n")
        let folder = builtProgram("todoku", variable: "TODOKU").split(separator: "/").dropLast().reduce("") { "\($0)/\($1)" }
        let path = "\(folder):\(world.environment["PATH"] ?? "/usr/bin:/bin")"
        return await Child.run(["sh", "-c", script], environment: world.environment.merging(["PATH": path]) { $1 })
    }
}

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
        let queued = try await guide.run(commands.prefix(1), in: world)
        #expect(queued.status == 0 && queued.output == "(objectpath '\(chapter)',)\n", "package libglib2.0-bin: \(queued)")
        let file = try await client.wait(ObjectPath(chapter))
        let rest = try await guide.run(commands.dropFirst(), in: world)
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
        let exit = try await guide.run(commands, in: world)
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
        let fetched = try await guide.run([commands[0].command], in: world)
        let answer = commands[0].answer.replacing("/home/me/Downloads", with: downloads)
        #expect(fetched.status == 0 && fetched.output == "\(answer)\n" && answer.hasPrefix("('new-data', "), "\(fetched)")
        // The command has no app, and so a copy of its own.
        for status in [0, 4] {
            let exit = try await guide.run([commands[1].command], in: world)
            #expect(exit.status == status && exit.output == "\(downloads)/feed.xml\n", "\(exit)")
        }
    }
}
