internal import DBus
internal import DownloaderInterface
internal import EventLoop
internal import Glibc
internal import TestSupport
internal import Testing

extension `The fault campaign` {
    @Suite struct `a damaged queue` {
        @Test func `after kill -9 gives back what can be read, says what is lost, and is never empty in silence`() async throws {
            let report = await Report(
                "A damaged queue",
                notes: """
                    Sixty acknowledged downloads, one finished and one half-way among them; the daemon killed by SIGKILL; then pages of the database \
                    are overwritten (by zeros, or by noise) and bits of the log are flipped. Everything that SQLite itself still finds, row by row, \
                    must be on the list. The same with a half-way download over eight connections, and from a server and two mirrors.
                    """)
            var random = SeededRandom(Length.seed)
            let all = (0..<300).map { DamageCase(number: $0, seed: .random(in: 0...UInt64.max, using: &random)) }
            var cases = Length.sample(all, 40)
            for way in Way.allCases where way != .one {
                let divided = DamageCase.Kind.allCases.flatMap { kind in
                    (0..<20).map { DamageCase(number: $0, seed: .random(in: 0...UInt64.max, using: &random), kind: kind, way: way) }
                }
                // One of each kind.
                cases += Length.sample(divided, DamageCase.Kind.allCases.count)
            }
            try await runCases(cases, report) { try await damaged($0, $1) }
            await report.finish(expecting: Way.allCases.flatMap { way in DamageCase.Kind.allCases.map { $0.rawValue + way.rawValue } })
        }

        @Test func `that a call finds is replaced, and no kill on the way loses a download in silence`() async throws {
            let report = await Report(
                "A queue that is damaged while the daemon runs",
                notes: """
                    Thirty acknowledged downloads; a page of the database is overwritten by zeros, and the next call makes the daemon replace the \
                    database. From then on, it is killed at each of its calls (before it, after it, or with half of its bytes written), every \
                    third time once more at its next start. Or each of these calls and all later ones answer ENOSPC, and it is killed once it has \
                    refused the call. Every acknowledged download is on the list, or SetAside names the damaged file. Everything that SQLite \
                    itself still finds there is on the list.
                    """)
            var cases: [ReplacementCase] = []
            for kind in ReplacementCase.kinds {
                let calls = try await countCallsOfReplacement(kind)
                cases += Length.sample((1...calls).map { ReplacementCase(kind, at: $0) }, 8)
            }
            try await runCases(cases, report) { try await replaced($0, $1) }
            await report.finish(expecting: ReplacementCase.kinds.map { ReplacementCase.row(of: $0) })
        }
    }
}

private struct DamageCase: Sendable, CustomStringConvertible {
    enum Kind: String, CaseIterable {
        case zeros = "a page is zeros"
        case noise = "a page is noise"
        case bits = "bits of the log"
        case both = "a page, and bits of the log"
        case headers = "the first pages of both"
    }

    let number: Int
    let seed: UInt64
    let kind: Kind
    /// How the half-way download is fetched.
    let way: Way
    var row: String { kind.rawValue + way.rawValue }
    var description: String { "damage \(number), \(row)" }

    /// - Parameter kind: nil: a random one.
    init(number: Int, seed: UInt64, kind: Kind? = nil, way: Way = .one) {
        (self.number, self.seed, self.way) = (number, seed, way)
        self.kind = kind ?? Kind.allCases[Int(seed % UInt64(Kind.allCases.count))]
    }

    /// Overwrites one to three pages of the database.
    func spoilPages(of path: String, _ random: inout SeededRandom) {
        guard var bytes = readFile(path), bytes.count >= 4096 else { return }
        for round in 0..<Int.random(in: 1...3, using: &random) {
            let page = kind == .headers ? round : Int.random(in: 0..<bytes.count / 4096, using: &random)
            for index in page * 4096..<min(bytes.count, page * 4096 + 4096) {
                bytes[index] = kind == .zeros ? 0 : .random(in: 0...255, using: &random)
            }
        }
        writeFile(path, bytes, mode: 0o600)
    }

