import DownloadModel
import EventLoop
import Glibc
import TestSupport
import Testing

@testable internal import PartFiles
@testable internal import TransferEngine

/// A server whose first response goes on only once further requests have arrived. So several connections fetch the file at the same time,
/// however fast the machine is.
///
/// - Parameter gate: the first response waits for this instead.
private func parallelServer(
    _ file: [UInt8], waitsFor count: Int = 3, gate: Gate? = nil, entityTag: String? = "\"v1\"",
    further: @escaping @Sendable (ScriptedServer.Request, Reply) -> Void
) -> ScriptedServer {
    let joined = Gate()
    let goOn = gate ?? joined
    return ScriptedServer { request, reply in
        if request.number >= count { joined.open() }
        guard request.number == 0 else { return further(request, reply) }
        if let entityTag {
            reply.head(200, ["ETag": entityTag, "Accept-Ranges": "bytes"], length: file.count)
        } else {
            reply.head(200, length: file.count)
        }
        reply.send(file[..<100_000])
        goOn.wait()
        reply.send(file[100_000...])
    }
}

@Suite(.timeLimit(.minutes(5))) struct `Several connections of one transfer` {
    static let file = patternBytes(8_000_000)

    private func ranges(_ server: ScriptedServer) -> [String?] { server.requests.map { $0.field("Range") } }

    @Test func `each fetch a part of the file, by a bounded range with the validator`() async throws {
        let gate = Gate()
        let server = parallelServer(Self.file, gate: gate) { request, reply in reply.serve(Self.file, for: request, entityTag: "\"v1\"") }
        let fixture = await EngineFixture()
        let request = try fixture.request(server.url("/file.bin")) { $0.connections = 4 }
        fixture.engine.start(request)
        await fixture.log.wait { $0.count { if case .joined = $0 { true } else { false } } >= 3 }
        gate.open()
        let end = await fixture.log.end(of: request.number)
        #expect(end.complete?.size == 8_000_000 && fixture.part == Self.file)
        // The first bytes have come, and the rest is divided into equal parts.
        let further = server.requests.dropFirst()
        #expect(further.count >= 3 && further.allSatisfy { $0.range?.last != nil && $0.field("If-Range") == "\"v1\"" })
        #expect(further.contains { $0.range?.last == 7_999_999 })
        let facts = await fixture.log.facts()
        #expect(facts.map(\.offset) == [0], "the beginning is reported once")
        // Each id is new, and follows the first. Later, each connection may ask for a part of another one's rest.
        #expect(await fixture.log.asked.prefix(3).map(\.ordinal) == [1, 2, 3])
    }

    @Test func `are faster than one if the server limits each`() async throws {
        let nginx = await Nginx(limitRate: "1m")
        nginx.put("file.bin", Self.file)
        let fixture = await EngineFixture()
        func seconds(_ number: UInt64, _ connections: UInt32) async throws -> Double {
            let start = ContinuousClock.now
            let end = try await fixture.run(nginx.url("/file.bin"), number: number) { $0.connections = connections }
            #expect(end.complete?.size == 8_000_000 && fixture.part(number) == Self.file)
            return (ContinuousClock.now - start) / .seconds(1)
        }
        /// How many responses have brought a part of the file, beside the first response.
        func parts(_ number: UInt64) async -> Int {
            await fixture.log.events.count { if case .joined(let id) = $0 { id.download.value == number } else { false } }
        }
        // Other work may slow down one of the two measurements. Or most of the file may come before the engine divides it. So there are
        // five tries.
        var measured: [(one: Double, eight: Double, parts: Int)] = []
        while measured.count < 5, !measured.contains(where: { $0.eight < $0.one && $0.parts >= 5 }) {
            let number = UInt64(2 * measured.count + 1)
            let one = try await seconds(number, 1)
            let eight = try await seconds(number + 1, 8)
            measured.append((one, eight, await parts(number + 1)))
        }
        #expect(measured.contains { $0.eight < $0.one && $0.parts >= 5 }, "\(measured)")
    }

    /// Over HTTP/2, all requests would share one connection.
    @Test func `use HTTP 1.1 and connections of their own, although the first one uses HTTP 2`() async throws {
        let joined = Gate()
        defer { joined.open() }
        // None of the three further requests is answered before all have come. Otherwise a late one would use the connection of another.
        let server = parallelServer(Self.file, gate: joined) { request, reply in
            if request.number >= 3 { joined.open() }
            joined.wait()
            reply.serve(Self.file, for: request, entityTag: "\"v1\"")
        }
        let nginx = await nginxInFront(
            of: server, log: "ranges.log ranges", http: "log_format ranges '$connection $server_protocol $http_range';")
        let fixture = await EngineFixture(certificateFile: nginx.authority)
        let end = try await fixture.run(nginx.secureURL("/file.bin")) { $0.connections = 4 }
        #expect(end.complete?.size == 8_000_000 && fixture.part == Self.file)
        func requests() -> [[Substring]] {
            let log = String(decoding: readFile(nginx.folder("ranges.log")) ?? [], as: UTF8.self)
            return log.split(separator: "\n").map { $0.split(separator: " ") }
        }
        func first() -> [[Substring]] { requests().filter { $0[2] == "-" } }
        func further() -> [[Substring]] { requests().filter { $0[2] != "-" } }
        // nginx logs a request when it has ended.
        #expect(await eventually { !first().isEmpty && Set(further().map { $0[0] }).count >= 3 }, "\(requests())")
        #expect(first().map { $0[1] } == ["HTTP/2.0"] && further().allSatisfy { $0[1] == "HTTP/1.1" }, "\(requests())")
        let connections = Set(further().map { $0[0] })
        #expect(first().allSatisfy { !connections.contains($0[0]) }, "\(requests())")
    }

    /// How many gain depends on the load of the machine: `Automatic connections` has the rules. If a permit comes after the end of its
    /// trial, the request does not go out. So there are at most three tries.
    @Test func `are tried automatically`() async throws {
        let nginx = await Nginx(limitRate: "2m")
        let file = patternBytes(40_000_000)
        nginx.put("file.bin", file)
        var tries: [UInt32] = []
        while tries.count < 3, tries.last ?? 0 < 2 {
            let fixture = await EngineFixture()
            let end = try await fixture.run(nginx.url("/file.bin")) { $0.connections = 0 }
            #expect(end.complete?.size == 40_000_000 && fixture.part == file)
            let most = await fixture.log.events.compactMap { event -> UInt32? in
                if case .progress(let all) = event { all.map(\.connections).max() } else { nil }
            }.max()
            tries.append(most ?? 0)
        }
        #expect(tries.last ?? 0 >= 2, "\(tries) connections")
    }

    /// The network is metered from the second connection on. The file is so large that the transfer would add more.
    @Test func `are one again once the network is metered, and are tried once it is not`() async throws {
        let nginx = await Nginx(limitRate: "1m")
        let file = patternBytes(60_000_000)
        nginx.put("file.bin", file)
        let isInTime = try await inTime {
            let fixture = await EngineFixture()
            let request = try fixture.request(nginx.url("/file.bin")) { $0.connections = 0 }
            guard await meter(request, of: fixture) else { return false }
            #expect(await fixture.log.end(of: request.number).complete?.size == 60_000_000 && fixture.part == file)
            return true
        }
        #expect(isInTime, "no second connection came in time")
    }

    /// Starts the transfer, and changes the network during it: on the loop of the events, so soon after them as the loop is free.
    ///
    /// - Returns: false: a permit came after the end of its trial, so the request did not go out; or the transfer has ended.
    @BusActor private func meter(_ request: TransferRequest, of fixture: EngineFixture) async -> Bool {
        let (engine, log) = (fixture.engine, fixture.log)
        func connections(_ event: TransferEvent) -> UInt32? {
            if case .progress(let all) = event { all.map(\.connections).max() } else { nil }
        }
        func isSecond(_ event: TransferEvent) -> Bool { connections(event) ?? 0 >= 2 }
        func isLost(_ event: TransferEvent) -> Bool { if case .over = event { true } else { event.isEnd(of: request.number) } }
        /// Waits for a second connection, in the events from `seen` on.
        func getsSecond(from seen: Int) async -> Bool {
            await log.wait { events in events[seen...].contains { isSecond($0) || isLost($0) } }
            return log.events[seen...].first { isSecond($0) || isLost($0) }.map { isSecond($0) } ?? false
        }
        func hasEnded(_ events: [TransferEvent]) -> Bool { events.last?.isEnd(of: request.number) ?? false }
        engine.start(request)
        guard await getsSecond(from: 0) else { return false }
        engine.setMetered(true)
        await log.wait { events in hasEnded(events) || events.compactMap { connections($0) }.last == 1 }
        let (asked, received) = (log.asked.count, log.received)
        // A trial begins after two windows of a second each.
        await log.wait { _ in hasEnded(log.events) || log.received >= received + 4_000_000 }
        guard !hasEnded(log.events) else { return false }
        let last = log.events.compactMap { connections($0) }.last
        #expect(last == 1 && log.asked.count == asked)
        engine.setMetered(false)
        return await getsSecond(from: log.events.count)
    }

    @Test func `are one without a strong validator or a checksum`() async throws {
        let server = ScriptedServer { request, reply in reply.serve(Self.file, for: request, entityTag: "W/\"v1\"") }
        let fixture = await EngineFixture()
        #expect(try await fixture.run(server.url("/file.bin")) { $0.connections = 4 }.complete?.size == 8_000_000)
        #expect(ranges(server) == [nil] && fixture.part == Self.file)
    }

    @Test func `need no validator under a checksum`() async throws {
        let server = parallelServer(Self.file, entityTag: nil) { request, reply in reply.serve(Self.file, for: request) }
        let fixture = await EngineFixture()
        let end = try await fixture.run(server.url("/file.bin")) { ($0.connections, $0.hasChecksum) = (4, true) }
        #expect(end.complete?.size == 8_000_000 && fixture.part == Self.file)
        #expect(server.requests.count >= 4 && server.requests.allSatisfy { $0.field("If-Range") == nil })
    }

    /// What a server may do wrong with a further range. The first response brings the whole file all the same.
    enum Answer: CaseIterable, Sendable {
        case whole, changedWhole, changedPart, wrongStart, wrongTotal, tooLong, noLength, notFound, unavailable, unsatisfied
        case failedCondition, closed
    }

    @Test(arguments: Answer.allCases) func `lose nothing if the server gives a wrong answer to a range`(answer: Answer) async throws {
        let file = Self.file
        let gate = Gate()
        let server = parallelServer(file, gate: gate) { request, reply in
            let (first, last) = (request.range?.first ?? 0, request.range?.last ?? file.count - 1)
            let piece = file[first...last]
            let wrong = [UInt8](repeating: 0xEE, count: piece.count)
            func part(_ tag: String, _ range: String, _ body: [UInt8]) {
                reply.respond(206, ["ETag": tag, "Content-Range": "bytes \(range)"], body: body)
            }
            switch answer {
            case .whole: reply.respond(200, ["ETag": "\"v1\""], body: file)
            case .changedWhole: reply.respond(200, ["ETag": "\"v2\""], body: [UInt8](repeating: 0xEE, count: file.count))
            case .changedPart: part("\"v2\"", "\(first)-\(last)/\(file.count)", wrong)
            case .wrongStart: part("\"v1\"", "\(first - 1)-\(last - 1)/\(file.count)", wrong)
            case .wrongTotal: part("\"v1\"", "\(first)-\(last)/\(file.count + 1)", wrong)
            case .tooLong: part("\"v1\"", "\(first)-\(last)/\(file.count)", wrong + [1])
            // Only its end, or a digest, could show that the bytes are wrong.
            case .noLength:
                reply.head(206, ["ETag": "\"v1\"", "Content-Range": "bytes \(first)-\(last)/\(file.count)"])
                reply.send(wrong)
                reply.close()
            case .notFound: reply.respond(404)
            case .unavailable: reply.respond(503, ["Retry-After": "1"])
            case .unsatisfied: reply.respond(416, ["Content-Range": "bytes */10"])
            case .failedCondition: reply.respond(412)
            case .closed: reply.reset()
            }
        }
        let fixture = await EngineFixture()
        let request = try fixture.request(server.url("/file.bin")) { $0.connections = 4 }
        fixture.engine.start(request)
        await fixture.log.wait { $0.contains { if case .over = $0 { true } else { false } } }
        gate.open()
        let end = await fixture.log.end(of: request.number)
        #expect(end.complete?.size == 8_000_000 && fixture.part == file)
        #expect(server.requests.count { $0.field("Range") == nil } == 1, "the first response goes on")
        // Every answer but a lost connection ends the division for this transfer.
        if answer != .closed { #expect(server.requests.count <= 4) }
        let over = await fixture.log.events.compactMap { if case .over(_, let failure?) = $0 { failure } else { nil } }
        if answer == .unavailable { #expect(over.contains { $0.httpStatus == 503 && $0.retryAfter == .seconds(1) }) }
    }

    /// The answer counts for one transfer only, because another node of the server may send ranges.
    @Test func `are tried again by the next transfer if the server has ignored a range`() async throws {
        let (ignored, joined) = (Gate(), Gate())
        defer { for gate in [ignored, joined] { gate.open() } }
        let server = ScriptedServer { request, reply in
            switch request.number {
            case 0:
                reply.head(200, ["ETag": "\"v1\"", "Accept-Ranges": "bytes"], length: Self.file.count)
                reply.send(Self.file[..<100_000])
                ignored.wait()
                reply.close()
            case 1: reply.respond(200, ["ETag": "\"v1\""], body: Self.file)
            case 2:
                reply.head(206, ["ETag": "\"v1\"", "Content-Range": "bytes 100000-7999999/8000000"], length: 7_900_000)
                reply.send(Self.file[100_000..<200_000])
                joined.wait()
                reply.send(Self.file[200_000...])
            default:
                joined.open()
                reply.serve(Self.file, for: request, entityTag: "\"v1\"")
            }
        }
        let fixture = await EngineFixture()
        var request = try fixture.request(server.url("/file.bin")) { $0.connections = 2 }
        fixture.engine.start(request)
        await fixture.log.wait { $0.contains { if case .over = $0 { true } else { false } } }
        ignored.open()
        request.resume = await fixture.log.end(of: request.number).resume
        #expect(server.requests.count == 2 && request.resume?.written == 100_000)
        #expect(await fixture.run(request).complete?.size == 8_000_000 && fixture.part == Self.file)
        #expect(server.requests.count >= 4 && server.requests[3].range?.last == 7_999_999)
    }

    /// The server accepts two connections. One of them sends 10,000 bytes, and then nothing.
    @Test func `take over from a silent one, also if the server has refused one more`() async throws {
        let end = Gate()
        defer { end.open() }
        let server = parallelServer(Self.file, waitsFor: 2) { request, reply in
            switch request.number {
            case 1:
                let (first, last) = (request.range?.first ?? 0, request.range?.last ?? 0)
                reply.head(206, ["ETag": "\"v1\"", "Content-Range": "bytes \(first)-\(last)/8000000"], length: last - first + 1)
                reply.send(Self.file[first..<first + 10_000])
                end.wait()
            case 2: reply.respond(503)
            default: reply.serve(Self.file, for: request, entityTag: "\"v1\"")
            }
        }
        let fixture = await EngineFixture()
        let transferEnd = try await fixture.run(server.url("/file.bin")) {
            ($0.connections, $0.stallTimeout, $0.takeOverAfter) = (3, .seconds(3600), Transfer.takeOverAfter)
        }
        // A further request fetches the rest, or the first response continues through it.
        #expect(transferEnd.complete?.size == 8_000_000 && fixture.part == Self.file)
        #expect(server.requests.count >= 3)
    }

    /// Its rest is too small to be divided, and would take an hour.
    @Test func `take the rest from one that trickles`() async throws {
        let end = Gate()
        defer { end.open() }
        let server = parallelServer(Self.file, waitsFor: 1) { request, reply in
            let (first, last) = (request.range?.first ?? 0, request.range?.last ?? 0)
            guard request.number == 1 else { return reply.serve(Self.file, for: request, entityTag: "\"v1\"") }
            reply.head(206, ["ETag": "\"v1\"", "Content-Range": "bytes \(first)-\(last)/8000000"], length: last - first + 1)
            reply.send(Self.file[first..<last - 60_000])
            for place in last - 60_000...last {
                poll(nil, 0, 60)
                guard !end.isOpen, reply.send([Self.file[place]]) else { return }
            }
        }
        let fixture = await EngineFixture()
        let transferEnd = try await fixture.run(server.url("/file.bin")) { ($0.connections, $0.stallTimeout) = (2, .seconds(3600)) }
        #expect(transferEnd.complete?.size == 8_000_000 && fixture.part == Self.file)
    }

    @Test func `go on when one of them is cut, and fetch its bytes again`() async throws {
        let again = Gate()
        let server = parallelServer(Self.file) { request, reply in
            if request.number >= 4 { again.open() }
            guard 2...3 ~= request.number, let range = request.range, let last = range.last else {
                return reply.serve(Self.file, for: request, entityTag: "\"v1\"")
            }
            reply.head(
                206, ["ETag": "\"v1\"", "Content-Range": "bytes \(range.first)-\(last)/8000000"], length: last - range.first + 1)
            reply.send(Self.file[range.first..<range.first + 300_000])
            if request.number == 2 { return reply.reset() }
            // This one brings bytes as long as the lost ones are missing.
            for place in stride(from: range.first + 300_000, through: last, by: 1000) {
                if !again.isOpen { poll(nil, 0, 20) }
                guard reply.send(Self.file[place...min(last, place + 999)]) else { return }
            }
        }
        let fixture = await EngineFixture()
        let end = try await fixture.run(server.url("/file.bin")) { $0.connections = 4 }
        #expect(end.complete?.size == 8_000_000 && fixture.part == Self.file)
    }

    @Test func `go on when the first of them is cut`() async throws {
        let joined = Gate()
        let server = ScriptedServer { request, reply in
            if request.number >= 3 { joined.open() }
            guard request.number == 0 else { return reply.serve(Self.file, for: request, entityTag: "\"v1\"") }
            reply.head(200, ["ETag": "\"v1\""], length: 8_000_000)
            reply.send(Self.file[..<300_000])
            joined.wait()
            reply.reset()
        }
        let fixture = await EngineFixture()
        let first = try await fixture.run(server.url("/file.bin")) { $0.connections = 4 }
        // If the others have ended before, the transfer ends as ever, and the next one fetches only the missing bytes.
        let end =
            first.complete == nil
            ? try await fixture.run(server.url("/file.bin")) { ($0.connections, $0.resume) = (4, first.resume) } : first
        #expect(end.complete?.size == 8_000_000 && fixture.part == Self.file)
        #expect(server.requests.count { $0.field("Range") == nil } == 1)
    }

    @Test func `take over the bytes of one that stalls`() async throws {
        let gate = Gate()
        let server = parallelServer(Self.file) { request, reply in
            guard request.number == 2, let range = request.range, let last = range.last else {
                return reply.serve(Self.file, for: request, entityTag: "\"v1\"")
            }
            reply.head(
                206, ["ETag": "\"v1\"", "Content-Range": "bytes \(range.first)-\(last)/8000000"], length: last - range.first + 1)
            reply.send(Self.file[range.first..<range.first + 10_000])
            gate.wait()
        }
        let fixture = await EngineFixture()
        // Without the others, it would stall until the time limit of the suite.
        let end = try await fixture.run(server.url("/file.bin")) {
            ($0.connections, $0.stallTimeout, $0.takeOverAfter) = (4, .seconds(3600), Transfer.takeOverAfter)
        }
        #expect(end.complete?.size == 8_000_000 && fixture.part == Self.file)
        gate.open()
    }

    @Test func `resume from every range that they have written`() async throws {
        let (gate, joined) = (Gate(), Gate())
        let server = ScriptedServer { request, reply in
            if request.number >= 3 { joined.open() }
            guard request.number < 4 else { return reply.serve(Self.file, for: request, entityTag: "\"v1\"") }
            let (first, last) = (request.range?.first ?? 0, request.range?.last ?? 7_999_999)
            let fields: KeyValuePairs = ["ETag": "\"v1\"", "Content-Range": "bytes \(first)-\(last)/8000000"]
            reply.head(request.number == 0 ? 200 : 206, fields, length: last - first + 1)
            reply.send(Self.file[first..<first + 100_000])
            joined.wait()
            reply.send(Self.file[first + 100_000..<first + 400_000])
            gate.wait()
        }
        let fixture = await EngineFixture()
        var request = try fixture.request(server.url("/file.bin")) { $0.connections = 4 }
        fixture.engine.start(request)
        await fixture.log.received(1_600_000)
        fixture.engine.stop(request.number)
        let stopped = await fixture.log.end(of: request.number)
        #expect(stopped.resume?.ranges.ranges.count == 4 && stopped.resume?.written == 1_600_000)
        gate.open()
        request.resume = stopped.resume
        #expect(await fixture.run(request).complete?.size == 8_000_000)
        #expect(fixture.part == Self.file)
        let again = server.requests.dropFirst(4)
        #expect(again.count >= 4 && again.allSatisfy { $0.range?.last != nil || $0.range.map { $0.first >= 6_000_000 } ?? false })
    }

    @Test func `give a place back when it is wanted, and keep what they have brought`() async throws {
        let (withdrawn, ended) = (Gate(), Gate())
        let server = ScriptedServer { request, reply in
            switch request.number {
            case 0:
                reply.head(200, ["ETag": "\"v1\"", "Accept-Ranges": "bytes"], length: Self.file.count)
                reply.send(Self.file[..<100_000])
                withdrawn.wait()
                reply.send(Self.file[100_000...])
            case 1:
                guard let range = request.range, let last = range.last else { return reply.close() }
                reply.head(
                    206, ["ETag": "\"v1\"", "Content-Range": "bytes \(range.first)-\(last)/8000000"], length: last - range.first + 1)
                reply.send(Self.file[range.first..<range.first + 10_000])
                ended.wait()
            default: reply.serve(Self.file, for: request, entityTag: "\"v1\"")
            }
        }
        let fixture = await EngineFixture()
        let request = try fixture.request(server.url("/file.bin")) { $0.connections = 2 }
        fixture.engine.start(request)
        await fixture.log.wait { $0.contains { if case .joined = $0 { true } else { false } } }
        let id = try #require(await fixture.log.asked.first)
        fixture.engine.withdraw(id)
        // The first response goes on only now: it must not have brought everything before.
        await fixture.log.wait { $0.contains { if case .over(id, nil) = $0 { true } else { false } } }
        withdrawn.open()
        let end = await fixture.log.end(of: request.number)
        #expect(end.complete?.size == 8_000_000 && fixture.part == Self.file)
        ended.open()
    }

    @Test func `keep the limit of their transfer together`() async throws {
        let server = parallelServer(Self.file) { request, reply in reply.serve(Self.file, for: request, entityTag: "\"v1\"") }
        let fixture = await EngineFixture()
        let start = ContinuousClock.now
        let end = try await fixture.run(server.url("/file.bin")) { ($0.connections, $0.speedLimit) = (4, 2_000_000) }
        let seconds = (ContinuousClock.now - start) / .seconds(1)
        #expect(end.complete?.size == 8_000_000 && fixture.part == Self.file)
        #expect(seconds > 3.7, "8 MB at 2 MB/s took \(seconds) s")
    }

    @Test func `write into a caller's file, too`() async throws {
        let server = parallelServer(Self.file) { request, reply in reply.serve(Self.file, for: request, entityTag: "\"v1\"") }
        let fixture = await EngineFixture()
        let path = fixture.folder("mine")
        let held = HeldDescriptor(adopting: open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0o600))
        let end = try await fixture.run(server.url("/file.bin")) {
            ($0.connections, $0.descriptor, $0.directory, $0.partName, $0.mapPath) = (4, held, "", "", nil)
        }
        #expect(end.complete?.size == 8_000_000 && readFile(path) == Self.file && server.requests.count >= 4)
    }
}

@Suite struct `Connections that share an allowance` {
    @Test func `keep the limit together, and each gets its part in turn`() {
        let shared = SharedPace()
        shared.wake(0, idle: 0)
        let first = Pace(shared, limit: 1000)
        var paces = [first, Pace(with: first), Pace(with: first)]
        var taken = [0, 0, 0]
        for _ in 0..<300 {
            for (index, pace) in paces.enumerated() where !pace.isHolding { taken[index] += pace.take(1000) }
            shared.deal(0, seconds: 0.1, to: paces)
            #expect(first.isLimiting)
            for pace in paces { _ = pace.release() }
            paces.append(paces.removeFirst())
            taken.append(taken.removeFirst())
        }
        #expect(abs(taken.reduce(0, +) - 30_000) <= 200, "30 s at 1000 bytes a second")
        #expect(taken.allSatisfy { $0 > 8000 }, "\(taken)")
    }

    @Test func `count as one when the service's limit is shared`() {
        let shared = SharedPace()
        shared.wake(3000, idle: 0)
        let (first, other) = (Pace(shared, limit: 0), Pace(shared, limit: 0))
        var paces = [first, Pace(with: first), Pace(with: first), other]
        var (own, others) = (0, 0)
        for _ in 0..<300 {
            for pace in paces where !pace.isHolding {
                let count = pace.take(1000)
                if pace === other { others += count } else { own += count }
            }
            shared.deal(3000, seconds: 0.1, to: paces)
            for pace in paces { _ = pace.release() }
            paces = [paces[1], paces[2], paces[0], other]
        }
        #expect(abs(own - others) < 5000, "\(own) and \(others)")
    }
}
