internal import DownloadModel

@testable internal import TransferEngine
@testable internal import Transport

/// A byte for the coding and one for the size of the pieces, then a coded body. It comes out the same in one piece and in many, and is
/// bounded.
func fuzzCoding(_ bytes: [UInt8]) {
    guard bytes.count >= 2 else { return }
    let coding: ContentCoding = [.gzip, .deflate, .brotli, .zstd][Int(bytes[0] & 3)]
    let body = Array(bytes[2...])
    let whole = unpack(coding, body, piece: max(1, body.count))
    let pieces = unpack(coding, body, piece: Int(bytes[1]) + 1)
    check((whole.failure == nil) == (pieces.failure == nil), "one is whole, the other is not")
    check(whole.failure != nil || whole.sum == pieces.sum && whole.count == pieces.count, "other bytes in pieces")
    check(whole.count <= max(ContentDecoder.unsuspicious, ContentDecoder.mostRatio * ByteCount(body.count)) + 65536, "\(whole.count) bytes")
}

private func unpack(_ coding: ContentCoding, _ body: [UInt8], piece: Int) -> (count: ByteCount, sum: UInt64, failure: DownloadFailure?) {
    guard let decoder = ContentDecoder(coding, isBounded: false) else { return (0, 0, nil) }
    var (count, sum): (ByteCount, UInt64) = (0, 0)
    func take(_ bytes: UnsafeRawBufferPointer) -> DownloadFailure? {
        count += ByteCount(bytes.count)
        for byte in bytes { sum = sum &* 31 &+ UInt64(byte) }
        return nil
    }
    var rest = body[...]
    while !rest.isEmpty {
        var input = rest.prefix(piece)
        repeat {
            decoder.beginTick()
            let failure = input.withUnsafeBytes { decoder.decode($0, host: "example.org", take) }
            if let failure { return (count, sum, failure) }
            input = input.suffix(decoder.unread)
        } while decoder.isPaused
        rest = rest.dropFirst(piece)
    }
    return (count, sum, decoder.finish(host: "example.org", isEmptyAnnounced: body.isEmpty))
}