    /// Flips one to three bits of the log.
    func spoilBits(of path: String, _ random: inout SeededRandom) {
        guard var bytes = readFile(path), !bytes.isEmpty else { return }
        for _ in 0..<Int.random(in: 1...3, using: &random) {
            let index =
                kind == .headers ? Int.random(in: 0..<min(32, bytes.count), using: &random) : .random(in: 0..<bytes.count, using: &random)
            bytes[index] ^= 1 << UInt8.random(in: 0..<8, using: &random)
        }
        writeFile(path, bytes, mode: 0o600)
    }
}

/// Prints the numbers of the rows that SQLite can still read, and reads each row on its own. The files are a copy.
private let reader = """
    import sqlite3, sys
    try:
        database = sqlite3.connect(sys.argv[1])
    except sqlite3.Error:
        sys.exit(0)
    for number in range(1, 200):
        try:
            for row in database.execute("SELECT * FROM download WHERE number = ?", (number,)):
                print(number)
        except (sqlite3.Error, UnicodeError):
            pass
    """

@BusActor private func damaged(_ test: DamageCase, _ lane: Lane) async throws -> Verdict {
    var verdict = Verdict(row: test.row, name: "\(test)")
    let place = Place()
    let body = Array(Bodies.large[..<600_000])
    let gate = Gate()
    let server = ScriptedServer { request, reply in
        guard request.path == "/half.bin", request.number < 2, request.range == nil else {
            return reply.serve(body, for: request, entityTag: "\"v1\"")
        }
        reply.head(200, ["ETag": "\"v1\"", "Accept-Ranges": "bytes"], length: body.count)
        reply.send(body[..<400_000])
        gate.wait()
        reply.close()
    }
    // Eight parts need a larger file.
    let halfBody = test.way == .one ? body : Bodies.large
    let servers = CaseServers(halfBody, test.way, name: "half.bin", middle: .cut(gate))
    let halfURL = test.way == .one ? server.url("/half.bin") : servers.url
    guard await startInTheEnd(place, nil, lane, &verdict) else { return verdict }
    let options: [String: Variant] = ["directory": .string(place.files), "notify": .string("never")]
    var queued: [String: String] = [:]
    let whole = try await lane.download(server.url("/whole.bin"), options)
    queued[whole.value] = server.url("/whole.bin")
    _ = try await lane.settle([whole])
    let half = try await lane.download(halfURL, options.merging(try await servers.options(place)) { $1 })
    queued[half.value] = halfURL
    let early = test.way == .one ? 400_000 : UInt64(servers.early)
    let isHalf = await eventually { (lane.received[half.value] ?? 0) >= early }
    verdict.expect(isHalf, "the first \(early) bytes did not come")
    servers.expectSeveral(&verdict)
    for number in 0..<58 {
        let url = server.url("/kept-\(number).bin")
        queued[try await lane.download(url, options.merging(["start": .bool(false)]) { $1 }).value] = url
    }
    await lane.end(SIGKILL)
    gate.open()

    let database = "\(place.state)/todoku/todoku.db"
    var random = SeededRandom(test.seed)
    if test.kind != .bits { test.spoilPages(of: database, &random) }
    if [.bits, .both, .headers].contains(test.kind) { test.spoilBits(of: database + "-wal", &random) }
    let copy = place.folder.makeFolder("copy")
    for suffix in ["", "-wal"] { if let bytes = readFile(database + suffix) { writeFile("\(copy)/todoku.db\(suffix)", bytes) } }
    let readable = await Child.run(["python3", "-c", reader, "\(copy)/todoku.db"]).output.split(separator: "\n").compactMap { UInt64($0) }

    guard await startInTheEnd(place, nil, lane, &verdict) else { return verdict }
    let (all, aside, saved, mayHaveLost) = try await checkList(queued, readable, lane, &verdict)
    verdict.note = "\(all.count) of \(queued.count), \(readable.count) by SQLite, Salvaged (\(saved), \(mayHaveLost)), SetAside \(aside)"
    for (path, url) in all { verdict.expect(queued[path] == url, "\(path) is of \(url), not \(queued[path] ?? "anything")") }
    verdict.expect(aside.isEmpty || Int(saved) == all.count, "\(saved) are told of, and \(all.count) are there")

    // Salvaged downloads resume with the bytes on the disk.
    let ended = try await lane.settle([half, whole])
    for path in [half, whole] where all[path.value] != nil {
        let download = ended[path.value]
        let name = String(queued[path.value]?.split(separator: "/").last ?? "")
        // The path of a finished file is on another page than the download. If that page is lost, the download says so, and its file is
        // left alone.
        let isSaid = path == whole && mayHaveLost && download?.state == "failed" && download?.error.name == "org.todoku.Error.Storage"
        if isSaid, let download {
            verdict.tell(download.error.message, "its owner")
            verdict.expect(download.error.message.contains(place.files), "its folder is not told: \(download.error.message)")
        }
        let isWhole = fileHolds(isSaid ? "\(place.files)/\(name)" : download?.path ?? "", path == half ? halfBody : body)
        let isRight = isWhole && (isSaid || download?.state == "finished")
        verdict.expect(isRight, "\(queued[path.value] ?? "") became \(download?.outcome ?? "nothing")")
        if isRight { verdict.right += 1 }
    }
    let fresh = try await lane.download(server.url("/fresh.bin"), options.merging(["start": .bool(false)]) { $1 })
    verdict.expect(queued[fresh.value] == nil, "\(fresh) was given twice")
    try await checkNextStart(place, lane, &verdict)
    return verdict
}

