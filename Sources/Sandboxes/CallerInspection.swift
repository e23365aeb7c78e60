public import DBus
internal import DownloadModel
internal import DownloaderInterface
internal import EventLoop
internal import Glibc

/// Recognises callers in a sandbox by the connection's process, as xdg-desktop-portal does (`xdp-app-info-flatpak.c`, `-snap.c`).
///
/// - Flatpak: the process has the file `/.flatpak-info` in its root. (The process of a confined app is its `xdg-dbus-proxy`.) Flatpak puts
///   the file there, and no program in the sandbox can remove it. The file also says whether the sandbox shares the network
///   (`shared=network;`): an app without network must not get network through us.
/// - Snap: the AppArmor label of the connection is `snap.NAME.APP (enforce)`. Without AppArmor, the process is in a control group of that
///   name. A snap in classic or developer mode (`complain`, `unconfined`) is not confined, and counts as the user.
///
/// A caller that cannot be judged is refused with `NotAllowed`: its process has ended, belongs to another user, or does not let us see its
/// root (a program that is not dumpable). A root on a FUSE file system is no obstacle, because Flatpak never has one.
///
/// How certain the result is: a label belongs to the connection. A process, however, is known only by a number, which another process may
/// have by the time of the inspection. With `ProcessFD`, the service checks that the process still lives after the inspection, which leaves
/// no doubt. Without `ProcessFD`, it checks that the process is older than the call, and the bus confirms after the call that the
/// connection lives. To deceive this check, a connection must outlive its process, and another process must get the number before the call.
/// No confined Flatpak can do so, because its connection belongs to the proxy, which the app does not control. All reads use one descriptor
/// of `/proc/PID`, and so see one process.
public enum CallerInspection {
    /// Most bytes that are read of `.flatpak-info`, and of each file in `/proc`.
    static let mostBytes = 64 << 10

    /// Blocks, so run it in the pool. `arrival`: when the first call arrived, as time since boot.
    public static func finding(_ credentials: ConnectionCredentials, arrival: Duration) -> CallerFinding {
        do throws(Refusal) {
            return .known(try identity(credentials, arrival: arrival))
        } catch { return .refused(error.dbusError) }
    }

    private static func cannotTell(_ why: String) -> Refusal {
        Refusal(.notAllowed, "Todoku cannot tell whether the caller is in a sandbox: \(why).")
    }

    private static func identity(_ credentials: ConnectionCredentials, arrival: Duration) throws(Refusal) -> CallerIdentity {
        guard credentials.userID == geteuid() else { throw cannotTell("it is not a process of this user") }
        let label = credentials.securityLabel.map { SecurityLabel($0) }
        if case .snap(let name) = label { return .app("snap.\(name)") }
        if label == .unreadable { throw cannotTell("the name of its snap cannot be read") }
        guard let number = credentials.processID, number > 0 else { throw cannotTell("the bus does not know its process") }
        let process = try ProcessFolder(number)
        var identity = try flatpak(process)
        if identity == nil, label != .unconfined { identity = try snap(process) }
        guard try process.isOlder(than: arrival) else { throw cannotTell("its process has ended") }
        if let descriptor = credentials.process?.number, hasEnded(descriptor) { throw cannotTell("its process has ended") }
        return identity ?? .user
    }

    private static func flatpak(_ process: borrowing ProcessFolder) throws(Refusal) -> CallerIdentity? {
        let root = openat(process.descriptor, "root", O_RDONLY | O_DIRECTORY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY)
        guard root >= 0 else {
            let code = errno
            if code == EACCES, MountInfo.hasFuseRoot(try process.read("mountinfo")) { return nil }
            throw cannotTell("the root folder of its process cannot be opened (\(String(cString: strerror(code))))")
        }
        defer { close(root) }
        let info = openat(root, ".flatpak-info", O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | O_NOCTTY)
        guard info >= 0 else {
            if errno == ENOENT { return nil }
            throw cannotTell("its file /.flatpak-info cannot be opened (\(String(cString: strerror(errno))))")
        }
        defer { close(info) }
        var status = stat()
        guard fstat(info, &status) == 0, status.st_mode & S_IFMT == S_IFREG else { throw cannotTell("its /.flatpak-info is not a file") }
        guard let text = readAll(info), let id = FlatpakInfo.id(in: text) else {
            throw cannotTell("its file /.flatpak-info names no application")
        }
        return .app(id, hasNetwork: FlatpakInfo.hasNetwork(in: text))
    }

