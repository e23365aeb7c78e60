/// How long one step of the bus thread works on what has been cut into slices: calls of others are answered behind it.
struct StepTime {
    private static let most: Duration = .milliseconds(4)
    private let begun = ContinuousClock.now

    var isOver: Bool { .now - begun >= Self.most }
}
