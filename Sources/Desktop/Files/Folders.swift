internal import DownloadModel
public import EventLoop
internal import Glibc

/// Where the user's files and our state belong.
public enum Folders {
    /// The user's download folder: `XDG_DOWNLOAD_DIR` of `user-dirs.dirs`, else `$HOME/Downloads`. Never hidden. The folder may not exist
    /// yet.
    ///
    /// Reads one small file.
    public static func downloads(environment: [String: String] = processEnvironment()) -> String {
        let home = home(environment)
        let text = SmallFile.text("\(configuration(environment))/user-dirs.dirs", atMost: 64 * 1024) ?? ""
        return downloadFolder(inUserDirectories: text, home: home) ?? "\(home)/Downloads"
    }

    /// `$XDG_STATE_HOME`, else `$HOME/.local/state` (XDG Base Directory Specification 0.8).
    public static func state(environment: [String: String] = processEnvironment()) -> String {
        absolute(environment["XDG_STATE_HOME"]) ?? "\(home(environment))/.local/state"
    }

    /// `$XDG_DATA_HOME`, else `$HOME/.local/share`.
    public static func data(environment: [String: String] = processEnvironment()) -> String {
        absolute(environment["XDG_DATA_HOME"]) ?? "\(home(environment))/.local/share"
    }

    /// `$HOME`, else the home directory in the user database, else `/`; without a trailing slash.
    public static func home(_ environment: [String: String] = processEnvironment()) -> String {
        absolute(environment["HOME"]) ?? getpwuid(getuid()).flatMap { absolute(String(cString: $0.pointee.pw_dir)) } ?? "/"
    }

    /// The download folder in the text of a `user-dirs.dirs` (xdg-user-dirs): `XDG_DOWNLOAD_DIR="$HOME/yyy"` or `="/yyy"`, in shell
    /// quoting.
    ///
    /// The last such line counts. nil if its value has neither form, or is a hidden folder, the root, or the home itself (which means
    /// "none").
    static func downloadFolder(inUserDirectories text: String, home: String) -> String? {
        var found: String?
        for line in text.split(separator: "\n") {
            guard let value = quotedValue(of: "XDG_DOWNLOAD_DIR", in: line) else { continue }
            found = folder(value, home: home)
        }
        return found
    }

    private static func folder(_ value: String, home: String) -> String? {
        let absolute = value.utf8.starts(with: "$HOME/".utf8) ? home + value.dropFirst("$HOME".count) : value
        guard absolute.isAbsolutePath, !absolute.utf8.contains(0) else { return nil }
        let components = absolute.pathComponents
        let homeComponents = home.pathComponents
        guard components != homeComponents, !components.isEmpty else { return nil }
        // No component below the home may be hidden; the path of the home itself may contain hidden ones.
        let own = components.starts(with: homeComponents) ? components.dropFirst(homeComponents.count) : components[...]
        guard !own.contains(where: { $0.utf8.first == UInt8(ascii: ".") }) else { return nil }
        return "/" + components.joined(separator: "/")
    }

    /// The text between the quotes of `key="…"`, with backslashes removed; nil for any other line.
    private static func quotedValue(of key: String, in line: Substring) -> String? {
        var rest = line.drop { $0 == " " || $0 == "\t" }
        guard rest.hasPrefix(key) else { return nil }
        rest = rest.dropFirst(key.count).drop { $0 == " " || $0 == "\t" }
        guard rest.first == "=" else { return nil }
        rest = rest.dropFirst().drop { $0 == " " || $0 == "\t" }
        guard rest.first == "\"" else { return nil }
        var value = ""
        var isEscaped = false
        for character in rest.dropFirst() {
            if isEscaped {
                value.append(character)
                isEscaped = false
            } else if character == "\\" {
                isEscaped = true
            } else if character == "\"" {
                return value
            } else {
                value.append(character)
            }
        }
        return nil
    }

    /// `$XDG_CONFIG_HOME`, else `$HOME/.config`.
    public static func configuration(_ environment: [String: String]) -> String {
        absolute(environment["XDG_CONFIG_HOME"]) ?? "\(home(environment))/.config"
    }

    private static func absolute(_ path: String?) -> String? {
        guard var path, path.hasPrefix("/") else { return nil }
        while path.count > 1, path.hasSuffix("/") { path.removeLast() }
        return path
    }
}
