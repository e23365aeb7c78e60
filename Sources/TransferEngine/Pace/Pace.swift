internal import DownloadModel
internal import PartFiles
internal import Transport

/// The number of bytes that a transfer may accept now, by its own speed limit and by its share of the service's limit. All connections of
/// the transfer share the allowance.
private final class Allowance {
    let shared: SharedPace
    /// The transfer's own limit in bytes per second; 0: none.
    var limit: UInt64 {
        didSet { earned = min(earned, mostEarned) }
    }
    /// Bytes that the transfer's own limit allows now.
    var earned: Double
    /// Bytes of the service's limit that are reserved for this transfer until the next deal.
    var share = 0.0
    /// Bytes accepted since the last deal.
    var taken = 0.0
    /// The number of connections that hold back bytes.
    var holding = 0

    init(_ shared: SharedPace, limit: UInt64) {
        (self.shared, self.limit) = (shared, limit)
        earned = max(1, Double(limit) * Pace.burst)
    }

    private var mostEarned: Double { max(1, Double(limit) * Pace.burst) }
    var hasLimit: Bool { limit > 0 || shared.limit > 0 }

    /// How many bytes may be accepted now.
    var available: Double { min(limit > 0 ? earned : .infinity, shared.limit > 0 ? share + shared.spare : .infinity) }

    func take(_ count: Int) -> Int {
        let taking = available >= Double(count) ? count : max(0, Int(clamping: available))
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

    /// Adds the bytes that the transfer's own limit allows in `seconds`.
    func earn(seconds: Double) {
        if limit > 0 { earned = min(earned, mostEarned) + Double(limit) * seconds }
    }

    /// The bytes that the transfer would accept now. If bytes are held back: as many as its limit allows. Otherwise: a little more than in
    /// the last tick.
    func demand() -> Double {
        defer { taken = 0 }
        return min(holding > 0 ? .infinity : 1.5 * taken, limit > 0 ? earned : .infinity)
    }
}

/// Keeps a connection within the speed limit of its transfer, and within the transfer's share of the service's limit. The connections of a
/// transfer have one allowance.
///
/// Bytes count when they are accepted from libcurl, because libcurl's own limit does not hold back bytes in the socket's buffer. A pause
/// takes effect at once, and bytes can be accepted in part. So even tiny limits are kept to the byte. Use on the engine's thread only.
final class Pace {
    /// How much unused allowance may gather, in seconds of a limit.
    static let burst = 0.1

    fileprivate let allowance: Allowance
    /// Whether bytes were refused, and wait to be delivered again.
    private(set) var isHolding = false {
        didSet { allowance.holding += (isHolding ? 1 : 0) - (oldValue ? 1 : 0) }
    }

    init(_ shared: SharedPace, limit: UInt64) { allowance = Allowance(shared, limit: limit) }

    /// The pace of a further connection of the same transfer.
    init(with other: Pace) { allowance = other.allowance }

    deinit { if isHolding { allowance.holding -= 1 } }

    /// The limit of the transfer in bytes per second; 0: none.
    var limit: UInt64 {
        get { allowance.limit }
        set { allowance.limit = newValue }
    }

    /// Whether bytes may have to be held back.
    var hasLimit: Bool { allowance.hasLimit }

    /// Whether any connection of the transfer holds back bytes, so that the limit, and not the servers, decides the speed.
    var isLimiting: Bool { allowance.holding > 0 }

    /// The number of the `count` arrived bytes that may be accepted now. Counts these bytes, and holds back the rest.
    func take(_ count: Int) -> Int {
        guard allowance.hasLimit else { return count }
        let taking = allowance.take(count)
        isHolding = taking < count
        return taking
    }

    /// Holds back further bytes until the next tick, whatever the limits allow.
    func hold() { isHolding = true }

    /// Whether held bytes may be delivered now. If so, the hold ends.
    func release() -> Bool {
        guard isHolding, !allowance.hasLimit || allowance.available >= 1 else { return false }
        isHolding = false
        return true
    }

    /// The connection ends.
    func endHold() { isHolding = false }

    /// The transfer ends: gives its share to the others.
    func end() {
        endHold()
        allowance.shared.spare += allowance.share
        allowance.share = 0
    }
}

/// The speed limit of all transfers together: earns bytes with time, and shares them fairly among the transfers that can use them.
///
/// Each tick of the engine deals the bytes again, by the bytes that each transfer accepted in the tick before. A transfer with too small a
/// share (it has just started, or its server got faster) holds bytes. In the next tick it has its fair share.
final class SharedPace {
    /// Bytes per second; 0: no limit.
    private(set) var limit: UInt64 = 0
    /// Bytes reserved for no transfer: the first that needs them may use them.
    fileprivate(set) var spare = 0.0

    /// Starts after a time without transfers. Most of the bytes earned in that time are dropped.
    func wake(_ limit: UInt64, idle seconds: Double) {
        deal(limit, seconds: seconds, to: [])
        spare = min(spare, max(1, Double(limit) * Pace.burst))
    }

    /// Earns the bytes of `seconds`, and deals them with the bytes left.
    ///
    /// - Parameters:
    ///   - limit: the limit from now on.
    ///   - paces: the paces of one transfer follow each other.
    func deal(_ limit: UInt64, seconds: Double, to paces: [Pace]) { deal(seconds: seconds, to: paces) { _ in limit } }

    /// Earns and deals the bytes of `seconds`, with a limit that `engine` shares with others.
    func deal(_ total: TotalLimit, as engine: ObjectIdentifier, seconds: Double, to paces: [Pace]) {
        deal(seconds: seconds, to: paces) { total.part(for: engine, demands: $0.map { $0 / max(seconds, 0.001) }) }
    }

    private func deal(seconds: Double, to paces: [Pace], _ limit: ([Double]) -> UInt64) {
        // The connections of one transfer follow each other.
        let paces = paces.indices.filter { $0 == 0 || paces[$0].allowance !== paces[$0 - 1].allowance }.map { paces[$0].allowance }
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
        // Unused bytes are not lost at once, because a transfer may just not have needed its share. At least one byte for each transfer is
        // kept, so that tiny limits add up to whole bytes.
        let unused = paces.reduce(spare) { $0 + $1.share }
        let amount = min(unused, max(Double(limit) * Pace.burst, Double(paces.count))) + Double(limit) * seconds
        let shares = fairShares(of: amount, among: demands)
        for (pace, share) in zip(paces, shares) { pace.share = share }
        spare = max(0, amount - shares.reduce(0, +))
    }
}
