/// The order in which downloads may start: highest priority first, within one the lowest position, of equals the lowest number.
///
/// It may hold several lanes, each with an order of its own; what names no lane means lane 0.
///
/// Entries lie in order in chunks of at most `chunkSize`: finding one is a binary search, and a change moves the entries of one chunk.
public struct DownloadQueue: Sendable {
    /// The distance between the positions of neighbours, so that many fit between without renumbering.
    private static let gap: Int64 = 1 << 20
    private static let chunkSize = 512

    private struct Entry: Comparable, Sendable {
        var lane: UInt32
        var priority: Int32
        var position: Int64
        var number: DownloadNumber

        static func < (a: Entry, b: Entry) -> Bool {
            a.lane == b.lane ? (b.priority, a.position, a.number) < (a.priority, b.position, b.number) : a.lane < b.lane
        }

        /// Comes before all of `lane`.
        static func front(of lane: UInt32) -> Entry {
            Entry(lane: lane, priority: .max, position: .min, number: DownloadNumber(0))
        }
    }

    /// None is empty.
    private var chunks: [[Entry]] = []
    private var entries: [DownloadNumber: Entry] = [:]

    public init() {}

    /// The position of a download that is added last: numbers only grow, so positions do, with room between them.
    public static func position(of number: DownloadNumber) -> Int64 {
        let (position, overflow) = Int64(clamping: number.value).multipliedReportingOverflow(by: gap)
        return overflow ? .max : position
    }

    public var count: Int { entries.count }

    /// What starts next.
    public var next: DownloadNumber? { chunks.first?.first?.number }

    /// All, in order.
    public var ordered: [DownloadNumber] { chunks.flatMap { $0.lazy.map(\.number) } }

    /// What starts next of `lane`.
    public func next(in lane: UInt32) -> DownloadNumber? {
        guard let (chunk, index) = place(notBefore: .front(of: lane)), chunks[chunk][index].lane == lane else { return nil }
        return chunks[chunk][index].number
    }

    /// Those of `lane` in order, as long as `isWanted` holds.
    public func prefix(of lane: UInt32, while isWanted: (DownloadNumber) -> Bool) {
        guard var (chunk, index) = place(notBefore: .front(of: lane)) else { return }
        while chunk < chunks.count {
            while index < chunks[chunk].count {
                let entry = chunks[chunk][index]
                guard entry.lane == lane, isWanted(entry.number) else { return }
                index += 1
            }
            (chunk, index) = (chunk + 1, 0)
        }
    }

    private func place(notBefore entry: Entry) -> (chunk: Int, index: Int)? {
        guard !chunks.isEmpty else { return nil }
        let chunk = max(0, partition(chunks.count) { chunks[$0][0] < entry } - 1)
        let index = partition(chunks[chunk].count) { chunks[chunk][$0] < entry }
        if index < chunks[chunk].count { return (chunk, index) }
        return chunk + 1 < chunks.count ? (chunk + 1, 0) : nil
    }

    /// The first in order for which `isWanted` holds.
    public func first(where isWanted: (DownloadNumber) -> Bool) -> DownloadNumber? {
        for chunk in chunks {
            for entry in chunk where isWanted(entry.number) { return entry.number }
        }
        return nil
    }

    /// The last in order for which `isWanted` holds.
    public func last(where isWanted: (DownloadNumber) -> Bool) -> DownloadNumber? {
        for chunk in chunks.reversed() {
            for entry in chunk.reversed() where isWanted(entry.number) { return entry.number }
        }
        return nil
    }

    public func contains(_ number: DownloadNumber) -> Bool { entries[number] != nil }

    /// Puts `number` in its place; one that is in the queue already is moved there.
    public mutating func insert(_ number: DownloadNumber, lane: UInt32 = 0, priority: Int32, position: Int64) {
        let entry = Entry(lane: lane, priority: priority, position: position, number: number)
        if let old = entries.updateValue(entry, forKey: number) { takeOut(old) }
        // What is added last, as nearly all is, costs no search.
        if let last = chunks.last?.last, last < entry {
            if chunks[chunks.count - 1].count < Self.chunkSize { chunks[chunks.count - 1].append(entry) } else { chunks.append([entry]) }
            return
        }
        guard !chunks.isEmpty else {
            chunks = [[entry]]
            return
        }
        let chunk = max(0, partition(chunks.count) { chunks[$0][0] < entry } - 1)
        let index = partition(chunks[chunk].count) { chunks[chunk][$0] < entry }
        chunks[chunk].insert(entry, at: index)
        guard chunks[chunk].count > Self.chunkSize else { return }
        chunks.insert(Array(chunks[chunk][(Self.chunkSize / 2)...]), at: chunk + 1)
        chunks[chunk].removeSubrange((Self.chunkSize / 2)...)
    }

