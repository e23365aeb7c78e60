internal import DownloadModel

/// Knows the requests at each host, and decides which requests may go there next, and when: by host rules, intervals, refusals, slots and
/// turns. Knows hosts, requests and the numbers of queued downloads, but no records and no files.
///
/// A request is placed when its transfer starts (`begin`), or when a redirect leads it elsewhere (`redirect`, later `begin`). It leaves
/// when its transfer stops, and is forgotten when its transfer has ended. The server's answers in between set the pace of the origin.
struct HostGate {
    // Given by the settings
    private(set) var rules: HostRules
    private(set) var perHost: UInt32
    private(set) var maxActive: UInt32
    /// How often the host rules have changed.
    private(set) var rulesCount: UInt64 = 0

    /// The hosts, by the name from `HostRules.governing`. A host without any facts worth keeping is forgotten.
    var hosts = HostTable()
    /// Origins that refused requests.
    private(set) var paces = OriginPaces()
    /// The requests of all transfers.
    private(set) var requests: [RequestID: PlacedRequest] = [:]
    /// The further requests of each transfer that has ever had a further request.
    private var further: [DownloadNumber: [RequestID]] = [:]
    /// Further requests that were told to end (`Action.withdraw`), until they have left.
    private var withdrawn: Set<RequestID> = []
    /// The slots of the transfers.
    var slots = Slots()
    /// Up to this instant, the applications are billed for their slots; nil: no turn has begun.
    var chargedAt: WallTime?
    /// Applies if `maxActive` is automatic.
    var activeLimit = ActiveLimit()
    /// The queued downloads that may start, and the applications.
    var lanes = Lanes()
    /// Queued downloads that precede a redirect at their host, as found since the last `loseTurns`. Some may be outdated, because a slice
    /// may end before `loseTurns`, and the next turns of the scheduler may start nothing.
    var awaited: [Awaited] = []
    /// False: it is unknown whether there is a network. Then only hosts on this machine take requests.
    var isNetworkKnown = true
    /// The last requests of earlier processes, by host, until this process uses that host.
    private var earlier: [String: [HostRequest]] = [:]

    /// Hosts that would accept the next request of a transfer that has no slot for this request.
    var awaitingSlot: Set<String> = []
    /// The sizes of the files of these transfers.
    var awaitingSizes: Set<FileSize> = []
    /// Hosts where free slots decide which request comes next, and the sizes of files for which there was a slot at the last refresh.
    var contested: [String: [FileSize]] = [:]
    /// The host looked up last: among 100,000 queued downloads, most have the host of the previous one.
    private var recent: (host: String, load: HostLoad)?

    /// - Parameter isNetworkKnown: false: only hosts on this machine take requests.
    init(_ settings: Settings, isNetworkKnown: Bool = true) {
        self.isNetworkKnown = isNetworkKnown
        (rules, perHost, maxActive) = (settings.hostRules, settings.maxPerHost, settings.maxActive)
    }

    // MARK: Hosts

    /// The load of the host named `host`.
    mutating func load(of host: String) -> HostLoad {
        if let recent, recent.host == host { return recent.load }
        let load = findLoad(of: host)
        recent = (host, load)
        return load
    }

    private mutating func findLoad(of host: String) -> HostLoad {
        let (name, rule) = rules.governing(host)
        if let load = hosts[name] { return load }
        let load = HostLoad(name: name, rule: rule)
        load.rulesCount = rulesCount
        hosts.insert(load)
        for request in earlier.removeValue(forKey: name) ?? [] {
            if request.requestInterval == .zero {
                load.pacing = HostLoad.Pacing(last: request.at)
            } else {
                load.requestIntervals[request.requestInterval] = HostLoad.Pacing(last: request.at)
            }
        }
        hosts.noteInstants(of: load)
        return load
    }

    /// Forgets `host` if it has no facts worth keeping.
    ///
    /// - Returns: the removals of the rows of its last requests; nil: the host is still needed.
    mutating func forgetIfIdle(_ host: HostLoad, now: WallTime) -> [StoreChange]? {
        guard host.isIdle(now: now) else { return nil }
        hosts.remove(host)
        recent = nil
        return host.pacings.map { .requestOver(host: host.name, requestInterval: $0) }
    }

