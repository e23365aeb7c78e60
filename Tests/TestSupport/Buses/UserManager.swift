internal import Glibc

/// A real systemd of a user (`systemd --user`) with a session bus of its own, run as `nobody`. It has its own processes, mounts and
/// control groups, and shares the network. Needs root.
public final class UserManager: Sendable {
    private static let program = ["/usr/lib/systemd/systemd", "/lib/systemd/systemd"].first { (path: String) in access(path, X_OK) == 0 }
    private static let unprivileged = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups", "--"]

    /// Whether this machine can run one.
    public static func isPossible() async -> Bool {
        guard geteuid() == 0, program != nil else { return false }
        let mount = "mount -t tmpfs none /run && mount -t cgroup2 none /sys/fs/cgroup"
        return await Child.run(["unshare", "--mount", "--pid", "--cgroup", "--fork", "sh", "-c", mount]).status == 0
    }

    public let folder = TemporaryFolder("todoku-user")
    private let manager: Child
    /// The process in which the others are, as we number it.
    private let first: Int32

    /// - Parameters:
    ///   - programs: files that are copied into the folder `bin`, because `nobody` may not reach where they are.
    ///   - units: the contents of units by their names. `@bindir@` stands for the folder `bin`, and `@home@` for the home.
    ///   - services: the unit that the bus starts for a name.
    public init(programs: [String], units: [String: String], services: [String: String]) async throws {
        let (bin, run) = (folder.makeFolder("bin"), folder.makeFolder("run"))
        folder.makeFolder("home")
        for path in programs {
            let name = path.split(separator: "/").last.map(String.init) ?? ""
            writeFile("\(bin)/\(name)", try Self.contents(path), mode: 0o755)
        }
        for name in [".config", ".config/systemd", ".config/systemd/user", "Downloads"] { folder.makeFolder("home/\(name)") }
        let own = [
            "session.target": "[Unit]\nRequires=dbus.socket\n",
            "dbus.socket": "[Socket]\nListenStream=\(run)/bus\n",
            "dbus.service": """
            [Unit]
            Requires=dbus.socket
            [Service]
            Type=notify
            ExecStart=/usr/bin/dbus-daemon --session --address=systemd: --nofork --nopidfile --systemd-activation

            """,
        ]
        for (name, unit) in units.merging(own, uniquingKeysWith: { $1 }) { Self.write(unit, toUnit: name, in: folder) }
        for name in ["dbus-1", "dbus-1/services"] { folder.makeFolder("run/\(name)") }
        for (name, unit) in services {
            let text = "[D-BUS Service]\nName=\(name)\nExec=/bin/false\nSystemdService=\(unit)\n"
            writeFile("\(run)/dbus-1/services/\(name).service", text.utf8)
        }
        folder.makeFolder("groups")
        chmod(folder.path, 0o755)
        chmod(run, 0o700)
        // systemd asks whether /run/systemd/system exists, and wants the control group at the root of the tree that it sees.
        let script = """
            set -e
            mount -t tmpfs none /run && mkdir -p /run/systemd/system
            mount -t cgroup2 none "$0/groups" && mkdir "$0/groups/$1" && echo 0 >"$0/groups/$1/cgroup.procs"
            chown -R nobody:nogroup "$0/run" "$0/home"
            unshare --mount --cgroup sh -c '
                umount "$0/groups" && mount -t cgroup2 none /sys/fs/cgroup
                chown nobody:nogroup /sys/fs/cgroup /sys/fs/cgroup/cgroup.procs /sys/fs/cgroup/cgroup.subtree_control
                "$@" || exit' "$0" \(Self.unprivileged.joined(separator: " ")) \(Self.program ?? "") --user --unit=session.target
            """
        let group = folder.path.split(separator: "/").last.map(String.init) ?? ""
        manager = Child(
            ["unshare", "--mount", "--pid", "--mount-proc", "--fork", "--kill-child", "sh", "-c", script, folder.path, group],
            environment: Self.environment(folder))
        let started = manager
        var found: Int32?
        _ = await eventually {
            found = Self.child(of: started.pid)
            return found != nil || !started.isRunning
        }
        guard let found else { throw Failure(description: "no systemd: \(manager.errors)") }
        first = found
        let isUp = await eventually {
            if !manager.isRunning { return true }
            return await self.run(["systemctl", "--user", "is-active", "session.target"]).status == 0
        }
        guard isUp, manager.isRunning else { throw Failure(description: "no session: \(manager.errors)\(manager.output)") }
    }

    public struct Failure: Error, CustomStringConvertible { public let description: String }

    public var home: String { folder("home") }

    /// Runs a program as the user of the session, and waits for its end. Ours are found by name.
    public func run(_ arguments: [String]) async -> Child.Exit {
        await Child.run(
            ["nsenter", "--target", "\(first)", "--mount", "--pid", "--cgroup", "--"] + Self.unprivileged + arguments,
            environment: Self.environment(folder), folder: home)
    }

    /// A property of a unit, as systemctl(1) prints it.
    public func property(_ name: String, of unit: String) async -> String {
        let exit = await run(["systemctl", "--user", "show", "--value", "--property", name, unit])
        return String(exit.output.prefix { $0 != "\n" })
    }

    /// Waits until a name on the bus of the session has an owner.
    public func waitForOwner(_ name: String) async -> Bool {
        await eventually { await self.run(["busctl", "--user", "status", name]).status == 0 }
    }

    /// Writes another file into the folder of the user's units, as an administrator does, and has systemd read it.
    public func write(_ text: String, toUnit name: String) async {
        Self.write(text, toUnit: name, in: folder)
        _ = await run(["systemctl", "--user", "daemon-reload"])
    }

    private static func write(_ text: String, toUnit name: String, in folder: TemporaryFolder) {
        if name.contains("/") { folder.makeFolder("home/.config/systemd/user/\(name.split(separator: "/")[0])") }
        let unit = text.replacing("@bindir@", with: folder("bin")).replacing("@home@", with: folder("home"))
        writeFile(folder("home/.config/systemd/user/\(name)"), unit.utf8)
    }

    /// Ends all processes, and removes the control group.
    public func stop() async {
        manager.signal(SIGKILL)
        _ = await manager.wait()
        let script = """
            mount -t cgroup2 none "$0/groups" || exit 0
            find "$0/groups/$1" -depth -type d -exec rmdir {} +
            """
        let group = folder.path.split(separator: "/").last.map(String.init) ?? ""
        // The kernel empties the group some time after the last process was killed.
        _ = await eventually {
            await Child.run(["unshare", "--mount", "sh", "-c", script, folder.path, group]).status == 0
        }
    }

    private static func environment(_ folder: TemporaryFolder) -> [String: String] {
        [
            "PATH": "\(folder("bin")):/usr/sbin:/usr/bin:/sbin:/bin", "HOME": folder("home"), "XDG_RUNTIME_DIR": folder("run"),
            "DBUS_SESSION_BUS_ADDRESS": "unix:path=\(folder("run"))/bus", "LC_ALL": "C.UTF-8", "CANBERRA_DRIVER": "null",
            "DBUS_SYSTEM_BUS_ADDRESS": "unix:path=/nonexistent",
        ]
    }

    /// The only child of a process; nil: it has none yet.
    private static func child(of process: Int32) -> Int32? {
        readFile("/proc/\(process)/task/\(process)/children").flatMap { Int32(String(decoding: $0.prefix { $0 != 0x20 }, as: UTF8.self)) }
    }

    private static func contents(_ path: String) throws -> [UInt8] {
        guard let bytes = readFile(path) else { throw Failure(description: "\(path) cannot be read") }
        return bytes
    }
}
