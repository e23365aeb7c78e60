/// Which download starts next: queue order, limits, host rules, and turns between applications.
///
/// What may start lies in lanes, one for each host and application. Of a lane whose host takes a request now, the first is offered in its
/// application's `ready`; so choosing costs no more with 100,000 queued than with one, however many of them have to wait.
extension Ledger {
    /// With all slots taken, an application that is owed more than this gets one of another's.
    private static let slice: Duration = .seconds(15)
    private static let sliceLook: Duration = .seconds(5)
    /// Most transfers at a time that hold no slot because nothing comes.
    private static let mostIdle = 64

    // MARK: Starting

    /// Starts what may start. To be called after every event: what that queued is told of here.
    public func schedule(now: WallTime) {
        defer { tellQueued(now: now) }
        sliceAt = nil
        guard !isEnding, !isAsleep, !settings.paused else { return }
        takeIn(now: now)
        openHosts(now: now)
        repeat {
            while hasSlot, let entry = nextInTurn(now: now) {
                // The clock may have been set back since it was queued.
                guard obstacle(of: entry, now: now) == .queued else {
                    settle(entry, now: now)
                    refreshHosts(now: now)
                    if entry.state == .queued { break }
                    continue
                }
                do { try apply(entry.record.isWhole ? .startWhole : .start, to: entry, now: now) } catch { break }
                refreshHosts(now: now)
            }
        } while makeRoom(now: now)
    }

    /// Whether another may start beside those that are active. Who waits for its host, or for a server that sends nothing, takes no slot.
    private var hasSlot: Bool {
        settings.maxActive == 0 || counts.active < settings.maxActive + UInt32(min(idleTransfers, Self.mostIdle))
    }

    /// The first of the application whose turn it is, of those of the highest priority.
    private func nextInTurn(now: WallTime) -> LedgerEntry? {
        var best: (entry: LedgerEntry, app: AppShare)?
        for app in apps.values {
            guard let number = app.ready.next, let entry = entries[number] else { continue }
            app.charge(now: now)
            guard let rival = best else {
                best = (entry, app)
                continue
            }
            let (own, other) = (entry.record, rival.entry.record)
            let comesFirst =
                (other.options.priority, app.cost, own.position, own.number) < (
                    own.options.priority, rival.app.cost, other.position, other.number
                )
            if comesFirst { best = (entry, app) }
        }
        return best?.entry
    }

    /// With all slots taken, has one that moves for long give way where another application waits and is owed more than a slice.
    ///
    /// - Returns: whether there is room now.
    private func makeRoom(now: WallTime) -> Bool {
        guard settings.maxActive > 0, !hasSlot, let next = nextInTurn(now: now), let owed = next.lane?.app else { return false }
        var candidate: LedgerEntry?
        var isContended = false
        for number in atHosts.keys {
            guard let entry = entries[number], entry.state == .active, let app = entry.share, app !== owed, app.active > owed.active,
                entry.record.options.priority <= next.record.options.priority
            else { continue }
            app.charge(now: now)
            isContended = true
            guard app.cost - owed.cost > Self.slice, now - entry.startedAt > Self.slice, entry.record.resume != nil else { continue }
            if let rival = candidate, (rival.startedAt, rival.number) <= (entry.startedAt, entry.number) { continue }
            candidate = entry
        }
        if let candidate, (try? apply(.yield, to: candidate, now: now)) != nil { return hasSlot }
        if isContended { sliceAt = now + Self.sliceLook }
        return false
    }

    // MARK: Lanes

    /// Puts what is queued in its lane; what is still being worked on comes later.
    func makeRunnable(_ entry: LedgerEntry) {
        guard entry.isEntered, !entry.isRemoved else { return }
        leaveLane(entry)
        guard !isBusy(entry) else {
            heldBack.insert(entry.number)
            return
        }
        let lane = lane(of: entry)
        entry.lane = lane
        lane.count += 1
        runnable.insert(entry.number, lane: lane.id, priority: entry.record.options.priority, position: entry.record.position)
        touched.insert(lane.host.name)
    }

