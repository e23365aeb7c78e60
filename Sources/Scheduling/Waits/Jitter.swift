/// Random numbers for the delays of retries, so that the clients of a failed server do not all return at once. A value, so that a turn of
/// the scheduler depends on nothing outside.
public struct Jitter: Sendable {
    /// The state of splitmix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014); nil: always `constant`.
    private var state: UInt64?
    private let constant: Double

    /// - Parameter seed: any number; different in each process.
    public static func seeded(_ seed: UInt64) -> Jitter { Jitter(state: seed, constant: 0) }

    /// The same number each time.
    ///
    /// - Parameter value: from 0 up to, not including, 1.
    public static func fixed(_ value: Double) -> Jitter { Jitter(state: nil, constant: value) }

    /// A number from 0 up to, not including, 1.
    mutating func next() -> Double {
        guard let state else { return constant }
        let sum = state &+ 0x9E37_79B9_7F4A_7C15
        self.state = sum
        var mixed = (sum ^ (sum >> 30)) &* 0xBF58_476D_1CE4_E5B9
        mixed = (mixed ^ (mixed >> 27)) &* 0x94D0_49BB_1331_11EB
        return Double((mixed ^ (mixed >> 31)) >> 11) / 0x1p53
    }
}
