// SPDX-License-Identifier: Apache-2.0
import DownloadModel
import Scheduling

/// The items that wait for a commit.
enum Waiting {
    case addition(LedgerEntry)
    case batch(LedgerBatch, [LedgerEntry])
    case batchEnd(LedgerBatch, OutcomeCounts)
    case batchRemoved(LedgerBatch)
    case end(DownloadNumber, String, path: String?)
    case removed(DownloadNumber)
    case start(LedgerEntry)
    case permit(RequestID)
    case commit(DownloadNumber)
    case sweep(DownloadNumber)
    case callOwner(LedgerEntry)
    /// The answer to a call that changed many downloads.
    case manyDone(Ledger.CallNumber)
    /// The answer to PauseAll.
    case allPaused
    /// The answer to the owner's Acknowledge, for the end after that many revivals.
    case taken(DownloadNumber, revival: Int)
}

/// The rows on disk.
struct Saved {
    var records: [DownloadNumber: DownloadRecord] = [:]
    var batches: [DownloadNumber: BatchRecord] = [:]
    var settings = Settings()
    var sweeps: [DownloadNumber: String] = [:]
    var requests: [String: HostRequest] = [:]
    var next = DownloadNumber(1)
    var copies: [CopyKey: CopyHeld] = [:]

    mutating func take(_ change: StoreChange, _ plant: Plant?) {
        switch change {
        case .put(var record):
            if plant == .deaf { record.isAcknowledged = false }
            if plant == .silent { record.owesToast = false }
            if plant == .repetitive, record.state.hasEnded, records[record.number]?.owesToast == true { record.owesToast = true }
            records[record.number] = record
        case .remove(let number): records[number] = nil
        case .putBatch(let record): if plant != .uncounted || batches[record.number] == nil { batches[record.number] = record }
        case .addBatch(let batch, let members):
            take(.putBatch(batch), plant)
            for member in members { take(.put(member), plant) }
        case .removeBatch(let number): batches[number] = nil
        case .set(var settings):
            if plant == .halfway { settings.cancelsThrough = nil }
            if plant == .wakeful { settings.paused = false }
            self.settings = settings
        case .sweep(let number, let directory): if plant != .forgetful { sweeps[number] = directory }
        case .swept(let number): sweeps[number] = nil
        case .requested(let request): if plant != .hasty { requests["\(request.host) \(request.spacing)"] = request }
        case .requestOver(let host, let spacing): requests["\(host) \(spacing)"] = nil
        case .scrubLog: break
        case .keepCopy(let copy): copies[copy.key] = copy
        }
    }
}

/// A transfer in the engine.
struct Transfer {
    let id: RequestID
    var isStopping = false
    /// The host of the request; whether the request waits for permission, and whether it has gone out.
    var host: String
    var awaits = false
    var hasSent = false
    var isPaced: Bool
    var isStalled = false
    var hops = 0
    var hasBegun = false
    /// The response was accepted and the part file created; the ledger does not know yet.
    var isUntold = false
    var version = 0
    var total: ByteCount = 0
    var validator: Validator?
    var heldAtStart: ByteCount = 0
    var checkpoint: ResumeData?
}

/// Work in the pool: each piece first changes the disk, then is reported.
enum Work {
    case verify(DownloadNumber)
    case commit(DownloadNumber)
    case find(DownloadNumber)
    case sweep(DownloadNumber)
    /// Renamed, but the folder is not flushed: a power cut may undo the rename.
    case renamed(DownloadNumber, path: String, was: File?)
    case unlinked(DownloadNumber, File)
    case swept(DownloadNumber, isGone: Bool)
    case tell(Ledger.Event)
}

/// One process and its machine, with a seeded clock, network and disk.
struct World {
    static let directory = "/d"
    let plant: Plant?
    /// Servers answer with many redirects, at a host with a request interval. Every application that waits there must get its turn.
    let redirects: Bool
    var tells = false
    /// Seeded by each step, so that a step makes the same random choices in a shrunk history.
    var random = Random(7)

    // The machine
    var now = WallTime(microseconds: 1_000_000_000_000_000)
    var boot = 1
    var disk = Disk()
    var saved = Saved()
    var resources = (0..<6).map { _ in Resource() }

    // The process
    var ledger: Ledger
    /// The ledger's actions that are still to be performed.
    var todo: [Ledger.Action] = []
    var journal = JournalQueue<Waiting>()
    var inFlight: [StoreChange]?
    var nextNumber = DownloadNumber(1)
    var transfers: [DownloadNumber: Transfer] = [:]
    var pool: [Work] = []
    /// Transfers that begin once their rows are on disk.
    var delayed: Set<DownloadNumber> = []
    /// Part files to delete, from the order until the report of the deletion.
    var sweeping: Set<DownloadNumber> = []
    /// Ends announced since the last `AllEnded`.
    var endsUntold = 0
    /// The servers' validators of whole bodies.
    var validators: [DownloadNumber: CopyValidators] = [:]
    /// The stamps of files before their rename.
    var stamps: [DownloadNumber: FileStamp] = [:]

