internal import CSystem
public import DownloadModel
internal import Glibc

/// What became of a commit.
public enum CommitOutcome: Equatable, Sendable {
    /// The file is at this path, flushed.
    case committed(path: String)
    /// The name was taken and the policy is `skip`; the part file is gone.
    case skipped(path: String)
    case failed(DownloadFailure)
}

/// What a look at a whole part file came to.
public enum Verification: Equatable, Sendable {
    /// It is flushed, and what was asked for.
    case proved(FileIdentity)
    /// It is not the file that was whole, or was written before this machine was started.
    case lost
    /// `ChecksumMismatch`, `SizeMismatch`, `WriteFailed`, `DiskFull`, `PermissionDenied`.
    case failed(DownloadFailure)
}

/// From a whole part file to a file under its final name. All calls block: they are for the pool, never for a loop.
public enum Commit {
    /// "name (1)" to "name (9999)" are tried.
    public static let lastNumber = 9999

    /// Flushes the part file and proves it.
    ///
    /// - Parameters:
    ///   - identity: of the file that was whole, as it was written by this boot of the machine.
    ///   - size: that it had then, in bytes.
    public static func verify(
        directory: String, partName: String, identity: FileIdentity, size: ByteCount, checksum: Checksum?, expectedSize: ByteCount?
    ) -> Verification {
        do throws(DiskError) {
            let part = try OpenPart.open(directory, partName)
            let found = try fileIdentity(of: part.descriptor, boot: bootIdentity())
            guard found == identity, part.size == size else { return .lost }
            if let expectedSize, part.size != expectedSize {
                return .failed(DownloadFailure(.sizeMismatch, "The file has \(part.size) bytes instead of \(expectedSize)."))
            }
            guard fsync(part.descriptor) == 0 else { throw DiskError("save the part file") }
            guard let checksum else { return .proved(found) }
            switch check(part, checksum, directory) {
            case .success: return .proved(found)
            case .failure(let failure): return .failed(failure)
            }
        } catch {
            return error.code == ENOENT && error.action == OpenPart.opening ? .lost : .failed(error.failure(folder: directory))
        }
    }

    private static func check(_ part: borrowing OpenPart, _ checksum: Checksum, _ directory: String) -> Result<Void, DownloadFailure> {
        let name = checksum.algorithm.rawValue
        do {
            guard try Digest.compute(checksum.algorithm, of: part.descriptor) == checksum.digest else {
                return .failure(
                    DownloadFailure(.checksumMismatch, "The file that came is not the one asked for: its \(name) checksum differs."))
            }
            return .success(())
        } catch let error as DiskError {
            return .failure(error.failure(folder: directory))
        } catch {
            let reason = (error as? Digest.Unavailable)?.reason ?? "\(error)"
            return .failure(DownloadFailure(.writeFailed, "The \(name) checksum cannot be computed: \(reason)."))
        }
    }

    /// Gives the part file its final name. Nothing is ever replaced unless `policy` is `replace`. After `.failed` the part file is still there.
    ///
    /// - Parameters:
    ///   - name: safe bare name.
    ///   - origin: the URL without credentials and query, kept in the extended attribute `user.xdg.origin.url`.
    ///   - mapPath: the written map, removed with the end of the part file.
    public static func commit(
        directory: String, partName: String, name: String, policy: ExistingFilePolicy, origin: String?, mapPath: String?
    ) -> CommitOutcome {
        do throws(DiskError) {
            let part = try OpenPart.open(directory, partName)
            if let origin { _ = fsetxattr(part.descriptor, "user.xdg.origin.url", origin, origin.utf8.count, 0) }
            guard fchmod(part.descriptor, 0o666 & ~processUmask()) == 0 else { throw DiskError("set the mode of the file") }
            let placed = try place(part, partName, name, policy)
            guard let placed else {
                let path = "\(directory)/\(name)"
                guard policy == .skip else {
                    return .failed(DownloadFailure(.alreadyExists, "\(path) exists already."))
                }
                discard(directory: directory, partName: partName, mapPath: mapPath)
                return .skipped(path: path)
            }
            if let mapPath { unlink(mapPath) }
            // A file system that has no fsync for folders answers EINVAL.
            guard fsync(part.folder) == 0 || errno == EINVAL else { throw DiskError("save the folder") }
            return .committed(path: "\(directory)/\(placed)")
        } catch {
            return .failed(error.failure(folder: directory))
        }
    }

    /// Takes the first name that is free under `policy`. nil: taken, under `skip` or `fail`.
    private static func place(
        _ part: borrowing OpenPart, _ partName: String, _ name: String, _ policy: ExistingFilePolicy
    ) throws(DiskError) -> String? {
        if policy == .replace {
            guard renameat(part.folder, partName, part.folder, name) == 0 else { throw DiskError("put \(name) in its place") }
            return name
        }
        for number in 0...lastNumber {
            let candidate = number == 0 ? name : FileName.numbered(name, number)
            if try rename(part, partName, candidate) { return candidate }
            if policy != .rename { return nil }
        }
        throw DiskError("find a free name for \(name)", EEXIST)
    }

