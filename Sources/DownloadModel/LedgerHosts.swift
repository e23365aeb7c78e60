/// What is under way at each host, and what its rule lets through: whose turn it is there, further requests of transfers, refusals, rules.
extension Ledger {
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
    func bindingLimit(of host: HostLoad) -> Int {
        let limit = limit(of: host)
        return settings.maxActive == 0 || limit < settings.maxActive ? limit : 0
    }

    /// Looks at hosts whose time has come, and at those at which something has changed.
    func openHosts(now: WallTime) {
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

    func refreshHosts(now: WallTime) {
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
            (recentHost, recentLane) = (nil, nil)
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
        (hosts, touched, hostWakes, recentHost, recentLane) = ([:], [], WakeHeap(), nil, nil)
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
    func recallPauses(_ entries: [LedgerEntry]) {
        for entry in entries {
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
}
