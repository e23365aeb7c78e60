internal import DBus
internal import DownloadModel
internal import DownloaderInterface
internal import EventLoop
internal import Glibc
internal import TestSupport
internal import Testing

typealias BatchAnswer = (ObjectPath, [ObjectPath])

extension Client {
    func batch(_ items: [(String, [String: Variant])], _ options: [String: Variant]) async throws -> BatchAnswer {
        try await untilFolderAnswers { try await call(Manager.downloadBatch, (items.map { Structure($0.0, $0.1) }, patient(options))) }
    }
    /// Waits until the batch has ended, which may take as long as the disk does.
    func wait(batch: ObjectPath) async throws -> [UInt32] {
        let (finished, failed, cancelled) = try await call(Batch.wait, at: batch, [:], timeout: .seconds(180))
        return [finished, failed, cancelled]
    }
    /// The numbers of all batches.
    func batchNumbers() async throws -> [String] {
        let document = try? await call(Standard.introspect, at: ObjectPath(BusName.batchesPath), ())
        return Elements(document ?? "").all.filter { $0.name == "node" }.compactMap { $0.attributes["name"] }
    }
    /// The properties Remaining, Succeeded, Failed, Cancelled.
    func counts(_ batch: ObjectPath) async throws -> [UInt32] {
        let all = try await call(Standard.getAll, at: batch, Batch.interface)
        return ["Remaining", "Succeeded", "Failed", "Cancelled"].compactMap { all[$0]?.uint32 }
    }
    func sums(_ batch: ObjectPath) async throws -> (received: UInt64, total: Int64, fraction: Double) {
        let all = try await call(Standard.getAll, at: batch, Batch.interface)
        return (all["Received"].flatMap(UInt64.init) ?? 0, all["Total"].flatMap(Int64.init) ?? 0, all["Fraction"].flatMap(Double.init) ?? 0)
    }
}

extension Running {
    /// Queues items without options of their own.
    func batch(_ urls: [String], _ more: [String: Variant] = [:]) async throws -> BatchAnswer {
        try await client.batch(urls.map { ($0, [:]) }, options(more))
    }
}

private let paused: [String: Variant] = ["start": .bool(false)]
private let nowhere = "http://127.0.0.1:1"

@Suite struct `Batches` {
    /// The real server answers a file of this size before the service has worked through the answer before it.
    @Test func `of many small files fetch each once, by few connections`() async throws {
        let nginx = await Nginx(
            extra: "access_log access.log short; access_log connections.log connection;",
            http: "log_format connection '$connection'; keepalive_requests 100000;")
        nginx.put("small.bin", patternBytes(16 * 1024))
        let running = try await Running.start()
        let (batch, _) = try await running.batch((1...500).map { nginx.url("/small.bin?\($0)") }, ["if-exists": .string("rename")])
        #expect(try await running.client.wait(batch: batch) == [500, 0, 0])
        #expect(await eventually { nginx.log.count >= 500 })  // written once the response is out
        #expect(nginx.log.count == 500)
        let connections = Set((readFile(nginx.folder("connections.log")) ?? []).split(separator: UInt8(ascii: "\n")))
        #expect((1...8).contains(connections.count), "\(connections.count) connections for 500 files")
    }

    @Test func `of many members report one that ends at once only with its end, and any other as ever`() async throws {
        let gate = Gate()
        let server = ScriptedServer { request, reply in
            guard request.path == "/slow" else { return reply.respond(200, text: "hello") }
            reply.head(200, length: 10)
            reply.send("hello")
            gate.wait()
            reply.send("again")
        }
        let running = try await Running.start()
        let signals = running.client.signals
        var brief = 0
        // On a busy machine, each member of a batch may take longer than a quarter of a second.
        for round in 1...20 where brief == 0 {
            let (batch, members) = try await running.batch((1...17).map { server.url("/\(round)-\($0)") })
            #expect(try await running.client.wait(batch: batch) == [17, 0, 0])
            #expect(await signals.has("Completed", at: batch))
            for member in members {
                let (states, progress) = await (signals.states(of: member), signals.of(member).compactMap(\.progress))
                #expect(states.last == "finished" && states.count { $0 == "finished" } == 1, "\(states)")
                if states.contains("active") || states.contains("verifying") {
                    #expect(progress.last?.received == 5, "\(states)")
                } else if progress.isEmpty {
                    brief += 1
                }
                let rest = await signals.of(member).filter { $0.changed == nil && $0.progress == nil }.map(\.member)
                #expect(rest == ["Finished", "Completed"])
            }
        }
        #expect(brief > 0)
        let (batch, members) = try await running.batch((1...17).map { server.url("/\($0)") } + [server.url("/slow")])
        #expect(await signals.hasBeen("active", members[17]))
        #expect(await signals.has("Progress", at: members[17]))
        // The member is announced again, and ends before a quarter of a second has passed.
        try await running.client.set(Download.priority, at: members[17], 1)
        gate.open()
        #expect(try await running.client.wait(batch: batch) == [18, 0, 0])
        #expect(await signals.has("Completed", at: batch))
        let progress = await signals.of(members[17]).compactMap(\.progress)
        #expect(progress.last?.received == 10 && progress.reduce(0) { $0 + $1.written } == 10)
    }

    /// The host takes one connection, by its rule or by `MaxPerHost`.
    @Test(arguments: [true, false])
    func `of small files over HTTP 2 have many active at a time on one connection, which counts as one at the host`(
        isRule: Bool
    ) async throws {
        #expect(try await inTime { try await haveManyActive(isRule: isRule) }, "each time, a file had ended before the last one began")
    }

