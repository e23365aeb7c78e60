internal import DBus
internal import DownloadModel
internal import DownloadStore
internal import EventLoop
internal import Logging

/// What makes "acknowledged is durable" cheap: changes are committed in groups, and every message or effect that a change
/// causes waits, in one queue, until the change is on disk.
///
/// One commit is in flight at a time; what gathers meanwhile shares the next one. A message posted when nothing is pending goes out at once.
@BusActor final class Journal {
    private enum Item {
        case message(Message)
        /// Answers a call; where the commit fails, with the error.
        case reply(success: () -> Message?, failure: (Refusal) -> Message?)
        /// A new download: told of when its row is on disk, taken back where that fails.
        case addition(DownloadNumber, done: () -> Void, undo: (Refusal) -> Message?)
        case effect(() -> Void)
    }

    private let store: Store
    private let send: (Message) -> Void
    private let log: Logger
    private var changes: [StoreChange] = []
    private var places: [DownloadNumber: Int] = [:]
    private var outbox: [(ticket: UInt64, item: Item)] = []
    /// The last change appended; the changes that the commit in flight covers; the changes on disk.
    private var ticket: UInt64 = 0
    private var committed: UInt64 = 0
    private var isCommitting = false
    private var isScheduled = false
    private var failures = 0
    /// The number that the next download will have; saved with every commit.
    var nextNumber: DownloadNumber
    /// Called when the last change has been committed and the outbox is empty.
    var onQuiet: (() -> Void)?

    init(store: Store, nextNumber: DownloadNumber, log: Logger, send: @escaping (Message) -> Void) {
        (self.store, self.nextNumber, self.log, self.send) = (store, nextNumber, log, send)
    }

    /// Whether something is not on disk yet, or waits for what is not.
    var isBusy: Bool { isCommitting || !changes.isEmpty || !outbox.isEmpty }

    /// Appends a change. A later change of the same download takes the place of an earlier one that is not in flight.
    func append(_ change: StoreChange) {
        ticket += 1
        switch change {
        case .put(let record): place(change, record.number)
        case .remove(let number): place(change, number)
        case .set: changes.append(change)
        }
        schedule()
    }

    private func place(_ change: StoreChange, _ number: DownloadNumber) {
        if let place = places[number] {
            changes[place] = change
        } else {
            places[number] = changes.count
            changes.append(change)
        }
    }

    /// Appends an addition: `done` follows when its row is on disk, and answers the call; where that fails, `undo` takes it back and gives the
    /// answer, which is sent at once: it waits for nothing more.
    func add(_ record: DownloadRecord, done: @escaping () -> Void, undo: @escaping (Refusal) -> Message?) {
        append(.put(record))
        outbox.append((ticket, .addition(record.number, done: done, undo: undo)))
    }

    /// Sends `message` after all changes appended so far are on disk, and after all messages posted before it.
    func post(_ message: Message?) {
        guard let message else { return }
        if outbox.isEmpty, committed == ticket { send(message) } else { outbox.append((ticket, .message(message))) }
    }

    /// Answers a call after all changes appended so far are on disk; where that fails, with `Storage`.
    func answer<Out>(_ reply: Reply<Out>, _ out: Out) {
        if outbox.isEmpty, committed == ticket { return reply(out) }
        outbox.append((ticket, .reply(success: { reply.message(out) }, failure: { reply.message(failing: $0) })))
    }

    /// Runs `effect` after all changes appended so far are on disk.
    func afterCommit(_ effect: @escaping () -> Void) {
        if outbox.isEmpty, committed == ticket { effect() } else { outbox.append((ticket, .effect(effect))) }
    }

    /// Commits at the end of this turn of the loop, so that a burst of calls shares one.
    private func schedule() {
        guard !isCommitting, !isScheduled else { return }
        isScheduled = true
        BusActor.spawn { [self] in
            isScheduled = false
            await commit()
        }
    }

    private func commit() async {
        guard !isCommitting, !changes.isEmpty else { return }
        isCommitting = true
        let (batch, upTo) = (changes, ticket)
        changes = []
        places = [:]
        do {
            try await store.commit(batch, nextNumber: nextNumber)
            isCommitting = false
            failures = 0
            committed = upTo
            release()
        } catch {
            isCommitting = false
            log.error("the queue could not be saved", metadata: ["cause": "\(error)", "changes": "\(batch.count)"])
            keep(batch, upTo, Refusal(.storage, "The queue could not be saved: \(error)"))
        }
        if !changes.isEmpty { failures == 0 ? schedule() : retryLater() } else if !isBusy { onQuiet?() }
    }

    /// Sends and starts what waited for changes that are on disk now. What effects post meanwhile queues behind.
    private func release() {
        var index = 0
        while index < outbox.count, outbox[index].ticket <= committed {
            switch outbox[index].item {
            case .message(let message): send(message)
            case .reply(let success, _): if let message = success() { send(message) }
            case .addition(_, let done, _): done()
            case .effect(let effect): effect()
            }
            index += 1
        }
        outbox.removeFirst(index)
    }

    /// After a failed commit: additions are undone, calls answered with the error, all other changes kept for the next try.
    private func keep(_ batch: [StoreChange], _ upTo: UInt64, _ refusal: Refusal) {
        failures += 1
        var undone: Set<DownloadNumber> = []
        var kept: [(ticket: UInt64, item: Item)] = []
        for entry in outbox {
            switch entry.item {
            case .addition(let number, _, let undo) where entry.ticket <= upTo:
                undone.insert(number)
                if let message = undo(refusal) { send(message) }
            case .reply(_, let failure) where entry.ticket <= upTo: if let message = failure(refusal) { send(message) }
            default: kept.append(entry)
            }
        }
        outbox = kept
        let newer = changes
        changes = []
        places = [:]
        for change in batch + newer {
            switch change {
            case .put(let record): if !undone.contains(record.number) { place(change, record.number) }
            case .remove(let number): place(change, number)
            case .set: changes.append(change)
            }
        }
        if changes.isEmpty {
            failures = 0
            committed = ticket
            release()
        }
    }

    private func retryLater() {
        // A call that comes meanwhile is answered with the next try: well before its caller gives up (25 s).
        let seconds = min(5, 1 << min(failures - 1, 3))
        isScheduled = true
        Poller.shared.schedule(after: .seconds(seconds)) { [self] in
            isScheduled = false
            BusActor.spawn { [self] in await commit() }
        }
    }
}
