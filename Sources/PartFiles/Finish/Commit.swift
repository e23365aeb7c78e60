internal import CSystem
public import DownloadModel
internal import Glibc

/// What became of a commit.
public enum CommitOutcome: Equatable, Sendable {
    /// The file is at this path, flushed.
    case committed(path: String)
    /// The name was taken and the policy is `skip`; the part file is gone.
    case skipped(path: String)
    /// The file is at this path, but whether its name is on disk is not known: to be asked of `found` again.
    case unsettled(path: String)
    /// Under the part file's name there is another file, which stays.
    case lost
    /// The part file is still there.
    case failed(DownloadFailure)
}

/// What a look at a commit that was interrupted came to.
public enum FoundCommit: Equatable, Sendable {
    /// The file is at this path, flushed.
    case committed(path: String)
    /// The file is at this path; the folder could not be flushed.
    case unsettled(path: String)
    /// The commit is still to be done.
    case partThere
    /// Neither the part file nor the final file is there.
    case lost
    /// The folder cannot be looked at.
    case unreachable(DownloadFailure)
}

/// What a look at a whole part file came to.
public enum Verification: Equatable, Sendable {
    /// It is flushed, and what was asked for.
    case proved(FileIdentity)
    /// It has the same bytes as the copy held, which is as it was.
    case unchanged(CopyHeld)
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
    ///   - mapPath: the written map, removed where the flush fails: then only the record's last checkpoint counts.
    public static func verify(
        directory: String, partName: String, identity: FileIdentity, size: ByteCount, checksum: Checksum?, expectedSize: ByteCount?,
        mapPath: String? = nil, allowHidden: Bool = false
    ) -> Verification {
        do throws(DiskError) {
            let part = try OpenPart.open(directory, partName, allowHidden: allowHidden)
            let found = try fileIdentity(of: part.descriptor, boot: bootIdentity())
            guard found.isSameFileAndMount(as: identity), part.size == size else { return .lost }
            if let expectedSize, part.size != expectedSize {
                return .failed(DownloadFailure(.sizeMismatch, "The file has \(part.size) bytes instead of \(expectedSize)."))
            }
            guard fsync(part.descriptor) == 0 else {
                let error = DiskError("save the part file")
                if let mapPath { WrittenMap.remove(mapPath) }
                throw error
            }
            guard let checksum else { return .proved(found) }
            return check(part.descriptor, checksum, directory).map { .failed($0) } ?? .proved(found)
        } catch {
            return error.code == ENOENT && error.action == OpenPart.opening ? .lost : .failed(error.failure(folder: directory))
        }
    }

    /// Why the file is not proved by `checksum`; nil: it is.
    static func check(_ descriptor: Int32, _ checksum: Checksum, _ directory: String?) -> DownloadFailure? {
        let name = checksum.algorithm.rawValue
        do {
            guard try Digest.compute(checksum.algorithm, of: descriptor) == checksum.digest else {
                return DownloadFailure(.checksumMismatch, "The file that came is not the one asked for: its \(name) checksum differs.")
            }
            return nil
        } catch let error as DiskError {
            return directory.map { error.failure(folder: $0) } ?? error.descriptorFailure
        } catch {
            let reason = (error as? Digest.Unavailable)?.reason ?? "\(error)"
            return DownloadFailure(.writeFailed, "The \(name) checksum cannot be computed: \(reason).")
        }
    }

    /// Gives the part file its final name. Nothing is ever replaced unless `policy` is `replace`; then the mode of what is replaced stays.
    /// After `.failed` the part file is still there.
    ///
    /// - Parameters:
    ///   - identity: of the file that was proved: another one is never named.
    ///   - name: safe bare name.
    ///   - origin: the URL without credentials and query, kept in the extended attribute `user.xdg.origin.url`.
    ///   - mapPath: the written map, removed with the end of the part file.
    public static func commit(
        directory: String, partName: String, identity: FileIdentity, name: String, policy: ExistingFilePolicy, origin: String?,
        mapPath: String?, allowHidden: Bool = false
    ) -> CommitOutcome {
        commit(
            directory: directory, partName: partName, identity: identity, name: name, policy: policy, origin: origin, mapPath: mapPath,
            allowHidden: allowHidden, calls: NamingCalls())
    }