    /// The most connections of transfers at a time at `host`; 0: no limit.
    func limit(of host: HostLoad) -> Int { Int(host.rule.connections ?? perHost) }

    /// Whether `host` may take another connection of a transfer. Under a host rule, further requests count as well.
    func hasPlace(at host: HostLoad, _ limit: Int) -> Bool {
        limit == 0 || host.connections + (host.rule.connections == nil ? 0 : host.further) < limit
    }

    /// At a host without a rule for its connections, further requests start below this number of connections, or below the host's limit if
    /// that is more.
    static let mostConnections = 16

    /// Whether `host` may take a further request.
    func hasPlaceForFurther(at host: HostLoad) -> Bool {
        let most = host.rule.connections == nil ? max(limit(of: host), Self.mostConnections) : limit(of: host)
        return most == 0 || host.connections + host.further < most
    }

    /// As `limit`, but 0 if the host's limit delays no download, because `maxActive` is always reached first. Silent transfers at the host
    /// take no slot, so they raise that bound.
    ///
    /// - Parameter size: the size of the files that wait.
    func bindingLimit(of host: HostLoad, for size: FileSize = .unknown) -> Int {
        let limit = limit(of: host)
        return maxActive == 0 || limit < mostActive(of: size) +| host.silent ? limit : 0
    }

    private mutating func touchOrigin(_ origin: String) {
        hosts.touch(named: rules.governing(DownloadURL.host(of: origin)).name)
    }

    /// Begins to refresh `host`, which takes its current rule.
    mutating func beginRefresh(_ host: HostLoad) {
        hosts.beginRefresh(host)
        host.beginRefresh()
        if host.rulesCount != rulesCount { (host.rulesCount, host.rule) = (rulesCount, rules.governing(host.name).rule) }
    }

    // MARK: When a request may start

    /// When a request may start; nil: once the started requests have gone out.
    func opens(
        _ host: HostLoad, _ origin: String, app: String, requestInterval: Duration, isUrgent: Bool, now: WallTime
    ) -> WallTime? {
        guard let opens = host.opens(requestInterval: requestInterval, now: now) else { return nil }
        guard let pace = paces[origin] else { return opens }
        return pace.opens(for: app, isUrgent: isUrgent, now: now).map { max($0, opens) }
    }

    func opens(_ host: HostLoad, _ request: PlacedRequest, now: WallTime) -> WallTime? {
        opens(host, request.origin, app: request.app, requestInterval: request.requestInterval, isUrgent: request.isUrgent, now: now)
    }

    /// Whether the pace of `origin` delays a request.
    func isSlowed(_ origin: String, isUrgent: Bool) -> Bool { !isUrgent && paces[origin].map { $0.interval > .zero } ?? false }

    func claim(at origin: String, app: String, requestInterval: Duration, isUrgent: Bool) -> HostTurns.Claim {
        HostTurns.Claim(app: app, slowedOrigin: isSlowed(origin, isUrgent: isUrgent) ? origin : nil, requestInterval: requestInterval)
    }

    func claim(of request: PlacedRequest) -> HostTurns.Claim {
        claim(at: request.origin, app: request.app, requestInterval: request.requestInterval, isUrgent: request.isUrgent)
    }

    // MARK: Slots

    /// Since when all requests of a transfer have heard nothing; nil: one of them is not silent.
    func silentSince(_ slot: Slots.Slot) -> WallTime? {
        var latest: WallTime?
        for id in slot.requests {
            guard let since = requests[id]?.silentSince else { return nil }
            latest = max(latest ?? since, since)
        }
        return latest
    }

    // MARK: Queued downloads

    /// The lane for downloads with these properties, as far as their host distinguishes them.
    ///
    /// - Parameter host: the host of the download's URL; empty: no request is needed.
    mutating func lane(
        host: String, origin: String, app: String, requestInterval: Duration, isUrgent: Bool, wasRefused: Bool = false,
        size: FileSize = .unknown
    ) -> Lane {
        let load = load(of: host)
        return lanes.lane(
            at: load, app: app, requestInterval: load.told(apart: requestInterval), origin: host.isEmpty ? "" : load.told(apart: origin),
            isUrgent: isUrgent, wasRefused: wasRefused, size: size)
    }

