internal import Assets
internal import DBus
internal import DownloadModel
internal import DownloadStore
internal import DownloaderInterface
internal import EventLoop
internal import Logging
internal import PartFiles
internal import Scheduling

/// Makes "acknowledged is durable" cheap: changes are committed in groups. Every message or effect that a change causes waits, in one
/// queue, until the change is on disk.
///
/// `CommitGate` decides which items wait and which are released; the journal adds the store, the loop and the bus. While nothing is
/// pending, a message is sent at once.
@BusActor final class Journal {
    private let store: Store
    private let log: Logger
    private let transmit: (Message) -> Void
    private(set) lazy var gate = CommitGate(host: self)
    private let hold: IdleExit.Hold
    /// When the commit in flight began.
    private var committingSince: SuspendingClock.Instant?
    private var commitWatch: Poller.Token?
    /// The store is being closed: changes from now on are not saved.
    private var isEnded = false
    /// The number of the next download; saved with every commit.
    var nextNumber: DownloadNumber
    private let scheduler: Scheduler
    private let assets: AssetUpdater
    /// The path where a damaged database was set aside, by this process or an earlier one; empty: there is no such file.
    private(set) var setAside: String
    /// The result of salvaging a damaged database, at this startup or an earlier one.
    private(set) var salvaged = SalvageReport()
    private weak var observer: (any JournalObserver)?
    private var owesRecovery = false
    /// Whether a commit has begun since the store's last housekeeping.
    private var owesRest = false
    private let unsentBytes: () -> Int
    private let memory = MemoryRelease()

    /// - Parameters:
    ///   - scheduler: has all rows of downloads, for a new database if the old one is damaged.
    ///   - assets: has the rows of assets, for the same.
    ///   - hold: held while a change is not on disk yet, or any item waits for it.
    ///   - unsentBytes: the bytes that the bus has not taken yet.
    init(
        store: Store, _ opening: StoreOpening, scheduler: Scheduler, assets: AssetUpdater, hold: IdleExit.Hold, log: Logger,
        unsentBytes: @escaping () -> Int, send: @escaping (Message) -> Void
    ) {
        (self.store, nextNumber, self.scheduler, self.assets) = (store, opening.nextNumber, scheduler, assets)
        (self.hold, self.log) = (hold, log)
        (self.unsentBytes, transmit, setAside) = (unsentBytes, send, opening.setAside ?? "")
        if opening.setAside != nil {
            salvaged = SalvageReport(
                downloads: opening.salvaged?.downloads ?? 0, mayHaveLost: opening.salvaged?.mayHaveLost ?? true)
        }
    }

    /// Call before the first change.
    func begin(telling observer: any JournalObserver) {
        self.observer = observer
        releaseMemoryLater()
    }

    /// With more unsent bytes than this, messages about many downloads wait.
    private static let manyUnsent = 32 << 10
    /// Whether the bus has much unsent data.
    var isBehind: Bool { unsentBytes() > Self.manyUnsent }

    /// With this many items waiting for a commit, mergeable signals are merged, because the disk is too slow, or does not answer.
    private static let manyWaiting = 20_000
    /// The most items that may wait after a failed commit. Further calls that need a commit are refused.
    private static let mostWaiting = 10_000

    /// A commit that takes this long counts as failing.
    private static let slow: Duration = .seconds(5)
    /// How long a caller waits for a commit: less than callers wait for an answer (25 s).
    private static let patience: Duration = .seconds(15)

    private func commitHasTaken(_ time: Duration) -> Bool { committingSince.map { .now - $0 >= time } ?? false }

    private var isFailing: Bool { gate.failures > 0 || commitHasTaken(Self.slow) }

    /// Whether to merge property changes until `onRecovery`, because commits fail or too many items wait.
    func gathers() -> Bool {
        guard isFailing || gate.isCommitting && gate.waitingCount > Self.manyWaiting else { return false }
        owesRecovery = true
        return true
    }

    /// Whether changes of the queue must be refused: commits fail and too many items wait, or the disk does not answer.
    var isFull: Bool {
        guard commitHasTaken(Self.patience) || isFailing && gate.waitingCount >= Self.mostWaiting else { return false }
        owesRecovery = true
        return true
    }

    var refusal: Refusal {
        commitHasTaken(Self.patience)
            ? Refusal(.storage, "The queue cannot be saved: its disk has not answered for \(Self.patience.components.seconds) seconds.")
            : Refusal(.storage, "The queue cannot be saved, and too many calls wait for it; make room on its disk.")
    }

