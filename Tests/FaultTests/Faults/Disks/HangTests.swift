internal import DBus
internal import DownloaderInterface
internal import EventLoop
internal import Glibc
internal import TestSupport
internal import Testing

extension `The fault campaign` {
    @Suite struct `A disk that hangs` {
        @Test func `affects its own downloads only, and they resume when it is back`() async throws {
            let report = await Report(
                "A disk that hangs",
                notes: """
                    From one call on every call on the disk of a download hangs. Another disk's download, a new caller and a second call for the \
                    folder that hangs are answered all the same. Then the disk comes back, or the daemon is told to leave and started again. The \
                    same over eight connections, and from a server and two mirrors.
                    """)
            let cases = Way.allCases.flatMap { way in
                Length.sample(Array(HangCase.calls(way)), way == .one ? 6 : 2).enumerated().map {
                    HangCase(call: $1, isLeft: $0 % 2 == 1, way: way)
                }
            }
            try await runCases(cases, report, lanes: 5) { try await hang($0, $1) }
            await report.finish(expecting: cases.map(\.row))
        }

        @Test func `or takes seconds for a write delays no other disk's download`() async throws {
            let report = await Report(
                "A slow disk",
                notes: """
                    Each write on one disk takes 1.5 s, while a file comes to another. The same over eight connections, and from a server and two \
                    mirrors; there the disk is fast again once the other files have come.
                    """)
            try await runCases(SlowCase.all, report) { try await slow($0, $1) }
            await report.finish(expecting: SlowCase.all.map(\.description))
        }

        @Test func `or stalls for ten seconds holds up no other disk's download, and its own goes on from its bytes`() async throws {
            let report = await Report(
                "A disk that stalls",
                notes: """
                    Every call on the disk of a download takes 10 s, once. Meanwhile file after file comes to another disk. The same over eight \
                    connections, and from a server and two mirrors.
                    """)
            try await runCases(StallCase.all, report) { try await stall($0, $1) }
            await report.finish(expecting: StallCase.all.map(\.description))
        }

        @Test func `is reported to every caller after the same time and in the same words, however many call`()
            async throws
        {
            let report = await Report(
                "Calls for a folder that hangs",
                notes: "Nothing on the disk answers. Calls for it one after another, then twelve at once; each is refused after 5 s.")
            try await runCases([CallsCase()], report) { _, lane in try await callAgain(lane) }
            await report.finish(expecting: [CallsCase().description])
        }

        @Test func `moves no file to the trash later whose caller was told that it was not moved`() async throws {
            let report = await Report(
                "A move to the trash that hangs",
                notes: "The disk of a finished file hangs during Trash for longer than the service waits. Then the disk is back.")
            try await runCases([TrashCase()], report) { _, lane in try await giveUpTrash(lane) }
            await report.finish(expecting: [TrashCase().description])
        }

        @Test func `deletes a file later only if its caller was told that it may`() async throws {
            let report = await Report(
                "A deletion that hangs",
                notes: "The disk of a finished file hangs during Remove for longer than the service waits. Then the disk is back.")
            try await runCases([RemovalCase()], report) { _, lane in try await giveUpRemoval(lane) }
            await report.finish(expecting: [RemovalCase().description])
        }

        @Test func `delays the removal of a batch once, however many folders its files are in`() async throws {
            let report = await Report(
                "The removal of a batch from a disk that hangs",
                notes: "The disk of eight files in eight folders hangs during Remove of their batch. The call waits once for all of them.")
            try await runCases([BatchRemovalCase()], report) { _, lane in try await giveUpBatchRemoval(lane) }
            await report.finish(expecting: [BatchRemovalCase().description])
        }

        @Test func `of the queue leaves no call without an answer, and accepts nothing that is not saved`() async throws {
            let report = await Report(
                "The queue's disk hangs",
                notes: """
                    A commit does not come back. Every call is answered, a download among 10,500 other calls within 25 s; what was \
                    answered with Storage is not there.
                    """)
            try await runCases([QueueCase()], report) { _, lane in try await hangQueue(lane) }
            await report.finish()
        }
    }
}

