public import DBus
public import DownloadModel
public import EventLoop
internal import Glibc

/// The proxy that the desktop's settings name for a URL.
///
/// Manual settings come from the desktop's own store: KDE's `kioslaverc`, or GNOME's `org.gnome.system.proxy` by gsettings(1).
/// The portal (`org.freedesktop.portal.ProxyResolver`) answers for every other desktop, and runs GNOME's scripts.
/// GLib's runner runs KDE's scripts, because the portal asks GIO, and GIO ignores KDE's settings before libproxy 0.5.
/// An error or a hang never means a direct connection: the answer is `unknown`.
///
/// A child process, gsettings(1), reads the settings instead of GIO in this process. So errors and hangs of dconf, its modules and its bus
/// connection end with the child. dconf's file is not read directly, because an administrator's defaults and locks are in other files.
@BusActor public final class DesktopProxies {
    /// The longest wait for the settings, and for the portal, which may have to fetch a script.
    public static let patience: Duration = .seconds(10)
    private static let lookup = MethodOf("org.freedesktop.portal.ProxyResolver", "Lookup", in: String.self, out: [String].self)
    private static let path = ObjectPath("/org/freedesktop/portal/desktop")

    private let connection: Connection
    private let scripts: ProxyScripts
    private let patience: Duration
    private let source: Source?
    /// Whether the environment names a desktop or a display, so that the portal may be started.
    private let startsPortal: Bool
    private var waiting: [CheckedContinuation<Reading?, Never>] = []
    private var patienceEnds: Poller.Token?
    private var isReading = false
    private var last: (reading: Reading, at: SuspendingClock.Instant)?
    /// A thread of its own: a hanging home directory does not occupy the disk threads. All look-ups share one reading.
    private nonisolated static let pool = Pool(name: "todoku-proxies", width: 1)

    public init(
        connection: Connection, environment: [String: String] = processEnvironment(), patience: Duration = DesktopProxies.patience
    ) {
        (self.connection, self.patience) = (connection, patience)
        scripts = ProxyScripts(connection: connection, environment: environment, patience: patience)
        source = Source(environment, seconds: max(1, Int(patience.components.seconds) - 2))
        startsPortal = ["XDG_CURRENT_DESKTOP", "WAYLAND_DISPLAY", "DISPLAY"].contains { environment[$0]?.isEmpty == false }
    }

    /// Asked before each request. Answers within four times `patience`: the settings, a script, and a test script's file and run.
    public func choice(for url: DownloadURL) async -> ProxyChoice {
        guard let source else { return await askPortal(url, orElse: .direct) }
        guard let reading = await read(source) else {
            return await askPortal(
                url, orElse: .unknown("the desktop’s settings could not be read within \(patience.components.seconds) s"))
        }
        switch reading.settings {
        case .kde(let proxies):
            switch proxies.setting(for: url, source.environment) {
            case .choice(let choice): return choice
            case .script(let script): return await scripts.check(await scripts.choice(for: Self.shown(url), by: script), by: script)
            }
        case .gnome(let proxies):
            switch proxies.setting(for: url) {
            case .choice(let choice): return choice
            case .script(let script):
                let absent = ProxyChoice.unknown("no portal (xdg-desktop-portal) is there to run the proxy script")
                return await scripts.check(await askPortal(url, orElse: absent), by: script)
            }
        case .none: return await askPortal(url, orElse: .direct)
        case .unreadable(let reason): return await askPortal(url, orElse: .unknown(reason))
        }
    }

    // MARK: The portal

    /// - Parameter absent: the answer if there is no proxy portal.
    private func askPortal(_ url: DownloadURL, orElse absent: ProxyChoice) async -> ProxyChoice {
        do throws(DBusError) {
            let answer = try await connection.call(
                Self.lookup, on: FilePortal.name, at: Self.path, Self.shown(url), timeout: patience,
                starts: startsPortal || absent != .direct)
            return ProxyChoice(resolved: answer)
        } catch {
            return ProxyChoice("the portal", error, within: patience, orElse: absent)
        }
    }

    /// The part of a URL that a proxy script may see, as in browsers: never the query, and for https only scheme, host and port.
    private static func shown(_ url: DownloadURL) -> String {
        url.scheme == "https" ? String(url.redacted.dropLast(url.path.count)) + "/" : url.redacted
    }

    // MARK: The settings

    /// nil: the settings could not be read within `patience`.
    private func read(_ source: Source) async -> Reading? {
        await withCheckedContinuation { continuation in
            waiting.append(continuation)
            if patienceEnds == nil { patienceEnds = Poller.shared.scheduleAwake(after: patience) { [self] in serve(nil) } }
            guard !isReading else { return }
            isReading = true
            let known = last.flatMap { SuspendingClock.now - $0.at < Source.freshness ? $0.reading : nil }
            Self.pool.perform {
                source.read(known)
            } then: { [self] reading in
                isReading = false
                if reading.stamp != known?.stamp { last = (reading, .now) }
                serve(reading)
            }
        }
    }

    private func serve(_ reading: Reading?) {
        if let patienceEnds { Poller.shared.cancel(patienceEnds) }
        patienceEnds = nil
        let served = waiting
        waiting = []
        for continuation in served { continuation.resume(returning: reading) }
    }
}

