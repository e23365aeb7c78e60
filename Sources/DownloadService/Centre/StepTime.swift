internal import Scheduling

/// How long the bus thread works on one step of sliced work. Other calls are answered after the step.
struct StepTime: StepLimit {
    private static let most: Duration = .milliseconds(4)
    private let begun = ContinuousClock.now

    var isOver: Bool { .now - begun >= Self.most }
}
