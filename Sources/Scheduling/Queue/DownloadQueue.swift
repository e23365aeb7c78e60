public import DownloadModel

/// The order in which downloads may start: by priority, highest first; then by position, lowest first; then by number, lowest first.
///
/// The queue may have several lanes, each with an order of its own. Lane 0 is the default.
public struct DownloadQueue: Sendable {
    /// The distance between neighbouring positions, so that many moves need no renumbering.
    private static let gap: Int64 = 1 << 20

    fileprivate struct Entry: Comparable, Sendable {
        var lane: UInt32
        var priority: Int32
        var position: Int64
        var number: DownloadNumber

        static func < (a: Entry, b: Entry) -> Bool {
            a.lane == b.lane ? (b.priority, a.position, a.number) < (a.priority, b.position, b.number) : a.lane < b.lane
        }

        func inLane(_ lane: UInt32) -> Entry { Entry(lane: lane, priority: priority, position: position, number: number) }

        /// Precedes all entries of `lane`.
        static func front(of lane: UInt32) -> Entry {
            Entry(lane: lane, priority: .max, position: .min, number: DownloadNumber(0))
        }
    }

    private var chunks = Chunks()
    /// All entries as if in lane 0; nil: `ahead(of:)` across lanes is not used.
    private var acrossLanes: Chunks?
    private var entries = NumberTable<Entry>()

    public init() {}

    /// - Parameter countsAcrossLanes: whether `ahead(of:)` may be called.
    init(countsAcrossLanes: Bool) { acrossLanes = countsAcrossLanes ? Chunks() : nil }

    /// The position of a download that is queued last. Numbers only grow, so positions do, too, with gaps between them.
    public static func position(of number: DownloadNumber) -> Int64 {
        let (position, overflow) = Int64(clamping: number.value).multipliedReportingOverflow(by: gap)
        return overflow ? .max : position
    }

    public var count: Int { entries.count }

    /// The download that starts next.
    public var next: DownloadNumber? { chunks.lists.first?.first?.number }

    /// All downloads, in order.
    public var ordered: [DownloadNumber] { chunks.lists.flatMap { $0.lazy.map(\.number) } }

    /// A download, and what decides its place in the order.
    struct Ranked: Equatable {
        let number: DownloadNumber
        let priority: Int32
        let position: Int64
    }

    /// The download that starts next, and what decided that.
    var first: Ranked? { (chunks.lists.first?.first).map(Self.ranked) }

    /// The download of `lane` that starts next.
    func first(in lane: UInt32) -> Ranked? {
        guard let (chunk, index) = chunks.place(notBefore: .front(of: lane)), chunks.lists[chunk][index].lane == lane else { return nil }
        return Self.ranked(chunks.lists[chunk][index])
    }

    private static func ranked(_ entry: Entry) -> Ranked {
        Ranked(number: entry.number, priority: entry.priority, position: entry.position)
    }

    /// Visits the downloads of `lane` in order until `isWanted` returns false.
    public func prefix(of lane: UInt32, while isWanted: (DownloadNumber) -> Bool) {
        guard var (chunk, index) = chunks.place(notBefore: .front(of: lane)) else { return }
        while chunk < chunks.lists.count {
            while index < chunks.lists[chunk].count {
                let entry = chunks.lists[chunk][index]
                guard entry.lane == lane, isWanted(entry.number) else { return }
                index += 1
            }
            (chunk, index) = (chunk + 1, 0)
        }
    }

    /// A walk over the downloads in the queue now; later changes do not affect it. Does not copy each entry.
    public struct Walk: IteratorProtocol, Sendable {
        private let lists: [[Entry]]
        private let isReversed: Bool
        private var (list, index) = (0, 0)

        fileprivate init(_ lists: [[Entry]], isReversed: Bool) { (self.lists, self.isReversed) = (lists, isReversed) }

        public mutating func next() -> DownloadNumber? {
            guard list < lists.count else { return nil }
            let entries = lists[isReversed ? lists.count - 1 - list : list]
            let number = entries[isReversed ? entries.count - 1 - index : index].number
            (list, index) = index + 1 < entries.count ? (list, index + 1) : (list + 1, 0)
            return number
        }
    }

    public func walk(isReversed: Bool = false) -> Walk { Walk(chunks.lists, isReversed: isReversed) }

    /// The first download in order for which `isWanted` returns true.
    public func first(where isWanted: (DownloadNumber) -> Bool) -> DownloadNumber? {
        for chunk in chunks.lists {
            for entry in chunk where isWanted(entry.number) { return entry.number }
        }
        return nil
    }

    public func contains(_ number: DownloadNumber) -> Bool { entries[number] != nil }

