internal import Desktop
internal import DownloadModel
internal import EventLoop
internal import Glibc
internal import PartFiles

/// What is known of a folder for downloads, judged by the rules of the service.
struct FolderReport: Sendable {
    /// Why no download may be put into the folder, as a clause; nil: downloads may.
    let refusal: String?
    let isAbsent: Bool
    /// Whether the nearest folder above an absent one can be written.
    let canBeMade: Bool
    /// Bytes that this user may still write, and the size of the disk.
    let free: ByteCount
    let total: ByteCount
    /// Such as "ext4"; "unknown".
    let fileSystem: Phrase
    /// What the file system cannot do; nil: nothing of note.
    let note: Phrase?

    /// Blocks until the disk answers.
    init(_ folder: String, allowsHidden: Bool) {
        switch Destination.check(folder, allowHidden: allowsHidden, create: false) {
        case .success: refusal = nil
        case .failure(let reason): refusal = Self.clause(reason.message)
        }
        isAbsent = !Paths.exists(folder)
        let nearest = Self.nearest(folder)
        canBeMade = access(nearest, W_OK | X_OK) == 0
        var status = statvfs()
        let isKnown = statvfs(nearest, &status) == 0
        let unit = ByteCount(clamping: status.f_frsize)
        free = isKnown ? ByteCount(clamping: status.f_bavail) *| unit : 0
        total = isKnown ? ByteCount(clamping: status.f_blocks) *| unit : 0
        let type = FileSystems.type(of: Paths.real(nearest) ?? nearest)
        fileSystem = type.map { Phrase(foreign: $0) } ?? Phrase("unknown")
        note = type.flatMap { Self.notes[$0] }
    }

    private static let notes = [
        "vfat": Phrase("no file may have 4 GiB or more on it"), "msdos": Phrase("no file may have 4 GiB or more on it"),
        "tmpfs": Phrase("its files are gone after a restart of the machine"),
        "ramfs": Phrase("its files are gone after a restart of the machine"),
    ]

    /// A refusal's sentence without the name of the option and the final stop.
    static func clause(_ message: String) -> String {
        let option = "directory: "
        let rest = message.hasPrefix(option) ? message.dropFirst(option.count) : message[...]
        return String(rest.hasSuffix(".") ? rest.dropLast() : rest)
    }

    /// `path`, or the nearest existing path above it. Compares bytes, because Swift joins a slash and a following combining mark.
    private static func nearest(_ path: String) -> String {
        var path = path
        while !Paths.exists(path), let slash = path.utf8.lastIndex(of: UInt8(ascii: "/")) {
            if slash == path.startIndex { return "/" }
            path = String(path[..<slash])
        }
        return path
    }
}

/// What is known of the folder of the database.
struct StateReport: Sendable {
    let isAbsent: Bool
    /// nil: the service can keep its database there.
    let fault: Phrase?

    /// Blocks until the disk answers.
    init(_ folder: String) {
        var status = stat()
        guard stat(folder, &status) == 0 else {
            let code = errno
            isAbsent = true
            let above = FolderReport(folder, allowsHidden: true)
            fault = code == ENOENT && above.canBeMade ? nil : Self.text(of: code == ENOENT ? EACCES : code)
            return
        }
        isAbsent = false
        if status.st_mode & S_IFMT != S_IFDIR {
            fault = Phrase("it is not a folder")
        } else if status.st_uid != geteuid() {
            fault = Phrase("it belongs to another user")
        } else if access(folder, R_OK | W_OK | X_OK) != 0 {
            fault = Self.text(of: errno)
        } else {
            fault = nil
        }
    }

    private static func text(of code: Int32) -> Phrase { Phrase(foreign: String(cString: strerror(code))) }
}

/// The types of file systems, from `/proc/self/mountinfo` (proc_pid_mountinfo(5)), which never hangs.
enum FileSystems {
    /// Most bytes that are read of the list of mounts: some 5,000 of them.
    private static let mostBytes = 1 << 20

    /// - Parameter path: an absolute path without symbolic links.
    static func type(of path: String) -> String? { type(of: path, in: SmallFile.bytes("/proc/self/mountinfo", atMost: mostBytes) ?? []) }

    static func type(of path: String, in table: [UInt8]) -> String? {
        let (way, root) = (Array(path.utf8), [UInt8(ascii: "/")])
        var best: (length: Int, type: String)?
        for line in table.split(separator: UInt8(ascii: "\n")) {
            let fields = line.split(separator: UInt8(ascii: " "))
            // Any number of optional fields comes before the hyphen, and the type after it.
            guard fields.count > 6, let hyphen = fields.dropFirst(6).firstIndex(of: [UInt8(ascii: "-")]),
                let type = fields[hyphen...].dropFirst().first
            else { continue }
            let place = Array(unescapedMountField(fields[4]))
            guard place == root || way == place || way.starts(with: [place, root].joined()) else { continue }
            // Of two at one place, the later one hides the earlier one.
            if place.count >= best?.length ?? 0 { best = (place.count, String(decoding: type, as: UTF8.self)) }
        }
        return best?.type
    }
}