    /// The cached copy of `key`, as committed.
    func copy(for key: CopyKey) async -> CachedCopy? { await store.copy(for: key) }

    /// Sends `message` after all changes appended so far are on disk, and after all messages posted before it.
    func post(_ message: Message?) { if let message { gate.post(message) } }

    /// Sends `message` like `post(_:)`. Progress signals of `number` follow it.
    func post(_ message: Message, before number: DownloadNumber) { gate.post(message, before: number) }

    /// Posts `count` messages, which are sent in slices: `make(i)` makes the message about the download `first` + i at its turn. Progress
    /// signals of these downloads follow.
    func postSeries(about first: DownloadNumber, count: Int, _ make: @escaping (Int) -> Message) {
        gate.postSeries(about: first, count: count, make)
    }

    /// Whether progress signals of `number` must wait for a posted message.
    func holdsProgress(of number: DownloadNumber) -> Bool { gate.holdsProgress(of: number) }

    /// Sends `message`, which states nothing durable: at once, or behind a posted message that it must follow.
    func tell(_ message: Message, of number: DownloadNumber) {
        if holdsProgress(of: number) { post(message, before: number) } else { send(message) }
    }

    /// Answers a call after all changes appended so far are on disk; with `Storage` if they cannot be saved.
    func answer<Out>(_ reply: Reply<Out>, _ out: Out) {
        if gate.isClear { return reply(out) }
        if isFull { return reply.fail(refusal) }
        gate.post(success: { reply.message(out) }, failure: { reply.message(failing: $0) })
    }

    /// Answers a call whose own changes are on disk, after all messages posted before. If later changes cannot be saved, the answer is sent
    /// without them.
    func answerSaved(_ answer: Message?) {
        guard let answer else { return }
        if gate.isClear { send(answer) } else { gate.post(success: { answer }, failure: { _ in answer }) }
    }

    /// Answers a call with `Storage` if the changes appended so far cannot be saved. Otherwise, an effect that waits for them answers it.
    func failIfUnsaved<Out>(_ reply: Reply<Out>) {
        if isFull { return reply.fail(refusal) }
        if !gate.isClear { gate.post(success: { nil }, failure: { reply.message(failing: $0) }) }
    }

    /// Answers a call that waits for an end, and has come after it.
    ///
    /// - Parameter isHeld: the signals of the end still wait, and the answer follows them.
    func answerEnd<Out>(_ reply: Reply<Out>, isHeld: Bool, _ answer: @autoclosure () -> Message?) {
        if !isHeld {
            if let message = answer() { send(message) }
        } else if isFull {
            // Such an answer waits until the disk has room, so a caller that repeats its call could fill the queue.
            reply.fail(refusal)
        } else {
            post(answer())
        }
    }

    /// Whether an answer with the end of `number`, a download or batch, must wait, because the end is not on disk yet. No answer waits
    /// while commits fail.
    ///
    /// - Precondition: `number` has ended in memory.
    func holdsEnd(of number: DownloadNumber) -> Bool { !gate.isClear && !isFailing && gate.isWaiting(number) }

    /// Answers a call that only reads. The answer may contain an end that is not on disk yet: `holdsEnd`.
    func answerRead(_ answer: Message?, holdingEnd: Bool) {
        guard let answer else { return }
        if holdingEnd { gate.postRead(answer) } else { send(answer) }
    }

    /// Runs `effect` after all changes appended so far are on disk.
    func afterCommit(_ effect: @escaping () -> Void) { gate.afterCommit(effect) }

    /// Writes a long answer in steps, so that other calls are handled in between. Until the answer is sent, all other messages wait. They
    /// may report changes since an earlier step, and clients take an answer to include every signal sent before it. Callers take turns.
    ///
    /// - Parameter step: writes for a few milliseconds. Returns true when it has sent the answer.
    /// - Throws: `LimitExceeded` if too many long answers wait for the caller, or for all callers together.
    func write(for call: PendingCall, _ step: @escaping () -> Bool) throws(Refusal) {
        let holder = call.holder
        guard gate.waitingAnswers(of: holder) < Limits.longAnswersPerCaller else {
            throw Refusal(
                .limitExceeded,
                "\(Limits.longAnswersPerCaller) long answers of this caller wait already; wait for one before you ask for another.")
        }
        guard gate.waitingAnswers < Limits.longAnswers else {
            throw Refusal(.limitExceeded, "\(Limits.longAnswers) long answers wait already; wait for one before you ask for another.")
        }
        gate.write(for: holder, step)
    }

