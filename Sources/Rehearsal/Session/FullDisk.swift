internal import CSystem
internal import DownloadModel
internal import Glibc

/// A disk that is almost full: a disk in memory that is mounted for it, or an existing disk.
final class FullDisk {
    /// The bytes of a disk in memory. The largest file of the server fits when there is room again.
    private static let size: ByteCount = 24 << 20
    /// An existing disk must not have more free bytes than this, because they are filled.
    private static let mostFree: ByteCount = 256 << 20

    /// The download folder on it.
    let folder: String
    private let isMounted: Bool
    /// The open file that fills the disk; -1: none. It has no name, so that a kill of this process makes room, too.
    private var filler: Int32 = -1
    /// The folder to remove at the end; nil: the session removes it.
    private let own: String?

    /// Lets this process mount disks. Call before the first thread starts.
    static func allowMounts() throws(RehearsalError) {
        let code = todoku_have_own_mounts()
        // The root folder of a chroot is no mount point, so its mounts cannot be made private (mount(2), MS_PRIVATE).
        guard code != EINVAL else {
            throw RehearsalError(
                "a small disk cannot be mounted in a chroot; name a folder on a small disk, such as full-disk:disk=/dev/shm in a container")
        }
        guard code == 0 else { throw cannotMount(code) }
    }

    private static func cannotMount(_ code: Int32) -> RehearsalError {
        RehearsalError(
            """
            a small disk cannot be mounted: \(String(cString: strerror(code))); allow unprivileged user namespaces, or name a folder on a \
            small disk, such as full-disk:disk=/dev/shm in a container
            """)
    }

    /// Mounts a disk in memory at `folder`, which must exist, and leaves `free` bytes on it.
    init(at folder: String, free: ByteCount) throws(RehearsalError) {
        (self.folder, isMounted) = (folder, true)
        own = nil
        let code = todoku_mount_memory_disk(folder, Self.size)
        guard code == 0 else { throw Self.cannotMount(code) }
        do throws(RehearsalError) { try fill(folder, leaving: free) } catch {
            end()
            throw error
        }
    }

    /// Fills the disk of the folder `disk` until `free` bytes are left.
    init(filling disk: String, free: ByteCount) throws(RehearsalError) {
        var space = statvfs()
        guard statvfs(disk, &space) == 0 else { throw .of(disk, "cannot be used as a disk", errno) }
        let room = UInt64(clamping: space.f_bavail) *| UInt64(clamping: space.f_frsize)
        guard room <= Self.mostFree else {
            throw RehearsalError(
                "the disk of “\(disk)” has \(HumanText.size(room)) free, and this scenario fills it; name one with at most 256 MiB free")
        }
        let made = try TemporaryTree.make(in: disk)
        (folder, isMounted) = ("\(made)/Downloads", false)
        own = made
        do throws(RehearsalError) {
            // The service would ignore the name of a hidden download folder (`Folders.downloads`), and the disk would stay unused.
            guard !made.contains("/.") else {
                throw RehearsalError(
                    "“\(disk)” is in a hidden folder, which the service does not use as its download folder; name another folder")
            }
            try TemporaryTree.makeFolder(folder, 0o755)
            try fill(made, leaving: free)
        } catch {
            end()
            throw error
        }
    }

    /// Fills the disk of `folder` with a file that is made in it.
    private func fill(_ folder: String, leaving free: ByteCount) throws(RehearsalError) {
        var space = statvfs()
        guard statvfs(folder, &space) == 0 else { throw .of(folder, "cannot be used as a disk", errno) }
        let room = UInt64(clamping: space.f_bavail) *| UInt64(clamping: space.f_frsize)
        guard room > free else { return }
        let path = "\(folder)/.filler"
        filler = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0o600)
        guard filler >= 0 else { throw .of(path, "cannot be made", errno) }
        unlink(path)
        let code = posix_fallocate(filler, 0, off_t(clamping: room -| free))
        guard code == 0 else { throw .of(path, "cannot fill the disk", code) }
    }

    /// Makes room again.
    func release() {
        if filler >= 0 { close(filler) }
        filler = -1
    }

    /// Unmounts the disk, or removes everything that was made on it.
    ///
    /// - Returns: whether nothing is left of it.
    @discardableResult func end() -> Bool {
        release()
        if isMounted { return todoku_unmount(folder) == 0 }
        return own.map { TemporaryTree.remove($0) } ?? true
    }
}
