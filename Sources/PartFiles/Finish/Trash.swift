internal import CSystem
public import DownloadModel
internal import Glibc
internal import Synchronization

/// The user's trash, as the Trash specification 1.0 of freedesktop.org describes it.
///
/// A file is renamed from its open folder into the open trash, so a link that takes the folder's place meanwhile leads to no other file.
/// gio(1) and the desktop portal are not used, because both rename by path. All calls block: use the pool.
public enum Trash {
    /// Most bytes of a name in a trash. With ".trashinfo" the name fits the 143 bytes of eCryptfs.
    static let longestName = 132

    /// Moves a finished file to the trash if it is still the committed one. A file that is gone is no error.
    ///
    /// - Parameters:
    ///   - dataHome: `$XDG_DATA_HOME`. Its trash takes the files of its file system; others go to the trash of their mount.
    ///   - wait: of a caller that may stop waiting.
    public static func put(
        _ path: String, identity: FileIdentity?, dataHome: String, wait: TrashWait = TrashWait()
    ) -> Result<Void, Refusal> {
        put(path, identity: identity, dataHome: dataHome, wait: wait, calls: TrashCalls())
    }

    static func put(
        _ path: String, identity: FileIdentity?, dataHome: String, wait: TrashWait = TrashWait(), calls: TrashCalls
    ) -> Result<Void, Refusal> {
        var isFound = false
        do throws(DiskError) {
            let (folder, name) = try OpenFolder.parent(of: path)
            let file = try Commit.place(folder, name)
            defer { Glibc.close(file) }
            isFound = true
            switch Commit.proof(file, identity) {
            case .same: break
            case .other: return .failure(Refusal(.notAllowed, "\(path) is another file by now and was left alone."))
            case .unproved:
                return .failure(
                    Refusal(
                        .notAllowed,
                        """
                        \(path) was left alone: its file system records no birth times, so Todoku cannot tell whether it is still the \
                        unpacked folder. Move the folder to the trash by hand.
                        """))
            }
            let own = UnwantedFile(folder: folder, name: name, file: file, wait: wait, calls: calls)
            if try own.move(toHome: dataHome) { return .success(()) }
            try own.moveToMount()
            return .success(())
        } catch {
            if !isFound, error.code == ENOENT || error.code == ENOTDIR { return .success(()) }
            let reason = error.refusal ?? "cannot \(error.action): \(String(cString: strerror(error.code)))"
            return .failure(Refusal(.permissionDenied, "\(path) could not be moved to the trash: \(reason)."))
        }
    }
}

/// Joins a move to the trash, on a thread of its disk, with the caller that waits for it on another thread. Needs no lock.
public final class TrashWait: Sendable {
    private enum State: UInt8, AtomicRepresentable { case preparing, moving, givenUp }

    private let state = Atomic(State.preparing)

    public init() {}

    /// Asked before each rename.
    ///
    /// - Returns: false if the caller stopped waiting before the first rename, so that the file must stay.
    func mayMove() -> Bool { state.compareExchange(expected: .preparing, desired: .moving, ordering: .relaxed).original != .givenUp }

    /// The caller stops waiting.
    ///
    /// - Returns: whether the file may still be moved, or is in the trash already. If false, the file stays.
    public func giveUp() -> Bool {
        state.compareExchange(expected: .preparing, desired: .givenUp, ordering: .relaxed).original == .moving
    }
}

/// The system calls of a move to the trash. Tests replace them to simulate other users and other file systems.
struct TrashCalls {
    /// renameat2(2) with RENAME_NOREPLACE; returns 0 or errno.
    var rename: (_ folder: Int32, _ from: String, _ newFolder: Int32, _ to: String) -> Int32 = { todoku_rename_noreplace($0, $1, $2, $3) }
    /// Whether a folder lies on a file system in memory.
    var isMemory: (_ folder: Int32) -> Bool = { todoku_is_memory($0) }
}

/// A finished file in its open folder, on the way to a trash.
private struct UnwantedFile {
    let folder: OpenFolder
    let name: String
    /// An O_PATH descriptor of the file.
    let file: Int32
    let wait: TrashWait
    let calls: TrashCalls

    /// Returns false if the home's trash is on another file system or cannot be used.
    func move(toHome dataHome: String) throws(DiskError) -> Bool {
        guard let files = try? OpenFolder.open("\(dataHome)/Trash/files", allowHidden: true, making: 0o700),
            let info = try? OpenFolder.open("\(dataHome)/Trash/info", allowHidden: true, making: 0o700),
            try fileIdentity(of: files.descriptor, boot: "").device == fileIdentity(of: file, boot: "").device
        else { return false }
        do throws(DiskError) {
            try move(to: files, info, describedAs: "\(folder.path == "/" ? "" : folder.path)/\(name)")
            return true
        } catch {
            if error.code == EXDEV, error.refusal == nil { return false }  // another mount of the same file system
            throw error
        }
    }