/// Checks the list of a daemon whose database was damaged: every row that SQLite can read is there, and the daemon tells of lost rows.
///
/// - Parameters:
///   - queued: the URLs of the acknowledged downloads, by their paths.
///   - readable: the numbers of the downloads that SQLite can still read.
/// - Returns: the URLs on the list by their paths, and the properties `SetAside` and `Salvaged`.
@BusActor private func checkList(
    _ queued: [String: String], _ readable: [UInt64], _ lane: Lane, _ verdict: inout Verdict
) async throws -> (all: [String: String], aside: String, saved: UInt32, mayHaveLost: Bool) {
    let all = try await lane.urls()
    let aside = try await lane.property("SetAside").string ?? ""
    let (saved, mayHaveLost) = try await lane.salvaged()
    // The path of a download without a token ends with its number.
    for number in readable {
        verdict.expect(queued.keys.contains { $0.hasSuffix("/\(number)") && all[$0] != nil }, "row \(number) can be read, and is gone")
    }
    let lost = queued.keys.filter { all[$0] == nil }
    verdict.expect(lost.isEmpty || !aside.isEmpty && mayHaveLost, "\(lost.count) are lost, and nobody is told")
    if !lost.isEmpty { verdict.errors += 1 }
    if !aside.isEmpty { verdict.expect(access(aside, F_OK) == 0, "there is no \(aside)") }
    return (all, aside, saved, mayHaveLost)
}

/// Checks that the next start has the same list, and names the same database as set aside.
@BusActor private func checkNextStart(_ place: Place, _ lane: Lane, _ verdict: inout Verdict) async throws {
    let (before, named) = (try await lane.urls(), try await lane.property("SetAside").string)
    await lane.end(SIGTERM)
    guard await startInTheEnd(place, nil, lane, &verdict) else { return }
    let (after, namedNext) = (try await lane.urls(), try await lane.property("SetAside").string)
    verdict.expect(after == before, "\(before.count) became \(after.count) at the next start")
    verdict.expect(namedNext == named, "the next start names \(namedNext ?? "nothing") as set aside")
    await lane.end(SIGTERM)
}

/// A kill while the daemon replaces a database that it has found damaged.
private struct ReplacementCase: Sendable, CustomStringConvertible {
    static let kinds: [Fault.Kind] = [.kill, .killAfter, .killTorn, .enospc]
    /// The calls before the damage have numbers up to this one.
    static let begin = 1_000_000

    /// The number of its call is counted from the damage on; 0: no fault.
    let fault: Fault
    /// Every third kill is followed by another one at the next start.
    var again: Fault? { fault.isLasting || fault.at % 3 != 2 ? nil : Fault(kind: .kill, at: 1 + fault.at * 7 % 90, disk: .state) }
    var row: String { Self.row(of: fault.kind) + (again == nil ? "" : ", and again") }
    var description: String { "replacement, \(fault)\(again.map { " then \($0)" } ?? "")" }

