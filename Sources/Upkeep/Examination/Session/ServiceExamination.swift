internal import DBus
internal import DownloaderInterface
internal import EventLoop
internal import Glibc

/// How the bus starts the service, and who owns its name.
extension SessionExamination {
    /// The longest wait for the bus to start the service.
    private static let startPatience: Duration = .seconds(25)
    private static let program = "todokud"
    private static let hiddenFolders = "--allow-hidden-folders"

    /// - Parameter starting: whether to start the service.
    func service(starting: Bool) async -> ([Finding], RunningService) {
        let environment = environment
        let found = await Pool.programs.value(within: BusProbe.patience) { ActivationFile.find(environment) }
        let file: ActivationFile? = found ?? nil  // nil also if the disk of such a file does not answer
        let canStart = await bus.activatableNames().contains(BusName.service)
        var findings = [await activation(file, canStart: canStart)]
        if starting, let failure = await start() { findings.append(failure) }
        var (finding, running) = await owner(file, canStart: canStart)
        findings.append(finding)
        let isUnit = await hasSystemd() && file?.unit != nil
        running.start = await startEnvironment(running: running.environment, unit: isUnit)
        findings.append(await unit(file))
        return (findings, running)
    }

    private func activation(_ file: ActivationFile?, canStart: Bool) async -> Finding {
        guard canStart else {
            if let file {
                let text = Phrase("the bus does not know \(BusName.service), although there is \(file.path)")
                let call = "busctl --user call \(BusDaemon.name) \(BusDaemon.path.value) \(BusDaemon.name) ReloadConfig"
                return Finding(.activation, .wrong, text, advice: Phrase("Have the bus read its files: \(call)."))
            }
            return Finding(
                .activation, .wrong, Phrase("the bus cannot start \(BusName.service): it has no activation file"),
                advice: Phrase("Install Todoku, or add the share folder of its prefix to XDG_DATA_DIRS before the login."))
        }
        guard let file else {
            return Finding(.activation, .found, Phrase("the bus starts \(BusName.service); its file is in none of the usual folders"))
        }
        let program = file.program
        let answer = await Pool.programs.value(within: BusProbe.patience) { access(program, X_OK) == 0 }
        guard let isThere = answer else {
            return Finding(
                .activation, .wrong, Phrase("the disk of \(program), which \(file.path) starts, does not answer"),
                advice: Phrase("Check this disk, or the server that shares it."))
        }
        guard isThere else {
            return Finding(
                .activation, .wrong, Phrase("\(file.path) starts “\(program)”, which is no program that may be run"),
                advice: Phrase("Install todokud there, or delete the file if another installation is meant."))
        }
        return Finding(.activation, .found, Phrase("\(file.path) starts \(program)"))
    }

    /// nil: it runs.
    private func start() async -> Finding? {
        do throws(DBusError) {
            _ = try await bus.connection.call(
                BusDaemon.startServiceByName, on: BusDaemon.name, at: BusDaemon.path, (BusName.service, 0), timeout: Self.startPatience)
            return nil
        } catch {
            return Finding(
                .service, .wrong, Phrase("the service cannot be started: \(error)"),
                advice: Phrase("Read its messages (journalctl --user -u todokud), or run todokud in a terminal."))
        }
    }

    private func owner(_ file: ActivationFile?, canStart: Bool) async -> (Finding, RunningService) {
        var running = RunningService()
        guard await bus.owner(of: BusName.service) != nil else {
            running.allowsHiddenFolders = await startWords(file).contains(Self.hiddenFolders)
            return canStart
                ? (Finding(.service, .found, Phrase("the service does not run; the first call starts it")), running)
                : (
                    Finding(
                        .service, .missing, Phrase("the service does not run, and the bus cannot start it"),
                        advice: Phrase("Mend the activation; see its line above.")), running
                )
        }
        guard let number = await bus.process(of: BusName.service),
            let process = await Pool.programs.value(within: BusProbe.patience, { ObservedProcess(number) })
        else {
            let text = Phrase("the bus does not tell which process owns \(BusName.service)")
            return (Finding(.service, .wrong, text, advice: Phrase("Log out and in again.")), running)
        }
        let name = process.program?.split(separator: "/").last.map(String.init)
        guard name == nil || name == Self.program else {
            let text = Phrase("\(process.phrase) owns \(BusName.service), but is not \(Self.program)")
            let advice = Phrase("End that program (kill \(number)); the next call starts \(Self.program).")
            return (Finding(.service, .wrong, text, advice: advice), running)
        }
        running.environment = process.environment
        running.allowsHiddenFolders = process.arguments.contains(Self.hiddenFolders)
        do throws(DBusError) {
            running.properties = try await bus.ask(
                Standard.getAll, on: BusName.service, at: BusName.managerPath, Manager.interface)
        } catch {
            let advice = Phrase("End it (kill \(number)); the next call starts it again, and unfinished downloads resume.")
            return (Finding(.service, .wrong, Phrase("\(process.phrase) does not answer: \(error)"), advice: advice), running)
        }
        return (await judge(process, file, running), running)
    }

