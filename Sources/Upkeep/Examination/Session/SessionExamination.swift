internal import DBus
internal import Desktop
internal import EventLoop

/// Examines the programs on the session bus.
@BusActor struct SessionExamination {
    private static let unityName = "com.canonical.Unity"
    private static let jobServer = "org.kde.JobViewServer"

    let bus: BusProbe
    let environment: [String: String]
    let version: String

    init(_ bus: BusProbe, _ environment: [String: String], version: String) {
        (self.bus, self.environment, self.version) = (bus, environment, version)
    }

    // MARK: Toasts

    private enum Notifications {
        static let name = "org.freedesktop.Notifications"
        static let path = ObjectPath("/org/freedesktop/Notifications")
        static let information = MethodOf(
            name, "GetServerInformation", out: String.self, String.self, String.self, String.self)
        static let capabilities = MethodOf(name, "GetCapabilities", out: [String].self)
    }

    func notifications() async -> Finding {
        guard await bus.owner(of: Notifications.name) != nil else {
            if await bus.activatableNames().contains(Notifications.name) {
                return Finding(.notifications, .found, Phrase("no notification server runs; the bus starts one for the first toast"))
            }
            let advice = Phrase("Start a notification server, such as dunst, mako or xfce4-notifyd.")
            return Finding(.notifications, .missing, Phrase("no notification server runs, so no toast is shown"), advice: advice)
        }
        do throws(DBusError) {
            let (name, vendor, version, _) = try await bus.ask(
                Notifications.information, on: Notifications.name, at: Notifications.path, ())
            let capabilities = try await bus.ask(
                Notifications.capabilities, on: Notifications.name, at: Notifications.path, ())
            let traits = Phrase(foreign: toastServerSummary(name: name, vendor: vendor, capabilities: Set(capabilities)))
            return Finding(.notifications, .found, Phrase("\(name) \(version) (\(vendor)): \(traits)"))
        } catch {
            let server = await bus.describeOwner(of: Notifications.name)
            return Finding(
                .notifications, .wrong, Phrase("the notification server, \(server), gives no answer: \(error)"),
                advice: Phrase("End this program, and start it again."))
        }
    }

    // MARK: Panels and docks

    func tray() async -> Finding {
        let (name, path) = ("org.kde.StatusNotifierWatcher", ObjectPath("/StatusNotifierWatcher"))
        let advice = Phrase("Use a panel with a tray (Plasma, Xfce, LXQt, waybar); GNOME needs the extension AppIndicator.")
        guard await bus.owner(of: name) != nil else {
            return Finding(.tray, .missing, Phrase("no tray is there, so todoku-tray shows nothing"), advice: advice)
        }
        let owner = await bus.describeOwner(of: name)
        guard let hasHost = await bus.property("IsStatusNotifierHostRegistered", of: name, on: name, at: path)?.bool else {
            let restart = Phrase("End this program, and start it again.")
            return Finding(.tray, .wrong, Phrase("the watcher of the tray, \(owner), does not answer"), advice: restart)
        }
        guard hasHost else { return Finding(.tray, .missing, Phrase("\(owner) watches for trays, but no panel shows one"), advice: advice) }
        return Finding(.tray, .found, Phrase("\(owner) shows tray items"))
    }

    func dock() async -> Finding {
        guard await bus.owner(of: Self.unityName) != nil else {
            return Finding(
                .dock, .missing, Phrase("no dock or task bar shows count and progress on icons (\(Self.unityName))"),
                advice: Phrase("Use a dock that does: Plasma’s task bar, Dash to Dock for GNOME, or Plank; or use todoku-tray."))
        }
        return Finding(.dock, .found, Phrase("\(await bus.describeOwner(of: Self.unityName)) shows count and progress on icons"))
    }

    func jobs() async -> Finding {
        guard await bus.owner(of: Self.jobServer) != nil else {
            return Finding(
                .jobs, .missing, Phrase("no program shows KDE’s jobs (\(Self.jobServer))"),
                advice: Phrase("Nothing needs to be done outside of Plasma: toasts show progress. In Plasma, log in again."))
        }
        return Finding(.jobs, .found, Phrase("\(await bus.describeOwner(of: Self.jobServer)) shows downloads as jobs"))
    }

    // MARK: The portal

    static let portalName = "org.freedesktop.portal.Desktop"
    private static let portalPath = ObjectPath("/org/freedesktop/portal/desktop")

    func portal() async -> Finding {
        guard await bus.owner(of: Self.portalName) != nil else {
            if await bus.activatableNames().contains(Self.portalName) {
                return Finding(.portal, .found, Phrase("the desktop portal does not run; the bus starts it when an app needs it"))
            }
            return Finding(
                .portal, .missing, Phrase("there is no desktop portal, which opens files of sandboxed apps and runs proxy scripts"),
                advice: Phrase("Install xdg-desktop-portal, and the portal of your desktop."))
        }
        var interfaces: [String] = []
        for interface in ["OpenURI", "NetworkMonitor", "ProxyResolver", "Inhibit"] {
            let full = "org.freedesktop.portal.\(interface)"
            if let version = await bus.property("version", of: full, on: Self.portalName, at: Self.portalPath)?.uint32 {
                interfaces.append("\(interface) \(version)")
            }
        }
        guard !interfaces.isEmpty else {
            return Finding(
                .portal, .wrong,
                Phrase("the desktop portal, \(await bus.describeOwner(of: Self.portalName)), offers nothing that Todoku uses"),
                advice: Phrase("Install the portal of your desktop, such as xdg-desktop-portal-gtk, and restart xdg-desktop-portal."))
        }
        return Finding(.portal, .found, Phrase("the desktop portal has \(interfaces.joined(separator: ", "))"))
    }
}
