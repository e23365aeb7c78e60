internal import EventLoop
internal import Glibc
internal import TestSupport
internal import Testing

@testable internal import DBus

@Suite(.timeLimit(.minutes(5))) struct `A service on a real bus` {
    @Test @BusActor func `answers foreign clients by its declarations`() async throws {
        let service = try await TestService()
        #expect(await service.call(Shelf.interface, "Add", "uu", "2", "40").output == "u 42\n")
        #expect(await service.gdbus("\(Shelf.interface).Add", "2", "40").output == "(uint32 42,)\n")
        let mixed = await service.gdbus(
            "\(Shelf.interface).Mix", "['x', '']", "{'b': '1', 'a': '2'}", "(-1, 2.5)", "objectpath '/p'", "true")
        #expect(mixed.output.contains("a2") && mixed.output.contains("(-1, 2.5) /p true"), "\(mixed)")
        #expect(mixed.output.contains("-5"))
        #expect(service.connection.callsReceived >= 3)
    }

    @Test(arguments: [
        "<byte 0x01>", "<true>", "<int16 -1>", "<uint16 1>", "<-1>", "<uint32 1>", "<int64 -1>", "<uint64 1>", "<1.5>", "<'届く'>",
        "<objectpath '/a'>", "<signature 'a{sv}'>", "<@as []>", "<@a{sv} {}>", "<{'b': <1>, 'a': <{'c': <@ay []>}>}>",
        "<('a', uint32 1, [true])>",
        "<<<'deep'>>>", "<[<1>, <'a'>]>", "<{uint32 1: ('a', {'k': <1.0>})}>", "<[[@as [], ['a']]]>", "<@a(sa{sv}) []>",
    ]) @BusActor func `returns any variant of a foreign client unchanged`(text: String) async throws {
        let service = try await TestService()
        let exit = await service.gdbus("\(Shelf.interface).Echo", text)
        #expect(exit.output == "(\(text),)\n", "\(exit)")
        let seen = try #require(service.object.seen.first)
        let bytes = Message.bytes(of: seen)
        #expect(try #require(Message.value(Variant.self, from: bytes)) == seen)
    }

    @Test(arguments: [("[]", "0 ."), ("['a']", "1 a."), ("['a', 'b', 'c', 'd']", "3 abcd.")])
    @BusActor func `reads the elements of an array behind the call`(words: String, text: String) async throws {
        let service = try await TestService()
        let exit = await service.gdbus("\(Shelf.interface).Join", "@as \(words)", ".")
        #expect(exit.output == "('\(text)',)\n", "\(exit)")
    }

    @Test @BusActor func `answers each mistake at once with the error of its kind`() async throws {
        let service = try await TestService()
        let (path, shelf, properties) = (ShelfTree.path.value, Shelf.interface, Standard.properties)
        let cases: [([String], String)] = [
            ([path, shelf, "Add", "us", "1", "2"], "takes (uu), not (us)"),
            ([path, shelf, "Add"], "takes (uu), not ()"),
            ([path, shelf, "Nothing"], "has no method Nothing"),
            ([path, "org.todoku.Other", "Add", "uu", "1", "2"], "has no interface org.todoku.Other"),
            (["/org/todoku/other", shelf, "Add", "uu", "1", "2"], "there is no object /org/todoku/other"),
            (["/org/todoku", shelf, "Add", "uu", "1", "2"], "/org/todoku has no interface \(shelf)"),
            (["/org/todoku/other", "org.freedesktop.DBus.Introspectable", "Introspect"], "there is no object"),
            ([path, "org.freedesktop.DBus.Introspectable", "Introspect", "s", "x"], "Introspect takes (), not (s)"),
            ([path, "org.freedesktop.DBus.Introspectable", "Nothing"], "has no method Nothing"),
            ([path, "org.freedesktop.DBus.Peer", "Nothing"], "org.freedesktop.DBus.Peer"),
            ([path, properties, "Get", "ss", shelf, "Nothing"], "has no property Nothing"),
            ([path, properties, "Get", "ss", "org.todoku.Other", "Label"], "has no interface org.todoku.Other"),
            ([path, properties, "Get", "s", shelf], "Get takes (ss), not (s)"),
            ([path, properties, "GetAll", "s", "org.todoku.Other"], "has no interface org.todoku.Other"),
            ([path, properties, "Set", "ssv", shelf, "Count", "u", "1"], "Count cannot be set"),
            ([path, properties, "Set", "ssv", shelf, "Label", "u", "1"], "Label takes the type s, not u"),
            ([path, properties, "Set", "ssv", shelf, "Nothing", "u", "1"], "has no property Nothing"),
            ([path, properties, "Set", "ssv", shelf, "Label", "s", "forbidden"], "not this one"),
            ([path, properties, "Nothing"], "has no method Nothing"),
            (["/org/todoku/other", properties, "GetAll", "s", shelf], "there is no object"),
            ([path, shelf, "Fail", "ss", "org.todoku.Error.Own", "a sentence"], "a sentence"),
            ([path, shelf, "Fail", "ss", "not a name!", "still a sentence"], "still a sentence"),
            ([path, shelf, "Fail", "ss", "", "still a sentence"], "still a sentence"),
            (
                [path, shelf, "Fail", "ss", "org.todoku.Error." + String(repeating: "x", count: 300), "still a sentence"],
                "still a sentence"
            ),
            ([path, shelf, "Drop"], "dropped the call without an answer"),
        ]
        for (arguments, expected) in cases {
            let begun = ContinuousClock.now
            let exit = await Child.run(
                ["busctl", "--user", "--timeout=240", "call", TestService.name] + arguments, environment: service.bus.environment)
            #expect(exit.status != 0 && exit.errors.contains(expected), "\(arguments): \(exit)")
            #expect(ContinuousClock.now - begun < .seconds(240))
        }
        #expect(service.object.label == "first" && service.object.calls.isEmpty)
    }

    @Test(arguments: [
        ("\(Shelf.interface).Add", ["1"], "org.freedesktop.DBus.Error.InvalidArgs"),
        ("\(Shelf.interface).Nothing", [], "org.freedesktop.DBus.Error.UnknownMethod"),
        ("org.todoku.Other.Add", [], "org.freedesktop.DBus.Error.UnknownInterface"),
        ("\(Standard.properties).Get", [Shelf.interface, "Nothing"], "org.freedesktop.DBus.Error.UnknownProperty"),
        ("\(Standard.properties).Set", [Shelf.interface, "Count", "<1>"], "org.freedesktop.DBus.Error.PropertyReadOnly"),
        ("\(Standard.properties).Set", [Shelf.interface, "Label", "<1>"], "org.freedesktop.DBus.Error.InvalidArgs"),
        ("\(Shelf.interface).Fail", ["'org.todoku.Error.Own'", "'s'"], "org.todoku.Error.Own"),
        ("\(Shelf.interface).Fail", ["'9.x'", "'s'"], "org.freedesktop.DBus.Error.Failed"),
        ("\(Shelf.interface).Drop", [], "org.freedesktop.DBus.Error.NoReply"),
    ]) @BusActor func `names each error as the specification does`(method: String, arguments: [String], name: String) async throws {
        let service = try await TestService()
        let exit = await Child.run(
            [
                "gdbus", "call", "--session", "--timeout", "240", "--dest", TestService.name, "--object-path", ShelfTree.path.value,
                "--method", method,
            ]
                + arguments, environment: service.bus.environment)
        #expect(exit.errors.contains(name), "\(exit)")
    }

    @Test @BusActor func `answers later, and answers NoReply for dropped calls`() async throws {
        let service = try await TestService()
        let client = try service.client()
        let answers = Answers()
        for number in 0..<3 {
            BusActor.spawn {
                answers.add(number, await attempt { try await client.call(Shelf.keep, on: TestService.name, at: ShelfTree.path, .byte(1)) })
            }
        }
        #expect(await eventually { service.object.kept.count == 3 })
        #expect(answers.all.isEmpty)
        #expect(try await client.call(Shelf.answerKept, on: TestService.name, at: ShelfTree.path, ()) == 3)
        #expect(await eventually { answers.all.count == 3 })
        #expect(answers.all.map(\.1) == ["later", "later", "later"])

        BusActor.spawn {
            answers.add(3, await attempt { try await client.call(Shelf.keep, on: TestService.name, at: ShelfTree.path, .byte(1)) })
        }
        #expect(await eventually { service.object.kept.count == 1 })
        #expect(try await client.call(Shelf.dropKept, on: TestService.name, at: ShelfTree.path, ()) == 1)
        #expect(await eventually { answers.all.count == 4 })
        #expect(answers.all[3].1 == "org.freedesktop.DBus.Error.NoReply")
    }

    @Test @BusActor func `a reply is given once, whatever the handler does`() async throws {
        let service = try await TestService()
        let client = try service.client()
        let answers = Answers()
        BusActor.spawn {
            answers.add(0, await attempt { try await client.call(Shelf.keep, on: TestService.name, at: ShelfTree.path, .byte(1)) })
        }
        #expect(await eventually { service.object.kept.count == 1 }, "\(answers.all)")
        let reply = try #require(service.object.kept.first)
        #expect(reply.message("a") != nil)
        #expect(reply.message("b") == nil)
        #expect(reply.message(failing: DBusError.failed("c")) == nil)
        reply("d")
        reply.fail(DBusError.failed("e"))
    }

    @Test @BusActor func `sends nothing to a caller that wants no answer`() async throws {
        let service = try await TestService()
        // The monitor sees all messages on the bus.
        let monitor = Child(["busctl", "--user", "--no-pager", "monitor"], environment: service.bus.environment)
        #expect(await eventually { monitor.errors.contains("Monitoring") || monitor.output.contains("Monitoring") })
        for arguments in [["Touch", "s", "quiet"], ["Nothing"], ["Drop"], ["Fail", "ss", "a.b", "c"]] {
            let exit = await Child.run(
                ["busctl", "--user", "--expect-reply=no", "call", TestService.name, ShelfTree.path.value, Shelf.interface] + arguments,
                environment: service.bus.environment)
            #expect(exit.status == 0)
        }
        #expect(await eventually { service.object.calls == ["quiet"] })
        #expect(await service.call(Shelf.interface, "Touch", "s", "last").status == 0)
        #expect(await eventually { service.object.calls == ["quiet", "last"] && monitor.output.contains("\"last\"") })
        // Answered by the bus after all of the service's messages.
        _ = try service.connection.requestName("org.todoku.Barrier")
        #expect(await eventually { monitor.output.contains("org.todoku.Barrier") })
        let unique = service.connection.uniqueName
        let sent = monitor.output.split(separator: "‣").filter {
            $0.contains("Sender=\(unique) ") && !$0.contains("Destination=org.freedesktop.DBus")
        }
        #expect(sent.count == 1 && sent.first?.contains("Type=method_return") == true, "\(sent)")
        await monitor.stop()
    }

    @Test @BusActor func `two thousand calls sent at once are answered in their order`() async throws {
        let service = try await TestService()
        let client = try service.client()
        let answers = Answers()
        for number in 0..<2_000 as Range<UInt32> {
            BusActor.spawn {
                answers.add(
                    Int(number),
                    await attempt {
                        "\(try await client.call(Shelf.add, on: TestService.name, at: ShelfTree.path, (number, 1), timeout: .seconds(120)))"
                    })
            }
        }
        #expect(await eventually { answers.all.count == 2_000 })
        #expect(answers.all.map(\.0) == Array(0..<2_000))
        #expect(answers.all.map(\.1) == (1...2_000).map { "\($0)" })
    }

    @Test @BusActor func `takes and gives a string of a mebibyte, and of many`() async throws {
        let service = try await TestService()
        let client = try service.client()
        let text = String(repeating: "0123456789abcdef", count: 65_536)
        #expect(try await client.call(Shelf.length, on: TestService.name, at: ShelfTree.path, text) == 1 << 20)
        let back = try await client.call(Shelf.repeat, on: TestService.name, at: ShelfTree.path, (text, 20))
        #expect(back.utf8.count == 20 << 20)
        #expect(service.connection.outgoingBytes == 0)
    }

    /// The bus would disconnect the sender.
    @Test @BusActor func `neither calls nor answers by more than 64 MiB, and stays on the bus`() async throws {
        let service = try await TestService()
        let client = try service.client()
        let text = String(repeating: "0123456789abcdef", count: 65_536)
        await #expect(throws: DBusError.tooLong("the answer of Repeat", advice: "ask for less")) {
            try await client.call(Shelf.repeat, on: TestService.name, at: ShelfTree.path, (text, 65))
        }
        await #expect(throws: DBusError.tooLong("the call of Join", advice: "send less in one call")) {
            try await client.call(Shelf.join, on: TestService.name, at: ShelfTree.path, (Array(repeating: text, count: 65), ""))
        }
        #expect(try await client.call(Shelf.add, on: TestService.name, at: ShelfTree.path, (2, 3)) == 5)
    }

    /// The bus would disconnect the sender.
    @Test @BusActor func `makes no call whose values are nested more than 64 deep, and stays on the bus`() async throws {
        let service = try await TestService()
        let client = try service.client()
        func nested(_ levels: Int) -> Variant { (1..<levels).reduce(Variant.byte(1)) { value, _ in .variant(value) } }
        await #expect(throws: DBusError.tooDeep("the call of Echo")) {
            try await client.call(Shelf.echo, on: TestService.name, at: ShelfTree.path, nested(65))
        }
        // The bus passes 64 levels on, and the service reads fewer.
        await #expect(throws: DBusError.limitsExceeded("values may be nested at most 32 deep")) {
            try await client.call(Shelf.echo, on: TestService.name, at: ShelfTree.path, nested(64))
        }
        #expect(try await client.call(Shelf.add, on: TestService.name, at: ShelfTree.path, (2, 3)) == 5)
    }

    @Test @BusActor func `answers with an error if it cannot pass its descriptor on`() async throws {
        let service = try await TestService()
        let client = try service.client()
        await #expect(throws: DBusError.noDescriptor("the answer of Closed")) {
            try await client.call(Shelf.closed, on: TestService.name, at: ShelfTree.path, ())
        }
    }

    @Test @BusActor func `passes a descriptor on, and keeps none`() async throws {
        let service = try await TestService()
        let client = try service.client()
        let file = service.bus.folder("some")
        writeFile(file, "content".utf8)
        let before = listFolder("/proc/self/fd").count { readlinkText("/proc/self/fd/\($0)") == file }
        var descriptor: FileDescriptor? = try await client.call(Shelf.open, on: TestService.name, at: ShelfTree.path, file)
        #expect(readFile("/proc/self/fd/\(descriptor?.number ?? -1)").map { String(decoding: $0, as: UTF8.self) } == "content")
        descriptor = nil
        // Messages are released in the last turn of the loop.
        #expect(await eventually { listFolder("/proc/self/fd").count { readlinkText("/proc/self/fd/\($0)") == file } == before })
    }
}