    private func judge(_ process: ObservedProcess, _ file: ActivationFile?, _ running: RunningService) async -> Finding {
        let advice = Phrase("End it (kill \(process.number)); the next call starts the new one, and unfinished downloads resume.")
        let version = running.properties[Manager.version.name]?.string
        guard version == self.version else {
            let told = version.map { Phrase(foreign: $0) } ?? Phrase("of an unknown version")
            let text = Phrase("\(process.phrase) is \(told), and this command is \(self.version)")
            return Finding(.service, .wrong, text, advice: advice)
        }
        guard !process.isReplaced else {
            return Finding(
                .service, .wrong, Phrase("the program of \(process.phrase) was replaced after the service had started"), advice: advice)
        }
        if let own = process.program, let wanted = file?.program {
            let found = await Pool.programs.value(within: BusProbe.patience) { Paths.real(wanted) }
            let real: String? = found ?? nil
            if let real, real != own {
                let text = Phrase("\(process.phrase) is running, but the bus would start \(wanted)")
                return Finding(.service, .wrong, text, advice: Phrase("End it (kill \(process.number)) if \(wanted) is the right program."))
            }
        }
        return Finding(.service, .found, Phrase("\(process.phrase) is version \(self.version)"))
    }

    // MARK: The unit

    private static let systemd = "org.freedesktop.systemd1"
    private static let unitFileState = MethodOf(
        "org.freedesktop.systemd1.Manager", "GetUnitFileState", in: String.self, out: String.self)

    private static let loadUnit = MethodOf("org.freedesktop.systemd1.Manager", "LoadUnit", in: String.self, out: ObjectPath.self)

    /// The words of the command lines that start the service, as far as they can be seen.
    private func startWords(_ file: ActivationFile?) async -> [String] {
        guard let file else { return [] }
        guard let unit = file.unit, await hasSystemd() else { return file.arguments }
        guard let path = try? await bus.ask(Self.loadUnit, on: Self.systemd, at: ObjectPath("/org/freedesktop/systemd1"), unit),
            case .array(_, let commands)? = await bus.property(
                "ExecStart", of: "org.freedesktop.systemd1.Service", on: Self.systemd, at: path)
        else { return [] }
        return commands.flatMap { command -> [String] in
            // The program, its arguments, and the course of its last run.
            guard case .structure(let fields) = command, fields.count > 1 else { return [] }
            return fields[1].strings ?? []
        }
    }

    private func hasSystemd() async -> Bool { await bus.owner(of: Self.systemd) != nil }

    private func unit(_ file: ActivationFile?) async -> Finding {
        guard await hasSystemd() else {
            return Finding(
                .unit, .missing,
                Phrase("systemd does not run this session, so the bus itself starts the service, and nothing restricts it"),
                advice: Phrase(
                    "Nothing needs to be done. A session with systemd --user (package dbus-user-session) would restrict the service."))
        }
        guard let unit = file?.unit else {
            return Finding(
                .unit, .missing,
                Phrase("the activation file names no unit of systemd, so the bus itself starts the service, and nothing restricts it"),
                advice: Phrase("Install Todoku with its unit, todokud.service, and the line SystemdService=todokud.service in this file."))
        }
        do throws(DBusError) {
            let state = try await bus.ask(
                Self.unitFileState, on: Self.systemd, at: ObjectPath("/org/freedesktop/systemd1"), unit)
            guard !state.hasPrefix("masked") else {
                let advice = Phrase("Allow it: systemctl --user unmask \(unit).")
                return Finding(.unit, .wrong, Phrase("\(unit) is masked, so the service cannot start"), advice: advice)
            }
            return Finding(.unit, .found, Phrase("systemd starts the service as \(unit)"))
        } catch {
            return Finding(
                .unit, .wrong, Phrase("systemd does not know \(unit), which the activation file names: \(error)"),
                advice: Phrase("Run systemctl --user daemon-reload; if that does not help, install the unit again."))
        }
    }
}
