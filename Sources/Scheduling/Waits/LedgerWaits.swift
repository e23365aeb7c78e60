public import DownloadModel

/// Why a download waits for its host, until when, and behind how many; and which changes of these must be announced.
extension Ledger {
    /// The state as the bus shows it. A queued or active download shows as waiting while it waits for its host, or for a rule of the host.
    /// During PauseAll and ResumeAll, the state is the one that the download is about to have.
    public func shownState(of entry: LedgerEntry, now: WallTime) -> DownloadState {
        if let upcoming = upcoming(entry, now: now) { return upcoming }
        guard let (reason, until) = hold(of: entry, now: now) else { return entry.state }
        return .waiting(reason, until: until)
    }

    /// The wait of a queued or active download that would not move even if it had a slot. nil: no wait except for its turn.
    ///
    /// - Returns: the reason, and the end of the wait as far as it can be computed.
    public func hold(of entry: LedgerEntry, now: WallTime) -> (reason: WaitReason, until: WallTime?)? {
        if let request = gate.requests[entry.request], request.isWaiting {
            let host = gate.load(of: request.host)
            let (opens, limit) = (gate.opens(host, request, isUrgent: entry.isUrgent, now: now), gate.limit(of: host))
            if opens.map({ $0 > now }) ?? true { return (.rateLimit, opens) }
            return limit > 0 && host.active >= limit ? (.hostLimit, nil) : nil
        }
        return queuedHold(of: entry, now: now).map { ($0.reason, $0.until) }
    }

    /// The number of downloads ahead of a queued one: at its host if it waits for its host, else among all queued downloads.
    public func ahead(of entry: LedgerEntry, now: WallTime) -> Int {
        guard entry.lane != nil, entry.state == .queued else { return 0 }
        return queuedHold(of: entry, now: now)?.ahead ?? runnable.ahead(of: entry.number)
    }

    private func queuedHold(of entry: LedgerEntry, now: WallTime) -> (reason: WaitReason, until: WallTime?, ahead: Int)? {
        guard entry.state == .queued, let lane = entry.lane else { return nil }
        let (host, requestInterval, limit) = (lane.host, lane.requestInterval, gate.bindingLimit(of: lane.host))
        let (opens, hostOpens) = (opens(lane, now: now), host.opens(now: now))
        let origin = entry.record.isWhole ? "" : entry.origin
        let slowness = lane.isUrgent ? .zero : gate.paces[origin]?.interval ?? .zero
        let isClosed = opens.map { $0 > now } ?? true
        guard isClosed || host.interval > .zero || requestInterval > .zero || slowness > .zero || limit > 0 else { return nil }
        let ahead = ahead(of: entry, in: lane, { _ in true }, { _ in true })
        // Only downloads with the same interval keep it; only downloads of the same origin keep the origin's pace.
        let ownAhead =
            requestInterval > .zero
            ? self.ahead(of: entry, in: lane, { $0.requestInterval == requestInterval }, { $0.requestInterval == requestInterval }) : 0
        let originAhead =
            slowness > .zero
            ? self.ahead(
                of: entry, in: lane, { ($0.origin, $0.isUrgent) == (lane.origin, lane.isUrgent) }, { gate.origin(of: $0.request) == origin }
            ) : 0
        if isClosed || host.interval > .zero && ahead > 0 || ownAhead > 0 || originAhead > 0 {
            let byRule = max(hostOpens ?? now + host.interval, now) + host.interval * ahead
            let byOrigin =
                requestInterval > .zero || slowness == .zero && opens == nil
                ? now : max(opens ?? now + slowness, now) + slowness * originAhead
            let atHost = max(byRule, byOrigin)
            guard requestInterval > .zero else { return (.rateLimit, atHost, ahead) }
            let own = max(opens ?? (hostOpens == nil ? now : now + requestInterval), now) + requestInterval * ownAhead
            return (.rateLimit, max(atHost, own), own > atHost ? ownAhead : ahead)
        }
        return limit > 0 && host.active + ahead >= limit ? (.hostLimit, nil, ahead) : nil
    }

