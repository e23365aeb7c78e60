internal import DownloadModel

/// What is under way at one host, or in the domain of one rule, and when its next request may start.
final class HostLoad {
    /// As `HostRules.governing` gives it.
    let name: String
    var rule: HostRule
    /// Whether it is this machine, or nobody: no network stands between.
    let isLocal: Bool
    /// Transfers whose request is here.
    var active = 0
    /// Those of them to which the server sends nothing.
    var silent = 0
    /// The starts of requests that kept the host's interval, and of those that kept an interval of their own.
    var pacing = Pacing()
    var spacings: [Duration: Pacing] = [:]

    /// Its downloads that may start, apart by application and own interval.
    var lanes: [Lane] = []
    /// Transfers under way whose next request waits for its turn.
    var hops: [RequestID] = []
    var turns = HostTurns()
    /// When it is to be looked at again; the entry of `hostWakes` that counts.
    var wakeAt: WallTime?
    /// So many different own intervals are told apart; what comes beyond that keeps a longer one, which is there or is shared by many.
    private static let mostSpacings = 64
    private static let mostOrigins = 64
    /// What its downloads were last reviewed by: see `Ledger.review`.
    var regime: Regime?

    struct Regime: Equatable {
        var isPaced: Bool
        /// 0: no limit that binds.
        var limit: Int
        /// Those of its origins that refused requests, and hold somebody.
        var slowed: [String]
    }

    /// When requests of one kind started last.
    struct Pacing {
        private(set) var last: WallTime?
        /// Started, and not known to have gone out: the interval does not begin before that.
        private(set) var unsent: Set<RequestID> = []

        init(last: WallTime? = nil) { self.last = last }

        mutating func started(_ id: RequestID, at now: WallTime) {
            last = max(last ?? now, now)
            unsent.insert(id)
        }

        mutating func begins(at now: WallTime) { last = last ?? now }

        /// The next keeps its distance from `now`, too.
        mutating func passed(_ now: WallTime) { last = max(last ?? now, now) }

        mutating func sent(_ id: RequestID, at time: WallTime) {
            if unsent.remove(id) != nil { last = max(last ?? time, time) }
        }

        /// What was asked for before it. What is on its way may be counted elsewhere from now on.
        mutating func join(_ other: Pacing) { if let time = other.last { passed(time) } }

        mutating func gaveUp(_ id: RequestID) { unsent.remove(id) }

        mutating func shift(by delta: Duration) { last = last.map { $0 + delta } }

        /// When the next may start, with `interval` between; nil: as soon as those under way have gone out.
        func next(_ interval: Duration, now: WallTime) -> WallTime? {
            guard interval > .zero else { return now }
            guard unsent.isEmpty else { return nil }
            // An instant far in the future is of a clock that was set back while nobody looked.
            guard let last, last <= now + interval else { return now }
            return last + interval + interval / Self.margin
        }

        /// So much of an interval is waited longer: requests that left with it between them must not come closer together than that.
        private static let margin = 64
    }

    init(name: String, rule: HostRule) { (self.name, self.rule, isLocal) = (name, rule, name.isEmpty || isLoopbackAddress(name)) }

    /// The least time between two requests' starts; zero: none is kept.
    var interval: Duration { rule.requestInterval ?? .zero }

    /// When its next request may start; nil: as soon as those under way have gone out.
    func opens(now: WallTime) -> WallTime? { pacing.next(interval, now: now) }

    /// When the next request with `spacing` as its own interval may start; nil: as soon as those under way have gone out.
    func opens(spacing: Duration, now: WallTime) -> WallTime? {
        guard let opens = opens(now: now) else { return nil }
        guard spacing > .zero, let pacing = spacings[spacing] else { return opens }
        return pacing.next(spacing, now: now).map { max($0, opens) }
    }

    /// The own interval by which a download with `spacing` is counted.
    func told(apart spacing: Duration) -> Duration {
        guard spacing > .zero else { return .zero }
        let known = Set(lanes.lazy.map(\.spacing)).union(spacings.keys).subtracting([.zero])
        if known.contains(spacing) || known.count < Self.mostSpacings { return spacing }
        if let longer = known.filter({ $0 > spacing }).min() { return longer }
        // Powers of two, in milliseconds: there are few of them.
        var longer: Duration = .milliseconds(1)
        while longer < spacing { longer = longer * 2 }
        return longer
    }

