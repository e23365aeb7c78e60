public import DownloadModel

/// The load of each host: limits and intervals of host rules, turns, the next requests of transfers, refusals.
extension Ledger {
    /// The load of the host named `host`.
    func load(of host: String) -> HostLoad {
        // Among 100,000 queued downloads, most have the host of the previous one.
        if let recent = recentHost, recent.host == host { return recent.load }
        let load = findLoad(of: host)
        recentHost = (host, load)
        return load
    }

    private func findLoad(of host: String) -> HostLoad {
        let (name, rule) = settings.hostRules.governing(host)
        if let load = hosts[name] { return load }
        let load = HostLoad(name: name, rule: rule)
        load.rulesCount = rulesCount
        if hosts.count >= hostsBeforeSweep {
            touchAll()
            hostsBeforeSweep *= 2
        }
        hosts.insert(load)
        for request in lastRequests.removeValue(forKey: name) ?? [] {
            if request.requestInterval == .zero {
                load.pacing = HostLoad.Pacing(last: request.at)
            } else {
                load.requestIntervals[request.requestInterval] = HostLoad.Pacing(last: request.at)
            }
        }
        hosts.noteInstants(of: load)
        return load
    }

    /// The most transfers at a time at `host`; 0: no limit.
    func limit(of host: HostLoad) -> Int { Int(host.rule.connections ?? settings.maxPerHost) }

    /// As `limit`, but 0 if `maxActive` is reached first, so that no download ever waits for the host's limit. Silent transfers at the host
    /// take no slot, so they raise that bound.
    func bindingLimit(of host: HostLoad) -> Int {
        let limit = limit(of: host)
        return settings.maxActive == 0 || limit < Int(settings.maxActive) +| host.silent ? limit : 0
    }

    // MARK: Refreshing

    /// Marks `host` as changed: what it offers may be outdated until it is refreshed.
    func touch(_ host: HostLoad) {
        guard !host.isTouched else { return }
        host.isTouched = true
        touched.append(host)
    }

    private func touch(named name: String) { if let host = hosts[name] { touch(host) } }

    /// Marks all hosts as changed.
    func touchAll() { hosts.outdateAll() }

    /// Whether what `host` offers may be outdated.
    func isOutdated(_ host: HostLoad) -> Bool { host.isTouched || hosts.isOutdated(host) }

    /// Refreshes hosts that are due, and hosts that have changed.
    func openHosts(now: WallTime) {
        var due = 0
        while let (time, name) = nextHostWake, time <= now {
            // The rest is due in the next slice.
            guard due < sliceSize.hosts else { return isCut = true }
            due += 1
            hostWakes.removeFirst()
            guard let host = hosts[name], host.wakeAt == time else { continue }
            host.wakeAt = nil
            touch(host)
        }
        if !awaitingSlot.isEmpty, hasSlotForHop {
            for name in awaitingSlot.sorted() { touch(named: name) }
            awaitingSlot = []
        }
        refreshHosts(now: now)
    }

    /// The first instant at which a host is due.
    var nextHostWake: (time: WallTime, name: String)? {
        hostWakes.dropStale { name, time in hosts[name]?.wakeAt == time }
        return hostWakes.first
    }

    /// Refreshes the changed hosts, as many as this turn may refresh. What the others offer is outdated until the next slice.
    func refreshHosts(now: WallTime) {
        while !touched.isEmpty, refreshesLeft > 0 {
            let some = touched.prefix(refreshesLeft).sorted { $0.name < $1.name }
            touched.removeFirst(some.count)
            for (index, host) in some.enumerated() {
                guard refreshesLeft > 0 else {
                    touched.insert(contentsOf: some[index...], at: 0)
                    break
                }
                refresh(host, now: now)
            }
        }
        while refreshesLeft > 0, let host = hosts.nextOutdated() { refresh(host, now: now) }
        if !touched.isEmpty || hosts.hasOutdated { isCut = true }
        if hosts.count < hostsBeforeSweep / 4 { hostsBeforeSweep = max(1024, 2 * hosts.count) }
    }

