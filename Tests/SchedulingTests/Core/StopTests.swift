import DownloadModel
import Scheduling
import Testing

/// The causes that may stop a transfer during its last bytes.
private enum Stop: String, CaseIterable {
    case pause, pauseAll, sleep, metered, renewed

    func stop(_ desk: Desk, _ entry: ScheduledDownload) throws {
        switch self {
        case .pause: try desk.steer(entry, .pause)
        case .pauseAll: desk.pauseAll()
        case .sleep: desk.sleeps()
        case .metered: desk.network(NetworkCondition(isMetered: true))
        case .renewed: try desk.replaceUrl(entry, DownloadURL("http://h/fresh"))
        }
    }

    func goOn(_ desk: Desk, _ entry: ScheduledDownload) throws {
        switch self {
        case .pause: try desk.steer(entry, .resume)
        case .pauseAll: desk.resumeAll()
        case .sleep: desk.wakes()
        case .metered: desk.network(.open)
        case .renewed: break
        }
    }
}

@Suite struct `A stop during the last bytes` {
    private let identity = FileIdentity(device: 1, inode: 2, mount: 3, boot: "b")

    private func active(_ change: (inout DownloadRecord) -> Void = { _ in }) -> (Desk, ScheduledDownload) {
        let desk = Desk()
        let entry = desk.add(1, "http://h/of%20url") {
            $0.options.allowsMetered = false
            change(&$0)
        }
        #expect(entry.state == .active)
        return (desk, entry)
    }

    @Test(arguments: Stop.allCases, [true, false])
    fileprivate func `keeps the facts of the response, over kill -9 too`(stop: Stop, isToldBefore: Bool) throws {
        let (desk, entry) = active()
        func begin() { desk.began(entry, fileName: "told", mediaType: "a/b", total: 9, offset: 4) }
        if isToldBefore { begin() }
        try stop.stop(desk, entry)
        if !isToldBefore { begin() }
        let part = ResumeData(written: 4, total: 9, validator: nil, identity: identity)
        desk.ends(entry, .complete(size: 9, fileName: "told", part))
        let row = try #require(desk.actions.rows.last)
        #expect((row.fileName, row.mediaType, row.total) == ("told", "a/b", 9))
        #expect(row.isSpliced, "only a checksum proves that its pieces belong together")
        #expect(row.isWhole || entry.state == .verifying)

        let later = Desk([row]) { $0 = desk.scheduler.settings }
        for (desk, entry) in [(desk, entry), (later, later[1])] {
            try stop.goOn(desk, entry)
            #expect(entry.state == .verifying, "\(entry.state)")
            #expect(entry.record.finalName == "told")
        }
    }

    @Test func `keeps the held bytes if the file name is taken`() throws {
        let held = ResumeData(written: 4, total: 9, validator: .entityTag("\"v\""), identity: identity)
        let (desk, entry) = active {
            ($0.resume, $0.received) = (held, 4)
            $0.options.ifExists = .fail
        }
        try desk.steer(entry, .pause)
        desk.ends(entry, .nameTaken(path: "/d/f"))
        #expect(entry.state == .paused && entry.record.resume == held && entry.record.received == 4)
    }

    @Test(arguments: [true, false]) func `keeps the facts of the held bytes if the body of another file is dropped`(isPaused: Bool) throws {
        let held = ResumeData(written: 4, total: 9, validator: .entityTag("\"v\""), identity: identity)
        let (desk, entry) = active { ($0.resume, $0.received) = (held, 4) }
        desk.began(entry, fileName: "other", mediaType: "c/d", source: "http://h/other", total: 5, offset: 0, isResumable: false)
        if isPaused { try desk.steer(entry, .pause) }
        desk.bodyDropped(entry, fileName: "told", mediaType: "a/b", total: 9, offset: 4)
        desk.ends(entry, isPaused ? .stopped(held) : .failed(DownloadFailure(.httpStatus, "no"), madeProgress: false, held))
        let row = try #require(desk.actions.rows.last)
        #expect((row.fileName, row.mediaType, row.total) == ("told", "a/b", 9))
        #expect(row.source == nil && row.resume == held && row.state.name == (isPaused ? "paused" : "failed"))
    }

    /// The engine does not report that it has dropped the body, because its thread waits for the disk.
    @Test(arguments: [false, true])
    func `keeps the facts of the held bytes if the disk is silent while another file comes`(isPaused: Bool) throws {
        let held = ResumeData(written: 4, total: 9, validator: .entityTag("\"v\""), identity: identity)
        let (desk, entry) = active {
            ($0.resume, $0.received, $0.total) = (held, 4, 9)
            ($0.fileName, $0.mediaType, $0.source) = ("told", "a/b", "http://h/told")
        }
        desk.began(entry, fileName: "other", mediaType: "c/d", source: "http://h/other", total: 5, offset: 0, isResumable: false)
        #expect(entry.record.fileName == "other" && entry.record.total == 5)
        if isPaused { try desk.steer(entry, .pause) }
        desk.fails(entry, DownloadFailure(.writeFailed, "The disk of /d does not answer.", wait: .destination), held)
        let row = try #require(desk.actions.rows.last)
        #expect((row.fileName, row.mediaType, row.total) == ("told", "a/b", 9) && row.source == "http://h/told")
        #expect(row.resume == held && row.state.name == (isPaused ? "paused" : "waiting"), "\(row.state)")
    }

    @Test func `keeps the facts of another file that has replaced the held bytes before the disk fell silent`() throws {
        let (desk, entry) = active {
            $0.resume = ResumeData(written: 4, total: 9, validator: .entityTag("\"v\""), identity: identity)
            ($0.received, $0.total, $0.fileName) = (4, 9, "told")
        }
        desk.began(entry, fileName: "other", total: 20, offset: 0)
        let new = FileIdentity(device: 1, inode: 3, mount: 3, boot: "b")
        desk.checkpoint(entry, ResumeData(written: 0, total: 20, validator: .entityTag("\"w\""), identity: new))
        let part = ResumeData(written: 5, total: 20, validator: .entityTag("\"w\""), identity: new)
        desk.fails(entry, DownloadFailure(.writeFailed, "The disk of /d does not answer.", wait: .destination), part)
        let row = try #require(desk.actions.rows.last)
        #expect((row.fileName, row.total) == ("other", 20) && row.resume == part)
    }

    @Test func `changes nothing about a removed download whose body is dropped`() throws {
        let (desk, entry) = active()
        desk.began(entry, fileName: "other", total: 5)
        try desk.remove(entry)
        desk.bodyDropped(entry, fileName: "told", mediaType: nil, total: 9, offset: 4)
        #expect(entry.record.fileName != "told" && desk.actions.rows.isEmpty)
    }

    @Test func `keeps no facts of an earlier response if the name is taken and skipped`() {
        let (desk, entry) = active { $0.options.ifExists = .skip }
        desk.began(
            entry, fileName: "other", mediaType: "a/b", source: "http://h/other", total: 9, offset: 0, isResumable: true)
        desk.ends(entry, .nameTaken(path: "/d/f"))
        let record = entry.record
        #expect(record.state == .finished && record.path == "/d/f" && record.fileName == "f")
        #expect((record.total, record.mediaType, record.source) == (nil, nil, nil))
    }

    @Test func `leaves a missing file name to the option and the URL`() {
        let (_, entry) = active()
        #expect(entry.record.finalName == "of url")
        #expect(active { $0.options.fileName = "wanted" }.1.record.finalName == "wanted")
        #expect(active { $0.url = "http://h/" }.1.record.finalName == "h")
    }
}