    // What callers know
    var acknowledged: Set<DownloadNumber> = []
    var removals: Set<DownloadNumber> = []
    var endsTold: [DownloadNumber: Int] = [:]
    var revivals: [DownloadNumber: Int] = [:]
    var batchEndsTold: [DownloadNumber: Int] = [:]
    var batchRevivals: [DownloadNumber: Int] = [:]
    /// The batch whose members are taking their places, and the number of members that have theirs.
    var entering: (LedgerBatch, [LedgerEntry], Int)?
    var finishedPaths: [DownloadNumber: (path: String, version: Int?)] = [:]
    var floors: [DownloadNumber: WallTime] = [:]
    /// The end of the pause that a host requested, by application: no earlier request may go there.
    var hostFloors: [String: [String: WallTime]] = [:]
    /// As above for the other applications, with the start of the pause.
    var commonFloors: [String: (since: WallTime, until: WallTime)] = [:]
    /// The end of the longest pause requested from each application itself. No answer ends it.
    var pauseEnds: [String: [String: WallTime]] = [:]
    /// For each application that waits for its turn at a paced host: the turns that each other application has had meanwhile.
    var passes: [String: [String: [String: Int]]] = [:]
    /// Downloads that somebody wants at once.
    var urgent: Set<DownloadNumber> = []
    /// Those of them that no server has refused since.
    var hastened: Set<DownloadNumber> = []
    /// Started before the rules changed: their requests keep the old rules.
    var unpaced: Set<DownloadNumber> = []
    /// The time of the last request that kept the host's interval, or an interval of its own.
    var lastSent: [String: WallTime] = [:]
    var wanted: [DownloadNumber: Int] = [:]
    /// Finished files that somebody else has written or deleted.
    var strangers: Set<String> = []
    /// Downloads into descriptors, which are lost with the process.
    var descriptors: Set<DownloadNumber> = []
    /// Calls to owners, waiting for their turn.
    var asked: [LedgerEntry] = []
    /// The end that the last call told the owner.
    var called: [DownloadNumber: WallTime] = [:]
    /// The number of revivals before the end whose Acknowledge was answered.
    var taken: [DownloadNumber: Int] = [:]
    /// Toasts that wait for the notification server; the last shown end of each download or batch, and the last end too old for a toast.
    var toasts: [Ledger.OwedToast] = []
    var toasted: [DownloadNumber: WallTime] = [:]
    var stale: [DownloadNumber: WallTime] = [:]
    /// The network and sleep as reported to the ledger, and the downloads resumed in spite of the network.
    var network: NetworkCondition? = .open
    var isAsleep = false
    var defying: Set<DownloadNumber> = []
    /// Calls that change many downloads, until they are answered or known to be lost.
    var many: [Ledger.CallNumber: DoneToMany] = [:]
    var lastCall: Ledger.CallNumber = 0
    /// Downloads cancelled while a CancelAll was under way, and by no other call.
    var cancelledByAll: Set<DownloadNumber> = []
    /// PauseAll was answered, and ResumeAll has not been called since.
    var isPausedForGood = false
    /// The amount of work in one slice.
    var sliceSize = SliceSize()
    var problem: String?
    var isEnding = false

    init(_ setting: Setting) {
        (plant, redirects) = (setting.plant, setting.redirects)
        if redirects {
            saved.settings.maxActive = 0
            try? saved.settings.hostRules.set("h0", HostRule(requestInterval: .seconds(1)))
        }
        ledger = Ledger(settings: saved.settings, jitter: .fixed(0.5))
        for index in resources.indices where index % 3 == 2 { resources[index].hasValidator = false }
    }

    mutating func fail(_ text: String) { if problem == nil { problem = text } }

    func tell(_ text: @autoclosure () -> String) { if tells { print("  " + text()) } }

    /// Runs a history, lets everything come to its end, and returns the violated invariant.
    mutating func live(_ steps: [Step]) -> String? {
        for step in steps {
            random = Random(UInt64(step.a) << 32 | UInt64(step.b))
            cutSlices(step)
            happen(step)
            settle()
            if let wake = ledger.nextWake, wake <= now {
                decide(.time)
                settle()
            }
            check()
            if let problem { return problem }
        }
        comeToAnEnd()
        return problem
    }

    // MARK: The ledger's actions

    /// Lets the ledger decide on `events`; `settle` performs its actions.
    ///
    /// - Returns: the reason of a refusal.
    @discardableResult mutating func decide(_ events: Ledger.Event...) -> IllegalTransition? {
        let turn = ledger.turn(events, at: now)
        todo += turn.actions
        return turn.refusal
    }

