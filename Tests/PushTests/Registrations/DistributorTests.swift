import DBus
import DownloadModel
import DownloaderInterface
import EventLoop
import Glibc
import PushInterface
import TestSupport
import Testing

@testable import PushService

@Suite(.timeLimit(.minutes(10))) struct `A distributor` {
    @Test func `that is not there is waited for at no cost, and found when it appears`() async throws {
        let world = try await PushWorld(idleExit: 1)
        let registration = try await world.register()
        #expect(registration["endpoint"] == .string("") && registration["version"] == .uint32(0))
        #expect(registration["problem"]?.string?.contains("no distributor") == true)
        // Nothing waits: the program exits.
        #expect(await world.bus.waitForOwner(Push.busName, present: false))
        let distributor = await world.distributor()
        // At login it registers, and exits again.
        let login = Child([PushWorld.program, "--if-registered", "--idle-exit", "1"], environment: world.bus.environment)
        #expect(await eventually { distributor.output.contains("delivered NewEndpoint") })
        #expect(await login.wait().status == 0)
        let app = try await AppStandIn(world)
        let file = await Served()
        let entry = try await world.entry()
        #expect(entry["endpoint"]?.string?.hasPrefix("http://127.0.0.1:") == true)
        // The message starts it again.
        #expect(await world.bus.waitForOwner(Push.busName, present: false))
        await world.send(file.message(), to: entry)
        #expect(await app.wasCalled())
        #expect(await app.calls.map(\.result) == ["new-data"])
    }

    @Test func `that appears while the program runs gets the registrations`() async throws {
        let world = try await PushWorld()
        let changes = Changes()
        await changes.follow(world.connection)
        _ = try await world.register()
        _ = try await world.register("second")
        let distributor = await world.distributor(versions: [1])
        #expect(await changes.has(2))
        #expect(await changes.names.sorted() == ["picture", "second"])
        #expect(try await world.entry()["version"] == .uint32(1))
        #expect(await eventually { Set(distributor.lines("register 1")).count == 2 })
        // It starts anew, and gets the same tokens.
        let tokens = Set(distributor.lines("register 1"))
        await distributor.stop()
        let again = await world.distributor(versions: [1])
        #expect(await changes.has(4))
        #expect(await eventually { Set(again.lines("register 1")) == tokens })
    }

    @Test func `that the bus can start is started`() async throws {
        let name = "org.unifiedpush.Distributor.test"
        let world = try await PushWorld(names: [name: "\(repository)/Tests/Hosts/unifiedpush-distributor test 2"])
        #expect(await world.bus.hasOwner(name) == false)
        // Its start may take longer than `Register` waits.
        let registration = try await world.registered()
        #expect(registration["version"] == .uint32(2), "\(registration)")
        #expect(await world.bus.end(name, by: SIGTERM))
    }

    @Test func `gets the same tokens at each start`() async throws {
        let world = try await PushWorld()
        let distributor = await world.distributor(versions: [2])
        let first = try await world.registered()
        await world.kill()
        #expect(try await world.register() == first)
        #expect(await eventually { distributor.lines("register 2").count >= 2 })
        #expect(Set(distributor.lines("register 2")).count == 1)
        #expect(distributor.lines("unregister").isEmpty)
    }

    @Test func `is asked once by two calls for one registration`() async throws {
        let world = try await PushWorld()
        let distributor = await world.distributor(versions: [2])
        // Below, the distributor is stopped. It would give no endpoint to a registration that begins and ends during the stop.
        _ = try await world.registered("earlier")
        distributor.signal(SIGSTOP)
        let (connection, arguments) = (world.connection, (PushWorld.app, "picture", world.options()))
        let both = (0..<2).map { _ in
            Task { @BusActor in
                try await connection.call(Push.register, on: Push.busName, at: Push.path, arguments, timeout: .seconds(60))
            }
        }
        #expect(try await eventually { try await world.call(Push.list, PushWorld.app).count == 2 })
        // Its answer says that both were saved, and wait for the distributor.
        try await world.call(Push.unregister, (PushWorld.app, "earlier"))
        distributor.signal(SIGCONT)
        #expect(try await both[0].value == both[1].value)
        // What would be asked once more comes before this.
        _ = try await world.register("later")
        #expect(await eventually { Set(distributor.lines("endpoint ").map { $0.split(separator: " ")[1] }).count == 3 })
        let tokens = distributor.lines("register 2").map { String($0.split(separator: " ")[2]) }
        #expect(tokens.count == 3, "\(tokens)")
    }

    @Test(arguments: [1, 2]) func `may change an endpoint`(version: Int) async throws {
        let world = try await PushWorld()
        let distributor = await world.distributor(versions: [version])
        let changes = Changes()
        await changes.follow(world.connection)
        let registration = try await world.registered()
        // The signal of the first endpoint may come after the answer.
        #expect(await changes.has(1))
        distributor.signal(SIGUSR1)
        #expect(await changes.has(2))
        let entry = try await world.entry()
        #expect(entry["endpoint"] != registration["endpoint"] && entry["public-key"] == registration["public-key"])
        await world.kill()
        #expect(try await world.entry()["endpoint"] == entry["endpoint"])
        let app = try await AppStandIn(world)
        let file = await Served()
        await world.send(file.message(), to: entry)
        #expect(await app.wasCalled())
    }

    @Test func `may end a registration, which is made again at the next start`() async throws {
        let world = try await PushWorld()
        let distributor = await world.distributor()
        let changes = Changes()
        await changes.follow(world.connection)
        _ = try await world.register()
        #expect(await changes.has(1))
        distributor.signal(SIGUSR2)
        #expect(await changes.has(2))
        let entry = try await world.entry()
        #expect(entry["endpoint"] == .string("") && entry["problem"] == .string("the distributor ended the registration"))
        await world.kill()
        #expect(try await world.registered()["endpoint"] != .string(""))
    }

    @Test(arguments: [1, 2]) func `may refuse a registration, and its reason is told`(version: Int) async throws {
        let world = try await PushWorld()
        let distributor = await world.distributor(versions: [version])
        distributor.signal(SIGHUP)
        #expect(await eventually { distributor.output.contains("refusing") })
        #expect(try await world.register()["endpoint"] == .string(""))
        let reason = version == 1 ? "full" : "VAPID_REQUIRED"
        let problem = "the distributor org.unifiedpush.Distributor.test refused the registration: \(reason)"
        // `Register` waits for 10 seconds, and a busy distributor may answer later.
        #expect(try await eventually { try await world.entry()["problem"] == .string(problem) })
    }

    @Test func `that refused a registration is waited for during ten seconds by the next call, too`() async throws {
        let world = try await PushWorld()
        let distributor = await world.distributor(versions: [2])
        distributor.signal(SIGHUP)
        #expect(await eventually { distributor.output.contains("refusing") })
        let first = ContinuousClock.now
        _ = try await world.register()
        #expect(try await eventually { try await world.entry()["problem"]?.string?.contains("refused") == true })
        // The first call began more than three seconds ago. If the second call shared its ten seconds, it would wait for less than ten.
        distributor.signal(SIGSTOP)
        #expect(await eventually { ContinuousClock.now - first > .seconds(3) })
        let second = ContinuousClock.now
        #expect(try await world.register()["endpoint"] == .string(""))
        #expect(ContinuousClock.now - second >= .seconds(10))
        distributor.signal(SIGCONT)
    }

    @Test func `is the user's choice if there are several`() async throws {
        let world = try await PushWorld()
        let (one, other) = (await world.distributor("one"), await world.distributor("other", versions: [1]))
        let registration = try await world.register()
        #expect(registration["problem"]?.string?.contains("there are several distributors") == true)
        let names = try await world.connection.call(
            Standard.get, on: Push.busName, at: Push.path, (Push.interface, Push.distributors.name), timeout: .seconds(60))
        #expect(names == .strings(["org.unifiedpush.Distributor.one", "org.unifiedpush.Distributor.other"]))
        let changes = Changes()
        await changes.follow(world.connection)
        func choose(_ name: String) async throws {
            try await world.connection.call(
                Standard.set, on: Push.busName, at: Push.path, (Push.interface, Push.distributor.name, .string(name)),
                timeout: .seconds(60))
        }
        try await choose("org.unifiedpush.Distributor.one")
        #expect(await changes.has(1))
        #expect(try await world.entry()["version"] == .uint32(2))
        // Another choice moves the registrations, also over a restart.
        try await choose("org.unifiedpush.Distributor.other")
        #expect(await changes.has(3))  // the old endpoint ended, the new one came
        #expect(try await world.entry()["version"] == .uint32(1))
        #expect(await eventually { one.lines("unregister 2").count == 1 })
        // A call of a distributor after the kill would start the program again.
        #expect(await eventually { one.output.contains("delivered Unregistered") }, "\(one.output)")
        await world.kill()
        #expect(try await world.entry()["version"] == .uint32(1))
        #expect(await eventually { other.lines("register 1").count >= 2 })
        for name in ["ntfy", "org.unifiedpush.Distributor.", "org.unifiedpush.Distributor.a b", "org.unifiedpush.Distributor.1"] {
            #expect(await world.setError(name)?.name == "org.todoku.Error.InvalidOption", "\(name)")
        }
    }

    @Test func `whose choice cannot be saved gets no registration, not even after a restart`() async throws {
        let world = try await PushWorld()
        let (one, other) = ("org.unifiedpush.Distributor.one", "org.unifiedpush.Distributor.other")
        let (present, refused) = (await world.distributor("one"), await world.distributor("other"))
        #expect(await world.setError(one) == nil)
        let registration = try await world.registered()
        // A folder in the way of the file, as a full disk.
        let obstacle = "\(world.state)/.new-settings"
        #expect(mkdir(obstacle, 0o700) == 0)
        // The second choice may come while the first is being saved.
        async let first = world.setError(other)
        async let second = world.setError("org.unifiedpush.Distributor.third")
        let errors = await [first, second]
        #expect(errors.map { $0?.name } == ["org.todoku.Error.Storage", "org.todoku.Error.Storage"])
        #expect(rmdir(obstacle) == 0)
        // What could not be saved before is saved with this registration.
        _ = try await world.registered("second")
        await world.kill()
        let chosen = try await world.connection.call(
            Standard.get, on: Push.busName, at: Push.path, (Push.interface, Push.distributor.name), timeout: .seconds(60))
        #expect(chosen == .string(one))
        #expect(try await world.registered() == registration)
        #expect(refused.lines("register").isEmpty && present.lines("unregister").isEmpty)
    }

    @Test func `gets the key of the app's server`() async throws {
        let world = try await PushWorld()
        let distributor = await world.distributor(versions: [2])
        let key = "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4"
        _ = try await world.register("picture", ["vapid": .string(key)])
        #expect(await eventually { distributor.lines("register 2").last?.hasSuffix(" \(key)") == true })
    }

    /// A distributor must ignore a call with a longer description (UnifiedPush, “Resources”).
    @Test(arguments: [1, 2])
    func `gets a description of at most 100 bytes, with the whole name of the registration`(version: Int) async throws {
        let world = try await PushWorld()
        let distributor = await world.distributor(versions: [version])
        let (app, name) = ("org.example." + String(repeating: "a", count: 200), String(repeating: "n", count: 64))
        _ = try await world.call(Push.register, (app, name, world.options()))
        #expect(await eventually { distributor.lines("description ").contains("description \(app.prefix(34)): \(name)") })
        _ = try await world.register()
        #expect(await eventually { distributor.lines("description ").contains("description \(PushWorld.app): picture") })
    }

    @Test func `is told whole characters of an id`() {
        let key = RegistrationKey(app: String(repeating: "é", count: 60), name: "n")
        #expect(key.shortDescription == String(repeating: "é", count: 48) + ": n")
    }

    @Test func `gets another key of the app's server`() async throws {
        let world = try await PushWorld()
        let distributor = await world.distributor(versions: [2])
        let key = "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4"
        _ = try await world.register()
        _ = try await world.register("picture", ["vapid": .string(key)])
        #expect(await eventually { distributor.lines("register 2").last?.hasSuffix(" \(key)") == true })
        #expect(Set(distributor.lines("register 2").map { $0.split(separator: " ")[2] }).count == 1)
    }

    @Test func `that had a registration before does not take it back`() async throws {
        let world = try await PushWorld()
        let distributor = await world.distributor(versions: [1])
        let endpoint = try await world.registered()["endpoint"]
        let token = await distributor.token()
        let other = "https://former.example/"
        #expect(await world.connectorError(UnifiedPush.Version1.newEndpoint, (token, other))?.name == "org.todoku.Error.NoSuchObject")
        let second: [String: Variant] = ["token": .string(token), "endpoint": .string(other)]
        #expect(await world.connectorError(UnifiedPush.Version2.newEndpoint, second)?.name == "org.todoku.Error.NoSuchObject")
        #expect(try await world.entry()["endpoint"] == endpoint && endpoint != .string(""))
    }

    @Test func `that is the only one left gets the registrations`() async throws {
        let world = try await PushWorld()
        let (one, other) = (await world.distributor("one"), await world.distributor("other"))
        let registration = try await world.register()
        #expect(registration["problem"]?.string?.contains("there are several distributors") == true)
        await one.stop()
        #expect(await eventually { !other.lines("register 2").isEmpty })
        #expect(try await eventually { try await world.entry()["endpoint"] != .string("") })
    }

    /// The bus tells that a name has gone before it answers the calls to it.
    @Test func `that is the only one left gets the registrations that the other was asked for and did not answer`() async throws {
        let world = try await PushWorld()
        let one = await world.distributor("one")
        one.signal(SIGSTOP)
        #expect(try await world.register()["endpoint"] == .string(""))
        let other = await world.distributor("other")
        one.signal(SIGKILL)
        #expect(await eventually { !other.lines("register 2").isEmpty })
        #expect(try await eventually { try await world.entry()["endpoint"] != .string("") })
    }

    /// A registration whose distributor is stopped, and has not answered in time.
    private func makeLateDistributor() async throws -> (PushWorld, Child) {
        let world = try await PushWorld()
        let distributor = await world.distributor(versions: [2])
        distributor.signal(SIGSTOP)
        #expect(try await world.register()["endpoint"] == .string(""))
        // Its answer is waited for during 30 seconds.
        #expect(
            try await eventually(within: .seconds(120)) { try await world.entry()["problem"]?.string?.contains("refused") == true })
        return (world, distributor)
    }

    @Test func `that answers too late, but gives an endpoint, is told of the end of the registration`() async throws {
        let (world, distributor) = try await makeLateDistributor()
        distributor.signal(SIGCONT)
        #expect(try await eventually { try await world.entry()["endpoint"] != .string("") })
        try await world.call(Push.unregister, (PushWorld.app, "picture"))
        let token = await distributor.token()
        #expect(await eventually { distributor.lines("unregister 2 \(token)").count == 1 })
    }

    @Test func `that does not answer in time is told of the end of the registration, also before it gives an endpoint`() async throws {
        let (world, distributor) = try await makeLateDistributor()
        try await world.call(Push.unregister, (PushWorld.app, "picture"))
        distributor.signal(SIGCONT)
        #expect(await eventually { distributor.lines("unregister 2").count == 1 })
        #expect(distributor.lines("register 2").count == 1)
    }

    /// The bus says who owns the distributor's name after another one was chosen.
    @Test @BusActor func `that is no longer chosen gives no endpoint, though it was when it called`() async throws {
        let (world, folder) = (try await PushWorld(hasService: false), TemporaryFolder("todoku-push-store"))
        let other = "org.unifiedpush.Distributor.other"
        let connection = try Connection.open(address: world.bus.address)
        defer { withExtendedLifetime(connection) {} }
        #expect(try connection.requestName(other))
        let call = try await EndpointCall(world, folder)
        await call.link.begin(telling: call)
        #expect(await eventually { call.link.problems.values.contains { $0.contains("refused") } })
        world.bus.signal(SIGSTOP)
        BusActor.spawn { await call.giveEndpoint() }
        // The call waits for the bus after its first turn.
        for _ in 0..<5 { await withCheckedContinuation { continuation in BusActor.spawn { continuation.resume() } } }
        call.link.choose(other)
        world.bus.signal(SIGCONT)
        #expect(await eventually { call.hasEnded })
        #expect(call.error?.name == .noSuchObject)
        #expect(call.registration?.endpoint == "" && call.registration?.distributor != EndpointCall.distributor)
    }

    @Test @BusActor func `that gives an endpoint is on record, though it refused the registration before`() async throws {
        let (world, folder) = (try await PushWorld(hasService: false), TemporaryFolder("todoku-push-store"))
        let call = try await EndpointCall(world, folder)
        await call.link.begin(telling: call)
        #expect(await eventually { call.link.problems.values.contains { $0.contains("refused") } })
        #expect(call.registration?.distributor == "")
        await call.giveEndpoint()
        #expect(call.error == nil)
        #expect(call.registration?.endpoint == EndpointCall.endpoint && call.registration?.distributor == EndpointCall.distributor)
    }

    @Test func `that crashes is not started for ever`() async throws {
        let name = "org.unifiedpush.Distributor.test"
        let world = try await PushWorld(
            idleExit: 1, names: [name: "\(repository)/Tests/Hosts/unifiedpush-distributor test 2 crash"])
        #expect(try await world.register()["endpoint"] == .string(""))
        // `Register` may have answered before the distributor had started, and crashed.
        #expect(try await eventually { try await world.entry()["problem"]?.string?.contains("refused") == true })
        // An idle program ends: nothing is tried any more.
        #expect(await world.bus.waitForOwner(Push.busName, present: false))
    }

    /// More than are made at a time: each call starts the distributor, whose appearance must not make the others again and again.
    @Test func `that crashes at each of many registrations is not started for ever`() async throws {
        let world = try await PushWorld(idleExit: 1)
        for number in 0..<20 { _ = try await world.register("n\(number)") }
        await world.kill()
        await world.bus.makeActivatable(
            "org.unifiedpush.Distributor.test", "\(repository)/Tests/Hosts/unifiedpush-distributor test 2 crash")
        // The distributor is started several times, one time after the other.
        let limit: Duration = .seconds(180)
        #expect(try await eventually(within: limit) { try await world.entry("n19")["problem"]?.string?.contains("refused") == true })
        #expect(await world.bus.waitForOwner(Push.busName, present: false, within: limit))
    }

    @Test func `that calls with an unknown token is told so`() async throws {
        let world = try await PushWorld()
        for (method, error) in [
            (await world.connectorError(UnifiedPush.Version1.message, ("x", [1], "id")), "org.todoku.Error.NoSuchObject"),
            (await world.connectorError(UnifiedPush.Version1.newEndpoint, ("x", "https://a.example/")), "org.todoku.Error.NoSuchObject"),
            (await world.connectorError(UnifiedPush.Version2.message, [:]), "org.freedesktop.DBus.Error.InvalidArgs"),
            (
                await world.connectorError(UnifiedPush.Version2.message, ["token": .string("x"), "message": .uint32(1)]),
                "org.freedesktop.DBus.Error.InvalidArgs"
            ),
            (
                await world.connectorError(UnifiedPush.Version2.message, ["token": .string("x"), "message": .string("é")]),
                "org.todoku.Error.NoSuchObject"
            ),
            (await world.connectorError(UnifiedPush.Version1.unregistered, ""), nil),
        ] { #expect(method?.name == error, "\(method?.message ?? "")") }
    }
}

