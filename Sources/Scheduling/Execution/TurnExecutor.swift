public import DownloadModel

/// Carries out the turns of a scheduler. It handles every action once, in the scheduler's order. Messages wait until the preceding changes
/// are on disk, and so do the actions that a crash must not leave without their rows (`afterCommit`).
///
/// The service and the simulation use the same executor. They differ in the host: engine, store, pool, clock, loop and bus. Use from one
/// thread only.
///
/// The class, `answer`, `enqueue` and `afterCommit` are open for the simulation only: it plants mistakes there, and must detect them.
open class TurnExecutor<Host: TurnHost> {
    public typealias Gate = CommitGate<Host.GateHost>
    public typealias Message = Host.GateHost.Message

    public let scheduler: Scheduler
    public let gate: Gate
    public unowned let host: Host
    /// The actions that are decided but not performed yet, by turn.
    private var todo: [[Scheduler.Action]] = []
    /// Whether the actions of a turn are being performed. A turn that begins meanwhile is nested: its actions follow those of the outer
    /// turn.
    public private(set) var isPerforming = false
    private var isContinuing = false
    /// The answers to the calls that change many downloads, and who called.
    private var answers: [Scheduler.CallNumber: (caller: String, send: () -> Void)] = [:]
    private var lastCall: Scheduler.CallNumber = 0

    public init(_ scheduler: Scheduler, _ gate: Gate, host: Host) { (self.scheduler, self.gate, self.host) = (scheduler, gate, host) }

    // MARK: Events

    /// Passes the events to the scheduler, and performs the actions that it decides.
    ///
    /// - Returns: the reason why a download's state does not allow the caller's request; nil if it does.
    @discardableResult public func decide(_ events: [Scheduler.Event]) -> IllegalTransition? {
        let turn = scheduler.turn([[.journalFull(host.isJournalFull)], events].flatMap { $0 }, at: host.now)
        for fault in turn.faults { host.failed(fault) }
        enqueue(turn.actions)
        carryOut()
        return turn.refusal
    }

    @discardableResult public func decide(_ events: Scheduler.Event...) -> IllegalTransition? { decide(events) }

    /// Lets the scheduler change many downloads in slices, for a call of `caller`. Calls `answer` after the last slice.
    public func decideOnMany(
        for caller: String, _ event: (Scheduler.CallNumber) -> Scheduler.Event, answer: @escaping () -> Void
    ) {
        lastCall += 1
        answers[lastCall] = (caller, answer)
        decide(event(lastCall))
    }

    /// The number of calls of `decideOnMany` that are not answered yet.
    public var bulkChanges: Int { answers.count }
    public func bulkChanges(of caller: String) -> Int { answers.values.count { $0.caller == caller } }

    /// Adds a download.
    ///
    /// - Parameters:
    ///   - saved: called when the row is on disk. The download has no place in the queue yet.
    ///   - entered: called when the download has its place in the queue.
    ///   - undone: called if the row could not be saved; returns the answer to the call. The download is still on the list.
    public func add(
        _ record: DownloadRecord, saved: @escaping (ScheduledDownload) -> Void, entered: @escaping (ScheduledDownload) -> Void = { _ in },
        undone: @escaping (ScheduledDownload, Refusal) -> Message?
    ) {
        decide(.add(record))
        guard let entry = scheduler[record.number] else { return }
        gate.append(.put(record))
        gate.addition(of: [record.number]) { [self] in
            saved(entry)
            guard !entry.isRemoved else { return }
            decide(.saved(entry))
            entered(entry)
        } undo: { [self] refusal in
            let answer = undone(entry, refusal)
            decide(.unsaved(entry))
            return answer
        }
    }

    /// The number of members of a new batch that take their places in the queue between two checks of the clock.
    public var enteredAtOnce = 100

