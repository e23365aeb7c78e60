internal import DBus
internal import DownloadModel
internal import DownloaderInterface
internal import EventLoop
internal import Glibc
internal import TestSupport
internal import Testing

@Suite struct `A call about many downloads` {
    private static let count = 2000

    /// Queues `count` downloads, which get no answer from their server.
    private func queue(_ running: Running, _ server: ScriptedServer) async throws -> [ObjectPath] {
        let items = (0..<Self.count).map { (server.url("/\($0)"), [:] as [String: Variant]) }
        return try await running.client.batch(items, ["directory": .string(running.world.folder), "notify": .string("never")]).1
    }

    /// Sends `call` and a `List`. Calls of one connection are answered in order, unless a call is carried out in slices. The service is
    /// stopped until both calls are sent. Otherwise it could carry out all slices before a late `List`.
    ///
    /// - Returns: whether the `List` found a download in one of `states`.
    private func lists(
        _ states: [String], rightAfter call: String, of interface: String = Manager.interface, with arguments: [Variant] = [],
        _ bus: PrivateBus, _ daemon: Child
    ) async -> Bool {
        await onThread {
            let caller = RawCaller(bus)
            daemon.signal(SIGSTOP)
            caller.call(BusName.managerPath.value, interface, call, arguments)
            let filter: Variant = .dictionary(["states": .strings(states), "limit": .uint32(1)])
            let list = caller.call(BusName.managerPath.value, Manager.interface, "List", [filter])
            caller.pass()
            daemon.signal(SIGCONT)
            // The first four bytes are the length of the array of paths.
            return caller.answer(to: list)?.body.prefix(4).contains { $0 != 0 } ?? false
        }
    }

    /// How many downloads a signal has told of before `call` is answered; nil if it is not. A connection receives both in their order,
    /// however late it is read.
    private func told(before call: String, _ bus: PrivateBus) async -> Int? {
        await onThread { () -> Int? in
            let caller = RawCaller(bus)
            let rule = "type='signal',sender='\(BusName.service)',member='PropertiesChanged'"
            let driver = "org.freedesktop.DBus"
            _ = caller.answer(to: caller.call("/org/freedesktop/DBus", driver, "AddMatch", [.string(rule)], to: driver))
            let serial = caller.call(BusName.managerPath.value, Manager.interface, call)
            caller.flush()
            var paths: Set<String> = []
            while let message = caller.read() {
                if message.replySerial == serial { return paths.count }
                if message.kind == 4 { paths.insert(message.path) }
            }
            return nil
        }
    }

