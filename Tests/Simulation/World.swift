// SPDX-License-Identifier: Apache-2.0
import DownloadModel

/// What waits for a commit.
enum Waiting {
    case addition(LedgerEntry)
    case end(DownloadNumber, String, path: String?)
    case removed(DownloadNumber)
    case start(LedgerEntry)
    case commit(DownloadNumber)
    case sweep(DownloadNumber)
}

/// What the store has on disk.
struct Saved {
    var records: [DownloadNumber: DownloadRecord] = [:]
    var settings = Settings()
    var sweeps: [DownloadNumber: String] = [:]
    var next = DownloadNumber(1)

    mutating func take(_ change: StoreChange, _ plant: Plant?) {
        switch change {
        case .put(let record): records[record.number] = record
        case .remove(let number): records[number] = nil
        case .set(let settings): self.settings = settings
        case .sweep(let number, let directory): if plant != .forgetful { sweeps[number] = directory }
        case .swept(let number): sweeps[number] = nil
        }
    }
}

/// A transfer in the engine.
struct Transfer {
    var isStopping = false
    var hasBegun = false
    var version = 0
    var total: ByteCount = 0
    var validator: Validator?
    var heldAtStart: ByteCount = 0
    var checkpoint: ResumeData?
}

/// Work in the pool: first it changes the disk, then it is told.
enum Work {
    case verify(DownloadNumber)
    case commit(DownloadNumber)
    case find(DownloadNumber)
    case sweep(DownloadNumber)
    /// Renamed, the folder not flushed: a power cut may take it back.
    case renamed(DownloadNumber, path: String, was: File?)
    case unlinked(DownloadNumber, File)
    case tell((Ledger, WallTime) -> Void)
}

/// One process and the machine around it, under a seeded clock, network and disk.
struct World {
    static let directory = "/d"
    let plant: Plant?
    var tells = false
    /// The shrunk history stays the same: what is left to chance inside a step comes from the step.
    var random = Random(7)

    // The machine
    var now = WallTime(microseconds: 1_000_000_000_000_000)
    var boot = 1
    var disk = Disk()
    var saved = Saved()
    var resources = (0..<6).map { _ in Resource() }

    // The process
    var ledger: Ledger
    var journal = JournalQueue<Waiting>()
    var inFlight: [StoreChange]?
    var nextNumber = DownloadNumber(1)
    var transfers: [DownloadNumber: Transfer] = [:]
    var pool: [Work] = []
    /// Transfers that begin once the row is on disk.
    var delayed: Set<DownloadNumber> = []

    // What callers know
    var acknowledged: Set<DownloadNumber> = []
    var removals: Set<DownloadNumber> = []
    var endsTold: [DownloadNumber: Int] = [:]
    var revivals: [DownloadNumber: Int] = [:]
    var finishedPaths: [DownloadNumber: (path: String, version: Int?)] = [:]
    var floors: [DownloadNumber: WallTime] = [:]
    var wanted: [DownloadNumber: Int] = [:]
    /// What the ledger was told of the network and of sleep, and what somebody resumed in spite of the former.
    var network: NetworkCondition? = .open
    var isAsleep = false
    var defying: Set<DownloadNumber> = []
    var problem: String?
    var isEnding = false

    init(plant: Plant?) {
        self.plant = plant
        ledger = Ledger(settings: Settings()) { 0.5 }
        for index in resources.indices where index % 3 == 2 { resources[index].hasValidator = false }
    }

    mutating func fail(_ text: String) { if problem == nil { problem = text } }

    func tell(_ text: @autoclosure () -> String) { if tells { print("  " + text()) } }

    /// Lives through a history, lets everything come to its end, and says which invariant was violated.
    mutating func live(_ steps: [Step]) -> String? {
        for step in steps {
            random = Random(UInt64(step.a) << 32 | UInt64(step.b))
            happen(step)
            settle()
            if let wake = ledger.nextWake, wake <= now {
                ledger.tick(now: now)
                settle()
            }
            check()
            if let problem { return problem }
        }
        comeToAnEnd()
        return problem
    }

    // MARK: What the ledger wants

    /// Carries out what the ledger left to be done, as the service does.
    mutating func settle() {
        while true {
            let actions = ledger.takeActions()
            if actions.isEmpty { break }
            for action in actions { carryOut(action) }
        }
        release()
    }

    private mutating func post(_ item: Waiting) {
        if case .start(let entry) = item { delayed.insert(entry.number) }
        if journal.isClear || plant == .early { done(item) } else { journal.post(item) }
    }

    private mutating func carryOut(_ action: Ledger.Action) {
        switch action {
        case .save(let change): journal.append(change)
        case .startTransfer(let entry, let afterSave):
            checkStart(entry)
            if afterSave { post(.start(entry)) } else { start(entry) }
        case .stopTransfer(let entry):
            transfers[entry.number]?.isStopping = true
        case .verify(let entry): pool.append(.verify(entry.number))
        case .commit(let entry): post(.commit(entry.number))
        case .sweep(let number, _): post(.sweep(number))
        case .tell: break
        case .announceEnd(let entry): post(.end(entry.number, entry.state.name, path: entry.record.path))
        case .allEnded: if ledger.counts.remaining != 0 { fail("AllEnded while \(ledger.counts.remaining) remain") }
        case .removed(let entry): post(.removed(entry.number))
        }
    }

    mutating func release() {
        while let item = journal.next() {
            done(item)
            let actions = ledger.takeActions()
            for action in actions { carryOut(action) }
        }
    }

    private mutating func done(_ item: Waiting) {
        switch item {
        case .addition(let entry):
            if saved.records[entry.number] == nil { fail("\(entry.number) is acknowledged and not on disk") }
            acknowledged.insert(entry.number)
            ledger.enter(entry, now: now)
        case .end(let number, let outcome, let path):
            tell("told: \(number) \(outcome)")
            endsTold[number, default: 0] += 1
            if endsTold[number]! > 1 + revivals[number, default: 0] { fail("the end of \(number) is told twice") }
            // Where it was begun again since, the row may be a later one.
            if let record = saved.records[number], !record.state.hasEnded, revivals[number] == nil {
                fail("\(number) is told as \(outcome), and on disk it is \(record.state.name)")
            }
            if outcome == "finished", let path { finishedPaths[number] = (path, disk.finals[path]?.content.version) }
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
                ledger.transferEnded(entry.number, .stopped(entry.record.resume), now: now)
            }
        case .sweep(let number): pool.append(.sweep(number))
        }
    }

    // MARK: Life and death

    /// The process dies and another begins. `power`: the machine with it.
    mutating func restart(power: Bool) {
        tell(power ? "power cut" : "kill -9")
        // A commit in flight is on disk, or is not.
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
        (journal, inFlight, transfers, pool, delayed) = (JournalQueue(), nil, [:], [], [])
        for (number, floor) in floors where saved.records[number]?.retryAt != floor { floors[number] = nil }
        nextNumber = max(saved.next, DownloadNumber((saved.records.keys.max()?.value ?? 0) + 1))
        ledger = Ledger(settings: saved.settings) { 0.5 }
        (network, isAsleep, defying) = (random.below(4) == 0 ? nil : .open, false, [])
        ledger.network(network, now: now)
        ledger.restore(Array(saved.records.values), sweeps: saved.sweeps, now: now)
        for (number, entry) in ledger.entries where entry.state == .committing {
            pool.append(.find(number))
            if plant == .twice { post(.end(number, "finished", path: entry.record.path)) }
        }
        ledger.schedule(now: now)
    }
}
