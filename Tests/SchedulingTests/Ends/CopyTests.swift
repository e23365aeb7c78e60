import DownloadModel
import Scheduling
import Testing

private let source = "http://h/a"

@Suite struct `The condition of a later request` {
    private func validators(
        _ tag: String?, _ modified: String? = nil, date: String? = "Fri, 20 Nov 2026 12:00:00 GMT", vary: String? = nil
    ) -> CopyValidators? {
        CopyValidators(entityTag: tag, lastModified: modified, date: date, vary: vary, source: source)
    }

    @Test(arguments: ["\"1\"", "W/\"1\"", " \"1\"\t", "\"\""])
    func `is an entity tag, weak or strong`(tag: String) {
        #expect(validators(tag)?.entityTag == tag.split { " \t".contains($0) }.joined())
        #expect(validators(tag)?.source == source)
    }

    @Test(arguments: ["1", "\"1", "W/1", "w/\"1\"", "\"1\" x", "\"a\nb\"", "", "W/", String(repeating: "x", count: 2000)])
    func `is never a malformed entity tag`(tag: String) { #expect(validators(tag) == nil) }

    @Test func `is a date at least a minute old, of a response that does not vary`() {
        let old = "Fri, 20 Nov 2026 11:58:59 GMT"
        #expect(validators(nil, old)?.lastModified == old)
        #expect(validators("W/\"1\"", old) == CopyValidators(entityTag: "W/\"1\"", lastModified: old, source: source))
        #expect(validators(nil, "Fri, 20 Nov 2026 11:59:30 GMT") == nil)
        #expect(validators(nil, old, date: nil) == nil)
        #expect(validators(nil, "yesterday") == nil)
        #expect(validators(nil, old, vary: "Accept-Encoding")?.lastModified == old)
        for vary in ["Accept", "*", "accept-encoding, Accept-Language"] {
            #expect(validators(nil, old, vary: vary) == nil)
            #expect(validators("\"1\"", old, vary: vary) == CopyValidators(entityTag: "\"1\"", lastModified: nil, source: source))
        }
    }

    @Test func `is the validator of bytes from several responses, but no date if the last of them varies`() {
        let (tag, date) = (Validator.entityTag("\"1\""), Validator.lastModified("Fri, 20 Nov 2026 11:58:59 GMT"))
        for vary in [nil, "Accept-Encoding"] as [String?] {
            #expect(CopyValidators(date, vary: vary, source: source)?.lastModified == date.ifRange)
        }
        for vary in ["Accept", "*", "accept-encoding, Accept-Language"] {
            #expect(CopyValidators(date, vary: vary, source: source) == nil)
            #expect(CopyValidators(tag, vary: vary, source: source)?.entityTag == tag.ifRange)
        }
    }

    @Test(
        arguments: [
            ("\"1\"", nil, true), ("\"1\"", "\"1\"", true), ("\"1\"", "W/\"1\"", true), ("W/\"1\"", "\"1\"", true),
            ("\"1\"", "\"2\"", false),
            ("W/\"1\"", "W/\"2\"", false),
        ] as [(String, String?, Bool)])
    func `matches a 304 if the tags are equal by weak comparison`(own: String, theirs: String?, isSame: Bool) {
        let validators = CopyValidators(entityTag: own, lastModified: "x", source: source)
        #expect(validators.matches(entityTag: theirs, lastModified: "y") == isSame)
    }

    @Test func `matches a 304 if the dates are the same instant`() {
        let validators = CopyValidators(entityTag: nil, lastModified: "Fri, 20 Nov 2026 11:58:59 GMT", source: source)
        #expect(validators.matches(entityTag: "\"1\"", lastModified: nil))
        #expect(validators.matches(entityTag: nil, lastModified: "Friday, 20-Nov-26 11:58:59 GMT"))
        #expect(!validators.matches(entityTag: nil, lastModified: "Fri, 20 Nov 2026 11:59:00 GMT"))
    }
}

@Suite struct `A file stamp` {
    private func stamp(_ change: (inout FileStamp) -> Void = { _ in }) -> FileStamp {
        var stamp = FileStamp(identity: FileIdentity(device: 1, inode: 2, mount: 3, boot: "b"), size: 10, modified: 99)
        change(&stamp)
        return stamp
    }

    @Test func `matches the same file only if nothing differs, except the device after a reboot`() {
        #expect(stamp().isOf(stamp()))
        #expect(stamp().isOf(stamp { $0.identity.mount = 9 }))
        #expect(stamp().isOf(stamp { ($0.identity.boot, $0.identity.device) = ("c", 7) }))
        #expect(!stamp().isOf(stamp { $0.identity.device = 7 }))
        #expect(!stamp().isOf(stamp { $0.identity.inode = 7 }))
        #expect(!stamp().isOf(stamp { $0.size = 11 }))
        #expect(!stamp().isOf(stamp { $0.modified = 100 }))
    }
}

/// A desk with one download that is on disk already.
private func makeDesk(state: DownloadState = .queued, _ change: (inout DownloadRecord) -> Void = { _ in }) -> Desk {
    let record = Desk.record(1, source, state: state) {
        $0.isFetch = true
        change(&$0)
    }
    return Desk([record])
}

extension Desk {
    fileprivate var entry: ScheduledDownload { self[1] }

