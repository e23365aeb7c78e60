internal import DownloadModel

/// Decides which redirects and queued downloads a host takes next, and whose turn it is.
extension HostGate {
    /// The requests that a refreshed host takes now, besides the downloads that its lanes offer.
    struct Opening {
        /// The permitted requests, with the rows to save before each goes out.
        var granted: [(id: RequestID, saves: [StoreChange])] = []
        /// Requests that the host would take, but that get no slot.
        var slotless: [RequestID] = []
        /// The further request that must end: the host’s rule has changed, or another request or download needs the place. nil: none.
        var withdrawn: RequestID?
    }

    /// Permits requests that wait for `host`, offers the downloads that may start there, withdraws the other offers, and sets the next
    /// wake.
    mutating func refresh(_ host: HostLoad, now: WallTime) -> Opening {
        beginRefresh(host)
        let limit = limit(of: host)
        var opening = Opening()
        var (wake, awaited) = grantHops(host, limit, &opening, now: now)
        host.owesPlace = host.owesPlace || frontWithoutPlace(of: host, limit, now: now) != nil
        let fronts = fronts(of: host, limit, now: now)
        let chosen = awaited.isEmpty ? inTurn(fronts, at: host) : awaited
        var next = fronts.startIndex
        for lane in host.lanes {
            // `fronts` has the same order.
            let front = next < fronts.endIndex && fronts[next].lane === lane ? fronts[next] : nil
            if front != nil { next += 1 }
            lanes.offer(chosen?.contains(lane.id) ?? true ? front?.download : nil, of: lane)
            guard front == nil, hasPlace(at: host, limit) || givesWay(host, limit) || mayShare(of: lane) else { continue }
            if let opens = opens(lane, now: now), opens > now { wake = min(wake ?? opens, opens) }
        }
        noteContest(at: host)
        if let opens = grantFurther(host, limit, &opening, now: now) { wake = min(wake ?? opens, opens) }
        if host.rule.connections != nil, host.further > 0, !hasPlace(at: host, limit),
            host.connections +| host.further > limit || givesWay(host, limit) && isWanted(host, limit, now: now)
        {
            opening.withdrawn = withdrawFurther(at: host)
        }
        hosts.endRefresh(host, wake: wake)
        return opening
    }

    // MARK: Further requests

    /// Permits further requests. Call it after all other requests and downloads that wait for the same places or intervals.
    ///
    /// - Returns: when the next further request may start; nil: no further request waits for an instant.
    private mutating func grantFurther(_ host: HostLoad, _ limit: Int, _ opening: inout Opening, now: WallTime) -> WallTime? {
        if host.waitingFurther.isEmpty || host.rule.connections ?? 0 > 0 && isWanted(host, limit, now: now) { return nil }
        var wake: WallTime?
        for id in host.waitingFurther {
            guard let request = requests[id], hasPlaceForFurther(at: host) else { break }
            // Downloads that share a connection need no place, but they keep intervals, too.
            let isPaced = host.interval > .zero || claim(of: request).isPaced
            guard !isPaced || host.lanes.isEmpty && host.hops.isEmpty, let opens = opens(host, request, now: now) else { continue }
            guard opens <= now else {
                wake = min(wake ?? opens, opens)
                continue
            }
            // While all requests of a transfer are idle, others may use its slot. So a further request does not start then.
            guard slots[id.download].map({ !$0.isIdle }) ?? false else { continue }
            host.waitingFurther.removeAll { $0 == id }
            opening.granted.append((id, begin(request, id, now: now)))
        }
        return wake
    }

    /// Notes whether free slots decide which request of `host` comes next: a further request or another one, or a download to which a place
    /// is owed. Later in the turn, other hosts may take these slots.
    private mutating func noteContest(at host: HostLoad) {
        let hasFurther = host.further > 0 || !host.waitingFurther.isEmpty
        let isContested = host.rule.connections ?? 0 > 0 && hasFurther && !(host.lanes.isEmpty && host.hops.isEmpty)
        contested[host.name] = isContested || host.owesPlace ? startable : nil
    }

