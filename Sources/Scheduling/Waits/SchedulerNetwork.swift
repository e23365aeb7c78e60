internal import DownloadModel

/// The effects of the network and of the machine's sleep. Downloads from this machine itself never wait for a network.
extension Scheduler {
    // MARK: Network

    /// Applies a new condition of the network; nil: unknown, because the network is not watched or the answer is pending.
    ///
    /// A captive portal stops every transfer that needs the network. A metered connection stops the transfers that must not use it. A
    /// missing network stops no transfer, because the network may return before a connection is lost. Downloads that lose their connection
    /// wait for the network. Once the network is back, downloads that waited for it, or that lost their connection, resume at once. A pause
    /// that the server requested is kept.
    func network(_ condition: NetworkCondition?, now: WallTime) {
        let before = conditions.network
        guard condition != before else { return }
        conditions.set(condition)
        gate.isNetworkKnown = condition != nil
        gate.hosts.touchAll()
        // If nothing hindered any download before or now, only the start of downloads changes.
        guard (before ?? .open) != (condition ?? .open) else { return }
        let isBack = before.map { $0.reach != .online } ?? false && condition?.reach ?? .online == .online
        beginPass(now: now) { ($0.isOfNetwork, $0.isBack) = (true, isBack || $0.isBack && condition?.reach ?? .online == .online) }
    }

    func reconsider(_ entry: ScheduledDownload, isBack: Bool, now: WallTime) {
        let hindrance = hindrance(of: entry)
        switch (entry.state, hindrance) {
        case (.queued, .some): settle(entry, now: now)
        case (.active, .offline?) where conditions.network?.reach == .offline: break
        case (.active, let reason?): applyOwn(.hinder(reason), to: entry, now: now)
        case (.waiting(let old, _), let reason?) where old.yieldsToNetwork: applyOwn(.hinder(reason), to: entry, now: now)
        case (.waiting(.offline, _), nil), (.waiting(.metered, _), nil):
            if isBack { hasten(entry) }
            applyOwn(.ready, to: entry, now: now)
        case (.waiting(.retry, _), nil) where isBack && hasten(entry): applyOwn(.ready, to: entry, now: now)
        default: break
        }
    }

    /// Clears the back-off of a download that failed because of the network, so that the retry is immediate.
    @discardableResult
    private func hasten(_ entry: ScheduledDownload) -> Bool {
        guard let failure = entry.record.lastFailure, failure.retryAfter == nil, failure.isLostConnection || failure.wait == .offline else {
            return false
        }
        change(entry) { $0.retryAt = nil }
        return true
    }

    /// The reason why the network hinders `entry`; nil: none.
    private func hindrance(of entry: ScheduledDownload) -> WaitReason? {
        // Reading the options costs more than the rest, so read them only if the network can hinder a download.
        guard let network = conditions.network, network != .open else { return nil }
        // A download from this machine needs no network. But a mirror of it may be elsewhere, and must not be asked over a metered link.
        if entry.isFirstLocal, !network.isMetered || entry.isLocal { return nil }
        let hindrance = conditions.hindrance(defiedReach: entry.defiedReach, allowsMetered: entry.record.options.allowsMetered)
        return entry.isFirstLocal && hindrance != .metered ? nil : hindrance
    }

    /// The state that `entry` may take now, by its record and by the network: `queued`, or a wait. A wait that a person must end comes
    /// first.
    func obstacle(of entry: ScheduledDownload, now: WallTime) -> DownloadState {
        let own = entry.record.obstacle(now: now, paused: settings.paused)
        switch own {
        case .queued, .waiting(.retry, _): return hindrance(of: entry).map { .waiting($0, until: nil) } ?? own
        default: return own
        }
    }

    /// Whether the failed attempt of `entry` was lost without a network. Such an attempt does not count, and the retry waits for a network.
    func lostNetwork(_ entry: ScheduledDownload) -> Bool {
        entry.defiedReach = nil
        return hindrance(of: entry) == .offline
    }

    // MARK: Sleep

    /// The machine is about to sleep: stop all transfers with a checkpoint, and start nothing before `wake`.
    func sleep(now: WallTime) {
        guard !conditions.isAsleep else { return }
        conditions.isAsleep = true
        for entry in running { applyOwn(.yield, to: entry, now: now) }
    }

    /// The machine is awake: the stopped downloads resume.
    func wake() { conditions.isAsleep = false }

    /// Whether all transfers stopped for the sleep have ended. Their checkpoints are then among the changes to save.
    public var isAtRest: Bool { conditions.isAsleep && working == 0 }
}
