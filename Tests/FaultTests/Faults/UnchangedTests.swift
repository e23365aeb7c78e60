internal import DBus
internal import DownloaderInterface
internal import EventLoop
internal import Glibc
internal import TestSupport
internal import Testing

extension `The fault campaign` {
    @Suite struct `A file that has not changed` {
        @Test func `is the outcome, or is downloaded again, whichever call fails`() async throws {
            let report = await Report(
                "One file-system call fails while nothing has changed",
                notes: """
                    Two files are there, of a service that has ended. Both are asked for again with only-if-changed: of one the server says 304, of \
                    the other it sends the same bytes. Each call of the daemon on its folders fails in turn.
                    """)
            var cases: [Fault] = []
            for kind in [Fault.Kind.enospc, .eio, .eintr, .short] {
                let counted = try await countCalls(kind)
                cases += Length.sample((1...counted).map { Fault(kind: kind, at: $0) }, 12)
            }
            try await runCases(cases, report) { try await again($0, $1) }
            await report.finish()
        }

        private func countCalls(_ kind: Fault.Kind) async throws -> Int {
            let place = Place()
            let lane = try await Lane(try await Shim.compiled())
            let verdict = try await life(Verdict(row: "", name: ""), Fault(kind: kind, at: 0), place, lane)
            #expect(verdict.wrong == [] && place.calls > 0, "without any fault: \(verdict.wrong)")
            return place.calls
        }
    }
}

@BusActor private func again(_ fault: Fault, _ lane: Lane) async throws -> Verdict {
    let place = Place()
    var verdict = try await life(Verdict(row: fault.kind.rawValue.uppercased(), name: "\(fault)"), fault, place, lane)
    verdict.wasMet = place.hits > 0
    verdict.note = "it befell: \(place.log.split(separator: "\n").joined(separator: ", "))"
    return verdict
}

@BusActor private func life(_ blank: Verdict, _ fault: Fault, _ place: Place, _ lane: Lane) async throws -> Verdict {
    var verdict = blank
    let body = Bodies.large
    let server = ScriptedServer { request, reply in
        if request.path == "/same.bin" { return reply.respond(200, body: body) }
        if request.field("If-None-Match") == "\"v1\"" { return reply.head(304) }
        reply.respond(200, ["ETag": "\"v1\""], body: body)
    }
    let options: [String: Variant] = [
        "directory": .string(place.files), "notify": .string("never"), "only-if-changed": .bool(true), "if-exists": .string("replace"),
    ]
    let names = ["asked.bin", "same.bin"]
    guard await startInTheEnd(place, nil, lane, &verdict) else { return verdict }
    for name in names { await come(try await lane.download(server.url("/\(name)"), options), name, body, place, lane, &verdict) }
    await lane.end(SIGTERM)

    guard await startInTheEnd(place, fault, lane, &verdict) else { return verdict }
    for name in names {
        var path: ObjectPath?
        for _ in 0..<5 where path == nil {
            do { path = try await lane.download(server.url("/\(name)"), options) } catch {
                verdict.tell(error.message, "the caller")
                if !lane.isRunning {
                    await lane.end(SIGKILL)
                    guard await startInTheEnd(place, nil, lane, &verdict) else { return verdict }
                }
            }
        }
        guard let path else {
            verdict.wrong.append("five calls were refused after one fault")
            return verdict
        }
        await come(path, name, body, place, lane, &verdict)
    }
    await lane.end(SIGTERM)
    guard await startInTheEnd(place, nil, lane, &verdict) else { return verdict }
    await expectNoTraces(of: names, place, lane, &verdict)
    await lane.end(SIGKILL)
    return verdict
}

/// Waits for the end. Retries a failed download, and starts a killed daemon again.
@BusActor private func come(
    _ path: ObjectPath, _ name: String, _ body: [UInt8], _ place: Place, _ lane: Lane, _ verdict: inout Verdict
) async {
    do {
        for _ in 0..<3 {
            let all = try await lane.settle([path])
            verdict.expect(readFile("\(place.files)/\(name)").map { $0 == body } ?? true, "\(name) holds wrong bytes")
            if !lane.isRunning {
                await lane.end(SIGKILL)
                guard await startInTheEnd(place, nil, lane, &verdict) else { return }
                continue
            }
            guard let download = all[path.value] else { return verdict.wrong.append("an acknowledged download is gone") }
            if download.state == "finished" {
                let isRight = download.path == "\(place.files)/\(name)" && fileHolds(download.path, body)
                verdict.expect(isRight, "it finished with \(download.path), which is not the file")
                if isRight { verdict.right += 1 }
                return
            }
            guard download.state == "failed" else {
                return verdict.wrong.append("still \(download.state) \(download.waitReason) after 60 s")
            }
            verdict.tell(download.error.message, "its owner")
            try await lane.retry(path)
        }
        verdict.wrong.append("it did not come after three tries")
    } catch {
        verdict.wrong.append("a call failed: \(error)\(await lane.lastWords())")
    }
}
