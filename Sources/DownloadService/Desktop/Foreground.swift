internal import DBus
internal import DownloadModel
internal import DownloaderInterface
internal import EventLoop
internal import Scheduling

/// The applications in front, as they report themselves. A connection's report holds until it reports the opposite or leaves the bus.
///
/// Kept in memory only: after a restart of the service, the apps report again.
@BusActor final class Foreground: DownloadObserver {
    private let connection: Connection
    private var callers: [String: (subscription: Connection.Subscription, apps: Set<String>)] = [:]
    /// By app, the number of connections that report it as being in front.
    private var counts: [String: Int] = [:] { didSet { events.decide(.inFront(apps)) } }
    private let scheduler: Scheduler
    private let events: any EventSink
    private let hold: IdleExit.Hold

    /// - Parameter hold: held while an app in front has unfinished downloads, because after a restart the service would not know that the
    ///   app is in front.
    init(connection: Connection, scheduler: Scheduler, events: any EventSink, hold: IdleExit.Hold) {
        (self.connection, self.scheduler, self.events, self.hold) = (connection, scheduler, events, hold)
    }

    func decided() { hold.isHeld = counts.keys.contains { scheduler.holdings(of: $0).remaining > 0 } }

    /// The apps that are in front.
    var apps: Set<String> { Set(counts.keys) }

    /// Whether any connection on the bus reports `app` as being in front.
    func isInFront(_ app: String) -> Bool { counts[app] != nil }

    /// Whether toasts are shown for `app`. An app in front shows its events itself.
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
        if caller.apps.insert(app).inserted { counts[app, default: 0] += 1 }
        callers[sender] = caller
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
