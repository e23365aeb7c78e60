public import DownloadModel
internal import Glibc

/// Looks at a folder before anything is promised about it. Blocks: for the pool.
public enum Destination {
    private static let linkLimit = 40

    /// Whether downloads may be put into `directory`.
    ///
    /// - Parameters:
    ///   - allowHidden: whether a component may begin with a dot.
    ///   - create: makes missing folders (0777 & umask), for a default directory.
    /// - Returns: the path without superfluous slashes and dots. `InvalidOption` where it is not absolute, does not exist or is not a folder;
    ///   `PermissionDenied` where it cannot be written; `NotAllowed` where it is hidden, or reached by a symbolic link of another user.
    public static func check(_ directory: String, allowHidden: Bool, create: Bool) -> Result<String, Refusal> {
        do throws(Refusal) {
            return .success(try walk(directory, allowHidden, create))
        } catch {
            return .failure(error)
        }
    }

    /// The bytes that we may still write into `directory`; nil where it is not there, or may not be written.
    public static func room(in directory: String, allowHidden: Bool) -> ByteCount? {
        guard case .success = check(directory, allowHidden: allowHidden, create: false) else { return nil }
        var status = statvfs()
        guard statvfs(directory, &status) == 0, status.f_flag & UInt(ST_RDONLY) == 0 else { return nil }
        return ByteCount(status.f_bavail) * ByteCount(status.f_frsize)
    }

    private static func walk(_ directory: String, _ allowHidden: Bool, _ create: Bool) throws(Refusal) -> String {
        guard directory.hasPrefix("/") else {
            throw Refusal(.invalidOption, "directory: \"\(directory)\" is not an absolute path.")
        }
        guard !directory.utf8.contains(0), directory.utf8.count < Int(PATH_MAX) else {
            throw Refusal(.invalidOption, "directory: the path is too long, or has a NUL in it.")
        }
        let given = directory.split(separator: "/").filter { $0 != "." }
        // Every component is resolved by us, so that each link on the way is seen. `rest` is reversed.
        var rest = Array(given.reversed())
        var resolved: [Substring] = []
        var links = 0
        while let component = rest.popLast() {
            if component == "." { continue }
            if component == ".." {
                _ = resolved.popLast()
                continue
            }
            if component.hasPrefix("."), !allowHidden {
                throw Refusal(.notAllowed, "directory: \(directory) is hidden, or in a hidden folder.")
            }
            let path = "/" + (resolved + [component]).joined(separator: "/")
            var status = stat()
            if lstat(path, &status) != 0 {
                guard errno == ENOENT, create else { throw missing(directory, errno) }
                guard mkdir(path, 0o777) == 0 || errno == EEXIST else {
                    throw Refusal(.permissionDenied, "directory: \(path) cannot be made: \(String(cString: strerror(errno))).")
                }
                guard lstat(path, &status) == 0 else { throw missing(directory, errno) }
            }
            switch status.st_mode & S_IFMT {
            case S_IFDIR: resolved.append(component)
            case S_IFLNK:
                links += 1
                guard status.st_uid == geteuid() || status.st_uid == 0 else {
                    throw Refusal(.notAllowed, "directory: \(path) is a symbolic link of another user.")
                }
                guard links <= linkLimit, let target = target(of: path) else {
                    throw Refusal(.invalidOption, "directory: \(directory) has too many symbolic links on its way.")
                }
                if target.hasPrefix("/") { resolved = [] }
                rest += target.split(separator: "/").reversed()
            default: throw Refusal(.invalidOption, "directory: \(path) is not a folder.")
            }
        }
        let path = "/" + resolved.joined(separator: "/")
        guard faccessat(AT_FDCWD, path, W_OK | X_OK, AT_EACCESS) == 0 else {
            throw Refusal(.permissionDenied, "directory: \(directory) cannot be written: \(String(cString: strerror(errno))).")
        }
        return "/" + given.joined(separator: "/")
    }

    private static func missing(_ directory: String, _ code: Int32) -> Refusal {
        switch code {
        case ENOENT: Refusal(.invalidOption, "directory: \(directory) does not exist.")
        case ENOTDIR: Refusal(.invalidOption, "directory: \(directory) is not a folder.")
        case EACCES: Refusal(.permissionDenied, "directory: \(directory) cannot be entered: \(String(cString: strerror(code))).")
        default: Refusal(.invalidOption, "directory: \(directory) cannot be used: \(String(cString: strerror(code))).")
        }
    }

    private static func target(of path: String) -> String? {
        var bytes = [CChar](repeating: 0, count: Int(PATH_MAX))
        let count = readlink(path, &bytes, bytes.count)
        return count > 0 && count < bytes.count ? String(decoding: bytes.prefix(count).map { UInt8(bitPattern: $0) }, as: UTF8.self) : nil
    }
}
