internal import Glibc

/// Whether a click may open a finished file, or only show where it is.
enum FinishedFile {
    /// What a click on it does.
    enum Click: Equatable {
        case opens
        /// It would run, or start something else; or it is nothing that can be read.
        case shows
        /// There is nothing under its name.
        case isGone
    }

    /// Kinds that a desktop would run, or that start something else, by the ending of their names. Packages that an installer shows before
    /// anything is done (deb, rpm, flatpakref, snap) are not among them.
    private static let startedByName: Set<String> = [
        // Linux
        "desktop", "directory", "kdelnk", "mount", "appimage", "run", "bin", "out", "elf", "so", "ko", "o", "x86", "x86_64", "i386", "i686",
        "amd64", "arm64", "aarch64", "service", "socket", "timer", "apk",
        // Scripts
        "sh", "bash", "zsh", "csh", "tcsh", "ksh", "fish", "command", "tool", "py", "pyw", "pyc", "pyo", "pyz", "pyzw", "pl", "rb", "tcl",
        "tk", "lua", "awk", "js", "mjs", "cjs", "jse", "php", "phar", "r", "gjs", "nu", "elvish",
        // Windows, by Wine
        "exe", "com", "scr", "pif", "cpl", "bat", "cmd", "msi", "msp", "mst", "msu", "msix", "msixbundle", "appx", "appxbundle", "dll",
        "ocx",
        "vbs", "vbe", "vb", "wsf", "wsh", "wsc", "ws", "sct", "shb", "shs", "hta", "ps1", "psm1", "psd1", "ps1xml", "lnk", "url", "reg",
        "inf", "scf", "chm", "hlp", "gadget", "application", "appref-ms",
        // Java, macOS, and elsewhere
        "jar", "jnlp", "class", "war", "ear", "nbm", "dex", "wasm", "webloc", "website", "workflow", "scpt", "applescript", "app", "dylib",
        "love", "nw", "air", "swf",
        // Disk images, which a desktop mounts, and virtual machines, which it starts
        "iso", "img", "udf", "cdr", "toast", "nrg", "mdf", "mds", "cue", "ccd", "cdi", "dmg", "vhd", "vhdx", "vmdk", "vdi", "qcow", "qcow2",
        "ova",
        "ovf", "vbox", "vbox-extpack", "squashfs", "sqsh", "sfs", "wim", "esd", "efi", "luks", "ext2", "ext3", "ext4",
    ]

    /// What an image is packed by, and is mounted all the same.
    private static let packers: Set<String> = ["xz", "gz", "bz2", "zst", "lz4", "lzma"]
    private static let images: [[UInt8]] = [
        Array("hsqs".utf8), Array("QFI\u{FB}".unicodeScalars.map { UInt8($0.value) }), Array("KDMV".utf8), Array("vhdxfile".utf8),
        Array("conectix".utf8), [0x4C, 0x55, 0x4B, 0x53, 0xBA, 0xBE], Array("MSWIM".utf8),
    ]
    /// Where an ISO 9660 or UDF image says what it is, and how (ECMA-119 §8.1, ECMA-167 2/9.1).
    private static let volumeOffset: off_t = 0x8001
    private static let volumes: [[UInt8]] = [Array("CD001".utf8), Array("BEA01".utf8), Array("NSR0".utf8)]

    /// Old files of Microsoft's Office, which begin as an installer (`msi`) does.
    private static let compoundDocuments: Set<String> = [
        "doc", "dot", "xls", "xlt", "xlm", "ppt", "pot", "pps", "vsd", "vst", "pub", "mpp", "msg", "wps", "hwp", "jtd", "jtt", "db",
    ]

    private static let elf: [UInt8] = [0x7F, 0x45, 0x4C, 0x46]  // an AppImage, too
    private static let compoundFile: [UInt8] = [0xD0, 0xCF, 0x11, 0xE0, 0xA1, 0xB1, 0x1A, 0xE1]
    private static let programs: [[UInt8]] = [
        elf, Array("#!".utf8), Array("MZ".utf8), Array("ZM".utf8),
        [0xCA, 0xFE, 0xBA, 0xBE], [0xFE, 0xED, 0xFA, 0xCE], [0xFE, 0xED, 0xFA, 0xCF], [0xCE, 0xFA, 0xED, 0xFE], [0xCF, 0xFA, 0xED, 0xFE],
        [0x00, 0x61, 0x73, 0x6D], Array("dex\n".utf8), [0x1B, 0x4C, 0x75, 0x61],
        [0x4C, 0x00, 0x00, 0x00, 0x01, 0x14, 0x02, 0x00],  // a Windows shortcut
    ]
    /// How the first line that says something begins, of what starts something else.
    private static let groups = ["[Desktop Entry]", "[KDE Desktop Entry]", "[InternetShortcut]", "[Desktop Action"]
    /// Most bytes that are read of it.
    private static let headSize = 4096

    /// What a click on the file at `path` does. Programs and scripts are told by name or first bytes, for either may lie.
    ///
    /// A mode alone makes no program, for on FAT everything is executable; it does where the name says nothing of what it is. A link that
    /// stands in the file's place is nothing that we have finished. Reads a few bytes: not on the bus loop.
    ///
    /// - Parameter isOurs: whether an open file is the one that was downloaded; another one of its name is as good as gone.
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
        guard fstat(descriptor, &status) == 0, status.st_mode & S_IFMT == S_IFREG else { return .shows }
        guard isOurs(descriptor) else { return .isGone }
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

    /// In small letters; blanks and dots behind it are none of it for who opens it. nil: the name has none.
    ///
    /// By bytes, as types are found by: a dot with a combining mark behind it is another character to Swift.
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
        // Comments and blank lines may come before.
        for line in head.split(separator: UInt8(ascii: "\n")) {
            let text = line.drop { $0 == UInt8(ascii: " ") || $0 == UInt8(ascii: "\t") || $0 == UInt8(ascii: "\r") }
            if text.isEmpty || text.first == UInt8(ascii: "#") { continue }
            return groups.contains { text.starts(with: $0.utf8) }
        }
        return false
    }
}
