import CSystem
import DownloadModel
import EventLoop
import Glibc
import TestSupport
import Testing

@testable internal import PartFiles

@Suite struct `The space of a file whose size is known` {
    /// The bytes that a part file of 8 MiB takes up before its first byte arrives.
    private func reserved(in folder: TemporaryFolder) throws -> Int {
        let part = try PartFile.create(
            in: try OpenFolder.open(folder.path, allowHidden: true), name: ".todoku-1.part", mapPath: nil, boot: bootIdentity())
        part.total = 8 << 20
        try part.reserve()
        var status = stat()
        try #require(stat(folder(".todoku-1.part"), &status) == 0)
        return Int(status.st_blocks) * 512
    }

    @Test func `is reserved on a disk, and not in memory`() throws {
        let disk = TemporaryFolder("todoku-reserve", in: "/var/tmp")
        let memory = TemporaryFolder("todoku-reserve", in: "/dev/shm")
        #expect(try reserved(in: memory) == 0)
        let bytes = try reserved(in: disk)
        // overlayfs over a file system without reservations reserves nothing
        #expect(bytes >= 8 << 20 || !canReserve(disk), "\(bytes) bytes")
    }

    /// Whether the file system of `folder` can reserve space.
    private func canReserve(_ folder: TemporaryFolder) -> Bool {
        let descriptor = open(folder("probe"), O_CREAT | O_RDWR | O_CLOEXEC, 0o600)
        defer { close(descriptor) }
        return todoku_fallocate_keep_size(descriptor, 0, 4096) == 0
    }
}
