internal import DBus
internal import DownloaderInterface
internal import EventLoop
internal import Glibc
internal import TestSupport
internal import Testing

extension `The fault campaign` {
    @Suite struct `kill -9` {
        @Test func `at any moment loses no download, spoils no file, and costs at most 1 MiB again`() async throws {
            let report = await Report(
                "kill -9",
                notes: """
                    Five downloads at a time (2.5 MB, 1.4 MB, 200 kB, one that is not there, one that is cancelled in the middle), the daemon \
                    killed at a random call (before it, after it, or with half of its bytes written) or at a random time, every third one again \
                    while it recovers, then let finish.
                    """)
            let counted = try await countCalls()
            var random = SeededRandom(Length.seed)
            let all = (0..<520).map { KillCase($0, calls: counted, &random) }
            try await runCases(Length.sample(all, 60), report) { try await killed($0, $1) }
            await report.finish(expecting: ["kill", "kill-after", "kill-torn", "kill by time"])
        }

        /// The number of calls in an undisturbed run that a kill may hit.
        private func countCalls() async throws -> Int {
            let lane = try await Lane(try await Shim.compiled())
            let place = Place()
            let verdict = try await killed(KillCase(counting: ()), lane, place)
            #expect(verdict.wrong == [] && place.calls > 0, "without a kill: \(verdict.wrong)")
            return place.calls
        }
    }
}

/// When the daemon is killed.
struct KillCase: Sendable, CustomStringConvertible {
    enum Moment: Sendable, Equatable {
        case call(Fault)
        case time(milliseconds: Int)
    }

    let number: Int
    var moments: [Moment]

    /// No kill: only counts calls.
    init(counting: ()) { (number, moments) = (0, [.call(Fault(kind: .kill, at: 0))]) }

    init(_ number: Int, calls: Int, _ random: inout SeededRandom) {
        self.number = number
        moments = (0..<(number % 3 == 2 ? 2 : 1)).map { round in
            if number % 4 == 3 { return .time(milliseconds: .random(in: 0...600, using: &random)) }
            let kind: Fault.Kind = [.kill, .killAfter, .killTorn].randomElement(using: &random) ?? .kill
            // Half of the calls in a run are writes, and only writes can be torn. The second kill comes early in the recovery.
            let most = max(1, round > 0 ? calls / 3 : kind == .killTorn ? calls / 2 : calls)
            return .call(Fault(kind: kind, at: .random(in: 1...most, using: &random)))
        }
    }

    var description: String {
        "kill \(number), "
            + moments.map {
                switch $0 {
                case .call(let fault): "\(fault)"
                case .time(let milliseconds): "\(milliseconds) ms"
                }
            }.joined(separator: " then ")
    }

    var row: String {
        let again = moments.count > 1 ? ", and again" : ""
        return switch moments.first {
        case .call(let fault): "\(fault.kind.rawValue)\(again)"
        default: "kill by time\(again)"
        }
    }
}

/// A file on its own server, sent at about 20 MB a second, which leaves time for kills.
private final class PacedFile: Sendable {
    let name: String
    let body: [UInt8]?
    let server: ScriptedServer

    init(_ name: String, _ body: [UInt8]?) {
        (self.name, self.body) = (name, body)
        server = ScriptedServer { request, reply in
            guard let body else { return reply.respond(404) }
            let start = request.range.map(\.first) ?? 0
            guard start < body.count else { return reply.serve(body, for: request, entityTag: "\"v1\"") }
            let end = min(body.count, (request.range?.last ?? body.count - 1) + 1)
            reply.head(
                request.range == nil ? 200 : 206,
                ["ETag": "\"v1\"", "Content-Range": "bytes \(start)-\(end - 1)/\(body.count)", "Accept-Ranges": "bytes"],
                length: end - start)
            for place in stride(from: start, to: end, by: 40_000) {
                guard reply.send(body[place..<min(end, place + 40_000)]) else { return }
                poll(nil, 0, 2)
            }
        }
    }
}

