internal import Glibc
internal import TestSupport
internal import Testing

@testable internal import EventLoop

@Suite(.timeLimit(.minutes(5))) struct `A pool` {
    // Pools live as long as the program.
    private static let narrow = Pool(name: "test-narrow", width: 3)
    private static let brief = Pool(name: "test-brief", width: 2)
    private static let hanging = Pool(name: "test-hanging", width: 2)
    private static let full = Pool(name: "test-full", width: 1)

    /// Gives `pool` `count` pieces of work, numbered from 0. Each counts itself in `gauge` while it runs.
    @BusActor private func fill(_ pool: Pool, _ count: Int, _ gauge: Gauge, _ journal: Journal<Int>) {
        for number in 0..<count {
            pool.perform {
                gauge.enter()
                var value = 0
                for i in 0..<20_000 { value &+= i }
                gauge.leave()
                return number + value * 0
            } then: {
                journal.append($0)
            }
        }
    }

    @Test @BusActor func `works on at most as many threads as it is wide, and all of it`() async {
        let gauge = Gauge()
        let journal = Journal<Int>()
        fill(Self.narrow, 300, gauge, journal)
        #expect(await eventually { journal.entries.count == 300 })
        #expect(journal.entries.sorted() == Array(0..<300))
        #expect(gauge.most <= 3)
        #expect(threads(named: "test-narrow") <= 3)
    }

    @Test @BusActor func `gives results on the loop's thread, made on another`() async {
        let own = threadNumber()
        let (worked, told): (Int, Int) = await withCheckedContinuation { done in
            Self.narrow.perform({ threadNumber() }, then: { done.resume(returning: ($0, threadNumber())) })
        }
        #expect(worked != own && told == own)
    }

    @Test @BusActor func `waiting work does not delay other work while a thread is free`() async {
        let pipe = Pipe()
        let journal = Journal<String>()
        Self.narrow.perform({ pipe.take() }, then: { _ in journal.append("waited") })
        Self.narrow.perform({ pipe.take() }, then: { _ in journal.append("waited") })
        Self.narrow.perform({}, then: { journal.append("passed") })
        #expect(await eventually { journal.entries == ["passed"] })
        pipe.put([1, 1])
        #expect(await eventually { journal.entries.count == 3 })
    }

    @Test @BusActor func `its threads end when there is nothing to do, and come back`() async {
        let journal = Journal<Int>()
        for round in 0..<2 {
            for _ in 0..<10 { Self.brief.perform({}, then: { journal.append(round) }) }
            #expect(await eventually { journal.entries.count == 10 * (round + 1) })
            #expect(await eventually { threads(named: "test-brief") == 0 })
        }
    }

    @Test @BusActor func `replaces its threads whose work is given up, and has its width again once that work returns`() async throws {
        let pipe = Pipe()
        let (late, outcomes) = (Journal<Int>(), Journal<String>())
        for number in 0..<2 {
            BusActor.spawn {
                let outcome = await Self.hanging.outcome(
                    within: .seconds(40),  // it must have begun by then, however busy the machine is
                    late: { _ in late.append(number) }, { pipe.take() })
                outcomes.append("\(outcome)")
            }
        }
        #expect(await eventually(within: .seconds(120)) { outcomes.entries.count == 2 })
        try #require(outcomes.entries == ["hangs", "hangs"])
        let gauge = Gauge()
        let journal = Journal<Int>()
        fill(Self.hanging, 50, gauge, journal)
        #expect(await eventually { journal.entries.count == 50 })
        #expect(gauge.most <= 2)
        #expect(threads(named: "test-hanging") <= 4)
        pipe.put([1, 1])
        #expect(await eventually { late.entries.sorted() == [0, 1] })
        fill(Self.hanging, 50, gauge, journal)
        #expect(await eventually { journal.entries.count == 100 })
        #expect(gauge.most <= 2)
        #expect(await eventually { threads(named: "test-hanging") == 0 })
    }

    @Test @BusActor func `tells work that is dropped from work that hangs`() async {
        let pipe = Pipe()
        let journal = Journal<String>()
        Self.full.perform({ pipe.take() }, then: { _ in journal.append("waited") })
        let outcome = await Self.full.outcome(within: .milliseconds(50), late: { _ in journal.append("late") }, {})
        if case .dropped = outcome {} else { Issue.record("\(outcome)") }
        pipe.put([1])
        Self.full.perform({}, then: { journal.append("behind") })
        #expect(await eventually { journal.entries.count == 2 })
        #expect(journal.entries == ["waited", "behind"])
    }

    @Test func `begins no work whose caller has stopped waiting, whichever of the two threads is first`() async {
        for _ in 0..<2000 {
            let run = Run()
            async let begins = run.begin()
            let isLost = run.giveUp()
            #expect(await begins == isLost)
            #expect(run.end() == true)
        }
    }
}

private func threads(named name: String) -> Int {
    listFolder("/proc/self/task").count { readFile("/proc/self/task/\($0)/comm") == Array("\(name)\n".utf8) }
}

/// Counts the threads that are inside at the same time.
private final class Gauge: Sendable {
    // Between lock and unlock only.
    private nonisolated(unsafe) let mutex: UnsafeMutablePointer<pthread_mutex_t>
    private nonisolated(unsafe) var inside = 0
    private nonisolated(unsafe) var highest = 0

    init() {
        mutex = .allocate(capacity: 1)
        pthread_mutex_init(mutex, nil)
    }

    deinit {
        pthread_mutex_destroy(mutex)
        mutex.deallocate()
    }

    func enter() {
        pthread_mutex_lock(mutex)
        inside += 1
        highest = max(highest, inside)
        pthread_mutex_unlock(mutex)
    }

    func leave() {
        pthread_mutex_lock(mutex)
        inside -= 1
        pthread_mutex_unlock(mutex)
    }

    var most: Int {
        pthread_mutex_lock(mutex)
        defer { pthread_mutex_unlock(mutex) }
        return highest
    }
}
