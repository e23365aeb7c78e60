/// Whose turn it is where requests wait for one another at a host: that of the application whose last turn is longest ago.
struct HostTurns {
    /// What an application waits for. An origin's pace, and an interval of its own, are kept by those only for which they hold.
    struct Claim: Hashable {
        let app: String
        /// The origin, where that keeps a pace.
        let origin: String
        /// Its own interval, where the origin keeps none.
        let spacing: Duration

        init(app: String, slowedOrigin: String?, spacing: Duration) {
            (self.app, origin, self.spacing) = (app, slowedOrigin ?? "", slowedOrigin == nil ? spacing : .zero)
        }

        /// Whether it keeps an interval besides its host's.
        var isPaced: Bool { !origin.isEmpty || spacing > .zero }

        /// Whether both wait for the same, wherever the host itself would take any number.
        func contends(with other: Claim) -> Bool { isPaced && (origin, spacing) == (other.origin, other.spacing) }
    }

    /// So many are told apart; what had its turn before that counts as having had it then.
    private static let most = 1024

    private var count: UInt64 = 0
    private var forgotten: UInt64 = 0
    private var turns: [Claim: UInt64] = [:]

    /// Counts upwards: the least is who comes first.
    func last(_ claim: Claim) -> UInt64 { turns[claim] ?? forgotten }

    /// It had its turn, or could not take it.
    mutating func took(_ claim: Claim) {
        count &+= 1
        turns[claim] = count
        guard turns.count > Self.most else { return }
        forgotten = turns.values.sorted()[Self.most / 2]
        turns = turns.filter { $0.value > forgotten }
    }

    /// It is to come before all others.
    mutating func comesNext(_ claim: Claim) { turns[claim] = 0 }
}
