internal import DBus
internal import DownloaderInterface
internal import EventLoop
internal import Glibc
internal import TestSupport
internal import Testing

extension `The fault campaign` {
    @Suite struct `An asset` {
        @Test func `killed at any call of its life leads to a whole version, and then to the right one`() async throws {
            let report = await Report(
                "An asset, killed",
                notes: """
                    One asset is registered, updated to version 1, to version 2 (3 MB), to version 3 and cancelled in the middle of the \
                    download, then in the middle of unpacking, updated to 3, \
                    rolled back, updated to version 4 and unregistered with its data. The daemon is killed at one call of its life, every third one \
                    again while it recovers; each call of the app is repeated until it is answered. Further, 25 random steps in a row, with a kill \
                    in each life of a daemon.
                    """)
            let versions = try await PublishedVersion.makeAll()
            var cases: [AssetCase] = []
            for kind in [Fault.Kind.kill, .killAfter, .killTorn] {
                let calls = try await countCalls(kind, versions)
                cases += Length.sample(Self.unlike(calls, kind), 8).map { .one($0) }
            }
            var random = SeededRandom(Length.seed)
            let rows = (0..<8).map { AssetCase.row(number: $0, seed: .random(in: 0...UInt64.max, using: &random)) }
            cases += Length.sample(rows, 2)
            try await runCases(cases, report) { try await live($0, $1, versions) }
            await report.finish(expecting: ["kill", "kill-after", "kill-torn", "25 steps in a row"])
        }

        @Test func `of whose calls one fails is updated, or says clearly why not, and is then updated`() async throws {
            let report = await Report(
                "An asset, and one call that fails, once",
                notes: "The same life. Each call of the daemon on its folders fails in turn; an update that was refused is repeated.")
            let versions = try await PublishedVersion.makeAll()
            var cases: [AssetCase] = []
            for kind in [Fault.Kind.enospc, .eio, .eintr, .short, .erofs, .edquot] {
                let calls = try await countCalls(kind, versions)
                cases += Length.sample(Self.unlike(calls, kind), 5).map { .one($0) }
            }
            try await runCases(cases, report) { try await live($0, $1, versions) }
            await report.finish(expecting: ["ENOSPC", "EDQUOT", "EIO", "EINTR", "EROFS", "SHORT"])
        }

        @Test func `leaves no row of a part file whose deletion was not flushed before its folder went`() async throws {
            let report = await Report(
                "An asset, and one flush of its folder that fails, or one deletion",
                notes: "A shorter life: an update, one cancelled while downloading, one cancelled while unpacking, the end with the data.")
            let versions = try await PublishedVersion.makeAll()
            let calls = try await countCalls(.eio, versions, AssetStep.cancelledLife)
            let folder = await "/\(AssetLife.app)/\(AssetLife.name)"
            let flushes = calls.indices.filter { calls[$0].contains("fsync") && calls[$0].hasSuffix(folder) }
            // A folder that is to be deleted cannot be opened once.
            let openings = calls.indices.filter { calls[$0].contains("open") && calls[$0].contains("/.todoku-gone-") }
            #expect(!flushes.isEmpty && !openings.isEmpty, "\(calls.count) calls")
            let places = flushes + openings.prefix(1) + openings.suffix(1)
            try await runCases(places.map { AssetCase.flush(Fault(kind: .eio, at: $0 + 1)) }, report) { try await live($0, $1, versions) }
            await report.finish(expecting: ["a flush"])
        }

        /// Of calls in a row that are alike, as the writes of a file are, the first and the last.
        private static func unlike(_ calls: [Substring], _ kind: Fault.Kind) -> [Fault] {
            let places = (1...calls.count).filter { number in
                Length.only != nil || number == 1 || number == calls.count || calls[number - 1] != calls[number - 2]
                    || calls[number - 1] != calls[number]
            }
            return places.map { Fault(kind: kind, at: $0) }
        }

        /// The calls of the life that a fault could hit: their names and paths, in order.
        private func countCalls(
            _ kind: Fault.Kind, _ versions: [String: PublishedVersion], _ steps: [AssetStep] = AssetStep.life
        ) async throws -> [Substring] {
            let (lane, place) = (try await Lane(try await Shim.compiled()), Place())
            let fault = Fault(kind: kind, at: 0)
            let verdict = try await live(steps == AssetStep.life ? .one(fault) : .flush(fault), lane, versions, place)
            #expect(verdict.wrong == [] && place.calls > 0, "without any fault: \(verdict.wrong)")
            // Each line of the log begins with the call's number. The names of versions are instants.
            let calls = place.log.split(separator: "\n").compactMap { $0.split(separator: " ", maxSplits: 1).last }
            return calls
        }
    }
}