    /// Queues a download, which may start once its host takes it.
    mutating func enqueue(_ number: DownloadNumber, in lane: Lane, origin: String, priority: Int32, position: Int64) {
        lanes.insert(number, in: lane, origin: origin, priority: priority, position: position)
        hosts.touch(lane.host)
    }

    mutating func dequeue(_ number: DownloadNumber, from lane: Lane) {
        lanes.remove(number, from: lane)
        hosts.touch(lane.host)
    }

    // MARK: Requests

    /// The requests that a host counts, and the requests that wait for their host.
    var placed: LazyFilterSequence<[RequestID: PlacedRequest]> { requests.lazy.filter { !$0.value.hasLeft } }

    /// The host of a request that has not left.
    mutating func host(of id: RequestID) -> HostLoad? { requests[id].flatMap { $0.hasLeft ? nil : load(of: $0.host) } }

    /// The origin of a request whose transfer has not ended.
    func origin(of id: RequestID) -> String { requests[id]?.origin ?? "" }

    /// A transfer takes a slot, with its first request.
    ///
    /// - Returns: the rows that must be saved before the request goes out.
    mutating func takeSlot(_ request: PlacedRequest, _ id: RequestID, size: FileSize = .unknown, now: WallTime) -> [StoreChange] {
        slots.take(id.download, app: request.app, size: size, now: now)
        lanes.share(of: request.app).begins()
        lanes.hadTurn(id.download)
        return begin(request, id, now: now)
    }

    /// A transfer stops: it releases its slot, and no host counts its requests.
    mutating func leaveSlot(_ number: DownloadNumber) {
        guard let slot = slots[number] else { return }
        for id in slot.requests { leave(id) }
        slots.release(number)
        let app = lanes.share(of: slot.app)
        app.ends()
        lanes.forgetIfIdle(app)
    }

    /// The next request of a transfer goes to `host`, and waits for its turn there: a redirect, or a repeated request.
    ///
    /// - Parameter sharing: whether the request can use a connection that others use.
    mutating func redirect(
        _ id: RequestID, to host: String, origin: String, sharing: ConnectionSharing = .possible, question: UInt64, now: WallTime
    ) {
        guard let request = requests[id] else { return }
        leave(id)
        var next = request.next(to: host, origin: origin, question: question, now: now)
        next.ownsConnection = sharing == .impossible
        if sharing == .failed { load(of: request.host).sharingFailed(at: request.origin) }
        wait(next, id)
    }

    /// A caller wants the download of a waiting request at once.
    mutating func hurry(_ id: RequestID) {
        guard var request = requests[id], request.isWaiting else { return }
        request.isUrgent = true
        put(request, id)
        hosts.touch(load(of: request.host))
    }

    /// Starts a request, or permits a waiting request.
    ///
    /// - Returns: the rows that must be saved before the request goes out.
    mutating func begin(_ request: PlacedRequest, _ id: RequestID, now: WallTime) -> [StoreChange] {
        let load = load(of: request.host)
        let isSlowed = isSlowed(request.origin, isUrgent: request.isUrgent)
        var request = request
        (request.phase, request.startedAt) = (.underWay, now)
        request.isPaced = load.interval > .zero || request.requestInterval > .zero || isSlowed
        // What admitted the request may have changed since, such as `ActiveLimit.allowance`. The limit of the host holds nevertheless.
        request.isPresumedToShare = !hasPlace(at: load, limit(of: load)) && request.canShare(slots[id.download]?.size)
        put(request, id)
        if request.isFurther { load.further += 1 } else { load.active += 1 }
        load.turns.took(claim(of: request))
        hosts.touch(load)
        if isSlowed { paces.change(request.origin, now: now) { $0.started(id, at: now) } }
        let saves = load.started(id, request, now: now)
        hosts.noteInstants(of: load)
        return saves
    }

