internal import CSystem
internal import DBus
internal import Desktop
internal import DownloadModel
internal import EventLoop

/// Examines logind and NetworkManager on the system bus, and the portal that can replace the second.
@BusActor enum MachineExamination {
    private static let logind = "org.freedesktop.login1"
    private static let inhibit = MethodOf(
        "org.freedesktop.login1.Manager", "Inhibit", in: String.self, String.self, String.self, String.self, out: FileDescriptor.self)
    private static let manager = "org.freedesktop.NetworkManager"
    private static let portal = "org.freedesktop.portal.Desktop"
    private static let status = MethodOf("org.freedesktop.portal.NetworkMonitor", "GetStatus", out: [String: Variant].self)

    private static let networkAdvice = Phrase("Start NetworkManager, or a desktop portal with org.freedesktop.portal.NetworkMonitor.")

    /// - Parameter session: nil: there is no session bus.
    static func findings(_ session: BusProbe?) async -> [Finding] {
        let keeper = await sessionKeeper(session)
        do throws(DBusError) {
            let system = BusProbe(try await Connection.system(within: BusProbe.patience))
            return [await sleep(system, keeper), await network(system, session)]
        } catch {
            let sleep = without(
                Phrase("the system bus cannot be reached: \(error)"), keeper,
                advice: Phrase("Start the system bus, dbus.service, with logind."))
            return [sleep, await network(nil, session)]
        }
    }

    /// What can keep the session from putting the machine to sleep, in the order in which the service asks (`Awake`); nil: nothing.
    private static func sessionKeeper(_ session: BusProbe?) async -> Phrase? {
        guard let session else { return nil }
        let path = ObjectPath("/org/freedesktop/portal/desktop")
        if await session.owner(of: portal) != nil,
            await session.property("version", of: "org.freedesktop.portal.Inhibit", on: portal, at: path) != nil
        {
            return Phrase("the desktop portal")
        }
        if await session.owner(of: "org.freedesktop.PowerManagement") != nil { return Phrase("the power manager of the session") }
        if await session.owner(of: "org.gnome.SessionManager") != nil { return Phrase("GNOME’s session manager") }
        return nil
    }

    /// Takes a lock for a moment, as the service does while bytes move. The session's keeper is not asked for one: it may show that.
    private static func sleep(_ system: BusProbe, _ keeper: Phrase?) async -> Finding {
        guard await system.owner(of: logind) != nil else {
            return without(Phrase("logind does not run"), keeper, advice: Phrase("Start logind (systemd-logind or elogind)."))
        }
        do throws(DBusError) {
            // The lock ends with its descriptor, which nothing keeps.
            _ = try await system.ask(
                inhibit, on: logind, at: ObjectPath("/org/freedesktop/login1"), ("sleep", "Todoku", "todoku doctor", "block"))
            let session =
                keeper.map { Phrase("in the session, \($0) is asked, too") } ?? Phrase("a desktop may nevertheless choose to sleep")
            return Finding(.sleep, .found, Phrase("logind keeps the machine awake while files are downloaded; \(session)"))
        } catch {
            return without(
                Phrase("logind refuses to keep the machine awake: \(error)"), keeper,
                advice: Phrase("Run in an active local session, or allow org.freedesktop.login1.inhibit-block-sleep in polkit."))
        }
    }

    /// logind does not help.
    private static func without(_ cause: Phrase, _ keeper: Phrase?, advice: Phrase) -> Finding {
        guard let keeper else {
            return Finding(.sleep, .missing, Phrase("the machine may sleep during downloads, because \(cause)"), advice: advice)
        }
        return Finding(.sleep, .found, Phrase("\(keeper) is asked to keep the machine awake while files are downloaded; \(cause)"))
    }

    /// - Parameter hasRoute: tests replace it.
    static func network(
        _ system: BusProbe?, _ session: BusProbe?, hasRoute: () -> Bool = { todoku_has_route() }
    ) async -> Finding {
        if let system, await system.owner(of: manager) != nil {
            do throws(DBusError) {
                let all = try await system.ask(
                    Standard.getAll, on: manager, at: ObjectPath("/org/freedesktop/NetworkManager"), manager)
                return finding(by: Phrase(foreign: "NetworkManager"), NetworkCondition(networkManager: all, hasRoute: hasRoute))
            } catch {
                return Finding(
                    .network, .wrong, Phrase("NetworkManager does not answer: \(error)"),
                    advice: Phrase("Restart it: sudo systemctl restart NetworkManager."))
            }
        }
        if let session, await session.owner(of: portal) != nil,
            let all = try? await session.ask(status, on: portal, at: ObjectPath("/org/freedesktop/portal/desktop"), ())
        {
            return finding(by: Phrase("the desktop portal"), NetworkCondition(portal: all, hasRoute: hasRoute))
        }
        return Finding(
            .network, .missing,
            Phrase("neither NetworkManager nor the portal tells whether there is a network, so downloads do not wait for one"),
            advice: networkAdvice)
    }

    private static func finding(by teller: Phrase, _ condition: NetworkCondition) -> Finding {
        switch condition.reach {
        case .captive:
            return Finding(
                .network, .wrong, Phrase("\(teller) sees a captive portal, so all downloads wait"),
                advice: Phrase("Log in to the network in a browser."))
        case .offline:
            return Finding(
                .network, .missing, Phrase("\(teller) sees no network, so downloads wait until it returns"),
                advice: Phrase("Connect to a network; the downloads resume by themselves."))
        case .limited, .online:
            let network =
                condition.isMetered ? Phrase("\(teller) sees a network, which is metered") : Phrase("\(teller) sees a network")
            return Finding(.network, .found, network)
        }
    }
}
