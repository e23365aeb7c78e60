internal import CSystem
public import DownloadModel
internal import Glibc

/// The result of a commit.
public enum CommitOutcome: Equatable, Sendable {
    /// The file is at this path, flushed.
    case committed(path: String)
    /// The name is taken and the policy is `skip`; the part file is deleted.
    case skipped(path: String)
    /// The file is at this path, but its name may not be on disk yet: ask `found` again.
    case unsettled(path: String)
    /// The part file's name belongs to another file, which is left alone.
    case lost
    /// The part file is still there.
    case failed(DownloadFailure)
}

/// The state in which a commit was interrupted.
public enum FoundCommit: Equatable, Sendable {
    /// The file is at this path, flushed.
    case committed(path: String)
    /// The file is at this path; the folder could not be flushed.
    case unsettled(path: String)
    /// The part file exists; the rename has not happened.
    case partThere
    /// Neither the part file nor the final file exists.
    case lost
    /// The folder cannot be read.
    case unreachable(DownloadFailure)
}

/// The result of verifying a whole part file.
public enum Verification: Equatable, Sendable {
    /// The file is flushed and matches checksum and size. `otherDigest`: the checksum proves it, although the server stated this digest.
    case proved(FileIdentity, otherDigest: Checksum? = nil)
    /// The file has the same bytes as the cached copy, which is unchanged.
    case unchanged(CachedCopy)
    /// The file is not the one that was whole, or it was written before the last boot.
    case lost
    /// `ChecksumMismatch`, `SizeMismatch`, `WriteFailed`, `DiskFull`, `PermissionDenied`.
    case failed(DownloadFailure)
}

/// Turns a whole part file into a file with its final name. All calls block: use the pool, never a loop.
public enum Commit {
    /// The last numbered name that is tried: "name (9999)".
    public static let lastNumber = 9999

    /// Flushes the part file and verifies it.
    ///
    /// - Parameters:
    ///   - identity: the file that was whole, as written since the last boot.
    ///   - size: its size at that time, in bytes.
    ///   - checksum: what the caller expects. If the file matches it, another `digest` is no failure.
    ///   - digest: what the server stated.
    ///   - mapPath: the written map. It is removed if the flush fails, so that only the record's last checkpoint counts.
    ///   - traits: what `commit` will give to the file. If the file has them before the flush, `commit` need not flush it once more.
    public static func verify(
        directory: String, partName: String, identity: FileIdentity, size: ByteCount, checksum: Checksum?, digest: Checksum? = nil,
        expectedSize: ByteCount?, mapPath: String? = nil, allowHidden: Bool = false, traits: FileTraits? = nil
    ) -> Verification {
        verify(
            directory: directory, partName: partName, identity: identity, size: size, checksum: checksum, digest: digest,
            expectedSize: expectedSize, mapPath: mapPath, allowHidden: allowHidden, traits: traits
        ) { fsync($0) == 0 ? 0 : errno }
    }

    /// - Parameter flush: fsync(2): 0 or errno. Tests replace it, to simulate a failing disk.
    static func verify(
        directory: String, partName: String, identity: FileIdentity, size: ByteCount, checksum: Checksum?, digest: Checksum?,
        expectedSize: ByteCount?, mapPath: String?, allowHidden: Bool, traits: FileTraits?, flush: (_ descriptor: Int32) -> Int32
    ) -> Verification {
        do throws(DiskError) {
            guard let part = try OpenPart.open(directory, partName, allowHidden: allowHidden) else { return .lost }
            let found = part.identity
            guard found.isSameFileAndMount(as: identity), part.size == size else { return .lost }
            if let expectedSize, part.size != expectedSize {
                return .failed(DownloadFailure(.sizeMismatch, "The file has \(part.size) bytes instead of \(expectedSize)."))
            }
            // `commit` tries again, and reports a failure.
            if let traits { _ = try? traits.give(to: part.descriptor, in: part.folder) }
            let code = flush(part.descriptor)
            guard code == 0 else {
                // This process may be killed before the database says that the file no longer counts as whole.
                part.shorten(partName)
                if let mapPath { WrittenMap.remove(mapPath) }
                // ENOMEM would be taken for a shortage that passes. But the next flush may succeed without writing.
                throw DiskError("save the part file", code == ENOMEM ? EIO : code)
            }
            return prove(part.descriptor, found, checksum: checksum, digest: digest) { $0.failure(folder: directory) }
        } catch {
            return .failed(error.failure(folder: directory))
        }
    }

