import DBus
import DownloaderInterface
import EventLoop
import Glibc
import PushInterface
import TestSupport
import Testing

@Suite(.timeLimit(.minutes(10))) struct `What todoku-push holds` {
    @Test func `is bounded: a message beyond 64 that wait is refused`() async throws {
        // Nothing can be fetched, so all wait.
        let world = try await PushWorld(hasService: false)
        let distributor = await world.distributor(versions: [1])
        let file = await Served()
        _ = try await world.register()
        let token = await distributor.token()
        for number in 0..<66 {
            let message = file.message(["url": "\"\(file.server.url("/\(number)"))\""])
            try await world.connection.call(
                UnifiedPush.Version1.message, on: Push.busName, at: UnifiedPush.connectorPath,
                (token, Array(message.utf8), "\(number)"), timeout: .seconds(60))
        }
        #expect(try await world.entry()["waiting"] == .uint32(64))
        #expect(try await world.refused() == ["full": 2])
        #expect(world.messageFiles.count == 64)
        await world.kill()
        let service = try await ServiceStandIn(world)
        await service.silence()
        #expect(try await world.entry()["waiting"] == .uint32(64))
        // With the registration, its messages go: once the service has removed their downloads.
        try await world.call(Push.unregister, (PushWorld.app, "picture"))
        #expect(await eventually { world.messageFiles.isEmpty })
        #expect(await Set(service.removed).count == 64)
    }

    @Test func `is asked of the service as the registration allows`() async throws {
        let world = try await PushWorld(hasService: false)
        let service = try await ServiceStandIn(world)
        let distributor = await world.distributor()
        let app = try await AppStandIn(world)
        let file = await Served()
        let registration = try await world.registered(
            "picture",
            [
                "types": .strings(["image/*"]), "max-size": .uint64(200_000), "filename": .string("today.png"),
                "if-exists": .string("replace"), "allow-private": .bool(true),
            ])
        await world.send(file.message(), to: registration)
        #expect(await app.wasCalled())
        let calls = await app.calls
        #expect(calls.map(\.result) == ["no-data"] && calls.map(\.path) == ["/the/path"])
        let fetch = try #require(await service.fetches.first)
        #expect(fetch.url == file.url)
        var options = fetch.options
        #expect(options.removeValue(forKey: "token")?.string?.hasPrefix("push_") == true)
        let deadline = options.removeValue(forKey: "deadline")?.uint64 ?? 0
        #expect((3_500_000...3_600_000).contains(deadline))
        #expect(
            options == [
                "app": .string(PushWorld.app), "tag": .string("push"), "checksum": .string("sha256:\(file.sha256)"),
                "size": .uint64(UInt64(file.bytes.count)), "max-size": .uint64(200_000), "expect-type": .string("image/*"),
                "directory": .string(world.folder), "filename": .string("today.png"), "if-exists": .string("replace"),
                "allow-metered": .bool(false), "allow-private": .bool(true), "priority": .int32(-1), "notify": .string("never"),
                "show-progress": .bool(false),
            ])
        // A full disk of the service's is no end.
        await service.setError(DBusError("org.todoku.Error.Storage", "full"))
        await world.send(file.message(), to: registration)
        #expect(await eventually { await service.fetches.count == 2 })
        await world.kill()
        await service.setError(nil)
        _ = try await world.entry()
        #expect(await app.wasCalled(2))
        let fetches = await service.fetches
        #expect(fetches.count == 3 && fetches[1].options == fetches[2].options)
        _ = distributor
    }

    @Test func `is not harmed by values of any type, or by their size`() async throws {
        let world = try await PushWorld()
        let distributor = await world.distributor(versions: [2])
        _ = try await world.register()
        let token = await distributor.token()
        let process = await world.bus.process(of: Push.busName)
        let values: [Variant] = [
            .byte(255), .bool(true), .int16(.min), .uint16(.max), .int32(.min), .uint32(.max), .int64(.min), .uint64(.max), .double(.nan),
            .string(""), .string(String(repeating: "é", count: 200_000)), .string("\u{202e}\n\u{1b}"), .objectPath(ObjectPath("/")),
            .signature("a{sv}"), .strings([]), .strings(Array(repeating: "x", count: 10_000)), .dictionary(["a": .bool(true)]),
            .structure([.byte(1)]), .variant(.variant(.byte(1))), .array(of: "y", Array(repeating: .byte(1), count: 100_000)),
            .array(of: "y", []),
        ]
        let keys = [
            "hosts", "max-size", "types", "directory", "filename", "if-exists", "allow-metered", "allow-private", "activate", "vapid", "x",
        ]
        for value in values {
            for key in keys {
                _ = await world.error(Push.register, (PushWorld.app, "hostile", world.options([key: value])))
            }
            for key in ["token", "message", "id", "endpoint"] {
                let arguments = ["token": Variant.string(token)].merging([key: value]) { $1 }
                for method in [UnifiedPush.Version2.message, UnifiedPush.Version2.newEndpoint, UnifiedPush.Version2.unregistered] {
                    _ = await world.connectorError(method, arguments)
                }
            }
            if let text = value.string {
                _ = await world.error(Push.register, (text, text, world.options()))
                _ = await world.error(Push.unregister, (text, text))
                _ = await world.error(Push.list, text)
                _ = await world.setError(text)
                _ = await world.connectorError(UnifiedPush.Version1.message, (text, Array(text.utf8), text))
                _ = await world.connectorError(UnifiedPush.Version1.newEndpoint, (token, text))
            }
        }
        #expect(await world.bus.process(of: Push.busName) == process && process != nil)
        // The endpoint is what it was, if the distributor says so at the next start.
        await world.kill()
        _ = try await world.entry()
        #expect(try await eventually { try await world.entry()["version"] == .uint32(2) })
    }

    /// The stopped bus keeps the program waiting for its answer, so nothing receives the signal before the bus ends.
    @Test func `ends by a signal without an error, although its bus ends before it has connected`() async throws {
        let world = try await PushWorld(hasService: false)
        world.bus.signal(SIGSTOP)
        let program = Child([PushWorld.program], environment: world.bus.environment)
        #expect(await eventually { isBlocked(SIGTERM, in: program.pid) })
        program.signal(SIGTERM)
        world.bus.signal(SIGKILL)
        let exit = await program.wait()
        #expect(exit.status == 0 && exit.errors == "", "\(exit)")
    }

    /// The first file or socket that a program opens gets the number of a stream that is closed.
    @Test func `is apart from its log if standard error is closed`() async throws {
        let world = try await PushWorld(hasService: false)
        let program = Child(["sh", "-c", #"exec "$@" 2>&-"#, "sh", PushWorld.program], environment: world.bus.environment)
        #expect(await world.bus.waitForOwner(Push.busName))
        #expect(openFile(STDERR_FILENO, of: program.pid) == "/dev/null")
        #expect(await program.stop().status == 0)
    }

    @Test func `ends when it is told to, and starts again`() async throws {
        let world = try await PushWorld()
        _ = try await world.register()
        #expect(await world.bus.end(Push.busName, by: SIGTERM))
        #expect(try await world.call(Push.list, "").count == 1)
        let second = await Child.run([PushWorld.program], environment: world.bus.environment)
        #expect(second.status == 2)
        for (arguments, status) in [
            (["--version"], 0), (["--help"], 0), (["--idle-exit", "0"], 64), (["--nothing"], 64), (["--log-level", "loud"], 64),
            (["--if-registered"], 0),
        ] as [([String], Int32)] {
            #expect(await Child.run([PushWorld.program] + arguments, environment: world.bus.environment).status == status, "\(arguments)")
        }
    }
}

/// A download service that only records what it is asked for.
@BusActor final class ServiceStandIn: ObjectTree {
    private static let face = Face<ServiceStandIn>(
        Manager.interface, xml: { "" },
        methods: [
            Row(Manager.fetch) { service, arguments, reply in
                service.fetches.append((arguments.0, arguments.1))
                if service.isSilent { return service.unanswered.append(reply) }
                if let error = service.error { reply.fail(error) } else { reply(("no-data", "/the/path")) }
            }
        ])
    private static let downloadFace = Face<RemovalRecord>(
        Download.interface, xml: { "" },
        methods: [
            Row(Download.remove) { record, _, reply in
                guard let service = record.service else { return }
                service.removed.append(record.path)
                if let error = service.removalError { return reply.fail(error) }
                if service.holdsRemovals { service.heldRemovals.append(reply) } else { reply() }
            }
        ],
        properties: [
            PropertyRow(Download.state) { record in
                guard let service = record.service else { return "" }
                service.descriptions += 1
                return service.state
            },
            PropertyRow(Download.endedAt) { _ in 1 },
        ])

    /// One download; any is there, in the state `state`.
    @BusActor final class RemovalRecord {
        fileprivate weak var service: ServiceStandIn?
        fileprivate let path: String
        fileprivate init(_ service: ServiceStandIn, _ path: String) { (self.service, self.path) = (service, path) }
    }

    private let connection: Connection
    private(set) var fetches: [(url: String, options: [String: Variant])] = []
    /// Object paths of downloads.
    private(set) var removed: [String] = []
    /// How often the state of a download was asked for.
    private(set) var descriptions = 0
    /// The state of all downloads. Finished ones ended long ago.
    var state = "finished"
    private var heldRemovals: [DBus.Reply<Void>] = []
    private var holdsRemovals = false
    private var removalError: DBusError?
    private var error: DBusError?
    private var isSilent = false
    private var unanswered: [DBus.Reply<(String, String)>] = []

    init(_ world: PushWorld) throws {
        connection = try Connection.open(address: world.bus.address)
        connection.export(self)
        guard try connection.requestName(BusName.service) else { throw DBusError.failed("\(BusName.service) has an owner") }
    }

    func setError(_ error: DBusError?) { self.error = error }
    /// Answers nothing from now on, as while a download waits for a network.
    func silence() { isSilent = true }
    /// From now on, removals are not answered; or all are, and so are those that wait.
    func holdRemovals(_ isHeld: Bool) {
        holdsRemovals = isHeld
        guard !isHeld else { return }
        for reply in heldRemovals { reply() }
        heldRemovals = []
    }
    /// Refuses all removals from now on; nil: none.
    func refuseRemovals(_ error: DBusError?) { removalError = error }
    /// Ends the silence with an error for those who wait.
    func speak(_ error: DBusError) {
        isSilent = false
        for reply in unanswered { reply.fail(error) }
        unanswered = []
    }
    /// The service ends and starts again.
    func restart() throws {
        try connection.releaseName(BusName.service)
        guard try connection.requestName(BusName.service) else { throw DBusError.failed("\(BusName.service) has an owner") }
    }

    func faces(at path: String, for caller: CallerIdentity) -> [BoundFace]? {
        path == BusName.managerPath.value ? [Self.face.of(self)] : [Self.downloadFace.of(RemovalRecord(self, path))]
    }
    func children(of path: String, limit: Int, for caller: CallerIdentity) -> [String] { [] }
}