private enum AssetCase: Sendable, CustomStringConvertible {
    /// One life with one fault.
    case one(Fault)
    /// A shorter life with cancelled updates, and one fault.
    case flush(Fault)
    /// 25 random steps, with a kill in the life of each daemon.
    case row(number: Int, seed: UInt64)

    var description: String {
        switch self {
        case .one(let fault), .flush(let fault): "\(fault)"
        case .row(let number, _): "row \(number)"
        }
    }

    var rowName: String {
        switch self {
        case .one(let fault): fault.kind.isKill ? fault.kind.rawValue : fault.kind.rawValue.uppercased()
        case .flush: "a flush"
        case .row: "25 steps in a row"
        }
    }
}

extension Fault.Kind {
    fileprivate var isKill: Bool { [.kill, .killAfter, .killTorn].contains(self) }
}

@BusActor private func live(
    _ test: AssetCase, _ lane: Lane, _ versions: [String: PublishedVersion], _ place: Place = Place()
) async throws -> Verdict {
    let life = AssetLife(Verdict(row: test.rowName, name: "\(test)"), place, lane, AssetPublisher(versions))
    switch test {
    case .one(let fault): await liveOnce(life, AssetStep.life, fault)
    case .flush(let fault): await liveOnce(life, AssetStep.cancelledLife, fault)
    case .row(_, let seed): await liveLong(life, SeededRandom(seed))
    }
    switch test {
    case .one(let fault), .flush(let fault): if fault.at > 0 { life.verdict.wasMet = place.hits > 0 }
    case .row: break
    }
    life.verdict.note = "it befell: \(place.log.split(separator: "\n").suffix(3).joined(separator: ", "))"
    return life.verdict
}

@BusActor private func liveOnce(_ life: AssetLife, _ steps: [AssetStep], _ fault: Fault) async {
    var starts = 0
    // Every third kill is followed by another one early in the recovery.
    let again = fault.at % 3 == 0 && fault.kind.isKill && fault.at > 0 ? Fault(kind: .kill, at: 3 + fault.at % 40) : nil
    life.nextFault = {
        defer { starts += 1 }
        if !fault.kind.isKill || fault.at == 0 { return fault }
        if starts == 1, again != nil { life.place.restartCount() }
        return starts == 0 ? fault : starts == 1 ? again : nil
    }
    guard await life.register() else { return }
    for step in steps {
        guard await life.take(step) else { return }
        if step != .unregister { await life.expectTidy() }
    }
    if fault.kind.isKill { life.expectFetchedOnce() }
    await life.expectNothingLeft()
}

@BusActor private func liveLong(_ life: AssetLife, _ seed: SeededRandom) async {
    var random = seed
    life.nextFault = {
        life.place.restartCount()
        let kind = [Fault.Kind.kill, .killAfter, .killTorn].randomElement(using: &random) ?? .kill
        return Fault(kind: kind, at: .random(in: 20...160, using: &random))
    }
    guard await life.register() else { return }
    // The installed version, and the one before if there is one.
    var (installed, previous): (String, String?) = ("", nil)
    for number in 1...25 {
        let name = ["1", "2", "3", "4"].filter { $0 != installed && $0 != previous }.randomElement(using: &random) ?? "1"
        let step: AssetStep =
            switch Int.random(in: 0..<8, using: &random) {
            case 0 where !installed.isEmpty: Bool.random(using: &random) ? .cancel(name) : .cancelUnpacking(name)
            case 1...2: previous.map { AssetStep.rollBack(to: $0) } ?? .update(name)
            default: .update(name)
            }
        guard await life.take(step, as: "\(name)-\(number)") else {
            life.verdict.wrong.append("in step \(number), \(step)")
            return
        }
        switch step {
        case .update(let name): (installed, previous) = (name, installed.isEmpty ? nil : installed)
        case .rollBack(let name): (installed, previous) = (name, nil)
        case .cancel, .cancelUnpacking, .interrupt, .repair, .unregister: break
        }
    }
    life.expectFetchedOnce()
    life.nextFault = { nil }
    await life.expectTidy()
    _ = await life.take(.unregister)
    await life.expectNothingLeft()
}
