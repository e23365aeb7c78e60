internal import DownloadModel

/// How long requests and queued downloads wait for their host, and behind how many.
extension HostGate {
    /// The wait of a request or download that could not start even with a free slot.
    struct Hold {
        let reason: WaitReason
        /// The end of the wait as far as it can be computed.
        let until: WallTime?
        /// The number of downloads that go first at the host.
        let ahead: Int
    }

    /// The wait of a request for its host; nil: it does not wait, or waits for its turn only.
    mutating func hold(of id: RequestID, now: WallTime) -> Hold? {
        guard let request = requests[id], request.isWaiting else { return nil }
        let host = load(of: request.host)
        let (opens, limit) = (opens(host, request, now: now), limit(of: host))
        if opens.map({ $0 > now }) ?? true { return Hold(reason: .rateLimit, until: opens, ahead: 0) }
        return hasPlace(at: host, limit) ? nil : Hold(reason: .hostLimit, until: nil, ahead: 0)
    }

    /// The wait of a queued download; nil: no wait except for its turn.
    func hold(of number: DownloadNumber, in lane: Lane, now: WallTime) -> Hold? {
        let (host, requestInterval, limit) = (lane.host, lane.requestInterval, bindingLimit(of: lane.host, for: lane.size))
        let (opens, hostOpens) = (opens(lane, now: now), host.opens(now: now))
        let origin = lanes.origin(of: number, in: lane)
        let slowness = lane.isUrgent ? .zero : paces[origin]?.interval ?? .zero
        let isClosed = opens.map { $0 > now } ?? true
        guard isClosed || host.interval > .zero || requestInterval > .zero || slowness > .zero || limit > 0 else { return nil }
        let ahead = ahead(of: number, in: lane, { _ in true }, { _ in true })
        // Only downloads with the same interval keep it; only downloads of the same origin keep the origin's pace.
        let ownAhead =
            requestInterval > .zero
            ? self.ahead(of: number, in: lane, { $0.requestInterval == requestInterval }, { $0.requestInterval == requestInterval }) : 0
        let originAhead =
            slowness > .zero
            ? self.ahead(of: number, in: lane, { ($0.origin, $0.isUrgent) == (lane.origin, lane.isUrgent) }, { $0.origin == origin }) : 0
        if isClosed || host.interval > .zero && ahead > 0 || ownAhead > 0 || originAhead > 0 {
            let byRule = max(hostOpens ?? now + host.interval, now) + host.interval * ahead
            let byOrigin =
                requestInterval > .zero || slowness == .zero && opens == nil
                ? now : max(opens ?? now + slowness, now) + slowness * originAhead
            let atHost = max(byRule, byOrigin)
            guard requestInterval > .zero else { return Hold(reason: .rateLimit, until: atHost, ahead: ahead) }
            let own = max(opens ?? (hostOpens == nil ? now : now + requestInterval), now) + requestInterval * ownAhead
            return Hold(reason: .rateLimit, until: max(atHost, own), ahead: own > atHost ? ownAhead : ahead)
        }
        guard limit > 0, !mayShare(at: host, origin, lane.size) else { return nil }
        return host.connections + ahead >= limit ? Hold(reason: .hostLimit, until: nil, ahead: ahead) : nil
    }

    /// The downloads of the counted lanes, and the counted redirects, that go before `number` at its host. Each lane of another application
    /// counts at most one more than `lane`, because applications take turns.
    private func ahead(
        of number: DownloadNumber, in lane: Lane, _ isCounted: (Lane) -> Bool, _ isHopCounted: (PlacedRequest) -> Bool
    ) -> Int {
        let own = lanes.ahead(of: number, in: lane)
        return lane.host.lanes.reduce(own) { sum, other in
            if other === lane || !isCounted(other) { return sum }
            return sum + (other.app === lane.app ? lanes.ahead(of: number, in: other) : min(other.count, own + 1))
        } + hopsAhead(in: lane, own, isHopCounted)
    }

    /// The counted redirects that go first: all redirects of the lane's application, and for each other application at most `own` + 1.
    private func hopsAhead(in lane: Lane, _ own: Int, _ isCounted: (PlacedRequest) -> Bool) -> Int {
        if lane.host.hops.isEmpty { return 0 }
        var counts: [String: Int] = [:]
        for id in lane.host.hops {
            guard let request = requests[id], isCounted(request) else { continue }
            counts[request.app, default: 0] += 1
        }
        return counts.reduce(0) { $0 + ($1.key == lane.app.name ? $1.value : min($1.value, own + 1)) }
    }

    // MARK: Regimes

    /// - Returns: whether the wait reason of any download queued at `host` may have changed since the last call.
    func takeRegime(of host: HostLoad, now: WallTime) -> Bool {
        let regime = regime(of: host, now: now)
        defer { host.regime = regime }
        return regime != host.regime
    }

    /// The wait reason assumed for a restored queued download. It does not count the downloads ahead, so it is wrong for the first
    /// downloads of a host. The review of the host corrects and announces their reasons.
    func reasonAtStart(_ lane: Lane, now: WallTime) -> WaitReason? {
        let regime = lane.host.regime ?? regime(of: lane.host, now: now)
        lane.host.regime = regime
        return regime.isPaced || regime.slowed.contains(lanes.origin(of: lane)) ? .rateLimit : regime.limit > 0 ? .hostLimit : nil
    }

    private func regime(of host: HostLoad, now: WallTime) -> HostLoad.Regime {
        let isPaced = host.interval > .zero || host.opens(now: now).map { $0 > now } ?? true
        return HostLoad.Regime(isPaced: isPaced, limit: bindingLimit(of: host), slowed: slowed(at: host, now: now).sorted())
    }

    private func slowed(at host: HostLoad, now: WallTime) -> Set<String> {
        if paces.isEmpty { return [] }
        return Set(host.lanes.map { lanes.origin(of: $0) }).filter { paces[$0].map { !$0.isOver(now: now) } ?? false }
    }
}
