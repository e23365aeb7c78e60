internal import EventLoop
internal import TestSupport
internal import Testing

@testable internal import DBus

@Suite(.timeLimit(.minutes(5))) struct `A bus` {
    @Test @BusActor func `has the same id for all its connections, and another one than every other bus`() async throws {
        let (bus, other) = (await PrivateBus(), await PrivateBus())
        let ids = try [bus, bus, other].map { try Connection.open(address: $0.address).busID }
        #expect(ids[0] == ids[1] && ids[0] != ids[2])
        #expect(ids.allSatisfy { $0.utf8.count == 32 && UInt64($0.prefix(16), radix: 16) != nil }, "\(ids)")
    }
}

@Suite(.timeLimit(.minutes(5))) struct `The standard interfaces` {
    @Test @BusActor func `properties are read one by one and all together`() async throws {
        let service = try await TestService()
        #expect(
            await service.busctl("get-property", TestService.name, ShelfTree.path.value, Shelf.interface, "Label").output == "s \"first\"\n"
        )
        #expect(
            await service.busctl("get-property", TestService.name, ShelfTree.path.value, Shelf.interface, "Tags").output
                == "as 2 \"a\" \"b\"\n")
        let all = await service.gdbus("\(Standard.properties).GetAll", Shelf.interface)
        #expect(all.output == "({'Count': <uint32 7>, 'Label': <'first'>, 'Ratio': <0.5>, 'Tags': <['a', 'b']>},)\n")
        // An empty interface name means any interface (the specification leaves this open). The standard interfaces have no properties.
        #expect(await service.gdbus("\(Standard.properties).GetAll", "''").output == all.output)
        #expect(await service.gdbus("\(Standard.properties).Get", "''", "Count").output == "(<uint32 7>,)\n")
        #expect(await service.gdbus("\(Standard.properties).GetAll", Standard.properties).output == "(@a{sv} {},)\n")
    }

    @Test @BusActor func `a property is set`() async throws {
        let service = try await TestService()
        #expect(
            await service.busctl("set-property", TestService.name, ShelfTree.path.value, Shelf.interface, "Label", "s", "第二").status == 0)
        #expect(service.object.label == "第二")
        #expect(
            await service.busctl("set-property", TestService.name, ShelfTree.path.value, Shelf.interface, "Tags", "as", "0").status == 0)
        #expect(service.object.tags.isEmpty)
        #expect(await service.gdbus("\(Standard.properties).Set", Shelf.interface, "Tags", "<['x']>").output == "()\n")
        #expect(service.object.tags == ["x"])
    }

    @Test(arguments: ["/", "/org", "/org/todoku", "/org/todoku/shelf", "/org/todoku/shelf/first"]) @BusActor
    func `introspection is a valid document at the object and at the nodes between`(path: String) async throws {
        let service = try await TestService()
        let client = try service.client()
        let text = try await client.call(Standard.introspect, on: TestService.name, at: ObjectPath(path), ())
        let file = service.bus.folder("introspection.xml")
        writeFile(file, text.utf8)
        let exit = await Child.run(["xmllint", "--noout", "--nonet", "--dtdvalid", "/usr/share/xml/dbus-1/introspect.dtd", file])
        #expect(exit.status == 0, "\(exit.errors)")
        #expect(text.contains(Shelf.interface) == (path == ShelfTree.path.value))
        #expect(text.contains("<node name=") == (path != ShelfTree.path.value))
    }

    @Test @BusActor func `busctl finds the object by itself`() async throws {
        let service = try await TestService()
        #expect(await service.busctl("tree", "--list", TestService.name).output.contains("\(ShelfTree.path)\n"))
        let members = await service.busctl("introspect", TestService.name, ShelfTree.path.value)
        #expect(members.status == 0)
        for member in [".Add", ".Echo", ".Label", ".Count", ".Changed", ".GetAll", ".Ping", ".Introspect"] {
            #expect(members.output.contains(member), "\(member)")
        }
    }

    @Test(arguments: ["/", "/org/todoku/shelf/first", "/not/there"]) @BusActor func `any object can be pinged and tells the machine`(
        path: String
    ) async throws {
        let service = try await TestService()
        #expect(await service.call(Standard.peer, "Ping", at: path).status == 0)
        let machine = await service.call(Standard.peer, "GetMachineId", at: path)
        let file = readFile("/etc/machine-id") ?? readFile("/var/lib/dbus/machine-id")
        let expected = file.map { String(decoding: $0.filter { $0 != 10 }, as: UTF8.self) }
        // On a machine without an id, the answer is an error.
        if let expected {
            #expect(machine.output == "s \"\(expected)\"\n")
        } else {
            #expect(machine.status == 1 && !machine.errors.isEmpty)
        }
    }

    @Test @BusActor func `a service without an object tree answers, too`() async throws {
        let service = try await TestService(holding: true)
        let client = try service.client()
        let exit = await Child.run(
            ["busctl", "--user", "--timeout=240", "call", client.uniqueName, "/a", "a.b", "C"], environment: service.bus.environment)
        #expect(exit.errors.contains("this connection has no objects"))
    }
}
