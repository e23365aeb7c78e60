import DownloadModel
import Testing

@testable import Scheduling

/// A ledger with one download whose attempts fetch no bytes.
private final class OwnDesk {
    let ledger = Ledger(settings: Settings(), jitter: .fixed(0))
    var now = WallTime(microseconds: 1_000_000_000_000_000)
    let entry: LedgerEntry

    init(_ change: (inout DownloadRecord) -> Void = { _ in }) {
        var record = DownloadRecord(
            number: DownloadNumber(1), url: "http://h/f", options: DownloadOptions(), directory: "/d", state: .queued, queuedAt: now,
            position: 1)
        change(&record)
        entry = ledger.insert(record)
        ledger.enter(entry, now: now)
    }

    func begin(isResumable: Bool) {
        ledger.transferBegan(entry, fileName: "f", mediaType: nil, total: nil, offset: 0, isResumable: isResumable, now: now)
    }

    func fail(_ failure: DownloadFailure, madeProgress: Bool = true, _ resume: ResumeData? = nil) {
        ledger.transferEnded(entry.number, .failed(failure, madeProgress: madeProgress, resume), now: now)
    }

    /// Counts the requested deletions of the part file, and performs them.
    func sweeps() -> Int {
        let count = ledger.output.take().count { if case .sweep = $0 { true } else { false } }
        if count > 0 { ledger.swept(entry.number, isGone: true, now: now) }
        return count
    }

    /// The time until the retry; nil: no retry.
    var delay: Duration? {
        if case .waiting(_, let until?) = entry.state { until - now } else { nil }
    }

    func goOn() {
        _ = sweeps()
        now = ledger.nextWake ?? now
        ledger.tick(now: now)
        _ = ledger.output.take()
    }
}

private let lost = DownloadFailure(.network, "…", isRetryable: true)
private let quota = DownloadFailure(.diskFull, "…", wait: .diskSpace)
private func held(_ written: ByteCount) -> ResumeData {
    ResumeData(
        written: written, total: 100, validator: .entityTag("\"v\""), identity: FileIdentity(device: 1, inode: 2, mount: 3, boot: "b"))
}

@Suite struct `A download without progress` {
    @Test func `is retried ever later, up to its retries, if it is always cut and cannot be resumed`() {
        let desk = OwnDesk { $0.options.retries = 4 }
        var delays: [Duration] = []
        while desk.entry.state == .active, delays.count < 20 {
            desk.begin(isResumable: false)
            desk.fail(lost)
            guard let delay = desk.delay else { break }
            delays.append(delay)
            desk.goOn()
        }
        #expect(delays == [.milliseconds(500), .seconds(1), .seconds(2), .seconds(4)])
        #expect(desk.entry.state == .failed(lost))
    }

    @Test func `is retried at once after each byte that a resume keeps`() {
        let desk = OwnDesk { $0.options.retries = 0 }
        for written in [10, 20, 30] as [ByteCount] {
            desk.begin(isResumable: true)
            desk.fail(lost, held(written))
            #expect(desk.delay == .milliseconds(500) && desk.entry.record.received == written)
            #expect(desk.sweeps() == 0)
            desk.goOn()
        }
        for delay in [2, 4, 8] {
            desk.fail(lost, madeProgress: false, held(30))
            #expect(desk.delay == .milliseconds(500) * delay)
            desk.goOn()
        }
    }

    @Test func `is retried ever later under a quota, which hides the needed room`() {
        let desk = OwnDesk { $0.options.retries = 0 }
        var delays: [Duration] = []
        for _ in 0..<12 {
            desk.fail(quota, madeProgress: false, held(30))
            desk.ledger.folderSeen("/d", free: 1 << 40, now: desk.now)
            guard let delay = desk.delay else { break }
            delays.append(delay)
            desk.goOn()
        }
        #expect(delays.first == .milliseconds(500) && delays.last == .seconds(150) && delays.count == 12)
        #expect(zip(delays, delays.dropFirst()).allSatisfy { $0 <= $1 })
    }

    @Test(
        arguments: [
            (lost, nil, false, 1), (lost, nil, true, 0), (lost, held(5), true, 0),
            (DownloadFailure(.diskFull, "…", wait: .diskSpace, neededRoom: 50), nil, false, 1), (quota, nil, false, 1),
            (DownloadFailure(.writeFailed, "…", wait: .destination), nil, true, 0),
        ] as [(DownloadFailure, ResumeData?, Bool, Int)])
    func `keeps no bytes in a wait if no attempt can resume from them`(
        failure: DownloadFailure, resume: ResumeData?, isResumable: Bool, sweeps: Int
    ) {
        let desk = OwnDesk()
        desk.begin(isResumable: isResumable)
        _ = desk.ledger.output.take()
        desk.fail(failure, resume)
        #expect(desk.entry.state.name == "waiting")
        #expect(desk.sweeps() == sweeps)
        #expect(desk.entry.record.received == resume?.written ?? 0)
    }

    @Test func `keeps no such bytes in a pause either, unless the file is complete`() throws {
        for isWhole in [false, true] {
            let desk = OwnDesk()
            desk.begin(isResumable: false)
            try desk.ledger.apply(.pause, to: desk.entry, now: desk.now)
            _ = desk.ledger.output.take()
            desk.ledger.transferEnded(
                desk.entry.number, isWhole ? .complete(size: 100, fileName: "f", held(0)) : .stopped(nil), now: desk.now)
            #expect(desk.sweeps() == (isWhole ? 0 : 1))
        }
    }

    @Test func `waits for more room than its useless bytes had`() {
        let desk = OwnDesk()
        desk.begin(isResumable: false)
        desk.fail(DownloadFailure(.diskFull, "…", wait: .diskSpace, neededRoom: 5000))
        #expect(desk.sweeps() == 1)
        desk.ledger.folderSeen("/d", free: 4999, now: desk.now)
        #expect(desk.entry.state == .waiting(.diskSpace, until: nil))
        desk.ledger.folderSeen("/d", free: 5000, now: desk.now)
        #expect(desk.entry.state == .active)
    }
}

@Suite struct `The reserve of a disk` {
    @Test(
        arguments: [
            (.automatic, 100 << 30, 1 << 30), (.automatic, 1 << 40, 1 << 30), (.automatic, 5000, 50), (.automatic, 0, 0),
            (.automatic, .max, 1 << 30), (.bytes(0), .max, 0), (.bytes(7), 5, 7),
        ] as [(DiskReserve, ByteCount, ByteCount)])
    func `is a hundredth, at most 1 GiB, or the configured size`(reserve: DiskReserve, size: ByteCount, bytes: ByteCount) {
        #expect(reserve.bytes(ofDisk: size) == bytes)
    }

    @Test func `is a number on the bus`() {
        #expect(DiskReserve(wire: -1) == .automatic && DiskReserve(wire: 0) == .bytes(0) && DiskReserve(wire: -2) == nil)
        for wire in [-1, 0, 1, .max] as [Int64] { #expect(DiskReserve(wire: wire)?.wire == wire) }
        #expect(DiskReserve.bytes(.max).wire == .max)
    }
}
