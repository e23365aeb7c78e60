import DBus
import DownloadModel
import DownloaderInterface
import EventLoop
import Glibc
import PushInterface
import PushModel
import TestSupport
import Testing

@testable import PushService

@Suite(.timeLimit(.minutes(10))) struct `A registration` {
    @Test(arguments: [false, true])
    func `takes the ended download of its last push off the service's list when it ends`(isRestarted: Bool) async throws {
        let world = try await PushWorld(hasService: false)
        let service = try await ServiceStandIn(world)
        let distributor = await world.distributor(versions: [1])
        let app = try await AppStandIn(world)
        let file = await Served()
        _ = try await world.register()
        let arguments = (await distributor.token(), Array(file.message().utf8), "id")
        #expect(await world.connectorError(UnifiedPush.Version1.message, arguments) == nil)
        #expect(await app.wasCalled())
        let download = BusName.path(app: PushWorld.app, token: try #require(await service.fetches.first?.options["token"]?.string)).value
        if isRestarted { await world.kill() }
        _ = try await world.entry()
        #expect(await service.removed.isEmpty)
        try await world.call(Push.unregister, (PushWorld.app, "picture"))
        #expect(await eventually { await service.removed == [download] })
    }

    @Test func `is refused with an error that names what is wrong`() async throws {
        let world = try await PushWorld()
        let app = PushWorld.app
        let cases: [(String, String, [String: Variant], String, String)] = [
            (app, "a", ["hosts": .strings([])], "InvalidOption", "hosts"),
            (app, "a", ["hosts": .strings(Array(repeating: "example.org", count: 33))], "InvalidOption", "hosts"),
            (app, "a", ["hosts": .string("example.org")], "InvalidOption", "hosts"),
            (app, "a", ["hosts": .strings(["a/b"])], "InvalidOption", "a/b"),
            (app, "a", ["hosts": .strings(["*"])], "InvalidOption", "*"),
            (app, "a", ["hosts": .strings([""])], "InvalidOption", "hosts"),
            (app, "a", ["types": .strings(["png"])], "InvalidOption", "png"),
            (app, "a", ["types": .strings(Array(repeating: "a/b", count: 17))], "InvalidOption", "types"),
            (app, "a", ["max-size": .int32(-1)], "InvalidOption", "max-size"),
            (app, "a", ["directory": .string("pictures")], "InvalidOption", "directory"),
            (app, "a", ["filename": .string("a/b")], "InvalidOption", "filename"),
            (app, "a", ["if-exists": .string("destroy")], "InvalidOption", "if-exists"),
            (app, "a", ["allow-metered": .string("yes")], "InvalidOption", "allow-metered"),
            (app, "a", ["activate": .string("nothing")], "InvalidOption", "activate"),
            (app, "a", ["vapid": .string("abc")], "InvalidOption", "vapid"),
            (app, "a", ["checksum": .string("sha256:")], "InvalidOption", "checksum"),
            (app, "", [:], "InvalidOption", "name"),
            (app, "a b", [:], "InvalidOption", "a b"),
            (app, String(repeating: "a", count: 65), [:], "InvalidOption", "name"),
            ("", "a", [:], "InvalidOption", "id of an app"),
            ("app", "a", [:], "InvalidOption", "id of an app"),
            (String(repeating: "a.", count: 200) + "a", "a", [:], "InvalidOption", "id of an app"),
        ]
        for (app, name, more, error, named) in cases {
            let found = await world.error(Push.register, (app, name, world.options(more)))
            #expect(
                found?.name == "org.todoku.Error.\(error)" && found?.message.contains(named) == true,
                "\(more) \(name): \(found?.message ?? "none")")
        }
        #expect(await world.error(Push.register, (app, "a", [:]))?.message.contains("hosts") == true)
        #expect(await world.error(Push.unregister, (app, "a"))?.name == "org.todoku.Error.NoSuchObject")
        #expect(try await world.call(Push.list, "").isEmpty)
        #expect(world.registrationFiles.isEmpty)
    }

    @Test func `may be made 32 times by an app`() async throws {
        let world = try await PushWorld()
        for number in 1...32 { _ = try await world.register("n\(number)") }
        let error = await world.error(Push.register, (PushWorld.app, "n33", world.options()))
        #expect(error?.name == "org.todoku.Error.LimitExceeded" && error?.message.contains("32") == true)
        _ = try await world.register("n1")  // this one is there already
        _ = try await world.call(Push.register, ("org.example.Other", "n1", world.options()))
        #expect(try await world.call(Push.list, PushWorld.app).count == 32)
        #expect(try await world.call(Push.list, "").count == 33)
    }

    @Test func `ends with Unregister, at the distributor and on disk`() async throws {
        let world = try await PushWorld()
        let distributor = await world.distributor()
        let registration = try await world.registered()
        try await world.call(Push.unregister, (PushWorld.app, "picture"))
        #expect(await eventually { distributor.lines("unregister 2").count == 1 })
        #expect(world.registrationFiles.isEmpty)
        // A call of the distributor after the kill would start the program again.
        #expect(await eventually { distributor.output.contains("delivered Unregistered") }, "\(distributor.output)")
        await world.kill()
        #expect(try await world.call(Push.list, "").isEmpty)
        // A new registration has other keys.
        let other = try await world.registered()
        #expect(other["public-key"] != registration["public-key"] && other["auth-secret"] != registration["auth-secret"])
        #expect(other["endpoint"] != registration["endpoint"])
    }

    @Test func `takes new options, and keeps its keys and counts`() async throws {
        let world = try await PushWorld()
        let distributor = await world.distributor(versions: [1])
        let app = try await AppStandIn(world)
        let file = await Served()
        let first = try await world.registered("picture", ["max-size": .uint64(1)])
        await world.send(file.message(), to: first)
        #expect(await distributor.delivered(1))
        #expect(try await world.refused() == ["size": 1])
        #expect(try await world.register() == first)
        await world.send(file.message(), to: first)
        #expect(await app.wasCalled())
        #expect(try await world.refused() == ["size": 1])
    }

    @Test @BusActor func `is not written for a refused message, of which anybody who knows its endpoint may send many`() async throws {
        let bus = await PrivateBus()
        let connection = try Connection.open(address: bus.address)
        let folder = TemporaryFolder("todoku-push-store")
        let (store, registry, token) = try makeRegistration(folder)
        try await store.commit()
        let deliveries = makeDeliveries(connection, registry, store, folder)
        let file = folder("registrations/\(token)")
        let former = try #require(readFile(file))
        for _ in 0..<3 { try await deliveries.receive(token, Array("{}".utf8), version: 1) }
        try await store.commit()
        #expect(readFile(file) == former)
        #expect(registry[token]?.counts.refused == [.format: 3])
        registry.noteCounts()
        try await store.commit()
        let record = try #require(Message.value([String: Variant].self, from: readFile(file) ?? []))
        #expect(Registration(record: record)?.counts == registry[token]?.counts)
    }

    @Test func `keeps its counts when the program ends`() async throws {
        let world = try await PushWorld(hasService: false)
        let distributor = await world.distributor(versions: [1])
        let registration = try await world.registered()
        await world.send("{}", to: registration)
        #expect(await distributor.delivered(1))
        #expect(try await world.refused() == ["format": 1])
        #expect(await world.bus.end(Push.busName, by: SIGTERM))
        #expect(try await world.refused() == ["format": 1])
    }

    @Test func `whose file on disk is damaged is left alone, and the others work`() async throws {
        let world = try await PushWorld()
        _ = try await world.register("one")
        _ = try await world.register("two")
        await world.kill()
        let names = world.registrationFiles
        #expect(names.count == 2)
        writeFile("\(world.state)/registrations/\(names[0])", Array("damaged".utf8))
        writeFile("\(world.state)/messages/x", patternBytes(1000))
        writeFile("\(world.state)/settings", [])
        #expect(try await world.call(Push.list, "").count == 1)
        #expect(readFile("\(world.state)/registrations/\(names[0])") == Array("damaged".utf8))
    }

    @Test func `whose file cannot be read for a while keeps its messages`() async throws {
        let world = try await PushWorld(hasService: false)
        let distributor = await world.distributor(versions: [1])
        let registration = try await world.registered()
        let token = await distributor.token()
        await world.send(await Served().message(), to: registration)
        #expect(await distributor.delivered(1))
        await world.kill()
        let file = "\(world.state)/registrations/\(token)"
        let bytes = try #require(readFile(file))
        writeFile(file, Array("damaged".utf8))
        #expect(try await world.call(Push.list, "").isEmpty)
        // What is to be deleted at the start is deleted before the end.
        #expect(await world.bus.end(Push.busName, by: SIGTERM))
        writeFile(file, bytes)
        #expect(try await world.entry()["waiting"] == .uint32(1))
    }

    @Test func `is kept where nobody else can read it`() async throws {
        let world = try await PushWorld()
        _ = try await world.register()
        let exit = await Child.run(["find", world.state, "-perm", "/077"])
        #expect(exit.output.isEmpty && exit.status == 0, "\(exit)")
    }

    @Test @BusActor func `of an app in a sandbox is bound to the app`() async throws {
        let folder = TemporaryFolder("todoku-push-store")
        let sandbox = CallerIdentity.app("org.example.App")
        let hosts: [String: Variant] = ["hosts": .strings(["example.org"])]
        let store = PushStore(folder: folder.path)
        _ = try store.open()
        let registry = Registry([], store: store)
        func refusal(_ app: String, _ more: [String: Variant] = [:], from caller: CallerIdentity? = nil) -> Refusal? {
            do throws(Refusal) {
                _ = try registry.register(app: app, name: "a", options: hosts.merging(more) { $1 }, from: caller ?? sandbox)
                return nil
            } catch { return error }
        }
        #expect(refusal("org.example.Other")?.name == .notAllowed)
        #expect(refusal("org.example.App", from: .app("org.example.App", hasNetwork: false))?.name == .notAllowed)
        for (key, value) in [
            ("directory", .string("/tmp")), ("allow-private", .bool(true)), ("if-exists", .string("replace")),
            ("activate", .string("org.example.Other")),
        ] as [(String, Variant)] {
            let found = refusal("org.example.App", [key: value])
            #expect(found?.name == .notAllowed && found?.message.contains(key) == true, "\(key)")
        }
        #expect(refusal("org.example.App", ["activate": .string("org.example.App.Agent")]) == nil)
        #expect(throws: Refusal.self) { try registry.unregister(app: "org.example.Other", name: "a", from: sandbox) }
        // It is started at most so often in an hour.
        let former = registry.all[0].token
        for _ in 0..<Limits.ownerStarts { #expect(registry.countStart(of: former)) }
        #expect(!registry.countStart(of: former))
        // Neither a registration that is made anew nor a restart makes the hour begin anew.
        _ = try registry.unregister(app: "org.example.App", name: "a", from: sandbox)
        #expect(refusal("org.example.App") == nil)
        let token = registry.all[0].token
        #expect(!registry.countStart(of: token))
        try await store.commit()
        let content = try PushStore(folder: folder.path).open()
        #expect(!Registry(content.registrations, starts: content.starts, store: store).countStart(of: token))
        _ = try registry.register(app: "org.example.App", name: "a", options: hosts, from: .user)
        #expect(registry.countStart(of: token))
        try await store.commit()
        #expect(listFolder(folder("registrations")) == [token])
    }

    /// Makes a registration, or changes its options.
    @BusActor private func register(_ name: String, _ size: UInt64, in registry: Registry) throws -> OptionChange {
        let options: [String: Variant] = ["hosts": .strings(["example.org"]), "max-size": .uint64(size)]
        return try registry.register(app: "org.example.App", name: name, options: options, from: .user)
    }

    @Test @BusActor func `whose change cannot be saved keeps what came meanwhile`() async throws {
        let folder = TemporaryFolder("todoku-push-store")
        let store = PushStore(folder: folder.path)
        _ = try store.open()
        let registry = Registry([], store: store)
        let token = try register("a", 1, in: registry).token
        let second = try register("a", 2, in: registry)
        registry.change(token) { $0.endpoint = "https://push.example/" }
        registry.undo(second)
        #expect(registry[token]?.rules.maxSize == 1 && registry[token]?.endpoint == "https://push.example/")
        try await store.commit()
    }

    @Test @BusActor func `that two calls change has the options of the later one if the first cannot be saved`() throws {
        let folder = TemporaryFolder("todoku-push-store")
        let store = PushStore(folder: folder.path)
        _ = try store.open()
        let registry = Registry([], store: store)
        // The store answers both calls in their order, also if both changes were in one write.
        let token = try register("old", 1, in: registry).token
        let (second, third) = (try register("old", 2, in: registry), try register("old", 3, in: registry))
        registry.undo(second)
        #expect(registry[token]?.rules.maxSize == 3)
        registry.undo(third)
        #expect(registry[token]?.rules.maxSize == 1)
        let (first, later) = (try register("new", 1, in: registry), try register("new", 2, in: registry))
        registry.undo(first)
        #expect(registry[later.token]?.rules.maxSize == 2)
        registry.undo(later)
        #expect(registry.all.map(\.token) == [token])
    }

    @Test @BusActor func `that is being saved counts with what is on disk`() throws {
        let folder = TemporaryFolder("todoku-push-store")
        let store = PushStore(folder: folder.path)
        _ = try store.open()
        let registry = Registry([], store: store)
        let first = try register("a", 1, in: registry)
        let token = first.token
        #expect(registry.saved(token) == nil)
        registry.confirm(first)
        #expect(registry.saved(token)?.rules.maxSize == 1)
        let (second, third) = (try register("a", 2, in: registry), try register("a", 3, in: registry))
        #expect(registry[token]?.rules.maxSize == 3 && registry.saved(token)?.rules.maxSize == 1)
        registry.confirm(second)
        #expect(registry.saved(token)?.rules.maxSize == 2)
        registry.confirm(third)
        #expect(registry.saved(token)?.rules.maxSize == 3)
    }

    /// The store answers the calls in their order.
    @Test @BusActor func `that is refused is not there, and has no refused options, though its end is refused next`() throws {
        let folder = TemporaryFolder("todoku-push-store")
        let store = PushStore(folder: folder.path)
        _ = try store.open()
        let registry = Registry([], store: store)
        func end(_ name: String) throws -> Registration {
            try registry.unregister(app: "org.example.App", name: name, from: .user)
        }
        let old = try register("old", 1, in: registry)
        registry.confirm(old)
        let changes = [try register("old", 2, in: registry), try register("new", 3, in: registry)]
        let ends = [try end("old"), try end("new")]
        for change in changes { registry.undo(change) }
        for registration in ends { registry.restore(registration) }
        #expect(registry.all.map(\.token) == [old.token])
        #expect(registry[old.token]?.rules.maxSize == 1)
    }

    @Test @BusActor func `whose end cannot be saved is there once, also if it was made again meanwhile`() throws {
        let folder = TemporaryFolder("todoku-push-store")
        let store = PushStore(folder: folder.path)
        _ = try store.open()
        let registry = Registry([], store: store)
        let key = RegistrationKey(app: "org.example.App", name: "a")
        func register() throws -> OptionChange {
            try registry.register(app: key.app, name: key.name, options: ["hosts": .strings(["example.org"])], from: .user)
        }
        let token = try register().token
        let ended = try registry.unregister(app: key.app, name: key.name, from: .user)
        let again = try register()
        registry.restore(ended)
        #expect(registry.all.map(\.token) == [token])
        registry.undo(again)
        #expect(registry[key]?.token == token)
    }

    @Test @BusActor func `that could not be saved is saved with the next change`() async throws {
        let folder = TemporaryFolder("todoku-push-store")
        let store = PushStore(folder: folder.path)
        _ = try store.open()
        // A folder in the way of a record, as a full disk.
        let obstacle = folder.makeFolder("registrations/.new-a")
        store.put(.registration("a"), [:])
        await #expect(throws: Refusal.self) { try await store.commit() }
        #expect(listFolder(folder("registrations")).filter { $0 == "a" }.isEmpty)
        #expect(rmdir(obstacle) == 0)
        store.put(.registration("b"), [:])
        try await store.commit()
        #expect(listFolder(folder("registrations")).sorted() == ["a", "b"])
    }

    @Test @BusActor func `that is refused leaves no file, though only another file could not be written`() async throws {
        let folder = TemporaryFolder("todoku-push-store")
        let store = PushStore(folder: folder.path)
        _ = try store.open()
        let obstacle = folder.makeFolder(".new-settings")
        store.put(.registration("a"), [:])
        store.put(.settings, [:])
        await #expect(throws: Refusal.self) { try await store.commit() }
        #expect(listFolder(folder("registrations")).isEmpty)
        #expect(rmdir(obstacle) == 0)
        try await store.commit()
        #expect(listFolder(folder("registrations")) == ["a"])
    }

    @Test(arguments: ["registrations/.new-b", ".new-settings"]) @BusActor
    func `whose end is refused is still on disk, though only another file could not be written`(obstacle: String) async throws {
        let folder = TemporaryFolder("todoku-push-store")
        let store = PushStore(folder: folder.path)
        _ = try store.open()
        store.put(.registration("a"), [:])
        try await store.commit()
        folder.makeFolder(obstacle)
        store.put(.registration("a"), nil)
        store.put(.registration("b"), [:])
        store.put(.settings, [:])
        await #expect(throws: Refusal.self) { try await store.commit() }
        #expect(listFolder(folder("registrations")).filter { !$0.hasPrefix(".") } == ["a"])
    }

    @Test @BusActor func `that could not be written does not remove a new message that replaces a deleted one`() async throws {
        let folder = TemporaryFolder("todoku-push-store")
        let store = PushStore(folder: folder.path)
        _ = try store.open()
        store.put(.message("a"), [:])
        try await store.commit()
        folder.makeFolder("registrations/.new-b")
        store.put(.message("b"), [:])
        store.put(.message("a"), nil)
        store.put(.registration("b"), [:])
        await #expect(throws: Refusal.self) { try await store.commit() }
        #expect(listFolder(folder("messages")) == ["b"])
    }

    @Test @BusActor func `that could not be saved leaves no deletion behind when it is given up`() async throws {
        let folder = TemporaryFolder("todoku-push-store")
        let store = PushStore(folder: folder.path)
        _ = try store.open()
        // Neither a record nor its deletion can take the place of a folder.
        folder.makeFolder("registrations/a")
        store.put(.registration("a"), [:])
        await #expect(throws: Refusal.self) { try await store.commit() }
        store.put(.registration("a"), nil)
        try await store.commit()
        // Now it is given up while it is being written.
        store.put(.registration("a"), [:])
        await withCheckedContinuation { continuation in BusActor.spawn { continuation.resume() } }
        store.put(.registration("a"), nil)
        try? await store.commit()
        try await store.commit()
    }

    @Test @BusActor func `that is being written is not disturbed by a look at the folder`() async throws {
        let folder = TemporaryFolder("todoku-push-store")
        _ = try PushStore(folder: folder.path).open()
        writeFile(folder("registrations/.new-a"), [1])
        #expect(!PushStore.hasRegistrations(folder: folder.path))
        #expect(listFolder(folder("registrations")) == [".new-a"])
        _ = try PushStore(folder: folder.path).open()
        #expect(listFolder(folder("registrations")).isEmpty)
    }
}

@Suite struct `The contract of org.todoku.Push1` {
    @Test @BusActor func `of the code is that of the XML`() throws {
        var members: [String] = []
        var (kind, name, ins, outs, access, changes) = ("", "", "", "", "", "true")
        func end() {
            switch kind {
            case "method": members.append("method \(name)(\(ins))->(\(outs))")
            case "signal": members.append("signal \(name)(\(ins))")
            case "property": members.append("property \(name) \(ins) \(access) \(changes == "true" ? "true" : "false")")
            default: break
            }
            kind = ""
        }
        for line in Push.element.split(separator: "\n") {
            let parts = line.split(separator: "\"", omittingEmptySubsequences: false).map(String.init)
            func value(_ key: String) -> String {
                parts.firstIndex { $0.hasSuffix(" \(key)=") }.map { parts[$0 + 1] } ?? ""
            }
            let tag = parts[0].drop { $0 == " " }.prefix { $0 != " " }
            switch tag {
            case "<method", "<signal", "<property":
                end()
                (kind, name, ins, outs) = (String(tag.dropFirst()), value("name"), value("type"), "")
                (access, changes) = (value("access"), "true")
            case "<arg": if value("direction") == "out" { outs += value("type") } else { ins += value("type") }
            case "<annotation" where value("name").hasSuffix("EmitsChangedSignal"): changes = value("value")
            default: break
            }
        }
        end()
        let code = PushObject.face.members + PushObject.face.signals.map { "signal \($0.key)(\($0.value))" }
        #expect(code.sorted() == members.sorted())
        #expect(code.count == 7)
        for reason in PushRefusalReason.allCases { #expect(Push.document.contains(" \(reason.rawValue)"), "\(reason.rawValue)") }
    }

    @Test func `is returned by introspection`() async throws {
        let world = try await PushWorld()
        // gdbus waits only three seconds for the answer. On a busy machine, the start of the program may take longer, so List starts it.
        _ = try await world.call(Push.list, "")
        var (output, errors) = ("", "")
        let isTold = await eventually {
            let exit = await Child.run(
                ["gdbus", "introspect", "--session", "--dest", Push.busName, "--object-path", "/", "--recurse"],
                environment: world.bus.environment)
            (output, errors) = (exit.output, exit.errors)
            return exit.status == 0
        }
        #expect(isTold, "\(errors)")
        for name in [Push.interface, UnifiedPush.Version1.connector, UnifiedPush.Version2.connector] {
            #expect(output.contains("interface \(name) {"), "\(name)")
        }
    }
}
