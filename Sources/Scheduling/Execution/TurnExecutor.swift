public import DownloadModel

/// Carries out the turns of a scheduler: every action once, in the scheduler's order, and none before what it follows is on disk.
///
/// The service and the simulation use the same executor. They differ in the host: engine, store, pool, clock, loop and bus. Use from one
/// thread only.
///
/// The class is open, and `enqueue` and `afterCommit` are, only so that the simulation can plant mistakes and see that it finds them.
open class TurnExecutor<Host: TurnHost> {
    public typealias Gate = CommitGate<Host.GateHost>
    public typealias Message = Host.GateHost.Message

    public let scheduler: Scheduler
    public let gate: Gate
    public unowned let host: Host
    /// The actions that the scheduler has decided and that are still to be performed, by turn.
    private var todo: [[Scheduler.Action]] = []
    /// Whether the actions of a turn are being performed: another turn is nested in this one, and its actions come after.
    public private(set) var isPerforming = false
    private var isContinuing = false
    /// The answers to the calls that change many downloads.
    private var answers: [Scheduler.CallNumber: () -> Void] = [:]
    private var lastCall: Scheduler.CallNumber = 0

    public init(_ scheduler: Scheduler, _ gate: Gate, host: Host) { (self.scheduler, self.gate, self.host) = (scheduler, gate, host) }

    // MARK: Events

    /// Lets the scheduler decide by what happened, and performs the actions.
    ///
    /// - Returns: the reason why the state of a download does not allow what a caller asks for.
    @discardableResult public func decide(_ events: [Scheduler.Event]) -> IllegalTransition? {
        let turn = scheduler.turn([[.journalFull(host.isJournalFull)], events].flatMap { $0 }, at: host.now)
        for fault in turn.faults { host.failed(fault) }
        enqueue(turn.actions)
        carryOut()
        return turn.refusal
    }

    @discardableResult public func decide(_ events: Scheduler.Event...) -> IllegalTransition? { decide(events) }

    /// Lets the scheduler change many downloads in slices. Calls `answer` after the last slice.
    public func decideOnMany(_ event: (Scheduler.CallNumber) -> Scheduler.Event, answer: @escaping () -> Void) {
        lastCall += 1
        answers[lastCall] = answer
        decide(event(lastCall))
    }

    /// Adds a download.
    ///
    /// - Parameters:
    ///   - saved: called when the row is on disk. The download has not its place in the queue yet.
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

    /// Members of a new batch that take their places in the queue between two looks at the time.
    public var enteredAtOnce = 100

    /// Adds a batch, all of it or nothing. After the commit, its members take their places in the queue in slices; no message is sent and
    /// nothing starts before the last one has its place.
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

    /// Whether the owner of `entry` is to be called now. If so, the scheduler takes it that the call is made.
    public func beginOwnerCall(_ entry: ScheduledDownload) -> Bool {
        let isDue = scheduler.owesCall(entry, now: host.now)
        decide(.ownerCalled(entry))
        return isDue
    }

    // MARK: Actions

    open func enqueue(_ actions: [Scheduler.Action]) { todo.append(actions) }

    /// Runs `effect` after all changes decided so far are on disk.
    open func afterCommit(_ effect: @escaping () -> Void) { gate.afterCommit(effect) }

    /// Performs the actions that the scheduler has decided, in order, and then those that these have caused.
    private func carryOut() {
        guard !isPerforming else { return }
        isPerforming = true
        while !todo.isEmpty { for action in todo.removeFirst() { perform(action) } }
        isPerforming = false
        if scheduler.hasSlices { continueSoon() }
        host.setAlarm(scheduler.nextWake)
        host.carriedOut()
    }

    private func perform(_ action: Scheduler.Action) {
        host.willPerform(action)
        switch action {
        case .save(let change): gate.append(change)
        case .startTransfer(let entry, false): host.startTransfer(entry)
        case .startTransfer(let entry, true): afterCommit { [self] in host.startTransfer(entry) }
        case .permit(let id, false): host.permit(id, tellsSent: false)
        case .permit(let id, true): afterCommit { [self] in host.permit(id, tellsSent: true) }
        case .stopTransfer(let entry): host.stopTransfer(entry)
        case .verify(let entry): host.verify(entry)
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
        case .bulkChangeEnded(let call): answers.removeValue(forKey: call)?()
        case .callOwner(let entry):
            guard scheduler[entry.number] != nil else { return }
            afterCommit { [self] in host.callOwner(entry) }
        }
    }

    // MARK: Slices

    /// Asks for the next slice of work on many downloads in a turn of the loop of its own, so that other calls are answered in between.
    private func continueSoon() {
        guard !isContinuing else { return }
        isContinuing = true
        host.continueSlicesLater()
    }

    /// Does slices for one step. It also waits while the bus has not taken the signals sent so far: the answers to other callers would
    /// queue behind those.
    public func continueSlices() {
        let step = gate.host.beginStep()
        while !scheduler.conditions.isEnding, scheduler.hasSlices, !gate.host.isBehind, !step.isOver { decide(.slice) }
        isContinuing = false
        if !scheduler.conditions.isEnding, scheduler.hasSlices { continueSoon() }
    }
}

/// What a `TurnExecutor` acts on: the engine, the pool, the clock, the loop, and those who hear of changes; or their simulation.
public protocol TurnHost: AnyObject {
    associatedtype GateHost: CommitGateHost

    // The clock and the loop
    var now: WallTime { get }
    /// Calls `decide(.time)` at this instant; nil: at none.
    func setAlarm(_ time: WallTime?)
    /// Calls `continueSlices` in a later turn of the loop, and not before the bus has taken most of what was sent.
    func continueSlicesLater()
    /// Whether the journal refuses further changes, because too many wait for the disk.
    var isJournalFull: Bool { get }

    // The engine. What comes of it are events.
    func startTransfer(_ entry: ScheduledDownload)
    func permit(_ id: RequestID, tellsSent: Bool)
    func stopTransfer(_ entry: ScheduledDownload)

    // The pool. What comes of it are events.
    func verify(_ entry: ScheduledDownload)
    func commit(_ entry: ScheduledDownload)
    func sweep(_ number: DownloadNumber, _ directory: String)
    /// Truncates the caller's file after an unfinished download.
    func emptyDescriptor(_ number: DownloadNumber)

    // Those who hear of changes. Messages go through the gate.
    func changed(_ change: Scheduler.Change)
    func tell(_ entry: ScheduledDownload)
    func tellWait(_ entry: ScheduledDownload)
    /// Posts the messages about the end.
    ///
    /// - Returns: what follows once the end is on disk and told.
    func announceEnd(_ entry: ScheduledDownload) -> () -> Void
    func announceEnd(_ batch: ScheduledBatch, _ outcomes: OutcomeCounts) -> (() -> Void)?
    func allEnded(_ outcomes: OutcomeCounts)
    func showOwed(_ toasts: [Scheduler.OwedToast])
    func removed(_ entry: ScheduledDownload)
    func removed(_ batch: ScheduledBatch)
    /// Asks for a call of the owner. When its turn comes, `beginOwnerCall` says whether it is still due.
    func callOwner(_ entry: ScheduledDownload)

    /// The scheduler has made a mistake.
    func failed(_ fault: Scheduler.Fault)
    /// The next action.
    func willPerform(_ action: Scheduler.Action)
    /// All actions of a turn have been performed, and those of the turns nested in it.
    func carriedOut()
}

extension TurnHost {
    public func willPerform(_ action: Scheduler.Action) {}
}
