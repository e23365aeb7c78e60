// SPDX-License-Identifier: Apache-2.0
import Assets
import DownloadModel
import Scheduling

/// The messages of the service to the bus.
enum Message {
    /// The answer to the call that added the download, or `DownloadAdded`.
    case added(DownloadNumber)
    /// The answer to the call that added the batch, or `BatchAdded`.
    case batchAdded(ScheduledBatch)
    case batchEnd(ScheduledBatch, OutcomeCounts)
    case batchRemoved(ScheduledBatch)
    case end(DownloadNumber, String, path: String?)
    case removed(DownloadNumber)
    /// The answer to a call that changed many downloads.
    case manyDone(Scheduler.CallNumber)
    /// The answer to PauseAll.
    case allPaused(resumes: Int)
    /// The answer to the owner's Acknowledge, for the end after that many revivals.
    case taken(DownloadNumber, revival: Int)
    /// The answer to a call about assets.
    case asset(AssetUpdater.CallNumber, AssetUpdater.Answer)
}

/// The work that the service has requested from its loop.
enum LoopWork {
    case slices
    case gate(CommitGateWork)
}

/// A transfer in the engine.
struct Transfer {
    var id: RequestID
    /// In the order in which they asked.
    var further: [FurtherRequest] = []
    var lastOrdinal: UInt32 = 0
    var isStopping = false
    /// The origin of the request; whether the request waits for permission, and whether it has gone out.
    var origin: String
    var host: String { DownloadURL.host(of: origin) }
    var awaits = false
    /// How often the transfer has asked for a permit under its current id.
    var question: UInt64 = 0
    var hasSent = false
    var isPaced: Bool
    var isStalled = false
    var hops = 0
    var hasBegun = false
    /// The response was accepted and the part file created; the scheduler was not told yet.
    var isUntold = false
    var version = 0
    var total: ByteCount = 0
    /// The size that the scheduler was told of; 0: none.
    var toldTotal: ByteCount { isUntold ? 0 : total }
    var validator: Validator?
    var heldAtStart: ByteCount = 0
    var checkpoint: ResumeData?
    /// Whether the current request may open no connection.
    var mustShare = false
    /// Whether the request that waits needs a connection of its own.
    var isAlone = false
    /// The HTTP/2 connection of the response that the scheduler was told of.
    var connection: UInt32?
    /// The place of the source that the transfer asks (`DownloadRecord.sourceURLs`).
    var source = 0
    /// The failures of the sources that the transfer has left, by place.
    var failures: [Int: DownloadFailure] = [:]
    /// Whether a response of this transfer has begun or continued the part file.
    var holds = false
    /// The mirror that the bytes in the part file belong to (`ResumeData.mirror`).
    var mirror: UInt32?
    /// The resume data of these bytes when the transfer left its last source.
    var begun: ResumeData?
    /// The bytes of the resume data when the transfer started.
    var heldBefore: ByteCount = 0
}

/// The delays that the refusals of one origin may cause.
struct Slowness {
    private static let longestInterval: Duration = .seconds(60)
    private static let firstInterval: Duration = .seconds(1)
    private static let trustAfter: Duration = .seconds(300)
    /// A counted refusal is remembered for at least this long after the end of its `Retry-After`.
    private static let memory: Duration = .seconds(3600)

    /// The longest interval between two requests.
    private(set) var interval: Duration = .zero
    /// The end of the longest pause that was requested from each application, and of the pause for the other applications.
    private var pauseEnds: [String: WallTime] = [:]
    private var commonEnd: WallTime?
    private var refusedAt: WallTime?
    private var hasAnswered = false
    /// The origin refused again after an answer had restored the first interval: the next answers need not restore it.
    private var mayBeLimited = false
    /// The downloads that have certainly slowed the origin, and that it has not answered since. Until the instant, their next refusals
    /// delay no other download.
    private var counted: [DownloadNumber: WallTime] = [:]
    /// Whether the first interval may be tried again now: then every refusal counts.
    private var mayProbe = false
    /// The number of answers since the last refusal that certainly lowered the interval to its first value, or found it there. The first
    /// of them lowers it.
    private var eased = 0

    /// - Parameters:
    ///   - requestedAt: when the refused request was permitted.
    ///   - isHeard: whether the scheduler certainly hears of the refusal.
    /// - Returns: whether the refusal may delay other downloads.
    mutating func refused(
        _ download: DownloadNumber, requestedAt: WallTime?, isHeard: Bool, until: WallTime, by app: String, now: WallTime
    ) -> Bool {
        if let end = counted[download], now < end, !mayProbe {
            if isHeard { counted[download] = max(end, until + Self.memory) }
            return false
        }
        // Of refusals of requests in flight at the same time, only the first one counts.
        if isHeard, let requestedAt, refusedAt.map({ requestedAt > $0 }) ?? true {
            counted[download] = until + Self.memory
            mayProbe = false
        }
        eased = 0
        mayBeLimited = mayBeLimited || hasAnswered
        interval = Self.longestInterval
        pause(until: until, by: app, now: now)
        return true
    }

