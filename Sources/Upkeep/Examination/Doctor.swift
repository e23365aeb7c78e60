internal import DBus
public import EventLoop

/// Examines a session: whether the service can be started, and which programs, folders and libraries it would find.
///
/// The service need not run, and is not started unless that is asked for. Where the proxy settings need the desktop portal, the bus may
/// start the portal, as for a download. Each wait for another program, a disk or a library has a time limit, so an examination ends even if
/// all of them hang. It changes nothing.
@BusActor public final class Doctor {
    private let version: String
    private let startsService: Bool
    private let environment: [String: String]
    private let tell: @BusActor (Finding) -> Void
    private var findings: [Finding] = []

    /// - Parameters:
    ///   - version: the version of the command, which the running service should have too.
    ///   - startsService: whether the service is started, to prove that the bus can start it.
    ///   - tell: called with each finding as soon as it is known.
    public init(version: String, startsService: Bool, tell: @escaping @BusActor (Finding) -> Void) {
        (self.version, self.startsService, self.tell) = (version, startsService, tell)
        environment = processEnvironment()
    }

    /// Call once.
    ///
    /// - Returns: all findings.
    public func examine() async -> [Finding] {
        let (session, running) = await examineSession()
        note(await SoundExamination.finding(environment))
        let start = running.start ?? StartEnvironment(variables: environment, source: .command)
        note(await OpeningExamination.finding(start, session))
        note(await MachineExamination.findings(session))
        if let session { note(await ProxyExamination.findings(session, start, shell: environment)) }
        note(await CertificateExamination.finding(start.variables))
        note(await FolderExamination(environment, running).findings())
        note(await LibraryExamination.findings())
        return findings
    }

    private func note(_ finding: Finding) {
        findings.append(finding)
        tell(finding)
    }

    private func note(_ several: [Finding]) { for finding in several { note(finding) } }

    /// - Returns: no probe if there is no session bus.
    private func examineSession() async -> (BusProbe?, RunningService) {
        let bus: BusProbe
        do throws(DBusError) {
            bus = BusProbe(try await Connection.anotherToSession(within: BusProbe.patience))
        } catch {
            let advice = Phrase("Run the command in a desktop session, or below dbus-run-session.")
            note(Finding(.bus, .wrong, Phrase("the session bus cannot be reached: \(error)"), advice: advice))
            return (nil, RunningService())
        }
        note(Finding(.bus, .found, Phrase("the session bus answers")))
        let examination = SessionExamination(bus, environment, version: version)
        let (service, running) = await examination.service(starting: startsService)
        note(service)
        note(await examination.notifications())
        note(await examination.tray())
        note(await examination.dock())
        note(await examination.jobs())
        note(await examination.portal())
        return (bus, running)
    }
}

/// What is known of the service while it runs.
struct RunningService: Sendable {
    /// The properties of `org.todoku.Downloader1`; empty: the service does not run, or does not answer.
    var properties: [String: Variant] = [:]
    /// The environment that the service was started with; nil: unknown.
    var environment: [String: String]?
    /// The environment that the service has, or would get; nil: there is no session bus.
    var start: StartEnvironment?
    /// Whether the service accepts hidden folders, or would accept them after a start.
    var allowsHiddenFolders = false
}