    /// Inserts `number` at its place, or moves it there if it is already in the queue.
    public mutating func insert(_ number: DownloadNumber, lane: UInt32 = 0, priority: Int32, position: Int64) {
        let entry = Entry(lane: lane, priority: priority, position: position, number: number)
        if let old = entries.updateValue(entry, for: number) { takeOut(old) }
        chunks.insert(entry)
        acrossLanes?.insert(entry.inLane(0))
    }

    /// Does nothing if `number` is not in the queue.
    public mutating func remove(_ number: DownloadNumber) {
        if let entry = entries.removeValue(for: number) { takeOut(entry) }
    }

    private mutating func takeOut(_ entry: Entry) {
        chunks.remove(entry)
        acrossLanes?.remove(entry.inLane(0))
    }

    /// The place of `number` among the downloads of its lane and priority, 0 = next; nil if it is not in the queue.
    public func place(of number: DownloadNumber) -> Int? {
        entries[number].map { chunks.rank($0) - ranks(of: $0.priority, in: $0.lane).lowerBound }
    }

    /// The number of downloads of `lane` before `number`, which may be in another lane; 0 if `number` is not in the queue.
    public func ahead(of number: DownloadNumber, in lane: UInt32) -> Int {
        guard let entry = entries[number] else { return 0 }
        return chunks.rank(entry.inLane(lane)) - chunks.rank(.front(of: lane))
    }

    /// The number of downloads of all lanes before `number`; 0 if it is not in the queue.
    func ahead(of number: DownloadNumber) -> Int {
        guard let entry = entries[number] else { return 0 }
        guard let acrossLanes else { preconditionFailure("this queue does not count across lanes") }
        return acrossLanes.rank(entry.inLane(0))
    }

    /// Moves `number` to `place` among the downloads of its lane and priority, 0 = next; a place beyond the last means last.
    ///
    /// - Returns: every changed position, to be saved. If the new neighbours left no gap, these are the positions of `number` and of
    ///   downloads near it. Empty if `number` is already there, or not in the queue.
    @discardableResult
    public mutating func move(_ number: DownloadNumber, to place: UInt32) -> [DownloadNumber: Int64] {
        guard let moved = entries[number], let current = self.place(of: number) else { return [:] }
        let wanted = min(Int(place), ranks(of: moved.priority, in: moved.lane).count - 1)
        guard wanted != current else { return [:] }
        remove(number)

        let others = ranks(of: moved.priority, in: moved.lane)
        let target = others.lowerBound + wanted
        let before = wanted > 0 ? chunks.entry(at: target - 1).position : nil
        let after = target < others.upperBound ? chunks.entry(at: target).position : nil
        if let position = Self.between(before, after) {
            insert(number, lane: moved.lane, priority: moved.priority, position: position)
            return [number: position]
        }

        let changed: [DownloadNumber: Int64]
        if let few = spread(number, at: target, among: others) {
            changed = few
        } else {
            changed = push(number, at: target, among: others, behind: before)
        }
        for (number, position) in changed { insert(number, lane: moved.lane, priority: moved.priority, position: position) }
        return changed
    }

    /// The new positions of `number` and of its neighbours on both sides, if there is no gap at its place. The more downloads get new
    /// positions, the wider the gaps between them, so that many moves to one place change few positions each.
    ///
    /// - Parameter target: the place, among the ranks of `others`.
    /// - Returns: nil if `number` comes last, or there is no room.
    private func spread(_ number: DownloadNumber, at target: Int, among others: Range<Int>) -> [DownloadNumber: Int64]? {
        guard others.contains(target) else { return nil }
        // The last download keeps its position, so that downloads that are queued later come behind it.
        let last = others.upperBound &- 1
        var (low, high, reach) = (target, target, 1)
        while true {
            (low, high, reach) = (max(others.lowerBound, low &- reach), min(last, high &+ reach), reach &* 2)
            let isWhole = low == others.lowerBound && high == last
            let count = high &- low &+ 1  // with `number`
            let floor = positionBelow(low, first: others.lowerBound, gaps: count)
            let step = UInt64(bitPattern: chunks.entry(at: high).position &- floor) / UInt64(count &+ 1)
            guard step >= count || isWhole else { continue }
            guard step > 0 else { return nil }
            var numbers = (low..<high).map { chunks.entry(at: $0).number }
            numbers.insert(number, at: target &- low)
            var (changed, position) = ([DownloadNumber: Int64](), floor)
            for number in numbers {
                position &+= Int64(step)
                changed[number] = position
            }
            return changed
        }
    }

    /// The position of the download before the one at `rank`; so many gaps below that one, if it is the first.
    private func positionBelow(_ rank: Int, first: Int, gaps: Int) -> Int64 {
        guard rank == first else { return chunks.entry(at: rank &- 1).position }
        let (position, overflow) = chunks.entry(at: rank).position.subtractingReportingOverflow(Int64(gaps) &* Self.gap)
        return overflow ? .min : position
    }

