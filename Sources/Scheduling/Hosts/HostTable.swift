internal import DownloadModel

/// All hosts, and which of them must be refreshed: hosts that have changed, hosts that are due, and all hosts once a setting has changed.
struct HostTable {
    /// The facts that the table keeps about a host.
    struct Listing {
        /// The host's place in `all`; -1: it is not listed.
        fileprivate var place = -1
        /// The table's generation when the host was refreshed last.
        fileprivate var generation: UInt64 = 0
        /// The host is in `touched`.
        fileprivate var isTouched = false
        /// The host is in `dated`.
        fileprivate var isDated = false
        /// When the host is due again: the only valid entry of the host in `wakes`.
        fileprivate var wakeAt: WallTime?
    }

    private var byName = KeyTable<String, HostLoad>()
    private var all: [HostLoad] = []
    /// Contains all hosts that have instants.
    private var dated: [HostLoad] = []
    /// A host refreshed in an earlier generation is outdated.
    private var generation: UInt64 = 0
    /// All hosts before this place have been refreshed in this generation, or are in `touched`.
    private var next = 0
    /// Hosts that changed since their last refresh.
    private var touched: [HostLoad] = []
    private var wakes = WakeHeap<String>()
    /// At this many hosts, all are refreshed, which finds hosts that can be forgotten.
    private var hostsBeforeSweep = 1024

    var count: Int { all.count }
    subscript(name: String) -> HostLoad? { byName[name] }

    func contains(_ host: HostLoad) -> Bool { host.listing.place >= 0 }

    mutating func insert(_ host: HostLoad) {
        if count >= hostsBeforeSweep {
            touchAll()
            hostsBeforeSweep *= 2
        }
        (host.listing.place, host.listing.generation) = (all.count, generation)
        all.append(host)
        byName[host.name] = host
    }

    mutating func remove(_ host: HostLoad) {
        byName[host.name] = nil
        let (place, last) = (host.listing.place, all.removeLast())
        host.listing.place = -1
        if last !== host {
            all[place] = last
            last.listing.place = place
            // `nextOutdated` would miss it.
            if place < next, isOfEarlierGeneration(last) { touch(last) }
        }
        next = min(next, all.count)
    }

    // MARK: Hosts to refresh

    /// Marks `host` as changed: its offers may be outdated until it is refreshed.
    mutating func touch(_ host: HostLoad) {
        guard !host.listing.isTouched else { return }
        host.listing.isTouched = true
        touched.append(host)
    }

    mutating func touch(named name: String) { if let host = self[name] { touch(host) } }

    /// Marks all hosts as changed.
    mutating func touchAll() {
        generation += 1
        next = 0
    }

    /// Touches the hosts that are due.
    ///
    /// - Parameter most: the most hosts to touch; the rest is due in the next slice.
    /// - Returns: whether any are left.
    mutating func touchDue(_ most: Int, now: WallTime) -> Bool {
        var due = 0
        while let time = nextWake(), let name = wakes.first?.name, time <= now {
            guard due < most else { return true }
            due += 1
            wakes.removeFirst()
            guard let host = self[name], host.listing.wakeAt == time else { continue }
            host.listing.wakeAt = nil
            touch(host)
        }
        return false
    }

    /// The first instant at which a host is due.
    mutating func nextWake() -> WallTime? {
        wakes.dropStale { name, time in byName[name]?.listing.wakeAt == time }
        return wakes.first?.time
    }

    /// The clock was set: no host is due at the instant that it had.
    mutating func forgetWakes() {
        for host in withInstants() { host.listing.wakeAt = nil }
        wakes = WakeHeap()
    }

    /// Whether the offers of `host` may be outdated.
    func isOutdated(_ host: HostLoad) -> Bool { host.listing.isTouched || isOfEarlierGeneration(host) }

    private func isOfEarlierGeneration(_ host: HostLoad) -> Bool { host.listing.generation != generation }

    /// Whether a host is left to refresh.
    var hasOutdated: Bool { !touched.isEmpty || next < all.count }

    /// Takes touched hosts, which the caller refreshes or gives back.
    mutating func takeTouched(_ most: Int) -> [HostLoad] {
        let taken = touched.prefix(max(0, most))
        touched.removeFirst(taken.count)
        return Array(taken)
    }

    mutating func giveBack(_ hosts: ArraySlice<HostLoad>) { touched.insert(contentsOf: hosts, at: 0) }

    /// A host that became outdated when all hosts did; nil: none is left.
    mutating func nextOutdated() -> HostLoad? {
        while next < all.count {
            let host = all[next]
            next += 1
            if isOfEarlierGeneration(host) { return host }
        }
        return nil
    }

    mutating func beginRefresh(_ host: HostLoad) { (host.listing.isTouched, host.listing.generation) = (false, generation) }

    /// - Parameter wake: when `host` is due again; nil: never by time alone.
    mutating func endRefresh(_ host: HostLoad, wake: WallTime?) {
        if host.listing.wakeAt != wake {
            host.listing.wakeAt = wake
            if let wake { wakes.insert(wake, host.name) }
        }
        noteInstants(of: host)
    }

    /// Call when no host is left to refresh.
    mutating func relaxSweep() {
        if count < hostsBeforeSweep / 4 { hostsBeforeSweep = max(1024, 2 * count) }
    }

    // MARK: Instants

    /// Call when an instant or the last request of `host` may have been set.
    mutating func noteInstants(of host: HostLoad) {
        guard !host.listing.isDated, hasInstants(host) else { return }
        host.listing.isDated = true
        dated.append(host)
    }

    private func hasInstants(_ host: HostLoad) -> Bool { host.listing.wakeAt != nil || host.hasInstants }

    /// The hosts with instants. They are few, because requests have started there or wait there for an instant.
    mutating func withInstants() -> [HostLoad] {
        let found = dated.filter { host in
            host.listing.isDated = contains(host) && hasInstants(host)
            return host.listing.isDated
        }
        dated = found
        return found
    }
}
