public import DownloadModel

/// Holds all downloads and their queue order, and makes every decision about them. Performs no action.
///
/// `turn` takes events and returns actions: changes to save, work for the engine and the pool, and news for the bus. The scheduler has no
/// clock, disk or network: its caller passes instants and outcomes in. Use from one thread only.
public final class Scheduler {
    /// An action that the caller must perform, in the order of the turn. Messages about it must wait until the changes before it are on
    /// disk. So must `commit`, a `sweep` in a folder, and every action whose description or `afterSave` says so.
    public enum Action {
        case save(StoreChange)
        /// `afterSave`: start only once all changes so far are on disk. Otherwise, a crash could lose three facts: that a retried download
        /// writes a part file, that a download writes it in another folder, and that a paced request was started. If the transfer must stop
        /// before the engine has it, answer with `transferEnded`: `stopped`, with the resume data of the record.
        case startTransfer(ScheduledDownload, afterSave: Bool)
        case stopTransfer(ScheduledDownload)
        /// Let the transfer make the next request, which `asks` announced as `question`. `afterSave`: wait until all changes so far are on
        /// disk, then permit the request only if the transfer still runs. The engine must report then when the request goes out (`sent`).
        /// `mustShare`: as `Scheduler.mustShare`.
        case permit(RequestID, question: UInt64, mustShare: Bool, afterSave: Bool)
        /// End a further request of a transfer, because another request or download needs its place at the host. `over` follows, unless the
        /// request is the transfer's only one.
        case withdraw(RequestID)
        case verify(ScheduledDownload)
        /// Unpack the verified archive, then report `unpacked`, or why it could not be unpacked.
        case unpack(ScheduledDownload)
        /// Stop unpacking. `unpackingStopped` follows, unless the work has ended just before.
        case stopUnpacking(ScheduledDownload)
        case commit(ScheduledDownload)
        /// Delete the part file, and its written map unless that may be of another one (`Scheduler.hasLeft`). Then report `swept`.
        case sweep(DownloadNumber, directory: String)
        /// The record has changed in this turn.
        case changed(Change)
        /// Announce the changed properties now.
        case tell(ScheduledDownload)
        /// Announce also the state, the wait reason and the end of the wait: they have changed, even if no `changed` says so.
        case tellWait(ScheduledDownload)
        case announceEnd(ScheduledDownload)
        /// The last unfinished member of the batch has ended.
        case batchEnded(ScheduledBatch, OutcomeCounts)
        /// No unfinished download is left. Counts the downloads that ended since the last `allEnded`.
        case allEnded(OutcomeCounts)
        /// Toasts that earlier processes owed.
        case showOwed([OwedToast])
        /// The download was removed from the list.
        case removed(ScheduledDownload)
        /// The batch was removed from the list, because its last member was.
        case batchRemoved(ScheduledBatch)
        /// Everything that this call asked for is done. Answer the call once all changes so far are on disk.
        case bulkChangeEnded(CallNumber)
        /// Call the owner once all changes so far are on disk, if `owesCall` is still true then.
        case callOwner(ScheduledDownload)
    }

    /// How a turn changed a download: its entry, and its record before the turn.
    public struct Change {
        public let entry: ScheduledDownload
        public let before: DownloadRecord
        /// The state that the bus showed before; nil if the state did not change.
        public internal(set) var shownBefore: DownloadState?
    }

    public internal(set) var entries = NumberTable<ScheduledDownload>()
    public internal(set) var batches = NumberTable<ScheduledBatch>()
    /// Saved batches whose members are taking their places in the queue, in slices.
    var entering: Set<BatchNumber> = []
    public internal(set) var settings: Settings
    public internal(set) var counts = StateCounts()
    /// The folders that downloads wait for: the number of waiting downloads of each.
    private var folderWaits: [ByteText: Int] = [:]
    /// All unfinished downloads, in queue order.
    public internal(set) var order = DownloadQueue()
    /// Decides which queued downloads may start and which requests are permitted, and when.
    var gate: HostGate
    /// The queued downloads whose files are still in use.
    var heldBack: Set<DownloadNumber> = []
    /// The lane of the last queued download without a request interval of its own.
    var recentLane: RecentLane?
    /// How many hosts this turn may still refresh, or queued downloads review.
    var refreshesLeft = 0
    /// The last call of `schedule` has left some hosts to refresh, or downloads to start, for the next slice.
    var isCut = false
    /// When to check again whether one application owes another a slot.
    var sliceAt: WallTime?
    /// A download has yielded its slot to an application that was owed one. A download that was moved to the front does not take this slot.
    var owesSlot = false
    public internal(set) var ended = EndedList()
    let sums = Sums()
    var index = DownloadIndex()
    var sharing = RecordSharing()
    /// The number of transfers that have not ended.
    var working = 0
    /// Removed downloads whose files are still in use.
    public internal(set) var leaving = NumberTable<ScheduledDownload>()
    var sweeps = PartFileSweeps()
    var wakes = WakeHeap<DownloadNumber>()
    /// The number of downloads with `isDueForWork`.
    var dueForWork = 0
    /// A change to all downloads that has not reached each of them yet.
    var pass: QueuePass?
    /// Changes to many downloads by one call each, in call order.
    var bulkChanges: [BulkChange] = []
    /// Whether a bulk change queues a failed download again now.
    var isRetryingInBulk = false
    /// The amount of work in one slice.
    public var sliceSize = SliceSize()
    /// Every jump of the wall clock. An entry counts how many of these jumps its instants already include.
    var clockJumps: [Duration] = []
    /// The outcomes since the last `allEnded`.
    private var outcomes = OutcomeCounts()
    var unannounced = Unannounced()
    var output = TurnOutput()
    public internal(set) var conditions: Conditions
    var jitter: Jitter

