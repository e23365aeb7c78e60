import DownloadModel
import Scheduling
import Testing

@Suite struct `A change of the folder` {
    @Test func `is made only while nothing of the file is under way`() throws {
        let desk = Desk { $0.maxActive = 1 }
        for number in UInt64(1)...2 { desk.add(number) }
        #expect(desk.started == [1])
        try desk.turn([.setDirectory(desk[1], "/e"), .setDirectory(desk[2], "/e")])
        #expect(desk[1].record.directory == "/d" && desk[2].record.directory == "/e")
        #expect(desk.rows.downloads[DownloadNumber(2)]?.directory == "/e")
        // Bytes on disk keep the folder, also of a paused download.
        try desk.steer(desk[1], .pause)
        let identity = FileIdentity(device: 1, inode: 1, mount: 1, boot: "b")
        desk.ends(desk[1], .stopped(ResumeData(written: 5, total: 10, validator: nil, identity: identity)))
        try desk.turn([.setDirectory(desk[1], "/e")])
        #expect(desk[1].record.directory == "/d" && !desk[1].mayChangeFolder)
    }

    @Test func `deletes what an earlier process may have left in the former folder, before the download starts`() throws {
        let desk = Desk([Desk.record(1, state: .paused)])
        try desk.turn([.setDirectory(desk[1], "/e")])
        #expect(desk.actions.sweeps == [DownloadNumber(1)] && desk.rows.sweeps[DownloadNumber(1)] == "/d")
        try desk.steer(desk[1], .resume)
        #expect(desk.started == [])
        desk.swept(DownloadNumber(1))
        #expect(desk.started == [1] && desk[1].record.directory == "/e")
    }

    @Test func `ends the wait for the former folder`() throws {
        let desk = Desk()
        desk.add(1)
        desk.fails(desk[1], DownloadFailure(.writeFailed, "…", wait: .destination))
        #expect(desk.state(1) == .waiting(.destination, until: nil) && desk.scheduler.awaitedFolders == ["/d"])
        try desk.turn([.setDirectory(desk[1], "/e")])
        #expect(desk.started == [1, 1] && desk.scheduler.awaitedFolders == [] && desk[1].record.lastFailure == nil)
    }

    /// If the download wrote before the change is on disk, a kill could leave a part file in the new folder. No row of the database would
    /// name that folder, so no later process would delete the file.
    @Test func `is on disk before the download writes into the new folder`() throws {
        let desk = Desk()
        desk.add(1)
        desk.fails(desk[1], DownloadFailure(.writeFailed, "…", wait: .destination))
        try desk.turn([.setDirectory(desk[1], "/e")])
        // A later start has nothing to wait for.
        desk.fails(desk[1], DownloadFailure(.network, "…", isRetryable: true))
        desk.waitUntilDue()
        let areAfterSave = desk.history.compactMap { if case .startTransfer(_, let afterSave) = $0 { afterSave } else { nil } }
        #expect(areAfterSave == [false, true, false])
    }

    @Test func `leaves a wait of another kind as it is`() throws {
        let desk = Desk()
        let later = desk.now + .seconds(500)
        desk.add(1) {
            $0.options.notBefore = later
            $0.state = .waiting(.notBefore, until: later)
        }
        try desk.turn([.setDirectory(desk[1], "/e")])
        #expect(desk.state(1) == .waiting(.notBefore, until: later) && desk[1].record.directory == "/e")
    }
}

/// The disk with the folder is away, and so the part file there cannot be deleted.
@Suite struct `A part file in a folder that its download has left` {
    private static let number = DownloadNumber(1)
    private static let away = DownloadFailure(.writeFailed, "…", wait: .destination)

    /// A download that cannot resume, whose disk went away. Its folder is now /e.
    private func moved() throws -> Desk {
        let desk = Desk()
        desk.add(1)
        desk.began(desk[1], isResumable: false)
        desk.fails(desk[1], Self.away)
        #expect(desk.actions.sweeps == [Self.number])
        desk.swept(Self.number, isGone: false)
        try desk.turn([.setDirectory(desk[1], "/e")])
        #expect(desk.actions.sweeps == [Self.number])
        desk.swept(Self.number, isGone: false)
        #expect(desk.started == [1, 1] && desk[1].record.directory == "/e")
        return desk
    }

    /// The folders of the row.
    private func folders(_ desk: Desk) -> [String] {
        desk.rows.sweeps[Self.number].map { StoreChange.folders(ofSweep: $0) } ?? []
    }