    /// The downloads of the counted lanes, and the counted hops, that go before `entry` at its host. Each lane of another application
    /// counts at most one more than the lane of `entry`, because applications take turns.
    private func ahead(
        of entry: LedgerEntry, in lane: Lane, _ isCounted: (Lane) -> Bool, _ isHopCounted: (LedgerEntry) -> Bool
    ) -> Int {
        let own = runnable.ahead(of: entry.number, in: lane.id)
        return lane.host.lanes.reduce(own) { sum, other in
            if other === lane || !isCounted(other) { return sum }
            return sum + (other.app === lane.app ? runnable.ahead(of: entry.number, in: other.id) : min(other.count, own + 1))
        } + hopsAhead(in: lane, own, isHopCounted)
    }

    /// All hops of the lane's application; of each other application, at most one more than `own`.
    private func hopsAhead(in lane: Lane, _ own: Int, _ isCounted: (LedgerEntry) -> Bool) -> Int {
        if lane.host.hops.isEmpty { return 0 }
        var counts: [String: Int] = [:]
        for id in lane.host.hops {
            guard let entry = entries[id.download], isCounted(entry) else { continue }
            counts[entry.record.options.app, default: 0] += 1
        }
        return counts.reduce(0) { $0 + ($1.key == lane.app.name ? $1.value : min($1.value, own + 1)) }
    }

    /// At most this many queued downloads of a host are reviewed at once.
    private static let fewQueued = 200

    /// Announces changed wait reasons: of all queued downloads if the host's regime has changed, else only of the first ones.
    func review(_ host: HostLoad, now: WallTime) {
        let regime = regime(of: host, now: now)
        if regime != host.regime {
            host.regime = regime
            guard host.lanes.reduce(0, { $0 + $1.count }) <= Self.fewQueued else { return reviewSoon(host) }
            for lane in host.lanes {
                runnable.prefix(of: lane.id) { number in
                    if let entry = entries[number] { review(entry, now: now) }
                    return true
                }
            }
            return
        }
        for lane in host.lanes {
            var left = 1 + max(0, regime.limit - host.active)
            runnable.prefix(of: lane.id) { number in
                guard left > 0, let entry = entries[number], entry.toldHold != nil else { return false }
                left -= 1
                review(entry, now: now)
                return true
            }
        }
    }

    private func regime(of host: HostLoad, now: WallTime) -> HostLoad.Regime {
        let isPaced = host.interval > .zero || host.opens(now: now).map { $0 > now } ?? true
        return HostLoad.Regime(isPaced: isPaced, limit: gate.bindingLimit(of: host), slowed: slowed(at: host, now: now).sorted())
    }

    private func slowed(at host: HostLoad, now: WallTime) -> Set<String> {
        if gate.paces.isEmpty { return [] }
        return Set(host.lanes.map { origin(of: $0) }).filter { gate.paces[$0].map { !$0.isOver(now: now) } ?? false }
    }

    /// The wait reason assumed for a restored queued download, without counting the downloads ahead: nobody has been told anything yet. The
    /// first downloads, for which the reason is wrong, are announced as soon as their host is reviewed.
    func reasonAtStart(_ lane: Lane, now: WallTime) -> WaitReason? {
        let host = lane.host
        let regime = host.regime ?? regime(of: host, now: now)
        host.regime = regime
        return regime.isPaced || regime.slowed.contains(origin(of: lane)) ? .rateLimit : regime.limit > 0 ? .hostLimit : nil
    }

    /// - Returns: whether the wait reason has changed and is announced.
    @discardableResult func review(_ entry: LedgerEntry, now: WallTime) -> Bool {
        refreshesLeft -= 1
        let reason = hold(of: entry, now: now)?.reason
        guard reason != entry.toldHold else { return false }
        entry.toldHold = reason
        output.append(.tellWait(entry))
        return true
    }

    /// Announces the downloads queued in this turn.
    func tellQueued(now: WallTime) {
        for entry in untold where !entry.isRemoved {
            let reason = hold(of: entry, now: now)?.reason
            let isWhole = entry.isToldWhole && entry.state == .queued
            entry.isToldWhole = false
            if reason != nil || entry.toldHold != nil || isWhole { output.append(.tellWait(entry)) } else { output.append(.tell(entry)) }
            entry.toldHold = reason
        }
        untold = []
    }
}
