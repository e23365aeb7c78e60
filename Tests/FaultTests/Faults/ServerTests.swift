internal import DBus
internal import DownloaderInterface
internal import EventLoop
internal import Glibc
internal import TestSupport
internal import Testing

extension `The fault campaign` {
    @Suite struct `Every misbehaviour of a server` {
        @Test func `ends in the right file or in a clear error`() async throws {
            let report = await Report(
                "A server that is wrong",
                notes: """
                    A file of 1.3 MB. The server is wrong once, and then good. It is wrong at the first request (fresh), at the one after a \
                    cut at 1.1 MB (resume), or at the first one after the daemon was ended by SIGTERM (restarted) or killed at 1.1 MB. In the \
                    other rows, eight connections are allowed. The server is wrong for a further range while the first answer goes on \
                    (ranges), or for three at the same time (several). With mirrors, there is a checksum, one mirror is wrong like the \
                    server, and one is right.
                    """)
            let cases = Misbehaviour.all.flatMap { one in Stage.allCases.map { ServerCase(misbehaviour: one, stage: $0) } }
            try await runCases(cases, report, lanes: Length.lanes * 2) { try await misbehave($0, $1) }
            await report.finish(expecting: Stage.allCases.map(\.rawValue))
        }
    }
}

/// Its wrong answer ends by the time limit for stalls, or is slow.
private func stalls(_ misbehaviour: Misbehaviour) -> Bool {
    ["a head that does not come", "a slow head", "stalled in the middle"].contains(misbehaviour.name)
}

@BusActor private func misbehave(_ test: ServerCase, _ lane: Lane) async throws -> Verdict {
    let place = Place()
    var verdict = Verdict(row: test.stage.rawValue, name: test.misbehaviour.name)
    let gate = Gate()
    let server = await test.server(gate)
    defer { gate.open() }
    guard await startInTheEnd(place, nil, lane, &verdict) else { return verdict }
    // An answer that is late on a busy machine is no stall: a retry would use up the wrong answer.
    let isShort = stalls(test.misbehaviour) && [Stage.fresh, .resume].contains(test.stage)
    var options: [String: Variant] = [
        "directory": .string(place.files), "notify": .string("never"), "stall-timeout": .uint32(isShort ? 500 : 600_000),
        "filename": .string("file"),
    ]
    let mirrors = test.stage == .mirrors ? test.mirrors(gate) : []
    if !mirrors.isEmpty { options["mirrors"] = .strings(mirrors.map { $0.url("/file") }) }
    if test.stage.isDivided { options["connections"] = .uint32(8) }
    if test.misbehaviour.hasChecksum || test.stage == .mirrors {
        options["checksum"] = .string("sha256:\(try await Bodies.digest(Misbehaviour.old, place))")
    }
    let path = try await lane.download(server.url("/file"), options)
    if test.stage == .restarted || test.stage == .killed {
        let came = await eventually { (lane.received[path.value] ?? 0) >= 1_100_000 }
        verdict.expect(came, "1.1 MB did not come")
        await lane.end(test.stage == .restarted ? SIGTERM : SIGKILL)
        gate.open()
        guard await startInTheEnd(place, nil, lane, &verdict) else { return verdict }
    }
    let end = try await lane.settle([path])[path.value]
    guard let end, end.hasEnded else {
        verdict.wrong.append("it is \(end.map { "\($0.state) \($0.waitReason)" } ?? "gone") after 180 s")
        return verdict
    }
    let ranges = test.stage == .several ? Stage.severalRanges : 1
    if test.mustDivide { verdict.expect(gate.isOpen, "fewer than \(ranges) other ranges were requested at the same time") }
    let file = readFile("\(place.files)/file")
    if end.state == "finished" {
        let isNew = test.misbehaviour.isReplaced && test.stage != .mirrors && file == Misbehaviour.new
        let isRight = isNew || file == Misbehaviour.old
        verdict.expect(isRight, "\(file?.count ?? -1) wrong bytes")
        if case .error = test.misbehaviour.expected, !test.stage.isDivided { verdict.wrong.append("it finished") }
        if isRight { verdict.right += 1 }
        await expectNoTraces(of: ["file"], place, lane, &verdict)
    } else {
        verdict.tell(end.error.message, "its owner")
        verdict.expect(file == nil, "it failed, and the file is there")
        // A mirror has the right file, and a checksum proves it.
        if test.stage == .mirrors { verdict.wrong.append("it failed: \(end.error.message)") }
        if case .right = test.misbehaviour.expected { verdict.wrong.append("it failed: \(end.error.message)") }
        let names = listFolder(place.files)
        verdict.expect(names.allSatisfy { $0.hasPrefix(".todoku-") }, "left behind: \(names)")
    }
    return verdict
}
