internal import DBus
internal import DownloadModel
internal import EventLoop
internal import Glibc

/// Starts the user's programs as units of their own, by the systemd that runs this session (org.freedesktop.systemd1(5)).
///
/// A child inherits every restriction of the service: a browser would lose its own sandbox, and a terminal its sudo. A unit is started by
/// systemd, so it inherits nothing, and it survives the service.
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
        // systemd reports changes only to subscribers. It answers a second subscription with an error, and keeps the first.
        _ = try? await connection.call(subscribe, on: name, at: path, (), timeout: patience, starts: false)
        var rule = MatchRule(
            sender: name, path: "\(path.value)/unit/\(ObjectPath.escape(unitName))", interface: Standard.properties,
            member: Standard.propertiesChanged.name)
        rule.argument0 = unit
        let subscription = connection.subscribe(rule) { message in
            guard let (_, changed, _) = Standard.propertiesChanged.read(message), !isQueued(changed) else { return }
            let state = changed["ActiveState"]?.string
            if state == "failed" || state == "inactive" { end.note(hasFailed: state == "failed") }
        }
        defer { connection.unsubscribe(subscription) }
        do throws(DBusError) {
            _ = try await connection.call(
                start, on: name, at: path, (unitName, "fail", properties(program, arguments, environment), []), timeout: patience,
                starts: false)
        } catch { return .noManager }
        return await end.hasFailed(within: complaint) ? .failed : .started
    }

    /// Whether a unit is inactive only because its job has not begun.
    private static func isQueued(_ changed: [String: Variant]) -> Bool {
        guard case .structure(let job)? = changed["Job"], let number = job.first?.uint32 else { return false }
        return number != 0
    }

    private static func properties(_ program: String, _ arguments: [String], _ environment: [String: String]) -> [Property] {
        let command = Variant.structure([.string(program), .strings(arguments.map { literal($0) }), .bool(false)])
        return [
            property("Description", .string("Opened from a download")),
            property("Type", .string("exec")),  // the start fails if the program cannot be run
            property("ExecStart", .array(of: "(sasb)", [command])),
            property("Environment", .strings(passed(environment))),
            // The program that opens the file may be a child of xdg-open, which exits.
            property("KillMode", .string("process")),
            // A program that fails later does not stay in the list of failed units.
            property("CollectMode", .string("inactive-or-failed")),
        ]
    }

    private static func property(_ name: String, _ value: Variant) -> Property { Structure(name, value) }

    /// An argument in which systemd replaces nothing. It would put variables of the environment in place of `$NAME` and `${NAME}`, also in
    /// the URL of a page (systemd.service(5), "Command lines").
    nonisolated static func literal(_ argument: String) -> String {
        var text = String.UnicodeScalarView()
        for scalar in argument.unicodeScalars {
            text.append(scalar)
            if scalar == "$" { text.append(scalar) }
        }
        return String(text)
    }

    /// Variables that systemd sets for one unit, and that would mislead another unit.
    private static let own: Set<String> = [
        "SYSTEMD_EXEC_PID", "INVOCATION_ID", "JOURNAL_STREAM", "NOTIFY_SOCKET", "MAINPID", "MANAGERPID", "LISTEN_FDS", "LISTEN_PID",
        "LISTEN_FDNAMES", "WATCHDOG_PID", "WATCHDOG_USEC", "MEMORY_PRESSURE_WATCH", "MEMORY_PRESSURE_WRITE",
    ]

    /// The variables that systemd accepts. It refuses all of them because of a single wrong one.
    static func passed(_ environment: [String: String]) -> [String] {
        var entries: [String] = []
        for (key, value) in environment.sorted(by: { $0.key < $1.key }) where !own.contains(key) && isName(key) {
            if value.utf8.allSatisfy({ isText($0) }) { entries.append("\(key)=\(value)") }
        }
        return entries
    }

    private nonisolated static func isName(_ name: String) -> Bool {
        guard let first = name.utf8.first, !first.isDigit else { return false }
        return name.utf8.allSatisfy { $0.isLetter || $0.isDigit || $0 == UInt8(ascii: "_") }
    }

    /// Older versions of systemd refuse other control characters.
    private nonisolated static func isText(_ byte: UInt8) -> Bool {
        byte >= 0x20 && byte != 0x7F || byte == UInt8(ascii: "\t") || byte == UInt8(ascii: "\n")
    }
}

/// The end of a unit, which may come before or after the wait for it.
@BusActor private final class UnitEnd {
    private var outcome: Bool?
    private var waiting: CheckedContinuation<Bool, Never>?
    private var timer: Poller.Token?

    func note(hasFailed: Bool) {
        guard outcome == nil else { return }
        outcome = hasFailed
        finish(hasFailed)
    }

    /// False if the unit ends well, or runs after `patience`.
    func hasFailed(within patience: Duration) async -> Bool {
        await withCheckedContinuation { continuation in
            // Check inside this body: the outcome may come between a check before it and this point.
            if let outcome { return continuation.resume(returning: outcome) }
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
