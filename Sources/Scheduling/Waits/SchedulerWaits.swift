public import DownloadModel

/// Computes why a download waits for its host, until when, and behind how many others; and announces changes of these.
extension Scheduler {
    /// The state as the bus shows it. A queued or active download shows as waiting while it waits for its host, or for a rule of the host.
    /// During PauseAll and ResumeAll, the state is the one that the download is about to have.
    public func shownState(of entry: ScheduledDownload, now: WallTime) -> DownloadState {
        if let upcoming = upcoming(entry, now: now) { return upcoming }
        guard let (reason, until) = hold(of: entry, now: now) else { return entry.state }
        return .waiting(reason, until: until)
    }

    /// The wait of a queued or active download that could not start even with a free slot. nil: no wait except for its turn.
    ///
    /// - Returns: the reason, and the end of the wait as far as it can be computed.
    public func hold(of entry: ScheduledDownload, now: WallTime) -> (reason: WaitReason, until: WallTime?)? {
        (activeHold(of: entry, now: now) ?? queuedHold(of: entry, now: now)).map { ($0.reason, $0.until) }
    }

    private func activeHold(of entry: ScheduledDownload, now: WallTime) -> HostGate.Hold? {
        // While another request of the transfer brings bytes, the download does not wait.
        guard let slot = gate.slots[entry.number], slot.isWaiting else { return nil }
        return gate.hold(of: mainRequest(of: entry), now: now)
    }

    /// The number of downloads ahead of a queued one: at its host if it waits for its host, else among all queued downloads.
    public func ahead(of entry: ScheduledDownload, now: WallTime) -> Int {
        guard entry.lane != nil, entry.state == .queued else { return 0 }
        return queuedHold(of: entry, now: now)?.ahead ?? gate.lanes.ahead(of: entry.number)
    }

    private func queuedHold(of entry: ScheduledDownload, now: WallTime) -> HostGate.Hold? {
        guard entry.state == .queued, let lane = entry.lane else { return nil }
        return gate.hold(of: entry.number, in: lane, now: now)
    }

    /// At most this many queued downloads of a host are reviewed at once.
    private static let fewQueued = 200

    /// Announces changed wait reasons: of all queued downloads if the host's regime has changed, else only of the first ones.
    func review(_ host: HostLoad, now: WallTime) {
        if gate.takeRegime(of: host, now: now) {
            guard host.lanes.reduce(0, { $0 + $1.count }) <= Self.fewQueued else { return reviewSoon(host) }
            for lane in host.lanes {
                gate.lanes.prefix(of: lane) { number in
                    if let entry = entries[number] { review(entry, now: now) }
                    return true
                }
            }
            return
        }
        for lane in host.lanes {
            var left = 1 + max(0, gate.bindingLimit(of: host, for: lane.size) - host.connections)
            // This many more downloads may start without a place of their own.
            if gate.mayShare(of: lane) { left += ActiveLimit.mostSmall }
            gate.lanes.prefix(of: lane) { number in
                guard left > 0, let entry = entries[number], entry.toldHold != nil else { return false }
                left -= 1
                review(entry, now: now)
                return true
            }
        }
    }

    /// - Returns: whether the wait reason has changed and is announced.
    @discardableResult func review(_ entry: ScheduledDownload, now: WallTime) -> Bool {
        refreshesLeft -= 1
        let reason = hold(of: entry, now: now)?.reason
        guard reason != entry.toldHold else { return false }
        entry.toldHold = reason
        output.append(.tellWait(entry))
        return true
    }

    /// Announces the waits of downloads that this turn has queued, entered or redirected.
    func announceWaits(now: WallTime) {
        for entry in unannounced.queued where !entry.isRemoved {
            let reason = hold(of: entry, now: now)?.reason
            let isWhole = entry.isToldWhole && entry.state == .queued
            entry.isToldWhole = false
            if reason != nil || entry.toldHold != nil || isWhole { output.append(.tellWait(entry)) } else { output.append(.tell(entry)) }
            entry.toldHold = reason
        }
        for entry in unannounced.entered where entry.state == .queued { entry.toldHold = hold(of: entry, now: now)?.reason }
        for entry in unannounced.redirected where isHeld(entry) { review(entry, now: now) }
        for host in unannounced.owing.values where host.owesPlace {
            for number in host.lanes.compactMap({ gate.lanes.first(of: $0)?.number }) {
                if let entry = entries[number] { review(entry, now: now) }
            }
        }
        unannounced = Unannounced()
    }
}

/// Downloads whose wait is known only at the end of the turn, after all possible starts.
struct Unannounced {
    /// Their wait may have changed.
    var queued: [ScheduledDownload] = []
    /// They have taken their places in the queue. Callers see their wait from the end of the turn on; no other wait was announced before.
    var entered: [ScheduledDownload] = []
    /// Their next request goes to another host, and may have to wait there.
    var redirected: [ScheduledDownload] = []
    /// Hosts that owe a place, by name. The first download of a lane there may now wait for its host, though it did not before.
    var owing: [String: HostLoad] = [:]
}
