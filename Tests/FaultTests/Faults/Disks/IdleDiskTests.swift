internal import DBus
internal import DownloaderInterface
internal import EventLoop
internal import Glibc
internal import TestSupport
internal import Testing

extension `The fault campaign` {
    @Suite struct `A service with nothing to do but a call that waits for a disk` {
        @Test func `stays until the files of a removed batch are deleted`() async throws {
            #expect(try await inTime { try await removeBatch() }, "each time, the deletion was released too late")
        }

        @Test func `stays until the disk of a file that is to be opened has answered`() async throws {
            #expect(try await inTime { try await openFile() }, "each time, the disk was released too late")
        }

        /// - Returns: false: the service may have given up the deletion before it was released. It waits for 200 files at most 20 s.
        @BusActor private func removeBatch() async throws -> Bool {
            let desk = try await IdleDesk(more: ["FAULTSHIM_HOLD_DELETION": "slow.bin"])
            defer { desk.gate.open() }
            let items = (0..<200).map { Structure(desk.server.url($0 == 0 ? "/slow.bin" : "/\($0).bin"), [String: Variant]()) }
            let (batch, _): (ObjectPath, [ObjectPath]) = try await desk.lane.connection.call(
                Manager.downloadBatch, on: BusName.service, at: BusName.managerPath, (items, desk.options), timeout: .seconds(60))
            let (finished, failed, cancelled) = try await desk.lane.connection.call(
                Batch.wait, on: BusName.service, at: batch, [:], timeout: .seconds(180))
            #expect([finished, failed, cancelled] == [200, 0, 0])
            desk.place.hold(true)
            let begun = ContinuousClock.now
            async let removed: Void = desk.lane.remove(batch: batch)
            #expect(await eventually { desk.place.held == 1 })
            let hasLeft = try await desk.leaves()
            desk.place.hold(false)
            guard ContinuousClock.now - begun < .seconds(18) else {
                _ = try? await removed
                await desk.lane.end(SIGKILL)
                return false
            }
            #expect(!hasLeft, "it left before the files were deleted")
            try await removed
            #expect(listFolder(desk.place.files).isEmpty, "\(listFolder(desk.place.files))")
            #expect(await eventually { !desk.lane.isRunning }, "it stays after the deletion")
            #expect(await desk.lane.end(SIGTERM).status == 0)
            return true
        }

        /// - Returns: false: the service may have refused the call before the disk was released. It waits at most 10 s.
        @BusActor private func openFile() async throws -> Bool {
            let fault = Fault(kind: .hang, at: 1_000_000, isLasting: true, disk: .downloads)
            let desk = try await IdleDesk(fault)
            defer { desk.gate.open() }
            let path = try await desk.lane.download(desk.server.url("/a.bin"), desk.options)
            #expect(try await desk.lane.settle([path])[path.value]?.state == "finished")
            desk.place.reach(fault)
            let begun = ContinuousClock.now
            async let opened: Void = desk.lane.openFile(path)
            #expect(await eventually { desk.place.hits > 0 })
            let hasLeft = try await desk.leaves()
            desk.place.stopFaults()
            guard ContinuousClock.now - begun < .seconds(9) else {
                _ = try? await opened
                await desk.lane.end(SIGKILL)
                return false
            }
            #expect(!hasLeft, "it left before the disk answered")
            try await opened
            #expect(await eventually { !desk.lane.isRunning }, "it stays after the call")
            #expect(await desk.lane.end(SIGTERM).status == 0)
            return true
        }
    }
}

/// A service that ends after `idleExit` seconds with nothing to do.
@BusActor private final class IdleDesk {
    private static let idleExit = 2

    let lane: Lane
    let place = Place()
    /// The server answers the download `active` when this opens.
    let gate = Gate()
    let server: ScriptedServer
    let options: [String: Variant]
    /// This download waits for its server, and keeps the service from ending before the call is made.
    private let active: ObjectPath

    init(_ fault: Fault? = nil, more: [String: String] = [:]) async throws {
        lane = try await Lane(try await Shim.compiled())
        server = ScriptedServer { [gate] request, reply in
            if request.path == "/active" { gate.wait() }
            reply.respond(200, text: "x")
        }
        options = ["directory": .string(place.files), "notify": .string("never")]
        // An earlier service gets the download, so the later one is never idle before.
        let first = await lane.start(place, fault, more: more)
        try #require(first == nil, "\(first?.errors ?? "")")
        let other = place.folder.makeFolder("other")
        active = try await lane.download(server.url("/active"), ["directory": .string(other), "notify": .string("never")])
        await lane.end(SIGTERM)
        let second = await lane.start(place, fault, more: more, idleExit: Self.idleExit)
        try #require(second == nil, "\(second?.errors ?? "")")
    }

    /// Cancels the download that keeps the service.
    ///
    /// - Returns: whether the service, with nothing to do, has left the bus.
    func leaves() async throws -> Bool {
        try await lane.cancel(active)
        return await eventually(within: .seconds(2 * Self.idleExit)) { !lane.hasName }
    }
}

extension Lane {
    /// Removes a batch and its finished files.
    fileprivate func remove(batch: ObjectPath) async throws(DBusError) {
        try await connection.call(Batch.remove, on: BusName.service, at: batch, true, timeout: .seconds(60))
    }
}