    /// False where `name` is taken.
    private static func rename(_ part: borrowing OpenPart, _ partName: String, _ name: String) throws(DiskError) -> Bool {
        switch todoku_rename_noreplace(part.folder, partName, name) {
        case 0: return true
        case EEXIST: return false
        case EINVAL, ENOSYS, ENOTSUP: break  // a file system without RENAME_NOREPLACE
        case let code: throw DiskError("name the file \(name)", code)
        }
        if linkat(part.folder, partName, part.folder, name, 0) == 0 {
            guard unlinkat(part.folder, partName, 0) == 0 else { throw DiskError("remove the part file") }
            return true
        }
        switch errno {
        case EEXIST: return false
        case EPERM, ENOTSUP, ENOSYS, EMLINK: break  // without links as well
        default: throw DiskError("name the file \(name)")
        }
        // Nothing here can refuse to replace, so the name is looked at first; a folder or file that is there is left alone.
        var status = stat()
        if fstatat(part.folder, name, &status, AT_SYMLINK_NOFOLLOW) == 0 { return false }
        guard errno == ENOENT else { throw DiskError("look for \(name)") }
        guard renameat(part.folder, partName, part.folder, name) == 0 else { throw DiskError("name the file \(name)") }
        return true
    }

    /// Removes a part file and its written map, where they are. What stands under the part file's name and is no file of ours stays.
    public static func discard(directory: String, partName: String, mapPath: String?) {
        let folder = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        if folder >= 0 {
            var status = stat()
            if fstatat(folder, partName, &status, AT_SYMLINK_NOFOLLOW) == 0, status.st_mode & S_IFMT == S_IFREG, status.st_uid == geteuid()
            {
                unlinkat(folder, partName, 0)
            }
            Glibc.close(folder)
        }
        if let mapPath { unlink(mapPath) }
    }

    /// Deletes a finished file, if it is still the one that was committed: another one under its name stays.
    public static func deleteFinished(_ path: String, identity: FileIdentity?) -> Result<Void, Refusal> {
        var status = stat()
        guard lstat(path, &status) == 0 else { return .success(()) }
        guard let identity, status.st_ino == identity.inode, status.st_mode & S_IFMT == S_IFREG else {
            return .failure(Refusal(.notAllowed, "\(path) is another file by now and was left alone; the download is off the list."))
        }
        guard unlink(path) == 0 || errno == ENOENT else {
            return .failure(Refusal(.permissionDenied, "\(path) could not be deleted: \(String(cString: strerror(errno)))."))
        }
        return .success(())
    }

    /// At a restart, for a record that was being committed: the path at which the file already is; nil: the commit is still to be done
    /// (or the part file is lost, where `isPartThere` is false).
    ///
    /// Looked at are `name` and its numbered forms. The file is the one with the part file's inode, if there is no part file any more.
    public static func found(
        directory: String, partName: String, name: String, identity: FileIdentity, size: ByteCount?
    ) -> (path: String?, isPartThere: Bool) {
        let folder = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        guard folder >= 0 else { return (nil, false) }
        defer { Glibc.close(folder) }
        var status = stat()
        let isPartThere = fstatat(folder, partName, &status, AT_SYMLINK_NOFOLLOW) == 0
        // Linked under both names: the fall-back of `commit` was interrupted, and only the part's name is left to be removed.
        if isPartThere, status.st_nlink < 2 { return (nil, true) }
        let sameBoot = identity.boot == bootIdentity()
        for number in 0...lastNumber {
            let candidate = number == 0 ? name : FileName.numbered(name, number)
            guard fstatat(folder, candidate, &status, AT_SYMLINK_NOFOLLOW) == 0, status.st_mode & S_IFMT == S_IFREG,
                status.st_ino == identity.inode, !sameBoot || status.st_dev == identity.device,
                size.map({ $0 == ByteCount(status.st_size) }) ?? true
            else { continue }
            if isPartThere { unlinkat(folder, partName, 0) }
            return ("\(directory)/\(candidate)", false)
        }
        return (nil, isPartThere)
    }

    /// umask(2) of this process, without changing it: other threads create files.
    private static func processUmask() -> mode_t {
        let descriptor = open("/proc/self/status", O_RDONLY | O_CLOEXEC)
        guard descriptor >= 0 else { return 0o077 }
        defer { Glibc.close(descriptor) }
        var bytes = [UInt8](repeating: 0, count: 4096)
        let count = read(descriptor, &bytes, bytes.count)
        let line = bytes.prefix(max(0, count)).split(separator: UInt8(ascii: "\n")).first { $0.starts(with: "Umask:".utf8) }
        return line.flatMap { mode_t(String(decoding: $0.dropFirst(6).drop { $0 <= 0x20 }, as: UTF8.self), radix: 8) } ?? 0o077
    }
}

/// A part file and its folder, open for a commit. Refuses anything but a regular file of our own.
private struct OpenPart: ~Copyable {
    let folder: Int32
    let descriptor: Int32
    let size: ByteCount

    /// The action of the error where there is a folder, but no part file that can be opened.
    static let opening = "open the part file"

    private init(folder: Int32, descriptor: Int32, size: ByteCount) {
        (self.folder, self.descriptor, self.size) = (folder, descriptor, size)
    }

    deinit {
        Glibc.close(descriptor)
        Glibc.close(folder)
    }

    static func open(_ directory: String, _ name: String) throws(DiskError) -> OpenPart {
        let folder = Glibc.open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        guard folder >= 0 else { throw DiskError("open the folder") }
        let descriptor = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC)
        guard descriptor >= 0 else {
            let error = DiskError(opening)
            Glibc.close(folder)
            throw error
        }
        var status = stat()
        guard fstat(descriptor, &status) == 0, status.st_mode & S_IFMT == S_IFREG, status.st_uid == geteuid() else {
            Glibc.close(descriptor)
            Glibc.close(folder)
            throw DiskError("take \(name), which is not a file of its own,", EEXIST)
        }
        return OpenPart(folder: folder, descriptor: descriptor, size: ByteCount(status.st_size))
    }
}
