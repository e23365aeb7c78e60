public import DownloadModel

/// The queue of a journal, without a disk. The queue makes durable answers cheap: changes are committed in groups, and the effects of a
/// change wait until the change is on disk.
///
/// One commit is in flight at a time; later changes share the next commit. An `Item` is a message, answer or effect that waits.
public struct JournalQueue<Item> {
    /// The fate of an item whose commit failed.
    public enum Fate {
        /// The item waits for the next commit.
        case keep
        /// The item is dropped. If the item stands for additions of downloads or of a batch, these additions are undone.
        case drop(undoing: [DownloadNumber])
    }

    /// The changes since the last commit began.
    private var changes = ChangeList()
    private var waiting: [(ticket: UInt64, mark: JournalMark, item: Item)] = []
    /// The index of the first item that still waits; earlier items have been taken.
    private var head = 0
    /// The number of the last appended change, and of the last change on disk.
    private var ticket: UInt64 = 0
    private var committed: UInt64 = 0
    private var inFlight: (changes: ChangeList, upTo: UInt64)?
    private var lastMark = JournalMark(number: 0)

    public init() {}

    public var isCommitting: Bool { inFlight != nil }
    /// Whether changes wait for a commit.
    public var hasChanges: Bool { !changes.all.isEmpty }
    /// Whether a change is not on disk yet, or an item still waits.
    public var isBusy: Bool { isCommitting || hasChanges || head < waiting.count }
    /// Whether an item posted now would not have to wait.
    public var isClear: Bool { head == waiting.count && committed == ticket }

    /// The numbers of changes and items that wait. They grow while no commit succeeds.
    public var changeCount: Int { changes.all.count }
    public var waitingCount: Int { waiting.count - head }

    /// Whether the item posted under `mark` still waits.
    public func isWaiting(_ mark: JournalMark) -> Bool { head < waiting.count && waiting[head].mark.number <= mark.number }

    /// Appends a change. It replaces an earlier change of the same row that is not in flight.
    public mutating func append(_ change: StoreChange) {
        ticket += 1
        changes.place(change)
    }

    /// Posts `item`, which waits for all changes appended and all items posted so far.
    @discardableResult
    public mutating func post(_ item: Item) -> JournalMark {
        lastMark.number += 1
        waiting.append((ticket, lastMark, item))
        return lastMark
    }

    /// Begins a commit of all changes so far; nil if a commit is in flight, or if there are no changes.
    ///
    /// - Parameter isDue: begin even without changes.
    public mutating func begin(isDue: Bool = false) -> [StoreChange]? {
        guard inFlight == nil, isDue || !changes.all.isEmpty else { return nil }
        inFlight = (changes, ticket)
        defer { changes = ChangeList() }
        return changes.all
    }

    /// Adds the changes appended since `begin` to the commit in flight.
    ///
    /// - Precondition: a commit is in flight, and the store has not begun it yet.
    /// - Returns: these changes, which come after those of `begin`.
    public mutating func extend() -> [StoreChange] {
        let more = changes.all
        for change in more { inFlight?.changes.place(change) }
        inFlight?.upTo = ticket
        changes = ChangeList()
        return more
    }

    /// The commit in flight is on disk.
    public mutating func succeeded() {
        committed = inFlight?.upTo ?? committed
        inFlight = nil
    }

    /// Takes the next item whose changes are on disk. Items posted meanwhile queue behind.
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

    /// Drops items that must not wait for the commit in flight, whose success is uncertain. The next commit removes the rows of undone
    /// additions.
    ///
    /// - Parameter fate: decides for each waiting item, in order.
    public mutating func withdraw(_ fate: (Item) -> Fate) {
        var undone: [DownloadNumber] = []
        var kept: [(ticket: UInt64, mark: JournalMark, item: Item)] = []
        for entry in waiting[head...] {
            guard entry.ticket > committed, case .drop(let numbers) = fate(entry.item) else {
                kept.append(entry)
                continue
            }
            undone += numbers
        }
        (waiting, head) = (kept, 0)
        guard !undone.isEmpty else { return }
        let batches = Set(((inFlight?.changes.all ?? []) + changes.all).compactMap(\.batchAddition))
        for number in undone { append(batches.contains(number) ? .removeBatch(number) : .remove(number)) }
    }