    static func commit(
        directory: String, partName: String, identity: FileIdentity, name: String, policy: ExistingFilePolicy, origin: String?,
        mapPath: String?, allowHidden: Bool = false, calls: NamingCalls
    ) -> CommitOutcome {
        do throws(DiskError) {
            let part = try OpenPart.open(directory, partName, allowHidden: allowHidden)
            guard try fileIdentity(of: part.descriptor, boot: bootIdentity()).isSamePart(as: identity) else { return .lost }
            if let origin { _ = fsetxattr(part.descriptor, "user.xdg.origin.url", origin, origin.utf8.count, 0) }
            try FileMode.set(part.descriptor, in: part.folder, replacing: policy == .replace ? name : nil)
            // What `verify` flushed was before mode and origin: they are to be as durable as the name.
            guard fsync(part.descriptor) == 0 else { throw DiskError("save the part file") }
            let placed = try place(part.folder, partName, name, policy, calls)
            guard let placed else {
                let path = "\(directory)/\(name)"
                guard policy == .skip else {
                    return .failed(DownloadFailure(.alreadyExists, "\(path) exists already."))
                }
                discard(directory: directory, partName: partName, mapPath: mapPath)
                return .skipped(path: path)
            }
            let path = "\(directory)/\(placed)"
            return settle(part.folder, partName, mapPath, calls) ? .committed(path: path) : .unsettled(path: path)
        } catch {
            return .failed(error.failure(folder: directory))
        }
    }

    /// Takes the first name that is free under `policy`. nil: taken, under `skip` or `fail`.
    private static func place(
        _ folder: OpenFolder, _ partName: String, _ name: String, _ policy: ExistingFilePolicy, _ calls: NamingCalls
    ) throws(DiskError) -> String? {
        if policy == .replace {
            guard renameat(folder.descriptor, partName, folder.descriptor, name) == 0 else { throw DiskError("put \(name) in its place") }
            return name
        }
        for number in 0...lastNumber {
            let candidate = number == 0 ? name : FileName.numbered(name, number)
            if try rename(folder, partName, candidate, calls) { return candidate }
            if policy != .rename { return nil }
        }
        throw DiskError("find a free name for \(name)", EEXIST)
    }

    /// False where `name` is taken.
    private static func rename(_ folder: OpenFolder, _ partName: String, _ name: String, _ calls: NamingCalls) throws(DiskError) -> Bool {
        switch calls.renameNoReplace(folder.descriptor, partName, name) {
        case 0: return true
        case EEXIST: return false
        case EINVAL, ENOSYS, ENOTSUP: break  // a file system without RENAME_NOREPLACE
        case let code: throw DiskError("name the file \(name)", code)
        }
        switch calls.link(folder.descriptor, partName, name) {
        case 0:
            let code = calls.unlink(folder.descriptor, partName)
            if code == 0 { return true }
            _ = calls.unlink(folder.descriptor, name)  // its other name is what counts; where this fails too, `found` sees both
            throw DiskError("remove the part file", code)
        case EEXIST: return false
        case EPERM, ENOTSUP, ENOSYS, EMLINK: break  // without links as well
        case let code: throw DiskError("name the file \(name)", code)
        }
        // Nothing here can refuse to replace, so the name is looked at first; a folder or file that is there is left alone.
        if folder.status(name) != nil { return false }
        guard errno == ENOENT else { throw DiskError("look for \(name)") }
        guard renameat(folder.descriptor, partName, folder.descriptor, name) == 0 else { throw DiskError("name the file \(name)") }
        return true
    }

    /// Removes a part file and its written map, where they are. What stands under the part file's name and is no file of ours stays.
    ///
    /// - Returns: whether they are gone for good, after a power cut too; false where the folder cannot be reached or flushed, or keeps one.
    @discardableResult
    public static func discard(directory: String, partName: String, mapPath: String?) -> Bool {
        discard(directory: directory, partName: partName, mapPath: mapPath, calls: NamingCalls())
    }