    /// Stops saving. If work ends after this call, such as the deletion of a part file, the next start finds that the work is done.
    func end() { isEnded = true }

    private func commit() async {
        guard !isEnded, let changes = gate.beginCommit() else { return }
        owesRest = true
        committingSince = .now
        watchCommit()
        do {
            try await save(changes)
            gate.commitSucceeded()
        } catch {
            log.error("the queue could not be saved", metadata: ["cause": "\(error)", "changes": "\(changes.count)"])
            gate.commitFailed(Refusal(.storage, "The queue could not be saved: \(error)"))
        }
        committingSince = nil
        if let commitWatch { Poller.shared.cancel(commitWatch) }
        commitWatch = nil
        gate.release()
        if gate.failures == 0, owesRecovery {
            owesRecovery = false
            observer?.commitsSucceedAgain()
        }
        gate.commitIsOver()
    }

    private func releaseMemoryLater() { memory.later { [self] in !scheduler.hasWork } }

    /// Lets the store do its housekeeping now that no caller has to wait for it.
    private func rest() {
        owesRest = false
        BusActor.spawn { [self] in
            await store.tidy()
            if !scheduler.hasWork {
                trimHeap()
                releaseMemoryLater()
            }
            let aside = setAside
            guard !aside.isEmpty, await store.isGone(aside), setAside == aside else { return }
            setAside = ""
            observer?.setAsideChanged()
        }
    }

    /// All rows, in parts. Gathered in steps, so that calls are answered in between.
    private func allRows() async -> [[StoreChange]] {
        var (walk, parts, step) = (scheduler.walkRows(), [[StoreChange]](), StepTime())
        while let part = scheduler.nextRows(&walk) {
            parts.append(part)
            guard step.isOver else { continue }
            await Task.yield()
            step = StepTime()
        }
        return parts
    }

    /// Commits. If the database is damaged or gone, sets it aside, and saves all rows that this process has in memory in a new one.
    private func save(_ changes: [StoreChange]) async throws(StoreError) {
        do throws(StoreError) {
            try await store.commit(changes, nextNumber: nextNumber)
        } catch {
            guard error.reason == .damaged else { throw error }
            log.error("the database was damaged: writing a new one", metadata: ["cause": "\(error)"])
            gate.owesEverything = true
            // The order matters: a row of `changes` may be older than the same row of `rows`, and a change made since then is newer.
            let rows = await allRows() + [assets.rows]
            let aside = try await store.startAnew([changes] + rows + [gate.extendCommit()], nextNumber: nextNumber)
            gate.owesEverything = false
            (setAside, salvaged) = (aside ?? "", SalvageReport())
            observer?.setAsideChanged()
        }
    }

    private func watchCommit() {
        commitWatch = Poller.shared.schedule(after: Self.patience) { [self] in
            // The machine may have slept meanwhile.
            if commitHasTaken(Self.patience) { loseWaiting() } else { watchCommit() }
        }
    }

    /// The commit has not returned. It may still succeed once the disk answers.
    private func loseWaiting() {
        log.error("the queue cannot be saved: its disk does not answer", metadata: ["waiting": "\(gate.waitingCount)"])
        gate.commitHangs(refusal)
    }
}

extension Journal: CommitGateHost {
    func send(_ message: Message) { transmit(message) }

    func later(_ work: CommitGateWork) {
        switch work {
        case .commit: BusActor.spawn { [self] in await commit() }
        case .retriedCommit:
            // A call that arrives meanwhile is answered well before its caller gives up (25 s).
            let seconds = min(5, 1 << min(gate.failures - 1, 3))
            Poller.shared.schedule(after: .seconds(seconds)) { [self] in BusActor.spawn { [self] in await commit() } }
        case .release, .writing: BusActor.spawn { [self] in gate.perform(work) }
        case .crowdedRelease: Poller.shared.schedule(after: .milliseconds(2)) { [self] in gate.perform(work) }
        }
    }

    func beginStep() -> StepTime { StepTime() }

    func gateIsBusy(_ isBusy: Bool) {
        hold.isHeld = isBusy
        // A long answer may still have been written when the commit ended.
        if !isBusy, owesRest { rest() }
    }
}

@BusActor protocol JournalObserver: AnyObject {
    /// A damaged database was set aside, or a database that was set aside is gone.
    func setAsideChanged()
    /// A commit has succeeded, the first since `gathers` or `isFull` was true.
    func commitsSucceedAgain()
}