private struct HangCase: Sendable, CustomStringConvertible {
    /// The first few calls check the folder. Then come the calls of the transfer, and last those of the commit. Several connections need
    /// more calls for the file.
    static func calls(_ way: Way) -> ClosedRange<Int> { way == .one ? 1...40 : 12...60 }

    let call: Int
    /// Whether the daemon is told to leave while the disk hangs.
    let isLeft: Bool
    let way: Way
    var description: String { "from call \(call) on\(isLeft ? ", and the daemon leaves" : "")\(way.rawValue)" }
    var row: String { (isLeft ? "the daemon leaves" : "the disk comes back") + way.rawValue }
}

/// A folder on another disk than the other folders of a case.
private func otherDisk() throws -> TemporaryFolder {
    let (usual, folder) = (TemporaryFolder("todoku-hang"), TemporaryFolder("todoku-hang", in: "/dev/shm"))
    var (here, there) = (stat(), stat())
    let isOther = stat(usual.path, &here) == 0 && stat(folder.path, &there) == 0 && here.st_dev != there.st_dev
    try #require(isOther, "/dev/shm must be a file system of its own")
    return folder
}

@BusActor private func hang(_ test: HangCase, _ lane: Lane) async throws -> Verdict {
    let (place, dead) = (Place(), try otherDisk())
    var verdict = Verdict(row: test.row, name: "\(test)")
    let body = Bodies.large
    let server = ScriptedServer { request, reply in reply.serve(body, for: request, entityTag: "\"v1\"") }
    let servers = CaseServers(body, test.way, name: "dead.bin")
    let several = try await servers.options(place)
    let fault = Fault(kind: .hang, at: test.call, isLasting: true)
    if let ending = await lane.start(place, fault, more: ["FAULTSHIM_ROOTS": dead.path]) {
        verdict.wrong.append("it did not start: \(ending.errors)")
        return verdict
    }
    async let first = ask(servers.url, in: dead.path, lane, several)
    async let healthy = ask(server.url("/healthy.bin"), in: place.files, lane)
    var paths: [ObjectPath] = []
    switch await healthy {
    case .success(let path): paths = [path]
    case .failure(let error): verdict.wrong.append("the healthy folder was refused: \(error.message)")
    }
    _ = try await lane.settle(paths)
    for path in paths { await finish(path, "healthy.bin", body, place, lane, &verdict) }
    verdict.expect(fileHolds("\(place.files)/healthy.bin", body), "the healthy disk's file is wrong")
    verdict.expect(await lane.answersNewcomer(), "a new caller was not answered")
    let accepted = await first  // answered within the time that the call gives
    if case .failure(let error) = accepted {
        verdict.expect(error.name != "org.freedesktop.DBus.Error.NoReply", "the first call was not answered")
    }
    // Further calls for the folder are answered, too.
    var ways: [ObjectPath] = []
    if case .success(let path) = accepted { ways.append(path) }
    // By then the disk hangs, unless the download needs fewer calls.
    _ = try await eventually {
        guard place.hits == 0, let path = ways.first else { return true }
        return try await lane.describe()[path.value]?.hasEnded ?? true
    }
    for number in 0..<2 {
        let asked = ContinuousClock.now
        switch await ask(server.url("/more-\(number).bin"), in: dead.path, lane) {
        case .success(let path): ways.append(path)
        case .failure(let error):
            verdict.tell(error.message, "the caller")
            verdict.expect(error.message.contains("did not answer"), "the caller was told “\(error.message)”")
        }
        verdict.expect("a call for the folder that hangs", took: ContinuousClock.now - asked, lessThan: .seconds(15))
    }
    verdict.wasMet = place.hits > 0
    if test.isLeft {
        let left = ContinuousClock.now
        let ending = await lane.end(SIGTERM)
        verdict.expect(ending.status == 0, "it left with \(ending.status): \(ending.errors.suffix(300))")
        verdict.expect("the exit", took: ContinuousClock.now - left, lessThan: .seconds(40))
        place.stopFaults()
        guard await startInTheEnd(place, nil, lane, &verdict) else { return verdict }
    } else {
        place.stopFaults()
    }
    let all = try await lane.settle(ways)
    for path in ways {
        let download = all[path.value]
        let now = download.map { "\($0.state) \($0.waitReason) \($0.error.message)" } ?? "gone"
        verdict.expect(download?.state == "finished", "it is \(now)")
        verdict.expect(download.map { fileHolds($0.path, body) } ?? false, "\(download?.path ?? "it") holds wrong bytes")
        verdict.right += 1
    }
    if case .success = accepted { servers.expectSeveral(&verdict) }
    let isClean = await eventually { !listFolder(dead.path).contains { $0.hasPrefix(".") } }
    verdict.expect(isClean, "left behind: \(listFolder(dead.path))")
    await lane.end(SIGTERM)
    return verdict
}

