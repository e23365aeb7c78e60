import DownloadModel
import EventLoop
import Glibc
import TestSupport
import Testing

@testable internal import PartFiles
@testable internal import TransferEngine

/// When a history stops a transfer.
private enum StopPoint {
    /// Once the transfer has received so many bytes.
    case bytes(ByteCount)
    /// Once so many responses have begun. Between two reports of progress, a fast transfer may end.
    case responses(Int)

    func isReached(by events: ArraySlice<TransferEvent>) -> Bool {
        switch self {
        case .bytes(let most): events.contains { if case .progress(let all) = $0 { all.contains { $0.received >= most } } else { false } }
        case .responses(let most): events.count(where: \.isOfResponse) >= most
        }
    }
}

extension TransferEvent {
    /// Whether a response was accepted.
    fileprivate var isOfResponse: Bool {
        switch self {
        case .began, .joined: true
        default: false
        }
    }
}

extension EngineFixture {
    /// Runs a transfer, and stops it at `point`; nil: runs it to its end.
    fileprivate func run(_ request: TransferRequest, stoppingAt point: StopPoint?) async -> TransferEnd {
        guard let point else { return await run(request) }
        let (number, seen, ends) = (request.number, await log.events.count, await log.ends(of: request.number))
        engine.start(request)
        await log.wait { [engine] events in
            if events[seen...].contains(where: { $0.isEnd(of: number) }) { return true }
            guard point.isReached(by: events[seen...]) else { return false }
            // Not after the wait: on a busy machine, the transfer would end before this task runs again.
            engine.stop(number)
            return true
        }
        return await log.end(of: number, after: ends)
    }
}