    /// Permits hops and offers the downloads that may start at `host`, withdraws the others, and sets the next wake.
    func refresh(_ host: HostLoad, now: WallTime) {
        guard isOutdated(host), hosts.contains(host) else { return }
        host.isTouched = false
        hosts.noteRefresh(of: host)
        refreshesLeft -= 1
        if host.rulesCount != rulesCount {
            (host.rulesCount, host.rule) = (rulesCount, settings.hostRules.governing(host.name).rule)
        }
        let limit = limit(of: host)
        var (wake, awaited) = grantHops(host, limit, now: now)
        let fronts = fronts(of: host, limit, now: now)
        let chosen = awaited.isEmpty ? inTurn(fronts, at: host) : awaited
        var next = fronts.startIndex
        for lane in host.lanes {
            // `fronts` has the same order.
            let front = next < fronts.endIndex && fronts[next].lane === lane ? fronts[next] : nil
            if front != nil { next += 1 }
            offer(chosen?.contains(lane.id) ?? true ? front?.entry : nil, of: lane)
            guard front == nil, limit == 0 || host.active < limit else { continue }
            if let opens = opens(lane, now: now), opens > now { wake = min(wake ?? opens, opens) }
        }
        if host.wakeAt != wake {
            host.wakeAt = wake
            if let wake { hostWakes.insert(wake, host.name) }
        }
        hosts.noteInstants(of: host)
        review(host, now: now)
        if host.isIdle(now: now) {
            for requestInterval in host.pacings { output.append(.save(.requestOver(host: host.name, requestInterval: requestInterval))) }
            if let moved = hosts.remove(host) { touch(moved) }
            (recentHost, recentLane) = (nil, nil)
        }
    }

    // MARK: Turns

    /// The first download of a lane, if its host would take it now.
    private struct Front {
        let lane: Lane
        let entry: LedgerEntry
        let priority: Int32
        let position: Int64
        let claim: HostTurns.Claim
        let turn: UInt64
    }

    /// In the order of the host's lanes.
    private func fronts(of host: HostLoad, _ limit: Int, now: WallTime) -> [Front] {
        // While the network is unknown, only this machine takes requests.
        guard conditions.network != nil || host.isLocal, limit == 0 || host.active < limit else { return [] }
        return host.lanes.compactMap { lane in
            guard let opens = opens(lane, now: now), opens <= now, let entry = runnable.next(in: lane.id).flatMap({ entries[$0] }) else {
                return nil
            }
            let (record, claim) = (entry.record, claim(of: lane))
            return Front(
                lane: lane, entry: entry, priority: record.options.priority, position: record.position, claim: claim,
                turn: host.turns.last(claim))
        }
    }

    /// The lanes whose turn it is, if an interval admits one request at a time; nil: all lanes, because the applications' cost decides.
    private func inTurn(_ fronts: [Front], at host: HostLoad) -> Set<UInt32>? {
        guard fronts.count > 1 else { return nil }
        if host.interval > .zero { return Set([first(of: fronts)].compactMap { $0?.lane.id }) }
        guard fronts.contains(where: \.claim.isPaced) else { return nil }
        return Set(
            fronts.filter { front in
                !front.claim.isPaced || first(of: fronts.filter { $0.claim.contends(with: front.claim) })?.lane === front.lane
            }.map(\.lane.id))
    }

    /// Among each application's first download by priority and queue order: the download of the highest priority whose last turn is longest
    /// ago.
    private func first(of fronts: [Front]) -> Front? {
        var firsts: [String: Front] = [:]
        for front in fronts {
            let comesFirst = firsts[front.claim.app].map { ($0.priority, front.position) < (front.priority, $0.position) } ?? true
            if comesFirst { firsts[front.claim.app] = front }
        }
        return firsts.values.min { a, b in
            (b.priority, a.turn, a.position, a.entry.number) < (a.priority, b.turn, b.position, b.entry.number)
        }
    }

    private func claim(at origin: String, app: String, requestInterval: Duration, isUrgent: Bool) -> HostTurns.Claim {
        let isSlowed = !isUrgent && paces[origin].map { $0.interval > .zero } ?? false
        return HostTurns.Claim(app: app, slowedOrigin: isSlowed ? origin : nil, requestInterval: requestInterval)
    }

    private func claim(of lane: Lane) -> HostTurns.Claim {
        claim(at: origin(of: lane), app: lane.app.name, requestInterval: lane.requestInterval, isUrgent: lane.isUrgent)
    }