    /// The origin may have answered a request of `download`.
    mutating func mayHaveAnswered(_ download: DownloadNumber) {
        counted[download] = nil
        (hasAnswered, mayProbe) = (true, true)
    }

    /// The next answer may lower the interval to that of the new rule.
    mutating func ruleChanged() { (eased, mayProbe) = (0, true) }

    /// A restart keeps the pause, and not the interval.
    mutating func isRecalled(until: WallTime, by app: String, now: WallTime) { pause(until: until, by: app, now: now) }

    private mutating func pause(until: WallTime, by app: String, now: WallTime) {
        pauseEnds[app] = max(pauseEnds[app] ?? until, until)
        commonEnd = now + OriginPace.longestForOthers
        refusedAt = now
    }

    /// The scheduler has heard of an answer that is no refusal. An answer to a request after the last refusal ends all pauses and restores
    /// the first interval.
    ///
    /// - Returns: whether the pauses end.
    mutating func answered(requestedAt: WallTime, ruled: Duration, now: WallTime) -> Bool {
        (hasAnswered, mayProbe) = (true, true)
        guard let refusedAt, requestedAt > refusedAt else { return false }
        (pauseEnds, commonEnd) = ([:], nil)
        if now - refusedAt > Self.trustAfter { mayBeLimited = false }
        guard !mayBeLimited else { return true }
        interval = min(interval, max(Self.firstInterval, ruled))
        // The first of these answers has restored the first interval. The second one ends the trial.
        eased += 1
        if eased > 1 { mayProbe = false }
        return true
    }

    /// The longest wait of `app` for the end of a pause.
    func pause(of app: String, now: WallTime) -> Duration {
        [pauseEnds[app], commonEnd].compactMap { $0.map { max(.zero, $0 - now) } }.max() ?? .zero
    }

    mutating func shift(by delta: Duration) {
        pauseEnds = pauseEnds.mapValues { $0 + delta }
        (commonEnd, refusedAt) = (commonEnd.map { $0 + delta }, refusedAt.map { $0 + delta })
        counted = counted.mapValues { $0 + delta }
    }
}

/// Work in the pool: each piece first changes the disk, then is reported.
enum Work {
    case verify(DownloadNumber)
    /// One part of an extraction; the rest follows.
    case unpack(DownloadNumber)
    case commit(DownloadNumber)
    case find(DownloadNumber)
    case sweep(DownloadNumber, String)
    /// Renamed, but the folder is not flushed: a power cut may undo the rename.
    case renamed(DownloadNumber, path: String, was: File?)
    case renamedFolder(DownloadNumber, path: String)
    case unlinked(DownloadNumber, String, File)
    case swept(DownloadNumber, String, isGone: Bool)
    case asset(AssetWork)
    case tell(Scheduler.Event)
}

/// One process and its machine, with a seeded clock, network and disk.
final class World {
    static let directory = "/d"
    static let apps = ["", "A", "B"]
    let plant: Plant?
    /// Servers answer with many redirects, at a host with a request interval. Every application that waits there must get its turn.
    let redirects: Bool
    /// Transfers make further requests, at a host that takes three requests at a time.
    let ranges: Bool
    let crowd: Setting.Crowd?
    /// Downloads have mirrors, and some sources send wrong bytes.
    let hasMirrors: Bool
    /// Further requests bring stretches of the file.
    let hasStretches: Bool
    var tells = false
    /// Seeded by each step, so that a step makes the same random choices in a shrunk history.
    var random = Random(7)
    /// Of each URL seen so far: every invariant asks for it, after every step.
    var places: [String: (origin: String, host: String)] = [:]

    // The machine
    var now = WallTime(microseconds: 1_000_000_000_000_000)
    var boot = 1
    var disk = Disk()
    var saved = Saved()
    var resources = (0..<6).map { _ in Resource() }
    /// In histories with assets: what outlasts the process, and the process.
    let assetMachine: AssetMachine?
    private(set) var assets: AssetHost?

