import DownloadModel
import Scheduling
import Testing

/// A loop, a bus and a store that do what the test says. One look at the time is one step.
private final class Desk: CommitGateHost {
    struct Look: StepLimit { var isOver: Bool { true } }

    private(set) lazy var gate = CommitGate(host: self)
    var sent: [String] = []
    var works: [CommitGateWork] = []
    var isBehind = false

    func send(_ message: String) { sent.append(message) }
    func later(_ work: CommitGateWork) { works.append(work) }
    func beginStep() -> Look { Look() }
    func gateIsBusy(_ isBusy: Bool) {}

    /// Performs all work, and commits with success.
    func run() {
        while !works.isEmpty {
            let work = works.removeFirst()
            switch work {
            case .commit, .retriedCommit: commit()
            default: gate.perform(work)
            }
        }
    }

    func commit() {
        guard gate.beginCommit() != nil else { return }
        gate.commitSucceeded()
        gate.release()
        gate.commitIsOver()
    }

    /// Appends a batch whose members take their places in `steps` steps.
    func add(_ name: String, steps: Int) {
        var left = steps
        gate.append(.set(Settings()))
        gate.addition(of: []) { [self] in
            gate.post("\(name) is added")
        } enter: { [self] in
            left -= 1
            if left >= 0 { sent.append("a step of \(name)") }
            return left <= 0
        } undo: { _ in
            nil
        }
    }
}

@Suite struct `Commit gate` {
    @Test func `lets the members of two batches of one commit take their places one batch after the other`() {
        let desk = Desk()
        desk.add("A", steps: 3)
        desk.add("B", steps: 3)
        desk.run()
        let (a, b) = (Array(repeating: "a step of A", count: 3), Array(repeating: "a step of B", count: 3))
        #expect(desk.sent == a + b + ["A is added", "B is added"])
        #expect(!desk.gate.isBusy)
    }

    @Test func `lets the members of a batch take their places behind the long answer that was begun before`() throws {
        let desk = Desk()
        desk.add("A", steps: 3)
        var left = 3
        desk.gate.write {
            left -= 1
            if left == 0 { desk.send("answer") }
            return left == 0
        }
        desk.run()
        #expect(desk.sent == ["answer"] + Array(repeating: "a step of A", count: 3) + ["A is added"])
        #expect(!desk.gate.isBusy)
    }

    @Test func `sends nothing of a change before its commit, and at once what follows no change`() {
        let desk = Desk()
        desk.gate.post("1")
        desk.gate.append(.set(Settings()))
        desk.gate.post("2")
        desk.gate.afterCommit { desk.send("3") }
        #expect(desk.sent == ["1"])
        desk.run()
        #expect(desk.sent == ["1", "2", "3"])
    }

    @Test func `answers calls with the error of a failed commit, and keeps messages and effects for the next one`() {
        let desk = Desk()
        desk.gate.append(.set(Settings()))
        desk.gate.post("1")
        desk.gate.post(success: { "2" }, failure: { $0.message })
        desk.gate.afterCommit { desk.send("3") }
        _ = desk.gate.beginCommit()
        desk.gate.commitFailed(Refusal(.storage, "full"))
        desk.gate.release()
        desk.works = []
        desk.gate.commitIsOver()
        #expect(desk.sent == ["full"] && desk.works == [.retriedCommit])
        desk.run()
        #expect(desk.sent == ["full", "1", "3"])
    }
}
