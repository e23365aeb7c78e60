/// The expected digests of a file's pieces. Pieces are stretches of one length, one after another from the first byte; the last piece may
/// be shorter.
public struct PieceHashes: Hashable, Sendable {
    public let algorithm: Checksum.Algorithm
    /// Bytes of each piece but the last; at least 1.
    public let length: ByteCount
    /// The digests of all pieces, one after another.
    public let digests: [UInt8]

    /// nil unless there is at least one digest, all digests have the algorithm's length, and `length` is above 0.
    public init?(_ algorithm: Checksum.Algorithm, length: ByteCount, digests: [UInt8]) {
        guard length > 0, !digests.isEmpty, digests.count.isMultiple(of: algorithm.length) else { return nil }
        (self.algorithm, self.length, self.digests) = (algorithm, length, digests)
    }

    /// The number of pieces.
    public var count: Int { digests.count / algorithm.length }

    /// Whether a file of `size` bytes has this many pieces.
    public func fits(_ size: ByteCount) -> Bool {
        size > 0 && (size - 1) / length == ByteCount(count - 1)
    }

    /// The bytes of piece `index` in a file of `size` bytes; empty if the file has no such piece.
    public func range(of index: Int, size: ByteCount) -> Range<ByteCount> {
        guard index >= 0, index < count else { return size..<size }
        let start = min(size, length *| ByteCount(index))
        return start..<min(size, start +| length)
    }

    /// The expected digest of piece `index`; nil if there is no such piece.
    public func checksum(of index: Int) -> Checksum? {
        guard index >= 0, index < count else { return nil }
        let start = index * algorithm.length
        return Checksum(algorithm, digest: Array(digests[start..<(start + algorithm.length)]))
    }
}
