internal import CSystem
package import DownloadModel
internal import EventLoop
package import Glibc
internal import Synchronization

/// An open folder, reached without following another user's symbolic link.
///
/// A path without symbolic links is opened by one call, openat2(2). Any other path is walked component by component. Each component is
/// opened relative to the one before (openat(2) with O_PATH and O_NOFOLLOW). So the checked folder is the opened one, even if a link or a
/// folder is replaced meanwhile.
package final class OpenFolder {
    /// Most symbolic links on one path; the kernel's limit.
    static let linkLimit = 40

    /// Why a walk did not reach its folder.
    enum Obstacle: Error {
        /// A system call failed at `path`, with this errno.
        case failed(path: String, code: Int32)
        case cannotMake(path: String, code: Int32)
        /// A symbolic link that belongs neither to this user nor to root.
        case foreignLink(path: String)
        case tooManyLinks
        /// A component with a leading dot, which is not allowed; `path` is the real path.
        case hidden(path: String)
        case notFolder(path: String)
    }

    /// For `…at` calls and fsync(2); open while this object lives.
    package let descriptor: Int32
    /// The folder's path without symbolic links, at the time when it was opened.
    package let path: String

    private init(adopting descriptor: Int32, path: String) { (self.descriptor, self.path) = (descriptor, path) }

    deinit { close(descriptor) }

    /// Flushes the folder's names to the disk. Threads that do so for one folder at the same time share a flush. A file system without
    /// fsync for folders returns EINVAL.
    ///
    /// - Returns: false if the flush has failed; errno is set then.
    package func sync() -> Bool {
        let code = SharedFlushes.shared.flush(self)
        if code == 0 || code == EINVAL { return true }
        errno = code
        return false
    }

    /// Opens `directory`, an absolute path. Follows at most `linkLimit` symbolic links, only of this user and of root.
    ///
    /// - Parameters:
    ///   - allowHidden: whether a component, also in a link's target, may begin with a dot.
    ///   - mode: makes missing folders with this mode, less the umask. On return, the names of all folders on the way that belong to this
    ///     user are on disk. nil: makes none, and flushes nothing.
    static func walk(_ directory: String, allowHidden: Bool, making mode: UInt32? = nil) throws(Obstacle) -> OpenFolder {
        guard directory.isAbsolutePath else { throw .failed(path: directory, code: ENOENT) }
        if mode == nil, let folder = openWithoutLinks(directory, allowHidden: allowHidden) { return folder }
        var here = Glibc.open("/", folderFlags)
        guard here >= 0 else { throw .failed(path: "/", code: errno) }
        defer { close(here) }
        var rest = Array(directory.pathComponents.reversed())  // the next component is the last
        var names: [Substring] = []  // of the path so far, for messages
        var links = 0
        while let component = rest.popLast() {
            if component == "." { continue }
            let path = "/" + (names + [component]).joined(separator: "/")
            if component.utf8.first == UInt8(ascii: "."), component != "..", !allowHidden { throw .hidden(path: path) }
            let (next, isNameFlushed) = try enter(here, String(component), path, making: mode)
            var status = stat()
            guard fstat(next, &status) == 0 else {
                let code = errno
                close(next)
                throw .failed(path: path, code: code)
            }
            switch status.st_mode & S_IFMT {
            case S_IFDIR:
                if mode != nil, status.st_uid == geteuid(), component != ".." {
                    let code = flushOnce(status, in: here, isFlushed: isNameFlushed)
                    guard code == 0 else {
                        close(next)
                        throw .failed(path: path, code: code)
                    }
                }
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
        return OpenFolder(adopting: opened, path: "/" + names.joined(separator: "/"))
    }

    /// Opens `directory` in one call, if no component of its path is a symbolic link, hidden against the rule, or "..". nil: walk instead,
    /// which also finds the reason of a failure.
    private static func openWithoutLinks(_ directory: String, allowHidden: Bool) -> OpenFolder? {
        let names = directory.pathComponents.filter { $0 != "." }
        if names.contains("..") || !allowHidden && names.contains(where: { $0.utf8.first == UInt8(ascii: ".") }) { return nil }
        let opened = todoku_open_folder_without_links(directory)
        return opened >= 0 ? OpenFolder(adopting: opened, path: "/" + names.joined(separator: "/")) : nil
    }

    /// As `walk`, with an obstacle as a `DiskError`.
    ///
    /// - Parameters:
    ///   - allowHidden: as for `walk`. To write or name a file, pass the service's rule. To delete a file of ours, or to look at one with
    ///     a known identity, pass true. Otherwise files written while hidden folders were allowed would stay for ever.
    ///   - mode: as for `walk`.
    package static func open(_ directory: String, allowHidden: Bool, making mode: UInt32? = nil) throws(DiskError) -> OpenFolder {
        do throws(Obstacle) {
            return try walk(directory, allowHidden: allowHidden, making: mode)
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

    /// The folder of `path`, and the file's name in it. `path` is absolute and the file's identity is known.
    static func parent(of path: String) throws(DiskError) -> (folder: OpenFolder, name: String) {
        guard path.utf8.contains(UInt8(ascii: "/")) else { throw DiskError("open the folder", ENOENT) }
        let name = path.lastPathComponent
        return (try open("/" + path[..<name.startIndex], allowHidden: true), String(name))
    }

    /// A folder in this one, opened without following a symbolic link. With `make`, a missing folder is made for this user only.
    package func subfolder(_ name: String, make: Bool) throws(DiskError) -> OpenFolder {
        if make, status(name) == nil {
            let code = Self.make(name, in: descriptor, 0o700)
            guard code == 0 else { throw DiskError("make the folder \(name)", code) }
        }
        let opened = openUninterrupted(descriptor, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
        guard opened >= 0 else { throw DiskError("open the folder \(name)") }
        return OpenFolder(adopting: opened, path: path == "/" ? "/\(name)" : "\(path)/\(name)")
    }

    /// The top folder of this folder's mount, as a location only (O_PATH).
    func top() throws(DiskError) -> OpenFolder {
        let action = "find the top of the mount"
        var here = fcntl(descriptor, F_DUPFD_CLOEXEC, 0)
        var names = path.pathComponents
        do throws(DiskError) {
            guard here >= 0 else { throw DiskError(action) }
            while true {
                let above = openUninterrupted(here, "..", folderFlags)
                guard above >= 0 else { throw DiskError(action) }
                let (own, other) = (try fileIdentity(of: here, boot: ""), try fileIdentity(of: above, boot: ""))
                guard own != other, (own.device, own.mount) == (other.device, other.mount) else {
                    close(above)
                    return OpenFolder(adopting: here, path: "/" + names.joined(separator: "/"))
                }
                close(here)
                here = above
                _ = names.popLast()
            }
        } catch {
            close(here)
            throw error
        }
    }

    /// Whether `status`, of an entry in this folder, is that of a regular file of ours. A file is ours if it has the owner of the files
    /// that we create here.
    ///
    /// On NTFS, FAT, SMB and all-squash NFS that owner is seldom this user. A new file, which is removed again, shows the owner there. If
    /// none can be created, no other user's file is ours.
    package func isOurs(_ status: stat) -> Bool { status.isRegular && isOurs(owner: status.st_uid) }

    /// Whether `owner` is this user, or the owner of the files that we create here.
    func isOurs(owner: uid_t) -> Bool { (try? proves(owner: owner)) ?? false }

    /// As `isOurs`. Throws if no file can be created now, for example on a full disk, so that nobody knows whether the file is ours.
    package func provesOurs(_ status: stat) throws(DiskError) -> Bool {
        guard status.isRegular else { return false }
        return try proves(owner: status.st_uid)
    }

    private func proves(owner: uid_t) throws(DiskError) -> Bool {
        if owner == geteuid() { return true }
        if ownerOfNewFiles == nil { ownerOfNewFiles = try OwnerProbe.owner(in: self) }
        return owner == ownerOfNewFiles
    }

    /// The owner that the mount gives to our new files; nil: not known yet.
    private var ownerOfNewFiles: uid_t?

    /// The status of `name`, without following a symbolic link; nil if it cannot be read.
    package func status(_ name: String) -> stat? {
        var status = stat()
        return fstatat(descriptor, name, &status, AT_SYMLINK_NOFOLLOW) == 0 ? status : nil
    }

    /// The status of `name`, without following a symbolic link; nil only if `name` certainly does not exist.
    package func look(_ name: String) throws(DiskError) -> stat? {
        if let status = status(name) { return status }
        guard errno == ENOENT else { throw DiskError("look for \(name)") }
        return nil
    }

    /// Removes `name` if it is a regular file of ours.
    ///
    /// - Returns: whether such a file existed. Throws if it still exists.
    @discardableResult
    package func removeOwn(_ name: String, calls: NamingCalls = NamingCalls()) throws(DiskError) -> Bool {
        guard let status = try look(name), try provesOurs(status) else { return false }
        let code = calls.unlink(descriptor, name)
        guard code == 0 || code == ENOENT else { throw DiskError("delete \(name)", code) }
        return true
    }

    /// - Returns: the open component, and whether it was made and its name flushed.
    private static func enter(
        _ folder: Int32, _ name: String, _ path: String, making mode: UInt32?
    ) throws(Obstacle) -> (next: Int32, isNameFlushed: Bool) {
        var (next, isMade) = (open(folder, name), false)
        if next < 0, errno == ENOENT, let mode {
            let code = make(name, in: folder, mode)
            guard code == 0 else { throw .cannotMake(path: path, code: code) }
            (next, isMade) = (open(folder, name), true)
        }
        guard next >= 0 else { throw .failed(path: path, code: errno) }
        return (next, isMade)
    }

    /// Makes a folder whose name is on disk when this returns: files are promised to be in it. A folder whose name cannot be flushed is
    /// removed again, so that the next call does the same. One that another call is making is flushed here, too.
    ///
    /// - Parameter folder: may be open as a location only.
    /// - Returns: 0, or an error number.
    private static func make(_ name: String, in folder: Int32, _ mode: UInt32) -> Int32 {
        let isNew = mkdirat(folder, name, mode) == 0
        guard isNew || errno == EEXIST else { return errno }
        let code = flush(folder)
        if code != 0, isNew { unlinkat(folder, name, AT_REMOVEDIR) }
        return code
    }

    /// Flushes the name of a folder, once in each process: an earlier process may have made the folder, and died before it flushed the
    /// name.
    ///
    /// - Parameters:
    ///   - status: that of the folder.
    ///   - parent: may be open as a location only.
    ///   - isFlushed: the name was flushed just now.
    /// - Returns: 0, or an error number.
    private static func flushOnce(_ status: stat, in parent: Int32, isFlushed: Bool) -> Int32 {
        let folder = FlushedFolder(device: UInt64(status.st_dev), inode: UInt64(status.st_ino))
        if flushed.withLock({ $0.contains(folder) }) { return 0 }
        let code = isFlushed ? 0 : flush(parent)
        if code == 0 {
            flushed.withLock { known in
                if known.count >= mostFlushed { known.removeAll() }
                known.insert(folder)
            }
        }
        return code
    }

    /// A folder that this process has made with the number of a deleted one is flushed as it is made.
    private struct FlushedFolder: Hashable {
        let device: UInt64
        let inode: UInt64
    }

    /// The folders whose names are on disk.
    private static let flushed = Mutex<Set<FlushedFolder>>([])
    private static let mostFlushed = 10_000

    private static func flush(_ folder: Int32) -> Int32 {
        let opened = openUninterrupted(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        // A folder that this user may change, but not read, cannot be flushed.
        guard opened >= 0 else { return errno == EACCES ? 0 : errno }
        defer { close(opened) }
        guard uninterrupted({ fsync(opened) }) != 0 else { return 0 }
        return errno == EINVAL ? 0 : errno  // EINVAL: a file system without fsync for folders
    }

    /// Opens `name` as a folder, so that autofs mounts it; otherwise opens the link or file itself.
    ///
    /// O_PATH alone does not trigger the mount (open(2)): it opens the empty folder below. With O_DIRECTORY it does (`follow_automount` in
    /// fs/namei.c).
    private static func open(_ folder: Int32, _ name: String) -> Int32 {
        let next = openUninterrupted(folder, name, linkFlags | O_DIRECTORY)
        guard next < 0, errno == ENOTDIR || errno == ELOOP else { return next }
        return openUninterrupted(folder, name, linkFlags)
    }

    /// The target of the symbolic link that `descriptor` refers to.
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
    var isFolder: Bool { st_mode & S_IFMT == S_IFDIR }
    /// The file's stamp, with the `boot` id of the running kernel. It has no mount id, because fstatat(2) does not return one.
    package func stamp(boot: String) -> FileStamp {
        FileStamp(
            identity: FileIdentity(device: UInt64(st_dev), inode: UInt64(st_ino), mount: 0, boot: boot), size: byteCount,
            modified: Int64(st_mtim.tv_sec) &* 1_000_000_000 &+ Int64(st_mtim.tv_nsec))
    }
}

/// openat(2), repeated after an interrupting signal, as happens on network and FUSE file systems.
package func openUninterrupted(_ folder: Int32, _ name: String, _ flags: Int32, _ mode: UInt32 = 0) -> Int32 {
    uninterrupted { openat(folder, name, flags, mode) }
}