    init(_ kind: Fault.Kind, at call: Int) { fault = Fault(kind: kind, at: call, isLasting: kind == .enospc, disk: .state) }

    static func row(of kind: Fault.Kind) -> String { kind == .enospc ? "a full disk, then a kill" : kind.rawValue }
}

/// Overwrites each page of a running daemon's database that has a word, once all rows are in the database and none in its log.
private let spoiler = """
    import sqlite3, sys
    path, word = sys.argv[1], sys.argv[2].encode()
    database = sqlite3.connect(path, timeout=60)
    with database:
        # Another program's change makes the daemon read the pages again.
        database.execute("UPDATE setting SET value = value")
    assert database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0
    database.close()
    with open(path, "r+b") as file:
        pages = file.read()
        found = [place for place in range(4096, len(pages), 4096) if word in pages[place:place + 4096]]
        assert found
        for place in found:
            file.seek(place)
            file.write(bytes(4096))
    """

/// How many calls of a replacement without a kill a fault of this kind can hit.
@BusActor private func countCallsOfReplacement(_ kind: Fault.Kind) async throws -> Int {
    let lane = try await Lane(try await Shim.compiled())
    let place = Place()
    var calls = 0
    let verdict = try await replaced(ReplacementCase(kind, at: 0), lane, place) { calls = place.calls }
    #expect(verdict.wrong == [], "without a kill: \(verdict.wrong)")
    try #require(calls > 0)
    return calls
}

/// - Parameter answered: called when the call that finds the damage was answered, or was cut off by the kill.
@BusActor private func replaced(
    _ test: ReplacementCase, _ lane: Lane, _ place: Place = Place(), answered: () -> Void = {}
) async throws -> Verdict {
    var verdict = Verdict(row: test.row, name: "\(test)")
    var fault = test.fault
    if fault.at > 0 { fault.at += ReplacementCase.begin }
    guard await startInTheEnd(place, fault, lane, &verdict) else { return verdict }
    let options: [String: Variant] = ["directory": .string(place.files), "notify": .string("never"), "start": .bool(false)]
    func url(_ name: String) -> String { "http://127.0.0.1:1/\(name).bin" }
    var queued: [String: String] = [:]
    for number in 0..<30 { queued[try await lane.download(url("kept-\(number)"), options).value] = url("kept-\(number)") }

    let database = "\(place.state)/todoku/todoku.db"
    // The next row needs the page with the last row.
    let spoilt = await Child.run(["python3", "-c", spoiler, database, "kept-29.bin"])
    verdict.expect(spoilt.status == 0, "the database cannot be damaged: \(spoilt.errors)")
    let copy = place.folder.makeFolder("copy")
    if let bytes = readFile(database) { writeFile("\(copy)/todoku.db", bytes) }
    let readable = await Child.run(["python3", "-c", reader, "\(copy)/todoku.db"]).output.split(separator: "\n").compactMap { UInt64($0) }

    // The next call has the number 1 from the damage on.
    place.reach(Fault(kind: fault.kind, at: fault.at - test.fault.at + 1))
    do { queued[try await lane.download(url("late"), options).value] = url("late") } catch {
        if fault.isLasting { verdict.tell(error.message, "the caller") }
    }
    answered()
    verdict.wasMet = place.hits > 0
    verdict.note = "it befell: \(place.log.split(separator: "\n").prefix(3).joined(separator: ", "))"
    await lane.end(SIGKILL)
    if let again = test.again {
        guard await startAlive(place, .call(again), lane, &verdict) else { return verdict }
        await lane.end(SIGKILL)
    }

    guard await startInTheEnd(place, nil, lane, &verdict) else { return verdict }
    let (all, aside, _, _) = try await checkList(queued, readable, lane, &verdict)
    verdict.note += "; \(all.count) of \(queued.count), \(readable.count) by SQLite, SetAside \(aside)"
    // A call without an answer, or one that was refused, may have left its download.
    for (path, found) in all { verdict.expect(found == queued[path] ?? url("late"), "\(path) is of \(found)") }
    let fresh = try await lane.download(url("fresh"), options)
    verdict.expect(queued[fresh.value] == nil, "\(fresh) was given twice")
    try await checkNextStart(place, lane, &verdict)
    return verdict
}