    /// Compares a flushed file with `checksum` and `digest`. Reads it once, or not at all if there is neither.
    static func prove(
        _ descriptor: Int32, _ identity: FileIdentity, checksum: Checksum?, digest: Checksum?, failure: (DiskError) -> DownloadFailure
    ) -> Verification {
        let expected = [checksum, digest == checksum ? nil : digest].compactMap(\.self)
        if expected.isEmpty { return .proved(identity) }
        let found: [Checksum?]
        do {
            let algorithms = expected.map(\.algorithm)
            found = zip(algorithms, try Digest.compute(algorithms, of: descriptor)).map { Checksum($0, digest: $1) }
        } catch let error as DiskError {
            return .failed(failure(error))
        } catch {
            let reason = (error as? Digest.Unavailable)?.reason ?? "\(error)"
            return .failed(DownloadFailure(.writeFailed, "The \(expected[0].algorithm.rawValue) checksum cannot be computed: \(reason)."))
        }
        let wrong = zip(expected, found).first { $0 != $1 }
        guard let (stated, computed) = wrong else { return .proved(identity) }
        let own = computed?.description ?? "another digest"
        if stated == checksum {
            return .failed(DownloadFailure(.checksumMismatch, "The downloaded file is not the expected one: it has \(own), not \(stated)."))
        }
        if checksum != nil { return .proved(identity, otherDigest: stated) }
        return .failed(
            DownloadFailure(
                .checksumMismatch,
                "The downloaded file is damaged, or the server states a wrong digest: the file has \(own), and the server stated \(stated)."
            ))
    }

    /// Gives the part file its final name. No file is replaced unless `policy` is `replace`; the new file then keeps the mode of the old
    /// one. After `.failed` the part file still exists.
    ///
    /// - Parameters:
    ///   - identity: the verified file. No other file gets the name.
    ///   - name: a safe bare name.
    ///   - origin: the URL without credentials and query, stored in the extended attribute `user.xdg.origin.url`.
    ///   - mapPath: the written map. It is removed with the part file.
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
            guard let part = try OpenPart.open(directory, partName, allowHidden: allowHidden) else {
                throw DiskError("open the part file", ENOENT)
            }
            guard part.identity.isSamePart(as: identity) else { return .lost }
            let traits = FileTraits(origin: origin, replaced: policy == .replace ? name : nil)
            // What `verify` has not flushed must be as durable as the name.
            if try traits.give(to: part.descriptor, in: part.folder), fsync(part.descriptor) != 0 { throw DiskError("save the part file") }
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

    /// Renames the part file to the first free name under `policy`. nil: the name is taken, under `skip` or `fail`.
    private static func place(
        _ folder: OpenFolder, _ partName: String, _ name: String, _ policy: ExistingFilePolicy, _ calls: NamingCalls
    ) throws(DiskError) -> String? {
        if policy == .replace {
            guard renameat(folder.descriptor, partName, folder.descriptor, name) == 0 else { throw DiskError("put \(name) in its place") }
            return name
        }
        for number in 0...lastNumber {
            let candidate = policy == .rename ? calls.candidate(name, number, in: folder) : name
            if try rename(folder, partName, candidate, calls) { return candidate }
            if policy != .rename { return nil }
        }
        throw DiskError("find a free name for \(name)", EEXIST)
    }

