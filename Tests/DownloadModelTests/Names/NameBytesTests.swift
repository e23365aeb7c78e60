import Testing

@testable import DownloadModel

/// "café" in both Unicode forms: equal texts for Swift, two names for a file system.
private let (composed, decomposed) = ("/d/caf\u{E9}", "/d/cafe\u{301}")

@Suite struct `A name from outside` {
    @Test func `differs if one byte differs`() {
        #expect(composed == decomposed, "or this suite tells nothing")
        #expect(ByteText(composed) != ByteText(decomposed) && ByteText(composed) == ByteText("/d/caf" + "\u{E9}"))
        #expect(Set([ByteText(composed), ByteText(decomposed)]).count == 2)
        func key(_ directory: String, _ name: String?) -> CopyKey {
            CopyKey(app: "", url: "http://h/a", directory: directory, wantedName: name)
        }
        #expect(key(composed, nil) != key(decomposed, nil) && key("/d", composed) != key("/d", decomposed))
        #expect(Set([key(composed, nil), key(decomposed, nil), key(composed, "")]).count == 3)
        func copy(_ name: String) -> CachedCopy {
            let identity = FileIdentity(device: 1, inode: 2, mount: 3, boot: "")
            return CachedCopy(key: key("/d", nil), name: name, stamp: FileStamp(identity: identity, size: 1, modified: 1), validators: nil)
        }
        #expect(copy(composed) != copy(decomposed) && copy(composed) == copy(composed))
    }

    @Test func `replaces one that looks the same in a record`() {
        var record = DownloadRecord(
            number: DownloadNumber(1), url: "http://h/a", options: DownloadOptions(), directory: composed, state: .queued,
            queuedAt: WallTime(microseconds: 1), position: 0)
        (record.fileName, record.path) = (composed, composed)
        let before = record
        record.fileName = decomposed
        #expect(record.fileName.isSameBytes(as: decomposed) && record != before)
        record.fileName = composed
        #expect(record == before)
        record.path = decomposed
        #expect(record.path.isSameBytes(as: decomposed) && record != before)
        record.path = composed
        record.directory = decomposed
        #expect(record != before)
        record.directory = composed
        record.options.fileName = decomposed
        var other = record
        other.options.fileName = composed
        #expect(record != other)
        other = record
        (record.options.extract, other.options.extract) = (.named(composed), .named(decomposed))
        #expect(record != other)
        // A new download shares the options of the one before, if they are equal.
        other.join(record)
        #expect(other.options.extract?.name?.isSameBytes(as: decomposed) == true)
    }

    @Test func `is split at each slash, also one with a combining mark`() {
        let path = "/a/\u{301}b/.\u{301}c//./\u{20DD}"
        #expect(path.pathComponents.map { Array($0.utf8) } == ["a", "\u{301}b", ".\u{301}c", ".", "\u{20DD}"].map { Array($0.utf8) })
        #expect(path.lastPathComponent.isSameBytes(as: "\u{20DD}") && "a".lastPathComponent == "a" && "/a/".lastPathComponent.isEmpty)
        #expect(path.tidyPath.isSameBytes(as: "/a/\u{301}b/.\u{301}c/\u{20DD}") && "//".tidyPath == "/")
        #expect("/\u{301}a".isAbsolutePath && !"a/".isAbsolutePath && !"".isAbsolutePath)
    }
}
