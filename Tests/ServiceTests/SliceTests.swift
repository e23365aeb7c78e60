internal import DBus
internal import DownloaderInterface
internal import EventLoop
internal import Glibc
internal import TestSupport
internal import Testing

/// On one connection everything comes in the order in which it was sent: what is answered before the last signal of a call was not held up by that call.
@Suite struct `What is done to many` {
    private static let count = 3000

    /// Queues as many, of which none gets an answer from its server.
    private func queue(_ running: Running, _ server: ScriptedServer) async throws -> [ObjectPath] {
        let items = (0..<Self.count).map { (server.url("/\($0)"), [:] as [String: Variant]) }
        return try await running.client.batch(items, ["directory": .string(running.world.folder), "notify": .string("never")]).1
    }

    @Test func `by PauseAll and ResumeAll holds up no other call, is seen at once, and outlasts a kill`() async throws {
        let gate = Gate()
        let server = ScriptedServer { _, _ in gate.wait() }
        defer { gate.open() }
        let running = try await Running.start()
        let members = try await queue(running, server)
        let (first, last) = (members[0], members[Self.count - 1])
        #expect(await running.client.signals.isIn("active", first))
        let before = await running.client.signals.seen.count
        try await running.client.connection.tell(Manager.pauseAll, on: BusName.service, at: BusName.managerPath, ())
        #expect(try await running.client.get(Download.waitReason, at: last) == "paused-all")
        let told = await running.client.signals.pausedSince(before).count
        #expect(told < Self.count, "all \(told) were told before another call was answered")
        #expect(try await running.client.list(["states": .strings(["queued", "active"])]) == [])
        // Answered when it is on disk.
        try await running.client.call(Manager.pauseAll, ())
        await running.world.kill(running.daemon)
        _ = await running.world.start()
        for path in [first, last] { #expect(try await running.client.get(Download.waitReason, at: path) == "paused-all") }
        #expect(try await running.client.list(["states": .strings(["queued", "active"])]) == [])

        let resumed = await running.client.signals.seen.count
        try await running.client.call(Manager.resumeAll, ())
        #expect(try await running.client.get(Download.waitReason, at: last) != "paused-all")
        let all = Set(members.map(\.value))
        let isTold = await running.client.signals.until { seen in
            Set(seen.dropFirst(resumed).filter { $0.state != nil && $0.changed?["WaitReason"]?.string != "paused-all" }.map(\.path))
                .isSuperset(of: all)
        }
        #expect(isTold, "not all were told")
        #expect(await eventually { (try? await running.client.get(Manager.active)) == 4 })
        try await running.client.call(Manager.pauseAll, ())
        let isHeld = await running.client.signals.until { seen in
            Set(seen.dropFirst(resumed).filter { $0.changed?["WaitReason"]?.string == "paused-all" }.map(\.path)).isSuperset(of: all)
        }
        #expect(isHeld, "not all were told")
    }

    @Test func `by CancelAll and ClearEnded holds up no other call, and is done to all by the next start`() async throws {
        let gate = Gate()
        let server = ScriptedServer { _, _ in gate.wait() }
        defer { gate.open() }
        let running = try await Running.start()
        let members = try await queue(running, server)
        let last = members[Self.count - 1]
        try await running.client.connection.tell(Manager.cancelAll, on: BusName.service, at: BusName.managerPath, ())
        _ = try await running.client.get(Download.state, at: last)
        #expect(await running.client.signals.seen.count { $0.ended != nil } < Self.count, "all were told before another call was answered")
        #expect(await running.client.signals.has("DownloadEnded"))
        await running.world.kill(running.daemon)
        _ = await running.world.start()
        let later = try await running.client.download(server.url("/later"), running.options())
        #expect(await eventually { (try? await running.client.get(Manager.remaining)) == 1 })
        #expect(try await running.client.get(Download.state, at: last) == "cancelled")
        #expect(server.requests.filter { $0.path == "/later" }.count <= 1)
        // What is begun again since counts no more as cancelled.
        try await running.client.retry(last)
        try await running.client.call(Manager.cancelAll, ())
        for path in [last, later] { #expect(try await running.client.get(Download.state, at: path) == "cancelled") }

        let before = await running.client.signals.seen.count
        try await running.client.connection.tell(Manager.clearEnded, on: BusName.service, at: BusName.managerPath, ())
        _ = try await running.client.get(Manager.paused)
        let removed = await running.client.signals.seen.dropFirst(before).count { $0.member == "DownloadRemoved" }
        #expect(removed < Self.count, "all were told before another call was answered")
        #expect(await running.client.signals.has("DownloadRemoved", count: Self.count + 1))
        #expect(try await running.client.list() == [])
    }
}

extension Recorder {
    /// Which were told since then that they wait for ResumeAll.
    fileprivate func pausedSince(_ index: Int) -> [String] {
        seen.dropFirst(index).filter { $0.changed?["WaitReason"]?.string == "paused-all" }.map(\.path)
    }
}
