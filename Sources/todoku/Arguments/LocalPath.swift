internal import Glibc

/// Makes paths of the command line absolute, because the service has another working directory.
enum LocalPath {
    /// An absolute path without ".", ".." and doubled slashes. If the path exists, ".." is resolved on the disk, because a symbolic link's
    /// target has another parent than the link. Otherwise ".." is resolved by name.
    static func absolute(_ path: String) -> String { absolute(path, in: currentFolder()) }

    static func absolute(_ path: String, in folder: String) -> String {
        let full = path.hasPrefix("/") ? path : "\(folder)/\(path)"
        let parts = full.split(separator: "/")
        if parts.contains(".."), let real = realpath(full, nil) {
            defer { free(real) }
            return String(cString: real)
        }
        var kept: [Substring] = []
        for part in parts {
            switch part {
            case ".": continue
            case "..": _ = kept.popLast()
            default: kept.append(part)
            }
        }
        return "/" + kept.joined(separator: "/")
    }

    /// The folder and the bare name of `path`; nil if it has no name ("dir/", "..").
    static func split(_ path: String) -> (folder: String, name: String)? {
        let slash = path.lastIndex(of: "/")
        let name = slash.map { String(path[path.index(after: $0)...]) } ?? path
        guard !name.isEmpty, name != ".", name != ".." else { return nil }
        return (absolute(slash.map { $0 == path.startIndex ? "/" : String(path[..<$0]) } ?? "."), name)
    }

    /// The folder of an absolute path.
    static func folder(of path: String) -> String {
        guard let slash = path.lastIndex(of: "/"), slash > path.startIndex else { return "/" }
        return String(path[..<slash])
    }

    static func isFolder(_ path: String) -> Bool {
        var status = stat()
        return stat(path, &status) == 0 && status.st_mode & S_IFMT == S_IFDIR
    }

    static func exists(_ path: String) -> Bool { access(path, F_OK) == 0 }

    private static func currentFolder() -> String {
        guard let path = getcwd(nil, 0) else { return "/" }
        defer { free(path) }
        return String(cString: path)
    }
}