    /// Returns false if `name` is taken.
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
            _ = calls.unlink(folder.descriptor, name)  // the part file's name counts; if this fails too, `found` sees both names
            throw DiskError("remove the part file", code)
        case EEXIST: return false
        case EPERM, ENOTSUP, ENOSYS, EMLINK: break  // a file system without hard links
        case let code: throw DiskError("name the file \(name)", code)
        }
        // No call of this file system can refuse to replace, so look for the name first. An existing file or folder is left alone.
        if folder.status(name) != nil { return false }
        guard errno == ENOENT else { throw DiskError("look for \(name)") }
        guard renameat(folder.descriptor, partName, folder.descriptor, name) == 0 else { throw DiskError("name the file \(name)") }
        return true
    }

    /// Removes a part file and its written map. If another program's file or folder has the part file's name, it stays.
    ///
    /// - Parameter isOurs: the folder is the service's own: if it is missing, it was deleted with the file. Another folder may be on a disk
    ///   that is away.
    /// - Returns: whether both are gone for good, even after a power cut. False if the folder cannot be opened or flushed, or a file could
    ///   not be removed.
    @discardableResult
    public static func discard(directory: String, partName: String, mapPath: String?, isOurs: Bool = false) -> Bool {
        discard(directory: directory, partName: partName, mapPath: mapPath, isOurs: isOurs, calls: NamingCalls())
    }

    static func discard(directory: String, partName: String, mapPath: String?, isOurs: Bool = false, calls: NamingCalls) -> Bool {
        // Remove the map first. A later file may get the part file's inode, and the map would be taken for its own.
        if let mapPath { WrittenMap.remove(mapPath) }
        do throws(DiskError) {
            let folder = try OpenFolder.open(directory, allowHidden: true)
            try folder.removeOwn(partName, calls: calls)
            try folder.removeOwn(PartFile.candidateName(partName), calls: calls)
            // Also if neither was there: an earlier call may have removed them, and failed or died before its flush.
            return folder.sync()
        } catch {
            return isOurs && error.code == ENOENT
        }
    }

    /// Deletes a finished file if it is still the committed one. Another file with its name stays.
    public static func deleteFinished(_ path: String, identity: FileIdentity?) -> Result<Void, Refusal> {
        do throws(DiskError) {
            let (folder, name) = try OpenFolder.parent(of: path)
            let file = try place(folder, name)
            defer { Glibc.close(file) }
            guard isFinished(file, identity) else {
                return .failure(Refusal(.notAllowed, "\(path) is now another file, which was left alone; the download is off the list."))
            }
            guard unlinkat(folder.descriptor, name, 0) == 0 || errno == ENOENT else { throw DiskError("delete the file") }
            return .success(())
        } catch {
            if error.code == ENOENT || error.code == ENOTDIR { return .success(()) }  // the folder is gone, and the file with it
            return .failure(
                Refusal(
                    .permissionDenied, "\(path) could not be deleted: cannot \(error.action): \(String(cString: strerror(error.code)))."))
        }
    }

    /// Whether an open file, or folder, is the one that its download ended with. False if `identity` is unknown.
    public static func isFinished(_ descriptor: Int32, _ identity: FileIdentity?) -> Bool { proof(descriptor, identity) == .same }

    /// What is known about an open file or folder.
    public enum Proof: Equatable, Sendable {
        /// The download ended with it.
        case same
        case other
        /// A folder whose file system records no birth times: its inode may have been that of a deleted folder.
        case unproved
    }

    /// Compares an open file or folder with the one that its download ended with.
    ///
    /// A folder is deleted with its contents, so its birth time must prove it.
    public static func proof(_ descriptor: Int32, _ identity: FileIdentity?) -> Proof {
        var status = stat()
        guard let identity, fstat(descriptor, &status) == 0, let found = try? fileIdentity(of: descriptor, boot: bootIdentity()),
            found.isSameFile(as: identity)
        else { return .other }
        if status.isRegular { return .same }
        guard status.isFolder else { return .other }
        return found.born != nil && identity.born != nil ? .same : .unproved
    }

    /// Opens `name` as a location only (O_PATH). A symbolic link is not followed.
    static func place(_ folder: OpenFolder, _ name: String) throws(DiskError) -> Int32 {
        let descriptor = openUninterrupted(folder.descriptor, name, todoku_o_path | O_NOFOLLOW | O_CLOEXEC)
        guard descriptor >= 0 else { throw DiskError("look at the file") }
        return descriptor
    }

    /// Finds out the state in which a commit was interrupted.
    ///
    /// Looks for `name` and its numbered forms. If the part file is gone, the committed file is the one with the part file's inode.
    ///
    /// - Parameter isNamed: an earlier answer was `unsettled`. The download cannot fail then, so `unreachable` always has a wait, unless
    ///   this machine is short of something.
    public static func found(
        directory: String, partName: String, name: String, identity: FileIdentity, size: ByteCount?, mapPath: String?, isNamed: Bool = false
    ) -> FoundCommit {
        found(
            directory: directory, partName: partName, name: name, identity: identity, size: size, mapPath: mapPath, isNamed: isNamed,
            calls: NamingCalls())
    }

    static func found(
        directory: String, partName: String, name: String, identity: FileIdentity, size: ByteCount?, mapPath: String?,
        isNamed: Bool = false, calls: NamingCalls
    ) -> FoundCommit {
        do throws(DiskError) {
            let folder = try OpenFolder.open(directory, allowHidden: true)
            let part = try folder.look(partName)
            // If the file has both names, the fallback of `commit` was interrupted, and only the part file's name must still be removed.
            if let part, part.st_nlink < 2 { return .partThere }
            for number in 0...lastNumber {
                let candidate = calls.candidate(name, number, in: folder)
                guard let status = try folder.look(candidate), status.isRegular, status.st_ino == identity.inode,
                    size.map({ $0 == status.byteCount }) ?? true, try isOnDisk(of: identity, candidate, status, in: folder)
                else { continue }
                let path = "\(directory)/\(candidate)"
                if part != nil, calls.unlink(folder.descriptor, partName) != 0 { return .unsettled(path: path) }
                return settle(folder, partName, mapPath, calls) ? .committed(path: path) : .unsettled(path: path)
            }
            return part != nil ? .partThere : .lost
        } catch {
            var failure = error.failure(folder: directory)
            if isNamed, failure.wait == nil, !failure.isShortage { failure.wait = .destination }
            return .unreachable(failure)
        }
    }

    /// Whether the file `name`, whose inode is that of `identity`, is on the disk of `identity`, which may have been mounted again.
    private static func isOnDisk(
        of identity: FileIdentity, _ name: String, _ status: stat, in folder: OpenFolder
    ) throws(DiskError) -> Bool {
        if identity.boot != bootIdentity() || status.st_dev == identity.device { return true }
        let file = try place(folder, name)
        defer { Glibc.close(file) }
        return try fileIdentity(of: file, boot: bootIdentity()).isSamePart(as: identity)
    }

    /// Removes leftovers once the file has its name, and flushes that name.
    ///
    /// - Returns: whether the name is flushed. Leftovers that could not be removed do not matter.
    private static func settle(_ folder: OpenFolder, _ partName: String, _ mapPath: String?, _ calls: NamingCalls) -> Bool {
        if let mapPath { WrittenMap.removeIfMade(mapPath) }
        _ = try? folder.removeOwn(PartFile.candidateName(partName), calls: calls)  // may be left over
        return folder.sync()
    }
}

