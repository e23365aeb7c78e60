internal import DBus
internal import DownloaderInterface
internal import EventLoop
internal import Glibc
internal import TestSupport
internal import Testing

private let body = patternBytes(1_000_000)

/// A server whose first response stops after 400,000 bytes until the gate opens. Each later response is whole.
private func stoppingServer(_ gate: Gate) -> ScriptedServer {
    ScriptedServer { request, reply in
        guard request.number == 0 else { return reply.respond(200, body: body) }
        reply.head(200, length: body.count)
        reply.send(body[..<400_000])
        var sent = 400_000
        // A silent server would be given up after half a minute.
        while !gate.isOpen, sent + 50 < body.count, reply.send(body[sent..<sent + 50]) {
            sent += 50
            poll(nil, 0, 500)
        }
        reply.send(body[sent...])
        reply.close()
    }
}

/// The lines that a client has printed.
private func lines(_ output: String) -> [String] { output.split(separator: "\n").map(String.init) }

private func isProgress(_ line: String) -> Bool { line.hasPrefix("progress ") && line.hasSuffix(" of 1000000") }

@Suite(.timeLimit(.minutes(5))) struct `An example client` {
    private func expectProgress(_ child: Child, _ client: ExampleClient) async throws {
        let isTold = await eventually { lines(child.output).contains(where: isProgress) || !child.isRunning } && child.isRunning
        try #require(isTold, "\(client.packages): “\(child.output)” \(child.errors)")
    }

    @Test(arguments: ExampleClient.tried) func `downloads a file and says where it is`(client: ExampleClient) async throws {
        let running = try await Running.start()
        let world = running.world
        let server = ScriptedServer { request, reply in reply.serve(body, for: request) }
        let exit = try await client.start(server.url("/a.bin"), world.folder, in: world).wait()
        let told = lines(exit.output)
        try #require(exit.status == 0 && exit.errors == "" && told.count >= 2, "\(client.packages): \(exit)")
        let paths = try await running.client.list()
        let path = try #require(paths.first?.value)
        #expect(paths.count == 1 && path.hasPrefix("\(client.path)/"))
        #expect(told[0] == "queued \(path)")
        #expect(told.dropFirst().dropLast().allSatisfy(isProgress), "\(exit)")
        #expect(told[told.count - 1] == "finished \(world.folder)/a.bin")
        #expect(world.bytes("a.bin") == body)
    }

    @Test(arguments: ExampleClient.tried) func `names the error of a download that failed, and then downloads it anew`(
        client: ExampleClient
    ) async throws {
        let running = try await Running.start()
        let world = running.world
        let server = ScriptedServer { request, reply in
            if request.number == 0 { reply.respond(404) } else { reply.serve(body, for: request) }
        }
        let failed = try await client.start(server.url("/a.bin"), world.folder, in: world).wait()
        let path = try #require(try await running.client.list().first, "\(client.packages): \(failed)")
        let error = try await running.client.get(Download.error, at: path)
        #expect(error.name == todokuError("HttpStatus") && error.message.contains("404"))
        #expect(failed.status == 1 && failed.errors == "")
        #expect(failed.output == "queued \(path.value)\nfailed HttpStatus: \(error.message)\n")
        let finished = try await client.start(server.url("/a.bin"), world.folder, in: world).wait()
        #expect(finished.status == 0 && lines(finished.output).last == "finished \(world.folder)/a.bin", "\(finished)")
    }

    @Test(arguments: ExampleClient.tried) func `tells why a call is refused`(client: ExampleClient) async throws {
        let running = try await Running.start()
        let refused = try await client.start("ftp://127.0.0.1/a", in: running.world).wait()
        #expect(refused.status == 1 && refused.output.hasPrefix("failed UnsupportedScheme: ftp: "), "\(client.packages): \(refused)")
        let unknown = try await client.start("--again", "http://127.0.0.1:1/a", in: running.world).wait()
        #expect(unknown.status == 1 && unknown.output.hasPrefix("failed UnknownObject: "), "\(unknown)")
        #expect(try await running.client.list() == [])
    }

    @Test(arguments: ExampleClient.tried) func `says why its download waits, and can cancel it`(client: ExampleClient) async throws {
        let running = try await Running.start()
        let world = running.world
        let server = ScriptedServer { _, reply in reply.respond(503, ["Retry-After": "3600"]) }
        let child = try await client.start(server.url("/a.bin"), world.folder, in: world)
        let isTold = await eventually { lines(child.output).contains("waiting retry") || !child.isRunning } && child.isRunning
        try #require(isTold, "\(client.packages): “\(child.output)” \(child.errors)")
        let path = try #require(try await running.client.list().first)
        // A client that comes later says it, too.
        let later = try await client.start("--again", server.url("/a.bin"), in: world)
        #expect(await eventually { later.output.contains("waiting retry\n") || !later.isRunning } && later.isRunning, "\(later.errors)")
        let cancelling = try await client.start("--cancel", server.url("/a.bin"), in: world).wait()
        #expect(cancelling.status == 0 && cancelling.output == "cancelled \(path.value)\n" && cancelling.errors == "", "\(cancelling)")
        for waiting in [child, later] {
            let exit = await waiting.wait()
            #expect(exit.status == 1 && lines(exit.output).last?.hasPrefix("failed Cancelled: ") == true, "\(exit)")
        }
        #expect(try await running.client.get(Download.state, at: path) == "cancelled")
        #expect(server.requests.count == 1 && world.files == [])
        let unknown = try await client.start("--cancel", "http://127.0.0.1:1/b", in: world).wait()
        #expect(unknown.status == 1 && unknown.output.hasPrefix("failed UnknownObject: "), "\(unknown)")
    }

    @Test(arguments: ExampleClient.tried) func `has an exit status of its own for a missing service`(client: ExampleClient) async throws {
        let world = await ServiceWorld()
        let absent = try await client.start("http://127.0.0.1:1/a", world.folder, in: world).wait()
        #expect(absent.status == 69 && absent.output.hasPrefix("failed ServiceUnknown: "), "\(client.packages): \(absent)")
        #expect(absent.output.contains(" cannot be started: ") && lines(absent.output).count == 1 && absent.errors == "", "\(absent)")
        await world.bus.makeActivatable(BusName.service, "/bin/false")
        let broken = try await client.start("--cancel", "http://127.0.0.1:1/a", in: world).wait()
        #expect(broken.status == 69 && broken.output.hasPrefix("failed ChildExited: "), "\(broken)")
        #expect(broken.output.contains(" cannot be started: ") && broken.errors == "", "\(broken)")
    }

    /// GJS 1.74 itself crashes on such an argument.
    @Test(arguments: ExampleClient.tried.filter { $0 != .javaScript }) func `refuses a folder whose name is not UTF-8`(
        client: ExampleClient
    ) async throws {
        let running = try await Running.start()
        let name = #"exec "$@" "$(printf 'caf\351')""#
        let refused = try await client.start(
            "http://127.0.0.1:1/a", prefix: ["env", "-C", running.world.folder, "sh", "-c", name, "sh"], in: running.world
        ).wait()
        let usage: [Int32] = [2, 64]  // Python's argparse has 2
        #expect(usage.contains(refused.status) && refused.output == "", "\(client.packages): \(refused)")
        #expect(refused.errors.contains("D-Bus carries only text in UTF-8\n"), "\(refused)")
        #expect(try await running.client.list() == [])
        #expect(running.world.files == [])
    }

    @Test func `in shell queues a file anew if the answer to Remove is lost`() async throws {
        let running = try await Running.start()
        let world = running.world
        let server = ScriptedServer { request, reply in
            if request.number == 0 { reply.respond(404) } else { reply.serve(body, for: request) }
        }
        #expect(try await ExampleClient.shell.start(server.url("/a.bin"), world.folder, in: world).wait().status == 1)
        // The service removes the download, and then seems to crash.
        let (folder, path) = (TemporaryFolder(), currentEnvironment()["PATH"] ?? "/usr/bin:/bin")
        let script = """
            #!/bin/sh
            PATH='\(path)'
            case "$*" in
                *.Remove*)
                    if mkdir '\(folder("lost"))' 2>/dev/null; then
                        gdbus "$@" >/dev/null || exit
                        echo 'Error: GDBus.Error:org.freedesktop.DBus.Error.NoReply: lost' >&2
                        exit 1
                    fi ;;
            esac
            exec gdbus "$@"

            """
        writeFile(folder("gdbus"), script.utf8, mode: 0o755)
        let prefix = ["env", "PATH=\(folder.path):\(path)"]
        let exit = try await ExampleClient.shell.start(server.url("/a.bin"), world.folder, prefix: prefix, in: world).wait()
        #expect(fileExists(folder("lost")))
        #expect(exit.status == 0 && lines(exit.output).last == "finished \(world.folder)/a.bin", "\(exit)")
    }

    @Test(arguments: ExampleClient.tried) func `that was killed in the middle finds its download again`(
        client: ExampleClient
    ) async throws {
        let running = try await Running.start()
        let world = running.world
        let gate = Gate()
        defer { gate.open() }
        let server = stoppingServer(gate)
        let first = try await client.start(server.url("/a.bin"), world.folder, in: world)
        try await expectProgress(first, client)
        first.signal(SIGKILL)
        #expect(await first.wait().status == 128 + SIGKILL)

        let second = try await client.start("--again", server.url("/a.bin"), in: world)
        try await expectProgress(second, client)
        gate.open()
        let exit = await second.wait()
        #expect(exit.status == 0 && exit.errors == "" && lines(exit.output).last == "finished \(world.folder)/a.bin", "\(exit)")
        #expect(!exit.output.contains("queued"))
        #expect(world.bytes("a.bin") == body)
        #expect(try await running.client.list().count == 1)
        #expect(server.requests.count == 1)
    }

    @Test(arguments: ExampleClient.tried) func `keeps waiting when the service is killed in the middle`(
        client: ExampleClient
    ) async throws {
        let world = await ServiceWorld(activation: "--idle-exit 3600")
        let gate = Gate()
        defer { gate.open() }
        let server = stoppingServer(gate)
        let child = try await client.start(server.url("/a.bin"), world.folder, in: world)
        try await expectProgress(child, client)
        let process = try #require(await world.bus.process(of: BusName.service))
        // The client calls again at once, and so starts the service: the name may have no owner for a moment only.
        kill(process, SIGKILL)
        let exit = await child.wait()
        #expect(exit.status == 0 && lines(exit.output).last == "finished \(world.folder)/a.bin", "\(exit)")
        #expect(await world.bus.process(of: BusName.service) != process)
        #expect(world.bytes("a.bin") == body)
    }

    @Test func `with the module queues a batch, fetches, finds, and calls back in a main loop`() async throws {
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

    @Test func `with the module passes integers, knows the path of a token, and waits while the service is killed`() async throws {
        let world = await ServiceWorld(activation: "--idle-exit 3600")
        let gate = Gate()
        defer { gate.open() }
        let server = stoppingServer(gate)
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

    /// A new option of the service needs a new row in the module.
    @Test func `with the module has the options of the service`() async throws {
        let running = try await Running.start()
        let program = "import sys; sys.path.insert(0, sys.argv[1]); import todoku; print(*sorted(todoku.OPTIONS), sep='\\n')"
        let environment = running.world.environment.merging(["PYTHONDONTWRITEBYTECODE": "1"]) { $1 }
        let exit = await Child.run([ExampleApp.python, "-c", program, "\(repository)/examples/python"], environment: environment)
        let supported = try await running.client.get(Manager.supportedOptions)
        #expect(lines(exit.output) == supported, "packages python3-gi: \(exit.errors)")
    }
}
