internal import DBus
internal import Glibc
internal import Synchronization
internal import TestSupport

/// How the download of a case is fetched. Each way has rows of its own in the tables.
enum Way: String, CaseIterable, Sendable {
    /// Over one connection, unless the service tries more.
    case one = ""
    /// Over eight connections to one server, whose strong validator proves that the parts belong together.
    case several = ", 8 connections"
    /// Over eight connections to a server and two mirrors of unlike speed, under a checksum: the file has bytes of all three.
    case mirrors = ", 8 connections and 2 mirrors"

    static let connections = 8
}

/// The servers of a case's file: one, or one and two mirrors.
///
/// On one connection, they serve the file as `Reply.serve` does. On several, the responses trickle until eight are being sent at the same
/// time. So the download has its eight connections before the rest comes, on a machine of any speed, and a fault meets all of them.
final class CaseServers: Sendable {
    /// What happens to the first responses.
    enum Middle: Sendable {
        case nothing
        /// They wait for the gate after the bytes of `early`, and are cut.
        case cut(Gate)
        /// They wait for the gate after the bytes of `early`, and go on.
        case wait(Gate)
        /// They wait for the gate before their heads, and are cut behind them.
        case cutHead(Gate)

        fileprivate var gate: Gate? {
            switch self {
            case .nothing: nil
            case .cut(let gate), .wait(let gate), .cutHead(let gate): gate
            }
        }
        fileprivate var isCut: Bool { if case .wait = self { false } else { true } }
        fileprivate var isBeforeHead: Bool { if case .cutHead = self { true } else { false } }
    }

    let way: Way
    /// So many bytes come before all responses wait.
    let early: Int
    private let body: [UInt8]
    private let name: String
    private let servers: [ScriptedServer]
    private let crowd = Crowd()

    /// - Parameters:
    ///   - early: the bytes that the first response sends before it waits, over one connection.
    ///   - again: with several connections, requests between the opening of the middle's gate and that of this one are cut at once.
    ///   - wrong: the bytes of the first mirror; nil: those of the file.
    ///   - isCacheable: with several connections, a request for a newer file than the copy of the client is answered by 304.
    init(
        _ body: [UInt8], _ way: Way, name: String = "a.bin", early: Int = 1_500_000, middle: Middle = .nothing, again: Gate? = nil,
        wrong: [UInt8]? = nil, isCacheable: Bool = false
    ) {
        (self.body, self.way, self.name) = (body, way, name)
        // One of the eight may have a short part, so its share does not count.
        self.early = way == .one ? early : (Way.connections - 1) * Response.share
        let crowd = crowd
        servers = (0..<(way == .mirrors ? 3 : 1)).map { index in
            ScriptedServer { request, reply in
                let response = Response(
                    body: index == 1 ? wrong ?? body : body, index: index, middle: middle, again: again, isCacheable: isCacheable,
                    crowd: crowd)
                if way == .one { response.sendAlone(request, reply, early: early) } else { response.send(request, reply) }
            }
        }
    }

    var url: String { servers[0].url("/\(name)") }

    /// The requests of all servers.
    var requestCount: Int { servers.reduce(0) { $0 + $1.requests.count } }

    /// The bytes that the daemons of a place have received from all servers, without heads.
    func received(in place: Place) -> Int { servers.reduce(0) { $0 + place.received(from: $1.port) - $1.requests.count * 400 } }

    /// Whether the first request has come.
    func waitForRequest() async -> Bool { await servers[0].waitForRequests(1) }

    /// The options that make a download fetch the file in this way.
    func options(_ place: Place) async throws -> [String: Variant] {
        guard way != .one else { return [:] }
        var options: [String: Variant] = ["connections": .uint32(UInt32(Way.connections))]
        if way == .mirrors {
            options["mirrors"] = .strings(servers.dropFirst().map { $0.url("/\(name)") })
            options["checksum"] = .string("sha256:\(try await Bodies.digest(body, place))")
        }
        return options
    }

    /// Whether eight responses have been sent at the same time.
    var areAllSent: Bool { crowd.most >= Way.connections }

    /// Forgets the responses so far. The next responses trickle again until eight of them are sent at the same time. Call this while no
    /// daemon receives anything.
    func forgetResponses() { crowd.empty() }

    /// The download had all its connections at the same time, and bytes of all sources. Otherwise the case has not tested its way.
    func expectSeveral(_ verdict: inout Verdict) {
        guard way != .one else { return }
        verdict.expect(crowd.most >= Way.connections, "at most \(crowd.most) responses were sent at the same time")
        verdict.expect(crowd.sources == servers.count, "only \(crowd.sources) of \(servers.count) sources brought bytes")
    }
}

/// The answer of one server to one request.
private struct Response {
    let body: [UInt8]
    let index: Int
    let middle: CaseServers.Middle
    let again: Gate?
    let isCacheable: Bool
    let crowd: Crowd

