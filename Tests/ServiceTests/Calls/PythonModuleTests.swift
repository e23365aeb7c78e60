internal import DBus
internal import DownloaderInterface
internal import Glibc
internal import TestSupport
internal import Testing

@Suite(.timeLimit(.minutes(10))) struct `The service in thirty lines` {
    /// The program of docs/dbus.md with another URL.
    private func program(_ url: String) throws -> String {
        let page = String(decoding: try #require(readFile("\(repository)/docs/dbus.md")), as: UTF8.self)
        let start = try #require(page.firstRange(of: "\n```python\n")).upperBound
        let end = try #require(page[start...].firstRange(of: "\n```\n")).lowerBound
        let lines = page[start..<end]
        #expect(lines.split(separator: "\n").count <= 30)
        return String(lines).replacing("https://example.org/1.mp3", with: url)
    }

    @Test func `finds its download again after a kill of the program, and waits across a kill of the service`() async throws {
        let world = await ServiceWorld(activation: "--idle-exit 3600")
        let gate = Gate()
        defer { gate.open() }
        let server = ExampleClient.stoppingServer(gate)
        let command = [ExampleApp.python, "-u", "-c", try program(server.url("/1.mp3"))]
        func hasProgress(_ child: Child) async -> Bool {
            await eventually { child.output.contains("Progress (") || !child.isRunning } && child.isRunning
        }
        let first = Child(command, environment: world.environment)
        try #require(await hasProgress(first), "packages python3-gi: \(first.output)\(first.errors)")
        first.signal(SIGKILL)
        _ = await first.wait()

        let second = Child(command, environment: world.environment)
        try #require(await hasProgress(second), "\(second.output)\(second.errors)")
        kill(try #require(await world.bus.process(of: BusName.service)), SIGKILL)
        let exit = await second.wait()
        #expect(exit.status == 0 && exit.errors == "", "\(exit)")
        let (path, file) = ("\(BusName.tokensPath)/org_2eexample_2eApp/chapter_5f1", world.bus.folder("home/Downloads/1.mp3"))
        let last = exit.output.split(separator: "\n").suffix(2)
        #expect(last.first == "the file: \(file)")
        #expect(last.last?.hasPrefix("\(path) {") == true && last.last?.contains("'State': 'finished'") == true)
        #expect(exit.output.contains("\nFinished ('\(file)',)\nCompleted ('', '', {})\n"), "\(exit)")
        #expect(readFile(file) == ExampleClient.body)
        #expect(try await world.client().list().count == 1)
    }
}

@Suite(.timeLimit(.minutes(10))) struct `The module for Python` {
    private let body = ExampleClient.body

    @Test func `queues a batch, fetches, finds, and calls back in a main loop`() async throws {
        let running = try await Running.start()
        let world = running.world
        let server = ScriptedServer { request, reply in
            if request.path == "/missing" { reply.respond(404) } else { reply.respond(200, text: request.path) }
        }
        let program = """
            import sys

            sys.path.insert(0, sys.argv[1])
            import todoku
            from gi.repository import GLib

            url, folder = sys.argv[2:]
            service = todoku.Todoku("org.example.App")
            options = {"directory": folder, "notify": "never"}

            batch = service.batch([url + "1", (url + "2", {"filename": "two"}), url + "missing"], tag="b", **options)
            print("batch", batch.wait(), len(batch.downloads))
            print("found", [d.path == batch.downloads[2].path for d in service.find(tag="b", states=["failed"], batch=batch.path)])
            print("fetched", *[answer.is_new for answer in (service.fetch(url + "f", **options), service.fetch(url + "f", **options))])

            for wrong in ({"drectory": folder}, {"size": "5"}, {"mirrors": url}):
                try:
                    service.download(url, **wrong)
                except TypeError as error:
                    print("wrong", str(error)[:32])
            try:
                service.download(url + "missing", **options).wait()
            except todoku.TodokuError as error:
                print("error", error.name, error.bus_name, error.retryable, error.details["http-status"])

            download = service.at("t_1")
            print("before", download.path, download.status())
            held = service.download(url + "3", token="t_1", start=False, metadata={"chapter": 3}, **options)
            print("held", held.path == download.path, download.status().state, download.metadata())
            loop, states = GLib.MainLoop(), []


            def changed(answer):
                status = answer()
                if states[-1:] != [status.state]:
                    states.append(status.state)


            def waited(answer):
                print("waited", answer())
                watch.stop()
                loop.quit()


            watch = todoku.Watch(download, changed)
            download.resume(then=lambda answer: answer())
            download.wait(then=waited)
            loop.run()
            print("states", states[0], states[-1])
            download.remove()
            print("after", download.status())
            """
        let environment = world.environment.merging(["PYTHONDONTWRITEBYTECODE": "1"]) { $1 }
        let exit = await Child.run(
            [ExampleApp.python, "-c", program, "\(repository)/examples/python", server.url("/"), world.folder], environment: environment)
        #expect(
            exit.output == """
                batch (2, 1, 0) 3
                found [True]
                fetched True False
                wrong there is no option drectory; the
                wrong option size takes a whole number
                wrong option mirrors takes a list of t
                error HttpStatus org.todoku.Error.HttpStatus False 404
                before \(BusName.tokensPath)/org_2eexample_2eApp/t_5f1 None
                held True paused {'chapter': 3}
                waited \(world.folder)/3
                states paused finished
                after None

                """, "packages python3-gi: \(exit.status): \(exit.errors)")
    }

    @Test func `finds batches again, waits for all, and renews a link`() async throws {
        let running = try await Running.start()
        let world = running.world
        let server = ScriptedServer { request, reply in
            switch request.path {
            case "/missing": reply.respond(404)
            case "/old": reply.respond(403)
            default: reply.respond(200, text: request.path)
            }
        }
        let program = """
            import sys

            sys.path.insert(0, sys.argv[1])
            import todoku

            url, folder = sys.argv[2:]
            service, other = todoku.Todoku("org.example.App"), todoku.Todoku("org.example.Other")
            options = {"directory": folder, "notify": "never"}

            first = service.batch([url + "1", url + "missing"], tag="b", **options)
            print("all", service.wait_all(tag="b"))
            second = service.batch([url + "2"], start=False, **options)
            other.batch([url + "3"], start=False, **options)
            print("batches", [batch.path for batch in service.batches()] == [first.path, second.path])
            print("not ended", [batch.path for batch in service.batches(ended=False)] == [second.path])
            print("of every app", len(todoku.Todoku().batches()))
            found = service.batches(ended=True)[0]
            print("found", found.wait(), found.downloads, len(service.find(batch=found.path)))

            download = service.download(url + "old", renewable=True, **options)
            for status in download.watch():
                if status.wait_reason == "needs-url":
                    break
            for wrong in ({"tag": "x"}, {"headers": "X-Key: 1"}):
                try:
                    download.replace_url(url + "new", **wrong)
                except TypeError as error:
                    print("wrong", str(error)[:29])
            download.replace_url(url + "new", headers={"X-Key": "1"})
            download.wait()
            print("renewed", download.status().state)
            """
        let environment = world.environment.merging(["PYTHONDONTWRITEBYTECODE": "1"]) { $1 }
        let exit = await Child.run(
            [ExampleApp.python, "-c", program, "\(repository)/examples/python", server.url("/"), world.folder], environment: environment)
        #expect(
            exit.output == """
                all (1, 1, 0)
                batches True
                not ended True
                of every app 3
                found (1, 1, 0) None 2
                wrong there is no option tag; the o
                wrong option headers takes a dict o
                renewed finished

                """, "packages python3-gi: \(exit.status): \(exit.errors)")
        #expect(server.requests.last?.path == "/new" && server.requests.last?.field("X-Key") == "1")
    }

    @Test func `passes integers, knows the path of a token, and waits while the service is killed`() async throws {
        let world = await ServiceWorld(activation: "--idle-exit 3600")
        let gate = Gate()
        defer { gate.open() }
        let server = ExampleClient.stoppingServer(gate)
        let program = """
            import sys

            sys.path.insert(0, sys.argv[1])
            import todoku
            from gi.repository import GLib

            url, folder = sys.argv[2:]
            service = todoku.Todoku("org.example.App")
            for wrong in ({"retries": -1}, {"priority": 2**31}, {"size": 2**64}, {"connections": True}, {"max_size": 1.5}):
                try:
                    service.download(url, **wrong)
                except (TypeError, ValueError) as error:
                    print(type(error).__name__, str(error).split(":")[0])

            download, loop = service.at("1_a"), GLib.MainLoop()
            most = {"max_size": 2**64 - 1, "priority": -(2**31), "retries": 2**32 - 1}
            print("same", service.download(url, token="1_a", directory=folder, size=1_000_000, **most).path == download.path)


            def waited(answer):
                print("waited", answer())
                loop.quit()


            download.wait(then=waited)
            print("priority", download.status()["Priority"])  # the service has the call of Wait, too
            print("called", flush=True)
            loop.run()
            print("again", todoku.Todoku("org.example.App").at("1_a").status().state)
            """
        let environment = world.environment.merging(["PYTHONDONTWRITEBYTECODE": "1"]) { $1 }
        let child = Child(
            [ExampleApp.python, "-c", program, "\(repository)/examples/python", server.url("/a.bin"), world.folder],
            environment: environment)
        let isCalled = await eventually { child.output.contains("called\n") || !child.isRunning } && child.isRunning
        try #require(isCalled, "packages python3-gi: \(child.output)\(child.errors)")
        #expect(await server.waitForRequests(1))
        let process = try #require(await world.bus.process(of: BusName.service))
        kill(process, SIGKILL)
        // The repeated call starts the service, which resumes the download.
        #expect(await server.waitForRequests(2))
        gate.open()
        let exit = await child.wait()
        #expect(
            exit.output == """
                ValueError option retries takes a whole number from 0 to 4294967295
                ValueError option priority takes a whole number
                ValueError option size takes a whole number from 0
                TypeError option connections takes a whole number from 0 to 4294967295, not bool
                TypeError option max-size takes a whole number from 0, not float
                same True
                priority -2147483648
                called
                waited \(world.folder)/a.bin
                again finished

                """, "\(exit.status): \(exit.errors)")
        #expect(world.bytes("a.bin") == body)
    }

    @Test func `refuses a text with a NUL, at which GLib would cut it`() async throws {
        let running = try await Running.start()
        let program = """
            import sys

            sys.path.insert(0, sys.argv[1])
            import todoku

            url, nul = "http://127.0.0.1:1/a", "b\\0c"
            service = todoku.Todoku("org.example.App")
            download = service.download(url, start=False)
            for call in (
                lambda: service.download(url + nul, start=False),
                lambda: service.download(url, start=False, filename=nul),
                lambda: service.download(url, start=False, mirrors=[url + nul]),
                lambda: service.download(url, start=False, headers={"X-Key": nul}),
                lambda: service.download(url, start=False, metadata={nul: 1}),
                lambda: service.batch([url, url + nul], start=False),
                lambda: service.fetch(url + nul, then=print),
                lambda: service.find(tag=nul),
                lambda: download.replace_url(url + nul),
                lambda: download.set_metadata({nul: 1}),
                lambda: download.set_metadata({"k": [nul]}),
            ):
                try:
                    print(call())
                except ValueError as error:
                    print(str(error).split(": ")[-1])
            print(len(service.find()))
            """
        let environment = running.world.environment.merging(["PYTHONDONTWRITEBYTECODE": "1"]) { $1 }
        let exit = await Child.run([ExampleApp.python, "-c", program, "\(repository)/examples/python"], environment: environment)
        let refusals = String(repeating: "D-Bus carries no NUL in a text\n", count: 11)
        #expect(exit.status == 0 && exit.output == refusals + "1\n", "packages python3-gi: \(exit)")
    }

    @Test func `frees a watch when its loop ends`() async throws {
        let running = try await Running.start()
        let program = """
            import gc
            import sys
            import weakref

            sys.path.insert(0, sys.argv[1])
            import todoku

            watches = []


            class Watch(todoku.Watch):
                def __init__(self, *arguments):
                    super().__init__(*arguments)
                    watches.append(weakref.ref(self))


            todoku.Watch = Watch
            download = todoku.Todoku().download("http://127.0.0.1:1/a", start=False)
            for _ in range(5):
                for status in download.watch():
                    break
            gc.collect()
            print(status.state, len(watches), sum(watch() is not None for watch in watches))
            """
        let environment = running.world.environment.merging(["PYTHONDONTWRITEBYTECODE": "1"]) { $1 }
        let exit = await Child.run([ExampleApp.python, "-c", program, "\(repository)/examples/python"], environment: environment)
        #expect(exit.status == 0 && exit.output == "paused 5 0\n", "packages python3-gi: \(exit)")
    }

    /// A new option of the service needs a new row in the module.
    @Test func `has the options of the service`() async throws {
        let running = try await Running.start()
        let program = "import sys; sys.path.insert(0, sys.argv[1]); import todoku; print(*sorted(todoku.OPTIONS), sep='\\n')"
        let environment = running.world.environment.merging(["PYTHONDONTWRITEBYTECODE": "1"]) { $1 }
        let exit = await Child.run([ExampleApp.python, "-c", program, "\(repository)/examples/python"], environment: environment)
        let supported = try await running.client.get(Manager.supportedOptions)
        #expect(exit.output.split(separator: "\n").map(String.init) == supported, "packages python3-gi: \(exit.errors)")
    }
}

