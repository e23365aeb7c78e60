internal import DBus
internal import DownloadModel
internal import DownloadStore
internal import EventLoop
internal import Logging
internal import PartFiles
internal import Scheduling

/// What makes "acknowledged is durable" cheap: changes are committed in groups, and every message or effect that a change
/// causes waits, in one queue, until the change is on disk.
///
/// The order of things is the `JournalQueue`'s; here are the store, the loop and the messages. What is posted when nothing is pending goes
/// out at once.
@BusActor final class Journal {
    private enum Item {
        case message(Message)
        /// A message that is made when it is sent: one of many.
        case late(() -> Message)
        /// Answers a call; where the commit fails, with the error.
        case reply(success: () -> Message?, failure: (Refusal) -> Message?)
        /// A new download, or a batch with its members: told of when the rows are on disk, taken back where that fails.
        /// Each of `done` may take a turn of the loop of its own.
        case addition([DownloadNumber], done: [() -> Void], undo: (Refusal) -> Message?)
        case effect(() -> Void)
    }

    private let store: Store
    private let send: (Message) -> Void
    private let log: Logger
    private var queue = JournalQueue<Item>() { didSet { hold.isHeld = isBusy } }
    private let hold: Residence.Hold
    private var isScheduled = false
    private var failures = 0
    /// Since when a commit is in flight.
    private var committingSince: SuspendingClock.Instant?
    private var commitWatch: Poller.Token?
    /// What is left to be done of the item whose turn it is; all others wait behind that.
    private var steps: ArraySlice<() -> Void> = [] { didSet { hold.isHeld = isBusy } }
    /// Where among the waiting items the last is after which progress of a download has to come.
    private var marks: [DownloadNumber: JournalQueue<Item>.Mark] = [:]
    /// The database was lost, and the new one does not hold everything yet: that is tried again whether or not there are changes.
    private var owesEverything = false { didSet { hold.isHeld = isBusy } }
    /// The store is being closed: what comes now is not saved.
    private var isEnded = false
    /// The number that the next download will have; saved with every commit.
    var nextNumber: DownloadNumber
    /// Everything there is, for a new database where the old one is damaged; and who hears where that was put.
    var everything: () -> [StoreChange] = { [] }
    var onSetAside: ((String) -> Void)?
    /// Called when a commit has succeeded after `gathers` was true.
    var onRecovery: (() -> Void)?
    private var owesRecovery = false
    private var isReleasing = false
    /// Whether the bus has much to take yet.
    var isBehind: () -> Bool = { false }

    /// - Parameter hold: held while something is not on disk yet, or waits for what is not.
    init(store: Store, nextNumber: DownloadNumber, hold: Residence.Hold, log: Logger, send: @escaping (Message) -> Void) {
        (self.store, self.nextNumber, self.hold, self.log, self.send) = (store, nextNumber, hold, log, send)
    }

    /// With so many items waiting for a commit, what can be told as one later is: the disk answers too slowly, or not at all.
    private static let manyWaiting = 20_000
    /// With so many waiting for a commit that has failed, nothing more is taken in.
    private static let mostWaiting = 10_000

    /// A commit that takes so long counts as one that fails.
    private static let slow: Duration = .seconds(5)
    /// So long a caller waits for a commit: less than callers wait for an answer (25 s).
    private static let patience: Duration = .seconds(15)

    private func commitHasTaken(_ time: Duration) -> Bool { committingSince.map { .now - $0 >= time } ?? false }

    private var isFailing: Bool { failures > 0 || commitHasTaken(Self.slow) }

    /// Whether changed properties are to be gathered until `onRecovery`: commits fail, or too much waits for one.
    func gathers() -> Bool {
        guard isFailing || queue.isCommitting && queue.waitingCount > Self.manyWaiting else { return false }
        owesRecovery = true
        return true
    }

    /// Whether what changes the queue has to be refused: it could not be saved, and too much waits for that, or its disk does not answer.
    var isFull: Bool {
        guard commitHasTaken(Self.patience) || isFailing && queue.waitingCount >= Self.mostWaiting else { return false }
        owesRecovery = true
        return true
    }

    var refusal: Refusal {
        commitHasTaken(Self.patience)
            ? Refusal(.storage, "The queue cannot be saved: its disk has not answered for \(Self.patience.components.seconds) seconds.")
            : Refusal(.storage, "The queue could not be saved, and too much waits for that. Make room on its disk.")
    }

    /// Whether something is not on disk yet, or waits for what is not.
    var isBusy: Bool { queue.isBusy || owesEverything || !steps.isEmpty }

    /// Whether what is posted now would wait for nothing.
    private var isClear: Bool { queue.isClear && steps.isEmpty }

    /// The last file that was fetched for `key`, as far as that is on disk.
    func copy(for key: CopyKey) async -> CopyHeld? { await store.copy(for: key) }

    /// Appends a change. A later change of the same download takes the place of an earlier one that is not in flight.
    func append(_ change: StoreChange) {
        queue.append(change)
        schedule()
    }

    /// Appends the additions of a batch and its members.
    func append(_ batch: BatchRecord, _ members: [LedgerEntry]) {
        queue.reserve(members.count + 1)
        queue.append(.putBatch(batch))
        for member in members { queue.append(.put(member.record)) }
        schedule()
    }

    /// The changes appended last add `numbers`: `done` follows when they are on disk, and answers the call; where that fails, `undo` takes
    /// it all back and gives the answer, which is sent at once: it waits for nothing more.
    ///
    /// - Parameter done: several steps, where one would hold up the calls of others for too long. What is posted meanwhile comes behind
    ///   them.
    func addition(of numbers: [DownloadNumber], done: [() -> Void], undo: @escaping (Refusal) -> Message?) {
        queue.post(.addition(numbers, done: done, undo: undo))
    }

