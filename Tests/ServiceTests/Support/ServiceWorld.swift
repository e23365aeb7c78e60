internal import DBus
internal import DownloaderInterface
internal import EventLoop
internal import Glibc
internal import TestSupport
internal import Testing

/// A private session with the test's own daemon: bus, home, state, and a client.
final class ServiceWorld: Sendable {
    static let todokud = builtProgram("todokud", variable: "TODOKUD")

    private let slot: Slot?
    let bus: PrivateBus
    let environment: [String: String]

    /// - Parameters:
    ///   - activation: options of the daemon that the bus starts; nil: the bus starts none.
    ///   - isSmall: whether the test takes no slot.
    ///   - names: more activatable names, with the programs that the bus starts for them.
    init(activation: String? = nil, names: [String: String] = [:], extra: [String: String] = [:], isSmall: Bool = false) async {
        slot = isSmall ? nil : await Slot()
        var names = names
        if let activation { names[BusName.service] = "\(Self.todokud) \(activation)" }
        // A proxy of the machine that runs the tests must not interfere. An empty value means no proxy.
        let proxies = ["http_proxy", "https_proxy", "all_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"]
        let plain = Dictionary(uniqueKeysWithValues: proxies.map { ($0, "") })
        bus = await PrivateBus(activatable: names, extra: plain.merging(extra) { $1 })
        environment = bus.environment
        folder = bus.folder.makeFolder("files")
    }

    /// The folder for a test's downloads.
    let folder: String
    /// `XDG_STATE_HOME/todoku`.
    var state: String { bus.folder("state/todoku") }

    /// Starts a daemon directly, and waits for its name.
    func start(_ arguments: [String] = [], extra: [String: String] = [:], prefix: [String] = []) async -> Child {
        // On a busy machine, half a minute may pass between two calls of a test. So only tests about leaving let the service leave.
        let staying = arguments.contains("--idle-exit") ? arguments : ["--idle-exit", "3600"] + arguments
        let daemon = begin(staying, extra: extra, prefix: prefix)
        let isUp = await eventually { await bus.hasOwner(BusName.service) || !daemon.isRunning }
        #expect(isUp && daemon.isRunning, "todokud did not start: \(daemon.errors)")
        await keep(daemon)
        return daemon
    }

    /// Starts a daemon that leaves after half a minute without work, and gives it work. On a busy machine, the daemon may leave before the
    /// work comes. Then the next daemon is tried. The bus must not start any.
    ///
    /// - Parameter work: its first call keeps the service.
    func startLeaving<Value>(_ arguments: [String] = [], _ work: () async throws -> Value) async throws -> (daemon: Child, value: Value) {
        var attempts = 0
        while true {
            attempts += 1
            let daemon = await start(["--idle-exit", "30"] + arguments)
            do {
                return (daemon, try await work())
            } catch let error as DBusError {
                guard error.name == "org.freedesktop.DBus.Error.ServiceUnknown", attempts < 5 else { throw error }
                _ = await daemon.wait()
            }
        }
    }

    @BusActor private var daemons: [Child] = []
    /// A child ends with its last reference, so started daemons are kept as long as their world.
    @BusActor private func keep(_ daemon: Child) { daemons.append(daemon) }

    /// Sends SIGTERM. Returns once the daemon has ended and the bus has noticed.
    func stop(_ daemon: Child) async -> Child.Exit {
        let exit = await daemon.stop()
        #expect(await bus.waitForOwner(BusName.service, present: false))
        return exit
    }

    /// Sends SIGKILL. Returns once the daemon has ended and the bus has noticed.
    func kill(_ daemon: Child) async {
        daemon.signal(SIGKILL)
        _ = await daemon.wait()
        #expect(await bus.waitForOwner(BusName.service, present: false))
    }

    /// Starts a daemon directly.
    func begin(_ arguments: [String] = [], extra: [String: String] = [:], prefix: [String] = []) -> Child {
        Child(prefix + [Self.todokud] + arguments, environment: environment.merging(extra) { $1 })
    }

    /// Starts a program that holds the database. No commit succeeds until the program is stopped.
    func holdDatabase() async throws -> Child {
        let code = """
            import signal, sqlite3, sys
            db = sqlite3.connect(sys.argv[1])
            db.execute("BEGIN IMMEDIATE")
            print("held", flush=True)
            signal.pause()
            """
        let holder = Child(["python3", "-c", code, "\(state)/todoku.db"])
        try #require(await eventually { holder.output == "held\n" || !holder.isRunning } && holder.isRunning, "\(holder.errors)")
        return holder
    }