    /// The folders in which the last turn deletes.
    private func deleted(_ desk: Desk) -> [String] {
        desk.actions.compactMap { if case .sweep(Self.number, let directory) = $0 { directory } else { nil } }
    }

    @Test func `is deleted by a later process, and its download goes on with the bytes in the new folder`() throws {
        let desk = try moved()
        #expect(folders(desk) == ["/d"] && desk.scheduler.allRows.contains(.sweep(Self.number, directory: "/d")))
        let identity = FileIdentity(device: 2, inode: 2, mount: 2, boot: "b")
        let held = ResumeData(written: 5, total: 10, validator: .entityTag("\"1\""), identity: identity)
        desk.began(desk[1])
        desk.checkpoint(desk[1], held)
        desk.restart()
        #expect(deleted(desk) == ["/d"] && desk[1].record.resume == held)
        desk.swept(Self.number)
        #expect(folders(desk) == [] && desk.state(1) == .active)
        // The part file in the new folder is still known.
        try desk.steer(desk[1], .cancel)
        desk.ends(desk[1], .stopped(held))
        #expect(deleted(desk) == ["/e"])
    }

    @Test func `is deleted by a later process that begins with the commit of its download`() throws {
        let desk = try moved()
        desk.bringToCommit(desk[1])
        desk.restart()
        #expect(desk.state(1) == .committing && deleted(desk) == ["/d"])
        desk.committed(desk[1], path: "/e/f")
        desk.swept(Self.number)
        #expect(folders(desk) == [] && !desk.scheduler.hasWork)
    }

    @Test func `delays its download only until it is deleted, if a commit that a restart interrupted has lost the file`() throws {
        let desk = try moved()
        desk.bringToCommit(desk[1])
        desk.restart()
        #expect(deleted(desk) == ["/d"])
        desk.partLost(desk[1])
        #expect(desk.state(1) == .queued)
        desk.swept(Self.number, isGone: false)
        #expect(desk.state(1) == .active)
    }

    /// The process is killed before the first checkpoint, so only the written map proves the bytes in the new folder.
    @Test func `is deleted by a later process without the written map, which may be of the one in the new folder`() throws {
        let desk = try moved()
        desk.began(desk[1])
        desk.restart()
        #expect(deleted(desk) == ["/d"] && !desk[1].record.hasBytes)
        #expect(desk.scheduler.hasLeft("/d", Self.number) && !desk.scheduler.hasLeft("/e", Self.number))
    }

    @Test func `is still deleted if the one in the new folder is, too`() throws {
        let desk = try moved()
        desk.began(desk[1], isResumable: false)
        try desk.steer(desk[1], .cancel)
        #expect(folders(desk) == ["/d", "/e"])
        desk.ends(desk[1], .stopped(nil))
        #expect(deleted(desk) == ["/e"])
        desk.swept(Self.number)
        #expect(folders(desk) == ["/d"])
        desk.restart()
        #expect(deleted(desk) == ["/d"])
        desk.swept(Self.number)
        #expect(folders(desk) == [] && !desk.scheduler.hasWork)
    }

    @Test func `is still deleted if the new folder is away as well`() throws {
        let desk = try moved()
        desk.began(desk[1], isResumable: false)
        desk.fails(desk[1], Self.away)
        desk.swept(Self.number, isGone: false)
        #expect(folders(desk) == ["/d", "/e"])
        try desk.steer(desk[1], .pause)
        desk.restart()
        #expect(deleted(desk) == ["/d"])
        desk.swept(Self.number, isGone: false)
        #expect(deleted(desk) == ["/e"])
        desk.swept(Self.number)
        #expect(folders(desk) == ["/d"] && !desk.scheduler.hasWork)
    }

    @Test func `is written again if the download comes back, and is deleted with it`() throws {
        let desk = try moved()
        desk.fails(desk[1], Self.away)
        try desk.turn([.setDirectory(desk[1], "/d")])
        #expect(desk.started == [1, 1, 1] && folders(desk) == [])
        // No response has come, so only its failed deletion tells of the part file.
        try desk.steer(desk[1], .cancel)
        desk.ends(desk[1], .stopped(nil))
        #expect(deleted(desk) == ["/d"] && folders(desk) == ["/d"])
    }