    /// Adds a batch: all members, or none. After the commit, the members take their places in the queue in slices. Before the last member
    /// has its place, no message is sent and no download starts.
    ///
    /// - Parameters:
    ///   - members: made by `Scheduler.prepare`.
    ///   - saved: called when all rows are on disk.
    ///   - entering: called for each member before it takes its place.
    ///   - entered: called when all members have their places.
    ///   - undone: called if the rows could not be saved; returns the answer to the call. The batch is still on the list.
    public func add(
        _ record: BatchRecord, _ members: PreparedMembers, saved: @escaping (ScheduledBatch) -> Void,
        entering: @escaping (ScheduledDownload) -> Void = { _ in }, entered: @escaping () -> Void = {},
        undone: @escaping (ScheduledBatch, Refusal) -> Message?
    ) {
        let entries = members.entries
        decide(.addBatch(record, members))
        guard let batch = scheduler.batch(record.number) else { return }
        gate.append(.addBatch(record, members.records))
        var rest = entries[...]
        gate.addition(of: [record.number] + entries.map { $0.number }) {
            saved(batch)
        } enter: { [self] in
            let step = gate.host.beginStep()
            while !rest.isEmpty {
                if step.isOver { return false }
                let some = rest.prefix(enteredAtOnce)
                rest.removeFirst(some.count)
                for entry in some where !entry.isRemoved { entering(entry) }
                decide(.savedMembers(batch, Array(some)))
            }
            decide(.savedBatch(batch, entries))
            entered()
            return true
        } undo: { [self] refusal in
            let answer = undone(batch, refusal)
            decide(.unsavedBatch(batch, entries))
            return answer
        }
    }

    /// Answers a call that repeats the call which has added `addition`. The answer waits for all changes so far.
    ///
    /// The commit in flight may contain the row of `addition`, while the answer waits for the next commit. If the first commit fails, and
    /// the next one succeeds, the addition is undone. So `success` is called only if the addition still counts when the answer is due.
    ///
    /// - Parameters:
    ///   - success: returns the answer if the addition is on disk.
    ///   - failure: returns the answer if the addition, or a change so far, could not be saved.
    open func answer(repeating addition: any Addition, success: @escaping () -> Message?, failure: @escaping (Refusal) -> Message?) {
        let refusal = Refusal(.storage, "The earlier call with the same token could not be saved, so it has added nothing; call again.")
        gate.post(success: { addition.isUndone ? failure(refusal) : success() }, failure: failure)
    }

    /// Whether the owner of `entry` must be called now. If so, the scheduler records that the call is made.
    public func beginOwnerCall(_ entry: ScheduledDownload) -> Bool {
        let isDue = scheduler.owesCall(entry, now: host.now)
        decide(.ownerCalled(entry))
        return isDue
    }

    // MARK: Actions

    open func enqueue(_ actions: [Scheduler.Action]) { todo.append(actions) }

    /// Runs `effect` after all changes decided so far are on disk.
    open func afterCommit(_ effect: @escaping () -> Void) { gate.afterCommit(effect) }

    /// Performs the decided actions in order, then the actions of the turns that these have caused.
    private func carryOut() {
        guard !isPerforming else { return }
        isPerforming = true
        while !todo.isEmpty { for action in todo.removeFirst() { perform(action) } }
        isPerforming = false
        if needsSlices { continueSoon() }
        host.setAlarm(scheduler.nextWake)
        host.carriedOut()
    }

    private func perform(_ action: Scheduler.Action) {
        host.willPerform(action)
        switch action {
        case .save(let change): gate.append(change)
        case .startTransfer(let entry, false): host.startTransfer(entry)
        case .startTransfer(let entry, true): afterCommit { [self] in host.startTransfer(entry) }
        case .permit(let id, let question, let mustShare, false):
            host.permit(id, question: question, tellsSent: false, mustShare: mustShare)
        case .permit(let id, let question, let mustShare, true):
            afterCommit { [self] in host.permit(id, question: question, tellsSent: true, mustShare: mustShare) }
        case .withdraw(let id): host.withdraw(id)
        case .stopTransfer(let entry): host.stopTransfer(entry)
        case .verify(let entry): host.verify(entry)
        case .unpack(let entry): host.unpack(entry)
        case .stopUnpacking(let entry): host.stopUnpacking(entry)
        case .commit(let entry): afterCommit { [self] in host.commit(entry) }
        case .sweep(let number, ""): host.emptyDescriptor(number)
        case .sweep(let number, let directory): afterCommit { [self] in host.sweep(number, directory) }
        case .changed(let change): host.changed(change)
        case .tell(let entry): host.tell(entry)
        case .tellWait(let entry): host.tellWait(entry)
        case .announceEnd(let entry): afterCommit(host.announceEnd(entry))
        case .batchEnded(let batch, let outcomes): if let effect = host.announceEnd(batch, outcomes) { afterCommit(effect) }
        case .allEnded(let outcomes): host.allEnded(outcomes)
        case .showOwed(let toasts): host.showOwed(toasts)
        case .removed(let entry): host.removed(entry)
        case .batchRemoved(let batch): host.removed(batch)
        case .bulkChangeEnded(let call): answers.removeValue(forKey: call)?.send()
        case .callOwner(let entry):
            guard scheduler[entry.number] != nil else { return }
            afterCommit { [self] in host.callOwner(entry) }
        }
    }

