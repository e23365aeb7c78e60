internal import DownloadModel
internal import Testing

@testable import Scheduling

/// A gate at which requests of a few applications come and go.
private struct Gateway {
    var gate: HostGate
    var now = WallTime(microseconds: 1_000_000_000_000_000)
    private var last: UInt64 = 0

    /// - Parameter rules: by host.
    init(_ rules: [String: HostRule] = [:]) throws {
        var settings = Settings()
        for (host, rule) in rules { try settings.hostRules.set(host, rule) }
        gate = HostGate(settings)
    }

    func request(_ host: String, app: String = "", interval: Duration = .zero, isPrivate: Bool = false) -> PlacedRequest {
        PlacedRequest(
            host: host, origin: "http://\(host):80", app: app, requestInterval: interval, isPrivate: isPrivate, startedAt: now,
            phase: .underWay)
    }

    /// - Returns: the id of the request, and the rows to save before it goes out.
    mutating func begin(_ request: PlacedRequest, isUrgent: Bool = false) -> (id: RequestID, saves: [StoreChange]) {
        last += 1
        let id = RequestID(DownloadNumber(last), 1)
        var request = request
        request.isUrgent = isUrgent
        return (id, gate.takeSlot(request, id, now: now))
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
        var gateway = try Gateway(["h": rule(.seconds(1))])
        let (id, saves) = gateway.begin(gateway.request("h"))
        #expect(saves == [.requested(HostRequest(host: "h", requestInterval: .zero, at: gateway.now, isSent: false))])
        #expect(gateway.gate.requests[id]?.isPaced == true)
        #expect(gateway.opens(gateway.request("h")) == nil, "nobody knows when it went out")
        let sent = gateway.now + .milliseconds(300)
        gateway.now = gateway.now + .milliseconds(400)
        let rows = gateway.gate.sent(id, at: sent, now: gateway.now)
        #expect(rows == [.requested(HostRequest(host: "h", requestInterval: .zero, at: sent, isSent: true))])
        #expect(gateway.opens(gateway.request("h")) == sent + after(.seconds(1)))
        #expect(gateway.opens(gateway.request("other")) == gateway.now)
    }

    @Test func `opens again for a request that left before it went out`() throws {
        var gateway = try Gateway(["h": rule(.seconds(1))])
        let (id, _) = gateway.begin(gateway.request("h"))
        gateway.gate.leave(id)
        #expect(gateway.opens(gateway.request("h")) == gateway.now + after(.seconds(1)))
        gateway.gate.forget(id)
        #expect(gateway.gate.requests.isEmpty)
    }

    @Test func `keeps the longer of the host's interval and the download's own`() throws {
        var gateway = try Gateway(["h": rule(.seconds(1))])
        let own = gateway.request("h", interval: .seconds(5))
        let (id, saves) = gateway.begin(own)
        #expect(saves.count == 2)
        _ = gateway.gate.sent(id, at: gateway.now, now: gateway.now)
        #expect(gateway.opens(own) == gateway.now + after(.seconds(5)))
        #expect(gateway.opens(gateway.request("h")) == gateway.now + after(.seconds(1)))
    }

