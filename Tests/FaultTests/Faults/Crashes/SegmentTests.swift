internal import EventLoop
internal import Glibc
internal import TestSupport
internal import Testing

private let program = builtProgram("todoku-segments", variable: "TODOKU_SEGMENTS")

/// The file of `todoku-segments` as several connections write it: todokud's own code, in a program of the tests.
extension `The fault campaign` {
    @Suite struct `Several connections that write one file` {
        @Test func `lose nothing that the map claims, and claim nothing that is not there, whenever they are killed`() async throws {
            let report = await Report(
                "kill -9 while several connections write",
                notes: """
                    One part file of 600 kB, written through the code of todokud as 1 to 100 connections would, the process killed at a random call \
                    (before it, after it, or with half of its bytes written), every fifth one again in the next run, then let finish. Every byte that \
                    counts must be right, and none may be lost from 256 KiB on.
                    """)
            let shim = try await Shim.compiled()
            var random = SeededRandom(Length.seed)
            // An undisturbed run with the same arguments makes the same calls.
            var runs: [WriterRun] = []
            for connections in [1, 2, 8, 100] {
                for _ in 0..<3 {
                    let (place, seed) = (Place(), UInt64.random(in: 0 ... .max, using: &random))
                    let whole = await write(place, shim, connections: connections, seed: seed, Fault(kind: .kill, at: 0))
                    #expect(whole.isWhole && place.calls > 10, "without a kill: \(whole.words)")
                    runs.append(WriterRun(connections: connections, seed: seed, calls: place.calls))
                }
            }
            let all = (0..<960).map { SegmentKill($0, runs[($0 + $0 / runs.count) % runs.count], &random) }
            try await inLanes(Length.sample(all, 48)) { await report.take(try await killed($0, shim)) }
            await report.finish(
                expecting: [1, 2, 8, 100].flatMap { count in ["kill", "kill-after", "kill-torn"].map { "\(count), \($0)" } })
        }

        @Test func `keep what a checkpoint says, and claim no more, after a power cut at any moment`() async throws {
            let report = await Report(
                "Power cuts while several connections write",
                notes: """
                    The same file and program. Writes, names and fsyncs are recorded, and the disk is rebuilt as a cut after each of them may leave it. \
                    Under another boot id, the row of the last checkpoint counts, the map does not.
                    """)
            let shim = try await Shim.compiled()
            for connections in Length.isFull ? [1, 3, 8] : [2, 8] { try await cutPower(connections, shim, report) }
            await report.finish()
        }
    }
}

/// Arguments of the writer, and the calls of an undisturbed run with these.
private struct WriterRun: Sendable {
    let connections: Int
    let seed: UInt64
    let calls: Int
}

/// When the writer is killed.
private struct SegmentKill: Sendable {
    let number: Int
    let run: WriterRun
    let faults: [Fault]
    var row: String { "\(run.connections), \(faults[0].kind.rawValue)" }

    init(_ number: Int, _ run: WriterRun, _ random: inout SeededRandom) {
        (self.number, self.run) = (number, run)
        faults = (0..<(number % 5 == 2 ? 2 : 1)).map {
            // Half of the calls are writes, and only writes can be torn.
            let kind: Fault.Kind = [.kill, .killAfter, .killTorn][(number / 12 + number / 36 + $0) % 3]
            return Fault(kind: kind, at: .random(in: 1...(kind == .killTorn ? run.calls / 2 : run.calls), using: &random))
        }
    }
}

/// Runs `body` for each of `cases`, `Length.lanes` at a time.
private func inLanes<Case: Sendable>(_ cases: [Case], _ body: @escaping @Sendable (Case) async throws -> Void) async throws {
    var rest = cases[...]
    try await withThrowingTaskGroup(of: Void.self) { group in
        for next in rest.prefix(Length.lanes) { group.addTask { try await body(next) } }
        rest = rest.dropFirst(Length.lanes)
        while try await group.next() != nil {
            if let next = rest.popFirst() { group.addTask { try await body(next) } }
        }
    }
}

/// The output of one run of the writer.
private struct Run {
    var status: Int32
    /// The number of bytes that counted at its start, and the number in its row.
    var claims: UInt64?
    var row: UInt64?
    var isWhole: Bool
    var words: String

    init(_ exit: Child.Exit) {
        (status, words) = (exit.status, exit.output + exit.errors)
        let lines = exit.output.split(separator: "\n").map { $0.split(separator: " ") }
        if let first = lines.first(where: { $0.first == "claims" }), first.count == 4 {
            (claims, row) = (UInt64(first[1]), UInt64(first[3]))
        }
        isWhole = lines.last == ["whole"] && exit.status == 0
    }
}

private func write(_ place: Place, _ shim: Shim, connections: Int, seed: UInt64, _ fault: Fault? = nil, more: [String: String] = [:]) async
    -> Run
{
    let environment = processEnvironment().merging(place.environment(shim, fault, more: more)) { $1 }
    let arguments = [program, place.files, place.state, place.folder("progress"), "\(connections)", "\(seed)"]
    return Run(await Child(arguments, environment: environment).wait())
}

/// The number of bytes that counted in the writer's last report.
private func progress(_ place: Place) -> UInt64 {
    UInt64(String(decoding: readFile(place.folder("progress")) ?? [], as: UTF8.self).prefix { $0 != " " }) ?? 0
}

