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
                    the other it sends the same bytes. Each call of the daemon on its folders fails in turn. The same over eight connections, and \
                    from a server and two mirrors, where a number may name another call in each run.
                    """)
            var cases: [UnchangedCase] = []
            let all: [Fault.Kind] = [.enospc, .eio, .eintr, .short]
            let some = Length.isFull || Length.only != nil ? all : [.enospc, .eio, .short]
            let columns = Way.allCases.flatMap { way in
                (way == .one ? all : some).map { UnchangedCase(fault: Fault(kind: $0, at: 0), way: way) }
            }
            for (column, counted) in zip(columns, try await countCalls(columns)) {
                let all = (1...counted).map { UnchangedCase(fault: Fault(kind: column.fault.kind, at: $0), way: column.way) }
                // The first calls are those of the start, which are the same in each way.
                let isShort = column.way != .one && !Length.isFull && Length.only == nil
                cases += Length.sample(isShort ? Array(all.dropFirst(counted / 3)) : all, isShort ? 2 : 12)
            }
            try await runCases(cases, report) { try await again($0, $1) }
            await report.finish(expecting: columns.map(\.row))
        }

        /// The numbers of calls that the faults of `columns` could hit.
        private func countCalls(_ columns: [UnchangedCase]) async throws -> [Int] {
            try await withThrowingTaskGroup(of: (Int, Int).self) { group in
                var counts = [Int](repeating: 0, count: columns.count)
                for (index, column) in columns.enumerated() {
                    if index >= Length.lanes, let (ended, count) = try await group.next() { counts[ended] = count }
                    group.addTask { (index, try await countCalls(column)) }
                }
                for try await (ended, count) in group { counts[ended] = count }
                return counts
            }
        }

        private func countCalls(_ column: UnchangedCase) async throws -> Int {
            let place = Place()
            let lane = try await Lane(try await Shim.compiled())
            let verdict = try await life(column, place, lane)
            #expect(verdict.wrong == [] && place.calls > 0, "without any fault\(column.way.rawValue): \(verdict.wrong)")
            return place.calls
        }
    }
}

private struct UnchangedCase: Sendable, CustomStringConvertible {
    let fault: Fault
    let way: Way
    var description: String { "\(fault)\(way.rawValue)" }
    var row: String { fault.kind.rawValue.uppercased() + way.rawValue }
}

@BusActor private func again(_ test: UnchangedCase, _ lane: Lane) async throws -> Verdict {
    let place = Place()
    var verdict = try await life(test, place, lane)
    verdict.wasMet = place.hits > 0
    verdict.note = "it befell: \(place.log.split(separator: "\n").joined(separator: ", "))"
    return verdict
}

@BusActor private func life(_ test: UnchangedCase, _ place: Place, _ lane: Lane) async throws -> Verdict {
    let (fault, way) = (test.fault, test.way)
    var verdict = Verdict(row: test.row, name: "\(test)")
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
    // Over several connections, the other file has a validator, but its server ignores the condition.
    let servers = names.map { CaseServers(body, way, name: $0, isCacheable: $0 == "asked.bin") }
    let urls = zip(names, servers).map { way == .one ? server.url("/\($0)") : $1.url }
    var more: [[String: Variant]] = []
    for servers in servers { more.append(options.merging(try await servers.options(place)) { $1 }) }
    guard await startInTheEnd(place, nil, lane, &verdict) else { return verdict }
    for (index, name) in names.enumerated() {
        await come(try await lane.download(urls[index], more[index]), name, body, place, lane, &verdict)
        servers[index].expectSeveral(&verdict)
    }
    await lane.end(SIGTERM)

    servers[1].forgetResponses()
    let asked = servers[0].requestCount
    guard await startInTheEnd(place, fault, lane, &verdict) else { return verdict }
    for (index, name) in names.enumerated() {
        var path: ObjectPath?
        for _ in 0..<5 where path == nil {
            do { path = try await lane.download(urls[index], more[index]) } catch {
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
    servers[1].expectSeveral(&verdict)
    let askedAgain = servers[0].requestCount - asked
    verdict.expect(fault.at > 0 || way == .one || askedAgain == 1, "for a file that has not changed, \(askedAgain) requests were sent")
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
                return verdict.wrong.append("still \(download.state) \(download.waitReason) after 180 s")
            }
            verdict.tell(download.error.message, "its owner")
            try await lane.retry(path)
        }
        verdict.wrong.append("it did not come after three tries")
    } catch {
        verdict.wrong.append("a call failed: \(error)\(await lane.lastWords())")
    }
}