    func leaveLane(_ entry: LedgerEntry) {
        heldBack.remove(entry.number)
        guard let lane = entry.lane else { return }
        entry.lane = nil
        lane.count -= 1
        runnable.remove(entry.number)
        if lane.offered == entry.number { withdraw(lane) }
        touched.insert(lane.host.name)
        guard lane.count == 0 else { return }
        lane.host.lanes.removeAll { $0 === lane }
        lane.app.lanes -= 1
        forgetIfIdle(lane.app)
    }

    private func lane(of entry: LedgerEntry) -> Lane {
        // What is whole asks no host for anything; no host has the empty name.
        let host = load(of: entry.record.isWhole ? "" : entry.host)
        let (app, spacing) = (entry.record.options.app, host.told(apart: entry.record.options.requestInterval ?? .zero))
        entry.spacing = spacing
        if let lane = host.lanes.first(where: { $0.app.name == app && $0.spacing == spacing }) { return lane }
        laneNumber &+= 1
        let lane = Lane(id: laneNumber, host: host, app: share(of: app), spacing: spacing)
        lane.app.lanes += 1
        host.lanes.append(lane)
        return lane
    }

    private func share(of app: String) -> AppShare {
        if let share = apps[app] { return share }
        // Who comes late has had nothing, and yet no claim to what others had before.
        let share = AppShare(name: app, cost: apps.values.map(\.cost).min() ?? .zero)
        apps[app] = share
        return share
    }

    private func forgetIfIdle(_ app: AppShare) { if app.isIdle { apps[app.name] = nil } }

    /// Takes in what was queued while its files were still being worked on.
    private func takeIn(now: WallTime) {
        guard !heldBack.isEmpty else { return }
        for number in heldBack.sorted() {
            guard let entry = entries[number], entry.state == .queued else {
                heldBack.remove(number)
                continue
            }
            if !isBusy(entry) {
                heldBack.remove(number)
                makeRunnable(entry)
            }
        }
    }

    private func withdraw(_ lane: Lane) {
        if let number = lane.offered { lane.app.ready.remove(number) }
        lane.offered = nil
    }

    // MARK: Hosts

    /// What is under way at `host`, a host's name.
    func load(of host: String) -> HostLoad {
        // Of a hundred thousand downloads that are taken in, most have the host of the one before.
        if let recent = recentHost, recent.host == host { return recent.load }
        let load = findLoad(of: host)
        recentHost = (host, load)
        return load
    }

