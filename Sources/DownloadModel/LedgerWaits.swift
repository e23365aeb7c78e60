/// Why a download waits for its host, until when and behind how many; and who is to be told that this is another by now.
extension Ledger {
    /// What a download waits for that is queued, or under way, and would not move if it had a slot; nil: nothing but its turn.
    ///
    /// - Returns: the reason, and when its turn comes, as far as that can be reckoned.
    public func hold(of entry: LedgerEntry, now: WallTime) -> (reason: WaitReason, until: WallTime?)? {
        if entry.isHeld, let host = atHosts[entry.number].map(load(of:)) {
            let (opens, limit) = (host.opens(spacing: entry.spacing, now: now), limit(of: host))
            if opens.map({ $0 > now }) ?? true { return (.rateLimit, opens) }
            return limit > 0 && host.active >= limit ? (.hostLimit, nil) : nil
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
    func review(_ host: HostLoad, now: WallTime) {
        let regime = regime(of: host, now: now)
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
        return HostLoad.Regime(isPaced: isPaced, limit: bindingLimit(of: host))
    }

    /// What a queued download is taken to wait for that has just been restored, without looking at who is ahead: nobody has been told
    /// anything yet, and those in front, of whom it is not true, are told as soon as their host is reviewed.
    func reasonAtStart(_ host: HostLoad, now: WallTime) -> WaitReason? {
        let regime = host.regime ?? regime(of: host, now: now)
        host.regime = regime
        return regime.isPaced ? .rateLimit : regime.limit > 0 ? .hostLimit : nil
    }

    func review(_ entry: LedgerEntry, now: WallTime) {
        let reason = hold(of: entry, now: now)?.reason
        guard reason != entry.toldHold else { return }
        entry.toldHold = reason
        actions.append(.tellWait(entry))
    }

    /// Tells of what was queued in this turn.
    func tellQueued(now: WallTime) {
        for entry in untold where !entry.isRemoved {
            let reason = hold(of: entry, now: now)?.reason
            if reason != nil || entry.toldHold != nil { actions.append(.tellWait(entry)) } else { actions.append(.tell(entry)) }
            entry.toldHold = reason
        }
        untold = []
    }
}
