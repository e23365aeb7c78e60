internal import CSystem
package import DownloadModel
package import Glibc

/// A folder held open, reached without following anybody else's symbolic link.
///
/// The path is walked component by component, each opened relative to the one before (openat(2) with O_PATH and O_NOFOLLOW), so what was
/// looked at is what is opened: a link or a folder put in the way meanwhile changes nothing.
package final class OpenFolder {
    /// Symbolic links on one way; the kernel's own limit.
    static let linkLimit = 40

    /// Why a walk ended before its folder.
    enum Obstacle: Error {
        /// A system call failed at `path`, with this errno.
        case failed(path: String, code: Int32)
        case cannotMake(path: String, code: Int32)
        /// A symbolic link that neither this user nor root has made.
        case foreignLink(path: String)
        case tooManyLinks
        /// A component with a leading dot, where that is not allowed; `path` as it was reached.
        case hidden(path: String)
        case notFolder(path: String)
    }

    /// For `…at` calls and fsync(2); open as long as this object lives.
    package let descriptor: Int32

    private init(adopting descriptor: Int32) { self.descriptor = descriptor }

    deinit { close(descriptor) }

    /// Brings names to the disk. A file system that has no fsync for folders answers EINVAL.
    func sync() -> Bool { fsync(descriptor) == 0 || errno == EINVAL }

    /// Opens `directory`, an absolute path. Links of this user and of root are followed, at most `linkLimit`.
    ///
    /// - Parameters:
    ///   - allowHidden: whether a component, also of a link's target, may begin with a dot.
    ///   - create: makes missing folders (0777 & umask).
    static func walk(_ directory: String, allowHidden: Bool, create: Bool = false) throws(Obstacle) -> OpenFolder {
        guard directory.isAbsolutePath else { throw .failed(path: directory, code: ENOENT) }
        var here = Glibc.open("/", folderFlags)
        guard here >= 0 else { throw .failed(path: "/", code: errno) }
        defer { close(here) }
        var rest = Array(directory.pathComponents.reversed())  // the next component is the last
        var names: [Substring] = []  // of the way so far, for messages
        var links = 0
        while let component = rest.popLast() {
            if component == "." { continue }
            let path = "/" + (names + [component]).joined(separator: "/")
            if component.utf8.first == UInt8(ascii: "."), component != "..", !allowHidden { throw .hidden(path: path) }
            let next = try enter(here, String(component), path, create: create)
            var status = stat()
            guard fstat(next, &status) == 0 else {
                let code = errno
                close(next)
                throw .failed(path: path, code: code)
            }
            switch status.st_mode & S_IFMT {
            case S_IFDIR:
                if component == ".." { _ = names.popLast() } else { names.append(component) }
                close(here)
                here = next
            case S_IFLNK:
                defer { close(next) }
                links += 1
                guard status.st_uid == geteuid() || status.st_uid == 0 else { throw .foreignLink(path: path) }
                guard links <= linkLimit else { throw .tooManyLinks }
                guard let target = target(of: next) else { throw .failed(path: path, code: ENAMETOOLONG) }
                if target.isAbsolutePath {
                    let top = Glibc.open("/", folderFlags)
                    guard top >= 0 else { throw .failed(path: "/", code: errno) }
                    close(here)
                    here = top
                    names = []
                }
                rest += target.pathComponents.reversed()
            default:
                close(next)
                throw .notFolder(path: path)
            }
        }
        let opened = openUninterrupted(here, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        guard opened >= 0 else { throw .failed(path: directory, code: errno) }
        return OpenFolder(adopting: opened)
    }

    /// `walk`, with what stands in the way as the disk's error.
    ///
    /// - Parameter allowHidden: as `walk`. Whoever writes or names a file passes the service's rule; whoever deletes a file of ours, or
    ///   looks at one whose identity is known, passes true: what was written while hidden folders were allowed must not stay for ever.
    package static func open(_ directory: String, allowHidden: Bool) throws(DiskError) -> OpenFolder {
        do throws(Obstacle) {
            return try walk(directory, allowHidden: allowHidden)
        } catch {
            switch error {
            case .failed(_, let code), .cannotMake(_, let code): throw DiskError("open the folder", code)
            case .foreignLink(let path):
                throw DiskError(
                    "follow the symbolic link of another user", EACCES,
                    refusal: "Todoku does not use the folder \(directory): \(path) is a symbolic link of another user.")
            case .tooManyLinks: throw DiskError("open the folder", ELOOP)
            case .notFolder: throw DiskError("open the folder", ENOTDIR)
            case .hidden(let path):
                throw DiskError(
                    "write into a hidden folder", EACCES,
                    refusal: "Todoku does not write into the folder \(directory): it is at \(path) now, which is hidden.")
            }
        }
    }

    /// The folder of `path`, an absolute path of a file whose identity is known, and the file's name in it.
    static func parent(of path: String) throws(DiskError) -> (folder: OpenFolder, name: String) {
        guard path.utf8.contains(UInt8(ascii: "/")) else { throw DiskError("open the folder", ENOENT) }
        let name = path.lastPathComponent
        return (try open("/" + path[..<name.startIndex], allowHidden: true), String(name))
    }

    /// Whether `status`, of what stands in this folder, is that of a regular file of ours: it has the owner that a file has which we make
    /// here.
    ///
    /// On NTFS, FAT, SMB and all-squash NFS that is seldom this user: there a fresh file shows who it is, and is removed again.
    package func isOurs(_ status: stat) -> Bool {
        status.isRegular && (status.st_uid == geteuid() || status.st_uid == ownerOfNewFiles)
    }

    /// The owner that the mount gives to what we make; nil where we can make nothing.
    private lazy var ownerOfNewFiles: uid_t? = {
        let name = ".todoku-owner-\(getpid())-\(UInt64.random(in: 0...UInt64.max))"
        let probe = openUninterrupted(descriptor, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0o600)
        guard probe >= 0 else { return nil }
        defer {
            close(probe)
            unlinkat(descriptor, name, 0)
        }
        var status = stat()
        return fstat(probe, &status) == 0 ? status.st_uid : nil
    }()

    /// What stands under `name`, itself and not what it may link to; nil where there is nothing.
    package func status(_ name: String) -> stat? {
        var status = stat()
        return fstatat(descriptor, name, &status, AT_SYMLINK_NOFOLLOW) == 0 ? status : nil
    }

    /// What stands under `name`, itself and not what it may link to; nil where there is nothing for certain.
    func look(_ name: String) throws(DiskError) -> stat? {
        if let status = status(name) { return status }
        guard errno == ENOENT else { throw DiskError("look for \(name)") }
        return nil
    }

    /// Removes `name` where it is a regular file of ours.
    ///
    /// - Returns: whether there was one. Throws where it is still there.
    @discardableResult
    package func removeOwn(_ name: String, calls: NamingCalls = NamingCalls()) throws(DiskError) -> Bool {
        guard let status = try look(name), isOurs(status) else { return false }
        let code = calls.unlink(descriptor, name)
        guard code == 0 || code == ENOENT else { throw DiskError("delete \(name)", code) }
        return true
    }

    private static func enter(_ folder: Int32, _ name: String, _ path: String, create: Bool) throws(Obstacle) -> Int32 {
        var next = open(folder, name)
        if next < 0, errno == ENOENT, create {
            guard mkdirat(folder, name, 0o777) == 0 || errno == EEXIST else { throw .cannotMake(path: path, code: errno) }
            next = open(folder, name)
        }
        guard next >= 0 else { throw .failed(path: path, code: errno) }
        return next
    }

    /// `name` as a folder, which mounts what autofs has for it; else itself, be it a link or a file.
    ///
    /// O_PATH alone does not mount (open(2)): it gives the empty folder below. With O_DIRECTORY it does (`follow_automount` in fs/namei.c).
    private static func open(_ folder: Int32, _ name: String) -> Int32 {
        let next = openUninterrupted(folder, name, linkFlags | O_DIRECTORY)
        guard next < 0, errno == ENOTDIR || errno == ELOOP else { return next }
        return openUninterrupted(folder, name, linkFlags)
    }

    /// The text of the symbolic link that `descriptor` is.
    private static func target(of descriptor: Int32) -> String? {
        var bytes = [CChar](repeating: 0, count: Int(PATH_MAX))
        let count = readlinkat(descriptor, "", &bytes, bytes.count)
        return count > 0 && count < bytes.count ? String(decoding: bytes.prefix(count).map { UInt8(bitPattern: $0) }, as: UTF8.self) : nil
    }
}

private let linkFlags = todoku_o_path | O_NOFOLLOW | O_CLOEXEC
private let folderFlags = todoku_o_path | O_DIRECTORY | O_CLOEXEC

extension stat {
    var isRegular: Bool { st_mode & S_IFMT == S_IFREG }
    /// `boot`: of the running kernel. Without the mount, which a look by name does not tell.
    package func stamp(boot: String) -> FileStamp {
        FileStamp(
            identity: FileIdentity(device: UInt64(st_dev), inode: UInt64(st_ino), mount: 0, boot: boot), size: byteCount,
            modified: Int64(st_mtim.tv_sec) &* 1_000_000_000 &+ Int64(st_mtim.tv_nsec))
    }
}

/// openat(2), again where a signal came between, as on a network's or FUSE's file system.
func openUninterrupted(_ folder: Int32, _ name: String, _ flags: Int32, _ mode: mode_t = 0) -> Int32 {
    while true {
        let descriptor = openat(folder, name, flags, mode)
        if descriptor >= 0 || errno != EINTR { return descriptor }
    }
}
