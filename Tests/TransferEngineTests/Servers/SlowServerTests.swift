import DownloadModel
import EventLoop
import Glibc
import TestSupport
import Testing

@testable internal import TransferEngine

@Suite(.timeLimit(.minutes(5))) struct `A slow server` {
    /// Sends `text` repeatedly, each time after `milliseconds`, until the client disconnects. The pause is the simulated fault, on the
    /// server's own thread. The test itself does not wait by it.
    private static func drip(_ reply: Reply, _ text: String, every milliseconds: UInt32) {
        while reply.send(text) { usleep(milliseconds * 1000) }
    }

    @Test(arguments: ["X", "X: y\r\n"]) func `that never ends its head stalls, however often a byte comes`(text: String) async throws {
        let server = ScriptedServer { _, reply in
            reply.send("HTTP/1.1 200 OK\r\n")
            Self.drip(reply, text, every: 50)
        }
        let fixture = await EngineFixture()
        let end = try await fixture.run(server.url("/x")) { $0.stallTimeout = .milliseconds(6500) }
        #expect(end.failure?.name == .timeout && end.failure?.isRetryable == true)
        #expect(end.failure?.message == "127.0.0.1 did not answer within 6.5 s.")
    }

    @Test func `that sends interim responses for ever stalls, too`() async throws {
        let server = ScriptedServer { _, reply in Self.drip(reply, "HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\n", every: 50) }
        let fixture = await EngineFixture()
        let end = try await fixture.run(server.url("/x")) { $0.stallTimeout = .milliseconds(6500) }
        #expect(end.failure?.name == .timeout)
    }

    /// The server has time for its head and the first bytes, however busy the machine is.
    @Test func `that trickles stalls, and the received bytes count`() async throws {
        let server = ScriptedServer { _, reply in
            reply.head(200, ["ETag": "\"v1\""], length: 1_000_000)
            reply.send("12345")
            Self.drip(reply, "x", every: 2500)
        }
        let fixture = await EngineFixture()
        let end = try await fixture.run(server.url("/x")) { $0.stallTimeout = .seconds(40) }
        #expect(end.failure?.name == .timeout && end.resume.map { $0.written >= 5 } == true)
    }

    @Test func `that trickles an error or a redirect delays nobody beyond the stall timeout`() async throws {
        let server = ScriptedServer { request, reply in
            reply.head(request.path == "/gone" ? 404 : 302, ["Location": "/x"], length: 60_000)
            Self.drip(reply, "x", every: 50)
        }
        let fixture = await EngineFixture()
        // The server has time for its head, however busy the machine is: without it, there would be no status.
        let gone = try await fixture.run(server.url("/gone")) { $0.stallTimeout = .seconds(40) }
        #expect(gone.failure?.httpStatus == 404)
        let moved = try await fixture.run(server.url("/moved")) { $0.stallTimeout = .seconds(40) }
        #expect(moved.failure?.name == .tooManyRedirects)  // a redirect is followed without its body
    }

    /// A server asks for user and password by a 401, and refuses wrong ones by another 401. It may also want a login of another kind.
    @Test(arguments: [(nil, "Basic realm=\"r\""), ("wrong", "Basic realm=\"r\""), ("right", "Bearer")] as [(String?, String)])
    func `that never sends the body of a 401 has refused the request`(password: String?, kind: String) async throws {
        let gate = Gate()
        defer { gate.open() }
        let server = ScriptedServer { request, reply in
            let login: KeyValuePairs = ["WWW-Authenticate": kind]
            if password == "wrong", request.field("Authorization") == nil { return reply.respond(401, login) }
            reply.head(401, login, length: 500)
            gate.wait()
        }
        let fixture = await EngineFixture()
        // The server has time for its head, however busy the machine is: without it, there would be no status.
        let end = try await fixture.run(server.url("/x")) {
            ($0.username, $0.password, $0.stallTimeout) = (password.map { _ in "me" }, password, .seconds(40))
        }
        #expect(end.failure?.name == .httpStatus && end.failure?.httpStatus == 401, "\(end)")
        #expect(server.requests.count == (password == "wrong" ? 2 : 1))
    }
}

@Suite struct `The watch over a server` {
    private let start = SuspendingClock.now

    /// Whether the segment is stalled, for ticks of (seconds, body bytes since the previous tick, whether we hold back).
    private func stalls(_ ticks: [(at: Double, bytes: Int, isHolding: Bool)], timeout: Duration = .seconds(30)) -> Bool {
        var liveness = Liveness()
        liveness.restart(start)
        return ticks.contains { tick in
            liveness.count(tick.bytes)
            return liveness.isStalled(start + .seconds(tick.at), timeout: timeout, isHolding: tick.isHolding)
        }
    }

    @Test func `ends after the timeout in silence, not before`() {
        #expect(!stalls([(10, 0, false), (30, 0, false)]))
        #expect(stalls([(30.1, 0, false)]))
        #expect(!stalls([(0.1, 500, false), (30, 0, false)]))
        #expect(stalls([(0.1, 500, false), (30.2, 0, false)]))
    }

    @Test func `asks for a byte a second on average`() {
        typealias Ticks = [(at: Double, bytes: Int, isHolding: Bool)]
        let (steady, rare): (Ticks, Ticks) = ((1...200).map { (Double($0), 1, false) }, (1...20).map { (Double($0) * 29, 30, false) })
        let slow: Ticks = (1...20).map { (Double($0) * 2, 1, false) }
        let bursts: Ticks = (1...400).map { (Double($0), $0 % 20 == 0 ? 19 : 0, false) }
        #expect(!stalls(steady) && !stalls(rare))
        #expect(stalls(slow))
        #expect(stalls(bursts))
    }

    @Test func `does not count bytes that we hold back`() {
        #expect(!stalls((1...200).map { (Double($0), 0, true) }))
        #expect(!stalls([(29, 0, true), (58, 0, true), (87, 0, false)]))
        #expect(stalls([(29, 0, true), (60, 0, false)]))
    }
}
