// SPDX-License-Identifier: Apache-2.0
import DownloadModel
import Scheduling

/// The host of the real executor and the real gate: the simulated engine, pool, clock, loop and bus.
extension World: TurnHost, CommitGateHost {
    typealias GateHost = World

    func makeExecutor(_ scheduler: Scheduler) -> TurnExecutor<World> {
        if plant?.isOfExecutor == true { FaultyExecutor(scheduler, gate, host: self) } else { TurnExecutor(scheduler, gate, host: self) }
    }

    // MARK: The clock and the loop

    /// Whether the journal refuses further changes. The service has the same rule, with larger numbers.
    var isJournalFull: Bool {
        guard isHanging || gate.failures > 0 && gate.waitingCount > 8 else { return false }
        owesRecovery = true
        return true
    }

    func gateIsBusy(_ isBusy: Bool) { isHeld = isBusy }

    func setAlarm(_ time: WallTime?) { if plant != .sleepless { alarm = time } }

    /// A step of a random length.
    func beginStep() -> RandomLimit { RandomLimit(looks: [1, 1, 2, 5, 1000][random.below(5)]) }

    func continueSlicesLater() { if plant != .sliceless { loop.append(.slices) } }

    func later(_ work: CommitGateWork) {
        switch work {
        case .commit, .retriedCommit: isCommitDue = true
        case .release, .crowdedRelease, .writing: if plant != .stuck { loop.append(.gate(work)) }
        }
    }

    // MARK: The engine

    func startTransfer(_ entry: ScheduledDownload) {
        delayed.remove(entry.number)
        if entry.work == .running {
            start(entry)
        } else {
            decide(.transferEnded(entry.number, .stopped(entry.record.resume)))
        }
    }

    func permit(_ id: RequestID, question: UInt64, tellsSent: Bool, mustShare: Bool) {
        let number = id.download
        if let place = transfers[number]?.further.firstIndex(where: { $0.id == id }) {
            transfers[number]?.further[place].mayGo = true
            return
        }
        guard transfers[number]?.id == id, transfers[number]?.isStopping == false, transfers[number]?.question == question else { return }
        if transfers[number]?.awaits != true { fail("\(number) may go on, and did not ask") }
        transfers[number]?.awaits = false
        if mustShare, transfers[number]?.isAlone == true { fail("\(number) must share a connection, and cannot") }
        transfers[number]?.mustShare = mustShare
        transfers[number]?.hasSent = false
    }

    func withdraw(_ id: RequestID) {
        guard let place = transfers[id.download]?.further.firstIndex(where: { $0.id == id }) else { return }
        transfers[id.download]?.further[place].isWithdrawn = true
    }

    func stopTransfer(_ entry: ScheduledDownload) { transfers[entry.number]?.isStopping = true }

    // MARK: The pool

    /// A caller's descriptor may be lost. The loss is reported at once, in the middle of a turn.
    func verify(_ entry: ScheduledDownload) {
        let isLost = entry.record.isToDescriptor && random.below(8) == 0
        if isLost { decide(.descriptorLost(entry)) } else { pool.append(.verify(entry.number)) }
    }

    func unpack(_ entry: ScheduledDownload) {
        stopping.remove(entry.number)
        pool.append(.unpack(entry.number))
    }

    /// An extraction that waits for its turn stops at once, in the middle of a turn.
    func stopUnpacking(_ entry: ScheduledDownload) {
        let index = pool.firstIndex { if case .unpack(entry.number) = $0 { true } else { false } }
        if let index, random.below(2) == 0 {
            pool.remove(at: index)
            decide(.unpackingStopped(entry))
        } else {
            stopping.insert(entry.number)
        }
    }

    func commit(_ entry: ScheduledDownload) {
        let number = entry.number
        if saved.records[number]?.state != .committing, scheduler[number]?.state == .committing {
            fail("\(number) is given its name before that is on disk")
        }
        pool.append(.commit(number))
    }

    func sweep(_ number: DownloadNumber, _ directory: String) {
        if let record = saved.records[number], !record.state.hasEnded, saved.sweeps[number] == nil {
            fail("the part file of \(number) is deleted, and on disk it is \(record.state.name)")
        }
        pool.append(.sweep(number, directory))
    }

    func emptyDescriptor(_ number: DownloadNumber) { pool.append(.sweep(number, "")) }

    // MARK: Observers of changes

    func changed(_ change: Scheduler.Change) { assets?.changed(change) }
    func tell(_ entry: ScheduledDownload) {}
    func tellWait(_ entry: ScheduledDownload) {}

    func announceEnd(_ entry: ScheduledDownload) -> () -> Void {
        endsUntold += 1
        checkTold(entry)
        let number = entry.number
        post(.end(number, entry.state.name, path: entry.record.path))
        return { [self] in
            if let toast = scheduler[number]?.owedToast { toasts.append(toast) }
            assets?.ended(entry)
        }
    }

    func announceEnd(_ batch: ScheduledBatch, _ outcomes: OutcomeCounts) -> (() -> Void)? {
        post(.batchEnd(batch, outcomes))
        return { [self] in if let toast = batch.owedToast { toasts.append(toast) } }
    }

    func allEnded(_ outcomes: OutcomeCounts) {
        endsUntold = 0
        if scheduler.counts.remaining != 0 { fail("AllEnded while \(scheduler.counts.remaining) remain") }
    }

    func showOwed(_ owed: [Scheduler.OwedToast]) { toasts = owed }