    private static func snap(_ process: borrowing ProcessFolder) throws(Refusal) -> CallerIdentity? {
        switch ControlGroup.snap(in: try process.read("cgroup", orElse: "")) {
        case .none: return nil
        case .some(let name?): return .app("snap.\(name)")
        case .some(nil): throw cannotTell("the name of its snap cannot be read")
        }
    }

    /// Whether the process of a pidfd has ended: then the pidfd is readable (pidfd_open(2)).
    private static func hasEnded(_ process: Int32) -> Bool {
        var entry = pollfd(fd: process, events: Int16(POLLIN), revents: 0)
        return poll(&entry, 1, 0) != 0
    }

    /// The text of a file; nil if it is longer than `mostBytes`, not UTF-8, or unreadable.
    public static func readAll(_ descriptor: Int32) -> String? {
        readBytes(descriptor).flatMap { String(validating: $0, as: UTF8.self) }
    }

    /// The bytes of a file; nil if it is longer than `mostBytes`, or unreadable.
    private static func readBytes(_ descriptor: Int32) -> ArraySlice<UInt8>? {
        (try? readToEnd(descriptor, atMost: mostBytes))?[...]
    }

    /// `/proc/PID`, held open. It leads to one process only, and to none once that process has been reaped.
    private struct ProcessFolder: ~Copyable {
        let descriptor: Int32
        let path: String

        init(_ number: UInt32) throws(Refusal) {
            path = "/proc/\(number)"
            descriptor = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOCTTY)
            guard descriptor >= 0 else { throw cannotTell("its process has ended") }
        }

        deinit { close(descriptor) }

        /// - Parameter absent: the text to return for a file that this kernel does not have.
        func read(_ name: String, orElse absent: String? = nil) throws(Refusal) -> String {
            let file = openat(descriptor, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NOCTTY)
            guard file >= 0 else {
                if errno == ENOENT, let absent { return absent }
                throw cannotTell("\(path)/\(name) cannot be opened (\(String(cString: strerror(errno))))")
            }
            defer { close(file) }
            guard let bytes = readBytes(file) else { throw cannotTell("\(path)/\(name) cannot be read") }
            // Not always UTF-8: the kernel keeps 15 bytes of a process's name, and may cut a letter in two.
            return String(decoding: bytes, as: UTF8.self)
        }

        /// Whether the process began before `instant`, a time since boot, or in the same tick. The kernel counts ticks of 10 ms.
        func isOlder(than instant: Duration) throws(Refusal) -> Bool {
            let ticks = Int64(clamping: max(1, sysconf(Int32(_SC_CLK_TCK))))
            guard let start = ProcessStat.startTime(in: try read("stat")) else { throw cannotTell("\(path)/stat cannot be read") }
            return start
                <= UInt64(
                    clamping: instant.components.seconds *| ticks +| instant.components.attoseconds / (1_000_000_000_000_000_000 / ticks))
        }
    }
}

/// `.flatpak-info`, a key file (flatpak-metadata(5); Desktop Entry Specification, "Basic format of the file").
public enum FlatpakInfo {
    /// The id of the application. A runtime that runs by itself has its id in the group `Runtime`. nil: the text has neither.
    static func id(in text: String) -> String? {
        let names = values(of: "name", in: text)
        guard let name = names["Runtime"] ?? names["Application"], isId(name) else { return nil }
        return name
    }

