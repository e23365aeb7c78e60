internal import EventLoop
internal import Glibc

/// A real session bus for one test. It has its own configuration, socket, home and XDG folders, and only the test's activation files. It
/// ends with its last reference.
public final class PrivateBus: Sendable {
    public let folder: TemporaryFolder
    /// The address clients connect to.
    public let address: String
    /// The whole environment for a child of this session. It is our own environment without the variables of the surrounding desktop. It
    /// adds private HOME and XDG folders, the bus's address, and `extra`. Programs that the bus activates get the same environment.
    public let environment: [String: String]
    private let daemon: Child

    /// - Parameters:
    ///   - activatable: bus names and the command lines that the bus starts for them, written as activation files.
    ///   - extra: added to the environment of children and of activated programs, such as DISPLAY.
    ///   - serviceStartTimeout: how long the bus waits for an activated program to take its name.
    public init(
        activatable: [String: String] = [:], extra: [String: String] = [:], serviceStartTimeout: Duration = .seconds(120)
    ) async {
        let folder = TemporaryFolder("todoku-bus")
        var environment = processEnvironment().filter { key, _ in
            !key.hasPrefix("XDG_") && !key.hasPrefix("DBUS_")
                && !["DISPLAY", "WAYLAND_DISPLAY", "SESSION_MANAGER", "DESKTOP_STARTUP_ID", "LANGUAGE", "LANG"].contains(key)
        }
        let folders = ["HOME": "home", "XDG_CONFIG_HOME": "config", "XDG_DATA_HOME": "data", "XDG_STATE_HOME": "state"]
        for (key, name) in folders { environment[key] = folder.makeFolder(name) }
        environment["FLATPAK_SYSTEM_DIR"] = folder.makeFolder("flatpak")
        environment["XDG_CACHE_HOME"] = folder.makeFolder("cache")
        environment["XDG_RUNTIME_DIR"] = folder.makeFolder("run")
        chmod(folder("run"), 0o700)
        environment["LC_ALL"] = "C.UTF-8"
        environment["NO_AT_BRIDGE"] = "1"
        environment["GSETTINGS_BACKEND"] = "memory"
        environment["CANBERRA_DRIVER"] = "null"  // so that the tests are silent
        environment["PULSE_SERVER"] = "unix:\(folder("no-sound-server"))"
        environment["DBUS_SESSION_BUS_ADDRESS"] = "unix:path=\(folder("bus"))"
        environment["DBUS_SYSTEM_BUS_ADDRESS"] = "unix:path=\(folder("no-system-bus"))"  // not the machine's own
        environment.merge(extra) { $1 }
        folder.makeFolder("services")
        for (name, command) in activatable { PrivateBus.writeActivation(name, command, in: folder) }
        writeFile(folder("bus.conf"), PrivateBus.configuration(folder, serviceStartTimeout: serviceStartTimeout).utf8)
        let daemon = Child(
            ["dbus-daemon", "--config-file=\(folder("bus.conf"))", "--nofork", "--nopidfile", "--nosyslog", "--print-address"],
            environment: environment)
        // The address is printed once the bus listens.
        let listens = await eventually { daemon.output.contains("\n") || !daemon.isRunning }
        precondition(listens && daemon.isRunning, "dbus-daemon did not start: \(daemon.errors)")
        self.folder = folder
        self.environment = environment
        self.daemon = daemon
        address = "unix:path=\(folder("bus"))"
    }

    /// Makes the bus start `command` for `name` from now on.
    public func makeActivatable(_ name: String, _ command: String) async {
        PrivateBus.writeActivation(name, command, in: folder)
        let reload = await send("org.freedesktop.DBus.ReloadConfig")
        precondition(reload.status == 0, "ReloadConfig: \(reload.errors)")
    }

    /// Whether `name` has an owner.
    public func hasOwner(_ name: String) async -> Bool {
        await send("org.freedesktop.DBus.NameHasOwner", "string:\(name)").output.contains("true")
    }

    /// Waits until `name` has an owner, or until it has none.
    public func waitForOwner(_ name: String, present: Bool = true, within limit: Duration = .seconds(60)) async -> Bool {
        await eventually(within: limit) { await hasOwner(name) == present }
    }

    /// The process that owns `name`; nil if none does.
    public func process(of name: String) async -> Int32? {
        let exit = await send("org.freedesktop.DBus.GetConnectionUnixProcessID", "string:\(name)")
        return exit.status == 0 ? exit.output.split(whereSeparator: { !$0.isNumber }).last.flatMap { Int32($0) } : nil
    }

    /// Sends `signal` to the process that owns `name`, and waits until the name has no owner.
    public func end(_ name: String, by signal: Int32) async -> Bool {
        guard let process = await process(of: name) else { return false }
        kill(process, signal)
        return await waitForOwner(name, present: false)
    }

    /// Sends a signal to the bus: SIGSTOP, and later SIGCONT.
    public func signal(_ signal: Int32) { daemon.signal(signal) }

    /// Ends the bus, as a session's end does: every connection to it breaks.
    public func stop() async { await daemon.stop() }

    /// Calls the bus driver by dbus-send(1), a foreign client.
    private func send(_ member: String, _ arguments: String...) async -> Child.Exit {
        await Child.run(
            [
                "dbus-send", "--session", "--reply-timeout=120000", "--dest=org.freedesktop.DBus", "--print-reply=literal",
                "/org/freedesktop/DBus", member,
            ] + arguments,
            environment: environment)
    }

    private static func writeActivation(_ name: String, _ command: String, in folder: TemporaryFolder) {
        writeFile(folder("services/\(name).service"), "[D-BUS Service]\nName=\(name)\nExec=\(command)\n".utf8)
    }

    /// The limits are those of the session.conf that dbus-daemon 1.14 installs, except for the time to start.
    private static func configuration(_ folder: TemporaryFolder, serviceStartTimeout: Duration) -> String {
        let limits = [
            "max_incoming_bytes": 1_000_000_000, "max_incoming_unix_fds": 250_000_000, "max_outgoing_bytes": 1_000_000_000,
            "max_outgoing_unix_fds": 250_000_000, "max_message_size": 1_000_000_000, "auth_timeout": 240_000,
            "pending_fd_timeout": 150_000, "max_completed_connections": 100_000, "max_incomplete_connections": 10_000,
            "max_connections_per_user": 100_000, "max_pending_service_starts": 10_000, "max_names_per_connection": 50_000,
            "max_match_rules_per_connection": 50_000, "max_replies_per_connection": 50_000,
            "service_start_timeout": Int(serviceStartTimeout / .milliseconds(1)),
        ]
        return """
            <!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
             "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
            <busconfig>
              <type>session</type>
              <listen>unix:path=\(folder("bus"))</listen>
              <auth>EXTERNAL</auth>
              <servicedir>\(folder("services"))</servicedir>
              <policy context="default">
                <allow send_destination="*" eavesdrop="true"/>
                <allow eavesdrop="true"/>
                <allow own="*"/>
              </policy>
            \(limits.map { "  <limit name=\"\($0.key)\">\($0.value)</limit>" }.sorted().joined(separator: "\n"))
            </busconfig>
            """
    }
}
