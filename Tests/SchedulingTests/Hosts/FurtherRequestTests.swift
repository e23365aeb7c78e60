import DownloadModel
import Testing

@testable import Scheduling

extension Desk {
    /// The transfer wants to fetch another part of its file at the same time: its `index`-th further request.
    @discardableResult fileprivate func wantsFurther(_ number: UInt64, _ index: UInt32, at host: String = "h") -> RequestID {
        let id = RequestID(DownloadNumber(number), self[number].request.ordinal + index)
        _ = try? turn([.asks(id, host: host, origin: nil)])
        return id
    }

    /// Ends the transfer and the download.
    fileprivate func finish(_ number: UInt64) {
        try? steer(self[number], .cancel)
        ends(self[number], .stopped(nil))
    }

    fileprivate func over(_ id: RequestID, _ failure: DownloadFailure? = nil) { _ = try? turn([.over(id, failure)]) }

    /// The requests that were permitted and taken back since the last call of `newActions`.
    fileprivate func news() -> (permitted: [RequestID], withdrawn: [RequestID]) {
        let actions = newActions()
        return (
            actions.compactMap { if case .permit(let id, _, _, _) = $0 { id } else { nil } },
            actions.compactMap { if case .withdraw(let id) = $0 { id } else { nil } }
        )
    }
}

@Suite struct `Further requests of a transfer` {
    private func desk(_ rule: HostRule? = nil, maxActive: UInt32 = 0, perHost: UInt32 = 6) -> Desk {
        Desk { settings in
            (settings.maxActive, settings.maxPerHost) = (maxActive, perHost)
            if let rule { try? settings.hostRules.set("h", rule) }
        }
    }

    @Test func `count against the connections of the host's rule`() {
        let desk = desk(HostRule(connections: 3))
        desk.add(1)
        let ids = (1...4).map { desk.wantsFurther(1, UInt32($0)) }
        #expect(desk.news().permitted == Array(ids[..<2]))
        desk.over(ids[0])
        #expect(desk.news().permitted == [ids[2]])
        desk.finish(1)
        #expect(desk.scheduler.gate.requests.isEmpty, "the ends of all are known")
        #expect(desk.scheduler.gate.hosts["h"].map { $0.isIdle(now: desk.now) } ?? true)
    }

    @Test func `leave the places of downloads free where no rule limits the host`() {
        let desk = desk(perHost: 2)
        desk.add(1)
        let ids = (1...17).map { desk.wantsFurther(1, UInt32($0)) }
        #expect(desk.news().permitted == Array(ids[..<15]), "a host has sixteen")
        desk.add(2)
        desk.add(3)
        #expect(desk.started == [1, 2] && desk.hold(3) == .hostLimit)
        #expect(desk.news().withdrawn.isEmpty)
    }

    @Test func `take no slot`() {
        let desk = desk(maxActive: 2)
        desk.add(1)
        for index in 1...5 { desk.wantsFurther(1, UInt32(index)) }
        desk.add(2)
        desk.add(3)
        #expect(desk.started == [1, 2])
    }

    @Test func `give their places to downloads that wait, one at a time, the latest first`() {
        let desk = desk(HostRule(connections: 3))
        desk.add(1)
        let (first, second) = (desk.wantsFurther(1, 1), desk.wantsFurther(1, 2))
        #expect(desk.news().permitted == [first, second])
        desk.add(2)
        desk.add(3)
        #expect(desk.started == [1] && desk.news().withdrawn == [second])
        desk.over(second)
        #expect(desk.started == [1, 2])
        // It asks again, and waits behind the other download.
        let again = desk.wantsFurther(1, 3)
        let news = desk.news()
        #expect(news.permitted.isEmpty && news.withdrawn == [first])
        desk.over(first)
        #expect(desk.started == [1, 2, 3] && desk.news().permitted.isEmpty)
        desk.add(4)
        #expect(desk.hold(4) == .hostLimit && desk.news().withdrawn.isEmpty, "the others are no further requests")
        desk.finish(2)
        #expect(desk.started == [1, 2, 3, 4] && desk.news().permitted.isEmpty)
        desk.finish(3)
        #expect(desk.news().permitted == [again])
    }

