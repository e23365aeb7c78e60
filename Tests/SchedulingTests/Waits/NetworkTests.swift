import DownloadModel
import Scheduling
import Testing

/// A desk with downloads that are on disk already: 1 to `count` from a host each, 9 from this machine.
private func makeDesk(
    _ count: UInt64 = 1, knowing network: NetworkCondition? = .open, _ change: (inout DownloadRecord) -> Void = { _ in }
) -> Desk {
    let records = (1...count).map { Desk.record($0, "http://h\($0)/\($0)", change) }
    return Desk(records + [Desk.record(9, "http://localhost/9")], network: network)
}

extension Desk {
    fileprivate func state() -> DownloadState { state(1) }
    fileprivate func network(_ reach: NetworkCondition.Reach, metered: Bool = false) {
        network(NetworkCondition(reach: reach, isMetered: metered))
    }

    fileprivate func fail(_ number: UInt64 = 1, _ failure: DownloadFailure = .lost) { fails(self[number], failure) }
    fileprivate func resume() throws { try steer(self[1], .resume) }

    /// The new actions, as texts.
    fileprivate func orders() -> [String] {
        newActions().compactMap { action in
            switch action {
            case .startTransfer(let entry, _): "start \(entry.number)"
            case .stopTransfer(let entry): "stop \(entry.number)"
            case .save(.put(let record)): "save \(record.number)"
            default: nil
            }
        }
    }
}

extension DownloadFailure {
    fileprivate static let lost = DownloadFailure(.timeout, "…", isRetryable: true)
    fileprivate static let refused = DownloadFailure(.httpStatus, "…", httpStatus: 503, isRetryable: true, retryAfter: .seconds(100))
    fileprivate static let unreachable = DownloadFailure(.network, "…", isRetryable: true, wait: .offline)
}

private let offline = DownloadState.waiting(.offline, until: nil)
private let metered = DownloadState.waiting(.metered, until: nil)

@Suite struct `Without a network` {
    @Test func `only downloads from this machine start, and all resume when the network is back`() {
        let desk = makeDesk(3, knowing: NetworkCondition(reach: .offline))
        #expect((1...3).allSatisfy { desk.state($0) == offline } && desk.state(9) == .active)
        #expect(desk.orders() == ["start 9"], "nothing of it is saved: it is asked again at a start")
        #expect(desk.scheduler.nextWake == nil && desk.scheduler.hasWork)
        desk.network(.online)
        #expect((1...3).allSatisfy { desk.state($0) == .active })
        #expect(desk.orders() == ["start 1", "start 2", "start 3"])
    }

    @Test func `running transfers continue; a lost one waits, counts no retry, and resumes at once`() {
        let desk = makeDesk { $0.options.retries = 0 }
        desk.network(.offline)
        #expect(desk.state() == .active)
        desk.fail()
        #expect(desk.state() == offline && desk[1].record.lastFailure == .lost && desk[1].record.retriesUsed == 0)
        #expect(desk.orders().last == "save 1")
        desk.fail(9, .refused)
        #expect(desk.state(9) != offline, "this machine is there")
        desk.network(.online)
        #expect(desk.state() == .active)
    }

    @Test func `a refused download waits for the network first, and then as the server asked`() {
        let desk = makeDesk()
        desk.network(.offline)
        desk.fail(1, .refused)
        #expect(desk.state() == offline)
        desk.network(.online)
        #expect(desk.state() == .waiting(.retry, until: desk.now + .seconds(100)))
    }

    @Test func `a back-off ends when the network is back, but not a pause that a server requested`() {
        let desk = makeDesk(4)
        desk.fail(1, .lost)
        desk.fail(2, .refused)
        desk.fail(3, .unreachable)
        desk.fail(4, DownloadFailure(.httpStatus, "…", httpStatus: 500, isRetryable: true))
        let until = desk.now + .seconds(100)
        #expect(desk.state(2) == .waiting(.retry, until: until))
        let ownDelay = desk.state(4)
        desk.network(.offline)
        #expect((1...4).allSatisfy { desk.state($0) == offline })
        desk.network(.online)
        #expect(desk.state(1) == .active && desk.state(2) == .waiting(.retry, until: until) && desk.state(3) == .active)
        #expect(desk.state(4) == ownDelay)
        desk.network(.online, metered: true)
        #expect(desk.state(2) == .waiting(.retry, until: until), "a link of another kind hastens nothing")
    }

    @Test func `a network of limited reach is tried, and tried again at once when it is online`() {
        let desk = makeDesk(2, knowing: NetworkCondition(reach: .limited))
        #expect(desk.state(1) == .active)
        desk.fail(1, .unreachable)
        desk.fail(2, .refused)
        #expect(desk.state(1) == .waiting(.offline, until: desk.scheduler.nextWake))
        desk.network(.online)
        #expect(desk.state(1) == .active && desk.state(2) != .active)
    }

    @Test func `a resumed download starts now, until the network changes`() throws {
        let desk = makeDesk(knowing: NetworkCondition(reach: .captive))
        try desk.resume()
        #expect(desk.state() == .active)
        desk.fail()
        #expect(desk.state() == offline, "once")
        try desk.resume()
        #expect(desk.state() == .active)
        desk.network(.offline)
        desk.network(.captive)
        #expect(desk.state() == offline)
    }

