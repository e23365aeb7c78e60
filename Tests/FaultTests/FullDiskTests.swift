internal import DBus
internal import DownloaderInterface
internal import EventLoop
internal import Glibc
internal import TestSupport
internal import Testing

extension `The fault campaign` {
    @Suite struct `A full disk` {
        @Test func `is waited for, and the download goes on by itself when there is room`() async throws {
            let report = await Report(
                "A disk that is full for a while",
                notes: """
                    From one call on, whatever needs room answers ENOSPC or EDQUOT (and statvfs that there is none), until the download waits with \
                    disk-space or a caller was told; then there is room again.
                    """)
            var cases: [Fault] = []
            for disk in Fault.Disk.allCases {
                let most = disk == .downloads ? 20 : 80
                let all = (1...most).map { Fault(kind: $0 % 8 == 0 ? .edquot : .enospc, at: $0, isLasting: true, disk: disk) }
                cases += Length.sample(all, disk == .both ? 16 : 8)
            }
            try await runCases(cases, report) { try await fillDisk($0, $1) }
            await report.finish(expecting: ["both disks"] + [Fault.Disk.downloads, .state].map(\.rawValue))
        }
    }
}

@BusActor private func fillDisk(_ fault: Fault, _ lane: Lane) async throws -> Verdict {
    let place = Place()
    var verdict = Verdict(row: fault.disk == .both ? "both disks" : fault.disk.rawValue, name: "\(fault)")
    let server = ScriptedServer { request, reply in reply.serve(Bodies.large, for: request, entityTag: "\"v1\"") }
    if let exit = await lane.start(place, fault) {
        // Without room for its queue it cannot start, and says so.
        verdict.errors += 1
        verdict.expect(exit.status == 1 && exit.errors.contains("cannot start"), "it ended with \(exit.status): \(exit.errors)")
        await lane.end(SIGKILL)
        place.stopFaults()
        guard await startInTheEnd(place, fault, lane, &verdict) else { return verdict }
    }
    let options: [String: Variant] = ["directory": .string(place.files), "notify": .string("never")]
    var path: ObjectPath?
    do { path = try await lane.download(server.url("/a.bin"), options) } catch {
        verdict.tell(error.message, "the caller")
        verdict.expect(try await lane.describe().isEmpty, "what was refused is listed")
        place.stopFaults()
        path = try await lane.download(server.url("/a.bin"), options)
    }
    guard let path else { return verdict }
    _ = try await eventually(within: .seconds(10)) {
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
    verdict.note = "it befell: \(place.log.split(separator: "\n").prefix(3).joined(separator: ", "))"
    return verdict
}
