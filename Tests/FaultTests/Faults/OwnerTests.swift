internal import DBus
internal import DownloaderInterface
internal import EventLoop
internal import Glibc
internal import TestSupport
internal import Testing

extension `The fault campaign` {
    @Suite struct `A disk whose files belong to another user` {
        @Test func `as FAT, NTFS, SMB and all-squash NFS have it is written like any other`() async throws {
            let report = await Report(
                "A disk whose files belong to another user",
                notes: """
                    stat(2) tells another owner of every file on the downloads' disk, and no mode can be set there. A download comes at once, goes on \
                    after a cut or after kill -9, is cancelled in the middle, replaces a file, or begins where an older part file is left. The \
                    cases with a middle also run over eight connections, and from a server and two mirrors.
                    """)
            let cases = Way.allCases.flatMap { way in
                OwnerCase.Course.allCases.filter { way == .one || $0.hasMiddle }.map { OwnerCase(course: $0, way: way) }
            }
            try await runCases(cases, report) { try await download($0, $1) }
            await report.finish(expecting: cases.map(\.description))
        }

        @Test func `and cannot be opened again is refused before the first byte of a body, and keeps no part file`() async throws {
            let report = await Report(
                "A disk whose files belong to another user and cannot be opened again",
                notes: """
                    stat(2) tells another owner of every new file. Opening the file again fails, or gives a file with another inode \
                    number. The server sends a head, but no byte of a body.
                    """)
            try await runCases(ReturnCase.allCases, report) { try await refuse($0, $1) }
            await report.finish(expecting: ReturnCase.allCases.map(\.description))
        }
    }
}

private struct OwnerCase: Sendable, CustomStringConvertible {
    enum Course: String, CaseIterable, Sendable {
        case whole = "at once"
        case cut = "after a cut"
        case killed = "after kill -9"
        case cancelled = "cancelled in the middle"
        case replacing = "in the place of another"
        case leftover = "over a part file that was left"

        /// Whether something happens once the first bytes have come.
        var hasMiddle: Bool { [.cut, .killed, .cancelled].contains(self) }
    }
    let course: Course
    let way: Way
    var description: String { course.rawValue + way.rawValue }
}

private enum ReturnCase: String, CaseIterable, Sendable, CustomStringConvertible {
    case refused
    case another

    var description: String { self == .refused ? "the open fails" : "it is another file" }
    /// The download's state afterwards: a mount that gives another file may come back as it was.
    var state: String { self == .refused ? "failed" : "waiting" }
    var waitReason: String { self == .refused ? "" : "destination" }
}

@BusActor private func download(_ test: OwnerCase, _ lane: Lane) async throws -> Verdict {
    let (place, course) = (Place(), test.course)
    var verdict = Verdict(row: test.description, name: test.description)
    let more = ["FAULTSHIM_ROOTS": place.files, "FAULTSHIM_OWNER": "4242"]
    let body = Bodies.large
    let gate = Gate()
    defer { gate.open() }
    let servers = CaseServers(body, test.way, middle: course.hasMiddle ? .cut(gate) : .nothing)
    func start() async -> Bool {
        guard let exit = await lane.start(place, more: more) else { return true }
        verdict.wrong.append("it did not start: \(exit.errors)")
        return false
    }
    guard await start() else { return verdict }
    var options: [String: Variant] = ["directory": .string(place.files), "notify": .string("never")]
    options.merge(try await servers.options(place)) { $1 }
    if course == .replacing {
        writeFile("\(place.files)/a.bin", "old".utf8)
        options["if-exists"] = .string("replace")
    }
    if course == .leftover {
        let id = String(decoding: (readFile("\(place.state)/todoku/instance") ?? []).prefix(8), as: UTF8.self)
        writeFile("\(place.files)/.todoku-\(id)-1.part", "left".utf8)
    }
    let path = try await lane.download(servers.url, options)
    if course.hasMiddle { #expect(await eventually { (lane.received[path.value] ?? 0) >= UInt64(servers.early) }) }
    if course == .killed { await lane.end(SIGKILL) }
    if course == .cancelled { try await lane.cancel(path) }
    gate.open()
    if course == .killed { guard await start() else { return verdict } }
    if course == .cancelled {
        await expectNoTraces(of: [], place, lane, &verdict)
        verdict.errors += 1
    } else {
        await finish(path, "a.bin", body, place, lane, &verdict)
        await expectNoTraces(of: ["a.bin"], place, lane, &verdict)
        if course.hasMiddle, test.way == .one {
            verdict.expect(lane.resumed[path.value]?.last == UInt64(servers.early), "what was held was fetched again")
        }
    }
    servers.expectSeveral(&verdict)
    verdict.wasMet = true
    return verdict
}

@BusActor private func refuse(_ test: ReturnCase, _ lane: Lane) async throws -> Verdict {
    let (place, gate) = (Place(), Gate())
    var verdict = Verdict(row: test.description, name: test.description)
    let server = ScriptedServer { _, reply in
        reply.head(200, ["ETag": "\"v1\""], length: Bodies.large.count)
        gate.wait()
        reply.close()
    }
    defer { gate.open() }
    let more = ["FAULTSHIM_ROOTS": place.files, "FAULTSHIM_OWNER": "4242", "FAULTSHIM_REOPEN": test.rawValue]
    if let exit = await lane.start(place, more: more) {
        verdict.wrong.append("it did not start: \(exit.errors)")
        return verdict
    }
    let path = try await lane.download(server.url("/a.bin"), ["directory": .string(place.files), "notify": .string("never")])
    var last: Described?
    let isRefused = try await eventually {
        last = try await lane.describe()[path.value]
        return last?.state == test.state && last?.waitReason == test.waitReason
    }
    verdict.expect(isRefused, "it is \(last?.state ?? "gone") \(last?.waitReason ?? "") instead of \(test.state) \(test.waitReason)")
    let message = last?.error.message ?? ""
    verdict.tell(message, "its owner")
    verdict.expect(message.contains("open again the files that it creates in \(place.files)"), "its owner was told “\(message)”")
    verdict.expect(last?.received == 0, "\(last?.received ?? 0) bytes count")
    // A folder that is waited for is tried every 3 s, so the server may have been asked again by now.
    let arrivals = server.requests.map(\.arrived)
    let time = ContinuousClock.now - (arrivals.first ?? .now)
    let most = test == .another ? 1 + Int(time / .milliseconds(2900)) : 1
    verdict.expect((1...most).contains(arrivals.count), "the server was asked \(arrivals.count) times in \(time)")
    await expectNoTraces(of: [], place, lane, &verdict)
    return verdict
}
