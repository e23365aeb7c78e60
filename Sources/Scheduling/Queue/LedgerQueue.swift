internal import DownloadModel

/// Chooses the download that starts next: by queue order, limits, host rules, and turns between applications.
///
/// The queued downloads that may start form lanes, one for each host and application (and interval, origin and urgency). A lane whose host
/// takes a request now offers its first download in its application's `ready`. So a choice costs no more with 100,000 queued downloads
/// than with one.
extension Ledger {
    /// If all slots are taken, an application that is owed more than this gets another application's slot.
    private static let slice: Duration = .seconds(15)
    private static let sliceLook: Duration = .seconds(5)
    /// At most this many silent or held transfers take no slot.
    private static let mostIdle = 64

    // MARK: Starting

    /// Starts every download that may run now, and announces the downloads that earlier events queued.
    func schedule(now: WallTime) {
        defer {
            tellQueued(now: now)
            isScheduled = true
        }
        (sliceAt, awaited, isCut, refreshesLeft) = (nil, [], false, sliceSize.hosts)
        guard conditions.allowStarts, !settings.paused else { return }
        guard stretches.isEmpty, entering.isEmpty, pass?.holdsStarts != true else { return }
        takeIn(now: now)
        openHosts(now: now)
        var left = sliceSize.starts
        repeat {
            while hasSlot, let entry = nextInTurn(now: now) {
                guard left > 0 else {
                    isCut = true
                    return loseTurns(now: now)
                }
                left -= 1
                // Its host is not refreshed yet, and may have no place for it any more.
                if let host = entry.lane?.host, gate.isOutdated(host) {
                    refresh(host, now: now)
                    continue
                }
                // The network or the clock may have changed since the download was queued.
                guard obstacle(of: entry, now: now) == .queued else {
                    settle(entry, now: now)
                    refreshHosts(now: now)
                    if entry.state == .queued { break }
                    continue
                }
                guard applyOwn(entry.record.isWhole ? .startWhole : .start, to: entry, now: now) else { break }
                refreshHosts(now: now)
            }
        } while makeRoom(now: now) || makePlace(now: now)
        loseTurns(now: now)
    }

    /// Whether another download may start. A transfer that waits for its host, or for a silent server, takes no slot.
    var hasSlot: Bool {
        settings.maxActive == 0 || counts.active < settings.maxActive +| UInt32(clamping: min(gate.idle, Self.mostIdle))
    }

    /// Whether a transfer that waits for its next request may go on.
    var hasSlotForHop: Bool { settings.maxActive == 0 || counts.active < settings.maxActive +| UInt32(clamping: gate.idle) }

    /// The first ready download of the highest priority; among several applications, the one whose turn it is.
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

    /// With all slots taken, stops a long-running transfer if another application waits and is owed more than a slice.
    ///
    /// - Returns: whether a slot is free now.
    private func makeRoom(now: WallTime) -> Bool {
        guard settings.maxActive > 0, !hasSlot, let next = nextInTurn(now: now), let lane = next.lane,
            !gate.isOutdated(lane.host)
        else { return false }
        let owed = lane.app
        var candidate: LedgerEntry?
        var isContended = false
        for (id, request) in gate.placed {
            guard let entry = entries[id.download], entry.state == .active, let app = entry.share, app !== owed, app.active > owed.active,
                entry.record.options.priority <= next.record.options.priority
            else { continue }
            app.charge(now: now)
            isContended = true
            // Beyond `mostIdle`, held transfers take slots; a held transfer has nothing to lose yet.
            let isIdle = isSilent(request, now) || request.isWaiting && gate.idle > Self.mostIdle
            guard app.cost - owed.cost > Self.slice, now - entry.startedAt > Self.slice, entry.record.resume != nil || isIdle else {
                continue
            }
            if let rival = candidate, (rival.startedAt, rival.number) <= (entry.startedAt, entry.number) { continue }
            candidate = entry
        }
        if let candidate, applyOwn(.yield, to: candidate, now: now) { return hasSlot }
        if isContended { sliceAt = now + Self.sliceLook }
        return false
    }

    /// Whether the server has been silent for so long that little is lost if the transfer starts again.
    private func isSilent(_ request: PlacedRequest, _ now: WallTime) -> Bool { request.silentSince.map { now - $0 > Self.slice } ?? false }

