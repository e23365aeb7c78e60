/// The free space that downloads leave on a disk for other programs, because a completely full disk breaks a session.
public enum DiskReserve: Equatable, Sendable {
    /// One hundredth of the disk, at most 1 GiB.
    case automatic
    /// This many bytes of each disk; 0: none.
    case bytes(ByteCount)

    private static let most: ByteCount = 1 << 30

    /// The bytes to leave free on a disk of `size` bytes.
    public func bytes(ofDisk size: ByteCount) -> ByteCount {
        switch self {
        case .automatic: min(size / 100, Self.most)
        case .bytes(let count): count
        }
    }

    /// The form on the bus and in the store: −1 is automatic. nil for any other negative number.
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
