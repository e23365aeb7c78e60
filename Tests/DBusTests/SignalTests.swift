internal import EventLoop
internal import TestSupport
internal import Testing

@testable internal import DBus

@Suite(.timeLimit(.minutes(5))) struct `Signals` {
    @Test @BusActor func `reach foreign subscribers and ours, in their order`() async throws {
        let service = try await TestService()
        let monitor = Child(["gdbus", "monitor", "--session", "--dest", TestService.name], environment: service.bus.environment)
        #expect(await eventually { monitor.output.contains("is owned by") })
        let client = try service.client()
        let log = Log()
        let subscription = client.subscribe(MatchRule(sender: TestService.name, interface: Shelf.interface, member: "Changed")) { message in
            if let (what, times) = Shelf.changed.read(message) { log.add("\(what)\(times)") }
        }
        try await roundTrip(client)
        for number in 0..<200 as Range<UInt32> { service.connection.send(Shelf.changed.message(from: ShelfTree.path, ("n", number))) }
        #expect(await eventually { log.lines.count == 200 })
        #expect(log.lines == (0..<200).map { "n\($0)" })
        #expect(await eventually { monitor.output.contains("\(ShelfTree.path): \(Shelf.interface).Changed ('n', uint32 199)") })
        client.unsubscribe(subscription)
        service.connection.send(Shelf.changed.message(from: ShelfTree.path, ("late", 0)))
        try await roundTrip(client)
        #expect(log.lines.count == 200)
        await monitor.stop()
    }

    @Test @BusActor func `that follow an answer are received once its caller has continued`() async throws {
        let service = try await TestService()
        let client = try service.client()
        let log = Log()
        _ = client.subscribe(MatchRule(interface: Shelf.interface)) { _ in log.add("signal") }
        try await roundTrip(client)
        for round in 1...20 {
            BusActor.spawn {
                _ = try? await client.call(Shelf.keep, on: TestService.name, at: ShelfTree.path, .string("x"))
                log.add("answer")
            }
            #expect(await eventually { !service.object.kept.isEmpty })
            // The client has not read the answer when the signal comes, because this thread runs both.
            service.object.kept.removeFirst()("now")
            service.connection.send(Shelf.changed.message(from: ShelfTree.path, ("what", 1)))
            for _ in 0..<2 { try service.passOn() }
            #expect(await eventually { log.lines.count == 2 * round })
        }
        #expect(log.lines == (0..<20).flatMap { _ in ["answer", "signal"] })
    }

    @Test @BusActor func `come by sender, path, member and first argument as asked for`() async throws {
        let service = try await TestService()
        let client = try service.client()
        let other = try service.client()
        let log = Log()
        func subscribe(_ name: String, _ change: (inout MatchRule) -> Void) {
            var rule = MatchRule(interface: Shelf.interface)
            change(&rule)
            _ = client.subscribe(rule) { _ in log.add(name) }
        }
        subscribe("all") { _ in }
        subscribe("argument") { $0.argument0 = "it's, a\\ 'quote'" }
        subscribe("sender") { $0.sender = service.connection.uniqueName }
        subscribe("path") { $0.path = "/a" }
        subscribe("member") { $0.member = "Changed" }
        try await roundTrip(client)
        other.send(Message.signal(path: "/a", interface: Shelf.interface, member: "Other") { "it's, a\\ 'quote'".write(to: &$0) })
        try await roundTrip(other)
        try await roundTrip(client)
        #expect(log.lines == ["all", "argument", "path"])
        log.clear()
        service.connection.send(Shelf.changed.message(from: ObjectPath("/b"), ("x", 1)))
        #expect(await eventually { log.lines.count == 3 })
        #expect(log.lines == ["all", "sender", "member"])
    }

    @Test @BusActor func `come by the namespace of their first argument`() async throws {
        let service = try await TestService()
        let client = try service.client()
        let log = Log()
        var rule = MatchRule(interface: Shelf.interface, member: "Changed")
        rule.argument0Namespace = "org.a"
        _ = client.subscribe(rule) { message in if let (name, _) = Shelf.changed.read(message) { log.add(name) } }
        try await roundTrip(client)
        for name in ["org.a", "org.ab", "org", "org.a.b.c", "", "last", "org.a.b"] {
            service.connection.send(Shelf.changed.message(from: ShelfTree.path, (name, 1)))
        }
        #expect(await eventually { log.lines.last == "org.a.b" })
        #expect(log.lines == ["org.a", "org.a.b.c", "org.a.b"])
    }

    @Test @BusActor func `a handler that unsubscribes another during a signal keeps it from running`() async throws {
        let service = try await TestService()
        let client = try service.client()
        let log = Log()
        let held = Held()
        for number in 0..<8 {
            held.subscriptions.append(
                client.subscribe(MatchRule(interface: Shelf.interface)) { _ in
                    log.add("\(number)")
                    for other in held.subscriptions { client.unsubscribe(other) }
                })
        }
        try await roundTrip(client)
        service.connection.send(Shelf.changed.message(from: ShelfTree.path, ("x", 1)))
        #expect(await eventually { !log.lines.isEmpty })
        #expect(log.lines == ["0"])
    }

    @Test @BusActor func `malformed ones are not mistaken for ours`() async throws {
        let service = try await TestService()
        let client = try service.client()
        let log = Log()
        _ = client.subscribe(MatchRule(interface: Shelf.interface)) { log.add(Shelf.changed.read($0) == nil ? "other" : "ours") }
        try await roundTrip(client)
        service.connection.send(Message.signal(path: "/", interface: Shelf.interface, member: "Changed") { "x".write(to: &$0) })
        service.connection.send(Message.signal(path: "/", interface: Shelf.interface, member: "Changed") { _ in })
        service.connection.send(Message.signal(path: "/", interface: Shelf.interface, member: "Unchanged") { _ in })
        service.connection.send(Shelf.changed.message(from: ShelfTree.path, ("x", 1)))
        #expect(await eventually { log.lines == ["other", "other", "other", "ours"] })
    }

    @Test @BusActor func `a stranger cannot speak for the bus or for another's name`() async throws {
        let service = try await TestService()
        let client = try service.client()
        let log = Log()
        _ = client.watchOwner(of: TestService.name) { log.add("owner \($0 ?? "gone")") }
        _ = client.subscribe(MatchRule(sender: TestService.name, interface: Shelf.interface)) { _ in log.add("changed") }
        try await roundTrip(client)
        let arrived = Log()
        _ = client.subscribe(MatchRule(interface: Shelf.interface)) { _ in arrived.add("changed") }
        // Unicast signals pass every match rule.
        let send = ["dbus-send", "--session", "--type=signal", "--dest=\(client.uniqueName)"]
        let forged = [
            ["/org/freedesktop/DBus", "org.freedesktop.DBus.NameOwnerChanged", "string:\(TestService.name)", "string::1.0", "string:"],
            [ShelfTree.path.value, "\(Shelf.interface).Changed", "string:x", "uint32:1"],
        ]
        for arguments in forged {
            #expect(await Child.run(send + arguments, environment: service.bus.environment).status == 0)
        }
        // The bus may read them after the programs have ended. It has passed on the first one before the second program says Hello.
        #expect(await eventually { arrived.lines == ["changed"] })
        #expect(log.lines == [])
        service.connection.send(Shelf.changed.message(from: ShelfTree.path, ("x", 1)))
        #expect(await eventually { log.lines == ["changed"] })
    }
}

