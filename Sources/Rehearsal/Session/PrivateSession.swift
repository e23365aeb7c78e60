internal import DBus
internal import EventLoop
internal import Glibc

/// A session bus of its own with a home of its own, in a temporary folder.
@BusActor final class PrivateSession {
    /// How long the bus may take to listen.
    private static let patience: Duration = .seconds(60)

    /// The temporary folder.
    let folder: String
    /// The address of the bus.
    let address: String
    /// The environment of the command: ours, with the folders and the bus of this session.
    private(set) var environment: ProcessEnvironment

    /// Variables of the surrounding session. This session has other values, or none.
    private static let foreign: Set<String> = [
        "DBUS_STARTER_ADDRESS", "DBUS_STARTER_BUS_TYPE", "DESKTOP_STARTUP_ID", "SESSION_MANAGER", "XDG_ACTIVATION_TOKEN", "XDG_DESKTOP_DIR",
        "XDG_DOCUMENTS_DIR", "XDG_DOWNLOAD_DIR", "XDG_MUSIC_DIR", "XDG_PICTURES_DIR", "XDG_PUBLICSHARE_DIR", "XDG_SESSION_ID",
        "XDG_TEMPLATES_DIR", "XDG_VIDEOS_DIR",
    ]
    /// Variables that the service must not have: of a display, a sound server and a proxy.
    private static let desktop: Set<String> = [
        "ALL_PROXY", "DISPLAY", "HTTPS_PROXY", "HTTP_PROXY", "PULSE_SERVER", "WAYLAND_DISPLAY", "all_proxy", "http_proxy", "https_proxy",
    ]
    private static let folders = [
        "HOME": "home", "XDG_CACHE_HOME": "cache", "XDG_CONFIG_HOME": "config", "XDG_DATA_HOME": "data", "XDG_RUNTIME_DIR": "run",
        "XDG_STATE_HOME": "state",
    ]

    /// Makes the folders.
    ///
    /// - Parameter environment: of this process.
    init(_ environment: ProcessEnvironment) throws(RehearsalError) {
        folder = try TemporaryTree.make()
        address = "unix:path=\(Self.escaped("\(folder)/bus"))"
        self.environment = environment.without(Self.foreign)
        keepDisplay(of: environment)
        self.environment.set(Self.folders.mapValues { "\(folder)/\($0)" })
        self.environment.set(["DBUS_SESSION_BUS_ADDRESS": address])
        do throws(RehearsalError) { try makeFolders() } catch {
            _ = end()
            throw error
        }
    }

    private func makeFolders() throws(RehearsalError) {
        // A path of a socket has at most 107 bytes (unix(7)).
        guard "\(folder)/bus".utf8.count <= 107 else {
            throw RehearsalError("“\(folder)” is too long for a socket in it; set TMPDIR to a shorter folder")
        }
        for name in Self.folders.values { try TemporaryTree.makeFolder("\(folder)/\(name)", 0o700) }
        try TemporaryTree.makeFolder("\(folder)/services", 0o700)
        try TemporaryTree.makeFolder(downloads, 0o755)
    }

    /// The default download folder.
    var downloads: String { "\(folder)/home/Downloads" }

    /// A test with a window may use the display on which it was started. The socket and the key of a display are in folders that have other
    /// values in this session.
    private func keepDisplay(of given: ProcessEnvironment) {
        let slash = Array("/".utf8)
        if let display = given["WAYLAND_DISPLAY"], !display.starts(with: slash), let folder = given["XDG_RUNTIME_DIR"] {
            environment["WAYLAND_DISPLAY"] = Array([folder, slash, display].joined())
        }
        if given["DISPLAY"] != nil, given["XAUTHORITY"] == nil, let home = given["HOME"] {
            let key = Array([home, Array("/.Xauthority".utf8)].joined())
            if access(key.map { CChar(bitPattern: $0) } + [0], R_OK) == 0 { environment["XAUTHORITY"] = key }
        }
    }

    func add(_ variables: [String: String]) { environment.set(variables) }

    /// Makes `path` the default download folder.
    func setDownloads(_ path: String) throws(RehearsalError) {
        let special: Set<Unicode.Scalar> = ["\\", "\"", "$", "`"]
        let quoted = Self.replacing(in: path) { special.contains($0) ? "\\\($0)" : nil }
        try write("XDG_DOWNLOAD_DIR=\"\(quoted)\"\n", to: "config/user-dirs.dirs")
    }

    /// Starts the bus, which starts `service` on demand.
    ///
    /// - Parameters:
    ///   - service: the command line of the service.
    ///   - others: folders with activation files of other programs.
    ///   - log: a file for what the bus and the service say; nil: nobody needs it.
    /// - Returns: a connection to the bus.
    func start(
        _ service: [String], others: [String], log: String?, by children: ChildProcesses
    ) async throws(RehearsalError) -> Connection {
        // In the file, a backslash escapes (Desktop Entry Specification, "string").
        let words = service.map { Self.quoted($0) }.joined(separator: " ")
        let command = Self.replacing(in: words) { $0 == "\\" ? "\\\\" : nil }
        try write("[D-BUS Service]\nName=org.todoku.Downloader1\nExec=\(command)\n", to: "services/org.todoku.Downloader1.service")
        try write(configuration(others), to: "bus.conf")
        let file = open(log ?? "/dev/null", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0o644)
        guard file >= 0 else { throw .of(log ?? "/dev/null", "cannot be written", errno) }
        defer { close(file) }
        let arguments = ["dbus-daemon", "--config-file=\(folder)/bus.conf", "--nofork", "--nopidfile", "--nosyslog"]
            .map { Array($0.utf8CString) }
        switch children.start(arguments, environment: busEnvironment, output: file, errors: file, isDaemon: true) {
        case .success(let process): return try await connect(process, children)
        case .failure(let failure):
            throw RehearsalError(
                failure.code == ENOENT
                    ? "dbus-daemon is not installed (package dbus-daemon in Debian)" : "dbus-daemon cannot be started: \(failure.reason)")
        }
    }

