import DownloadModel
import Scheduling
import Testing

/// A desk with one download whose attempts fetch no bytes.
private func makeDesk(_ change: (inout DownloadRecord) -> Void = { _ in }) -> Desk {
    let desk = Desk()
    desk.add(1) { change(&$0) }
    return desk
}

extension Desk {
    fileprivate var entry: ScheduledDownload { self[1] }
    fileprivate func begin(isResumable: Bool) { began(entry, isResumable: isResumable) }

    fileprivate func fail(_ failure: DownloadFailure, madeProgress: Bool = true, _ resume: ResumeData? = nil) {
        fails(entry, failure, madeProgress: madeProgress, resume)
    }

    /// Counts the new requests to delete the part file, and performs them.
    fileprivate func sweeps() -> Int {
        let numbers = newActions().sweeps
        for number in numbers { swept(number) }
        return numbers.count
    }

    /// The time until the retry; nil: no retry.
    fileprivate var delay: Duration? {
        if case .waiting(_, let until?) = entry.state { until - now } else { nil }
    }

    /// Performs the deletions, and waits until the retry.
    fileprivate func goOn() {
        _ = sweeps()
        waitUntilDue()
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
        let desk = makeDesk { $0.options.retries = 4 }
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
        let desk = makeDesk { $0.options.retries = 0 }
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

    @Test func `has all its retries left after connections that were lost with bytes held`() {
        let desk = makeDesk { $0.options.retries = 1 }
        desk.begin(isResumable: true)
        desk.fail(lost, held(10))
        desk.goOn()
        for _ in 0..<3 {
            desk.fail(lost, madeProgress: false, held(10))
            desk.goOn()
        }
        #expect(desk.entry.state == .active && desk.entry.record.retriesUsed == 0)
        desk.fail(DownloadFailure(.httpStatus, "…", httpStatus: 503, isRetryable: true), madeProgress: false, held(10))
        #expect(desk.entry.state.name == "waiting" && desk.entry.record.retriesUsed == 1, "\(desk.entry.state)")
    }

    @Test func `is retried ever later under a quota, which hides the needed room`() {
        let desk = makeDesk { $0.options.retries = 0 }
        var delays: [Duration] = []
        for _ in 0..<12 {
            desk.fail(quota, madeProgress: false, held(30))
            desk.folderSeen("/d", free: 1 << 40)
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
        let desk = makeDesk()
        desk.begin(isResumable: isResumable)
        desk.fail(failure, resume)
        #expect(desk.entry.state.name == "waiting")
        #expect(desk.sweeps() == sweeps)
        #expect(desk.entry.record.received == resume?.written ?? 0)
    }

    @Test func `keeps no such bytes in a pause either, unless the file is complete`() throws {
        for isWhole in [false, true] {
            let desk = makeDesk()
            desk.begin(isResumable: false)
            try desk.steer(desk.entry, .pause)
            desk.ends(
                desk.entry, isWhole ? .complete(size: 100, fileName: "f", held(0)) : .stopped(nil))
            #expect(desk.sweeps() == (isWhole ? 0 : 1))
        }
    }

    @Test func `waits for more room than its useless bytes had`() {
        let desk = makeDesk()
        desk.begin(isResumable: false)
        desk.fail(DownloadFailure(.diskFull, "…", wait: .diskSpace, neededRoom: 5000))
        #expect(desk.sweeps() == 1)
        desk.folderSeen("/d", free: 4999)
        #expect(desk.entry.state == .waiting(.diskSpace, until: nil))
        desk.folderSeen("/d", free: 5000)
        #expect(desk.entry.state == .active)
    }
}

private let wrongSizes = [DownloadFailure(.sizeMismatch, "…"), DownloadFailure(.tooLarge, "…")]

@Suite struct `A response of a wrong size` {
    /// As a login page that a server sends instead of the rest of the file.
    @Test(arguments: wrongSizes)
    func `leaves the bytes of earlier responses, and Retry continues from them`(failure: DownloadFailure) throws {
        let desk = makeDesk { ($0.options.size, $0.options.maxSize) = (100, 100) }
        desk.begin(isResumable: true)
        desk.fail(lost, held(30))
        desk.goOn()
        desk.fail(failure, madeProgress: false, held(30))
        #expect(desk.entry.state == .failed(failure))
        #expect(desk.sweeps() == 0)
        #expect(desk.entry.record.resume == held(30) && desk.entry.record.received == 30)
        #expect(desk.rows.downloads[DownloadNumber(1)]?.resume == held(30), "the row has them, too")
        try desk.steer(desk.entry, .retry)
        #expect(desk.entry.state == .active && desk.entry.record.resume == held(30))
    }

    @Test(arguments: wrongSizes, [nil, held(0)] as [ResumeData?]) func `deletes its own bytes`(
        failure: DownloadFailure, resume: ResumeData?
    ) {
        let desk = makeDesk { ($0.options.size, $0.options.maxSize) = (100, 100) }
        desk.begin(isResumable: true)
        desk.fail(failure, madeProgress: false, resume)
        #expect(desk.entry.state == .failed(failure) && desk.sweeps() == 1)
        #expect(desk.entry.record.resume == nil && desk.entry.record.received == 0)
    }

    @Test(arguments: wrongSizes) func `deletes the bytes of a file that has a wrong size itself`(failure: DownloadFailure) {
        let desk = makeDesk { if failure.name == .tooLarge { $0.options.maxSize = 99 } else { $0.options.size = 101 } }
        desk.begin(isResumable: true)
        desk.fail(failure, madeProgress: false, held(30))
        #expect(desk.entry.state == .failed(failure) && desk.sweeps() == 1 && desk.entry.record.resume == nil)
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
