internal import ArgumentParser
internal import DownloadModel
internal import Glibc
internal import Localization

/// Makes paths of the command line absolute, because the service has another working directory.
enum LocalPath {
    /// An absolute path without ".", ".." and doubled slashes. ".." is resolved on the disk, because a symbolic link's target has another
    /// parent than the link. What follows the last ".." may be missing. If more is missing, ".." is resolved by name.
    ///
    /// - Throws: for a relative path if the current folder has been deleted, and for a folder whose path is not UTF-8.
    static func absolute(_ path: String) throws(CommandFailure) -> String {
        try absolute(path, in: path.isAbsolutePath ? "/" : try currentFolder(for: path))
    }

    static func absolute(_ path: String, in folder: String) throws(CommandFailure) -> String {
        let full = path.isAbsolutePath ? path : "\(folder)/\(path)"
        var (kept, parts) = ([Substring](), full.pathComponents[...])
        if let up = parts.lastIndex(of: ".."), let real = realpath("/\(parts[...up].joined(separator: "/"))", nil) {
            defer { free(real) }
            kept = try ArgumentText.path(real).pathComponents
            parts = parts[up...].dropFirst()
        }
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
    static func split(_ path: String) throws(CommandFailure) -> (folder: String, name: String)? {
        let slash = path.utf8.lastIndex(of: UInt8(ascii: "/"))
        let name = String(path.lastPathComponent)
        guard !name.isEmpty, name != ".", name != ".." else { return nil }
        let folder = slash.map { $0 == path.startIndex ? "/" : String(path[..<$0]) } ?? "."
        return (try absolute(folder, in: path.isAbsolutePath ? "/" : try currentFolder(for: path)), name)
    }

    /// For `validate`: refuses “-” as the path of a new file or folder, because “-” usually means standard output.
    ///
    /// - Parameter writer: the command or the option whose argument `path` is.
    static func refuseStandardOutput(_ path: String?, for writer: String) throws {
        guard path == "-" else { return }
        throw ValidationError(catalog.text("%1$s cannot write to standard output (“-”); give a path.", writer))
    }

    /// The folder of an absolute path.
    static func folder(of path: String) -> String {
        guard let slash = path.utf8.lastIndex(of: UInt8(ascii: "/")), slash > path.startIndex else { return "/" }
        return String(path[..<slash])
    }

    /// Makes the folder with an absolute path, and those above it, as `mkdir -p`.
    static func makeFolder(_ path: String) throws(CommandFailure) {
        var made = ""
        for name in path.pathComponents {
            made += "/\(name)"
            guard mkdir(made, 0o777) != 0 else { continue }
            let error = errno
            // mkdir(2) says of a folder on a read-only disk that the disk is read-only, and of a file that it exists.
            if isFolder(made) { continue }
            let reason = String(cString: strerror(error == EEXIST ? ENOTDIR : error))
            throw CommandFailure(.refused, catalog.text("the folder “%1$s” cannot be made: %2$s", made, reason))
        }
    }

    static func isFolder(_ path: String) -> Bool {
        var status = stat()
        return stat(path, &status) == 0 && status.st_mode & S_IFMT == S_IFDIR
    }

    static func exists(_ path: String) -> Bool { access(path, F_OK) == 0 }

    private static func currentFolder(for path: String) throws(CommandFailure) -> String {
        // Linux says "(unreachable)…" for a folder outside the root of the process (getcwd(3)).
        guard let folder = getcwd(nil, 0) else { throw isLost(path, errno) }
        defer { free(folder) }
        let text = try ArgumentText.path(folder)
        guard text.isAbsolutePath else { throw isLost(path, ENOENT) }
        return text
    }

    private static func isLost(_ path: String, _ error: Int32) -> CommandFailure {
        let text =
            error == ENOENT
            ? catalog.text("the current folder no longer exists, so “%1$s” leads nowhere; go to another folder, or give a full path", path)
            : catalog.text("the current folder is not known, so “%1$s” leads nowhere: %2$s", path, String(cString: strerror(error)))
        return CommandFailure(.usage, text)
    }
}