    /// The first mirror has the validator of the server, which proves nothing there.
    private var tag: String { ["\"v1\"", "\"v1\"", "\"other\""][index] }
    /// Each of several responses sends this much before it waits. A part of a file has at least 64 KiB.
    static let share = 60_000
    /// The pause after each 40 kB, in milliseconds: the first mirror has a quarter of the server's speed, and the second more than both.
    private static let pauses: [Int32] = [2, 8, 0]

    func sendAlone(_ request: ScriptedServer.Request, _ reply: TestSupport.Reply, early: Int) {
        guard let gate = middle.gate, request.number == 0 else { return reply.serve(body, for: request, entityTag: tag) }
        if middle.isBeforeHead { gate.wait() }
        reply.head(200, ["ETag": tag, "Accept-Ranges": "bytes"], length: body.count)
        if middle.isBeforeHead { return reply.close() }
        reply.send(body[..<early])
        gate.wait()
        if middle.isCut { return reply.close() }
        reply.send(body[early...])
    }

    func send(_ request: ScriptedServer.Request, _ reply: TestSupport.Reply) {
        if let gate = middle.gate {
            let isFirst = !gate.isOpen
            if !isFirst, again?.isOpen == false { return reply.close() }
            if middle.isBeforeHead, isFirst {
                gate.wait()
                reply.head(200, ["ETag": tag, "Accept-Ranges": "bytes"], length: body.count)
                return reply.close()
            }
        }
        if isCacheable, request.field("If-None-Match") == tag { return reply.head(304, ["ETag": tag]) }
        let condition = request.field("If-Range")
        let asked = condition == nil || condition == tag ? request.range : nil
        let start = asked?.first ?? 0
        guard start < body.count else { return reply.serve(body, for: request, entityTag: tag) }
        let end = min(body.count, (asked?.last ?? body.count - 1) + 1)
        if asked == nil {
            reply.head(200, ["ETag": tag, "Accept-Ranges": "bytes"], length: body.count)
        } else {
            reply.head(206, ["ETag": tag, "Content-Range": "bytes \(start)-\(end - 1)/\(body.count)"], length: end - start)
        }
        let entered = crowd.enter()
        defer { crowd.leave(entered) }
        sendBody(start..<end, reply, entered)
    }

    /// Sends a part of the body: a trickle, the share before the gate, and the rest.
    private func sendBody(_ range: Range<Int>, _ reply: TestSupport.Reply, _ entered: Int) {
        var place = range.lowerBound
        func send(_ count: Int, upTo end: Int) -> Bool {
            let next = min(end, place + count)
            guard reply.send(body[place..<next]) else { return false }
            place = next
            crowd.brought(by: index, entered)
            return true
        }
        let begun = ContinuousClock.now
        while place < range.upperBound, crowd.mayGrow(since: begun) {
            // While the disk of the service hangs, its kernel still accepts bytes. So the server sends its share of the bytes, and then one
            // byte at a time, which keeps the connection alive.
            guard send(place - range.lowerBound < Self.share ? 4_000 : 1, upTo: range.upperBound) else { return }
            poll(nil, 0, 50)
        }
        if let gate = middle.gate, !middle.isBeforeHead, !gate.isOpen {
            let end = min(range.upperBound, range.lowerBound + Self.share)
            if place < end { guard send(end - place, upTo: end) else { return } }
            gate.wait()
            if middle.isCut { return reply.close() }
        }
        while place < range.upperBound {
            guard send(40_000, upTo: range.upperBound) else { return }
            poll(nil, 0, Self.pauses[index])
        }
    }
}

/// The responses of a case that are being sent. Used by the threads of its servers.
private final class Crowd: Sendable {
    private struct Counts {
        var now = 0
        var peak = 0
        /// The servers that have sent bytes of a body.
        var bringers: Set<Int> = []
        /// How often the crowd was emptied. The responses to a killed daemon may still wait for a gate; they no longer count.
        var era = 0
    }
    private let counts = Mutex(Counts())

    /// Returns what `leave` and `brought` need.
    func enter() -> Int {
        counts.withLock { counts in
            counts.now += 1
            counts.peak = max(counts.peak, counts.now)
            return counts.era
        }
    }
    func leave(_ entered: Int) { counts.withLock { if $0.era == entered { $0.now -= 1 } } }
    func brought(by index: Int, _ entered: Int) { counts.withLock { if $0.era == entered { $0.bringers.insert(index) } } }
    func empty() { counts.withLock { $0 = Counts(era: $0.era + 1) } }

    /// The most responses at the same time so far.
    var most: Int { counts.withLock { $0.peak } }
    var sources: Int { counts.withLock { $0.bringers.count } }

    /// Whether a response that began at `begun` waits for others: until all connections have been there once. Later, so that a download
    /// which resumes has several connections too, for 0.3 s at most, until a second response is sent.
    func mayGrow(since begun: ContinuousClock.Instant) -> Bool {
        guard most >= Way.connections else { return true }
        return counts.withLock { $0.now } < 2 && ContinuousClock.now - begun < .milliseconds(300)
    }
}
