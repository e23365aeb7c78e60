/// The long answers that wait to be written. Callers take turns, so the number of one caller's answers does not delay another caller.
struct WaitingAnswers {
    typealias Step = () -> Bool

    /// The steps of each caller's answers, in the order of the calls.
    private var queues: [String: [Step]] = [:]
    /// The callers of `queues`, in the order of their turns.
    private var turns: [String] = []
    private(set) var count = 0

    var isEmpty: Bool { turns.isEmpty }

    func count(of caller: String) -> Int { queues[caller]?.count ?? 0 }

    mutating func append(_ step: @escaping Step, of caller: String) {
        if queues[caller] == nil { turns.append(caller) }
        queues[caller, default: []].append(step)
        count += 1
    }

    /// Removes and returns the answer whose turn it is.
    mutating func next() -> Step? {
        guard let caller = turns.first, let step = queues[caller]?.removeFirst() else { return nil }
        turns.removeFirst()
        if count(of: caller) > 0 { turns.append(caller) } else { queues[caller] = nil }
        count -= 1
        return step
    }
}
