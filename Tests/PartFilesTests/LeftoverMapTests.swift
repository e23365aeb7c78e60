import DownloadModel
import Glibc
import TestSupport
import Testing

@testable internal import PartFiles

@Suite struct `The map of a file that gets its name` {
    let folder = TemporaryFolder("todoku-leftover")

    private var map: String { folder("map") }

    private func create() throws -> PartFile {
        let open = try OpenFolder.open(folder.path, allowHidden: true)
        let part = try PartFile.create(in: open, name: ".todoku-1.part", mapPath: map, boot: bootIdentity())
        (part.validator, part.isResumable) = (.entityTag("\"v1\""), true)
        return part
    }

    private func commit(_ part: PartFile) -> CommitOutcome {
        Commit.commit(
            directory: folder.path, partName: ".todoku-1.part", identity: part.identity, name: "a", policy: .fail, origin: nil,
            mapPath: map)
    }

    /// A small file has no map, and a larger one has. A map of an earlier file is removed first.
    @Test(arguments: [16 << 10, 1 << 20]) func `is not left, whether this process has made it or an earlier one`(size: Int) throws {
        for path in [map, map + ".next"] { writeFile(path, "of an earlier part file".utf8) }
        let part = try create()
        #expect(listFolder(folder.path) == [".todoku-1.part"])
        try patternBytes(size).withUnsafeBytes { try part.write($0, at: 0) }
        #expect((readFile(map) != nil) == (size > 1 << 18))
        #expect(commit(part) == .committed(path: folder("a")))
        #expect(listFolder(folder.path) == ["a"])
    }

    /// As after a crash: the file is whole, and another process names it.
    @Test func `is removed by a process that has not made the part file`() throws {
        let part = try create()
        try patternBytes(1 << 20).withUnsafeBytes { try part.write($0, at: 0) }
        let bytes = try #require(readFile(map))
        #expect(commit(part) == .committed(path: folder("a")) && readFile(map) == nil)
        writeFile(map, bytes)
        let found = Commit.found(
            directory: folder.path, partName: ".todoku-1.part", name: "a", identity: part.identity, size: 1 << 20, mapPath: map)
        #expect(found == .committed(path: folder("a")))
        #expect(listFolder(folder.path) == ["a"])
    }

    /// unlink(2) removes no folder, as it removes no file of a disk that fails.
    @Test func `is removed at the end if it could not be removed before the part file was made`() throws {
        _ = folder.makeFolder("map")
        let part = try create()
        #expect(listFolder(folder.path) == [".todoku-1.part", "map"])
        try patternBytes(16 << 10).withUnsafeBytes { try part.write($0, at: 0) }
        #expect(rmdir(map) == 0)
        writeFile(map, "of an earlier part file".utf8)
        #expect(commit(part) == .committed(path: folder("a")))
        #expect(listFolder(folder.path) == ["a"])
    }
}

@Suite struct `The map of a file that was cut after a failed flush` {
    /// The process was killed before it could remove the map.
    @Test func `counts no more than the last checkpoint`() throws {
        let folder = TemporaryFolder("todoku-leftover")
        let (map, size) = (folder("map"), ByteCount(1 << 20))
        let open = try OpenFolder.open(folder.path, allowHidden: true)
        let part = try PartFile.create(in: open, name: ".todoku-1.part", mapPath: map, boot: bootIdentity())
        (part.validator, part.isResumable) = (.entityTag("\"v1\""), true)
        try patternBytes(1 << 20).withUnsafeBytes { try part.write($0, at: 0) }
        let checkpoint = try #require(part.resumeData(ByteRanges(prefix: 300_000)))
        func reopened() throws -> ByteCount? {
            try PartFile.reopen(
                in: open, name: ".todoku-1.part", resume: checkpoint, hasChecksum: false, mapPath: map, boot: bootIdentity()
            )?.written
        }
        #expect(try reopened() == size && fileExists(map))
        #expect(truncate(folder(".todoku-1.part"), off_t(size) - 1) == 0)
        #expect(try reopened() == 300_000 && !fileExists(map))
    }
}
