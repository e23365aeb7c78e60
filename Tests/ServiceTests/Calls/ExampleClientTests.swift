internal import DBus
internal import DownloaderInterface
internal import EventLoop
internal import Glibc
internal import TestSupport
internal import Testing

/// The lines that a client has printed.
private func lines(_ output: String) -> [String] { output.split(separator: "\n").map(String.init) }

private func isProgress(_ line: String) -> Bool { line.hasPrefix("progress ") && line.hasSuffix(" of 1000000") }

/// A service whose answer to `Cancel` is lost. The client gets the error that the bus sends for a service that is killed during the call.
@BusActor private final class LosingService: ObjectTree {
    private static let face = Face<LosingService>(
        Download.interface, xml: { InterfaceXML.element(of: Download.interface) },
        methods: [
            Row(Download.cancel) { service, _, _ in
                service.cancels += 1
                throw DBusError("org.freedesktop.DBus.Error.NoReply", "it was killed")
            }
        ])

    private let connection: Connection
    private(set) var cancels = 0

    init(on address: String) throws {
        connection = try Connection.open(address: address)
        connection.export(self)
        guard try connection.requestName(BusName.service) else { throw DBusError.failed("\(BusName.service) has an owner") }
    }

    func faces(at path: String, for caller: CallerIdentity) -> [BoundFace]? {
        path.hasPrefix("\(BusName.tokensPath)/") ? [Self.face.of(self)] : nil
    }
    func children(of path: String, limit: Int, for caller: CallerIdentity) -> [String] { [] }
}