    /// A connection that records the service's signals.
    func client() async throws -> Client { try await Client(address: bus.address) }

    /// Runs a program in the session.
    func run(_ arguments: String...) async -> Child.Exit { await Child.run(arguments, environment: environment) }

    /// Calls a method of the service by `gdbus call`.
    func gdbus(_ path: String, _ method: String, _ arguments: String...) async -> Child.Exit {
        await Child.run(gdbusCall(path, method, arguments), environment: environment)
    }

    /// The names in `folder`, part files included.
    var files: [String] { listFolder(folder) }

    func bytes(_ name: String) -> [UInt8]? { readFile("\(folder)/\(name)") }

    /// The name of a download's part file. The daemon has put the id of this state folder into `instance`.
    func partName(_ number: UInt64) -> String {
        let id = String(decoding: (readFile("\(state)/instance") ?? []).prefix { $0 != UInt8(ascii: " ") }, as: UTF8.self)
        return ".todoku-\(id)-\(number).part"
    }
}

/// A slot for a running test, released with its last reference. The slots are few, because with all tests at once on two processors, each
/// would measure only its wait for the others.
final class Slot: Sendable {
    @BusActor private static var free = 6
    @BusActor private static var waiting: [CheckedContinuation<Void, Never>] = []

    init() async { await Self.take() }

    deinit { BusActor.spawn { Self.giveBack() } }

    @BusActor private static func take() async {
        await withCheckedContinuation { continuation in
            // Check inside this body, because a slot may be released between an outside check and this body.
            guard free > 0 else { return waiting.append(continuation) }
            free -= 1
            continuation.resume()
        }
    }

    @BusActor private static func giveBack() {
        if waiting.isEmpty { free += 1 } else { waiting.removeFirst().resume() }
    }
}

/// A daemon and a client, started together, as most tests need them.
struct Running {
    let world: ServiceWorld
    let daemon: Child
    let client: Client

    static func start(_ arguments: [String] = [], extra: [String: String] = [:], names: [String: String] = [:]) async throws -> Running {
        let world = await ServiceWorld(names: names, extra: extra)
        let client = try await world.client()
        let daemon = await world.start(arguments)
        return Running(world: world, daemon: daemon, client: client)
    }

    /// Options for a download without toasts, into the test's folder, from a server that may be silent.
    func options(_ more: [String: Variant] = [:]) -> [String: Variant] {
        patient(["directory": .string(world.folder), "notify": .string("never")].merging(more) { $1 })
    }

    func download(_ url: String, _ more: [String: Variant] = [:]) async throws -> ObjectPath {
        try await client.download(url, options(more))
    }

    /// Downloads to the end. Returns the path, or throws the error.
    @discardableResult func fetch(_ url: String, _ more: [String: Variant] = [:]) async throws -> String {
        try await client.wait(try await download(url, more))
    }
}

/// An empty dictionary of options for `gdbus call`. gdbus asks the service for the types of the arguments, but waits only three seconds for
/// the answer. After that, it reads a plain `{}` as text.
let noOptions = "@a{sv} {}"

/// The command line of `gdbus call` for a call of the service. The argument `{}` becomes `noOptions`. Other arguments that do not show
/// their type, such as `[]` or the number of a descriptor, need their type, too: `@as []`, `handle 3`.
func gdbusCall(_ path: String, _ method: String, _ arguments: [String], timeout: Int = 120) -> [String] {
    ["gdbus", "call", "--session", "--timeout", "\(timeout)", "--dest", BusName.service, "--object-path", path, "--method", method]
        + arguments.map { $0 == "{}" ? noOptions : $0 }
}

/// The error that `body` throws; nil if none.
func thrown<R>(_ body: () async throws -> R) async -> DBusError? {
    do {
        _ = try await body()
        return nil
    } catch { return error as? DBusError ?? DBusError("", "\(error)") }
}

/// `org.todoku.Error.` and `name`.
func todokuError(_ name: String) -> String { "org.todoku.Error.\(name)" }

func mode(of path: String) -> UInt32? {
    var status = stat()
    return lstat(path, &status) == 0 ? status.st_mode & 0o7777 : nil
}

extension Child.Exit {
    /// Whether the status is 0, and nothing was printed.
    var isClean: Bool { status == 0 && output.isEmpty && errors.isEmpty }
}

/// For effects that only time brings about.
func pause(milliseconds: Int) async {
    await withCheckedContinuation { continuation in
        BusActor.spawn { Poller.shared.schedule(after: .milliseconds(milliseconds)) { continuation.resume() } }
    }
}
