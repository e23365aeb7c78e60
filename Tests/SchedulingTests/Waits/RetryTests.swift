import DownloadModel
import Scheduling
import Testing

@Suite struct `Back-off` {
    @Test(arguments: [(0, 1), (1, 2), (2, 4), (5, 32), (8, 256), (9, 300), (10, 300), (63, 300), (UInt32.max, 300)] as [(UInt32, Int)])
    func `doubles from one second to five minutes, half of it random`(attempt: UInt32, seconds: Int) {
        let whole: Duration = .seconds(seconds)
        #expect(Backoff.delay(attempt: attempt, random: 0, floor: nil) == whole / 2)
        #expect(Backoff.delay(attempt: attempt, random: 0.5, floor: nil) == whole * 3 / 4)
        #expect(Backoff.delay(attempt: attempt, random: 0.999_999, floor: nil) <= whole)
    }

    @Test func `is lengthened by Retry-After and never shortened`() {
        #expect(Backoff.delay(attempt: 0, random: 0.5, floor: .seconds(90)) == .seconds(90))
        #expect(Backoff.delay(attempt: 9, random: 0, floor: .seconds(1)) == .seconds(150))
        #expect(Backoff.delay(attempt: 9, random: 0, floor: .zero) == .seconds(150))
    }
}

@Suite struct `Retries` {
    private let now = WallTime(microseconds: 1_000_000_000_000)

    private func record(used: UInt32, received: ByteCount = 0, retries: UInt32 = 10) -> DownloadRecord {
        var options = DownloadOptions()
        options.retries = retries
        var record = DownloadRecord(
            number: DownloadNumber(1), url: "http://a/", options: options, directory: "/", state: .active, queuedAt: now, position: 0)
        (record.retriesUsed, record.received) = (used, received)
        return record
    }

    private func refusal(_ status: UInt32, retryAfter: Duration? = nil) -> DownloadFailure {
        DownloadFailure(.httpStatus, "…", httpStatus: status, isRetryable: true, retryAfter: retryAfter)
    }

    private let lost = DownloadFailure(.network, "…", isRetryable: true)

    @Test(
        arguments: [
            (408, true), (425, true), (429, true), (500, true), (503, true), (599, true), (404, false), (403, false), (416, false),
            (600, false),
        ] as [(UInt32, Bool)])
    func `follow the statuses that ask for them`(status: UInt32, isRetried: Bool) {
        #expect(DownloadFailure.isRetryable(status: status) == isRetried)
        let (verdict, _, _) = RetryPolicy.verdict(
            record: record(used: 0), failure: refusal(status), madeProgress: false, now: now, random: 0)
        #expect((verdict != .fail) == isRetried)
    }

    @Test(
        arguments: [
            // used, retries, received, progress → delay in ms (random 0), used afterwards
            (0, 10, 0, false, 500, 1), (3, 10, 0, false, 4000, 4), (9, 10, 0, false, 150_000, 10), (10, 10, 0, false, nil, 10),
            (0, 0, 0, false, nil, 0),
            (0, 1, 0, false, 500, 1), (1, 1, 0, false, nil, 1), (10, 10, 5, false, nil, 10), (10, 10, 5, true, 500, 1),
            (5, 0, 5, true, nil, 0),
        ] as [(UInt32, UInt32, ByteCount, Bool, Int?, UInt32)])
    func `of a server's refusal are counted, and progress resets the count`(
        used: UInt32, retries: UInt32, received: ByteCount, progress: Bool, delay: Int?, after: UInt32
    ) {
        let (verdict, usedAfter, _) = RetryPolicy.verdict(
            record: record(used: used, received: received, retries: retries), failure: refusal(503), madeProgress: progress, now: now,
            random: 0)
        #expect(verdict == delay.map { .wait(.retry, until: now + .milliseconds($0)) } ?? .fail)
        #expect(usedAfter == after)
    }

