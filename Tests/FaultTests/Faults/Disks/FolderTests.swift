internal import DBus
internal import DownloaderInterface
internal import EventLoop
internal import Glibc
internal import TestSupport
internal import Testing

extension `The fault campaign` {
    @Suite struct `A folder that goes away` {
        @Test func `as an unplugged disk does makes the download wait, which resumes by itself when the folder is back`() async throws {
            let report = await Report(
                "A folder that goes away for a while",
                notes: """
                    The destination is renamed, or a file put in its place too, before the first byte, before a transfer goes on, or while no \
                    daemon runs; once the download waits with destination, it is put back. Where a link to a hidden folder is put in its place \
                    the download fails with PermissionDenied, nothing is written there, and Retry goes on once the folder is back. The same over \
                    eight connections, and from a server and two mirrors: there all connections are cut, and none is taken until the download \
                    waits.
                    """)
            var cases: [FolderCase] = []
            for way in Way.allCases {
                let all = FolderCase.Moment.allCases.flatMap { moment in
                    FolderCase.Substitute.allCases.map { FolderCase(moment: moment, substitute: $0, way: way) }
                }
                // In each row and each column of the nine, one case of a short run.
                cases += way == .one || Length.isFull || Length.only != nil ? all : [all[1], all[3], all[8]]
            }
            try await runCases(cases, report) { try await takeAway($0, $1) }
            await report.finish(expecting: cases.map(\.description))
        }
    }
}

private struct FolderCase: Sendable, CustomStringConvertible {
    enum Moment: String, CaseIterable, Sendable {
        case atFirst = "before the first byte"
        case between = "before it goes on after a cut"
        case stopped = "while no daemon runs"
    }
    /// What replaces the folder meanwhile.
    enum Substitute: String, CaseIterable, Sendable {
        case nothing = ""
        case file = ", a file in its place"
        case hidden = ", a link to a hidden folder in its place"
    }
    let moment: Moment
    let substitute: Substitute
    let way: Way
    var description: String { moment.rawValue + substitute.rawValue + way.rawValue }
}

@BusActor private func takeAway(_ test: FolderCase, _ lane: Lane) async throws -> Verdict {
    let place = Place()
    var verdict = Verdict(row: "\(test)", name: "\(test)")
    let body = Bodies.large
    let (gate, again) = (Gate(), Gate())
    let moment = test.moment
    let servers = CaseServers(body, test.way, middle: moment == .atFirst ? .cutHead(gate) : .cut(gate), again: again)
    defer { [gate, again].forEach { $0.open() } }
    guard await startInTheEnd(place, nil, lane, &verdict) else { return verdict }
    var options: [String: Variant] = ["directory": .string(place.files), "notify": .string("never")]
    options.merge(try await servers.options(place)) { $1 }
    let path = try await lane.download(servers.url, options)
    if moment == .atFirst {
        #expect(await servers.waitForRequest())
    } else {
        #expect(await eventually { (lane.received[path.value] ?? 0) >= UInt64(servers.early) })
    }
    if moment == .stopped { await lane.end(SIGTERM) }
    rename(place.files, place.folder("away"))
    let hidden = place.folder.makeFolder(".hidden")
    switch test.substitute {
    case .nothing: break
    case .file: writeFile(place.files, [])
    case .hidden: #expect(symlink(hidden, place.files) == 0)
    }
    gate.open()
    if moment == .stopped { guard await startInTheEnd(place, nil, lane, &verdict) else { return verdict } }
    var now: Described?
    let waits = try await eventually {
        now = try await lane.describe()[path.value]
        return now?.waitReason == "destination" || now?.hasEnded == true
    }
    let isRefused = now?.state == "failed" && now?.error.name.hasSuffix("PermissionDenied") == true
    verdict.expect(
        waits && (test.substitute == .hidden ? isRefused : now?.waitReason == "destination"),
        "without its folder it is \(now.map { "\($0.state) \($0.waitReason) \($0.error.message)" } ?? "gone")")
    verdict.expect(listFolder(hidden).isEmpty, "in the hidden folder there are \(listFolder(hidden))")
    if now?.waitReason == "destination" { verdict.waits += 1 }
    if test.substitute != .nothing { unlink(place.files) }
    rename(place.folder("away"), place.files)
    again.open()
    if now?.state == "failed" { try await lane.retry(path) }
    await finish(path, "a.bin", body, place, lane, &verdict)
    await expectNoTraces(of: ["a.bin"], place, lane, &verdict)
    servers.expectSeveral(&verdict)
    return verdict
}
