public import DownloadModel

/// Every download there is, the order in which they run, and what is decided about them. It decides all and does nothing.
///
/// `turn` takes what happened and says what is to be done: changes to be saved, work for the engine and the pool, things to be told. The
/// ledger has no clock, no disk and no network: instants and outcomes are given to it. Of one thread.
public final class Ledger {
    /// What is to be done, in this order. Whatever follows a `save` may be done or told only once that is on disk.
    public enum Action {
        case save(StoreChange)
        /// `afterSave`: only once all saved so far is on disk. An ended download that begins again must not write a part file that the row
        /// on disk knows nothing of. By then it may be told to stop already: then it has ended, `stopped`, with what its record has.
        case startTransfer(LedgerEntry, afterSave: Bool)
        case stopTransfer(LedgerEntry)
        /// Let the transfer make the next request, for which it asked by `hop`; `afterSave` as with `startTransfer`, and only if it is
        /// under way still. Whether it has gone out is to be told where this is after a save.
        case permit(RequestID, afterSave: Bool)
        case verify(LedgerEntry)
        case commit(LedgerEntry)
        /// Delete the part file and its written map, then call `swept`.
        case sweep(DownloadNumber, directory: String)
        /// The record has changed since the turn before.
        case changed(Change)
        /// Properties have changed that are to be told now.
        case tell(LedgerEntry)
        /// The same, and that what it waits for is another, though its record has not changed.
        case tellWait(LedgerEntry)
        case announceEnd(LedgerEntry)
        /// The last member that had not ended has.
        case batchEnded(LedgerBatch, OutcomeCounts)
        /// Nothing is left to do; ends since it was last so.
        case allEnded(finished: UInt32, failed: UInt32, cancelled: UInt32)
        /// Toasts that processes before this one owed.
        case showOwed([OwedToast])
        /// It is off the list.
        case removed(LedgerEntry)
        /// It is off the list: its last member is.
        case batchRemoved(LedgerBatch)
        /// All has been done of what this call asked for; it is answered behind what is saved so far.
        case stretchEnded(CallNumber)
        /// Call the owner, when all saved so far is on disk, if `takeOwnerCall` says so by then.
        case callOwner(LedgerEntry)
    }

    /// How a turn changed a download: what it was before, and its entry.
    public struct Change {
        public let entry: LedgerEntry
        public let before: DownloadRecord
        /// The state that the bus showed before; nil where the state did not change.
        public fileprivate(set) var shownBefore: DownloadState?
    }

