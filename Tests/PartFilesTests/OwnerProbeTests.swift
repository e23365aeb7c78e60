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
}
