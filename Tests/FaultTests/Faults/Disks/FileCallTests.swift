internal import DBus
internal import DownloaderInterface
internal import EventLoop
internal import Glibc
internal import TestSupport
internal import Testing

extension `The fault campaign` {
    @Suite struct `Every file-system call` {
        @Test func `may fail once: the result is the right file, or a clear error and then the file`() async throws {
            let report = await Report(
                "One file-system call fails, once",
                notes: """
                    One download of 2.5 MB with a checksum: added, stopped in the middle (SIGTERM or SIGKILL in turn), started again, finished, \
                    asked for again after a restart. Each call of the daemon on its folders fails in turn, counted over the whole life. The \
                    same over eight connections, and from a server and two mirrors, where a number may name another call in each run.
                    """)
            let all: [Fault.Kind] = [.enospc, .eio, .eintr, .short, .erofs, .edquot]
            let some: [Fault.Kind] = Length.isFull || Length.only != nil ? all : [.enospc, .eio, .short]
            let columns = Way.allCases.flatMap { way in (way == .one ? all : some).map { (way, $0) } }
            var cases: [CallCase] = []
            let counted = try await countSideBySide(columns) { try await countCalls($1, $0) }
            for ((way, kind), calls) in zip(columns, counted) {
                let those = chosen(calls, way).map { CallCase(fault: Fault(kind: kind, at: $0), way: way) }
                cases += Length.sample(those, way != .one ? 4 : [.erofs, .edquot].contains(kind) ? 8 : 20)
            }
            try await runCases(cases, report) { try await failOnce($0, $1) }
            let rows = columns.map { way, kind in kind.rawValue.uppercased() + way.rawValue }
            await report.finish(expecting: rows)
        }

        /// The sample above skips most calls of a start.
        @Test func `of a start may fail once, and the received bytes are found again`() async throws {
            let report = await Report(
                "One file-system call of a start fails, once",
                notes: "The same download, stopped in its middle by SIGTERM or SIGKILL in turn. Each call of the next start fails in turn.")
            let kinds: [Fault.Kind] = [.eio, .eintr]
            let columns = Way.allCases.flatMap { way in kinds.map { (way, $0) } }
            var cases: [CallCase] = []
            let counted = try await countSideBySide(columns) { try await countCallsOfStart($1, $0) }
            for ((way, kind), count) in zip(columns, counted) {
                let all = (1...count).map { CallCase(fault: Fault(kind: kind, at: $0), way: way) }
                cases += way == .one ? all : Length.sample(all, 6)
            }
            try await runCases(cases, report) { try await failOnce($0, $1, inStart: true) }
            await report.finish(expecting: Way.allCases.flatMap { way in ["EIO", "EINTR"].map { $0 + way.rawValue } })
        }
    }
}

/// One call that fails, in the life of a download that is fetched in one way.
private struct CallCase: Sendable, CustomStringConvertible {
    let fault: Fault
    let way: Way
    var description: String { "\(fault)\(way.rawValue)" }
    var row: String { fault.kind.rawValue.uppercased() + way.rawValue }
}

/// Counts for each column in a daemon of its own, as many at a time as cases run. The counts have the order of the columns.
private func countSideBySide<Count: Sendable>(
    _ columns: [(Way, Fault.Kind)], _ count: @escaping @Sendable (Way, Fault.Kind) async throws -> Count
) async throws -> [Count] {
    try await withThrowingTaskGroup(of: (Int, Count).self) { group in
        var counts: [Int: Count] = [:]
        for (index, (way, kind)) in columns.enumerated() {
            if index >= Length.lanes, let (done, counted) = try await group.next() { counts[done] = counted }
            group.addTask { (index, try await count(way, kind)) }
        }
        for try await (done, counted) in group { counts[done] = counted }
        return columns.indices.compactMap { counts[$0] }
    }
}

/// The numbers of the calls that a case of the sample may make fail. Of calls in a row that are alike, as the writes of a log are, the
/// sample has one. Several connections write the file and its map in turn, so of all calls that are alike, the sample has a few.
private func chosen(_ calls: [Substring], _ way: Way) -> [Int] {
    guard !Length.isFull, Length.only == nil else { return Array(calls.indices.map { $0 + 1 }) }
    var times: [Substring: Int] = [:]
    return calls.indices.filter { index in
        guard way != .one else { return index == 0 || calls[index] != calls[index - 1] }
        times[calls[index], default: 0] += 1
        return times[calls[index], default: 0] <= 4
    }.map { $0 + 1 }
}