/// The system calls that give a file a free name; each returns 0 or errno. Tests replace them to simulate other file systems.
package struct NamingCalls: Sendable {
    /// renameat2(2) with RENAME_NOREPLACE.
    package var renameNoReplace: @Sendable (_ folder: Int32, _ from: String, _ to: String) -> Int32 = {
        todoku_rename_noreplace($0, $1, $0, $2)
    }
    /// linkat(2).
    var link: @Sendable (_ folder: Int32, _ from: String, _ to: String) -> Int32 = { linkat($0, $1, $0, $2, 0) == 0 ? 0 : errno }
    /// unlinkat(2).
    var unlink: @Sendable (_ folder: Int32, _ name: String) -> Int32 = { unlinkat($0, $1, 0) == 0 ? 0 : errno }
    /// Most bytes of a name in a folder, as its file system tells (statvfs(3)); 0: unknown.
    package var longestName: @Sendable (_ folder: Int32) -> Int = {
        var status = statvfs()
        return fstatvfs($0, &status) == 0 ? Int(clamping: status.f_namemax) : 0
    }
    /// Every file system allows a name of so many bytes.
    private static let alwaysFits = 100

    package init() {}

    /// The name for a file or folder that may get any free name, after `number` taken ones. It fits the file system: in an encrypted home
    /// (eCryptfs), a name has at most 143 bytes.
    package func candidate(_ name: String, _ number: Int, in folder: OpenFolder) -> String {
        func candidate(_ longest: Int) -> String {
            number == 0 ? FileName.cut(name, longest: longest) : FileName.numbered(name, number, longest: longest)
        }
        let whole = candidate(FileName.longestNumbered)
        if whole.utf8.count <= Self.alwaysFits { return whole }
        let told = longestName(folder.descriptor)
        return told > 0 ? candidate(min(max(told, Self.alwaysFits), FileName.longestNumbered)) : whole
    }
}

/// A part file and its folder, open for a commit. Refuses anything but a regular file. Only its identity tells whether it is ours.
private struct OpenPart: ~Copyable {
    let folder: OpenFolder
    let descriptor: Int32
    let identity: FileIdentity
    let size: ByteCount

    private init(folder: OpenFolder, descriptor: Int32, _ status: OpenFileStatus) {
        (self.folder, self.descriptor, identity, size) = (folder, descriptor, status.identity, status.size)
    }

    deinit { Glibc.close(descriptor) }

    /// Cuts off the last byte, so that the size shows that the file is not whole.
    func shorten(_ name: String) {
        var status = stat()
        // An interrupted commit may have left the file under its final name, too. A file with its final name must stay whole.
        guard size > 0, fstat(descriptor, &status) == 0, status.st_nlink == 1 else { return }
        // The file may already have the mode of the file that it replaces, and that mode may forbid to write.
        _ = fchmod(descriptor, 0o600)
        let writable = openUninterrupted(folder.descriptor, name, O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)
        guard writable >= 0 else { return }
        defer { Glibc.close(writable) }
        guard (try? fileIdentity(of: writable, boot: bootIdentity())) == identity else { return }
        _ = ftruncate(writable, off_t(clamping: size -| 1))
    }

    /// nil: the folder is there, but has no file of this name.
    static func open(_ directory: String, _ name: String, allowHidden: Bool) throws(DiskError) -> OpenPart? {
        let folder = try OpenFolder.open(directory, allowHidden: allowHidden)
        let descriptor = openUninterrupted(folder.descriptor, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)
        guard descriptor >= 0 else {
            if errno == ENOENT { return nil }
            throw DiskError("open the part file")
        }
        do throws(DiskError) {
            let status = try OpenFileStatus(of: descriptor, boot: bootIdentity())
            guard status.isRegular else { throw DiskError("use \(name), which is not a regular file,", EEXIST) }
            return OpenPart(folder: folder, descriptor: descriptor, status)
        } catch {
            Glibc.close(descriptor)
            throw error
        }
    }
}