    // The process
    private(set) lazy var gate = CommitGate(host: self)
    private(set) lazy var executor: TurnExecutor<World> = makeExecutor(
        Scheduler(settings: saved.settings, jitter: .fixed(0.5)))
    /// The scheduler of `executor`.
    private(set) lazy var scheduler: Scheduler = executor.scheduler
    /// The work of the loop, in order; whether a commit must begin; the alarm.
    var loop: [LoopWork] = []
    var isCommitDue = false
    var alarm: WallTime?
    /// The service must keep running, because a change is not on disk yet, or an item waits for a commit.
    var isHeld = false
    /// The bus has not taken the messages sent so far.
    var isBehind = false
    /// A long answer is being written.
    var isAnswering = false
    /// The last batch that was saved. Its members take their places in slices.
    var entering: ScheduledBatch?
    /// The commit in flight does not return; the scheduler must be told once commits succeed again.
    var isHanging = false
    var owesRecovery = false
    var inFlight: [StoreChange]?
    /// The commit in flight found the database lost: the rows of a new one.
    var anew: NewDatabase?
    var nextNumber = DownloadNumber(1)
    var transfers: [DownloadNumber: Transfer] = [:]
    var pool: [Work] = []
    /// Transfers that begin once their rows are on disk.
    var delayed: Set<DownloadNumber> = []
    /// The folders of part files to delete, from the order until the report of the deletion.
    var sweeping: [DownloadNumber: Set<String>] = [:]
    /// Extractions that must stop.
    var stopping: Set<DownloadNumber> = []
    /// Ends announced since the last `AllEnded`.
    var endsUntold = 0
    /// The servers' validators of whole bodies.
    var validators: [DownloadNumber: CopyValidators] = [:]
    /// The stamps of files before their rename.
    var stamps: [DownloadNumber: FileStamp] = [:]

    // The facts that callers know
    var acknowledged: Set<DownloadNumber> = []
    var removals: Set<DownloadNumber> = []
    var endsTold: [DownloadNumber: Int] = [:]
    var revivals: [DownloadNumber: Int] = [:]
    var batchEndsTold: [DownloadNumber: Int] = [:]
    var batchRevivals: [DownloadNumber: Int] = [:]
    var finishedPaths: [DownloadNumber: (path: String, version: Int?)] = [:]
    var floors: [DownloadNumber: WallTime] = [:]
    /// The end of the pause that an origin requested, by application: no earlier request may go there.
    var originFloors: [String: [String: WallTime]] = [:]
    /// As above for the other applications, with the start of the pause.
    var commonFloors: [String: (since: WallTime, until: WallTime)] = [:]
    /// The downloads that each origin has refused, and not answered since. If it refuses one of them again, others need not wait.
    var refusedDownloads: [String: Set<DownloadNumber>] = [:]
    /// The delays that each origin may cause. An origin that has refused nothing may delay nothing.
    var slowness: [String: Slowness] = [:]
    /// When the scheduler permitted the last request of each download.
    var requestedAt: [DownloadNumber: WallTime] = [:]
    /// For each application that waits for its turn at a paced host: the turns that each other application has had meanwhile.
    var passes: [String: [String: [String: Int]]] = [:]
    /// Downloads that a person wants at once.
    var urgent: Set<DownloadNumber> = []
    /// The urgent downloads that no server has refused since.
    var hastened: Set<DownloadNumber> = []
    /// The members of batches whose Resume may not have reached all members yet.
    var resuming: Set<DownloadNumber> = []
    /// Started before the rules changed: their requests keep the old rules.
    var unpaced: Set<DownloadNumber> = []
    /// The time of the last request that kept the host's interval, or an interval of its own.
    var lastSent: [String: WallTime] = [:]
    var wanted: [DownloadNumber: Int] = [:]
    /// The sources of each download that alone have brought a whole and wrong file, by place (`DownloadRecord.sourceURLs`).
    var guilty: [DownloadNumber: Set<Int>] = [:]
    /// The sources with wrong bytes in the rows that this process has read, by place. A fresh link, or a retry that forgives all, removes
    /// them.
    var blamed: [DownloadNumber: Set<Int>] = [:]
    /// Finished files that another program has written or deleted.
    var strangers: Set<String> = []
    /// Downloads into descriptors, which are lost with the process.
    var descriptors: Set<DownloadNumber> = []
    /// Calls to owners, waiting for their turn.
    var asked: [ScheduledDownload] = []
    /// The end that the last call told the owner.
    var called: [DownloadNumber: WallTime] = [:]
    /// The number of revivals before the end whose Acknowledge was answered.
    var taken: [DownloadNumber: Int] = [:]
    /// Toasts that wait for the notification server; the last shown end of each download or batch, and the last end too old for a toast.
    var toasts: [Scheduler.OwedToast] = []
    var toasted: [DownloadNumber: WallTime] = [:]
    var stale: [DownloadNumber: WallTime] = [:]
    /// The network and sleep as reported to the scheduler, and the downloads resumed in spite of the network.
    var network: NetworkCondition? = .open
    var isAsleep = false
    var defying: Set<DownloadNumber> = []
    /// Downloads that the Resume of their batch may reach only now that they wait for this network. They may be resumed in spite of it.
    var mayDefy: Set<DownloadNumber> = []
    /// Calls that change many downloads, until they are answered or known to be lost.
    var many: [Scheduler.CallNumber: DoneToMany] = [:]
    var lastCall: Scheduler.CallNumber = 0
    /// Downloads cancelled while a CancelAll was under way, and by no other call.
    var cancelledByAll: Set<DownloadNumber> = []
    /// Downloads that were revived before their cancelled row was saved. If that row is saved later, it does not say which call it is from.
    var cancelledTwice: Set<DownloadNumber> = []
    /// PauseAll was answered, and ResumeAll has not been called since.
    var isPausedForGood = false
    /// The calls of ResumeAll so far.
    var resumes = 0
    /// The amount of work in one slice.
    var sliceSize = SliceSize()
    var problem: String?
    var isEnding = false