/// Transfers from servers that fail as the seed of a history says. A server's answer depends on the seed, the server and the number of the
/// request alone. The order of the requests depends on the machine, too.
@Suite(.timeLimit(.minutes(5))) struct `Random histories of several connections` {
    static let file = patternBytes(6_000_000)

    enum Answer: Sendable {
        /// All requested bytes, fast or slowly.
        case all, slow
        /// Fewer bytes than were requested, as `Content-Range` says.
        case short
        /// The connection ends within the body, or before the head.
        case cut, closed
        case busy
        /// Nothing comes until the end of the history; in some histories, the head comes.
        case silent
        /// A wrong answer to a range: the whole file, other bytes, a range of a longer file, or one byte more than the range.
        case whole, misplaced, otherSize, surplus

        static let honest: [Answer] = [.all, .all, .all, .slow, .short, .cut, .cut, .closed, .busy]
        static let wrong: [Answer] = [.whole, .misplaced, .otherSize, .surplus]

        var isFault: Bool { ![.all, .slow, .short].contains(self) }
    }

    /// What happened in a history.
    struct Events: Sendable {
        var (transfers, stops, joined, faults) = (0, 0, 0, 0)

        static func + (one: Events, other: Events) -> Events {
            var sum = one
            sum.transfers += other.transfers
            sum.stops += other.stops
            sum.joined += other.joined
            sum.faults += other.faults
            return sum
        }
    }

    /// Whether some servers of the history give wrong answers, after which bytes may have to come again.
    private static func hasWrongAnswers(_ seed: UInt64) -> Bool { seed.isMultiple(of: 3) }

    /// Whether a server of the history does not answer one of its requests.
    private static func hasSilentAnswer(_ seed: UInt64) -> Bool { seed.isMultiple(of: 4) }

    /// - Returns: the answer, and the random numbers for its details.
    private static func answer(_ seed: UInt64, server: Int, request: Int) -> (Answer, SeededRandom) {
        var random = SeededRandom(seed << 16 | UInt64(server) << 8 | UInt64(request))
        let answers = Answer.honest + (hasWrongAnswers(seed) ? Answer.wrong + Answer.wrong : [])
        let answer = answers[Int.random(in: answers.indices, using: &random)]
        // Each server is good in the end, and a silent response costs seconds.
        if request >= 8 { return (.all, random) }
        return (hasSilentAnswer(seed) && server == 0 && request == 1 ? .silent : answer, random)
    }

    private static func server(_ seed: UInt64, _ number: Int, until end: Gate) -> ScriptedServer {
        ScriptedServer { request, reply in
            var (answer, random) = answer(seed, server: number, request: request.number)
            let isRange = request.range != nil
            let asked = (request.range?.first ?? 0)..<(request.range?.last ?? file.count - 1) + 1
            func head(_ range: Range<Int>, total: Int = file.count, hasLength: Bool = true) {
                let field = "bytes \(range.lowerBound)-\(range.upperBound - 1)/\(total)"
                let fields: KeyValuePairs = ["ETag": "\"v1\"", "Accept-Ranges": "bytes", "Content-Range": field]
                reply.head(isRange ? 206 : 200, fields, length: hasLength ? range.count : nil)
            }
            /// As a link brings them that carries 64 KiB in so many milliseconds.
            func send(_ range: Range<Int>, milliseconds: UInt32 = 8) {
                for start in stride(from: range.lowerBound, to: range.upperBound, by: 65_536) {
                    usleep(1000 * milliseconds)
                    guard reply.send(file[start..<min(start + 65_536, range.upperBound)]) else { return }
                }
            }
            switch answer {
            case .slow:
                head(asked)
                send(asked, milliseconds: 24)
            case .short where isRange:
                let part = asked.prefix(Int.random(in: 1...asked.count, using: &random))
                head(part)
                send(part)
            case .cut:
                head(asked)
                send(asked.prefix(Int.random(in: 0..<asked.count, using: &random)))
                reply.close()
            case .closed: reply.reset()
            case .busy: reply.respond(503)
            case .silent:
                if seed.isMultiple(of: 8) { head(asked) }
                end.wait()
            case .whole where isRange: reply.respond(200, ["ETag": "\"v1\""], body: file)
            case .misplaced where isRange:
                head(asked.lowerBound + 1..<asked.upperBound + 1)
                reply.send([UInt8](repeating: 0xEE, count: asked.count))
            case .otherSize where isRange:
                head(asked, total: file.count + 1)
                reply.send([UInt8](repeating: 0xEE, count: asked.count))
            case .surplus where isRange:
                head(asked, hasLength: false)
                send(asked)
                reply.send([0xEE])
                reply.close()
            case .all, .short, .whole, .misplaced, .otherSize, .surplus:
                head(asked)
                send(asked)
            }
        }
    }

    /// Runs transfers, each from what the one before has left, until the file is whole.
    private static func history(_ seed: UInt64) async throws -> Events {
        var random = SeededRandom(seed)
        let end = Gate()
        defer { end.open() }
        let servers = (0..<Int.random(in: 1...3, using: &random)).map { server(seed, $0, until: end) }
        let connections = UInt32.random(in: 2...8, using: &random)
        let fixture = await EngineFixture()
        // In some histories, nothing but the validator of one server proves that its ranges belong together.
        var request = try fixture.request(servers[0].url("/file.bin")) {
            $0.connections = connections
            // Otherwise, only a busy machine makes a server silent.
            if hasSilentAnswer(seed) { ($0.stallTimeout, $0.takeOverAfter) = (.seconds(4), Transfer.takeOverAfter) }
            guard !seed.isMultiple(of: 5) else { return }
            let mirrors = servers.count == 1 ? [servers[0].url("/copy.bin")] : servers.dropFirst().map { $0.url("/file.bin") }
            $0.use(mirrors, mixes: true)
        }
        var (events, isWhole) = (Events(), false)
        while !isWhole, events.transfers < 40 {
            let isStopped = events.stops < 2 && Bool.random(using: &random)
            let point =
                Bool.random(using: &random)
                ? StopPoint.responses(Int.random(in: 1...3, using: &random))
                : .bytes(ByteCount.random(in: 500_000..<6_000_000, using: &random))
            let transferEnd = await fixture.run(request, stoppingAt: isStopped ? point : nil)
            events.transfers += 1
            let part = fixture.part ?? []
            switch transferEnd {
            case .complete(let complete):
                isWhole = true
                #expect(complete.size == 6_000_000 && part == file, "seed \(seed)")
            case .failed(let failure, _, let resume):
                request.resume = resume
                #expect(failure.isRetryable, "seed \(seed): \(failure)")
            case .stopped(let resume):
                request.resume = resume
                events.stops += 1
            case .nameTaken, .unchanged: Issue.record("seed \(seed): \(transferEnd)")
            }
            // What is held is right, even if it is not on disk yet.
            for range in request.resume?.ranges.ranges ?? [] {
                let bytes = Int(range.lowerBound)..<Int(range.upperBound)
                try #require(bytes.upperBound <= part.count, "seed \(seed): \(bytes)")
                let isRight = part[bytes] == file[bytes]
                #expect(isRight, "seed \(seed): \(bytes)")
            }
            for (place, source) in await fixture.log.sources.enumerated() { request.sources[place].received = source.received }
        }
        #expect(isWhole, "seed \(seed): \(events)")
        let answers = servers.enumerated().flatMap { number, server in
            server.requests.map { answer(seed, server: number, request: $0.number).0 }
        }
        events.faults = answers.count(where: \.isFault)
        #expect(answers.count <= 200, "seed \(seed): \(answers)")
        let log = await fixture.log.events
        let most = log.flatMap { event -> [UInt32] in if case .progress(let all) = event { all.map(\.connections) } else { [] } }.max()
        #expect(most ?? 0 <= connections, "seed \(seed)")
        events.joined = log.count { if case .joined = $0 { true } else { false } }
        let received = request.sources.reduce(0 as ByteCount) { $0 +| $1.received }
        if !request.sources.isEmpty { #expect(received >= 6_000_000, "seed \(seed): the sources have brought each byte") }
        // A lost connection costs what it had not delivered, and no byte that was written. A silent connection whose stretch was taken over
        // may go on, and bring this stretch a second time. On a busy machine, any connection may be silent.
        let mostReceived = 6_000_000 + ByteCount(events.faults + events.stops) << 19
        if !hasWrongAnswers(seed), !hasSilentAnswer(seed) {
            #expect(received <= mostReceived, "seed \(seed): \(received) bytes, \(events)")
        }
        return events
    }

    @Test func `hold only right bytes at each stop, fetch few twice, and end with the file`() async throws {
        let all = try await withThrowingTaskGroup(of: Events.self) { group in
            for seed in 1...24 as ClosedRange<UInt64> { group.addTask { try await Self.history(seed) } }
            return try await group.reduce(Events(), +)
        }
        #expect(all.joined >= 12 && all.stops >= 3 && all.faults >= 16, "\(all)")
    }
}