@BusActor private func killed(_ test: KillCase, _ lane: Lane, _ place: Place = Place()) async throws -> Verdict {
    var verdict = Verdict(row: test.row, name: "\(test)")
    let files = [
        PacedFile("large.bin", Bodies.large), PacedFile("middle.bin", Array(Bodies.large[..<1_400_000])),
        PacedFile("small.bin", Array(Bodies.large[100..<200_100])), PacedFile("none.bin", nil),
        PacedFile("cancelled.bin", Array(Bodies.large[..<1_300_000])),
    ]
    var acknowledged: [String: ObjectPath] = [:]
    var isCancelled = false
    var kills = 0
    for (round, moment) in test.moments.enumerated() {
        guard await startAlive(place, moment, lane, &verdict) else { return verdict }
        let begun = ContinuousClock.now
        // Repeat the calls that were not acknowledged, as a caller would.
        for file in files where acknowledged[file.name] == nil {
            var options: [String: Variant] = ["directory": .string(place.files), "notify": .string("always")]
            if file.name == "large.bin" {
                options["checksum"] = .string("sha256:\(try await Bodies.digest(Bodies.large, place))")
            }
            acknowledged[file.name] = try? await lane.download(file.server.url("/\(file.name)"), options)
        }
        if let path = acknowledged["cancelled.bin"], !isCancelled {
            _ = await eventually(within: .seconds(2)) { (lane.received[path.value] ?? 0) > 300_000 || !lane.isRunning }
            isCancelled = (try? await lane.cancel(path)) != nil
        }
        if case .time(let milliseconds) = moment {
            _ = await eventually(within: .milliseconds(milliseconds)) { ContinuousClock.now - begun >= .milliseconds(milliseconds) }
            await lane.end(SIGKILL)
            kills += 1
        } else {
            // The shim has killed the daemon, or all downloads ended before that call.
            let isAlive = (try? await lane.settle(Array(acknowledged.values))) != nil && lane.isRunning
            if !isAlive { kills += 1 }
            await lane.end(SIGKILL)
        }
        verdict.wasMet = verdict.wasMet && (kills > round || test.moments.count > 1)
    }
    guard await startInTheEnd(place, nil, lane, &verdict) else { return verdict }
    let all = try await lane.settle(Array(acknowledged.values))
    // A call that was killed before its answer may have left a download unknown to the caller. It must end like the others. Its file is
    // counted below, once it has its name.
    let known = Set(acknowledged.values.map(\.value))
    let unknown = all.keys.filter { !known.contains($0) }
    let ended = try await lane.settle(unknown.map { ObjectPath($0) })
    verdict.expect(unknown.allSatisfy { ended[$0]?.hasEnded ?? false }, "not ended: \(ended.filter { !$0.value.hasEnded })")
    for file in files {
        guard let path = acknowledged[file.name] else { continue }
        if file.name == "cancelled.bin", all[path.value]?.state == "cancelled" { continue }
        verdict.expect(file.name != "cancelled.bin" || !isCancelled, "what was cancelled is \(all[path.value]?.outcome ?? "gone")")
        check(file, path, all[path.value], kills, place, lane, &verdict)
    }
    let names = ended.values.filter { $0.state == "finished" }.map { String($0.path.split(separator: "/").last ?? "") }
    await expectNoTraces(of: names, place, lane, &verdict)
    await lane.end(SIGKILL)
    guard await startInTheEnd(place, nil, lane, &verdict) else { return verdict }
    let again = try await lane.describe()
    verdict.expect(again.mapValues(\.outcome) == ended.mapValues(\.outcome), "outcomes changed: \(ended) became \(again)")
    // Each round ends with a kill, also where the fault came too late, and so do the downloads' ends.
    for name in names { await lane.expectToast(of: name, kills: test.moments.count + 1, &verdict) }
    await lane.end(SIGKILL)
    return verdict
}

/// Starts a daemon that may be killed during the start.
@BusActor func startAlive(_ place: Place, _ moment: KillCase.Moment, _ lane: Lane, _ verdict: inout Verdict) async -> Bool {
    guard case .call(let fault) = moment else { return await startInTheEnd(place, nil, lane, &verdict) }
    place.restartCount()
    guard let exit = await lane.start(place, fault) else { return true }
    guard exit.status == 128 + SIGKILL else {
        verdict.wrong.append("it did not start: \(exit)")
        return false
    }
    await lane.end(SIGKILL)
    return true
}

@BusActor private func check(
    _ file: PacedFile, _ path: ObjectPath, _ download: Described?, _ kills: Int, _ place: Place, _ lane: Lane, _ verdict: inout Verdict
) {
    guard let download else {
        verdict.wrong.append("\(file.name) was acknowledged and is gone")
        return
    }
    verdict.expect(lane.count("Completed", path) <= 1, "Completed came \(lane.count("Completed", path)) times for \(file.name)")
    verdict.expect(lane.count("Finished", path) <= 1, "Finished came \(lane.count("Finished", path)) times for \(file.name)")
    guard let body = file.body else {
        verdict.expect(download.error.name == "org.todoku.Error.HttpStatus", "\(file.name) ended as \(download.outcome)")
        verdict.tell(download.error.message, "the owner of \(file.name)")
        return
    }
    guard download.state == "finished" else {
        verdict.wrong.append("\(file.name) is \(download.outcome) \(download.waitReason) \(download.error.message)")
        return
    }
    // An unanswered call may have left another download, which took the name first.
    let isRight = fileHolds(download.path, body)
    verdict.expect(isRight, "\(download.path) holds wrong bytes")
    if isRight { verdict.right += 1 }
    let fetched = place.received(from: file.server.port)
    let heads = file.server.requests.count * 400
    // For each kill, each download of this file (an unknown one, too) may fetch 1 MiB again.
    let copies = max(1, listFolder(place.files).count { $0.hasPrefix(file.name.dropLast(4)) })
    let most = copies * (body.count + kills << 20) + heads
    let excess = fetched - most > kills << 17 ? "more than \(most)" : "a buffer more than \(most)"
    verdict.expect(fetched <= most, "\(file.name): \(fetched) bytes were fetched for \(body.count), \(excess)")
}