private struct SlowCase: Sendable, CustomStringConvertible {
    static let all = Way.allCases.map { SlowCase(way: $0) }

    let way: Way
    var description: String { "1.5 s a write\(way.rawValue)" }
}

@BusActor private func slow(_ test: SlowCase, _ lane: Lane) async throws -> Verdict {
    let (place, stick) = (Place(), try otherDisk())
    var verdict = Verdict(row: "\(test)", name: "\(test)")
    let (body, gate) = (Bodies.large, Gate())
    defer { gate.open() }
    // The end of the file waits for the other files, however long they take on a busy machine.
    let servers = CaseServers(body, test.way, name: "slow.bin", early: body.count - 1, middle: .wait(gate))
    let server = ScriptedServer { request, reply in reply.serve(body, for: request, entityTag: "\"v1\"") }
    let fault = Fault(kind: .slow, at: 1, isLasting: true)
    if let ending = await lane.start(place, fault, more: ["FAULTSHIM_ROOTS": stick.path]) {
        verdict.wrong.append("it did not start: \(ending.errors)")
        return verdict
    }
    let patient: [String: Variant] = [
        "directory": .string(stick.path), "notify": .string("never"), "stall-timeout": .uint32(600_000),
    ]
    let slow = try await lane.download(servers.url, patient.merging(try await servers.options(place)) { $1 })
    #expect(await eventually { place.hits > 0 && (test.way == .one || servers.areAllSent) })
    for number in 0..<3 {
        let begun = ContinuousClock.now
        let options: [String: Variant] = [
            "directory": .string(place.files), "filename": .string("a-\(number).bin"), "notify": .string("never"),
        ]
        let path = try await lane.download(server.url("/a"), options)
        let all = try await lane.settle([path])
        verdict.expect("beside the slow disk, a download", took: ContinuousClock.now - begun, lessThan: .seconds(15))
        verdict.expect(all[path.value].map { fileHolds($0.path, body) } ?? false, "it holds wrong bytes")
        verdict.right += 1
    }
    let between = try await lane.describe()[slow.value]
    verdict.expect(between?.state == "active", "the slow disk's download is \(between?.state ?? "gone")")
    // Several connections need many writes.
    if test.way != .one { place.stopFaults() }
    gate.open()
    let all = try await lane.settle([slow])
    verdict.expect(all[slow.value].map { fileHolds($0.path, body) } ?? false, "the slow disk's file is wrong")
    servers.expectSeveral(&verdict)
    verdict.right += 1
    await lane.end(SIGTERM)
    return verdict
}

private struct StallCase: Sendable, CustomStringConvertible {
    static let all = [StallCase(way: .one, isEnd: true)] + Way.allCases.map { StallCase(way: $0, isEnd: false) }

    let way: Way
    /// With its last byte.
    let isEnd: Bool
    var description: String { (isEnd ? "with its last byte" : "in the middle of the file") + way.rawValue }
}

/// The disk stalls for ten seconds, or until four files have come to the other disk. A transfer waits for its disk for 30 s. If a pause of
/// the machine lets the disk stall for 20 s, the case begins again.
@BusActor private func stall(_ test: StallCase, _ lane: Lane) async throws -> Verdict {
    let (verdict, _) = try await repeated {
        try await stallOnce(test, lane)
    } until: {
        $0.time < .seconds(20)
    }
    return verdict
}

