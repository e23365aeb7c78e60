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
    func run() { while !works.isEmpty { performNext() } }

    func performNext() {
        guard !works.isEmpty else { return }
        let work = works.removeFirst()
        switch work {
        case .commit, .retriedCommit: commit()
        default: gate.perform(work)
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
    @Test func `sends a series one message a step, in its place, and holds progress of its downloads until its end`() {
        let desk = Desk()
        desk.gate.append(.set(Settings()))
        desk.gate.post("before")
        desk.gate.postSeries(about: DownloadNumber(10), count: 3) { "member \($0)" }
        desk.gate.postSeries(about: DownloadNumber(20), count: 1) { "other \($0)" }
        desk.gate.postSeries(about: DownloadNumber(30), count: 0) { "none \($0)" }
        desk.gate.post("after")
        func held() -> [UInt64] { [9, 10, 12, 13, 20].filter { desk.gate.holdsProgress(of: DownloadNumber($0)) } }
        #expect(held() == [10, 12, 20] && desk.sent.isEmpty)
        // Each look at the time ends a step: the messages come one a step.
        while desk.sent.last != "member 1" { desk.performNext() }
        #expect(desk.sent == ["before", "member 0", "member 1"] && held() == [10, 12, 20])
        #expect(!desk.gate.isClear && desk.gate.isBusy)
        desk.gate.post("meanwhile")
        desk.performNext()
        #expect(desk.sent.last == "member 2" && held() == [20])
        desk.run()
        #expect(desk.sent == ["before", "member 0", "member 1", "member 2", "other 0", "after", "meanwhile"])
        #expect(held() == [] && desk.gate.isClear && !desk.gate.isBusy)
    }

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
