import DownloadModel
import Testing

@Suite struct `Piece hashes` {
    private static let digests = (0..<3).map { String(repeating: "\($0)a", count: 32) }

    @Test func `are read from the text of the option, in any case, and give it back`() throws {
        let text = "sha256:1000:" + Self.digests.joined()
        let hashes = try PieceHashes(text.uppercased().replacing("SHA256", with: "Sha256"))
        #expect(hashes.algorithm == .sha256 && hashes.length == 1000 && hashes.count == 3 && hashes.description == text)
        #expect(hashes.checksum(of: 1)?.description == "sha256:\(Self.digests[1])")
        #expect(hashes.checksum(of: 3) == nil && hashes.checksum(of: -1) == nil)
        #expect(try PieceHashes("md5:18446744073709551615:" + String(repeating: "0", count: 32)).length == .max)
    }

    @Test(arguments: [
        ("", "write it as in"), ("sha256", "write it as in"), ("sha256:1", "write it as in"), ("crc:1:00", "does not know the algorithm"),
        ("sha256::00", "length"), ("sha256:0:00", "length"), ("sha256:-1:00", "length"), ("sha256:18446744073709551616:00", "length"),
        ("sha256:1:", "digits"), ("sha256:1:0", "digits"), ("sha256:1:00", "digits"),
        ("sha256:1:" + String(repeating: "g", count: 64), "digits"),
        ("sha256:1:" + String(repeating: "0", count: 65), "digits"), ("sha256:1:" + String(repeating: "0", count: 96), "digits"),
        ("sha256:1:0:" + String(repeating: "0", count: 62), "digits"),
    ])
    func `that are wrong are refused, and the error names the fault`(text: String, fault: String) {
        let error = #expect(throws: Refusal.self) { try PieceHashes(text) }
        #expect(error?.name == .invalidOption && error?.message.hasPrefix("piece-hashes: ") == true)
        #expect(error?.message.contains(fault) == true, "\(error?.message ?? "")")
    }

    @Test func `have a limit`() throws {
        let most = String(repeating: "0", count: 2 * Limits.pieceHashBytes)
        #expect(try PieceHashes("sha256:1:" + most).count == Limits.pieceHashBytes / 32)
        let row = try #require(OptionRow.byKey["piece-hashes"])
        for excess in [1, 64, 1000, 10_000_000] {
            let text = "sha256:1:" + most + String(repeating: "0", count: excess)
            var options = DownloadOptions()
            let own = #expect(throws: Refusal.self) { try PieceHashes(text) }
            let ofCall = #expect(throws: Refusal.self) { try row.take(.text(text), into: &options) }
            #expect(own?.name == .limitExceeded && own?.message.contains("1048576 bytes of digests") == true && ofCall == own, "\(excess)")
        }
    }

    @Test func `cover a file of the right size`() throws {
        let hashes = try PieceHashes("sha256:1000:" + Self.digests.joined())
        #expect([2000, 2001, 3000, 3001, 0, .max].map { hashes.fits($0) } == [false, true, true, false, false, false])
        #expect((0..<4).map { hashes.range(of: $0, size: 2500) } == [0..<1000, 1000..<2000, 2000..<2500, 2500..<2500])
        #expect(hashes.range(of: -1, size: 2500) == 2500..<2500)
    }
}
