internal import DownloadModel
internal import Testing

@testable import Scheduling

/// A gate at which a few applications queue downloads.
private struct Queue {
    var gate: HostGate
    var now = WallTime(microseconds: 1_000_000_000_000_000)
    private var last: UInt64 = 0
    private var lanes: [DownloadNumber: Lane] = [:]

    init(maxActive: UInt32 = 0, maxPerHost: UInt32 = 0, rules: [String: HostRule] = [:]) throws {
        var settings = Settings()
        (settings.maxActive, settings.maxPerHost) = (maxActive, maxPerHost)
        for (host, rule) in rules { try settings.hostRules.set(host, rule) }
        gate = HostGate(settings)
    }

    @discardableResult
    mutating func add(
        _ host: String, app: String = "", priority: Int32 = 0, port: UInt16 = 80, interval: Duration = .zero
    ) -> DownloadNumber {
        last += 1
        let (number, origin) = (DownloadNumber(last), "http://\(host):\(port)")
        let lane = gate.lane(host: host, origin: origin, app: app, requestInterval: interval, isUrgent: false)
        gate.enqueue(number, in: lane, origin: origin, priority: priority, position: DownloadQueue.position(of: number))
        lanes[number] = lane
        return number
    }

    /// Refreshes all changed hosts.
    ///
    /// - Returns: the permitted redirects.
    @discardableResult mutating func refresh() -> [RequestID] {
        var granted: [RequestID] = []
        while let host = gate.hosts.takeTouched(1).first {
            granted += gate.refresh(host, now: now).granted.map(\.id)
        }
        return granted
    }

    /// Starts the download whose turn it is; nil: none may start.
    mutating func start() -> DownloadNumber? {
        refresh()
        guard gate.hasSlot(for: .unknown), let number = gate.lanes.next()?.download.number, let lane = lanes[number]
        else { return nil }
        lanes[number] = nil
        gate.dequeue(number, from: lane)
        let request = PlacedRequest(
            host: lane.host.name, origin: lane.origin ?? "", app: lane.app.name, requestInterval: lane.requestInterval, startedAt: now,
            phase: .underWay)
        _ = gate.takeSlot(request, RequestID(number, 1), now: now)
        return number
    }

    /// The transfer of `number` ends, its request having gone out.
    mutating func end(_ number: DownloadNumber) {
        _ = gate.sent(RequestID(number, 1), at: now, now: now)
        gate.leaveSlot(number)
        gate.forget(RequestID(number, 1))
    }

    func hold(_ number: DownloadNumber) -> HostGate.Hold? { lanes[number].flatMap { gate.hold(of: number, in: $0, now: now) } }
}

@Suite struct `Queued downloads at the gate` {
    @Test func `start by priority, then by what their application has had, then in queue order`() throws {
        var queue = try Queue()
        let (a1, a2, b1) = (queue.add("h", app: "A"), queue.add("i", app: "A"), queue.add("h", app: "B"))
        let first = queue.add("j", app: "A", priority: 1)
        var order: [DownloadNumber?] = []
        for _ in 1...5 { order.append(queue.start()) }
        #expect(order == [first, b1, a1, a2, nil])
    }

    @Test func `of a host with a limit start as places are given back, and say how many are before them`() throws {
        var queue = try Queue(maxPerHost: 1)
        let numbers = [queue.add("h"), queue.add("h"), queue.add("h")]
        #expect(queue.start() == numbers[0])
        #expect(queue.start() == nil)
        #expect(queue.hold(numbers[1])?.reason == .hostLimit && queue.hold(numbers[1])?.ahead == 0)
        #expect(queue.hold(numbers[2])?.ahead == 1)
        let elsewhere = queue.add("i")
        #expect(queue.start() == elsewhere)
        queue.end(numbers[0])
        #expect(queue.start() == numbers[1])
    }

    @Test func `of a host with an interval start in turns of their applications, each an interval after the last`() throws {
        var queue = try Queue(rules: ["h": HostRule(requestInterval: .seconds(1))])
        let a = [queue.add("h", app: "A"), queue.add("h", app: "A"), queue.add("h", app: "A")]
        let b = [queue.add("h", app: "B"), queue.add("h", app: "B")]
        var order: [DownloadNumber] = []
        var starts: [WallTime] = []
        for _ in 0..<100 where order.count < 5 {
            if let number = queue.start() {
                order.append(number)
                starts.append(queue.now)
                queue.end(number)
            }
            queue.refresh()
            guard let wake = queue.gate.hosts.nextWake() else { break }
            queue.now = max(queue.now, wake)
            _ = queue.gate.hosts.touchDue(100, now: queue.now)
        }
        #expect(order == [a[0], b[0], a[1], b[1], a[2]])
        #expect(zip(starts, starts.dropFirst()).allSatisfy { $1 - $0 >= .seconds(1) && $1 - $0 < .milliseconds(1100) }, "\(starts)")
    }

    @Test func `wait while all slots are taken, but not for a transfer that waits for its host or for a silent server`() throws {
        var queue = try Queue(maxActive: 1)
        let (silent, next) = (queue.add("h"), queue.add("i"))
        #expect(queue.start() == silent)
        #expect(queue.start() == nil)
        queue.gate.stalled(RequestID(silent, 1), true, now: queue.now)
        #expect(queue.start() == next)
        queue.gate.stalled(RequestID(silent, 1), false, now: queue.now)
        #expect(!queue.gate.hasSlot(for: .unknown))
        queue.end(silent)
        #expect(!queue.gate.hasSlot(for: .unknown))
        queue.end(next)
        #expect(queue.gate.hasSlot(for: .unknown) && queue.gate.lanes.apps.isEmpty, "nothing is left of an application without downloads")
    }

