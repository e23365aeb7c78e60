/// How long the bus thread works on one piece of sliced work. Calls are answered between two pieces.
public struct StepTime: Sendable {
    private static let most: Duration = .milliseconds(4)
    private let begun = ContinuousClock.now

    public init() {}

    public var isOver: Bool { .now - begun >= Self.most }
}