    // MARK: Slices

    /// Requests the next slice in a later turn of the loop, so that other calls are answered before it.
    private func continueSoon() {
        guard !isContinuing else { return }
        isContinuing = true
        host.continueSlicesLater()
    }

    /// Performs slices until one step of the thread is over. Does nothing yet while the bus has not taken most of the sent signals, because
    /// the answers to other callers would queue behind them.
    public func continueSlices() {
        let step = gate.host.beginStep()
        while needsSlices, !gate.host.isBehind, !step.isOver { decide(.slice) }
        isContinuing = false
        if needsSlices { continueSoon() }
    }

    /// Whether to perform slices. While the service exits, only the calls on many downloads are completed, because they wait for answers.
    /// The next process does all other work anew.
    private var needsSlices: Bool { scheduler.conditions.isEnding ? scheduler.hasBulkChanges : scheduler.hasSlices }
}

/// The surroundings of a `TurnExecutor`: the engine, the pool, the clock, the loop and the observers of changes; or their simulation.
public protocol TurnHost: AnyObject {
    associatedtype GateHost: CommitGateHost

    // The clock and the loop
    var now: WallTime { get }
    /// Calls `decide(.time)` at this instant; nil: no alarm.
    func setAlarm(_ time: WallTime?)
    /// Calls `continueSlices` in a later turn of the loop, and not before the bus has taken most of the sent messages.
    func continueSlicesLater()
    /// Whether the journal refuses further changes, because too many wait for the disk.
    var isJournalFull: Bool { get }

    // The engine. It answers with events.
    func startTransfer(_ entry: ScheduledDownload)
    func permit(_ id: RequestID, question: UInt64, tellsSent: Bool, mustShare: Bool)
    func withdraw(_ id: RequestID)
    func stopTransfer(_ entry: ScheduledDownload)

    // The pool. It answers with events.
    func verify(_ entry: ScheduledDownload)
    func unpack(_ entry: ScheduledDownload)
    func stopUnpacking(_ entry: ScheduledDownload)
    func commit(_ entry: ScheduledDownload)
    func sweep(_ number: DownloadNumber, _ directory: String)
    /// Truncates the caller's file after an unfinished download.
    func emptyDescriptor(_ number: DownloadNumber)

    // The observers of changes. Messages go through the gate.
    func changed(_ change: Scheduler.Change)
    func tell(_ entry: ScheduledDownload)
    func tellWait(_ entry: ScheduledDownload)
    /// Posts the messages about the end.
    ///
    /// - Returns: the work that follows once the end is on disk and announced.
    func announceEnd(_ entry: ScheduledDownload) -> () -> Void
    func announceEnd(_ batch: ScheduledBatch, _ outcomes: OutcomeCounts) -> (() -> Void)?
    func allEnded(_ outcomes: OutcomeCounts)
    func showOwed(_ toasts: [Scheduler.OwedToast])
    func removed(_ entry: ScheduledDownload)
    func removed(_ batch: ScheduledBatch)
    /// Requests a call of the owner. Before the call is made, `beginOwnerCall` says whether it is still due.
    func callOwner(_ entry: ScheduledDownload)

    /// The scheduler has made a mistake.
    func failed(_ fault: Scheduler.Fault)
    /// Called before each action.
    func willPerform(_ action: Scheduler.Action)
    /// Called when all actions of a turn, and of the turns nested in it, have been performed.
    func carriedOut()
}

extension TurnHost {
    public func willPerform(_ action: Scheduler.Action) {}
}
