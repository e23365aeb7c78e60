import DownloadModel
import Glibc
import TestSupport
import Testing

@testable internal import PartFiles
@testable internal import TransferEngine

/// A transfer without an engine, and so without a network.
@Suite struct `A look-up for a request` {
    /// The pieces of its source may turn out to be wrong while the desktop looks for the proxy, or the resolver for the host.
    @Test func `is forgotten when the transfer asks another source`() throws {
        var request = TransferRequest(
            number: DownloadNumber(1), url: try DownloadURL("http://one.example/a"), directory: "/", partName: ".todoku-1.part")
        request.sources = [TransferSource(request.url), TransferSource(try DownloadURL("http://two.example/a"), mirror: 0)]
        let transfer = Transfer(request, boot: "", staging: StagingBuffer {}, pace: SharedPace())
        let segment = transfer.segments[0]
        segment.lookup = 7
        transfer.turn(segment, to: transfer.sources[1])
        #expect(segment.url.text == "http://two.example/a")
        #expect(segment.lookup == nil, "its answer would begin a request to the other source, with the proxy of the first")
    }
}

@Suite struct `Work on a disk` {
    private let disk = DiskAnswers()
    private let begin = SuspendingClock.now

    private func isSilent(_ work: DiskWork, at second: Int) -> Bool {
        work.isSilent(longerThan: .seconds(30), begin + .seconds(second))
    }

    @Test func `that has begun hangs only if the disk has not answered it for long`() {
        let (work, other) = (DiskWork(on: disk, at: begin), DiskWork(on: disk, at: begin))
        work.noteAnswer(begin + .seconds(20))
        work.noteAnswer(begin + .seconds(40))
        #expect(!isSilent(work, at: 70) && isSilent(work, at: 71))
        other.noteAnswer(begin + .seconds(60))
        #expect(isSilent(work, at: 71), "the disk answers the other work only")
    }

    @Test func `that waits for a thread hangs only if the disk has answered no other work of its kind for long`() {
        let (work, other) = (DiskWork(on: disk, at: begin), DiskWork(on: disk, at: begin))
        #expect(!isSilent(work, at: 30) && isSilent(work, at: 31))
        other.noteAnswer(begin + .seconds(20))
        #expect(!isSilent(work, at: 50) && isSilent(work, at: 51))
        let later = DiskWork(on: disk, at: begin + .seconds(40))
        #expect(!isSilent(later, at: 70) && isSilent(later, at: 71))
    }
}

@Suite struct `A transfer whose bytes have all come` {
    static let file = patternBytes(500_000)

    /// A transfer that holds the whole file, in one piece.
    private func transfer(in folder: TemporaryFolder) throws -> Transfer {
        var request = TransferRequest(
            number: DownloadNumber(1), url: try DownloadURL("http://one.example/a"), directory: folder.path, partName: ".todoku-1.part")
        (request.allowsHiddenFolders, request.expectedSize, request.hasChecksum) = (true, 500_000, true)
        request.pieces = PieceHashes(.md5, length: 500_000, digests: Array(repeating: 0, count: 16))
        let held = try PartFile.create(
            in: try OpenFolder.open(folder.path, allowHidden: true), name: request.partName, mapPath: nil, boot: bootIdentity())
        (held.validator, held.total, held.isResumable) = (.entityTag("\"v1\""), 500_000, true)
        try Self.file.withUnsafeBytes { try held.write($0, at: 0) }
        request.resume = held.resumeData(held.ranges)
        let transfer = Transfer(request, boot: bootIdentity(), staging: StagingBuffer {}, pace: SharedPace())
        #expect(transfer.prepare() == nil)
        transfer.whole = (.stopped(nil), transfer.segments[0].id)
        return transfer
    }

    @Test func `waits for the check of a piece as long as the disk answers`() throws {
        let (folder, begin) = (TemporaryFolder("todoku-check"), SuspendingClock.now)
        let transfer = try transfer(in: folder)
        let (ledger, part) = (try #require(transfer.pieces), try #require(transfer.part))
        let work = DiskWork(on: DiskAnswers(), at: begin)
        #expect(ledger.begin(1, in: part.ranges, work) == 0..<1)
        for second in stride(from: 20, through: 200, by: 20) {
            work.noteAnswer(begin + .seconds(second))
            #expect(!transfer.endWaitsForDisk(longerThan: .seconds(30), begin + .seconds(second + 29)))
        }
        #expect(transfer.endWaitsForDisk(longerThan: .seconds(30), begin + .seconds(231)))
    }

    @Test func `gives up the check of a piece when it stops, or has another part file`() throws {
        let folder = TemporaryFolder("todoku-check")
        let (disk, stopped) = (DiskAnswers(), try transfer(in: folder))
        let (ledger, part) = (try #require(stopped.pieces), try #require(stopped.part))
        let work = DiskWork(on: disk)
        #expect(ledger.begin(1, in: part.ranges, work) == 0..<1)
        #expect(work.goesOn())
        stopped.stop()
        #expect(!work.goesOn())

        let next = DiskWork(on: disk)
        var other: PieceLedger? = PieceLedger(ledger.hashes, size: ledger.size)
        let run = other?.begin(1, in: part.ranges, next)
        #expect(run == 0..<1 && next.goesOn())
        other = nil
        #expect(!next.goesOn())
    }
}

@Suite struct `A flush under way` {
    static let file = patternBytes(500_000)

    private func write(_ range: Range<ByteCount>, to transfer: Transfer) {
        Self.file[Int(range.lowerBound)..<Int(range.upperBound)].withUnsafeBytes {
            transfer.write($0, at: range.lowerBound, from: transfer.sources[0])
        }
    }

    /// A piece is wrong, and has come again before the disk has answered.
    @Test func `proves no bytes that came again after it had begun`() throws {
        let folder = TemporaryFolder("todoku-flush")
        var request = TransferRequest(
            number: DownloadNumber(1), url: try DownloadURL("http://one.example/a"), directory: folder.path, partName: ".todoku-1.part")
        request.allowsHiddenFolders = true
        let held = try PartFile.create(
            in: try OpenFolder.open(folder.path, allowHidden: true), name: request.partName, mapPath: nil, boot: bootIdentity())
        (held.validator, held.total, held.isResumable) = (.entityTag("\"v1\""), 500_000, true)
        try Self.file[..<400_000].withUnsafeBytes { try held.write($0, at: 0) }
        request.resume = held.resumeData(held.ranges)
        let transfer = Transfer(request, boot: bootIdentity(), staging: StagingBuffer {}, pace: SharedPace())
        #expect(transfer.prepare() == nil)
        let part = try #require(transfer.part)

        let data = try #require(part.resumeData(part.ranges))
        transfer.syncing = part
        transfer.forget(100_000..<200_000)
        write(100_000..<200_000, to: transfer)
        write(400_000..<500_000, to: transfer)
        transfer.syncing = nil
        #expect(part.ranges == ByteRanges(prefix: 500_000))
        #expect(transfer.stillHeld(of: data).ranges == ByteRanges([0..<100_000, 200_000..<400_000]))

        let next = try #require(part.resumeData(part.ranges))
        transfer.syncing = part
        transfer.syncing = nil
        #expect(transfer.stillHeld(of: next).ranges == ByteRanges(prefix: 500_000))
    }
}