    private func claim(of request: PlacedRequest, isUrgent: Bool) -> HostTurns.Claim {
        claim(at: request.origin, app: request.app, requestInterval: request.requestInterval, isUrgent: isUrgent)
    }

    /// The queued download that goes before a redirect of `claim`; nil: none. A redirect yields if there is a slot, and if another
    /// application with a download queued at the host has waited longer for its turn.
    private func rival(of claim: HostTurns.Claim, at host: HostLoad, _ limit: Int, now: WallTime) -> Awaited? {
        let isScarce = host.interval > .zero || limit > 0
        guard hasSlot, !host.lanes.isEmpty, isScarce || claim.isPaced else { return nil }
        let rivals = fronts(of: host, limit, now: now).filter { isScarce || $0.claim.contends(with: claim) }
        let last = host.turns.last(claim)
        guard let first = first(of: rivals) else { return nil }
        // `first` may be of the redirect's own application, by its priority. Applications behind it must not wait for the redirects, too.
        let others = rivals.filter { $0.claim.app != claim.app && $0.turn < last }
        let owed = first.claim.app == claim.app ? others.min { $0.turn < $1.turn } : others.first { $0.lane === first.lane }
        return owed.map { Awaited(lane: first.lane, claim: first.claim, turn: first.turn, owed: $0.claim) }
    }

    /// A queued download that precedes a redirect at its host, with its turn at that moment.
    struct Awaited {
        let lane: Lane
        let claim: HostTurns.Claim
        let turn: UInt64
        /// The claim that had waited longer than the redirect's application.
        let owed: HostTurns.Claim
    }

    /// `entry` was moved to the front.
    func comesNext(_ entry: LedgerEntry) {
        guard let lane = entry.lane else { return }
        lane.host.turns.comesNext(claim(of: lane))
        touch(lane.host)
    }

    /// A download that was to go before a redirect but got no slot loses its turn. So it delays no request that needs no slot or has one.
    func loseTurns(now: WallTime) {
        while !awaited.isEmpty {
            for one in awaited where one.lane.count > 0 && one.lane.host.turns.last(one.claim) == one.turn {
                let host = one.lane.host
                host.turns.took(one.claim)
                if one.owed != one.claim { host.turns.took(one.owed) }
                touch(host)
            }
            awaited = []
            refreshHosts(now: now)
        }
    }

    /// When the first download of `lane` may start; nil: once the started requests have gone out.
    func opens(_ lane: Lane, now: WallTime) -> WallTime? {
        opens(lane.host, origin(of: lane), app: lane.app.name, requestInterval: lane.requestInterval, isUrgent: lane.isUrgent, now: now)
    }

    /// The origin of the first download of `lane`, which delays those behind it.
    func origin(of lane: Lane) -> String {
        lane.origin ?? runnable.next(in: lane.id).flatMap { entries[$0] }?.origin ?? ""
    }

    /// As above for a transfer's next request.
    func opens(_ host: HostLoad, _ request: PlacedRequest, isUrgent: Bool, now: WallTime) -> WallTime? {
        opens(host, request.origin, app: request.app, requestInterval: request.requestInterval, isUrgent: isUrgent, now: now)
    }

    private func opens(
        _ host: HostLoad, _ origin: String, app: String, requestInterval: Duration, isUrgent: Bool, now: WallTime
    ) -> WallTime? {
        guard let opens = host.opens(requestInterval: requestInterval, now: now) else { return nil }
        guard let pace = paces[origin] else { return opens }
        return pace.opens(for: app, isUrgent: isUrgent, now: now).map { max($0, opens) }
    }

    private func offer(_ entry: LedgerEntry?, of lane: Lane) {
        guard entry?.number != lane.offered else { return }
        withdraw(lane)
        guard let entry else { return }
        lane.offered = entry.number
        lane.app.ready.insert(entry.number, priority: entry.record.options.priority, position: entry.record.position)
    }

    /// The requests that hosts count, or that wait for their host.
    var placed: LazyFilterSequence<[RequestID: PlacedRequest]> { atHosts.lazy.filter { !$0.value.hasLeft } }

    /// The origin of a request whose transfer has not ended.
    func origin(of id: RequestID) -> String { atHosts[id]?.origin ?? "" }