    /// Uses `.Trash/UID` at the top of the mount if an administrator has made `.Trash`, else `.Trash-UID`.
    func moveToMount() throws(DiskError) {
        let top = try folder.top()
        guard !calls.isMemory(top.descriptor) else {
            throw DiskError("make a trash", ENOTSUP, refusal: "\(top.path) is a file system in memory, and desktops show no trash of it")
        }
        let shared = sharedTrash(top)
        let trash = if let shared { shared } else { try own(top.subfolder(".Trash-\(geteuid())", make: true)) }
        let names = folder.path.pathComponents.dropFirst(top.path.pathComponents.count).map(String.init) + [name]
        try move(
            to: trash.subfolder("files", make: true), trash.subfolder("info", make: true), describedAs: names.joined(separator: "/"))
    }

    /// This user's folder in `.Trash`. nil if `.Trash` is missing, is a link or has no sticky bit: the specification forbids its use.
    private func sharedTrash(_ top: OpenFolder) -> OpenFolder? {
        guard let shared = try? top.subfolder(".Trash", make: false), let status = shared.status("."), status.st_mode & S_ISVTX != 0,
            let trash = try? shared.subfolder("\(geteuid())", make: true)
        else { return nil }
        return try? own(trash)
    }

    /// Checks the owner of the trash: another user could have made a folder of this name, to read the files in it.
    private func own(_ trash: OpenFolder) throws(DiskError) -> OpenFolder {
        guard let status = trash.status("."), folder.isOurs(owner: status.st_uid) else {
            throw DiskError("use the trash", EACCES, refusal: "\(trash.path) belongs to another user")
        }
        return trash
    }

    /// - Parameter origin: the file's path, absolute or from the top of its mount.
    private func move(to files: OpenFolder, _ info: OpenFolder, describedAs origin: String) throws(DiskError) {
        let text = "[Trash Info]\nPath=\(percentEncoded(path: origin))\nDeletionDate=\(localTime())\n"
        for number in 0...Commit.lastNumber {
            if number == 0, name.utf8.count > Trash.longestName { continue }
            let entry = number == 0 ? name : FileName.numbered(name, number, longest: Trash.longestName)
            // The description reserves the name. It is on disk before the file, because the file cannot be restored without it.
            guard try write(text, "\(entry).trashinfo", info) else { continue }
            guard wait.mayMove() else {
                unlinkat(info.descriptor, "\(entry).trashinfo", 0)
                throw DiskError("move it there", ETIMEDOUT)
            }
            let code = rename(to: files, entry)
            if code == 0 { return try check(files, entry, info) }
            unlinkat(info.descriptor, "\(entry).trashinfo", 0)
            guard code == EEXIST else { throw DiskError("move it there", code) }
        }
        throw DiskError("find a free name there", EEXIST)
    }

    private func rename(to files: OpenFolder, _ entry: String) -> Int32 {
        let code = calls.rename(folder.descriptor, name, files.descriptor, entry)
        guard code == EINVAL || code == ENOSYS || code == ENOTSUP else { return code }
        // A file system without RENAME_NOREPLACE. The description reserves the name among programs that follow the specification.
        if files.status(entry) != nil { return EEXIST }
        return renameat(folder.descriptor, name, files.descriptor, entry) == 0 ? 0 : errno
    }

    /// If another file took the name just before the rename, moves that file back to its folder.
    private func check(_ files: OpenFolder, _ entry: String, _ info: OpenFolder) throws(DiskError) {
        var own = stat()
        guard let moved = files.status(entry), fstat(file, &own) == 0 else { throw DiskError("look at the file in the trash") }
        if (moved.st_dev, moved.st_ino) == (own.st_dev, own.st_ino) { return }
        let code = calls.rename(files.descriptor, entry, folder.descriptor, name)
        if code == 0 { unlinkat(info.descriptor, "\(entry).trashinfo", 0) }
        let place = code == 0 ? "was left alone" : "is in the trash as \(entry)"
        throw DiskError("move it there", ESTALE, refusal: "another file had its name by then, and \(place)")
    }

    /// Writes and flushes a new file. Returns false if the name is taken.
    private func write(_ text: String, _ name: String, _ info: OpenFolder) throws(DiskError) -> Bool {
        let file = openUninterrupted(info.descriptor, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0o600)
        guard file >= 0 else {
            if errno == EEXIST { return false }
            throw DiskError("describe it there")
        }
        defer { Glibc.close(file) }
        let bytes = Array(text.utf8)
        guard Glibc.write(file, bytes, bytes.count) == bytes.count, fsync(file) == 0 else {
            let error = DiskError("describe it there")
            unlinkat(info.descriptor, name, 0)
            throw error
        }
        return true
    }

    private func localTime() -> String {
        var (now, parts) = (time(nil), tm())
        tzset()
        localtime_r(&now, &parts)
        var text = [CChar](repeating: 0, count: 32)
        let count = strftime(&text, text.count, "%Y-%m-%dT%H:%M:%S", &parts)
        return String(decoding: text.prefix(count).map { UInt8(bitPattern: $0) }, as: UTF8.self)
    }
}
