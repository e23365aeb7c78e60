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
    /// - Parameter id: a Flatpak's application id, or `snap.NAME`. Without an entry it stands for itself.
    init(_ id: String, environment: [String: String] = Folders.environment()) {
        if id.hasPrefix("snap.") {
            let snap = String(id.dropFirst(5))
            let folder = "/var/lib/snapd/desktop/applications"
            // NAME_APP.desktop; of several the app that is named as its snap.
            let usual = "\(snap)_\(snap)"
            entry = fileIsThere("\(folder)/\(usual).desktop") ? usual : Self.first(in: folder, of: snap) ?? usual
            name = Self.name(in: "\(folder)/\(entry).desktop") ?? snap
        } else {
            entry = id
            let own = environment["XDG_DATA_HOME"].flatMap { $0.hasPrefix("/") ? $0 : nil } ?? "\(Folders.home(environment))/.local/share"
            let folders = ["\(own)/flatpak/exports/share/applications", "/var/lib/flatpak/exports/share/applications"]
            name = id.contains("/") ? id : folders.lazy.compactMap { Self.name(in: "\($0)/\(id).desktop") }.first ?? id
        }
    }

    private static func first(in folder: String, of snap: String) -> String? {
        guard let handle = opendir(folder) else { return nil }
        defer { closedir(handle) }
        var names: [String] = []
        var seen = 0
        while seen < mostFiles, let entry = readdir(handle) {
            seen += 1
            let name = withUnsafePointer(to: &entry.pointee.d_name) {
                $0.withMemoryRebound(to: CChar.self, capacity: 256) { String(cString: $0) }
            }
            if name.hasPrefix(snap + "_"), name.hasSuffix(".desktop") { names.append(String(name.dropLast(8))) }
        }
        return names.min()
    }

    /// The value of `Name` in the group `Desktop Entry` of a file; nil where there is none, or no such plain file.
    private static func name(in path: String) -> String? {
        let descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)
        guard descriptor >= 0 else { return nil }
        defer { close(descriptor) }
        var status = stat()
        guard fstat(descriptor, &status) == 0, status.st_mode & S_IFMT == S_IFREG else { return nil }
        var bytes = [UInt8](repeating: 0, count: mostBytes)
        let count = read(descriptor, &bytes, bytes.count)
        guard count > 0 else { return nil }
        return name(of: String(decoding: bytes[..<count], as: UTF8.self))
    }

    static func name(of text: String) -> String? {
        var isInGroup = false
        for line in text.split(separator: "\n") {
            if line.hasPrefix("[") { isInGroup = line.hasPrefix("[Desktop Entry]") }
            guard isInGroup, let equals = line.firstIndex(of: "=") else { continue }
            let key = line[..<equals]
            guard key.drop(while: { $0 == " " }).prefix(while: { $0 != " " }) == "Name" else { continue }
            let value = line[line.index(after: equals)...].drop { $0 == " " || $0 == "\t" }
            return value.isEmpty ? nil : String(value)
        }
        return nil
    }
}

private func fileIsThere(_ path: String) -> Bool { access(path, F_OK) == 0 }