    @Test func `go before a redirect of an application that had its turn since, if there is a slot for them`() throws {
        var queue = try Queue(maxPerHost: 1)
        // A runs at h. Then a redirect of A leads to h, and B has a download queued there.
        let running = queue.add("h", app: "A")
        #expect(queue.start() == running)
        let redirected = queue.add("elsewhere", app: "A")
        #expect(queue.start() == redirected)
        queue.gate.redirect(RequestID(redirected, 1), to: "h", origin: "http://h:80", question: 1, now: queue.now)
        let theirs = queue.add("h", app: "B")
        queue.end(running)
        #expect(queue.refresh() == [])
        #expect(queue.start() == theirs)
        _ = queue.gate.loseTurns()
        #expect(queue.refresh() == [])
        queue.end(theirs)
        #expect(queue.refresh() == [RequestID(redirected, 1)])
    }

    @Test func `that get no slot lose their turn to the redirect`() throws {
        var queue = try Queue(maxPerHost: 1)
        let running = queue.add("h", app: "A")
        #expect(queue.start() == running)
        let redirected = queue.add("elsewhere", app: "A")
        #expect(queue.start() == redirected)
        queue.gate.redirect(RequestID(redirected, 1), to: "h", origin: "http://h:80", question: 1, now: queue.now)
        queue.add("h", app: "B")
        queue.end(running)
        #expect(queue.refresh() == [])
        // The download of B is not started: its turn is over, and the redirect is permitted.
        let isLost = queue.gate.loseTurns()
        #expect(isLost)
        #expect(queue.refresh() == [RequestID(redirected, 1)])
    }

    /// The redirect of "keen" yields for the sake of "modest". The redirect of "greedy" has waited longer than the first download.
    @Test func `that get no place keep their turn if a redirect of another application took it`() throws {
        var queue = try Queue(maxPerHost: 1)
        for (app, interval) in [("keen", .seconds(1)), ("greedy", .zero)] as [(String, Duration)] {
            let number = queue.add("h", app: app, interval: interval)
            #expect(queue.start() == number)
            queue.end(number)
        }
        let running = queue.add("h", app: "keen")
        #expect(queue.start() == running)
        let redirected = [queue.add("elsewhere", app: "keen", interval: .seconds(1)), queue.add("other", app: "greedy")]
        for _ in redirected { #expect(queue.start() != nil) }
        for number in redirected {
            queue.gate.redirect(RequestID(number, 1), to: "h", origin: "http://h:80", question: 1, now: queue.now)
        }
        let (first, next) = (queue.add("h", app: "keen", priority: 1), queue.add("h", app: "modest"))
        queue.end(running)
        queue.now = queue.now + .seconds(2)
        #expect(queue.refresh() == [RequestID(redirected[1], 1)])
        let isLost = queue.gate.loseTurns()
        #expect(!isLost)
        queue.end(redirected[1])
        #expect(queue.start() == first)
        queue.end(first)
        #expect(queue.start() == next)
        queue.end(next)
        #expect(queue.refresh() == [RequestID(redirected[0], 1)])
    }

    /// Otherwise, the redirect of "greedy" would yield again and again, and only redirects of "keen" would go.
    @Test func `that get no place lose their turn if a redirect of their own application took it`() throws {
        var queue = try Queue(maxPerHost: 1)
        for app in ["keen", "greedy"] {
            let number = queue.add("h", app: app)
            #expect(queue.start() == number)
            queue.end(number)
        }
        let running = queue.add("h", app: "keen", interval: .seconds(1))
        #expect(queue.start() == running)
        let redirected = [queue.add("elsewhere", app: "greedy"), queue.add("other", app: "keen", interval: .seconds(1))]
        for _ in redirected { #expect(queue.start() != nil) }
        for number in redirected {
            queue.gate.redirect(RequestID(number, 1), to: "h", origin: "http://h:80", question: 1, now: queue.now)
        }
        queue.add("h", app: "keen")
        queue.end(running)
        queue.now = queue.now + .seconds(2)
        #expect(queue.refresh() == [RequestID(redirected[1], 1)])
        let isLost = queue.gate.loseTurns()
        #expect(isLost)
        queue.end(redirected[1])
        #expect(queue.refresh() == [RequestID(redirected[0], 1)])
    }

    @Test func `share a lane beyond 64 origins of a host, and keep their origins there`() throws {
        var queue = try Queue()
        var numbers: [DownloadNumber] = []
        for port in 8000..<8070 as Range<UInt16> { numbers.append(queue.add("h", port: port)) }
        let host = queue.gate.load(of: "h")
        #expect(host.lanes.count == 65)
        let mixed = try #require(host.lanes.last)
        #expect(mixed.origin == nil && mixed.count == 6)
        #expect(queue.gate.lanes.origin(of: mixed) == "http://h:8064")
        #expect(queue.gate.lanes.origin(of: numbers[69], in: mixed) == "http://h:8069")
    }

    @Test func `wait while nobody knows whether there is a network, except for this machine's`() throws {
        var queue = try Queue()
        queue.gate.isNetworkKnown = false
        let (far, near) = (queue.add("h"), queue.add("127.0.0.1"))
        #expect(queue.start() == near)
        #expect(queue.start() == nil)
        queue.gate.isNetworkKnown = true
        queue.gate.hosts.touch(named: "h")
        #expect(queue.start() == far)
    }

    @Test func `moved to the front are next, whatever their application has had`() throws {
        var queue = try Queue()
        let a = [queue.add("h", app: "A"), queue.add("h", app: "A")]
        queue.add("h", app: "B")
        #expect(queue.start() == a[0])
        queue.gate.comesNext(a[1], nil)
        #expect(queue.start() == a[1])
    }
}