    fileprivate var copy: CachedCopy {
        CachedCopy(
            key: entry.record.copyKey, name: "a", stamp: FileStamp(identity: identity, size: 10, modified: 5),
            validators: CopyValidators(entityTag: "\"1\"", lastModified: nil, source: source), mediaType: "text/plain")
    }
}

private let identity = FileIdentity(device: 1, inode: 2, mount: 3, boot: "b")

@Suite struct `The scheduler, about copies and descriptors` {
    @Test func `ends a download with the copy after a 304, and keeps the copy as the newest`() {
        let desk = makeDesk()
        desk.ends(desk.entry, .unchanged(desk.copy))
        let record = desk.entry.record
        #expect(record.state == .finished && record.isUnchanged && record.path == "/d/a" && record.fileName == "a")
        #expect(record.received == 10 && record.total == 10 && record.mediaType == "text/plain" && record.resume?.identity == identity)
        let saves = desk.actions.saves
        #expect(saves.contains(.keepCopy(desk.copy)))
        #expect(saves.last == .put(record) || saves.contains(.put(record)))
        #expect(saves.contains(.sweep(desk.entry.number, directory: "/d")), "of a process before, there may be a part file")
    }

    @Test(arguments: [(source, nil), ("https://cdn/v1/a?key=hidden", "https://cdn/v1/a")] as [(String, String?)])
    func `names the URL that a redirect has led to, without its query, also after a 304`(answering: String, shown: String?) {
        let desk = makeDesk()
        var copy = desk.copy
        copy.validators?.source = answering
        desk.ends(desk.entry, .unchanged(copy))
        #expect(desk.entry.record.source == shown)
        #expect(desk.actions.saves.contains { if case .put(let row) = $0 { row.source == shown && row.state == .finished } else { false } })
    }

    @Test func `deletes received bytes that equal the copy`() {
        let desk = makeDesk()
        desk.began(desk.entry, fileName: "b", mediaType: "text/plain", total: 10, offset: 0)
        let part = ResumeData(written: 0, total: 10, validator: nil, identity: FileIdentity(device: 1, inode: 9, mount: 3, boot: "b"))
        desk.ends(desk.entry, .complete(size: 10, fileName: "b", part))
        #expect(desk.entry.state == .verifying)
        desk.foundUnchanged(desk.entry, desk.copy)
        #expect(desk.entry.state == .finished && desk.entry.record.path == "/d/a" && desk.entry.record.resume?.identity == identity)
        let actions = desk.actions
        #expect(actions.contains { if case .sweep(desk.entry.number, "/d") = $0 { true } else { false } })
        #expect(actions.contains { if case .announceEnd = $0 { true } else { false } })
        #expect(actions.contains { if case .save(.keepCopy(desk.copy)) = $0 { true } else { false } })
    }

    @Test func `drops bytes that arrive too late for a cancelled download`() throws {
        let desk = makeDesk()
        try desk.steer(desk.entry, .cancel)
        desk.ends(desk.entry, .unchanged(desk.copy))
        #expect(desk.entry.state == .cancelled && desk.entry.record.path == nil && !desk.entry.record.isUnchanged)
        #expect(!desk.history.saves.contains(.keepCopy(desk.copy)))
    }

    @Test(arguments: [DownloadState.queued, .paused, .committing, .waiting(.retry, until: nil), .verifying])
    func `ends downloads into descriptors of an earlier process, and never starts them again`(state: DownloadState) {
        let desk = makeDesk(state: state) { ($0.isToDescriptor, $0.directory, $0.isFetch) = (true, "", false) }
        #expect(desk.started == [])
        #expect(desk.entry.state.failure?.name == .interrupted)
        #expect(!desk.history.saves.contains { if case .sweep = $0 { true } else { false } })
        for event in [DownloadEvent.retry, .renew] {
            #expect(throws: IllegalTransition.self) { try desk.steer(desk.entry, event) }
        }
        #expect(desk.entry.state.failure?.name == .interrupted)
        #expect(desk.scheduler.counts.remaining == 0)
    }

    @Test func `holds a descriptor until nothing uses it any more`() throws {
        let desk = Desk()
        desk.add(1, source) { ($0.isToDescriptor, $0.directory) = (true, "") }
        let number = desk.entry.number
        desk.began(desk.entry, fileName: "b", mediaType: nil, total: 10, offset: 0)
        #expect(!desk.scheduler.isDone(number))
        try desk.steer(desk.entry, .cancel)
        #expect(!desk.scheduler.isDone(number), "the transfer writes still")
        desk.ends(desk.entry, .stopped(nil))
        #expect(!desk.scheduler.isDone(number), "the file is to be emptied")
        desk.swept(number)
        #expect(desk.scheduler.isDone(number) && desk.scheduler.isDone(DownloadNumber(77)))
        #expect(!desk.scheduler.allRows.contains { if case .sweep = $0 { true } else { false } })
    }
}
