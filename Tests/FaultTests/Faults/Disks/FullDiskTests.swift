internal import DBus
internal import DownloaderInterface
internal import EventLoop
internal import Glibc
internal import TestSupport
internal import Testing

extension `The fault campaign` {
    @Suite struct `A full disk` {
        @Test func `makes the download wait, and the download resumes by itself when there is room`() async throws {
            let report = await Report(
                "A disk that is full for a while",
                notes: """
                    From one call on, whatever needs room answers ENOSPC or EDQUOT (and statvfs that there is none), until the download waits with \
                    disk-space or a caller was told; then there is room again. The same over eight connections, and from a server and two \
                    mirrors.
                    """)
            var cases: [FullCase] = []
            for (way, disk) in Way.allCases.flatMap({ way in Fault.Disk.allCases.map { (way, $0) } }) {
                // Several connections write small stretches by turns, so a download needs more calls.
                let most = disk == .downloads && way == .one ? 20 : 80
                let all = (1...most).map {
                    FullCase(fault: Fault(kind: $0 % 8 == 0 ? .edquot : .enospc, at: $0, isLasting: true, disk: disk), way: way)
                }
                cases += Length.sample(all, way != .one ? 3 : disk == .both ? 16 : 8)
            }
            try await runCases(cases, report) { try await fillDisk($0, $1) }
            await report.finish(
                expecting: Way.allCases.flatMap { way in
                    ["both disks", Fault.Disk.downloads.rawValue, Fault.Disk.state.rawValue].map { $0 + way.rawValue }
                })
        }

        /// No disk tells how much of a quota is left: statvfs(3) always reports room.
        @Test(.enabled("this machine lets no test mount over /dev/fuse") { try await MemoryDisks.arePossible() })
        func `by a quota is tried ever more rarely, and the download resumes once the quota is lifted`() async throws {
            let report = await Report(
                "A quota",
                notes: """
                    A file system over FUSE answers EDQUOT to every write beyond its first MiB while statfs tells of 4 GiB. The time between two \
                    requests to the server doubles; then the quota is lifted. Over eight connections, and from a server and two mirrors, the \
                    parts below the first MiB come by turns: there the wait doubles after each transfer that has gained nothing.
                    """)
            try await runCases(QuotaCase.allCases, report) {
                $0.way == .one ? try await reachQuota($0, $1) : try await reachQuotaWithParts($0, $1)
            }
            await report.finish(expecting: QuotaCase.allCases.map(\.rawValue))
        }
    }
}

private struct FullCase: Sendable, CustomStringConvertible {
    let fault: Fault
    let way: Way
    var description: String { "\(fault)\(way.rawValue)" }
    var row: String { (fault.disk == .both ? "both disks" : fault.disk.rawValue) + way.rawValue }
}

private enum QuotaCase: String, CaseIterable, Sendable, CustomStringConvertible {
    case resumed = "goes on from what is held"
    case fromStart = "starts over each time"
    case parts = "goes on from what is held, 8 connections"
    case mirrors = "goes on from what is held, 8 connections and 2 mirrors"
    var description: String { rawValue }
    /// Without a validator or a checksum, one connection fetches the file.
    var way: Way {
        switch self {
        case .resumed, .fromStart: .one
        case .parts: .several
        case .mirrors: .mirrors
        }
    }
}

