import DownloadModel
import Testing

@testable internal import TransferEngine

/// A transfer whose servers and link are numbers.
private struct Line {
    var trial = ConnectionTrial()
    var connections = 1
    var rest: ByteCount = 1 << 30
    var speeds: [Int] = []
    /// Bytes a second with so many connections.
    let speed: (Int) -> Double

    init(_ speed: @escaping (Int) -> Double) { self.speed = speed }

    mutating func run(_ seconds: Int, mayTry: Bool = true, others: Double = 0, most: Int = .max) {
        for _ in 0..<seconds * 10 {
            let bytes = ByteCount(speed(connections) / 10)
            rest -|= bytes
            trial.look(
                seconds: 0.1, own: bytes, whole: bytes +| ByteCount(others / 10), receiving: connections, rest: rest, mayTry: mayTry)
            connections = min(trial.target, most)
            if speeds.last != connections { speeds.append(connections) }
        }
    }
}

@Suite struct `Automatic connections` {
    @Test func `are doubled while each doubling gains, up to eight`() {
        var line = Line { 100_000 * Double($0) }
        line.run(40)
        #expect(line.speeds == [1, 2, 4, 8])
    }

    @Test func `are one where the link is full, after one trial`() {
        var line = Line { _ in 1_000_000 }
        line.run(60)
        #expect(line.speeds == [1, 2, 1])
    }

    @Test func `are as many as gain`() {
        var line = Line { min(100_000 * Double($0), 260_000) }
        line.run(60)
        #expect(line.speeds == [1, 2, 4, 8, 4], "four bring 260 kB/s, as eight do")
    }

    @Test func `are found although a server sends in bursts`() {
        var trial = ConnectionTrial()
        for tick in 0..<400 {
            let bytes = ByteCount([60_000, 140_000][tick / 10 % 2]) * ByteCount(trial.target)
            trial.look(seconds: 0.1, own: bytes, whole: bytes, receiving: trial.target, rest: 1 << 40, mayTry: true)
        }
        #expect(trial.target > 1)
    }

    @Test func `are not tried while a connection still gets faster by itself`() {
        var speed = 10_000.0
        var trial = ConnectionTrial()
        for _ in 0..<80 {
            trial.look(
                seconds: 0.1, own: ByteCount(speed / 10), whole: ByteCount(speed / 10), receiving: 1, rest: 1 << 40, mayTry: true)
            speed *= 1.05
        }
        #expect(trial.target == 1)
    }

    @Test func `are one for a small or a short rest, under a limit, and where nothing comes`() {
        var small = Line { _ in 1000 }
        small.rest = 8 << 20 - 1
        small.run(20)
        var short = Line { _ in 10_000_000 }
        short.rest = 45_000_000
        short.run(5)
        var limited = Line { 1000 * Double($0) }
        limited.run(20, mayTry: false)
        var silent = Line { _ in 0 }
        silent.run(20)
        for line in [small, short, limited, silent] { #expect(line.speeds == [1]) }
    }

    @Test func `go back if the host gives no place`() {
        var line = Line { 100_000 * Double($0) }
        line.run(30, most: 1)
        #expect(line.trial.target == 1 && !line.trial.isTrying)
    }

    @Test func `do not count what other transfers lose`() {
        // The transfer doubles its speed at the cost of another one.
        var trial = ConnectionTrial()
        for _ in 0..<200 {
            let own: ByteCount = trial.target == 1 ? 100_000 : 150_000
            trial.look(seconds: 0.1, own: own, whole: 300_000, receiving: trial.target, rest: 1 << 40, mayTry: true)
        }
        #expect(trial.target == 1)
    }

    @Test(arguments: [(1, 1), (2, 2), (3, 3), (9, 4)]) func `begin with one to each source, at most four`(sources: Int, expected: Int) {
        var line = Line { 100_000 * Double($0) }
        line.trial.spread(over: sources, rest: 8 << 20)
        #expect(line.trial.target == expected)
        line.connections = expected
        line.run(40)
        #expect(line.trial.target == 8, "more are tried as ever")
        line.trial.spread(over: 3, rest: 1 << 30)
        #expect(line.trial.target == 8, "a transfer begins once")
    }

    @Test func `begin with one for a small file, and go back to one for each source where more gain nothing`() {
        var small = Line { _ in 1000 }
        small.trial.spread(over: 3, rest: 8 << 20 - 1)
        #expect(small.trial.target == 1)
        var full = Line { _ in 1_000_000 }
        full.trial.spread(over: 3, rest: 1 << 30)
        full.connections = 3
        full.run(60)
        #expect(full.speeds == [3, 6, 3])
    }

    @Test func `are measured anew when other transfers come`() {
        var line = Line { 100_000 * Double($0) }
        line.run(3)
        #expect(line.trial.isTrying)
        line.trial.reset()
        #expect(line.trial.target == 1 && !line.trial.isTrying)
    }
}

@Suite struct `Trials of several engines` {
    private final class Disk {}
    private let first = Disk()
    private let second = Disk()
    private var ids: (ObjectIdentifier, ObjectIdentifier) { (ObjectIdentifier(first), ObjectIdentifier(second)) }

    private func numbers(_ numbers: UInt64...) -> Set<DownloadNumber> { Set(numbers.map { DownloadNumber($0) }) }

    @Test func `count the bytes and transfers of all, and go on one at a time`() {
        let (trials, (one, two), now) = (SharedTrials(), ids, SuspendingClock.now)
        let alone = trials.begin(one, numbers(1), speed: 100, now: now)
        #expect(alone.numbers == numbers(1) && alone.others == 0 && alone.mayTry)
        // Until the end of a measurement, it may become a trial.
        let beside = trials.begin(two, numbers(2, 3), speed: 50, now: now)
        #expect(beside.numbers == numbers(1, 2, 3) && beside.others == 100 && !beside.mayTry)
        trials.end(two, isTrying: false)
        trials.end(one, isTrying: true)
        #expect(trials.begin(one, numbers(1), speed: 120, now: now) == (numbers(1, 2, 3), 50, true))
        trials.end(one, isTrying: true)
        #expect(!trials.begin(two, numbers(2, 3), speed: 50, now: now).mayTry)
        trials.end(one, isTrying: false)
        #expect(trials.begin(two, numbers(2, 3), speed: 50, now: now) == (numbers(1, 2, 3), 120, true))
    }

    @Test func `forget an engine that has ended, or whose disk hangs`() {
        let (trials, (one, two), now) = (SharedTrials(), ids, SuspendingClock.now)
        _ = trials.begin(one, numbers(1), speed: 100, now: now)
        trials.leave(one)
        #expect(trials.begin(two, numbers(2), speed: 50, now: now) == (numbers(2), 0, true))
        #expect(!trials.begin(one, numbers(1), speed: 100, now: now + .seconds(9)).mayTry)
        #expect(trials.begin(one, numbers(1), speed: 100, now: now + .seconds(10)) == (numbers(1), 0, true))
    }
}
