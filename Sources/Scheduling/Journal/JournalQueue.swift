public import DownloadModel

/// What makes "acknowledged is durable" cheap, without a disk: changes are committed in groups, and what a change causes waits in one queue
/// until the change is on disk.
///
/// One commit is in flight at a time; what gathers meanwhile shares the next one. `Item` is what waits: messages, answers, effects.
public struct JournalQueue<Item> {
    /// What becomes of an item whose commit failed.
    public enum Fate {
        /// It waits for the next try.
        case keep
        /// It is over; where it stands for additions, of downloads or a batch, those are not tried again.
        case drop(undoing: [DownloadNumber])
    }

    private var changes: [StoreChange] = []
    private var places = NumberTable<Int>()
    /// The same of what is about no download's or batch's own row.
    private var otherPlaces: [OtherRow: Int] = [:]
    private var waiting: [(ticket: UInt64, mark: Mark, item: Item)] = []
    /// The first of `waiting` that is still there: those before have been taken.
    private var head = 0
    /// The last change appended; the last one on disk.
    private var ticket: UInt64 = 0
    private var committed: UInt64 = 0
    private var inFlight: (changes: [StoreChange], upTo: UInt64)?
    private var lastMark = Mark(number: 0)

    /// An item's place among all that were ever posted.
    public struct Mark: Sendable { fileprivate var number: UInt64 }

    public init() {}

    public var isCommitting: Bool { inFlight != nil }
    /// Whether changes wait for a commit.
    public var hasChanges: Bool { !changes.isEmpty }
    /// Whether something is not on disk yet, or waits for what is not.
    public var isBusy: Bool { isCommitting || hasChanges || head < waiting.count }
    /// Whether what is posted now would wait for nothing.
    public var isClear: Bool { head == waiting.count && committed == ticket }

    /// How many changes and items there are: what grows as long as no commit succeeds.
    public var changeCount: Int { changes.count }
    public var waitingCount: Int { waiting.count - head }

    /// Whether the item posted under `mark` still waits.
    public func isWaiting(_ mark: Mark) -> Bool { head < waiting.count && waiting[head].mark.number <= mark.number }

    /// Appends a change. A later one of the same row takes the place of an earlier one that is not in flight.
    public mutating func append(_ change: StoreChange) {
        ticket += 1
        place(change)
    }

    private mutating func place(_ change: StoreChange) {
        switch change {
        case .put(let record): place(change, record.number)
        case .remove(let number): place(change, number)
        // No batch has the number of a download.
        case .putBatch(let record):
            // Its members are still to be added, too.
            if let place = places[record.number], case .addBatch(_, let members) = changes[place] {
                changes[place] = .addBatch(record, members)
            } else {
                place(change, record.number)
            }
        case .addBatch(let record, _): place(change, record.number)
        case .removeBatch(let number): place(change, number)
        case .set: place(change, .settings)
        case .sweep(let number, _), .swept(let number): place(change, .sweep(number))
        case .requested(let request): place(change, .request(host: request.host, spacing: request.spacing))
        case .requestOver(let host, let spacing): place(change, .request(host: host, spacing: spacing))
        case .keepCopy(let copy): place(change, .copy(copy.key))
        case .scrubLog: place(change, .log)
        }
    }

    private mutating func place(_ change: StoreChange, _ row: OtherRow) {
        if let place = otherPlaces[row] {
            changes[place] = change
        } else {
            otherPlaces[row] = changes.count
            changes.append(change)
        }
    }

    private mutating func place(_ change: StoreChange, _ number: DownloadNumber) {
        if let place = places[number] {
            changes[place] = change
        } else {
            places[number] = changes.count
            changes.append(change)
        }
    }

    /// Has `item` wait for all changes appended so far, and for all items posted before it.
    @discardableResult
    public mutating func post(_ item: Item) -> Mark {
        lastMark.number += 1
        waiting.append((ticket, lastMark, item))
        return lastMark
    }

    /// Begins a commit of all changes so far; nil where one is in flight, or there is nothing to commit.
    ///
    /// - Parameter isDue: also where there is no change.
    public mutating func begin(isDue: Bool = false) -> [StoreChange]? {
        guard inFlight == nil, isDue || !changes.isEmpty else { return nil }
        inFlight = (changes, ticket)
        defer { (changes, places, otherPlaces) = ([], NumberTable(), [:]) }
        return changes
    }

    /// The commit in flight is on disk.
    public mutating func succeeded() {
        committed = inFlight?.upTo ?? committed
        inFlight = nil
    }

    /// The next item that waits for nothing more; what is posted meanwhile queues behind.
    public mutating func next() -> Item? {
        guard head < waiting.count, waiting[head].ticket <= committed else { return nil }
        defer {
            head += 1
            if head == waiting.count || head > 1024 {
                waiting.removeFirst(head)
                head = 0
            }
        }
        return waiting[head].item
    }

    /// Takes out what shall wait no longer for the commit in flight, of which nobody knows whether it will succeed. The rows of additions
    /// that are undone are removed by the next one.
    ///
    /// - Parameter fate: what becomes of each item that waits, in order.
    public mutating func withdraw(_ fate: (Item) -> Fate) {
        var undone: [DownloadNumber] = []
        var kept: [(ticket: UInt64, mark: Mark, item: Item)] = []
        for entry in waiting[head...] {
            guard entry.ticket > committed, case .drop(let numbers) = fate(entry.item) else {
                kept.append(entry)
                continue
            }
            undone += numbers
        }
        (waiting, head) = (kept, 0)
        guard !undone.isEmpty else { return }
        let batches = Set(((inFlight?.changes ?? []) + changes).compactMap(\.batchAddition))
        for number in undone { append(batches.contains(number) ? .removeBatch(number) : .remove(number)) }
    }

    /// The commit in flight failed, and nothing of it is on disk. Its changes are kept for the next try, but for the additions that are
    /// undone.
    ///
    /// - Parameter fate: what becomes of each item that waited for this commit, in order.
    public mutating func failed(_ fate: (Item) -> Fate) {
        guard let (batch, upTo) = inFlight else { return }
        inFlight = nil
        var undone: Set<DownloadNumber> = []
        var kept: [(ticket: UInt64, mark: Mark, item: Item)] = []
        for entry in waiting[head...] {
            // What is on disk since an earlier commit, and has not been taken yet, has not failed.
            guard entry.ticket > committed, entry.ticket <= upTo, case .drop(let numbers) = fate(entry.item) else {
                kept.append(entry)
                continue
            }
            undone.formUnion(numbers)
        }
        (waiting, head) = (kept, 0)
        let newer = changes
        (changes, places, otherPlaces) = ([], NumberTable(), [:])
        for change in batch + newer {
            if let number = change.addition, undone.contains(number) { continue }
            place(change)
        }
        if changes.isEmpty { committed = ticket }
    }
}

/// What a change is about that is no row of a download or batch.
private enum OtherRow: Hashable {
    case settings
    case sweep(DownloadNumber)
    case request(host: String, spacing: Duration)
    case copy(CopyKey)
    case log
}

extension StoreChange {
    fileprivate var batchAddition: DownloadNumber? {
        switch self {
        case .putBatch(let record), .addBatch(let record, _): record.number
        default: nil
        }
    }

    /// The number of what it adds or changes.
    fileprivate var addition: DownloadNumber? {
        switch self {
        case .put(let record): record.number
        case .putBatch(let record), .addBatch(let record, _): record.number
        default: nil
        }
    }
}
