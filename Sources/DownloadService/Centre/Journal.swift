internal import DBus
internal import DownloadModel
internal import DownloadStore
internal import EventLoop
internal import Logging
internal import PartFiles
internal import Scheduling

/// Makes "acknowledged is durable" cheap: changes are committed in groups. Every message or effect that a change causes waits, in one
/// queue, until the change is on disk.
///
/// `JournalQueue` keeps the order; the journal adds the store, the loop and the messages. While nothing is pending, a message is sent at
/// once.
@BusActor final class Journal {
    private enum Item {
        case message(Message)
        /// One of many messages: built when it is sent.
        case late(() -> Message)
        /// Answers a call; with the error if the commit fails.
        case reply(success: () -> Message?, failure: (Refusal) -> Message?)
        /// A new download, or a batch with its members: announced when the rows are on disk, taken back if the commit fails.
        /// `enter`: runs in steps once `done` has run, until it returns true.
        case addition([DownloadNumber], done: () -> Void, enter: (() -> Bool)?, undo: (Refusal) -> Message?)
        case effect(() -> Void)
    }

    private let store: Store
    private let send: (Message) -> Void
    private let log: Logger
    private var queue = JournalQueue<Item>() { didSet { hold.isHeld = isBusy } }
    private let hold: Residence.Hold
    private var isScheduled = false
    private var failures = 0
    /// When the commit in flight began.
    private var committingSince: SuspendingClock.Instant?
    private var commitWatch: Poller.Token?
    /// For each download, the last waiting item that its progress signals must follow.
    private var marks = NumberTable<JournalQueue<Item>.Mark>()
    /// The database was lost, and the new one does not hold everything yet. Saving is retried even without changes.
    private var owesEverything = false { didSet { hold.isHeld = isBusy } }
    /// The store is being closed: changes from now on are not saved.
    private var isEnded = false
    /// The number of the next download; saved with every commit.
    var nextNumber: DownloadNumber
    private weak var owner: (any JournalOwner)?
    private var owesRecovery = false
    private var isReleasing = false
    /// The steps of long answers that are not sent yet (`write`).
    private var writings: [() -> Bool] = [] { didSet { hold.isHeld = isBusy } }
    /// Whether the first of `writings` has begun.
    private var isWriting = false
    /// Whether `writeSome` is called in another turn of the loop.
    private var isStepDue = false
    private let unsentBytes: () -> Int

    /// - Parameters:
    ///   - hold: held while a change is not on disk yet, or anything waits for it.
    ///   - unsentBytes: the bytes that the bus has not taken yet.
    init(
        store: Store, nextNumber: DownloadNumber, hold: Residence.Hold, log: Logger, unsentBytes: @escaping () -> Int,
        send: @escaping (Message) -> Void
    ) {
        (self.store, self.nextNumber, self.hold, self.log) = (store, nextNumber, hold, log)
        (self.unsentBytes, self.send) = (unsentBytes, send)
    }

    /// Call before the first change.
    func begin(for owner: any JournalOwner) { self.owner = owner }

    /// With more unsent bytes than this, messages about many downloads wait.
    private static let manyUnsent = 32 << 10
    /// Whether the bus has much unsent data.
    var isBehind: Bool { unsentBytes() > Self.manyUnsent }

    /// With this many items waiting for a commit, signals that can be merged are merged: the disk is too slow, or does not answer.
    private static let manyWaiting = 20_000
    /// The most items that may wait after a failed commit. Further calls that need a commit are refused.
    private static let mostWaiting = 10_000

    /// A commit that takes this long counts as failing.
    private static let slow: Duration = .seconds(5)
    /// How long a caller waits for a commit: less than callers wait for an answer (25 s).
    private static let patience: Duration = .seconds(15)

    private func commitHasTaken(_ time: Duration) -> Bool { committingSince.map { .now - $0 >= time } ?? false }

    private var isFailing: Bool { failures > 0 || commitHasTaken(Self.slow) }

    /// Whether to merge property changes until `onRecovery`, because commits fail or too many items wait.
    func gathers() -> Bool {
        guard isFailing || queue.isCommitting && queue.waitingCount > Self.manyWaiting else { return false }
        owesRecovery = true
        return true
    }

    /// Whether changes of the queue must be refused: commits fail and too many items wait, or the disk does not answer.
    var isFull: Bool {
        guard commitHasTaken(Self.patience) || isFailing && queue.waitingCount >= Self.mostWaiting else { return false }
        owesRecovery = true
        return true
    }

    var refusal: Refusal {
        commitHasTaken(Self.patience)
            ? Refusal(.storage, "The queue cannot be saved: its disk has not answered for \(Self.patience.components.seconds) seconds.")
            : Refusal(.storage, "The queue cannot be saved, and too many calls wait for it; make room on its disk.")
    }

    /// Whether a change is not on disk yet, or anything waits for it.
    var isBusy: Bool { queue.isBusy || owesEverything || !writings.isEmpty }

    /// Whether a message posted now would be sent at once.
    private var isClear: Bool { queue.isClear && !isWriting }

