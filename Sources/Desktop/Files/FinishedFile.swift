internal import Glibc

/// Whether a click may open a finished file, or may only show the file in its folder.
enum FinishedFile {
    /// The effect of a click on the file.
    enum Click: Equatable {
        case opens
        /// It is a folder, unpacked by us.
        case opensFolder
        /// The file would run or start another program, or is unreadable or not a regular file.
        case shows
        /// The file is gone, or another file has its name.
        case isGone
    }

    /// File name extensions that a desktop would run, or that start another program. Packages that an installer shows first (deb, rpm,
    /// flatpakref, snap) are absent.
    private static let startedByName: Set<String> = [
        // Linux
        "desktop", "directory", "kdelnk", "mount", "appimage", "run", "bin", "out", "elf", "so", "ko", "o", "x86", "x86_64", "i386", "i686",
        "amd64", "arm64", "aarch64", "service", "socket", "timer", "apk",
        // Scripts
        "sh", "bash", "zsh", "csh", "tcsh", "ksh", "fish", "command", "tool", "py", "pyw", "pyc", "pyo", "pyz", "pyzw", "pl", "rb", "tcl",
        "tk", "lua", "awk", "js", "mjs", "cjs", "jse", "php", "phar", "r", "gjs", "nu", "elvish",
        // Windows programs, run by Wine
        "exe", "com", "scr", "pif", "cpl", "bat", "cmd", "msi", "msp", "mst", "msu", "msix", "msixbundle", "appx", "appxbundle", "dll",
        "ocx",
        "vbs", "vbe", "vb", "wsf", "wsh", "wsc", "ws", "sct", "shb", "shs", "hta", "ps1", "psm1", "psd1", "ps1xml", "lnk", "url", "reg",
        "inf", "scf", "chm", "hlp", "gadget", "application", "appref-ms",
        // Java, macOS, and others
        "jar", "jnlp", "class", "war", "ear", "nbm", "dex", "wasm", "webloc", "website", "workflow", "scpt", "applescript", "app", "dylib",
        "love", "nw", "air", "swf",
        // Disk images, which a desktop mounts, and virtual machines, which it starts
        "iso", "img", "udf", "cdr", "toast", "nrg", "mdf", "mds", "cue", "ccd", "cdi", "dmg", "vhd", "vhdx", "vmdk", "vdi", "qcow", "qcow2",
        "ova",
        "ovf", "vbox", "vbox-extpack", "squashfs", "sqsh", "sfs", "wim", "esd", "efi", "luks", "ext2", "ext3", "ext4",
    ]

    /// Compression formats of disk images: a desktop mounts a compressed image too.
    private static let packers: Set<String> = ["xz", "gz", "bz2", "zst", "lz4", "lzma"]
    private static let images: [[UInt8]] = [
        Array("hsqs".utf8), Array("QFI\u{FB}".unicodeScalars.map { UInt8($0.value) }), Array("KDMV".utf8), Array("vhdxfile".utf8),
        Array("conectix".utf8), [0x4C, 0x55, 0x4B, 0x53, 0xBA, 0xBE], Array("MSWIM".utf8),
    ]
    /// The offset at which an ISO 9660 or UDF image names its format (ECMA-119 §8.1, ECMA-167 2/9.1).
    private static let volumeOffset: off_t = 0x8001
    private static let volumes: [[UInt8]] = [Array("CD001".utf8), Array("BEA01".utf8), Array("NSR0".utf8)]

    /// Documents that begin with the same bytes as an installer (`msi`), such as old Microsoft Office files.
    private static let compoundDocuments: Set<String> = [
        "doc", "dot", "xls", "xlt", "xlm", "ppt", "pot", "pps", "vsd", "vst", "pub", "mpp", "msg", "wps", "hwp", "jtd", "jtt", "db",
    ]

