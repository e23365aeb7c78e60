internal import EventLoop
internal import Glibc

/// The user-visible name of a sandboxed app, from the desktop entry that its packaging exported. The app itself cannot write that entry.
struct SandboxedApp: Equatable {
    /// The desktop entry's name, without `.desktop`. Servers store the user's switch for the app under this hint.
    let entry: String
    let name: String

    /// Most bytes read from an entry, and most files examined in a folder.
    private static let mostBytes = 64 << 10
    private static let mostFiles = 10_000

    /// Blocks: call on the notify thread.
    ///
    /// - Parameters:
    ///   - id: a Flatpak's application id, or `snap.NAME`. Without an entry, the id or the snap's name is the app's name.
    ///   - locale: the user's language. A name in that language is preferred.
    init(_ id: String, locale: String = "", environment: [String: String] = processEnvironment()) {
        if id.hasPrefix("snap.") {
            let snap = String(id.dropFirst(5))
            let folder = "/var/lib/snapd/desktop/applications"
            // The files are PREFIX_FILE.desktop. Prefer the file that has the snap's own name.
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

    /// The prefix of a snap's desktop files before "_": the snap's name. For an instance `NAME_KEY` the prefix is `NAME+KEY`, because "_"
    /// already separates prefix and file (snapd, `DesktopPrefix` in snap/info.go).
    static func desktopPrefix(ofSnap instance: String) -> String { instance.split(separator: "_").joined(separator: "+") }

    private static func first(in folder: String, _ prefix: String) -> String? {
        let names = (folderNames(folder, atMost: mostFiles) ?? []).filter { $0.hasPrefix(prefix + "_") && $0.hasSuffix(".desktop") }
        return names.map { String($0.dropLast(8)) }.min()
    }

    /// The value of `Name` in the group `Desktop Entry`; nil if there is none, or `path` is not a readable regular file.
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

    /// `Name[LOCALE]`, else `Name[LANGUAGE]`, else `Name` (Desktop Entry Specification, "Localized values for keys").
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
