internal import Glibc
internal import Synchronization
internal import TestSupport
internal import Testing

@testable internal import EventLoop

@Suite(.timeLimit(.minutes(5))) struct `The bus loop` {
    @Test func `starts bodies in the order of the calls`() async {
        let journal = Journal<Int>()
        for number in 0..<10_000 { BusActor.spawn { journal.append(number) } }
        await withCheckedContinuation { done in BusActor.spawn { done.resume() } }
        #expect(await journal.entries == Array(0..<10_000))
    }

    @Test func `takes bodies from many threads and loses none`() async {
        let journal = Journal<Int>()
        for thread in 0..<4 {
            startThread("test-\(thread)") { for number in 0..<5_000 { BusActor.spawn { journal.append(thread * 5_000 + number) } } }
        }
        #expect(await eventually { await journal.entries.count == 20_000 })
        let entries = await journal.entries
        for thread in 0..<4 {
            let own = entries.filter { $0 / 5_000 == thread }
            #expect(own == own.sorted() && own.count == 5_000)
        }
    }

    @Test func `wakes for a foreign thread each time, also just when it falls asleep`() async {
        let most = 20_000
        let (rounds, count): (Int, Int) = await withCheckedContinuation { done in
            startThread("test-pinger") {
                let pipe = Pipe()
                var (rounds, count) = (0, 0)
                // On a busy machine a round may wait for many turns of other tests, so the rounds end before the time limit.
                let end = ContinuousClock.now + .seconds(60)
                while rounds < most, ContinuousClock.now < end {
                    BusActor.spawn { pipe.put() }
                    count += pipe.take().count  // after a lost wake-up, this waits until the time limit
                    rounds += 1
                }
                done.resume(returning: (rounds, count))
            }
        }
        #expect(count == rounds && rounds > 0)
    }

    /// Uses a loop of its own, because on the bus loop all other tests would wait for the input, too.
    @Test func `input that takes long in every turn does not keep jobs waiting for ever`() async {
        let loop = LoopExecutor(wake: {}) { loop in
            startThread("test-input") {
                loop.run { _ in
                    let begun = ContinuousClock.now
                    let step = StepTime()
                    while !step.isOver {}
                    return begun
                }
            }
        }
        var names: Set<String> = []
        for _ in 0..<5 { names.insert(await Task(executorPreference: loop) { ownName() }.value) }  // else until the time limit
        #expect(names == ["test-input"])
        loop.stop()
    }

    @Test func `every continuation comes back to the loop's thread`() async {
        let other = Other()
        let threads: [Int] = await withCheckedContinuation { done in
            BusActor.spawn {
                var threads = [threadNumber()]
                _ = await withCheckedContinuation { continuation in
                    Pool.programs.perform({ threadNumber() }, then: { continuation.resume(returning: $0) })
                }
                threads.append(threadNumber())
                let foreign = await resumeElsewhere()
                threads.append(threadNumber())
                let others = await other.thread()
                threads.append(threadNumber())
                await nothing()
                threads.append(threadNumber())
                #expect(foreign != threads[0] && others != threads[0])
                done.resume(returning: threads)
            }
        }
        #expect(threads.count == 5 && Set(threads).count == 1)
        other.loop.stop()
    }

    @Test func `its thread has a name, and all signals but those of its own defects are blocked on it`() async {
        let (name, blocked): (String, String) = await withCheckedContinuation { done in
            startThread("sixteen-bytes--") { done.resume(returning: (ownName(), ownBlockedSignals())) }
        }
        #expect(name == "sixteen-bytes--")
        // Not blocked are SIGKILL and SIGSTOP, which cannot be blocked, and two signals that glibc reserves. Nor are SIGILL, SIGTRAP,
        // SIGABRT, SIGBUS, SIGFPE and SIGSEGV, whose handler records the download at which the process crashed.
        #expect(blocked == "fffffffe7ffbfa07" || blocked == "fffffffc7ffbfa07" || blocked == "fffffffe3ffbfa07")
        #expect(await { @BusActor in ownName() }() == "todoku-bus")
        #expect(await { @BusActor in ownBlockedSignals() }() == blocked)
    }

    @Test func `a thread that starts another keeps its own signals`() async {
        let unchanged: Bool = await withCheckedContinuation { done in
            startThread("test-outer") {
                var none = sigset_t()
                sigemptyset(&none)
                pthread_sigmask(SIG_SETMASK, &none, nil)
                startThread("test-inner") {}
                done.resume(returning: ownBlockedSignals() == "0000000000000000")
            }
        }
        #expect(unchanged)
    }

    @Test func `knows its own thread`() async {
        #expect(await { @BusActor in BusActor.shared.loop.isIsolatingCurrentContext() }() == true)
        #expect(BusActor.shared.loop.isIsolatingCurrentContext() == false)
        #expect(await { @BusActor in BusActor.assumeIsolated { Poller.shared === Poller.shared } }())
    }

    @Test func `cannot be claimed once it runs`() async {
        await { @BusActor in }()
        #expect(!BusActor.shared.loop.claim())
    }

    @Test func `runMain makes the calling thread the loop until stop`() async {
        await #expect(processExitsWith: .success) {
            let same: Bool = await withCheckedContinuation { done in
                startThread("main-to-be") {
                    let thread = threadNumber()
                    nonisolated(unsafe) var seen: [Int] = []  // touched on this thread only, which this test proves
                    BusActor.runMain {
                        seen.append(threadNumber())
                        _ = await resumeElsewhere()
                        seen.append(threadNumber())
                        await withCheckedContinuation { later in Poller.shared.schedule(after: .milliseconds(5)) { later.resume() } }
                        seen.append(threadNumber())
                        BusActor.stop()
                    }
                    done.resume(returning: seen == [thread, thread, thread])
                }
            }
            precondition(same)
        }
    }

    @Test func `nothing wakes it at idle`() async {
        // Runs in a process of its own, where no other test uses the loop.
        await #expect(processExitsWith: .success) {
            // Wait until work of every kind has ended: jobs, a past deadline, a cancelled one, a distant one, a descriptor without input.
            let pipe = Pipe()
            _ = Unmanaged.passRetained(pipe)  // never closed, because closing would be input
            let thread: Int = await withCheckedContinuation { done in
                BusActor.spawn {
                    _ = Poller.shared.watch(pipe.readEnd, for: .readable) { _ in preconditionFailure("nothing was written") }
                    Poller.shared.schedule(after: .seconds(3600)) {}
                    Poller.shared.cancel(Poller.shared.schedule(after: .milliseconds(50)) {})
                    await withCheckedContinuation { later in Poller.shared.schedule(after: .milliseconds(5)) { later.resume() } }
                    done.resume(returning: threadNumber())
                }
            }
            // On a busy machine, the loop may not have waited yet. A loop that never waits would show no wake-up.
            for _ in 0..<100 where contextSwitches(of: thread) == 0 { await pass(milliseconds: 200) }
            precondition(contextSwitches(of: thread) > 0, "the thread has never waited, or has ended")
            // A repeated wake-up would show in each measurement, a busy machine only in the first.
            var wakeUps: [Int] = []
            while wakeUps.last != 0, wakeUps.count < 5 {
                await pass(milliseconds: 200)
                let before = contextSwitches(of: thread)
                precondition(before > 0, "the thread has ended")
                await pass(milliseconds: 1500)
                wakeUps.append(contextSwitches(of: thread) - before)
            }
            precondition(wakeUps.last == 0, "wake-ups: \(wakeUps)")
        }
    }
}

