internal import DBus
internal import DownloadModel
internal import DownloaderInterface
internal import Glibc

/// Recognises callers in a sandbox by the connection's process, as xdg-desktop-portal does (`xdp-app-info-flatpak.c`, `-snap.c`).
///
/// - Flatpak: the process (of a confined app, its `xdg-dbus-proxy`) has the file `/.flatpak-info` in its root, put there by Flatpak,
///   which no program in the sandbox can take away.
///   The same file says whether the sandbox shares the network (`shared=network;`): an app that has none gets none through us.
/// - Snap: the AppArmor label of the connection is `snap.NAME.APP (enforce)`; where the system has no AppArmor, the process is in a
///   control group of that name. A snap in classic or developer mode is not confined (`complain`, `unconfined`) and is the user.
///
/// What cannot be told is not trusted: `NotAllowed`. That is so for a process that has ended, one of another user, and one whose root may
/// not be looked at (a program that is not dumpable), but for a root on a FUSE file system, which Flatpak never has.
///
/// What is guaranteed. A label belongs to the connection. A process is known by a number only, which another may have got by the time it is
/// looked at. With `ProcessFD` the process that connected is shown to live after the last look: no doubt is left. Without it, the process
/// looked at is shown to be older than the call, and the bus has said after the call that the connection lives. To deceive that, a
/// connection has to outlive its process, which has to die and be replaced before the call. No confined Flatpak can do so: its connection
/// is the proxy's, which it has no hand on. All looks go through one descriptor of `/proc/PID` and so to one process.
enum CallerInspection {
    /// Most bytes of `.flatpak-info` and of the files in `/proc` that are read.
    static let mostBytes = 64 << 10

    /// Blocks: for the pool. `arrival` is the time since boot at which the first call was there.
    static func finding(_ credentials: ConnectionCredentials, arrival: Duration) -> CallerFinding {
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

    /// Whether a pidfd's process is gone: it is readable then (pidfd_open(2)).
    private static func hasEnded(_ process: Int32) -> Bool {
        var entry = pollfd(fd: process, events: Int16(POLLIN), revents: 0)
        return poll(&entry, 1, 0) != 0
    }

    /// The text of a file of at most `mostBytes`, which are UTF-8; nil for others.
    fileprivate static func readAll(_ descriptor: Int32) -> String? {
        var bytes = [UInt8](repeating: 0, count: mostBytes + 1)
        var count = 0
        while count < bytes.count {
            let got = bytes.withUnsafeMutableBytes { Glibc.read(descriptor, $0.baseAddress! + count, $0.count - count) }
            if got < 0, errno == EINTR { continue }
            guard got >= 0 else { return nil }
            if got == 0 { return String(validating: bytes.prefix(count), as: UTF8.self) }
            count += got
        }
        return nil
    }

    /// `/proc/PID`, held open: it leads to one process only, and nowhere once that has been reaped.
    private struct ProcessFolder: ~Copyable {
        let descriptor: Int32
        let path: String

        init(_ number: UInt32) throws(Refusal) {
            path = "/proc/\(number)"
            descriptor = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOCTTY)
            guard descriptor >= 0 else { throw cannotTell("its process has ended") }
        }

        deinit { close(descriptor) }

        /// - Parameter absent: what stands for a file that this kernel does not have.
        func read(_ name: String, orElse absent: String? = nil) throws(Refusal) -> String {
            let file = openat(descriptor, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NOCTTY)
            guard file >= 0 else {
                if errno == ENOENT, let absent { return absent }
                throw cannotTell("\(path)/\(name) cannot be opened (\(String(cString: strerror(errno))))")
            }
            defer { close(file) }
            guard let text = readAll(file) else { throw cannotTell("\(path)/\(name) cannot be read") }
            return text
        }

        /// Whether the process was there at `instant`, a time since boot, as exactly as the kernel tells (a tick, 10 ms).
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
enum FlatpakInfo {
    /// The id of the application or, in a group of that name, of the runtime that is run by itself; nil where there is none.
    static func id(in text: String) -> String? {
        let names = values(of: "name", in: text)
        guard let name = names["Runtime"] ?? names["Application"], isId(name) else { return nil }
        return name
    }

    /// Whether the sandbox has the network of its host: `network` in the list `shared` of the group `Context` (flatpak-metadata(5)).
    static func hasNetwork(in text: String) -> Bool {
        values(of: "shared", in: text)["Context"]?.split(separator: ";").contains { trimmed($0) == "network" } ?? false
    }

    /// The value of `key` in each group, the last one counts; empty in a group that has none.
    private static func values(of key: String, in text: String) -> [String: String] {
        var group = ""
        var values: [String: String] = [:]
        for line in text.split(whereSeparator: \.isNewline) {
            let line = trimmed(line)
            if line.hasPrefix("["), line.hasSuffix("]") {
                group = String(line.dropFirst().dropLast())
                if values[group] == nil { values[group] = "" }
            } else if let equals = line.firstIndex(of: "="), trimmed(line[..<equals]) == key {
                values[group] = String(trimmed(line[line.index(after: equals)...]))
            }
        }
        return values
    }

    private static func trimmed(_ text: Substring) -> Substring {
        let start = text.drop { $0 == " " || $0 == "\t" }
        return start.lastIndex { $0 != " " && $0 != "\t" }.map { start[...$0] } ?? ""
    }

    /// Flatpak's rule: at most 255 bytes; at least three elements of letters, digits, "_" and "-", none of which begins with a digit or
    /// "-".
    private static func isId(_ text: String) -> Bool {
        let elements = text.utf8.split(separator: UInt8(ascii: "."), omittingEmptySubsequences: false)
        return text.utf8.count <= 255 && elements.count >= 3
            && elements.allSatisfy { element in
                guard let first = element.first, !isDigit(first), first != UInt8(ascii: "-") else { return false }
                return element.allSatisfy { isLetter($0) || isDigit($0) || $0 == UInt8(ascii: "_") || $0 == UInt8(ascii: "-") }
            }
    }
}

/// A `LinuxSecurityLabel` as far as it speaks of snaps: an AppArmor label is `unconfined` or `PROFILE (MODE)`, stacked ones joined by
/// `//&`.
enum SecurityLabel: Equatable {
    /// Confined as this snap.
    case snap(String)
    /// Confined as a snap whose name is none that snapd gives.
    case unreadable
    /// By AppArmor, and not as a snap: of no snap, or of one that may do everything.
    case unconfined
    /// Not AppArmor's (SELinux): says nothing of snaps.
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
        // Any other mode (enforce, kill, prompt, mixed) confines.
        guard !snaps.isEmpty, text[open...] != "(complain)" else {
            self = .unconfined
            return
        }
        // A name that cannot be read makes nobody the user.
        self = snaps.lazy.compactMap { $0 }.first.map(SecurityLabel.snap) ?? .unreadable
    }
}

/// `/proc/PID/cgroup` (cgroups(7)) as far as it speaks of snaps. snapd (sandbox/cgroup/scanning.go) puts each in a unit of its own:
/// `snap.NAME.APP-UUID.scope`, `snap.NAME.APP.UUID.scope` formerly, `snap.NAME.APP.service`; with version 1 also in `freezer:/snap.NAME`.
enum ControlGroup {
    /// nil: no snap; else its name, or nil where it has none that is valid.
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

