/// How a notification server treats toasts where the specification is silent.
struct ToastServerTraits: Equatable {
    enum Progress: Equatable {
        /// The server updates the toast in place, and draws the hint `value` as a bar next to the text.
        case drawn
        /// The server draws progress badly, so progress toasts are suppressed.
        case none
    }

    enum Sounds: Equatable {
        /// The server plays `sound-name`.
        case server
        /// The server does not play `sound-name`, even if it announces sounds, so Todoku plays the sound.
        case ours
    }

    var progress = Progress.none
    /// The server draws the action `default`, a click on the toast itself, as a button. An action of the same label would appear twice.
    var drawsDefault = false
    /// The server draws actions as buttons. Otherwise a click can reach only `default`.
    var drawsButtons = true
    /// `CloseNotification` removes the toast from the screen.
    var takesAway = true
    var sounds = Sounds.ours
    /// The toast shows the name of its app.
    var namesApp = false
}

/// The only table of known servers. A row has the name and vendor of `GetServerInformation`, and the traits seen on the real program in the
/// version named. No other file checks a server's name.
enum ToastServers {
    private struct Row {
        let name: String
        let vendor: String
        let traits: ToastServerTraits
    }

    /// The traits of unknown servers: what works with all of them. Todoku plays the sound, and sets `suppress-sound` for a server that
    /// would also play it.
    static let unknown = ToastServerTraits()

    private static let rows = [
        // 1.9.0: a bar under the text. No buttons, only a mark "(A)" for existing actions. `dunstctl action 0` invokes the default action.
        Row(name: "dunst", vendor: "knopwob", traits: ToastServerTraits(progress: .drawn, drawsButtons: false)),
        // 1.7.1: the background is the bar. No buttons, and no mark. `makoctl invoke` invokes the default action.
        Row(name: "mako", vendor: "emersion", traits: ToastServerTraits(progress: .drawn, drawsButtons: false)),
        // 0.7.3: the bar hides title and text.
        Row(name: "Xfce Notify Daemon", vendor: "Xfce", traits: ToastServerTraits(drawsDefault: true)),
        // 3.20, of GNOME's old desktop: a closed toast stays on screen, in front of all later toasts. Announces `sound`, but plays none.
        Row(name: "Notification Daemon", vendor: "GNOME", traits: ToastServerTraits(takesAway: false)),
        // 1.26, with the same name: no bar. Announces `sound`, but plays only files, not names.
        Row(name: "Notification Daemon", vendor: "MATE", traits: ToastServerTraits()),
        // 1.2: no bar.
        Row(name: "lxqt-notificationd", vendor: "lxqt.org", traits: ToastServerTraits(drawsDefault: true)),
        // 5.27.5: no bar. The job view (org.kde.JobViewServer) already shows the progress.
        Row(name: "Plasma", vendor: "KDE", traits: ToastServerTraits(namesApp: true)),
        // 43.9: no bar. Reports one click on an updated toast once per update. The only server that plays `sound-name`.
        Row(name: "gnome-shell", vendor: "GNOME", traits: ToastServerTraits(sounds: .server, namesApp: true)),
        // Todoku's own server in a terminal (meson-helpers/run): one line per update, and numbers for buttons.
        Row(name: "todoku-demo", vendor: "Todoku", traits: ToastServerTraits(progress: .drawn)),
    ]

    /// The row with both names. If no row has the vendor, the first row with the name.
    static func traits(name: String, vendor: String) -> ToastServerTraits {
        let ofName = rows.filter { $0.name == name }
        return (ofName.first { $0.vendor == vendor } ?? ofName.first)?.traits ?? unknown
    }
}

/// What toasts can do on a notification server, and what Todoku does because of that, in English; for people.
///
/// - Parameters:
///   - name: as in `GetServerInformation`; so is `vendor`.
///   - capabilities: as in `GetCapabilities`.
public func toastServerSummary(name: String, vendor: String, capabilities: Set<String>) -> String {
    let traits = ToastServers.traits(name: name, vendor: vendor)
    var parts = [capabilities.contains("actions") ? "toasts can be clicked" : "toasts cannot be clicked"]
    parts.append(traits.progress == .drawn ? "a toast shows progress" : "no toast shows progress")
    parts.append(traits.sounds == .server ? "the server plays the sound" : "Todoku plays the sound")
    return parts.joined(separator: ", ")
}