    @Test func `a wait that somebody must end is reported first, with the failure behind it`() throws {
        let desk = makeDesk(3) { record in
            if record.number == DownloadNumber(2) { record.options.notBefore = WallTime(microseconds: 2_000_000_000_000_000) }
            if record.number == DownloadNumber(3) { record.awaitsUrl = true }
        }
        desk.network(.offline)
        #expect(desk.state(2) == .waiting(.notBefore, until: WallTime(microseconds: 2_000_000_000_000_000)))
        #expect(desk.state(3) == .waiting(.needsUrl, until: nil))
        desk.pauseAll()
        #expect(desk.state(1) == .waiting(.pausedAll, until: nil))
        desk.network(.captive)
        #expect(desk.state(1) == .waiting(.pausedAll, until: nil))
        desk.ends(desk[1], .stopped(nil))
        desk.resumeAll()
        #expect(desk.state(1) == offline)
    }

    @Test func `a deadline still expires`() {
        let desk = makeDesk { $0.options.deadline = .seconds(50) }
        desk.network(.offline)
        desk.fail()
        desk.wait(.seconds(50))
        #expect(desk.state().failure?.name == .expired)
    }

    @Test func `a captive portal stops transfers, except those from this machine`() {
        let desk = makeDesk()
        _ = desk.orders()
        desk.network(.captive)
        #expect(desk.state() == offline && desk.state(9) == .active)
        #expect(desk.orders() == ["stop 1"])
        desk.network(.online)
        #expect(desk.state() == .queued, "the transfer before has not ended")
        desk.ends(desk[1], .stopped(nil))
        #expect(desk.state() == .active)
    }
}

@Suite struct `A metered link` {
    @Test func `stops downloads that must not use it, and lets them resume over another`() {
        let desk = makeDesk(2) { $0.options.allowsMetered = $0.number != DownloadNumber(1) }
        _ = desk.orders()
        desk.network(.online, metered: true)
        #expect(desk.state(1) == metered && desk.state(2) == .active && desk.state(9) == .active)
        #expect(desk.orders() == ["stop 1"])
        desk.ends(desk[1], .stopped(nil))
        #expect(desk.orders() == ["save 1"], "its checkpoint")
        desk.network(.offline, metered: true)
        #expect(desk.state(1) == offline)
        desk.network(.online, metered: true)
        #expect(desk.state(1) == metered)
        desk.network(.online)
        #expect(desk.state(1) == .active)
    }

    @Test func `stops a download from this machine, if it has a mirror elsewhere`() {
        let local = Desk.record(1, "http://127.0.0.1/1") { $0.options.allowsMetered = false }
        var mirrored = Desk.record(2, "http://127.0.0.1/2") { $0.options.allowsMetered = false }
        mirrored.options.mirrors = ["http://localhost/2", "http://h2/2"]
        let desk = Desk([local, mirrored], network: NetworkCondition(isMetered: true))
        #expect(desk.state(1) == .active && desk.state(2) == metered)
        desk.network(.offline)
        #expect(desk.state(1) == .active && desk.state(2) == .active, "this machine is there")
    }

    @Test func `is not overridden by Resume`() throws {
        let desk = makeDesk(knowing: NetworkCondition(isMetered: true)) { $0.options.allowsMetered = false }
        try desk.resume()
        #expect(desk.state() == metered)
    }
}

@Suite struct `While the network is unknown` {
    @Test func `downloads that need the network stay queued, and nothing is reported or saved`() {
        let desk = makeDesk(2, knowing: nil) { $0.options.allowsMetered = $0.number != DownloadNumber(1) }
        #expect(desk.state(1) == .queued && desk.state(2) == .queued && desk.state(9) == .active)
        #expect(desk.orders() == ["start 9"])
        desk.network(.online, metered: true)
        #expect(desk.state(1) == metered && desk.state(2) == .active)
        desk.network(nil)
        #expect(desk.state(1) == .queued && desk.state(2) == .active)
    }
}

@Suite struct `Sleep` {
    @Test func `stops transfers with a checkpoint, and they resume at once`() {
        let desk = makeDesk(2)
        _ = desk.orders()
        desk.sleeps()
        #expect(desk.state(1) == .queued && desk.state(9) == .queued && !desk.scheduler.isAtRest)
        #expect(desk.orders() == ["stop 1", "stop 2", "stop 9"])
        let resume = ResumeData(
            written: 5, total: 9, validator: .entityTag("\"v\""), identity: FileIdentity(device: 1, inode: 1, mount: 1, boot: "b"))
        desk.ends(desk[1], .stopped(resume))
        desk.ends(desk[2], .complete(size: 9, fileName: "f", resume))
        #expect(!desk.scheduler.isAtRest)
        desk.ends(desk[9], .failed(.lost, madeProgress: true, nil))
        #expect(desk.scheduler.isAtRest && desk.orders() == ["save 1", "save 2", "save 9"])
        #expect(desk[1].record.resume == resume)
        // Neither a network report nor the clock starts anything.
        desk.wait(.zero)
        desk.network(.online, metered: true)
        #expect(desk.scheduler.counts.active == 0 && desk.orders() == [])
        desk.wakes()
        #expect(desk.state(1) == .active && desk.state(2) == .verifying && desk.state(9) == .active)
        #expect(desk[9].record.retriesUsed == 0)
    }
}
