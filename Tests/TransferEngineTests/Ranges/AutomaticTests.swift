import DownloadModel
import EventLoop
import Glibc
import Synchronization
import TestSupport
import Testing

@testable internal import TransferEngine

/// A link that carries `speed` bytes a second, however many connections share the link.
private final class Link: Sendable {
    private let next = Mutex(ContinuousClock.now)
    private let speed: Double
    private let catchUp: Duration

    init(speed: Double = 1_500_000, catchUp: Duration = .milliseconds(50)) { (self.speed, self.catchUp) = (speed, catchUp) }

    /// Waits until the link has carried so many more bytes. After a pause of the machine, it catches up with `catchUp` at most.
    func carry(_ bytes: Int) {
        let wait = next.withLock { next in
            let now = ContinuousClock.now
            next = max(next, now - catchUp) + .seconds(Double(bytes) / speed)
            return next - now
        }
        if wait > .zero { poll(nil, 0, Int32(clamping: wait.wholeMilliseconds)) }
    }
}

/// The numbers of connections in the reports of a transfer, without repetitions.
private func connections(_ events: [TransferEvent], of number: UInt64 = 1) -> [UInt32] {
    var counts: [UInt32] = []
    for case .progress(let all) in events {
        for one in all where one.number.value == number && one.connections != counts.last { counts.append(one.connections) }
    }
    return counts
}

/// Repeats `body` until its value is right, for four minutes. Other work may slow down one of two measurements, for a minute or longer.
///
/// - Returns: the values of all tries.
private func allTries<Value>(_ body: () async throws -> Value, until isRight: (Value) -> Bool) async rethrows -> [Value] {
    let deadline = ContinuousClock.now + .seconds(240)
    var values: [Value] = []
    while true {
        let value = try await body()
        values.append(value)
        if isRight(value) || ContinuousClock.now >= deadline { return values }
    }
}

private func hasEnded(_ events: [TransferEvent]) -> Bool { events.contains { if case .ended = $0 { true } else { false } } }

extension EventLog {
    /// Waits until `bytes` of the only transfer were reported as received, or until it has ended. Its last bytes may be in no report.
    fileprivate func receivedOrEnded(_ bytes: ByteCount) async {
        await wait { events in
            hasEnded(events)
                || events.contains { if case .progress(let all) = $0 { all.contains { $0.received >= bytes } } else { false } }
        }
    }
}