    /// A file takes 16 seconds.
    ///
    /// - Returns: whether all files had begun before the first had ended.
    private func haveManyActive(isRule: Bool) async throws -> Bool {
        let nginx = await Nginx(
            limitRate: "1k", extra: "access_log connections.log connection;", http: "log_format connection '$connection';")
        nginx.put("small.bin", patternBytes(16 * 1024))
        let running = try await Running.start(extra: ["SSL_CERT_FILE": nginx.authority])
        if isRule {
            try await running.client.call(Manager.setHostRule, ("127.0.0.1", ["connections": .uint32(1)]))
        } else {
            try await running.client.set(Manager.maxPerHost, 1)
        }
        let (batch, _) = try await running.client.batch(
            (1...20).map { (nginx.secureURL("/small.bin?\($0)"), ["size": .uint64(16 * 1024)]) },
            running.options(["if-exists": .string("rename")]))
        // Told by a signal, because a call on a busy machine may come when some have ended.
        #expect(await running.client.signals.until { $0.contains { $0.changed?["Active"] == .uint32(20) || $0.ended != nil } })
        guard await running.client.signals.seen.contains(where: { $0.changed?["Active"] == .uint32(20) }) else { return false }
        #expect(try await running.client.wait(batch: batch) == [20, 0, 0])
        func connections() -> [Substring] {
            String(decoding: readFile(nginx.folder("connections.log")) ?? [], as: UTF8.self).split(separator: "\n")
        }
        #expect(await eventually { connections().count >= 20 })
        #expect(Set(connections()).count == 1)
        return true
    }

    @Test func `of large files over HTTP 2 keep to MaxPerHost`() async throws {
        let nginx = await Nginx(limitRate: "512k")
        nginx.put("large.bin", patternBytes(1 << 20))
        let running = try await Running.start(extra: ["SSL_CERT_FILE": nginx.authority])
        try await running.client.set(Manager.maxPerHost, 2)
        let (batch, _) = try await running.client.batch(
            (1...4).map { (nginx.secureURL("/large.bin?\($0)"), [:]) }, running.options(["if-exists": .string("rename")]))
        #expect(try await running.client.wait(batch: batch) == [4, 0, 0])
        let seen = await running.client.signals.seen
        #expect(seen.compactMap { $0.changed?["Active"]?.uint32 }.max() == 2)
    }

    @Test func `are announced when they come and go, and found again`() async throws {
        let running = try await Running.start()
        let client = running.client
        func list(_ filter: [String: Variant] = [:]) async throws -> [ObjectPath] { try await client.call(Manager.listBatches, filter) }
        #expect(try await list() == [])
        let (first, members) = try await running.batch(["\(nowhere)/a", "\(nowhere)/b"], paused)
        let (second, _) = try await running.batch(["\(nowhere)/c"], paused.merging(["app": .string("org.example.App")]) { $1 })
        #expect(await client.signals.has("BatchAdded", count: 2))
        #expect(await client.signals.has("DownloadAdded", count: 3))
        #expect(await client.signals.seen.compactMap { Manager.batchAdded.read($0.message) } == [first, second])
        // The batch is announced before its members, so that a follower of the members knows the batch.
        let order = await client.signals.seen.map(\.member).filter { $0.hasSuffix("Added") }
        #expect(order == ["BatchAdded", "DownloadAdded", "DownloadAdded", "BatchAdded", "DownloadAdded"])
        #expect(try await list() == [first, second])
        #expect(try await list(["newest-first": .bool(true)]) == [second, first])
        #expect(try await list(["newest-first": .bool(true), "after": .objectPath(second)]) == [first])
        #expect(try await list(["after": .objectPath(first)]) == [second])
        #expect(try await list(["limit": .uint32(1)]) == [first])
        #expect(try await list(["app": .string("org.example.App")]) == [second])
        try await client.call(Batch.cancel, at: second, ())
        #expect(try await list(["ended": .bool(true)]) == [second])
        #expect(try await list(["ended": .bool(false)]) == [first])
        for (filter, name) in [
            (["limit": .uint32(0)], "InvalidOption"), (["limit": .uint32(1001)], "InvalidOption"), (["tag": .string("t")], "InvalidOption"),
            (["ended": .string("yes")], "InvalidOption"), (["after": .objectPath(members[0])], "NoSuchObject"),
        ] as [([String: Variant], String)] {
            let error = await thrown { try await list(filter) }
            #expect(error?.name == todokuError(name), "\(filter): \(String(describing: error))")
        }
        // A batch is removed by its own Remove, or with its last member.
        try await client.call(Batch.remove, at: second, false)
        for member in members { try await client.call(Download.remove, at: member, false) }
        #expect(await client.signals.has("BatchRemoved", count: 2))
        #expect(await client.signals.seen.compactMap { Manager.batchRemoved.read($0.message) } == [second, first])
        #expect(try await list() == [])
    }
}

@Suite struct `A batch` {
    @Test func `is queued by one call: the answer, then each DownloadAdded in the order of the items`() async throws {
        let running = try await Running.start()
        let client = running.client
        let (batch, members) = try await client.batch(
            [("\(nowhere)/a", [:]), ("\(nowhere)/b", ["filename": .string("x"), "tag": .string("own")]), ("\(nowhere)/c", [:])],
            running.options(paused.merging(["tag": .string("all"), "title": .string("Album")]) { $1 }))
        #expect(batch.value == "\(BusName.batchesPath)/1")
        #expect(members.map(\.value) == (2...4).map { "\(BusName.downloadsPath)/\($0)" })
        #expect(await client.signals.has("DownloadAdded", count: 3))
        let added = await client.signals.seen.compactMap { Manager.downloadAdded.read($0.message) }
        #expect(added == members)
        #expect(try await client.counts(batch) == [3, 0, 0, 0])
        #expect(try await client.get(Batch.title, at: batch) == "Album")
        // The options of an item override those of the batch.
        var tags: [String] = []
        for member in members { tags.append(try await client.get(Download.tag, at: member)) }
        #expect(tags == ["all", "own", "all"])
        #expect(try await client.get(Download.fileName, at: members[1]) == "x")
        for member in members {
            #expect(try await client.get(Download.batch, at: member) == batch)
            #expect(try await client.get(Download.state, at: member) == "paused")
        }
        // Numbers continue after the batch.
        #expect(try await running.download("\(nowhere)/d", paused).value == "\(BusName.downloadsPath)/5")
        #expect(try await client.list(["batch": .objectPath(batch)]) == members)
    }

