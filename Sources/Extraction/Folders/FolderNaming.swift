package import DownloadModel
internal import Glibc
package import PartFiles

/// Gives a folder that `Unpacking` has made under a provisional name its final name.
///
/// The journal of the extraction knows the folder's inode. So an interrupted call is simply repeated: it finds the folder under either
/// name. All calls block: use the pool.
package enum FolderNaming {
    package enum Outcome: Equatable, Sendable {
        /// The folder has its name, on disk.
        case named(path: String, FileIdentity)
        /// The name is taken, and `policy` is `skip` or `fail`.
        case taken(path: String)
        /// Nobody knows the folder any more.
        case lost
        /// The folder has its name, but the folder above could not be flushed. Repeat the call later.
        case unsettled
        case failed(DiskError)
    }

    /// The last number that is tried, as for files.
    private static let lastNumber = 9999

    /// Renames the folder `unpacked` in `directory` to `name`. Nothing is ever replaced: under `rename`, a taken name becomes "name (1)".
    package static func name(
        _ unpacked: String, as name: String, directory: String, policy: ExistingFilePolicy, allowHidden: Bool,
        calls: ExtractionCalls = ExtractionCalls(), naming: NamingCalls = NamingCalls()
    ) -> Outcome {
        func path(_ name: String) -> String { directory == "/" ? "/\(name)" : "\(directory)/\(name)" }
        do throws(DiskError) {
            let parent = try OpenFolder.open(directory, allowHidden: allowHidden)
            // A failed read must not count as lost: the archive would be downloaded again, though its folder may have its name by now.
            guard let journal = try ExtractionJournal.read(Unpacking.journalName(unpacked), in: parent), journal.isWhole else {
                return .lost
            }
            func settled(_ name: String, _ identity: FileIdentity) -> Outcome {
                calls.before(.flushParent)
                return parent.sync() ? .named(path: path(name), identity) : .unsettled
            }
            if let found = try identity(of: unpacked, in: parent), found.isSamePart(as: journal.folder) {
                for number in 0...lastNumber {
                    let candidate = policy == .rename ? naming.candidate(name, number, in: parent) : name
                    calls.before(.rename)
                    if try rename(unpacked, to: candidate, in: parent, naming) { return settled(candidate, found) }
                    if policy != .rename { return .taken(path: path(candidate)) }
                }
                throw DiskError("find a free name for \(name)", EEXIST)
            }
            for number in 0...lastNumber {
                let candidate = naming.candidate(name, number, in: parent)
                guard parent.status(candidate)?.st_ino == ino_t(clamping: journal.folder.inode),
                    let found = try identity(of: candidate, in: parent), found.isSamePart(as: journal.folder)
                else { continue }
                return settled(candidate, found)
            }
            return .lost
        } catch {
            return .failed(error)
        }
    }

    /// How `takeBack` ended.
    package enum TakeBack: Equatable, Sendable {
        /// The folder has its provisional name again, on disk.
        case taken
        case gone
        /// The name is that of a file or of a link.
        case noFolder
        /// Another folder has the name, and was left alone.
        case other
        /// The file system records no birth times: nobody can tell whether the folder is the one that was unpacked.
        case unproved
        /// Another folder came between the proof and the rename. Its name is taken by now; it stays at `path`.
        case stranded(path: String)
        case failed(DiskError)
    }

    /// Gives the folder `name` the provisional name `unpacked` again, so that the folder is deleted with what its extraction has left.
    ///
    /// The folder is proved before the rename and after it, because no system call renames an open folder. Another folder that came
    /// between gets its name back. Never waits for the deletion of the folder.
    package static func takeBack(
        _ name: String, as unpacked: String, directory: String, identity: FileIdentity?, naming: NamingCalls = NamingCalls()
    ) -> TakeBack {
        do throws(DiskError) {
            let parent = try OpenFolder.open(directory, allowHidden: true)
            let folder = openUninterrupted(parent.descriptor, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
            guard folder >= 0 else {
                if errno == ENOTDIR || errno == ELOOP { return .noFolder }
                throw DiskError("open the folder \(name)")
            }
            // As long as the folder is open, no other one gets its inode.
            defer { close(folder) }
            switch Commit.proof(folder, identity) {
            case .same: break
            case .other: return .other
            case .unproved: return .unproved
            }
            let found = try fileIdentity(of: folder, boot: "")
            if try !rename(name, to: unpacked, in: parent, naming) {
                // Only this download uses the provisional name.
                guard case .removed = try FolderRemoval.remove(unpacked, in: parent, ExtractionControl()),
                    try rename(name, to: unpacked, in: parent, naming)
                else { throw DiskError("delete the folder \(name)", EEXIST) }
            }
            guard let moved = parent.status(unpacked) else { throw DiskError("look for \(unpacked)") }
            if moved.st_ino != ino_t(clamping: found.inode) {
                for number in 0...lastNumber {
                    let candidate = number == 0 ? name : FileName.numbered(name, number)
                    if try rename(unpacked, to: candidate, in: parent, naming) { return .other }
                }
                return .stranded(path: directory == "/" ? "/\(unpacked)" : "\(directory)/\(unpacked)")
            }
            guard parent.sync() else { throw DiskError("save the folder") }
            return .taken
        } catch {
            return error.refusal == nil && (error.code == ENOENT || error.code == ENOTDIR) ? .gone : .failed(error)
        }
    }

    /// The identity of the folder `name`; nil: there is no such folder.
    private static func identity(of name: String, in parent: OpenFolder) throws(DiskError) -> FileIdentity? {
        let folder = openUninterrupted(parent.descriptor, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
        guard folder >= 0 else {
            guard [ENOENT, ENOTDIR, ELOOP].contains(errno) else { throw DiskError("open \(name)") }
            return nil
        }
        defer { close(folder) }
        return try fileIdentity(of: folder, boot: bootIdentity())
    }

    /// Returns false if `name` is taken.
    private static func rename(_ unpacked: String, to name: String, in parent: OpenFolder, _ naming: NamingCalls) throws(DiskError) -> Bool
    {
        switch naming.renameNoReplace(parent.descriptor, unpacked, name) {
        case 0: return true
        case EEXIST, ENOTEMPTY: return false
        case EINVAL, ENOSYS, ENOTSUP: break
        case let code: throw DiskError("name the folder \(name)", code)
        }
        // The file system lacks RENAME_NOREPLACE. A plain rename of a folder replaces no file and no folder with contents.
        if parent.status(name) != nil { return false }
        guard renameat(parent.descriptor, unpacked, parent.descriptor, name) == 0 else { throw DiskError("name the folder \(name)") }
        return true
    }
}