/// The engine tries a second connection after two windows of a second each. Until then, the server has sent some 3 MB.
@Suite(.timeLimit(.minutes(15))) struct `Automatic connections to a server with a slow link` {
    static let file = patternBytes(24_000_000)

    /// Serves the first `size` bytes of the file as fast as `link` carries them, and the rest at once when `end` opens.
    private static func serve(
        _ request: ScriptedServer.Request, _ reply: Reply, over link: Link, until end: Gate, size: Int = 24_000_000,
        entityTag: String = "\"v1\""
    ) {
        let (first, last) = (request.range?.first ?? 0, request.range?.last ?? size - 1)
        let fields: KeyValuePairs = [
            "ETag": entityTag, "Accept-Ranges": "bytes", "Content-Range": "bytes \(first)-\(last)/\(size)",
        ]
        reply.head(request.range == nil ? 200 : 206, fields, length: last - first + 1)
        for start in stride(from: first, through: last, by: 30_000) {
            if !end.isOpen { link.carry(30_000) }
            guard reply.send(file[start..<min(start + 30_000, last + 1)]) else { return }
        }
    }

    /// Runs a transfer from a server whose connections share one link, or have a link each.
    ///
    /// - Returns: the numbers of connections, one after another.
    private func counts(isShared: Bool) async throws -> [UInt32] {
        // On a busy machine, the threads of the server run late. A link that caught up with less would carry more for two threads than for
        // one. A link that caught up with more could seem a quarter faster in one second than in another.
        let (shared, end) = (Link(catchUp: .milliseconds(100)), Gate())
        defer { end.open() }
        let server = ScriptedServer { request, reply in
            Self.serve(request, reply, over: isShared ? shared : Link(), until: end)
        }
        let fixture = await EngineFixture()
        let request = try fixture.request(server.url("/file.bin")) { $0.connections = 0 }
        fixture.engine.start(request)
        await fixture.log.wait { events in
            let counts = connections(events)
            return hasEnded(events) || (isShared ? counts.count > 1 && counts.last != 2 : counts.last ?? 0 >= 4)
        }
        end.open()
        #expect(await fixture.log.end(of: request.number).complete?.size == 24_000_000 && fixture.part == Self.file)
        return connections(await fixture.log.events)
    }

    @Test func `are one again if a second one does not make the transfer faster`() async throws {
        let tries = try await allTries {
            try await counts(isShared: true)
        } until: {
            $0 == [1, 2, 1]
        }
        #expect(tries.last == [1, 2, 1], "\(tries)")
    }

    /// The engine tries four only after the second one has made the transfer faster.
    @Test func `are more as long as each doubling makes the transfer faster`() async throws {
        let tries = try await allTries {
            try await counts(isShared: false)
        } until: {
            $0.max() ?? 0 >= 4
        }
        #expect(tries.last?.max() ?? 0 >= 4, "\(tries)")
    }

    /// Runs two transfers from a server whose connections share one link.
    ///
    /// - Returns: the numbers of connections of each, one after another, until one of them has undone its second connection or has tried
    ///   more than two.
    private func countsOfTwo() async throws -> [[UInt32]] {
        let (link, end) = (Link(), Gate())
        defer { end.open() }
        let server = ScriptedServer { request, reply in Self.serve(request, reply, over: link, until: end) }
        let fixture = await EngineFixture()
        let requests = try [1, 2].map { number in
            try fixture.request(server.url("/file.bin"), number: number) { $0.connections = 0 }
        }
        for request in requests { fixture.engine.start(request) }
        await fixture.log.wait { events in
            let counts = [1, 2].map { connections(events, of: $0) }
            return hasEnded(events) || counts.contains { $0.count > 1 && $0.last == 1 || $0.last ?? 0 > 2 }
        }
        let events = await fixture.log.events
        end.open()
        for request in requests { #expect(await fixture.log.end(of: request.number).complete?.size == 24_000_000) }
        #expect(fixture.part(1) == Self.file && fixture.part(2) == Self.file)
        return [1, 2].map { connections(events, of: $0) }
    }

    /// With a second connection, a transfer gets two thirds of the link instead of half of it. That is a gain of a third for this transfer,
    /// which would suffice, and none for both transfers together.
    @Test func `are one again if a second one only takes bytes from another transfer`() async throws {
        let tries = try await allTries {
            try await countsOfTwo()
        } until: {
            $0.contains([1, 2, 1])
        }
        #expect(tries.last?.contains([1, 2, 1]) == true, "\(tries)")
    }

    /// No connection is added while less than 8 MiB are missing. At 4 MB, only this rule forbids a second one: because the link is slow,
    /// enough bytes to divide are missing after two windows, and after three. At 3 MB, too few would be missing.
    @Test(arguments: [4_000_000, 8 << 20 - 1]) func `are one for a small file`(size: Int) async throws {
        let end = Gate()
        defer { end.open() }
        let server = ScriptedServer { request, reply in
            Self.serve(request, reply, over: Link(speed: 500_000), until: end, size: size)
        }
        let fixture = await EngineFixture()
        let request = try fixture.request(server.url("/file.bin")) { $0.connections = 0 }
        fixture.engine.start(request)
        // After four seconds, three windows are over.
        await fixture.log.receivedOrEnded(2_000_000)
        end.open()
        #expect(await fixture.log.end(of: request.number).complete?.size == ByteCount(size) && fixture.part == Array(Self.file[..<size]))
        #expect(server.requests.count == 1)
        #expect(await fixture.log.asked.isEmpty)
        #expect(connections(await fixture.log.events) == [1])
    }

    @Test func `are one without a strong validator or a checksum`() async throws {
        let end = Gate()
        defer { end.open() }
        let server = ScriptedServer { request, reply in
            Self.serve(request, reply, over: Link(), until: end, entityTag: "W/\"v1\"")
        }
        let fixture = await EngineFixture()
        let request = try fixture.request(server.url("/file.bin")) { $0.connections = 0 }
        fixture.engine.start(request)
        // With a strong validator, this file has several connections by now, as the other tests show.
        await fixture.log.receivedOrEnded(8_000_000)
        end.open()
        #expect(await fixture.log.end(of: request.number).complete?.size == 24_000_000 && fixture.part == Self.file)
        #expect(server.requests.map { $0.field("Range") } == [nil])
        #expect(connections(await fixture.log.events) == [1])
    }

    /// Runs a transfer from a server that ignores the range of the second request.
    ///
    /// - Returns: the ranges of the requests.
    private func rangesIfIgnored() async throws -> [String?] {
        let end = Gate()
        defer { end.open() }
        let server = ScriptedServer { request, reply in
            guard request.number > 0 else { return Self.serve(request, reply, over: Link(), until: end) }
            reply.respond(200, ["ETag": "\"v1\""], body: Self.file)
        }
        let fixture = await EngineFixture()
        let request = try fixture.request(server.url("/file.bin")) { $0.connections = 0 }
        fixture.engine.start(request)
        await fixture.log.wait { events in hasEnded(events) || events.contains { if case .over = $0 { true } else { false } } }
        // For two seconds more, the engine has many occasions to ask again.
        await fixture.log.receivedOrEnded(await fixture.log.received + 3_000_000)
        end.open()
        #expect(await fixture.log.end(of: request.number).complete?.size == 24_000_000 && fixture.part == Self.file)
        return server.requests.map { $0.field("Range") }
    }

    /// If a permit comes after the end of the trial, the request does not go out. So there are several tries.
    @Test func `are one for the rest of the transfer if the server has ignored a range`() async throws {
        let tries = try await allTries {
            try await rangesIfIgnored()
        } until: {
            $0.count >= 2
        }
        #expect(tries.last?.map { $0 == nil } == [true, false], "\(tries)")
    }
}
