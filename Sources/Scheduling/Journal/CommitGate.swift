public import DownloadModel

/// "On disk first": every message and effect of a change waits, in one queue, until the change is on disk.
///
/// `JournalQueue` keeps the order. The gate decides which items wait, which are released at once, and which are undone if a commit fails.
/// Its host has the store, the loop and the bus. Use from one thread only.
public final class CommitGate<Host: CommitGateHost> {
    public typealias Message = Host.Message

    private enum Item {
        case message(Message)
        /// The next of `series`.
        case series
        /// Answers a call: with the error if the commit fails.
        case reply(success: () -> Message?, failure: (Refusal) -> Message?)
        /// A new download, or a batch with its members: announced when the rows are on disk, undone if the commit fails. `enter`: runs in
        /// steps once `done` has run, until it returns true.
        case addition([DownloadNumber], done: () -> Void, enter: (() -> Bool)?, undo: (Refusal) -> Message?)
        case effect(() -> Void)
        /// Answers a call that only reads. Sent at once if the commit fails.
        case read(Message)
    }

    /// Messages about downloads with consecutive numbers, one about each.
    private struct Series {
        let first: DownloadNumber
        let count: Int
        let make: (Int) -> Message
        var sent = 0

        func contains(_ number: DownloadNumber) -> Bool { number >= first && number.value - first.value < UInt64(count) }
    }

    public unowned let host: Host
    private var queue = JournalQueue<Item>()
    /// For each download, the last waiting item that its progress signals must follow.
    private var marks = NumberTable<JournalMark>()
    /// The series that are not sent yet, in order. The progress signals of their downloads must follow them.
    private var series: [Series] = []
    /// The items `read` that wait.
    private var readCount = 0
    /// Whether the first of `series` is being sent. All other items wait until it is sent.
    private var isSendingSeries = false
    /// The database was lost, and the new database is not complete yet. Saving is retried even without changes.
    public var owesEverything = false { didSet { tellHost() } }
    /// Whether the host has been asked to begin a commit.
    private var isCommitDue = false
    /// The commits that have failed since the last success.
    public private(set) var failures = 0
    private var isReleasing = false
    /// The long answers that wait to be written (`write`).
    private var longAnswers = WaitingAnswers()
    /// The steps of the long answer that has begun, or of the batch whose members are taking their places.
    private var writing: (() -> Bool)?
    /// Whether a long answer has begun, or the members of a batch are taking their places. No other message is sent meanwhile.
    private var isWriting = false
    /// Whether the host has been asked for the next step of `writing`, or of the next long answer.
    private var isStepDue = false
    /// The value of `isBusy` that the host was last told.
    private var isToldBusy = false

    public init(host: Host) { self.host = host }

    public var isCommitting: Bool { queue.isCommitting }
    /// The number of waiting items. It grows while no commit succeeds.
    public var waitingCount: Int { queue.waitingCount }
    /// The number of long answers that wait to be written.
    public var waitingAnswers: Int { longAnswers.count }
    public func waitingAnswers(of caller: String) -> Int { longAnswers.count(of: caller) }

    /// Whether a change is not on disk yet, or anything waits for it.
    public var isBusy: Bool { queue.isBusy || owesEverything || hasLongAnswers || isSendingSeries }

    /// Whether a long answer is being written or waits.
    public var hasLongAnswers: Bool { writing != nil || !longAnswers.isEmpty }

    /// Whether a message posted now would be sent at once.
    public var isClear: Bool { queue.isClear && !isWriting && !isSendingSeries }

    /// Tells the host if `isBusy` has changed. Call after any change that may leave nothing waiting.
    private func tellHost() {
        guard isBusy != isToldBusy else { return }
        isToldBusy.toggle()
        host.gateIsBusy(isToldBusy)
    }

    /// As `tellHost`, after an item was added. Cheaper, because many items may be added.
    private func tellHostOfMore() { if !isToldBusy { tellHost() } }

    // MARK: Changes, and what follows them

    /// Appends a change. It replaces an earlier change of the same row that is not in flight.
    public func append(_ change: StoreChange) {
        queue.append(change)
        tellHostOfMore()
        commitSoon()
    }

    @discardableResult private func wait(_ item: Item) -> JournalMark {
        defer { tellHostOfMore() }
        return queue.post(item)
    }

    /// The changes appended last add `numbers`. When these changes are on disk, `done` runs and answers the call. If they cannot be saved,
    /// `undo` removes the additions and returns the answer, which is sent at once.
    ///
    /// - Parameter enter: called after `done`, once in each turn of the loop, until it returns true. No message is sent before that.
    public func addition(
        of numbers: [DownloadNumber], done: @escaping () -> Void, enter: (() -> Bool)? = nil, undo: @escaping (Refusal) -> Message?
    ) {
        wait(.addition(numbers, done: done, enter: enter, undo: undo))
    }