    @Test func `is deleted before the one in the new folder, if its download leaves that one, too, and returns`() throws {
        let desk = try moved()
        desk.began(desk[1])
        desk.restart()
        #expect(deleted(desk) == ["/d"])
        try desk.turn([.setDirectory(desk[1], "/d"), .setDirectory(desk[1], "/e")])
        #expect(folders(desk) == ["/d", "/e"])
        desk.swept(Self.number)
        #expect(deleted(desk) == ["/e"] && folders(desk) == ["/e"])
        desk.swept(Self.number)
        #expect(folders(desk) == [] && desk.state(1) == .active)
    }

    @Test func `is deleted before the one in the new folder, if its download is cancelled meanwhile`() throws {
        let desk = try moved()
        desk.began(desk[1])
        try desk.steer(desk[1], .pause)
        desk.ends(desk[1], .stopped(nil))
        desk.restart()
        #expect(deleted(desk) == ["/d"])
        try desk.steer(desk[1], .cancel)
        #expect(deleted(desk) == [] && folders(desk) == ["/d", "/e"])
        desk.swept(Self.number)
        #expect(deleted(desk) == ["/e"])
        desk.swept(Self.number)
        #expect(folders(desk) == [] && !desk.scheduler.hasWork)
    }
}

/// The disk with the folder is there, and does not answer: no deletion there ends.
@Suite struct `A part file in a silent folder that its download has left` {
    private static let number = DownloadNumber(1)

    /// A download of an earlier process. Its folder is now /e, and it no longer waits for the deletion in /d.
    private func moved() throws -> Desk {
        let desk = Desk([Desk.record(1, state: .paused)])
        try desk.turn([.setDirectory(desk[1], "/e")])
        #expect(desk.actions.sweeps == [Self.number])
        desk.wait(.seconds(5))
        return desk
    }

    /// The folders of the row.
    private func folders(_ desk: Desk) -> [String] {
        desk.rows.sweeps[Self.number].map { StoreChange.folders(ofSweep: $0) } ?? []
    }

    /// The folders in which the last turn deletes.
    private func deleted(_ desk: Desk) -> [String] {
        desk.actions.compactMap { if case .sweep(Self.number, let directory) = $0 { directory } else { nil } }
    }

    @Test func `does not keep the download from starting`() throws {
        let desk = Desk([Desk.record(1, state: .paused)])
        try desk.turn([.setDirectory(desk[1], "/e")])
        try desk.steer(desk[1], .resume)
        desk.wait(.seconds(4))
        #expect(desk.started == [], "a disk that answers has time to delete the part file")
        desk.wait(.seconds(1))
        #expect(desk.started == [1] && folders(desk) == ["/d"] && desk.scheduler.hasWork)
        let identity = FileIdentity(device: 2, inode: 2, mount: 2, boot: "b")
        let held = ResumeData(written: 5, total: 10, validator: .entityTag("\"1\""), identity: identity)
        desk.began(desk[1], total: 10)
        desk.checkpoint(desk[1], held)
        desk.swept(Self.number, in: "/d")
        #expect(folders(desk) == [] && desk.state(1) == .active && desk[1].record.resume == held)
        // The deletion in the former folder says nothing about the new one.
        try desk.steer(desk[1], .cancel)
        desk.ends(desk[1], .stopped(held))
        #expect(desk.actions.sweeps == [Self.number] && folders(desk) == ["/e"])
    }

    @Test func `does not keep the download from going on in a later process`() {
        let identity = FileIdentity(device: 2, inode: 2, mount: 2, boot: "b")
        let record = Desk.record(1) {
            $0.directory = "/e"
            $0.resume = ResumeData(written: 5, total: 10, validator: .entityTag("\"1\""), identity: identity)
        }
        let desk = Desk([record], sweeps: [Self.number: "/d"])
        #expect(desk.actions.sweeps == [Self.number] && desk.started == [])
        desk.wait(.seconds(5))
        #expect(desk.started == [1] && folders(desk) == ["/d"])
        #expect(desk.scheduler.allRows.contains(.sweep(Self.number, directory: "/d")), "a new database has the row, too")
    }

    @Test func `is not written again before its deletion has ended`() throws {
        let desk = try moved()
        try desk.turn([.setDirectory(desk[1], "/d")])
        try desk.steer(desk[1], .resume)
        desk.wait(.seconds(60))
        #expect(desk.started == [])
        desk.swept(Self.number, in: "/d")
        #expect(desk.started == [1] && folders(desk) == [])
    }

