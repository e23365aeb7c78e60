internal import DownloadModel
internal import Testing

@testable import Scheduling

/// A gate at which requests of a few applications come and go.
private struct Desk {
    var gate: HostGate
    var now = WallTime(microseconds: 1_000_000_000_000_000)
    private var last: UInt64 = 0

    /// - Parameter rules: by host.
    init(_ rules: [String: HostRule] = [:]) throws {
        var settings = Settings()
        for (host, rule) in rules { try settings.hostRules.set(host, rule) }
        gate = HostGate(settings)
    }

    func request(_ host: String, app: String = "", interval: Duration = .zero) -> PlacedRequest {
        PlacedRequest(
            host: host, origin: "http://\(host):80", app: app, requestInterval: interval, startedAt: now, slotSince: now, phase: .underWay)
    }

    /// - Returns: the id of the request, and the rows to save before it goes out.
    mutating func begin(_ request: PlacedRequest, isUrgent: Bool = false) -> (id: RequestID, saves: [StoreChange]) {
        last += 1
        let id = RequestID(DownloadNumber(last), 1)
        var request = request
        request.isUrgent = isUrgent
        return (id, gate.begin(request, id, now: now))
    }

    mutating func opens(_ request: PlacedRequest, isUrgent: Bool = false) -> WallTime? {
        let host = gate.load(of: request.host)
        var request = request
        request.isUrgent = isUrgent
        return gate.opens(host, request, now: now)
    }
}

private func rule(_ interval: Duration) -> HostRule { HostRule(requestInterval: interval) }

@Suite struct `The gate of the hosts` {
    /// An interval is kept 1/64 longer, so that two requests do not arrive closer together.
    private func after(_ interval: Duration) -> Duration { interval + interval / 64 }

    @Test func `counts an interval from the moment at which the last request went out, and saves both`() throws {
        var desk = try Desk(["h": rule(.seconds(1))])
        let (id, saves) = desk.begin(desk.request("h"))
        #expect(saves == [.requested(HostRequest(host: "h", requestInterval: .zero, at: desk.now, isSent: false))])
        #expect(desk.gate.requests[id]?.isPaced == true)
        #expect(desk.opens(desk.request("h")) == nil, "nobody knows when it went out")
        let sent = desk.now + .milliseconds(300)
        desk.now = desk.now + .milliseconds(400)
        let rows = desk.gate.sent(id, at: sent, now: desk.now)
        #expect(rows == [.requested(HostRequest(host: "h", requestInterval: .zero, at: sent, isSent: true))])
        #expect(desk.opens(desk.request("h")) == sent + after(.seconds(1)))
        #expect(desk.opens(desk.request("other")) == desk.now)
    }

    @Test func `opens again for a request that left before it went out`() throws {
        var desk = try Desk(["h": rule(.seconds(1))])
        let (id, _) = desk.begin(desk.request("h"))
        desk.gate.leave(id)
        #expect(desk.opens(desk.request("h")) == desk.now + after(.seconds(1)))
        desk.gate.forget(id)
        #expect(desk.gate.requests.isEmpty)
    }

    @Test func `keeps the longer of the host's interval and the download's own`() throws {
        var desk = try Desk(["h": rule(.seconds(1))])
        let own = desk.request("h", interval: .seconds(5))
        let (id, saves) = desk.begin(own)
        #expect(saves.count == 2)
        _ = desk.gate.sent(id, at: desk.now, now: desk.now)
        #expect(desk.opens(own) == desk.now + after(.seconds(5)))
        #expect(desk.opens(desk.request("h")) == desk.now + after(.seconds(1)))
    }

    @Test func `counts requests at a host, and those of them that are idle`() throws {
        var desk = try Desk()
        let (first, _) = desk.begin(desk.request("h"))
        let second = RequestID(DownloadNumber(77), 3)
        desk.gate.wait(
            PlacedRequest(
                host: "h", origin: "http://h:80", app: "", requestInterval: .zero, startedAt: desk.now, slotSince: desk.now, phase: .waiting
            ), second)
        let host = desk.gate.load(of: "h")
        #expect((host.active, desk.gate.waiting, desk.gate.idle) == (1, 1, 1))
        desk.gate.stalled(first, true, now: desk.now)
        desk.gate.stalled(second, true, now: desk.now)
        #expect((host.silent, desk.gate.waiting, desk.gate.idle) == (1, 1, 2), "a waiting request is not silent")
        desk.gate.leave(first)
        desk.gate.leave(second)
        #expect((host.active, host.silent, desk.gate.waiting, desk.gate.idle) == (0, 0, 0, 0))
        #expect(Array(desk.gate.placed).isEmpty && desk.gate.requests.count == 2, "an answer may still come")
    }