    /// Whether the sandbox shares the host's network: `network` in the list `shared` of the group `Context` (flatpak-metadata(5)).
    static func hasNetwork(in text: String) -> Bool { network(in: text) ?? false }

    /// Whether the list `shared` allows the network: true for `network`, false for `!network`; the last of them counts. nil: the list has
    /// neither.
    public static func network(in text: String) -> Bool? {
        let words = values(of: "shared", in: text)["Context"]?.split(separator: ";").map { trimmed($0) } ?? []
        return words.last { $0 == "network" || $0 == "!network" }.map { $0 == "network" }
    }

    /// The last value of `key` in each group; empty for a group without `key`.
    private static func values(of key: String, in text: String) -> [String: String] {
        var group = ""
        var values: [String: String] = [:]
        // Only a line feed ends a line (GLib's key files). The author of an app chooses values, such as those of its variables. They may
        // hold other characters that Swift calls newlines, and must not forge a line.
        for line in text.utf8.split(separator: UInt8(ascii: "\n")) {
            let line = trimmed(Substring(line))
            if line.hasPrefix("["), line.hasSuffix("]") {
                group = String(line.dropFirst().dropLast())
                if values[group] == nil { values[group] = "" }
            } else if let equals = line.firstIndex(of: "="), trimmed(line[..<equals]) == key {
                values[group] = String(trimmed(line[line.index(after: equals)...]))
            }
        }
        return values
    }

    /// Without blanks, tabs, and the carriage return before a line feed.
    private static func trimmed(_ text: Substring) -> Substring { text.trimming { $0 == " " || $0 == "\t" || $0 == "\r" } }

    /// Whether `text` is an id by Flatpak's rule: at most 255 bytes, in at least three elements between dots. An element consists of
    /// letters, digits, "_" and "-", and begins with neither a digit nor "-".
    public static func isId(_ text: String) -> Bool {
        let elements = text.utf8.split(separator: UInt8(ascii: "."), omittingEmptySubsequences: false)
        return text.utf8.count <= 255 && elements.count >= 3
            && elements.allSatisfy { element in
                guard let first = element.first, !first.isDigit, first != UInt8(ascii: "-") else { return false }
                return element.allSatisfy { $0.isLetter || $0.isDigit || $0 == UInt8(ascii: "_") || $0 == UInt8(ascii: "-") }
            }
    }
}

/// A `LinuxSecurityLabel`, as far as it concerns snaps. An AppArmor label is `unconfined` or `PROFILE (MODE)`; `//&` joins stacked
/// profiles.
enum SecurityLabel: Equatable {
    /// Confined as this snap.
    case snap(String)
    /// Confined as a snap, but under a name that snapd would not give.
    case unreadable
    /// An AppArmor label that confines no snap: of another program, or of a snap that may do everything.
    case unconfined
    /// Not an AppArmor label (an SELinux label, for example): it says nothing about snaps.
    case other

    init(_ text: String) {
        if text == "unconfined" {
            self = .unconfined
            return
        }
        guard text.hasSuffix(")"), let open = text.lastIndex(of: "("), open > text.startIndex, text[text.index(before: open)] == " " else {
            self = .other
            return
        }
        let profiles = text[..<text.index(before: open)].split(separator: "&").map { $0.hasSuffix("//") ? $0.dropLast(2) : $0 }
        let snaps = profiles.filter { $0.hasPrefix("snap.") }.map { ControlGroup.snapName($0.dropFirst(5)) }
        // Every other mode (enforce, kill, prompt, mixed) confines.
        guard !snaps.isEmpty, text[open...] != "(complain)" else {
            self = .unconfined
            return
        }
        // A snap with an unreadable name must not count as the user.
        self = snaps.lazy.compactMap { $0 }.first.map(SecurityLabel.snap) ?? .unreadable
    }
}