    /// Sends `message` after all changes appended so far are on disk, and after all messages posted before it.
    public func post(_ message: Message) {
        if isClear { host.send(message) } else { wait(.message(message)) }
    }

    /// Sends `message` like `post(_:)`. Progress signals of `number` follow it.
    public func post(_ message: Message, before number: DownloadNumber) {
        if isClear { return host.send(message) }
        marks[number] = wait(.message(message))
    }

    /// Posts `count` messages, which are sent in slices, never at once. `make(i)` makes the message about the download `first` + i when its
    /// turn comes. Progress signals of these downloads follow all the messages.
    public func postSeries(about first: DownloadNumber, count: Int, _ make: @escaping (Int) -> Message) {
        guard count > 0 else { return }
        series.append(Series(first: first, count: count, make: make))
        wait(.series)
        releaseSoon()
    }

    /// Posts the answer to a call. It is `failure` if the changes appended so far cannot be saved.
    public func post(success: @escaping () -> Message?, failure: @escaping (Refusal) -> Message?) {
        wait(.reply(success: success, failure: failure))
    }

    /// Answers a call that only reads, after all messages posted before. If their changes cannot be saved, the answer is sent without them.
    /// All progress signals follow, because clients take an answer to include every signal sent before it.
    public func postRead(_ answer: Message) {
        if isClear { return host.send(answer) }
        readCount += 1
        wait(.read(answer))
    }

    /// Whether progress signals of `number` must wait for a posted message.
    public func holdsProgress(of number: DownloadNumber) -> Bool {
        isWriting || readCount > 0 || series.contains { $0.contains(number) } || isWaiting(number)
    }

    /// Whether the last message that was posted about the download or batch `number`, before its progress, still waits.
    public func isWaiting(_ number: DownloadNumber) -> Bool {
        guard let mark = marks[number] else { return false }
        if queue.isWaiting(mark) { return true }
        marks[number] = nil
        return false
    }

    /// Runs `effect` after all changes appended so far are on disk.
    public func afterCommit(_ effect: @escaping () -> Void) {
        if isClear, !owesEverything { effect() } else { wait(.effect(effect)) }
    }

    /// Writes a long answer in steps, so that other calls are handled in between. Until the answer is sent, all other messages wait. They
    /// may report changes since an earlier step, and clients take an answer to include every signal sent before it.
    ///
    /// - Parameters:
    ///   - caller: callers take turns. The answers of one caller are written in the order of its calls.
    ///   - step: writes for a few milliseconds. Returns true when it has sent the answer.
    public func write(for caller: String, _ step: @escaping () -> Bool) {
        let isFirst = !hasLongAnswers
        longAnswers.append(step, of: caller)
        tellHostOfMore()
        if isFirst { writeSome() }
    }

    // MARK: Commits

    /// Asks for a commit in a later turn of the loop, so that a burst of calls shares one commit.
    private func commitSoon() {
        guard !queue.isCommitting, !isCommitDue else { return }
        isCommitDue = true
        host.later(.commit)
    }

    /// Begins a commit of all changes so far; nil if a commit is in flight, or if there is nothing to save.
    public func beginCommit() -> [StoreChange]? {
        isCommitDue = false
        return queue.begin(isDue: owesEverything)
    }

    /// Adds all changes since `beginCommit` to the commit in flight, which has not reached the store yet.
    public func extendCommit() -> [StoreChange] { queue.extend() }

    /// The commit in flight is on disk. Call `release` next, then `commitIsOver`.
    public func commitSucceeded() {
        failures = 0
        queue.succeeded()
    }

    /// The commit in flight failed: undoes additions, answers calls with the error, and keeps all other changes for the next commit. Call
    /// `release` next, then `commitIsOver`.
    public func commitFailed(_ refusal: Refusal) {
        failures += 1
        var answers: [() -> Message?] = []
        queue.failed { fate(of: $0, refusal, &answers) }
        for answer in answers { if let message = answer() { host.send(message) } }
        tellHost()
    }

    /// The commit in flight does not return: undoes the additions that wait for it, and answers the waiting calls with the error. The
    /// commit may still succeed once the disk answers.
    public func commitHangs(_ refusal: Refusal) {
        var answers: [() -> Message?] = []
        queue.withdraw { fate(of: $0, refusal, &answers) }
        for answer in answers { if let message = answer() { host.send(message) } }
    }

