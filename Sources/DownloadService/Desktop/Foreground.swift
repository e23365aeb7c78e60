internal import DBus
internal import DownloadModel
internal import DownloaderInterface
internal import EventLoop

/// Which applications are in front, as they say themselves. A connection's word holds until it says otherwise or leaves the bus.
///
/// Kept in memory only: after a restart of the service, the apps say it again.
@BusActor final class Foreground {
    private let connection: Connection
    private var callers: [String: (subscription: Connection.Subscription, apps: Set<String>)] = [:]
    /// How many connections say that an app is in front.
    private var counts: [String: Int] = [:] { didSet { owner?.appsInFrontChanged() } }
    private weak var owner: (any ForegroundOwner)?

    init(connection: Connection) { self.connection = connection }

    /// Tells `owner` of every change from now on.
    func begin(for owner: any ForegroundOwner) { self.owner = owner }

    /// The apps that are in front.
    var apps: some Collection<String> { counts.keys }

    /// Whether any connection on the bus says that `app` is in front.
    func isInFront(_ app: String) -> Bool { counts[app] != nil }

    /// Whether the desktop shows the events of `app`: an app in front shows them itself.
    func allows(_ policy: NotifyPolicy, of app: String) -> Bool {
        switch policy {
        case .always: true
        case .never: false
        case .background: !isInFront(app)
        }
    }

    /// - Throws: `InvalidOption` for an invalid application id; `LimitExceeded` for too many apps of one connection.
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
        if isFirst { owner?.cameToFront(app) }
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

@BusActor protocol ForegroundOwner: AnyObject {
    /// Other apps may be in front now.
    func appsInFrontChanged()
    /// `app` is in front, and was not before by the word of any connection.
    func cameToFront(_ app: String)
}
