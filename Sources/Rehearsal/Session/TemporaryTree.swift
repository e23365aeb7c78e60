internal import CSystem
internal import EventLoop
internal import Glibc

/// Folders that a rehearsal makes.
enum TemporaryTree {
    /// A new folder that only this user can read, in `$TMPDIR` or `/tmp`.
    static func make() throws(RehearsalError) -> String {
        guard let base = temporaryFolder() else { return try make(in: "/tmp") }
        guard base.hasPrefix("/") else { throw RehearsalError("TMPDIR must be an absolute path, not “\(base)”") }
        return try make(in: base)
    }

    /// A new folder that only this user can read, in the folder `base`.
    ///
    /// - Returns: its path without links and doubled slashes, as the service tells the paths in it.
    static func make(in base: String) throws(RehearsalError) -> String {
        guard let real = realpath(base, nil) else { throw .of(base, "cannot be used as a folder", errno) }
        defer { free(real) }
        let folder = String(cString: real)
        var template = Array("\(folder == "/" ? "" : folder)/todoku-rehearse.XXXXXX".utf8CString)
        guard mkdtemp(&template) != nil else { throw .of(folder, "cannot have a folder made in it", errno) }
        return String(decoding: template.dropLast().map { UInt8(bitPattern: $0) }, as: UTF8.self)
    }

    static func makeFolder(_ path: String, _ mode: mode_t) throws(RehearsalError) {
        guard mkdir(path, mode) == 0 else { throw .of(path, "cannot be made", errno) }
    }

    /// Removes `path` with everything in it, also read-only folders. Follows no link.
    ///
    /// - Returns: whether nothing is left of it.
    static func remove(_ path: String) -> Bool {
        todoku_remove_tree(path)
        var status = stat()
        return lstat(path, &status) != 0 && errno == ENOENT
    }
}