    init(_ setting: Setting) {
        (plant, redirects, ranges, crowd) = (setting.plant, setting.redirects, setting.ranges, setting.crowd)
        (hasMirrors, hasStretches) = (setting.mirrors, setting.stretches)
        assetMachine = setting.assets ? AssetMachine() : nil
        disk.hasStretches = hasStretches
        if ranges { try? saved.settings.hostRules.set("h0", HostRule(connections: 3)) }
        if redirects {
            saved.settings.maxActive = 0
            try? saved.settings.hostRules.set("h0", HostRule(requestInterval: .seconds(1)))
        }
        for index in resources.indices where index % 3 == 2 { resources[index].hasValidator = false }
        for index in resources.indices where index % 2 == 1 { resources[index].size = 3 * FileSize.leastLarge }
        switch crowd {
        case .sizes:
            saved.settings.maxPerHost = 0
            for index in resources.indices where index != 0 { resources[index].size = 3 * FileSize.leastLarge }
        case .connections: saved.settings.maxPerHost = 2
        case .rules:
            saved.settings.maxPerHost = 0
            for host in ["h0", "h1"] { try? saved.settings.hostRules.set(host, HostRule(connections: 2)) }
        case nil: break
        }
    }

    func fail(_ text: String) { if problem == nil { problem = text } }

    func tell(_ text: @autoclosure () -> String) { if tells { print("  " + text()) } }

    /// Runs a history, brings every download to its end, and returns the violated invariant.
    func live(_ steps: [Step]) -> String? {
        defer { gate.abandon() }
        if let assetMachine { beginWithAssets(assetMachine) }
        for step in steps {
            random = Random(UInt64(step.a) << 32 | UInt64(step.b))
            cutSlices(step)
            happen(step)
            ringAll()
            check()
            if let problem { return problem }
        }
        comeToAnEnd()
        return problem
    }

    /// Lets the scheduler decide on `events`; the executor performs its actions.
    ///
    /// - Returns: the reason of a refusal.
    @discardableResult func decide(_ events: Scheduler.Event...) -> IllegalTransition? { executor.decide(events) }

    /// The alarm rings if it is due.
    func ring() {
        guard let alarm, alarm <= now else { return }
        self.alarm = nil
        decide(.time)
    }

    /// Lets the clocks of downloads and of assets ring.
    func ringAll() {
        ring()
        assets?.ring()
    }

    private func beginWithAssets(_ machine: AssetMachine) {
        resources += (0..<(AssetMachine.keys.count * 3)).map { _ in Resource() }
        // A folder is named after the instant; only names of 16 digits are found again.
        now = WallTime(microseconds: 1_100_000_000_000_000)
        startAssets(machine, isLogin: true)
    }

    private func startAssets(_ machine: AssetMachine, isLogin: Bool) {
        let host = AssetHost(self, machine)
        assets = host
        host.begin(isLogin: isLogin)
    }

    /// Posts `message` behind all changes so far.
    func post(_ message: Message) { if plant == .early { send(message) } else { gate.post(message) } }