    private func hostNow(of entry: LedgerEntry) -> HostLoad? {
        atHosts[entry.request].flatMap { $0.hasLeft ? nil : load(of: $0.host) }
    }

    // MARK: Active downloads

    /// `entry` becomes active, with its first request at its own host.
    func enterSlot(_ entry: LedgerEntry, now: WallTime) {
        let app = share(of: entry.record.options.app)
        app.charge(now: now)
        app.cost += AppShare.start
        app.active += 1
        (entry.share, entry.startedAt) = (app, now)
        entry.requestCount &+= 1
        begin(request(of: entry, to: entry.host, entry.origin, .underWay, now: now), entry.request, isUrgent: entry.isUrgent, now: now)
    }

    func leaveSlot(_ entry: LedgerEntry, now: WallTime) {
        leaveHost(entry.request)
        guard let app = entry.share else { return }
        entry.share = nil
        app.charge(now: now)
        app.active -= 1
        forgetIfIdle(app)
    }

    private func request(
        of entry: LedgerEntry, to host: String, _ origin: String, _ phase: PlacedRequest.Phase, now: WallTime
    ) -> PlacedRequest {
        PlacedRequest(
            host: host, origin: origin, app: entry.record.options.app, requestInterval: entry.requestInterval, startedAt: now, phase: phase)
    }

    /// Sets what is known of a request; nil: its transfer has ended.
    func put(_ request: PlacedRequest?, _ id: RequestID) {
        let before = atHosts[id]
        atHosts[id] = request
        waitingRequests += (request?.isWaiting ?? false ? 1 : 0) - (before?.isWaiting ?? false ? 1 : 0)
        idleRequests += (request?.isIdle ?? false ? 1 : 0) - (before?.isIdle ?? false ? 1 : 0)
        for (silent, sign) in [(before, -1), (request, 1)] {
            guard let silent, silent.silentSince != nil else { continue }
            let host = load(of: silent.host)
            host.silent += sign
            touch(host)
        }
    }

    private func set(_ phase: PlacedRequest.Phase, of id: RequestID) {
        guard var request = atHosts[id], request.phase != phase else { return }
        request.phase = phase
        put(request, id)
    }

    /// Whether the active download waits for its next request, and takes no slot.
    public func isHeld(_ entry: LedgerEntry) -> Bool { atHosts[entry.request]?.isWaiting ?? false }
    /// Whether the request keeps an interval: the engine must report when the request has gone out.
    public func isPaced(_ id: RequestID) -> Bool { atHosts[id]?.isPaced ?? false }

    /// Starts a request.
    private func begin(_ request: PlacedRequest, _ id: RequestID, isUrgent: Bool, now: WallTime) {
        let (load, requestInterval) = (load(of: request.host), request.requestInterval)
        let isSlowed = !isUrgent && (paces[request.origin].map { $0.interval > .zero } ?? false)
        var request = request
        (request.phase, request.startedAt) = (.underWay, now)
        request.isPaced = load.interval > .zero || requestInterval > .zero || isSlowed
        put(request, id)
        load.active += 1
        load.turns.took(claim(of: request, isUrgent: isUrgent))
        touch(load)
        if isSlowed { paces.change(request.origin, now: now) { $0.started(id, at: now) } }
        if load.interval > .zero {
            load.pacing.started(id, at: now)
            output.append(.save(.requested(HostRequest(host: load.name, requestInterval: .zero, at: now, isSent: false))))
        }
        if requestInterval > .zero {
            for requestInterval in load.forgetRequestIntervals(now: now) {
                output.append(.save(.requestOver(host: load.name, requestInterval: requestInterval)))
            }
            load.requestIntervals[requestInterval, default: HostLoad.Pacing()].started(id, at: now)
            output.append(.save(.requested(HostRequest(host: load.name, requestInterval: requestInterval, at: now, isSent: false))))
        }
        hosts.noteInstants(of: load)
    }

    private func leaveHost(_ id: RequestID) {
        guard let request = atHosts[id], !request.hasLeft else { return }
        set(.left, of: id)
        let load = load(of: request.host)
        touch(load)
        if let hop = load.hops.firstIndex(of: id) {
            load.hops.remove(at: hop)
            return
        }
        load.active -= 1
        paces.gaveUp(request.origin, id)
        load.gaveUp(id, requestInterval: request.requestInterval)
    }

