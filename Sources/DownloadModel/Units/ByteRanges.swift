/// A set of bytes of a file: half-open ranges that are sorted, not empty, and neither overlap nor touch.
///
/// A set claims that its bytes are on disk, so it may omit bytes, but never add any. A range that does not fit is left out.
public struct ByteRanges: Hashable, Sendable {
    /// The most ranges of a set. A set that has more leaves out its shortest one.
    public static let mostRanges = 64

    /// In ascending order.
    public private(set) var ranges: [Range<ByteCount>] = []
    /// The number of bytes in all ranges.
    public private(set) var byteCount: ByteCount = 0

    /// No byte.
    public init() {}

    /// The first `end` bytes of the file.
    public init(prefix end: ByteCount) { insert(0..<end) }

    public init(_ ranges: some Sequence<Range<ByteCount>>) {
        for range in ranges { insert(range) }
    }

    public var isEmpty: Bool { ranges.isEmpty }

    /// The end of the range that starts with the file's first byte; 0 if that byte is missing.
    public var prefixEnd: ByteCount {
        guard let first = ranges.first, first.lowerBound == 0 else { return 0 }
        return first.upperBound
    }

    /// The end of the last range; 0 if there is none.
    public var end: ByteCount { ranges.last?.upperBound ?? 0 }

    /// The first missing bytes: from `prefixEnd` to the start of the next range, or without an end (`.max`).
    public var firstGap: Range<ByteCount> {
        let start = prefixEnd
        let next = ranges.first { $0.lowerBound > start }
        return start..<(next?.lowerBound ?? .max)
    }

    /// The range that holds the byte at `offset`; nil if that byte is missing.
    public func range(around offset: ByteCount) -> Range<ByteCount>? { ranges.last { $0.contains(offset) } }

    public func contains(_ range: Range<ByteCount>) -> Bool {
        range.isEmpty || ranges.contains { $0.lowerBound <= range.lowerBound && range.upperBound <= $0.upperBound }
    }

    /// Adds the bytes of `range`. A set that has `mostRanges` leaves out the shortest range, which may be this one.
    ///
    /// - Parameter isGrowing: whether another range is left out, because the next bytes will make this one longer.
    public mutating func insert(_ range: Range<ByteCount>, isGrowing: Bool = false) {
        guard !range.isEmpty else { return }
        // Bytes come in ascending order as a rule: look from the last range.
        let behind = ranges.lastIndex { $0.lowerBound <= range.upperBound }.map { ranges.index(after: $0) } ?? 0
        var (merged, first) = (range, behind)
        while first > 0 {
            let before = ranges[ranges.index(before: first)]
            guard before.upperBound >= range.lowerBound else { break }
            merged = min(merged.lowerBound, before.lowerBound)..<max(merged.upperBound, before.upperBound)
            byteCount -|= before.byteCount
            first = ranges.index(before: first)
        }
        ranges.replaceSubrange(first..<behind, with: CollectionOfOne(merged))
        byteCount +|= merged.byteCount
        func length(_ index: Int) -> ByteCount { isGrowing && index == first ? .max : ranges[index].byteCount }
        guard ranges.count > Self.mostRanges, let shortest = ranges.indices.min(by: { length($0) < length($1) }) else { return }
        byteCount -|= ranges.remove(at: shortest).byteCount
    }

    /// Takes the bytes of `range` out of the set. A set that would have more than `mostRanges` leaves out its shortest one.
    public mutating func remove(_ range: Range<ByteCount>) {
        guard ranges.contains(where: { $0.overlaps(range) }) else { return }
        self = intersection(ByteRanges([0..<range.lowerBound, range.upperBound..<(.max)]))
    }

    /// The bytes in front of `end`.
    public func clipped(to end: ByteCount) -> ByteRanges {
        self.end <= end ? self : ByteRanges(ranges.lazy.filter { $0.lowerBound < end }.map { $0.clamped(to: 0..<end) })
    }

    /// The bytes in both sets.
    public func intersection(_ other: ByteRanges) -> ByteRanges {
        if self == other { return self }
        return ByteRanges(ranges.flatMap { range in other.ranges.lazy.filter { $0.overlaps(range) }.map { $0.clamped(to: range) } })
    }

    /// The bytes of `whole` that are missing, in ascending order.
    public func gaps(in whole: Range<ByteCount>) -> [Range<ByteCount>] {
        var (gaps, start): ([Range<ByteCount>], ByteCount) = ([], whole.lowerBound)
        for range in ranges where range.overlaps(whole) {
            if range.lowerBound > start { gaps.append(start..<range.lowerBound) }
            start = range.upperBound
        }
        if start < whole.upperBound { gaps.append(start..<whole.upperBound) }
        return gaps
    }
}

/// As text: `0..<500 1000..<1200`; empty for no byte.
extension ByteRanges: CustomStringConvertible {
    public var description: String { ranges.map { "\($0.lowerBound)..<\($0.upperBound)" }.joined(separator: " ") }

    /// nil unless `text` is exactly the `description` of a set.
    public init?(_ text: String) {
        let words = text.utf8.split(separator: UInt8(ascii: " "), maxSplits: Self.mostRanges, omittingEmptySubsequences: true)
        var ranges: [Range<ByteCount>] = []
        for word in words {
            let ends = word.split(separator: UInt8(ascii: "."), maxSplits: 1, omittingEmptySubsequences: false)
            guard ends.count == 2, ends[1].starts(with: ".<".utf8), let start = decimal(ends[0], as: ByteCount.self),
                let end = decimal(ends[1].dropFirst(2), as: ByteCount.self), start < end
            else { return nil }
            ranges.append(start..<end)
        }
        self.init(ranges)
        guard description.utf8.elementsEqual(text.utf8) else { return nil }
    }
}