    /// Nothing happens where `number` is not in the queue.
    public mutating func remove(_ number: DownloadNumber) {
        if let entry = entries.removeValue(forKey: number) { takeOut(entry) }
    }

    /// Makes room for so many more.
    mutating func reserve(_ count: Int) { entries.reserveCapacity(entries.count + count) }

    private mutating func takeOut(_ entry: Entry) {
        let chunk = partition(chunks.count) { chunks[$0][0] <= entry } - 1
        chunks[chunk].remove(at: partition(chunks[chunk].count) { chunks[chunk][$0] < entry })
        if chunks[chunk].isEmpty { chunks.remove(at: chunk) }
    }

    /// The place of `number` among those of its priority, 0 = next of them; nil where it is not in the queue.
    public func place(of number: DownloadNumber) -> Int? {
        entries[number].map { rank($0) - ranks(of: $0.priority, in: $0.lane).lowerBound }
    }

    /// How many of `lane` come before `number`, which may be of another one; 0 where it is not in the queue.
    public func ahead(of number: DownloadNumber, in lane: UInt32) -> Int {
        guard var entry = entries[number] else { return 0 }
        entry.lane = lane
        return rank(entry) - rank(.front(of: lane))
    }

    /// Moves `number` to `place` among those of its priority, 0 = next of them; beyond the last means last.
    ///
    /// - Returns: every position that changed, to be saved: that of `number` and, where there was no room between its new neighbours,
    ///   of those after it up to the next gap. Empty where it is there already, or not in the queue.
    @discardableResult
    public mutating func move(_ number: DownloadNumber, to place: UInt32) -> [DownloadNumber: Int64] {
        guard let moved = entries[number], let current = self.place(of: number) else { return [:] }
        let wanted = min(Int(place), ranks(of: moved.priority, in: moved.lane).count - 1)
        guard wanted != current else { return [:] }
        remove(number)

        let others = ranks(of: moved.priority, in: moved.lane)
        let target = others.lowerBound + wanted
        let before = wanted > 0 ? entry(at: target - 1).position : nil
        let after = target < others.upperBound ? entry(at: target).position : nil
        if let position = Self.between(before, after) {
            insert(number, lane: moved.lane, priority: moved.priority, position: position)
            return [number: position]
        }

        // No room: it and what follows are pushed on, one by one, up to the next gap.
        var last = before ?? .min
        var changed: [DownloadNumber: Int64] = [:]
        var (pushed, remaining) = (number, others.upperBound - target)
        while true {
            last = last == .max ? .max : last + 1
            changed[pushed] = last
            guard remaining > 0 else { break }
            let following = entry(at: target)
            guard following.position <= last else { break }
            remove(following.number)
            (pushed, remaining) = (following.number, remaining - 1)
        }
        for (number, position) in changed { insert(number, lane: moved.lane, priority: moved.priority, position: position) }
        return changed
    }

    /// A position between two, with as much room on both sides as there is; nil where there is none.
    private static func between(_ before: Int64?, _ after: Int64?) -> Int64? {
        switch (before, after) {
        case (let before?, let after?):
            let room = UInt64(bitPattern: after &- before)
            return after > before && room >= 2 ? before &+ Int64(room / 2) : nil
        case (let before?, nil): return before > .max - gap ? nil : before + gap
        case (nil, let after?): return after < .min + gap ? nil : after - gap
        case (nil, nil): return 0
        }
    }

    /// How many entries come before `entry`, whether or not it is in the queue.
    private func rank(_ entry: Entry) -> Int {
        let chunk = partition(chunks.count) { chunks[$0][0] < entry } - 1
        guard chunk >= 0 else { return 0 }
        return chunks[..<chunk].reduce(0) { $0 + $1.count } + partition(chunks[chunk].count) { chunks[chunk][$0] < entry }
    }

    private func ranks(of priority: Int32, in lane: UInt32) -> Range<Int> {
        let first = rank(Entry(lane: lane, priority: priority, position: .min, number: DownloadNumber(0)))
        return first..<rank(Entry(lane: lane, priority: priority, position: .max, number: DownloadNumber(.max)))
    }

    private func entry(at rank: Int) -> Entry {
        var rest = rank
        for chunk in chunks {
            if rest < chunk.count { return chunk[rest] }
            rest -= chunk.count
        }
        preconditionFailure("no entry at \(rank) of \(count)")
    }

    /// The first of 0..<count for which `comesBefore` is false, it being true for all before; count where it is true for all.
    private func partition(_ count: Int, _ comesBefore: (Int) -> Bool) -> Int {
        var (low, high) = (0, count)
        while low < high {
            let middle = (low + high) / 2
            if comesBefore(middle) { low = middle + 1 } else { high = middle }
        }
        return low
    }
}