    /// The new positions if there is no room even for `spread`: `number` and the following downloads go on, one position each, up to the
    /// next gap. The following downloads leave the queue until they are inserted again.
    private mutating func push(
        _ number: DownloadNumber, at target: Int, among others: Range<Int>, behind before: Int64?
    ) -> [DownloadNumber: Int64] {
        var last = before ?? .min
        var changed: [DownloadNumber: Int64] = [:]
        var (pushed, remaining) = (number, others.upperBound - target)
        while true {
            last = last == .max ? .max : last + 1
            changed[pushed] = last
            guard remaining > 0 else { break }
            let following = chunks.entry(at: target)
            guard following.position <= last else { break }
            remove(following.number)
            (pushed, remaining) = (following.number, remaining - 1)
        }
        return changed
    }

    /// The position halfway between two others; nil if they leave no gap. The first position is one `gap` before the next. The last follows
    /// the previous one directly: a `gap` further on is the position of the next new number, which must come behind it.
    private static func between(_ before: Int64?, _ after: Int64?) -> Int64? {
        switch (before, after) {
        case (let before?, let after?):
            let room = UInt64(bitPattern: after &- before)
            return after > before && room >= 2 ? before &+ Int64(room / 2) : nil
        case (let before?, nil): return before == .max ? nil : before &+ 1
        case (nil, let after?): return after < .min + gap ? nil : after - gap
        case (nil, nil): return 0
        }
    }

    private func ranks(of priority: Int32, in lane: UInt32) -> Range<Int> {
        let first = chunks.rank(Entry(lane: lane, priority: priority, position: .min, number: DownloadNumber(0)))
        // Include the greatest possible entry: a row of the database may hold it.
        return first..<chunks.rank(Entry(lane: lane, priority: priority, position: .max, number: DownloadNumber(.max)), isCounted: true)
    }

    /// Sorted entries, in chunks of at most `size`: a search is binary, and a change moves the entries of one chunk only.
    private struct Chunks: Sendable {
        private static let size = 512
        /// No chunk is empty.
        private(set) var lists: [[Entry]] = []

        mutating func insert(_ entry: Entry) {
            // Nearly all entries are added last: skip the search for them.
            if let last = lists.last?.last, last < entry {
                if lists[lists.count - 1].count < Self.size { lists[lists.count - 1].append(entry) } else { lists.append([entry]) }
                return
            }
            guard !lists.isEmpty else {
                lists = [[entry]]
                return
            }
            let list = max(0, partition(lists.count) { lists[$0][0] < entry } - 1)
            let index = partition(lists[list].count) { lists[list][$0] < entry }
            lists[list].insert(entry, at: index)
            guard lists[list].count > Self.size else { return }
            lists.insert(Array(lists[list][(Self.size / 2)...]), at: list + 1)
            lists[list].removeSubrange((Self.size / 2)...)
        }

        mutating func remove(_ entry: Entry) {
            let list = partition(lists.count) { lists[$0][0] <= entry } - 1
            lists[list].remove(at: partition(lists[list].count) { lists[list][$0] < entry })
            if lists[list].isEmpty { lists.remove(at: list) }
        }

        func place(notBefore entry: Entry) -> (list: Int, index: Int)? {
            guard !lists.isEmpty else { return nil }
            let list = max(0, partition(lists.count) { lists[$0][0] < entry } - 1)
            let index = partition(lists[list].count) { lists[list][$0] < entry }
            if index < lists[list].count { return (list, index) }
            return list + 1 < lists.count ? (list + 1, 0) : nil
        }

        /// The number of entries before `entry`, whether or not it is present. `isCounted`: plus 1 if `entry` itself is present.
        func rank(_ entry: Entry, isCounted: Bool = false) -> Int {
            func comesBefore(_ other: Entry) -> Bool { isCounted ? other <= entry : other < entry }
            let list = partition(lists.count) { comesBefore(lists[$0][0]) } - 1
            guard list >= 0 else { return 0 }
            return lists[..<list].reduce(0) { $0 + $1.count } + partition(lists[list].count) { comesBefore(lists[list][$0]) }
        }

        func entry(at rank: Int) -> Entry {
            var rest = rank
            for list in lists {
                if rest < list.count { return list[rest] }
                rest -= list.count
            }
            preconditionFailure("no entry at \(rank)")
        }

        /// The first index in 0..<count for which `comesBefore` is false, or `count`. `comesBefore` must be true for all indices before it.
        private func partition(_ count: Int, _ comesBefore: (Int) -> Bool) -> Int {
            var (low, high) = (0, count)
            while low < high {
                let middle = (low + high) / 2
                if comesBefore(middle) { low = middle + 1 } else { high = middle }
            }
            return low
        }
    }
}
