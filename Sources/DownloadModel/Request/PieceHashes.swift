/// The expected digests of a file's pieces (RFC 5854 §4.1.3). Pieces are stretches of one length, one after another from the first byte;
/// the last piece may be shorter.
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

extension PieceHashes: CustomStringConvertible {
    /// Reads the option `piece-hashes`: `sha256:<length>:<hex>`, with the hexadecimal digits of all digests one after another, any case.
    ///
    /// - Throws: `InvalidOption`, which names the fault; `LimitExceeded` beyond `Limits.pieceHashBytes`.
    public init(_ text: String) throws(Refusal) {
        func invalid(_ what: String) -> Refusal { Refusal(.invalidOption, "piece-hashes: \(what)") }
        let tooLong = Refusal(.limitExceeded, "Option piece-hashes takes at most \(Limits.pieceHashBytes) bytes of digests.")
        let mostDigits = Limits.pieceHashBytes *| 2
        // Before the text is read, which may be as long as a message on the bus.
        guard text.utf8.count <= mostDigits +| Self.longestStart else { throw tooLong }
        let parts = text.utf8.split(separator: UInt8(ascii: ":"), maxSplits: 2, omittingEmptySubsequences: false)
        guard parts.count == 3 else {
            throw invalid("write it as in sha256:<bytes of a piece>:<hexadecimal digits of all digests>.")
        }
        guard let algorithm = Checksum.Algorithm(rawValue: String(Substring(parts[0])).lowercased()) else {
            let names = Checksum.Algorithm.allCases.map(\.rawValue).joined(separator: ", ")
            throw invalid("Todoku does not know the algorithm; use one of \(names).")
        }
        guard let length = decimal(parts[1], as: ByteCount.self), length > 0 else {
            throw invalid("the length of a piece is not a number of bytes above 0.")
        }
        guard parts[2].count <= mostDigits else { throw tooLong }
        guard let digests = bytes(ofHexadecimal: parts[2]), let hashes = PieceHashes(algorithm, length: length, digests: digests) else {
            throw invalid("the digests are not hexadecimal digits, \(algorithm.length * 2) for each digest of \(algorithm.rawValue).")
        }
        self = hashes
    }

    /// More bytes than stand before the digests.
    private static let longestStart = 64

    /// As the option has it, in lower case.
    public var description: String { "\(algorithm.rawValue):\(length):\(hexadecimal(digests))" }
}