/// - Returns: the verdict, and how long the disk stalled.
@BusActor private func stallOnce(_ test: StallCase, _ lane: Lane) async throws -> (verdict: Verdict, time: Duration) {
    lane.begin()
    let (place, stalled) = (Place(), try otherDisk())
    var verdict = Verdict(row: "\(test)", name: "\(test)")
    let (body, gate) = (Bodies.large, Gate())
    defer { gate.open() }
    let early = test.isEnd ? body.count - 1 : body.count / 2
    let servers = CaseServers(body, test.way, name: "stalled.bin", early: early, middle: .wait(gate))
    let server = ScriptedServer { request, reply in reply.serve(body, for: request, entityTag: "\"v1\"") }
    let fault = Fault(kind: .hang, at: 1_000_000, isLasting: true)
    if let ending = await lane.start(place, fault, more: ["FAULTSHIM_ROOTS": stalled.path]) {
        verdict.wrong.append("it did not start: \(ending.errors)")
        return (verdict, .zero)
    }
    let options: [String: Variant] = ["directory": .string(stalled.path), "notify": .string("never")]
    let path = try await lane.download(servers.url, options.merging(try await servers.options(place)) { $1 })
    let isHalf = try await eventually { try await lane.describe()[path.value]?.received ?? 0 >= UInt64(servers.early) }
    verdict.expect(isHalf, "the first \(servers.early) bytes did not come")
    let reached = ContinuousClock.now
    place.reach(fault)
    gate.open()
    verdict.wasMet = await eventually { place.hits > 0 }
    let begun = ContinuousClock.now
    var number = 0
    while ContinuousClock.now - begun < .seconds(10) || number < 4 && ContinuousClock.now - begun < .seconds(20) {
        number += 1
        let name = "healthy-\(number).bin"
        let other = try await lane.download(server.url("/\(name)"), ["directory": .string(place.files), "notify": .string("never")])
        await finish(other, name, body, place, lane, &verdict)
        verdict.expect(await lane.answersNewcomer(), "a new caller was not answered")
        let now = try await lane.describe()[path.value]
        verdict.expect(["active", "verifying"].contains(now?.state), "beside \(name) the stalled download is \(now?.state ?? "gone")")
    }
    verdict.expect(number > 3, "only \(number) files came to the healthy disk meanwhile")
    place.stopFaults()
    let time = ContinuousClock.now - reached
    let end = try await lane.settle([path])[path.value]
    verdict.expect(end?.state == "finished", "it is \(end.map { "\($0.state) \($0.waitReason) \($0.error.message)" } ?? "gone")")
    verdict.expect(end.map { fileHolds($0.path, body) } ?? false, "the stalled disk's file is wrong")
    // Several connections ask for further parts, too.
    let asked = servers.requestCount
    verdict.expect(asked == 1 || test.way != .one, "its server was asked \(asked) times")
    servers.expectSeveral(&verdict)
    verdict.right += 1
    verdict.expect(await eventually { listFolder(stalled.path) == ["stalled.bin"] }, "left behind: \(listFolder(stalled.path))")
    await lane.end(SIGTERM)
    return (verdict, time)
}

private struct CallsCase: Sendable, CustomStringConvertible {
    var description: String { "from the first call on" }
}