    /// Performs the ledger's actions as the service does.
    mutating func settle() {
        carryOutAll()
        release()
    }

    private mutating func carryOutAll() {
        while !todo.isEmpty {
            let actions = todo
            todo = []
            for action in actions { carryOut(action) }
        }
    }

    mutating func post(_ item: Waiting) {
        if case .start(let entry) = item { delayed.insert(entry.number) }
        if journal.isClear && entering == nil || plant == .early { done(item) } else { journal.post(item) }
    }

    private mutating func carryOut(_ action: Ledger.Action) {
        switch action {
        case .save(let change): journal.append(change)
        case .startTransfer(let entry, let afterSave):
            checkStart(entry)
            if afterSave { post(.start(entry)) } else { start(entry) }
        case .permit(let id, let afterSave):
            if let entry = ledger[id.download], let host = transfers[id.download]?.host {
                checkRequest(entry, at: host)
                checkTurn(entry, at: host)
            }
            transfers[id.download]?.isPaced = afterSave
            if afterSave { post(.permit(id)) } else { permit(id) }
        case .stopTransfer(let entry):
            transfers[entry.number]?.isStopping = true
        case .verify(let entry): pool.append(.verify(entry.number))
        case .commit(let entry): post(.commit(entry.number))
        case .sweep(let number, _):
            sweeping.insert(number)
            post(.sweep(number))
        case .changed, .tell, .tellWait: break
        case .batchEnded(let batch, let outcomes): post(.batchEnd(batch, outcomes))
        case .batchRemoved(let batch):
            if ledger.entries.values.contains(where: { $0.batch === batch }) { fail("batch \(batch.number) goes before its members") }
            post(.batchRemoved(batch))
        case .announceEnd(let entry):
            endsUntold += 1
            checkTold(entry)
            post(.end(entry.number, entry.state.name, path: entry.record.path))
        case .allEnded:
            endsUntold = 0
            if ledger.counts.remaining != 0 { fail("AllEnded while \(ledger.counts.remaining) remain") }
        case .removed(let entry): post(.removed(entry.number))
        case .callOwner(let entry): post(.callOwner(entry))
        case .showOwed(let owed): toasts = owed
        case .stretchEnded(let call): post(.manyDone(call))
        }
    }

    mutating func release() {
        while entering == nil, let item = journal.next() {
            done(item)
            let actions = todo
            todo = []
            for action in actions { carryOut(action) }
        }
    }

    private mutating func done(_ item: Waiting) {
        switch item {
        case .addition(let entry):
            if saved.records[entry.number] == nil { fail("\(entry.number) is acknowledged and not on disk") }
            acknowledged.insert(entry.number)
            decide(.saved(entry))
        case .batch(let batch, let entries):
            if saved.batches[batch.number] == nil { fail("batch \(batch.number) is acknowledged and not on disk") }
            for entry in entries where !entry.isRemoved {
                if saved.records[entry.number] == nil { fail("\(entry.number) is acknowledged and not on disk") }
                acknowledged.insert(entry.number)
            }
            entering = (batch, entries, 0)
            enterSome()
        case .batchEnd(let batch, let outcomes):
            if let toast = batch.owedToast { toasts.append(toast) }
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
            if let toast = ledger[number]?.owedToast { toasts.append(toast) }
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
        case .commit(let number):
            if saved.records[number]?.state != .committing, ledger[number]?.state == .committing {
                fail("\(number) is given its name before that is on disk")
            }
            pool.append(.commit(number))
        case .start(let entry):
            delayed.remove(entry.number)
            if entry.work == .running {
                start(entry)
            } else {
                decide(.transferEnded(entry.number, .stopped(entry.record.resume)))
            }
        case .permit(let id): permit(id)
        case .sweep(let number): pool.append(.sweep(number))
        case .callOwner(let entry): asked.append(entry)
        case .manyDone(let call): checkDone(call)
        case .allPaused: if ledger.settings.paused { isPausedForGood = true }
        case .taken(let number, let revival):
            tell("told: \(number) is acknowledged")
            taken[number] = revival
        }
    }

    private mutating func permit(_ id: RequestID) {
        let number = id.download
        guard transfers[number]?.id == id, transfers[number]?.isStopping == false else { return }
        if transfers[number]?.awaits != true { fail("\(number) may go on, and did not ask") }
        transfers[number]?.awaits = false
        transfers[number]?.hasSent = false
    }

