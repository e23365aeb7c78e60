import DownloadModel
import Glibc
import TestSupport
import Testing

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
