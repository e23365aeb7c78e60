internal import DBus
internal import DownloadModel
internal import EventLoop
internal import Glibc

/// GLib's runner of proxy scripts, `org.gtk.GLib.PACRunner` of glib-networking, which the bus starts on demand.
@BusActor final class ProxyScripts {
    private static let name = "org.gtk.GLib.PACRunner"
    private static let path = ObjectPath("/org/gtk/GLib/PACRunner")
    private static let lookup = MethodOf(name, "Lookup", in: String.self, String.self, out: [String].self)
    /// For error messages.
    private static let title = "GLib’s runner of proxy scripts"
    /// The proxy that our test script returns.
    private static let ownAnswer = "127.0.0.1:9"

    private let connection: Connection
    private let folder: String
    private let patience: Duration
    /// Whether our test script has run. A script engine does not disappear again.
    private var isProven = false

    init(connection: Connection, environment: [String: String], patience: Duration) {
        (self.connection, self.patience) = (connection, patience)
        folder = environment["XDG_RUNTIME_DIR"].flatMap { $0.isEmpty ? nil : $0 } ?? "/tmp"
    }

    /// - Parameter script: the script's URL; empty: the script has to be auto-detected.
    func choice(for url: String, by script: String) async -> ProxyChoice {
        do throws(DBusError) {
            return ProxyChoice(resolved: try await run(script, for: url))
        } catch {
            let absent = ProxyChoice.unknown("GLib’s runner of proxy scripts (glib-networking) is not installed")
            return ProxyChoice(Self.title, error, within: patience, orElse: absent)
        }
    }

    /// Returns `choice`, unless `choice` is "direct" and it is not known that the script has run: without a script engine, the runner and
    /// the portal also answer "direct". A test script shows whether there is an engine.
    func check(_ choice: ProxyChoice, by script: String) async -> ProxyChoice {
        guard choice == .direct, !script.isEmpty, !isProven else { return choice }
        let file = "\(folder)/todoku-proxy-\(getpid())-\(UInt64.random(in: 0...UInt64.max)).pac"
        defer {
            DiskPool.shared.perform(at: .path(file)) {
                unlink(file)
            } then: { _ in
            }
        }
        guard await writeOwn(to: file) else { return .unknown("no script to test the proxy scripts with could be written in \(folder)") }
        do throws(DBusError) {
            let answer = try await run(fileURI(of: file), for: "http://todoku.invalid/")
            isProven = answer.first?.hasSuffix(Self.ownAnswer) ?? false
        } catch {
            // Without GLib's runner, the portal has another backend.
            if error.name == "org.freedesktop.DBus.Error.ServiceUnknown" { return choice }
            let absent = ProxyChoice.unknown("GLib’s runner of proxy scripts (glib-networking) cannot be started")
            return ProxyChoice(Self.title, error, within: patience, orElse: absent)
        }
        return isProven
            ? choice : .unknown("GLib cannot run the proxy script, because libproxy has no engine (Debian: libproxy1-plugin-webkit)")
    }

    private func writeOwn(to file: String) async -> Bool {
        let text = "function FindProxyForURL(url, host) { return \"PROXY \(Self.ownAnswer)\"; }\n"
        return await DiskPool.shared.value(at: .path(file), within: patience) {
            let descriptor = open(file, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0o600)
            guard descriptor >= 0 else { return false }
            defer { close(descriptor) }
            return write(descriptor, text, text.utf8.count) == text.utf8.count
        } ?? false
    }

    private func run(_ script: String, for url: String) async throws(DBusError) -> [String] {
        try await connection.call(Self.lookup, on: Self.name, at: Self.path, (script, url), timeout: patience)
    }
}

extension ProxyChoice {
    /// The answer after a failed call to `name` for a proxy.
    ///
    /// - Parameter absent: the answer if `name` is not available.
    init(_ name: String, _ error: DBusError, within patience: Duration, orElse absent: ProxyChoice) {
        let bus = "org.freedesktop.DBus.Error."
        let missing = ["ServiceUnknown", "NameHasNoOwner", "UnknownMethod", "UnknownInterface", "UnknownObject"]
        if missing.contains(where: { error.name == bus + $0 }) || error.name.hasPrefix(bus + "Spawn.") {
            self = absent
        } else if error.name == bus + "NoReply" {
            self = .unknown("\(name) did not answer within \(patience.components.seconds) s")
        } else {
            self = .unknown("\(name) answered \(error.name)")
        }
    }
}
