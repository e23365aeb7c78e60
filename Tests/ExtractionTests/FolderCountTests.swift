import DownloadModel
import Glibc
import PartFiles
import TestSupport
import Testing

@testable import Extraction

@Suite struct `A folder that is counted` {
    private let folder = TemporaryFolder("todoku-count")

    private func count(_ name: String = "v1", until isEnough: (FolderSize) -> Bool = { _ in false }) throws -> FolderSize? {
        try FolderCount.count(name, directory: folder.path, allowHidden: true, until: isEnough)
    }

    @Test func `has the entries and the bytes that are in it`() throws {
        folder.makeFolder("v1")
        #expect(try count() == FolderSize(entries: 0, bytes: 0))
        folder.makeFolder("v1/a")
        folder.makeFolder("v1/a/b")
        writeFile(folder("v1/a/b/1"), patternBytes(1000))
        writeFile(folder("v1/.hidden"), [1, 2, 3])
        link(folder("v1/a/b/1"), folder("v1/again"))
        // The bytes of a hole count, those of a link's target do not.
        writeFile(folder("v1/hole"), [])
        truncate(folder("v1/hole"), 5000)
        writeFile(folder("big"), patternBytes(10_000))
        symlink("../big", folder("v1/link"))
        symlink("..", folder("v1/up"))
        let whole = FolderSize(entries: 8, bytes: 7003)
        #expect(try count() == whole)
        unlink(folder("v1/a/b/1"))
        #expect(try count() == FolderSize(entries: 7, bytes: 6003))
        #expect(try count().map(whole.covers) == true && count()?.covers(whole) == false)
    }

    @Test func `is no file, no link, and no name that is not there`() throws {
        writeFile(folder("file"), [1])
        folder.makeFolder("real")
        symlink("real", folder("link"))
        for name in ["file", "link", "none"] { #expect(try count(name) == nil) }
        #expect(throws: DiskError.self) { try FolderCount.count("v1", directory: folder("none"), allowHidden: true) }
    }

    @Test func `is counted no further than is asked for, nor deeper than an archive is`() throws {
        folder.makeFolder("v1")
        for number in 0..<100 { writeFile(folder("v1/\(number)"), [1]) }
        #expect(try count { $0.entries == 10 } == FolderSize(entries: 10, bytes: 10))
        var path = "v2"
        for _ in 0...60 {
            folder.makeFolder(path)
            path += "/d"
        }
        #expect(try count("v2")?.entries == 33)
    }

    @Test func `is not entered where another file system begins`() async throws {
        let done = try await SmallDisk.withDisk(bytes: 1 << 20) { disk in
            writeFile("\(disk.path)/other", [1])
            folder.makeFolder("v1")
            let place = folder.makeFolder("v1/disk")
            await disk.show(at: place, true)
            let found = try count()
            await disk.show(at: place, false)
            return found == FolderSize(entries: 1, bytes: 0)
        }
        #expect(done ?? true)
    }
}
