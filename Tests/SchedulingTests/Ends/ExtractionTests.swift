import DownloadModel
import TestSupport
import Testing

@testable import Scheduling

private let part = FileIdentity(device: 1, inode: 7, mount: 1, boot: "b")
private let folder = FileIdentity(device: 1, inode: 8, mount: 1, boot: "b")
private let refused = DownloadFailure(.extraction, "The archive is not unpacked.")

@Suite struct `An archive to be unpacked` {
    /// A download whose archive is verified, and so is being unpacked.
    private func extracting(_ change: (inout DownloadRecord) -> Void = { _ in }) -> (Desk, ScheduledDownload) {
        let desk = Desk()
        let entry = desk.add(1) {
            $0.options.extract = .namedAfterArchive
            change(&$0)
        }
        desk.began(entry, total: 10)
        desk.ends(entry, .complete(size: 10, fileName: "f.zip", ResumeData(written: 10, total: 10, validator: nil, identity: part)))
        desk.verified(entry, part)
        #expect(entry.state == .extracting && entry.isInPool)
        return (desk, entry)
    }

    @Test func `gets its name once it is unpacked, and the archive is deleted with the row of the end`() {
        let (desk, entry) = extracting()
        desk.unpacked(entry)
        #expect(entry.state == .committing)
        desk.folderCommitted(entry, path: "/d/f", folder)
        #expect(entry.state == .finished && entry.record.path == "/d/f")
        #expect(entry.record.fileName == "f.zip" && entry.record.received == 10)
        #expect(entry.record.resume?.identity == folder, "from now on, the folder is what Remove and Trash look for")
        #expect(desk.actions.sweeps == [entry.number])
        #expect(desk.actions.rows.last?.state == .finished)
    }

    @Test(arguments: [DownloadEvent.pause, .hold, .cancel])
    func `stops at once when it is stopped, and starts again only after that`(event: DownloadEvent) throws {
        let (desk, entry) = extracting()
        if event == .hold { desk.pauseAll() } else { try desk.steer(entry, event) }
        desk.slices()
        #expect(entry.state != .extracting && entry.isInPool)
        switch event {
        case .hold: desk.resumeAll()
        case .pause: try desk.steer(entry, .resume)
        default: try desk.steer(entry, .retry)
        }
        desk.slices()
        #expect(entry.state == .queued, "the archive is still in use")
        desk.unpackingStopped(entry)
        if event == .cancel {
            #expect(desk.actions.sweeps == [entry.number] && entry.state == .queued)
            desk.swept(entry.number)
            #expect(entry.state == .active, "nothing is left to unpack")
        } else {
            #expect(entry.state == .verifying, "nothing is downloaded again")
        }
    }

    @Test func `that is verified while everything is paused is not unpacked before ResumeAll`() {
        let desk = Desk()
        let entry = desk.add(1) { $0.options.extract = .namedAfterArchive }
        desk.began(entry, total: 10)
        desk.ends(entry, .complete(size: 10, fileName: "f.zip", ResumeData(written: 10, total: 10, validator: nil, identity: part)))
        desk.pauseAll()
        desk.slices()
        #expect(entry.state == .verifying, "PauseAll does not stop a verification")
        desk.verified(entry, part)
        #expect(entry.state == .waiting(.pausedAll, until: nil) && !entry.isInPool)
        #expect(desk.rows.downloads[entry.number]?.isWhole == true, "after a restart, nothing is downloaded again")
        desk.resumeAll()
        desk.slices()
        #expect(entry.state == .verifying)
        desk.verified(entry, part)
        #expect(entry.state == .extracting && desk.started == [1])
    }

    @Test func `is downloaded again after a failure only if its bytes are wrong and no checksum says otherwise`() throws {
        let checksum = Checksum(.md5, digest: [UInt8](repeating: 1, count: 16))
        for (isDamaged, proof, isKept) in [(true, nil, false), (true, checksum, true), (false, nil, true)] {
            let (desk, entry) = extracting { $0.options.checksum = proof }
            desk.unpackingFailed(entry, refused, isDamaged: isDamaged)
            #expect(entry.state == .failed(refused))
            #expect(desk.actions.sweeps.isEmpty == isKept && (entry.record.resume != nil) == isKept)
            if !isKept { desk.swept(entry.number) }
            try desk.steer(entry, .retry)
            #expect(entry.state == (isKept ? .verifying : .active))
        }
    }

    @Test func `is unpacked on by Retry if the process that unpacks was killed`() throws {
        let (desk, entry) = extracting()
        let stopped = DownloadFailure(.extraction, "Unpacking has stopped.", isRetryable: true)
        desk.endingFailed(entry, stopped)
        #expect(entry.state == .failed(stopped) && entry.record.resume?.identity == part && desk.actions.sweeps.isEmpty)
        try desk.steer(entry, .retry)
        #expect(entry.state == .verifying, "nothing is downloaded again")
    }

    @Test func `waits for room, and then unpacks on`() {
        let (desk, entry) = extracting()
        desk.endingFailed(entry, DownloadFailure(.diskFull, "No room.", wait: .diskSpace, missingBytes: 1 << 20, neededRoom: 1 << 24))
        #expect(entry.state == .waiting(.diskSpace, until: nil))
        desk.folderSeen(entry.record.directory, free: 1 << 20)
        desk.slices()
        #expect(entry.state == .waiting(.diskSpace, until: nil), "so little is not enough")
        desk.folderSeen(entry.record.directory, free: 1 << 30)
        desk.slices()
        #expect(entry.state == .verifying)
    }

    @Test func `is unpacked on after a restart, without the network`() {
        let (desk, entry) = extracting()
        #expect(desk.rows.downloads[entry.number]?.state == .extracting)
        desk.restart()
        #expect(desk.state(1) == .extracting && desk[1].isInPool && desk.started == [1])
        desk.pauseAll()
        desk.slices()
        desk.restart()
        #expect(desk.state(1) == .waiting(.pausedAll, until: nil))
    }

    /// `isSwept`: the archive is deleted by then.
    @Test(arguments: [true, false])
    func `has a row until the folder is deleted with the download, and keeps the service running`(isSwept: Bool) throws {
        let (desk, entry) = extracting()
        desk.unpacked(entry)
        desk.folderCommitted(entry, path: "/d/f", folder)
        if isSwept { desk.swept(entry.number) }
        try desk.remove(entry)
        #expect(desk.rows.downloads.isEmpty)
        desk.deleteFolder(entry.number, in: "/d")
        #expect(desk.actions.sweeps == (isSwept ? [entry.number] : []), "one after the other")
        if !isSwept {
            desk.swept(entry.number)
            #expect(desk.actions.sweeps == [entry.number])
        }
        #expect(desk.rows.sweeps[entry.number] == "/d" && desk.scheduler.hasWork)
        // The next process goes on.
        desk.restart()
        #expect(desk.history.sweeps.last == entry.number)
        desk.swept(entry.number)
        #expect(desk.rows.sweeps.isEmpty && !desk.scheduler.hasWork)
        #expect(!desk.scheduler.allRows.contains { if case .sweep = $0 { true } else { false } })
    }

    @Test func `that is lost is downloaded again`() {
        let (desk, entry) = extracting()
        desk.partLost(entry)
        #expect(entry.state == .active)
    }
}
