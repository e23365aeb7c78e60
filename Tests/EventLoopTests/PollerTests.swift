internal import EventLoop
internal import Glibc
internal import TestSupport
internal import Testing

@Suite(.timeLimit(.minutes(5))) struct `The poller's descriptors` {
    @Test @BusActor func `a pipe is readable as long as something is in it`() async {
        let pipe = Pipe()
        let journal = Journal<[UInt8]>()
        await withCheckedContinuation { done in
            let token = Journal<Poller.Token>()
            token.append(
                Poller.shared.watch(pipe.readEnd, for: .readable) { events in
                    #expect(events == .readable)
                    journal.append(pipe.take())
                    if journal.entries.count == 3 {
                        Poller.shared.cancel(token.entries[0])
                        done.resume()
                    }
                })
            pipe.put([1, 2, 3, 4])
        }
        #expect(journal.entries == [[1], [2], [3]])
        await turns(3)
        #expect(journal.entries.count == 3, "it was cancelled in its handler")
    }

    @Test @BusActor func `a full pipe is writable once it was emptied`() async {
        let pipe = Pipe()
        _ = fcntl(pipe.writeEnd, F_SETFL, O_NONBLOCK)
        let block = [UInt8](repeating: 0, count: 4096)
        while write(pipe.writeEnd, block, block.count) > 0 {}
        let journal = Journal<Poller.Events>()
        let token = Poller.shared.watch(pipe.writeEnd, for: .writable) { journal.append($0) }
        await turns(3)
        #expect(journal.entries.isEmpty)
        _ = pipe.take(1 << 20)
        #expect(await eventually { !journal.entries.isEmpty })
        #expect(journal.entries.first == .writable)
        Poller.shared.cancel(token)
    }

    @Test @BusActor func `the end of the other side is reported without asking`() async {
        let (hangUps, errors) = (Journal<Poller.Events>(), Journal<Poller.Events>())
        var ends = ends()
        let reader = Poller.shared.watch(ends.0, for: .readable) { hangUps.append($0) }
        close(ends.1)
        #expect(await eventually { !hangUps.entries.isEmpty })
        #expect(hangUps.entries.first?.contains(.hangUp) == true)
        Poller.shared.cancel(reader)
        close(ends.0)
        ends = self.ends()
        let writer = Poller.shared.watch(ends.1, for: []) { errors.append($0) }
        close(ends.0)
        #expect(await eventually { !errors.entries.isEmpty })
        #expect(errors.entries.first?.contains(.error) == true)
        Poller.shared.cancel(writer)
        close(ends.1)
    }

    @Test @BusActor func `a handler may cancel another that is ready in the same turn`() async {
        let pipes = (0..<16).map { _ in Pipe() }
        let journal = Journal<Int>()
        let tokens = Journal<Poller.Token>()
        for (number, pipe) in pipes.enumerated() {
            tokens.append(
                Poller.shared.watch(pipe.readEnd, for: .readable) { _ in
                    journal.append(number)
                    for token in tokens.entries { Poller.shared.cancel(token) }
                })
        }
        for pipe in pipes { pipe.put() }
        #expect(await eventually { !journal.entries.isEmpty })
        await turns(3)
        #expect(journal.entries.count == 1)
    }

    @Test @BusActor func `a handler may watch more, even the same descriptor number again`() async {
        let first = Pipe()
        let journal = Journal<String>()
        nonisolated(unsafe) var tokens: [Poller.Token] = []  // on the bus loop only
        nonisolated(unsafe) var second: Pipe?
        await withCheckedContinuation { done in
            let descriptor = dup(first.readEnd)
            tokens.append(
                Poller.shared.watch(descriptor, for: .readable) { _ in
                    journal.append("first")
                    Poller.shared.cancel(tokens[0])
                    let pipe = Pipe()
                    second = pipe
                    let again = dup2(pipe.readEnd, descriptor)  // closes and reuses it in one step, so that no other thread gets it
                    tokens.append(
                        Poller.shared.watch(again, for: .readable) { _ in
                            journal.append("second")
                            Poller.shared.cancel(tokens[1])
                            close(again)
                            done.resume()
                        })
                    pipe.put()
                })
            first.put()
        }
        #expect(journal.entries == ["first", "second"])
        withExtendedLifetime(second) {}
    }

    @Test @BusActor func `many descriptors are served in one turn`() async {
        let pipes = (0..<200).map { _ in Pipe() }
        let journal = Journal<Int>()
        let tokens = pipes.enumerated().map { number, pipe in
            Poller.shared.watch(pipe.readEnd, for: .readable) { _ in
                pipe.take()
                journal.append(number)
            }
        }
        for pipe in pipes { pipe.put() }
        #expect(await eventually { journal.entries.count == 200 })
        #expect(journal.entries.sorted() == Array(0..<200))
        for token in tokens { Poller.shared.cancel(token) }
    }

    @Test @BusActor func `jobs that follow each other do not keep descriptors waiting`() async {
        let pipe = Pipe()
        let journal = Journal<Int>()
        let token = Poller.shared.watch(pipe.readEnd, for: .readable) { _ in
            pipe.take()
            journal.append(1)
        }
        pipe.put()
        var rounds = 0
        while journal.entries.isEmpty, rounds < 1_000_000 {
            rounds += 1
            await withCheckedContinuation { again in BusActor.spawn { again.resume() } }
        }
        #expect(rounds < 1_000)
        Poller.shared.cancel(token)
    }

    @Test @BusActor func `many long jobs of one turn do not keep descriptors waiting`() async {
        let pipe = Pipe()
        let journal = Journal<String>()
        let token = Poller.shared.watch(pipe.readEnd, for: .readable) { _ in
            pipe.take()
            journal.append("pipe")
        }
        await withCheckedContinuation { again in BusActor.spawn { again.resume() } }
        pipe.put()
        for _ in 0..<20 {
            BusActor.spawn {
                let step = StepTime()
                while !step.isOver {}
                journal.append("job")
            }
        }
        #expect(await eventually { journal.entries.count == 21 })
        // All 20 jobs were queued when the first began.
        #expect((journal.entries.firstIndex(of: "pipe") ?? 21) <= 2, "\(journal.entries)")
        Poller.shared.cancel(token)
    }

    @Test @BusActor func `signals come as events of the loop`() async {
        let journal = Journal<Int32>()
        var source: SignalSource? = SignalSource([SIGUSR1, SIGUSR2]) { journal.append($0) }
        // Send the signal to the loop's own thread, where all signals are blocked, so that it does not end this process.
        pthread_kill(pthread_self(), SIGUSR1)
        #expect(SignalSource.isPending(SIGUSR1) && !SignalSource.isPending(SIGUSR2))
        #expect(await eventually { journal.entries == [SIGUSR1] })
        #expect(!SignalSource.isPending(SIGUSR1))
        pthread_kill(pthread_self(), SIGUSR2)
        #expect(await eventually { journal.entries == [SIGUSR1, SIGUSR2] })
        withExtendedLifetime(source) {}
        source = nil
    }

    /// The ends of a pipe. A program that another test starts meanwhile must not inherit the ends, because it would keep them open.
    private nonisolated func ends() -> (Int32, Int32) {
        let pipe = Pipe()
        return (fcntl(pipe.readEnd, F_DUPFD_CLOEXEC, 0), fcntl(pipe.writeEnd, F_DUPFD_CLOEXEC, 0))
    }
}

/// Waits for `count` turns of the loop.
@BusActor func turns(_ count: Int) async {
    for _ in 0..<count { await withCheckedContinuation { later in Poller.shared.schedule(after: .milliseconds(2)) { later.resume() } } }
}