    /// The instance name of a snap, `NAME` or `NAME_KEY`, before the first dot; nil where it is none.
    ///
    /// snapd's rules (snap/naming/validate.go, `ValidateSnap` and `ValidateInstance`): a name has 2 to 40 of a–z, 0–9 and "-", at least one
    /// letter, no "-" at an end and no two together (one of a single letter, which no snap has, is taken here too: it opens nothing to
    /// anybody); a key has 1 to 10 of a–z and 0–9. A component (`NAME+COMPONENT`, in the names of units `NAME\x2bCOMPONENT`) belongs to its
    /// snap.
    static func snapName(_ text: Substring) -> String? {
        let whole = text.prefix { $0 != "." }
        let instance = whole.contains("+") ? whole.prefix { $0 != "+" } : whole.prefix { $0 != "\\" }
        guard instance.endIndex == whole.endIndex || ["+", "\\x2b"].contains(where: { whole[instance.endIndex...].hasPrefix($0) }) else {
            return nil
        }
        let parts = instance.utf8.split(separator: UInt8(ascii: "_"), omittingEmptySubsequences: false)
        guard let name = parts.first, parts.count <= 2, (1...40).contains(name.count), name.contains(where: isLower),
            name.allSatisfy({ isLower($0) || isDigit($0) || $0 == UInt8(ascii: "-") }), name.first != UInt8(ascii: "-"),
            name.last != UInt8(ascii: "-"), !String(Substring(name)).contains("--")
        else { return nil }
        if parts.count == 2 {
            guard (1...10).contains(parts[1].count), parts[1].allSatisfy({ isLower($0) || isDigit($0) }) else { return nil }
        }
        return String(instance)
    }
}

/// `/proc/PID/mountinfo` (proc_pid_mountinfo(5)).
enum MountInfo {
    /// Whether what is mounted at `/` is a FUSE file system. Of several, the last is on top.
    static func hasFuseRoot(_ text: String) -> Bool {
        let mounts = text.split(separator: "\n").map { $0.split(separator: " ") }
        guard let root = mounts.last(where: { $0.count > 4 && $0[4] == "/" }) else { return false }
        // "… - TYPE SOURCE OPTIONS": the fields before the dash vary in number.
        return root.drop { $0 != "-" }.dropFirst().first?.hasPrefix("fuse") ?? false
    }
}

/// `/proc/PID/stat` (proc_pid_stat(5)).
enum ProcessStat {
    /// When the process began, in clock ticks since boot: field 22. The second, its name in parentheses, may hold anything.
    static func startTime(in text: String) -> UInt64? {
        guard let end = text.lastIndex(of: ")") else { return nil }
        let fields = text[text.index(after: end)...].split(separator: " ")  // from the third on
        return fields.count > 19 ? UInt64(fields[19]) : nil
    }
}

private func isDigit(_ byte: UInt8) -> Bool { (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(byte) }
private func isLower(_ byte: UInt8) -> Bool { (UInt8(ascii: "a")...UInt8(ascii: "z")).contains(byte) }
private func isLetter(_ byte: UInt8) -> Bool {
    (UInt8(ascii: "A")...UInt8(ascii: "Z")).contains(byte) || (UInt8(ascii: "a")...UInt8(ascii: "z")).contains(byte)
}