    @Test func `puts each file into its own folder, where two have names that only look the same`() async throws {
        let running = try await Running.start()
        let server = ScriptedServer { request, reply in reply.respond(200, text: request.path) }
        let folders = ["caf\u{E9}", "cafe\u{301}"].map { running.world.bus.folder.makeFolder($0) }
        let items = folders.enumerated().map { (server.url("/\($0)"), ["directory": Variant.string($1)]) }
        let (_, members) = try await running.client.batch(items, [:])
        for (index, member) in members.enumerated() {
            let path = try await running.client.call(Download.wait, at: member, [:])
            #expect(Array(path.utf8) == Array("\(folders[index])/\(index)".utf8))
            #expect(readFile("\(folders[index])/\(index)") == Array("/\(index)".utf8))
        }
        #expect(folders.map { listFolder($0) } == [["0"], ["1"]])
    }

    @Test func `is refused as a whole for one bad item, whose index is named`() async throws {
        let running = try await Running.start()
        let client = running.client
        let hidden = running.world.bus.folder.makeFolder(".hidden")
        func item(_ options: [String: Variant] = [:], _ url: String = "\(nowhere)/x") -> (String, [String: Variant]) { (url, options) }
        let bad: [((String, [String: Variant]), String)] = [
            (item([:], "no url"), "InvalidUrl"), (item([:], "ftp://example.org/a"), "UnsupportedScheme"),
            (item([:], "\(nowhere)/" + String(repeating: "a", count: 8192)), "LimitExceeded"),
            (item(["priority": .string("high")]), "InvalidOption"), (item(["nothing": .bool(true)]), "InvalidOption"),
            (item(["token": .string("t")]), "InvalidOption"),  // without app
            (item(["size": .uint64(5), "max-size": .uint64(4)]), "InvalidOption"),
            (item(["directory": .string("relative")]), "InvalidOption"),
            (item(["directory": .string("/no/such/folder")]), "InvalidOption"),
            (item(["directory": .string(hidden)]), "NotAllowed"), (item(["directory": .string("/proc/sys")]), "PermissionDenied"),
            (item(["metadata": .dictionary(["a": .string(String(repeating: "x", count: 65536))])]), "LimitExceeded"),
        ]
        for (index, (item, name)) in bad.enumerated() {
            var items = (0..<20).map { ("\(nowhere)/\($0)", [:] as [String: Variant]) }
            items[index] = item
            let error = await thrown { try await client.batch(items, running.options(paused)) }
            #expect(error?.name == todokuError(name) && error?.message.hasPrefix("Item \(index): ") == true, "\(item): \(error as Any)")
            #expect(error.map(isSentence) == true)
        }
        // A refusal of the batch's own options has no index.
        for (options, name) in [
            (["app": Variant.string("org.example.App"), "token": .string("t")], "InvalidOption"), (["start": .uint32(1)], "InvalidOption"),
            (["directory": .string("/no/such/folder")], "InvalidOption"),
        ] {
            let error = await thrown { try await client.batch([("\(nowhere)/a", [:])], options) }
            #expect(error?.name == todokuError(name), "\(options): \(error as Any)")
        }
        let none = await thrown { try await client.batch([], [:]) }
        #expect(none?.name == todokuError("InvalidOption") && none.map(isSentence) == true, "\(none as Any)")
        let many = await thrown { try await client.batch(Array(repeating: ("\(nowhere)/a", [:]), count: 10_001), [:]) }
        #expect(many?.name == todokuError("LimitExceeded") && many?.message.contains("10000") == true, "\(many as Any)")
        // Nothing was added or announced, and no number was used.
        #expect(try await client.list() == [])
        #expect(await client.signals.seen.isEmpty)
        #expect(try await running.batch(["\(nowhere)/a"], paused).0.value == "\(BusName.batchesPath)/1")
    }

