import DownloadModel
import Testing

@testable import Scheduling

/// A ledger with downloads that are on disk already.
private struct Desk {
    let ledger: Ledger
    var now = WallTime(microseconds: 1_000_000_000_000_000)

    init(settings: Settings = Settings(), _ records: [DownloadRecord]) {
        ledger = Ledger(settings: settings, jitter: .fixed(0))
        ledger.restore(records, sweeps: [:], now: now)
        ledger.schedule(now: now)
    }

    static func record(_ number: UInt64, _ change: (inout DownloadRecord) -> Void = { _ in }) -> DownloadRecord {
        var record = DownloadRecord(
            number: DownloadNumber(number), url: "http://h/\(number)", options: DownloadOptions(), directory: "/d", state: .queued,
            queuedAt: WallTime(microseconds: 1), position: DownloadQueue.position(of: DownloadNumber(number)))
        change(&record)
        return record
    }

    func entry(_ number: UInt64) -> LedgerEntry { ledger[DownloadNumber(number)]! }
    func state(_ number: UInt64) -> DownloadState { entry(number).state }

    func fail(_ number: UInt64, _ failure: DownloadFailure) {
        ledger.transferEnded(DownloadNumber(number), .failed(failure, madeProgress: false, nil), now: now)
    }
}

private let refusal = DownloadFailure(.httpStatus, "…", httpStatus: 503, isRetryable: true, retryAfter: .seconds(100))

@Suite struct `The ledger` {
    @Test func `keeps a download paused that PauseAll paused before its row was on disk`() throws {
        let desk = Desk([])
        let later = desk.now + .seconds(500)
        let record = Desk.record(1) {
            $0.options.notBefore = later
            $0.state = .waiting(.notBefore, until: later)
        }
        let entry = desk.ledger.insert(record)
        desk.ledger.pauseAll(now: desk.now)
        desk.ledger.enter(entry, now: desk.now)
        #expect(entry.state == .waiting(.pausedAll, until: nil))
        desk.ledger.resumeAll(now: desk.now)
        desk.ledger.continueSlices(now: desk.now)
        #expect(entry.state == .waiting(.notBefore, until: later))
    }

    @Test func `does not treat texts as equal that only look the same`() {
        // "é" as one character and as two: equal for Swift, but different folders and files.
        let (composed, decomposed) = ("caf\u{E9}", "cafe\u{301}")
        let desk = Desk(
            [composed, decomposed].enumerated().map { index, name in
                Desk.record(UInt64(index + 1)) {
                    $0.directory = "/\(name)"
                    $0.options.fileName = name
                }
            })
        for (number, name) in [(UInt64(1), composed), (2, decomposed)] {
            let record = desk.entry(number).record
            #expect(Array(record.directory.utf8) == Array("/\(name)".utf8))
            #expect(record.options.fileName.map { Array($0.utf8) } == Array(name.utf8))
        }
    }

    @Test func `moves waits and deadlines with a clock change, but not not-before`() throws {
        var desk = Desk([
            Desk.record(1) { $0.options.deadline = .seconds(1000) },
            Desk.record(2) {
                $0.url = "http://other/2"  // a server's pause applies to its host
                $0.options.notBefore = WallTime(microseconds: 1_000_000_500_000_000)
            },
        ])
        let start = desk.now
        #expect(desk.state(2) == .waiting(.notBefore, until: start + .seconds(500)))
        desk.fail(1, refusal)
        #expect(desk.state(1) == .waiting(.retry, until: start + .seconds(100)))
        desk.now = desk.now + .seconds(3600)
        desk.ledger.clockJumped(by: .seconds(3600), now: desk.now)
        #expect(desk.state(1) == .waiting(.retry, until: start + .seconds(3700)))
        #expect(desk.entry(1).record.expiresAt == start + .seconds(4600))
        #expect(desk.state(2) == .active, "its instant has come by the clock")
        #expect(desk.ledger.nextWake == start + .seconds(3700))
    }

