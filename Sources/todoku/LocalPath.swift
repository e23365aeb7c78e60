internal import Glibc

/// Paths as given at a command line, made absolute for a service that has another working folder.
enum LocalPath {
    /// Without ".", ".." and doubled slashes. ".." is resolved on the disk where the folder exists (a link's parent is not its name's),
    /// else by its name.
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

    /// The folder and the bare name of `path`; nil where it has no name ("dir/", "..").
    static func split(_ path: String) -> (folder: String, name: String)? {
        let slash = path.lastIndex(of: "/")
        let name = slash.map { String(path[path.index(after: $0)...]) } ?? path
        guard !name.isEmpty, name != ".", name != ".." else { return nil }
        return (absolute(slash.map { $0 == path.startIndex ? "/" : String(path[..<$0]) } ?? "."), name)
    }

    /// The folder that an absolute path lies in.
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