    @Test func `has its place among the calls, whatever folders it names`() async throws {
        let running = try await Running.start()
        let other = running.world.bus.folder.makeFolder("other")
        let pipeline = Pipeline()
        let client = running.client
        await pipeline.start { try await running.download("\(nowhere)/1", paused).value }
        await pipeline.start {
            try await client.batch(
                [("\(nowhere)/2", ["directory": .string(other)]), ("\(nowhere)/3", [:])], running.options(paused)
            ).0.value
        }
        await pipeline.start { try await running.download("\(nowhere)/4", paused).value }
        let answers = await pipeline.answers(3)
        #expect(
            answers == ["\(BusName.downloadsPath)/1", "\(BusName.batchesPath)/2", "\(BusName.downloadsPath)/5"])
    }

    @Test func `takes 10,000 items in one call, and pauses, lists, cancels and removes them as one`() async throws {
        let running = try await Running.start()
        let client = running.client
        let begun = ContinuousClock.now
        let (batch, members) = try await running.batch((0..<10_000).map { "\(nowhere)/file-\($0)" }, paused)
        print("10,000 items in one call: \((ContinuousClock.now - begun) / .milliseconds(1)) ms")
        #expect(members.count == 10_000 && Set(members).count == 10_000)
        #expect(try await client.get(Manager.remaining) == 10_000)
        #expect(try await client.list(["batch": .objectPath(batch)]) == Array(members[..<1000]))
        let page = try await client.list(["batch": .objectPath(batch), "after": .objectPath(members[9989])])
        #expect(page == Array(members[9990...]))
        #expect(try await client.counts(batch) == [10_000, 0, 0, 0])
        try await client.call(Batch.cancel, at: batch, ())
        #expect(try await client.counts(batch) == [0, 0, 0, 10_000])
        #expect(await client.signals.has("Completed", at: batch))
        #expect(try await client.wait(batch: batch) == [0, 0, 10_000])
        #expect(await thrown { try await client.call(Batch.pause, at: batch, ()) }?.name == todokuError("InvalidState"))
        try await client.call(Batch.remove, at: batch, false)
        #expect(try await client.list() == [])
        #expect(await client.signals.has("DownloadRemoved", count: 10_000))
        #expect(await thrown { try await client.counts(batch) }?.name == "org.freedesktop.DBus.Error.UnknownObject")
        await running.world.kill(running.daemon)
        _ = await running.world.start()
        #expect(try await client.list() == [])
        #expect(try await running.download("\(nowhere)/d", paused).value == "\(BusName.downloadsPath)/10002")
    }

    @Test func `of more than may be queued is refused whole`() async throws {
        let running = try await Running.start()
        let client = running.client
        for call in 0..<9 { _ = try await running.batch((0..<10_000).map { "\(nowhere)/\(call)-\($0)" }, paused) }
        _ = try await running.batch((0..<9_990).map { "\(nowhere)/9-\($0)" }, paused)
        let error = await thrown { try await running.batch((0..<11).map { "\(nowhere)/10-\($0)" }, paused) }
        #expect(error?.name == todokuError("LimitExceeded") && error?.message.contains("100000") == true, "\(error as Any)")
        #expect(try await client.get(Manager.remaining) == 99_990)
        _ = try await running.batch((0..<10).map { "\(nowhere)/10-\($0)" }, paused)
        #expect(await thrown { try await running.download("\(nowhere)/x") }?.name == todokuError("LimitExceeded"))
    }

    @Test func `continues when one member fails: outcomes are independent`() async throws {
        let running = try await Running.start()
        let client = running.client
        let server = ScriptedServer { request, reply in
            switch request.path {
            case "/3": reply.respond(404)
            default: reply.respond(200, text: "body of \(request.path)")
            }
        }
        let (batch, members) = try await running.batch((0..<8).map { server.url("/\($0)") })
        #expect(try await client.wait(batch: batch) == [7, 1, 0])
        #expect(try await client.counts(batch) == [0, 7, 1, 0])
        #expect(try await client.get(Download.error, at: members[3]).name == todokuError("HttpStatus"))
        #expect(await eventually { Set(running.world.files) == Set([0, 1, 2, 4, 5, 6, 7].map { "\($0)" }) })
        #expect(await client.signals.has("Completed", at: batch))
        let completed = await client.signals.of(batch).compactMap { Batch.completed.read($0.message) }
        #expect(completed.count == 1 && completed[0] == (7, 1, 0))
        let sums = try await client.sums(batch)
        #expect(sums.received == 7 * 10 && sums.total == 7 * 10 && sums.fraction == 1)
    }

    @Test func `reports its end once, after its last member and before AllEnded, and again if a member is retried`()
        async throws
    {
        let running = try await Running.start()
        let client = running.client
        let gate = Gate()
        let server = ScriptedServer { request, reply in
            if request.path == "/late" { gate.wait() }
            if request.path == "/bad", request.number < 2 { return reply.respond(403) }
            reply.respond(200, text: "x")
        }
        try await client.set(Manager.maxActive, 1)
        let (batch, members) = try await running.batch([server.url("/bad"), server.url("/late")])
        #expect(await thrown { try await client.wait(members[0]) }?.name == todokuError("HttpStatus"))
        #expect(try await client.counts(batch) == [1, 0, 1, 0])
        // A foreign program sees signals and replies in one order.
        let (bus, isListening) = (running.world.bus, Gate())
        async let heard = onThread { () -> [String] in
            let caller = RawCaller(bus)
            let match = Variant.string("type='signal',sender='\(BusName.service)'")
            caller.call("/org/freedesktop/DBus", "org.freedesktop.DBus", "AddMatch", [match], to: "org.freedesktop.DBus")
            let ofMember = caller.call(members[1].value, Download.interface, "Wait", [.dictionary([:])])
            let ofBatch = caller.call(batch.value, Batch.interface, "Wait", [.dictionary([:])])
            _ = caller.answer(to: caller.callLast())
            isListening.open()
            var heard: [String] = []
            while heard.last != "AllEnded", let message = caller.read() {
                if message.kind == 4 { heard.append(message.member) }
                if message.replySerial == ofMember { heard.append("reply of the member") }
                if message.replySerial == ofBatch { heard.append("reply of the batch") }
            }
            return heard
        }
        #expect(await eventually { isListening.isOpen })
        gate.open()
        let order = await heard.filter { $0 != "PropertiesChanged" && $0 != "Progress" }
        #expect(
            order == [
                "Finished", "Completed", "DownloadEnded", "reply of the member", "Completed", "reply of the batch", "AllEnded",
            ])
        #expect(await client.signals.has("AllEnded"))
        let seen = await client.signals.seen
        // The counts are announced before the end.
        let last = seen.lastIndex { $0.path == batch.value && $0.member == "PropertiesChanged" }
        let end = seen.lastIndex { $0.path == batch.value && $0.member == "Completed" }
        #expect(last != nil && end == last.map { $0 + 1 } && last.flatMap { seen[$0].changed?["Remaining"] } == .uint32(0))
        #expect(seen.count { $0.member == "Completed" && $0.path == batch.value } == 1)

        try await client.retry(members[0])
        #expect(await client.signals.has("Completed", at: batch, count: 2))
        #expect(try await client.wait(batch: batch) == [2, 0, 0])
        #expect(await client.signals.has("AllEnded", count: 2))
    }

    @Test func `reports a retried member also if it has to wait for its host`() async throws {
        let server = ScriptedServer { _, reply in reply.respond(404) }
        let running = try await Running.start()
        let client = running.client
        try await client.call(Manager.setHostRule, ("127.0.0.1", ["request-interval": .uint32(3_600_000)]))
        let (batch, members) = try await running.batch([server.url("/a")])
        #expect(try await client.wait(batch: batch) == [0, 1, 0])
        try await client.retry(members[0])
        #expect(await client.signals.isIn("waiting", members[0]))
        #expect(try await client.counts(batch) == [1, 0, 0, 0])
        #expect(
            await client.signals.until { seen in
                seen.last { $0.path == batch.value && $0.member == "PropertiesChanged" }?.changed?["Remaining"] == .uint32(1)
            })
    }

    @Test func `reports honest totals: none while one is unknown, and the real one when all have ended`() async throws {
        let running = try await Running.start()
        let client = running.client
        let (gate, known) = (Gate(), Gate())
        let server = ScriptedServer { request, reply in
            switch request.path {
            case "/unknown":
                known.wait()
                reply.head(200, length: 1000)
                reply.send(patternBytes(1000))
            case "/cut":
                reply.head(200, length: 500)
                reply.send(patternBytes(500)[..<200])
                gate.wait()
            default: reply.respond(200, body: patternBytes(300))
            }
        }
        let (batch, members) = try await running.batch([server.url("/done"), server.url("/unknown"), server.url("/cut")])
        _ = try await client.wait(members[0])
        #expect(await client.signals.has("Progress", at: members[2]))
        var sums = try await client.sums(batch)
        #expect(sums.total == -1 && sums.fraction == -1 && sums.received >= 300, "\(sums)")
        known.open()
        _ = try await client.wait(members[1])
        sums = try await client.sums(batch)
        #expect(sums.total == 1800 && sums.received == 1500 && sums.fraction == 1500.0 / 1800, "\(sums)")
        // Removed members still count.
        try await client.remove(members[0])
        sums = try await client.sums(batch)
        #expect(sums.total == 1800 && sums.received == 1500, "\(sums)")
        try await client.cancel(members[2])
        gate.open()
        #expect(try await client.counts(batch) == [0, 2, 0, 1])
        // A cancelled member counts no bytes once its transfer has stopped.
        #expect(try await eventually { try await client.sums(batch) == (1300, 1300, 1) })
        #expect(await eventually { running.world.files == ["done", "unknown"] })  // the part file is deleted once the end is on disk
        let daemon = running.daemon
        _ = await running.world.stop(daemon)
        _ = await running.world.start()
        sums = try await client.sums(batch)
        #expect(sums.total == 1300 && sums.received == 1300 && sums.fraction == 1, "\(sums)")
        #expect(try await client.counts(batch) == [0, 2, 0, 1])
    }

    @Test func `answers all waiting callers when the last member has ended, and forgets those who left`() async throws {
        let running = try await Running.start()
        let gate = Gate()
        let server = ScriptedServer { _, reply in
            gate.wait()
            reply.respond(200, text: "x")
        }
        let (batch, _) = try await running.batch([server.url("/a"), server.url("/b")])
        let bus = running.world.bus
        let (ready, go) = (Gate(), Gate())
        async let answers = onThread { () -> Int in
            var callers = (0..<4).map { _ in RawCaller(bus) }
            for caller in callers {
                for _ in 0..<100 { caller.call(batch.value, Batch.interface, "Wait", [.dictionary([:])]) }
                _ = caller.answer(to: caller.callLast())
            }
            callers.removeLast(2)
            ready.open()
            go.wait()
            return callers.reduce(0) { sum, caller in sum + (0..<100).count { _ in caller.readAnswer()?.kind == 2 } }
        }
        async let greedy = onThread { () -> Int in
            let caller = RawCaller(bus)
            for _ in 0..<300 { caller.call(batch.value, Batch.interface, "Wait", [.dictionary([:])]) }
            caller.flush()
            return (0..<44).count { _ in caller.readAnswer()?.errorName == todokuError("LimitExceeded") }
        }
        #expect(await eventually { ready.isOpen })
        #expect(await greedy == 44)
        go.open()
        gate.open()
        #expect(try await running.client.wait(batch: batch) == [2, 0, 0])
        #expect(await answers == 200)
        let error = await thrown { try await running.client.call(Batch.wait, at: batch, ["x": .bool(true)]) }
        #expect(error?.name == todokuError("InvalidOption") && error?.message.contains("x") == true)
    }

    @Test func `outlasts a stop and kill -9 in the middle, and counts on`() async throws {
        let world = await ServiceWorld()
        let client = try await world.client()
        let gate = Gate()
        let server = ScriptedServer { request, reply in
            if let number = Int(request.path.dropFirst()), number >= 5 { gate.wait() }
            reply.respond(request.path == "/2" ? 404 : 200, text: "x")
        }
        var daemon = await world.start()
        let options: [String: Variant] = ["directory": .string(world.folder), "notify": .string("never"), "title": .string("T")]
        let (batch, members) = try await client.batch((0..<10).map { (server.url("/\($0)"), [:]) }, options)
        let (ended, _) = try await client.batch([(server.url("/0"), ["filename": .string("again")])], options)
        for member in members[..<5] { _ = try? await client.wait(member) }
        #expect(try await client.counts(batch) == [5, 4, 1, 0])
        try await client.remove(members[0])
        try await client.remove(members[2])
        await world.kill(daemon)
        daemon = await world.start()
        #expect(try await client.counts(batch) == [5, 4, 1, 0])
        #expect(try await client.get(Batch.title, at: batch) == "T")
        #expect(try await client.list(["batch": .objectPath(batch)]).count == 8)
        #expect(try await client.get(Download.batch, at: members[9]) == batch)
        _ = await world.stop(daemon)
        daemon = await world.start()
        gate.open()
        #expect(try await client.wait(batch: batch) == [9, 1, 0])
        #expect(try await client.wait(batch: ended) == [1, 0, 0])
        #expect(await client.signals.has("Completed", at: batch))
        await world.kill(daemon)
        _ = await world.start()
        // The batch had ended: its end is not announced again, and a Wait is answered at once.
        #expect(try await client.wait(batch: batch) == [9, 1, 0])
        #expect(await client.signals.of(batch).count { $0.member == "Completed" } == 1)
        #expect(try await client.download("\(nowhere)/n", paused).value == "\(BusName.downloadsPath)/14")
    }

    @Test func `exists whole or not at all, whenever the service is killed, and whole once it was answered`() async throws {
        let world = await ServiceWorld()
        let client = try await world.client()
        let options = paused.merging(["directory": .string(world.folder)]) { $1 }
        var known = 0
        var daemon = await world.start()
        for round in 0..<6 {
            let (bus, items) = (world.bus, (0..<2000).map { Variant.structure([.string("\(nowhere)/\($0)"), .dictionary([:])]) })
            let isSent = Gate()
            async let answer = onThread { () -> Bool in
                let caller = RawCaller(bus)
                let serial = caller.call(
                    BusName.managerPath.value, Manager.interface, "DownloadBatch", [.array(of: "(sa{sv})", items), .dictionary(options)])
                caller.flush()
                isSent.open()
                return caller.answer(to: serial)?.kind == 2
            }
            #expect(await eventually { isSent.isOpen })
            switch round % 3 {
            case 0: break  // before the call is read
            case 1: _ = try? await client.get(Manager.remaining)  // after the call is read
            default: #expect(await client.signals.has("DownloadAdded", count: 1))  // while the downloads are being announced
            }
            await world.kill(daemon)
            let wasAnswered = await answer
            daemon = await world.start()
            let remaining = Int(try await client.get(Manager.remaining))
            #expect(remaining == known + 2000 || remaining == known && !wasAnswered, "\(known) \(remaining) \(wasAnswered)")
            for number in try await client.batchNumbers() {
                #expect(try await client.counts(ObjectPath("\(BusName.batchesPath)/\(number)")) == [2000, 0, 0, 0])
            }
            known = remaining
            await client.signals.forget()
        }
        #expect(known >= 2 * 2000)
        #expect(try await client.batchNumbers().count == known / 2000)
    }

    @Test func `is off the list with its last member, or with its files by its own Remove`() async throws {
        let running = try await Running.start()
        let client = running.client
        let gate = Gate()
        let server = ScriptedServer { request, reply in
            if request.path.hasPrefix("/slow") {
                reply.head(200, length: 100)
                reply.send(patternBytes(50))
                return gate.wait()
            }
            reply.respond(200, text: "x")
        }
        let (first, members) = try await running.batch([server.url("/1"), server.url("/2")])
        #expect(try await client.wait(batch: first) == [2, 0, 0])
        try await client.remove(members[0])
        #expect(try await client.counts(first) == [0, 2, 0, 0])
        try await client.remove(members[1])
        #expect(await thrown { try await client.counts(first) }?.name == "org.freedesktop.DBus.Error.UnknownObject")
        #expect(running.world.files == ["1", "2"])

        let (second, more) = try await running.batch([server.url("/3"), server.url("/slow"), server.url("/slower")])
        _ = try await client.wait(more[0])
        #expect(await client.signals.has("Progress", at: more[1]))
        let pipeline = Pipeline()
        await pipeline.start { "\(try await client.wait(batch: second))" }
        #expect(try await client.counts(second)[0] == 2)  // behind this answer, the service has the Wait
        try await client.call(Batch.remove, at: second, true)
        #expect(await pipeline.answers(1) == ["[1, 0, 2]"])
        #expect(await eventually { running.world.files == ["1", "2"] })
        #expect(try await client.list() == [])
        gate.open()

        let (third, _) = try await running.batch([server.url("/4")])
        #expect(try await client.wait(batch: third) == [1, 0, 0])
        #expect(try await client.call(Manager.clearEnded, ()) == 1)
        #expect(await thrown { try await client.counts(third) }?.name == "org.freedesktop.DBus.Error.UnknownObject")
        let missing = await thrown { try await client.list(["batch": .objectPath(third)]) }
        #expect(missing?.name == todokuError("NoSuchObject"))
    }

    @Test func `is paused and resumed as one`() async throws {
        let running = try await Running.start()
        let client = running.client
        let server = ScriptedServer { _, reply in reply.respond(200, text: "x") }
        let (batch, members) = try await running.batch((0..<5).map { server.url("/\($0)") }, paused)
        let alone = try await running.download(server.url("/alone"), paused)
        for _ in 0..<2 { try await client.call(Batch.pause, at: batch, ()) }
        #expect(try await client.list(["batch": .objectPath(batch), "state": .string("paused")]) == members)
        try await client.call(Batch.resume, at: batch, ())
        #expect(try await client.wait(batch: batch) == [5, 0, 0])
        #expect(try await client.get(Download.state, at: alone) == "paused")
        #expect(try await client.list(["batch": .objectPath(batch)]).count == 5)
    }

    @Test func `whose items have tokens is the same batch when the call is repeated`() async throws {
        let running = try await Running.start()
        let client = running.client
        let options = running.options(paused.merging(["app": .string("org.example.App")]) { $1 })
        func items(_ names: [String]) -> [(String, [String: Variant])] {
            names.map { ("\(nowhere)/\($0)", ["token": .string("t_\($0)")]) }
        }
        let (batch, members) = try await client.batch(items(["a", "b", "c"]), options)
        #expect(members == ["a", "b", "c"].map { BusName.path(app: "org.example.App", token: "t_\($0)") })
        let again = try await client.batch(items(["a", "b", "c"]), options)
        #expect(again.0 == batch && again.1 == members)
        await running.world.kill(running.daemon)
        _ = await running.world.start()
        let later = try await client.batch(items(["a", "b", "c"]), options)
        #expect(later.0 == batch && later.1 == members)
        #expect(await client.signals.count("DownloadAdded") == 3)

        let single = try await client.download(
            "\(nowhere)/s", options.merging(["token": .string("t_s")]) { $1 })
        _ = try await client.batch(items(["x", "y"]), options)
        let mixed = items(["a", "b", "c"])
        let bad: [([(String, [String: Variant])], Int)] = [
            (items(["a", "b"]), 0), (items(["n", "b", "c"]), 1), (items(["n", "m", "s"]), 2), (items(["a", "b", "x"]), 2),
            (items(["n", "m", "n"]), 2), ([mixed[0], mixed[1], ("\(nowhere)/other", ["token": .string("t_c")])], 2),
            ([("\(nowhere)/n", [:]), mixed[1]], 1),
        ]
        for (items, index) in bad {
            let error = await thrown { try await client.batch(items, options) }
            #expect(error?.name == todokuError("AlreadyExists"), "\(items): \(error as Any)")
            #expect(error?.message.hasPrefix("Item \(index): ") == true && error.map(isSentence) == true, "\(items): \(error as Any)")
        }
        #expect(try await client.list().count == 6)
        #expect(try await client.get(Download.batch, at: single).value == "/")
    }

    /// As on a disk that is unplugged after the first call.
    @Test func `whose items have tokens is the same batch when the call is repeated, though its folder is gone`() async throws {
        let running = try await Running.start()
        let client = running.client
        let folder = running.world.bus.folder.makeFolder("disk")
        let more: [String: Variant] = ["app": .string("org.example.App"), "directory": .string(folder)]
        let options = running.options(paused.merging(more) { $1 })
        func items(_ names: [String]) -> [(String, [String: Variant])] {
            names.map { ("\(nowhere)/\($0)", ["token": .string("t_\($0)")]) }
        }
        let (batch, members) = try await client.batch(items(["a", "b"]), options)
        #expect(rmdir(folder) == 0)
        let again = try await client.batch(items(["a", "b"]), options)
        #expect(again.0 == batch && again.1 == members)
        for (names, name) in [(["n"], "InvalidOption"), (["n", "b"], "InvalidOption"), (["a", "n"], "AlreadyExists")] {
            let error = await thrown { try await client.batch(items(names), options) }
            #expect(error?.name == todokuError(name), "\(names): \(error as Any)")
            #expect(error?.message.hasPrefix("Item 0: ") == true && error.map(isSentence) == true, "\(names): \(error as Any)")
        }
        #expect(try await client.list() == members)
    }

    @Test func `of many items with tokens that two callers send at once is one batch, and each member is found by its path`() async throws {
        let running = try await Running.start()
        let other = try await running.world.client()
        let options = running.options(paused.merging(["app": .string("org.example.App")]) { $1 })
        let items = (0..<3000).map { ("\(nowhere)/\($0)", ["token": Variant.string("t\($0)")]) }
        for round in 0..<5 {
            let pipeline = Pipeline()
            for client in [running.client, other] {
                await pipeline.start {
                    let (batch, members) = try await client.batch(items, options)
                    // Its places in the queue may not be taken yet.
                    for member in [members[0], members[2999]] { _ = try await client.get(Download.state, at: member) }
                    return "\(batch) \(members.count)"
                }
            }
            let answers = await pipeline.answers(2).map { $0 ?? "" }
            #expect(Set(answers).count == 1 && answers[0].hasSuffix(" 3000"), "round \(round): \(answers)")
            let batch = ObjectPath(String(answers[0].prefix { $0 != " " }))
            #expect(try await running.client.counts(batch)[0] == 3000)
            try await running.client.call(Batch.remove, at: batch, false)
            let gone = await thrown { try await other.get(Download.state, at: BusName.path(app: "org.example.App", token: "t7")) }
            #expect(gone?.name == "org.freedesktop.DBus.Error.UnknownObject")
        }
    }

    @Test func `that is off the list takes no memory any more`() async throws {
        if let sanitizer = underSanitizer() { return print("memory of batches: not checked under the \(sanitizer) sanitizer") }
        let running = try await Running.start()
        let note = Variant.dictionary(["note": .string(String(repeating: "n", count: 60_000))])
        let items = (0..<50).map { ("\(nowhere)/\($0)", ["metadata": note]) }
        func resident() throws -> UInt64 { try #require(memory(running.daemon.pid, "VmRSS")) }
        var first: UInt64 = 0
        for round in 0..<10 {
            let (batch, _) = try await running.client.batch(items, running.options(paused))
            try await running.client.call(Batch.remove, at: batch, false)
            if round == 1 { first = try resident() }
        }
        let growth = Int64(try resident()) - Int64(first)
        #expect(growth < 12 << 20, "8 batches of 3 MB have left \(growth >> 20) MiB behind")
    }

    @Test func `of a full disk leaves nothing behind, and answers Storage`() async throws {
        if underSanitizer() == "thread" { return print("full disk: not checked under the thread sanitizer, which needs large files") }
        let world = await ServiceWorld()
        let client = try await world.client()
        let daemon = await world.start(prefix: ["prlimit", "--fsize=200000:unlimited"])
        let options = paused.merging(["directory": .string(world.folder), "notify": .string("never")]) { $1 }
        // A caller that waits for downloads which are not saved yet, and never will be, gets an error too.
        let other = try await world.client()
        let isOver = Gate()
        async let waits = { () async -> Set<String> in
            var names: Set<String> = []
            while !isOver.isOpen {
                for path in ["\(BusName.batchesPath)/1", "\(BusName.downloadsPath)/2"] {
                    let error =
                        path.contains("batch")
                        ? await thrown { try await other.wait(batch: ObjectPath(path)) }
                        : await thrown { try await other.wait(ObjectPath(path)) }
                    names.insert(error?.name ?? "none")
                }
            }
            return names
        }()
        let error = await thrown { try await client.batch((0..<2000).map { ("\(nowhere)/\($0)", [:]) }, options) }
        isOver.open()
        let told = await waits
        #expect(told.isSubset(of: [todokuError("Storage"), "org.freedesktop.DBus.Error.UnknownObject"]), "\(told)")
        #expect(error?.name == todokuError("Storage") && error.map(isSentence) == true, "\(error as Any)")
        #expect(try await client.list() == [])
        #expect(try await client.get(Manager.remaining) == 0)
        #expect(await client.signals.count("DownloadAdded") == 0)
        #expect(await world.run("prlimit", "--pid", "\(daemon.pid)", "--fsize=unlimited").status == 0)
        let (batch, members) = try await client.batch((0..<2000).map { ("\(nowhere)/\($0)", [:]) }, options)
        await world.kill(daemon)
        _ = await world.start()
        #expect(try await client.counts(batch) == [2000, 0, 0, 0])
        #expect(try await client.list() == Array(members[..<1000]))
    }
}