    /// The commit in flight failed, and none of its changes is on disk. The next commit repeats them, except undone additions.
    ///
    /// - Parameter fate: decides for each item that waited for this commit, in order.
    public mutating func failed(_ fate: (Item) -> Fate) {
        guard let (failed, upTo) = inFlight else { return }
        inFlight = nil
        var undone: [DownloadNumber] = []
        var kept: [(ticket: UInt64, mark: JournalMark, item: Item)] = []
        for entry in waiting[head...] {
            // The changes of an earlier commit are on disk, so an item that waits only to be taken has not failed.
            guard entry.ticket > committed, entry.ticket <= upTo, case .drop(let numbers) = fate(entry.item) else {
                kept.append(entry)
                continue
            }
            undone += numbers
        }
        (waiting, head) = (kept, 0)
        let newer = changes.all
        changes = failed
        for change in newer { changes.place(change) }
        changes.undo(undone)
        if changes.all.isEmpty { committed = ticket }
    }
}

/// Changes in order, at most one for each row.
///
/// There may be 100,000 changes while commits fail, so a failed commit does not visit all of them.
private struct ChangeList {
    private(set) var all: [StoreChange] = []
    /// The index in `all` of the change of each download's or batch's row.
    private var places = NumberTable<Int>()
    /// The index in `all` of each other change.
    private var otherPlaces: [OtherRow: Int] = [:]
    /// The indices of the changes that only remove rows that were never added.
    private var undone: Set<Int> = []

    /// Appends a change. It takes the place of an earlier change of the same row.
    mutating func place(_ change: StoreChange) {
        switch change {
        case .put(let record): place(change, record.number)
        case .remove(let number): place(change, number)
        // No batch has the number of a download.
        case .putBatch(let record):
            // The new record must still be added together with its members.
            if let place = places[record.number], case .addBatch(_, let members) = all[place] {
                all[place] = .addBatch(record, members)
            } else {
                place(change, record.number)
            }
        case .addBatch(let record, _): place(change, record.number)
        case .removeBatch(let number): place(change, number)
        case .set: place(change, .settings)
        case .sweep(let number, _), .swept(let number): place(change, .sweep(number))
        case .requested(let request): place(change, .request(host: request.host, requestInterval: request.requestInterval))
        case .requestOver(let host, let requestInterval): place(change, .request(host: host, requestInterval: requestInterval))
        case .keepCopy(let copy): place(change, .copy(copy.key))
        case .putAsset(let record): place(change, .asset(record.key))
        case .removeAsset(let key): place(change, .asset(key))
        case .scrubLog: place(change, .log)
        }
    }

    private mutating func place(_ change: StoreChange, _ row: OtherRow) {
        if let place = otherPlaces[row] {
            all[place] = change
        } else {
            otherPlaces[row] = all.count
            all.append(change)
        }
    }

    private mutating func place(_ change: StoreChange, _ number: DownloadNumber) {
        if let place = places[number] {
            all[place] = change
            undone.remove(place)
        } else {
            places[number] = all.count
            all.append(change)
        }
    }

    /// Removes the changes that add or replace the rows of `numbers`, which are not on disk. A removal of the row replaces each such
    /// change, so that the other changes keep their places.
    mutating func undo(_ numbers: [DownloadNumber]) {
        for number in numbers {
            guard let place = places[number], all[place].addition == number else { continue }
            all[place] = all[place].batchAddition == nil ? .remove(number) : .removeBatch(number)
            undone.insert(place)
        }
        // The removals must not pile up while no commit succeeds.
        guard undone.count > all.count / 2 else { return }
        var rest = ChangeList()
        for (place, change) in all.enumerated() where !undone.contains(place) { rest.place(change) }
        self = rest
    }
}

/// The number of an item among all items ever posted to a queue.
public struct JournalMark: Sendable { fileprivate var number: UInt64 }

/// The subject of a change that is not about a row of a download or batch.
private enum OtherRow: Hashable {
    case settings
    case sweep(DownloadNumber)
    case request(host: String, requestInterval: Duration)
    case copy(CopyKey)
    case asset(AssetKey)
    case log
}

extension StoreChange {
    fileprivate var batchAddition: DownloadNumber? {
        switch self {
        case .putBatch(let record), .addBatch(let record, _): record.number
        default: nil
        }
    }

    /// The number of the download or batch that the change adds or replaces.
    fileprivate var addition: DownloadNumber? {
        switch self {
        case .put(let record): record.number
        case .putBatch(let record), .addBatch(let record, _): record.number
        default: nil
        }
    }
}
