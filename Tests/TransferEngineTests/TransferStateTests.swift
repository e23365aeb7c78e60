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
