import DownloadModel
import EventLoop
import Glibc
import Synchronization
import TestSupport
import Testing

@testable internal import PartFiles
@testable internal import TransferEngine

/// Transfers that share the connections of one server, which ends streams and connections as the seed of a history says. The answer to a
/// request depends on the seed, the file and the number of the request for this file alone. The order of the requests depends on the
/// machine, too.
@Suite(.timeLimit(.minutes(20))) struct `Random histories of shared connections` {
    /// How a response ends.
    enum Ending: CaseIterable, Sendable {
        /// The whole body; also with GOAWAY in the same write, or in a later one.
        case right, trailers, goAway, trailersAndGoAway, laterGoAway
        /// A part of the body, and RST_STREAM with or without an error.
        case reset, quietReset
        /// A part of the body, and END_STREAM. Over HTTP/2, nothing but a length shows the fault.
        case early, earlyTrailers
        /// A part of the body, and GOAWAY that leaves out all streams of the connection, or the end of the connection.
        case goAwayBefore, cut
        /// One byte more than the body has.
        case surplus
        /// No response.
        case refused, cutBeforeHead

        var isFault: Bool { ![.right, .trailers, .goAway, .trailersAndGoAway, .laterGoAway].contains(self) }
        var isPartial: Bool { [.reset, .quietReset, .early, .earlyTrailers, .goAwayBefore, .cut].contains(self) }
    }

    struct Answer: Sendable {
        var ending = Ending.right
        var hasLength = true
        /// The fraction of the body that comes, if only a part comes.
        var fraction = 1.0
        /// The body comes in steps of so many bytes.
        var step = 65_536

        /// - Parameter number: the number of the request for this file.
        init(_ seed: UInt64, file: UInt64, number: Int) {
            var random = SeededRandom(seed << 32 | file << 16 | UInt64(number))
            step = Int.random(in: 4096...65_536, using: &random)
            guard number < 6 else { return }  // the server is good in the end
            ending = Ending.allCases.randomElement(using: &random) ?? .right
            hasLength = Bool.random(using: &random)
            fraction = Double.random(in: 0..<1, using: &random)
        }
    }

    /// What happened in a history.
    struct Events: Sendable {
        var (starts, stops, limits, faults, streams, shared, plain) = (0, 0, 0, 0, 0, 0, 0)

        static func + (one: Events, other: Events) -> Events {
            var sum = one
            sum.starts += other.starts
            sum.stops += other.stops
            sum.limits += other.limits
            sum.faults += other.faults
            sum.streams += other.streams
            sum.shared += other.shared
            sum.plain += other.plain
            return sum
        }
    }

    /// The files of one server, and the numbers of requests for each.
    private final class Files: Sendable {
        let seed: UInt64
        let all: [UInt64: [UInt8]]
        private let asked = Mutex<[UInt64: Int]>([:])
        private let faulty = Mutex(0)
        var faults: Int { faulty.withLock { $0 } }

        init(_ seed: UInt64, _ random: inout SeededRandom) {
            self.seed = seed
            var all: [UInt64: [UInt8]] = [:]
            for number in 1...UInt64.random(in: 4...12, using: &random) {
                all[number] = patternBytes(Int.random(in: 1...(Bool.random(using: &random) ? 3000 : 200_000), using: &random), seed: number)
            }
            self.all = all
        }

        /// The answer to the next request for a file.
        func answer(to request: ScriptedServer.Request) -> (Answer, GoodAnswer) {
            let number = UInt64(request.path.dropFirst()) ?? 0
            let count = asked.withLock { asked in
                defer { asked[number, default: 0] += 1 }
                return asked[number, default: 0]
            }
            let answer = Answer(seed, file: number, number: count)
            if answer.ending.isFault { faulty.withLock { $0 += 1 } }
            return (answer, GoodAnswer(all[number] ?? [], to: request))
        }
    }

    private static func answer(_ request: ScriptedServer.Request, _ stream: FrameStream, _ files: Files) {
        let (answer, good) = files.answer(to: request)
        switch answer.ending {
        case .refused:
            stream.send(.reset(.refusedStream))
            return
        case .cutBeforeHead: return stream.cut()
        default: break
        }
        var rest = good.body[...]
        if answer.ending.isPartial { rest = rest.prefix(Int(answer.fraction * Double(rest.count))) }
        if answer.ending == .surplus { rest.append(0xEE) }
        var frames = [good.head(hasLength: answer.hasLength)]
        // As a link brings them that carries a step in 4 ms.
        while rest.count > answer.step {
            guard !stream.isOver, stream.send(frames + [.data(Array(rest.prefix(answer.step)))]) else { return }
            (frames, rest) = ([], rest.dropFirst(answer.step))
            usleep(4000)
        }
        let (last, ended) = (FrameStream.Frame.data(Array(rest)), FrameStream.Frame.data(Array(rest), ends: true))
        switch answer.ending {
        case .right, .early, .surplus, .laterGoAway, .refused, .cutBeforeHead: stream.send(frames + [ended])
        case .trailers, .earlyTrailers: stream.send(frames + [last, .trailers])
        case .goAway: stream.send(frames + [ended, .goAway()])
        case .trailersAndGoAway: stream.send(frames + [last, .trailers, .goAway()])
        case .reset: stream.send(frames + [last, .reset(.internalError)])
        case .quietReset: stream.send(frames + [last, .reset(.noError)])
        case .goAwayBefore: stream.send(frames + [last, .goAway(last: 0)])
        case .cut: stream.send(frames + [last])
        }
        switch answer.ending {
        case .cut: stream.cut()
        case .laterGoAway:
            usleep(4000)
            stream.send(.goAway())
        default: break
        }
    }

    private static func answer(_ request: ScriptedServer.Request, _ reply: Reply, _ files: Files) {
        let (answer, good) = files.answer(to: request)
        if [.refused, .cutBeforeHead].contains(answer.ending) { return reply.reset() }
        let length = answer.hasLength ? "Content-Length: \(good.body.count)" : "Transfer-Encoding: chunked"
        let fields = good.fields.map { "\($0.name): \($0.value)\r\n" }.joined()
        reply.send("HTTP/1.1 \(good.status) Good\r\n\(fields)\(length)\r\n\r\n")
        var rest = good.body[...]
        if answer.ending.isPartial { rest = rest.prefix(Int(answer.fraction * Double(rest.count))) }
        while !rest.isEmpty {
            let step = rest.prefix(answer.step)
            if answer.hasLength { reply.send(step) } else { reply.chunk(step) }
            rest = rest.dropFirst(answer.step)
            usleep(4000)
        }
        if answer.ending.isPartial { return reply.close() }
        if !answer.hasLength { reply.chunk([]) }
    }

    /// When something is done to a transfer, unless it has ended.
    private enum Moment {
        case start, response
        /// So many bytes were received.
        case progress(ByteCount)

        init(_ random: inout SeededRandom) {
            switch UInt8.random(in: 0..<3, using: &random) {
            case 0: self = .start
            case 1: self = .response
            default: self = .progress(ByteCount.random(in: 0...200_000, using: &random))
            }
        }

        func isThere(for number: DownloadNumber, _ events: some Sequence<TransferEvent>) -> Bool {
            if case .start = self { return true }
            return events.contains { event in
                switch (event, self) {
                case (.began(let id, _), .response): id.download == number
                case (.progress(let all), .progress(let bytes)): all.contains { $0.number == number && $0.received >= bytes }
                default: event.isEnd(of: number)
                }
            }
        }
    }

    /// Starts a transfer, and does `deed` at a moment.
    private static func run(
        _ request: TransferRequest, _ fixture: EngineFixture, at moment: Moment, _ deed: @escaping @Sendable (Engine) -> Void
    ) async -> TransferEnd {
        let (number, seen, ends) = (request.number, await fixture.log.events.count, await fixture.log.ends(of: request.number))
        fixture.engine.start(request)
        await fixture.log.wait { [engine = fixture.engine] events in
            guard moment.isThere(for: number, events[seen...]) else { return false }
            // Not after the wait: on a busy machine, the transfer would end before this task runs again.
            deed(engine)
            return true
        }
        return await fixture.log.end(of: number, after: ends)
    }

    /// Runs transfers of a file, each from what the one before has left, until the file is whole.
    private static func drive(_ number: UInt64, _ files: Files, _ server: FrameServer, _ fixture: EngineFixture) async throws -> Events {
        let (seed, file) = (files.seed, files.all[number] ?? [])
        var random = SeededRandom(seed &* 1000 &+ number)
        var request = try fixture.request(server.url("/\(number)"), number: number) {
            ($0.stallTimeout, $0.takeOverAfter) = (.seconds(60), Transfer.takeOverAfter)
        }
        var events = Events()
        while events.starts < 40 {
            events.starts += 1
            request.connections = Bool.random(using: &random) ? 1 : 3
            request.mustShare = Bool.random(using: &random)
            let speeds = [nil, nil, nil, Speed.random(in: 200_000...4_000_000, using: &random)]
            request.speedLimit = speeds.randomElement(using: &random) ?? nil
            let speed = speeds.randomElement(using: &random) ?? nil
            let (isStopped, isLimited) = (events.stops < 3 && UInt8.random(in: 0..<3, using: &random) == 0, Bool.random(using: &random))
            let end = await run(request, fixture, at: Moment(&random)) { engine in
                if isStopped {
                    engine.stop(DownloadNumber(number))
                } else if isLimited {
                    engine.setSpeedLimit(DownloadNumber(number), speed)
                }
            }
            events.limits += isLimited && !isStopped ? 1 : 0
            let part = fixture.part(number) ?? []
            switch end {
            case .complete(let complete):
                let isRight = complete.size == ByteCount(file.count) && part == file
                let place = zip(part, file).enumerated().first { $1.0 != $1.1 }?.offset
                #expect(isRight, "seed \(seed), file \(number): \(complete.size) bytes, wrong from \(place ?? part.count) of \(part.count)")
                return events
            case .failed(let failure, _, let resume):
                #expect(failure.isRetryable, "seed \(seed), file \(number): \(failure)")
                request.resume = resume
            case .stopped(let resume):
                events.stops += 1
                request.resume = resume
            case .nameTaken, .unchanged: Issue.record("seed \(seed), file \(number): \(end)")
            }
            // What is held is right.
            for range in request.resume?.ranges.ranges ?? [] {
                let bytes = Int(range.lowerBound)..<Int(range.upperBound)
                try #require(bytes.upperBound <= part.count && bytes.upperBound <= file.count, "seed \(seed), file \(number): \(bytes)")
                let isRight = part[bytes] == file[bytes]
                #expect(isRight, "seed \(seed), file \(number): \(bytes)")
            }
        }
        Issue.record("seed \(seed), file \(number): not whole after \(events)")
        return events
    }

    /// Changes the total limit after some ends, and removes it before the last ones.
    private static func limit(_ seed: UInt64, _ count: Int, _ fixture: EngineFixture) async {
        var random = SeededRandom(~seed)
        for ends in 1...count {
            await fixture.log.wait { events in events.count { if case .ended = $0 { true } else { false } } >= ends }
            let isLimited = ends < count && UInt8.random(in: 0..<3, using: &random) == 0
            fixture.engine.setTotalSpeedLimit(isLimited ? Speed.random(in: 500_000...8_000_000, using: &random) : nil)
        }
    }

    private static func history(_ seed: UInt64) async throws -> Events {
        var random = SeededRandom(seed)
        let files = Files(seed, &random)
        let mostStreams = [1, 2, UInt32.random(in: 3...20, using: &random), 100].randomElement(using: &random) ?? 100
        let server = await FrameServer(mostStreams: mostStreams) { request, stream in
            answer(request, stream, files)
        } http1: { request, reply in
            answer(request, reply, files)
        }
        let fixture = await EngineFixture(certificateFile: server.authority)
        var all = try await withThrowingTaskGroup(of: Events.self) { group in
            for number in files.all.keys { group.addTask { try await drive(number, files, server, fixture) } }
            group.addTask {
                await limit(seed, files.all.count, fixture)
                return Events()
            }
            return try await group.reduce(Events(), +)
        }
        let streams = server.streams
        (all.streams, all.plain, all.faults) = (streams.count, server.requests.count, files.faults)
        all.shared = streams.count - Set(streams.map(\.connection)).count
        return all
    }

    @Test func `complete each file with its own bytes only, however streams and connections end`() async throws {
        var all = Events()
        // Each history has an nginx of its own, so few of them run at a time.
        for first in stride(from: 1, to: 25, by: 4) as StrideTo<UInt64> {
            all = try await withThrowingTaskGroup(of: Events.self) { group in
                for seed in first..<first + 4 { group.addTask { try await Self.history(seed) } }
                return try await group.reduce(all, +)
            }
        }
        #expect(all.stops >= 10 && all.limits >= 20 && all.faults >= 100, "\(all)")
        #expect(all.streams >= 200 && all.shared >= 50 && all.plain >= 50, "\(all)")
    }
}
