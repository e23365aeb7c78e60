internal import DownloadModel

/// The requests at one host, or in the domain of one host rule, and when the next request may start.
final class HostLoad {
    /// The name from `HostRules.governing`.
    let name: String
    var rule: HostRule
    /// Whether the host is this machine, or no host: no network is needed.
    let isLocal: Bool
    /// The number of transfers whose request is at this host.
    var active = 0
    /// How many of these requests add no connection, because they share one with another request.
    private(set) var sharing = 0
    /// The requests on each HTTP/2 connection.
    private var shared: [SharedConnection: Int] = [:]
    /// What is known of the shared connections to each origin.
    private var origins: [String: SharedOrigin] = [:]
    /// Whether a request, or the queued download whose turn it is, lacks only a place to start now. Then no request begins to share a
    /// connection. Each refresh decides it anew, after the redirects that go first.
    var owesPlace = false
    /// The number of these transfers whose server sends nothing.
    var silent = 0
    /// The number of further requests at this host, which `active` does not count.
    var further = 0
    /// The last requests that kept the host's interval; and, by interval, the last requests that kept an interval of their own.
    var pacing = Pacing()
    var requestIntervals: [Duration: Pacing] = [:]

    /// Lanes of the downloads that may start.
    var lanes: [Lane] = []
    /// Requests of running transfers that wait for their turn here.
    var hops: [RequestID] = []
    /// Further requests that wait for a place here.
    var waitingFurther: [RequestID] = []
    var turns = HostTurns()
    /// `HostGate.rulesCount` when `rule` was looked up.
    var rulesCount: UInt64 = 0
    /// The facts that the table of all hosts keeps about this host.
    var listing = HostTable.Listing()
    /// At most this many intervals of downloads are distinguished. A further interval is rounded up, to a known interval or a power of two,
    /// whichever is shorter. So an application with many long intervals at most doubles the interval of another application.
    private static let mostRequestIntervals = 64
    private static let mostOrigins = 64
    /// The regime under which the waits of the queued downloads were announced last: see `Scheduler.review`.
    var regime: Regime?

    private struct SharedOrigin {
        /// The number of shared connections.
        var connections = 0
        /// The requests that must share, and have not told their connection.
        var presumed = 0
        /// The requests that add no connection.
        var sharing = 0
        /// At most so many requests may share, because a further one found no connection with room; nil: not known.
        var room: Int?
    }

    struct Regime: Equatable {
        var isPaced: Bool
        /// 0: no limit, or none that binds.
        var limit: Int
        /// The slowed or paused origins of its lanes.
        var slowed: [String]
    }

    /// The time of the last request of one kind.
    struct Pacing {
        private(set) var last: WallTime?
        /// The last request whose download is not private; only this may be saved.
        private(set) var stored: WallTime?
        /// Started requests that are not known to have gone out. The interval begins only when they have gone out.
        private(set) var unsent: Set<RequestID> = []

        init(last: WallTime? = nil) { (self.last, stored) = (last, last) }

        mutating func started(_ id: RequestID, at now: WallTime, isPrivate: Bool = false) {
            pass(now, isPrivate: isPrivate)
            unsent.insert(id)
        }

        mutating func begins(at now: WallTime, isPrivate: Bool) {
            last = last ?? now
            if !isPrivate { stored = stored ?? now }
        }

        private mutating func pass(_ time: WallTime, isPrivate: Bool) {
            passed(time)
            if !isPrivate { stored = max(stored ?? time, time) }
        }

        /// The next request also keeps the interval from `now`.
        mutating func passed(_ now: WallTime) { last = max(last ?? now, now) }

        mutating func sent(_ id: RequestID, at time: WallTime, isPrivate: Bool = false) {
            if unsent.remove(id) != nil { pass(time, isPrivate: isPrivate) }
        }

        /// Takes over the last request of `other`. Requests in flight stay with `other`.
        mutating func take(_ other: inout Pacing) {
            if let time = other.last { passed(time) }
            if let time = other.stored { pass(time, isPrivate: false) }
            (other.last, other.stored) = (nil, nil)
        }

        mutating func gaveUp(_ id: RequestID) { unsent.remove(id) }

        mutating func shift(by delta: Duration) { (last, stored) = (last.map { $0 + delta }, stored.map { $0 + delta }) }

        /// When the next request may start, `interval` after the last; nil: once the started requests have gone out.
        func next(_ interval: Duration, now: WallTime) -> WallTime? {
            guard interval > .zero else { return now }
            guard unsent.isEmpty else { return nil }
            // The instant is too far in the future: the clock was set back unnoticed.
            guard let last, last <= now + interval else { return now }
            return last + interval + interval / Self.margin
        }