@BusActor private func reachQuota(_ test: QuotaCase, _ lane: Lane) async throws -> Verdict {
    let (place, disks) = (Place(), try await MemoryDisks(1, stoppedAt: .quota))
    var verdict = Verdict(row: test.rawValue, name: test.rawValue)
    let body = Bodies.large
    let server = ScriptedServer { request, reply in reply.serve(body, for: request, entityTag: test == .resumed ? "\"v1\"" : nil) }
    if let ending = await lane.start(place, on: disks) {
        verdict.wrong.append("it did not start: \(ending.errors)")
        return verdict
    }
    // Waiting for room counts as no retry.
    let options: [String: Variant] = ["directory": .string(disks.paths[0]), "notify": .string("never"), "retries": .uint32(0)]
    let path = try await lane.download(server.url("/a.bin"), options)
    var (isWithoutInstant, last): (Bool, Described?) = (false, nil)
    let isAskedAgain = try await eventually(within: .seconds(180)) {
        last = try await lane.describe()[path.value]
        if last?.state == "waiting" { isWithoutInstant = isWithoutInstant || last?.waitUntil == 0 }
        return last?.hasEnded ?? true || server.requests.count >= 5 && last?.state == "waiting"
    }
    verdict.expect(isAskedAgain, "the server was asked \(server.requests.count) times")
    verdict.expect(last?.waitReason == "disk-space", "it is \(last?.outcome ?? "gone") \(last?.waitReason ?? "")")
    verdict.expect(!isWithoutInstant, "it waits without an instant")
    let requests = server.requests
    let (arrivals, starts) = (requests.map(\.arrived), requests.map { $0.range?.first ?? 0 })
    var doublings = 0
    for index in arrivals.indices.dropLast() {
        // The first wait is the shortest one, and so is a wait after a transfer that has gained bytes below the first MiB.
        doublings = index == 0 || starts[index + 1] > starts[index] ? 0 : doublings + 1
        // Up to half of the back-off is random, and 1% is left to the clocks.
        let (time, least) = (arrivals[index + 1] - arrivals[index], Duration.milliseconds(495) * (1 << doublings))
        verdict.expect(time >= least, "request \(index + 2) came \(time) after the one before, not \(least)")
    }
    let resumes = starts.dropFirst()
    verdict.expect(resumes.allSatisfy { ($0 > 0) == (test == .resumed) }, "it goes on from \(resumes)")
    verdict.note = "asked at \(arrivals.map { $0 - arrivals[0] }), from \(resumes)"
    verdict.wasMet = arrivals.count > 1
    verdict.waits += 1
    disks.release()
    let end = try await lane.settle([path])[path.value]
    verdict.expect(end?.state == "finished", "it is \(end.map { "\($0.state) \($0.waitReason) \($0.error.message)" } ?? "gone")")
    verdict.expect(holds(end?.path, body, lane), "it holds wrong bytes")
    verdict.right += 1
    await lane.end(SIGTERM)
    return verdict
}

/// A wait for room on a disk with a quota.
private struct QuotaWait {
    /// Microseconds since the epoch.
    let until: UInt64
    let received: UInt64
}

