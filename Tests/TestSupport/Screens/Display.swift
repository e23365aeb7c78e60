internal import EventLoop
internal import Glibc

/// A real X server without a screen. It ends with its last reference.
public final class Display: Sendable {
    /// The value for `DISPLAY`.
    public let name: String
    private let server: Child

    public init(width: Int = 760, height: Int = 320) async {
        let server = Child(["Xvfb", "-displayfd", "1", "-screen", "0", "\(width)x\(height)x24", "-nolisten", "tcp", "-noreset"])
        let begun = await eventually { server.output.contains("\n") || !server.isRunning }
        precondition(begun && server.isRunning, "Xvfb did not start: \(server.errors)")
        self.server = server
        name = ":" + server.output.prefix { $0 != "\n" }
    }

    /// Writes a picture of the whole screen. The extension of `path` selects the format, such as PNG.
    public func screenshot(_ path: String) async {
        let environment = processEnvironment().merging(["DISPLAY": name]) { $1 }
        let exit = await Child.run(["import", "-silent", "-window", "root", path], environment: environment)
        precondition(exit.status == 0, "import: \(exit.errors)")
    }

    public func stop() async { await server.stop() }
}

/// A real dunst on a private bus and a display. It ends with its last reference.
public final class Dunst: Sendable {
    private let server: Child
    private let environment: [String: String]

    /// Returns once dunst owns its name.
    public init(on bus: PrivateBus, _ display: Display) async {
        var environment = bus.environment
        environment["DISPLAY"] = display.name
        self.environment = environment
        let configuration = bus.folder("dunstrc")
        writeFile(configuration, Dunst.configuration.utf8)
        let server = Child(["dunst", "-conf", configuration], environment: environment)
        self.server = server
        let owns = await bus.waitForOwner("org.freedesktop.Notifications")
        precondition(owns && server.isRunning, "dunst did not start: \(server.errors)")
    }

    /// Runs dunstctl(1), and returns its output.
    @discardableResult public func control(_ arguments: String...) async -> String {
        let exit = await Child.run(["dunstctl"] + arguments, environment: environment)
        precondition(exit.status == 0, "dunstctl: \(exit.errors)")
        return exit.output
    }

    /// How many toasts are on screen.
    public func displayed() async -> Int { Int(await control("count", "displayed").filter(\.isNumber)) ?? -1 }

    /// Toasts that were closed, newest first, each with dunst's own field names: `summary`, `body`, `appname`, `category`, `progress` …
    public func history() async -> [[String: JSON]] {
        let answer = JSON(await control("history"))
        return (answer?["data"]?.array?.first?.array ?? []).map { entry in
            entry.object?.compactMapValues { $0["data"] } ?? [:]
        }
    }

    public func stop() async { await server.stop() }

    /// Kills it, so that it closes nothing.
    public func kill() async {
        server.signal(SIGKILL)
        _ = await server.wait()
    }

    private static let configuration = """
        [global]
        width = (300, 500)
        origin = top-right
        offset = 20x20
        font = Noto Sans CJK JP 12
        markup = full
        format = "<b>%s</b>\\n%b"
        icon_theme = Adwaita
        enable_recursive_icon_lookup = true
        min_icon_size = 48
        max_icon_size = 48
        progress_bar = true
        history_length = 100
        [urgency_low]
        timeout = 0
        [urgency_normal]
        timeout = 0
        """
}

/// The path for a product that people may want to look at: in `$TODOKU_TEST_PRODUCTS`, else in the temporary folder.
public func productPath(_ name: String) -> String {
    let environment = processEnvironment()
    let folder = environment["TODOKU_TEST_PRODUCTS"] ?? "\(environment["TMPDIR"] ?? "/tmp")/todoku-test-products"
    mkdir(folder, 0o755)
    return "\(folder)/\(name)"
}
