internal import CSystem
internal import DownloadModel
internal import Glibc

/// The growing file of one download, and its folder, both open. Bytes are written in order from the front.
final class PartFile {
    /// How many bytes gather before write-back is started behind them.
    private static let writebackStep: ByteCount = 8 << 20

    let name: String
    private let folder: Int32
    private(set) var descriptor: Int32
    private(set) var identity: FileIdentity
    /// Bytes that the kernel has: what counts as received.
    private(set) var written: ByteCount
    /// The first write that failed; nothing is written after it.
    private(set) var error: DiskError?
    private var writebackStarted: ByteCount

    private init(name: String, folder: Int32, descriptor: Int32, identity: FileIdentity, written: ByteCount) {
        (self.name, self.folder, self.descriptor, self.identity) = (name, folder, descriptor, identity)
        (self.written, writebackStarted) = (written, written)
    }

    deinit {
        close(descriptor)
        close(folder)
    }

    /// Makes an empty part file. A file of our own that is left under its name is removed; anything else there is refused.
    static func create(in directory: String, name: String, boot: String) throws(DiskError) -> PartFile {
        let folder = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        guard folder >= 0 else { throw DiskError("open the folder") }
        do {
            let (descriptor, identity) = try makeFile(in: folder, name: name, boot: boot)
            return PartFile(name: name, folder: folder, descriptor: descriptor, identity: identity, written: 0)
        } catch {
            close(folder)
            throw error
        }
    }

    /// Opens the part file that `resume` tells of. nil where there is none, or another file under its name; then nothing is held.
    ///
    /// - Parameter mapPath: the written map; it counts beyond the checkpoint where boot, device, inode and mount are still those of `resume`.
    static func reopen(in directory: String, name: String, resume: ResumeData, mapPath: String?, boot: String) -> PartFile? {
        let folder = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        guard folder >= 0 else { return nil }
        let descriptor = openat(folder, name, O_WRONLY | O_NOFOLLOW | O_CLOEXEC)
        var status = stat()
        guard descriptor >= 0, fstat(descriptor, &status) == 0, isOwn(status), status.st_ino == resume.identity.inode,
            let identity = try? fileIdentity(of: descriptor, boot: boot)
        else {
            if descriptor >= 0 { close(descriptor) }
            close(folder)
            return nil
        }
        var held = resume.written
        if identity == resume.identity, let mapPath, let mapped = WrittenMap.read(mapPath) { held = max(held, mapped) }
        held = min(held, ByteCount(status.st_size))
        return PartFile(name: name, folder: folder, descriptor: descriptor, identity: identity, written: held)
    }

    /// Throws its bytes away: a new, empty file takes its place. It has another inode, so no older checkpoint or map can be taken for its.
    func startOver() throws(DiskError) {
        guard unlinkat(folder, name, 0) == 0 || errno == ENOENT else { throw DiskError("remove the old part file") }
        let (fresh, identity) = try PartFile.makeFile(in: folder, name: name, boot: identity.boot)
        Glibc.close(descriptor)  // after the new one was made: until here its inode could not be used again
        descriptor = fresh
        self.identity = identity
        (written, writebackStarted, error) = (0, 0, nil)
    }

    /// Cuts off what lies beyond `written`.
    func trim() throws(DiskError) {
        guard ftruncate(descriptor, off_t(written)) == 0 else { throw DiskError("shorten the part file") }
    }

    /// Reserves room for `size` bytes in all. A file system that cannot is no error; one that is full is.
    func reserve(_ size: ByteCount) throws(DiskError) {
        guard size > written else { return }
        let code = todoku_fallocate_keep_size(descriptor, off_t(written), off_t(size - written))
        if [ENOSPC, EDQUOT, EFBIG].contains(code) { throw DiskError("reserve \(size) bytes", code) }
    }

    /// Writes at the end. Part of the bytes may be written where this throws; `written` says how many count.
    func write(_ bytes: UnsafeRawBufferPointer) throws(DiskError) {
        if let error { throw error }
        var rest = bytes[...]
        while !rest.isEmpty {
            let count = pwrite(descriptor, UnsafeRawBufferPointer(rebasing: rest).baseAddress, rest.count, off_t(written))
            if count < 0, errno == EINTR { continue }
            guard count > 0 else {
                let failed = DiskError("write the part file", count == 0 ? EIO : errno)
                error = failed
                throw failed
            }
            written += ByteCount(count)
            rest = rest.dropFirst(count)
        }
        if written - writebackStarted >= Self.writebackStep {
            _ = todoku_start_writeback(descriptor, off_t(writebackStarted), off_t(written - writebackStarted))  // a hint
            writebackStarted = written
        }
    }

    /// Whether `name` stands in the folder, as anything.
    func exists(_ name: String) -> Bool {
        var status = stat()
        return fstatat(folder, name, &status, AT_SYMLINK_NOFOLLOW) == 0
    }

    private static func makeFile(in folder: Int32, name: String, boot: String) throws(DiskError) -> (Int32, FileIdentity) {
        var descriptor = openat(folder, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0o600)
        if descriptor < 0, errno == EEXIST {
            var status = stat()
            guard fstatat(folder, name, &status, AT_SYMLINK_NOFOLLOW) == 0, isOwn(status) else {
                throw DiskError("take \(name), which is not a file of its own,", EEXIST)
            }
            guard unlinkat(folder, name, 0) == 0 else { throw DiskError("remove the old part file") }
            descriptor = openat(folder, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0o600)
        }
        guard descriptor >= 0 else { throw DiskError("create the part file") }
        do {
            return (descriptor, try fileIdentity(of: descriptor, boot: boot))
        } catch {
            close(descriptor)
            throw error
        }
    }

    private static func isOwn(_ status: stat) -> Bool {
        status.st_mode & S_IFMT == S_IFREG && status.st_uid == geteuid() && status.st_nlink == 1
    }
}

/// The identity of an open file. `boot`: of the running kernel, as `bootIdentity()` tells.
func fileIdentity(of descriptor: Int32, boot: String) throws(DiskError) -> FileIdentity {
    var (device, inode, mount): (UInt64, UInt64, UInt64) = (0, 0, 0)
    let code = todoku_file_identity(descriptor, &device, &inode, &mount)
    guard code == 0 else { throw DiskError("look at a file", code) }
    return FileIdentity(device: device, inode: inode, mount: mount, boot: boot)
}

/// `/proc/sys/kernel/random/boot_id`; empty where there is no such file.
func bootIdentity() -> String {
    let descriptor = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC)
    guard descriptor >= 0 else { return "" }
    defer { close(descriptor) }
    var bytes = [UInt8](repeating: 0, count: 64)
    let count = read(descriptor, &bytes, bytes.count)
    return String(decoding: bytes.prefix(max(0, count)).prefix { $0 > 0x20 }, as: UTF8.self)
}