    @Test(
        arguments: [
            // used, uncounted, retries, received, progress → delay in ms (random 0), used and uncounted afterwards
            (0, 0, 10, 0, false, 500, 1, 0), (10, 0, 10, 0, false, nil, 10, 0), (0, 0, 0, 0, false, nil, 0, 0),  // never reached: counted
            (0, 0, 0, 0, true, 500, 0, 1), (7, 7, 0, 0, true, 500, 0, 1), (0, 0, 0, 5, false, 500, 0, 1),
            (0, 8, 0, 5, false, 128_000, 0, 9), (0, 9, 0, 5, false, 150_000, 0, 10), (3, 4, 10, 5, false, 64_000, 3, 5),
            (10, 0, 10, 5, false, 150_000, 10, 1),  // bytes received: always retried, ever later
        ] as [(UInt32, UInt32, UInt32, ByteCount, Bool, Int?, UInt32, UInt32)])
    func `of a lost connection are counted only until bytes are received`(
        used: UInt32, uncounted: UInt32, retries: UInt32, received: ByteCount, progress: Bool, delay: Int?, after: UInt32, others: UInt32
    ) {
        for name in [ErrorName.network, .timeout, .truncated] {
            let failure = DownloadFailure(name, "…", isRetryable: true)
            let (verdict, usedAfter, uncountedAfter) = RetryPolicy.verdict(
                record: record(used: used, received: received, retries: retries), failure: failure, madeProgress: progress,
                uncounted: uncounted, now: now, random: 0)
            #expect(verdict == delay.map { .wait(.retry, until: now + .milliseconds($0)) } ?? .fail)
            #expect(usedAfter == after && uncountedAfter == others)
        }
    }

    @Test(arguments: [
        DownloadFailure(.network, "…", isRetryable: true), DownloadFailure(.network, "…", isRetryable: true, wait: .offline),
        DownloadFailure(.diskFull, "…", wait: .diskSpace), DownloadFailure(.network, "…", isRetryable: true, wait: .retry),
    ])
    func `are not used up by failures that do not count, so a refusal has all of them`(failure: DownloadFailure) {
        var record = record(used: 0, received: 5, retries: 3)
        var uncounted: UInt32 = 0
        for _ in 0..<5 {
            let (verdict, used, others) = RetryPolicy.verdict(
                record: record, failure: failure, madeProgress: false, uncounted: uncounted, now: now, random: 0)
            #expect(verdict != .fail)
            (record.retriesUsed, uncounted) = (used, others)
        }
        let (verdict, used, _) = RetryPolicy.verdict(
            record: record, failure: refusal(503), madeProgress: false, uncounted: uncounted, now: now, random: 0)
        #expect(verdict == .wait(.retry, until: now + .seconds(16)) && used == 1)
    }

    /// The host name does not exist: DNS answers NXDOMAIN.
    @Test(
        arguments: [
            (0, 10, 0, 500), (1, 10, 0, 1000), (2, 10, 0, nil), (1, 1, 0, nil), (0, 0, 0, nil), (2, 10, 5, 2000), (9, 10, 5, 150_000),
        ] as [(UInt32, UInt32, ByteCount, Int?)])
    func `of a host that does not exist are two, unless bytes of it are on disk`(
        used: UInt32, retries: UInt32, received: ByteCount, delay: Int?
    ) {
        var failure = lost
        failure.isOfMissingHost = true
        let (verdict, _, _) = RetryPolicy.verdict(
            record: record(used: used, received: received, retries: retries), failure: failure, madeProgress: false, now: now, random: 0)
        #expect(verdict == delay.map { .wait(.retry, until: now + .milliseconds($0)) } ?? .fail)
    }

    @Test func `wait as long as the server says`() {
        let failure = refusal(429, retryAfter: .seconds(3600))
        let (verdict, _, _) = RetryPolicy.verdict(record: record(used: 0), failure: failure, madeProgress: false, now: now, random: 0.9)
        #expect(verdict == .wait(.retry, until: now + .seconds(3600)))
    }

    @Test(arguments: [ErrorName.network, .tls, .checksumMismatch, .diskFull])
    func `are not made if they cannot succeed`(name: ErrorName) {
        let failure = DownloadFailure(name, "…", isRetryable: false)
        let (verdict, used, _) = RetryPolicy.verdict(
            record: record(used: 2, received: 9), failure: failure, madeProgress: false, now: now, random: 0)
        #expect(verdict == .fail)
        #expect(used == 2)
    }

    /// The server never heard of these attempts, so they do not use up `retries`.
    @Test(arguments: [(0, 500), (1, 1000), (4, 8000), (9, 150_000), (70, 150_000)] as [(UInt32, Int)])
    func `are not used up by a desktop that does not name the proxy, but grow rarer`(uncounted: UInt32, delay: Int) {
        let unknown = DownloadFailure(.network, "…", isRetryable: true, wait: .retry)
        for (used, retries, received) in [(0, 0, 0), (3, 10, 0), (10, 10, 0), (10, 10, 5)] as [(UInt32, UInt32, ByteCount)] {
            let (verdict, after, _) = RetryPolicy.verdict(
                record: record(used: used, received: received, retries: retries), failure: unknown, madeProgress: false,
                uncounted: uncounted, now: now, random: 0)
            #expect(verdict == .wait(.retry, until: now + .milliseconds(delay)))
            #expect(after == used)
        }
    }

