internal import DBus
internal import EventLoop

/// The environment variables that the service has, or would be started with. A shell may have other variables.
struct StartEnvironment: Sendable {
    /// Who has told the variables.
    enum Source: Equatable, Sendable {
        /// The service, which runs.
        case service
        /// systemd, which would start it.
        case systemd
        /// The process of the session bus, which would start it. Variables that the bus was given later cannot be seen.
        case bus
        /// This command, because nobody else can be asked.
        case command
    }

    var variables: [String: String]
    var source: Source

    /// Where the variables come from, as the end of a finding.
    var origin: Phrase {
        switch source {
        case .service: Phrase("by the environment of the service")
        case .systemd: Phrase("by the environment that systemd starts the service with")
        case .bus: Phrase("by the environment of the session bus, which starts the service")
        case .command: Phrase("by the environment of this command; that of the service is not known")
        }
    }

    /// How to give the service variables of this shell.
    func advice(for names: [String]) -> Phrase {
        let command = "dbus-update-activation-environment --systemd \(names.joined(separator: " "))"
        return source == .service
            ? Phrase("Give the session the variables of this shell: \(command), and end the service; the next call starts it.")
            : Phrase("Give the session the variables of this shell: \(command).")
    }
}

extension SessionExamination {
    private static let manager = "org.freedesktop.systemd1.Manager"

    /// - Parameters:
    ///   - running: the environment of the service; nil: it does not run, or cannot be seen.
    ///   - unit: whether the bus has systemd start the service.
    func startEnvironment(running: [String: String]?, unit: Bool) async -> StartEnvironment {
        if let running { return StartEnvironment(variables: running, source: .service) }
        if unit {
            let told = await bus.property(
                "Environment", of: Self.manager, on: "org.freedesktop.systemd1", at: ObjectPath("/org/freedesktop/systemd1"))
            if let told = told?.strings { return StartEnvironment(variables: Self.variables(told), source: .systemd) }
        } else if let number = await bus.process(of: BusDaemon.name) {
            let process = await Pool.programs.value(within: BusProbe.patience) { ObservedProcess(number) }
            if let told = process?.environment { return StartEnvironment(variables: told, source: .bus) }
        }
        return StartEnvironment(variables: environment, source: .command)
    }

    private static func variables(_ entries: [String]) -> [String: String] {
        var variables: [String: String] = [:]
        for entry in entries {
            let parts = entry.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false).map(String.init)
            if parts.count == 2 { variables[parts[0]] = parts[1] }
        }
        return variables
    }
}