    /// Asks for the next commit if there is anything to save.
    public func commitIsOver() {
        if queue.isClear { marks = NumberTable() }
        guard queue.hasChanges || owesEverything else { return }
        guard failures > 0 else { return commitSoon() }
        // A call that arrives meanwhile is answered after the retry.
        guard !isCommitDue else { return }
        isCommitDue = true
        host.later(.retriedCommit)
    }

    private func fate(of item: Item, _ refusal: Refusal, _ answers: inout [() -> Message?]) -> JournalQueue<Item>.Fate {
        switch item {
        case .addition(let numbers, _, _, let undo):
            answers.append { undo(refusal) }
            return .drop(undoing: numbers)
        case .reply(_, let failure):
            answers.append { failure(refusal) }
            return .drop(undoing: [])
        case .read(let answer):
            readCount -= 1
            answers.append { answer }
            return .drop(undoing: [])
        case .message, .series, .effect: return .keep
        }
    }

    /// Drops all waiting items, because the process has ended. Such items may hold references to the host.
    public func abandon() {
        (queue, longAnswers, writing, series, isSendingSeries, readCount) = (JournalQueue(), WaitingAnswers(), nil, [], false, 0)
        tellHost()
    }

    // MARK: Releasing

    /// Performs the work that `later` requested, except commits.
    public func perform(_ work: CommitGateWork) {
        switch work {
        case .commit, .retriedCommit: break
        case .release, .crowdedRelease:
            isReleasing = false
            release()
        case .writing:
            isStepDue = false
            writeSome()
        }
    }

    /// The most items released in one turn of the loop.
    private static var portion: Int { 200 }

    /// Sends the messages and starts the effects whose changes are on disk. Messages that effects post meanwhile go to the end of the
    /// queue.
    public func release() {
        // While a long answer is being written, nothing is released: `writeSome` calls this again.
        defer { tellHost() }
        var left = Self.portion
        let step = host.beginStep()
        while !isWriting {
            guard let item = isSendingSeries ? .series : queue.next() else { break }
            switch item {
            case .message(let message): host.send(message)
            case .read(let answer):
                readCount -= 1
                host.send(answer)
            case .series: sendOfSeries()
            case .reply(let success, _): if let message = success() { host.send(message) }
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

    /// Sends the next message of the first series.
    private func sendOfSeries() {
        let message = series[0].make(series[0].sent)
        series[0].sent += 1
        isSendingSeries = series[0].sent < series[0].count
        if !isSendingSeries { series.removeFirst() }
        host.send(message)
    }

    /// Continues `release` in another turn of the loop.
    private func releaseSoon() {
        guard !isReleasing else { return }
        isReleasing = true
        // While the bus has not taken the messages sent so far, further messages would delay the answers to other callers.
        host.later(host.isBehind ? .crowdedRelease : .release)
    }

    /// Holds back all messages until `step` has returned true. Calls `step` once in each turn of the loop.
    ///
    /// - Precondition: a message is being released, so no answer is being written.
    private func holdBack(until step: @escaping () -> Bool) {
        writing = step
        tellHostOfMore()
        writeSoon()
    }

    /// Continues `writeSome` in another turn of the loop.
    private func writeSoon() {
        guard !isStepDue else { return }
        isStepDue = true
        host.later(.writing)
    }

    private func writeSome() {
        guard let step = writing ?? longAnswers.next() else { return }
        (writing, isWriting) = (step, true)
        if step() {
            (writing, isWriting) = (nil, false)
            // Messages that have waited for this answer go before the next one.
            release()
        }
        if hasLongAnswers { writeSoon() }
    }
}

/// The surroundings of a `CommitGate`: the store, the loop and the bus, or their simulation.
public protocol CommitGateHost: AnyObject {
    associatedtype Message
    associatedtype Limit: StepLimit

    /// Sends a message whose changes are on disk.
    func send(_ message: Message)
    /// Calls `CommitGate.perform(work)` in a later turn of the loop; begins a commit if the work is a commit.
    func later(_ work: CommitGateWork)
    /// Begins a step of the thread, and returns its limit.
    func beginStep() -> Limit
    /// Whether the bus has much unsent data.
    var isBehind: Bool { get }
    /// `CommitGate.isBusy` has changed.
    func gateIsBusy(_ isBusy: Bool)
}

/// Work that a `CommitGate` requests from its host.
public enum CommitGateWork: Sendable {
    /// Begin a commit (`beginCommit`); `retriedCommit`: after a pause, because the last one failed.
    case commit
    case retriedCommit
    /// Release more; `crowdedRelease`: after a pause, because the bus has much unsent data.
    case release
    case crowdedRelease
    /// Continue to write a long answer.
    case writing
}

/// The limit of one step of the thread. Other calls are answered after the step.
public protocol StepLimit {
    var isOver: Bool { get }
}
