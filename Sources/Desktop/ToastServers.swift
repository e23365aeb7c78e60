/// What a notification server does with a toast beyond the specification, which has no word for most of it.
struct ToastServerTraits: Equatable {
    enum Progress: Equatable {
        /// Updated in place, with the hint `value` as a bar and the text beside it.
        case drawn
        /// A progress toast does more harm than good: there is none.
        case none
    }

    enum Sounds: Equatable {
        /// It plays what `sound-name` says.
        case server
        /// It does not, whatever it announces: we do.
        case ours
    }

    var progress = Progress.none
    /// The key `default`, a click on the toast itself, is drawn as a button beside the others: a second one with its label would stand
    /// there.
    var drawsDefault = false
    /// Actions are drawn as buttons. Elsewhere the only one that a person reaches by a click is `default`.
    var drawsButtons = true
    /// `CloseNotification` takes the toast off the screen.
    var takesAway = true
    var sounds = Sounds.ours
    /// The name of the app that a toast is of stands on it.
    var namesApp = false
}

/// The one table of real servers. A row has the name and vendor of `GetServerInformation`, and why it differs; each was seen on the real
/// program, in the version named. No other file asks for a server's name.
enum ToastServers {
    private struct Row {
        let name: String
        let vendor: String
        let traits: ToastServerTraits
    }

    /// For servers that nobody has looked at: what works with all of them. A sound is ours, with `suppress-sound` for one that would play
    /// it.
    static let unknown = ToastServerTraits()

    private static let rows = [
        // 1.9.0: a bar under the text. No buttons, only a mark "(A)" that there are actions; `dunstctl action 0` takes the default one.
        Row(name: "dunst", vendor: "knopwob", traits: ToastServerTraits(progress: .drawn, drawsButtons: false)),
        // 1.7.1: the background is the bar. No buttons, and no mark; `makoctl invoke` takes the default action.
        Row(name: "mako", vendor: "emersion", traits: ToastServerTraits(progress: .drawn, drawsButtons: false)),
        // 0.7.3: a bar, but title and text vanish with it.
        Row(name: "Xfce Notify Daemon", vendor: "Xfce", traits: ToastServerTraits(drawsDefault: true)),
        // 3.20, of GNOME's old desktop: what is closed stays on screen, in front of all that follow. It announces `sound` and plays none.
        Row(name: "Notification Daemon", vendor: "GNOME", traits: ToastServerTraits(takesAway: false)),
        // 1.26, with the same name: no bar. It announces `sound`, and plays files, but no names.
        Row(name: "Notification Daemon", vendor: "MATE", traits: ToastServerTraits()),
        // 1.2: no bar.
        Row(name: "lxqt-notificationd", vendor: "lxqt.org", traits: ToastServerTraits(drawsDefault: true)),
        // 5.27.5: no bar; progress is in its job view (org.kde.JobViewServer), and would be on screen twice.
        Row(name: "Plasma", vendor: "KDE", traits: ToastServerTraits(namesApp: true)),
        // 43.9: no bar; a toast that was updated tells one click once for each update. The only one that plays `sound-name`.
        Row(name: "gnome-shell", vendor: "GNOME", traits: ToastServerTraits(sounds: .server, namesApp: true)),
        // Ours, in a terminal (meson-helpers/run): a line for each update, and numbers for buttons.
        Row(name: "todoku-demo", vendor: "Todoku", traits: ToastServerTraits(progress: .drawn)),
    ]

    /// The row of both; a vendor that is not there stands for the first of the name.
    static func traits(name: String, vendor: String) -> ToastServerTraits {
        let ofName = rows.filter { $0.name == name }
        return (ofName.first { $0.vendor == vendor } ?? ofName.first)?.traits ?? unknown
    }
}