/// `/proc/PID/cgroup` (cgroups(7)), as far as it concerns snaps. snapd (sandbox/cgroup/scanning.go) puts each into its own unit:
/// `snap.NAME.APP-UUID.scope` (formerly `snap.NAME.APP.UUID.scope`) or `snap.NAME.APP.service`. With version 1, also into
/// `freezer:/snap.NAME`.
enum ControlGroup {
    /// nil: no snap. Otherwise the name of the snap, or nil if the name is invalid.
    static func snap(in text: String) -> String?? {
        for line in text.split(separator: "\n") {
            let fields = line.split(separator: ":", maxSplits: 2, omittingEmptySubsequences: false)
            guard fields.count == 3, ["", "freezer", "name=systemd"].contains(fields[1]) else { continue }
            if let unit = fields[2].split(separator: "/").last(where: { $0.hasPrefix("snap.") }) {
                return .some(snapName(unit.dropFirst(5)))
            }
        }
        return .none
    }

    /// The instance name of a snap, `NAME` or `NAME_KEY`, before the first dot; nil if invalid.
    ///
    /// These are snapd's rules (snap/naming/validate.go, `ValidateSnap` and `ValidateInstance`). A name has 2 to 40 characters of a–z,
    /// 0–9 and "-", among them at least one letter. It has no "-" at an end, and no two together. A key has 1 to 10 characters of a–z
    /// and 0–9. A single letter is accepted here too: no snap has such a name, so it admits nobody. A component (`NAME+COMPONENT`, in
    /// unit names `NAME\x2bCOMPONENT`) belongs to its snap.
    static func snapName(_ text: Substring) -> String? {
        let whole = text.prefix { $0 != "." }
        let instance = whole.contains("+") ? whole.prefix { $0 != "+" } : whole.prefix { $0 != "\\" }
        guard instance.endIndex == whole.endIndex || ["+", "\\x2b"].contains(where: { whole[instance.endIndex...].hasPrefix($0) }) else {
            return nil
        }
        let parts = instance.utf8.split(separator: UInt8(ascii: "_"), omittingEmptySubsequences: false)
        guard let name = parts.first, parts.count <= 2, (1...40).contains(name.count), name.contains(where: isLower),
            name.allSatisfy({ isLower($0) || $0.isDigit || $0 == UInt8(ascii: "-") }), name.first != UInt8(ascii: "-"),
            name.last != UInt8(ascii: "-"), !String(Substring(name)).contains("--")
        else { return nil }
        if parts.count == 2 {
            guard (1...10).contains(parts[1].count), parts[1].allSatisfy({ isLower($0) || $0.isDigit }) else { return nil }
        }
        return String(instance)
    }
}

/// `/proc/PID/mountinfo` (proc_pid_mountinfo(5)).
enum MountInfo {
    /// Whether a FUSE file system is mounted at `/`. Of several mounts there, the last is on top.
    static func hasFuseRoot(_ text: String) -> Bool {
        let mounts = text.split(separator: "\n").map { $0.split(separator: " ") }
        guard let root = mounts.last(where: { $0.count > 4 && $0[4] == "/" }) else { return false }
        // "… - TYPE SOURCE OPTIONS": the number of fields before the dash varies.
        return root.drop { $0 != "-" }.dropFirst().first?.hasPrefix("fuse") ?? false
    }
}

/// `/proc/PID/stat` (proc_pid_stat(5)).
enum ProcessStat {
    /// When the process began, in clock ticks since boot: field 22. Field 2, the name in parentheses, may contain anything.
    static func startTime(in text: String) -> UInt64? {
        // By bytes: for Swift, the name's last letter and the parenthesis behind it may be one character.
        guard let end = text.utf8.lastIndex(of: UInt8(ascii: ")")) else { return nil }
        let fields = text[text.utf8.index(after: end)...].split(separator: " ")  // from field 3 on
        return fields.count > 19 ? UInt64(fields[19]) : nil
    }
}

private func isLower(_ byte: UInt8) -> Bool { (UInt8(ascii: "a")...UInt8(ascii: "z")).contains(byte) }
