internal import DBus
internal import EventLoop

/// Examines logind and NetworkManager on the system bus, and the portal that can replace the second.
@BusActor enum MachineExamination {
    private static let logind = "org.freedesktop.login1"
    private static let inhibit = MethodOf(
        "org.freedesktop.login1.Manager", "Inhibit", in: String.self, String.self, String.self, String.self, out: FileDescriptor.self)
    private static let manager = "org.freedesktop.NetworkManager"
    private static let portal = "org.freedesktop.portal.Desktop"
    private static let status = MethodOf("org.freedesktop.portal.NetworkMonitor", "GetStatus", out: [String: Variant].self)

    /// - Parameter session: nil: there is no session bus.
    static func findings(_ session: BusProbe?) async -> [Finding] {
        do throws(DBusError) {
            let system = BusProbe(try await Connection.system(within: BusProbe.patience))
            return [await sleep(system), await network(system, session)]
        } catch {
            let sleep = "the system bus cannot be reached, so the machine may sleep during downloads: \(error.message)"
            return [Finding(.sleep, .missing, sleep), await network(nil, session)]
        }
    }

    /// Takes a lock for a moment, as the service does while bytes move.
    private static func sleep(_ system: BusProbe) async -> Finding {
        guard await system.owner(of: logind) != nil else {
            return Finding(.sleep, .missing, "logind does not run, so the machine may sleep during downloads")
        }
        do throws(DBusError) {
            // The lock ends with its descriptor, which nothing keeps.
            _ = try await system.ask(
                inhibit, on: logind, at: ObjectPath("/org/freedesktop/login1"), ("sleep", "Todoku", "todoku doctor", "block"))
            return Finding(.sleep, .found, "logind keeps the machine awake while files are downloaded")
        } catch {
            return Finding(
                .sleep, .missing, "logind refuses to keep the machine awake: \(error.message)",
                advice: "Run in an active local session, or allow org.freedesktop.login1.inhibit-block-sleep in polkit.")
        }
    }

    private static func network(_ system: BusProbe?, _ session: BusProbe?) async -> Finding {
        if let system, await system.owner(of: manager) != nil {
            do throws(DBusError) {
                let all = try await system.ask(
                    Standard.getAll, on: manager, at: ObjectPath("/org/freedesktop/NetworkManager"), manager)
                let metered = all["Metered"]?.uint32 ?? 0
                return finding(
                    by: "NetworkManager", isCaptive: all["Connectivity"]?.uint32 == 2, isOut: (10...40).contains(all["State"]?.uint32 ?? 0),
                    isMetered: metered == 1 || metered == 3)
            } catch {
                return Finding(
                    .network, .wrong, "NetworkManager does not answer: \(error.message)",
                    advice: "Restart it: sudo systemctl restart NetworkManager.")
            }
        }
        if let session, await session.owner(of: portal) != nil,
            let all = try? await session.ask(status, on: portal, at: ObjectPath("/org/freedesktop/portal/desktop"), ())
        {
            return finding(
                by: "the desktop portal", isCaptive: all["connectivity"]?.uint32 == 3, isOut: all["available"]?.bool == false,
                isMetered: all["metered"]?.bool ?? false)
        }
        return Finding(
            .network, .missing, "neither NetworkManager nor the portal tells whether there is a network, so downloads do not wait for one")
    }

    private static func finding(by teller: String, isCaptive: Bool, isOut: Bool, isMetered: Bool) -> Finding {
        if isCaptive {
            return Finding(
                .network, .wrong, "\(teller) sees a captive portal, so all downloads wait",
                advice: "Log in to the network in a browser.")
        }
        if isOut { return Finding(.network, .missing, "\(teller) sees no network, so downloads wait until it returns") }
        return Finding(.network, .found, "\(teller) sees a network\(isMetered ? ", which is metered" : "")")
    }
}