    private func findLoad(of host: String) -> HostLoad {
        let (name, rule) = settings.hostRules.governing(host)
        if let load = hosts[name] { return load }
        let load = HostLoad(name: name, rule: rule)
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
    private func limit(of host: HostLoad) -> Int { Int(host.rule.connections ?? settings.maxPerHost) }

    /// The same where it is less than what may be active at all: else it is never what a download waits for.
    private func bindingLimit(of host: HostLoad) -> Int {
        let limit = limit(of: host)
        return settings.maxActive == 0 || limit < settings.maxActive ? limit : 0
    }

    /// Looks at hosts whose time has come, and at those at which something has changed.
    private func openHosts(now: WallTime) {
        while let (time, name) = nextHostWake, time <= now {
            hostWakes.removeFirst()
            hosts[name]?.wakeAt = nil
            touched.insert(name)
        }
        refreshHosts(now: now)
    }

    /// The first instant at which a host is to be looked at.
    var nextHostWake: (time: WallTime, name: String)? {
        hostWakes.dropStale { name, time in hosts[name]?.wakeAt == time }
        return hostWakes.first
    }

    private func refreshHosts(now: WallTime) {
        while !touched.isEmpty {
            let names = touched.sorted()
            touched = []
            for name in names { if let host = hosts[name] { refresh(host, now: now) } }
        }
    }

    /// Offers what may start at `host`, takes back what may not, and says when to look again.
    private func refresh(_ host: HostLoad, now: WallTime) {
        let limit = limit(of: host)
        var wake = grantHops(host, limit, now: now)
        // Before it is known what network there is nothing goes there.
        let isKnown = network != nil || host.isLocal
        let hasRoom = limit == 0 || host.active < limit
        for lane in host.lanes {
            let opens = host.opens(spacing: lane.spacing, now: now)
            let mayStart = isKnown && hasRoom && host.hops.isEmpty && opens.map { $0 <= now } ?? false
            offer(mayStart ? runnable.next(in: lane.id) : nil, of: lane)
            if hasRoom, let opens, opens > now { wake = min(wake ?? opens, opens) }
        }
        if host.wakeAt != wake {
            host.wakeAt = wake
            if let wake { hostWakes.insert(wake, host.name) }
        }
        review(host, now: now)
        if host.isIdle(now: now) {
            hosts[host.name] = nil
            recentHost = nil
        }
    }

    private func offer(_ wanted: DownloadNumber?, of lane: Lane) {
        guard wanted != lane.offered else { return }
        withdraw(lane)
        guard let wanted, let entry = entries[wanted] else { return }
        lane.offered = wanted
        lane.app.ready.insert(wanted, priority: entry.record.options.priority, position: entry.record.position)
    }

    // MARK: What is active

    /// `entry` becomes active, with its first request at its own host.
    func enterSlot(_ entry: LedgerEntry, now: WallTime) {
        let app = share(of: entry.record.options.app)
        app.charge(now: now)
        app.cost += AppShare.start
        app.active += 1
        (entry.share, entry.startedAt) = (app, now)
        begin(entry, at: entry.host, now: now)
    }

    func leaveSlot(_ entry: LedgerEntry, now: WallTime) {
        leaveHost(entry)
        setIdle(entry, isHeld: false, isStalled: false)
        guard let app = entry.share else { return }
        entry.share = nil
        app.charge(now: now)
        app.active -= 1
        forgetIfIdle(app)
    }

    /// A request of `entry` starts at `host`.
    private func begin(_ entry: LedgerEntry, at host: String, now: WallTime) {
        let load = load(of: host)
        atHosts[entry.number] = host
        load.active += 1
        touched.insert(load.name)
        let spacing = entry.spacing
        entry.requestedAt = now
        entry.requests += 1
        entry.isPaced = load.interval > .zero || spacing > .zero
        if load.interval > .zero {
            load.pacing.started(entry.number, at: now)
            actions.append(.save(.requested(HostRequest(host: load.name, spacing: .zero, at: now, isSent: false))))
        }
        if spacing > .zero {
            load.forgetSpacings(now: now)
            load.spacings[spacing, default: HostLoad.Pacing()].started(entry.number, at: now)
            actions.append(.save(.requested(HostRequest(host: load.name, spacing: spacing, at: now, isSent: false))))
        }
    }

    private func leaveHost(_ entry: LedgerEntry) {
        guard let host = atHosts.removeValue(forKey: entry.number) else { return }
        let load = load(of: host)
        touched.insert(load.name)
        if let hop = load.hops.firstIndex(of: entry.number) {
            load.hops.remove(at: hop)
            return
        }
        load.active -= 1
        load.pacing.gaveUp(entry.number)
        load.spacings[entry.spacing]?.gaveUp(entry.number)
    }

    /// The request of a transfer that was started, or permitted, as `isPaced` has gone out.
    public func requestSent(_ entry: LedgerEntry, at time: WallTime, now: WallTime) {
        guard let host = atHosts[entry.number] else { return }
        let load = load(of: host)
        for spacing in [.zero, entry.spacing] {
            guard var pacing = spacing == .zero ? load.pacing : load.spacings[spacing], pacing.unsent.contains(entry.number) else {
                continue
            }
            pacing.sent(entry.number, at: time)
            if spacing == .zero { load.pacing = pacing } else { load.spacings[spacing] = pacing }
            guard let last = pacing.last, pacing.unsent.isEmpty else { continue }
            actions.append(.save(.requested(HostRequest(host: load.name, spacing: spacing, at: last, isSent: true))))
        }
        touched.insert(load.name)
        schedule(now: now)
    }

    /// The next request of a transfer under way goes to `host`: by a redirect, or once more. `.permit` follows when the host takes it.
    public func hop(_ entry: LedgerEntry, to host: String, now: WallTime) {
        guard entry.work == .running, entry.state == .active else { return }  // it is being stopped
        leaveHost(entry)
        let load = load(of: host)
        atHosts[entry.number] = host
        load.hops.append(entry.number)
        touched.insert(load.name)
        setIdle(entry, isHeld: true, isStalled: false)
        schedule(now: now)
        // Told only where it really waits.
        if entry.isHeld { review(entry, now: now) }
    }

    /// - Returns: when a hop that waits may start; nil: none waits for an instant.
    private func grantHops(_ host: HostLoad, _ limit: Int, now: WallTime) -> WallTime? {
        var wake: WallTime?
        for number in host.hops {
            guard limit == 0 || host.active < limit, let entry = entries[number] else { continue }
            guard let opens = host.opens(spacing: entry.spacing, now: now) else { continue }
            guard opens <= now else {
                wake = min(wake ?? opens, opens)
                continue
            }
            host.hops.removeAll { $0 == number }
            guard let name = atHosts[number] else { continue }
            begin(entry, at: name, now: now)
            setIdle(entry, isHeld: false, isStalled: false)
            actions.append(.permit(entry, afterSave: entry.isPaced))
            review(entry, now: now)
        }
        return wake
    }

    /// The server of an active download sends nothing, or sends again.
    public func stalled(_ entry: LedgerEntry, _ isStalled: Bool, now: WallTime) {
        guard entry.state == .active, !entry.isHeld else { return }
        setIdle(entry, isHeld: false, isStalled: isStalled)
        schedule(now: now)
    }

    private func setIdle(_ entry: LedgerEntry, isHeld: Bool, isStalled: Bool) {
        let wasIdle = entry.isHeld || entry.isStalled
        (entry.isHeld, entry.isStalled) = (isHeld, isStalled)
        idleTransfers += (isHeld || isStalled ? 1 : 0) - (wasIdle ? 1 : 0)
    }

    /// The server refused the request of `entry`, or answered it.
    func heard(from entry: LedgerEntry, _ failure: DownloadFailure?, now: WallTime) {
        guard let host = atHosts[entry.number] else { return }
        let load = load(of: host)
        if let failure {
            guard failure.httpStatus == 429 || failure.httpStatus == 503 else { return }
            load.refused(startedAt: entry.requestedAt, retryAfter: failure.retryAfter, now: now)
        } else {
            load.answered()
        }
        touched.insert(load.name)
    }

    // MARK: Rules

    /// The rules, or the limits, have changed: hosts are counted anew.
    func recount(now: WallTime) {
        let queued = runnable.ordered.compactMap { entries[$0] }
        for entry in queued { leaveLane(entry) }
        let old = hosts.values.sorted { $0.name < $1.name }
        let (places, waiting) = (atHosts, Set(old.flatMap(\.hops)))
        (hosts, touched, hostWakes, recentHost) = ([:], [], WakeHeap(), nil)
        for former in old { load(of: former.name).inherit(former) }
        for (number, host) in places.sorted(by: { $0.key < $1.key }) {
            let load = load(of: host)
            if waiting.contains(number) { load.hops.append(number) } else { load.active += 1 }
        }
        // Nobody knows when requests went out that kept no interval.
        for load in hosts.values where load.active > 0 && load.interval > .zero { load.pacing.begins(at: now) }
        for entry in queued { makeRunnable(entry) }
        touched.formUnion(hosts.keys)
    }

    /// What a restart must not forget: pauses that servers asked for.
    func recallPauses() {
        for entry in entries.values {
            guard let failure = entry.record.lastFailure, [429, 503].contains(failure.httpStatus), failure.retryAfter != nil,
                let until = entry.record.retryAt
            else { continue }
            load(of: failure.host ?? entry.host).pause(until: until)
        }
    }

    func shiftHosts(by delta: Duration) {
        for host in hosts.values {
            host.shift(by: delta)
            host.wakeAt = nil
            touched.insert(host.name)
        }
        for (name, requests) in lastRequests {
            lastRequests[name] = requests.map { HostRequest(host: name, spacing: $0.spacing, at: $0.at + delta, isSent: $0.isSent) }
        }
        actions += requests.map { .save(.requested($0)) }
    }

    /// A person wants a try now, whatever pause the server asked for.
    func liftPause(of entry: LedgerEntry) {
        guard let host = hosts[settings.hostRules.governing(entry.host).name] else { return }
        host.liftPause()
        touched.insert(host.name)
    }

    /// The last requests, as far as they are remembered.
    var requests: [HostRequest] {
        hosts.values.flatMap { host in
            ([(Duration.zero, host.pacing)] + host.spacings.map { ($0.key, $0.value) }).compactMap { spacing, pacing in
                pacing.last.map { HostRequest(host: host.name, spacing: spacing, at: $0, isSent: pacing.unsent.isEmpty) }
            }
        } + lastRequests.values.joined()
    }

    // MARK: Why it waits

    /// What a download waits for that is queued, or under way, and would not move if it had a slot; nil: nothing but its turn.
    ///
    /// - Returns: the reason, and when its turn comes, as far as that can be reckoned.
    public func hold(of entry: LedgerEntry, now: WallTime) -> (reason: WaitReason, until: WallTime?)? {
        if entry.isHeld, let host = atHosts[entry.number].map(load(of:)) {
            let opens = host.opens(spacing: entry.spacing, now: now)
            return opens.map { $0 <= now } ?? false ? (.hostLimit, nil) : (.rateLimit, opens)
        }
        guard entry.state == .queued, let lane = entry.lane else { return nil }
        let (host, limit) = (lane.host, bindingLimit(of: lane.host))
        let interval = max(host.interval, lane.spacing)
        let opens = host.opens(spacing: lane.spacing, now: now)
        let isClosed = opens.map { $0 > now } ?? true
        guard isClosed || interval > .zero || limit > 0 else { return nil }
        let ahead = ahead(of: entry, in: lane)
        if isClosed || interval > .zero && ahead > 0 {
            return (.rateLimit, max(opens ?? now + interval, now) + interval * ahead)
        }
        return limit > 0 && host.active + ahead >= limit ? (.hostLimit, nil) : nil
    }

    /// How many go before a queued download: at its host, where it waits for that, else of all that are queued.
    public func ahead(of entry: LedgerEntry, now: WallTime) -> Int {
        guard let lane = entry.lane, entry.state == .queued else { return 0 }
        if hold(of: entry, now: now) != nil { return ahead(of: entry, in: lane) }
        return hosts.values.reduce(0) { $0 + $1.lanes.reduce(0) { $0 + runnable.ahead(of: entry.number, in: $1.id) } }
    }

    /// Of the other applications as many go before it as of its own: they take turns.
    private func ahead(of entry: LedgerEntry, in lane: Lane) -> Int {
        let own = runnable.ahead(of: entry.number, in: lane.id)
        return lane.host.lanes.reduce(own) { sum, other in
            if other === lane { return sum }
            return sum + (other.app === lane.app ? runnable.ahead(of: entry.number, in: other.id) : min(other.count, own + 1))
        } + lane.host.hops.count
    }

    /// Notices of whom it is to be told that what they wait for is another by now: of all, where the host's ways have changed; else of
    /// those in front.
    private func review(_ host: HostLoad, now: WallTime) {
        let limit = bindingLimit(of: host)
        let isPaced = host.interval > .zero || host.opens(now: now).map { $0 > now } ?? true
        let regime = HostLoad.Regime(isPaced: isPaced, limit: limit)
        if regime != host.regime {
            host.regime = regime
            for lane in host.lanes {
                runnable.prefix(of: lane.id) { number in
                    if let entry = entries[number] { review(entry, now: now) }
                    return true
                }
            }
            return
        }
        for lane in host.lanes {
            var left = 1 + max(0, limit - host.active)
            runnable.prefix(of: lane.id) { number in
                guard left > 0, let entry = entries[number], entry.toldHold != nil else { return false }
                left -= 1
                review(entry, now: now)
                return true
            }
        }
    }

    private func review(_ entry: LedgerEntry, now: WallTime) {
        let reason = hold(of: entry, now: now)?.reason
        guard reason != entry.toldHold else { return }
        entry.toldHold = reason
        actions.append(.tellWait(entry))
    }

    /// Tells of what was queued in this turn.
    private func tellQueued(now: WallTime) {
        for entry in untold where !entry.isRemoved {
            let reason = hold(of: entry, now: now)?.reason
            if reason != nil || entry.toldHold != nil { actions.append(.tellWait(entry)) } else { actions.append(.tell(entry)) }
            entry.toldHold = reason
        }
        untold = []
    }
}
