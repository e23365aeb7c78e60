internal import DBus
internal import DownloaderInterface
internal import EventLoop
internal import Glibc
internal import TestSupport
internal import Testing

extension `The fault campaign` {
    /// Writes to the database wait while the test wants, so a download has ended in the memory of the service and not on disk.
    @Suite struct `An end that is not on disk yet` {
        @Test(arguments: UnsavedEnd.allCases)
        @BusActor func `is in no answer, and in every answer once it is on disk`(_ end: UnsavedEnd) async throws {
            let desk = try await UnsavedEndDesk(end)
            let reads = try await desk.readUnsavedEnd()
            #expect(reads.answered == [], "answered before the end was on disk")
            desk.place.hold(false)
            let areAnswered = await eventually { reads.answered == Reads.names }
            #expect(areAnswered, "only these are answered: \(reads.answered)")
            #expect(reads.premature == [], "answered before the signal of the end")
            #expect(reads.states == [end.state])
            await desk.close()
        }

        @Test(arguments: UnsavedEnd.allCases)
        @BusActor func `is in no answer, and has not happened after a kill`(_ end: UnsavedEnd) async throws {
            let desk = try await UnsavedEndDesk(end)
            let reads = try await desk.readUnsavedEnd()
            await desk.lane.end(SIGKILL)
            desk.place.hold(false)
            #expect(reads.answered == [], "answered before the end was on disk")
            // The server does not answer the next request, so the download is active again, and not ended.
            let ending = await desk.lane.start(desk.place)
            try #require(ending == nil, "\(ending?.errors ?? "")")
            let isAsked = await eventually { desk.requests == 2 }
            #expect(isAsked)
            let download = try await desk.lane.describe()[desk.path.value]
            #expect(download?.hasEnded == false)
            await desk.close()
        }
    }
}

/// How a download ends.
enum UnsavedEnd: String, CaseIterable, Sendable {
    case cancelled, failed

    var state: String { rawValue }
}

/// A download in a batch of one, and a service whose writes to its database can be held.
@BusActor private final class UnsavedEndDesk {
    let lane: Lane
    let place = Place()
    let path: ObjectPath
    private let end: UnsavedEnd
    private let batch: ObjectPath
    private let server: ScriptedServer
    /// The first request is answered when `gate` opens, and any later one when `later` opens.
    private let gate = Gate()
    private let later = Gate()

    var requests: Int { server.requests.count }

    /// Returns once the download is active: the server has its request, and does not answer.
    init(_ end: UnsavedEnd) async throws {
        self.end = end
        lane = try await Lane(try await Shim.compiled())
        server = ScriptedServer { [gate, later] _, reply in
            (gate.isOpen ? later : gate).wait()
            reply.respond(404)
        }
        let ending = await lane.start(place, more: ["FAULTSHIM_HOLD": "todoku.db-wal"])
        try #require(ending == nil, "\(ending?.errors ?? "")")
        let options: [String: Variant] = ["directory": .string(place.files), "notify": .string("never")]
        let (batch, paths): (ObjectPath, [ObjectPath]) = try await lane.connection.call(
            Manager.downloadBatch, on: BusName.service, at: BusName.managerPath, ([Structure(server.url("/file.bin"), [:])], options))
        (self.batch, path) = (batch, try #require(paths.first))
        // The row of the active download is on disk before the request is sent.
        let isActive = await eventually { requests == 1 }
        #expect(isActive)
    }

    /// Ends the download while no write to the database returns. Then sends each call that can contain the end.
    ///
    /// - Returns: once the service has answered a call that came after the reads.
    func readUnsavedEnd() async throws -> Reads {
        place.hold(true)
        switch end {
        case .failed: gate.open()
        case .cancelled:
            let (connection, path) = (lane.connection, path)
            Task { try? await connection.call(Download.cancel, on: BusName.service, at: path, ()) }
        }
        let isHeld = await eventually { [place] in place.held > 0 }
        #expect(isHeld)
        let reads = Reads(path, batch, lane)
        // The calls of the reads are sent in turns of the loop. This turn comes after them.
        await withCheckedContinuation { continuation in
            BusActor.spawn { continuation.resume() }
        }
        // The service reads calls in their order.
        _ = try await lane.property(Manager.version.name)
        return reads
    }

    func close() async {
        await lane.end(SIGTERM)
        gate.open()
        later.open()
    }
}

/// Calls that read the end of a download.
@BusActor private final class Reads {
    static let names: Set<String> = ["Get", "GetAll", "Describe", "List", "ListBatches", "GetAll of the batch"]

    private(set) var answered: Set<String> = []
    /// The calls answered before the signal of the end.
    private(set) var premature: Set<String> = []
    private(set) var states: Set<String> = []
    private let path: ObjectPath
    private let lane: Lane

    init(_ path: ObjectPath, _ batch: ObjectPath, _ lane: Lane) {
        (self.path, self.lane) = (path, lane)
        let (connection, service, manager) = (lane.connection, BusName.service, BusName.managerPath)
        ask("Get") { try await connection.call(Standard.get, on: service, at: path, (Download.interface, Download.state.name)).string }
        ask("GetAll") {
            try await connection.call(Standard.getAll, on: service, at: path, Download.interface)[Download.state.name]?.string
        }
        ask("Describe") {
            let all = try await connection.call(Manager.describe, on: service, at: manager, ([:], [Download.state.name]))
            return all.first?.fields.1[Download.state.name]?.string
        }
        ask("List") {
            _ = try await connection.call(Manager.list, on: service, at: manager, ["states": .strings(["cancelled", "failed"])])
            return nil
        }
        ask("ListBatches") {
            _ = try await connection.call(Manager.listBatches, on: service, at: manager, ["ended": .bool(true)])
            return nil
        }
        ask("GetAll of the batch") {
            _ = try await connection.call(Standard.getAll, on: service, at: batch, Batch.interface)
            return nil
        }
    }

    /// Sends a call in the next turn of the loop. Its result is the state, or nil if the call does not tell it. An error is no answer: the
    /// service was killed.
    private func ask(_ name: String, _ call: @escaping @BusActor @Sendable () async throws -> String?) {
        BusActor.spawn { [self] in
            do {
                if let state = try await call() { states.insert(state) }
                answered.insert(name)
                if lane.count("Completed", path) == 0 { premature.insert(name) }
            } catch {}
        }
    }
}