    /// Marks the hosts of `contested` as changed if slots have been taken or released since their last refresh.
    ///
    /// - Returns: whether there are such hosts.
    mutating func touchContested() -> Bool {
        let startable = startable
        let names = contested.lazy.filter { $0.value != startable }.map(\.key)
        for name in names { hosts.touch(named: name) }
        return !names.isEmpty
    }

    /// Whether further requests at `host` have places that redirects and queued downloads may get.
    private func givesWay(_ host: HostLoad, _ limit: Int) -> Bool {
        host.rule.connections != nil && host.further > 0 && host.connections < limit
    }

    /// Whether a redirect or a queued download would use a place at `host` now.
    private func isWanted(_ host: HostLoad, _ limit: Int, now: WallTime) -> Bool {
        let isHopReady = host.hops.contains { id in
            guard hasSlotForHop(of: id.download), let request = requests[id], !mayShare(request, of: id, at: host) else { return false }
            return opens(host, request, now: now).map { $0 <= now } ?? false
        }
        return isHopReady
            || fronts(of: host, limit, givingWay: true, now: now).contains { hasSlot(for: $0.lane.size) && !mayShare(of: $0.lane) }
    }

    // MARK: Turns

    /// The first download of a lane, if its host would take it now.
    private struct Front {
        let lane: Lane
        let download: DownloadQueue.Ranked
        let claim: HostTurns.Claim
        let turn: UInt64
        /// The origin refused the download: others of its application and priority go first (`OriginPace.yields`).
        let yields: Bool
    }

    /// In the order of the host's lanes.
    ///
    /// - Parameter givingWay: whether further requests give their places to these downloads.
    private func fronts(of host: HostLoad, _ limit: Int, givingWay: Bool = false, now: WallTime) -> [Front] {
        // While the network is unknown, only hosts on this machine take requests.
        guard isNetworkKnown || host.isLocal else { return [] }
        let hasPlace = givingWay || hasPlace(at: host, limit)
        return host.lanes.compactMap { lane in
            guard hasPlace || mayShare(of: lane), let opens = opens(lane, now: now), opens <= now, let download = lanes.first(of: lane)
            else { return nil }
            let claim = claim(of: lane)
            let yields = lane.wasRefused && (paces[lanes.origin(of: lane)]?.yields(download.number) ?? false)
            return Front(lane: lane, download: download, claim: claim, turn: host.turns.last(claim), yields: yields)
        }
    }

    /// The lanes whose turn it is, if an interval admits one request at a time; nil: all lanes, because the applications' cost decides.
    private func inTurn(_ fronts: [Front], at host: HostLoad) -> Set<UInt32>? {
        guard fronts.count > 1 else { return nil }
        if host.interval > .zero { return Set([first(of: fronts)].compactMap { $0?.lane.id }) }
        guard fronts.contains(where: \.claim.isPaced) else { return nil }
        return Set(
            fronts.filter { front in
                !front.claim.isPaced || first(of: fronts.filter { $0.claim.contends(with: front.claim) })?.lane === front.lane
            }.map(\.lane.id))
    }

    /// The queued download whose turn it is at `host`, if it lacks nothing but a place; nil: there is a place, or the download may share a
    /// connection. The place is owed to this download, because downloads behind it would keep the shared connections busy.
    private func frontWithoutPlace(of host: HostLoad, _ limit: Int, now: WallTime) -> Front? {
        guard host.hasSharedConnections, !hasPlace(at: host, limit) else { return nil }
        let fronts = fronts(of: host, limit, givingWay: true, now: now).filter { hasSlot(for: $0.lane.size) }
        let chosen = inTurn(fronts, at: host)
        let next = fronts.filter { chosen?.contains($0.lane.id) ?? true }.min { a, b in
            lanes.precedes(a.download, of: a.lane.app, b.download, of: b.lane.app)
        }
        return next.flatMap { mayShare(of: $0.lane) ? nil : $0 }
    }