    @Test func `moves waits with a clock change in slices, and ends none by the old clock`() throws {
        var desk = Desk((1...4).map { number in Desk.record(number) { $0.url = "http://h\(number)/" } })
        let start = desk.now
        for number in 1...4 { desk.fail(UInt64(number), refusal) }
        desk.ledger.sliceSize.cost = 1
        desk.now = desk.now + .seconds(3600)
        desk.ledger.clockJumped(by: .seconds(3600), now: desk.now)
        #expect(desk.ledger.hasSlices)
        // A download that changes before its slice is moved first.
        try desk.ledger.apply(.pause, to: desk.entry(4), now: desk.now)
        try desk.ledger.apply(.resume, to: desk.entry(4), now: desk.now)
        for number in 1...4 { #expect(desk.state(UInt64(number)) == .waiting(.retry, until: start + .seconds(3700)), "\(number)") }
        while desk.ledger.hasSlices { desk.ledger.continueSlices(now: desk.now) }
        for number in 1...4 { #expect(desk.state(UInt64(number)) == .waiting(.retry, until: start + .seconds(3700)), "\(number)") }
        desk.ledger.clockJumped(by: .seconds(-3600), now: start)
        while desk.ledger.hasSlices { desk.ledger.continueSlices(now: start) }
        for number in 1...4 { #expect(desk.state(UInt64(number)) == .waiting(.retry, until: start + .seconds(100)), "\(number)") }
    }

    @Test func `assigns free space in slices, and none of it twice`() {
        let full = DownloadFailure(.diskFull, "…", wait: .diskSpace, neededRoom: 1000)
        let desk = Desk((1...4).map { number in Desk.record(number) { $0.total = 1000 } })
        for number in 1...4 { desk.fail(UInt64(number), full) }
        desk.ledger.sliceSize.cost = 1
        desk.ledger.folderSeen("/d", free: 2000, now: desk.now)
        #expect(desk.state(1) == .active && desk.state(2) == .waiting(.diskSpace, until: nil))
        while desk.ledger.hasSlices { desk.ledger.continueSlices(now: desk.now) }
        #expect((1...4).map { desk.state($0) == .active } == [true, true, false, false])
    }

    @Test func `rejects instants that only a clock set back explains`() {
        let desk = Desk([Desk.record(1) { $0.retryAt = WallTime(microseconds: 2_000_000_000_000_000) }])
        #expect(desk.state(1) == .active)
    }

    @Test func `gives free space to the downloads that waited first, and to no more than fit`() {
        var full = refusal
        full = DownloadFailure(.diskFull, "…", wait: .diskSpace, neededRoom: 1000)
        let desk = Desk((1...3).map { number in Desk.record(number) { $0.total = 1000 } })
        for number in 1...3 { desk.fail(UInt64(number), full) }
        #expect(desk.ledger.counts.awaitingFolder == 3 && desk.ledger.awaitedFolders == ["/d"])
        desk.ledger.folderSeen("/d", free: 999, now: desk.now)
        #expect((1...3).allSatisfy { desk.state($0) == .waiting(.diskSpace, until: nil) })
        desk.ledger.folderSeen("/d", free: 2999, now: desk.now)
        #expect(desk.state(1) == .active && desk.state(2) == .active && desk.state(3) == .waiting(.diskSpace, until: nil))
        desk.ledger.folderSeen("/d", free: nil, now: desk.now)
        #expect(desk.state(3) == .waiting(.diskSpace, until: nil))
    }

    @Test func `distinguishes two folders whose names only look the same`() {
        let full = DownloadFailure(.diskFull, "…", wait: .diskSpace, neededRoom: 1)
        let (composed, decomposed) = ("/d/caf\u{E9}", "/d/cafe\u{301}")
        let desk = Desk([
            Desk.record(1) { ($0.directory, $0.total) = (composed, 1) }, Desk.record(2) { ($0.directory, $0.total) = (decomposed, 1) },
        ])
        for number in 1...2 { desk.fail(UInt64(number), full) }
        #expect(desk.ledger.awaitedFolders.count == 2)
        desk.ledger.folderSeen(decomposed, free: 1 << 30, now: desk.now)
        #expect(desk.state(1) == .waiting(.diskSpace, until: nil) && desk.state(2) == .active)
    }

    /// The engine creates a part file and reports it later: by then, the download may be cancelled or removed.
    @Test(arguments: [(false, false), (false, true), (true, false), (true, true)])
    func `deletes the part file of a transfer that had not reported it yet`(isRemoved: Bool, isToDescriptor: Bool) throws {
        for hasBegun in [true, false] {
            let desk = Desk([])
            let record = Desk.record(1) { record in
                if isToDescriptor { (record.isToDescriptor, record.directory) = (true, "") }
            }
            let entry = desk.ledger.insert(record)
            desk.ledger.enter(entry, now: desk.now)
            #expect(entry.state == .active)
            try desk.ledger.apply(.cancel, to: entry, now: desk.now)
            if isRemoved { desk.ledger.remove(entry, now: desk.now) }
            func sweeps() -> Int { desk.ledger.output.take().count { if case .sweep = $0 { true } else { false } } }
            #expect(sweeps() == 0, "the transfer still writes it")
            if hasBegun { desk.ledger.transferBegan(entry, fileName: "a", mediaType: nil, total: 9, offset: 0, now: desk.now) }
            desk.ledger.transferEnded(entry.number, .stopped(nil), now: desk.now)
            #expect(sweeps() == (hasBegun ? 1 : 0))
            if hasBegun { desk.ledger.swept(entry.number, isGone: true, now: desk.now) }
            #expect(!desk.ledger.hasWork)
            #expect(!desk.ledger.allRows.contains { if case .sweep = $0 { true } else { false } })
        }
    }

    @Test func `reports a transition of its own that the state does not allow, and leaves the download as it was`() {
        let desk = Desk([])
        let entry = desk.ledger.insert(Desk.record(1))
        desk.ledger.enter(entry, now: desk.now)
        _ = desk.ledger.output.take()
        #expect(!desk.ledger.applyOwn(.verified, to: entry, now: desk.now))
        let turn = desk.ledger.turn([], at: desk.now)
        #expect(turn.faults.map(\.number) == [entry.number] && turn.faults.first?.transition.state == .active)
        #expect(turn.actions.isEmpty && entry.state == .active)
        #expect(desk.ledger.turn([], at: desk.now).faults.isEmpty)
    }

    /// The folder may be unmounted, and the download may be off the list. `parts`: how much of the new database is written by then.
    @Test(arguments: [(0, true), (0, false), (1, true), (2, false), (3, true), (4, false)])
    func `keeps the row of a part file that cannot be deleted in a database that is written anew`(parts: Int, isOnList: Bool) {
        let desk = Desk([])
        let records = isOnList ? [Desk.record(1) { $0.state = .cancelled }] : []
        desk.ledger.restore(records, sweeps: [DownloadNumber(1): "/a"], now: desk.now)
        var (walk, rows) = (desk.ledger.walkRows(), [StoreChange]())
        for _ in 0..<parts { rows += desk.ledger.nextRows(&walk) ?? [] }
        desk.ledger.swept(DownloadNumber(1), isGone: false, now: desk.now)
        while let part = desk.ledger.nextRows(&walk) { rows += part }
        #expect(rows.contains(.sweep(DownloadNumber(1), directory: "/a")))
        #expect(desk.ledger.allRows.contains(.sweep(DownloadNumber(1), directory: "/a")), "in a later one, too")
    }

    /// The resume data in the rows that `actions` save, in order.
    private func savedBytes(_ actions: [Ledger.Action]) -> [ResumeData?] {
        actions.compactMap { if case .save(.put(let record)) = $0 { .some(record.resume) } else { nil } }
    }

    @Test func `saves no resume data of a download whose part file it has deleted`() throws {
        let identity = FileIdentity(device: 1, inode: 2, mount: 3, boot: "boot")
        let held = ResumeData(written: 500, total: 1000, validator: .entityTag("\"v1\""), identity: identity)
        for isActive in [true, false] {
            let desk = Desk([Desk.record(1) { ($0.resume, $0.received, $0.total) = (held, 500, 1000) }])
            if !isActive {
                try desk.ledger.apply(.pause, to: desk.entry(1), now: desk.now)
                desk.ledger.transferEnded(desk.entry(1).number, .stopped(held), now: desk.now)
            }
            _ = desk.ledger.output.take()
            try desk.ledger.apply(.cancel, to: desk.entry(1), now: desk.now)
            let saved = savedBytes(desk.ledger.output.take())
            #expect(!saved.isEmpty && saved.allSatisfy { $0 == nil })
        }
        // A row of an earlier version.
        let desk = Desk([Desk.record(1) { ($0.state, $0.resume, $0.received) = (.cancelled, held, 500) }])
        try desk.ledger.apply(.retry, to: desk.entry(1), now: desk.now)
        #expect(desk.entry(1).record.resume == nil && desk.entry(1).record.received == 0)
    }

    @Test func `announces AllEnded even if the last download was an addition that could not be saved`() throws {
        let desk = Desk([Desk.record(1)])
        let added = desk.ledger.insert(Desk.record(2))
        func ends() -> [UInt32] {
            desk.ledger.output.take().compactMap {
                if case .allEnded(let counts) = $0 { counts.finished + counts.failed + counts.cancelled } else { nil }
            }
        }
        try desk.ledger.apply(.cancel, to: desk.entry(1), now: desk.now)
        #expect(ends() == [], "the second is not over")
        desk.ledger.undo(added, now: desk.now)
        #expect(ends() == [1])
        desk.ledger.undo(desk.ledger.insert(Desk.record(3)), now: desk.now)
        #expect(ends() == [], "nothing has ended since")
    }

    @Test func `lets a deadline expire in a wait, and not in a pause`() throws {
        var desk = Desk([Desk.record(1) { $0.options.deadline = .seconds(50) }, Desk.record(2) { $0.options.deadline = .seconds(50) }])
        desk.fail(1, refusal)
        desk.fail(2, refusal)
        try desk.ledger.apply(.pause, to: desk.entry(2), now: desk.now)
        #expect(desk.ledger.nextWake == desk.now + .seconds(50))
        desk.now = desk.now + .seconds(50)
        desk.ledger.tick(now: desk.now)
        #expect(desk.state(1).failure?.name == .expired && desk.state(2) == .paused)
        try desk.ledger.apply(.resume, to: desk.entry(2), now: desk.now)
        #expect(desk.ledger.nextWake == desk.now + .seconds(50), "its time goes on where it stood")
    }
}

@Suite struct `The journal's queue` {
    @Test func `releases nothing before its change is on disk, and everything in order`() {
        var queue = JournalQueue<String>()
        #expect(queue.isClear && queue.begin() == nil)
        queue.append(.put(Desk.record(1)))
        queue.post("a")
        #expect(queue.begin()?.count == 1)
        queue.append(.put(Desk.record(2)))
        queue.post("b")
        #expect(queue.next() == nil && queue.begin() == nil, "one commit at a time")
        queue.succeeded()
        #expect(queue.next() == "a" && queue.next() == nil)
        #expect(queue.begin()?.count == 1)
        queue.succeeded()
        #expect(queue.next() == "b" && queue.isClear && !queue.isBusy)
    }

    @Test func `adds a batch with its members, whatever becomes of its row before the commit`() {
        let (members, first) = ([Desk.record(2), Desk.record(3)], BatchRecord(number: BatchNumber(1), count: 2))
        var later = first
        later.removed.insert(.cancelled)
        var queue = JournalQueue<String>()
        queue.append(.addBatch(first, members))
        queue.post("addition")
        queue.append(.remove(DownloadNumber(3)))
        queue.append(.putBatch(later))
        #expect(queue.begin() == [.addBatch(later, members), .remove(DownloadNumber(3))])
        queue.failed { _ in .keep }
        #expect(queue.begin() == [.addBatch(later, members), .remove(DownloadNumber(3))])
        queue.failed { _ in .drop(undoing: [1, 2, 3].map { DownloadNumber($0) }) }
        #expect(queue.begin() == [.removeBatch(BatchNumber(1)), .remove(DownloadNumber(3))])
    }

    @Test func `keeps the changes of a failed commit, except undone additions`() {
        var queue = JournalQueue<String>()
        queue.append(.put(Desk.record(1)))
        queue.post("addition")
        queue.append(.remove(DownloadNumber(9)))
        queue.post("message")
        _ = queue.begin()
        queue.append(.put(Desk.record(2)))
        queue.post("later")
        queue.failed { $0 == "addition" ? .drop(undoing: [DownloadNumber(1)]) : .keep }
        #expect(queue.next() == nil && !queue.isCommitting)
        #expect(queue.begin() == [.remove(DownloadNumber(1)), .remove(DownloadNumber(9)), .put(Desk.record(2))])
        queue.succeeded()
        #expect(queue.next() == "message" && queue.next() == "later" && queue.isClear)
    }

    @Test func `keeps nothing of additions that are undone again and again while commits fail`() {
        var queue = JournalQueue<String>()
        queue.append(.set(Settings()))
        for number in 1...1000 as ClosedRange<UInt64> {
            queue.append(.put(Desk.record(number)))
            queue.post("addition")
            _ = queue.begin()
            queue.failed { _ in .drop(undoing: [DownloadNumber(number)]) }
            #expect(queue.changeCount <= 2)
        }
        queue.append(.put(Desk.record(2000)))
        #expect(queue.begin()?.filter { if case .remove = $0 { false } else { true } } == [.set(Settings()), .put(Desk.record(2000))])
        queue.succeeded()
        queue.append(.put(Desk.record(2001)))
        _ = queue.begin()
        queue.failed { _ in .keep }
        queue.post("addition")
        queue.append(.put(Desk.record(2001)))
        _ = queue.begin()
        queue.failed { _ in .drop(undoing: [DownloadNumber(2001)]) }
        #expect(!queue.isBusy)
    }

    @Test func `drops items of a commit that does not return, and removes what it may have added`() {
        var queue = JournalQueue<String>()
        queue.append(.put(Desk.record(1)))
        queue.post("addition")
        queue.post("message")
        _ = queue.begin()
        queue.append(.put(Desk.record(2)))
        queue.post("later addition")
        queue.post("answer")
        queue.withdraw { item in
            switch item {
            case "addition": .drop(undoing: [DownloadNumber(1)])
            case "later addition": .drop(undoing: [DownloadNumber(2)])
            case "answer": .drop(undoing: [])
            default: .keep
            }
        }
        #expect(queue.waitingCount == 1 && queue.next() == nil && queue.isCommitting)
        queue.succeeded()
        #expect(queue.next() == "message" && !queue.isClear)
        #expect(queue.begin() == [.remove(DownloadNumber(2)), .remove(DownloadNumber(1))])
        queue.succeeded()
        #expect(queue.isClear)
    }

    @Test func `begins a commit without a change if one is due`() {
        var queue = JournalQueue<String>()
        #expect(queue.begin(isDue: true) == [] && queue.isBusy && queue.begin(isDue: true) == nil)
        queue.post("waits for nothing")
        queue.append(.put(Desk.record(1)))
        queue.post("later")
        queue.failed { _ in .keep }
        #expect(queue.next() == "waits for nothing" && queue.next() == nil)
        #expect(queue.begin(isDue: true)?.count == 1)
    }

    @Test func `saves the last change of a record, and of a removed one only the removal`() {
        var queue = JournalQueue<String>()
        for received in [1, 2, 3] as [ByteCount] { queue.append(.put(Desk.record(1) { $0.received = received })) }
        queue.append(.put(Desk.record(2)))
        queue.append(.remove(DownloadNumber(2)))
        #expect(queue.begin() == [.put(Desk.record(1) { $0.received = 3 }), .remove(DownloadNumber(2))])
    }

    @Test func `saves only the last change of each row, however long no commit succeeds`() {
        var queue = JournalQueue<String>()
        let (one, two) = (DownloadNumber(1), DownloadNumber(2))
        func request(_ host: String, _ at: UInt64) -> HostRequest {
            HostRequest(host: host, requestInterval: .zero, at: WallTime(microseconds: at), isSent: true)
        }
        for round in 1...100 as ClosedRange<UInt64> {
            queue.append(.set(Settings()))
            for host in ["a", "b"] { queue.append(.requested(request(host, round))) }
            queue.append(.sweep(one, directory: "/a"))
            queue.append(.swept(one))
            queue.append(.sweep(two, directory: "/a"))
            if round == 50 {
                _ = queue.begin()
                queue.append(.requestOver(host: "b", requestInterval: .zero))
                queue.failed { _ in .keep }
            }
        }
        queue.append(.requestOver(host: "b", requestInterval: .zero))
        #expect(queue.changeCount == 5)
        #expect(
            queue.begin() == [
                .set(Settings()), .requested(request("a", 100)), .requestOver(host: "b", requestInterval: .zero), .swept(one),
                .sweep(two, directory: "/a"),
            ])
    }

    @Test func `knows by its mark whether an item still waits`() {
        var queue = JournalQueue<String>()
        queue.append(.put(Desk.record(1)))
        let marks = ["a", "b", "c"].map { queue.post($0) }
        _ = queue.begin()
        queue.failed { $0 == "b" ? .drop(undoing: []) : .keep }
        #expect(queue.waitingCount == 2 && marks.map(queue.isWaiting) == [true, true, true])
        _ = queue.begin()
        queue.succeeded()
        #expect(queue.next() == "a" && marks.map(queue.isWaiting) == [false, false, true])
        #expect(queue.next() == "c" && marks.map(queue.isWaiting) == [false, false, false] && queue.waitingCount == 0)
    }
}