    @Test func `by PauseAll and ResumeAll is answered before all signals, visible at once, and survives a kill`() async throws {
        let gate = Gate()
        let server = ScriptedServer { _, _ in gate.wait() }
        defer { gate.open() }
        let running = try await Running.start()
        let members = try await queue(running, server)
        let (first, last) = (members[0], members[Self.count - 1])
        #expect(await eventually { (try? await running.client.get(Download.state, at: first)) == "active" })
        let tally = try await Tally(running)
        let held = try #require(await told(before: "PauseAll", running.world.bus))
        #expect(held < Self.count, "it was answered behind all that it told")
        for path in [first, last] { #expect(try await running.client.get(Download.waitReason, at: path) == "paused-all") }
        #expect(try await running.client.list(["states": .strings(["queued", "active"])]) == [])
        await running.world.kill(running.daemon)
        _ = await running.world.start()
        for path in [first, last] { #expect(try await running.client.get(Download.waitReason, at: path) == "paused-all") }
        #expect(try await running.client.list(["states": .strings(["queued", "active"])]) == [])

        await tally.forget()
        let released = try #require(await told(before: "ResumeAll", running.world.bus))
        #expect(released < Self.count, "it was answered behind all that it told")
        #expect(try await running.client.get(Download.waitReason, at: last) != "paused-all")
        #expect(await eventually { await tally.released.count == Self.count }, "not all were told")
        // Beside the four, two more may run once the server has been silent for ten seconds.
        #expect(await eventually { (try? await running.client.get(Manager.active)).map { (4...6).contains($0) } == true })
        // Reversed in the middle, the last call counts for each download.
        for _ in 0..<2 {
            try await tally.call(Manager.pauseAll)
            try await tally.call(Manager.resumeAll)
        }
        try await tally.call(Manager.pauseAll)
        #expect(try await running.client.list(["states": .strings(["queued", "active"])]) == [])
        #expect(await eventually { await tally.held.count == Self.count }, "not all were told")
    }

    @Test func `is refused where 256 long answers of its caller wait already, and no other caller is refused`() async throws {
        let running = try await manyPaused()
        let (bus, daemon) = (running.world.bus, running.daemon)
        let (errors, others) = await onThread { () -> ([String], [String]) in
            let (caller, other) = (RawCaller(bus), RawCaller(bus))
            for one in [caller, other] { one.identify() }
            // The service sees none of the calls before all are on their way: it would answer the first ones where we are slow.
            daemon.signal(SIGSTOP)
            let count = caller.askMuch(descriptions: 20, lists: 2000)
            for _ in 0..<20 { other.call(BusName.managerPath.value, Manager.interface, "List", [.dictionary(["limit": .uint32(1)])]) }
            other.pass()
            daemon.signal(SIGCONT)
            let others = (0..<20).compactMap { _ in other.readAnswer()?.errorName }
            return ((0..<count).compactMap { _ in caller.readAnswer()?.errorName }, others)
        }
        #expect(errors.count == 2020 && Set(errors) == ["", todokuError("LimitExceeded")], "\(Set(errors))")
        #expect(errors.count { $0.isEmpty } >= Limits.longAnswersPerCaller)
        #expect(others == Array(repeating: "", count: 20))
        #expect(running.daemon.isRunning)
    }

    @Test func `is refused where a thousand long answers of all callers wait already, and those are answered`() async throws {
        let running = try await manyPaused()
        let (bus, daemon) = (running.world.bus, running.daemon)
        let answers = await onThread { () -> [RawCaller.Incoming] in
            let callers = (0..<6).map { _ in RawCaller(bus) }
            for one in callers { one.identify() }
            daemon.signal(SIGSTOP)
            let counts = callers.map { $0.askMuch(descriptions: 4, lists: 250) }
            daemon.signal(SIGCONT)
            return zip(callers, counts).flatMap { caller, count in (0..<count).compactMap { _ in caller.readAnswer() } }
        }
        #expect(answers.count == 6 * 254)
        let refusals = answers.filter { !$0.errorName.isEmpty }
        #expect(refusals.allSatisfy { $0.errorName == todokuError("LimitExceeded") })
        #expect(refusals.contains { $0.text.hasPrefix("\(Limits.longAnswers) long answers") })
        #expect(answers.count - refusals.count >= Limits.longAnswers)
        #expect(running.daemon.isRunning)
    }

    private func manyPaused() async throws -> Running {
        let running = try await Running.start()
        let items = (0..<Self.count).map { ("http://127.0.0.1:1/\($0)", [:] as [String: Variant]) }
        _ = try await running.client.batch(items, ["directory": .string(running.world.folder), "start": .bool(false)])
        return running
    }

    @Test func `by CancelAll and ClearEnded delays no other call, and is completed by the next start`() async throws {
        let gate = Gate()
        let server = ScriptedServer { _, _ in gate.wait() }
        defer { gate.open() }
        let running = try await Running.start()
        let last = try await queue(running, server)[Self.count - 1]
        let tally = try await Tally(running)
        let isCancelLate = await lists(["queued"], rightAfter: "CancelAll", running.world.bus, running.daemon)
        #expect(isCancelLate, "another call waited until all were cancelled")
        #expect(await eventually { await tally.ended > 0 })
        await running.world.kill(running.daemon)
        let daemon = await running.world.start()
        let later = try await running.client.download(server.url("/later"), running.options())
        #expect(await eventually { (try? await running.client.get(Manager.remaining)) == 1 })
        #expect(try await running.client.get(Download.state, at: last) == "cancelled")
        #expect(try await running.client.get(Download.state, at: later) != "cancelled")
        // A download retried since then no longer counts as cancelled.
        try await running.client.retry(last)
        #expect(try await running.client.get(Download.state, at: last) != "cancelled")
        try await running.client.call(Manager.cancelAll, ())
        for path in [last, later] { #expect(try await running.client.get(Download.state, at: path) == "cancelled") }

        await tally.forget()
        let isClearLate = await lists(["cancelled"], rightAfter: "ClearEnded", running.world.bus, daemon)
        #expect(isClearLate, "another call waited until all were off the list")
        #expect(await eventually { await tally.removed == Self.count + 1 })
        #expect(try await running.client.list() == [])
    }

    @Test func `by a click that retries a batch delays no other call`() async throws {
        let gate = Gate()
        let server = ScriptedServer { request, reply in
            if request.number < Self.count { reply.respond(404) } else { gate.wait() }
        }
        defer { gate.open() }
        let running = try await Running.start()
        let items = (0..<Self.count).map { (server.url("/\($0)"), [:] as [String: Variant]) }
        let options: [String: Variant] = ["directory": .string(running.world.folder), "notify": .string("never")]
        let batch = try await running.client.batch(items, options).0
        #expect(try await running.client.wait(batch: batch) == [0, UInt32(Self.count), 0])
        let click: [Variant] = [.string("retry"), .array(of: "v", [.variant(.objectPath(batch))]), .dictionary([:])]
        let isLate = await lists(
            ["failed"], rightAfter: "ActivateAction", of: Application.interface, with: click, running.world.bus, running.daemon)
        #expect(isLate, "another call waited until all were retried")
        #expect(try await eventually { try await running.client.list(["states": .strings(["failed"])]).isEmpty })
    }

    @Test func `by DownloadBatch may come to its end while a long answer is written`() async throws {
        let running = try await Running.start()
        let client = running.client
        let options: [String: Variant] = ["directory": .string(running.world.folder), "start": .bool(false)]
        func items(_ count: Int) -> [(String, [String: Variant])] { (0..<count).map { ("http://127.0.0.1:1/\($0)", [:]) } }
        _ = try await client.batch(items(10_000), options)
        let other = try await running.world.client()
        for round in 2...3 {
            // The rows of the batch are on disk in the middle of one of the answers.
            async let added = client.batch(items(10_000), options).1
            while try await other.get(Manager.remaining) < UInt32(round) * 10_000 {}
            for _ in 0..<12 { _ = try await other.call(Manager.describe, (["limit": .uint32(1000)], [])) }
            #expect(try await added.count == 10_000)
        }
        #expect(try await client.get(Manager.remaining) == 30_000)
    }

    @Test func `by DownloadBatch is read and announced in portions, in the order of its caller, all or nothing`() async throws {
        let running = try await Running.start()
        let (bus, folder, daemon) = (running.world.bus, running.world.folder, running.daemon)
        @Sendable func items(_ last: String) -> Variant {
            let urls = (1..<Self.count).map { "http://127.0.0.1:1/\($0)" } + [last]
            return .array(of: "(sa{sv})", urls.map { .structure([.string($0), .dictionary(["tag": .string($0)])]) })
        }
        let options: Variant = .dictionary(["directory": .string(folder), "start": .bool(false)])
        let asked: [Variant] = [.string(Manager.remaining.interface), .string(Manager.remaining.name)]
        let (isLate, isInOrder) = await onThread { () -> (Bool, Bool) in
            let caller = RawCaller(bus)
            func call(_ member: String, _ arguments: [Variant]) -> UInt32 {
                caller.call(BusName.managerPath.value, Manager.interface, member, arguments)
            }
            // Calls of one connection are answered in order, unless a call is carried out in slices. The service sees the first one when
            // both are on their way: it would have read all items where the second comes late.
            daemon.signal(SIGSTOP)
            let bad = call("DownloadBatch", [items("ftp://127.0.0.1/"), options])
            let get = caller.call(BusName.managerPath.value, Standard.properties, "Get", asked)
            caller.pass()
            daemon.signal(SIGCONT)
            let first = caller.readAnswer()
            let second = caller.readAnswer()
            let isBlamed = second?.text.hasPrefix("Item \(Self.count - 1): ") == true
            let isLate = first?.replySerial == get && second?.replySerial == bad && isBlamed
            // Downloads that the same caller queues later come later.
            let good = call("DownloadBatch", [items("http://127.0.0.1:1/last"), options])
            let single = call("Download", [.string("http://127.0.0.1:1/single"), options])
            caller.flush()
            let answers = [caller.readAnswer(), caller.readAnswer()].map { $0?.replySerial }
            return (isLate, answers == [good, single])
        }
        #expect(isLate, "another call waited until all items were read")
        #expect(isInOrder, "the download came before the batch that was asked for earlier")
        #expect(try await running.client.get(Manager.remaining) == UInt32(Self.count) + 1)
        let batch = try #require(try await running.client.call(Manager.listBatches, [:]).first)
        #expect(try await running.client.counts(batch) == [UInt32(Self.count), 0, 0, 0])
        let newest = try #require(try await running.client.list(["newest-first": .bool(true), "limit": .uint32(1)]).first)
        #expect(try await running.client.get(Download.url, at: newest) == "http://127.0.0.1:1/single")
        #expect(try await running.client.get(Download.batch, at: newest) == ObjectPath("/"))
        #expect(await running.client.signals.has("DownloadAdded", count: Self.count + 1), "not all were told")
        let order = await running.client.signals.seen.map(\.member).filter { $0.hasSuffix("Added") }
        #expect(order.first == "BatchAdded")
        // Describe reports each download as the download itself does.
        let described = try await running.client.call(Manager.describe, (["limit": .uint32(2)], []))
        #expect(described.count == 2)
        for row in described { #expect(try await running.client.all(row.fields.0) == row.fields.1) }
    }
}

@Suite struct `A long answer` {
    private static let count = 1000

    /// While 1,000 downloads are described in steps, another client changes them. A client that reads the messages in order never mistakes
    /// an old value for the last one.
    @Test func `is not older than the signals before it, and lets other calls through`() async throws {
        let running = try await Running.start()
        let items = (0..<Self.count).map { ("http://127.0.0.1:1/\($0)", ["start": .bool(false)] as [String: Variant]) }
        let paths = try await running.client.batch(items, ["directory": .string(running.world.folder), "notify": .string("never")]).1
        for round in 1...10 {
            let (stale, described, isLate) = await onThread { [bus = running.world.bus, daemon = running.daemon] in
                let (asking, changing) = (RawCaller(bus), RawCaller(bus))
                let rule = "type='signal',sender='\(BusName.service)',member='PropertiesChanged'"
                let bus = "org.freedesktop.DBus"
                _ = asking.answer(to: asking.call("/org/freedesktop/DBus", bus, "AddMatch", [.string(rule)], to: bus))
                let manager = BusName.managerPath.value
                // The service is stopped until both calls are sent. Otherwise it could write the whole answer before a late second call.
                daemon.signal(SIGSTOP)
                let describe = asking.call(manager, Manager.interface, "Describe", [.dictionary(key: "s", value: "v", []), .strings([])])
                let get = asking.call(manager, Standard.properties, "Get", [.string(Manager.interface), .string("Paused")])
                asking.pass()
                daemon.signal(SIGCONT)
                // Begin with the last download, because it is described last.
                for path in paths.reversed() {
                    changing.call(
                        path.value, Standard.properties, "Set",
                        [.string(Download.interface), .string("Priority"), .variant(.int32(Int32(round)))], wantsReply: false)
                }
                changing.flush()
                var told: Set<String> = []
                var isGetAnswered = false
                while let message = asking.read() {
                    // A signal of the round before may be late.
                    if message.kind == 4, Self.priority(in: message.body, from: 0)?.value == Int32(round) { told.insert(message.path) }
                    if message.replySerial == get { isGetAnswered = true }
                    guard message.replySerial == describe else { continue }
                    let priorities = Self.priorities(in: message.body)
                    let stale = told.filter { priorities[$0] != Int32(round) }
                    return (stale.sorted(), priorities.count, isGetAnswered)
                }
                return ([], 0, false)
            }
            #expect(stale == [] && described == Self.count)
            #expect(isLate, "the other call waited for the long answer")
        }
    }

    /// The priority of each path in an answer of Describe. The queue order, and so the order of the paths, may have changed.
    private static func priorities(in body: [UInt8]) -> [String: Int32] {
        var (at, found) = (0, [String: Int32]())
        let downloads = "\(BusName.managerPath.value)/download/"
        while let start = place(of: downloads, in: body, from: at), let end = body[start...].firstIndex(of: 0) {
            guard let priority = priority(in: body, from: end) else { break }
            found[String(decoding: body[start..<end], as: UTF8.self)] = priority.value
            at = priority.end
        }
        return found
    }

    /// The value of the next property `Priority`, and where it ends.
    private static func priority(in body: [UInt8], from start: Int) -> (value: Int32, end: Int)? {
        guard let name = place(of: "Priority\0\u{1}i\0", in: body, from: start) else { return nil }
        let at = (name + 12 + 3) & ~3  // behind name and signature, aligned
        return (Int32(bitPattern: (0..<4).reduce(0) { $0 | UInt32(body[at + $1]) << (8 * $1) }), at + 4)
    }

    private static func place(of text: String, in body: [UInt8], from start: Int) -> Int? {
        let wanted = Array(text.utf8)
        guard body.count >= wanted.count else { return nil }
        return (start..<max(start, body.count - wanted.count + 1)).first {
            body[$0] == wanted[0] && body[$0..<($0 + wanted.count)].elementsEqual(wanted)
        }
    }
}

extension RawCaller {
    /// Returns once the service knows the caller. Until then, it holds the caller's calls.
    fileprivate func identify() { _ = answer(to: callLast()) }

    /// Sends calls with long answers, those that take longest first.
    ///
    /// - Returns: the number of calls.
    fileprivate func askMuch(descriptions: Int, lists: Int) -> Int {
        let manager = BusName.managerPath.value
        for _ in 0..<descriptions { call(manager, Manager.interface, "Describe", [.dictionary([:]), .strings([])]) }
        for _ in 0..<(lists / 2) {
            call(manager, Manager.interface, "List", [.dictionary(["limit": .uint32(1)])])
            call(manager, Manager.interface, "ListBatches", [.dictionary([:])])
        }
        pass()
        return descriptions + lists
    }

    /// Sends all calls, and returns once the bus has passed them on: it takes the messages of a connection in order.
    fileprivate func pass() {
        _ = answer(to: call("/org/freedesktop/DBus", "org.freedesktop.DBus", "GetId", to: "org.freedesktop.DBus"))
    }
}

/// A client that counts the signals of thousands of downloads without keeping them.
@BusActor private final class Tally {
    let connection: Connection
    /// The downloads whose last signal says that they wait for ResumeAll (`held`), or that they do not (`released`).
    private(set) var held: Set<String> = []
    private(set) var released: Set<String> = []
    private(set) var ended = 0
    private(set) var removed = 0

    init(_ running: Running) async throws {
        connection = try Connection.open(address: running.world.bus.address)
        _ = connection.subscribe(MatchRule(sender: BusName.service)) { [weak self] in self?.take(Seen($0)) }
        // The bus has the match rule once it has answered a later call.
        _ = try await connection.call(BusDaemon.nameHasOwner, on: BusDaemon.name, at: BusDaemon.path, BusName.service)
    }

    private func take(_ seen: Seen) {
        switch seen.member {
        case "DownloadEnded": ended += 1
        case "DownloadRemoved": removed += 1
        case "PropertiesChanged":
            guard let reason = seen.changed?["WaitReason"]?.string else { return }
            if reason == "paused-all" {
                held.insert(seen.path)
                released.remove(seen.path)
            } else {
                released.insert(seen.path)
                held.remove(seen.path)
            }
        default: break
        }
    }

    func forget() { (held, released, ended, removed) = ([], [], 0, 0) }

    func call(_ method: MethodOf<Void, Void>) async throws {
        try await connection.call(method, on: BusName.service, at: BusName.managerPath, (), timeout: .seconds(60))
    }
}