@Suite struct `A batch in the queue` {
    @Test func `goes one after the other to a host with a request interval, and each knows how many go before it`() async throws {
        let server = ScriptedServer { _, reply in reply.respond(200, text: "x") }
        let running = try await Running.start()
        let client = running.client
        try await client.call(Manager.setHostRule, ("127.0.0.1", ["request-interval": .uint32(600_000)]))
        let (batch, members) = try await running.batch((0..<4).map { server.url("/\($0)") })
        #expect(await client.signals.has("DownloadEnded", count: 1))
        for (ahead, member) in members.dropFirst().enumerated() {
            let properties = try await client.all(member)
            #expect(properties["State"] == .string("waiting"))
            #expect(properties["WaitReason"] == .string("rate-limit"))
            #expect(properties["Ahead"] == .uint32(UInt32(ahead)))
        }
        #expect(try await client.list(["batch": .objectPath(batch), "state": .string("waiting")]) == Array(members.dropFirst()))
        #expect(try await client.counts(batch) == [3, 1, 0, 0])
        let begun = ContinuousClock.now
        try await client.call(Manager.setHostRule, ("127.0.0.1", ["request-interval": .uint32(500)]))
        #expect(try await client.wait(batch: batch) == [4, 0, 0])
        // The order is the service's own: a server without a processor may see one request after the next one.
        var starts: [String] = []
        for signal in await client.signals.seen where signal.state == "active" && starts.last != signal.path { starts.append(signal.path) }
        #expect(starts == members.map(\.value))
        #expect(server.requests.map(\.target).sorted() == (0..<4).map { "/\($0)" })
        // The second may go at once, when the rule is set. A server without a processor may see it late, so its arrival counts for nothing.
        let span = try #require(server.requests.last?.arrived) - begun
        #expect(span >= .milliseconds(2 * 500 - 50), "\(span)")
        #expect(try await client.list(["batch": .objectPath(batch)]) == members)
    }