    /// A request that was started or permitted while `isPaced` has gone out.
    func requestSent(_ id: RequestID, at time: WallTime, now: WallTime) {
        guard let entry = entries[id.download], let request = atHosts[id], !request.hasLeft else { return }
        let load = load(of: request.host)
        if !entry.isUrgent { paces.change(request.origin, now: now) { $0.sent(id, at: time) } }
        for requestInterval in [.zero, request.requestInterval] {
            guard var pacing = requestInterval == .zero ? load.pacing : load.requestIntervals[requestInterval], pacing.unsent.contains(id)
            else { continue }
            pacing.sent(id, at: time)
            if requestInterval == .zero { load.pacing = pacing } else { load.requestIntervals[requestInterval] = pacing }
            guard let last = pacing.last, pacing.unsent.isEmpty else { continue }
            output.append(.save(.requested(HostRequest(host: load.name, requestInterval: requestInterval, at: last, isSent: true))))
        }
        touch(load)
        schedule(now: now)
    }

    /// The next request of a running transfer goes to `host`, by a redirect or again. `.permit` follows once the host takes it.
    ///
    /// - Parameter origin: `DownloadURL.origin` of the request; nil: http, port 80.
    func hop(_ id: RequestID, to host: String, origin: String? = nil, now: WallTime) {
        // The transfer may be stopping.
        guard let entry = entries[id.download], entry.request == id, entry.work == .running, entry.state == .active else { return }
        answered(id, now: now)
        leaveHost(id)
        let load = load(of: host)
        put(request(of: entry, to: host, origin ?? "http://\(host):80", .waiting, now: now), id)
        load.hops.append(id)
        touch(load)
        schedule(now: now)
        // Announce the wait only if the request really waits.
        if isHeld(entry) { review(entry, now: now) }
    }

    /// Permits redirects whose turn it is.
    ///
    /// - Returns: when the next waiting redirect may start (nil: none waits for an instant), and the lanes that precede a redirect.
    private func grantHops(_ host: HostLoad, _ limit: Int, now: WallTime) -> (wake: WallTime?, awaited: Set<UInt32>) {
        guard !host.hops.isEmpty else { return (nil, []) }
        var wake: WallTime?
        var awaitedLanes: Set<UInt32> = []
        // Each application's hops, in the order in which they came.
        var waiting: [(claim: HostTurns.Claim, hops: ArraySlice<RequestID>)] = []
        var places: [HostTurns.Claim: Int] = [:]
        for id in host.hops {
            guard let entry = entries[id.download], let request = atHosts[id] else { continue }
            let claim = claim(of: request, isUrgent: entry.isUrgent)
            if let place = places[claim] {
                waiting[place].hops.append(id)
            } else {
                places[claim] = waiting.count
                waiting.append((claim, [id]))
            }
        }
        while limit == 0 || host.active < limit {
            let next = waiting.indices.filter { !waiting[$0].hops.isEmpty }.min {
                host.turns.last(waiting[$0].claim) < host.turns.last(waiting[$1].claim)
            }
            guard let next, let id = waiting[next].hops.popFirst(), let entry = entries[id.download], let request = atHosts[id] else {
                break
            }
            guard let opens = opens(host, request, isUrgent: entry.isUrgent, now: now) else { continue }
            guard opens <= now else {
                wake = min(wake ?? opens, opens)
                continue
            }
            // While the request waited, other transfers took its slot.
            guard hasSlotForHop else {
                awaitingSlot.insert(host.name)
                review(entry, now: now)
                continue
            }
            if let rival = rival(of: waiting[next].claim, at: host, limit, now: now) {
                if awaitedLanes.insert(rival.lane.id).inserted { awaited.append(rival) }
                waiting[next].hops = []
                continue
            }
            host.hops.removeAll { $0 == id }
            begin(request, id, isUrgent: entry.isUrgent, now: now)
            output.append(.permit(id, afterSave: isPaced(id)))
            review(entry, now: now)
        }
        return (wake, awaitedLanes)
    }