    /// The cached copy of `key`, as committed.
    func copy(for key: CopyKey) async -> CopyHeld? { await store.copy(for: key) }

    /// Appends a change. It replaces an earlier change of the same row that is not in flight.
    func append(_ change: StoreChange) {
        queue.append(change)
        schedule()
    }

    /// Appends a new batch and its members.
    func append(_ batch: BatchRecord, _ members: [LedgerEntry]) {
        append(.addBatch(batch, members.map(\.record)))
    }

    /// The changes appended last add `numbers`. When these changes are on disk, `done` runs and answers the call. If they cannot be saved,
    /// `undo` takes everything back and returns the answer, which is sent at once.
    ///
    /// - Parameter enter: called after `done`, in turns of the loop, until it returns true. No message is sent before.
    func addition(
        of numbers: [DownloadNumber], done: @escaping () -> Void, enter: (() -> Bool)? = nil,
        undo: @escaping (Refusal) -> Message?
    ) {
        queue.post(.addition(numbers, done: done, enter: enter, undo: undo))
    }

    /// Sends `message` after all changes appended so far are on disk, and after all messages posted before it.
    func post(_ message: Message?) {
        guard let message else { return }
        if isClear { send(message) } else { queue.post(.message(message)) }
    }

    /// Sends `message` like `post(_:)`. Progress signals of `number` follow it.
    func post(_ message: Message, before number: DownloadNumber) {
        if isClear { return send(message) }
        marks[number] = queue.post(.message(message))
    }

    /// Posts one of many messages, which are sent in slices: `message` is built at its turn, and never sent at once. Progress signals of
    /// `number` follow it.
    func postLate(before number: DownloadNumber, _ message: @escaping () -> Message) {
        marks[number] = queue.post(.late(message))
        releaseSoon()
    }

    /// Whether progress signals of `number` must wait for a posted message.
    func holdsProgress(of number: DownloadNumber) -> Bool {
        if isWriting { return true }
        guard let mark = marks[number] else { return false }
        if queue.isWaiting(mark) { return true }
        marks[number] = nil
        return false
    }

    /// Sends `message`, which states nothing durable: at once, or behind a posted message that it must follow.
    func tell(_ message: Message, of number: DownloadNumber) {
        if holdsProgress(of: number) { post(message, before: number) } else { send(message) }
    }

    /// Answers a call after all changes appended so far are on disk; with `Storage` if they cannot be saved.
    func answer<Out>(_ reply: Reply<Out>, _ out: Out) {
        if isClear { return reply(out) }
        if isFull { return reply.fail(refusal) }
        queue.post(.reply(success: { reply.message(out) }, failure: { reply.message(failing: $0) }))
    }

    /// Runs `effect` after all changes appended so far are on disk.
    func afterCommit(_ effect: @escaping () -> Void) {
        if isClear, !owesEverything { effect() } else { queue.post(.effect(effect)) }
    }

    /// Most answers that wait to be written.
    private static let mostWritings = 1000

    /// Writes a long answer in steps, so that other calls are answered in between. Until it is sent, all other messages wait: they may tell
    /// of changes since an earlier step, and the answer must not look newer than they do.
    ///
    /// - Parameter step: writes for a few milliseconds. Returns true when it has sent the answer.
    func write(_ step: @escaping () -> Bool) throws(Refusal) {
        guard writings.count < Self.mostWritings else {
            throw Refusal(.limitExceeded, "\(Self.mostWritings) long answers wait already; wait for one before you ask for another.")
        }
        writings.append(step)
        if writings.count == 1 { writeSome() }
    }

    /// Holds all messages back until `step` has returned true. It is called in turns of the loop.
    ///
    /// - Precondition: it is called while a message is released, so no answer is being written.
    private func holdBack(until step: @escaping () -> Bool) {
        writings.insert(step, at: 0)
        writeSoon()
    }

    /// Continues `writeSome` in another turn of the loop.
    private func writeSoon() {
        guard !isStepDue else { return }
        isStepDue = true
        BusActor.spawn { [self] in
            isStepDue = false
            writeSome()
        }
    }

    private func writeSome() {
        isWriting = true
        if writings[0]() {
            isWriting = false
            writings.removeFirst()
            // Messages that have waited for this answer go before the next one.
            release()
        }
        if !writings.isEmpty { writeSoon() }
    }

    /// Stops saving. Work that ends later, such as the deletion of a part file, is found done at the next start.
    func end() { isEnded = true }

    /// Commits at the end of this turn of the loop, so that a burst of calls shares one commit.
    private func schedule() {
        guard !queue.isCommitting, !isScheduled else { return }
        isScheduled = true
        BusActor.spawn { [self] in
            isScheduled = false
            await commit()
        }
    }

