import DownloadModel
import Testing

@testable import Scheduling

/// Transfers that make several requests, as the gate sees them.
private struct Transfers {
    var gate: HostGate
    let now = WallTime(microseconds: 1_000_000_000_000_000)

    init(maxActive: UInt32) {
        var settings = Settings()
        settings.maxActive = maxActive
        gate = HostGate(settings)
    }

    func id(_ number: UInt64, _ ordinal: UInt32 = 1) -> RequestID { RequestID(DownloadNumber(number), ordinal) }

    private func request(_ host: String) -> PlacedRequest {
        PlacedRequest(host: host, origin: "http://\(host):80", app: "A", requestInterval: .zero, startedAt: now, phase: .underWay)
    }

    /// The transfer takes a slot and makes requests, one to each of `hosts`.
    mutating func start(_ number: UInt64, _ hosts: String...) {
        for (index, host) in hosts.enumerated() {
            let id = id(number, UInt32(index + 1))
            _ = index == 0 ? gate.takeSlot(request(host), id, now: now) : gate.begin(request(host), id, now: now)
        }
    }

    func active(at host: String) -> Int { gate.hosts[host]?.active ?? 0 }
}

@Suite struct `The slots of transfers` {
    @Test func `are one for each transfer, however many requests it makes, and hosts count each request`() {
        var transfers = Transfers(maxActive: 2)
        transfers.start(1, "a", "a", "b")
        #expect(transfers.gate.slots.count == 1 && transfers.gate.hasSlot(for: .unknown))
        #expect((transfers.active(at: "a"), transfers.active(at: "b")) == (2, 1))
        #expect(transfers.gate.lanes.apps["A"]?.active == 1, "the application pays for one transfer")
        transfers.start(2, "b")
        #expect(transfers.gate.slots.count == 2 && !transfers.gate.hasSlot(for: .unknown))
        transfers.gate.leave(transfers.id(1, 2))
        #expect(transfers.active(at: "a") == 1 && !transfers.gate.hasSlot(for: .unknown), "the transfer goes on")
        transfers.gate.leaveSlot(DownloadNumber(1))
        #expect((transfers.active(at: "a"), transfers.active(at: "b")) == (0, 1))
        #expect(transfers.gate.slots.count == 1 && transfers.gate.hasSlot(for: .unknown) && transfers.gate.lanes.apps["A"]?.active == 1)
    }

    @Test func `are free for others once no request of the transfer makes progress`() {
        var transfers = Transfers(maxActive: 1)
        transfers.start(1, "a", "b")
        transfers.gate.stalled(transfers.id(1, 1), true, now: transfers.now)
        #expect(transfers.gate.slots.idle == 0 && !transfers.gate.hasSlot(for: .unknown), "the other one goes on")
        transfers.gate.redirect(transfers.id(1, 2), to: "c", origin: "http://c:80", question: 1, now: transfers.now)
        #expect((transfers.gate.slots.idle, transfers.gate.slots.waiting) == (1, 0) && transfers.gate.hasSlot(for: .unknown))
        #expect(transfers.gate.slots[DownloadNumber(1)].map { transfers.gate.silentSince($0) } == .some(nil), "one waits")
        transfers.gate.redirect(transfers.id(1, 1), to: "c", origin: "http://c:80", question: 1, now: transfers.now)
        #expect((transfers.gate.slots.idle, transfers.gate.slots.waiting) == (1, 1))
        transfers.gate.leaveSlot(DownloadNumber(1))
        #expect((transfers.gate.slots.count, transfers.gate.slots.idle, transfers.gate.slots.waiting) == (0, 0, 0))
    }

    /// The application pays one second for each start. One transfer makes progress.
    @Test(arguments: [(1, 10), (64, 10), (65, 660)] as [(Int, Int)])
    func `cost an application nothing while its transfers are idle, unless too many are`(idle: Int, seconds: Int) {
        var transfers = Transfers(maxActive: 1)
        for number in 1...idle {
            transfers.start(UInt64(number), "a")
            transfers.gate.stalled(transfers.id(UInt64(number)), true, now: transfers.now)
        }
        transfers.start(100, "a")
        transfers.gate.charge(now: transfers.now)
        transfers.gate.charge(now: transfers.now + .seconds(10))
        #expect(transfers.gate.lanes.apps["A"]?.cost == .seconds(idle + 1 + seconds))
        #expect(transfers.gate.slots.apps["A"].map { [$0.busy, $0.idle] } == [1, idle])
    }

    @Test func `are silent since the last of their requests is`() throws {
        var transfers = Transfers(maxActive: 1)
        transfers.start(1, "a", "b")
        let later = transfers.now + .seconds(5)
        transfers.gate.stalled(transfers.id(1, 1), true, now: transfers.now)
        transfers.gate.stalled(transfers.id(1, 2), true, now: later)
        #expect(transfers.gate.silentSince(try #require(transfers.gate.slots[DownloadNumber(1)])) == later)
    }
}
