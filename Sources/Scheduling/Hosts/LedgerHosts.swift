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
        if hosts.count >= hostsBeforeSweep {
            touched.formUnion(hosts.keys)
            hostsBeforeSweep *= 2
        }
        hosts[name] = load
        for request in lastRequests.removeValue(forKey: name) ?? [] {
            if request.spacing == .zero {
                load.pacing = HostLoad.Pacing(last: request.at)
            } else {
                load.spacings[request.spacing] = HostLoad.Pacing(last: request.at)
            }
        }
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

    /// Refreshes hosts that are due, and hosts that have changed.
    func openHosts(now: WallTime) {
        while let (time, name) = nextHostWake, time <= now {
            hostWakes.removeFirst()
            hosts[name]?.wakeAt = nil
            touched.insert(name)
        }
        if !awaitingSlot.isEmpty, hasSlotForHop {
            touched.formUnion(awaitingSlot)
            awaitingSlot = []
        }
        refreshHosts(now: now)
    }

    /// The first instant at which a host is due.
    var nextHostWake: (time: WallTime, name: String)? {
        hostWakes.dropStale { name, time in hosts[name]?.wakeAt == time }
        return hostWakes.first
    }

    func refreshHosts(now: WallTime) {
        while !touched.isEmpty {
            let names = touched.sorted()
            touched = []
            for name in names { if let host = hosts[name] { refresh(host, now: now) } }
        }
        if hosts.count < hostsBeforeSweep / 4 { hostsBeforeSweep = max(1024, 2 * hosts.count) }
    }

    /// Permits hops and offers the downloads that may start at `host`, withdraws the others, and sets the next wake.
    private func refresh(_ host: HostLoad, now: WallTime) {
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
        review(host, now: now)
        if host.isIdle(now: now) {
            for spacing in host.pacings { actions.append(.save(.requestOver(host: host.name, spacing: spacing))) }
            hosts[host.name] = nil
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
        guard network != nil || host.isLocal, limit == 0 || host.active < limit else { return [] }
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

    private func claim(at origin: String, app: String, spacing: Duration, isUrgent: Bool) -> HostTurns.Claim {
        let isSlowed = !isUrgent && paces[origin].map { $0.interval > .zero } ?? false
        return HostTurns.Claim(app: app, slowedOrigin: isSlowed ? origin : nil, spacing: spacing)
    }

    private func claim(of lane: Lane) -> HostTurns.Claim {
        claim(at: origin(of: lane), app: lane.app.name, spacing: lane.spacing, isUrgent: lane.isUrgent)
    }

    private func claim(of entry: LedgerEntry, _ request: PlacedRequest) -> HostTurns.Claim {
        claim(at: request.origin, app: entry.record.options.app, spacing: entry.spacing, isUrgent: entry.isUrgent)
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
        touched.insert(lane.host.name)
    }

    /// A download that was to go before a redirect but got no slot loses its turn. So it delays no request that needs no slot or has one.
    func loseTurns(now: WallTime) {
        while !awaited.isEmpty {
            for one in awaited where one.lane.count > 0 && one.lane.host.turns.last(one.claim) == one.turn {
                let host = one.lane.host
                host.turns.took(one.claim)
                if one.owed != one.claim { host.turns.took(one.owed) }
                touched.insert(host.name)
            }
            awaited = []
            refreshHosts(now: now)
        }
    }

    /// When the first download of `lane` may start; nil: once the started requests have gone out.
    func opens(_ lane: Lane, now: WallTime) -> WallTime? {
        opens(lane.host, origin(of: lane), app: lane.app.name, spacing: lane.spacing, isUrgent: lane.isUrgent, now: now)
    }

    /// The origin of the first download of `lane`, which delays those behind it.
    func origin(of lane: Lane) -> String {
        lane.origin ?? runnable.next(in: lane.id).flatMap { entries[$0] }?.origin ?? ""
    }

    /// As above for a transfer's next request.
    func opens(_ host: HostLoad, _ entry: LedgerEntry, now: WallTime) -> WallTime? {
        opens(
            host, origin(of: entry.request), app: entry.record.options.app, spacing: entry.spacing, isUrgent: entry.isUrgent, now: now)
    }

    private func opens(
        _ host: HostLoad, _ origin: String, app: String, spacing: Duration, isUrgent: Bool, now: WallTime
    ) -> WallTime? {
        guard let opens = host.opens(spacing: spacing, now: now) else { return nil }
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
        begin(entry, PlacedRequest(host: entry.host, origin: entry.origin, startedAt: now), now: now)
    }

    func leaveSlot(_ entry: LedgerEntry, now: WallTime) {
        setIdle(entry, isHeld: false, silentSince: nil)
        leaveHost(entry)
        guard let app = entry.share else { return }
        entry.share = nil
        app.charge(now: now)
        app.active -= 1
        forgetIfIdle(app)
    }

    /// Starts the request of `entry`.
    private func begin(_ entry: LedgerEntry, _ request: PlacedRequest, now: WallTime) {
        let (load, id) = (load(of: request.host), entry.request)
        atHosts[id] = request
        load.active += 1
        load.turns.took(claim(of: entry, request))
        touched.insert(load.name)
        let spacing = entry.spacing
        let isSlowed = !entry.isUrgent && (paces[request.origin].map { $0.interval > .zero } ?? false)
        entry.isPaced = load.interval > .zero || spacing > .zero || isSlowed
        if isSlowed { paces.change(request.origin, now: now) { $0.started(id, at: now) } }
        if load.interval > .zero {
            load.pacing.started(id, at: now)
            actions.append(.save(.requested(HostRequest(host: load.name, spacing: .zero, at: now, isSent: false))))
        }
        if spacing > .zero {
            for spacing in load.forgetSpacings(now: now) { actions.append(.save(.requestOver(host: load.name, spacing: spacing))) }
            load.spacings[spacing, default: HostLoad.Pacing()].started(id, at: now)
            actions.append(.save(.requested(HostRequest(host: load.name, spacing: spacing, at: now, isSent: false))))
        }
    }

    private func leaveHost(_ entry: LedgerEntry) {
        let id = entry.request
        guard let request = atHosts[id], !request.hasLeft else { return }
        atHosts[id]?.hasLeft = true
        let load = load(of: request.host)
        touched.insert(load.name)
        if let hop = load.hops.firstIndex(of: id) {
            load.hops.remove(at: hop)
            return
        }
        load.active -= 1
        paces.gaveUp(request.origin, id)
        load.pacing.gaveUp(id)
        load.spacings[entry.spacing]?.gaveUp(id)
    }

    /// A request that was started or permitted while `isPaced` has gone out.
    func requestSent(_ id: RequestID, at time: WallTime, now: WallTime) {
        guard let entry = entries[id.download], let request = atHosts[id], !request.hasLeft else { return }
        let load = load(of: request.host)
        if !entry.isUrgent { paces.change(request.origin, now: now) { $0.sent(id, at: time) } }
        for spacing in [.zero, entry.spacing] {
            guard var pacing = spacing == .zero ? load.pacing : load.spacings[spacing], pacing.unsent.contains(id) else { continue }
            pacing.sent(id, at: time)
            if spacing == .zero { load.pacing = pacing } else { load.spacings[spacing] = pacing }
            guard let last = pacing.last, pacing.unsent.isEmpty else { continue }
            actions.append(.save(.requested(HostRequest(host: load.name, spacing: spacing, at: last, isSent: true))))
        }
        touched.insert(load.name)
        schedule(now: now)
    }

    /// The next request of a running transfer goes to `host`, by a redirect or again. `.permit` follows once the host takes it.
    ///
    /// - Parameter origin: `DownloadURL.origin` of the request; nil: http, port 80.
    func hop(_ id: RequestID, to host: String, origin: String? = nil, now: WallTime) {
        // The transfer may be stopping.
        guard let entry = entries[id.download], entry.request == id, entry.work == .running, entry.state == .active else { return }
        answered(entry, now: now)
        setIdle(entry, isHeld: false, silentSince: nil)
        leaveHost(entry)
        let load = load(of: host)
        atHosts[id] = PlacedRequest(host: host, origin: origin ?? "http://\(host):80", startedAt: now)
        load.hops.append(id)
        touched.insert(load.name)
        setIdle(entry, isHeld: true, silentSince: nil)
        schedule(now: now)
        // Announce the wait only if the request really waits.
        if entry.isHeld { review(entry, now: now) }
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
            let claim = claim(of: entry, request)
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
            guard let next, let id = waiting[next].hops.popFirst(), let entry = entries[id.download], var request = atHosts[id] else {
                break
            }
            guard let opens = opens(host, entry, now: now) else { continue }
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
            request.startedAt = now
            begin(entry, request, now: now)
            setIdle(entry, isHeld: false, silentSince: nil)
            actions.append(.permit(id, afterSave: entry.isPaced))
            review(entry, now: now)
        }
        return (wake, awaitedLanes)
    }

    /// The server of an active download has stopped sending, or sends again.
    func stalled(_ entry: LedgerEntry, _ isStalled: Bool, now: WallTime) {
        guard entry.state == .active, !entry.isHeld else { return }
        setIdle(entry, isHeld: false, silentSince: isStalled ? entry.silentSince ?? now : nil)
        schedule(now: now)
    }

    private func setIdle(_ entry: LedgerEntry, isHeld: Bool, silentSince: WallTime?) {
        let (wasHeld, wasSilent, isSilent) = (entry.isHeld, entry.silentSince != nil, silentSince != nil)
        (entry.isHeld, entry.silentSince) = (isHeld, silentSince)
        heldTransfers += (isHeld ? 1 : 0) - (wasHeld ? 1 : 0)
        idleTransfers += (isHeld || isSilent ? 1 : 0) - (wasHeld || wasSilent ? 1 : 0)
        guard isSilent != wasSilent, let host = hostNow(of: entry) else { return }
        host.silent += isSilent ? 1 : -1
        touched.insert(host.name)
    }

    // MARK: Refusals

    /// Notes what `failure` says about the origin: a refusal, an answer, or nothing.
    func note(_ failure: DownloadFailure, of entry: LedgerEntry, now: WallTime) {
        guard let status = failure.httpStatus else { return }
        switch status {
        case 429, 503: refused(entry, status, failure.retryAfter, now: now)
        case 408, 425, 500...: break  // the server is in trouble, which says nothing about its pace
        default: answered(entry, now: now)
        }
    }

    private func refused(_ entry: LedgerEntry, _ status: UInt32, _ retryAfter: Duration?, now: WallTime) {
        guard let request = atHosts[entry.request] else { return }
        let ruled = ruledInterval(of: request.origin)
        paces.change(request.origin, creates: true, now: now) { pace in
            pace.refused(
                status, startedAt: request.startedAt, retryAfter: retryAfter, by: entry.record.options.app, ruled: ruled, now: now)
        }
        touchOrigin(request.origin)
        if entry.isUrgent { calm(request.origin) }
    }

    /// The server refused a download that a caller wanted at once. All other urgent downloads of the origin that have not started now wait
    /// like the rest. So a resumed batch of thousands asks a refusing server only a few times.
    private func calm(_ origin: String) {
        guard let host = hosts[settings.hostRules.governing(DownloadURL.host(of: origin)).name] else { return }
        for lane in host.lanes where lane.isUrgent && (lane.origin == nil || lane.origin == origin) { lane.isUrgent = false }
        host.regime = nil  // announce each download's wait now
    }

    /// The server answered the request of `entry`, whatever the answer.
    func answered(_ entry: LedgerEntry, now: WallTime) {
        guard let request = atHosts[entry.request], paces[request.origin] != nil else { return }
        let ruled = ruledInterval(of: request.origin)
        paces.change(request.origin, now: now) { $0.answered(startedAt: request.startedAt, ruled: ruled, now: now) }
        touchOrigin(request.origin)
    }

    private func ruledInterval(of origin: String) -> Duration {
        settings.hostRules.governing(DownloadURL.host(of: origin)).rule.requestInterval ?? .zero
    }

    private func touchOrigin(_ origin: String) { touched.insert(settings.hostRules.governing(DownloadURL.host(of: origin)).name) }

    /// A caller resumed `entry`, which is queued or waits for its next request: try at once, whatever pause or pace its origin has.
    func defyPace(_ entry: LedgerEntry) {
        let isQueued = entry.state == .queued
        guard isQueued || entry.isHeld, !(entry.lane?.isUrgent ?? entry.isUrgent),
            paces[isQueued ? entry.origin : origin(of: entry.request)] != nil
        else { return }
        // A queued download whose former transfer still stops is held back, in no lane yet.
        let isRunnable = entry.lane != nil || heldBack.contains(entry.number)
        leaveLane(entry)
        entry.isUrgent = true
        if isRunnable { makeRunnable(entry) }
        if isQueued { untold.append(entry) }
        if let host = hostNow(of: entry) { touched.insert(host.name) }
    }

    /// The origins whose refusals still delay requests, by `DownloadURL.origin`.
    public func slowedOrigins(now: WallTime) -> [String: OriginPace] { paces.all(now: now) }

    /// Forgets the refusals of the origins of `host`, and of all hosts that share its rule.
    func resetHost(_ host: String, now: WallTime) {
        let name = settings.hostRules.governing(host).name
        for origin in paces.all(now: now).keys where settings.hostRules.governing(DownloadURL.host(of: origin)).name == name {
            paces.forget(origin)
        }
        touched.insert(name)
        schedule(now: now)
    }

    // MARK: Rules

    /// The host rules have changed: count all hosts again.
    func recount(now: WallTime) {
        let queued = runnable.ordered.compactMap { entries[$0] }
        for entry in queued { leaveLane(entry) }
        let old = hosts.values.sorted { $0.name < $1.name }
        let (waiting, unsent) = (Set(old.flatMap(\.hops)), Set(old.flatMap(\.unsent)))
        (hosts, touched, hostWakes, recentHost, recentLane, awaitingSlot) = ([:], [], WakeHeap(), nil, nil, [])
        for former in old { load(of: former.name).inherit(former) }
        for (id, request) in placed.sorted(by: { $0.key < $1.key }) {
            let load = load(of: request.host)
            if waiting.contains(id) {
                load.hops.append(id)
                continue
            }
            load.active += 1
            if entries[id.download]?.silentSince != nil { load.silent += 1 }
            // The host that counts the request now is told when it has gone out.
            if let entry = entries[id.download], unsent.contains(id) {
                load.awaitsSent(id, spacing: entry.spacing, since: request.startedAt)
            }
        }
        // Requests that kept no interval went out at an unknown time: begin the interval now.
        for load in hosts.values where load.active > 0 && load.interval > .zero { load.pacing.begins(at: now) }
        for entry in queued { makeRunnable(entry) }
        touched.formUnion(hosts.keys)
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
        for host in hosts.values {
            host.shift(by: delta)
            host.wakeAt = nil
            touched.insert(host.name)
        }
        for (id, request) in atHosts { atHosts[id]?.startedAt = request.startedAt + delta }
        for entry in placed.compactMap({ self.entries[$0.key.download] }) {
            entry.startedAt = entry.startedAt + delta
            entry.silentSince = entry.silentSince.map { $0 + delta }
        }
        for app in apps.values { app.shift(by: delta) }
        for (name, requests) in lastRequests {
            lastRequests[name] = requests.map { HostRequest(host: name, spacing: $0.spacing, at: $0.at + delta, isSent: $0.isSent) }
        }
        actions += requests.map { .save(.requested($0)) }
    }

    /// All remembered last requests.
    var requests: [HostRequest] {
        hosts.values.flatMap { host in
            ([(Duration.zero, host.pacing)] + host.spacings.map { ($0.key, $0.value) }).compactMap { spacing, pacing in
                pacing.last.map { HostRequest(host: host.name, spacing: spacing, at: $0, isSent: pacing.unsent.isEmpty) }
            }
        } + lastRequests.values.joined()
    }
}
