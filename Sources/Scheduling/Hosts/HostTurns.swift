/// The turns of applications whose requests wait at one host: the application whose last turn is longest ago comes first.
struct HostTurns {
    /// An application's claim to a turn. An origin's pace and a download's own request interval delay only some downloads, so each has
    /// claims of its own.
    struct Claim: Hashable {
        let app: String
        /// The origin if it keeps a pace; else empty.
        let origin: String
        /// The application's own interval if the origin keeps no pace; else zero.
        let requestInterval: Duration

        init(app: String, slowedOrigin: String?, requestInterval: Duration) {
            (self.app, origin, self.requestInterval) = (app, slowedOrigin ?? "", slowedOrigin == nil ? requestInterval : .zero)
        }

        /// Whether the claim keeps an interval besides the host's.
        var isPaced: Bool { !origin.isEmpty || requestInterval > .zero }

        /// Whether both claims wait for the same interval. Without an interval, the host takes any number of requests.
        func contends(with other: Claim) -> Bool { isPaced && (origin, requestInterval) == (other.origin, other.requestInterval) }
    }

    /// At most this many claims are remembered. Forgotten claims count as if they all had their last turn at the same time.
    private static let most = 1024

    private var count: UInt64 = 0
    private var forgotten: UInt64 = 0
    private var turns: [Claim: UInt64] = [:]

    /// The number of the claim's last turn. Turns count upwards, so the lowest number comes first.
    func last(_ claim: Claim) -> UInt64 { turns[claim] ?? forgotten }

    /// The claim used its turn, or lost it.
    mutating func took(_ claim: Claim) {
        count &+= 1
        turns[claim] = count
        guard turns.count > Self.most else { return }
        forgotten = turns.values.sorted()[Self.most / 2]
        turns = turns.filter { $0.value > forgotten }
    }

    /// The claim precedes all others.
    mutating func comesNext(_ claim: Claim) { turns[claim] = 0 }
}
