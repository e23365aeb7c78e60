internal import DownloaderInterface
internal import Glibc
internal import TestSupport
internal import Testing

/// A sandbox like Flatpak's: bubblewrap (bwrap(1)) with its own root, which contains `/.flatpak-info`. The session bus is reached only
/// through xdg-dbus-proxy(1). The proxy runs in a sandbox with the same file, and is the process that the bus knows.
struct Sandbox: Sendable {
    let world: ServiceWorld
    /// The socket of the proxy.
    let socket: String
    private let info: String
    private let proxy: Child
    private let prefix: [String]

    /// The lines of a `.flatpak-info`.
    static func info(app: String, shared: String = "network;ipc;") -> String {
        """
        [Application]
        name=\(app)
        runtime=runtime/org.example.Platform/x86_64/1

        [Instance]
        instance-id=1

        [Context]
        shared=\(shared)

        """
    }

    /// - Parameters:
    ///   - rules: the rules of the proxy. `--talk=NAME` is what `flatpak run --talk-name=NAME` makes of it.
    ///   - info: the text of `.flatpak-info`; nil: the sandbox has none.
    init(
        _ world: ServiceWorld, app: String = "org.example.App", rules: [String] = ["--talk=\(BusName.service)"], info: String? = nil
    ) async {
        self.world = world
        let folder = world.bus.folder.makeFolder("sandbox-\(app)")
        self.info = "\(folder)/flatpak-info"
        socket = "\(folder)/bus"
        writeFile(self.info, (info ?? Self.info(app: app)).utf8)
        prefix = await Self.bubblewrap(world, folder)
        let home = world.bus.folder.path
        proxy = Child(
            prefix + Self.root + ["--ro-bind", self.info, "/.flatpak-info", "--bind", home, home, "xdg-dbus-proxy", "--fd=1"]
                + [world.bus.address, socket, "--filter"] + rules,
            environment: world.environment)
        let proxy = proxy
        let listens = await eventually { !proxy.output.isEmpty || !proxy.isRunning }  // the proxy writes a byte when it listens
        #expect(listens && proxy.isRunning, "the proxy did not start: \(proxy.errors)")
    }

    /// Runs a program in the sandbox to its end.
    func run(_ arguments: [String]) async -> Child.Exit {
        await Child.run(
            prefix + Self.root
                + ["--ro-bind", info, "/.flatpak-info", "--ro-bind", socket, "/run/bus"]
                + ["--setenv", "DBUS_SESSION_BUS_ADDRESS", "unix:path=/run/bus"] + arguments,
            environment: world.environment)
    }

    /// Runs `gdbus call` inside.
    func gdbus(_ path: String, _ method: String, _ arguments: String...) async -> Child.Exit { await gdbus(path, method, arguments) }
    func gdbus(_ path: String, _ method: String, _ arguments: [String]) async -> Child.Exit {
        await run(gdbusCall(path, method, arguments))
    }

    /// Runs `dbus-send` inside. (busctl 252 and xdg-dbus-proxy 0.1.4 do not understand each other: sd-bus sends its first message together
    /// with the end of the authentication.)
    func dbusSend(_ path: String, _ method: String, _ arguments: String...) async -> Child.Exit {
        await run(
            ["dbus-send", "--session", "--print-reply", "--reply-timeout=120000", "--dest=\(BusName.service)", path, method] + arguments)
    }

    /// A client in the test's own process that talks through the proxy. To the bus, the client is in the sandbox.
    func client() async throws -> Client { try await Client(address: "unix:path=\(socket)") }

    /// Ends the proxy, and with it all connections of the sandbox.
    func stop() async { await proxy.stop() }

    /// A root with nothing but this machine's programs.
    private static let root: [String] = {
        var arguments = ["--die-with-parent", "--ro-bind", "/usr", "/usr", "--ro-bind", "/etc", "/etc", "--dev", "/dev", "--dir", "/run"]
        for name in ["bin", "sbin", "lib", "lib64"] where fileExists("/\(name)") {
            var status = stat()
            let isLink = lstat("/\(name)", &status) == 0 && status.st_mode & S_IFMT == S_IFLNK
            arguments += isLink ? ["--symlink", "usr/\(name)", "/\(name)"] : ["--ro-bind", "/\(name)", "/\(name)"]
        }
        return arguments
    }()

    /// How to start bwrap here. In a chroot whose root is no mount point, bwrap cannot change the propagation of that root. Then bwrap gets
    /// a root that is a mount point: a bind mount of everything, in a mount namespace that passes no mounts on.
    private static func bubblewrap(_ world: ServiceWorld, _ folder: String) async -> [String] {
        let attempt = await Child.run(["bwrap"] + root + ["true"], environment: world.environment)
        guard attempt.status != 0, attempt.errors.contains("make / slave") else {
            #expect(attempt.status == 0, "bwrap makes no sandbox here: \(attempt.errors)")
            return ["bwrap"]
        }
        let script = """
            if grep -q ' shared:' /proc/self/mountinfo; then echo 'mount the root of this chroot privately' >&2; exit 1; fi
            mount --rbind / "$0" && exec chroot "$0" "$@"
            """
        return ["unshare", "--mount", "--propagation", "unchanged", "sh", "-c", script, makeRoot(folder), "bwrap"]
    }

    private static func makeRoot(_ folder: String) -> String {
        mkdir("\(folder)/root", 0o755)
        return "\(folder)/root"
    }
}