        /// The interval is prolonged by 1/`margin`, so that requests do not reach the host closer together than the interval.
        private static let margin = 64
    }

    /// The connections of the transfers' requests. A request that must share may be the last one on its connection.
    var connections: Int { active - sharing + origins.values.count { $0.presumed > 0 && $0.connections == 0 } }

    /// Whether requests use a connection that others can share.
    var hasSharedConnections: Bool { !shared.isEmpty }

    /// Whether requests use a connection to `origin` that others can share.
    func usesSharedConnection(to origin: String) -> Bool { origins[origin]?.connections ?? 0 > 0 }

    /// Whether a request to `origin` probably shares a connection.
    func hasSharedConnection(to origin: String) -> Bool {
        guard !owesPlace, let known = origins[origin] else { return false }
        return known.connections > 0 && known.sharing < known.room ?? .max
    }

    /// A request to `origin` had to share a connection, and no connection had room for it. Call this after the request has left the host.
    func sharingFailed(at origin: String) {
        guard let known = origins[origin] else { return }
        origins[origin]?.room = min(known.room ?? .max, known.sharing)
    }

    /// Whether requests use this connection.
    func isShared(_ connection: SharedConnection) -> Bool { shared[connection] != nil }

    /// A request has joined a connection to `origin`: a further one may try the same. Call it when the host counts the request there.
    func sharingSucceeded(at origin: String) {
        guard let known = origins[origin], let room = known.room else { return }
        origins[origin]?.room = max(room, known.sharing) +| 1
    }

    /// Forgets what is known of origins that have no shared connection any more.
    func beginRefresh() {
        owesPlace = false
        if !origins.isEmpty { origins = origins.filter { $0.value.connections > 0 || $0.value.presumed > 0 } }
    }

    /// A request that the host counts has come or changed.
    func noteSharing(of request: PlacedRequest) {
        guard let connection = request.shared else {
            if request.isPresumedToShare { countPresumed(at: request.origin, 1) }
            return
        }
        let others = shared[connection] ?? 0
        shared[connection] = others + 1
        guard others == 0 else { return countSharing(at: connection.origin, 1) }
        origins[connection.origin, default: SharedOrigin()].connections += 1
    }

    /// Undoes `noteSharing`.
    func forgetSharing(of request: PlacedRequest) {
        guard let connection = request.shared else {
            if request.isPresumedToShare { countPresumed(at: request.origin, -1) }
            return
        }
        let others = (shared[connection] ?? 1) - 1
        if others > 0 { countSharing(at: connection.origin, -1) } else { origins[connection.origin]?.connections -= 1 }
        shared[connection] = others > 0 ? others : nil
    }

    private func countPresumed(at origin: String, _ change: Int) {
        countSharing(at: origin, change)
        origins[origin]?.presumed += change
    }

    private func countSharing(at origin: String, _ change: Int) {
        sharing += change
        origins[origin, default: SharedOrigin()].sharing += change
    }

    init(name: String, rule: HostRule) { (self.name, self.rule, isLocal) = (name, rule, name.isEmpty || isLoopbackAddress(name)) }

    /// The least time between the starts of two requests; zero: none.
    var interval: Duration { rule.requestInterval ?? .zero }

    /// When the host's next request may start; nil: once the started requests have gone out.
    func opens(now: WallTime) -> WallTime? { pacing.next(interval, now: now) }

    /// When the next request with its own interval `requestInterval` may start; nil: once the started requests have gone out.
    func opens(requestInterval: Duration, now: WallTime) -> WallTime? {
        guard let opens = opens(now: now) else { return nil }
        guard requestInterval > .zero, let pacing = requestIntervals[requestInterval] else { return opens }
        return pacing.next(requestInterval, now: now).map { max($0, opens) }
    }

    /// The interval at which the host counts a download with the interval `requestInterval`.
    func told(apart requestInterval: Duration) -> Duration {
        guard requestInterval > .zero else { return .zero }
        let known = Set(lanes.lazy.map(\.requestInterval)).union(requestIntervals.keys).subtracting([.zero])
        if known.contains(requestInterval) || known.count < Self.mostRequestIntervals { return requestInterval }
        // Powers of two, in milliseconds: few different intervals.
        var longer: Duration = .milliseconds(1)
        while longer < requestInterval { longer = longer * 2 }
        return known.filter { $0 > requestInterval }.min().map { min($0, longer) } ?? longer
    }

    /// Returns `origin` if its downloads get lanes of their own. nil: they share a lane with other origins, and the first download delays
    /// the rest. The number of origins with lanes of their own is bounded, because a host has 65,535 ports, and the domain of a rule has
    /// any number of hosts.
    func told(apart origin: String) -> String? {
        let known = Set(lanes.lazy.compactMap(\.origin))
        return known.contains(origin) || known.count < Self.mostOrigins ? origin : nil
    }

