internal import DownloadModel
internal import Extraction
internal import Glibc
internal import PartFiles

/// A file, link or folder below the folder that is packed.
struct TreeEntry: Equatable {
    enum Kind: Equatable { case file, folder, link(target: [UInt8]) }

    /// Relative to the folder, in bytes of UTF-8.
    let path: [UInt8]
    let kind: Kind
    let isExecutable: Bool
    let size: ByteCount
    /// Changes whenever the file's bytes change.
    let stamp: [Int64]

    var text: String { String(decoding: path, as: UTF8.self) }
}

/// Everything below a folder, in the order of the archive: by name, byte by byte, each folder before its contents.
struct FolderTree: Equatable {
    let entries: [TreeEntry]
    /// Bytes of all files.
    let size: ByteCount

    /// - Throws: at the first entry that the service would not unpack. The error names the entry.
    init(_ folder: OpenFolder) throws(PackingError) {
        var walk = Walk()
        try walk.enter(folder.descriptor, [], folder.path)
        (entries, size) = (walk.entries, walk.size)
    }

    private struct Walk {
        var rules = ArchiveRules()
        var entries: [TreeEntry] = []
        var size: ByteCount = 0

        /// - Parameter shown: the folder's path, for messages.
        mutating func enter(_ folder: Int32, _ path: [UInt8], _ shown: String) throws(PackingError) {
            for name in try Self.names(in: folder, shown) { try add(name, in: folder, path, shown) }
        }

        /// The names in a folder, sorted byte by byte.
        private static func names(in folder: Int32, _ shown: String) throws(PackingError) -> [[UInt8]] {
            let copy = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)
            guard copy >= 0, let stream = fdopendir(copy) else {
                let code = errno
                if copy >= 0 { close(copy) }
                throw .of(shown, "cannot be read", code)
            }
            defer { closedir(stream) }
            var names: [[UInt8]] = []
            while true {
                errno = 0
                guard let entry = readdir(stream) else {
                    guard errno == 0 else { throw .of(shown, "cannot be read", errno) }
                    break
                }
                let name = withUnsafeBytes(of: &entry.pointee.d_name) { Array($0.prefix { $0 != 0 }) }
                if name != [UInt8(ascii: ".")], name != Array("..".utf8) { names.append(name) }
            }
            return names.sorted { $0.lexicographicallyPrecedes($1) }
        }

        private mutating func add(_ name: [UInt8], in folder: Int32, _ path: [UInt8], _ above: String) throws(PackingError) {
            let full = path.isEmpty ? name : [path, name].joined(separator: [UInt8(ascii: "/")]).map(\.self)
            let shown = "\(above)/\(DownloadModel.shown(String(decoding: name, as: UTF8.self)))"
            guard String(validating: name, as: UTF8.self) != nil else {
                throw PackingError("“\(shown)” has a name that is not UTF-8; rename it")
            }
            var status = stat()
            let terminated = name.map { CChar(bitPattern: $0) } + [0]
            guard fstatat(folder, terminated, &status, AT_SYMLINK_NOFOLLOW) == 0 else { throw .of(shown, "cannot be read", errno) }
            var kind = TreeEntry.Kind.file
            let rule: ArchiveRules.Kind
            switch status.st_mode & S_IFMT {
            case S_IFREG: rule = .file(setsUserID: status.st_mode & 0o6000 != 0)
            case S_IFDIR: (kind, rule) = (.folder, .folder)
            case S_IFLNK:
                let target = try Self.target(of: terminated, in: folder, shown)
                (kind, rule) = (.link(target: target), .symbolicLink(target: target))
            case S_IFCHR, S_IFBLK: rule = .device
            case S_IFIFO: rule = .fifo
            case S_IFSOCK: rule = .socket
            default: rule = .unknown
            }
            do throws(ArchiveRules.Defect) { try rules.check(full, rule) } catch {
                throw PackingError("\(error.message) (in \(shown))")
            }
            let bytes = kind == .file ? ByteCount(clamping: status.st_size) : 0
            entries.append(
                TreeEntry(path: full, kind: kind, isExecutable: status.st_mode & 0o100 != 0, size: bytes, stamp: stamp(of: status, kind)))
            size +|= bytes
            guard kind == .folder else { return }
            let inner = openat(folder, terminated, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
            guard inner >= 0 else { throw .of(shown, "cannot be read", errno) }
            defer { close(inner) }
            try enter(inner, full, shown)
        }

        private static func target(of name: [CChar], in folder: Int32, _ shown: String) throws(PackingError) -> [UInt8] {
            var bytes = [CChar](repeating: 0, count: Int(PATH_MAX))
            let count = readlinkat(folder, name, &bytes, bytes.count)
            guard count >= 0 else { throw .of(shown, "cannot be read", errno) }
            let target = bytes.prefix(count).map { UInt8(bitPattern: $0) }
            guard String(validating: target, as: UTF8.self) != nil else {
                throw PackingError("“\(shown)” is a link to a name that is not UTF-8")
            }
            return target
        }
    }
}

/// Shows whether a file is unchanged: its inode, and the times of its bytes and of its status. Empty for folders and links.
func stamp(of status: stat, _ kind: TreeEntry.Kind) -> [Int64] {
    guard kind == .file else { return [] }
    return [
        Int64(truncatingIfNeeded: status.st_ino), Int64(clamping: status.st_mtim.tv_sec), Int64(clamping: status.st_mtim.tv_nsec),
        Int64(clamping: status.st_ctim.tv_sec), Int64(clamping: status.st_ctim.tv_nsec),
    ]
}

extension PackingError {
    static func of(_ path: String, _ what: String, _ code: Int32) -> PackingError {
        PackingError("“\(path)” \(what): \(String(cString: strerror(code)))")
    }
}
