internal import DownloadModel
internal import PartFiles
internal import Transport

/// Keeps a transfer to its own speed limit and to its part of the service's.
///
/// It is counted what is taken from libcurl: libcurl's own limit lets through whatever lies in the socket's buffer. A pause takes effect at
/// once, and a piece may be taken in part, so that limits are kept to the byte however small they are. Of the engine's thread.
final class Pace {
    /// What may gather unused, in seconds of a limit.
    static let burst = 0.1

    private let shared: SharedPace
    /// Bytes per second; 0: no limit of its own.
    var limit: UInt64 {
        didSet { earned = min(earned, mostEarned) }
    }
    /// Bytes that its own limit lets it take now.
    private var earned: Double
    /// Bytes of the service's limit that are kept for it until they are shared anew.
    fileprivate(set) var share = 0.0
    /// Bytes taken since then.
    private var taken = 0.0
    /// Whether bytes were refused, and wait to be given again.
    private(set) var isHolding = false

    init(_ shared: SharedPace, limit: UInt64) {
        (self.shared, self.limit) = (shared, limit)
        earned = max(1, Double(limit) * Self.burst)
    }

    private var mostEarned: Double { max(1, Double(limit) * Self.burst) }
    private var hasLimit: Bool { limit > 0 || shared.limit > 0 }

    /// How many bytes may be taken now.
    private var available: Double {
        min(limit > 0 ? earned : .infinity, shared.limit > 0 ? share + shared.spare : .infinity)
    }

    /// How many of `count` bytes that have come may be taken now; counts them as taken, and holds where they are not all.
    func take(_ count: Int) -> Int {
        guard hasLimit else { return count }
        let taking = available >= Double(count) ? count : max(0, Int(clamping: available))
        isHolding = taking < count
        taken += Double(taking)
        if limit > 0 { earned -= Double(taking) }
        guard shared.limit > 0 else { return taking }
        share -= Double(taking)
        if share < 0 {
            shared.spare = max(0, shared.spare + share)
            share = 0
        }
        return taking
    }

    /// True where bytes that are held back may come now; they are not held any more then.
    func letGo() -> Bool {
        guard isHolding, !hasLimit || available >= 1 else { return false }
        isHolding = false
        return true
    }

    /// Earns what its own limit allows in `seconds`.
    fileprivate func earn(seconds: Double) {
        if limit > 0 { earned = min(earned, mostEarned) + Double(limit) * seconds }
    }

    /// What it would take now: all it may, where bytes wait, else a little more than it took in the time before.
    fileprivate func demand() -> Double {
        defer { taken = 0 }
        return min(isHolding ? .infinity : 1.5 * taken, limit > 0 ? earned : .infinity)
    }

    /// It takes no more: what was kept for it is for the others.
    func end() {
        shared.spare += share
        share = 0
    }
}

/// The speed limit of all transfers together: bytes that are earned by time, and shared fairly among those who can use them.
///
/// They are shared anew in every tick of the engine, by what each took in the tick before. Whoever has too little, because it wakes up or
/// its server got faster, holds, and has its fair share in the next tick.
final class SharedPace {
    /// Bytes per second; 0: no limit.
    private(set) var limit: UInt64 = 0
    /// Bytes that are kept for nobody: for whoever comes first.
    fileprivate(set) var spare = 0.0

    /// After a time without transfers: what was earned in it is soon lost.
    func wake(_ limit: UInt64, idle seconds: Double) {
        deal(limit, seconds: seconds, to: [])
        spare = min(spare, max(1, Double(limit) * Pace.burst))
    }

    /// Earns what `seconds` allow, and shares it with what was left.
    ///
    /// - Parameter limit: from now on.
    func deal(_ limit: UInt64, seconds: Double, to paces: [Pace]) { deal(seconds: seconds, to: paces) { _ in limit } }

    /// The same, of a limit that `engine` shares with others.
    func deal(_ total: TotalLimit, as engine: ObjectIdentifier, seconds: Double, to paces: [Pace]) {
        deal(seconds: seconds, to: paces) { total.part(for: engine, demands: $0.map { $0 / max(seconds, 0.001) }) }
    }

    private func deal(seconds: Double, to paces: [Pace], _ limit: ([Double]) -> UInt64) {
        for pace in paces { pace.earn(seconds: seconds) }
        let demands = paces.map { $0.demand() }
        let limit = limit(demands)
        if self.limit == 0, limit > 0 { spare = Double(limit) * Pace.burst }
        self.limit = limit
        guard limit > 0 else {
            spare = 0
            for pace in paces { pace.share = 0 }
            return
        }
        // What is unused is not lost at once: it was kept for one who did not need it. A byte for each, so that tiny limits come to whole
        // bytes.
        let unused = paces.reduce(spare) { $0 + $1.share }
        let amount = min(unused, max(Double(limit) * Pace.burst, Double(paces.count))) + Double(limit) * seconds
        let shares = fairShares(of: amount, among: demands)
        for (pace, share) in zip(paces, shares) { pace.share = share }
        spare = max(0, amount - shares.reduce(0, +))
    }
}