    /// Among each application's first download by priority, refusal and queue order: the download of the highest priority whose last turn
    /// is longest ago.
    private func first(of fronts: [Front]) -> Front? {
        var firsts: [String: Front] = [:]
        for front in fronts {
            guard let rival = firsts[front.claim.app] else {
                firsts[front.claim.app] = front
                continue
            }
            let (own, other) = (front.download, rival.download)
            let (ownYields, otherYields) = (front.yields ? 1 : 0, rival.yields ? 1 : 0)
            let comesFirst = (other.priority, ownYields, own.position) < (own.priority, otherYields, other.position)
            if comesFirst { firsts[front.claim.app] = front }
        }
        return firsts.values.min { a, b in
            (b.download.priority, a.turn, a.download.position, a.download.number) < (
                a.download.priority, b.turn, b.download.position, b.download.number
            )
        }
    }

    /// Whether the first download of `lane` needs no place at its host.
    func mayShare(of lane: Lane) -> Bool { mayShare(at: lane.host, lanes.origin(of: lane), lane.size) }

    private func claim(of lane: Lane) -> HostTurns.Claim {
        claim(at: lanes.origin(of: lane), app: lane.app.name, requestInterval: lane.requestInterval, isUrgent: lane.isUrgent)
    }

    /// When the first download of `lane` may start; nil: once the started requests have gone out.
    func opens(_ lane: Lane, now: WallTime) -> WallTime? {
        opens(
            lane.host, lanes.origin(of: lane), app: lane.app.name, requestInterval: lane.requestInterval, isUrgent: lane.isUrgent, now: now)
    }

    /// The download `number` was moved to the front; `lane` is its lane if it is queued.
    mutating func comesNext(_ number: DownloadNumber, _ lane: Lane?) {
        // An active download has had its turn. If it yields its slot, other applications' turns come first.
        if slots[number] == nil { lanes.comesNext(number) }
        guard let lane else { return }
        lane.host.turns.comesNext(claim(of: lane))
        hosts.touch(lane.host)
    }

    // MARK: Redirects

    /// A queued download that precedes a redirect at its host, with its turn at that moment.
    struct Awaited {
        fileprivate let lane: Lane
        fileprivate let claim: HostTurns.Claim
        fileprivate let turn: UInt64
        /// The claim that has waited longer than the redirect's application.
        fileprivate let owed: HostTurns.Claim
    }

    /// A request at `host` could start, and its transfer has no slot for it.
    private mutating func awaitSlot(of number: DownloadNumber, at host: HostLoad) {
        awaitingSlot.insert(host.name)
        if let slot = slots[number] { awaitingSizes.insert(slot.size) }
    }

    /// Permits the redirects whose turn it is.
    ///
    /// - Returns: when the next waiting redirect may start (nil: no redirect waits for an instant), and the lanes that precede a redirect.
    private mutating func grantHops(
        _ host: HostLoad, _ limit: Int, _ opening: inout Opening, now: WallTime
    ) -> (wake: WallTime?, awaited: Set<UInt32>) {
        guard !host.hops.isEmpty else { return (nil, []) }
        var wake: WallTime?
        var awaitedLanes: Set<UInt32> = []
        // Each application's hops, in order of arrival.
        var waiting: [(claim: HostTurns.Claim, hops: ArraySlice<RequestID>)] = []
        var places: [HostTurns.Claim: Int] = [:]
        for id in host.hops {
            guard let request = requests[id] else { continue }
            let claim = claim(of: request)
            if let place = places[claim] {
                waiting[place].hops.append(id)
            } else {
                places[claim] = waiting.count
                waiting.append((claim, [id]))
            }
        }
        let owed = frontWithoutPlace(of: host, limit, now: now)
        while true {
            let next = waiting.indices.filter { !waiting[$0].hops.isEmpty }.min {
                host.turns.last(waiting[$0].claim) < host.turns.last(waiting[$1].claim)
            }
            guard let next, let id = waiting[next].hops.popFirst(), let request = requests[id] else { break }
            let claim = waiting[next].claim
            let hasPlace = hasPlace(at: host, limit) || mayShare(request, of: id, at: host) && !isBehind(owed, claim, at: host)
            let canShare = request.canShare(slots[id.download]?.size) && host.usesSharedConnection(to: request.origin)
            if !hasPlace, !canShare, opens(host, request, now: now).map({ $0 <= now }) ?? false {
                if hasSlotForHop(of: id.download) { host.owesPlace = true } else { awaitSlot(of: id.download, at: host) }
            }
            guard hasPlace || givesWay(host, limit), let opens = opens(host, request, now: now) else { continue }
            guard opens <= now else {
                wake = min(wake ?? opens, opens)
                continue
            }
            guard hasPlace else { continue }
            // While the request waited, other transfers took its slot.
            guard hasSlotForHop(of: id.download) else {
                awaitSlot(of: id.download, at: host)
                opening.slotless.append(id)
                continue
            }
            if let rival = rival(of: claim, at: host, limit, now: now) {
                if awaitedLanes.insert(rival.lane.id).inserted { awaited.append(rival) }
                waiting[next].hops = []
                continue
            }
            host.hops.removeAll { $0 == id }
            opening.granted.append((id, begin(request, id, now: now)))
        }
        if !awaited.isEmpty, !opening.granted.isEmpty {
            keepTurns(at: host, limit, after: Set(opening.granted.compactMap { requests[$0.id]?.app }), now: now)
        }
        return (wake, awaitedLanes)
    }