    /// A request waits for its host. `begin` follows when the request is permitted.
    mutating func wait(_ request: PlacedRequest, _ id: RequestID) {
        let load = load(of: request.host)
        put(request, id)
        if request.isFurther { load.waitingFurther.append(id) } else { load.hops.append(id) }
        hosts.touch(load)
    }

    /// No host counts this request any more.
    mutating func leave(_ id: RequestID) {
        guard var request = requests[id], !request.hasLeft else { return }
        let wasWaiting = request.isWaiting
        (request.phase, request.isPresumedToShare, request.connection) = (.left, false, nil)
        put(request, id)
        withdrawn.remove(id)
        let load = load(of: request.host)
        hosts.touch(load)
        if wasWaiting {
            load.hops.removeAll { $0 == id }
            load.waitingFurther.removeAll { $0 == id }
            return
        }
        if request.isFurther { load.further -= 1 } else { load.active -= 1 }
        paces.gaveUp(request.origin, id)
        load.gaveUp(id, requestInterval: request.requestInterval)
    }

    /// The transfer whose first request was `id` has ended.
    mutating func forget(_ id: RequestID) {
        put(nil, id)
        for other in further.removeValue(forKey: id.download) ?? [] { put(nil, other) }
    }

    // MARK: Further requests

    /// The request of a running transfer that is not a further request; nil: it has left.
    func main(of number: DownloadNumber) -> RequestID? { slots[number]?.requests.first { requests[$0]?.isFurther == false } }

    /// A running transfer wants to fetch another part of its file at the same time. The request waits until nothing else wants the place.
    mutating func addFurther(_ id: RequestID, to host: String, origin: String, question: UInt64, now: WallTime) {
        guard let first = slots[id.download]?.requests.first, let other = requests[first] else { return }
        var request = other.next(to: host, origin: origin, question: question, now: now)
        (request.isFurther, request.isUrgent) = (true, false)
        further[id.download, default: []].append(id)
        wait(request, id)
    }

    /// A request has ended, and its transfer continues without it.
    mutating func over(_ id: RequestID) {
        leave(id)
        put(nil, id)
        further[id.download]?.removeAll { $0 == id }
        guard main(of: id.download) == nil, let rest = slots[id.download]?.requests else { return }
        // A further request takes the place of the transfer's main request.
        if let next = rest.first(where: { requests[$0]?.isWaiting == false }) ?? rest.first { promote(next) }
    }

    private mutating func promote(_ id: RequestID) {
        guard var request = requests[id], request.isFurther else { return }
        let load = load(of: request.host)
        request.isFurther = false
        put(request, id)
        withdrawn.remove(id)
        if request.isWaiting {
            load.waitingFurther.removeAll { $0 == id }
            load.hops.append(id)
        } else {
            load.further -= 1
            load.active += 1
        }
        hosts.touch(load)
    }

    /// The further request at `host` that gives its place to another request or download; nil: a further request is already being ended
    /// there.
    mutating func withdrawFurther(at host: HostLoad) -> RequestID? {
        let there = requests.filter { _, request in
            request.isFurther && !request.isWaiting && !request.hasLeft && rules.governing(request.host).name == host.name
        }.keys
        guard there.allSatisfy({ !withdrawn.contains($0) }) else { return nil }
        // Choose the latest request of the transfer that has the most requests.
        let chosen = there.max { a, b in
            let (left, right) = (slots[a.download]?.requests.count ?? 0, slots[b.download]?.requests.count ?? 0)
            return (left, a) < (right, b)
        }
        if let chosen { withdrawn.insert(chosen) }
        return chosen
    }

    /// A request that was started while `isPaced` has gone out.
    ///
    /// - Returns: the rows to save.
    mutating func sent(_ id: RequestID, at time: WallTime, now: WallTime) -> [StoreChange] {
        guard let request = requests[id], !request.hasLeft else { return [] }
        let load = load(of: request.host)
        if !request.isUrgent { paces.change(request.origin, now: now) { $0.sent(id, at: time) } }
        hosts.touch(load)
        return load.sent(id, request, at: time)
    }

