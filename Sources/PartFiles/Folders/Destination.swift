public import DownloadModel
internal import Glibc

/// Checks a folder before a download is accepted for it. Blocks: use the pool.
public enum Destination {
    /// Whether downloads may be put into `directory`.
    ///
    /// - Parameters:
    ///   - allowHidden: whether a component may begin with a dot.
    ///   - create: makes missing folders (0777 & umask), for a default directory.
    /// - Returns: the path without superfluous slashes and dots, or a refusal. `InvalidOption`: the path is not absolute, does not exist or
    ///   is not a folder. `PermissionDenied`: the folder is not writable. `NotAllowed`: the folder is hidden, or reached through a symbolic
    ///   link of another user.
    public static func check(_ directory: String, allowHidden: Bool, create: Bool) -> Result<String, Refusal> {
        do throws(Refusal) {
            return .success(try walk(directory, allowHidden, create))
        } catch {
            return .failure(error)
        }
    }

    /// The bytes that we may still write into `directory` beside `reserve`; nil if the folder does not exist or is not writable.
    ///
    /// A folder that the rules refuse counts as having room. The transfer then starts and fails with the reason, instead of waiting for
    /// ever.
    public static func room(in directory: String, allowHidden: Bool, reserve: DiskReserve) -> ByteCount? {
        switch check(directory, allowHidden: allowHidden, create: false) {
        case .success: break
        case .failure(let refusal): return refusal.name == .notAllowed ? .max : nil
        }
        var status = statvfs()
        guard statvfs(directory, &status) == 0, status.f_flag & UInt(ST_RDONLY) == 0 else { return nil }
        return status.room(beside: reserve) ?? .max
    }

    /// Asks for the room on the disk of `directory`, and so waits until the disk answers.
    public static func waitForAnswer(of directory: String) {
        var status = statvfs()
        _ = statvfs(directory, &status)
    }

    private static func walk(_ directory: String, _ allowHidden: Bool, _ create: Bool) throws(Refusal) -> String {
        guard directory.isAbsolutePath else {
            throw Refusal(.invalidOption, "directory: \"\(directory)\" is not an absolute path.")
        }
        guard !directory.utf8.contains(0), directory.utf8.count < Int(PATH_MAX) else {
            throw Refusal(.invalidOption, "directory: the path is too long, or has a NUL in it.")
        }
        let code: Int32
        do throws(OpenFolder.Obstacle) {
            let folder = try OpenFolder.walk(directory, allowHidden: allowHidden, making: create ? 0o777 : nil)
            code = faccessat(folder.descriptor, ".", W_OK | X_OK, AT_EACCESS) == 0 ? 0 : errno
        } catch {
            throw refusal(directory, error)
        }
        guard code == 0 else {
            throw Refusal(.permissionDenied, "directory: \(directory) cannot be written: \(String(cString: strerror(code))).")
        }
        return directory.tidyPath
    }

    private static func refusal(_ directory: String, _ obstacle: OpenFolder.Obstacle) -> Refusal {
        switch obstacle {
        case .hidden: Refusal(.notAllowed, "directory: \(directory) is hidden, or in a hidden folder.")
        case .foreignLink(let path): Refusal(.notAllowed, "directory: \(path) is a symbolic link of another user.")
        case .tooManyLinks: Refusal(.invalidOption, "directory: \(directory) has too many symbolic links on its way.")
        case .notFolder(let path): Refusal(.invalidOption, "directory: \(path) is not a folder.")
        case .cannotMake(let path, let code):
            Refusal(.permissionDenied, "directory: \(path) cannot be made: \(String(cString: strerror(code))).")
        case .failed(_, let code): missing(directory, code)
        }
    }

    private static func missing(_ directory: String, _ code: Int32) -> Refusal {
        switch code {
        case ENOENT: Refusal(.invalidOption, "directory: \(directory) does not exist.")
        case ENOTDIR: Refusal(.invalidOption, "directory: \(directory) is not a folder.")
        case EACCES: Refusal(.permissionDenied, "directory: \(directory) cannot be entered: \(String(cString: strerror(code))).")
        default: Refusal(.invalidOption, "directory: \(directory) cannot be used: \(String(cString: strerror(code))).")
        }
    }
}

extension stat {
    /// The size in bytes; a negative size counts as 0.
    var byteCount: ByteCount { ByteCount(clamping: st_size) }

    /// The disk space that the file uses, in bytes.
    var allocated: ByteCount { ByteCount(clamping: st_blocks) *| 512 }
}
