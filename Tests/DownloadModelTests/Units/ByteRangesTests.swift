import DownloadModel
import TestSupport
import Testing

@Suite struct `Byte ranges` {
    @Test(
        arguments: [
            ([0..<5], "0..<5"), ([0..<5, 5..<9], "0..<9"), ([5..<9, 0..<5], "0..<9"), ([0..<5, 6..<9], "0..<5 6..<9"),
            ([6..<9, 0..<5, 5..<6], "0..<9"), ([2..<4, 6..<8, 10..<12, 3..<11], "2..<12"), ([2..<4, 6..<8, 0..<20], "0..<20"),
            ([0..<20, 6..<8], "0..<20"), ([3..<3], ""), ([], ""), ([1..<2, 4..<5, 2..<4, 7..<8], "1..<5 7..<8"),
            ([0..<1, (ByteCount.max - 1)..<ByteCount.max], "0..<1 18446744073709551614..<18446744073709551615"),
        ] as [([Range<ByteCount>], String)])
    func `are merged where they meet`(added: [Range<ByteCount>], text: String) {
        let set = ByteRanges(added)
        #expect(set.description == text)
        #expect(ByteRanges(text) == set)
        #expect(set.byteCount == set.ranges.reduce(0) { $0 + $1.byteCount })
    }

    @Test func `are the same set as bytes that are marked one by one`() {
        var random = SeededRandom(7)
        for _ in 0..<300 {
            var (set, other, marks, otherMarks) = (ByteRanges(), ByteRanges(), Set<ByteCount>(), Set<ByteCount>())
            func range() -> Range<ByteCount> {
                let start = ByteCount.random(in: 0..<60, using: &random)
                return start..<(start + .random(in: 0..<12, using: &random))
            }
            for _ in 0..<Int.random(in: 0..<14, using: &random) {
                let (one, two) = (range(), range())
                set.insert(one)
                marks.formUnion(one)
                if Bool.random(using: &random) {
                    other.insert(two)
                    otherMarks.formUnion(two)
                }
            }
            func bytes(_ ranges: [Range<ByteCount>]) -> [ByteCount] { ranges.flatMap(Array.init) }
            #expect(bytes(set.ranges) == marks.sorted() && set.byteCount == ByteCount(marks.count))
            #expect(zip(set.ranges, set.ranges.dropFirst()).allSatisfy { $0.upperBound < $1.lowerBound })
            #expect(set.prefixEnd == (0...72).first { !marks.contains($0) })
            #expect(set.end == (marks.max().map { $0 + 1 } ?? 0))
            #expect(bytes(set.intersection(other).ranges) == marks.intersection(otherMarks).sorted())
            let whole = range()
            #expect(bytes(set.gaps(in: whole)) == whole.filter { !marks.contains($0) })
            #expect(bytes(set.clipped(to: whole.upperBound).ranges) == marks.filter { $0 < whole.upperBound }.sorted())
            #expect(set.contains(whole) == whole.allSatisfy(marks.contains))
            var less = set
            less.remove(whole)
            #expect(bytes(less.ranges) == marks.subtracting(whole).sorted() && less.byteCount == ByteCount(marks.subtracting(whole).count))
            let gap = set.firstGap
            #expect(gap.lowerBound == set.prefixEnd && gap.upperBound == marks.filter { $0 >= gap.lowerBound }.min() ?? .max)
            #expect(ByteRanges(set.description) == set)
        }
    }

    @Test func `that are too many leave out the shortest`() {
        let set = ByteRanges((0..<64).map { $0 * 100..<$0 * 100 + 50 })
        #expect(set.ranges.count == 64 && set.byteCount == 3200)
        var more = set
        more.insert(10_000..<10_010)
        #expect(more == set)
        more.insert(10_000..<10_060)
        #expect(more.ranges.count == 64 && more.byteCount == 3210 && !more.contains(0..<50) && more.contains(10_000..<10_060))
        var growing = set
        growing.insert(10_000..<10_010, isGrowing: true)
        #expect(growing.ranges.count == 64 && growing.byteCount == 3160 && growing.contains(10_000..<10_010))
    }

    @Test(arguments: [
        "5..<5", "9..<5", "5..<9 0..<5", "0..<5 5..<9", "0..<5  7..<9", " 0..<5", "0..<5 ", "0...5", "0-5", "0..<", "..<5", "0..<-1",
        "+0..<5", "00..<5",
        "0..<18446744073709551616", "0..<5,7..<9", "0..<5\0", "０..<5", "a", "0..<5 4..<9",
        (0..<65).map { "\($0 * 2)..<\($0 * 2 + 1)" }.joined(separator: " "),
    ])
    func `are read from their own text only`(text: String) { #expect(ByteRanges(text) == nil) }
}
