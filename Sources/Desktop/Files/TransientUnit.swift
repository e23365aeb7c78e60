internal import DBus
internal import EventLoop
internal import Glibc

/// Starts programs of the user as units of their own, by the systemd that runs this session (org.freedesktop.systemd1(5)).
///
/// A child of a hardened service inherits all that binds the service: a browser would lose its own sandbox, and a terminal its sudo. A unit
/// is started by systemd, so it inherits nothing, and it survives the service.
@BusActor enum TransientUnit {
    /// How a start has ended.
    enum Outcome {
        /// The program runs, or has exited with status 0.
        case started
        /// The program could not be run, or soon exited with another status.
        case failed
        /// systemd does not answer, or refuses.
        case noManager
    }

    private static let name = "org.freedesktop.systemd1"
    private static let path = ObjectPath("/org/freedesktop/systemd1")
    private static let manager = "org.freedesktop.systemd1.Manager"
    private static let unit = "org.freedesktop.systemd1.Unit"
    private typealias Property = Structure<String, Variant>
    private static let subscribe = MethodOf(manager, "Subscribe")
    private static let start = MethodOf(
        manager, "StartTransientUnit", in: String.self, String.self, [Property].self, [Structure<String, [Property]>].self,
        out: ObjectPath.self)
    private static let resetFailed = MethodOf(manager, "ResetFailedUnit", in: String.self)

    /// Whether systemd has started this process as a unit: `SYSTEMD_EXEC_PID` is the process that it has started (systemd.exec(5)), and
    /// children inherit the variable.
    nonisolated static func isOurs(_ environment: [String: String]) -> Bool { environment["SYSTEMD_EXEC_PID"] == "\(getpid())" }

    /// Starts a program.
    ///
    /// - Parameters:
    ///   - arguments: the absolute path of the program, and its arguments.
    ///   - complaint: how long to wait for an error. The program may run for any time.
    ///   - patience: the longest wait for systemd.
    static func run(
        _ arguments: [String], environment: [String: String], on connection: Connection, within patience: Duration, complaint: Duration
    ) async -> Outcome {
        guard let program = arguments.first else { return .failed }
        let unitName = "todoku-open-\(String(UInt64.random(in: .min ... .max), radix: 16)).service"
        let end = UnitEnd()
        // systemd reports changes only to subscribers. A second subscription is an error that changes nothing.
        _ = try? await connection.call(subscribe, on: name, at: path, (), timeout: patience, starts: false)
        var rule = MatchRule(
            sender: name, path: "\(path.value)/unit/\(ObjectPath.escape(unitName))", interface: Standard.properties,
            member: Standard.propertiesChanged.name)
        rule.argument0 = unit
        let subscription = connection.subscribe(rule) { message in
            guard let (_, changed, _) = Standard.propertiesChanged.read(message), let state = changed["ActiveState"]?.string else { return }
            if state == "failed" || state == "inactive" { end.take(hasFailed: state == "failed") }
        }
        defer { connection.unsubscribe(subscription) }
        do throws(DBusError) {
            _ = try await connection.call(
                start, on: name, at: path, (unitName, "fail", properties(program, arguments, environment), []), timeout: patience,
                starts: false)
        } catch { return .noManager }
        guard await end.hasFailed(within: complaint) else { return .started }
        // A failed unit would stay in the list of units.
        try? connection.tell(resetFailed, on: name, at: path, unitName)
        return .failed
    }

    private static func properties(_ program: String, _ arguments: [String], _ environment: [String: String]) -> [Property] {
        let command = Variant.structure([.string(program), .strings(arguments), .bool(false)])
        return [
            Property("Description", .string("Opened from a download")),
            Property("Type", .string("exec")),  // the start fails if the program cannot be run
            Property("ExecStart", .array(of: "(sasb)", [command])),
            Property("Environment", .strings(passed(environment))),
            // The program that opens the file may be a child of xdg-open, which exits.
            Property("KillMode", .string("process")),
        ]
    }

    /// Variables that systemd sets for a unit, and that would mislead another one.
    private static let own: Set<String> = [
        "SYSTEMD_EXEC_PID", "INVOCATION_ID", "JOURNAL_STREAM", "NOTIFY_SOCKET", "MAINPID", "MANAGERPID", "LISTEN_FDS", "LISTEN_PID",
        "LISTEN_FDNAMES", "WATCHDOG_PID", "WATCHDOG_USEC", "MEMORY_PRESSURE_WATCH", "MEMORY_PRESSURE_WRITE",
    ]

    /// The variables as systemd takes them. It refuses all of them if one has a control character or another kind of name.
    static func passed(_ environment: [String: String]) -> [String] {
        environment.sorted { $0.key < $1.key }.compactMap { key, value in
            guard !own.contains(key), !key.isEmpty, key.utf8.first.map({ !(0x30...0x39).contains($0) }) ?? false,
                key.utf8.allSatisfy({ $0 == UInt8(ascii: "_") || (0x30...0x39).contains($0) || (0x41...0x5A).contains($0 & 0xDF) }),
                value.utf8.allSatisfy({ $0 >= 0x20 && $0 != 0x7F || $0 == UInt8(ascii: "\t") || $0 == UInt8(ascii: "\n") })
            else { return nil }
            return "\(key)=\(value)"
        }
    }
}

/// The end of a unit, which may come before or after the wait for it.
@BusActor private final class UnitEnd {
    private var outcome: Bool?
    private var waiting: CheckedContinuation<Bool, Never>?
    private var timer: Poller.Token?

    func take(hasFailed: Bool) {
        guard outcome == nil else { return }
        outcome = hasFailed
        finish(hasFailed)
    }

    /// False if the unit ends well, or runs after `patience`.
    func hasFailed(within patience: Duration) async -> Bool {
        if let outcome { return outcome }
        return await withCheckedContinuation { continuation in
            waiting = continuation
            timer = Poller.shared.schedule(after: patience) { [self] in finish(false) }
        }
    }

    private func finish(_ hasFailed: Bool) {
        if let timer { Poller.shared.cancel(timer) }
        timer = nil
        waiting?.resume(returning: hasFailed)
        waiting = nil
    }
}