    public internal(set) var entries = NumberTable<LedgerEntry>()
    public internal(set) var batches: [BatchNumber: LedgerBatch] = [:]
    /// Batches of which some members have their places and others not yet.
    var entering: Set<BatchNumber> = []
    public internal(set) var settings: Settings
    public internal(set) var counts = StateCounts()
    /// The folders that downloads wait for, and how many wait for each.
    private var folderWaits: [ByteText: Int] = [:]
    /// All that has not ended, in queue order.
    public internal(set) var order = DownloadQueue()
    /// What of it may start, in lanes; and those of it whose files are still being worked on.
    var runnable = DownloadQueue(countsAcrossLanes: true)
    var heldBack: Set<DownloadNumber> = []
    /// By `HostRules.governing`'s name, as long as there is something to know of them.
    var hosts: [String: HostLoad] = [:]
    /// Origins that refused requests.
    var paces = OriginPaces()
    /// The host that was looked up last.
    var recentHost: (host: String, load: HostLoad)?
    /// What was queued last, without a request interval of its own, and its lane.
    var recentLane: RecentLane?
    /// Hosts at which something has changed since they were looked at.
    var touched: Set<String> = []
    var hostWakes = WakeHeap<String>()
    /// Requests of a process before this one, by host, until that host is asked again.
    var lastRequests: [String: [HostRequest]] = [:]
    /// The requests under way, and those that wait for their host, until their transfers have ended.
    var atHosts: [RequestID: PlacedRequest] = [:]
    var apps: [String: AppShare] = [:]
    var laneNumber: UInt32 = 0
    /// Transfers of `counts.active` that take no slot; and those of them that wait for their next request.
    var idleTransfers = 0
    var heldTransfers = 0
    /// Hosts that would take the next request of a transfer which has no slot for it.
    var awaitingSlot: Set<String> = []
    /// What is queued that comes before a redirect at its host, as it was when that was found out; until what may start has started.
    var awaited: [Awaited] = []
    /// With so many it is looked which of them need not be remembered any more.
    var hostsBeforeSweep = 1024
    /// When it is to be looked at whether one application owes another a slot.
    var sliceAt: WallTime?
    /// What has ended, oldest first.
    public internal(set) var ended = DownloadQueue()
    var endedOfApps: [String: DownloadQueue] = [:]
    private var endings: Int64 = 0
    let sums = Sums()
    var index = LedgerIndex()
    /// The last record, and the last of each app: the next one is often like it, and shares what is equal.
    private var model: DownloadRecord?
    private var models: [String: DownloadRecord] = [:]
    private static let mostModels = 64
    /// From this size on it is saved that a part file is whole before it is verified: a killed service does not ask for it again.
    private static let sizeWorthARow: ByteCount = 1 << 20
    /// How many transfers have not ended.
    var working = 0
    /// Taken off the list while work on them is still under way.
    public internal(set) var leaving = NumberTable<LedgerEntry>()
    /// Part files that are to be deleted.
    var sweeps = NumberTable<Sweep>()
    /// Part files that could not be deleted: their rows stay for the next start, unless they are written again.
    var unswept: Set<DownloadNumber> = []
    var wakes = WakeHeap<DownloadNumber>()
    /// What holds for all and has not come to each yet.
    var pass: LedgerPass?
    /// What calls do to many, in their order.
    var stretches: [LedgerStretch] = []
    /// How much is done in one slice.
    public var sliceSize = SliceSize()
    /// By how much the wall clock was set, each time; an entry knows how many of these its instants have in them.
    var clockJumps: [Duration] = []
    private var tally = (finished: UInt32(0), failed: UInt32(0), cancelled: UInt32(0))
    var untold: [LedgerEntry] = []
    var actions: [Action] = []
    /// Records that had ended, between `beginRestore` and `endRestore`.
    var restoredEnded: [DownloadRecord] = []
    /// Of what was restored and has not ended: what had started before.
    var restoredCourses: [LedgerEntry] = []
    var restoredSought: [LedgerEntry] = []
    /// Toasts that a process before this one owed, until they are taken.
    var restoredToasts: [OwedToast] = []
    /// The lane of the one before, and what is said of those in it.
    var restoredLane: (lane: Lane, reason: WaitReason?)?
    var recentAuthority = DownloadURL.Authority()
    /// Between `beginRestore` and `endRestore`: hosts are looked at when all are there.
    var isRestoring = false
    /// Set when the service ends: nothing new is started.
    public internal(set) var isEnding = false
    /// The machine sleeps, or is about to: nothing is started.
    public internal(set) var isAsleep = false
    /// What is known of the network; nil: that is being asked, and what needs it is not started before the answer.
    public internal(set) var network: NetworkCondition?
    /// How often the reach of the network has changed, so that who defied one reach does not defy the next.
    var reachCount: Int32 = 0
    /// Too many changes wait for the disk: what runs goes on, and nothing starts.
    var isJournalFull = false
    /// The applications whose window is in front: they show their own ends, unless a download asks for a toast always.
    var appsInFront: Set<String> = []
    /// Whether what may start has started since the last event.
    var isScheduled = true
    var jitter: Jitter
    /// Where in `actions` the change of a download is told. A download has one such action in a turn, however often it changes.
    private var changes: [DownloadNumber: Int] = [:]

    /// - Parameter network: nil: not known yet.
    public init(settings: Settings, network: NetworkCondition? = .open, jitter: Jitter) {
        (self.settings, self.network, self.jitter) = (settings, network, jitter)
    }

    public subscript(_ number: DownloadNumber) -> LedgerEntry? { entries[number] }

    /// What is to be done since the last call.
    func takeActions() -> [Action] {
        defer { (actions, changes) = ([], [:]) }
        return actions
    }

    // MARK: Coming and going

    /// Takes in a record whose row is not on disk yet: it counts, but does not run before `enter`.
    func insert(_ record: DownloadRecord) -> LedgerEntry {
        let entry = take(record)
        shareHost(with: entry)
        entry.mayHavePart = false
        count(entry, in: record.state)
        return entry
    }

    func take(_ record: consuming DownloadRecord) -> LedgerEntry {
        join(&record)
        return add(record)
    }

    /// Has it hold its options together with others.
    private func join(_ record: inout DownloadRecord) {
        if !(model?.isJoined(record) ?? false) {
            if models.count >= Self.mostModels { models = [:] }
            if let model { models[model.options.app] = model }
            if let model = models[record.options.app] { record.join(model) }
            model = record
        }
    }

