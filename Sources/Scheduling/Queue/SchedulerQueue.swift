internal import DownloadModel

/// Chooses the download that starts next: by queue order, limits, host rules, and turns between applications.
extension Scheduler {
    /// The time slice: if all slots are taken, an application that has used this much less time than another one gets a slot of that one.
    private static let slice: Duration = .seconds(15)
    private static let sliceLook: Duration = .seconds(5)

    // MARK: Starting

    /// Starts every download that may run now, and announces the downloads that earlier events queued.
    func schedule(now: WallTime) {
        defer { announceWaits(now: now) }
        (sliceAt, isCut, refreshesLeft) = (nil, false, sliceSize.hosts)
        guard conditions.allowStarts, !settings.paused else { return }
        guard bulkChangesAllowStarts, entering.isEmpty, pass?.holdsStarts != true else { return }
        takeIn(now: now)
        openHosts(now: now)
        var left = sliceSize.starts
        repeat {
            while let entry = nextInTurn() {
                guard left > 0 else {
                    // Downloads that precede a redirect keep their turns: the next slice may start them.
                    isCut = true
                    return
                }
                left -= 1
                // The host is not refreshed yet, and may no longer have a place for the download.
                if let host = entry.lane?.host, gate.hosts.isOutdated(host) {
                    refresh(host, now: now)
                    continue
                }
                // A call that waits may pause or cancel the download.
                if case let changes = reachEarly(entry, now: now), changes > 0 {
                    left -= changes
                    refreshHosts(now: now)
                    continue
                }
                // The network or the clock may have changed since the download was queued.
                guard obstacle(of: entry, now: now) == .queued else {
                    settle(entry, now: now)
                    refreshHosts(now: now)
                    if entry.state == .queued { break }
                    continue
                }
                if !entry.record.isWhole, let failure = entry.record.failureOfRepetition {
                    applyOwn(.interrupt(failure), to: entry, now: now)
                    refreshHosts(now: now)
                    continue
                }
                guard applyOwn(entry.record.isWhole ? .startWhole : .start, to: entry, now: now) else { break }
                owesSlot = false
                refreshHosts(now: now)
            }
        } while makeRoom(now: now) || makePlace(now: now) || openContested(now: now) || loseTurns(now: now)
        refreshHosts(now: now)
    }

    /// Refreshes the hosts where slots that have been taken or released decide which request comes next.
    ///
    /// - Returns: whether they may offer other downloads now. False if the next slice must refresh the rest of them.
    private func openContested(now: WallTime) -> Bool {
        guard gate.touchContested() else { return false }
        refreshHosts(now: now)
        return !isCut
    }

    /// Downloads that precede a redirect but got no slot lose their turns. Their hosts may then offer downloads that have a slot.
    ///
    /// - Returns: as `openContested`.
    private func loseTurns(now: WallTime) -> Bool {
        guard gate.loseTurns() else { return false }
        refreshHosts(now: now)
        return !isCut
    }

    private func nextInTurn() -> ScheduledDownload? {
        let sizes = gate.startable
        let next = sizes.isEmpty ? nil : gate.lanes.next(of: sizes, obeysMoves: !owesSlot)
        if next == nil { owesSlot = false }
        return next.flatMap { entries[$0.download.number] }
    }

    /// With all slots taken, stops a long-running transfer if another application waits and is owed more than a slice.
    ///
    /// - Returns: whether a slot is free now.
    private func makeRoom(now: WallTime) -> Bool {
        // A download that was moved to the front must not hide the application that is owed a slot.
        guard settings.maxActive > 0, let (next, owed) = gate.lanes.next(obeysMoves: false),
            let lane = entries[next.number]?.lane,
            !gate.hasSlot(for: lane.size), !gate.hosts.isOutdated(lane.host)
        else { return false }
        var candidate: (entry: ScheduledDownload, since: WallTime)?
        var isContended = false
        for (number, slot) in gate.slots.all {
            guard let entry = entries[number], let app = gate.lanes.apps[slot.app], app !== owed, app.active > owed.active,
                entry.mayYield,
                entry.record.options.priority <= next.priority, gate.isInTheWay(slot, of: lane.size)
            else { continue }
            isContended = true
            // If more than `mostIdle` transfers are idle, waiting transfers take slots. A waiting transfer loses nothing if it is stopped.
            let isIdle = isLong(gate.silentSince(slot), now) || slot.isWaiting && gate.slots.idle > HostGate.mostIdle
            let canResume = entry.record.resume != nil && entry.keepsBytes
            guard app.cost - owed.cost > Self.slice, now - slot.since > Self.slice, canResume || isIdle else { continue }
            if let rival = candidate, (rival.since, rival.entry.number) <= (slot.since, number) { continue }
            candidate = (entry, slot.since)
        }
        if let candidate, applyOwn(.yield, to: candidate.entry, now: now) {
            owesSlot = gate.hasSlot(for: lane.size)
            return owesSlot
        }
        if isContended { sliceAt = now + Self.sliceLook }
        return false
    }

