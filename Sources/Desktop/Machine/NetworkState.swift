public import DBus
public import DownloadModel
public import EventLoop

/// Whether this machine has a network, and whether the network is metered. NetworkManager answers, else the desktop portal. Without both,
/// no download is held back.
///
/// Signals only trigger a call. Only the answer to the call counts as the state.
@BusActor public final class NetworkState {
    /// The longest wait for the first answer before the network counts as open. Without any answering program the bus replies at once. A
    /// program may be slow at login, and a download that starts too early behind a captive portal would fetch the login page.
    public static let patience: Duration = .seconds(10)
    /// How often a program that does not answer in time is asked. The last known state holds meanwhile.
    private static let tries = 3
    /// How long NetworkManager's last answer holds after NetworkManager has gone, because it may be restarting.
    static let grace: Duration = .seconds(10)
    /// How long the watch continues after the last need.
    static let linger: Duration = .seconds(3)

    private let system: SystemBus
    private let session: Connection
    private let watchRoutes: @BusActor (_ changed: @escaping @BusActor () -> Void) -> RouteWatch?
    private let hasRoute: @BusActor () -> Bool
    private let report: @BusActor (NetworkCondition?) -> Void

    private var isNeeded = false
    private var told: NetworkCondition?
    private var lingerTimer: Poller.Token?
    /// Limits the wait for the first answer. NetworkManager may restart meanwhile.
    private var patienceTimer: Poller.Token?
    /// Limits the wait for NetworkManager's return.
    private var waitTimer: Poller.Token?
    private var member: SystemBus.Member?
    private var bus: Connection?
    private var peer: BusPeer?
    private var portalPeer: BusPeer?
    /// The subscription to change signals, and its connection.
    private var news: (connection: Connection, subscription: Connection.Subscription)?
    private var askAgain: (@BusActor () -> Void)?
    /// While offline: waits for a route.
    private var routes: RouteWatch?
    /// Increases with each question. An answer to an earlier question is discarded.
    private var asked: UInt64 = 0
    private var isManagerThere = false

    /// - Parameters:
    ///   - watchRoutes: replaced by tests, to simulate a changed route.
    ///   - hasRoute: whether the kernel has a route out. With a route the network is not offline, whatever NetworkManager says, because
    ///     NetworkManager ignores links that others manage.
    ///   - report: called with each change; with nil when the watch ends.
    public init(
        system: SystemBus, session: Connection,
        watchRoutes: @escaping @BusActor (_ changed: @escaping @BusActor () -> Void) -> RouteWatch? = { RouteWatch($0) },
        hasRoute: @escaping @BusActor () -> Bool, report: @escaping @BusActor (NetworkCondition?) -> Void
    ) {
        (self.system, self.session, self.hasRoute, self.report) = (system, session, hasRoute, report)
        self.watchRoutes = watchRoutes
    }

    /// Sets whether any download uses, or waits to use, the network. Cheap if nothing has changed.
    public func needed(_ isNeeded: Bool) {
        if isNeeded {
            if let lingerTimer { Poller.shared.cancel(lingerTimer) }
            lingerTimer = nil
            if !self.isNeeded { begin() }
        } else if self.isNeeded, lingerTimer == nil {
            lingerTimer = Poller.shared.schedule(after: Self.linger) { [self] in
                lingerTimer = nil
                end()
            }
        }
    }

    private func begin() {
        isNeeded = true
        patienceTimer = Poller.shared.schedule(after: Self.patience) { [self] in
            patienceTimer = nil
            tell(.open)
        }
        member = system.join { [weak self] in self?.found($0) }
    }

    private func end() {
        isNeeded = false
        stopWaiting()
        forgetPortal()
        forgetManager()
        if let member { system.leave(member) }
        member = nil
        tell(nil)
    }

    private func tell(_ condition: NetworkCondition?) {
        if let patienceTimer { Poller.shared.cancel(patienceTimer) }
        patienceTimer = nil
        guard condition != told else { return }
        told = condition
        report(condition)
    }