    func add(_ record: consuming DownloadRecord) -> LedgerEntry {
        let entry = LedgerEntry(record, sums: sums)
        add(entry)
        return entry
    }

    private func add(_ entry: LedgerEntry) {
        index.insert(entry.record)
        list(entry)
    }

    /// - Precondition: `index` knows it.
    func list(_ entry: LedgerEntry) {
        entry.clockJumps = Int32(clamping: clockJumps.count)
        entries[entry.number] = entry
    }

    /// Makes a member of a batch, of which nothing is known before `insert`: of many, some can be made in each slice.
    public func prepare(_ record: consuming DownloadRecord) -> LedgerEntry {
        join(&record)
        let entry = LedgerEntry(record, sums: sums)
        entry.mayHavePart = false
        shareHost(with: entry)
        return entry
    }

    /// Has `entry` hold the names of its host and origin together with the entry before, where both have the same.
    func shareHost(with entry: LedgerEntry) {
        if let host = recentAuthority.host(of: entry.record.url) { (entry.host, entry.origin) = (host, recentAuthority.origin) }
    }

    /// The row of `entry` is on disk: it takes its place in the queue.
    func enter(_ entry: LedgerEntry, now: WallTime) { enter([entry], now: now) }

    /// The same for several: only then does anything start.
    func enter(_ entries: [LedgerEntry], now: WallTime) {
        for entry in entries where !entry.isRemoved && !entry.isEntered { takePlace(entry, now: now) }
        schedule(now: now)
        // Who asks from here on is answered so; nobody was told otherwise.
        for entry in entries where entry.state == .queued { entry.toldHold = hold(of: entry, now: now)?.reason }
    }

    func takePlace(_ entry: LedgerEntry, now: WallTime) {
        entry.isEntered = true
        place(entry)
        // Time has passed, and all may have been paused or resumed, since it was asked for.
        if entry.state == .queued || settings.paused { settle(entry, now: now) }
        if case .waiting(.pausedAll, _) = entry.state, !settings.paused { try? apply(.release, to: entry, now: now) }
    }

    /// The row of `entry` could not be saved: it never was.
    func undo(_ entry: LedgerEntry, now: WallTime) {
        guard !entry.isRemoved else { return }
        forget(entry, now: now)
        // It may have been all that the others' end was waiting for.
        announceAllEnded()
    }

    func place(_ entry: LedgerEntry) { place(entry, entry.record) }

    /// - Parameter record: the entry's: who asks an entry for it again and again has it copied each time.
    private func place(_ entry: LedgerEntry, _ record: DownloadRecord) {
        if record.state.hasEnded {
            endings += 1
            entry.ending = endings
            ended.insert(record.number, priority: 0, position: endings)
            endedOfApps[record.options.app, default: DownloadQueue()].insert(record.number, priority: 0, position: endings)
        } else {
            sums.add(entry)
            order.insert(record.number, priority: record.options.priority, position: record.position)
            if record.state == .queued { makeRunnable(entry, record) }
        }
        if record.state != .queued || !record.isUntouched || entry.wakeAt != nil { arm(entry) }
    }

    private func forget(_ entry: LedgerEntry, now: WallTime) {
        entry.isRemoved = true
        if isAtWork(entry) { leaving[entry.number] = entry }
        if entry.state == .active { leaveSlot(entry, now: now) }
        leaveLane(entry)
        count(entry, in: entry.state, by: -1)
        entry.batch?.forget(entry.state)
        entries[entry.number] = nil
        index.remove(entry.record)
        sums.remove(entry)
        order.remove(entry.number)
        leaveEnded(entry)
        entry.wakeAt = nil
    }

    /// Takes an ended download off the list; the part file that a failed one kept goes with it.
    ///
    /// - Precondition: it has ended.
    func remove(_ entry: LedgerEntry, now: WallTime) {
        precondition(entry.state.hasEnded, "only what has ended is taken off the list")
        forget(entry, now: now)
        actions.append(.save(.remove(entry.number)))
        if entry.record.options.holdsSecrets { actions.append(.save(.scrubLog)) }
        actions.append(.removed(entry))
        if case .failed = entry.state { sweep(entry) }
        leaveBatch(entry)
    }

    private func leaveEnded(_ entry: LedgerEntry) {
        ended.remove(entry.number)
        let app = entry.record.options.app
        endedOfApps[app]?.remove(entry.number)
        if endedOfApps[app]?.count == 0 { endedOfApps[app] = nil }
    }

