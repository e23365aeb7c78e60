import DownloadModel
import Glibc
import TestSupport
import Testing

@testable internal import PartFiles

@Suite struct `The file that shows the owner of new files` {
    private let folder = TemporaryFolder("todoku-owner")

    /// - Parameter age: in seconds.
    private func make(_ name: String, age: Int, _ bytes: [UInt8] = []) {
        writeFile(folder(name), bytes)
        let changed = timespec(tv_sec: time(nil) - age, tv_nsec: 0)
        #expect(utimensat(AT_FDCWD, folder(name), [changed, changed], 0) == 0)
    }

    @Test func `is removed at once, and later if a killed process has left it`() throws {
        make(".todoku-owner-7-8", age: 3600)
        make(".todoku-owner-10-11", age: -3600)  // of a process that is about to remove it
        make(".todoku-owner-12-13", age: 3600, [1])  // no file of this kind: it has contents
        make(".todoku-owner-mine", age: 3600)
        make("a", age: 3600)
        let open = try OpenFolder.open(folder.path, allowHidden: true)
        #expect(!open.isOurs(owner: geteuid() + 1))
        #expect(listFolder(folder.path) == [".todoku-owner-10-11", ".todoku-owner-12-13", ".todoku-owner-mine", "a"])
    }

    /// As on a share that gives our files to another user. A file system without free inodes takes no new file.
    @Test(.enabled("only root can mount a small disk") { await SmallDisk.isPossible() })
    func `is needed to delete or replace a part file: on a full disk, that is done later`() async throws {
        let name = ".todoku-1.part"
        let done = try await SmallDisk.withDisk(bytes: 1 << 20) { disk in
            writeFile("\(disk.path)/\(name)", [1])
            #expect(chown("\(disk.path)/\(name)", 65534, 65534) == 0)
            await disk.remount("nr_inodes=2")
            #expect(!Commit.discard(directory: disk.path, partName: name, mapPath: nil), "the row of the part file must stay")
            let open = try OpenFolder.open(disk.path, allowHidden: true)
            let reopening = #expect(throws: DiskError.self) {
                _ = try PartFile.reopen(in: open, name: name, resume: nil, hasChecksum: false, mapPath: nil, boot: "b")
            }
            let creating = #expect(throws: DiskError.self) {
                _ = try PartFile.create(in: open, name: name, mapPath: nil, boot: "b")
            }
            for error in [reopening, creating] { #expect(error?.failure(folder: disk.path).wait == .diskSpace) }
            // With room, the file turns out to be another user's, and is left alone.
            await disk.remount("nr_inodes=100")
            #expect(Commit.discard(directory: disk.path, partName: name, mapPath: nil) && listFolder(disk.path) == [name])
            return true
        }
        #expect(done ?? true)
    }
}