    /// - Parameter network: nil: not known yet.
    public init(settings: Settings, network: NetworkCondition? = .open, jitter: Jitter) {
        (self.settings, self.jitter, conditions) = (settings, jitter, Conditions(network: network))
        gate = HostGate(settings, isNetworkKnown: network != nil)
    }

    public subscript(_ number: DownloadNumber) -> ScheduledDownload? { entries[number] }

    // MARK: Adding and removing

    /// Adds a record whose row is not on disk yet: the download counts, but does not run before `enter`.
    func insert(_ record: DownloadRecord) -> ScheduledDownload {
        let entry = take(record)
        sharing.joinHost(of: entry)
        entry.mayHavePart = false
        count(entry, in: record.state)
        return entry
    }

    func take(_ record: consuming DownloadRecord) -> ScheduledDownload {
        sharing.join(&record)
        return add(record)
    }

    func add(_ record: consuming DownloadRecord) -> ScheduledDownload {
        let entry = ScheduledDownload(record, sums: sums)
        add(entry)
        return entry
    }

    private func add(_ entry: ScheduledDownload) {
        index.insert(entry.record)
        list(entry)
    }

    /// - Precondition: `index` contains the download.
    func list(_ entry: ScheduledDownload) {
        entry.clockJumps = Int32(clamping: clockJumps.count)
        entries[entry.number] = entry
    }

    /// The row of `entry` is on disk: the download takes its place in the queue.
    func enter(_ entry: ScheduledDownload, now: WallTime) { enter([entry], now: now) }

    /// As above for several downloads. Nothing starts before all of them have their places.
    func enter(_ entries: [ScheduledDownload], now: WallTime) {
        for entry in entries where !entry.isRemoved && !entry.isEntered { takePlace(entry, now: now) }
        unannounced.entered += entries
    }

    func takePlace(_ entry: ScheduledDownload, now: WallTime) {
        entry.isEntered = true
        place(entry)
        // Since the call, time has passed, and all downloads may have been paused or resumed.
        if entry.state == .queued || settings.paused { settle(entry, now: now) }
        if case .waiting(.pausedAll, _) = entry.state, !settings.paused { applyOwn(.release, to: entry, now: now) }
    }

    /// The row of `entry` could not be saved: undo the addition.
    func undo(_ entry: ScheduledDownload) {
        guard !entry.isRemoved else { return }
        forget(entry)
        index.remove(entry.record)
        // This download may have been the last unfinished one.
        announceAllEnded()
    }

    func place(_ entry: ScheduledDownload) { place(entry, entry.record) }

    /// - Parameter record: the record of `entry`, passed in because each access to `entry.record` copies it.
    private func place(_ entry: ScheduledDownload, _ record: DownloadRecord) {
        if record.state.hasEnded {
            entry.ending = ended.insert(record.number, app: record.options.app)
        } else {
            sums.add(entry)
            order.insert(record.number, priority: record.options.priority, position: record.position)
            if record.state == .queued { makeRunnable(entry, record) }
        }
        if record.state != .queued || !record.isUntouched || entry.wakeAt != nil { arm(entry) }
    }

    /// Takes `entry` off the list, but not out of `index`.
    func forget(_ entry: ScheduledDownload) {
        entry.isRemoved = true
        if isAtWork(entry) { leaving[entry.number] = entry }
        if entry.state == .active { gate.leaveSlot(entry.number) }
        leaveLane(entry)
        count(entry, in: entry.state, by: -1)
        entry.batch?.counts.remove(entry.state)
        entries[entry.number] = nil
        sums.remove(entry)
        disarm(entry)
        if entry.state.hasEnded { ended.remove(entry.number, app: entry.record.options.app) } else { order.remove(entry.number) }
    }