    /// Lets ended downloads go that are too old or too many.
    func prune(now: WallTime) {
        let oldest = now + (.zero - Limits.endedAge)
        while let first = ended.next, let entry = entries[first], (entry.record.endedAt ?? now) < oldest { remove(entry, now: now) }
        while ended.count > Limits.endedDownloads, let entry = mostDispensable(now: now) { remove(entry, now: now) }
    }

    /// Of the application that has most of what has ended, the oldest; one of which its owner is still to hear, or the one that has just
    /// ended, only where all are such.
    private func mostDispensable(now: WallTime) -> LedgerEntry? {
        guard let most = endedOfApps.max(by: { ($0.value.count, $1.key) < ($1.value.count, $0.key) })?.value else { return nil }
        let dispensable = most.first { number in
            entries[number].map { $0.ending < endings && !$0.record.remindsOwner(at: now) } ?? false
        }
        return (dispensable ?? most.next).flatMap { entries[$0] }
    }

    // MARK: Events

    /// Takes `event` to `entry`: its next state, the orders, the actions.
    func apply(_ event: DownloadEvent, to entry: LedgerEntry, now: WallTime) throws(IllegalTransition) {
        catchUp(entry, before: event, now: now)
        let before = entry.state
        let (next, effects) = try before.after(event)
        // Its descriptor is closed.
        if entry.record.isToDescriptor, before.hasEnded, !next.hasEnded { throw IllegalTransition(state: before, event: event) }
        if event == .resume, before == .queued || before == .active { defyPace(entry) }
        guard next != before || !effects.isEmpty else { return }
        // Of a hundred thousand that are held or released each costs little: what of it has changed is known, and is told whole.
        let isOfAll = event == .hold || event == .release
        let isWatched = !isOfAll || before == .active
        if isWatched { noteChange(of: entry, shown: shownState(of: entry, now: now)) }
        entry.record.take(event, from: before, to: next, now: now)
        // Before the row is saved: a later attempt must not look for the bytes. What finished (`skip`) has none, and tells its size.
        if effects.contains(.deletePart), next != .finished { entry.record.forgetBytes() }
        if before.hasEnded, !next.hasEnded {
            (entry.isRevived, entry.isCallDue) = (true, false)
            if let batch = entry.batch { forgiveToast(of: batch) }
            if let last = settings.cancelsThrough, entry.number <= last, settings.spared.insert(entry.number).inserted {
                actions.append(.save(.set(settings)))
            }
        }
        if next.hasEnded, !before.hasEnded {
            oweToast(of: entry)
            forgetSecrets(of: entry, now: now)
        }
        if event == .resume, case .waiting(.offline, _) = before { entry.defiedReach = reachCount }
        if event == .resume || event == .retry || event == .renew { entry.isUrgent = true }
        move(entry, from: before, to: next, now: now)
        if event == .pause || event == .cancel { entry.isUrgent = false }
        // What a restart would do again anyway (queued, active and verifying all begin as queued, and the network is asked) costs no
        // commit, except that the first start sets the deadline.
        switch event {
        case .yield, .hinder: break
        case .wait(.offline, nil) where before == .queued, .wait(.metered, nil) where before == .queued: break
        case .hold, .release: if before == .active || entry.record.options.deadline != nil { save(entry) }
        case .start, .startWhole, .ready: if entry.record.options.deadline != nil { save(entry) }
        case .bodyComplete: if entry.record.received >= Self.sizeWorthARow { save(entry) }
        default: save(entry)
        }
        if next == .queued {
            untold.append(entry)
            if isOfAll { entry.isToldWhole = true }
        } else {
            actions.append(isOfAll ? .tellWait(entry) : .tell(entry))
        }
        for effect in effects { perform(effect, of: entry, now: now) }
        if case .failed = next { dropUselessBytes(entry) }
        if next == .queued { settle(entry, now: now) }
        if before == .committing, entry.state != .committing, entry.batch?.isLeaving == true { leave(entry, now: now) }
    }

    /// Takes an event that the service itself raises; one that comes too late is dropped.
    ///
    /// - Returns: whether it was taken.
    @discardableResult
    func advance(_ entry: LedgerEntry, _ event: DownloadEvent, now: WallTime) -> Bool {
        defer { schedule(now: now) }
        do { try apply(event, to: entry, now: now) } catch { return false }
        return true
    }