    @Test func `end after the requested number`() {
        var record = record(used: 0, retries: 3)
        var tries = 0
        while true {
            let (verdict, used, _) = RetryPolicy.verdict(record: record, failure: lost, madeProgress: false, now: now, random: 0.5)
            record.retriesUsed = used
            if verdict == .fail { break }
            tries += 1
            #expect(tries < 100)
        }
        #expect(tries == 3)
    }

    @Test(arguments: [401, 403, 410] as [UInt32])
    func `wait for a fresh link if the owner can give one`(status: UInt32) {
        var record = record(used: 3)
        let failure = DownloadFailure(.httpStatus, "…", httpStatus: status)
        func verdict() -> RetryPolicy.Verdict {
            RetryPolicy.verdict(record: record, failure: failure, madeProgress: false, now: now, random: 0).0
        }
        #expect(verdict() == .fail)
        record.options.renewable = true
        #expect(verdict() == .wait(.needsUrl, until: nil))
        let missing = DownloadFailure(.httpStatus, "…", httpStatus: 404)
        #expect(RetryPolicy.verdict(record: record, failure: missing, madeProgress: false, now: now, random: 0).0 == .fail)
    }

    @Test func `wait for the disk and the network without counting, but count a disk that fails`() {
        let record = record(used: 10, retries: 10)
        func verdict(_ name: ErrorName, _ wait: WaitReason, isRetryable: Bool = false) -> RetryPolicy.Verdict {
            RetryPolicy.verdict(
                record: record,
                failure: DownloadFailure(
                    name, "…", isRetryable: isRetryable, wait: wait, neededRoom: wait == .diskSpace ? 5 : nil),
                madeProgress: false, now: now, random: 0
            ).0
        }
        #expect(verdict(.diskFull, .diskSpace) == .wait(.diskSpace, until: nil))
        #expect(verdict(.permissionDenied, .destination) == .wait(.destination, until: nil))
        #expect(verdict(.network, .offline, isRetryable: true) == .wait(.offline, until: now + .seconds(150)))
        #expect(verdict(.writeFailed, .destination, isRetryable: true) == .fail)
    }
}

@Suite struct `A shortage of this machine at the end of a download` {
    private let shortage = DownloadFailure(.writeFailed, "Todoku cannot open the folder in /d: Too many open files.", isRetryable: true)

    /// `state`: when the shortage comes. The request had a body, so that only the whole part file lets the download go on.
    private func fallen(_ state: DownloadState, retries: UInt32 = 10) -> (Desk, ScheduledDownload) {
        let desk = Desk()
        let entry = desk.add(1) {
            ($0.options.postData, $0.options.retries) = ([1], retries)
            if state == .extracting { $0.options.extract = .namedAfterArchive }
        }
        let part = FileIdentity(device: 1, inode: 7, mount: 1, boot: "b")
        desk.began(entry, total: 10)
        desk.ends(entry, .complete(size: 10, fileName: "f.zip", ResumeData(written: 10, total: 10, validator: nil, identity: part)))
        if state != .verifying { desk.verified(entry, part) }
        #expect(entry.state == state)
        desk.endingFailed(entry, shortage)
        return (desk, entry)
    }

    @Test(arguments: [DownloadState.verifying, .extracting, .committing])
    func `is waited for, and nothing is downloaded again`(state: DownloadState) {
        let (desk, entry) = fallen(state)
        #expect(entry.state.name == "waiting" && entry.record.lastFailure == shortage, "\(entry.state)")
        desk.waitUntilDue()
        #expect(entry.state == .verifying && desk.started == [1], "\(entry.state)")
    }

    @Test func `fails the download after its retries`() {
        let (_, entry) = fallen(.committing, retries: 0)
        #expect(entry.state == .failed(shortage))
    }

    @Test func `is waited for ever later under a quota, and uses up no retry`() {
        let (desk, entry) = fallen(.committing, retries: 1)
        let quota = DownloadFailure(.diskFull, "…", wait: .diskSpace)
        var delays: [Duration] = []
        for _ in 0..<3 {
            desk.waitUntilDue()
            desk.verified(entry, FileIdentity(device: 1, inode: 7, mount: 1, boot: "b"))
            #expect(entry.state == .committing)
            desk.endingFailed(entry, quota)
            if case .waiting(.diskSpace, let until?) = entry.state { delays.append(until - desk.now) }
        }
        #expect(delays == [.seconds(1), .seconds(2), .seconds(4)] && entry.record.retriesUsed == 1, "\(delays)")
    }
}
