internal import Glibc

/// Whether a click may open a finished file, or only show where it is.
enum FinishedFile {
    /// Kinds that a desktop would run, or that start something else, by the ending of their names.
    private static let startedByName: Set<String> = [
        "desktop", "appimage", "run", "bin", "out", "elf", "so", "sh", "bash", "zsh", "csh", "ksh", "fish", "command", "py", "pyw", "pyc",
        "pyz",
        "pl", "rb", "tcl", "lua", "awk", "js", "mjs", "jse", "vbs", "vbe", "wsf", "hta", "ps1", "bat", "cmd", "com", "exe", "msi", "scr",
        "pif",
        "cpl", "lnk", "url", "reg", "jar", "jnlp", "class", "service", "flatpakref", "flatpakrepo", "snap", "apk",
    ]

    /// False for programs and scripts, by name or first bytes, and for what is not a plain file that can be read.
    ///
    /// Not by mode: what we finish is never executable, and on FAT everything is. Reads a few bytes: not on the bus loop.
    static func opensByClick(_ path: String) -> Bool {
        let name = path.split(separator: "/").last ?? ""
        if let dot = name.lastIndex(of: "."), startedByName.contains(name[name.index(after: dot)...].lowercased()) { return false }
        let descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)
        guard descriptor >= 0 else { return false }
        defer { close(descriptor) }
        var status = stat()
        guard fstat(descriptor, &status) == 0, status.st_mode & S_IFMT == S_IFREG else { return false }
        var head = [UInt8](repeating: 0, count: 16)
        let count = read(descriptor, &head, head.count)
        guard count >= 0 else { return false }
        return !startsLikeProgram(head[..<count])
    }

    /// ELF, `#!`, Windows' `MZ`, and a desktop entry under another name.
    private static func startsLikeProgram(_ head: ArraySlice<UInt8>) -> Bool {
        [[0x7F, 0x45, 0x4C, 0x46], Array("#!".utf8), Array("MZ".utf8), Array("[Desktop Entry]".utf8)].contains { head.starts(with: $0) }
    }
}