    private static let elf: [UInt8] = [0x7F, 0x45, 0x4C, 0x46]  // also an AppImage
    private static let compoundFile: [UInt8] = [0xD0, 0xCF, 0x11, 0xE0, 0xA1, 0xB1, 0x1A, 0xE1]
    private static let programs: [[UInt8]] = [
        elf, Array("#!".utf8), Array("MZ".utf8), Array("ZM".utf8),
        [0xCA, 0xFE, 0xBA, 0xBE], [0xFE, 0xED, 0xFA, 0xCE], [0xFE, 0xED, 0xFA, 0xCF], [0xCE, 0xFA, 0xED, 0xFE], [0xCF, 0xFA, 0xED, 0xFE],
        [0x00, 0x61, 0x73, 0x6D], Array("dex\n".utf8), [0x1B, 0x4C, 0x75, 0x61],
        [0x4C, 0x00, 0x00, 0x00, 0x01, 0x14, 0x02, 0x00],  // a Windows shortcut
    ]
    /// The first significant line of a text file that starts another program.
    private static let groups = ["[Desktop Entry]", "[KDE Desktop Entry]", "[InternetShortcut]", "[Desktop Action"]
    /// How many bytes are read from the start of the file.
    private static let headSize = 4096

    /// The effect of a click on the file at `path`. The name or the first bytes suffice for `shows`, because either may lie.
    ///
    /// The executable bit counts only if the name has no extension, because every file on FAT is executable.
    /// A symbolic link is only shown, because Todoku never finishes a download as a link. Reads a few bytes: do not call on the bus loop.
    ///
    /// - Parameter isOurs: whether an open file is the downloaded one. Another file of that name counts as gone.
    static func click(_ path: String, isOurs: (Int32) -> Bool = { _ in true }) -> Click {
        var kind = ending(of: path)
        if let packer = kind, packers.contains(packer), let inner = ending(of: String(path.dropLast(packer.count + 1))),
            startedByName.contains(inner)
        {
            kind = inner
        }
        let descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW)
        guard descriptor >= 0 else { return errno == ENOENT || errno == ENOTDIR ? .isGone : .shows }
        defer { close(descriptor) }
        var status = stat()
        guard fstat(descriptor, &status) == 0 else { return .shows }
        let isFolder = status.st_mode & S_IFMT == S_IFDIR
        guard isFolder || status.st_mode & S_IFMT == S_IFREG else { return .shows }
        guard isOurs(descriptor) else { return isFolder ? .shows : .isGone }
        if isFolder { return .opensFolder }
        if let kind { if startedByName.contains(kind) { return .shows } } else if status.st_mode & 0o111 != 0 { return .shows }
        var head = [UInt8](repeating: 0, count: headSize)
        let count = read(descriptor, &head, head.count)
        guard count >= 0, !isVolume(descriptor) else { return .shows }
        return startsProgram(head[..<count], kind) ? .shows : .opens
    }

    private static func isVolume(_ descriptor: Int32) -> Bool {
        var mark = [UInt8](repeating: 0, count: 5)
        guard pread(descriptor, &mark, mark.count, volumeOffset) == mark.count else { return false }
        return volumes.contains { mark.starts(with: $0) }
    }

    /// The extension in lower case, without trailing blanks and dots, because programs that open the file ignore those. nil: none.
    ///
    /// Compares bytes, as file type detection does, because Swift joins a dot and a following combining mark into one character.
    private static func ending(of path: String) -> String? {
        var name = path.utf8.split(separator: UInt8(ascii: "/")).last ?? ""[...].utf8
        while let last = name.last, last <= 0x20 || last == UInt8(ascii: ".") { name.removeLast() }
        guard let dot = name.lastIndex(of: UInt8(ascii: ".")), dot != name.startIndex else { return nil }
        return String(decoding: name[name.index(after: dot)...], as: UTF8.self).lowercased()
    }

    private static func startsProgram(_ head: ArraySlice<UInt8>, _ kind: String?) -> Bool {
        let head = head.starts(with: [0xEF, 0xBB, 0xBF]) ? head.dropFirst(3) : head  // a byte order mark
        if (programs + images).contains(where: { head.starts(with: $0) }) { return true }
        if head.starts(with: compoundFile) { return kind.map { !compoundDocuments.contains($0) } ?? true }
        // Skip leading comments and blank lines.
        for line in head.split(separator: UInt8(ascii: "\n")) {
            let text = line.drop { $0 == UInt8(ascii: " ") || $0 == UInt8(ascii: "\t") || $0 == UInt8(ascii: "\r") }
            if text.isEmpty || text.first == UInt8(ascii: "#") { continue }
            return groups.contains { text.starts(with: $0.utf8) }
        }
        return false
    }
}
