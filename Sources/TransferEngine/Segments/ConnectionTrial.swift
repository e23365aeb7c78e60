internal import DownloadModel

/// Finds out how many connections a transfer with automatic `connections` uses. Doubles their number while a doubling makes all transfers
/// together faster, and undoes the first doubling that does not.
struct ConnectionTrial {
    /// The most connections of an automatic transfer.
    static let most = 8
    /// No connection is added if fewer bytes are missing, or if the missing bytes take less time than `leastSeconds`.
    static let leastRest: ByteCount = 8 << 20
    static let leastSeconds = 3.0
    /// More connections must speed up the transfer by this share, and all transfers together by as many bytes.
    static let leastGain = 0.25
    /// A connection whose speed grew by more than this share still gets faster by itself, so nothing is tried.
    static let ownGrowth = 0.2

    /// The most connections with which a transfer begins. A transfer begins with several connections, one to each source, only if bytes of
    /// its sources may be joined.
    static let mostSources = 4

    private enum Phase {
        case measuring(last: Double?)
        /// `from`: the number of connections before the trial; `own` and `whole`: the speeds before the trial. `windows`: how many windows
        /// the trial has lasted; `full`: in how many of these windows all connections brought bytes.
        case trying(from: Int, own: Double, whole: Double, windows: Int, full: Int)
        case settled
    }

    /// How many connections the transfer should have.
    private(set) var target = 1
    private var phase = Phase.measuring(last: nil)
    private var window = (seconds: 0.0, own: 0.0, whole: 0.0)

    private var hasSpread = false

    /// Several sources bring the same file: uses all of them from the beginning, without a measurement, because mirrors are named for this
    /// purpose.
    ///
    /// - Parameter rest: the missing bytes.
    mutating func spread(over sources: Int, rest: ByteCount) {
        guard !hasSpread else { return }
        hasSpread = true
        if rest >= Self.leastRest { target = max(target, min(sources, Self.mostSources)) }
    }

    var isTrying: Bool { if case .trying = phase { true } else { false } }

    /// Other transfers have begun or ended, so earlier measurements no longer count.
    mutating func reset() {
        switch phase {
        case .settled: return
        case .trying(let from, _, _, _, _): target = from
        case .measuring: break
        }
        (phase, window) = (.measuring(last: nil), (0, 0, 0))
    }

    /// Call at each tick.
    ///
    /// - Parameters:
    ///   - own, whole: the bytes of this transfer, and of all transfers, in the last `seconds`.
    ///   - receiving: the number of connections that bring bytes now.
    ///   - rest: the missing bytes.
    ///   - mayTry: false if a limit decides the speed, the file cannot be divided, or another transfer is trying.
    mutating func look(seconds: Double, own: ByteCount, whole: ByteCount, receiving: Int, rest: ByteCount, mayTry: Bool) {
        window = (window.seconds + seconds, window.own + Double(own), window.whole + Double(whole))
        guard window.seconds >= 1 else { return }
        let (own, whole) = (window.own / window.seconds, window.whole / window.seconds)
        window = (0, 0, 0)
        switch phase {
        case .settled: break
        case .measuring(let last):
            phase = .measuring(last: own)
            guard mayTry, let last, own > 0, own <= (1 + Self.ownGrowth) * last, receiving >= target else { return }
            double(own: max(own, last), whole: whole, rest: rest)
        case .trying(let from, let ownBefore, let wholeBefore, let windows, let full):
            let isFull = receiving >= target
            let gain = Self.leastGain * ownBefore
            // In their first second, connections are still slow.
            if isFull, full > 0, own >= ownBefore + gain, whole >= wholeBefore + gain {
                phase = target == Self.most ? .settled : .measuring(last: own)
                if mayTry, target < Self.most { double(own: own, whole: whole, rest: rest) }
            } else if full >= 3 || windows >= 8 {
                // No gain, or the host has no place for more.
                (target, phase) = (from, .settled)
            } else {
                phase = .trying(from: from, own: ownBefore, whole: wholeBefore, windows: windows + 1, full: full + (isFull ? 1 : 0))
            }
        }
    }

    /// Tries twice as many connections, if enough bytes are missing.
    private mutating func double(own: Double, whole: Double, rest: ByteCount) {
        guard rest >= Self.leastRest, Double(rest) >= Self.leastSeconds * own else { return }
        phase = .trying(from: target, own: own, whole: whole, windows: 0, full: 0)
        target = min(2 * target, Self.most)
    }
}
