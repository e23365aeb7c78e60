import DownloadModel
import Scheduling
import Testing

/// A loop, a bus and a store that the test controls. Each check of the clock ends a step.
private final class Bench: CommitGateHost {
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
        let bench = Bench()
        bench.gate.append(.set(Settings()))
        bench.gate.post("before")
        bench.gate.postSeries(about: DownloadNumber(10), count: 3) { "member \($0)" }
        bench.gate.postSeries(about: DownloadNumber(20), count: 1) { "other \($0)" }
        bench.gate.postSeries(about: DownloadNumber(30), count: 0) { "none \($0)" }
        bench.gate.post("after")
        func held() -> [UInt64] { [9, 10, 12, 13, 20].filter { bench.gate.holdsProgress(of: DownloadNumber($0)) } }
        #expect(held() == [10, 12, 20] && bench.sent.isEmpty)
        // Each check of the clock ends a step, so each step sends one message.
        while bench.sent.last != "member 1" { bench.performNext() }
        #expect(bench.sent == ["before", "member 0", "member 1"] && held() == [10, 12, 20])
        #expect(!bench.gate.isClear && bench.gate.isBusy)
        bench.gate.post("meanwhile")
        bench.performNext()
        #expect(bench.sent.last == "member 2" && held() == [20])
        bench.run()
        #expect(bench.sent == ["before", "member 0", "member 1", "member 2", "other 0", "after", "meanwhile"])
        #expect(held() == [] && bench.gate.isClear && !bench.gate.isBusy)
    }

    @Test func `lets the members of two batches of one commit take their places one batch after the other`() {
        let bench = Bench()
        bench.add("A", steps: 3)
        bench.add("B", steps: 3)
        bench.run()
        let (a, b) = (Array(repeating: "a step of A", count: 3), Array(repeating: "a step of B", count: 3))
        #expect(bench.sent == a + b + ["A is added", "B is added"])
        #expect(!bench.gate.isBusy)
    }

    @Test func `lets the members of a batch take their places behind the long answer that was begun before`() throws {
        let bench = Bench()
        bench.add("A", steps: 3)
        var left = 3
        bench.gate.write(for: "caller") {
            left -= 1
            if left == 0 { bench.send("answer") }
            return left == 0
        }
        bench.run()
        #expect(bench.sent == ["answer"] + Array(repeating: "a step of A", count: 3) + ["A is added"])
        #expect(!bench.gate.isBusy)
    }

    @Test func `writes long answers in turns of their callers, and those of one caller in the order of its calls`() {
        let bench = Bench()
        func ask(_ answer: String, for caller: String) {
            var left = 2
            bench.gate.write(for: caller) {
                left -= 1
                if left == 0 { bench.send(answer) }
                return left == 0
            }
        }
        for answer in ["a1", "a2", "a3"] { ask(answer, for: "a") }
        for answer in ["b1", "b2"] { ask(answer, for: "b") }
        ask("c1", for: "c")
        // The first step of a1 is done.
        #expect(bench.gate.waitingAnswers == 5 && bench.gate.waitingAnswers(of: "a") == 2 && bench.gate.waitingAnswers(of: "d") == 0)
        bench.run()
        #expect(bench.sent == ["a1", "a2", "b1", "c1", "a3", "b2"])
        #expect(bench.gate.waitingAnswers == 0 && !bench.gate.isBusy && bench.gate.isClear)
    }

    @Test func `sends nothing of a change before its commit, and at once what follows no change`() {
        let bench = Bench()
        bench.gate.post("1")
        bench.gate.append(.set(Settings()))
        bench.gate.post("2")
        bench.gate.afterCommit { bench.send("3") }
        #expect(bench.sent == ["1"])
        bench.run()
        #expect(bench.sent == ["1", "2", "3"])
    }

    @Test func `answers a read behind the end that it contains, and sends all progress behind the answer`() {
        let bench = Bench()
        bench.gate.append(.set(Settings()))
        bench.gate.post("the end of 7", before: DownloadNumber(7))
        #expect(bench.gate.isWaiting(DownloadNumber(7)) && !bench.gate.isWaiting(DownloadNumber(8)))
        #expect(!bench.gate.holdsProgress(of: DownloadNumber(8)))
        bench.gate.postRead("what 7 is")
        #expect(bench.sent.isEmpty && bench.gate.holdsProgress(of: DownloadNumber(8)))
        bench.run()
        #expect(bench.sent == ["the end of 7", "what 7 is"])
        #expect(!bench.gate.isWaiting(DownloadNumber(7)) && !bench.gate.holdsProgress(of: DownloadNumber(8)) && !bench.gate.isBusy)
        bench.gate.postRead("what 8 is")
        #expect(bench.sent.last == "what 8 is")
    }

    @Test(arguments: [false, true]) func `answers a read at once when the commit fails or hangs`(hangs: Bool) {
        let bench = Bench()
        bench.gate.append(.set(Settings()))
        bench.gate.post("the end of 7", before: DownloadNumber(7))
        bench.gate.postRead("what 7 is")
        _ = bench.gate.beginCommit()
        if hangs { bench.gate.commitHangs(Refusal(.storage, "full")) } else { bench.gate.commitFailed(Refusal(.storage, "full")) }
        #expect(bench.sent == ["what 7 is"])
        #expect(!bench.gate.holdsProgress(of: DownloadNumber(8)) && bench.gate.holdsProgress(of: DownloadNumber(7)))
    }

    @Test func `answers calls with the error of a failed commit, and keeps messages and effects for the next one`() {
        let bench = Bench()
        bench.gate.append(.set(Settings()))
        bench.gate.post("1")
        bench.gate.post(success: { "2" }, failure: { $0.message })
        bench.gate.afterCommit { bench.send("3") }
        _ = bench.gate.beginCommit()
        bench.gate.commitFailed(Refusal(.storage, "full"))
        bench.gate.release()
        bench.works = []
        bench.gate.commitIsOver()
        #expect(bench.sent == ["full"] && bench.works == [.retriedCommit])
        bench.run()
        #expect(bench.sent == ["full", "1", "3"])
    }
}
