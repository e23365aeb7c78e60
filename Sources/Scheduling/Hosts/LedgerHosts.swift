public import DownloadModel

/// The load of each host: limits and intervals of host rules, turns, the next requests of transfers, refusals.
extension Ledger {
    /// Refreshes hosts that are due, and hosts that have changed.
    func openHosts(now: WallTime) {
        // The rest is due in the next slice.
        if gate.touchDue(sliceSize.hosts, now: now) { return isCut = true }
        if !gate.awaitingSlot.isEmpty, hasSlotForHop {
            for name in gate.awaitingSlot.sorted() { gate.touch(named: name) }
            gate.awaitingSlot = []
        }
        refreshHosts(now: now)
    }

    /// Refreshes the changed hosts, as many as this turn may refresh. What the others offer is outdated until the next slice.
    func refreshHosts(now: WallTime) {
        while !gate.touched.isEmpty, refreshesLeft > 0 {
            let some = gate.touched.prefix(refreshesLeft).sorted { $0.name < $1.name }
            gate.touched.removeFirst(some.count)
            for (index, host) in some.enumerated() {
                guard refreshesLeft > 0 else {
                    gate.touched.insert(contentsOf: some[index...], at: 0)
                    break
                }
                refresh(host, now: now)
            }
        }
        while refreshesLeft > 0, let host = gate.nextOutdated() { refresh(host, now: now) }
        if !gate.touched.isEmpty || gate.hosts.hasOutdated { isCut = true }
        gate.relaxSweep()
    }

