internal import TestSupport
internal import Testing

@testable internal import EventLoop

@Suite(.timeLimit(.minutes(5))) struct `Deadlines` {
    @Test @BusActor func `come in their order, none early`() async {
        let journal = Journal<(Int, Duration)>()
        let start = ContinuousClock.now
        for number in [5, 1, 4, 2, 3] {
            Poller.shared.schedule(at: start + .milliseconds(number * 8)) { journal.append((number, ContinuousClock.now - start)) }
        }
        #expect(await eventually { journal.entries.count == 5 })
        #expect(journal.entries.map(\.0) == [1, 2, 3, 4, 5])
        for (number, after) in journal.entries { #expect(after >= .milliseconds(number * 8)) }
    }

    /// The test stands in for the clock that stops while the machine sleeps.
    @Test @BusActor func `of awake time do not come while the machine sleeps`() async {
        let (journal, clock) = (Journal<Int>(), SleepingClock())
        let start = clock.now
        Poller.shared.scheduleAwake(after: .milliseconds(20), now: { clock.read() }) { journal.append(1) }
        let cancelled = Poller.shared.scheduleAwake(after: .milliseconds(20), now: { clock.read() }) { journal.append(2) }
        // Both are set for the rest of their time again and again.
        #expect(await eventually { clock.readings >= 20 })
        #expect(journal.entries.isEmpty)
        Poller.shared.cancel(cancelled)
        clock.now = start + .milliseconds(20)
        #expect(await eventually { journal.entries == [1] })
    }

    @Test @BusActor func `equal ones come first in, first out`() async {
        let journal = Journal<Int>()
        let deadline = ContinuousClock.now + .milliseconds(20)
        for number in 0..<500 { Poller.shared.schedule(at: deadline) { journal.append(number) } }
        #expect(await eventually { journal.entries.count == 500 })
        #expect(journal.entries == Array(0..<500))
    }

    @Test @BusActor func `one that was cancelled does not come, not even when an action just before cancels it`() async {
        let journal = Journal<String>()
        let deadline = ContinuousClock.now + .milliseconds(10)
        let early = Poller.shared.schedule(at: deadline) { journal.append("early") }
        let victim = Journal<Poller.Token>()
        Poller.shared.schedule(at: deadline) { for token in victim.entries { Poller.shared.cancel(token) } }
        victim.append(Poller.shared.schedule(at: deadline) { journal.append("victim") })
        Poller.shared.schedule(at: deadline) { journal.append("last") }
        Poller.shared.cancel(early)
        #expect(await eventually { journal.entries.contains("last") })
        #expect(journal.entries == ["last"])
        Poller.shared.cancel(early)  // already removed: ignored
    }

    @Test(.timeLimit(.minutes(5))) @BusActor func `a deadline that has passed comes at once, not in an hour`() async {
        let start = ContinuousClock.now
        await withCheckedContinuation { done in Poller.shared.schedule(at: start - .seconds(3600)) { done.resume() } }
        await withCheckedContinuation { done in Poller.shared.schedule(after: .zero) { done.resume() } }
        #expect(ContinuousClock.now - start < .seconds(3600))
    }

    @Test @BusActor func `one set earlier than the one waited for is not held up by it`() async {
        let far = Poller.shared.schedule(after: .seconds(3600)) {}
        await turns(1)
        await withCheckedContinuation { done in Poller.shared.schedule(after: .milliseconds(1)) { done.resume() } }
        Poller.shared.cancel(far)
    }

    @Test @BusActor func `one as far away as can be written is no error`() async {
        let token = Poller.shared.schedule(after: .seconds(Int64.max / 4)) {}
        await turns(2)
        Poller.shared.cancel(token)
    }

    @Test @BusActor func `thousands in any order come in theirs`() async {
        var random = SeededRandom(7)
        let journal = Journal<Int>()
        let start = ContinuousClock.now
        let delays = (0..<5_000).map { _ in Int.random(in: 0...40_000, using: &random) }
        for (number, delay) in delays.enumerated() {
            Poller.shared.schedule(at: start + .microseconds(delay)) { journal.append(number) }
        }
        #expect(await eventually { journal.entries.count == 5_000 })
        let expected = delays.indices.sorted { (delays[$0], $0) < (delays[$1], $1) }
        #expect(journal.entries == expected)
    }

    @Test @BusActor func `an action that sets itself a deadline in the past does not stop the loop`() async {
        let past = ContinuousClock.now - .seconds(1)
        let journal = Journal<Int>()
        // The pipe stays readable, so its handler counts the turns: a job may wait for several while other tests use the loop.
        let (pipe, turns) = (Pipe(), Journal<Int>())
        pipe.put()
        let token = Poller.shared.watch(pipe.readEnd, for: .readable) { _ in turns.append(1) }
        @BusActor func again() {
            journal.append(1)
            if journal.entries.count < 100_000 { Poller.shared.schedule(at: past) { again() } }
        }
        again()
        let count = await withCheckedContinuation { seen in BusActor.spawn { seen.resume(returning: journal.entries.count) } }
        #expect(count < 100_000 && count <= turns.entries.count + 1, "\(count) actions before a job that came after the first")
        Poller.shared.cancel(token)
        withExtendedLifetime(pipe) {}
        while journal.entries.count < 100_000 { journal.append(0) }  // stops `again`
    }

    @Test @BusActor func `cancelled ones do not pile up`() async {
        let held = Poller.shared.heldDeadlines  // other tests may hold thousands
        for _ in 0..<20_000 { Poller.shared.cancel(Poller.shared.schedule(after: .seconds(86_400)) {}) }
        #expect(Poller.shared.heldDeadlines < held + 10_000)
        let journal = Journal<Int>()
        let start = ContinuousClock.now
        for number in 0..<100 {
            let delay = 30 - number % 30
            Poller.shared.schedule(at: start + .milliseconds(delay)) { journal.append(delay) }
        }
        for _ in 0..<10_000 { Poller.shared.cancel(Poller.shared.schedule(after: .seconds(86_400)) {}) }
        #expect(await eventually { journal.entries.count == 100 })
        #expect(journal.entries == journal.entries.sorted())
    }
}

@Suite struct `The heap of deadlines` {
    @Test(arguments: 1...20) func `gives back what was put in, sorted, whatever the order of putting and taking`(seed: UInt64) {
        var random = SeededRandom(seed)
        var heap = DeadlineHeap()
        var model: [(ContinuousClock.Instant, UInt64)] = []
        let start = ContinuousClock.now
        for number in 0..<2_000 as Range<UInt64> {
            if Int.random(in: 0..<5, using: &random) < 3 || model.isEmpty {
                let deadline = start + .milliseconds(Int.random(in: -20...20, using: &random))
                heap.insert(deadline, number)
                model.append((deadline, number))
                model.sort { $0 < $1 }
            } else if number % 100 == 0 {
                heap.keep { $0 % 3 != 0 }
                model.removeAll { $0.1 % 3 == 0 }
            } else {
                #expect(heap.first?.number == model.first?.1)
                heap.removeFirst()
                model.removeFirst()
            }
        }
        while let first = heap.first {
            #expect(first.number == model.first?.1)
            heap.removeFirst()
            model.removeFirst()
        }
        #expect(model.isEmpty)
    }
}

/// A clock that stands still until a test moves it.
@BusActor private final class SleepingClock {
    var now = SuspendingClock.now
    private(set) var readings = 0

    func read() -> SuspendingClock.Instant {
        readings += 1
        return now
    }
}