    @Test func `is waited for by WaitAll, and nothing else with it`() async throws {
        let running = try await Running.start()
        let client = running.client
        let (batch, members) = try await running.batch((0..<3).map { "\(nowhere)/\($0)" }, paused)
        let (other, _) = try await running.batch(["\(nowhere)/x"], paused)
        let filter: [String: Variant] = ["batch": .objectPath(batch)]
        try await client.cancel(members[1])
        let answers = Answers()
        await answers.start("all") { "\(try await client.call(Manager.waitAll, filter))" }
        await answers.start("paused") {
            "\(try await client.call(Manager.waitAll, filter.merging(["state": .string("paused")]) { $1 }))"
        }
        _ = try await client.list()  // both calls of WaitAll have been read
        try await client.cancel(members[0])
        try await client.call(Batch.cancel, at: batch, ())
        #expect(await answers.has(["all": "(0, 0, 3)", "paused": "(0, 0, 2)"]))
        #expect(try await client.counts(other) == [1, 0, 0, 0])
        // Answered at once, because all have ended.
        #expect(try await client.call(Manager.waitAll, filter) == (0, 0, 3))
        let missing = ObjectPath("\(BusName.batchesPath)/999")
        let error = await thrown { try await client.call(Manager.waitAll, ["batch": .objectPath(missing)]) }
        #expect(error?.name.hasSuffix("NoSuchObject") == true && error?.message.contains(missing.value) == true)
    }
}