    /// The server of a request has stopped sending, or sends again.
    mutating func stalled(_ id: RequestID, _ isStalled: Bool, now: WallTime) {
        guard let request = requests[id], !request.isWaiting, !request.hasLeft else { return }
        set(isStalled ? .silent(since: request.silentSince ?? now) : .underWay, of: id)
    }

    private mutating func set(_ phase: PlacedRequest.Phase, of id: RequestID) {
        guard var request = requests[id], request.phase != phase else { return }
        request.phase = phase
        put(request, id)
    }

    /// Stores the state of a request; nil: forgets the request.
    mutating func put(_ request: PlacedRequest?, _ id: RequestID) {
        let before = requests[id]
        requests[id] = request
        slots.note(id, from: before, to: request)
        if let before, before.shared != nil || before.isPresumedToShare { load(of: before.host).forgetSharing(of: before) }
        if let request, request.shared != nil || request.isPresumedToShare { load(of: request.host).noteSharing(of: request) }
        for (silent, sign) in [(before, -1), (request, 1)] {
            guard let silent, silent.silentSince != nil, !silent.isFurther else { continue }
            let host = load(of: silent.host)
            host.silent += sign
            hosts.touch(host)
        }
    }

    // MARK: Refusals

    /// The server refused a request with 429 or 503 (RFC 6585, section 4; RFC 9110, section 15.6.4).
    ///
    /// If a caller wanted the download at once, all other urgent downloads of the origin that have not started now wait like the rest. So a
    /// resumed batch of thousands asks a refusing server only a few times.
    mutating func refused(_ id: RequestID, _ status: UInt32, _ retryAfter: Duration?, now: WallTime) {
        guard let request = requests[id] else { return }
        let ruled = ruledInterval(of: request.origin)
        paces.change(request.origin, creates: true, now: now) { pace in
            pace.refused(
                status, startedAt: request.startedAt, retryAfter: retryAfter, of: id.download, by: request.app, ruled: ruled, now: now)
            if !request.isPrivate { pace.isShown = true }
        }
        touchOrigin(request.origin)
        guard request.isUrgent, let host = hosts[rules.governing(DownloadURL.host(of: request.origin)).name] else { return }
        for lane in host.lanes where lane.isUrgent && (lane.origin == nil || lane.origin == request.origin) { lane.isUrgent = false }
        host.regime = nil  // announce each download's wait now
    }

    /// The server answered a request, whatever the answer.
    ///
    /// - Parameter isRedirect: the transfer continues with another request.
    mutating func answered(_ id: RequestID, isRedirect: Bool = false, now: WallTime) {
        guard let request = requests[id], paces[request.origin] != nil else { return }
        let ruled = ruledInterval(of: request.origin)
        paces.change(request.origin, now: now) {
            $0.answered(id.download, startedAt: request.startedAt, isRedirect: isRedirect, ruled: ruled, now: now)
        }
        touchOrigin(request.origin)
    }

    private func ruledInterval(of origin: String) -> Duration {
        rules.governing(DownloadURL.host(of: origin)).rule.requestInterval ?? .zero
    }

    /// Restores a pause that a server requested until `until`, `pause` after its refusal.
    mutating func recall(
        _ origin: String, _ status: UInt32, _ pause: Duration, until: WallTime, by app: String, isShown: Bool, now: WallTime
    ) {
        paces.change(origin, creates: true, now: now) {
            $0.recall(until: until, by: app, status: status, refusedAt: until + (.zero - pause), now: now)
            if isShown { $0.isShown = true }
        }
        touchOrigin(origin)
    }

    /// Forgets the refusals of the origins of `host`, and of all hosts that share its rule.
    mutating func reset(_ host: String) {
        let (rules, name) = (rules, rules.governing(host).name)
        paces.forget { rules.governing(DownloadURL.host(of: $0)).name == name }
        hosts.touch(named: name)
    }

    // MARK: Settings, clock and restart

