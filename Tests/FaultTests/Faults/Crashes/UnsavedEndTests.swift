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
            let (desk, reads) = try await UnsavedEndDesk.withReads(end)
            #expect(reads.answered == [], "answered before the end was on disk")
            desk.place.hold(false)
            let areAnswered = await eventually { reads.answered == Reads.names }
            #expect(areAnswered, "only these are answered: \(reads.answered)")
            #expect(reads.premature == [], "answered before the signal of the end")
            #expect(reads.states == [end.state])
            #expect(await eventually { listFolder(desk.place.files).isEmpty }, "\(listFolder(desk.place.files))")
            await desk.close()
        }

        @Test(arguments: UnsavedEnd.allCases)
        @BusActor func `is in no answer, and has not happened after a kill`(_ end: UnsavedEnd) async throws {
            let (desk, reads) = try await UnsavedEndDesk.withReads(end)
            await desk.lane.end(SIGKILL)
            desk.place.hold(false)
            #expect(reads.answered == [], "answered before the end was on disk")
            // The server does not answer the next request to its end, so the download is active again, and not ended.
            let asked = desk.requests
            let ending = await desk.lane.start(desk.place)
            try #require(ending == nil, "\(ending?.errors ?? "")")
            let isAsked = await eventually { desk.requests > asked }
            #expect(isAsked)
            let download = try await desk.lane.describe()[desk.path.value]
            #expect(download?.hasEnded == false)
            await desk.expectTheFile()
            await desk.close()
        }
    }
}

/// How a download ends.
enum UnsavedEnd: CaseIterable, Sendable {
    case cancelled
    /// By a 404, which brings no bytes of a file. So it is the same over any number of connections.
    case failed
    /// Cancelled while eight connections bring parts of the file, from one server, or from a server and two mirrors.
    case cancelledParts, cancelledMirrors

    var state: String { self == .failed ? "failed" : "cancelled" }
    var way: Way {
        switch self {
        case .cancelled, .failed: .one
        case .cancelledParts: .several
        case .cancelledMirrors: .mirrors
        }
    }
}

/// A download in a batch of one, and a service whose writes to its database can be held.
@BusActor private final class UnsavedEndDesk {
    let lane: Lane
    let place = Place()
    let path: ObjectPath
    private let end: UnsavedEnd
    private let batch: ObjectPath
    private let server: ScriptedServer
    /// The servers of a file that comes over several connections.
    private let servers: CaseServers
    /// The first request is answered when `gate` opens, and any later one when `later` opens.
    private let gate = Gate()
    private let later = Gate()

    var requests: Int { end.way == .one ? server.requests.count : servers.requestCount }

    /// A desk whose download has ended in the memory of its service, and the calls that read this end. The service answers such calls once
    /// a commit has taken 5 s. If the machine pauses for nearly as long, this function tries again with another desk.
    static func withReads(_ end: UnsavedEnd) async throws -> (desk: UnsavedEndDesk, reads: Reads) {
        for _ in 0..<4 {
            let desk = try await UnsavedEndDesk(end)
            let begun = ContinuousClock.now
            let reads = try await desk.readUnsavedEnd()
            if ContinuousClock.now - begun < .seconds(4) { return (desk, reads) }
            desk.place.hold(false)
            await desk.close()
        }
        let desk = try await UnsavedEndDesk(end)
        return (desk, try await desk.readUnsavedEnd())
    }

    /// Returns once the download is active: the server has its request, and does not answer, or has sent the beginning of each part.
    init(_ end: UnsavedEnd) async throws {
        self.end = end
        lane = try await Lane(try await Shim.compiled())
        server = ScriptedServer { [gate, later] _, reply in
            (gate.isOpen ? later : gate).wait()
            reply.respond(404)
        }
        servers = CaseServers(Bodies.large, end.way, middle: .wait(gate))
        let ending = await lane.start(place, more: ["FAULTSHIM_HOLD": "todoku.db-wal"])
        try #require(ending == nil, "\(ending?.errors ?? "")")
        let options = patient(["directory": .string(place.files), "notify": .string("never")])
        let item = Structure(end.way == .one ? server.url("/file.bin") : servers.url, try await servers.options(place))
        let (batch, paths): (ObjectPath, [ObjectPath]) = try await lane.connection.call(
            Manager.downloadBatch, on: BusName.service, at: BusName.managerPath, ([item], options))
        (self.batch, path) = (batch, try #require(paths.first))
        // The row of the active download is on disk before the request is sent.
        let isActive = await eventually { end.way == .one ? requests == 1 : servers.areAllSent }
        #expect(isActive)
    }

    /// Ends the download while no write to the database returns. Then sends each call that can contain the end.
    ///
    /// - Returns: once the service has answered a call that came after the reads.
    func readUnsavedEnd() async throws -> Reads {
        place.hold(true)
        switch end {
        case .failed: gate.open()
        case .cancelled, .cancelledParts, .cancelledMirrors:
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

    /// Lets the servers of several connections send the rest: the download finishes, with the right bytes of all servers.
    func expectTheFile() async {
        guard end.way != .one else { return }
        gate.open()
        var verdict = Verdict(row: "", name: "")
        await finish(path, "a.bin", Bodies.large, place, lane, &verdict)
        servers.expectSeveral(&verdict)
        #expect(verdict.wrong == [])
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