    /// RFC 9110, section 10.2.3; the application that was refused waits as long as the server said, others five minutes at most.
    @Test(
        arguments: [
            (nil, Duration.zero, Duration.zero), (.zero, .zero, .zero), (.seconds(100), .seconds(100), .seconds(100)),
            (.seconds(299), .seconds(299), .seconds(299)), (.seconds(301), .seconds(301), .seconds(300)),
            (.seconds(86_400), .seconds(86_400), .seconds(300)),
        ] as [(Duration?, Duration, Duration)])
    func `closes an origin for as long as Retry-After says`(retryAfter: Duration?, own: Duration, others: Duration) throws {
        for status: UInt32 in [429, 503] {
            var desk = try Desk()
            let (id, _) = desk.begin(desk.request("h", app: "A"))
            desk.gate.refused(id, status, retryAfter, now: desk.now)
            // Without a pause, the origin has an interval of one second after a refusal.
            let pace = after(.seconds(1))
            #expect(desk.opens(desk.request("h", app: "A")) == desk.now + max(own, pace))
            #expect(desk.opens(desk.request("h", app: "B")) == desk.now + max(others, pace))
            #expect(desk.opens(desk.request("h", app: "A"), isUrgent: true) == desk.now, "a person wants it now")
            #expect(desk.opens(desk.request("other", app: "A")) == desk.now)
            #expect(desk.gate.origin(of: id) == "http://h:80")
            desk.gate.reset("h", now: desk.now)
            #expect(desk.opens(desk.request("h", app: "A")) == desk.now)
        }
    }

    @Test func `counts requests under way at their host of now when a rule groups hosts`() throws {
        var desk = try Desk()
        let ids = ["a.example", "b.example"].map { desk.begin(desk.request($0)).id }
        var settings = Settings()
        try settings.hostRules.set("example", rule(.seconds(2)))
        let (saves, regroups) = desk.gate.set(settings, now: desk.now)
        #expect(regroups && saves.isEmpty)
        let host = desk.gate.load(of: "a.example")
        #expect(host === desk.gate.load(of: "b.example") && host.active == 2)
        #expect(desk.opens(desk.request("c.example")) == desk.now + after(.seconds(2)), "the interval begins now")
        for id in ids { desk.gate.leave(id) }
        #expect(host.active == 0)
        #expect(desk.gate.set(settings, now: desk.now).saves.isEmpty)
    }

    @Test func `moves with the clock`() throws {
        var desk = try Desk(["h": rule(.seconds(60))])
        let (id, _) = desk.begin(desk.request("h"))
        _ = desk.gate.sent(id, at: desk.now, now: desk.now)
        let delta = Duration.seconds(-86_400)
        desk.now = desk.now + delta
        let rows = desk.gate.shift(by: delta)
        #expect(rows == [.requested(HostRequest(host: "h", requestInterval: .zero, at: desk.now, isSent: true))])
        #expect(desk.opens(desk.request("h")) == desk.now + after(.seconds(60)))
    }

    @Test func `remembers what earlier processes sent, until the host is used`() throws {
        var desk = try Desk(["h": rule(.seconds(60))])
        let request = HostRequest(host: "h", requestInterval: .zero, at: desk.now, isSent: true)
        desk.gate.restore([request])
        #expect(desk.gate.lastRequests() == [request])
        #expect(desk.opens(desk.request("h")) == desk.now + after(.seconds(60)))
        #expect(desk.gate.lastRequests() == [request])
        // A host is forgotten once nothing needs to be known about it.
        let host = desk.gate.load(of: "h")
        #expect(desk.gate.forgetIfIdle(host, now: desk.now) == nil)
        #expect(
            desk.gate.forgetIfIdle(host, now: desk.now + .seconds(61)) == [.requestOver(host: "h", requestInterval: .zero)])
        #expect(desk.gate.hosts.count == 0 && desk.gate.lastRequests().isEmpty)
    }
}