    /// Forgets intervals that delay no request any more, once many are remembered.
    ///
    /// - Returns: the forgotten intervals.
    func forgetRequestIntervals(now: WallTime) -> [Duration] {
        guard requestIntervals.count >= Self.mostRequestIntervals else { return [] }
        let over = requestIntervals.filter { requestInterval, pacing in pacing.next(requestInterval, now: now).map { $0 <= now } ?? false }
            .keys.sorted()
        for requestInterval in over { requestIntervals[requestInterval] = nil }
        return over
    }

    /// The intervals whose last request may be saved; zero: the host's own.
    var pacings: [Duration] { requests.map(\.requestInterval).sorted() }

    /// Started requests that are not known to have gone out.
    var unsent: Set<RequestID> { requestIntervals.values.reduce(into: pacing.unsent) { $0.formUnion($1.unsent) } }

    /// Counts the request `id`, which began at `start`, as not yet known to have gone out.
    func awaitsSent(_ id: RequestID, _ request: PlacedRequest, since start: WallTime) {
        let isPrivate = request.isPrivate
        if interval > .zero { pacing.started(id, at: start, isPrivate: isPrivate) }
        guard request.requestInterval > .zero else { return }
        requestIntervals[request.requestInterval, default: Pacing()].started(id, at: start, isPrivate: isPrivate)
    }

    /// The request `id` starts here.
    ///
    /// - Returns: the rows that must be saved before it goes out. A row of a private download's request would outlive that download.
    func started(_ id: RequestID, _ request: PlacedRequest, now: WallTime) -> [StoreChange] {
        let over = request.requestInterval > .zero ? forgetRequestIntervals(now: now) : []
        awaitsSent(id, request, since: now)
        var saves: [StoreChange] = over.map { .requestOver(host: name, requestInterval: $0) }
        guard !request.isPrivate else { return saves }
        for (kept, row) in [(interval, Duration.zero), (request.requestInterval, request.requestInterval)] where kept > .zero {
            saves.append(.requested(HostRequest(host: name, requestInterval: row, at: now, isSent: false)))
        }
        return saves
    }

    /// The request `id`, which was started here, has gone out.
    ///
    /// - Returns: the rows to save.
    func sent(_ id: RequestID, _ request: PlacedRequest, at time: WallTime) -> [StoreChange] {
        var saves: [StoreChange] = []
        for requestInterval in [.zero, request.requestInterval] {
            guard var pacing = requestInterval == .zero ? self.pacing : requestIntervals[requestInterval], pacing.unsent.contains(id)
            else { continue }
            pacing.sent(id, at: time, isPrivate: request.isPrivate)
            if requestInterval == .zero { self.pacing = pacing } else { requestIntervals[requestInterval] = pacing }
            guard let last = pacing.stored, pacing.unsent.isEmpty else { continue }
            saves.append(.requested(HostRequest(host: name, requestInterval: requestInterval, at: last, isSent: true)))
        }
        return saves
    }

    /// This host no longer counts the request `id`, whether it has gone out or not.
    func gaveUp(_ id: RequestID, requestInterval: Duration) {
        pacing.gaveUp(id)
        requestIntervals[requestInterval]?.gaveUp(id)
    }

    /// Takes over the last requests of `former`, a load of the same host under earlier rules. Requests in flight stay with `former`.
    func inherit(_ former: HostLoad) {
        pacing.take(&former.pacing)
        for requestInterval in former.requestIntervals.keys {
            requestIntervals[requestInterval, default: Pacing()].take(&former.requestIntervals[requestInterval, default: Pacing()])
        }
    }

    /// The last requests that may be saved.
    var requests: [HostRequest] {
        ([(.zero, pacing)] + requestIntervals.map { ($0.key, $0.value) }).compactMap { requestInterval, pacing in
            pacing.stored.map { HostRequest(host: name, requestInterval: requestInterval, at: $0, isSent: pacing.unsent.isEmpty) }
        }
    }

    /// Whether `shift` changes anything, or the host is due at an instant.
    var hasInstants: Bool { pacing.last != nil || !requestIntervals.isEmpty }

    func shift(by delta: Duration) {
        pacing.shift(by: delta)
        for requestInterval in requestIntervals.keys { requestIntervals[requestInterval]?.shift(by: delta) }
    }

    /// Whether the host has no facts worth keeping.
    func isIdle(now: WallTime) -> Bool {
        lanes.isEmpty && active == 0 && further == 0 && hops.isEmpty && waitingFurther.isEmpty && opens(now: now).map { $0 <= now } ?? false
            && requestIntervals.allSatisfy { $0.value.next($0.key, now: now).map { $0 <= now } ?? false }
    }
}