    /// Permits hops and offers the downloads that may start at `host`, withdraws the others, and sets the next wake.
    func refresh(_ host: HostLoad, now: WallTime) {
        guard gate.isOutdated(host), gate.hosts.contains(host) else { return }
        gate.beginRefresh(host)
        refreshesLeft -= 1
        let limit = gate.limit(of: host)
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
        gate.endRefresh(host, wake: wake)
        review(host, now: now)
        if let saves = gate.forgetIfIdle(host, now: now) {
            output.append(saves)
            recentLane = nil
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

    private func claim(of lane: Lane) -> HostTurns.Claim {
        gate.claim(at: origin(of: lane), app: lane.app.name, requestInterval: lane.requestInterval, isUrgent: lane.isUrgent)
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
        gate.touch(lane.host)
    }

    /// A download that was to go before a redirect but got no slot loses its turn. So it delays no request that needs no slot or has one.
    func loseTurns(now: WallTime) {
        while !awaited.isEmpty {
            for one in awaited where one.lane.count > 0 && one.lane.host.turns.last(one.claim) == one.turn {
                let host = one.lane.host
                host.turns.took(one.claim)
                if one.owed != one.claim { host.turns.took(one.owed) }
                gate.touch(host)
            }
            awaited = []
            refreshHosts(now: now)
        }
    }

    /// When the first download of `lane` may start; nil: once the started requests have gone out.
    func opens(_ lane: Lane, now: WallTime) -> WallTime? {
        gate.opens(
            lane.host, origin(of: lane), app: lane.app.name, requestInterval: lane.requestInterval, isUrgent: lane.isUrgent, now: now)
    }

    /// The origin of the first download of `lane`, which delays those behind it.
    func origin(of lane: Lane) -> String {
        lane.origin ?? runnable.next(in: lane.id).flatMap { entries[$0] }?.origin ?? ""
    }

    private func offer(_ entry: LedgerEntry?, of lane: Lane) {
        guard entry?.number != lane.offered else { return }
        withdraw(lane)
        guard let entry else { return }
        lane.offered = entry.number
        lane.app.ready.insert(entry.number, priority: entry.record.options.priority, position: entry.record.position)
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
        let request = request(of: entry, to: entry.host, entry.origin, .underWay, now: now)
        output.append(gate.begin(request, entry.request, isUrgent: entry.isUrgent, now: now))
    }

    func leaveSlot(_ entry: LedgerEntry, now: WallTime) {
        gate.leave(entry.request)
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

    /// Whether the active download waits for its next request, and takes no slot.
    public func isHeld(_ entry: LedgerEntry) -> Bool { gate.requests[entry.request]?.isWaiting ?? false }
    /// Whether the request keeps an interval: the engine must report when the request has gone out.
    public func isPaced(_ id: RequestID) -> Bool { gate.requests[id]?.isPaced ?? false }

    /// A request that was started or permitted while `isPaced` has gone out.
    func requestSent(_ id: RequestID, at time: WallTime, now: WallTime) {
        guard let entry = entries[id.download] else { return }
        output.append(gate.sent(id, at: time, isUrgent: entry.isUrgent, now: now))
        schedule(now: now)
    }

    /// The next request of a running transfer goes to `host`, by a redirect or again. `.permit` follows once the host takes it.
    ///
    /// - Parameter origin: `DownloadURL.origin` of the request; nil: http, port 80.
    func hop(_ id: RequestID, to host: String, origin: String? = nil, now: WallTime) {
        // The transfer may be stopping.
        guard let entry = entries[id.download], entry.request == id, entry.work == .running, entry.state == .active else { return }
        gate.answered(id, now: now)
        gate.leave(id)
        gate.wait(request(of: entry, to: host, origin ?? "http://\(host):80", .waiting, now: now), id)
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
            guard let entry = entries[id.download], let request = gate.requests[id] else { continue }
            let claim = gate.claim(of: request, isUrgent: entry.isUrgent)
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
            guard let next, let id = waiting[next].hops.popFirst(), let entry = entries[id.download], let request = gate.requests[id] else {
                break
            }
            guard let opens = gate.opens(host, request, isUrgent: entry.isUrgent, now: now) else { continue }
            guard opens <= now else {
                wake = min(wake ?? opens, opens)
                continue
            }
            // While the request waited, other transfers took its slot.
            guard hasSlotForHop else {
                gate.awaitingSlot.insert(host.name)
                review(entry, now: now)
                continue
            }
            if let rival = rival(of: waiting[next].claim, at: host, limit, now: now) {
                if awaitedLanes.insert(rival.lane.id).inserted { awaited.append(rival) }
                waiting[next].hops = []
                continue
            }
            host.hops.removeAll { $0 == id }
            output.append(gate.begin(request, id, isUrgent: entry.isUrgent, now: now))
            output.append(.permit(id, afterSave: isPaced(id)))
            review(entry, now: now)
        }
        return (wake, awaitedLanes)
    }

    /// The server of a request has stopped sending, or sends again.
    func stalled(_ id: RequestID, _ isStalled: Bool, now: WallTime) {
        gate.stalled(id, isStalled, now: now)
        schedule(now: now)
    }

    // MARK: Refusals

    /// Notes what `failure` says about the origin: a refusal, an answer, or nothing.
    func note(_ failure: DownloadFailure, of entry: LedgerEntry, now: WallTime) {
        guard let status = failure.httpStatus else { return }
        switch status {
        case 429, 503: gate.refused(entry.request, status, failure.retryAfter, isUrgent: entry.isUrgent, now: now)
        case 408, 425, 500...: break  // the server is in trouble, which says nothing about its pace
        default: gate.answered(entry.request, now: now)
        }
    }

    /// A caller resumed `entry`, which is queued or waits for its next request: try at once, whatever pause or pace its origin has.
    func defyPace(_ entry: LedgerEntry) {
        let isQueued = entry.state == .queued
        guard isQueued || isHeld(entry), !(entry.lane?.isUrgent ?? entry.isUrgent),
            gate.paces[isQueued ? entry.origin : gate.origin(of: entry.request)] != nil
        else { return }
        // A queued download whose former transfer still stops is held back, in no lane yet.
        let isRunnable = entry.lane != nil || heldBack.contains(entry.number)
        leaveLane(entry)
        entry.isUrgent = true
        if isRunnable { makeRunnable(entry) }
        if isQueued { untold.append(entry) }
        if let host = gate.host(of: entry.request) { gate.touch(host) }
    }

    /// The origins whose refusals still delay requests, by `DownloadURL.origin`.
    public func slowedOrigins(now: WallTime) -> [String: OriginPace] { gate.paces.all(now: now) }

    /// Forgets the refusals of the origins of `host`, and of all hosts that share its rule.
    func resetHost(_ host: String, now: WallTime) {
        gate.reset(host, now: now)
        schedule(now: now)
    }

    // MARK: Rules

    /// Limits or host rules may have changed. Requests under way count at their host of now, at once. Queued downloads whose host has
    /// changed follow in slices, and nothing starts before all of them have.
    func settingsChanged(now: WallTime) {
        let (saves, regroups) = gate.set(settings, now: now)
        recentLane = nil
        output.append(saves)
        if regroups { beginPass(now: now) { $0.isOfRules = true } }
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
            gate.recall(origin, status, pause, until: until, by: entry.record.options.app, now: now)
        }
    }

    func shiftHosts(by delta: Duration) {
        for (id, _) in gate.placed { if let entry = entries[id.download] { entry.startedAt = entry.startedAt + delta } }
        for app in apps.values { app.shift(by: delta) }
        output.append(gate.shift(by: delta))
    }
}