    private func wait(_ delay: Duration, _ then: @escaping @BusActor () -> Void) {
        stopWaiting()
        waitTimer = Poller.shared.schedule(after: delay) { [self] in
            waitTimer = nil
            then()
        }
    }

    private func stopWaiting() {
        if let waitTimer { Poller.shared.cancel(waitTimer) }
        waitTimer = nil
    }

    /// Asks now, and after each signal that matches `rule` and passes `isNews`.
    private func listen(
        on connection: Connection, _ rule: MatchRule, isNews: @escaping @BusActor (Message) -> Bool,
        asking question: @escaping @BusActor () async throws(DBusError) -> Answer
    ) {
        stopListening()
        let subscription = connection.subscribe(rule) { [weak self] message in
            if isNews(message) { self?.ask(question) }
        }
        news = (connection, subscription)
        askAgain = { [weak self] in self?.ask(question) }
        ask(question)
    }

    private func stopListening() {
        asked += 1
        if let news { news.connection.unsubscribe(news.subscription) }
        (news, askAgain, routes) = (nil, nil, nil)
    }

    private func ask(_ question: @escaping @BusActor () async throws(DBusError) -> Answer) {
        asked += 1
        let mine = asked
        BusActor.spawn { [weak self] in
            var answer = Answer(condition: .open)
            for _ in 1...Self.tries {
                do throws(DBusError) {
                    answer = try await question()
                    break
                } catch { guard error.name == "org.freedesktop.DBus.Error.NoReply", let self, mine == asked else { break } }
            }
            guard let self, mine == asked else { return }
            // NetworkManager has restarted and is still looking at its links: keep its earlier answer until the timer ends.
            if told != nil, waitTimer != nil, !answer.isSettled { return }
            stopWaiting()
            tell(answer.condition)
            if answer.condition.reach == .offline { awaitRoute() } else { routes = nil }
        }
    }

    /// Asks again once the kernel has a route. A link that NetworkManager ignores may get one at any time, and no program signals that.
    private func awaitRoute() {
        guard routes == nil else { return }
        routes = watchRoutes { [weak self] in self?.routesChanged() }
        routesChanged()  // the route may have come before the watch began
    }

    private func routesChanged() {
        guard hasRoute() else { return }
        routes = nil
        askAgain?()
    }

    // MARK: NetworkManager

    private func found(_ connection: Connection?) {
        forgetManager()
        bus = connection
        guard let connection else { return manager(is: nil) }
        peer = BusPeer(Manager.name, on: connection) { [weak self] in self?.manager(is: $0) }
    }

    private func forgetManager() {
        if isManagerThere { stopListening() }
        isManagerThere = false
        peer?.stop()
        (peer, bus) = (nil, nil)
    }

    private func manager(is owner: String?) {
        guard let owner, let bus else {
            guard isManagerThere else { return lookAtPortal() }
            isManagerThere = false
            stopListening()
            wait(Self.grace) { [self] in if isManagerThere { askAgain?() } else { lookAtPortal() } }
            return
        }
        forgetPortal()
        isManagerThere = true
        var rule = MatchRule(sender: owner, path: Manager.path.value, interface: Standard.properties, member: "PropertiesChanged")
        rule.argument0 = Manager.interface
        listen(on: bus, rule) { message in
            guard let (_, changed, invalidated) = Standard.propertiesChanged.read(message) else { return false }
            return Manager.properties.contains { changed[$0] != nil || invalidated.contains($0) }
        } asking: { [weak self] () throws(DBusError) in
            let all = try await bus.call(Standard.getAll, on: owner, at: Manager.path, Manager.interface)
            return Manager.answer(all) { self?.hasRoute() ?? true }
        }
    }

    // MARK: The portal

    private func lookAtPortal() {
        guard isNeeded, portalPeer == nil else { return }
        portalPeer = BusPeer(Portal.name, on: session) { [weak self] in self?.portal(is: $0) }
    }