    static func discard(directory: String, partName: String, mapPath: String?, calls: NamingCalls) -> Bool {
        // First the map: while it is there, a later file with the part's inode could be taken for it.
        if let mapPath { WrittenMap.remove(mapPath) }
        do throws(DiskError) {
            let folder = try OpenFolder.open(directory, allowHidden: true)
            let hadPart = try folder.removeOwn(partName, calls: calls)
            let hadCandidate = try folder.removeOwn(PartFile.candidateName(partName), calls: calls)
            return !hadPart && !hadCandidate || folder.sync()
        } catch {
            return false
        }
    }

    /// Deletes a finished file, if it is still the one that was committed: another one under its name stays.
    public static func deleteFinished(_ path: String, identity: FileIdentity?) -> Result<Void, Refusal> {
        do throws(DiskError) {
            let (folder, name) = try OpenFolder.parent(of: path)
            let file = try place(folder, name)
            defer { Glibc.close(file) }
            guard isFinished(file, identity) else {
                return .failure(Refusal(.notAllowed, "\(path) is another file by now and was left alone; the download is off the list."))
            }
            guard unlinkat(folder.descriptor, name, 0) == 0 || errno == ENOENT else { throw DiskError("delete the file") }
            return .success(())
        } catch {
            if error.code == ENOENT || error.code == ENOTDIR { return .success(()) }  // its folder is gone, and it with that
            return .failure(
                Refusal(
                    .permissionDenied, "\(path) could not be deleted: cannot \(error.action): \(String(cString: strerror(error.code)))."))
        }
    }

    /// A finished file with its folder, if it is still the one that was committed. nil: it is gone.
    public static func placeOfFinished(_ path: String, identity: FileIdentity?) -> Result<FinishedPlace?, Refusal> {
        do throws(DiskError) {
            let (folder, name) = try OpenFolder.parent(of: path)
            let file = try place(folder, name)
            defer { Glibc.close(file) }
            guard isFinished(file, identity) else {
                return .failure(Refusal(.notAllowed, "\(path) is another file by now and was left alone."))
            }
            // The same file once more: the portal takes no descriptor that was opened with O_NOFOLLOW.
            let place = Glibc.open("/proc/self/fd/\(file)", todoku_o_path | O_CLOEXEC)
            guard place >= 0 else { throw DiskError("look at the file") }
            return .success(try FinishedPlace(adopting: place, in: folder, name: name))
        } catch {
            if error.code == ENOENT || error.code == ENOTDIR { return .success(nil) }
            return .failure(
                Refusal(
                    .permissionDenied, "\(path) could not be reached: cannot \(error.action): \(String(cString: strerror(error.code)))."))
        }
    }

    /// Whether an open file is the one that was committed; false where it is not known which that is.
    public static func isFinished(_ descriptor: Int32, _ identity: FileIdentity?) -> Bool {
        var status = stat()
        guard let identity, fstat(descriptor, &status) == 0, status.isRegular else { return false }
        return (try? fileIdentity(of: descriptor, boot: bootIdentity()))?.isSameFile(as: identity) ?? false
    }

    /// What stands under `name`, itself and not what it may link to, as a place to name (O_PATH).
    private static func place(_ folder: OpenFolder, _ name: String) throws(DiskError) -> Int32 {
        let descriptor = openUninterrupted(folder.descriptor, name, todoku_o_path | O_NOFOLLOW | O_CLOEXEC)
        guard descriptor >= 0 else { throw DiskError("look at the file") }
        return descriptor
    }

    /// After an interruption, for a record that was being committed: how far that came.
    ///
    /// Looked at are `name` and its numbered forms. The file is the one with the part file's inode, if there is no part file any more.
    public static func found(
        directory: String, partName: String, name: String, identity: FileIdentity, size: ByteCount?, mapPath: String?
    ) -> FoundCommit {
        found(
            directory: directory, partName: partName, name: name, identity: identity, size: size, mapPath: mapPath, calls: NamingCalls())
    }