    /// Calls the next owner, if the call is still due.
    func callOwner() {
        guard !asked.isEmpty else { return }
        let entry = asked.removeFirst()
        let number = entry.number
        guard executor.beginOwnerCall(entry) else { return }
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
    func showToast() {
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

    private func owed(_ number: DownloadNumber) -> Scheduler.OwedToast? {
        scheduler[number]?.owedToast ?? scheduler.batch(number)?.owedToast
    }

    /// The end on disk, and whether its toast is owed.
    private func end(_ saved: Saved, _ number: DownloadNumber) -> (end: WallTime, isOwed: Bool)? {
        if let record = saved.records[number] { return record.endedAt.map { ($0, record.owesToast) } }
        return saved.batches[number]?.toastOwedSince.map { ($0, true) }
    }

    // MARK: Restart

    /// The process dies and another one starts. `power`: the machine restarts, too.
    func restart(power: Bool) {
        endsUntold = 0
        tell(power ? "power cut" : "kill -9")
        // The commit in flight may or may not be on disk.
        if let inFlight, anew == nil, random.below(2) == 0 { for change in inFlight { saved.take(change, plant) } }
        if power {
            boot += 1
            for work in pool {
                switch work {
                case .renamed(let number, let path, let was) where random.below(2) == 0:
                    disk.parts[number] = disk.finals[path]
                    disk.finals[path] = was
                case .renamedFolder(let number, let path) where random.below(2) == 0:
                    let file = disk.finals.removeValue(forKey: path)
                    disk.folders[number]?.file = file
                case .unlinked(let number, let directory, let file) where random.below(2) == 0:
                    disk.restore(file, of: number, in: directory)
                case .asset(let work): assetMachine?.cutPower(work, &disk, &random)
                default: break
                }
            }
            disk.cutPower(&random)
            assetMachine?.cutPower(&random)
        }
        (inFlight, anew, transfers, pool, delayed, sweeping, asked) = (nil, nil, [:], [], [], [:], [])
        (toasts, loop, isCommitDue, alarm, stopping) = ([], [], false, nil, [])
        isHeld = false
        (isAnswering, entering, isHanging, owesRecovery) = (false, nil, false, false)
        (validators, stamps) = ([:], [:])
        for number in descriptors { disk.parts[number] = nil }
        // A number without a row is given again.
        descriptors.formIntersection(saved.records.keys)
        for (number, floor) in floors where saved.records[number]?.retryAt != floor { floors[number] = nil }
        (originFloors, urgent, hastened, resuming, passes) = ([:], [], [], [], [:])
        // A recalled pause may be over, and yet its start tells when the other applications may be delayed again.
        commonFloors = commonFloors.mapValues { ($0.since, $0.since) }
        (slowness, requestedAt, refusedDownloads) = ([:], [:], [:])
        recallPauses()
        blamed = saved.blamed
        nextNumber = max(saved.next, DownloadNumber((saved.records.keys.max()?.value ?? 0) + 1))
        if isPausedForGood, !saved.settings.paused { fail("PauseAll was answered, and its row is not on disk") }
        forgetUnsaved()
        cancelledTwice = []
        (network, isAsleep, defying, mayDefy) = (random.below(4) == 0 ? nil : .open, false, [], [])
        gate.abandon()
        gate = CommitGate(host: self)
        executor = makeExecutor(Scheduler(settings: saved.settings, network: network, jitter: .fixed(0.5)))
        scheduler = executor.scheduler
        executor.enteredAtOnce = sliceSize.portion
        scheduler.sliceSize = sliceSize
        let restoration = Restoration(
            into: scheduler, batches: Array(saved.batches.values), sweeps: saved.sweeps, requests: Array(saved.requests.values), now: now)
        var rest = Array(saved.records.values)[...]
        while !rest.isEmpty {
            let piece = rest.prefix(1 + random.below(rest.count))
            restoration.add(Array(piece), now: now)
            rest = rest.dropFirst(piece.count)
        }
        let restored = restoration.finish(now: now)
        for entry in scheduler.entries.values { disk.turn(entry.number, to: entry.record.directory) }
        for entry in scheduler.entries.values where entry.state == .extracting { pool.append(.unpack(entry.number)) }
        for entry in scheduler.entries.values where entry.state == .committing {
            pool.append(.find(entry.number))
            if plant == .twice { post(.end(entry.number, "finished", path: entry.record.path)) }
        }
        let oldest = now + (.zero - Limits.toastAge)
        for record in saved.records.values where record.owesToast {
            if let end = record.endedAt, end < oldest { stale[record.number] = end }
        }
        for batch in saved.batches.values { if let end = batch.toastOwedSince, end < oldest { stale[batch.number] = end } }
        assets = nil
        decide(.begins(crashed: [], owed: restored.owedToasts))
        guard let assetMachine else { return }
        assetMachine.unanswered = []
        if power { assetMachine.session += 1 }
        startAssets(assetMachine, isLogin: power || random.below(8) == 0)
    }
}