    /// The server of a request has stopped sending, or sends again.
    func stalled(_ id: RequestID, _ isStalled: Bool, now: WallTime) {
        guard let request = atHosts[id], !request.isWaiting, !request.hasLeft else { return }
        set(isStalled ? .silent(since: request.silentSince ?? now) : .underWay, of: id)
        schedule(now: now)
    }

    // MARK: Refusals

    /// Notes what `failure` says about the origin: a refusal, an answer, or nothing.
    func note(_ failure: DownloadFailure, of entry: LedgerEntry, now: WallTime) {
        guard let status = failure.httpStatus else { return }
        switch status {
        case 429, 503: refused(entry.request, status, failure.retryAfter, isUrgent: entry.isUrgent, now: now)
        case 408, 425, 500...: break  // the server is in trouble, which says nothing about its pace
        default: answered(entry.request, now: now)
        }
    }

    private func refused(_ id: RequestID, _ status: UInt32, _ retryAfter: Duration?, isUrgent: Bool, now: WallTime) {
        guard let request = atHosts[id] else { return }
        let ruled = ruledInterval(of: request.origin)
        paces.change(request.origin, creates: true, now: now) { pace in
            pace.refused(
                status, startedAt: request.startedAt, retryAfter: retryAfter, by: request.app, ruled: ruled, now: now)
        }
        touchOrigin(request.origin)
        if isUrgent { calm(request.origin) }
    }

    /// The server refused a download that a caller wanted at once. All other urgent downloads of the origin that have not started now wait
    /// like the rest. So a resumed batch of thousands asks a refusing server only a few times.
    private func calm(_ origin: String) {
        guard let host = hosts[settings.hostRules.governing(DownloadURL.host(of: origin)).name] else { return }
        for lane in host.lanes where lane.isUrgent && (lane.origin == nil || lane.origin == origin) { lane.isUrgent = false }
        host.regime = nil  // announce each download's wait now
    }

    /// The server answered a request, whatever the answer.
    func answered(_ id: RequestID, now: WallTime) {
        guard let request = atHosts[id], paces[request.origin] != nil else { return }
        let ruled = ruledInterval(of: request.origin)
        paces.change(request.origin, now: now) { $0.answered(startedAt: request.startedAt, ruled: ruled, now: now) }
        touchOrigin(request.origin)
    }

    private func ruledInterval(of origin: String) -> Duration {
        settings.hostRules.governing(DownloadURL.host(of: origin)).rule.requestInterval ?? .zero
    }

    private func touchOrigin(_ origin: String) { touch(named: settings.hostRules.governing(DownloadURL.host(of: origin)).name) }

    /// A caller resumed `entry`, which is queued or waits for its next request: try at once, whatever pause or pace its origin has.
    func defyPace(_ entry: LedgerEntry) {
        let isQueued = entry.state == .queued
        guard isQueued || isHeld(entry), !(entry.lane?.isUrgent ?? entry.isUrgent),
            paces[isQueued ? entry.origin : origin(of: entry.request)] != nil
        else { return }
        // A queued download whose former transfer still stops is held back, in no lane yet.
        let isRunnable = entry.lane != nil || heldBack.contains(entry.number)
        leaveLane(entry)
        entry.isUrgent = true
        if isRunnable { makeRunnable(entry) }
        if isQueued { untold.append(entry) }
        if let host = hostNow(of: entry) { touch(host) }
    }

    /// The origins whose refusals still delay requests, by `DownloadURL.origin`.
    public func slowedOrigins(now: WallTime) -> [String: OriginPace] { paces.all(now: now) }

    /// Forgets the refusals of the origins of `host`, and of all hosts that share its rule.
    func resetHost(_ host: String, now: WallTime) {
        let name = settings.hostRules.governing(host).name
        for origin in paces.all(now: now).keys where settings.hostRules.governing(DownloadURL.host(of: origin)).name == name {
            paces.forget(origin)
        }
        touch(named: name)
        schedule(now: now)
    }

    // MARK: Rules