    private func forgetPortal() {
        guard let portalPeer else { return }
        portalPeer.stop()
        self.portalPeer = nil
        stopListening()
    }

    private func portal(is owner: String?) {
        guard let owner else {
            stopListening()
            stopWaiting()
            return tell(.open)
        }
        let rule = MatchRule(sender: owner, path: Portal.path.value, interface: Portal.interface, member: "changed")
        listen(on: session, rule) { _ in
            true
        } asking: { [weak self, session] () throws(DBusError) in
            let status = try await session.call(Portal.getStatus, on: owner, at: Portal.path, ())
            return Portal.answer(status) { self?.hasRoute() ?? true }
        }
    }
}

/// A program's answer.
private struct Answer {
    let condition: NetworkCondition
    /// Whether the answer is final; false while NetworkManager is still looking at its links.
    var isSettled = true
}

/// The members of NetworkManager that we use (its D-Bus API, org.freedesktop.NetworkManager).
private enum Manager {
    static let name = "org.freedesktop.NetworkManager"
    static let path = ObjectPath("/org/freedesktop/NetworkManager")
    static let interface = name
    static let properties = ["State", "Connectivity", "Metered"]

    @BusActor static func answer(_ all: [String: Variant], hasRoute: () -> Bool) -> Answer {
        Answer(condition: NetworkCondition(networkManager: all, hasRoute: hasRoute), isSettled: all["State"]?.uint32 ?? 0 >= 50)
    }
}

/// The members of the portal that we use (org.freedesktop.portal.NetworkMonitor, version 3).
private enum Portal {
    static let name = "org.freedesktop.portal.Desktop"
    static let path = ObjectPath("/org/freedesktop/portal/desktop")
    static let interface = "org.freedesktop.portal.NetworkMonitor"
    static let getStatus = MethodOf(interface, "GetStatus", out: [String: Variant].self)

    @BusActor static func answer(_ status: [String: Variant], hasRoute: () -> Bool) -> Answer {
        Answer(condition: NetworkCondition(portal: status, hasRoute: hasRoute))
    }
}

/// The service decides by these rules, and the doctor reports by them.
extension NetworkCondition {
    /// `State`: 10 asleep, 20 disconnected, 30 disconnecting, 40 connecting, 50 to 70 connected. `Connectivity`: 1 none, 2 captive portal,
    /// 3 limited, 4 full. `Metered`: 1 yes, 3 presumably. 0 in any of them: unknown.
    ///
    /// - Parameters:
    ///   - all: the properties of NetworkManager.
    ///   - hasRoute: whether the kernel has a route out, see `NetworkState.init`.
    public init(networkManager all: [String: Variant], hasRoute: () -> Bool) {
        let state = all["State"]?.uint32 ?? 0
        let connectivity = all["Connectivity"]?.uint32 ?? 0
        let metered = all["Metered"]?.uint32 ?? 0
        let isOut = (10...40).contains(state) || connectivity == 1
        let isLimited = (50...60).contains(state) || connectivity == 3
        let reach: Reach = if connectivity == 2 { .captive } else if isOut, !hasRoute() { .offline } else { isLimited ? .limited : .online }
        self.init(reach: reach, isMetered: metered == 1 || metered == 3)
    }

    /// `connectivity`: 1 local only, 2 limited, 3 captive portal, 4 full.
    ///
    /// - Parameters:
    ///   - status: the answer of `GetStatus`.
    ///   - hasRoute: whether the kernel has a route out, see `NetworkState.init`.
    public init(portal status: [String: Variant], hasRoute: () -> Bool) {
        let isCaptive = status["connectivity"]?.uint32 == 3
        let isOut = status["available"]?.bool == false
        let isLimited = (1...2).contains(status["connectivity"]?.uint32 ?? 0)
        let reach: Reach = if isCaptive { .captive } else if isOut, !hasRoute() { .offline } else { isLimited ? .limited : .online }
        self.init(reach: reach, isMetered: status["metered"]?.bool ?? false)
    }
}