@Suite(.timeLimit(.minutes(5))) struct `Names` {
    @Test @BusActor func `a name that another owns is refused`() async throws {
        let service = try await TestService()
        let client = try service.client()
        #expect(try !client.requestName(TestService.name))
        #expect(try service.connection.requestName(TestService.name), "its own")
        try service.connection.releaseName(TestService.name)
        #expect(try client.requestName(TestService.name))
        try service.connection.releaseName(TestService.name)  // not its own: nothing happens
        #expect(
            try await service.connection.call(BusDaemon.getNameOwner, on: BusDaemon.name, at: BusDaemon.path, TestService.name)
                == client.uniqueName)
        #expect(throws: DBusError.self) { try client.requestName("org.freedesktop.DBus") }
    }

    @Test @BusActor func `the end of a client is reported`() async throws {
        let service = try await TestService()
        let log = Log()
        var client: Connection? = try service.client()
        let name = try #require(client?.uniqueName)
        _ = service.connection.watchOwner(of: name) { log.add($0 ?? "gone") }
        let child = Child(["busctl", "--user", "monitor"], environment: service.bus.environment)
        try await roundTrip(service.connection)
        #expect(log.lines.isEmpty)
        withExtendedLifetime(client) {}
        client = nil
        #expect(await eventually { log.lines == ["gone"] })
        await child.stop()
    }

    @Test @BusActor func `the end of a client that left before it was watched is reported, too`() async throws {
        let service = try await TestService()
        let log = Log()
        _ = service.connection.watchOwner(of: ":1.99999") { log.add($0 ?? "gone") }
        #expect(await eventually { log.lines == ["gone"] })
    }

    @Test @BusActor func `owners that come and go are reported`() async throws {
        let service = try await TestService()
        let log = Log()
        let watch = service.connection.watchOwner(of: "org.todoku.Guest") { log.add($0 ?? "gone") }
        let client = try service.client()
        #expect(try client.requestName("org.todoku.Guest"))
        #expect(await eventually { log.lines == [client.uniqueName] })
        try client.releaseName("org.todoku.Guest")
        #expect(await eventually { log.lines == [client.uniqueName, "gone"] })
        service.connection.unsubscribe(watch)
        #expect(try client.requestName("org.todoku.Guest"))
        try await roundTrip(service.connection)
        #expect(log.lines.count == 2)
    }

    @Test @BusActor func `calls that come while the name is given back are answered`() async throws {
        let service = try await TestService()
        let client = try service.client()
        let answers = Answers()
        for number in 0..<300 {
            BusActor.spawn {
                answers.add(
                    number,
                    await attempt {
                        "\(try await client.call(Shelf.length, on: TestService.name, at: ShelfTree.path, String(repeating: "x", count: 1000)))"
                    })
            }
        }
        // The loop does not turn from here on, so sent messages wait in the service's socket.
        await withCheckedContinuation { done in
            BusActor.spawn {
                client.flush()
                _ = try? client.requestName("org.todoku.Barrier")  // the bus has taken all calls before this
                let before = service.connection.callsReceived
                try? service.connection.releaseName(TestService.name)
                service.connection.dispatchArrived(for: .seconds(60))
                #expect(service.connection.callsReceived - before == 300 - before)
                done.resume()
            }
        }
        #expect(await eventually { answers.all.count == 300 })
        #expect(answers.all.allSatisfy { $0.1 == "1000" })
    }

    @Test @BusActor func `all that has arrived is dispatched, however much`() async throws {
        let service = try await TestService(holding: true)
        let client = try service.client()
        let answers = Answers()
        await withCheckedContinuation { done in
            BusActor.spawn {
                service.connection.export(service.tree)
                for number in 0..<50 {
                    BusActor.spawn {
                        answers.add(
                            number,
                            await attempt {
                                "\(try await client.call(Shelf.length, on: TestService.name, at: ShelfTree.path, String(repeating: "x", count: 1000)))"
                            })
                    }
                }
                BusActor.spawn {
                    client.flush()
                    _ = try? client.requestName("org.todoku.Barrier")
                    service.connection.dispatchArrived(for: .seconds(60))
                    #expect(service.connection.callsReceived == 50)
                    done.resume()
                }
            }
        }
        #expect(await eventually { answers.all.count == 50 })
    }

    @Test @BusActor func `messages read while waiting for an answer are dispatched`() async throws {
        let service = try await TestService()
        let client = try service.client()
        let answers = Answers()
        BusActor.spawn {
            answers.add(
                0,
                await attempt {
                    "\(try await client.call(Shelf.add, on: TestService.name, at: ShelfTree.path, (1, 2), timeout: .seconds(60)))"
                })
        }
        await withCheckedContinuation { done in
            BusActor.spawn {
                client.flush()
                _ = try? client.requestName("org.todoku.Barrier")
                _ = try? service.connection.requestName("org.todoku.Second")  // reads the call with the answer
                done.resume()
            }
        }
        #expect(await eventually { !answers.all.isEmpty })
        #expect(answers.all.map(\.1) == ["3"])
    }

    @Test @BusActor func `calls that come before the service is ready wait for it, and are answered in several turns`() async throws {
        let service = try await TestService(holding: true)
        let client = try service.client()
        let answers = Answers()
        for number in 0..<2_000 as Range<UInt32> {
            BusActor.spawn {
                answers.add(
                    Int(number),
                    await attempt {
                        try await client.call(Shelf.touch, on: TestService.name, at: ShelfTree.path, "\(number)", timeout: .seconds(120))
                        return ""
                    })
            }
        }
        // Wait until the service has read all of them, and some turns longer.
        let other = try service.client()
        try await roundTrip(other)
        client.flush()
        _ = try client.requestName("org.todoku.Barrier")
        _ = try service.connection.requestName("org.todoku.Second")
        #expect(service.object.calls.isEmpty && answers.all.isEmpty)
        // Meanwhile further messages arrive in each turn, so that the socket is ready while the first calls are still being answered.
        let turn = Turn { number in
            guard number <= 20 else { return }
            for _ in 0..<20 {
                BusActor.spawn {
                    _ = await attempt {
                        try await client.call(Shelf.touch, on: TestService.name, at: ShelfTree.path, "more"); return ""
                    }
                }
            }
        }
        turn.begin()
        nonisolated(unsafe) var perTurn: [Int: Int] = [:]  // on the bus loop only
        service.object.touched = { _ in perTurn[turn.number, default: 0] += 1 }
        service.connection.export(service.tree)
        #expect(await eventually { answers.all.count == 2_000 })
        turn.end()
        #expect(answers.all.map(\.0) == Array(0..<2_000))
        #expect(perTurn.count > 1)
    }
}