@Suite(.timeLimit(.minutes(10))) struct `An example client` {
    private let body = ExampleClient.body

    private func expectProgress(_ child: Child, _ client: ExampleClient) async throws {
        let isTold = await eventually { lines(child.output).contains(where: isProgress) || !child.isRunning } && child.isRunning
        try #require(isTold, "\(client.packages): “\(child.output)” \(child.errors)")
    }

    @Test(arguments: ExampleClient.tried) func `downloads a file in place of an older one, and says where it is`(
        client: ExampleClient
    ) async throws {
        let running = try await Running.start()
        let world = running.world
        writeFile("\(world.folder)/a.bin", "old".utf8)
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
        #expect(world.bytes("a.bin") == body && world.files == ["a.bin"])
        // What the service has recorded of the call: a line for each option.
        let recorded = await world.run("sqlite3", "-readonly", "\(world.state)/todoku.db", "SELECT options FROM download")
        let options = ["app=org.example.\(client.rawValue)Client", "if-exists=replace"]
        #expect(Set(lines(recorded.output)).isSuperset(of: options), "\(recorded)")
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

    /// Not the client with dasbus, which first asks the stopped service for its methods. The next test is for that client.
    @Test(arguments: ExampleClient.tried.filter { $0 != .dasbus }) func `calls Cancel once, also if the answer is lost`(
        client: ExampleClient
    ) async throws {
        let world = await ServiceWorld(activation: "--idle-exit 3600")
        let monitor = Child(["dbus-monitor", "--session", "--profile"], environment: world.environment)
        #expect(await eventually { monitor.output.contains("NameLost") })
        #expect(try await world.client().list() == [])  // starts the service
        let process = try #require(await world.bus.process(of: BusName.service))
        kill(process, SIGSTOP)
        let child = try await client.start("--cancel", "http://127.0.0.1:1/a", in: world)
        #expect(await eventually { Trace(monitor.output).calls("Cancel").count == 1 || !child.isRunning } && child.isRunning)
        kill(process, SIGKILL)
        let exit = await child.wait()
        #expect(exit.status != 0 && exit.output.hasPrefix("failed NoReply: "), "\(client.packages): \(exit)")
        // A second call would start the service.
        #expect(await world.bus.process(of: BusName.service) == nil)
    }

    @Test func `with dasbus calls Cancel once, also if the answer is lost`() async throws {
        let world = await ServiceWorld()
        let service = try await LosingService(on: world.bus.address)
        let exit = try await ExampleClient.dasbus.start("--cancel", "http://127.0.0.1:1/a", in: world).wait()
        #expect(exit.status == 1 && exit.output.hasPrefix("failed NoReply: ") && exit.errors == "", "packages python3-dasbus: \(exit)")
        #expect(await service.cancels == 1)
    }

    /// GJS 1.74 itself crashes on such an argument. The test after this one is for the client in JavaScript.
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

    /// The name is that of the working folder, or an argument: on such an argument, GJS 1.74 itself ends before it runs the client.
    @Test func `in JavaScript queues nothing for a folder whose name is not UTF-8`() async throws {
        let running = try await Running.start()
        let name = #"name=$(printf 'caf\351') && mkdir -p "$name" && cd "$name" && "#
        for (command, isClient) in [(#"exec "$@" sub"#, true), (#"exec "$@" "$name""#, false)] {
            let exit = try await ExampleClient.javaScript.start(
                "http://127.0.0.1:1/a", prefix: ["env", "-C", running.world.folder, "sh", "-c", name + command, "sh"], in: running.world
            ).wait()
            #expect(isClient ? exit.status == 64 : exit.status != 0, "package gjs: \(exit)")
            #expect(exit.output == "" && exit.errors.contains("D-Bus carries only text in UTF-8\n") == isClient, "\(exit)")
            #expect(try await running.client.list() == [])
        }
    }

    /// The test before this one is for the client in JavaScript.
    @Test(arguments: ExampleClient.tried.filter { $0 != .javaScript })
    func `refuses a relative folder if the name of the working folder is not UTF-8`(client: ExampleClient) async throws {
        let running = try await Running.start()
        let inside = #"name=$(printf 'caf\351') && mkdir "$name" && cd "$name" && exec "$@" sub"#
        let refused = try await client.start(
            "http://127.0.0.1:1/a", prefix: ["env", "-C", running.world.folder, "sh", "-c", inside, "sh"], in: running.world
        ).wait()
        let usage: [Int32] = [2, 64]  // Python's argparse has 2
        #expect(usage.contains(refused.status) && refused.output == "", "\(client.packages): \(refused)")
        #expect(refused.errors.contains("D-Bus carries only text in UTF-8\n"), "\(refused)")
        #expect(try await running.client.list() == [])
    }

    @Test func `in shell queues a file anew if the answer to Remove is lost`() async throws {
        let running = try await Running.start()
        let world = running.world
        let server = ScriptedServer { request, reply in
            if request.number == 0 { reply.respond(404) } else { reply.serve(body, for: request) }
        }
        #expect(try await ExampleClient.shell.start(server.url("/a.bin"), world.folder, in: world).wait().status == 1)
        // The service removes the download, and then seems to crash.
        let (folder, path) = (TemporaryFolder(), processEnvironment()["PATH"] ?? "/usr/bin:/bin")
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

    @Test func `in C queues a file anew if the service is killed before it tells the state of the former download`() async throws {
        let world = await ServiceWorld(activation: "--idle-exit 3600")
        let server = ScriptedServer { request, reply in
            if request.number == 0 { reply.respond(404) } else { reply.serve(body, for: request) }
        }
        #expect(try await ExampleClient.glib.start(server.url("/a.bin"), world.folder, in: world).wait().status == 1)
        let monitor = Child(["dbus-monitor", "--session", "--profile"], environment: world.environment)
        #expect(await eventually { monitor.output.contains("NameLost") })
        let process = try #require(await world.bus.process(of: BusName.service))
        kill(process, SIGSTOP)
        let child = try await ExampleClient.glib.start(server.url("/a.bin"), world.folder, in: world)
        func isAsked() -> Bool { ["Get", "GetAll"].contains { !Trace(monitor.output).calls($0).isEmpty } }
        #expect(await eventually { isAsked() || !child.isRunning } && child.isRunning)
        kill(process, SIGKILL)
        let exit = await child.wait()
        #expect(exit.status == 0 && lines(exit.output).last == "finished \(world.folder)/a.bin", "\(exit)")
    }

    @Test(arguments: ExampleClient.tried) func `that was killed in the middle finds its download again`(
        client: ExampleClient
    ) async throws {
        let running = try await Running.start()
        let world = running.world
        let gate = Gate()
        defer { gate.open() }
        let server = ExampleClient.stoppingServer(gate)
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
        let server = ExampleClient.stoppingServer(gate)
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
}
