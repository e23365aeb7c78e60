internal import DownloadModel

/// What the network and the machine's sleep do to downloads. Hosts that are this machine are never held by a network.
extension Ledger {
    // MARK: Network

    /// Takes the news of the network; nil: nobody looks, or the answer is not there yet.
    ///
    /// Behind a captive portal, and on a metered link for those that must not use it, what runs stops. A network that is gone ends nothing
    /// by itself: it may come back before a connection is lost. What is lost meanwhile waits for it. When it is back, what waited for it
    /// goes on at once, and what failed with it too; a pause that the server asked for is kept.
    func network(_ condition: NetworkCondition?, now: WallTime) {
        let before = network
        guard condition != before else { return }
        network = condition
        if condition?.reach != before?.reach { reachCount &+= 1 }
        touched.formUnion(hosts.keys)
        // Where nothing stood in the way and nothing does, nothing changes but what may start.
        guard (before ?? .open) != (condition ?? .open) else { return schedule(now: now) }
        let isBack = before.map { $0.reach != .online } ?? false && condition?.reach ?? .online == .online
        beginPass(now: now) { ($0.isOfNetwork, $0.isBack) = (true, isBack || $0.isBack && condition?.reach ?? .online == .online) }
    }

    func reconsider(_ entry: LedgerEntry, isBack: Bool, now: WallTime) {
        let hindrance = hindrance(of: entry)
        switch (entry.state, hindrance) {
        case (.queued, .some): settle(entry, now: now)
        case (.active, .offline?) where network?.reach == .offline: break
        case (.active, let reason?): try? apply(.hinder(reason), to: entry, now: now)
        case (.waiting(let old, _), let reason?) where old.yieldsToNetwork: try? apply(.hinder(reason), to: entry, now: now)
        case (.waiting(.offline, _), nil), (.waiting(.metered, _), nil):
            if isBack { hasten(entry) }
            try? apply(.ready, to: entry, now: now)
        case (.waiting(.retry, _), nil) where isBack && hasten(entry): try? apply(.ready, to: entry, now: now)
        default: break
        }
    }

    /// Forgets the back-off of what failed for want of a network, so that it is tried at once.
    @discardableResult
    private func hasten(_ entry: LedgerEntry) -> Bool {
        guard let failure = entry.record.lastFailure, failure.retryAfter == nil, failure.isLostConnection || failure.wait == .offline else {
            return false
        }
        change(entry) { $0.retryAt = nil }
        return true
    }

    /// What of the network stands in the way of `entry`.
    private func hindrance(of entry: LedgerEntry) -> WaitReason? {
        guard let network, network != .open, !entry.isLocal else { return nil }
        if network.reach == .offline || network.reach == .captive, entry.defiedReach != reachCount { return .offline }
        return network.isMetered && !entry.record.options.allowsMetered ? .metered : nil
    }

    /// The state in which `entry` may go on: as its record has it, and as the network allows. What somebody has to end comes first.
    func obstacle(of entry: LedgerEntry, now: WallTime) -> DownloadState {
        let own = entry.record.obstacle(now: now, paused: settings.paused)
        switch own {
        case .queued, .waiting(.retry, _): return hindrance(of: entry).map { .waiting($0, until: nil) } ?? own
        default: return own
        }
    }

    /// An attempt that was lost while there is no network does not count, and is not tried again before there is one.
    func excuse(_ entry: LedgerEntry, madeProgress: Bool, _ verdict: inout RetryPolicy.Verdict, _ used: inout UInt32) {
        entry.defiedReach = nil
        guard hindrance(of: entry) == .offline else { return }
        (verdict, used) = (.wait(.offline, until: nil), madeProgress ? 0 : entry.record.retriesUsed)
    }

    // MARK: Sleep

    /// The machine is about to sleep: what runs stops with a checkpoint, and nothing starts before `wake`.
    func sleep(now: WallTime) {
        guard !isAsleep else { return }
        isAsleep = true
        for entry in running { try? apply(.yield, to: entry, now: now) }
        schedule(now: now)
    }

    /// The machine is awake: what was stopped goes on.
    func wake(now: WallTime) {
        guard isAsleep else { return }
        isAsleep = false
        schedule(now: now)
    }

    /// Whether all that was stopped for a sleep has ended: its checkpoints are among the changes to be saved.
    public var isAtRest: Bool { isAsleep && working == 0 }
}