/// How many calls of a start a fault could hit, however the previous daemon ended.
@BusActor private func countCallsOfStart(_ kind: Fault.Kind, _ way: Way) async throws -> Int {
    let lane = try await Lane(try await Shim.compiled())
    var most = 0
    for stop in [SIGTERM, SIGKILL] {
        let place = Place()
        lane.begin()
        let test = CallCase(fault: Fault(kind: kind, at: 0), way: way)
        var calls = 0
        let verdict = try await life(test, place, lane, stop: stop, inStart: true) { calls = place.calls }
        #expect(verdict.wrong == [] && calls > 0, "without any fault\(way.rawValue): \(verdict.wrong)")
        most = max(most, calls)
    }
    return most
}

/// The calls of the scenario that a fault could hit: their names and paths, in order.
@BusActor private func countCalls(_ kind: Fault.Kind, _ way: Way) async throws -> [Substring] {
    let lane = try await Lane(try await Shim.compiled())
    let place = Place()
    let verdict = try await life(CallCase(fault: Fault(kind: kind, at: 0), way: way), place, lane, stop: SIGTERM)
    #expect(verdict.wrong == [] && place.calls > 0, "without any fault\(way.rawValue): \(verdict.wrong)")
    // Each line of the log begins with the call's number.
    let calls = place.log.split(separator: "\n").compactMap { $0.split(separator: " ", maxSplits: 1).last }
    #expect(calls.count == place.calls)
    return calls
}

@BusActor private func failOnce(_ test: CallCase, _ lane: Lane, inStart: Bool = false) async throws -> Verdict {
    let place = Place()
    var verdict = try await life(test, place, lane, stop: test.fault.at % 2 == 0 ? SIGTERM : SIGKILL, inStart: inStart)
    verdict.wasMet = place.hits > 0
    verdict.note = "it befell: \(place.log.split(separator: "\n").joined(separator: ", "))"
    return verdict
}

/// Runs one download with a stop in its middle, and checks what must then hold.
///
/// - Parameter inStart: the fault hits a call of the second start, counted from its first call.
/// - Parameter started: called when the daemon has started for the second time.
@BusActor private func life(
    _ test: CallCase, _ place: Place, _ lane: Lane, stop: Int32, inStart: Bool = false, started: () -> Void = {}
) async throws -> Verdict {
    let fault = test.fault
    var verdict = Verdict(row: test.row, name: "\(test)")
    let body = Bodies.large
    let gate = Gate()
    let servers = CaseServers(body, test.way, middle: .cut(gate))
    defer { gate.open() }
    let sum = try await Bodies.digest(Bodies.large, place)
    guard await startInTheEnd(place, inStart ? nil : fault, lane, &verdict) else { return verdict }
    var options: [String: Variant] = ["directory": .string(place.files), "notify": .string("always")]
    options.merge(try await servers.options(place)) { $1 }
    // Over several connections to one server, its validator alone proves that the parts belong together.
    if test.way == .one { options["checksum"] = .string("sha256:\(sum)") }
    var path: ObjectPath?
    for _ in 0..<5 where path == nil {
        do { path = try await lane.download(servers.url, options) } catch {
            verdict.tell(error.message, "the caller")
        }
    }
    guard let path else {
        verdict.wrong.append("five calls were refused after one fault")
        return verdict
    }
    _ = try await eventually(within: .seconds(30)) {
        if (lane.received[path.value] ?? 0) >= UInt64(servers.early / 15 * 14) { return true }
        guard let now = try await lane.describe()[path.value] else { return true }
        return now.hasEnded || now.state == "waiting"
    }
    let exit = await lane.end(stop)
    if stop == SIGTERM { verdict.expect(exit.status == 0, "SIGTERM ended it with \(exit.status): \(exit.errors)") }
    if inStart { place.restartCount() }
    gate.open()
    guard await startInTheEnd(place, fault, lane, &verdict) else { return verdict }
    started()
    await finish(path, "a.bin", body, place, lane, &verdict)
    // A daemon that leaves waits for the answer to its toast for 2 s only.
    _ = await eventually { lane.toasts.ends(of: "a.bin") > 0 }
    // A restart on a good disk changes nothing, and announces nothing again.
    await lane.end(SIGTERM)
    guard await startInTheEnd(place, nil, lane, &verdict) else { return verdict }
    let after = try await lane.settle([path])
    verdict.expect(after.count == 1, "\(after.count) downloads instead of one")
    verdict.expect(after[path.value]?.state == "finished", "after a restart it is \(after[path.value]?.outcome ?? "gone")")
    await expectNoTraces(of: ["a.bin"], place, lane, &verdict)
    verdict.expect(lane.count("Finished", path) == 1, "Finished came \(lane.count("Finished", path)) times")
    await lane.expectToast(of: "a.bin", kills: stop == SIGKILL ? 1 : 0, &verdict)
    servers.expectSeveral(&verdict)
    await lane.end(SIGKILL)
    return verdict
}