@Suite(.timeLimit(.minutes(5))) struct `A call to another program` {
    @Test @BusActor func `throws NoReply when time is up, and the late answer harms nothing`() async throws {
        let service = try await TestService()
        let client = try service.client()
        let begun = ContinuousClock.now
        await #expect(throws: DBusError.self) {
            try await client.call(Shelf.keep, on: TestService.name, at: ShelfTree.path, .byte(1), timeout: .milliseconds(50))
        }
        #expect(ContinuousClock.now - begun >= .milliseconds(50))
        let late = await attempt { try await client.call(Shelf.keep, on: TestService.name, at: ShelfTree.path, .byte(1), timeout: .zero) }
        #expect(late == "org.freedesktop.DBus.Error.NoReply")
        #expect(await eventually { service.object.kept.count == 2 })
        #expect(try await client.call(Shelf.answerKept, on: TestService.name, at: ShelfTree.path, ()) == 2)
    }

    @Test @BusActor func `ends at once if it is given up, and the late answer harms nothing`() async throws {
        let service = try await TestService()
        let client = try service.client()
        let (answers, wait) = (Answers(), AnswerWait())
        BusActor.spawn {
            answers.add(
                0,
                await attempt {
                    try await client.call(
                        Shelf.keep, on: TestService.name, at: ShelfTree.path, .byte(1), timeout: nil, wait: wait)
                })
        }
        #expect(await eventually { service.object.kept.count == 1 })
        #expect(answers.all.isEmpty)
        wait.giveUp()
        wait.giveUp()
        #expect(await eventually { answers.all.count == 1 })
        #expect(answers.all.first?.1 == "org.freedesktop.DBus.Error.Disconnected")
        #expect(try await client.call(Shelf.answerKept, on: TestService.name, at: ShelfTree.path, ()) == 1)
        #expect(try await client.call(Shelf.add, on: TestService.name, at: ShelfTree.path, (1, 2)) == 3)
        // A call that is given up before it is made is not made.
        let never = await attempt { try await client.call(Shelf.keep, on: TestService.name, at: ShelfTree.path, .byte(1), wait: wait) }
        #expect(never == "org.freedesktop.DBus.Error.Disconnected" && service.object.kept.isEmpty)
    }

    @Test @BusActor func `is not made if D-Bus would cut a text, or cannot pass a descriptor on`() async throws {
        let service = try await TestService()
        let client = try service.client()
        let cut = DBusError.invalidArgs("a text in the call of Touch has a NUL, which D-Bus does not carry")
        await #expect(throws: cut) { try await client.call(Shelf.touch, on: TestService.name, at: ShelfTree.path, "a\0b") }
        #expect(throws: cut) { try client.tell(Shelf.touch, on: TestService.name, at: ShelfTree.path, "a\0b") }
        let give = MethodOf(Shelf.interface, "Touch", in: FileDescriptor.self)
        await #expect(throws: DBusError.noDescriptor("the call of Touch")) {
            try await client.call(give, on: TestService.name, at: ShelfTree.path, FileDescriptor(-1))
        }
        #expect(try await client.call(Shelf.add, on: TestService.name, at: ShelfTree.path, (1, 2)) == 3)
        #expect(service.object.calls == ["Add"])
    }

    @Test @BusActor func `any time-out is taken`() async throws {
        let service = try await TestService()
        let client = try service.client()
        for timeout in [nil, .seconds(Int64.max), .seconds(-5), .milliseconds(-1), .nanoseconds(1)] as [Duration?] {
            let answer = await attempt {
                "\(try await client.call(Shelf.add, on: TestService.name, at: ShelfTree.path, (1, 2), timeout: timeout))"
            }
            #expect(answer == "3" || answer == "org.freedesktop.DBus.Error.NoReply")
        }
    }

    @Test @BusActor func `an answer of other types than declared is an error`() async throws {
        let service = try await TestService()
        let client = try service.client()
        let wrong = MethodOf(Shelf.interface, "Add", in: UInt32.self, UInt32.self, out: String.self)
        await #expect(throws: DBusError.invalidArgs("\(TestService.name) answered Add with (u), not (s)")) {
            try await client.call(wrong, on: TestService.name, at: ShelfTree.path, (1, 2))
        }
    }

    @Test @BusActor func `a missing program, or a missing method, is an error`() async throws {
        let service = try await TestService()
        let client = try service.client()
        for (destination, path, name) in [
            ("org.todoku.Nobody", ShelfTree.path, "ServiceUnknown"), (BusDaemon.name, BusDaemon.path, "UnknownInterface"),
            (TestService.name, ObjectPath("/other"), "UnknownObject"),
        ] {
            let answer = await attempt { "\(try await client.call(Shelf.add, on: destination, at: path, (1, 2)))" }
            #expect(answer == "org.freedesktop.DBus.Error.\(name)")
        }
        #expect(try await client.call(BusDaemon.nameHasOwner, on: BusDaemon.name, at: BusDaemon.path, TestService.name))
    }
}

/// The results of calls, in the order of their arrival.
@BusActor final class Answers: Sendable {
    private(set) var all: [(Int, String)] = []
    func add(_ number: Int, _ answer: String) { all.append((number, answer)) }
}

/// The text that `body` returns, or the name of its error.
@BusActor func attempt(_ body: @BusActor () async throws -> String) async -> String {
    do { return try await body() } catch { return (error as? DBusError)?.name ?? "\(error)" }
}

func readlinkText(_ path: String) -> String {
    var target = [CChar](repeating: 0, count: 4096)
    let count = readlink(path, &target, 4095)
    return String(decoding: target.prefix(max(0, count)).map { UInt8(bitPattern: $0) }, as: UTF8.self)
}