    @Test func `end one by one when a new rule has fewer places`() {
        let desk = desk()
        desk.add(1)
        let ids = (1...3).map { desk.wantsFurther(1, UInt32($0)) }
        #expect(desk.news().permitted == ids)
        desk.set { try? $0.hostRules.set("h", HostRule(connections: 2)) }
        #expect(desk.news().withdrawn == [ids[2]])
        desk.over(ids[2])
        #expect(desk.news().withdrawn == [ids[1]])
        desk.over(ids[1])
        #expect(desk.news().withdrawn.isEmpty)
        desk.set { try? $0.hostRules.set("h", HostRule(connections: 1)) }
        #expect(desk.news().withdrawn == [ids[0]])
        desk.over(ids[0])
        desk.set { try? $0.hostRules.set("h", HostRule(connections: 2)) }
        #expect(desk.news().withdrawn.isEmpty && desk.state(1) == .active)
    }

    @Test func `keep their places while all slots are taken`() {
        let desk = desk(HostRule(connections: 2), maxActive: 1)
        desk.add(1)
        desk.wantsFurther(1, 1)
        desk.add(2)
        #expect(desk.started == [1] && desk.news().withdrawn.isEmpty)
    }

    @Test func `are permitted beside downloads that get no slot, and give way once these get one`() {
        let desk = desk(HostRule(connections: 2), maxActive: 1)
        desk.add(1)
        desk.add(2)
        let further = desk.wantsFurther(1, 1)
        #expect(desk.started == [1] && desk.news().permitted == [further])
        desk.set { $0.maxActive = 2 }
        #expect(desk.news().withdrawn == [further])
        desk.over(further)
        #expect(desk.started == [1, 2])
    }

    @Test func `give way to a download once a download of another host has released its slot`() {
        let desk = desk(HostRule(connections: 2), maxActive: 2)
        desk.add(1)
        let further = desk.wantsFurther(1, 1)
        desk.add(2, "http://other/2")
        desk.add(3)
        #expect(desk.started == [1, 2] && desk.news().withdrawn.isEmpty)
        desk.finish(2)
        #expect(desk.news().withdrawn == [further])
    }

    @Test func `are permitted once a download of another host has taken the slot`() {
        let desk = desk(HostRule(connections: 2), maxActive: 3)
        desk.add(1)
        desk.add(2)
        desk.add(3, "http://other/3")
        desk.add(4)
        desk.add(5, "http://other/5") { $0.options.priority = 1 }
        let further = desk.wantsFurther(1, 1)
        #expect(desk.news().permitted.isEmpty)
        desk.finish(2)
        let news = desk.news()
        #expect(desk.started == [1, 2, 3, 5] && news.permitted == [further] && news.withdrawn.isEmpty)
    }

    @Test func `are permitted during the pause of another origin, and give way when it ends`() throws {
        let desk = desk(HostRule(connections: 2))
        desk.add(1)
        desk.add(2, "http://h:8080/2")
        desk.fails(desk[2], DownloadFailure(.httpStatus, "503", httpStatus: 503, isRetryable: true, retryAfter: .seconds(30)))
        try desk.steer(desk[2], .cancel)
        desk.add(3, "http://h:8080/3")
        let further = desk.wantsFurther(1, 1)
        #expect(desk.hold(3) == .rateLimit && desk.news().permitted == [further])
        desk.wait(.seconds(60))
        #expect(desk.news().withdrawn == [further])
    }

    @Test func `keep their places while a redirect gets no slot, because four large files are active`() {
        let desk = desk(HostRule(connections: 2), maxActive: Settings.automatic)
        desk.add(1) { $0.options.size = 1 << 20 }
        desk.wantsFurther(1, 1)
        for number in 2...5 { desk.add(UInt64(number), "http://other\(number)/") { $0.options.size = 1 << 20 } }
        #expect(desk.started == [1, 2, 3, 4])
        desk.stalled(desk[2], true)
        #expect(desk.started == [1, 2, 3, 4, 5])
        desk.hop(desk[2], to: "h")
        #expect(desk.hold(2) == .hostLimit && desk.news().withdrawn.isEmpty)
    }

