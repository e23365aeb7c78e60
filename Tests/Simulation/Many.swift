// SPDX-License-Identifier: Apache-2.0
import DownloadModel
import Scheduling

/// A call that changes many downloads in slices, with other events in between.
struct DoneToMany {
    enum Deed { case cancels, cancelsAll, clears }

    let deed: Deed
    /// The downloads of the call, and how often each had been revived by then.
    var members: [DownloadNumber: Int]
    /// The call was partly on disk when its process ended: the next process must finish it.
    var mustEnd = false
}

extension World {
    /// Cuts the slices differently in each step.
    func cutSlices(_ step: Step) {
        var random = Random(UInt64(step.b) << 32 | UInt64(step.a))
        sliceSize.portion = [1, 1, 2, 3, 40][random.below(5)]
        sliceSize.cost = [1, 1, 3, 101, 250, 10_000][random.below(6)]
        sliceSize.hosts = [1, 1, 2, 400][random.below(4)]
        sliceSize.starts = [1, 1, 2, 50][random.below(4)]
        scheduler.sliceSize = sliceSize
        executor.enteredAtOnce = sliceSize.portion
        isBehind = random.below(6) == 0
    }

    /// One turn of the loop.
    func slice() {
        guard !loop.isEmpty else { return }
        switch loop.removeFirst() {
        case .slices:
            tell("a slice")
            executor.continueSlices()
        case .gate(let work):
            tell("the loop: \(work)")
            gate.perform(work)
        }
    }

    /// A call whose long answer is written in steps. The answer must not contain anything newer than the messages that follow it.
    func describe(_ steps: Int) {
        tell("a long answer")
        var left = steps
        gate.write(for: "caller \(steps % 2)") { [self] in
            isAnswering = left > 0
            left -= 1
            return !isAnswering
        }
    }

    /// A call that changes many downloads.
    func call(_ deed: DoneToMany.Deed, _ numbers: [DownloadNumber], _ event: (Scheduler.CallNumber) -> Scheduler.Event) {
        lastCall += 1
        let (call, pairs) = (lastCall, numbers.map { ($0, revivals[$0, default: 0]) })
        many[call] = DoneToMany(deed: deed, members: Dictionary(uniqueKeysWithValues: pairs))
        executor.decideOnMany(for: "a caller", event) { [unowned self] in post(.manyDone(call)) }
    }

    /// No download starts that a call is about to cancel.
    func checkCancels(before start: DownloadNumber) {
        for (call, done) in many where done.deed != .clears {
            guard let revival = done.members[start], revival == revivals[start, default: 0] else { continue }
            fail("\(start) starts, and the call \(call) cancels it")
        }
    }

    /// Drops the downloads that the call must leave alone: those being committed, and those revived since.
    func spareSome() {
        for (call, done) in many {
            for (number, revival) in done.members where revivals[number, default: 0] != revival || scheduler[number]?.state == .committing {
                many[call]?.members[number] = nil
            }
        }
    }

    /// The call is answered: its changes must be on disk.
    func checkDone(_ call: Scheduler.CallNumber) {
        spareSome()
        guard let done = many.removeValue(forKey: call) else { return }
        for number in done.members.keys {
            guard let record = saved.records[number] else { continue }
            switch done.deed {
            case .clears: fail("\(number) is cleared, and still on disk")
            case .cancels, .cancelsAll:
                if !record.state.hasEnded, record.state != .committing {
                    fail("all are told to be cancelled, and \(number) is \(record.state.name) on disk")
                }
            }
        }
    }

    /// The service is told to end. It completes and answers the calls that change many downloads, then its process ends.
    func leave() {
        tell("the service is told to end")
        isBehind = false
        decide(.ends)
        for _ in 0..<3000 where many.values.contains(where: { !$0.mustEnd }) {
            slice()
            if inFlight != nil || isCommitDue { commit(3) }
        }
        for (call, done) in many where !done.mustEnd { fail("the service ends, and has not answered the call \(call) on many downloads") }
        restart(power: false)
    }

    /// The process ends. Of the unanswered calls, only a CancelAll that is partly on disk must continue.
    func forgetUnsaved() {
        spareSome()
        for (call, done) in many {
            let isBegun = done.members.keys.contains { cancelledByAll.contains($0) && saved.records[$0]?.state == .cancelled }
            if done.deed == .cancelsAll, isBegun || done.mustEnd { many[call]?.mustEnd = true } else { many[call] = nil }
        }
    }

    /// Once no slices are left, no CancelAll of an earlier process may have stopped halfway.
    func checkMany() {
        spareSome()
        for done in many.values where done.deed == .cancelsAll {
            // A row that was cancelled before the call and revived since does not say that the call has begun.
            for number in done.members.keys where scheduler[number]?.state == .cancelled && saved.records[number]?.state != .cancelled {
                if !cancelledTwice.contains(number) { cancelledByAll.insert(number) }
            }
        }
        if scheduler.settings.paused {
            for entry in scheduler.entries.values where entry.isEntered {
                switch scheduler.upcoming(entry, now: now) ?? entry.state {
                case .queued, .active, .extracting: fail("\(entry.number) is \(entry.state.name) while all is paused")
                case .waiting(let reason, _) where reason != .pausedAll: fail("\(entry.number) waits for \(reason) while all is paused")
                default: break
                }
            }
        }
        guard !scheduler.hasSlices else { return }
        for (call, done) in many where done.mustEnd {
            for number in done.members.keys {
                if let entry = scheduler[number], !entry.state.hasEnded, entry.state != .committing {
                    fail("CancelAll was done to some, and \(number) is \(entry.state.name)")
                }
            }
            many[call] = nil
        }
    }
}