    /// `origin`, where its downloads get lanes of their own; nil: they share a lane with those of other origins, and the first of them
    /// holds up the rest. A host has 65,535 ports, and a rule's domain any number of hosts.
    func told(apart origin: String) -> String? {
        let known = Set(lanes.lazy.compactMap(\.origin))
        return known.contains(origin) || known.count < Self.mostOrigins ? origin : nil
    }

    /// Drops what no request has to wait for any more, where much is remembered.
    ///
    /// - Returns: what is dropped.
    func forgetSpacings(now: WallTime) -> [Duration] {
        guard spacings.count >= Self.mostSpacings else { return [] }
        let over = spacings.filter { spacing, pacing in pacing.next(spacing, now: now).map { $0 <= now } ?? false }.keys.sorted()
        for spacing in over { spacings[spacing] = nil }
        return over
    }

    /// The intervals of which the last request is remembered; zero: the host's.
    var pacings: [Duration] { (pacing.last == nil ? [] : [.zero]) + spacings.keys.sorted() }

    /// Those whose requests are on their way.
    var unsent: Set<RequestID> { spacings.values.reduce(into: pacing.unsent) { $0.formUnion($1.unsent) } }

    /// The request `id`, which was started at `start` and counted elsewhere, is on its way here.
    func awaitsSent(_ id: RequestID, spacing: Duration, since start: WallTime) {
        if interval > .zero { pacing.started(id, at: start) }
        if spacing > .zero { spacings[spacing, default: Pacing()].started(id, at: start) }
    }

    /// Takes over what another load, under other rules, knew of the same host; but not what is under way.
    func inherit(_ former: HostLoad) {
        pacing.join(former.pacing)
        for (spacing, pacing) in former.spacings { spacings[spacing, default: Pacing()].join(pacing) }
    }

    func shift(by delta: Duration) {
        pacing.shift(by: delta)
        for spacing in spacings.keys { spacings[spacing]?.shift(by: delta) }
    }

    /// Whether nothing would be lost if it were forgotten.
    func isIdle(now: WallTime) -> Bool {
        lanes.isEmpty && active == 0 && hops.isEmpty && opens(now: now).map { $0 <= now } ?? false
            && spacings.allSatisfy { $0.value.next($0.key, now: now).map { $0 <= now } ?? false }
    }
}

/// Downloads that may start, in queue order: those of one application at one host for which the same counts.
final class Lane {
    /// Its number in `Ledger.runnable`.
    let id: UInt32
    unowned let host: HostLoad  // the ledger keeps a host that has lanes
    let app: AppShare
    /// Their own `request-interval`; zero: none.
    let spacing: Duration
    /// Of their URLs; empty for what asks no host; nil: of several.
    let origin: String?
    /// Somebody wants them at once, whatever their origin asked for.
    var isUrgent: Bool
    var count = 0
    /// Its first, while that may start: it stands in `app.ready`.
    var offered: DownloadNumber?

    init(id: UInt32, host: HostLoad, app: AppShare, spacing: Duration, origin: String?, isUrgent: Bool) {
        (self.id, self.host, self.app, self.spacing) = (id, host, app, spacing)
        (self.origin, self.isUrgent) = (origin, isUrgent)
    }
}

/// What one application has had of the service: applications take turns by it.
final class AppShare {
    /// What a start costs. Short downloads of one application and long ones of another thus share by time, and requests to a host that
    /// keeps an interval by their number.
    static let start: Duration = .seconds(1)

    let name: String
    /// The first of each of its lanes that may start now.
    var ready = DownloadQueue()
    var lanes = 0
    var active = 0
    /// Time that its transfers took, counted up to `chargedAt`, and `start` for each.
    var cost: Duration
    private var chargedAt = WallTime(microseconds: 0)

    init(name: String, cost: Duration) { (self.name, self.cost) = (name, cost) }

    func charge(now: WallTime) {
        if now > chargedAt { cost += (now - chargedAt) * active }
        chargedAt = now
    }

    func shift(by delta: Duration) { chargedAt = chargedAt + delta }

    var isIdle: Bool { lanes == 0 && active == 0 }
}

/// A download, its origin and its lane.
final class RecentLane {
    let record: DownloadRecord
    let origin: String
    let lane: Lane
    init(record: DownloadRecord, origin: String, lane: Lane) { (self.record, self.origin, self.lane) = (record, origin, lane) }
}

/// A request under way, or one that waits for its host.
struct PlacedRequest {
    let host: String
    /// `DownloadURL.origin` of what is asked for.
    let origin: String
    /// When it was started, or let go.
    var startedAt: WallTime
    /// Its transfer has been told to stop, or has ended: no host counts it. What the server has said of it meanwhile still counts.
    var hasLeft = false
}
