internal import DBus
internal import DownloadModel
internal import DownloaderInterface
internal import EventLoop
internal import Glibc
internal import TestSupport
internal import Testing

@testable internal import DownloadStore

/// Malicious or broken callers. Another caller must be served meanwhile, and the daemon's memory must stay within a bound.
@Suite(.serialized, .timeLimit(.minutes(10))) struct `A hostile caller` {
    @Test(arguments: [1, 2] as [UInt64]) @BusActor func `gets one proper answer for each of thousands of odd calls`(seed: UInt64)
        async throws
    {
        // Opening files always succeeds: which programs this machine has does not matter here.
        let opener = StandInOpener()
        let running = try await Running.start(extra: ["PATH": opener.path])
        var downloads: [String] = []
        for number in 0..<4 { downloads.append(try await running.download("http://127.0.0.1:1/\(number)", ["start": .bool(false)]).value) }
        let batch = try await running.batch((0..<3).map { "http://127.0.0.1:1/\($0)" }, ["start": .bool(false)]).0.value
        downloads.append(batch)
        let members = try await OddCalls.members(of: running.client, at: [BusName.managerPath.value, downloads[0], batch])
        #expect(members.count > 20)
        let bystander = Bystander(running)
        let (bus, paths) = (running.world.bus, downloads)
        let outcome = await onThread { OddCalls(seed, members, downloads: paths).run(on: RawCaller(bus), count: 3000) }
        #expect(outcome.complaints == [])
        #expect(outcome.unanswered == 0)
        #expect(outcome.successes > 100 && outcome.errors > 1000, "\(outcome)")
        print("odd calls, seed \(seed): \(outcome.successes) successes, \(outcome.errors) errors")
        try await bystander.expectServed()
    }

    @Test @BusActor func `cannot have more than 256 calls of a connection wait, nor 10,000 of many weigh`() async throws {
        let running = try await Running.start()
        let path = try await running.download("http://127.0.0.1:1/a", ["start": .bool(false)]).value
        let bystander = Bystander(running)
        let bus = running.world.bus
        let (waiting, ready, go) = (Gate(), Gate(), Gate())
        // This caller asks for more than it may.
        async let greedy = onThread { () -> [String] in
            let caller = RawCaller(bus)
            for _ in 0..<300 { caller.call(path, Download.interface, "Wait", [.dictionary([:])]) }
            caller.flush()
            let refused = (0..<44).compactMap { _ in caller.readAnswer()?.errorName }
            waiting.open()
            go.wait()  // a read gives up after a minute
            return refused + (0..<256).compactMap { _ in caller.readAnswer()?.errorName }
        }
        // Forty callers make permitted calls. Every second caller leaves before it is answered.
        async let many = onThread { () -> [Int] in
            var callers = (0..<40).map { _ in RawCaller(bus) }
            for caller in callers {
                for _ in 0..<256 { caller.call(path, Download.interface, "Wait", [.dictionary([:])]) }
                // Answered after these calls, so the daemon has read them all.
                _ = caller.answer(to: caller.callLast())
            }
            callers.removeLast(20)
            ready.open()
            go.wait()
            return callers.map { caller in (0..<256).count { _ in caller.readAnswer()?.errorName == todokuError("Cancelled") } }
        }
        #expect(await eventually(within: Bystander.longest) { waiting.isOpen && ready.isOpen })
        try await bystander.expectServed()
        go.open()
        try await running.client.cancel(ObjectPath(path))
        let answers = await greedy
        #expect(answers.prefix(44).allSatisfy { $0 == todokuError("LimitExceeded") })
        #expect(answers.dropFirst(44).count { $0 == todokuError("Cancelled") } == 256)
        #expect(await many == Array(repeating: 256, count: 20))
        try await bystander.expectServed()
    }

    /// 64 KiB of metadata take about five times as much memory as a dictionary, so the filters of these calls would take 80 MiB.
    @Test(.disabled(if: underSanitizer() != nil, "a sanitizer keeps freed memory")) @BusActor
    func `cannot make the service keep the metadata in the filters of 250 waiting calls`() async throws {
        let running = try await Running.start()
        let entries = Dictionary(uniqueKeysWithValues: (0..<4000).map { (String($0, radix: 16), Variant.byte(1)) })
        let metadata = Variant.dictionary(entries)
        let path = try await running.download("http://127.0.0.1:1/a", ["start": .bool(false), "metadata": metadata])
        let (bus, service) = (running.world.bus, running.daemon.pid)
        let (early, before, after, counted) = await onThread { () -> (Int, UInt64?, UInt64?, Int) in
            /// Makes calls that wait, and returns how many were answered.
            func wait(_ calls: Int, _ caller: RawCaller) -> Int {
                var answers = 0
                for _ in 0..<(calls / 10) {
                    for _ in 0..<10 {
                        caller.call(BusName.managerPath.value, Manager.interface, "WaitAll", [.dictionary(["metadata": metadata])])
                    }
                    // Answered in turn, once the downloads of these calls are counted.
                    let last = caller.call(BusName.managerPath.value, Manager.interface, "List", [.dictionary([:])])
                    caller.flush()
                    while let answer = caller.readAnswer(), answer.replySerial != last { answers += 1 }
                }
                return answers
            }
            let (first, many) = (RawCaller(bus), RawCaller(bus))
            // The allocator keeps what the service needs for a moment at each call.
            let warming = wait(20, first)
            let before = memory(service, "VmRSS")
            let answered = wait(250, many)
            let after = memory(service, "VmRSS")
            first.call(path.value, Download.interface, "Cancel")
            first.flush()
            return (warming + answered, before, after, (0..<250).count { _ in many.readAnswer()?.kind == 2 })
        }
        #expect(early == 0, "a call did not wait")
        let (former, now) = (try #require(before), try #require(after))
        print("250 waiting calls with metadata: VmRSS \(former >> 20) MiB, then \(now >> 20) MiB")
        #expect(now < former + (40 << 20))
        #expect(counted == 250, "the calls have waited for the download")
    }

    @Test @BusActor func `cannot have more than 64 changes of batches wait`() async throws {
        let running = try await Running.start()
        let urls = (0..<2000).map { "http://127.0.0.1:1/\($0)" }
        var paths: [String] = []
        for _ in 0..<2 { paths.append(try await running.batch(urls, ["start": .bool(false)]).0.value) }
        let bystander = Bystander(running)
        let (bus, daemon, batches) = (running.world.bus, running.daemon, paths)
        let errors = await onThread { () -> [String] in
            let caller = RawCaller(bus)
            daemon.signal(SIGSTOP)
            // The batches take turns, because a call joins an equal one before it.
            for number in 0..<300 { caller.call(batches[number % 2], Batch.interface, "Pause") }
            caller.flush()
            daemon.signal(SIGCONT)
            return (0..<300).compactMap { _ in caller.readAnswer()?.errorName }
        }
        #expect(errors.count == 300 && Set(errors) == ["", todokuError("LimitExceeded")], "\(Set(errors))")
        #expect(errors.count { $0.isEmpty } >= Limits.bulkChangesPerCaller)
        try await bystander.expectServed()
    }

    @Test @BusActor func `who never reads, though it subscribed to everything, delays nobody`() async throws {
        let running = try await Running.start()
        let bystander = Bystander(running)
        let (bus, ready, go) = (running.world.bus, Gate(), Gate())
        async let deaf: Void = onThread {
            let caller = RawCaller(bus)
            let match = Variant.string("type='signal'")
            _ = caller.answer(
                to: caller.call("/org/freedesktop/DBus", "org.freedesktop.DBus", "AddMatch", [match], to: "org.freedesktop.DBus"))
            ready.open()
            go.wait()
        }
        #expect(await eventually { ready.isOpen })
        for _ in 0..<20 {
            var paths: [ObjectPath] = []
            for _ in 0..<50 { paths.append(try await running.download("http://127.0.0.1:1/a", ["start": .bool(false)])) }
            for path in paths { try await running.client.remove(path) }
        }
        #expect(await running.client.signals.has("DownloadRemoved", count: 1000))
        try await bystander.expectServed()
        go.open()
        await deaf
    }

    @Test @BusActor func `who sends 100,000 calls and reads no answer delays nobody`() async throws {
        let running = try await Running.start()
        _ = try await running.download("http://127.0.0.1:1/a", ["start": .bool(false)])
        let bystander = Bystander(running)
        let bus = running.world.bus
        let isSent = await onThread { () -> Bool in
            let caller = RawCaller(bus)
            for number in 0..<100_000 {
                switch number % 4 {
                case 0: caller.call(BusName.managerPath.value, Manager.interface, "List", [.dictionary([:])])
                case 1: caller.call(BusName.managerPath.value, Standard.properties, "GetAll", [.string(Manager.interface)])
                case 2: caller.call("/nothing", Standard.peer, "Ping")
                default: caller.call(BusName.managerPath.value, Manager.interface, "PauseAll", wantsReply: false)
                }
            }
            return caller.flush()
        }
        #expect(isSent)
        // On a busy machine, the calls before it take more than a minute.
        try await running.client.call(Manager.resumeAll, (), timeout: Bystander.longest)
        try await bystander.expectServed()
    }

    /// Most systems let a program open 1,024 files. A connection to the bus breaks when its process has reached this limit.
    @Test(arguments: [false, true]) @BusActor
    func `who sends more descriptors than the service may open does not stop the service`(isSandboxed: Bool) async throws {
        let world = await ServiceWorld()
        let daemon = await world.start(prefix: ["prlimit", "--nofile=1024:1024"])
        let running = Running(world: world, daemon: daemon, client: try await world.client())
        let sandbox = isSandboxed ? await Sandbox(world) : nil
        let stranger = try Connection.open(address: sandbox.map { "unix:path=\($0.socket)" } ?? world.bus.address)
        let file = OwnFile("\(world.folder)/mine")
        let many = Array(repeating: file.wire, count: 16)
        let take = MethodOf(Manager.interface, "DownloadToFd", in: [FileDescriptor].self)
        // First before the caller is identified, then afterwards.
        for _ in 0..<2 {
            for _ in 0..<150 {
                try stranger.tell(take, on: BusName.service, at: BusName.managerPath, many)
                stranger.flush()
            }
            #expect(try await running.client.list() == [])
            _ = try await stranger.call(Manager.list, on: BusName.service, at: BusName.managerPath, [:], timeout: .seconds(60))
        }
        #expect(await eventually { openFiles(of: daemon.pid, below: world.folder) == 0 })
        #expect(daemon.isRunning, "\(daemon.errors)")
    }

    /// The bus keeps the calls until the service has its name, and sends them before the answer that makes the name ours. libdbus stops
    /// reading at 4,096 descriptors by default.
    @Test(.enabled("this machine lets no program open so many files") { await mostOpenFiles() > 10_000 }) @BusActor
    func `who sends 4,800 descriptors while the service starts does not stop the service`() async throws {
        let world = await ServiceWorld(
            names: [BusName.service: "/usr/bin/prlimit --nofile=1024: \(ServiceWorld.todokud) --idle-exit 3600"])
        let stranger = try Connection.open(address: world.bus.address)
        let file = OwnFile("\(world.folder)/mine")
        let many = Array(repeating: file.wire, count: 16)
        let take = MethodOf(Manager.interface, "DownloadToFd", in: [FileDescriptor].self)
        for _ in 0..<300 {
            try stranger.tell(take, on: BusName.service, at: BusName.managerPath, many)
            stranger.flush()
        }
        func list() async throws -> [ObjectPath] {
            try await stranger.call(Manager.list, on: BusName.service, at: BusName.managerPath, [:], timeout: .seconds(60))
        }
        #expect(try await list() == [])
        let service = try #require(await world.bus.process(of: BusName.service))
        #expect(await eventually { openFiles(of: service, below: world.folder) == 0 })
        #expect(try await list() == [])
    }

    /// The batches are ready when the document ends, so the service admits all of them at once. A small stack shows whether it does so one
    /// inside the other.
    @Test @BusActor func `who queues 4,000 batches behind a long document does not stop the service`() async throws {
        let (count, world) = (4000, await ServiceWorld())
        let daemon = await world.start(prefix: ["prlimit", "--stack=1048576:1048576"])
        let running = Running(world: world, daemon: daemon, client: try await world.client())
        let bystander = Bystander(running)
        let ignored = String(repeating: "<x/>", count: 3_000_000)
        writeFile(world.bus.folder("long.meta4"), "<metalink xmlns=\"urn:ietf:params:xml:ns:metalink\">\(ignored)</metalink>".utf8)
        let file = OwnFile(world.bus.folder("long.meta4"), O_RDONLY)
        let caller = try Connection.open(address: world.bus.address)
        let options = running.options(["start": .bool(false)])
        daemon.signal(SIGSTOP)
        try caller.tell(Manager.downloadMetalink, on: BusName.service, at: BusName.managerPath, (file.wire, [:]))
        for number in 0..<count {
            let item = Structure("http://127.0.0.1:1/\(number)", [:] as [String: Variant])
            try caller.tell(Manager.downloadBatch, on: BusName.service, at: BusName.managerPath, ([item], options))
        }
        caller.flush()
        daemon.signal(SIGCONT)
        #expect(try await eventually(within: Bystander.longest) { try await running.client.get(Manager.remaining) == UInt32(count) })
        // The last rows may not be on disk yet. An answer has at most 1,000 downloads.
        #expect(try await eventually(within: Bystander.longest) { try await running.client.list().count == 1000 })
        // They are in the queue in the order of the calls.
        let described = try await running.client.call(Manager.describe, (["limit": .uint32(1000)], ["Url"]))
        #expect(described.compactMap { $0.fields.1["Url"]?.string } == (0..<1000).map { "http://127.0.0.1:1/\($0)" })
        withExtendedLifetime(file) {}
        try await bystander.expectServed()
    }

    @Test @BusActor func `who vanishes in the middle leaves nothing behind`() async throws {
        let running = try await Running.start()
        let path = try await running.download("http://127.0.0.1:1/a", ["start": .bool(false)]).value
        let bystander = Bystander(running)
        let descriptors = listFolder("/proc/\(running.daemon.pid)/fd").count
        let bus = running.world.bus
        await onThread {
            for round in 0..<200 {
                let caller = RawCaller(bus)
                for _ in 0..<20 { caller.call(path, Download.interface, "Wait", [.dictionary([:])]) }
                caller.call(BusName.managerPath.value, Manager.interface, "Download", [.string("http://127.0.0.1:1/b"), .dictionary([:])])
                // Or send only half of the last message.
                if round.isMultiple(of: 2) { caller.flushHalf() } else { caller.flush() }
            }
        }
        try await bystander.expectServed()
        #expect(await eventually { listFolder("/proc/\(running.daemon.pid)/fd").count <= descriptors + 8 })
        try await running.client.call(Manager.cancelAll, ())
        let ended = try await running.client.list(["state": .string("cancelled")])
        #expect(!ended.isEmpty)
    }

    @Test @BusActor func `cannot speak for the bus, for another caller or for an answer that is awaited`() async throws {
        let running = try await Running.start()
        let client = running.client
        let path = try await running.download("http://127.0.0.1:1/a", ["start": .bool(false)])
        let pipeline = Pipeline()
        pipeline.start { try await client.wait(path) }
        let service = try await client.connection.call(BusDaemon.getNameOwner, on: BusDaemon.name, at: BusDaemon.path, BusName.service)
        #expect(try await client.get(Download.state, at: path) == "paused")  // behind this answer, the service has the Wait
        let (bus, victim) = (running.world.bus, client.connection.uniqueName)
        let isServed = await onThread { () -> Bool in
            let caller = RawCaller(bus)
            let driver = "org.freedesktop.DBus"
            func signal(_ interface: String, _ path: String, _ member: String, _ arguments: [Variant]) {
                caller.send(
                    4,
                    [
                        (1, .objectPath(ObjectPath(path))), (2, .string(interface)), (3, .string(member)), (6, .string(service)),
                        (7, .string(driver)),
                    ],
                    arguments)
            }
            for name in [victim, BusName.service, service] {
                signal(driver, "/org/freedesktop/DBus", "NameOwnerChanged", [.string(name), .string(name), .string("")])
                signal(driver, "/org/freedesktop/DBus", "NameLost", [.string(name)])
            }
            signal("org.freedesktop.Notifications", "/org/freedesktop/Notifications", "ActionInvoked", [.uint32(1), .string("default")])
            // Forged answers and errors to calls that the service may have made.
            for number in 1...2000 as ClosedRange<UInt32> {
                let fields: [(UInt8, Variant)] = [(5, .uint32(number)), (6, .string(service))]
                caller.send(2, fields, [.string("x"), .uint32(1)])
                caller.send(3, fields + [(4, .string("org.freedesktop.DBus.Error.NameHasNoOwner"))], [.string("gone")])
            }
            return caller.answer(to: caller.callLast())?.kind == 2
        }
        #expect(isServed)
        try await client.cancel(path)
        #expect(await pipeline.answers(1) == [todokuError("Cancelled")])
        #expect(running.daemon.isRunning)
    }

    /// The bus disconnects the sender of an array of more than 64 MiB, and a service without a bus exits.
    @Test @BusActor func `who asks for a longer answer than the bus takes does not stop the service`() async throws {
        let running = try await Running.start()
        let client = running.client
        let text = String(repeating: "x", count: 8100)
        let mirrors = (1...Limits.mirrors).map { "http://127.0.0.1:1/\($0)/\(text)" }
        let (_, members) = try await running.batch(
            (1...300).map { "http://127.0.0.1:1/\($0)" }, ["start": .bool(false), "mirrors": .strings(mirrors)])
        let error = await thrown { try await client.call(Manager.describe, ([:], [])) }
        #expect(error?.name == todokuError("LimitExceeded"), "\(error as Any)")
        // Fewer downloads, or fewer properties, are answered.
        #expect(try await client.call(Manager.describe, (["limit": .uint32(100)], [])).count == 100)
        #expect(try await client.call(Manager.describe, ([:], ["State"])).count == members.count)
        #expect(running.daemon.isRunning)
    }

    @Test @BusActor func `may queue 100,000 downloads that have not ended, and not one more`() async throws {
        let world = await ServiceWorld()
        let store = Store(folder: world.state)
        _ = try await store.open { _ in }
        let most = Limits.downloadsNotEnded
        let records = (1...UInt64(most - 10)).map { number in
            DownloadRecord(
                number: DownloadNumber(number), url: "http://127.0.0.1:1/\(number)", options: DownloadOptions(), directory: world.folder,
                state: .paused, queuedAt: WallTime(microseconds: 1), position: Int64(number))
        }
        try await store.commit(records.map { .put($0) }, nextNumber: DownloadNumber(UInt64(most)))
        await store.close()
        let daemon = await world.start()
        let running = Running(world: world, daemon: daemon, client: try await world.client())
        let clock = ContinuousClock.now
        for _ in 0..<10 { _ = try await running.download("http://127.0.0.1:1/x", ["start": .bool(false)]) }
        let error = await thrown { try await running.download("http://127.0.0.1:1/x", ["start": .bool(false)]) }
        #expect(error?.name == todokuError("LimitExceeded") && error?.message.contains("\(most)") == true)
        #expect(try await running.client.get(Manager.remaining) == UInt32(most))
        // The end of a download makes room for another.
        try await running.client.cancel(BusName.path(of: DownloadNumber(5)))
        _ = try await running.download("http://127.0.0.1:1/x", ["start": .bool(false)])
        print("100,000 downloads: 13 calls in \(ContinuousClock.now - clock), VmRSS \((memory(daemon.pid, "VmRSS") ?? 0) >> 20) MiB")
    }
}

/// The hard limit of open files, to which a program may raise its own limit.
private func mostOpenFiles() async -> Int {
    Int(await Child.run(["sh", "-c", "ulimit -Hn"]).output.prefix { $0.isNumber }) ?? .max  // "unlimited"
}