@BusActor private func callAgain(_ lane: Lane) async throws -> Verdict {
    let (place, dead) = (Place(), try otherDisk())
    let test = CallsCase()
    var verdict = Verdict(row: "\(test)", name: "\(test)")
    let body = Bodies.large
    let server = ScriptedServer { request, reply in reply.serve(body, for: request, entityTag: "\"v1\"") }
    if let ending = await lane.start(place, Fault(kind: .hang, at: 1, isLasting: true), more: ["FAULTSHIM_ROOTS": dead.path]) {
        verdict.wrong.append("it did not start: \(ending.errors)")
        return verdict
    }
    /// The error message of a call; nil: the call was accepted.
    func ask(_ name: String) async -> (told: String?, after: Duration) {
        let asked = ContinuousClock.now
        do throws(DBusError) {
            _ = try await lane.download(server.url("/\(name)"), ["directory": .string(dead.path), "notify": .string("never")])
            return (nil, ContinuousClock.now - asked)
        } catch { return ("\(error.name): \(error.message)", ContinuousClock.now - asked) }
    }
    var answers = [await ask("first"), await ask("second")]
    await withTaskGroup(of: (told: String?, after: Duration).self) { group in
        for number in 0..<12 { group.addTask { await ask("more-\(number)") } }
        for await answer in group { answers.append(answer) }
    }
    answers.append(await ask("last"))
    verdict.wasMet = place.hits > 0
    for (number, answer) in answers.enumerated() {
        verdict.expect(answer.told == answers[0].told && answer.told?.contains("did not answer") == true, "\(number) was told \(answer)")
        verdict.expect(answer.after >= .seconds(4), "\(number) was answered after \(answer.after)")
        // A call that waits for another one first is answered after 10 s.
        verdict.expect("the answer to \(number)", took: answer.after, lessThan: .seconds(10))
        verdict.errors += 1
    }
    verdict.expect(try await lane.describe().isEmpty && server.requests.isEmpty, "what was refused is there")
    place.stopFaults()
    let options: [String: Variant] = ["directory": .string(dead.path), "notify": .string("never")]
    // The calls that hang return a moment later.
    let answered = ContinuousClock.now
    var back: ObjectPath?
    let isAccepted = await eventually {
        back = try? await lane.download(server.url("/back.bin"), options)
        return back != nil
    }
    verdict.expect("the first call that is accepted again", took: ContinuousClock.now - answered, lessThan: .seconds(20))
    verdict.expect(isAccepted, "the disk is back, and calls are refused")
    guard let path = back else { return verdict }
    let end = try await lane.settle([path])[path.value]
    verdict.expect(end.map { fileHolds($0.path, body) } ?? false, "the disk is back, and the download is \(end?.state ?? "gone")")
    verdict.right += 1
    verdict.expect(await eventually { listFolder(dead.path) == ["back.bin"] }, "left behind: \(listFolder(dead.path))")
    await lane.end(SIGTERM)
    return verdict
}

/// Downloads a file of `Bodies.large` to a disk that hangs from then on. The trash is in the home, whose calls still answer.
/// - Returns: nil: the service did not start, and `verdict` says why.
@BusActor private func hangAfterDownload(
    _ name: String, _ place: Place, _ lane: Lane, _ verdict: inout Verdict
) async throws -> (path: ObjectPath, file: String)? {
    let body = Bodies.large
    let server = ScriptedServer { request, reply in reply.serve(body, for: request, entityTag: "\"v1\"") }
    let fault = Fault(kind: .hang, at: 1_000_000, isLasting: true, disk: .downloads)
    if let ending = await lane.start(place, fault) {
        verdict.wrong.append("it did not start: \(ending.errors)")
        return nil
    }
    let path = try await lane.download(server.url("/\(name)"), ["directory": .string(place.files), "notify": .string("never")])
    await finish(path, name, body, place, lane, &verdict)
    place.reach(fault)
    return (path, "\(place.files)/\(name)")
}

private struct TrashCase: Sendable, CustomStringConvertible {
    var description: String { "a move to the trash" }
}