/// The proxy setting for one URL.
enum ProxySetting: Equatable {
    case choice(ProxyChoice)
    /// A proxy script (PAC) decides. The value is the script's URL; empty: the script has to be auto-detected.
    case script(String)
}

/// The desktop's settings, with stamps of the files behind them.
private struct Reading: Sendable {
    enum Settings: Sendable {
        case kde(KDEProxies)
        case gnome(GNOMEProxies)
        /// This desktop has no such settings.
        case none
        case unreadable(String)
    }

    let settings: Settings
    let stamp: [FileStamp]
}

/// The device, inode, size and modification time of a file. A rewritten or replaced file has another stamp.
private struct FileStamp: Equatable, Sendable {
    var values: [Int64] = []

    init(_ path: String) {
        var status = stat()
        guard stat(path, &status) == 0 else { return }
        values = [
            Int64(truncatingIfNeeded: status.st_dev), Int64(truncatingIfNeeded: status.st_ino), Int64(status.st_size),
            Int64(status.st_mtim.tv_sec), Int64(status.st_mtim.tv_nsec),
        ]
    }
}

/// Where a desktop keeps its settings.
private struct Source: Sendable {
    /// How long a reading counts while the user's own files are unchanged. An administrator's files may have changed meanwhile.
    static let freshness: Duration = .seconds(5)
    /// Desktops with GNOME's settings, by their names in `XDG_CURRENT_DESKTOP`.
    private static let likeGNOME: Set = [
        "gnome", "gnome-classic", "gnome-flashback", "unity", "x-cinnamon", "cinnamon", "mate", "budgie", "pantheon", "deepin", "ukui",
        "cosmic",
    ]

    private let isKDE: Bool
    /// KDE: the settings files, the user's own last. GNOME: the files that change with the settings.
    private let files: [String]
    let environment: [String: String]
    private let seconds: Int

    /// nil: Todoku does not know this desktop's settings.
    init?(_ environment: [String: String], seconds: Int) {
        let names = (environment["XDG_CURRENT_DESKTOP"] ?? "").lowercased().split(separator: ":").map(String.init)
        let own = Folders.configuration(environment)
        if names.contains("kde") {
            let folders = (environment["XDG_CONFIG_DIRS"].flatMap { $0.isEmpty ? nil : $0 } ?? "/etc/xdg").split(separator: ":")
            files = folders.reversed().map { "\($0)/kioslaverc" } + ["\(own)/kioslaverc"]
            isKDE = true
        } else if names.contains(where: Self.likeGNOME.contains) {
            files = ["\(own)/dconf/user", "\(own)/glib-2.0/settings/keyfile"]
            isKDE = false
        } else {
            return nil
        }
        (self.environment, self.seconds) = (environment, seconds)
    }

    /// Blocks. Returns `known` if the files still have the same stamps.
    func read(_ known: Reading?) -> Reading {
        let stamp = files.map { FileStamp($0) }
        if let known, known.stamp == stamp { return known }
        return Reading(settings: isKDE ? readKDE() : readGNOME(), stamp: stamp)
    }

    private func readKDE() -> Reading.Settings {
        var proxies = KDEProxies()
        for file in files {
            var status = stat()
            if stat(file, &status) != 0, errno == ENOENT || errno == ENOTDIR { continue }
            guard let text = SmallFile.text(file, atMost: 256 * 1024) else { return .unreadable("\(file) cannot be read") }
            proxies.add(text)
        }
        return .kde(proxies)
    }

    private func readGNOME() -> Reading.Settings {
        // dconf reads a damaged database as an empty one, as if the user had set nothing.
        if let user = files.first, isDamaged(user) { return .unreadable("\(user) is not a dconf database") }
        guard let gsettings = findProgram("gsettings", in: environment) else {
            return .unreadable("gsettings, which reads the desktop’s settings, is not installed")
        }
        let environment = environment.merging(["LC_ALL": "C.UTF-8"]) { $1 }
        func run(_ command: String...) -> (status: Int32, text: [UInt8])? {
            output(of: [gsettings] + command, environment: environment, seconds: seconds, limit: 256 * 1024)
        }
        if let found = run("list-recursively", GNOMEProxies.schema), found.status == 0 {
            return .gnome(GNOMEProxies(String(decoding: found.text, as: UTF8.self)))
        }
        guard let schemas = run("list-schemas"), schemas.status == 0 else { return .unreadable("gsettings failed") }
        let names = schemas.text.split(separator: UInt8(ascii: "\n"))
        return names.contains { $0.elementsEqual(GNOMEProxies.schema.utf8) } ? .unreadable("gsettings failed") : .none
    }

    /// Whether the file exists but does not begin as a GVDB file in either byte order.
    private func isDamaged(_ path: String) -> Bool {
        let descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)
        guard descriptor >= 0 else { return errno != ENOENT && errno != ENOTDIR }
        defer { close(descriptor) }
        var head = [UInt8](repeating: 0, count: 8)
        let count = Glibc.read(descriptor, &head, 8)
        return count != 8 || !head.elementsEqual("GVariant".utf8) && !head.elementsEqual("raVGtnai".utf8)
    }
}
