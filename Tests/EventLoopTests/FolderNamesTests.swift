internal import Glibc
internal import TestSupport
internal import Testing

@testable internal import EventLoop

@Suite struct `The names in a folder` {
    private let folder = TemporaryFolder()

    @Test func `are all names, or as many as are wanted`() {
        for name in ["a", "b", ".c"] { writeFile(folder(name), []) }
        #expect(folderNames(folder.path)?.sorted() == [".c", "a", "b"])
        #expect(folderNames(folder.path, atMost: 2)?.count == 2)
        #expect(folderNames(folder("none")) == nil)
    }

    @Test func `are unknown if the disk fails before the last one`() {
        for name in ["a", "b", "c"] { writeFile(folder(name), []) }
        var left = 4
        let names = folderNames(folder.path, atMost: .max) { stream in
            left -= 1
            guard left > 0 else {
                errno = EIO
                return nil
            }
            return readdir(stream)
        }
        let code = errno
        #expect(names == nil && code == EIO)
    }
}