    @Test func `counts requests at a host, and those of them that are idle`() throws {
        var gateway = try Gateway()
        let (first, _) = gateway.begin(gateway.request("h"))
        let (second, _) = gateway.begin(gateway.request("other"))
        gateway.gate.redirect(second, to: "h", origin: "http://h:80", question: 1, now: gateway.now)
        let host = gateway.gate.load(of: "h")
        #expect((host.active, gateway.gate.slots.waiting, gateway.gate.slots.idle) == (1, 1, 1))
        gateway.gate.stalled(first, true, now: gateway.now)
        gateway.gate.stalled(second, true, now: gateway.now)
        #expect((host.silent, gateway.gate.slots.waiting, gateway.gate.slots.idle) == (1, 1, 2), "a waiting request is not silent")
        gateway.gate.leave(first)
        gateway.gate.leave(second)
        #expect((host.active, host.silent, gateway.gate.slots.waiting, gateway.gate.slots.idle) == (0, 0, 0, 0))
        #expect(Array(gateway.gate.placed).isEmpty && gateway.gate.requests.count == 2, "an answer may still come")
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
            var gateway = try Gateway()
            let (id, _) = gateway.begin(gateway.request("h", app: "A"))
            gateway.gate.refused(id, status, retryAfter, now: gateway.now)
            // Without a pause, the origin has an interval of one second after a refusal.
            let pace = after(.seconds(1))
            #expect(gateway.opens(gateway.request("h", app: "A")) == gateway.now + max(own, pace))
            #expect(gateway.opens(gateway.request("h", app: "B")) == gateway.now + max(others, pace))
            #expect(gateway.opens(gateway.request("h", app: "A"), isUrgent: true) == gateway.now, "a person wants it now")
            #expect(gateway.opens(gateway.request("other", app: "A")) == gateway.now)
            #expect(gateway.gate.origin(of: id) == "http://h:80")
            gateway.gate.reset("h")
            #expect(gateway.opens(gateway.request("h", app: "A")) == gateway.now)
        }
    }

    @Test func `counts requests under way at their host of now when a rule groups hosts`() throws {
        var gateway = try Gateway()
        let ids = ["a.example", "b.example"].map { gateway.begin(gateway.request($0)).id }
        var settings = Settings()
        try settings.hostRules.set("example", rule(.seconds(2)))
        let (saves, regroups) = gateway.gate.set(settings, now: gateway.now)
        #expect(regroups && saves.isEmpty)
        let host = gateway.gate.load(of: "a.example")
        #expect(host === gateway.gate.load(of: "b.example") && host.active == 2)
        #expect(gateway.opens(gateway.request("c.example")) == gateway.now + after(.seconds(2)), "the interval begins now")
        for id in ids { gateway.gate.leave(id) }
        #expect(host.active == 0)
        #expect(gateway.gate.set(settings, now: gateway.now).saves.isEmpty)
    }

    @Test func `saves no request of a private download, and keeps its interval all the same`() throws {
        var gateway = try Gateway([HostRules.others: rule(.seconds(60))])
        let secret = gateway.request("h", interval: .seconds(300), isPrivate: true)
        let (id, saves) = gateway.begin(secret)
        #expect(saves == [] && gateway.gate.lastRequests() == [])
        #expect(gateway.opens(gateway.request("h")) == nil, "nobody knows when it went out")
        #expect(gateway.gate.sent(id, at: gateway.now, now: gateway.now) == [])
        #expect(gateway.opens(gateway.request("h")) == gateway.now + after(.seconds(60)))
        #expect(gateway.opens(gateway.request("h", interval: .seconds(300))) == gateway.now + after(.seconds(300)))
        let delta = Duration.seconds(3600)
        gateway.now = gateway.now + delta
        #expect(gateway.gate.shift(by: delta) == [])
        gateway.gate.leave(id)
        gateway.gate.forget(id)
        let host = gateway.gate.load(of: "h")
        #expect(gateway.gate.forgetIfIdle(host, now: gateway.now + .seconds(600)) == [])

        // Beside other downloads of the host, the rows tell the times of those only.
        let first = gateway.now
        let (open, rows) = gateway.begin(gateway.request("h"))
        #expect(rows == [.requested(HostRequest(host: "h", requestInterval: .zero, at: first, isSent: false))])
        let sent = [HostRequest(host: "h", requestInterval: .zero, at: first, isSent: true)]
        #expect(gateway.gate.sent(open, at: first, now: first) == sent.map { .requested($0) })
        gateway.now = first + .seconds(90)
        let (other, none) = gateway.begin(secret)
        #expect(none == [])
        _ = gateway.gate.sent(other, at: gateway.now, now: gateway.now)
        #expect(gateway.gate.lastRequests() == sent)
        #expect(gateway.opens(gateway.request("h")) == gateway.now + after(.seconds(60)))
    }

    @Test func `moves with the clock`() throws {
        var gateway = try Gateway(["h": rule(.seconds(60))])
        let (id, _) = gateway.begin(gateway.request("h"))
        _ = gateway.gate.sent(id, at: gateway.now, now: gateway.now)
        let delta = Duration.seconds(-86_400)
        gateway.now = gateway.now + delta
        let rows = gateway.gate.shift(by: delta)
        #expect(rows == [.requested(HostRequest(host: "h", requestInterval: .zero, at: gateway.now, isSent: true))])
        #expect(gateway.opens(gateway.request("h")) == gateway.now + after(.seconds(60)))
    }

    @Test func `remembers what earlier processes sent, until the host is used`() throws {
        var gateway = try Gateway(["h": rule(.seconds(60))])
        let request = HostRequest(host: "h", requestInterval: .zero, at: gateway.now, isSent: true)
        gateway.gate.restore([request])
        #expect(gateway.gate.lastRequests() == [request])
        #expect(gateway.opens(gateway.request("h")) == gateway.now + after(.seconds(60)))
        #expect(gateway.gate.lastRequests() == [request])
        // A host is forgotten once nothing needs to be known about it.
        let host = gateway.gate.load(of: "h")
        #expect(gateway.gate.forgetIfIdle(host, now: gateway.now) == nil)
        #expect(
            gateway.gate.forgetIfIdle(host, now: gateway.now + .seconds(61)) == [.requestOver(host: "h", requestInterval: .zero)])
        #expect(gateway.gate.hosts.count == 0 && gateway.gate.lastRequests().isEmpty)
    }
}