    /// Removes an ended download from the list. Deletes the part file that a failed download kept.
    ///
    /// - Precondition: the download has ended.
    func remove(_ entry: ScheduledDownload) {
        precondition(entry.state.hasEnded, "only what has ended is taken off the list")
        forget(entry)
        index.remove(entry.record)
        output.append(.save(.remove(entry.number)))
        if entry.record.options.holdsSecrets || entry.record.options.isPrivate { output.append(.save(.scrubLog)) }
        output.append(.removed(entry))
        if case .failed = entry.state { sweep(entry) }
        letGo(entry)
        leaveBatch(entry)
    }

    /// Removes ended downloads that are too old or too many.
    func prune(now: WallTime) {
        let oldest = now + (.zero - Limits.endedAge)
        while let first = ended.oldest, let entry = entries[first], (entry.record.endedAt ?? now) < oldest { remove(entry) }
        while ended.count > Limits.endedDownloads, let entry = mostDispensable(now: now) { remove(entry) }
    }

    /// The oldest ended download of the application that has the most ended downloads. A download whose owner must still be called, or that
    /// has just ended, is chosen only if the application has no other ended downloads.
    private func mostDispensable(now: WallTime) -> ScheduledDownload? {
        guard let most = ended.most else { return nil }
        let dispensable = most.first { number in
            entries[number].map { $0.ending < ended.last && !$0.record.remindsOwner(at: now) } ?? false
        }
        return (dispensable ?? most.next).flatMap { entries[$0] }
    }

    // MARK: Events

    /// Applies `event` to `entry`: changes its state, its place in the queues and its record, and appends the actions.
    func apply(_ event: DownloadEvent, to entry: ScheduledDownload, now: WallTime) throws(IllegalTransition) {
        catchUp(entry, before: event, now: now)
        let transition = try Transition(event, of: entry.record)
        let (before, next) = (transition.before, transition.next)
        if event == .resume, before == .queued || before == .active { defyPace(entry, now: now) }
        guard !transition.isVoid else { return }
        // PauseAll and ResumeAll touch up to 100,000 downloads: note no costly `changed` for those that only wait, because the change is
        // known. The new state is announced whole.
        let isWatched = !transition.isOfAll || before == .active || before == .extracting
        if isWatched {
            // ResumeAll has released `entry` in this turn, and no signal has told so yet.
            let isTold = !entry.isToldWhole
            output.noteChange(of: entry, shown: isTold ? shownState(of: entry, now: now) : .waiting(.pausedAll, until: nil))
        }
        transition.apply(to: &entry.record, now: now)
        if transition.revives { revive(entry) }
        if transition.ends {
            oweToast(of: entry)
            forgetSecrets(of: entry, now: now)
        }
        if event == .resume, case .waiting(.offline, _) = before { entry.defiedReach = conditions.reachCount }
        if transition.hurries == true { entry.isUrgent = true }
        move(entry, from: before, to: next, now: now)
        if transition.hurries == false { entry.isUrgent = false }
        if transition.isSaved(entry.record) { save(entry) }
        if next == .queued {
            unannounced.queued.append(entry)
            if transition.isOfAll { entry.isToldWhole = true }
        } else {
            output.append(transition.isOfAll ? .tellWait(entry) : .tell(entry))
        }
        for effect in transition.effects { perform(effect, of: entry, now: now) }
        if case .failed = next { dropUselessBytes(entry) }
        if next == .queued { settle(entry, now: now) }
        if before == .committing, entry.state != .committing, entry.batch?.isLeaving == true { leave(entry, now: now) }
    }

    /// The ended `entry` is queued again.
    private func revive(_ entry: ScheduledDownload) {
        (entry.startsAfterSave, entry.isCallDue, entry.uncountedAttempts) = (true, false, 0)
        if let batch = entry.batch { forgiveToast(of: batch) }
        // A CancelAll that waits behind a bulk change was called later, so it cancels what that change queues again.
        if !isRetryingInBulk, let last = settings.cancelsThrough, entry.number <= last, settings.spared.insert(entry.number).inserted {
            output.append(.save(.set(settings)))
        }
    }