@BusActor private func giveUpTrash(_ lane: Lane) async throws -> Verdict {
    let place = Place()
    var verdict = Verdict(row: "\(TrashCase())", name: "\(TrashCase())")
    guard let (path, file) = try await hangAfterDownload("kept.bin", place, lane, &verdict) else { return verdict }
    do throws(DBusError) {
        try await lane.trash(path)
        verdict.wrong.append("a file was moved from a disk that hangs")
    } catch {
        verdict.tell(error.message, "the caller")
        verdict.expect(error.message.contains("was not moved"), "the caller was told “\(error.message)”")
    }
    verdict.wasMet = place.hits > 0
    place.stopFaults()
    // A thread of a disk ends after five idle seconds. By then its work has ended, too.
    let tasks = "/proc/\(lane.pid ?? 0)/task"
    let hasEnded = await eventually {
        !listFolder(tasks).contains { readFile("\(tasks)/\($0)/comm") == Array("todoku-disk\n".utf8) }
    }
    verdict.expect(hasEnded, "a thread of the disk has not ended")
    verdict.expect(fileHolds(file, Bodies.large), "the file was moved later")
    let state = try await lane.describe()[path.value]?.state
    verdict.expect(state == "finished", "the download is \(state ?? "gone")")
    try await lane.trash(path)
    let rest = try await lane.describe()
    verdict.expect(!fileExists(file) && rest.isEmpty, "the disk is back, and the file is not in the trash")
    verdict.right += 1
    await lane.end(SIGTERM)
    return verdict
}

private struct RemovalCase: Sendable, CustomStringConvertible {
    var description: String { "a deletion" }
}

@BusActor private func giveUpRemoval(_ lane: Lane) async throws -> Verdict {
    let place = Place()
    var verdict = Verdict(row: "\(RemovalCase())", name: "\(RemovalCase())")
    guard let (path, file) = try await hangAfterDownload("unwanted.bin", place, lane, &verdict) else { return verdict }
    do throws(DBusError) {
        try await lane.remove(path)
        verdict.wrong.append("a file was deleted on a disk that hangs")
    } catch {
        verdict.tell(error.message, "the caller")
        verdict.expect(error.message.contains("may be deleted later"), "the caller was told “\(error.message)”")
    }
    verdict.wasMet = place.hits > 0
    let rest = try await lane.describe()
    verdict.expect(rest.isEmpty && fileHolds(file, Bodies.large), "the download is on the list, or the file is gone")
    place.stopFaults()
    verdict.expect(await eventually { !fileExists(file) }, "the disk is back, and the file is still there")
    verdict.right += 1
    await lane.end(SIGTERM)
    return verdict
}

private struct BatchRemovalCase: Sendable, CustomStringConvertible {
    var description: String { "the files of a batch" }
}

@BusActor private func giveUpBatchRemoval(_ lane: Lane) async throws -> Verdict {
    let (place, dead) = (Place(), try otherDisk())
    var verdict = Verdict(row: "\(BatchRemovalCase())", name: "\(BatchRemovalCase())")
    let server = ScriptedServer { _, reply in reply.respond(200, text: "x") }
    let fault = Fault(kind: .hang, at: 1_000_000, isLasting: true)
    if let ending = await lane.start(place, fault, more: ["FAULTSHIM_ROOTS": dead.path]) {
        verdict.wrong.append("it did not start: \(ending.errors)")
        return verdict
    }
    let items = (0..<8).map { Structure(server.url("/\($0).bin"), ["directory": Variant.string(dead.makeFolder("\($0)"))]) }
    let (batch, _): (ObjectPath, [ObjectPath]) = try await lane.connection.call(
        Manager.downloadBatch, on: BusName.service, at: BusName.managerPath, (items, ["notify": Variant.string("never")]),
        timeout: .seconds(60))
    let (finished, _, _) = try await lane.connection.call(Batch.wait, on: BusName.service, at: batch, [:], timeout: .seconds(180))
    verdict.expect(finished == 8, "only \(finished) files came")
    place.reach(fault)
    let asked = ContinuousClock.now
    do throws(DBusError) {
        try await lane.connection.call(Batch.remove, on: BusName.service, at: batch, true, timeout: .seconds(180))
        verdict.wrong.append("files were deleted on a disk that hangs")
    } catch {
        verdict.tell(error.message, "the caller")
        let isTold = error.message.contains("may be deleted later") && error.message.contains("8 files of 8")
        verdict.expect(isTold, "the caller was told “\(error.message)”")
    }
    // A wait for each folder would take 80 s.
    verdict.expect("the call", took: ContinuousClock.now - asked, lessThan: .seconds(40))
    verdict.wasMet = place.hits > 0
    verdict.expect(try await lane.describe().isEmpty, "the downloads are on the list")
    place.stopFaults()
    await lane.end(SIGTERM)
    return verdict
}

