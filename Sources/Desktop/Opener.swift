public import DBus
public import EventLoop
internal import Glibc

/// Opens finished files in the user's programs, and shows them in the file manager.
@BusActor public final class Opener {
    /// What came of it.
    public enum Outcome: Equatable, Sendable {
        case opened
        /// The file manager was asked to show the file in its folder; also instead of opening what would run.
        case shown
        case failed
    }

    private static let showItems = MethodOf(
        "org.freedesktop.FileManager1", "ShowItems", in: [String].self, String.self)
    private static let showFolders = MethodOf(
        "org.freedesktop.FileManager1", "ShowFolders", in: [String].self, String.self)

    private let connection: Connection
    private let environment: [String: String]

    /// - Parameter environment: for what is started; the process's own if not given.
    public init(connection: Connection, environment: [String: String] = Folders.environment()) {
        (self.connection, self.environment) = (connection, environment)
    }

    /// Opens the file at the absolute `path` with the user's program for its type.
    ///
    /// A program, script, desktop entry or AppImage is never started: it is shown in its folder. `activationToken` is the click's, as given by
    /// the notification server; with it the new window may take the focus.
    public func open(_ path: String, activationToken: String? = nil) async -> Outcome {
        let opens = await inPool { FinishedFile.opensByClick(path) }
        guard opens else { return await showInFolder(path, activationToken: activationToken) }
        return await start(path, activationToken) ? .opened : .failed
    }

    /// Shows the file in its folder: by the file manager's D-Bus interface, else by opening the folder.
    public func showInFolder(_ path: String, activationToken: String? = nil) async -> Outcome {
        do {
            try await connection.call(
                Self.showItems, on: "org.freedesktop.FileManager1", at: ObjectPath("/org/freedesktop/FileManager1"),
                ([fileUri(path)], activationToken ?? ""))
            return .shown
        } catch {
            let folder = path.lastIndex(of: "/").map { String(path[..<$0]) } ?? ""
            return await start(folder.isEmpty ? "/" : folder, activationToken) ? .shown : .failed
        }
    }

    /// Shows what is in the folder at the absolute `path`: by the file manager's D-Bus interface, else by opening it.
    public func openFolder(_ path: String, activationToken: String? = nil) async -> Outcome {
        do {
            try await connection.call(
                Self.showFolders, on: "org.freedesktop.FileManager1", at: ObjectPath("/org/freedesktop/FileManager1"),
                ([fileUri(path)], activationToken ?? ""))
            return .shown
        } catch {
            return await start(path, activationToken) ? .shown : .failed
        }
    }

    /// Opens an http or https page in the user's browser.
    public func openPage(_ page: String, activationToken: String? = nil) async -> Outcome {
        guard page.hasPrefix("http://") || page.hasPrefix("https://") else { return .failed }
        return await start(page, activationToken) ? .opened : .failed
    }

    /// Runs `xdg-open` in a session of its own, as a child of no one: it may stay as long as the program it starts.
    ///
    /// - Parameter what: an absolute path, or a URL that was looked at: never what the program might take for an option.
    private func start(_ what: String, _ token: String?) async -> Bool {
        guard what.hasPrefix("/") || what.hasPrefix("http") else { return false }
        var environment = environment
        for key in ["XDG_ACTIVATION_TOKEN", "DESKTOP_STARTUP_ID"] { environment[key] = token }
        let program = findProgram("xdg-open", in: environment["PATH"] ?? "/usr/local/bin:/usr/bin:/bin")
        let final = environment
        return await inPool {
            guard let program else { return false }
            return runDetached([program, what], environment: final)
        }
    }

    private func inPool<R: Sendable>(_ work: @escaping @Sendable () -> R) async -> R {
        await withCheckedContinuation { continuation in Pool.shared.perform(work) { continuation.resume(returning: $0) } }
    }
}

private func findProgram(_ name: String, in path: String) -> String? {
    path.split(separator: ":").lazy.map { "\($0)/\(name)" }.first { access($0, X_OK) == 0 }
}

/// Starts `arguments` through setsid(1), which forks: the process that is waited for ends at once. Input and output are /dev/null; no signal
/// is blocked or ignored (our threads block all, and children inherit that).
private func runDetached(_ arguments: [String], environment: [String: String]) -> Bool {
    var actions = posix_spawn_file_actions_t()
    posix_spawn_file_actions_init(&actions)
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0)
    for descriptor in [1, 2] as [Int32] { posix_spawn_file_actions_addopen(&actions, descriptor, "/dev/null", O_WRONLY, 0) }
    var attributes = posix_spawnattr_t()
    posix_spawnattr_init(&attributes)
    var none = sigset_t()
    var all = sigset_t()
    sigemptyset(&none)
    sigfillset(&all)
    posix_spawnattr_setsigmask(&attributes, &none)
    posix_spawnattr_setsigdefault(&attributes, &all)
    posix_spawnattr_setflags(&attributes, Int16(POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF))
    let argv = (["setsid", "--fork"] + arguments).map { strdup($0) } + [nil]
    let envp = environment.map { strdup("\($0.key)=\($0.value)") } + [nil]
    defer {
        for pointer in argv + envp { free(pointer) }
        posix_spawn_file_actions_destroy(&actions)
        posix_spawnattr_destroy(&attributes)
    }
    var pid: pid_t = 0
    guard posix_spawnp(&pid, "setsid", &actions, &attributes, argv, envp) == 0 else { return false }
    var status: Int32 = 0
    while waitpid(pid, &status, 0) < 0 { if errno != EINTR { return errno == ECHILD } }
    return status == 0
}