/// Starts the daemon. A fault may prevent one start, and the daemon must then say so.
@BusActor func startInTheEnd(_ place: Place, _ fault: Fault?, _ lane: Lane, _ verdict: inout Verdict) async -> Bool {
    for _ in 0..<3 {
        guard let exit = await lane.start(place, fault) else { return true }
        verdict.errors += 1
        await lane.end(SIGKILL)
        verdict.expect(exit.status == 1 && exit.errors.contains("cannot start"), "it ended with \(exit.status): \(exit.errors)")
    }
    verdict.wrong.append("it did not start three times")
    return false
}

/// Waits for the end. Retries a failed download, as its owner would.
@BusActor func finish(_ path: ObjectPath, _ name: String, _ body: [UInt8], _ place: Place, _ lane: Lane, _ verdict: inout Verdict) async {
    do {
        for _ in 0..<3 {
            let all = try await lane.settle([path])
            guard let download = all[path.value] else {
                verdict.wrong.append("an acknowledged download is gone")
                return
            }
            switch download.state {
            case "finished":
                let isRight = fileHolds(download.path, body)
                verdict.expect(isRight, "\(download.path) holds wrong bytes")
                verdict.expect(download.path == "\(place.files)/\(name)", "it became \(download.path.lastName)")
                if isRight { verdict.right += 1 }
                return
            case "failed":
                verdict.tell(download.error.message, "its owner")
                verdict.expect(!fileExists("\(place.files)/\(name)"), "it failed, and the file is there")
                try await lane.retry(path)
            default:
                verdict.wrong.append("still \(download.state) \(download.waitReason) after 180 s, with \(download.received) bytes")
                return
            }
        }
        verdict.wrong.append("it failed three times after one fault")
    } catch {
        verdict.wrong.append("a call failed: \(error)\(await lane.lastWords())")
    }
}

/// The folder contains exactly `names`. No written maps are left, and the database is the same as before.
///
/// - Parameter mayHaveLost: nothing was acknowledged, so an unfinished new database may have been set aside.
@BusActor func expectNoTraces(
    of names: [String], in folder: String? = nil, _ place: Place, _ lane: Lane, _ verdict: inout Verdict, mayHaveLost: Bool = false
) async {
    let segments = "\(place.state)/todoku/segments"
    let folder = folder ?? place.files
    let isClean = await eventually(within: .seconds(60)) { listFolder(folder) == names.sorted() && listFolder(segments) == [] }
    verdict.expect(isClean, "left behind: \(listFolder(folder)), segments \(listFolder(segments))")
    let aside = listFolder("\(place.state)/todoku").filter { $0.contains("corrupt") }
    verdict.expect(aside == [] || mayHaveLost, "the database was set aside: \(aside)")
}

/// The file of most cases, generated once.
@BusActor enum Bodies {
    nonisolated static let large = patternBytes(2_500_000)
    private static var digests: [Int: String] = [:]

    /// The SHA-256 of `large` or of a prefix of it, computed by a foreign program.
    static func digest(_ bytes: [UInt8], _ place: Place) async throws -> String {
        if let digest = digests[bytes.count] { return digest }
        writeFile(place.folder("whole"), bytes)
        let exit = await Child.run(["sha256sum", place.folder("whole")])
        let digest = String(try #require(exit.output.split(separator: " ").first))
        digests[bytes.count] = digest
        return digest
    }
}
