internal import DBus
internal import DownloadModel
internal import DownloaderInterface
internal import EventLoop

/// Which applications say that their window is in front: each connection for itself, until it says otherwise or leaves the bus.
///
/// Kept in memory only. A service that starts anew knows of none; the app says it again.
@BusActor final class Foreground {
    private let connection: Connection
    private var callers: [String: (subscription: Connection.Subscription, apps: Set<String>)] = [:]
    /// How many connections say it of each app.
    private var counts: [String: Int] = [:] { didSet { changed?() } }
    /// Called when other apps may be in front than before.
    var changed: (() -> Void)?
    /// An app of which no connection said so is in front now.
    var cameToFront: ((String) -> Void)?

    init(connection: Connection) { self.connection = connection }

    /// The apps that are in front.
    var apps: some Collection<String> { counts.keys }

    /// Whether any connection that is on the bus says so.
    func isInFront(_ app: String) -> Bool { counts[app] != nil }

    /// Whether what happens is shown to people: an app in front shows it itself.
    func allows(_ policy: NotifyPolicy, of app: String) -> Bool {
        switch policy {
        case .always: true
        case .never: false
        case .background: !isInFront(app)
        }
    }

    /// - Throws: `InvalidOption` for what is no application id; `LimitExceeded` for too many of one connection.
    func set(_ app: String, _ isInFront: Bool, by sender: String) throws(Refusal) {
        guard !app.isEmpty, app.utf8.count <= 255, !app.unicodeScalars.contains(where: { $0.value < 0x20 || $0.value == 0x7f }) else {
            throw Refusal(.invalidOption, "SetForeground takes the id of an application, such as org.example.App, not “\(shown(app))”.")
        }
        guard isInFront else {
            guard callers[sender]?.apps.remove(app) != nil else { return }
            drop(app)
            if callers[sender]?.apps.isEmpty == true { forget(sender) }
            return
        }
        var caller =
            callers[sender]
            ?? (connection.watchOwner(of: sender) { [weak self] owner in if owner == nil { self?.left(sender) } }, [])
        guard caller.apps.count < Limits.foregroundAppsPerConnection || caller.apps.contains(app) else {
            throw Refusal(
                .limitExceeded, "One connection may report at most \(Limits.foregroundAppsPerConnection) apps as being in front.")
        }
        let isFirst = counts[app] == nil
        if caller.apps.insert(app).inserted { counts[app, default: 0] += 1 }
        callers[sender] = caller
        if isFirst { cameToFront?(app) }
    }

    private func drop(_ app: String) {
        if let count = counts[app] { counts[app] = count > 1 ? count - 1 : nil }
    }

    private func left(_ sender: String) {
        for app in callers[sender]?.apps ?? [] { drop(app) }
        forget(sender)
    }

    private func forget(_ sender: String) {
        if let caller = callers.removeValue(forKey: sender) { connection.unsubscribe(caller.subscription) }
    }
}