    static func found(
        directory: String, partName: String, name: String, identity: FileIdentity, size: ByteCount?, mapPath: String?, calls: NamingCalls
    ) -> FoundCommit {
        do throws(DiskError) {
            let folder = try OpenFolder.open(directory, allowHidden: true)
            let part = try folder.look(partName)
            // Linked under both names: the fall-back of `commit` was interrupted, and only the part's name is left to be removed.
            if let part, part.st_nlink < 2 { return .partThere }
            let sameBoot = identity.boot == bootIdentity()
            for number in 0...lastNumber {
                let candidate = number == 0 ? name : FileName.numbered(name, number)
                guard let status = try folder.look(candidate), status.isRegular, status.st_ino == identity.inode,
                    !sameBoot || status.st_dev == identity.device, size.map({ $0 == status.byteCount }) ?? true
                else { continue }
                let path = "\(directory)/\(candidate)"
                if part != nil, calls.unlink(folder.descriptor, partName) != 0 { return .unsettled(path: path) }
                return settle(folder, partName, mapPath, calls) ? .committed(path: path) : .unsettled(path: path)
            }
            return part != nil ? .partThere : .lost
        } catch {
            return .unreachable(error.failure(folder: directory))
        }
    }

    /// Clears up after the file has its name, and saves that name.
    ///
    /// - Returns: whether it is saved. What is not cleared up does not count.
    private static func settle(_ folder: OpenFolder, _ partName: String, _ mapPath: String?, _ calls: NamingCalls) -> Bool {
        if let mapPath { WrittenMap.remove(mapPath) }
        _ = try? folder.removeOwn(PartFile.candidateName(partName), calls: calls)  // it may have stayed when it was given up
        return folder.sync()
    }
}

/// A finished file, held where it was found: whatever becomes of the path to its folder, `folder` and `name` lead to it.
public final class FinishedPlace: Sendable {
    /// Of the file, as a place to name (O_PATH).
    public let file: Int32
    /// Of its folder; both are open as long as this object lives.
    public let folder: Int32
    public let name: String

    /// - Parameter file: becomes this object's to close.
    fileprivate init(adopting file: Int32, in folder: OpenFolder, name: String) throws(DiskError) {
        let duplicate = fcntl(folder.descriptor, F_DUPFD_CLOEXEC, 0)
        guard duplicate >= 0 else {
            let code = errno
            Glibc.close(file)
            throw DiskError("look at the folder", code)
        }
        (self.file, self.folder, self.name) = (file, duplicate, name)
    }

    deinit {
        Glibc.close(file)
        Glibc.close(folder)
    }
}

/// How a file gets a name that must be free: the system's calls, each 0 or errno. Tests put in what other file systems answer.
package struct NamingCalls: Sendable {
    /// renameat2(2) with RENAME_NOREPLACE.
    var renameNoReplace: @Sendable (_ folder: Int32, _ from: String, _ to: String) -> Int32 = { todoku_rename_noreplace($0, $1, $2) }
    /// linkat(2).
    var link: @Sendable (_ folder: Int32, _ from: String, _ to: String) -> Int32 = { linkat($0, $1, $0, $2, 0) == 0 ? 0 : errno }
    /// unlinkat(2).
    var unlink: @Sendable (_ folder: Int32, _ name: String) -> Int32 = { unlinkat($0, $1, 0) == 0 ? 0 : errno }
}

/// A part file and its folder, open for a commit. Refuses anything but a regular file; whether it is ours its identity tells.
private struct OpenPart: ~Copyable {
    let folder: OpenFolder
    let descriptor: Int32
    let size: ByteCount

    /// The action of the error where there is a folder, but no part file that can be opened.
    static let opening = "open the part file"

    private init(folder: OpenFolder, descriptor: Int32, size: ByteCount) {
        (self.folder, self.descriptor, self.size) = (folder, descriptor, size)
    }

    deinit { Glibc.close(descriptor) }

    static func open(_ directory: String, _ name: String, allowHidden: Bool) throws(DiskError) -> OpenPart {
        let folder = try OpenFolder.open(directory, allowHidden: allowHidden)
        let descriptor = openUninterrupted(folder.descriptor, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)
        guard descriptor >= 0 else { throw DiskError(opening) }
        var status = stat()
        guard fstat(descriptor, &status) == 0, status.isRegular else {
            Glibc.close(descriptor)
            throw DiskError("take \(name), which is not a file of its own,", EEXIST)
        }
        return OpenPart(folder: folder, descriptor: descriptor, size: status.byteCount)
    }
}
