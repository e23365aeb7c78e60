package import DownloadModel
internal import Glibc
package import PartFiles

/// Counts what a folder holds, so that a caller sees whether somebody has deleted files of a version. No file is opened. Blocks: use the
/// pool.
package enum FolderCount {
    /// A folder with more entries is no version that was unpacked (`ExtractionLimits.entries`).
    package static let mostEntries: UInt64 = 1_000_000

    /// The entries and bytes in the folder `name`; nil if there is no such folder.
    ///
    /// Links are counted and not followed. Folders on another file system, and those that this user may not read, are counted and not
    /// entered, because nothing was unpacked there, or an app cannot read what was.
    ///
    /// - Parameters:
    ///   - name: a bare name in `directory`, an absolute path.
    ///   - isEnough: the count ends early once this is true.
    package static func count(
        _ name: String, directory: String, allowHidden: Bool, until isEnough: (FolderSize) -> Bool = { _ in false }
    ) throws(DiskError) -> FolderSize? {
        let parent = try OpenFolder.open(directory, allowHidden: allowHidden)
        let root = openUninterrupted(parent.descriptor, name, folderFlags)
        guard root >= 0 else {
            guard [ENOENT, ENOTDIR, ELOOP].contains(errno) else { throw DiskError("open \(name)") }
            return nil
        }
        defer { close(root) }
        var status = stat()
        guard fstat(root, &status) == 0 else { throw DiskError("look at \(name)") }
        var count = Count(device: status.st_dev)
        try count.add(root, depth: 1, isEnough)
        return count.size
    }

    private struct Count {
        let device: dev_t
        var size = FolderSize(entries: 0, bytes: 0)

        init(device: dev_t) { self.device = device }

        /// - Returns: whether the count goes on.
        @discardableResult mutating func add(_ folder: Int32, depth: Int, _ isEnough: (FolderSize) -> Bool) throws(DiskError) -> Bool {
            let copy = openUninterrupted(folder, ".", folderFlags)
            guard copy >= 0, let list = fdopendir(copy) else {
                let error = DiskError("list a folder")
                if copy >= 0 { close(copy) }
                throw error
            }
            defer { closedir(list) }
            while true {
                errno = 0
                guard let entry = readdir(list) else {
                    guard errno == 0 else { throw DiskError("list a folder") }
                    return true
                }
                let name = withUnsafeBytes(of: &entry.pointee.d_name) { Array($0.prefix { $0 != 0 }) }
                if name == Array(".".utf8) || name == Array("..".utf8) { continue }
                var status = stat()
                guard withName(name, { fstatat(folder, $0, &status, AT_SYMLINK_NOFOLLOW) }) == 0 else {
                    // Another program is deleting the folder.
                    if errno == ENOENT { continue }
                    throw DiskError("look at \(text(name))")
                }
                size.entries +|= 1
                if status.st_mode & S_IFMT == S_IFREG { size.bytes +|= ByteCount(clamping: status.st_size) }
                if isEnough(size) { return false }
                guard size.entries <= mostEntries else { throw DiskError("count the files of a version", E2BIG) }
                guard status.st_mode & S_IFMT == S_IFDIR, status.st_dev == device, depth <= ExtractionLimits().depth else { continue }
                let child = openEntry(folder, name, folderFlags)
                guard child >= 0 else {
                    if [ENOENT, ENOTDIR, ELOOP, EACCES].contains(errno) { continue }
                    throw DiskError("open \(text(name))")
                }
                defer { close(child) }
                guard try add(child, depth: depth +| 1, isEnough) else { return false }
            }
        }
    }
}

private let folderFlags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC
