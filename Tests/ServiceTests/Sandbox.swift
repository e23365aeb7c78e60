internal import DownloaderInterface
internal import Glibc
internal import TestSupport
internal import Testing

/// A sandbox made as Flatpak makes it: bubblewrap (bwrap(1)) with a root of its own that holds `/.flatpak-info`, and the session bus only
/// through xdg-dbus-proxy(1), which runs in a sandbox with the same file: it is the proxy's process that the bus knows.
struct Sandbox: Sendable {
    let world: ServiceWorld
    /// Where the proxy listens.
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
    ///   - rules: of the proxy. `--talk=NAME` is what `flatpak run --talk-name=NAME` makes of it.
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
        let listens = await eventually { !proxy.output.isEmpty || !proxy.isRunning }  // it says so by a byte
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

    /// `gdbus call` from inside.
    func gdbus(_ path: String, _ method: String, _ arguments: String...) async -> Child.Exit { await gdbus(path, method, arguments) }
    func gdbus(_ path: String, _ method: String, _ arguments: [String]) async -> Child.Exit {
        await run(["gdbus", "call", "--session", "--dest", BusName.service, "--object-path", path, "--method", method] + arguments)
    }

    /// `dbus-send` from inside. (busctl 252 and xdg-dbus-proxy 0.1.4 do not understand each other: sd-bus sends its first message together
    /// with the end of the authentication.)
    func dbusSend(_ path: String, _ method: String, _ arguments: String...) async -> Child.Exit {
        await run(["dbus-send", "--session", "--print-reply", "--dest=\(BusName.service)", path, method] + arguments)
    }

    /// A client of the test's own process that talks through the proxy: to the bus it is in the sandbox.
    func client() async throws -> Client { try await Client(address: "unix:path=\(socket)") }

    /// Ends the proxy, and with it every connection of the sandbox.
    func stop() async { await proxy.stop() }

    /// A root of nothing but the programs of this machine.
    private static let root: [String] = {
        var arguments = ["--die-with-parent", "--ro-bind", "/usr", "/usr", "--ro-bind", "/etc", "/etc", "--dev", "/dev", "--dir", "/run"]
        for name in ["bin", "sbin", "lib", "lib64"] where fileExists("/\(name)") {
            var status = stat()
            let isLink = lstat("/\(name)", &status) == 0 && status.st_mode & S_IFMT == S_IFLNK
            arguments += isLink ? ["--symlink", "usr/\(name)", "/\(name)"] : ["--ro-bind", "/\(name)", "/\(name)"]
        }
        return arguments
    }()

    /// How bwrap is started here. In a chroot whose root is no mount point it cannot change that root's propagation, and is given a root
    /// that is one: a bind mount of everything, in a mount namespace of its own, which must hand no mount on to others.
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