private struct QueueCase: Sendable, CustomStringConvertible {
    var description: String { "a commit that hangs" }
}

@BusActor private func hangQueue(_ lane: Lane) async throws -> Verdict {
    let place = Place()
    var verdict = Verdict(row: "a commit that hangs", name: "a commit that hangs")
    let body = Bodies.large
    let server = ScriptedServer { request, reply in reply.serve(body, for: request, entityTag: "\"v1\"") }
    let fault = Fault(kind: .hang, at: 1_000_000, isLasting: true, disk: .state)
    if let ending = await lane.start(place, fault) {
        verdict.wrong.append("it did not start: \(ending.errors)")
        return verdict
    }
    let options: [String: Variant] = ["directory": .string(place.files), "notify": .string("never")]
    func expectStorage(_ what: String, within limit: Duration, _ call: () async throws(DBusError) -> Void) async {
        let asked = ContinuousClock.now
        do throws(DBusError) {
            try await call()
            verdict.wrong.append("\(what) was accepted")
        } catch {
            verdict.expect(error.name.hasSuffix(".Storage"), "\(what) was refused by \(error.name): \(error.message)")
            verdict.tell(error.message, "the caller")
        }
        verdict.expect(what, took: ContinuousClock.now - asked, lessThan: limit)
    }
    /// On a busy machine it takes seconds to write and to read the messages of so many calls.
    func setMost(_ most: UInt32) async throws(DBusError) {
        let arguments = (Manager.interface, "MaxPerHost", Variant.uint32(most))
        try await lane.connection.call(Standard.set, on: BusName.service, at: BusName.managerPath, arguments, timeout: .seconds(60))
    }
    let first = try await lane.download(server.url("/first.bin"), options)
    await finish(first, "first.bin", body, place, lane, &verdict)
    place.reach(fault)
    let many = 10_500
    async let answers = withTaskGroup(of: String.self) { group in
        for number in 0..<many {
            group.addTask {
                do throws(DBusError) {
                    try await setMost(UInt32(4 + number % 2))
                    return ""
                } catch { return error.name }
            }
        }
        return await group.reduce(into: [String: Int]()) { $0[$1, default: 0] += 1 }
    }
    // It is answered after 15 s, and callers wait for 25 s. The answer comes among those of the other calls.
    await expectStorage("a download", within: .seconds(25)) { () throws(DBusError) in
        _ = try await lane.connection.call(
            Manager.download, on: BusName.service, at: BusName.managerPath, (server.url("/second.bin"), options), timeout: .seconds(60))
    }
    let told = await answers
    verdict.expect(told.keys.allSatisfy { $0.hasSuffix(".Storage") }, "of \(many) calls: \(told)")
    verdict.expect(await lane.answersNewcomer(), "a new caller was not answered")
    await expectStorage("a later download", within: .seconds(14)) { () throws(DBusError) in
        _ = try await lane.download(server.url("/third.bin"), options)
    }
    await expectStorage("a later setting", within: .seconds(14)) { () throws(DBusError) in try await lane.set("MaxActive", .uint32(5)) }
    verdict.expect(try await lane.describe().count == 1, "what was refused is there")
    verdict.wasMet = place.hits > 0
    place.stopFaults()
    // The commit returns a moment later.
    var last: ObjectPath?
    verdict.expect(
        await eventually {
            last = try? await lane.download(server.url("/last.bin"), options)
            return last != nil
        }, "nothing was taken in once the disk was back")
    if let last { await finish(last, "last.bin", body, place, lane, &verdict) }
    verdict.expect(try await lane.describe().count == 2, "what was refused is there once the disk is back")
    await lane.end(SIGTERM)
    guard await startInTheEnd(place, nil, lane, &verdict) else { return verdict }
    verdict.expect(try await lane.describe().count == 2, "what was refused is there after a restart")
    await lane.end(SIGTERM)
    return verdict
}
