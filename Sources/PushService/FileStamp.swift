internal import DownloadModel
internal import Glibc

/// What tells whether a file is still the one that was fetched (stat(2)).
struct FileStamp: Equatable, Sendable {
    let device: UInt64
    let inode: UInt64
    let size: UInt64
    let seconds: Int64
    let nanoseconds: Int64

    init(device: UInt64, inode: UInt64, size: UInt64, seconds: Int64, nanoseconds: Int64) {
        (self.device, self.inode, self.size, self.seconds, self.nanoseconds) = (device, inode, size, seconds, nanoseconds)
    }

    /// nil: there is no regular file at `path`. Blocks.
    init?(of path: String) {
        var status = stat()
        guard lstat(path, &status) == 0, status.st_mode & S_IFMT == S_IFREG else { return nil }
        device = UInt64(clamping: status.st_dev)
        inode = UInt64(clamping: status.st_ino)
        size = UInt64(clamping: status.st_size)
        seconds = Int64(clamping: status.st_mtim.tv_sec)
        nanoseconds = Int64(clamping: status.st_mtim.tv_nsec)
    }
}
