import DownloadModel
import Testing

@testable import Scheduling

/// The causes that may stop a transfer during its last bytes.
private enum Stop: String, CaseIterable {
    case pause, pauseAll, sleep, metered, renewed

    func stop(_ ledger: Ledger, _ entry: LedgerEntry, _ now: WallTime) throws {
        switch self {
        case .pause: try ledger.apply(.pause, to: entry, now: now)
        case .pauseAll: ledger.pauseAll(now: now)
        case .sleep: ledger.sleep(now: now)
        case .metered: ledger.network(NetworkCondition(isMetered: true), now: now)
        case .renewed: try ledger.replaceUrl(entry, FreshLink(DownloadURL("http://h/fresh")), now: now)
        }
    }

    func goOn(_ ledger: Ledger, _ entry: LedgerEntry, _ now: WallTime) throws {
        switch self {
        case .pause: try ledger.apply(.resume, to: entry, now: now)
        case .pauseAll: ledger.resumeAll(now: now)
        case .sleep: ledger.wake(now: now)
        case .metered: ledger.network(.open, now: now)
        case .renewed: break
        }
        ledger.schedule(now: now)
    }
}

@Suite struct `A stop during the last bytes` {
    private let now = WallTime(microseconds: 1_000_000_000_000_000)
    private let identity = FileIdentity(device: 1, inode: 2, mount: 3, boot: "b")

    private func active(_ change: (inout DownloadRecord) -> Void = { _ in }) -> (Ledger, LedgerEntry) {
        let ledger = Ledger(settings: Settings(), jitter: .fixed(0))
        var record = DownloadRecord(
            number: DownloadNumber(1), url: "http://h/of%20url", options: DownloadOptions(), directory: "/d", state: .queued, queuedAt: now,
            position: 1)
        record.options.allowsMetered = false
        change(&record)
        let entry = ledger.insert(record)
        ledger.enter(entry, now: now)
        #expect(entry.state == .active)
        return (ledger, entry)
    }

    @Test(arguments: Stop.allCases, [true, false])
    fileprivate func `keeps the facts of the response, over kill -9 too`(stop: Stop, isToldBefore: Bool) throws {
        let (ledger, entry) = active()
        func begin() { ledger.transferBegan(entry, fileName: "told", mediaType: "a/b", total: 9, offset: 4, now: now) }
        if isToldBefore { begin() }
        try stop.stop(ledger, entry, now)
        if !isToldBefore { begin() }
        let part = ResumeData(written: 4, total: 9, validator: nil, identity: identity)
        _ = ledger.output.take()
        ledger.transferEnded(entry.number, .complete(size: 9, fileName: "told", part), now: now)
        let rows = ledger.output.take().compactMap { if case .save(.put(let record)) = $0 { record } else { nil } }
        let row = try #require(rows.last)
        #expect((row.fileName, row.mediaType, row.total) == ("told", "a/b", 9))
        #expect(row.isSpliced, "only a checksum proves that its pieces belong together")
        #expect(row.isWhole || entry.state == .verifying)

        let later = Ledger(settings: ledger.settings, jitter: .fixed(0))
        later.restore([row], sweeps: [:], now: now)
        for (ledger, entry) in [(ledger, entry), (later, later[entry.number]!)] {
            try stop.goOn(ledger, entry, now)
            #expect(entry.state == .verifying, "\(entry.state)")
            #expect(entry.record.finalName == "told")
        }
    }

    @Test func `keeps the held bytes if the file name is taken`() throws {
        let held = ResumeData(written: 4, total: 9, validator: .entityTag("\"v\""), identity: identity)
        let (ledger, entry) = active {
            ($0.resume, $0.received) = (held, 4)
            $0.options.ifExists = .fail
        }
        try ledger.apply(.pause, to: entry, now: now)
        ledger.transferEnded(entry.number, .nameTaken(path: "/d/f"), now: now)
        #expect(entry.state == .paused && entry.record.resume == held && entry.record.received == 4)
    }

    @Test func `and a taken name that is skipped tells nothing of an earlier response`() {
        let (ledger, entry) = active { $0.options.ifExists = .skip }
        ledger.transferBegan(
            entry, fileName: "other", mediaType: "a/b", source: "http://h/other", total: 9, offset: 0, isResumable: true, now: now)
        ledger.transferEnded(entry.number, .nameTaken(path: "/d/f"), now: now)
        let record = entry.record
        #expect(record.state == .finished && record.path == "/d/f" && record.fileName == "f")
        #expect((record.total, record.mediaType, record.source) == (nil, nil, nil))
    }

    @Test func `leaves a missing file name to the option and the URL`() {
        let (_, entry) = active()
        #expect(entry.record.finalName == "of url")
        #expect(active { $0.options.fileName = "wanted" }.1.record.finalName == "wanted")
        #expect(active { $0.url = "http://h/" }.1.record.finalName == "download")
    }
}