    @Test func `is not written again before that, also if the download comes back while it waits for its turn`() throws {
        let desk = Desk([Desk.record(1, state: .paused)]) { $0.maxActive = 1 }
        desk.add(2)
        try desk.turn([.setDirectory(desk[1], "/e")])
        try desk.steer(desk[1], .resume)
        desk.wait(.seconds(5))
        try desk.turn([.setDirectory(desk[1], "/d")])
        try desk.steer(desk[2], .cancel)
        #expect(desk.started == [2])
        desk.swept(Self.number, in: "/d")
        #expect(desk.started == [2, 1] && folders(desk) == [])
    }

    @Test(arguments: [true, false]) func `delays the download by 5 s, also if the clock is set`(isBefore: Bool) throws {
        let desk = Desk([Desk.record(1, state: .paused)])
        // As with 100,000 downloads: no slice has told this one of the new clock yet.
        desk.scheduler.sliceSize.cost = 0
        if isBefore { desk.clockJumps(by: .seconds(86_400)) }
        try desk.turn([.setDirectory(desk[1], "/e")])
        if !isBefore { desk.clockJumps(by: .seconds(86_400)) }
        try desk.steer(desk[1], .resume)
        desk.scheduler.sliceSize.cost = 500
        desk.slices()
        #expect(desk.started == [])
        desk.wait(.seconds(5))
        #expect(desk.started == [1])
    }

    @Test func `does not delay the deletion in the new folder`() throws {
        let desk = try moved()
        try desk.steer(desk[1], .resume)
        desk.began(desk[1], isResumable: false)
        desk.fails(desk[1], DownloadFailure(.network, "…", isRetryable: true))
        #expect(desk.actions.sweeps == [Self.number] && folders(desk) == ["/d", "/e"])
        desk.swept(Self.number, in: "/e")
        desk.waitUntilDue()
        #expect(desk.started == [1, 1] && folders(desk) == ["/d"])
    }

    @Test func `does not delay that deletion either if the download leaves the list at once`() throws {
        let record = Desk.record(1, state: .paused) { $0.directory = "/e" }
        let desk = Desk([record], sweeps: [Self.number: "/d"])
        #expect(desk.actions.sweeps == [Self.number])
        try desk.remove(desk[1])
        #expect(deleted(desk) == ["/e"] && folders(desk) == ["/d", "/e"])
        desk.restart()
        #expect(deleted(desk) == ["/d", "/e"], "the disk of /d still does not answer")
        desk.swept(Self.number, in: "/e")
        #expect(folders(desk) == ["/d"] && desk.scheduler.hasWork)
        desk.swept(Self.number, in: "/d")
        #expect(folders(desk) == [] && !desk.scheduler.hasWork)
    }

    @Test func `waits for its disk if the download leaves the list`() throws {
        let desk = try moved()
        try desk.remove(desk[1])
        #expect(folders(desk) == ["/d"] && desk.scheduler.hasWork)
        desk.swept(Self.number, in: "/d", isGone: false)
        #expect(folders(desk) == ["/d"] && !desk.scheduler.hasWork, "the next process tries again")
    }
}

@Suite struct `A change of the folder in a batch` {
    @Test func `changes the folder that the toast of the batch opens, once it is that of all members`() throws {
        let desk = Desk { $0.paused = true }
        let (batch, members) = desk.addUnsavedBatch(1, 2)
        desk.saved(batch, members)
        try desk.turn([.setDirectory(desk[2], "/e")])
        #expect(desk[2].record.directory == "/e" && batch.record.directory == "")
        try desk.turn([.setDirectory(desk[3], "/e")])
        #expect(batch.record.directory == "/e" && desk.rows.batches[BatchNumber(1)]?.directory == "/e")
    }
}

@Suite struct `New metadata` {
    @Test func `count in what an application holds`() throws {
        let desk = Desk()
        desk.add(1, app: "A") { $0.options.metadata = [UInt8](repeating: 1, count: 5000) }
        let before = desk.scheduler.holdings(of: "A").bytes
        try desk.turn([.setMetadata(desk[1], [UInt8](repeating: 1, count: 9000))])
        #expect(desk.scheduler.holdings(of: "A").bytes == before + 4000)
        #expect(desk.rows.downloads[DownloadNumber(1)]?.options.metadata.count == 9000)
        try desk.turn([.setMetadata(desk[1], [])])
        #expect(desk.scheduler.holdings(of: "A").bytes == 0)
    }
}