extension PushWorld {
    func setError(_ name: String) async -> DBusError? {
        do {
            try await connection.call(
                Standard.set, on: Push.busName, at: Push.path, (Push.interface, Push.distributor.name, .string(name)),
                timeout: .seconds(60))
            return nil
        } catch { return error }
    }

    func connectorError<In: Sendable, Out: Sendable>(_ method: MethodOf<In, Out>, _ arguments: In) async -> DBusError? {
        do {
            _ = try await connection.call(
                method, on: Push.busName, at: UnifiedPush.connectorPath, arguments, timeout: .seconds(60))
            return nil
        } catch { return error }
    }
}

/// A distributor that refuses a registration of this process, because it has no interface, and its call that gives an endpoint.
@BusActor private final class EndpointCall: EndpointObserver {
    nonisolated static let distributor = "org.unifiedpush.Distributor.one"
    nonisolated static let endpoint = "https://push.example/"

    let link: DistributorLink
    private let distributor: Connection
    private let registry: Registry
    private let token: String
    private(set) var hasEnded = false
    private(set) var error: Refusal?

    init(_ world: PushWorld, _ folder: TemporaryFolder) async throws {
        let (store, registry, token) = try makeRegistration(folder)
        try await store.commit()
        let connection = try Connection.open(address: world.bus.address)
        guard try connection.requestName(Self.distributor) else { throw DBusError.failed("the distributor’s name has an owner") }
        let idleExit = IdleExit(connection: world.connection, name: Push.busName, idle: .seconds(3600))
        link = DistributorLink(
            connection: world.connection, registry: registry, setting: Self.distributor, hold: idleExit.makeHold(),
            log: PushOptions(folder: folder.path).logger)
        (distributor, self.registry, self.token) = (connection, registry, token)
    }

    var registration: Registration? { registry[token] }

    func giveEndpoint() async {
        do throws(Refusal) {
            try await link.newEndpoint(token, Self.endpoint, version: 1, by: distributor.uniqueName)
        } catch { self.error = error }
        hasEnded = true
    }

    func changed(_ token: String, hasNewEndpoint: Bool) {}
}

/// The signals `EndpointChanged`, by the names of the registrations.
@BusActor final class Changes {
    private(set) var names: [String] = []

    func follow(_ connection: Connection) async {
        let rule = MatchRule(path: Push.path.value, interface: Push.interface, member: Push.endpointChanged.name)
        _ = connection.subscribe(rule) { [weak self] message in
            if let (_, name) = Push.endpointChanged.read(message) { self?.names.append(name) }
        }
        // The bus has the match rule once it has answered a later call.
        _ = try? await connection.call(BusDaemon.nameHasOwner, on: BusDaemon.name, at: BusDaemon.path, Push.busName)
    }

    func has(_ count: Int) async -> Bool { await eventually { names.count >= count } }
}
