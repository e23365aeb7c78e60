internal import DBus
internal import DownloaderInterface
internal import EventLoop
internal import Glibc
internal import TestSupport
internal import Testing

@Suite struct `While the queue cannot be saved` {
    @Test(.enabled("only root can mount a small disk") { await SmallDisk.isPossible() })
    func `progress continues, calls are refused, and changes are reported once afterwards`() async throws {
        let body = patternBytes(900_000)
        let gates = [Gate(), Gate()]
        let server = ScriptedServer { _, reply in
            reply.head(200, ["ETag": "\"1\""], length: body.count)
            reply.send(body[..<300_000])
            gates[0].wait()
            reply.send(body[300_000..<600_000])
            gates[1].wait()
            reply.send(body[600_000...])
        }
        let world = await ServiceWorld()
        let client = try await world.client()
        let isDone = try await SmallDisk.withDisk(bytes: 4 << 20) { disk in
            defer { for gate in gates { gate.open() } }
            let daemon = await world.start(extra: ["XDG_STATE_HOME": disk.path])
            // The server is silent during thousands of calls.
            let path = try await client.download(
                server.url("/a"),
                ["directory": .string(world.folder), "notify": .string("never"), "stall-timeout": .uint32(3_600_000)])
            #expect(await client.signals.hasReceived(300_000, path))
            disk.fill(leaving: 0)
            // The log of the database may have room for some more commits.
            var refusal: DBusError?
            for priority in 1...5000 as ClosedRange<Int32> where refusal == nil {
                refusal = await thrown { try await client.set(Download.priority, at: path, priority) }
            }
            #expect(refusal?.name == todokuError("Storage"))
            let told = await priorities(path, client.signals.seen).count
            for priority in 10_001...15_000 as ClosedRange<Int32> {
                try await client.connection.tell(
                    Standard.set, on: BusName.service, at: path, (Download.interface, Download.priority.name, priority.variant))
            }
            gates[0].open()
            #expect(await client.signals.hasReceived(600_000, path), "no progress")
            // The retry fails, too.
            #expect(await thrown { try await client.set(Download.priority, at: path, 16_000) }?.name == todokuError("Storage"))
            for name in listFolder(disk.path) where name.hasPrefix("filler") { unlink("\(disk.path)/\(name)") }
            #expect(await client.signals.until { priorities(path, $0).last == 16_000 })
            // After a failure, the database is opened again, which may make room for another commit. Then the changes so far are announced,
            // too.
            let since = await priorities(path, client.signals.seen).count - told
            #expect(since <= 10, "of 5,001 changes \(since) were told")
            gates[1].open()
            #expect(readFile(try await client.wait(path)) == body)
            let seen = await client.signals.seen.filter { $0.path == path.value }
            let progress = seen.compactMap(\.progress)
            #expect(progress.reduce(0) { $0 + $1.written } == 900_000 && progress.last?.received == 900_000)
            #expect(progress.map(\.received) == progress.map(\.received).sorted())
            let (last, end) = (seen.lastIndex { $0.progress != nil }, seen.firstIndex { $0.state == "finished" })
            #expect(try #require(last) < (try #require(end)))
            let exit = await daemon.stop()
            #expect(exit.status == 0)
            return true
        }
        #expect(isDone == true)
    }