@Suite(.timeLimit(.minutes(5))) struct `Calls whose answers take long` {
    @Test(arguments: [false, true]) @BusActor func `are answered one a turn, in their order`(areHeld: Bool) async throws {
        let service = try await TestService()
        let door = Gate()
        if areHeld {
            // These calls wait until their caller is identified. Inspections of other tests, which hang, may come first.
            let gate = CallerGate(limitError: { DBusError("org.todoku.Error.Limit", $0) }, patience: .seconds(240)) { _, _ in
                door.wait()
                return .known(.user)
            }
            service.connection.guardCalls(by: gate)
        }
        let client = try service.client()
        let answers = Answers()
        let turn = Turn { _ in }
        var perTurn: [Int: Int] = [:]
        service.object.touched = { _ in
            let step = StepTime()
            while !step.isOver {}
            perTurn[turn.number, default: 0] += 1
        }
        turn.begin()
        for number in 0..<30 {
            BusActor.spawn {
                answers.add(
                    number,
                    await attempt {
                        try await client.call(Shelf.touch, on: TestService.name, at: ShelfTree.path, "\(number)", timeout: .seconds(120))
                        return ""
                    })
            }
        }
        try await roundTrip(client)
        door.open()
        #expect(await eventually { answers.all.count == 30 })
        turn.end()
        #expect(answers.all.map(\.0) == Array(0..<30))
        #expect(service.object.calls == (0..<30).map { "\($0)" })
        #expect(perTurn.values.allSatisfy { $0 == 1 }, "\(perTurn)")
    }
}

/// Counts turns of the loop, by a job that queues itself again.
@BusActor final class Turn: Sendable {
    private(set) var number = 0
    private var isEnded = false
    private let action: @BusActor (Int) -> Void

    init(_ action: @escaping @BusActor (Int) -> Void) { self.action = action }

    func begin() {
        number += 1
        action(number)
        if !isEnded { BusActor.spawn { self.begin() } }
    }

    func end() { isEnded = true }
}

@BusActor final class Log: Sendable {
    private(set) var lines: [String] = []
    func add(_ line: String) { lines.append(line) }
    func clear() { lines = [] }
}

/// Returns once the bus has read all earlier messages of `connection`, and `connection` all earlier messages of the bus.
@BusActor func roundTrip(_ connection: Connection) async throws {
    _ = try await connection.call(BusDaemon.nameHasOwner, on: BusDaemon.name, at: BusDaemon.path, "org.freedesktop.DBus")
}

@BusActor private final class Held {
    var subscriptions: [Connection.Subscription] = []
}
