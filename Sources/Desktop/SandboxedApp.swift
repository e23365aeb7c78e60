internal import Glibc

/// How an app in a sandbox is named to the user: by the desktop entry that its packaging exported, which the app in it cannot write.
struct SandboxedApp: Equatable {
    /// Of its desktop entry, without `.desktop`: the hint by which servers keep the user's switch for the app.
    let entry: String
    let name: String

    /// Most bytes of an entry that are read, and most files of a folder that are looked through.
    private static let mostBytes = 64 << 10
    private static let mostFiles = 10_000

    /// Blocks: for the notify thread.
    ///
    /// - Parameters:
    ///   - id: a Flatpak's application id, or `snap.NAME`. Without an entry it stands for itself.
    ///   - locale: in which the user is spoken to; the entry's name in that language is taken, where there is one.
    init(_ id: String, locale: String = "", environment: [String: String] = Folders.environment()) {
        if id.hasPrefix("snap.") {
            let snap = String(id.dropFirst(5))
            let folder = "/var/lib/snapd/desktop/applications"
            // PREFIX_FILE.desktop; of several the one that is named as its snap.
            let prefix = Self.desktopPrefix(ofSnap: snap)
            let usual = "\(prefix)_\(prefix.prefix { $0 != "+" })"
            entry = fileIsThere("\(folder)/\(usual).desktop") ? usual : Self.first(in: folder, prefix) ?? usual
            name = Self.name(in: "\(folder)/\(entry).desktop", locale) ?? snap
        } else {
            entry = id
            let own = environment["XDG_DATA_HOME"].flatMap { $0.hasPrefix("/") ? $0 : nil } ?? "\(Folders.home(environment))/.local/share"
            let folders = ["\(own)/flatpak/exports/share/applications", "/var/lib/flatpak/exports/share/applications"]
            name = id.contains("/") ? id : folders.lazy.compactMap { Self.name(in: "\($0)/\(id).desktop", locale) }.first ?? id
        }
    }

    /// What the desktop files of a snap begin with, before "_": its name; of an instance `NAME_KEY`, `NAME+KEY` (snapd, `DesktopPrefix` in
    /// snap/info.go: "_" divides prefix and file already).
    static func desktopPrefix(ofSnap instance: String) -> String { instance.split(separator: "_").joined(separator: "+") }

    private static func first(in folder: String, _ prefix: String) -> String? {
        guard let handle = opendir(folder) else { return nil }
        defer { closedir(handle) }
        var names: [String] = []
        var seen = 0
        while seen < mostFiles, let entry = readdir(handle) {
            seen += 1
            let name = withUnsafePointer(to: &entry.pointee.d_name) {
                $0.withMemoryRebound(to: CChar.self, capacity: 256) { String(cString: $0) }
            }
            if name.hasPrefix(prefix + "_"), name.hasSuffix(".desktop") { names.append(String(name.dropLast(8))) }
        }
        return names.min()
    }

    /// The value of `Name` in the group `Desktop Entry` of a file; nil where there is none, or no such plain file.
    private static func name(in path: String, _ locale: String) -> String? {
        let descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)
        guard descriptor >= 0 else { return nil }
        defer { close(descriptor) }
        var status = stat()
        guard fstat(descriptor, &status) == 0, status.st_mode & S_IFMT == S_IFREG else { return nil }
        var bytes = [UInt8](repeating: 0, count: mostBytes)
        let count = read(descriptor, &bytes, bytes.count)
        guard count > 0 else { return nil }
        return name(of: String(decoding: bytes[..<count], as: UTF8.self), locale: locale)
    }

    /// `Name[LOCALE]` where it is there, else `Name[LANGUAGE]`, else `Name` (Desktop Entry Specification, "Localized values for keys").
    ///
    /// - Parameter locale: `LANGUAGE_COUNTRY` or `LANGUAGE`; empty: `Name` alone.
    static func name(of text: String, locale: String = "") -> String? {
        let keys = locale.isEmpty ? ["Name"] : ["Name[\(locale)]", "Name[\(locale.prefix { $0 != "_" })]", "Name"]
        var isInGroup = false
        var best: (rank: Int, value: String)?
        for line in text.split(separator: "\n") {
            if line.hasPrefix("[") { isInGroup = line.hasPrefix("[Desktop Entry]") }
            guard isInGroup, let equals = line.firstIndex(of: "=") else { continue }
            let key = line[..<equals].drop { $0 == " " }.prefix { $0 != " " }
            guard let rank = keys.firstIndex(of: String(key)), rank < best?.rank ?? .max else { continue }
            let value = line[line.index(after: equals)...].drop { $0 == " " || $0 == "\t" }
            if !value.isEmpty { best = (rank, String(value)) }
        }
        return best?.value
    }
}

private func fileIsThere(_ path: String) -> Bool { access(path, F_OK) == 0 }