    @Test func `give their places to redirects`() {
        let desk = desk(HostRule(connections: 2))
        desk.add(1)
        let further = desk.wantsFurther(1, 1)
        desk.add(2, "http://other/2")
        desk.hop(desk[2], to: "h")
        #expect(desk.hold(2) == .hostLimit && desk.news().withdrawn == [further])
        desk.over(further)
        #expect(desk.permitted.last == 2 && desk.hold(2) == nil)
    }

    @Test func `are the transfer's request once the first one is over`() {
        let desk = desk(HostRule(connections: 2))
        desk.add(1)
        let further = desk.wantsFurther(1, 1)
        desk.over(desk[1].request)
        desk.add(2)
        #expect(desk.started == [1, 2], "the place of the first one is free")
        desk.add(3)
        #expect(desk.news().withdrawn.isEmpty && desk.hold(3) == .hostLimit)
        // Its redirects and repetitions wait as those of the first one do.
        _ = try? desk.turn([.asks(further, host: "h", origin: nil)])
        #expect(desk.scheduler.isHeld(desk[1]) || desk.permitted.last == 1)
        desk.finish(1)
        #expect(desk.scheduler.gate.requests.keys.allSatisfy { $0.download.value != 1 })
    }

    @Test func `keep a download active while its first request waits for its turn`() throws {
        let desk = desk(HostRule(connections: 1))
        desk.add(1, "http://other/1")
        let further = desk.wantsFurther(1, 1, at: "other")
        desk.add(2)
        desk.hop(desk[1], to: "h")
        #expect(desk.hold(1) == nil, "the further request brings bytes")
        desk.over(further)
        #expect(desk.hold(1) == .hostLimit)
        desk.finish(2)
        #expect(desk.hold(1) == nil)
    }

    @Test func `keep the host's interval, after the downloads`() {
        let desk = desk(HostRule(requestInterval: .seconds(1)))
        desk.add(1)
        desk.sent(desk[1])
        let further = desk.wantsFurther(1, 1)
        desk.add(2)
        #expect(desk.news().permitted.isEmpty)
        desk.waitUntilDue()
        #expect(desk.started == [1, 2] && desk.news().permitted.isEmpty)
        desk.sent(desk[2])
        desk.waitUntilDue()
        #expect(desk.news().permitted == [further])
    }

    @Test func `slow down an origin that refuses them`() {
        let desk = desk()
        desk.add(1)
        let further = desk.wantsFurther(1, 1)
        let refusal = DownloadFailure(.httpStatus, "429", httpStatus: 429, isRetryable: true, retryAfter: .seconds(30))
        desk.over(further, refusal)
        #expect(desk.state(1) == .active)
        desk.add(2)
        #expect(desk.started == [1] && desk.hold(2) == .rateLimit)
    }

    @Test func `leave their host when the transfer stops, and none of a later transfer has their ids`() throws {
        let desk = desk(HostRule(connections: 4))
        desk.add(1)
        let ids = (1...3).map { desk.wantsFurther(1, UInt32($0)) }
        try desk.steer(desk[1], .pause)
        #expect(desk.scheduler.gate.placed.isEmpty)
        _ = try? desk.turn([.asks(ids[0], host: "h", origin: nil)])
        #expect(desk.scheduler.gate.placed.isEmpty, "a stopping transfer asks in vain")
        desk.ends(desk[1], .stopped(nil))
        #expect(desk.scheduler.gate.requests.isEmpty)
        try desk.steer(desk[1], .resume)
        #expect(desk.started == [1, 1] && !ids.contains(desk[1].request))
        desk.over(ids[0])
        #expect(desk.scheduler.gate.placed.count == 1, "an event of the former transfer changes nothing")
    }
}