    /// Applies an event that the scheduler itself raises because of the state of `entry`. If the state refuses the event, the scheduler has
    /// made a mistake, which becomes a fault of the turn. The exception: `entry` first had to catch up with PauseAll or ResumeAll, and its
    /// state has changed by that.
    ///
    /// - Returns: whether the event was applied.
    @discardableResult
    func applyOwn(_ event: DownloadEvent, to entry: ScheduledDownload, now: WallTime) -> Bool {
        let before = entry.state
        do throws(IllegalTransition) { try apply(event, to: entry, now: now) } catch {
            if entry.state == before { output.note(Fault(number: entry.number, transition: error)) }
            return false
        }
        return true
    }

    /// Makes a queued download wait if something prevents its start.
    func settle(_ entry: ScheduledDownload, now: WallTime) {
        guard entry.isEntered else { return }
        switch obstacle(of: entry, now: now) {
        case .waiting(.pausedAll, _): applyOwn(.hold, to: entry, now: now)
        case .waiting(let reason, let until): applyOwn(.wait(reason, until: until), to: entry, now: now)
        default: break
        }
    }

    /// Counts `entry` in `state`; `by: -1` removes it from the count.
    func count(_ entry: ScheduledDownload, in state: DownloadState, by sign: Int = 1) {
        if sign > 0 { counts.insert(state) } else { counts.remove(state) }
        guard state.awaitsFolder else { return }
        let folder = ByteText(entry.record.directory)
        let waits = folderWaits[folder, default: 0] + sign
        folderWaits[folder] = waits == 0 ? nil : waits
    }

    /// The folders that downloads wait for: for free space there, or for the folder itself.
    public var awaitedFolders: Set<ByteText> { Set(folderWaits.keys) }

    func change(_ entry: ScheduledDownload, _ body: (inout DownloadRecord) -> Void) {
        output.noteChange(of: entry)
        body(&entry.record)
    }

    func save(_ entry: ScheduledDownload) {
        if !entry.isRemoved { output.append(.save(.put(entry.record))) }
    }

    private func move(_ entry: ScheduledDownload, from before: DownloadState, to next: DownloadState, now: WallTime) {
        count(entry, in: before, by: -1)
        count(entry, in: next)
        entry.batch?.counts.move(from: before, to: next)
        if before == .queued {
            leaveLane(entry)
            entry.toldHold = nil
        }
        if before == .active, next != .active { gate.leaveSlot(entry.number) }
        if next == .active, before != .active { enterSlot(entry, now: now) }
        switch (before.hasEnded, next.hasEnded) {
        case (false, true):
            order.remove(entry.number)
            sums.end(entry)
            gate.lanes.hadTurn(entry.number)
            place(entry)
        case (true, false):
            ended.remove(entry.number, app: entry.record.options.app)
            sums.revive(entry, from: before)
            place(entry)
        default:
            if next == .queued { makeRunnable(entry) }
            arm(entry)
        }
    }

    private func perform(_ effect: DownloadEffect, of entry: ScheduledDownload, now: WallTime) {
        switch effect {
        case .startTransfer:
            entry.work = .running
            // The part file is written again. One in a folder that the download has left is still to be deleted.
            if sweeps.forgetFailure(of: entry.number, in: entry.record.directory) {
                entry.mayHavePart = true
                output.append(.save(sweeps.row(entry.number)))
            }
            working += 1
            let afterSave = entry.startsAfterSave || isPaced(entry.request) || entry.record.options.postData != nil
            output.append(.startTransfer(entry, afterSave: afterSave))
            entry.startsAfterSave = false
        case .stopTransfer:
            guard entry.work == .running else { return }
            entry.work = .stopping
            output.append(.stopTransfer(entry))
        case .verify:
            entry.isInPool = true
            output.append(.verify(entry))
        case .unpack:
            entry.isInPool = true
            output.append(.unpack(entry))
        case .stopUnpacking: output.append(.stopUnpacking(entry))
        case .commit:
            entry.isInPool = true
            output.append(.commit(entry))
        case .deletePart: sweep(entry)
        case .announceEnd: announceEnd(entry, now: now)
        }
    }

    /// Announces that no unfinished download is left, if any has ended since the last such announcement.
    func announceAllEnded() {
        guard counts.remaining == 0, outcomes != OutcomeCounts() else { return }
        output.append(.allEnded(outcomes))
        outcomes = OutcomeCounts()
    }

    private func announceEnd(_ entry: ScheduledDownload, now: WallTime) {
        output.append(.announceEnd(entry))
        outcomes.insert(entry.state)
        if let batch = entry.batch, batch.hasEnded {
            oweToast(of: batch, now: now)
            output.append(.batchEnded(batch, batch.outcomes))
        }
        announceAllEnded()
        if entry.record.options.activate != nil { callOwner(entry, now: now) }
        prune(now: now)
    }
}