@Suite(.timeLimit(.minutes(5))) struct `A thread` {
    private final class Tries: Sendable {
        let count = Atomic(0)
    }

    @Test func `starts later if the system has no room for it`() async {
        let tries = Tries()
        await withCheckedContinuation { started in
            startThread(
                "test-late",
                by: { name, body in tries.count.add(1, ordering: .relaxed).newValue < 3 ? EAGAIN : makeThread(name, body) },
                { started.resume() })
        }
        #expect(tries.count.load(ordering: .relaxed) == 3)
    }
}

@Suite(.timeLimit(.minutes(5))) struct `A loop on a thread of its own` {
    @Test func `runs its actor there, in order, and ends with stop`() async {
        let other = Other()
        let thread = await other.thread()
        for number in 0..<1000 { await other.append(number) }
        #expect(await other.numbers == Array(0..<1000))
        #expect(await other.name() == "test-other")
        #expect(await other.thread() == thread)
        #expect(fileExists("/proc/self/task/\(thread)"))
        other.loop.stop()
        #expect(await eventually { !fileExists("/proc/self/task/\(thread)") })
    }

    @Test func `two threads make one wait for the other without a lost wake-up`() async {
        let one = Other()
        let two = Other()
        await one.alternate(with: two, 5_000)
        #expect(await one.numbers.count == 5_000)
        #expect(await two.numbers.count == 5_000)
        one.loop.stop()
        two.loop.stop()
    }
}

actor Other {
    nonisolated let loop = LoopExecutor.onThread("test-other")
    nonisolated var unownedExecutor: UnownedSerialExecutor { loop.asUnownedSerialExecutor() }
    private(set) var numbers: [Int] = []

    func append(_ number: Int) { numbers.append(number) }
    /// Each number goes to this actor, then to the other, without a thread between them that other tests may keep busy.
    func alternate(with other: Other, _ count: Int) async {
        for number in 0..<count {
            append(number)
            await other.append(number)
        }
    }
    func thread() -> Int { threadNumber() }
    func name() -> String { ownName() }
}

private func nothing() async {}

private func ownName() -> String {
    String(decoding: (readFile("/proc/thread-self/comm") ?? []).filter { $0 != 10 }, as: UTF8.self)
}

private func ownBlockedSignals() -> String { statusField("SigBlk", of: "/proc/thread-self/status") }

/// The number of times the thread has waited; negative if the thread has ended.
private func contextSwitches(of thread: Int) -> Int {
    Int(statusField("voluntary_ctxt_switches", of: "/proc/self/task/\(thread)/status")) ?? -1
}

private func statusField(_ name: String, of path: String) -> String {
    let lines = String(decoding: readFile(path) ?? [], as: UTF8.self).split(separator: "\n")
    return lines.first { $0.hasPrefix("\(name):") }.map { String($0.dropFirst(name.count + 1).drop { $0 == "\t" || $0 == " " }) } ?? ""
}