    /// A failed commit answers the calls that wait for it. The messages about ends are kept for the next commit.
    @Test(.enabled("only root can mount a small disk") { await SmallDisk.isPossible() })
    func `calls are refused at once when too many messages wait, and every end is reported once afterwards`() async throws {
        let world = await ServiceWorld()
        let client = try await world.client()
        let isDone = try await SmallDisk.withDisk(bytes: 64 << 20) { disk in
            let daemon = await world.start(extra: ["XDG_STATE_HOME": disk.path])
            let (batch, paths) = try await client.batch(
                (0..<6000).map { ("http://127.0.0.1:1/\($0)", [:]) },
                ["directory": .string(world.folder), "notify": .string("never"), "start": .bool(false)])
            disk.fill(leaving: 0)
            // The log of the database may have room for some more commits.
            var refusal: DBusError?
            for limit in 100...5000 as ClosedRange<UInt32> where refusal == nil {
                refusal = await thrown { try await client.set(Manager.maxActive, limit) }
            }
            #expect(refusal?.name == todokuError("Storage"))
            // Two messages about each end: more than 10,000.
            #expect(await thrown { try await client.call(Manager.cancelAll, ()) }?.name == todokuError("Storage"))
            for refusal in [
                await thrown { try await client.set(Manager.maxActive, 9) },
                await thrown { try await client.download("http://127.0.0.1:1/more", ["start": .bool(false)]) },
            ] {
                #expect(
                    refusal?.name == todokuError("Storage") && refusal?.message.contains("too many calls wait") == true, "\(refusal as Any)"
                )
            }
            for name in listFolder(disk.path) where name.hasPrefix("filler") { unlink("\(disk.path)/\(name)") }
            // Refused, too, until the disk is tried again.
            #expect(await eventually { (try? await client.wait(batch: batch)) == [0, 0, 6000] })
            let ended = await client.signals.seen.compactMap(\.ended?.path.value)
            #expect(ended.count == paths.count && Set(ended) == Set(paths.map(\.value)))
            try await client.set(Manager.maxActive, 9)
            let exit = await daemon.stop()
            #expect(exit.status == 0)
            return true
        }
        #expect(isDone == true)
    }

    /// Whoever waits for what is on disk does not wait for the changes of others.
    @Test(.enabled("only root can mount a small disk") { await SmallDisk.isPossible() })
    func `ends that are on disk are answered at once, and Remove with the files answers Storage`() async throws {
        let server = ScriptedServer { _, reply in reply.respond(200, text: "x") }
        let world = await ServiceWorld()
        let client = try await world.client()
        let isDone = try await SmallDisk.withDisk(bytes: 4 << 20) { disk in
            let daemon = await world.start(extra: ["XDG_STATE_HOME": disk.path])
            let options: [String: Variant] = ["directory": .string(world.folder), "notify": .string("never")]
            let path = try await client.download(server.url("/a"), options.merging(["tag": .string("old")]) { $1 })
            let file = try await client.wait(path)
            let token = options.merging(["app": .string("org.example.App"), "token": .string("t")]) { $1 }
            let fetched = try await client.call(Manager.fetch, (server.url("/b"), token))
            let (batch, members) = try await client.batch([(server.url("/c"), [:]), (server.url("/d"), [:])], options)
            #expect(try await client.wait(batch: batch) == [2, 0, 0])
            let files = [file, try await client.wait(members[0]), try await client.wait(members[1])]
            disk.fill(leaving: 0)
            #expect(await client.isRefusedStorage())
            #expect(try await client.call(Download.wait, at: path, [:]) == file)
            #expect(try await client.call(Batch.wait, at: batch, [:]) == (2, 0, 0))
            #expect(try await client.call(Manager.fetch, (server.url("/b"), token)) == fetched)
            #expect(try await client.call(Manager.waitAll, ["tag": .string("old")]) == (1, 0, 0))
            let removals = [
                await thrown { try await client.remove(path, deletingFile: true) },
                await thrown { try await client.call(Batch.remove, at: batch, true) },
            ]
            #expect(removals.map { $0?.name } == [todokuError("Storage"), todokuError("Storage")], "\(removals)")
            #expect(files.allSatisfy(fileExists))
            for name in listFolder(disk.path) where name.hasPrefix("filler") { unlink("\(disk.path)/\(name)") }
            #expect(await eventually { !files.contains(where: fileExists) })
            let exit = await daemon.stop()
            #expect(exit.status == 0)
            return true
        }
        #expect(isDone == true)
    }

    /// A caller that gets no answer repeats its call. Another program holds the database until the first commit has failed; the next commit
    /// succeeds.
    @Test(arguments: [false, true])
    func `a repeated call with a token gets no path of a download that could not be saved`(isBatch: Bool) async throws {
        let running = try await Running.start()
        let (world, client) = (running.world, running.client)
        let options = running.options(["app": .string("org.example.App"), "start": .bool(false)])
        @Sendable func queue() async -> ObjectPath? {
            let (url, token): (String, [String: Variant]) = ("http://127.0.0.1:1/a", ["token": .string("t")])
            if isBatch { return try? await client.batch([(url, token)], options).1[0] }
            return try? await client.download(url, options.merging(token) { $1 })
        }
        let holder = try await world.holdDatabase()
        // The service waits two seconds for the database, and then forgets the download. If a busy machine looks for the download later,
        // the test queues it again.
        var first = Task { await queue() }
        for attempt in 1...20 {
            if try await eventually(within: .seconds(2), { try await client.get(Manager.remaining) == 1 }) { break }
            #expect(await first.value == nil)
            #expect(attempt < 20)
            first = Task { await queue() }
        }
        // The first commit is in flight, so this change waits for the next one. So does the answer to the repeated call.
        try await client.connection.tell(
            Standard.set, on: BusName.service, at: BusName.managerPath, (Manager.interface, Manager.maxActive.name, .uint32(9)))
        async let second = queue()
        #expect(await first.value == nil)
        await holder.stop()
        let path = await second
        let listed = try await client.list()
        #expect(path.map(listed.contains) ?? true, "\(path as Any) was answered, and \(listed) is listed")
        #expect(await queue() != nil)
        #expect(await world.stop(running.daemon).status == 0)
    }
}

extension Recorder {
    fileprivate func hasReceived(_ bytes: UInt64, _ path: ObjectPath) async -> Bool {
        await until { seen in seen.contains { $0.path == path.value && $0.progress?.received ?? 0 >= bytes } }
    }
}

/// The priorities that `PropertiesChanged` has announced.
private func priorities(_ path: ObjectPath, _ seen: [Seen]) -> [Int32] {
    seen.filter { $0.path == path.value }.compactMap { if case .int32(let priority)? = $0.changed?["Priority"] { priority } else { nil } }
}
