internal import CSystem
internal import DownloadModel
internal import Glibc

/// A disk that is almost full: one in memory of its own, or an existing one.
final class SmallDisk {
    /// The bytes of a disk in memory. It holds the largest file of the server when there is room again.
    private static let size: ByteCount = 24 << 20
    /// An existing disk must not have more free bytes than this, because they are filled.
    private static let mostFree: ByteCount = 256 << 20

    /// The download folder on it.
    let folder: String
    private let isMounted: Bool
    private let filler: String
    /// The folder to remove; nil: it goes with the session.
    private let own: String?

    /// Lets this process mount disks. Call before the first thread starts.
    static func allowMounts() throws(RehearsalError) {
        let code = todoku_have_own_mounts()
        guard code == 0 else { throw cannotMount(code) }
    }

    private static func cannotMount(_ code: Int32) -> RehearsalError {
        RehearsalError(
            """
            no small disk can be made: \(String(cString: strerror(code))). Allow unprivileged user namespaces, or name a folder on a small \
            disk that is there already, such as full-disk:disk=/dev/shm in a container
            """)
    }

    /// Mounts a disk in memory at `folder`, which must exist, and leaves `free` bytes on it.
    init(at folder: String, free: ByteCount) throws(RehearsalError) {
        (self.folder, isMounted, own, filler) = (folder, true, nil, "\(folder)/.todoku-filler")
        let code = todoku_mount_memory_disk(folder, Self.size)
        guard code == 0 else { throw Self.cannotMount(code) }
        do throws(RehearsalError) { try Self.fill(folder, filler, leaving: free) } catch {
            _ = todoku_unmount(folder)
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
        var template = Array("\(disk)/todoku-rehearse.XXXXXX".utf8CString)
        guard mkdtemp(&template) != nil else { throw .of(disk, "cannot have a folder made in it", errno) }
        let made = String(decoding: template.dropLast().map { UInt8(bitPattern: $0) }, as: UTF8.self)
        (folder, isMounted, own, filler) = ("\(made)/Downloads", false, made, "\(made)/filler")
        mkdir(folder, 0o755)
        do throws(RehearsalError) { try Self.fill(disk, filler, leaving: free) } catch {
            TemporaryTree.remove(made)
            throw error
        }
    }

    private static func fill(_ disk: String, _ filler: String, leaving free: ByteCount) throws(RehearsalError) {
        var space = statvfs()
        guard statvfs(disk, &space) == 0 else { throw .of(disk, "cannot be used as a disk", errno) }
        let room = UInt64(clamping: space.f_bavail) *| UInt64(clamping: space.f_frsize)
        guard room > free else { return }
        let file = open(filler, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0o600)
        guard file >= 0 else { throw .of(filler, "cannot be made", errno) }
        defer { close(file) }
        let code = posix_fallocate(file, 0, off_t(clamping: room -| free))
        guard code == 0 else { throw .of(filler, "cannot fill the disk", code) }
    }

    /// Makes room again.
    func release() { unlink(filler) }

    /// Unmounts the disk, or removes what was made on it.
    func end() {
        unlink(filler)
        if isMounted { _ = todoku_unmount(folder) }
        if let own { TemporaryTree.remove(own) }
    }
}

/// Folders that a rehearsal made.
enum TemporaryTree {
    /// A new folder that only this user can read, in `$TMPDIR` or `/tmp`.
    static func make() throws(RehearsalError) -> String {
        let base = getenv("TMPDIR").map { String(cString: $0) } ?? "/tmp"
        guard base.hasPrefix("/") else { throw RehearsalError("TMPDIR must be an absolute path, not “\(base)”") }
        var template = Array("\(base)/todoku-rehearse.XXXXXX".utf8CString)
        guard mkdtemp(&template) != nil else { throw .of(base, "cannot have a folder made in it", errno) }
        return String(decoding: template.dropLast().map { UInt8(bitPattern: $0) }, as: UTF8.self)
    }

    /// Removes `path` with all that is in it, also read-only folders. Follows no link. What cannot be removed stays.
    static func remove(_ path: String) { todoku_remove_tree(path) }
}