    func removed(_ entry: ScheduledDownload) {
        post(.removed(entry.number))
        assets?.removed(entry)
    }

    func removed(_ batch: ScheduledBatch) {
        if scheduler.entries.values.contains(where: { $0.batch === batch }) { fail("batch \(batch.number) goes before its members") }
        post(.batchRemoved(batch))
    }

    /// If few calls are in flight, the next call is made at once.
    func callOwner(_ entry: ScheduledDownload) {
        asked.append(entry)
        if random.below(2) == 0 { callOwner() }
    }

    /// The rules of the decision. Its action may follow only after a commit.
    func willPerform(_ action: Scheduler.Action) {
        switch action {
        case .startTransfer(let entry, let afterSave):
            requestedAt[entry.number] = now
            checkStart(entry)
            checkCancels(before: entry.number)
            if isEnteringBatch { fail("\(entry.number) starts before all members of a batch have their places") }
            if afterSave { delayed.insert(entry.number) }
        case .permit(let id, _, _, let afterSave) where transfers[id.download]?.further.contains { $0.id == id } == true:
            permitFurther(id, afterSave)
        case .permit(let id, _, _, let afterSave):
            requestedAt[id.download] = now
            if let entry = scheduler[id.download], let transfer = transfers[id.download] {
                checkRequest(entry, at: transfer.origin)
                checkTurn(entry, at: transfer.host)
            }
            transfers[id.download]?.isPaced = afterSave
        case .sweep(let number, let directory): sweeping[number, default: []].insert(directory)
        default: break
        }
    }

    func carriedOut() { assets?.decided() }

    func failed(_ fault: Scheduler.Fault) { fail("the scheduler asks for the impossible: \(fault)") }

    // MARK: The bus

    /// Some members of a batch have their places, and others do not yet.
    private var isEnteringBatch: Bool { entering.map { !$0.isEntered && !$0.isRemoved } ?? false }

    /// The bus gets a message. The changes that the message reports must be on disk.
    func send(_ message: Message) {
        // A refusal reports no change.
        if isAnswering, !message.isRefusal { fail("a message overtakes a long answer") }
        if isEnteringBatch, !message.isRefusal { fail("a message is sent before all members of a batch have their places") }
        switch message {
        case .added(let number): tell("told: \(number) is added")
        case .batchAdded(let batch): tell("told: batch \(batch.number) is added")
        case .batchEnd(let batch, let outcomes):
            tell("told: batch \(batch.number) \(outcomes)")
            batchEndsTold[batch.number, default: 0] += 1
            if batchEndsTold[batch.number]! > 1 + batchRevivals[batch.number, default: 0] {
                fail("the end of batch \(batch.number) is told twice")
            }
            if outcomes.finished + outcomes.failed + outcomes.cancelled != batch.record.count {
                fail("batch \(batch.number) of \(batch.record.count) is told to have ended as \(outcomes)")
            }
        case .batchRemoved(let batch): if saved.batches[batch.number] != nil { fail("batch \(batch.number) is gone, and is on disk") }
        case .end(let number, let outcome, let path):
            tell("told: \(number) \(outcome)")
            endsTold[number, default: 0] += 1
            if endsTold[number]! > 1 + revivals[number, default: 0] { fail("the end of \(number) is told twice") }
            // After a revival, the row may be a later one.
            if let record = saved.records[number], !record.state.hasEnded, revivals[number] == nil {
                fail("\(number) is told as \(outcome), and on disk it is \(record.state.name)")
            }
            if outcome == "finished", let path, !strangers.contains(path) {
                finishedPaths[number] = (path, disk.finals[path]?.content.version)
            }
        case .removed(let number):
            acknowledged.remove(number)
            if saved.records[number] != nil { fail("\(number) is told as removed, and is on disk") }
        case .manyDone(let call): checkDone(call)
        case .allPaused(let resumes): if resumes == self.resumes { isPausedForGood = true }
        case .taken(let number, let revival):
            tell("told: \(number) is acknowledged")
            taken[number] = revival
        case .asset(let call, let answer): assets?.answered(call, answer)
        }
    }
}

/// A step that ends after some checks of the clock.
final class RandomLimit: StepLimit {
    private var looks: Int
    init(looks: Int) { self.looks = looks }

    var isOver: Bool {
        looks -= 1
        return looks < 0
    }
}

/// An executor with a deliberate mistake.
final class FaultyExecutor: TurnExecutor<World> {
    override func enqueue(_ actions: [Scheduler.Action]) {
        switch host.plant {
        case .mute where !actions.contains(where: \.isEnd): super.enqueue(actions.filter { if case .allEnded = $0 { false } else { true } })
        case .backwards: super.enqueue(actions.reversed())
        case .nested where isPerforming: super.enqueue(actions.filter { if case .save = $0 { false } else { true } })
        default: super.enqueue(actions)
        }
    }

    override func answer(repeating addition: any Addition, success: @escaping () -> Message?, failure: @escaping (Refusal) -> Message?) {
        if host.plant == .hopeful {
            gate.post(success: success, failure: failure)
        } else {
            super.answer(repeating: addition, success: success, failure: failure)
        }
    }

    override func afterCommit(_ effect: @escaping () -> Void) {
        if host.plant == .early || host.plant == .eager { effect() } else { super.afterCommit(effect) }
    }
}

extension Scheduler.Action {
    fileprivate var isEnd: Bool { if case .announceEnd = self { true } else { false } }
}