    /// At a full host, stops a long-silent transfer if another application waits and has fewer transfers there.
    ///
    /// - Returns: whether a transfer was stopped.
    private func makePlace(now: WallTime) -> Bool {
        guard gate.idle > gate.waiting else { return false }
        for (id, request) in gate.placed.sorted(by: { $0.key < $1.key }) {
            guard let entry = entries[id.download], let since = request.silentSince, let app = entry.share else { continue }
            let host = gate.load(of: request.host)
            guard gate.limit(of: host) > 0, host.active >= gate.limit(of: host)
            else { continue }
            let waiting = host.lanes.lazy.map(\.app) + host.hops.lazy.compactMap { self.entries[$0.download]?.share }
            let own = places(of: app, at: host)
            guard waiting.contains(where: { $0 !== app && places(of: $0, at: host) < own }) else { continue }
            if isSilent(request, now), applyOwn(.yield, to: entry, now: now) {
                refreshHosts(now: now)
                return true
            }
            let look = max(since + Self.slice, now) + Self.sliceLook
            sliceAt = min(sliceAt ?? look, look)
        }
        return false
    }

    private func places(of app: AppShare, at host: HostLoad) -> Int {
        gate.placed.count { id, request in
            entries[id.download]?.share === app && gate.load(of: request.host) === host && !host.hops.contains(id)
        }
    }

    /// Whether any transfer is active that does not wait for its next request.
    public var isMoving: Bool { counts.active > gate.waiting }

    // MARK: Lanes

    /// Puts a queued download into its lane; a download whose files are still in use follows later.
    func makeRunnable(_ entry: LedgerEntry) { makeRunnable(entry, entry.record) }

    /// - Parameter record: the record of `entry`.
    func makeRunnable(_ entry: LedgerEntry, _ record: DownloadRecord) {
        guard entry.isEntered, !entry.isRemoved else { return }
        leaveLane(entry)
        guard !isBusy(entry) else {
            heldBack.insert(entry.number)
            return
        }
        let lane = lane(of: entry, record)
        entry.lane = lane
        lane.count += 1
        runnable.insert(record.number, lane: lane.id, priority: record.options.priority, position: record.position)
        gate.touch(lane.host)
    }

    func leaveLane(_ entry: LedgerEntry) {
        if !heldBack.isEmpty { heldBack.remove(entry.number) }
        guard let lane = entry.lane else { return }
        (entry.lane, entry.isUrgent) = (nil, lane.isUrgent)
        lane.count -= 1
        runnable.remove(entry.number)
        if lane.offered == entry.number { withdraw(lane) }
        gate.touch(lane.host)
        guard lane.count == 0 else { return }
        lane.host.lanes.removeAll { $0 === lane }
        lane.app.lanes -= 1
        forgetIfIdle(lane.app)
    }

    private func lane(of entry: LedgerEntry, _ record: DownloadRecord) -> Lane {
        // Among 100,000 downloads, most have the lane of the previous one. A lane that has become empty is no longer valid.
        if let recentLane, recentLane.lane.count > 0, recentLane.origin == entry.origin, !record.isWhole, !entry.isUrgent,
            record.sharesOptions(with: recentLane.record)
        {
            return recentLane.lane
        }
        let lane = findLane(of: entry)
        let isPlain = record.options.requestInterval == nil && !record.isWhole && !entry.isUrgent
        recentLane = isPlain ? RecentLane(record: record, origin: entry.origin, lane: lane) : nil
        return lane
    }

    private func findLane(of entry: LedgerEntry) -> Lane {
        // A whole part file needs no request; no host has the empty name.
        let host = gate.load(of: entry.record.isWhole ? "" : entry.host)
        let (app, requestInterval) = (entry.record.options.app, host.told(apart: entry.record.options.requestInterval ?? .zero))
        entry.requestInterval = requestInterval
        let (origin, isUrgent) = (entry.record.isWhole ? "" : host.told(apart: entry.origin), entry.isUrgent)
        let known = host.lanes.first { lane in
            lane.app.name == app && lane.requestInterval == requestInterval && lane.origin == origin && lane.isUrgent == isUrgent
        }
        if let known { return known }
        laneNumber &+= 1
        let lane = Lane(
            id: laneNumber, host: host, app: share(of: app), requestInterval: requestInterval, origin: origin, isUrgent: isUrgent)
        lane.app.lanes += 1
        host.lanes.append(lane)
        return lane
    }

    func share(of app: String) -> AppShare {
        if let share = apps[app] { return share }
        // A new application starts level with the least served one: it cannot claim what others had before.
        let share = AppShare(name: app, cost: apps.values.map(\.cost).min() ?? .zero)
        apps[app] = share
        return share
    }

    func forgetIfIdle(_ app: AppShare) { if app.isIdle { apps[app.name] = nil } }

    /// Puts queued downloads into lanes once their files are no longer in use.
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

    func withdraw(_ lane: Lane) {
        if let number = lane.offered { lane.app.ready.remove(number) }
        lane.offered = nil
    }
}