    /// A download that precedes a redirect keeps its turn if a redirect of another application has just taken its place or its interval. It
    /// loses the turn to a redirect of its own application: otherwise, the other redirect could yield to it again and again.
    ///
    /// - Parameter apps: the applications whose redirects were permitted at `host`.
    private mutating func keepTurns(at host: HostLoad, _ limit: Int, after apps: Set<String>, now: WallTime) {
        let hasPlace = hasPlace(at: host, limit)
        awaited = awaited.filter { one in
            let lane = one.lane
            guard lane.count > 0, lane.host === host, !apps.contains(lane.app.name) else { return true }
            return (hasPlace || mayShare(of: lane)) && opens(lane, now: now).map { $0 <= now } ?? false
        }
    }

    /// Whether a redirect of `claim` would share a connection although a place is owed to `front`, of another application that has waited
    /// longer for its turn.
    private func isBehind(_ front: Front?, _ claim: HostTurns.Claim, at host: HostLoad) -> Bool {
        front.map { $0.claim.app != claim.app && $0.turn < host.turns.last(claim) } ?? false
    }

    /// The queued download that goes before a redirect of `claim`; nil: none. A redirect yields if a slot is free, and the application of
    /// the first queued download has waited longer for its turn. It does not yield for the sake of an application whose downloads have a
    /// lower priority, because it would then wait for all downloads of higher priority.
    private func rival(of claim: HostTurns.Claim, at host: HostLoad, _ limit: Int, now: WallTime) -> Awaited? {
        let isScarce = host.interval > .zero || limit > 0
        guard !host.lanes.isEmpty, isScarce || claim.isPaced else { return nil }
        let startable = startable
        guard !startable.isEmpty else { return nil }
        let rivals = fronts(of: host, limit, now: now).filter {
            startable.contains($0.lane.size) && (isScarce || $0.claim.contends(with: claim))
        }
        let last = host.turns.last(claim)
        guard let first = first(of: rivals) else { return nil }
        // `first` may be of the redirect's own application, by its priority. An application that waits behind `first` must not wait for the
        // redirects as well, so the redirect yields for the sake of that application.
        let others = rivals.filter { $0.claim.app != claim.app && $0.turn < last }
        let owed = first.claim.app == claim.app ? others.min { $0.turn < $1.turn } : others.first { $0.lane === first.lane }
        return owed.map { Awaited(lane: first.lane, claim: first.claim, turn: first.turn, owed: $0.claim) }
    }

    /// A download that precedes a redirect but got no slot loses its turn. So it delays no request that has a slot or needs none. The
    /// download keeps its turn if no redirect waits at the host any more.
    ///
    /// - Returns: whether a download lost its turn, so that hosts must be refreshed again.
    mutating func loseTurns() -> Bool {
        var isLost = false
        for one in awaited where one.lane.count > 0 && one.lane.host.turns.last(one.claim) == one.turn {
            let host = one.lane.host
            guard !host.hops.isEmpty else { continue }
            host.turns.took(one.claim)
            if one.owed != one.claim { host.turns.took(one.owed) }
            hosts.touch(host)
            isLost = true
        }
        awaited = []
        return isLost
    }
}
