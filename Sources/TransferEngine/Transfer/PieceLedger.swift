internal import DownloadModel

/// The state of the pieces of one part file: which pieces are right, which are being checked, and which sources have written the others.
final class PieceLedger {
    /// The sources that have written the bytes of a piece.
    enum Writer: Equatable {
        case nobody
        /// The source at this place in `Transfer.sources`, alone.
        case source(Int)
        /// Several sources, or an earlier transfer.
        case several
    }

    /// A run of pieces that are checked together has at most this many bytes, or is one piece.
    static let mostBytes: ByteCount = 8 << 20
    /// If a piece that no single source has written is wrong this many times, the transfer fails.
    static let mostFailures = 4

    let hashes: PieceHashes
    /// The size of the file.
    let size: ByteCount
    private var writers: [Writer]
    private var isRight: [Bool]
    private var rightCount = 0
    /// All pieces before this index are right.
    private var firstOpen = 0
    /// How often each piece has been wrong, also in earlier part files of the transfer.
    private(set) var failures: [Int: Int]
    /// The check that is under way; nil: none.
    private(set) var check: Check?

    struct Check {
        /// Names the check.
        let number: UInt64
        let pieces: Range<Int>
        let work: DiskWork
        /// The pieces into which bytes were written after the check began. For these, the result of the check does not count.
        fileprivate(set) var rewritten: Set<Int> = []
    }

    /// - Parameters:
    ///   - held: bytes of an earlier transfer.
    ///   - failures: how often each piece was wrong in the part file before.
    init(_ hashes: PieceHashes, size: ByteCount, held: ByteRanges = ByteRanges(), failures: [Int: Int] = [:]) {
        (self.hashes, self.size, self.failures) = (hashes, size, failures)
        writers = Array(repeating: .nobody, count: hashes.count)
        isRight = Array(repeating: false, count: hashes.count)
        for range in held.ranges { for index in pieces(of: range) { writers[index] = .several } }
    }

    deinit { giveUp() }

    /// Nobody waits for the check under way any more.
    func giveUp() { check?.work.giveUp() }

    /// Whether all pieces are right.
    var isDone: Bool { rightCount == hashes.count }
    /// Whether any piece was wrong.
    var hasFailed: Bool { !failures.isEmpty }

    func range(of index: Int) -> Range<ByteCount> { hashes.range(of: index, size: size) }
    func writer(of index: Int) -> Writer { writers.indices.contains(index) ? writers[index] : .nobody }

    /// The pieces that have bytes of `range`.
    private func pieces(of range: Range<ByteCount>) -> Range<Int> {
        guard !range.isEmpty else { return 0..<0 }
        let end = Int(clamping: (range.upperBound -| 1) / hashes.length)
        return min(Int(clamping: range.lowerBound / hashes.length), hashes.count)..<min(end +| 1, hashes.count)
    }

    /// The source at `place` has written the bytes of `range`. Pieces that were checked before must be checked again.
    func wrote(_ range: Range<ByteCount>, _ place: Int) {
        for index in pieces(of: range) {
            if isRight[index] {
                isRight[index] = false
                rightCount -|= 1
                firstOpen = min(firstOpen, index)
            }
            check?.rewritten.insert(index)
            switch writers[index] {
            case .nobody: writers[index] = .source(place)
            case .source(place): break
            case .source, .several: writers[index] = .several
            }
        }
    }

    /// Begins the check of the next pieces whose bytes are all written; nil: there are none, or a check is under way.
    ///
    /// - Parameters:
    ///   - number: names the check.
    ///   - work: will check the pieces.
    func begin(_ number: UInt64, in written: ByteRanges, _ work: DiskWork) -> Range<Int>? {
        guard check == nil else { return nil }
        while firstOpen < isRight.count, isRight[firstOpen] { firstOpen +|= 1 }
        for start in firstOpen..<max(firstOpen, isRight.count) where !isRight[start] && written.contains(range(of: start)) {
            var end = start +| 1
            let most = range(of: start).lowerBound +| Self.mostBytes
            while end < isRight.count, !isRight[end], range(of: end).upperBound <= most, written.contains(range(of: end)) { end +|= 1 }
            check = Check(number: number, pieces: start..<end, work: work)
            return start..<end
        }
        return nil
    }

    /// The check has ended.
    ///
    /// - Parameter wrong: the pieces whose digest differed in the check.
    /// - Returns: the pieces of `wrong` that are still wrong: no bytes were written into them during the check.
    func end(wrong: [Int]) -> [Int] {
        defer { check = nil }
        guard let check else { return [] }
        let different = Set(wrong)
        for index in check.pieces where !check.rewritten.contains(index) && !different.contains(index) && !isRight[index] {
            isRight[index] = true
            rightCount +|= 1
        }
        return wrong.filter { check.pieces.contains($0) && !check.rewritten.contains($0) }
    }

    /// Completes "The …" about a wrong piece.
    ///
    /// - Parameter digest: the computed digest of the piece.
    func fault(of index: Int, digest: [UInt8]) -> String {
        let (range, expected) = (range(of: index), hashes.checksum(of: index))
        let bytes = "bytes \(range.lowerBound) to \(range.upperBound -| 1)"
        guard let own = Checksum(hashes.algorithm, digest: digest), let expected else { return "\(bytes) do not have the expected digest." }
        return "\(bytes) have \(own), not \(expected)."
    }

    /// The bytes of a wrong piece must be fetched again.
    ///
    /// - Returns: how often the piece has been wrong.
    func forget(_ index: Int) -> Int {
        writers[index] = .nobody
        let times = (failures[index] ?? 0) +| 1
        failures[index] = times
        return times
    }
}