    /// Applies new limits and host rules. Requests under way count at once at the host that governs them under the new rules. Each host
    /// takes its new rule when it is refreshed, before anything starts there.
    ///
    /// - Returns: the rows to save; and whether the rules group hosts differently, so that queued downloads may need other lanes.
    mutating func set(_ settings: Settings, now: WallTime) -> (saves: [StoreChange], regroups: Bool) {
        let before = rules
        if settings.maxPerHost != perHost || settings.maxActive != maxActive {
            (perHost, maxActive) = (settings.maxPerHost, settings.maxActive)
            hosts.touchAll()
        }
        guard settings.hostRules != before else { return ([], false) }
        rules = settings.hostRules
        recent = nil
        rulesCount += 1
        hosts.touchAll()
        var saves: [StoreChange] = []
        let changed = rules.changes(since: before)
        for name in changed { hosts[name]?.rule = rules.governing(name).rule }
        // If another host counts a host's requests now, the last requests move to that host.
        for former in hosts.withInstants().sorted(by: { $0.name < $1.name }) {
            let load = load(of: former.name)
            guard load !== former else { continue }
            saves += former.pacings.map { .requestOver(host: former.name, requestInterval: $0) }
            load.inherit(former)
            hosts.noteInstants(of: load)
            saves += load.requests.map { .requested($0) }
        }
        for (id, request) in placed.sorted(by: { $0.key < $1.key }) {
            let (old, load) = (before.governing(request.host).name, load(of: request.host))
            if old != load.name, let former = hosts[old] { count(id, request, at: load, insteadOf: former) }
            load.rule = rules.governing(load.name).rule
            // Requests without an interval went out at an unknown time, so the interval begins now.
            if load.active > 0, load.interval > .zero { load.pacing.begins(at: now, isPrivate: request.isPrivate) }
            hosts.noteInstants(of: load)
        }
        // A rule for all other hosts groups no hosts.
        let groups = changed.subtracting([HostRules.others])
        return (saves, groups.contains { before.given[$0] == nil || rules.given[$0] == nil })
    }

    private mutating func count(_ id: RequestID, _ request: PlacedRequest, at host: HostLoad, insteadOf former: HostLoad) {
        if request.isWaiting {
            former.hops.removeAll { $0 == id }
            former.waitingFurther.removeAll { $0 == id }
            if request.isFurther { host.waitingFurther.append(id) } else { host.hops.append(id) }
        } else {
            if request.isFurther {
                former.further -= 1
                host.further += 1
            } else {
                former.active -= 1
                host.active += 1
                former.forgetSharing(of: request)
                host.noteSharing(of: request)
            }
            if request.silentSince != nil, !request.isFurther {
                former.silent -= 1
                host.silent += 1
            }
            // The host that counts the request now must hear when the request has gone out.
            if former.unsent.contains(id) {
                former.gaveUp(id, requestInterval: request.requestInterval)
                host.awaitsSent(id, request, since: request.startedAt)
            }
        }
        hosts.touch(former)
        hosts.touch(host)
    }

    /// The wall clock was set by `delta`.
    ///
    /// - Returns: the rows to save.
    mutating func shift(by delta: Duration) -> [StoreChange] {
        // This turn has begun by the new clock, so `charge` has billed the jump.
        bill(.zero - delta)
        slots.shift(by: delta)
        paces.shift(by: delta)
        for host in hosts.withInstants() { host.shift(by: delta) }
        hosts.forgetWakes()
        hosts.touchAll()
        for (id, request) in requests {
            requests[id]?.startedAt = request.startedAt + delta
            if let since = request.silentSince { requests[id]?.phase = .silent(since: since + delta) }
        }
        for (name, requests) in earlier {
            earlier[name] = requests.map {
                HostRequest(host: name, requestInterval: $0.requestInterval, at: $0.at + delta, isSent: $0.isSent)
            }
        }
        return lastRequests().map { .requested($0) }
    }

    /// Restores the last requests that an earlier process has saved.
    mutating func restore(_ requests: [HostRequest]) { earlier = Dictionary(grouping: requests, by: \.host) }

    /// All remembered last requests.
    mutating func lastRequests() -> [HostRequest] { hosts.withInstants().flatMap(\.requests) + earlier.values.joined() }
}