/// RehearseTests runs test_downloader.py, which has more tests of this app.
@Suite(.timeLimit(.minutes(10))) struct `The app of the rehearsals` {
    private func run(_ url: String, in world: ServiceWorld) async throws -> Child.Exit {
        let environment = world.environment.merging(["PYTHONDONTWRITEBYTECODE": "1"]) { $1 }
        let app = Child([ExampleApp.python, "\(repository)/examples/rehearsal/downloader.py", url], environment: environment)
        // Longer than a busy machine needs for the starts of Python and of the service, and for the requests.
        try #require(await eventually(within: .seconds(150)) { !app.isRunning }, "the app waits: \(app.output)\(app.errors)")
        return await app.wait()
    }

    @Test func `gives a fresh link each time the server refuses one, and finds its download again after a restart`() async throws {
        let world = await ServiceWorld(activation: "--idle-exit 3600")
        let server = ScriptedServer { request, reply in
            if request.number < 2 { reply.respond(403) } else { reply.respond(200, text: "file") }
        }
        let file = world.bus.folder("home/Downloads/file")
        let first = try await run(server.url("/file"), in: world)
        #expect(first.status == 0 && first.output == "waiting: needs-url\nsaved \(file)\n", "packages python3-gi: \(first)")
        #expect(server.requests.map(\.target) == ["/file", "/file?renewed", "/file?renewed"])
        let again = try await run(server.url("/file"), in: world)
        #expect(again.status == 0 && again.output == "saved \(file)\n", "\(again)")
        #expect(server.requests.count == 3)
        // Another file is another download.
        let other = try await run(server.url("/other"), in: world)
        #expect(other.status == 0 && other.output == "saved \(world.bus.folder("home/Downloads/other"))\n", "\(other)")
    }

    @Test func `gives up when the server refuses each fresh link`() async throws {
        let world = await ServiceWorld(activation: "--idle-exit 3600")
        let server = ScriptedServer { _, reply in reply.respond(403) }
        let exit = try await run(server.url("/file"), in: world)
        #expect(exit.status == 1 && exit.output == "waiting: needs-url\nthe server refuses each fresh link\n", "\(exit)")
        #expect(server.requests.map(\.target) == ["/file"] + Array(repeating: "/file?renewed", count: 3))
    }
}