    /// Makes what is queued wait where something stands in its way.
    func settle(_ entry: LedgerEntry, now: WallTime) {
        guard entry.isEntered else { return }
        switch obstacle(of: entry, now: now) {
        case .waiting(.pausedAll, _): try? apply(.hold, to: entry, now: now)
        case .waiting(let reason, let until): try? apply(.wait(reason, until: until), to: entry, now: now)
        default: break
        }
    }

    /// `entry` is in `state` from now on; `by` -1: it is no longer.
    func count(_ entry: LedgerEntry, in state: DownloadState, by sign: Int = 1) {
        if sign > 0 { counts.insert(state) } else { counts.remove(state) }
        guard state.awaitsFolder else { return }
        let folder = ByteText(entry.record.directory)
        let waits = folderWaits[folder, default: 0] + sign
        folderWaits[folder] = waits == 0 ? nil : waits
    }

    /// The folders that downloads wait for, for room or for the folder itself.
    public var awaitedFolders: Set<ByteText> { Set(folderWaits.keys) }

    func change(_ entry: LedgerEntry, _ body: (inout DownloadRecord) -> Void) {
        noteChange(of: entry)
        body(&entry.record)
    }

    /// To be called before the record of `entry` changes.
    ///
    /// - Parameter state: what the bus shows of it now; nil where the state stays.
    private func noteChange(of entry: LedgerEntry, shown state: DownloadState? = nil) {
        if let index = changes[entry.number] {
            guard case .changed(var change) = actions[index], change.shownBefore == nil, let state else { return }
            change.shownBefore = state
            actions[index] = .changed(change)
        } else {
            changes[entry.number] = actions.count
            actions.append(.changed(Change(entry: entry, before: entry.record, shownBefore: state)))
        }
    }

    func save(_ entry: LedgerEntry) {
        if !entry.isRemoved { actions.append(.save(.put(entry.record))) }
    }

    private func move(_ entry: LedgerEntry, from before: DownloadState, to next: DownloadState, now: WallTime) {
        count(entry, in: before, by: -1)
        count(entry, in: next)
        entry.batch?.move(from: before, to: next)
        if before == .queued {
            leaveLane(entry)
            entry.toldHold = nil
        }
        if before == .active, next != .active { leaveSlot(entry, now: now) }
        if next == .active, before != .active { enterSlot(entry, now: now) }
        switch (before.hasEnded, next.hasEnded) {
        case (false, true):
            order.remove(entry.number)
            sums.end(entry)
            place(entry)
        case (true, false):
            leaveEnded(entry)
            sums.revive(entry, from: before)
            place(entry)
        default:
            if next == .queued { makeRunnable(entry) }
            arm(entry)
        }
    }

    private func perform(_ effect: DownloadEffect, of entry: LedgerEntry, now: WallTime) {
        switch effect {
        case .startTransfer:
            entry.work = .running
            if unswept.remove(entry.number) != nil { actions.append(.save(.swept(entry.number))) }
            working += 1
            actions.append(.startTransfer(entry, afterSave: entry.isRevived || entry.isPaced))
            entry.isRevived = false
        case .stopTransfer:
            guard entry.work == .running else { return }
            entry.work = .stopping
            actions.append(.stopTransfer(entry))
        case .verify:
            entry.isInPool = true
            actions.append(.verify(entry))
        case .commit:
            entry.isInPool = true
            actions.append(.commit(entry))
        case .deletePart: sweep(entry)
        case .announceEnd: announceEnd(entry, now: now)
        }
    }

    /// Tells that nothing is left, once, where anything has ended since that was told last.
    private func announceAllEnded() {
        guard counts.remaining == 0, tally != (0, 0, 0) else { return }
        actions.append(.allEnded(finished: tally.finished, failed: tally.failed, cancelled: tally.cancelled))
        tally = (0, 0, 0)
    }

    private func announceEnd(_ entry: LedgerEntry, now: WallTime) {
        actions.append(.announceEnd(entry))
        switch entry.state {
        case .finished: tally.finished +|= 1
        case .failed: tally.failed +|= 1
        default: tally.cancelled +|= 1
        }
        if let batch = entry.batch, batch.hasEnded {
            oweToast(of: batch, now: now)
            actions.append(.batchEnded(batch, batch.outcomes))
        }
        announceAllEnded()
        if entry.record.options.activate != nil { callOwner(entry, now: now) }
        prune(now: now)
    }
}