    /// The host rules have changed. Requests under way count at their host of now, at once. Queued downloads whose host has changed follow
    /// in slices, and nothing starts before all of them have.
    func rulesChanged(from before: HostRules, now: WallTime) {
        (recentHost, recentLane) = (nil, nil)
        rulesCount += 1
        // Each other host takes its rule of now when it is refreshed, before anything starts there.
        touchAll()
        let changed = settings.hostRules.changes(since: before)
        for name in changed { hosts[name]?.rule = settings.hostRules.governing(name).rule }
        // The last requests at hosts that another host counts now go to that host.
        for former in hosts.withInstants().sorted(by: { $0.name < $1.name }) {
            let load = load(of: former.name)
            guard load !== former else { continue }
            output.append(former.pacings.map { StoreChange.requestOver(host: former.name, requestInterval: $0) })
            load.inherit(former)
            hosts.noteInstants(of: load)
            output.append(load.requests.map { StoreChange.requested($0) })
        }
        for (id, request) in placed.sorted(by: { $0.key < $1.key }) {
            let (old, load) = (before.governing(request.host).name, load(of: request.host))
            if old != load.name, let former = hosts[old] { count(id, request, at: load, insteadOf: former) }
            load.rule = settings.hostRules.governing(load.name).rule
            // Requests that kept no interval went out at an unknown time: the interval begins now.
            if load.active > 0, load.interval > .zero { load.pacing.begins(at: now) }
            hosts.noteInstants(of: load)
        }
        // A rule for all other hosts groups no hosts.
        let groups = changed.subtracting([HostRules.others])
        if groups.contains(where: { before.given[$0] == nil || settings.hostRules.given[$0] == nil }) {
            beginPass(now: now) { $0.isOfRules = true }
        }
    }

    private func count(_ id: RequestID, _ request: PlacedRequest, at host: HostLoad, insteadOf former: HostLoad) {
        if let hop = former.hops.firstIndex(of: id) {
            former.hops.remove(at: hop)
            host.hops.append(id)
        } else {
            former.active -= 1
            host.active += 1
            if request.silentSince != nil {
                former.silent -= 1
                host.silent += 1
            }
            // The host that counts the request now is told when it has gone out.
            if former.unsent.contains(id) {
                former.gaveUp(id, requestInterval: request.requestInterval)
                host.awaitsSent(id, requestInterval: request.requestInterval, since: request.startedAt)
            }
        }
        touch(former)
        touch(host)
    }

    /// Puts a queued download into a lane of its host of now.
    ///
    /// - Returns: whether it was in another.
    func regroup(_ entry: LedgerEntry) -> Bool {
        guard let lane = entry.lane, !entry.record.isWhole, settings.hostRules.governing(entry.host).name != lane.host.name else {
            return false
        }
        makeRunnable(entry)
        return true
    }

    /// Restores the pauses that servers requested. A pause longer than any possible one is from a clock that was set back since.
    func recallPauses(_ entries: [LedgerEntry], now: WallTime) {
        for entry in entries {
            guard let failure = entry.record.lastFailure, let status = failure.httpStatus, [429, 503].contains(status),
                let pause = failure.retryAfter, let until = entry.record.retryAt, until < now + DownloadRecord.longestRetry
            else { continue }
            let origin = failure.origin ?? entry.origin
            paces.change(origin, creates: true, now: now) { pace in
                pace.recall(until: until, by: entry.record.options.app, status: status, refusedAt: until + (.zero - pause), now: now)
            }
            touchOrigin(origin)
        }
    }

    func shiftHosts(by delta: Duration) {
        paces.shift(by: delta)
        hostWakes = WakeHeap()
        for host in hosts.withInstants() {
            host.shift(by: delta)
            host.wakeAt = nil
        }
        touchAll()
        for (id, request) in atHosts {
            atHosts[id]?.startedAt = request.startedAt + delta
            if let since = request.silentSince { atHosts[id]?.phase = .silent(since: since + delta) }
            if !request.hasLeft, let entry = entries[id.download] { entry.startedAt = entry.startedAt + delta }
        }
        for app in apps.values { app.shift(by: delta) }
        for (name, requests) in lastRequests {
            lastRequests[name] = requests.map {
                HostRequest(host: name, requestInterval: $0.requestInterval, at: $0.at + delta, isSent: $0.isSent)
            }
        }
        output.append(requests.map { StoreChange.requested($0) })
    }

    /// All remembered last requests.
    var requests: [HostRequest] { hosts.withInstants().flatMap(\.requests) + lastRequests.values.joined() }
}
