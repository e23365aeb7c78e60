import DownloadModel
import Scheduling
import Testing

/// An end after which the part file is deleted.
private enum End: CaseIterable {
    case skipped, nameTaken, cancelled, unchanged, descriptorLost, descriptorFailed

    var state: DownloadState { self == .skipped ? .committing : .active }
    var isToDescriptor: Bool { self == .descriptorLost || self == .descriptorFailed }
}

@Suite struct `The row of an end that deletes the part file` {
    private let identity = FileIdentity(device: 1, inode: 2, mount: 3, boot: "b")

    @Test(arguments: End.allCases) fileprivate func `has the same number of received bytes as the record`(end: End) throws {
        let desk = Desk()
        let entry = desk.add(1) {
            $0.options.ifExists = .skip
            if end.isToDescriptor { ($0.isToDescriptor, $0.directory) = (true, "") }
        }
        desk.began(entry, total: 9)
        let part = ResumeData(written: 4, total: 9, validator: .entityTag("\"v\""), identity: identity)
        desk.checkpoint(entry, part)
        switch end {
        case .skipped:
            desk.ends(entry, .complete(size: 9, fileName: "f", part))
            desk.verified(entry, identity)
            desk.committed(entry, path: "/d/f", skipped: true)
        case .nameTaken: desk.ends(entry, .nameTaken(path: "/d/f"))
        case .cancelled: try desk.steer(entry, .cancel)
        case .unchanged:
            let stamp = FileStamp(identity: identity, size: 1, modified: 1)
            desk.ends(entry, .unchanged(CachedCopy(key: entry.record.copyKey, name: "f", stamp: stamp, validators: nil)))
        case .descriptorLost: desk.descriptorLost(entry)
        case .descriptorFailed: desk.fails(entry, DownloadFailure(.network, "No route."), part)
        }
        #expect(entry.state.hasEnded)
        let row = try #require(desk.rows.downloads[entry.number])
        #expect(row.resume == entry.record.resume && row.received == entry.record.received)
        if end != .unchanged { #expect(row.resume == nil, "the bytes are deleted") }
        #expect(end != .skipped || row.received == 9, "a skipped download shows what it had received")
        #expect(row.isUnchanged == [.skipped, .nameTaken, .unchanged].contains(end), "the download ended with a file that was there")
    }
}
