/// Keeps a transfer to its speed limit: libcurl's own limit lets through whatever lies in the socket's buffer.
///
/// Every tick earns bytes. While any are left, what comes is taken whole; the debt that this may leave is earned back first.
struct Pace {
    /// What may gather unused, in seconds of the limit.
    private static let burst = 0.25

    /// Bytes per second; 0: no limit.
    var limit: UInt64 = 0 {
        didSet { if limit != oldValue { allowance = min(allowance, Double(limit) * Self.burst) } }
    }
    private var allowance = 1.0
    /// Whether bytes were refused, and wait to be given again.
    private(set) var isHolding = false

    /// Whether bytes that have come may be taken now; counts them if so.
    mutating func mayTake(_ count: Int) -> Bool {
        guard limit > 0 else { return true }
        guard allowance > 0 else {
            isHolding = true
            return false
        }
        allowance -= Double(count)
        return true
    }

    /// Earns what `seconds` allow. True where held back bytes may come now; they are not held any more then.
    mutating func earn(seconds: Double) -> Bool {
        if limit > 0 { allowance = min(allowance + Double(limit) * seconds, Double(limit) * Self.burst) }
        guard isHolding, limit == 0 || allowance > 0 else { return false }
        isHolding = false
        return true
    }
}