    /// Sends `message` after all changes appended so far are on disk, and after all messages posted before it.
    func post(_ message: Message?) {
        guard let message else { return }
        if isClear { send(message) } else { queue.post(.message(message)) }
    }

    /// The same; and progress of `number` comes after it.
    func post(_ message: Message, before number: DownloadNumber) {
        if isClear { return send(message) }
        marks[number] = queue.post(.message(message))
    }

    /// The same of one among many, which are sent in slices: it is made when its turn comes, and never sent at once.
    func postLate(before number: DownloadNumber, _ message: @escaping () -> Message) {
        marks[number] = queue.post(.late(message))
        releaseSoon()
    }

    /// Whether something waits that progress of `number` has to come after.
    func holdsProgress(of number: DownloadNumber) -> Bool {
        guard let mark = marks[number] else { return false }
        if queue.isWaiting(mark) { return true }
        marks[number] = nil
        return false
    }

    /// Sends `message`, which states nothing durable: at once, unless something waits that it has to come after.
    func tell(_ message: Message, of number: DownloadNumber) {
        if holdsProgress(of: number) { post(message, before: number) } else { send(message) }
    }

    /// Answers a call after all changes appended so far are on disk; where that fails, with `Storage`.
    func answer<Out>(_ reply: Reply<Out>, _ out: Out) {
        if isClear { return reply(out) }
        if isFull { return reply.fail(refusal) }
        queue.post(.reply(success: { reply.message(out) }, failure: { reply.message(failing: $0) }))
    }

    /// Runs `effect` after all changes appended so far are on disk.
    func afterCommit(_ effect: @escaping () -> Void) {
        if isClear, !owesEverything { effect() } else { queue.post(.effect(effect)) }
    }

    /// Saves nothing more. What ends after this, as the deletion of a part file, is found to be done at the next start.
    func end() { isEnded = true }

    /// Commits at the end of this turn of the loop, so that a burst of calls shares one.
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
            onRecovery?()
        }
        if isClear { marks = [:] }
        if queue.hasChanges || owesEverything { failures == 0 ? schedule() : retryLater() } else if !isBusy { rest() }
    }

    /// Nothing waits: the store may do what would keep a caller waiting.
    private func rest() {
        BusActor.spawn { [store] in await store.tidy() }
    }

    /// Commits; a database that is found damaged, or is gone, is set aside, and all that this process knows is saved in a new one.
    private func save(_ changes: [StoreChange]) async throws(StoreError) {
        do throws(StoreError) {
            try await store.commit(changes, nextNumber: nextNumber)
        } catch {
            guard error.reason == .damaged else { throw error }
            log.error("the database was damaged: it is written anew", metadata: ["cause": "\(error)"])
            owesEverything = true
            // A row of `changes` may be older than what is there now.
            let aside = try await store.startAnew(changes + everything(), nextNumber: nextNumber)
            owesEverything = false
            onSetAside?(aside ?? "")
        }
    }

    /// So many items at most in one turn of the loop.
    private static let portion = 200

    /// Sends and starts what waited for changes that are on disk now. What effects post meanwhile queues behind.
    private func release() {
        var left = Self.portion
        let step = StepTime()
        while true {
            if let next = steps.popFirst() {
                next()
            } else if let item = queue.next() {
                switch item {
                case .message(let message): send(message)
                case .late(let make): send(make())
                case .reply(let success, _): if let message = success() { send(message) }
                case .addition(_, let done, _): steps = done[...]
                case .effect(let effect): effect()
                }
                left -= 1
            } else {
                return
            }
            guard left > 0, !step.isOver else { return releaseSoon() }
        }
    }

    /// Goes on with `release` in another turn of the loop.
    private func releaseSoon() {
        guard !isReleasing else { return }
        isReleasing = true
        let more: @BusActor @Sendable () -> Void = { [self] in
            isReleasing = false
            release()
        }
        // While the bus has not taken what was sent, the answers to others would wait behind that.
        if isBehind() { Poller.shared.schedule(after: .milliseconds(2), more) } else { BusActor.spawn { more() } }
    }

    /// After a failed commit: additions are undone, calls answered with the error, all other changes kept for the next try.
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

    /// The same where the commit has not come back: whether it succeeds shows when the disk answers.
    private func loseWaiting() {
        log.error("the queue cannot be saved: its disk does not answer", metadata: ["waiting": "\(queue.waitingCount)"])
        let refusal = refusal
        var answers: [() -> Message?] = []
        queue.withdraw { Self.fate(of: $0, refusal, &answers) }
        for answer in answers { if let message = answer() { send(message) } }
    }

    private static func fate(of item: Item, _ refusal: Refusal, _ answers: inout [() -> Message?]) -> JournalQueue<Item>.Fate {
        switch item {
        case .addition(let numbers, _, let undo):
            answers.append { undo(refusal) }
            return .drop(undoing: numbers)
        case .reply(_, let failure):
            answers.append { failure(refusal) }
            return .drop(undoing: [])
        case .message, .late, .effect: return .keep
        }
    }

    private func retryLater() {
        // A call that comes meanwhile is answered with the next try: well before its caller gives up (25 s).
        guard !isScheduled else { return }
        let seconds = min(5, 1 << min(failures - 1, 3))
        isScheduled = true
        Poller.shared.schedule(after: .seconds(seconds)) { [self] in
            isScheduled = false
            BusActor.spawn { [self] in await commit() }
        }
    }
}