    /// Whether a silence since `since` is so long that little is lost if the transfer starts again.
    private func isLong(_ since: WallTime?, _ now: WallTime) -> Bool { since.map { now - $0 > Self.slice } ?? false }

    /// At a full host, stops a long-silent transfer if another application waits and has fewer transfers there.
    ///
    /// - Returns: whether a transfer was stopped.
    private func makePlace(now: WallTime) -> Bool {
        guard gate.slots.idle > gate.slots.waiting else { return false }
        for (id, request) in gate.placed.sorted(by: { $0.key < $1.key }) {
            guard let entry = entries[id.download], let since = request.silentSince, !request.isFurther else { continue }
            let host = gate.load(of: request.host)
            guard gate.limit(of: host) > 0, host.connections >= gate.limit(of: host) else { continue }
            let waiting = host.lanes.lazy.map(\.app.name) + host.hops.lazy.compactMap { self.gate.requests[$0]?.app }
            let own = places(of: request.app, at: host)
            guard waiting.contains(where: { $0 != request.app && places(of: $0, at: host) < own }) else { continue }
            if !entry.mayYield { continue }
            if isLong(since, now), applyOwn(.yield, to: entry, now: now) {
                refreshHosts(now: now)
                return true
            }
            let look = max(since + Self.slice, now) + Self.sliceLook
            sliceAt = min(sliceAt ?? look, look)
        }
        return false
    }

    /// The number of requests of `app` that `host` counts.
    private func places(of app: String, at host: HostLoad) -> Int {
        gate.placed.count { _, request in
            request.app == app && !request.isWaiting && !request.isFurther && gate.load(of: request.host) === host
        }
    }

    /// Whether any transfer is active that does not wait for its next request.
    public var isMoving: Bool { counts.active > gate.slots.waiting }

    // MARK: Lanes

    /// Puts a queued download into its lane; a download whose files are still in use follows later.
    func makeRunnable(_ entry: ScheduledDownload) { makeRunnable(entry, entry.record) }

    /// - Parameter record: the record of `entry`.
    func makeRunnable(_ entry: ScheduledDownload, _ record: DownloadRecord) {
        guard entry.isEntered, !entry.isRemoved else { return }
        leaveLane(entry)
        guard !isBusy(entry) else {
            heldBack.insert(entry.number)
            return
        }
        entry.findPlace()
        let lane = lane(of: entry, record)
        (entry.lane, entry.requestInterval) = (lane, lane.requestInterval)
        gate.enqueue(
            record.number, in: lane, origin: entry.origin, priority: record.options.priority, position: record.position)
    }

    func leaveLane(_ entry: ScheduledDownload) {
        if !heldBack.isEmpty { heldBack.remove(entry.number) }
        guard let lane = entry.lane else { return }
        (entry.lane, entry.isUrgent) = (nil, lane.isUrgent)
        gate.dequeue(entry.number, from: lane)
    }

    private func lane(of entry: ScheduledDownload, _ record: DownloadRecord) -> Lane {
        // Among 100,000 downloads, most have the lane of the previous one. A lane that has become empty is no longer valid.
        if let recentLane, recentLane.lane.count > 0, recentLane.origin == entry.origin, !record.isWhole, !entry.isUrgent,
            !entry.wasRefused, recentLane.lane.size == entry.fileSize(record), record.sharesOptions(with: recentLane.record)
        {
            return recentLane.lane
        }
        let lane = findLane(of: entry)
        let isPlain = record.options.requestInterval == nil && !record.isWhole && !entry.isUrgent && !entry.wasRefused
        recentLane = isPlain ? RecentLane(record: record, origin: entry.origin, lane: lane) : nil
        return lane
    }

    private func findLane(of entry: ScheduledDownload) -> Lane {
        let options = entry.record.options
        // A whole part file needs no request.
        return gate.lane(
            host: entry.record.isWhole ? "" : entry.host, origin: entry.origin, app: options.app,
            requestInterval: options.requestInterval ?? .zero, isUrgent: entry.isUrgent, wasRefused: entry.wasRefused,
            size: entry.record.isWhole ? .small : entry.fileSize(entry.record))
    }

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
}

/// A download with its origin and lane.
final class RecentLane {
    let record: DownloadRecord
    let origin: String
    let lane: Lane
    init(record: DownloadRecord, origin: String, lane: Lane) { (self.record, self.origin, self.lane) = (record, origin, lane) }
}
