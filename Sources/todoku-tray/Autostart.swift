internal import Desktop
internal import DownloadModel
internal import Glibc

/// Whether the tray starts at login (Desktop Application Autostart Specification). The user's own entry overrides the installed one.
struct Autostart: Sendable {
    static let fileName = "todoku-tray.desktop"
    /// Most bytes of an entry; a longer file is not ours.
    private static let longestEntry = 64 << 10

    /// The user's own entry.
    let path: String
    /// Paths of installed entries, the most important first.
    let systemPaths: [String]
    /// The program for the user's own entry, if none is installed.
    let program: String

    init(environment: [String: String], home: String, program: String) {
        func absolute(_ path: String?) -> String? { path.flatMap { $0.hasPrefix("/") ? $0 : nil } }
        path = "\(absolute(environment["XDG_CONFIG_HOME"]) ?? "\(home)/.config")/autostart/\(Self.fileName)"
        let folders = environment["XDG_CONFIG_DIRS"].map { $0.split(separator: ":").map(String.init) } ?? []
        systemPaths = (folders.isEmpty ? ["/etc/xdg"] : folders).filter { $0.hasPrefix("/") }.map { "\($0)/autostart/\(Self.fileName)" }
        self.program = program
    }

    /// Whether the tray starts at login. Reads one or more small files.
    var isOn: Bool {
        if let own = Self.text(path) { return Self.starts(own) }
        return systemPaths.lazy.compactMap(Self.text).first.map(Self.starts) ?? false
    }

    /// Writes the user's own entry atomically, or deletes it if it is not needed.
    ///
    /// - Returns: whether that succeeded.
    func set(_ isOn: Bool) -> Bool {
        let installed = systemPaths.lazy.compactMap(Self.text).first
        guard let text = Self.entry(own: Self.text(path), installed: installed, isOn: isOn, program: program) else {
            return unlink(path) == 0 || errno == ENOENT
        }
        return write(text)
    }

    // MARK: Entries

    /// The new text of the user's own entry; nil: none is needed.
    static func entry(own: String?, installed: String?, isOn: Bool, program: String) -> String? {
        if isOn, installed.map(starts) == true, own.map(isOverrideOnly) ?? true { return nil }
        guard let base = own.flatMap({ isOverrideOnly($0) ? nil : $0 }) ?? installed else {
            return isOn ? "[Desktop Entry]\nType=Application\nName=Todoku tray\nExec=\(quoted(program))\n" : nil
        }
        if !isOn, own.map(isOverrideOnly) ?? true { return "[Desktop Entry]\nType=Application\nName=Todoku tray\nHidden=true\n" }
        return with(isOn, base)
    }

    /// Whether an entry only switches the installed one off.
    private static func isOverrideOnly(_ text: String) -> Bool { value(of: "Exec", in: text) == nil }

    /// The same entry, switched on or off.
    private static func with(_ isOn: Bool, _ text: String) -> String {
        var lines = text.split(separator: "\n", omittingEmptySubsequences: false).map(String.init)
        let (group, end) = mainGroup(lines)
        let kept = lines[group..<end].filter { line in
            let key = line.prefix { $0 != "=" }.filter { $0 != " " }
            return key != "Hidden" && key != "X-GNOME-Autostart-enabled"
        }
        lines.replaceSubrange(group..<end, with: (isOn ? [] : ["Hidden=true"]) + kept)
        return lines.joined(separator: "\n")
    }

    static func starts(_ text: String) -> Bool {
        value(of: "Hidden", in: text) != "true" && value(of: "X-GNOME-Autostart-enabled", in: text) != "false"
            && value(of: "Exec", in: text) != nil
    }

    private static func value(of key: String, in text: String) -> String? {
        let lines = text.split(separator: "\n", omittingEmptySubsequences: false).map(String.init)
        let (group, end) = mainGroup(lines)
        for line in lines[group..<end] {
            let parts = line.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
            if parts.count == 2, parts[0].filter({ $0 != " " }) == key { return String(parts[1].drop { $0 == " " }) }
        }
        return nil
    }

    /// The range of lines of `[Desktop Entry]`, without its heading.
    private static func mainGroup(_ lines: [String]) -> (Int, Int) {
        guard let head = lines.firstIndex(where: { $0.hasPrefix("[Desktop Entry]") }) else { return (lines.count, lines.count) }
        return (head + 1, lines[(head + 1)...].firstIndex { $0.hasPrefix("[") } ?? lines.count)
    }

    /// Quotes an argument of `Exec` (Desktop Entry Specification, "The Exec key").
    private static func quoted(_ program: String) -> String {
        let special = "\"`$\\"
        return "\"" + program.map { special.contains($0) ? "\\\($0)" : $0 == "%" ? "%%" : "\($0)" }.joined() + "\""
    }

    // MARK: Files

    private static func text(_ path: String) -> String? { SmallFile.text(path, atMost: longestEntry) }

    private func write(_ text: String) -> Bool {
        var folder = ""
        for component in path.pathComponents.dropLast() {
            folder += "/\(component)"
            if mkdir(folder, 0o700) != 0, errno != EEXIST { return false }
        }
        let new = "\(folder)/.\(Self.fileName).\(getpid())"
        let descriptor = open(new, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0o644)
        guard descriptor >= 0 else { return false }
        let bytes = Array(text.utf8)
        let isWritten = Glibc.write(descriptor, bytes, bytes.count) == bytes.count && fsync(descriptor) == 0
        guard close(descriptor) == 0, isWritten, rename(new, path) == 0 else {
            unlink(new)
            return false
        }
        return true
    }
}
