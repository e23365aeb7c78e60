/// The room of a disk that downloads leave to everybody else: a disk that is full to the last byte stops a session.
public enum DiskReserve: Equatable, Sendable {
    /// A hundredth of the disk, at most 1 GiB.
    case automatic
    /// So many bytes of each disk; 0: none.
    case bytes(ByteCount)

    private static let most: ByteCount = 1 << 30

    /// What is left free of a disk of `size` bytes.
    public func bytes(ofDisk size: ByteCount) -> ByteCount {
        switch self {
        case .automatic: min(size / 100, Self.most)
        case .bytes(let count): count
        }
    }

    /// As on the bus and in the store: −1 is automatic. nil: no such number.
    public init?(wire: Int64) {
        guard wire >= -1 else { return nil }
        self = wire < 0 ? .automatic : .bytes(ByteCount(wire))
    }

    public var wire: Int64 {
        switch self {
        case .automatic: -1
        case .bytes(let count): Int64(clamping: count)
        }
    }
}