@BusActor private func reachQuotaWithParts(_ test: QuotaCase, _ lane: Lane) async throws -> Verdict {
    let (place, disks) = (Place(), try await MemoryDisks(1, stoppedAt: .quota))
    var verdict = Verdict(row: test.rawValue, name: test.rawValue)
    let body = Bodies.large
    let servers = CaseServers(body, test.way)
    if let ending = await lane.start(place, on: disks) {
        verdict.wrong.append("it did not start: \(ending.errors)")
        return verdict
    }
    var options: [String: Variant] = ["directory": .string(disks.paths[0]), "notify": .string("never"), "retries": .uint32(0)]
    options.merge(try await servers.options(place)) { $1 }
    let path = try await lane.download(servers.url, options)
    var (waits, last): ([QuotaWait], Described?) = ([], nil)
    // A pause of the machine hides the first waits. The later ones last minutes.
    let hasWaited = try await eventually(within: .seconds(300)) {
        last = try await lane.describe()[path.value]
        guard let last, !last.hasEnded else { return true }
        if last.state == "waiting", last.waitUntil != waits.last?.until {
            waits.append(QuotaWait(until: last.waitUntil, received: last.received))
        }
        return waits.count >= 5
    }
    verdict.expect(hasWaited && waits.count >= 5, "it waited \(waits.count) times")
    verdict.expect(last?.waitReason == "disk-space", "it is \(last?.outcome ?? "gone") \(last?.waitReason ?? "")")
    verdict.expect(waits.allSatisfy { $0.until > 0 }, "it waits without an instant")
    // Each wait begins after the former, and is twice as long if the transfer between them has gained nothing.
    var doublings = 0
    for (former, latter) in zip(waits, waits.dropFirst()) where former.until > 0 && latter.until > 0 {
        doublings = latter.received > former.received ? 0 : doublings + 1
        // Up to half of the back-off is random, and 1% is left to the clocks.
        let least = UInt64(495_000) << UInt64(doublings)
        verdict.expect(latter.until >= former.until + least, "of \(waits), one ends less than \(least) µs after the former")
        verdict.expect(latter.received >= former.received, "of \(former.received) bytes, \(latter.received) are held")
    }
    verdict.expect(waits.last.map { $0.received > 0 && $0.received <= 1 << 20 } ?? false, "it holds \(waits.last?.received ?? 0) bytes")
    verdict.note = "held \(waits.map(\.received)), \(servers.requestCount) requests"
    verdict.wasMet = waits.count > 1
    verdict.waits += 1
    disks.release()
    let end = try await lane.settle([path], within: .seconds(300))[path.value]
    verdict.expect(end?.state == "finished", "it is \(end.map { "\($0.state) \($0.waitReason) \($0.error.message)" } ?? "gone")")
    verdict.expect(holds(end?.path, body, lane), "it holds wrong bytes")
    verdict.expect(lane.resumed[path.value]?.last.map { $0 > 0 } ?? false, "it started over")
    servers.expectSeveral(&verdict)
    verdict.right += 1
    await lane.end(SIGTERM)
    return verdict
}

@BusActor private func fillDisk(_ test: FullCase, _ lane: Lane) async throws -> Verdict {
    let (place, fault) = (Place(), test.fault)
    var verdict = Verdict(row: test.row, name: "\(test)")
    let servers = CaseServers(Bodies.large, test.way)
    if let exit = await lane.start(place, fault) {
        // Without room for its queue the daemon cannot start, and says so.
        verdict.errors += 1
        verdict.expect(exit.status == 1 && exit.errors.contains("cannot start"), "it ended with \(exit.status): \(exit.errors)")
        await lane.end(SIGKILL)
        place.stopFaults()
        guard await startInTheEnd(place, fault, lane, &verdict) else { return verdict }
    }
    var options: [String: Variant] = ["directory": .string(place.files), "notify": .string("never")]
    options.merge(try await servers.options(place)) { $1 }
    var path: ObjectPath?
    do { path = try await lane.download(servers.url, options) } catch {
        verdict.tell(error.message, "the caller")
        verdict.expect(try await lane.describe().isEmpty, "what was refused is listed")
        place.stopFaults()
        path = try await lane.download(servers.url, options)
    }
    guard let path else { return verdict }
    _ = try await eventually(within: .seconds(30)) {
        guard let now = try await lane.describe()[path.value] else { return true }
        return now.hasEnded || now.state == "waiting" || (place.hits > 0 && now.state != "active")
    }
    guard let now = try await lane.describe()[path.value] else {
        verdict.wrong.append("an acknowledged download is gone")
        return verdict
    }
    verdict.wasMet = place.hits > 0
    if now.state == "failed" { verdict.wrong.append("it failed instead of waiting: \(now.error.message)") }
    if now.state == "waiting" {
        verdict.expect(now.waitReason == "disk-space", "it waits for \(now.waitReason)")
        verdict.waits += 1
    }
    place.stopFaults()
    if now.state == "failed" { try await lane.retry(path) }
    await finish(path, "a.bin", Bodies.large, place, lane, &verdict)
    await expectNoTraces(of: ["a.bin"], place, lane, &verdict)
    servers.expectSeveral(&verdict)
    verdict.note = "it befell: \(place.log.split(separator: "\n").prefix(3).joined(separator: ", "))"
    return verdict
}
