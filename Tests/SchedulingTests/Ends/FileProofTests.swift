import DownloadModel
import Scheduling
import Testing

@Suite struct `The proof of a download` {
    private let source = "http://example.org/a"
    private let identity = FileIdentity(device: 1, inode: 2, mount: 3, boot: "b")
    private let digest = Checksum(.sha256, digest: [UInt8](repeating: 1, count: 32))

    private func part(_ digest: Checksum?) -> ResumeData {
        ResumeData(written: 10, total: 10, validator: nil, identity: identity, digest: digest)
    }

    /// Downloads a file of 10 bytes.
    private func finish(total: ByteCount?, _ digest: Checksum?, _ change: (inout DownloadOptions) -> Void = { _ in }) -> DownloadRecord {
        let desk = Desk()
        desk.add(1, source) { change(&$0.options) }
        desk.began(desk[1], total: total)
        desk.ends(desk[1], .complete(size: 10, fileName: "f", part(digest)))
        desk.verified(desk[1], identity)
        desk.committed(desk[1], path: "/d/f")
        return desk[1].record
    }

    @Test func `is the strongest of checksum, digest and length`() {
        #expect(finish(total: nil, nil).proof == nil)
        #expect(finish(total: 10, nil).proof == .length)
        #expect(finish(total: nil, nil) { $0.size = 10 }.proof == .length)
        #expect(finish(total: nil, digest).proof == .reprDigest)
        #expect(finish(total: 10, digest) { $0.size = 10 }.proof == .reprDigest)
        #expect(finish(total: 10, digest) { $0.checksum = Checksum(.md5, digest: [UInt8](repeating: 1, count: 16)) }.proof == .checksum)
    }

    @Test func `is that of the last response, with the digest of its bytes`() {
        let desk = Desk()
        desk.add(1, source)
        desk.began(desk[1], total: 10)
        desk.checkpoint(desk[1], part(digest))
        #expect(desk.history.rows.last?.resume?.digest == digest)
        // Another file, in chunks.
        desk.began(desk[1], total: nil)
        desk.checkpoint(desk[1], part(nil))
        desk.ends(desk[1], .complete(size: 10, fileName: "f", part(nil)))
        desk.verified(desk[1], identity)
        #expect(desk[1].record.proof == nil && desk.history.rows.last?.resume?.digest == nil)
    }

    @Test func `is none of a file that existed already, and none of bytes that are deleted`() {
        let skipping = Desk()
        skipping.add(1, source) { $0.options.ifExists = .skip }
        skipping.began(skipping[1], total: 10)
        skipping.ends(skipping[1], .nameTaken(path: "/d/f"))
        #expect(skipping[1].state == .finished && skipping[1].record.proof == nil)

        let failing = Desk()
        failing.add(1, source)
        failing.began(failing[1], total: 10)
        failing.ends(failing[1], .complete(size: 10, fileName: "f", part(digest)))
        failing.endingFailed(failing[1], DownloadFailure(.checksumMismatch, "differs"))
        #expect(failing[1].state.failure?.name == .checksumMismatch)
        #expect(failing[1].record.proof == nil && failing[1].record.resume == nil)
    }

    /// The verification is repeated if the commit has to wait.
    @Test func `is compared again with the same digest`() {
        let desk = Desk()
        desk.add(1, source)
        desk.began(desk[1], total: 10)
        desk.ends(desk[1], .complete(size: 10, fileName: "f", part(digest)))
        desk.verified(desk[1], identity)
        #expect(desk[1].state == .committing && desk[1].record.resume?.digest == digest)
    }

    @Test func `of the cached copy is that of the copy`() {
        for proof in [nil, .checksum, .reprDigest] as [FileProof?] {
            let desk = Desk()
            desk.add(1, source) { $0.isFetch = true }
            let copy = CachedCopy(
                key: desk[1].record.copyKey, name: "f", stamp: FileStamp(identity: identity, size: 10, modified: 5), validators: nil,
                proof: proof)
            desk.ends(desk[1], .unchanged(copy))
            #expect(desk[1].state == .finished && desk[1].record.proof == proof)
        }
    }
}
