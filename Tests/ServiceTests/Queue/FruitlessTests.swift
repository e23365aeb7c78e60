internal import DBus
internal import DownloaderInterface
internal import EventLoop
internal import TestSupport
internal import Testing

extension Running {
    fileprivate func waits(_ path: ObjectPath, for reason: String) async -> Bool {
        await client.signals.until { $0.contains { $0.path == path.value && $0.changed?["WaitReason"] == .string(reason) } }
    }
}

@Suite struct `A server whose bytes are of no use` {
    @Test func `because it always cuts them, and nothing can be resumed, uses up the retries`() async throws {
        let server = ScriptedServer { _, reply in
            reply.head(200, length: 500_000)
            reply.send(patternBytes(100_000))
            reply.close()
        }
        let running = try await Running.start()
        let path = try await running.download(server.url("/a"), ["retries": .uint32(2)])
        #expect(await thrown { _ = try await running.client.wait(path) }?.name == todokuError("Truncated"))
        #expect(server.requests.count == 3, "one, and two retries")
        let times = server.requests.map(\.arrived)
        #expect(times.count == 3 && times[2] - times[0] >= .milliseconds(1400), "half a second and a second at least")
        #expect(await eventually { running.world.files == [] }, "the part file is deleted once the end is on disk")
    }

    @Test func `because nothing can be resumed, leaves no bytes of a killed service while it waits`() async throws {
        let (hangs, isBusy) = (Gate(), Gate())
        let server = ScriptedServer { _, reply in
            if isBusy.isOpen { return reply.respond(503, ["Retry-After": "3600"]) }
            reply.head(200, length: 5_000_000)
            reply.send(patternBytes(2_000_000))
            hangs.wait()
        }
        defer { hangs.open() }
        let running = try await Running.start()
        let path = try await running.download(server.url("/a"))
        let part = running.world.partName(1)
        #expect(await eventually { running.world.bytes(part)?.isEmpty == false })
        await running.world.kill(running.daemon)
        isBusy.open()
        #expect(running.world.files == [part])
        await running.client.signals.forget()
        let daemon = await running.world.start()
        #expect(await running.waits(path, for: "retry"))
        #expect(await eventually { running.world.files == [] })
        #expect(server.requests.count == 2 && daemon.isRunning)
    }

    @Test(.enabled("only root can mount a small disk") { await SmallDisk.isPossible() })
    func `because they fill the disk, leaves that room to others while it waits`() async throws {
        let body = patternBytes(6_000_000)
        let server = ScriptedServer { _, reply in
            reply.head(200, ["Transfer-Encoding": "chunked"])
            for start in stride(from: 0, to: body.count, by: 100_000) { reply.chunk(body[start..<(start + 100_000)]) }
            reply.chunk([])
        }
        let running = try await Running.start()
        let isDone = try await SmallDisk.withDisk(bytes: 4 << 20) { disk in
            let path = try await running.download(server.url("/a"), ["directory": .string(disk.path)])
            #expect(await running.waits(path, for: "disk-space"))
            #expect(await eventually { listFolder(disk.path) == [] })
            let requests = server.requests.count
            // The next check of the folder finds the room that the failed attempt freed, which was not enough.
            #expect(await !eventually(within: .seconds(7)) { server.requests.count > requests })
            await disk.remount("size=64m")
            #expect(readFile(try await running.client.wait(path)) == body)
            #expect(server.requests.count == requests + 1)
            return true
        }
        #expect(isDone == true)
    }

    @Test(.enabled("only root can mount a small disk") { await SmallDisk.isPossible() })
    func `or too many leaves the configured reserve of the disk free`() async throws {
        let body = patternBytes(2_000_000)
        let server = ScriptedServer { request, reply in reply.serve(body, for: request, entityTag: "\"v\"") }
        let running = try await Running.start()
        #expect(try await running.client.get(Manager.diskReserve) == -1)
        let isDone = try await SmallDisk.withDisk(bytes: 4 << 20) { disk in
            try await running.client.set(Manager.diskReserve, 3 << 20)
            let path = try await running.download(server.url("/a"), ["directory": .string(disk.path)])
            #expect(await running.waits(path, for: "disk-space"))
            let missing = try await running.client.get(Download.error, at: path).details["missing-bytes"]?.uint64
            #expect(missing == 2_000_000 - (1 << 20))
            // Lowering the reserve resumes the waiting download.
            try await running.client.set(Manager.diskReserve, 0)
            #expect(readFile(try await running.client.wait(path)) == body)
            return true
        }
        #expect(isDone == true)
    }
}