private func killed(_ test: SegmentKill, _ shim: Shim) async throws -> Verdict {
    var verdict = Verdict(row: test.row, name: "segments \(test.number), \(test.faults.map(\.description)), seed \(test.run.seed)")
    let place = Place()
    var kills = 0
    for fault in test.faults {
        let known = progress(place)
        place.restartCount()
        let run = await write(place, shim, connections: test.run.connections, seed: test.run.seed, fault)
        kills += run.status == 128 + SIGKILL ? 1 : 0
        verdict.expect(run.status == 128 + SIGKILL || run.isWhole, "it ended with \(run.status): \(run.words)")
        if let claims = run.claims { verdict.expect(claims >= known || known < 256 << 10, "\(claims) bytes count, after \(known)") }
    }
    verdict.wasMet = kills > 0
    let known = progress(place)
    let last = await write(place, shim, connections: test.run.connections, seed: test.run.seed &+ 1)
    verdict.expect(last.isWhole, "it ended with \(last.status): \(last.words)")
    verdict.expect(last.claims.map { $0 >= known || known < 256 << 10 } ?? false, "\(last.claims ?? 0) bytes count, after \(known)")
    verdict.right += last.isWhole ? 1 : 0
    verdict.expect(listFolder(place.files) == [".todoku-1.part"], "\(listFolder(place.files)) is left")
    verdict.expect(Set(listFolder(place.state)).isSubset(of: ["map", "row"]), "\(listFolder(place.state)) is left")
    return verdict
}

/// A disk after a power cut.
private struct PowerCut: Sendable {
    let name: String
    let remains: Disk.Remains
    let seed: UInt64
    /// The bytes that a checkpoint had promised.
    let durable: UInt64
}

private func cutPower(_ connections: Int, _ shim: Shim, _ report: Report) async throws {
    let place = Place()
    let whole = await write(
        place, shim, connections: connections, seed: Length.seed, more: ["FAULTSHIM_RECORD": place.folder("record")])
    #expect(whole.isWhole, "\(whole.words)")
    let log = try RecordedLog(place.folder("record"))
    var disk = Disk(roots: [place.state, place.files])
    let points = Set(Length.sample(Array(0..<log.changes.count), 16))
    var (written, named, durable): (UInt64, UInt64, UInt64) = (0, 0, 0)
    var cuts: [PowerCut] = []
    for (index, change) in log.changes.enumerated() {
        disk.make(change)
        switch change {
        case .write(_, _, let bytes): if let row = rowBytes(bytes) { written = row }
        case .rename(_, let to) where to.lastName == "row": named = written
        case .syncFolder(place.state, _): durable = named
        default: break
        }
        guard points.contains(index) else { continue }
        let seed = Length.seed &* 1_000_003 &+ UInt64(index)
        let losses: [Disk.Loss] =
            Length.isFull ? [.all, .nothing, .some(seed: seed), .some(seed: seed + 1)] : [[.all, .nothing][index % 2], .some(seed: seed)]
        for loss in losses {
            let name = "\(connections) connections, change \(index) of \(log.changes.count) (\(change.name)), \(loss)"
            if let only = Length.only, !name.hasPrefix(only) { continue }
            cuts.append(PowerCut(name: name, remains: disk.afterPowerCut(loss), seed: seed, durable: durable))
        }
        guard cuts.count >= 32 else { continue }
        try await inLanes(cuts) { try await goOn($0, connections, place, shim, report) }
        cuts = []
    }
    try await inLanes(cuts) { try await goOn($0, connections, place, shim, report) }
}

/// Makes the writer continue on the disk after a power cut.
private func goOn(_ cut: PowerCut, _ connections: Int, _ place: Place, _ shim: Shim, _ report: Report) async throws {
    var verdict = Verdict(row: "\(connections) connections", name: cut.name)
    let after = Place()
    let more = await rebuild(cut.remains.moved(from: place, to: after), after)
    let run = await write(after, shim, connections: connections, seed: cut.seed, more: more)
    verdict.expect(run.isWhole, "it ended with \(run.status): \(run.words)")
    verdict.expect(run.claims == run.row, "\(run.claims ?? 0) bytes count, and the row has \(run.row ?? 0)")
    verdict.expect(run.row.map { $0 >= cut.durable } ?? false, "the row has \(run.row ?? 0) bytes, after \(cut.durable)")
    verdict.right += run.isWhole ? 1 : 0
    await report.take(verdict)
}

/// The number of bytes in a row of the writer; nil if `bytes` is no row.
private func rowBytes(_ bytes: [UInt8]) -> UInt64? {
    let words = String(decoding: bytes.prefix(8192), as: UTF8.self).split(separator: "|", omittingEmptySubsequences: false)
    guard words.count == 7, words[0] == "row" else { return nil }
    return words[1].split(separator: " ").reduce(0) { sum, range in
        let ends = range.split(separator: ".").compactMap { UInt64($0.drop { $0 == "<" }) }
        return ends.count == 2 ? sum + ends[1] - ends[0] : sum
    }
}

extension Disk.Remains {
    /// The same files in the folders of another place.
    fileprivate func moved(from old: Place, to new: Place) -> Disk.Remains {
        func moved(_ path: String) -> String {
            for (from, to) in [(old.state, new.state), (old.files, new.files)] where path.hasPrefix(from) {
                return to + path.dropFirst(from.count)
            }
            return path
        }
        var remains = Disk.Remains()
        remains.folders = folders.map { (moved($0.path), $0.inode) }
        for (path, content) in files { remains.files[moved(path)] = content }
        for (path, target) in links { remains.links[moved(path)] = target }
        return remains
    }
}