    /// Connects to the bus once it listens.
    private func connect(_ process: pid_t, _ children: ChildProcesses) async throws(RehearsalError) -> Connection {
        let begun = ContinuousClock.now
        while true {
            if let connection = try? Connection.open(address: address) { return connection }
            guard children.isRunning(process), .now - begun < Self.patience else {
                throw RehearsalError("dbus-daemon does not start; --log FILE keeps what it says")
            }
            await pause(for: .milliseconds(20))
        }
    }

    /// The environment of the bus, and so of the service. It has no system bus, so that the network of this machine makes no difference.
    private var busEnvironment: ProcessEnvironment {
        var result = environment.without(Self.desktop)
        result.set([
            "DBUS_SYSTEM_BUS_ADDRESS": "unix:path=\(Self.escaped("\(folder)/no-system-bus"))", "GSETTINGS_BACKEND": "memory",
            "NO_AT_BRIDGE": "1", "CANBERRA_DRIVER": "null",
        ])
        return result
    }

    /// The limits are those of the session.conf that dbus-daemon 1.14 installs.
    private func configuration(_ others: [String]) -> String {
        let limits = [
            "max_incoming_bytes": 1_000_000_000, "max_incoming_unix_fds": 250_000_000, "max_outgoing_bytes": 1_000_000_000,
            "max_outgoing_unix_fds": 250_000_000, "max_message_size": 1_000_000_000, "service_start_timeout": 120_000,
            "auth_timeout": 240_000, "pending_fd_timeout": 150_000, "max_completed_connections": 100_000,
            "max_incomplete_connections": 10_000, "max_connections_per_user": 100_000, "max_pending_service_starts": 10_000,
            "max_names_per_connection": 50_000, "max_match_rules_per_connection": 50_000, "max_replies_per_connection": 50_000,
        ]
        let folders = [["\(folder)/services"], others].joined().map { "  <servicedir>\(Self.inXML($0))</servicedir>" }
        return """
            <!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
             "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
            <busconfig>
              <type>session</type>
              <listen>\(Self.inXML(address))</listen>
              <auth>EXTERNAL</auth>
            \(folders.joined(separator: "\n"))
              <policy context="default">
                <allow send_destination="*" eavesdrop="true"/>
                <allow eavesdrop="true"/>
                <allow own="*"/>
              </policy>
            \(limits.map { "  <limit name=\"\($0.key)\">\($0.value)</limit>" }.sorted().joined(separator: "\n"))
            </busconfig>

            """
    }

    private func write(_ text: String, to name: String) throws(RehearsalError) {
        let path = "\(folder)/\(name)"
        let file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0o600)
        guard file >= 0 else { throw .of(path, "cannot be written", errno) }
        defer { close(file) }
        let bytes = Array(text.utf8)
        guard Glibc.write(file, bytes, bytes.count) == bytes.count else { throw .of(path, "cannot be written", errno) }
    }

    /// Removes the folders.
    ///
    /// - Returns: whether nothing is left of them.
    func end() -> Bool { TemporaryTree.remove(folder) }

    // MARK: Texts

    /// The bytes that stand for themselves in a bus address.
    private static let plainBytes = Set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_/.*".utf8)

    /// A value of a bus address (D-Bus specification, "Server Addresses").
    private static func escaped(_ text: String) -> String {
        let digits = Array("0123456789abcdef".utf8)
        let bytes = text.utf8.flatMap { byte -> [UInt8] in
            plainBytes.contains(byte) ? [byte] : [UInt8(ascii: "%"), digits[Int(byte >> 4)], digits[Int(byte & 15)]]
        }
        return String(decoding: bytes, as: UTF8.self)
    }

    private static func inXML(_ text: String) -> String {
        let names: [Unicode.Scalar: String] = ["&": "&amp;", "<": "&lt;", ">": "&gt;", "\"": "&quot;"]
        return replacing(in: text) { names[$0] }
    }

    /// A word of `Exec`, which the bus reads as a shell does, without variables.
    private static func quoted(_ word: String) -> String { "'" + replacing(in: word) { $0 == "'" ? "'\\''" : nil } + "'" }

    /// Replaces scalars, because for Swift a quote and a combining mark behind it are one character.
    ///
    /// - Parameter other: what stands for a scalar; nil: itself.
    private static func replacing(in text: String, _ other: (Unicode.Scalar) -> String?) -> String {
        text.unicodeScalars.map { other($0) ?? String(Character($0)) }.joined()
    }
}

/// Waits, while the loop does other work.
@BusActor func pause(for time: Duration) async {
    await withCheckedContinuation { continuation in Poller.shared.schedule(after: time) { continuation.resume() } }
}