    /// Calls the next owner, if the call is still due.
    mutating func callOwner() {
        guard !asked.isEmpty else { return }
        let entry = asked.removeFirst()
        let number = entry.number
        let isDue = ledger.owesCall(entry, now: now)
        decide(.ownerCalled(entry))
        guard isDue else { return }
        tell("the owner of \(number) is called")
        let revival = revivals[number, default: 0]
        if taken[number] == revival { fail("the owner of \(number) is called, which acknowledged it") }
        if !entry.state.hasEnded { fail("the owner of \(number) is called before its end") }
        if let record = saved.records[number], !record.state.hasEnded, revival == 0 {
            fail("the owner of \(number) is called, and on disk it is \(record.state.name)")
        }
        if saved.records[number] == nil { fail("the owner of \(number) is called, which is not on disk") }
        called[number] = entry.record.endedAt
    }

    // MARK: Toasts

    /// The notification server shows the next toast.
    mutating func showToast() {
        guard !toasts.isEmpty else { return }
        let toast = toasts.removeFirst()
        guard owed(toast.number) == toast else { return }
        tell("the toast of \(toast.number) is shown")
        if let row = end(saved, toast.number), row.end == toast.end, !row.isOwed {
            fail("the toast of \(toast.number) is shown, and its row does not owe it")
        }
        toasted[toast.number] = toast.end
        decide(.toastSettled(toast))
    }

    private func owed(_ number: DownloadNumber) -> Ledger.OwedToast? { ledger[number]?.owedToast ?? ledger.batch(number)?.owedToast }

    /// The end on disk, and whether its toast is owed.
    private func end(_ saved: Saved, _ number: DownloadNumber) -> (end: WallTime, isOwed: Bool)? {
        if let record = saved.records[number] { return record.endedAt.map { ($0, record.owesToast) } }
        return saved.batches[number]?.toastOwedSince.map { ($0, true) }
    }

    // MARK: Restart

    /// The process dies and another one starts. `power`: the machine restarts, too.
    mutating func restart(power: Bool) {
        endsUntold = 0
        tell(power ? "power cut" : "kill -9")
        // The commit in flight may or may not be on disk.
        if let inFlight, random.below(2) == 0 { for change in inFlight { saved.take(change, plant) } }
        if power {
            boot += 1
            for work in pool {
                switch work {
                case .renamed(let number, let path, let was) where random.below(2) == 0:
                    disk.parts[number] = disk.finals[path]
                    disk.finals[path] = was
                case .unlinked(let number, let file) where random.below(2) == 0: disk.parts[number] = file
                default: break
                }
            }
            disk.cutPower(&random)
        }
        (journal, inFlight, transfers, pool, delayed, sweeping, asked) = (JournalQueue(), nil, [:], [], [], [], [])
        (toasts, entering) = ([], nil)
        (validators, stamps) = ([:], [:])
        for number in descriptors { disk.parts[number] = nil }
        for (number, floor) in floors where saved.records[number]?.retryAt != floor { floors[number] = nil }
        (hostFloors, commonFloors, urgent, hastened, passes) = ([:], [:], [], [], [:])
        for record in saved.records.values {
            guard let time = record.retryAt, record.lastFailure?.retryAfter != nil, !record.state.hasEnded else { continue }
            let (host, app) = (record.lastFailure?.host ?? host(of: record), record.options.app)
            if time < now + RetryAfter.longest { hostFloors[host, default: [:]][app] = max(hostFloors[host]?[app] ?? time, time) }
            pauseEnds[host, default: [:]][app] = max(pauseEnds[host]?[app] ?? time, time)
        }
        nextNumber = max(saved.next, DownloadNumber((saved.records.keys.max()?.value ?? 0) + 1))
        if isPausedForGood, !saved.settings.paused { fail("PauseAll was answered, and its row is not on disk") }
        forgetUnsaved()
        (network, isAsleep, defying) = (random.below(4) == 0 ? nil : .open, false, [])
        (ledger, todo) = (Ledger(settings: saved.settings, network: network, jitter: .fixed(0.5)), [])
        ledger.sliceSize = sliceSize
        let restoration = Restoration(
            into: ledger, batches: Array(saved.batches.values), sweeps: saved.sweeps, requests: Array(saved.requests.values), now: now)
        var rest = Array(saved.records.values)[...]
        while !rest.isEmpty {
            let piece = rest.prefix(1 + random.below(rest.count))
            restoration.add(Array(piece), now: now)
            rest = rest.dropFirst(piece.count)
        }
        let restored = restoration.finish(now: now)
        for entry in ledger.entries.values where entry.state == .committing {
            pool.append(.find(entry.number))
            if plant == .twice { post(.end(entry.number, "finished", path: entry.record.path)) }
        }
        let oldest = now + (.zero - Limits.toastAge)
        for record in saved.records.values where record.owesToast {
            if let end = record.endedAt, end < oldest { stale[record.number] = end }
        }
        for batch in saved.batches.values { if let end = batch.toastOwedSince, end < oldest { stale[batch.number] = end } }
        decide(.begins(crashed: [], owed: restored.owedToasts))
    }
}
