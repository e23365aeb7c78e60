internal import EventLoop
internal import Glibc
internal import TestSupport
internal import Testing

@testable internal import DBus

/// Messages that any program may send. None of them may end or block the service.
@Suite(.timeLimit(.minutes(10))) struct `A stranger` {
    @Test @BusActor func `cannot get the service disconnected by values nested as deep as the bus allows`() async throws {
        let service = try await TestService()
        for levels in [8, 20, 40] + Array(56...66) {
            let value = String(repeating: "<", count: levels) + "1" + String(repeating: ">", count: levels)
            _ = await service.gdbus("\(Shelf.interface).Echo", value)
            _ = await service.gdbus("\(Shelf.interface).EchoAll", "{'k': \(value)}")
            #expect(service.connection.isConnected, "\(levels) levels")
        }
        #expect(await service.call(Shelf.interface, "Add", "uu", "1", "2").output == "u 3\n")
        let moderate = String(repeating: "<", count: 16) + "1" + String(repeating: ">", count: 16)
        #expect(await service.gdbus("\(Shelf.interface).Echo", moderate).output == "(\(moderate),)\n")
    }

    @Test @BusActor func `cannot stop the service from reading by calls that wait for an answer`() async throws {
        let service = try await TestService()
        let client = try service.client()
        // libdbus stops reading while 63 MiB of messages live.
        let value = Variant.string(String(repeating: "x", count: 1 << 20))
        let answers = Answers()
        for number in 1...70 {
            BusActor.spawn {
                answers.add(
                    number,
                    await attempt {
                        try await client.call(Shelf.keep, on: TestService.name, at: ShelfTree.path, value, timeout: .seconds(60))
                    })
            }
            #expect(await eventually { service.object.kept.count == number }, "\(answers.all)")
            guard service.object.kept.count == number else { break }
        }
        #expect(await service.call(Shelf.interface, "Add", "uu", "1", "2").output == "u 3\n")
        service.object.kept = []
    }

    /// libdbus stops reading while 256 descriptors or 63 MiB of messages live. It would then not read the answer of the bus either.
    @Test(arguments: [false, true]) @BusActor
    func `cannot keep the service from giving its name back, and from taking it`(hasDescriptors: Bool) async throws {
        let service = try await TestService()
        let client = try service.client()
        let file = open("/dev/null", O_RDWR | O_CLOEXEC)
        defer { close(file) }
        let large = hasDescriptors ? "" : String(repeating: "x", count: 1 << 20)
        // The loop does not turn from here on, so the calls wait in the service's socket.
        let count = hasDescriptors ? 20 : 70
        for _ in 0..<count {
            let call = Message.call(to: TestService.name, path: ShelfTree.path.value, interface: Shelf.interface, member: "NoSuchMember")
            var writer = Writer(appendingTo: call.raw)
            large.write(to: &writer)
            // The bus passes on at most 16 descriptors with a message.
            if hasDescriptors { for _ in 0..<16 { FileDescriptor(file).write(to: &writer) } }
            client.send(call)
        }
        client.flush()
        _ = try client.requestName("org.todoku.Barrier")  // the bus has taken all calls before this
        try service.connection.releaseName(TestService.name)
        #expect(try service.connection.requestName(TestService.name))
        service.connection.dispatchArrived(for: .seconds(60))
        #expect(service.connection.callsReceived == UInt64(count))
    }

    @Test @BusActor func `cannot keep the service from leaving by more calls than it can answer in time`() async throws {
        let service = try await TestService()
        let client = try service.client()
        // The loop does not turn from here on, so the calls wait in the service's socket.
        for _ in 0..<100 {
            let name = service.connection.uniqueName
            client.send(Message.call(to: name, path: ShelfTree.path.value, interface: Shelf.interface, member: "NoSuchMember"))
        }
        client.flush()
        _ = try client.requestName("org.todoku.Barrier")  // the bus has taken all calls before this
        try service.connection.releaseName(TestService.name)
        // No time is left after the first message.
        #expect(!service.connection.dispatchArrived(for: .zero))
        #expect(service.connection.callsReceived <= 1)
        #expect(service.connection.dispatchArrived(for: .seconds(60)))
        #expect(service.connection.callsReceived == 100)
        // After the last message, the time does not count: after a pause of the process, no messages may be left.
        client.send(
            Message.call(to: service.connection.uniqueName, path: ShelfTree.path.value, interface: Shelf.interface, member: "NoSuchMember"))
        client.flush()
        _ = try client.requestName("org.todoku.Barrier")
        try service.passOn()
        #expect(service.connection.dispatchArrived(for: .zero))
        #expect(service.connection.callsReceived == 101)
    }

    @Test @BusActor func `cannot make the service hold many times what was sent`() async throws {
        let service = try await TestService()
        let client = try service.client()
        let many = Variant.array(of: "y", Array(repeating: .byte(0), count: 1_100_001))
        #expect(
            await attempt { "\(try await client.call(Shelf.echo, on: TestService.name, at: ShelfTree.path, many).type)" }
                == "org.freedesktop.DBus.Error.LimitsExceeded")
        let fair = Variant.array(of: "y", Array(repeating: .byte(0), count: 100_000))
        #expect(await attempt { "\(try await client.call(Shelf.echo, on: TestService.name, at: ShelfTree.path, fair).type)" } == "ay")
    }

    @Test @BusActor func `cannot end the service by signals and replies that nobody asked for`() async throws {
        let service = try await TestService()
        let unique = service.connection.uniqueName
        let send = ["dbus-send", "--session", "--dest=\(unique)"]
        for arguments in [
            ["--type=signal", "/", "org.freedesktop.DBus.Peer.Ping"], ["--type=signal", "/", "org.freedesktop.DBus.Properties.Get"],
            ["--type=signal", "/a", "a.b.C", "string:x", "double:1.5", "array:string:a,b", "dict:string:int32:a,1", "variant:byte:1"],
            ["--type=method_call", "/", "org.freedesktop.DBus.Peer.Nothing"],
            ["--type=method_call", "/", "org.freedesktop.DBus.Local.Disconnected"],
            ["--type=signal", "/", "org.freedesktop.DBus.Local.Disconnected"],
            ["--type=signal", "/org/freedesktop/DBus/Local", "a.b.Disconnected"],
        ] {
            _ = await Child.run(send + arguments, environment: service.bus.environment)
            #expect(service.connection.isConnected)
        }
        #expect(await service.call(Shelf.interface, "Add", "uu", "1", "2").output == "u 3\n")
    }

    @Test @BusActor func `cannot have a MiB that it sends repeated in an error`() async throws {
        let service = try await TestService()
        let client = try service.client()
        let huge = String(repeating: "é", count: 1 << 19)
        func refusal<In, Out>(_ method: MethodOf<In, Out>, at path: ObjectPath = ShelfTree.path, _ arguments: In) async -> DBusError? {
            do {
                _ = try await client.call(method, on: TestService.name, at: path, arguments)
                return nil
            } catch { return error }
        }
        for error in await [
            refusal(Standard.get, (huge, "Label")), refusal(Standard.get, (Shelf.interface, huge)), refusal(Standard.getAll, huge),
            refusal(Standard.set, (huge, "Label", .bool(true))), refusal(Standard.set, ("", huge, .bool(true))),
            refusal(Shelf.add, at: ObjectPath("/a" + String(repeating: "/a", count: 1 << 18)), (1, 2)),
            refusal(Shelf.fail, ("org.todoku.Error.Odd", huge)),
        ] {
            let error = try #require(error)
            #expect(!error.message.isEmpty && error.message.utf8.count <= DBusError.longest, "\(error.name)")
        }
    }

    @Test @BusActor func `cannot end a client by a name or path that it is asked to call`() async throws {
        let service = try await TestService()
        let client = try service.client()
        for name in [
            "", "noDot", "a..b", "org.todoku.\u{301}", "a b.c", ".a.b", "org.todoku.X\n", String(repeating: "a.", count: 200) + "a",
            "a\0.b",
        ] {
            let answer = await attempt { "\(try await client.call(Shelf.add, on: name, at: ShelfTree.path, (1, 2)))" }
            #expect(answer == "org.freedesktop.DBus.Error.InvalidArgs", "\(name)")
        }
        for path in ["", "a", "/a/", "/a-b", "/\u{301}", "/a\0"] {
            let answer = await attempt { "\(try await client.call(Shelf.add, on: TestService.name, at: ObjectPath(path), (1, 2)))" }
            #expect(answer == "org.freedesktop.DBus.Error.InvalidArgs", "\(path)")
        }
        #expect(throws: DBusError.self) { try client.requestName("not a name") }
        #expect(throws: DBusError.self) { try client.releaseName("") }
    }

    @Test(arguments: ["a',member='it''s, a\\ quote'", "a'\u{301},member='it"]) @BusActor
    func `cannot open a match rule by a quote`(text: String) async throws {
        let service = try await TestService()
        let client = try service.client()
        let log = Log()
        var rule = MatchRule(interface: Shelf.interface, member: "Changed")
        rule.argument0 = text
        _ = client.subscribe(rule) { _ in log.add("matched") }
        try await roundTrip(client)
        service.connection.send(Shelf.changed.message(from: ShelfTree.path, ("a", 1)))
        service.connection.send(Shelf.changed.message(from: ShelfTree.path, (text, 1)))
        #expect(await eventually { log.lines == ["matched"] })
    }
}
