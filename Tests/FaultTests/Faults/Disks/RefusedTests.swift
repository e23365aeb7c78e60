internal import DBus
internal import DownloaderInterface
internal import EventLoop
internal import Glibc
internal import TestSupport
internal import Testing

extension `The fault campaign` {
    @Suite struct `A download that is refused because the disk of the queue fails` {
        @Test func `is not in the queue after a restart, whichever call of its commit is the first to fail`() async throws {
            let report = await Report(
                "The disk of the queue fails during a commit",
                notes: """
                    From one call of the commit of a new download on, every call on the disk fails with EIO. So SQLite cannot take the rows \
                    back either. Then the disk works again. The service saves a setting and is killed, or is told to end.
                    """)
            let count = try await countCalls()
            let cases = (1...count).flatMap { call in [true, false].map { CommitCase(call: call, isKilled: $0) } }
            try await runCases(cases, report) { try await failCommit($0, $1) }
            await report.finish(expecting: Set(cases.map(\.row)).sorted())
        }
    }
}

private struct CommitCase: Sendable, CustomStringConvertible {
    /// The first call that fails, among the calls of the commit.
    let call: Int
    /// Whether the service saves another change and is killed; otherwise it is told to end.
    let isKilled: Bool
    var description: String { "from call \(call) on, \(row)" }
    var row: String { isKilled ? "kill -9 after another commit" : "SIGTERM" }
}

private let fault = Fault(kind: .eio, at: 1_000_000, isLasting: true, disk: .state)

extension Lane {
    /// Saves a setting. The value that the setting has already would save nothing.
    fileprivate func save(_ most: UInt32) async throws(DBusError) { try await set("MaxPerHost", .uint32(most)) }

    /// Adds a paused download.
    fileprivate func add(_ place: Place) async throws(DBusError) -> ObjectPath {
        try await download(
            "http://127.0.0.1:1/a", ["directory": .string(place.files), "notify": .string("never"), "start": .bool(false)])
    }
}

/// How many calls of the commit of a new download a fault could hit.
@BusActor private func countCalls() async throws -> Int {
    let (lane, place) = (try await Lane(try await Shim.compiled()), Place())
    let ending = await lane.start(place, Fault(kind: .eio, at: 0, disk: .state))
    try #require(ending == nil, "\(ending?.errors ?? "")")
    // The first commit of a new database makes more calls.
    try await lane.save(5)
    let before = place.calls
    _ = try await lane.add(place)
    let count = place.calls - before
    try #require(count > 0)
    await lane.end(SIGKILL)
    return count
}

@BusActor private func failCommit(_ test: CommitCase, _ lane: Lane) async throws -> Verdict {
    let place = Place()
    var verdict = Verdict(row: test.row, name: "\(test)")
    guard await startInTheEnd(place, fault, lane, &verdict) else { return verdict }
    try await lane.save(5)
    // From now on, this call has the number of the fault.
    place.reach(Fault(kind: .eio, at: fault.at - test.call + 1))
    var path: ObjectPath?
    do throws(DBusError) { path = try await lane.add(place) } catch {
        verdict.tell(error.message, "the caller")
        verdict.expect(error.name.hasSuffix(".Storage"), "it was refused by \(error.name)")
    }
    verdict.wasMet = place.hits > 0
    place.stopFaults()
    if test.isKilled {
        // The first call may share a commit that began while the disk failed.
        let isSaved = await eventually { (try? await lane.save(4)) != nil }
        verdict.expect(isSaved, "no setting was saved once the disk worked again")
        await lane.end(SIGKILL)
    } else {
        let ending = await lane.end(SIGTERM)
        verdict.expect(ending.status == 0, "it left with \(ending.status): \(ending.errors.suffix(300))")
    }
    guard await startInTheEnd(place, nil, lane, &verdict) else { return verdict }
    let there = try await lane.describe().keys.sorted()
    verdict.expect(there == (path.map { [$0.value] } ?? []), "\(path?.value ?? "no download") was accepted, and \(there) are there")
    await lane.end(SIGKILL)
    return verdict
}
