import DownloadModel
import Scheduling
import Testing

private let refusal = DownloadFailure(.httpStatus, "…", httpStatus: 503, isRetryable: true, retryAfter: .seconds(100))

@Suite struct `The scheduler` {
    @Test func `keeps a download paused that PauseAll paused before its row was on disk`() throws {
        let desk = Desk()
        let later = desk.now + .seconds(500)
        let record = Desk.record(1) {
            $0.options.notBefore = later
            $0.state = .waiting(.notBefore, until: later)
        }
        let entry = desk.addUnsaved(record)
        desk.pauseAll()
        desk.saved(entry)
        #expect(entry.state == .waiting(.pausedAll, until: nil))
        desk.resumeAll()
        desk.slice()
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
            let record = desk[number].record
            #expect(Array(record.directory.utf8) == Array("/\(name)".utf8))
            #expect(record.options.fileName.map { Array($0.utf8) } == Array(name.utf8))
        }
    }

    @Test func `saves a download folder whose name only looks like that of the former one`() {
        let (composed, decomposed) = ("/d/caf\u{E9}", "/d/cafe\u{301}")
        let desk = Desk { $0.defaultDirectory = composed }
        desk.set { $0.defaultDirectory = composed }
        #expect(desk.actions.saves.isEmpty)
        desk.set { $0.defaultDirectory = decomposed }
        #expect(desk.actions.saves == [.set(desk.scheduler.settings)])
        #expect(desk.scheduler.settings.defaultDirectory.isSameBytes(as: decomposed))
    }

    @Test func `moves waits and deadlines with a clock change, but not not-before`() throws {
        let desk = Desk([
            Desk.record(1) { $0.options.deadline = .seconds(1000) },
            Desk.record(2) {
                $0.url = "http://other/2"  // a server's pause applies to its host
                $0.options.notBefore = WallTime(microseconds: 1_000_000_500_000_000)
            },
        ])
        let start = desk.now
        #expect(desk.state(2) == .waiting(.notBefore, until: start + .seconds(500)))
        desk.fails(desk[1], refusal)
        #expect(desk.state(1) == .waiting(.retry, until: start + .seconds(100)))
        desk.clockJumps(by: .seconds(3600))
        #expect(desk.state(1) == .waiting(.retry, until: start + .seconds(3700)))
        #expect(desk[1].record.expiresAt == start + .seconds(4600))
        #expect(desk.state(2) == .active, "its instant has come by the clock")
        #expect(desk.scheduler.nextWake == start + .seconds(3700))
    }

    /// The size of the missing room is not known, so the download tries again from time to time.
    @Test func `announces the new end of a wait for room after a clock change`() {
        let desk = Desk([Desk.record(1)])
        desk.fails(desk[1], DownloadFailure(.diskFull, "…", wait: .diskSpace))
        guard case .waiting(.diskSpace, let until?) = desk.state(1) else { return #expect(Bool(false), "\(desk.state(1))") }
        desk.clockJumps(by: .seconds(3600))
        #expect(desk.state(1) == .waiting(.diskSpace, until: until + .seconds(3600)))
        #expect(desk.actions.contains { if case .tell(let entry) = $0 { entry === desk[1] } else { false } })
    }

    @Test func `moves waits with a clock change in slices, and ends none by the old clock`() throws {
        let desk = Desk((UInt64(1)...4).map { number in Desk.record(number) { $0.url = "http://h\(number)/" } })
        let start = desk.now
        for number in UInt64(1)...4 { desk.fails(desk[number], refusal) }
        desk.scheduler.sliceSize.cost = 1
        desk.clockJumps(by: .seconds(3600))
        #expect(desk.scheduler.hasSlices)
        // A download that changes before its slice is moved first.
        try desk.steer(desk[4], .pause)
        try desk.steer(desk[4], .resume)
        for number in UInt64(1)...4 { #expect(desk.state(number) == .waiting(.retry, until: start + .seconds(3700)), "\(number)") }
        desk.slices()
        for number in UInt64(1)...4 { #expect(desk.state(number) == .waiting(.retry, until: start + .seconds(3700)), "\(number)") }
        desk.clockJumps(by: .seconds(-3600))
        desk.slices()
        for number in UInt64(1)...4 { #expect(desk.state(number) == .waiting(.retry, until: start + .seconds(100)), "\(number)") }
    }

    @Test func `assigns free space in slices, and none of it twice`() {
        let full = DownloadFailure(.diskFull, "…", wait: .diskSpace, neededRoom: 1000)
        let desk = Desk((UInt64(1)...4).map { number in Desk.record(number) { $0.total = 1000 } })
        for number in UInt64(1)...4 { desk.fails(desk[number], full) }
        desk.scheduler.sliceSize.cost = 1
        desk.folderSeen("/d", free: 2000)
        #expect(desk.state(1) == .active && desk.state(2) == .waiting(.diskSpace, until: nil))
        desk.slices()
        #expect((UInt64(1)...4).map { desk.state($0) == .active } == [true, true, false, false])
    }

    @Test func `rejects instants that only a clock set back explains`() {
        let desk = Desk([Desk.record(1) { $0.retryAt = WallTime(microseconds: 2_000_000_000_000_000) }])
        #expect(desk.state(1) == .active)
    }

    @Test func `gives free space to the downloads that waited first, and to no more than fit`() {
        var full = refusal
        full = DownloadFailure(.diskFull, "…", wait: .diskSpace, neededRoom: 1000)
        let desk = Desk((UInt64(1)...3).map { number in Desk.record(number) { $0.total = 1000 } })
        for number in UInt64(1)...3 { desk.fails(desk[number], full) }
        #expect(desk.scheduler.counts.awaitingFolder == 3 && desk.scheduler.awaitedFolders == ["/d"])
        desk.folderSeen("/d", free: 999)
        #expect((UInt64(1)...3).allSatisfy { desk.state($0) == .waiting(.diskSpace, until: nil) })
        desk.folderSeen("/d", free: 2999)
        #expect(desk.state(1) == .active && desk.state(2) == .active && desk.state(3) == .waiting(.diskSpace, until: nil))
        desk.folderSeen("/d", free: nil)
        #expect(desk.state(3) == .waiting(.diskSpace, until: nil))
    }

    @Test func `distinguishes two folders whose names only look the same`() {
        let full = DownloadFailure(.diskFull, "…", wait: .diskSpace, neededRoom: 1)
        let (composed, decomposed) = ("/d/caf\u{E9}", "/d/cafe\u{301}")
        let desk = Desk([
            Desk.record(1) { ($0.directory, $0.total) = (composed, 1) }, Desk.record(2) { ($0.directory, $0.total) = (decomposed, 1) },
        ])
        for number in UInt64(1)...2 { desk.fails(desk[number], full) }
        #expect(desk.scheduler.awaitedFolders.count == 2)
        desk.folderSeen(decomposed, free: 1 << 30)
        #expect(desk.state(1) == .waiting(.diskSpace, until: nil) && desk.state(2) == .active)
    }

    /// The engine creates a part file and reports it later: by then, the download may be cancelled or removed.
    @Test(arguments: [(false, false), (false, true), (true, false), (true, true)])
    func `deletes the part file of a transfer that had not reported it yet`(isRemoved: Bool, isToDescriptor: Bool) throws {
        for hasBegun in [true, false] {
            let desk = Desk()
            let record = Desk.record(1) { record in
                if isToDescriptor { (record.isToDescriptor, record.directory) = (true, "") }
            }
            let entry = desk.addUnsaved(record)
            desk.saved(entry)
            #expect(entry.state == .active)
            try desk.steer(entry, .cancel)
            if isRemoved { try desk.remove(entry) }
            #expect(desk.history.sweeps == [], "the transfer still writes it")
            if hasBegun { desk.began(entry, total: 9) }
            desk.ends(entry, .stopped(nil))
            #expect(desk.history.sweeps.count == (hasBegun ? 1 : 0))
            if hasBegun { desk.swept(entry.number) }
            #expect(!desk.scheduler.hasWork)
            #expect(!desk.scheduler.allRows.contains { if case .sweep = $0 { true } else { false } })
        }
    }

    /// No state and no event of the service leads there. So this test gives a batch an event that only the pool gives.
    @Test func `reports a transition of its own that the state does not allow, and leaves the download as it was`() throws {
        let desk = Desk()
        let (batch, entries) = desk.addUnsavedBatch(1, 1)
        desk.saved(batch, entries)
        let turn = try desk.turn([.steerBatch(batch, .verified)], mayFail: true)
        #expect(turn.faults.map(\.number) == [entries[0].number] && turn.faults.first?.transition.state == .active)
        #expect(turn.actions.isEmpty && entries[0].state == .active)
        #expect(try desk.turn([]).faults.isEmpty)
    }

    /// The folder may be unmounted, and the download may be off the list. `parts`: how much of the new database is written by then.
    @Test(arguments: [(0, true), (0, false), (1, true), (2, false), (3, true), (4, false)])
    func `keeps the row of a part file that cannot be deleted in a database that is written anew`(parts: Int, isOnList: Bool) {
        let desk = Desk(isOnList ? [Desk.record(1, state: .cancelled)] : [], sweeps: [DownloadNumber(1): "/a"])
        var (walk, rows) = (desk.scheduler.walkRows(), [StoreChange]())
        for _ in 0..<parts { rows += desk.scheduler.nextRows(&walk) ?? [] }
        desk.swept(DownloadNumber(1), isGone: false)
        while let part = desk.scheduler.nextRows(&walk) { rows += part }
        #expect(rows.contains(.sweep(DownloadNumber(1), directory: "/a")))
        #expect(desk.scheduler.allRows.contains(.sweep(DownloadNumber(1), directory: "/a")), "in a later one, too")
    }

    @Test func `saves no resume data of a download whose part file it has deleted`() throws {
        let identity = FileIdentity(device: 1, inode: 2, mount: 3, boot: "boot")
        let held = ResumeData(written: 500, total: 1000, validator: .entityTag("\"v1\""), identity: identity)
        for isActive in [true, false] {
            let desk = Desk([Desk.record(1) { ($0.resume, $0.received, $0.total) = (held, 500, 1000) }])
            if !isActive {
                try desk.steer(desk[1], .pause)
                desk.ends(desk[1], .stopped(held))
            }
            try desk.steer(desk[1], .cancel)
            let saved = desk.actions.rows
            #expect(!saved.isEmpty && saved.allSatisfy { $0.resume == nil })
        }
        // A row of an earlier version.
        let desk = Desk([Desk.record(1) { ($0.state, $0.resume, $0.received) = (.cancelled, held, 500) }])
        try desk.steer(desk[1], .retry)
        #expect(desk[1].record.resume == nil && desk[1].record.received == 0)
    }

    @Test func `announces AllEnded even if the last download was an addition that could not be saved`() throws {
        let desk = Desk([Desk.record(1)])
        let added = desk.addUnsaved(Desk.record(2))
        func ends() -> [UInt32] {
            desk.actions.compactMap {
                if case .allEnded(let counts) = $0 { counts.finished + counts.failed + counts.cancelled } else { nil }
            }
        }
        try desk.steer(desk[1], .cancel)
        #expect(ends() == [], "the second is not over")
        desk.unsaved(added)
        #expect(ends() == [1])
        desk.unsaved(desk.addUnsaved(Desk.record(3)))
        #expect(ends() == [], "nothing has ended since")
    }

    @Test func `lets a deadline expire in a wait, and not in a pause`() throws {
        let desk = Desk([Desk.record(1) { $0.options.deadline = .seconds(50) }, Desk.record(2) { $0.options.deadline = .seconds(50) }])
        desk.fails(desk[1], refusal)
        desk.fails(desk[2], refusal)
        try desk.steer(desk[2], .pause)
        #expect(desk.scheduler.nextWake == desk.now + .seconds(50))
        desk.wait(.seconds(50))
        #expect(desk.state(1).failure?.name == .expired && desk.state(2) == .paused)
        try desk.steer(desk[2], .resume)
        #expect(desk.scheduler.nextWake == desk.now + .seconds(50), "its time goes on where it stood")
    }
}