    private func commit() async {
        guard !isEnded, let changes = queue.begin(isDue: owesEverything) else { return }
        committingSince = .now
        watchCommit()
        do {
            try await save(changes)
            failures = 0
            queue.succeeded()
        } catch {
            failures += 1
            log.error("the queue could not be saved", metadata: ["cause": "\(error)", "changes": "\(changes.count)"])
            giveUp(Refusal(.storage, "The queue could not be saved: \(error)"))
        }
        committingSince = nil
        if let commitWatch { Poller.shared.cancel(commitWatch) }
        commitWatch = nil
        release()
        if failures == 0, owesRecovery {
            owesRecovery = false
            owner?.commitsSucceedAgain()
        }
        if queue.isClear { marks = NumberTable() }
        if queue.hasChanges || owesEverything { failures == 0 ? schedule() : retryLater() } else if !isBusy { rest() }
    }

    /// Lets the store do its housekeeping now that no caller has to wait for it.
    private func rest() {
        BusActor.spawn { [store] in await store.tidy() }
    }

    /// Commits. If the database is damaged or gone, sets it aside, and saves everything that this process knows in a new one.
    private func save(_ changes: [StoreChange]) async throws(StoreError) {
        do throws(StoreError) {
            try await store.commit(changes, nextNumber: nextNumber)
        } catch {
            guard error.reason == .damaged else { throw error }
            log.error("the database was damaged: writing a new one", metadata: ["cause": "\(error)"])
            owesEverything = true
            // `everything` goes last: a row of `changes` may be older.
            let aside = try await store.startAnew(changes + (owner?.everything ?? []), nextNumber: nextNumber)
            owesEverything = false
            owner?.databaseWasSetAside(aside ?? "")
        }
    }

    /// Most items in one turn of the loop.
    private static let portion = 200

    /// Sends the messages and starts the effects whose changes are on disk. What effects post meanwhile goes to the end of the queue.
    private func release() {
        // While a long answer is written, nothing is released: `writeSome` calls this again.
        var left = Self.portion
        let step = StepTime()
        while !isWriting, let item = queue.next() {
            switch item {
            case .message(let message): send(message)
            case .late(let make): send(make())
            case .reply(let success, _): if let message = success() { send(message) }
            case .addition(_, let done, let enter, _):
                // The messages that `done` posts wait for `enter`, too.
                if enter != nil { isWriting = true }
                done()
                guard let enter else { break }
                if !enter() { return holdBack(until: enter) }
                isWriting = false
            case .effect(let effect): effect()
            }
            left -= 1
            guard left > 0, !step.isOver else { return releaseSoon() }
        }
    }

    /// Continues `release` in another turn of the loop.
    private func releaseSoon() {
        guard !isReleasing else { return }
        isReleasing = true
        let more: @BusActor @Sendable () -> Void = { [self] in
            isReleasing = false
            release()
        }
        // While the bus has not taken the messages sent so far, answers to other callers would wait behind more.
        if isBehind { Poller.shared.schedule(after: .milliseconds(2), more) } else { BusActor.spawn { more() } }
    }

    /// After a failed commit: undoes additions, answers calls with the error, and keeps all other changes for the retry.
    private func giveUp(_ refusal: Refusal) {
        var answers: [() -> Message?] = []
        queue.failed { Self.fate(of: $0, refusal, &answers) }
        for answer in answers { if let message = answer() { send(message) } }
    }

    private func watchCommit() {
        commitWatch = Poller.shared.schedule(after: Self.patience) { [self] in
            // The machine may have slept meanwhile.
            if commitHasTaken(Self.patience) { loseWaiting() } else { watchCommit() }
        }
    }

    /// The commit has not returned: undoes the additions that wait for it, and answers the waiting calls with the error. Whether the commit
    /// succeeds shows once the disk answers.
    private func loseWaiting() {
        log.error("the queue cannot be saved: its disk does not answer", metadata: ["waiting": "\(queue.waitingCount)"])
        let refusal = refusal
        var answers: [() -> Message?] = []
        queue.withdraw { Self.fate(of: $0, refusal, &answers) }
        for answer in answers { if let message = answer() { send(message) } }
    }

    private static func fate(of item: Item, _ refusal: Refusal, _ answers: inout [() -> Message?]) -> JournalQueue<Item>.Fate {
        switch item {
        case .addition(let numbers, _, _, let undo):
            answers.append { undo(refusal) }
            return .drop(undoing: numbers)
        case .reply(_, let failure):
            answers.append { failure(refusal) }
            return .drop(undoing: [])
        case .message, .late, .effect: return .keep
        }
    }

    private func retryLater() {
        // A call that arrives meanwhile is answered after the retry: well before its caller gives up (25 s).
        guard !isScheduled else { return }
        let seconds = min(5, 1 << min(failures - 1, 3))
        isScheduled = true
        Poller.shared.schedule(after: .seconds(seconds)) { [self] in
            isScheduled = false
            BusActor.spawn { [self] in await commit() }
        }
    }
}

@BusActor protocol JournalOwner: AnyObject {
    /// All rows, for a new database if the old one is damaged.
    var everything: [StoreChange] { get }
    /// A new database holds everything that this process knows.
    ///
    /// - Parameter path: the damaged database; empty: it was gone.
    func databaseWasSetAside(_ path: String)
    /// A commit has succeeded, the first since `gathers` or `isFull` was true.
    func commitsSucceedAgain()
}
