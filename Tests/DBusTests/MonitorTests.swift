internal import EventLoop
internal import TestSupport
internal import Testing

@testable internal import DBus

@Suite(.timeLimit(.minutes(5))) struct `A monitor` {
    @Test @BusActor func `sees calls, answers, errors and signals of others in their order, and answers none`() async throws {
        let service = try await TestService()
        let (client, monitor) = (try service.client(), try service.client())
        let (log, name) = (Log(), client.uniqueName)
        try await monitor.monitor { message in
            switch message.kind {
            case .call: if message.sender == name { log.add("call \(message.member) of \(message.destination), \(message.serial > 0)") }
            case .reply: if message.destination == name { log.add("answer, \(message.replySerial > 0)") }
            case .error: if message.destination == name { log.add("error \(message.error?.name ?? "")") }
            case .signal: if message.interface == Shelf.interface { log.add("signal \(message.member) to “\(message.destination)”") }
            }
        }
        #expect(try await client.call(Shelf.add, on: TestService.name, at: ShelfTree.path, (1, 2)) == 3)
        await #expect(throws: DBusError("org.todoku.Error.Test", "no")) {
            try await client.call(Shelf.fail, on: TestService.name, at: ShelfTree.path, ("org.todoku.Error.Test", "no"))
        }
        // libdbus would answer a ping in its receiver's place, and the bus would disconnect the monitor.
        try await client.call(Standard.ping, on: TestService.name, at: ShelfTree.path, ())
        service.connection.send(Shelf.changed.message(from: ShelfTree.path, ("x", 1)))
        #expect(await eventually { log.lines.count >= 7 })
        #expect(
            log.lines == [
                "call Add of \(TestService.name), true", "answer, true", "call Fail of \(TestService.name), true",
                "error org.todoku.Error.Test", "call Ping of \(TestService.name), true", "answer, true", "signal Changed to “”",
            ])
    }

    @Test @BusActor func `hears that the bus has gone`() async throws {
        let service = try await TestService()
        let monitor = try service.client()
        let log = Log()
        monitor.onDisconnect = { log.add("gone") }
        try await monitor.monitor { _ in }
        await service.bus.stop()
        #expect(await eventually { log.lines == ["gone"] })
    }
}
